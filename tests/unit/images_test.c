/* Kernels on images, batch normalisation and Lamb: host in f32 and f64, and ref in f32, against ref in f64 on random
 * shapes; ref in f64 against numbers worked out by hand and, for the gradients, against central differences; the same
 * bits for every number of threads. The file includes itself for the parts that exist per real type (PD_R). */
#ifndef PD_R

#include "unit/kernels_help.h"

#include <string.h>

static double *numbers(int64_t n) { /* that a float has */
  double *x = hold(sizeof *x * (size_t)n);
  for (int64_t i = 0; i < n; i++) x[i] = (double)(float)between(-1, 1);
  return x;
}

static double *zeros(int64_t n) {
  double *x = hold(sizeof *x * (size_t)n);
  for (int64_t i = 0; i < n; i++) x[i] = 0;
  return x;
}

static pd_image_window window_of(int64_t n, int64_t channels, int64_t h, int64_t w, int64_t filters, int64_t kh,
                                 int64_t kw, int64_t stride, int64_t pad) {
  return (pd_image_window){n,
                           channels,
                           h,
                           w,
                           filters,
                           kh,
                           kw,
                           stride,
                           pad,
                           (h + 2 * pad - kh) / stride + 1,
                           (w + 2 * pad - kw) / stride + 1};
}

/* Windows of all sorts: some that leave a rest, do not overlap, lie wholly in the padding, or are points. */
static pd_image_window some_window(int round, bool pool) {
  if (round == 0) return window_of(5, 16, 30, 31, 24, 3, 3, 1, 1); /* large enough for threads and strips */
  if (round == 1) return window_of(3, 20, 40, 40, 20, 5, 5, 2, 2);
  if (round == 2) return window_of(2, 24, 9, 70, 16, 1, 1, 1, 0);
  if (round == 3) return window_of(0, 2, 4, 4, 3, 2, 2, 1, 0);
  if (round == 4) return window_of(1, 40, 12, 12, 60, 3, 3, 1, 1);
  const int64_t kh = pick(1, 5), kw = pool ? kh : pick(1, 5), pad = pool ? pick(0, kh - 1) : pick(0, 4);
  const int64_t least_h = kh > 2 * pad ? kh - 2 * pad : 1, least_w = kw > 2 * pad ? kw - 2 * pad : 1;
  return window_of(pick(1, 9), pick(1, 6), least_h + pick(0, 8), least_w + pick(0, 8), pick(1, 6), kh, kw, pick(1, 4),
                   pad);
}

/* Of sum(weight[i] * f(x)[i]) with respect to x. */
typedef void (*function)(const double *x, double *y, const void *context);

static void expect_gradient(const char *what, function f, const void *context, int64_t count_x, int64_t count_y,
                            const double *x, const double *weight, const double *got) {
  double *moved = hold(sizeof(double) * (size_t)count_x), *up = zeros(count_y), *down = zeros(count_y);
  memcpy(moved, x, sizeof(double) * (size_t)count_x);
  for (int64_t i = 0; i < count_x; i++) {
    const double step = 1e-5;
    double slope = 0;
    moved[i] = x[i] + step;
    f(moved, up, context);
    moved[i] = x[i] - step;
    f(moved, down, context);
    moved[i] = x[i];
    for (int64_t j = 0; j < count_y; j++) slope += weight[j] * (up[j] - down[j]) / (2 * step);
    cr_assert(fabs(slope - got[i]) <= 1e-7 * (1 + fabs(slope)), "%s: element %d of the gradient is %.12g, slope %.12g",
              what, (int)i, got[i], slope);
  }
}

#define PD_R float
#define F(name) name##_f32
#define UNIT 6e-8
#define SUITE images_f32
#include "images_test.c"
#undef PD_R
#undef F
#undef UNIT
#undef SUITE

#define PD_R double
#define F(name) name##_f64
#define UNIT 1.2e-16
#define SUITE images_f64
#include "images_test.c"

/* ---- ref by hand ---- */

#define EXPECT_ALL(got, ...)                                                                                           \
  do {                                                                                                                 \
    const double wanted[] = {__VA_ARGS__};                                                                             \
    for (size_t at = 0; at < sizeof wanted / sizeof *wanted; at++) {                                                   \
      cr_expect(fabs((got)[at] - wanted[at]) < 1e-12, #got "[%zu] is %.15g, not %.15g", at, (got)[at], wanted[at]);    \
    }                                                                                                                  \
  } while (0)

static const double square[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};

Test(images, known_convolutions) {
  const pd_kernels_f64 *k = pd_kernels_select_f64("ref");
  const double f[] = {1, 10, 100, 1000}; /* not turned over: the first number meets the upper left */
  double y[16];
  pd_image_window v = window_of(1, 1, 3, 3, 1, 2, 2, 1, 0);
  k->conv2d(&v, square, f, y);
  EXPECT_ALL(y, 5421, 6532, 8754, 9865);
  v = window_of(1, 1, 3, 3, 1, 2, 2, 2, 1); /* padded: rows -1, 0 and 1, 2 */
  k->conv2d(&v, square, f, y);
  EXPECT_ALL(y, 1000, 3200, 7040, 9865);
  const double two[] = {1, 2, 3, 4}, mixed[] = {1, 10, 100, -1}; /* two channels of two points; two filters of points */
  v = window_of(1, 2, 1, 2, 2, 1, 1, 1, 0);
  k->conv2d(&v, two, mixed, y);
  EXPECT_ALL(y, 31, 42, 97, 196);
  double df[] = {1, 1, 1, 1};
  k->conv2d_filter_grad(&v, two, (const double[]){1, 0, 0, 2}, df); /* is added */
  EXPECT_ALL(df, 2, 4, 5, 9);
}

Test(images, known_pools) {
  const pd_kernels_f64 *k = pd_kernels_select_f64("ref");
  double y[4], dx[9];
  pd_image_window v = window_of(1, 1, 3, 3, 1, 2, 2, 1, 0);
  k->maxpool(&v, square, y);
  EXPECT_ALL(y, 5, 6, 8, 9);
  k->avgpool(&v, square, y);
  EXPECT_ALL(y, 3, 4, 6, 7);
  const double flat[] = {7, 7, 7, 7, 7, 7, 7, 7, 7}, dy[] = {1, 2, 3, 4};
  k->maxpool_grad(&v, flat, dy, dx); /* the first of equals */
  EXPECT_ALL(dx, 1, 2, 0, 3, 4, 0, 0, 0, 0);
  const double negative[] = {-1, -2, -3, -4, -5, -6, -7, -8, -9};
  v = window_of(1, 1, 3, 3, 1, 3, 3, 2, 1);
  k->maxpool(&v, negative, y); /* the padding is no 0 */
  EXPECT_ALL(y, -1, -2, -4, -5);
  const double odd[] = {1, 2, 3, 4, NAN, 6, 7, 8, 9};
  v = window_of(1, 1, 3, 3, 1, 3, 3, 1, 0);
  k->maxpool(&v, odd, y);
  cr_assert(isnan(y[0]));
}

Test(images, known_norms) {
  const pd_kernels_f64 *k = pd_kernels_select_f64("ref");
  const double x[] = {1, 3, 10, 10, 5, 7, 20, 20}; /* two samples, two channels, two positions */
  double y[8], mean[2], variance[2];
  k->batchnorm(2, 2, 2, 0, x, y, mean, variance);
  EXPECT_ALL(mean, 4, 15);
  EXPECT_ALL(variance, 5, 25);
  EXPECT_ALL(y, -3 / sqrt(5), -1 / sqrt(5), -1, -1, 1 / sqrt(5), 3 / sqrt(5), 1, 1);
  k->batchnorm_given(2, 2, 2, 3, x, (const double[]){1, 10}, (const double[]){1, 22}, y);
  EXPECT_ALL(y, 0, 1, 0, 0, 2, 3, 2, 2);
}

Test(images, known_lamb_step) {
  const pd_kernels_f64 *k = pd_kernels_select_f64("ref");
  double w[] = {3, -4}, m[] = {0, 0}, v[] = {0, 0};
  const double g[] = {2, -4};
  const double length =
      k->lamb_moments(2, w, g, m, v, 0.5, 0.9, 0.99, 0, 0.5, 0.1, 0.01); /* first step: m/v is the sign */
  EXPECT_ALL(m, 0.1, -0.2);
  EXPECT_ALL(v, 0.01, 0.04);
  EXPECT_ALL(&length, 2.5 * 2.5 + 3 * 3);
  k->lamb_step(2, w, m, v, 0.1, 0, 0.5, 0.1, 0.01);
  EXPECT_ALL(w, 3 - 0.25, -4 + 0.3);
}

/* ---- ref by differences ---- */

typedef struct context {
  pd_image_window v;
  const double *other;
  int form;
} context;

static void as_function(const double *x, double *y, const void *of) {
  const context *c = of;
  if (c->form == 0) ref->conv2d(&c->v, x, c->other, y);
  if (c->form == 1) ref->conv2d(&c->v, c->other, x, y);
  if (c->form == 2) ref->maxpool(&c->v, x, y);
  if (c->form == 3) ref->avgpool(&c->v, x, y);
  double statistics[16];
  if (c->form == 4) ref->batchnorm(c->v.n, c->v.channels, c->v.h * c->v.w, 0.01, x, y, statistics, statistics + 8);
}

Test(images, gradients, .init = start, .fini = let_go) {
  for (int round = 0; round < 20; round++) {
    const pd_image_window v = some_window(5, false), p = some_window(5, true);
    const int64_t nx = v.n * v.channels * v.h * v.w, ny = v.n * v.filters * v.oh * v.ow;
    const int64_t nf = v.filters * v.channels * v.kh * v.kw;
    const double *x = numbers(nx), *f = numbers(nf), *dy = numbers(ny);
    double *dx = zeros(nx), *df = zeros(nf);
    if (nx > 500 || ny > 500) continue;
    ref->conv2d_input_grad(&v, f, dy, dx);
    expect_gradient("convolution", as_function, &(context){v, f, 0}, nx, ny, x, dy, dx);
    ref->conv2d_filter_grad(&v, x, dy, df);
    expect_gradient("filter", as_function, &(context){v, x, 1}, nf, ny, f, dy, df);
    const int64_t px = p.n * p.channels * p.h * p.w;
    pd_image_window pool = p;
    pool.filters = p.channels;
    const int64_t py = p.n * p.channels * p.oh * p.ow;
    const double *a = numbers(px), *da = numbers(py);
    double *got = zeros(px);
    ref->maxpool_grad(&pool, a, da, got);
    expect_gradient("maximum", as_function, &(context){pool, NULL, 2}, px, py, a, da, got);
    if (p.pad == 0) {
      ref->avgpool_grad(&pool, da, got);
      expect_gradient("mean", as_function, &(context){pool, NULL, 3}, px, py, a, da, got);
    }
    if (p.n * p.h * p.w > 1) {
      const double *up = numbers(px);
      double *y = zeros(px), mean[8], variance[8];
      ref->batchnorm(p.n, p.channels, p.h * p.w, 0.01, a, y, mean, variance);
      ref->batchnorm_grad(p.n, p.channels, p.h * p.w, 0.01, y, variance, up, got);
      expect_gradient("batch normalisation", as_function, &(context){pool, NULL, 4}, px, px, a, up, got);
    }
    let_go();
  }
}

#else /* ---- per real type ---- */

#include "kernels_numbers.inc.h"

static void F(expect)(const char *what, const pd_image_window *v, int64_t n, const PD_R *got, const double *want,
                      double tol) {
  double scale = 1e-300;
  for (int64_t i = 0; i < n; i++) scale = fmax(scale, fabs(want[i]));
  for (int64_t i = 0; i < n; i++)
    cr_assert(fabs((double)got[i] - want[i]) <= tol * scale,
              "%s: n %d, %d x %d x %d, %d filters %d x %d, stride %d, pad %d: element %d is %.17g, not %.17g", what,
              (int)v->n, (int)v->channels, (int)v->h, (int)v->w, (int)v->filters, (int)v->kh, (int)v->kw,
              (int)v->stride, (int)v->pad, (int)i, (double)got[i], want[i]);
  for (int64_t i = n; i < n + GUARD; i++) cr_assert(got[i] == (PD_R)12345, "%s: written after the end", what);
}

static const F(pd_kernels) * F(table)(int which) { /* 0: host, 1: ref */
  return F(pd_kernels_select)(which == 0 ? "host" : "ref");
}

Test(SUITE, convolutions, .init = start, .fini = let_go) {
  for (int which = 0; which < (sizeof(PD_R) == 4 ? 2 : 1); which++) {
    const F(pd_kernels) *k = F(table)(which);
    for (int round = 0; round < 120; round++) {
      const pd_image_window v = some_window(round, false);
      const int64_t nx = v.n * v.channels * v.h * v.w, ny = v.n * v.filters * v.oh * v.ow;
      const int64_t nf = v.filters * v.channels * v.kh * v.kw;
      const double *x = numbers(nx), *f = numbers(nf), *dy = numbers(ny),
                   tol = UNIT * (20 + 4 * sqrt((double)(ny + nf)));
      PD_R *rx = F(copy_of)(nx, x), *rf = F(copy_of)(nf, f), *rdy = F(copy_of)(ny, dy);
      PD_R *y = F(copy_of)(ny, NULL), *dx = F(copy_of)(nx, NULL), *df = F(copy_of)(nf, f);
      double *want_y = zeros(ny), *want_dx = zeros(nx), *want_df = F(wide)(nf, rf);
      k->conv2d(&v, rx, rf, y);
      ref->conv2d(&v, x, f, want_y);
      F(expect)("conv2d", &v, ny, y, want_y, tol);
      k->conv2d_input_grad(&v, rf, rdy, dx);
      ref->conv2d_input_grad(&v, f, dy, want_dx);
      F(expect)("conv2d_input_grad", &v, nx, dx, want_dx, tol);
      k->conv2d_filter_grad(&v, rx, rdy, df); /* added to what was there */
      ref->conv2d_filter_grad(&v, x, dy, want_df);
      F(expect)("conv2d_filter_grad", &v, nf, df, want_df, tol);
      let_go();
    }
  }
}

Test(SUITE, pools_and_norms, .init = start, .fini = let_go) {
  for (int which = 0; which < (sizeof(PD_R) == 4 ? 2 : 1); which++) {
    const F(pd_kernels) *k = F(table)(which);
    for (int round = 0; round < 120; round++) {
      pd_image_window v = some_window(round, true);
      v.filters = v.channels;
      const int64_t nx = v.n * v.channels * v.h * v.w, ny = v.n * v.channels * v.oh * v.ow, inner = v.h * v.w;
      double *x = numbers(nx);
      for (int64_t i = 0; i < nx && round % 2; i++) x[i] = floor(x[i] * 3); /* equals */
      if (round % 7 == 6) x[0] = x[nx - 1] = NAN;
      const double *dy = numbers(ny), *up = numbers(nx);
      PD_R *rx = F(copy_of)(nx, x), *rdy = F(copy_of)(ny, dy), *y = F(copy_of)(ny, NULL), *dx = F(copy_of)(nx, NULL);
      double *want_y = zeros(ny), *want_dx = zeros(nx);
      k->maxpool(&v, rx, y);
      ref->maxpool(&v, x, want_y);
      for (int64_t i = 0; i < ny; i++)
        cr_assert(isnan(want_y[i]) ? isnan(y[i]) : (double)y[i] == want_y[i], "maxpool %d", (int)i);
      k->maxpool_grad(&v, rx, rdy, dx);
      ref->maxpool_grad(&v, x, dy, want_dx);
      F(expect)("maxpool_grad", &v, nx, dx, want_dx, UNIT * 20);
      if (round % 7 == 6) {
        let_go();
        continue;
      }
      if (v.pad == 0) {
        k->avgpool(&v, rx, y);
        ref->avgpool(&v, x, want_y);
        F(expect)("avgpool", &v, ny, y, want_y, UNIT * 20);
        k->avgpool_grad(&v, rdy, dx);
        ref->avgpool_grad(&v, dy, want_dx);
        F(expect)("avgpool_grad", &v, nx, dx, want_dx, UNIT * 20);
      }
      if (v.n * inner < 2) {
        let_go();
        continue;
      }
      for (int64_t i = 0; i < nx; i++) rx[i] = (PD_R)(x[i] = (double)(float)(x[i] + 30)); /* a mean far from 0 */
      const double norm = UNIT * 200 + 1e-13; /* ref adds one by one, and the mean is large */
      PD_R *normal = F(copy_of)(nx, NULL), *mean = F(copy_of)(v.channels, NULL),
           *variance = F(copy_of)(v.channels, NULL);
      double *want = zeros(nx), *want_mean = zeros(v.channels), *want_variance = zeros(v.channels);
      k->batchnorm(v.n, v.channels, inner, (PD_R)1e-2, rx, normal, mean, variance);
      ref->batchnorm(v.n, v.channels, inner, (double)(PD_R)1e-2, x, want, want_mean, want_variance);
      F(expect)("batchnorm", &v, nx, normal, want, norm);
      F(expect)("its mean", &v, v.channels, mean, want_mean, norm);
      F(expect)("its variance", &v, v.channels, variance, want_variance, norm);
      const double *normal64 = F(wide)(nx, normal), *mean64 = F(wide)(v.channels, mean),
                   *variance64 = F(wide)(v.channels, variance);
      k->batchnorm_grad(v.n, v.channels, inner, (PD_R)1e-2, normal, variance, F(copy_of)(nx, up), dx);
      ref->batchnorm_grad(v.n, v.channels, inner, (double)(PD_R)1e-2, normal64, variance64, up, want_dx);
      F(expect)("batchnorm_grad", &v, nx, dx, want_dx, norm);
      k->batchnorm_given(v.n, v.channels, inner, (PD_R)1e-2, rx, mean, variance, normal);
      ref->batchnorm_given(v.n, v.channels, inner, (double)(PD_R)1e-2, x, mean64, variance64, want);
      F(expect)("batchnorm_given", &v, nx, normal, want, norm);
      let_go();
    }
  }
}

Test(SUITE, lamb, .init = start, .fini = let_go) {
  const pd_image_window none = {0};
  for (int which = 0; which < (sizeof(PD_R) == 4 ? 2 : 1); which++) {
    const F(pd_kernels) *k = F(table)(which);
    for (int round = 0; round < 30; round++) {
      const int64_t n = round == 0 ? 70001 : round == 1 ? 0 : pick(1, 1000);
      const double *g = numbers(n);
      double *w = numbers(n), *m = numbers(n), *v = numbers(n);
      for (int64_t i = 0; i < n; i++) v[i] = fabs(v[i]) + 0.01;
      PD_R *rw = F(copy_of)(n, w), *rm = F(copy_of)(n, m), *rv = F(copy_of)(n, v);
      const double got = k->lamb_moments(n, rw, F(copy_of)(n, g), rm, rv, 0.5, 0.9, 0.99, 1e-6, 0.1, 0.19, 0.02);
      const double want = ref->lamb_moments(n, w, g, m, v, 0.5, 0.9, 0.99, 1e-6, 0.1, 0.19, 0.02);
      cr_assert(fabs(got - want) <= (UNIT * 50 + 1e-13) * want, /* ref adds one by one */
                "the length is %.17g, not %.17g", got, want);
      k->lamb_step(n, rw, rm, rv, 0.03, 1e-6, 0.1, 0.19, 0.02);
      ref->lamb_step(n, w, m, v, 0.03, 1e-6, 0.1, 0.19, 0.02);
      F(expect)("lamb m", &none, n, rm, m, UNIT * 10);
      F(expect)("lamb v", &none, n, rv, v, UNIT * 10);
      F(expect)("lamb w", &none, n, rw, w, UNIT * 20);
      let_go();
    }
  }
}

/* Everything once, one result after another. */
static PD_R *F(run_all)(int round, int64_t *count) {
  const F(pd_kernels) *k = F(table)(0);
  draws = 77; /* the same inputs every time */
  const pd_image_window v = some_window(round, false);
  const int64_t nx = v.n * v.channels * v.h * v.w, ny = v.n * v.filters * v.oh * v.ow;
  const int64_t nf = v.filters * v.channels * v.kh * v.kw;
  PD_R *x = F(copy_of)(nx, numbers(nx)), *f = F(copy_of)(nf, numbers(nf)), *dy = F(copy_of)(ny, numbers(ny));
  *count = ny + 3 * nx + nf + 2 * v.channels + 1 + 3 * nx;
  PD_R *all = F(copy_of)(*count, zeros(*count)), *to = all;
  k->conv2d(&v, x, f, to), to += ny;
  k->conv2d_input_grad(&v, f, dy, to), to += nx;
  k->conv2d_filter_grad(&v, x, dy, to), to += nf;
  k->batchnorm(v.n, v.channels, v.h * v.w, 0, x, to, to + nx, to + nx + v.channels);
  k->batchnorm_grad(v.n, v.channels, v.h * v.w, 0, to, to + nx + v.channels, x, to + nx + 2 * v.channels);
  to += 2 * nx + 2 * v.channels;
  memcpy(to, x, (size_t)nx * sizeof *to);
  for (int64_t i = 0; i < nx; i++) to[2 * nx + i] = (PD_R)0.5;
  to[3 * nx] = (PD_R)k->lamb_moments(nx, to, x, to + nx, to + 2 * nx, 1, 0.9, 0.99, 1e-8, 0.1, 1, 1);
  k->lamb_step(nx, to, to + nx, to + 2 * nx, 0.1, 1e-8, 0.1, 1, 1);
  return all;
}

Test(SUITE, bits_do_not_depend_on_threads, .init = start, .fini = let_go) {
  for (int round = 0; round < 5; round++) {
    int64_t count;
    pd_kernels_threads(1);
    const PD_R *one = F(run_all)(round, &count);
    for (int threads = 2; threads <= 5; threads++) {
      pd_kernels_threads(threads);
      cr_assert(memcmp(one, F(run_all)(round, &count), (size_t)count * sizeof *one) == 0, "case %d with %d threads",
                round, threads);
    }
    let_go();
  }
}

#endif
