/* Gradients of the two copies of a chunk, each of which does half of the micro-batches.
 *
 * With one accumulator the second copy goes on where the first has ended: it gets the sums of the first before its own
 * first weight gradient and gives back the finished ones. So every sum runs over all micro-batches in their order, as if
 * there were one copy. With two accumulators each copy sums up its half, and both exchange and add what they have.
 *
 * The sums of a chunk are its units' gradients, which are one block, and its accumulators of tied parameters. These are
 * exchanged here only if a copy goes on with them; else the sum over all uses takes them from where they are. */
#include "engine_state.h"

typedef struct block {
  int64_t at, bytes;
} block;

/* Block number `index` of the sums of a chunk; false if there are no more. */
static bool find_block(const pd_engine *engine, const pd_chunk_plan *plan, int index, block *out) {
  if (index == 0) {
    *out = (block){plan->gradients, plan->gradient_bytes};
    return true;
  }
  for (int t = 0; t < engine->layout->tied_count; t++) {
    const pd_tied_plan *tied = &engine->layout->tied[t];
    for (int i = 0; i < tied->slot_count; i++) {
      if (tied->slots[i].chunk != plan->chunk || tied->slots[i].at == PD_NONE || --index > 0) continue;
      *out = (block){tied->slots[i].at, engine->program->params[tied->param].elements * pd_wide_bytes(engine->program)};
      return true;
    }
  }
  return false;
}

static bool takes_over(const pd_engine *engine) {
  return engine->pipeline->copies > 1 && engine->pipeline->accumulators < 2;
}

static bool is_second(const pd_engine *engine, const pd_chunk_plan *plan) {
  return plan->chunk >= pd_copy_chunks(engine->pipeline);
}

static int other_copy(const pd_engine *engine, const pd_chunk_plan *plan) {
  return (plan->chunk + pd_copy_chunks(engine->pipeline)) % engine->pipeline->chunk_count;
}

static int peer_of(const pd_engine *engine, const pd_chunk_plan *plan) {
  return engine->pipeline->rank_of[other_copy(engine, plan)];
}

void pd_engine_open_copies(const pd_engine *engine) {
  for (int c = 0; c < engine->layout->chunk_count && engine->pipeline->copies > 1; c++) {
    const pd_chunk_plan *plan = &engine->layout->chunks[c];
    if (engine->pipeline->copies == 2 && peer_of(engine, plan) != engine->layout->pp_rank &&
        plan->final_action > plan->last_weight_action) {
      continue;
    }
    pd_fail(PD_EXIT_PLAN, "the plan's copies of chunk %d do not fit the program", plan->chunk);
  }
}

/* Messages of the sums of a chunk are told apart by the sender's chunk. */
static void send_sums(pd_engine *engine, const pd_chunk_plan *plan) {
  block sums;
  for (int i = 0; find_block(engine, plan, i, &sums); i++) {
    if (sums.bytes == 0) continue;
    pd_device_sums_send(engine->device, plan->chunk, engine->memory + sums.at, sums.bytes, peer_of(engine, plan));
  }
}

static void receive_sums(pd_engine *engine, const pd_chunk_plan *plan) {
  block sums;
  pd_engine_show(engine, "the other copy's gradients from", peer_of(engine, plan));
  for (int i = 0; find_block(engine, plan, i, &sums); i++) {
    if (sums.bytes == 0) continue;
    pd_device_sums_receive(engine->device, other_copy(engine, plan), engine->memory + sums.at, sums.bytes,
                           peer_of(engine, plan));
  }
  pd_engine_show(engine, NULL, PD_NONE);
}

static void wait_sent(pd_engine *engine, const pd_chunk_plan *plan) {
  pd_engine_show(engine, "its gradients to be received by", peer_of(engine, plan));
  pd_device_tied_wait(engine->device);
  pd_engine_show(engine, NULL, PD_NONE);
}

void pd_engine_take_over_sums(pd_engine *engine, const pd_chunk_plan *plan, int64_t mb) {
  if (!takes_over(engine) || !is_second(engine, plan)) return;
  if (mb == pd_chunk_first(engine->pipeline, plan->chunk)) receive_sums(engine, plan);
}

void pd_engine_hand_over_sums(pd_engine *engine, const pd_chunk_plan *plan) {
  if (takes_over(engine) && !is_second(engine, plan)) send_sums(engine, plan);
}

/* Both have a half of the sum; the order of two addends does not matter. */
static void exchange_halves(pd_engine *engine, const pd_chunk_plan *plan) {
  char *received = engine->memory + engine->layout->copy_receive;
  for (int64_t first = 0; first < plan->gradient_bytes; first += engine->layout->copy_piece) {
    int64_t bytes = plan->gradient_bytes - first;
    if (bytes > engine->layout->copy_piece) bytes = engine->layout->copy_piece;
    char *own = engine->memory + plan->gradients + first;
    pd_engine_show(engine, "the other copy's gradients from", peer_of(engine, plan));
    pd_device_sums_send(engine->device, plan->chunk, own, bytes, peer_of(engine, plan));
    pd_device_sums_receive(engine->device, other_copy(engine, plan), received, bytes, peer_of(engine, plan));
    pd_engine_show(engine, NULL, PD_NONE);
    wait_sent(engine, plan);
    pd_device_add(engine->device, true, bytes / pd_wide_bytes(engine->program), received, own);
  }
}

void pd_engine_join_copies(pd_engine *engine, const pd_chunk_plan *plan) {
  if (engine->pipeline->copies <= 1) return;
  if (!takes_over(engine)) {
    exchange_halves(engine, plan);
    return;
  }
  if (is_second(engine, plan)) send_sums(engine, plan);
  wait_sent(engine, plan);
  if (!is_second(engine, plan)) receive_sums(engine, plan);
}
