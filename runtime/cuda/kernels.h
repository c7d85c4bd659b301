/* The kernels of a program that NVRTC compiled: code for each architecture, and where the handles of kernels are kept.
 *
 * pdc writes both into a file of the program. In that file the symbol of each kernel, which nvcc would define as a
 * function that launches it, is a pd_cuda_handle: a launch reads it (templates/cuda/pd_launch.cuh). A program that nvcc
 * built registers its kernels by itself and has no images here. */
#ifndef PD_CUDA_KERNELS_H
#define PD_CUDA_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

typedef cudaKernel_t pd_cuda_handle; /* NULL until pd_cuda_open_kernels */

typedef enum pd_cuda_code {
  PD_CODE_FAMILY, /* for this architecture and later ones of the same major number */
  PD_CODE_EXACT,  /* for this one alone: sm_90a */
  PD_CODE_PTX     /* compiled by the driver for this and every later one */
} pd_cuda_code;

typedef struct pd_cuda_image {
  int arch; /* 90: sm_90 */
  pd_cuda_code code;
  const void *bytes; /* a cubin, or PTX that ends in a zero byte */
} pd_cuda_image;

typedef struct pd_cuda_kernel {
  const char *name; /* mangled: as it is in the images */
  pd_cuda_handle *handle;
} pd_cuda_kernel;

typedef struct pd_cuda_kernels {
  const pd_cuda_image *images;
  const pd_cuda_kernel *kernels;
  int image_count, kernel_count;
  const char *archs; /* "sm_80, sm_90", as a user would name them */
} pd_cuda_kernels;

#ifdef __cplusplus
extern "C" {
#endif
extern const pd_cuda_kernels pd_cuda_program_kernels;
#ifdef __cplusplus
}
#endif

/* The image that a device of architecture `arch` runs: its own code, else the newest of its family, else the newest PTX
 * that is not newer. NULL if there is none. */
const pd_cuda_image *pd_cuda_choose_image(const pd_cuda_kernels *program, int arch);

/* Loads that image and fills all handles; ends the program where there is none for the current device, whose
 * architecture `arch` is. Returns what pd_cuda_close_kernels takes: NULL for a program that nvcc built. */
cudaLibrary_t pd_cuda_open_kernels(const pd_cuda_kernels *program, int arch);
/* No kernel may be running. NULL is nothing to close. */
void pd_cuda_close_kernels(const pd_cuda_kernels *program, cudaLibrary_t library);

#endif
