/* Optimizers with master weights in float and an optional rounded copy, the gradient norm, and sums of results.
 *
 * What changes from step to step is read from pd_step_values in device memory, so a captured step can be replayed.
 */
#ifndef PD_OPTIMIZER_CUH
#define PD_OPTIMIZER_CUH

#include "pd_device.cuh"
#include "pd_move.cuh"

#include "step.h"

#define PD_UPDATE_BLOCK 256
#define PD_NORM_BLOCKS 1024

typedef struct pd_adamw_rates {
  float beta1, beta2, eps, decay;
  float rest1, rest2; /* 1 - beta, rounded once */
} pd_adamw_rates;

static inline pd_adamw_rates pd_adamw_rates_of(double beta1, double beta2, double eps, double decay) {
  const pd_adamw_rates a = {(float)beta1, (float)beta2,       (float)eps,
                            (float)decay, (float)(1 - beta1), (float)(1 - beta2)};
  return a;
}

/* what a step gives an update; made once a thread */
typedef struct pd_update {
  float rate, factor, inverse_c1, inverse_c2;
} pd_update;

static __device__ __forceinline__ pd_update pd_update_of(const pd_step_values *values) {
  const pd_update u = {(float)values->rate, (float)values->factor, 1 / (float)values->c1, 1 / (float)values->c2};
  return u;
}

static __device__ __forceinline__ void pd_adamw_element(const pd_adamw_rates &a, const pd_update &u, bool coupled,
                                                        float gradient, float *w, float *m, float *v) {
  float g = u.factor * gradient;
  if (coupled) g = fmaf(a.decay, *w, g);
  *m = fmaf(a.beta1, *m, a.rest1 * g);
  *v = fmaf(a.beta2, *v, a.rest2 * g * g);
  const float step = *m * u.inverse_c1 / (sqrtf(*v * u.inverse_c2) + a.eps);
  *w -= u.rate * (coupled ? step : fmaf(a.decay, *w, step));
}

template <bool coupled, bool copied, typename T>
__global__ void __launch_bounds__(PD_UPDATE_BLOCK)
    pd_adamw_kernel(int64_t n, float *__restrict__ w, T *__restrict__ copy, const float *__restrict__ gradient,
                    float *__restrict__ m, float *__restrict__ v, const pd_step_values *values, pd_adamw_rates a) {
  if (!values->update || !values->finite) return;
  const pd_update u = pd_update_of(values);
  const int64_t first = pd_thread() * 4;
  if (first + 4 <= n) {
    float weight[4], g[4], mean[4], square[4];
    pd_load_pack(w + first, weight);
    pd_load_pack(gradient + first, g);
    pd_load_pack(m + first, mean);
    pd_load_pack(v + first, square);
    PD_UNROLL(4)
    for (int k = 0; k < 4; k++) pd_adamw_element(a, u, coupled, g[k], &weight[k], &mean[k], &square[k]);
    pd_store_pack(w + first, weight);
    pd_store_pack(m + first, mean);
    pd_store_pack(v + first, square);
    if (copied) pd_store_pack(copy + first, weight);
  } else {
    for (int64_t i = first; i < n; i++) {
      pd_adamw_element(a, u, coupled, gradient[i], w + i, m + i, v + i);
      if (copied) pd_store(copy + i, w[i]);
    }
  }
}

template <bool coupled, bool copied, typename T>
static inline void pd_adamw_launch(cudaStream_t stream, int64_t n, float *w, T *copy, const float *gradient, float *m,
                                   float *v, const pd_step_values *values, const pd_adamw_rates &rates) {
  PD_LAUNCH((pd_adamw_kernel<coupled, copied, T>), pd_blocks(n, PD_UPDATE_BLOCK * 4), dim3(PD_UPDATE_BLOCK), 0, stream,
            n, w, copy, gradient, m, v, values, rates);
}

/* AdamW (Loshchilov and Hutter 2019): w -= rate * (m/c1 / (sqrt(v/c2) + eps) + decay * w); coupled: Adam, where
 * decay * w is part of the gradient. copy (NULL: none) gets the weights rounded to T. */
template <typename T>
static inline void pd_adamw(cudaStream_t stream, int64_t n, float *w, T *copy, const float *gradient, float *m,
                            float *v, const pd_step_values *values, double beta1, double beta2, double eps,
                            double decay, bool coupled) {
  if (n == 0) return;
  const pd_adamw_rates a = pd_adamw_rates_of(beta1, beta2, eps, decay);
  if (coupled && copy != NULL)
    pd_adamw_launch<true, true>(stream, n, w, copy, gradient, m, v, values, a);
  else if (coupled)
    pd_adamw_launch<true, false>(stream, n, w, copy, gradient, m, v, values, a);
  else if (copy != NULL)
    pd_adamw_launch<false, true>(stream, n, w, copy, gradient, m, v, values, a);
  else
    pd_adamw_launch<false, false>(stream, n, w, copy, gradient, m, v, values, a);
}

template <bool momentous, bool copied, typename T>
__global__ void __launch_bounds__(PD_UPDATE_BLOCK)
    pd_sgd_kernel(int64_t n, float *__restrict__ w, T *__restrict__ copy, const float *__restrict__ gradient,
                  float *__restrict__ momentum_buffer, const pd_step_values *values, float momentum, float decay) {
  if (!values->update || !values->finite) return;
  const float rate = (float)values->rate, factor = (float)values->factor;
  const int64_t first = pd_thread() * 4;
  const int count = first + 4 <= n ? 4 : first < n ? (int)(n - first) : 0;
  for (int k = 0; k < count; k++) {
    const int64_t i = first + k;
    float step = fmaf(decay, w[i], factor * gradient[i]);
    if (momentous) momentum_buffer[i] = step = fmaf(momentum, momentum_buffer[i], step);
    w[i] -= rate * step;
    if (copied) pd_store(copy + i, w[i]);
  }
}

template <bool momentous, bool copied, typename T>
static inline void pd_sgd_launch(cudaStream_t stream, int64_t n, float *w, T *copy, const float *gradient,
                                 float *momentum_buffer, const pd_step_values *values, double momentum, double decay) {
  PD_LAUNCH((pd_sgd_kernel<momentous, copied, T>), pd_blocks(n, PD_UPDATE_BLOCK * 4), dim3(PD_UPDATE_BLOCK), 0, stream,
            n, w, copy, gradient, momentum_buffer, values, (float)momentum, (float)decay);
}

/* SGD as PyTorch's: g = factor*gradient + decay*w; buffer = momentum*buffer + g; w -= rate*buffer. The buffer is NULL
 * with momentum 0. */
template <typename T>
static inline void pd_sgd(cudaStream_t stream, int64_t n, float *w, T *copy, const float *gradient,
                          float *momentum_buffer, const pd_step_values *values, double momentum, double decay) {
  if (n == 0) return;
  float *const buffer = momentum_buffer;
  if (buffer != NULL && copy != NULL)
    pd_sgd_launch<true, true>(stream, n, w, copy, gradient, buffer, values, momentum, decay);
  else if (buffer != NULL)
    pd_sgd_launch<true, false>(stream, n, w, copy, gradient, buffer, values, momentum, decay);
  else if (copy != NULL)
    pd_sgd_launch<false, true>(stream, n, w, copy, gradient, buffer, values, momentum, decay);
  else
    pd_sgd_launch<false, false>(stream, n, w, copy, gradient, buffer, values, momentum, decay);
}

/* ---- running statistics ---- */

template <typename T>
__global__ void __launch_bounds__(PD_UPDATE_BLOCK)
    pd_update_statistic_kernel(int64_t n, float *__restrict__ w, T *__restrict__ copy, const float *__restrict__ sums,
                               const pd_step_values *values, double momentum, double count) {
  const int64_t i = pd_thread();
  if (i >= n || !values->update || !values->finite) return;
  w[i] = (float)((1 - momentum) * (double)w[i] + momentum * ((double)sums[i] / count));
  if (copy != NULL) pd_store(copy + i, w[i]);
}

/* w = (1 - momentum) * w + momentum * sums / count; copy as in pd_adamw */
template <typename T>
static inline void pd_update_statistic(cudaStream_t stream, int64_t n, float *w, T *copy, const float *sums,
                                       const pd_step_values *values, double momentum, double count) {
  if (n == 0) return;
  PD_LAUNCH(pd_update_statistic_kernel<T>, pd_blocks(n, PD_UPDATE_BLOCK), dim3(PD_UPDATE_BLOCK), 0, stream, n, w, copy,
            sums, values, momentum, count);
}

/* ---- norm ---- */

/* Block `blockIdx.x` of gridDim.x squares its share of x, cut by n alone. */
template <int block>
__global__ void __launch_bounds__(block)
    pd_sum_squares_kernel(int64_t n, const float *__restrict__ x, double *scratch) {
  double sum = 0;
  for (int64_t i = pd_thread() * 4; i < n; i += (int64_t)gridDim.x * block * 4) {
    float v[4] = {};
    if (i + 4 <= n)
      pd_load_pack(x + i, v);
    else {
      for (int k = 0; i + k < n; k++) v[k] = x[i + k];
    }
    PD_UNROLL(4)
    for (int k = 0; k < 4; k++) sum += (double)v[k] * (double)v[k];
  }
  sum = pd_group_sum<block>(sum);
  if (threadIdx.x == 0) scratch[blockIdx.x] = sum;
}

/* A block sums `count` numbers: block b those from b * count on, to out[b]. */
template <int block>
__global__ void __launch_bounds__(block) pd_sum_doubles_kernel(int count, const double *x, double *out) {
  double sum = 0;
  x += (int64_t)blockIdx.x * count;
  for (int i = (int)threadIdx.x; i < count; i += block) sum += x[i];
  sum = pd_group_sum<block>(sum);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

/* Blocks that sum something over n elements, each to a number of its own: `most` at most. */
static inline int pd_sum_blocks(int64_t n, int most) {
  const int64_t wanted = (n + PD_UPDATE_BLOCK * 4 - 1) / (PD_UPDATE_BLOCK * 4);
  return wanted < 1 ? 1 : wanted < most ? (int)wanted : most;
}

/* *out = sum of x^2; scratch: PD_NORM_BLOCKS doubles */
static inline void pd_sum_squares(cudaStream_t stream, int64_t n, const float *x, double *scratch, double *out) {
  const int blocks = pd_sum_blocks(n, PD_NORM_BLOCKS);
  PD_LAUNCH(pd_sum_squares_kernel<PD_UPDATE_BLOCK>, dim3((unsigned)blocks), dim3(PD_UPDATE_BLOCK), 0, stream, n, x,
            scratch);
  PD_LAUNCH(pd_sum_doubles_kernel<PD_UPDATE_BLOCK>, dim3(1), dim3(PD_UPDATE_BLOCK), 0, stream, blocks, scratch, out);
}

template <typename V> __global__ void pd_decide_kernel(int64_t count, const double *squares, double clip, V *values) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += squares[i];
  const double norm = sqrt(sum);
  values->norm = norm;
  values->finite = isfinite(norm) != 0;
  values->factor = clip > 0 && norm > clip ? clip / norm : 1;
}

/* The norm of all gradients from their sums of squares, added in order, and what follows from it: whether the step may
 * change the parameters, and by what gradients are multiplied. clip 0: never clipped. */
static inline void pd_decide(cudaStream_t stream, int64_t count, const double *squares, double clip,
                             pd_step_values *values) {
  PD_LAUNCH(pd_decide_kernel<pd_step_values>, dim3(1), dim3(1), 0, stream, count, squares, clip, values);
}

/* ---- lamb ---- */

/* Lamb's direction: of an element, from its moments as they are after the step */
static __device__ __forceinline__ float pd_lamb_direction(const pd_adamw_rates &a, const pd_update &u, float w, float m,
                                                          float v) {
  return fmaf(a.decay, w, m * u.inverse_c1 / (sqrtf(v * u.inverse_c2) + a.eps));
}

/* Block `blockIdx.x` renews its share of the moments; scratch gets its sum of w^2, and gridDim.x further that of the
 * directions' squares. */
template <int block>
__global__ void __launch_bounds__(block)
    pd_lamb_measure_kernel(int64_t n, const float *__restrict__ w, const float *__restrict__ gradient,
                           float *__restrict__ m, float *__restrict__ v, const pd_step_values *values, pd_adamw_rates a,
                           double *scratch) {
  if (!values->update || !values->finite) return;
  const pd_update u = pd_update_of(values);
  double length = 0, moved = 0;
  for (int64_t i = pd_thread(); i < n; i += (int64_t)gridDim.x * block) {
    const float weight = w[i], g = u.factor * gradient[i];
    const float mean = fmaf(a.beta1, m[i], a.rest1 * g), square = fmaf(a.beta2, v[i], a.rest2 * g * g);
    const double direction = (double)pd_lamb_direction(a, u, weight, mean, square);
    m[i] = mean, v[i] = square;
    length += (double)weight * (double)weight;
    moved += direction * direction;
  }
  length = pd_group_sum<block>(length);
  moved = pd_group_sum<block>(moved);
  if (threadIdx.x == 0) scratch[blockIdx.x] = length, scratch[gridDim.x + blockIdx.x] = moved;
}

/* A tensor's own rate follows its length and that of its direction (squares of both); lengths NULL: it has none. */
template <bool copied, typename T>
__global__ void __launch_bounds__(PD_UPDATE_BLOCK)
    pd_lamb_kernel(int64_t n, float *__restrict__ w, T *__restrict__ copy, const float *__restrict__ m,
                   const float *__restrict__ v, const pd_step_values *values, pd_adamw_rates a, const double *lengths) {
  if (!values->update || !values->finite) return;
  const pd_update u = pd_update_of(values);
  const bool adapts = lengths != NULL && lengths[0] > 0 && lengths[1] > 0;
  const float rate = (float)(values->rate * (adapts ? sqrt(lengths[0] / lengths[1]) : 1));
  const int64_t i = pd_thread();
  if (i >= n) return;
  const float weight = w[i] - rate * pd_lamb_direction(a, u, w[i], m[i], v[i]);
  w[i] = weight;
  if (copied) pd_store(copy + i, weight);
}

/* Lamb (You et al. 2020), first part: renews the moments; lengths[0] = sum of w^2, lengths[1] = sum of the squares of
 * the direction m/c1 / (sqrt(v/c2) + eps) + decay * w. scratch: PD_NORM_BLOCKS doubles. */
static inline void pd_lamb_measure(cudaStream_t stream, int64_t n, const float *w, const float *gradient, float *m,
                                   float *v, const pd_step_values *values, double beta1, double beta2, double eps,
                                   double decay, double *scratch, double *lengths) {
  const int blocks = pd_sum_blocks(n, PD_NORM_BLOCKS / 2);
  PD_LAUNCH(pd_lamb_measure_kernel<PD_UPDATE_BLOCK>, dim3((unsigned)blocks), dim3(PD_UPDATE_BLOCK), 0, stream, n, w,
            gradient, m, v, values, pd_adamw_rates_of(beta1, beta2, eps, decay), scratch);
  PD_LAUNCH(pd_sum_doubles_kernel<PD_UPDATE_BLOCK>, dim3(2), dim3(PD_UPDATE_BLOCK), 0, stream, blocks, scratch,
            lengths);
}

/* Second part: w -= rate * sqrt(lengths[0] / lengths[1]) * direction, without the root where lengths is NULL or has a
 * zero. copy as in pd_adamw. */
template <typename T>
static inline void pd_lamb(cudaStream_t stream, int64_t n, float *w, T *copy, const float *m, const float *v,
                           const pd_step_values *values, double eps, double decay, const double *lengths) {
  if (n == 0) return;
  const pd_adamw_rates a = pd_adamw_rates_of(0, 0, eps, decay);
  const dim3 grid = pd_blocks(n, PD_UPDATE_BLOCK), block = dim3(PD_UPDATE_BLOCK);
  if (copy != NULL) {
    PD_LAUNCH((pd_lamb_kernel<true, T>), grid, block, 0, stream, n, w, copy, m, v, values, a, lengths);
  } else {
    PD_LAUNCH((pd_lamb_kernel<false, T>), grid, block, 0, stream, n, w, copy, m, v, values, a, lengths);
  }
}

/* ---- results ---- */

template <typename V> __global__ void pd_add_result_kernel(const V *value, double *result) {
  *result += (double)*value;
}

/* *result += *value */
static inline void pd_add_result(cudaStream_t stream, const float *value, double *result) {
  PD_LAUNCH(pd_add_result_kernel<float>, dim3(1), dim3(1), 0, stream, value, result);
}

#endif
