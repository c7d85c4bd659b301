/* Breadth-first (Lamy-Poirier 2023): every chunk runs all its micro-batches before the next chunk starts, backwards in
 * reverse order of chunks. The bubble of interleaved 1F1B, all micro-batches in flight; each chunk's parameters are
 * needed in one stretch only. */
#include "pipeline/schedules/kinds.h"

static const char *refuse_breadth_first(Arena *arena, const ScheduleRequest *request) {
  return refuse_counts(arena, "breadth-first", request);
}

static void generate(Arena *arena, const ScheduleRequest *request, pd_action_list *ranks) {
  OrderTable table = order_table(arena, request, 1);
  for (int rank = 0; rank < request->pp; rank++)
    generate_along_table(arena, request, &table, rank, table.count, &ranks[rank]);
}

static const char *const aliases[] = {"looped-bfs", NULL};
const ScheduleKind schedule_breadth_first = {.name = "breadth-first",
                                             .aliases = aliases,
                                             .refuse = refuse_breadth_first,
                                             .place = place_loop,
                                             .generate = generate};
