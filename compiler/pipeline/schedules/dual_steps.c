/* The eight steps that DualPipe and DualPipeV share (DeepSeek-AI 2024, DeepSeek-V3 technical report; the order of the
 * code they published). A rank has two chunks that micro-batches meet in opposite directions: phase 0, whose chunk lies
 * nearer to the model's begin, and phase 1. In the middle a forward of one phase and a backward of the other come in
 * pairs, meant to be computed together; the list has the forward first, and either may begin when it can. */
#include "pipeline/schedules/kinds.h"

typedef struct Rank { /* the list of one rank while it is made */
  pd_action_list *list;
  const DualPhase *phase;
  int64_t forwards[2], backwards[2]; /* done so far */
  pd_action *queue;                  /* weight gradients to come, first in first out */
  int64_t queued, taken;
} Rank;

static void forward(Rank *rank, int phase) {
  const DualPhase *at = &rank->phase[phase];
  action_put(rank->list, PD_F, at->chunk, at->first + rank->forwards[phase]++);
}

static void backward(Rank *rank, int phase, bool split) {
  const DualPhase *at = &rank->phase[phase];
  int64_t microbatch = at->first + rank->backwards[phase]++;
  action_put(rank->list, split ? PD_I : PD_B, at->chunk, microbatch);
  if (split) rank->queue[rank->queued++] = (pd_action){PD_W, (int32_t)at->chunk, (int32_t)microbatch};
}

static void weight(Rank *rank) {
  pd_action next = rank->queue[rank->taken++];
  action_put(rank->list, next.kind, next.chunk, next.microbatch);
}

static void pair(Rank *rank, int forwards, int backwards) {
  forward(rank, forwards);
  backward(rank, backwards, false);
}

void generate_dual_steps(Arena *arena, const DualPhase phase[2], int64_t count, int64_t depth, int64_t r,
                         pd_action_list *list) {
  actions_reserve(arena, list, 6 * count);
  Rank rank = {.list = list, .phase = phase, .queue = ARENA_ARRAY(arena, pd_action, 2 * count)};
  int64_t before = depth - 1 - r; /* ranks between this one and the turn */
  for (int64_t i = 0; i < 2 * before; i++) forward(&rank, 0);
  for (int64_t i = 0; i < r + 1; i++) forward(&rank, 0), forward(&rank, 1);
  for (int64_t i = 0; i < before; i++) backward(&rank, 1, true), weight(&rank), forward(&rank, 1);
  for (int64_t i = 0; i < count - 2 * depth + r + 1; i++) pair(&rank, 0, 1), pair(&rank, 1, 0);
  for (int64_t i = 0; i < before; i++) backward(&rank, 1, false), pair(&rank, 1, 0);
  for (int64_t i = 0; i < 2 * (r + 1); i++) backward(&rank, i % 2 == 0, i > r); /* the second half is split */
  for (int64_t i = 0; i < before; i++) weight(&rank), backward(&rank, 0, true);
  for (int64_t i = 0; i < r + 1; i++) weight(&rank);
}
