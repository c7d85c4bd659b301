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

/* The gradient is the sum of the first and the second half of the micro-batches. */
static void add_halves(pd_engine *engine, const pd_unit_plan *unit) {
  const int64_t elements = engine->program->segments[unit->segment].trained_elements;
  if (engine->layout->sums < 2 || unit->gradients == PD_NONE) return;
  char *first = engine->memory + unit->gradients;
  pd_device_add(engine->device, true, elements, first + engine->layout->sum_bytes, first);
}

void pd_engine_unit_is_final(pd_engine *engine, const pd_chunk_plan *plan, const pd_unit_plan *unit) {
  add_halves(engine, unit);
  if (!engine->buckets_open || engine->pipeline->copies > 1) return; /* of two copies, once they have been added */
  int end = engine->next_bucket;
  while (end < engine->layout->bucket_count) {
    const pd_bucket *bucket = bucket_at(engine, end);
    if (bucket->chunk != plan->chunk || bucket->unit < unit->unit) break;
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

/* Slots first .. end - 1 of a tied parameter, in one of the sums over micro-batches, added up in their order. */
typedef struct series {
  int first, end;
  int64_t sum; /* bytes from the first sum */
} series;

/* The series that make the gradient: 1, or 2 that are added afterwards. Where one copy of the model goes on with the
 * sums of the other, both have the same in the end, and the first copy's slots are enough. */
static int series_of(const pd_engine *engine, const pd_tied_plan *tied, series out[2]) {
  const int copies = engine->pipeline->copies > 1 ? engine->pipeline->copies : 1, each = tied->slot_count / copies;
  const bool halves = engine->pipeline->accumulators > 1;
  out[0] = (series){0, tied->used ? each : tied->slot_count, 0};
  out[1] = copies > 1 ? (series){each, 2 * each, 0} : (series){0, each, engine->layout->sum_bytes};
  return halves && tied->used ? 2 : 1;
}

static bool is_here(const pd_engine *engine, const pd_tied_plan *tied, int slot) {
  return tied->slots[slot].rank == engine->layout->pp_rank;
}

/* Bytes first .. first+bytes-1 of a series added up into `sum` on all holders, who exchange them. */
static void sum_series(pd_engine *engine, const pd_tied_plan *tied, series which, int64_t first, int64_t bytes,
                       char *sum) {
  const pd_layout *layout = engine->layout;
  pd_device *device = engine->device;
  char *received = engine->memory + layout->tied_receive;
  for (int i = which.first; i < which.end; i++) {
    const bool mine = is_here(engine, tied, i), begins = i == which.first;
    char *at = mine ? engine->memory + tied->slots[i].at + which.sum + first : begins ? sum : received;
    for (int rank = 0; rank < engine->world->pp && mine; rank++) {
      if (rank != layout->pp_rank && holds(tied, rank)) pd_device_tied_send(device, i, at, bytes, rank);
    }
    if (!mine) {
      pd_engine_show(engine, "a tied gradient from", tied->slots[i].rank);
      pd_device_tied_receive(device, i, at, bytes, tied->slots[i].rank);
      pd_engine_show(engine, NULL, PD_NONE);
    }
    if (begins && mine) pd_device_copy(device, sum, at, bytes);
    if (!begins) pd_device_add(device, true, bytes / pd_wide_bytes(engine->program), at, sum);
  }
  pd_engine_show(engine, "its tied gradients to be received by the others", PD_NONE);
  pd_device_tied_wait(device);
  pd_engine_show(engine, NULL, PD_NONE);
}

/* `bytes` of the gradient from byte `first` on, on all ranks that hold the parameter. */
static void sum_piece(pd_engine *engine, const pd_tied_plan *tied, int64_t first, int64_t bytes) {
  series all[2];
  const int count = series_of(engine, tied, all);
  char *sums[2] = {engine->memory + engine->layout->tied_sum[0], engine->memory + engine->layout->tied_sum[1]};
  for (int k = 0; k < count; k++) sum_series(engine, tied, all[k], first, bytes, sums[k]);
  if (count > 1) pd_device_add(engine->device, true, bytes / pd_wide_bytes(engine->program), sums[1], sums[0]);
  pd_device_copy(engine->device, engine->memory + tied->gradients + first, sums[0], bytes);
}

/* All slots are here: each series into its first slot, which of the first series is where the gradient goes. */
static void sum_here(pd_engine *engine, const pd_tied_plan *tied, int64_t elements) {
  series all[2];
  const int count = series_of(engine, tied, all);
  char *begin[2] = {NULL, NULL};
  for (int k = 0; k < count; k++) {
    begin[k] = engine->memory + tied->slots[all[k].first].at + all[k].sum;
    for (int i = all[k].first + 1; i < all[k].end; i++) {
      pd_device_add(engine->device, true, elements, engine->memory + tied->slots[i].at + all[k].sum, begin[k]);
    }
  }
  if (count > 1) pd_device_add(engine->device, true, elements, begin[1], begin[0]);
}

static void sum_tied(pd_engine *engine, const pd_tied_plan *tied) {
  const int64_t elements = engine->program->params[tied->param].elements;
  const int64_t bytes = elements * pd_wide_bytes(engine->program);
  bool shared = false;
  for (int i = 0; i < tied->slot_count; i++) shared = shared || !is_here(engine, tied, i);
  if (!shared) {
    sum_here(engine, tied, elements);
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
