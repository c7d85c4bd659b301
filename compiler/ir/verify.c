/* The rules of ir.h, checked: after every pass of a debug build and in tests. Reports the first violation as text. It
 * assumes nothing about a graph but that its arrays are as long as their counts say. */
#include <ctype.h>
#include <string.h>

#include "ir/ir.h"

typedef struct Check {
  const Graph *graph;
  const char *wrong; /* the first violation */
  uint8_t *op_seen;  /* how often an operation stands in a segment */
  uint8_t *ready;    /* values computed so far */
} Check;

#define REQUIRE(check, condition, ...)                                                                                 \
  do {                                                                                                                 \
    if (!(check)->wrong && !(condition)) (check)->wrong = arena_printf((check)->graph->arena, __VA_ARGS__);            \
    if ((check)->wrong) return;                                                                                        \
  } while (0)

static bool is_identifier(const char *name) {
  if (!name || !(isalpha((unsigned char)name[0]) || name[0] == '_')) return false;
  for (; *name; name++)
    if (!(isalnum((unsigned char)*name) || *name == '_')) return false;
  return true;
}

static void check_axes(Check *check, const char *what, const char *name, unsigned rank, const Id *axes) {
  REQUIRE(check, rank <= MAX_RANK, "%s `%s` has rank %u, above %d", what, name, rank, MAX_RANK);
  for (unsigned i = 0; i < rank; i++) {
    REQUIRE(check, axes[i] < check->graph->axes.count, "%s `%s`: axis %u is out of range", what, name, i);
    REQUIRE(check, check->graph->axes.at[axes[i]].size >= 1, "%s `%s`: axis %u has size %lld", what, name, i,
            (long long)check->graph->axes.at[axes[i]].size);
  }
}

static bool same_axes(const Graph *graph, unsigned rank, const Id *a, unsigned other_rank, const Id *b) {
  if (rank != other_rank) return false;
  for (unsigned i = 0; i < rank; i++)
    if (!axes_match(graph, a[i], b[i])) return false;
  return true;
}

static void check_value(Check *check, Id id) {
  const Graph *graph = check->graph;
  const Value *value = &graph->values.at[id];
  REQUIRE(check, value->name != NULL, "value %u has no name", id);
  check_axes(check, "value", value->name, value->rank, value->axes);
  if (check->wrong) return;
  REQUIRE(check, value->segment == NO_ID || value->segment < graph->segments.count,
          "value %u `%s`: segment %u is out of range", id, value->name, value->segment);
  REQUIRE(check, (value->kind == VALUE_CONST) == (value->segment == NO_ID),
          "value %u `%s`: only constants stand outside segments", id, value->name);
  switch (value->kind) {
  case VALUE_OP:
    REQUIRE(check, value->source < graph->ops.count, "value %u `%s`: operation out of range", id, value->name);
    REQUIRE(check,
            value->output < graph->ops.at[value->source].out_count &&
                graph->ops.at[value->source].out[value->output] == id,
            "value %u `%s` is not the result %u of operation %u", id, value->name, value->output, value->source);
    break;
  case VALUE_WIRE:
  case VALUE_GRAD:
    REQUIRE(check, value->source < graph->wires.count, "value %u `%s`: wire out of range", id, value->name);
    REQUIRE(check,
            same_axes(graph, value->rank, value->axes, graph->wires.at[value->source].rank,
                      graph->wires.at[value->source].axes),
            "value %u `%s` has other axes than its wire", id, value->name);
    REQUIRE(check, value->dtype == DT_REAL, "value %u `%s`: wires carry reals", id, value->name);
    break;
  case VALUE_DATA:
    REQUIRE(check, value->source < graph->data.count, "value %u `%s`: model input out of range", id, value->name);
    REQUIRE(check, value->dtype == graph->data.at[value->source].dtype, "value %u `%s`: other type than its input", id,
            value->name);
    break;
  case VALUE_PARAM:
    REQUIRE(check, value->source < graph->params.count, "value %u `%s`: parameter out of range", id, value->name);
    break;
  case VALUE_CONST:
    REQUIRE(check, value->rank == 0, "value %u: a constant has rank 0", id);
    break;
  }
}

/* Labels of one operand: distinct, non-zero. */
static void check_labels(Check *check, Id id, unsigned which, unsigned rank) {
  const Op *op = &check->graph->ops.at[id];
  for (unsigned i = 0; i < rank; i++) {
    REQUIRE(check, op->label[which][i] != 0, "operation %u %s: axis %u of part %u has no label", id, op_name(op->kind),
            i, which);
    for (unsigned k = 0; k < i; k++)
      REQUIRE(check, op->label[which][i] != op->label[which][k], "operation %u %s: label twice in part %u", id,
              op_name(op->kind), which);
  }
}

/* CONTRACT of one operand (autodiff: the gradient of a sum) repeats it over the result labels that it lacks. */
static void check_contract(Check *check, Id id) {
  const Graph *graph = check->graph;
  const Op *op = &graph->ops.at[id];
  const Value *parts[3] = {&graph->values.at[op->in[0]], op->in_count > 1 ? &graph->values.at[op->in[1]] : NULL,
                           &graph->values.at[op->out[0]]};
  bool is_sum = op->kind == OP_SUM;
  for (unsigned p = 0; p < 3; p++)
    if (parts[p] && !(is_sum && p == 1)) check_labels(check, id, p, parts[p]->rank);
  if (check->wrong) return;
  for (unsigned i = 0; i < parts[2]->rank; i++) { /* every result label comes from an operand, with the same axis */
    bool found = false;
    for (unsigned p = 0; p < (is_sum ? 1u : 2u); p++)
      for (unsigned k = 0; parts[p] && k < parts[p]->rank; k++)
        if (op->label[p][k] == op->label[2][i]) {
          found = true;
          REQUIRE(check, axes_match(graph, parts[p]->axes[k], parts[2]->axes[i]),
                  "operation %u %s: result axis %u differs from its operand's", id, op_name(op->kind), i);
        }
    bool repeats = !is_sum && op->in_count == 1;
    REQUIRE(check, found || repeats, "operation %u %s: result label %u is in no operand", id, op_name(op->kind), i);
  }
  if (parts[1] && !is_sum)
    for (unsigned i = 0; i < parts[0]->rank; i++)
      for (unsigned k = 0; k < parts[1]->rank; k++)
        REQUIRE(check, op->label[0][i] != op->label[1][k] || axes_match(graph, parts[0]->axes[i], parts[1]->axes[k]),
                "operation %u contract: axes %u and %u share a label but do not match", id, i, k);
}

/* integer[] and the axes of the image before and after agree. */
static void check_window(Check *check, Id id, const Value *in, const Value *out) {
  const Op *op = &check->graph->ops.at[id];
  const char *name = op_name(op->kind);
  if (check->wrong) return;
  REQUIRE(check, op->integer[2] >= 1 && op->integer[3] >= 0, "operation %u %s: stride or pad", id, name);
  for (unsigned i = 0; i < 2; i++) {
    int64_t size = check->graph->axes.at[in->axes[2 + i]].size + 2 * op->integer[3], k = op->integer[i];
    REQUIRE(check,
            k >= 1 && size >= k && check->graph->axes.at[out->axes[2 + i]].size == (size - k) / op->integer[2] + 1,
            "operation %u %s: the window does not give the result's size", id, name);
  }
}

static void check_op(Check *check, Id id) {
  const Graph *graph = check->graph;
  const Op *op = &graph->ops.at[id];
  REQUIRE(check, (unsigned)op->kind < OP_COUNT, "operation %u: unknown kind", id);
  const char *name = op_name(op->kind);
  REQUIRE(check, op->in_count <= MAX_INPUTS && op->out_count <= MAX_OUTPUTS, "operation %u %s: too many operands", id,
          name);
  REQUIRE(check, op->in_count >= 1 && op->out_count >= 1, "operation %u %s: no operand or no result", id, name);
  for (unsigned i = 0; i < op->in_count; i++)
    REQUIRE(check, op->in[i] < graph->values.count, "operation %u %s: operand %u out of range", id, name, i);
  for (unsigned i = 0; i < op->out_count; i++)
    REQUIRE(check,
            op->out[i] < graph->values.count && graph->values.at[op->out[i]].kind == VALUE_OP &&
                graph->values.at[op->out[i]].source == id,
            "operation %u %s: result %u is not its own", id, name, i);
  REQUIRE(check, op->accumulate == NO_ID || op->accumulate < graph->params.count,
          "operation %u %s: accumulates into no parameter", id, name);
  const Value *out = &graph->values.at[op->out[0]], *in = &graph->values.at[op->in[0]];
  if (op_is_elementwise(op->kind)) {
    REQUIRE(check, op->in_count <= 2, "operation %u %s: more than two operands", id, name);
    for (unsigned i = 0; i < op->in_count; i++) {
      const Value *operand = &graph->values.at[op->in[i]];
      if (operand->rank == 0) continue;
      REQUIRE(check, op->offset[i] + operand->rank <= out->rank, "operation %u %s: operand %u reaches past the result",
              id, name, i);
      REQUIRE(check, same_axes(graph, operand->rank, operand->axes, operand->rank, out->axes + op->offset[i]),
              "operation %u %s: operand %u has other axes than the result", id, name, i);
    }
    return;
  }
  switch (op->kind) {
  case OP_CONTRACT:
    REQUIRE(check, op->in_count <= 2 && op->out_count == 1, "operation %u contract: at most two operands, one result",
            id);
    check_contract(check, id);
    break;
  case OP_SUM:
    check_contract(check, id);
    break;
  case OP_PERMUTE: {
    unsigned seen = 0;
    REQUIRE(check, in->rank == out->rank, "operation %u permute: ranks differ", id);
    for (unsigned i = 0; i < out->rank; i++) {
      REQUIRE(check, op->integer[i] >= 0 && op->integer[i] < in->rank, "operation %u permute: axis out of range", id);
      seen |= 1u << op->integer[i];
      REQUIRE(check, axes_match(graph, in->axes[op->integer[i]], out->axes[i]), "operation %u permute: axis %u differs",
              id, i);
    }
    REQUIRE(check, seen == (1u << out->rank) - 1, "operation %u permute: an axis is used twice", id);
    break;
  }
  case OP_RESHAPE: {
    double a = 1, b = 1;
    for (unsigned i = 0; i < in->rank; i++) a *= (double)graph->axes.at[in->axes[i]].size;
    for (unsigned i = 0; i < out->rank; i++) b *= (double)graph->axes.at[out->axes[i]].size;
    REQUIRE(check, a == b, "operation %u reshape: %.0f elements become %.0f", id, a, b);
    break;
  }
  case OP_SLICE:
    REQUIRE(check, in->rank == out->rank && op->integer[0] >= 0 && op->integer[0] < in->rank,
            "operation %u slice: axis out of range", id);
    REQUIRE(check,
            op->integer[1] >= 0 && op->integer[1] + graph->axes.at[out->axes[op->integer[0]]].size <=
                                       graph->axes.at[in->axes[op->integer[0]]].size,
            "operation %u slice: positions out of range", id);
    break;
  case OP_CONCAT:
    REQUIRE(check, op->in_count == 2 && op->integer[0] >= 0 && op->integer[0] < out->rank,
            "operation %u concat: axis out of range", id);
    break;
  case OP_GATHER:
    REQUIRE(check, op->in_count == 2 && graph->values.at[op->in[1]].dtype == DT_I32,
            "operation %u gather: ids are no integers", id);
    REQUIRE(check, out->rank == graph->values.at[op->in[1]].rank + in->rank - 1, "operation %u gather: result rank",
            id);
    break;
  case OP_SDPA:
    REQUIRE(check, op->in_count == 3 && op->out_count == 2 && in->rank == 4 && out->rank == 4,
            "operation %u sdpa: q, k, v of rank 4 give o and lse", id);
    break;
  case OP_LAYERNORM:
  case OP_RMSNORM:
    REQUIRE(check,
            op->out_count == 2 && graph->values.at[op->out[1]].rank + 1 == in->rank &&
                same_axes(graph, in->rank, in->axes, out->rank, out->axes),
            "operation %u %s: x -> y of the same axes, and rstd", id, name);
    break;
  case OP_MAX:
    REQUIRE(check,
            op->integer[0] >= 1 && op->integer[0] <= in->rank && out->rank + op->integer[0] == in->rank &&
                same_axes(graph, out->rank, in->axes, out->rank, out->axes),
            "operation %u max: the last axes of x go", id);
    break;
  case OP_CONV2D:
    REQUIRE(check,
            op->in_count == 2 && in->rank == 4 && graph->values.at[op->in[1]].rank == 4 && out->rank == 4 &&
                axes_match(graph, in->axes[1], graph->values.at[op->in[1]].axes[1]) &&
                axes_match(graph, out->axes[1], graph->values.at[op->in[1]].axes[0]),
            "operation %u conv2d: an image, a filter of its channels, an image of the filter's", id);
    check_window(check, id, in, out);
    break;
  case OP_MAXPOOL:
  case OP_AVGPOOL:
    REQUIRE(check, op->in_count == 1 && in->rank == 4 && out->rank == 4 && same_axes(graph, 2, in->axes, 2, out->axes),
            "operation %u %s: an image of the same channels", id, name);
    check_window(check, id, in, out);
    break;
  case OP_BATCHNORM:
    REQUIRE(check,
            op->in_count == 3 && op->out_count == 3 && in->rank >= 2 &&
                same_axes(graph, in->rank, in->axes, out->rank, out->axes),
            "operation %u batchnorm: x of samples and channels -> y of the same axes", id);
    for (unsigned k = 1; k < 3; k++) {
      const Value *given = &graph->values.at[op->in[k]], *measured = &graph->values.at[op->out[k]];
      REQUIRE(check, given->kind == VALUE_PARAM && graph->params.at[given->source].statistic,
              "operation %u batchnorm: operand %u is no running statistic", id, k);
      REQUIRE(check,
              same_axes(graph, 1, in->axes + 1, given->rank, given->axes) &&
                  same_axes(graph, 1, in->axes + 1, measured->rank, measured->axes),
              "operation %u batchnorm: a statistic has other axes than the channels", id);
    }
    break;
  case OP_ALL_GATHER:
    REQUIRE(check,
            in->rank == out->rank && op->integer[0] >= 0 && op->integer[0] < in->rank &&
                graph->axes.at[in->axes[op->integer[0]]].size == graph->axes.at[out->axes[op->integer[0]]].size,
            "operation %u all_gather: the axis changes its size", id);
    break;
  case OP_XENT:
    REQUIRE(check, op->in_count == 2 && op->out_count == 3 && out->rank == 0, "operation %u xent: results", id);
    REQUIRE(check, graph->values.at[op->in[1]].kind == VALUE_DATA, "operation %u xent: targets are no model input", id);
    break;
  default:
    break;
  }
}

static void check_list(Check *check, Id segment, const Id *list, uint32_t count) {
  const Graph *graph = check->graph;
  for (uint32_t i = 0; i < count; i++) {
    REQUIRE(check, list[i] < graph->ops.count, "segment `%s`: operation out of range",
            graph->segments.at[segment].name);
    REQUIRE(check, !check->op_seen[list[i]], "operation %u stands twice in segments", list[i]);
    check->op_seen[list[i]] = 1;
    const Op *op = &graph->ops.at[list[i]];
    for (unsigned k = 0; k < op->in_count; k++) {
      const Value *value = &graph->values.at[op->in[k]];
      REQUIRE(check, value->segment == NO_ID || value->segment == segment,
              "operation %u %s of `%s` reads `%s` of another segment", list[i], op_name(op->kind),
              graph->segments.at[segment].name, value->name);
      REQUIRE(check, value->kind != VALUE_OP || check->ready[op->in[k]],
              "operation %u %s of `%s` reads `%s` before it is computed", list[i], op_name(op->kind),
              graph->segments.at[segment].name, value->name);
    }
    for (unsigned k = 0; k < op->out_count; k++) {
      REQUIRE(check, graph->values.at[op->out[k]].segment == segment, "operation %u %s: result in another segment",
              list[i], op_name(op->kind));
      check->ready[op->out[k]] = 1;
    }
  }
}

static void check_segment(Check *check, Id id) {
  const Graph *graph = check->graph;
  const Segment *segment = &graph->segments.at[id];
  REQUIRE(check, is_identifier(segment->name), "segment %u has no C identifier as its name", id);
  for (Id other = 0; other < id; other++)
    REQUIRE(check, strcmp(segment->name, graph->segments.at[other].name) != 0, "segment name `%s` is used twice",
            segment->name);
  REQUIRE(check, segment->trips >= 1, "segment `%s` has no trips", segment->name);
  REQUIRE(check, segment->ins.count <= MAX_WIRES && segment->outs.count <= MAX_WIRES, "segment `%s`: too many wires",
          segment->name);
  check_list(check, id, segment->forward.at, segment->forward.count);
  if (check->wrong) return;
  for (uint32_t i = 0; i < segment->outs.count; i++) {
    const WireOut *out = &segment->outs.at[i];
    REQUIRE(check, out->wire < graph->wires.count && graph->wires.at[out->wire].from == id,
            "segment `%s`: its result %u is not its own wire", segment->name, i);
    REQUIRE(check,
            out->value < graph->values.count && graph->values.at[out->value].segment == id &&
                graph->values.at[out->value].kind == VALUE_OP,
            "segment `%s`: wire out %u is not computed here", segment->name, i);
    const Value *value = &graph->values.at[out->value];
    REQUIRE(
        check,
        same_axes(graph, value->rank, value->axes, graph->wires.at[out->wire].rank, graph->wires.at[out->wire].axes),
        "segment `%s`: wire `%s` has other axes than its value", segment->name, graph->wires.at[out->wire].name);
    for (uint32_t k = 0; k < i; k++)
      REQUIRE(check, segment->outs.at[k].wire != out->wire, "segment `%s` makes a wire twice", segment->name);
  }
  for (uint32_t i = 0; i < segment->ins.count; i++) {
    const WireIn *in = &segment->ins.at[i];
    REQUIRE(check, in->wire < graph->wires.count && graph->wires.at[in->wire].from < id,
            "segment `%s` reads a wire that is not made before it", segment->name);
    REQUIRE(check,
            in->value < graph->values.count && graph->values.at[in->value].kind == VALUE_WIRE &&
                graph->values.at[in->value].source == in->wire && graph->values.at[in->value].segment == id,
            "segment `%s`: wire in %u has no value of its own", segment->name, i);
    for (uint32_t k = 0; k < i; k++) {
      REQUIRE(check, segment->ins.at[k].wire != in->wire, "segment `%s` reads a wire twice", segment->name);
      REQUIRE(check, in->carried == NO_ID || segment->ins.at[k].carried != in->carried,
              "segment `%s`: two inputs are carried from one result", segment->name);
    }
    if (in->carried == NO_ID) continue;
    REQUIRE(check, in->carried < segment->outs.count, "segment `%s`: wire in %u is carried from nothing", segment->name,
            i);
    const Wire *a = &graph->wires.at[in->wire], *b = &graph->wires.at[segment->outs.at[in->carried].wire];
    REQUIRE(check, same_axes(graph, a->rank, a->axes, b->rank, b->axes),
            "segment `%s`: the carried `%s` changes its axes", segment->name, a->name);
  }
  check_list(check, id, segment->input_grad.at, segment->input_grad.count);
  if (check->wrong) return;
  check_list(check, id, segment->weight_grad.at, segment->weight_grad.count);
  if (check->wrong || (!segment->input_grad.count && !segment->weight_grad.count)) return;
  for (uint32_t i = 0; i < segment->outs.count; i++)
    REQUIRE(check,
            segment->grads_in[i] == NO_ID || (segment->grads_in[i] < graph->values.count &&
                                              graph->values.at[segment->grads_in[i]].kind == VALUE_GRAD),
            "segment `%s`: the gradient of result %u does not arrive", segment->name, i);
  for (uint32_t i = 0; i < segment->ins.count; i++)
    REQUIRE(check, segment->grads_out[i] == NO_ID || segment->grads_out[i] < graph->values.count,
            "segment `%s`: the gradient of input %u is out of range", segment->name, i);
}

static void check_param(Check *check, Id id) {
  const Graph *graph = check->graph;
  const Param *param = &graph->params.at[id];
  REQUIRE(check, param->name != NULL, "parameter %u has no name", id);
  check_axes(check, "parameter", param->name, param->rank, param->axes);
  if (check->wrong) return;
  for (Id other = 0; other < id; other++)
    REQUIRE(check, strcmp(param->name, graph->params.at[other].name) != 0, "parameter name `%s` is used twice",
            param->name);
  for (uint32_t i = 0; i < param->users.count; i++) {
    REQUIRE(check, param->users.at[i] < graph->segments.count, "parameter `%s`: user out of range", param->name);
    REQUIRE(check, i == 0 || param->users.at[i - 1] < param->users.at[i],
            "parameter `%s`: users are not in program order", param->name);
  }
  REQUIRE(check, param->segment == NO_ID || (param->users.count == 1 && param->users.at[0] == param->segment),
          "parameter `%s`: its segment is not its one user", param->name);
  REQUIRE(check, !param->per_trip || param->users.count <= 1, "parameter `%s` of a loop is used outside it",
          param->name);
}

static void check_graph(Check *check) {
  const Graph *graph = check->graph;
  for (Id i = 0; i < graph->values.count && !check->wrong; i++) check_value(check, i);
  for (Id i = 0; i < graph->ops.count && !check->wrong; i++) check_op(check, i);
  for (Id i = 0; i < graph->segments.count && !check->wrong; i++) check_segment(check, i);
  for (Id i = 0; i < graph->params.count && !check->wrong; i++) check_param(check, i);
  /* an operation whose results nobody uses may have been dropped from every list */
  REQUIRE(check, graph->batch < graph->axes.count, "no batch axis");
  for (Id i = 0; i < graph->data.count; i++) {
    const Data *data = &graph->data.at[i];
    check_axes(check, "model input", data->name, data->rank, data->axes);
    if (check->wrong) return;
    REQUIRE(check, data->rank >= 1 && data->axes[0] == graph->batch, "model input `%s` does not start with the batch",
            data->name);
  }
  for (Id i = 0; i < graph->wires.count; i++) {
    const Wire *wire = &graph->wires.at[i];
    check_axes(check, "wire", wire->name, wire->rank, wire->axes);
    if (check->wrong) return;
    REQUIRE(check, wire->from < graph->segments.count, "wire `%s` comes from nowhere", wire->name);
    bool made = false;
    const Segment *from = &graph->segments.at[wire->from];
    for (uint32_t k = 0; k < from->outs.count; k++) made |= from->outs.at[k].wire == i;
    REQUIRE(check, made, "wire `%s` is not made by `%s`", wire->name, from->name);
  }
  REQUIRE(check,
          graph->loss < graph->values.count && graph->values.at[graph->loss].rank == 0 &&
              graph->values.at[graph->loss].kind == VALUE_OP,
          "the loss is no computed rank-0 value");
  for (uint32_t i = 0; i < graph->metrics.count; i++)
    REQUIRE(check,
            graph->metrics.at[i].value < graph->values.count && graph->values.at[graph->metrics.at[i].value].rank == 0,
            "metric `%s` is no rank-0 value", graph->metrics.at[i].name);
}

const char *graph_verify(const Graph *graph) {
  Check check = {.graph = graph};
  check.op_seen = arena_alloc(graph->arena, graph->ops.count + 1);
  check.ready = arena_alloc(graph->arena, graph->values.count + 1);
  check_graph(&check);
  return check.wrong;
}
