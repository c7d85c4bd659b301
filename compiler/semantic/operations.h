/* Between operations.c, which finds operations by name and binds their arguments, and the files with their typing
 * rules. A rule reads its arguments, checks them, and adds an operation to the draft. */
#ifndef PDC_SEMANTIC_OPERATIONS_H
#define PDC_SEMANTIC_OPERATIONS_H

#include "semantic/internal.h"

enum { MAX_SLOTS = 8, MAX_REST = 64 };

typedef struct Call { /* of an operation: its arguments by place */
  Sem *sem;
  Frame *frame;
  const Expr *expr;
  const struct Row *row;
  const Expr *slot[MAX_SLOTS]; /* in the order of the signature; NULL where not given */
  const Expr *rest[MAX_REST];  /* what `*` of the signature takes */
  uint32_t rest_count;
} Call;

typedef Val (*Rule)(Call *call);

typedef struct Row {
  const char *name, *signature;
  Rule rule;
  OpKind kind;
} Row;

/* ---- reading arguments: all report, and then return an error value or false ---- */

Val fail(Call *call, const char *code, Span span, const char *format, ...) __attribute__((format(printf, 4, 5)));
/* The same for an error that numbers decided: of_number. */
Val fail_number(Call *call, const char *code, Span span, const char *format, ...) __attribute__((format(printf, 4, 5)));
/* The source of an argument, for messages. */
const char *source_of(Call *call, const Expr *expr);
/* A tensor of this type; a number or anything else is an error. */
Val tensor_value(Call *call, const Expr *expr, Val value, DType dtype);
Val tensor_expr(Call *call, const Expr *expr, DType dtype);
Val tensor_arg(Call *call, unsigned slot); /* of reals */
/* The first argument, of reals, and the second, of integers; the wrong way round is one mistake. */
bool reals_and_integers(Call *call, Val *reals, Val *integers);
bool number_arg(Call *call, unsigned slot, const char *what, double fallback, double *result);
bool integer_arg(Call *call, unsigned slot, const char *what, int64_t fallback, int64_t *result);
bool bool_arg(Call *call, unsigned slot, const char *what, bool fallback, bool *result);
/* The position in a tensor of the axis that an argument names: a dim, a size, or a position (from the end if
 * negative). */
bool axis_arg(Call *call, const Expr *expr, Id tensor, unsigned *position);
/* Operations that work along an axis need all of it on one rank and in one micro-batch. */
bool whole_axis(Call *call, Id axis, Span span);
void copy_axes(Sem *sem, Id value, Id *axes);

/* ---- rules ---- */

Val rule_unary(Call *call);
Val rule_gelu(Call *call);
Val rule_norm(Call *call);
Val rule_softmax(Call *call);
Val rule_rope(Call *call);
Val rule_dropout(Call *call);
Val rule_gather(Call *call);
Val rule_sdpa(Call *call);
Val rule_transpose(Call *call);
Val rule_reshape(Call *call);
Val rule_slice(Call *call);
Val rule_split(Call *call);
Val rule_concat(Call *call);
Val rule_sum(Call *call);
Val rule_max(Call *call);
Val rule_einsum(Call *call);
Val rule_xent(Call *call);
Val rule_accuracy(Call *call);
Val rule_mse(Call *call);
Val rule_conv2d(Call *call);
Val rule_pool(Call *call);
Val rule_batchnorm(Call *call);

#endif
