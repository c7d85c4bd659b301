/* PipeDream-2BW (Narayanan et al. 2021, memory-efficient pipeline-parallel DNN training): 1F1B without a flush that
 * updates after every pp micro-batches with a delay of exactly one: the micro-batches of a step use the weights from
 * before the last update, on every rank the same. Two versions are enough, and by the time a step begins the one that
 * it uses is there on every rank. */
#include "pipeline/schedules/kinds.h"

static const char *refuse_2bw(Arena *arena, const ScheduleRequest *request) {
  const char *why = refuse_chunks(arena, "pipedream-2bw", request, "interleaved");
  int64_t p = request->pp, m = request->microbatches;
  if (why || m % p == 0) return why;
  const char *below = m < p ? "" : arena_printf(arena, "%lld or ", (long long)(m / p * p));
  return refuse(arena, "pipedream-2bw", request,
                arena_printf(arena,
                             "it updates after every pp of them; the nearest that works is microbatches = %s%lld",
                             below, (long long)(m / p * p + p)));
}

static int64_t every_pp(const ScheduleRequest *request) {
  return request->pp;
}

static void generate(Arena *arena, const ScheduleRequest *request, pd_action_list *ranks) {
  OrderTable table = order_table(arena, request, 1);
  for (int rank = 0; rank < request->pp; rank++)
    generate_along_table(arena, request, &table, rank, request->pp - 1 - rank, &ranks[rank]);
}

static const char *const aliases[] = {"2bw", NULL};
const ScheduleKind schedule_pipedream_2bw = {.name = "pipedream-2bw",
                                             .aliases = aliases,
                                             .refuse = refuse_2bw,
                                             .place = place_loop,
                                             .generate = generate,
                                             .step = every_pp,
                                             .delay = 1};
