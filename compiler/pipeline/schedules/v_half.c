/* V-Half (Qi et al. 2024, pipeline parallelism with controllable memory): a V of two chunks a rank, with about half of
 * the activations of 1F1B: floor(pp / 2) + 1 micro-batches on every rank. See v_blocks.c for what is done with the
 * block.
 */
#include "pipeline/schedules/kinds.h"

static const char *refuse_v_half(Arena *arena, const ScheduleRequest *request) {
  return refuse_v(arena, "v-half", request);
}

static void generate(Arena *arena, const ScheduleRequest *request, pd_action_list *ranks) {
  int64_t p = request->pp, late = p % 2 == 0 ? 3 : 0; /* gradients wait so long that no slot is taken twice */
  VBlock *blocks = ARENA_ARRAY(arena, VBlock, p);
  for (int64_t r = 0; r < p; r++) {
    blocks[r].slot[V_F0] = 2 * r;
    blocks[r].slot[V_F1] = 3 * p - r - 2;
    blocks[r].slot[V_B1] = 3 * p + late + 2 * r - 1;
    blocks[r].slot[V_B0] = 6 * p + late - r - 2;
  }
  generate_v_blocks(arena, request, blocks, true, ranks);
}

static const char *const aliases[] = {"vhalf", NULL};
const ScheduleKind schedule_v_half = {.name = "v-half",
                                      .aliases = aliases,
                                      .refuse = refuse_v_half,
                                      .place = place_v,
                                      .generate = generate,
                                      .split = true};
