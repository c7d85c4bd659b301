/* Gradients of parameters once a rank has its own: summed over the uses of a tied parameter, and over replicas.
 *
 * Buckets start in the order of the layout, which is the order in which they become final, the same on every member of
 * the communicator. One that is final is the device's from then on, and hides behind what is left to compute; only the
 * end of the step waits for them. Tied parameters come last, after their slots have been summed. */
#include "engine_state.h"

static const pd_bucket *bucket_at(const pd_engine *engine, int b) {
  return &engine->layout->buckets[b];
}

void pd_engine_open_buckets(pd_engine *engine) {
  engine->next_bucket = 0;
  engine->buckets_open = engine->world->dp > 1;
}

/* Buckets before number `end` are final. */
static void reduce_until(pd_engine *engine, int end) {
  while (engine->next_bucket < end) pd_device_reduce(engine->device, engine->next_bucket++);
}

void pd_engine_unit_is_final(pd_engine *engine, int chunk, int64_t unit) {
  if (!engine->buckets_open) return;
  int end = engine->next_bucket;
  while (end < engine->layout->bucket_count) {
    const pd_bucket *bucket = bucket_at(engine, end);
    if (bucket->chunk != chunk || bucket->unit < unit) break;
    end++;
  }
  reduce_until(engine, end);
}

void pd_engine_reduce_chunk(pd_engine *engine, int chunk) {
  if (!engine->buckets_open) return;
  for (int b = engine->next_bucket; b < engine->layout->bucket_count; b++) {
    if (bucket_at(engine, b)->chunk == chunk) reduce_until(engine, b + 1);
  }
}

/* ---- tied parameters ---- */

static bool holds(const pd_tied_plan *tied, int rank) {
  for (int i = 0; i < tied->slot_count; i++) {
    if (tied->slots[i].rank == rank) return true;
  }
  return false;
}

/* All holders have their slots' bytes first .. first+bytes-1 exchanged and summed in slot order. */
static void sum_piece(pd_engine *engine, const pd_tied_plan *tied, int64_t first, int64_t bytes) {
  const pd_layout *layout = engine->layout;
  pd_device *device = engine->device;
  char *sum = engine->memory + layout->tied_sum, *received = engine->memory + layout->tied_receive;
  for (int i = 0; i < tied->slot_count; i++) {
    bool mine = tied->slots[i].rank == layout->pp_rank;
    char *at = mine ? engine->memory + tied->slots[i].at + first : i == 0 ? sum : received;
    for (int rank = 0; rank < engine->world->pp && mine; rank++) {
      if (rank != layout->pp_rank && holds(tied, rank)) pd_device_tied_send(device, i, at, bytes, rank);
    }
    if (!mine) {
      pd_engine_show(engine, "a tied gradient from", tied->slots[i].rank);
      pd_device_tied_receive(device, i, at, bytes, tied->slots[i].rank);
      pd_engine_show(engine, NULL, PD_NONE);
    }
    if (i == 0 && mine) pd_device_copy(device, sum, at, bytes);
    if (i > 0) pd_device_add(device, true, bytes / pd_wide_bytes(engine->program), at, sum);
  }
  pd_engine_show(engine, "its tied gradients to be received by the others", PD_NONE);
  pd_device_tied_wait(device);
  pd_engine_show(engine, NULL, PD_NONE);
  pd_device_copy(device, engine->memory + tied->gradients + first, sum, bytes);
}

static void sum_tied(pd_engine *engine, const pd_tied_plan *tied) {
  const int64_t bytes = engine->program->params[tied->param].elements * pd_wide_bytes(engine->program);
  bool shared = false;
  for (int i = 0; i < tied->slot_count; i++) shared = shared || tied->slots[i].rank != engine->layout->pp_rank;
  if (!shared) { /* the first slot is here and gets the sum */
    for (int i = 1; i < tied->slot_count; i++) {
      pd_device_add(engine->device, true, bytes / pd_wide_bytes(engine->program), engine->memory + tied->slots[i].at,
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
  reduce_until(engine, engine->layout->bucket_count);
  if (!pd_device_reduce_ready(engine->device)) pd_engine_show(engine, "the gradients of the other replicas", PD_NONE);
  pd_device_reduce_wait(engine->device);
  pd_engine_show(engine, NULL, PD_NONE);
  engine->buckets_open = false;
}
