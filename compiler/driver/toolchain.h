/* Building a program: what the files of the tool chain share.
 *   toolchain.c        the library, commands, the host target, the whole of a build
 *   toolchain_cuda.c   the cuda target, by nvcc or by NVRTC
 *   nvrtc.c            `pdc nvrtc`
 *   cubin.c            kernels in device code, and the file that puts such code into a program */
#ifndef PDC_DRIVER_TOOLCHAIN_H
#define PDC_DRIVER_TOOLCHAIN_H

#include <sys/types.h>

#include "driver/driver.h"

#define NVRTC_NAME "libnvrtc.so.13"

typedef VEC(const char *) Words;

typedef struct Build {
  Arena *arena;
  const Options *options;
  const char *name, *library, *directory; /* directory: of temporary files, where commands run */
} Build;

bool file_exists(const char *path);
/* Commands run in another directory: the path from the root. */
const char *absolute_path(Arena *arena, const char *path);
/* A temporary file: directory/NAMEsuffix. */
const char *build_file(const Build *b, const char *suffix);
/* The words of a text, separated by blanks. */
void add_words(Arena *arena, Words *words, const char *text);
/* The words of a file of the library, one more set of flags. False: it cannot be read, which was said. */
bool add_flags(const Build *b, Words *words, const char *file);
/* The C compiler: --cc, $PDC_CC, or mpicc (cc without MPI). */
void add_c_compiler(const Build *b, Words *words);

/* One command of a build. */
typedef struct Step {
  const char *what; /* "C compiler" */
  Words words;
  pid_t process;   /* 0: not started */
  const char *log; /* the file that holds what it says; NULL: it says it itself */
} Step;

/* Shows and runs one command; an exit status. */
int step_run(const Build *b, Step *step);
/* The same for commands that do not need each other, all at once. What they say is shown in their order, up to and with
 * the first that fails, whose exit status it is. */
int steps_run(const Build *b, Step *steps, uint32_t count);

/* Builds `output` from NAME.c and NAME.cu in the directory; an exit status. */
int build_cuda(const Build *b, const char *output);
/* The folder of CUDA's libraries: lib64 of a toolkit, lib of Python's packages. */
const char *toolchain_cuda_libraries(Arena *arena);

/* ---- NVRTC ---- */

/* Whether libnvrtc can be opened; says how to get it if not. What PDC_NVRTC names is then found from any directory. */
bool nvrtc_present(Arena *arena);

/* Device code in a file. */
typedef struct CudaImage {
  const char *arch; /* "90", "100a" */
  bool ptx;
  const char *file; /* relative to the directory of the build */
} CudaImage;

#define CUDA_IMAGES_SUFFIX ".kernels.c" /* after NAME */

/* C that puts the code into a program and defines its table pd_cuda_program_kernels (runtime/cuda/kernels.h). False: a
 * file is no code that this pdc knows, or two of them have other kernels, which was said. */
bool cuda_images_source(const Build *b, const CudaImage *images, uint32_t count, Text *out);

#endif
