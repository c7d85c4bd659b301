/* Interleaved 1F1B (Narayanan et al. 2021, Megatron-LM): several chunks a rank, visited in groups of micro-batches.
 * With balanced groups (see OrderTable) every number of micro-batches works, and from pp of them on the bubble is that
 * of 1F1B divided by the chunks a rank. */
#include "pipeline/schedules/kinds.h"

static const char *refuse_interleaved(Arena *arena, const ScheduleRequest *request) {
  return refuse_counts(arena, "interleaved", request);
}

static void generate(Arena *arena, const ScheduleRequest *request, pd_action_list *ranks) {
  OrderTable table = order_table(arena, request, 0);
  for (int rank = 0; rank < request->pp; rank++) {
    int64_t behind = request->pp - 1 - rank;
    int64_t warm_up = request->chunks == 1 ? behind : 2 * behind + (request->chunks - 1) * table.largest;
    generate_along_table(arena, request, &table, rank, warm_up, &ranks[rank]);
  }
}

static const char *const aliases[] = {"interleaved-1f1b", NULL};
const ScheduleKind schedule_interleaved = {
    .name = "interleaved", .aliases = aliases, .refuse = refuse_interleaved, .place = place_loop, .generate = generate};
