/* The hand-written model of the engine's test; see engine_model.h. Loops are plain: every sum has one order. */
#include "engine_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int tensor_ranks; /* the functions' only constant: how many parts split tensors have */
static int64_t samples_per_call;

void model_use(const model *m) {
  tensor_ranks = m->program.tp;
  samples_per_call = m->program.microbatch;
}

static int64_t rows_of(void) {
  return samples_per_call * SEQ;
}
static int ffn_part(void) {
  return FFN / tensor_ranks;
}
static int vocab_part(void) {
  return VOCAB / tensor_ranks;
}
static int64_t pad(int64_t elements) {
  return (elements + 15) / 16 * 16;
}

static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

int32_t model_token(uint64_t step, int64_t s, int p) {
  return (int32_t)(mix(step * 1000003 + (uint64_t)(s * SEQ + p) * 2 + 1) % VOCAB);
}

int32_t model_target(uint64_t step, int64_t s, int p) {
  uint64_t h = mix(step * 7000003 + (uint64_t)(s * SEQ + p) * 2 + 12345);
  return h % 4 == 0 ? PD_IGNORE : (int32_t)(h / 4 % VOCAB);
}

/* a random factor of a row: a function of (step, global sample, position, trip), as dropout is */
static REAL row_factor(const pd_frame *f, int64_t row) {
  if (!f->training) return 1;
  uint64_t sample = (uint64_t)(f->sample0 + row / SEQ);
  uint64_t h = mix(f->seed ^ mix(f->step * 131 + sample * 977 + (uint64_t)(row % SEQ) * 31 + (uint64_t)f->trip));
  return h % 2 == 0 ? (REAL)0.75 : (REAL)1.25;
}

/* With PD_TEST_JITTER ranks fall behind each other at random, so that a buffer used too early is seen. */
static void jitter(void) {
  static uint64_t count;
  if (getenv("PD_TEST_JITTER") == NULL) return;
  uint64_t h = mix((uint64_t)getpid() ^ count++ << 20);
  if (h % 8 == 0) usleep((useconds_t)(h / 8 % 400));
}

/* ---- embed: out x0, h0 = x0 * gain, c0 (no parameter in it) ---- */

static void embed_forward(const pd_frame *f) {
  jitter();
  const int32_t *tokens = f->data[0];
  const REAL *wte = f->shared[0], *gain = f->weights;
  REAL *x0 = f->out[0], *h0 = f->out[1], *c0 = f->out[2];
  int32_t first = f->tp_rank * vocab_part();
  for (int64_t r = 0; r < rows_of(); r++) {
    int32_t id = tokens[r] - first;
    for (int e = 0; e < EMBED; e++) x0[r * EMBED + e] = id >= 0 && id < vocab_part() ? wte[id * EMBED + e] : 0;
  }
  TP_SUM(x0, rows_of() * EMBED);
  for (int64_t r = 0; r < rows_of(); r++) {
    for (int e = 0; e < EMBED; e++) {
      h0[r * EMBED + e] = x0[r * EMBED + e] * gain[e];
      c0[r * EMBED + e] = (REAL)sin(tokens[r] + e);
    }
  }
}

static void embed_input_grad(const pd_frame *f) {
  jitter();
  const REAL *gain = f->weights, *d_x0 = f->d_out[0], *d_h0 = f->d_out[1];
  REAL *dx = f->stash;
  for (int64_t i = 0; i < rows_of() * EMBED; i++) dx[i] = d_x0[i] + d_h0[i] * gain[i % EMBED];
}

static void embed_weight_grad(const pd_frame *f) {
  const int32_t *tokens = f->data[0];
  const REAL *dx = f->stash, *x0 = f->out[0], *d_h0 = f->d_out[1];
  REAL *d_wte = f->shared_gradients[0], *d_gain = f->gradients;
  int32_t first = f->tp_rank * vocab_part();
  for (int64_t r = 0; r < rows_of(); r++) {
    int32_t id = tokens[r] - first;
    for (int e = 0; e < EMBED; e++) {
      if (id >= 0 && id < vocab_part()) d_wte[id * EMBED + e] += dx[r * EMBED + e];
      d_gain[e] += d_h0[r * EMBED + e] * x0[r * EMBED + e];
    }
  }
}

/* ---- layer: in x, h0, c; out y = tanh(x w1) w2 + x + h0 g + sb, c' = c/2 + x g, u = x/4 ---- */

static void layer_forward(const pd_frame *f) {
  jitter();
  const int n = ffn_part();
  const REAL *x = f->in[0], *h0 = f->in[1], *c = f->in[2], *sb = f->shared[0];
  const REAL *w1 = f->weights, *w2 = w1 + pad(EMBED * n), *g = w2 + pad(n * EMBED);
  REAL *t = f->act, *y = f->out[0], *c1 = f->out[1], *u = f->out[2], *part = f->scratch;
  for (int64_t r = 0; r < rows_of(); r++) {
    for (int j = 0; j < n; j++) {
      REAL sum = 0;
      for (int e = 0; e < EMBED; e++) sum += x[r * EMBED + e] * w1[e * n + j];
      t[r * n + j] = (REAL)tanh(sum) * row_factor(f, r);
    }
    for (int e = 0; e < EMBED; e++) {
      REAL sum = 0;
      for (int j = 0; j < n; j++) sum += t[r * n + j] * w2[j * EMBED + e];
      part[r * EMBED + e] = sum;
    }
  }
  TP_SUM(part, rows_of() * EMBED);
  for (int64_t i = 0; i < rows_of() * EMBED; i++) {
    y[i] = part[i] + x[i] + h0[i] * g[i % EMBED] + sb[i % EMBED];
    c1[i] = c[i] * (REAL)0.5 + x[i] * g[i % EMBED];
    u[i] = x[i] * (REAL)0.25;
  }
}

static void layer_input_grad(const pd_frame *f) {
  jitter();
  const int n = ffn_part();
  const REAL *w1 = f->weights, *w2 = w1 + pad(EMBED * n), *g = w2 + pad(n * EMBED), *t = f->act;
  const REAL *dy = f->d_out[0], *dc1 = f->d_out[1], *du = f->d_out[2];
  REAL *d_pre = f->stash, *dx = f->d_in[0], *dh0 = f->d_in[1], *dc = f->d_in[2];
  for (int64_t r = 0; r < rows_of(); r++) {
    REAL factor = row_factor(f, r);
    for (int j = 0; j < n; j++) {
      REAL sum = 0, h = t[r * n + j] / factor;
      for (int e = 0; e < EMBED; e++) sum += dy[r * EMBED + e] * w2[j * EMBED + e];
      d_pre[r * n + j] = sum * factor * (1 - h * h);
    }
    for (int e = 0; e < EMBED; e++) {
      REAL sum = 0;
      for (int j = 0; j < n; j++) sum += d_pre[r * n + j] * w1[e * n + j];
      dx[r * EMBED + e] = sum;
    }
  }
  TP_SUM(dx, rows_of() * EMBED);
  for (int64_t i = 0; i < rows_of() * EMBED; i++) {
    dx[i] += dy[i] + dc1[i] * g[i % EMBED] + du[i] * (REAL)0.25;
    if (dh0 != NULL) dh0[i] = dy[i] * g[i % EMBED];
    dc[i] = dc1[i] * (REAL)0.5;
  }
}

static void layer_weight_grad(const pd_frame *f) {
  const int n = ffn_part();
  const REAL *x = f->in[0], *h0 = f->in[1], *t = f->act, *d_pre = f->stash, *dy = f->d_out[0], *dc1 = f->d_out[1];
  REAL *d_w1 = f->gradients, *d_w2 = d_w1 + pad(EMBED * n), *d_g = d_w2 + pad(n * EMBED);
  REAL *d_sb = f->shared_gradients[0];
  for (int64_t r = 0; r < rows_of(); r++) {
    for (int e = 0; e < EMBED; e++) {
      int64_t i = r * EMBED + e;
      for (int j = 0; j < n; j++) {
        d_w1[e * n + j] += x[i] * d_pre[r * n + j];
        d_w2[j * EMBED + e] += t[r * n + j] * dy[i];
      }
      d_g[e] += dy[i] * h0[i] + dc1[i] * x[i];
      d_sb[e] += dy[i];
    }
  }
}

/* ---- mid: in x, x0, u; out z = x m fz + x0 + u/10, v = x0 m, which only a metric reads ---- */

static void mid_forward(const pd_frame *f) {
  jitter();
  const REAL *x = f->in[0], *x0 = f->in[1], *u = f->in[2], *m = f->weights, *fz = m + pad(EMBED);
  REAL *z = f->out[0], *v = f->out[1];
  for (int64_t i = 0; i < rows_of() * EMBED; i++) {
    z[i] = x[i] * m[i % EMBED] * fz[i % EMBED] + x0[i] + u[i] * (REAL)0.125;
    v[i] = x0[i] * m[i % EMBED];
  }
}

static void mid_input_grad(const pd_frame *f) {
  jitter();
  const REAL *m = f->weights, *fz = m + pad(EMBED), *dz = f->d_out[0], *dv = f->d_out[1];
  REAL *dx = f->d_in[0], *dx0 = f->d_in[1], *du = f->d_in[2];
  for (int64_t i = 0; i < rows_of() * EMBED; i++) {
    dx[i] = dz[i] * m[i % EMBED] * fz[i % EMBED];
    if (dx0 != NULL) dx0[i] = dz[i] + dv[i] * m[i % EMBED];
    du[i] = dz[i] * (REAL)0.125;
  }
}

static void mid_weight_grad(const pd_frame *f) {
  const REAL *x = f->in[0], *x0 = f->in[1], *fz = (const REAL *)f->weights + pad(EMBED);
  const REAL *dz = f->d_out[0], *dv = f->d_out[1];
  REAL *d_m = f->gradients;
  for (int64_t i = 0; i < rows_of() * EMBED; i++) d_m[i % EMBED] += dz[i] * x[i] * fz[i % EMBED] + dv[i] * x0[i];
}

/* ---- head: in z, h0, c, v; logits (z + h0 + c/8) wte', cross-entropy; the metric is the mean of v squared ---- */

static REAL head_input(const pd_frame *f, int64_t i) {
  return ((const REAL *)f->in[0])[i] + ((const REAL *)f->in[1])[i] + ((const REAL *)f->in[2])[i] * (REAL)0.125;
}

/* act: logits [rows, vocab part], then row maxima [rows], then sums [2 rows] */
static void head_forward(const pd_frame *f) {
  jitter();
  const int n = vocab_part();
  const int64_t rows = rows_of();
  const int32_t *targets = f->data[1];
  const REAL *wte = f->shared[0], *v = f->in[3];
  REAL *logits = f->act, *top = logits + rows * n, *sums = top + rows;
  for (int64_t r = 0; r < rows; r++) {
    for (int j = 0; j < n; j++) {
      REAL sum = 0;
      for (int e = 0; e < EMBED; e++) sum += head_input(f, r * EMBED + e) * wte[j * EMBED + e];
      logits[r * n + j] = sum;
    }
    top[r] = logits[r * n];
    for (int j = 1; j < n; j++) top[r] = logits[r * n + j] > top[r] ? logits[r * n + j] : top[r];
  }
  TP_MAX(top, rows);
  for (int64_t r = 0; r < rows; r++) {
    int32_t target = targets[r] - f->tp_rank * n;
    sums[r] = 0;
    for (int j = 0; j < n; j++) sums[r] += (REAL)exp(logits[r * n + j] - top[r]);
    sums[rows + r] = target >= 0 && target < n ? logits[r * n + target] - top[r] : 0;
  }
  TP_SUM(sums, 2 * rows);
  double loss = 0, metric = 0;
  for (int64_t r = 0; r < f->samples * SEQ; r++) {
    if (targets[r] != PD_IGNORE) loss += log((double)sums[r]) - (double)sums[rows + r];
    for (int e = 0; e < EMBED; e++) metric += (double)v[r * EMBED + e] * (double)v[r * EMBED + e];
  }
  f->results[0] += loss * f->inverse_counts[0];
  f->results[1] += metric * f->inverse_counts[0];
}

static void head_input_grad(const pd_frame *f) {
  jitter();
  const int n = vocab_part();
  const int64_t rows = rows_of();
  const int32_t *targets = f->data[1];
  const REAL *wte = f->shared[0], *logits = f->act, *top = logits + rows * n, *sums = top + rows;
  REAL *d_logits = f->stash, *dz = f->d_in[0], *dh0 = f->d_in[1], *dc = f->d_in[2];
  for (int64_t r = 0; r < rows; r++) {
    for (int j = 0; j < n; j++) {
      REAL p = (REAL)exp(logits[r * n + j] - top[r]) / sums[r] - (targets[r] == f->tp_rank * n + j ? 1 : 0);
      d_logits[r * n + j] = targets[r] == PD_IGNORE ? 0 : p * (REAL)f->inverse_counts[0];
    }
    for (int e = 0; e < EMBED; e++) {
      REAL sum = 0;
      for (int j = 0; j < n; j++) sum += d_logits[r * n + j] * wte[j * EMBED + e];
      dz[r * EMBED + e] = sum;
    }
  }
  TP_SUM(dz, rows * EMBED);
  for (int64_t i = 0; i < rows * EMBED; i++) {
    if (dh0 != NULL) dh0[i] = dz[i];
    dc[i] = dz[i] * (REAL)0.125;
  }
}

static void head_weight_grad(const pd_frame *f) {
  const int n = vocab_part();
  const REAL *d_logits = f->stash;
  REAL *d_wte = f->shared_gradients[0];
  for (int64_t r = 0; r < rows_of(); r++) {
    for (int j = 0; j < n; j++) {
      for (int e = 0; e < EMBED; e++) d_wte[j * EMBED + e] += d_logits[r * n + j] * head_input(f, r * EMBED + e);
    }
  }
}

/* ---- the description ---- */

static int64_t bytes(int64_t elements) {
  return (elements * (int64_t)sizeof(REAL) + 63) / 64 * 64;
}

static void set_none(pd_segment_info *s) {
  for (int k = 0; k < PD_MAX_WIRES; k++) s->in_carried[k] = PD_NONE;
}

static pd_param_info param(const char *name, int rank, int64_t a, int64_t b, int split, int segment, int64_t offset) {
  pd_param_info p = {.name = name,
                     .rank = rank,
                     .shape = {a, b},
                     .split_axis = split,
                     .segment = segment,
                     .offset = offset,
                     .decay = rank > 1,
                     .init = PD_INIT_NORMAL,
                     .a = 0.25};
  p.elements = a * (rank > 1 ? b : 1) / (split == PD_NONE ? 1 : tensor_ranks);
  return p;
}

static void build_segments(model *m) {
  const int64_t rows = rows_of(), n = ffn_part(), wide = bytes(rows * EMBED);
  for (int s = 0; s < 4; s++) set_none(&m->segments[s]);
  pd_segment_info *embed = &m->segments[0], *layer = &m->segments[1], *mid = &m->segments[2], *head = &m->segments[3];
  *embed = (pd_segment_info){.name = "embed",
                             .trips = 1,
                             .out_count = 3,
                             .shared_count = 1,
                             .out_wire = {0, 1, 2},
                             .needs_d_out = {true, true, false},
                             .shared = {0},
                             .stash_bytes = wide,
                             .tp_elements = rows * EMBED,
                             .weight_elements = pad(EMBED),
                             .trained_elements = pad(EMBED),
                             .has_weight_grad = true,
                             .uses_data = {true, false},
                             .forward = embed_forward,
                             .input_grad = embed_input_grad,
                             .weight_grad = embed_weight_grad};
  int64_t weights = pad(EMBED * n) + pad(n * EMBED) + pad(EMBED);
  *layer = (pd_segment_info){.name = "layers",
                             .trips = LAYERS,
                             .in_count = 3,
                             .out_count = 3,
                             .shared_count = 1,
                             .in_wire = {0, 1, 2},
                             .in_carried = {0, PD_NONE, 1},
                             .out_wire = {3, 4, 5},
                             .needs_d_out = {true, true, true},
                             .gives_d_in = {true, true, true},
                             .shared = {5},
                             .act_bytes = bytes(rows * n),
                             .stash_bytes = bytes(rows * n),
                             .scratch_bytes = wide,
                             .tp_elements = rows * EMBED,
                             .weight_elements = weights,
                             .trained_elements = weights,
                             .has_weight_grad = true,
                             .forward = layer_forward,
                             .input_grad = layer_input_grad,
                             .weight_grad = layer_weight_grad};
  *mid = (pd_segment_info){.name = "mid",
                           .trips = 1,
                           .in_count = 3,
                           .out_count = 2,
                           .in_wire = {3, 0, 5},
                           .in_carried = {PD_NONE, PD_NONE, PD_NONE},
                           .out_wire = {6, 7},
                           .needs_d_out = {true, true},
                           .gives_d_in = {true, true, true},
                           .weight_elements = 2 * pad(EMBED),
                           .trained_elements = pad(EMBED),
                           .has_weight_grad = true,
                           .forward = mid_forward,
                           .input_grad = mid_input_grad,
                           .weight_grad = mid_weight_grad};
  *head = (pd_segment_info){.name = "head",
                            .trips = 1,
                            .in_count = 4,
                            .shared_count = 1,
                            .in_wire = {6, 1, 4, 7},
                            .in_carried = {PD_NONE, PD_NONE, PD_NONE, PD_NONE},
                            .gives_d_in = {true, true, true, false},
                            .shared = {0},
                            .act_bytes = bytes(rows * (vocab_part() + 3)),
                            .stash_bytes = bytes(rows * vocab_part()),
                            .tp_elements = rows * EMBED > 2 * rows ? rows * EMBED : 2 * rows,
                            .has_weight_grad = true,
                            .uses_data = {false, true},
                            .forward = head_forward,
                            .input_grad = head_input_grad,
                            .weight_grad = head_weight_grad};
}

static void freeze_start(model *m) {
  pd_segment_info *embed = &m->segments[0], *head = &m->segments[3];
  embed->needs_d_out[0] = embed->needs_d_out[1] = embed->has_weight_grad = head->has_weight_grad = false;
  embed->trained_elements = 0;
  m->wires[0].needs_grad = m->wires[1].needs_grad = false;
  m->segments[1].gives_d_in[1] = m->segments[2].gives_d_in[1] = head->gives_d_in[1] = false;
  m->params[0].frozen = m->params[1].frozen = true;
}

void model_build(model *m, int pp, int dp, int tp, int64_t batch, int64_t microbatch, variant how) {
  memset(m, 0, sizeof *m);
  tensor_ranks = tp;
  samples_per_call = microbatch;
  build_segments(m);
  static const char *const names[8] = {"x0", "h0", "c0", "x", "c", "u", "z", "v"};
  for (int w = 0; w < 8; w++) m->wires[w] = (pd_wire_info){names[w], rows_of() * EMBED, w != 2};
  const int64_t n = ffn_part();
  m->params[0] = param("wte", 2, VOCAB, EMBED, 0, PD_NONE, 0);
  m->params[1] = param("embed.gain", 1, EMBED, 0, PD_NONE, 0, 0);
  m->params[2] = param("layers.{}.w1", 2, EMBED, FFN, 1, 1, 0);
  m->params[3] = param("layers.{}.w2", 2, FFN, EMBED, 0, 1, pad(EMBED * n));
  m->params[4] = param("layers.{}.g", 1, EMBED, 0, PD_NONE, 1, pad(EMBED * n) + pad(n * EMBED));
  for (int p = 2; p < 5; p++) m->params[p].per_trip = true;
  m->params[5] = param("sb", 1, EMBED, 0, PD_NONE, PD_NONE, 0);
  m->params[6] = param("mid.m", 1, EMBED, 0, PD_NONE, 2, 0);
  m->params[7] = param("mid.fz", 1, EMBED, 0, PD_NONE, 2, pad(EMBED));
  m->params[7].frozen = true;
  m->params[7].init = PD_INIT_UNIFORM;
  m->params[7].a = 0.5;
  m->params[7].b = 1.5;
  m->params[8] = param("unused", 1, UNUSED, 0, PD_NONE, PD_NONE, 0);
  m->data[0] = (pd_data_info){.name = "tokens",
                              .is_integer = true,
                              .rank = 1,
                              .shape = {SEQ},
                              .elements = SEQ,
                              .split_axis = PD_NONE,
                              .limit = VOCAB};
  m->data[1] = m->data[0];
  m->data[1].name = "targets";
  m->data[1].is_target = true;
  m->data[1].ignored = PD_IGNORE;
  m->normalisers[0] = 1;
  m->metrics[0] = "v2";
  m->program = (pd_program){.model = "test",
                            .compiler = "none",
                            .real_bytes = (int)sizeof(REAL),
                            .pp = pp,
                            .dp = dp,
                            .tp = tp,
                            .chunks = 1,
                            .batch = batch,
                            .microbatch = microbatch,
                            .microbatches = batch / dp / microbatch,
                            .recompute = how.recompute,
                            .segment_count = 4,
                            .wire_count = 8,
                            .param_count = 9,
                            .data_count = 2,
                            .metric_count = 1,
                            .normaliser_count = 1,
                            .segments = m->segments,
                            .wires = m->wires,
                            .params = m->params,
                            .data = m->data,
                            .metrics = m->metrics,
                            .normalisers = m->normalisers,
                            .loss_segment = 3,
                            .logits_segment = 3,
                            .logits_rows_per_sample = SEQ,
                            .logits_classes = VOCAB,
                            .logits_split = true,
                            .optimizer = how.optimizer,
                            .beta1 = 0.9,
                            .beta2 = 0.95,
                            .eps = 1e-8,
                            .decay = 0.1,
                            .momentum = 0.9};
  if (how.frozen_start) freeze_start(m);
}
