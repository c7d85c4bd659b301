/* Reads the embedded plan into the pipeline that the engine follows.
 *
 * The plan was written by the compiler that wrote the program, and still nothing in it is believed: its digest is
 * computed again, its figures are compared with the program's, its chunks must cover every unit once. What is wrong is
 * said with the JSON path. jansson owns the tree while it is read; the pipeline owns its own arrays.
 */
#include "plan.h"

#include <inttypes.h>
#include <jansson.h>
#include <sha256.h>
#include <stdlib.h>
#include <string.h>

/* ---- the digest ---- */

/* `sha256` is the last key; it covers every byte before its line. */
static bool check_digest(const char *text, char out[65], pd_problem *problem) {
  static const char key[] = "\n  \"sha256\": \"";
  const char *line = NULL;
  for (const char *p = strstr(text, key); p != NULL; p = strstr(p + 1, key)) line = p + 1;
  if (line == NULL) return pd_problem_say(problem, "plan: $.sha256 is missing");
  SHA256Data((const uint8_t *)text, (size_t)(line - text), out);
  const char *said = line + sizeof key - 2;
  if (strncmp(said, out, 64) == 0 && said[64] == '"') return true;
  return pd_problem_say(problem, "plan: $.sha256 is %.64s, but the plan's digest is %s: it was altered", said, out);
}

/* ---- reading with paths ---- */

/* Member `key` of `object` at `path`, of the type wanted; NULL with the problem said. */
static json_t *need(json_t *object, const char *path, const char *key, json_type type, pd_problem *problem) {
  static const char *const names[] = {"an object", "an array", "a string", "an integer",
                                      "a real",    "true",     "false",    "null"};
  json_t *value = json_object_get(object, key);
  if (value == NULL) {
    pd_problem_say(problem, "plan: %s.%s is missing", path, key);
    return NULL;
  }
  if (json_typeof(value) == type) return value;
  pd_problem_say(problem, "plan: %s.%s must be %s", path, key, names[type]);
  return NULL;
}

static bool need_whole(json_t *object, const char *path, const char *key, int64_t *out, pd_problem *problem) {
  json_t *value = need(object, path, key, JSON_INTEGER, problem);
  if (value == NULL) return false;
  *out = json_integer_value(value);
  if (*out >= 0) return true;
  return pd_problem_say(problem, "plan: %s.%s is %" PRId64 ", must not be negative", path, key, *out);
}

/* A figure that plan and program both hold. */
static bool same(json_t *object, const char *path, const char *key, int64_t program_says, pd_problem *problem) {
  int64_t plan_says;
  if (!need_whole(object, path, key, &plan_says, problem)) return false;
  if (plan_says == program_says) return true;
  return pd_problem_say(problem, "plan: %s.%s is %" PRId64 ", but the program was made for %" PRId64, path, key,
                        plan_says, program_says);
}

static bool element(json_t *array, const char *path, size_t index, json_t **out, char *at, size_t size,
                    pd_problem *problem) {
  snprintf(at, size, "%s[%zu]", path, index);
  *out = json_array_get(array, index);
  return json_is_object(*out) || pd_problem_say(problem, "plan: %s must be an object", at);
}

/* ---- head ---- */

static bool read_head(const pd_program *program, json_t *root, pd_plan *plan, pd_problem *problem) {
  json_t *format = need(root, "$", "format", JSON_STRING, problem);
  if (format == NULL) return false;
  if (strcmp(json_string_value(format), "pd-plan") != 0)
    return pd_problem_say(problem, "plan: $.format is not pd-plan");
  if (!same(root, "$", "version", 1, problem)) return false;
  json_t *model = need(root, "$", "model", JSON_STRING, problem);
  json_t *parallel = need(root, "$", "parallel", JSON_OBJECT, problem);
  json_t *batch = need(root, "$", "batch", JSON_OBJECT, problem);
  json_t *schedule = need(root, "$", "schedule", JSON_OBJECT, problem);
  if (model == NULL || parallel == NULL || batch == NULL || schedule == NULL) return false;
  if (strcmp(json_string_value(model), program->model) != 0) {
    return pd_problem_say(problem, "plan: $.model is `%.100s`, but the program trains `%s`", json_string_value(model),
                          program->model);
  }
  json_t *kind = need(schedule, "$.schedule", "kind", JSON_STRING, problem);
  if (kind == NULL) return false;
  snprintf(plan->schedule, sizeof plan->schedule, "%s", json_string_value(kind));
  return same(parallel, "$.parallel", "pp", program->pp, problem) &&
         same(parallel, "$.parallel", "dp", program->dp, problem) &&
         same(parallel, "$.parallel", "tp", program->tp, problem) &&
         same(batch, "$.batch", "global", program->batch, problem) &&
         same(batch, "$.batch", "microbatch", program->microbatch, problem) &&
         same(batch, "$.batch", "microbatches", program->microbatches, problem);
}

/* What the lists mean beside what they say. */
static bool read_schedule(json_t *root, pd_plan *plan, pd_problem *problem) {
  json_t *schedule = json_object_get(root, "schedule");
  pd_pipeline *pipeline = &plan->pipeline;
  int64_t copies, accumulators, delay;
  if (!need_whole(schedule, "$.schedule", "copies", &copies, problem) ||
      !need_whole(schedule, "$.schedule", "accumulators", &accumulators, problem) ||
      !need_whole(schedule, "$.schedule", "update_every", &pipeline->step, problem) ||
      !need_whole(schedule, "$.schedule", "delay", &delay, problem)) {
    return false;
  }
  if (copies < 1 || copies > 2 || pipeline->microbatches % copies != 0)
    return pd_problem_say(
        problem, "plan: $.schedule.copies is %" PRId64 ", must be 1 or divide the micro-batches in two", copies);
  if (pipeline->step > 0 && pipeline->microbatches % pipeline->step != 0)
    return pd_problem_say(problem,
                          "plan: $.schedule.update_every is %" PRId64 ", must divide the %" PRId64 " micro-batches",
                          pipeline->step, pipeline->microbatches);
  if (delay > 1) return pd_problem_say(problem, "plan: $.schedule.delay is %" PRId64 ", must be 0 or 1", delay);
  if (accumulators < 1 || accumulators > 2)
    return pd_problem_say(problem, "plan: $.schedule.accumulators is %" PRId64 ", must be 1 or 2", accumulators);
  pipeline->copies = (int)copies;
  pipeline->accumulators = (int)accumulators;
  pipeline->delay = (int)delay;
  return true;
}

/* ---- chunks ---- */

/* The unit of trip `trip` of the segment called `name`; units are numbered in program order. */
static bool find_unit(const pd_program *program, const char *name, int64_t trip, int64_t *unit) {
  int64_t first = 0;
  for (int s = 0; s < program->segment_count; s++) {
    if (strcmp(program->segments[s].name, name) == 0) {
      *unit = first + trip;
      return trip >= 0 && trip < program->segments[s].trips;
    }
    first += program->segments[s].trips;
  }
  return false;
}

/* Chunk `c` holds the runs of layers it lists; they must go on where the chunk before ended. */
static bool read_layers(const pd_program *program, json_t *layers, const char *path, int64_t *next,
                        pd_problem *problem) {
  for (size_t i = 0; i < json_array_size(layers); i++) {
    char at[128];
    json_t *layer;
    int64_t first, last, from, to;
    if (!element(layers, path, i, &layer, at, sizeof at, problem)) return false;
    json_t *name = need(layer, at, "name", JSON_STRING, problem);
    if (name == NULL || !need_whole(layer, at, "first", &first, problem) ||
        !need_whole(layer, at, "last", &last, problem)) {
      return false;
    }
    if (last < first || !find_unit(program, json_string_value(name), first, &from) ||
        !find_unit(program, json_string_value(name), last, &to)) {
      return pd_problem_say(problem,
                            "plan: %s names trips %" PRId64 "..%" PRId64 " of `%.100s`, which the program lacks", at,
                            first, last, json_string_value(name));
    }
    if (from != *next) {
      return pd_problem_say(problem, "plan: %s starts at unit %" PRId64 ", must go on at unit %" PRId64, at, from,
                            *next);
    }
    *next = to + 1;
  }
  return true;
}

static bool read_chunks(const pd_program *program, json_t *root, pd_plan *plan, pd_problem *problem) {
  json_t *chunks = need(root, "$", "chunks", JSON_ARRAY, problem);
  if (chunks == NULL) return false;
  const size_t count = json_array_size(chunks);
  const size_t copies = (size_t)plan->pipeline.copies, each = count / copies;
  if (count == 0 || count > 1000000 || count % ((size_t)program->pp * copies) != 0) {
    return pd_problem_say(problem, "plan: $.chunks has %zu entries, must be a multiple of pp %d for each of %zu copies",
                          count, program->pp, copies);
  }
  plan->rank_of = calloc(count, sizeof *plan->rank_of);
  plan->first_unit = calloc(count + 1, sizeof *plan->first_unit);
  if (plan->rank_of == NULL || plan->first_unit == NULL) return pd_problem_say(problem, "plan: not enough memory");
  int64_t next = 0;
  for (size_t c = 0; c < count; c++) {
    char at[64], path[80];
    json_t *chunk;
    int64_t rank;
    if (!element(chunks, "$.chunks", c, &chunk, at, sizeof at, problem)) return false;
    if (!same(chunk, at, "chunk", (int64_t)c, problem) || !need_whole(chunk, at, "rank", &rank, problem)) return false;
    if (rank >= program->pp)
      return pd_problem_say(problem, "plan: %s.rank is %" PRId64 ", pp is %d", at, rank, program->pp);
    json_t *layers = need(chunk, at, "layers", JSON_ARRAY, problem);
    if (layers == NULL) return false;
    if (c == each) next = 0; /* the second copy of the model is cut alike */
    plan->rank_of[c] = (int)rank;
    snprintf(path, sizeof path, "%s.layers", at);
    if (!read_layers(program, layers, path, &next, problem)) return false;
    if (c < each) plan->first_unit[c + 1] = next;
    if (plan->first_unit[c % each + 1] != next) {
      return pd_problem_say(problem, "plan: %s end at unit %" PRId64 ", the first copy's at unit %" PRId64, path, next,
                            plan->first_unit[c % each + 1]);
    }
  }
  if (next != pd_unit_count(program)) {
    return pd_problem_say(problem, "plan: $.chunks hold %" PRId64 " units, the program has %" PRId64, next,
                          pd_unit_count(program));
  }
  plan->pipeline.chunk_count = (int)count;
  return true;
}

/* ---- ranks ---- */

static bool read_actions(json_t *texts, const char *path, const pd_plan *plan, pd_action_list *list, bool *split,
                         pd_problem *problem) {
  const size_t count = json_array_size(texts);
  list->at = calloc(count + 1, sizeof *list->at);
  if (list->at == NULL) return pd_problem_say(problem, "plan: not enough memory");
  for (size_t i = 0; i < count; i++) {
    const char *text = json_string_value(json_array_get(texts, i));
    pd_action action;
    if (text == NULL || !pd_action_parse(text, &action)) {
      return pd_problem_say(problem, "plan: %s[%zu] is `%.40s`, must be an action such as 0F3", path, i,
                            text ? text : "?");
    }
    const bool step_wide = action.kind == PD_REDUCE_GRAD;
    if (action.chunk < 0 || action.chunk >= plan->pipeline.chunk_count ||
        (!step_wide && (action.microbatch < 0 || action.microbatch >= plan->pipeline.microbatches))) {
      return pd_problem_say(problem, "plan: %s[%zu] is `%.40s`: there are %d chunks and %" PRId64 " micro-batches",
                            path, i, text, plan->pipeline.chunk_count, plan->pipeline.microbatches);
    }
    if (action.kind == PD_I || action.kind == PD_W) *split = true;
    list->at[list->count++] = action;
  }
  return true;
}

static bool read_memory(json_t *memory, const char *path, pd_planned_memory *out, pd_problem *problem) {
  int64_t sum = 0;
  for (int kind = 0; kind < PD_MEMORY_CLASSES; kind++) {
    const char *name = pd_memory_class_name((pd_memory_class)kind);
    if (!need_whole(memory, path, name, &out->bytes[kind], problem)) return false;
    if (__builtin_add_overflow(sum, out->bytes[kind], &sum)) return pd_problem_say(problem, "plan: %s overflows", path);
  }
  if (!need_whole(memory, path, "total", &out->total, problem)) return false;
  if (out->total == sum) return true;
  return pd_problem_say(problem, "plan: %s.total is %" PRId64 ", its classes add up to %" PRId64, path, out->total,
                        sum);
}

static bool read_ranks(const pd_program *program, json_t *root, pd_plan *plan, pd_problem *problem) {
  json_t *ranks = need(root, "$", "ranks", JSON_ARRAY, problem);
  if (ranks == NULL) return false;
  if (json_array_size(ranks) != (size_t)program->pp) {
    return pd_problem_say(problem, "plan: $.ranks has %zu entries, pp is %d", json_array_size(ranks), program->pp);
  }
  plan->ranks = calloc((size_t)program->pp, sizeof *plan->ranks);
  plan->memory = calloc((size_t)program->pp, sizeof *plan->memory);
  if (plan->ranks == NULL || plan->memory == NULL) return pd_problem_say(problem, "plan: not enough memory");
  for (int r = 0; r < program->pp; r++) {
    char at[64], path[80];
    json_t *rank;
    if (!element(ranks, "$.ranks", (size_t)r, &rank, at, sizeof at, problem)) return false;
    json_t *actions = need(rank, at, "actions", JSON_ARRAY, problem);
    json_t *memory = need(rank, at, "memory", JSON_OBJECT, problem);
    if (actions == NULL || memory == NULL || !same(rank, at, "rank", r, problem)) return false;
    snprintf(path, sizeof path, "%s.actions", at);
    if (!read_actions(actions, path, plan, &plan->ranks[r], &plan->pipeline.split, problem)) return false;
    snprintf(path, sizeof path, "%s.memory", at);
    if (!read_memory(memory, path, &plan->memory[r], problem)) return false;
  }
  return true;
}

/* The predicted time of a step, where it follows from a speed that was declared and not assumed. */
static void read_prediction(json_t *root, pd_plan *plan) {
  json_t *assumed = json_object_get(json_object_get(root, "cluster"), "assumed"), *what;
  size_t i;
  json_array_foreach(assumed, i, what) {
    if (json_is_string(what) && strcmp(json_string_value(what), "flops") == 0) return;
  }
  plan->predicted_seconds = json_number_value(json_object_get(json_object_get(root, "prediction"), "step_ns")) * 1e-9;
}

/* ---- the whole ---- */

bool pd_plan_read(const pd_program *program, pd_plan *plan, pd_problem *problem) {
  *plan = (pd_plan){.pipeline = {.pp = program->pp, .microbatches = program->microbatches}};
  if (program->plan == NULL) return pd_problem_say(problem, "plan: the program holds none");
  if (!check_digest(program->plan, plan->sha256, problem)) return false;
  json_error_t error;
  json_t *root = json_loads(program->plan, JSON_REJECT_DUPLICATES, &error);
  if (root == NULL) return pd_problem_say(problem, "plan: line %d: %s", error.line, error.text);
  const bool good = json_is_object(root)
                        ? read_head(program, root, plan, problem) && read_schedule(root, plan, problem) &&
                              read_chunks(program, root, plan, problem) && read_ranks(program, root, plan, problem)
                        : pd_problem_say(problem, "plan: $ must be an object");
  if (good) read_prediction(root, plan);
  json_decref(root);
  plan->pipeline.rank_of = plan->rank_of;
  plan->pipeline.first_unit = plan->first_unit;
  plan->pipeline.ranks = plan->ranks;
  if (!good) pd_plan_free(plan);
  return good;
}

void pd_plan_free(pd_plan *plan) {
  for (int r = 0; r < plan->pipeline.pp && plan->ranks != NULL; r++) free(plan->ranks[r].at);
  free(plan->ranks);
  free(plan->memory);
  free(plan->rank_of);
  free(plan->first_unit);
  *plan = (pd_plan){.schedule = ""};
}

void pd_plan_agree(const pd_world *world, const pd_plan *plan) {
  uint64_t low[4], high[4]; /* the digest as four numbers: equal everywhere if the least is the greatest */
  for (int i = 0; i < 4; i++) {
    char part[17];
    snprintf(part, sizeof part, "%.16s", plan->sha256 + 16 * i);
    low[i] = high[i] = strtoull(part, NULL, 16);
  }
  MPI_Allreduce(MPI_IN_PLACE, low, 4, MPI_UINT64_T, MPI_MIN, world->all);
  MPI_Allreduce(MPI_IN_PLACE, high, 4, MPI_UINT64_T, MPI_MAX, world->all);
  if (memcmp(low, high, sizeof low) != 0) {
    pd_fail(PD_EXIT_PLAN, "ranks run different plans; this rank's is %.12s. Start the same program on every node",
            plan->sha256);
  }
}
