/* ZB-V (Qi et al. 2024, pipeline parallelism with controllable memory; the hand-made order of PyTorch): two chunks a
 * rank in a V, so that the first and the last chunk share rank 0. Zero bubble between first and last action at equal
 * costs with pp micro-batches in flight. Below 2 pp - 1 micro-batches the order for 2 pp - 1 is taken and what does not
 * exist is left out. */
#include "pipeline/schedules/kinds.h"

static const char *refuse_zb_v(Arena *arena, const ScheduleRequest *request) {
  return refuse_v(arena, "zb-v", request);
}

typedef struct Rank { /* the list of one rank while it is made */
  pd_action_list *list;
  int64_t chunk[2];   /* chunk ids: down and up the V */
  int64_t next[2][3]; /* per chunk, for F, I, W: the next micro-batch */
  int64_t microbatches;
} Rank;

static void put(Rank *rank, pd_action_kind kind, int which) {
  int64_t *next = &rank->next[which][kind == PD_F ? 0 : kind == PD_I ? 1 : 2];
  if (*next < rank->microbatches) action_put(rank->list, kind, rank->chunk[which], *next);
  ++*next;
}

static void put_backward(Rank *rank, int which) {
  put(rank, PD_I, which);
  put(rank, PD_W, which);
}

static void generate(Arena *arena, const ScheduleRequest *request, pd_action_list *ranks) {
  int64_t p = request->pp, m = request->microbatches, count = m > 2 * p - 1 ? m : 2 * p - 1;
  for (int r = 0; r < p; r++) {
    actions_reserve(arena, &ranks[r], 6 * m);
    Rank rank = {.list = &ranks[r], .chunk = {r, 2 * p - 1 - r}, .microbatches = m};
    for (int64_t i = 0; i < 2 * (p - r) - 1; i++) put(&rank, PD_F, 0);
    for (int64_t i = 0; i < r; i++) put(&rank, PD_F, 1), put(&rank, PD_F, 0);
    for (int64_t i = 0; i < p - r; i++) put(&rank, PD_F, 1), put_backward(&rank, 1);
    for (int64_t i = 0; i < count - p; i++) {
      put(&rank, PD_F, 0); /* nothing when all are done */
      put_backward(&rank, 0);
      put(&rank, PD_F, 1);
      put_backward(&rank, 1);
    }
    for (int64_t i = 0; i < r; i++) put(&rank, PD_I, 0), put(&rank, PD_I, 1);
    for (int64_t i = 0; i < p - r; i++) put_backward(&rank, 0);
    for (int which = 1; which >= 0; which--)
      while (rank.next[which][2] < m) put(&rank, PD_W, which);
  }
}

static const char *const aliases[] = {"zbv", NULL};
const ScheduleKind schedule_zb_v = {
    .name = "zb-v", .aliases = aliases, .refuse = refuse_zb_v, .place = place_v, .generate = generate, .split = true};
