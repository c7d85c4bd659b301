/* Dropout with the masks of the host target: a function of key, step, sample and position (kernels/draw.h). */
#ifndef PD_DROPOUT_CUH
#define PD_DROPOUT_CUH

#include "pd_device.cuh"
#include "pd_math.cuh"
#include "pd_view.cuh"

#define PD_DROPOUT_BLOCK 256

/* Element i of a sample has global position sum of (first + index) * stride over the axes of `place`, whose `out` are
 * the global strides; `base` is the part that does not depend on i. */
typedef struct pd_dropout_sizes {
  pd_walk place;
  int64_t base, samples, sample0, items; /* items: threads a sample */
  pd_divider by_items;
  uint64_t limit;
  float scale;
} pd_dropout_sizes;

/* A thread has `lanes` elements: 4 that share a block of random words, or 1. */
template <typename T, int lanes, bool wide>
__global__ void __launch_bounds__(PD_DROPOUT_BLOCK)
    pd_dropout_kernel(pd_dropout_sizes z, pd_key key, const uint64_t *step, const T *__restrict__ x,
                      T *__restrict__ y) {
  const int64_t thread = pd_thread();
  const int64_t sample = wide ? thread / z.items : (int64_t)pd_divide(z.by_items, (uint32_t)thread);
  const int64_t item = thread - sample * z.items;
  if (sample >= z.samples) return;
  const uint64_t position = (uint64_t)(z.base + pd_place_of<wide>(z.place, item).out);
  uint32_t word[4];
  pd_philox_block(pd_dropout_key(key, *step), position / 4, (uint64_t)(z.sample0 + sample), word);
  const int64_t at = thread * lanes;
  float v[lanes];
  pd_load_pack(x + at, v);
  if (lanes == 4) {
    PD_UNROLL(lanes)
    for (int k = 0; k < lanes; k++) v[k] = word[k % 4] >= z.limit ? v[k] * z.scale : 0;
  } else {
    const unsigned which = position % 4;
    const uint32_t mine = which == 0 ? word[0] : which == 1 ? word[1] : which == 2 ? word[2] : word[3];
    v[0] = mine >= z.limit ? v[0] * z.scale : 0;
  }
  pd_store_pack(y + at, v);
}

template <typename T, int lanes>
static inline void pd_dropout_launch(cudaStream_t stream, pd_dropout_sizes z, pd_key key, const uint64_t *step,
                                     const T *x, T *y) {
  const dim3 grid = pd_blocks(z.samples * z.items, PD_DROPOUT_BLOCK), block = dim3(PD_DROPOUT_BLOCK);
  if (z.samples * z.items + PD_DROPOUT_BLOCK > INT32_MAX) {
    PD_LAUNCH((pd_dropout_kernel<T, lanes, true>), grid, block, 0, stream, z, key, step, x, y);
  } else {
    z.by_items = pd_divider_of(z.items);
    PD_LAUNCH((pd_dropout_kernel<T, lanes, false>), grid, block, 0, stream, z, key, step, x, y);
  }
}

/* y = x * keep(i) / (1 - p); x is [samples, n], sample r has number sample0 + r. *step lies on the device. */
template <typename T>
static inline void pd_dropout(cudaStream_t stream, pd_key key, const uint64_t *step, int64_t sample0, int64_t samples,
                              int64_t n, const pd_local *at, double p, const T *x, T *y) {
  if (samples * n == 0) return;
  pd_view view = {};
  int64_t base = 0, stride = 1;
  if (at == NULL || at->rank <= 0) {
    view.rank = 1, view.size[0] = n, view.out[0] = 1, view.a[0] = 1;
  } else {
    view.rank = at->rank;
    int64_t local = 1;
    for (int axis = at->rank - 1; axis >= 0; axis--) {
      view.size[axis] = at->size[axis], view.out[axis] = stride, view.a[axis] = local;
      base += at->first[axis] * stride;
      stride *= at->global[axis];
      local *= at->size[axis];
    }
  }
  pd_dropout_sizes z = {};
  z.place = pd_walk_of(&view, false);
  /* four neighbours have four neighbouring positions, the first a multiple of 4 */
  const bool quads = n % 4 == 0 && base % 4 == 0 && pd_walk_pack(&z.place, 4);
  z.base = base, z.samples = samples, z.sample0 = sample0, z.items = quads ? n / 4 : n;
  z.limit = pd_dropout_limit(p), z.scale = p < 1 ? (float)(1 / (1 - p)) : 0.0f;
  if (quads)
    pd_dropout_launch<T, 4>(stream, z, key, step, x, y);
  else
    pd_dropout_launch<T, 1>(stream, z, key, step, x, y);
}

#endif
