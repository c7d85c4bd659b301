/* Moving, summing, contracting, normalising: every kernel against the reference in double. */
#include "kernel_check.h"

#include "pd_contract.cuh"
#include "pd_gather.cuh"
#include "pd_move.cuh"
#include "pd_norm.cuh"
#include "pd_softmax.cuh"
#include "pd_sum.cuh"

static const pd_kernels_f64 *R = &pd_set_ref_f64;

static std::string named(const char *name, int64_t a, int64_t b = -1) {
  return std::string(name) + " " + std::to_string(a) + (b < 0 ? "" : "x" + std::to_string(b));
}

/* ---- flat ---- */

template <typename T> static void test_flat(int64_t n) {
  const size_t size = (size_t)n;
  tensor<T> filled(size), a(size), out(size);
  pd_fill(0, n, 1.1f, filled.device);
  R->fill(n, rounded((double)1.1f, T()), filled.ref());
  filled.expect(named("fill", n), 0);
  a.random();
  out.random();
  pd_add(0, n, a.device, out.device);
  R->add(n, a.ref(), out.ref());
  out.expect(named("add", n), 1e-7);
  for (double &x : a.at) x *= (double)0.3f;
  pd_scale(0, n, 0.3f, a.device, a.device);
  a.expect(named("scale in place", n), 1e-7);
  tensor<float> sum(size);
  sum.random();
  tensor<T> term(size);
  term.random();
  pd_add(0, n, term.device, sum.device);
  R->add(n, term.ref(), sum.ref());
  sum.expect(named("add to f32", n), 1e-7);
  tensor<float> master(size);
  master.random();
  pd_cast(0, n, master.device, out.device);
  for (size_t i = 0; i < size; i++) out.at[i] = rounded(master.at[i], T());
  out.expect(named("cast", n), 0);
  pd_scale(0, n, 1.0f, out.device, master.device);
  master.at = out.at;
  master.expect(named("cast back", n), 0);
}

/* ---- views ---- */

typedef struct axis {
  int64_t size, out, a, b = 0;
} axis;

static pd_view view_of(const std::vector<axis> &axes) {
  pd_view v = {};
  for (const axis &x : axes) {
    v.size[v.rank] = x.size, v.out[v.rank] = x.out, v.a[v.rank] = x.a, v.b[v.rank] = x.b;
    v.rank++;
  }
  return v;
}

/* number of elements that an operand's strides reach */
static size_t reach(const pd_view &v, const int64_t *stride) {
  int64_t last = 0;
  for (int i = 0; i < v.rank; i++) {
    if (stride[i] == 0) continue;
    if (v.size[i] == 0) return 0;
    last += (v.size[i] - 1) * stride[i];
  }
  return (size_t)last + 1;
}

template <typename T> static void test_copy(const char *name, const std::vector<axis> &axes) {
  const pd_view v = view_of(axes);
  for (int accumulate = 0; accumulate < 2; accumulate++) {
    tensor<T> a(reach(v, v.a)), out(reach(v, v.out));
    a.random();
    out.random(); /* what no element of the view reaches stays */
    pd_copy(0, &v, a.device, accumulate != 0, out.device);
    R->copy(&v, a.ref(), accumulate != 0, out.ref());
    out.expect(std::string(accumulate ? "copy added, " : "copy, ") + name, accumulate ? 1e-7 : 0);
  }
}

template <typename T> static void test_copies() {
  test_copy<T>("whole", {{6, 64, 64}, {64, 1, 1}});
  test_copy<T>("heads to the front", {{2, 192, 192}, {3, 64, 16}, {4, 16, 48}, {16, 1, 1}});
  test_copy<T>("odd heads", {{2, 105, 105}, {3, 35, 7}, {5, 7, 21}, {7, 1, 1}});
  test_copy<T>("transpose", {{33, 1, 65}, {65, 33, 1}});
  test_copy<T>("slice", {{4, 24, 40}, {24, 1, 1}});
  test_copy<T>("slice at an odd place", {{5, 3, 10}, {3, 1, 1}});
  test_copy<T>("broadcast", {{7, 32, 0}, {32, 1, 1}});
  test_copy<T>("one element", {{1, 0, 0}});
  test_copy<T>("scalar", {});
  test_copy<T>(
      "eight axes",
      {{2, 1024, 512}, {2, 512, 1024}, {2, 128, 256}, {2, 256, 128}, {2, 64, 64}, {4, 16, 8}, {2, 8, 32}, {8, 1, 1}});
  test_copy<T>("nothing", {{0, 4, 4}, {4, 1, 1}});
}

template <typename A, typename B, typename O>
static void test_contract(const char *name, const std::vector<axis> &axes) {
  const pd_view v = view_of(axes);
  double terms = 1;
  for (const axis &x : axes) terms *= x.out == 0 ? (double)x.size : 1;
  for (int kind = 0; kind < 4; kind++) {
    const bool product = kind & 1, accumulate = (kind & 2) != 0;
    tensor<A> a(reach(v, v.a));
    tensor<B> b(reach(v, v.b));
    tensor<O> out(reach(v, v.out));
    a.random();
    b.random();
    out.random();
    pd_contract(0, &v, a.device, product ? b.device : NULL, 0.75f, accumulate, out.device);
    R->contract(&v, a.ref(), product ? b.ref() : NULL, 0.75, accumulate, out.ref());
    out.expect(std::string(product ? "contract, " : "sum, ") + name + (accumulate ? " added" : ""), 2e-6, sqrt(terms));
  }
}

template <typename A, typename B, typename O> static void test_contracts(bool quick) {
  test_contract<A, B, O>("product", {{5, 7, 11, 0}, {7, 1, 0, 1}, {11, 0, 1, 7}});
  test_contract<A, B, O>("everything", {{40, 0, 33, 33}, {33, 0, 1, 1}});
  test_contract<A, B, O>("inner axis", {{4, 9, 45, 45}, {5, 0, 9, 9}, {9, 1, 1, 1}});
  test_contract<A, B, O>("diagonal", {{9, 1, 10, 1}});
  if (!quick) test_contract<A, B, O>("many results", {{70000, 1, 1, 0}, {3, 0, 70000, 1}});
  test_contract<A, B, O>("long rows", {{3, 1, 5000, 0}, {5000, 0, 1, 1}});
  test_contract<A, B, O>("empty sum", {{6, 1, 1, 1}, {0, 0, 6, 6}});
}

/* ---- sums ---- */

template <typename T, typename O, int cols> static void test_sums(int64_t rows) {
  for (int kind = 0; kind < 4; kind++) {
    const bool product = kind & 1, accumulate = (kind & 2) != 0;
    tensor<T> a((size_t)(rows * cols)), b((size_t)(rows * cols));
    tensor<O> down(cols), across((size_t)rows);
    a.random();
    b.random();
    down.random();
    across.random();
    const std::string how = std::string(product ? " of products" : "") + (accumulate ? " added" : "");
    pd_sum_rows<T, O, cols>(0, rows, a.device, product ? b.device : NULL, accumulate, down.device);
    R->sum_rows(rows, cols, a.ref(), product ? b.ref() : NULL, accumulate, down.ref());
    down.expect(named("sum_rows", rows, cols) + how, 1e-6, sqrt((double)rows));
    pd_sum_cols(0, rows, cols, a.device, product ? b.device : NULL, accumulate, across.device);
    R->sum_cols(rows, cols, a.ref(), product ? b.ref() : NULL, accumulate, across.ref());
    across.expect(named("sum_cols", rows, cols) + how, 1e-6, sqrt((double)cols));
  }
}

/* ---- rows ---- */

template <typename T, int n> static void test_norms(int64_t rows) {
  const size_t size = (size_t)(rows * n);
  for (int centred = 0; centred < 2; centred++) {
    tensor<T> x(size), y(size), dy(size), dx(size);
    tensor<float> rstd((size_t)rows);
    x.random(2, 3);
    dy.random();
    const char *name = centred ? "layernorm" : "rmsnorm";
    (centred ? R->layernorm : R->rmsnorm)(rows, n, (double)1e-5f, x.ref(), y.ref(), rstd.ref());
    if (centred)
      pd_layernorm<T, n>(0, rows, 1e-5f, x.device, y.device, rstd.device);
    else
      pd_rmsnorm<T, n>(0, rows, 1e-5f, x.device, y.device, rstd.device);
    y.expect(named(name, rows, n), 3e-6);
    rstd.expect(named(name, rows, n) + " rstd", 3e-6);
    y.push(); /* rounded: the gradient reads what was stored */
    rstd.push();
    (centred ? R->layernorm_grad : R->rmsnorm_grad)(rows, n, y.ref(), rstd.ref(), dy.ref(), dx.ref());
    if (centred)
      pd_layernorm_grad<T, n>(0, rows, y.device, rstd.device, dy.device, dx.device);
    else
      pd_rmsnorm_grad<T, n>(0, rows, y.device, rstd.device, dy.device, dx.device);
    dx.expect(named(name, rows, n) + " gradient", 3e-6, 1);
  }
}

template <typename T, int n> static void test_softmax(int64_t rows) {
  const size_t size = (size_t)(rows * n);
  tensor<T> x(size), y(size), dy(size), dx(size);
  x.random(20, 100); /* exp alone would be infinite */
  dy.random();
  pd_softmax<T, n>(0, rows, x.device, y.device);
  R->softmax(rows, n, x.ref(), y.ref());
  y.expect(named("softmax", rows, n), 3e-6);
  y.push();
  pd_softmax_grad<T, n>(0, rows, y.device, dy.device, dx.device);
  R->softmax_grad(rows, n, y.ref(), dy.ref(), dx.ref());
  dx.expect(named("softmax", rows, n) + " gradient", 3e-6);
}

template <typename T, int n> static void test_row_kernels(int64_t rows) {
  test_norms<T, n>(rows);
  test_softmax<T, n>(rows);
  test_sums<T, float, n>(rows);
}

/* ---- gather ---- */

template <typename T, int width> static void test_gather(int64_t count_, int64_t vocabulary) {
  const int64_t first = vocabulary / 4, rows = vocabulary - first;
  std::vector<int32_t> ids((size_t)count_);
  for (int32_t &id : ids) id = (int32_t)((draw(&totals()->seed) + 1) / 2 * (double)vocabulary); /* some below `first` */
  for (size_t i = 0; i < ids.size(); i += 3) ids[i] = (int32_t)vocabulary - 1;                  /* a frequent one */
  const integers on_device(ids);
  tensor<T> table((size_t)(rows * width)), out((size_t)(count_ * width)), dout((size_t)(count_ * width));
  tensor<float> dtable((size_t)(rows * width));
  table.random();
  dout.random();
  dtable.random();
  pd_gather<T, width>(0, count_, first, rows, on_device.device, table.device, out.device);
  R->gather(count_, first, rows, width, ids.data(), table.ref(), out.ref());
  out.expect(named("gather", count_, width), 0);
  /* in float and in order: the same bits */
  std::vector<float> expected(dtable.at.begin(), dtable.at.end());
  for (size_t i = 0; i < ids.size(); i++) {
    if (ids[i] < first) continue;
    for (int j = 0; j < width; j++)
      expected[(size_t)(ids[i] - first) * width + (size_t)j] += (float)dout.at[i * width + (size_t)j];
  }
  dtable.at.assign(expected.begin(), expected.end());
  pd_gather_grad<T, float, width>(0, count_, first, rows, on_device.device, dout.device, dtable.device);
  const std::vector<double> got = dtable.pull();
  count(got == dtable.at, named("gather gradient", count_, width) + " " + type_name(T()) + ": other bits");
}

template <typename T> static void test_all(bool quick) {
  for (int64_t n : {1, 7, 8, 1000, 4099}) test_flat<T>(n);
  test_copies<T>();
  test_contracts<T, T, float>(quick);
  test_contracts<T, T, T>(quick);
  test_row_kernels<T, 1>(5);
  test_row_kernels<T, 33>(9);
  test_row_kernels<T, 768>(quick ? 9 : 70);
  test_row_kernels<T, 4097>(2);
#ifndef PD_QUICK
  if (!quick) {
    test_norms<T, 768>(1);
    test_row_kernels<T, 65536>(1);
  }
#endif
  test_sums<T, T, 96>(quick ? 40 : 300);
  test_gather<T, 1>(10, 4);
  test_gather<T, 33>(700, 40);
  test_gather<T, 768>(50, 1000);
  test_gather<T, 1600>(40, 12);
  test_gather<T, 12288>(6, 4); /* more packs than a block takes at a time */
}

int main(int argc, char **argv) {
  const bool quick = has_word(argc, argv, "quick");
#ifndef PD_QUICK
  if (!has_word(argc, argv, "one-type")) test_all<float>(quick);
#endif
  test_all<bf16>(quick);
  return report();
}
