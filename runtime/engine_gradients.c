/* Gradients of parameters once a rank has its own: summed over the uses of a tied parameter, and over replicas.
 *
 * Buckets start in the order of the layout, which is the order in which they become final, the same on every member of
 * the communicator. Two may be under way at once; a later one that is final waits its turn while the list goes on, so
 * reductions hide behind what is left to compute. Only the end of the step waits for them. Tied parameters come last,
 * after their slots have been summed. */
#include <string.h>

#include "engine_state.h"

static const pd_bucket *bucket_at(const pd_engine *engine, int b) {
  return &engine->layout->buckets[b];
}

void pd_engine_open_buckets(pd_engine *engine) {
  engine->next_bucket = engine->final_buckets = 0;
  engine->buckets_open = engine->world->dp > 1;
}

static void finish_reduction(pd_engine *engine, pd_reduction *reduction) {
  if (pd_reduction_test(reduction)) return;
  pd_engine_show(engine, "the gradients of the other replicas", PD_NONE);
  pd_reduction_finish(reduction);
  pd_engine_show(engine, NULL, PD_NONE);
}

static void start_next_bucket(pd_engine *engine) {
  int b = engine->next_bucket++;
  pd_reduction *reduction = &engine->reductions[b % 2];
  finish_reduction(engine, reduction);
  reduction->x = engine->memory + bucket_at(engine, b)->offset;
  reduction->n = bucket_at(engine, b)->elements;
  reduction->tag = b % 2 * 2;
  pd_reduction_start(reduction);
}

/* Starts what is final and has a place to go. Never waits. */
static void start_final_buckets(pd_engine *engine) {
  while (engine->next_bucket < engine->final_buckets && pd_reduction_test(&engine->reductions[engine->next_bucket % 2])) {
    start_next_bucket(engine);
  }
}

void pd_engine_unit_is_final(pd_engine *engine, int chunk, int64_t unit) {
  if (!engine->buckets_open) return;
  while (engine->final_buckets < engine->layout->bucket_count) {
    const pd_bucket *bucket = bucket_at(engine, engine->final_buckets);
    if (bucket->chunk != chunk || bucket->unit < unit) break;
    engine->final_buckets++;
  }
  start_final_buckets(engine);
}

void pd_engine_progress_buckets(pd_engine *engine) {
  pd_reduction_test(&engine->reductions[0]);
  pd_reduction_test(&engine->reductions[1]);
  start_final_buckets(engine);
}

void pd_engine_reduce_chunk(pd_engine *engine, int chunk) {
  if (!engine->buckets_open) return;
  for (int b = engine->final_buckets; b < engine->layout->bucket_count; b++) {
    if (bucket_at(engine, b)->chunk == chunk) engine->final_buckets = b + 1;
  }
  pd_engine_progress_buckets(engine);
}

/* ---- tied parameters ---- */

static bool holds(const pd_tied_plan *tied, int rank) {
  for (int i = 0; i < tied->slot_count; i++) {
    if (tied->slots[i].rank == rank) return true;
  }
  return false;
}

/* All holders have their slots' bytes first .. first+bytes-1 exchanged and summed in slot order. Sends are all under
 * way before the first receive is waited for. */
static void sum_piece(pd_engine *engine, const pd_tied_plan *tied, int64_t first, int64_t bytes) {
  const pd_layout *layout = engine->layout;
  const MPI_Comm pipe = engine->world->pipe;
  int tag = engine->pipeline->chunk_count * PD_MAX_WIRES * 2; /* those below belong to wires */
  char *sum = engine->memory + layout->tied_sum, *received = engine->memory + layout->tied_receive;
  int sends = 0;
  for (int i = 0; i < tied->slot_count; i++) {
    for (int rank = 0; rank < engine->world->pp && tied->slots[i].rank == layout->pp_rank; rank++) {
      if (rank == layout->pp_rank || !holds(tied, rank)) continue;
      pd_send_start(pipe, engine->memory + tied->slots[i].at + first, bytes, rank, tag + i,
                    &engine->tied_requests[sends++]);
    }
  }
  for (int i = 0; i < tied->slot_count; i++) {
    bool mine = tied->slots[i].rank == layout->pp_rank;
    char *at = mine ? engine->memory + tied->slots[i].at + first : i == 0 ? sum : received;
    if (!mine) {
      MPI_Request request;
      pd_receive_start(pipe, at, bytes, tied->slots[i].rank, tag + i, &request);
      pd_engine_wait(engine, &request, 1, "a tied gradient from", tied->slots[i].rank);
    }
    if (i == 0 && mine) memcpy(sum, at, (size_t)bytes);
    if (i > 0) pd_engine_add(engine, bytes / engine->program->real_bytes, at, sum);
  }
  pd_engine_wait(engine, engine->tied_requests, sends, "its tied gradients to be received by the others", PD_NONE);
  memcpy(engine->memory + tied->gradients + first, sum, (size_t)bytes);
}

static void sum_tied(pd_engine *engine, const pd_tied_plan *tied) {
  const int64_t bytes = engine->program->params[tied->param].elements * engine->program->real_bytes;
  bool shared = false;
  for (int i = 0; i < tied->slot_count; i++) shared = shared || tied->slots[i].rank != engine->layout->pp_rank;
  if (!shared) { /* the first slot is here and gets the sum */
    for (int i = 1; i < tied->slot_count; i++) {
      pd_engine_add(engine, bytes / engine->program->real_bytes, engine->memory + tied->slots[i].at,
                    engine->memory + tied->gradients);
    }
    return;
  }
  for (int64_t first = 0; first < bytes; first += engine->layout->tied_piece) {
    int64_t rest = bytes - first;
    sum_piece(engine, tied, first, rest < engine->layout->tied_piece ? rest : engine->layout->tied_piece);
  }
}

void pd_engine_finish_gradients(pd_engine *engine) {
  for (int t = 0; t < engine->layout->tied_count; t++) {
    if (engine->layout->tied[t].gradients != PD_NONE) sum_tied(engine, &engine->layout->tied[t]);
  }
  if (!engine->buckets_open) return;
  while (engine->next_bucket < engine->layout->bucket_count) start_next_bucket(engine);
  finish_reduction(engine, &engine->reductions[0]);
  finish_reduction(engine, &engine->reductions[1]);
  engine->buckets_open = false;
}
