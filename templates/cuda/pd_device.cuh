/* What every kernel family stands on: loads and stores that turn an element type into float and back, packs of 16
 * bytes, reductions over a warp or a block, and launches and shared memory (pd_launch.cuh).
 *
 * Only names of the CUDA language and of cuda_bf16.h are used. With PD_FAKE_GPU, g++ makes the twins of the kernels
 * that the test device runs (tests/fakegpu/device.h, which supplies those names): a launch then only makes its kernel
 * known.
 *
 * Kernels are templates even where nothing varies: a header may not define a function twice, and a static kernel has no
 * name that a twin could have too.
 */
#ifndef PD_DEVICE_CUH
#define PD_DEVICE_CUH

/* A text with elements of bf16 defines PD_BF16 first. Others do without that header: it takes nvcc a second to read. */
#ifdef PD_BF16
#include <cuda_bf16.h>
#endif
#include <cuda_runtime.h>
#include <stdint.h>

#include "pd_launch.cuh"

/* `#pragma unroll` with a count that may depend on template parameters */
#ifdef __CUDACC__
#define PD_PRAGMA(text) _Pragma(#text)
#define PD_UNROLL(count) PD_PRAGMA(unroll(count))
#else
#define PD_UNROLL(count)
#endif

#define PD_WARP 32
#define PD_ALL_LANES 0xffffffffu

/* ---- elements ---- */

static __host__ __device__ __forceinline__ float pd_load(const float *p) {
  return *p;
}
static __host__ __device__ __forceinline__ void pd_store(float *p, float value) {
  *p = value;
}
#ifdef PD_BF16
static __host__ __device__ __forceinline__ float pd_load(const __nv_bfloat16 *p) {
  return __bfloat162float(*p);
}
static __host__ __device__ __forceinline__ void pd_store(__nv_bfloat16 *p, float value) {
  *p = __float2bfloat16_rn(value);
}
#endif

/* The largest number of elements, a power of two, that one access of at most 16 bytes can take when every row has n of
 * them: packs then never straddle a row. n = 0 means no limit but 16 bytes. */
template <typename T> constexpr __host__ __device__ int pd_lanes(int64_t n) {
  int lanes = (int)(16 / sizeof(T));
  while (n % lanes != 0) lanes /= 2;
  return lanes;
}

/* `lanes` neighbouring elements, read or written in one access: p is aligned to lanes * sizeof(T) */
template <typename T, int lanes> struct alignas(sizeof(T) * lanes) pd_pack { T at[lanes]; };

template <int lanes, typename T>
static __device__ __forceinline__ void pd_load_pack(const T *p, float (&value)[lanes]) {
  const pd_pack<T, lanes> pack = *reinterpret_cast<const pd_pack<T, lanes> *>(p);
  PD_UNROLL(lanes)
  for (int k = 0; k < lanes; k++) value[k] = pd_load(&pack.at[k]);
}

template <int lanes, typename T>
static __device__ __forceinline__ void pd_store_pack(T *p, const float (&value)[lanes]) {
  pd_pack<T, lanes> pack;
  PD_UNROLL(lanes)
  for (int k = 0; k < lanes; k++) pd_store(&pack.at[k], value[k]);
  *reinterpret_cast<pd_pack<T, lanes> *>(p) = pack;
}

/* ---- reductions ----
 * The tree is fixed, so a result does not depend on timing. Every lane (thread) gets it. */

template <typename V> static __device__ __forceinline__ V pd_warp_sum(V value) {
  PD_UNROLL(5)
  for (int step = PD_WARP / 2; step > 0; step /= 2) value += __shfl_xor_sync(PD_ALL_LANES, value, step);
  return value;
}

static __device__ __forceinline__ float pd_warp_max(float value) {
  PD_UNROLL(5)
  for (int step = PD_WARP / 2; step > 0; step /= 2) {
    value = fmaxf(value, __shfl_xor_sync(PD_ALL_LANES, value, step));
  }
  return value;
}

/* Sums over `threads` threads with consecutive threadIdx.x, a warp or a whole one-dimensional block. */
template <int threads, typename V> static __device__ __forceinline__ V pd_group_sum(V value) {
  static_assert(threads % PD_WARP == 0, "whole warps");
  value = pd_warp_sum(value);
  if constexpr (threads > PD_WARP) {
    __shared__ V part[threads / PD_WARP];
    __syncthreads(); /* the last reduction's readers are done */
    if (threadIdx.x % PD_WARP == 0) part[threadIdx.x / PD_WARP] = value;
    __syncthreads();
    value = 0;
    PD_UNROLL(threads / PD_WARP)
    for (int warp = 0; warp < threads / PD_WARP; warp++) value += part[warp];
  }
  return value;
}

template <int threads> static __device__ __forceinline__ float pd_group_max(float value) {
  static_assert(threads % PD_WARP == 0, "whole warps");
  value = pd_warp_max(value);
  if constexpr (threads > PD_WARP) {
    __shared__ float part[threads / PD_WARP];
    __syncthreads();
    if (threadIdx.x % PD_WARP == 0) part[threadIdx.x / PD_WARP] = value;
    __syncthreads();
    value = part[0];
    PD_UNROLL(threads / PD_WARP)
    for (int warp = 1; warp < threads / PD_WARP; warp++) value = fmaxf(value, part[warp]);
  }
  return value;
}

/* ---- rows ----
 * Row kernels give a row of n elements to a group of threads: a warp (eight rows a block) when the row is short, else a
 * block. What a thread reads stays in its registers where it fits, and is read again (from the cache) where not. */

constexpr __host__ __device__ int pd_row_threads(int n) {
  return n <= 1024 ? PD_WARP : n <= 8192 ? 256 : 512;
}

template <typename T, int n> struct pd_row {
  static constexpr int lanes = pd_lanes<T>(n);
  static constexpr int threads = pd_row_threads(n); /* that share a row */
  static constexpr int together = threads == PD_WARP ? 8 : 1;
  static constexpr int steps = (n + threads * lanes - 1) / (threads * lanes);
  static constexpr bool kept = steps * lanes <= 32;
  static constexpr int unroll = kept ? steps : 2;
  float held[kept ? steps : 1][lanes];

  static dim3 grid(int64_t rows) {
    return dim3((unsigned)((rows + together - 1) / together));
  }
  static dim3 block() {
    return dim3(threads, together);
  }
  /* this group's row */
  static __device__ __forceinline__ int64_t index() {
    return (int64_t)blockIdx.x * together + threadIdx.y;
  }
  static __device__ __forceinline__ int column(int step) {
    return (step * threads + (int)threadIdx.x) * lanes;
  }
  /* whether this thread has a pack at that step */
  static __device__ __forceinline__ bool inside(int step) {
    return (step + 1) * threads * lanes <= n || column(step) < n;
  }
  __device__ __forceinline__ void read(const T *x) {
    if constexpr (kept) {
      PD_UNROLL(steps)
      for (int s = 0; s < steps; s++) {
        if (inside(s)) pd_load_pack(x + column(s), held[s]);
      }
    }
  }
  /* the thread's elements of that step */
  __device__ __forceinline__ void get(const T *x, int step, float (&value)[lanes]) const {
    if constexpr (kept) {
      PD_UNROLL(lanes)
      for (int k = 0; k < lanes; k++) value[k] = held[step][k];
    } else {
      pd_load_pack(x + column(step), value);
    }
  }
};

/* ---- launching ---- */

static inline dim3 pd_blocks(int64_t items, int64_t per_block) {
  return dim3((unsigned)((items + per_block - 1) / per_block));
}

/* number of this thread in a one-dimensional grid */
static __device__ __forceinline__ int64_t pd_thread() {
  return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

#endif
