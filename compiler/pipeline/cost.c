/* FLOP counts from shapes. Assumes the three lists of every segment are final. */
#include "pipeline/cost.h"

#include <string.h>

static int64_t elements_per_sample(const Graph *graph, Id value) {
  const Value *v = &graph->values.at[value];
  int64_t n = 1;
  for (unsigned i = 0; i < v->rank; i++)
    if (v->axes[i] != graph->batch) n *= graph->axes.at[v->axes[i]].size;
  return n;
}

/* Product of the sizes of all labels, the batch left out. */
static int64_t contraction(const Graph *graph, const Op *op) {
  bool seen[256] = {false};
  int64_t n = 1;
  for (unsigned t = 0; t < 3; t++) {
    if (t < 2 && t >= op->in_count) continue;
    const Value *v = &graph->values.at[t == 2 ? op->out[0] : op->in[t]];
    for (unsigned i = 0; i < v->rank; i++) {
      uint8_t label = op->label[t][i];
      if (seen[label]) continue;
      seen[label] = true;
      if (v->axes[i] != graph->batch) n *= graph->axes.at[v->axes[i]].size;
    }
  }
  return n;
}

/* Every place of the result is a product with one filter: [out, in, height, width]. */
static int64_t window_flops(const Graph *graph, Id result, Id filter) {
  const Value *f = &graph->values.at[filter];
  return 2 * elements_per_sample(graph, result) * (elements_per_sample(graph, filter) / graph->axes.at[f->axes[0]].size);
}

static int64_t operation_flops(const Graph *graph, const Op *op) {
  switch (op->kind) {
  case OP_CONTRACT: return op->in_count == 2 ? 2 * contraction(graph, op) : elements_per_sample(graph, op->out[0]);
  case OP_SDPA:
  case OP_SDPA_GRAD: {
    const Value *q = &graph->values.at[op->in[0]], *k = &graph->values.at[op->in[1]];
    int64_t scores = elements_per_sample(graph, op->in[0]) * graph->axes.at[k->axes[1]].size; /* h d s t */
    (void)q;
    int64_t products = op->kind == OP_SDPA ? 4 : 10; /* two products forward; five backward, with the scores again */
    return products * scores / (op->integer[0] ? 2 : 1);
  }
  case OP_CONV2D: return window_flops(graph, op->out[0], op->in[1]);
  case OP_CONV2D_INPUT_GRAD: return window_flops(graph, op->in[1], op->in[0]);
  case OP_CONV2D_FILTER_GRAD: return window_flops(graph, op->in[1], op->out[0]);
  case OP_MAXPOOL: return elements_per_sample(graph, op->out[0]) * op->integer[0] * op->integer[1];
  case OP_RESHAPE:
  case OP_ALL_GATHER:
  case OP_OWN_PART:
  case OP_ALL_REDUCE: return 0;
  default: {
    int64_t n = 0;
    for (unsigned k = 0; k < op->in_count; k++) {
      const Value *v = &graph->values.at[op->in[k]];
      if (v->kind == VALUE_PARAM && op->kind == OP_GATHER) continue; /* rows are copied, the table is not read through */
      int64_t size = elements_per_sample(graph, op->in[k]);
      if (size > n) n = size;
    }
    return n;
  }
  }
}

static int64_t list_flops(const Graph *graph, const IdVec *list) {
  int64_t sum = 0;
  for (uint32_t i = 0; i < list->count; i++) sum += operation_flops(graph, &graph->ops.at[list->at[i]]);
  return sum;
}

void cost_run(Graph *graph) {
  for (uint32_t s = 0; s < graph->segments.count; s++) {
    Segment *segment = &graph->segments.at[s];
    segment->flops_f = list_flops(graph, &segment->forward);
    segment->flops_i = list_flops(graph, &segment->input_grad);
    segment->flops_w = list_flops(graph, &segment->weight_grad);
  }
}
