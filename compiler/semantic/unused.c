/* What the elaboration of the model does not reach: blocks that nothing calls, and branches that are not taken. Every
 * name in them is looked up; the shapes of the blocks are checked in trials.c. */
#include <string.h>

#include "semantic/elaborate.h"

typedef VEC(Symbol *) Symbols;

/* ---- names ---- */

static void add_name(Sem *sem, Frame *frame, const Name *name) {
  Local local = {.name = name->text, .span = name->span, .value = val_error()};
  if (name->text && !find_local(frame, name->text)) add_local(sem, frame, local);
}

static void add_names(Sem *sem, Frame *frame, Stmt *const *body, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    const Stmt *stmt = body[i];
    for (uint32_t k = 0; k < stmt->param_count; k++) add_name(sem, frame, &stmt->params[k].name);
    for (uint32_t k = 0; stmt->kind == STMT_ASSIGN && k < stmt->target_count; k++)
      add_name(sem, frame, &stmt->targets[k]);
    add_name(sem, frame, &stmt->index);
    add_names(sem, frame, stmt->body, stmt->body_count);
    add_names(sem, frame, stmt->otherwise, stmt->otherwise_count);
  }
}

static void check_name(Sem *sem, Frame *frame, const Name *name) {
  Const ignored;
  if (find_local(frame, name->text) || find_symbol(sem, frame->unit, name->text)) return;
  if (!strcmp(name->text, "true") || !strcmp(name->text, "false")) return;
  if (strchr(name->text, '.') && section_const(sem, name->text, &ignored)) return;
  report_unknown_name(sem, frame->unit, frame, name);
}

/* `gelu(x, approximate=none)`: an argument that is a word, not a name. */
static bool is_word(const Expr *call, uint32_t i) {
  if (call->kind != EXPR_CALL || strcmp(call->name.text, "gelu") != 0) return false;
  if (call->arg_names && call->arg_names[i].text) return !strcmp(call->arg_names[i].text, "approximate");
  const Expr *arg = call->args[i];
  return arg && arg->kind == EXPR_NAME && (!strcmp(arg->name.text, "tanh") || !strcmp(arg->name.text, "none"));
}

static void check_expr(Sem *sem, Frame *frame, const Expr *expr, bool initial) {
  if (!expr) return;
  if (expr->kind == EXPR_NAME) check_name(sem, frame, &expr->name);
  if (expr->kind == EXPR_CALL) {
    const char *name = expr->name.text;
    const Symbol *symbol = find_symbol(sem, frame->unit, name);
    bool known = (symbol && symbol->kind == SYMBOL_BLOCK) || is_operation(name) || is_const_function(name);
    if (!known && !(initial && is_initialiser(name))) report_unknown_call(sem, frame, expr);
  }
  for (uint32_t i = 0; i < expr->arg_count; i++)
    if (!is_word(expr, i)) check_expr(sem, frame, expr->args[i], false);
}

static void check_type(Sem *sem, Frame *frame, const TypeExpr *type) {
  for (uint32_t i = 0; type && i < type->dim_count; i++) check_expr(sem, frame, type->dims[i], false);
}

/* `elaborated`: what stands in no branch has been looked at. */
static void check_names(Sem *sem, Frame *frame, Stmt *const *body, uint32_t count, bool elaborated) {
  for (uint32_t i = 0; i < count && !diag_full(sem->diagnostics); i++) {
    const Stmt *stmt = body[i];
    for (uint32_t k = 0; k < stmt->param_count && !elaborated; k++) {
      check_type(sem, frame, stmt->params[k].type);
      check_expr(sem, frame, stmt->params[k].init, true);
    }
    if (!elaborated) {
      check_expr(sem, frame, stmt->value, false);
      check_expr(sem, frame, stmt->upper, false);
    }
    bool inside = elaborated && stmt->kind != STMT_IF;
    check_names(sem, frame, stmt->body, stmt->body_count, inside);
    check_names(sem, frame, stmt->otherwise, stmt->otherwise_count, inside);
  }
}

static void check_item(Sem *sem, const Symbol *symbol) {
  const Item *item = symbol->item;
  Frame frame = {.unit = symbol->unit, .symbol = symbol};
  bool elaborated = symbol->called || symbol == sem->model;
  for (uint32_t i = 0; i < item->size_count; i++) add_name(sem, &frame, &item->sizes[i]);
  for (uint32_t i = 0; i < item->input_count && !elaborated; i++) {
    check_type(sem, &frame, item->inputs[i].type);
    check_expr(sem, &frame, item->inputs[i].value, false);
  }
  for (uint32_t i = 0; i < item->input_count; i++) add_name(sem, &frame, &item->inputs[i].name);
  if (!elaborated) check_type(sem, &frame, item->result);
  add_names(sem, &frame, item->body, item->body_count);
  check_names(sem, &frame, item->body, item->body_count, elaborated);
}

/* ---- reach ---- */

static void reach_expr(Sem *sem, const Unit *unit, const Expr *expr, Symbols *reached);

static void reach(Sem *sem, Symbol *symbol, Symbols *reached) {
  for (uint32_t i = 0; i < reached->count; i++)
    if (reached->at[i] == symbol) return;
  vec_push(sem->arena, reached, symbol);
}

static void reach_body(Sem *sem, const Unit *unit, Stmt *const *body, uint32_t count, Symbols *reached) {
  for (uint32_t i = 0; i < count; i++) {
    reach_expr(sem, unit, body[i]->value, reached);
    reach_body(sem, unit, body[i]->body, body[i]->body_count, reached);
    reach_body(sem, unit, body[i]->otherwise, body[i]->otherwise_count, reached);
  }
}

static void reach_expr(Sem *sem, const Unit *unit, const Expr *expr, Symbols *reached) {
  if (!expr) return;
  Symbol *symbol = expr->kind == EXPR_CALL ? find_symbol(sem, unit, expr->name.text) : NULL;
  if (symbol && symbol->kind == SYMBOL_BLOCK && symbol->unit == sem->root) reach(sem, symbol, reached);
  for (uint32_t i = 0; i < expr->arg_count; i++) reach_expr(sem, unit, expr->args[i], reached);
}

static void warn_unused(Sem *sem) {
  Symbols reached = {0};
  for (uint32_t i = 0; i < sem->root->order.count; i++)
    if (sem->root->order.at[i]->kind == SYMBOL_MODEL) reach(sem, sem->root->order.at[i], &reached);
  for (uint32_t i = 0; i < reached.count; i++)
    reach_body(sem, sem->root, reached.at[i]->item->body, reached.at[i]->item->body_count, &reached);
  for (uint32_t i = 0; i < sem->root->order.count; i++) {
    Symbol *symbol = sem->root->order.at[i];
    bool found = symbol->kind != SYMBOL_BLOCK;
    for (uint32_t k = 0; k < reached.count && !found; k++) found = reached.at[k] == symbol;
    if (found) continue;
    Diag *diag =
        diag_warning(sem->diagnostics, "W0203", symbol->span, "block `%s` is not called by any model", symbol->name);
    if (symbol->item->size_count)
      diag_note(diag, "only a call makes its sizes known: what depends on their numbers is not checked");
    diag_help(diag, "call it, or remove it");
  }
}

void check_unused(Sem *sem) {
  VEC(bool) uncalled = {0}; /* by the model: checking one block calls others */
  for (uint32_t i = 0; i < sem->root->order.count; i++) {
    const Symbol *symbol = sem->root->order.at[i];
    vec_push(sem->arena, &uncalled, symbol->kind == SYMBOL_BLOCK && !symbol->called);
  }
  for (uint32_t i = 0; i < sem->root->order.count && !diag_full(sem->diagnostics); i++) {
    Symbol *symbol = sem->root->order.at[i];
    if (symbol->kind == SYMBOL_BLOCK || symbol->kind == SYMBOL_MODEL) check_item(sem, symbol);
    if (uncalled.at[i]) check_uncalled(sem, symbol);
  }
  if (!diag_errors(sem->diagnostics) && sem->model) warn_unused(sem);
}
