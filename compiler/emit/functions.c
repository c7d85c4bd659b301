/* The functions of a segment: pointers to where everything lives, then the operations, each under its source line. */
#include <string.h>

#include "emit/writer.h"

const char *function_name(FunctionKind kind) {
  return kind == FUNCTION_FORWARD ? "forward" : kind == FUNCTION_INPUT_GRAD ? "input_grad" : "weight_grad";
}

/* `[batch, seq] = 4 x 16`: names and local sizes. */
static const char *shape_text(const Writer *w, const Value *value) {
  Text text = {.arena = w->input->arena};
  text_printf(&text, "%s", axes_text(w->graph, value->rank, value->axes, false));
  for (unsigned i = 0; i < value->rank; i++)
    text_printf(&text, "%s%lld", i ? " x " : " = ", (long long)axis_local(w->graph, w->config, value->axes[i]));
  return text.at;
}

static void declare(Writer *w, Id value, bool written) {
  Id root = w->memory->root[value];
  Home home = w->memory->home[root];
  if (w->names[root] || home.place == PLACE_NONE || home.place == PLACE_REGISTER) return;
  const Value *v = &w->graph->values.at[root];
  const char *name = write_name(w, root), *type = write_type(w, root);
  const char *from = "";
  Arena *arena = w->input->arena;
  switch (home.place) {
  case PLACE_IN: from = arena_printf(arena, "f->in[%u]", home.index); break;
  case PLACE_OUT: from = arena_printf(arena, "f->out[%u]", home.index); break;
  case PLACE_D_OUT: from = arena_printf(arena, "f->d_out[%u]", home.index); break;
  case PLACE_D_IN: from = arena_printf(arena, "f->d_in[%u]", home.index); break;
  case PLACE_ACT: from = arena_printf(arena, "(void *)((char *)f->act + %lld)", (long long)home.offset); break;
  case PLACE_STASH: from = arena_printf(arena, "(void *)((char *)f->stash + %lld)", (long long)home.offset); break;
  case PLACE_SCRATCH: from = arena_printf(arena, "(void *)((char *)f->scratch + %lld)", (long long)home.offset); break;
  case PLACE_WEIGHT: from = arena_printf(arena, "(const void *)((const char *)f->weights + %lld)", (long long)home.offset); break;
  case PLACE_SHARED: from = arena_printf(arena, "f->shared[%u]", home.index); break;
  case PLACE_DATA: from = arena_printf(arena, "f->data[%u]", home.index); break;
  default: break;
  }
  /* no `restrict`: memory is used again within a function; the loops say themselves that they may be vectorised */
  write_line(w, "%s%s *%s = %s; // %s", written ? "" : "const ", type, name, from, shape_text(w, v));
}

/* A comment with file, line and text of the source that an operation came from, when it differs from the one before. */
static void write_source(Writer *w, Span span) {
  if (span.file == UINT32_MAX) return;
  uint32_t line, column;
  diag_line_column(w->input->diagnostics, span, &line, &column);
  if (line == w->last_line) return;
  w->last_line = line;
  const Source *source = diag_source(w->input->diagnostics, span.file);
  size_t begin = span.begin, end = span.begin;
  while (begin > 0 && source->text[begin - 1] != '\n') begin--;
  while (end < source->length && source->text[end] != '\n') end++;
  while (begin < end && (source->text[begin] == ' ' || source->text[begin] == '\t')) begin++;
  Text text = {.arena = w->input->arena};
  for (size_t i = begin; i < end && i < begin + 100; i++) {
    char c = source->text[i];
    text_printf(&text, "%c", (unsigned char)c < 32 || c == '\\' ? ' ' : c);
  }
  const char *slash = strrchr(source->path, '/');
  write_line(w, "// %s:%u: %s", slash ? slash + 1 : source->path, line, text.at ? text.at : "");
}

static void declare_all(Writer *w, const IdVec *list) {
  const Segment *segment = &w->graph->segments.at[w->segment];
  bool *written = ARENA_ARRAY(w->input->arena, bool, w->graph->values.count);
  for (uint32_t i = 0; i < list->count; i++) {
    const Op *op = &w->graph->ops.at[list->at[i]];
    for (unsigned k = 0; k < op->out_count && op->accumulate == NO_ID; k++) written[w->memory->root[op->out[k]]] = true;
  }
  for (uint32_t i = 0; i < list->count; i++) {
    const Op *op = &w->graph->ops.at[list->at[i]];
    for (unsigned k = 0; k < op->in_count; k++) declare(w, op->in[k], written[w->memory->root[op->in[k]]]);
    for (unsigned k = 0; k < op->out_count && op->accumulate == NO_ID; k++) declare(w, op->out[k], true);
  }
  if (w->function == FUNCTION_FORWARD)
    for (uint32_t k = 0; k < segment->outs.count; k++) declare(w, segment->outs.at[k].value, false);
  if (w->function == FUNCTION_INPUT_GRAD)
    for (uint32_t k = 0; k < segment->ins.count; k++)
      if (segment->grads_out[k] != NO_ID) declare(w, segment->grads_out[k], false);
}

/* Values that must also leave by another buffer than their home. */
static void copy_out(Writer *w, Id value, Place place, uint32_t index, const char *array) {
  Home home = w->memory->home[value];
  if (home.place == place && home.index == index) return;
  write_copy(w, arena_printf(w->input->arena, "f->%s[%u]", array, index), write_name(w, value), value);
}

/* What a micro-batch adds to loss and metrics: `what` at `index`. */
static void write_result(Writer *w, unsigned index, Id value, const char *what) {
  if (w->graph->values.at[value].segment != w->segment) return;
  if (!w->cuda) {
    write_line(w, "f->results[%u] += (double)%s; // %s", index, write_scalar(w, value), what);
    return;
  }
  Call call = call_begin(w, "add_result");
  call_argument(&call, "const float *", write_name(w, value));
  call_argument(&call, "double *", arena_printf(w->input->arena, "f->results + %u", index));
  call_end(&call);
}

static void write_results(Writer *w) {
  const Graph *graph = w->graph;
  write_result(w, 0, graph->loss, "loss");
  for (uint32_t k = 0; k < graph->metrics.count; k++) write_result(w, k + 1, graph->metrics.at[k].value, graph->metrics.at[k].name);
}

static void write_function(Writer *w, FunctionKind kind) {
  const Segment *segment = &w->graph->segments.at[w->segment];
  const IdVec *list = segment_list(segment, kind);
  const uint32_t *group = w->memory->segments[w->segment].group[kind];
  w->function = kind;
  w->names = ARENA_ARRAY(w->input->arena, const char *, w->graph->values.count);
  w->taken.count = 0;
  w->last_line = 0;
  w->kernels = 0;
  write_line(w, "static void %s_%s(const pd_frame *f) {", segment->name, function_name(kind));
  size_t empty = w->out->length;
  declare_all(w, list);
  for (uint32_t i = 0; i < list->count;) {
    const Op *op = &w->graph->ops.at[list->at[i]];
    write_source(w, op->span);
    if (op_is_elementwise(op->kind) && op->accumulate == NO_ID) {
      uint32_t end = i + 1;
      while (end < list->count && group[end] == group[i]) end++;
      write_fused(w, list->at + i, end - i);
      i = end;
    } else {
      uint32_t end = i + 1; /* of the fused group behind it */
      while (end < list->count && group[end] == i + 1) end++;
      uint32_t written = w->cuda && op->kind == OP_CONTRACT && end > i + 1 && op_is_elementwise(w->graph->ops.at[list->at[i + 1]].kind) &&
                                 w->graph->ops.at[list->at[i + 1]].accumulate == NO_ID
                             ? write_fused_product(w, list->at + i, end - i)
                             : 0;
      if (!written && w->cuda && kind == FUNCTION_WEIGHT_GRAD)
        written = is_summed_by_product(w, list, list->at[i]) || write_summing_product(w, list, list->at[i]);
      if (!written) write_operation(w, list->at[i]);
      i += written ? written : 1;
    }
  }
  if (kind == FUNCTION_FORWARD) {
    for (uint32_t k = 0; k < segment->outs.count; k++) copy_out(w, segment->outs.at[k].value, PLACE_OUT, k, "out");
    const pd_program *program = w->input->program;
    if (program->logits_segment == (int)w->segment) {
      Id logits = NO_ID;
      for (uint32_t i = 0; i < list->count && logits == NO_ID; i++)
        if (w->graph->ops.at[list->at[i]].kind == OP_XENT) logits = w->graph->ops.at[list->at[i]].in[0];
      if (w->memory->home[logits].place != PLACE_ACT) {
        write_line(w, "if (!f->training) {");
        write_copy(w, arena_printf(w->input->arena, "(char *)f->act + %lld", (long long)program->logits_offset), write_name(w, logits), logits);
        write_line(w, "}");
      }
    }
    write_results(w);
  }
  if (kind == FUNCTION_INPUT_GRAD)
    for (uint32_t k = 0; k < segment->ins.count; k++)
      if (segment->grads_out[k] != NO_ID) copy_out(w, segment->grads_out[k], PLACE_D_IN, k, "d_in");
  if (w->out->length == empty) write_line(w, "(void)f; // nothing to do");
  write_line(w, "}");
  write_blank(w);
}

void write_functions(Writer *w, Id segment) {
  w->segment = segment;
  const Segment *s = &w->graph->segments.at[segment];
  uint32_t line = 0, column = 0;
  if (s->span.file != UINT32_MAX) diag_line_column(w->input->diagnostics, s->span, &line, &column);
  write_line(w, "/* %s: line %u, %lld %s */", s->name, line, (long long)s->trips, s->trips == 1 ? "trip" : "trips");
  for (FunctionKind kind = 0; kind < FUNCTION_KINDS; kind++) write_function(w, kind);
}
