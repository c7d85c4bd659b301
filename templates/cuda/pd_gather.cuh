/* Rows of a table by number, and the gradient that adds rows back, without atomics: every row's terms in their order.
 */
#ifndef PD_GATHER_CUH
#define PD_GATHER_CUH

#include "pd_device.cuh"

#define PD_GATHER_BLOCK 256

template <typename T, int width>
__global__ void __launch_bounds__(PD_GATHER_BLOCK)
    pd_gather_kernel(int64_t count, int64_t first, int64_t rows, const int32_t *__restrict__ ids,
                     const T *__restrict__ table, T *__restrict__ out) {
  constexpr int lanes = pd_lanes<T>(width), packs = width / lanes;
  const int64_t item = pd_thread(), i = item / packs;
  const int pack = (int)(item % packs);
  if (i >= count) return;
  const int64_t row = ids[i] - first;
  float v[lanes] = {};
  if (row >= 0 && row < rows) pd_load_pack(table + row * width + pack * lanes, v);
  pd_store_pack(out + i * width + pack * lanes, v);
}

/* out[i,:] = table[ids[i] - first,:] where first <= ids[i] < first + rows, else zeros (another rank's row) */
template <typename T, int width>
static inline void pd_gather(cudaStream_t stream, int64_t count, int64_t first, int64_t rows, const int32_t *ids,
                             const T *table, T *out) {
  constexpr int packs = width / pd_lanes<T>(width);
  if (count == 0) return;
  PD_LAUNCH((pd_gather_kernel<T, width>), pd_blocks(count * packs, PD_GATHER_BLOCK), dim3(PD_GATHER_BLOCK), 0, stream,
            count, first, rows, ids, table, out);
}

/* A block for every i. The block whose i is the first with its id adds all rows with that id, in order; the others
 * find an earlier one and leave. So each row has one writer, whose sum does not depend on timing, and no memory is
 * needed; reading the ids costs at most count^2 * 4 bytes from the cache, a millisecond for 65,536 different ids. */
template <typename A, typename O, int width>
__global__ void __launch_bounds__(PD_GATHER_BLOCK)
    pd_gather_grad_kernel(int64_t count, int64_t first, int64_t rows, const int32_t *__restrict__ ids,
                          const A *__restrict__ dout, O *__restrict__ dtable) {
  constexpr int warps = PD_GATHER_BLOCK / PD_WARP;
  constexpr int lanes = pd_lanes<A>(width) < pd_lanes<O>(width) ? pd_lanes<A>(width) : pd_lanes<O>(width);
  constexpr int packs = width / lanes, steps = (packs + PD_GATHER_BLOCK - 1) / PD_GATHER_BLOCK;
  __shared__ uint32_t found[warps];
  const int64_t i = blockIdx.x;
  const int32_t id = ids[i];
  const int64_t row = id - first;
  if (row < 0 || row >= rows) return; /* the whole block */
  const int thread = (int)threadIdx.x;
  for (int64_t from = 0; from < i; from += PD_GATHER_BLOCK) {
    if (__syncthreads_or(from + thread < i && ids[from + thread] == id)) return;
  }
  O *to = dtable + row * width;
  for (int step = 0; step < steps; step += 4) { /* up to four packs a thread at a time */
    float sum[4][lanes];
    PD_UNROLL(4)
    for (int s = 0; s < 4; s++) {
      const int pack = (step + s) * PD_GATHER_BLOCK + thread;
      if (pack < packs) pd_load_pack(to + pack * lanes, sum[s]);
    }
    for (int64_t from = i; from < count; from += PD_GATHER_BLOCK) {
      const bool same = from + thread < count && ids[from + thread] == id;
      const uint32_t vote = __ballot_sync(PD_ALL_LANES, same);
      if (!__syncthreads_or(same)) continue;
      if (thread % PD_WARP == 0) found[thread / PD_WARP] = vote;
      __syncthreads();
      PD_UNROLL(1)
      for (int warp = 0; warp < warps; warp++) {
        for (uint32_t left = found[warp]; left != 0; left &= left - 1) {
          const int64_t j = from + warp * PD_WARP + (__ffs((int)left) - 1);
          PD_UNROLL(4)
          for (int s = 0; s < 4; s++) {
            const int pack = (step + s) * PD_GATHER_BLOCK + thread;
            if (pack >= packs) continue;
            float term[lanes];
            pd_load_pack(dout + j * width + pack * lanes, term);
            PD_UNROLL(lanes)
            for (int k = 0; k < lanes; k++) sum[s][k] += term[k];
          }
        }
      }
      __syncthreads(); /* before found is written again */
    }
    PD_UNROLL(4)
    for (int s = 0; s < 4; s++) {
      const int pack = (step + s) * PD_GATHER_BLOCK + thread;
      if (pack < packs) pd_store_pack(to + pack * lanes, sum[s]);
    }
  }
}

/* dtable[ids[i] - first,:] += dout[i,:], in the order of i for every row */
template <typename A, typename O, int width>
static inline void pd_gather_grad(cudaStream_t stream, int64_t count, int64_t first, int64_t rows, const int32_t *ids,
                                  const A *dout, O *dtable) {
  if (count == 0) return;
  PD_LAUNCH((pd_gather_grad_kernel<A, O, width>), dim3((unsigned)count), dim3(PD_GATHER_BLOCK), 0, stream, count, first,
            rows, ids, dout, dtable);
}

#endif
