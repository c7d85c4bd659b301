/* `--emit=json`: the program as the compiler understood it, for other programs to read: axes, inputs, parameters, and
 * the operations of every segment. What --emit=ir shows to people; the plan says what is done with it. */
#include "artifact/artifact.h"
#include "artifact/json.h"

static void put_axes(Json *json, const Graph *graph, const char *key, unsigned rank, const Id *axes) {
  json_open_array(json, key);
  for (unsigned i = 0; i < rank; i++) {
    const Axis *axis = &graph->axes.at[axes[i]];
    if (axis->name)
      json_put_string(json, NULL, axis->name);
    else
      json_put_integer(json, NULL, axis->size);
  }
  json_close_array(json);
}

static void put_axis(Json *json, const Graph *graph, Id id) {
  const Axis *axis = &graph->axes.at[id];
  json_open_object(json, NULL);
  json_put_string(json, "name", axis->name);
  json_put_integer(json, "size", axis->size);
  if (axis->derivation) json_put_string(json, "derivation", axis->derivation);
  if (axis->mesh != MESH_NONE) json_put_string(json, "mesh", mesh_name(axis->mesh));
  if (id == graph->batch) json_put_bool(json, "batch", true);
  json_close_object(json);
}

static void put_input(Json *json, const Graph *graph, const Data *data) {
  json_open_object(json, NULL);
  json_put_string(json, "name", data->name);
  json_put_string(json, "type", data->dtype == DT_I32 ? "i32" : "real");
  put_axes(json, graph, "axes", data->rank, data->axes);
  json_close_object(json);
}

static void put_param(Json *json, const Graph *graph, const Param *param) {
  static const char *const inits[] = {"number", "normal", "uniform"};
  json_open_object(json, NULL);
  json_put_string(json, "name", param->name);
  put_axes(json, graph, "axes", param->rank, param->axes);
  json_open_object(json, "initial");
  json_put_string(json, "kind", inits[param->init.kind]);
  json_put_number(json, "a", param->init.a);
  if (param->init.kind == INIT_UNIFORM) json_put_number(json, "b", param->init.b);
  json_close_object(json);
  json_put_bool(json, "trained", !param->frozen && !param->statistic);
  json_put_bool(json, "decay", param->decay);
  json_put_bool(json, "per_trip", param->per_trip);
  json_open_array(json, "used_by");
  for (uint32_t i = 0; i < param->users.count; i++)
    json_put_string(json, NULL, graph->segments.at[param->users.at[i]].name);
  json_close_array(json);
  json_close_object(json);
}

/* An operand or result: which value, and what it is. */
static void put_value(Json *json, const Graph *graph, const char *key, Id id) {
  static const char *const kinds[] = {"result", "wire", "input", "parameter", "number", "gradient"};
  const Value *value = &graph->values.at[id];
  json_open_object(json, key);
  json_put_string(json, "from", kinds[value->kind]);
  if (value->kind == VALUE_CONST) {
    json_put_number(json, "number", value->number);
  } else {
    json_put_integer(json, "value", id);
    const char *name = value->kind == VALUE_PARAM ? graph->params.at[value->source].name : value->name;
    if (name) json_put_string(json, "name", name);
    put_axes(json, graph, "axes", value->rank, value->axes);
    if (value->partial & PARTIAL_TP) json_put_bool(json, "partial_tp", true);
    if (value->partial & PARTIAL_BATCH) json_put_bool(json, "partial_batch", true);
  }
  json_close_object(json);
}

static void put_operations(Json *json, const Graph *graph, const char *key, const IdVec *list) {
  json_open_array(json, key);
  for (uint32_t i = 0; i < list->count; i++) {
    const Op *op = &graph->ops.at[list->at[i]];
    json_open_object(json, NULL);
    json_put_string(json, "operation", op_name(op->kind));
    json_open_array(json, "operands");
    for (unsigned k = 0; k < op->in_count; k++) put_value(json, graph, NULL, op->in[k]);
    json_close_array(json);
    json_open_array(json, "results");
    for (unsigned k = 0; k < op->out_count; k++) put_value(json, graph, NULL, op->out[k]);
    json_close_array(json);
    if (op->accumulate != NO_ID) json_put_string(json, "gradient_of", graph->params.at[op->accumulate].name);
    json_close_object(json);
  }
  json_close_array(json);
}

static void put_segment(Json *json, const Graph *graph, const Segment *segment) {
  json_open_object(json, NULL);
  json_put_string(json, "name", segment->name);
  json_put_integer(json, "trips", segment->trips);
  json_open_array(json, "in");
  for (uint32_t i = 0; i < segment->ins.count; i++) put_value(json, graph, NULL, segment->ins.at[i].value);
  json_close_array(json);
  json_open_array(json, "out");
  for (uint32_t i = 0; i < segment->outs.count; i++) put_value(json, graph, NULL, segment->outs.at[i].value);
  json_close_array(json);
  put_operations(json, graph, "forward", &segment->forward);
  put_operations(json, graph, "input_gradient", &segment->input_grad);
  put_operations(json, graph, "weight_gradient", &segment->weight_grad);
  json_close_object(json);
}

void program_write(const Graph *graph, Text *out) {
  Json writer = {.out = out}, *json = &writer;
  json_open_object(json, NULL);
  json_put_string(json, "format", "pd-program");
  json_put_integer(json, "version", 1);
  json_put_string(json, "model", graph->model);
  json_open_array(json, "axes");
  for (Id i = 0; i < graph->axes.count; i++)
    if (graph->axes.at[i].name) put_axis(json, graph, i);
  json_close_array(json);
  json_open_array(json, "inputs");
  for (uint32_t i = 0; i < graph->data.count; i++) put_input(json, graph, &graph->data.at[i]);
  json_close_array(json);
  json_open_array(json, "parameters");
  for (uint32_t i = 0; i < graph->params.count; i++) put_param(json, graph, &graph->params.at[i]);
  json_close_array(json);
  json_open_array(json, "segments");
  for (uint32_t i = 0; i < graph->segments.count; i++) put_segment(json, graph, &graph->segments.at[i]);
  json_close_array(json);
  put_value(json, graph, "loss", graph->loss);
  json_open_object(json, "metrics");
  for (uint32_t i = 0; i < graph->metrics.count; i++)
    put_value(json, graph, graph->metrics.at[i].name, graph->metrics.at[i].value);
  json_close_object(json);
  json_close_object(json);
}
