/* Sums, means and extremes over named axes, einsum, and min and max of constants. */
#include <inttypes.h>
#include <string.h>

#include "semantic/operations.h"

/* The axes that are named after the tensor, as bits; without any, all of them. */
static bool reduced_axes(Call *call, Id x, unsigned *mask) {
  *mask = 0;
  for (uint32_t i = 0; i < call->rest_count; i++) {
    unsigned position = 0;
    if (!axis_arg(call, call->rest[i], x, &position)) return false;
    if (*mask & 1u << position) {
      fail(call, "E0312", call->rest[i]->span, "axis `%s` is given twice", source_of(call, call->rest[i]));
      return false;
    }
    *mask |= 1u << position;
  }
  if (!call->rest_count) *mask = (1u << value_at(call->sem, x)->rank) - 1;
  return true;
}

Val rule_sum(Call *call) {
  Sem *sem = call->sem;
  Val x = tensor_arg(call, 0);
  unsigned mask;
  if (x.kind == VAL_ERROR || !reduced_axes(call, x.value, &mask)) return val_error();
  if (!mask) return x;
  unsigned rank = value_at(sem, x.value)->rank;
  double count = 1;
  for (unsigned i = 0; i < rank; i++)
    if (mask & 1u << i) count *= (double)sem->graph->axes.at[value_at(sem, x.value)->axes[i]].size;
  return emit_sum(sem, call->expr->span, x.value, mask, call->row->name[0] == 'm' ? 1 / count : 1);
}

static Val negated(Sem *sem, Span span, Val x) {
  Id axes[MAX_RANK];
  if (x.kind == VAL_ERROR) return x;
  copy_axes(sem, x.value, axes);
  return emit(sem, OP_NEG, span, &x.value, 1, value_at(sem, x.value)->rank, axes);
}

/* The axes go last, and the largest along all of them is taken; the smallest is -max(-x). */
static Val extreme(Call *call, Val x) {
  Sem *sem = call->sem;
  Span span = call->expr->span;
  bool least = call->row->name[1] == 'i';
  unsigned mask;
  x = tensor_value(call, call->slot[0], x, DT_REAL);
  if (x.kind == VAL_ERROR || !reduced_axes(call, x.value, &mask)) return val_error();
  unsigned rank = value_at(sem, x.value)->rank, order[MAX_RANK], kept = 0, at = 0;
  if (!mask) return x;
  for (unsigned i = 0; i < rank; i++)
    if ((mask & 1u << i) && !whole_axis(call, value_at(sem, x.value)->axes[i], span)) return val_error();
  for (unsigned i = 0; i < rank; i++)
    if (!(mask & 1u << i)) order[at++] = i;
  kept = at;
  for (unsigned i = 0; i < rank; i++)
    if (mask & 1u << i) order[at++] = i;
  x = emit_permute(sem, span, x.value, order);
  if (least) x = negated(sem, span, x);
  if (x.kind == VAL_ERROR) return x;
  Id axes[MAX_RANK];
  copy_axes(sem, x.value, axes);
  Val y = emit(sem, OP_MAX, span, &x.value, 1, kept, axes);
  if (y.kind == VAL_ERROR) return y;
  op_of(sem, y)->integer[0] = rank - kept;
  return least ? negated(sem, span, y) : y;
}

Val rule_max(Call *call) {
  Val x = eval(call->sem, call->frame, call->slot[0]);
  if (x.kind == VAL_ERROR) return x;
  if (x.kind != VAL_NUMBER) return extreme(call, x);
  Const *args = ARENA_ARRAY(call->sem->arena, Const, call->rest_count + 1);
  args[0] = x.number;
  for (uint32_t i = 0; i < call->rest_count; i++)
    args[i + 1] = const_eval(call->sem, call->frame->unit, call->frame, call->rest[i]);
  return val_number(const_call(call->sem, call->expr, call->row->name, args, call->rest_count + 1));
}

Val rule_einsum(Call *call) {
  Sem *sem = call->sem;
  const Expr *first = call->slot[0];
  const Local *tensor = first->kind == EXPR_NAME ? find_local(call->frame, first->name.text) : NULL;
  if (tensor && tensor->value.kind == VAL_TENSOR)
    return fail(call, "E0310", first->span, "einsum starts with a string of labels, such as \"b n, n k -> b k\"");
  Const spec = const_eval(sem, call->frame->unit, call->frame, call->slot[0]);
  Val a = eval(sem, call->frame, call->slot[1]), b = val_error();
  if (call->slot[2]) b = eval(sem, call->frame, call->slot[2]);
  if (spec.kind == CONST_ERROR) return val_error();
  if (spec.kind != CONST_TEXT)
    return fail(call, "E0310", call->slot[0]->span, "einsum starts with a string of labels, not %s",
                const_kind_name(spec.kind));
  return einsum(sem, call->expr, call->slot[0], spec.text, a, call->slot[1], call->slot[2] ? &b : NULL, call->slot[2]);
}
