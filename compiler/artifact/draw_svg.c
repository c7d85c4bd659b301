/* A schedule as SVG: a row per rank, time to the right, a box per computation with its micro-batch in it, thin lines
 * for messages, hatching where a rank rests, the certificate below.
 *
 * Colours differ in hue and in lightness (forward lightest, weight gradient darkest), so that they stay apart in grey
 * print and for people who see few hues; later chunks of a rank are darker and have a bar at their foot. The width
 * follows from the boxes: numbers must be readable, up to a width that no screen shows at once.
 *
 * Beyond MOST_BOXES computations a drawing of all would be hundreds of megabytes that no program shows. Then every row
 * is cut into columns of equal time, and a column shows how much of it is spent in which kind; equal neighbours are
 * one. */
#include <math.h>
#include <string.h>

#include "artifact/draw.h"
#include "artifact/words.h"

enum { MOST_BOXES = 20000, OVERVIEW_COLUMNS = 600, OVERVIEW_WIDTH = 1200, REDUCTION = 5 /* height of its bar */ };
enum { SHADES = 4, LEFT = 58, RIGHT = 104, HEAD = 62, LEAST_WIDTH = 1190, MOST_WIDTH = 30000 };

typedef struct Svg {
  const Picture *picture;
  Text *out;
  bool for_page;
  bool overview; /* too many boxes to draw each */
  double scale;  /* units of x per time */
  double width;  /* of the plot */
  double row, gap, curve;
  double foot;  /* y below the last row */
  double font;  /* size of the numbers in most boxes */
  bool used[4]; /* kinds: F, B, I, W */
} Svg;

/* A coordinate: at most two decimals, no zeros behind. */
static const char *xy(char buffer[32], double value) {
  snprintf(buffer, 32, "%.2f", value);
  char *end = buffer + strlen(buffer) - 1;
  while (*end == '0') *end-- = 0;
  if (*end == '.') *end = 0;
  return strcmp(buffer, "-0") == 0 ? "0" : buffer;
}

static void put_rect(Svg *svg, const char *class, double x, double y, double w, double h, const char *more) {
  char a[32], b[32], c[32], d[32];
  text_printf(svg->out, "<rect class=\"%s\" x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\"%s", class, xy(a, x), xy(b, y),
              xy(c, w), xy(d, h), more);
}

static void put_line(Svg *svg, const char *class, double x1, double y1, double x2, double y2) {
  char a[32], b[32], c[32], d[32];
  text_printf(svg->out, "<path class=\"%s\" d=\"M%s %sL%s %s\"/>\n", class, xy(a, x1), xy(b, y1), xy(c, x2), xy(d, y2));
}

static void put_label(Svg *svg, const char *class, double x, double y, const char *text) {
  char a[32], b[32];
  text_printf(svg->out, "<text class=\"%s\" x=\"%s\" y=\"%s\">", class, xy(a, x), xy(b, y));
  xml_put(svg->out, text);
  text_printf(svg->out, "</text>\n");
}

static double x_of(const Svg *svg, double time) {
  return LEFT + time * svg->scale;
}

static double y_of(const Svg *svg, int rank) {
  return HEAD + rank * (svg->row + svg->gap);
}

static int shade_of(const Svg *svg, int local) {
  int most = svg->picture->most_local;
  return most > 1 ? local * (SHADES - 1) / (most - 1) : 0;
}

static char letter_of(pd_action_kind kind) {
  return kind == PD_F ? 'F' : kind == PD_B ? 'B' : kind == PD_I ? 'I' : 'W';
}

/* ---- measures ---- */

static int digits_of(int64_t number) {
  int digits = 1;
  while (number >= 10) number /= 10, digits++;
  return digits;
}

static double font_in(double width, int digits) {
  double font = floor((width - 1.2) / (digits * 0.58) * 2) / 2;
  return font > 11 ? 11 : font;
}

static void plan_size(Svg *svg) {
  const Picture *picture = svg->picture;
  const pd_pipeline *pipeline = &picture->document->pipeline;
  int64_t boxes = picture->box_of_rank[pipeline->pp];
  double sum = 0, shortest = INFINITY;
  for (int64_t i = 0; i < boxes; i++) {
    double time = picture->boxes[i].end - picture->boxes[i].start;
    sum += time;
    if (time > 0 && time < shortest) shortest = time;
    svg->used[picture->boxes[i].action.kind] = true;
  }
  double usual = sum / (double)boxes / 2; /* boxes shorter than that may go without a number */
  if (shortest > usual) usual = shortest;
  double slots = picture->end / usual;
  int digits = digits_of(pipeline->microbatches - 1);
  svg->width = slots * (digits * 4.4 + 1.2);
  double most = slots * 46, least = most < LEAST_WIDTH ? most : LEAST_WIDTH;
  if (least < 420) least = 420;
  if (svg->width < least) svg->width = least;
  if (svg->width > MOST_WIDTH) svg->width = MOST_WIDTH;
  svg->overview = boxes > MOST_BOXES;
  if (svg->overview) svg->width = OVERVIEW_WIDTH;
  svg->scale = svg->width / picture->end;
  svg->font = font_in(svg->width / slots, digits);
  svg->row = pipeline->pp <= 16 ? 26 : 18;
  svg->gap = pipeline->pp <= 16 ? 14 : 9;
  svg->curve = pipeline->pp <= 16 ? 26 : 18;
  svg->foot = y_of(svg, pipeline->pp) - svg->gap;
}

/* ---- parts ---- */

static void put_style(Svg *svg) {
  static const char *const fills[4][SHADES] = {{"d9eefe", "c0e4ff", "a8dbfe", "8dd1fd"},
                                               {"209570", "0a8a66", "0a825f", "037757"},
                                               {"eb993f", "de8e35", "d2842a", "c67a1f"},
                                               {"704e9b", "664490", "593983", "4c2d76"}};
  char font[32];
  text_printf(svg->out,
              "<style>\n"
              "svg{background:#fff}\n"
              "text{font-family:\"DejaVu Sans\",Verdana,\"Segoe UI\",Arial,sans-serif;fill:#222}\n"
              ".h{font-size:15px;font-weight:bold}.l{font-size:11.5px}.r{font-size:10px;fill:#555}\n"
              ".a{font-size:10px;fill:#555;text-anchor:middle}.e{font-size:11.5px;text-anchor:end}\n"
              ".n text{font-size:%spx;text-anchor:middle;pointer-events:none}.n .d{fill:#fff}\n"
              ".b{stroke:#fff;stroke-width:.8}.k{fill:#000;fill-opacity:.38;pointer-events:none}\n"
              ".i{fill:url(#rest);stroke:#c8c8c8;stroke-width:.6}.g{stroke:#e4e4e4;stroke-width:.7;fill:none}\n"
              ".p{stroke:#2b6da8;stroke-width:.8;stroke-opacity:.75;fill:none}\n"
              ".q{stroke:#b4561a;stroke-width:.8;stroke-opacity:.75;fill:none;stroke-dasharray:3 1.5}\n"
              ".z{fill:#a3195b;stroke:#fff;stroke-width:.6}.m{fill:#b9c3cc;stroke:#44525e;stroke-width:.8}\n",
              xy(font, svg->font));
  for (int kind = 0; kind < 4; kind++)
    for (int shade = 0; svg->used[kind] && shade < SHADES; shade++)
      text_printf(svg->out, ".%c%d{fill:#%s}", letter_of((pd_action_kind)kind), shade, fills[kind][shade]);
  text_printf(svg->out, "\n</style>\n"
                        "<defs><pattern id=\"rest\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
                        "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#f6f6f6\"/>"
                        "<path d=\"M0 0V6\" stroke=\"#d8d8d8\" stroke-width=\"1.6\"/></pattern></defs>\n");
}

static double put_swatch(Svg *svg, double x, double y, const char *class, const char *words) {
  put_rect(svg, class, x, y - 9.5, 14, 12, "/>\n");
  put_label(svg, "l", x + 18, y, words);
  return x + 18 + 6.6 * (double)strlen(words) + 16;
}

static void put_head(Svg *svg) {
  const Picture *picture = svg->picture;
  put_label(svg, "h", LEFT, 20, picture_title(picture));
  double x = LEFT, y = 43;
  static const pd_action_kind order[] = {PD_F, PD_B, PD_I, PD_W};
  for (int k = 0; k < 4; k++) {
    char class[8];
    if (!svg->used[order[k]]) continue;
    snprintf(class, sizeof class, "b %c0", letter_of(order[k]));
    x = put_swatch(svg, x, y, class,
                   arena_printf(picture->arena, "%c %s", letter_of(order[k]), action_words(order[k])));
  }
  x = put_swatch(svg, x, y, "i", "idle");
  if (!svg->overview) {
    put_line(svg, "p", x, y - 3, x + 20, y - 3);
    put_line(svg, "q", x + 24, y - 3, x + 44, y - 3);
    put_label(svg, "l", x + 49, y, "activations and gradients sent");
    x += 49 + 6.6 * 30 + 16;
  }
  if (picture->reduction_count > 0) {
    put_rect(svg, "z", x, y - 5, 20, REDUCTION, "/>\n");
    put_label(svg, "l", x + 25, y, "gradients reduced over replicas");
    x += 25 + 6.6 * 31 + 16;
  }
  if (svg->overview) {
    put_label(svg, "l", x, y,
              arena_printf(picture->arena, "%lld boxes: share of time per 1/%d of the run",
                           (long long)picture->box_of_rank[picture->document->pipeline.pp], OVERVIEW_COLUMNS));
    return;
  }
  if (picture->most_local == 1) return;
  int shown = picture->most_local < 8 ? picture->most_local : 8;
  for (int local = 0; local < shown; local++) {
    char class[8];
    int shade = shade_of(svg, local);
    snprintf(class, sizeof class, "b F%d", shade);
    put_rect(svg, class, x + 15 * local, y - 9.5, 14, 12, "/>\n");
    if (shade) put_rect(svg, "k", x + 15 * local, y + 2.5 - 1.7 * shade, 14, 1.7 * shade, "/>\n");
  }
  put_label(svg, "l", x + 15 * shown + 5, y,
            picture->most_local == 2 ? "1st, 2nd chunk of a rank" : "1st, 2nd \xe2\x80\xa6 chunk of a rank");
}

/* 1, 2 or 5 times a power of ten, at least 55 units apart. */
static double tick_step(const Svg *svg) {
  double step = pow(10, floor(log10(svg->picture->end)) - 4);
  for (int k = 0; step * svg->scale < 55; k++) step *= k % 3 == 1 ? 2.5 : 2;
  return step;
}

static void put_axis(Svg *svg, double top, double y) {
  const Picture *picture = svg->picture;
  double step = tick_step(svg);
  for (int k = 0; k * step <= picture->end * (1 + 1e-9); k++) {
    double x = x_of(svg, k * step);
    put_line(svg, "g", x, top, x, y + 4);
    put_label(svg, "a", x, y + 15, time_words(picture->arena, k * step, picture->document->unit));
  }
}

static void put_links(Svg *svg) {
  const Picture *picture = svg->picture;
  for (int64_t i = 0; i < picture->link_count; i++) {
    const Link *link = &picture->links[i];
    bool down = link->to > link->from;
    char a[32], b[32], c[32], d[32];
    text_printf(svg->out, "<path class=\"%s\"", link->action.kind == PD_SEND_F ? "p" : "q");
    if (svg->for_page) text_printf(svg->out, " data-i=\"%d\"", (int)link->action.microbatch);
    text_printf(svg->out, " d=\"M%s %sL%s %s\"/>\n", xy(a, x_of(svg, link->start)),
                xy(b, y_of(svg, link->from) + (down ? svg->row : 0)), xy(c, x_of(svg, link->end)),
                xy(d, y_of(svg, link->to) + (down ? 0 : svg->row)));
  }
}

static void put_box(Svg *svg, const Box *box) {
  const Picture *picture = svg->picture;
  double x = x_of(svg, box->start), width = (box->end - box->start) * svg->scale, y = y_of(svg, box->rank);
  char name[48], class[8], letter = letter_of(box->action.kind), size[32];
  int shade = shade_of(svg, box->local);
  pd_action_text(box->action, name);
  snprintf(class, sizeof class, "b %c%d", letter, shade);
  const char *from = time_words(picture->arena, box->start, picture->document->unit);
  const char *until = time_words(picture->arena, box->end, picture->document->unit);
  const char *held = picture_held(picture, box->held);
  if (svg->for_page) {
    put_rect(svg, class, x, y, width, svg->row,
             arena_printf(picture->arena, " data-a=\"%s\" data-t=\"%s to %s\" data-h=\"%s\" data-i=\"%d\"/>", name,
                          from, until, held, box->action.microbatch));
  } else {
    put_rect(svg, class, x, y, width, svg->row, "");
    text_printf(svg->out, "><title>%s on rank %d, %s to %s, holding %s</title></rect>", name, box->rank, from, until,
                held);
  }
  double bar = 1.7 * shade;
  if (shade) put_rect(svg, "k", x, y + svg->row - bar, width, bar, "/>");
  double font = font_in(width, digits_of(box->action.microbatch));
  if (font < 5) {
    text_put(svg->out, "\n", 1);
    return;
  }
  char a[32], b[32];
  if (font > svg->font) font = svg->font;
  text_printf(svg->out, "<text x=\"%s\" y=\"%s\"%s", xy(a, x + width / 2),
              xy(b, y + svg->row / 2 + font * 0.36 - shade * 0.4),
              letter == 'W' || letter == 'B' ? " class=\"d\"" : "");
  if (font < svg->font) text_printf(svg->out, " style=\"font-size:%spx\"", xy(size, font));
  text_printf(svg->out, ">%d</text>\n", box->action.microbatch);
}

/* A bar below the rank's row, a short one where it takes no time. */
static void put_reductions(Svg *svg) {
  const Picture *picture = svg->picture;
  const char *unit = picture->document->unit;
  for (int64_t i = 0; i < picture->reduction_count; i++) {
    const Reduction *reduction = &picture->reductions[i];
    double x = x_of(svg, reduction->start), width = (reduction->end - reduction->start) * svg->scale;
    char name[48];
    pd_action_text(reduction->action, name);
    const char *from = time_words(picture->arena, reduction->start, unit);
    const char *until = time_words(picture->arena, reduction->end, unit);
    const char *when = width > 0 ? arena_printf(picture->arena, "%s to %s", from, until) : from;
    if (width < 3) width = 3;
    put_rect(svg, "z", x, y_of(svg, reduction->rank) + svg->row + 1, width, REDUCTION,
             svg->for_page ? arena_printf(picture->arena, " data-a=\"%s\" data-t=\"%s\" data-i=\"r\"/>\n", name, when)
                           : arena_printf(picture->arena, "><title>%s on rank %d, %s</title></rect>\n", name,
                                          reduction->rank, when));
  }
}

/* Time of every kind in every column of a rank. */
static void fill_columns(const Svg *svg, int rank, double (*columns)[4]) {
  const Picture *picture = svg->picture;
  double width = picture->end / OVERVIEW_COLUMNS;
  for (int64_t i = picture->box_of_rank[rank]; i < picture->box_of_rank[rank + 1]; i++) {
    const Box *box = &picture->boxes[i];
    int first = (int)(box->start / width);
    for (int c = first; c < OVERVIEW_COLUMNS && c * width < box->end; c++)
      columns[c][box->action.kind] += fmin(box->end, (c + 1) * width) - fmax(box->start, c * width);
  }
}

/* One area of steps; kinds up to `order` from the bottom, so that the next one is drawn over it. */
static void put_area(Svg *svg, int rank, double (*columns)[4], const pd_action_kind *order, int count) {
  const Picture *picture = svg->picture;
  double bottom = y_of(svg, rank) + svg->row, width = picture->end / OVERVIEW_COLUMNS;
  char a[32], b[32], last[32] = "";
  text_printf(svg->out, "<path class=\"%c0\" d=\"M%d %s", letter_of(order[count - 1]), LEFT, xy(a, bottom));
  for (int c = 0; c < OVERVIEW_COLUMNS; c++) {
    double sum = 0;
    for (int k = 0; k < count; k++) sum += columns[c][order[k]];
    /* steps of a thirtieth: a steady state is one piece, not noise */
    double share = round(sum / width * 30) / 30;
    xy(a, bottom - svg->row * share);
    if (strcmp(a, last) == 0) continue;
    text_printf(svg->out, "H%sV%s", xy(b, LEFT + svg->width * c / OVERVIEW_COLUMNS), a);
    strcpy(last, a);
  }
  text_printf(svg->out, "H%sV%sZ\"/>\n", xy(a, LEFT + svg->width), xy(b, bottom));
}

static void put_overview(Svg *svg) {
  static const pd_action_kind order[] = {PD_F, PD_B, PD_I, PD_W};
  double(*columns)[4] = arena_alloc(svg->picture->arena, sizeof *columns * OVERVIEW_COLUMNS);
  for (int rank = 0; rank < svg->picture->document->pipeline.pp; rank++) {
    memset(columns, 0, sizeof *columns * OVERVIEW_COLUMNS);
    fill_columns(svg, rank, columns);
    text_printf(svg->out, "<g><title>rank %d</title>\n", rank);
    for (int count = 4; count > 0; count--)
      if (svg->used[order[count - 1]]) put_area(svg, rank, columns, order, count);
    text_printf(svg->out, "</g>\n");
  }
}

static void put_rows(Svg *svg) {
  const Picture *picture = svg->picture;
  const pd_pipeline *pipeline = &picture->document->pipeline;
  const Measure *measure = picture->measure;
  Arena *arena = picture->arena;
  for (int rank = 0; rank < pipeline->pp; rank++) {
    double y = y_of(svg, rank);
    put_rect(svg, "i", LEFT, y, svg->width, svg->row, "/>\n");
    put_label(svg, "e", LEFT - 8, y + svg->row / 2 + 4, arena_printf(arena, "rank %d", rank));
    put_label(svg, "r", LEFT + svg->width + 8, y + svg->row / 2 - 1,
              arena_printf(arena, "idle %s", time_words(arena, measure->idle[rank], picture->document->unit)));
    put_label(svg, "r", LEFT + svg->width + 8, y + svg->row / 2 + 10,
              arena_printf(arena, "peak %s",
                           picture->document->chunk_bytes ? bytes_words(arena, measure->peak[rank])
                                                          : number_words(arena, measure->peak[rank])));
  }
  if (svg->overview) {
    put_overview(svg);
  } else {
    put_links(svg);
    text_printf(svg->out, "<g class=\"n\">\n");
    for (int64_t i = 0; i < picture->box_of_rank[pipeline->pp]; i++)
      if (picture->boxes[i].end > picture->boxes[i].start) put_box(svg, &picture->boxes[i]);
    text_printf(svg->out, "</g>\n");
  }
  put_reductions(svg);
}

/* The most a rank holds in every column. */
static void fill_curve(const Svg *svg, int rank, double *most) {
  const Picture *picture = svg->picture;
  double width = picture->end / OVERVIEW_COLUMNS;
  for (int64_t i = picture->box_of_rank[rank]; i < picture->box_of_rank[rank + 1]; i++) {
    const Box *box = &picture->boxes[i];
    bool last = i + 1 == picture->box_of_rank[rank + 1];
    double until = last ? box->end : picture->boxes[i + 1].start; /* held while it waits, too */
    for (int c = (int)(box->start / width); c < OVERVIEW_COLUMNS && c * width < until; c++)
      if (box->held > most[c]) most[c] = box->held;
  }
}

/* What a rank holds over time, as steps; all ranks to one scale. */
static void put_curve(Svg *svg, int rank, double top) {
  const Picture *picture = svg->picture;
  double bottom = top + svg->curve, unit = picture->most_held > 0 ? svg->curve / picture->most_held : 0, held = 0;
  char a[32], b[32];
  text_printf(svg->out, "<path class=\"m\" d=\"M%s %s", xy(a, LEFT), xy(b, bottom));
  if (svg->overview) {
    double *most = ARENA_ARRAY(picture->arena, double, OVERVIEW_COLUMNS);
    fill_curve(svg, rank, most);
    for (int c = 0; c < OVERVIEW_COLUMNS; c++) {
      if (most[c] != held)
        text_printf(svg->out, "H%sV%s", xy(a, LEFT + svg->width * c / OVERVIEW_COLUMNS),
                    xy(b, bottom - unit * most[c]));
      held = most[c];
    }
  }
  for (int64_t i = picture->box_of_rank[rank]; !svg->overview && i < picture->box_of_rank[rank + 1]; i++) {
    const Box *box = &picture->boxes[i];
    double after = i + 1 < picture->box_of_rank[rank + 1] ? picture->boxes[i + 1].before : 0;
    if (box->held != held)
      text_printf(svg->out, "H%sV%s", xy(a, x_of(svg, box->start)), xy(b, bottom - unit * box->held));
    if (after != box->held) text_printf(svg->out, "H%sV%s", xy(a, x_of(svg, box->end)), xy(b, bottom - unit * after));
    held = after;
  }
  text_printf(svg->out, "H%sV%s\"/>\n", xy(a, LEFT + svg->width), xy(b, bottom));
  put_label(svg, "e", LEFT - 8, top + svg->curve / 2 + 4, arena_printf(picture->arena, "rank %d", rank));
  put_label(svg, "r", LEFT + svg->width + 8, top + svg->curve / 2 + 4,
            picture_held(picture, picture->measure->peak[rank]));
}

static double put_curves(Svg *svg) {
  int pp = svg->picture->document->pipeline.pp;
  double y = svg->foot + 46;
  put_label(svg, "l", LEFT, y, "activations held, from a forward to the end of its weight gradient");
  y += 8;
  for (int rank = 0; rank < pp; rank++, y += svg->curve + 6) put_curve(svg, rank, y);
  put_axis(svg, svg->foot + 54, y);
  return y + 18;
}

static double put_figures(Svg *svg, double y) {
  const Picture *picture = svg->picture;
  const Measure *m = picture->measure;
  const char *unit = picture->document->unit;
  Arena *arena = picture->arena;
  int pp = picture->document->pipeline.pp, fullest = 0;
  double idle = 0;
  for (int rank = 0; rank < pp; rank++) {
    idle += m->idle[rank] / m->makespan / pp;
    if (m->peak[rank] > m->peak[fullest]) fullest = rank;
  }
  bool best = m->beta <= m->bound * (1 + 1e-12);
  const char *lines[] = {
      arena_printf(arena, "makespan %s, idle %.3g %% of it on average; %s", time_words(arena, m->makespan, unit),
                   100 * idle, picture_costs(picture)),
      arena_printf(arena, "idle in a step that ends with a barrier (beta) %s, %s; idle if steps may overlap (sigma) %s",
                   time_words(arena, m->beta, unit),
                   best ? "the least that is possible"
                        : arena_printf(arena, "no schedule goes below %s", time_words(arena, m->bound, unit)),
                   time_words(arena, m->sigma, unit)),
      arena_printf(arena, "peak %s of activations, on rank %d", picture_held(picture, m->peak[fullest]), fullest),
      "certified: complete, ordered, matched; free of deadlock with buffered, rendezvous and grouped sends",
      picture->end > m->makespan
          ? arena_printf(arena, "reductions over replicas are predicted to end at %s, %s after the last computation",
                         time_words(arena, picture->end, unit), time_words(arena, picture->end - m->makespan, unit))
      : picture->document->reductions && picture->reduction_count > 0
          ? "reductions over replicas are predicted to hide behind the computations"
          : NULL,
      NULL};
  int count = 0;
  for (; lines[count]; count++) put_label(svg, "l", LEFT, y + 17 * count, lines[count]);
  return y + 17 * count;
}

void svg_put(const Picture *picture, bool for_page, Text *out) {
  Svg svg = {.picture = picture, .out = out, .for_page = for_page};
  char width[32], height[32], view_width[32], view_height[32];
  plan_size(&svg);
  Text body = {.arena = picture->arena};
  svg.out = &body;
  put_style(&svg);
  put_head(&svg);
  put_axis(&svg, HEAD - 4, svg.foot + 6);
  put_rows(&svg);
  double end = put_figures(&svg, (for_page ? put_curves(&svg) : svg.foot + 28) + 20);
  double all = LEFT + svg.width + RIGHT;
  text_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%s\" height=\"%s\" viewBox=\"0 0 %s %s\">\n",
              xy(width, all), xy(height, end), xy(view_width, all), xy(view_height, end));
  text_put(out, body.at, body.length);
  text_printf(out, "</svg>\n");
}

void draw_svg(Arena *arena, const Document *document, const Measure *measure, Text *out) {
  Picture picture;
  picture_make(arena, document, measure, &picture);
  svg_put(&picture, false, out);
}
