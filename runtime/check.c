/* Finite differences over whole runs of the pipeline: every rank that holds an element of a parameter moves it, so the
 * check covers the layout as it runs. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

/* Index of logical element `element` in this rank's part, or -1. */
static int64_t local_index(const pd_part *part, int64_t element) {
  if (!part->weights) return -1;
  int64_t index = 0, stride = 1;
  for (int k = part->local.rank; k-- > 0;) {
    int64_t at = element % part->local.global[k] - part->local.first[k];
    element /= part->local.global[k];
    if (at < 0 || at >= part->local.size[k]) return -1;
    index += at * stride;
    stride *= part->local.size[k];
  }
  return index;
}

static double read_real(const void *x, int64_t i, int bytes) {
  return bytes == 8 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

static void write_real(void *x, int64_t i, int bytes, double value) {
  if (bytes == 8) ((double *)x)[i] = value;
  else ((float *)x)[i] = (float)value;
}

static double loss_now(pd_engine *engine, const pd_program *program, const double *inverse_counts, const int64_t *samples,
                       double *results) {
  pd_engine_evaluate(engine, program->microbatches, samples, inverse_counts, 1, results);
  return results[0];
}

typedef struct Check {
  pd_engine *engine;
  pd_world *world;
  const pd_program *program;
  const double *inverse_counts;
  const int64_t *samples;
  double *results;
} Check;

/* Root mean square of a parameter's gradient, on all ranks. */
static double gradient_scale(const Check *c, const pd_part *part, int64_t elements) {
  double sum = 0;
  if (part->owner && part->gradients)
    for (int64_t i = 0; i < part->elements; i++) {
      double g = read_real(part->gradients, i, c->program->real_bytes);
      sum += g * g;
    }
  pd_sum_double(c->world->all, &sum, 1);
  return sqrt(sum / (double)elements);
}

static double check_element(const Check *c, pd_part *part, int64_t element, double scale, double h) {
  int bytes = c->program->real_bytes;
  int64_t at = local_index(part, element);
  double gradient = at >= 0 && part->owner ? read_real(part->gradients, at, bytes) : 0;
  pd_sum_double(c->world->all, &gradient, 1);
  double kept = at >= 0 ? read_real(part->weights, at, bytes) : 0, difference = 0;
  static const struct {
    double step, weight;
  } stencil[] = {{1, 8}, {-1, -8}, {2, -1}, {-2, 1}}; /* fourth order: error h^4 */
  for (int i = 0; i < 4; i++) {
    if (at >= 0) write_real(part->weights, at, bytes, kept + stencil[i].step * h);
    difference += stencil[i].weight / (12 * h) * loss_now(c->engine, c->program, c->inverse_counts, c->samples, c->results);
  }
  if (at >= 0) write_real(part->weights, at, bytes, kept);
  return fabs(gradient - difference) / (fabs(gradient) + fabs(difference) + scale + 1e-12);
}

double pd_check_gradients(pd_engine *engine, pd_world *world, const pd_program *program, uint64_t seed,
                          const double *inverse_counts, int64_t elements) {
  int64_t *samples = malloc(sizeof(int64_t) * (size_t)program->microbatches);
  double *results = calloc((size_t)program->metric_count + 1, sizeof(double));
  if (!samples || !results) pd_fail(PD_EXIT_MEMORY, "no memory for the gradient check");
  for (int64_t i = 0; i < program->microbatches; i++) samples[i] = program->microbatch;
  pd_engine_step(engine, 0, seed, inverse_counts, results);
  Check check = {engine, world, program, inverse_counts, samples, results};
  double h = program->real_bytes == 8 ? 1e-4 : 1e-2, largest = 0;
  for (int p = 0; p < program->param_count; p++) {
    const pd_param_info *info = &program->params[p];
    int64_t trips = info->per_trip ? program->segments[info->segment].trips : 1, size = 1;
    for (int k = 0; k < info->rank; k++) size *= info->shape[k];
    for (int64_t trip = 0; trip < trips && !info->frozen; trip++) {
      pd_part part = pd_engine_part(engine, p, trip);
      double scale = gradient_scale(&check, &part, size), worst = 0;
      for (int64_t i = 0; i < elements && i < size; i++) {
        int64_t element = size <= elements ? i : (int64_t)pd_permute(seed, pd_purpose(info->name), (uint64_t)size, (uint64_t)i);
        double error = check_element(&check, &part, element, scale, h);
        if (!(error <= worst)) worst = error; /* a NaN is the worst */
      }
      if (world->rank == 0) {
        const char *brace = strstr(info->name, "{}");
        if (brace) printf("parameter %.*s%lld%s: largest error %.3g\n", (int)(brace - info->name), info->name, (long long)trip, brace + 2, worst);
        else printf("parameter %s: largest error %.3g\n", info->name, worst);
      }
      if (!(worst <= largest)) largest = worst;
    }
  }
  if (world->rank == 0) printf("largest error of all parameters: %.3g\n", largest);
  free(samples);
  free(results);
  return largest;
}
