/* Where to go on after a syntax error when the rules of recover.c guess wrong. A slip of one token (doubled, forgotten,
 * changed over with its neighbour) is undone in a copy, and dry runs of the grammar say how far each such copy reads.
 * The error has been reported by then and its wording is not changed; this only decides what the grammar sees next, so
 * that one slip gives one error. What recovery does is kept unless it leads to another error that a copy does not have:
 * mistakes that are independent are at places that no change of one token reaches.
 * The work is bounded per error (tokens looked at) and per file (steps of dry runs). */
#include <string.h>

#include "syntax/grammar.h"
#include "syntax/parser.h"

enum { LEAST_GAIN = 2 }; /* tokens that a repair reads beyond what it repairs */
static const uint64_t MOST_DRY_STEPS = 4000000;

Repair repair_begin(Parser *parser) {
  Repair repair = {.open_count = parser->open_count};
  vec_push(parser->arena, &repair.ahead, parser->current);
  for (uint32_t i = 0; i < TOKENS_AHEAD && parser->current.kind != 0; i++) {
    const Token *next = token_peek(parser, i);
    vec_push(parser->arena, &repair.ahead, *next);
    if (next->kind == 0) break;
  }
  return repair;
}

/* --- how far tokens read --- */

/* Where the first token that cannot follow begins; UINT32_MAX when all can, up to one that the lexer refused. */
static uint32_t reach(Parser *parser, DryRun *run, const Token *tokens, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    if (tokens[i].kind == T_BAD || tokens[i].kind == T_BAD_REST) break;
    parser->dry_steps++;
    if (!dry_take(run, tokens[i].kind, i)) return tokens[i].span.begin;
  }
  return UINT32_MAX;
}

/* --- repairs --- */

typedef struct Search {
  Parser *parser;
  DryRun start; /* where the statement, key or item with the error begins */
  DryRun run;
  const Token *text; /* from there on, as written; `error` is the place of the found token */
  uint32_t count, error;
  Token *copy; /* with the change that is tried; room for one token more */
  uint32_t needed;
  uint32_t best; /* where the best so far ends */
  TokenList repaired;
} Search;

/* The text with `removed` tokens at a place replaced by others. */
static void try_change(Search *search, uint32_t at, uint32_t removed, const Token *added, uint32_t added_count) {
  if (search->best == UINT32_MAX || search->parser->dry_steps > MOST_DRY_STEPS) return;
  if (at + removed >= search->count) return; /* the last token ends the file or what is looked at */
  uint32_t rest = search->count - at - removed, count = at + added_count + rest;
  memcpy(search->copy, search->text, at * sizeof *search->copy);
  if (added_count) memcpy(search->copy + at, added, added_count * sizeof *search->copy);
  memcpy(search->copy + at + added_count, search->text + at + removed, rest * sizeof *search->copy);
  dry_copy(&search->run, &search->start);
  uint32_t end = reach(search->parser, &search->run, search->copy, count);
  if (end < search->needed || end <= search->best) return;
  search->best = end;
  search->repaired.count = 0;
  for (uint32_t i = 0; i < count; i++) vec_push(search->parser->arena, &search->repaired, search->copy[i]);
}

static void try_swap(Search *search, uint32_t at) {
  if (at + 1 >= search->count) return;
  Token both[2] = {search->text[at + 1], search->text[at]};
  try_change(search, at, 2, both, 2);
}

/* What may have been forgotten or mistyped at a place: instead of `removed` tokens there. */
static void try_kinds(Search *search, uint32_t at, uint32_t removed) {
  static const int kinds[] = {';', ',', ')', ']', '}', '{', '(', '[', '=', ':', '<', '>', T_PIPE, T_ARROW, T_NAME};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    Token token = {.kind = kinds[i], .span = search->text[at].span};
    token.span.end = token.span.begin;
    if (kinds[i] == T_NAME) token.value.name = build_name(search->parser, "_", 1, token.span);
    try_change(search, at, removed, &token, 1);
  }
}

/* From the likeliest to the least: of those that read equally far, the first is taken. */
static void try_all(Search *search) {
  uint32_t error = search->error;
  try_change(search, error, 1, NULL, 0);
  try_swap(search, error);
  if (error > 0) try_swap(search, error - 1);
  try_kinds(search, error, 0);
  try_kinds(search, error, 1);
  if (error == 0) return;
  try_change(search, error - 1, 1, NULL, 0);
  try_kinds(search, error - 1, 0);
  try_kinds(search, error - 1, 1);
}

static void go_on_with(Parser *parser, Site site, uint32_t open_count, const TokenList *repaired) {
  Token gap = {.span = {parser->file, parser->current.span.begin, parser->current.span.begin}};
  TokenList queue = {0};
  int opening[] = {T_RESYNC, '{', '}'}; /* a header ends with a body: an empty one, then the block once more */
  for (uint32_t i = 0; i < (site == SITE_HEADER ? 3 : 1); i++) {
    gap.kind = opening[i];
    vec_push(parser->arena, &queue, gap);
  }
  for (uint32_t i = 0; i < repaired->count; i++) vec_push(parser->arena, &queue, repaired->at[i]);
  while (open_count > 0 && parser->open[open_count - 1].kind != '{') open_count--;
  parser->open_count = site == SITE_STATEMENT ? open_count : 0;
  parser->ahead_first = parser->ahead.count = 0; /* the tokens looked at are in `repaired` */
  token_queue(parser, queue.at, queue.count);
}

void repair_end(Parser *parser, Site site, const Repair *repair) {
  uint32_t ahead = parser->ahead.count - parser->ahead_first, handed = parser->handed.count;
  if (parser->stopped || ahead == 0 || handed == 0 || handed > TOKENS_BACK) return;
  if (repair->ahead.at[0].kind == T_BAD || repair->ahead.at[0].kind == T_BAD_REST) return; /* no slip of a token */
  if (parser->ahead.at[parser->ahead_first].kind != T_RESYNC || parser->dry_steps > MOST_DRY_STEPS) return;
  Search search = {.parser = parser, .start.arena = parser->arena, .run.arena = parser->arena};
  dry_begin(parser->arena, &search.start);
  for (uint32_t i = 0; i + 1 < handed; i++) dry_take(&search.start, parser->handed.at[i].kind, i);
  parser->dry_steps += handed;
  dry_copy(&search.run, &search.start);
  uint32_t otherwise = reach(parser, &search.run, parser->ahead.at + parser->ahead_first, ahead);
  if (otherwise == UINT32_MAX) return;
  uint32_t begin = dry_rewind(&search.start, handed - 1);
  search.error = handed - 1 - begin;
  search.count = search.error + repair->ahead.count;
  Token *text = ARENA_ARRAY(parser->arena, Token, search.count);
  if (search.error) memcpy(text, parser->handed.at + begin, search.error * sizeof *text);
  memcpy(text + search.error, repair->ahead.at, repair->ahead.count * sizeof *text);
  search.text = text;
  search.copy = ARENA_ARRAY(parser->arena, Token, search.count + 1);
  /* as far as another mistake, `{{` is rather a slip than a body in a body */
  search.best = parser->current.kind == '{' && parser->previous.kind == '{' ? otherwise - 1 : otherwise;
  if (repair->ahead.count > LEAST_GAIN) search.needed = repair->ahead.at[LEAST_GAIN].span.begin;
  try_all(&search);
  if (search.repaired.count > 0) go_on_with(parser, site, repair->open_count, &search.repaired);
}
