/* Windows over images as kernels take them: pd_image_window (kernels/kernels.h) in 32 bits, with division by a constant
 * in place of division. One image of one channel has fewer than 2^31 elements. */
#ifndef PD_IMAGE_CUH
#define PD_IMAGE_CUH

#include "pd_device.cuh"
#include "pd_view.cuh"

#define PD_IMAGE_BLOCK 256

typedef struct pd_window {
  int h, w, kh, kw, stride, pad, oh, ow;
  int area, places; /* h * w, oh * ow */
  pd_divider by_w, by_ow, by_places, by_stride;
} pd_window;

static inline pd_window pd_window_of(const pd_image_window *v) {
  pd_window window;
  window.h = (int)v->h, window.w = (int)v->w, window.area = (int)(v->h * v->w);
  window.kh = (int)v->kh, window.kw = (int)v->kw, window.stride = (int)v->stride, window.pad = (int)v->pad;
  window.oh = (int)v->oh, window.ow = (int)v->ow, window.places = (int)(v->oh * v->ow);
  window.by_w = pd_divider_of(v->w), window.by_ow = pd_divider_of(v->ow);
  window.by_places = pd_divider_of(v->oh * v->ow), window.by_stride = pd_divider_of(v->stride);
  return window;
}

/* A quotient of non-negative numbers and what is left */
static __device__ __forceinline__ int pd_split(pd_divider d, int x, int *rest) {
  const int quotient = (int)pd_divide(d, (uint32_t)x);
  *rest = x - quotient * (int)d.divisor;
  return quotient;
}

/* The places first .. last along one axis (of `count`) whose windows of k positions cover position `at` of the image;
 * first > last: there are none. */
static __device__ __forceinline__ void pd_covering(const pd_window &v, int at, int k, int count, int *first,
                                                   int *last) {
  const int above = at + v.pad - k; /* a place there would end just before `at` */
  *first = above < 0 ? 0 : (int)pd_divide(v.by_stride, (uint32_t)above) + 1;
  *last = (int)pd_divide(v.by_stride, (uint32_t)(at + v.pad));
  if (*last >= count) *last = count - 1;
}

/* The element `at` of an image, and the places whose windows cover it. */
typedef struct pd_cover {
  int iy, ix, top, bottom, left, right;
} pd_cover;

static __device__ __forceinline__ pd_cover pd_cover_of(const pd_window &v, int at) {
  pd_cover cover;
  cover.iy = pd_split(v.by_w, at, &cover.ix);
  pd_covering(v, cover.iy, v.kh, v.oh, &cover.top, &cover.bottom);
  pd_covering(v, cover.ix, v.kw, v.ow, &cover.left, &cover.right);
  return cover;
}

/* Grids of one thread an element of an image or its places: x goes over one image and channel, y over all of those,
 * in turns where there are more than a grid may have. */
static inline dim3 pd_image_grid(int64_t elements, int64_t images) {
  dim3 grid = pd_blocks(elements, PD_IMAGE_BLOCK);
  grid.y = (unsigned)(images < 65535 ? images : 65535);
  return grid;
}

#endif
