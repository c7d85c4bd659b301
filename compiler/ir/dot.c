/* The graph as a picture: --emit=dot, for Graphviz. A box for every segment, the operations of its forward pass in it,
 * wires between the boxes. Gradients are left out: they mirror the forward pass. */
#include "ir/ir.h"

static void put_quoted(Text *out, const char *text) {
  for (; *text; text++) {
    if (*text == '"' || *text == '\\') text_put(out, "\\", 1);
    text_put(out, text, 1);
  }
}

static const char *shape_of(const Graph *graph, const Value *value) {
  return axes_text(graph, value->rank, value->axes, false);
}

/* The node that stands for a value inside its segment; nothing for constants. */
static bool put_source(const Graph *graph, Text *out, Id segment, const Value *value) {
  switch (value->kind) {
  case VALUE_OP:
    text_printf(out, "op%u", value->source);
    return true;
  case VALUE_WIRE:
    text_printf(out, "in%u_%u", segment, value->source);
    return true;
  case VALUE_DATA:
    text_printf(out, "data%u", value->source);
    return true;
  case VALUE_PARAM:
    text_printf(out, "param%u", value->source);
    return true;
  case VALUE_CONST:
  case VALUE_GRAD:
    break;
  }
  (void)graph;
  return false;
}

static void put_op(const Graph *graph, Text *out, Id segment, Id id) {
  const Op *op = &graph->ops.at[id];
  text_printf(out, "    op%u [label=\"%s", id, op_name(op->kind));
  if (op->kind == OP_ALL_REDUCE) text_printf(out, " over %s", mesh_name((Mesh)op->integer[0]));
  if (op->kind == OP_ALL_GATHER) text_printf(out, " over tp");
  if (op->out_count && graph->values.at[op->out[0]].partial & PARTIAL_TP) text_printf(out, "\\npartial over tp");
  text_printf(out, "\"%s];\n", op->kind == OP_ALL_REDUCE || op->kind == OP_ALL_GATHER ? " style=filled fillcolor=lightsalmon" : "");
  for (unsigned k = 0; k < op->in_count; k++) {
    const Value *value = &graph->values.at[op->in[k]];
    if (value->kind == VALUE_CONST || value->kind == VALUE_GRAD) continue;
    text_printf(out, "    ");
    put_source(graph, out, segment, value);
    text_printf(out, " -> op%u [label=\"", id);
    put_quoted(out, value->kind == VALUE_OP ? shape_of(graph, value) : "");
    text_printf(out, "\"];\n");
  }
}

static void put_segment(const Graph *graph, Text *out, Id id) {
  const Segment *segment = &graph->segments.at[id];
  text_printf(out, "\n  subgraph cluster%u {\n    label=\"%s", id, segment->name);
  if (segment->trips != 1) text_printf(out, " x %lld", (long long)segment->trips);
  text_printf(out, "\";\n");
  for (uint32_t i = 0; i < segment->ins.count; i++) {
    const WireIn *in = &segment->ins.at[i];
    text_printf(out, "    in%u_%u [shape=point xlabel=\"", id, in->wire);
    put_quoted(out, graph->values.at[in->value].name);
    text_printf(out, "\"];\n");
  }
  for (uint32_t i = 0; i < segment->forward.count; i++) put_op(graph, out, id, segment->forward.at[i]);
  for (uint32_t i = 0; i < segment->ins.count; i++) {
    const WireIn *in = &segment->ins.at[i];
    if (in->carried == NO_ID) continue;
    text_printf(out, "    ");
    put_source(graph, out, id, &graph->values.at[segment->outs.at[in->carried].value]);
    text_printf(out, " -> in%u_%u [style=dashed constraint=false label=\"next trip\"];\n", id, in->wire);
  }
  text_printf(out, "  }\n");
}

/* From the segment that makes a wire to each that reads it. */
static void put_wires(const Graph *graph, Text *out) {
  for (Id s = 0; s < graph->segments.count; s++) {
    const Segment *segment = &graph->segments.at[s];
    for (uint32_t i = 0; i < segment->ins.count; i++) {
      const Wire *wire = &graph->wires.at[segment->ins.at[i].wire];
      const Segment *from = &graph->segments.at[wire->from];
      for (uint32_t k = 0; k < from->outs.count; k++) {
        if (from->outs.at[k].wire != segment->ins.at[i].wire) continue;
        text_printf(out, "  ");
        put_source(graph, out, wire->from, &graph->values.at[from->outs.at[k].value]);
        text_printf(out, " -> in%u_%u [penwidth=2 label=\"", s, segment->ins.at[i].wire);
        put_quoted(out, wire->name);
        text_printf(out, " ");
        put_quoted(out, axes_text(graph, wire->rank, wire->axes, false));
        text_printf(out, "\"];\n");
      }
    }
  }
}

void graph_dot(const Graph *graph, Text *out) {
  text_printf(out, "digraph \"");
  put_quoted(out, graph->model ? graph->model : "?");
  text_printf(out, "\" {\n  node [shape=box fontname=\"Helvetica\"];\n  edge [fontname=\"Helvetica\" fontsize=10];\n");
  for (Id i = 0; i < graph->data.count; i++) {
    text_printf(out, "  data%u [shape=parallelogram label=\"", i);
    put_quoted(out, graph->data.at[i].name);
    put_quoted(out, axes_text(graph, graph->data.at[i].rank, graph->data.at[i].axes, false));
    text_printf(out, "\"];\n");
  }
  for (Id i = 0; i < graph->params.count; i++) {
    const Param *param = &graph->params.at[i];
    if (!param->users.count) continue;
    text_printf(out, "  param%u [shape=ellipse%s label=\"", i, param->frozen ? " style=dashed" : "");
    put_quoted(out, param->name);
    text_printf(out, "\\n");
    put_quoted(out, axes_text(graph, param->rank, param->axes, false));
    text_printf(out, "\"];\n");
  }
  for (Id i = 0; i < graph->segments.count; i++) put_segment(graph, out, i);
  text_printf(out, "\n");
  put_wires(graph, out);
  text_printf(out, "}\n");
}
