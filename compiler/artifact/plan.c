/* The pd-plan, version 1: everything that was decided, as canonical JSON (docs/plan.md says what every key means).
 *
 * Costs come from FLOPs and the declared cluster; what is not declared is assumed and named in `cluster`. They are
 * rounded to whole nanoseconds at once, so that everything made from them is exact and the same on every machine.
 * Memory comes from the layout that the program will allocate, communication from the lists it will follow. */
#include <math.h>
#include <string.h>

#include "artifact/artifact.h"
#include "artifact/json.h"
#include "distribute/collectives.h"
#include "pipeline/prices.h"

enum { COST_F, COST_I, COST_W };

typedef struct Chunk {
  int64_t parameters; /* elements of the whole model's tensors; a tied one counts in the first chunk that uses it */
  int64_t flops[3];
  const pd_chunk_plan *plan;
} Chunk;

typedef struct Writer {
  const PlanInput *input;
  const pd_program *program;
  const pd_pipeline *pipeline;
  Json json;
  pd_layout **layouts; /* per pipeline rank */
  Chunk *chunks;
  int64_t *segment_first; /* per segment: its first unit; segment_count + 1 entries */
  bool *gradient_sent;    /* per chunk: the list sends its input's gradient back */
  double *cost[3];        /* ns, per chunk */
  double link;            /* of one hop */
} Writer;

/* ---- facts ---- */

static const char *real_name(const Writer *w) {
  return w->program->real_bytes == 8 ? "f64" : w->program->real_bytes == 2 ? "bf16" : "f32";
}

/* Of sums of gradients, and of what stays exact inside an operation. */
static const char *wide_name(const Writer *w) {
  return w->program->real_bytes == 8 ? "f64" : "f32";
}

static int chunk_of_unit(const Writer *w, int64_t unit) {
  int chunk = 0;
  while (unit >= w->pipeline->first_unit[chunk + 1]) chunk++;
  return chunk;
}

static int64_t shape_elements(const pd_param_info *param) {
  int64_t elements = 1;
  for (int i = 0; i < param->rank; i++) elements *= param->shape[i];
  return elements;
}

static bool uses_tied(const pd_segment_info *segment, int param) {
  for (int i = 0; i < segment->shared_count; i++)
    if (segment->shared[i] == param) return true;
  return false;
}

/* Trips of `segment` that lie in `chunk`: first .. end - 1. */
static void trips_in(const Writer *w, int segment, int chunk, int64_t *first, int64_t *end) {
  const int64_t *cut = &w->pipeline->first_unit[chunk % pd_copy_chunks(w->pipeline)];
  int64_t begin = w->segment_first[segment], stop = w->segment_first[segment + 1];
  *first = cut[0] > begin ? cut[0] : begin;
  *end = cut[1] < stop ? cut[1] : stop;
  *first -= begin;
  *end -= begin;
}

static bool chunk_uses_tied(const Writer *w, int chunk, int param) {
  for (int s = 0; s < w->program->segment_count; s++) {
    int64_t first, end;
    trips_in(w, s, chunk, &first, &end);
    if (first < end && uses_tied(&w->program->segments[s], param)) return true;
  }
  return false;
}

/* The first chunk that uses a tied parameter; the last chunk of the first copy holds one that nobody uses. */
static int home_of_tied(const Writer *w, int param) {
  int chunk = 0;
  while (chunk < pd_copy_chunks(w->pipeline) - 1 && !chunk_uses_tied(w, chunk, param)) chunk++;
  return chunk;
}

static void count_parameters(Writer *w) {
  for (int p = 0; p < w->program->param_count; p++) {
    const pd_param_info *param = &w->program->params[p];
    if (param->segment == PD_NONE) {
      w->chunks[home_of_tied(w, p)].parameters += shape_elements(param);
      continue;
    }
    for (int chunk = 0; chunk < pd_copy_chunks(w->pipeline); chunk++) {
      int64_t first, end;
      trips_in(w, param->segment, chunk, &first, &end);
      if (first < end) w->chunks[chunk].parameters += shape_elements(param) * (end - first);
    }
  }
}

static void count_costs(Writer *w) {
  int count = w->pipeline->chunk_count;
  for (int k = 0; k < 3; k++) w->cost[k] = ARENA_ARRAY(w->input->arena, double, count);
  Prices prices = {w->input->config, w->program, w->input->unit_flops};
  int each = pd_copy_chunks(w->pipeline);
  price_chunks(&prices, w->pipeline->first_unit, each, w->cost[COST_F], w->cost[COST_I], w->cost[COST_W]);
  w->link = price_hop(&prices, w->pipeline->first_unit, each, w->pipeline->rank_of);
  for (int chunk = 0; chunk < count; chunk++) {
    const int64_t *cut = &w->pipeline->first_unit[chunk % each];
    for (int64_t unit = cut[0]; unit < cut[1]; unit++)
      for (int k = 0; k < 3; k++) w->chunks[chunk].flops[k] += w->input->unit_flops[unit][k];
    for (int k = 0; k < 3; k++) w->cost[k][chunk] = w->cost[k][chunk % each];
  }
}

static int64_t wire_bytes(const Writer *w, int wire) {
  return pd_wire_data_bytes(w->program, wire);
}

static void gather(Writer *w) {
  const pd_pipeline *pipeline = w->pipeline;
  Arena *arena = w->input->arena;
  w->segment_first = ARENA_ARRAY(arena, int64_t, w->program->segment_count + 1);
  for (int s = 0; s < w->program->segment_count; s++)
    w->segment_first[s + 1] = w->segment_first[s] + w->program->segments[s].trips;
  w->chunks = ARENA_ARRAY(arena, Chunk, pipeline->chunk_count);
  w->layouts = ARENA_ARRAY(arena, pd_layout *, pipeline->pp);
  w->gradient_sent = ARENA_ARRAY(arena, bool, pipeline->chunk_count);
  for (int rank = 0; rank < pipeline->pp; rank++) {
    w->layouts[rank] = pd_layout_new(w->program, pipeline, rank);
    for (int i = 0; i < w->layouts[rank]->chunk_count; i++)
      w->chunks[w->layouts[rank]->chunks[i].chunk].plan = &w->layouts[rank]->chunks[i];
    for (int64_t i = 0; i < pipeline->ranks[rank].count; i++)
      if (pipeline->ranks[rank].at[i].kind == PD_SEND_B) w->gradient_sent[pipeline->ranks[rank].at[i].chunk] = true;
  }
  count_parameters(w);
  count_costs(w);
}

/* ---- head ---- */

static void write_head(Writer *w) {
  const PlanInput *input = w->input;
  Json *json = &w->json;
  json_put_string(json, "format", "pd-plan");
  json_put_integer(json, "version", 1);
  json_put_string(json, "compiler", input->compiler);
  json_put_string(json, "model", w->program->model);
  json_open_object(json, "source");
  json_put_string(json, "sha256", input->source_sha256);
  json_close_object(json);
  json_open_object(json, "parallel");
  json_put_integer(json, "pp", w->program->pp);
  json_put_integer(json, "dp", w->program->dp);
  json_put_integer(json, "tp", w->program->tp);
  json_put_integer(json, "cp", input->config->cp);
  json_put_integer(json, "ep", input->config->ep);
  json_put_integer(json, "zero", input->config->zero);
  json_put_bool(json, "sequence", input->config->sequence);
  json_close_object(json);
  json_open_object(json, "batch");
  json_put_integer(json, "global", w->program->batch);
  json_put_integer(json, "microbatch", w->program->microbatch);
  json_put_integer(json, "microbatches", w->program->microbatches);
  json_put_integer(json, "sequence_tokens", w->program->tokens_per_sample);
  json_close_object(json);
  json_open_object(json, "schedule");
  json_put_string(json, "kind", input->config->schedule);
  json_put_integer(json, "chunks", w->program->chunks);
  json_put_integer(json, "copies", w->pipeline->copies > 1 ? w->pipeline->copies : 1);
  json_put_integer(json, "accumulators", w->pipeline->accumulators);
  json_put_integer(json, "update_every", w->pipeline->step);
  json_put_integer(json, "delay", w->pipeline->delay);
  json_open_array(json, "placement");
  for (int chunk = 0; chunk < w->pipeline->chunk_count; chunk++)
    json_put_integer(json, NULL, w->pipeline->rank_of[chunk]);
  json_close_array(json);
  json_close_object(json);
}

/* ---- parameters ---- */

/* `name` with "{}" replaced by the trip. */
static const char *trip_name(const Writer *w, const char *name, int64_t trip) {
  const char *hole = strstr(name, "{}");
  if (!hole) return name;
  return arena_printf(w->input->arena, "%.*s%lld%s", (int)(hole - name), name, (long long)trip, hole + 2);
}

static void write_tied_with(Writer *w, int param, int home) {
  bool open = false;
  for (int chunk = home + 1; chunk < pd_copy_chunks(w->pipeline); chunk++) {
    if (!chunk_uses_tied(w, chunk, param)) continue;
    if (!open) json_open_array(&w->json, "tied_with");
    open = true;
    json_put_integer(&w->json, NULL, chunk);
  }
  if (open)
    json_close_array(&w->json);
  else
    json_put_null(&w->json, "tied_with");
}

static void write_parameter(Writer *w, int id, int64_t trip) {
  const pd_param_info *param = &w->program->params[id];
  Json *json = &w->json;
  bool tied = param->segment == PD_NONE;
  int chunk = tied ? home_of_tied(w, id) : chunk_of_unit(w, w->segment_first[param->segment] + trip);
  json_open_object(json, NULL);
  json_put_string(json, "name", trip_name(w, param->name, trip));
  json_open_array(json, "shape");
  for (int i = 0; i < param->rank; i++) json_put_integer(json, NULL, param->shape[i]);
  json_close_array(json);
  json_put_string(json, "dtype", real_name(w));
  json_put_integer(json, "chunk", chunk);
  if (tied)
    write_tied_with(w, id, chunk);
  else
    json_put_null(json, "tied_with");
  json_open_array(json, "sharding");
  for (int i = 0; i < param->rank; i++) {
    if (i == param->split_axis)
      json_put_string(json, NULL, "tp");
    else
      json_put_null(json, NULL);
  }
  json_close_array(json);
  json_put_bool(json, "decay", param->decay);
  json_close_object(json);
}

/* In program order: what a loop declares comes trip by trip. */
static void write_parameters(Writer *w) {
  const pd_param_info *params = w->program->params;
  int count = w->program->param_count;
  json_open_array(&w->json, "parameters");
  for (int first = 0; first < count;) {
    int end = first + 1;
    int64_t trips = 1;
    if (params[first].per_trip && params[first].segment != PD_NONE) {
      trips = w->program->segments[params[first].segment].trips;
      while (end < count && params[end].per_trip && params[end].segment == params[first].segment) end++;
    }
    for (int64_t trip = 0; trip < trips; trip++)
      for (int p = first; p < end; p++) write_parameter(w, p, trip);
    first = end;
  }
  json_close_array(&w->json);
}

/* ---- chunks ---- */

static void write_layers(Writer *w, int chunk) {
  json_open_array(&w->json, "layers");
  for (int s = 0; s < w->program->segment_count; s++) {
    int64_t first, end;
    trips_in(w, s, chunk, &first, &end);
    if (first >= end) continue;
    json_open_object(&w->json, NULL);
    json_put_string(&w->json, "name", w->program->segments[s].name);
    json_put_integer(&w->json, "first", first);
    json_put_integer(&w->json, "last", end - 1);
    json_close_object(&w->json);
  }
  json_close_array(&w->json);
}

/* Axes of a wire on one rank; flat if the description and the graph do not agree on it. */
static void write_local_shape(Writer *w, int wire) {
  const Graph *graph = w->input->graph;
  json_open_array(&w->json, "shape");
  const Wire *known = (uint32_t)wire < graph->wires.count ? &graph->wires.at[wire] : NULL;
  if (known &&
      axes_local_elements(graph, w->input->config, known->rank, known->axes) == w->program->wires[wire].elements)
    for (unsigned i = 0; i < known->rank; i++)
      json_put_integer(&w->json, NULL, axis_local(graph, w->input->config, known->axes[i]));
  else
    json_put_integer(&w->json, NULL, w->program->wires[wire].elements);
  json_close_array(&w->json);
}

static void write_send(Writer *w, int wire, const char *suffix, int to_chunk) {
  Json *json = &w->json;
  json_open_object(json, NULL);
  json_put_string(json, "tensor", arena_printf(w->input->arena, "%s%s", w->program->wires[wire].name, suffix));
  json_put_integer(json, "to_chunk", to_chunk);
  json_put_string(json, "dtype", real_name(w));
  write_local_shape(w, wire);
  json_put_integer(json, "bytes", wire_bytes(w, wire));
  json_close_object(json);
}

static void write_sends(Writer *w, int chunk) {
  const pd_edge *next = &w->chunks[chunk].plan->next, *previous = &w->chunks[chunk].plan->previous;
  json_open_array(&w->json, "sends");
  if (next->peer != PD_NONE && !next->local)
    for (int i = 0; i < next->wire_count; i++) write_send(w, next->wire[i], "", chunk + 1);
  if (previous->peer != PD_NONE && !previous->local && w->gradient_sent[chunk])
    for (int i = 0; i < previous->grad_count; i++) write_send(w, previous->grad_wire[i], ".grad", chunk - 1);
  json_close_array(&w->json);
}

static void write_chunks(Writer *w) {
  static const char *const names[] = {"F", "I", "W"};
  Json *json = &w->json;
  json_open_array(json, "chunks");
  for (int chunk = 0; chunk < w->pipeline->chunk_count; chunk++) {
    const Chunk *c = &w->chunks[chunk];
    json_open_object(json, NULL);
    json_put_integer(json, "chunk", chunk);
    json_put_integer(json, "rank", w->pipeline->rank_of[chunk]);
    write_layers(w, chunk);
    json_put_integer(json, "parameters", c->parameters);
    json_open_object(json, "flops");
    for (int k = 0; k < 3; k++) json_put_integer(json, names[k], c->flops[k]);
    json_close_object(json);
    json_open_object(json, "cost_ns");
    for (int k = 0; k < 3; k++) json_put_number(json, names[k], w->cost[k][chunk]);
    json_close_object(json);
    json_put_integer(json, "activation_bytes", c->plan->activations.bytes);
    write_sends(w, chunk);
    json_close_object(json);
  }
  json_close_array(json);
}

/* ---- ranks ---- */

static int64_t staleness_of(const Writer *w, int rank) {
  int64_t most = 0;
  for (int chunk = 0; chunk < w->pipeline->chunk_count; chunk++) {
    if (w->pipeline->rank_of[chunk] != rank) continue;
    int64_t own = pd_weight_staleness(w->pipeline, chunk);
    if (own > most) most = own;
  }
  return most;
}

static void write_ranks(Writer *w) {
  Json *json = &w->json;
  json_open_array(json, "ranks");
  for (int rank = 0; rank < w->pipeline->pp; rank++) {
    const pd_action_list *list = &w->pipeline->ranks[rank];
    json_open_object(json, NULL);
    json_put_integer(json, "rank", rank);
    json_put_integer(json, "weight_versions", w->layouts[rank]->versions);
    json_put_integer(json, "staleness", staleness_of(w, rank));
    json_open_array(json, "actions");
    for (int64_t i = 0; i < list->count; i++) {
      char name[48];
      pd_action_text(list->at[i], name);
      json_put_string(json, NULL, name);
    }
    json_close_array(json);
    json_open_object(json, "memory");
    for (int kind = 0; kind < PD_MEMORY_CLASSES; kind++)
      json_put_integer(json, pd_memory_class_name((pd_memory_class)kind),
                       pd_layout_bytes(w->layouts[rank], (pd_memory_class)kind));
    json_put_integer(json, "total", pd_layout_total(w->layouts[rank]));
    json_close_object(json);
    json_close_object(json);
  }
  json_close_array(json);
}

/* ---- communicators ---- */

typedef struct Operation {
  const char *op, *tensor;      /* tensor NULL: bucket number `bucket` */
  int64_t bucket, bytes, count; /* count: times a step, 0 where once is meant and not said */
  const char *after;
  bool narrow; /* in the precision of the computations, else of sums */
} Operation;

static void write_operation(Writer *w, Operation operation) {
  Json *json = &w->json;
  json_open_object(json, NULL);
  json_put_string(json, "op", operation.op);
  if (operation.tensor)
    json_put_string(json, "tensor", operation.tensor);
  else
    json_put_integer(json, "bucket", operation.bucket);
  json_put_string(json, "dtype", operation.narrow ? real_name(w) : wide_name(w));
  json_put_integer(json, "bytes", operation.bytes);
  if (operation.count > 0) json_put_integer(json, "count", operation.count);
  json_put_string(json, "after", operation.after);
  json_close_object(json);
}

/* `rank` PD_NONE: the communicator is the same at every pipeline position. */
static void open_communicator(Writer *w, const char *axis, int size, int64_t count, int rank) {
  json_open_object(&w->json, NULL);
  json_put_string(&w->json, "axis", axis);
  json_put_integer(&w->json, "size", size);
  json_put_integer(&w->json, "count", count);
  if (rank != PD_NONE) json_put_integer(&w->json, "pp_rank", rank);
  json_open_array(&w->json, "operations");
}

static void close_communicator(Writer *w) {
  json_close_array(&w->json);
  json_close_object(&w->json);
}

/* The action after which a chunk's gradients are final, from the layout's reading of the list. */
static const char *final_action(const Writer *w, int chunk) {
  int64_t index = w->chunks[chunk].plan->final_action;
  if (index == PD_NONE) return "end";
  char *name = arena_alloc(w->input->arena, 48);
  pd_action_text(w->pipeline->ranks[w->pipeline->rank_of[chunk]].at[index], name);
  return name;
}

/* Bytes of the accumulators of tied parameters that belong to a chunk. */
static int64_t tied_bytes(const Writer *w, int chunk) {
  const pd_layout *layout = w->layouts[w->pipeline->rank_of[chunk]];
  int64_t bytes = 0;
  for (int t = 0; t < layout->tied_count; t++)
    for (int i = 0; i < layout->tied[t].slot_count; i++)
      if (layout->tied[t].slots[i].chunk == chunk && layout->tied[t].slots[i].at != PD_NONE)
        bytes += w->program->params[layout->tied[t].param].elements * pd_wide_bytes(w->program);
  return bytes;
}

/* Gradients that the two copies of a chunk add up. */
static void write_copies(Writer *w) {
  int each = pd_copy_chunks(w->pipeline);
  for (int chunk = 0; chunk < each && each < w->pipeline->chunk_count; chunk++) {
    bool in_turn = pd_chunk_continued(w->pipeline, chunk + each) == chunk;
    write_operation(w,
                    (Operation){.op = "copy_sum",
                                .tensor = arena_printf(w->input->arena, "chunk %d", chunk),
                                .bytes = w->chunks[chunk].plan->gradient_bytes + (in_turn ? tied_bytes(w, chunk) : 0),
                                .after = final_action(w, chunk)});
  }
}

/* Gradients of copies, and of tied parameters whose uses lie on several pipeline ranks. */
static void write_pipe(Writer *w) {
  open_communicator(w, "pp", w->program->pp, (int64_t)w->program->dp * w->program->tp, PD_NONE);
  write_copies(w);
  for (int p = 0; p < w->program->param_count; p++) {
    const pd_param_info *param = &w->program->params[p];
    if (param->segment != PD_NONE || param->frozen) continue;
    int home = home_of_tied(w, p);
    bool elsewhere = false;
    for (int chunk = home + 1; chunk < w->pipeline->chunk_count; chunk++)
      elsewhere |= w->pipeline->rank_of[chunk] != w->pipeline->rank_of[home] && chunk_uses_tied(w, chunk, p);
    if (elsewhere)
      write_operation(w, (Operation){.op = "tie_sum",
                                     .tensor = param->name,
                                     .bytes = param->elements * pd_wide_bytes(w->program),
                                     .after = "end"});
  }
  close_communicator(w);
}

static void write_replicas(Writer *w, int rank) {
  const pd_bucket *buckets;
  int count = pd_layout_buckets(w->layouts[rank], &buckets);
  open_communicator(w, "dp", w->program->dp, w->program->tp, rank);
  for (int b = 0; b < count; b++) {
    bool tied = buckets[b].chunk == PD_NONE;
    write_operation(w, (Operation){.op = "all_reduce",
                                   .tensor = tied ? w->program->params[buckets[b].param].name : NULL,
                                   .bucket = b,
                                   .bytes = buckets[b].elements * pd_wide_bytes(w->program),
                                   .after = tied ? "end" : final_action(w, buckets[b].chunk)});
  }
  close_communicator(w);
}

/* The reductions that one function of a segment makes, `times` a step. */
static void write_list(Writer *w, const Id *ops, uint32_t op_count, int64_t times, const char *after) {
  for (uint32_t i = 0; i < op_count; i++) {
    Collective made[2];
    int count = collectives_of(w->input->graph, w->input->config, ops[i], made);
    for (int k = 0; k < count; k++)
      write_operation(w, (Operation){.op = made[k].op,
                                     .tensor = made[k].tensor,
                                     .bytes = made[k].bytes,
                                     .count = times,
                                     .after = after,
                                     .narrow = !made[k].wide});
  }
}

static void write_chunk_reductions(Writer *w, int chunk) {
  const Graph *graph = w->input->graph;
  const char *name[3]; /* the actions that run F, I and W of this chunk */
  for (int k = 0; k < 3; k++)
    name[k] = arena_printf(w->input->arena, "%d%c", chunk,
                           k == 0                ? 'F'
                           : !w->pipeline->split ? 'B'
                           : k == 1              ? 'I'
                                                 : 'W');
  for (int s = 0; s < w->program->segment_count && (uint32_t)s < graph->segments.count; s++) {
    const Segment *segment = &graph->segments.at[s];
    int64_t first, end;
    trips_in(w, s, chunk, &first, &end);
    if (first >= end) continue;
    int64_t times = (end - first) * (pd_chunk_end(w->pipeline, chunk) - pd_chunk_first(w->pipeline, chunk));
    write_list(w, segment->forward.at, segment->forward.count, times, name[0]);
    if (w->program->recompute) write_list(w, segment->forward.at, segment->forward.count, times, name[1]);
    write_list(w, segment->input_grad.at, segment->input_grad.count, times, name[1]);
    write_list(w, segment->weight_grad.at, segment->weight_grad.count, times, name[2]);
  }
}

static void write_communicators(Writer *w) {
  json_open_array(&w->json, "communicators");
  if (w->program->pp > 1) write_pipe(w);
  for (int rank = 0; w->program->dp > 1 && rank < w->program->pp; rank++) write_replicas(w, rank);
  for (int rank = 0; w->program->tp > 1 && rank < w->program->pp; rank++) {
    open_communicator(w, "tp", w->program->tp, w->program->dp, rank);
    for (int chunk = 0; chunk < w->pipeline->chunk_count; chunk++)
      if (w->pipeline->rank_of[chunk] == rank) write_chunk_reductions(w, chunk);
    close_communicator(w);
  }
  json_close_array(&w->json);
}

/* ---- certificate and cluster ---- */

static void write_measure(Writer *w) {
  Json *json = &w->json;
  Arena *arena = w->input->arena;
  ScheduleTiming timing;
  const char *why;
  ScheduleCosts all = {w->cost[COST_F], w->cost[COST_I], w->cost[COST_W], w->link};
  bool ran = schedule_simulate(arena, w->pipeline, &all, &timing, &why);
  json_put_number(json, "makespan_ns", ran ? timing.makespan : NAN);
  json_put_number(json, "beta_ns", ran ? timing.beta : NAN);
  json_put_number(json, "sigma_ns", ran ? timing.sigma : NAN);
  json_put_number(json, "bound_ns", ran ? timing.bound : NAN);
  json_open_array(json, "idle_ns");
  for (int rank = 0; ran && rank < w->pipeline->pp; rank++) json_put_number(json, NULL, timing.idle[rank]);
  json_close_array(json);
}

static void write_certificate(Writer *w) {
  Json *json = &w->json;
  Certificate certificate = schedule_certify(w->input->arena, w->pipeline);
  json_open_object(json, "certificate");
  json_put_bool(json, "complete", certificate.complete);
  json_put_bool(json, "ordered", certificate.ordered);
  json_put_bool(json, "matched", certificate.matched);
  json_open_object(json, "acyclic");
  json_put_bool(json, "buffered", certificate.acyclic_buffered);
  json_put_bool(json, "rendezvous", certificate.acyclic_rendezvous);
  json_put_bool(json, "grouped", certificate.acyclic_grouped);
  json_close_object(json);
  write_measure(w);
  json_open_array(json, "peak_bytes");
  for (int rank = 0; rank < w->pipeline->pp; rank++) json_put_integer(json, NULL, pd_layout_total(w->layouts[rank]));
  json_close_array(json);
  json_close_object(json);
}

static void write_declared(Json *json, const char *key, double value) {
  if (value > 0)
    json_put_number(json, key, value);
  else
    json_put_null(json, key);
}

static void write_cluster(Writer *w) {
  const Config *config = w->input->config;
  Json *json = &w->json;
  json_open_object(json, "cluster");
  write_declared(json, "memory", config->memory);
  json_put_number(json, "flops", price_flops(config));
  write_declared(json, "bandwidth", config->bandwidth);
  write_declared(json, "latency", config->latency);
  write_declared(json, "node_bandwidth", config->node_bandwidth);
  write_declared(json, "node_latency", config->node_latency);
  write_declared(json, "ranks_per_node", (double)config->ranks_per_node);
  json_put_number(json, "link_ns", w->link);
  json_open_array(json, "assumed");
  if (!(config->flops > 0)) json_put_string(json, NULL, "flops");
  if (config->pp * config->dp * config->tp > 1 && !(config->bandwidth > 0)) json_put_string(json, NULL, "bandwidth");
  json_close_array(json);
  json_close_object(json);
}

/* ---- prediction ---- */

static void write_predicted_chunks(Writer *w) {
  static const char *const names[] = {"F", "I", "W"};
  Json *json = &w->json;
  json_open_array(json, "chunks");
  for (int chunk = 0; chunk < w->pipeline->chunk_count; chunk++) {
    const PredictedChunk *predicted = &w->input->prediction->chunks[chunk];
    json_open_object(json, NULL);
    json_put_integer(json, "chunk", chunk);
    json_open_object(json, "tp_ns");
    for (int k = 0; k < 3; k++) json_put_number(json, names[k], predicted->tensor[k]);
    json_close_object(json);
    json_put_number(json, "reduce_ns", predicted->reduce);
    json_close_object(json);
  }
  json_close_array(json);
}

static void write_prediction(Writer *w) {
  const Prediction *prediction = w->input->prediction;
  Json *json = &w->json;
  json_open_object(json, "prediction");
  json_put_number(json, "step_ns", prediction->step);
  json_put_number(json, "busy_ns", prediction->busy);
  json_put_number(json, "bubble_ns", prediction->bubble);
  json_open_object(json, "exposed_ns");
  json_put_number(json, "tp", prediction->tensor);
  json_put_number(json, "pp", prediction->pipeline);
  json_put_number(json, "tied", prediction->tied);
  json_put_number(json, "dp", prediction->replicas);
  json_close_object(json);
  json_put_number(json, "flops", prediction->flops);
  json_put_number(json, "peak_flops", prediction->peak);
  json_put_number(json, "mfu", prediction->utilisation);
  write_predicted_chunks(w);
  json_open_array(json, "ranks");
  for (int rank = 0; rank < w->pipeline->pp; rank++) {
    json_open_object(json, NULL);
    json_put_integer(json, "rank", rank);
    json_open_object(json, "sent_bytes");
    json_put_number(json, "tp", prediction->ranks[rank].sent_tensor);
    json_put_number(json, "pp", prediction->ranks[rank].sent_pipeline);
    json_put_number(json, "dp", prediction->ranks[rank].sent_replicas);
    json_close_object(json);
    json_close_object(json);
  }
  json_close_array(json);
  json_close_object(json);
}

void plan_write(const PlanInput *input, Text *out, char *sha256) {
  Writer w = {.input = input, .program = input->program, .pipeline = input->pipeline, .json = {.out = out}};
  gather(&w);
  size_t begin = out->length;
  json_open_object(&w.json, NULL);
  write_head(&w);
  write_parameters(&w);
  write_chunks(&w);
  write_ranks(&w);
  write_communicators(&w);
  write_certificate(&w);
  write_cluster(&w);
  write_prediction(&w);
  json_end_line(&w.json);
  sha256_hex(out->at + begin, out->length - begin, sha256);
  json_put_string(&w.json, "sha256", sha256);
  json_close_object(&w.json);
  for (int rank = 0; rank < input->pipeline->pp; rank++) pd_layout_free(w.layouts[rank]);
}
