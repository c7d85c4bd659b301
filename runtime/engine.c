/* The engine of one rank: its memory, the walk through its list of actions, evaluation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine_state.h"
#include "watch.h"

/* ---- where this rank is ---- */

void pd_engine_show(pd_engine *engine, const char *waits_for, int peer) {
  int next = 1 - atomic_load(&engine->position);
  char *text = engine->positions[next];
  const char *pass = engine->pass.training ? "step" : "evaluation after step";
  unsigned long long step = engine->pass.step + 1; /* as logs count */
  if (waits_for == NULL) {
    snprintf(text, PD_POSITION_BYTES, "%s %llu, %s", pass, step, engine->action);
  } else if (peer == PD_NONE) {
    snprintf(text, PD_POSITION_BYTES, "%s %llu, %s, waits for %s", pass, step, engine->action, waits_for);
  } else {
    snprintf(text, PD_POSITION_BYTES, "%s %llu, %s, waits for %s pipeline rank %d", pass, step, engine->action,
             waits_for, peer);
  }
  atomic_store(&engine->position, next);
  pd_watch_show("%s", text);
}

const char *pd_engine_position(const pd_engine *engine) {
  return engine->positions[atomic_load(&engine->position)];
}

static void show_name(pd_engine *engine, const char *name) {
  snprintf(engine->action, sizeof engine->action, "%s", name);
  pd_engine_show(engine, NULL, PD_NONE);
}

static void show_action(pd_engine *engine, pd_action action) {
  pd_action_text(action, engine->action);
  pd_engine_show(engine, NULL, PD_NONE);
}

/* ---- start and end ---- */

static void *allocate(size_t count, size_t size) {
  void *block = calloc(count + 1, size);
  if (block == NULL) pd_fail(PD_EXIT_MEMORY, "out of memory");
  return block;
}

/* What the walk takes for granted. */
static void check_plan(const pd_engine *engine) {
  const pd_program *program = engine->program;
  const pd_world *world = engine->world;
  if (world->pp != program->pp || world->dp != program->dp || world->tp != program->tp ||
      engine->pipeline->pp != program->pp || engine->pipeline->microbatches != program->microbatches) {
    pd_fail(PD_EXIT_PLAN, "the plan's pipeline does not fit the program");
  }
  int wires[PD_MAX_WIRES];
  for (int c = 0; c < engine->layout->chunk_count; c++) {
    const pd_chunk_plan *plan = &engine->layout->chunks[c];
    bool good = plan->activations.count > 0 && pd_live_wires(program, plan->first_unit, wires) <= PD_MAX_WIRES;
    for (int64_t u = 0; u < plan->unit_count; u++) {
      const pd_segment_info *segment = &program->segments[plan->units[u].segment];
      for (int k = 0; k < segment->in_count; k++) good = good && plan->units[u].in[k] != PD_NONE;
      good = good && segment->forward != NULL && (!segment->has_weight_grad || segment->weight_grad != NULL);
    }
    if (!good) pd_fail(PD_EXIT_PLAN, "the plan's chunk %d does not fit the program", plan->chunk);
  }
}

static void open_chunks(pd_engine *engine) {
  const pd_layout *layout = engine->layout;
  engine->chunks = allocate((size_t)layout->chunk_count, sizeof *engine->chunks);
  for (int c = 0; c < layout->chunk_count; c++) {
    pd_chunk_state *chunk = &engine->chunks[c];
    chunk->plan = &layout->chunks[c];
    chunk->holder = allocate((size_t)chunk->plan->activations.count, sizeof *chunk->holder);
    if (chunk->plan->previous.local) chunk->before = chunk - 1;
    if (chunk->plan->next.local) chunk->after = chunk + 1;
  }
  pd_engine_open_mail(engine);
}

/* A device's memory begins with anything. What is read before a step writes it: the optimizer's moments, and the block
 * of zeros that stands for gradients nobody makes. Gradients become zero with every list of actions. */
static void clear_memory(pd_engine *engine) {
  const pd_layout *layout = engine->layout;
  int64_t zero_bytes = 0;
  for (int c = 0; c < layout->chunk_count; c++) {
    if (layout->chunks[c].zero_bytes > zero_bytes) zero_bytes = layout->chunks[c].zero_bytes;
  }
  pd_device_clear(engine->device, engine->memory + layout->zero, zero_bytes);
  pd_device_clear(engine->device, engine->memory + layout->base[PD_MEMORY_OPTIMIZER],
                  layout->bytes[PD_MEMORY_OPTIMIZER]);
}

pd_engine *pd_engine_new(const pd_program *program, const pd_pipeline *pipeline, pd_world *world,
                         const char *kernel_set) {
  pd_engine *engine = allocate(0, sizeof *engine);
  engine->program = program;
  engine->pipeline = pipeline;
  engine->world = world;
  engine->layout = pd_layout_new(program, pipeline, world->pp_rank);
  check_plan(engine);
  engine->device = pd_device_open(program, pipeline, engine->layout, world, kernel_set);
  engine->memory = pd_device_memory(engine->device);
  clear_memory(engine);
  open_chunks(engine);
  engine->result_count = 1 + program->metric_count;
  engine->results = allocate((size_t)(program->microbatches * engine->result_count), sizeof(double));
  engine->data = allocate((size_t)program->data_count, sizeof *engine->data);
  engine->act_unit = PD_NONE;
  pd_engine_open_copies(engine);
  pd_engine_open_versions(engine);
  pd_watch_device(engine->device);
  show_name(engine, "start");
  return engine;
}

void pd_engine_free(pd_engine *engine) {
  if (engine == NULL) return;
  pd_watch_device(NULL);
  pd_engine_close_mail(engine);
  for (int c = 0; c < engine->layout->chunk_count; c++) free(engine->chunks[c].holder);
  free(engine->chunks);
  pd_engine_close_versions(engine);
  free(engine->results);
  free(engine->data);
  pd_device_close(engine->device);
  pd_layout_free(engine->layout);
  free(engine);
}

int64_t pd_engine_allocated_bytes(const pd_engine *engine) {
  return pd_device_bytes(engine->device);
}

double pd_engine_product_rate(pd_engine *engine) {
  return pd_device_product_rate(engine->device);
}

const char *pd_engine_device_name(const pd_engine *engine) {
  return pd_device_name(engine->device);
}

const pd_layout *pd_engine_layout(const pd_engine *engine) {
  return engine->layout;
}

bool pd_engine_uses_data(const pd_engine *engine, int data) {
  return engine->layout->data[data] != PD_NONE;
}

void *pd_engine_data(pd_engine *engine, int data, int64_t mb) {
  if (!pd_engine_uses_data(engine, data)) return NULL;
  return pd_device_rows(engine->device, engine->layout->data[data] + engine->layout->data_stride[data] * mb);
}

int64_t pd_engine_first_sample(const pd_engine *engine, int64_t mb) {
  const pd_program *program = engine->program;
  return (engine->world->dp_rank * program->microbatches + mb) * program->microbatch;
}

/* ---- a step ---- */

static void open_pass(pd_engine *engine, pd_pass pass) {
  engine->pass = pass;
  engine->act_unit = PD_NONE;
  pd_device_open_pass(engine->device, &engine->pass);
  for (int c = 0; c < engine->layout->chunk_count; c++) {
    for (int64_t i = 0; i < engine->layout->chunks[c].activations.count; i++) engine->chunks[c].holder[i] = PD_NONE;
  }
}

/* Results of the first `count` micro-batches: summed in that order, then over replicas; the same on every rank. */
static void close_pass(pd_engine *engine, int64_t count, double *results) {
  const int n = engine->result_count;
  pd_device_close_pass(engine->device, engine->results);
  pd_engine_show(engine, "the results of the other ranks", PD_NONE);
  pd_sum_double(engine->world->pipe, engine->results, (int)engine->program->microbatches * n);
  for (int i = 0; i < n; i++) {
    results[i] = 0;
    for (int64_t mb = 0; mb < count; mb++) results[i] += engine->results[mb * n + i];
  }
  pd_sum_double(engine->world->replicas, results, n);
}

static pd_chunk_state *chunk_of(const pd_engine *engine, int chunk) {
  for (int c = 0; c < engine->layout->chunk_count; c++) {
    if (engine->chunks[c].plan->chunk == chunk) return &engine->chunks[c];
  }
  pd_fail(PD_EXIT_PLAN, "the plan gives this rank an action on chunk %d, which it does not hold", chunk);
}

/* I, W, or both. `final`: no weight gradient of the chunk comes after. */
static void go_back(pd_engine *engine, pd_chunk_state *chunk, pd_action action, bool final) {
  const bool weights = action.kind != PD_I;
  if (weights) pd_engine_take_over_sums(engine, chunk->plan, action.microbatch);
  pd_engine_backward(engine, chunk, action.microbatch, action.kind != PD_W, weights, final);
  if (final) pd_engine_hand_over_sums(engine, chunk->plan);
}

static void act(pd_engine *engine, int64_t index, pd_action action) {
  pd_chunk_state *chunk = chunk_of(engine, action.chunk);
  const bool final = index == chunk->plan->last_weight_action;
  switch (action.kind) {
  case PD_F:
    pd_engine_forward(engine, chunk, action.microbatch);
    break;
  case PD_B:
  case PD_I:
  case PD_W:
    go_back(engine, chunk, action, final);
    break;
  case PD_SEND_F:
    pd_engine_send_wires(engine, chunk, action.microbatch);
    break;
  case PD_RECV_F:
    pd_engine_receive_wires(engine, chunk, action.microbatch);
    break;
  case PD_SEND_B:
    pd_engine_send_gradients(engine, chunk, action.microbatch);
    break;
  case PD_RECV_B:
    pd_engine_receive_gradients(engine, chunk, action.microbatch);
    break;
  case PD_REDUCE_GRAD:
    pd_engine_join_copies(engine, chunk->plan);
    pd_engine_reduce_chunk(engine, action.chunk);
    break;
  case PD_ACTION_KINDS:
    break;
  }
}

static void do_list(pd_engine *engine) {
  const pd_layout *layout = engine->layout;
  const pd_action_list *list = &engine->pipeline->ranks[engine->world->pp_rank];
  pd_device_clear(engine->device, engine->memory + layout->base[PD_MEMORY_GRADIENTS],
                  layout->bytes[PD_MEMORY_GRADIENTS]);
  for (int64_t i = 0; i < list->count; i++) {
    show_action(engine, list->at[i]);
    act(engine, i, list->at[i]);
  }
  show_name(engine, "gradients");
  pd_engine_settle_all(engine);
}

/* All that completes gradients. */
static void queue_step(pd_engine *engine) {
  pd_engine_open_buckets(engine);
  do_list(engine);
  pd_engine_finish_gradients(engine);
}

void pd_engine_step(pd_engine *engine, uint64_t step, uint64_t seed, const double *inverse_counts, double *results) {
  show_name(engine, "start");
  open_pass(
      engine,
      (pd_pass){.step = step, .seed = seed, .inverse_counts = inverse_counts, .batch_scale = 1, .training = true});
  queue_step(engine);
  show_name(engine, "results");
  close_pass(engine, engine->program->microbatches, results);
  show_name(engine, "end");
}

void pd_engine_train(pd_engine *engine, uint64_t step, uint64_t seed, const double *inverse_counts, int64_t update,
                     double rate, double *results, double *norm) {
  show_name(engine, "start");
  open_pass(engine, (pd_pass){.step = step,
                              .seed = seed,
                              .inverse_counts = inverse_counts,
                              .batch_scale = 1,
                              .training = true,
                              .update = update,
                              .rate = rate});
  if (pd_device_begin_step(engine->device)) {
    queue_step(engine);
    show_name(engine, "update");
    pd_engine_queue_squares(engine, 0);
    pd_device_decide(engine->device, 0);
    pd_engine_queue_update(engine);
    pd_device_end_step(engine->device);
  }
  show_name(engine, "results");
  close_pass(engine, engine->program->microbatches, results);
  *norm = pd_device_norm(engine->device, 0);
  show_name(engine, "end");
}

void pd_engine_step_updating(pd_engine *engine, uint64_t step, uint64_t seed, const pd_updates *updates,
                             double *results) {
  show_name(engine, "start");
  open_pass(engine, (pd_pass){.step = step,
                              .seed = seed,
                              .inverse_counts = updates->inverse_counts,
                              .updates = pd_list_updates(engine->pipeline),
                              .batch_scale = 1,
                              .training = true});
  engine->updates = updates;
  pd_engine_begin_versions(engine);
  do_list(engine);
  show_name(engine, "results");
  pd_engine_finish_versions(engine);
  engine->updates = NULL;
  close_pass(engine, engine->program->microbatches, results);
  show_name(engine, "end");
}

/* ---- evaluation ---- */

static void evaluate_chunk(pd_engine *engine, pd_chunk_state *chunk, int64_t mb) {
  const pd_edge *previous = &chunk->plan->previous, *next = &chunk->plan->next;
  show_action(engine, (pd_action){PD_F, chunk->plan->chunk, (int32_t)mb});
  if (previous->peer != PD_NONE && !previous->local) pd_engine_receive_wires(engine, chunk, mb);
  pd_engine_forward(engine, chunk, mb);
  if (next->peer != PD_NONE && !next->local) pd_engine_send_wires(engine, chunk, mb);
}

void pd_engine_evaluate(pd_engine *engine, int64_t count, const int64_t *samples, const double *inverse_counts,
                        double batch_scale, double *results) {
  if (count > engine->program->microbatches) {
    pd_fail(PD_EXIT_PLAN, "an evaluation pass of %lld micro-batches; there is room for %lld", (long long)count,
            (long long)engine->program->microbatches);
  }
  open_pass(engine, (pd_pass){.step = engine->pass.step,
                              .seed = engine->pass.seed,
                              .inverse_counts = inverse_counts,
                              .batch_scale = batch_scale,
                              .samples = samples,
                              .training = false});
  for (int64_t mb = 0; mb < count; mb++) {
    for (int c = 0; c < engine->layout->chunk_count && samples[mb] > 0; c++) {
      const int chunk = engine->layout->chunks[c].chunk;
      if (mb < pd_chunk_first(engine->pipeline, chunk) || mb >= pd_chunk_end(engine->pipeline, chunk)) continue;
      evaluate_chunk(engine, &engine->chunks[c], mb);
    }
  }
  show_name(engine, "results");
  pd_engine_settle_all(engine);
  close_pass(engine, count, results);
  show_name(engine, "end");
}

/* Where they lie on the device. */
static const char *logits_at(const pd_engine *engine, int64_t mb) {
  const pd_program *program = engine->program;
  if (program->logits_segment == PD_NONE) return NULL;
  int64_t unit = 0;
  for (int s = 0; s < program->logits_segment; s++) unit += program->segments[s].trips;
  for (int c = 0; c < engine->layout->chunk_count; c++) {
    const pd_chunk_state *chunk = &engine->chunks[c];
    const pd_chunk_plan *plan = chunk->plan;
    if (unit < plan->first_unit || unit >= plan->first_unit + plan->unit_count) continue;
    if (chunk->holder[mb % plan->activations.count] != mb) return NULL;
    int64_t offset = plan->units[unit - plan->first_unit].act;
    if (offset != PD_NONE) return pd_slot(engine, &plan->activations, mb) + offset + program->logits_offset;
    if (engine->act_unit != unit || engine->act_microbatch != mb) return NULL;
    return engine->memory + engine->layout->act + program->logits_offset;
  }
  return NULL;
}

static float from_bf16(uint16_t half) {
  const uint32_t bits = (uint32_t)half << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

bool pd_engine_logits(pd_engine *engine, int64_t mb, int64_t first, int64_t count, double *out) {
  const int real = engine->program->real_bytes;
  const char *at = logits_at(engine, mb);
  if (at == NULL) return false;
  char *reals = allocate((size_t)count, (size_t)real);
  pd_device_read(engine->device, reals, at + first * real, count * real);
  for (int64_t i = 0; i < count; i++) {
    out[i] = real == 2   ? (double)from_bf16(((const uint16_t *)(void *)reals)[i])
             : real == 4 ? (double)((const float *)(void *)reals)[i]
                         : ((const double *)(void *)reals)[i];
  }
  free(reals);
  return true;
}

void pd_engine_read(pd_engine *engine, void *to, const void *from, int64_t bytes) {
  pd_device_read(engine->device, to, from, bytes);
}

void pd_engine_write(pd_engine *engine, void *to, const void *from, int64_t bytes) {
  pd_device_write(engine->device, to, from, bytes);
}
