/* Local sizes: what one rank holds of a tensor in one micro-batch. */
#ifndef PDC_IR_SIZES_H
#define PDC_IR_SIZES_H

#include "ir/ir.h"
#include "semantic/semantic.h"

/* The axis is divided among more than one tensor-parallel rank. */
static inline bool axis_is_split(const Graph *graph, const Config *config, Id axis) {
  return graph->axes.at[axis].mesh == MESH_TP && config->tp > 1;
}

/* Positions of an axis on one rank: the batch axis has `microbatch`, a split axis its share. */
static inline int64_t axis_local(const Graph *graph, const Config *config, Id axis) {
  if (axis == graph->batch) return config->microbatch;
  return axis_is_split(graph, config, axis) ? graph->axes.at[axis].size / config->tp : graph->axes.at[axis].size;
}

static inline int64_t axes_local_elements(const Graph *graph, const Config *config, unsigned rank, const Id *axes) {
  int64_t elements = 1;
  for (unsigned k = 0; k < rank; k++) elements *= axis_local(graph, config, axes[k]);
  return elements;
}

static inline int64_t value_local_elements(const Graph *graph, const Config *config, Id value) {
  const Value *v = &graph->values.at[value];
  return axes_local_elements(graph, config, v->rank, v->axes);
}

/* Bytes of an element of the compute precision. */
static inline int real_bytes(const Config *config) {
  if (config->compute == PRECISION_BF16 && config->target == TARGET_CUDA) return 2;
  return config->compute == PRECISION_F64 ? 8 : 4;
}

static inline int64_t value_bytes(const Graph *graph, const Config *config, Id value) {
  int item = graph->values.at[value].dtype == DT_I32 ? 4 : real_bytes(config);
  if (item < 4 && value_is_wide(graph, value)) item = 4;
  return value_local_elements(graph, config, value) * item;
}

#endif
