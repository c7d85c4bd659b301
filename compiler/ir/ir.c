/* Building blocks of the typed program: operations, their results, constants, and the two questions every pass asks
 * about axes: do they match, and how are they written for a person. Knows nothing about the language. */
#include "ir/ir.h"

#include <string.h>

const char *mesh_name(Mesh mesh) {
  switch (mesh) {
  case MESH_DP:
    return "dp";
  case MESH_TP:
    return "tp";
  case MESH_CP:
    return "cp";
  case MESH_EP:
    return "ep";
  case MESH_NONE:
    break;
  }
  return "none";
}

const char *op_name(OpKind kind) {
  static const char *const names[] = {
#define OP(kind, name, what) name,
#include "ir/ops.def"
  };
  return (unsigned)kind < OP_COUNT ? names[kind] : "?";
}

bool axes_are_single(const Graph *graph, unsigned rank, const Id *axes) {
  for (unsigned k = 0; k < rank; k++)
    if (graph->axes.at[axes[k]].size != 1) return false;
  return true;
}

bool value_is_wide(const Graph *graph, Id value) {
  const Value *v = &graph->values.at[value];
  if (v->kind == VALUE_CONST) return true;
  if (v->kind == VALUE_PARAM || v->kind == VALUE_DATA) return false;
  if (axes_are_single(graph, v->rank, v->axes)) return true;
  if (v->kind != VALUE_OP) return false;
  const Op *op = &graph->ops.at[v->source];
  switch (op->kind) {
  case OP_LAYERNORM:
  case OP_RMSNORM:
  case OP_SDPA:
  case OP_BATCHNORM:
  case OP_XENT: return v->output > 0;
  case OP_MUL: { /* a variance that autodiff scales */
    const Value *of = &graph->values.at[op->in[0]];
    return of->kind == VALUE_OP && of->output > 0 && graph->ops.at[of->source].kind == OP_BATCHNORM;
  }
  default: return false;
  }
}

bool op_is_elementwise(OpKind kind) {
  static const bool elementwise[] = {
#define OP(kind, name, what) false,
#define EW(kind, name, operands, expression) true,
#include "ir/ops.def"
  };
  return (unsigned)kind < OP_COUNT && elementwise[kind];
}

Id graph_op(Graph *graph, OpKind kind, Span span, const Id *inputs, unsigned count) {
  Op op = {.kind = kind, .span = span, .in_count = (uint8_t)count, .accumulate = NO_ID};
  for (unsigned i = 0; i < MAX_INPUTS; i++) op.in[i] = i < count ? inputs[i] : NO_ID;
  for (unsigned i = 0; i < MAX_OUTPUTS; i++) op.out[i] = NO_ID;
  vec_push(graph->arena, &graph->ops, op);
  return graph->ops.count - 1;
}

Id graph_output(Graph *graph, Id op, Id segment, const char *name, unsigned rank, const Id *axes) {
  Op *made_by = &graph->ops.at[op];
  Value value = {.kind = VALUE_OP,
                 .dtype = DT_REAL,
                 .name = name ? name : op_name(made_by->kind),
                 .span = made_by->span,
                 .rank = (uint8_t)rank,
                 .source = op,
                 .output = made_by->out_count,
                 .segment = segment};
  if (rank) memcpy(value.axes, axes, rank * sizeof *axes);
  vec_push(graph->arena, &graph->values, value);
  made_by->out[made_by->out_count++] = graph->values.count - 1;
  return graph->values.count - 1;
}

Id graph_const(Graph *graph, double number) {
  Value value = {.kind = VALUE_CONST,
                 .dtype = DT_REAL,
                 .name = "number",
                 .span = NO_SPAN,
                 .source = NO_ID,
                 .number = number,
                 .segment = NO_ID};
  vec_push(graph->arena, &graph->values, value);
  return graph->values.count - 1;
}

bool axes_match(const Graph *graph, Id a, Id b) {
  if (a == b) return true;
  const Axis *x = &graph->axes.at[a], *y = &graph->axes.at[b];
  if (x->open || y->open) return !(x->open && y->open && x->name && y->name);
  return (!x->name || !y->name) && x->size == y->size;
}

const char *axes_text(const Graph *graph, unsigned rank, const Id *axes, bool sizes) {
  Text text = {.arena = graph->arena};
  text_put(&text, "[", 1);
  for (unsigned i = 0; i < rank; i++) {
    const Axis *axis = &graph->axes.at[axes[i]];
    if (i) text_put(&text, ", ", 2);
    if (axis->open)
      text_printf(&text, "%s", axis->name ? axis->name : "?");
    else if (!axis->name)
      text_printf(&text, "%lld", (long long)axis->size);
    else if (sizes)
      text_printf(&text, "%s = %lld", axis->name, (long long)axis->size);
    else
      text_printf(&text, "%s", axis->name);
  }
  text_put(&text, "]", 1);
  return text.at;
}
