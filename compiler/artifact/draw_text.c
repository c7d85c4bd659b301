/* A schedule as text: a line per rank, time to the right, a label where a box begins and dots where a rank rests. What
 * does not fit beside goes on below, in bands that share their ticks.
 *
 * A box gets as many columns as its time is worth, and the smallest of the usual boxes just holds its label: the letter
 * of the action and the micro-batch. Where a rank has two chunks the second one's letters are small; where it has more,
 * the label begins with the number of the chunk on its rank. */
#include <math.h>
#include <string.h>

#include "artifact/draw.h"
#include "artifact/words.h"

enum { MOST_LINE_COLUMNS = 1 << 20 };

typedef struct Grid {
  const Picture *picture;
  Text *out;
  int columns;   /* for the boxes, beside the rank's name */
  int name;      /* columns of the rank's name */
  double scale;  /* columns per time */
  int64_t total; /* columns of the whole run */
  char **lines;  /* per rank: `total` characters */
} Grid;

static void label_of(const Picture *picture, const Box *box, char out[32]) {
  static const char letters[] = "FBIW", small[] = "fbiw";
  int kind = (int)box->action.kind;
  if (picture->most_local <= 2)
    snprintf(out, 32, "%c%d", box->local ? small[kind] : letters[kind], (int)box->action.microbatch);
  else
    snprintf(out, 32, "%d%c%d", box->local, letters[kind], (int)box->action.microbatch);
}

/* Columns per time: the label of the largest number fits into boxes of the middling kind of time, or into the shortest
 * where that does not make a line more than three times as long. */
static void plan(Grid *grid) {
  const Picture *picture = grid->picture;
  int64_t boxes = picture->box_of_rank[picture->document->pipeline.pp], widest = 0;
  double sum = 0, shortest = INFINITY;
  for (int64_t i = 0; i < boxes; i++) {
    char label[32];
    label_of(picture, &picture->boxes[i], label);
    double time = picture->boxes[i].end - picture->boxes[i].start;
    if ((int64_t)strlen(label) > widest) widest = (int64_t)strlen(label);
    if (time > 0 && time < shortest) shortest = time;
    sum += time;
  }
  double mean = sum / (double)boxes;
  if (shortest < mean / 3) shortest = mean / 3;
  grid->scale = (double)(widest + 1) / shortest;
  double total = ceil(picture->measure->makespan * grid->scale - 1e-9);
  if (total > MOST_LINE_COLUMNS) {
    grid->scale *= MOST_LINE_COLUMNS / total;
    total = MOST_LINE_COLUMNS;
  }
  grid->total = (int64_t)total;
  /* bands end between labels */
  int cell = (int)widest + 1;
  if (grid->columns > cell) grid->columns -= grid->columns % cell;
}

static int64_t column_of(const Grid *grid, double time) {
  int64_t column = (int64_t)floor(time * grid->scale + 0.5);
  return column < grid->total ? column : grid->total;
}

static void fill(Grid *grid) {
  const Picture *picture = grid->picture;
  int pp = picture->document->pipeline.pp;
  grid->lines = ARENA_ARRAY(picture->arena, char *, pp);
  for (int rank = 0; rank < pp; rank++) {
    char *line = grid->lines[rank] = arena_alloc(picture->arena, (size_t)grid->total + 1);
    memset(line, '.', (size_t)grid->total);
    for (int64_t i = picture->box_of_rank[rank]; i < picture->box_of_rank[rank + 1]; i++) {
      const Box *box = &picture->boxes[i];
      char label[32];
      label_of(picture, box, label);
      int64_t first = column_of(grid, box->start), last = column_of(grid, box->end);
      int64_t length = (int64_t)strlen(label);
      for (int64_t column = first; column < last; column++)
        line[column] = column - first < length ? label[column - first] : column + 1 < last ? '-' : ' ';
    }
  }
}

static void put_band(Grid *grid, int64_t first) {
  const Picture *picture = grid->picture;
  int64_t last = first + grid->columns < grid->total ? first + grid->columns : grid->total;
  const char *from = time_words(picture->arena, (double)first / grid->scale, picture->document->unit);
  const char *until =
      time_words(picture->arena, last == grid->total ? picture->measure->makespan : (double)last / grid->scale,
                 picture->document->unit);
  int room = (int)(last - first), used = (int)(strlen(from) + strlen(until));
  if (used + 1 < room)
    text_printf(grid->out, "%*s%s%*s%s\n", grid->name, "", from, room - used, "", until);
  else
    text_printf(grid->out, "%*s%s\n", grid->name, "", from);
  for (int rank = 0; rank < picture->document->pipeline.pp; rank++) {
    int64_t end = last;
    while (end > first && grid->lines[rank][end - 1] == ' ') end--;
    text_printf(grid->out, "%-*s%.*s\n", grid->name, arena_printf(picture->arena, "rank %d", rank), (int)(end - first),
                grid->lines[rank] + first);
  }
  text_put(grid->out, "\n", 1);
}

/* A list of words, broken where a line is full. */
static void put_words(Grid *grid, const char *title, const char *const *words, int count) {
  int width = grid->columns + grid->name, at = 0;
  for (int i = 0; i < count; i++) {
    int length = (int)strlen(words[i]) + 1;
    if (i == 0 || at + length > width) {
      text_printf(grid->out, "%s%-10s", i ? "\n" : "", i ? "" : title);
      at = 10;
    }
    text_printf(grid->out, "%s%s", at == 10 ? "" : " ", words[i]);
    at += length;
  }
  text_put(grid->out, "\n", 1);
}

/* When the gradients of which chunk begin to be reduced. */
static void put_reductions(Grid *grid) {
  const Picture *picture = grid->picture;
  const char **words = ARENA_ARRAY(picture->arena, const char *, picture->reduction_count + 1);
  for (int64_t i = 0; i < picture->reduction_count; i++) {
    const Reduction *reduction = &picture->reductions[i];
    const char *start = time_words(picture->arena, reduction->start, picture->document->unit),
               *end = time_words(picture->arena, reduction->end, picture->document->unit);
    char name[48];
    pd_action_text(reduction->action, name);
    words[i] = reduction->end > reduction->start ? arena_printf(picture->arena, "%s %s to %s,", name, start, end)
                                                 : arena_printf(picture->arena, "%s at %s,", name, start);
  }
  if (picture->reduction_count > 0) put_words(grid, "reduces", words, (int)picture->reduction_count);
}

static void put_figures(Grid *grid) {
  const Picture *picture = grid->picture;
  const Document *document = picture->document;
  const Measure *m = picture->measure;
  Arena *arena = picture->arena;
  int pp = document->pipeline.pp;
  text_printf(grid->out, "%-10s%s (%s)\n", "makespan", time_words(arena, m->makespan, document->unit),
              picture_costs(picture));
  text_printf(grid->out, "%-10s%s, %s\n", "beta", time_words(arena, m->beta, document->unit),
              m->beta <= m->bound * (1 + 1e-12)
                  ? "the least that is possible"
                  : arena_printf(arena, "no schedule goes below %s", time_words(arena, m->bound, document->unit)));
  text_printf(grid->out, "%-10s%s\n", "sigma", time_words(arena, m->sigma, document->unit));
  const char **words = ARENA_ARRAY(arena, const char *, pp);
  for (int rank = 0; rank < pp; rank++) words[rank] = time_words(arena, m->idle[rank], document->unit);
  put_words(grid, "idle", words, pp);
  for (int rank = 0; rank < pp; rank++)
    words[rank] = document->chunk_bytes ? bytes_words(arena, m->peak[rank]) : number_words(arena, m->peak[rank]);
  put_words(grid, document->chunk_bytes ? "holds" : "peak", words, pp);
  put_reductions(grid);
}

void draw_text(Arena *arena, const Document *document, const Measure *measure, int columns, Text *out) {
  Picture picture;
  picture_make(arena, document, measure, &picture);
  Grid grid = {.picture = &picture, .out = out};
  grid.name = 6 + (document->pipeline.pp > 10) + (document->pipeline.pp > 100) + (document->pipeline.pp > 1000) + 1;
  grid.columns = columns - grid.name;
  plan(&grid);
  fill(&grid);
  text_printf(out, "%s\n", picture_title(&picture));
  if (picture.most_local == 2) text_printf(out, "a rank's first chunk in capitals, its second in small letters\n");
  if (picture.most_local > 2) text_printf(out, "labels begin with the chunk's number on its rank\n");
  text_put(out, "\n", 1);
  for (int64_t first = 0; first < grid.total; first += grid.columns) put_band(&grid, first);
  put_figures(&grid);
}
