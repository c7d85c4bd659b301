/* Sources and diagnostics. A diagnostic is data (level, code, sentence, labelled spans, notes, helps); one file
 * renders it. Passes report and go on; the driver stops after the pass when diag_errors() > 0. */
#ifndef PDC_SUPPORT_DIAG_H
#define PDC_SUPPORT_DIAG_H

#include <stdbool.h>
#include <stdio.h>

#include "support/arena.h"

/* A run of bytes of one source file. file is an index into the source table; NO_SPAN has file UINT32_MAX. */
typedef struct Span {
  uint32_t file, begin, end;
} Span;
#define NO_SPAN ((Span){UINT32_MAX, 0, 0})
static inline Span span_join(Span a, Span b) {
  return (Span){a.file, a.begin, b.end};
}

typedef struct Source {
  const char *path; /* as shown to the user */
  const char *text; /* NUL-terminated; may contain NULs before `length` */
  size_t length;
} Source;

typedef enum DiagLevel { DIAG_ERROR, DIAG_WARNING } DiagLevel;
typedef enum DiagFormat { DIAG_TEXT, DIAG_SHORT, DIAG_JSON } DiagFormat;

typedef struct Diagnostics Diagnostics; /* the sources and all that was reported about them */
typedef struct Diag Diag;               /* one report being built */

Diagnostics *diagnostics_new(Arena *arena);
uint32_t diag_add_source(Diagnostics *all, const char *path, const char *text, size_t length);
/* From now on another text is shown for a source: nothing but what precedes a place in its line may differ. */
void diag_show_source(Diagnostics *all, uint32_t file, const char *text, size_t length);
const Source *diag_source(const Diagnostics *all, uint32_t file);
/* 1-based line and column (columns count Unicode code points) of a byte offset. */
void diag_line_column(const Diagnostics *all, Span span, uint32_t *line, uint32_t *column);

/* Begin a report: `code` like "E0301"; the sentence is lower case and stands alone, no full stop. */
Diag *diag_error(Diagnostics *all, const char *code, Span span, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
Diag *diag_warning(Diagnostics *all, const char *code, Span span, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Text at the primary span; further labelled spans; facts; the fix. */
void diag_primary(Diag *diag, const char *format, ...) __attribute__((format(printf, 2, 3)));
void diag_label(Diag *diag, Span span, const char *format, ...) __attribute__((format(printf, 3, 4)));
void diag_note(Diag *diag, const char *format, ...) __attribute__((format(printf, 2, 3)));
void diag_help(Diag *diag, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Warnings of this code (NULL: of all) are dropped, or kept again, from now on. */
void diag_enable_warning(Diagnostics *all, const char *code, bool on);

/* For passes that try something: how many reports there are, and what was reported since is taken back, in order, to be
 * put back perhaps. */
typedef VEC(Diag *) DiagList;
uint32_t diag_mark(const Diagnostics *all);
void diag_take_back(Diagnostics *all, uint32_t mark, DiagList *taken);
void diag_put_back(Diagnostics *all, Diag *diag);
const char *diag_code(const Diag *diag); /* "E0301" */
Span diag_span(const Diag *diag);
const char *diag_sentence(const Diag *diag);
/* True when a report with this sentence is kept. */
bool diag_said(const Diagnostics *all, const char *sentence);

unsigned diag_errors(const Diagnostics *all);
/* The sentence of the first error that was reported, NULL if there is none: for who tries something and goes on without. */
const char *diag_first_error(const Diagnostics *all);
unsigned diag_warnings(const Diagnostics *all);
/* True once 20 errors were reported: passes should stop. */
bool diag_full(const Diagnostics *all);
/* Renders everything in source order (a second report of the same code at the same span is dropped). */
void diag_render(const Diagnostics *all, FILE *out, DiagFormat format, bool color);

#endif
