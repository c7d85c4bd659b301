/* The draft: operations are added here, checked for what holds for every tensor: rank, mesh axes, and what a batch that
 * is cut into micro-batches allows. */
#include <inttypes.h>
#include <string.h>

#include "semantic/internal.h"

enum { MAX_UNROLLED_OPS = 10000, MAX_OPS = 20000, MAX_PARAMS = 4096, MAX_DRAFTS = 2048 };

/* What the user wrote for it. */
static const char *written(OpKind kind) {
  switch (kind) {
  case OP_ADD:
    return "+";
  case OP_SUB:
  case OP_NEG:
    return "-";
  case OP_MUL:
    return "*";
  case OP_DIV:
    return "/";
  case OP_CONTRACT:
    return "@";
  default:
    return op_name(kind);
  }
}

Value *value_at(Sem *sem, Id id) {
  return &sem->graph->values.at[id];
}

static uint8_t *batch_sum_of(Sem *sem, Id value) {
  while (sem->batch_sum.count < sem->graph->values.count) vec_push(sem->arena, &sem->batch_sum, 0);
  return &sem->batch_sum.at[value];
}

Id draft_const(Sem *sem, double number) {
  return graph_const(sem->graph, number);
}

static bool has_batch(Sem *sem, Id value) {
  const Value *v = value_at(sem, value);
  for (unsigned i = 0; i < v->rank; i++)
    if (v->axes[i] == sem->batch) return true;
  return false;
}

/* What an operation does to sums over the batch: *result says whether its result is one. False: not possible. */
static bool batch_rule(Sem *sem, OpKind kind, Span span, const Id *inputs, unsigned count, unsigned rank,
                       const Id *axes, bool *result) {
  unsigned sums = 0;
  bool batch_in = false, batch_out = false;
  for (unsigned i = 0; i < count; i++) {
    sums += *batch_sum_of(sem, inputs[i]);
    batch_in |= has_batch(sem, inputs[i]);
  }
  for (unsigned i = 0; i < rank; i++) batch_out |= axes[i] == sem->batch;
  *result = sums > 0;
  if (!sums) {
    if (!batch_in || batch_out) return true;
    *result = true;
    if (rank == 0) return true;
    Diag *diag =
        report(sem, "E0318", span, "`%s` sums over the batch axis %s and leaves %s", source_text(sem, span, 40),
               axis_text(sem, sem->batch), axes_text(sem->graph, rank, axes, true));
    diag_note(diag, "a micro-batch sees a part of the batch only: a sum over the batch can be a loss or a metric, of "
                    "rank 0, and nothing else");
    return false;
  }
  /* linear in the sum: what does not depend on the samples is a factor, or enters by each micro-batch's share of it */
  bool plain = kind == OP_NEG || kind == OP_COPY || kind == OP_ADD || kind == OP_SUB || (kind == OP_MUL && sums == 1) ||
               (kind == OP_DIV && sums == 1 && *batch_sum_of(sem, inputs[0]));
  if (plain && rank == 0) return true;
  Diag *diag = report(sem, "E0318", span, "a sum over the batch cannot be used by `%s`", written(kind));
  diag_note(diag,
            "it is complete only after the last micro-batch: such values can be added to other numbers, multiplied "
            "by numbers that do not depend on the samples, and be a loss or a metric");
  return false;
}

bool is_too_long(Sem *sem, Span span) {
  if (sem->too_long) return true;
  bool ops = sem->graph->ops.count >= MAX_OPS, params = sem->graph->params.count >= MAX_PARAMS;
  sem->too_long = ops || params || sem->drafts.count >= MAX_DRAFTS;
  if (!sem->too_long) return false;
  Diag *diag = report(sem, "E0319", span, "the model has more than %d %s",
                      ops      ? MAX_OPS
                      : params ? MAX_PARAMS
                               : MAX_DRAFTS,
                      ops      ? "operations"
                      : params ? "parameters"
                               : "statements outside of blocks and loops");
  diag_note(diag,
            sem->unrolling
                ? "a `repeat` inside a `repeat`, and one whose index is used, are unrolled"
                : "a block is written out at each of its calls; a `repeat` is one loop, however many trips it has");
  return true;
}

static void start_draft(Sem *sem) {
  if (sem->current != NO_ID) return;
  Draft draft = {.name = sem->pending_name, .span = sem->pending_span, .trips = 1};
  vec_push(sem->arena, &sem->drafts, draft);
  sem->current = sem->drafts.count - 1;
}

static bool unroll_limit(Sem *sem, Span span) {
  if (!sem->unrolling || sem->unroll_failed || ++sem->unrolled_ops <= MAX_UNROLLED_OPS) return !sem->unroll_failed;
  sem->unroll_failed = true;
  Diag *diag = report(sem, "E0319", span, "unrolling gives more than %d operations", MAX_UNROLLED_OPS);
  diag_note(diag, "a `repeat` inside a `repeat`, and one whose index is used, are unrolled");
  return false;
}

Val emit(Sem *sem, OpKind kind, Span span, const Id *inputs, unsigned count, unsigned rank, const Id *axes) {
  if (rank > MAX_RANK) {
    report(sem, "E0320", span, "the result of `%s` has %u axes; at most %d are possible", written(kind), rank,
           MAX_RANK);
    return val_error();
  }
  bool sum = false;
  if (is_too_long(sem, span) || !unroll_limit(sem, span) || !check_tensor(sem, span, "the result", rank, axes) ||
      !batch_rule(sem, kind, span, inputs, count, rank, axes, &sum))
    return val_error();
  start_draft(sem);
  Id op = graph_op(sem->graph, kind, span, inputs, count);
  Id value = graph_output(sem->graph, op, sem->current, NULL, rank, axes);
  *batch_sum_of(sem, value) = sum;
  vec_push(sem->arena, &sem->drafts.at[sem->current].ops, op);
  return val_tensor(value);
}

Op *op_of(Sem *sem, Val result) {
  return &sem->graph->ops.at[value_at(sem, result.value)->source];
}

void emit_more(Sem *sem, Val result, const char *name, unsigned rank, const Id *axes) {
  graph_output(sem->graph, value_at(sem, result.value)->source, sem->current, name, rank, axes);
}

/* ---- element-wise ---- */

static bool fits_at(const Sem *sem, const Value *large, const Value *small, unsigned offset) {
  for (unsigned i = 0; i < small->rank; i++)
    if (!same_axis(sem, large->axes[offset + i], small->axes[i])) return false;
  return true;
}

static void label_shape(Sem *sem, Diag *diag, const Expr *expr, Id value) {
  diag_label(diag, expr->span, "%s", shape_text(sem, value));
}

static void shapes_differ(Sem *sem, OpKind kind, Span at, const Value *a, const Expr *left, const Value *b,
                          const Expr *right, Id x, Id y) {
  Diag *diag = report(sem, "E0303", at, "the two sides of `%s` have different shapes", written(kind));
  label_shape(sem, diag, left, x);
  label_shape(sem, diag, right, y);
  Id axes[2 * MAX_RANK];
  unsigned count = 0;
  for (unsigned i = 0; i < a->rank; i++) axes[count++] = a->axes[i];
  for (unsigned i = 0; i < b->rank; i++) axes[count++] = b->axes[i];
  axis_notes(sem, diag, count, axes);
  unsigned shorter = a->rank < b->rank ? a->rank : b->rank;
  for (unsigned i = 1; i <= shorter; i++)
    if (!same_axis(sem, a->axes[a->rank - i], b->axes[b->rank - i])) {
      mismatch_help(sem, diag, a->axes[a->rank - i], b->axes[b->rank - i]);
      break;
    }
  diag_note(diag, "the shapes must be equal, or the smaller one equal to the last or the first axes of the larger");
  if (kind == OP_MUL && a->rank && b->rank > 1 && a->axes[a->rank - 1] == b->axes[0])
    diag_help(diag, "`*` works element by element; a product over `%s` is `%s @ %s`",
              sem->graph->axes.at[b->axes[0]].name ? sem->graph->axes.at[b->axes[0]].name : "the last axis",
              source_text(sem, left->span, 40), source_text(sem, right->span, 40));
}

/* Where the smaller operand starts in the larger: false after an error. */
static bool place_operand(Sem *sem, OpKind kind, Span at, const Expr *left, Id x, const Expr *right, Id y,
                          unsigned *offset) {
  const Value *a = value_at(sem, x), *b = value_at(sem, y);
  const Value *large = a->rank >= b->rank ? a : b, *small = a->rank >= b->rank ? b : a;
  unsigned last = (unsigned)(large->rank - small->rank);
  bool trailing = fits_at(sem, large, small, last), leading = fits_at(sem, large, small, 0);
  *offset = trailing ? last : 0;
  if (trailing && leading && last && small->rank) {
    Diag *diag = report(sem, "E0304", at, "`%s` is ambiguous: %s fits the first and the last axes of %s", written(kind),
                        axes_text(sem->graph, small->rank, small->axes, true),
                        axes_text(sem->graph, large->rank, large->axes, true));
    label_shape(sem, diag, left, x);
    label_shape(sem, diag, right, y);
    diag_help(diag, "name the axes with `dim`, or reshape the smaller side");
    return false;
  }
  if (trailing || leading) return true;
  shapes_differ(sem, kind, at, a, left, b, right, x, y);
  return false;
}

static bool usable(Sem *sem, OpKind kind, Val v, const Expr *expr) {
  if (v.kind == VAL_TENSOR && value_at(sem, v.value)->dtype == DT_I32) {
    Diag *diag = report(sem, "E0309", expr->span, "`%s` needs real numbers, and `%s` is %s", written(kind),
                        source_text(sem, expr->span, 40), shape_text(sem, v.value));
    diag_note(diag, "integer tensors are for `gather`, and the targets of `xent` and `accuracy`");
    return false;
  }
  if (v.kind == VAL_TENSOR || (v.kind == VAL_NUMBER && const_is_number(v.number))) return true;
  if (v.kind == VAL_TUPLE)
    report(sem, "E0308", expr->span, "`%s` needs one tensor, not %u", written(kind), v.count);
  else if (v.kind == VAL_NUMBER)
    report(sem, "E0308", expr->span, "`%s` needs a tensor or a number, not %s", written(kind),
           const_kind_name(v.number.kind));
  return false;
}

Val emit_binary(Sem *sem, OpKind kind, const Expr *expr, Span operator_span, Val a, const Expr *left, Val b,
                const Expr *right) {
  if (!usable(sem, kind, a, left) || !usable(sem, kind, b, right)) return val_error();
  Id inputs[2] = {a.kind == VAL_NUMBER ? draft_const(sem, const_number(a.number)) : a.value,
                  b.kind == VAL_NUMBER ? draft_const(sem, const_number(b.number)) : b.value};
  if (kind == OP_DIV && b.kind == VAL_NUMBER && const_number(b.number) == 0) {
    report(sem, "E0214", expr->span, "`%s` divides by zero", source_text(sem, expr->span, 60));
    return val_error();
  }
  unsigned offset = 0;
  if (!place_operand(sem, kind, operator_span, left, inputs[0], right, inputs[1], &offset)) return val_error();
  const Value *x = value_at(sem, inputs[0]), *y = value_at(sem, inputs[1]);
  const Value *large = x->rank >= y->rank ? x : y, *small = large == x ? y : x;
  unsigned rank = large->rank;
  Id axes[MAX_RANK];
  for (unsigned i = 0; i < rank; i++) {
    axes[i] = large->axes[i];
    if (i >= offset && i < offset + small->rank) axes[i] = better_axis(sem, axes[i], small->axes[i - offset]);
  }
  bool left_large = large == x;
  Val result = emit(sem, kind, expr->span, inputs, 2, rank, axes);
  if (result.kind == VAL_TENSOR) op_of(sem, result)->offset[left_large] = (uint8_t)offset;
  return result;
}

/* ---- reductions and permutations ---- */

Val emit_sum(Sem *sem, Span span, Id x, unsigned mask, double factor) {
  Id axes[MAX_RANK];
  unsigned rank = 0, in_rank = value_at(sem, x)->rank;
  uint8_t label[2][MAX_RANK] = {{0}};
  for (unsigned i = 0; i < in_rank; i++) {
    label[0][i] = (uint8_t)('a' + i);
    if (mask & 1u << i) continue;
    label[1][rank] = label[0][i];
    axes[rank++] = value_at(sem, x)->axes[i];
  }
  Val result = emit(sem, OP_SUM, span, &x, 1, rank, axes);
  if (result.kind == VAL_ERROR) return result;
  Op *op = op_of(sem, result);
  memcpy(op->label[0], label[0], MAX_RANK);
  memcpy(op->label[2], label[1], MAX_RANK);
  op->real[0] = factor;
  return result;
}

Val emit_permute(Sem *sem, Span span, Id x, const unsigned *order) {
  Id axes[MAX_RANK];
  unsigned rank = value_at(sem, x)->rank;
  bool identity = true;
  for (unsigned i = 0; i < rank; i++) {
    axes[i] = value_at(sem, x)->axes[order[i]];
    identity &= order[i] == i;
  }
  if (identity) return val_tensor(x);
  Val result = emit(sem, OP_PERMUTE, span, &x, 1, rank, axes);
  if (result.kind == VAL_ERROR) return result;
  for (unsigned i = 0; i < rank; i++) op_of(sem, result)->integer[i] = order[i];
  return result;
}
