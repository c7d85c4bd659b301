/* Syntax errors: what to say, and where to go on. The grammar calls recover() at the first token that cannot follow;
 * the rules below are tried in order, the first that recognises the mistake reports it and queues the token RESYNC
 * with what comes after it, and the last one words any error. Assumes that after RESYNC the grammar stands in the
 * list of the error's site (items, header of a block, keys of a section, statements), or, in a header, before `{`.
 * Every rule uses up a token or closes a bracket, so that parsing ends; a count of errors at one place guards that. */
#include <string.h>

#include "syntax/grammar.h"
#include "syntax/parser.h"

enum { MOST_EXPECTED = 4, LONGEST_SHOWN = 40, MOST_STUCK = 2 * BRACKETS_DEEPEST };

typedef struct Situation {
  Parser *parser;
  Site site;
  const bool *expected;
  uint32_t expected_count;
  Token found, before;
} Situation;

/* --- tokens as text --- */

static const char *code_spelling(int kind) {
  switch (kind) {
  case 0:
    return "the end of the file";
  case T_NAME:
  case T_DOTTED:
    return "a name";
  case T_WORD:
    return "a word";
  case T_NUMBER:
    return "a number";
  case T_STRING:
    return "a string";
  case T_PD:
    return "`pd`";
  case T_IMPORT:
    return "`import`";
  case T_AS:
    return "`as`";
  case T_CONST:
    return "`const`";
  case T_CONFIG:
    return "`config`";
  case T_DIM:
    return "`dim`";
  case T_BLOCK:
    return "`block`";
  case T_MODEL:
    return "`model`";
  case T_PARAM:
    return "`param`";
  case T_FROZEN:
    return "`frozen`";
  case T_REPEAT:
    return "`repeat`";
  case T_IF:
    return "`if`";
  case T_ELSE:
    return "`else`";
  case T_RETURN:
    return "`return`";
  case T_LOSS:
    return "`loss`";
  case T_METRIC:
    return "`metric`";
  case T_ARROW:
    return "`->`";
  case T_PIPE:
    return "`|>`";
  case T_DOTS:
    return "`..`";
  case T_EQ:
    return "`==`";
  case T_NE:
    return "`!=`";
  case T_LE:
    return "`<=`";
  case T_GE:
    return "`>=`";
  case T_AND:
    return "`&&`";
  case T_OR:
    return "`||`";
  case '(':
    return "`(`";
  case ')':
    return "`)`";
  case '[':
    return "`[`";
  case ']':
    return "`]`";
  case '{':
    return "`{`";
  case '}':
    return "`}`";
  case '<':
    return "`<`";
  case '>':
    return "`>`";
  case ',':
    return "`,`";
  case ';':
    return "`;`";
  case ':':
    return "`:`";
  case '=':
    return "`=`";
  case '!':
    return "`!`";
  case '+':
    return "`+`";
  case '-':
    return "`-`";
  case '*':
    return "`*`";
  case '/':
    return "`/`";
  case '%':
    return "`%`";
  case '@':
    return "`@`";
  default:
    return "?";
  }
}

static const char *token_spelling(const Parser *parser, const Token *token) {
  uint32_t length = token->span.end - token->span.begin;
  if (token->kind == 0 || length == 0) return code_spelling(token->kind);
  const char *text = parser->text + token->span.begin;
  if (length <= LONGEST_SHOWN) return arena_printf(parser->arena, "`%.*s`", (int)length, text);
  length = LONGEST_SHOWN - 3;
  while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80) length--;
  return arena_printf(parser->arena, "`%.*s...`", (int)length, text);
}

static bool is_one_of(int kind, const int *kinds, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (kinds[i] == kind) return true;
  return false;
}

static bool begins_item(int kind) {
  static const int kinds[] = {T_IMPORT, T_CONST, T_CONFIG, T_DIM, T_BLOCK, T_MODEL};
  return is_one_of(kind, kinds, sizeof kinds / sizeof *kinds);
}

static bool begins_statement(int kind) { /* apart from names */
  static const int kinds[] = {T_PARAM, T_FROZEN, T_REPEAT, T_IF, T_RETURN, T_LOSS, T_METRIC};
  return is_one_of(kind, kinds, sizeof kinds / sizeof *kinds);
}

static bool is_keyword(int kind) {
  return begins_item(kind) || begins_statement(kind) || kind == T_ELSE || kind == T_AS;
}

static bool is_comparison(int kind) {
  static const int kinds[] = {'<', '>', T_LE, T_GE, T_EQ, T_NE};
  return is_one_of(kind, kinds, sizeof kinds / sizeof *kinds);
}

static bool is_operator(int kind) {
  static const int kinds[] = {'+', '-', '*', '/', '%', '@', T_AND, T_OR, T_PIPE};
  return is_comparison(kind) || is_one_of(kind, kinds, sizeof kinds / sizeof *kinds);
}

/* True when only blanks stand before the token on its line. */
static bool first_on_line(const Situation *at, const Token *token) {
  const char *text = at->parser->text;
  uint32_t begin = token->span.begin;
  while (begin > 0 && (text[begin - 1] == ' ' || text[begin - 1] == '\t')) begin--;
  return begin == 0 || text[begin - 1] == '\n';
}

static bool in_first_column(const Situation *at, const Token *token) {
  return token->span.begin == 0 || at->parser->text[token->span.begin - 1] == '\n';
}

/* The place just after a token: where something is missing. */
static Span gap_after(const Token *token) {
  return (Span){token->span.file, token->span.end, token->span.end};
}

/* --- going on --- */

static Token made_up(const Situation *at, int kind) {
  return (Token){.kind = kind, .span = gap_after(&at->before)};
}

/* Forgets brackets opened after the innermost `{`; outside bodies, all of them. */
static void close_brackets(const Situation *at) {
  Parser *parser = at->parser;
  uint32_t count = parser->open_count;
  while (count > 0 && parser->open[count - 1].kind != '{') count--;
  parser->open_count = at->site == SITE_STATEMENT ? count : 0;
}

/* Goes on with RESYNC and the `count` tokens given. */
static void go_on(const Situation *at, const Token *tokens, uint32_t count) {
  Token all[4] = {made_up(at, T_RESYNC)};
  for (uint32_t i = 0; i < count; i++) all[i + 1] = tokens[i];
  close_brackets(at);
  token_queue(at->parser, all, count + 1);
}

static void go_on_here(const Situation *at) {
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

static bool begins_section(const Situation *at, const Token *token) {
  return token->kind == T_NAME && first_on_line(at, token) && token_peek(at->parser, 0)->kind == '<';
}

/* After `>` of a section comes the end, an item or another section; anything else on its line belongs to a value. */
static bool closes_section(const Situation *at) {
  const Token *next = token_peek(at->parser, 0);
  bool section = next->kind == T_NAME && token_peek(at->parser, 1)->kind == '<';
  return next->kind == 0 || begins_item(next->kind) || section || first_on_line(at, next);
}

/* True when the next token is on another line, or begins an item: what was skipped ends here. */
static bool line_ends(const Situation *at) {
  const Token *next = token_peek(at->parser, 0);
  return next->kind == 0 || begins_item(next->kind) || first_on_line(at, next);
}

static bool assigns_next(const Situation *at) {
  return token_peek(at->parser, 0)->kind == T_NAME && token_peek(at->parser, 1)->kind == '=';
}

/* True when what follows a `{` or `}` is what follows those of a body; others are slips of the keyboard. */
static bool is_of_body(const Situation *at) {
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

static void skip_header(const Situation *at, Token token) {
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
  bool statements =
      (begins_statement(token.kind) && !in_first_column(at, &token)) || (assigns && !in_first_column(at, &at->before));
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

static void skip_from(const Situation *at, Token token) {
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

static void skip_past(const Situation *at) {
  skip_from(at, token_take(at->parser));
}

/* --- the rules --- */

static bool expects(const Situation *at, int kind) {
  return (uint32_t)kind < at->expected_count && at->expected[kind];
}

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

/* The sections there are, for guesses only: which names are right is decided later. */
static bool is_section(const Token *name) {
  static const char *const names[] = {"parallel", "shard", "schedule",   "optimizer", "precision",
                                      "data",     "train", "checkpoint", "cluster"};
  for (size_t i = 0; i < sizeof names / sizeof *names && name->kind == T_NAME; i++)
    if (strcmp(name->value.name.text, names[i]) == 0) return true;
  return false;
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

/* --- any other error: a list of what could follow --- */

typedef struct Choices {
  const char *texts[64];
  uint32_t count;
} Choices;

static void choose(Choices *choices, const char *text) {
  if (choices->count < sizeof choices->texts / sizeof *choices->texts) choices->texts[choices->count++] = text;
}

/* What could follow, in the user's words: whole classes of tokens are one choice. */
static Choices choices_of(const Situation *at) {
  static const int brackets[] = {';', ',', ')', ']', '}', '>', '{', '(', '[', '<', '=', ':', T_ARROW, T_DOTS};
  static const int words[] = {T_STRING, T_NUMBER, T_AS,     T_PARAM,  T_CONST, T_IF,     T_ELSE, T_BLOCK,
                              T_MODEL,  T_DIM,    T_IMPORT, T_CONFIG, T_PD,    T_FROZEN, 0};
  Choices choices = {0};
  if (expects(at, T_IMPORT)) { /* the list of items */
    choose(&choices, "`const`");
    choose(&choices, "`dim`");
    choose(&choices, "`block`");
    choose(&choices, "`model`");
    return choices;
  }
  bool expression = expects(at, T_NUMBER) && expects(at, '(');
  bool statement = expects(at, T_RETURN);
  bool operators = expects(at, T_PIPE) || expects(at, '+') || expects(at, T_AND);
  bool few_operators = operators && !expects(at, '+') && !expects(at, T_AND);
  if (statement)
    choose(&choices, "a statement");
  else if (expression)
    choose(&choices, "an expression");
  else if (expects(at, T_NAME))
    choose(&choices, at->site == SITE_SECTION && expects(at, T_DOTTED) ? "a key" : "a name");
  for (size_t i = 0; i < sizeof brackets / sizeof *brackets; i++) {
    int kind = brackets[i];
    if (!expects(at, kind)) continue;
    if (kind == '(' && (expression || operators)) continue;
    if (is_comparison(kind) && expects(at, T_EQ)) continue;
    choose(&choices, code_spelling(kind));
  }
  if (few_operators)
    choose(&choices, "`|>`");
  else if (operators)
    choose(&choices, "an operator");
  for (size_t i = 0; i < sizeof words / sizeof *words && !statement; i++)
    if (expects(at, words[i]) && !expression) choose(&choices, code_spelling(words[i]));
  return choices;
}

static const char *list_of(const Situation *at, const Choices *choices) {
  Text list = {.arena = at->parser->arena};
  uint32_t count = choices->count < MOST_EXPECTED ? choices->count : MOST_EXPECTED;
  for (uint32_t i = 0; i < count; i++)
    text_printf(&list, "%s%s", i == 0 ? "" : i + 1 == count ? " or " : ", ", choices->texts[i]);
  return count == 0 ? "something else" : list.at;
}

/* `dims a = 3;`, `retrun x;`: two words where the first is almost a keyword. */
static const char *misspelled(const Situation *at) {
  static const char *const items[] = {"import", "const", "config", "dim", "block", "model", NULL};
  static const char *const statements[] = {"param", "frozen", "repeat", "if", "else", "return", "loss", "metric", NULL};
  static const int follow[] = {T_NAME, T_DOTTED, T_NUMBER, T_STRING, '(', T_PARAM, T_CONST};
  if (at->before.kind != T_NAME || !is_one_of(at->found.kind, follow, sizeof follow / sizeof *follow)) return NULL;
  const char *const *words = at->site == SITE_STATEMENT && expects(at, '=') ? statements
                             : at->site == SITE_ITEM && expects(at, '<')    ? items
                                                                            : NULL;
  for (; words != NULL && *words != NULL; words++) {
    unsigned limit = strlen(*words) > 4 ? 2 : strlen(*words) > 2 ? 1 : 0;
    if (limit > 0 && edit_distance(at->before.value.name.text, *words, limit) <= limit) return *words;
  }
  return NULL;
}

/* `for i in …`, `while …` */
static bool loop_word(const Situation *at) {
  const Token *words[] = {&at->before, &at->parser->earlier};
  for (size_t i = 0; i < 2; i++)
    if (words[i]->kind == T_NAME &&
        (!strcmp(words[i]->value.name.text, "for") || !strcmp(words[i]->value.name.text, "while")))
      return true;
  return false;
}

static void add_help(const Situation *at, Diag *diag) {
  int kind = at->found.kind;
  if (misspelled(at) != NULL) {
    diag_help(diag, "did you mean `%s`, not `%s`?", misspelled(at), at->before.value.name.text);
    return;
  }
  if (at->site == SITE_ITEM && kind == '{' && expects(at, '<'))
    diag_help(diag, "a section is written `%s < key=value; >`", at->before.value.name.text);
  else if (at->site == SITE_ITEM && kind == ':' && expects(at, '=') && at->before.kind == T_NAME)
    diag_help(diag, "a value has no type: write `%s = ...`", at->before.value.name.text);
  else if (at->before.kind == T_IMPORT && expects(at, T_STRING))
    diag_help(diag, "write `import \"std/nn.pd\" as nn;`");
  else if (at->before.kind == T_FROZEN)
    diag_help(diag, "write `frozen param %.*s: ...`", (int)(at->found.span.end - at->found.span.begin),
              at->parser->text + at->found.span.begin);
  else if (at->site == SITE_SECTION && kind == ';' && expects(at, '='))
    diag_help(diag, "a key has a value: `%.*s=...;`", (int)(at->before.span.end - at->before.span.begin),
              at->parser->text + at->before.span.begin);
  else if (at->before.kind == T_NAME && expects(at, '[') && !expects(at, '+') && kind != '(')
    diag_help(diag, "a shape stands in square brackets: `[%s]`", at->before.value.name.text);
  else if (kind == T_NAME && !strcmp(at->found.value.name.text, "in") && at->before.kind == T_NAME)
    diag_help(diag, "write `repeat %s = 0 .. 12 { ... }`", at->before.value.name.text);
  else if (at->site == SITE_ITEM && kind == '=' && is_section(&at->before))
    diag_help(diag, "a section is written `%s < key=value; >`", at->before.value.name.text);
  else if (kind == T_DIM && at->before.kind == T_CONFIG)
    diag_help(diag, "give the dim a `config const` as its size: `config const size = ...; dim %s = size;`",
              token_peek(at->parser, 0)->kind == T_NAME ? token_peek(at->parser, 0)->value.name.text : "axis");
  else if (at->site == SITE_SECTION && kind == ':' && expects(at, '='))
    diag_help(diag, "a key and its value are written `%.*s=...;`", (int)(at->before.span.end - at->before.span.begin),
              at->parser->text + at->before.span.begin);
  else if (kind == '(' && at->parser->earlier.kind == T_METRIC)
    diag_help(diag, "a metric has a name: `metric error = %s(...);`", at->before.value.name.text);
  else if (at->before.kind == T_IF && expects(at, '('))
    diag_help(diag, "a condition stands in parentheses: `if (%.*s ...) { ... }`",
              (int)(at->found.span.end - at->found.span.begin), at->parser->text + at->found.span.begin);
  else if (at->site == SITE_STATEMENT && loop_word(at))
    diag_help(diag, "a loop is `repeat 12 { ... }`, or `repeat i = 0 .. 12 { ... }`");
  else if (at->site == SITE_ITEM && kind == '=' && at->before.kind == T_NAME)
    diag_help(diag, "a value is declared with `const`, a named axis with `dim`");
  else if (at->site == SITE_ITEM && kind == ';' && at->before.kind == '}')
    diag_help(diag, "no `;` follows a `}`");
  else if (at->site == SITE_STATEMENT && kind == '(' && expects(at, '='))
    diag_help(diag, "a statement gives its value a name: `y = %s(...);`", at->before.value.name.text);
  else if (kind == '=' && expects(at, T_EQ))
    diag_help(diag, "`==` compares");
  else if (kind == '{' && expects(at, T_ARROW))
    diag_help(diag, "a block says what it returns: `-> [m, n]`");
  else if (is_operator(kind) && expects(at, T_PIPE) && !expects(at, '+') && !expects(at, T_AND))
    diag_help(diag, "`|>` binds loosest; put the pipe in parentheses to go on with %s", code_spelling(kind));
  else if (kind == ';' && expects(at, T_AS))
    diag_help(diag, "name what is imported: `import \"...\" as nn;`");
  else if (at->site == SITE_STATEMENT && is_operator(kind) && expects(at, '=') &&
           token_peek(at->parser, 0)->kind == '=')
    diag_help(diag, "write `%s = %s %.*s ...;`", at->before.value.name.text, at->before.value.name.text,
              (int)(at->found.span.end - at->found.span.begin), at->parser->text + at->found.span.begin);
  else if (kind == '[' && at->before.kind == T_NAME && expects(at, '+'))
    diag_help(diag, "a part of a tensor is `slice(%s, axis=..., begin=..., end=...)`", at->before.value.name.text);
  else if (kind == '=' && expects(at, ':'))
    diag_help(diag, "a parameter has a shape: `%.*s: [m, n] = ...`", (int)(at->before.span.end - at->before.span.begin),
              at->parser->text + at->before.span.begin);
  else if ((kind == ',' || kind == ')') && expects(at, ':') && expects(at, '='))
    diag_help(diag, "an input has a shape, `%.*s: [m, n]`, or is a constant with a value, `k=3`",
              (int)(at->before.span.end - at->before.span.begin), at->parser->text + at->before.span.begin);
  else if (kind == '(' && expects(at, '[') && expects(at, T_NAME))
    diag_help(diag, "a shape stands in square brackets: `[m, n]`");
  else if (at->before.kind == T_PIPE || (expects(at, '(') && at->parser->earlier.kind == T_PIPE))
    diag_help(diag, "a pipe ends in a call: `x |> relu()`");
}

static bool anything(const Situation *at) {
  Choices choices = choices_of(at);
  Span span = at->found.kind == 0 ? gap_after(&at->before) : at->found.span;
  Diag *diag = diag_error(at->parser->all, "E0111", span, "expected %s, found %s", list_of(at, &choices),
                          token_spelling(at->parser, &at->found));
  add_help(at, diag);
  skip_from(at, at->found);
  return true;
}

void recover(Parser *parser, const SyntaxError *error) {
  static bool (*const rules[])(const Situation *) = {reported_by_lexer,
                                                     at_end,
                                                     keyword_as_name,
                                                     dotted_as_name,
                                                     comparison_in_value,
                                                     chained_comparison,
                                                     unclosed_section,
                                                     unclosed_body,
                                                     section_in_body,
                                                     else_without_if,
                                                     missing_comma,
                                                     missing_semicolon,
                                                     item_in_body,
                                                     unbalanced,
                                                     late_edition,
                                                     missing_opener,
                                                     anything};
  if (parser->stopped) return;
  parser->open_count = parser->open_before; /* the found token is not accepted yet */
  Situation at = {parser, error->site, error->expected, error->expected_count, parser->current, parser->previous};
  parser->stuck = parser->stuck_at == at.found.span.begin ? parser->stuck + 1 : 0;
  parser->stuck_at = at.found.span.begin;
  if (parser->stuck > MOST_STUCK) {
    parser->stopped = true;
    return;
  }
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    if (rules[i](&at)) return;
}

void recover_exhausted(Parser *parser, Span span) {
  if (!parser->stopped) diag_error(parser->all, "E0110", span, "this is nested too deeply");
  parser->stopped = true;
}
