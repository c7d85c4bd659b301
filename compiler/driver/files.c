/* Whole files in and out. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

/* A file that exists keeps its mode, and a link its target; a device or pipe is written to, never replaced. */
bool write_whole(Arena *arena, const char *path, const char *text, size_t length) {
  if (strcmp(path, "-") == 0) {
    bool done = fwrite(text, 1, length, stdout) == length && fflush(stdout) == 0;
    if (!done) fprintf(stderr, "pdc: cannot write to standard output: %s\n", strerror(errno));
    return done;
  }
  struct stat status;
  bool exists = stat(path, &status) == 0, replace = !exists || S_ISREG(status.st_mode);
  char *real = exists ? realpath(path, NULL) : NULL;
  const char *target = real ? arena_strdup(arena, real) : path;
  free(real);
  const char *place = replace ? arena_printf(arena, "%s.%ld.tmp", target, (long)getpid()) : target;
  FILE *file = fopen(place, "wb");
  bool done = file && fwrite(text, 1, length, file) == length;
  int error = errno;
  if (file && fclose(file) != 0) done = false, error = errno;
  if (done && replace && exists && chmod(place, status.st_mode & 07777) != 0) done = false, error = errno;
  if (done && replace && rename(place, target) != 0) done = false, error = errno;
  if (!done) {
    if (replace) unlink(place);
    fprintf(stderr, "pdc: cannot write %s: %s\n", path, strerror(error));
  }
  return done;
}
