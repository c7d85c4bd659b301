/* Losses and metrics: one number from a whole batch. */
#include <inttypes.h>
#include <string.h>

#include "semantic/operations.h"

static bool loss_targets(Call *call, Val logits, Val targets) {
  Sem *sem = call->sem;
  const Value *x = value_at(sem, logits.value), *t = value_at(sem, targets.value);
  if (t->kind != VALUE_DATA) {
    fail(call, "E0316", call->slot[1]->span, "the targets of `%s` must be an input of the model", call->row->name);
    return false;
  }
  bool fits = x->rank == t->rank + 1;
  unsigned at = 0;
  for (; fits && at < t->rank; at++)
    if (!same_axis(sem, x->axes[at], t->axes[at])) fits = false;
  if (fits) return true;
  Diag *diag = report(sem, "E0308", call->expr->span, "`%s` needs logits with the axes of the targets and one more",
                      call->row->name);
  diag_label(diag, call->slot[0]->span, "%s", shape_text(sem, logits.value));
  diag_label(diag, call->slot[1]->span, "%s", shape_text(sem, targets.value));
  axis_notes(sem, diag, x->rank, x->axes);
  axis_notes(sem, diag, t->rank, t->axes);
  if (x->rank == t->rank + 1) mismatch_help(sem, diag, x->axes[at - 1], t->axes[at - 1]);
  return false;
}

Val rule_xent(Call *call) {
  Sem *sem = call->sem;
  Val logits, targets;
  int64_t ignore;
  bool usable = reals_and_integers(call, &logits, &targets);
  if (!integer_arg(call, 2, "ignore", -100, &ignore) || !usable) return val_error();
  if (ignore < INT32_MIN || ignore > INT32_MAX)
    return fail_number(call, "E0308", call->slot[2]->span, "targets have 32 bits, and `ignore` is %" PRId64, ignore);
  if (!loss_targets(call, logits, targets)) return val_error();
  Data *data = &sem->graph->data.at[value_at(sem, targets.value)->source];
  Span said = call->slot[2] ? call->slot[2]->span : call->expr->span;
  if (data->ignores && data->ignored != ignore) {
    Diag *diag = report(sem, "E0921", said, "`%s` is ignored at %" PRId64 " here, and at %" PRId64 " by another `xent`",
                        data->name, ignore, data->ignored);
    diag_label(diag, data->ignored_span, "%" PRId64, data->ignored);
    diag_help(diag, "give both the same `ignore`, or each targets of its own");
    return val_error();
  }
  data->ignores = true;
  data->ignored = ignore;
  data->ignored_span = said;
  Id inputs[2] = {logits.value, targets.value}, axes[MAX_RANK + 1];
  unsigned rank = value_at(sem, targets.value)->rank;
  const Id *classes = &value_at(sem, logits.value)->axes[rank];
  if (*classes == sem->batch) return whole_axis(call, *classes, call->expr->span), val_error();
  Val loss = emit(sem, OP_XENT, call->expr->span, inputs, 2, 0, NULL);
  if (loss.kind == VAL_ERROR) return loss;
  axes[0] = anonymous_axis(sem, 2, NULL, call->expr->span);
  memcpy(axes + 1, value_at(sem, targets.value)->axes, rank * sizeof *axes);
  emit_more(sem, loss, "row_max", rank, axes + 1);
  emit_more(sem, loss, "sums", rank + 1, axes);
  return loss;
}

Val rule_accuracy(Call *call) {
  Sem *sem = call->sem;
  Val logits, targets;
  if (!reals_and_integers(call, &logits, &targets) || !loss_targets(call, logits, targets)) return val_error();
  const Value *x = value_at(sem, logits.value);
  if (!whole_axis(call, x->axes[x->rank - 1], call->expr->span)) return val_error();
  Id inputs[2] = {logits.value, targets.value};
  return emit(sem, OP_ACCURACY, call->expr->span, inputs, 2, 0, NULL);
}

Val rule_mse(Call *call) {
  Sem *sem = call->sem;
  Val a = tensor_arg(call, 0), b = tensor_arg(call, 1);
  if (a.kind == VAL_ERROR || b.kind == VAL_ERROR) return val_error();
  const Value *x = value_at(sem, a.value), *y = value_at(sem, b.value);
  bool fits = x->rank == y->rank;
  unsigned at = 0;
  for (; fits && at < x->rank; at++) fits = same_axis(sem, x->axes[at], y->axes[at]);
  if (!fits) {
    Diag *diag = report(sem, "E0308", call->expr->span, "`mse` needs two tensors of the same shape");
    diag_label(diag, call->slot[0]->span, "%s", shape_text(sem, a.value));
    diag_label(diag, call->slot[1]->span, "%s", shape_text(sem, b.value));
    axis_notes(sem, diag, x->rank, x->axes);
    axis_notes(sem, diag, y->rank, y->axes);
    if (x->rank == y->rank) mismatch_help(sem, diag, x->axes[at - 1], y->axes[at - 1]);
    return val_error();
  }
  Id inputs[2] = {a.value, b.value};
  return emit(sem, OP_MSE, call->expr->span, inputs, 2, 0, NULL);
}
