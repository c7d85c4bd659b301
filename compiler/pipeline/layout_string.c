/* See layout_string.h. One recursive descent over the text, with limits on depth and on what repeats add up to: a
 * layout is a few hundred bytes and may stand for a million layers, not for more. */
#include "pipeline/layout_string.h"

#include <string.h>

enum { MOST_STAGES = 65536, MOST_LAYERS = 1 << 20, MOST_TEXT = 65536, MOST_DEPTH = 16, MOST_REPEATS = 1 << 20 };

typedef VEC(char) Letters; /* E t m L | */

typedef struct Parser {
  Arena *arena;
  const char *text;
  size_t at;
  const char *why;
} Parser;

static bool wrong(Parser *p, size_t at, const char *what) {
  if (!p->why) p->why = arena_printf(p->arena, "column %zu: %s", at + 1, what);
  return false;
}

static void skip_blanks(Parser *p) {
  while (p->text[p->at] && strchr(", \t\n", p->text[p->at])) p->at++;
}

/* "*n", or 1 if there is none. */
static bool parse_repeat(Parser *p, int64_t *times) {
  *times = 1;
  skip_blanks(p);
  if (p->text[p->at] != '*') return true;
  size_t star = p->at++;
  skip_blanks(p);
  if (p->text[p->at] < '0' || p->text[p->at] > '9') return wrong(p, star, "`*` wants a number behind it");
  for (*times = 0; p->text[p->at] >= '0' && p->text[p->at] <= '9'; p->at++) {
    *times = *times * 10 + (p->text[p->at] - '0');
    if (*times > MOST_REPEATS) return wrong(p, star, "more than 1048576 times");
  }
  return true;
}

static bool append(Parser *p, Letters *out, const char *letters, size_t count, int64_t times, size_t at) {
  if ((int64_t)count * times > MOST_LAYERS + MOST_STAGES - (int64_t)out->count)
    return wrong(p, at, "the layout becomes too long");
  for (int64_t k = 0; count > 0 && k < times; k++)
    for (size_t i = 0; i < count; i++) vec_push(p->arena, out, letters[i]);
  return true;
}

static bool parse_sequence(Parser *p, Letters *out, int depth) {
  for (;;) {
    skip_blanks(p);
    size_t begin = p->at;
    char letter = p->text[begin];
    int64_t times;
    if (letter == 0 || letter == ')') return true;
    p->at++;
    if (letter == '(') {
      Letters inner = {0};
      if (depth == MOST_DEPTH) return wrong(p, begin, "brackets are nested too deeply");
      if (!parse_sequence(p, &inner, depth + 1)) return false;
      if (p->text[p->at] != ')') return wrong(p, begin, "`(` is never closed");
      p->at++;
      if (!parse_repeat(p, &times) || !append(p, out, inner.at, inner.count, times, begin)) return false;
      continue;
    }
    if (letter == '*') return wrong(p, begin, "`*` wants a letter, `|` or a bracket before it");
    if (!strchr("EtmL|", letter))
      return wrong(p, begin,
                   letter > ' ' && letter < 0x7f
                       ? arena_printf(p->arena, "`%c` is none of E t m L, `|`, `*`, brackets and commas", letter)
                       : "this byte has no place in a layout");
    if (!parse_repeat(p, &times) || !append(p, out, &letter, 1, times, begin)) return false;
  }
}

/* Counts per stage; the letters come in the order E t m L, E and L once. */
static const char *count_stages(Arena *arena, const Letters *letters, Layout *layout) {
  static const char order[] = "EtmL";
  int stages = 1, stage = 0;
  size_t latest = 0;
  for (uint32_t i = 0; i < letters->count; i++) stages += letters->at[i] == '|';
  if (stages > MOST_STAGES) return arena_printf(arena, "more than %d stages", MOST_STAGES);
  *layout = (Layout){.stages = ARENA_ARRAY(arena, LayoutStage, stages), .count = stages};
  for (uint32_t i = 0; i < letters->count; i++) {
    if (letters->at[i] == '|') {
      stage++;
      continue;
    }
    size_t place = (size_t)(strchr(order, letters->at[i]) - order);
    if (place < latest)
      return arena_printf(arena, "stage %d: %c comes after %c; a model is E, then t, then m, then L", stage,
                          letters->at[i], order[latest]);
    latest = place;
    LayoutStage *here = &layout->stages[stage];
    int64_t *counts[] = {&here->embeddings, &here->layers, &here->multi_token, &here->losses};
    int64_t *totals[] = {&layout->total.embeddings, &layout->total.layers, &layout->total.multi_token,
                         &layout->total.losses};
    ++*counts[place];
    if (++*totals[place] > 1 && (place == 0 || place == 3))
      return arena_printf(arena, "stage %d: a second %c", stage, letters->at[i]);
  }
  if (layout->total.embeddings == 0) return "there is no E: a model begins with its embedding";
  if (layout->total.losses == 0) return "there is no L: a model ends with its loss";
  return NULL;
}

const char *layout_parse(Arena *arena, const char *text, Layout *layout) {
  Parser parser = {.arena = arena, .text = text};
  Letters letters = {0};
  *layout = (Layout){0};
  if (strlen(text) > MOST_TEXT) return arena_printf(arena, "a layout has at most %d bytes", MOST_TEXT);
  if (!parse_sequence(&parser, &letters, 0)) return parser.why;
  if (text[parser.at] == ')') {
    wrong(&parser, parser.at, "`)` closes nothing");
    return parser.why;
  }
  return count_stages(arena, &letters, layout);
}

const char *layout_bounds(Arena *arena, const Layout *layout, int64_t chunks, LayoutUnits units, int64_t *bounds) {
  if (layout->count != chunks)
    return arena_printf(arena, "the layout has %d stages, but there are %lld chunks", layout->count, (long long)chunks);
  if (layout->total.multi_token)
    return arena_printf(arena, "the layout has %lld multi-token layers (m), which no model has here",
                        (long long)layout->total.multi_token);
  if (layout->total.layers != units.layers)
    return arena_printf(arena, "the layout has %lld layers (t), but the model has %lld",
                        (long long)layout->total.layers, (long long)units.layers);
  int64_t layers = 0, at = 0;
  bounds[0] = 0;
  for (int stage = 0; stage < layout->count; stage++) {
    const LayoutStage *here = &layout->stages[stage];
    layers += here->layers;
    if (here->embeddings) at = units.before;
    if (here->layers) at = units.layer_end[layers - 1];
    if (here->losses) at += units.after;
    bounds[stage + 1] = at;
  }
  if (bounds[1] == 0)
    return layout->stages[0].embeddings ? "stage 0 is empty: the model has no statement before its layers for E"
                                        : "stage 0 is empty: the first stage holds E";
  if (bounds[layout->count - 1] == bounds[layout->count])
    return arena_printf(arena, "stage %d is empty: the last stage holds L", layout->count - 1);
  return NULL;
}
