/* What a C++ compiler needs to read kernels that NVRTC compiles (PD_NVRTC): a kernel is declared, its body is read and
 * dropped (gnu_inline: the definition is elsewhere), so the names that a body uses must be declared, and need no
 * definition. */
#ifndef PD_HOST_CUH
#define PD_HOST_CUH

#include <algorithm>
#include <cmath>
#include <cuda_runtime.h>
#include <device_launch_parameters.h>

#undef __global__
#define __global__ extern inline __attribute__((gnu_inline))
#undef __launch_bounds__
#define __launch_bounds__(...)

using std::max;
using std::min;

void __syncthreads();
int __syncthreads_or(int predicate);
unsigned __ballot_sync(unsigned mask, int predicate);
template <typename T> T __shfl_xor_sync(unsigned mask, T value, int lanes);
template <typename T> T atomicAdd(T *address, T value);
int __ffs(int word);

#endif
