/* The engine of one rank: its memory, the walk through its list of actions, evaluation. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine_state.h"

/* ---- where this rank is ---- */

void pd_engine_show(pd_engine *engine, const char *waits_for, int peer) {
  int next = 1 - atomic_load(&engine->position);
  char *text = engine->positions[next];
  const char *pass = engine->pass.training ? "step" : "evaluation after step";
  unsigned long long step = engine->pass.step;
  if (waits_for == NULL) {
    snprintf(text, PD_POSITION_BYTES, "%s %llu, %s", pass, step, engine->action);
  } else if (peer == PD_NONE) {
    snprintf(text, PD_POSITION_BYTES, "%s %llu, %s, waits for %s", pass, step, engine->action, waits_for);
  } else {
    snprintf(text, PD_POSITION_BYTES, "%s %llu, %s, waits for %s pipeline rank %d", pass, step, engine->action,
             waits_for, peer);
  }
  atomic_store(&engine->position, next);
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

static void map_memory(pd_engine *engine) {
  engine->bytes = pd_layout_total(engine->layout);
  if (engine->bytes == 0) return;
  void *memory = mmap(NULL, (size_t)engine->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    pd_fail(PD_EXIT_MEMORY, "cannot allocate the %lld bytes of the plan: %s", (long long)engine->bytes,
            strerror(errno));
  }
  madvise(memory, (size_t)engine->bytes, MADV_HUGEPAGE); /* fewer page faults where the system has them */
  engine->memory = memory;
}

/* What the walk takes for granted. */
static void check_plan(const pd_engine *engine) {
  const pd_program *program = engine->program;
  const pd_world *world = engine->world;
  if (world->pp != program->pp || world->dp != program->dp || world->tp != program->tp ||
      engine->pipeline->pp != program->pp || engine->pipeline->microbatches != program->microbatches) {
    pd_fail(PD_EXIT_PLAN, "the plan's pipeline does not fit the program");
  }
  int *largest_tag, flag;
  MPI_Comm_get_attr(world->pipe, MPI_TAG_UB, (void *)&largest_tag, &flag);
  if (flag && *largest_tag / (2 * PD_MAX_WIRES) < engine->pipeline->chunk_count + 2) {
    pd_fail(PD_EXIT_PLAN, "%d chunks are more than this MPI has message tags for", engine->pipeline->chunk_count);
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

static void open_reductions(pd_engine *engine) {
  size_t peers = (size_t)engine->world->dp;
  for (int i = 0; i < 2; i++) {
    engine->reductions[i] = (pd_reduction){.comm = engine->world->replicas,
                                           .real_bytes = engine->program->real_bytes,
                                           .scratch = engine->memory + engine->layout->reductions[i],
                                           .requests = allocate(2 * peers, sizeof(MPI_Request))};
  }
  int most = 0; /* slots of one tied parameter on this rank */
  for (int t = 0; t < engine->layout->tied_count; t++) {
    if (engine->layout->tied[t].slot_count > most) most = engine->layout->tied[t].slot_count;
  }
  engine->tied_requests = allocate((size_t)most * (size_t)engine->world->pp, sizeof(MPI_Request));
}

pd_engine *pd_engine_new(const pd_program *program, const pd_pipeline *pipeline, pd_world *world,
                         const char *kernel_set) {
  pd_engine *engine = allocate(0, sizeof *engine);
  engine->program = program;
  engine->pipeline = pipeline;
  engine->world = world;
  bool single = program->real_bytes == 4;
  engine->f32 = single ? pd_kernels_select_f32(kernel_set) : NULL;
  engine->f64 = single ? NULL : pd_kernels_select_f64(kernel_set);
  if (engine->f32 == NULL && engine->f64 == NULL) pd_fail(PD_EXIT_USAGE, "there is no kernel set `%s`", kernel_set);
  if (program->use_kernels != NULL) program->use_kernels(kernel_set);
  if (pipeline->copies > 1) {
    pd_fail(PD_EXIT_PLAN,
            "the plan's schedule holds the model more than once, which this version plans but does not run");
  }
  engine->layout = pd_layout_new(program, pipeline, world->pp_rank);
  check_plan(engine);
  map_memory(engine);
  open_chunks(engine);
  open_reductions(engine);
  engine->result_count = 1 + program->metric_count;
  engine->results = allocate((size_t)(program->microbatches * engine->result_count), sizeof(double));
  engine->ignored = allocate((size_t)engine->result_count, sizeof(double));
  engine->data = allocate((size_t)program->data_count, sizeof *engine->data);
  engine->act_unit = PD_NONE;
  pd_engine_open_versions(engine);
  pd_world_set_tensor_scratch(engine->memory + engine->layout->tensor, engine->layout->tensor_elements);
  show_name(engine, "start");
  return engine;
}

void pd_engine_free(pd_engine *engine) {
  if (engine == NULL) return;
  pd_world_set_tensor_scratch(NULL, 0);
  pd_engine_close_mail(engine);
  for (int c = 0; c < engine->layout->chunk_count; c++) free(engine->chunks[c].holder);
  free(engine->chunks);
  for (int i = 0; i < 2; i++) free(engine->reductions[i].requests);
  free(engine->tied_requests);
  pd_engine_close_versions(engine);
  free(engine->results);
  free(engine->ignored);
  free(engine->data);
  if (engine->bytes > 0) munmap(engine->memory, (size_t)engine->bytes);
  pd_layout_free(engine->layout);
  free(engine);
}

int64_t pd_engine_allocated_bytes(const pd_engine *engine) {
  return engine->bytes;
}

const pd_layout *pd_engine_layout(const pd_engine *engine) {
  return engine->layout;
}

bool pd_engine_uses_data(const pd_engine *engine, int data) {
  return engine->layout->data[data] != PD_NONE;
}

void *pd_engine_data(pd_engine *engine, int data, int64_t mb) {
  if (!pd_engine_uses_data(engine, data)) return NULL;
  return engine->memory + engine->layout->data[data] + engine->layout->data_stride[data] * mb;
}

int64_t pd_engine_first_sample(const pd_engine *engine, int64_t mb) {
  const pd_program *program = engine->program;
  return (engine->world->dp_rank * program->microbatches + mb) * program->microbatch;
}

/* ---- a step ---- */

static void open_pass(pd_engine *engine, pd_pass pass) {
  engine->pass = pass;
  engine->act_unit = PD_NONE;
  memset(engine->results, 0, (size_t)(engine->program->microbatches * engine->result_count) * sizeof(double));
  for (int c = 0; c < engine->layout->chunk_count; c++) {
    for (int64_t i = 0; i < engine->layout->chunks[c].activations.count; i++) engine->chunks[c].holder[i] = PD_NONE;
  }
}

/* Results of the first `count` micro-batches: summed in that order, then over replicas; the same on every rank. */
static void close_pass(pd_engine *engine, int64_t count, double *results) {
  const int n = engine->result_count;
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

static void act(pd_engine *engine, int64_t index, pd_action action) {
  pd_chunk_state *chunk = chunk_of(engine, action.chunk);
  const bool final = index == chunk->plan->last_weight_action;
  switch (action.kind) {
  case PD_F:
    pd_engine_forward(engine, chunk, action.microbatch);
    break;
  case PD_B:
    pd_engine_backward(engine, chunk, action.microbatch, true, true, final);
    break;
  case PD_I:
    pd_engine_backward(engine, chunk, action.microbatch, true, false, false);
    break;
  case PD_W:
    pd_engine_backward(engine, chunk, action.microbatch, false, true, final);
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
    pd_engine_reduce_chunk(engine, action.chunk);
    break;
  case PD_ACTION_KINDS:
    break;
  }
}

static void do_list(pd_engine *engine) {
  const pd_layout *layout = engine->layout;
  const pd_action_list *list = &engine->pipeline->ranks[engine->world->pp_rank];
  show_name(engine, "start");
  pd_engine_clear(engine, layout->bytes[PD_MEMORY_GRADIENTS], engine->memory + layout->base[PD_MEMORY_GRADIENTS]);
  for (int64_t i = 0; i < list->count; i++) {
    show_action(engine, list->at[i]);
    act(engine, i, list->at[i]);
  }
  show_name(engine, "gradients");
  pd_engine_settle_all(engine);
}

void pd_engine_step(pd_engine *engine, uint64_t step, uint64_t seed, const double *inverse_counts, double *results) {
  open_pass(
      engine,
      (pd_pass){.step = step, .seed = seed, .inverse_counts = inverse_counts, .batch_scale = 1, .training = true});
  pd_engine_open_buckets(engine);
  do_list(engine);
  pd_engine_finish_gradients(engine);
  show_name(engine, "results");
  close_pass(engine, engine->program->microbatches, results);
  show_name(engine, "end");
}

void pd_engine_step_updating(pd_engine *engine, uint64_t step, uint64_t seed, const pd_updates *updates,
                             double *results) {
  open_pass(engine, (pd_pass){.step = step, .seed = seed, .batch_scale = 1, .updates = updates, .training = true});
  pd_engine_begin_versions(engine);
  do_list(engine);
  show_name(engine, "results");
  pd_engine_finish_versions(engine);
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
      evaluate_chunk(engine, &engine->chunks[c], mb);
    }
  }
  show_name(engine, "results");
  pd_engine_settle_all(engine);
  close_pass(engine, count, results);
  show_name(engine, "end");
}

const void *pd_engine_logits(pd_engine *engine, int64_t mb) {
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
