/* The installed library and the C compiler that turns emitted C into a program. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/driver.h"
#include "driver/passes.h"

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

/* ---- one build ---- */

typedef struct Build {
  Arena *arena;
  const Options *options;
  const char *name, *library, *directory; /* of temporary files, where commands run */
} Build;

static const char *inside(const Build *b, const char *suffix) {
  return arena_printf(b->arena, "%s/%s%s", b->directory, b->name, suffix);
}

/* The words of a file of the library, one more set of flags. */
static bool add_file(const Build *b, Words *words, const char *file) {
  size_t length = 0;
  const char *text = read_whole(b->arena, arena_printf(b->arena, "%s/%s", b->library, file), &length);
  if (text) add_words(b->arena, words, text);
  return text != NULL;
}

static void add_compiler(const Build *b, Words *words) {
  const char *cc = b->options->cc ? b->options->cc : getenv("PDC_CC");
  add_words(b->arena, words, cc && *cc ? cc : b->options->no_mpi ? "cc" : "mpicc");
}

/* Shows and runs one command; an exit status. */
static int step(const Build *b, Words *words, const char *what) {
  const Options *o = b->options;
  if (o->verbose || o->show_commands)
    for (uint32_t i = 0; i < words->count; i++) fprintf(stderr, "%s%s", words->at[i], i + 1 < words->count ? " " : "\n");
  if (o->show_commands) return EXIT_OK;
  const char *first = words->at[0];
  vec_push(b->arena, words, NULL);
  int code = run(b->directory, (char *const *)words->at);
  if (code == 0) return EXIT_OK;
  fprintf(stderr, "pdc: the %s `%s` failed with status %d; no program was written\n", what, first, code);
  return EXIT_CC;
}

static int build_host(const Build *b, const char *output) {
  Words words = {0};
  add_compiler(b, &words);
  if (!add_file(b, &words, "cflags")) return EXIT_USAGE;
  vec_push(b->arena, &words, b->options->optimize);
  if (b->options->debug) vec_push(b->arena, &words, "-g");
  vec_push(b->arena, &words, arena_printf(b->arena, "-I%s/include", b->library));
  vec_push(b->arena, &words, arena_printf(b->arena, "%s.c", b->name));
  vec_push(b->arena, &words, "-o");
  vec_push(b->arena, &words, output);
  vec_push(b->arena, &words, arena_printf(b->arena, "%s/libpdrt.a", b->library));
  if (!add_file(b, &words, "libs")) return EXIT_USAGE;
  return step(b, &words, "C compiler");
}

/* ---- CUDA ---- */

const char *toolchain_cuda(Arena *arena) {
  const char *home = getenv("CUDA_HOME");
  if (home && *home) return home;
  const char *path = getenv("PATH");
  for (const char *at = path ? path : ""; *at;) {
    size_t length = strcspn(at, ":");
    const char *nvcc = arena_printf(arena, "%.*s/nvcc", (int)length, at);
    char real[PATH_MAX];
    if (length && exists(nvcc) && realpath(nvcc, real)) { /* …/bin/nvcc */
      for (int up = 0; up < 2; up++)
        if (strrchr(real, '/')) *strrchr(real, '/') = 0;
      return arena_strdup(arena, real);
    }
    at += length + (at[length] == ':');
  }
  return "/usr/local/cuda";
}

static void add_architectures(const Build *b, Words *words) {
  const Options *o = b->options;
  if (!o->archs.count) {
    add_words(b->arena, words, "-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 "
                               "-gencode arch=compute_100,code=[sm_100,compute_100] --threads 2");
    return;
  }
  for (uint32_t i = 0; i < o->archs.count; i++) {
    vec_push(b->arena, words, "-gencode");
    vec_push(b->arena, words, arena_printf(b->arena, "arch=compute_%s,code=sm_%s", o->archs.at[i], o->archs.at[i]));
  }
}

static int build_cuda(const Build *b, const char *output) {
  Arena *arena = b->arena;
  const char *archive = arena_printf(arena, "%s/libpdrt_cuda%s.a", b->library, b->options->no_mpi ? "_single" : "");
  if (!exists(archive)) {
    fprintf(stderr, "pdc: this pdc was built where no CUDA toolkit was, and has no runtime for --target=cuda; build it again "
                    "with CUDA=DIRECTORY\n");
    return EXIT_USAGE;
  }
  const char *cuda = toolchain_cuda(arena), *nvcc = getenv("PDC_NVCC");
  Words kernels = {0}, host = {0}, link = {0};
  add_words(arena, &kernels, nvcc && *nvcc ? nvcc : exists(arena_printf(arena, "%s/bin/nvcc", cuda)) ? arena_printf(arena, "%s/bin/nvcc", cuda) : "nvcc");
  if (!add_file(b, &kernels, "nvccflags")) return EXIT_USAGE;
  add_architectures(b, &kernels);
  if (b->options->debug) vec_push(arena, &kernels, "-lineinfo");
  add_words(arena, &kernels, arena_printf(arena, "-I%s/include -I%s/cuda -c %s.cu -o %s.cu.o", b->library, b->library, b->name, b->name));
  int status = step(b, &kernels, "CUDA compiler");
  if (status != EXIT_OK) return status;
  add_compiler(b, &host);
  if (!add_file(b, &host, "cuda_cflags")) return EXIT_USAGE;
  vec_push(arena, &host, b->options->optimize);
  if (b->options->debug) vec_push(arena, &host, "-g");
  add_words(arena, &host, arena_printf(arena, "-I%s/include -isystem %s/include -c %s.c -o %s.o", b->library, cuda, b->name, b->name));
  status = step(b, &host, "C compiler");
  if (status != EXIT_OK) return status;
  add_compiler(b, &link);
  add_words(arena, &link, arena_printf(arena, "%s.o %s.cu.o -o", b->name, b->name));
  vec_push(arena, &link, output);
  vec_push(arena, &link, archive);
  add_words(arena, &link, arena_printf(arena, "-L%s/lib64 -Wl,--enable-new-dtags -Wl,-rpath,%s/lib64", cuda, cuda));
  if (!add_file(b, &link, "cuda_libs")) return EXIT_USAGE;
  return step(b, &link, "linker");
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
  const char *temporary = arena_printf(arena, "%s.%ld.tmp", absolute(arena, output), (long)getpid());
  int status = EXIT_USAGE;
  if (write_sources(&build, sources, inside(&build, "")))
    status = o->target == TARGET_CUDA ? build_cuda(&build, temporary) : build_host(&build, temporary);
  if (status == EXIT_OK && !o->show_commands && rename(temporary, output) != 0) {
    fprintf(stderr, "pdc: cannot write %s: %s\n", output, strerror(errno));
    status = EXIT_USAGE;
  }
  unlink(temporary);
  if (o->save_temps && !write_sources(&build, sources, output)) status = EXIT_USAGE;
  static const char *const made[] = {".c", ".cu", ".plan.json", ".plans", ".o", ".cu.o"};
  for (size_t i = 0; i < sizeof made / sizeof *made; i++) unlink(inside(&build, made[i]));
  rmdir(directory);
  return status;
}

Target toolchain_default_target(Arena *arena) {
  const char *library = toolchain_library(arena);
  bool driver = exists("/proc/driver/nvidia/version") || exists("/dev/nvidiactl");
  return driver && library && exists(arena_printf(arena, "%s/libpdrt_cuda.a", library)) ? TARGET_CUDA : TARGET_HOST;
}

void toolchain_print_requirements(Arena *arena) {
  printf("To build: nvcc 13 (found by $PDC_NVCC, $CUDA_HOME, PATH or /usr/local/cuda; now %s), a C++17 compiler that it accepts, MPI.\n"
         "To run: an NVIDIA driver of version 580 or later, a device of compute capability 8.0 or later for each rank, and\n"
         "  libcudart.so.13    1 MB  the CUDA runtime\n"
         "  libcublasLt.so.13  540 MB matrix products\n"
         "  libnccl.so.2       220 MB collectives and messages between devices\n"
         "  libmpi             start-up and the host's control\n"
         "The program looks for the first three in %s/lib64; LD_LIBRARY_PATH comes before that.\n",
         toolchain_cuda(arena), toolchain_cuda(arena));
}
