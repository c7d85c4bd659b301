/* Tests of the sets of kernels of one real type, PD_R, against ref in f64: F(name) adds the type's suffix, SUITE names
 * the tests, UNIT is the type's rounding. kernels_test.c includes this once for each type. */

#include "kernels_numbers.inc.h"

static double *F(draw)(int64_t n, double low, double high) { /* numbers that PD_R has */
  double *x = hold(sizeof *x * (size_t)n);
  for (int64_t i = 0; i < n; i++) x[i] = (double)(PD_R)between(low, high);
  return x;
}

/* Every element within tol * (|want| + scale), where scale is the largest |want|, or `least` if that is more: the size
 * of what was added up, where the sum may cancel. */
static void F(expect_near)(const char *what, int64_t n, const PD_R *got, const double *want, double tol, double least) {
  double scale = least;
  for (int64_t i = 0; i < n; i++) {
    if (isfinite(want[i]) && fabs(want[i]) > scale) scale = fabs(want[i]);
  }
  for (int64_t i = 0; i < n; i++) {
    const bool same = isinf(want[i]) ? (double)got[i] == want[i]
                                     : fabs((double)got[i] - want[i]) <= tol * (fabs(want[i]) + scale) + 1e-300;
    cr_assert(same, "%s: element %d of %d is %.17g, not %.17g", what, (int)i, (int)n, (double)got[i], want[i]);
  }
  for (int64_t i = n; i < n + GUARD; i++) {
    cr_assert(got[i] == (PD_R)12345, "%s: element %d after the end was written", what, (int)(i - n));
  }
}

static void F(expect)(const char *what, int64_t n, const PD_R *got, const double *want, double tol) {
  F(expect_near)(what, n, got, want, tol, 0);
}

static const F(pd_kernels) * F(table)(int which) { /* 0: host, 1: ref */
  return F(pd_kernels_select)(which == 0 ? "host" : "ref");
}

#undef EACH_SET
/* ref in f64 is what the others are measured against */
#define EACH_SET(k)                                                                                                    \
  const F(pd_kernels) * k;                                                                                             \
  for (int which = 0; which < (sizeof(PD_R) == 4 ? 2 : 1) && (k = F(table)(which)) != NULL; which++)

Test(SUITE, gemm, .init = start, .fini = let_go) {
  EACH_SET(k) {
    for (int round = 0; round < 250; round++) {
      int64_t m = some_size(), n = some_size(), p = some_size();
      if (round == 0) m = 300, n = 400, p = 500;
      if (round == 1) m = 0;
      if (round == 2) p = 0;
      if (round == 3) m = 1, n = 3000, p = 700;
      if (round == 4) m = 2000, n = 1, p = 900;
      if (which == 1 && round == 0) m = 60;
      if ((double)m * (double)n * (double)p > 6e7) continue;
      const bool ta = coin(), tb = coin();
      const int64_t lda = (ta ? m : p) + (coin() ? 0 : 3), ldb = (tb ? p : n) + (coin() ? 0 : 5),
                    ldc = n + (coin() ? 0 : 2);
      const int64_t size_a = lda * (ta ? p : m), size_b = ldb * (tb ? n : p), size_c = ldc * m;
      const double alpha = coin() ? 1 : 0.5, beta = coin() ? 0 : coin() ? 1 : -0.25;
      const double *a = F(draw)(size_a, -1, 1), *b = F(draw)(size_b, -1, 1);
      double *want = F(draw)(size_c, -1, 1);
      PD_R *c = F(copy_of)(size_c, want);
      for (int64_t i = 0; beta == 0 && i < m; i++) {
        for (int64_t j = 0; j < n; j++) c[i * ldc + j] = (PD_R)NAN; /* must be gone, and the padding must stay */
      }
      k->gemm(ta, tb, m, n, p, (PD_R)alpha, F(copy_of)(size_a, a), lda, F(copy_of)(size_b, b), ldb, (PD_R)beta, c, ldc);
      ref->gemm(ta, tb, m, n, p, alpha, a, lda, b, ldb, beta, want, ldc);
      char what[128];
      snprintf(what, sizeof what, "%s gemm %d%d %dx%dx%d ld %d %d %d beta %g", k->set, ta, tb, (int)m, (int)n, (int)p,
               (int)lda, (int)ldb, (int)ldc, beta);
      F(expect)(what, size_c, c, want, UNIT * (20 + 4 * sqrt((double)p)));
      cr_assert(omp_get_max_threads() == 2, "%s leaves %d threads", what, omp_get_max_threads());
      let_go();
    }
  }
}

Test(SUITE, contract_and_copy, .init = start, .fini = let_go) {
  EACH_SET(k) {
    for (int round = 0; round < 600; round++) {
      pd_view v;
      int64_t count_out, count_a, count_b;
      const bool plain = round % 3 == 2, copying = round % 6 == 5, accumulate = coin();
      some_contraction(round, &v, plain, &count_out, &count_a, &count_b);
      double work = 1;
      for (int i = 0; i < v.rank; i++) work *= (double)v.size[i];
      if (work > 3e6) continue;
      const double *a = F(draw)(count_a, -1, 1), *b = F(draw)(count_b, -1, 1);
      double *want = F(draw)(count_out, -1, 1);
      PD_R *out = accumulate ? F(copy_of)(count_out, want) : F(copy_of)(count_out, NULL);
      if (copying) {
        k->copy(&v, F(copy_of)(count_a, a), accumulate, out);
        ref->copy(&v, a, accumulate, want);
      } else {
        k->contract(&v, F(copy_of)(count_a, a), plain ? NULL : F(copy_of)(count_b, b), (PD_R)0.5, accumulate, out);
        ref->contract(&v, a, plain ? NULL : b, 0.5, accumulate, want);
      }
      char what[600];
      snprintf(what, sizeof what, "%s %s%s", k->set, copying ? "copy" : "contract", shape_text(&v));
      F(expect)(what, count_out, out, want, UNIT * 150);
      let_go();
    }
  }
}

Test(SUITE, contract_large, .init = start, .fini = let_go) {
  const F(pd_kernels) *k = F(table)(0);
  const pd_view views[] = {
      {3, {300, 200, 150}, {200, 1, 0}, {150, 0, 1}, {0, 1, 200}}, /* product */
      {3, {300, 200, 150}, {1, 300, 0}, {1, 0, 300}, {0, 150, 1}}, /* transposed result and left */
      {4, {3, 65, 70, 33}, {65 * 70, 70, 1, 0}, {65 * 33, 33, 0, 1}, {70 * 33, 0, 33, 1}}, /* a batch of them */
      {4, {5, 33, 40, 64}, {0, 40, 1, 0}, {33 * 64, 64, 0, 1}, {40 * 64, 0, 64, 1}},       /* two summed axes */
      {4, {4, 50, 3, 20}, {50 * 3 * 20, 3 * 20, 20, 1}, {50 * 60, 20, 50 * 20, 1}, {0}},   /* no b: permuted */
      {2, {500, 300}, {0, 1}, {300, 1}, {300, 1}},                                         /* columns */
      {2, {500, 300}, {1, 0}, {300, 1}, {300, 1}},                                         /* rows */
      {1, {200001}, {0}, {1}, {1}},                                                        /* to one number */
      {2, {5, 40001}, {1, 0}, {1, 5}, {40001, 1}}, /* few long ones, mixed strides */
      {2, {300, 200}, {200, 1}, {1, 0}, {0, 1}},   /* outer product */
  };
  for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
    const double *a = F(draw)(210000, -1, 1), *b = F(draw)(210000, -1, 1);
    double *want = F(draw)(210000, -1, 1);
    for (int form = 0; form < 4; form++) {
      PD_R *out = F(copy_of)(210000, want);
      double *expected = F(wide)(210000, out);
      const bool plain = i == 4 || form >= 2;
      k->contract(&views[i], F(copy_of)(210000, a), plain ? NULL : F(copy_of)(210000, b), 2, form % 2 == 1, out);
      ref->contract(&views[i], a, plain ? NULL : b, 2, form % 2 == 1, expected);
      char what[600];
      snprintf(what, sizeof what, "form %d of%s", form, shape_text(&views[i]));
      F(expect)(what, 210000, out, expected, UNIT * 100);
    }
    let_go();
  }
}

Test(SUITE, copy_large, .init = start, .fini = let_go) {
  const F(pd_kernels) *k = F(table)(0);
  const pd_view views[] = {
      {2, {301, 257}, {1, 301}, {257, 1}, {0}},                                              /* transposed */
      {4, {3, 41, 5, 33}, {41 * 5 * 33, 33, 41 * 33, 1}, {41 * 5 * 33, 5 * 33, 33, 1}, {0}}, /* heads out */
      {2, {300, 200}, {250, 1}, {200, 1}, {0}}, /* into a part of wider rows */
      {2, {300, 200}, {200, 1}, {0, 1}, {0}},   /* one row to all */
      {2, {300, 200}, {200, 1}, {1, 0}, {0}},   /* one column to all */
      {1, {70001}, {1}, {1}, {0}},
      {1, {20001}, {3}, {2}, {0}},
      {2, {100, 401}, {0, 1}, {401, 1}, {0}}, /* summed */
  };
  for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
    for (int accumulate = 0; accumulate < 2; accumulate++) {
      const double *a = F(draw)(80000, -1, 1), *before = F(draw)(80000, -1, 1);
      PD_R *out = F(copy_of)(80000, before);
      double *want = F(wide)(80000, out);
      k->copy(&views[i], F(copy_of)(80000, a), accumulate, out);
      ref->copy(&views[i], a, accumulate, want);
      F(expect)(shape_text(&views[i]), 80000, out, want, UNIT * 30);
    }
    let_go();
  }
}

Test(SUITE, flat, .init = start, .fini = let_go) {
  EACH_SET(k) {
    for (int round = 0; round < 40; round++) {
      const int64_t n = round == 0 ? 100003 : round == 1 ? 0 : some_size();
      const double *a = F(draw)(n, -1, 1), *b = F(draw)(n, -1, 1);
      double *want = F(draw)(n, -1, 1);
      PD_R *out = F(copy_of)(n, want), *left = F(copy_of)(n, a), *right = F(copy_of)(n, b);
      k->add(n, left, out);
      ref->add(n, a, want);
      F(expect)("add", n, out, want, UNIT * 2);
      k->scale(n, (PD_R)0.75, out);
      ref->scale(n, 0.75, want);
      F(expect)("scale", n, out, want, UNIT * 4);
      k->mse_grad(n, (PD_R)0.75, left, right, out);
      ref->mse_grad(n, 0.75, a, b, want);
      F(expect)("mse_grad", n, out, want, UNIT * 4);
      cr_assert_float_eq(k->mse(n, left, right), ref->mse(n, a, b), 1e-12 * (double)(n + 1));
      cr_assert_float_eq(k->sum_squares(n, left), ref->sum_squares(n, a), 1e-12 * (double)(n + 1));
      k->fill(n, (PD_R)0.5, out);
      ref->fill(n, 0.5, want);
      F(expect)("fill", n, out, want, 0);
      let_go();
    }
  }
}

Test(SUITE, rows, .init = start, .fini = let_go) {
  EACH_SET(k) {
    for (int round = 0; round < 60; round++) {
      int64_t rows, n;
      some_matrix(round, &rows, &n);
      const double offset = round % 4 == 3 ? 100 : 0;
      const double *x = F(draw)(rows * n, offset - 2, offset + 2), *dy = F(draw)(rows * n, -1, 1);
      PD_R *in = F(copy_of)(rows * n, x), *up = F(copy_of)(rows * n, dy);
      double *want = F(draw)(rows * n, 0, 0), *want_rstd = F(draw)(rows, 0, 0), *want_dx = F(draw)(rows * n, 0, 0);
      char what[100];
      for (int kind = 0; kind < 3; kind++) {
        PD_R *y = F(copy_of)(rows * n, NULL), *rstd = F(copy_of)(rows, NULL), *dx = F(copy_of)(rows * n, NULL);
        snprintf(what, sizeof what, "%s kind %d, %d x %d", k->set, kind, (int)rows, (int)n);
        if (kind == 0) {
          k->layernorm(rows, n, (PD_R)1e-5, in, y, rstd);
          ref->layernorm(rows, n, (double)(PD_R)1e-5, x, want, want_rstd);
        } else if (kind == 1) {
          k->rmsnorm(rows, n, (PD_R)1e-5, in, y, rstd);
          ref->rmsnorm(rows, n, (double)(PD_R)1e-5, x, want, want_rstd);
        } else {
          k->softmax(rows, n, in, y);
          ref->softmax(rows, n, x, want);
        }
        F(expect)(what, rows * n, y, want, UNIT * (20 + 20 * offset + sqrt((double)n)));
        if (kind < 2) F(expect)(what, rows, rstd, want_rstd, UNIT * (20 + sqrt((double)n)));
        /* gradients from the same values, so that only the gradient's own error is measured */
        const double *same_y = F(wide)(rows * n, y), *same_rstd = F(wide)(rows, rstd);
        if (kind == 0) {
          k->layernorm_grad(rows, n, y, rstd, up, dx);
          ref->layernorm_grad(rows, n, same_y, same_rstd, dy, want_dx);
        } else if (kind == 1) {
          k->rmsnorm_grad(rows, n, y, rstd, up, dx);
          ref->rmsnorm_grad(rows, n, same_y, same_rstd, dy, want_dx);
        } else {
          k->softmax_grad(rows, n, y, up, dx);
          ref->softmax_grad(rows, n, same_y, dy, want_dx);
        }
        double steep = 1; /* what the gradient of a norm multiplies by */
        for (int64_t r = 0; kind < 2 && r < rows; r++) steep = fmax(steep, same_rstd[r]);
        F(expect_near)(what, rows * n, dx, want_dx, UNIT * 40, steep);
      }
      for (int form = 0; form < 4; form++) {
        const bool both = form % 2 == 1, accumulate = form >= 2;
        const double *before = F(draw)(n + rows, -1, 1);
        PD_R *columns = F(copy_of)(n, accumulate ? before : NULL), *sums = F(copy_of)(rows, accumulate ? before : NULL);
        double *want_columns = hold(sizeof(double) * (size_t)n), *want_sums = hold(sizeof(double) * (size_t)rows);
        memcpy(want_columns, before, sizeof(double) * (size_t)n);
        memcpy(want_sums, before, sizeof(double) * (size_t)rows);
        k->sum_rows(rows, n, in, both ? up : NULL, accumulate, columns);
        ref->sum_rows(rows, n, x, both ? dy : NULL, accumulate, want_columns);
        F(expect)("sum_rows", n, columns, want_columns, UNIT * 10);
        k->sum_cols(rows, n, in, both ? up : NULL, accumulate, sums);
        ref->sum_cols(rows, n, x, both ? dy : NULL, accumulate, want_sums);
        F(expect)("sum_cols", rows, sums, want_sums, UNIT * 10);
      }
      let_go();
    }
  }
}

Test(SUITE, gather, .init = start, .fini = let_go) {
  EACH_SET(k) {
    for (int round = 0; round < 40; round++) {
      const int64_t count = round == 0 ? 500 : some_rows(), rows = some_rows(), width = round == 0 ? 600 : some_size();
      const int64_t first = pick(0, 20);
      int32_t *ids = hold(sizeof *ids * (size_t)count);
      for (int64_t i = 0; i < count; i++) ids[i] = (int32_t)pick(first - 3, first + rows + 2); /* other ranks' too */
      if (count > 1) ids[0] = PD_IGNORE;
      const double *table = F(draw)(rows * width, -1, 1), *dout = F(draw)(count * width, -1, 1);
      double *want = F(draw)(count * width, 5, 6), *want_table = F(draw)(rows * width, -1, 1);
      PD_R *out = F(copy_of)(count * width, NULL), *dtable = F(copy_of)(rows * width, want_table);
      k->gather(count, first, rows, width, ids, F(copy_of)(rows * width, table), out);
      ref->gather(count, first, rows, width, ids, table, want);
      F(expect)("gather", count * width, out, want, 0);
      k->gather_grad(count, first, rows, width, ids, F(copy_of)(count * width, dout), dtable);
      ref->gather_grad(count, first, rows, width, ids, dout, want_table);
      F(expect)("gather_grad", rows * width, dtable, want_table, UNIT * 50);
      let_go();
    }
  }
}

Test(SUITE, attention, .init = start, .fini = let_go) {
  EACH_SET(k) {
    for (int round = 0; round < 40; round++) {
      static const int64_t lengths[] = {1, 2, 5, 17, 64, 65, 70, 130};
      const int64_t b = round == 2 ? 0 : pick(1, 3), g = pick(1, 3), h = g * pick(1, 3), d = pick(1, 20);
      const int64_t s = lengths[pick(0, 7)], t = coin() ? s : lengths[pick(0, 7)];
      const bool causal = coin();
      if (which == 1 && s * t > 5000) continue;
      const int64_t nq = b * s * h * d, nk = b * t * g * d, nl = b * h * s;
      const double *q = F(draw)(nq, -2, 2), *key = F(draw)(nk, -2, 2), *v = F(draw)(nk, -2, 2),
                   *up = F(draw)(nq, -1, 1);
      PD_R *rq = F(copy_of)(nq, q), *rk = F(copy_of)(nk, key), *rv = F(copy_of)(nk, v), *rup = F(copy_of)(nq, up);
      PD_R *o = F(copy_of)(nq, NULL), *lse = F(copy_of)(nl, NULL);
      double *want = F(draw)(nq, 0, 0), *want_lse = F(draw)(nl, 0, 0);
      char what[160];
      snprintf(what, sizeof what, "%s b %d s %d t %d h %d g %d d %d causal %d", k->set, (int)b, (int)s, (int)t, (int)h,
               (int)g, (int)d, causal);
      k->sdpa(b, s, t, h, g, d, causal, rq, rk, rv, o, lse);
      ref->sdpa(b, s, t, h, g, d, causal, q, key, v, want, want_lse);
      F(expect)(what, nq, o, want, UNIT * 60);
      F(expect)(what, nl, lse, want_lse, UNIT * 30);
      PD_R *dq = F(copy_of)(nq, NULL), *dk = F(copy_of)(nk, NULL), *dv = F(copy_of)(nk, NULL);
      double *want_dq = F(draw)(nq, 0, 0), *want_dk = F(draw)(nk, 0, 0), *want_dv = F(draw)(nk, 0, 0);
      k->sdpa_grad(b, s, t, h, g, d, causal, rq, rk, rv, o, lse, rup, dq, dk, dv);
      ref->sdpa_grad(b, s, t, h, g, d, causal, q, key, v, F(wide)(nq, o), F(wide)(nl, lse), up, want_dq, want_dk,
                     want_dv);
      F(expect_near)(what, nq, dq, want_dq, UNIT * 200, 1);
      F(expect_near)(what, nk, dk, want_dk, UNIT * 200, 1);
      F(expect_near)(what, nk, dv, want_dv, UNIT * 200, 1);
      let_go();
    }
  }
}

Test(SUITE, rope, .init = start, .fini = let_go) {
  EACH_SET(k) {
    for (int round = 0; round < 30; round++) {
      const int64_t b = pick(0, 3), s = round == 0 ? 300 : pick(1, 20), h = pick(1, 4),
                    d = round == 1 ? 7 : 2 * pick(1, 33);
      const int64_t n = b * s * h * d;
      const double *x = F(draw)(n, -1, 1);
      double *want = F(draw)(n, 0, 0);
      for (int form = 0; form < 4; form++) { /* the same shape with other angles */
        const int sign = form % 2 == 0 ? 1 : -1;
        const double theta = form < 2 ? 10000 : 500;
        PD_R *y = F(copy_of)(n, NULL);
        k->rope(b, s, h, d, theta, sign, F(copy_of)(n, x), y);
        ref->rope(b, s, h, d, theta, sign, x, want);
        F(expect)("rope", n, y, want, UNIT * 4);
      }
      let_go();
    }
  }
}

Test(SUITE, cross_entropy, .init = start, .fini = let_go) {
  EACH_SET(k) {
    for (int round = 0; round < 40; round++) {
      int64_t rows, classes;
      some_matrix(round, &rows, &classes);
      const int64_t first = pick(0, 9);
      const double *x = F(draw)(rows * classes, -9, 9);
      int32_t *targets = hold(sizeof *targets * (size_t)rows);
      for (int64_t r = 0; r < rows; r++) {
        targets[r] = pick(0, 4) == 0 ? PD_IGNORE : (int32_t)pick(first - 2 < 0 ? 0 : first - 2, first + classes + 1);
      }
      PD_R *in = F(copy_of)(rows * classes, x), *row_max = F(copy_of)(rows, NULL), *sums = F(copy_of)(2 * rows, NULL);
      PD_R *dx = F(copy_of)(rows * classes, NULL);
      double *want_max = F(draw)(rows, 0, 0), *want_sums = F(draw)(2 * rows, 0, 0),
             *want_dx = F(draw)(rows * classes, 0, 0);
      k->xent_max(rows, classes, in, row_max);
      ref->xent_max(rows, classes, x, want_max);
      F(expect)("xent_max", rows, row_max, want_max, 0);
      k->xent_sums(rows, classes, first, in, targets, row_max, sums);
      ref->xent_sums(rows, classes, first, x, targets, want_max, want_sums);
      F(expect)("xent_sums", 2 * rows, sums, want_sums, UNIT * (10 + sqrt((double)classes)));
      const double loss = ref->xent_loss(rows, targets, want_sums);
      cr_assert_float_eq(k->xent_loss(rows, targets, sums), loss, UNIT * 20 * (fabs(loss) + (double)rows * 20));
      k->xent_grad(rows, classes, first, (PD_R)0.125, in, targets, row_max, sums, dx);
      ref->xent_grad(rows, classes, first, 0.125, x, targets, want_max, want_sums, want_dx);
      F(expect)("xent_grad", rows * classes, dx, want_dx, UNIT * 20);
      for (int64_t r = 0; r < rows; r++) { /* ties, and targets that are often right */
        if (targets[r] == PD_IGNORE || coin()) continue;
        targets[r] = (int32_t)pick(0, classes - 1);
        for (int64_t c = coin() ? targets[r] : 0; c < classes; c++) {
          if (c == targets[r] || pick(0, 3) == 0) in[r * classes + c] = (PD_R)9.5;
        }
      }
      const int64_t right = ref->accuracy(rows, classes, F(wide)(rows * classes, in), targets);
      cr_assert(k->accuracy(rows, classes, in, targets) == right, "%s: accuracy of %d x %d", k->set, (int)rows,
                (int)classes);
      if (round == 0) cr_assert(right > 10 && right < 140, "the case has %d right ones", (int)right);
      let_go();
    }
  }
}

Test(SUITE, optimizers, .init = start, .fini = let_go) {
  EACH_SET(k) {
    for (int round = 0; round < 30; round++) {
      const int64_t n = round == 0 ? 70001 : round == 1 ? 0 : some_size();
      const double *gradient = F(draw)(n, -1, 1);
      double *w = F(draw)(n, -1, 1), *m = F(draw)(n, -0.1, 0.1), *v = F(draw)(n, 0, 0.1);
      PD_R *rw = F(copy_of)(n, w), *rm = F(copy_of)(n, m), *rv = F(copy_of)(n, v), *rg = F(copy_of)(n, gradient);
      k->adamw(n, rw, rg, rm, rv, 0.5, 1e-2, 0.9, 0.999, 1e-8, 0.1, 0.19, 0.002);
      ref->adamw(n, w, gradient, m, v, 0.5, 1e-2, 0.9, 0.999, 1e-8, 0.1, 0.19, 0.002);
      F(expect)("adamw w", n, rw, w, UNIT * 10);
      F(expect)("adamw m", n, rm, m, UNIT * 4);
      F(expect)("adamw v", n, rv, v, UNIT * 4);
      k->sgd(n, rw, rg, rm, 0.5, 1e-2, 0.9, 0.1);
      ref->sgd(n, w, gradient, m, 0.5, 1e-2, 0.9, 0.1);
      F(expect)("sgd w", n, rw, w, UNIT * 20);
      F(expect)("sgd mom", n, rm, m, UNIT * 20);
      k->sgd(n, rw, rg, NULL, 0.5, 1e-2, 0, 0.1);
      ref->sgd(n, w, gradient, NULL, 0.5, 1e-2, 0, 0.1);
      F(expect)("sgd without momentum", n, rw, w, UNIT * 20);
      let_go();
    }
  }
}

/* gradients of 0: decay alone moves the weights, and without decay they keep their bits (moments that fade away end at
 * 0, and do not turn into something else) */
Test(SUITE, decay, .init = start, .fini = let_go) {
  EACH_SET(k) {
    const double *w = F(draw)(1000, -1, 1), *zero = F(draw)(1000, 0, 0);
    PD_R *rw = F(copy_of)(1000, w), *rg = F(copy_of)(1000, zero), *m = F(copy_of)(1000, zero),
         *v = F(copy_of)(1000, zero);
    k->adamw(1000, rw, rg, m, v, 1, 0.1, 0.9, 0.999, 1e-8, 0.1, 0.1, 0.001);
    for (int i = 0; i < 1000; i++) {
      cr_assert(fabs((double)rw[i] - 0.99 * w[i]) <= 2 * UNIT * fabs(w[i]), "%.9g from %.9g", (double)rw[i], w[i]);
    }
    PD_R *still = F(copy_of)(1000, w);
    k->adamw(1000, still, rg, m, v, 1, 0.1, 0.9, 0.999, 1e-8, 0, 0.1, 0.001);
    k->sgd(1000, still, rg, m, 1, 0.1, 0.9, 0);
    k->sgd(1000, still, rg, NULL, 1, 0.1, 0, 0);
    for (int i = 0; i < 1000; i++) cr_assert((double)still[i] == w[i], "%.9g was %.9g", (double)still[i], w[i]);
    for (int i = 0; i < 1000; i++) m[i] = v[i] = (PD_R)1e-3;
    for (int step = 0; step < 20000; step++) k->adamw(10, still, rg, m, v, 1, 1e-3, 0.9, 0.99, 1e-8, 0, 1, 1);
    for (int i = 0; i < 10; i++) {
      cr_assert((double)m[i] >= 0 && (double)m[i] < 1e-37 && (double)v[i] >= 0 && (double)v[i] < 1e-37 &&
                isfinite(still[i]));
    }
    /* large gradients, a tiny eps and vanishing second moments stay finite and move by about lr */
    for (int i = 0; i < 3; i++) {
      still[i] = 0, m[i] = 0, v[i] = 0, rg[i] = (PD_R)(i == 0 ? 1e-18 : i == 1 ? 1e18 : 1e-3);
    }
    k->adamw(3, still, rg, m, v, 1, 1e-3, 0.9, 0.999, 1e-30, 0, 0.1, 0.001);
    for (int i = 0; i < 3; i++)
      cr_assert_float_eq((double)still[i], -1e-3, 1e-5, "element %d moves by %g", i, (double)still[i]);
  }
}

Test(SUITE, draws, .init = start, .fini = let_go) {
  EACH_SET(k) {
    const pd_key key = {77, 88};
    const pd_local parts[] = {{3, {5, 33, 20}, {2, 0, 7}, {9, 33, 64}}, {3, {2, 2, 501}, {1, 1, 7}, {4, 3, 601}}};
    PD_R *normal = F(copy_of)(3300, NULL), *uniform = F(copy_of)(3300, NULL);
    for (int part = 0; part < 2; part++) { /* short runs and long ones, from odd positions on */
      const pd_local *at = &parts[part];
      const int64_t n = at->size[0] * at->size[1] * at->size[2];
      double *want_normal = F(draw)(n, 0, 0), *want_uniform = F(draw)(n, 0, 0);
      k->init_normal(key, n, at, 0.02, normal);
      k->init_uniform(key, n, at, -0.5, 1.5, uniform);
      for (int64_t i = 0; i < n; i++) { /* straight from the streams, at global numbers */
        const int64_t x = i / at->size[2] / at->size[1] + at->first[0],
                      y = i / at->size[2] % at->size[1] + at->first[1];
        const uint64_t global = (uint64_t)((x * at->global[1] + y) * at->global[2] + i % at->size[2] + at->first[2]);
        want_normal[i] = (double)(PD_R)(0.02 * pd_normal_at(77, 88, global));
        want_uniform[i] = -0.5 + 2 * (double)pd_uniform_at(77, 88, global);
        cr_assert((double)normal[i] == want_normal[i], "part %d, normal %d", part, (int)i);
        cr_assert(fabs((double)uniform[i] - want_uniform[i]) <= 2 * UNIT, "part %d, uniform %d", part, (int)i);
      }
    }
    k->init_uniform(key, 3300, NULL, 0x1p24, 0x1p24 + 2, uniform); /* the upper end is outside, also by rounding */
    for (int64_t i = 0; i < 3300; i++) cr_assert((double)uniform[i] >= 0x1p24 && (double)uniform[i] < 0x1p24 + 2);
    k->init_normal(key, 0, NULL, 1, normal);
    k->init_uniform(key, 0, NULL, 0, 1, uniform);
    for (int round = 0; round < 20; round++) {
      const int64_t samples = some_rows(), width = round == 0 ? 20000 : some_size();
      const double p = round % 5 == 4 ? 0 : round % 5 == 3 ? 1 : 0.3, *x = F(draw)(samples * width, 1, 2);
      PD_R *y = F(copy_of)(samples * width, NULL);
      double *want = F(draw)(samples * width, 0, 0);
      const pd_local whole = {1, {width}, {0}, {width}}, *part = coin() ? &whole : NULL;
      k->dropout(key, 3, 1000, samples, width, part, p, F(copy_of)(samples * width, x), y);
      ref->dropout(key, 3, 1000, samples, width, part, p, x, want);
      for (int64_t i = 0; i < samples * width; i++)
        cr_assert((want[i] == 0) == ((double)y[i] == 0), "the masks differ");
      F(expect)("dropout", samples * width, y, want, UNIT * 2);
      let_go();
    }
  }
}

/* a tensor in four parts, by rows and by columns, has the numbers of the whole one */
Test(SUITE, init_does_not_depend_on_the_split, .init = start, .fini = let_go) {
  EACH_SET(k) {
    const int64_t rows = 37, cols = 50;
    PD_R *whole = F(copy_of)(rows * cols, NULL), *part = F(copy_of)(rows * cols, NULL);
    for (int kind = 0; kind < 2; kind++) {
      for (int cut = 0; cut < 16; cut++) {
        const int64_t row = cut / 4 * 9, col = cut % 4 * 13;
        const pd_local all = {2, {rows, cols}, {0, 0}, {rows, cols}};
        const pd_local at = {2, {cut / 4 == 3 ? 10 : 9, cut % 4 == 3 ? 11 : 13}, {row, col}, {rows, cols}};
        const int64_t n = at.size[0] * at.size[1];
        if (kind == 0) {
          k->init_normal((pd_key){5, 6}, rows * cols, cut % 2 == 0 ? &all : NULL, 1, whole);
          k->init_normal((pd_key){5, 6}, n, &at, 1, part);
        } else {
          k->init_uniform((pd_key){5, 6}, rows * cols, cut % 2 == 0 ? &all : NULL, -1, 1, whole);
          k->init_uniform((pd_key){5, 6}, n, &at, -1, 1, part);
        }
        for (int64_t i = 0; i < n; i++) {
          const int64_t global = (row + i / at.size[1]) * cols + col + i % at.size[1];
          cr_assert(part[i] == whole[global], "kind %d, part %d, element %d", kind, cut, (int)i);
        }
      }
    }
  }
}

Test(SUITE, dropout_does_not_depend_on_the_split, .init = start, .fini = let_go) {
  EACH_SET(k) {
    const int64_t samples = 6, rows = 19, cols = 30;
    const double *ones = F(draw)(samples * rows * cols, 1, 1);
    PD_R *x = F(copy_of)(samples * rows * cols, ones), *whole = F(copy_of)(samples * rows * cols, NULL);
    PD_R *part = F(copy_of)(samples * rows * cols, NULL);
    k->dropout((pd_key){5, 6}, 12, 100, samples, rows * cols, NULL, 0.25, x, whole);
    int kept = 0;
    for (int64_t i = 0; i < samples * rows * cols; i++) {
      if (whole[i] == 0) continue;
      kept++;
      cr_assert_float_eq((double)whole[i], 1 / 0.75, 1e-6);
    }
    cr_assert(kept > 2445 && kept < 2685, "%d of 3420 kept, not about 2565", kept); /* 5 sigma */
    for (int64_t sample = 0; sample < samples; sample += 2) { /* two samples and a part of rows and columns at a time */
      for (int cut = 0; cut < 4; cut++) {
        const pd_local at = {
            2, {cut / 2 == 0 ? 10 : 9, cut % 2 == 0 ? 17 : 13}, {cut / 2 * 10, cut % 2 * 17}, {rows, cols}};
        const int64_t n = at.size[0] * at.size[1];
        k->dropout((pd_key){5, 6}, 12, 100 + sample, 2, n, &at, 0.25, x, part);
        for (int64_t i = 0; i < 2 * n; i++) {
          const int64_t row = at.first[0] + i % n / at.size[1], col = at.first[1] + i % at.size[1];
          cr_assert(part[i] == whole[((sample + i / n) * rows + row) * cols + col], "sample %d cut %d", (int)sample,
                    cut);
        }
      }
    }
    int same_step = 0, same_sample = 0, same_key = 0; /* and it does depend on the step, the sample and the name */
    k->dropout((pd_key){5, 6}, 13, 100, samples, rows * cols, NULL, 0.25, x, part);
    for (int64_t i = 0; i < rows * cols; i++) {
      same_step += (part[i] == 0) == (whole[i] == 0);
      same_sample += (whole[i + rows * cols] == 0) == (whole[i] == 0);
    }
    k->dropout((pd_key){5, 7}, 12, 100, samples, rows * cols, NULL, 0.25, x, part);
    for (int64_t i = 0; i < rows * cols; i++) same_key += (part[i] == 0) == (whole[i] == 0);
    const double n = (double)(rows * cols);
    cr_assert(same_step < 0.75 * n && same_sample < 0.75 * n && same_key < 0.75 * n, "%d %d %d of %g", same_step,
              same_sample, same_key, n); /* 0.625 n if they are independent */
  }
}

/* The last two of four ranks hold the target's class: what they add up to is the loss of the whole row. */
Test(SUITE, cross_entropy_of_a_split_class_axis, .init = start, .fini = let_go) {
  EACH_SET(k) {
    const int64_t rows = 9, classes = 101;
    const double *x = F(draw)(rows * classes, -30, 30);
    PD_R *in = F(copy_of)(rows * classes, x), *row_max = F(copy_of)(rows, NULL), *sums = F(copy_of)(2 * rows, NULL);
    PD_R *dx = F(copy_of)(rows * classes, NULL);
    int32_t targets[9] = {0, 100, 25, 26, 24, PD_IGNORE, 51, 99, 77};
    k->xent_max(rows, classes, in, row_max);
    k->xent_sums(rows, classes, 0, in, targets, row_max, sums);
    k->xent_grad(rows, classes, 0, (PD_R)0.5, in, targets, row_max, sums, dx);
    PD_R *all_max = F(copy_of)(rows, NULL), *all_sums = F(copy_of)(2 * rows, F(draw)(2 * rows, 0, 0));
    PD_R *parts[4], *one = F(copy_of)(2 * rows, NULL);
    const int64_t start_of[5] = {0, 25, 50, 100, 101}; /* uneven, the last of one class */
    for (int64_t r = 0; r < rows; r++) all_max[r] = (PD_R)-INFINITY;
    for (int rank = 0; rank < 4; rank++) {
      const int64_t width = start_of[rank + 1] - start_of[rank];
      parts[rank] = F(copy_of)(rows * width, NULL);
      for (int64_t i = 0; i < rows * width; i++) parts[rank][i] = in[i / width * classes + start_of[rank] + i % width];
      k->xent_max(rows, width, parts[rank], one);
      for (int64_t r = 0; r < rows; r++) all_max[r] = one[r] > all_max[r] ? one[r] : all_max[r];
    }
    for (int rank = 0; rank < 4; rank++) {
      k->xent_sums(rows, start_of[rank + 1] - start_of[rank], start_of[rank], parts[rank], targets, all_max, one);
      for (int64_t r = 0; r < 2 * rows; r++) all_sums[r] += one[r];
    }
    F(expect)("sums", 2 * rows, all_sums, F(wide)(2 * rows, sums), UNIT * 10);
    cr_assert_float_eq(k->xent_loss(rows, targets, all_sums), k->xent_loss(rows, targets, sums), UNIT * 1000);
    for (int rank = 0; rank < 4; rank++) {
      const int64_t width = start_of[rank + 1] - start_of[rank];
      PD_R *part = F(copy_of)(rows * width, NULL);
      k->xent_grad(rows, width, start_of[rank], (PD_R)0.5, parts[rank], targets, all_max, all_sums, part);
      for (int64_t i = 0; i < rows * width; i++) {
        const PD_R whole = dx[i / width * classes + start_of[rank] + i % width];
        cr_assert(fabs((double)part[i] - (double)whole) < UNIT * 10, "rank %d, element %d", rank, (int)i);
      }
    }
  }
}

/* two equal logits, however large: ln 2, and a gradient of one half each */
Test(SUITE, cross_entropy_of_large_logits, .init = start, .fini = let_go) {
  EACH_SET(k) {
    const double values[] = {1, 1e4, 1e8, -1e8, 3e38};
    const int32_t target = 0;
    PD_R x[2], row_max, sums[2], dx[2];
    for (int i = 0; i < 5; i++) {
      x[0] = x[1] = (PD_R)values[i];
      k->xent_max(1, 2, x, &row_max);
      k->xent_sums(1, 2, 0, x, &target, &row_max, sums);
      cr_expect_float_eq(k->xent_loss(1, &target, sums), log(2.0), 1e-6, "%s: loss %g of two equal logits %g", k->set,
                         k->xent_loss(1, &target, sums), values[i]);
      k->xent_grad(1, 2, 0, 1, x, &target, &row_max, sums, dx);
      cr_expect(fabs((double)dx[0] + 0.5) < 1e-6 && fabs((double)dx[1] - 0.5) < 1e-6);
    }
    /* a shard with maximum 1000 and one with 1001, the target the largest */
    PD_R left[4] = {0, 1000, 0, 0}, right[4] = {0, 0, 1001, 0}, part[2];
    const int32_t largest = 6;
    row_max = 1001;
    k->xent_sums(1, 4, 0, left, &largest, &row_max, sums);
    k->xent_sums(1, 4, 4, right, &largest, &row_max, part);
    sums[0] += part[0], sums[1] += part[1];
    cr_expect_float_eq(k->xent_loss(1, &largest, sums), 0.313261688, 1e-6);
    /* softmax and attention do not overflow either */
    PD_R big[3] = {(PD_R)3e38, (PD_R)-3e38, (PD_R)3e38}, y[3];
    k->softmax(1, 3, big, y);
    cr_expect((double)y[0] == 0.5 && (double)y[1] == 0 && (double)y[2] == 0.5);
    PD_R q[2] = {1000, 1000}, v[2] = {1, 3}, o[2], lse[2];
    k->sdpa(1, 2, 2, 1, 1, 1, false, q, q, v, o, lse);
    cr_expect_float_eq((double)o[0], 2, 1e-6);
    cr_expect_float_eq((double)lse[0], 1e6 + log(2.0), 0.1);
  }
}

/* a NaN is not hidden */
Test(SUITE, nan_shows, .init = start, .fini = let_go) {
  const F(pd_kernels) *k = F(table)(0);
  PD_R x[40], y[40], rstd, sums[2], row_max;
  for (int i = 0; i < 40; i++) x[i] = (PD_R)i;
  x[21] = (PD_R)NAN;
  const int32_t target = 3;
  k->layernorm(1, 40, (PD_R)1e-5, x, y, &rstd);
  cr_expect(isnan(y[0]) && isnan(rstd));
  k->rmsnorm(1, 40, (PD_R)1e-5, x, y, &rstd);
  cr_expect(isnan(y[0]));
  k->softmax(1, 40, x, y);
  cr_expect(isnan(y[0]));
  k->xent_max(1, 40, x, &row_max);
  k->xent_sums(1, 40, 0, x, &target, &row_max, sums);
  cr_expect(isnan(k->xent_loss(1, &target, sums)));
  cr_expect(isnan(k->sum_squares(40, x)));
}

/* ---- the same bits for every number of threads ---- */

typedef struct F(outputs) {
  PD_R *at[8];
  int64_t size[8];
  int count;
  double sums[4];
} F(outputs);

static PD_R *F(output)(F(outputs) * out, int64_t n, const double *start_from) {
  out->at[out->count] = F(copy_of)(n, start_from);
  out->size[out->count] = n;
  return out->at[out->count++];
}

enum { F(CASES) = 19 };

static void F(run_case)(int which, F(outputs) * out) {
  const F(pd_kernels) *k = F(table)(0);
  draws = 5000; /* the same inputs for every number of threads */
  *out = (F(outputs)){0};
  const int64_t n = 200003, rows = 301, cols = 333;
  const double *a = F(draw)(n, -1, 1), *b = F(draw)(n, -1, 1);
  PD_R *x = F(copy_of)(n, a), *y = F(copy_of)(n, b);
  const pd_key key = {1, 2};
  int32_t *ids = hold(sizeof *ids * 400);
  for (int i = 0; i < 400; i++) ids[i] = (int32_t)pick(0, 30);
  if (which == 0) out->sums[0] = k->sum_squares(n, x), out->sums[1] = k->mse(n, x, y);
  if (which == 1) k->sum_rows(rows, cols, x, y, false, F(output)(out, cols, NULL));
  if (which == 2) k->sum_cols(rows, cols, x, y, false, F(output)(out, rows, NULL));
  if (which == 3) {
    PD_R *to = F(output)(out, rows * cols, NULL), *rstd = F(output)(out, rows, NULL);
    k->layernorm(rows, cols, (PD_R)1e-5, x, to, rstd);
    k->layernorm_grad(rows, cols, to, rstd, y, F(output)(out, rows * cols, NULL));
  }
  if (which == 4) {
    PD_R *to = F(output)(out, rows * cols, NULL), *rstd = F(output)(out, rows, NULL);
    k->rmsnorm(rows, cols, (PD_R)1e-5, x, to, rstd);
    k->rmsnorm_grad(rows, cols, to, rstd, y, F(output)(out, rows * cols, NULL));
  }
  if (which == 5) {
    PD_R *to = F(output)(out, rows * cols, NULL);
    k->softmax(rows, cols, x, to);
    k->softmax_grad(rows, cols, to, y, F(output)(out, rows * cols, NULL));
  }
  if (which == 6) k->gather_grad(400, 0, 30, 500, ids, x, F(output)(out, 30 * 500, b));
  if (which == 7 || which == 8) { /* with and without shared keys */
    const int64_t h = 4, g = which == 7 ? 4 : 2, s = 150, d = 16;
    PD_R *o = F(output)(out, 2 * s * h * d, NULL), *lse = F(output)(out, 2 * h * s, NULL);
    k->sdpa(2, s, s, h, g, d, true, x, y, y + 20000, o, lse);
    PD_R *dq = F(output)(out, 2 * s * h * d, NULL), *dk = F(output)(out, 2 * s * g * d, NULL);
    k->sdpa_grad(2, s, s, h, g, d, true, x, y, y + 20000, o, lse, x + 50000, dq, dk,
                 F(output)(out, 2 * s * g * d, NULL));
  }
  if (which == 9) k->rope(2, 200, 4, 64, 1e4, 1, x, F(output)(out, 2 * 200 * 4 * 64, NULL));
  if (which == 10) {
    PD_R *row_max = F(output)(out, rows, NULL), *sums = F(output)(out, 2 * rows, NULL);
    k->xent_max(rows, cols, x, row_max);
    k->xent_sums(rows, cols, 0, x, ids, row_max, sums);
    k->xent_grad(rows, cols, 0, 1, x, ids, row_max, sums, F(output)(out, rows * cols, NULL));
    out->sums[0] = k->xent_loss(rows, ids, sums);
    out->sums[1] = (double)k->accuracy(rows, cols, x, ids);
  }
  if (which == 11) {
    PD_R *m = F(output)(out, n, b), *v = F(output)(out, n, F(draw)(n, 0, 1));
    k->adamw(n, F(output)(out, n, a), y, m, v, 0.3, 1e-3, 0.9, 0.99, 1e-8, 0.1, 0.3, 0.1);
    k->sgd(n, F(output)(out, n, a), y, m, 0.3, 1e-3, 0.9, 0.1);
    k->mse_grad(n, (PD_R)0.3, x, y, F(output)(out, n, NULL));
  }
  if (which == 12) {
    k->dropout(key, 1, 0, 4, 50000, NULL, 0.1, x, F(output)(out, n, NULL));
    k->init_normal(key, n, NULL, 1, F(output)(out, n, NULL));
    k->init_uniform(key, n, NULL, 0, 1, F(output)(out, n, NULL));
  }
  if (which == 13) {
    const pd_view long_sum = {.rank = 1, .size = {n}, .out = {0}, .a = {1}, .b = {1}};
    const pd_view batch = {4, {30, 20, 25, 13}, {500, 25, 1, 0}, {260, 13, 0, 1}, {325, 0, 13, 1}};
    const pd_view turned = {.rank = 2, .size = {400, 500}, .out = {1, 400}, .a = {500, 1}};
    k->contract(&long_sum, x, y, 1, false, F(output)(out, 1, NULL));
    k->contract(&batch, x, y, 1, false, F(output)(out, 15000, NULL));
    k->copy(&turned, x, true, F(output)(out, n, b));
  }
  if (which >= 14) { /* products of all sorts: narrow, large, all transpositions */
    static const int64_t shapes[][3] = {{1, 300, 500},   {300, 1, 500},  {257, 129, 65},  {300, 200, 400},
                                        {64, 64, 1000},  {100, 100, 3},  {31, 1000, 150}, {1000, 33, 50},
                                        {200, 200, 200}, {16, 16, 4000}, {384, 384, 384}, {7, 9, 11}};
    const int64_t *shape = shapes[(which - 14) * 2], *next = shape + 3;
    for (int t = 0; t < 4; t++) {
      const int64_t *s = t % 2 == 0 ? shape : next;
      k->gemm(t / 2, t % 2, s[0], s[1], s[2], 1, x, t / 2 ? s[0] : s[2], y, t % 2 ? s[2] : s[1], 0,
              F(output)(out, s[0] * s[1], NULL), s[1]);
      k->gemm(t % 2, t / 2, s[0], s[1], s[2], 1, x, t % 2 ? s[0] : s[2], y, t / 2 ? s[2] : s[1], 0,
              F(output)(out, s[0] * s[1], NULL), s[1]);
    }
  }
}

Test(SUITE, bits_do_not_depend_on_threads, .init = start, .fini = let_go) {
  for (int which = 0; which < F(CASES); which++) {
    F(outputs) one, more;
    pd_kernels_threads(1);
    F(run_case)(which, &one);
    for (int threads = 2; threads <= 5; threads += threads == 3 ? 2 : 1) {
      pd_kernels_threads(threads);
      F(run_case)(which, &more);
      cr_assert(omp_get_max_threads() == threads, "case %d leaves %d threads", which, omp_get_max_threads());
      cr_assert(memcmp(one.sums, more.sums, sizeof one.sums) == 0, "case %d with %d threads: a sum differs", which,
                threads);
      cr_assert(one.count == more.count && (one.count > 0 || one.sums[0] != 0));
      for (int i = 0; i < one.count; i++) {
        const size_t bytes = (size_t)one.size[i] * sizeof(PD_R);
        cr_assert(memcmp(one.at[i], more.at[i], bytes) == 0, "case %d with %d threads: output %d differs", which,
                  threads, i);
      }
    }
    let_go();
  }
}

/* nor where a buffer happens to lie: a vector loop that took some elements first to get aligned would change sums */
Test(SUITE, bits_do_not_depend_on_addresses, .init = start, .fini = let_go) {
  const F(pd_kernels) *k = F(table)(0);
  const int64_t rows = 3, n = 1237, size = rows * n;
  const double *a = F(draw)(size, -1, 1), *b = F(draw)(size, -1, 1);
  const int32_t targets[3] = {5, 9, 1000};
  const pd_view product = {3, {40, 30, 20}, {30, 1, 0}, {20, 0, 1}, {0, 20, 1}};
  PD_R first[6000] = {0};
  for (int shift = 0; shift < 16; shift++) {
    PD_R *x = F(copy_of)(size + 16, NULL) + shift, *y = F(copy_of)(size + 16, NULL) + shift * 5 % 16;
    PD_R *to = F(copy_of)(size + 16, NULL) + shift * 3 % 16, result[6000] = {0}, *next = result;
    for (int64_t i = 0; i < size; i++) x[i] = (PD_R)a[i], y[i] = (PD_R)b[i];
    *next++ = (PD_R)k->sum_squares(size, x);
    *next++ = (PD_R)k->mse(size, x, y);
    k->sum_cols(rows, n, x, y, false, next), next += rows;
    k->sum_rows(rows, n, x, y, false, to), *next++ = to[700];
    k->layernorm(rows, n, (PD_R)1e-5, x, to, next), next += rows;
    *next++ = to[700];
    k->layernorm_grad(rows, n, x, next - 4, y, to), *next++ = to[700];
    k->rmsnorm(rows, n, (PD_R)1e-5, x, to, next), next += rows;
    k->rmsnorm_grad(rows, n, x, next - 3, y, to), *next++ = to[700];
    k->softmax(rows, n, x, to), *next++ = to[700];
    k->softmax_grad(rows, n, x, y, to), *next++ = to[700];
    k->xent_max(rows, n, x, next), next += rows;
    k->xent_sums(rows, n, 0, x, targets, next - rows, next), next += 2 * rows;
    k->sdpa(1, 40, 40, 1, 1, 16, true, x, y, x + 640, to, next), next += 40;
    for (int i = 0; i < 640; i++) *next++ = to[i];
    k->gemm(false, true, 50, 40, 20, 1, x, 20, y, 20, 0, to, 40);
    for (int i = 0; i < 2000; i++) *next++ = to[i];
    k->contract(&product, x, y, 1, false, to);
    for (int i = 0; i < 1200; i++) *next++ = to[i];
    k->gemm(false, false, 1, 40, 50, 1, x, 50, y, 40, 0, to, 40);
    for (int i = 0; i < 40; i++) *next++ = to[i];
    if (shift == 0) memcpy(first, result, sizeof first);
    for (int i = 0; i < next - result; i++) {
      cr_assert(result[i] == first[i], "shifted by %d: result %d is %.17g, not %.17g", shift, i, (double)result[i],
                (double)first[i]);
    }
  }
}

/* leading dimensions beyond 32 bits: two rows, 2^31 + 7 elements apart, in memory that is mostly never touched */
Test(SUITE, gemm_of_far_rows, .init = start, .fini = let_go) {
  const int64_t apart = (INT64_C(1) << 31) + 7;
  const size_t bytes = (size_t)(apart + 64) * sizeof(PD_R);
  PD_R *a = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (a == MAP_FAILED) cr_skip_test("no address space");
  for (int64_t i = 0; i < 2; i++) {
    for (int64_t p = 0; p < 64; p++) a[i * apart + p] = (PD_R)(p + i);
  }
  PD_R b[64 * 40], c[2 * 40];
  for (int64_t i = 0; i < 64 * 40; i++) b[i] = (PD_R)(i % 7);
  for (int64_t depth = 16; depth <= 64; depth += 48) { /* a product that counts as tiny, and one that does not */
    F(table)(0)->gemm(false, false, 2, 40, depth, 1, a, apart, b, 40, 0, c, 40);
    for (int64_t i = 0; i < 2; i++) {
      for (int64_t j = 0; j < 40; j++) {
        double sum = 0;
        for (int64_t p = 0; p < depth; p++) sum += (double)(p + i) * (double)b[p * 40 + j];
        cr_assert((double)c[i * 40 + j] == sum, "%d,%d is %g, not %g", (int)i, (int)j, (double)c[i * 40 + j], sum);
      }
    }
  }
  munmap(a, bytes);
}
