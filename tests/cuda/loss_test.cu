/* Losses, metrics, dropout, optimizers and the norm against the reference: masks bit by bit, sums in double. */
#include "kernel_check.h"

#include "pd_dropout.cuh"
#include "pd_optimizer.cuh"
#include "pd_xent.cuh"

static const pd_kernels_f64 *R = &pd_set_ref_f64;

static std::string named(const char *name, int64_t a, int64_t b) {
  return std::string(name) + " " + std::to_string(a) + "x" + std::to_string(b);
}

static bool close_to(double got, double want, double relative) {
  return fabs(got - want) <= relative * fabs(want) + 1e-38;
}

/* ---- cross-entropy ---- */

template <typename T> static void test_xent(int64_t rows, int64_t classes) {
  const size_t size = (size_t)(rows * classes), count_ = (size_t)rows;
  std::vector<int32_t> ids(count_);
  for (int32_t &id : ids) id = (int32_t)((draw(&totals()->seed) + 1) / 2 * (double)classes);
  if (rows > 2) ids[1] = PD_IGNORE;
  const integers targets(ids);
  const double inverse = 1.0 / (double)(rows > 2 ? rows - 1 : rows);
  const scalar<double> on_device(inverse);
  const scalar<float> dloss(1.5f);
  tensor<T> x(size), dx(size);
  tensor<float> row_max(count_), sums(2 * count_), loss(1);
  x.random(30, 200);
  const auto reference = [&] {
    R->xent_max(rows, classes, x.ref(), row_max.ref());
    R->xent_sums(rows, classes, 0, x.ref(), ids.data(), row_max.ref(), sums.ref());
    loss.at[0] = R->xent_loss(rows, ids.data(), sums.ref()) * inverse;
  };
  reference();
  pd_xent_max(0, rows, classes, x.device, row_max.device);
  row_max.expect(named("xent_max", rows, classes), 0);
  pd_xent_sums(0, rows, classes, 0, x.device, targets.device, row_max.device, sums.device);
  sums.expect(named("xent_sums", rows, classes), 1e-6);
  pd_xent_loss(0, rows, targets.device, sums.device, on_device.device, loss.device);
  loss.expect(named("xent_loss", rows, classes), 1e-6);
  pd_fill(0, rows, 0.0f, row_max.device);
  pd_fill(0, 2 * rows, 0.0f, sums.device);
  pd_xent(0, rows, classes, x.device, targets.device, row_max.device, sums.device);
  row_max.expect(named("xent maximum", rows, classes), 0);
  sums.expect(named("xent sums in one reading", rows, classes), 1e-6);
  R->xent_grad(rows, classes, 0, 2 * inverse * 1.5, x.ref(), ids.data(), row_max.ref(), sums.ref(), dx.ref());
  pd_xent_grad(0, rows, classes, 0, on_device.device, 2, dloss.device, x.device, targets.device, row_max.device,
               sums.device, dx.device);
  dx.expect(named("xent_grad", rows, classes), 2e-6);
  for (double &v : dx.at) v /= 3;
  pd_xent_grad(0, rows, classes, 0, on_device.device, 1, NULL, x.device, targets.device, row_max.device, sums.device,
               dx.device);
  dx.expect(named("xent_grad alone", rows, classes), 2e-6);
}

/* The class axis over two ranks: parts of the same logits, reduced between the steps. */
template <typename T> static void test_xent_split(int64_t rows, int64_t classes) {
  const int64_t cut = classes / 3, parts[2] = {cut, classes - cut};
  std::vector<int32_t> ids((size_t)rows);
  for (size_t i = 0; i < ids.size(); i++) ids[i] = (int32_t)((i * 7919) % (size_t)classes);
  const integers targets(ids);
  tensor<float> row_max((size_t)rows), sums((size_t)(2 * rows));
  std::vector<double> whole((size_t)(rows * classes));
  tensor<T> first((size_t)(rows * parts[0])), second((size_t)(rows * parts[1]));
  first.random(5);
  second.random(5);
  for (int64_t r = 0; r < rows; r++) {
    memcpy(&whole[(size_t)(r * classes)], first.ref() + r * parts[0], (size_t)parts[0] * sizeof(double));
    memcpy(&whole[(size_t)(r * classes + cut)], second.ref() + r * parts[1], (size_t)parts[1] * sizeof(double));
  }
  R->xent_max(rows, classes, whole.data(), row_max.ref());
  R->xent_sums(rows, classes, 0, whole.data(), ids.data(), row_max.ref(), sums.ref());
  row_max.push(); /* as after the reduction over ranks */
  std::vector<double> total((size_t)(2 * rows), 0);
  tensor<T> *part[2] = {&first, &second};
  for (int rank = 0; rank < 2; rank++) {
    tensor<float> mine((size_t)(2 * rows));
    pd_xent_sums(0, rows, parts[rank], rank * cut, part[rank]->device, targets.device, row_max.device, mine.device);
    const std::vector<double> got = mine.pull();
    for (size_t i = 0; i < got.size(); i++) total[i] += got[i];
  }
  bool right = true;
  for (size_t i = 0; i < total.size(); i++)
    right = right && fabs(total[i] - sums.at[i]) <= 1e-5 * (fabs(sums.at[i]) + 1);
  count(right, named("xent_sums over two parts", rows, classes) + " " + type_name(T()));
  sums.push();
  const scalar<double> one(1.0);
  for (int rank = 0; rank < 2; rank++) {
    tensor<T> dx((size_t)(rows * parts[rank]));
    R->xent_grad(rows, parts[rank], rank * cut, 1, part[rank]->ref(), ids.data(), row_max.ref(), sums.ref(), dx.ref());
    pd_xent_grad(0, rows, parts[rank], rank * cut, one.device, 1, NULL, part[rank]->device, targets.device,
                 row_max.device, sums.device, dx.device);
    dx.expect(named("xent_grad of a part", rows, parts[rank]), 2e-6);
  }
}

template <typename T> static void test_accuracy(int64_t rows, int64_t classes) {
  std::vector<int32_t> ids((size_t)rows);
  tensor<T> x((size_t)(rows * classes));
  tensor<float> out(1);
  x.random();
  for (int64_t r = 0; r < rows; r++) {
    int64_t best = 0;
    for (int64_t c = 1; c < classes; c++) {
      if (x.at[(size_t)(r * classes + c)] > x.at[(size_t)(r * classes + best)]) best = c;
    }
    ids[(size_t)r] = r % 3 == 0 ? (int32_t)((best + 1) % classes) : (int32_t)best;
    if (r % 5 == 1) x.at[(size_t)(r * classes)] = x.at[(size_t)(r * classes + best)]; /* equals: the first one counts */
    if (r % 7 == 2) ids[(size_t)r] = PD_IGNORE;
  }
  x.push();
  const integers targets(ids);
  const scalar<double> inverse(0.25);
  pd_accuracy(0, rows, classes, x.device, targets.device, inverse.device, out.device);
  out.at[0] = 0.25 * (double)R->accuracy(rows, classes, x.ref(), ids.data());
  out.expect(named("accuracy", rows, classes), 0);
}

template <typename T> static void test_mse(int64_t n) {
  tensor<T> a((size_t)n), b((size_t)n), da((size_t)n);
  tensor<float> out(1);
  a.random();
  b.random();
  pd_mse(0, n, 0.5, a.device, b.device, out.device);
  out.at[0] = 0.5 * R->mse(n, a.ref(), b.ref());
  out.expect(named("mse", n, 1), 2e-7);
  const scalar<float> dloss(2.0f);
  R->mse_grad(n, 0.25 * 2, a.ref(), b.ref(), da.ref());
  pd_mse_grad(0, n, 0.25f, dloss.device, a.device, b.device, da.device);
  da.expect(named("mse_grad", n, 1), 2e-7);
}

/* ---- dropout ---- */

template <typename T>
static void test_dropout(const char *name, int64_t samples, int64_t n, const pd_local *at, double p) {
  const size_t size = (size_t)(samples * n);
  const pd_key key = {1234567890123456789ull, 987654321};
  const uint64_t step = 41;
  const scalar<uint64_t> on_device(step);
  tensor<T> x(size), y(size);
  for (double &v : x.at) v = draw(&totals()->seed) + 2; /* never 0 */
  x.push();
  pd_dropout(0, key, on_device.device, 17, samples, n, at, p, x.device, y.device);
  R->dropout(key, step, 17, samples, n, at, p, x.ref(), y.ref());
  const std::vector<double> got = y.pull();
  size_t wrong = 0;
  for (size_t i = 0; i < size; i++) wrong += (got[i] == 0) != (y.at[i] == 0);
  count(wrong == 0,
        std::string("dropout mask, ") + name + " " + type_name(T()) + ": " + std::to_string(wrong) + " differ");
  y.expect(std::string("dropout, ") + name, 2e-7);
}

template <typename T> static void test_dropouts() {
  test_dropout<T>("whole", 3, 1000, NULL, 0.1);
  test_dropout<T>("odd", 5, 33, NULL, 0.5);
  test_dropout<T>("nothing dropped", 2, 8, NULL, 0);
  test_dropout<T>("everything dropped", 2, 8, NULL, 1);
  const pd_local rank1 = {2, {6, 16}, {0, 16}, {6, 32}}; /* the second half of the last axis */
  test_dropout<T>("half of the last axis", 2, 96, &rank1, 0.3);
  const pd_local odd = {2, {6, 3}, {0, 3}, {6, 6}};
  test_dropout<T>("an odd half", 2, 18, &odd, 0.3);
  const pd_local middle = {3, {4, 5, 8}, {0, 5, 0}, {4, 10, 8}};
  test_dropout<T>("half of a middle axis", 3, 160, &middle, 0.3);
  const pd_local shifted = {1, {8}, {2}, {16}}; /* starts inside a block of random words */
  test_dropout<T>("begins at an odd place", 2, 8, &shifted, 0.3);
}

/* ---- optimizers ---- */

static pd_step_values step_values(int update, int finite) {
  pd_step_values v = {};
  v.step = 3, v.rate = 1e-2, v.c1 = 1 - 0.9 * 0.9 * 0.9, v.c2 = 1 - 0.99 * 0.99 * 0.99;
  v.update = update, v.finite = finite, v.factor = 0.5;
  return v;
}

/* the copy holds the rounded weights, bit by bit */
template <typename T> static void expect_copy(const std::string &what, const tensor<float> &w, const tensor<T> &copy) {
  const std::vector<double> weights = w.pull(), rounded_weights = copy.pull();
  bool same = true;
  for (size_t i = 0; i < weights.size(); i++) same = same && rounded_weights[i] == rounded(weights[i], T());
  count(same, what + ": copy");
}

/* a parameter as Adam and Lamb have it */
template <typename T> struct trained {
  tensor<float> w, g, m, v;
  tensor<T> copy;
  explicit trained(size_t size) : w(size), g(size), m(size), v(size), copy(size) {
    w.random();
    g.random();
    m.random(0.1);
    v.random(0.1, 0.1);
    copy.random();
  }
  void expect(const std::string &what, bool copied) {
    w.expect(what, 5e-7);
    m.expect(what + " m", 5e-7);
    v.expect(what + " v", 5e-7);
    if (copied)
      expect_copy(what, w, copy);
    else
      copy.expect(what + " copy untouched", 0);
  }
};

template <typename T> static void test_adamw(int64_t n, bool coupled, bool copied, int update, int finite) {
  const size_t size = (size_t)n;
  trained<T> p(size);
  const pd_step_values values = step_values(update, finite);
  const scalar<pd_step_values> on_device(values);
  pd_adamw(0, n, p.w.device, copied ? p.copy.device : (T *)NULL, p.g.device, p.m.device, p.v.device, on_device.device,
           0.9, 0.99, 1e-8, 0.1, coupled);
  if (update && finite) {
    std::vector<double> gradient(size);
    for (size_t i = 0; i < size; i++) gradient[i] = values.factor * p.g.at[i] + (coupled ? 0.1 * p.w.at[i] : 0);
    R->adamw(n, p.w.ref(), gradient.data(), p.m.ref(), p.v.ref(), 1, values.rate, 0.9, 0.99, 1e-8, coupled ? 0 : 0.1,
             values.c1, values.c2);
  }
  const std::string what = named(coupled ? "adam" : "adamw", n, copied) + (update && finite ? "" : " held");
  p.expect(what, copied && update && finite);
}

/* Both parts; adapts: the tensor moves in proportion to its own length. */
template <typename T> static void test_lamb(int64_t n, bool adapts, bool copied, int update, int finite) {
  const size_t size = (size_t)n;
  trained<T> p(size);
  tensor<float> spare(2 * PD_NORM_BLOCKS); /* as doubles */
  struct pair {
    double length, moved;
  };
  const scalar<pair> lengths({0, 0});
  const pd_step_values values = step_values(update, finite);
  const scalar<pd_step_values> on_device(values);
  double *const on = (double *)lengths.device;
  pd_lamb_measure(0, n, p.w.device, p.g.device, p.m.device, p.v.device, on_device.device, 0.9, 0.99, 1e-6, 0.1,
                  (double *)spare.device, on);
  pd_lamb(0, n, p.w.device, copied ? p.copy.device : (T *)NULL, p.m.device, p.v.device, on_device.device, 1e-6, 0.1,
          adapts ? on : NULL);
  const std::string what =
      named(adapts ? "lamb" : "lamb at the common rate", n, copied) + (update && finite ? "" : " held");
  if (update && finite) {
    const double length = R->sum_squares(n, p.w.ref());
    const double moved = R->lamb_moments(n, p.w.ref(), p.g.ref(), p.m.ref(), p.v.ref(), values.factor, 0.9, 0.99, 1e-6,
                                         0.1, values.c1, values.c2);
    R->lamb_step(n, p.w.ref(), p.m.ref(), p.v.ref(), values.rate * (adapts ? sqrt(length / moved) : 1), 1e-6, 0.1,
                 values.c1, values.c2);
    const pair got = lengths.pull();
    checksum(&got, sizeof got);
    count(close_to(got.length, length, 1e-11) && close_to(got.moved, moved, 3e-6), what + ": lengths");
  }
  p.expect(what, copied && update && finite);
}

template <typename T> static void test_sgd(int64_t n, double momentum, bool copied, int update) {
  const size_t size = (size_t)n;
  tensor<float> w(size), g(size), buffer(size);
  tensor<T> copy(size);
  w.random();
  g.random();
  buffer.random();
  copy.random();
  const pd_step_values values = step_values(update, 1);
  const scalar<pd_step_values> on_device(values);
  pd_sgd(0, n, w.device, copied ? copy.device : (T *)NULL, g.device, momentum > 0 ? buffer.device : NULL,
         on_device.device, momentum, 0.01);
  if (update) {
    R->sgd(n, w.ref(), g.ref(), momentum > 0 ? buffer.ref() : NULL, values.factor, values.rate, momentum, 0.01);
  }
  const std::string what = named(momentum > 0 ? "sgd with momentum" : "sgd", n, copied) + (update ? "" : " held");
  w.expect(what, 3e-7);
  buffer.expect(what + " buffer", 3e-7);
  if (copied && update)
    expect_copy(what, w, copy);
  else
    copy.expect(what + " copy untouched", 0);
}

template <typename T> static void test_statistic(int64_t n, bool copied, int update, int finite) {
  tensor<float> w((size_t)n), sums((size_t)n);
  tensor<T> copy((size_t)n);
  w.random();
  sums.random(40);
  copy.random();
  const scalar<pd_step_values> values(step_values(update, finite));
  pd_update_statistic(0, n, w.device, copied ? copy.device : (T *)NULL, sums.device, values.device, 0.1, 24);
  for (size_t i = 0; i < w.at.size() && update && finite; i++) w.at[i] = 0.9 * w.at[i] + 0.1 * (sums.at[i] / 24);
  const std::string what = named("statistic", n, copied) + (update && finite ? "" : " held");
  w.expect(what, 1e-7);
  if (copied && update && finite)
    expect_copy(what, w, copy);
  else
    copy.expect(what + " copy untouched", 0);
}

static void test_norm() {
  for (int64_t n : {0, 1, 3, 1000, 5000, 1100003}) {
    tensor<float> x((size_t)n);
    x.random();
    tensor<float> spare(2 * PD_NORM_BLOCKS); /* as doubles */
    const scalar<double> out(-1.0);
    pd_sum_squares(0, n, x.device, (double *)spare.device, out.device);
    const double got = out.pull(), want = R->sum_squares(n, x.ref());
    checksum(&got, sizeof got);
    count(close_to(got, want, 1e-11), named("sum_squares", n, 1));
  }
  const double squares[4] = {4, 0, 5, 16};
  for (int kind = 0; kind < 3; kind++) {
    const double clip = kind == 0 ? 0 : kind == 1 ? 2.5 : 100;
    struct four {
      double at[4];
    } list;
    memcpy(list.at, squares, sizeof squares);
    const scalar<four> on_device(list);
    pd_step_values before = step_values(1, 0);
    const scalar<pd_step_values> values(before);
    pd_decide(0, 4, (const double *)on_device.device, clip, values.device);
    const pd_step_values after = values.pull();
    count(after.norm == 5 && after.finite == 1 && after.factor == (kind == 1 ? 0.5 : 1.0) && after.rate == before.rate,
          "decide with clip " + std::to_string(clip));
  }
  const double bad[2] = {NAN, INFINITY};
  for (double square : bad) {
    const scalar<double> on_device(square);
    const scalar<pd_step_values> values(step_values(1, 1));
    pd_decide(0, 1, on_device.device, 1, values.device);
    count(values.pull().finite == 0, "decide: a norm that is not finite");
  }
  const scalar<float> value(0.1f);
  const scalar<double> result(2.0);
  pd_add_result(0, value.device, result.device);
  count(result.pull() == 2.0 + (double)0.1f, "add_result");
}

template <typename T> static void test_all() {
  test_lamb<T>(200000, true, false, 1, 1); /* more than one turn of all blocks */
  test_xent<T>(1, 1);
  test_xent<T>(5, 33);
  test_xent<T>(9, 1000);
  test_xent<T>(3, 50257);
  test_xent<T>(2, 65536);
  test_xent_split<T>(6, 1000);
  test_xent_split<T>(4, 33);
  test_accuracy<T>(40, 10);
  test_accuracy<T>(11, 1024);
  test_accuracy<T>(3, 1);
  for (int64_t n : {1, 5, 4096, 10007}) test_mse<T>(n);
  test_dropouts<T>();
  for (int64_t n : {1, 4, 1030}) {
    for (int copied = 0; copied < 2; copied++) {
      test_adamw<T>(n, false, copied, 1, 1);
      test_adamw<T>(n, true, copied, 1, 1);
      test_adamw<T>(n, false, copied, 0, 1);
      test_adamw<T>(n, true, copied, 1, 0);
      test_sgd<T>(n, 0, copied, 1);
      test_sgd<T>(n, 0.9, copied, 1);
      test_sgd<T>(n, 0.9, copied, 0);
      test_lamb<T>(n, true, copied, 1, 1);
      test_lamb<T>(n, false, copied, 1, 1);
      test_lamb<T>(n, true, copied, 1, 0);
      test_statistic<T>(n, copied, 1, 1);
      test_statistic<T>(n, copied, 0, 1);
      test_statistic<T>(n, copied, 1, 0);
    }
  }
}

int main(int argc, char **argv) {
#ifndef PD_QUICK
  if (!has_word(argc, argv, "one-type")) test_all<float>();
#endif
  test_all<bf16>();
  test_norm();
  return report();
}
