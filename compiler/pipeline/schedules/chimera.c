/* Chimera (S. Li & Hoefler 2021): two copies of the model, the second on the ranks in reverse, each running 1F1B with
 * half of the micro-batches; the slots of one direction are the gaps of the other. That fills one unit of pp
 * micro-batches; more are done unit by unit. */
#include "pipeline/schedules/kinds.h"

static const char *refuse_chimera(Arena *arena, const ScheduleRequest *request) {
  const char *why = refuse_chunks(arena, "chimera", request, "zb-v");
  if (why) return why;
  int64_t p = request->pp, m = request->microbatches, below = m / p * p;
  if (p % 2 != 0)
    return refuse(arena, "chimera", request,
                  arena_printf(arena, "ranks face each other; the nearest that works is pp = %s%lld",
                               p == 1 ? "" : arena_printf(arena, "%lld or ", (long long)p - 1), (long long)p + 1));
  if (m != below)
    return refuse(arena, "chimera", request,
                  arena_printf(arena,
                               "it goes in units of pp micro-batches; the nearest that works is microbatches = "
                               "%s%lld",
                               below == 0 ? "" : arena_printf(arena, "%lld or ", (long long)below),
                               (long long)(below + p)));
  return NULL;
}

/* One unit: with all passes of one length, layer s of either copy does its n-th forward in slot s + 2 n and its n-th
 * backward in slot 2 pp - 1 - s + 2 n. The two copies' layers on a rank differ by an odd number, so no two meet. */
static void generate(Arena *arena, const ScheduleRequest *request, pd_action_list *ranks) {
  int64_t p = request->pp, half = request->microbatches / 2, each = p / 2;
  pd_action *slots = ARENA_ARRAY(arena, pd_action, 3 * p);
  bool *taken = ARENA_ARRAY(arena, bool, 3 * p);
  for (int64_t rank = 0; rank < p; rank++) {
    actions_reserve(arena, &ranks[rank], 2 * request->microbatches);
    for (int64_t unit = 0; unit < request->microbatches / p; unit++) {
      for (int64_t n = 0; n < p; n++) { /* the first half down, the second half up */
        int64_t copy = n / each, layer = copy == 0 ? rank : p - 1 - rank, i = n % each;
        int64_t forward = layer + 2 * i, backward = 2 * p - 1 - layer + 2 * i;
        pd_action action = {PD_F, (int32_t)(copy * p + layer), (int32_t)(copy * half + unit * each + i)};
        slots[forward] = action;
        action.kind = PD_B;
        slots[backward] = action;
        taken[forward] = taken[backward] = true;
      }
      for (int64_t slot = 0; slot < 3 * p; slot++) {
        if (taken[slot]) action_put(&ranks[rank], slots[slot].kind, slots[slot].chunk, slots[slot].microbatch);
        taken[slot] = false;
      }
    }
  }
}

const ScheduleKind schedule_chimera = {
    .name = "chimera", .refuse = refuse_chimera, .place = place_mirrored, .generate = generate, .copies = 2};
