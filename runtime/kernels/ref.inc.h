/* The reference kernels for the real type R; F(name) adds the type's suffix. Included by ref.c only; the contract of
 * every kernel is in kernels.h. */

static void F(ref_gemm)(bool ta, bool tb, int64_t m, int64_t n, int64_t k, R alpha, const R *a, int64_t lda, const R *b,
                        int64_t ldb, R beta, R *c, int64_t ldc) {
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = 0; j < n; j++) {
      double sum = 0;
      for (int64_t p = 0; p < k; p++) {
        sum += (double)(ta ? a[p * lda + i] : a[i * lda + p]) * (double)(tb ? b[j * ldb + p] : b[p * ldb + j]);
      }
      const double old = beta == 0 ? 0 : (double)beta * (double)c[i * ldc + j]; /* 0: what C held, NaN too, is gone */
      c[i * ldc + j] = (R)((double)alpha * sum + old);
    }
  }
}

/* Steps `index` to the next position of the axes that `use` selects, the last one fastest, and moves the three offsets
 * along; false after the last position, with all of them back at the first. */
static bool F(ref_next)(const pd_view *v, const bool *use, int64_t *index, int64_t *out, int64_t *a, int64_t *b) {
  for (int axis = v->rank - 1; axis >= 0; axis--) {
    if (!use[axis]) continue;
    *out += v->out[axis], *a += v->a[axis], *b += v->b[axis];
    if (++index[axis] < v->size[axis]) return true;
    *out -= v->out[axis] * v->size[axis], *a -= v->a[axis] * v->size[axis], *b -= v->b[axis] * v->size[axis];
    index[axis] = 0;
  }
  return false;
}

static void F(ref_contract)(const pd_view *view, const R *a, const R *b, R scale, bool accumulate, R *out) {
  bool kept[PD_MAX_RANK] = {false}, summed[PD_MAX_RANK] = {false}, empty_sum = false;
  for (int axis = 0; axis < view->rank; axis++) {
    summed[axis] = view->out[axis] == 0;
    kept[axis] = !summed[axis];
    if (view->size[axis] == 0 && kept[axis]) return;
    if (view->size[axis] == 0) empty_sum = true;
  }
  int64_t index[PD_MAX_RANK] = {0}, o = 0, pa = 0, pb = 0;
  do {
    double sum = 0;
    if (!empty_sum) {
      do sum += b == NULL ? (double)a[pa] : (double)a[pa] * (double)b[pb];
      while (F(ref_next)(view, summed, index, &o, &pa, &pb));
    }
    out[o] = (R)((accumulate ? (double)out[o] : 0) + (double)scale * sum);
  } while (F(ref_next)(view, kept, index, &o, &pa, &pb));
}

static void F(ref_copy)(const pd_view *view, const R *a, bool accumulate, R *out) {
  F(ref_contract)(view, a, NULL, 1, accumulate, out);
}

static void F(ref_fill)(int64_t n, R value, R *out) {
  for (int64_t i = 0; i < n; i++) out[i] = value;
}

static void F(ref_add)(int64_t n, const R *a, R *out) {
  for (int64_t i = 0; i < n; i++) out[i] += a[i];
}

static void F(ref_scale)(int64_t n, R factor, R *out) {
  for (int64_t i = 0; i < n; i++) out[i] *= factor;
}

static void F(ref_sum_rows)(int64_t rows, int64_t cols, const R *a, const R *b, bool accumulate, R *out) {
  for (int64_t c = 0; c < cols; c++) {
    double sum = accumulate ? (double)out[c] : 0;
    for (int64_t r = 0; r < rows; r++) sum += (double)a[r * cols + c] * (b == NULL ? 1 : (double)b[r * cols + c]);
    out[c] = (R)sum;
  }
}

static void F(ref_sum_cols)(int64_t rows, int64_t cols, const R *a, const R *b, bool accumulate, R *out) {
  for (int64_t r = 0; r < rows; r++) {
    double sum = accumulate ? (double)out[r] : 0;
    for (int64_t c = 0; c < cols; c++) sum += (double)a[r * cols + c] * (b == NULL ? 1 : (double)b[r * cols + c]);
    out[r] = (R)sum;
  }
}

static void F(ref_layernorm)(int64_t rows, int64_t n, R eps, const R *x, R *y, R *rstd) {
  for (int64_t r = 0; r < rows; r++, x += n, y += n) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < n; i++) mean += (double)x[i] / (double)n;
    for (int64_t i = 0; i < n; i++) variance += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)n;
    const double inverse = 1 / sqrt(variance + (double)eps);
    for (int64_t i = 0; i < n; i++) y[i] = (R)(((double)x[i] - mean) * inverse);
    rstd[r] = (R)inverse;
  }
}

static void F(ref_layernorm_grad)(int64_t rows, int64_t n, const R *y, const R *rstd, const R *dy, R *dx) {
  for (int64_t r = 0; r < rows; r++, y += n, dy += n, dx += n) {
    double mean = 0, dot = 0;
    for (int64_t i = 0; i < n; i++) {
      mean += (double)dy[i] / (double)n;
      dot += (double)dy[i] * (double)y[i] / (double)n;
    }
    for (int64_t i = 0; i < n; i++) dx[i] = (R)((double)rstd[r] * ((double)dy[i] - mean - (double)y[i] * dot));
  }
}

static void F(ref_rmsnorm)(int64_t rows, int64_t n, R eps, const R *x, R *y, R *rstd) {
  for (int64_t r = 0; r < rows; r++, x += n, y += n) {
    double square = 0;
    for (int64_t i = 0; i < n; i++) square += (double)x[i] * (double)x[i] / (double)n;
    const double inverse = 1 / sqrt(square + (double)eps);
    for (int64_t i = 0; i < n; i++) y[i] = (R)((double)x[i] * inverse);
    rstd[r] = (R)inverse;
  }
}

static void F(ref_rmsnorm_grad)(int64_t rows, int64_t n, const R *y, const R *rstd, const R *dy, R *dx) {
  for (int64_t r = 0; r < rows; r++, y += n, dy += n, dx += n) {
    double dot = 0;
    for (int64_t i = 0; i < n; i++) dot += (double)dy[i] * (double)y[i] / (double)n;
    for (int64_t i = 0; i < n; i++) dx[i] = (R)((double)rstd[r] * ((double)dy[i] - (double)y[i] * dot));
  }
}

static void F(ref_softmax)(int64_t rows, int64_t n, const R *x, R *y) {
  for (int64_t r = 0; r < rows; r++, x += n, y += n) {
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) max = fmax(max, (double)x[i]);
    for (int64_t i = 0; i < n; i++) sum += exp((double)x[i] - max);
    for (int64_t i = 0; i < n; i++) y[i] = (R)(exp((double)x[i] - max) / sum);
  }
}

static void F(ref_softmax_grad)(int64_t rows, int64_t n, const R *y, const R *dy, R *dx) {
  for (int64_t r = 0; r < rows; r++, y += n, dy += n, dx += n) {
    double dot = 0;
    for (int64_t i = 0; i < n; i++) dot += (double)y[i] * (double)dy[i];
    for (int64_t i = 0; i < n; i++) dx[i] = (R)((double)y[i] * ((double)dy[i] - dot));
  }
}

static int64_t F(ref_first_largest)(int64_t n, const R *x) {
  int64_t at = 0;
  for (int64_t i = 1; i < n; i++)
    if (x[i] > x[at] || (x[i] != x[i] && x[at] == x[at])) at = i; /* what is no number is above all */
  return at;
}

static void F(ref_max)(int64_t rows, int64_t n, const R *x, R *y) {
  for (int64_t r = 0; r < rows; r++, x += n) y[r] = x[F(ref_first_largest)(n, x)];
}

static void F(ref_max_grad)(int64_t rows, int64_t n, const R *x, const R *dy, R *dx) {
  for (int64_t r = 0; r < rows; r++, x += n, dx += n) {
    for (int64_t i = 0; i < n; i++) dx[i] = 0;
    dx[F(ref_first_largest)(n, x)] = dy[r];
  }
}

static void F(ref_gather)(int64_t count, int64_t first, int64_t rows, int64_t width, const int32_t *ids, const R *table,
                          R *out) {
  for (int64_t i = 0; i < count; i++) {
    const int64_t row = ids[i] - first;
    const bool here = row >= 0 && row < rows;
    for (int64_t j = 0; j < width; j++) out[i * width + j] = here ? table[row * width + j] : 0;
  }
}

static void F(ref_gather_grad)(int64_t count, int64_t first, int64_t rows, int64_t width, const int32_t *ids,
                               const R *dout, R *dtable) {
  for (int64_t i = 0; i < count; i++) {
    const int64_t row = ids[i] - first;
    if (row < 0 || row >= rows) continue;
    for (int64_t j = 0; j < width; j++) dtable[row * width + j] += dout[i * width + j];
  }
}

/* The number of keys that query i of s sees among t: all of them, or those up to its own position counted from the
 * end, so that the last query sees the last key. Not positive: none. */
static int64_t F(ref_visible)(int64_t i, int64_t s, int64_t t, bool causal) {
  return causal ? i + 1 + t - s : t;
}

static double F(ref_dot)(int64_t d, const R *a, const R *b) {
  double sum = 0;
  for (int64_t i = 0; i < d; i++) sum += (double)a[i] * (double)b[i];
  return sum;
}

static void F(ref_sdpa)(int64_t b, int64_t s, int64_t t, int64_t h, int64_t g, int64_t d, bool causal, const R *q,
                        const R *k, const R *v, R *o, R *lse) {
  const double scale = 1 / sqrt((double)d);
  for (int64_t bi = 0; bi < b; bi++) {
    for (int64_t hi = 0; hi < h; hi++) {
      const int64_t gi = hi / (h / g);
      for (int64_t i = 0; i < s; i++) {
        const R *query = q + ((bi * s + i) * h + hi) * d;
        R *result = o + ((bi * s + i) * h + hi) * d;
        const int64_t keys = F(ref_visible)(i, s, t, causal);
        double max = -INFINITY, sum = 0;
        for (int64_t j = 0; j < keys; j++) {
          max = fmax(max, scale * F(ref_dot)(d, query, k + ((bi * t + j) * g + gi) * d));
        }
        for (int64_t j = 0; j < keys; j++) {
          sum += exp(scale * F(ref_dot)(d, query, k + ((bi * t + j) * g + gi) * d) - max);
        }
        const double total = keys > 0 ? max + log(sum) : -INFINITY; /* no key: an empty sum, output 0 */
        for (int64_t e = 0; e < d; e++) {
          double value = 0;
          for (int64_t j = 0; j < keys; j++) {
            const double p = exp(scale * F(ref_dot)(d, query, k + ((bi * t + j) * g + gi) * d) - total);
            value += p * (double)v[((bi * t + j) * g + gi) * d + e];
          }
          result[e] = (R)value;
        }
        lse[(bi * h + hi) * s + i] = (R)total;
      }
    }
  }
}

static void F(ref_sdpa_grad)(int64_t b, int64_t s, int64_t t, int64_t h, int64_t g, int64_t d, bool causal, const R *q,
                             const R *k, const R *v, const R *o, const R *lse, const R *d_o, R *dq, R *dk, R *dv) {
  const double scale = 1 / sqrt((double)d);
  F(ref_fill)(b * s * h * d, 0, dq);
  F(ref_fill)(b * t * g * d, 0, dk);
  F(ref_fill)(b * t * g * d, 0, dv);
  for (int64_t bi = 0; bi < b; bi++) {
    for (int64_t hi = 0; hi < h; hi++) {
      const int64_t gi = hi / (h / g);
      for (int64_t i = 0; i < s; i++) {
        const int64_t at_query = ((bi * s + i) * h + hi) * d, keys = F(ref_visible)(i, s, t, causal);
        const double total = (double)lse[(bi * h + hi) * s + i];
        const double delta = F(ref_dot)(d, d_o + at_query, o + at_query); /* sum over keys of p * dp */
        for (int64_t j = 0; j < keys; j++) {
          const int64_t at_key = ((bi * t + j) * g + gi) * d;
          const double p = exp(scale * F(ref_dot)(d, q + at_query, k + at_key) - total);
          const double ds = p * (F(ref_dot)(d, d_o + at_query, v + at_key) - delta) * scale;
          for (int64_t e = 0; e < d; e++) {
            dv[at_key + e] += (R)(p * (double)d_o[at_query + e]);
            dq[at_query + e] += (R)(ds * (double)k[at_key + e]);
            dk[at_key + e] += (R)(ds * (double)q[at_query + e]);
          }
        }
      }
    }
  }
}

static void F(ref_rope)(int64_t b, int64_t s, int64_t h, int64_t d, double theta, int sign, const R *x, R *y) {
  const int64_t half = d / 2;
  for (int64_t row = 0; row < b * s * h; row++, x += d, y += d) {
    const double position = (double)(row / h % s);
    for (int64_t j = 0; j < half; j++) {
      const double angle = position * pow(theta, -2.0 * (double)j / (double)d);
      const double c = cos(angle), sn = sign * sin(angle), first = (double)x[j], second = (double)x[j + half];
      y[j] = (R)(first * c - second * sn);
      y[j + half] = (R)(second * c + first * sn);
    }
    if (d % 2 != 0) y[d - 1] = x[d - 1]; /* a lane without a partner stays */
  }
}

/* ---- images ---- */

/* Position of the window's row (or column) `k` at place `o`: inside of the image, or -1. */
static int64_t F(ref_at)(int64_t o, int64_t k, int64_t stride, int64_t pad, int64_t size) {
  const int64_t at = o * stride + k - pad;
  return at < size ? at : -1;
}

static void F(ref_conv2d)(const pd_image_window *v, const R *x, const R *f, R *y) {
  for (int64_t i = 0; i < v->n * v->filters * v->oh * v->ow; i++) {
    const int64_t n = i / (v->filters * v->oh * v->ow), o = i / (v->oh * v->ow) % v->filters;
    const int64_t oy = i / v->ow % v->oh, ox = i % v->ow;
    double sum = 0;
    for (int64_t c = 0; c < v->channels; c++) {
      for (int64_t ky = 0; ky < v->kh; ky++) {
        for (int64_t kx = 0; kx < v->kw; kx++) {
          const int64_t iy = F(ref_at)(oy, ky, v->stride, v->pad, v->h);
          const int64_t ix = F(ref_at)(ox, kx, v->stride, v->pad, v->w);
          if (iy < 0 || ix < 0) continue;
          sum += (double)x[((n * v->channels + c) * v->h + iy) * v->w + ix] *
                 (double)f[((o * v->channels + c) * v->kh + ky) * v->kw + kx];
        }
      }
    }
    y[i] = (R)sum;
  }
}

/* dx[.., iy, ix] = sum of f * dy over the places whose window covers it */
static void F(ref_conv2d_input_grad)(const pd_image_window *v, const R *f, const R *dy, R *dx) {
  for (int64_t i = 0; i < v->n * v->channels * v->h * v->w; i++) {
    const int64_t n = i / (v->channels * v->h * v->w), c = i / (v->h * v->w) % v->channels;
    const int64_t iy = i / v->w % v->h, ix = i % v->w;
    double sum = 0;
    for (int64_t o = 0; o < v->filters; o++) {
      for (int64_t ky = 0; ky < v->kh; ky++) {
        for (int64_t kx = 0; kx < v->kw; kx++) {
          const int64_t down = iy + v->pad - ky, right = ix + v->pad - kx;
          if (down < 0 || right < 0 || down % v->stride != 0 || right % v->stride != 0) continue;
          const int64_t oy = down / v->stride, ox = right / v->stride;
          if (oy >= v->oh || ox >= v->ow) continue;
          sum += (double)f[((o * v->channels + c) * v->kh + ky) * v->kw + kx] *
                 (double)dy[((n * v->filters + o) * v->oh + oy) * v->ow + ox];
        }
      }
    }
    dx[i] = (R)sum;
  }
}

static void F(ref_conv2d_filter_grad)(const pd_image_window *v, const R *x, const R *dy, R *df) {
  for (int64_t i = 0; i < v->filters * v->channels * v->kh * v->kw; i++) {
    const int64_t o = i / (v->channels * v->kh * v->kw), c = i / (v->kh * v->kw) % v->channels;
    const int64_t ky = i / v->kw % v->kh, kx = i % v->kw;
    double sum = (double)df[i];
    for (int64_t n = 0; n < v->n; n++) {
      for (int64_t oy = 0; oy < v->oh; oy++) {
        for (int64_t ox = 0; ox < v->ow; ox++) {
          const int64_t iy = F(ref_at)(oy, ky, v->stride, v->pad, v->h);
          const int64_t ix = F(ref_at)(ox, kx, v->stride, v->pad, v->w);
          if (iy < 0 || ix < 0) continue;
          sum += (double)x[((n * v->channels + c) * v->h + iy) * v->w + ix] *
                 (double)dy[((n * v->filters + o) * v->oh + oy) * v->ow + ox];
        }
      }
    }
    df[i] = (R)sum;
  }
}

/* Index in an image x[h, w] of the largest of the window at (oy, ox): the first of equals, or a NaN. */
static int64_t F(ref_largest)(const pd_image_window *v, const R *x, int64_t oy, int64_t ox) {
  int64_t best = -1;
  for (int64_t ky = 0; ky < v->kh; ky++) {
    for (int64_t kx = 0; kx < v->kw; kx++) {
      const int64_t iy = F(ref_at)(oy, ky, v->stride, v->pad, v->h);
      const int64_t ix = F(ref_at)(ox, kx, v->stride, v->pad, v->w);
      if (iy < 0 || ix < 0) continue;
      const R value = x[iy * v->w + ix];
      if (best < 0 || value > x[best] || (isnan(value) && !isnan(x[best]))) best = iy * v->w + ix;
    }
  }
  return best;
}

static void F(ref_maxpool)(const pd_image_window *v, const R *x, R *y) {
  for (int64_t image = 0; image < v->n * v->channels; image++, x += v->h * v->w) {
    for (int64_t oy = 0; oy < v->oh; oy++) {
      for (int64_t ox = 0; ox < v->ow; ox++) *y++ = x[F(ref_largest)(v, x, oy, ox)];
    }
  }
}

static void F(ref_maxpool_grad)(const pd_image_window *v, const R *x, const R *dy, R *dx) {
  for (int64_t image = 0; image < v->n * v->channels; image++, x += v->h * v->w, dx += v->h * v->w) {
    for (int64_t i = 0; i < v->h * v->w; i++) dx[i] = 0;
    for (int64_t oy = 0; oy < v->oh; oy++) {
      for (int64_t ox = 0; ox < v->ow; ox++) dx[F(ref_largest)(v, x, oy, ox)] += *dy++;
    }
  }
}

static void F(ref_avgpool)(const pd_image_window *v, const R *x, R *y) {
  for (int64_t image = 0; image < v->n * v->channels; image++, x += v->h * v->w) {
    for (int64_t oy = 0; oy < v->oh; oy++) {
      for (int64_t ox = 0; ox < v->ow; ox++) {
        double sum = 0;
        for (int64_t k = 0; k < v->kh * v->kw; k++) {
          sum += (double)x[(oy * v->stride + k / v->kw) * v->w + ox * v->stride + k % v->kw];
        }
        *y++ = (R)(sum / (double)(v->kh * v->kw));
      }
    }
  }
}

static void F(ref_avgpool_grad)(const pd_image_window *v, const R *dy, R *dx) {
  for (int64_t image = 0; image < v->n * v->channels; image++, dx += v->h * v->w) {
    for (int64_t i = 0; i < v->h * v->w; i++) dx[i] = 0;
    for (int64_t oy = 0; oy < v->oh; oy++) {
      for (int64_t ox = 0; ox < v->ow; ox++, dy++) {
        for (int64_t k = 0; k < v->kh * v->kw; k++) {
          dx[(oy * v->stride + k / v->kw) * v->w + ox * v->stride + k % v->kw] += *dy / (R)(v->kh * v->kw);
        }
      }
    }
  }
}

static void F(ref_batchnorm_given)(int64_t n, int64_t channels, int64_t inner, R eps, const R *x, const R *mean,
                                   const R *variance, R *y) {
  for (int64_t i = 0; i < n * channels * inner; i++) {
    const int64_t c = i / inner % channels;
    y[i] = (R)(((double)x[i] - (double)mean[c]) / sqrt((double)variance[c] + (double)eps));
  }
}

static void F(ref_batchnorm)(int64_t n, int64_t channels, int64_t inner, R eps, const R *x, R *y, R *mean,
                             R *variance) {
  const double count = (double)(n * inner);
  for (int64_t c = 0; c < channels; c++) {
    double sum = 0, spread = 0;
    for (int64_t i = 0; i < n * inner; i++) sum += (double)x[(i / inner * channels + c) * inner + i % inner];
    for (int64_t i = 0; i < n * inner; i++) {
      const double apart = (double)x[(i / inner * channels + c) * inner + i % inner] - sum / count;
      spread += apart * apart;
    }
    for (int64_t i = 0; i < n * inner; i++) {
      const int64_t at = (i / inner * channels + c) * inner + i % inner;
      y[at] = (R)(((double)x[at] - sum / count) / sqrt(spread / count + (double)eps));
    }
    mean[c] = (R)(sum / count);
    variance[c] = (R)(spread / count);
  }
}

static void F(ref_batchnorm_grad)(int64_t n, int64_t channels, int64_t inner, R eps, const R *y, const R *variance,
                                  const R *dy, R *dx) {
  const double count = (double)(n * inner);
  for (int64_t c = 0; c < channels; c++) {
    double mean = 0, dot = 0;
    for (int64_t i = 0; i < n * inner; i++) {
      const int64_t at = (i / inner * channels + c) * inner + i % inner;
      mean += (double)dy[at] / count;
      dot += (double)dy[at] * (double)y[at] / count;
    }
    const double factor = 1 / sqrt((double)variance[c] + (double)eps);
    for (int64_t i = 0; i < n * inner; i++) {
      const int64_t at = (i / inner * channels + c) * inner + i % inner;
      dx[at] = (R)(factor * ((double)dy[at] - mean - (double)y[at] * dot));
    }
  }
}

static void F(ref_xent_max)(int64_t rows, int64_t classes, const R *x, R *row_max) {
  for (int64_t r = 0; r < rows; r++) {
    R max = (R)-INFINITY;
    for (int64_t c = 0; c < classes; c++) {
      if (x[r * classes + c] > max) max = x[r * classes + c];
    }
    row_max[r] = max;
  }
}

static void F(ref_xent_sums)(int64_t rows, int64_t classes, int64_t first, const R *x, const int32_t *targets,
                             const R *row_max, R *sums) {
  for (int64_t r = 0; r < rows; r++) {
    const double max = (double)row_max[r];
    const int64_t target = targets[r] - first;
    double sum = 0;
    for (int64_t c = 0; c < classes; c++) sum += exp((double)x[r * classes + c] - max);
    sums[r] = (R)sum;
    const bool here = targets[r] != PD_IGNORE && target >= 0 && target < classes;
    sums[rows + r] = here ? (R)((double)x[r * classes + target] - max) : 0; /* before any logarithm: see large logits */
  }
}

static double F(ref_xent_loss)(int64_t rows, const int32_t *targets, const R *sums) {
  double loss = 0;
  for (int64_t r = 0; r < rows; r++) {
    if (targets[r] != PD_IGNORE) loss += log((double)sums[r]) - (double)sums[rows + r];
  }
  return loss;
}

static void F(ref_xent_grad)(int64_t rows, int64_t classes, int64_t first, R factor, const R *x, const int32_t *targets,
                             const R *row_max, const R *sums, R *dx) {
  for (int64_t r = 0; r < rows; r++) {
    const int64_t target = targets[r] - first;
    for (int64_t c = 0; c < classes; c++) {
      const double p = exp((double)x[r * classes + c] - (double)row_max[r]) / (double)sums[r];
      dx[r * classes + c] = targets[r] == PD_IGNORE ? 0 : (R)((double)factor * (p - (c == target ? 1 : 0)));
    }
  }
}

static int64_t F(ref_accuracy)(int64_t rows, int64_t classes, const R *x, const int32_t *targets) {
  int64_t right = 0;
  for (int64_t r = 0; r < rows; r++) {
    int64_t best = 0;
    for (int64_t c = 1; c < classes; c++) {
      if (x[r * classes + c] > x[r * classes + best]) best = c;
    }
    if (targets[r] != PD_IGNORE && classes > 0 && targets[r] == best) right++;
  }
  return right;
}

static double F(ref_mse)(int64_t n, const R *a, const R *b) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
  return sum;
}

static void F(ref_mse_grad)(int64_t n, R factor, const R *a, const R *b, R *da) {
  for (int64_t i = 0; i < n; i++) da[i] = (R)((double)factor * 2 * ((double)a[i] - (double)b[i]));
}

static void F(ref_dropout)(pd_key key, uint64_t step, int64_t sample0, int64_t samples, int64_t n, const pd_local *at,
                           double p, const R *x, R *y) {
  const uint64_t mask_key = pd_dropout_key(key, step), limit = pd_dropout_limit(p);
  for (int64_t r = 0; r < samples; r++) {
    for (int64_t i = 0; i < n; i++) {
      const uint64_t position = (uint64_t)pd_global_index(at, i);
      uint32_t w[4];
      pd_philox_block(mask_key, position / 4, (uint64_t)(sample0 + r), w);
      y[r * n + i] = w[position % 4] >= limit ? (R)((double)x[r * n + i] / (1 - p)) : 0;
    }
  }
}

static void F(ref_adamw)(int64_t n, R *w, const R *gradient, R *m, R *v, double factor, double lr, double beta1,
                         double beta2, double eps, double decay, double c1, double c2) {
  for (int64_t i = 0; i < n; i++) {
    const double g = factor * (double)gradient[i];
    m[i] = (R)(beta1 * (double)m[i] + (1 - beta1) * g);
    v[i] = (R)(beta2 * (double)v[i] + (1 - beta2) * g * g);
    w[i] = (R)((double)w[i] - lr * ((double)m[i] / c1 / (sqrt((double)v[i] / c2) + eps) + decay * (double)w[i]));
  }
}

static double F(ref_lamb_moments)(int64_t n, const R *w, const R *gradient, R *m, R *v, double factor, double beta1,
                                  double beta2, double eps, double decay, double c1, double c2) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) {
    const double g = factor * (double)gradient[i];
    m[i] = (R)(beta1 * (double)m[i] + (1 - beta1) * g);
    v[i] = (R)(beta2 * (double)v[i] + (1 - beta2) * g * g);
    const double r = (double)m[i] / c1 / (sqrt((double)v[i] / c2) + eps) + decay * (double)w[i];
    sum += r * r;
  }
  return sum;
}

static void F(ref_lamb_step)(int64_t n, R *w, const R *m, const R *v, double lr, double eps, double decay, double c1,
                             double c2) {
  for (int64_t i = 0; i < n; i++) {
    const double r = (double)m[i] / c1 / (sqrt((double)v[i] / c2) + eps) + decay * (double)w[i];
    w[i] = (R)((double)w[i] - lr * r);
  }
}

static void F(ref_sgd)(int64_t n, R *w, const R *gradient, R *mom, double factor, double lr, double momentum,
                       double decay) {
  for (int64_t i = 0; i < n; i++) {
    double step = factor * (double)gradient[i] + decay * (double)w[i];
    if (mom != NULL) {
      mom[i] = (R)(momentum * (double)mom[i] + step);
      step = (double)mom[i];
    }
    w[i] = (R)((double)w[i] - lr * step);
  }
}

static double F(ref_sum_squares)(int64_t n, const R *x) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
  return sum;
}

static void F(ref_init_normal)(pd_key key, int64_t n, const pd_local *at, double std, R *out) {
  for (int64_t i = 0; i < n; i++) {
    const uint64_t element = (uint64_t)pd_global_index(at, i);
    double pair[2];
    pd_normal_pair(key.seed, key.purpose, element / 2, pair);
    out[i] = (R)(std * pair[element % 2]);
  }
}

static void F(ref_init_uniform)(pd_key key, int64_t n, const pd_local *at, double lo, double hi, R *out) {
  for (int64_t i = 0; i < n; i++) {
    const uint64_t element = (uint64_t)pd_global_index(at, i);
    uint32_t w[4];
    pd_philox_block(key.seed, element / 4, key.purpose, w);
    out[i] = (R)(lo + (hi - lo) * (double)pd_unit24(w[element % 4]));
    if ((double)out[i] >= hi) out[i] = (R)lo; /* rounding to R can reach hi, which does not belong to the interval */
  }
}

const F(pd_kernels) F(pd_set_ref) = {
    .set = "ref",
    .gemm = F(ref_gemm),
    .contract = F(ref_contract),
    .copy = F(ref_copy),
    .fill = F(ref_fill),
    .add = F(ref_add),
    .scale = F(ref_scale),
    .sum_rows = F(ref_sum_rows),
    .sum_cols = F(ref_sum_cols),
    .layernorm = F(ref_layernorm),
    .layernorm_grad = F(ref_layernorm_grad),
    .rmsnorm = F(ref_rmsnorm),
    .rmsnorm_grad = F(ref_rmsnorm_grad),
    .softmax = F(ref_softmax),
    .softmax_grad = F(ref_softmax_grad),
    .max = F(ref_max),
    .max_grad = F(ref_max_grad),
    .gather = F(ref_gather),
    .gather_grad = F(ref_gather_grad),
    .sdpa = F(ref_sdpa),
    .sdpa_grad = F(ref_sdpa_grad),
    .rope = F(ref_rope),
    .conv2d = F(ref_conv2d),
    .conv2d_input_grad = F(ref_conv2d_input_grad),
    .conv2d_filter_grad = F(ref_conv2d_filter_grad),
    .maxpool = F(ref_maxpool),
    .maxpool_grad = F(ref_maxpool_grad),
    .avgpool = F(ref_avgpool),
    .avgpool_grad = F(ref_avgpool_grad),
    .batchnorm = F(ref_batchnorm),
    .batchnorm_given = F(ref_batchnorm_given),
    .batchnorm_grad = F(ref_batchnorm_grad),
    .xent_max = F(ref_xent_max),
    .xent_sums = F(ref_xent_sums),
    .xent_loss = F(ref_xent_loss),
    .xent_grad = F(ref_xent_grad),
    .accuracy = F(ref_accuracy),
    .mse = F(ref_mse),
    .mse_grad = F(ref_mse_grad),
    .dropout = F(ref_dropout),
    .adamw = F(ref_adamw),
    .lamb_moments = F(ref_lamb_moments),
    .lamb_step = F(ref_lamb_step),
    .sgd = F(ref_sgd),
    .sum_squares = F(ref_sum_squares),
    .init_normal = F(ref_init_normal),
    .init_uniform = F(ref_init_uniform),
};
