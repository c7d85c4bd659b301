/* The installed library and the C compiler that turns emitted C into a program. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/driver.h"

static bool exists(const char *path) {
  struct stat status;
  return stat(path, &status) == 0;
}

const char *toolchain_library(Arena *arena) {
  char self[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length <= 0) return NULL;
  self[length] = 0;
  *strrchr(self, '/') = 0;
  const char *beside = arena_printf(arena, "%s/lib/pdc", self);
  if (exists(beside)) return beside;
  *strrchr(self, '/') = 0;
  const char *installed = arena_printf(arena, "%s/lib/pdc", self);
  return exists(installed) ? installed : NULL;
}

typedef VEC(const char *) Words;

static void add_words(Arena *arena, Words *words, const char *text) {
  while (*text) {
    text += strspn(text, " \t\n");
    size_t length = strcspn(text, " \t\n");
    if (length) vec_push(arena, words, arena_strndup(arena, text, length));
    text += length;
  }
}

/* Runs a command in `directory`; its exit status, or -1 if it could not be started. */
static int run(const char *directory, char *const *words) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    if (chdir(directory) == 0) execvp(words[0], words);
    fprintf(stderr, "pdc: cannot run %s: %s\n", words[0], strerror(errno));
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) < 0) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static const char *absolute(Arena *arena, const char *path) {
  if (path[0] == '/') return path;
  char here[PATH_MAX];
  return getcwd(here, sizeof here) ? arena_printf(arena, "%s/%s", here, path) : path;
}

int toolchain_build(Arena *arena, const Options *o, const char *name, const Text *c, const Text *plan,
                    const char *output) {
  const char *library = toolchain_library(arena);
  if (!library) {
    fprintf(stderr,
            "pdc: the runtime library lib/pdc is neither beside this pdc nor in its prefix; build with `make`, or "
            "`make install`\n");
    return EXIT_USAGE;
  }
  struct stat status_of_output;
  if (stat(output, &status_of_output) == 0 && !S_ISREG(status_of_output.st_mode)) {
    fprintf(stderr, "pdc: %s is there and is no regular file; choose another name with -o\n", output);
    return EXIT_USAGE;
  }
  const char *slash = strrchr(output, '/'),
             *place = slash ? arena_strndup(arena, output, (size_t)(slash + 1 - output)) : ".";
  if (access(place, W_OK | X_OK) != 0) {
    fprintf(stderr, "pdc: cannot write %s: %s\n", output, strerror(errno));
    return EXIT_USAGE;
  }
  const char *base = getenv("TMPDIR");
  char *directory = arena_printf(arena, "%s/pdc-XXXXXX", base && *base ? base : "/tmp");
  if (!mkdtemp(directory)) {
    fprintf(stderr, "pdc: cannot make a directory for temporary files in %s: %s\n", base && *base ? base : "/tmp",
            strerror(errno));
    return EXIT_USAGE;
  }
  const char *c_file = arena_printf(arena, "%s/%s.c", directory, name);
  const char *plan_file = arena_printf(arena, "%s/%s.plan.json", directory, name);
  const char *temporary = arena_printf(arena, "%s.%ld.tmp", absolute(arena, output), (long)getpid());
  size_t length = 0;
  const char *flags = read_whole(arena, arena_printf(arena, "%s/cflags", library), &length);
  const char *libraries = read_whole(arena, arena_printf(arena, "%s/libs", library), &length);
  int status = EXIT_USAGE;
  if (flags && libraries && write_whole(arena, c_file, c->at, c->length) &&
      write_whole(arena, plan_file, plan->at, plan->length)) {
    Words words = {0};
    const char *cc = o->cc ? o->cc : getenv("PDC_CC");
    add_words(arena, &words, cc && *cc ? cc : "mpicc");
    add_words(arena, &words, flags);
    vec_push(arena, &words, o->optimize);
    if (o->debug) vec_push(arena, &words, "-g");
    vec_push(arena, &words, arena_printf(arena, "-I%s/include", library));
    vec_push(arena, &words, arena_printf(arena, "%s.c", name));
    vec_push(arena, &words, "-o");
    vec_push(arena, &words, temporary);
    vec_push(arena, &words, arena_printf(arena, "%s/libpdrt.a", library));
    add_words(arena, &words, libraries);
    if (o->verbose || o->show_commands)
      for (uint32_t i = 0; i < words.count; i++) fprintf(stderr, "%s%s", words.at[i], i + 1 < words.count ? " " : "\n");
    vec_push(arena, &words, NULL);
    if (o->show_commands) {
      status = EXIT_OK;
    } else {
      int code = run(directory, (char *const *)words.at);
      status = code == 0 ? EXIT_OK : EXIT_CC;
      if (code == 0 && rename(temporary, output) != 0) {
        fprintf(stderr, "pdc: cannot write %s: %s\n", output, strerror(errno));
        status = EXIT_USAGE;
      } else if (code != 0) {
        fprintf(stderr, "pdc: the C compiler `%s` failed with status %d; no program was written\n", words.at[0], code);
      }
    }
  }
  unlink(temporary);
  if (o->save_temps) {
    const char *stem = arena_printf(arena, "%s", output);
    if (!write_whole(arena, arena_printf(arena, "%s.c", stem), c->at, c->length) ||
        !write_whole(arena, arena_printf(arena, "%s.plan.json", stem), plan->at, plan->length))
      status = EXIT_USAGE;
  }
  unlink(c_file);
  unlink(plan_file);
  rmdir(directory);
  return status;
}
