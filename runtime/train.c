/* The training loop: data in, one engine step, checks that stop a run that has gone wrong, one update, a record of it.
 *
 * Everything that decides anything here (counts, loss, norm) is the same bits on every rank, so all ranks take the same
 * turn without asking each other.
 */
#include "train.h"

#include "check.h"
#include "data_weights.h"
#include "evaluate.h"
#include "rate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* ---- data into places ---- */

void pd_feed(pd_run *run, const pd_data *data, int64_t mb, const int64_t *samples, int64_t valid, double *counts) {
  const pd_program *program = run->program;
  pd_problem problem;
  for (int d = 0; d < program->data_count; d++) {
    const pd_data_info *info = &program->data[d];
    char *place = pd_engine_uses_data(run->engine, d) ? pd_engine_data(run->engine, d, mb) : NULL;
    if (place == NULL && !info->is_integer) continue;
    const int64_t row_bytes = info->elements * (info->is_integer ? 4 : program->real_bytes);
    double counted = 0;
    for (int64_t i = 0; i < program->microbatch; i++) {
      int64_t in_row = 0;
      void *row = place != NULL ? place + i * row_bytes : NULL;
      if (!pd_data_row(data, d, samples[i], run->world.tp_rank, row, &in_row, &problem)) {
        pd_fail(PD_EXIT_DATA, "%s", problem.text);
      }
      if (i < valid)
        counted += (double)in_row;
      else if (row != NULL && info->is_target && info->is_integer) {
        for (int64_t k = 0; k < info->elements; k++) ((int32_t *)row)[k] = PD_IGNORE;
      }
    }
    for (int n = 0; n < program->normaliser_count; n++) {
      if (program->normalisers[n] == d) counts[n] += counted;
    }
  }
}

bool pd_invert_counts(const pd_program *program, double *counts) {
  bool any = program->normaliser_count == 0;
  for (int n = 0; n < program->normaliser_count; n++) {
    any = any || counts[n] > 0;
    counts[n] = counts[n] > 0 ? 1 / counts[n] : 0;
  }
  return any;
}

void pd_train_check_data(const pd_run *run) {
  pd_problem problem;
  for (int64_t s = run->world.rank; s < run->train.samples; s += run->world.size) {
    for (int d = 0; d < run->program->data_count; d++) {
      int64_t counted;
      if (!pd_data_row(&run->train, d, s, run->world.tp_rank, NULL, &counted, &problem)) {
        pd_fail(PD_EXIT_DATA, "%s", problem.text);
      }
    }
  }
}

/* The rows of this replica for `step`; counts become those of the global batch. */
static void feed_step(pd_run *run, uint64_t step, int64_t *samples, double *counts) {
  const pd_program *program = run->program;
  const int64_t first = run->world.dp_rank * (program->batch / program->dp);
  for (int n = 0; n < program->normaliser_count; n++) counts[n] = 0;
  for (int64_t mb = 0; mb < program->microbatches; mb++) {
    for (int64_t i = 0; i < program->microbatch; i++) {
      samples[i] = pd_data_sample(&run->train, step, first + mb * program->microbatch + i);
    }
    pd_feed(run, &run->train, mb, samples, program->microbatch, counts);
  }
  pd_sum_double(run->world.replicas, counts, program->normaliser_count);
}

/* ---- a step ---- */

typedef struct step_state {
  int64_t *samples;
  double *counts, *results; /* per normaliser; loss and metrics */
  int64_t updates;
} step_state;

static step_state state_new(const pd_program *program) {
  step_state state = {.samples = calloc((size_t)program->microbatch, sizeof *state.samples),
                      .counts = calloc((size_t)program->normaliser_count + 1, sizeof *state.counts),
                      .results = calloc((size_t)program->metric_count + 1, sizeof *state.results)};
  if (state.samples == NULL || state.counts == NULL || state.results == NULL)
    pd_fail(PD_EXIT_MEMORY, "not enough memory");
  return state;
}

static void state_free(step_state *state) {
  free(state->samples);
  free(state->counts);
  free(state->results);
}

static void stop_unless_finite(double loss, double norm, int64_t step) {
  if (isfinite(loss) && isfinite(norm)) return;
  pd_fail(PD_EXIT_NUMERIC, "step %" PRId64 ": %s is not finite (loss %g, gradient norm %g); stopped before its update",
          step, isfinite(loss) ? "the gradient" : "the loss", loss, norm);
}

/* Step `index`, counted from 0; the record counts from 1. */
static pd_step_record train_step(pd_run *run, step_state *state, int64_t index) {
  const pd_program *program = run->program;
  const double began = pd_now();
  feed_step(run, (uint64_t)index, state->samples, state->counts);
  const bool counted = pd_invert_counts(program, state->counts);
  pd_engine_step(run->engine, (uint64_t)index, (uint64_t)run->options.seed, state->counts, state->results);
  const double loss = state->results[0], norm = pd_engine_grad_norm(run->engine);
  stop_unless_finite(loss, norm, index + 1);
  const double rate = pd_rate_at(program, state->updates);
  if (counted) {
    const double factor = program->clip > 0 && norm > program->clip ? program->clip / norm : 1;
    pd_engine_update(run->engine, ++state->updates, rate, factor);
  }
  const pd_step_record record = {.step = index + 1,
                                 .loss = loss,
                                 .grad_norm = norm,
                                 .rate = rate,
                                 .tokens = program->batch * program->tokens_per_sample,
                                 .seconds = pd_now() - began};
  if (!counted) {
    pd_progress_say(&run->progress, true, "step %" PRId64 ": no target counts; skipped, nothing was updated",
                    index + 1);
  }
  return record;
}

void pd_check(pd_run *run) {
  const pd_program *program = run->program;
  step_state state = state_new(program);
  feed_step(run, 0, state.samples, state.counts);
  pd_invert_counts(program, state.counts);
  const double tolerance = program->real_bytes == 8 ? 1e-6 : 5e-2;
  const double worst = pd_check_gradients(run->engine, &run->world, program, (uint64_t)run->options.seed, state.counts,
                                          run->options.check_gradients);
  state_free(&state);
  if (!(worst <= tolerance)) {
    pd_fail(PD_EXIT_NUMERIC, "a gradient differs from finite differences by %.3g, more than %g allows", worst,
            tolerance);
  }
}

static bool due(int64_t step, int64_t every) {
  return every > 0 && step % every == 0;
}

void pd_train(pd_run *run) {
  const pd_options *options = &run->options;
  pd_problem problem;
  step_state state = state_new(run->program);
  pd_progress_begin(&run->progress, run);
  for (int64_t index = 0; index < options->steps; index++) {
    const pd_step_record record = train_step(run, &state, index);
    if (index == 0 && options->gradients != NULL) {
      pd_weights_save(run->program, run->engine, &run->world, PD_WEIGHT_GRADIENTS, options->gradients);
    }
    if (!pd_log_step(&run->log, &record, &problem)) pd_fail(PD_EXIT_USAGE, "%s", problem.text);
    pd_progress_step(&run->progress, &record);
    const bool last = record.step == options->steps;
    if (run->valid.samples > 0 && (last || due(record.step, options->eval_every))) pd_evaluate(run, record.step);
    if (options->save != NULL && (last || due(record.step, run->program->save_every))) {
      pd_weights_save(run->program, run->engine, &run->world, PD_WEIGHTS, options->save);
    }
  }
  pd_progress_end(&run->progress);
  state_free(&state);
}
