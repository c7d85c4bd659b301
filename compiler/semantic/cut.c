/* From the draft to the graph: what reaches neither the loss nor a metric is dropped, every reference from one segment
 * to another becomes a wire, and parameters learn who uses them. */
#include <string.h>

#include "semantic/internal.h"

typedef struct Cut {
  Sem *sem;
  const Graph *draft;
  Graph *graph;
  uint8_t *value_live, *op_live; /* of the draft */
  uint8_t *reaches_loss;         /* values of the draft */
  uint8_t *joined;               /* draft d stands in one segment with d + 1 */
  Id *own;                       /* final value of a draft operation's result, in its own segment */
  Id *wire;                      /* wire that carries it, or NO_ID */
  Id *seen_in, *seen_as;         /* value of the draft in the segment that was last built */
  Table segment_names;           /* name -> the last number that was tried after it, 1 for none */
  bool too_many;
} Cut;

/* ---- what is needed ---- */

typedef VEC(Id) Stack;

static void mark_from(Cut *cut, Id value) {
  Arena *arena = cut->sem->arena;
  Stack stack = {0};
  vec_push(arena, &stack, value);
  while (stack.count) {
    Id id = stack.at[--stack.count];
    if (id == NO_ID || cut->value_live[id]) continue;
    cut->value_live[id] = 1;
    const Value *v = &cut->draft->values.at[id];
    if (v->kind == VALUE_OP) {
      const Op *op = &cut->draft->ops.at[v->source];
      cut->op_live[v->source] = 1;
      for (unsigned i = 0; i < op->in_count; i++) vec_push(arena, &stack, op->in[i]);
    } else if (v->kind == VALUE_WIRE) {
      const Carry *carry = &cut->sem->drafts.at[v->segment].carries.at[v->source];
      bool carried = carry->after != carry->inside;
      vec_push(arena, &stack, carried ? carry->copy : carry->before);
      if (carried) vec_push(arena, &stack, carry->after);
    }
  }
}

static bool draft_is_live(const Cut *cut, Id draft) {
  const Draft *d = &cut->sem->drafts.at[draft];
  for (uint32_t i = 0; i < d->ops.count; i++)
    if (cut->op_live[d->ops.at[i]]) return true;
  return false;
}

/* A sum over the batch never travels on a wire: the segments from where it is made to where it is used become one. */
static void join_for(Cut *cut, const Value *v, Id user, Span span) {
  for (Id d = v->segment; d <= user; d++) {
    if (!cut->sem->drafts.at[d].loop || !draft_is_live(cut, d)) continue;
    Diag *diag = report(cut->sem, "E0318", span, "`%s`, a sum over the batch, cannot pass a loop", v->name);
    diag_label(diag, v->span, "computed here");
    diag_help(diag, "compute it after the loop");
    return;
  }
  for (Id d = v->segment; d < user; d++) cut->joined[d] = 1;
}

static void join_batch_sums(Cut *cut) {
  for (Id d = 0; d < cut->sem->drafts.count; d++) {
    const Draft *draft = &cut->sem->drafts.at[d];
    for (uint32_t i = 0; i < draft->ops.count; i++) {
      const Op *op = &cut->draft->ops.at[draft->ops.at[i]];
      for (unsigned k = 0; cut->op_live[draft->ops.at[i]] && k < op->in_count; k++) {
        const Value *v = &cut->draft->values.at[op->in[k]];
        bool sum = op->in[k] < cut->sem->batch_sum.count && cut->sem->batch_sum.at[op->in[k]];
        if (sum && v->kind == VALUE_OP && v->segment != d) join_for(cut, v, d, op->span);
      }
    }
  }
}

/* ---- names ---- */

static bool is_keyword(const char *name) {
  static const char *const keywords[] = {
      "auto",     "break",  "case",     "char",  "const",    "continue", "default", "do",     "double", "else",
      "enum",     "extern", "float",    "for",   "goto",     "if",       "inline",  "int",    "long",   "main",
      "register", "return", "restrict", "short", "signed",   "sizeof",   "static",  "struct", "switch", "typedef",
      "union",    "while",  "unsigned", "void",  "volatile", "bool",     "true",    "false",  "asm",    "typeof"};
  for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
    if (!strcmp(keywords[i], name)) return true;
  return false;
}

/* `base`, or `base_2`, `base_3`, ... */
static const char *segment_name(Cut *cut, const char *base) {
  Arena *arena = cut->sem->arena;
  if (is_keyword(base)) base = arena_printf(arena, "%s_", base);
  const char *stem = intern_str(cut->sem->names, base), *name = stem;
  uintptr_t times = (uintptr_t)table_get(&cut->segment_names, stem);
  while (table_get(&cut->segment_names, name)) /* `h_2` may be the name of another statement too */
    name = intern_str(cut->sem->names, arena_printf(arena, "%s_%u", base, (unsigned)++times));
  if (name != stem) table_put(arena, &cut->segment_names, stem, (void *)times);
  table_put(arena, &cut->segment_names, name, (void *)(uintptr_t)1);
  return name;
}

/* ---- wires ---- */

static bool room_for_wire(Cut *cut, uint32_t count, const Segment *segment) {
  if (count < MAX_WIRES) return true;
  if (!cut->too_many) {
    Diag *diag = report(cut->sem, "E0922", segment->span, "more than %d values pass the bounds of `%s`", MAX_WIRES,
                        segment->name);
    diag_note(diag, "they are sent from stage to stage; this version sends at most %d", MAX_WIRES);
  }
  cut->too_many = true;
  return false;
}

static Id new_wire(Cut *cut, Id from, Id value, const char *name) {
  Graph *graph = cut->graph;
  const Value *v = &graph->values.at[value];
  Wire wire = {.name = name, .span = v->span, .rank = v->rank, .from = from};
  memcpy(wire.axes, v->axes, sizeof wire.axes);
  vec_push(graph->arena, &graph->wires, wire);
  Segment *segment = &graph->segments.at[from];
  if (room_for_wire(cut, segment->outs.count, segment))
    vec_push(graph->arena, &segment->outs, (WireOut){graph->wires.count - 1, value});
  return graph->wires.count - 1;
}

/* The wire of a result that another segment uses. */
static Id wire_of(Cut *cut, Id draft_value) {
  if (cut->wire[draft_value] == NO_ID) {
    Id value = cut->own[draft_value];
    cut->wire[draft_value] =
        new_wire(cut, cut->graph->values.at[value].segment, value, cut->graph->values.at[value].name);
  }
  return cut->wire[draft_value];
}

/* A second wire with the same contents, for a loop that carries a value and also reads it as it was. */
static Id duplicate_wire(Cut *cut, Id wire) {
  Graph *graph = cut->graph;
  Id from = graph->wires.at[wire].from, value = NO_ID;
  const Segment *segment = &graph->segments.at[from];
  for (uint32_t i = 0; i < segment->outs.count; i++)
    if (segment->outs.at[i].wire == wire) value = segment->outs.at[i].value;
  if (value == NO_ID) return wire;
  Value original = graph->values.at[value];
  Id op = graph_op(graph, OP_COPY, original.span, &value, 1);
  Id copy = graph_output(graph, op, from, original.name, original.rank, original.axes);
  vec_push(graph->arena, &graph->segments.at[from].forward, op);
  return new_wire(cut, from, copy, original.name);
}

static Id wire_in(Cut *cut, Id segment, Id wire, uint32_t carried, const char *name, Span span) {
  Graph *graph = cut->graph;
  Segment *s = &graph->segments.at[segment];
  for (uint32_t i = 0; i < s->ins.count; i++) {
    if (s->ins.at[i].wire != wire) continue;
    if (s->ins.at[i].carried == NO_ID && carried == NO_ID) return s->ins.at[i].value;
    wire = duplicate_wire(cut, wire);
    s = &graph->segments.at[segment];
    break;
  }
  Value value = {.kind = VALUE_WIRE,
                 .name = name,
                 .span = span,
                 .rank = graph->wires.at[wire].rank,
                 .source = wire,
                 .segment = segment};
  memcpy(value.axes, graph->wires.at[wire].axes, sizeof value.axes);
  vec_push(graph->arena, &graph->values, value);
  if (room_for_wire(cut, s->ins.count, s))
    vec_push(graph->arena, &s->ins, (WireIn){wire, graph->values.count - 1, carried});
  return graph->values.count - 1;
}

/* ---- building a segment ---- */

static Id use(Cut *cut, Id segment, Id id);

static Id use_carry(Cut *cut, Id segment, const Value *v) {
  const Draft *draft = &cut->sem->drafts.at[v->segment];
  const Carry *carry = &draft->carries.at[v->source];
  if (carry->after == carry->inside) return use(cut, segment, carry->before);
  uint32_t out = 0; /* carried results come first among the results of the loop, in order */
  for (uint32_t i = 0; i < v->source; i++)
    out += draft->carries.at[i].after != draft->carries.at[i].inside && cut->value_live[draft->carries.at[i].inside];
  return wire_in(cut, segment, wire_of(cut, carry->copy), out, carry->name, carry->span);
}

static Id use(Cut *cut, Id segment, Id id) {
  Graph *graph = cut->graph;
  const Value *v = &cut->draft->values.at[id];
  if (v->kind == VALUE_OP && cut->own[id] != NO_ID && graph->values.at[cut->own[id]].segment == segment)
    return cut->own[id];
  if (cut->seen_in[id] == segment) return cut->seen_as[id];
  Id result = NO_ID;
  switch (v->kind) {
  case VALUE_OP:
    result = wire_in(cut, segment, wire_of(cut, id), NO_ID, v->name, v->span);
    break;
  case VALUE_WIRE:
    result = use_carry(cut, segment, v);
    break;
  case VALUE_CONST:
    result = graph_const(graph, v->number);
    break;
  default: { /* inputs and parameters: each segment has its own value of them */
    Value copy = *v;
    copy.segment = segment;
    vec_push(graph->arena, &graph->values, copy);
    result = graph->values.count - 1;
    Param *param = v->kind == VALUE_PARAM ? &graph->params.at[v->source] : NULL;
    if (param && (!param->users.count || param->users.at[param->users.count - 1] != segment))
      vec_push(graph->arena, &param->users, segment);
  }
  }
  cut->seen_in[id] = segment;
  cut->seen_as[id] = result;
  return result;
}

static void build_op(Cut *cut, Id segment, Id draft_op) {
  Graph *graph = cut->graph;
  const Op *source = &cut->draft->ops.at[draft_op];
  Id inputs[MAX_INPUTS];
  for (unsigned i = 0; i < source->in_count; i++) inputs[i] = use(cut, segment, source->in[i]);
  Id id = graph_op(graph, source->kind, source->span, inputs, source->in_count);
  Op *op = &graph->ops.at[id];
  memcpy(op->label, source->label, sizeof op->label);
  memcpy(op->offset, source->offset, sizeof op->offset);
  memcpy(op->integer, source->integer, sizeof op->integer);
  memcpy(op->real, source->real, sizeof op->real);
  op->purpose = source->purpose;
  for (unsigned i = 0; i < source->out_count; i++) {
    const Value *v = &cut->draft->values.at[source->out[i]];
    cut->own[source->out[i]] = graph_output(graph, id, segment, v->name, v->rank, v->axes);
  }
  vec_push(graph->arena, &graph->segments.at[segment].forward, id);
}

static void build_segment(Cut *cut, Id first, Id last) {
  Graph *graph = cut->graph;
  Segment segment = {.trips = 1};
  for (Id d = first; d <= last; d++) {
    const Draft *draft = &cut->sem->drafts.at[d];
    if (!draft_is_live(cut, d)) continue;
    segment.span = segment.name ? span_join(segment.span, draft->span) : draft->span;
    segment.name = draft->name;
    segment.trips = draft->trips;
  }
  segment.name = segment_name(cut, segment.name);
  vec_push(graph->arena, &graph->segments, segment);
  Id id = graph->segments.count - 1;
  for (Id d = first; d <= last; d++) {
    const Draft *draft = &cut->sem->drafts.at[d];
    for (uint32_t i = 0; i < draft->ops.count; i++)
      if (cut->op_live[draft->ops.at[i]]) build_op(cut, id, draft->ops.at[i]);
    for (uint32_t i = 0; i < draft->carries.count; i++) {
      const Carry *carry = &draft->carries.at[i];
      if (carry->after != carry->inside && cut->value_live[carry->inside]) wire_of(cut, carry->after);
    }
  }
}

/* ---- the whole ---- */

/* A parameter of a loop that nothing of the program uses: there is no loop to count its trips. */
static bool has_no_trips(const Param *param) {
  return param->per_trip && param->users.count == 0;
}

static void leave_out_params(Graph *graph) {
  Id *place = ARENA_ARRAY(graph->arena, Id, graph->params.count + 1), kept = 0;
  for (Id i = 0; i < graph->params.count; i++) {
    place[i] = kept;
    if (!has_no_trips(&graph->params.at[i])) graph->params.at[kept++] = graph->params.at[i];
  }
  graph->params.count = kept;
  for (Id i = 0; i < graph->values.count; i++)
    if (graph->values.at[i].kind == VALUE_PARAM) graph->values.at[i].source = place[graph->values.at[i].source];
}

static void finish_params(Cut *cut) {
  Graph *graph = cut->graph;
  for (Id i = 0; i < cut->draft->values.count; i++) {
    const Value *v = &cut->draft->values.at[i];
    if (v->kind != VALUE_PARAM) continue;
    Param *param = &graph->params.at[v->source];
    param->segment = NO_ID;
    if (param->users.count == 1) {
      Id user = param->users.at[0];
      if (param->per_trip || graph->segments.at[user].trips == 1) param->segment = user;
    }
    if (cut->reaches_loss[i] || param->statistic) continue;
    Diag *diag = diag_warning(cut->sem->diagnostics, "W0201", param->span,
                              "parameter `%s` has no influence on the loss", param->name);
    if (!param->frozen)
      diag_note(diag, has_no_trips(param) ? "it is left out: no trip of its loop uses it for the loss or a metric"
                                        : "its gradient is zero: training leaves it as it is, but for weight decay");
    diag_help(diag, "use it, or remove it");
  }
  leave_out_params(graph);
}

static Graph *new_graph(Cut *cut) {
  const Graph *draft = cut->draft;
  Graph *graph = ARENA_NEW(cut->sem->arena, Graph);
  *graph = *draft;
  memset(&graph->values, 0, sizeof graph->values);
  memset(&graph->ops, 0, sizeof graph->ops);
  memset(&graph->wires, 0, sizeof graph->wires);
  memset(&graph->segments, 0, sizeof graph->segments);
  return graph;
}

static Id *ids(Cut *cut, uint32_t count) {
  Id *list = ARENA_ARRAY(cut->sem->arena, Id, count + 1);
  for (uint32_t i = 0; i < count; i++) list[i] = NO_ID;
  return list;
}

void cut_segments(Sem *sem) {
  Cut cut = {.sem = sem, .draft = sem->graph};
  uint32_t values = sem->graph->values.count;
  cut.value_live = arena_alloc(sem->arena, values + 1);
  cut.op_live = arena_alloc(sem->arena, sem->graph->ops.count + 1);
  cut.joined = arena_alloc(sem->arena, sem->drafts.count + 1);
  cut.reaches_loss = arena_alloc(sem->arena, values + 1);
  cut.own = ids(&cut, values);
  cut.wire = ids(&cut, values);
  cut.seen_in = ids(&cut, values);
  cut.seen_as = ids(&cut, values);
  mark_from(&cut, sem->graph->loss);
  memcpy(cut.reaches_loss, cut.value_live, values);
  for (uint32_t i = 0; i < sem->graph->metrics.count; i++) mark_from(&cut, sem->graph->metrics.at[i].value);
  join_batch_sums(&cut);
  if (diag_errors(sem->diagnostics)) return;
  cut.graph = new_graph(&cut);
  for (Id d = 0; d < sem->drafts.count; d++) {
    Id last = d;
    bool live = draft_is_live(&cut, d);
    while (cut.joined[last]) live |= draft_is_live(&cut, ++last);
    if (live) build_segment(&cut, d, last);
    d = last;
  }
  cut.graph->loss = cut.own[sem->graph->loss];
  for (uint32_t i = 0; i < cut.graph->metrics.count; i++)
    cut.graph->metrics.at[i].value = cut.own[sem->graph->metrics.at[i].value];
  finish_params(&cut);
  sem->graph = cut.graph;
}
