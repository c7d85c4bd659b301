/* Batch normalisation of x [n, channels, inner]: statistics of a channel over n and inner, and the gradient of what
 * they normalise. A block measures a channel, in a fixed tree; all blocks normalise. */
#ifndef PD_BATCHNORM_CUH
#define PD_BATCHNORM_CUH

#include "pd_device.cuh"
#include "pd_view.cuh"

#define PD_BATCHNORM_BLOCK 512

/* Where the packs of `lanes` neighbouring elements of one channel are: `packs` in each of n runs of inner elements. A
 * channel, and a sample, have fewer than 2^31 packs. */
typedef struct pd_channel {
  int64_t n, channels, inner;
  uint32_t packs;
  pd_divider by_packs;
} pd_channel;

static inline pd_channel pd_channel_of(int64_t n, int64_t channels, int64_t inner, int lanes) {
  const pd_channel c = {n, channels, inner, (uint32_t)(inner / lanes), pd_divider_of(inner / lanes)};
  return c;
}

/* offset of pack `i` of channel `c` */
template <int lanes>
static __device__ __forceinline__ int64_t pd_channel_pack(const pd_channel &v, int64_t c, uint32_t i) {
  const uint32_t sample = pd_divide(v.by_packs, i);
  return ((int64_t)sample * v.channels + c) * v.inner + (int64_t)(i - sample * v.packs) * lanes;
}

template <int lanes, typename T>
__global__ void __launch_bounds__(PD_BATCHNORM_BLOCK)
    pd_batchnorm_measure_kernel(pd_channel v, const T *__restrict__ x, float *__restrict__ mean,
                                float *__restrict__ variance) {
  const int64_t c = blockIdx.x;
  const uint32_t packs = (uint32_t)v.n * v.packs;
  const float share = 1.0f / (float)(v.n * v.inner);
  float sum = 0, spread = 0;
  for (uint32_t i = threadIdx.x; i < packs; i += PD_BATCHNORM_BLOCK) {
    float value[lanes];
    pd_load_pack(x + pd_channel_pack<lanes>(v, c, i), value);
    PD_UNROLL(lanes)
    for (int k = 0; k < lanes; k++) sum += value[k];
  }
  const float centre = pd_group_sum<PD_BATCHNORM_BLOCK>(sum) * share;
  sum = 0;
  for (uint32_t i = threadIdx.x; i < packs; i += PD_BATCHNORM_BLOCK) {
    float value[lanes];
    pd_load_pack(x + pd_channel_pack<lanes>(v, c, i), value);
    PD_UNROLL(lanes)
    for (int k = 0; k < lanes; k++) {
      const float apart = value[k] - centre;
      sum += apart;
      spread = fmaf(apart, apart, spread);
    }
  }
  /* what the mean of x - centre is besides 0 corrects the rounding of the first sum */
  const float rest = pd_group_sum<PD_BATCHNORM_BLOCK>(sum) * share;
  spread = pd_group_sum<PD_BATCHNORM_BLOCK>(spread) * share - rest * rest;
  if (threadIdx.x != 0) return;
  mean[c] = centre + rest;
  variance[c] = spread < 0 ? 0 : spread; /* a NaN stays */
}

/* y = (x - mean) / sqrt(variance + eps), a pack a thread in each sample; S: type of the statistics */
template <int lanes, typename T, typename S>
__global__ void __launch_bounds__(PD_BATCHNORM_BLOCK)
    pd_batchnorm_kernel(pd_channel v, float eps, const T *__restrict__ x, const S *__restrict__ mean,
                        const S *__restrict__ variance, T *__restrict__ y) {
  const int64_t sample = v.channels * v.inner, first = pd_thread() * lanes;
  if (first >= sample) return;
  const uint32_t c = pd_divide(v.by_packs, (uint32_t)pd_thread());
  const float centre = pd_load(mean + c), inverse = 1.0f / sqrtf(pd_load(variance + c) + eps);
  for (int64_t n = blockIdx.y; n < v.n; n += gridDim.y) {
    float value[lanes];
    pd_load_pack(x + n * sample + first, value);
    PD_UNROLL(lanes)
    for (int k = 0; k < lanes; k++) value[k] = (value[k] - centre) * inverse;
    pd_store_pack(y + n * sample + first, value);
  }
}

/* dx = (dy - mean(dy) - y * mean(dy * y)) / sqrt(variance + eps) */
template <int lanes, typename T>
__global__ void __launch_bounds__(PD_BATCHNORM_BLOCK)
    pd_batchnorm_grad_kernel(pd_channel v, float eps, const T *__restrict__ y, const float *__restrict__ variance,
                             const T *__restrict__ dy, T *__restrict__ dx) {
  const int64_t c = blockIdx.x;
  const uint32_t packs = (uint32_t)v.n * v.packs;
  const float share = 1.0f / (float)(v.n * v.inner), inverse = 1.0f / sqrtf(variance[c] + eps);
  float mean = 0, dot = 0;
  for (uint32_t i = threadIdx.x; i < packs; i += PD_BATCHNORM_BLOCK) {
    const int64_t at = pd_channel_pack<lanes>(v, c, i);
    float value[lanes], gradient[lanes];
    pd_load_pack(y + at, value);
    pd_load_pack(dy + at, gradient);
    PD_UNROLL(lanes)
    for (int k = 0; k < lanes; k++) {
      mean += gradient[k];
      dot = fmaf(gradient[k], value[k], dot);
    }
  }
  mean = pd_group_sum<PD_BATCHNORM_BLOCK>(mean) * share;
  dot = pd_group_sum<PD_BATCHNORM_BLOCK>(dot) * share;
  for (uint32_t i = threadIdx.x; i < packs; i += PD_BATCHNORM_BLOCK) {
    const int64_t at = pd_channel_pack<lanes>(v, c, i);
    float value[lanes], gradient[lanes];
    pd_load_pack(y + at, value);
    pd_load_pack(dy + at, gradient);
    PD_UNROLL(lanes)
    for (int k = 0; k < lanes; k++) gradient[k] = inverse * (gradient[k] - mean - value[k] * dot);
    pd_store_pack(dx + at, gradient);
  }
}

template <int lanes, typename T, typename S>
static inline void pd_batchnorm_launch(cudaStream_t stream, const pd_channel &v, float eps, const T *x, const S *mean,
                                       const S *variance, T *y) {
  dim3 grid = pd_blocks(v.channels * v.inner / lanes, PD_BATCHNORM_BLOCK);
  grid.y = (unsigned)(v.n < 65535 ? v.n : 65535);
  PD_LAUNCH((pd_batchnorm_kernel<lanes, T, S>), grid, dim3(PD_BATCHNORM_BLOCK), 0, stream, v, eps, x, mean, variance,
            y);
}

/* y = (x - mean) / sqrt(variance + eps) with statistics that are given */
template <typename T, typename S>
static inline void pd_batchnorm_given(cudaStream_t stream, int64_t n, int64_t channels, int64_t inner, float eps,
                                      const T *x, const S *mean, const S *variance, T *y) {
  constexpr int most = 16 / (int)sizeof(T);
  if (n * channels * inner == 0) return;
  if (inner % most == 0) {
    pd_batchnorm_launch<most>(stream, pd_channel_of(n, channels, inner, most), eps, x, mean, variance, y);
  } else {
    pd_batchnorm_launch<1>(stream, pd_channel_of(n, channels, inner, 1), eps, x, mean, variance, y);
  }
}

/* The same with those of x, which go to mean[channels] and variance[channels], divided by n * inner. */
template <typename T>
static inline void pd_batchnorm(cudaStream_t stream, int64_t n, int64_t channels, int64_t inner, float eps, const T *x,
                                T *y, float *mean, float *variance) {
  constexpr int most = 16 / (int)sizeof(T);
  if (n * channels * inner == 0) return;
  const dim3 grid = dim3((unsigned)channels), block = dim3(PD_BATCHNORM_BLOCK);
  if (inner % most == 0) {
    PD_LAUNCH((pd_batchnorm_measure_kernel<most, T>), grid, block, 0, stream, pd_channel_of(n, channels, inner, most),
              x, mean, variance);
  } else {
    PD_LAUNCH((pd_batchnorm_measure_kernel<1, T>), grid, block, 0, stream, pd_channel_of(n, channels, inner, 1), x,
              mean, variance);
  }
  pd_batchnorm_given<T, float>(stream, n, channels, inner, eps, x, mean, variance, y);
}

/* The gradient where the statistics are those of x. */
template <typename T>
static inline void pd_batchnorm_grad(cudaStream_t stream, int64_t n, int64_t channels, int64_t inner, float eps,
                                     const T *y, const float *variance, const T *dy, T *dx) {
  constexpr int most = 16 / (int)sizeof(T);
  if (n * channels * inner == 0) return;
  const dim3 grid = dim3((unsigned)channels), block = dim3(PD_BATCHNORM_BLOCK);
  if (inner % most == 0) {
    PD_LAUNCH((pd_batchnorm_grad_kernel<most, T>), grid, block, 0, stream, pd_channel_of(n, channels, inner, most), eps,
              y, variance, dy, dx);
  } else {
    PD_LAUNCH((pd_batchnorm_grad_kernel<1, T>), grid, block, 0, stream, pd_channel_of(n, channels, inner, 1), eps, y,
              variance, dy, dx);
  }
}

#endif
