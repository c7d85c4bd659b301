/* GPipe (Huang et al. 2019): all forwards, then all backwards, both in ascending order. Any number of micro-batches;
 * keeps all of them in flight. */
#include "pipeline/schedules/kinds.h"

static const char *refuse_gpipe(Arena *arena, const ScheduleRequest *request) {
  return refuse_chunks(arena, "gpipe", request, "breadth-first");
}

static void generate(Arena *arena, const ScheduleRequest *request, pd_action_list *ranks) {
  for (int rank = 0; rank < request->pp; rank++) {
    actions_reserve(arena, &ranks[rank], 2 * request->microbatches);
    for (int64_t i = 0; i < request->microbatches; i++) action_put(&ranks[rank], PD_F, rank, i);
    for (int64_t i = 0; i < request->microbatches; i++) action_put(&ranks[rank], PD_B, rank, i);
  }
}

const ScheduleKind schedule_gpipe = {
    .name = "gpipe", .refuse = refuse_gpipe, .place = place_loop, .generate = generate};
