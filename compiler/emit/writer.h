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
  /* cuda target */
  bool cuda;
  Text *device;               /* the .cu file's kernels and launchers */
  Text *prototypes;           /* of the launchers */
  VEC(const char *) launchers; /* that are defined */
  VEC(const char *) headers;   /* kernel families in use */
  VEC(pd_product) products;
  VEC(pd_attention) attentions; /* by cuDNN */
  unsigned kernels;           /* fused ones in this function */
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
/* C type of a value's elements in memory, and of those of parameters' gradients. */
const char *write_type(const Writer *w, Id value);
const char *write_gradient_type(const Writer *w);
/* Copies `elements` of `value`'s type. */
void write_copy(Writer *w, const char *to, const char *from, Id value);
/* Where parameter `param`'s gradient of this unit lies. */
const char *write_gradient(Writer *w, Id param);
int64_t write_elements(const Writer *w, Id value);
/* A number as a C constant of the real type. */
const char *write_number(Writer *w, double number);

/* calls.c: a call of a kernel, argument by argument, in the order of runtime/kernels/kernels.h. */
typedef struct Call {
  Writer *w;
  const char *name;
  Text arguments;                        /* as the call says them */
  Text parameters, inner, types, suffix; /* of the launcher */
  unsigned count, type_count;
} Call;
Call call_begin(Writer *w, const char *name);
void call_type(Call *call, const char *type); /* of elements; first of all */
void call_size(Call *call, int64_t size);
void call_width(Call *call, int64_t size); /* a size inside a row */
void call_real(Call *call, double number);
void call_flag(Call *call, bool flag);
void call_in(Call *call, Id value);
void call_out(Call *call, Id value);
void call_argument(Call *call, const char *type, const char *text);
void call_end(Call *call);

/* operations.c: one operation; loops.c: a fused run of element-wise ones; products.c: CONTRACT and SUM; images.c:
 * convolutions and pools, batch normalisation. */
void write_operation(Writer *w, Id op);
void write_fused(Writer *w, const Id *ops, uint32_t count);
void write_product(Writer *w, const Op *op);
void write_image(Writer *w, const Op *op);
void write_batchnorm(Writer *w, const Op *op);
void write_zeros(Writer *w, Id value);
/* attention.c: SDPA and its gradient, and the table of those by cuDNN. */
void write_attention(Writer *w, const Op *op);
void write_attentions(Writer *w);
/* The images that a convolution of the CUDA target lays out as columns at a time, in the space of kernels: a matrix
 * [rows, width] at its start, the places of all of them [filters, width] at byte places_at; bytes of both. */
typedef struct ImageGroup {
  int64_t images, rows, width, places_at, bytes;
} ImageGroup;
ImageGroup group_images(const Graph *graph, const Config *config, const Op *convolution);
/* `pd_multiply(f, &products[n], a, b, c);` of a packed product. */
void write_multiply(Writer *w, pd_product product, const char *a, const char *b, const char *c);
/* Whether an operation is one row-major product, which, and of which operands; its number in the program's table. */
bool find_plain_product(const Writer *w, const Op *op, pd_product *product, Id operands[2]);
uint32_t product_number(Writer *w, const pd_product *product);
/* epilogues.c: a product and the fused group behind it, `count` operations in all; returns count, or 0 if the group is no
 * epilogue and nothing was written. */
uint32_t write_fused_product(Writer *w, const Id *ops, uint32_t count);
/* Operation `sum` of a list of weight gradients may be the sum over rows of an operand of a product there, the gradient of
 * a row that was added to the product's result: the first such product for the first such sum, else NO_ID. */
Id find_product_of_row_sum(const Graph *graph, const IdVec *list, Id sum);
/* Product `op` and such a sum in one; false, and nothing written, if it has none. The sum is then not written at its own
 * place, which the other one tells. */
bool write_summing_product(Writer *w, const IdVec *list, Id op);
bool is_summed_by_product(const Writer *w, const IdVec *list, Id sum);
/* Type of what an operation writes, a gradient's accumulator or its result, and that as an argument. */
const char *write_target_type(const Writer *w, const Op *op);
void call_target(Call *call, const Op *op);
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
