/* Element-wise operations as loops: a run of operations on one shape is one loop, its inner results are locals. */
#include "emit/writer.h"

#include <ctype.h>
#include <string.h>

static const char *expression_of(OpKind kind) {
  switch (kind) {
#define OP(kind, name, what)
#define EW(kind, name, operands, expression) \
  case OP_##kind: return expression;
#include "ir/ops.def"
  default: return NULL;
  }
}

/* The operation's expression with its operands and the precision put in. */
static const char *fill_expression(Writer *w, OpKind kind, const char *a, const char *b) {
  Text out = {.arena = w->input->arena};
  const char *s = expression_of(kind);
  for (const char *p = s; *p;) {
    bool start = p == s || !(isalnum((unsigned char)p[-1]) || p[-1] == '_');
    bool end = !(isalnum((unsigned char)p[1]) || p[1] == '_');
    if (*p == 'a' && start && end) text_printf(&out, "%s", a);
    else if (*p == 'b' && start && end) text_printf(&out, "%s", b);
    else if (*p == 'S' && p > s && p[-1] == '_' && end) text_printf(&out, "%s", w->suffix);
    else text_put(&out, p, 1);
    p++;
  }
  return out.at;
}

static bool made_here(const Writer *w, const Id *ops, uint32_t count, Id value) {
  for (uint32_t i = 0; i < count; i++)
    if (w->graph->ops.at[ops[i]].out[0] == value) return true;
  return false;
}

void write_fused(Writer *w, const Id *ops, uint32_t count) {
  Arena *arena = w->input->arena;
  const Graph *graph = w->graph;
  int64_t total = write_elements(w, graph->ops.at[ops[0]].out[0]), cols = 0;
  bool by_rows = false;
  for (uint32_t i = 0; i < count; i++) {
    const Op *op = &graph->ops.at[ops[i]];
    for (unsigned k = 0; k < op->in_count; k++) {
      if (made_here(w, ops, i, op->in[k])) continue;
      Broadcast broadcast = operand_broadcast(graph, w->config, op, k, &cols);
      by_rows |= broadcast != BROADCAST_FULL && broadcast != BROADCAST_SCALAR;
      if (graph->values.at[op->in[k]].kind != VALUE_CONST) write_name(w, op->in[k]);
    }
  }
  if (!by_rows) cols = total;
  int64_t rows = cols ? total / cols : 0;
  const char *index = by_rows ? "r * COLS + c" : "c";
  if (by_rows) index = arena_printf(arena, "r * %lld + c", (long long)cols);
  if (by_rows) {
    if (total >= 32768) write_line(w, "#pragma omp parallel for");
    write_line(w, "for (int64_t r = 0; r < %lld; r++)", (long long)rows);
    w->indent++;
    write_line(w, "#pragma omp simd");
    write_line(w, "for (int64_t c = 0; c < %lld; c++) {", (long long)cols);
  } else {
    write_line(w, total >= 32768 ? "#pragma omp parallel for simd" : "#pragma omp simd");
    write_line(w, "for (int64_t c = 0; c < %lld; c++) {", (long long)total);
  }
  /* locals of the group, by operation */
  const char **local = ARENA_ARRAY(arena, const char *, count);
  for (uint32_t i = 0; i < count; i++) {
    const Op *op = &graph->ops.at[ops[i]];
    const char *operand[2] = {"", ""};
    for (unsigned k = 0; k < op->in_count; k++) {
      for (uint32_t j = 0; j < i; j++)
        if (graph->ops.at[ops[j]].out[0] == op->in[k]) operand[k] = local[j];
      if (operand[k][0]) continue;
      int64_t ignored = 0;
      Broadcast broadcast = operand_broadcast(graph, w->config, op, k, &ignored);
      if (broadcast == BROADCAST_SCALAR) operand[k] = write_scalar(w, op->in[k]);
      else
        operand[k] = arena_printf(arena, "%s[%s]", write_name(w, op->in[k]),
                                  broadcast == BROADCAST_FULL     ? index
                                  : broadcast == BROADCAST_ROW    ? "c"
                                  : broadcast == BROADCAST_COLUMN ? "r"
                                                                  : arena_printf(arena, "r %% %lld", (long long)write_elements(w, op->in[k])));
    }
    const char *value = fill_expression(w, op->kind, operand[0], operand[1]);
    Home home = w->memory->home[op->out[0]];
    bool stored = home.place != PLACE_REGISTER && home.place != PLACE_NONE;
    bool read_later = false;
    for (uint32_t j = i + 1; j < count; j++)
      for (unsigned k = 0; k < graph->ops.at[ops[j]].in_count; k++) read_later |= graph->ops.at[ops[j]].in[k] == op->out[0];
    if (!stored && !read_later) continue; /* nobody reads it */
    if (read_later) {
      local[i] = arena_printf(arena, "t%u", i);
      write_line(w, "const real %s = %s;", local[i], value);
      value = local[i];
    }
    if (stored) write_line(w, "%s[%s] = %s;", write_name(w, op->out[0]), index, value);
  }
  write_line(w, "}");
  if (by_rows) w->indent--;
}
