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
#include "watch.h"

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
    pd_watch_show("checking the data, sample %" PRId64, s);
    for (int d = 0; d < run->program->data_count; d++) {
      int64_t counted;
      if (!pd_data_row(&run->train, d, s, run->world.tp_rank, NULL, &counted, &problem)) {
        pd_fail(PD_EXIT_DATA, "%s", problem.text);
      }
    }
  }
}

/* ---- a step ---- */

typedef struct step_state {
  int64_t *samples;
  int64_t groups; /* micro-batches in a row that make one gradient: all, or those of an update within the list */
  double *counts, *results; /* per group and normaliser; loss and metrics */
  int64_t *number;          /* per group: of its update, or 0 */
  double *norms;            /* per group */
  int64_t updates;          /* made so far */
} step_state;

static step_state state_new(const pd_run *run) {
  const pd_program *program = run->program;
  const int64_t inside = pd_list_updates(&run->plan.pipeline);
  step_state state = {.groups = inside > 0 ? inside : 1};
  state.samples = calloc((size_t)program->microbatch, sizeof *state.samples);
  state.counts = calloc((size_t)(state.groups * program->normaliser_count) + 1, sizeof *state.counts);
  state.results = calloc((size_t)program->metric_count + 1, sizeof *state.results);
  state.number = calloc((size_t)state.groups, sizeof *state.number);
  state.norms = calloc((size_t)state.groups, sizeof *state.norms);
  if (state.samples == NULL || state.counts == NULL || state.results == NULL || state.number == NULL ||
      state.norms == NULL) {
    pd_fail(PD_EXIT_MEMORY, "not enough memory");
  }
  return state;
}

static void state_free(step_state *state) {
  free(state->samples);
  free(state->counts);
  free(state->results);
  free(state->number);
  free(state->norms);
}

/* The rows of this replica for `step`; counts become those of all replicas, group by group. */
static void feed_step(pd_run *run, uint64_t step, step_state *state) {
  const pd_program *program = run->program;
  const int64_t first = run->world.dp_rank * (program->batch / program->dp), n = program->normaliser_count;
  pd_watch_show("step %" PRIu64 ", reading data", step + 1);
  for (int64_t i = 0; i < state->groups * n; i++) state->counts[i] = 0;
  for (int64_t mb = 0; mb < program->microbatches; mb++) {
    for (int64_t i = 0; i < program->microbatch; i++) {
      state->samples[i] = pd_data_sample(&run->train, step, first + mb * program->microbatch + i);
    }
    const int64_t group = mb / (program->microbatches / state->groups);
    pd_feed(run, &run->train, mb, state->samples, program->microbatch, state->counts + group * n);
  }
  pd_sum_double(run->world.replicas, state->counts, (int)(state->groups * n));
}

/* Counts of all groups together, in those of the first. */
static void join_groups(const pd_program *program, step_state *state) {
  for (int64_t i = program->normaliser_count; i < state->groups * program->normaliser_count; i++) {
    state->counts[i % program->normaliser_count] += state->counts[i];
  }
}

static void stop_unless_finite(double loss, double norm, int64_t step, bool updated) {
  if (isfinite(loss) && isfinite(norm)) return;
  pd_fail(PD_EXIT_NUMERIC, "step %" PRId64 ": %s is not finite (loss %g, gradient norm %g); stopped %s", step,
          isfinite(loss) ? "the gradient" : "the loss", loss, norm,
          updated ? "after its updates" : "before its update");
}

typedef struct step_result {
  double norm;
  int64_t skipped; /* groups without a target that counts */
} step_result;

/* One list, then one update. */
static step_result step_once(pd_run *run, step_state *state, int64_t index, double rate) {
  const pd_program *program = run->program;
  const bool counted = pd_invert_counts(program, state->counts);
  double norm;
  pd_engine_train(run->engine, (uint64_t)index, (uint64_t)run->options.seed, state->counts,
                  counted ? ++state->updates : 0, rate, state->results, &norm);
  stop_unless_finite(state->results[0], norm, index + 1, false);
  return (step_result){norm, !counted};
}

/* One list that updates as it goes. The loss is the mean of those of its updates, the norm the largest. */
static step_result step_updating(pd_run *run, step_state *state, int64_t index, double rate) {
  const pd_program *program = run->program;
  step_result result = {0, 0};
  for (int64_t g = 0; g < state->groups; g++) {
    double *counts = state->counts + g * program->normaliser_count;
    const bool counted = pd_invert_counts(program, counts);
    for (int n = 0; n < program->normaliser_count; n++) counts[n] /= (double)state->groups;
    state->number[g] = counted ? ++state->updates : 0;
    result.skipped += !counted;
  }
  const pd_updates updates = {rate, state->number, state->counts, state->norms};
  pd_engine_step_updating(run->engine, (uint64_t)index, (uint64_t)run->options.seed, &updates, state->results);
  for (int64_t g = 0; g < state->groups; g++) {
    if (!(state->norms[g] <= result.norm)) result.norm = state->norms[g];
  }
  stop_unless_finite(state->results[0], result.norm, index + 1, true);
  return result;
}

/* Step `index`, counted from 0; the record counts from 1. Rates go with the data that were read, so with updates within
 * a list they are counted in lists. */
static pd_step_record train_step(pd_run *run, step_state *state, int64_t index) {
  const pd_program *program = run->program;
  const double began = pd_now();
  const bool inside = pd_list_updates(&run->plan.pipeline) > 0;
  feed_step(run, (uint64_t)index, state);
  const double rate = pd_rate_at(program, inside ? index : state->updates);
  const step_result result = inside ? step_updating(run, state, index, rate) : step_once(run, state, index, rate);
  const double seconds = pd_now() - began;
  const pd_step_record record = {.step = index + 1,
                                 .loss = state->results[0],
                                 .grad_norm = result.norm,
                                 .rate = rate,
                                 .tokens = program->batch * program->tokens_per_sample,
                                 .seconds = seconds,
                                 .mfu = pd_mfu(program->step_flops, seconds, run->progress.peak)};
  if (result.skipped > 0 && !inside) {
    pd_progress_say(&run->progress, true, "step %" PRId64 ": no target counts; skipped, nothing was updated",
                    index + 1);
  } else if (result.skipped > 0) {
    pd_progress_say(&run->progress, true,
                    "step %" PRId64 ": no target counts for %" PRId64 " of its %" PRId64 " updates, which were skipped",
                    index + 1, result.skipped, state->groups);
  }
  return record;
}

/* The gradient of the whole batch of step 1, at the weights that are there before it. */
static void save_gradients(pd_run *run, step_state *state) {
  feed_step(run, 0, state);
  join_groups(run->program, state);
  pd_invert_counts(run->program, state->counts);
  pd_engine_step(run->engine, 0, (uint64_t)run->options.seed, state->counts, state->results);
  pd_weights_save(run->program, run->engine, &run->world, PD_WEIGHT_GRADIENTS, run->options.gradients);
}

void pd_check(pd_run *run) {
  const pd_program *program = run->program;
  step_state state = state_new(run);
  feed_step(run, 0, &state);
  join_groups(program, &state);
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

/* What the run could have done at most, for its last lines, if the program does not declare it. */
static void measure_peak(pd_run *run) {
  pd_progress *progress = &run->progress;
  if (run->options.quiet || progress->done < 2 || progress->peak > 0) return; /* the same on all ranks */
  progress->peak_measured = true;
  progress->peak = pd_engine_product_rate(run->engine);
  pd_sum_double(run->world.all, &progress->peak, 1);
}

void pd_train(pd_run *run) {
  const pd_options *options = &run->options;
  pd_problem problem;
  step_state state = state_new(run);
  state.updates = run->position.updates;
  const bool inside = pd_list_updates(&run->plan.pipeline) > 0;
  pd_progress_begin(&run->progress, run);
  if (inside && options->gradients != NULL && run->position.step == 0) save_gradients(run, &state);
  pd_watch_requests(true);
  for (int64_t index = run->position.step; index < options->steps && !run->stopped; index++) {
    const pd_step_record record = train_step(run, &state, index);
    if (index == 0 && options->gradients != NULL && !inside) {
      pd_weights_save(run->program, run->engine, &run->world, PD_WEIGHT_GRADIENTS, options->gradients);
    }
    if (!pd_log_step(&run->log, &record, &problem)) pd_fail(PD_EXIT_USAGE, "%s", problem.text);
    pd_progress_step(&run->progress, &record);
    const bool last = record.step == options->steps, asked = pd_watch_asked_to_end(&run->world);
    const bool saves = last || asked || due(record.step, options->save_every);
    run->position = (pd_position){record.step, state.updates};
    if (run->valid.samples > 0 && (last || due(record.step, options->eval_every))) pd_evaluate(run, record.step);
    if (saves && (options->save != NULL || options->checkpoint != NULL)) {
      pd_check_replicas(run->engine, &run->world, run->program);
    }
    if (options->save != NULL && saves) {
      pd_weights_save(run->program, run->engine, &run->world, PD_WEIGHTS, options->save);
    }
    if (options->checkpoint != NULL && saves) pd_checkpoint_save(run, run->position);
    run->stopped = asked && !last;
  }
  pd_watch_requests(false);
  if (run->stopped) {
    pd_progress_say(&run->progress, true, "stopped by a signal after step %" PRId64 "%s", run->position.step,
                    options->checkpoint != NULL ? "; --resume goes on from there" : "");
  }
  measure_peak(run);
  pd_progress_end(&run->progress);
  pd_use_record use;
  if (pd_progress_use(&run->progress, run->position.step, &use) && !pd_log_use(&run->log, &use, &problem)) {
    pd_fail(PD_EXIT_USAGE, "%s", problem.text);
  }
  state_free(&state);
}
