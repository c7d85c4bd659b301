/* Hanayo (Z. Liu et al. 2023): chunks in a wave of Vs over the ranks, fused backwards. At most pp micro-batches at a
 * time go through it, in an order made by playing it: each rank does a backward if it can (of the chunk nearest to the
 * begin), else a forward (of the chunk nearest to the end), a backward taking as long as two forwards. More
 * micro-batches are done group by group, in equal groups, the larger first. */
#include "pipeline/schedules/kinds.h"

enum { NEVER = -1, FORWARD_SLOTS = 1, BACKWARD_SLOTS = 2 };

static const char *refuse_hanayo(Arena *arena, const ScheduleRequest *request) {
  const char *why = refuse_counts(arena, "hanayo", request);
  if (why || request->chunks % 2 == 0) return why;
  const char *below = request->chunks == 1 ? "" : arena_printf(arena, "%d or ", request->chunks - 1);
  return refuse(arena, "hanayo", request,
                arena_printf(arena, "a wave goes down and up again; the nearest that works is chunks = %s%d", below,
                             request->chunks + 1));
}

typedef struct Wave {
  int pp, chunks;
  int64_t count;                     /* micro-batches of the group */
  int64_t *forwards, *backwards;     /* per chunk: done or begun so far */
  int64_t *forward_at, *backward_at; /* per (chunk, micro-batch): the slot after it, or NEVER */
  int64_t *busy_until;               /* per rank */
  pd_action_list *ranks;             /* of one group, its micro-batches from 0 on */
} Wave;

static bool done(const int64_t *at, int64_t index, int64_t slot) {
  return at[index] != NEVER && at[index] <= slot;
}

static bool try_backward(Wave *wave, int rank, int chunk, int64_t slot) {
  int64_t i = wave->backwards[chunk], at = chunk * wave->count + i;
  bool last = chunk == wave->pp * wave->chunks - 1;
  if (i == wave->count || !done(wave->forward_at, at, slot)) return false;
  if (!last && !done(wave->backward_at, at + wave->count, slot)) return false;
  wave->backwards[chunk]++;
  wave->backward_at[at] = wave->busy_until[rank] = slot + BACKWARD_SLOTS;
  action_put(&wave->ranks[rank], PD_B, chunk, i);
  return true;
}

static bool try_forward(Wave *wave, int rank, int chunk, int64_t slot) {
  int64_t i = wave->forwards[chunk], at = chunk * wave->count + i;
  if (i == wave->count || (chunk > 0 && !done(wave->forward_at, at - wave->count, slot))) return false;
  wave->forwards[chunk]++;
  wave->forward_at[at] = wave->busy_until[rank] = slot + FORWARD_SLOTS;
  action_put(&wave->ranks[rank], PD_F, chunk, i);
  return true;
}

/* Chunks of a rank: one in each run of pp. */
static int chunk_of(const Wave *wave, int rank, int run) {
  return run * wave->pp + (run % 2 == 0 ? rank : wave->pp - 1 - rank);
}

static void step(Wave *wave, int rank, int64_t slot) {
  for (int run = 0; run < wave->chunks; run++)
    if (try_backward(wave, rank, chunk_of(wave, rank, run), slot)) return;
  for (int run = wave->chunks - 1; run >= 0; run--)
    if (try_forward(wave, rank, chunk_of(wave, rank, run), slot)) return;
}

/* One group of `count` micro-batches. */
static const pd_action_list *play_group(Arena *arena, const ScheduleRequest *request, int64_t count) {
  int chunks = request->pp * request->chunks;
  Wave wave = {.pp = request->pp, .chunks = request->chunks, .count = count};
  wave.forwards = ARENA_ARRAY(arena, int64_t, chunks);
  wave.backwards = ARENA_ARRAY(arena, int64_t, chunks);
  wave.forward_at = ARENA_ARRAY(arena, int64_t, chunks * count);
  wave.backward_at = ARENA_ARRAY(arena, int64_t, chunks * count);
  for (int64_t i = 0; i < chunks * count; i++) wave.forward_at[i] = wave.backward_at[i] = NEVER;
  wave.busy_until = ARENA_ARRAY(arena, int64_t, request->pp);
  wave.ranks = ARENA_ARRAY(arena, pd_action_list, request->pp);
  int64_t left = 2 * (int64_t)chunks * count;
  for (int rank = 0; rank < request->pp; rank++) actions_reserve(arena, &wave.ranks[rank], 2 * request->chunks * count);
  for (int64_t slot = 0; left > 0; slot++)
    for (int rank = 0; rank < request->pp; rank++) {
      if (wave.busy_until[rank] > slot) continue;
      int64_t before = wave.ranks[rank].count;
      step(&wave, rank, slot);
      left -= wave.ranks[rank].count - before;
    }
  return wave.ranks;
}

static void generate(Arena *arena, const ScheduleRequest *request, pd_action_list *ranks) {
  int64_t m = request->microbatches, groups = (m + request->pp - 1) / request->pp, first = 0, size = 0;
  const pd_action_list *lists = NULL;
  for (int rank = 0; rank < request->pp; rank++) actions_reserve(arena, &ranks[rank], 2 * request->chunks * m);
  for (int64_t group = 0; group < groups; group++) {
    int64_t count = m / groups + (group < m % groups);
    if (count != size) lists = play_group(arena, request, count);
    size = count;
    for (int rank = 0; rank < request->pp; rank++)
      for (int64_t i = 0; i < lists[rank].count; i++) {
        pd_action action = lists[rank].at[i];
        action_put(&ranks[rank], action.kind, action.chunk, first + action.microbatch);
      }
    first += count;
  }
}

const ScheduleKind schedule_hanayo = {
    .name = "hanayo", .refuse = refuse_hanayo, .place = place_v, .generate = generate};
