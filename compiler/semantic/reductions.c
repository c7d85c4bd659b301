/* Sums and means over named axes, einsum, and min and max of constants. */
#include <inttypes.h>
#include <string.h>

#include "semantic/operations.h"

Val rule_sum(Call *call) {
  Sem *sem = call->sem;
  Val x = tensor_arg(call, 0);
  if (x.kind == VAL_ERROR) return x;
  unsigned rank = value_at(sem, x.value)->rank, mask = 0;
  for (uint32_t i = 0; i < call->rest_count; i++) {
    unsigned position = 0;
    if (!axis_arg(call, call->rest[i], x.value, &position)) return val_error();
    if (mask & 1u << position)
      return fail(call, "E0312", call->rest[i]->span, "axis `%s` is given twice", source_of(call, call->rest[i]));
    mask |= 1u << position;
  }
  if (!call->rest_count) mask = (1u << rank) - 1;
  if (!mask) return x;
  double count = 1;
  for (unsigned i = 0; i < rank; i++)
    if (mask & 1u << i) count *= (double)sem->graph->axes.at[value_at(sem, x.value)->axes[i]].size;
  return emit_sum(sem, call->expr->span, x.value, mask, call->row->name[0] == 'm' ? 1 / count : 1);
}

Val rule_max(Call *call) {
  Val x = eval(call->sem, call->frame, call->slot[0]);
  if (x.kind == VAL_ERROR) return x;
  if (x.kind == VAL_TENSOR)
    return fail(call, "E0921", call->expr->span, "this version has no `%s` over the axes of a tensor", call->row->name);
  Const *args = ARENA_ARRAY(call->sem->arena, Const, call->rest_count + 1);
  args[0] = x.number;
  for (uint32_t i = 0; i < call->rest_count; i++)
    args[i + 1] = const_eval(call->sem, call->frame->unit, call->frame, call->rest[i]);
  return val_number(const_call(call->sem, call->expr, call->row->name, args, call->rest_count + 1));
}

Val rule_einsum(Call *call) {
  Sem *sem = call->sem;
  Const spec = const_eval(sem, call->frame->unit, call->frame, call->slot[0]);
  Val a = eval(sem, call->frame, call->slot[1]), b = val_error();
  if (call->slot[2]) b = eval(sem, call->frame, call->slot[2]);
  if (spec.kind == CONST_ERROR) return val_error();
  if (spec.kind != CONST_TEXT)
    return fail(call, "E0310", call->slot[0]->span, "einsum starts with a string of labels, not %s",
                const_kind_name(spec.kind));
  return einsum(sem, call->expr, call->slot[0], spec.text, a, call->slot[1], call->slot[2] ? &b : NULL, call->slot[2]);
}
