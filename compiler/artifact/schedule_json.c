/* The pd-schedule, version 1: a schedule without a model, as canonical JSON with its certificate (docs/plan.md says
 * what every key means). The reader takes nothing for granted: table, canonical form and digest first, then every
 * action. */
#include <string.h>

#include "artifact/artifact.h"
#include "artifact/json.h"
#include "artifact/reading.h"

/* ---- writing ---- */

static void put_numbers(Json *json, const char *key, const double *values, int count) {
  json_open_array(json, key);
  for (int i = 0; i < count; i++) json_put_number(json, NULL, values[i]);
  json_close_array(json);
}

static void put_certificate(Json *json, const Measure *measure, int pp) {
  const Certificate *c = &measure->certificate;
  json_open_object(json, "certificate");
  json_put_bool(json, "complete", c->complete);
  json_put_bool(json, "ordered", c->ordered);
  json_put_bool(json, "matched", c->matched);
  json_open_object(json, "acyclic");
  json_put_bool(json, "buffered", c->acyclic_buffered);
  json_put_bool(json, "rendezvous", c->acyclic_rendezvous);
  json_put_bool(json, "grouped", c->acyclic_grouped);
  json_close_object(json);
  json_put_number(json, "makespan", measure->makespan);
  json_put_number(json, "beta", measure->beta);
  json_put_number(json, "sigma", measure->sigma);
  json_put_number(json, "bound", measure->bound);
  put_numbers(json, "idle", measure->idle, pp);
  put_numbers(json, "peak", measure->peak, pp);
  json_close_object(json);
}

void schedule_write_json(const Document *document, const Measure *measure, Text *out) {
  const pd_pipeline *pipeline = &document->pipeline;
  Json json = {.out = out};
  size_t begin = out->length;
  json_open_object(&json, NULL);
  json_put_string(&json, "format", "pd-schedule");
  json_put_integer(&json, "version", 1);
  json_put_string(&json, "kind", document->kind);
  json_put_integer(&json, "pp", pipeline->pp);
  json_put_integer(&json, "microbatches", pipeline->microbatches);
  json_put_integer(&json, "chunks", document->chunks);
  json_open_array(&json, "placement");
  for (int chunk = 0; chunk < pipeline->chunk_count; chunk++) json_put_integer(&json, NULL, pipeline->rank_of[chunk]);
  json_close_array(&json);
  json_open_object(&json, "costs");
  json_put_number(&json, "F", document->costs.f);
  json_put_number(&json, "I", document->costs.i);
  json_put_number(&json, "W", document->costs.w);
  json_put_number(&json, "link", document->costs.link);
  json_close_object(&json);
  json_open_array(&json, "ranks");
  for (int rank = 0; rank < pipeline->pp; rank++) {
    json_open_array(&json, NULL);
    for (int64_t i = 0; i < pipeline->ranks[rank].count; i++) {
      char name[48];
      pd_action_text(pipeline->ranks[rank].at[i], name);
      json_put_string(&json, NULL, name);
    }
    json_close_array(&json);
  }
  json_close_array(&json);
  put_certificate(&json, measure, pipeline->pp);
  json_end_line(&json);
  char digest[65];
  sha256_hex(out->at + begin, out->length - begin, digest);
  json_put_string(&json, "sha256", digest);
  json_close_object(&json);
}

/* ---- reading ---- */

static const Shape name_shape = {.kind = SHAPE_EXACTLY, .text = "pd-schedule"};
static const Shape version_shape = {.kind = SHAPE_WHOLE, .least = 1, .most = 1};
static const Shape text_shape = {.kind = SHAPE_TEXT};
static const Shape bool_shape = {.kind = SHAPE_BOOL};
static const Shape number_shape = {.kind = SHAPE_NUMBER};
static const Shape rank_count_shape = {.kind = SHAPE_WHOLE, .least = 1, .most = DOCUMENT_MOST_RANKS};
static const Shape microbatch_count_shape = {.kind = SHAPE_WHOLE, .least = 1, .most = DOCUMENT_MOST_MICROBATCHES};
static const Shape chunk_count_shape = {.kind = SHAPE_WHOLE, .least = 1, .most = DOCUMENT_MOST_CHUNKS};
static const Shape rank_shape = {.kind = SHAPE_WHOLE, .least = 0, .most = DOCUMENT_MOST_RANKS - 1};
static const Shape numbers_shape = {.kind = SHAPE_ARRAY, .element = &number_shape};
static const Shape placement_shape = {.kind = SHAPE_ARRAY, .element = &rank_shape};
static const Shape actions_shape = {.kind = SHAPE_ARRAY, .element = &text_shape};
static const Shape ranks_shape = {.kind = SHAPE_ARRAY, .element = &actions_shape};
static const ShapeField cost_fields[] = {{"F", &number_shape, false},
                                         {"I", &number_shape, false},
                                         {"W", &number_shape, false},
                                         {"link", &number_shape, false},
                                         {0}};
static const Shape costs_shape = {.kind = SHAPE_OBJECT, .fields = cost_fields};
static const ShapeField acyclic_fields[] = {
    {"buffered", &bool_shape, false}, {"rendezvous", &bool_shape, false}, {"grouped", &bool_shape, false}, {0}};
static const Shape acyclic_shape = {.kind = SHAPE_OBJECT, .fields = acyclic_fields};
static const ShapeField certificate_fields[] = {{"complete", &bool_shape, false},
                                                {"ordered", &bool_shape, false},
                                                {"matched", &bool_shape, false},
                                                {"acyclic", &acyclic_shape, false},
                                                {"makespan", &number_shape, false},
                                                {"beta", &number_shape, false},
                                                {"sigma", &number_shape, false},
                                                {"bound", &number_shape, false},
                                                {"idle", &numbers_shape, false},
                                                {"peak", &numbers_shape, false},
                                                {0}};
static const Shape certificate_shape = {.kind = SHAPE_OBJECT, .fields = certificate_fields};
static const ShapeField file_fields[] = {{"format", &name_shape, false},
                                         {"version", &version_shape, false},
                                         {"kind", &text_shape, false},
                                         {"pp", &rank_count_shape, false},
                                         {"microbatches", &microbatch_count_shape, false},
                                         {"chunks", &chunk_count_shape, false},
                                         {"placement", &placement_shape, false},
                                         {"costs", &costs_shape, false},
                                         {"ranks", &ranks_shape, false},
                                         {"certificate", &certificate_shape, false},
                                         {"sha256", &text_shape, false},
                                         {0}};
static const Shape file_shape = {.kind = SHAPE_OBJECT, .fields = file_fields};

static const char *read_lists(Arena *arena, const json_t *ranks, Document *document) {
  pd_pipeline *pipeline = &document->pipeline;
  const char *why = count_check(arena, ranks, "$.ranks", pipeline->pp, "one list a rank");
  pd_action_list *lists = ARENA_ARRAY(arena, pd_action_list, pipeline->pp);
  int64_t actions = 0;
  for (int rank = 0; rank < pipeline->pp && !why; rank++) {
    const json_t *texts = json_array_get(ranks, (size_t)rank);
    why = actions_read(arena, texts, arena_printf(arena, "$.ranks[%d]", rank), pipeline, &lists[rank]);
    actions += lists[rank].count;
  }
  if (!why && actions > DOCUMENT_MOST_ACTIONS)
    return arena_printf(arena, "$.ranks has %lld actions; at most %d are read", (long long)actions,
                        DOCUMENT_MOST_ACTIONS);
  pipeline->ranks = lists;
  return why;
}

static bool is_kind_name(const char *text) {
  size_t length = strlen(text);
  return length > 0 && length <= 64 && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == length;
}

static const char *read_content(Arena *arena, Document *document) {
  const json_t *root = document->root, *costs = json_object_get(root, "costs");
  document->kind = json_string_value(json_object_get(root, "kind"));
  if (!is_kind_name(document->kind)) return "$.kind must be small letters, digits and `-`, at most 64";
  int64_t pp = json_integer_value(json_object_get(root, "pp")),
          chunks = json_integer_value(json_object_get(root, "chunks"));
  if (pp * chunks > DOCUMENT_MOST_CHUNKS / 2)
    return arena_printf(arena, "$.chunks is %lld on %lld ranks; at most %d chunks are read", (long long)chunks,
                        (long long)pp, DOCUMENT_MOST_CHUNKS / 2);
  document->chunks = (int)chunks;
  document->pipeline.microbatches = json_integer_value(json_object_get(root, "microbatches"));
  const char *why = placement_read(arena, json_object_get(root, "placement"), "$.placement", document->kind, (int)pp,
                                   (int)chunks, &document->pipeline);
  if (!why) why = read_lists(arena, json_object_get(root, "ranks"), document);
  if (!why) why = document_check_size(arena, &document->pipeline);
  if (why) return why;
  ShareCosts stated = {json_number_at(costs, "F"), json_number_at(costs, "I"), json_number_at(costs, "W"),
                       json_number_at(costs, "link")};
  why = costs_refuse(arena, stated);
  if (why) return arena_printf(arena, "$.costs: %s", why);
  document->pipeline.split = actions_split(&document->pipeline);
  document->messages = actions_have_messages(&document->pipeline);
  document_set_costs(arena, document, stated);
  const json_t *certificate = json_object_get(root, "certificate");
  why = count_check(arena, json_object_get(certificate, "idle"), "$.certificate.idle", pp, "one a rank");
  if (!why) why = count_check(arena, json_object_get(certificate, "peak"), "$.certificate.peak", pp, "one a rank");
  if (!why) document->claims = claims_read(arena, certificate, "", "peak");
  return why;
}

const char *schedule_read_json(Arena *arena, const char *text, size_t length, Document *document) {
  const char *why;
  *document = (Document){.form = DOCUMENT_SCHEDULE, .unit = ""};
  document->root = canonical_parse(arena, text, length, &file_shape, &why);
  if (!document->root) return why;
  why = read_content(arena, document);
  if (why) document_free(document);
  return why;
}
