/* Building a program of the cuda target: kernels by nvcc, or by NVRTC and a C++ compiler. See toolchain.h. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver/toolchain.h"

/* ---- where CUDA is ---- */

const char *toolchain_cuda(Arena *arena) {
  const char *home = getenv("CUDA_HOME");
  if (home && *home) return absolute_path(arena, home);
  const char *path = getenv("PATH");
  for (const char *at = path ? path : ""; *at;) {
    size_t length = strcspn(at, ":");
    const char *nvcc = arena_printf(arena, "%.*s/nvcc", (int)length, at);
    char real[PATH_MAX];
    if (length && file_exists(nvcc) && realpath(nvcc, real)) { /* …/bin/nvcc */
      for (int up = 0; up < 2; up++)
        if (strrchr(real, '/')) *strrchr(real, '/') = 0;
      return arena_strdup(arena, real);
    }
    at += length + (at[length] == ':');
  }
  return "/usr/local/cuda";
}

const char *toolchain_cuda_libraries(Arena *arena) {
  const char *toolkit = arena_printf(arena, "%s/lib64", toolchain_cuda(arena));
  return file_exists(toolkit) ? toolkit : arena_printf(arena, "%s/lib", toolchain_cuda(arena));
}

static bool has_cudnn(Arena *arena) {
  const char *library = toolchain_library(arena);
  return library && file_exists(arena_printf(arena, "%s/cudnn", library));
}

/* cuDNN's limits: heads of up to 256 elements; in the gradient on sm_90 only, else 128. */
CudaAttention toolchain_attention(Arena *arena, const Options *o) {
  bool hopper = o->archs.count > 0;
  for (uint32_t i = 0; i < o->archs.count; i++) hopper &= strtol(o->archs.at[i], NULL, 10) == 90;
  return (CudaAttention){o->attention, o->any_order, has_cudnn(arena), {256, hopper ? 256 : 128}};
}

/* ---- parts of commands ---- */

static void push(const Build *b, Words *words, const char *word) {
  vec_push(b->arena, words, word);
}

static void add_cxx(const Build *b, Words *words) {
  const char *cxx = b->options->cxx ? b->options->cxx : getenv("PDC_CXX");
  add_words(b->arena, words, cxx && *cxx ? cxx : "c++");
}

static void add_nvcc(const Build *b, Words *words) {
  const char *nvcc = getenv("PDC_NVCC"), *toolkit = arena_printf(b->arena, "%s/bin/nvcc", toolchain_cuda(b->arena));
  add_words(b->arena, words, nvcc && *nvcc ? nvcc : file_exists(toolkit) ? toolkit : "nvcc");
  if (!b->options->cxx) return;
  push(b, words, "-ccbin");
  push(b, words, b->options->cxx);
}

static void add_architectures(const Build *b, Words *words) {
  const Options *o = b->options;
  if (!o->archs.count) {
    add_words(b->arena, words, "-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 "
                               "-gencode arch=compute_100,code=[sm_100,compute_100] --threads 2");
    return;
  }
  for (uint32_t i = 0; i < o->archs.count; i++) {
    push(b, words, "-gencode");
    push(b, words, arena_printf(b->arena, "arch=compute_%s,code=sm_%s", o->archs.at[i], o->archs.at[i]));
  }
}

/* The folders of the program's own headers and of CUDA's, the latter after `system` ("-isystem", "-I"). */
static void add_includes(const Build *b, Words *words, bool kernels, const char *system) {
  push(b, words, arena_printf(b->arena, "-I%s/include", b->library));
  if (kernels) push(b, words, arena_printf(b->arena, "-I%s/cuda", b->library));
  if (!system) return;
  const char *place = arena_printf(b->arena, "%s/include", toolchain_cuda(b->arena));
  if (strcmp(system, "-I") == 0) {
    push(b, words, arena_printf(b->arena, "-I%s", place));
  } else {
    push(b, words, system);
    push(b, words, place);
  }
}

/* "-c NAME.c -o NAME.o" */
static void add_object(const Build *b, Words *words, const char *source, const char *object) {
  push(b, words, "-c");
  push(b, words, arena_printf(b->arena, "%s%s", b->name, source));
  push(b, words, "-o");
  push(b, words, arena_printf(b->arena, "%s%s", b->name, object));
}

/* The C compiler with NAME.c, or with the file that holds NVRTC's code. */
static bool add_c_flags(const Build *b, Words *words) {
  add_c_compiler(b, words);
  if (!add_flags(b, words, "cuda_cflags")) return false;
  push(b, words, b->options->optimize);
  if (b->options->debug) push(b, words, "-g");
  add_includes(b, words, false, "-isystem");
  return true;
}

/* ---- linking ---- */

/* NCCL and cuDNN lie with CUDA's libraries, where the linker looks by itself, or in Python's packages beside CUDA's. */
static void add_library_folders(const Build *b, Words *words) {
  const char *folders[] = {toolchain_cuda_libraries(b->arena),
                           arena_printf(b->arena, "%s/../nccl/lib", toolchain_cuda(b->arena)),
                           arena_printf(b->arena, "%s/../cudnn/lib", toolchain_cuda(b->arena))};
  push(b, words, "-Wl,--enable-new-dtags");
  for (int i = 0; i < 3; i++) {
    if (i > 0 && !file_exists(folders[i])) continue;
    push(b, words, arena_printf(b->arena, "-L%s", folders[i]));
    push(b, words, arena_printf(b->arena, "-Wl,-rpath,%s", folders[i]));
  }
}

static int link_program(const Build *b, const char *archive, const char *images, const char *output) {
  Step link = {.what = "linker"};
  if (images ? !add_c_flags(b, &link.words) : (add_c_compiler(b, &link.words), false)) return EXIT_USAGE;
  push(b, &link.words, arena_printf(b->arena, "%s.o", b->name));
  push(b, &link.words, arena_printf(b->arena, "%s.cu.o", b->name));
  if (images) push(b, &link.words, images);
  push(b, &link.words, "-o");
  push(b, &link.words, output);
  push(b, &link.words, archive);
  add_library_folders(b, &link.words);
  return add_flags(b, &link.words, "cuda_libs") ? step_run(b, &link) : EXIT_USAGE;
}

/* ---- nvcc ---- */

static int build_by_nvcc(const Build *b, const char *archive, const char *output) {
  Step kernels = {.what = "CUDA compiler"}, host = {.what = "C compiler"};
  add_nvcc(b, &kernels.words);
  if (!add_flags(b, &kernels.words, "nvccflags")) return EXIT_USAGE;
  add_architectures(b, &kernels.words);
  if (b->options->debug) push(b, &kernels.words, "-lineinfo");
  add_includes(b, &kernels.words, true, NULL);
  add_object(b, &kernels.words, ".cu", ".cu.o");
  int status = step_run(b, &kernels);
  if (status != EXIT_OK) return status;
  if (!add_c_flags(b, &host.words)) return EXIT_USAGE;
  add_object(b, &host.words, ".c", ".o");
  status = step_run(b, &host);
  return status == EXIT_OK ? link_program(b, archive, NULL, output) : status;
}

/* ---- NVRTC ---- */

typedef VEC(CudaImage) Images;

static void add_image(const Build *b, Images *images, const char *arch, bool ptx) {
  vec_push(b->arena, images, (CudaImage){arch, ptx, arena_printf(b->arena, ptx ? "compute_%s.ptx" : "sm_%s.cubin", arch)});
}

/* What a program has code for: the same as from nvcc. */
static Images choose_images(const Build *b) {
  Images images = {0};
  for (uint32_t i = 0; i < b->options->archs.count; i++) add_image(b, &images, b->options->archs.at[i], false);
  if (images.count) return images;
  static const char *const usual[] = {"80", "90", "100"};
  for (int i = 0; i < 3; i++) add_image(b, &images, usual[i], false);
  add_image(b, &images, "100", true);
  return images;
}

/* `pdc nvrtc` for the code of one architecture, and its PTX if that is wanted too. */
static bool nvrtc_step(const Build *b, const CudaImage *image, const CudaImage *ptx, Step *step) {
  char self[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length <= 0) return false;
  self[length] = 0;
  *step = (Step){.what = "CUDA compiler"};
  push(b, &step->words, arena_strdup(b->arena, self));
  add_words(b->arena, &step->words, arena_printf(b->arena, "nvrtc -o %s", image->file));
  if (ptx) push(b, &step->words, arena_printf(b->arena, "--ptx=%s", ptx->file));
  push(b, &step->words, arena_printf(b->arena, "%s.cu", b->name));
  if (!add_flags(b, &step->words, "nvrtcflags")) return false;
  push(b, &step->words, arena_printf(b->arena, "--gpu-architecture=sm_%s", image->arch));
  if (b->options->debug) push(b, &step->words, "-lineinfo");
  add_includes(b, &step->words, true, "-I");
  push(b, &step->words, arena_printf(b->arena, "-I%s/cuda/nvrtc", b->library));
  return true;
}

static bool host_steps(const Build *b, Step *c, Step *cxx) {
  *c = (Step){.what = "C compiler"};
  *cxx = (Step){.what = "C++ compiler"};
  if (!add_c_flags(b, &c->words)) return false;
  add_object(b, &c->words, ".c", ".o");
  add_cxx(b, &cxx->words);
  if (!add_flags(b, &cxx->words, "cuda_cxxflags")) return false;
  if (b->options->debug) push(b, &cxx->words, "-g");
  add_includes(b, &cxx->words, true, "-isystem");
  add_object(b, &cxx->words, ".cu", ".cu.o");
  return true;
}

static int build_by_nvrtc(const Build *b, const char *archive, const char *output) {
  if (!b->options->show_commands && !nvrtc_present(b->arena)) return EXIT_CC;
  const Images images = choose_images(b);
  VEC(Step) steps = {0};
  Step c, cxx;
  for (uint32_t i = 0; i < images.count; i++) {
    if (images.at[i].ptx) continue;
    const CudaImage *ptx = i + 1 < images.count && images.at[i + 1].ptx ? &images.at[i + 1] : NULL;
    Step step;
    if (!nvrtc_step(b, &images.at[i], ptx, &step)) return EXIT_USAGE;
    vec_push(b->arena, &steps, step);
  }
  if (!host_steps(b, &c, &cxx)) return EXIT_USAGE;
  vec_push(b->arena, &steps, cxx);
  vec_push(b->arena, &steps, c);
  int status = steps_run(b, steps.at, steps.count);
  if (status == EXIT_OK && !b->options->show_commands) {
    Text source = {.arena = b->arena};
    if (!cuda_images_source(b, images.at, images.count, &source)) return EXIT_INTERNAL;
    if (!write_whole(b->arena, build_file(b, CUDA_IMAGES_SUFFIX), source.at, source.length))
      return EXIT_USAGE;
  }
  return status == EXIT_OK ? link_program(b, archive, arena_printf(b->arena, "%s" CUDA_IMAGES_SUFFIX, b->name), output) : status;
}

int build_cuda(const Build *b, const char *output) {
  if (b->options->attention == ATTENTION_CUDNN && !has_cudnn(b->arena)) {
    fprintf(stderr, "pdc: --attention=cudnn: this pdc was built where cudnn.h was not, and has no runtime for cuDNN; install its "
                    "headers in the CUDA toolkit's include and build pdc again\n");
    return EXIT_USAGE;
  }
  const char *archive = arena_printf(b->arena, "%s/libpdrt_cuda%s.a", b->library, b->options->no_mpi ? "_single" : "");
  if (!file_exists(archive)) {
    fprintf(stderr, "pdc: this pdc was built where no CUDA toolkit with NCCL was, and has no runtime for --target=cuda; build it "
                    "again with CUDA=DIRECTORY\n");
    return EXIT_USAGE;
  }
  return b->options->nvrtc ? build_by_nvrtc(b, archive, output) : build_by_nvcc(b, archive, output);
}

void toolchain_print_requirements(Arena *arena) {
  const char *cuda = toolchain_cuda(arena), *libraries = toolchain_cuda_libraries(arena);
  printf("CUDA 13 is looked for in $CUDA_HOME, beside the nvcc of PATH, and in /usr/local/cuda; now %s.\n"
         "To build, a C compiler, MPI (not with --no-mpi), jansson, libmd, zlib, the headers of CUDA, and\n"
         "  --cuda-compiler=nvcc   nvcc 13 ($PDC_NVCC, there in bin, or of PATH) and a C++17 compiler that it accepts\n"
         "  --cuda-compiler=nvrtc  " NVRTC_NAME " ($PDC_NVRTC, in %s, or of LD_LIBRARY_PATH) and a C++17 compiler;\n"
         "                         Python's packages nvidia-cuda-nvrtc, -cuda-runtime, -cuda-crt, -cublas and -nccl-cu13 have all\n"
         "To run: an NVIDIA driver of version 580 or later, a device of compute capability 8.0 or later for each rank, and\n"
         "  libcudart.so.13    1 MB  the CUDA runtime\n"
         "  libcublasLt.so.13  540 MB matrix products\n"
         "  libnccl.so.2       220 MB collectives and messages between devices\n"
         "  libmpi             start-up and the host's control (not with --no-mpi)\n"
         "  libjansson, libmd, libz, libgomp, libstdc++\n"
         "The program looks for the first three in %s, then where the system has libraries; LD_LIBRARY_PATH comes\n"
         "before both.\n",
         cuda, libraries, libraries);
  size_t length = 0;
  const char *cudnn = has_cudnn(arena) ? read_whole(arena, arena_printf(arena, "%s/cudnn", toolchain_library(arena)), &length) : NULL;
  if (cudnn)
    printf("Attention in bf16 runs on tensor cores with\n"
           "  libcudnn.so.9      450 MB cuDNN 9.16 or later, with libnvrtc.so.13, which a program opens if it is there (this pdc was\n"
           "                     built with the headers of %.*s)\n", (int)strcspn(cudnn, "\n"), cudnn);
  else
    printf("Attention runs on the program's own kernels: this pdc was built where cudnn.h was not.\n");
}
