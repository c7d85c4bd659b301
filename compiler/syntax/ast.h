/* The syntax tree: what the user wrote, with spans, before any meaning. Owned by the arena of the compilation.
 * Lists are arrays with a count, in source order. Names are interned. */
#ifndef PDC_SYNTAX_AST_H
#define PDC_SYNTAX_AST_H

#include "support/diag.h"

typedef struct Expr Expr;
typedef struct Stmt Stmt;
typedef struct Item Item;

enum { SYNTAX_DEEPEST = 1000 }; /* levels of an expression tree; statements nest below it too */

typedef struct Name { /* `layers`, or dotted: `nn.layernorm`, `parallel.tp` */
  const char *text;   /* interned, whole dotted text */
  Span span;
} Name;

typedef enum ExprKind {
  EXPR_INT,      /* integer, suffixes applied: 375M, 1.2M (exact) */
  EXPR_REAL,     /* 6e-5, 0.9 */
  EXPR_STRING,   /* unescaped text in `string` */
  EXPR_NAME,     /* name.text; `true`, `false`, `1f1b`, `on` are names too: their meaning is semantic */
  EXPR_UNARY,    /* op '-' or '!' , args[0] */
  EXPR_BINARY,   /* op: + - * / % @ and EXPR_OP_* below, args[0..1] */
  EXPR_PIPE,     /* a |> f(...): args[0] = a, args[1] = the EXPR_CALL (without a inserted) */
  EXPR_CALL,     /* name(...): name, args with arg_names (NULL where positional) */
  EXPR_TUPLE,    /* (a, b) with two or more elements */
  EXPR_STAR,     /* `*` as a section value: dp=* */
  EXPR_ERROR     /* stands for a syntax error already reported */
} ExprKind;
enum { EXPR_OP_EQ = 256, EXPR_OP_NE, EXPR_OP_LE, EXPR_OP_GE, EXPR_OP_LT, EXPR_OP_GT, EXPR_OP_AND, EXPR_OP_OR };

struct Expr {
  ExprKind kind;
  Span span;
  int op;
  Span op_span;
  int64_t integer;
  double real;
  const char *string; /* EXPR_STRING: its text; numbers: as written (`375M`), or NULL when no source wrote it */
  Name name;
  Expr **args;
  Name *arg_names; /* EXPR_CALL: one per argument, text NULL where positional */
  uint32_t arg_count;
  uint32_t parens; /* pairs of parentheses written around it; `span` includes them */
  uint32_t depth;  /* of the tree below, at least 1; bounded by SYNTAX_DEEPEST, so that passes may recurse */
};

/* `i32[batch, seq]`, `[.., m]`, or absent. */
typedef struct TypeExpr {
  Span span;
  Name dtype;        /* text NULL when absent: the compute precision */
  bool leading_run;  /* began with `..` */
  Expr **dims;
  uint32_t dim_count;
} TypeExpr;

/* One input of a block or model: tensor `x: [.., m]`, or constant `k=3` (type NULL, value given). */
typedef struct Input {
  Name name;
  TypeExpr *type;
  Expr *value;
} Input;

typedef struct ParamDecl {
  Name name;
  TypeExpr *type;
  Expr *init; /* NULL: default normal(0.02) */
} ParamDecl;

typedef enum StmtKind { STMT_PARAM, STMT_ASSIGN, STMT_REPEAT, STMT_IF, STMT_RETURN, STMT_LOSS, STMT_METRIC } StmtKind;
struct Stmt {
  StmtKind kind;
  Span span;
  bool frozen;                                 /* STMT_PARAM */
  ParamDecl *params; uint32_t param_count;     /* STMT_PARAM */
  Name *targets; uint32_t target_count;        /* STMT_ASSIGN: `a = e;` or `a, b, c = split(...);`  STMT_METRIC: its name */
  Expr *value;                                 /* ASSIGN, RETURN, LOSS, METRIC; IF: condition; REPEAT: count or lower bound */
  Expr *upper; Name index;                     /* REPEAT i = a .. b: b is exclusive; index.text NULL for `repeat N` */
  Stmt **body; uint32_t body_count;            /* REPEAT; IF: then */
  Stmt **otherwise; uint32_t otherwise_count;  /* IF: else */
};

typedef struct Binding { /* const a = 3   dim batch = 8   key=value; in a section (kind=zb-h1: one EXPR_NAME) */
  Name name;
  Expr *value;
} Binding;

typedef enum ItemKind { ITEM_IMPORT, ITEM_CONST, ITEM_DIM, ITEM_SECTION, ITEM_BLOCK, ITEM_MODEL } ItemKind;
struct Item {
  ItemKind kind;
  Span span;
  Name name;                               /* BLOCK, MODEL, SECTION; IMPORT: the `as` name */
  const char *path; Span path_span;        /* IMPORT */
  bool config;                             /* CONST: `config const` */
  Binding *bindings; uint32_t binding_count; /* CONST, DIM, SECTION */
  Name *sizes; uint32_t size_count;        /* BLOCK <m, n> */
  Input *inputs; uint32_t input_count;     /* BLOCK, MODEL */
  TypeExpr *result;                        /* BLOCK; NULL for MODEL */
  Stmt **body; uint32_t body_count;        /* BLOCK, MODEL */
};

typedef struct Module { /* one source file */
  uint32_t file;
  int64_t edition; /* 1 */
  Item **items;
  uint32_t item_count;
  Span edition_span; /* of the line `pd 1;`, empty when there is none */
} Module;

/* Parses source `file` of `all`. Syntax errors are reported and recovered from; never NULL. */
Module *syntax_parse(Arena *arena, Intern *names, Diagnostics *all, uint32_t file);

/* The canonical text of a module: what `pdc fmt` prints. Comments kept. Idempotent; never changes meaning. */
void syntax_format(Text *out, const Diagnostics *all, const Module *module);
/* Readable text of the tree with places: --emit=ast. */
void syntax_print(Text *out, const Diagnostics *all, const Module *module);
/* How an operator of EXPR_UNARY and EXPR_BINARY is written. */
const char *syntax_operator(int op);

#endif
