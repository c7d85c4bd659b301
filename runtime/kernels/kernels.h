/* The kernel registry: every numeric operation an emitted program calls, by precision and by set.
 *
 * `ref` is complete and obvious; `host` overrides what it does faster. A program asks once, at start, for a table
 * (pd_kernels_select_f32 / _f64) and calls through it; a kernel that a set lacks falls back to `ref`.
 * Tensors are row-major and packed; sizes are element counts in 64 bits. `out` never overlaps an input unless said.
 * "Accumulate" means out += result (weight gradients add up over micro-batches); otherwise out is overwritten.
 * Results are the same bits for every number of threads: reductions run in a fixed order.
 */
#ifndef PD_KERNELS_H
#define PD_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#define PD_IGNORE (-100) /* a target that is not counted */
#define PD_MAX_RANK 8

/* A strided view for the general kernels: `rank` axes of sizes `size`, one stride (in elements) per operand. */
typedef struct pd_view {
  int rank;
  int64_t size[PD_MAX_RANK];
  int64_t out[PD_MAX_RANK], a[PD_MAX_RANK], b[PD_MAX_RANK]; /* stride 0: broadcast, or (out) summed */
} pd_view;

/* What a counter-based random number is for; see runtime/random.h. */
typedef struct pd_key {
  uint64_t seed;
  uint64_t purpose; /* hash of the name it is for */
} pd_key;

/* Where a rank's part lies in a logical tensor: local element index -> global element index. Along axis k the local
 * part covers positions first[k] .. first[k] + size[k] - 1 of an axis of global size `global[k]`. */
typedef struct pd_local {
  int rank;
  int64_t size[PD_MAX_RANK], first[PD_MAX_RANK], global[PD_MAX_RANK];
} pd_local;

/* A window that moves over images [n, channels, h, w]: of kh x kw positions, `stride` apart, the image padded by `pad`
 * on all sides. Its places are [oh, ow]: oh = (h + 2 pad - kh) / stride + 1, rounded down. A pool has as many filters
 * as channels. */
typedef struct pd_image_window {
  int64_t n, channels, h, w, filters, kh, kw, stride, pad, oh, ow;
} pd_image_window;

#define PD_KERNEL_TABLE(R)                                                                                           \
  const char *set;                                                                                                   \
  /* C[m,n] = alpha * op(A) op(B) + beta * C. op(A) is [m,k]: A is [m,k] (lda >= k) or, if ta, [k,m] (lda >= m). */    \
  void (*gemm)(bool ta, bool tb, int64_t m, int64_t n, int64_t k, R alpha, const R *a, int64_t lda, const R *b,      \
               int64_t ldb, R beta, R *c, int64_t ldc);                                                              \
  /* general contraction: out[..] (+)= sum over axes with out-stride 0 of a[..] * b[..]; b NULL: plain sum */         \
  void (*contract)(const pd_view *view, const R *a, const R *b, R scale, bool accumulate, R *out);                   \
  /* strided copy: out[..] (+)= a[..]; transpose, slice, concat, broadcast */                                        \
  void (*copy)(const pd_view *view, const R *a, bool accumulate, R *out);                                            \
  void (*fill)(int64_t n, R value, R *out);                                                                          \
  void (*add)(int64_t n, const R *a, R *out); /* out[i] += a[i] */                                                   \
  void (*scale)(int64_t n, R factor, R *out); /* out[i] *= factor */                                                 \
  /* column sums: out[c] (+)= sum over rows of a[r,c] (* b[r,c] if b). Bias and gain gradients. */                   \
  void (*sum_rows)(int64_t rows, int64_t cols, const R *a, const R *b, bool accumulate, R *out);                     \
  /* row sums: out[r] (+)= sum over cols of a[r,c] (* b[r,c] if b) */                                                \
  void (*sum_cols)(int64_t rows, int64_t cols, const R *a, const R *b, bool accumulate, R *out);                     \
  /* y = (x - mean) * rstd over rows of n, biased variance; rstd[rows] kept for the gradient */                      \
  void (*layernorm)(int64_t rows, int64_t n, R eps, const R *x, R *y, R *rstd);                                      \
  void (*layernorm_grad)(int64_t rows, int64_t n, const R *y, const R *rstd, const R *dy, R *dx);                    \
  /* y = x / sqrt(mean(x^2) + eps) */                                                                                \
  void (*rmsnorm)(int64_t rows, int64_t n, R eps, const R *x, R *y, R *rstd);                                        \
  void (*rmsnorm_grad)(int64_t rows, int64_t n, const R *y, const R *rstd, const R *dy, R *dx);                      \
  void (*softmax)(int64_t rows, int64_t n, const R *x, R *y);                                                        \
  void (*softmax_grad)(int64_t rows, int64_t n, const R *y, const R *dy, R *dx);                                     \
  /* the largest of every row of n; its gradient goes to the first of them that is that large */                     \
  void (*max)(int64_t rows, int64_t n, const R *x, R *y);                                                            \
  void (*max_grad)(int64_t rows, int64_t n, const R *x, const R *dy, R *dx);                                         \
  /* out[i,:] = table[ids[i] - first,:] where first <= ids[i] < first + rows, else zeros (another rank's row) */     \
  void (*gather)(int64_t count, int64_t first, int64_t rows, int64_t width, const int32_t *ids, const R *table,      \
                 R *out);                                                                                            \
  /* dtable[ids[i] - first,:] += dout[i,:], in the order of i for every row */                                       \
  void (*gather_grad)(int64_t count, int64_t first, int64_t rows, int64_t width, const int32_t *ids, const R *dout,  \
                      R *dtable);                                                                                    \
  /* scaled dot-product attention, scale 1/sqrt(d). q, o: [b,s,h,d]; k, v: [b,t,g,d] with h a multiple of g; query head \
   * i uses key head i / (h/g). causal: query i sees keys 0..i (+ t - s). lse[b,h,s] = log-sum-exp of the scaled     \
   * scores, kept for the gradient, which recomputes the probabilities. dq, dk, dv are overwritten. */               \
  void (*sdpa)(int64_t b, int64_t s, int64_t t, int64_t h, int64_t g, int64_t d, bool causal, const R *q, const R *k, \
               const R *v, R *o, R *lse);                                                                            \
  void (*sdpa_grad)(int64_t b, int64_t s, int64_t t, int64_t h, int64_t g, int64_t d, bool causal, const R *q,       \
                    const R *k, const R *v, const R *o, const R *lse, const R *d_o, R *dq, R *dk, R *dv);            \
  /* rotate-half rotary positions on x[b,s,h,d]: lane j pairs with j + d/2, angle pos * theta^(-2j/d);               \
   * sign +1 forward, -1 for the gradient */                                                                         \
  void (*rope)(int64_t b, int64_t s, int64_t h, int64_t d, double theta, int sign, const R *x, R *y);                \
  /* convolution without turning the filter over: y[n,o,..] = sum over c and the window of f[o,c,..] * x[n,c,..], f: \
   * [filters, channels, kh, kw]; what lies outside of the image is 0. dx is overwritten, df accumulates. */         \
  void (*conv2d)(const pd_image_window *v, const R *x, const R *f, R *y);                                            \
  void (*conv2d_input_grad)(const pd_image_window *v, const R *f, const R *dy, R *dx);                               \
  void (*conv2d_filter_grad)(const pd_image_window *v, const R *x, const R *dy, R *df);                              \
  /* largest of each window; what lies outside is not looked at. The gradient goes to the first of equals, in the    \
   * order of x; a NaN is the largest. */                                                                            \
  void (*maxpool)(const pd_image_window *v, const R *x, R *y);                                                       \
  void (*maxpool_grad)(const pd_image_window *v, const R *x, const R *dy, R *dx);                                    \
  /* mean over each window; pad is 0 */                                                                              \
  void (*avgpool)(const pd_image_window *v, const R *x, R *y);                                                       \
  void (*avgpool_grad)(const pd_image_window *v, const R *dy, R *dx);                                                \
  /* x, y: [n, channels, inner]; mean and variance (divided by n * inner) are those of a channel over n and inner.   \
   * y = (x - mean) / sqrt(variance + eps); _given takes the statistics instead of measuring them. The gradient is   \
   * that of measured ones. */                                                                                       \
  void (*batchnorm)(int64_t n, int64_t channels, int64_t inner, R eps, const R *x, R *y, R *mean, R *variance);      \
  void (*batchnorm_given)(int64_t n, int64_t channels, int64_t inner, R eps, const R *x, const R *mean,              \
                          const R *variance, R *y);                                                                  \
  void (*batchnorm_grad)(int64_t n, int64_t channels, int64_t inner, R eps, const R *y, const R *variance,           \
                         const R *dy, R *dx);                                                                        \
  /* Cross-entropy in three steps, so that a class axis split over ranks needs only reductions of [rows]:            \
   *   row_max[r] = max over the local classes; (max over ranks)                                                     \
   *   sums[r] = sum over local classes of exp(x - row_max), sums[rows + r] = x[target] - row_max if the target is   \
   *   local, else 0; (sum over ranks, one reduction of 2*rows)                                                      \
   *   returns the sum over counted rows (target != PD_IGNORE) of log(sums[r]) - sums[rows + r], in double           \
   * gradient: dx[r,c] = factor * (exp(x - row_max) / sums[r] - [c is the target]); a row that is ignored is 0.      \
   * `first` is the class of local column 0. */                                                                      \
  void (*xent_max)(int64_t rows, int64_t classes, const R *x, R *row_max);                                           \
  void (*xent_sums)(int64_t rows, int64_t classes, int64_t first, const R *x, const int32_t *targets,                \
                    const R *row_max, R *sums);                                                                      \
  double (*xent_loss)(int64_t rows, const int32_t *targets, const R *sums);                                          \
  void (*xent_grad)(int64_t rows, int64_t classes, int64_t first, R factor, const R *x, const int32_t *targets,      \
                    const R *row_max, const R *sums, R *dx);                                                         \
  /* number of counted rows whose largest logit (the first of equals) is the target */                               \
  int64_t (*accuracy)(int64_t rows, int64_t classes, const R *x, const int32_t *targets);                            \
  /* sum of (a-b)^2 over n, in double; gradient da = factor * 2 (a-b); the other side is its negative */             \
  double (*mse)(int64_t n, const R *a, const R *b);                                                                  \
  void (*mse_grad)(int64_t n, R factor, const R *a, const R *b, R *da);                                              \
  /* y = x * keep(i) / (1 - p); the mask is a function of (key, step, sample, position) alone, and is drawn again for \
   * the gradient. x is [samples, n]; sample r has global number sample0 + r; element i of a sample has global        \
   * position: index[] gives for every local axis its global stride and first position (see pd_local). */            \
  void (*dropout)(pd_key key, uint64_t step, int64_t sample0, int64_t samples, int64_t n, const pd_local *at, \
                  double p, const R *x, R *y);                                                                       \
  /* Optimizers, on flat buffers. AdamW (Loshchilov & Hutter 2019): moments with bias corrections c1 = 1 - beta1^t,  \
   * c2 = 1 - beta2^t; w -= lr * (m/c1 / (sqrt(v/c2) + eps) + decay * w). gradient is multiplied by `factor` first   \
   * (clipping). */                                                                                                  \
  void (*adamw)(int64_t n, R *w, const R *gradient, R *m, R *v, double factor, double lr, double beta1, double beta2, \
                double eps, double decay, double c1, double c2);                                                     \
  /* Lamb (You et al. 2020): the moments as above, then the direction r = m/c1 / (sqrt(v/c2) + eps) + decay * w.     \
   * lamb_moments renews m and v and returns the sum of r^2 in double; lamb_step takes w -= lr * r, where lr has the \
   * ratio of the tensor's length to that of r in it. */                                                             \
  double (*lamb_moments)(int64_t n, const R *w, const R *gradient, R *m, R *v, double factor, double beta1,          \
                         double beta2, double eps, double decay, double c1, double c2);                              \
  void (*lamb_step)(int64_t n, R *w, const R *m, const R *v, double lr, double eps, double decay, double c1,         \
                    double c2);                                                                                      \
  /* SGD with momentum as PyTorch: g = factor*gradient + decay*w; mom = momentum*mom + g; w -= lr*mom. With momentum \
   * 0 `mom` is NULL. */                                                                                             \
  void (*sgd)(int64_t n, R *w, const R *gradient, R *mom, double factor, double lr, double momentum, double decay);  \
  /* sum of squares in double, in fixed blocks: the same for every number of threads */                              \
  double (*sum_squares)(int64_t n, const R *x);                                                                      \
  /* parameter elements from the counter-based generator; element i of the local tensor is element global(i) of the  \
   * logical one, so that every layout draws the same numbers. normal: mean 0; uniform: [lo, hi) */                  \
  void (*init_normal)(pd_key key, int64_t n, const pd_local *at, double std, R *out);                         \
  void (*init_uniform)(pd_key key, int64_t n, const pd_local *at, double lo, double hi, R *out);

typedef struct pd_kernels_f32 {
  PD_KERNEL_TABLE(float)
} pd_kernels_f32;
typedef struct pd_kernels_f64 {
  PD_KERNEL_TABLE(double)
} pd_kernels_f64;

/* The tables. `set` is "host" or "ref"; NULL is "host". Returns NULL for an unknown set. */
const pd_kernels_f32 *pd_kernels_select_f32(const char *set);
const pd_kernels_f64 *pd_kernels_select_f64(const char *set);

/* Threads used by kernels of this process (also set in the BLAS); at least 1. */
void pd_kernels_threads(int threads);

#endif
