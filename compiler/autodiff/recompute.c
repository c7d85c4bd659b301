/* `recompute=selective`: results that cost little to compute are not kept for the backward pass but computed there
 * again, by copies of their operations in I and in W, each before its first reader. They are those whose operands are
 * at hand anyway: what enters the segment, parameters, results that are kept, or results computed again in their turn.
 * So every copy saves memory, and none of them communicates. Assumes autodiff_run is done and nothing has a home yet.
 */
#include <string.h>

#include "autodiff/autodiff.h"

typedef struct Again {
  Graph *graph;
  Segment *segment;
  uint32_t count; /* values before any copy */
  bool *at_hand;  /* per value: the backward pass can have it */
  bool *again;    /* … by computing it again */
  Id *copy;       /* per value: its copy in the list that is being rewritten */
  IdVec list;
} Again;

/* Moves numbers, or computes each from few: far less work than a product. */
static bool is_cheap(OpKind kind) {
  switch (kind) {
  case OP_LAYERNORM:
  case OP_RMSNORM:
  case OP_SOFTMAX:
  case OP_ROPE:
  case OP_DROPOUT:
  case OP_PERMUTE:
  case OP_RESHAPE:
  case OP_SLICE:
  case OP_CONCAT:
    return true;
  default:
    return op_is_elementwise(kind);
  }
}

static void choose(Again *a) {
  const Graph *graph = a->graph;
  const Segment *segment = a->segment;
  bool *kept = ARENA_ARRAY(graph->arena, bool, a->count); /* read by the backward pass, or on a wire */
  const IdVec *backward[2] = {&segment->input_grad, &segment->weight_grad};
  for (unsigned l = 0; l < 2; l++)
    for (uint32_t i = 0; i < backward[l]->count; i++) {
      const Op *op = &graph->ops.at[backward[l]->at[i]];
      for (unsigned k = 0; k < op->in_count; k++) kept[op->in[k]] = true;
    }
  bool *leaves = ARENA_ARRAY(graph->arena, bool, a->count);
  for (uint32_t k = 0; k < segment->outs.count; k++) leaves[segment->outs.at[k].value] = true;
  for (uint32_t k = 0; k < segment->ins.count; k++)
    if (segment->grads_out[k] != NO_ID) leaves[segment->grads_out[k]] = true;
  for (uint32_t v = 0; v < a->count; v++) a->at_hand[v] = graph->values.at[v].kind != VALUE_OP || leaves[v];
  for (uint32_t i = 0; i < segment->forward.count; i++) {
    const Op *op = &graph->ops.at[segment->forward.at[i]];
    bool cheap = is_cheap(op->kind);
    for (unsigned k = 0; k < op->in_count; k++) cheap &= a->at_hand[op->in[k]];
    for (unsigned k = 0; k < op->out_count; k++) {
      a->again[op->out[k]] = cheap && !leaves[op->out[k]];
      a->at_hand[op->out[k]] |= cheap || kept[op->out[k]];
    }
  }
}

/* The value as the list being written may read it: itself, or its copy, made now if there is none. */
static Id have(Again *a, Id value) {
  Graph *graph = a->graph;
  if (value >= a->count || !a->again[value]) return value;
  if (a->copy[value] != NO_ID) return a->copy[value];
  Op op = graph->ops.at[graph->values.at[value].source]; /* the arrays move */
  Id in[MAX_INPUTS];
  for (unsigned k = 0; k < op.in_count; k++) in[k] = have(a, op.in[k]);
  Id id = graph_op(graph, op.kind, op.span, in, op.in_count);
  Op *made = &graph->ops.at[id];
  memcpy(made->label, op.label, sizeof made->label);
  memcpy(made->offset, op.offset, sizeof made->offset);
  memcpy(made->integer, op.integer, sizeof made->integer);
  memcpy(made->real, op.real, sizeof made->real);
  made->purpose = op.purpose;
  for (unsigned k = 0; k < op.out_count; k++) {
    Value shape = graph->values.at[op.out[k]];
    Id result = graph_output(graph, id, shape.segment, shape.name, shape.rank, shape.axes);
    graph->values.at[result].partial = shape.partial;
    if (op.out[k] < a->count) a->copy[op.out[k]] = result;
  }
  vec_push(graph->arena, &a->list, id);
  return a->copy[value];
}

static void rewrite(Again *a, IdVec *list) {
  Graph *graph = a->graph;
  memset(a->copy, 0xff, sizeof(Id) * a->count);
  a->list = (IdVec){0};
  for (uint32_t i = 0; i < list->count; i++) {
    Id id = list->at[i];
    for (unsigned k = 0; k < graph->ops.at[id].in_count; k++) {
      Id in = have(a, graph->ops.at[id].in[k]);
      graph->ops.at[id].in[k] = in;
    }
    vec_push(graph->arena, &a->list, id);
  }
  *list = a->list;
}

void recompute_selectively(Graph *graph) {
  for (uint32_t s = 0; s < graph->segments.count; s++) {
    Again a = {.graph = graph, .segment = &graph->segments.at[s], .count = graph->values.count};
    a.at_hand = ARENA_ARRAY(graph->arena, bool, a.count);
    a.again = ARENA_ARRAY(graph->arena, bool, a.count);
    a.copy = ARENA_ARRAY(graph->arena, Id, a.count);
    choose(&a);
    rewrite(&a, &a.segment->input_grad);
    rewrite(&a, &a.segment->weight_grad);
  }
}
