/* The installed library, and the compilers that turn emitted sources into a program. See toolchain.h. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/passes.h"
#include "driver/toolchain.h"

bool file_exists(const char *path) {
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
  if (file_exists(beside)) return beside;
  *strrchr(self, '/') = 0;
  const char *installed = arena_printf(arena, "%s/lib/pdc", self);
  return file_exists(installed) ? installed : NULL;
}

void add_words(Arena *arena, Words *words, const char *text) {
  while (*text) {
    text += strspn(text, " \t\n");
    size_t length = strcspn(text, " \t\n");
    if (length) vec_push(arena, words, arena_strndup(arena, text, length));
    text += length;
  }
}

const char *absolute_path(Arena *arena, const char *path) {
  if (path[0] == '/') return path;
  char here[PATH_MAX];
  return getcwd(here, sizeof here) ? arena_printf(arena, "%s/%s", here, path) : path;
}

/* ---- commands of a build ---- */

const char *build_file(const Build *b, const char *suffix) {
  return arena_printf(b->arena, "%s/%s%s", b->directory, b->name, suffix);
}

bool add_flags(const Build *b, Words *words, const char *file) {
  size_t length = 0;
  const char *text = read_whole(b->arena, arena_printf(b->arena, "%s/%s", b->library, file), &length);
  if (text) add_words(b->arena, words, text);
  return text != NULL;
}

void add_c_compiler(const Build *b, Words *words) {
  const char *cc = b->options->cc ? b->options->cc : getenv("PDC_CC");
  add_words(b->arena, words, cc && *cc ? cc : b->options->no_mpi ? "cc" : "mpicc");
}

static void show(const Build *b, const Step *step) {
  if (!b->options->verbose && !b->options->show_commands) return;
  const Words *words = &step->words;
  for (uint32_t i = 0; i < words->count; i++) fprintf(stderr, "%s%s", words->at[i], i + 1 < words->count ? " " : "\n");
}

/* Starts a command in the directory of the build; what it says goes into its log, if it has one. */
static void start(const Build *b, Step *step) {
  fflush(NULL);
  const uint32_t count = step->words.count;
  vec_push(b->arena, &step->words, NULL);
  step->words.count = count;
  signal(SIGCHLD, SIG_DFL); /* who ignores it, as a parent may have asked, never hears how a command ended */
  step->process = fork();
  if (step->process != 0) return;
  const char *first = step->words.at[0];
  if ((!step->log || freopen(step->log, "w", stderr)) && chdir(b->directory) == 0 &&
      dup2(step->log ? STDERR_FILENO : STDOUT_FILENO, STDOUT_FILENO) >= 0)
    execvp(first, (char *const *)step->words.at);
  fprintf(stderr, "pdc: cannot run %s: %s\n", first, strerror(errno));
  fflush(stderr);
  _exit(127);
}

/* Waits for a command that was started. */
static int finish(const Step *step) {
  int status = 0;
  if (step->process < 0 || waitpid(step->process, &status, 0) < 0 || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

static int failed(const Step *step, int code) {
  fprintf(stderr, "pdc: the %s `%s` failed with status %d; no program was written\n", step->what, step->words.at[0], code);
  return EXIT_CC;
}

int step_run(const Build *b, Step *step) {
  show(b, step);
  if (b->options->show_commands) return EXIT_OK;
  start(b, step);
  int code = finish(step);
  return code == 0 ? EXIT_OK : failed(step, code);
}

int steps_run(const Build *b, Step *steps, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    show(b, &steps[i]);
    if (b->options->show_commands) continue;
    steps[i].log = build_file(b, arena_printf(b->arena, ".%u.log", i));
    start(b, &steps[i]);
  }
  int status = EXIT_OK;
  for (uint32_t i = 0; i < count && !b->options->show_commands; i++) {
    int code = finish(&steps[i]);
    size_t length = 0;
    const char *said = status == EXIT_OK ? read_whole(b->arena, steps[i].log, &length) : NULL;
    if (said) fwrite(said, 1, length, stderr);
    if (code != 0 && status == EXIT_OK) status = failed(&steps[i], code);
    unlink(steps[i].log);
  }
  return status;
}

static int build_host(const Build *b, const char *output) {
  Step compile = {.what = "C compiler"};
  Words *words = &compile.words;
  add_c_compiler(b, words);
  if (!add_flags(b, words, "cflags")) return EXIT_USAGE;
  vec_push(b->arena, words, b->options->optimize);
  if (b->options->debug) vec_push(b->arena, words, "-g");
  vec_push(b->arena, words, arena_printf(b->arena, "-I%s/include", b->library));
  vec_push(b->arena, words, arena_printf(b->arena, "%s.c", b->name));
  vec_push(b->arena, words, "-o");
  vec_push(b->arena, words, output);
  vec_push(b->arena, words, arena_printf(b->arena, "%s/libpdrt.a", b->library));
  if (!add_flags(b, words, "libs")) return EXIT_USAGE;
  return step_run(b, &compile);
}

/* ---- all of it ---- */

typedef struct SourceFile {
  const char *suffix;
  const Text *text;
} SourceFile;

static bool write_sources(const Build *b, const SourceFile *sources, const char *stem) {
  for (const SourceFile *s = sources; s->suffix; s++)
    if (s->text->length && !write_whole(b->arena, arena_printf(b->arena, "%s%s", stem, s->suffix), s->text->at, s->text->length))
      return false;
  return true;
}

/* Keeps a file with code for a device, or the C file that holds such code, beside the program. */
static bool keep_device_code(const Build *b, const char *file, const char *output) {
  const char *dot = strrchr(file, '.'), *path = arena_printf(b->arena, "%s/%s", b->directory, file), *suffix = NULL;
  if (dot && (strcmp(dot, ".cubin") == 0 || strcmp(dot, ".ptx") == 0)) suffix = arena_printf(b->arena, ".%s", file);
  if (strcmp(path, build_file(b, CUDA_IMAGES_SUFFIX)) == 0) suffix = CUDA_IMAGES_SUFFIX;
  if (!suffix) return true;
  size_t length = 0;
  const char *bytes = read_whole(b->arena, path, &length);
  return bytes && write_whole(b->arena, arena_printf(b->arena, "%s%s", output, suffix), bytes, length);
}

/* Removes what a build left in its directory, and the directory. What is worth keeping is kept beside `output` first,
 * unless that is NULL. */
static bool empty_directory(const Build *b, const char *output) {
  bool kept = true;
  DIR *directory = opendir(b->directory);
  for (const struct dirent *entry; directory && (entry = readdir(directory)) != NULL;) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    if (output) kept &= keep_device_code(b, entry->d_name, output);
    unlink(arena_printf(b->arena, "%s/%s", b->directory, entry->d_name));
  }
  if (directory) closedir(directory);
  rmdir(b->directory);
  return kept;
}

int toolchain_build(const Options *o, const char *name, const Compilation *c, const char *output) {
  Arena *arena = c->arena;
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
  const Build build = {arena, o, name, library, directory};
  const SourceFile sources[] = {{".c", &c->c}, {".cu", &c->cu}, {".plan.json", &c->plan}, {".plans", &c->packed_plans}, {NULL, NULL}};
  const char *temporary = arena_printf(arena, "%s.%ld.tmp", absolute_path(arena, output), (long)getpid());
  int status = EXIT_USAGE;
  if (write_sources(&build, sources, build_file(&build, "")))
    status = o->target == TARGET_CUDA ? build_cuda(&build, temporary) : build_host(&build, temporary);
  if (status == EXIT_OK && !o->show_commands && rename(temporary, output) != 0) {
    fprintf(stderr, "pdc: cannot write %s: %s\n", output, strerror(errno));
    status = EXIT_USAGE;
  }
  unlink(temporary);
  if (o->save_temps && !write_sources(&build, sources, output)) status = EXIT_USAGE;
  if (!empty_directory(&build, o->save_temps ? output : NULL)) status = EXIT_USAGE;
  return status;
}

Target toolchain_default_target(Arena *arena) {
  const char *library = toolchain_library(arena);
  bool driver = file_exists("/proc/driver/nvidia/version") || file_exists("/dev/nvidiactl");
  return driver && library && file_exists(arena_printf(arena, "%s/libpdrt_cuda.a", library)) ? TARGET_CUDA : TARGET_HOST;
}
