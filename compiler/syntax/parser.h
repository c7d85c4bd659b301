/* Inside the syntax folder only: the state of one parse, the values of tokens and rules, and who does what:
 * lexer.l cuts bytes into tokens; literal.c reads numbers and strings; parse.c hands tokens to the grammar, counts
 * brackets and queues tokens for recovery; grammar.y says what is allowed; build.c makes the tree; recover.c recognises
 * mistakes, expected.c words them, skip.c decides where to go on, and repair.c has the last word on that. */
#ifndef PDC_SYNTAX_PARSER_H
#define PDC_SYNTAX_PARSER_H

#include "syntax/ast.h"

typedef VEC(Expr *) ExprList;
typedef VEC(Name) NameList;
typedef VEC(Binding) BindingList;
typedef VEC(Input) InputList;
typedef VEC(ParamDecl) ParamList;
typedef VEC(Stmt *) StmtList;

typedef struct ArgList {
  ExprList values;
  NameList names; /* text NULL where positional */
} ArgList;

/* What tokens and rules carry; the grammar names the member of each. */
typedef union SyntaxValue {
  Name name;
  Expr *expr;
  TypeExpr *type;
  Stmt *stmt;
  Item *item;
  Binding binding;
  Input input;
  ParamDecl param;
  ExprList exprs;
  NameList names;
  BindingList bindings;
  InputList inputs;
  ParamList params;
  StmtList stmts;
  ArgList args;
} SyntaxValue;

typedef struct Token {
  int kind; /* a token code of grammar.h */
  Span span;
  SyntaxValue value;
} Token;

typedef VEC(Token) TokenList;

enum { BRACKETS_DEEPEST = 256, LONGEST_NAME = 1024, LONGEST_STRING = 65535, LARGEST_SOURCE = 64 * 1024 * 1024 };
/* more NULs or invalid bytes than this, and the file is no text at all */
enum { MOST_BAD_BYTES = 16 };
/* repairs are looked for in so many tokens of an item before an error, and after it */
enum { TOKENS_BACK = 16384, TOKENS_AHEAD = 4096 };

/* Where the innermost recovery point of the grammar is. */
typedef enum Site { SITE_ITEM, SITE_HEADER, SITE_SECTION, SITE_STATEMENT } Site;

typedef struct Parser {
  Arena *arena;
  Intern *names;
  Diagnostics *all;
  Module *module;
  VEC(Item *) items;
  uint32_t file;
  const char *text;
  uint32_t length;
  void *scanner;                    /* flex */
  uint32_t offset;                  /* lexer: of the next token */
  uint32_t string_line_end;         /* lexer: where the last line with a string without end ends, or 0 */
  bool comment_without_end;         /* lexer: no block comment from here on has an end */
  bool any_token;                   /* lexer: `pd` is a keyword only as the first token */
  bool ended;                       /* lexer: the end was read */
  bool stopped;                     /* after an error beyond which nothing is read or reported */
  bool too_deep;                    /* an expression was reported as nested too deeply */
  Token current, previous, earlier; /* the last three handed to the grammar; the current one is its lookahead */
  TokenList ahead;                  /* read or made up, not yet handed out: [ahead_first, count) */
  uint32_t ahead_first;
  Token open[BRACKETS_DEEPEST]; /* `(`, `[` and `{` not yet closed */
  uint32_t open_count;
  uint32_t open_before;     /* open_count without the current token */
  uint32_t stuck, stuck_at; /* errors in a row at one place */
  TokenList handed;         /* to the grammar for the item being read; repair.c looks for slips in it */
  uint64_t dry_steps;       /* tokens of dry runs so far: their work is bounded */
  Name section;             /* the section being read, and its `<` */
  Span section_open;
} Parser;

/* A syntax error as the grammar sees it. */
typedef struct SyntaxError {
  Site site;
  const bool *expected; /* by token code, expected_count of them */
  uint32_t expected_count;
} SyntaxError;

/* grammar.y: a run of the grammar over kinds of tokens alone: no values, no reports. */
typedef struct DryRun {
  Arena *arena;
  VEC(int) states;
  VEC(uint32_t) starts; /* per state: the index of the first token of what it stands for */
} DryRun;
void dry_begin(Arena *arena, DryRun *run);
void dry_copy(DryRun *to, const DryRun *from); /* `to` has an arena */
/* Hands token `index`, of this kind, to the grammar; false when it cannot follow. RESYNC goes on after an error. */
bool dry_take(DryRun *run, int kind, uint32_t index);
/* Forgets the statement, key or item (of a header: the whole block) that is being read when token `index` cannot
 * follow; the index of its first token. */
uint32_t dry_rewind(DryRun *run, uint32_t index);

/* lexer.l: the next token of the text, as written; also opening and closing of the scanner. */
void lexer_open(Parser *parser);
void lexer_close(Parser *parser);
Token lexer_next(Parser *parser);

/* literal.c */
Expr *literal_number(Parser *parser, const char *text, size_t length, Span span);
Expr *literal_string(Parser *parser, const char *text, size_t length, Span span);

/* parse.c */
int token_next(SyntaxValue *value, Span *span, Parser *parser);
const Token *token_peek(Parser *parser, uint32_t distance);            /* 0: the one after the current */
Token token_take(Parser *parser);                                      /* like token_next, not handed to the grammar */
void token_queue(Parser *parser, const Token *tokens, uint32_t count); /* before what is ahead */

/* recover.c: reports the error at parser->current unless it follows from an earlier one, and queues what makes the
 * grammar go on. */
void recover(Parser *parser, const SyntaxError *error);
void recover_exhausted(Parser *parser, Span span);

/* repair.c: before and after the rules of recovery look at an error. */
typedef struct Repair {
  TokenList ahead;     /* the found token and those that follow it, as far as repairs are tried */
  uint32_t open_count; /* brackets that are open before the found token */
} Repair;
Repair repair_begin(Parser *parser);
/* When going on as recovery decided leads to another error, and one token left out, added or changed over there is
 * none: goes on as if that had been written. `site` as in SyntaxError. */
void repair_end(Parser *parser, Site site, const Repair *repair);

/* build.c: one function for each grammar action. */
Name build_name(Parser *parser, const char *text, size_t length, Span span);
Expr *build_error(Parser *parser, Span span);
Expr *build_name_expr(Parser *parser, Name name);
Expr *build_unary(Parser *parser, int op, Span op_span, Expr *operand);
Expr *build_binary(Parser *parser, int op, Span op_span, Expr *left, Expr *right);
Expr *build_pipe(Parser *parser, Span op_span, Expr *left, Expr *call);
Expr *build_call(Parser *parser, Name name, ArgList args, Span span);
Expr *build_parens(Parser *parser, ExprList inside, Span span);
Expr *build_star(Parser *parser, Span span);
ExprList add_expr(Parser *parser, ExprList list, Expr *expr);
ArgList add_arg(Parser *parser, ArgList list, Name name, Expr *value);
NameList add_name(Parser *parser, NameList list, Name name);
TypeExpr *build_type(Parser *parser, Name dtype, bool leading_run, ExprList dims, Span span);
Binding build_binding(Name name, Expr *value);
Binding build_section_key(Parser *parser, Name name, Expr *value);
BindingList add_binding(Parser *parser, BindingList list, Binding binding);
Input build_input(Name name, TypeExpr *type, Expr *value);
InputList add_input(Parser *parser, InputList list, Input input);
ParamDecl build_param_decl(Name name, TypeExpr *type, Expr *init);
ParamList add_param(Parser *parser, ParamList list, ParamDecl param);
StmtList add_stmt(Parser *parser, StmtList list, Stmt *stmt);
Stmt *build_param(Parser *parser, bool frozen, ParamList params, Span span);
Stmt *build_assign(Parser *parser, NameList targets, Expr *value, Span span);
Stmt *build_repeat(Parser *parser, Name index, Expr *lower, Expr *upper, StmtList body, Span span);
Stmt *build_if(Parser *parser, Expr *condition, StmtList then, StmtList otherwise, Span span);
Stmt *build_value(Parser *parser, StmtKind kind, Expr *value, Span span);
Stmt *build_metric(Parser *parser, Name name, Expr *value, Span span);
void add_edition(Parser *parser, Expr *number, Span span);
void add_import(Parser *parser, Expr *path, Name name, Span span);
void add_bindings(Parser *parser, ItemKind kind, bool config, BindingList bindings, Span span);
void open_section(Parser *parser, Name name, Span open);
void add_section(Parser *parser, Name name, BindingList bindings, Span span);
void add_block(Parser *parser, Name name, NameList sizes, InputList inputs, TypeExpr *result, StmtList body, Span span);
void add_model(Parser *parser, Name name, InputList inputs, StmtList body, Span span);

#endif
