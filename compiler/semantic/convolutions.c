/* Convolutions and what goes with them: windows that move over [batch, channels, height, width], and batch
 * normalisation. Every size that comes out of a window has its sum as derivation, so that a shape that does not fit
 * says how it came about. */
#include <inttypes.h>
#include <string.h>

#include "semantic/operations.h"

enum { HEIGHT = 2, WIDTH = 3 };

typedef struct Window {
  int64_t size[2]; /* of the filter or pool */
  int64_t stride, pad;
} Window;

static const char *const side_name[2] = {"height", "width"};

static bool image(Call *call, Val x) {
  if (x.kind == VAL_ERROR) return false;
  if (value_at(call->sem, x.value)->rank == 4) return true;
  fail(call, "E0308", call->slot[0]->span, "`%s` needs [batch, channels, height, width], and `%s` is %s",
       call->row->name, source_of(call, call->slot[0]), shape_text(call->sem, x.value));
  return false;
}

/* A whole number. `(k - 1) / 2` of an even k is none: told with the filters that have such a pad. */
static bool step_arg(Call *call, unsigned slot, const char *what, int64_t fallback, int64_t least, int64_t *result) {
  Sem *sem = call->sem;
  const Expr *expr = call->slot[slot];
  *result = fallback;
  if (!expr) return true;
  Const value = const_eval(sem, call->frame->unit, call->frame, expr);
  if (value.kind == CONST_ERROR) return false;
  if (value.kind != CONST_INT || value.integer < least || value.integer > INT32_MAX) {
    bool number = const_is_number(value);
    Diag *diag =
        report(sem, "E0322", expr->span, "`%s` of `%s` must be a whole number from %" PRId64 " on, not %s", what,
               call->row->name, least, number ? const_value_text(sem, value) : const_kind_name(value.kind));
    if (number && expr->kind != EXPR_INT && expr->kind != EXPR_REAL)
      diag_note(diag, "%s = %s", derivation_text(sem, call->frame->unit, call->frame, expr),
                const_value_text(sem, value));
    if (value.kind == CONST_REAL && !strcmp(what, "pad"))
      diag_help(diag, "with an odd filter size, pad=(k - 1) / 2 is whole and keeps the size");
    return false;
  }
  *result = value.integer;
  return true;
}

static const char *size_name(const Sem *sem, Id axis) {
  const Axis *a = &sem->graph->axes.at[axis];
  return a->name ? a->name : arena_printf(sem->arena, "%" PRId64, a->size);
}

/* "(side + 2 * 3 - 7) / 2 + 1", with numbers or names; without what does nothing. */
static const char *window_text(const Sem *sem, const char *size, const Window *window, unsigned side) {
  Text text = {.arena = sem->arena};
  text_printf(&text, window->stride > 1 ? "(%s" : "%s", size);
  if (window->pad) text_printf(&text, " + 2 * %" PRId64, window->pad);
  text_printf(&text, " - %" PRId64, window->size[side]);
  text_printf(&text, window->stride > 1 ? ") / %" PRId64 " + 1" : " + 1", window->stride);
  return text.at;
}

/* The axis of places of a window along the height or the width; the error axis after a report. */
static Id slide(Call *call, Id image_axis, const Window *window, unsigned side, Span span) {
  Sem *sem = call->sem;
  int64_t size = sem->graph->axes.at[image_axis].size, k = window->size[side], padded;
  const char *what = !strcmp(call->row->name, "conv2d") ? "filter" : "window";
  if (__builtin_add_overflow(size, 2 * window->pad, &padded)) {
    fail(call, "E0213", span, "the padded %s of %s does not fit in 64 bits", side_name[side],
         axis_text(sem, image_axis));
    return sem->error_axis;
  }
  if (padded < k) {
    Diag *diag = report(sem, "E0322", span, "`%s`: a %s of %s %" PRId64 " on an image of %s %s", call->row->name, what,
                        side_name[side], k, side_name[side], axis_text(sem, image_axis));
    if (window->pad) diag_note(diag, "padded by %" PRId64 " on both sides it is %" PRId64, window->pad, padded);
    axis_notes(sem, diag, 1, &image_axis);
    if (padded > 0)
      diag_help(diag, "the largest %s that fits is %" PRId64 "; with this one, pad=%" PRId64 " fits", what, padded,
                (k - size + 1) / 2);
    return sem->error_axis;
  }
  int64_t places = (padded - k) / window->stride + 1;
  if (places == size && window->stride == 1) return image_axis;
  const char *name = size_name(sem, image_axis), *number = arena_printf(sem->arena, "%" PRId64, size);
  const char *sum = window_text(sem, number, window, side), *named = window_text(sem, name, window, side);
  const char *rounded = (padded - k) % window->stride ? ", rounded down" : "";
  const char *derivation = strcmp(name, number) ? arena_printf(sem->arena, "%s = %s%s", named, sum, rounded)
                                                : arena_printf(sem->arena, "%s%s", sum, rounded);
  return anonymous_axis(sem, places, derivation, call->expr->span);
}

/* The result's height and width; every rank needs all of the image. */
static bool slide_over(Call *call, const Id *image_axes, const Window *window, Id *result) {
  for (unsigned side = 0; side < 2; side++)
    if (!whole_axis(call, image_axes[HEIGHT + side], call->slot[0]->span)) return false;
  for (unsigned side = 0; side < 2; side++) {
    result[HEIGHT + side] = slide(call, image_axes[HEIGHT + side], window, side, call->expr->span);
    if (axis_is_error(call->sem, result[HEIGHT + side])) return false;
  }
  return true;
}

/* ---- a size that was declared otherwise ---- */

/* The window that made the height and width of an image, looked for through element-wise operations and norms. */
static const Op *made_by_window(Sem *sem, Id value) {
  const Value *v = value_at(sem, value);
  while (v->kind == VALUE_OP && v->rank == 4) {
    const Op *op = &sem->graph->ops.at[v->source];
    if (op->kind == OP_CONV2D || op->kind == OP_MAXPOOL || op->kind == OP_AVGPOOL) return op;
    if (!op_is_elementwise(op->kind) && op->kind != OP_BATCHNORM && op->kind != OP_DROPOUT) return NULL;
    v = value_at(sem, op->in[0]);
  }
  return NULL;
}

void window_help(Sem *sem, Diag *diag, Id value, unsigned position, int64_t wanted) {
  const Op *op = position == HEIGHT || position == WIDTH ? made_by_window(sem, value) : NULL;
  if (!op || wanted < 1) return;
  int64_t size = sem->graph->axes.at[value_at(sem, op->in[0])->axes[position]].size;
  int64_t k = op->integer[position - HEIGHT], stride = op->integer[2], pad = op->integer[3], most;
  if (__builtin_mul_overflow(wanted, stride, &most)) return;
  /* `wanted` places: (wanted - 1) * stride <= size + 2 pad - k < wanted * stride */
  int64_t largest = size + 2 * pad - (most - stride), smallest = largest - stride + 1;
  if (smallest < 1) smallest = 1;
  int64_t filter = k > largest ? largest : k < smallest ? smallest : k;
  int64_t least_pad = (most - stride - size + k + 1) / 2; /* rounded up where positive */
  bool padded = least_pad >= 0 && least_pad <= INT32_MAX && (size + 2 * least_pad - k) / stride + 1 == wanted;
  const char *what = op->kind == OP_CONV2D ? "a filter" : "a window";
  if (filter >= 1 && padded)
    diag_help(diag, "%s of %" PRId64 ", or pad=%" PRId64 ", gives %" PRId64, what, filter, least_pad, wanted);
  else if (filter >= 1)
    diag_help(diag, "%s of %" PRId64 " gives %" PRId64, what, filter, wanted);
  else if (padded)
    diag_help(diag, "pad=%" PRId64 " gives %" PRId64, least_pad, wanted);
}

static void set_window(Op *op, const Window *window) {
  op->integer[0] = window->size[0];
  op->integer[1] = window->size[1];
  op->integer[2] = window->stride;
  op->integer[3] = window->pad;
}

/* y (op) v, where v has one number for every channel of y: [c] against [batch, c, …]. */
static Val with_channels(Call *call, OpKind kind, Val y, unsigned slot, const char *what) {
  Sem *sem = call->sem;
  if (!call->slot[slot] || y.kind == VAL_ERROR) return y;
  Val v = tensor_arg(call, slot);
  if (v.kind == VAL_ERROR) return v;
  Id axes[MAX_RANK], inputs[2] = {y.value, v.value};
  copy_axes(sem, y.value, axes);
  const Value *channels = value_at(sem, v.value);
  if (channels->rank != 1 || !same_axis(sem, axes[1], channels->axes[0])) {
    Diag *diag =
        report(sem, "E0308", call->slot[slot]->span, "`%s`: the %s must be [%s], and `%s` is %s", call->row->name, what,
               size_name(sem, axes[1]), source_of(call, call->slot[slot]), shape_text(sem, v.value));
    diag_note(diag, "it has one number for every channel of %s", shape_text(sem, y.value));
    if (channels->rank == 1) mismatch_help(sem, diag, axes[1], channels->axes[0]);
    return val_error();
  }
  Val result = emit(sem, kind, call->expr->span, inputs, 2, value_at(sem, y.value)->rank, axes);
  if (result.kind == VAL_TENSOR) op_of(sem, result)->offset[1] = 1;
  return result;
}

static bool same_channels(Call *call, Val x, Val f) {
  Sem *sem = call->sem;
  const Value *v = value_at(sem, x.value), *filter = value_at(sem, f.value);
  if (same_axis(sem, v->axes[1], filter->axes[1])) return true;
  Diag *diag = report(sem, "E0322", call->expr->span, "`conv2d`: the image has %s channels, the filter takes %s",
                      axis_text(sem, v->axes[1]), axis_text(sem, filter->axes[1]));
  diag_label(diag, call->slot[0]->span, "%s", shape_text(sem, x.value));
  diag_label(diag, filter->kind == VALUE_PARAM ? filter->span : call->slot[1]->span, "%s", shape_text(sem, f.value));
  Id both[2] = {v->axes[1], filter->axes[1]};
  axis_notes(sem, diag, 2, both);
  mismatch_help(sem, diag, both[0], both[1]);
  if (same_axis(sem, v->axes[1], filter->axes[0]))
    diag_help(diag, "the filter is [out, in, height, width]: its first two axes may be the wrong way round");
  return false;
}

Val rule_conv2d(Call *call) {
  Sem *sem = call->sem;
  Val x = tensor_arg(call, 0), f = tensor_arg(call, 1);
  Window window;
  bool steps = step_arg(call, 2, "stride", 1, 1, &window.stride);
  steps &= step_arg(call, 3, "pad", 0, 0, &window.pad);
  if (!image(call, x) || f.kind == VAL_ERROR || !steps) return val_error();
  const Value *filter = value_at(sem, f.value);
  if (filter->rank != 4)
    return fail(call, "E0308", call->slot[1]->span, "`conv2d` needs a filter [out, in, height, width], and `%s` is %s",
                source_of(call, call->slot[1]), shape_text(sem, f.value));
  for (unsigned i = 0; i < 4; i++)
    if ((i >= HEIGHT || filter->axes[i] == sem->batch) && !whole_axis(call, filter->axes[i], call->slot[1]->span))
      return val_error();
  if (!same_channels(call, x, f)) return val_error();
  Id axes[MAX_RANK], image_axes[MAX_RANK], inputs[2] = {x.value, f.value};
  copy_axes(sem, x.value, image_axes);
  copy_axes(sem, x.value, axes);
  axes[1] = filter->axes[0];
  for (unsigned side = 0; side < 2; side++) {
    window.size[side] = sem->graph->axes.at[filter->axes[HEIGHT + side]].size;
    if (window.size[side] < 1)
      return fail(call, "E0313", call->slot[1]->span, "the filter `%s` has no elements",
                  source_of(call, call->slot[1]));
  }
  if (!slide_over(call, image_axes, &window, axes)) return val_error();
  Val y = emit(sem, OP_CONV2D, call->expr->span, inputs, 2, 4, axes);
  if (y.kind == VAL_ERROR) return y;
  set_window(op_of(sem, y), &window);
  return with_channels(call, OP_ADD, y, 4, "bias");
}

/* The mean over height and width. */
static Val global_average(Call *call, Val x) {
  Sem *sem = call->sem;
  if (!image(call, x)) return val_error();
  double count = 1;
  for (unsigned i = HEIGHT; i <= WIDTH; i++) {
    Id axis = value_at(sem, x.value)->axes[i];
    if (!whole_axis(call, axis, call->slot[0]->span)) return val_error();
    count *= (double)sem->graph->axes.at[axis].size;
  }
  return emit_sum(sem, call->expr->span, x.value, 1u << HEIGHT | 1u << WIDTH, 1 / count);
}

Val rule_pool(Call *call) {
  Sem *sem = call->sem;
  Val x = tensor_arg(call, 0);
  bool average = call->row->kind == OP_AVGPOOL;
  if (average && !call->slot[1]) {
    if (!call->slot[2]) return global_average(call, x);
    return fail(call, "E0215", call->slot[2]->span,
                "`avgpool` over the whole image takes no `stride`; give the window `k` too");
  }
  Window window = {.pad = 0};
  bool steps = step_arg(call, 1, "k", 1, 1, &window.size[0]);
  window.size[1] = window.size[0];
  steps &= step_arg(call, 2, "stride", window.size[0], 1, &window.stride);
  if (!average) steps &= step_arg(call, 3, "pad", 0, 0, &window.pad);
  if (!image(call, x) || !steps) return val_error();
  if (window.pad >= window.size[0]) {
    Diag *diag = report(sem, "E0322", call->slot[3]->span,
                        "`maxpool`: pad=%" PRId64 " puts whole windows of %" PRId64 " outside of the image", window.pad,
                        window.size[0]);
    diag_help(diag, "pad by at most %" PRId64, window.size[0] - 1);
    return val_error();
  }
  Id axes[MAX_RANK], image_axes[MAX_RANK];
  copy_axes(sem, x.value, image_axes);
  copy_axes(sem, x.value, axes);
  if (!slide_over(call, image_axes, &window, axes)) return val_error();
  Val y = emit(sem, call->row->kind, call->expr->span, &x.value, 1, 4, axes);
  if (y.kind == VAL_TENSOR) set_window(op_of(sem, y), &window);
  return y;
}

/* ---- batch normalisation ---- */

/* A running mean over steps of what a micro-batch measures, one number a channel. */
static Id running(Call *call, const char *name, Id channels, double start, double momentum) {
  Sem *sem = call->sem;
  Param param = {.name = naming_child(sem, call->frame->naming, name),
                 .span = call->expr->span,
                 .rank = 1,
                 .axes = {channels},
                 .init = {INIT_NUMBER, start, 0},
                 .segment = NO_ID,
                 .per_trip = sem->loop != NO_ID,
                 .statistic = true,
                 .momentum = momentum};
  vec_push(sem->arena, &sem->graph->params, param);
  Value value = {.kind = VALUE_PARAM,
                 .name = param.name,
                 .span = param.span,
                 .rank = 1,
                 .axes = {channels},
                 .source = sem->graph->params.count - 1,
                 .segment = NO_ID};
  vec_push(sem->arena, &sem->graph->values, value);
  return sem->graph->values.count - 1;
}

Val rule_batchnorm(Call *call) {
  Sem *sem = call->sem;
  double eps, momentum;
  Val x = tensor_arg(call, 0);
  bool numbers = number_arg(call, 1, "eps", 1e-5, &eps);
  numbers &= number_arg(call, 2, "momentum", 0.1, &momentum);
  if (!numbers || x.kind == VAL_ERROR) return val_error();
  if (eps < 0) return fail_number(call, "E0308", call->slot[1]->span, "`eps` must not be negative");
  if (!(momentum > 0 && momentum <= 1))
    return fail_number(call, "E0308", call->slot[2]->span,
                       "`momentum` is the share of a step in the running statistics, above 0 and at most 1, not %g",
                       momentum);
  Id axes[MAX_RANK];
  copy_axes(sem, x.value, axes);
  unsigned rank = value_at(sem, x.value)->rank;
  if (rank < 2 || axes[0] != sem->batch)
    return fail_number(call, "E0308", call->slot[0]->span, "`batchnorm` needs [batch, channels, ..], and `%s` is %s",
                       source_of(call, call->slot[0]), shape_text(sem, x.value));
  for (unsigned i = 2; i < rank; i++)
    if (!whole_axis(call, axes[i], call->slot[0]->span)) return val_error();
  Id inputs[3] = {x.value, running(call, "running_mean", axes[1], 0, momentum),
                  running(call, "running_variance", axes[1], 1, momentum)};
  Val y = emit(sem, OP_BATCHNORM, call->expr->span, inputs, 3, rank, axes);
  if (y.kind == VAL_ERROR) return y;
  emit_more(sem, y, "mean", 1, &axes[1]);
  emit_more(sem, y, "variance", 1, &axes[1]);
  op_of(sem, y)->real[0] = eps;
  return with_channels(call, OP_ADD, with_channels(call, OP_MUL, y, 3, "scale"), 4, "bias");
}
