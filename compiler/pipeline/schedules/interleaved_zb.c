/* Interleaved zero bubble (PyTorch's ScheduleInterleavedZeroBubble): the order of interleaved 1F1B with half its
 * warm-up and a split backward whose weight gradients come r steps later on rank r. With balanced groups (see
 * OrderTable) and equal costs it meets the lower bound of any schedule with these chunks, for every number of
 * micro-batches from pp on. */
#include "pipeline/schedules/kinds.h"

static const char *refuse_interleaved_zb(Arena *arena, const ScheduleRequest *request) {
  return refuse_counts(arena, "interleaved-zb", request);
}

static void generate(Arena *arena, const ScheduleRequest *request, pd_action_list *ranks) {
  OrderTable table = order_table(arena, request, 0);
  int64_t p = request->pp, v = request->chunks;
  for (int rank = 0; rank < request->pp; rank++) {
    pd_action_list *list = &ranks[rank];
    actions_reserve(arena, list, 3 * table.count);
    int64_t warm_up = p - 1 - rank + (v - 1) * table.largest, forward = 0, weight = 0;
    for (; forward < table.count && forward < warm_up; forward++)
      action_put(list, PD_F, table.at[forward].chunk * p + rank, table.at[forward].microbatch);
    for (int64_t j = 0; j < table.count; j++) {
      if (forward < table.count) {
        action_put(list, PD_F, table.at[forward].chunk * p + rank, table.at[forward].microbatch);
        forward++;
      }
      action_put(list, PD_I, (v - 1 - table.at[j].chunk) * p + rank, table.at[j].microbatch);
      if (j < rank) continue;
      action_put(list, PD_W, (v - 1 - table.at[weight].chunk) * p + rank, table.at[weight].microbatch);
      weight++;
    }
    for (; weight < table.count; weight++)
      action_put(list, PD_W, (v - 1 - table.at[weight].chunk) * p + rank, table.at[weight].microbatch);
  }
}

static const char *const aliases[] = {"interleaved-zero-bubble", NULL};
const ScheduleKind schedule_interleaved_zb = {.name = "interleaved-zb",
                                              .aliases = aliases,
                                              .refuse = refuse_interleaved_zb,
                                              .place = place_loop,
                                              .generate = generate,
                                              .split = true};
