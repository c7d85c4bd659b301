/* Statements: elaborates the model from its first to its last statement into the draft. Names are bound to values;
 * every top-level statement begins a segment of its own. */
#include <inttypes.h>
#include <string.h>

#include "semantic/elaborate.h"

const char *naming_child(Sem *sem, Naming *naming, const char *name) {
  const char *key = intern_str(sem->names, name);
  uintptr_t times = (uintptr_t)table_get(&naming->taken, key) + 1;
  table_put(sem->arena, &naming->taken, key, (void *)times);
  if (times == 1) return arena_printf(sem->arena, "%s%s", naming->prefix, name);
  const char *numbered = arena_printf(sem->arena, "%s_%u", name, (unsigned)times);
  return naming_child(sem, naming, numbered); /* `linear_2` may be a block too */
}

bool at_top(const Sem *sem, const Frame *frame) {
  return !frame->caller && sem->loop_depth == 0;
}

void begin_segment(Sem *sem, const char *name, Span span) {
  sem->current = NO_ID;
  sem->pending_name = name;
  sem->pending_span = span;
}

void bind_local(Sem *sem, Frame *frame, const Name *name, Val value) {
  Local *local = find_local(frame, name->text);
  const Symbol *symbol = local ? NULL : unit_symbol(frame->unit, name->text);
  bool is_index = local && !local->is_size && !local->is_value && local->value.kind == VAL_NUMBER;
  if (is_index || (local && local->is_size) ||
      (symbol && (symbol->kind == SYMBOL_CONST || symbol->kind == SYMBOL_DIM))) {
    Diag *diag = report(sem, "E0203", name->span, "`%s` is a %s and cannot be assigned", name->text,
                        is_index                     ? "loop index"
                        : local                      ? "size"
                        : symbol->kind == SYMBOL_DIM ? "dim"
                                                     : "const");
    diag_label(diag, local ? local->span : symbol->span, "declared here");
    diag_help(diag, "choose another name");
    if (local) return;
    Local silent = {.name = name->text, .span = name->span, .is_value = true, .value = val_error()};
    add_local(sem, frame, silent);
    return;
  }
  if (value.kind == VAL_TENSOR) {
    Value *v = value_at(sem, value.value);
    if (v->kind == VALUE_OP && v->name == op_name(sem->graph->ops.at[v->source].kind)) v->name = name->text;
  }
  if (local) {
    local->value = value;
    local->is_value = true;
    return;
  }
  Local fresh = {.name = name->text, .span = name->span, .is_value = true, .value = value};
  add_local(sem, frame, fresh);
}

static void exec_assign(Sem *sem, Frame *frame, const Stmt *stmt) {
  Val value = eval(sem, frame, stmt->value);
  if (stmt->target_count == 1) {
    if (value.kind == VAL_TUPLE && value.count == 1) value = value.items[0];
    if (value.kind == VAL_TUPLE) {
      Diag *diag = report(sem, "E0308", stmt->value->span, "`%s` gives %u tensors for one name",
                          source_text(sem, stmt->value->span, 40), value.count);
      diag_help(diag, "give each a name: a, b = ...;");
      value = val_error();
    }
    bind_local(sem, frame, &stmt->targets[0], value);
    return;
  }
  bool fits = value.kind == VAL_TUPLE && value.count == stmt->target_count;
  if (!fits && value.kind != VAL_ERROR)
    report(sem, "E0308", stmt->value->span, "`%s` gives %u tensor%s for %u names",
           source_text(sem, stmt->value->span, 40), value.kind == VAL_TUPLE ? value.count : 1,
           value.kind == VAL_TUPLE && value.count != 1 ? "s" : "", stmt->target_count);
  for (uint32_t i = 0; i < stmt->target_count; i++)
    bind_local(sem, frame, &stmt->targets[i], fits ? value.items[i] : val_error());
}

/* The value of `loss` or `metric`: a computed number. */
static Id rank_zero(Sem *sem, Frame *frame, const Stmt *stmt, const char *what) {
  Val value = eval(sem, frame, stmt->value);
  if (value.kind == VAL_ERROR) return NO_ID;
  if (value.kind != VAL_TENSOR) {
    report(sem, "E0315", stmt->value->span, "%s must be computed from the data, and `%s` is %s", what,
           source_text(sem, stmt->value->span, 40),
           value.kind == VAL_TUPLE ? "several tensors" : const_kind_name(value.number.kind));
    return NO_ID;
  }
  const Value *v = value_at(sem, value.value);
  if (v->rank || v->dtype != DT_REAL) {
    Diag *diag = report(sem, "E0315", stmt->value->span, "%s must be one number, and `%s` is %s", what,
                        source_text(sem, stmt->value->span, 40), shape_text(sem, value.value));
    const Symbol *mean = find_symbol(sem, frame->unit, intern_str(sem->names, "mean"));
    if (mean)
      diag_label(diag, mean->span, "`mean` is this %s, not the operation",
                 mean->kind == SYMBOL_BLOCK ? "block" : "name");
    else
      diag_help(diag, "take the mean: mean(%s)", source_text(sem, stmt->value->span, 40));
    return NO_ID;
  }
  if (sem->batch == NO_ID) return NO_ID; /* reported at the inputs */
  if (!sem->batch_sum.at || value.value >= sem->batch_sum.count || !sem->batch_sum.at[value.value]) {
    Diag *diag = report(sem, "E0315", stmt->value->span, "%s does not depend on the samples of the batch", what);
    diag_help(
        diag,
        "a term of parameters alone is added to one that is computed from the inputs: `mse(...) + 1e-4 * sum(w * w)`");
    return NO_ID;
  }
  return value.value;
}

static void exec_loss(Sem *sem, Frame *frame, const Stmt *stmt) {
  bool again = sem->has_loss;
  sem->has_loss = true;
  if (again) {
    Diag *diag = report(sem, "E0219", stmt->span, "the model has a second `loss`");
    if (sem->graph->loss_span.file != UINT32_MAX) diag_label(diag, sem->graph->loss_span, "the first");
    diag_help(diag, "add them: loss a + b;");
    return;
  }
  sem->graph->loss_span = stmt->span;
  sem->graph->loss = rank_zero(sem, frame, stmt, "the loss");
}

static void exec_metric(Sem *sem, Frame *frame, const Stmt *stmt) {
  const Name *name = &stmt->targets[0];
  for (uint32_t i = 0; i < sem->graph->metrics.count; i++)
    if (sem->graph->metrics.at[i].name == name->text) {
      report(sem, "E0202", name->span, "metric `%s` is already defined", name->text);
      return;
    }
  Metric metric = {name->text, NO_ID};
  metric.value = rank_zero(sem, frame, stmt, arena_printf(sem->arena, "metric `%s`", name->text));
  vec_push(sem->arena, &sem->graph->metrics, metric);
}

static bool has_loss(Stmt *const *body, uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    if (body[i]->kind == STMT_LOSS || has_loss(body[i]->body, body[i]->body_count) ||
        has_loss(body[i]->otherwise, body[i]->otherwise_count))
      return true;
  return false;
}

/* True when a size decides, or what a block gave to this one. */
static bool is_of_sizes(Frame *frame, const Expr *expr) {
  if (!expr) return false;
  const Local *local = expr->kind == EXPR_NAME ? find_local(frame, expr->name.text) : NULL;
  if (local && (local->is_size || frame->depth > 1)) return true;
  for (uint32_t i = 0; i < expr->arg_count; i++)
    if (is_of_sizes(frame, expr->args[i])) return true;
  return false;
}

static void exec_if(Sem *sem, Frame *frame, const Stmt *stmt) {
  if (sem->trial && is_of_sizes(frame, stmt->value)) uncertain_from_here(sem);
  Const condition = const_eval(sem, frame->unit, frame, stmt->value);
  if (condition.kind != CONST_BOOL) /* which of the two was meant is not known */
    sem->may_have_loss |= has_loss(stmt->body, stmt->body_count) || has_loss(stmt->otherwise, stmt->otherwise_count);
  if (condition.kind == CONST_ERROR) return;
  if (condition.kind != CONST_BOOL) {
    report(sem, "E0221", stmt->value->span, "a condition is true or false, and `%s` is %s",
           source_text(sem, stmt->value->span, 40), const_kind_name(condition.kind));
    return;
  }
  if (condition.integer)
    exec_list(sem, frame, stmt->body, stmt->body_count);
  else
    exec_list(sem, frame, stmt->otherwise, stmt->otherwise_count);
}

static void exec_return(Sem *sem, Frame *frame, const Stmt *stmt, unsigned loop_depth) {
  if (!frame->caller) {
    Diag *diag = report(sem, "E0219", stmt->span, "a model returns nothing");
    diag_help(diag, "say `loss` for what is trained, and `metric name = ...` for what is reported");
    sem->may_have_loss = true; /* meant as one */
    return;
  }
  if (sem->loop_depth > loop_depth) {
    report(sem, "E0219", stmt->span, "`return` cannot stand in a `repeat`");
    return;
  }
  frame->result = eval(sem, frame, stmt->value);
  frame->result_span = stmt->value->span;
  frame->returned = true;
}

/* The first block called in an expression, from the outside in; else "embedding" for a look-up. */
static const char *called_name(const Sem *sem, const Unit *unit, const Expr *expr, const char *found) {
  if (expr->kind == EXPR_CALL) {
    const char *dot = strrchr(expr->name.text, '.');
    Symbol *symbol = dot ? NULL : unit_symbol(unit, expr->name.text);
    if (dot) return dot + 1;
    if (symbol && symbol->kind == SYMBOL_BLOCK) return expr->name.text;
    if (!strcmp(expr->name.text, "gather")) found = "embedding";
  }
  for (uint32_t i = 0; i < expr->arg_count; i++) {
    const char *inner = called_name(sem, unit, expr->args[i], NULL);
    if (inner) return inner;
  }
  return found;
}

static void name_segment(Sem *sem, const Frame *frame, const Stmt *stmt) {
  const char *name = "segment";
  if (stmt->kind == STMT_LOSS) name = "loss";
  if (stmt->kind == STMT_METRIC) name = stmt->targets[0].text;
  if (stmt->kind == STMT_ASSIGN) {
    name = stmt->targets[0].text;
    const char *called = strlen(name) < 2 ? called_name(sem, frame->unit, stmt->value, NULL) : NULL;
    if (called) name = called;
  }
  begin_segment(sem, name, stmt->span);
}

static void exec(Sem *sem, Frame *frame, const Stmt *stmt) {
  bool top = at_top(sem, frame);
  if (top && stmt->kind != STMT_PARAM && stmt->kind != STMT_IF) name_segment(sem, frame, stmt);
  switch (stmt->kind) {
  case STMT_PARAM:
    declare_params(sem, frame, stmt);
    break;
  case STMT_ASSIGN:
    exec_assign(sem, frame, stmt);
    break;
  case STMT_REPEAT:
    exec_repeat(sem, frame, stmt);
    break;
  case STMT_IF:
    exec_if(sem, frame, stmt);
    break;
  case STMT_RETURN:
    exec_return(sem, frame, stmt, frame->loop_depth);
    break;
  case STMT_LOSS:
  case STMT_METRIC:
    if (frame->caller || sem->loop_depth) {
      report(sem, "E0219", stmt->span, "`%s` stands in a model, outside of blocks and loops",
             stmt->kind == STMT_LOSS ? "loss" : "metric");
      sem->has_loss |= stmt->kind == STMT_LOSS;
    } else if (stmt->kind == STMT_LOSS)
      exec_loss(sem, frame, stmt);
    else
      exec_metric(sem, frame, stmt);
    break;
  }
}

void exec_list(Sem *sem, Frame *frame, Stmt *const *body, uint32_t count) {
  for (uint32_t i = 0; i < count && !diag_full(sem->diagnostics); i++) {
    /* of a block of another file, the first error is enough: what is wrong is most likely the call */
    if (frame->unit != sem->root && diag_errors(sem->diagnostics) != frame->errors) return;
    if (frame->returned) {
      Diag *diag = report(sem, "E0219", body[i]->span, "a statement after `return` is never reached");
      if (i > 0 && body[i - 1]->kind == STMT_IF)
        diag_help(diag, "the `if` before it has returned already: put this into its `else { ... }`");
      return;
    }
    if (!go_deeper(sem, body[i]->span)) return;
    exec(sem, frame, body[i]);
    sem->depth--;
  }
}

/* ---- the model ---- */

static void declare_input(Sem *sem, Frame *frame, const Input *input) {
  Data data = {.name = input->name.text, .span = input->name.span};
  Local local = {.name = input->name.text, .span = input->name.span, .is_value = true, .value = val_error()};
  const TypeExpr *type = input->type;
  if (find_local(frame, input->name.text)) {
    report(sem, "E0202", input->name.span, "input `%s` is already defined", input->name.text);
    return;
  }
  if (!type) {
    local.value = val_number(input->value ? const_eval(sem, frame->unit, NULL, input->value) : (Const){0});
    add_local(sem, frame, local);
    return;
  }
  data.span = span_join(input->name.span, type->span);
  bool usable = type_dtype(sem, type, &data.dtype);
  if (type->leading_run || type->dim_count > MAX_RANK || !type->dim_count) {
    report(sem, "E0317", type->span, "input `%s` of a model needs 1 to %d axes, all of them known", data.name,
           MAX_RANK);
    usable = false;
  }
  for (uint32_t i = 0; usable && i < type->dim_count; i++) {
    data.axes[i] = axis_of_expr(sem, frame->unit, frame, type->dims[i]);
    if (axis_is_error(sem, data.axes[i])) usable = false;
    if (!usable || sem->graph->axes.at[data.axes[i]].size) continue;
    usable = false;
    if (data.axes[i] == sem->empty_axis) continue; /* told for an input before */
    sem->empty_axis = data.axes[i];
    const Axis *axis = &sem->graph->axes.at[data.axes[i]];
    Diag *diag = report(sem, "E0313", type->span, "input `%s` has no elements: %s is of size 0", data.name,
                        axis->name ? arena_printf(sem->arena, "axis `%s`", axis->name)
                                   : arena_printf(sem->arena, "axis %u", i + 1));
    if (axis->name) diag_label(diag, axis->span, "`%s` = 0", axis->name);
    axis_notes(sem, diag, 1, &data.axes[i]);
  }
  data.rank = (uint8_t)(usable ? type->dim_count : 0);
  if (usable) {
    Id first = data.axes[0];
    const Axis *axis = &sem->graph->axes.at[first];
    if (!axis->name) {
      Diag *diag = report(sem, "E0317", type->dims[0]->span, "input `%s` starts with %s, not with a dim", data.name,
                          axis_text(sem, first));
      diag_note(diag, "the first axis of every input is the batch: declare it with `dim batch = ...;`");
      usable = false;
    } else if (sem->batch == NO_ID) {
      sem->batch = sem->graph->batch = first;
    } else if (sem->batch != first) {
      Diag *diag = report(sem, "E0317", type->dims[0]->span, "input `%s` starts with %s, not with the batch %s",
                          data.name, axis_text(sem, first), axis_text(sem, sem->batch));
      diag_note(diag, "all inputs start with the same dim, which micro-batches and replicas cut");
      usable = false;
    }
  }
  usable =
      usable && check_tensor(sem, type->span, arena_printf(sem->arena, "input `%s`", data.name), data.rank, data.axes);
  if (usable) {
    vec_push(sem->arena, &sem->graph->data, data);
    Value value = {.kind = VALUE_DATA,
                   .dtype = data.dtype,
                   .name = data.name,
                   .span = data.span,
                   .rank = data.rank,
                   .source = sem->graph->data.count - 1,
                   .segment = NO_ID};
    memcpy(value.axes, data.axes, sizeof value.axes);
    vec_push(sem->arena, &sem->graph->values, value);
    local.value = val_tensor(sem->graph->values.count - 1);
  }
  add_local(sem, frame, local);
}

void elaborate_model(Sem *sem) {
  const Item *item = sem->model->item;
  Naming naming = {.prefix = ""};
  Frame frame = {.unit = sem->model->unit, .symbol = sem->model, .naming = &naming, .call = item->name.span};
  sem->graph->model = sem->model->name;
  sem->graph->loss = NO_ID;
  sem->graph->loss_span = NO_SPAN;
  sem->graph->batch = sem->batch = sem->loop = sem->current = NO_ID;
  unsigned errors = diag_errors(sem->diagnostics);
  for (uint32_t i = 0; i < item->input_count; i++) declare_input(sem, &frame, &item->inputs[i]);
  bool tensors = false;
  for (uint32_t i = 0; i < item->input_count; i++) tensors |= item->inputs[i].type != NULL;
  if (!tensors && diag_errors(sem->diagnostics) == errors)
    report(sem, "E0317", item->name.span, "model `%s` has no input", sem->model->name);
  check_layout(sem);
  exec_list(sem, &frame, item->body, item->body_count);
  if (!sem->has_loss && !sem->may_have_loss && !sem->too_long && !diag_full(sem->diagnostics)) {
    Diag *diag = report(sem, "E0220", item->name.span, "model `%s` has no `loss`", sem->model->name);
    diag_help(diag, "end it with `loss ...;`: what training makes small");
  }
}
