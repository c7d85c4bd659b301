/* How a kernel is launched, for each of the compilers that read a .cu file:
 *
 *   nvcc        both sides in one: <<<>>>
 *   NVRTC       the device's side (__CUDACC_RTC__). It has no host functions: launchers are taken as functions of the
 *               device, never called, and a launch in them only asks for its kernel, so that the same kernels come out
 *               as from nvcc
 *   C++         the host's side of what NVRTC compiles (PD_NVRTC): kernels are declared, never defined. A kernel's
 *               symbol is defined in a file that pdc makes with the kernels' code: it is the place of the kernel's
 *               handle, which the runtime fills (runtime/cuda/kernels.h). A kernel that NVRTC did not make is an
 *               undefined symbol
 *   C++         the test device's twins of the kernels (PD_FAKE_GPU, tests/fakegpu/device.h): a launch only makes its
 *               kernel known
 *
 * PD_LAUNCH(kernel, grid, block, shared_bytes, stream, arguments...) is the only way to launch: `kernel` is a
 * __global__ function or an instantiated template, in parentheses if it has commas. A refused launch is reported with
 * its place. PD_ALLOW_SHARED(kernel, bytes) comes before a launch with more than 48 KiB of dynamic shared memory.
 * PD_SHARED(type, name) is the block's dynamic shared memory in a kernel, as an array of `type`, aligned to 16 bytes.
 */
#ifndef PD_LAUNCH_CUH
#define PD_LAUNCH_CUH

#include <cuda_runtime.h>
#ifdef PD_NVRTC
#include "pd_host.cuh"
#endif

/* Says which launch was refused and why, and ends the program; defined by the runtime. */
extern "C" void pd_launch_failed(cudaError_t error, const char *kernel, const char *file, int line);

#if defined(PD_FAKE_GPU) || defined(__CUDACC_RTC__)
template <typename... A> static inline void pd_unused(A &&...) {
}
#endif

#if defined(PD_FAKE_GPU)
#define PD_MENTION(kernel) FAKE_KERNEL(kernel)
#define PD_SHARED(type, name) FAKE_DYNAMIC_SHARED(type, name)
#else
#define PD_MENTION(kernel) (void)(&kernel)
#define PD_SHARED(type, name)                                                                                          \
  extern __shared__ __align__(16) unsigned char pd_shared_bytes[];                                                     \
  type *const name = reinterpret_cast<type *>(pd_shared_bytes)
#endif

#if defined(PD_FAKE_GPU) || defined(__CUDACC_RTC__)

#define PD_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                      \
  do {                                                                                                                 \
    PD_MENTION(kernel);                                                                                                \
    pd_unused(grid, block, shared_bytes, stream, __VA_ARGS__);                                                         \
  } while (0)
#define PD_ALLOW_SHARED(kernel, bytes) pd_unused(bytes)

#elif defined(PD_NVRTC)

template <typename T> struct pd_parameter { typedef T type; };

/* Arguments are converted to the kernel's parameters, as a call would. */
template <typename... P>
static inline void pd_launch(void (*kernel)(P...), const char *name, const char *file, int line, dim3 grid, dim3 block,
                             size_t shared_bytes, cudaStream_t stream, typename pd_parameter<P>::type... arguments) {
  void *all[] = {const_cast<void *>(static_cast<const void *>(&arguments))...};
  const void *handle = *reinterpret_cast<const void *const *>(kernel);
  const cudaError_t error = cudaLaunchKernel(handle, grid, block, all, shared_bytes, stream);
  if (error != cudaSuccess) pd_launch_failed(error, name, file, line);
}
#define PD_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                      \
  pd_launch(&kernel, #kernel, __FILE__, __LINE__, (grid), (block), (shared_bytes), (stream), __VA_ARGS__)
#define PD_ALLOW_SHARED(kernel, bytes)                                                                                 \
  pd_allow_shared(*reinterpret_cast<const void *const *>(&kernel), (bytes), #kernel, __FILE__, __LINE__)

#else

#define PD_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                      \
  do {                                                                                                                 \
    kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__);                                                \
    const cudaError_t pd_launch_error = cudaGetLastError();                                                            \
    if (pd_launch_error != cudaSuccess) pd_launch_failed(pd_launch_error, #kernel, __FILE__, __LINE__);                \
  } while (0)
#define PD_ALLOW_SHARED(kernel, bytes)                                                                                 \
  pd_allow_shared(reinterpret_cast<const void *>(&kernel), (bytes), #kernel, __FILE__, __LINE__)

#endif

#if !defined(PD_FAKE_GPU) && !defined(__CUDACC_RTC__)
/* Every architecture from sm_80 on has 99 KiB for a block, but only 48 without asking. */
static inline void pd_allow_shared(const void *kernel, size_t bytes, const char *name, const char *file, int line) {
  if (bytes <= 48 * 1024) return;
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  if (error != cudaSuccess) pd_launch_failed(error, name, file, line);
}
#endif

#endif
