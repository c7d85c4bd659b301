/* One chunk, one micro-batch: its units in order, forwards or backwards. The plan (walk.c) says where everything lies;
 * this file turns it into frames and calls the program's functions. */
#include <string.h>

#include "engine_state.h"

static void *place_at(const pd_engine *engine, const pd_chunk_plan *plan, pd_place place, int64_t mb) {
  switch (place.home) {
  case PD_HOME_ZERO:
    return engine->memory + engine->layout->zero;
  case PD_HOME_RECEIVED:
    return pd_slot(engine, &plan->received, mb) + place.offset;
  case PD_HOME_SENT:
    return pd_slot(engine, &plan->sent, mb) + place.offset;
  case PD_HOME_INNER:
    return pd_slot(engine, &plan->inner, mb) + place.offset;
  case PD_HOME_TEMP:
    return engine->memory + engine->layout->temp + place.offset;
  case PD_HOME_NONE:
    break;
  }
  return NULL;
}

/* The sum that gradients of micro-batch `mb` go into: at byte `offset`, or as far into the second sum. */
static char *sum_at(const pd_engine *engine, int64_t offset, int64_t mb) {
  const bool second = engine->layout->sums > 1 && mb >= engine->program->microbatches / 2;
  return offset == PD_NONE ? NULL : engine->memory + offset + (second ? engine->layout->sum_bytes : 0);
}

/* The frame of `unit` for micro-batch `mb`. Places of gradients are looked up on the way back only. */
static void set_frame(const pd_engine *engine, const pd_chunk_plan *plan, const pd_unit_plan *unit, int64_t mb,
                      bool backward, pd_frame *frame) {
  const pd_program *program = engine->program;
  const pd_layout *layout = engine->layout;
  const pd_segment_info *segment = &program->segments[unit->segment];
  const pd_pass *pass = &engine->pass;
  char *slot = pd_slot(engine, &plan->activations, mb);
  memset(frame, 0, sizeof *frame);
  for (int k = 0; k < segment->in_count; k++) {
    frame->in[k] = slot + unit->in[k];
    if (backward) frame->d_in[k] = place_at(engine, plan, unit->d_in[k], mb);
  }
  for (int k = 0; k < segment->out_count; k++) {
    frame->out[k] = slot + unit->out[k];
    if (backward) frame->d_out[k] = place_at(engine, plan, unit->d_out[k], mb);
  }
  for (int k = 0; k < segment->shared_count; k++) {
    frame->shared[k] = pd_weights_at(engine, unit->shared[k], mb);
    frame->shared_gradients[k] = sum_at(engine, unit->shared_gradients[k], mb);
  }
  frame->act = unit->act == PD_NONE ? engine->memory + layout->act : slot + unit->act;
  frame->stash = backward ? pd_slot(engine, &plan->inner, mb) + unit->stash : NULL;
  frame->scratch = engine->memory + layout->scratch;
  frame->weights = pd_weights_at(engine, unit->weights, mb);
  frame->gradients = sum_at(engine, unit->gradients, mb);
  frame->data = engine->data;
  frame->results = pd_device_results(engine->device, backward ? PD_NONE : mb);
  frame->inverse_counts = pd_device_inverse_counts(engine->device);
  if (engine->updates != NULL) frame->inverse_counts += mb / engine->pipeline->step * program->normaliser_count;
  frame->batch_scale = pass->batch_scale;
  frame->samples = pass->samples != NULL ? pass->samples[mb] : program->microbatch;
  frame->sample0 = pd_engine_first_sample(engine, mb);
  frame->step = pass->step;
  frame->seed = pass->seed;
  frame->trip = unit->trip;
  frame->tp_rank = engine->world->tp_rank;
  frame->training = pass->training;
  pd_device_frame(engine->device, frame);
}

/* Points at the rows of micro-batch `mb`. */
static void set_data(pd_engine *engine, int64_t mb) {
  const pd_layout *layout = engine->layout;
  for (int d = 0; d < engine->program->data_count; d++) {
    engine->data[d] =
        layout->data[d] == PD_NONE ? NULL : engine->memory + layout->data[d] + layout->data_stride[d] * mb;
  }
}

static void run_forward(pd_engine *engine, const pd_unit_plan *unit, int64_t mb, const pd_frame *frame) {
  engine->program->segments[unit->segment].forward(frame);
  engine->act_unit = unit->unit;
  engine->act_microbatch = mb;
}

void pd_engine_forward(pd_engine *engine, pd_chunk_state *chunk, int64_t mb) {
  const pd_chunk_plan *plan = chunk->plan;
  pd_frame frame;
  pd_engine_settle_wires(engine, chunk, mb);
  pd_engine_choose_version(engine, mb);
  chunk->holder[mb % plan->activations.count] = mb;
  set_data(engine, mb);
  for (int64_t u = 0; u < plan->unit_count; u++) {
    set_frame(engine, plan, &plan->units[u], mb, false, &frame);
    run_forward(engine, &plan->units[u], mb, &frame);
    pd_device_progress(engine->device);
  }
}

/* With recompute the act block holds whatever unit ran last. */
static void refresh_act(pd_engine *engine, const pd_unit_plan *unit, int64_t mb, const pd_frame *frame) {
  if (!engine->program->recompute) return;
  if (engine->act_unit == unit->unit && engine->act_microbatch == mb) return;
  run_forward(engine, unit, mb, frame);
}

static void add_contributions(const pd_engine *engine, const pd_chunk_plan *plan, const pd_unit_plan *unit,
                              int64_t mb) {
  const pd_segment_info *segment = &engine->program->segments[unit->segment];
  for (int k = 0; k < segment->in_count; k++) {
    if (unit->sum[k].home == PD_HOME_NONE) continue;
    const pd_wire_info *wire = &engine->program->wires[pd_read_wire(segment, unit->trip, k)];
    pd_device_add(engine->device, wire->wide, wire->elements, place_at(engine, plan, unit->d_in[k], mb),
                  place_at(engine, plan, unit->sum[k], mb));
  }
}

/* What goes to the chunk before and was not written there in the first place: gradients of wires that only pass. */
static void complete_sent(const pd_engine *engine, const pd_chunk_plan *plan, int64_t mb) {
  const pd_edge *edge = &plan->previous;
  for (int g = 0; g < edge->grad_count; g++) {
    char *to = pd_slot(engine, &plan->sent, mb) + edge->grad_at[g];
    int64_t bytes = pd_wire_size(engine, edge->grad_wire[g]);
    if (edge->grad_from[g].home == PD_HOME_NONE) {
      pd_device_clear(engine->device, to, bytes);
    } else if (edge->grad_from[g].home != PD_HOME_SENT) {
      pd_device_copy(engine->device, to, place_at(engine, plan, edge->grad_from[g], mb), bytes);
    }
  }
}

void pd_engine_backward(pd_engine *engine, pd_chunk_state *chunk, int64_t mb, bool input, bool weights, bool final) {
  const pd_chunk_plan *plan = chunk->plan;
  pd_frame frame;
  if (input) pd_engine_settle_gradients(engine, chunk, mb);
  if (engine->program->recompute) pd_engine_wait_wires_out(engine, chunk, mb); /* they are written once more */
  set_data(engine, mb);
  for (int64_t u = plan->unit_count - 1; u >= 0; u--) {
    const pd_unit_plan *unit = &plan->units[u];
    const pd_segment_info *segment = &engine->program->segments[unit->segment];
    bool weight_grad = weights && segment->has_weight_grad;
    if (unit->backward && (input || weight_grad)) {
      set_frame(engine, plan, unit, mb, true, &frame);
      refresh_act(engine, unit, mb, &frame);
      if (input) {
        if (segment->input_grad != NULL) segment->input_grad(&frame);
        add_contributions(engine, plan, unit, mb);
      }
      if (weight_grad) segment->weight_grad(&frame);
    }
    if (final) pd_engine_unit_is_final(engine, plan, unit);
    pd_device_progress(engine->device);
  }
  if (input) complete_sent(engine, plan, mb);
  if (weights) pd_engine_weight_grad_done(engine);
}
