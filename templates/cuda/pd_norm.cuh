/* Layer and RMS normalisation of rows and their gradients. A row is read once where it fits into registers. */
#ifndef PD_NORM_CUH
#define PD_NORM_CUH

#include "pd_device.cuh"

/* centred: layernorm, y = (x - mean) * rstd; else rmsnorm, y = x * rstd */
template <bool centred, typename T, int n>
__global__ void __launch_bounds__(pd_row<T, n>::threads *pd_row<T, n>::together)
    pd_norm_kernel(int64_t rows, float eps, const T *__restrict__ x, T *__restrict__ y, float *__restrict__ rstd) {
  typedef pd_row<T, n> row;
  const int64_t r = row::index();
  if (r >= rows) return; /* a whole group */
  x += r * n, y += r * n;
  row in;
  in.read(x);
  float mean = 0;
  if (centred) {
    PD_UNROLL(row::unroll)
    for (int s = 0; s < row::steps; s++) {
      if (!row::inside(s)) continue;
      float v[row::lanes];
      in.get(x, s, v);
      PD_UNROLL(row::lanes)
      for (int k = 0; k < row::lanes; k++) mean += v[k];
    }
    mean = pd_group_sum<row::threads>(mean) * (1.0f / n);
  }
  float square = 0;
  PD_UNROLL(row::unroll)
  for (int s = 0; s < row::steps; s++) {
    if (!row::inside(s)) continue;
    float v[row::lanes];
    in.get(x, s, v);
    PD_UNROLL(row::lanes)
    for (int k = 0; k < row::lanes; k++) square = fmaf(v[k] - mean, v[k] - mean, square);
  }
  const float inverse = 1.0f / sqrtf(pd_group_sum<row::threads>(square) * (1.0f / n) + eps);
  PD_UNROLL(row::unroll)
  for (int s = 0; s < row::steps; s++) {
    if (!row::inside(s)) continue;
    float v[row::lanes];
    in.get(x, s, v);
    PD_UNROLL(row::lanes)
    for (int k = 0; k < row::lanes; k++) v[k] = (v[k] - mean) * inverse;
    pd_store_pack(y + row::column(s), v);
  }
  if (threadIdx.x == 0) rstd[r] = inverse;
}

/* dx = rstd * (dy - mean(dy) - y * mean(dy * y)), without the first mean if not centred */
template <bool centred, typename T, int n>
__global__ void __launch_bounds__(pd_row<T, n>::threads *pd_row<T, n>::together)
    pd_norm_grad_kernel(int64_t rows, const T *__restrict__ y, const float *__restrict__ rstd, const T *__restrict__ dy,
                        T *__restrict__ dx) {
  typedef pd_row<T, n> row;
  const int64_t r = row::index();
  if (r >= rows) return;
  y += r * n, dy += r * n, dx += r * n;
  row out, gradient;
  out.read(y);
  gradient.read(dy);
  float mean = 0, dot = 0;
  PD_UNROLL(row::unroll)
  for (int s = 0; s < row::steps; s++) {
    if (!row::inside(s)) continue;
    float v[row::lanes], g[row::lanes];
    out.get(y, s, v);
    gradient.get(dy, s, g);
    PD_UNROLL(row::lanes)
    for (int k = 0; k < row::lanes; k++) {
      if (centred) mean += g[k];
      dot = fmaf(g[k], v[k], dot);
    }
  }
  if (centred) mean = pd_group_sum<row::threads>(mean) * (1.0f / n);
  dot = pd_group_sum<row::threads>(dot) * (1.0f / n);
  const float inverse = rstd[r];
  PD_UNROLL(row::unroll)
  for (int s = 0; s < row::steps; s++) {
    if (!row::inside(s)) continue;
    float v[row::lanes], g[row::lanes];
    out.get(y, s, v);
    gradient.get(dy, s, g);
    PD_UNROLL(row::lanes)
    for (int k = 0; k < row::lanes; k++) g[k] = inverse * (g[k] - mean - v[k] * dot);
    pd_store_pack(dx + row::column(s), g);
  }
}

template <bool centred, typename T, int n>
static inline void pd_norm(cudaStream_t stream, int64_t rows, float eps, const T *x, T *y, float *rstd) {
  if (rows == 0) return;
  PD_LAUNCH((pd_norm_kernel<centred, T, n>), (pd_row<T, n>::grid(rows)), (pd_row<T, n>::block()), 0, stream, rows, eps,
            x, y, rstd);
}

template <bool centred, typename T, int n>
static inline void pd_norm_grad(cudaStream_t stream, int64_t rows, const T *y, const float *rstd, const T *dy, T *dx) {
  if (rows == 0) return;
  PD_LAUNCH((pd_norm_grad_kernel<centred, T, n>), (pd_row<T, n>::grid(rows)), (pd_row<T, n>::block()), 0, stream, rows,
            y, rstd, dy, dx);
}

/* y = (x - mean) * rstd over rows of n, biased variance; rstd[rows] kept for the gradient */
template <typename T, int n>
static inline void pd_layernorm(cudaStream_t stream, int64_t rows, float eps, const T *x, T *y, float *rstd) {
  pd_norm<true, T, n>(stream, rows, eps, x, y, rstd);
}

template <typename T, int n>
static inline void pd_layernorm_grad(cudaStream_t stream, int64_t rows, const T *y, const float *rstd, const T *dy,
                                     T *dx) {
  pd_norm_grad<true, T, n>(stream, rows, y, rstd, dy, dx);
}

/* y = x / sqrt(mean(x^2) + eps) */
template <typename T, int n>
static inline void pd_rmsnorm(cudaStream_t stream, int64_t rows, float eps, const T *x, T *y, float *rstd) {
  pd_norm<false, T, n>(stream, rows, eps, x, y, rstd);
}

template <typename T, int n>
static inline void pd_rmsnorm_grad(cudaStream_t stream, int64_t rows, const T *y, const float *rstd, const T *dy,
                                   T *dx) {
  pd_norm_grad<false, T, n>(stream, rows, y, rstd, dy, dx);
}

#endif
