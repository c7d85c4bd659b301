/* Syntax errors in words: tokens as the user types them, the list of what could follow, and the nearest help for errors
 * that no rule of recover.c recognises. */
#include <string.h>

#include "syntax/grammar.h"
#include "syntax/recover.h"

enum { MOST_EXPECTED = 4, LONGEST_SHOWN = 40 };

/* --- tokens as text --- */

const char *code_spelling(int kind) {
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

const char *token_spelling(const Parser *parser, const Token *token) {
  uint32_t length = token->span.end - token->span.begin;
  if (token->kind == 0 || length == 0) return code_spelling(token->kind);
  const char *text = parser->text + token->span.begin;
  if (length <= LONGEST_SHOWN) return arena_printf(parser->arena, "`%.*s`", (int)length, text);
  length = LONGEST_SHOWN - 3;
  while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80) length--;
  return arena_printf(parser->arena, "`%.*s...`", (int)length, text);
}

bool is_one_of(int kind, const int *kinds, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (kinds[i] == kind) return true;
  return false;
}

bool begins_item(int kind) {
  static const int kinds[] = {T_IMPORT, T_CONST, T_CONFIG, T_DIM, T_BLOCK, T_MODEL};
  return is_one_of(kind, kinds, sizeof kinds / sizeof *kinds);
}

bool begins_statement(int kind) { /* apart from names */
  static const int kinds[] = {T_PARAM, T_FROZEN, T_REPEAT, T_IF, T_RETURN, T_LOSS, T_METRIC};
  return is_one_of(kind, kinds, sizeof kinds / sizeof *kinds);
}

bool is_keyword(int kind) {
  return begins_item(kind) || begins_statement(kind) || kind == T_ELSE || kind == T_AS;
}

bool is_comparison(int kind) {
  static const int kinds[] = {'<', '>', T_LE, T_GE, T_EQ, T_NE};
  return is_one_of(kind, kinds, sizeof kinds / sizeof *kinds);
}

bool is_operator(int kind) {
  static const int kinds[] = {'+', '-', '*', '/', '%', '@', T_AND, T_OR, T_PIPE};
  return is_comparison(kind) || is_one_of(kind, kinds, sizeof kinds / sizeof *kinds);
}

/* True when only blanks stand before the token on its line. */
bool first_on_line(const Situation *at, const Token *token) {
  const char *text = at->parser->text;
  uint32_t begin = token->span.begin;
  while (begin > 0 && (text[begin - 1] == ' ' || text[begin - 1] == '\t')) begin--;
  return begin == 0 || text[begin - 1] == '\n';
}

bool in_first_column(const Situation *at, const Token *token) {
  return token->span.begin == 0 || at->parser->text[token->span.begin - 1] == '\n';
}

/* The place just after a token: where something is missing. */
Span gap_after(const Token *token) {
  return (Span){token->span.file, token->span.end, token->span.end};
}

/* The sections there are, for guesses only: which names are right is decided later. */
bool is_section(const Token *name) {
  static const char *const names[] = {"parallel", "shard", "schedule",   "optimizer", "precision",
                                      "data",     "train", "checkpoint", "cluster"};
  for (size_t i = 0; i < sizeof names / sizeof *names && name->kind == T_NAME; i++)
    if (strcmp(name->value.name.text, names[i]) == 0) return true;
  return false;
}

bool expects(const Situation *at, int kind) {
  return (uint32_t)kind < at->expected_count && at->expected[kind];
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

const char *expected_list(const Situation *at) {
  Choices all = choices_of(at), *choices = &all;
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

/* `{{`, `;;`, `param param`; of names and numbers a comma may be missing between them. */
static bool is_doubled(const Situation *at) {
  const Token *before = &at->before, *found = &at->found;
  uint32_t length = found->span.end - found->span.begin;
  bool word = is_one_of(found->kind, (int[]){T_NAME, T_DOTTED, T_WORD, T_NUMBER, T_STRING, 0}, 6);
  return !word && found->kind == before->kind && before->span.end - before->span.begin == length &&
         before->span.end <= found->span.begin && found->span.begin - before->span.end <= 1 &&
         !memcmp(at->parser->text + before->span.begin, at->parser->text + found->span.begin, length);
}

void add_help(const Situation *at, Diag *diag) {
  int kind = at->found.kind;
  if (kind == '*' && at->before.kind == '*') {
    diag_help(diag, "there is no power operator; powers are products: `x * x`");
    return;
  }
  if (is_doubled(at)) {
    diag_help(diag, "leave one of the two %s out", token_spelling(at->parser, &at->found));
    return;
  }
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
  else if (at->site == SITE_ITEM && kind == T_ELSE && at->before.kind == '}')
    diag_help(diag, "the `}` before it closed all of the body: leave it out");
  else if (at->site == SITE_ITEM && kind == ';' && at->before.kind == '}')
    diag_help(diag, "no `;` follows a `}`");
  else if (at->site == SITE_STATEMENT && at->before.kind == T_NAME &&
           (!strcmp(at->before.value.name.text, "elif") || !strcmp(at->before.value.name.text, "elseif")))
    diag_help(diag, "write `else if (...) { ... }`");
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
  else if (kind == T_DOTS && expects(at, ']') + expects(at, T_NUMBER) > 0 && at->before.kind == ',')
    diag_help(diag, "`..` stands first, before the axes that have names: `[.., m]`");
  else if ((kind == ';' || kind == ',') && expects(at, ':') && !expects(at, '='))
    diag_help(diag, "a parameter has a shape: `%.*s: [m, n]`", (int)(at->before.span.end - at->before.span.begin),
              at->parser->text + at->before.span.begin);
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
