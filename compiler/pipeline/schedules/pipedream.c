/* PipeDream (Narayanan et al. 2019): the order of 1F1B that never flushes. A chunk updates its weights after every
 * backward; a backward uses the weights that its forward used, so rank r keeps pp - r versions. The lists are one
 * window of such a run, from an empty pipeline to an empty one. */
#include "pipeline/schedules/kinds.h"

static const char *refuse_pipedream(Arena *arena, const ScheduleRequest *request) {
  return refuse_chunks(arena, "pipedream", request, "interleaved");
}

static int64_t every_microbatch(const ScheduleRequest *request) {
  (void)request;
  return 1;
}

static void generate(Arena *arena, const ScheduleRequest *request, pd_action_list *ranks) {
  OrderTable table = order_table(arena, request, 1);
  for (int rank = 0; rank < request->pp; rank++)
    generate_along_table(arena, request, &table, rank, request->pp - 1 - rank, &ranks[rank]);
}

const ScheduleKind schedule_pipedream = {.name = "pipedream",
                                         .refuse = refuse_pipedream,
                                         .place = place_loop,
                                         .generate = generate,
                                         .step = every_microbatch};
