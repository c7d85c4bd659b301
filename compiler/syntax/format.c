/* The canonical text of a module. Owns layout: two spaces of indent, lines of at most 110 columns that break after
 * commas and keys and before operators, at most one blank line in a row, one statement a line except in bodies that
 * the user wrote on one line and that fit. A comment stays before or after the same line unit (item, key, element of
 * a list, statement); one in the middle of a unit moves before it. Assumes a module without syntax errors; nodes that
 * come from no source, or another one, print by value. A unit is first collected as pieces, then laid out. */
#include <stdlib.h>
#include <string.h>

#include "support/utf8.h"
#include "syntax/ast.h"

enum { WIDTH = 110, INDENT = 2, CONTINUATION = 4 };

typedef enum PieceKind { PIECE_TEXT, PIECE_OPEN, PIECE_CLOSE, PIECE_BREAK } PieceKind;

typedef struct Piece {
  PieceKind kind;
  const char *text; /* PIECE_TEXT */
  uint32_t width;
} Piece;
typedef VEC(Piece) Pieces;

typedef struct Formatter {
  Text *out;
  Arena *arena;
  uint32_t file;
  const char *text;
  uint32_t length;
  VEC(Span) comments;
  uint32_t next_comment; /* the first not yet printed */
  bool at_start;         /* of the file or of a body: no blank line here */
} Formatter;

/* --- pieces --- */

static uint32_t width_of(const char *text) {
  uint32_t width = 0;
  for (size_t left = strlen(text); left > 0;) {
    uint32_t code = 0;
    unsigned length = utf8_decode(text, left, &code);
    width += length == 0 ? 1 : unicode_width(code);
    if (length == 0) length = 1;
    text += length, left -= length;
  }
  return width;
}

static void add(Formatter *to, Pieces *pieces, const char *text) {
  vec_push(to->arena, pieces, (Piece){PIECE_TEXT, text, width_of(text)});
}

static void add_kind(Formatter *to, Pieces *pieces, PieceKind kind) {
  vec_push(to->arena, pieces, (Piece){kind, "", kind == PIECE_BREAK ? 1 : 0});
}

/* The columns that pieces from `first` on take in one line, up to the next break that is not deeper. */
static uint32_t width_to_break(const Pieces *pieces, uint32_t first) {
  uint32_t width = 0;
  int depth = 0;
  for (uint32_t i = first; i < pieces->count; i++) {
    PieceKind kind = pieces->at[i].kind;
    if (kind == PIECE_OPEN) depth++;
    if (kind == PIECE_CLOSE) depth--;
    if (kind == PIECE_BREAK && depth <= 0) break;
    width += pieces->at[i].width;
  }
  return width;
}

static uint32_t whole_width(const Pieces *pieces) {
  uint32_t width = 0;
  for (uint32_t i = 0; i < pieces->count; i++) width += pieces->at[i].width;
  return width;
}

static void put(Formatter *to, const char *text) {
  text_put(to->out, text, strlen(text));
}

static void put_indent(Formatter *to, uint32_t columns) {
  for (uint32_t i = 0; i < columns; i++) text_put(to->out, " ", 1);
}

/* Prints pieces on a line that has `column` columns already and belongs to a unit at `indent`. */
static void lay_out(Formatter *to, const Pieces *pieces, uint32_t column, uint32_t indent) {
  VEC(uint32_t) columns = {0}; /* where each open group begins: its lines start there */
  vec_push(to->arena, &columns, indent + CONTINUATION);
  for (uint32_t i = 0; i < pieces->count; i++) {
    const Piece *piece = &pieces->at[i];
    switch (piece->kind) {
    case PIECE_TEXT:
      put(to, piece->text);
      column += piece->width;
      break;
    case PIECE_OPEN:
      vec_push(to->arena, &columns, column);
      break;
    case PIECE_CLOSE:
      columns.count--;
      break;
    case PIECE_BREAK:
      if (column + 1 + width_to_break(pieces, i + 1) <= WIDTH) {
        put(to, " ");
        column++;
      } else {
        put(to, "\n");
        column = columns.at[columns.count - 1];
        put_indent(to, column);
      }
      break;
    }
  }
}

/* --- comments and blank lines --- */

static void find_comments(Formatter *to) {
  for (uint32_t at = 0; at < to->length; at++) {
    if (to->text[at] == '"') {
      for (at++; at < to->length && to->text[at] != '"' && to->text[at] != '\n'; at++)
        if (to->text[at] == '\\') at++;
    } else if (to->text[at] == '/' && at + 1 < to->length && to->text[at + 1] == '/') {
      Span span = {to->file, at, at};
      while (at < to->length && to->text[at] != '\n') at++;
      span.end = at;
      while (strchr(" \t\r", to->text[span.end - 1]) != NULL) span.end--;
      vec_push(to->arena, &to->comments, span);
    }
  }
}

static bool same_line(const Formatter *to, uint32_t begin, uint32_t end) {
  return begin >= end || memchr(to->text + begin, '\n', end - begin) == NULL;
}

/* The offset of `wanted` at or after `at`, outside of comments; the length when there is none. */
static uint32_t find_char(const Formatter *to, uint32_t at, char wanted) {
  for (; at < to->length && to->text[at] != wanted; at++)
    if (to->text[at] == '/' && at + 1 < to->length && to->text[at + 1] == '/')
      while (at + 1 < to->length && to->text[at] != '\n') at++;
  return at;
}

static bool is_here(const Formatter *to, Span span) {
  return span.file == to->file && span.end > span.begin && span.end <= to->length;
}

static bool has_comment(const Formatter *to, uint32_t begin, uint32_t end) {
  for (uint32_t i = to->next_comment; i < to->comments.count && to->comments.at[i].begin < end; i++)
    if (to->comments.at[i].begin >= begin) return true;
  return false;
}

/* One blank line where the source has one or more before `at`. */
static void put_blank(Formatter *to, uint32_t at) {
  uint32_t lines = 0;
  for (; at > 0 && strchr(" \t\r\n", to->text[at - 1]) != NULL && to->text[at - 1] != '\0'; at--)
    lines += to->text[at - 1] == '\n' ? 1u : 0u;
  if (lines > 1 && !to->at_start) put(to, "\n");
  to->at_start = false;
}

static void put_comment(Formatter *to, Span span) {
  text_put(to->out, to->text + span.begin, span.end - span.begin);
}

/* Comments that begin before `end`, each on its own line. */
static void put_comments_before(Formatter *to, uint32_t end, uint32_t indent) {
  while (to->next_comment < to->comments.count && to->comments.at[to->next_comment].begin < end) {
    Span comment = to->comments.at[to->next_comment++];
    put_blank(to, comment.begin);
    put_indent(to, indent);
    put_comment(to, comment);
    put(to, "\n");
  }
}

/* What precedes a unit: a blank line, comments, also those within it. */
static void put_before(Formatter *to, Span unit, uint32_t indent) {
  if (!is_here(to, unit)) return;
  uint32_t first = to->next_comment;
  bool leading = first < to->comments.count && to->comments.at[first].begin < unit.begin;
  if (!leading) put_blank(to, unit.begin);
  put_comments_before(to, unit.begin, indent);
  if (leading) put_blank(to, unit.begin);
  to->at_start = true; /* comments from within follow each other */
  put_comments_before(to, unit.end, indent);
  to->at_start = false;
}

/* A comment on the rest of the line after `end`. True when there was one. */
static bool put_trailing(Formatter *to, uint32_t end) {
  if (to->next_comment >= to->comments.count) return false;
  Span comment = to->comments.at[to->next_comment];
  if (comment.begin < end || !same_line(to, end, comment.begin)) return false;
  for (uint32_t at = end; at < comment.begin; at++)
    if (strchr(" \t,;", to->text[at]) == NULL) return false; /* it belongs to a later unit of the line */
  to->next_comment++;
  put(to, "  ");
  put_comment(to, comment);
  return true;
}

static void end_unit(Formatter *to, Span unit) {
  if (is_here(to, unit)) put_trailing(to, unit.end);
  put(to, "\n");
}

/* --- expressions --- */

enum {
  LEVEL_PIPE = 1,
  LEVEL_OR,
  LEVEL_AND,
  LEVEL_COMPARE,
  LEVEL_SUM,
  LEVEL_PRODUCT,
  LEVEL_CONTRACT,
  LEVEL_UNARY,
  LEVEL_PRIMARY
};

static int operator_level(int op) {
  switch (op) {
  case EXPR_OP_OR:
    return LEVEL_OR;
  case EXPR_OP_AND:
    return LEVEL_AND;
  case '+':
  case '-':
    return LEVEL_SUM;
  case '*':
  case '/':
  case '%':
    return LEVEL_PRODUCT;
  case '@':
    return LEVEL_CONTRACT;
  default:
    return LEVEL_COMPARE;
  }
}

static int level_of(const Expr *expr) {
  switch (expr->kind) {
  case EXPR_PIPE:
    return LEVEL_PIPE;
  case EXPR_BINARY:
    return operator_level(expr->op);
  case EXPR_UNARY:
    return LEVEL_UNARY;
  case EXPR_INT:
    return expr->integer < 0 ? LEVEL_UNARY : LEVEL_PRIMARY;
  case EXPR_REAL:
    return expr->real < 0 ? LEVEL_UNARY : LEVEL_PRIMARY;
  default:
    return LEVEL_PRIMARY;
  }
}

static const char *quoted(Formatter *to, const char *text) {
  Text out = {.arena = to->arena};
  text_put(&out, "\"", 1);
  for (; *text != '\0'; text++) {
    static const char plain[] = "\n\r\t\\\"", letters[] = "nrt\\\"";
    const char *found = strchr(plain, *text);
    if (found != NULL)
      text_printf(&out, "\\%c", letters[found - plain]);
    else
      text_put(&out, text, 1);
  }
  text_put(&out, "\"", 1);
  return out.at;
}

/* The shortest text that reads back as the same real and is no integer. */
static const char *real_text(Formatter *to, double real) {
  const char *text = "";
  for (int digits = 1; digits <= 17; digits++) {
    text = arena_printf(to->arena, "%.*g", digits, real);
    if (strtod(text, NULL) == real) break;
  }
  return strpbrk(text, ".e") != NULL ? text : arena_printf(to->arena, "%s.0", text);
}

static void add_expr(Formatter *to, Pieces *pieces, const Expr *expr, int least);

static void add_group(Formatter *to, Pieces *pieces, const Expr *expr, int least) {
  add_kind(to, pieces, PIECE_OPEN);
  add_expr(to, pieces, expr, least);
  add_kind(to, pieces, PIECE_CLOSE);
}

static void add_args(Formatter *to, Pieces *pieces, const Expr *expr) {
  add(to, pieces, "(");
  add_kind(to, pieces, PIECE_OPEN);
  for (uint32_t i = 0; i < expr->arg_count; i++) {
    if (i > 0) add(to, pieces, ","), add_kind(to, pieces, PIECE_BREAK);
    if (expr->arg_names != NULL && expr->arg_names[i].text != NULL)
      add(to, pieces, arena_printf(to->arena, "%s=", expr->arg_names[i].text));
    add_group(to, pieces, expr->args[i], LEVEL_PIPE);
  }
  add_kind(to, pieces, PIECE_CLOSE);
  add(to, pieces, ")");
}

/* Left to right; operands that bind tighter are groups of their own, so that a long line breaks between them. */
static void add_binary(Formatter *to, Pieces *pieces, const Expr *expr, int level) {
  int left = level == LEVEL_COMPARE ? level + 1 : level;
  if (level_of(expr->args[0]) == level && expr->args[0]->parens == 0)
    add_expr(to, pieces, expr->args[0], left);
  else
    add_group(to, pieces, expr->args[0], left);
  add_kind(to, pieces, PIECE_BREAK);
  add(to, pieces, expr->kind == EXPR_PIPE ? "|>" : syntax_operator(expr->op));
  add(to, pieces, " ");
  add_group(to, pieces, expr->args[1], level + 1);
}

static void add_bare(Formatter *to, Pieces *pieces, const Expr *expr) {
  switch (expr->kind) {
  case EXPR_INT:
    add(to, pieces, expr->string != NULL ? expr->string : arena_printf(to->arena, "%lld", (long long)expr->integer));
    break;
  case EXPR_REAL:
    add(to, pieces, expr->string != NULL ? expr->string : real_text(to, expr->real));
    break;
  case EXPR_STRING:
    add(to, pieces, quoted(to, expr->string));
    break;
  case EXPR_NAME:
    add(to, pieces, expr->name.text);
    break;
  case EXPR_STAR:
    add(to, pieces, "*");
    break;
  case EXPR_UNARY:
    add(to, pieces, syntax_operator(expr->op));
    add_expr(to, pieces, expr->args[0], LEVEL_UNARY);
    break;
  case EXPR_BINARY:
  case EXPR_PIPE:
    add_binary(to, pieces, expr, level_of(expr));
    break;
  case EXPR_CALL:
    add(to, pieces, expr->name.text);
    add_args(to, pieces, expr);
    break;
  case EXPR_TUPLE:
    add_args(to, pieces, expr);
    break;
  case EXPR_ERROR:
    if (is_here(to, expr->span))
      add(to, pieces, arena_strndup(to->arena, to->text + expr->span.begin, expr->span.end - expr->span.begin));
    break;
  }
}

/* `least`: the level an operator must have to stand here without parentheses. */
static void add_expr(Formatter *to, Pieces *pieces, const Expr *expr, int least) {
  bool parens = expr->parens > 0 || level_of(expr) < least;
  if (parens && expr->kind == EXPR_TUPLE) parens = false;
  if (parens) {
    add(to, pieces, "(");
    add_kind(to, pieces, PIECE_OPEN);
  }
  add_bare(to, pieces, expr);
  if (parens) {
    add_kind(to, pieces, PIECE_CLOSE);
    add(to, pieces, ")");
  }
}

static void add_type(Formatter *to, Pieces *pieces, const TypeExpr *type) {
  if (type->dtype.text != NULL) add(to, pieces, type->dtype.text);
  add(to, pieces, "[");
  add_kind(to, pieces, PIECE_OPEN);
  if (type->leading_run) add(to, pieces, "..");
  for (uint32_t i = 0; i < type->dim_count; i++) {
    if (i > 0 || type->leading_run) add(to, pieces, ","), add_kind(to, pieces, PIECE_BREAK);
    add_group(to, pieces, type->dims[i], LEVEL_PIPE);
  }
  add_kind(to, pieces, PIECE_CLOSE);
  add(to, pieces, "]");
}

/* --- lists: bindings, keys, params, inputs --- */

typedef struct Element {
  Pieces pieces; /* without what separates it from the next */
  Span span;
} Element;

typedef struct List {
  Span span;   /* of the whole unit */
  Pieces head; /* before the first element */
  VEC(Element) elements;
  const char *separator; /* after each element but the last */
  Pieces tail;           /* after the last element, on its line */
  const char *close;     /* after that; on a line of its own when a comment precedes it; or NULL */
} List;

static Span join(Span a, Span b) {
  return b.file == a.file && b.end > a.end ? span_join(a, b) : a;
}

/* `name`, `name: type`, `name=value`, `name: type = value`. */
static void add_element(Formatter *to, List *list, Name name, const TypeExpr *type, const char *equals,
                        const Expr *value, int least) {
  Element element = {.span = name.span};
  add(to, &element.pieces, name.text);
  if (type != NULL) {
    add(to, &element.pieces, ": ");
    add_type(to, &element.pieces, type);
    element.span = join(element.span, type->span);
  }
  if (value != NULL) {
    add(to, &element.pieces, equals);
    add_group(to, &element.pieces, value, least);
    element.span = join(element.span, value->span);
  }
  vec_push(to->arena, &list->elements, element);
}

static void append(Formatter *to, Pieces *pieces, const Pieces *more) {
  for (uint32_t i = 0; i < more->count; i++) vec_push(to->arena, pieces, more->at[i]);
}

/* All elements as one line that breaks where it must. */
static Pieces flatten(Formatter *to, const List *list) {
  Pieces all = {0};
  append(to, &all, &list->head);
  add_kind(to, &all, PIECE_OPEN);
  for (uint32_t i = 0; i < list->elements.count; i++) {
    if (i > 0) add_kind(to, &all, PIECE_BREAK);
    add_kind(to, &all, PIECE_OPEN);
    append(to, &all, &list->elements.at[i].pieces);
    add_kind(to, &all, PIECE_CLOSE);
    if (i + 1 < list->elements.count) add(to, &all, list->separator);
  }
  add_kind(to, &all, PIECE_CLOSE);
  append(to, &all, &list->tail);
  if (list->close != NULL)
    add(to, &all, list->elements.count == 0 ? list->close : arena_printf(to->arena, " %s", list->close));
  return all;
}

static void put_close(Formatter *to, const List *list, Span last, uint32_t column) {
  bool comment = put_trailing(to, last.end);
  if (comment || has_comment(to, last.end, list->span.end)) {
    put(to, "\n");
    put_comments_before(to, list->span.end, column);
    put_indent(to, column - 2);
  } else {
    put(to, " ");
  }
  put(to, list->close);
}

/* A list with comments inside: one element a line, each comment with its element. */
static void put_commented_list(Formatter *to, const List *list, uint32_t indent) {
  uint32_t column = indent + whole_width(&list->head), count = list->elements.count;
  put_before(to, (Span){to->file, list->span.begin, list->elements.at[0].span.end}, indent);
  put_indent(to, indent);
  lay_out(to, &list->head, indent, indent);
  for (uint32_t i = 0; i < count; i++) {
    const Element *element = &list->elements.at[i];
    Pieces pieces = element->pieces;
    if (i + 1 == count)
      append(to, &pieces, &list->tail);
    else
      add(to, &pieces, list->separator);
    if (i > 0) {
      put_before(to, element->span, column);
      put_indent(to, column);
    }
    lay_out(to, &pieces, column, column);
    if (i + 1 == count) break;
    put_trailing(to, element->span.end);
    put(to, "\n");
  }
  if (list->close != NULL) put_close(to, list, list->elements.at[count - 1].span, column);
}

/* Prints a list and the comments before it, without the end of its last line. */
static void put_list(Formatter *to, const List *list, uint32_t indent) {
  uint32_t count = list->elements.count;
  bool commented = false;
  if (count > 0 && is_here(to, list->span)) {
    uint32_t last = list->close != NULL ? list->span.end : list->elements.at[count - 1].span.begin;
    commented = has_comment(to, list->elements.at[0].span.end, last);
  }
  if (commented) {
    put_commented_list(to, list, indent);
    return;
  }
  put_before(to, list->span, indent);
  put_indent(to, indent);
  Pieces all = flatten(to, list);
  lay_out(to, &all, indent, indent);
}

/* --- statements --- */

static List param_list(Formatter *to, const Stmt *stmt) {
  List list = {.separator = ",", .span = stmt->span};
  add(to, &list.head, stmt->frozen ? "frozen param " : "param ");
  for (uint32_t i = 0; i < stmt->param_count; i++)
    add_element(to, &list, stmt->params[i].name, stmt->params[i].type, " = ", stmt->params[i].init, LEVEL_PIPE);
  add(to, &list.tail, ";");
  return list;
}

/* A statement, or what precedes its body and the `{`. */
static Pieces head_of(Formatter *to, const Stmt *stmt) {
  Pieces pieces = {0};
  switch (stmt->kind) {
  case STMT_PARAM: {
    List list = param_list(to, stmt);
    return flatten(to, &list);
  }
  case STMT_ASSIGN:
  case STMT_METRIC:
    if (stmt->kind == STMT_METRIC) add(to, &pieces, "metric ");
    for (uint32_t i = 0; i < stmt->target_count; i++) {
      if (i > 0) add(to, &pieces, ","), add_kind(to, &pieces, PIECE_BREAK);
      add(to, &pieces, stmt->targets[i].text);
    }
    add(to, &pieces, " = ");
    add_group(to, &pieces, stmt->value, LEVEL_PIPE);
    add(to, &pieces, ";");
    break;
  case STMT_RETURN:
  case STMT_LOSS:
    add(to, &pieces, stmt->kind == STMT_LOSS ? "loss " : "return ");
    add_group(to, &pieces, stmt->value, LEVEL_PIPE);
    add(to, &pieces, ";");
    break;
  case STMT_REPEAT:
    add(to, &pieces, "repeat ");
    if (stmt->index.text != NULL) add(to, &pieces, arena_printf(to->arena, "%s = ", stmt->index.text));
    add_group(to, &pieces, stmt->value, LEVEL_PIPE);
    if (stmt->upper != NULL) {
      add(to, &pieces, " .. ");
      add_group(to, &pieces, stmt->upper, LEVEL_PIPE);
    }
    add(to, &pieces, " {");
    break;
  case STMT_IF:
    add(to, &pieces, "if (");
    add_group(to, &pieces, stmt->value, LEVEL_PIPE);
    add(to, &pieces, ") {");
    break;
  }
  return pieces;
}

static bool has_body(const Stmt *stmt) {
  return stmt->kind == STMT_REPEAT || stmt->kind == STMT_IF;
}

/* The offset of the `{` of a statement's body. */
static uint32_t brace_of(const Formatter *to, const Stmt *stmt) {
  return find_char(to, (stmt->upper != NULL ? stmt->upper : stmt->value)->span.end, '{');
}

/* The `if` of an `else if`, else NULL. */
static const Stmt *else_if(const Formatter *to, const Stmt *stmt, uint32_t close) {
  if (stmt->otherwise_count != 1 || stmt->otherwise[0]->kind != STMT_IF) return NULL;
  const Stmt *next = stmt->otherwise[0];
  bool braced = is_here(to, stmt->span) && find_char(to, close + 1, '{') < next->span.begin;
  return braced ? NULL : next;
}

static void add_flat_body(Formatter *to, Pieces *pieces, Stmt *const *body, uint32_t count);

static uint32_t end_of_body(const Formatter *to, Stmt *const *body, uint32_t count, uint32_t open) {
  return find_char(to, count == 0 ? open + 1 : body[count - 1]->span.end, '}');
}

static void add_flat_stmt(Formatter *to, Pieces *pieces, const Stmt *stmt) {
  Pieces head = head_of(to, stmt);
  append(to, pieces, &head);
  if (!has_body(stmt)) return;
  add_flat_body(to, pieces, stmt->body, stmt->body_count);
  if (stmt->otherwise_count == 0) return;
  add(to, pieces, " else ");
  bool here = is_here(to, stmt->span);
  uint32_t close = here ? end_of_body(to, stmt->body, stmt->body_count, brace_of(to, stmt)) : 0;
  const Stmt *next = else_if(to, stmt, close);
  if (next != NULL) {
    add_flat_stmt(to, pieces, next);
    return;
  }
  add(to, pieces, "{");
  add_flat_body(to, pieces, stmt->otherwise, stmt->otherwise_count);
}

static void add_flat_body(Formatter *to, Pieces *pieces, Stmt *const *body, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    add(to, pieces, " ");
    add_flat_stmt(to, pieces, body[i]);
  }
  add(to, pieces, " }");
}

/* True when the user wrote a unit with bodies on one line: it stays so if its canonical text fits on one. */
static bool on_one_line(const Formatter *to, Span unit) {
  return is_here(to, unit) && same_line(to, unit.begin, unit.end);
}

static void put_stmt(Formatter *to, const Stmt *stmt, uint32_t indent);

/* What follows the `{` at offset `open`: a comment on its line, the statements, all comments before `end`, and `}`. */
static void put_body(Formatter *to, Stmt *const *body, uint32_t count, uint32_t open, uint32_t end, uint32_t indent) {
  if (count == 0 && !has_comment(to, 0, end)) {
    put(to, " }");
    return;
  }
  put_trailing(to, open + 1);
  put(to, "\n");
  to->at_start = true;
  for (uint32_t i = 0; i < count; i++) put_stmt(to, body[i], indent + INDENT);
  put_comments_before(to, end, indent + INDENT);
  to->at_start = false;
  put_indent(to, indent);
  put(to, "}");
}

/* The bodies of a statement whose head is printed. Comments around `else` go to the end of the body before. */
static void put_bodies(Formatter *to, const Stmt *stmt, uint32_t indent) {
  bool here = is_here(to, stmt->span);
  uint32_t open = here ? brace_of(to, stmt) : to->length; /* beyond all comments */
  uint32_t close = here ? end_of_body(to, stmt->body, stmt->body_count, open) : 0;
  if (stmt->otherwise_count == 0) {
    put_body(to, stmt->body, stmt->body_count, open, close, indent);
    return;
  }
  const Stmt *next = else_if(to, stmt, close);
  uint32_t next_open = !here ? to->length : next != NULL ? brace_of(to, next) : find_char(to, close + 1, '{');
  put_body(to, stmt->body, stmt->body_count, open, here ? next_open : 0, indent);
  put(to, " else ");
  if (next != NULL) {
    Pieces head = head_of(to, next);
    lay_out(to, &head, indent + (uint32_t)strlen("} else "), indent);
    put_bodies(to, next, indent);
    return;
  }
  put(to, "{");
  uint32_t end = here ? end_of_body(to, stmt->otherwise, stmt->otherwise_count, next_open) : 0;
  put_body(to, stmt->otherwise, stmt->otherwise_count, next_open, end, indent);
}

static void put_stmt(Formatter *to, const Stmt *stmt, uint32_t indent) {
  if (stmt->kind == STMT_PARAM) {
    List list = param_list(to, stmt);
    put_list(to, &list, indent);
    end_unit(to, stmt->span);
    return;
  }
  Pieces pieces = {0};
  bool whole = !has_body(stmt) || on_one_line(to, stmt->span);
  if (whole) add_flat_stmt(to, &pieces, stmt);
  if (has_body(stmt) && indent + whole_width(&pieces) > WIDTH) whole = false;
  if (!whole) pieces = head_of(to, stmt);
  Span unit = stmt->span;
  if (!whole && is_here(to, unit)) unit.end = brace_of(to, stmt);
  put_before(to, unit, indent);
  put_indent(to, indent);
  lay_out(to, &pieces, indent, indent);
  if (!whole) put_bodies(to, stmt, indent);
  end_unit(to, stmt->span);
}

/* --- items --- */

static List binding_list(Formatter *to, const Item *item) {
  bool section = item->kind == ITEM_SECTION;
  List list = {.separator = section ? ";" : ",", .span = item->span, .close = section ? ">" : NULL};
  if (section)
    add(to, &list.head, arena_printf(to->arena, "%s < ", item->name.text));
  else
    add(to, &list.head, item->kind == ITEM_DIM ? "dim " : item->config ? "config const " : "const ");
  for (uint32_t i = 0; i < item->binding_count; i++)
    add_element(to, &list, item->bindings[i].name, NULL, section ? "=" : " = ", item->bindings[i].value,
                section ? LEVEL_SUM : LEVEL_PIPE);
  if (!section || item->binding_count > 0) add(to, &list.tail, ";");
  return list;
}

/* Of a block or model: up to the `{`. */
static List input_list(Formatter *to, const Item *item) {
  List list = {.separator = ",", .span = item->span};
  add(to, &list.head, item->kind == ITEM_BLOCK ? "block " : "model ");
  add(to, &list.head, item->name.text);
  for (uint32_t i = 0; i < item->size_count; i++)
    add(to, &list.head, arena_printf(to->arena, "%s%s", i == 0 ? "<" : ", ", item->sizes[i].text));
  add(to, &list.head, item->size_count > 0 ? ">(" : "(");
  for (uint32_t i = 0; i < item->input_count; i++)
    add_element(to, &list, item->inputs[i].name, item->inputs[i].type, "=", item->inputs[i].value, LEVEL_PIPE);
  add(to, &list.tail, ")");
  if (item->result != NULL) {
    add_kind(to, &list.tail, PIECE_BREAK);
    add(to, &list.tail, "-> ");
    add_type(to, &list.tail, item->result);
  }
  add(to, &list.tail, " {");
  return list;
}

static uint32_t brace_of_item(const Formatter *to, const Item *item) {
  uint32_t at = item->name.span.end;
  if (item->input_count > 0) {
    const Input *last = &item->inputs[item->input_count - 1];
    at = last->type != NULL ? last->type->span.end : last->value->span.end;
  }
  return find_char(to, item->result != NULL ? item->result->span.end : at, '{');
}

static void put_computation(Formatter *to, const Item *item) {
  List list = input_list(to, item);
  Pieces flat = {0};
  if (on_one_line(to, item->span)) {
    flat = flatten(to, &list);
    add_flat_body(to, &flat, item->body, item->body_count);
  }
  if (flat.count > 0 && whole_width(&flat) <= WIDTH) {
    put_before(to, item->span, 0);
    lay_out(to, &flat, 0, 0);
  } else {
    bool here = is_here(to, item->span);
    uint32_t open = here ? brace_of_item(to, item) : to->length;
    list.span.end = here ? open : list.span.end;
    put_list(to, &list, 0);
    put_body(to, item->body, item->body_count, open, here ? end_of_body(to, item->body, item->body_count, open) : 0, 0);
  }
}

static void put_item(Formatter *to, const Item *item) {
  switch (item->kind) {
  case ITEM_IMPORT:
    put_before(to, item->span, 0);
    put(to, arena_printf(to->arena, "import %s as %s;", quoted(to, item->path), item->name.text));
    break;
  case ITEM_CONST:
  case ITEM_DIM:
  case ITEM_SECTION: {
    List list = binding_list(to, item);
    put_list(to, &list, 0);
    break;
  }
  case ITEM_BLOCK:
  case ITEM_MODEL:
    put_computation(to, item);
    break;
  }
  end_unit(to, item->span);
}

void syntax_format(Text *out, const Diagnostics *all, const Module *module) {
  const Source *source = diag_source(all, module->file);
  Formatter to = {.out = out, .arena = out->arena, .file = module->file, .at_start = true};
  to.text = source->text;
  to.length = (uint32_t)source->length;
  find_comments(&to);
  if (is_here(&to, module->edition_span)) {
    put_before(&to, module->edition_span, 0);
    text_printf(out, "pd %lld;", (long long)module->edition);
    end_unit(&to, module->edition_span);
  }
  for (uint32_t i = 0; i < module->item_count; i++) put_item(&to, module->items[i]);
  put_comments_before(&to, UINT32_MAX, 0);
  text_put(out, "", 0);
}
