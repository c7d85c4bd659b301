/* The host kernels for the real type R; F(name) adds the type's suffix, R_MIN is its least normal number. Included by
 * host.c only, which explains how threads are used; the contract of every kernel is in kernels.h. */

/* ---- products ---- */

/* a product, or a piece of one, by the calling thread alone */
static void F(host_part)(bool ta, bool tb, int64_t m, int64_t n, int64_t k, R alpha, const R *a, int64_t lda,
                         const R *b, int64_t ldb, R beta, R *c, int64_t ldc) {
  if (m <= 0 || n <= 0) return;
  if (k <= 0) {
    for (int64_t i = 0; i < m; i++) {
      for (int64_t j = 0; j < n; j++) c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
    }
    return;
  }
  if ((ta ? k : m) == 1) lda = ta ? m : k; /* the distance of rows, of which there is one: any value is allowed */
  if ((tb ? n : k) == 1) ldb = tb ? k : n;
  if (m == 1) ldc = n;
  F(host_blas)(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

static void F(host_gemm)(bool ta, bool tb, int64_t m, int64_t n, int64_t k, R alpha, const R *a, int64_t lda,
                         const R *b, int64_t ldb, R beta, R *c, int64_t ldc) {
  const host_grid grid = host_cut(m, n, k);
  if (grid.rows * grid.cols == 1) {
    const int threads = host_single();
    F(host_part)(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    host_restore(threads);
    return;
  }
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int64_t col = 0; col < grid.cols; col++) {
    for (int64_t row = 0; row < grid.rows; row++) {
      omp_set_num_threads(1);
      const int64_t i = host_start(m, grid.rows, row), height = host_start(m, grid.rows, row + 1) - i;
      const int64_t j = host_start(n, grid.cols, col), width = host_start(n, grid.cols, col + 1) - j;
      const R *left = a + (ta ? i : i * lda), *right = b + (tb ? j * ldb : j);
      F(host_part)(ta, tb, height, width, k, alpha, left, lda, right, ldb, beta, c + i * ldc + j, ldc);
    }
  }
}

/* Whether a matrix with rows `row` apart and columns `col` apart can be handed to the BLAS: as it lies (1), transposed
 * (2) or not (0); and its leading dimension. */
static int F(host_layout)(int64_t rows, int64_t row, int64_t cols, int64_t col, int64_t *ld) {
  if ((cols == 1 || col == 1) && (rows == 1 || row >= cols)) {
    *ld = rows == 1 ? cols : row;
    return 1;
  }
  if ((rows == 1 || row == 1) && (cols == 1 || col >= rows)) {
    *ld = cols == 1 ? rows : col;
    return 2;
  }
  return 0;
}

/* A contraction as products of matrices, one for every position of the remaining axes; false if it is not one, or too
 * small for that to pay. The view is simplified. */
static bool F(host_contract_gemm)(const pd_view *v, const R *a, const R *b, R scale, bool accumulate, R *out) {
  int kind[PD_MAX_RANK]; /* 0: m, 1: n, 2: k, 3: batch */
  for (int i = 0; i < v->rank; i++) {
    const bool in_out = v->out[i] != 0, in_a = v->a[i] != 0, in_b = v->b[i] != 0;
    if (in_out + in_a + in_b < 2) return false;
    kind[i] = !in_b ? 0 : !in_a ? 1 : !in_out ? 2 : 3;
  }
  int mi = -1, ni = -1, ki = -1;
  double best = 0;
  for (int code = 0; code < (v->rank + 1) * (v->rank + 1) * (v->rank + 1); code++) {
    const int x = code % (v->rank + 1) - 1, y = code / (v->rank + 1) % (v->rank + 1) - 1;
    const int z = code / (v->rank + 1) / (v->rank + 1) - 1;
    if ((x >= 0 && kind[x] != 0) || (y >= 0 && kind[y] != 1) || (z >= 0 && kind[z] != 2)) continue;
    const int64_t m = x < 0 ? 1 : v->size[x], n = y < 0 ? 1 : v->size[y], k = z < 0 ? 1 : v->size[z];
    int64_t ld;
    if (F(host_layout)(m, x < 0 ? 0 : v->a[x], k, z < 0 ? 0 : v->a[z], &ld) == 0) continue;
    if (F(host_layout)(k, z < 0 ? 0 : v->b[z], n, y < 0 ? 0 : v->b[y], &ld) == 0) continue;
    if (F(host_layout)(m, x < 0 ? 0 : v->out[x], n, y < 0 ? 0 : v->out[y], &ld) == 0) continue;
    const double work = (double)m * (double)n * (double)k;
    if (work > best) best = work, mi = x, ni = y, ki = z;
  }
  if (best < 4096) return false;

  const int64_t m = mi < 0 ? 1 : v->size[mi], n = ni < 0 ? 1 : v->size[ni], k = ki < 0 ? 1 : v->size[ki];
  int64_t lda, ldb, ldc;
  const bool ta = F(host_layout)(m, mi < 0 ? 0 : v->a[mi], k, ki < 0 ? 0 : v->a[ki], &lda) == 2;
  const bool tb = F(host_layout)(k, ki < 0 ? 0 : v->b[ki], n, ni < 0 ? 0 : v->b[ni], &ldb) == 2;
  const bool swapped = F(host_layout)(m, mi < 0 ? 0 : v->out[mi], n, ni < 0 ? 0 : v->out[ni], &ldc) == 2;
  pd_view kept = {0}, summed = {0};
  for (int i = 0; i < v->rank; i++) {
    if (i != mi && i != ni && i != ki) host_push(kind[i] == 2 ? &summed : &kept, v, i);
  }
  const int64_t products = host_count(&kept), terms = host_count(&summed);
  const host_grid grid = host_cut(m, n, k);
  const bool apart = grid.rows * grid.cols == 1 && best * (double)products * (double)terms > 1e6;
#pragma omp parallel for if (apart) schedule(dynamic)
  for (int64_t p = 0; p < products; p++) { /* small products at the same time; of a large one, its pieces */
    const host_place at = host_at(&kept, p);
    for (int64_t t = 0; t < terms; t++) {
      const host_place term = host_at(&summed, t);
      const R *left = a + at.a + term.a, *right = b + at.b + term.b, beta = accumulate || t > 0 ? 1 : 0;
      if (swapped) {
        F(host_gemm)(!tb, !ta, n, m, k, scale, right, ldb, left, lda, beta, out + at.out, ldc);
      } else {
        F(host_gemm)(ta, tb, m, n, k, scale, left, lda, right, ldb, beta, out + at.out, ldc);
      }
    }
  }
  return true;
}

/* ---- general sums and copies ---- */

/* sum of a[i * sa] (* b[i * sb]) in double */
static double F(host_line)(int64_t n, const R *a, int64_t sa, const R *b, int64_t sb) {
  double sum = 0;
  if (b == NULL && sa == 1) {
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += (double)a[i];
  } else if (b == NULL) {
    for (int64_t i = 0; i < n; i++) sum += (double)a[i * sa];
  } else if (sa == 1 && sb == 1) {
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
  } else {
    for (int64_t i = 0; i < n; i++) sum += (double)a[i * sa] * (double)b[i * sb];
  }
  return sum;
}

/* to[i] += a[i * sa] (* b[i * sb]) */
static void F(host_lanes)(int64_t n, const R *a, int64_t sa, const R *b, int64_t sb, double *to) {
  if (b == NULL && sa == 1) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] += (double)a[i];
  } else if (b == NULL) {
    for (int64_t i = 0; i < n; i++) to[i] += (double)a[i * sa];
  } else if (sa == 1 && sb == 1) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] += (double)a[i] * (double)b[i];
  } else if (sa == 1 && sb == 0) {
    const double factor = (double)*b;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] += (double)a[i] * factor;
  } else if (sa == 0 && sb == 1) {
    const double factor = (double)*a;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] += factor * (double)b[i];
  } else {
    for (int64_t i = 0; i < n; i++) to[i] += (double)a[i * sa] * (double)b[i * sb];
  }
}

/* A general contraction cut for the threads. Outputs are taken up to PD_LANES at a time along `lane`, the axis on which
 * the operands are contiguous, if that one is kept; else one at a time, and the contiguous axis is the last one summed.
 * Where there are few outputs each sum is cut in parts: how many follows from the sizes. */
typedef struct F(host_plan) {
  pd_view kept, summed, lane;
  int64_t width, strips, terms, parts;
  const R *a, *b;
} F(host_plan);

static void F(host_contract_part)(const F(host_plan) * plan, int64_t unit, int64_t part, double *sums) {
  const int64_t from = plan->terms * part / plan->parts, to = plan->terms * (part + 1) / plan->parts;
  const host_place at = host_at(&plan->kept, unit / plan->strips);
  const R *a = plan->a + at.a, *b = plan->b == NULL ? NULL : plan->b + at.b;
  if (plan->lane.rank > 0) {
    const int64_t first = unit % plan->strips * PD_LANES, count = host_min(PD_LANES, plan->width - first);
    const int64_t sa = plan->lane.a[0], sb = plan->lane.b[0];
    for (int64_t i = 0; i < count; i++) sums[i] = 0;
    for (int64_t t = from; t < to; t++) {
      const host_place term = host_at(&plan->summed, t);
      F(host_lanes)(count, a + term.a + first * sa, sa, b == NULL ? NULL : b + term.b + first * sb, sb, sums);
    }
    return;
  }
  const int last = plan->summed.rank - 1;
  const int64_t line = last < 0 ? 1 : plan->summed.size[last];
  const int64_t sa = last < 0 ? 0 : plan->summed.a[last], sb = last < 0 ? 0 : plan->summed.b[last];
  *sums = 0;
  for (int64_t t = from, count; t < to; t += count) {
    const host_place term = host_at(&plan->summed, t);
    count = host_min(line - t % line, to - t);
    *sums += F(host_line)(count, a + term.a, sa, b == NULL ? NULL : b + term.b, sb);
  }
}

static void F(host_contract_store)(const F(host_plan) * plan, int64_t unit, const double *sums, R scale,
                                   bool accumulate, R *out) {
  const int64_t first = unit % plan->strips * PD_LANES, count = host_min(PD_LANES, plan->width - first);
  const int64_t stride = plan->lane.out[0];
  R *to = out + host_at(&plan->kept, unit / plan->strips).out + first * stride;
  for (int64_t i = 0; i < count; i++) {
    to[i * stride] = (R)((accumulate ? (double)to[i * stride] : 0) + (double)scale * sums[i]);
  }
}

static void F(host_contract)(const pd_view *view, const R *a, const R *b, R scale, bool accumulate, R *out) {
  for (int i = 0; i < view->rank; i++) {
    if (view->size[i] > 0) continue;
    F(pd_set_ref).contract(view, a, b, scale, accumulate, out); /* an empty sum or nothing at all */
    return;
  }
  const pd_view v = host_simplify(view, b != NULL);
  if (b != NULL && F(host_contract_gemm)(&v, a, b, scale, accumulate, out)) return;

  F(host_plan) plan = {.a = a, .b = b};
  const int inner = host_inner(&v);
  const bool lanes = inner >= 0 && v.out[inner] != 0;
  for (int i = 0; i < v.rank; i++) {
    if (i != inner) host_push(v.out[i] != 0 ? &plan.kept : &plan.summed, &v, i);
  }
  if (inner >= 0) host_push(lanes ? &plan.lane : &plan.summed, &v, inner);
  plan.width = lanes ? v.size[inner] : 1;
  plan.strips = host_pieces(plan.width, PD_LANES);
  plan.terms = host_count(&plan.summed);
  const int64_t units = host_count(&plan.kept) * plan.strips;
  plan.parts = units >= 16 ? 1 : host_max(1, host_min(16, plan.terms / (lanes ? 64 : PD_CHUNK)));
  const int64_t pieces = units * plan.parts;
  double *partial = plan.parts > 1 ? host_scratch((size_t)pieces * PD_LANES * sizeof *partial) : NULL;
#pragma omp parallel for if (pieces > 1 && host_count(&v) > PD_GRAIN) schedule(static)
  for (int64_t piece = 0; piece < pieces; piece++) {
    double sums[PD_LANES];
    double *to = partial == NULL ? sums : partial + piece * PD_LANES;
    F(host_contract_part)(&plan, piece / plan.parts, piece % plan.parts, to);
    if (partial == NULL) F(host_contract_store)(&plan, piece, sums, scale, accumulate, out);
  }
  if (partial == NULL) return;
  for (int64_t unit = 0; unit < units; unit++) {
    double *sums = partial + unit * plan.parts * PD_LANES;
    const int64_t count = host_min(PD_LANES, plan.width);
    for (int64_t part = 1; part < plan.parts; part++) {
      for (int64_t i = 0; i < count; i++) sums[i] += sums[part * PD_LANES + i];
    }
    F(host_contract_store)(&plan, unit, sums, scale, accumulate, out);
  }
}

static void F(host_sum_rows)(int64_t rows, int64_t cols, const R *a, const R *b, bool accumulate, R *out) {
  const pd_view view = {.rank = 2, .size = {rows, cols}, .out = {0, 1}, .a = {cols, 1}, .b = {cols, 1}};
  F(host_contract)(&view, a, b, 1, accumulate, out);
}

static void F(host_sum_cols)(int64_t rows, int64_t cols, const R *a, const R *b, bool accumulate, R *out) {
  const pd_view view = {.rank = 2, .size = {rows, cols}, .out = {1, 0}, .a = {cols, 1}, .b = {cols, 1}};
  F(host_contract)(&view, a, b, 1, accumulate, out);
}

/* Tiles of `wide` x `deep` elements: along the axis on which out is most nearly contiguous, and along the other one on
 * which a is, so that a transposition reads and writes whole cache lines. */
static void F(host_copy)(const pd_view *view, const R *a, bool accumulate, R *out) {
  for (int i = 0; i < view->rank; i++) {
    if (view->size[i] > 0) continue;
    F(pd_set_ref).copy(view, a, accumulate, out);
    return;
  }
  const pd_view v = host_simplify(view, false);
  int wide = -1, deep = -1;
  for (int i = 0; i < v.rank; i++) {
    if (v.out[i] == 0) { /* a sum */
      F(host_contract)(view, a, NULL, 1, accumulate, out);
      return;
    }
    if (wide < 0 || llabs(v.out[i]) < llabs(v.out[wide])) wide = i;
  }
  for (int i = 0; i < v.rank; i++) {
    if (i != wide && (deep < 0 || llabs(v.a[i]) < llabs(v.a[deep]))) deep = i;
  }
  pd_view rest = {0};
  for (int i = 0; i < v.rank; i++) {
    if (i != wide && i != deep) host_push(&rest, &v, i);
  }
  const int64_t cols = wide < 0 ? 1 : v.size[wide], rows = deep < 0 ? 1 : v.size[deep];
  const int64_t so = wide < 0 ? 1 : v.out[wide], sa = wide < 0 ? 1 : v.a[wide];
  const int64_t down_out = deep < 0 ? 0 : v.out[deep], down_a = deep < 0 ? 0 : v.a[deep];
  const int64_t width = so == 1 && (sa == 1 || sa == 0) ? PD_CHUNK : 64, height = 32;
  const int64_t across = host_pieces(cols, width), down = host_pieces(rows, height);
  const int64_t tiles = host_count(&rest) * across * down;
#pragma omp parallel for if (host_count(&v) > PD_GRAIN) schedule(static)
  for (int64_t tile = 0; tile < tiles; tile++) {
    const host_place at = host_at(&rest, tile / across / down);
    const int64_t col = tile % across * width, count = host_min(width, cols - col);
    const int64_t row = tile / across % down * height, end = host_min(row + height, rows);
    for (int64_t i = row; i < end; i++) {
      R *to = out + at.out + i * down_out + col * so;
      const R *from = a + at.a + i * down_a + col * sa;
      if (accumulate && so == 1 && sa == 1) {
#pragma omp simd
        for (int64_t j = 0; j < count; j++) to[j] += from[j];
      } else if (accumulate) {
        for (int64_t j = 0; j < count; j++) to[j * so] += from[j * sa];
      } else if (so == 1 && sa == 1) {
        memcpy(to, from, (size_t)count * sizeof *to);
      } else {
        for (int64_t j = 0; j < count; j++) to[j * so] = from[j * sa];
      }
    }
  }
}

static void F(host_fill)(int64_t n, R value, R *out) {
#pragma omp parallel for simd if (n > PD_GRAIN) schedule(static)
  for (int64_t i = 0; i < n; i++) out[i] = value;
}

static void F(host_add)(int64_t n, const R *a, R *out) {
#pragma omp parallel for simd if (n > PD_GRAIN) schedule(static)
  for (int64_t i = 0; i < n; i++) out[i] += a[i];
}

static void F(host_scale)(int64_t n, R factor, R *out) {
#pragma omp parallel for simd if (n > PD_GRAIN) schedule(static)
  for (int64_t i = 0; i < n; i++) out[i] *= factor;
}

/* ---- rows: sums of up to 1024 elements in R, those in double ---- */

static double F(host_sum)(int64_t n, const R *x) {
  double total = 0;
  for (int64_t i = 0; i < n; i += 1024) {
    const int64_t end = host_min(n, i + 1024);
    R sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = i; j < end; j++) sum += x[j];
    total += (double)sum;
  }
  return total;
}

static double F(host_dot)(int64_t n, const R *x, const R *y) {
  double total = 0;
  for (int64_t i = 0; i < n; i += 1024) {
    const int64_t end = host_min(n, i + 1024);
    R sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = i; j < end; j++) sum += x[j] * y[j];
    total += (double)sum;
  }
  return total;
}

static double F(host_spread)(int64_t n, const R *x, R centre) { /* sum of (x - centre)^2 */
  double total = 0;
  for (int64_t i = 0; i < n; i += 1024) {
    const int64_t end = host_min(n, i + 1024);
    R sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = i; j < end; j++) sum += (x[j] - centre) * (x[j] - centre);
    total += (double)sum;
  }
  return total;
}

static R F(host_largest)(int64_t n, const R *x) {
  R lanes[32], max = (R)-INFINITY;
  int64_t i = 0;
  if (n >= 32) {
    memcpy(lanes, x, sizeof lanes);
    for (i = 32; i + 32 <= n; i += 32) {
      for (int j = 0; j < 32; j++) lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
    }
    for (int j = 0; j < 32; j++) max = lanes[j] > max ? lanes[j] : max;
  }
  for (; i < n; i++) max = x[i] > max ? x[i] : max;
  return max;
}

static double F(host_exp_sum)(int64_t n, const R *x, R max) { /* sum of exp(x - max) */
  double total = 0;
  for (int64_t i = 0; i < n; i += 1024) {
    const int64_t end = host_min(n, i + 1024);
    R sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = i; j < end; j++) sum += F(pd_exp)(x[j] - max);
    total += (double)sum;
  }
  return total;
}

static double F(host_exp_row)(int64_t n, const R *x, R max, R *y) { /* and y = exp(x - max); y may be x */
  double total = 0;
  for (int64_t i = 0; i < n; i += 1024) {
    const int64_t end = host_min(n, i + 1024);
    R sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = i; j < end; j++) {
      y[j] = F(pd_exp)(x[j] - max);
      sum += y[j];
    }
    total += (double)sum;
  }
  return total;
}

static void F(host_layernorm)(int64_t rows, int64_t n, R eps, const R *x, R *y, R *rstd) {
#pragma omp parallel for if (rows * n > PD_GRAIN) schedule(static)
  for (int64_t r = 0; r < rows; r++) {
    const R *from = x + r * n;
    R *to = y + r * n;
    const double count = (double)host_max(n, 1), mean = F(host_sum)(n, from) / count;
    const R centre = (R)mean, rest = (R)(mean - (double)centre); /* what rounding the mean lost, for large offsets */
    const double variance = F(host_spread)(n, from, centre) / count - (double)rest * (double)rest;
    const R inverse = (R)(1 / sqrt((variance > 0 ? variance : variance * 0) + (double)eps));
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = (from[i] - centre - rest) * inverse;
    rstd[r] = inverse;
  }
}

static void F(host_layernorm_grad)(int64_t rows, int64_t n, const R *y, const R *rstd, const R *dy, R *dx) {
#pragma omp parallel for if (rows * n > PD_GRAIN) schedule(static)
  for (int64_t r = 0; r < rows; r++) {
    const R *out = y + r * n, *from = dy + r * n, factor = rstd[r];
    R *to = dx + r * n;
    const R mean = (R)(F(host_sum)(n, from) / (double)host_max(n, 1));
    const R dot = (R)(F(host_dot)(n, from, out) / (double)host_max(n, 1));
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = factor * (from[i] - mean - out[i] * dot);
  }
}

static void F(host_rmsnorm)(int64_t rows, int64_t n, R eps, const R *x, R *y, R *rstd) {
#pragma omp parallel for if (rows * n > PD_GRAIN) schedule(static)
  for (int64_t r = 0; r < rows; r++) {
    const R *from = x + r * n;
    R *to = y + r * n;
    const R inverse = (R)(1 / sqrt(F(host_dot)(n, from, from) / (double)host_max(n, 1) + (double)eps));
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = from[i] * inverse;
    rstd[r] = inverse;
  }
}

static void F(host_rmsnorm_grad)(int64_t rows, int64_t n, const R *y, const R *rstd, const R *dy, R *dx) {
#pragma omp parallel for if (rows * n > PD_GRAIN) schedule(static)
  for (int64_t r = 0; r < rows; r++) {
    const R *out = y + r * n, *from = dy + r * n, factor = rstd[r];
    R *to = dx + r * n;
    const R dot = (R)(F(host_dot)(n, from, out) / (double)host_max(n, 1));
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = factor * (from[i] - out[i] * dot);
  }
}

static void F(host_softmax)(int64_t rows, int64_t n, const R *x, R *y) {
#pragma omp parallel for if (rows * n > PD_GRAIN) schedule(static)
  for (int64_t r = 0; r < rows; r++) {
    R *to = y + r * n;
    const R inverse = (R)(1 / F(host_exp_row)(n, x + r * n, F(host_largest)(n, x + r * n), to));
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] *= inverse;
  }
}

static void F(host_softmax_grad)(int64_t rows, int64_t n, const R *y, const R *dy, R *dx) {
#pragma omp parallel for if (rows * n > PD_GRAIN) schedule(static)
  for (int64_t r = 0; r < rows; r++) {
    const R *out = y + r * n, *from = dy + r * n, dot = (R)F(host_dot)(n, from, out);
    R *to = dx + r * n;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = out[i] * (from[i] - dot);
  }
}

/* ---- embedding ---- */

static void F(host_gather)(int64_t count, int64_t first, int64_t rows, int64_t width, const int32_t *ids,
                           const R *table, R *out) {
#pragma omp parallel for if (count * width > PD_GRAIN) schedule(static)
  for (int64_t i = 0; i < count; i++) {
    const int64_t row = ids[i] - first;
    R *to = out + i * width;
    if (row >= 0 && row < rows) {
      memcpy(to, table + row * width, (size_t)width * sizeof *to);
    } else {
      memset(to, 0, (size_t)width * sizeof *to); /* all bits 0 is the number 0 */
    }
  }
}

/* Each thread goes through all ids and adds, in their order, what is its own: some columns of every row. */
static void F(host_gather_grad)(int64_t count, int64_t first, int64_t rows, int64_t width, const int32_t *ids,
                                const R *dout, R *dtable) {
  const int64_t step = width >= 512 ? 128 : 64, strips = host_pieces(width, step);
#pragma omp parallel for if (count * width > PD_GRAIN) schedule(static)
  for (int64_t strip = 0; strip < strips; strip++) {
    const int64_t col = strip * step, end = host_min(col + step, width);
    for (int64_t i = 0; i < count; i++) {
      const int64_t row = ids[i] - first;
      if (row < 0 || row >= rows) continue;
      const R *from = dout + i * width;
      R *to = dtable + row * width;
#pragma omp simd
      for (int64_t j = col; j < end; j++) to[j] += from[j];
    }
  }
}

/* ---- attention: for every head, PD_QUERIES queries at a time against all the keys that they see ---- */

static void F(host_sdpa)(int64_t b, int64_t s, int64_t t, int64_t h, int64_t g, int64_t d, bool causal, const R *q,
                         const R *k, const R *v, R *o, R *lse) {
  const int64_t blocks = host_pieces(s, PD_QUERIES), units = b * h * blocks, each = PD_QUERIES * t;
  const R scale = (R)(1 / sqrt((double)d));
  const int threads = (double)units * (double)each > PD_GRAIN ? omp_get_max_threads() : 1;
  R *scratch = host_scratch((size_t)(threads * each) * sizeof *scratch);
#pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (int64_t unit = 0; unit < units; unit++) {
    omp_set_num_threads(1);
    const int64_t head = unit / blocks % h, batch = unit / blocks / h, group = head / (h / g);
    const int64_t first = (blocks - 1 - unit % blocks) * PD_QUERIES; /* the ones with most keys first */
    const int64_t count = host_min(PD_QUERIES, s - first), keys = host_seen(first + count - 1, s, t, causal);
    const int64_t at = ((batch * s + first) * h + head) * d, at_keys = (batch * t * g + group) * d;
    R *scores = scratch + omp_get_thread_num() * each, *to = o + at;
    F(host_part)(false, true, count, keys, d, scale, q + at, h * d, k + at_keys, g * d, 0, scores, keys);
    double sums[PD_QUERIES];
    for (int64_t i = 0; i < count; i++) {
      R *row = scores + i * keys;
      const int64_t seen = host_seen(first + i, s, t, causal);
      const R max = F(host_largest)(seen, row);
      sums[i] = F(host_exp_row)(seen, row, max, row);
      for (int64_t j = seen; j < keys; j++) row[j] = 0;
      lse[(batch * h + head) * s + first + i] = (R)((double)max + log(sums[i])); /* no key: -inf */
    }
    F(host_part)(false, false, count, d, keys, 1, scores, keys, v + at_keys, g * d, 0, to, h * d);
    for (int64_t i = 0; i < count; i++) {
      const R inverse = (R)(sums[i] > 0 ? 1 / sums[i] : sums[i]);
#pragma omp simd
      for (int64_t e = 0; e < d; e++) to[i * h * d + e] *= inverse;
    }
  }
}

/* For every query head in order of its queries; where heads share keys each has dk and dv of its own, added after. */
static void F(host_sdpa_grad)(int64_t b, int64_t s, int64_t t, int64_t h, int64_t g, int64_t d, bool causal, const R *q,
                              const R *k, const R *v, const R *o, const R *lse, const R *d_o, R *dq, R *dk, R *dv) {
  const int64_t each = PD_QUERIES * t, share = h / g, own = share > 1 ? b * h * t * d : 0;
  const R scale = (R)(1 / sqrt((double)d));
  const int threads = (double)(b * h * s) * (double)t > PD_GRAIN ? omp_get_max_threads() : 1;
  R *scratch = host_scratch((size_t)(2 * threads * each + 2 * own) * sizeof *scratch);
  R *own_dk = scratch + 2 * threads * each, *own_dv = own_dk + own;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (int64_t unit = 0; unit < b * h; unit++) {
    omp_set_num_threads(1);
    const int64_t head = unit % h, batch = unit / h, at_keys = (batch * t * g + head / share) * d;
    R *p = scratch + 2 * omp_get_thread_num() * each, *ds = p + each;
    R *to_dk = own > 0 ? own_dk + unit * t * d : dk + at_keys, *to_dv = own > 0 ? own_dv + unit * t * d : dv + at_keys;
    const int64_t apart = own > 0 ? d : g * d; /* from one key to the next */
    for (int64_t j = 0; j < t; j++) {
      memset(to_dk + j * apart, 0, (size_t)d * sizeof *to_dk);
      memset(to_dv + j * apart, 0, (size_t)d * sizeof *to_dv);
    }
    for (int64_t first = 0; first < s; first += PD_QUERIES) {
      const int64_t count = host_min(PD_QUERIES, s - first), keys = host_seen(first + count - 1, s, t, causal);
      const int64_t at = ((batch * s + first) * h + head) * d;
      F(host_part)(false, true, count, keys, d, scale, q + at, h * d, k + at_keys, g * d, 0, p, keys);
      F(host_part)(false, true, count, keys, d, 1, d_o + at, h * d, v + at_keys, g * d, 0, ds, keys);
      for (int64_t i = 0; i < count; i++) {
        const int64_t seen = host_seen(first + i, s, t, causal);
        const R total = lse[(batch * h + head) * s + first + i];
        const R delta = (R)F(host_dot)(d, d_o + at + i * h * d, o + at + i * h * d); /* sum over keys of p * dp */
        R *p_row = p + i * keys, *ds_row = ds + i * keys;
#pragma omp simd
        for (int64_t j = 0; j < seen; j++) {
          p_row[j] = F(pd_exp)(p_row[j] - total);
          ds_row[j] = p_row[j] * (ds_row[j] - delta) * scale;
        }
        for (int64_t j = seen; j < keys; j++) p_row[j] = ds_row[j] = 0;
      }
      F(host_part)(true, false, keys, d, count, 1, p, keys, d_o + at, h * d, 1, to_dv, apart);
      F(host_part)(true, false, keys, d, count, 1, ds, keys, q + at, h * d, 1, to_dk, apart);
      F(host_part)(false, false, count, d, keys, 1, ds, keys, k + at_keys, g * d, 0, dq + at, h * d);
    }
  }
  if (own == 0) return;
#pragma omp parallel for if (own > PD_GRAIN) schedule(static)
  for (int64_t key = 0; key < b * t * g; key++) {
    const int64_t group = key % g, j = key / g % t, batch = key / g / t;
    R *to_dk = dk + key * d, *to_dv = dv + key * d;
    for (int64_t i = 0; i < share; i++) {
      const int64_t from = ((batch * h + group * share + i) * t + j) * d;
      for (int64_t e = 0; e < d; e++) {
        to_dk[e] = i == 0 ? own_dk[from + e] : to_dk[e] + own_dk[from + e];
        to_dv[e] = i == 0 ? own_dv[from + e] : to_dv[e] + own_dv[from + e];
      }
    }
  }
}

/* Sines and cosines of the calling thread's last (positions, d, theta): every layer asks for the same ones. */
static const R *F(host_turns)(int64_t s, int64_t d, double theta) {
  static _Thread_local R *table;
  static _Thread_local int64_t known_s, known_d;
  static _Thread_local double known_theta;
  const int64_t half = d / 2;
  if (table != NULL && known_s == s && known_d == d && known_theta == theta) return table;
  free(table);
  table = malloc((size_t)(s * half * 2 + 1) * sizeof *table);
  if (table == NULL) {
    fprintf(stderr, "pdrt: no memory for the rotations of %lld positions\n", (long long)s);
    abort();
  }
  R *const to = table;
#pragma omp parallel for if (s * half > PD_GRAIN / 16) schedule(static)
  for (int64_t i = 0; i < s; i++) {
    for (int64_t j = 0; j < half; j++) {
      const double angle = (double)i * pow(theta, -2.0 * (double)j / (double)d);
      to[i * half * 2 + j] = (R)cos(angle);
      to[i * half * 2 + half + j] = (R)sin(angle);
    }
  }
  known_s = s, known_d = d, known_theta = theta;
  return table;
}

static void F(host_rope)(int64_t b, int64_t s, int64_t h, int64_t d, double theta, int sign, const R *x, R *y) {
  const int64_t half = d / 2;
  const R *turns = F(host_turns)(s, d, theta), way = (R)sign;
#pragma omp parallel for if (b * s * h * d > PD_GRAIN) schedule(static)
  for (int64_t row = 0; row < b * s; row++) {
    const R *c = turns + row % s * half * 2, *sn = c + half;
    for (int64_t head = 0; head < h; head++) {
      const R *from = x + (row * h + head) * d;
      R *to = y + (row * h + head) * d;
#pragma omp simd
      for (int64_t j = 0; j < half; j++) {
        const R first = from[j], second = from[j + half], sine = way * sn[j];
        to[j] = first * c[j] - second * sine;
        to[j + half] = second * c[j] + first * sine;
      }
      if (d % 2 != 0) to[d - 1] = from[d - 1];
    }
  }
}

#include "kernels/host_images.inc.h"

/* ---- losses ---- */

static void F(host_xent_max)(int64_t rows, int64_t classes, const R *x, R *row_max) {
#pragma omp parallel for if (rows * classes > PD_GRAIN) schedule(static)
  for (int64_t r = 0; r < rows; r++) row_max[r] = F(host_largest)(classes, x + r * classes);
}

static void F(host_xent_sums)(int64_t rows, int64_t classes, int64_t first, const R *x, const int32_t *targets,
                              const R *row_max, R *sums) {
#pragma omp parallel for if (rows * classes > PD_GRAIN) schedule(static)
  for (int64_t r = 0; r < rows; r++) {
    const int64_t target = targets[r] - first;
    const bool here = targets[r] != PD_IGNORE && target >= 0 && target < classes;
    sums[r] = (R)F(host_exp_sum)(classes, x + r * classes, row_max[r]);
    sums[rows + r] = here ? x[r * classes + target] - row_max[r] : 0;
  }
}

static void F(host_xent_grad)(int64_t rows, int64_t classes, int64_t first, R factor, const R *x,
                              const int32_t *targets, const R *row_max, const R *sums, R *dx) {
#pragma omp parallel for if (rows * classes > PD_GRAIN) schedule(static)
  for (int64_t r = 0; r < rows; r++) {
    const R *from = x + r * classes, max = row_max[r], inverse = 1 / sums[r];
    R *to = dx + r * classes;
    if (targets[r] == PD_IGNORE) {
      memset(to, 0, (size_t)classes * sizeof *to);
      continue;
    }
    const int64_t target = targets[r] - first;
    const bool here = target >= 0 && target < classes;
    const R p = here ? F(pd_exp)(from[target] - max) * inverse : 0;
    const R all = factor * inverse;
#pragma omp simd
    for (int64_t c = 0; c < classes; c++) to[c] = all * F(pd_exp)(from[c] - max);
    if (here) to[target] = factor * (p - 1);
  }
}

static int64_t F(host_accuracy)(int64_t rows, int64_t classes, const R *x, const int32_t *targets) {
  int64_t right = 0;
#pragma omp parallel for if (rows * classes > PD_GRAIN) schedule(static) reduction(+ : right)
  for (int64_t r = 0; r < rows; r++) {
    const R *row = x + r * classes;
    const int64_t target = targets[r];
    if (target == PD_IGNORE || target < 0 || target >= classes) continue;
    /* the first of the largest: above all before it, not below any after it */
    if (F(host_largest)(target, row) < row[target] && F(host_largest)(classes, row) <= row[target]) right++;
  }
  return right;
}

/* Long sums in double, in PD_PARTS pieces or fewer: how many follows from n. */
static double F(host_pieces_sum)(int64_t n, const R *a, const R *b) { /* of (a - b)^2, or of a^2 if b is NULL */
  double partial[PD_PARTS], total = 0;
  const int64_t parts = host_min(PD_PARTS, host_pieces(n, PD_CHUNK));
#pragma omp parallel for if (n > PD_GRAIN) schedule(static)
  for (int64_t part = 0; part < parts; part++) {
    const int64_t from = host_start(n, parts, part), to = host_start(n, parts, part + 1);
    const int64_t half = (to - from) / 2;
    double even = 0, odd = 0; /* two, so that one addition need not wait for the other */
    if (b == NULL) {
#pragma omp simd reduction(+ : even, odd)
      for (int64_t i = from; i < from + half; i++) {
        even += (double)a[i] * (double)a[i];
        odd += (double)a[i + half] * (double)a[i + half];
      }
    } else {
#pragma omp simd reduction(+ : even, odd)
      for (int64_t i = from; i < from + half; i++) {
        const double x = (double)a[i] - (double)b[i], y = (double)a[i + half] - (double)b[i + half];
        even += x * x;
        odd += y * y;
      }
    }
    for (int64_t i = from + 2 * half; i < to; i++) {
      const double x = (double)a[i] - (b == NULL ? 0 : (double)b[i]);
      even += x * x;
    }
    partial[part] = even + odd;
  }
  for (int64_t part = 0; part < parts; part++) total += partial[part];
  return total;
}

static double F(host_mse)(int64_t n, const R *a, const R *b) {
  return F(host_pieces_sum)(n, a, b);
}

static double F(host_sum_squares)(int64_t n, const R *x) {
  return F(host_pieces_sum)(n, x, NULL);
}

static void F(host_mse_grad)(int64_t n, R factor, const R *a, const R *b, R *da) {
  const R twice = factor * 2;
#pragma omp parallel for simd if (n > PD_GRAIN) schedule(static)
  for (int64_t i = 0; i < n; i++) da[i] = twice * (a[i] - b[i]);
}

/* ---- random numbers: local runs of consecutive global positions, PD_CHUNK elements at a time ---- */

static void F(host_dropout)(pd_key key, uint64_t step, int64_t sample0, int64_t samples, int64_t n, const pd_local *at,
                            double p, const R *x, R *y) {
  const uint64_t mask_key = pd_dropout_key(key, step), limit = pd_dropout_limit(p);
  const int64_t pieces = host_pieces(n, PD_CHUNK), run = pd_local_run(at, n);
  const R factor = (R)(1 / (1 - p));
  if (limit > UINT32_MAX) {
    F(host_fill)(samples * n, 0, y);
    return;
  }
#pragma omp parallel for if (samples * n > PD_GRAIN / 8) schedule(static)
  for (int64_t piece = 0; piece < samples * pieces; piece++) {
    const int64_t sample = piece / pieces, from = piece % pieces * PD_CHUNK, to = host_min(from + PD_CHUNK, n);
    const uint32_t least = (uint32_t)limit;
    uint32_t words[PD_CHUNK];
    for (int64_t i = from, count; i < to; i += count) {
      count = host_min(run - i % run, to - i);
      host_words(mask_key, (uint64_t)(sample0 + sample), (uint64_t)pd_global_index(at, i), count, words + (i - from));
    }
    const R *in = x + sample * n + from;
    R *out = y + sample * n + from;
#pragma omp simd
    for (int64_t i = 0; i < to - from; i++) out[i] = words[i] >= least ? in[i] * factor : 0;
  }
}

static void F(host_init_normal)(pd_key key, int64_t n, const pd_local *at, double std, R *out) {
  const int64_t pieces = host_pieces(n, PD_CHUNK), run = pd_local_run(at, n);
#pragma omp parallel for if (n > PD_GRAIN / 8) schedule(static)
  for (int64_t piece = 0; piece < pieces; piece++) {
    const int64_t to = host_min((piece + 1) * PD_CHUNK, n);
    for (int64_t i = piece * PD_CHUNK, count; i < to; i += count) {
      const uint64_t first = (uint64_t)pd_global_index(at, i), pair = first / 2;
      count = host_min(host_min(run - i % run, to - i), 2 * PD_LANES - 1); /* touches PD_LANES pairs at most */
      const int64_t pairs = (int64_t)((first + (uint64_t)count - 1) / 2 - pair) + 1;
      uint32_t words[4 * PD_LANES];
      double values[2 * PD_LANES];
      host_words(key.seed, key.purpose ^ PD_DRAW_NORMAL, 4 * pair, 4 * pairs, words);
#pragma omp simd
      for (int64_t j = 0; j < pairs; j++) pd_normal_of_block(words + 4 * j, values + 2 * j);
      for (int64_t j = 0; j < count; j++) out[i + j] = (R)(std * values[(int64_t)(first % 2) + j]);
    }
  }
}

static void F(host_init_uniform)(pd_key key, int64_t n, const pd_local *at, double lo, double hi, R *out) {
  const int64_t pieces = host_pieces(n, PD_CHUNK), run = pd_local_run(at, n);
#pragma omp parallel for if (n > PD_GRAIN / 8) schedule(static)
  for (int64_t piece = 0; piece < pieces; piece++) {
    const int64_t from = piece * PD_CHUNK, to = host_min(from + PD_CHUNK, n);
    uint32_t words[PD_CHUNK];
    for (int64_t i = from, count; i < to; i += count) {
      count = host_min(run - i % run, to - i);
      host_words(key.seed, key.purpose, (uint64_t)pd_global_index(at, i), count, words + (i - from));
    }
#pragma omp simd
    for (int64_t i = from; i < to; i++) {
      const R value = (R)(lo + (hi - lo) * (double)pd_unit24(words[i - from]));
      out[i] = (double)value >= hi ? (R)lo : value;
    }
  }
}

/* ---- optimizers ---- */

/* In R throughout: it is bound by memory. Moments below the least normal number count as 0, since arithmetic on
 * subnormal numbers takes a hundred times longer and decaying moments would stay there for ever; v only where eps is so
 * large that it makes no difference. */
static void F(host_adamw)(int64_t n, R *w, const R *gradient, R *m, R *v, double factor, double lr, double beta1,
                          double beta2, double eps, double decay, double c1, double c2) {
  const R f = (R)factor, b1 = (R)beta1, b2 = (R)beta2, rest1 = (R)(1 - beta1), rest2 = (R)(1 - beta2);
  const R rate = (R)(lr / c1), inverse2 = (R)(1 / c2), e = (R)eps, shrink = (R)(lr * decay);
  const R least_v = eps >= 1e-12 ? R_MIN : 0;
#pragma omp parallel for simd if (n > PD_GRAIN) schedule(static)
  for (int64_t i = 0; i < n; i++) {
    const R g = f * gradient[i], first = b1 * m[i] + rest1 * g, second = b2 * v[i] + rest2 * g * g;
    const R mean = first < R_MIN && first > -R_MIN ? 0 : first, square = second < least_v ? 0 : second;
    m[i] = mean;
    v[i] = square;
    w[i] -= rate * mean / (F(pd_sqrt)(square * inverse2) + e) + shrink * w[i];
  }
}

/* As above, without decay in the moments. The direction is worked out twice rather than kept. */
static R F(host_lamb_direction)(R m, R v, R w, R inverse1, R inverse2, R eps, R decay) {
  return m * inverse1 / (F(pd_sqrt)(v * inverse2) + eps) + decay * w;
}

static double F(host_lamb_moments)(int64_t n, const R *w, const R *gradient, R *m, R *v, double factor, double beta1,
                                   double beta2, double eps, double decay, double c1, double c2) {
  const R f = (R)factor, b1 = (R)beta1, b2 = (R)beta2, rest1 = (R)(1 - beta1), rest2 = (R)(1 - beta2);
  const R inverse1 = (R)(1 / c1), inverse2 = (R)(1 / c2), e = (R)eps, shrink = (R)decay;
  const R least_v = eps >= 1e-12 ? R_MIN : 0;
  const int64_t parts = host_min(PD_PARTS, host_pieces(n, PD_CHUNK));
  double partial[PD_PARTS], total = 0;
#pragma omp parallel for if (n > PD_GRAIN) schedule(static)
  for (int64_t part = 0; part < parts; part++) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = host_start(n, parts, part); i < host_start(n, parts, part + 1); i++) {
      const R g = f * gradient[i], first = b1 * m[i] + rest1 * g, second = b2 * v[i] + rest2 * g * g;
      const R mean = first < R_MIN && first > -R_MIN ? 0 : first, square = second < least_v ? 0 : second;
      m[i] = mean;
      v[i] = square;
      const double r = (double)F(host_lamb_direction)(mean, square, w[i], inverse1, inverse2, e, shrink);
      sum += r * r;
    }
    partial[part] = sum;
  }
  for (int64_t part = 0; part < parts; part++) total += partial[part];
  return total;
}

static void F(host_lamb_step)(int64_t n, R *w, const R *m, const R *v, double lr, double eps, double decay, double c1,
                              double c2) {
  const R rate = (R)lr, inverse1 = (R)(1 / c1), inverse2 = (R)(1 / c2), e = (R)eps, shrink = (R)decay;
#pragma omp parallel for simd if (n > PD_GRAIN) schedule(static)
  for (int64_t i = 0; i < n; i++) {
    w[i] -= rate * F(host_lamb_direction)(m[i], v[i], w[i], inverse1, inverse2, e, shrink);
  }
}

static void F(host_sgd)(int64_t n, R *w, const R *gradient, R *mom, double factor, double lr, double momentum,
                        double decay) {
  const R f = (R)factor, rate = (R)lr, keep = (R)momentum, shrink = (R)decay;
  if (mom == NULL) {
#pragma omp parallel for simd if (n > PD_GRAIN) schedule(static)
    for (int64_t i = 0; i < n; i++) w[i] -= rate * (f * gradient[i] + shrink * w[i]);
    return;
  }
#pragma omp parallel for simd if (n > PD_GRAIN) schedule(static)
  for (int64_t i = 0; i < n; i++) {
    const R step = keep * mom[i] + (f * gradient[i] + shrink * w[i]);
    const R kept = step < R_MIN && step > -R_MIN ? 0 : step; /* as in adamw */
    mom[i] = kept;
    w[i] -= rate * kept;
  }
}

const F(pd_kernels) F(pd_set_host) = {
    .set = "host",
    .gemm = F(host_gemm),
    .contract = F(host_contract),
    .copy = F(host_copy),
    .fill = F(host_fill),
    .add = F(host_add),
    .scale = F(host_scale),
    .sum_rows = F(host_sum_rows),
    .sum_cols = F(host_sum_cols),
    .layernorm = F(host_layernorm),
    .layernorm_grad = F(host_layernorm_grad),
    .rmsnorm = F(host_rmsnorm),
    .rmsnorm_grad = F(host_rmsnorm_grad),
    .softmax = F(host_softmax),
    .softmax_grad = F(host_softmax_grad),
    .gather = F(host_gather),
    .gather_grad = F(host_gather_grad),
    .sdpa = F(host_sdpa),
    .sdpa_grad = F(host_sdpa_grad),
    .rope = F(host_rope),
    .conv2d = F(host_conv2d),
    .conv2d_input_grad = F(host_conv2d_input_grad),
    .conv2d_filter_grad = F(host_conv2d_filter_grad),
    .maxpool = F(host_maxpool),
    .maxpool_grad = F(host_maxpool_grad),
    .avgpool = F(host_avgpool),
    .avgpool_grad = F(host_avgpool_grad),
    .batchnorm = F(host_batchnorm),
    .batchnorm_given = F(host_batchnorm_given),
    .batchnorm_grad = F(host_batchnorm_grad),
    .xent_max = F(host_xent_max),
    .xent_sums = F(host_xent_sums),
    .xent_grad = F(host_xent_grad),
    .accuracy = F(host_accuracy),
    .mse = F(host_mse),
    .mse_grad = F(host_mse_grad),
    .dropout = F(host_dropout),
    .adamw = F(host_adamw),
    .lamb_moments = F(host_lamb_moments),
    .lamb_step = F(host_lamb_step),
    .sgd = F(host_sgd),
    .sum_squares = F(host_sum_squares),
    .init_normal = F(host_init_normal),
    .init_uniform = F(host_init_uniform), /* xent_loss: one logarithm a row, ref's is enough */
};
