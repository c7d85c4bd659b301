/* Where parsing goes on behind a syntax error: what belongs to the statement, key, header or item with the error is
 * skipped, and RESYNC is queued with what comes after it. Assumes that after RESYNC the grammar stands in the list of
 * the error's site (items, header of a block, keys of a section, statements), or, in a header, before `{`. */
#include <string.h>

#include "syntax/grammar.h"
#include "syntax/recover.h"

/* --- going on --- */

Token made_up(const Situation *at, int kind) {
  return (Token){.kind = kind, .span = gap_after(&at->before)};
}

/* Forgets brackets opened after the innermost `{`; outside bodies, all of them. */
void close_brackets(const Situation *at) {
  Parser *parser = at->parser;
  uint32_t count = parser->open_count;
  while (count > 0 && parser->open[count - 1].kind != '{') count--;
  parser->open_count = at->site == SITE_STATEMENT ? count : 0;
}

/* Goes on with RESYNC and the `count` tokens given. */
void go_on(const Situation *at, const Token *tokens, uint32_t count) {
  Token all[4] = {made_up(at, T_RESYNC)};
  for (uint32_t i = 0; i < count; i++) all[i + 1] = tokens[i];
  close_brackets(at);
  token_queue(at->parser, all, count + 1);
}

void go_on_here(const Situation *at) {
  go_on(at, &at->found, 1);
}

/* `token` is `{`, or opens nothing: takes all up to its closing `}`. */
static void skip_braces(const Situation *at) {
  for (uint32_t depth = 1; depth > 0;) {
    const Token *next = token_peek(at->parser, 0);
    if (next->kind == 0 || (begins_item(next->kind) && in_first_column(at, next))) return;
    depth += next->kind == '{' ? 1u : 0u;
    depth -= next->kind == '}' ? 1u : 0u;
    token_take(at->parser);
  }
}

bool begins_section(const Situation *at, const Token *token) {
  return token->kind == T_NAME && first_on_line(at, token) && token_peek(at->parser, 0)->kind == '<';
}

/* After `>` of a section comes the end, an item or another section; anything else on its line belongs to a value,
 * apart from a `;` in the wrong place. */
bool closes_section(const Situation *at) {
  const Token *next = token_peek(at->parser, 0);
  bool section = next->kind == T_NAME && token_peek(at->parser, 1)->kind == '<';
  return next->kind == 0 || next->kind == ';' || begins_item(next->kind) || section || first_on_line(at, next);
}

/* True when the next token is on another line, or begins an item: what was skipped ends here. */
bool line_ends(const Situation *at) {
  const Token *next = token_peek(at->parser, 0);
  return next->kind == 0 || begins_item(next->kind) || first_on_line(at, next);
}

bool assigns_next(const Situation *at) {
  return token_peek(at->parser, 0)->kind == T_NAME && token_peek(at->parser, 1)->kind == '=';
}

/* True when what follows a `{` or `}` is what follows those of a body; others are slips of the keyboard. */
bool is_of_body(const Situation *at) {
  const Token *next = token_peek(at->parser, 0);
  return line_ends(at) || begins_statement(next->kind) || next->kind == '}' || next->kind == T_ELSE || assigns_next(at);
}

/* After a `<` outside of a section: takes all of the keys, if these are keys, but not the `>`. */
static void skip_section(const Situation *at) {
  bool keys = assigns_next(at);
  for (const Token *next = token_peek(at->parser, 0); keys; next = token_peek(at->parser, 0)) {
    if (next->kind == 0 || next->kind == '>' || (begins_item(next->kind) && first_on_line(at, next))) return;
    token_take(at->parser);
  }
}

static void skip_statement(const Situation *at, Token token) {
  for (;; token = token_take(at->parser)) {
    if (token.kind == ';') {
      go_on(at, NULL, 0);
      return;
    }
    bool begins = begins_statement(token.kind) || (begins_item(token.kind) && in_first_column(at, &token));
    bool ends = token.kind == 0 || ((token.kind == '{' || token.kind == '}') && is_of_body(at));
    if (ends || (begins && first_on_line(at, &token))) {
      go_on(at, &token, 1);
      return;
    }
  }
}

static void skip_key(const Situation *at, Token token) {
  for (;; token = token_take(at->parser)) {
    if (token.kind == '{') {
      skip_braces(at);
    } else if (token.kind == ';') {
      go_on(at, NULL, 0);
      return;
    } else if (token.kind == 0 || (token.kind == '>' && closes_section(at))) {
      go_on(at, &token, 1);
      return;
    } else if ((begins_item(token.kind) && first_on_line(at, &token)) || begins_section(at, &token)) {
      go_on(at, (Token[]){made_up(at, '>'), token}, 2);
      return;
    }
  }
}

void skip_header(const Situation *at, Token token) {
  for (;; token = token_take(at->parser)) {
    if (token.kind == '{' && is_of_body(at)) {
      go_on(at, &token, 1);
      return;
    }
    bool new_line = first_on_line(at, &token);
    bool assigns = token.kind == T_NAME && token_peek(at->parser, 0)->kind == '=';
    if ((begins_statement(token.kind) || assigns) && new_line) {
      go_on(at, (Token[]){made_up(at, '{'), token}, 2);
      return;
    }
    if (token.kind == ';' && line_ends(at)) {
      go_on(at, (Token[]){made_up(at, '{'), made_up(at, '}')}, 2);
      return;
    }
    if (token.kind == 0 || (begins_item(token.kind) && new_line) || (begins_section(at, &token) && new_line)) {
      go_on(at, (Token[]){made_up(at, '{'), made_up(at, '}'), token}, 3);
      return;
    }
  }
}

static void skip_item(const Situation *at, Token token) {
  /* indented statements outside of a block: most likely a `}` too many before them; all of them are one mistake */
  bool assigns = token.kind == '=' && at->before.kind == T_NAME;
  bool inner = begins_statement(token.kind) || token.kind == T_ELSE;
  bool statements = (inner && !in_first_column(at, &token)) || (assigns && !in_first_column(at, &at->before));
  for (;; token = token_take(at->parser)) {
    if (token.kind == '{') {
      skip_braces(at);
      if (!statements) break;
    } else if (token.kind == '<') {
      skip_section(at);
    } else if (token.kind == '}' || (token.kind == ';' && !statements && line_ends(at))) {
      break;
    } else if (token.kind == 0 || (begins_item(token.kind) && first_on_line(at, &token)) ||
               begins_section(at, &token)) {
      go_on(at, &token, 1);
      return;
    }
  }
  go_on(at, NULL, 0);
}

void skip_from(const Situation *at, Token token) {
  switch (at->site) {
  case SITE_STATEMENT:
    skip_statement(at, token);
    break;
  case SITE_SECTION:
    skip_key(at, token);
    break;
  case SITE_HEADER:
    skip_header(at, token);
    break;
  case SITE_ITEM:
    skip_item(at, token);
    break;
  }
}

void skip_past(const Situation *at) {
  skip_from(at, token_take(at->parser));
}
