/* The mean over a whole validation set, in passes of at most one global batch.
 *
 * A pass evaluates some micro-batches on every replica and yields its share of the mean, because both divisors are
 * those of the whole set: the normalisers count its targets, and batch_scale turns a mean over one batch into a share
 * of the mean over all samples. The shares of all passes add up. In the last pass rows that have no sample left repeat
 * another and count nowhere.
 */
#include "evaluate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void pd_evaluate_prepare(pd_run *run) {
  const pd_program *program = run->program;
  pd_problem problem;
  run->valid_inverse = calloc((size_t)program->normaliser_count + 1, sizeof *run->valid_inverse);
  if (run->valid_inverse == NULL) pd_fail(PD_EXIT_MEMORY, "not enough memory");
  for (int64_t s = run->world.rank; s < run->valid.samples; s += run->world.size) {
    for (int d = 0; d < program->data_count; d++) {
      int64_t counted;
      if (!pd_data_row(&run->valid, d, s, run->world.tp_rank, NULL, &counted, &problem)) {
        pd_fail(PD_EXIT_DATA, "%s", problem.text);
      }
      for (int n = 0; n < program->normaliser_count; n++) {
        if (program->normalisers[n] == d) run->valid_inverse[n] += (double)counted;
      }
    }
  }
  pd_sum_double(run->world.all, run->valid_inverse, program->normaliser_count);
  pd_invert_counts(program, run->valid_inverse);
}

static void show(pd_run *run, int64_t step, const double *sums) {
  const pd_program *program = run->program;
  pd_problem problem;
  char loss[PD_FIGURE], line[1024];
  size_t n = (size_t)snprintf(line, sizeof line, "validation loss %s", pd_figure_loss(sums[0], loss));
  if (program->normaliser_count > 0) {
    n +=
        (size_t)snprintf(line + n, sizeof line - n, " (nats per %s)", program->tokens_are_samples ? "sample" : "token");
  }
  pd_metric *metrics = calloc((size_t)program->metric_count + 1, sizeof *metrics);
  if (metrics == NULL) pd_fail(PD_EXIT_MEMORY, "not enough memory");
  for (int m = 0; m < program->metric_count && n < sizeof line; m++) {
    metrics[m] = (pd_metric){.name = program->metrics[m], .value = sums[1 + m]};
    const bool share = strstr(metrics[m].name, "accuracy") != NULL;
    n += (size_t)snprintf(line + n, sizeof line - n, share ? "  %s %.2f %%" : "  %s %.5g", metrics[m].name,
                          metrics[m].value * (share ? 100 : 1));
  }
  if (run->world.rank == 0) pd_progress_say(&run->progress, true, "%s", line);
  if (!pd_log_eval(&run->log, step, sums[0], run->valid.samples, metrics, program->metric_count, &problem)) {
    pd_fail(PD_EXIT_USAGE, "%s", problem.text);
  }
  free(metrics);
}

void pd_evaluate(pd_run *run, int64_t step) {
  const pd_program *program = run->program;
  const int64_t total = run->valid.samples, rows = program->microbatch, wide = rows * program->dp;
  const size_t results_count = (size_t)program->metric_count + 1;
  int64_t *valid = calloc((size_t)program->microbatches, sizeof *valid),
          *samples = calloc((size_t)rows, sizeof *samples);
  double *sums = calloc(results_count, sizeof *sums), *results = calloc(results_count, sizeof *results);
  double *counts = calloc((size_t)program->normaliser_count + 1, sizeof *counts);
  if (valid == NULL || samples == NULL || sums == NULL || results == NULL || counts == NULL) {
    pd_fail(PD_EXIT_MEMORY, "not enough memory");
  }
  for (int64_t first = 0; first < total; first += program->batch) {
    const int64_t left = total - first < program->batch ? total - first : program->batch;
    const int64_t count = (left + wide - 1) / wide; /* micro-batches, the same number on every replica */
    for (int64_t mb = 0; mb < count; mb++) {
      const int64_t at = first + mb * wide + run->world.dp_rank * rows;
      valid[mb] = at >= total ? 0 : total - at < rows ? total - at : rows;
      for (int64_t i = 0; i < rows; i++) samples[i] = i < valid[mb] ? at + i : valid[mb] > 0 ? at : 0;
      pd_feed(run, &run->valid, mb, samples, valid[mb], counts);
    }
    pd_engine_evaluate(run->engine, count, valid, run->valid_inverse, (double)program->batch / (double)total, results);
    for (size_t i = 0; i < results_count; i++) sums[i] += results[i];
  }
  show(run, step, sums);
  free(valid);
  free(samples);
  free(sums);
  free(results);
  free(counts);
}
