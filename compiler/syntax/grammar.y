/* The grammar of `.pd`. Owns what is allowed in what order and how tightly operators bind; every action is one call
 * to a builder (build.c). After a syntax error recover.c queues the token RESYNC and then what can follow it, so that
 * each list below has one rule `resync` and the parser goes on there; no rule skips tokens on its own. */
%require "3.8"
%define api.pure full
%define api.prefix {grammar_}
%define api.token.prefix {T_}
%define api.value.type {union SyntaxValue}
%define api.location.type {Span}
%define parse.lac full
%define parse.error custom
%expect 0
%locations
%param {Parser *parser}

%code requires {
#include "syntax/parser.h"
}

%code {
#include <string.h>

#define YYMAXDEPTH 8000
#define YYLLOC_DEFAULT(result, rhs, n)                                                                    \
  ((result) = (n) ? span_join(YYRHSLOC(rhs, 1), YYRHSLOC(rhs, n))                                         \
                  : (Span){YYRHSLOC(rhs, 0).file, YYRHSLOC(rhs, 0).end, YYRHSLOC(rhs, 0).end})

static int grammar_lex(SyntaxValue *value, Span *span, Parser *parser) {
  return token_next(value, span, parser);
}
static void grammar_error(const Span *span, Parser *parser, const char *message) {
  (void)message; /* only `memory exhausted` comes here; syntax errors have yyreport_syntax_error below */
  recover_exhausted(parser, *span);
}
static const Name no_name;
}

%initial-action { @$ = (Span){parser->file, 0, 0}; }

%token PD IMPORT AS CONST CONFIG DIM BLOCK MODEL PARAM FROZEN REPEAT IF ELSE RETURN LOSS METRIC
%token <name> NAME DOTTED WORD
%token <expr> NUMBER STRING
%token ARROW PIPE DOTS EQ NE LE GE AND OR
%token BAD      /* the lexer has reported an error here */
%token BAD_REST /* the same, and the rest of the line went with it */
%token RESYNC   /* made up: the parser goes on after an error */

%type <expr> expr logic arith value primary call
%type <args> args arg_list
%type <exprs> exprs
%type <names> sizes names
%type <name> key callee
%type <binding> binding
%type <bindings> consts keys
%type <input> input
%type <inputs> inputs input_list
%type <param> param
%type <params> params
%type <type> type
%type <stmt> stmt if
%type <stmts> stmts body otherwise

%left OR
%left AND
%left '+' '-'
%left '*' '/' '%'
%left '@'
%precedence UNARY

%%

items
  : %empty
  | items item
  | items resync
  ;

resync
  : error RESYNC { yyerrok; }
  ;

item
  : PD NUMBER ';'                           { add_edition(parser, $2, @$); }
  | IMPORT STRING AS NAME ';'               { add_import(parser, $2, $4, @$); }
  | CONST consts ';'                        { add_bindings(parser, ITEM_CONST, false, $2, @$); }
  | CONFIG CONST consts ';'                 { add_bindings(parser, ITEM_CONST, true, $3, @$); }
  | DIM consts ';'                          { add_bindings(parser, ITEM_DIM, false, $2, @$); }
  | NAME '<' { open_section(parser, $1, @2); } keys '>'
                                            { add_section(parser, $1, $4, @$); }
  | BLOCK NAME sizes '(' inputs ')' ARROW type body
                                            { add_block(parser, $2, $3, $5, $8, $9, @$); }
  | MODEL NAME '(' inputs ')' body          { add_model(parser, $2, $4, $6, @$); }
  | BLOCK resync body
  | MODEL resync body
  ;

consts
  : binding                                 { $$ = add_binding(parser, (BindingList){0}, $1); }
  | consts ',' binding                      { $$ = add_binding(parser, $1, $3); }
  ;

binding
  : NAME '=' expr                           { $$ = build_binding($1, $3); }
  ;

keys
  : %empty                                  { $$ = (BindingList){0}; }
  | keys key '=' value ';'                  { $$ = add_binding(parser, $1, build_section_key(parser, $2, $4)); }
  | keys resync
  ;

key
  : NAME
  | DOTTED
  ;

value /* no bare comparison: a forgotten `;` before `>` is then seen where it is missing */
  : arith
  | '*'                                     { $$ = build_star(parser, @1); }
  ;

sizes
  : %empty                                  { $$ = (NameList){0}; }
  | '<' names '>'                           { $$ = $2; }
  ;

names
  : NAME                                    { $$ = add_name(parser, (NameList){0}, $1); }
  | names ',' NAME                          { $$ = add_name(parser, $1, $3); }
  ;

inputs
  : %empty                                  { $$ = (InputList){0}; }
  | input_list
  ;

input_list
  : input                                   { $$ = add_input(parser, (InputList){0}, $1); }
  | input_list ',' input                    { $$ = add_input(parser, $1, $3); }
  ;

input
  : NAME ':' type                           { $$ = build_input($1, $3, NULL); }
  | NAME '=' expr                           { $$ = build_input($1, NULL, $3); }
  ;

type
  : '[' ']'                                 { $$ = build_type(parser, no_name, false, (ExprList){0}, @$); }
  | '[' exprs ']'                           { $$ = build_type(parser, no_name, false, $2, @$); }
  | '[' DOTS ']'                            { $$ = build_type(parser, no_name, true, (ExprList){0}, @$); }
  | '[' DOTS ',' exprs ']'                  { $$ = build_type(parser, no_name, true, $4, @$); }
  | NAME '[' ']'                            { $$ = build_type(parser, $1, false, (ExprList){0}, @$); }
  | NAME '[' exprs ']'                      { $$ = build_type(parser, $1, false, $3, @$); }
  | NAME '[' DOTS ']'                       { $$ = build_type(parser, $1, true, (ExprList){0}, @$); }
  | NAME '[' DOTS ',' exprs ']'             { $$ = build_type(parser, $1, true, $5, @$); }
  ;

body
  : '{' stmts '}'                           { $$ = $2; }
  ;

stmts
  : %empty                                  { $$ = (StmtList){0}; }
  | stmts stmt                              { $$ = add_stmt(parser, $1, $2); }
  | stmts resync                            { $$ = $1; }
  | stmts resync body otherwise             { $$ = $1; }
  ;

stmt
  : PARAM params ';'                        { $$ = build_param(parser, false, $2, @$); }
  | FROZEN PARAM params ';'                 { $$ = build_param(parser, true, $3, @$); }
  | names '=' expr ';'                      { $$ = build_assign(parser, $1, $3, @$); }
  | REPEAT expr body                        { $$ = build_repeat(parser, no_name, $2, NULL, $3, @$); }
  | REPEAT NAME '=' expr DOTS expr body     { $$ = build_repeat(parser, $2, $4, $6, $7, @$); }
  | if
  | RETURN expr ';'                         { $$ = build_value(parser, STMT_RETURN, $2, @$); }
  | LOSS expr ';'                           { $$ = build_value(parser, STMT_LOSS, $2, @$); }
  | METRIC NAME '=' expr ';'                { $$ = build_metric(parser, $2, $4, @$); }
  ;

if
  : IF '(' expr ')' body otherwise          { $$ = build_if(parser, $3, $5, $6, @$); }
  ;

otherwise
  : %empty                                  { $$ = (StmtList){0}; }
  | ELSE body                               { $$ = $2; }
  | ELSE if                                 { $$ = add_stmt(parser, (StmtList){0}, $2); }
  ;

params
  : param                                   { $$ = add_param(parser, (ParamList){0}, $1); }
  | params ',' param                        { $$ = add_param(parser, $1, $3); }
  ;

param
  : NAME ':' type                           { $$ = build_param_decl($1, $3, NULL); }
  | NAME ':' type '=' expr                  { $$ = build_param_decl($1, $3, $5); }
  ;

expr
  : logic
  | expr PIPE call                          { $$ = build_pipe(parser, @2, $1, $3); }
  ;

logic
  : arith
  | logic OR logic                          { $$ = build_binary(parser, EXPR_OP_OR, @2, $1, $3); }
  | logic AND logic                         { $$ = build_binary(parser, EXPR_OP_AND, @2, $1, $3); }
  | arith EQ arith                          { $$ = build_binary(parser, EXPR_OP_EQ, @2, $1, $3); }
  | arith NE arith                          { $$ = build_binary(parser, EXPR_OP_NE, @2, $1, $3); }
  | arith LE arith                          { $$ = build_binary(parser, EXPR_OP_LE, @2, $1, $3); }
  | arith GE arith                          { $$ = build_binary(parser, EXPR_OP_GE, @2, $1, $3); }
  | arith '<' arith                         { $$ = build_binary(parser, EXPR_OP_LT, @2, $1, $3); }
  | arith '>' arith                         { $$ = build_binary(parser, EXPR_OP_GT, @2, $1, $3); }
  ;

arith
  : primary
  | arith '+' arith                         { $$ = build_binary(parser, '+', @2, $1, $3); }
  | arith '-' arith                         { $$ = build_binary(parser, '-', @2, $1, $3); }
  | arith '*' arith                         { $$ = build_binary(parser, '*', @2, $1, $3); }
  | arith '/' arith                         { $$ = build_binary(parser, '/', @2, $1, $3); }
  | arith '%' arith                         { $$ = build_binary(parser, '%', @2, $1, $3); }
  | arith '@' arith                         { $$ = build_binary(parser, '@', @2, $1, $3); }
  | '-' arith %prec UNARY                   { $$ = build_unary(parser, '-', @1, $2); }
  | '!' arith %prec UNARY                   { $$ = build_unary(parser, '!', @1, $2); }
  ;

primary
  : NUMBER
  | STRING
  | callee                                  { $$ = build_name_expr(parser, $1); }
  | WORD                                    { $$ = build_name_expr(parser, $1); }
  | call
  | '(' exprs ')'                           { $$ = build_parens(parser, $2, @$); }
  ;

callee
  : NAME
  | DOTTED
  ;

call
  : callee '(' args ')'                     { $$ = build_call(parser, $1, $3, @$); }
  ;

args
  : %empty                                  { $$ = (ArgList){0}; }
  | arg_list
  ;

arg_list
  : expr                                    { $$ = add_arg(parser, (ArgList){0}, no_name, $1); }
  | NAME '=' expr                           { $$ = add_arg(parser, (ArgList){0}, $1, $3); }
  | arg_list ',' expr                       { $$ = add_arg(parser, $1, no_name, $3); }
  | arg_list ',' NAME '=' expr              { $$ = add_arg(parser, $1, $3, $5); }
  ;

exprs
  : expr                                    { $$ = add_expr(parser, (ExprList){0}, $1); }
  | exprs ',' expr                          { $$ = add_expr(parser, $1, $3); }
  ;

%%

/* The innermost rule list that has a `resync`: what bison will pop its stack to. */
static Site recovery_site(const yypcontext_t *context) {
  for (const yy_state_t *state = context->yyssp; *state != 0; state--) {
    switch (YY_ACCESSING_SYMBOL(*state)) {
    case YYSYMBOL_stmts: return SITE_STATEMENT;
    case YYSYMBOL_keys: return SITE_SECTION;
    case YYSYMBOL_BLOCK:
    case YYSYMBOL_MODEL: return SITE_HEADER;
    case YYSYMBOL_items: return SITE_ITEM;
    default: break;
    }
  }
  return SITE_ITEM;
}

static int yyreport_syntax_error(const yypcontext_t *context, Parser *parser) {
  yysymbol_kind_t symbols[YYNTOKENS];
  bool expected[T_RESYNC + 1];
  int count = yypcontext_expected_tokens(context, symbols, YYNTOKENS);
  memset(expected, 0, sizeof expected);
  for (int code = 0; code <= T_RESYNC; code++)
    for (int i = 0; i < count; i++)
      if (YYTRANSLATE(code) == symbols[i] && symbols[i] != YYSYMBOL_YYUNDEF) expected[code] = true;
  recover(parser, &(SyntaxError){recovery_site(context), expected, T_RESYNC + 1});
  return 0;
}
