/* Reads a pd-plan, version 1, strictly: the table of its keys (docs/plan.md says what each means), canonical form and
 * digest, and then what must agree inside of it: placement, layers without gap or overlap, parameters, memory, messages
 * against the lists, groups against the parallel degrees. */
#include <string.h>

#include "artifact/reading.h"

enum { MOST_DEGREE = 1 << 20 };

static const Shape name_shape = {.kind = SHAPE_EXACTLY, .text = "pd-plan"};
static const Shape version_shape = {.kind = SHAPE_WHOLE, .least = 1, .most = 1};
static const Shape text_shape = {.kind = SHAPE_TEXT};
static const Shape nullable_text_shape = {.kind = SHAPE_TEXT, .nullable = true};
static const Shape bool_shape = {.kind = SHAPE_BOOL};
static const Shape number_shape = {.kind = SHAPE_NUMBER};
static const Shape nullable_number_shape = {.kind = SHAPE_NUMBER, .nullable = true};
static const Shape count_shape = {.kind = SHAPE_WHOLE, .least = 0, .most = INT64_MAX};
static const Shape degree_shape = {.kind = SHAPE_WHOLE, .least = 1, .most = MOST_DEGREE};
static const Shape pp_shape = {.kind = SHAPE_WHOLE, .least = 1, .most = DOCUMENT_MOST_RANKS};
static const Shape zero_shape = {.kind = SHAPE_WHOLE, .least = 0, .most = 3};
static const Shape chunk_shape = {.kind = SHAPE_WHOLE, .least = 0, .most = DOCUMENT_MOST_CHUNKS - 1};
static const Shape chunks_shape = {.kind = SHAPE_WHOLE, .least = 1, .most = DOCUMENT_MOST_CHUNKS};
static const Shape copies_shape = {.kind = SHAPE_WHOLE, .least = 1, .most = 2};
static const Shape update_every_shape = {.kind = SHAPE_WHOLE, .least = 0, .most = DOCUMENT_MOST_MICROBATCHES};
static const Shape delay_shape = {.kind = SHAPE_WHOLE, .least = 0, .most = 1};
static const Shape microbatches_shape = {.kind = SHAPE_WHOLE, .least = 1, .most = DOCUMENT_MOST_MICROBATCHES};
static const Shape rank_shape = {.kind = SHAPE_WHOLE, .least = 0, .most = DOCUMENT_MOST_RANKS - 1};
static const Shape numbers_shape = {.kind = SHAPE_ARRAY, .element = &number_shape};
static const Shape counts_shape = {.kind = SHAPE_ARRAY, .element = &count_shape};
static const Shape texts_shape = {.kind = SHAPE_ARRAY, .element = &text_shape};
static const Shape placement_shape = {.kind = SHAPE_ARRAY, .element = &rank_shape};
static const Shape tied_shape = {.kind = SHAPE_ARRAY, .nullable = true, .element = &chunk_shape};
static const Shape sharding_shape = {.kind = SHAPE_ARRAY, .element = &nullable_text_shape};

#define OBJECT(name, ...)                                                                                              \
  static const ShapeField name##_fields[] = {__VA_ARGS__, {0}};                                                        \
  static const Shape name##_shape = {.kind = SHAPE_OBJECT, .fields = name##_fields}
#define ARRAY_OF(name) static const Shape name##_list_shape = {.kind = SHAPE_ARRAY, .element = &name##_shape}

OBJECT(source, {"sha256", &text_shape, false});
OBJECT(parallel, {"pp", &pp_shape, false}, {"dp", &degree_shape, false}, {"tp", &degree_shape, false},
       {"cp", &degree_shape, false}, {"ep", &degree_shape, false}, {"zero", &zero_shape, false},
       {"sequence", &bool_shape, false});
OBJECT(batch, {"global", &count_shape, false}, {"microbatch", &count_shape, false},
       {"microbatches", &microbatches_shape, false}, {"sequence_tokens", &count_shape, false});
OBJECT(plan_schedule, {"kind", &text_shape, false}, {"chunks", &chunks_shape, false}, {"copies", &copies_shape, false},
       {"accumulators", &copies_shape, false}, {"update_every", &update_every_shape, false},
       {"delay", &delay_shape, false}, {"placement", &placement_shape, false});
OBJECT(parameter, {"name", &text_shape, false}, {"shape", &counts_shape, false}, {"dtype", &text_shape, false},
       {"chunk", &chunk_shape, false}, {"tied_with", &tied_shape, false}, {"sharding", &sharding_shape, false},
       {"decay", &bool_shape, false});
ARRAY_OF(parameter);
OBJECT(layer, {"name", &text_shape, false}, {"first", &count_shape, false}, {"last", &count_shape, false});
ARRAY_OF(layer);
OBJECT(flops, {"F", &count_shape, false}, {"I", &count_shape, false}, {"W", &count_shape, false});
OBJECT(cost, {"F", &number_shape, false}, {"I", &number_shape, false}, {"W", &number_shape, false});
OBJECT(send, {"tensor", &text_shape, false}, {"to_chunk", &chunk_shape, false}, {"dtype", &text_shape, false},
       {"shape", &counts_shape, false}, {"bytes", &count_shape, false});
ARRAY_OF(send);
OBJECT(chunk_entry, {"chunk", &chunk_shape, false}, {"rank", &rank_shape, false}, {"layers", &layer_list_shape, false},
       {"parameters", &count_shape, false}, {"flops", &flops_shape, false}, {"cost_ns", &cost_shape, false},
       {"activation_bytes", &count_shape, false}, {"sends", &send_list_shape, false});
ARRAY_OF(chunk_entry);
OBJECT(memory, {"parameters", &count_shape, false}, {"gradients", &count_shape, false},
       {"optimizer", &count_shape, false}, {"activations", &count_shape, false}, {"messages", &count_shape, false},
       {"workspace", &count_shape, false}, {"total", &count_shape, false});
OBJECT(rank_entry, {"rank", &rank_shape, false}, {"weight_versions", &chunks_shape, false},
       {"staleness", &count_shape, false}, {"actions", &texts_shape, false}, {"memory", &memory_shape, false});
ARRAY_OF(rank_entry);
OBJECT(operation, {"op", &text_shape, false}, {"tensor", &text_shape, true}, {"bucket", &count_shape, true},
       {"dtype", &text_shape, false}, {"bytes", &count_shape, false}, {"count", &count_shape, true},
       {"after", &text_shape, false});
ARRAY_OF(operation);
OBJECT(communicator, {"axis", &text_shape, false}, {"size", &count_shape, false}, {"count", &count_shape, false},
       {"pp_rank", &rank_shape, true}, {"operations", &operation_list_shape, false});
ARRAY_OF(communicator);
OBJECT(acyclic, {"buffered", &bool_shape, false}, {"rendezvous", &bool_shape, false}, {"grouped", &bool_shape, false});
OBJECT(certificate, {"complete", &bool_shape, false}, {"ordered", &bool_shape, false}, {"matched", &bool_shape, false},
       {"acyclic", &acyclic_shape, false}, {"makespan_ns", &number_shape, false}, {"beta_ns", &number_shape, false},
       {"sigma_ns", &number_shape, false}, {"bound_ns", &number_shape, false}, {"idle_ns", &numbers_shape, false},
       {"peak_bytes", &counts_shape, false});
OBJECT(cluster, {"memory", &nullable_number_shape, false}, {"flops", &number_shape, false},
       {"bandwidth", &nullable_number_shape, false}, {"latency", &nullable_number_shape, false},
       {"node_bandwidth", &nullable_number_shape, false}, {"node_latency", &nullable_number_shape, false},
       {"ranks_per_node", &nullable_number_shape, false}, {"link_ns", &number_shape, false},
       {"assumed", &texts_shape, false});
OBJECT(exposed, {"tp", &number_shape, false}, {"pp", &number_shape, false}, {"tied", &number_shape, false},
       {"dp", &number_shape, false});
OBJECT(predicted_chunk, {"chunk", &chunk_shape, false}, {"tp_ns", &cost_shape, false},
       {"reduce_ns", &number_shape, false});
ARRAY_OF(predicted_chunk);
OBJECT(sent, {"tp", &number_shape, false}, {"pp", &number_shape, false}, {"dp", &number_shape, false});
OBJECT(predicted_rank, {"rank", &rank_shape, false}, {"sent_bytes", &sent_shape, false});
ARRAY_OF(predicted_rank);
OBJECT(prediction, {"step_ns", &number_shape, false}, {"busy_ns", &number_shape, false},
       {"bubble_ns", &number_shape, false}, {"exposed_ns", &exposed_shape, false}, {"flops", &number_shape, false},
       {"peak_flops", &number_shape, false}, {"mfu", &number_shape, false},
       {"chunks", &predicted_chunk_list_shape, false}, {"ranks", &predicted_rank_list_shape, false});
OBJECT(plan, {"format", &name_shape, false}, {"version", &version_shape, false}, {"compiler", &text_shape, false},
       {"model", &text_shape, false}, {"source", &source_shape, false}, {"parallel", &parallel_shape, false},
       {"batch", &batch_shape, false}, {"schedule", &plan_schedule_shape, false},
       {"parameters", &parameter_list_shape, false}, {"chunks", &chunk_entry_list_shape, false},
       {"ranks", &rank_entry_list_shape, false}, {"communicators", &communicator_list_shape, false},
       {"certificate", &certificate_shape, false}, {"cluster", &cluster_shape, false},
       {"prediction", &prediction_shape, false}, {"sha256", &text_shape, false});

typedef struct PlanReader {
  Arena *arena;
  json_t *root;
  Document *document;
  const char *why;
} PlanReader;

#define WRONG(reader, ...)                                                                                             \
  do {                                                                                                                 \
    (reader)->why = arena_printf((reader)->arena, __VA_ARGS__);                                                        \
    return false;                                                                                                      \
  } while (0)

static int64_t whole(const json_t *object, const char *key) {
  return json_integer_value(json_object_get(object, key));
}

/* The product of a shape's sizes; -1 if it is beyond 63 bits. */
static int64_t elements_of(const json_t *shape) {
  int64_t elements = 1;
  for (size_t i = 0; i < json_array_size(shape); i++)
    if (__builtin_mul_overflow(elements, json_integer_value(json_array_get(shape, i)), &elements)) return -1;
  return elements;
}

/* ---- head ---- */

static bool read_head(PlanReader *reader) {
  Document *document = reader->document;
  const json_t *parallel = json_object_get(reader->root, "parallel"), *batch = json_object_get(reader->root, "batch");
  const json_t *schedule = json_object_get(reader->root, "schedule");
  int64_t pp = whole(parallel, "pp"), chunks = whole(schedule, "chunks"), product;
  if (pp * chunks > DOCUMENT_MOST_CHUNKS / 2)
    WRONG(reader, "$.schedule.chunks is %lld on %lld ranks; at most %d chunks are read", (long long)chunks,
          (long long)pp, DOCUMENT_MOST_CHUNKS / 2);
  document->kind = json_string_value(json_object_get(schedule, "kind"));
  document->chunks = (int)chunks;
  document->pipeline.microbatches = whole(batch, "microbatches");
  reader->why = placement_read(reader->arena, json_object_get(schedule, "placement"), "$.schedule.placement",
                               document->kind, (int)pp, (int)chunks, &document->pipeline);
  if (reader->why) return false;
  const pd_pipeline *means = &document->pipeline; /* what the kind says */
  document->pipeline.accumulators = (int)whole(schedule, "accumulators");
  if (whole(schedule, "copies") != means->copies || whole(schedule, "update_every") != means->step ||
      whole(schedule, "delay") != means->delay)
    WRONG(reader, "$.schedule has copies %lld, update_every %lld and delay %lld, but %s has %d, %lld and %d",
          (long long)whole(schedule, "copies"), (long long)whole(schedule, "update_every"),
          (long long)whole(schedule, "delay"), document->kind, means->copies, (long long)means->step, means->delay);
  if (__builtin_mul_overflow(whole(batch, "microbatch"), whole(batch, "microbatches"), &product) ||
      __builtin_mul_overflow(product, whole(parallel, "dp"), &product) || product != whole(batch, "global"))
    WRONG(reader, "$.batch.global is %lld, but dp %lld x %lld micro-batches of %lld are another number",
          (long long)whole(batch, "global"), (long long)whole(parallel, "dp"), (long long)whole(batch, "microbatches"),
          (long long)whole(batch, "microbatch"));
  return true;
}

/* ---- chunks ---- */

typedef struct Run { /* of layers: where the chunk before ended */
  const char *name;
  int64_t next;
} Run;

/* Layers of a chunk go on where the chunk before ended; a segment that has ended does not come again. */
static bool read_layers(PlanReader *reader, const json_t *layers, int chunk, Run *run, json_t *seen) {
  if (json_array_size(layers) == 0 && (chunk == 0 || chunk == reader->document->pipeline.chunk_count - 1))
    WRONG(reader, "$.chunks[%d].layers is empty: the first and the last chunk hold some", chunk);
  for (size_t i = 0; i < json_array_size(layers); i++) {
    const json_t *layer = json_array_get(layers, i);
    const char *name = json_string_value(json_object_get(layer, "name"));
    int64_t first = whole(layer, "first"), last = whole(layer, "last");
    bool goes_on = run->name && strcmp(run->name, name) == 0;
    int64_t wanted = goes_on ? run->next : 0;
    if (!goes_on && json_object_get(seen, name))
      WRONG(reader, "$.chunks[%d].layers[%zu].name: `%.60s` comes again after other layers", chunk, i, name);
    if (first != wanted)
      WRONG(reader, "$.chunks[%d].layers[%zu].first is %lld; the chunks before end at %s %lld", chunk, i,
            (long long)first, name, (long long)wanted - 1);
    if (last < first || last == INT64_MAX)
      WRONG(reader, "$.chunks[%d].layers[%zu].last is %lld, before its first", chunk, i, (long long)last);
    json_object_set_new(seen, name, json_true());
    *run = (Run){name, last + 1};
  }
  return true;
}

/* 0 for a name that is none of ours. */
static int64_t item_bytes(const char *dtype) {
  static const struct {
    const char *name;
    int64_t bytes;
  } types[] = {{"f64", 8}, {"f32", 4}, {"bf16", 2}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strcmp(dtype, types[i].name) == 0) return types[i].bytes;
  return 0;
}

/* The messages that the lists hold and those that `sends` describes are the same. */
static bool read_sends(PlanReader *reader, const json_t *sends, int chunk, const bool *sent) {
  bool described[2] = {false, false}; /* F, B */
  for (size_t i = 0; i < json_array_size(sends); i++) {
    const json_t *send = json_array_get(sends, i);
    int64_t to = whole(send, "to_chunk"), elements = elements_of(json_object_get(send, "shape"));
    const char *dtype = json_string_value(json_object_get(send, "dtype"));
    int64_t size = item_bytes(dtype), bytes;
    if (to != chunk + 1 && to != chunk - 1)
      WRONG(reader, "$.chunks[%d].sends[%zu].to_chunk is %lld, no neighbour", chunk, i, (long long)to);
    if (size && (elements < 0 || __builtin_mul_overflow(elements, size, &bytes) || bytes != whole(send, "bytes")))
      WRONG(reader, "$.chunks[%d].sends[%zu].bytes is %lld, which its shape and %s do not give", chunk, i,
            (long long)whole(send, "bytes"), dtype);
    described[to < chunk] = true;
  }
  for (int back = 0; back < 2; back++)
    if (described[back] != sent[back])
      WRONG(reader, "$.chunks[%d].sends %s for chunk %d, but the lists %s", chunk,
            described[back] ? "has tensors" : "has no tensor", back ? chunk - 1 : chunk + 1,
            sent[back] ? "send some" : "send none");
  return true;
}

static bool read_chunk(PlanReader *reader, int chunk, Run *run, json_t *seen, const bool *sent) {
  Document *document = reader->document;
  const json_t *entry = json_array_get(json_object_get(reader->root, "chunks"), (size_t)chunk);
  if (whole(entry, "chunk") != chunk)
    WRONG(reader, "$.chunks[%d].chunk is %lld: chunks come in order", chunk, (long long)whole(entry, "chunk"));
  if (whole(entry, "rank") != document->pipeline.rank_of[chunk])
    WRONG(reader, "$.chunks[%d].rank is %lld, but $.schedule.placement says %d", chunk, (long long)whole(entry, "rank"),
          document->pipeline.rank_of[chunk]);
  return read_layers(reader, json_object_get(entry, "layers"), chunk, run, seen) &&
         read_sends(reader, json_object_get(entry, "sends"), chunk, sent);
}

static bool read_chunks(PlanReader *reader) {
  Document *document = reader->document;
  const pd_pipeline *pipeline = &document->pipeline;
  int count = pipeline->chunk_count;
  const json_t *chunks = json_object_get(reader->root, "chunks");
  reader->why = count_check(reader->arena, chunks, "$.chunks", count, "one a chunk");
  if (reader->why) return false;
  bool(*sent)[2] = arena_alloc(reader->arena, sizeof *sent * (size_t)count);
  for (int rank = 0; rank < pipeline->pp; rank++)
    for (int64_t i = 0; i < pipeline->ranks[rank].count; i++) {
      pd_action action = pipeline->ranks[rank].at[i];
      if (action.kind == PD_SEND_F || action.kind == PD_SEND_B) sent[action.chunk][action.kind == PD_SEND_B] = true;
    }
  double *costs[3], *bytes = ARENA_ARRAY(reader->arena, double, count);
  for (int k = 0; k < 3; k++) costs[k] = ARENA_ARRAY(reader->arena, double, count);
  Run run = {0};
  json_t *seen = json_object();
  bool good = true;
  for (int chunk = 0; chunk < count && good; chunk++) {
    const json_t *entry = json_array_get(chunks, (size_t)chunk), *cost = json_object_get(entry, "cost_ns");
    costs[0][chunk] = json_number_at(cost, "F");
    costs[1][chunk] = json_number_at(cost, "I");
    costs[2][chunk] = json_number_at(cost, "W");
    bytes[chunk] = (double)whole(entry, "activation_bytes");
    if (chunk == pd_copy_chunks(pipeline)) { /* the second copy of the model holds the same once more */
      run = (Run){0};
      json_object_clear(seen);
    }
    good = read_chunk(reader, chunk, &run, seen, sent[chunk]);
  }
  json_decref(seen);
  document->chunk_bytes = bytes;
  document->times = (ScheduleCosts){costs[0], costs[1], costs[2],
                                    json_number_at(json_object_get(reader->root, "cluster"), "link_ns")};
  document->scale = 1;
  return good;
}

/* Every chunk's `parameters` is the sum over the tensors that name it. */
static bool read_parameters(PlanReader *reader) {
  const pd_pipeline *pipeline = &reader->document->pipeline;
  const json_t *parameters = json_object_get(reader->root, "parameters");
  int64_t *sums = ARENA_ARRAY(reader->arena, int64_t, pipeline->chunk_count);
  for (size_t i = 0; i < json_array_size(parameters); i++) {
    const json_t *parameter = json_array_get(parameters, i), *shape = json_object_get(parameter, "shape");
    int64_t chunk = whole(parameter, "chunk"), elements = elements_of(shape);
    if (chunk >= pipeline->chunk_count)
      WRONG(reader, "$.parameters[%zu].chunk is %lld of %d", i, (long long)chunk, pipeline->chunk_count);
    if (json_array_size(json_object_get(parameter, "sharding")) != json_array_size(shape))
      WRONG(reader, "$.parameters[%zu].sharding has other dimensions than its shape", i);
    if (elements < 0 || __builtin_add_overflow(sums[chunk], elements, &sums[chunk]))
      WRONG(reader, "$.parameters[%zu].shape has more elements than can be", i);
  }
  for (int chunk = 0; chunk < pipeline->chunk_count; chunk++) {
    int64_t said = whole(json_array_get(json_object_get(reader->root, "chunks"), (size_t)chunk), "parameters");
    if (said != sums[chunk])
      WRONG(reader, "$.chunks[%d].parameters is %lld, but its tensors have %lld elements", chunk, (long long)said,
            (long long)sums[chunk]);
  }
  return true;
}

/* ---- ranks ---- */

static bool read_memory(PlanReader *reader, const json_t *memory, int rank) {
  const json_t *peaks = json_object_get(json_object_get(reader->root, "certificate"), "peak_bytes");
  static const char *const classes[] = {"parameters", "gradients", "optimizer", "activations", "messages", "workspace"};
  int64_t sum = 0, total = whole(memory, "total");
  for (size_t k = 0; k < sizeof classes / sizeof *classes; k++)
    if (__builtin_add_overflow(sum, whole(memory, classes[k]), &sum)) sum = -1;
  if (sum != total)
    WRONG(reader, "$.ranks[%d].memory.total is %lld, but its classes add up to %lld", rank, (long long)total,
          (long long)sum);
  if (json_integer_value(json_array_get(peaks, (size_t)rank)) != total)
    WRONG(reader, "$.certificate.peak_bytes[%d] is not $.ranks[%d].memory.total", rank, rank);
  return true;
}

static bool read_ranks(PlanReader *reader) {
  pd_pipeline *pipeline = &reader->document->pipeline;
  const json_t *ranks = json_object_get(reader->root, "ranks"),
               *certificate = json_object_get(reader->root, "certificate");
  Arena *arena = reader->arena;
  reader->why = count_check(arena, ranks, "$.ranks", pipeline->pp, "one a pipeline rank");
  if (!reader->why)
    reader->why = count_check(arena, json_object_get(certificate, "idle_ns"), "$.certificate.idle_ns", pipeline->pp,
                              "one a pipeline rank");
  if (!reader->why)
    reader->why = count_check(arena, json_object_get(certificate, "peak_bytes"), "$.certificate.peak_bytes",
                              pipeline->pp, "one a pipeline rank");
  if (reader->why) return false;
  pd_action_list *lists = ARENA_ARRAY(arena, pd_action_list, pipeline->pp);
  int64_t actions = 0;
  for (int rank = 0; rank < pipeline->pp; rank++) {
    const json_t *entry = json_array_get(ranks, (size_t)rank);
    if (whole(entry, "rank") != rank)
      WRONG(reader, "$.ranks[%d].rank is %lld: ranks come in order", rank, (long long)whole(entry, "rank"));
    reader->why = actions_read(arena, json_object_get(entry, "actions"),
                               arena_printf(arena, "$.ranks[%d].actions", rank), pipeline, &lists[rank]);
    if (reader->why || !read_memory(reader, json_object_get(entry, "memory"), rank)) return false;
    actions += lists[rank].count;
  }
  if (actions > DOCUMENT_MOST_ACTIONS)
    WRONG(reader, "$.ranks has %lld actions; at most %d are read", (long long)actions, DOCUMENT_MOST_ACTIONS);
  pipeline->ranks = lists;
  for (int chunk = 0; chunk < pipeline->chunk_count; chunk++) {
    const json_t *entry = json_array_get(ranks, (size_t)pipeline->rank_of[chunk]);
    int64_t versions = pd_weight_versions(pipeline, chunk), staleness = pd_weight_staleness(pipeline, chunk);
    if (whole(entry, "weight_versions") != versions || whole(entry, "staleness") != staleness)
      WRONG(reader, "$.ranks[%d] has %lld weight_versions and a staleness of %lld, but its list makes %lld and %lld",
            pipeline->rank_of[chunk], (long long)whole(entry, "weight_versions"), (long long)whole(entry, "staleness"),
            (long long)versions, (long long)staleness);
  }
  pipeline->split = actions_split(pipeline);
  reader->document->messages = actions_have_messages(pipeline);
  reader->why = document_check_size(arena, pipeline);
  return reader->why == NULL;
}

/* ---- communicators ---- */

/* Buckets of gradients come in order, each after what makes the gradients of a chunk of its rank final: the last weight
 * gradient, or, where copies are summed first, the REDUCE_GRAD. What has no weight gradients, and tied parameters, come
 * at the end. */
static bool read_buckets(PlanReader *reader, size_t index, const json_t *communicator) {
  const pd_pipeline *pipeline = &reader->document->pipeline;
  const pd_action_list *list = &pipeline->ranks[whole(communicator, "pp_rank")];
  const json_t *operations = json_object_get(communicator, "operations");
  for (size_t k = 0; k < json_array_size(operations); k++) {
    const json_t *operation = json_array_get(operations, k), *bucket = json_object_get(operation, "bucket");
    const char *after = json_string_value(json_object_get(operation, "after"));
    if (!bucket || strcmp(after, "end") == 0) continue;
    if (json_integer_value(bucket) != (int64_t)k)
      WRONG(reader, "$.communicators[%zu].operations[%zu].bucket is %lld: buckets are numbered in order", index, k,
            (long long)json_integer_value(bucket));
    pd_action said, last = {PD_F, 0, 0};
    bool known = pd_action_parse(after, &said), found = false;
    for (int64_t i = 0; known && i < list->count; i++) {
      pd_action action = list->at[i];
      bool makes = pipeline->copies > 1 ? action.kind == PD_REDUCE_GRAD : action.kind == PD_B || action.kind == PD_W;
      if (action.chunk != said.chunk || !makes) continue;
      last = action;
      found = true;
    }
    if (!found || last.kind != said.kind || last.microbatch != said.microbatch)
      WRONG(reader,
            "$.communicators[%zu].operations[%zu].after is \"%.40s\", not what ends a chunk's gradients on rank %lld",
            index, k, after, (long long)whole(communicator, "pp_rank"));
  }
  return true;
}

/* Replicas have their gradients reduced, and only they: once a chunk, in the lists. Without a flush reductions belong
 * to the updates. */
static bool read_reductions(PlanReader *reader) {
  const pd_pipeline *pipeline = &reader->document->pipeline;
  bool wanted = whole(json_object_get(reader->root, "parallel"), "dp") > 1 || pipeline->copies > 1, found = false;
  for (int rank = 0; rank < pipeline->pp; rank++)
    for (int64_t i = 0; i < pipeline->ranks[rank].count; i++)
      found |= pipeline->ranks[rank].at[i].kind == PD_REDUCE_GRAD;
  if (pipeline->step == 0 && wanted != found)
    WRONG(reader,
          wanted ? "$.ranks has no REDUCE_GRAD, but dp is %lld: gradients of replicas would differ"
                 : "$.ranks has REDUCE_GRAD, but dp is %lld",
          (long long)whole(json_object_get(reader->root, "parallel"), "dp"));
  return true;
}

static bool read_communicators(PlanReader *reader) {
  const json_t *parallel = json_object_get(reader->root, "parallel"),
               *all = json_object_get(reader->root, "communicators");
  for (size_t i = 0; i < json_array_size(all); i++) {
    const json_t *communicator = json_array_get(all, i);
    const char *axis = json_string_value(json_object_get(communicator, "axis"));
    const json_t *degree = json_object_get(parallel, axis);
    if (!json_is_integer(degree) || strcmp(axis, "zero") == 0)
      WRONG(reader, "$.communicators[%zu].axis is \"%.60s\", no axis of the mesh", i, axis);
    if (whole(communicator, "size") != json_integer_value(degree))
      WRONG(reader, "$.communicators[%zu].size is %lld, but %s is %lld", i, (long long)whole(communicator, "size"),
            axis, (long long)json_integer_value(degree));
    if (json_object_get(communicator, "pp_rank") && whole(communicator, "pp_rank") >= whole(parallel, "pp"))
      WRONG(reader, "$.communicators[%zu].pp_rank is %lld of %lld", i, (long long)whole(communicator, "pp_rank"),
            (long long)whole(parallel, "pp"));
    const json_t *operations = json_object_get(communicator, "operations");
    for (size_t k = 0; k < json_array_size(operations); k++) {
      const json_t *operation = json_array_get(operations, k);
      if (!json_object_get(operation, "tensor") == !json_object_get(operation, "bucket"))
        WRONG(reader, "$.communicators[%zu].operations[%zu] must name a tensor or a bucket", i, k);
    }
    bool buckets = strcmp(axis, "dp") == 0 && json_object_get(communicator, "pp_rank");
    if (buckets && reader->document->pipeline.step == 0 && !read_buckets(reader, i, communicator)) return false;
  }
  return read_reductions(reader);
}

/* ---- prediction ---- */

/* The step is the sum of its parts, and the utilisation follows from it. */
static bool read_prediction(PlanReader *reader) {
  const json_t *prediction = json_object_get(reader->root, "prediction"),
               *exposed = json_object_get(prediction, "exposed_ns");
  static const char *const parts[] = {"tp", "pp", "tied", "dp"};
  double step = json_number_at(prediction, "step_ns"), sum = json_number_at(prediction, "busy_ns"), mfu;
  sum += json_number_at(prediction, "bubble_ns");
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) sum += json_number_at(exposed, parts[i]);
  if (sum != step) WRONG(reader, "$.prediction.step_ns is %.17g, but its parts add up to %.17g", step, sum);
  double work = json_number_at(prediction, "flops"), peak = json_number_at(prediction, "peak_flops");
  mfu = step > 0 ? work / (peak * step * 1e-9) : 0;
  if (json_number_at(prediction, "mfu") != mfu)
    WRONG(reader, "$.prediction.mfu is %.17g, but flops / peak_flops / step_ns is %.17g",
          json_number_at(prediction, "mfu"), mfu);
  const pd_pipeline *pipeline = &reader->document->pipeline;
  reader->why = count_check(reader->arena, json_object_get(prediction, "chunks"), "$.prediction.chunks",
                            pipeline->chunk_count, "one a chunk");
  if (!reader->why)
    reader->why = count_check(reader->arena, json_object_get(prediction, "ranks"), "$.prediction.ranks", pipeline->pp,
                              "one a pipeline rank");
  if (reader->why) return false;
  double *reductions = ARENA_ARRAY(reader->arena, double, pipeline->chunk_count);
  for (int chunk = 0; chunk < pipeline->chunk_count; chunk++)
    reductions[chunk] =
        json_number_at(json_array_get(json_object_get(prediction, "chunks"), (size_t)chunk), "reduce_ns");
  reader->document->reductions = reductions;
  return true;
}

const char *plan_read(Arena *arena, const char *text, size_t length, Document *document) {
  PlanReader reader = {.arena = arena, .document = document};
  *document = (Document){.form = DOCUMENT_PLAN, .unit = "ns"};
  document->root = reader.root = canonical_parse(arena, text, length, &plan_shape, &reader.why);
  if (!reader.root) return reader.why;
  if (read_head(&reader) && read_ranks(&reader) && read_chunks(&reader) && read_parameters(&reader) &&
      read_communicators(&reader) && read_prediction(&reader)) {
    document->claims = claims_read(arena, json_object_get(reader.root, "certificate"), "_ns", "peak_bytes");
    return NULL;
  }
  document_free(document);
  return reader.why;
}
