/* Lines, names and numbers of emitted C. */
#include "emit/writer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void write_blank(Writer *w) {
  text_put(w->out, "\n", 1);
}

void write_line(Writer *w, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const char *line = arena_vprintf(w->input->arena, format, arguments);
  va_end(arguments);
  if (line[0] == '}') w->indent--;
  if (line[0] != '#') text_printf(w->out, "%*s", 2 * w->indent, "");
  text_printf(w->out, "%s\n", line);
  size_t length = strlen(line);
  if (length && line[length - 1] == '{') w->indent++;
}

const char *write_number(Writer *w, double number) {
  char digits[40];
  if (isinf(number)) return number > 0 ? "INFINITY" : "-INFINITY";
  for (int precision = 1; precision <= 17; precision++) {
    snprintf(digits, sizeof digits, "%.*g", precision, number);
    if (strtod(digits, NULL) == number) break;
  }
  bool plain = !strpbrk(digits, ".e");
  return arena_printf(w->input->arena, "%s%s%s", digits, plain ? ".0" : "", w->suffix[1] == '3' ? "f" : "");
}

int64_t write_elements(const Writer *w, Id value) {
  return value_local_elements(w->graph, w->config, value);
}

const char *write_scalar(Writer *w, Id value) {
  const Value *v = &w->graph->values.at[value];
  if (v->kind == VALUE_CONST) return write_number(w, v->number);
  return arena_printf(w->input->arena, "%s[0]", write_name(w, value));
}

const char *write_gradient_type(const Writer *w) {
  return w->cuda ? "float" : "real";
}

const char *write_type(const Writer *w, Id value) {
  Id root = w->memory->root[value];
  if (w->graph->values.at[root].dtype == DT_I32) return "int32_t";
  return w->cuda && value_is_wide(w->graph, root) ? "float" : "real";
}

void write_copy(Writer *w, const char *to, const char *from, Id value) {
  const char *type = write_type(w, value);
  if (w->cuda) write_line(w, "pd_move(f, %s, %s, %lld * (int64_t)sizeof(%s));", to, from, (long long)write_elements(w, value), type);
  else write_line(w, "memcpy(%s, %s, %lld * sizeof(%s));", to, from, (long long)write_elements(w, value), type);
}

const char *write_gradient(Writer *w, Id param) {
  const Param *p = &w->graph->params.at[param];
  Arena *arena = w->input->arena;
  const char *type = write_gradient_type(w);
  if (p->segment == w->segment) {
    int64_t offset = w->memory->param_offset[param];
    return offset ? arena_printf(arena, "(%s *)f->gradients + %lld", type, (long long)offset)
                  : arena_printf(arena, "(%s *)f->gradients", type);
  }
  const IdVec *shared = &w->memory->segments[w->segment].shared;
  for (uint32_t k = 0; k < shared->count; k++)
    if (shared->at[k] == param) return arena_printf(arena, "(%s *)f->shared_gradients[%u]", type, k);
  return "NULL"; /* graph_verify excludes a parameter used by a segment that does not list it */
}

static bool is_word(const char *name) {
  static const char *const words[] = {"auto",   "break",    "case",   "char",   "const",    "continue", "default", "do",
                                      "double", "else",     "enum",   "extern", "float",    "for",      "goto",    "if",
                                      "inline", "int",      "long",   "real",   "register", "restrict", "return",  "short",
                                      "signed", "sizeof",   "static", "struct", "switch",   "typedef",  "union",   "unsigned",
                                      "void",   "volatile", "while",  "f",      "K",        "i",        "r",       "c",
                                      "bool",   "true",     "false",  "NULL",   "view",     "at",       "main",    "exp",
                                      "log",    "sqrt",     "tanh",   "y0",     "y1",       "j0",       "j1",      "jn",
                                      "yn",     "gamma",    "index",  "unix",   "linux",    "key",      "n",
                                      /* of C++, for kernels */
                                      "alignas", "and",     "asm",    "catch",  "class",    "concept",  "constexpr", "delete",
                                      "export", "explicit", "friend", "mutable", "namespace", "new",    "not",     "operator",
                                      "or",     "private",  "protected", "public", "requires", "stream", "template", "this",
                                      "k",      "throw",  "try",      "typename", "using", "virtual", "xor",      "dim3",    "half"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcmp(words[i], name) == 0) return true;
  return false;
}

const char *write_fresh(Writer *w, const char *wish) {
  char base[64] = "";
  size_t length = 0;
  for (const char *s = wish ? wish : "t"; *s && length < 40; s++) {
    bool word = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || *s == '_' || (length && *s >= '0' && *s <= '9');
    base[length++] = word ? *s : '_';
  }
  base[length] = 0;
  if (!length) strcpy(base, "t");
  const char *name = arena_strdup(w->input->arena, base);
  for (unsigned n = 2;; n++) {
    bool used = is_word(name);
    for (uint32_t i = 0; i < w->taken.count; i++) used |= strcmp(w->taken.at[i], name) == 0;
    if (!used) break;
    name = arena_printf(w->input->arena, "%s_%u", base, n);
  }
  vec_push(w->input->arena, &w->taken, name);
  return name;
}

const char *write_name(Writer *w, Id value) {
  Id root = w->memory->root[value];
  if (w->names[root]) return w->names[root];
  const Value *v = &w->graph->values.at[root];
  if (v->kind == VALUE_CONST) { /* a kernel wants it in memory */
    w->names[root] = write_fresh(w, "constant");
    unsigned index = 0; /* among the graph's constants: describe.c */
    for (Id k = 0; k < root; k++) index += w->graph->values.at[k].kind == VALUE_CONST;
    if (w->cuda) write_line(w, "const float *%s = f->constants + %u; // %s", w->names[root], index, write_number(w, v->number));
    else write_line(w, "const real %s[1] = {%s};", w->names[root], write_number(w, v->number));
    return w->names[root];
  }
  const char *wish = v->kind == VALUE_PARAM  ? w->graph->params.at[v->source].name
                     : v->kind == VALUE_DATA ? w->graph->data.at[v->source].name
                                             : v->name;
  if (v->kind == VALUE_PARAM && strstr(wish, "{}.")) wish = strstr(wish, "{}.") + 3; /* the layer's own name is enough */
  return w->names[root] = write_fresh(w, wish);
}

const char *write_view(Writer *w, const ViewAxis *axes, unsigned rank) {
  Arena *arena = w->input->arena;
  Text size = {.arena = arena}, out = {.arena = arena}, a = {.arena = arena}, b = {.arena = arena};
  for (unsigned k = 0; k < rank; k++) {
    const char *comma = k ? ", " : "";
    if (axes[k].samples) text_printf(&size, "%sf->samples", comma);
    else text_printf(&size, "%s%lld", comma, (long long)axes[k].size);
    text_printf(&out, "%s%lld", comma, (long long)axes[k].out);
    text_printf(&a, "%s%lld", comma, (long long)axes[k].a);
    text_printf(&b, "%s%lld", comma, (long long)axes[k].b);
  }
  const char *name = write_fresh(w, "view");
  if (rank == 0) write_line(w, "const pd_view %s = {.rank = 0};", name);
  else
    write_line(w, "const pd_view %s = {.rank = %u, .size = {%s}, .out = {%s}, .a = {%s}, .b = {%s}};", name, rank, size.at,
               out.at, a.at, b.at);
  return name;
}
