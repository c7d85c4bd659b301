/* The general contraction: sums of products over any axes of strided operands. What is a matrix product goes to the
 * library instead; this is for what is not (reductions over inner axes, diagonals, scalars). */
#ifndef PD_CONTRACT_CUH
#define PD_CONTRACT_CUH

#include "pd_device.cuh"
#include "pd_view.cuh"

#define PD_CONTRACT_BLOCK 256

/* The terms `first`, first + step, ... of one result. */
template <bool wide, bool product, typename A, typename B>
static __device__ __forceinline__ float pd_contract_terms(const pd_walk &summed, int64_t first, int64_t step,
                                                          const A *a, const B *b) {
  float sum = 0;
  for (int64_t term = first; term < summed.items; term += step) {
    const pd_place at = pd_place_of<wide>(summed, term);
    const float x = pd_load(a + at.a);
    sum = product ? fmaf(x, pd_load(b + at.b), sum) : sum + x;
  }
  return sum;
}

/* `threads` threads a result: 1, or a whole block that adds its threads' sums in a fixed tree. */
template <int threads, bool wide, bool product, typename A, typename B, typename O>
__global__ void __launch_bounds__(PD_CONTRACT_BLOCK)
    pd_contract_kernel(pd_walk kept, pd_walk summed, const A *__restrict__ a, const B *__restrict__ b, float scale,
                       bool accumulate, O *__restrict__ out) {
  const int64_t item = threads == 1 ? pd_thread() : (int64_t)blockIdx.x;
  if (item >= kept.items) return;
  const pd_place at = pd_place_of<wide>(kept, item);
  float sum = pd_contract_terms<wide, product>(summed, threads == 1 ? 0 : (int64_t)threadIdx.x, threads, a + at.a,
                                               product ? b + at.b : b);
  if constexpr (threads > 1) {
    sum = pd_group_sum<threads>(sum);
    if (threadIdx.x != 0) return;
  }
  pd_store(out + at.out, accumulate ? fmaf(scale, sum, pd_load(out + at.out)) : scale * sum);
}

template <int threads, bool wide, typename A, typename B, typename O>
static inline void pd_contract_launch(cudaStream_t stream, const pd_walk &kept, const pd_walk &summed, const A *a,
                                      const B *b, float scale, bool accumulate, O *out) {
  const dim3 grid = pd_blocks(kept.items, threads == 1 ? PD_CONTRACT_BLOCK : 1), block = dim3(PD_CONTRACT_BLOCK);
  if (b != NULL) {
    PD_LAUNCH((pd_contract_kernel<threads, wide, true, A, B, O>), grid, block, 0, stream, kept, summed, a, b, scale,
              accumulate, out);
  } else {
    PD_LAUNCH((pd_contract_kernel<threads, wide, false, A, B, O>), grid, block, 0, stream, kept, summed, a, b, scale,
              accumulate, out);
  }
}

/* out[..] (+)= scale * sum over axes with out-stride 0 of a[..] * b[..]; b NULL: plain sum. A thread sums for one
 * result where there are many or the sums are short, else a block does. */
template <typename A, typename B, typename O>
static inline void pd_contract(cudaStream_t stream, const pd_view *view, const A *a, const B *b, float scale,
                               bool accumulate, O *out) {
  const pd_walk kept = pd_walk_of(view, false), summed = pd_walk_of(view, true);
  if (kept.items == 0) return;
  const bool alone = summed.items <= 32 || kept.items >= (1 << 16);
  if (pd_walk_is_wide(kept) || pd_walk_is_wide(summed)) {
    if (alone)
      pd_contract_launch<1, true>(stream, kept, summed, a, b, scale, accumulate, out);
    else
      pd_contract_launch<PD_CONTRACT_BLOCK, true>(stream, kept, summed, a, b, scale, accumulate, out);
  } else {
    if (alone)
      pd_contract_launch<1, false>(stream, kept, summed, a, b, scale, accumulate, out);
    else
      pd_contract_launch<PD_CONTRACT_BLOCK, false>(stream, kept, summed, a, b, scale, accumulate, out);
  }
}

#endif
