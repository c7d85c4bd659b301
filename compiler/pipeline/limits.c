/* The bounds of planning, checked in floating point, which does not overflow, before anything is counted in integers.
 * They lie far above real programs: GPT-3 has 99 units, 24 micro-batches and 2e15 operations a sample. */
#include "pipeline/limits.h"

#include <math.h>

enum { MOST_UNITS = 1 << 16, MOST_CHUNKS = 1 << 16, MOST_ACTIONS = 1 << 20 };
static const double most_counted = 4e18; /* below half of 2^63: sums of two stay in range */
static const double most_weights = 1e14; /* bytes of 12T parameters in f64 */

/* Positions of an axis in one micro-batch, before any split. */
static double size_of(const Graph *graph, const Config *config, Id axis) {
  return (double)(axis == graph->batch ? config->microbatch : graph->axes.at[axis].size);
}

static double elements(const Graph *graph, const Config *config, unsigned rank, const Id *axes) {
  double n = 1;
  for (unsigned k = 0; k < rank; k++) n *= size_of(graph, config, axes[k]);
  return n;
}

/* A product with one filter [out, in, height, width] at every place of the result. */
static double filter_work(const Graph *graph, const Config *config, Id result, Id filter) {
  const Value *y = &graph->values.at[result], *f = &graph->values.at[filter];
  return elements(graph, config, y->rank, y->axes) * elements(graph, config, f->rank - 1u, f->axes + 1);
}

/* At least what an operation costs, and the bytes of its results: a product of all different axes, or the largest
 * tensor. */
static double work(const Graph *graph, const Config *config, const Op *op) {
  double most = 1, product = 1;
  bool seen[256] = {false};
  for (unsigned k = 0; k < op->in_count + op->out_count; k++) {
    bool result = k >= op->in_count;
    const Value *v = &graph->values.at[result ? op->out[k - op->in_count] : op->in[k]];
    double n = elements(graph, config, v->rank, v->axes);
    if (n > most) most = n;
    for (unsigned i = 0; i < v->rank && op->kind == OP_CONTRACT && (result || k < 2); i++) {
      uint8_t label = op->label[result ? 2 : k][i];
      if (!seen[label]) product *= size_of(graph, config, v->axes[i]);
      seen[label] = true;
    }
  }
  if (op->kind == OP_SDPA || op->kind == OP_SDPA_GRAD)
    most *= size_of(graph, config, graph->values.at[op->in[1]].axes[1]);
  if (op->kind == OP_CONV2D) most = filter_work(graph, config, op->out[0], op->in[1]);
  if (op->kind == OP_CONV2D_INPUT_GRAD) most = filter_work(graph, config, op->in[1], op->in[0]);
  if (op->kind == OP_CONV2D_FILTER_GRAD) most = filter_work(graph, config, op->in[1], op->out[0]);
  return 10 * op->out_count * (product > most ? product : most);
}

static double kept_bytes(const Graph *graph, const Config *config, const Op *op) {
  double bytes = 0;
  for (unsigned k = 0; k < op->out_count; k++) {
    const Value *v = &graph->values.at[op->out[k]];
    bytes += 8 * elements(graph, config, v->rank, v->axes);
  }
  return bytes;
}

static Diag *report(Diagnostics *diagnostics, Span span, const char *what, double count, double most) {
  Diag *diag = diag_error(diagnostics, "E0515", span, "the program is too large to plan: %s", what);
  diag_note(diag, "%.10g, and at most %.10g can be planned", count, most);
  return diag;
}

static bool too_many(Diagnostics *diagnostics, Span span, const char *what, double count, double most) {
  report(diagnostics, span, what, count, most);
  return false;
}

static bool check_counts(const Graph *graph, const Config *config, Diagnostics *diagnostics) {
  double units = 0, chunks = (double)config->pp * (double)config->chunks;
  const Segment *longest = NULL;
  for (uint32_t s = 0; s < graph->segments.count; s++) {
    const Segment *segment = &graph->segments.at[s];
    units += (double)segment->trips;
    if (!longest || segment->trips > longest->trips) longest = segment;
  }
  if (units > MOST_UNITS)
    return too_many(diagnostics, longest->span, "it has too many statements and trips of loops", units, MOST_UNITS);
  if (chunks > MOST_CHUNKS)
    return too_many(diagnostics, config->chunks > config->pp ? config->chunks_span : config->pp_span,
                    "pp * chunks is too large", chunks, MOST_CHUNKS);
  double actions = chunks * (double)config->microbatches;
  if (actions <= MOST_ACTIONS) return true;
  Span span = config->microbatch_span.file != UINT32_MAX ? config->microbatch_span : graph->axes.at[graph->batch].span;
  Diag *diag = report(diagnostics, span, "it has too many micro-batches in a step", actions, MOST_ACTIONS);
  double least = ceil((double)config->batch * chunks / ((double)config->dp * MOST_ACTIONS));
  diag_help(diag, "take more samples at a time: `microbatch` of %.0f or more, now %lld", least,
            (long long)config->microbatch);
  return false;
}

bool limits_check(const Graph *graph, const Config *config, Diagnostics *diagnostics) {
  if (!check_counts(graph, config, diagnostics)) return false;
  double operations = 0, bytes = 0; /* of one micro-batch; of all of them, as if all were kept */
  for (uint32_t s = 0; s < graph->segments.count; s++) {
    const Segment *segment = &graph->segments.at[s];
    const IdVec *lists[] = {&segment->forward, &segment->input_grad, &segment->weight_grad};
    for (unsigned l = 0; l < 3; l++)
      for (uint32_t i = 0; i < lists[l]->count; i++) {
        const Op *op = &graph->ops.at[lists[l]->at[i]];
        operations += work(graph, config, op) * (double)segment->trips;
        bytes += kept_bytes(graph, config, op) * (double)segment->trips * (double)config->microbatches;
        if (operations > most_counted)
          return too_many(diagnostics, op->span, "a micro-batch has too many operations", operations, most_counted);
        if (bytes > most_counted)
          return too_many(diagnostics, op->span, "its results have too many bytes", bytes, most_counted);
      }
  }
  double weights = 0; /* of all stages, on one tensor-parallel rank */
  for (uint32_t i = 0; i < graph->params.count; i++) {
    const Param *param = &graph->params.at[i];
    double trips = param->per_trip && param->segment != NO_ID ? (double)graph->segments.at[param->segment].trips : 1;
    weights += 8 * trips * (double)axes_local_elements(graph, config, param->rank, param->axes);
    if (weights > most_weights)
      return too_many(diagnostics, param->span, "its parameters have too many bytes", weights, most_weights);
  }
  for (uint32_t i = 0; i < graph->data.count; i++) {
    const Data *data = &graph->data.at[i];
    bytes += 8 * elements(graph, config, data->rank, data->axes) * (double)config->microbatches;
    if (bytes > most_counted)
      return too_many(diagnostics, data->span, "its inputs have too many bytes", bytes, most_counted);
  }
  return true;
}
