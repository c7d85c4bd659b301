/* 1F1B, also PipeDream-flush (Narayanan et al. 2021): rank r runs pp - 1 - r forwards ahead, then a forward and a
 * backward in turn. The bubble of GPipe with at most pp - r micro-batches in flight. */
#include "pipeline/schedules/kinds.h"

static const char *refuse_1f1b(Arena *arena, const ScheduleRequest *request) {
  return refuse_chunks(arena, "1f1b", request, "interleaved");
}

static void generate(Arena *arena, const ScheduleRequest *request, pd_action_list *ranks) {
  OrderTable table = order_table(arena, request, 1);
  for (int rank = 0; rank < request->pp; rank++)
    generate_along_table(arena, request, &table, rank, request->pp - 1 - rank, &ranks[rank]);
}

const ScheduleKind schedule_one_f_one_b = {
    .name = "1f1b", .refuse = refuse_1f1b, .place = place_loop, .generate = generate};
