/* The kernels of a program that NVRTC compiled: which of its images this device runs, and their handles. */
#include "cuda/kernels.h"

#include "cuda/cuda.h"

static bool runs(const pd_cuda_image *image, int arch) {
  if (image->arch > arch) return false;
  if (image->code == PD_CODE_EXACT) return image->arch == arch;
  return image->code == PD_CODE_PTX || image->arch / 10 == arch / 10;
}

/* 3: code for the very device, 2: of its family, 1: to be compiled */
static int rank_of(const pd_cuda_image *image, int arch) {
  if (image->code == PD_CODE_PTX) return 1;
  return image->arch == arch ? 3 : 2;
}

const pd_cuda_image *pd_cuda_choose_image(const pd_cuda_kernels *program, int arch) {
  const pd_cuda_image *best = NULL;
  for (int i = 0; i < program->image_count; i++) {
    const pd_cuda_image *image = &program->images[i];
    if (!runs(image, arch)) continue;
    const int more = best == NULL ? 1 : rank_of(image, arch) - rank_of(best, arch);
    if (more > 0 || (more == 0 && image->arch > best->arch)) best = image;
  }
  return best;
}

cudaLibrary_t pd_cuda_open_kernels(const pd_cuda_kernels *program, int arch) {
  if (program->image_count == 0) return NULL;
  const pd_cuda_image *image = pd_cuda_choose_image(program, arch);
  if (image == NULL) {
    pd_fail(PD_EXIT_CUDA, "this program is compiled for %s; this device is sm_%d; compile it with --arch=sm_%d",
            program->archs, arch, arch);
  }
  cudaLibrary_t library = NULL;
  CUDA_CHECK(cudaLibraryLoadData(&library, image->bytes, NULL, NULL, 0, NULL, NULL, 0));
  for (int i = 0; i < program->kernel_count; i++) {
    const cudaError_t error = cudaLibraryGetKernel(program->kernels[i].handle, library, program->kernels[i].name);
    if (error != cudaSuccess) pd_launch_failed(error, program->kernels[i].name, __FILE__, __LINE__);
  }
  return library;
}

void pd_cuda_close_kernels(const pd_cuda_kernels *program, cudaLibrary_t library) {
  if (library == NULL) return;
  CUDA_CHECK(cudaLibraryUnload(library));
  for (int i = 0; i < program->kernel_count; i++) *program->kernels[i].handle = NULL;
}
