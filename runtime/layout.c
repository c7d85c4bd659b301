/* Every buffer of a rank inside one allocation. Pure functions of the program description and the pipeline: the
 * compiler plans with them, the program allocates with them, so planned and allocated bytes cannot differ.
 *
 * Assumes a well-formed program: every wire is made before it is read, at most PD_MAX_WIRES wires are live at a cut
 * (pd_live_wires tells), and the model has at most PD_MAX_WIRES inputs. */
#include "layout.h"

#include <stdlib.h>
#include <string.h>

static const char *const class_names[PD_MEMORY_CLASSES] = {"parameters",  "gradients", "optimizer",
                                                           "activations", "messages",  "workspace"};

const char *pd_memory_class_name(pd_memory_class kind) {
  return class_names[kind];
}

int64_t pd_sum_scratch(int64_t n, int size) {
  if (size <= 1) return 0;
  if (size == 2) return n; /* the whole of the other's, in one exchange */
  return (size - 1) * ((n + size - 1) / size);
}

static int64_t padded(int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

static int64_t largest(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static int moment_count(const pd_program *program) {
  if (program->optimizer != PD_SGD) return 2;
  return program->momentum != 0 ? 1 : 0;
}

/* ---- who holds what ---- */

typedef struct context {
  const pd_program *program;
  const pd_pipeline *pipeline;
  int rank;
  int64_t bucket_bytes; /* at most, of one bucket */
  pd_layout *layout;
  int64_t used[PD_MEMORY_CLASSES];
} context;

/* Without a flush a rank has one chunk. */
static int64_t versions_here(const context *c) {
  int64_t most = 1;
  for (int chunk = 0; chunk < c->pipeline->chunk_count; chunk++) {
    if (c->pipeline->rank_of[chunk] == c->rank) most = largest(most, pd_weight_versions(c->pipeline, chunk));
  }
  return most;
}

/* The chunk of copy `copy` of the model that holds `unit`. */
static int chunk_of_unit(const pd_pipeline *pipeline, int64_t unit, int copy) {
  const int count = pd_copy_chunks(pipeline);
  int chunk = 0;
  while (chunk + 1 < count && unit >= pipeline->first_unit[chunk + 1]) chunk++;
  return copy * count + chunk;
}

static int copies_of(const pd_pipeline *pipeline) {
  return pipeline->copies > 1 ? pipeline->copies : 1;
}

/* The last unit's rank, in the first copy: where what nobody uses lies. */
static int last_rank(const pd_pipeline *pipeline) {
  return pipeline->rank_of[pd_copy_chunks(pipeline) - 1];
}

static int64_t first_unit_of(const pd_pipeline *pipeline, int chunk) {
  return pipeline->first_unit[chunk % pd_copy_chunks(pipeline)];
}

static int64_t end_unit_of(const pd_pipeline *pipeline, int chunk) {
  return pipeline->first_unit[chunk % pd_copy_chunks(pipeline) + 1];
}

static bool lists(const pd_segment_info *segment, int param) {
  for (int k = 0; k < segment->shared_count; k++) {
    if (segment->shared[k] == param) return true;
  }
  return false;
}

/* The slots of tied parameter `param` in unit order, those of one copy of the model before those of the next; writes
 * them if `slots` is not NULL. */
static int tied_slots(const context *c, int param, pd_tied_slot *slots, bool *used) {
  const pd_pipeline *pipeline = c->pipeline;
  int count = 0;
  int64_t first;
  for (int copy = 0; copy < copies_of(pipeline); copy++) {
    first = 0;
    for (int s = 0; s < c->program->segment_count; s++) {
      const pd_segment_info *segment = &c->program->segments[s];
      for (int64_t trip = 0; trip < segment->trips && lists(segment, param); trip++, count++) {
        int chunk = chunk_of_unit(pipeline, first + trip, copy);
        if (slots != NULL) slots[count] = (pd_tied_slot){first + trip, chunk, pipeline->rank_of[chunk], PD_NONE};
      }
      first += segment->trips;
    }
  }
  *used = count > 0;
  if (count > 0) return count;
  if (slots != NULL) slots[0] = (pd_tied_slot){PD_NONE, PD_NONE, last_rank(pipeline), PD_NONE};
  return 1;
}

static bool tied_is_held(const context *c, int param) {
  const pd_pipeline *pipeline = c->pipeline;
  int64_t first = 0;
  bool used = false;
  for (int s = 0; s < c->program->segment_count; s++) {
    const pd_segment_info *segment = &c->program->segments[s];
    for (int64_t trip = 0; trip < segment->trips && lists(segment, param); trip++) {
      used = true;
      for (int copy = 0; copy < copies_of(pipeline); copy++) {
        if (pipeline->rank_of[chunk_of_unit(pipeline, first + trip, copy)] == c->rank) return true;
      }
    }
    first += segment->trips;
  }
  return !used && last_rank(pipeline) == c->rank;
}

/* ---- the block: one malloc for all tables ---- */

typedef struct sizes {
  int64_t chunks, units, tied, slots, gradients; /* the last: bytes */
} sizes;

static int64_t gradient_bytes(const pd_program *program, const pd_segment_info *segment) {
  return padded(segment->trained_elements * pd_wide_bytes(program));
}

static sizes measure(const context *c) {
  sizes n = {0, 0, 0, 0, 0};
  for (int chunk = 0; chunk < c->pipeline->chunk_count; chunk++) {
    if (c->pipeline->rank_of[chunk] != c->rank) continue;
    n.chunks++;
    for (int64_t u = first_unit_of(c->pipeline, chunk); u < end_unit_of(c->pipeline, chunk); u++) {
      int segment;
      int64_t trip;
      pd_unit_locate(c->program, u, &segment, &trip);
      n.units++;
      n.gradients += gradient_bytes(c->program, &c->program->segments[segment]);
    }
  }
  for (int p = 0; p < c->program->param_count; p++) {
    if (c->program->params[p].segment != PD_NONE || !tied_is_held(c, p)) continue;
    bool used;
    n.tied++;
    n.slots += tied_slots(c, p, NULL, &used);
    n.gradients += c->program->params[p].elements * pd_wide_bytes(c->program);
  }
  return n;
}

/* A multiple of PD_BUCKET_BYTES, so that even a huge model's plan has not many more than PD_BUCKETS_USUAL of them a rank. */
static int64_t bucket_bytes(int64_t gradients) {
  const int64_t most = (int64_t)PD_BUCKET_BYTES * PD_BUCKETS_USUAL;
  return PD_BUCKET_BYTES * largest(1, (gradients + most - 1) / most);
}

static void *carve(char **at, int64_t count, size_t size) {
  void *part = *at;
  *at += padded((int64_t)((size_t)count * size));
  return part;
}

/* ---- what every chunk is ---- */

static int64_t find_last_weight_action(const pd_action_list *list, int chunk) {
  int64_t found = PD_NONE;
  for (int64_t i = 0; i < list->count; i++) {
    if (list->at[i].chunk == chunk && (list->at[i].kind == PD_B || list->at[i].kind == PD_W)) found = i;
  }
  return found;
}

/* With several copies of the model a chunk's gradients are final once they have been added up. */
static int64_t find_final_action(const context *c, const pd_chunk_plan *plan) {
  const pd_action_list *list = &c->pipeline->ranks[c->rank];
  for (int64_t i = list->count; copies_of(c->pipeline) > 1 && i-- > 0;) {
    if (list->at[i].chunk == plan->chunk && list->at[i].kind == PD_REDUCE_GRAD) return i;
  }
  return plan->last_weight_action;
}

static bool has_split_actions(const pd_action_list *list, int chunk) {
  for (int64_t i = 0; i < list->count; i++) {
    if (list->at[i].chunk == chunk && list->at[i].kind == PD_I) return true;
  }
  return false;
}

/* Adds one slot where that lets a message travel while the next micro-batch is computed. */
static int64_t one_more(int64_t slots, int64_t microbatches) {
  return slots > 0 && slots < microbatches ? slots + 1 : slots;
}

static void count_slots(const context *c, pd_chunk_plan *plan) {
  const unsigned gradient = 1u << PD_B | 1u << PD_I, weights = 1u << PD_B | 1u << PD_W;
  int chunk = plan->chunk;
  pd_window activations = {chunk, chunk, 1u << PD_F | 1u << PD_RECV_F, weights};
  pd_window inner = {chunk, chunk, gradient, weights};
  pd_window received = {chunk, chunk, gradient | 1u << PD_RECV_B, weights};
  plan->activations.count = pd_window_slots(c->pipeline, c->rank, activations);
  plan->inner.count = plan->split ? pd_window_slots(c->pipeline, c->rank, inner) : 1;
  plan->received.count = plan->received.bytes > 0 ? pd_window_slots(c->pipeline, c->rank, received) : 0;
  plan->sent.count = 0;
  if (plan->sent.bytes > 0 && plan->previous.local) {
    pd_window sent = {chunk, chunk - 1, gradient, gradient};
    plan->sent.count = pd_window_slots(c->pipeline, c->rank, sent);
  } else if (plan->sent.bytes > 0) {
    pd_window sent = {chunk, chunk, gradient, 1u << PD_SEND_B};
    plan->sent.count = one_more(pd_window_slots(c->pipeline, c->rank, sent), c->pipeline->microbatches);
  }
}

static void set_edge_peer(const context *c, pd_edge *edge, int chunk) {
  bool exists = chunk != PD_NO_CHUNK;
  edge->peer = exists ? c->pipeline->rank_of[chunk] : PD_NONE;
  edge->local = exists && edge->peer == c->rank;
}

static void plan_chunk(const context *c, pd_chunk_plan *plan, int chunk, pd_unit_plan *units) {
  const pd_action_list *list = &c->pipeline->ranks[c->rank];
  plan->chunk = chunk;
  plan->first_unit = first_unit_of(c->pipeline, chunk);
  plan->unit_count = end_unit_of(c->pipeline, chunk) - plan->first_unit;
  plan->units = units;
  plan->split = has_split_actions(list, chunk);
  plan->last_weight_action = find_last_weight_action(list, chunk);
  plan->final_action = find_final_action(c, plan);
  set_edge_peer(c, &plan->previous, pd_chunk_before(c->pipeline, chunk));
  set_edge_peer(c, &plan->next, pd_chunk_after(c->pipeline, chunk));
  pd_walk_plan(c->program, plan);
  count_slots(c, plan);
}

/* ---- offsets ---- */

static int64_t place(context *c, pd_memory_class kind, int64_t bytes) {
  int64_t at = c->layout->base[kind] + c->used[kind];
  c->used[kind] += padded(bytes);
  return at;
}

static int64_t place_if(context *c, pd_memory_class kind, int64_t bytes) {
  return bytes > 0 ? place(c, kind, bytes) : PD_NONE;
}

static void place_moments(context *c, int64_t *moments, int64_t bytes) {
  for (int i = 0; i < 2; i++) {
    moments[i] = i < moment_count(c->program) ? place_if(c, PD_MEMORY_OPTIMIZER, bytes) : PD_NONE;
  }
}

static void place_units(context *c, pd_chunk_plan *plan) {
  plan->gradients = c->layout->base[PD_MEMORY_GRADIENTS] + c->used[PD_MEMORY_GRADIENTS];
  for (int64_t u = 0; u < plan->unit_count; u++) {
    pd_unit_plan *unit = &plan->units[u];
    const pd_segment_info *segment = &c->program->segments[unit->segment];
    int64_t bytes = gradient_bytes(c->program, segment);
    unit->weights = place_if(c, PD_MEMORY_PARAMETERS, segment->weight_elements * c->program->real_bytes);
    unit->gradients = place_if(c, PD_MEMORY_GRADIENTS, bytes);
    place_moments(c, unit->moments, bytes);
  }
  plan->gradient_bytes = c->layout->base[PD_MEMORY_GRADIENTS] + c->used[PD_MEMORY_GRADIENTS] - plan->gradients;
}

static void place_tied(context *c, pd_tied_plan *tied) {
  const pd_param_info *param = &c->program->params[tied->param];
  int64_t bytes = param->elements * pd_wide_bytes(c->program);
  tied->weights = place(c, PD_MEMORY_PARAMETERS, param->elements * c->program->real_bytes);
  tied->gradients = tied->moments[0] = tied->moments[1] = PD_NONE;
  if (param->frozen) return;
  for (int i = 0; i < tied->slot_count; i++) {
    pd_tied_slot *slot = &tied->slots[i];
    slot->at = slot->rank == c->rank ? place(c, PD_MEMORY_GRADIENTS, bytes) : PD_NONE;
    if (tied->gradients == PD_NONE) tied->gradients = slot->at;
  }
  place_moments(c, tied->moments, bytes);
}

static void place_slots(context *c, pd_memory_class kind, pd_slots *slots) {
  slots->base = place(c, kind, slots->bytes * slots->count);
}

static int64_t largest_bucket(const pd_layout *layout) {
  int64_t most = 0;
  for (int b = 0; b < layout->bucket_count; b++) most = largest(most, layout->buckets[b].elements);
  return most;
}

/* Slots of other ranks are received piece by piece; all this needs is there only if there are any. */
static void place_tied_exchange(context *c) {
  pd_layout *layout = c->layout;
  int64_t piece = 0;
  for (int t = 0; t < layout->tied_count; t++) {
    const pd_tied_plan *tied = &layout->tied[t];
    if (tied->gradients == PD_NONE) continue;
    for (int i = 0; i < tied->slot_count; i++) {
      if (tied->slots[i].rank == c->rank) continue;
      piece = largest(piece, padded(c->program->params[tied->param].elements * pd_wide_bytes(c->program)));
    }
  }
  layout->tied_piece = piece < PD_BUCKET_BYTES ? piece : PD_BUCKET_BYTES;
  for (int i = 0; i < 2; i++) {
    layout->tied_sum[i] =
        place(c, PD_MEMORY_WORKSPACE, i < c->pipeline->accumulators || i == 0 ? layout->tied_piece : 0);
  }
  layout->tied_receive = place(c, PD_MEMORY_WORKSPACE, layout->tied_piece);
}

/* Two copies of a chunk that have summed up half of the micro-batches each exchange that piece by piece. */
static void place_copy_exchange(context *c) {
  pd_layout *layout = c->layout;
  int64_t piece = 0;
  for (int i = 0; i < layout->chunk_count && copies_of(c->pipeline) > 1 && c->pipeline->accumulators > 1; i++) {
    piece = largest(piece, layout->chunks[i].gradient_bytes);
  }
  layout->copy_piece = piece < PD_BUCKET_BYTES ? piece : PD_BUCKET_BYTES;
  layout->copy_receive = place(c, PD_MEMORY_WORKSPACE, layout->copy_piece);
}

static void place_data(context *c) {
  pd_layout *layout = c->layout;
  layout->rows = layout->base[PD_MEMORY_WORKSPACE] + c->used[PD_MEMORY_WORKSPACE];
  for (int d = 0; d < c->program->data_count; d++) {
    const pd_data_info *data = &c->program->data[d];
    bool read = false;
    for (int i = 0; i < layout->chunk_count; i++) {
      for (int64_t u = 0; u < layout->chunks[i].unit_count; u++) {
        read = read || c->program->segments[layout->chunks[i].units[u].segment].uses_data[d];
      }
    }
    int64_t row_bytes = data->elements * (data->is_integer ? 4 : c->program->real_bytes);
    layout->data_stride[d] = padded(c->program->microbatch * row_bytes);
    layout->data[d] = PD_NONE;
    if (read) layout->data[d] = place(c, PD_MEMORY_WORKSPACE, layout->data_stride[d] * c->program->microbatches);
  }
  layout->rows_bytes = layout->base[PD_MEMORY_WORKSPACE] + c->used[PD_MEMORY_WORKSPACE] - layout->rows;
}

/* What a cuda program keeps on its device beside the model. */
static void place_device(context *c) {
  const pd_program *program = c->program;
  pd_layout *layout = c->layout;
  int64_t tensors = 0;
  for (int p = 0; p < program->param_count; p++) {
    tensors += program->params[p].per_trip ? program->segments[program->params[p].segment].trips : 1;
  }
  layout->results =
      place(c, PD_MEMORY_WORKSPACE, (program->microbatches + 1) * (1 + program->metric_count) * (int64_t)sizeof(double));
  layout->values = place(c, PD_MEMORY_WORKSPACE, (int64_t)sizeof(pd_step_values));
  const int64_t sets = largest(pd_list_updates(c->pipeline), 1); /* one for each update of the list */
  layout->counts = place(c, PD_MEMORY_WORKSPACE, sets * program->normaliser_count * (int64_t)sizeof(double));
  layout->squares = place(c, PD_MEMORY_WORKSPACE, sets * tensors * (int64_t)sizeof(double));
  const int64_t lengths = program->optimizer == PD_LAMB ? 4 * tensors : 0;
  layout->lengths = place(c, PD_MEMORY_WORKSPACE, lengths * (int64_t)sizeof(double));
  layout->partial_squares = place(c, PD_MEMORY_WORKSPACE, PD_NORM_PARTS * (int64_t)sizeof(double));
  layout->constants = place(c, PD_MEMORY_WORKSPACE, program->constant_count * (int64_t)sizeof(float));
  layout->product_row = place(c, PD_MEMORY_WORKSPACE, program->product_row);
  layout->kernels = place(c, PD_MEMORY_WORKSPACE, program->kernel_space);
  /* products and attention use one place in turn, at a multiple of PD_LIBRARY_ALIGNMENT */
  const int64_t space = largest(program->product_space, program->attention_space), slack = PD_LIBRARY_ALIGNMENT - 64;
  layout->libraries = place(c, PD_MEMORY_WORKSPACE, space > 0 ? space + slack : 0) + slack;
  layout->libraries -= layout->libraries % PD_LIBRARY_ALIGNMENT;
}

static void place_workspace(context *c) {
  const pd_program *program = c->program;
  pd_layout *layout = c->layout;
  int64_t scratch = 0, act = 0, temp = 0, zero = 0, inner = 0, tensor = 0;
  for (int i = 0; i < layout->chunk_count; i++) {
    pd_chunk_plan *plan = &layout->chunks[i];
    temp = largest(temp, plan->temp_bytes);
    zero = largest(zero, plan->zero_bytes);
    if (!plan->split) inner = largest(inner, plan->inner.bytes);
    for (int64_t u = 0; u < plan->unit_count; u++) {
      const pd_segment_info *segment = &program->segments[plan->units[u].segment];
      scratch = largest(scratch, segment->scratch_bytes);
      if (program->recompute) act = largest(act, segment->act_bytes);
      tensor = largest(tensor, segment->tp_elements);
    }
  }
  layout->scratch = place(c, PD_MEMORY_WORKSPACE, scratch);
  layout->act = place(c, PD_MEMORY_WORKSPACE, act);
  layout->temp = place(c, PD_MEMORY_WORKSPACE, temp);
  layout->zero = place(c, PD_MEMORY_WORKSPACE, zero);
  const bool host = program->target == PD_TARGET_HOST; /* a device's collectives have memory of their own */
  layout->tensor_elements = host ? pd_sum_scratch(tensor, program->tp) : 0;
  layout->tensor = place(c, PD_MEMORY_WORKSPACE, layout->tensor_elements * program->real_bytes);
  int64_t shared_inner = place(c, PD_MEMORY_WORKSPACE, inner); /* fused backwards run one at a time */
  for (int i = 0; i < layout->chunk_count; i++) {
    pd_slots *slots = &layout->chunks[i].inner;
    if (layout->chunks[i].split) {
      place_slots(c, PD_MEMORY_WORKSPACE, slots);
    } else {
      slots->base = shared_inner;
    }
  }
  int64_t reduction =
      host && program->dp > 1 ? pd_sum_scratch(largest_bucket(layout), program->dp) * program->real_bytes : 0;
  for (int i = 0; i < 2; i++) layout->reductions[i] = place(c, PD_MEMORY_WORKSPACE, reduction);
  place_tied_exchange(c);
  place_copy_exchange(c);
  if (!host) place_device(c);
  place_data(c);
}

/* ---- gradient buckets ---- */

static void add_bucket(pd_layout *layout, pd_bucket bucket) {
  if (bucket.elements > 0) layout->buckets[layout->bucket_count++] = bucket;
}

/* `elements` from byte `offset` on, cut into pieces of at most a bucket. */
static void add_cut(const context *c, pd_bucket whole) {
  int64_t most = c->bucket_bytes / pd_wide_bytes(c->program);
  for (int64_t done = 0; done < whole.elements; done += most) {
    pd_bucket piece = whole;
    piece.offset += done * pd_wide_bytes(c->program);
    piece.elements = whole.elements - done < most ? whole.elements - done : most;
    add_bucket(c->layout, piece);
  }
}

static void bucket_chunk(const context *c, const pd_chunk_plan *plan) {
  pd_bucket open = {plan->chunk, 0, PD_NONE, 0, 0};
  for (int64_t u = plan->unit_count - 1; u >= 0; u--) {
    const pd_unit_plan *unit = &plan->units[u];
    if (unit->gradients == PD_NONE) continue;
    int64_t elements = gradient_bytes(c->program, &c->program->segments[unit->segment]) / pd_wide_bytes(c->program);
    if ((open.elements + elements) * pd_wide_bytes(c->program) > c->bucket_bytes) {
      add_cut(c, open);
      open.elements = 0;
    }
    open.unit = unit->unit;
    open.offset = unit->gradients;
    open.elements += elements;
  }
  add_cut(c, open);
}

static void make_buckets(const context *c) {
  pd_layout *layout = c->layout;
  layout->bucket_count = 0;
  /* chunks in the order in which their gradients are final; those that have none at the end */
  int64_t after = PD_NONE;
  for (int n = 0; n < layout->chunk_count; n++) {
    const pd_chunk_plan *next = NULL;
    for (int i = 0; i < layout->chunk_count; i++) {
      const pd_chunk_plan *plan = &layout->chunks[i];
      if (plan->final_action <= after) continue;
      if (next == NULL || plan->final_action < next->final_action) next = plan;
    }
    if (next == NULL) break;
    bucket_chunk(c, next);
    after = next->final_action;
  }
  for (int i = layout->chunk_count - 1; i >= 0; i--) {
    if (layout->chunks[i].final_action == PD_NONE) bucket_chunk(c, &layout->chunks[i]);
  }
  for (int t = 0; t < layout->tied_count; t++) {
    const pd_tied_plan *tied = &layout->tied[t];
    if (tied->gradients == PD_NONE || !tied->used) continue;
    add_cut(c, (pd_bucket){PD_NONE, tied->slots[0].unit, tied->param, tied->gradients,
                           c->program->params[tied->param].elements});
  }
}

/* ---- all of it ---- */

static void place_all(context *c) {
  pd_layout *layout = c->layout;
  memset(c->used, 0, sizeof c->used);
  for (int i = 0; i < layout->chunk_count; i++) {
    pd_chunk_plan *plan = &layout->chunks[i];
    place_units(c, plan);
    place_slots(c, PD_MEMORY_ACTIVATIONS, &plan->activations);
    place_slots(c, PD_MEMORY_MESSAGES, &plan->received);
    place_slots(c, PD_MEMORY_MESSAGES, &plan->sent);
  }
  for (int t = 0; t < layout->tied_count; t++) place_tied(c, &layout->tied[t]);
  layout->version_bytes = c->used[PD_MEMORY_PARAMETERS];
  c->used[PD_MEMORY_PARAMETERS] *= layout->versions;
  layout->masters = layout->versions;
  layout->master = layout->base[PD_MEMORY_PARAMETERS]; /* the same weights in f32, in the same order */
  if (c->program->real_bytes < 4) {
    layout->masters = c->pipeline->delay > 0 ? layout->versions : 1;
    layout->master =
        place(c, PD_MEMORY_PARAMETERS, layout->masters * (layout->version_bytes / c->program->real_bytes * 4));
  }
  layout->sum_bytes = c->used[PD_MEMORY_GRADIENTS];
  c->used[PD_MEMORY_GRADIENTS] *= layout->sums;
  make_buckets(c);
  place_workspace(c);
}

/* Where every unit finds its tied parameters. */
static void point_units_at_tied(const context *c) {
  const pd_layout *layout = c->layout;
  for (int i = 0; i < layout->chunk_count; i++) {
    for (int64_t u = 0; u < layout->chunks[i].unit_count; u++) {
      pd_unit_plan *unit = &layout->chunks[i].units[u];
      const pd_segment_info *segment = &c->program->segments[unit->segment];
      for (int k = 0; k < segment->shared_count; k++) {
        const pd_tied_plan *tied = layout->tied;
        while (tied->param != segment->shared[k]) tied++;
        unit->shared[k] = tied->weights;
        for (int s = 0; s < tied->slot_count; s++) {
          if (tied->slots[s].unit != unit->unit || tied->slots[s].chunk != layout->chunks[i].chunk) continue;
          unit->shared_gradients[k] = tied->slots[s].at;
        }
      }
    }
  }
}

pd_layout *pd_layout_new(const pd_program *program, const pd_pipeline *pipeline, int pp_rank) {
  context c = {program, pipeline, pp_rank, 0, NULL, {0}};
  sizes n = measure(&c);
  c.bucket_bytes = bucket_bytes(n.gradients);
  const int64_t buckets = 2 * n.units + n.tied + n.gradients / c.bucket_bytes;
  size_t bytes = sizeof(pd_layout) + (size_t)n.chunks * sizeof(pd_chunk_plan) + (size_t)n.units * sizeof(pd_unit_plan) +
                 (size_t)n.tied * sizeof(pd_tied_plan) + (size_t)n.slots * sizeof(pd_tied_slot) +
                 (size_t)buckets * sizeof(pd_bucket) + 6 * 64;
  char *at = calloc(1, bytes);
  if (at == NULL) abort();
  pd_layout *layout = c.layout = carve(&at, 1, sizeof(pd_layout));
  layout->pp_rank = pp_rank;
  layout->versions = versions_here(&c);
  layout->sums = copies_of(pipeline) == 1 && pipeline->accumulators > 1 ? 2 : 1;
  layout->chunks = carve(&at, n.chunks, sizeof(pd_chunk_plan));
  pd_unit_plan *units = carve(&at, n.units, sizeof(pd_unit_plan));
  layout->tied = carve(&at, n.tied, sizeof(pd_tied_plan));
  pd_tied_slot *slots = carve(&at, n.slots, sizeof(pd_tied_slot));
  layout->buckets = carve(&at, buckets, sizeof(pd_bucket));
  for (int chunk = 0; chunk < pipeline->chunk_count; chunk++) {
    if (pipeline->rank_of[chunk] != pp_rank) continue;
    plan_chunk(&c, &layout->chunks[layout->chunk_count++], chunk, units);
    units += end_unit_of(pipeline, chunk) - first_unit_of(pipeline, chunk);
  }
  for (int p = 0; p < program->param_count; p++) {
    if (program->params[p].segment != PD_NONE || !tied_is_held(&c, p)) continue;
    pd_tied_plan *tied = &layout->tied[layout->tied_count++];
    tied->param = p;
    tied->slots = slots;
    tied->slot_count = tied_slots(&c, p, slots, &tied->used);
    slots += tied->slot_count;
  }
  place_all(&c); /* once for the sizes of the classes, once for the offsets */
  for (int kind = 0; kind < PD_MEMORY_CLASSES; kind++) {
    layout->bytes[kind] = c.used[kind];
    if (kind > 0) layout->base[kind] = layout->base[kind - 1] + layout->bytes[kind - 1];
  }
  place_all(&c);
  point_units_at_tied(&c);
  return layout;
}

void pd_layout_free(pd_layout *layout) {
  free(layout);
}

int64_t pd_layout_bytes(const pd_layout *layout, pd_memory_class kind) {
  return layout->bytes[kind];
}

int64_t pd_layout_total(const pd_layout *layout) {
  int64_t total = 0;
  for (int kind = 0; kind < PD_MEMORY_CLASSES; kind++) total += layout->bytes[kind];
  return total;
}

int pd_layout_buckets(const pd_layout *layout, const pd_bucket **buckets) {
  *buckets = layout->buckets;
  return layout->bucket_count;
}
