/* What the tests of the syntax and of the formatter share: programs that stand in the test as text. */
#ifndef TESTS_UNIT_SYNTAX_HELP_H
#define TESTS_UNIT_SYNTAX_HELP_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "syntax/ast.h"

typedef struct Parsed {
  Arena *arena;
  Diagnostics *all;
  Module *module;
  const char *text;
} Parsed;

static inline Parsed parse_bytes(const char *text, size_t length) {
  Parsed parsed = {.arena = arena_new(), .text = text};
  parsed.all = diagnostics_new(parsed.arena);
  uint32_t file = diag_add_source(parsed.all, "t.pd", text, length);
  parsed.module = syntax_parse(parsed.arena, intern_new(parsed.arena), parsed.all, file);
  return parsed;
}

static inline const char *rendered(const Parsed *parsed, DiagFormat format) {
  char *bytes = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&bytes, &size);
  diag_render(parsed->all, out, format, false);
  fclose(out);
  const char *kept = arena_strndup(parsed->arena, bytes, size);
  free(bytes);
  return kept;
}

static inline Parsed parse(const char *text) {
  return parse_bytes(text, strlen(text));
}

static inline Parsed parse_well(const char *text) {
  Parsed parsed = parse(text);
  cr_assert_eq(diag_errors(parsed.all), 0u, "unexpected errors in\n%s\n%s", text, rendered(&parsed, DIAG_TEXT));
  return parsed;
}

#endif
