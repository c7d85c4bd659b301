/* Finite differences over whole runs of the pipeline: every rank that holds an element of a parameter moves it, so the
 * check covers the layout as it runs. And a comparison of what ranks hold in common, by checksums. */
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

static double read_real(pd_engine *engine, const void *x, int64_t i, int bytes) {
  union {
    double wide;
    float narrow;
  } real;
  pd_engine_read(engine, &real, (const char *)x + i * bytes, bytes);
  return bytes == 8 ? real.wide : (double)real.narrow;
}

static void write_real(pd_engine *engine, void *x, int64_t i, int bytes, double value) {
  const float narrow = (float)value;
  pd_engine_write(engine, (char *)x + i * bytes, bytes == 8 ? (const void *)&value : (const void *)&narrow, bytes);
}

typedef struct Check {
  pd_engine *engine;
  pd_world *world;
  const pd_program *program;
  uint64_t seed;
  const double *inverse_counts;
  double *results;
} Check;

/* The loss of the step with the weights as they are; dropout draws the same masks every time. Replaces the gradients. */
static double loss_now(const Check *c) {
  pd_engine_step(c->engine, 0, c->seed, c->inverse_counts, c->results);
  return c->results[0];
}

/* Root mean square of a parameter's gradient, on all ranks. */
static double gradient_scale(const Check *c, const pd_part *part, int64_t elements) {
  double sum = 0;
  if (part->owner && part->gradients)
    for (int64_t i = 0; i < part->elements; i++) {
      double g = read_real(c->engine, part->gradients, i, pd_wide_bytes(c->program));
      sum += g * g;
    }
  pd_sum_double(c->world->all, &sum, 1);
  return sqrt(sum / (double)elements);
}

/* The gradient of one logical element, on all ranks. */
static double gradient_at(const Check *c, const pd_part *part, int64_t element) {
  int64_t at = local_index(part, element);
  double gradient = at >= 0 && part->owner ? read_real(c->engine, part->gradients, at, pd_wide_bytes(c->program)) : 0;
  pd_sum_double(c->world->all, &gradient, 1);
  return gradient;
}

static double difference_at(const Check *c, pd_part *part, int64_t element, double h) {
  int bytes = pd_wide_bytes(c->program);
  int64_t at = local_index(part, element);
  double kept = at >= 0 ? read_real(c->engine, part->weights, at, bytes) : 0, difference = 0;
  static const struct {
    double step, weight;
  } stencil[] = {{1, 8}, {-1, -8}, {2, -1}, {-2, 1}}; /* fourth order: error h^4 */
  for (int i = 0; i < 4; i++) {
    if (at >= 0) write_real(c->engine, part->weights, at, bytes, kept + stencil[i].step * h);
    difference += stencil[i].weight / (12 * h) * loss_now(c);
  }
  if (at >= 0) write_real(c->engine, part->weights, at, bytes, kept);
  return difference;
}

/* Largest error of up to `elements` elements of one tensor of `size`. */
static double check_tensor(const Check *c, pd_part *part, const char *name, int64_t size, int64_t elements) {
  int64_t count = size < elements ? size : elements;
  double *gradient = malloc(sizeof(double) * (size_t)count);
  int64_t *element = malloc(sizeof(int64_t) * (size_t)count);
  if (!gradient || !element) pd_fail(PD_EXIT_MEMORY, "no memory for the gradient check");
  loss_now(c); /* gradients at the weights themselves */
  double scale = gradient_scale(c, part, size), worst = 0, h = pd_wide_bytes(c->program) == 8 ? 1e-4 : 1e-2;
  for (int64_t i = 0; i < count; i++) {
    element[i] = size <= elements ? i : (int64_t)pd_permute(c->seed, pd_purpose(name), (uint64_t)size, (uint64_t)i);
    gradient[i] = gradient_at(c, part, element[i]);
  }
  for (int64_t i = 0; i < count; i++) {
    double difference = difference_at(c, part, element[i], h);
    double error = fabs(gradient[i] - difference) / (fabs(gradient[i]) + fabs(difference) + scale + 1e-12);
    if (!(error <= worst)) worst = error; /* a NaN is the worst */
  }
  free(gradient);
  free(element);
  return worst;
}

static void print_tensor(const char *name, int64_t trip, double worst) {
  const char *brace = strstr(name, "{}");
  if (brace) printf("parameter %.*s%lld%s: largest error %.3g\n", (int)(brace - name), name, (long long)trip, brace + 2, worst);
  else printf("parameter %s: largest error %.3g\n", name, worst);
}

double pd_check_gradients(pd_engine *engine, pd_world *world, const pd_program *program, uint64_t seed,
                          const double *inverse_counts, int64_t elements) {
  double *results = calloc((size_t)program->metric_count + 1, sizeof(double)), largest = 0;
  if (!results) pd_fail(PD_EXIT_MEMORY, "no memory for the gradient check");
  Check check = {engine, world, program, seed, inverse_counts, results};
  for (int p = 0; p < program->param_count; p++) {
    const pd_param_info *info = &program->params[p];
    int64_t trips = info->per_trip ? program->segments[info->segment].trips : 1, size = 1;
    for (int k = 0; k < info->rank; k++) size *= info->shape[k];
    for (int64_t trip = 0; trip < trips && !info->frozen && !info->statistic; trip++) {
      pd_part part = pd_engine_part(engine, p, trip);
      double worst = check_tensor(&check, &part, info->name, size, elements);
      if (world->rank == 0) print_tensor(info->name, trip, worst);
      if (!(worst <= largest)) largest = worst;
    }
  }
  if (world->rank == 0) printf("largest error of all parameters: %.3g\n", largest);
  free(results);
  return largest;
}

/* ---- weights held in common ---- */

enum { PIECE = 1 << 16 }; /* words that are read at a time */

/* FNV-1a over `bytes` of the allocation, four at a time. */
static uint64_t checksum(pd_engine *engine, const char *from, int64_t bytes, uint32_t *piece) {
  uint64_t sum = UINT64_C(14695981039346656037);
  for (int64_t at = 0; at < bytes; at += 4 * PIECE) {
    const int64_t rest = bytes - at, count = rest < 4 * PIECE ? rest / 4 : PIECE;
    pd_engine_read(engine, piece, from + at, 4 * count);
    for (int64_t i = 0; i < count; i++) sum = (sum ^ piece[i]) * UINT64_C(1099511628211);
  }
  return sum;
}

/* One tensor: the least and the greatest checksum of the ranks that hold it; none: the least is the greater. */
typedef struct Range {
  uint64_t low, high;
} Range;

static const Range nobody = {UINT64_MAX, 0};

static int64_t trips_of(const pd_program *program, int param) {
  const pd_param_info *info = &program->params[param];
  return info->per_trip && info->segment != PD_NONE ? program->segments[info->segment].trips : 1;
}

/* Ranges over the members of a communicator. */
static void join(MPI_Comm comm, Range *ranges, int64_t count) {
  for (int64_t i = 0; i < count; i++) ranges[i].high = ~ranges[i].high; /* so that both are least */
  MPI_Allreduce(MPI_IN_PLACE, ranges, (int)(2 * count), MPI_UINT64_T, MPI_MIN, comm);
  for (int64_t i = 0; i < count; i++) ranges[i].high = ~ranges[i].high;
}

static bool differ(Range range) {
  return range.low < range.high;
}

void pd_check_replicas(pd_engine *engine, const pd_world *world, const pd_program *program) {
  int64_t count = 0, i = 0;
  for (int p = 0; p < program->param_count; p++) count += trips_of(program, p);
  Range *ranges = malloc(((size_t)count + 1) * sizeof *ranges);
  uint32_t *piece = malloc(PIECE * sizeof *piece);
  if (!ranges || !piece) pd_fail(PD_EXIT_MEMORY, "no memory for checksums of the weights");
  for (int p = 0; p < program->param_count; p++)
    for (int64_t trip = 0; trip < trips_of(program, p); trip++, i++) {
      pd_part part = pd_engine_part(engine, p, trip);
      ranges[i] = nobody;
      if (!part.weights) continue;
      ranges[i].low = ranges[i].high = checksum(engine, part.weights, part.elements * pd_wide_bytes(program), piece);
    }
  join(world->pipe, ranges, count);
  join(world->replicas, ranges, count);
  i = 0;
  for (int p = 0; p < program->param_count; p++)
    for (int64_t trip = 0; trip < trips_of(program, p); trip++, i++)
      if (program->params[p].split_axis != PD_NONE && !differ(ranges[i])) ranges[i] = nobody; /* each has another part */
  join(world->tensor, ranges, count);
  i = 0;
  for (int p = 0; p < program->param_count; p++)
    for (int64_t trip = 0; trip < trips_of(program, p); trip++, i++)
      if (differ(ranges[i]))
        pd_fail(PD_EXIT_NUMERIC, "ranks that hold the same weights differ in `%s`, trip %lld", program->params[p].name,
                (long long)trip);
  free(ranges);
  free(piece);
}
