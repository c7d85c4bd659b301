/* One operation as calls of kernels. Sizes are constants of the emitted program. */
#include <string.h>

#include "emit/writer.h"

static int64_t local(const Writer *w, Id axis) {
  return axis_local(w->graph, w->config, axis);
}

/* Product of local sizes of axes from..to-1. */
static int64_t run(const Writer *w, const Value *value, unsigned from, unsigned to) {
  return axes_local_elements(w->graph, w->config, to - from, value->axes + from);
}

static const char *first_position(Writer *w, Id axis) {
  if (!axis_is_split(w->graph, w->config, axis)) return "0";
  return arena_printf(w->input->arena, "f->tp_rank * %lld", (long long)local(w, axis));
}

static int normaliser_of(const Writer *w, Id targets) {
  Id data = w->graph->values.at[targets].source;
  for (int k = 0; k < w->input->program->normaliser_count; k++)
    if (w->input->program->normalisers[k] == (int)data) return k;
  return 0;
}

/* ` * loss_gradient`, nothing when that is 1. */
static const char *times_scalar(Writer *w, Id scalar) {
  const Value *v = &w->graph->values.at[scalar];
  if (v->kind == VALUE_CONST && v->number == 1) return "";
  return arena_printf(w->input->arena, " * %s", write_scalar(w, scalar));
}

static void write_xent(Writer *w, const Op *op, bool gradient) {
  const Value *x = &w->graph->values.at[op->in[0]];
  int64_t classes = local(w, x->axes[x->rank - 1]), rows = run(w, x, 0, x->rank - 1u);
  bool split = axis_is_split(w->graph, w->config, x->axes[x->rank - 1]);
  const char *logits = write_name(w, op->in[0]), *targets = write_name(w, op->in[1]);
  const char *first = first_position(w, x->axes[x->rank - 1]);
  int n = normaliser_of(w, op->in[1]);
  if (gradient) {
    write_line(w, "K->xent_grad(%lld, %lld, %s, (real)f->inverse_counts[%d]%s, %s, %s, %s, %s, %s);", (long long)rows,
               (long long)classes, first, n, times_scalar(w, op->in[4]), logits, targets, write_name(w, op->in[2]),
               write_name(w, op->in[3]), write_name(w, op->out[0]));
    return;
  }
  const char *max = write_name(w, op->out[1]), *sums = write_name(w, op->out[2]);
  write_line(w, "K->xent_max(%lld, %lld, %s, %s);", (long long)rows, (long long)classes, logits, max);
  if (split) write_line(w, "pd_tp_max_%s(%s, %lld);", w->suffix, max, (long long)rows);
  write_line(w, "K->xent_sums(%lld, %lld, %s, %s, %s, %s, %s);", (long long)rows, (long long)classes, first, logits, targets, max, sums);
  if (split) write_line(w, "pd_tp_sum_%s(%s, %lld);", w->suffix, sums, (long long)(2 * rows));
  write_line(w, "%s[0] = (real)(K->xent_loss(%lld, %s, %s) * f->inverse_counts[%d]);", write_name(w, op->out[0]), (long long)rows,
             targets, sums, n);
}

static void write_mse(Writer *w, const Op *op, bool gradient) {
  const Value *x = &w->graph->values.at[op->in[0]];
  bool samples = x->rank && x->axes[0] == w->graph->batch;
  int64_t count = 1; /* of the whole step, over all ranks */
  for (unsigned i = 0; i < x->rank; i++) count *= w->graph->axes.at[x->axes[i]].size;
  int64_t n = run(w, x, 0, x->rank);
  const char *a = write_name(w, op->in[0]), *b = write_name(w, op->in[1]);
  if (gradient) {
    write_line(w, "K->mse_grad(%lld, (real)(1 / %lld.0)%s, %s, %s, %s);", (long long)n, (long long)count,
               times_scalar(w, op->in[2]), a, b, write_name(w, op->out[0]));
  } else if (samples) {
    write_line(w, "%s[0] = (real)(K->mse(f->samples * %lld, %s, %s) / %lld.0 * f->batch_scale);", write_name(w, op->out[0]),
               (long long)run(w, x, 1, x->rank), a, b, (long long)count);
  } else {
    write_line(w, "%s[0] = (real)(K->mse(%lld, %s, %s) / %lld.0);", write_name(w, op->out[0]), (long long)n, a, b, (long long)count);
  }
}

static void write_attention(Writer *w, const Op *op) {
  const Value *q = &w->graph->values.at[op->in[0]], *k = &w->graph->values.at[op->in[1]];
  const char *sizes = arena_printf(w->input->arena, "%lld, %lld, %lld, %lld, %lld, %lld, %s", (long long)local(w, q->axes[0]),
                                   (long long)local(w, q->axes[1]), (long long)local(w, k->axes[1]), (long long)local(w, q->axes[2]),
                                   (long long)local(w, k->axes[2]), (long long)local(w, q->axes[3]), op->integer[0] ? "true" : "false");
  const char *in[6];
  for (unsigned i = 0; i < op->in_count; i++) in[i] = write_name(w, op->in[i]);
  if (op->kind == OP_SDPA)
    write_line(w, "K->sdpa(%s, %s, %s, %s, %s, %s);", sizes, in[0], in[1], in[2], write_name(w, op->out[0]), write_name(w, op->out[1]));
  else
    write_line(w, "K->sdpa_grad(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s);", sizes, in[0], in[1], in[2], in[3], in[4], in[5],
               write_name(w, op->out[0]), write_name(w, op->out[1]), write_name(w, op->out[2]));
}

/* `const pd_image_window v = {…};` of an operation on images: `image` is the larger one, `places` the one of the window's places. */
static const char *write_window(Writer *w, const Op *op, Id image, Id places) {
  const Value *x = &w->graph->values.at[image], *y = &w->graph->values.at[places];
  const char *name = write_fresh(w, "window");
  write_line(w, "const pd_image_window %s = {.n = %lld, .channels = %lld, .h = %lld, .w = %lld, .filters = %lld, .kh = %lld, .kw = %lld,", name,
             (long long)local(w, x->axes[0]), (long long)local(w, x->axes[1]), (long long)local(w, x->axes[2]),
             (long long)local(w, x->axes[3]), (long long)local(w, y->axes[1]), (long long)op->integer[0], (long long)op->integer[1]);
  write_line(w, "  .stride = %lld, .pad = %lld, .oh = %lld, .ow = %lld};", (long long)op->integer[2], (long long)op->integer[3],
             (long long)local(w, y->axes[2]), (long long)local(w, y->axes[3]));
  return name;
}

static void write_image(Writer *w, const Op *op) {
  Id image = op->in[0], places = op->out[0]; /* forward */
  const char *to = op->accumulate != NO_ID ? write_gradient(w, op->accumulate) : write_name(w, op->out[0]);
  if (op->kind == OP_CONV2D_INPUT_GRAD || op->kind == OP_MAXPOOL_GRAD) image = op->out[0], places = op->in[1];
  if (op->kind == OP_CONV2D_FILTER_GRAD) places = op->in[1];
  if (op->kind == OP_AVGPOOL_GRAD) image = op->out[0], places = op->in[0];
  const char *window = write_window(w, op, image, places);
  if (op->kind == OP_CONV2D_FILTER_GRAD && op->accumulate == NO_ID)
    write_line(w, "K->fill(%lld, 0, %s);", (long long)write_elements(w, op->out[0]), to);
  if (op->in_count == 2)
    write_line(w, "K->%s(&%s, %s, %s, %s);", op_name(op->kind), window, write_name(w, op->in[0]), write_name(w, op->in[1]), to);
  else write_line(w, "K->%s(&%s, %s, %s);", op_name(op->kind), window, write_name(w, op->in[0]), to);
}

static void write_batchnorm(Writer *w, const Op *op) {
  const Value *x = &w->graph->values.at[op->in[0]];
  const char *sizes = arena_printf(w->input->arena, "%lld, %lld, %lld, %s", (long long)local(w, x->axes[0]), (long long)local(w, x->axes[1]),
                                   (long long)run(w, x, 2, x->rank), write_number(w, op->real[0]));
  const char *in[3];
  for (unsigned k = 0; k < 3; k++) in[k] = write_name(w, op->in[k]);
  if (op->kind == OP_BATCHNORM_GRAD) {
    write_line(w, "K->batchnorm_grad(%s, %s, %s, %s, %s);", sizes, in[0], in[1], in[2], write_name(w, op->out[0]));
    return;
  }
  const char *y = write_name(w, op->out[0]);
  write_line(w, "if (f->training) K->batchnorm(%s, %s, %s, %s, %s);", sizes, in[0], y, write_name(w, op->out[1]), write_name(w, op->out[2]));
  write_line(w, "else K->batchnorm_given(%s, %s, %s, %s, %s);", sizes, in[0], in[1], in[2], y);
}

static void write_rows(Writer *w, const Op *op) {
  const Value *x = &w->graph->values.at[op->in[0]];
  int64_t n = local(w, x->axes[x->rank - 1]), rows = run(w, x, 0, x->rank - 1u);
  const char *sizes = arena_printf(w->input->arena, "%lld, %lld", (long long)rows, (long long)n);
  const char *in[3] = {0};
  for (unsigned k = 0; k < op->in_count; k++) in[k] = write_name(w, op->in[k]);
  const char *name = op_name(op->kind), *out = write_name(w, op->out[0]);
  if (op->kind == OP_LAYERNORM || op->kind == OP_RMSNORM)
    write_line(w, "K->%s(%s, %s, %s, %s, %s);", name, sizes, write_number(w, op->real[0]), in[0], out, write_name(w, op->out[1]));
  else if (op->in_count == 3) write_line(w, "K->%s(%s, %s, %s, %s, %s);", name, sizes, in[0], in[1], in[2], out);
  else if (op->in_count == 2) write_line(w, "K->%s(%s, %s, %s, %s);", name, sizes, in[0], in[1], out);
  else write_line(w, "K->%s(%s, %s, %s);", name, sizes, in[0], out);
}

static void write_gather(Writer *w, const Op *op) {
  const Value *table = &w->graph->values.at[op->in[0]];
  write_line(w, "K->gather(%lld, %s, %lld, %lld, %s, %s, %s);", (long long)write_elements(w, op->in[1]),
             first_position(w, table->axes[0]), (long long)local(w, table->axes[0]), (long long)run(w, table, 1, table->rank),
             write_name(w, op->in[1]), write_name(w, op->in[0]), write_name(w, op->out[0]));
}

static void write_gather_grad(Writer *w, const Op *op) {
  const Value *table = &w->graph->values.at[op->out[0]];
  const char *to = op->accumulate != NO_ID ? write_gradient(w, op->accumulate) : write_name(w, op->out[0]);
  if (op->accumulate == NO_ID) write_line(w, "K->fill(%lld, 0, %s);", (long long)write_elements(w, op->out[0]), to);
  write_line(w, "K->gather_grad(%lld, %s, %lld, %lld, %s, %s, %s);", (long long)write_elements(w, op->in[0]),
             first_position(w, table->axes[0]), (long long)local(w, table->axes[0]), (long long)run(w, table, 1, table->rank),
             write_name(w, op->in[0]), write_name(w, op->in[1]), to);
}

/* Packed strides of a value's local shape. */
static void strides_of(const Writer *w, const Value *value, int64_t *stride) {
  int64_t step = 1;
  for (unsigned i = value->rank; i-- > 0;) {
    stride[i] = step;
    step *= local(w, value->axes[i]);
  }
}

/* Copies `part` (a box of `whole`) at position `begin` of axis `axis`; to_part: from whole into part, else the reverse. */
static void write_box(Writer *w, Id part_id, Id whole_id, int64_t axis, int64_t begin, bool to_part) {
  const Value *part = &w->graph->values.at[part_id], *whole = &w->graph->values.at[whole_id];
  int64_t part_stride[MAX_RANK], whole_stride[MAX_RANK];
  strides_of(w, part, part_stride);
  strides_of(w, whole, whole_stride);
  ViewAxis axes[MAX_RANK];
  for (unsigned i = 0; i < part->rank; i++) {
    int64_t from = to_part ? whole_stride[i] : part_stride[i], to = to_part ? part_stride[i] : whole_stride[i];
    axes[i] = (ViewAxis){local(w, part->axes[i]), to, from, 0, false};
  }
  const char *view = write_view(w, axes, part->rank);
  const char *part_name = write_name(w, part_id), *whole_name = write_name(w, whole_id);
  if (begin) whole_name = arena_printf(w->input->arena, "%s + %lld", whole_name, (long long)(begin * whole_stride[axis]));
  write_line(w, "K->copy(&%s, %s, false, %s);", view, to_part ? whole_name : part_name, to_part ? part_name : whole_name);
}

static void write_own_part(Writer *w, const Op *op) {
  const Value *part = &w->graph->values.at[op->out[0]], *whole = &w->graph->values.at[op->in[0]];
  unsigned axis = (unsigned)op->integer[0];
  int64_t outer = run(w, part, 0, axis), own = run(w, part, axis, part->rank), all = run(w, whole, axis, whole->rank);
  const ViewAxis axes[2] = {{outer, own, all, 0, false}, {own, 1, 1, 0, false}};
  const char *view = write_view(w, axes, 2);
  write_line(w, "K->copy(&%s, %s + f->tp_rank * %lld, false, %s);", view, write_name(w, op->in[0]), (long long)own, write_name(w, op->out[0]));
}

static void write_permute(Writer *w, const Op *op) {
  const Value *x = &w->graph->values.at[op->in[0]], *y = &w->graph->values.at[op->out[0]];
  int64_t from[MAX_RANK], to[MAX_RANK];
  strides_of(w, x, from);
  strides_of(w, y, to);
  ViewAxis axes[MAX_RANK];
  for (unsigned i = 0; i < y->rank; i++) axes[i] = (ViewAxis){local(w, y->axes[i]), to[i], from[op->integer[i]], 0, false};
  const char *view = write_view(w, axes, y->rank);
  write_line(w, "K->copy(&%s, %s, false, %s);", view, write_name(w, op->in[0]), write_name(w, op->out[0]));
}

static void write_dropout(Writer *w, const Op *op) {
  const Value *x = &w->graph->values.at[op->in[0]];
  int64_t samples = local(w, x->axes[0]), n = run(w, x, 1, x->rank);
  Arena *arena = w->input->arena;
  Text size = {.arena = arena}, first = {.arena = arena}, global = {.arena = arena};
  for (unsigned i = 1; i < x->rank; i++) {
    const char *comma = i > 1 ? ", " : "";
    text_printf(&size, "%s%lld", comma, (long long)local(w, x->axes[i]));
    text_printf(&first, "%s%s", comma, first_position(w, x->axes[i]));
    text_printf(&global, "%s%lld", comma, (long long)w->graph->axes.at[x->axes[i]].size);
  }
  const char *in = write_name(w, op->in[0]), *out = write_name(w, op->out[0]);
  write_line(w, "if (f->training) {");
  if (x->rank > 1)
    write_line(w, "const pd_local at = {.rank = %d, .size = {%s}, .first = {%s}, .global = {%s}};", x->rank - 1, size.at, first.at, global.at);
  else write_line(w, "const pd_local at = {.rank = 0};");
  write_line(w, "const pd_key key = {f->seed, pd_purpose(\"%s\") + (uint64_t)f->trip};", op->purpose ? op->purpose : "dropout");
  write_line(w, "K->dropout(key, f->step, f->sample0, %lld, %lld, &at, %s, %s, %s);", (long long)samples, (long long)n,
             write_number(w, op->real[0]), in, out);
  write_line(w, "} else {");
  write_line(w, "memcpy(%s, %s, %lld * sizeof(real));", out, in, (long long)(samples * n));
  write_line(w, "}");
}

void write_operation(Writer *w, Id id) {
  const Op *op = &w->graph->ops.at[id];
  int64_t n = write_elements(w, op->out[0]);
  switch (op->kind) {
  case OP_CONTRACT: write_product(w, op); break;
  case OP_SUM: write_sum(w, op); break;
  case OP_COPY: /* only into a gradient: others are fused loops */
    write_line(w, "K->add(%lld, %s, %s);", (long long)n, write_name(w, op->in[0]), write_gradient(w, op->accumulate));
    break;
  case OP_LAYERNORM:
  case OP_LAYERNORM_GRAD:
  case OP_RMSNORM:
  case OP_RMSNORM_GRAD:
  case OP_SOFTMAX:
  case OP_SOFTMAX_GRAD: write_rows(w, op); break;
  case OP_GATHER: write_gather(w, op); break;
  case OP_GATHER_GRAD: write_gather_grad(w, op); break;
  case OP_SDPA:
  case OP_SDPA_GRAD: write_attention(w, op); break;
  case OP_ROPE: {
    const Value *x = &w->graph->values.at[op->in[0]];
    write_line(w, "K->rope(%lld, %lld, %lld, %lld, %.17g, %d, %s, %s);", (long long)local(w, x->axes[0]), (long long)local(w, x->axes[1]),
               (long long)local(w, x->axes[2]), (long long)local(w, x->axes[3]), op->real[0], (int)op->integer[0],
               write_name(w, op->in[0]), write_name(w, op->out[0]));
    break;
  }
  case OP_DROPOUT: write_dropout(w, op); break;
  case OP_PERMUTE: write_permute(w, op); break;
  case OP_RESHAPE: break; /* the same memory */
  case OP_CONV2D:
  case OP_CONV2D_INPUT_GRAD:
  case OP_CONV2D_FILTER_GRAD:
  case OP_MAXPOOL:
  case OP_MAXPOOL_GRAD:
  case OP_AVGPOOL:
  case OP_AVGPOOL_GRAD: write_image(w, op); break;
  case OP_BATCHNORM:
  case OP_BATCHNORM_GRAD: write_batchnorm(w, op); break;
  case OP_ALL_GATHER: {
    const Value *x = &w->graph->values.at[op->in[0]];
    unsigned axis = (unsigned)op->integer[0];
    write_line(w, "pd_tp_gather_%s(%lld, %lld, %s, %s);", w->suffix, (long long)run(w, x, 0, axis), (long long)run(w, x, axis, x->rank),
               write_name(w, op->in[0]), write_name(w, op->out[0]));
    break;
  }
  case OP_OWN_PART: write_own_part(w, op); break;
  case OP_SLICE: write_box(w, op->out[0], op->in[0], op->integer[0], op->integer[1], true); break;
  case OP_SLICE_GRAD:
    write_line(w, "K->fill(%lld, 0, %s);", (long long)n, write_name(w, op->out[0]));
    write_box(w, op->in[0], op->out[0], op->integer[0], op->integer[1], false);
    break;
  case OP_CONCAT: {
    int64_t begin = 0;
    for (unsigned k = 0; k < op->in_count; k++) {
      write_box(w, op->in[k], op->out[0], op->integer[0], begin, false);
      begin += local(w, w->graph->values.at[op->in[k]].axes[op->integer[0]]);
    }
    break;
  }
  case OP_XENT: write_xent(w, op, false); break;
  case OP_XENT_GRAD: write_xent(w, op, true); break;
  case OP_MSE: write_mse(w, op, false); break;
  case OP_MSE_GRAD: write_mse(w, op, true); break;
  case OP_SHARE: /* rank 0, or the gradient that arrives at one */
    write_line(w, "for (int64_t i = 0; i < %lld; i++)", (long long)n);
    w->indent++;
    write_line(w, "%s[i] = %s * (real)((double)f->samples / %lld.0 * f->batch_scale);", write_name(w, op->out[0]),
               w->graph->values.at[op->in[0]].kind == VALUE_CONST ? write_scalar(w, op->in[0])
                                                                  : arena_printf(w->input->arena, "%s[i]", write_name(w, op->in[0])),
               (long long)w->config->batch);
    w->indent--;
    break;
  case OP_ACCURACY: {
    const Value *x = &w->graph->values.at[op->in[0]];
    write_line(w, "%s[0] = (real)((double)K->accuracy(%lld, %lld, %s, %s) * f->inverse_counts[%d]);", write_name(w, op->out[0]),
               (long long)run(w, x, 0, x->rank - 1u), (long long)local(w, x->axes[x->rank - 1]), write_name(w, op->in[0]),
               write_name(w, op->in[1]), normaliser_of(w, op->in[1]));
    break;
  }
  case OP_ALL_REDUCE:
    if (w->memory->root[op->out[0]] == op->out[0])
      write_line(w, "memcpy(%s, %s, %lld * sizeof(real));", write_name(w, op->out[0]), write_name(w, op->in[0]), (long long)n);
    write_line(w, "pd_tp_sum_%s(%s, %lld);", w->suffix, write_name(w, op->out[0]), (long long)n);
    break;
  default: break; /* element-wise: write_fused */
  }
}
