/* Between the files of syntax recovery: recover.c has the rules that recognise mistakes, expected.c words what was
 * found and what could stand there instead, skip.c goes on behind it. */
#ifndef PDC_SYNTAX_RECOVER_H
#define PDC_SYNTAX_RECOVER_H

#include "syntax/parser.h"

typedef struct Situation { /* an error, as the rules look at it */
  Parser *parser;
  Site site;
  const bool *expected; /* by token code, expected_count of them */
  uint32_t expected_count;
  Token found, before; /* the token that cannot follow, and the one before it */
} Situation;

/* ---- expected.c: tokens as text, and what kind they are of ---- */
const char *code_spelling(int kind);                                  /* "`;`", "a name" */
const char *token_spelling(const Parser *parser, const Token *token); /* as written, in back quotes; cut when long */
bool is_one_of(int kind, const int *kinds, size_t count);
bool begins_item(int kind);
bool begins_statement(int kind); /* apart from names */
bool is_keyword(int kind);
bool is_comparison(int kind);
bool is_operator(int kind);
/* One of the sections there are, for guesses only: which names are right is decided later. */
bool is_section(const Token *name);
bool first_on_line(const Situation *at, const Token *token); /* only blanks stand before it */
bool in_first_column(const Situation *at, const Token *token);
Span gap_after(const Token *token); /* the place just after: where something is missing */
bool expects(const Situation *at, int kind);
/* "`;`, `,` or an operator": at most four choices. */
const char *expected_list(const Situation *at);
/* The nearest help for an error that no rule recognised, where there is some. */
void add_help(const Situation *at, Diag *diag);

/* ---- skip.c ---- */
Token made_up(const Situation *at, int kind); /* where something is missing */
/* Forgets brackets opened after the innermost `{`; outside bodies, all of them. */
void close_brackets(const Situation *at);
/* Goes on with RESYNC and the `count` (at most 3) tokens given. */
void go_on(const Situation *at, const Token *tokens, uint32_t count);
void go_on_here(const Situation *at); /* with the found token */
/* Skips to where the list of the error's site goes on, beginning with `token`, or with the one after the found one. */
void skip_from(const Situation *at, Token token);
void skip_header(const Situation *at, Token token);
void skip_past(const Situation *at);
bool begins_section(const Situation *at, const Token *token);
bool closes_section(const Situation *at); /* the found `>` */
bool line_ends(const Situation *at);      /* the next token is on another line, or begins an item */
bool assigns_next(const Situation *at);   /* `name =` comes next */
bool is_of_body(const Situation *at);     /* what follows the found `{` or `}` is what follows those of a body */

#endif
