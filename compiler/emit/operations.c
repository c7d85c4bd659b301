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

/* `f->inverse_counts[n]`, or where it lies for a kernel to read. */
static const char *inverse_count(Writer *w, Id targets) {
  return arena_printf(w->input->arena, w->cuda ? "f->inverse_counts + %d" : "f->inverse_counts[%d]", normaliser_of(w, targets));
}

/* CUDA: the gradient of a loss times what arrives for the loss: a number, or where it lies. */
static void call_loss_gradient(Call *call, double factor, const char *factor_text, Id scalar) {
  const Value *v = &call->w->graph->values.at[scalar];
  bool number = v->kind == VALUE_CONST;
  if (factor_text) call_argument(call, "float", factor_text);
  else call_real(call, number ? factor * v->number : factor);
  call_argument(call, "const float *", number ? "NULL" : write_name(call->w, scalar));
}

static void write_xent_gradient(Writer *w, const Op *op, int64_t rows, int64_t classes, const char *first) {
  const char *inverse = inverse_count(w, op->in[1]);
  Call call = call_begin(w, "xent_grad");
  call_type(&call, write_type(w, op->in[0]));
  call_size(&call, rows);
  call_size(&call, classes);
  call_argument(&call, "int64_t", first);
  if (w->cuda) {
    call_argument(&call, "const double *", inverse);
    call_loss_gradient(&call, 1, NULL, op->in[4]);
  } else {
    call_argument(&call, "real", arena_printf(w->input->arena, "(real)%s%s", inverse, times_scalar(w, op->in[4])));
  }
  for (unsigned k = 0; k < 4; k++) call_in(&call, op->in[k]);
  call_out(&call, op->out[0]);
  call_end(&call);
}

static void write_tensor_reduction(Writer *w, const char *what, Id value, int64_t n) {
  const char *name = write_name(w, value);
  if (w->cuda) write_line(w, "pd_tensor_%s(f, %s, %lld, sizeof(%s));", what, name, (long long)n, write_type(w, value));
  else write_line(w, "pd_tp_%s_%s(%s, %lld);", what, w->suffix, name, (long long)n);
}

static void write_xent_loss(Writer *w, const Op *op, int64_t rows) {
  const char *inverse = inverse_count(w, op->in[1]);
  if (!w->cuda) {
    write_line(w, "%s[0] = (real)(K->xent_loss(%lld, %s, %s) * %s);", write_name(w, op->out[0]), (long long)rows,
               write_name(w, op->in[1]), write_name(w, op->out[2]), inverse);
    return;
  }
  Call loss = call_begin(w, "xent_loss");
  call_size(&loss, rows);
  call_in(&loss, op->in[1]);
  call_in(&loss, op->out[2]);
  call_argument(&loss, "const double *", inverse);
  call_out(&loss, op->out[0]);
  call_end(&loss);
}

static void write_xent(Writer *w, const Op *op, bool gradient) {
  const Value *x = &w->graph->values.at[op->in[0]];
  int64_t classes = local(w, x->axes[x->rank - 1]), rows = run(w, x, 0, x->rank - 1u);
  bool split = axis_is_split(w->graph, w->config, x->axes[x->rank - 1]);
  const char *first = first_position(w, x->axes[x->rank - 1]);
  if (gradient) {
    write_xent_gradient(w, op, rows, classes, first);
    return;
  }
  if (w->cuda && !split) {
    Call both = call_begin(w, "xent");
    call_type(&both, write_type(w, op->in[0]));
    call_size(&both, rows);
    call_size(&both, classes);
    call_in(&both, op->in[0]);
    call_in(&both, op->in[1]);
    call_out(&both, op->out[1]);
    call_out(&both, op->out[2]);
    call_end(&both);
    write_xent_loss(w, op, rows);
    return;
  }
  Call max = call_begin(w, "xent_max");
  call_type(&max, write_type(w, op->in[0]));
  call_size(&max, rows);
  call_size(&max, classes);
  call_in(&max, op->in[0]);
  call_out(&max, op->out[1]);
  call_end(&max);
  if (split) write_tensor_reduction(w, "max", op->out[1], rows);
  Call sums = call_begin(w, "xent_sums");
  call_type(&sums, write_type(w, op->in[0]));
  call_size(&sums, rows);
  call_size(&sums, classes);
  call_argument(&sums, "int64_t", first);
  call_in(&sums, op->in[0]);
  call_in(&sums, op->in[1]);
  call_in(&sums, op->out[1]);
  call_out(&sums, op->out[2]);
  call_end(&sums);
  if (split) write_tensor_reduction(w, "sum", op->out[2], 2 * rows);
  write_xent_loss(w, op, rows);
}

static void write_mse_gradient(Writer *w, const Op *op, int64_t n, int64_t count) {
  Call call = call_begin(w, "mse_grad");
  call_type(&call, write_type(w, op->in[0]));
  call_size(&call, n);
  if (w->cuda) call_loss_gradient(&call, 1 / (double)count, NULL, op->in[2]);
  else call_argument(&call, "real", arena_printf(w->input->arena, "(real)(1 / %lld.0)%s", (long long)count, times_scalar(w, op->in[2])));
  call_in(&call, op->in[0]);
  call_in(&call, op->in[1]);
  call_out(&call, op->out[0]);
  call_end(&call);
}

static void write_mse(Writer *w, const Op *op, bool gradient) {
  const Value *x = &w->graph->values.at[op->in[0]];
  bool samples = x->rank && x->axes[0] == w->graph->batch;
  int64_t count = 1; /* of the whole step, over all ranks */
  for (unsigned i = 0; i < x->rank; i++) count *= w->graph->axes.at[x->axes[i]].size;
  int64_t n = run(w, x, 0, x->rank);
  if (gradient) {
    write_mse_gradient(w, op, n, count);
    return;
  }
  Arena *arena = w->input->arena;
  const char *size = samples ? arena_printf(arena, "f->samples * %lld", (long long)run(w, x, 1, x->rank))
                             : arena_printf(arena, "%lld", (long long)n);
  const char *scale = samples ? " * f->batch_scale" : "";
  if (!w->cuda) {
    write_line(w, "%s[0] = (real)(K->mse(%s, %s, %s) / %lld.0%s);", write_name(w, op->out[0]), size, write_name(w, op->in[0]),
               write_name(w, op->in[1]), (long long)count, scale);
    return;
  }
  Call call = call_begin(w, "mse");
  call_type(&call, write_type(w, op->in[0]));
  call_argument(&call, "int64_t", size);
  call_argument(&call, "double", arena_printf(arena, "1 / %lld.0%s", (long long)count, scale));
  call_in(&call, op->in[0]);
  call_in(&call, op->in[1]);
  call_out(&call, op->out[0]);
  call_end(&call);
}

static void write_accuracy(Writer *w, const Op *op) {
  const Value *x = &w->graph->values.at[op->in[0]];
  int64_t rows = run(w, x, 0, x->rank - 1u), classes = local(w, x->axes[x->rank - 1]);
  const char *inverse = inverse_count(w, op->in[1]);
  if (!w->cuda) {
    write_line(w, "%s[0] = (real)((double)K->accuracy(%lld, %lld, %s, %s) * %s);", write_name(w, op->out[0]), (long long)rows,
               (long long)classes, write_name(w, op->in[0]), write_name(w, op->in[1]), inverse);
    return;
  }
  Call call = call_begin(w, "accuracy");
  call_type(&call, write_type(w, op->in[0]));
  call_size(&call, rows);
  call_size(&call, classes);
  call_in(&call, op->in[0]);
  call_in(&call, op->in[1]);
  call_argument(&call, "const double *", inverse);
  call_out(&call, op->out[0]);
  call_end(&call);
}

static void write_rope(Writer *w, const Op *op) {
  const Value *x = &w->graph->values.at[op->in[0]];
  Call call = call_begin(w, "rope");
  call_type(&call, write_type(w, op->in[0]));
  for (unsigned k = 0; k < 3; k++) call_size(&call, local(w, x->axes[k]));
  call_width(&call, local(w, x->axes[3]));
  call_argument(&call, "double", arena_printf(w->input->arena, "%.17g", op->real[0]));
  call_argument(&call, "int", arena_printf(w->input->arena, "%d", (int)op->integer[0]));
  call_in(&call, op->in[0]);
  call_out(&call, op->out[0]);
  call_end(&call);
}

static void write_rows(Writer *w, const Op *op) {
  const Value *x = &w->graph->values.at[op->in[0]];
  Call call = call_begin(w, op_name(op->kind));
  call_type(&call, write_type(w, op->in[0]));
  bool largest = op->kind == OP_MAX || op->kind == OP_MAX_GRAD;
  unsigned row = largest ? (unsigned)op->integer[0] : 1; /* axes of a row */
  if (largest) call_type(&call, write_type(w, op->kind == OP_MAX ? op->out[0] : op->in[1]));
  call_size(&call, run(w, x, 0, x->rank - row));
  call_width(&call, run(w, x, x->rank - row, x->rank));
  if (op->kind == OP_LAYERNORM || op->kind == OP_RMSNORM) call_real(&call, op->real[0]);
  for (unsigned k = 0; k < op->in_count; k++) call_in(&call, op->in[k]);
  for (unsigned k = 0; k < op->out_count; k++) call_out(&call, op->out[k]);
  call_end(&call);
}

static void write_gather(Writer *w, const Op *op) {
  const Value *table = &w->graph->values.at[op->in[0]];
  Call call = call_begin(w, "gather");
  call_type(&call, write_type(w, op->in[0]));
  call_size(&call, write_elements(w, op->in[1]));
  call_argument(&call, "int64_t", first_position(w, table->axes[0]));
  call_size(&call, local(w, table->axes[0]));
  call_width(&call, run(w, table, 1, table->rank));
  call_in(&call, op->in[1]);
  call_in(&call, op->in[0]);
  call_out(&call, op->out[0]);
  call_end(&call);
}

void write_zeros(Writer *w, Id value) {
  Call call = call_begin(w, "fill");
  call_type(&call, write_type(w, value));
  call_size(&call, write_elements(w, value));
  call_argument(&call, "float", "0");
  call_out(&call, value);
  call_end(&call);
}

static void write_gather_grad(Writer *w, const Op *op) {
  const Value *table = &w->graph->values.at[op->out[0]];
  if (op->accumulate == NO_ID) write_zeros(w, op->out[0]);
  Call call = call_begin(w, "gather_grad");
  call_type(&call, write_type(w, op->in[1]));
  call_type(&call, write_target_type(w, op));
  call_size(&call, write_elements(w, op->in[0]));
  call_argument(&call, "int64_t", first_position(w, table->axes[0]));
  call_size(&call, local(w, table->axes[0]));
  call_width(&call, run(w, table, 1, table->rank));
  call_in(&call, op->in[0]);
  call_in(&call, op->in[1]);
  call_target(&call, op);
  call_end(&call);
}

/* Packed strides of a value's local shape. */
static void strides_of(const Writer *w, const Value *value, int64_t *stride) {
  int64_t step = 1;
  for (unsigned i = value->rank; i-- > 0;) {
    stride[i] = step;
    step *= local(w, value->axes[i]);
  }
}

static void write_strided_copy(Writer *w, const char *view, Id typed, const char *from, const char *to) {
  const char *type = write_type(w, typed);
  Call call = call_begin(w, "copy");
  call_type(&call, type);
  call_argument(&call, "const pd_view *", arena_printf(w->input->arena, "&%s", view));
  call_argument(&call, arena_printf(w->input->arena, "const %s *", type), from);
  call_flag(&call, false);
  call_argument(&call, arena_printf(w->input->arena, "%s *", type), to);
  call_end(&call);
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
  write_strided_copy(w, view, part_id, to_part ? whole_name : part_name, to_part ? part_name : whole_name);
}

/* The own positions of an axis, of those of all ranks: op->in[0] has them beside each other. */
static void write_own_part(Writer *w, const Op *op) {
  const Value *part = &w->graph->values.at[op->out[0]], *whole = &w->graph->values.at[op->in[0]];
  unsigned axis = (unsigned)op->integer[0];
  int64_t outer = run(w, part, 0, axis), own = run(w, part, axis, part->rank), all = run(w, whole, axis, whole->rank);
  const ViewAxis axes[2] = {{outer, own, all, 0, false}, {own, 1, 1, 0, false}};
  const char *view = write_view(w, axes, 2);
  const char *from = arena_printf(w->input->arena, "%s + f->tp_rank * %lld", write_name(w, op->in[0]), (long long)own);
  write_strided_copy(w, view, op->out[0], from, write_name(w, op->out[0]));
}

/* CUDA: ranks' parts arrive one after the other, and go beside each other. */
static void write_all_gather(Writer *w, const Op *op) {
  const Value *x = &w->graph->values.at[op->in[0]];
  unsigned axis = (unsigned)op->integer[0];
  int64_t outer = run(w, x, 0, axis), n = run(w, x, axis, x->rank), ranks = w->config->tp;
  const char *from = write_name(w, op->in[0]), *to = write_name(w, op->out[0]);
  if (!w->cuda) {
    write_line(w, "pd_tp_gather_%s(%lld, %lld, %s, %s);", w->suffix, (long long)outer, (long long)n, from, to);
    return;
  }
  bool apart = outer > 1;
  write_line(w, "pd_tensor_gather(f, %s, %lld, sizeof(%s), %s);", from, (long long)(outer * n), write_type(w, op->in[0]), apart ? "f->space" : to);
  if (!apart) return;
  const ViewAxis axes[3] = {{outer, ranks * n, n, 0, false}, {ranks, n, outer * n, 0, false}, {n, 1, 1, 0, false}};
  write_strided_copy(w, write_view(w, axes, 3), op->out[0], "f->space", to);
}

static void write_permute(Writer *w, const Op *op) {
  const Value *x = &w->graph->values.at[op->in[0]], *y = &w->graph->values.at[op->out[0]];
  int64_t from[MAX_RANK], to[MAX_RANK];
  strides_of(w, x, from);
  strides_of(w, y, to);
  ViewAxis axes[MAX_RANK];
  for (unsigned i = 0; i < y->rank; i++) axes[i] = (ViewAxis){local(w, y->axes[i]), to[i], from[op->integer[i]], 0, false};
  const char *view = write_view(w, axes, y->rank);
  write_strided_copy(w, view, op->in[0], write_name(w, op->in[0]), write_name(w, op->out[0]));
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
  Call call = call_begin(w, "dropout");
  call_type(&call, write_type(w, op->in[0]));
  call_argument(&call, "pd_key", "key");
  call_argument(&call, w->cuda ? "const uint64_t *" : "uint64_t", w->cuda ? "&f->values->step" : "f->step");
  call_argument(&call, "int64_t", "f->sample0");
  call_size(&call, samples);
  call_size(&call, n);
  call_argument(&call, "const pd_local *", "&at");
  call_argument(&call, "double", write_number(w, op->real[0]));
  call_in(&call, op->in[0]);
  call_out(&call, op->out[0]);
  call_end(&call);
  write_line(w, "} else {");
  write_copy(w, out, in, op->in[0]);
  write_line(w, "}");
}

/* Into a gradient: other copies are fused loops. */
static void write_add(Writer *w, const Op *op) {
  Call call = call_begin(w, "add");
  call_type(&call, write_type(w, op->in[0]));
  call_type(&call, write_target_type(w, op));
  call_size(&call, write_elements(w, op->out[0]));
  call_in(&call, op->in[0]);
  call_target(&call, op);
  call_end(&call);
}

static void write_share(Writer *w, const Op *op) {
  int64_t n = write_elements(w, op->out[0]);
  if (!w->cuda) {
    write_line(w, "for (int64_t i = 0; i < %lld; i++)", (long long)n);
    w->indent++;
    write_line(w, "%s[i] = %s * (real)((double)f->samples / %lld.0 * f->batch_scale);", write_name(w, op->out[0]),
               w->graph->values.at[op->in[0]].kind == VALUE_CONST ? write_scalar(w, op->in[0])
                                                                  : arena_printf(w->input->arena, "%s[i]", write_name(w, op->in[0])),
               (long long)w->config->batch);
    w->indent--;
    return;
  }
  Call call = call_begin(w, "scale");
  call_type(&call, write_type(w, op->in[0]));
  call_type(&call, write_type(w, op->out[0]));
  call_size(&call, n);
  call_argument(&call, "float", arena_printf(w->input->arena, "(float)((double)f->samples / %lld.0 * f->batch_scale)",
                                             (long long)w->config->batch));
  call_in(&call, op->in[0]);
  call_out(&call, op->out[0]);
  call_end(&call);
}

void write_operation(Writer *w, Id id) {
  const Op *op = &w->graph->ops.at[id];
  int64_t n = write_elements(w, op->out[0]);
  switch (op->kind) {
  case OP_CONTRACT: write_product(w, op); break;
  case OP_SUM: write_sum(w, op); break;
  case OP_COPY: write_add(w, op); break;
  case OP_LAYERNORM:
  case OP_LAYERNORM_GRAD:
  case OP_RMSNORM:
  case OP_RMSNORM_GRAD:
  case OP_SOFTMAX:
  case OP_SOFTMAX_GRAD:
  case OP_MAX:
  case OP_MAX_GRAD: write_rows(w, op); break;
  case OP_GATHER: write_gather(w, op); break;
  case OP_GATHER_GRAD: write_gather_grad(w, op); break;
  case OP_SDPA:
  case OP_SDPA_GRAD: write_attention(w, op); break;
  case OP_ROPE: write_rope(w, op); break;
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
  case OP_ALL_GATHER: write_all_gather(w, op); break;
  case OP_OWN_PART: write_own_part(w, op); break;
  case OP_SLICE: write_box(w, op->out[0], op->in[0], op->integer[0], op->integer[1], true); break;
  case OP_SLICE_GRAD:
    write_zeros(w, op->out[0]);
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
  case OP_SHARE: write_share(w, op); break; /* rank 0, or the gradient that arrives at one */
  case OP_ACCURACY: write_accuracy(w, op); break;
  case OP_ALL_REDUCE:
    if (w->memory->root[op->out[0]] == op->out[0]) write_copy(w, write_name(w, op->out[0]), write_name(w, op->in[0]), op->in[0]);
    write_tensor_reduction(w, "sum", op->out[0], n);
    break;
  default: break; /* element-wise: write_fused */
  }
}
