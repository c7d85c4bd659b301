/* The kernels: host in f32 and f64, and ref in f32, against ref in f64 on random shapes; ref in f64 against numbers
 * worked out by hand and, for the gradients, against central differences; and what kernels.h promises beyond values:
 * the same bits for every number of threads, losses of a split class axis, draws that do not depend on the split.
 * kernels_sets.inc.h has what is tested for each real type.
 */
#include "kernels/math.h"
#include "unit/kernels_help.h"

#include <omp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static bool coin(void) {
  return between(0, 1) < 0.5;
}

/* ---- shapes ---- */

/* sizes with odd ones, 1, those of vectors and their neighbours */
static int64_t some_size(void) {
  static const int64_t sizes[] = {1, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 129, 257, 1000};
  return sizes[pick(0, 19)];
}

static int64_t some_rows(void) {
  static const int64_t sizes[] = {0, 1, 2, 3, 7, 40};
  return sizes[pick(0, 5)];
}

/* a large case now and then, so that the threaded paths run */
static void some_matrix(int round, int64_t *rows, int64_t *cols) {
  *rows = round == 0 ? 150 : some_rows();
  *cols = round == 0 ? 777 : round == 1 ? 50257 : some_size();
  if (round == 1) *rows = 2;
}

/* Row-major strides for the axes of `in` in a random order; the axes not in it get 0. Returns the number of elements.
 */
static int64_t some_layout(const pd_view *view, const bool *in, int64_t *stride) {
  int order[PD_MAX_RANK];
  int64_t count = 1;
  for (int i = 0; i < view->rank; i++) {
    const int j = (int)pick(0, i);
    order[i] = order[j];
    order[j] = i;
  }
  if (coin()) {
    for (int i = 0; i < view->rank; i++) order[i] = view->rank - 1 - i; /* the usual order */
  }
  for (int i = 0; i < view->rank; i++) {
    const int axis = order[i];
    stride[axis] = in[axis] ? count : 0;
    if (in[axis]) count *= view->size[axis];
  }
  return count;
}

static const char *shape_text(const pd_view *v) {
  static char text[512];
  size_t at = 0;
  for (int i = 0; i < v->rank; i++) {
    at += (size_t)snprintf(text + at, sizeof text - at, " [%d: out %d a %d b %d]", (int)v->size[i], (int)v->out[i],
                           (int)v->a[i], (int)v->b[i]);
  }
  return text;
}

/* sums and products like a network's, of every class of axis */
static void some_contraction(int round, pd_view *v, bool plain, int64_t *count_out, int64_t *count_a,
                             int64_t *count_b) {
  bool out[PD_MAX_RANK], a[PD_MAX_RANK], b[PD_MAX_RANK];
  *v = (pd_view){.rank = (int)pick(0, 5)};
  const int64_t top = v->rank <= 2 ? 300 : v->rank == 3 ? 40 : 9;
  for (int i = 0; i < v->rank; i++) {
    v->size[i] = round % 17 == 16 && coin() ? 0 : pick(1, top);
    const int64_t kind = pick(0, plain ? 2 : 6); /* m, k, broadcast out; n, batch, only a summed, only b summed */
    out[i] = kind == 0 || kind == 2 || kind == 3 || kind == 4;
    a[i] = kind == 0 || kind == 1 || kind == 4 || (kind == 5);
    b[i] = !plain && (kind == 1 || kind == 3 || kind == 4 || kind == 6);
  }
  *count_out = some_layout(v, out, v->out);
  *count_a = some_layout(v, a, v->a);
  *count_b = some_layout(v, b, v->b);
}

/* ---- central differences, in f64 ---- */

/* The gradient of sum(weight[i] * f(x)[i]) with respect to x, compared with `got`. */
typedef void (*function)(const double *x, double *y, const void *context);

static void expect_gradient(const char *what, function f, const void *context, int64_t count_x, int64_t count_y,
                            const double *x, const double *weight, const double *got) {
  double *moved = hold(sizeof(double) * (size_t)count_x), *up = hold(sizeof(double) * (size_t)count_y);
  double *down = hold(sizeof(double) * (size_t)count_y);
  memcpy(moved, x, sizeof(double) * (size_t)count_x);
  for (int64_t i = 0; i < count_x; i++) {
    const double step = 1e-5;
    moved[i] = x[i] + step;
    f(moved, up, context);
    moved[i] = x[i] - step;
    f(moved, down, context);
    moved[i] = x[i];
    double slope = 0;
    for (int64_t j = 0; j < count_y; j++) slope += weight[j] * (up[j] - down[j]) / (2 * step);
    cr_assert(fabs(slope - got[i]) <= 2e-8 * (1 + fabs(slope)), "%s: element %d of the gradient is %.12g, slope %.12g",
              what, (int)i, got[i], slope);
  }
}

#define PD_R float
#define F(name) name##_f32
#define UNIT 6e-8
#define SUITE kernels_f32
#include "kernels_sets.inc.h"
#undef PD_R
#undef F
#undef UNIT
#undef SUITE

#define PD_R double
#define F(name) name##_f64
#define UNIT 1.2e-16
#define SUITE kernels_f64
#include "kernels_sets.inc.h"

/* ---- ref in f64 against numbers worked out by hand ---- */

#define EXPECT_ALL(got, ...)                                                                                           \
  do {                                                                                                                 \
    const double wanted[] = {__VA_ARGS__};                                                                             \
    for (size_t at = 0; at < sizeof wanted / sizeof *wanted; at++) {                                                   \
      cr_expect(fabs((got)[at] - wanted[at]) < 1e-12, #got "[%zu] is %.15g, not %.15g", at, (got)[at], wanted[at]);    \
    }                                                                                                                  \
  } while (0)

Test(kernels, known_products) {
  const pd_kernels_f64 *k = pd_kernels_select_f64("ref");
  const double a[] = {1, 2, 3, 4, 5, 6}, b[] = {1, 0, 2, -1, 3, 1};
  double c[] = {100, 100, 100, 100};
  k->gemm(false, false, 2, 2, 3, 1, a, 3, b, 2, 0, c, 2);
  EXPECT_ALL(c, 14, 1, 32, 1);
  k->gemm(false, true, 2, 2, 3, 2, a, 3, b, 3, 1, c, 2); /* + 2 a b^T, b as 2 x 3 */
  EXPECT_ALL(c, 14 + 14, 1 + 16, 32 + 32, 1 + 34);
  k->gemm(true, false, 2, 2, 3, 1, a, 2, b, 2, 0, c, 2); /* a as 3 x 2, transposed */
  EXPECT_ALL(c, 22, 2, 28, 2);
  double out[4] = {1, 1, 1, 1};
  const pd_view trace = {.rank = 1, .size = {2}, .out = {0}, .a = {3}}, outer = {2, {2, 2}, {2, 1}, {1, 0}, {0, 1}};
  k->contract(&trace, c, NULL, 3, true, out);
  EXPECT_ALL(out, 1 + 3 * (22 + 2));
  k->contract(&outer, a, b + 2, 1, false, out);
  EXPECT_ALL(out, 2, -1, 4, -2);
  const pd_view number = {.rank = 0}, turned = {.rank = 2, .size = {2, 3}, .out = {1, 2}, .a = {3, 1}};
  k->contract(&number, a + 1, b + 2, 1, false, out);
  EXPECT_ALL(out, 4);
  double t[6];
  k->copy(&turned, a, false, t);
  EXPECT_ALL(t, 1, 4, 2, 5, 3, 6);
  double columns[3] = {1, 1, 1}, rows[2];
  k->sum_rows(2, 3, a, NULL, true, columns);
  k->sum_cols(2, 3, a, b, false, rows);
  EXPECT_ALL(columns, 6, 8, 10);
  EXPECT_ALL(rows, 1 + 0 + 6, -4 + 15 + 6);
}

Test(kernels, known_rows) {
  const pd_kernels_f64 *k = pd_kernels_select_f64("ref");
  const double x[] = {1, 2, 3}, third = log(3.0), logits[] = {0, third, 0};
  double y[3], rstd;
  k->layernorm(1, 3, 0, x, y, &rstd);
  EXPECT_ALL(y, -sqrt(1.5), 0, sqrt(1.5));
  EXPECT_ALL(&rstd, sqrt(1.5));
  k->layernorm(1, 3, 1.0 / 3, x, y, &rstd);
  EXPECT_ALL(y, -1, 0, 1);
  k->rmsnorm(1, 3, 0, x, y, &rstd);
  EXPECT_ALL(y, sqrt(3 / 14.0), 2 * sqrt(3 / 14.0), 3 * sqrt(3 / 14.0));
  k->softmax(1, 3, logits, y);
  EXPECT_ALL(y, 0.2, 0.6, 0.2);
  const int32_t ids[] = {7, 5, 4, PD_IGNORE, 5};
  const double table[] = {1, 2, 3, 4, 5, 6}, dout[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  double out[10], dtable[6] = {0};
  k->gather(5, 5, 3, 2, ids, table, out); /* rows 5 to 7 are here */
  EXPECT_ALL(out, 5, 6, 1, 2, 0, 0, 0, 0, 1, 2);
  k->gather_grad(5, 5, 3, 2, ids, dout, dtable);
  EXPECT_ALL(dtable, 3 + 9, 4 + 10, 0, 0, 1, 2);
}

Test(kernels, known_attention) {
  const pd_kernels_f64 *k = pd_kernels_select_f64("ref");
  const double l3 = log(3.0), q[] = {1, 1, 1, 1}, key[] = {0, l3}, v[] = {2, 6};
  double o[4], lse[4];
  k->sdpa(1, 2, 2, 2, 1, 1, false, q, key, v, o, lse); /* two heads on one key head: weights 1/4 and 3/4 */
  EXPECT_ALL(o, 5, 5, 5, 5);
  EXPECT_ALL(lse, log(4.0), log(4.0), log(4.0), log(4.0));
  k->sdpa(1, 2, 2, 2, 1, 1, true, q, key, v, o, lse);
  EXPECT_ALL(o, 2, 2, 5, 5);
  k->sdpa(1, 1, 2, 1, 1, 1, true, q, key, v, o, lse); /* one query, the last: sees both */
  EXPECT_ALL(o, 5);
  k->sdpa(1, 2, 1, 1, 1, 1, true, q, key, v, o, lse); /* the first of two before the only key: sees none */
  EXPECT_ALL(o, 0, 2);
  cr_expect(isinf(lse[0]) && lse[0] < 0);
  const double x[] = {1, 2, 3, 4, 1, 2, 3, 4};
  double y[8];
  k->rope(1, 2, 1, 4, 100, 1, x, y); /* position 0 stays; position 1 turns lane 0 by 1 and lane 1 by 1/10 */
  EXPECT_ALL(y, 1, 2, 3, 4, cos(1) - 3 * sin(1), 2 * cos(0.1) - 4 * sin(0.1), 3 * cos(1) + sin(1),
             4 * cos(0.1) + 2 * sin(0.1));
}

Test(kernels, known_losses) {
  const pd_kernels_f64 *k = pd_kernels_select_f64("ref");
  const double l2 = log(2.0), x[] = {l2, 0, 0, l2, 0, 0, 5, 5, 5};
  const int32_t targets[] = {10, 11, PD_IGNORE};
  double row_max[3], sums[6], dx[9];
  k->xent_max(3, 3, x, row_max);
  EXPECT_ALL(row_max, l2, l2, 5);
  k->xent_sums(3, 3, 10, x, targets, row_max, sums);
  EXPECT_ALL(sums, 2, 2, 3, 0, -l2, 0);
  const double loss = k->xent_loss(3, targets, sums);
  EXPECT_ALL(&loss, log(2.0) + log(4.0));
  k->xent_grad(3, 3, 10, 2, x, targets, row_max, sums, dx);
  EXPECT_ALL(dx, -1, 0.5, 0.5, 1, -1.5, 0.5, 0, 0, 0);
  const double ties[] = {1, 3, 3, 3, 1, 3, 0, 0, 0};
  const int32_t first[] = {1, 0, 0}, later[] = {2, 2, PD_IGNORE};
  cr_expect(k->accuracy(3, 3, ties, first) == 3);
  cr_expect(k->accuracy(3, 3, ties, later) == 0);
  const double a[] = {1, 2, 3}, b[] = {0, 4, 3}, mse = k->mse(3, a, b);
  EXPECT_ALL(&mse, 5);
  k->mse_grad(3, 0.5, a, b, dx);
  EXPECT_ALL(dx, 1, -2, 0);
}

Test(kernels, known_steps) {
  const pd_kernels_f64 *k = pd_kernels_select_f64("ref");
  double w[] = {1, -2}, m[] = {0, 0.5}, v[] = {0, 0.25};
  const double g[] = {2, -4};
  k->adamw(1, w, g, m, v, 0.5, 0.1, 0.9, 0.99, 0, 0.2, 0.1, 0.01); /* the first step moves by lr, and decays */
  EXPECT_ALL(w, 1 - 0.1 * (1 + 0.2));
  k->adamw(1, w + 1, g + 1, m + 1, v + 1, 0.5, 0.1, 0.9, 0.5, 0.5, 0, 0.5, 0.5);
  EXPECT_ALL(m, 0.1, 0.9 * 0.5 - 0.1 * 2);
  EXPECT_ALL(v, 0.01, 0.125 + 0.5 * 4);
  EXPECT_ALL(w + 1, -2 - 0.1 * (0.25 / 0.5 / (sqrt(2.125 / 0.5) + 0.5)));
  double s[] = {1, 1}, mom[] = {0, 3};
  k->sgd(2, s, g, mom, 0.5, 0.1, 0.9, 0.2);
  EXPECT_ALL(mom, 1.2, 2.7 - 1.8);
  EXPECT_ALL(s, 1 - 0.12, 1 - 0.09);
}

Test(kernels, sets) {
  cr_expect_str_eq(pd_kernels_select_f32(NULL)->set, "host");
  cr_expect_str_eq(pd_kernels_select_f64("host")->set, "host");
  cr_expect_str_eq(pd_kernels_select_f32("ref")->set, "ref");
  cr_expect_null(pd_kernels_select_f32("gpu"));
  cr_expect_null(pd_kernels_select_f64(""));
  const char *names[] = {"host", "ref"};
  for (int i = 0; i < 2; i++) { /* no member is missing: a table is a row of pointers */
    void *members[sizeof(pd_kernels_f32) / sizeof(void *)];
    memcpy(members, pd_kernels_select_f32(names[i]), sizeof members);
    for (size_t j = 0; j < sizeof members / sizeof *members; j++) cr_expect_not_null(members[j], "f32 member %zu", j);
    memcpy(members, pd_kernels_select_f64(names[i]), sizeof members);
    for (size_t j = 0; j < sizeof members / sizeof *members; j++) cr_expect_not_null(members[j], "f64 member %zu", j);
  }
  pd_kernels_threads(3);
  cr_expect(omp_get_max_threads() == 3);
  pd_kernels_threads(0);
  cr_expect(omp_get_max_threads() == 1);
}

/* ---- gradients against central differences ---- */

typedef struct rows_case {
  const pd_kernels_f64 *k;
  int kind;
  int64_t rows, n;
  double *rstd;
} rows_case;

static void rows_forward(const double *x, double *y, const void *context) {
  const rows_case *c = context;
  if (c->kind == 0) c->k->layernorm(c->rows, c->n, 1e-3, x, y, c->rstd);
  if (c->kind == 1) c->k->rmsnorm(c->rows, c->n, 1e-3, x, y, c->rstd);
  if (c->kind == 2) c->k->softmax(c->rows, c->n, x, y);
}

Test(kernels, row_gradients, .init = start, .fini = let_go) {
  static const char *names[] = {"layernorm_grad", "rmsnorm_grad", "softmax_grad"};
  for (int set = 0; set < 2; set++) {
    for (int kind = 0; kind < 3; kind++) {
      for (int64_t n = 1; n <= 9; n += 4) {
        const rows_case c = {pd_kernels_select_f64(set == 0 ? "host" : "ref"), kind, 3, n, hold(sizeof(double) * 3)};
        const double *x = draw_f64(3 * n, -2, 2), *dy = draw_f64(3 * n, -1, 1);
        double *y = draw_f64(3 * n, 0, 0), *dx = draw_f64(3 * n, 7, 8);
        rows_forward(x, y, &c);
        if (kind == 0) c.k->layernorm_grad(3, n, y, c.rstd, dy, dx);
        if (kind == 1) c.k->rmsnorm_grad(3, n, y, c.rstd, dy, dx);
        if (kind == 2) c.k->softmax_grad(3, n, y, dy, dx);
        expect_gradient(names[kind], rows_forward, &c, 3 * n, 3 * n, x, dy, dx);
      }
    }
  }
}

typedef struct attention_case {
  const pd_kernels_f64 *k;
  int64_t b, s, t, h, g, d;
  bool causal;
  double *lse;
} attention_case;

static void attention_forward(const double *x, double *y, const void *context) {
  const attention_case *c = context;
  const int64_t nq = c->b * c->s * c->h * c->d, nk = c->b * c->t * c->g * c->d;
  c->k->sdpa(c->b, c->s, c->t, c->h, c->g, c->d, c->causal, x, x + nq, x + nq + nk, y, c->lse);
}

Test(kernels, attention_gradients, .init = start, .fini = let_go) {
  static const int64_t shapes[][6] = {{1, 3, 3, 1, 1, 2}, {2, 4, 4, 2, 2, 3}, {1, 5, 5, 4, 2, 3}, /* b s t h g d */
                                      {2, 3, 6, 3, 1, 2}, {1, 6, 4, 2, 1, 2}, {1, 70, 70, 2, 1, 2}};
  for (int set = 0; set < 2; set++) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
      for (int causal = 0; causal < 2; causal++) {
        const int64_t *n = shapes[i], nq = n[0] * n[1] * n[3] * n[5], nk = n[0] * n[2] * n[4] * n[5];
        if (set == 1 && n[1] > 10) continue;
        const attention_case c = {
            pd_kernels_select_f64(set == 0 ? "host" : "ref"),   n[0], n[1], n[2], n[3], n[4], n[5], causal,
            hold(sizeof(double) * (size_t)(n[0] * n[1] * n[3]))};
        const double *x = draw_f64(nq + 2 * nk, -1.5, 1.5), *up = draw_f64(nq, -1, 1);
        double *o = draw_f64(nq, 0, 0), *dx = draw_f64(nq + 2 * nk, 7, 8);
        attention_forward(x, o, &c);
        c.k->sdpa_grad(n[0], n[1], n[2], n[3], n[4], n[5], causal, x, x + nq, x + nq + nk, o, c.lse, up, dx, dx + nq,
                       dx + nq + nk);
        char what[64];
        snprintf(what, sizeof what, "%s sdpa_grad shape %zu causal %d", c.k->set, i, causal);
        expect_gradient(what, attention_forward, &c, nq + 2 * nk, nq, x, up, dx);
        let_go();
      }
    }
  }
}

static void rope_forward(const double *x, double *y, const void *context) {
  ((const pd_kernels_f64 *)context)->rope(2, 3, 2, 6, 50, 1, x, y);
}

static const int32_t loss_targets[] = {2, PD_IGNORE, 0, 4};

static void loss_forward(const double *x, double *y, const void *context) {
  const pd_kernels_f64 *k = context;
  double row_max[4], sums[8];
  k->xent_max(4, 5, x, row_max);
  k->xent_sums(4, 5, 0, x, loss_targets, row_max, sums);
  *y = k->xent_loss(4, loss_targets, sums);
}

static const double mse_other[7] = {1, -1, 2, 0, 0.5, 3, -2};

static void mse_forward(const double *x, double *y, const void *context) {
  *y = ((const pd_kernels_f64 *)context)->mse(7, x, mse_other);
}

Test(kernels, other_gradients, .init = start, .fini = let_go) {
  for (int set = 0; set < 2; set++) {
    const pd_kernels_f64 *k = pd_kernels_select_f64(set == 0 ? "host" : "ref");
    const double *x = draw_f64(72, -2, 2), *dy = draw_f64(72, -1, 1), factor = 0.3;
    double *dx = draw_f64(72, 7, 8), row_max[4], sums[8];
    k->rope(2, 3, 2, 6, 50, -1, dy, dx);
    expect_gradient("rope", rope_forward, k, 72, 72, x, dy, dx);
    k->xent_max(4, 5, x, row_max);
    k->xent_sums(4, 5, 0, x, loss_targets, row_max, sums);
    k->xent_grad(4, 5, 0, factor, x, loss_targets, row_max, sums, dx);
    expect_gradient("xent_grad", loss_forward, k, 20, 1, x, &factor, dx);
    k->mse_grad(7, factor, x, mse_other, dx);
    expect_gradient("mse_grad", mse_forward, k, 7, 1, x, &factor, dx);
  }
}

/* ---- math.h ---- */

typedef struct unary {
  const char *name;
  float (*f32)(float);
  double (*f64)(double);
  double low, high, relative; /* the interval, and the error allowed relative to max(|value|, floor) */
  double floor;
} unary;

#define GRAD(name)                                                                                                     \
  static float name##_grad_1_f32(float x) {                                                                            \
    return pd_##name##_grad_f32(x, 1);                                                                                 \
  }                                                                                                                    \
  static double name##_grad_1_f64(double x) {                                                                          \
    return pd_##name##_grad_f64(x, 1);                                                                                 \
  }

GRAD(gelu_tanh)
GRAD(gelu_erf)
GRAD(silu)
GRAD(relu)

#ifdef __FMA__
#define SQUARED 1e-6 /* the rounding of x^2 is corrected */
#else
#define SQUARED 5e-6
#endif

static const unary functions[] = {
    {"exp", pd_exp_f32, pd_exp_f64, -87.3, 88.7, 1.2e-7, 0},
    {"log", pd_log_f32, pd_log_f64, 1e-45, 3.4e38, 1.2e-7, 0},
    {"sqrt", pd_sqrt_f32, pd_sqrt_f64, 0, 3.4e38, 6e-8, 0},
    {"tanh", pd_tanh_f32, pd_tanh_f64, -3.4e38, 3.4e38, 2e-7, 0},
    {"sigmoid", pd_sigmoid_f32, pd_sigmoid_f64, -86, 3.4e38, 2e-7, 0},
    {"silu", pd_silu_f32, pd_silu_f64, -80, 3.4e38, 2e-7, 0},
    {"relu", pd_relu_f32, pd_relu_f64, -3.4e38, 3.4e38, 0, 0},
    {"gelu_tanh", pd_gelu_tanh_f32, pd_gelu_tanh_f64, -3, 1e18, 1e-6, 0},
    {"gelu_tanh", pd_gelu_tanh_f32, pd_gelu_tanh_f64, -3.4e38, 1e18, 2e-7, 1},
    {"gelu_erf", pd_gelu_erf_f32, pd_gelu_erf_f64, -12, 1e18, SQUARED, 0},
    {"gelu_erf", pd_gelu_erf_f32, pd_gelu_erf_f64, -3.4e38, 1e18, 2e-7, 1},
    {"silu_grad", silu_grad_1_f32, silu_grad_1_f64, -1e30, 1e30, 3e-7, 1},
    {"gelu_tanh_grad", gelu_tanh_grad_1_f32, gelu_tanh_grad_1_f64, -1e18, 1e18, 3e-7, 1},
    {"gelu_erf_grad", gelu_erf_grad_1_f32, gelu_erf_grad_1_f64, -1e18, 1e18, 3e-7, 1},
    {"relu_grad", relu_grad_1_f32, relu_grad_1_f64, -3.4e38, 3.4e38, 0, 0},
};

Test(math, f32_accuracy) {
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    const unary *f = &functions[i];
    int tested = 0;
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 4099) { /* every 4099th float, of all exponents */
      const float x = pd_from_bits_f32((uint32_t)bits);
      if (!((double)x >= f->low && (double)x <= f->high)) continue;
      const double want = f->f64((double)x), got = (double)f->f32(x), size = fmax(fabs(want), f->floor);
      if (size < 1.2e-38 && strcmp(f->name, "relu") != 0) continue; /* subnormal results may be 0 */
      tested++;
      cr_assert(fabs(got - want) <= f->relative * size, "%s(%.9g) is %.9g, not %.9g: relative error %.3g", f->name,
                (double)x, got, want, fabs(got - want) / size);
    }
    cr_expect(tested > 100000, "%s: %d values", f->name, tested);
  }
}

Test(math, special_values) {
  const float inf = INFINITY, nan = NAN;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    cr_expect(isnan(functions[i].f32(nan)), "%s hides a NaN", functions[i].name);
    cr_expect(isnan(functions[i].f64(NAN)), "f64 %s hides a NaN", functions[i].name);
  }
  cr_expect(pd_exp_f32(-inf) == 0 && pd_exp_f32(-200) == 0 && pd_exp_f32(0) == 1 && isinf(pd_exp_f32(89)));
  cr_expect(isinf(pd_exp_f32(inf)) && pd_exp_f32(-1e38f) == 0 && isfinite(pd_exp_f32(88.72f)));
  cr_expect(isinf(pd_log_f32(0)) && pd_log_f32(0) < 0 && pd_log_f32(inf) == inf && isnan(pd_log_f32(-1)) &&
            pd_log_f32(1) == 0);
  cr_expect(pd_tanh_f32(inf) == 1 && pd_tanh_f32(-inf) == -1 && pd_tanh_f32(1e-30f) == 1e-30f);
  cr_expect(pd_sigmoid_f32(-inf) == 0 && pd_sigmoid_f32(inf) == 1 && pd_sigmoid_f32(0) == 0.5f);
  cr_expect(pd_relu_f32(-1) == 0 && pd_relu_f32(2) == 2 && pd_relu_grad_f32(0, 5) == 0 && pd_relu_grad_f32(1, 5) == 5);
  cr_expect(pd_gelu_tanh_f32(-1e30f) == 0 && pd_gelu_erf_f32(-1e30f) == 0 && pd_silu_f32(-1e30f) == 0);
  cr_expect(pd_gelu_tanh_f32(1e30f) == 1e30f && pd_gelu_erf_f32(1e30f) == 1e30f && pd_silu_f32(1e30f) == 1e30f);
  cr_expect(pd_gelu_tanh_grad_f32(1e30f, 3) == 3 && pd_gelu_erf_grad_f32(1e30f, 3) == 3 &&
            pd_silu_grad_f32(1e30f, 3) == 3);
}

Test(math, f64_known) { /* from Python and tables */
  cr_expect_float_eq(pd_gelu_erf_f64(1), 0.84134474606854294859, 1e-15);
  cr_expect_float_eq(pd_gelu_erf_f64(-2), -0.045500263896358414401, 1e-16);
  cr_expect_float_eq(pd_gelu_tanh_f64(1), 0.8411919906082768, 1e-15);
  cr_expect_float_eq(pd_silu_f64(1), 0.73105857863000487925, 1e-15);
  cr_expect_float_eq(pd_sigmoid_f64(-1), 0.26894142136999512075, 1e-15);
}

Test(math, gradients) {
  const struct {
    const char *name;
    double (*f)(double), (*grad)(double, double);
  } pairs[] = {{"gelu_tanh", pd_gelu_tanh_f64, pd_gelu_tanh_grad_f64},
               {"gelu_erf", pd_gelu_erf_f64, pd_gelu_erf_grad_f64},
               {"silu", pd_silu_f64, pd_silu_grad_f64},
               {"relu", pd_relu_f64, pd_relu_grad_f64}};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    for (double x = -8.01; x < 8; x += 0.11) { /* not 0, where relu has none */
      const double slope = (pairs[i].f(x + 1e-5) - pairs[i].f(x - 1e-5)) / 2e-5, got = pairs[i].grad(x, 3) / 3;
      cr_expect(fabs(got - slope) < 1e-9, "%s'(%g) is %.12g, slope %.12g", pairs[i].name, x, got, slope);
    }
  }
}
