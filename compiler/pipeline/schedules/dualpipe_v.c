/* DualPipeV, also "cut in half" (Qi et al. 2025, on DeepSeek's DualPipe): the steps of DualPipe on a V of two chunks a
 * rank, with one copy of the model. The bubble of ZB-V for half a micro-batch more of activations; what it is for is
 * that a forward and a backward come in pairs. */
#include "pipeline/schedules/kinds.h"

static const char *refuse_dualpipe_v(Arena *arena, const ScheduleRequest *request) {
  const char *why = refuse_v(arena, "dualpipe-v", request);
  if (why || request->microbatches >= 2 * (int64_t)request->pp) return why;
  return refuse(arena, "dualpipe-v", request,
                arena_printf(arena,
                             "it needs 2 pp micro-batches to fill; the nearest that works is microbatches = %lld",
                             2 * (long long)request->pp));
}

static void generate(Arena *arena, const ScheduleRequest *request, pd_action_list *ranks) {
  int64_t p = request->pp;
  for (int64_t rank = 0; rank < p; rank++) {
    DualPhase phase[2] = {{rank, 0}, {2 * p - 1 - rank, 0}};
    generate_dual_steps(arena, phase, request->microbatches, p, rank, &ranks[rank]);
  }
}

static const char *const aliases[] = {"dualpipev", NULL};
const ScheduleKind schedule_dualpipe_v = {.name = "dualpipe-v",
                                          .aliases = aliases,
                                          .refuse = refuse_dualpipe_v,
                                          .place = place_v,
                                          .generate = generate,
                                          .split = true};
