/* Partition, schedule, communication, memory check: one after the other. */
#include "pipeline/stages.h"

#include <string.h>

#include "pipeline/automatic.h"
#include "pipeline/layout_string.h"

static int64_t (*costs_of_units(Arena *arena, const Graph *graph, const Config *config, const pd_program *program))[3] {
  int64_t units = pd_unit_count(program), next = 0;
  int64_t(*flops)[3] = arena_alloc(arena, sizeof *flops * (size_t)units);
  for (uint32_t s = 0; s < graph->segments.count; s++) {
    const Segment *segment = &graph->segments.at[s];
    for (int64_t t = 0; t < segment->trips; t++, next++) {
      flops[next][0] = segment->flops_f * config->microbatch;
      flops[next][1] = segment->flops_i * config->microbatch;
      flops[next][2] = segment->flops_w * config->microbatch;
    }
  }
  return flops;
}

/* What a layout counts as layers: the trips of the model's loops. Statements between two loops go with the layer before
 * them. NULL, or why there are none. */
static const char *find_layers(Arena *arena, const pd_program *program, LayoutUnits *units) {
  int64_t *end = ARENA_ARRAY(arena, int64_t, pd_unit_count(program)), at = 0;
  int last = PD_NONE;
  *units = (LayoutUnits){.layer_end = end};
  for (int s = 0; s < program->segment_count; s++)
    if (program->segments[s].trips > 1) last = s;
  for (int s = 0; s < program->segment_count; s++) {
    int64_t trips = program->segments[s].trips;
    for (int64_t trip = 0; trip < trips; trip++) {
      at++;
      if (trips > 1) end[units->layers++] = at;
      else if (units->layers == 0) units->before++;
      else if (s < last) end[units->layers - 1] = at;
      else units->after++;
    }
  }
  return units->layers > 0 ? NULL : "the model has no loop (repeat) whose trips could be the layers (t)";
}

static const char *cut_by_layout(Arena *arena, const Prices *prices, int chunks, int64_t *bounds) {
  Layout layout;
  LayoutUnits units;
  const char *why = layout_parse(arena, prices->config->layout, &layout);
  if (!why) why = find_layers(arena, prices->program, &units);
  if (why) return why;
  int64_t *found = ARENA_ARRAY(arena, int64_t, layout.count + 1);
  why = layout_bounds(arena, &layout, chunks, units, found);
  if (!why) memcpy(bounds, found, sizeof *bounds * (size_t)(chunks + 1));
  return why;
}

const char *stages_cut(Arena *arena, const Prices *prices, int chunks, int64_t *bounds) {
  if (prices->config->layout) return cut_by_layout(arena, prices, chunks, bounds);
  int64_t units = pd_unit_count(prices->program), (*flops)[3] = prices->unit_flops;
  int64_t *costs = ARENA_ARRAY(arena, int64_t, units);
  for (int64_t u = 0; u < units; u++) costs[u] = 1 + flops[u][0] + flops[u][1] + flops[u][2];
  return partition(arena, costs, units, chunks, bounds) ? NULL : "there are fewer pieces than chunks";
}

static bool cut(Arena *arena, const Prices *prices, int chunks, int64_t *bounds, Diagnostics *diagnostics) {
  const Config *config = prices->config;
  const char *why = stages_cut(arena, prices, chunks, bounds);
  if (!why) return true;
  if (config->layout) {
    Diag *diag = diag_error(diagnostics, "E0514", config->layout_span, "%s", why);
    diag_note(diag, "pp = %lld with %lld chunk%s a rank %s %d stages, in order: the first chunks of all ranks, then their second",
              (long long)config->pp, (long long)config->chunks, config->chunks == 1 ? "" : "s", chunks == 1 ? "is" : "are", chunks);
    diag_help(diag, "E is the statements before the model's loop, t a trip of it, L the statements behind it; `|` ends a stage; or leave `layout` out");
    return false;
  }
  int64_t units = pd_unit_count(prices->program);
  Diag *diag = diag_error(diagnostics, "E0510", config->chunks > 1 ? config->chunks_span : config->pp_span,
                          "%lld piece%s cannot fill %d pipeline chunks", (long long)units, units == 1 ? "" : "s", chunks);
  diag_note(diag, "the program has %lld piece%s that can be cut apart (statements of the model and iterations of its loops); pp = "
                  "%lld with %lld chunk%s a rank needs at least %d",
            (long long)units, units == 1 ? "" : "s", (long long)config->pp, (long long)config->chunks, config->chunks == 1 ? "" : "s", chunks);
  if (config->chunks > 1 && units >= config->pp)
    diag_help(diag, "use chunks of at most %lld, or pp of at most %lld", (long long)(units / config->pp),
              (long long)(units / config->chunks));
  else if (units >= config->chunks) diag_help(diag, "use pp of at most %lld", (long long)(units / config->chunks));
  else diag_help(diag, "use chunks of at most %lld", (long long)units);
  return false;
}

/* gradient_into[c]: some wire that enters chunk c needs a gradient. */
static bool *gradients_into(Arena *arena, const pd_program *program, const pd_pipeline *pipeline) {
  bool *into = ARENA_ARRAY(arena, bool, pipeline->chunk_count);
  for (int c = 1; c < pipeline->chunk_count; c++) {
    if (pd_chunk_before(pipeline, c) == PD_NO_CHUNK) continue;
    int wires[PD_MAX_WIRES], count = pd_live_wires(program, pipeline->first_unit[c % pd_copy_chunks(pipeline)], wires);
    for (int k = 0; k < count; k++) into[c] |= program->wires[wires[k]].needs_grad;
  }
  return into;
}

void stages_connect(Arena *arena, const Prices *prices, pd_pipeline *pipeline) {
  const pd_program *program = prices->program;
  int count = pipeline->chunk_count, each = pd_copy_chunks(pipeline);
  double *costs[3];
  for (int k = 0; k < 3; k++) costs[k] = ARENA_ARRAY(arena, double, count);
  price_chunks(prices, pipeline->first_unit, each, costs[0], costs[1], costs[2]);
  for (int k = 0; k < 3; k++)
    for (int c = each; c < count; c++) costs[k][c] = costs[k][c - each];
  ScheduleCosts all = {costs[0], costs[1], costs[2], price_hop(prices, pipeline->first_unit, each, pipeline->rank_of)};
  schedule_insert_timed_communication(arena, pipeline, &all, gradients_into(arena, program, pipeline), program->dp > 1);
}

static bool fits(const Graph *graph, const Config *config, const pd_program *program, const pd_pipeline *pipeline,
                 Diagnostics *diagnostics) {
  if (config->memory <= 0) return true;
  (void)graph;
  for (int rank = 0; rank < pipeline->pp; rank++) {
    pd_layout *layout = pd_layout_new(program, pipeline, rank);
    int64_t total = pd_layout_total(layout);
    if ((double)total > config->memory) {
      int64_t in_flight = 0;
      for (int c = 0; c < pipeline->chunk_count; c++)
        if (pipeline->rank_of[c] == rank && pd_in_flight(pipeline, c) > in_flight) in_flight = pd_in_flight(pipeline, c);
      Diag *diag = diag_error(diagnostics, "E0520", config->memory_span, "stage %d needs %lld bytes a rank, but `memory` is %.0f", rank,
                              (long long)total, config->memory);
      for (pd_memory_class kind = 0; kind < PD_MEMORY_CLASSES; kind++)
        diag_note(diag, "%s: %lld bytes", pd_memory_class_name(kind), (long long)pd_layout_bytes(layout, kind));
      diag_note(diag, "up to %lld micro-batch%s in flight on this stage", (long long)in_flight, in_flight == 1 ? " is" : "es are");
      diag_help(diag, "use a larger pp or tp, a smaller microbatch (now %lld), `schedule < kind=1f1b; >` or `recompute=full`",
                (long long)config->microbatch);
      pd_layout_free(layout);
      return false;
    }
    pd_layout_free(layout);
  }
  return true;
}

/* The kind that `config` names, if the engine runs it and it exists for these sizes. */
static const ScheduleKind *find_kind(Arena *arena, const Config *config, const ScheduleRequest *request, Diagnostics *diagnostics) {
  const ScheduleKind *kind = schedule_find(config->schedule);
  if (!kind) { /* the sections name only what there is */
    diag_error(diagnostics, "E0900", config->kind_span, "internal error: no generator for the schedule `%s`", config->schedule);
    return NULL;
  }
  if (kind->step && config->clip > 0) {
    Diag *diag = diag_error(diagnostics, "E0513", config->kind_span, "`%s` cannot clip gradients", kind->name);
    diag_note(diag, "a stage updates its weights as soon as it has its own gradient; the norm of the whole gradient is not known then");
    diag_help(diag, "leave `optimizer.clip` out, now %.10g, or use `kind=1f1b`", config->clip);
    return NULL;
  }
  if (kind->step && config->accumulators > 1) {
    Diag *diag = diag_error(diagnostics, "E0513", config->accumulators_span, "`%s` cannot sum gradients in two halves", kind->name);
    diag_note(diag, "it updates within the step, so there is no sum over all micro-batches");
    diag_help(diag, "leave `accumulators` out, or use `kind=1f1b`");
    return NULL;
  }
  const char *refusal = kind->refuse ? kind->refuse(arena, request) : NULL;
  if (!refusal) return kind;
  diag_error(diagnostics, "E0512", config->kind_span, "%s", refusal);
  return NULL;
}

static bool uses(const pd_segment_info *segment, int param) {
  for (int k = 0; k < segment->shared_count; k++)
    if (segment->shared[k] == param) return true;
  return false;
}

/* Without a flush a stage updates alone, so nothing that is trained may be used on two of them. */
static bool ties_stay_on_a_rank(const Graph *graph, const pd_program *program, const pd_pipeline *pipeline, const char *kind,
                                Diagnostics *diagnostics) {
  for (int p = 0; p < program->param_count && pipeline->step > 0; p++) {
    int first = PD_NO_CHUNK, chunk = 0;
    int64_t unit = 0;
    for (int s = 0; s < program->segment_count; s++)
      for (int64_t trip = 0; trip < program->segments[s].trips; trip++, unit++) {
        while (unit >= pipeline->first_unit[chunk + 1]) chunk++;
        if (program->params[p].frozen || !uses(&program->segments[s], p)) continue;
        if (first == PD_NO_CHUNK) first = chunk;
        if (first == chunk) continue;
        Diag *diag = diag_error(diagnostics, "E0513", graph->params.at[p].span, "`%s` cannot train `%s`, which stages %d and %d both use", kind,
                                program->params[p].name, first, chunk);
        diag_note(diag, "every stage updates its weights at its own time, and the gradient of `%s` is a sum over both", program->params[p].name);
        diag_help(diag, "give each use a parameter of its own, or use `kind=1f1b`");
        return false;
      }
  }
  return true;
}

/* Computations only, for kind=auto. */
static bool choose(Arena *arena, Config *config, pd_program *program, int64_t (*flops)[3], Diagnostics *diagnostics,
                   pd_pipeline *pipeline) {
  PlannerChoice choice;
  if (!automatic_choose(arena, &(Prices){config, program, flops}, &choice)) {
    /* with one chunk a rank it is either too few pieces or too little memory: both have a text of their own */
    int64_t *bounds = ARENA_ARRAY(arena, int64_t, config->pp * config->chunks + 1);
    Prices prices = {config, program, flops};
    if (!cut(arena, &prices, (int)(config->pp * config->chunks), bounds, diagnostics)) return false;
    Diag *diag = diag_error(diagnostics, "E0520", config->kind_span, "no schedule fits into the memory of a rank, which is %.0f bytes", config->memory);
    for (int k = 0; k < choice.rejected_count; k++) diag_note(diag, "%s", choice.rejected[k]);
    diag_help(diag, "use a larger pp or tp, a smaller microbatch (now %lld), or `recompute=full`", (long long)config->microbatch);
    return false;
  }
  *pipeline = choice.pipeline;
  config->schedule = choice.kind;
  config->chunks = program->chunks = choice.chunks;
  config->schedule_why = automatic_text(arena, &choice);
  return true;
}

void stages_count_chunks(Arena *arena, Config *config) {
  Layout layout;
  if (!config->layout || config->chunks_said || layout_parse(arena, config->layout, &layout)) return;
  if (layout.count % config->pp == 0) config->chunks = layout.count / config->pp; /* else the cut says so */
}

pd_pipeline *stages_plan(Arena *arena, const Graph *graph, Config *config, pd_program *program, Diagnostics *diagnostics,
                         int64_t (**unit_flops)[3]) {
  *unit_flops = costs_of_units(arena, graph, config, program);
  pd_pipeline *pipeline = ARENA_NEW(arena, pd_pipeline);
  if (strcmp(config->schedule, "auto") == 0) {
    if (!choose(arena, config, program, *unit_flops, diagnostics, pipeline)) return NULL;
  } else {
    ScheduleRequest request = {(int)config->pp, (int)config->chunks, config->microbatches};
    const ScheduleKind *kind = find_kind(arena, config, &request, diagnostics);
    if (!kind) return NULL;
    *pipeline = schedule_make(arena, kind, &request);
  }
  pipeline->accumulators = (int)config->accumulators;
  schedule_continue_sums(arena, pipeline);
  int chunks = pd_copy_chunks(pipeline);
  int64_t *bounds = ARENA_ARRAY(arena, int64_t, chunks + 1);
  Prices prices = {config, program, *unit_flops};
  if (!cut(arena, &prices, chunks, bounds, diagnostics)) return NULL;
  for (int c = 1; c < chunks; c++) {
    int wires[PD_MAX_WIRES], count = pd_live_wires(program, bounds[c], wires);
    if (count <= PD_MAX_WIRES) continue;
    diag_error(diagnostics, "E0922", config->pp_span, "%d values cross the cut between chunk %d and chunk %d; this version has room for %d",
               count, c - 1, c, PD_MAX_WIRES);
    return NULL;
  }
  pipeline->first_unit = bounds;
  if (!ties_stay_on_a_rank(graph, program, pipeline, config->schedule, diagnostics)) return NULL;
  stages_connect(arena, &prices, pipeline);
  return fits(graph, config, program, pipeline, diagnostics) ? pipeline : NULL;
}

void stages_memory_text(const pd_program *program, const pd_pipeline *pipeline, Text *out) {
  text_printf(out, "%-6s", "rank");
  for (pd_memory_class kind = 0; kind < PD_MEMORY_CLASSES; kind++) text_printf(out, "%15s", pd_memory_class_name(kind));
  text_printf(out, "%15s\n", "total");
  for (int rank = 0; rank < pipeline->pp; rank++) {
    pd_layout *layout = pd_layout_new(program, pipeline, rank);
    text_printf(out, "%-6d", rank);
    for (pd_memory_class kind = 0; kind < PD_MEMORY_CLASSES; kind++) text_printf(out, "%15lld", (long long)pd_layout_bytes(layout, kind));
    text_printf(out, "%15lld\n", (long long)pd_layout_total(layout));
    pd_layout_free(layout);
  }
}

void stages_say(const Graph *graph, const Config *config, const pd_program *program, const pd_pipeline *pipeline, FILE *out) {
  int64_t parameters = 0;
  for (int i = 0; i < program->param_count; i++) {
    const pd_param_info *param = &program->params[i];
    int64_t size = param->per_trip ? program->segments[param->segment].trips : 1;
    for (int k = 0; k < param->rank; k++) size *= param->shape[k];
    if (!param->statistic) parameters += size;
  }
  fprintf(out, "model %s: %lld parameters, %lld units\n", graph->model, (long long)parameters, (long long)pd_unit_count(program));
  fprintf(out, "layout: pp %lld x dp %lld x tp %lld; %s, %lld micro-batches of %lld%s\n", (long long)config->pp, (long long)config->dp,
          (long long)config->tp, config->schedule, (long long)config->microbatches, (long long)config->microbatch,
          config->recompute == RECOMPUTE_FULL        ? "; recompute=full"
          : config->recompute == RECOMPUTE_SELECTIVE ? "; recompute=selective"
                                                     : "");
  if (config->schedule_why) fprintf(out, "kind=auto: %s\n", config->schedule_why);
  for (int c = 0; c < pipeline->chunk_count; c++) {
    int cut = c % pd_copy_chunks(pipeline);
    fprintf(out, "chunk %d on stage %d%s:", c, pipeline->rank_of[c], c == cut ? "" : ", second copy");
    for (int64_t u = pipeline->first_unit[cut]; u < pipeline->first_unit[cut + 1];) {
      int segment;
      int64_t trip;
      pd_unit_locate(program, u, &segment, &trip);
      int64_t left = program->segments[segment].trips - trip, room = pipeline->first_unit[cut + 1] - u;
      int64_t run = left < room ? left : room;
      if (program->segments[segment].trips == 1) fprintf(out, " %s", program->segments[segment].name);
      else fprintf(out, " %s[%lld..%lld]", program->segments[segment].name, (long long)trip, (long long)(trip + run - 1));
      u += run;
    }
    fprintf(out, "%s; %lld micro-batches in flight", pipeline->first_unit[c] == pipeline->first_unit[c + 1] ? " nothing" : "",
            (long long)pd_in_flight(pipeline, c));
    if (pipeline->step > 0)
      fprintf(out, "; %lld versions of the weights, gradients %lld updates late", (long long)pd_weight_versions(pipeline, c),
              (long long)pd_weight_staleness(pipeline, c));
    fprintf(out, "\n");
  }
  Arena *arena = arena_new();
  Text text = {.arena = arena};
  stages_memory_text(program, pipeline, &text);
  fprintf(out, "bytes on a rank of each stage:\n%s", text.at);
  arena_free(arena);
}
