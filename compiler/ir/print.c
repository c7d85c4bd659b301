/* The graph as text for a person: --emit=ir. One line per operation, `%id name [axes] = operation operands`. */
#include <string.h>

#include "ir/ir.h"

static void put_value(const Graph *graph, Text *out, Id id) {
  if (id == NO_ID) {
    text_printf(out, "-");
    return;
  }
  const Value *value = &graph->values.at[id];
  if (value->kind == VALUE_CONST)
    text_printf(out, "%.17g", value->number);
  else if (value->kind == VALUE_PARAM)
    text_printf(out, "@%s", value->name);
  else
    text_printf(out, "%%%u", id);
}

static void put_labels(Text *out, const uint8_t *labels, unsigned rank) {
  for (unsigned i = 0; i < rank; i++) {
    if (labels[i] >= 'A' && labels[i] <= 'z')
      text_printf(out, "%c", labels[i]);
    else
      text_printf(out, "<%u>", labels[i]);
  }
}

static void put_attributes(const Graph *graph, Text *out, const Op *op) {
  switch (op->kind) {
  case OP_CONTRACT:
  case OP_SUM:
    text_printf(out, " \"");
    put_labels(out, op->label[0], graph->values.at[op->in[0]].rank);
    if (op->kind == OP_CONTRACT && op->in_count == 2) {
      text_printf(out, ",");
      put_labels(out, op->label[1], graph->values.at[op->in[1]].rank);
    }
    text_printf(out, "->");
    put_labels(out, op->label[2], graph->values.at[op->out[0]].rank);
    text_printf(out, "\"");
    if (op->kind == OP_SUM) text_printf(out, " factor=%.17g", op->real[0]);
    break;
  case OP_LAYERNORM:
  case OP_RMSNORM:
  case OP_BATCHNORM:
  case OP_BATCHNORM_GRAD:
    text_printf(out, " eps=%g", op->real[0]);
    break;
  case OP_CONV2D:
  case OP_CONV2D_INPUT_GRAD:
  case OP_CONV2D_FILTER_GRAD:
  case OP_MAXPOOL:
  case OP_MAXPOOL_GRAD:
  case OP_AVGPOOL:
  case OP_AVGPOOL_GRAD:
    text_printf(out, " window=%lldx%lld stride=%lld pad=%lld", (long long)op->integer[0], (long long)op->integer[1],
                (long long)op->integer[2], (long long)op->integer[3]);
    break;
  case OP_ROPE:
    text_printf(out, " theta=%g sign=%lld", op->real[0], (long long)op->integer[0]);
    break;
  case OP_DROPOUT:
    text_printf(out, " p=%g purpose=\"%s\"", op->real[0], op->purpose ? op->purpose : "");
    break;
  case OP_SDPA:
  case OP_SDPA_GRAD:
    text_printf(out, " causal=%s group=%lld", op->integer[0] ? "true" : "false", (long long)op->integer[1]);
    break;
  case OP_PERMUTE:
    text_printf(out, " (");
    for (unsigned i = 0; i < graph->values.at[op->out[0]].rank; i++)
      text_printf(out, "%s%lld", i ? " " : "", (long long)op->integer[i]);
    text_printf(out, ")");
    break;
  case OP_MAX:
  case OP_MAX_GRAD:
    text_printf(out, " axes=%lld", (long long)op->integer[0]);
    break;
  case OP_SLICE:
  case OP_SLICE_GRAD:
    text_printf(out, " axis=%lld begin=%lld", (long long)op->integer[0], (long long)op->integer[1]);
    break;
  case OP_CONCAT:
  case OP_ALL_GATHER:
  case OP_OWN_PART:
    text_printf(out, " axis=%lld", (long long)op->integer[0]);
    break;
  case OP_ALL_REDUCE:
    text_printf(out, " over=%s", mesh_name((Mesh)op->integer[0]));
    break;
  default:
    break;
  }
  if (op->accumulate != NO_ID) text_printf(out, " accumulate=@%s", graph->params.at[op->accumulate].name);
}

static void put_type(const Graph *graph, Text *out, const Value *value) {
  text_printf(out, " %s%s", value->dtype == DT_I32 ? "i32" : "", axes_text(graph, value->rank, value->axes, false));
  if (value->partial & PARTIAL_TP) text_printf(out, " partial tp");
  if (value->partial & PARTIAL_BATCH) text_printf(out, " partial batch");
}

static void put_list(const Graph *graph, Text *out, const char *title, const Id *list, uint32_t count) {
  if (!count) return;
  text_printf(out, "  %s\n", title);
  for (uint32_t i = 0; i < count; i++) {
    const Op *op = &graph->ops.at[list[i]];
    text_printf(out, "    ");
    for (unsigned k = 0; k < op->out_count; k++) {
      const Value *value = &graph->values.at[op->out[k]];
      text_printf(out, "%s%%%u %s", k ? ", " : "", op->out[k], value->name);
      put_type(graph, out, value);
    }
    text_printf(out, " = %s", op_name(op->kind));
    for (unsigned k = 0; k < op->in_count; k++) {
      text_printf(out, k ? ", " : " ");
      put_value(graph, out, op->in[k]);
      if (op_is_elementwise(op->kind) && graph->values.at[op->in[k]].rank && k < 2 && op->offset[k])
        text_printf(out, "+%u", op->offset[k]);
    }
    put_attributes(graph, out, op);
    text_printf(out, "\n");
  }
}

static void put_param(const Graph *graph, Text *out, const Param *param) {
  text_printf(out, "param @%s %s", param->name, axes_text(graph, param->rank, param->axes, true));
  switch (param->init.kind) {
  case INIT_NUMBER:
    text_printf(out, " = %.17g", param->init.a);
    break;
  case INIT_NORMAL:
    text_printf(out, " = normal(%.17g)", param->init.a);
    break;
  case INIT_UNIFORM:
    text_printf(out, " = uniform(%.17g, %.17g)", param->init.a, param->init.b);
    break;
  }
  if (param->statistic) text_printf(out, " running mean momentum=%g", param->momentum);
  if (param->frozen) text_printf(out, " frozen");
  if (param->decay) text_printf(out, " decay");
  if (param->per_trip) text_printf(out, " per trip");
  text_printf(out, " used by");
  for (uint32_t i = 0; i < param->users.count; i++)
    text_printf(out, "%s %s", i ? "," : "", graph->segments.at[param->users.at[i]].name);
  text_printf(out, param->users.count ? "\n" : " nothing\n");
}

static void put_segment(const Graph *graph, Text *out, const Segment *segment) {
  text_printf(out, "\nsegment %s trips %lld\n", segment->name, (long long)segment->trips);
  for (uint32_t i = 0; i < segment->ins.count; i++) {
    const WireIn *in = &segment->ins.at[i];
    text_printf(out, "  in  %%%u %s", in->value, graph->values.at[in->value].name);
    put_type(graph, out, &graph->values.at[in->value]);
    text_printf(out, " wire %u", in->wire);
    if (in->carried != NO_ID) text_printf(out, " carried from out %u", in->carried);
    text_printf(out, "\n");
  }
  put_list(graph, out, "forward", segment->forward.at, segment->forward.count);
  put_list(graph, out, "input gradient", segment->input_grad.at, segment->input_grad.count);
  put_list(graph, out, "weight gradient", segment->weight_grad.at, segment->weight_grad.count);
  for (uint32_t i = 0; i < segment->outs.count; i++)
    text_printf(out, "  out %%%u %s wire %u\n", segment->outs.at[i].value,
                graph->values.at[segment->outs.at[i].value].name, segment->outs.at[i].wire);
}

void graph_print(const Graph *graph, Text *out) {
  text_printf(out, "model %s\n\n", graph->model ? graph->model : "?");
  for (Id i = 0; i < graph->axes.count; i++) {
    const Axis *axis = &graph->axes.at[i];
    if (!axis->name) continue;
    text_printf(out, "axis %s = %lld", axis->name, (long long)axis->size);
    if (axis->derivation) text_printf(out, " (%s)", axis->derivation);
    if (axis->mesh != MESH_NONE) text_printf(out, " over %s", mesh_name(axis->mesh));
    text_printf(out, i == graph->batch ? ", the batch\n" : "\n");
  }
  text_printf(out, "\n");
  for (Id i = 0; i < graph->data.count; i++)
    text_printf(out, "input %s %s%s\n", graph->data.at[i].name, graph->data.at[i].dtype == DT_I32 ? "i32" : "",
                axes_text(graph, graph->data.at[i].rank, graph->data.at[i].axes, true));
  for (Id i = 0; i < graph->params.count; i++) put_param(graph, out, &graph->params.at[i]);
  for (Id i = 0; i < graph->wires.count; i++) {
    const Wire *wire = &graph->wires.at[i];
    text_printf(out, "wire %u %s %s from %s\n", i, wire->name, axes_text(graph, wire->rank, wire->axes, false),
                graph->segments.at[wire->from].name);
  }
  for (Id i = 0; i < graph->segments.count; i++) put_segment(graph, out, &graph->segments.at[i]);
  text_printf(out, "\nloss ");
  put_value(graph, out, graph->loss);
  text_printf(out, "\n");
  for (uint32_t i = 0; i < graph->metrics.count; i++) {
    text_printf(out, "metric %s ", graph->metrics.at[i].name);
    put_value(graph, out, graph->metrics.at[i].value);
    text_printf(out, "\n");
  }
}
