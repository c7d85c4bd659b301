/* The pipeline is played three times: computations alone, with their all-reduces, and with messages that take time; the
 * differences are what each adds. Reductions of gradients then run on every rank beside its list, one after another,
 * each from the REDUCE_GRAD of its chunk on: only what reaches beyond the end of all lists is exposed. Tied gradients
 * are summed when the lists of all their holders are done, and reduced over replicas after that. Without a flush every
 * update waits for its reduction.
 *
 * Not counted: the update of weights, reading data, and messages of a few bytes at the end of a step. */
#include "pipeline/predict.h"

#include <math.h>

#include "distribute/collectives.h"
#include "pipeline/network.h"

typedef struct Predictor {
  Arena *arena;
  const Prices *prices;
  const Graph *graph;
  const pd_program *program;
  const pd_pipeline *pipeline;
  pd_layout **layouts;
  const Network *network;
  double *costs[3], *full[3]; /* per chunk: F, I, W alone, and with their all-reduces */
  double link;
  ScheduleTiming timing; /* of the last play */
  Prediction *out;
} Predictor;

/* A ring sends this much per rank; whole bytes where the parts are. */
static double ring_bytes(double bytes, int64_t size) {
  return 2 * bytes * (double)(size - 1) / (double)size;
}

/* ---- tensor parallelism ---- */

static double tensor_time(Predictor *p, const IdVec *list, int rank, double times, double *sent) {
  double time = 0;
  for (uint32_t i = 0; i < list->count; i++) {
    Collective made[2];
    int count = collectives_of(p->graph, p->prices->config, list->at[i], made);
    for (int k = 0; k < count; k++) {
      double bytes = (double)made[k].bytes, sum = ring_bytes(bytes, p->program->tp);
      time += made[k].gathers ? network_tensor_all_gather(p->network, rank, bytes)
                              : network_tensor_all_reduce(p->network, rank, bytes);
      *sent += times * (made[k].gathers ? sum / 2 : sum);
    }
  }
  return time;
}

/* Trips of segment `s`, whose first unit is `first`, that lie in `chunk`. */
static double trips_in(const Predictor *p, int s, int64_t first, int chunk) {
  int piece = chunk % pd_copy_chunks(p->pipeline);
  int64_t begin = p->pipeline->first_unit[piece], end = p->pipeline->first_unit[piece + 1];
  int64_t last = first + p->program->segments[s].trips;
  if (begin < first) begin = first;
  if (end > last) end = last;
  return end > begin ? (double)(end - begin) : 0;
}

static void price_tensor(Predictor *p) {
  for (int chunk = 0; chunk < p->pipeline->chunk_count; chunk++) {
    int rank = p->pipeline->rank_of[chunk];
    double *time = p->out->chunks[chunk].tensor, *sent = &p->out->ranks[rank].sent_tensor;
    int64_t first = 0;
    for (int s = 0; s < p->program->segment_count; first += p->program->segments[s++].trips) {
      const Segment *segment = &p->graph->segments.at[s];
      double trips = trips_in(p, s, first, chunk);
      double times = trips * (double)(pd_chunk_end(p->pipeline, chunk) - pd_chunk_first(p->pipeline, chunk));
      if (trips == 0) continue;
      time[0] += trips * tensor_time(p, &segment->forward, rank, times, sent);
      if (p->program->recompute) time[1] += trips * tensor_time(p, &segment->forward, rank, times, sent);
      time[1] += trips * tensor_time(p, &segment->input_grad, rank, times, sent);
      time[2] += trips * tensor_time(p, &segment->weight_grad, rank, times, sent);
    }
    for (int k = 0; k < 3; k++) p->full[k][chunk] = p->costs[k][chunk] + time[k];
  }
}

/* ---- the pipeline ---- */

static bool play(Predictor *p, double *const costs[3], double link) {
  const char *why;
  return schedule_simulate(p->arena, p->pipeline, &(ScheduleCosts){costs[0], costs[1], costs[2], link}, &p->timing,
                           &why);
}

static double edge_bytes(const Predictor *p, const int *wires, int count) {
  int64_t bytes = 0;
  for (int i = 0; i < count; i++) bytes += pd_wire_data_bytes(p->program, wires[i]);
  return (double)bytes;
}

static void count_messages(Predictor *p) {
  for (int rank = 0; rank < p->pipeline->pp; rank++) {
    const pd_layout *layout = p->layouts[rank];
    for (int c = 0; c < layout->chunk_count; c++) {
      const pd_chunk_plan *plan = &layout->chunks[c];
      double forward = edge_bytes(p, plan->next.wire, plan->next.wire_count),
             backward = edge_bytes(p, plan->previous.grad_wire, plan->previous.grad_count);
      for (int64_t i = 0; i < p->pipeline->ranks[rank].count; i++) {
        pd_action action = p->pipeline->ranks[rank].at[i];
        if (action.chunk != plan->chunk) continue;
        if (action.kind == PD_SEND_F) p->out->ranks[rank].sent_pipeline += forward;
        if (action.kind == PD_SEND_B) p->out->ranks[rank].sent_pipeline += backward;
      }
    }
  }
}

/* ---- the end of the step ---- */

static double largest_of(const double *values, int count) {
  double most = 0;
  for (int i = 0; i < count; i++)
    if (values[i] > most) most = values[i];
  return most;
}

/* Every holder of a tied parameter sends its uses' gradients to all others and gets theirs. */
static void sum_tied(Predictor *p, int param, const pd_tied_plan *tied, double *clock) {
  int pp = p->pipeline->pp, holders = 0;
  int *own = ARENA_ARRAY(p->arena, int, pp); /* uses on a rank */
  double begin = 0, bytes = (double)(p->program->params[param].elements * pd_wide_bytes(p->program));
  for (int i = 0; i < tied->slot_count; i++) own[tied->slots[i].rank]++;
  for (int rank = 0; rank < pp; rank++) {
    holders += own[rank] > 0;
    if (own[rank] > 0 && clock[rank] > begin) begin = clock[rank];
  }
  bool between = network_pipeline_leaves_node(p->prices->config);
  for (int rank = 0; rank < pp && holders > 1; rank++) {
    if (own[rank] == 0) continue;
    clock[rank] = begin + (tied->slot_count - own[rank]) * network_message(p->prices->config, between, bytes);
    p->out->ranks[rank].sent_pipeline += own[rank] * (holders - 1) * bytes;
  }
}

static void sum_all_tied(Predictor *p, double *clock) {
  for (int param = 0; param < p->program->param_count; param++) {
    if (p->program->params[param].segment != PD_NONE || p->program->params[param].frozen) continue;
    const pd_tied_plan *found = NULL; /* every holder's plan lists all uses */
    for (int rank = 0; rank < p->pipeline->pp && !found; rank++)
      for (int t = 0; t < p->layouts[rank]->tied_count; t++)
        if (p->layouts[rank]->tied[t].param == param) found = &p->layouts[rank]->tied[t];
    if (found) sum_tied(p, param, found, clock);
  }
}

/* Time of the buckets of `chunk` on `rank`; PD_NONE: of its tied parameters. */
static double reduction_time(const Predictor *p, int rank, int chunk) {
  const pd_bucket *buckets;
  int count = pd_layout_buckets(p->layouts[rank], &buckets);
  double time = 0;
  for (int b = 0; b < count; b++)
    if (buckets[b].chunk == chunk)
      time += network_replica_all_reduce(p->network, rank, (double)(buckets[b].elements * pd_wide_bytes(p->program)));
  return time;
}

/* How often a chunk's gradients are reduced in the lists. */
static double updates_of(const pd_pipeline *pipeline) {
  return pipeline->step > 0 ? (double)(pipeline->microbatches / pipeline->step) : 1;
}

static void count_reductions(Predictor *p) {
  for (int rank = 0; rank < p->pipeline->pp; rank++) {
    const pd_bucket *buckets;
    int count = pd_layout_buckets(p->layouts[rank], &buckets);
    for (int b = 0; b < count; b++)
      p->out->ranks[rank].sent_replicas +=
          updates_of(p->pipeline) *
          ring_bytes((double)(buckets[b].elements * pd_wide_bytes(p->program)), p->program->dp);
  }
  for (int chunk = 0; chunk < p->pipeline->chunk_count; chunk++)
    p->out->chunks[chunk].reduce = reduction_time(p, p->pipeline->rank_of[chunk], chunk);
}

/* What the REDUCE_GRAD of a chunk with two copies waits for: the other copy's gradients. */
static double copy_time(Predictor *p, int rank, int chunk) {
  double bytes = 0;
  for (int c = 0; c < p->layouts[rank]->chunk_count && p->pipeline->copies > 1; c++)
    if (p->layouts[rank]->chunks[c].chunk == chunk) bytes = (double)p->layouts[rank]->chunks[c].gradient_bytes;
  if (bytes == 0) return 0;
  p->out->ranks[rank].sent_pipeline += bytes;
  return network_message(p->prices->config, network_pipeline_leaves_node(p->prices->config), bytes);
}

/* From the last play: when each rank is through with its list, and with the reductions that go on beside it. */
static void finish(Predictor *p, double *clock, double *channel) {
  int64_t at = 0;
  for (int rank = 0; rank < p->pipeline->pp; rank++) {
    const pd_action_list *list = &p->pipeline->ranks[rank];
    double copies = 0;
    for (int64_t i = 0; i < list->count; i++, at++) {
      if (list->at[i].kind == PD_REDUCE_GRAD) copies += copy_time(p, rank, list->at[i].chunk);
      if (p->timing.end[at] + copies > clock[rank]) clock[rank] = p->timing.end[at] + copies;
      if (list->at[i].kind != PD_REDUCE_GRAD) continue;
      if (p->timing.end[at] + copies > channel[rank]) channel[rank] = p->timing.end[at] + copies;
      channel[rank] += p->out->chunks[list->at[i].chunk].reduce;
    }
  }
}

static void price_end(Predictor *p, double lists) {
  int pp = p->pipeline->pp;
  double *clock = ARENA_ARRAY(p->arena, double, pp), *channel = ARENA_ARRAY(p->arena, double, pp);
  finish(p, clock, channel);
  for (int chunk = 0; p->pipeline->step > 0 && chunk < p->pipeline->chunk_count; chunk++) {
    int rank = p->pipeline->rank_of[chunk];
    channel[rank] = fmax(channel[rank], clock[rank]) + updates_of(p->pipeline) * p->out->chunks[chunk].reduce;
  }
  sum_all_tied(p, clock);
  double summed = fmax(lists, largest_of(clock, pp));
  for (int rank = 0; rank < pp; rank++) {
    double tied = p->program->dp > 1 ? reduction_time(p, rank, PD_NONE) : 0;
    if (tied > 0) channel[rank] = fmax(channel[rank], clock[rank]) + tied;
  }
  p->out->step = fmax(summed, largest_of(channel, pp));
  p->out->tied = summed - lists;
  p->out->replicas = p->out->step - summed;
}

/* Copies of the model cost the same. */
static void price_computations(Predictor *p) {
  int count = p->pipeline->chunk_count, pieces = pd_copy_chunks(p->pipeline);
  for (int k = 0; k < 3; k++) {
    p->costs[k] = ARENA_ARRAY(p->arena, double, count);
    p->full[k] = ARENA_ARRAY(p->arena, double, count);
  }
  price_chunks(p->prices, p->pipeline->first_unit, pieces, p->costs[0], p->costs[1], p->costs[2]);
  for (int chunk = pieces; chunk < count; chunk++)
    for (int k = 0; k < 3; k++) p->costs[k][chunk] = p->costs[k][chunk - pieces];
  p->link = price_hop(p->prices, p->pipeline->first_unit, pieces, p->pipeline->rank_of);
}

/* False if the lists cannot be played, which a certificate rules out. */
static bool price_step(Predictor *p) {
  Prediction *out = p->out;
  if (!play(p, p->costs, 0)) return false;
  double alone = p->timing.makespan;
  out->busy = alone - p->timing.beta;
  out->bubble = p->timing.beta;
  if (!play(p, p->full, 0)) return false;
  double reduced = p->timing.makespan;
  if (p->link > 0 && !play(p, p->full, p->link)) return false;
  out->tensor = reduced - alone;
  out->pipeline = p->timing.makespan - reduced;
  price_end(p, p->timing.makespan);
  return true;
}

Prediction *predict_step(Arena *arena, const Prices *prices, const Graph *graph, const pd_pipeline *pipeline) {
  const pd_program *program = prices->program;
  Predictor p = {.arena = arena, .prices = prices, .graph = graph, .program = program, .pipeline = pipeline};
  Prediction *out = p.out = ARENA_NEW(arena, Prediction);
  p.network = network_new(arena, prices->config);
  p.layouts = ARENA_ARRAY(arena, pd_layout *, pipeline->pp);
  for (int rank = 0; rank < pipeline->pp; rank++) p.layouts[rank] = pd_layout_new(program, pipeline, rank);
  out->chunks = ARENA_ARRAY(arena, PredictedChunk, pipeline->chunk_count);
  out->ranks = ARENA_ARRAY(arena, PredictedRank, pipeline->pp);
  price_computations(&p);
  price_tensor(&p);
  count_messages(&p);
  if (program->dp > 1) count_reductions(&p);
  bool played = price_step(&p);
  for (int rank = 0; rank < pipeline->pp; rank++) pd_layout_free(p.layouts[rank]);
  out->flops = program->step_flops;
  out->peak = price_flops(prices->config) * (double)program->pp * (double)program->dp * (double)program->tp;
  if (played && out->step > 0) out->utilisation = out->flops / (out->peak * out->step * 1e-9);
  return out;
}

/* ---- for people ---- */

static void say_time(FILE *out, const char *before, double ns, const char *behind) {
  if (ns < 1e4)
    fprintf(out, "%s%.6g us%s", before, ns / 1e3, behind);
  else if (ns < 1e10)
    fprintf(out, "%s%.6g ms%s", before, ns / 1e6, behind);
  else
    fprintf(out, "%s%.6g s%s", before, ns / 1e9, behind);
}

void predict_say(const Prediction *prediction, const Config *config, FILE *out) {
  const struct {
    const char *what;
    double ns;
  } parts[] = {{"computing", prediction->busy},        {"pipeline bubble", prediction->bubble},
               {"tp all-reduces", prediction->tensor}, {"pp messages", prediction->pipeline},
               {"tied gradients", prediction->tied},   {"dp reductions that do not hide", prediction->replicas}};
  say_time(out, "predicted step: ", prediction->step, "\n");
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (parts[i].ns > 0 || i == 0) {
      say_time(out, "  ", parts[i].ns, "");
      fprintf(out, " %s (%.3g %%)\n", parts[i].what, prediction->step > 0 ? 100 * parts[i].ns / prediction->step : 0);
    }
  fprintf(out,
          "model FLOPs utilisation: %.3g %%: %.6g FLOPs of F, I and W a step / (%lld ranks x %.6g FLOP/s%s x step)\n",
          100 * prediction->utilisation, prediction->flops, (long long)(config->pp * config->dp * config->tp),
          price_flops(config), config->flops > 0 ? "" : ", assumed,");
  fprintf(out, "bytes that a rank of each stage sends in a step:\n%-6s%15s%15s%15s\n", "rank", "tp", "pp", "dp");
  for (int64_t rank = 0; rank < config->pp; rank++)
    fprintf(out, "%-6lld%15.0f%15.0f%15.0f\n", (long long)rank, prediction->ranks[rank].sent_tensor,
            prediction->ranks[rank].sent_pipeline, prediction->ranks[rank].sent_replicas);
}
