/* Images: windows as columns and back, pools, batch normalisation; the largest of rows. */
#include "kernel_check.h"

#include "pd_batchnorm.cuh"
#include "pd_conv.cuh"
#include "pd_max.cuh"
#include "pd_pool.cuh"

static const pd_kernels_f64 *R = &pd_set_ref_f64;

static std::string named(const char *name, const pd_image_window &v) {
  char text[100];
  snprintf(text, sizeof text, "%s %lldx%lld of %lldx%lld stride %lld pad %lld", name, (long long)v.kh, (long long)v.kw,
           (long long)v.h, (long long)v.w, (long long)v.stride, (long long)v.pad);
  return text;
}

static pd_image_window window_of(int64_t n, int64_t channels, int64_t h, int64_t w, int64_t kh, int64_t kw,
                                 int64_t stride, int64_t pad) {
  pd_image_window v = {n, channels, h, w, channels, kh, kw, stride, pad, 0, 0};
  v.oh = (h + 2 * pad - kh) / stride + 1;
  v.ow = (w + 2 * pad - kw) / stride + 1;
  return v;
}

/* ---- columns ---- */

/* The reference has no columns: a convolution with a filter for every position of the window has them as its result. */
static std::vector<double> unit_filters(const pd_image_window &v) {
  const size_t rows = (size_t)(v.channels * v.kh * v.kw);
  std::vector<double> f(rows * rows, 0);
  for (size_t i = 0; i < rows; i++) f[i * rows + i] = 1;
  return f;
}

/* A convolution in groups of `images`: the last may have fewer. C: type of columns that go back. */
template <typename T, typename C> static void test_columns(const pd_image_window &v, int64_t images) {
  const int64_t rows = v.channels * v.kh * v.kw, places = v.oh * v.ow, width = (images * places + 7) / 8 * 8;
  const int64_t groups = (v.n + images - 1) / images;
  pd_image_window all = v;
  all.filters = rows;
  const std::vector<double> filters = unit_filters(v);
  std::vector<double> image_columns((size_t)(v.n * rows * places));
  tensor<T> x((size_t)(v.n * v.channels * v.h * v.w)), columns((size_t)(rows * width)), dx(x.at.size());
  tensor<C> back((size_t)(rows * width));
  x.random();
  R->conv2d(&all, x.ref(), filters.data(), image_columns.data());
  std::vector<double> gradients(image_columns.size());
  for (int64_t g = 0; g < groups; g++) {
    columns.push(); /* what was there before is overwritten */
    pd_columns<T, T>(0, &v, g * images, images, width, x.device, columns.device);
    columns.at.assign(columns.at.size(), 0);
    back.random();
    for (int64_t i = 0; i < images * places * rows; i++) {
      const int64_t j = i / (places * rows), row = i / places % rows, n = g * images + j, p = i % places;
      if (n >= v.n) continue;
      const size_t at = (size_t)((n * rows + row) * places + p), beside = (size_t)(row * width + j * places + p);
      columns.at[beside] = image_columns[at];
      gradients[at] = back.at[beside];
    }
    columns.expect(named("columns", v), 0);
    pd_columns_sum<C, T>(0, &v, g * images, images, width, back.device, dx.device);
  }
  R->conv2d_input_grad(&all, filters.data(), gradients.data(), dx.ref());
  dx.expect(named("sum of columns", v), 3e-7, sqrt((double)(v.kh * v.kw)));
}

/* ---- pools ---- */

/* few different numbers, so that windows have several that are the largest, and some that are none */
template <typename T> static void draw_ties(tensor<T> &x) {
  for (double &value : x.at) {
    const double drawn = draw(&totals()->seed);
    value = drawn > 0.97 ? (double)NAN : floor(3 * drawn);
  }
  x.push();
}

template <typename T> static void test_pools(const pd_image_window &v) {
  tensor<T> x((size_t)(v.n * v.channels * v.h * v.w)), dx(x.at.size());
  tensor<T> y((size_t)(v.n * v.channels * v.oh * v.ow)), dy(y.at.size());
  draw_ties(x);
  dy.random();
  pd_maxpool(0, &v, x.device, y.device);
  R->maxpool(&v, x.ref(), y.ref());
  y.expect(named("maxpool", v), 0);
  pd_maxpool_grad(0, &v, x.device, dy.device, dx.device);
  R->maxpool_grad(&v, x.ref(), dy.ref(), dx.ref());
  dx.expect(named("maxpool gradient", v), 3e-7, 4);
  if (v.pad != 0) return;
  x.random();
  pd_avgpool(0, &v, x.device, y.device);
  R->avgpool(&v, x.ref(), y.ref());
  y.expect(named("avgpool", v), 3e-7);
  pd_avgpool_grad(0, &v, dy.device, dx.device);
  R->avgpool_grad(&v, dy.ref(), dx.ref());
  dx.expect(named("avgpool gradient", v), 3e-7, 1);
}

template <typename T> static void test_windows() {
  test_columns<T, float>(window_of(3, 2, 7, 6, 3, 3, 1, 1), 2);
  test_columns<T, float>(window_of(2, 3, 9, 11, 5, 3, 2, 2), 2);
  test_columns<T, float>(window_of(3, 1, 8, 8, 2, 2, 3, 0), 1);
  test_columns<T, T>(window_of(5, 4, 3, 3, 1, 1, 1, 0), 3);
  test_columns<T, float>(window_of(1, 2, 5, 40, 7, 7, 2, 3), 1);
  test_pools<T>(window_of(2, 3, 8, 8, 2, 2, 2, 0));
  test_pools<T>(window_of(2, 2, 9, 7, 3, 3, 2, 1));
  test_pools<T>(window_of(1, 2, 7, 20, 3, 2, 1, 0));
  test_pools<T>(window_of(1, 1, 6, 6, 6, 6, 1, 0));
  test_pools<T>(window_of(2, 1, 10, 10, 2, 2, 4, 0)); /* some elements are in no window */
}

/* ---- batch normalisation ---- */

template <typename T> static void test_batchnorm(int64_t n, int64_t channels, int64_t inner) {
  const std::string name =
      "batchnorm " + std::to_string(n) + "x" + std::to_string(channels) + "x" + std::to_string(inner);
  const size_t size = (size_t)(n * channels * inner), count_ = (size_t)channels;
  const double eps = (double)1e-5f;
  tensor<T> x(size), y(size), dy(size), dx(size), given_mean(count_), given_variance(count_);
  tensor<float> mean(count_), variance(count_);
  x.random(2, 3);
  dy.random();
  pd_batchnorm(0, n, channels, inner, 1e-5f, x.device, y.device, mean.device, variance.device);
  R->batchnorm(n, channels, inner, eps, x.ref(), y.ref(), mean.ref(), variance.ref());
  mean.expect(name + " mean", 1e-6);
  variance.expect(name + " variance", 1e-6);
  y.expect(name, 3e-6);
  y.push(); /* rounded: the gradient reads what was stored */
  variance.push();
  pd_batchnorm_grad(0, n, channels, inner, 1e-5f, y.device, variance.device, dy.device, dx.device);
  R->batchnorm_grad(n, channels, inner, eps, y.ref(), variance.ref(), dy.ref(), dx.ref());
  dx.expect(name + " gradient", 3e-6, 1);
  given_mean.random(1, 3);
  given_variance.random(0.5, 1);
  pd_batchnorm_given(0, n, channels, inner, 1e-5f, x.device, given_mean.device, given_variance.device, y.device);
  R->batchnorm_given(n, channels, inner, eps, x.ref(), given_mean.ref(), given_variance.ref(), y.ref());
  y.expect(name + " given", 3e-6);
}

/* ---- the largest of rows ---- */

template <typename T, int n> static void test_max(int64_t rows) {
  const std::string name = "max " + std::to_string(rows) + "x" + std::to_string(n);
  tensor<T> x((size_t)(rows * n)), dx(x.at.size()), y((size_t)rows), dy((size_t)rows);
  tensor<float> wide((size_t)rows);
  draw_ties(x);
  dy.random();
  pd_max<T, T, n>(0, rows, x.device, y.device);
  R->max(rows, n, x.ref(), y.ref());
  y.expect(name, 0);
  pd_max<T, float, n>(0, rows, x.device, wide.device);
  wide.at = y.at;
  wide.expect(name + " as f32", 0);
  pd_max_grad<T, T, n>(0, rows, x.device, dy.device, dx.device);
  R->max_grad(rows, n, x.ref(), dy.ref(), dx.ref());
  dx.expect(name + " gradient", 0);
}

template <typename T> static void test_all() {
  test_windows<T>();
  test_batchnorm<T>(4, 3, 16);
  test_batchnorm<T>(3, 5, 49);
  test_batchnorm<T>(70, 20, 1);
  test_batchnorm<T>(2, 2, 1600); /* more than a block takes at a time */
  test_max<T, 10>(40);
  test_max<T, 1000>(3);
  test_max<T, 4097>(2);
}

int main(int argc, char **argv) {
#ifndef PD_QUICK
  if (!has_word(argc, argv, "one-type")) test_all<float>();
#endif
  test_all<bf16>();
  return report();
}
