/* Operations that move elements and compute nothing: transpose, reshape, slice, split, concat. */
#include <inttypes.h>
#include <string.h>

#include "semantic/operations.h"

Val rule_transpose(Call *call) {
  Sem *sem = call->sem;
  Val x = tensor_arg(call, 0);
  if (x.kind == VAL_ERROR) return x;
  unsigned rank = value_at(sem, x.value)->rank, order[MAX_RANK], seen = 0;
  if (!call->rest_count) {
    if (rank != 2) {
      Diag *diag = report(sem, "E0308", call->expr->span, "`transpose` of %s needs the new order of its axes",
                          shape_text(sem, x.value));
      diag_help(diag, "name them: transpose(x, a, b, ...)");
      return val_error();
    }
    order[0] = 1;
    order[1] = 0;
    return emit_permute(sem, call->expr->span, x.value, order);
  }
  if (call->rest_count != rank)
    return fail(call, "E0308", call->expr->span, "`transpose` gives %u ax%s for %s, which has %u", call->rest_count,
                call->rest_count == 1 ? "is" : "es", shape_text(sem, x.value), rank);
  for (unsigned i = 0; i < rank; i++) {
    if (!axis_arg(call, call->rest[i], x.value, &order[i])) return val_error();
    if (seen & 1u << order[i])
      return fail(call, "E0308", call->rest[i]->span, "axis `%s` is given twice", source_of(call, call->rest[i]));
    seen |= 1u << order[i];
  }
  return emit_permute(sem, call->expr->span, x.value, order);
}

/* The batch axis and split axes must come through a reshape whole: either unchanged, or (split axes) as the first of a
 * group of axes that is joined or cut. */
static bool reshape_keeps(Call *call, const Value *x, unsigned rank, const Id *axes) {
  Sem *sem = call->sem;
  const Axis *all = sem->graph->axes.at;
  unsigned i = 0, k = 0;
  while (i < x->rank || k < rank) {
    unsigned i0 = i, k0 = k;
    double a = i < x->rank ? (double)all[x->axes[i++]].size : 1, b = k < rank ? (double)all[axes[k++]].size : 1;
    while (a != b) {
      if (a < b && i < x->rank)
        a *= (double)all[x->axes[i++]].size;
      else if (k < rank)
        b *= (double)all[axes[k++]].size;
      else
        break;
    }
    for (unsigned p = i0; p < i; p++) {
      Mesh mesh = all[x->axes[p]].mesh;
      bool kept = i - i0 == 1 && k - k0 == 1 && axes[k0] == x->axes[p];
      bool first = p == i0 && k > k0 && all[axes[k0]].mesh == mesh;
      if (kept || (x->axes[p] != sem->batch && (mesh_degree(sem, mesh) == 1 || first))) continue;
      Diag *diag = report(sem, x->axes[p] == sem->batch ? "E0318" : "E0409", call->expr->span,
                          "`reshape` would mix %s with other axes", axis_text(sem, x->axes[p]));
      if (x->axes[p] == sem->batch)
        diag_note(diag, "the batch is cut into micro-batches: it must stay an axis of its own");
      else
        diag_note(diag, "it is split over %s=%" PRId64, mesh_name(mesh), mesh_degree(sem, mesh));
      return false;
    }
    for (unsigned p = k0; p < k; p++) {
      Mesh mesh = all[axes[p]].mesh;
      bool kept = i - i0 == 1 && k - k0 == 1 && x->axes[i0] == axes[p];
      bool first = p == k0 && i > i0 && all[x->axes[i0]].mesh == mesh;
      if (kept || (axes[p] != sem->batch && (mesh_degree(sem, mesh) == 1 || first))) continue;
      fail(call, axes[p] == sem->batch ? "E0318" : "E0409", call->expr->span,
           "`reshape` would make %s out of other axes", axis_text(sem, axes[p]));
      return false;
    }
  }
  return true;
}

static bool element_count(Call *call, unsigned rank, const Id *axes, int64_t *count) {
  *count = 1;
  for (unsigned i = 0; i < rank; i++) {
    if (axis_is_error(call->sem, axes[i])) return false;
    if (__builtin_mul_overflow(*count, call->sem->graph->axes.at[axes[i]].size, count)) {
      fail(call, "E0213", call->expr->span, "%s has more elements than 64 bits can count",
           axes_text(call->sem->graph, rank, axes, true));
      return false;
    }
  }
  return true;
}

Val rule_reshape(Call *call) {
  Sem *sem = call->sem;
  Val x = tensor_arg(call, 0);
  if (x.kind == VAL_ERROR) return x;
  if (call->rest_count > MAX_RANK)
    return fail(call, "E0320", call->expr->span, "`reshape` to %u axes; at most %d are possible", call->rest_count,
                MAX_RANK);
  Id axes[MAX_RANK];
  for (unsigned i = 0; i < call->rest_count; i++)
    axes[i] = axis_of_expr(sem, call->frame->unit, call->frame, call->rest[i]);
  const Value *v = value_at(sem, x.value);
  int64_t before, after;
  if (!element_count(call, call->rest_count, axes, &after) || !element_count(call, v->rank, v->axes, &before))
    return val_error();
  if (before != after) {
    Diag *diag = report(sem, "E0311", call->expr->span,
                        "`reshape` cannot make %s (%" PRId64 " elements) of %s (%" PRId64 " elements)",
                        axes_text(sem->graph, call->rest_count, axes, true), after, shape_text(sem, x.value), before);
    axis_notes(sem, diag, call->rest_count, axes);
    return val_error();
  }
  if (!reshape_keeps(call, v, call->rest_count, axes)) return val_error();
  return emit(sem, OP_RESHAPE, call->expr->span, &x.value, 1, call->rest_count, axes);
}

static Val slice_of(Call *call, Id x, unsigned axis, int64_t begin, Id new_axis) {
  Sem *sem = call->sem;
  Id axes[MAX_RANK];
  copy_axes(sem, x, axes);
  axes[axis] = new_axis;
  Val y = emit(sem, OP_SLICE, call->expr->span, &x, 1, value_at(sem, x)->rank, axes);
  if (y.kind == VAL_ERROR) return y;
  op_of(sem, y)->integer[0] = axis;
  op_of(sem, y)->integer[1] = begin;
  return y;
}

Val rule_slice(Call *call) {
  Sem *sem = call->sem;
  Val x = tensor_arg(call, 0);
  if (x.kind == VAL_ERROR) return x;
  unsigned axis = 0;
  if (!axis_arg(call, call->slot[1], x.value, &axis)) return val_error();
  Id old = value_at(sem, x.value)->axes[axis];
  int64_t size = sem->graph->axes.at[old].size, begin, end;
  if (!integer_arg(call, 2, "begin", 0, &begin) || !integer_arg(call, 3, "end", size, &end)) return val_error();
  if (begin < 0 || end <= begin || end > size)
    return fail(call, "E0321", call->expr->span, "`slice` from %" PRId64 " to %" PRId64 " does not lie in %s", begin,
                end, axis_text(sem, old));
  if (!whole_axis(call, old, call->expr->span)) return val_error();
  return slice_of(call, x.value, axis, begin, anonymous_axis(sem, end - begin, NULL, call->expr->span));
}

Val rule_split(Call *call) {
  Sem *sem = call->sem;
  Val x = tensor_arg(call, 0);
  if (x.kind == VAL_ERROR) return x;
  if (!call->rest_count)
    return fail(call, "E0321", call->expr->span, "`split` needs the number of parts, or the size of each");
  unsigned rank = value_at(sem, x.value)->rank, axis = rank - 1;
  if (!rank) return fail(call, "E0308", call->expr->span, "`split` needs a tensor with axes");
  if (call->slot[1] && !axis_arg(call, call->slot[1], x.value, &axis)) return val_error();
  Id old = value_at(sem, x.value)->axes[axis], parts[MAX_REST];
  int64_t size = sem->graph->axes.at[old].size, sum = 0, count = call->rest_count;
  if (!whole_axis(call, old, call->expr->span)) return val_error();
  if (count == 1) {
    if (!eval_integer(sem, call->frame->unit, call->frame, call->rest[0], "the number of parts", &count))
      return val_error();
    if (count < 1 || count > MAX_REST || size % count)
      return fail(call, "E0321", call->rest[0]->span, "`split` cannot cut %s into %" PRId64 " equal parts",
                  axis_text(sem, old), count);
    for (int64_t i = 0; i < count; i++)
      parts[i] = i ? parts[0] : anonymous_axis(sem, size / count, NULL, call->expr->span);
  } else {
    for (int64_t i = 0; i < count; i++) {
      parts[i] = axis_of_expr(sem, call->frame->unit, call->frame, call->rest[i]);
      if (axis_is_error(sem, parts[i])) return val_error();
      int64_t part = sem->graph->axes.at[parts[i]].size;
      if (sum >= 0 && (part < 1 || __builtin_add_overflow(sum, part, &sum))) sum = -1;
    }
    if (sum != size) {
      Diag *diag =
          report(sem, "E0321", call->expr->span, "the parts of `split` do not add up to %s", axis_text(sem, old));
      if (sum > 0) diag_note(diag, "they add up to %" PRId64, sum);
      axis_notes(sem, diag, call->rest_count, parts);
      return val_error();
    }
  }
  Val tuple = {.kind = VAL_TUPLE, .value = NO_ID, .count = (uint32_t)count};
  tuple.items = ARENA_ARRAY(sem->arena, Val, count);
  int64_t begin = 0;
  for (int64_t i = 0; i < count; i++) {
    tuple.items[i] = slice_of(call, x.value, axis, begin, parts[i]);
    if (tuple.items[i].kind == VAL_ERROR) return val_error();
    begin += sem->graph->axes.at[parts[i]].size;
  }
  return tuple;
}

static Val concat_two(Call *call, Val a, const Expr *left, Val b, const Expr *right, unsigned axis) {
  Sem *sem = call->sem;
  const Value *x = value_at(sem, a.value), *y = value_at(sem, b.value);
  bool fits = x->rank == y->rank;
  for (unsigned i = 0; fits && i < x->rank; i++) fits = i == axis || same_axis(sem, x->axes[i], y->axes[i]);
  if (!fits) {
    Diag *diag =
        report(sem, "E0321", call->expr->span, "`concat` needs tensors that are equal but for the joined axis");
    diag_label(diag, left->span, "%s", shape_text(sem, a.value));
    diag_label(diag, right->span, "%s", shape_text(sem, b.value));
    return val_error();
  }
  int64_t size;
  Id axes[MAX_RANK], inputs[2] = {a.value, b.value};
  unsigned rank = x->rank;
  copy_axes(sem, a.value, axes);
  for (unsigned i = 0; i < rank; i++) axes[i] = better_axis(sem, axes[i], y->axes[i]);
  if (__builtin_add_overflow(sem->graph->axes.at[x->axes[axis]].size, sem->graph->axes.at[y->axes[axis]].size, &size))
    return fail(call, "E0213", call->expr->span, "the joined axis does not fit in 64 bits");
  if (!whole_axis(call, x->axes[axis], left->span) || !whole_axis(call, y->axes[axis], right->span)) return val_error();
  axes[axis] = anonymous_axis(sem, size, NULL, call->expr->span);
  Val result = emit(sem, OP_CONCAT, call->expr->span, inputs, 2, rank, axes);
  if (result.kind == VAL_TENSOR) op_of(sem, result)->integer[0] = axis;
  return result;
}

Val rule_concat(Call *call) {
  Sem *sem = call->sem;
  if (call->rest_count < 1) return fail(call, "E0215", call->expr->span, "`concat` needs at least two tensors");
  Val joined = tensor_arg(call, 0);
  unsigned axis = 0;
  if (joined.kind == VAL_ERROR) return joined;
  if (!axis_arg(call, call->slot[1], joined.value, &axis)) return val_error();
  const Expr *left = call->slot[0];
  for (uint32_t i = 0; i < call->rest_count; i++) {
    Val next = tensor_expr(call, call->rest[i], DT_REAL);
    if (next.kind == VAL_ERROR) return next;
    joined = concat_two(call, joined, left, next, call->rest[i], axis);
    if (joined.kind == VAL_ERROR) return joined;
  }
  (void)sem;
  return joined;
}
