/* Syntax errors: what to say, and where to go on. The grammar calls recover() at the first token that cannot follow;
 * the rules below are tried in order, the first that recognises the mistake reports it and goes on behind it (skip.c),
 * and the last one words any error (expected.c). Every rule uses up a token or closes a bracket, so that parsing ends;
 * a count of errors at one place guards that. */
#include <string.h>

#include "syntax/grammar.h"
#include "syntax/recover.h"

enum { MOST_STUCK = 2 * BRACKETS_DEEPEST };

/* --- the rules --- */

static const Token *innermost(const Situation *at) {
  return at->parser->open_count > 0 ? &at->parser->open[at->parser->open_count - 1] : NULL;
}

static int closer_of(int opener) {
  return opener == '(' ? ')' : opener == '[' ? ']' : '}';
}

static bool reported_by_lexer(const Situation *at) {
  if (at->found.kind == T_BAD_REST) {
    Token next = token_take(at->parser);
    bool closed = at->site == SITE_SECTION && (next.kind == 0 || begins_item(next.kind) || begins_section(at, &next));
    if (at->site == SITE_HEADER)
      skip_header(at, next);
    else if (closed)
      go_on(at, (Token[]){made_up(at, '>'), next}, 2); /* `>` was on the rest of the line */
    else
      go_on(at, &next, 1);
    return true;
  }
  if (at->found.kind != T_BAD) return false;
  skip_past(at);
  return true;
}

static Diag *report_unclosed(const Situation *at, Span opener, const char *bracket, int closer, Span gap) {
  Diag *diag = diag_error(at->parser->all, "E0113", gap, "%s is never closed", bracket);
  diag_primary(diag, "expected %s here", code_spelling(closer));
  diag_label(diag, opener, "opened here");
  return diag;
}

static bool at_end(const Situation *at) {
  if (at->found.kind != 0) return false;
  const Token *open = innermost(at);
  Span gap = gap_after(&at->before);
  if (at->site == SITE_SECTION) {
    report_unclosed(at, at->parser->section_open,
                    arena_printf(at->parser->arena, "section `%s`", at->parser->section.text), '>', gap);
    return true;
  }
  if (open == NULL) return false;
  report_unclosed(at, open->span, code_spelling(open->kind), closer_of(open->kind), gap);
  return true;
}

static void report_keyword(const Situation *at, const Token *token) {
  Diag *diag = diag_error(at->parser->all, "E0115", token->span, "%s is a keyword and cannot be a name",
                          token_spelling(at->parser, token));
  diag_help(diag, "choose another name, such as `%.*s_`", (int)(token->span.end - token->span.begin),
            at->parser->text + token->span.begin);
}

static bool keyword_as_name(const Situation *at) {
  if (at->found.kind == '=' && is_keyword(at->before.kind)) { /* `loss = …;` */
    if (at->before.kind == T_LOSS || at->before.kind == T_RETURN) {
      const char *word = at->before.kind == T_LOSS ? "loss" : "return";
      Diag *diag = diag_error(at->parser->all, "E0115", at->before.span, "`%s` is a statement, not a name", word);
      diag_help(diag, "leave `=` out: `%s ...;`", word);
    } else {
      report_keyword(at, &at->before);
    }
    skip_from(at, at->found);
    return true;
  }
  if (!is_keyword(at->found.kind) || !expects(at, T_NAME)) return false;
  bool is_key = at->site == SITE_SECTION && token_peek(at->parser, 0)->kind == '=';
  if (expects(at, T_RETURN) || expects(at, T_IMPORT) || expects(at, ';')) return false;
  if (!is_key && (at->site == SITE_SECTION || first_on_line(at, &at->found))) return false;
  const Token *open = innermost(at);
  if (at->found.kind == T_DIM && open && open->kind == '(' && token_peek(at->parser, 0)->kind == '=') {
    Diag *diag =
        diag_error(at->parser->all, "E0115", at->found.span, "`dim` is a keyword, and no argument has this name");
    diag_help(diag, "an axis is given as `mean(x, seq)` or `slice(x, axis=seq)`, by its name or as -1, the last");
  } else {
    report_keyword(at, &at->found);
  }
  skip_past(at);
  return true;
}

static bool dotted_as_name(const Situation *at) {
  if (at->found.kind != T_DOTTED || !expects(at, T_NAME) || expects(at, T_DOTTED)) return false;
  Diag *diag = diag_error(at->parser->all, "E0116", at->found.span, "%s is not a plain name",
                          token_spelling(at->parser, &at->found));
  diag_note(diag, "names with a dot are read, never declared: the part before the dot is an import or a section");
  skip_past(at);
  return true;
}

static bool comparison_in_value(const Situation *at) {
  if (at->site != SITE_SECTION || !expects(at, ';')) return false;
  bool other = at->found.kind == T_AND || at->found.kind == T_OR || at->found.kind == T_PIPE;
  if (!is_comparison(at->found.kind) && !other) return false;
  if (at->found.kind == '>' && closes_section(at)) return false;
  Diag *diag = diag_error(at->parser->all, "E0118", at->found.span, "%s needs parentheses in the value of a key",
                          token_spelling(at->parser, &at->found));
  diag_help(diag, "write `key=(a %.*s b);`", (int)(at->found.span.end - at->found.span.begin),
            at->parser->text + at->found.span.begin);
  skip_past(at);
  return true;
}

static bool chained_comparison(const Situation *at) {
  if (!is_comparison(at->found.kind) || expects(at, at->found.kind) || !expects(at, T_AND)) return false;
  Diag *diag = diag_error(at->parser->all, "E0117", at->found.span, "comparisons do not chain");
  diag_help(diag, "write `a < b && b < c`");
  skip_past(at);
  return true;
}

/* Two values side by side, the second a call: `x |> relu() gelu()`, most often over two lines. */
static bool missing_pipe(const Situation *at) {
  bool name = at->found.kind == T_NAME || at->found.kind == T_DOTTED;
  if (at->site != SITE_STATEMENT || !name || !expects(at, T_PIPE) || token_peek(at->parser, 0)->kind != '(')
    return false;
  Diag *diag = diag_error(at->parser->all, "E0111", gap_after(&at->before),
                          "expected `|>` or another operator before `%s(...)`", at->found.value.name.text);
  diag_primary(diag, "add `|>` here");
  diag_help(diag, "`x |> %s(...)` passes `x` as its first argument", at->found.value.name.text);
  skip_past(at);
  return true;
}

static bool missing_semicolon(const Situation *at) {
  const Token *open = innermost(at);
  if (!expects(at, ';') || (open != NULL && open->kind != '{')) return false;
  int kind = at->found.kind;
  bool comma = kind == ',' && at->site == SITE_SECTION;
  bool name = kind == T_NAME || kind == T_DOTTED;
  int next = name ? token_peek(at->parser, 0)->kind : 0;
  bool new_line = first_on_line(at, &at->found);
  bool ends = (kind == '}' && at->site == SITE_STATEMENT && is_of_body(at)) ||
              (kind == '>' && at->site == SITE_SECTION) || kind == 0;
  bool begins = begins_item(kind) || begins_statement(kind) || (name && (new_line || next == '=' || next == '<'));
  if (!comma && !ends && !begins) return false;
  Diag *diag = diag_error(at->parser->all, "E0112", gap_after(&at->before), "expected `;` after %s",
                          token_spelling(at->parser, &at->before));
  diag_primary(diag, "%s", comma ? "write `;` instead of `,`" : "add `;` here");
  if (at->site == SITE_SECTION) diag_note(diag, "each key of a section ends with `;`, the last one too");
  if (comma)
    go_on(at, NULL, 0);
  else
    go_on_here(at);
  return true;
}

static bool unclosed_section(const Situation *at) {
  if (at->site != SITE_SECTION) return false;
  bool next_section = at->found.kind == '<' && at->before.kind == T_NAME && expects(at, '=');
  if (!next_section && !begins_item(at->found.kind)) return false;
  const Token *last = next_section ? &at->parser->earlier : &at->before;
  report_unclosed(at, at->parser->section_open,
                  arena_printf(at->parser->arena, "section `%s`", at->parser->section.text), '>', gap_after(last));
  if (next_section)
    go_on(at, (Token[]){made_up(at, '>'), at->before, at->found}, 3);
  else
    go_on(at, (Token[]){made_up(at, '>'), at->found}, 2);
  return true;
}

/* An item inside a body: in the first column it means that the body was not closed. */
static bool unclosed_body(const Situation *at) {
  if (at->site != SITE_STATEMENT) return false;
  bool section = at->found.kind == '<' && at->before.kind == T_NAME && expects(at, '=');
  bool lone_else =
      at->found.kind == T_ELSE && expects(at, T_RETURN) && at->before.kind != '}' && at->parser->open_count > 1;
  const Token *item = section ? &at->before : &at->found;
  if (!section && !lone_else && !(begins_item(at->found.kind) && expects(at, T_RETURN))) return false;
  if (!lone_else && !in_first_column(at, item)) return false;
  close_brackets(at);
  if (innermost(at) == NULL) return false;
  const Token *last = section ? &at->parser->earlier : &at->before;
  report_unclosed(at, innermost(at)->span, "`{`", '}', gap_after(last));
  uint32_t open = lone_else ? 1 : at->parser->open_count, count = 0;
  Token *tokens = ARENA_ARRAY(at->parser->arena, Token, open + 3);
  tokens[count++] = made_up(at, T_RESYNC);
  for (uint32_t i = 0; i < open; i++) tokens[count++] = made_up(at, '}');
  if (section) tokens[count++] = at->before;
  tokens[count++] = at->found;
  token_queue(at->parser, tokens, count);
  return true;
}

/* `else` where no body of an `if` can be open. */
static bool else_without_if(const Situation *at) {
  if (at->site != SITE_STATEMENT || at->found.kind != T_ELSE || !expects(at, T_RETURN)) return false;
  diag_error(at->parser->all, "E0111", at->found.span, "`else` without an `if` before it");
  go_on(at, NULL, 0);
  return true;
}

static bool item_in_body(const Situation *at) {
  if (at->site != SITE_STATEMENT || !begins_item(at->found.kind) || !expects(at, T_RETURN)) return false;
  Diag *diag = diag_error(at->parser->all, "E0111", at->found.span, "%s is not a statement",
                          token_spelling(at->parser, &at->found));
  diag_help(diag, "declare it outside of the block");
  skip_past(at);
  return true;
}

static bool unbalanced(const Situation *at) {
  const Token *open = innermost(at);
  int kind = at->found.kind;
  bool closes = kind == ')' || kind == ']' || kind == '}';
  bool in_list = open != NULL && open->kind != '{' && expects(at, closer_of(open->kind));
  if (kind == ')' || kind == ']') {
    if (open != NULL && open->kind != '{' && !in_list) return false; /* something else is missing before it */
    Diag *diag = NULL;
    if (in_list) {
      diag = diag_error(at->parser->all, "E0114", at->found.span, "%s does not close %s", code_spelling(kind),
                        code_spelling(open->kind));
      diag_primary(diag, "expected %s", code_spelling(closer_of(open->kind)));
      diag_label(diag, open->span, "opened here");
    } else {
      diag = diag_error(at->parser->all, "E0114", at->found.span, "%s closes nothing", code_spelling(kind));
      diag_primary(diag, "no %s is open", code_spelling(kind == ')' ? '(' : '['));
    }
    skip_past(at);
    return true;
  }
  if (kind == '}' && open == NULL && at->site == SITE_ITEM) {
    Diag *diag = diag_error(at->parser->all, "E0114", at->found.span, "`}` closes nothing");
    diag_primary(diag, "no `{` is open");
    if (expects(at, T_IMPORT))
      go_on(at, NULL, 0);
    else
      skip_past(at);
    return true;
  }
  bool new_statement = first_on_line(at, &at->found) &&
                       (begins_statement(kind) || begins_item(kind) ||
                        (kind == T_NAME && at->site == SITE_STATEMENT && token_peek(at->parser, 0)->kind == '='));
  if (closes && !is_of_body(at)) return false;
  if (!in_list || !(closes || kind == ';' || kind == '{' || kind == '>' || kind == T_ARROW || new_statement))
    return false;
  report_unclosed(at, open->span, code_spelling(open->kind), closer_of(open->kind), gap_after(&at->before));
  if (new_statement && at->site != SITE_HEADER)
    go_on_here(at);
  else
    skip_from(at, at->found);
  return true;
}

static bool late_edition(const Situation *at) {
  if (at->site != SITE_ITEM || at->found.kind != T_NUMBER || at->before.kind != T_NAME) return false;
  if (at->before.value.name.text != intern_str(at->parser->names, "pd")) return false;
  Diag *diag = diag_error(at->parser->all, "E0119", span_join(at->before.span, at->found.span),
                          "the edition stands on the first line of the file");
  diag_help(diag, "move `pd 1;` before everything else");
  skip_past(at);
  return true;
}

/* Goes on with the found token as a body: `repeat 8 x = f(x);` alone on its line is a body of one statement. */
static void go_on_with_body(const Situation *at) {
  Parser *parser = at->parser;
  VEC(Token) tokens = {0};
  Token token = at->found;
  vec_push(parser->arena, &tokens, made_up(at, T_RESYNC));
  vec_push(parser->arena, &tokens, made_up(at, '{'));
  bool one_line = !first_on_line(at, &token);
  for (;; token = token_take(parser)) {
    vec_push(parser->arena, &tokens, token);
    if (token.kind == ';' || token.kind == '{' || token.kind == '}' || token.kind == 0) break;
  }
  if (one_line && token.kind == ';' && line_ends(at)) vec_push(parser->arena, &tokens, made_up(at, '}'));
  close_brackets(at);
  token_queue(parser, tokens.at, tokens.count);
}

/* `parallel pp=8; … >` without its `<`, `repeat 8 x = …; }` without its `{`. */
static bool missing_opener(const Situation *at) {
  bool assigns = at->found.kind == T_NAME && token_peek(at->parser, 0)->kind == '=';
  bool section = at->site == SITE_ITEM && expects(at, '<') && is_section(&at->before) && assigns;
  bool body = at->site == SITE_STATEMENT && expects(at, '{') && (assigns || begins_statement(at->found.kind));
  if (!section && !body) return false;
  Diag *diag = diag_error(at->parser->all, "E0111", gap_after(&at->before), "expected %s after %s",
                          section ? "`<`" : "`{`", token_spelling(at->parser, &at->before));
  diag_primary(diag, "add %s here", section ? "`<`" : "`{`");
  if (section)
    go_on(at, (Token[]){at->before, made_up(at, '<'), at->found}, 3);
  else
    go_on_with_body(at);
  return true;
}

/* `y = x if a else b;` */
static bool conditional_expression(const Situation *at) {
  bool open_expression = expects(at, T_PIPE) && (expects(at, '+') || expects(at, T_AND) || expects(at, ')'));
  if (at->site != SITE_STATEMENT || at->found.kind != T_IF || !open_expression || first_on_line(at, &at->found))
    return false;
  Diag *diag = diag_error(at->parser->all, "E0111", at->found.span, "there is no conditional expression");
  diag_help(diag, "`if` is a statement: `if (...) { y = ...; } else { y = ...; }`");
  for (const Token *next = token_peek(at->parser, 0); next->kind != 0 && next->kind != ';' && !line_ends(at);
       next = token_peek(at->parser, 0))
    token_take(at->parser);
  skip_past(at);
  return true;
}

/* `y = param w: [n];` */
static bool param_in_expression(const Situation *at) {
  if (at->site != SITE_STATEMENT || at->found.kind != T_PARAM || !expects(at, T_NUMBER)) return false;
  Diag *diag = diag_error(at->parser->all, "E0111", at->found.span, "`param` is a statement of its own, not a value");
  diag_help(diag, "declare it first, `param w: [m, n];`, then use its name");
  skip_past(at);
  return true;
}

/* `optimizer < lr=1; >` inside a body. */
static bool section_in_body(const Situation *at) {
  if (at->site != SITE_STATEMENT || at->found.kind != '<' || !is_section(&at->before) || !expects(at, '='))
    return false;
  Diag *diag = diag_error(at->parser->all, "E0111", at->before.span, "section `%s` stands inside a body",
                          at->before.value.name.text);
  diag_help(diag, "move it out of the block or model: it says how, not what, is computed");
  for (const Token *next = token_peek(at->parser, 0); next->kind != 0 && next->kind != '}';
       next = token_peek(at->parser, 0))
    if (token_take(at->parser).kind == '>') break;
  go_on(at, NULL, 0);
  return true;
}

/* `dim batch = 8 embed = 4;` */
static bool missing_comma(const Situation *at) {
  if (at->site != SITE_ITEM || at->found.kind != T_NAME || !expects(at, ',') || !expects(at, ';')) return false;
  if (token_peek(at->parser, 0)->kind != '=') return false;
  Diag *diag = diag_error(at->parser->all, "E0111", gap_after(&at->before), "expected `,` after %s",
                          token_spelling(at->parser, &at->before));
  diag_primary(diag, "add `,` here");
  skip_past(at);
  return true;
}

static bool anything(const Situation *at) {
  Span span = at->found.kind == 0 ? gap_after(&at->before) : at->found.span;
  Diag *diag = diag_error(at->parser->all, "E0111", span, "expected %s, found %s", expected_list(at),
                          token_spelling(at->parser, &at->found));
  add_help(at, diag);
  skip_from(at, at->found);
  return true;
}

void recover(Parser *parser, const SyntaxError *error) {
  static bool (*const rules[])(const Situation *) = {reported_by_lexer,  at_end,           param_in_expression,
                                                     keyword_as_name,    dotted_as_name,   comparison_in_value,
                                                     chained_comparison, unclosed_section, unclosed_body,
                                                     section_in_body,    else_without_if,  conditional_expression,
                                                     missing_comma,      missing_pipe,     missing_semicolon,
                                                     item_in_body,       unbalanced,       late_edition,
                                                     missing_opener,     anything};
  if (parser->stopped) return;
  parser->open_count = parser->open_before; /* the found token is not accepted yet */
  Situation at = {parser, error->site, error->expected, error->expected_count, parser->current, parser->previous};
  parser->stuck = parser->stuck_at == at.found.span.begin ? parser->stuck + 1 : 0;
  parser->stuck_at = at.found.span.begin;
  if (parser->stuck > MOST_STUCK) {
    parser->stopped = true;
    return;
  }
  Repair repair = repair_begin(parser);
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    if (rules[i](&at)) break;
  repair_end(parser, error->site, &repair);
}

void recover_exhausted(Parser *parser, Span span) {
  if (!parser->stopped) diag_error(parser->all, "E0110", span, "this is nested too deeply");
  parser->stopped = true;
}
