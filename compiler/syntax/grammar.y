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

/* Of a state that parsing may go on from after an error, where that is. */
static bool is_site(int state, Site *site) {
  switch (YY_ACCESSING_SYMBOL(state)) {
  case YYSYMBOL_stmts: *site = SITE_STATEMENT; return true;
  case YYSYMBOL_keys: *site = SITE_SECTION; return true;
  case YYSYMBOL_BLOCK:
  case YYSYMBOL_MODEL: *site = SITE_HEADER; return true;
  case YYSYMBOL_items: *site = SITE_ITEM; return true;
  default: return false;
  }
}

/* The innermost rule list that has a `resync`: what bison will pop its stack to. */
static Site recovery_site(const yypcontext_t *context) {
  Site site = SITE_ITEM;
  for (const yy_state_t *state = context->yyssp; *state != 0; state--)
    if (is_site(*state, &site)) break;
  return site;
}

/* --- dry runs: the same tables, without values and actions --- */

static void dry_settle(DryRun *run, uint32_t index);

void dry_begin(Arena *arena, DryRun *run) {
  run->arena = arena;
  run->states.count = run->starts.count = 0;
  vec_push(arena, &run->states, 0);
  vec_push(arena, &run->starts, 0);
  dry_settle(run, 0);
}

void dry_copy(DryRun *to, const DryRun *from) {
  to->states.count = to->starts.count = 0;
  for (uint32_t i = 0; i < from->states.count; i++) {
    vec_push(to->arena, &to->states, from->states.at[i]);
    vec_push(to->arena, &to->starts, from->starts.at[i]);
  }
}

static void dry_pop(DryRun *run, uint32_t count) {
  run->states.count -= count;
  run->starts.count -= count;
}

static void dry_push(DryRun *run, int state, uint32_t start) {
  vec_push(run->arena, &run->states, state);
  vec_push(run->arena, &run->starts, start);
}

static void dry_reduce(DryRun *run, int rule, uint32_t index) {
  uint32_t length = (uint32_t)yyr2[rule];
  uint32_t start = length > 0 ? run->starts.at[run->starts.count - length] : index;
  dry_pop(run, length);
  int symbol = yyr1[rule] - YYNTOKENS, top = run->states.at[run->states.count - 1];
  int place = yypgoto[symbol] + top;
  bool own = 0 <= place && place <= YYLAST && yycheck[place] == top;
  dry_push(run, own ? yytable[place] : yydefgoto[symbol], start);
}

/* What no further token decides, as bison does before it asks for one. */
static void dry_settle(DryRun *run, uint32_t index) {
  for (;;) {
    int state = run->states.at[run->states.count - 1];
    if (!yypact_value_is_default(yypact[state]) || yydefact[state] == 0) return;
    dry_reduce(run, yydefact[state], index);
  }
}

static bool dry_symbol(DryRun *run, int symbol, uint32_t index) {
  for (;;) {
    int state = run->states.at[run->states.count - 1], place = yypact[state], rule = yydefact[state];
    if (!yypact_value_is_default(place)) {
      place += symbol;
      if (0 <= place && place <= YYLAST && yycheck[place] == symbol) {
        if (yytable[place] > 0) {
          dry_push(run, yytable[place], index);
          dry_settle(run, index + 1);
          return true;
        }
        if (yytable_value_is_error(yytable[place])) return false;
        rule = -yytable[place];
      }
    }
    if (rule == 0) return false;
    dry_reduce(run, rule, index);
  }
}

/* True when the rules have `error` here. */
static bool dry_takes_error(const DryRun *run) {
  int place = yypact[run->states.at[run->states.count - 1]];
  if (yypact_value_is_default(place)) return false;
  place += YYSYMBOL_YYerror;
  return 0 <= place && place <= YYLAST && yycheck[place] == YYSYMBOL_YYerror && yytable[place] > 0;
}

bool dry_take(DryRun *run, int kind, uint32_t index) {
  if (kind != T_RESYNC) return dry_symbol(run, YYTRANSLATE(kind), index);
  while (!dry_takes_error(run) && run->states.count > 1) dry_pop(run, 1);
  return dry_symbol(run, YYSYMBOL_YYerror, index) && dry_symbol(run, YYSYMBOL_RESYNC, index);
}

uint32_t dry_rewind(DryRun *run, uint32_t index) {
  uint32_t start = index;
  Site site = SITE_ITEM;
  while (run->states.count > 1 && !is_site(run->states.at[run->states.count - 1], &site)) {
    start = run->starts.at[run->starts.count - 1];
    dry_pop(run, 1);
  }
  if (site == SITE_HEADER && run->states.count > 1) { /* the word `block` or `model` too */
    start = run->starts.at[run->starts.count - 1];
    dry_pop(run, 1);
  }
  return start;
}

/* --- errors --- */

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
