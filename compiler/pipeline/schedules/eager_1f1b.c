/* Eager 1F1B (Zhuang et al. 2023, on cross-mesh resharding): 1F1B that runs 2 (pp - 1 - r) forwards ahead, twice as
 * many. Messages then travel while the ranks compute: link latency no longer grows the bubble with the number of
 * micro-batches, at the price of 2 (pp - 1 - r) + 1 micro-batches in flight. */
#include "pipeline/schedules/kinds.h"

static const char *refuse_eager(Arena *arena, const ScheduleRequest *request) {
  return refuse_chunks(arena, "eager-1f1b", request, "interleaved");
}

static void generate(Arena *arena, const ScheduleRequest *request, pd_action_list *ranks) {
  OrderTable table = order_table(arena, request, 1);
  for (int rank = 0; rank < request->pp; rank++)
    generate_along_table(arena, request, &table, rank, 2 * (request->pp - 1 - rank), &ranks[rank]);
}

const ScheduleKind schedule_eager_1f1b = {
    .name = "eager-1f1b", .refuse = refuse_eager, .place = place_loop, .generate = generate};
