/* Answers the planner's questions about a program: what chunks cost once it is cut into so many, what a hop costs, and
 * whether a pipeline with its messages fits into the memory of a rank, to the byte. */
#include "pipeline/automatic.h"

enum { MOST_CHUNKS = 4, MOST_PAIRS = 1 << 21 /* of chunks and micro-batches */ };

static bool costs_of_cut(void *context, int chunks, double *f, double *i, double *w) {
  const Prices *prices = context;
  const pd_program *program = prices->program;
  Arena *arena = arena_new();
  int count = program->pp * chunks;
  int64_t *bounds = ARENA_ARRAY(arena, int64_t, count + 1);
  bool good = !stages_cut(arena, prices, count, bounds);
  for (int c = 1; good && c < count; c++) {
    int wires[PD_MAX_WIRES];
    good = pd_live_wires(program, bounds[c], wires) <= PD_MAX_WIRES;
  }
  if (good) price_chunks(prices, bounds, count, f, i, w);
  arena_free(arena);
  return good;
}

/* Of a cut into one chunk a rank. */
static double hop_of_cut(Arena *arena, const Prices *prices) {
  int pp = prices->program->pp;
  int64_t *bounds = ARENA_ARRAY(arena, int64_t, pp + 1);
  int *rank_of = ARENA_ARRAY(arena, int, pp);
  for (int c = 0; c < pp; c++) rank_of[c] = c;
  return stages_cut(arena, prices, pp, bounds) ? 0 : price_hop(prices, bounds, pp, rank_of);
}

static bool fits(void *context, const pd_pipeline *bare, const char **why) {
  const Prices *prices = context;
  if (prices->config->memory <= 0) return true;
  Arena *arena = arena_new();
  pd_pipeline pipeline = *bare;
  int64_t *bounds = ARENA_ARRAY(arena, int64_t, pipeline.chunk_count + 1);
  bool good = !stages_cut(arena, prices, pipeline.chunk_count, bounds);
  pipeline.first_unit = bounds;
  pipeline.accumulators = (int)prices->config->accumulators;
  if (good) stages_connect(arena, prices, &pipeline);
  for (int rank = 0; rank < pipeline.pp && good; rank++) {
    pd_layout *layout = pd_layout_new(prices->program, &pipeline, rank);
    good = (double)pd_layout_total(layout) <= prices->config->memory;
    pd_layout_free(layout);
  }
  arena_free(arena);
  *why = "it needs more memory than a rank has";
  return good;
}

bool automatic_choose(Arena *arena, const Prices *prices, PlannerChoice *choice) {
  Prices asked = *prices;
  int most = MOST_CHUNKS;
  while (most > 1 && prices->config->microbatches * prices->program->pp * most > MOST_PAIRS) most--;
  PlannerInput input = {.pp = prices->program->pp,
                        .microbatches = prices->config->microbatches,
                        .chunks = prices->config->chunks > 1 ? (int)prices->config->chunks : 0,
                        .most_chunks = most,
                        .barrier = true,
                        .cut = costs_of_cut,
                        .link = hop_of_cut(arena, prices),
                        .fits = fits,
                        .context = &asked};
  return planner_choose(arena, &input, choice);
}

const char *automatic_text(Arena *arena, const PlannerChoice *choice) {
  Text text = {.arena = arena};
  text_printf(&text, "%s", choice->why);
  for (int k = 0; k < choice->rejected_count; k++) text_printf(&text, "\n  not %s", choice->rejected[k]);
  return text.at;
}
