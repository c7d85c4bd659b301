/* Sums over the rows or the columns of a matrix (gradients of biases and gains), with the terms in a fixed tree. */
#ifndef PD_SUM_CUH
#define PD_SUM_CUH

#include "pd_device.cuh"

/* A block owns a strip of columns, of 32 bytes or, where strips are many, 64, and goes down all rows: threadIdx.x is
 * the pack in the strip, threadIdx.y the first of its rows. */
template <typename A, int cols> struct pd_strip {
  static constexpr int lanes = pd_lanes<A>(cols);
  static constexpr int packs = (cols + lanes - 1) / lanes;
  static constexpr int wanted = (cols >= 128 * 64 / (int)sizeof(A) ? 64 : 32) / (lanes * (int)sizeof(A));
  static constexpr int width = wanted < packs ? wanted : packs; /* packs */
  static constexpr int depth = width >= 64 ? 8 : width >= 32 ? 16 : width >= 16 ? 32 : width >= 8 ? 64 : 128;
  static constexpr int strips = (packs + width - 1) / width;
};

template <bool product, typename A, typename O, int cols>
__global__ void __launch_bounds__(pd_strip<A, cols>::width *pd_strip<A, cols>::depth)
    pd_sum_rows_kernel(int64_t rows, const A *__restrict__ a, const A *__restrict__ b, bool accumulate,
                       O *__restrict__ out) {
  typedef pd_strip<A, cols> strip;
  constexpr int lanes = strip::lanes;
  __shared__ float part[strip::depth][strip::width * lanes];
  const int pack = (int)blockIdx.x * strip::width + (int)threadIdx.x;
  const bool inside = pack < strip::packs;
  float sum[lanes] = {};
  if (inside) {
    PD_UNROLL(4)
    for (int64_t r = threadIdx.y; r < rows; r += strip::depth) {
      float x[lanes], y[lanes];
      pd_load_pack(a + r * cols + pack * lanes, x);
      if (product) pd_load_pack(b + r * cols + pack * lanes, y);
      PD_UNROLL(lanes)
      for (int k = 0; k < lanes; k++) sum[k] = product ? fmaf(x[k], y[k], sum[k]) : sum[k] + x[k];
    }
  }
  PD_UNROLL(lanes)
  for (int k = 0; k < lanes; k++) part[threadIdx.y][(int)threadIdx.x * lanes + k] = sum[k];
  PD_UNROLL(8)
  for (int half = strip::depth / 2; half > 0; half /= 2) {
    __syncthreads();
    if ((int)threadIdx.y < half) {
      PD_UNROLL(lanes)
      for (int k = 0; k < lanes; k++) {
        const int c = (int)threadIdx.x * lanes + k;
        part[threadIdx.y][c] += part[(int)threadIdx.y + half][c];
      }
    }
  }
  if (threadIdx.y == 0 && inside) {
    PD_UNROLL(lanes)
    for (int k = 0; k < lanes; k++) {
      O *to = out + pack * lanes + k;
      const float total = part[0][(int)threadIdx.x * lanes + k];
      pd_store(to, accumulate ? pd_load(to) + total : total);
    }
  }
}

/* out[c] (+)= sum over rows of a[r,c] (* b[r,c] if b) */
template <typename A, typename O, int cols>
static inline void pd_sum_rows(cudaStream_t stream, int64_t rows, const A *a, const A *b, bool accumulate, O *out) {
  typedef pd_strip<A, cols> strip;
  const dim3 grid = dim3(strip::strips), block = dim3(strip::width, strip::depth);
  if (b != NULL) {
    PD_LAUNCH((pd_sum_rows_kernel<true, A, O, cols>), grid, block, 0, stream, rows, a, b, accumulate, out);
  } else {
    PD_LAUNCH((pd_sum_rows_kernel<false, A, O, cols>), grid, block, 0, stream, rows, a, b, accumulate, out);
  }
}

#define PD_SUM_COLS_BLOCK 256

/* A warp sums a row (8 rows a block), or with `threads` of 256 the whole block does. */
template <int threads, int lanes, bool product, typename A, typename O>
__global__ void __launch_bounds__(PD_SUM_COLS_BLOCK)
    pd_sum_cols_kernel(int64_t rows, int64_t cols, const A *__restrict__ a, const A *__restrict__ b, bool accumulate,
                       O *__restrict__ out) {
  const int64_t r = (int64_t)blockIdx.x * (PD_SUM_COLS_BLOCK / threads) + threadIdx.y;
  if (r >= rows) return;
  float sum = 0;
  for (int64_t c = (int64_t)threadIdx.x * lanes; c < cols; c += threads * lanes) {
    float x[lanes], y[lanes];
    pd_load_pack(a + r * cols + c, x);
    if (product) pd_load_pack(b + r * cols + c, y);
    PD_UNROLL(lanes)
    for (int k = 0; k < lanes; k++) sum = product ? fmaf(x[k], y[k], sum) : sum + x[k];
  }
  sum = pd_group_sum<threads>(sum);
  if (threadIdx.x == 0) pd_store(out + r, accumulate ? pd_load(out + r) + sum : sum);
}

template <int threads, int lanes, typename A, typename O>
static inline void pd_sum_cols_launch(cudaStream_t stream, int64_t rows, int64_t cols, const A *a, const A *b,
                                      bool accumulate, O *out) {
  constexpr int together = PD_SUM_COLS_BLOCK / threads;
  const dim3 grid = pd_blocks(rows, together), block = dim3(threads, together);
  if (b != NULL) {
    PD_LAUNCH((pd_sum_cols_kernel<threads, lanes, true, A, O>), grid, block, 0, stream, rows, cols, a, b, accumulate,
              out);
  } else {
    PD_LAUNCH((pd_sum_cols_kernel<threads, lanes, false, A, O>), grid, block, 0, stream, rows, cols, a, b, accumulate,
              out);
  }
}

/* out[r] (+)= sum over cols of a[r,c] (* b[r,c] if b) */
template <typename A, typename O>
static inline void pd_sum_cols(cudaStream_t stream, int64_t rows, int64_t cols, const A *a, const A *b, bool accumulate,
                               O *out) {
  constexpr int most = 16 / (int)sizeof(A);
  if (rows == 0) return;
  const bool whole = cols % most == 0;
  if (cols <= 2048) {
    if (whole)
      pd_sum_cols_launch<PD_WARP, most>(stream, rows, cols, a, b, accumulate, out);
    else
      pd_sum_cols_launch<PD_WARP, 1>(stream, rows, cols, a, b, accumulate, out);
  } else {
    if (whole)
      pd_sum_cols_launch<PD_SUM_COLS_BLOCK, most>(stream, rows, cols, a, b, accumulate, out);
    else
      pd_sum_cols_launch<PD_SUM_COLS_BLOCK, 1>(stream, rows, cols, a, b, accumulate, out);
  }
}

#endif
