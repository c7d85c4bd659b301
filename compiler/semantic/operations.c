/* The operations of the language: one typing rule each, found by name in one table. A rule reads its arguments, checks
 * them, and adds an operation to the draft. Arguments are bound by a signature: `x eps=` is one that must be given and
 * one that may be; `*` takes the rest. Everything can be given by name. */
#include <inttypes.h>
#include <string.h>

#include "semantic/internal.h"

enum { MAX_SLOTS = 8, MAX_REST = 64 };

typedef struct Call {
  Sem *sem;
  Frame *frame;
  const Expr *expr;
  const struct Row *row;
  const Expr *slot[MAX_SLOTS]; /* NULL where not given */
  const Expr *rest[MAX_REST];
  uint32_t rest_count;
} Call;

typedef Val (*Rule)(Call *call);
typedef struct Row {
  const char *name, *signature;
  Rule rule;
  OpKind kind;
} Row;

/* ---- reading arguments ---- */

static Val fail(Call *call, const char *code, Span span, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static Val fail(Call *call, const char *code, Span span, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  report(call->sem, code, span, "%s", arena_vprintf(call->sem->arena, format, arguments));
  va_end(arguments);
  return val_error();
}

static const char *source_of(Call *call, const Expr *expr) { return source_text(call->sem, expr->span, 40); }

/* A tensor argument of this type; a number or anything else is an error. */
static Val tensor_expr(Call *call, const Expr *expr, DType dtype) {
  Sem *sem = call->sem;
  Val v = eval(sem, call->frame, expr);
  if (v.kind == VAL_ERROR) return v;
  if (v.kind != VAL_TENSOR)
    return fail(call, "E0308", expr->span, "`%s` needs a tensor, and `%s` is %s", call->row->name, source_of(call, expr),
                v.kind == VAL_TUPLE ? "several tensors" : const_kind_name(v.number.kind));
  if (value_at(sem, v.value)->dtype != dtype)
    return fail(call, "E0309", expr->span, "`%s` needs %s here, and `%s` is %s", call->row->name,
                dtype == DT_I32 ? "integers (i32)" : "real numbers", source_of(call, expr), shape_text(sem, v.value));
  return v;
}

static Val tensor_arg(Call *call, unsigned slot) { return tensor_expr(call, call->slot[slot], DT_REAL); }

static bool number_arg(Call *call, unsigned slot, const char *what, double fallback, double *result) {
  *result = fallback;
  return !call->slot[slot] || eval_number(call->sem, call->frame->unit, call->frame, call->slot[slot], what, result);
}

static bool integer_arg(Call *call, unsigned slot, const char *what, int64_t fallback, int64_t *result) {
  *result = fallback;
  return !call->slot[slot] || eval_integer(call->sem, call->frame->unit, call->frame, call->slot[slot], what, result);
}

static bool bool_arg(Call *call, unsigned slot, const char *what, bool fallback, bool *result) {
  *result = fallback;
  if (!call->slot[slot]) return true;
  Const value = const_eval(call->sem, call->frame->unit, call->frame, call->slot[slot]);
  *result = value.integer != 0;
  if (value.kind == CONST_BOOL || value.kind == CONST_ERROR) return value.kind == CONST_BOOL;
  fail(call, "E0308", call->slot[slot]->span, "`%s` must be true or false, not %s", what, const_kind_name(value.kind));
  return false;
}

/* The position in a tensor of the axis that an argument names: a dim, a size, or a position (from the end if
 * negative). */
static bool axis_arg(Call *call, const Expr *expr, Id tensor, unsigned *position) {
  Sem *sem = call->sem;
  const Value *v = value_at(sem, tensor);
  bool number = expr->kind == EXPR_INT || expr->kind == EXPR_UNARY;
  if (number) {
    int64_t at;
    if (!eval_integer(sem, call->frame->unit, call->frame, expr, "an axis position", &at)) return false;
    if (at < 0) at += v->rank;
    *position = (unsigned)at;
    if (at >= 0 && at < v->rank) return true;
    fail(call, "E0312", expr->span, "there is no axis %s in %s", source_of(call, expr), shape_text(sem, tensor));
    return false;
  }
  Id axis = axis_of_expr(sem, call->frame->unit, call->frame, expr);
  if (axis_is_error(sem, axis)) return false;
  unsigned found = 0;
  for (unsigned i = 0; i < v->rank; i++)
    if (v->axes[i] == axis && !found++) *position = i;
  if (found == 1) return true;
  Diag *diag = report(sem, "E0312", expr->span,
                          found ? "`%s` stands more than once in %s" : "there is no axis `%s` in %s",
                          source_of(call, expr), shape_text(sem, tensor));
  if (found || !sem->graph->axes.at[axis].name) diag_help(diag, "give the position of the axis: 0 is the first, -1 the last");
  return false;
}

/* Operations that work along an axis need all of it on one rank and in one micro-batch. */
static bool whole_axis(Call *call, Id axis, Span span) {
  Sem *sem = call->sem;
  const Axis *a = &sem->graph->axes.at[axis];
  if (axis == sem->batch) {
    Diag *diag = report(sem, "E0318", span, "`%s` cannot work along the batch axis %s", call->row->name,
                            axis_text(sem, axis));
    diag_note(diag, "the batch is cut into micro-batches and replicas: samples must not mix");
    return false;
  }
  int64_t degree = mesh_degree(sem, a->mesh);
  if (degree <= 1) return true;
  Diag *diag = report(sem, "E0409", span, "`%s` needs all of %s, which is split over %s=%" PRId64,
                          call->row->name, axis_text(sem, axis), mesh_name(a->mesh), degree);
  if (a->name) diag_help(diag, "take `%s=%s` out of `shard < >`, or set %s=1", a->name, mesh_name(a->mesh),
                         mesh_name(a->mesh));
  return false;
}

static void copy_axes(Sem *sem, Id value, Id *axes) {
  memcpy(axes, value_at(sem, value)->axes, sizeof(Id) * MAX_RANK);
}

static Val fold(Call *call, Val number) {
  return val_number(const_call(call->sem, call->expr, call->row->name, &number.number, 1));
}

/* ---- element-wise functions of one operand ---- */

static Val unary(Call *call, OpKind kind) {
  Sem *sem = call->sem;
  Val x = eval(sem, call->frame, call->slot[0]);
  if (x.kind == VAL_NUMBER && is_const_function(call->row->name)) return fold(call, x);
  if (x.kind != VAL_TENSOR || value_at(sem, x.value)->dtype != DT_REAL) return tensor_arg(call, 0);
  Id axes[MAX_RANK];
  copy_axes(sem, x.value, axes);
  return emit(sem, kind, call->expr->span, &x.value, 1, value_at(sem, x.value)->rank, axes);
}

static Val rule_unary(Call *call) { return unary(call, call->row->kind); }

static Val rule_gelu(Call *call) {
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

static Val rule_norm(Call *call) {
  Sem *sem = call->sem;
  double eps;
  Val x = tensor_arg(call, 0);
  if (!number_arg(call, 1, "eps", 1e-5, &eps) || x.kind == VAL_ERROR) return val_error();
  if (eps < 0) return fail(call, "E0308", call->slot[1]->span, "`eps` must not be negative");
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

static Val rule_softmax(Call *call) {
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
      return fail(call, "E0308", call->slot[1]->span, "`softmax` works along the last axis; transpose first");
  }
  if (!whole_axis(call, axes[rank - 1], call->expr->span)) return val_error();
  return emit(sem, OP_SOFTMAX, call->expr->span, &x.value, 1, rank, axes);
}

static Val rule_rope(Call *call) {
  Sem *sem = call->sem;
  double theta;
  Val x = tensor_arg(call, 0);
  if (!number_arg(call, 1, "theta", 1e4, &theta) || x.kind == VAL_ERROR) return val_error();
  if (!(theta > 0)) return fail(call, "E0308", call->slot[1]->span, "`theta` must be positive");
  if (value_at(sem, x.value)->rank != 4)
    return fail(call, "E0308", call->slot[0]->span, "`rope` needs [batch, seq, heads, head], and `%s` is %s",
                source_of(call, call->slot[0]), shape_text(sem, x.value));
  Id axes[MAX_RANK];
  copy_axes(sem, x.value, axes);
  if (sem->graph->axes.at[axes[3]].size % 2)
    return fail(call, "E0308", call->slot[0]->span, "`rope` pairs the halves of the last axis, and %s is odd",
                axis_text(sem, axes[3]));
  if (!whole_axis(call, axes[1], call->expr->span) || !whole_axis(call, axes[3], call->expr->span)) return val_error();
  Val y = emit(sem, OP_ROPE, call->expr->span, &x.value, 1, 4, axes);
  if (y.kind == VAL_ERROR) return y;
  op_of(sem, y)->real[0] = theta;
  op_of(sem, y)->integer[0] = 1;
  return y;
}

static Val rule_dropout(Call *call) {
  Sem *sem = call->sem;
  double p;
  Val x = tensor_arg(call, 0);
  if (!number_arg(call, 1, "p", 0, &p) || x.kind == VAL_ERROR) return val_error();
  if (!(p >= 0 && p < 1))
    return fail(call, "E0308", call->slot[1]->span, "`p` is the share that is dropped, from 0 to below 1, not %g", p);
  const char *purpose = naming_child(sem, call->frame->naming, "dropout");
  if (p == 0) return x;
  Id axes[MAX_RANK];
  copy_axes(sem, x.value, axes);
  if (!value_at(sem, x.value)->rank || axes[0] != sem->batch)
    return fail(call, "E0308", call->slot[0]->span, "`dropout` needs a tensor that starts with the batch axis, and `%s` is %s",
                source_of(call, call->slot[0]), shape_text(sem, x.value));
  Val y = emit(sem, OP_DROPOUT, call->expr->span, &x.value, 1, value_at(sem, x.value)->rank, axes);
  if (y.kind == VAL_ERROR) return y;
  op_of(sem, y)->real[0] = p;
  op_of(sem, y)->purpose = purpose;
  return y;
}

/* ---- look-up and attention ---- */

static Val rule_gather(Call *call) {
  Sem *sem = call->sem;
  Val table = tensor_arg(call, 0), ids = tensor_expr(call, call->slot[1], DT_I32);
  if (table.kind == VAL_ERROR || ids.kind == VAL_ERROR) return val_error();
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
  Diag *diag = report(sem, "E0308", call->expr->span, "`sdpa`: the %s of %s is %s, that of %s is %s", what,
                          first, axis_text(sem, a), second, axis_text(sem, b));
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
    Diag *diag = report(sem, "E0308", call->slot[4] ? call->slot[4]->span : call->expr->span,
                            "`sdpa`: q has %s heads and k has %s, which is not a group of %" PRId64,
                            axis_text(sem, q_heads), axis_text(sem, k_heads), group);
    if (g->size > 0 && h->size % g->size == 0)
      diag_help(diag, "group=%" PRId64 ": so many heads of q share one of k and v", h->size / g->size);
    return false;
  }
  if (h->mesh == g->mesh || mesh_degree(sem, h->mesh) * mesh_degree(sem, g->mesh) == 1) return true;
  Diag *diag = report(sem, "E0409", call->expr->span,
                          "`sdpa`: the heads of q (%s) and of k (%s) are not split alike", axis_text(sem, q_heads),
                          axis_text(sem, k_heads));
  diag_help(diag, "give both the same mesh axis in `shard < >`");
  return false;
}

static Val rule_sdpa(Call *call) {
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
    return fail(call, "E0308", call->expr->span, "`sdpa`: the last axis of v is %s, that of q is %s",
                axis_text(sem, v[3]), axis_text(sem, q[3]));
  if (causal && sem->graph->axes.at[q[1]].size > sem->graph->axes.at[k[1]].size)
    return fail(call, "E0308", call->expr->span, "`sdpa`: with causal=true, q has more positions (%s) than k (%s)",
                axis_text(sem, q[1]), axis_text(sem, k[1]));
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

/* ---- moving elements ---- */

static Val rule_transpose(Call *call) {
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
    return fail(call, "E0308", call->expr->span, "`transpose` gives %u axes for %s, which has %u", call->rest_count,
                shape_text(sem, x.value), rank);
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
      fail(call, axes[p] == sem->batch ? "E0318" : "E0409", call->expr->span, "`reshape` would make %s out of other axes",
           axis_text(sem, axes[p]));
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

static Val rule_reshape(Call *call) {
  Sem *sem = call->sem;
  Val x = tensor_arg(call, 0);
  if (x.kind == VAL_ERROR) return x;
  if (call->rest_count > MAX_RANK)
    return fail(call, "E0320", call->expr->span, "`reshape` to %u axes; at most %d are possible", call->rest_count, MAX_RANK);
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

static Val rule_slice(Call *call) {
  Sem *sem = call->sem;
  Val x = tensor_arg(call, 0);
  if (x.kind == VAL_ERROR) return x;
  unsigned axis = 0;
  if (!axis_arg(call, call->slot[1], x.value, &axis)) return val_error();
  Id old = value_at(sem, x.value)->axes[axis];
  int64_t size = sem->graph->axes.at[old].size, begin, end;
  if (!integer_arg(call, 2, "begin", 0, &begin) || !integer_arg(call, 3, "end", size, &end)) return val_error();
  if (begin < 0 || end <= begin || end > size)
    return fail(call, "E0321", call->expr->span, "`slice` from %" PRId64 " to %" PRId64 " does not lie in %s", begin, end,
                axis_text(sem, old));
  if (!whole_axis(call, old, call->expr->span)) return val_error();
  return slice_of(call, x.value, axis, begin, anonymous_axis(sem, end - begin, NULL, call->expr->span));
}

static Val rule_split(Call *call) {
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
      if (part < 1 || __builtin_add_overflow(sum, part, &sum)) sum = -1;
      if (sum < 0) break;
    }
    if (sum != size) {
      Diag *diag = report(sem, "E0321", call->expr->span, "the parts of `split` do not add up to %s",
                              axis_text(sem, old));
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
    Diag *diag = report(sem, "E0321", call->expr->span,
                            "`concat` needs tensors that are equal but for the joined axis");
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

static Val rule_concat(Call *call) {
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

/* ---- reductions ---- */

static Val rule_sum(Call *call) {
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

static Val rule_max(Call *call) {
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

static Val rule_einsum(Call *call) {
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

/* ---- losses and metrics ---- */

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
  Diag *diag = report(sem, "E0308", call->expr->span,
                          "`%s` needs logits with the axes of the targets and one more", call->row->name);
  diag_label(diag, call->slot[0]->span, "%s", shape_text(sem, logits.value));
  diag_label(diag, call->slot[1]->span, "%s", shape_text(sem, targets.value));
  axis_notes(sem, diag, x->rank, x->axes);
  axis_notes(sem, diag, t->rank, t->axes);
  if (x->rank == t->rank + 1) mismatch_help(sem, diag, x->axes[at - 1], t->axes[at - 1]);
  return false;
}

static Val rule_xent(Call *call) {
  Sem *sem = call->sem;
  Val logits = tensor_arg(call, 0), targets = tensor_expr(call, call->slot[1], DT_I32);
  int64_t ignore;
  if (!integer_arg(call, 2, "ignore", -100, &ignore) || logits.kind == VAL_ERROR || targets.kind == VAL_ERROR)
    return val_error();
  if (ignore != -100)
    return fail(call, "E0921", call->slot[2]->span, "this version ignores targets of -100 only, not of %" PRId64, ignore);
  if (!loss_targets(call, logits, targets)) return val_error();
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

static Val rule_accuracy(Call *call) {
  Sem *sem = call->sem;
  Val logits = tensor_arg(call, 0), targets = tensor_expr(call, call->slot[1], DT_I32);
  if (logits.kind == VAL_ERROR || targets.kind == VAL_ERROR || !loss_targets(call, logits, targets)) return val_error();
  const Value *x = value_at(sem, logits.value);
  if (!whole_axis(call, x->axes[x->rank - 1], call->expr->span)) return val_error();
  Id inputs[2] = {logits.value, targets.value};
  return emit(sem, OP_ACCURACY, call->expr->span, inputs, 2, 0, NULL);
}

static Val rule_mse(Call *call) {
  Sem *sem = call->sem;
  Val a = tensor_arg(call, 0), b = tensor_arg(call, 1);
  if (a.kind == VAL_ERROR || b.kind == VAL_ERROR) return val_error();
  const Value *x = value_at(sem, a.value), *y = value_at(sem, b.value);
  bool fits = x->rank == y->rank;
  for (unsigned i = 0; fits && i < x->rank; i++) fits = same_axis(sem, x->axes[i], y->axes[i]);
  if (!fits) {
    Diag *diag = report(sem, "E0308", call->expr->span, "`mse` needs two tensors of the same shape");
    diag_label(diag, call->slot[0]->span, "%s", shape_text(sem, a.value));
    diag_label(diag, call->slot[1]->span, "%s", shape_text(sem, b.value));
    axis_notes(sem, diag, x->rank, x->axes);
    axis_notes(sem, diag, y->rank, y->axes);
    return val_error();
  }
  Id inputs[2] = {a.value, b.value};
  return emit(sem, OP_MSE, call->expr->span, inputs, 2, 0, NULL);
}

/* ---- convolutions: checked, but no back end has them yet ---- */

static Val no_convolution(Call *call) {
  return fail(call, "E0920", call->expr->span, "this version does not compile convolutions: `%s`", call->row->name);
}

static bool image(Call *call, Val x) {
  if (x.kind == VAL_ERROR) return false;
  if (value_at(call->sem, x.value)->rank == 4) return true;
  fail(call, "E0308", call->slot[0]->span, "`%s` needs [batch, channels, height, width], and `%s` is %s", call->row->name,
       source_of(call, call->slot[0]), shape_text(call->sem, x.value));
  return false;
}

static Val rule_conv2d(Call *call) {
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
      return fail(call, "E0308", call->expr->span, "`conv2d`: a filter of %" PRId64 " on %s", k, axis_text(sem, v->axes[i]));
  }
  return no_convolution(call);
}

static Val rule_pool(Call *call) {
  Val x = tensor_arg(call, 0);
  int64_t k;
  if (!integer_arg(call, 1, "k", 2, &k) || !image(call, x)) return val_error();
  if (k < 1) return fail(call, "E0308", call->slot[1]->span, "`%s` needs k >= 1", call->row->name);
  return no_convolution(call);
}

/* ---- the table ---- */

static const Row rows[] = {
    {"relu", "x", rule_unary, OP_RELU},
    {"silu", "x", rule_unary, OP_SILU},
    {"sigmoid", "x", rule_unary, OP_SIGMOID},
    {"tanh", "x", rule_unary, OP_TANH},
    {"exp", "x", rule_unary, OP_EXP},
    {"log", "x", rule_unary, OP_LOG},
    {"sqrt", "x", rule_unary, OP_SQRT},
    {"gelu", "x approximate=", rule_gelu, OP_GELU_TANH},
    {"layernorm", "x eps=", rule_norm, OP_LAYERNORM},
    {"rmsnorm", "x eps=", rule_norm, OP_RMSNORM},
    {"softmax", "x axis=", rule_softmax, OP_SOFTMAX},
    {"dropout", "x p", rule_dropout, OP_DROPOUT},
    {"rope", "x theta=", rule_rope, OP_ROPE},
    {"gather", "table ids", rule_gather, OP_GATHER},
    {"sdpa", "q k v causal= group=", rule_sdpa, OP_SDPA},
    {"transpose", "x *", rule_transpose, OP_PERMUTE},
    {"reshape", "x *", rule_reshape, OP_RESHAPE},
    {"concat", "x axis *", rule_concat, OP_CONCAT},
    {"split", "x axis= *", rule_split, OP_SLICE},
    {"slice", "x axis begin= end=", rule_slice, OP_SLICE},
    {"sum", "x *", rule_sum, OP_SUM},
    {"mean", "x *", rule_sum, OP_SUM},
    {"max", "x *", rule_max, OP_COUNT},
    {"min", "x *", rule_max, OP_COUNT},
    {"einsum", "labels a b=", rule_einsum, OP_CONTRACT},
    {"xent", "logits targets ignore=", rule_xent, OP_XENT},
    {"accuracy", "logits targets", rule_accuracy, OP_ACCURACY},
    {"mse", "a b", rule_mse, OP_MSE},
    {"conv2d", "x f stride= pad=", rule_conv2d, OP_COUNT},
    {"maxpool", "x k= stride=", rule_pool, OP_COUNT},
    {"avgpool", "x k= stride=", rule_pool, OP_COUNT},
    {"batchnorm", "x eps=", rule_pool, OP_COUNT},
};

static const Row *row_of(const char *name) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (!strcmp(rows[i].name, name)) return &rows[i];
  return NULL;
}

bool is_operation(const char *name) { return row_of(name) != NULL; }

void spelling_operations(Spelling *spelling) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) spelling_try(spelling, rows[i].name);
}

/* ---- binding arguments to the signature ---- */

typedef struct Slot {
  char name[16];
  bool optional;
} Slot;

static unsigned read_signature(const char *text, Slot *slots, bool *rest) {
  unsigned count = 0;
  *rest = false;
  while (*text) {
    size_t length = strcspn(text, " ");
    if (*text == '*') {
      *rest = true;
    } else {
      bool optional = text[length - 1] == '=';
      snprintf(slots[count].name, sizeof slots[count].name, "%.*s", (int)(length - optional), text);
      slots[count++].optional = optional;
    }
    text += length;
    text += *text == ' ';
  }
  return count;
}

static bool bind_named(Call *call, const Name *name, const Expr *value, const Slot *slots, unsigned count) {
  for (unsigned i = 0; i < count; i++) {
    if (strcmp(slots[i].name, name->text) != 0) continue;
    if (call->slot[i]) {
      fail(call, "E0215", name->span, "`%s` is given twice", name->text);
      return false;
    }
    call->slot[i] = value;
    return true;
  }
  Diag *diag = report(call->sem, "E0215", name->span, "`%s` has no argument `%s`", call->row->name,
                          name->text);
  Spelling spelling = spelling_of(name->text);
  for (unsigned i = 0; i < count; i++) spelling_try(&spelling, slots[i].name);
  spelling_help(&spelling, diag);
  return false;
}

Val call_operation(Sem *sem, Frame *frame, const Expr *expr, uint32_t count, Expr *const *args, const Name *arg_names) {
  Call call = {.sem = sem, .frame = frame, .expr = expr, .row = row_of(expr->name.text)};
  Slot slots[MAX_SLOTS];
  bool rest;
  unsigned slot_count = read_signature(call.row->signature, slots, &rest), next = 0;
  for (uint32_t i = 0; i < count; i++)
    if (arg_names[i].text && !bind_named(&call, &arg_names[i], args[i], slots, slot_count)) return val_error();
  for (uint32_t i = 0; i < count; i++) {
    if (arg_names[i].text) continue;
    /* with `*`, only the first argument has a place: the rest are the tensors, axes or sizes */
    while (next < slot_count && (call.slot[next] || (rest && next > 0))) next++;
    if (next < slot_count) {
      call.slot[next++] = args[i];
    } else if (rest && call.rest_count < MAX_REST) {
      call.rest[call.rest_count++] = args[i];
    } else {
      return fail(&call, "E0215", args[i]->span, "`%s` takes at most %u argument%s", call.row->name,
                  rest ? MAX_REST : slot_count, !rest && slot_count == 1 ? "" : "s");
    }
  }
  for (unsigned i = 0; i < slot_count; i++)
    if (!call.slot[i] && !slots[i].optional)
      return fail(&call, "E0215", expr->span, "`%s` needs the argument `%s`", call.row->name, slots[i].name);
  return call.row->rule(&call);
}
