/* Two ways to make an order: along a table, and by playing. The play is driven by events: it always looks at the rank
 * that can act first, the lowest of several; a rank that has nothing to do is woken by what arrives. Everything that
 * decides is in the arguments, so that the same arguments give the same lists. */
#include "pipeline/orders.h"

#include <math.h>

#include "pipeline/schedules/kinds.h"

void order_along_table(Arena *arena, const ScheduleRequest *request, const int64_t *ahead, const int64_t *delay,
                       pd_action_list *ranks) {
  OrderTable table = order_table(arena, request, 0);
  int64_t p = request->pp, v = request->chunks;
  for (int rank = 0; rank < p; rank++) {
    pd_action_list *list = &ranks[rank];
    actions_reserve(arena, list, 3 * table.count);
    int64_t forward = 0, weight = 0;
    for (int64_t j = 0; j < table.count; j++) {
      for (; forward < table.count && forward <= ahead[rank] + j; forward++)
        action_put(list, PD_F, table.at[forward].chunk * p + rank, table.at[forward].microbatch);
      action_put(list, PD_I, (v - 1 - table.at[j].chunk) * p + rank, table.at[j].microbatch);
      for (; weight + delay[rank] <= j; weight++)
        action_put(list, PD_W, (v - 1 - table.at[weight].chunk) * p + rank, table.at[weight].microbatch);
    }
    for (; weight < table.count; weight++)
      action_put(list, PD_W, (v - 1 - table.at[weight].chunk) * p + rank, table.at[weight].microbatch);
  }
}

/* ---- by playing ---- */

typedef struct Chunk {
  int rank, before, after;
  int64_t first, end;                  /* its micro-batches */
  int64_t forwards, inputs;            /* the next of each */
  int64_t above;                       /* later chunks of the same rank */
  double *forward_there, *input_there; /* per micro-batch: when what it needs is on the rank; INFINITY: not known yet */
} Chunk;

typedef struct Rank {
  pd_action_list *list;
  int *chunks; /* ascending */
  int chunk_count;
  int64_t cap, held;
  pd_action *weights; /* to come, first in first out */
  int64_t queued, taken;
  double free_at;
  bool did_backward; /* the last computation that was not a weight gradient */
} Rank;

typedef struct Play {
  const pd_pipeline *shape;
  const ScheduleCosts *costs;
  OrderPolicy policy;
  Chunk *chunks;
  Rank *ranks;
  int64_t left; /* actions still to do */
  /* when to look at each rank again, and a tree of who is first: leaf `leaves` + r is rank r, a node the first of its
   * two children, the left one of equals; node 1 is the first of all */
  double *wake_at;
  int *first, leaves;
} Play;

static void set_wake(Play *play, int rank, double time) {
  play->wake_at[rank] = time;
  for (int node = (play->leaves + rank) / 2; node > 0; node /= 2) {
    int left = play->first[2 * node], right = play->first[2 * node + 1];
    play->first[node] = play->wake_at[right] < play->wake_at[left] ? right : left;
  }
}

static void arrive(Play *play, int chunk, double time) {
  int rank = play->chunks[chunk].rank;
  if (time < play->ranks[rank].free_at) time = play->ranks[rank].free_at;
  if (time < play->wake_at[rank]) set_wake(play, rank, time);
}

/* A computation begins at `now`. */
static void run(Play *play, pd_action action, double now) {
  Chunk *chunk = &play->chunks[action.chunk];
  Rank *rank = &play->ranks[chunk->rank];
  action_put(rank->list, action.kind, action.chunk, action.microbatch);
  play->left--;
  double cost = action.kind == PD_F   ? play->costs->f[action.chunk]
                : action.kind == PD_I ? play->costs->i[action.chunk]
                                      : play->costs->w[action.chunk];
  rank->free_at = now + cost;
  set_wake(play, chunk->rank, rank->free_at);
  int64_t at = action.microbatch - chunk->first;
  int next = action.kind == PD_F ? chunk->after : action.kind == PD_I ? chunk->before : PD_NO_CHUNK;
  double there = rank->free_at;
  if (next != PD_NO_CHUNK && play->chunks[next].rank != chunk->rank) there += play->costs->link;
  switch (action.kind) {
  case PD_F:
    chunk->forwards++;
    rank->held++;
    rank->did_backward = false;
    if (next != PD_NO_CHUNK) play->chunks[next].forward_there[at] = there;
    break;
  case PD_I:
    chunk->inputs++;
    rank->did_backward = true;
    rank->weights[rank->queued++] = (pd_action){PD_W, action.chunk, action.microbatch};
    if (next != PD_NO_CHUNK) play->chunks[next].input_there[at] = there;
    break;
  default:
    rank->held--;
    break;
  }
  if (next != PD_NO_CHUNK) arrive(play, next, there);
}

typedef struct Options { /* what a rank could do */
  int backward, forward; /* chunks, or PD_NO_CHUNK */
  bool no_room;          /* some forward is ready, but there is no room for it */
  double next;           /* the earliest known arrival of something else */
} Options;

static bool better_forward(const Play *play, int chunk, int than) {
  if (than == PD_NO_CHUNK || play->policy.deep_first) return true; /* chunks are looked at in ascending order */
  return play->chunks[chunk].forwards < play->chunks[than].forwards;
}

static Options look(const Play *play, const Rank *rank, double now) {
  Options options = {PD_NO_CHUNK, PD_NO_CHUNK, false, INFINITY};
  double since = INFINITY;
  for (int k = 0; k < rank->chunk_count; k++) {
    const Chunk *chunk = &play->chunks[rank->chunks[k]];
    if (chunk->inputs < chunk->forwards) {
      double there = chunk->input_there[chunk->inputs - chunk->first];
      if (there > now && there < options.next) options.next = there;
      if (there <= now && there < since) since = there, options.backward = rank->chunks[k];
    }
    if (chunk->forwards == chunk->end) continue;
    double there = chunk->forward_there[chunk->forwards - chunk->first];
    if (there > now) {
      if (there < options.next) options.next = there;
    } else if (rank->held + 1 + chunk->above > rank->cap) {
      options.no_room = true;
    } else if (better_forward(play, rank->chunks[k], options.forward)) {
      options.forward = rank->chunks[k];
    }
  }
  return options;
}

static void act(Play *play, int index) {
  Rank *rank = &play->ranks[index];
  double now = play->wake_at[index];
  Options options = look(play, rank, now);
  bool forward = options.forward != PD_NO_CHUNK, backward = options.backward != PD_NO_CHUNK;
  if (forward && backward) forward = !play->policy.backward_first && rank->did_backward;
  if (forward) {
    run(play, (pd_action){PD_F, options.forward, (int32_t)play->chunks[options.forward].forwards}, now);
  } else if (backward) {
    run(play, (pd_action){PD_I, options.backward, (int32_t)play->chunks[options.backward].inputs}, now);
  } else {
    bool due = rank->taken < rank->queued;
    pd_action weight = due ? rank->weights[rank->taken] : (pd_action){PD_W, 0, 0};
    double least = play->policy.patience * play->costs->w[weight.chunk];
    if (!due || (!options.no_room && options.next - now < least)) {
      set_wake(play, index, options.next);
      return;
    }
    rank->taken++;
    run(play, weight, now);
  }
}

static void prepare(Arena *arena, Play *play, const int64_t *cap, pd_action_list *ranks) {
  const pd_pipeline *shape = play->shape;
  play->chunks = ARENA_ARRAY(arena, Chunk, shape->chunk_count);
  play->ranks = ARENA_ARRAY(arena, Rank, shape->pp);
  int64_t *actions = ARENA_ARRAY(arena, int64_t, shape->pp);
  for (int rank = 0; rank < shape->pp; rank++) {
    play->ranks[rank] = (Rank){.list = &ranks[rank], .cap = cap[rank]};
    play->ranks[rank].chunks = ARENA_ARRAY(arena, int, shape->chunk_count);
  }
  for (int c = 0; c < shape->chunk_count; c++) {
    Chunk *chunk = &play->chunks[c];
    Rank *rank = &play->ranks[shape->rank_of[c]];
    *chunk = (Chunk){.rank = shape->rank_of[c],
                     .before = pd_chunk_before(shape, c),
                     .after = pd_chunk_after(shape, c),
                     .first = pd_chunk_first(shape, c),
                     .end = pd_chunk_end(shape, c)};
    chunk->forwards = chunk->inputs = chunk->first;
    int64_t count = chunk->end - chunk->first;
    chunk->forward_there = ARENA_ARRAY(arena, double, count);
    chunk->input_there = ARENA_ARRAY(arena, double, count);
    for (int64_t i = 0; i < count; i++) {
      chunk->forward_there[i] = chunk->before == PD_NO_CHUNK ? 0 : INFINITY;
      chunk->input_there[i] = chunk->after == PD_NO_CHUNK ? 0 : INFINITY;
    }
    for (int k = 0; k < rank->chunk_count; k++) play->chunks[rank->chunks[k]].above++;
    rank->chunks[rank->chunk_count++] = c;
    actions[chunk->rank] += 3 * count;
    play->left += 3 * count;
  }
  play->leaves = 1;
  while (play->leaves < shape->pp) play->leaves *= 2;
  play->first = ARENA_ARRAY(arena, int, 2 * play->leaves);
  play->wake_at = ARENA_ARRAY(arena, double, play->leaves);
  for (int leaf = 0; leaf < play->leaves; leaf++) play->first[play->leaves + leaf] = leaf;
  for (int leaf = play->leaves - 1; leaf >= 0; leaf--) set_wake(play, leaf, leaf < shape->pp ? 0 : INFINITY);
  for (int rank = 0; rank < shape->pp; rank++) {
    actions_reserve(arena, &ranks[rank], actions[rank]);
    play->ranks[rank].weights = ARENA_ARRAY(arena, pd_action, actions[rank] / 3);
  }
}

bool order_by_playing(Arena *arena, const pd_pipeline *shape, const ScheduleCosts *costs, const int64_t *cap,
                      OrderPolicy policy, pd_action_list *ranks) {
  Play play = {.shape = shape, .costs = costs, .policy = policy};
  prepare(arena, &play, cap, ranks);
  while (play.left > 0) {
    int first = play.first[1];
    if (isinf(play.wake_at[first])) return false;
    act(&play, first);
  }
  return true;
}
