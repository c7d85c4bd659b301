/* `pdc nvrtc`: the kernels of one .cu file as code for one architecture, by the compiler in NVIDIA's libnvrtc, which
 * needs no nvcc, no driver and no device. The library is opened when it is needed, so pdc itself is linked without
 * CUDA. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "driver/commands.h"
#include "driver/toolchain.h"

enum { INVALID_OPTION = 5 }; /* NVRTC_ERROR_INVALID_OPTION */

/* What is used of nvrtc.h. A result of 0 is success. */
typedef struct Nvrtc {
  int (*create)(void **program, const char *text, const char *name, int headers, const char *const *texts,
                const char *const *names);
  int (*compile)(void *program, int count, const char *const *options);
  int (*log_size)(void *program, size_t *size); /* this and the next three: the final zero byte included, for text */
  int (*log)(void *program, char *log);
  int (*cubin_size)(void *program, size_t *size);
  int (*cubin)(void *program, char *cubin);
  int (*ptx_size)(void *program, size_t *size);
  int (*ptx)(void *program, char *ptx);
  int (*destroy)(void **program);
  const char *(*error)(int result);
} Nvrtc;

/* NULL, and a line on stderr that says how to get it, if there is none. */
static void *open_library(Arena *arena) {
  const char *given = getenv("PDC_NVRTC");
  if (given && *given) {
    void *library = dlopen(given, RTLD_LAZY | RTLD_LOCAL);
    if (!library) fprintf(stderr, "pdc: PDC_NVRTC: %s\n", dlerror());
    return library;
  }
  const char *place = toolchain_cuda_libraries(arena);
  void *library = dlopen(arena_printf(arena, "%s/%s", place, NVRTC_NAME), RTLD_LAZY | RTLD_LOCAL);
  if (!library) library = dlopen(NVRTC_NAME, RTLD_LAZY | RTLD_LOCAL);
  if (!library)
    fprintf(stderr,
            "pdc: --cuda-compiler=nvrtc needs " NVRTC_NAME
            ", which is not in %s: %s; set CUDA_HOME to where CUDA 13 is, or "
            "PDC_NVRTC to that file (`pip install nvidia-cuda-nvrtc` brings it)\n",
            place, dlerror());
  return library;
}

bool nvrtc_present(Arena *arena) {
  const char *given = getenv("PDC_NVRTC");
  if (given && strchr(given, '/')) setenv("PDC_NVRTC", absolute_path(arena, given), 1);
  void *library = open_library(arena);
  if (library) dlclose(library);
  return library != NULL;
}

static bool open_nvrtc(Arena *arena, Nvrtc *n) {
  void *library = open_library(arena);
  if (!library) return false;
  const struct {
    const char *name;
    void *function;
  } functions[] = {{"nvrtcCreateProgram", &n->create},       {"nvrtcCompileProgram", &n->compile},
                   {"nvrtcGetProgramLogSize", &n->log_size}, {"nvrtcGetProgramLog", &n->log},
                   {"nvrtcGetCUBINSize", &n->cubin_size},    {"nvrtcGetCUBIN", &n->cubin},
                   {"nvrtcGetPTXSize", &n->ptx_size},        {"nvrtcGetPTX", &n->ptx},
                   {"nvrtcDestroyProgram", &n->destroy},     {"nvrtcGetErrorString", &n->error}};
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    void *found = dlsym(library, functions[i].name);
    if (!found) {
      fprintf(stderr, "pdc: %s\n", dlerror());
      return false;
    }
    memcpy(functions[i].function, &found, sizeof found);
  }
  return true;
}

typedef struct Job {
  const char *input, *cubin, *ptx; /* paths; ptx NULL: not wanted */
  VEC(const char *) options;
} Job;

static int failed(const Nvrtc *n, const char *what, int result) {
  fprintf(stderr, "pdc: %s: %s\n", what, n->error(result));
  return EXIT_CC;
}

/* The log, shown. Returns whether NVRTC or the assembler in it has warned, which is an error here as it is for nvcc. */
static bool show_log(Arena *arena, const Nvrtc *n, void *program) {
  size_t size = 0;
  if (n->log_size(program, &size) != 0 || size <= 1) return false;
  char *log = arena_alloc(arena, size + 1);
  if (n->log(program, log) != 0) return false;
  fputs(log, stderr);
  return strstr(log, "warning") != NULL;
}

/* One result of the compilation into a file. */
static int deliver(Arena *arena, const Nvrtc *n, void *program, int (*measure)(void *, size_t *),
                   int (*get)(void *, char *), const char *path) {
  size_t size = 0;
  int result = measure(program, &size);
  char *bytes = arena_alloc(arena, size + 1);
  if (result == 0) result = get(program, bytes);
  if (result != 0) return failed(n, path, result);
  if (size == 0) {
    fprintf(stderr, "pdc nvrtc: there is no code for %s: name an architecture such as --gpu-architecture=sm_90\n",
            path);
    return EXIT_USAGE;
  }
  return write_whole(arena, path, bytes, size) ? EXIT_OK : EXIT_USAGE;
}

/* NVRTC says that a value is wrong, but not which. */
static void show_options(const Job *job) {
  fprintf(stderr, "pdc: the options are");
  for (uint32_t i = 0; i < job->options.count; i++) fprintf(stderr, " %s", job->options.at[i]);
  fprintf(stderr, "\n");
}

static int compile_job(Arena *arena, const Nvrtc *n, const Job *job) {
  size_t length = 0;
  const char *text = read_whole(arena, job->input, &length);
  if (!text) return EXIT_USAGE;
  void *program = NULL;
  int result = n->create(&program, text, job->input, 0, NULL, NULL);
  if (result != 0) return failed(n, job->input, result);
  result = n->compile(program, (int)job->options.count, job->options.at);
  const bool warned = show_log(arena, n, program);
  int status = EXIT_OK;
  if (result != 0) {
    status = failed(n, job->input, result);
    if (result == INVALID_OPTION) show_options(job);
  } else if (warned) {
    fprintf(stderr, "pdc: %s: warnings are errors\n", job->input);
    status = EXIT_CC;
  }
  if (status == EXIT_OK) status = deliver(arena, n, program, n->cubin_size, n->cubin, job->cubin);
  if (status == EXIT_OK && job->ptx) status = deliver(arena, n, program, n->ptx_size, n->ptx, job->ptx);
  n->destroy(&program);
  return status;
}

static int usage(const char *why) {
  fprintf(stderr, "pdc nvrtc: %s; usage: pdc nvrtc -o FILE.cubin [--ptx=FILE.ptx] FILE.cu [NVRTC-OPTION ...]\n", why);
  return EXIT_USAGE;
}

int command_nvrtc(Arena *arena, int argc, char **argv) {
  Job job = {0};
  for (int i = 1; i < argc; i++) {
    const char *word = argv[i];
    if (strcmp(word, "-o") == 0) {
      if (++i == argc) return usage("-o needs a file");
      job.cubin = argv[i];
    } else if (strncmp(word, "--ptx=", 6) == 0 && word[6]) {
      job.ptx = word + 6;
    } else if (word[0] == '-') {
      vec_push(arena, &job.options, word);
    } else if (job.input) {
      return usage("one file at a time");
    } else {
      job.input = word;
    }
  }
  if (!job.input) return usage("no input file");
  if (!job.cubin) return usage("no output file");
  Nvrtc nvrtc;
  return open_nvrtc(arena, &nvrtc) ? compile_job(arena, &nvrtc, &job) : EXIT_CC;
}
