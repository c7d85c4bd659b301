/* Homes of values. A forward value that I or W reads is an activation; a value of I that W reads is stashed; the rest is
 * scratch, placed by first fit over live ranges inside one function. Runs of element-wise operations of one shape are
 * fused into one loop, whose inner values need no memory. */
#include "memory/memory.h"

#include <string.h>

#define ALIGNMENT 64
static int64_t align(int64_t bytes) {
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

const IdVec *segment_list(const Segment *segment, FunctionKind kind) {
  return kind == FUNCTION_FORWARD ? &segment->forward : kind == FUNCTION_INPUT_GRAD ? &segment->input_grad : &segment->weight_grad;
}

Broadcast operand_broadcast(const Graph *graph, const Config *config, const Op *op, unsigned operand, int64_t *cols) {
  const Value *in = &graph->values.at[op->in[operand]], *out = &graph->values.at[op->out[0]];
  int64_t size = value_local_elements(graph, config, op->in[operand]);
  int64_t total = value_local_elements(graph, config, op->out[0]);
  if (in->rank == 0 || in->kind == VALUE_CONST) return BROADCAST_SCALAR;
  if (in->rank == out->rank || size == total) return BROADCAST_FULL;
  if (op->offset[operand] + in->rank == out->rank) {
    *cols = size;
    return BROADCAST_ROW;
  }
  unsigned after = op->offset[operand] + (unsigned)in->rank;
  *cols = axes_local_elements(graph, config, out->rank - after, out->axes + after);
  return op->offset[operand] ? BROADCAST_MIDDLE : BROADCAST_COLUMN;
}

typedef struct Planner {
  const Graph *graph;
  const Config *config;
  MemoryPlan *plan;
  Id segment;
  int32_t (*last)[FUNCTION_KINDS]; /* per value: end of the group that reads it last, in each list; -1 none */
} Planner;

static bool is_fusable(const Op *op) {
  return op_is_elementwise(op->kind) && op->accumulate == NO_ID;
}

static bool same_shape(const Graph *graph, Id a, Id b) {
  const Value *x = &graph->values.at[a], *y = &graph->values.at[b];
  return x->rank == y->rank && memcmp(x->axes, y->axes, sizeof(Id) * x->rank) == 0;
}

/* Groups of one list: group[i] = index of the group's first operation. */
static uint32_t *find_groups(Planner *p, const IdVec *list) {
  const Graph *graph = p->graph;
  uint32_t *group = ARENA_ARRAY(graph->arena, uint32_t, list->count + 1);
  int64_t cols = 0; /* of the current group, 0 while free */
  for (uint32_t i = 0; i < list->count; i++) {
    const Op *op = &graph->ops.at[list->at[i]];
    group[i] = i;
    int64_t own = 0;
    bool consistent = true;
    for (unsigned k = 0; is_fusable(op) && k < op->in_count; k++) {
      int64_t needed = 0;
      operand_broadcast(graph, p->config, op, k, &needed);
      if (needed && own && own != needed) consistent = false;
      if (needed) own = needed;
    }
    bool joins = i > 0 && is_fusable(op) && consistent;
    if (joins) {
      const Op *before = &graph->ops.at[list->at[i - 1]];
      joins = is_fusable(before) && same_shape(graph, before->out[0], op->out[0]) && (!own || !cols || own == cols);
    }
    /* an operand made inside the group must be read at the same element */
    if (joins)
      for (unsigned k = 0; k < op->in_count; k++)
        for (uint32_t j = group[i - 1]; j < i; j++)
          if (graph->ops.at[list->at[j]].out[0] == op->in[k] && !same_shape(graph, op->in[k], op->out[0])) joins = false;
    if (joins) {
      group[i] = group[i - 1];
      if (own) cols = own;
    } else {
      cols = own;
    }
  }
  return group;
}

static void note_lists(Planner *p) {
  const Segment *segment = &p->graph->segments.at[p->segment];
  for (FunctionKind f = 0; f < FUNCTION_KINDS; f++) {
    const IdVec *list = segment_list(segment, f);
    uint32_t *group = p->plan->segments[p->segment].group[f] = find_groups(p, list);
    for (uint32_t i = 0; i < list->count; i++) {
      const Op *op = &p->graph->ops.at[list->at[i]];
      uint32_t end = i; /* memory of a group is all in use until its last operation */
      while (end + 1 < list->count && group[end + 1] == group[i]) end++;
      for (unsigned k = 0; k < op->in_count; k++) {
        Id root = p->plan->root[op->in[k]];
        if (p->last[root][f] < (int32_t)end) p->last[root][f] = (int32_t)end;
      }
    }
  }
}

/* Reshapes share their input's memory; an all-reduce works in place when nobody else reads its input. */
static void find_roots(Planner *p) {
  const Segment *segment = &p->graph->segments.at[p->segment];
  uint32_t *reads = ARENA_ARRAY(p->graph->arena, uint32_t, p->graph->values.count);
  for (FunctionKind f = 0; f < FUNCTION_KINDS; f++)
    for (uint32_t i = 0; i < segment_list(segment, f)->count; i++) {
      const Op *op = &p->graph->ops.at[segment_list(segment, f)->at[i]];
      for (unsigned k = 0; k < op->in_count; k++) reads[op->in[k]]++;
    }
  for (FunctionKind f = 0; f < FUNCTION_KINDS; f++)
    for (uint32_t i = 0; i < segment_list(segment, f)->count; i++) {
      const Op *op = &p->graph->ops.at[segment_list(segment, f)->at[i]];
      const Value *in = &p->graph->values.at[op->in[0]];
      bool alias = op->kind == OP_RESHAPE && op->accumulate == NO_ID;
      alias |= op->kind == OP_ALL_REDUCE && reads[op->in[0]] == 1 && in->kind == VALUE_OP && p->plan->root[op->in[0]] == op->in[0];
      if (alias) p->plan->root[op->out[0]] = p->plan->root[op->in[0]];
    }
}

typedef struct Range {
  Id value;
  int32_t from, to;
  int64_t bytes, offset;
} Range;

/* First fit: each value at the lowest offset that is free during its range. Returns the bytes needed. */
static int64_t place_ranges(Range *ranges, uint32_t count) {
  int64_t total = 0;
  for (uint32_t i = 0; i < count; i++) {
    int64_t offset = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (uint32_t j = 0; j < i; j++) {
        bool together = ranges[j].from <= ranges[i].to && ranges[i].from <= ranges[j].to;
        bool overlap = ranges[j].offset < offset + ranges[i].bytes && offset < ranges[j].offset + ranges[j].bytes;
        if (together && overlap) {
          offset = ranges[j].offset + ranges[j].bytes;
          moved = true;
        }
      }
    }
    ranges[i].offset = offset;
    if (offset + ranges[i].bytes > total) total = offset + ranges[i].bytes;
  }
  return total;
}

static void place_parameters(Planner *p) {
  const Graph *graph = p->graph;
  SegmentMemory *memory = &p->plan->segments[p->segment];
  int64_t elements = 0;
  for (int frozen = 0; frozen < 2; frozen++) {
    for (uint32_t i = 0; i < graph->params.count; i++) {
      const Param *param = &graph->params.at[i];
      if (param->segment != p->segment || param->frozen != (frozen == 1)) continue;
      p->plan->param_offset[i] = elements;
      elements += align(axes_local_elements(graph, p->config, param->rank, param->axes) * 4) / 4;
    }
    if (!frozen) memory->trained_elements = elements;
  }
  memory->weight_elements = elements;
  for (uint32_t i = 0; i < graph->params.count; i++) {
    const Param *param = &graph->params.at[i];
    if (param->segment != NO_ID) continue;
    for (uint32_t u = 0; u < param->users.count; u++)
      if (param->users.at[u] == p->segment) vec_push(graph->arena, &memory->shared, i);
  }
}

/* Homes given by where a value comes from or must go. */
static void place_fixed(Planner *p) {
  const Graph *graph = p->graph;
  const Segment *segment = &graph->segments.at[p->segment];
  Home *home = p->plan->home;
  for (uint32_t k = 0; k < segment->ins.count; k++) home[segment->ins.at[k].value] = (Home){PLACE_IN, k, 0};
  for (uint32_t v = 0; v < graph->values.count; v++) {
    const Value *value = &graph->values.at[v];
    if (value->segment != p->segment) continue;
    if (value->kind == VALUE_DATA) home[v] = (Home){PLACE_DATA, value->source, 0};
    if (value->kind != VALUE_PARAM) continue;
    const SegmentMemory *memory = &p->plan->segments[p->segment];
    if (graph->params.at[value->source].segment == p->segment)
      home[v] = (Home){PLACE_WEIGHT, value->source, p->plan->param_offset[value->source] * real_bytes(p->config)};
    for (uint32_t k = 0; k < memory->shared.count; k++)
      if (memory->shared.at[k] == value->source) home[v] = (Home){PLACE_SHARED, k, 0};
  }
  for (uint32_t k = segment->outs.count; k-- > 0;) {
    Id value = segment->outs.at[k].value;
    if (segment->grads_in[k] != NO_ID) home[segment->grads_in[k]] = (Home){PLACE_D_OUT, k, 0};
    if (graph->values.at[value].kind == VALUE_OP && p->plan->root[value] == value) home[value] = (Home){PLACE_OUT, k, 0};
  }
  for (uint32_t k = segment->ins.count; k-- > 0;) {
    Id value = segment->grads_out[k];
    if (value == NO_ID || graph->values.at[value].kind != VALUE_OP || p->plan->root[value] != value) continue;
    if (p->last[value][FUNCTION_WEIGHT_GRAD] < 0) home[value] = (Home){PLACE_D_IN, k, 0};
  }
}

/* The value, or an alias of it, leaves the function: as loss, metric, wire or gradient of a wire. */
static bool ends_outside(const Planner *p, Id value) {
  const Graph *graph = p->graph;
  const Segment *segment = &graph->segments.at[p->segment];
  const Id *root = p->plan->root;
  bool ends = root[graph->loss] == value;
  for (uint32_t k = 0; k < graph->metrics.count; k++) ends |= root[graph->metrics.at[k].value] == value;
  for (uint32_t k = 0; k < segment->outs.count; k++) ends |= root[segment->outs.at[k].value] == value;
  for (uint32_t k = 0; k < segment->ins.count; k++) ends |= segment->grads_out[k] != NO_ID && root[segment->grads_out[k]] == value;
  return ends;
}

static void place_segment(Planner *p) {
  const Graph *graph = p->graph;
  const Segment *segment = &graph->segments.at[p->segment];
  SegmentMemory *memory = &p->plan->segments[p->segment];
  Home *home = p->plan->home;
  for (FunctionKind f = 0; f < FUNCTION_KINDS; f++) {
    const IdVec *list = segment_list(segment, f);
    const uint32_t *group = memory->group[f];
    VEC(Range) ranges = {0};
    for (uint32_t i = 0; i < list->count; i++) {
      const Op *op = &graph->ops.at[list->at[i]];
      for (unsigned k = 0; k < op->out_count; k++) {
        Id v = op->out[k];
        if (p->plan->root[v] != v || home[v].place != PLACE_NONE || op->accumulate != NO_ID) continue;
        int64_t bytes = align(value_bytes(graph, p->config, v));
        bool later_i = f < FUNCTION_INPUT_GRAD && p->last[v][FUNCTION_INPUT_GRAD] >= 0;
        bool later_w = f < FUNCTION_WEIGHT_GRAD && p->last[v][FUNCTION_WEIGHT_GRAD] >= 0;
        if (f == FUNCTION_FORWARD && (later_i || later_w)) {
          home[v] = (Home){PLACE_ACT, 0, memory->act_bytes};
          memory->act_bytes += bytes;
        } else if (f == FUNCTION_INPUT_GRAD && later_w) {
          home[v] = (Home){PLACE_STASH, 0, memory->stash_bytes};
          memory->stash_bytes += bytes;
        } else {
          int32_t last = p->last[v][f];
          bool outside = ends_outside(p, v);
          if (last < 0 && !outside && op->out_count == 1) continue;
          uint32_t end = i;
          while (end + 1 < list->count && group[end + 1] == group[i]) end++;
          if (is_fusable(op) && !outside && last == (int32_t)end && end > i) {
            home[v] = (Home){PLACE_REGISTER, 0, 0}; /* every read is by this group */
            continue;
          }
          int32_t to = outside ? (int32_t)list->count : last < (int32_t)end ? (int32_t)end : last;
          vec_push(graph->arena, &ranges, (Range){v, (int32_t)group[i], to, bytes, 0});
        }
      }
    }
    int64_t scratch = place_ranges(ranges.at, ranges.count);
    if (scratch > memory->scratch_bytes) memory->scratch_bytes = scratch;
    for (uint32_t r = 0; r < ranges.count; r++) home[ranges.at[r].value] = (Home){PLACE_SCRATCH, 0, ranges.at[r].offset};
  }
}

MemoryPlan *memory_plan(const Graph *graph, const Config *config) {
  Arena *arena = graph->arena;
  uint32_t values = graph->values.count;
  MemoryPlan *plan = ARENA_NEW(arena, MemoryPlan);
  plan->home = ARENA_ARRAY(arena, Home, values);
  plan->root = ARENA_ARRAY(arena, Id, values);
  plan->segments = ARENA_ARRAY(arena, SegmentMemory, graph->segments.count);
  plan->param_offset = ARENA_ARRAY(arena, int64_t, graph->params.count + 1);
  for (uint32_t v = 0; v < values; v++) plan->root[v] = v;
  Planner p = {graph, config, plan, 0, NULL};
  p.last = arena_alloc(arena, sizeof *p.last * values);
  memset(p.last, 0xff, sizeof *p.last * values);
  for (uint32_t s = 0; s < graph->segments.count; s++) {
    p.segment = s;
    find_roots(&p);
    note_lists(&p);
    place_parameters(&p);
    place_fixed(&p);
    place_segment(&p);
  }
  for (uint32_t v = 0; v < values; v++)
    if (plan->root[v] != v) plan->home[v] = plan->home[plan->root[v]];
  return plan;
}
