/* The rendering of diagnostics: rustc-like text, one line each (`short`), or one JSON object each. Owns everything a
 * user sees of a report: order, line excerpts, stacking of labels, colour, and that no control byte of a source
 * reaches the terminal. Assumes reports are complete; changes nothing. A line of an excerpt is drawn on rows of
 * cells (one code point and a style each), row 0 the source, row 1 the underlines, labels below, and printed then. */
#include <stdlib.h>
#include <string.h>

#include "support/diag_data.h"
#include "support/utf8.h"

enum { TAB_WIDTH = 4, WIDEST_LINE = 200, WINDOW = 160, WINDOW_LEAD = 40, LONGEST_DRAWN = 4096 };
#define WIDE_TAIL UINT32_MAX /* the second column of a wide character */

typedef enum Style { PLAIN, BOLD, GUTTER, ERROR, WARNING, SECONDARY, ESCAPED, HELP } Style;

typedef struct Cell {
  uint32_t code; /* 0: empty, printed as a space */
  Style style;
} Cell;
typedef VEC(Cell) Row;

typedef struct Mark { /* one labelled span */
  Span span;
  const char *text;
  Style style;
  char line_mark;                 /* '^' or '-' */
  uint32_t first_line, last_line; /* 0-based */
  uint32_t depth;                 /* spans of several lines: 1-based column of its bar in the margin, else 0 */
  uint32_t begin, end;            /* on the line being drawn: display columns */
} Mark;
typedef VEC(Mark) Marks;

typedef struct Renderer {
  const Diagnostics *all;
  Arena *arena; /* of this rendering alone */
  Text out;
  bool color;
  uint32_t gutter; /* width of the widest line number shown */
  uint32_t margin; /* columns between the gutter and the source for spans of several lines */
} Renderer;

/* --- styled text --- */

static void put(Renderer *to, const char *text) {
  text_put(&to->out, text, strlen(text));
}

static void set_style(Renderer *to, Style style) {
  static const char *const codes[] = {"\x1b[0m",    "\x1b[1m",    "\x1b[1;34m", "\x1b[1;31m",
                                      "\x1b[1;33m", "\x1b[1;34m", "\x1b[7m",    "\x1b[1;36m"};
  if (to->color) put(to, codes[style]);
}

static void put_styled(Renderer *to, Style style, const char *text) {
  set_style(to, style);
  put(to, text);
  set_style(to, PLAIN);
}

/* Calls for each code point of `text`: its bytes as they may be shown. Returns how many source bytes were consumed;
 * `shown` gets at most 10 bytes and a NUL. `escaped` tells whether it is a stand-in. */
static unsigned next_shown(const char *at, size_t left, char shown[12], bool *escaped) {
  uint32_t code = 0;
  unsigned length = utf8_decode(at, left, &code);
  *escaped = length == 0 || unicode_is_hidden(code);
  if (!*escaped) {
    memcpy(shown, at, length);
    shown[length] = '\0';
  } else if (length <= 1) {
    snprintf(shown, 12, "\\x%02x", (unsigned char)*at);
  } else {
    snprintf(shown, 12, "\\u{%x}", code);
  }
  return length == 0 ? 1 : length;
}

/* `text` made safe for a terminal; line breaks are followed by `indent` spaces, or become spaces when it is 0. */
static void put_clean(Text *out, const char *text, unsigned indent) {
  size_t left = strlen(text);
  while (left > 0) {
    char shown[12];
    bool escaped;
    if (*text == '\n') {
      if (indent == 0)
        text_put(out, " ", 1);
      else
        text_printf(out, "\n%*s", (int)indent, "");
      text++, left--;
      continue;
    }
    unsigned used = next_shown(text, left, shown, &escaped);
    text_put(out, shown, strlen(shown));
    text += used, left -= used;
  }
}

static int decimal_width(uint32_t number) {
  int width = 1;
  for (; number >= 10; number /= 10) width++;
  return width;
}

/* --- rows of cells --- */

static void set_cell(Renderer *to, Row *row, uint32_t column, uint32_t code, Style style) {
  while (row->count <= column) vec_push(to->arena, row, (Cell){0, PLAIN});
  row->at[column] = (Cell){code, style};
}

/* Writes `shown` from `column` on; returns the column after it. */
static uint32_t set_text(Renderer *to, Row *row, uint32_t column, const char *shown, Style style) {
  size_t left = strlen(shown);
  while (left > 0) {
    uint32_t code = '?';
    unsigned length = utf8_decode(shown, left, &code);
    if (length == 0) length = 1;
    unsigned width = unicode_width(code);
    if (width > 0) set_cell(to, row, column, code, style);

    if (width == 2) set_cell(to, row, column + 1, WIDE_TAIL, style);
    column += width;
    shown += length, left -= length;
  }
  return column;
}

static void put_row(Renderer *to, const Row *row, uint32_t first, uint32_t last) {
  if (last > row->count) last = row->count;
  while (last > first && (row->at[last - 1].code == 0 || row->at[last - 1].code == ' ')) last--;
  Style style = PLAIN;
  for (uint32_t i = first; i < last; i++) {
    Cell cell = row->at[i];
    if (cell.code == WIDE_TAIL) {
      if (i == first) put(to, " ");
      continue;
    }
    Style wanted = cell.code == 0 ? PLAIN : cell.style;
    if (wanted != style) {
      if (style != PLAIN) set_style(to, PLAIN);
      if (wanted != PLAIN) set_style(to, wanted);
      style = wanted;
    }
    char bytes[4];
    unsigned length = utf8_encode(cell.code == 0 ? ' ' : cell.code, bytes);
    text_put(&to->out, bytes, length);
  }
  if (style != PLAIN) set_style(to, PLAIN);
}

/* `   | ` or `12 | ` before a row. Without trailing space when the row is empty. */
static void put_gutter(Renderer *to, uint32_t number) {
  set_style(to, GUTTER);
  if (number == 0)
    text_printf(&to->out, "%*s |", (int)to->gutter, "");
  else
    text_printf(&to->out, "%*u |", (int)to->gutter, number);
  set_style(to, PLAIN);
}

static void put_gutter_and_row(Renderer *to, uint32_t number, const Row *margin, const Row *row, uint32_t first,
                               uint32_t last) {
  Row both = {0};
  for (uint32_t i = 0; i < margin->count && i < to->margin; i++)
    set_cell(to, &both, i, margin->at[i].code, margin->at[i].style);
  for (uint32_t i = first; i < last && i < row->count; i++)
    set_cell(to, &both, to->margin + i - first, row->at[i].code, row->at[i].style);
  put_gutter(to, number);
  uint32_t count = both.count;
  while (count > 0 && (both.at[count - 1].code == 0 || both.at[count - 1].code == ' ')) count--;
  if (count > 0) {
    put(to, " ");
    put_row(to, &both, 0, count);
  }
  put(to, "\n");
}

/* --- one line of the source --- */

typedef struct Line {
  const SourceFile *file;
  uint32_t number; /* 0-based */
  Span bytes;
  Row cells;
  VEC(uint32_t) columns; /* display column of each byte of the line, and of its end */
  uint32_t first, last;  /* window of display columns shown */
} Line;

/* Of a very long line only what is around `offset` is drawn. */
static Span drawn_bytes(const SourceFile *file, uint32_t number, uint32_t offset) {
  Span bytes = source_line_span(file, number);
  if (bytes.end - bytes.begin <= 2 * LONGEST_DRAWN) return bytes;
  if (offset > bytes.end - LONGEST_DRAWN) offset = bytes.end - LONGEST_DRAWN;
  if (offset < bytes.begin + LONGEST_DRAWN) offset = bytes.begin + LONGEST_DRAWN;
  bytes.begin = offset - LONGEST_DRAWN;
  bytes.end = offset + LONGEST_DRAWN;
  while (bytes.begin < offset && ((unsigned char)file->source.text[bytes.begin] & 0xc0) == 0x80) bytes.begin++;
  return bytes;
}

static Line draw_line(Renderer *to, const SourceFile *file, uint32_t number, uint32_t offset) {
  Line line = {.file = file, .number = number, .bytes = drawn_bytes(file, number, offset)};
  uint32_t column = 0;
  for (uint32_t at = line.bytes.begin; at < line.bytes.end;) {
    char shown[12];
    bool escaped = false;
    unsigned used = 1;
    if (file->source.text[at] == '\t')
      memcpy(shown, "    ", TAB_WIDTH + 1);
    else
      used = next_shown(file->source.text + at, line.bytes.end - at, shown, &escaped);
    for (unsigned i = 0; i < used; i++) vec_push(to->arena, &line.columns, column);
    column = set_text(to, &line.cells, column, shown, escaped ? ESCAPED : PLAIN);
    at += used;
  }
  vec_push(to->arena, &line.columns, column);
  line.last = column;
  return line;
}

static uint32_t column_of(const Line *line, uint32_t offset) {
  if (offset <= line->bytes.begin) return 0;
  if (offset >= line->bytes.end) return line->columns.at[line->columns.count - 1];
  return line->columns.at[offset - line->bytes.begin];
}

/* A line too wide for a terminal is cut to a window around its first mark. */
static void choose_window(Renderer *to, Line *line, const Marks *marks) {
  uint32_t width = line->last, leftmost = UINT32_MAX;
  for (uint32_t i = 0; i < marks->count; i++)
    if (marks->at[i].begin < leftmost) leftmost = marks->at[i].begin;
  if (width <= WIDEST_LINE) {
    line->last = UINT32_MAX; /* labels may reach beyond the source */
    return;
  }
  if (leftmost == UINT32_MAX) leftmost = 0;
  line->first = leftmost > WINDOW_LEAD + 10 ? leftmost - WINDOW_LEAD : 0;
  line->last = line->first + WINDOW;
  if (line->first > 0) set_text(to, &line->cells, line->first, "...", GUTTER);
  if (line->last < width) set_text(to, &line->cells, line->last - 3, "...", GUTTER);
  for (uint32_t i = 0; i < marks->count; i++) {
    Mark *mark = &marks->at[i];
    if (mark->begin >= line->last) mark->begin = line->last - 1;
    if (mark->end > line->last) mark->end = line->last;
    if (mark->end <= mark->begin) mark->end = mark->begin + 1;
  }
  line->last = UINT32_MAX;
  line->cells.count = line->cells.count < line->first + WINDOW ? line->cells.count : line->first + WINDOW;
}

/* --- labels under a line --- */

static int right_to_left(const void *a, const void *b) {
  const Mark *left = a, *right = b;
  if (left->begin != right->begin) return left->begin > right->begin ? -1 : 1;
  if (left->end != right->end) return left->end > right->end ? -1 : 1;
  return (left->line_mark == '^') - (right->line_mark == '^');
}

static bool has_text(const Mark *mark) {
  return mark->text != NULL && mark->text[0] != '\0';
}

static const char *clean(Renderer *to, const char *text) {
  Text safe = {.arena = to->arena};
  put_clean(&safe, text, 0);
  return safe.at;
}

/* A label may follow its underline when nothing else is marked at or after its begin. */
static bool fits_beside(const Marks *marks, uint32_t which) {
  const Mark *mark = &marks->at[which];
  for (uint32_t i = 0; i < marks->count; i++) {
    const Mark *other = &marks->at[i];
    bool same = other->begin == mark->begin && other->end == mark->end && !has_text(other);
    if (i != which && !same && other->end > mark->begin) return false;
  }
  return true;
}

static bool is_free(const Row *row, uint32_t begin, uint32_t end) {
  for (uint32_t i = begin; i < end && i < row->count; i++)
    if (row->at[i].code != 0) return false;
  return true;
}

/* Draws all marks that lie on one line: underlines on rows[0], hanging labels below, right ones first. Returns the
 * number of rows used; `rows` has room for 2 + marks. */
static uint32_t draw_marks(Renderer *to, Marks *marks, Row *rows) {
  if (marks->count == 0) return 0;
  qsort(marks->at, marks->count, sizeof *marks->at, right_to_left);
  /* longer spans first, the primary one last: what is drawn later stays visible */
  for (int primary = 0; primary < 2; primary++)
    for (uint32_t i = marks->count; i-- > 0;) {
      const Mark *mark = &marks->at[i];
      if ((mark->line_mark == '^') != primary) continue;
      for (uint32_t column = mark->begin; column < mark->end; column++)
        set_cell(to, &rows[0], column, (uint32_t)mark->line_mark, mark->style);
    }
  uint32_t used = 1;
  for (uint32_t i = 0; i < marks->count; i++) {
    const Mark *mark = &marks->at[i];
    if (!has_text(mark)) continue;
    const char *text = clean(to, mark->text);
    if (fits_beside(marks, i)) {
      set_text(to, &rows[0], mark->end + 1, text, mark->style);
      continue;
    }
    Row measure = {0};
    uint32_t end = set_text(to, &measure, mark->begin, text, mark->style);
    uint32_t level = 2; /* rows[1] has only bars */
    while (level < used && !is_free(&rows[level], mark->begin, end + 2)) level++;
    for (uint32_t bar = 1; bar < level; bar++)
      if (rows[bar].count <= mark->begin || rows[bar].at[mark->begin].code == 0)
        set_cell(to, &rows[bar], mark->begin, '|', mark->style);
    set_text(to, &rows[level], mark->begin, text, mark->style);
    if (level + 1 > used) used = level + 1;
  }
  return used;
}

/* --- an excerpt of one file --- */

static int by_begin(const void *a, const void *b) {
  const Mark *left = a, *right = b;
  if (left->span.begin != right->span.begin) return left->span.begin < right->span.begin ? -1 : 1;
  return left->span.end > right->span.end ? -1 : left->span.end < right->span.end;
}

static int by_number(const void *a, const void *b) {
  uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
  return left < right ? -1 : left > right;
}

/* Spans of several lines get a bar each in the margin; bars that overlap get different columns. */
static void place_in_margin(Renderer *to, Marks *marks) {
  to->margin = 0;
  qsort(marks->at, marks->count, sizeof *marks->at, by_begin);
  for (uint32_t i = 0; i < marks->count; i++) {
    Mark *mark = &marks->at[i];
    if (mark->first_line == mark->last_line) continue;
    uint32_t depth = 1;
    for (uint32_t j = 0; j < i; j++) {
      const Mark *other = &marks->at[j];
      if (other->depth == depth && other->last_line >= mark->first_line) depth++, j = UINT32_MAX;
    }
    mark->depth = depth;
    if (depth + 1 > to->margin) to->margin = depth + 1;
  }
}

/* The bars of spans that began above `line` and have not ended there; `below` also counts those that begin on it. */
static Row draw_margin(Renderer *to, const Marks *marks, uint32_t line, bool below) {
  Row row = {0};
  for (uint32_t i = 0; i < marks->count; i++) {
    const Mark *mark = &marks->at[i];
    bool begun = mark->first_line < line || (below && mark->first_line == line);
    if (mark->depth > 0 && begun && line <= mark->last_line) set_cell(to, &row, mark->depth - 1, '|', mark->style);
  }
  return row;
}

static bool only_blanks_before(const Line *line, uint32_t offset) {
  for (uint32_t at = line->bytes.begin; at < offset; at++)
    if (line->file->source.text[at] != ' ' && line->file->source.text[at] != '\t') return false;
  return true;
}

/* True when the bar of a span was already begun by something printed above; marks begin in order and end in reverse. */
static bool bar_runs(const Marks *marks, uint32_t other, uint32_t mark, const Line *line, bool begins) {
  const Mark *bar = &marks->at[other];
  if (bar->depth == 0 || line->number < bar->first_line || line->number > bar->last_line) return false;
  if (!begins) return bar->last_line > line->number || other <= mark;
  if (bar->first_line < line->number) return true;
  return other != mark && (other < mark || only_blanks_before(line, bar->span.begin));
}

/* A row `  ____^` for a span of several lines that begins or ends on `line`. */
static void put_corner(Renderer *to, const Marks *marks, uint32_t which, const Line *line, bool begins) {
  const Mark *mark = &marks->at[which];
  Row margin = {0}, row = {0};
  for (uint32_t i = 0; i < marks->count; i++)
    if (bar_runs(marks, i, which, line, begins)) set_cell(to, &margin, marks->at[i].depth - 1, '|', marks->at[i].style);
  uint32_t column = begins ? column_of(line, mark->span.begin) : column_of(line, mark->span.end);
  if (!begins && column > 0) column--;
  if (column < line->first) column = line->first;
  column -= line->first;
  for (uint32_t i = mark->depth; i < to->margin; i++)
    if (is_free(&margin, i, i + 1)) set_cell(to, &margin, i, '_', mark->style);
  for (uint32_t i = 0; i < column; i++) set_cell(to, &row, i, '_', mark->style);
  set_cell(to, &row, column, (uint32_t)mark->line_mark, mark->style);
  if (!begins && has_text(mark)) set_text(to, &row, column + 2, clean(to, mark->text), mark->style);
  put_gutter_and_row(to, 0, &margin, &row, 0, UINT32_MAX);
}

static void put_line(Renderer *to, const SourceFile *file, const Marks *marks, uint32_t number) {
  uint32_t leftmost = UINT32_MAX;
  for (uint32_t i = 0; i < marks->count; i++) {
    const Mark *mark = &marks->at[i];
    if (mark->depth == 0 && mark->first_line == number && mark->span.begin < leftmost) leftmost = mark->span.begin;
  }
  Line line = draw_line(to, file, number, leftmost == UINT32_MAX ? 0 : leftmost);
  Marks single = {0};
  for (uint32_t i = 0; i < marks->count; i++) {
    Mark mark = marks->at[i];
    if (mark.depth > 0 || mark.first_line != number) continue;
    mark.begin = column_of(&line, mark.span.begin);
    mark.end = column_of(&line, mark.span.end);
    if (mark.end <= mark.begin) mark.end = mark.begin + 1;
    vec_push(to->arena, &single, mark);
  }
  choose_window(to, &line, &single);
  Row margin = draw_margin(to, marks, number, false);
  for (uint32_t i = 0; i < marks->count; i++) {
    const Mark *mark = &marks->at[i];
    if (mark->depth > 0 && mark->first_line == number && only_blanks_before(&line, mark->span.begin))
      set_cell(to, &margin, mark->depth - 1, '/', mark->style);
  }
  put_gutter_and_row(to, number + 1, &margin, &line.cells, line.first, line.last);

  Row *rows = ARENA_ARRAY(to->arena, Row, single.count + 3);
  uint32_t used = draw_marks(to, &single, rows);
  Row below = draw_margin(to, marks, number, false);
  for (uint32_t i = 0; i < marks->count; i++) { /* those drawn with '/' already run */
    const Mark *mark = &marks->at[i];
    if (mark->depth > 0 && mark->first_line == number && only_blanks_before(&line, mark->span.begin))
      set_cell(to, &below, mark->depth - 1, '|', mark->style);
  }
  for (uint32_t i = 0; i < used; i++) put_gutter_and_row(to, 0, &below, &rows[i], line.first, line.last);

  for (uint32_t i = 0; i < marks->count; i++) {
    const Mark *mark = &marks->at[i];
    if (mark->depth > 0 && mark->first_line == number && !only_blanks_before(&line, mark->span.begin))
      put_corner(to, marks, i, &line, true);
  }
  for (uint32_t i = marks->count; i-- > 0;) {
    const Mark *mark = &marks->at[i];
    if (mark->depth > 0 && mark->last_line == number) put_corner(to, marks, i, &line, false);
  }
}

static void put_excerpt(Renderer *to, uint32_t file_index, Marks *marks) {
  const SourceFile *file = &to->all->sources.at[file_index];
  VEC(uint32_t) lines = {0};
  place_in_margin(to, marks);
  for (uint32_t i = 0; i < marks->count; i++) {
    vec_push(to->arena, &lines, marks->at[i].first_line);
    vec_push(to->arena, &lines, marks->at[i].last_line);
  }
  qsort(lines.at, lines.count, sizeof *lines.at, by_number);
  put_gutter(to, 0);
  put(to, "\n");
  for (uint32_t i = 0; i < lines.count; i++) {
    uint32_t line = lines.at[i];
    if (i > 0 && line == lines.at[i - 1]) continue;
    if (i > 0 && line == lines.at[i - 1] + 2) {
      put_line(to, file, marks, line - 1);
    } else if (i > 0 && line > lines.at[i - 1] + 1) {
      Row bars = draw_margin(to, marks, line, false);
      set_style(to, GUTTER);
      put(to, "...");
      set_style(to, PLAIN);
      if (bars.count > 0) {
        text_printf(&to->out, "%*s", (int)to->gutter, "");
        put_row(to, &bars, 0, bars.count);
      }
      put(to, "\n");
    }
    put_line(to, file, marks, line);
  }
}

/* --- one report --- */

static bool has_place(const Renderer *to, Span span) {
  return span.file < to->all->sources.count;
}

static Mark make_mark(const Renderer *to, Span span, const char *text, bool primary, Style style) {
  const SourceFile *file = &to->all->sources.at[span.file];
  uint32_t length = (uint32_t)file->source.length;
  if (span.begin > length) span.begin = length;
  if (span.end > length) span.end = length;
  if (span.end < span.begin) span.end = span.begin;
  /* a span that ends with line ends is shown to end before them */
  while (span.end > span.begin + 1 &&
         (file->source.text[span.end - 1] == '\n' || file->source.text[span.end - 1] == '\r'))
    span.end--;
  Mark mark = {.span = span, .text = text, .style = style, .line_mark = primary ? '^' : '-'};
  mark.first_line = source_line_of(file, span.begin);
  mark.last_line = span.end > span.begin ? source_line_of(file, span.end - 1) : mark.first_line;
  return mark;
}

static void put_place(Renderer *to, const char *arrow, Span span) {
  uint32_t line, column;
  diag_line_column(to->all, span, &line, &column);
  set_style(to, GUTTER);
  text_printf(&to->out, "%*s%s ", (int)to->gutter, "", arrow);
  set_style(to, PLAIN);
  put_clean(&to->out, diag_source(to->all, span.file)->path, 0);
  text_printf(&to->out, ":%u:%u\n", line, column);
}

static void put_attached(Renderer *to, const char *kind, Style style, const char *text) {
  set_style(to, GUTTER);
  text_printf(&to->out, "%*s = ", (int)to->gutter, "");
  set_style(to, PLAIN);
  put_styled(to, style, kind);
  put(to, ": ");
  put_clean(&to->out, text, to->gutter + 5 + (unsigned)strlen(kind));
  put(to, "\n");
}

static void render_text(Renderer *to, const Diag *diag) {
  Style style = diag->level == DIAG_ERROR ? ERROR : WARNING;
  set_style(to, style);
  text_printf(&to->out, "%s[%s]", diag->level == DIAG_ERROR ? "error" : "warning", diag->code);
  set_style(to, PLAIN);
  set_style(to, BOLD);
  put(to, ": ");
  put_clean(&to->out, diag->message, 0);
  set_style(to, PLAIN);
  put(to, "\n");

  VEC(uint32_t) files = {0}; /* the primary one first */
  Marks marks = {0};
  if (has_place(to, diag->span)) vec_push(to->arena, &marks, make_mark(to, diag->span, diag->primary, true, style));
  for (uint32_t i = 0; i < diag->labels.count; i++) {
    const Label *label = &diag->labels.at[i];
    if (has_place(to, label->span))
      vec_push(to->arena, &marks, make_mark(to, label->span, label->text, false, SECONDARY));
  }
  uint32_t last_line = 0;
  for (uint32_t i = 0; i < marks.count; i++) {
    bool known = false;
    for (uint32_t j = 0; j < files.count; j++) known = known || files.at[j] == marks.at[i].span.file;
    if (!known) vec_push(to->arena, &files, marks.at[i].span.file);
    if (marks.at[i].last_line > last_line) last_line = marks.at[i].last_line;
  }
  to->gutter = (uint32_t)decimal_width(last_line + 1);
  for (uint32_t j = 0; j < files.count; j++) {
    Marks here = {0};
    for (uint32_t i = 0; i < marks.count; i++)
      if (marks.at[i].span.file == files.at[j]) vec_push(to->arena, &here, marks.at[i]);
    put_place(to, j == 0 ? "-->" : ":::", here.at[0].span);
    put_excerpt(to, files.at[j], &here);
  }
  for (uint32_t i = 0; i < diag->notes.count; i++) put_attached(to, "note", BOLD, diag->notes.at[i]);
  for (uint32_t i = 0; i < diag->helps.count; i++) put_attached(to, "help", HELP, diag->helps.at[i]);
  put(to, "\n");
}

static void render_short(Renderer *to, const Diag *diag) {
  if (has_place(to, diag->span)) {
    uint32_t line, column;
    diag_line_column(to->all, diag->span, &line, &column);
    put_clean(&to->out, diag_source(to->all, diag->span.file)->path, 0);
    text_printf(&to->out, ":%u:%u: ", line, column);
  }
  set_style(to, diag->level == DIAG_ERROR ? ERROR : WARNING);
  text_printf(&to->out, "%s[%s]", diag->level == DIAG_ERROR ? "error" : "warning", diag->code);
  set_style(to, PLAIN);
  put(to, ": ");
  put_clean(&to->out, diag->message, 0);
  put(to, "\n");
}

/* --- JSON --- */

static void put_json(Renderer *to, const char *text) {
  size_t left = strlen(text);
  put(to, "\"");
  while (left > 0) {
    uint32_t code = 0;
    unsigned length = utf8_decode(text, left, &code);
    if (length == 0)
      put(to, "\\ufffd"), length = 1;
    else if (code == '"' || code == '\\')
      text_printf(&to->out, "\\%c", (int)code);
    else if (code == '\n')
      put(to, "\\n");
    else if (code < 0x10000 && unicode_is_hidden(code))
      text_printf(&to->out, "\\u%04x", code);
    else
      text_put(&to->out, text, length);
    text += length, left -= length;
  }
  put(to, "\"");
}

static void put_json_place(Renderer *to, Span span) {
  uint32_t line = 0, column = 0, end_line = 0, end_column = 0;
  diag_line_column(to->all, span, &line, &column);
  diag_line_column(to->all, (Span){span.file, span.end, span.end}, &end_line, &end_column);
  put(to, "\"file\":");
  put_json(to, diag_source(to->all, span.file)->path);
  text_printf(&to->out, ",\"line\":%u,\"column\":%u,\"end_line\":%u,\"end_column\":%u,\"begin\":%u,\"end\":%u", line,
              column, end_line, end_column, span.begin, span.end);
}

static void put_json_list(Renderer *to, const char *key, const char *const *texts, uint32_t count) {
  text_printf(&to->out, ",\"%s\":[", key);
  for (uint32_t i = 0; i < count; i++) {
    if (i > 0) put(to, ",");
    put_json(to, texts[i]);
  }
  put(to, "]");
}

static void render_json(Renderer *to, const Diag *diag) {
  text_printf(&to->out, "{\"level\":\"%s\",\"code\":", diag->level == DIAG_ERROR ? "error" : "warning");
  put_json(to, diag->code);
  put(to, ",\"message\":");
  put_json(to, diag->message);
  if (has_place(to, diag->span)) {
    put(to, ",");
    put_json_place(to, diag->span);
  }
  if (diag->primary != NULL) {
    put(to, ",\"label\":");
    put_json(to, diag->primary);
  }
  put(to, ",\"labels\":[");
  bool first = true;
  for (uint32_t i = 0; i < diag->labels.count; i++) {
    if (!has_place(to, diag->labels.at[i].span)) continue;
    put(to, first ? "{" : ",{");
    first = false;
    put_json_place(to, diag->labels.at[i].span);
    put(to, ",\"message\":");
    put_json(to, diag->labels.at[i].text);
    put(to, "}");
  }
  put(to, "]");
  put_json_list(to, "notes", diag->notes.at, diag->notes.count);
  put_json_list(to, "helps", diag->helps.at, diag->helps.count);
  put(to, "}\n");
}

/* --- all reports --- */

typedef struct Ordered {
  const Diag *diag;
  uint32_t index;
} Ordered;

static int in_source_order(const void *a, const void *b) {
  const Ordered *left = a, *right = b;
  Span first = left->diag->span, second = right->diag->span;
  if (first.file != second.file) return first.file < second.file ? -1 : 1;
  if (first.begin != second.begin) return first.begin < second.begin ? -1 : 1;
  return left->index < right->index ? -1 : 1;
}

void diag_render(const Diagnostics *all, FILE *out, DiagFormat format, bool color) {
  if (all->reports.count == 0) return;
  Arena *arena = arena_new();
  Renderer to = {.all = all, .arena = arena, .out = {.arena = arena}, .color = color && format != DIAG_JSON};
  Ordered *reports = ARENA_ARRAY(arena, Ordered, all->reports.count);
  for (uint32_t i = 0; i < all->reports.count; i++) reports[i] = (Ordered){all->reports.at[i], i};
  qsort(reports, all->reports.count, sizeof *reports, in_source_order);
  for (uint32_t i = 0; i < all->reports.count; i++) {
    if (format == DIAG_TEXT)
      render_text(&to, reports[i].diag);
    else if (format == DIAG_SHORT)
      render_short(&to, reports[i].diag);
    else
      render_json(&to, reports[i].diag);
  }
  if (diag_full(all) && format != DIAG_JSON) put(&to, "too many errors: stopped after 20\n");
  fwrite(to.out.at, 1, to.out.length, out);
  arena_free(arena);
}
