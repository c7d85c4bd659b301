/* The reverse walk over segments and their operations, and the division into I and W. Assumes distribute_run is done. */
#include "autodiff/autodiff.h"

#include <string.h>

struct Gradients {
  Builder *builder;
  const bool *needs;     /* per forward value: a trainable parameter lies upstream */
  uint32_t needs_count;
  Id *complete, *partial; /* per forward value: running gradient, complete and still to be all-reduced */
  uint32_t count;
};

bool gradients_wanted(const Gradients *g, Id value) {
  return value < g->needs_count && g->needs[value];
}

static Id add_gradients(Builder *b, Id value, Id first, Id second) {
  Value shape = b->graph->values.at[value];
  Id in[2] = {first, second};
  Id op = graph_op(b->graph, OP_ADD, shape.span, in, 2);
  const char *name = arena_printf(b->graph->arena, "d_%s", shape.name ? shape.name : "x");
  Id sum = graph_output(b->graph, op, b->segment, name, shape.rank, shape.axes);
  builder_append(b, op);
  return sum;
}

void gradients_give(Gradients *g, Id value, Id gradient) {
  if (!gradients_wanted(g, value) || gradient == NO_ID) return;
  bool is_partial = g->builder->graph->values.at[gradient].partial & PARTIAL_TP;
  Id *running = is_partial ? &g->partial[value] : &g->complete[value];
  *running = *running == NO_ID ? gradient : add_gradients(g->builder, value, *running, gradient);
}

/* The complete gradient of a value, or NO_ID if the loss does not depend on it. A partial value's terms all have the
 * same complete gradient, so nothing more is needed for them. */
static Id take_gradient(Gradients *g, Id value) {
  if (g->partial[value] != NO_ID) {
    Id summed = builder_complete(g->builder, g->partial[value]);
    g->partial[value] = NO_ID;
    g->complete[value] = g->complete[value] == NO_ID ? summed : add_gradients(g->builder, value, g->complete[value], summed);
  }
  return g->complete[value];
}

static bool trainable(const Graph *graph, const Value *value) {
  return value->kind == VALUE_PARAM && !graph->params.at[value->source].frozen && !graph->params.at[value->source].statistic;
}

/* Marks the values of a segment that depend on a trainable parameter; returns whether any out changed. */
static bool mark_needs(Graph *graph, const Segment *segment, bool *needs, Id segment_id) {
  for (uint32_t v = 0; v < graph->values.count; v++) {
    const Value *value = &graph->values.at[v];
    if (value->segment == segment_id && trainable(graph, value)) needs[v] = true;
    if (value->segment == segment_id && value->kind == VALUE_WIRE) needs[v] = graph->wires.at[value->source].needs_grad;
  }
  for (uint32_t k = 0; k < segment->ins.count; k++) {
    uint32_t carried = segment->ins.at[k].carried;
    if (carried != NO_ID && graph->wires.at[segment->outs.at[carried].wire].needs_grad) needs[segment->ins.at[k].value] = true;
  }
  for (uint32_t i = 0; i < segment->forward.count; i++) {
    const Op *op = &graph->ops.at[segment->forward.at[i]];
    bool any = false;
    for (unsigned k = 0; k < op->in_count; k++) any |= needs[op->in[k]];
    if (op->kind == OP_ACCURACY) any = false;
    needs[op->out[0]] |= any;
  }
  bool changed = false;
  for (uint32_t k = 0; k < segment->outs.count; k++) {
    Wire *wire = &graph->wires.at[segment->outs.at[k].wire];
    if (needs[segment->outs.at[k].value] && !wire->needs_grad) changed = wire->needs_grad = true;
  }
  return changed;
}

/* Whether a gradient reaches each wire: the loss is downstream. Backward over segments, to a fixed point in loops. */
static bool *find_arrivals(Graph *graph, const bool *needs) {
  Arena *arena = graph->arena;
  bool *arrives = ARENA_ARRAY(arena, bool, graph->wires.count + 1);
  bool *reached = ARENA_ARRAY(arena, bool, graph->values.count);
  for (uint32_t s = graph->segments.count; s-- > 0;) {
    const Segment *segment = &graph->segments.at[s];
    for (bool changed = true; changed;) {
      changed = false;
      for (uint32_t k = 0; k < segment->outs.count; k++)
        if (arrives[segment->outs.at[k].wire]) reached[segment->outs.at[k].value] = true;
      if (graph->values.at[graph->loss].segment == s) reached[graph->loss] = true;
      for (uint32_t i = segment->forward.count; i-- > 0;) {
        const Op *op = &graph->ops.at[segment->forward.at[i]];
        if (op->kind == OP_ACCURACY || !reached[op->out[0]]) continue;
        for (unsigned k = 0; k < op->in_count; k++) reached[op->in[k]] = true;
      }
      for (uint32_t k = 0; k < segment->ins.count; k++) {
        const WireIn *in = &segment->ins.at[k];
        if (!reached[in->value] || !needs[in->value]) continue;
        bool *first = &arrives[in->wire];
        if (!*first && graph->wires.at[in->wire].needs_grad) *first = true;
        if (in->carried == NO_ID) continue;
        bool *next = &arrives[segment->outs.at[in->carried].wire];
        if (!*next && graph->wires.at[segment->outs.at[in->carried].wire].needs_grad) *next = changed = true;
      }
    }
  }
  return arrives;
}

/* Adds a value to a parameter's accumulator by an operation of its own. */
static void add_to(Builder *b, Id param, Id value) {
  Value shape = b->graph->values.at[value];
  Id op = graph_op(b->graph, OP_COPY, shape.span, &value, 1);
  graph_output(b->graph, op, b->segment, shape.name, shape.rank, shape.axes);
  builder_append(b, op);
  b->graph->ops.at[op].accumulate = param;
}

/* Adds a gradient to a parameter's accumulator: the operation that made it adds directly where its kernel can and nobody
 * else reads its result. */
static void accumulate(Builder *b, Id param, Id gradient, const uint32_t *reads) {
  Graph *graph = b->graph;
  Value shape = graph->values.at[gradient];
  if (shape.kind == VALUE_OP && reads[gradient] == 1) {
    Op *maker = &graph->ops.at[shape.source];
    if (maker->kind == OP_CONTRACT || maker->kind == OP_SUM || maker->kind == OP_GATHER_GRAD ||
        maker->kind == OP_CONV2D_FILTER_GRAD) {
      maker->accumulate = param;
      return;
    }
  }
  add_to(b, param, gradient);
}

typedef struct ParamGradient {
  Id param, gradient;
} ParamGradient;

/* W's end: every trainable parameter value of the segment that has a gradient adds it to its accumulator. */
static void accumulate_all(Builder *b, Gradients *g, uint32_t values) {
  Graph *graph = b->graph;
  VEC(ParamGradient) pairs = {0};
  for (uint32_t v = 0; v < values; v++) {
    Value value = graph->values.at[v];
    if (value.segment != b->segment || !trainable(graph, &value)) continue;
    Id gradient = take_gradient(g, v);
    if (gradient != NO_ID) vec_push(graph->arena, &pairs, (ParamGradient){value.source, gradient});
  }
  uint32_t *reads = ARENA_ARRAY(graph->arena, uint32_t, graph->values.count);
  for (uint32_t i = 0; i < b->list->count; i++) {
    const Op *op = &graph->ops.at[b->list->at[i]];
    for (unsigned k = 0; k < op->in_count; k++) reads[op->in[k]]++;
  }
  const Segment *segment = &graph->segments.at[b->segment];
  for (uint32_t k = 0; k < segment->ins.count; k++)
    if (segment->grads_out[k] != NO_ID) reads[segment->grads_out[k]]++;
  for (uint32_t i = 0; i < pairs.count; i++) reads[pairs.at[i].gradient]++;
  for (uint32_t i = 0; i < pairs.count; i++) accumulate(b, pairs.at[i].param, pairs.at[i].gradient, reads);
}

/* What batch normalisation measured in this micro-batch is collected as gradients are: for running statistics, whose mean
 * over the step the runtime takes. The variance is that of the samples' distribution: divided by one fewer. */
static void collect_statistics(Builder *b) {
  Graph *graph = b->graph;
  const IdVec *forward = &graph->segments.at[b->segment].forward;
  for (uint32_t i = 0; i < forward->count; i++) {
    Op op = graph->ops.at[forward->at[i]];
    if (op.kind != OP_BATCHNORM) continue;
    const Value *x = &graph->values.at[op.in[0]];
    double count = (double)value_local_elements(graph, b->config, op.in[0]) / (double)axis_local(graph, b->config, x->axes[1]);
    Value shape = graph->values.at[op.out[2]];
    Id in[2] = {op.out[2], graph_const(graph, count / (count - 1))};
    Id scaled = graph_op(graph, OP_MUL, op.span, in, 2);
    Id variance = graph_output(graph, scaled, b->segment, shape.name, shape.rank, shape.axes);
    builder_append(b, scaled);
    add_to(b, graph->values.at[op.in[1]].source, op.out[1]);
    add_to(b, graph->values.at[op.in[2]].source, variance);
  }
}

/* Operations of `all` in order that some result of `wanted` values depends on. */
static void mark_wanted(const Graph *graph, const IdVec *all, bool *wanted_value, bool *wanted_op) {
  for (uint32_t i = all->count; i-- > 0;) {
    const Op *op = &graph->ops.at[all->at[i]];
    bool any = wanted_op[i];
    for (unsigned k = 0; k < op->out_count; k++) any |= wanted_value[op->out[k]];
    if (!any) continue;
    wanted_op[i] = true;
    for (unsigned k = 0; k < op->in_count; k++) wanted_value[op->in[k]] = true;
  }
}

/* I is what the gradients of the wires in depend on; W is the rest of what the parameters' gradients depend on. */
static void divide(Graph *graph, Segment *segment, const IdVec *all) {
  Arena *arena = graph->arena;
  bool *value = ARENA_ARRAY(arena, bool, graph->values.count), *input = ARENA_ARRAY(arena, bool, all->count + 1);
  for (uint32_t k = 0; k < segment->ins.count; k++)
    if (segment->grads_out[k] != NO_ID) value[segment->grads_out[k]] = true;
  mark_wanted(graph, all, value, input);
  memset(value, 0, graph->values.count);
  bool *weight = ARENA_ARRAY(arena, bool, all->count + 1);
  for (uint32_t i = 0; i < all->count; i++) weight[i] = graph->ops.at[all->at[i]].accumulate != NO_ID;
  mark_wanted(graph, all, value, weight);
  for (uint32_t i = 0; i < all->count; i++) {
    if (input[i]) vec_push(arena, &segment->input_grad, all->at[i]);
    else if (weight[i]) vec_push(arena, &segment->weight_grad, all->at[i]);
  }
}

static void differentiate(Graph *graph, const Config *config, Diagnostics *diagnostics, Id s, const bool *needs,
                          uint32_t needs_count, const bool *arrives) {
  Segment *segment = &graph->segments.at[s];
  IdVec all = {0};
  Builder builder = {graph, config, diagnostics, s, true, &all, NULL, 0};
  Gradients g = {&builder, needs, needs_count, NULL, NULL, needs_count};
  g.complete = ARENA_ARRAY(graph->arena, Id, needs_count);
  g.partial = ARENA_ARRAY(graph->arena, Id, needs_count);
  memset(g.complete, 0xff, sizeof(Id) * needs_count);
  memset(g.partial, 0xff, sizeof(Id) * needs_count);
  memset(segment->grads_in, 0xff, sizeof segment->grads_in);
  memset(segment->grads_out, 0xff, sizeof segment->grads_out);

  if (graph->values.at[graph->loss].segment == s) gradients_give(&g, graph->loss, graph_const(graph, 1));
  for (uint32_t k = segment->outs.count; k-- > 0;) {
    const WireOut *out = &segment->outs.at[k];
    if (!arrives[out->wire] || !needs[out->value]) continue;
    Value shape = graph->values.at[out->value];
    Value grad = {.kind = VALUE_GRAD, .dtype = DT_REAL, .span = shape.span, .rank = shape.rank, .source = out->wire, .segment = s};
    grad.name = arena_printf(graph->arena, "d_%s", shape.name ? shape.name : "out");
    memcpy(grad.axes, shape.axes, sizeof grad.axes);
    vec_push(graph->arena, &graph->values, grad);
    segment->grads_in[k] = graph->values.count - 1;
    gradients_give(&g, out->value, segment->grads_in[k]);
  }
  for (uint32_t i = segment->forward.count; i-- > 0;) {
    Op op = graph->ops.at[segment->forward.at[i]];
    bool any = false;
    for (unsigned k = 0; k < op.in_count; k++) any |= needs[op.in[k]];
    if (!any || op.kind == OP_ACCURACY) continue;
    Id d_out[MAX_OUTPUTS] = {NO_ID, NO_ID, NO_ID};
    d_out[0] = take_gradient(&g, op.out[0]);
    if (d_out[0] != NO_ID) gradient_rule(&g, &builder, segment->forward.at[i], d_out);
  }
  for (uint32_t k = 0; k < segment->ins.count; k++) {
    const WireIn *in = &segment->ins.at[k];
    bool travels = graph->wires.at[in->wire].needs_grad || (in->carried != NO_ID && graph->wires.at[segment->outs.at[in->carried].wire].needs_grad);
    if (travels && needs[in->value]) segment->grads_out[k] = take_gradient(&g, in->value);
  }
  accumulate_all(&builder, &g, needs_count);
  collect_statistics(&builder);
  divide(graph, &graph->segments.at[s], &all);
}

bool autodiff_run(Graph *graph, const Config *config, Diagnostics *diagnostics) {
  unsigned before = diag_errors(diagnostics);
  uint32_t count = graph->values.count;
  bool *needs = ARENA_ARRAY(graph->arena, bool, count);
  for (uint32_t s = 0; s < graph->segments.count; s++)
    while (mark_needs(graph, &graph->segments.at[s], needs, s)) {}
  if (!needs[graph->loss]) {
    Diag *diag = diag_error(diagnostics, "E0601", graph->loss_span, "the loss does not depend on any trainable parameter");
    bool accuracy = false;
    for (uint32_t v = 0; v < graph->ops.count; v++) accuracy |= graph->ops.at[v].kind == OP_ACCURACY && graph->ops.at[v].out[0] == graph->loss;
    if (accuracy) diag_note(diag, "`accuracy` counts, and has no gradient: it is for `metric`");
    diag_help(diag, accuracy ? "train with `xent`" : "declare a `param` without `frozen` that the loss depends on");
    return false;
  }
  const bool *arrives = find_arrivals(graph, needs);
  for (uint32_t w = 0; w < graph->wires.count; w++) graph->wires.at[w].needs_grad &= arrives[w];
  for (uint32_t s = 0; s < graph->segments.count; s++) differentiate(graph, config, diagnostics, s, needs, count, arrives);
  return diag_errors(diagnostics) == before;
}
