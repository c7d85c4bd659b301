/* `repeat`. One that stands in no other repeat is kept: its body becomes a segment of N trips, and names that it
 * assigns and that exist before it are carried from trip to trip. Others, and those that use their index, are unrolled.
 */
#include <inttypes.h>
#include <string.h>

#include "semantic/elaborate.h"

enum { MAX_UNROLLED_TRIPS = 10000 };

/* ---- reading the body ---- */

static bool expr_uses(const Expr *expr, const char *name) {
  if (!expr) return false;
  if (expr->kind == EXPR_NAME && expr->name.text == name) return true;
  for (uint32_t i = 0; i < expr->arg_count; i++)
    if (expr_uses(expr->args[i], name)) return true;
  return false;
}

static bool type_uses(const TypeExpr *type, const char *name) {
  for (uint32_t i = 0; type && i < type->dim_count; i++)
    if (expr_uses(type->dims[i], name)) return true;
  return false;
}

static bool body_uses(Stmt *const *body, uint32_t count, const char *name) {
  for (uint32_t i = 0; i < count; i++) {
    const Stmt *stmt = body[i];
    if (expr_uses(stmt->value, name) || expr_uses(stmt->upper, name)) return true;
    for (uint32_t k = 0; k < stmt->param_count; k++)
      if (type_uses(stmt->params[k].type, name) || expr_uses(stmt->params[k].init, name)) return true;
    if (body_uses(stmt->body, stmt->body_count, name) || body_uses(stmt->otherwise, stmt->otherwise_count, name))
      return true;
  }
  return false;
}

typedef VEC(Name) Names;

static void assigned_names(Sem *sem, Stmt *const *body, uint32_t count, Names *names) {
  for (uint32_t i = 0; i < count; i++) {
    const Stmt *stmt = body[i];
    for (uint32_t k = 0; stmt->kind == STMT_ASSIGN && k < stmt->target_count; k++) {
      bool known = false;
      for (uint32_t n = 0; n < names->count; n++) known |= names->at[n].text == stmt->targets[k].text;
      if (!known) vec_push(sem->arena, names, stmt->targets[k]);
    }
    assigned_names(sem, stmt->body, stmt->body_count, names);
    assigned_names(sem, stmt->otherwise, stmt->otherwise_count, names);
  }
}

/* ---- a kept loop ---- */

static Id copy_value(Sem *sem, Id value, const char *name, Span span) {
  Id axes[MAX_RANK];
  memcpy(axes, value_at(sem, value)->axes, sizeof axes);
  Val copy = emit(sem, OP_COPY, span, &value, 1, value_at(sem, value)->rank, axes);
  if (copy.kind == VAL_ERROR) return NO_ID;
  value_at(sem, copy.value)->name = name;
  return copy.value;
}

/* A carried name enters the loop on a wire: a model input, a parameter or a number is copied before the loop. */
static bool enter_carry(Sem *sem, Local *local, const Name *name, Carry *carry) {
  *carry = (Carry){.name = name->text, .span = name->span, .original = local->value};
  if (local->value.kind == VAL_NUMBER && !const_is_number(local->value.number)) return false;
  if (local->value.kind != VAL_TENSOR && local->value.kind != VAL_NUMBER) return false;
  Id before =
      local->value.kind == VAL_NUMBER ? draft_const(sem, const_number(local->value.number)) : local->value.value;
  if (value_at(sem, before)->dtype == DT_I32) {
    report(sem, "E0309", name->span, "`%s` holds integers and cannot change in a loop", name->text);
    local->value = val_error();
    return false;
  }
  carry->before = carry->copy = before;
  if (value_at(sem, before)->kind != VALUE_OP) {
    begin_segment(sem, name->text, name->span);
    carry->copy = copy_value(sem, before, name->text, name->span);
    if (carry->copy == NO_ID) return false;
  }
  return true;
}

static void make_placeholder(Sem *sem, Draft *loop, Id segment, Carry *carry) {
  Value value = *value_at(sem, carry->before);
  value.kind = VALUE_WIRE;
  value.name = carry->name;
  value.source = loop->carries.count;
  value.segment = segment;
  value.number = 0;
  vec_push(sem->arena, &sem->graph->values, value);
  carry->inside = carry->after = sem->graph->values.count - 1;
  vec_push(sem->arena, &loop->carries, *carry);
}

static void shape_changed(Sem *sem, const Carry *carry, Val after) {
  Diag *diag = report(sem, "E0307", carry->span, "`%s` changes its shape in the loop: %s before a trip, %s after it",
                      carry->name, shape_text(sem, carry->inside),
                      after.kind == VAL_TENSOR ? shape_text(sem, after.value) : "several tensors");
  if (after.kind == VAL_TENSOR) {
    const Value *v = value_at(sem, after.value);
    if (v->span.file != UINT32_MAX) diag_label(diag, v->span, "%s", shape_text(sem, after.value));
    axis_notes(sem, diag, v->rank, v->axes);
    const Value *w = value_at(sem, carry->inside);
    axis_notes(sem, diag, w->rank, w->axes);
  }
}

/* After the body: what the name holds goes to the next trip. */
static void leave_carry(Sem *sem, Frame *frame, Id loop, uint32_t index) {
  Carry carry = sem->drafts.at[loop].carries.at[index];
  Local *local = find_local(frame, carry.name);
  Val after = local->value;
  if (after.kind == VAL_ERROR) return;
  if (after.kind == VAL_NUMBER && const_is_number(after.number))
    after = val_tensor(draft_const(sem, const_number(after.number)));
  if (after.kind == VAL_TENSOR && after.value == carry.inside) { /* never changed */
    local->value = carry.original;
    return;
  }
  const Value *a = after.kind == VAL_TENSOR ? value_at(sem, after.value) : NULL, *b = value_at(sem, carry.inside);
  bool same = a && a->rank == b->rank && a->dtype == b->dtype;
  for (unsigned i = 0; same && i < a->rank; i++) same = same_axis(sem, a->axes[i], b->axes[i]);
  local->value = val_error();
  if (!same) {
    shape_changed(sem, &carry, after);
    return;
  }
  bool own = a->kind == VALUE_OP && a->segment == loop;
  for (uint32_t i = 0; i < index; i++) own &= sem->drafts.at[loop].carries.at[i].after != after.value;
  Id value = own ? after.value : copy_value(sem, after.value, carry.name, carry.span);
  if (value == NO_ID) return;
  sem->drafts.at[loop].carries.at[index].after = value;
  local->value = val_tensor(value);
}

static void keep_loop(Sem *sem, Frame *frame, const Stmt *stmt, const char *name, int64_t trips) {
  Names names = {0};
  assigned_names(sem, stmt->body, stmt->body_count, &names);
  const char *resume = sem->current != NO_ID ? sem->drafts.at[sem->current].name : sem->pending_name;
  Span resume_span = sem->pending_span;
  VEC(Carry) carries = {0};
  for (uint32_t i = 0; i < names.count; i++) {
    Local *local = find_local(frame, names.at[i].text);
    Carry carry;
    if (local && !local->is_size && enter_carry(sem, local, &names.at[i], &carry))
      vec_push(sem->arena, &carries, carry);
  }
  Draft draft = {.name = name, .span = stmt->span, .trips = trips, .loop = true};
  vec_push(sem->arena, &sem->drafts, draft);
  Id loop = sem->drafts.count - 1;
  for (uint32_t i = 0; i < carries.count; i++) {
    make_placeholder(sem, &sem->drafts.at[loop], loop, &carries.at[i]);
    find_local(frame, carries.at[i].name)->value = val_tensor(carries.at[i].inside);
  }
  Naming *outer = frame->naming;
  Naming inner = {.prefix = arena_printf(sem->arena, "%s.{}.", naming_child(sem, outer, name))};
  uint32_t locals = frame->locals.count;
  frame->naming = &inner;
  sem->current = sem->loop = loop;
  sem->loop_depth++;
  exec_list(sem, frame, stmt->body, stmt->body_count);
  for (uint32_t i = 0; i < carries.count; i++) leave_carry(sem, frame, loop, i);
  sem->loop_depth--;
  sem->loop = NO_ID;
  frame->naming = outer;
  drop_locals(sem, frame, locals);
  begin_segment(sem, resume, resume_span);
}

/* ---- an unrolled one ---- */

static bool may_unroll(Sem *sem, const Stmt *stmt) {
  if (diag_full(sem->diagnostics) || sem->unroll_failed) return false;
  if (++sem->unrolled_trips <= MAX_UNROLLED_TRIPS) return true;
  sem->unroll_failed = true;
  Diag *diag = report(sem, "E0319", stmt->span, "unrolling gives more than %d trips", MAX_UNROLLED_TRIPS);
  diag_note(diag, "a `repeat` inside a `repeat`, and one whose index is used, are unrolled");
  return false;
}

static void unroll(Sem *sem, Frame *frame, const Stmt *stmt, const char *name, int64_t first, int64_t end) {
  Naming *outer = frame->naming;
  const char *child = naming_child(sem, outer, name);
  const char *resume = sem->pending_name;
  Span resume_span = sem->pending_span;
  bool segments = sem->loop_depth == 0;
  sem->loop_depth++;
  sem->unrolling++;
  for (int64_t i = first; i < end && may_unroll(sem, stmt); i++) {
    Naming inner = {.prefix = arena_printf(sem->arena, "%s.%" PRId64 ".", child, i)};
    uint32_t locals = frame->locals.count;
    unsigned errors = diag_errors(sem->diagnostics);
    if (stmt->index.text) {
      Local index = {.name = stmt->index.text, .span = stmt->index.span, .value = val_number(const_int(i))};
      add_local(sem, frame, index);
    }
    if (segments) { /* a name for C */
      uint64_t size = i < 0 ? -(uint64_t)i : (uint64_t)i;
      begin_segment(sem, arena_printf(sem->arena, "%s_%s%" PRIu64, name, i < 0 ? "minus_" : "", size), stmt->span);
    }
    frame->naming = &inner;
    exec_list(sem, frame, stmt->body, stmt->body_count);
    frame->naming = outer;
    drop_locals(sem, frame, locals);
    if (diag_errors(sem->diagnostics) != errors) break;
  }
  sem->unrolling--;
  sem->loop_depth--;
  if (segments) begin_segment(sem, resume, resume_span);
}

void exec_repeat(Sem *sem, Frame *frame, const Stmt *stmt) {
  int64_t first = 0, end = 0, trips;
  if (stmt->upper) {
    bool usable = eval_integer(sem, frame->unit, frame, stmt->value, "the first index", &first);
    if (!eval_integer(sem, frame->unit, frame, stmt->upper, "the end of the range", &end) || !usable) return;
  } else if (!eval_integer(sem, frame->unit, frame, stmt->value, "the number of trips", &end)) {
    return;
  }
  if (__builtin_sub_overflow(end, first, &trips) || trips < 0) {
    Diag *diag = report(sem, "E0222", stmt->value->span, "a loop cannot have %" PRId64 " trips",
                        end < first ? end - first : INT64_MAX);
    if (stmt->upper) diag_note(diag, "from %" PRId64 " to below %" PRId64, first, end);
    return;
  }
  if (stmt->index.text) {
    const Local *taken = find_local(frame, stmt->index.text);
    const Symbol *symbol = unit_symbol(frame->unit, stmt->index.text);
    if (taken || (symbol && (symbol->kind == SYMBOL_DIM || symbol->kind == SYMBOL_CONST))) {
      Diag *diag = report(sem, "E0202", stmt->index.span, "`%s` is already defined", stmt->index.text);
      diag_label(diag, taken ? taken->span : symbol->span, "first defined here");
      return;
    }
  }
  const Expr *count = stmt->upper ? stmt->upper : stmt->value;
  bool named = count->kind == EXPR_NAME && !strchr(count->name.text, '.') && first == 0;
  const char *name = named ? count->name.text : "repeat";
  Names assigned = {0};
  assigned_names(sem, stmt->body, stmt->body_count, &assigned);
  bool indexed = stmt->index.text && body_uses(stmt->body, stmt->body_count, stmt->index.text);
  for (uint32_t i = 0; i < assigned.count; i++) indexed |= assigned.at[i].text == stmt->index.text; /* an error */
  if (trips == 0) return;
  if (indexed || sem->loop_depth > 0)
    unroll(sem, frame, stmt, name, first, end);
  else
    keep_loop(sem, frame, stmt, name, trips);
}
