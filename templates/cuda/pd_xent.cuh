/* Losses and metrics: cross-entropy in steps that a class axis divided over ranks can be reduced between, the same in
 * one pass where it is not divided, accuracy, mean squared error.
 *
 * Row kernels take a block a row: rows of logits are long. Where all classes are on one rank, maximum and sum are found
 * in one reading of the row. Losses are sums in double by one block, in a fixed order.
 */
#ifndef PD_XENT_CUH
#define PD_XENT_CUH

#include "pd_device.cuh"
#include "pd_move.cuh"

#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

#define PD_XENT_BLOCK 256
#define PD_LOSS_BLOCK 512

/* ---- maximum and sum of a row ---- */

template <int lanes, typename T>
__global__ void __launch_bounds__(PD_XENT_BLOCK)
    pd_xent_max_kernel(int64_t classes, const T *__restrict__ x, float *__restrict__ row_max) {
  const int64_t r = blockIdx.x;
  x += r * classes;
  float largest = -INFINITY;
  for (int64_t c = (int64_t)threadIdx.x * lanes; c < classes; c += PD_XENT_BLOCK * lanes) {
    float v[lanes];
    pd_load_pack(x + c, v);
    PD_UNROLL(lanes)
    for (int k = 0; k < lanes; k++) largest = fmaxf(largest, v[k]);
  }
  largest = pd_group_max<PD_XENT_BLOCK>(largest);
  if (threadIdx.x == 0) row_max[r] = largest;
}

/* the target's logit less the maximum if the target is here, else 0 */
template <typename T>
static __device__ __forceinline__ float pd_xent_target(int64_t classes, int64_t first, const T *x, int32_t target,
                                                       float largest) {
  const int64_t column = target - first;
  const bool here = target != PD_IGNORE && column >= 0 && column < classes;
  return here ? pd_load(x + column) - largest : 0;
}

template <int lanes, typename T>
__global__ void __launch_bounds__(PD_XENT_BLOCK)
    pd_xent_sums_kernel(int64_t rows, int64_t classes, int64_t first, const T *__restrict__ x,
                        const int32_t *__restrict__ targets, const float *__restrict__ row_max,
                        float *__restrict__ sums) {
  const int64_t r = blockIdx.x;
  x += r * classes;
  const float largest = row_max[r];
  float sum = 0;
  for (int64_t c = (int64_t)threadIdx.x * lanes; c < classes; c += PD_XENT_BLOCK * lanes) {
    float v[lanes];
    pd_load_pack(x + c, v);
    PD_UNROLL(lanes)
    for (int k = 0; k < lanes; k++) sum += expf(v[k] - largest);
  }
  sum = pd_group_sum<PD_XENT_BLOCK>(sum);
  if (threadIdx.x == 0) {
    sums[r] = sum;
    sums[rows + r] = pd_xent_target(classes, first, x, targets[r], largest);
  }
}

/* Maximum and sum of exponentials of a row by a block, in one reading: a thread rescales its sum when its maximum
 * grows. Every thread gets both. */
template <int lanes, typename T>
static __device__ __forceinline__ float pd_row_sum_of_exponentials(int64_t classes, const T *x, float *largest) {
  float mine = -INFINITY, sum = 0;
  for (int64_t c = (int64_t)threadIdx.x * lanes; c < classes; c += PD_XENT_BLOCK * lanes) {
    float v[lanes];
    pd_load_pack(x + c, v);
    float top = mine;
    PD_UNROLL(lanes)
    for (int k = 0; k < lanes; k++) top = fmaxf(top, v[k]);
    if (top > mine) {
      sum *= expf(mine - top);
      mine = top;
    }
    PD_UNROLL(lanes)
    for (int k = 0; k < lanes; k++) sum += expf(v[k] - mine);
  }
  const float all = pd_group_max<PD_XENT_BLOCK>(mine);
  *largest = all;
  return pd_group_sum<PD_XENT_BLOCK>(sum == 0 ? 0.0f : sum * expf(mine - all)); /* 0: no classes, mine may be -inf */
}

template <int lanes, typename T>
__global__ void __launch_bounds__(PD_XENT_BLOCK)
    pd_xent_kernel(int64_t rows, int64_t classes, const T *__restrict__ x, const int32_t *__restrict__ targets,
                   float *__restrict__ row_max, float *__restrict__ sums) {
  const int64_t r = blockIdx.x;
  x += r * classes;
  float largest;
  const float sum = pd_row_sum_of_exponentials<lanes>(classes, x, &largest);
  if (threadIdx.x == 0) {
    row_max[r] = largest;
    sums[r] = sum;
    sums[rows + r] = pd_xent_target(classes, 0, x, targets[r], largest);
  }
}

/* ---- gradient ---- */

/* dx may be x: a thread writes only what it alone has read */
template <int lanes, typename T>
__global__ void __launch_bounds__(PD_XENT_BLOCK)
    pd_xent_grad_kernel(int64_t classes, int64_t first, const double *inverse, float factor, const float *scalar,
                        const T *x, const int32_t *__restrict__ targets, const float *__restrict__ row_max,
                        const float *__restrict__ sums, T *dx) {
  const int64_t r = blockIdx.x, column = targets[r] - first;
  const bool counted = targets[r] != PD_IGNORE;
  const float whole = factor * (float)*inverse * (scalar != NULL ? *scalar : 1.0f);
  const float share = counted ? whole / sums[r] : 0;
  const float largest = row_max[r];
  x += r * classes;
  dx += r * classes;
  for (int64_t c = (int64_t)threadIdx.x * lanes; c < classes; c += PD_XENT_BLOCK * lanes) {
    float v[lanes];
    pd_load_pack(x + c, v);
    PD_UNROLL(lanes)
    for (int k = 0; k < lanes; k++) {
      const float p = expf(v[k] - largest) * share;
      v[k] = !counted ? 0 : c + k == column ? p - whole : p;
    }
    pd_store_pack(dx + c, v);
  }
}

/* ---- sums by one block, in double ---- */

template <int block>
__global__ void __launch_bounds__(block)
    pd_xent_loss_kernel(int64_t rows, const int32_t *__restrict__ targets, const float *__restrict__ sums,
                        const double *inverse, float *loss) {
  double sum = 0;
  for (int64_t r = threadIdx.x; r < rows; r += block) {
    if (targets[r] != PD_IGNORE) sum += log((double)sums[r]) - (double)sums[rows + r];
  }
  sum = pd_group_sum<block>(sum);
  if (threadIdx.x == 0) *loss = (float)(sum * *inverse);
}

template <typename T>
__global__ void __launch_bounds__(PD_LOSS_BLOCK)
    pd_mse_kernel(int64_t n, double factor, const T *__restrict__ a, const T *__restrict__ b, float *out) {
  constexpr int lanes = 16 / (int)sizeof(T);
  double sum = 0;
  for (int64_t i = (int64_t)threadIdx.x * lanes; i < n; i += PD_LOSS_BLOCK * lanes) {
    float x[lanes] = {}, y[lanes] = {};
    if (i + lanes <= n) {
      pd_load_pack(a + i, x);
      pd_load_pack(b + i, y);
    } else {
      for (int k = 0; i + k < n; k++) x[k] = pd_load(a + i + k), y[k] = pd_load(b + i + k);
    }
    float part = 0;
    PD_UNROLL(lanes)
    for (int k = 0; k < lanes; k++) part = fmaf(x[k] - y[k], x[k] - y[k], part);
    sum += (double)part;
  }
  sum = pd_group_sum<PD_LOSS_BLOCK>(sum);
  if (threadIdx.x == 0) *out = (float)(factor * sum);
}

template <typename T>
__global__ void __launch_bounds__(PD_XENT_BLOCK)
    pd_mse_grad_kernel(int64_t n, float factor, const float *scalar, const T *__restrict__ a, const T *__restrict__ b,
                       T *__restrict__ da) {
  constexpr int lanes = 16 / (int)sizeof(T);
  const float twice = 2 * factor * (scalar != NULL ? *scalar : 1.0f);
  const int64_t first = pd_thread() * lanes;
  if (first + lanes <= n) {
    float x[lanes], y[lanes];
    pd_load_pack(a + first, x);
    pd_load_pack(b + first, y);
    PD_UNROLL(lanes)
    for (int k = 0; k < lanes; k++) x[k] = twice * (x[k] - y[k]);
    pd_store_pack(da + first, x);
  } else {
    for (int64_t i = first; i < n; i++) pd_store(da + i, twice * (pd_load(a + i) - pd_load(b + i)));
  }
}

/* ---- accuracy: rows are counted in an integer, which needs no order, then the count becomes the result ---- */

template <int lanes, typename T>
__global__ void __launch_bounds__(PD_XENT_BLOCK)
    pd_accuracy_rows_kernel(int64_t classes, const T *__restrict__ x, const int32_t *__restrict__ targets, int *right) {
  const int64_t r = blockIdx.x;
  const int32_t target = targets[r];
  if (target < 0 || target >= classes) return; /* ignored, or never right; the whole block */
  x += r * classes;
  /* wrong if an element is larger than the target's, or as large and earlier */
  const float value = pd_load(x + target);
  int wrong = value != value && target != 0;
  for (int64_t c = (int64_t)threadIdx.x * lanes; c < classes; c += PD_XENT_BLOCK * lanes) {
    float v[lanes];
    pd_load_pack(x + c, v);
    PD_UNROLL(lanes)
    for (int k = 0; k < lanes; k++) wrong |= v[k] > value || (v[k] == value && c + k < target);
  }
  if (!__syncthreads_or(wrong) && threadIdx.x == 0) atomicAdd(right, 1);
}

template <typename C> __global__ void pd_accuracy_kernel(const double *inverse, float *out) {
  C right;
  memcpy(&right, out, sizeof right);
  *out = (float)(right * *inverse);
}

/* ---- launchers ---- */

/* A block a row, with packs of 16 bytes where rows of `classes` elements allow it, else element by element. */
#define PD_XENT_LAUNCH(kernel, rows, classes, T, ...)                                                                  \
  do {                                                                                                                 \
    constexpr int most = 16 / (int)sizeof(T);                                                                          \
    if ((rows) == 0) break;                                                                                            \
    if ((classes) % most == 0) {                                                                                       \
      PD_LAUNCH((kernel<most, T>), dim3((unsigned)(rows)), dim3(PD_XENT_BLOCK), 0, stream, __VA_ARGS__);               \
    } else {                                                                                                           \
      PD_LAUNCH((kernel<1, T>), dim3((unsigned)(rows)), dim3(PD_XENT_BLOCK), 0, stream, __VA_ARGS__);                  \
    }                                                                                                                  \
  } while (0)

/* row_max[r] = max over the local classes */
template <typename T>
static inline void pd_xent_max(cudaStream_t stream, int64_t rows, int64_t classes, const T *x, float *row_max) {
  PD_XENT_LAUNCH(pd_xent_max_kernel, rows, classes, T, classes, x, row_max);
}

/* sums[r] = sum over local classes of exp(x - row_max); sums[rows + r] = x[target] - row_max if the target is local,
 * else 0. `first` is the class of local column 0. */
template <typename T>
static inline void pd_xent_sums(cudaStream_t stream, int64_t rows, int64_t classes, int64_t first, const T *x,
                                const int32_t *targets, const float *row_max, float *sums) {
  PD_XENT_LAUNCH(pd_xent_sums_kernel, rows, classes, T, rows, classes, first, x, targets, row_max, sums);
}

/* both of them where all classes are here: one reading of the logits */
template <typename T>
static inline void pd_xent(cudaStream_t stream, int64_t rows, int64_t classes, const T *x, const int32_t *targets,
                           float *row_max, float *sums) {
  PD_XENT_LAUNCH(pd_xent_kernel, rows, classes, T, rows, classes, x, targets, row_max, sums);
}

/* loss = *inverse * sum over counted rows of log(sums[r]) - sums[rows + r] */
static inline void pd_xent_loss(cudaStream_t stream, int64_t rows, const int32_t *targets, const float *sums,
                                const double *inverse, float *loss) {
  PD_LAUNCH(pd_xent_loss_kernel<PD_LOSS_BLOCK>, dim3(1), dim3(PD_LOSS_BLOCK), 0, stream, rows, targets, sums, inverse,
            loss);
}

/* dx[r,c] = factor * *inverse * *scalar (NULL: 1) * (exp(x - row_max) / sums[r] - [c is the target]); an ignored row is
 * 0. dx may be x. */
template <typename T>
static inline void pd_xent_grad(cudaStream_t stream, int64_t rows, int64_t classes, int64_t first,
                                const double *inverse, float factor, const float *scalar, const T *x,
                                const int32_t *targets, const float *row_max, const float *sums, T *dx) {
  PD_XENT_LAUNCH(pd_xent_grad_kernel, rows, classes, T, classes, first, inverse, factor, scalar, x, targets, row_max,
                 sums, dx);
}

/* *out, so far the bits of an integer, becomes *inverse times that integer */
static inline void pd_accuracy_result(cudaStream_t stream, const double *inverse, float *out) {
  PD_LAUNCH(pd_accuracy_kernel<int>, dim3(1), dim3(1), 0, stream, inverse, out);
}

/* out = *inverse * number of counted rows whose largest logit (the first of equals) is the target */
template <typename T>
static inline void pd_accuracy(cudaStream_t stream, int64_t rows, int64_t classes, const T *x, const int32_t *targets,
                               const double *inverse, float *out) {
  pd_fill(stream, 1, 0.0f, out); /* all bits 0: the integer 0 */
  int *const right = reinterpret_cast<int *>(out);
  PD_XENT_LAUNCH(pd_accuracy_rows_kernel, rows, classes, T, classes, x, targets, right);
  pd_accuracy_result(stream, inverse, out);
}

/* out = factor * sum of (a - b)^2 */
template <typename T>
static inline void pd_mse(cudaStream_t stream, int64_t n, double factor, const T *a, const T *b, float *out) {
  PD_LAUNCH(pd_mse_kernel<T>, dim3(1), dim3(PD_LOSS_BLOCK), 0, stream, n, factor, a, b, out);
}

/* da = factor * *scalar (NULL: 1) * 2 (a - b) */
template <typename T>
static inline void pd_mse_grad(cudaStream_t stream, int64_t n, float factor, const float *scalar, const T *a,
                               const T *b, T *da) {
  if (n == 0) return;
  PD_LAUNCH(pd_mse_grad_kernel<T>, pd_blocks(n, PD_XENT_BLOCK * (16 / (int)sizeof(T))), dim3(PD_XENT_BLOCK), 0, stream,
            n, factor, scalar, a, b, da);
}

#endif
