/* Builders of the syntax tree, one call for each action of the grammar. Owns the shape of the tree and the limit on its
 * depth. Assumes well-formed input: what the grammar lets through, except expressions that are too deep, is kept. */
#include "syntax/parser.h"

/* --- expressions --- */

Name build_name(Parser *parser, const char *text, size_t length, Span span) {
  return (Name){intern(parser->names, text, length), span};
}

static Expr *new_expr(Parser *parser, ExprKind kind, Span span) {
  Expr *expr = ARENA_NEW(parser->arena, Expr);
  expr->kind = kind;
  expr->span = span;
  expr->depth = 1;
  return expr;
}

Expr *build_error(Parser *parser, Span span) {
  return new_expr(parser, EXPR_ERROR, span);
}

/* Sets the operands and the depth; an expression beyond the limit is reported once and cut off. */
static Expr *with_args(Parser *parser, Expr *expr, Expr **args, uint32_t count) {
  expr->args = args;
  expr->arg_count = count;
  for (uint32_t i = 0; i < count; i++)
    if (args[i]->depth >= expr->depth) expr->depth = args[i]->depth + 1;
  if (expr->depth <= SYNTAX_DEEPEST) return expr;
  if (!parser->too_deep) {
    Diag *diag = diag_error(parser->all, "E0110", args[count - 1]->span, "this expression is nested too deeply");
    diag_note(diag, "at most %d levels are allowed", SYNTAX_DEEPEST);
    diag_help(diag, "give parts of it names: `a = ...;`");
  }
  parser->too_deep = true;
  return build_error(parser, expr->span);
}

static Expr *with_two(Parser *parser, Expr *expr, Expr *left, Expr *right) {
  Expr **args = ARENA_ARRAY(parser->arena, Expr *, 2);
  args[0] = left;
  args[1] = right;
  return with_args(parser, expr, args, 2);
}

Expr *build_name_expr(Parser *parser, Name name) {
  Expr *expr = new_expr(parser, EXPR_NAME, name.span);
  expr->name = name;
  return expr;
}

Expr *build_unary(Parser *parser, int op, Span op_span, Expr *operand) {
  Expr *expr = new_expr(parser, EXPR_UNARY, span_join(op_span, operand->span));
  Expr **args = ARENA_ARRAY(parser->arena, Expr *, 1);
  args[0] = operand;
  expr->op = op;
  expr->op_span = op_span;
  return with_args(parser, expr, args, 1);
}

Expr *build_binary(Parser *parser, int op, Span op_span, Expr *left, Expr *right) {
  Expr *expr = new_expr(parser, EXPR_BINARY, span_join(left->span, right->span));
  expr->op = op;
  expr->op_span = op_span;
  return with_two(parser, expr, left, right);
}

Expr *build_pipe(Parser *parser, Span op_span, Expr *left, Expr *call) {
  Expr *expr = new_expr(parser, EXPR_PIPE, span_join(left->span, call->span));
  expr->op_span = op_span;
  return with_two(parser, expr, left, call);
}

Expr *build_call(Parser *parser, Name name, ArgList args, Span span) {
  Expr *expr = new_expr(parser, EXPR_CALL, span);
  expr->name = name;
  expr->arg_names = args.names.at;
  return with_args(parser, expr, args.values.at, args.values.count);
}

Expr *build_parens(Parser *parser, ExprList inside, Span span) {
  if (inside.count > 1) return with_args(parser, new_expr(parser, EXPR_TUPLE, span), inside.at, inside.count);
  Expr *expr = inside.at[0];
  expr->span = span;
  expr->parens++;
  return expr;
}

Expr *build_star(Parser *parser, Span span) {
  return new_expr(parser, EXPR_STAR, span);
}

/* --- lists --- */

ExprList add_expr(Parser *parser, ExprList list, Expr *expr) {
  vec_push(parser->arena, &list, expr);
  return list;
}

ArgList add_arg(Parser *parser, ArgList list, Name name, Expr *value) {
  vec_push(parser->arena, &list.names, name);
  vec_push(parser->arena, &list.values, value);
  return list;
}

NameList add_name(Parser *parser, NameList list, Name name) {
  vec_push(parser->arena, &list, name);
  return list;
}

BindingList add_binding(Parser *parser, BindingList list, Binding binding) {
  vec_push(parser->arena, &list, binding);
  return list;
}

InputList add_input(Parser *parser, InputList list, Input input) {
  vec_push(parser->arena, &list, input);
  return list;
}

ParamList add_param(Parser *parser, ParamList list, ParamDecl param) {
  vec_push(parser->arena, &list, param);
  return list;
}

StmtList add_stmt(Parser *parser, StmtList list, Stmt *stmt) {
  vec_push(parser->arena, &list, stmt);
  return list;
}

/* --- types, bindings, inputs --- */

TypeExpr *build_type(Parser *parser, Name dtype, bool leading_run, ExprList dims, Span span) {
  TypeExpr *type = ARENA_NEW(parser->arena, TypeExpr);
  *type =
      (TypeExpr){.span = span, .dtype = dtype, .leading_run = leading_run, .dims = dims.at, .dim_count = dims.count};
  return type;
}

Binding build_binding(Name name, Expr *value) {
  return (Binding){name, value};
}

/* True for words joined by `-` without spaces: `zb-h1`, `1f1b-v`. */
static bool is_hyphenated(const Expr *expr) {
  for (; expr->kind == EXPR_BINARY; expr = expr->args[0]) {
    const Expr *left = expr->args[0], *right = expr->args[1];
    if (expr->op != '-' || expr->parens > 0 || right->kind != EXPR_NAME || right->parens > 0) return false;
    if (left->span.end != expr->op_span.begin || right->span.begin != expr->op_span.end) return false;
  }
  return expr->kind == EXPR_NAME && expr->parens == 0;
}

/* The value of `kind` is a word, and words may have hyphens: `kind=zb-h1` names a schedule, it subtracts nothing. */
Binding build_section_key(Parser *parser, Name name, Expr *value) {
  if (name.text == intern_str(parser->names, "kind") && is_hyphenated(value)) {
    Span span = value->span;
    value = build_name_expr(parser, build_name(parser, parser->text + span.begin, span.end - span.begin, span));
  }
  return (Binding){name, value};
}

Input build_input(Name name, TypeExpr *type, Expr *value) {
  return (Input){name, type, value};
}

ParamDecl build_param_decl(Name name, TypeExpr *type, Expr *init) {
  return (ParamDecl){name, type, init};
}

/* --- statements --- */

static Stmt *new_stmt(Parser *parser, StmtKind kind, Span span) {
  Stmt *stmt = ARENA_NEW(parser->arena, Stmt);
  stmt->kind = kind;
  stmt->span = span;
  return stmt;
}

Stmt *build_param(Parser *parser, bool frozen, ParamList params, Span span) {
  Stmt *stmt = new_stmt(parser, STMT_PARAM, span);
  stmt->frozen = frozen;
  stmt->params = params.at;
  stmt->param_count = params.count;
  return stmt;
}

Stmt *build_assign(Parser *parser, NameList targets, Expr *value, Span span) {
  Stmt *stmt = new_stmt(parser, STMT_ASSIGN, span);
  stmt->targets = targets.at;
  stmt->target_count = targets.count;
  stmt->value = value;
  return stmt;
}

Stmt *build_repeat(Parser *parser, Name index, Expr *lower, Expr *upper, StmtList body, Span span) {
  Stmt *stmt = new_stmt(parser, STMT_REPEAT, span);
  stmt->index = index;
  stmt->value = lower;
  stmt->upper = upper;
  stmt->body = body.at;
  stmt->body_count = body.count;
  return stmt;
}

Stmt *build_if(Parser *parser, Expr *condition, StmtList then, StmtList otherwise, Span span) {
  Stmt *stmt = new_stmt(parser, STMT_IF, span);
  stmt->value = condition;
  stmt->body = then.at;
  stmt->body_count = then.count;
  stmt->otherwise = otherwise.at;
  stmt->otherwise_count = otherwise.count;
  return stmt;
}

Stmt *build_value(Parser *parser, StmtKind kind, Expr *value, Span span) {
  Stmt *stmt = new_stmt(parser, kind, span);
  stmt->value = value;
  return stmt;
}

Stmt *build_metric(Parser *parser, Name name, Expr *value, Span span) {
  NameList targets = add_name(parser, (NameList){0}, name);
  Stmt *stmt = build_assign(parser, targets, value, span);
  stmt->kind = STMT_METRIC;
  return stmt;
}

/* --- items --- */

static Item *add_item(Parser *parser, ItemKind kind, Span span) {
  Item *item = ARENA_NEW(parser->arena, Item);
  item->kind = kind;
  item->span = span;
  vec_push(parser->arena, &parser->items, item);
  parser->handed.count = 0;
  return item;
}

void add_edition(Parser *parser, Expr *number, Span span) {
  if (number->kind == EXPR_ERROR) return;
  if (number->kind != EXPR_INT || number->integer != 1) {
    Diag *diag = diag_error(parser->all, "E0119", number->span, "this is not an edition of the language");
    diag_note(diag, "the only edition is 1");
    diag_help(diag, "write `pd 1;`");
  }
  parser->module->edition_span = span;
}

void add_import(Parser *parser, Expr *path, Name name, Span span) {
  Item *item = add_item(parser, ITEM_IMPORT, span);
  item->name = name;
  item->path = path->kind == EXPR_STRING ? path->string : "";
  item->path_span = path->span;
}

void add_bindings(Parser *parser, ItemKind kind, bool config, BindingList bindings, Span span) {
  Item *item = add_item(parser, kind, span);
  item->config = config;
  item->bindings = bindings.at;
  item->binding_count = bindings.count;
}

void open_section(Parser *parser, Name name, Span open) {
  parser->section = name;
  parser->section_open = open;
}

void add_section(Parser *parser, Name name, BindingList bindings, Span span) {
  Item *item = add_item(parser, ITEM_SECTION, span);
  item->name = name;
  item->bindings = bindings.at;
  item->binding_count = bindings.count;
}

void add_block(Parser *parser, Name name, NameList sizes, InputList inputs, TypeExpr *result, StmtList body,
               Span span) {
  Item *item = add_item(parser, ITEM_BLOCK, span);
  item->name = name;
  item->sizes = sizes.at;
  item->size_count = sizes.count;
  item->inputs = inputs.at;
  item->input_count = inputs.count;
  item->result = result;
  item->body = body.at;
  item->body_count = body.count;
}

void add_model(Parser *parser, Name name, InputList inputs, StmtList body, Span span) {
  Item *item = add_item(parser, ITEM_MODEL, span);
  item->name = name;
  item->inputs = inputs.at;
  item->input_count = inputs.count;
  item->body = body.at;
  item->body_count = body.count;
}
