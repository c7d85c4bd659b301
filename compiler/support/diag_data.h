/* What a diagnostic is made of: shared by the collection (diag.c) and the rendering (diag_render.c), nobody else. */
#ifndef PDC_SUPPORT_DIAG_DATA_H
#define PDC_SUPPORT_DIAG_DATA_H

#include "support/diag.h"

typedef struct Label {
  Span span;
  const char *text;
} Label;

struct Diag {
  Arena *arena;
  DiagLevel level;
  const char *code;
  Span span;
  const char *message;
  const char *primary; /* text at the primary span, or NULL */
  VEC(Label) labels;
  VEC(const char *) notes;
  VEC(const char *) helps;
};

/* The first character at or after each MILESTONE bytes of a source: its offset, and how many characters come before it.
 * A column is found from there, however long its line is. */
enum { MILESTONE = 1024 };
typedef struct Milestone {
  uint32_t at, characters;
} Milestone;

typedef struct SourceFile {
  Source source;
  VEC(uint32_t) lines; /* byte offset of the begin of each line; at least one */
  VEC(Milestone) milestones;
} SourceFile;

typedef struct WarningRule {
  const char *code; /* NULL: all */
  bool on;
} WarningRule;

struct Diagnostics {
  Arena *arena;
  VEC(WarningRule) rules; /* the last one that speaks of a warning decides */
  VEC(SourceFile) sources;
  VEC(Diag *) reports; /* in the order reported */
  unsigned errors;
};

/* 0-based line of a byte offset, offsets beyond the end counting as the end. */
uint32_t source_line_of(const SourceFile *file, uint32_t offset);
/* The bytes of a 0-based line, without its line end. */
Span source_line_span(const SourceFile *file, uint32_t line);

#endif
