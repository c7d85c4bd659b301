/* All-reduces and all-gathers stand in the graph; a cross-entropy over divided classes makes its own. */
#include "distribute/collectives.h"

static Collective of_value(const char *name, const Graph *graph, const Config *config, Id value) {
  return (Collective){.op = name,
                      .tensor = graph->values.at[value].name,
                      .bytes = value_bytes(graph, config, value),
                      .wide = value_is_wide(graph, value)};
}

int collectives_of(const Graph *graph, const Config *config, Id id, Collective out[2]) {
  const Op *op = &graph->ops.at[id];
  if (op->kind == OP_ALL_REDUCE && op->integer[0] == MESH_TP) {
    out[0] = of_value("all_reduce", graph, config, op->out[0]);
    return 1;
  }
  if (op->kind == OP_ALL_GATHER) {
    out[0] = of_value("all_gather", graph, config, op->out[0]);
    out[0].gathers = true;
    return 1;
  }
  if (op->kind != OP_XENT) return 0;
  const Value *in = &graph->values.at[op->in[0]];
  if (in->rank == 0 || !axis_is_split(graph, config, in->axes[in->rank - 1])) return 0;
  /* the maximum of every row, then the sum of exponentials and the target's logit in one */
  int64_t bytes =
      axes_local_elements(graph, config, in->rank - 1u, in->axes) * (config->compute == PRECISION_F64 ? 8 : 4);
  out[0] =
      (Collective){.op = "all_reduce_max", .tensor = graph->values.at[op->out[1]].name, .bytes = bytes, .wide = true};
  out[1] =
      (Collective){.op = "all_reduce", .tensor = graph->values.at[op->out[2]].name, .bytes = 2 * bytes, .wide = true};
  return 2;
}
