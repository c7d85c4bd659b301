/* V-Min (Qi et al. 2024, pipeline parallelism with controllable memory): a V of two chunks a rank, with about a third
 * of the activations of 1F1B: ceil((pp + 2) / 3) micro-batches on every rank. Its passes follow one another with no
 * time between them, so with unequal costs every micro-batch adds some waiting. See v_blocks.c for what is done with
 * the block. */
#include "pipeline/schedules/kinds.h"

static const char *refuse_v_min(Arena *arena, const ScheduleRequest *request) {
  return refuse_v(arena, "v-min", request);
}

static void generate(Arena *arena, const ScheduleRequest *request, pd_action_list *ranks) {
  int64_t p = request->pp, late = p % 3 == 0 ? 2 : 0; /* gradients wait so long that no slot is taken twice */
  VBlock *blocks = ARENA_ARRAY(arena, VBlock, p);
  for (int64_t r = 0; r < p; r++) {
    blocks[r].slot[V_F0] = r;
    blocks[r].slot[V_F1] = 2 * p - r - 1;
    blocks[r].slot[V_B1] = 2 * p + late + r;
    blocks[r].slot[V_B0] = 4 * p + late - r - 1;
  }
  generate_v_blocks(arena, request, blocks, true, ranks);
}

static const char *const aliases[] = {"vmin", NULL};
const ScheduleKind schedule_v_min = {
    .name = "v-min", .aliases = aliases, .refuse = refuse_v_min, .place = place_v, .generate = generate, .split = true};
