/* Where stages are cut, as Megatron writes it: "Ettt|(tt|)*29,m|L". */
#ifndef PDC_PIPELINE_LAYOUT_STRING_H
#define PDC_PIPELINE_LAYOUT_STRING_H

#include <stdbool.h>

#include "support/arena.h"

/* Layers of one stage. */
typedef struct LayoutStage {
  int64_t embeddings, layers, multi_token, losses; /* E t m L */
} LayoutStage;

/* Stages in order of the model; stage k is chunk k, so the first pp of them are the ranks' first chunks, and so on. */
typedef struct Layout {
  LayoutStage *stages;
  int count;
  LayoutStage total;
} Layout;

/* E, t, m, L are an embedding, a transformer layer, a multi-token prediction layer and the loss, in this order; `|`
 * ends a stage, x*n repeats a letter or a `|`, (…)*n what stands in the brackets, which may hold brackets; commas and
 * blanks mean nothing; a stage may be empty. NULL, or what is wrong and in which column. */
const char *layout_parse(Arena *arena, const char *text, Layout *layout);

/* What the model to be cut has: units before its layers (they go with E), layers, and units after them (they go with
 * L). layer_end[k] is the unit behind layer k and behind what goes with it. */
typedef struct LayoutUnits {
  int64_t before, layers, after;
  const int64_t *layer_end;
} LayoutUnits;

/* The units per stage: stage k holds units bounds[k] to bounds[k + 1] - 1; bounds has layout->count + 1 entries. NULL,
 * or why the layout does not fit: another number of stages than `chunks`, another number of layers, multi-token layers,
 * a first or last stage without units. Other stages may be empty. */
const char *layout_bounds(Arena *arena, const Layout *layout, int64_t chunks, LayoutUnits units, int64_t *bounds);

#endif
