/* The structured printer of C that all emission goes through, and the names of values inside one function. Private to
 * emit/. */
#ifndef PDC_EMIT_WRITER_H
#define PDC_EMIT_WRITER_H

#include "emit/emit.h"

typedef struct Writer {
  const EmitInput *input;
  const Graph *graph;
  const Config *config;
  const MemoryPlan *memory;
  Text *out;
  int indent;
  const char *real, *suffix; /* "float", "f32" */
  /* the function being written */
  Id segment;
  FunctionKind function;
  const char **names; /* per value: its C name in this function, NULL if not declared yet */
  VEC(const char *) taken;
  uint32_t last_line;
} Writer;

/* One line at the current depth; `{` and `}` at the end and start of lines move the depth. */
void write_line(Writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
void write_blank(Writer *w);

/* C text of a scalar value: a number, or `name[0]`. */
const char *write_scalar(Writer *w, Id value);
/* A C identifier from a person's name, unique in this function. */
const char *write_fresh(Writer *w, const char *wish);
/* C name of a value's memory (its root's). */
const char *write_name(Writer *w, Id value);
/* Where parameter `param`'s gradient of this unit lies. */
const char *write_gradient(Writer *w, Id param);
int64_t write_elements(const Writer *w, Id value);
/* A number as a C constant of the real type. */
const char *write_number(Writer *w, double number);

/* operations.c: one operation; loops.c: a fused run of element-wise ones; products.c: CONTRACT and SUM. */
void write_operation(Writer *w, Id op);
void write_fused(Writer *w, const Id *ops, uint32_t count);
void write_product(Writer *w, const Op *op);
void write_sum(Writer *w, const Op *op);
/* `const pd_view v = {…};` for labels with the given sizes and strides; returns its C name. */
typedef struct ViewAxis {
  int64_t size, out, a, b;
  bool samples; /* size is f->samples at run time */
} ViewAxis;
const char *write_view(Writer *w, const ViewAxis *axes, unsigned rank);

/* functions.c: the three functions of a segment; tables.c: the description as C initialisers. */
void write_functions(Writer *w, Id segment);
void write_tables(Writer *w);
const char *function_name(FunctionKind kind);

#endif
