/* Weights that change within a list: which version a micro-batch uses, and the update that makes the next.
 *
 * A micro-batch's backward uses the version that its forward used. All versions of a rank have one size and lie one
 * after the other; a new one is written over one that nobody needs any more. Without a delay a forward takes the newest
 * version of its rank. With a delay d it takes the one from before the last d of the updates that precede its own on
 * every rank, lists before this one included, so the rank keeps the last d + 1, each at its number modulo d + 1. */
#include <stdlib.h>
#include <string.h>

#include "engine_state.h"

static void *allocate(int64_t count, size_t size) {
  void *block = calloc((size_t)count + 1, size);
  if (block == NULL) pd_fail(PD_EXIT_MEMORY, "out of memory");
  return block;
}

/* What updates within a list take for granted: one chunk a rank, and nothing that several ranks sum up. */
static void check_plan(const pd_engine *engine) {
  const pd_pipeline *pipeline = engine->pipeline;
  bool good = pipeline->microbatches % pipeline->step == 0 && engine->layout->chunk_count == 1;
  for (int t = 0; t < engine->layout->tied_count; t++) {
    const pd_tied_plan *tied = &engine->layout->tied[t];
    for (int i = 0; i < tied->slot_count && tied->gradients != PD_NONE; i++) {
      good = good && tied->slots[i].rank == engine->layout->pp_rank;
    }
  }
  if (!good) pd_fail(PD_EXIT_PLAN, "the plan's schedule without a flush does not fit the program");
}

void pd_engine_open_versions(pd_engine *engine) {
  if (engine->pipeline->step == 0) return;
  check_plan(engine);
  engine->version = allocate(engine->pipeline->microbatches, sizeof *engine->version);
  engine->users = allocate(engine->layout->versions, sizeof *engine->users);
}

void pd_engine_close_versions(pd_engine *engine) {
  free(engine->version);
  free(engine->users);
}

void pd_engine_begin_versions(pd_engine *engine) {
  engine->made_before = engine->made;
  engine->finished = 0;
}

void pd_engine_choose_version(pd_engine *engine, int64_t mb) {
  if (engine->updates == NULL) return;
  const pd_pipeline *pipeline = engine->pipeline;
  int64_t version = engine->newest;
  if (pipeline->delay > 0) {
    int64_t number = engine->made_before + mb / pipeline->step - pipeline->delay;
    version = number > 0 ? number % engine->layout->versions : 0;
  }
  engine->version[mb] = version;
  engine->users[version]++;
}

/* Version `to` becomes what version `from` is: what the model reads, and where that is another, what the optimizer
 * changes. */
static void copy_version(pd_engine *engine, int64_t to, int64_t from) {
  const pd_layout *layout = engine->layout;
  const int64_t bytes = layout->version_bytes;
  char *weights = engine->memory + layout->base[PD_MEMORY_PARAMETERS], *masters = engine->memory + layout->master;
  pd_device_copy(engine->device, weights + to * bytes, weights + from * bytes, bytes);
  if (masters == weights || layout->masters == 1) return;
  const int64_t wide = bytes / engine->program->real_bytes * pd_wide_bytes(engine->program);
  pd_device_copy(engine->device, masters + to * wide, masters + from * wide, wide);
}

void pd_engine_start_from_loaded(pd_engine *engine) {
  const pd_layout *layout = engine->layout;
  if (engine->pipeline->delay == 0) return;
  for (int64_t v = 0; v < layout->versions; v++) {
    if (v != engine->newest) copy_version(engine, v, engine->newest);
  }
  engine->made = engine->newest + layout->versions; /* all of them were made before the next list */
}

/* Where the next version may be written; with nobody left who needs the newest, over it. */
static int64_t free_version(const pd_engine *engine) {
  if (engine->pipeline->delay > 0) return (engine->made + 1) % engine->layout->versions;
  if (engine->users[engine->newest] == 0) return engine->newest;
  for (int64_t v = 0; v < engine->layout->versions; v++) {
    if (engine->users[v] == 0 && v != engine->newest) return v;
  }
  pd_fail(PD_EXIT_PLAN, "the plan has room for %lld versions of the weights, and the list needs more",
          (long long)engine->layout->versions);
}

static void make_version(pd_engine *engine) {
  const int64_t next = free_version(engine);
  if (engine->users[next] != 0) {
    pd_fail(PD_EXIT_PLAN, "the list still needs the version of the weights that an update is to replace");
  }
  if (next != engine->newest) copy_version(engine, next, engine->newest);
  engine->newest = next;
  engine->made++;
}

static void update(pd_engine *engine) {
  const pd_layout *layout = engine->layout;
  const pd_updates *updates = engine->updates;
  const int64_t index = engine->made - engine->made_before, count = pd_list_updates(engine->pipeline);
  pd_engine_open_buckets(engine);
  pd_engine_finish_gradients(engine);
  pd_engine_queue_squares(engine, (int)index);
  make_version(engine);
  /* gradients are shares of the mean over the list, and an update wants the mean over its own micro-batches */
  if (updates->number[index] > 0) pd_engine_update(engine, updates->number[index], updates->rate, (double)count);
  pd_device_clear(engine->device, engine->memory + layout->base[PD_MEMORY_GRADIENTS],
                  layout->bytes[PD_MEMORY_GRADIENTS]);
}

void pd_engine_weight_grad_done(pd_engine *engine) {
  if (engine->updates == NULL) return;
  engine->users[engine->version[engine->finished]]--; /* micro-batches come in order */
  engine->finished++;
  if (engine->finished % engine->pipeline->step == 0) update(engine);
}

void pd_engine_finish_versions(pd_engine *engine) {
  const int64_t count = pd_list_updates(engine->pipeline);
  for (int i = 0; i < count; i++) {
    pd_device_decide(engine->device, i);
    engine->updates->norms[i] = (double)count * pd_device_norm(engine->device, i);
  }
}
