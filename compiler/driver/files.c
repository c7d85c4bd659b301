/* Whole files in and out. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver/driver.h"

const char *read_whole(Arena *arena, const char *path, size_t *length) {
  bool standard = strcmp(path, "-") == 0;
  FILE *file = standard ? stdin : fopen(path, "rb");
  Text text = {.arena = arena};
  text_put(&text, "", 0);
  if (file) {
    char block[65536];
    size_t got;
    while ((got = fread(block, 1, sizeof block, file)) > 0) text_put(&text, block, got);
  }
  if (!file || ferror(file)) {
    fprintf(stderr, "pdc: cannot read %s: %s\n", path, strerror(errno));
    if (file && !standard) fclose(file);
    return NULL;
  }
  if (!standard) fclose(file);
  *length = text.length;
  return text.at ? text.at : "";
}

bool write_whole(Arena *arena, const char *path, const char *text, size_t length) {
  if (strcmp(path, "-") == 0) {
    bool done = fwrite(text, 1, length, stdout) == length && fflush(stdout) == 0;
    if (!done) fprintf(stderr, "pdc: cannot write to standard output: %s\n", strerror(errno));
    return done;
  }
  const char *temporary = arena_printf(arena, "%s.%ld.tmp", path, (long)getpid());
  FILE *file = fopen(temporary, "wb");
  bool done = file && fwrite(text, 1, length, file) == length;
  int error = errno;
  if (file && fclose(file) != 0) done = false, error = errno;
  if (done && rename(temporary, path) != 0) done = false, error = errno;
  if (!done) {
    unlink(temporary);
    fprintf(stderr, "pdc: cannot write %s: %s\n", path, strerror(error));
  }
  return done;
}
