/* ZB-H2 (Qi et al. 2024): as ZB-H1 with 2 (pp - r) - 1 forwards ahead and weight gradients put off by 2 r
 * micro-batches: no idle time between first and last action of a rank at equal costs, for 2 pp - 1 micro-batches in
 * flight. */
#include "pipeline/schedules/kinds.h"

static const char *refuse_zb_h2(Arena *arena, const ScheduleRequest *request) {
  return refuse_chunks(arena, "zb-h2", request, "interleaved-zb");
}

static void generate(Arena *arena, const ScheduleRequest *request, pd_action_list *ranks) {
  int64_t m = request->microbatches;
  for (int rank = 0; rank < request->pp; rank++) {
    pd_action_list *list = &ranks[rank];
    actions_reserve(arena, list, 3 * m);
    int64_t forward = 0, weight = 0;
    while (forward < m && forward < 2 * (request->pp - rank) - 1) action_put(list, PD_F, rank, forward++);
    for (int64_t i = 0; i < m; i++) {
      action_put(list, PD_I, rank, i);
      if (i >= 2 * rank) action_put(list, PD_W, rank, weight++);
      if (forward < m) action_put(list, PD_F, rank, forward++);
    }
    while (weight < m) action_put(list, PD_W, rank, weight++);
  }
}

static const char *const aliases[] = {"zbh2", NULL};
const ScheduleKind schedule_zb_h2 = {.name = "zb-h2",
                                     .aliases = aliases,
                                     .refuse = refuse_zb_h2,
                                     .place = place_loop,
                                     .generate = generate,
                                     .split = true};
