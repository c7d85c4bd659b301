/* The largest of every row and its gradient, which goes to the first of the largest. What is no number is above all. */
#ifndef PD_MAX_CUH
#define PD_MAX_CUH

#include "pd_device.cuh"

#include <math.h>

/* an element and its place in the row */
typedef struct pd_largest {
  float value;
  int at;
} pd_largest;

/* Whether `value` at `at` goes before what was found: larger, or as large and earlier. An order of all pairs, so that
 * it does not matter in which one they are compared. */
static __device__ __forceinline__ bool pd_is_before(float value, int at, const pd_largest &found) {
  const bool nothing = value != value, found_nothing = found.value != found.value;
  if (nothing != found_nothing) return nothing;
  return value > found.value || ((nothing || value == found.value) && at < found.at);
}

/* The first of the largest of what `threads` threads with consecutive threadIdx.x found. Every thread gets it. */
template <int threads> static __device__ __forceinline__ pd_largest pd_group_largest(pd_largest found) {
  PD_UNROLL(5)
  for (int step = PD_WARP / 2; step > 0; step /= 2) {
    const float value = __shfl_xor_sync(PD_ALL_LANES, found.value, step);
    const int at = __shfl_xor_sync(PD_ALL_LANES, found.at, step);
    if (pd_is_before(value, at, found)) found.value = value, found.at = at;
  }
  if constexpr (threads > PD_WARP) {
    __shared__ float values[threads / PD_WARP];
    __shared__ int places[threads / PD_WARP];
    __syncthreads();
    if (threadIdx.x % PD_WARP == 0)
      values[threadIdx.x / PD_WARP] = found.value, places[threadIdx.x / PD_WARP] = found.at;
    __syncthreads();
    PD_UNROLL(threads / PD_WARP)
    for (int warp = 0; warp < threads / PD_WARP; warp++) {
      if (pd_is_before(values[warp], places[warp], found)) found.value = values[warp], found.at = places[warp];
    }
  }
  return found;
}

/* of the row at x */
template <typename T, int n> static __device__ __forceinline__ pd_largest pd_row_largest(const T *x) {
  typedef pd_row<T, n> row;
  pd_largest found = {-INFINITY, n}; /* behind all of them */
  for (int s = 0; s < row::steps; s++) {
    if (!row::inside(s)) continue;
    float v[row::lanes];
    pd_load_pack(x + row::column(s), v);
    PD_UNROLL(row::lanes)
    for (int k = 0; k < row::lanes; k++) {
      if (pd_is_before(v[k], row::column(s) + k, found)) found.value = v[k], found.at = row::column(s) + k;
    }
  }
  return pd_group_largest<row::threads>(found);
}

template <typename T, typename O, int n>
__global__ void __launch_bounds__(pd_row<T, n>::threads *pd_row<T, n>::together)
    pd_max_kernel(int64_t rows, const T *__restrict__ x, O *__restrict__ y) {
  const int64_t r = pd_row<T, n>::index();
  if (r >= rows) return; /* a whole group */
  const pd_largest found = pd_row_largest<T, n>(x + r * n);
  if (threadIdx.x == 0) pd_store(y + r, found.value);
}

template <typename T, typename O, int n>
__global__ void __launch_bounds__(pd_row<T, n>::threads *pd_row<T, n>::together)
    pd_max_grad_kernel(int64_t rows, const T *__restrict__ x, const O *__restrict__ dy, T *__restrict__ dx) {
  typedef pd_row<T, n> row;
  const int64_t r = row::index();
  if (r >= rows) return;
  const pd_largest found = pd_row_largest<T, n>(x + r * n);
  const float gradient = pd_load(dy + r);
  for (int s = 0; s < row::steps; s++) {
    if (!row::inside(s)) continue;
    float v[row::lanes];
    PD_UNROLL(row::lanes)
    for (int k = 0; k < row::lanes; k++) v[k] = row::column(s) + k == found.at ? gradient : 0;
    pd_store_pack(dx + r * n + row::column(s), v);
  }
}

/* y[r] = the largest of row r of n */
template <typename T, typename O, int n>
static inline void pd_max(cudaStream_t stream, int64_t rows, const T *x, O *y) {
  if (rows == 0) return;
  PD_LAUNCH((pd_max_kernel<T, O, n>), (pd_row<T, n>::grid(rows)), (pd_row<T, n>::block()), 0, stream, rows, x, y);
}

/* dx[r,c] = dy[r] where c is the first of the largest of row r of x, else 0 */
template <typename T, typename O, int n>
static inline void pd_max_grad(cudaStream_t stream, int64_t rows, const T *x, const O *dy, T *dx) {
  if (rows == 0) return;
  PD_LAUNCH((pd_max_grad_kernel<T, O, n>), (pd_row<T, n>::grid(rows)), (pd_row<T, n>::block()), 0, stream, rows, x, dy,
            dx);
}

#endif
