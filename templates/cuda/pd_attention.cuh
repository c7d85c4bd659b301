/* Scaled dot-product attention without a matrix of scores in memory, and rotary positions.
 *
 * Attention goes over tiles (Dao 2023): a block keeps a tile of rows (queries; keys in one part of the gradient) and
 * streams tiles of the other side through shared memory. The forward pass keeps a running maximum and sum of each row;
 * the gradient recomputes the probabilities from the log-sum-exp. Every result has one writer that adds in a fixed
 * order: the gradients of queries and of keys are two kernels, each of which recomputes the scores.
 *
 * Everything is float in shared memory and registers, whatever the tensors are; rows there are padded by one float4, so
 * that neighbouring rows lie in different banks. Products are of 4 floats at a time: two kinds suffice, rows with rows
 * (scores) and probabilities with rows (outputs). The 1 in launch bounds keeps the compiler from spilling registers to
 * fit more blocks on a processor.
 */
#ifndef PD_ATTENTION_CUH
#define PD_ATTENTION_CUH

#include "pd_device.cuh"
#include "pd_math.cuh"

#include <math.h>

/* A tile of `rows` kept against `cols` streamed; a thread owns row_tile x col_tile scores, rows ty + r * ty_count and
 * columns tx + c * tx_count. threadIdx.x = ty * tx_count + tx, so that threads with one ty are neighbours in a warp. */
template <int d_, int rows_, int cols_, int row_tile_, int col_tile_> struct pd_tile {
  static constexpr int d = d_, rows = rows_, cols = cols_, row_tile = row_tile_, col_tile = col_tile_;
  static constexpr int depth = (d + 3) / 4 * 4; /* zeros up to a multiple of 4 */
  static constexpr int stride = depth + 4;      /* of a row in shared memory */
  static constexpr int score_stride = cols + 4; /* of a row of probabilities */
  static constexpr int tx_count = cols / col_tile, ty_count = rows / row_tile, threads = tx_count * ty_count;
  static constexpr int quads = (depth / 4 + tx_count - 1) / tx_count; /* float4 of an output row that a thread owns */
  static_assert(PD_WARP % tx_count == 0 && threads % PD_WARP == 0, "a row's threads lie in one warp");
  static_assert(cols % ty_count == 0, "threads of a warp go over columns equally often");
};

static __device__ __forceinline__ float4 pd_quad(const float *p) {
  return *reinterpret_cast<const float4 *>(p);
}

/* Copies `count` rows of d elements, `row_step` elements apart, into shared memory; zeros below and beside them. */
template <typename tile, int rows, typename T>
static __device__ __forceinline__ void pd_tile_load(const T *from, int64_t row_step, int count, float *to) {
  constexpr int lanes = pd_lanes<T>(tile::d) < 4 ? pd_lanes<T>(tile::d) : 4, packs = tile::depth / lanes;
  PD_UNROLL(2)
  for (int item = (int)threadIdx.x; item < rows * packs; item += tile::threads) {
    const int row = item / packs, e = item % packs * lanes;
    float v[lanes] = {};
    if (row < count && e < tile::d) pd_load_pack(from + row * row_step + e, v);
    pd_store_pack(to + row * tile::stride + e, v);
  }
}

/* score[r][c] = sum over e of a[row r][e] * b[column c][e] */
template <typename tile>
static __device__ __forceinline__ void pd_tile_scores(const float *a, const float *b, int ty, int tx,
                                                      float (&score)[tile::row_tile][tile::col_tile]) {
  PD_UNROLL(tile::row_tile)
  for (int r = 0; r < tile::row_tile; r++) {
    PD_UNROLL(tile::col_tile)
    for (int c = 0; c < tile::col_tile; c++) score[r][c] = 0;
  }
  PD_UNROLL(1) /* more takes more registers than there are */
  for (int e = 0; e < tile::depth; e += 4) {
    float4 x[tile::row_tile], y[tile::col_tile];
    PD_UNROLL(tile::row_tile)
    for (int r = 0; r < tile::row_tile; r++) x[r] = pd_quad(a + (ty + r * tile::ty_count) * tile::stride + e);
    PD_UNROLL(tile::col_tile)
    for (int c = 0; c < tile::col_tile; c++) y[c] = pd_quad(b + (tx + c * tile::tx_count) * tile::stride + e);
    PD_UNROLL(tile::row_tile)
    for (int r = 0; r < tile::row_tile; r++) {
      PD_UNROLL(tile::col_tile)
      for (int c = 0; c < tile::col_tile; c++) {
        score[r][c] = fmaf(x[r].x, y[c].x, score[r][c]);
        score[r][c] = fmaf(x[r].y, y[c].y, score[r][c]);
        score[r][c] = fmaf(x[r].z, y[c].z, score[r][c]);
        score[r][c] = fmaf(x[r].w, y[c].w, score[r][c]);
      }
    }
  }
}

/* out[r][q] += sum over columns j of p[row r][j] * v[j][quad q] */
template <typename tile>
static __device__ __forceinline__ void pd_tile_output(const float *p, const float *v, int ty, int tx,
                                                      float4 (&out)[tile::row_tile][tile::quads]) {
  PD_UNROLL(1)
  for (int j = 0; j < tile::cols; j += 4) {
    float4 x[tile::row_tile];
    PD_UNROLL(tile::row_tile)
    for (int r = 0; r < tile::row_tile; r++) x[r] = pd_quad(p + (ty + r * tile::ty_count) * tile::score_stride + j);
    PD_UNROLL(4)
    for (int k = 0; k < 4; k++) {
      PD_UNROLL(tile::quads)
      for (int q = 0; q < tile::quads; q++) {
        const int e = (tx + q * tile::tx_count) * 4;
        if (tile::depth % (tile::tx_count * 4) != 0 && e >= tile::depth) continue;
        const float4 y = pd_quad(v + (j + k) * tile::stride + e);
        PD_UNROLL(tile::row_tile)
        for (int r = 0; r < tile::row_tile; r++) {
          const float w = k == 0 ? x[r].x : k == 1 ? x[r].y : k == 2 ? x[r].z : x[r].w;
          out[r][q].x = fmaf(w, y.x, out[r][q].x);
          out[r][q].y = fmaf(w, y.y, out[r][q].y);
          out[r][q].z = fmaf(w, y.z, out[r][q].z);
          out[r][q].w = fmaf(w, y.w, out[r][q].w);
        }
      }
    }
  }
}

/* Stores the thread's part of output rows, times factor[r]. */
template <typename tile, typename T>
static __device__ __forceinline__ void pd_tile_store(T *to, int64_t row_step, int count, int ty, int tx,
                                                     const float (&factor)[tile::row_tile],
                                                     const float4 (&out)[tile::row_tile][tile::quads]) {
  constexpr int lanes = pd_lanes<T>(tile::d) < 4 ? pd_lanes<T>(tile::d) : 4;
  PD_UNROLL(tile::row_tile)
  for (int r = 0; r < tile::row_tile; r++) {
    const int row = ty + r * tile::ty_count;
    if (row >= count) continue;
    PD_UNROLL(tile::quads)
    for (int q = 0; q < tile::quads; q++) {
      const int e = (tx + q * tile::tx_count) * 4;
      const float v[4] = {out[r][q].x * factor[r], out[r][q].y * factor[r], out[r][q].z * factor[r],
                          out[r][q].w * factor[r]};
      PD_UNROLL(4 / lanes)
      for (int part = 0; part < 4; part += lanes) {
        if (e + part >= tile::d) continue;
        float piece[lanes];
        PD_UNROLL(lanes)
        for (int k = 0; k < lanes; k++) piece[k] = v[part + k];
        pd_store_pack(to + row * row_step + e + part, piece);
      }
    }
  }
}

/* Tiles by head size, smaller for longer heads: above 512 there is none. */
template <int d, bool forward> struct pd_tile_for {
  static_assert(d >= 1 && d <= 512, "attention kernels take heads of up to 512 elements");
  static constexpr int size = d <= 160 ? 32 : d <= 256 || forward ? 16 : 8;
  static constexpr bool tall = forward && d <= 96;
  static constexpr int own = d <= 96 ? 4 : size > 8 ? 2 : 1; /* rows and columns of a thread */
  typedef pd_tile<d, (tall ? 64 : size), size, own, own> type;
};

typedef struct pd_attention_sizes {
  int s, t, h, g; /* queries, keys, heads, key heads */
  bool causal;
  float scale;
} pd_attention_sizes;

/* Number of keys that query i sees: with a causal mask those up to its own position counted from the end. */
static __device__ __forceinline__ int pd_visible(const pd_attention_sizes &z, int i) {
  return z.causal ? i + 1 + z.t - z.s : z.t;
}

template <typename tile> constexpr int pd_sdpa_floats() {
  return (tile::rows + tile::cols) * tile::stride + tile::rows * tile::score_stride;
}

template <typename T, int d>
__global__ void __launch_bounds__((pd_tile_for<d, true>::type::threads), 1)
    pd_sdpa_kernel(pd_attention_sizes z, const T *__restrict__ q, const T *__restrict__ k, const T *__restrict__ v,
                   T *__restrict__ o, float *__restrict__ lse) {
  typedef typename pd_tile_for<d, true>::type tile;
  PD_SHARED(float, shared);
  float *const queries = shared, *const keys = queries + tile::rows * tile::stride; /* then the values */
  float *const p = keys + tile::cols * tile::stride;
  const int tx = (int)threadIdx.x % tile::tx_count, ty = (int)threadIdx.x / tile::tx_count;
  const int first = (int)(gridDim.x - 1 - blockIdx.x) * tile::rows; /* the longest first */
  const int head = (int)blockIdx.y, group = head / (z.h / z.g), rows = min(tile::rows, z.s - first);
  const int64_t sample = blockIdx.z, q_step = (int64_t)z.h * d, k_step = (int64_t)z.g * d;
  q += ((sample * z.s + first) * z.h + head) * d;
  o += ((sample * z.s + first) * z.h + head) * d;
  k += (sample * z.t * z.g + group) * d;
  v += (sample * z.t * z.g + group) * d;
  lse += (sample * z.h + head) * z.s + first;

  float top[tile::row_tile], sum[tile::row_tile];
  float4 out[tile::row_tile][tile::quads];
  PD_UNROLL(tile::row_tile)
  for (int r = 0; r < tile::row_tile; r++) {
    top[r] = -INFINITY, sum[r] = 0;
    PD_UNROLL(tile::quads)
    for (int c = 0; c < tile::quads; c++) out[r][c] = make_float4(0, 0, 0, 0);
  }
  pd_tile_load<tile, tile::rows>(q, q_step, rows, queries);
  const int end = min(z.t, pd_visible(z, first + rows - 1)); /* keys that some row sees */
  for (int from = 0; from < end; from += tile::cols) {
    __syncthreads(); /* the last tile's values are no longer read */
    pd_tile_load<tile, tile::cols>(k + from * k_step, k_step, min(tile::cols, z.t - from), keys);
    __syncthreads();
    float score[tile::row_tile][tile::col_tile];
    pd_tile_scores<tile>(queries, keys, ty, tx, score);
    PD_UNROLL(tile::row_tile)
    for (int r = 0; r < tile::row_tile; r++) {
      const int visible = min(z.t, pd_visible(z, first + ty + r * tile::ty_count)) - from;
      float largest = top[r];
      PD_UNROLL(tile::col_tile)
      for (int c = 0; c < tile::col_tile; c++) {
        score[r][c] = tx + c * tile::tx_count < visible ? score[r][c] * z.scale : -INFINITY;
        largest = fmaxf(largest, score[r][c]);
      }
      PD_UNROLL(5)
      for (int step = tile::tx_count / 2; step > 0; step /= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(PD_ALL_LANES, largest, step));
      }
      const float base = largest == -INFINITY ? 0 : largest; /* a row that sees nothing yet */
      const float shrink = expf(top[r] - base);
      float part = 0;
      PD_UNROLL(tile::col_tile)
      for (int c = 0; c < tile::col_tile; c++) {
        score[r][c] = expf(score[r][c] - base);
        part += score[r][c];
        p[(ty + r * tile::ty_count) * tile::score_stride + tx + c * tile::tx_count] = score[r][c];
      }
      PD_UNROLL(5)
      for (int step = tile::tx_count / 2; step > 0; step /= 2) part += __shfl_xor_sync(PD_ALL_LANES, part, step);
      sum[r] = fmaf(sum[r], shrink, part);
      top[r] = largest;
      PD_UNROLL(tile::quads)
      for (int c = 0; c < tile::quads; c++) {
        out[r][c].x *= shrink, out[r][c].y *= shrink, out[r][c].z *= shrink, out[r][c].w *= shrink;
      }
    }
    __syncthreads(); /* keys are no longer read, p is complete */
    pd_tile_load<tile, tile::cols>(v + from * k_step, k_step, min(tile::cols, z.t - from), keys);
    __syncthreads();
    pd_tile_output<tile>(p, keys, ty, tx, out);
  }
  float inverse[tile::row_tile];
  PD_UNROLL(tile::row_tile)
  for (int r = 0; r < tile::row_tile; r++) {
    const int row = ty + r * tile::ty_count;
    inverse[r] = sum[r] > 0 ? 1.0f / sum[r] : sum[r] != sum[r] ? sum[r] : 0; /* no key: an empty sum; a NaN stays */
    if (tx == 0 && row < rows) lse[row] = top[r] + logf(sum[r]);
  }
  pd_tile_store<tile>(o, q_step, rows, ty, tx, inverse, out);
}

/* sum over e of a[row][e] * b[row][e] of rows in memory, for rows ty + r * ty_count below `count`; every thread of the
 * row gets it */
template <typename tile, typename T>
static __device__ __forceinline__ float pd_row_dot(const T *a, const T *b, int tx) {
  float dot = 0;
  for (int e = tx; e < tile::d; e += tile::tx_count) dot = fmaf(pd_load(a + e), pd_load(b + e), dot);
  PD_UNROLL(5)
  for (int step = tile::tx_count / 2; step > 0; step /= 2) dot += __shfl_xor_sync(PD_ALL_LANES, dot, step);
  return dot;
}

template <typename tile> constexpr int pd_sdpa_grad_floats() {
  return 2 * (tile::rows + tile::cols) * tile::stride + tile::rows * tile::score_stride + 2 * tile::cols;
}

/* dq of a tile of queries: sum over keys of ds * k, ds = p * (do . v - do . o) */
template <typename T, int d>
__global__ void __launch_bounds__((pd_tile_for<d, false>::type::threads), 1)
    pd_sdpa_grad_q_kernel(pd_attention_sizes z, const T *__restrict__ q, const T *__restrict__ k,
                          const T *__restrict__ v, const T *__restrict__ o, const float *__restrict__ lse,
                          const T *__restrict__ d_o, T *__restrict__ dq) {
  typedef typename pd_tile_for<d, false>::type tile;
  PD_SHARED(float, shared);
  float *const queries = shared, *const gradients = queries + tile::rows * tile::stride;
  float *const keys = gradients + tile::rows * tile::stride, *const values = keys + tile::cols * tile::stride;
  float *const ds = values + tile::cols * tile::stride;
  const int tx = (int)threadIdx.x % tile::tx_count, ty = (int)threadIdx.x / tile::tx_count;
  const int first = (int)(gridDim.x - 1 - blockIdx.x) * tile::rows;
  const int head = (int)blockIdx.y, group = head / (z.h / z.g), rows = min(tile::rows, z.s - first);
  const int64_t sample = blockIdx.z, q_step = (int64_t)z.h * d, k_step = (int64_t)z.g * d;
  const int64_t at = ((sample * z.s + first) * z.h + head) * d;
  k += (sample * z.t * z.g + group) * d;
  v += (sample * z.t * z.g + group) * d;
  lse += (sample * z.h + head) * z.s + first;

  float total[tile::row_tile], delta[tile::row_tile], scale[tile::row_tile];
  float4 out[tile::row_tile][tile::quads];
  PD_UNROLL(tile::row_tile)
  for (int r = 0; r < tile::row_tile; r++) {
    const int row = min(ty + r * tile::ty_count, rows - 1); /* all threads of a warp take part */
    total[r] = lse[row], scale[r] = z.scale;
    delta[r] = pd_row_dot<tile>(d_o + at + row * q_step, o + at + row * q_step, tx);
    PD_UNROLL(tile::quads)
    for (int c = 0; c < tile::quads; c++) out[r][c] = make_float4(0, 0, 0, 0);
  }
  pd_tile_load<tile, tile::rows>(q + at, q_step, rows, queries);
  pd_tile_load<tile, tile::rows>(d_o + at, q_step, rows, gradients);
  const int end = min(z.t, pd_visible(z, first + rows - 1));
  for (int from = 0; from < end; from += tile::cols) {
    const int count = min(tile::cols, z.t - from);
    __syncthreads(); /* the last tile is no longer read */
    pd_tile_load<tile, tile::cols>(k + from * k_step, k_step, count, keys);
    pd_tile_load<tile, tile::cols>(v + from * k_step, k_step, count, values);
    __syncthreads();
    float score[tile::row_tile][tile::col_tile], dp[tile::row_tile][tile::col_tile];
    pd_tile_scores<tile>(queries, keys, ty, tx, score);
    pd_tile_scores<tile>(gradients, values, ty, tx, dp);
    PD_UNROLL(tile::row_tile)
    for (int r = 0; r < tile::row_tile; r++) {
      const int visible = min(z.t, pd_visible(z, first + ty + r * tile::ty_count)) - from;
      PD_UNROLL(tile::col_tile)
      for (int c = 0; c < tile::col_tile; c++) {
        const int column = tx + c * tile::tx_count;
        const float probability = column < visible ? expf(fmaf(score[r][c], z.scale, -total[r])) : 0;
        ds[(ty + r * tile::ty_count) * tile::score_stride + column] = probability * (dp[r][c] - delta[r]);
      }
    }
    __syncthreads();
    pd_tile_output<tile>(ds, keys, ty, tx, out);
  }
  pd_tile_store<tile>(dq + at, q_step, rows, ty, tx, scale, out);
}

/* dk and dv of a tile of keys: sums over the heads of its group and their queries, in that order. Scores are
 * transposed: a row is a key, a column a query. */
template <typename T, int d>
__global__ void __launch_bounds__((pd_tile_for<d, false>::type::threads), 1)
    pd_sdpa_grad_k_kernel(pd_attention_sizes z, const T *__restrict__ q, const T *__restrict__ k,
                          const T *__restrict__ v, const T *__restrict__ o, const float *__restrict__ lse,
                          const T *__restrict__ d_o, T *__restrict__ dk, T *__restrict__ dv) {
  typedef typename pd_tile_for<d, false>::type tile;
  PD_SHARED(float, shared);
  float *const keys = shared, *const values = keys + tile::rows * tile::stride;
  float *const queries = values + tile::rows * tile::stride, *const gradients = queries + tile::cols * tile::stride;
  float *const p = gradients + tile::cols * tile::stride; /* then ds */
  float *const total = p + tile::rows * tile::score_stride, *const delta = total + tile::cols;
  const int tx = (int)threadIdx.x % tile::tx_count, ty = (int)threadIdx.x / tile::tx_count;
  const int first = (int)blockIdx.x * tile::rows, group = (int)blockIdx.y, heads = z.h / z.g;
  const int rows = min(tile::rows, z.t - first);
  const int64_t sample = blockIdx.z, q_step = (int64_t)z.h * d, k_step = (int64_t)z.g * d;
  const int64_t at = ((sample * z.t + first) * z.g + group) * d;
  const int seen_from = z.causal ? max(0, first + z.s - z.t) : 0; /* the first query that sees the tile's first key */

  float one[tile::row_tile], scale[tile::row_tile];
  float4 out_k[tile::row_tile][tile::quads], out_v[tile::row_tile][tile::quads];
  PD_UNROLL(tile::row_tile)
  for (int r = 0; r < tile::row_tile; r++) {
    one[r] = 1, scale[r] = z.scale;
    PD_UNROLL(tile::quads)
    for (int c = 0; c < tile::quads; c++) out_k[r][c] = out_v[r][c] = make_float4(0, 0, 0, 0);
  }
  pd_tile_load<tile, tile::rows>(k + at, k_step, rows, keys);
  pd_tile_load<tile, tile::rows>(v + at, k_step, rows, values);
  for (int member = 0; member < heads; member++) {
    const int head = group * heads + member;
    const int64_t head_at = (sample * z.s * z.h + head) * d;
    const float *const head_lse = lse + (sample * z.h + head) * z.s;
    for (int from = seen_from / tile::cols * tile::cols; from < z.s; from += tile::cols) {
      const int64_t here = head_at + from * q_step;
      const int count = min(tile::cols, z.s - from);
      __syncthreads(); /* the last tile is no longer read */
      pd_tile_load<tile, tile::cols>(q + here, q_step, count, queries);
      pd_tile_load<tile, tile::cols>(d_o + here, q_step, count, gradients);
      for (int c = ty; c < tile::cols; c += tile::ty_count) { /* a query's dot product by the threads of a row */
        const int64_t row = here + min(c, count - 1) * q_step;
        const float dot = pd_row_dot<tile>(d_o + row, o + row, tx);
        if (tx == 0) delta[c] = dot, total[c] = head_lse[from + min(c, count - 1)];
      }
      __syncthreads();
      float score[tile::row_tile][tile::col_tile], dp[tile::row_tile][tile::col_tile];
      pd_tile_scores<tile>(keys, queries, ty, tx, score);
      PD_UNROLL(tile::col_tile)
      for (int c = 0; c < tile::col_tile; c++) {
        const int column = tx + c * tile::tx_count;
        const int visible = column < count ? pd_visible(z, from + column) - first : 0;
        PD_UNROLL(tile::row_tile)
        for (int r = 0; r < tile::row_tile; r++) {
          const int row = ty + r * tile::ty_count;
          score[r][c] = row < visible ? expf(fmaf(score[r][c], z.scale, -total[column])) : 0;
          p[row * tile::score_stride + column] = score[r][c];
        }
      }
      pd_tile_scores<tile>(values, gradients, ty, tx, dp);
      __syncthreads();
      pd_tile_output<tile>(p, gradients, ty, tx, out_v);
      __syncthreads();
      PD_UNROLL(tile::row_tile)
      for (int r = 0; r < tile::row_tile; r++) {
        PD_UNROLL(tile::col_tile)
        for (int c = 0; c < tile::col_tile; c++) {
          const int column = tx + c * tile::tx_count;
          p[(ty + r * tile::ty_count) * tile::score_stride + column] = score[r][c] * (dp[r][c] - delta[column]);
        }
      }
      __syncthreads();
      pd_tile_output<tile>(p, queries, ty, tx, out_k);
    }
  }
  pd_tile_store<tile>(dk + at, k_step, rows, ty, tx, scale, out_k);
  pd_tile_store<tile>(dv + at, k_step, rows, ty, tx, one, out_v);
}

static inline pd_attention_sizes pd_attention_sizes_of(int64_t s, int64_t t, int64_t h, int64_t g, bool causal, int d) {
  const pd_attention_sizes z = {(int)s, (int)t, (int)h, (int)g, causal, (float)(1 / sqrt((double)d))};
  return z;
}

/* q, o: [b,s,h,d]; k, v: [b,t,g,d] with h a multiple of g; query head i uses key head i / (h/g). causal: query i sees
 * keys 0..i (+ t - s). lse[b,h,s]: log-sum-exp of the scaled scores. d <= 512; h, g and b < 65,536. */
template <typename T, int d>
static inline void pd_sdpa(cudaStream_t stream, int64_t b, int64_t s, int64_t t, int64_t h, int64_t g, bool causal,
                           const T *q, const T *k, const T *v, T *o, float *lse) {
  typedef typename pd_tile_for<d, true>::type tile;
  constexpr size_t bytes = pd_sdpa_floats<tile>() * sizeof(float);
  static_assert(bytes <= 99 * 1024, "shared memory of a block");
  if (b * s * h == 0) return;
  const dim3 grid = dim3((unsigned)((s + tile::rows - 1) / tile::rows), (unsigned)h, (unsigned)b);
  PD_ALLOW_SHARED((pd_sdpa_kernel<T, d>), bytes);
  PD_LAUNCH((pd_sdpa_kernel<T, d>), grid, dim3(tile::threads), bytes, stream,
            pd_attention_sizes_of(s, t, h, g, causal, d), q, k, v, o, lse);
}

/* Overwrites dq, dk, dv. */
template <typename T, int d>
static inline void pd_sdpa_grad(cudaStream_t stream, int64_t b, int64_t s, int64_t t, int64_t h, int64_t g, bool causal,
                                const T *q, const T *k, const T *v, const T *o, const float *lse, const T *d_o, T *dq,
                                T *dk, T *dv) {
  typedef typename pd_tile_for<d, false>::type tile;
  constexpr size_t bytes = pd_sdpa_grad_floats<tile>() * sizeof(float);
  static_assert(bytes <= 99 * 1024, "shared memory of a block");
  const pd_attention_sizes z = pd_attention_sizes_of(s, t, h, g, causal, d);
  const dim3 block = dim3(tile::threads);
  if (b * s * h > 0) {
    const dim3 grid = dim3((unsigned)((s + tile::rows - 1) / tile::rows), (unsigned)h, (unsigned)b);
    PD_ALLOW_SHARED((pd_sdpa_grad_q_kernel<T, d>), bytes);
    PD_LAUNCH((pd_sdpa_grad_q_kernel<T, d>), grid, block, bytes, stream, z, q, k, v, o, lse, d_o, dq);
  }
  if (b * t * g > 0) {
    const dim3 grid = dim3((unsigned)((t + tile::rows - 1) / tile::rows), (unsigned)g, (unsigned)b);
    PD_ALLOW_SHARED((pd_sdpa_grad_k_kernel<T, d>), bytes);
    PD_LAUNCH((pd_sdpa_grad_k_kernel<T, d>), grid, block, bytes, stream, z, q, k, v, o, lse, d_o, dk, dv);
  }
}

/* ---- rotary positions ---- */

#define PD_ROPE_BLOCK 128

/* A thread has one position and pair of lanes, and goes over the heads of a sample: the angle is computed once, in
 * double, since positions reach where a float has no digits left for it. */
template <typename T, int d>
__global__ void __launch_bounds__(PD_ROPE_BLOCK)
    pd_rope_kernel(int64_t s, int64_t h, double exponent, float sign, const T *__restrict__ x, T *__restrict__ y) {
  constexpr int half = d / 2, pairs = (d + 1) / 2; /* the last one may be a lane without a partner */
  const int64_t item = pd_thread(), position = item / pairs;
  const int j = (int)(item % pairs);
  if (position >= s) return;
  const double turns = (double)position * exp2(j * exponent) * 0.15915494309189533577;
  double cosine, sine;
  pd_turn_f64(turns - floor(turns), &cosine, &sine);
  const float c = (float)cosine, sn = sign * (float)sine;
  const int64_t first = ((int64_t)blockIdx.y * s + position) * h * d;
  for (int64_t head = 0; head < h; head++) {
    const T *from = x + first + head * d;
    T *to = y + first + head * d;
    if (d % 2 != 0 && j == half) {
      to[d - 1] = from[d - 1];
      continue;
    }
    const float one = pd_load(from + j), two = pd_load(from + j + half);
    pd_store(to + j, one * c - two * sn);
    pd_store(to + j + half, two * c + one * sn);
  }
}

/* rotate-half rotary positions on x[b,s,h,d]: lane j pairs with j + d/2, angle pos * theta^(-2j/d); sign +1 forward, -1
 * for the gradient; b < 65,536 */
template <typename T, int d>
static inline void pd_rope(cudaStream_t stream, int64_t b, int64_t s, int64_t h, double theta, int sign, const T *x,
                           T *y) {
  if (b * s * h == 0) return;
  dim3 grid = pd_blocks(s * ((d + 1) / 2), PD_ROPE_BLOCK);
  grid.y = (unsigned)b;
  PD_LAUNCH((pd_rope_kernel<T, d>), grid, dim3(PD_ROPE_BLOCK), 0, stream, s, h, -2.0 / d * log2(theta), (float)sign, x,
            y);
}

#endif
