/* Look-up in a table, rotary positions, and scaled dot-product attention. */
#include <inttypes.h>
#include <string.h>

#include "semantic/operations.h"

Val rule_gather(Call *call) {
  Sem *sem = call->sem;
  Val table, ids;
  if (!reals_and_integers(call, &table, &ids)) return val_error();
  const Value *t = value_at(sem, table.value), *i = value_at(sem, ids.value);
  if (!t->rank) return fail(call, "E0308", call->slot[0]->span, "`gather` needs a table with rows");
  if (t->axes[0] == sem->batch) return whole_axis(call, t->axes[0], call->slot[0]->span), val_error();
  Id axes[2 * MAX_RANK], inputs[2] = {table.value, ids.value};
  unsigned rank = 0;
  for (unsigned k = 0; k < i->rank; k++) axes[rank++] = i->axes[k];
  for (unsigned k = 1; k < t->rank; k++) axes[rank++] = t->axes[k];
  return emit(sem, OP_GATHER, call->expr->span, inputs, 2, rank, axes);
}

static bool sdpa_axis(Call *call, const char *what, Id a, Id b, const char *first, const char *second) {
  Sem *sem = call->sem;
  if (same_axis(sem, a, b)) return true;
  Diag *diag = report(sem, "E0308", call->expr->span, "`sdpa`: the %s of %s is %s, that of %s is %s", what, first,
                      axis_text(sem, a), second, axis_text(sem, b));
  Id both[2] = {a, b};
  axis_notes(sem, diag, 2, both);
  mismatch_help(sem, diag, a, b);
  return false;
}

static bool sdpa_heads(Call *call, Id q_heads, Id k_heads, int64_t group) {
  Sem *sem = call->sem;
  const Axis *h = &sem->graph->axes.at[q_heads], *g = &sem->graph->axes.at[k_heads];
  if (group == 1 && h->size == g->size) return sdpa_axis(call, "heads axis", q_heads, k_heads, "q", "k");
  if (group < 1 || g->size < 1 || g->size > INT64_MAX / group || h->size != g->size * group) {
    Diag *diag = of_number(sem, report(sem, "E0308", call->slot[4] ? call->slot[4]->span : call->expr->span,
                                       "`sdpa`: q has %s heads and k has %s, which is not a group of %" PRId64,
                                       axis_text(sem, q_heads), axis_text(sem, k_heads), group));
    if (g->size > 0 && h->size % g->size == 0)
      diag_help(diag, "group=%" PRId64 ": so many heads of q share one of k and v", h->size / g->size);
    return false;
  }
  if (h->mesh == g->mesh || mesh_degree(sem, h->mesh) * mesh_degree(sem, g->mesh) == 1) return true;
  Diag *diag = report(sem, "E0409", call->expr->span, "`sdpa`: the heads of q (%s) and of k (%s) are not split alike",
                      axis_text(sem, q_heads), axis_text(sem, k_heads));
  diag_help(diag, "give both the same mesh axis in `shard < >`");
  return false;
}

Val rule_sdpa(Call *call) {
  Sem *sem = call->sem;
  Val in[3];
  bool causal, usable = true;
  int64_t group;
  for (unsigned i = 0; i < 3; i++) {
    in[i] = tensor_arg(call, i);
    usable &= in[i].kind != VAL_ERROR;
  }
  usable &= bool_arg(call, 3, "causal", true, &causal);
  usable &= integer_arg(call, 4, "group", 1, &group);
  if (!usable) return val_error();
  for (unsigned i = 0; i < 3; i++)
    if (value_at(sem, in[i].value)->rank != 4)
      return fail(call, "E0308", call->slot[i]->span, "`sdpa` needs [batch, seq, heads, head], and `%s` is %s",
                  source_of(call, call->slot[i]), shape_text(sem, in[i].value));
  const Id *q = value_at(sem, in[0].value)->axes, *k = value_at(sem, in[1].value)->axes,
           *v = value_at(sem, in[2].value)->axes;
  if (!sdpa_axis(call, "batch axis", q[0], k[0], "q", "k") || !sdpa_axis(call, "batch axis", k[0], v[0], "k", "v") ||
      !sdpa_axis(call, "sequence axis", k[1], v[1], "k", "v") || !sdpa_axis(call, "heads axis", k[2], v[2], "k", "v") ||
      !sdpa_axis(call, "last axis", q[3], k[3], "q", "k") || !sdpa_heads(call, q[2], k[2], group))
    return val_error();
  if (sem->graph->axes.at[v[3]].size != sem->graph->axes.at[q[3]].size)
    return fail_number(call, "E0308", call->expr->span, "`sdpa`: the last axis of v is %s, that of q is %s",
                       axis_text(sem, v[3]), axis_text(sem, q[3]));
  if (causal && sem->graph->axes.at[q[1]].size > sem->graph->axes.at[k[1]].size)
    return fail_number(call, "E0308", call->expr->span,
                       "`sdpa`: with causal=true, q has more positions (%s) than k (%s)", axis_text(sem, q[1]),
                       axis_text(sem, k[1]));
  if (!whole_axis(call, q[1], call->expr->span) || !whole_axis(call, k[1], call->expr->span) ||
      !whole_axis(call, q[3], call->expr->span) || !whole_axis(call, v[3], call->expr->span))
    return val_error();
  Id inputs[3] = {in[0].value, in[1].value, in[2].value}, out[4] = {q[0], q[1], q[2], v[3]},
     lse[3] = {q[0], q[2], q[1]};
  Val o = emit(sem, OP_SDPA, call->expr->span, inputs, 3, 4, out);
  if (o.kind == VAL_ERROR) return o;
  emit_more(sem, o, "lse", 3, lse);
  op_of(sem, o)->integer[0] = causal;
  op_of(sem, o)->integer[1] = group;
  return o;
}

Val rule_rope(Call *call) {
  Sem *sem = call->sem;
  double theta;
  Val x = tensor_arg(call, 0);
  if (!number_arg(call, 1, "theta", 1e4, &theta) || x.kind == VAL_ERROR) return val_error();
  if (!(theta > 0)) return fail_number(call, "E0308", call->slot[1]->span, "`theta` must be positive");
  if (value_at(sem, x.value)->rank != 4)
    return fail(call, "E0308", call->slot[0]->span, "`rope` needs [batch, seq, heads, head], and `%s` is %s",
                source_of(call, call->slot[0]), shape_text(sem, x.value));
  Id axes[MAX_RANK];
  copy_axes(sem, x.value, axes);
  if (sem->graph->axes.at[axes[3]].size % 2)
    return fail_number(call, "E0308", call->slot[0]->span, "`rope` pairs the halves of the last axis, and %s is odd",
                       axis_text(sem, axes[3]));
  if (!whole_axis(call, axes[1], call->expr->span) || !whole_axis(call, axes[3], call->expr->span)) return val_error();
  Val y = emit(sem, OP_ROPE, call->expr->span, &x.value, 1, 4, axes);
  if (y.kind == VAL_ERROR) return y;
  op_of(sem, y)->real[0] = theta;
  op_of(sem, y)->integer[0] = 1;
  return y;
}
