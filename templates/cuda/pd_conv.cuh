/* What makes a convolution a product of matrices: windows of images laid out as columns, and columns added to images.
 */
#ifndef PD_CONV_CUH
#define PD_CONV_CUH

#include "pd_image.cuh"

/* Columns are a matrix [channels * kh * kw, width] of a group of images, from image `first` on: column j * oh * ow + p
 * has what lies in the window at place p of the group's image j. Columns behind those of the last image are 0. width is
 * a multiple of 8, so that every row begins with a whole pack. A thread makes a pack of a row; y goes over rows. */
template <typename T, typename C>
__global__ void __launch_bounds__(PD_IMAGE_BLOCK)
    pd_columns_kernel(pd_window v, int channels, int images, int64_t width, const T *__restrict__ x,
                      C *__restrict__ columns) {
  constexpr int lanes = 16 / (int)sizeof(C);
  const int64_t first = pd_thread() * lanes;
  if (first >= width) return;
  int place, left;
  const int image = pd_split(v.by_places, (int)first, &place), top = pd_split(v.by_ow, place, &left);
  for (int row = (int)blockIdx.y; row < channels * v.kh * v.kw; row += (int)gridDim.y) {
    const int kx = row % v.kw, ky = row / v.kw % v.kh, c = row / (v.kw * v.kh);
    int j = image, oy = top, ox = left;
    float value[lanes];
    PD_UNROLL(lanes)
    for (int k = 0; k < lanes; k++) {
      const int iy = oy * v.stride + ky - v.pad, ix = ox * v.stride + kx - v.pad;
      const bool inside = j < images && iy >= 0 && iy < v.h && ix >= 0 && ix < v.w;
      value[k] = inside ? pd_load(x + ((int64_t)j * channels + c) * v.area + iy * v.w + ix) : 0;
      if (++ox < v.ow) continue;
      ox = 0;
      if (++oy < v.oh) continue;
      oy = 0, j++;
    }
    pd_store_pack(columns + (int64_t)row * width + first, value);
  }
}

/* Every element of the images is one thread's, which adds what windows that cover it have there, in their order. */
template <typename C, typename T>
__global__ void __launch_bounds__(PD_IMAGE_BLOCK)
    pd_columns_sum_kernel(pd_window v, int channels, int images, int64_t width, const C *__restrict__ columns,
                          T *__restrict__ x) {
  const int at = (int)pd_thread();
  if (at >= v.area) return;
  const pd_cover over = pd_cover_of(v, at);
  for (int image = (int)blockIdx.y; image < images * channels; image += (int)gridDim.y) {
    const int j = image / channels, c = image - j * channels;
    float sum = 0;
    for (int oy = over.top; oy <= over.bottom; oy++) {
      for (int ox = over.left; ox <= over.right; ox++) {
        const int ky = over.iy + v.pad - oy * v.stride, kx = over.ix + v.pad - ox * v.stride;
        const int64_t row = ((int64_t)c * v.kh + ky) * v.kw + kx;
        sum += pd_load(columns + row * width + (int64_t)j * v.places + oy * v.ow + ox);
      }
    }
    pd_store(x + (int64_t)image * v.area + at, sum);
  }
}

/* How many images of v there are in the group of `images` from `first` on. */
static inline int64_t pd_images_in(const pd_image_window *v, int64_t first, int64_t images) {
  return v->n - first < images ? v->n - first : images;
}

/* columns = the windows of `images` images of x from number `first` on, those that there are not being 0 */
template <typename T, typename C>
static inline void pd_columns(cudaStream_t stream, const pd_image_window *v, int64_t first, int64_t images,
                              int64_t width, const T *x, C *columns) {
  const dim3 grid = pd_image_grid(width / (16 / (int)sizeof(C)), v->channels * v->kh * v->kw);
  PD_LAUNCH((pd_columns_kernel<T, C>), grid, dim3(PD_IMAGE_BLOCK), 0, stream, pd_window_of(v), (int)v->channels,
            (int)pd_images_in(v, first, images), width, x + first * v->channels * v->h * v->w, columns);
}

/* The reverse: x[..] = sum of what columns have for that element, for the images of the group that there are. */
template <typename C, typename T>
static inline void pd_columns_sum(cudaStream_t stream, const pd_image_window *v, int64_t first, int64_t images,
                                  int64_t width, const C *columns, T *x) {
  const int64_t there = pd_images_in(v, first, images);
  PD_LAUNCH((pd_columns_sum_kernel<C, T>), pd_image_grid(v->h * v->w, there * v->channels), dim3(PD_IMAGE_BLOCK), 0,
            stream, pd_window_of(v), (int)v->channels, (int)there, width, columns,
            x + first * v->channels * v->h * v->w);
}

#endif
