/* Adds messages and gradient reductions to a compute-only pipeline. The computations are played once; every message
 * becomes one event of that run, and each rank's list is the events it takes part in, in the one global order: of
 * computations by their end. That order is a topological order of the graph in which a send and its receive are one
 * node, so no list can deadlock, even if every send waits for its receive.
 *
 * Where the event lies: not before the message exists; not after the time at which it must cross the link to be there
 * when its receiver needs it, nor after its sender starts the next computation (which a waiting send would delay); and
 * within that as late as the receiver's list lets it be without moving past a computation, because a received tensor
 * occupies memory. So the lists take exactly as long as without messages. Messages of one time go in the order in which
 * they became available, then over alternate links (0-1, 2-3, …, then 1-2, 3-4, …), so that waiting sends do not form a
 * chain along the pipeline.
 *
 * Without a link every order of the computations is as good whatever they cost, and the run has all costs 1. */
#include <stdlib.h>

#include "pipeline/pipeline.h"

enum { PHASE_COMPUTE, PHASE_MESSAGE, PHASE_REDUCE };

typedef struct Event {
  double time, available;
  int phase;
  int link;         /* messages: order among equals */
  int rank, peer;   /* of a message: sender and receiver */
  int64_t index;    /* of a computation: where it stands in its rank's list */
  pd_action action; /* of a message: the SEND */
} Event;

typedef struct Inserter {
  Arena *arena;
  const pd_pipeline *pipeline;
  ScheduleTiming timing;
  double hop;
  int64_t *first_of; /* per rank: where its actions begin in timing */
  double *start[2];  /* of F and of B or I, per (chunk, micro-batch) */
  Event *events;
  int64_t count;
} Inserter;

static bool is_backward(pd_action_kind kind) {
  return kind == PD_B || kind == PD_I;
}

static size_t slot(const Inserter *in, int chunk, int64_t microbatch) {
  return (size_t)chunk * (size_t)in->pipeline->microbatches + (size_t)microbatch;
}

/* 2 * (alternate or not) + …: the order of links among messages of one time. */
static int link_order(int pp, int a, int b) {
  int low = a < b ? a : b, high = a < b ? b : a;
  int index = high != low + 1 && low == 0 && high == pp - 1 ? high : low;
  return (index % 2) * pp + index;
}

static int compare(const void *left, const void *right) {
  const Event *a = left, *b = right;
  if (a->time != b->time) return a->time < b->time ? -1 : 1;
  if (a->phase != b->phase) return a->phase < b->phase ? -1 : 1;
  if (a->available != b->available) return a->available < b->available ? -1 : 1;
  if (a->link != b->link) return a->link < b->link ? -1 : 1;
  if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
  if (a->index != b->index) return a->index < b->index ? -1 : 1;
  if (a->action.kind != b->action.kind) return a->action.kind < b->action.kind ? -1 : 1;
  if (a->action.chunk != b->action.chunk) return a->action.chunk < b->action.chunk ? -1 : 1;
  return (a->action.microbatch > b->action.microbatch) - (a->action.microbatch < b->action.microbatch);
}

/* End of the last computation of `rank` that starts before `time`; 0 if there is none. */
static double end_of_last_before(const Inserter *in, int rank, double time) {
  int64_t first = in->first_of[rank], low = first, high = in->first_of[rank + 1];
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (in->timing.start[middle] < time)
      low = middle + 1;
    else
      high = middle;
  }
  return low == first ? 0 : in->timing.end[low - 1];
}

/* The message that action `index` of `rank` makes for `to`'s chunk, whose computation starts at `needed`. */
static Event *add_message(Inserter *in, int rank, int64_t index, pd_action_kind kind, int to_chunk) {
  const pd_action_list *list = &in->pipeline->ranks[rank];
  pd_action made = list->at[index];
  int64_t here = in->first_of[rank] + index;
  int peer = in->pipeline->rank_of[to_chunk];
  double available = in->timing.end[here];
  double latest = in->start[kind == PD_SEND_B][slot(in, to_chunk, made.microbatch)] - in->hop;
  if (index + 1 < list->count && in->timing.start[here + 1] < latest) latest = in->timing.start[here + 1];
  double time = end_of_last_before(in, peer, latest);
  if (time > latest) time = latest;
  if (time < available) time = available;
  Event *event = &in->events[in->count++];
  *event = (Event){.time = time,
                   .available = available,
                   .phase = PHASE_MESSAGE,
                   .link = link_order(in->pipeline->pp, rank, peer),
                   .rank = rank,
                   .peer = peer,
                   .action = {kind, made.chunk, made.microbatch}};
  return event;
}

/* The reductions of a chunk, one event for all its copies: they add up one sum, each waits for the others. */
typedef struct Reduction {
  int64_t left; /* weight gradients still to come, over all copies */
  double time;  /* when the last of those so far was done */
} Reduction;

static void reduce_chunk(Inserter *in, Reduction *reductions, int chunk, int64_t *left, double done) {
  int layers = chunk % pd_copy_chunks(in->pipeline);
  Reduction *reduction = &reductions[layers];
  reduction->left--;
  if (--*left > 0) return;
  if (done > reduction->time) reduction->time = done;
  if (reduction->left > 0) return;
  int rank = in->pipeline->rank_of[layers];
  in->events[in->count++] = (Event){.time = reduction->time,
                                    .phase = PHASE_REDUCE,
                                    .rank = rank,
                                    .peer = rank,
                                    .action = {PD_REDUCE_GRAD, (int32_t)layers, PD_NO_MICROBATCH}};
}

static void collect(Inserter *in, const bool *gradient_into, bool reduce) {
  const pd_pipeline *pipeline = in->pipeline;
  Reduction *reductions = ARENA_ARRAY(in->arena, Reduction, pd_copy_chunks(pipeline));
  int64_t *left = ARENA_ARRAY(in->arena, int64_t, pipeline->chunk_count);
  for (int chunk = 0; chunk < pipeline->chunk_count; chunk++) {
    left[chunk] = pd_chunk_end(pipeline, chunk) - pd_chunk_first(pipeline, chunk);
    reductions[chunk % pd_copy_chunks(pipeline)].left += left[chunk];
  }
  for (int rank = 0; rank < pipeline->pp; rank++)
    for (int64_t i = 0; i < pipeline->ranks[rank].count; i++) {
      pd_action action = pipeline->ranks[rank].at[i];
      int64_t here = in->first_of[rank] + i;
      int chunk = action.chunk, before = pd_chunk_before(pipeline, chunk), after = pd_chunk_after(pipeline, chunk);
      double done = in->timing.end[here];
      in->events[in->count++] =
          (Event){.time = done, .phase = PHASE_COMPUTE, .rank = rank, .peer = rank, .index = i, .action = action};
      if (action.kind == PD_F && after != PD_NO_CHUNK && pipeline->rank_of[after] != rank)
        add_message(in, rank, i, PD_SEND_F, after);
      if (is_backward(action.kind) && before != PD_NO_CHUNK && pipeline->rank_of[before] != rank &&
          gradient_into[chunk])
        done = add_message(in, rank, i, PD_SEND_B, before)->time;
      if (reduce && (action.kind == PD_B || action.kind == PD_W))
        reduce_chunk(in, reductions, chunk, &left[chunk], done);
    }
}

static void put(pd_action_list *list, pd_action action) {
  list->at[list->count++] = action;
}

/* Every rank's list from the events in order. */
static const pd_action_list *deal(const Inserter *in) {
  const pd_pipeline *pipeline = in->pipeline;
  pd_action_list *lists = ARENA_ARRAY(in->arena, pd_action_list, pipeline->pp);
  int layers = pd_copy_chunks(pipeline);
  for (int64_t i = 0; i < in->count; i++) {
    lists[in->events[i].rank].count++;
    if (in->events[i].peer != in->events[i].rank) lists[in->events[i].peer].count++;
  }
  for (int chunk = layers; chunk < pipeline->chunk_count; chunk++) lists[pipeline->rank_of[chunk]].count++;
  for (int rank = 0; rank < pipeline->pp; rank++) {
    lists[rank].at = ARENA_ARRAY(in->arena, pd_action, lists[rank].count);
    lists[rank].count = 0;
  }
  for (int64_t i = 0; i < in->count; i++) {
    const Event *event = &in->events[i];
    pd_action action = event->action;
    put(&lists[event->rank], action);
    if (event->phase == PHASE_MESSAGE) {
      bool forward = action.kind == PD_SEND_F;
      put(&lists[event->peer],
          (pd_action){forward ? PD_RECV_F : PD_RECV_B, action.chunk + (forward ? 1 : -1), action.microbatch});
    }
    for (int chunk = action.chunk + layers; event->phase == PHASE_REDUCE && chunk < pipeline->chunk_count;
         chunk += layers)
      put(&lists[pipeline->rank_of[chunk]], (pd_action){PD_REDUCE_GRAD, chunk, PD_NO_MICROBATCH});
  }
  return lists;
}

/* Plays the computations, with the costs if they are given and a hop takes any time beside them. */
static bool play(Inserter *in, const ScheduleCosts *costs) {
  const pd_pipeline *pipeline = in->pipeline;
  const char *why;
  if (costs && costs->link > 0) {
    in->hop = costs->link;
    if (!schedule_simulate(in->arena, pipeline, costs, &in->timing, &why)) return false;
    if (costs->link > 1e-9 * in->timing.makespan) return true;
  }
  double *ones = ARENA_ARRAY(in->arena, double, pipeline->chunk_count);
  for (int chunk = 0; chunk < pipeline->chunk_count; chunk++) ones[chunk] = 1;
  in->hop = 0;
  return schedule_simulate(in->arena, pipeline, &(ScheduleCosts){ones, ones, ones, 0}, &in->timing, &why);
}

void schedule_insert_communication(Arena *arena, pd_pipeline *pipeline, const bool *gradient_into, bool reduce) {
  schedule_insert_timed_communication(arena, pipeline, NULL, gradient_into, reduce);
}

void schedule_insert_timed_communication(Arena *arena, pd_pipeline *pipeline, const ScheduleCosts *costs,
                                         const bool *gradient_into, bool reduce) {
  Inserter in = {.arena = arena, .pipeline = pipeline};
  if (!play(&in, costs)) return;
  in.first_of = ARENA_ARRAY(arena, int64_t, pipeline->pp + 1);
  for (int k = 0; k < 2; k++)
    in.start[k] = ARENA_ARRAY(arena, double, (int64_t)pipeline->chunk_count * pipeline->microbatches);
  for (int rank = 0; rank < pipeline->pp; rank++) {
    const pd_action_list *list = &pipeline->ranks[rank];
    in.first_of[rank + 1] = in.first_of[rank] + list->count;
    for (int64_t i = 0; i < list->count; i++) {
      pd_action action = list->at[i];
      if (action.kind == PD_F || is_backward(action.kind))
        in.start[is_backward(action.kind)][slot(&in, action.chunk, action.microbatch)] =
            in.timing.start[in.first_of[rank] + i];
    }
  }
  /* an action makes at most one message; a chunk has one reduction */
  in.events = arena_alloc(arena, sizeof(Event) * (size_t)(2 * in.first_of[pipeline->pp] + pipeline->chunk_count));
  collect(&in, gradient_into, (reduce || pipeline->copies > 1) && pipeline->step == 0);
  qsort(in.events, (size_t)in.count, sizeof(Event), compare);
  pipeline->ranks = deal(&in);
}
