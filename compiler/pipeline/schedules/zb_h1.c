/* ZB-H1 (Qi et al. 2024, zero bubble pipeline parallelism): the backward is split; rank r puts off its weight gradients
 * by r micro-batches, which fill what was idle time. At most pp micro-batches in flight on every rank. */
#include "pipeline/schedules/kinds.h"

static const char *refuse_zb_h1(Arena *arena, const ScheduleRequest *request) {
  return refuse_chunks(arena, "zb-h1", request, "interleaved-zb");
}

static void generate(Arena *arena, const ScheduleRequest *request, pd_action_list *ranks) {
  int64_t m = request->microbatches;
  for (int rank = 0; rank < request->pp; rank++) {
    pd_action_list *list = &ranks[rank];
    actions_reserve(arena, list, 3 * m);
    int64_t forward = 0, weight = 0;
    while (forward < m && forward < request->pp - 1 - rank) action_put(list, PD_F, rank, forward++);
    for (int64_t i = 0; i < m; i++) {
      if (forward < m) action_put(list, PD_F, rank, forward++);
      action_put(list, PD_I, rank, i);
      if (i >= rank) action_put(list, PD_W, rank, weight++);
    }
    while (weight < m) action_put(list, PD_W, rank, weight++);
  }
}

static const char *const aliases[] = {"zbh1", NULL};
const ScheduleKind schedule_zb_h1 = {.name = "zb-h1",
                                     .aliases = aliases,
                                     .refuse = refuse_zb_h1,
                                     .place = place_loop,
                                     .generate = generate,
                                     .split = true};
