/* `param` declarations: shape, initial values, name. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "semantic/elaborate.h"

typedef struct InitRow {
  const char *name;
  unsigned args;
  const char *form;
} InitRow;
static const InitRow inits[] = {{"normal", 1, "normal(std)"},
                                {"uniform", 2, "uniform(lo, hi)"},
                                {"kaiming", 1, "kaiming(fan_in)"},
                                {"xavier", 2, "xavier(fan_in, fan_out)"}};

static bool init_call(Sem *sem, Frame *frame, const Expr *expr, const InitRow *row, Init *init) {
  double x[2] = {0, 0};
  if (expr->arg_count != row->args) {
    Diag *diag = report(sem, "E0215", expr->span, "`%s` takes %u argument%s, and %u %s given", row->name, row->args,
                        row->args == 1 ? "" : "s", expr->arg_count, expr->arg_count == 1 ? "is" : "are");
    diag_help(diag, "it is written `%s`", row->form);
    return false;
  }
  for (unsigned i = 0; i < row->args; i++)
    if (!eval_number(sem, frame->unit, frame, expr->args[i], "an argument of an initialiser", &x[i])) return false;
  const char *wrong = NULL;
  if (!strcmp(row->name, "normal")) {
    *init = (Init){INIT_NORMAL, x[0], 0};
    if (x[0] < 0) wrong = "the standard deviation must not be negative";
  } else if (!strcmp(row->name, "uniform")) {
    *init = (Init){INIT_UNIFORM, x[0], x[1]};
    if (x[0] > x[1]) wrong = "the lower bound is above the upper";
  } else if (!strcmp(row->name, "kaiming")) {
    if (x[0] <= 0) wrong = "fan_in must be positive";
    *init = (Init){INIT_NORMAL, wrong ? 0 : sqrt(2 / x[0]), 0};
  } else {
    if (x[0] < 0 || x[1] < 0 || x[0] + x[1] <= 0) wrong = "fan_in + fan_out must be positive";
    double bound = wrong ? 0 : sqrt(6 / (x[0] + x[1]));
    *init = (Init){INIT_UNIFORM, -bound, bound};
  }
  if (wrong) report(sem, "E0214", expr->span, "`%s`: %s", source_text(sem, expr->span, 60), wrong);
  return !wrong;
}

static bool read_init(Sem *sem, Frame *frame, const Expr *expr, Init *init) {
  *init = (Init){INIT_NORMAL, 0.02, 0};
  if (!expr) return true;
  if (expr->kind == EXPR_CALL)
    for (size_t i = 0; i < sizeof inits / sizeof *inits; i++)
      if (!strcmp(inits[i].name, expr->name.text)) return init_call(sem, frame, expr, &inits[i], init);
  if (expr->kind == EXPR_CALL && !is_const_function(expr->name.text)) {
    Diag *diag = report(sem, "E0204", expr->name.span, "unknown initialiser `%s`", expr->name.text);
    Spelling spelling = spelling_of(expr->name.text);
    for (size_t i = 0; i < sizeof inits / sizeof *inits; i++) spelling_try(&spelling, inits[i].name);
    spelling_help(&spelling, diag);
    if (!spelling.best) alias_help(expr->name.text, diag);
    diag_note(diag, "initialisers are a number, normal(std), uniform(lo, hi), kaiming(fan_in) and xavier(fan_in, "
                    "fan_out)");
    return false;
  }
  *init = (Init){INIT_NUMBER, 0, 0};
  return eval_number(sem, frame->unit, frame, expr, "an initial value", &init->a);
}

static bool read_shape(Sem *sem, Frame *frame, const ParamDecl *decl, Param *param) {
  const TypeExpr *type = decl->type;
  DType dtype;
  if (!type_dtype(sem, type, &dtype)) return false;
  if (dtype != DT_REAL) {
    report(sem, "E0309", type->dtype.span, "parameter `%s` must hold real numbers", decl->name.text);
    return false;
  }
  uint32_t run = type->leading_run ? frame->run_count : 0;
  if (type->leading_run && !frame->has_run) {
    report(sem, "E0314", type->span, "`..` of parameter `%s` stands for no axes here", decl->name.text);
    return false;
  }
  if (type->dim_count + run > MAX_RANK) {
    report(sem, "E0320", type->span, "parameter `%s` has %u axes; at most %d are possible", decl->name.text,
           type->dim_count + run, MAX_RANK);
    return false;
  }
  param->rank = (uint8_t)(type->dim_count + run);
  if (run) memcpy(param->axes, frame->run, run * sizeof(Id));
  for (uint32_t i = 0; i < type->dim_count; i++)
    param->axes[run + i] = axis_of_expr(sem, frame->unit, frame, type->dims[i]);
  return !has_error_axis(sem, param->rank, param->axes);
}

static bool check_shape(Sem *sem, const ParamDecl *decl, const Param *param) {
  const char *what = arena_printf(sem->arena, "parameter `%s`", param->name);
  for (unsigned i = 0; i < param->rank; i++) {
    const Axis *axis = &sem->graph->axes.at[param->axes[i]];
    if (param->axes[i] == sem->batch) {
      Diag *diag = report(sem, "E0318", decl->type->span, "%s %s has the batch axis", what,
                          axes_text(sem->graph, param->rank, param->axes, true));
      diag_note(diag, "samples are cut into micro-batches and replicas; a parameter belongs to all of them");
      return false;
    }
    if (axis->size) continue;
    Diag *diag = report(sem, "E0313", param->span, "%s has no elements: %s is of size 0", what,
                        axis->name ? arena_printf(sem->arena, "axis `%s`", axis->name)
                                   : arena_printf(sem->arena, "axis %u", i + 1));
    diag_note(diag, "its shape is %s", axes_text(sem->graph, param->rank, param->axes, true));
    axis_notes(sem, diag, param->rank, param->axes);
    return false;
  }
  return check_tensor(sem, decl->type->span, what, param->rank, param->axes);
}

static void declare_param(Sem *sem, Frame *frame, const ParamDecl *decl, bool frozen) {
  const char *name = decl->name.text;
  Local *before = find_local(frame, name);
  Symbol *symbol = unit_symbol(frame->unit, name);
  if (before || (symbol && (symbol->kind == SYMBOL_CONST || symbol->kind == SYMBOL_DIM))) {
    Diag *diag = report(sem, "E0202", decl->name.span, "`%s` is already defined", name);
    diag_label(diag, before ? before->span : symbol->span, "first defined here");
    return;
  }
  Span span = decl->type ? span_join(decl->name.span, decl->type->span) : decl->name.span;
  Param param = {.span = span, .frozen = frozen, .segment = NO_ID};
  Local local = {.name = name, .span = decl->name.span, .value = val_error()};
  bool usable = !is_too_long(sem, span) && decl->type && read_shape(sem, frame, decl, &param);
  usable &= read_init(sem, frame, decl->init, &param.init);
  if (usable) {
    param.name = naming_child(sem, frame->naming, name);
    usable = check_shape(sem, decl, &param);
  }
  if (usable) {
    param.decay = param.rank > 1;
    param.per_trip = sem->loop != NO_ID;
    vec_push(sem->arena, &sem->graph->params, param);
    Value value = {.kind = VALUE_PARAM,
                   .name = param.name,
                   .span = span,
                   .rank = param.rank,
                   .source = sem->graph->params.count - 1,
                   .segment = NO_ID};
    memcpy(value.axes, param.axes, sizeof value.axes);
    vec_push(sem->arena, &sem->graph->values, value);
    local.value = val_tensor(sem->graph->values.count - 1);
  }
  add_local(sem, frame, local);
}

void declare_params(Sem *sem, Frame *frame, const Stmt *stmt) {
  for (uint32_t i = 0; i < stmt->param_count; i++) declare_param(sem, frame, &stmt->params[i], stmt->frozen);
}
