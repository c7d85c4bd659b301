/* The syntax tree as text for a person: --emit=ast. A line for each item, statement and part of one, with its place;
 * expressions as `(operator operands)`, so that precedence is seen. Works on trees with syntax errors too. */
#include "syntax/ast.h"

typedef struct Printer {
  Text *out;
  const Diagnostics *all;
} Printer;

const char *syntax_operator(int op) {
  static const char *const words[] = {"==", "!=", "<=", ">=", "<", ">", "&&", "||"}; /* as EXPR_OP_* */
  static const char single[][2] = {"+", "-", "*", "/", "%", "@", "!"};
  if (op >= EXPR_OP_EQ && op <= EXPR_OP_OR) return words[op - EXPR_OP_EQ];
  for (size_t i = 0; i < sizeof single / sizeof *single; i++)
    if (single[i][0] == op) return single[i];
  return "?";
}

static void begin(const Printer *to, Span span, unsigned depth) {
  uint32_t line, column;
  char place[32];
  diag_line_column(to->all, span, &line, &column);
  snprintf(place, sizeof place, "%u:%u", line, column);
  text_printf(to->out, "%-8s%*s", place, (int)depth * 2, "");
}

static void put_string(const Printer *to, const char *text) {
  text_printf(to->out, "\"");
  for (; *text; text++) {
    unsigned char c = (unsigned char)*text;
    if (c < ' ' || c == 0x7f)
      text_printf(to->out, "\\x%02x", c);
    else
      text_printf(to->out, c == '"' || c == '\\' ? "\\%c" : "%c", c);
  }
  text_printf(to->out, "\"");
}

static void put_expr(const Printer *to, const Expr *expr) {
  const char *open = "(";
  switch (expr->kind) {
  case EXPR_INT:
    text_printf(to->out, "%lld", (long long)expr->integer);
    return;
  case EXPR_REAL:
    if (expr->string)
      text_printf(to->out, "%s", expr->string);
    else
      text_printf(to->out, "%.17g", expr->real);
    return;
  case EXPR_STRING:
    put_string(to, expr->string);
    return;
  case EXPR_NAME:
    text_printf(to->out, "%s", expr->name.text);
    return;
  case EXPR_STAR:
    text_printf(to->out, "*");
    return;
  case EXPR_ERROR:
    text_printf(to->out, "<error>");
    return;
  case EXPR_UNARY:
  case EXPR_BINARY:
    text_printf(to->out, "(%s", syntax_operator(expr->op));
    open = " ";
    break;
  case EXPR_PIPE:
    text_printf(to->out, "(|>");
    open = " ";
    break;
  case EXPR_CALL:
    text_printf(to->out, "(%s", expr->name.text);
    open = " ";
    break;
  case EXPR_TUPLE:
    break;
  }
  for (uint32_t i = 0; i < expr->arg_count; i++) {
    text_printf(to->out, "%s", i ? " " : open);
    if (expr->arg_names && expr->arg_names[i].text) text_printf(to->out, "%s=", expr->arg_names[i].text);
    put_expr(to, expr->args[i]);
  }
  text_printf(to->out, ")");
}

static void put_type(const Printer *to, const TypeExpr *type) {
  text_printf(to->out, "%s[%s", type->dtype.text ? type->dtype.text : "", type->leading_run ? ".." : "");
  for (uint32_t i = 0; i < type->dim_count; i++) {
    if (i || type->leading_run) text_printf(to->out, ", ");
    put_expr(to, type->dims[i]);
  }
  text_printf(to->out, "]");
}

/* `word name: type = value` */
static void put_declared(const Printer *to, unsigned depth, const char *word, Name name, const TypeExpr *type,
                         const Expr *value) {
  begin(to, name.span, depth);
  text_printf(to->out, "%s%s", word, name.text);
  if (type) text_printf(to->out, ": "), put_type(to, type);
  if (value) text_printf(to->out, " = "), put_expr(to, value);
  text_printf(to->out, "\n");
}

static void put_body(const Printer *to, unsigned depth, Stmt *const *body, uint32_t count);

static void put_stmt(const Printer *to, unsigned depth, const Stmt *stmt) {
  static const char *const words[] = {
      [STMT_PARAM] = "param",   [STMT_ASSIGN] = "assign", [STMT_REPEAT] = "repeat", [STMT_IF] = "if",
      [STMT_RETURN] = "return", [STMT_LOSS] = "loss",     [STMT_METRIC] = "metric"};
  begin(to, stmt->span, depth);
  text_printf(to->out, "%s%s", stmt->frozen ? "frozen " : "", words[stmt->kind]);
  for (uint32_t i = 0; i < stmt->target_count; i++) text_printf(to->out, "%s%s", i ? ", " : " ", stmt->targets[i].text);
  if (stmt->index.text) text_printf(to->out, " %s", stmt->index.text);
  if (stmt->target_count || stmt->index.text) text_printf(to->out, " =");
  if (stmt->value) text_printf(to->out, " "), put_expr(to, stmt->value);
  if (stmt->upper) text_printf(to->out, " .. "), put_expr(to, stmt->upper);
  text_printf(to->out, "\n");
  for (uint32_t i = 0; i < stmt->param_count; i++)
    put_declared(to, depth + 1, "", stmt->params[i].name, stmt->params[i].type, stmt->params[i].init);
  put_body(to, depth + 1, stmt->body, stmt->body_count);
  if (!stmt->otherwise_count) return;
  text_printf(to->out, "%-8s%*selse\n", "", (int)depth * 2, "");
  put_body(to, depth + 1, stmt->otherwise, stmt->otherwise_count);
}

static void put_body(const Printer *to, unsigned depth, Stmt *const *body, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) put_stmt(to, depth, body[i]);
}

static void put_item(const Printer *to, const Item *item) {
  static const char *const words[] = {[ITEM_IMPORT] = "import",   [ITEM_CONST] = "const", [ITEM_DIM] = "dim",
                                      [ITEM_SECTION] = "section", [ITEM_BLOCK] = "block", [ITEM_MODEL] = "model"};
  begin(to, item->span, 0);
  text_printf(to->out, "%s%s", item->config ? "config " : "", words[item->kind]);
  if (item->path) text_printf(to->out, " "), put_string(to, item->path);
  if (item->name.text) text_printf(to->out, "%s %s", item->kind == ITEM_IMPORT ? " as" : "", item->name.text);
  for (uint32_t i = 0; i < item->size_count; i++) text_printf(to->out, "%s%s", i ? ", " : "<", item->sizes[i].text);
  if (item->size_count) text_printf(to->out, ">");
  if (item->result) text_printf(to->out, " -> "), put_type(to, item->result);
  text_printf(to->out, "\n");
  for (uint32_t i = 0; i < item->binding_count; i++)
    put_declared(to, 1, "", item->bindings[i].name, NULL, item->bindings[i].value);
  for (uint32_t i = 0; i < item->input_count; i++)
    put_declared(to, 1, "input ", item->inputs[i].name, item->inputs[i].type, item->inputs[i].value);
  put_body(to, 1, item->body, item->body_count);
}

void syntax_print(Text *out, const Diagnostics *all, const Module *module) {
  Printer to = {out, all};
  begin(&to, (Span){module->file, 0, 0}, 0);
  text_printf(out, "module, edition %lld\n", (long long)module->edition);
  for (uint32_t i = 0; i < module->item_count; i++) put_item(&to, module->items[i]);
}
