/* 1F1B-V (Qi et al. 2024, pipeline parallelism with controllable memory): a V of two chunks a rank with fused backwards
 * and two thirds of the activations of 1F1B: ceil((2 pp + 1) / 3) micro-batches. The block is found by first fit: each
 * pass takes the earliest slots after the one before it that its rank has free in every period. See v_blocks.c for what
 * is done with the block. */
#include "pipeline/schedules/kinds.h"

enum { PERIOD = 6 };

/* A backward can begin at `slot`, whose period has the slots of `taken` (one bit each) in use: both its slots are free,
 * and so are two neighbours for the other backward of the rank if that is still to come. */
static bool fits(unsigned taken, int64_t slot, bool other_to_come) {
  unsigned two = 1u << (slot % PERIOD) | 1u << ((slot + 1) % PERIOD);
  if (taken & two) return false;
  if (!other_to_come) return true;
  for (int64_t s = 0; s < PERIOD; s++)
    if (fits(taken | two, s, false)) return true;
  return false;
}

static const char *refuse_one_f_one_b_v(Arena *arena, const ScheduleRequest *request) {
  return refuse_v(arena, "1f1b-v", request);
}

static void generate(Arena *arena, const ScheduleRequest *request, pd_action_list *ranks) {
  int p = request->pp;
  VBlock *blocks = ARENA_ARRAY(arena, VBlock, p);
  unsigned *taken = ARENA_ARRAY(arena, unsigned, p);
  int64_t slot = 0;
  for (int pass = 0; pass < V_PASSES; pass++)
    for (int i = 0; i < p; i++) {
      int rank = pass == V_F0 || pass == V_B1 ? i : p - 1 - i;
      while (pass > V_F1 && !fits(taken[rank], slot, pass == V_B1)) slot++;
      blocks[rank].slot[pass] = slot;
      for (int length = pass > V_F1 ? 2 : 1; length > 0; length--) taken[rank] |= 1u << (slot++ % PERIOD);
    }
  generate_v_blocks(arena, request, blocks, false, ranks);
}

static const char *const aliases[] = {"v-1f1b", NULL};
const ScheduleKind schedule_one_f_one_b_v = {
    .name = "1f1b-v", .aliases = aliases, .refuse = refuse_one_f_one_b_v, .place = place_v, .generate = generate};
