/* The parse of one source file, and the stream of tokens between lexer and grammar. Owns the checks of the raw text
 * (size, NUL, UTF-8), the count of open brackets, and the queue in which recovery puts tokens. */
#include <string.h>

#include "support/utf8.h"
#include "syntax/grammar.h"
#include "syntax/parser.h"

/* --- the stream of tokens --- */

Token token_take(Parser *parser) {
  if (parser->ahead_first < parser->ahead.count) return parser->ahead.at[parser->ahead_first++];
  parser->ahead_first = parser->ahead.count = 0;
  return lexer_next(parser);
}

const Token *token_peek(Parser *parser, uint32_t distance) {
  while (parser->ahead.count - parser->ahead_first <= distance)
    vec_push(parser->arena, &parser->ahead, lexer_next(parser));
  return &parser->ahead.at[parser->ahead_first + distance];
}

void token_queue(Parser *parser, const Token *tokens, uint32_t count) {
  uint32_t rest = parser->ahead.count - parser->ahead_first;
  Token *kept = ARENA_ARRAY(parser->arena, Token, rest + 1);
  if (rest > 0) memcpy(kept, parser->ahead.at + parser->ahead_first, rest * sizeof *kept);
  parser->ahead_first = parser->ahead.count = 0;
  for (uint32_t i = 0; i < count; i++) vec_push(parser->arena, &parser->ahead, tokens[i]);
  for (uint32_t i = 0; i < rest; i++) vec_push(parser->arena, &parser->ahead, kept[i]);
}

static void stop(Parser *parser) {
  parser->stopped = true;
}

static void count_brackets(Parser *parser, const Token *token) {
  parser->open_before = parser->open_count;
  int opener = token->kind == ')' ? '(' : token->kind == ']' ? '[' : token->kind == '}' ? '{' : 0;
  if (opener != 0 && parser->open_count > 0 && parser->open[parser->open_count - 1].kind == opener)
    parser->open_count--;
  if (token->kind != '(' && token->kind != '[' && token->kind != '{') return;
  if (parser->open_count < BRACKETS_DEEPEST) {
    parser->open[parser->open_count++] = *token;
    return;
  }
  Diag *diag = diag_error(parser->all, "E0110", token->span, "brackets are nested too deeply");
  diag_note(diag, "at most %d may be open at once", BRACKETS_DEEPEST);
  stop(parser);
}

int token_next(SyntaxValue *value, Span *span, Parser *parser) {
  Token token = {0};
  if (diag_full(parser->all)) stop(parser);
  if (!parser->stopped) {
    token = token_take(parser);
    if (parser->handed.count <= TOKENS_BACK) vec_push(parser->arena, &parser->handed, token);
    if (token.kind != T_RESYNC) {
      parser->earlier = parser->previous;
      parser->previous = parser->current;
      parser->current = token;
      count_brackets(parser, &token);
    }
  }
  if (parser->stopped) token = (Token){.span = {parser->file, parser->length, parser->length}};
  *value = token.value;
  *span = token.span;
  return token.kind;
}

/* --- the text as a whole --- */

typedef struct BadBytes {
  uint32_t count, first, first_end;
} BadBytes;

static void note_bad(BadBytes *bad, uint32_t at, uint32_t end) {
  if (bad->count++ == 0) bad->first = at, bad->first_end = end;
}

static void note_more(Diag *diag, const BadBytes *bad) {
  if (bad->count > 1) diag_note(diag, "and %u more in this file", bad->count - 1);
}

/* Reports bytes that no text has. False when there are so many that parsing makes no sense. */
static bool check_text(Parser *parser) {
  BadBytes nul = {0}, invalid = {0};
  for (uint32_t at = 0; at < parser->length;) {
    uint32_t code;
    unsigned size = utf8_decode(parser->text + at, parser->length - at, &code);
    if (size == 0) {
      note_bad(&invalid, at, at + 1);
      size = 1;
    } else if (code == 0) {
      note_bad(&nul, at, at + 1);
    }
    at += size;
  }
  if (nul.count > MOST_BAD_BYTES || invalid.count > MOST_BAD_BYTES) {
    BadBytes *bad = nul.count > MOST_BAD_BYTES ? &nul : &invalid;
    Diag *diag = diag_error(parser->all, "E0120", (Span){parser->file, bad->first, bad->first_end},
                            "this file is not a text file");
    diag_note(diag, "it has %u NUL bytes and %u bytes that are not UTF-8", nul.count, invalid.count);
    diag_help(diag, "save the program as UTF-8");
    return false;
  }
  if (nul.count > 0) {
    Diag *diag =
        diag_error(parser->all, "E0101", (Span){parser->file, nul.first, nul.first_end}, "NUL byte in the source");
    note_more(diag, &nul);
    diag_help(diag, "delete it, or save the file as UTF-8");
  }
  if (invalid.count > 0) {
    Diag *diag = diag_error(parser->all, "E0102", (Span){parser->file, invalid.first, invalid.first_end},
                            "the source is not valid UTF-8");
    diag_primary(diag, "byte 0x%02x", (unsigned char)parser->text[invalid.first]);
    note_more(diag, &invalid);
    diag_help(diag, "save the file as UTF-8");
  }
  return true;
}

Module *syntax_parse(Arena *arena, Intern *names, Diagnostics *all, uint32_t file) {
  const Source *source = diag_source(all, file);
  Module *module = ARENA_NEW(arena, Module);
  module->file = file;
  module->edition = 1;
  module->edition_span = (Span){file, 0, 0};
  if (source->length > LARGEST_SOURCE) {
    Diag *diag = diag_error(all, "E0120", (Span){file, 0, 0}, "this file has %zu bytes", source->length);
    diag_note(diag, "a source file may have at most %d", LARGEST_SOURCE);
    return module;
  }
  Parser *parser = ARENA_NEW(arena, Parser);
  parser->arena = arena;
  parser->names = names;
  parser->all = all;
  parser->module = module;
  parser->file = file;
  parser->text = source->text;
  parser->length = (uint32_t)source->length;
  if (!check_text(parser)) return module;
  lexer_open(parser);
  grammar_parse(parser);
  lexer_close(parser);
  module->items = parser->items.at;
  module->item_count = parser->items.count;
  return module;
}
