/* DualPipe (DeepSeek-AI 2024): two copies of the model, the second on the ranks in reverse, each doing half of the
 * micro-batches, so that forwards of one direction meet backwards of the other on every rank. Chunk k and chunk pp + k
 * are the two copies of the same layers; their gradients are added at the end. */
#include "pipeline/schedules/kinds.h"

static const char *refuse_dualpipe(Arena *arena, const ScheduleRequest *request) {
  const char *why = refuse_chunks(arena, "dualpipe", request, "dualpipe-v");
  if (why) return why;
  int64_t p = request->pp, m = request->microbatches;
  if (p % 2 != 0)
    return refuse(arena, "dualpipe", request,
                  arena_printf(arena, "ranks face each other; the nearest that works is pp = %s%lld",
                               p == 1 ? "" : arena_printf(arena, "%lld or ", (long long)p - 1), (long long)p + 1));
  if (m < 2 * p)
    return refuse(arena, "dualpipe", request,
                  arena_printf(arena,
                               "it needs 2 pp micro-batches to fill; the nearest that works is microbatches = "
                               "%lld",
                               (long long)(2 * p)));
  if (m % 2 != 0)
    return refuse(arena, "dualpipe", request,
                  arena_printf(arena,
                               "each copy does half of the micro-batches; the nearest that works is microbatches = "
                               "%lld%s",
                               (long long)m + 1,
                               m - 1 >= 2 * p ? arena_printf(arena, " or %lld", (long long)m - 1) : ""));
  return NULL;
}

static void generate(Arena *arena, const ScheduleRequest *request, pd_action_list *ranks) {
  int64_t p = request->pp, half = request->microbatches / 2;
  for (int64_t rank = 0; rank < p; rank++) {
    int64_t mirror = p - 1 - rank;
    DualPhase down = {rank, 0}, up = {p + mirror, half};
    bool lower = rank < mirror;
    generate_dual_steps(arena, lower ? (DualPhase[2]){down, up} : (DualPhase[2]){up, down}, half, p / 2,
                        lower ? rank : mirror, &ranks[rank]);
  }
}

const ScheduleKind schedule_dualpipe = {.name = "dualpipe",
                                        .refuse = refuse_dualpipe,
                                        .place = place_mirrored,
                                        .generate = generate,
                                        .split = true,
                                        .copies = 2};
