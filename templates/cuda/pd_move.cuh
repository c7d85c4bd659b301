/* Moving elements: fill, add, scale, cast, and the strided copy (transpose, slice, concatenation, broadcast). */
#ifndef PD_MOVE_CUH
#define PD_MOVE_CUH

#include "pd_device.cuh"
#include "pd_view.cuh"

#define PD_FLAT_BLOCK 256

/* One pack a thread; the last thread with elements takes what is left over one by one. */
template <typename T> __global__ void __launch_bounds__(PD_FLAT_BLOCK) pd_fill_kernel(int64_t n, float value, T *out) {
  constexpr int lanes = 16 / sizeof(T);
  const int64_t first = pd_thread() * lanes;
  float v[lanes];
  PD_UNROLL(lanes)
  for (int k = 0; k < lanes; k++) v[k] = value;
  if (first + lanes <= n)
    pd_store_pack(out + first, v);
  else {
    for (int64_t i = first; i < n; i++) pd_store(out + i, value);
  }
}

/* out = value */
template <typename T> static inline void pd_fill(cudaStream_t stream, int64_t n, float value, T *out) {
  if (n == 0) return;
  PD_LAUNCH(pd_fill_kernel<T>, pd_blocks(n, PD_FLAT_BLOCK * (16 / (int)sizeof(T))), dim3(PD_FLAT_BLOCK), 0, stream, n,
            value, out);
}

/* out = factor * a, plus what out held if `accumulate`. A may be out itself. */
template <bool accumulate, typename A, typename O>
__global__ void __launch_bounds__(PD_FLAT_BLOCK) pd_scale_kernel(int64_t n, float factor, const A *a, O *out) {
  constexpr int lanes = 16 / (sizeof(A) > sizeof(O) ? sizeof(A) : sizeof(O));
  const int64_t first = pd_thread() * lanes;
  if (first + lanes <= n) {
    float v[lanes], old[lanes];
    pd_load_pack(a + first, v);
    if (accumulate) pd_load_pack(out + first, old);
    PD_UNROLL(lanes)
    for (int k = 0; k < lanes; k++) v[k] = accumulate ? fmaf(factor, v[k], old[k]) : factor * v[k];
    pd_store_pack(out + first, v);
  } else {
    for (int64_t i = first; i < n; i++) {
      const float v = pd_load(a + i);
      pd_store(out + i, accumulate ? fmaf(factor, v, pd_load(out + i)) : factor * v);
    }
  }
}

template <bool accumulate, typename A, typename O>
static inline void pd_scale_or_add(cudaStream_t stream, int64_t n, float factor, const A *a, O *out) {
  constexpr int lanes = 16 / (sizeof(A) > sizeof(O) ? sizeof(A) : sizeof(O));
  if (n == 0) return;
  PD_LAUNCH((pd_scale_kernel<accumulate, A, O>), pd_blocks(n, PD_FLAT_BLOCK * lanes), dim3(PD_FLAT_BLOCK), 0, stream, n,
            factor, a, out);
}

/* out += a */
template <typename A, typename O> static inline void pd_add(cudaStream_t stream, int64_t n, const A *a, O *out) {
  pd_scale_or_add<true>(stream, n, 1, a, out);
}

/* out = factor * a; out may be a */
template <typename A, typename O>
static inline void pd_scale(cudaStream_t stream, int64_t n, float factor, const A *a, O *out) {
  pd_scale_or_add<false>(stream, n, factor, a, out);
}

/* copy = w, rounded to the element type */
template <typename T> static inline void pd_cast(cudaStream_t stream, int64_t n, const float *w, T *copy) {
  pd_scale_or_add<false>(stream, n, 1, w, copy);
}

/* One pack of `lanes` elements of the last axis a thread; `walk` counts packs along that axis. */
template <typename T, int lanes, bool wide>
__global__ void __launch_bounds__(PD_FLAT_BLOCK) pd_copy_kernel(pd_walk walk, const T *a, bool accumulate, T *out) {
  const int64_t item = pd_thread();
  if (item >= walk.items) return;
  const pd_place at = pd_place_of<wide>(walk, item);
  float v[lanes];
  pd_load_pack(a + at.a, v);
  if (accumulate) {
    float old[lanes];
    pd_load_pack(out + at.out, old);
    PD_UNROLL(lanes)
    for (int k = 0; k < lanes; k++) v[k] += old[k];
  }
  pd_store_pack(out + at.out, v);
}

template <typename T, int lanes>
static inline void pd_copy_packs(cudaStream_t stream, const pd_walk &walk, const T *a, bool accumulate, T *out) {
  const dim3 grid = pd_blocks(walk.items, PD_FLAT_BLOCK);
  if (pd_walk_is_wide(walk)) {
    PD_LAUNCH((pd_copy_kernel<T, lanes, true>), grid, dim3(PD_FLAT_BLOCK), 0, stream, walk, a, accumulate, out);
  } else {
    PD_LAUNCH((pd_copy_kernel<T, lanes, false>), grid, dim3(PD_FLAT_BLOCK), 0, stream, walk, a, accumulate, out);
  }
}

/* out[..] (+)= a[..] over a view without summed axes. a and out are aligned to 16 bytes as far as the sizes of the
 * view's last axis and its strides divide. */
template <typename T>
static inline void pd_copy(cudaStream_t stream, const pd_view *view, const T *a, bool accumulate, T *out) {
  constexpr int most = 16 / (int)sizeof(T);
  pd_walk walk = pd_walk_of(view, false);
  if (walk.items == 0) return;
  const bool aligned = ((uintptr_t)a | (uintptr_t)out) % 16 == 0;
  if (aligned && pd_walk_pack(&walk, most))
    pd_copy_packs<T, most>(stream, walk, a, accumulate, out);
  else
    pd_copy_packs<T, 1>(stream, walk, a, accumulate, out);
}

#endif
