/* Softmax of rows and its gradient. */
#ifndef PD_SOFTMAX_CUH
#define PD_SOFTMAX_CUH

#include "pd_device.cuh"

#include <math.h>

template <typename T, int n>
__global__ void __launch_bounds__(pd_row<T, n>::threads *pd_row<T, n>::together)
    pd_softmax_kernel(int64_t rows, const T *__restrict__ x, T *__restrict__ y) {
  typedef pd_row<T, n> row;
  const int64_t r = row::index();
  if (r >= rows) return; /* a whole group */
  x += r * n, y += r * n;
  row in;
  in.read(x);
  float largest = -INFINITY;
  PD_UNROLL(row::unroll)
  for (int s = 0; s < row::steps; s++) {
    if (!row::inside(s)) continue;
    float v[row::lanes];
    in.get(x, s, v);
    PD_UNROLL(row::lanes)
    for (int k = 0; k < row::lanes; k++) largest = fmaxf(largest, v[k]);
  }
  largest = pd_group_max<row::threads>(largest);
  float sum = 0;
  PD_UNROLL(row::unroll)
  for (int s = 0; s < row::steps; s++) {
    if (!row::inside(s)) continue;
    float v[row::lanes];
    in.get(x, s, v);
    PD_UNROLL(row::lanes)
    for (int k = 0; k < row::lanes; k++) {
      v[k] = expf(v[k] - largest);
      sum += v[k];
      if (row::kept) in.held[row::kept ? s : 0][k] = v[k];
    }
  }
  const float inverse = 1.0f / pd_group_sum<row::threads>(sum);
  PD_UNROLL(row::unroll)
  for (int s = 0; s < row::steps; s++) {
    if (!row::inside(s)) continue;
    float v[row::lanes];
    in.get(x, s, v);
    PD_UNROLL(row::lanes)
    for (int k = 0; k < row::lanes; k++) v[k] = (row::kept ? v[k] : expf(v[k] - largest)) * inverse;
    pd_store_pack(y + row::column(s), v);
  }
}

/* dx = y * (dy - sum(y * dy)) */
template <typename T, int n>
__global__ void __launch_bounds__(pd_row<T, n>::threads *pd_row<T, n>::together)
    pd_softmax_grad_kernel(int64_t rows, const T *__restrict__ y, const T *__restrict__ dy, T *__restrict__ dx) {
  typedef pd_row<T, n> row;
  const int64_t r = row::index();
  if (r >= rows) return;
  y += r * n, dy += r * n, dx += r * n;
  row out, gradient;
  out.read(y);
  gradient.read(dy);
  float dot = 0;
  PD_UNROLL(row::unroll)
  for (int s = 0; s < row::steps; s++) {
    if (!row::inside(s)) continue;
    float v[row::lanes], g[row::lanes];
    out.get(y, s, v);
    gradient.get(dy, s, g);
    PD_UNROLL(row::lanes)
    for (int k = 0; k < row::lanes; k++) dot = fmaf(g[k], v[k], dot);
  }
  dot = pd_group_sum<row::threads>(dot);
  PD_UNROLL(row::unroll)
  for (int s = 0; s < row::steps; s++) {
    if (!row::inside(s)) continue;
    float v[row::lanes], g[row::lanes];
    out.get(y, s, v);
    gradient.get(dy, s, g);
    PD_UNROLL(row::lanes)
    for (int k = 0; k < row::lanes; k++) g[k] = v[k] * (g[k] - dot);
    pd_store_pack(dx + row::column(s), g);
  }
}

template <typename T, int n> static inline void pd_softmax(cudaStream_t stream, int64_t rows, const T *x, T *y) {
  if (rows == 0) return;
  PD_LAUNCH((pd_softmax_kernel<T, n>), (pd_row<T, n>::grid(rows)), (pd_row<T, n>::block()), 0, stream, rows, x, y);
}

template <typename T, int n>
static inline void pd_softmax_grad(cudaStream_t stream, int64_t rows, const T *y, const T *dy, T *dx) {
  if (rows == 0) return;
  PD_LAUNCH((pd_softmax_grad_kernel<T, n>), (pd_row<T, n>::grid(rows)), (pd_row<T, n>::block()), 0, stream, rows, y, dy,
            dx);
}

#endif
