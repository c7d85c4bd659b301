/* oneDNN's convolutions behind direct.h. Plans (primitives and the layouts that they want) are made once per window and
 * kind and kept by the thread that calls; the images of a call go through in parts of equal size. */
#include "kernels/direct.h"

#include <dnnl.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#if DNNL_VERSION_MAJOR == 2

enum { X, FILTER, Y, TENSORS };

typedef struct plan { /* of one part */
  struct plan *next;
  pd_direct_kind kind;
  pd_image_window window; /* n: images of a part */
  bool usable;
  dnnl_engine_t engine;
  dnnl_primitive_t convolution;
  dnnl_memory_desc_t plain[TENSORS], blocked[TENSORS], work;
  dnnl_primitive_t reorder[TENSORS]; /* into blocks, or for the result out of them; NULL: as it lies */
  size_t bytes[TENSORS], work_bytes;
} plan;

/* Of the calling thread, whose parts' threads use it too. */
static dnnl_engine_t engine_of(void) {
  static _Thread_local dnnl_engine_t engine;
  if (engine == NULL && dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) engine = NULL;
  return engine;
}

/* ---- plans ---- */

static const int result_of[] = {[PD_DIRECT_FORWARD] = Y, [PD_DIRECT_INPUT_GRAD] = X, [PD_DIRECT_FILTER_GRAD] = FILTER};

static bool describe(plan *p, dnnl_memory_desc_t *tensors, bool any) {
  const pd_image_window *v = &p->window;
  const dnnl_dims_t dims[TENSORS] = {
      {v->n, v->channels, v->h, v->w}, {v->filters, v->channels, v->kh, v->kw}, {v->n, v->filters, v->oh, v->ow}};
  bool good = true;
  for (int t = 0; t < TENSORS; t++) {
    const dnnl_format_tag_t tag = any ? dnnl_format_tag_any : dnnl_abcd;
    good = good && dnnl_memory_desc_init_by_tag(&tensors[t], 4, dims[t], dnnl_f32, tag) == dnnl_success;
  }
  return good;
}

static bool describe_kind(pd_direct_kind kind, const pd_image_window *v, const dnnl_memory_desc_t *t,
                          dnnl_convolution_desc_t *what, bool forward) {
  const dnnl_dims_t stride = {v->stride, v->stride}, pad = {v->pad, v->pad};
  if (forward || kind == PD_DIRECT_FORWARD) {
    return dnnl_convolution_forward_desc_init(what, dnnl_forward_training, dnnl_convolution_direct, &t[X], &t[FILTER],
                                              NULL, &t[Y], stride, pad, pad) == dnnl_success;
  }
  if (kind == PD_DIRECT_INPUT_GRAD) {
    return dnnl_convolution_backward_data_desc_init(what, dnnl_convolution_direct, &t[X], &t[FILTER], &t[Y], stride,
                                                    pad, pad) == dnnl_success;
  }
  return dnnl_convolution_backward_weights_desc_init(what, dnnl_convolution_direct, &t[X], &t[FILTER], NULL, &t[Y],
                                                     stride, pad, pad) == dnnl_success;
}

/* What oneDNN calls the tensors of a kind when it is asked for their layouts. */
static dnnl_query_t query_of(pd_direct_kind kind, int tensor) {
  if (tensor == X) return kind == PD_DIRECT_INPUT_GRAD ? dnnl_query_diff_src_md : dnnl_query_src_md;
  if (tensor == FILTER) return kind == PD_DIRECT_FILTER_GRAD ? dnnl_query_diff_weights_md : dnnl_query_weights_md;
  return kind == PD_DIRECT_FORWARD ? dnnl_query_dst_md : dnnl_query_diff_dst_md;
}

static bool take_layouts(plan *p, const_dnnl_primitive_desc_t made) {
  const char *name = NULL;
  dnnl_primitive_desc_query(made, dnnl_query_impl_info_str, 0, (void *)&name);
  if (name == NULL || strncmp(name, "jit", 3) != 0) return false; /* columns, or the reference */
  for (int t = 0; t < TENSORS; t++) {
    const dnnl_memory_desc_t *layout = dnnl_primitive_desc_query_md(made, query_of(p->kind, t), 0);
    if (layout == NULL) return false;
    p->blocked[t] = *layout;
    p->bytes[t] = dnnl_memory_desc_get_size(layout);
  }
  const dnnl_memory_desc_t *work = dnnl_primitive_desc_query_md(made, dnnl_query_scratchpad_md, 0);
  if (work != NULL) p->work = *work;
  p->work_bytes = work == NULL ? 0 : dnnl_memory_desc_get_size(work);
  return true;
}

static bool make_reorder(plan *p, int t, dnnl_engine_t engine, const_dnnl_primitive_attr_t attributes) {
  if (dnnl_memory_desc_equal(&p->plain[t], &p->blocked[t])) return true;
  const bool out = t == result_of[p->kind];
  const dnnl_memory_desc_t *from = out ? &p->blocked[t] : &p->plain[t], *to = out ? &p->plain[t] : &p->blocked[t];
  dnnl_primitive_desc_t description;
  if (dnnl_reorder_primitive_desc_create(&description, from, engine, to, engine, attributes) != dnnl_success)
    return false;
  const bool made = dnnl_primitive_create(&p->reorder[t], description) == dnnl_success;
  dnnl_primitive_desc_destroy(description);
  return made;
}

static bool make(plan *p) {
  dnnl_engine_t engine = p->engine;
  dnnl_memory_desc_t any[TENSORS];
  dnnl_convolution_desc_t what;
  dnnl_primitive_attr_t attributes = NULL;
  dnnl_primitive_desc_t hint = NULL, made = NULL;
  bool good = describe(p, any, true) && describe(p, p->plain, false) &&
              dnnl_primitive_attr_create(&attributes) == dnnl_success &&
              dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user) == dnnl_success;
  if (good && p->kind != PD_DIRECT_FORWARD) {
    good = describe_kind(p->kind, &p->window, any, &what, true) &&
           dnnl_primitive_desc_create(&hint, &what, attributes, engine, NULL) == dnnl_success;
  }
  good = good && describe_kind(p->kind, &p->window, any, &what, false) &&
         dnnl_primitive_desc_create(&made, &what, attributes, engine, hint) == dnnl_success && take_layouts(p, made) &&
         dnnl_primitive_create(&p->convolution, made) == dnnl_success;
  for (int t = 0; t < TENSORS; t++) good = good && make_reorder(p, t, engine, attributes);
  if (made != NULL) dnnl_primitive_desc_destroy(made);
  if (hint != NULL) dnnl_primitive_desc_destroy(hint);
  if (attributes != NULL) dnnl_primitive_attr_destroy(attributes);
  return good;
}

/* Made for one thread: a part is never shared. */
static const plan *plan_of(pd_direct_kind kind, const pd_image_window *window) {
  static _Thread_local plan *plans;
  for (const plan *p = plans; p != NULL; p = p->next) {
    if (p->kind == kind && memcmp(&p->window, window, sizeof *window) == 0) return p;
  }
  plan *p = calloc(1, sizeof *p);
  if (p == NULL) return NULL;
  p->kind = kind;
  p->window = *window;
  p->next = plans;
  plans = p;
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  p->engine = engine_of();
  p->usable = p->engine != NULL && make(p);
  omp_set_num_threads(threads);
  return p;
}

/* ---- a part ---- */

static size_t padded(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

static bool run_reorder(const plan *p, int t, dnnl_stream_t stream, const void *from, void *to) {
  const bool out = t == result_of[p->kind];
  dnnl_memory_t memory[2] = {NULL, NULL};
  const dnnl_memory_desc_t *from_layout = out ? &p->blocked[t] : &p->plain[t];
  const dnnl_memory_desc_t *to_layout = out ? &p->plain[t] : &p->blocked[t];
  bool good = dnnl_memory_create(&memory[0], from_layout, p->engine, (void *)(uintptr_t)from) == dnnl_success &&
              dnnl_memory_create(&memory[1], to_layout, p->engine, to) == dnnl_success;
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, memory[0]}, {DNNL_ARG_TO, memory[1]}};
  good = good && dnnl_primitive_execute(p->reorder[t], stream, 2, arguments) == dnnl_success;
  for (int i = 0; i < 2; i++) {
    if (memory[i] != NULL) dnnl_memory_destroy(memory[i]);
  }
  return good;
}

static bool run_convolution(const plan *p, dnnl_stream_t stream, void *const *at, void *work) {
  static const int names[][TENSORS] = {
      [PD_DIRECT_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
      [PD_DIRECT_INPUT_GRAD] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
      [PD_DIRECT_FILTER_GRAD] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};
  dnnl_exec_arg_t arguments[TENSORS + 1];
  int count = 0;
  bool good = true;
  for (int t = 0; t < TENSORS && good; t++) {
    arguments[count].arg = names[p->kind][t];
    good = dnnl_memory_create(&arguments[count].memory, &p->blocked[t], p->engine, at[t]) == dnnl_success;
    count += good;
  }
  if (good && p->work_bytes > 0) {
    arguments[count].arg = DNNL_ARG_SCRATCHPAD;
    good = dnnl_memory_create(&arguments[count].memory, &p->work, p->engine, work) == dnnl_success;
    count += good;
  }
  good = good && dnnl_primitive_execute(p->convolution, stream, count, arguments) == dnnl_success;
  for (int i = 0; i < count; i++) dnnl_memory_destroy(arguments[i].memory);
  return good;
}

/* `plain`: the three tensors of the part as they lie; of the filter, only where it is the result. `room`: for what is
 * in blocks here, and for oneDNN. */
static bool run_part(const plan *p, float *const *plain, void *blocked_filter, char *room) {
  dnnl_stream_t stream;
  if (dnnl_stream_create(&stream, p->engine, dnnl_stream_default_flags) != dnnl_success) return false;
  const int result = result_of[p->kind];
  void *at[TENSORS];
  bool good = true;
  for (int t = 0; t < TENSORS && good; t++) {
    at[t] = t == FILTER && t != result ? blocked_filter : p->reorder[t] == NULL ? (void *)plain[t] : (void *)room;
    if (at[t] != (void *)room) continue;
    room += padded(p->bytes[t]);
    if (t != result) good = run_reorder(p, t, stream, plain[t], at[t]);
  }
  good = good && run_convolution(p, stream, at, room);
  if (good && p->reorder[result] != NULL) good = run_reorder(p, result, stream, at[result], plain[result]);
  dnnl_stream_wait(stream);
  dnnl_stream_destroy(stream);
  return good;
}

/* The filter in blocks, for all parts. */
static bool block_filter(const plan *p, const float *f, void *to) {
  dnnl_stream_t stream;
  if (dnnl_stream_create(&stream, p->engine, dnnl_stream_default_flags) != dnnl_success) return false;
  const bool good = run_reorder(p, FILTER, stream, f, to);
  dnnl_stream_wait(stream);
  dnnl_stream_destroy(stream);
  return good;
}

/* ---- a call ---- */

/* Into how many parts of equal size the images go: the largest divisor of their number that is not above `most`. */
static int64_t parts_of(int64_t n, int64_t most) {
  int64_t parts = most < n ? most : n;
  while (n % parts != 0) parts--;
  return parts;
}

bool pd_direct_convolution(pd_direct_kind kind, const pd_image_window *v, const float *a, const float *b, float *out,
                           void *(*scratch)(size_t bytes)) {
  const int64_t size = v->filters * v->channels * v->kh * v->kw, image = v->channels * v->h * v->w;
  const int64_t places = v->filters * v->oh * v->ow;
  if (kind == PD_DIRECT_INPUT_GRAD && v->channels < 8) return false; /* a block of channels is mostly padding */
  if (v->n < 1 || (double)v->n * (double)places * (double)(size / v->filters) < 1e5) return false;
  /* every part has a filter gradient of its own, so large ones are cut less */
  const int64_t parts = parts_of(v->n, kind == PD_DIRECT_FILTER_GRAD && size > 1 << 18 ? 2 : 8);
  pd_image_window window = *v;
  window.n = v->n / parts;
  const plan *p = plan_of(kind, &window);
  if (p == NULL || !p->usable) return false;

  const bool gradient = kind == PD_DIRECT_FILTER_GRAD;
  size_t each = padded(p->work_bytes);
  for (int t = 0; t < TENSORS; t++) each += padded(p->bytes[t]);
  const int threads = parts > 1 ? omp_get_max_threads() : 1;
  const size_t filters = gradient ? padded((size_t)size * sizeof(float)) * (size_t)parts : padded(p->bytes[FILTER]);
  char *room = scratch(filters + each * (size_t)threads + 64), *first = room + (64 - (uintptr_t)room % 64) % 64;
  const float *f = kind == PD_DIRECT_FORWARD ? b : a;
  void *filter = gradient ? NULL : (void *)(uintptr_t)f;
  if (!gradient && p->reorder[FILTER] != NULL) {
    filter = first;
    if (!block_filter(p, f, filter)) return false;
  }
  bool good = true;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(&& : good)
  for (int64_t part = 0; part < parts; part++) {
    omp_set_num_threads(1);
    const float *x = kind == PD_DIRECT_INPUT_GRAD ? out : a, *y = kind == PD_DIRECT_FORWARD ? out : b;
    float *plain[TENSORS] = {(float *)(uintptr_t)x + part * window.n * image, NULL,
                             (float *)(uintptr_t)y + part * window.n * places};
    if (gradient) plain[FILTER] = (float *)(void *)(first + padded((size_t)size * sizeof(float)) * (size_t)part);
    good = run_part(p, plain, filter, first + filters + each * (size_t)omp_get_thread_num()) && good;
  }
  if (!good) return false;
  for (int64_t part = 0; gradient && part < parts; part++) {
    const float *own = (const float *)(const void *)(first + padded((size_t)size * sizeof(float)) * (size_t)part);
#pragma omp parallel for simd if (size > 32768) schedule(static)
    for (int64_t i = 0; i < size; i++) out[i] += own[i];
  }
  return true;
}

#else /* another interface: columns do everywhere */

bool pd_direct_convolution(pd_direct_kind kind, const pd_image_window *v, const float *a, const float *b, float *out,
                           void *(*scratch)(size_t bytes)) {
  (void)kind, (void)v, (void)a, (void)b, (void)out, (void)scratch;
  return false;
}

#endif
