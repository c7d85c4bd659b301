/* A pipeline as PyTorch's pipelining schedules read and write it: one line per rank, its actions separated by commas.
 *
 * Its runtime of today also wants to be told when a send may be forgotten. Where it puts that itself: a forward's send
 * after the backward of the same chunk and micro-batch, which proves that it arrived; a gradient's at the end. */
#include <string.h>

#include "artifact/artifact.h"

static bool is_compute(pd_action_kind kind) {
  return kind == PD_F || kind == PD_B || kind == PD_I || kind == PD_W;
}

static void put_cell(Text *out, bool *first, const char *text) {
  if (!*first) text_put(out, ",", 1);
  text_put(out, text, strlen(text));
  *first = false;
}

static void put_action(Text *out, bool *first, pd_action action) {
  char name[48];
  pd_action_text(action, name);
  put_cell(out, first, name);
}

void schedule_write_csv(const pd_pipeline *pipeline, Text *out) {
  for (int rank = 0; rank < pipeline->pp; rank++) {
    const pd_action_list *list = &pipeline->ranks[rank];
    bool first = true;
    for (int64_t i = 0; i < list->count; i++) put_action(out, &first, list->at[i]);
    text_put(out, "\n", 1);
  }
}

void schedule_write_compute_csv(const pd_pipeline *pipeline, Text *out) {
  for (int rank = 0; rank < pipeline->pp; rank++) {
    const pd_action_list *list = &pipeline->ranks[rank];
    bool first = true;
    for (int64_t i = 0; i < list->count; i++)
      if (is_compute(list->at[i].kind)) put_action(out, &first, list->at[i]);
    text_put(out, "\n", 1);
  }
}

static void put_wait(Text *out, bool *first, const char *what, pd_action action) {
  char name[64];
  if (action.microbatch == PD_NO_MICROBATCH)
    snprintf(name, sizeof name, "%d%s", (int)action.chunk, what);
  else
    snprintf(name, sizeof name, "%d%s%d", (int)action.chunk, what, (int)action.microbatch);
  put_cell(out, first, name);
}

void schedule_write_waits_csv(Arena *arena, const pd_pipeline *pipeline, Text *out) {
  for (int rank = 0; rank < pipeline->pp; rank++) {
    const pd_action_list *list = &pipeline->ranks[rank];
    bool *sent = ARENA_ARRAY(arena, bool, (int64_t)pipeline->chunk_count * pipeline->microbatches);
    bool first = true;
    for (int64_t i = 0; i < list->count; i++) {
      pd_action action = list->at[i];
      int64_t slot = action.chunk * pipeline->microbatches + action.microbatch;
      put_action(out, &first, action);
      if (action.kind == PD_SEND_F) sent[slot] = true;
      if (action.kind == PD_REDUCE_GRAD) put_wait(out, &first, "WAIT_REDUCE_GRAD", action);
      if ((action.kind != PD_B && action.kind != PD_I) || !sent[slot]) continue;
      put_wait(out, &first, "WAIT_SEND_F", action);
      sent[slot] = false;
    }
    for (int64_t i = 0; i < list->count; i++) {
      pd_action action = list->at[i];
      if (action.kind == PD_SEND_B) put_wait(out, &first, "WAIT_SEND_B", action);
      if (action.kind == PD_SEND_F && sent[action.chunk * pipeline->microbatches + action.microbatch])
        put_wait(out, &first, "WAIT_SEND_F", action);
    }
    text_put(out, "\n", 1);
  }
}
