/* Which results are partial sums, and where all-reduces go. Assumes a verified graph with forward operations only; the
 * backward pass is built through the same builder. */
#include "distribute/distribute.h"

#include <string.h>

static Value *value_at(Builder *b, Id value) {
  return &b->graph->values.at[value];
}

static bool split(const Builder *b, Id axis) {
  return axis_is_split(b->graph, b->config, axis);
}

static void refuse_split(Builder *b, const Op *op, Id axis, const char *doing) {
  const Axis *a = &b->graph->axes.at[axis];
  Diag *diag = diag_error(b->diagnostics, "E0410", op->span, "cannot %s `%s`, which is split over tp", doing,
                          a->name ? a->name : "an axis");
  diag_note(diag, "`%s` = %lld is divided among %lld tensor-parallel ranks", a->name ? a->name : "the axis",
            (long long)a->size, (long long)b->config->tp);
  diag_help(diag, "remove `%s=tp` from `shard < >`, or split another axis", a->name ? a->name : "axis");
}

static Id completed(Builder *b, Id value) {
  return value < b->complete_count ? b->complete[value] : NO_ID;
}

static void remember(Builder *b, Id value, Id complete) {
  if (value >= b->complete_count) {
    uint32_t count = b->graph->values.count * 2 + 64;
    Id *grown = ARENA_ARRAY(b->graph->arena, Id, count);
    memset(grown, 0xff, sizeof(Id) * count);
    if (b->complete_count) memcpy(grown, b->complete, sizeof(Id) * b->complete_count);
    b->complete = grown;
    b->complete_count = count;
  }
  b->complete[value] = complete;
}

Id builder_complete(Builder *b, Id value) {
  if (!(value_at(b, value)->partial & PARTIAL_TP)) return value;
  Id done = completed(b, value);
  if (done != NO_ID) return done;
  Value v = *value_at(b, value);
  Id op = graph_op(b->graph, OP_ALL_REDUCE, v.span, &value, 1);
  b->graph->ops.at[op].integer[0] = MESH_TP;
  Id result = graph_output(b->graph, op, b->segment, v.name, v.rank, v.axes);
  value_at(b, result)->partial = (uint8_t)(v.partial & ~PARTIAL_TP);
  vec_push(b->graph->arena, b->list, op);
  remember(b, value, result);
  return result;
}

/* Labels of input axes that do not reach the result: summed. */
static uint8_t summed_partial(Builder *b, const Op *op) {
  uint8_t partial = 0;
  const Value *out = value_at(b, op->out[0]);
  for (unsigned k = 0; k < op->in_count && k < 2; k++) {
    const Value *in = value_at(b, op->in[k]);
    for (unsigned i = 0; i < in->rank; i++) {
      bool kept = false;
      for (unsigned j = 0; j < out->rank; j++) kept |= op->label[2][j] == op->label[k == 1 && op->kind == OP_SUM ? 0 : k][i];
      if (kept) continue;
      if (split(b, in->axes[i])) partial |= PARTIAL_TP;
      if (in->axes[i] == b->graph->batch && !b->backward) partial |= PARTIAL_BATCH;
    }
  }
  return partial;
}

/* The value of an input that does not depend on the samples, as this micro-batch's share of it. */
static Id share_of(Builder *b, Id value) {
  Value v = *value_at(b, value);
  Id op = graph_op(b->graph, OP_SHARE, v.span, &value, 1);
  Id result = graph_output(b->graph, op, b->segment, v.name, v.rank, v.axes);
  value_at(b, result)->partial = PARTIAL_BATCH;
  vec_push(b->graph->arena, b->list, op);
  return result;
}

static void refuse_batch(Builder *b, const Op *op) {
  const char *batch = b->graph->axes.at[b->graph->batch].name;
  Diag *diag = diag_error(b->diagnostics, "E0411", op->span, "`%s` needs the finished sum over `%s`", op_name(op->kind),
                          batch ? batch : "the batch");
  diag_note(diag, "the samples of a step are spread over micro-batches and replicas; their sum is only known at the end of "
                  "the step");
  diag_help(diag, "sums over samples may be added, scaled by constants, and used as the loss or a metric");
}

static void append_elementwise(Builder *b, Op *op) {
  bool addition = (op->kind == OP_ADD || op->kind == OP_SUB) && op->in_count == 2;
  bool linear = op->kind == OP_NEG || op->kind == OP_COPY || op->kind == OP_ADD || op->kind == OP_SUB ||
                op->kind == OP_MUL || op->kind == OP_DIV;
  uint8_t partial[2] = {0, 0};
  for (unsigned k = 0; k < op->in_count; k++) {
    Id done = completed(b, op->in[k]);
    if (done != NO_ID) op->in[k] = done;
    partial[k] = value_at(b, op->in[k])->partial;
  }
  bool keep = addition && (partial[0] & PARTIAL_TP) && (partial[1] & PARTIAL_TP) &&
              value_at(b, op->in[0])->rank == value_at(b, op->in[1])->rank;
  keep |= (op->kind == OP_NEG || op->kind == OP_COPY) && (partial[0] & PARTIAL_TP);
  if (!keep)
    for (unsigned k = 0; k < op->in_count; k++) op->in[k] = builder_complete(b, op->in[k]);
  uint8_t batch = b->backward ? 0 : (uint8_t)((partial[0] | partial[1]) & PARTIAL_BATCH);
  if (batch) {
    bool both = op->in_count < 2 || ((partial[0] & partial[1]) & PARTIAL_BATCH);
    if (!linear || (op->kind == OP_MUL && op->in_count == 2 && both) || (op->kind == OP_DIV && (partial[1] & PARTIAL_BATCH))) {
      refuse_batch(b, op);
      return;
    }
    if (addition && !both) {
      unsigned k = partial[0] & PARTIAL_BATCH ? 1 : 0;
      op->in[k] = share_of(b, op->in[k]);
    }
  }
  value_at(b, op->out[0])->partial = (uint8_t)((keep ? PARTIAL_TP : 0) | batch);
}

static void check_row_operation(Builder *b, const Op *op) {
  const Value *x = value_at(b, op->in[0]);
  if (x->rank && split(b, x->axes[x->rank - 1])) refuse_split(b, op, x->axes[x->rank - 1], op_name(op->kind));
}

/* A product over the channels or samples that an image convolution sums: partial where they are divided. */
static uint8_t window_partial(const Builder *b, const Op *op) {
  const Value *first = &b->graph->values.at[op->in[0]];
  unsigned summed = op->kind == OP_CONV2D ? 1 : 0; /* image channels; filters of f; samples of x */
  return split(b, first->axes[summed]) ? PARTIAL_TP : 0;
}

static void check_attention(Builder *b, const Op *op) {
  const Value *q = value_at(b, op->in[0]), *k = value_at(b, op->in[1]);
  for (unsigned i = 1; i < 4; i += 2) {
    if (split(b, q->axes[i])) refuse_split(b, op, q->axes[i], "attend along");
    if (split(b, k->axes[i])) refuse_split(b, op, k->axes[i], "attend along");
  }
  if (split(b, q->axes[2]) != split(b, k->axes[2])) {
    Id axis = split(b, q->axes[2]) ? q->axes[2] : k->axes[2];
    refuse_split(b, op, axis, "attend with only the query or only the key heads split:");
  }
}

/* The variance of one number is 0, and its normal form says nothing. */
static void check_samples(Builder *b, const Op *op) {
  const Value *x = value_at(b, op->in[0]);
  int64_t count = 1;
  for (unsigned i = 0; i < x->rank; i++)
    if (i != 1) count *= axis_local(b->graph, b->config, x->axes[i]);
  if (count > 1) return;
  Diag *diag = diag_error(b->diagnostics, "E0323", op->span, "`batchnorm` has one number per channel in a micro-batch to normalise");
  diag_label(diag, x->span, "%s", axes_text(b->graph, x->rank, x->axes, true));
  diag_note(diag, "statistics are those of a micro-batch on one replica, and microbatch = %lld", (long long)b->config->microbatch);
  diag_help(diag, "set `microbatch=2` or more in `schedule < >`");
}

static void check_position(Builder *b, const Op *op, Id axis, const char *doing) {
  if (split(b, axis)) refuse_split(b, op, axis, doing);
  if (axis == b->graph->batch)
    diag_error(b->diagnostics, "E0412", op->span, "cannot %s the batch axis: samples are spread over micro-batches", doing);
}

/* A reshape keeps divided axes whole: each must come out as the same axis after the same number of elements. */
static void check_reshape(Builder *b, const Op *op) {
  const Value *x = value_at(b, op->in[0]), *y = value_at(b, op->out[0]);
  int64_t before = 1;
  for (unsigned i = 0; i < x->rank; before *= b->graph->axes.at[x->axes[i++]].size) {
    if (!split(b, x->axes[i]) && x->axes[i] != b->graph->batch) continue;
    int64_t other = 1;
    bool kept = false;
    for (unsigned j = 0; j < y->rank; other *= b->graph->axes.at[y->axes[j++]].size)
      kept |= y->axes[j] == x->axes[i] && other == before;
    if (!kept) check_position(b, op, x->axes[i], "reshape");
  }
}

void builder_append(Builder *b, Id id) {
  Op *op = &b->graph->ops.at[id];
  Op copy = *op; /* graph_op may move the array */
  if (op_is_elementwise(copy.kind)) {
    append_elementwise(b, &copy);
  } else if (copy.kind == OP_ALL_REDUCE) {
    diag_error(b->diagnostics, "E0901", copy.span, "an all-reduce cannot be written by hand");
  } else {
    uint8_t batch_in = 0;
    for (unsigned k = 0; k < copy.in_count; k++) {
      copy.in[k] = builder_complete(b, copy.in[k]);
      if (!b->backward) batch_in |= (uint8_t)(value_at(b, copy.in[k])->partial & PARTIAL_BATCH);
    }
    switch (copy.kind) {
    case OP_CONTRACT:
    case OP_SUM:
      value_at(b, copy.out[0])->partial = (uint8_t)(summed_partial(b, &copy) | batch_in);
      break;
    case OP_GATHER: {
      const Value *table = value_at(b, copy.in[0]);
      if (split(b, table->axes[0])) value_at(b, copy.out[0])->partial = PARTIAL_TP;
      break;
    }
    case OP_XENT:
    case OP_MSE:
    case OP_ACCURACY: {
      const Value *x = value_at(b, copy.in[0]);
      for (unsigned i = 1; i < x->rank; i++)
        if (x->axes[i] == b->graph->batch) {
          Diag *diag = diag_error(b->diagnostics, "E0412", copy.span, "`%s` needs the batch axis first", op_name(copy.kind));
          diag_note(diag, "its operand is %s", axes_text(b->graph, x->rank, x->axes, true));
          diag_help(diag, "transpose its operands so that the samples lead");
        }
      bool samples = copy.kind != OP_MSE;
      for (unsigned i = 0; i < x->rank; i++) samples |= x->axes[i] == b->graph->batch;
      value_at(b, copy.out[0])->partial = samples ? PARTIAL_BATCH : 0;
      for (unsigned i = 0; i < x->rank; i++) {
        bool class_axis = copy.kind == OP_XENT && i + 1 == x->rank;
        if (split(b, x->axes[i]) && !class_axis) {
          if (copy.kind == OP_MSE) value_at(b, copy.out[0])->partial |= PARTIAL_TP;
          else refuse_split(b, &copy, x->axes[i], copy.kind == OP_XENT ? "take the cross-entropy along" : "take the accuracy over");
        }
      }
      break;
    }
    case OP_CONV2D:
    case OP_CONV2D_INPUT_GRAD:
    case OP_CONV2D_FILTER_GRAD: value_at(b, copy.out[0])->partial = window_partial(b, &copy); break;
    case OP_BATCHNORM: check_samples(b, &copy); break;
    case OP_LAYERNORM:
    case OP_RMSNORM:
    case OP_SOFTMAX: check_row_operation(b, &copy); break;
    case OP_MAX:
      for (unsigned i = value_at(b, copy.out[0])->rank; i < value_at(b, copy.in[0])->rank; i++)
        if (split(b, value_at(b, copy.in[0])->axes[i])) refuse_split(b, &copy, value_at(b, copy.in[0])->axes[i], op_name(copy.kind));
      break;
    case OP_SDPA: check_attention(b, &copy); break;
    case OP_ROPE: {
      const Value *x = value_at(b, copy.in[0]);
      for (unsigned i = 1; i < x->rank; i += 2)
        if (split(b, x->axes[i])) refuse_split(b, &copy, x->axes[i], "rotate along");
      break;
    }
    case OP_SLICE:
    case OP_CONCAT: check_position(b, &copy, value_at(b, copy.in[0])->axes[copy.integer[0]], op_name(copy.kind)); break;
    case OP_RESHAPE: check_reshape(b, &copy); break;
    default: break;
    }
    if (batch_in && copy.kind != OP_CONTRACT && copy.kind != OP_SUM && copy.kind != OP_RESHAPE && copy.kind != OP_PERMUTE)
      refuse_batch(b, &copy);
  }
  b->graph->ops.at[id] = copy;
  vec_push(b->graph->arena, b->list, id);
}

/* A product with a permuted operand reads the operand itself, with permuted labels. */
static void fold_permutes(Graph *graph, Op *op) {
  for (unsigned k = 0; k < op->in_count && k < 2; k++) {
    const Value *in = &graph->values.at[op->in[k]];
    if (in->kind != VALUE_OP || graph->ops.at[in->source].kind != OP_PERMUTE) continue;
    const Op *permute = &graph->ops.at[in->source];
    uint8_t label[MAX_RANK] = {0};
    for (unsigned i = 0; i < in->rank; i++) label[permute->integer[i]] = op->label[k][i];
    memcpy(op->label[k], label, sizeof label);
    op->in[k] = permute->in[0];
  }
}

/* Drops operations none of whose results is used. */
static void drop_unused(Graph *graph, Segment *segment, Id segment_id) {
  bool *used = ARENA_ARRAY(graph->arena, bool, graph->values.count);
  for (uint32_t k = 0; k < segment->outs.count; k++) used[segment->outs.at[k].value] = true;
  if (graph->values.at[graph->loss].segment == segment_id) used[graph->loss] = true;
  for (uint32_t k = 0; k < graph->metrics.count; k++) used[graph->metrics.at[k].value] = true;
  uint32_t kept = segment->forward.count;
  for (uint32_t i = segment->forward.count; i-- > 0;) {
    const Op *op = &graph->ops.at[segment->forward.at[i]];
    bool needed = false;
    for (unsigned k = 0; k < op->out_count; k++) needed |= used[op->out[k]];
    if (!needed) continue;
    for (unsigned k = 0; k < op->in_count; k++) used[op->in[k]] = true;
    segment->forward.at[--kept] = segment->forward.at[i];
  }
  memmove(segment->forward.at, segment->forward.at + kept, sizeof(Id) * (segment->forward.count - kept));
  segment->forward.count -= kept;
}

bool distribute_run(Graph *graph, const Config *config, Diagnostics *diagnostics) {
  unsigned before = diag_errors(diagnostics);
  uint8_t *wire_partial = ARENA_ARRAY(graph->arena, uint8_t, graph->wires.count + 1);
  for (uint32_t s = 0; s < graph->segments.count; s++) {
    Segment *segment = &graph->segments.at[s];
    for (uint32_t i = 0; i < segment->forward.count; i++) {
      Op *op = &graph->ops.at[segment->forward.at[i]];
      if (op->kind == OP_CONTRACT) fold_permutes(graph, op);
    }
    drop_unused(graph, segment, s);
    for (uint32_t k = 0; k < segment->ins.count; k++)
      graph->values.at[segment->ins.at[k].value].partial = wire_partial[segment->ins.at[k].wire];
    IdVec rebuilt = {0};
    Builder builder = {graph, config, diagnostics, s, false, &rebuilt, NULL, 0};
    for (uint32_t i = 0; i < segment->forward.count && !diag_full(diagnostics); i++)
      builder_append(&builder, segment->forward.at[i]);
    for (uint32_t k = 0; k < segment->outs.count; k++) {
      WireOut *out = &segment->outs.at[k];
      out->value = builder_complete(&builder, out->value);
      wire_partial[out->wire] = graph->values.at[out->value].partial; /* a loss term that a later statement adds */
    }
    if (graph->values.at[graph->loss].segment == s) {
      graph->loss = builder_complete(&builder, graph->loss);
      if (!(graph->values.at[graph->loss].partial & PARTIAL_BATCH)) graph->loss = share_of(&builder, graph->loss);
    }
    for (uint32_t k = 0; k < graph->metrics.count; k++) {
      Id *metric = &graph->metrics.at[k].value;
      if (graph->values.at[*metric].segment != s) continue;
      *metric = builder_complete(&builder, *metric);
      if (!(graph->values.at[*metric].partial & PARTIAL_BATCH)) *metric = share_of(&builder, *metric);
    }
    segment->forward = rebuilt;
  }
  return diag_errors(diagnostics) == before;
}
