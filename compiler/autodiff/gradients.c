/* The gradient rule of every operation, as operations of the same graph. Reductions over divided axes come out as partial
 * sums and are completed by distribute's builder where needed. */
#include <string.h>

#include "autodiff/autodiff.h"

static const Value *value_of(const Builder *b, Id value) {
  return &b->graph->values.at[value];
}

static const char *gradient_name(Builder *b, Id value) {
  const char *name = value_of(b, value)->name;
  return arena_printf(b->graph->arena, "d_%s", name ? name : "x");
}

/* Appends op(inputs) with one result shaped like `like`. */
static Id emit_like(Builder *b, OpKind kind, Span span, Id like, const char *name, const Id *in, unsigned count) {
  Id op = graph_op(b->graph, kind, span, in, count);
  Value shape = *value_of(b, like);
  Id result = graph_output(b->graph, op, b->segment, name, shape.rank, shape.axes);
  if (op_is_elementwise(kind))
    for (unsigned k = 0; k < count; k++) {
      const Value *v = value_of(b, in[k]);
      b->graph->ops.at[op].offset[k] = v->rank == shape.rank ? 0 : (uint8_t)(shape.rank - v->rank);
    }
  builder_append(b, op);
  return result;
}

static Id emit2(Builder *b, OpKind kind, const Op *of, Id like, const char *name, Id a, Id c) {
  Id in[2] = {a, c};
  return emit_like(b, kind, of->span, like, name, in, 2);
}

/* Sum of g (times `times`, same shape as g, unless NO_ID) down to the shape of input k of element-wise `of`. */
static Id reduce_to_operand(Builder *b, const Op *of, unsigned k, Id g, Id times, const char *name) {
  Value operand = *value_of(b, of->in[k]), out = *value_of(b, g);
  if (operand.rank == out.rank) return times == NO_ID ? g : emit2(b, OP_MUL, of, of->in[k], name, g, times);
  Id in[2] = {g, times};
  Id op = graph_op(b->graph, OP_SUM, of->span, in, times == NO_ID ? 1 : 2);
  Op *sum = &b->graph->ops.at[op];
  for (unsigned i = 0; i < out.rank; i++) sum->label[0][i] = (uint8_t)(i + 1);
  for (unsigned i = 0; i < operand.rank; i++) sum->label[2][i] = (uint8_t)(of->offset[k] + i + 1);
  sum->real[0] = 1;
  Id result = graph_output(b->graph, op, b->segment, name, operand.rank, operand.axes);
  builder_append(b, op);
  return result;
}

/* dz * other, where `other` is input `o` of element-wise `of`, in the shape of the result. */
static Id times_operand(Builder *b, const Op *of, Id dz, OpKind kind, unsigned o, const char *name) {
  Id in[2] = {dz, of->in[o]};
  Id op = graph_op(b->graph, kind, of->span, in, 2);
  b->graph->ops.at[op].offset[1] = of->offset[o];
  Value shape = *value_of(b, dz);
  Id result = graph_output(b->graph, op, b->segment, name, shape.rank, shape.axes);
  builder_append(b, op);
  return result;
}

static bool full_rank(const Builder *b, const Op *of, unsigned k) {
  return value_of(b, of->in[k])->rank == value_of(b, of->out[0])->rank;
}

static void binary_rule(Gradients *g, Builder *b, const Op *op, Id dz) {
  for (unsigned k = 0; k < op->in_count; k++) {
    if (!gradients_wanted(g, op->in[k])) continue;
    const char *name = gradient_name(b, op->in[k]);
    unsigned o = 1 - k;
    Id d = NO_ID;
    switch (op->kind) {
    case OP_ADD: d = reduce_to_operand(b, op, k, dz, NO_ID, name); break;
    case OP_SUB:
      d = reduce_to_operand(b, op, k, dz, NO_ID, name);
      if (k == 1) d = emit_like(b, OP_NEG, op->span, op->in[1], name, &d, 1);
      break;
    case OP_MUL:
      if (!full_rank(b, op, k) && full_rank(b, op, o)) d = reduce_to_operand(b, op, k, dz, op->in[o], name);
      else d = reduce_to_operand(b, op, k, times_operand(b, op, dz, OP_MUL, o, name), NO_ID, name);
      break;
    case OP_DIV: /* z = a / b: da = dz / b, db = -(dz / b) * z */
      d = times_operand(b, op, dz, OP_DIV, 1, name);
      if (k == 0) {
        d = reduce_to_operand(b, op, 0, d, NO_ID, name);
      } else {
        d = reduce_to_operand(b, op, 1, d, op->out[0], name);
        d = emit_like(b, OP_NEG, op->span, op->in[1], name, &d, 1);
      }
      break;
    default: break;
    }
    gradients_give(g, op->in[k], d);
  }
}

static void contract_rule(Gradients *g, Builder *b, const Op *op, Id dz) {
  for (unsigned k = 0; k < op->in_count; k++) {
    if (!gradients_wanted(g, op->in[k])) continue;
    Id in[2] = {dz, op->in[1 - k]};
    Id d = graph_op(b->graph, OP_CONTRACT, op->span, in, op->in_count);
    Op *product = &b->graph->ops.at[d];
    memcpy(product->label[0], op->label[2], MAX_RANK);
    memcpy(product->label[1], op->label[1 - k], MAX_RANK);
    memcpy(product->label[2], op->label[k], MAX_RANK);
    product->real[0] = op->in_count == 1 ? op->real[0] : 0;
    Value shape = *value_of(b, op->in[k]);
    Id result = graph_output(b->graph, d, b->segment, gradient_name(b, op->in[k]), shape.rank, shape.axes);
    builder_append(b, d);
    gradients_give(g, op->in[k], result);
  }
}

/* y = factor * sum(a * c): da = factor * dy broadcast (* c) */
static void sum_rule(Gradients *g, Builder *b, const Op *op, Id dz) {
  for (unsigned k = 0; k < op->in_count; k++) {
    if (!gradients_wanted(g, op->in[k])) continue;
    Id in[2] = {dz, op->in[op->in_count == 2 ? 1 - k : 0]};
    Id d = graph_op(b->graph, OP_CONTRACT, op->span, in, op->in_count);
    Op *product = &b->graph->ops.at[d];
    memcpy(product->label[0], op->label[2], MAX_RANK);
    memcpy(product->label[1], op->label[0], MAX_RANK);
    memcpy(product->label[2], op->label[0], MAX_RANK);
    product->real[0] = op->real[0];
    Value shape = *value_of(b, op->in[k]);
    Id result = graph_output(b->graph, d, b->segment, gradient_name(b, op->in[k]), shape.rank, shape.axes);
    builder_append(b, d);
    gradients_give(g, op->in[k], result);
  }
}

/* One result shaped like input `k`, from the listed values; attributes copied from the operation. */
static void simple_rule(Gradients *g, Builder *b, const Op *op, OpKind kind, unsigned k, const Id *in, unsigned count) {
  if (!gradients_wanted(g, op->in[k])) return;
  Id d = graph_op(b->graph, kind, op->span, in, count);
  Op *grad = &b->graph->ops.at[d];
  memcpy(grad->integer, op->integer, sizeof grad->integer);
  memcpy(grad->real, op->real, sizeof grad->real);
  grad->purpose = op->purpose;
  if (kind == OP_ROPE) grad->integer[0] = -op->integer[0];
  if (kind == OP_PERMUTE)
    for (unsigned i = 0; i < value_of(b, op->in[0])->rank; i++) grad->integer[op->integer[i]] = i;
  Value shape = *value_of(b, op->in[k]);
  Id result = graph_output(b->graph, d, b->segment, gradient_name(b, op->in[k]), shape.rank, shape.axes);
  builder_append(b, d);
  gradients_give(g, op->in[k], result);
}

static void attention_rule(Gradients *g, Builder *b, const Op *op, Id dz) {
  bool wanted = false;
  for (unsigned k = 0; k < 3; k++) wanted |= gradients_wanted(g, op->in[k]);
  if (!wanted) return;
  Id in[6] = {op->in[0], op->in[1], op->in[2], op->out[0], op->out[1], dz};
  Id d = graph_op(b->graph, OP_SDPA_GRAD, op->span, in, 6);
  memcpy(b->graph->ops.at[d].integer, op->integer, sizeof op->integer);
  Id result[3];
  for (unsigned k = 0; k < 3; k++) {
    Value shape = *value_of(b, op->in[k]);
    result[k] = graph_output(b->graph, d, b->segment, gradient_name(b, op->in[k]), shape.rank, shape.axes);
  }
  builder_append(b, d);
  for (unsigned k = 0; k < 3; k++)
    if (gradients_wanted(g, op->in[k])) gradients_give(g, op->in[k], result[k]);
}

static void conv_rule(Gradients *g, Builder *b, const Op *op, Id dz) {
  simple_rule(g, b, op, OP_CONV2D_INPUT_GRAD, 0, (Id[]){op->in[1], dz}, 2);
  simple_rule(g, b, op, OP_CONV2D_FILTER_GRAD, 1, (Id[]){op->in[0], dz}, 2);
}

static void concat_rule(Gradients *g, Builder *b, const Op *op, Id dz) {
  int64_t begin = 0;
  for (unsigned k = 0; k < op->in_count; k++) {
    Value shape = *value_of(b, op->in[k]);
    if (gradients_wanted(g, op->in[k])) {
      Id d = graph_op(b->graph, OP_SLICE, op->span, &dz, 1);
      b->graph->ops.at[d].integer[0] = op->integer[0];
      b->graph->ops.at[d].integer[1] = begin;
      Id result = graph_output(b->graph, d, b->segment, gradient_name(b, op->in[k]), shape.rank, shape.axes);
      builder_append(b, d);
      gradients_give(g, op->in[k], result);
    }
    begin += b->graph->axes.at[shape.axes[op->integer[0]]].size;
  }
}

void gradient_rule(Gradients *g, Builder *b, Id id, const Id *d_out) {
  Op copy = b->graph->ops.at[id], *op = &copy; /* the arrays move while operations are added */
  Id dz = d_out[0];
  Id x = op->in[0], y = op->out[0];
  switch (op->kind) {
  case OP_CONTRACT: contract_rule(g, b, op, dz); break;
  case OP_SUM: sum_rule(g, b, op, dz); break;
  case OP_ADD:
  case OP_SUB:
  case OP_MUL:
  case OP_DIV: binary_rule(g, b, op, dz); break;
  case OP_COPY:
  case OP_ALL_REDUCE: gradients_give(g, x, dz); break;
  case OP_NEG: gradients_give(g, x, emit_like(b, OP_NEG, op->span, x, gradient_name(b, x), &dz, 1)); break;
  case OP_RELU: gradients_give(g, x, emit2(b, OP_RELU_GRAD, op, x, gradient_name(b, x), x, dz)); break;
  case OP_GELU_TANH: gradients_give(g, x, emit2(b, OP_GELU_TANH_GRAD, op, x, gradient_name(b, x), x, dz)); break;
  case OP_GELU_ERF: gradients_give(g, x, emit2(b, OP_GELU_ERF_GRAD, op, x, gradient_name(b, x), x, dz)); break;
  case OP_SILU: gradients_give(g, x, emit2(b, OP_SILU_GRAD, op, x, gradient_name(b, x), x, dz)); break;
  case OP_SIGMOID: gradients_give(g, x, emit2(b, OP_SIGMOID_GRAD, op, x, gradient_name(b, x), y, dz)); break;
  case OP_TANH: gradients_give(g, x, emit2(b, OP_TANH_GRAD, op, x, gradient_name(b, x), y, dz)); break;
  case OP_SQRT: gradients_give(g, x, emit2(b, OP_SQRT_GRAD, op, x, gradient_name(b, x), y, dz)); break;
  case OP_EXP: gradients_give(g, x, emit2(b, OP_MUL, op, x, gradient_name(b, x), y, dz)); break;
  case OP_LOG: gradients_give(g, x, emit2(b, OP_DIV, op, x, gradient_name(b, x), dz, x)); break;
  case OP_LAYERNORM: simple_rule(g, b, op, OP_LAYERNORM_GRAD, 0, (Id[]){y, op->out[1], dz}, 3); break;
  case OP_RMSNORM: simple_rule(g, b, op, OP_RMSNORM_GRAD, 0, (Id[]){y, op->out[1], dz}, 3); break;
  case OP_SOFTMAX: simple_rule(g, b, op, OP_SOFTMAX_GRAD, 0, (Id[]){y, dz}, 2); break;
  case OP_MAX: simple_rule(g, b, op, OP_MAX_GRAD, 0, (Id[]){x, dz}, 2); break;
  case OP_GATHER: simple_rule(g, b, op, OP_GATHER_GRAD, 0, (Id[]){op->in[1], dz}, 2); break;
  case OP_SDPA: attention_rule(g, b, op, dz); break;
  case OP_ROPE:
  case OP_DROPOUT:
  case OP_RESHAPE:
  case OP_SHARE:
  case OP_PERMUTE: simple_rule(g, b, op, op->kind, 0, &dz, 1); break;
  case OP_SLICE: simple_rule(g, b, op, OP_SLICE_GRAD, 0, &dz, 1); break;
  case OP_CONCAT: concat_rule(g, b, op, dz); break;
  case OP_CONV2D: conv_rule(g, b, op, dz); break;
  case OP_MAXPOOL: simple_rule(g, b, op, OP_MAXPOOL_GRAD, 0, (Id[]){x, dz}, 2); break;
  case OP_AVGPOOL: simple_rule(g, b, op, OP_AVGPOOL_GRAD, 0, &dz, 1); break;
  case OP_BATCHNORM: simple_rule(g, b, op, OP_BATCHNORM_GRAD, 0, (Id[]){y, op->out[2], dz}, 3); break;
  case OP_ALL_GATHER: simple_rule(g, b, op, OP_OWN_PART, 0, &dz, 1); break;
  case OP_XENT: simple_rule(g, b, op, OP_XENT_GRAD, 0, (Id[]){x, op->in[1], op->out[1], op->out[2], dz}, 5); break;
  case OP_MSE:
    simple_rule(g, b, op, OP_MSE_GRAD, 0, (Id[]){x, op->in[1], dz}, 3);
    simple_rule(g, b, op, OP_MSE_GRAD, 1, (Id[]){op->in[1], x, dz}, 3);
    break;
  default: /* accuracy, and the gradient operations themselves: no gradient */ break;
  }
}
