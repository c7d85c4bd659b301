/* Pools over windows of images [n, channels, h, w] and their gradients. Every element of a gradient is one thread's,
 * which goes through the windows that cover it. */
#ifndef PD_POOL_CUH
#define PD_POOL_CUH

#include "pd_image.cuh"

/* Of the window at (oy, ox) in the image at x: index of the first of the largest. What lies outside is not looked at;
 * what is no number is above all. */
template <typename T>
static __device__ __forceinline__ int pd_window_largest(const pd_window &v, const T *x, int oy, int ox,
                                                        float *largest) {
  int best = -1;
  *largest = 0;
  PD_UNROLL(1)
  for (int ky = 0; ky < v.kh; ky++) {
    const int iy = oy * v.stride + ky - v.pad;
    if (iy < 0 || iy >= v.h) continue;
    PD_UNROLL(1)
    for (int kx = 0; kx < v.kw; kx++) {
      const int ix = ox * v.stride + kx - v.pad;
      if (ix < 0 || ix >= v.w) continue;
      const float value = pd_load(x + iy * v.w + ix);
      if (best < 0 || value > *largest || (value != value && *largest == *largest)) {
        best = iy * v.w + ix;
        *largest = value;
      }
    }
  }
  return best;
}

template <typename T, typename O>
__global__ void __launch_bounds__(PD_IMAGE_BLOCK)
    pd_maxpool_kernel(pd_window v, int64_t images, const T *__restrict__ x, O *__restrict__ y) {
  const int place = (int)pd_thread();
  if (place >= v.places) return;
  int ox;
  const int oy = pd_split(v.by_ow, place, &ox);
  for (int64_t image = blockIdx.y; image < images; image += gridDim.y) {
    float largest;
    pd_window_largest(v, x + image * v.area, oy, ox, &largest);
    pd_store(y + image * v.places + place, largest);
  }
}

template <typename T, typename O>
__global__ void __launch_bounds__(PD_IMAGE_BLOCK)
    pd_maxpool_grad_kernel(pd_window v, int64_t images, const T *__restrict__ x, const O *__restrict__ dy,
                           T *__restrict__ dx) {
  const int at = (int)pd_thread();
  if (at >= v.area) return;
  const pd_cover over = pd_cover_of(v, at);
  for (int64_t image = blockIdx.y; image < images; image += gridDim.y) {
    float sum = 0;
    for (int oy = over.top; oy <= over.bottom; oy++) {
      for (int ox = over.left; ox <= over.right; ox++) {
        float largest;
        if (pd_window_largest(v, x + image * v.area, oy, ox, &largest) != at) continue;
        sum += pd_load(dy + image * v.places + oy * v.ow + ox);
      }
    }
    pd_store(dx + image * v.area + at, sum);
  }
}

template <typename T, typename O>
__global__ void __launch_bounds__(PD_IMAGE_BLOCK)
    pd_avgpool_kernel(pd_window v, int64_t images, const T *__restrict__ x, O *__restrict__ y) {
  const int place = (int)pd_thread();
  if (place >= v.places) return;
  const float share = 1.0f / (float)(v.kh * v.kw);
  int ox;
  const int oy = pd_split(v.by_ow, place, &ox);
  for (int64_t image = blockIdx.y; image < images; image += gridDim.y) {
    const T *from = x + image * v.area + oy * v.stride * v.w + ox * v.stride;
    float sum = 0;
    for (int ky = 0; ky < v.kh; ky++) {
      for (int kx = 0; kx < v.kw; kx++) sum += pd_load(from + ky * v.w + kx);
    }
    pd_store(y + image * v.places + place, sum * share);
  }
}

template <typename O, typename T>
__global__ void __launch_bounds__(PD_IMAGE_BLOCK)
    pd_avgpool_grad_kernel(pd_window v, int64_t images, const O *__restrict__ dy, T *__restrict__ dx) {
  const int at = (int)pd_thread();
  if (at >= v.area) return;
  const float share = 1.0f / (float)(v.kh * v.kw);
  const pd_cover over = pd_cover_of(v, at);
  for (int64_t image = blockIdx.y; image < images; image += gridDim.y) {
    float sum = 0;
    for (int oy = over.top; oy <= over.bottom; oy++) {
      for (int ox = over.left; ox <= over.right; ox++) sum += pd_load(dy + image * v.places + oy * v.ow + ox);
    }
    pd_store(dx + image * v.area + at, sum * share);
  }
}

/* the largest of each window */
template <typename T, typename O>
static inline void pd_maxpool(cudaStream_t stream, const pd_image_window *v, const T *x, O *y) {
  const int64_t images = v->n * v->channels;
  if (images * v->oh * v->ow == 0) return;
  PD_LAUNCH((pd_maxpool_kernel<T, O>), pd_image_grid(v->oh * v->ow, images), dim3(PD_IMAGE_BLOCK), 0, stream,
            pd_window_of(v), images, x, y);
}

/* each place's gradient goes to the first of the largest of its window */
template <typename T, typename O>
static inline void pd_maxpool_grad(cudaStream_t stream, const pd_image_window *v, const T *x, const O *dy, T *dx) {
  const int64_t images = v->n * v->channels;
  if (images * v->h * v->w == 0) return;
  PD_LAUNCH((pd_maxpool_grad_kernel<T, O>), pd_image_grid(v->h * v->w, images), dim3(PD_IMAGE_BLOCK), 0, stream,
            pd_window_of(v), images, x, dy, dx);
}

/* the mean of each window; pad is 0 */
template <typename T, typename O>
static inline void pd_avgpool(cudaStream_t stream, const pd_image_window *v, const T *x, O *y) {
  const int64_t images = v->n * v->channels;
  if (images * v->oh * v->ow == 0) return;
  PD_LAUNCH((pd_avgpool_kernel<T, O>), pd_image_grid(v->oh * v->ow, images), dim3(PD_IMAGE_BLOCK), 0, stream,
            pd_window_of(v), images, x, y);
}

template <typename O, typename T>
static inline void pd_avgpool_grad(cudaStream_t stream, const pd_image_window *v, const O *dy, T *dx) {
  const int64_t images = v->n * v->channels;
  if (images * v->h * v->w == 0) return;
  PD_LAUNCH((pd_avgpool_grad_kernel<O, T>), pd_image_grid(v->h * v->w, images), dim3(PD_IMAGE_BLOCK), 0, stream,
            pd_window_of(v), images, dy, dx);
}

#endif
