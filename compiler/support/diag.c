/* The collection of sources and diagnostics. Owns the rule of what is kept: one report per code and place, and no
 * error after the twentieth and no warning after the hundredth. What is not kept is still a valid Diag, so that no pass
 * has to ask. Everything given as text is formatted at once into the arena; rendering is in diag_render.c. */
#include <string.h>

#include "support/diag_data.h"
#include "support/utf8.h"

enum { MOST_ERRORS = 20, MOST_WARNINGS = 100 };

Diagnostics *diagnostics_new(Arena *arena) {
  Diagnostics *all = ARENA_NEW(arena, Diagnostics);
  all->arena = arena;
  return all;
}

/* Bytes of the character at `at`; one that is not UTF-8 stands alone. */
static uint32_t character_length(const Source *source, uint32_t at) {
  uint32_t code;
  unsigned length = utf8_decode(source->text + at, source->length - at, &code);
  return length == 0 ? 1 : length;
}

static void set_milestones(Arena *arena, SourceFile *file) {
  uint32_t characters = 0;
  for (uint32_t at = 0; at < file->source.length && at < UINT32_MAX - 4; characters++) {
    if (at / MILESTONE >= file->milestones.count) vec_push(arena, &file->milestones, ((Milestone){at, characters}));
    at += character_length(&file->source, at);
  }
}

/* Characters of the source before `offset`. */
static uint32_t characters_before(const SourceFile *file, uint32_t offset) {
  uint32_t which = offset / MILESTONE;
  if (which >= file->milestones.count) which = file->milestones.count - 1;
  Milestone from = file->milestones.count ? file->milestones.at[which] : (Milestone){0, 0};
  if (from.at > offset) from = which ? file->milestones.at[which - 1] : (Milestone){0, 0};
  for (; from.at < offset; from.characters++) from.at += character_length(&file->source, from.at);
  return from.characters;
}

uint32_t diag_add_source(Diagnostics *all, const char *path, const char *text, size_t length) {
  SourceFile file = {.source = {arena_strdup(all->arena, path), text, length}};
  vec_push(all->arena, &file.lines, 0);
  for (size_t i = 0; i < length && i < UINT32_MAX; i++)
    if (text[i] == '\n') vec_push(all->arena, &file.lines, (uint32_t)i + 1);
  set_milestones(all->arena, &file);
  vec_push(all->arena, &all->sources, file);
  return all->sources.count - 1;
}

void diag_show_source(Diagnostics *all, uint32_t file, const char *text, size_t length) {
  SourceFile *shown = &all->sources.at[file];
  shown->source.text = text;
  shown->source.length = length;
  shown->lines.count = 1;
  shown->milestones.count = 0;
  set_milestones(all->arena, shown);
}

const Source *diag_source(const Diagnostics *all, uint32_t file) {
  return file < all->sources.count ? &all->sources.at[file].source : NULL;
}

uint32_t source_line_of(const SourceFile *file, uint32_t offset) {
  uint32_t low = 0, high = file->lines.count; /* the line is in [low, high) */
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    if (file->lines.at[middle] <= offset)
      low = middle;
    else
      high = middle;
  }
  return low;
}

Span source_line_span(const SourceFile *file, uint32_t line) {
  uint32_t begin = file->lines.at[line];
  bool last = line + 1 == file->lines.count;
  uint32_t end = last ? (uint32_t)file->source.length : file->lines.at[line + 1] - 1;
  if (end > begin && file->source.text[end - 1] == '\r') end--;
  return (Span){0, begin, end};
}

void diag_line_column(const Diagnostics *all, Span span, uint32_t *line, uint32_t *column) {
  *line = *column = 0;
  if (span.file >= all->sources.count) return;
  const SourceFile *file = &all->sources.at[span.file];
  uint32_t offset = span.begin > file->source.length ? (uint32_t)file->source.length : span.begin;
  uint32_t at_line = source_line_of(file, offset);
  *line = at_line + 1;
  *column = characters_before(file, offset) - characters_before(file, file->lines.at[at_line]) + 1;
}

static bool reported_before(const Diagnostics *all, const Diag *diag) {
  for (uint32_t i = 0; i < all->reports.count; i++) {
    const Diag *other = all->reports.at[i];
    if (strcmp(other->code, diag->code) != 0 || memcmp(&other->span, &diag->span, sizeof diag->span) != 0) continue;
    if (diag->span.file != UINT32_MAX || strcmp(other->message, diag->message) == 0) return true;
  }
  return false;
}

void diag_enable_warning(Diagnostics *all, const char *code, bool on) {
  vec_push(all->arena, &all->rules, (WarningRule){code ? arena_strdup(all->arena, code) : NULL, on});
}

static bool is_wanted(const Diagnostics *all, const Diag *diag) {
  if (diag->level == DIAG_ERROR) return true;
  for (uint32_t i = all->rules.count; i-- > 0;)
    if (!all->rules.at[i].code || strcmp(all->rules.at[i].code, diag->code) == 0) return all->rules.at[i].on;
  return true;
}

static Diag *report(Diagnostics *all, DiagLevel level, const char *code, Span span, const char *format,
                    va_list arguments) {
  Diag *diag = ARENA_NEW(all->arena, Diag);
  diag->arena = all->arena;
  diag->level = level;
  diag->code = arena_strdup(all->arena, code);
  diag->span = span;
  diag->message = arena_vprintf(all->arena, format, arguments);
  bool full = level == DIAG_ERROR ? diag_full(all) : diag_warnings(all) >= MOST_WARNINGS;
  if (full || !is_wanted(all, diag) || reported_before(all, diag)) return diag;
  if (level == DIAG_ERROR) all->errors++;
  vec_push(all->arena, &all->reports, diag);
  return diag;
}

Diag *diag_error(Diagnostics *all, const char *code, Span span, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  Diag *diag = report(all, DIAG_ERROR, code, span, format, arguments);
  va_end(arguments);
  return diag;
}

Diag *diag_warning(Diagnostics *all, const char *code, Span span, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  Diag *diag = report(all, DIAG_WARNING, code, span, format, arguments);
  va_end(arguments);
  return diag;
}

void diag_primary(Diag *diag, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  diag->primary = arena_vprintf(diag->arena, format, arguments);
  va_end(arguments);
}

void diag_label(Diag *diag, Span span, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vec_push(diag->arena, &diag->labels, (Label){span, arena_vprintf(diag->arena, format, arguments)});
  va_end(arguments);
}

void diag_note(Diag *diag, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vec_push(diag->arena, &diag->notes, arena_vprintf(diag->arena, format, arguments));
  va_end(arguments);
}

void diag_help(Diag *diag, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vec_push(diag->arena, &diag->helps, arena_vprintf(diag->arena, format, arguments));
  va_end(arguments);
}

uint32_t diag_mark(const Diagnostics *all) {
  return all->reports.count;
}

void diag_take_back(Diagnostics *all, uint32_t mark, DiagList *taken) {
  for (uint32_t i = mark; i < all->reports.count; i++) {
    vec_push(all->arena, taken, all->reports.at[i]);
    if (all->reports.at[i]->level == DIAG_ERROR) all->errors--;
  }
  all->reports.count = mark;
}

void diag_put_back(Diagnostics *all, Diag *diag) {
  bool full = diag->level == DIAG_ERROR ? diag_full(all) : diag_warnings(all) >= MOST_WARNINGS;
  if (full || reported_before(all, diag)) return;
  if (diag->level == DIAG_ERROR) all->errors++;
  vec_push(all->arena, &all->reports, diag);
}

const char *diag_code(const Diag *diag) {
  return diag->code;
}

Span diag_span(const Diag *diag) {
  return diag->span;
}

const char *diag_sentence(const Diag *diag) {
  return diag->message;
}

bool diag_said(const Diagnostics *all, const char *sentence) {
  for (uint32_t i = 0; i < all->reports.count; i++)
    if (!strcmp(all->reports.at[i]->message, sentence)) return true;
  return false;
}

unsigned diag_errors(const Diagnostics *all) {
  return all->errors;
}

const char *diag_first_error(const Diagnostics *all) {
  for (uint32_t i = 0; i < all->reports.count; i++)
    if (all->reports.at[i]->level == DIAG_ERROR) return all->reports.at[i]->message;
  return NULL;
}

unsigned diag_warnings(const Diagnostics *all) {
  return all->reports.count - all->errors;
}

bool diag_full(const Diagnostics *all) {
  return all->errors >= MOST_ERRORS;
}
