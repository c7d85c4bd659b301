/* Convolutions and what goes with them: their operands are checked, and no back end of this version has them. */
#include <inttypes.h>
#include <string.h>

#include "semantic/operations.h"

static Val no_convolution(Call *call) {
  return fail(call, "E0920", call->expr->span, "this version does not compile convolutions: `%s`", call->row->name);
}

static bool image(Call *call, Val x) {
  if (x.kind == VAL_ERROR) return false;
  if (value_at(call->sem, x.value)->rank == 4) return true;
  fail(call, "E0308", call->slot[0]->span, "`%s` needs [batch, channels, height, width], and `%s` is %s",
       call->row->name, source_of(call, call->slot[0]), shape_text(call->sem, x.value));
  return false;
}

Val rule_conv2d(Call *call) {
  Sem *sem = call->sem;
  Val x = tensor_arg(call, 0), f = tensor_arg(call, 1);
  int64_t stride, pad;
  if (!integer_arg(call, 2, "stride", 1, &stride) || !integer_arg(call, 3, "pad", 0, &pad) || !image(call, x) ||
      f.kind == VAL_ERROR)
    return val_error();
  if (stride < 1 || pad < 0) return fail(call, "E0308", call->expr->span, "`conv2d` needs stride >= 1 and pad >= 0");
  const Value *v = value_at(sem, x.value), *filter = value_at(sem, f.value);
  if (filter->rank != 4)
    return fail(call, "E0308", call->slot[1]->span, "`conv2d` needs a filter [out, in, k, k], and `%s` is %s",
                source_of(call, call->slot[1]), shape_text(sem, f.value));
  if (!same_axis(sem, v->axes[1], filter->axes[1]))
    return fail(call, "E0308", call->expr->span, "`conv2d`: the image has %s channels, the filter takes %s",
                axis_text(sem, v->axes[1]), axis_text(sem, filter->axes[1]));
  for (unsigned i = 2; i < 4; i++) {
    int64_t size = sem->graph->axes.at[v->axes[i]].size, k = sem->graph->axes.at[filter->axes[i]].size;
    if (pad < (int64_t)1 << 31 && size + 2 * pad < k)
      return fail(call, "E0308", call->expr->span, "`conv2d`: a filter of %" PRId64 " on %s", k,
                  axis_text(sem, v->axes[i]));
  }
  return no_convolution(call);
}

Val rule_pool(Call *call) {
  Val x = tensor_arg(call, 0);
  int64_t k;
  if (!integer_arg(call, 1, "k", 2, &k) || !image(call, x)) return val_error();
  if (k < 1) return fail(call, "E0308", call->slot[1]->span, "`%s` needs k >= 1", call->row->name);
  return no_convolution(call);
}
