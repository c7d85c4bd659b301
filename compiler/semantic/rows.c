/* Operations on single elements and on rows (the last axis): activations, norms, softmax, dropout. */
#include <inttypes.h>
#include <string.h>

#include "semantic/operations.h"

static Val fold(Call *call, Val number) {
  return val_number(const_call(call->sem, call->expr, call->row->name, &number.number, 1));
}

/* ---- element-wise functions of one operand ---- */

static Val unary(Call *call, OpKind kind) {
  Sem *sem = call->sem;
  Val x = eval(sem, call->frame, call->slot[0]);
  if (x.kind == VAL_NUMBER && is_const_function(call->row->name)) return fold(call, x);
  x = tensor_value(call, call->slot[0], x, DT_REAL);
  if (x.kind == VAL_ERROR) return x;
  Id axes[MAX_RANK];
  copy_axes(sem, x.value, axes);
  return emit(sem, kind, call->expr->span, &x.value, 1, value_at(sem, x.value)->rank, axes);
}

Val rule_unary(Call *call) {
  return unary(call, call->row->kind);
}

Val rule_gelu(Call *call) {
  OpKind kind = OP_GELU_TANH;
  const Expr *approximate = call->slot[1];
  if (approximate) {
    const char *text = approximate->kind == EXPR_NAME     ? approximate->name.text
                       : approximate->kind == EXPR_STRING ? approximate->string
                                                          : "";
    if (!strcmp(text, "none"))
      kind = OP_GELU_ERF;
    else if (strcmp(text, "tanh") != 0)
      return fail(call, "E0308", approximate->span, "`approximate` is tanh or none, not `%s`",
                  source_of(call, approximate));
  }
  return unary(call, kind);
}

/* ---- rows ---- */

Val rule_norm(Call *call) {
  Sem *sem = call->sem;
  double eps;
  Val x = tensor_arg(call, 0);
  if (!number_arg(call, 1, "eps", 1e-5, &eps) || x.kind == VAL_ERROR) return val_error();
  if (eps < 0) return fail_number(call, "E0308", call->slot[1]->span, "`eps` must not be negative");
  Id axes[MAX_RANK];
  copy_axes(sem, x.value, axes);
  unsigned rank = value_at(sem, x.value)->rank;
  if (!rank) return fail(call, "E0308", call->expr->span, "`%s` needs a tensor with axes", call->row->name);
  if (!whole_axis(call, axes[rank - 1], call->expr->span)) return val_error();
  Val y = emit(sem, call->row->kind, call->expr->span, &x.value, 1, rank, axes);
  if (y.kind == VAL_ERROR) return y;
  emit_more(sem, y, "rstd", rank - 1, axes);
  op_of(sem, y)->real[0] = eps;
  return y;
}

Val rule_softmax(Call *call) {
  Sem *sem = call->sem;
  Val x = tensor_arg(call, 0);
  if (x.kind == VAL_ERROR) return x;
  Id axes[MAX_RANK];
  copy_axes(sem, x.value, axes);
  unsigned rank = value_at(sem, x.value)->rank, last = rank - 1;
  if (!rank) return fail(call, "E0308", call->expr->span, "`softmax` needs a tensor with axes");
  if (call->slot[1]) {
    if (!axis_arg(call, call->slot[1], x.value, &last)) return val_error();
    if (last != rank - 1)
      return fail_number(call, "E0308", call->slot[1]->span, "`softmax` works along the last axis; transpose first");
  }
  if (!whole_axis(call, axes[rank - 1], call->expr->span)) return val_error();
  return emit(sem, OP_SOFTMAX, call->expr->span, &x.value, 1, rank, axes);
}

Val rule_dropout(Call *call) {
  Sem *sem = call->sem;
  double p;
  Val x = tensor_arg(call, 0);
  if (!number_arg(call, 1, "p", 0, &p) || x.kind == VAL_ERROR) return val_error();
  if (!(p >= 0 && p < 1))
    return fail_number(call, "E0308", call->slot[1]->span,
                       "`p` is the share that is dropped, from 0 to below 1, not %g", p);
  const char *purpose = naming_child(sem, call->frame->naming, "dropout");
  if (p == 0) return x;
  Id axes[MAX_RANK];
  copy_axes(sem, x.value, axes);
  if (!value_at(sem, x.value)->rank || axes[0] != sem->batch)
    return fail_number(call, "E0308", call->slot[0]->span,
                       "`dropout` needs a tensor that starts with the batch axis, and `%s` is %s",
                       source_of(call, call->slot[0]), shape_text(sem, x.value));
  Val y = emit(sem, OP_DROPOUT, call->expr->span, &x.value, 1, value_at(sem, x.value)->rank, axes);
  if (y.kind == VAL_ERROR) return y;
  op_of(sem, y)->real[0] = p;
  op_of(sem, y)->purpose = purpose;
  return y;
}
