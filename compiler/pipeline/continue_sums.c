/* Gradients of two copies of the model in one sum. A sum over micro-batches in their order is one after the other, and
 * the copies work at the same time; so the second copy puts its weight gradients off until the first has done all of
 * its own. Nothing else waits for weight gradients, and the work of a rank stays the same; but what they read stays too,
 * for half of the micro-batches. */
#include "pipeline/pipeline.h"

static bool later(const pd_pipeline *pipeline, pd_action action) {
  return pd_chunk_continued(pipeline, action.chunk) != PD_NO_CHUNK;
}

void schedule_continue_sums(Arena *arena, pd_pipeline *pipeline) {
  if (pipeline->copies <= 1 || pipeline->accumulators > 1) return;
  pd_action_list *ranks = ARENA_ARRAY(arena, pd_action_list, pipeline->pp);
  for (int rank = 0; rank < pipeline->pp; rank++) {
    const pd_action_list *from = &pipeline->ranks[rank];
    pd_action_list *to = &ranks[rank];
    to->at = ARENA_ARRAY(arena, pd_action, 2 * from->count);
    for (int64_t i = 0; i < from->count; i++) {
      pd_action action = from->at[i];
      if (action.kind == PD_W && later(pipeline, action)) continue;
      if (action.kind == PD_B && later(pipeline, action)) action.kind = PD_I;
      to->at[to->count++] = action;
    }
    for (int64_t i = 0; i < from->count; i++) { /* in the order of the input gradients: ascending */
      pd_action action = from->at[i];
      if ((action.kind != PD_B && action.kind != PD_I) || !later(pipeline, action)) continue;
      to->at[to->count++] = (pd_action){PD_W, action.chunk, action.microbatch};
    }
  }
  pipeline->ranks = ranks;
  pipeline->split = true;
}
