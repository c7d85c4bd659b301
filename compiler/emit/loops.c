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

/* A group and how its elements are reached. */
typedef struct Loop {
  Writer *w;
  const Id *ops;
  uint32_t count;
  const char *index; /* of an element */
  const struct Pack *packs; /* CUDA: registers of the elements that a thread works on; NULL: it works on one */
  uint32_t pack_count;
} Loop;

/* Neighbouring elements of one tensor in registers, read or written in one access: those at the index of the result, or
 * those of the row that all rows share. */
typedef struct Pack {
  Id root;
  bool row, read, written;
  const char *name;
} Pack;

static const Pack *pack_of(const Loop *loop, Id value, bool row) {
  for (uint32_t i = 0; i < loop->pack_count; i++)
    if (loop->packs[i].root == loop->w->memory->root[value] && loop->packs[i].row == row) return &loop->packs[i];
  return NULL;
}

static const char *operand_text(const Loop *loop, const Op *op, unsigned k) {
  Writer *w = loop->w;
  int64_t ignored = 0;
  Broadcast broadcast = operand_broadcast(w->graph, w->config, op, k, &ignored);
  bool number = w->graph->values.at[op->in[k]].kind == VALUE_CONST;
  if (number || (broadcast == BROADCAST_SCALAR && !w->cuda)) return write_scalar(w, op->in[k]);
  const Pack *pack = broadcast == BROADCAST_FULL || broadcast == BROADCAST_ROW ? pack_of(loop, op->in[k], broadcast == BROADCAST_ROW) : NULL;
  if (pack) return arena_printf(w->input->arena, "%s[k]", pack->name);
  const char *index = loop->index;
  if (broadcast == BROADCAST_SCALAR) index = "0";
  else if (broadcast == BROADCAST_ROW) index = "c";
  else if (broadcast == BROADCAST_COLUMN) index = "r";
  else if (broadcast != BROADCAST_FULL) index = arena_printf(w->input->arena, "r %% %lld", (long long)write_elements(w, op->in[k]));
  const char *form = w->cuda ? "pd_load(%s + %s)" : "%s[%s]";
  if (w->cuda && strchr(index, ' ')) form = "pd_load(%s + (%s))";
  return arena_printf(w->input->arena, form, write_name(w, op->in[k]), index);
}

static bool is_stored(const Writer *w, const Op *op) {
  Home home = w->memory->home[op->out[0]];
  return home.place != PLACE_REGISTER && home.place != PLACE_NONE;
}

/* Each result that somebody needs, in order: in a local if the group reads it later, in its memory if it has any. */
static void write_body(const Loop *loop) {
  Writer *w = loop->w;
  const Graph *graph = w->graph;
  Arena *arena = w->input->arena;
  const char **local = ARENA_ARRAY(arena, const char *, loop->count); /* of the group, by operation */
  for (uint32_t i = 0; i < loop->count; i++) {
    const Op *op = &graph->ops.at[loop->ops[i]];
    const char *operand[2] = {"", ""};
    for (unsigned k = 0; k < op->in_count; k++) {
      for (uint32_t j = 0; j < i; j++)
        if (graph->ops.at[loop->ops[j]].out[0] == op->in[k]) operand[k] = local[j];
      if (!operand[k] || !operand[k][0]) operand[k] = operand_text(loop, op, k);
    }
    const char *value = fill_expression(w, op->kind, operand[0], operand[1]);
    bool read_later = false;
    for (uint32_t j = i + 1; j < loop->count; j++)
      for (unsigned k = 0; k < graph->ops.at[loop->ops[j]].in_count; k++) read_later |= graph->ops.at[loop->ops[j]].in[k] == op->out[0];
    if (!is_stored(w, op) && !read_later) continue; /* nobody reads it */
    if (read_later) {
      local[i] = arena_printf(arena, "t%u", i);
      write_line(w, "const %s %s = %s;", w->cuda ? "float" : "real", local[i], value);
      value = local[i];
    }
    if (!is_stored(w, op)) continue;
    const Pack *pack = pack_of(loop, op->out[0], false);
    if (pack) write_line(w, "%s[k] = %s;", pack->name, value);
    else if (w->cuda) write_line(w, "pd_store(%s + i, %s);", write_name(w, op->out[0]), value);
    else write_line(w, "%s[%s] = %s;", write_name(w, op->out[0]), loop->index, value);
  }
}

typedef struct Shape {
  int64_t rows, cols;
  bool by_rows, reads_rows, reads_cols; /* some operand has one element a row or a column */
} Shape;

/* How the group walks its elements. Declares what it reads. */
static Shape shape_of(Writer *w, const Id *ops, uint32_t count) {
  const Graph *graph = w->graph;
  int64_t total = write_elements(w, graph->ops.at[ops[0]].out[0]), cols = 0;
  bool rows = false, columns = false;
  for (uint32_t i = 0; i < count; i++) {
    const Op *op = &graph->ops.at[ops[i]];
    for (unsigned k = 0; k < op->in_count; k++) {
      if (made_here(w, ops, i, op->in[k])) continue;
      Broadcast broadcast = operand_broadcast(graph, w->config, op, k, &cols);
      columns |= broadcast == BROADCAST_ROW;
      rows |= broadcast != BROADCAST_ROW && broadcast != BROADCAST_FULL && broadcast != BROADCAST_SCALAR;
      if (graph->values.at[op->in[k]].kind != VALUE_CONST) write_name(w, op->in[k]);
    }
  }
  bool by_rows = rows || columns;
  if (!by_rows) cols = total;
  return (Shape){cols ? total / cols : 0, cols, by_rows, rows, columns};
}

static void write_host_loop(Writer *w, const Id *ops, uint32_t count) {
  Shape shape = shape_of(w, ops, count);
  int64_t total = shape.rows * shape.cols;
  const char *index = shape.by_rows ? arena_printf(w->input->arena, "r * %lld + c", (long long)shape.cols) : "c";
  if (shape.by_rows) {
    if (total >= 32768) write_line(w, "#pragma omp parallel for");
    write_line(w, "for (int64_t r = 0; r < %lld; r++)", (long long)shape.rows);
    w->indent++;
    write_line(w, "#pragma omp simd");
  } else {
    write_line(w, total >= 32768 ? "#pragma omp parallel for simd" : "#pragma omp simd");
  }
  write_line(w, "for (int64_t c = 0; c < %lld; c++) {", (long long)shape.cols);
  write_body(&(Loop){.w = w, .ops = ops, .count = count, .index = index});
  write_line(w, "}");
  if (shape.by_rows) w->indent--;
}

/* ---- CUDA: one kernel a group ---- */

typedef struct Pointer {
  Id root;
  bool written;
} Pointer;
typedef VEC(Pointer) Pointers;

static void add_pointer(const Writer *w, Pointers *pointers, Id value, bool written) {
  Id root = w->memory->root[value];
  for (uint32_t i = 0; i < pointers->count; i++)
    if (pointers->at[i].root == root) {
      pointers->at[i].written |= written;
      return;
    }
  vec_push(w->input->arena, pointers, (Pointer){root, written});
}

static Pointers pointers_of(const Writer *w, const Id *ops, uint32_t count) {
  Pointers pointers = {0};
  for (uint32_t i = 0; i < count; i++) {
    const Op *op = &w->graph->ops.at[ops[i]];
    for (unsigned k = 0; k < op->in_count; k++)
      if (!made_here(w, ops, i, op->in[k]) && w->graph->values.at[op->in[k]].kind != VALUE_CONST) add_pointer(w, &pointers, op->in[k], false);
    if (is_stored(w, op)) add_pointer(w, &pointers, op->out[0], true);
  }
  return pointers;
}

typedef VEC(Pack) Packs;

static void add_pack(Writer *w, Packs *packs, Id value, bool row, bool written) {
  Id root = w->memory->root[value];
  Pack *found = NULL;
  for (uint32_t i = 0; i < packs->count; i++)
    if (packs->at[i].root == root && packs->at[i].row == row) found = &packs->at[i];
  if (!found) {
    const char *name = write_fresh(w, arena_printf(w->input->arena, "%s_%s", write_name(w, root), row ? "row" : "pack"));
    vec_push(w->input->arena, packs, (Pack){root, row, false, false, name});
    found = &packs->at[packs->count - 1];
  }
  if (written) found->written = true;
  else found->read = true;
}

static Packs packs_of(Writer *w, const Id *ops, uint32_t count) {
  Packs packs = {0};
  for (uint32_t i = 0; i < count; i++) {
    const Op *op = &w->graph->ops.at[ops[i]];
    for (unsigned k = 0; k < op->in_count; k++) {
      int64_t ignored = 0;
      if (made_here(w, ops, i, op->in[k]) || w->graph->values.at[op->in[k]].kind == VALUE_CONST) continue;
      Broadcast broadcast = operand_broadcast(w->graph, w->config, op, k, &ignored);
      if (broadcast == BROADCAST_FULL || broadcast == BROADCAST_ROW) add_pack(w, &packs, op->in[k], broadcast == BROADCAST_ROW, false);
    }
    if (is_stored(w, op)) add_pack(w, &packs, op->out[0], false, true);
  }
  return packs;
}

/* How many elements a thread takes: as many as an access of 16 bytes has, in whole packs of a row. */
static int lanes_of(const Writer *w, const Shape *shape, const Pointers *pointers) {
  int lanes = 16 / real_bytes(w->config);
  for (uint32_t i = 0; i < pointers->count; i++)
    if (strcmp(write_type(w, pointers->at[i].root), "float") == 0 && lanes > 4) lanes = 4;
  while (shape->cols % lanes != 0) lanes /= 2;
  return lanes;
}

static void write_packed(Writer *w, const Id *ops, uint32_t count, int lanes) {
  Packs packs = packs_of(w, ops, count);
  for (uint32_t i = 0; i < packs.count; i++) {
    const Pack *pack = &packs.at[i];
    write_line(w, "float %s[%d];", pack->name, lanes);
    if (pack->read) write_line(w, "pd_load_pack(%s + %s, %s);", write_name(w, pack->root), pack->row ? "c" : "i", pack->name);
  }
  write_line(w, "PD_UNROLL(%d)", lanes);
  write_line(w, "for (int k = 0; k < %d; k++) {", lanes);
  write_body(&(Loop){.w = w, .ops = ops, .count = count, .index = "i", .packs = packs.at, .pack_count = packs.count});
  write_line(w, "}");
  for (uint32_t i = 0; i < packs.count; i++)
    if (packs.at[i].written) write_line(w, "pd_store_pack(%s + i, %s);", write_name(w, packs.at[i].root), packs.at[i].name);
}

static void write_kernel(Writer *w, const Id *ops, uint32_t count) {
  Arena *arena = w->input->arena;
  Shape shape = shape_of(w, ops, count);
  Pointers pointers = pointers_of(w, ops, count);
  int64_t total = shape.rows * shape.cols;
  int lanes = lanes_of(w, &shape, &pointers);
  const char *name = arena_printf(arena, "%s_%s_%u", w->graph->segments.at[w->segment].name, function_name(w->function), w->kernels++);
  Text parameters = {.arena = arena}, arguments = {.arena = arena};
  for (uint32_t i = 0; i < pointers.count; i++) {
    const char *pointer = write_name(w, pointers.at[i].root);
    text_printf(&parameters, ", %s%s *%s", pointers.at[i].written ? "" : "const ", write_type(w, pointers.at[i].root), pointer);
    text_printf(&arguments, ", %s", pointer);
  }
  Text *host = w->out;
  int indent = w->indent;
  w->out = w->device;
  w->indent = 0;
  write_line(w, "__global__ void __launch_bounds__(256) %s(%s) {", name, parameters.at + 2);
  if (lanes > 1) write_line(w, "const int64_t i = ((int64_t)blockIdx.x * 256 + threadIdx.x) * %d;", lanes);
  else write_line(w, "const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;");
  write_line(w, "if (i >= %lld) return;", (long long)total);
  if (shape.reads_rows) write_line(w, "const int64_t r = i / %lld;", (long long)shape.cols);
  if (shape.reads_cols) write_line(w, "const int64_t c = i %% %lld;", (long long)shape.cols);
  if (lanes > 1) write_packed(w, ops, count, lanes);
  else write_body(&(Loop){.w = w, .ops = ops, .count = count, .index = "i"});
  write_line(w, "}");
  write_line(w, "extern \"C\" void launch_%s(cudaStream_t stream%s) {", name, parameters.at);
  write_line(w, "PD_LAUNCH(%s, %lld, 256, 0, stream%s);", name, (long long)((total / lanes + 255) / 256), arguments.at);
  write_line(w, "}");
  w->out = host;
  w->indent = indent;
  text_printf(w->prototypes, "void launch_%s(cudaStream_t stream%s);\n", name, parameters.at);
  write_line(w, "launch_%s(f->stream%s);", name, arguments.at);
}

void write_fused(Writer *w, const Id *ops, uint32_t count) {
  if (w->cuda) write_kernel(w, ops, count);
  else write_host_loop(w, ops, count);
}
