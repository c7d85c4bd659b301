/* The files that the compiler writes: canonical JSON byte for byte, the shortest numbers that read back, SHA-256 on
 * known vectors, the CSV of actions, and a whole plan of a small hand-made program, read back with another library. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/artifact.h"
#include "artifact/json.h"

/* ---- JSON ---- */

Test(json, layout_of_objects_and_arrays) {
  Arena *arena = arena_new();
  Text text = {.arena = arena};
  Json json = {.out = &text};
  json_open_object(&json, NULL);
  json_put_string(&json, "z", "first as given");
  json_open_object(&json, "empty");
  json_close_object(&json);
  json_open_array(&json, "none");
  json_close_array(&json);
  json_open_array(&json, "list");
  json_put_integer(&json, NULL, -3);
  json_open_object(&json, NULL);
  json_put_bool(&json, "yes", true);
  json_put_null(&json, "a");
  json_close_object(&json);
  json_put_bool(&json, NULL, false);
  json_close_array(&json);
  json_end_line(&json);
  size_t before = text.length;
  json_put_integer(&json, "last", INT64_MAX);
  json_close_object(&json);
  static const char wanted[] =
      "{\n  \"z\": \"first as given\",\n  \"empty\": {},\n  \"none\": [],\n  \"list\": [\n    -3,\n    {\n"
      "      \"yes\": true,\n      \"a\": null\n    },\n    false\n  ],\n"
      "  \"last\": 9223372036854775807\n}\n";
  cr_assert_str_eq(text.at, wanted);
  cr_assert_eq(before, (size_t)(strstr(wanted, "  \"last\"") - wanted));
  arena_free(arena);
}

static const char *string_text(Arena *arena, const char *value) {
  Text text = {.arena = arena};
  Json json = {.out = &text};
  json_put_string(&json, NULL, value);
  return text.at;
}

Test(json, strings_are_escaped_and_stay_utf8) {
  Arena *arena = arena_new();
  cr_assert_str_eq(string_text(arena, "a\"b\\c/d\b\f\n\r\t\x01\x1f\x7f"),
                   "\"a\\\"b\\\\c/d\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\"");
  cr_assert_str_eq(string_text(arena, "é漢😀"), "\"é漢😀\"");
  /* a lone continuation, an overlong slash, a surrogate, a value past the end, a sequence cut short */
  cr_assert_str_eq(string_text(arena, "\x80"), "\"\xef\xbf\xbd\"");
  cr_assert_str_eq(string_text(arena, "\xc0\xaf"), "\"\xef\xbf\xbd\xef\xbf\xbd\"");
  cr_assert_str_eq(string_text(arena, "\xed\xa0\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
  cr_assert_str_eq(string_text(arena, "\xf4\x90\x80\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
  cr_assert_str_eq(string_text(arena, "x\xe2\x82"), "\"x\xef\xbf\xbd\xef\xbf\xbd\"");
  arena_free(arena);
}

static const char *number_text(Arena *arena, double value) {
  Text text = {.arena = arena};
  Json json = {.out = &text};
  json_put_number(&json, NULL, value);
  return text.at;
}

Test(json, numbers) {
  static const struct {
    double value;
    const char *text;
  } rows[] = {
      {0, "0"},
      {-0.0, "0"},
      {1, "1"},
      {-17, "-17"},
      {312e12, "312000000000000"},
      {1e18, "1000000000000000000"},
      {9.2e18, "9200000000000000000"},
      {9223372036854775808.0, "9.223372036854776e18"},
      {1e19, "1e19"},
      {-1.5e300, "-1.5e300"},
      {9007199254740993.0, "9007199254740992"},
      {0.1, "0.1"},
      {0.30000000000000004, "0.30000000000000004"},
      {-2.5, "-2.5"},
      {1.0 / 3, "0.3333333333333333"},
      {123456.789, "123456.789"},
      {4503599627370495.5, "4503599627370495.5"},
      {5e-6, "0.000005"},
      {1e-6, "0.000001"},
      {1.25e-7, "1.25e-7"},
      {6e-10, "6e-10"},
      {5e-324, "5e-324"},
      {2.2250738585072014e-308, "2.2250738585072014e-308"},
      {NAN, "null"},
      {INFINITY, "null"},
  };
  Arena *arena = arena_new();
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    cr_assert_str_eq(number_text(arena, rows[i].value), rows[i].text);
  arena_free(arena);
}

static int digit_count(const char *text) {
  int count = 0;
  while (*text == '-' || *text == '0' || *text == '.') text++;
  for (; *text && *text != 'e'; text++) count += *text != '.';
  return count;
}

/* Bit patterns at random: what is written reads back equal, and no shorter decimal does. */
Test(json, numbers_read_back_equal_and_are_shortest) {
  uint64_t state = 88172645463325252u;
  for (int round = 0; round < 20000; round++) {
    Arena *arena = arena_new();
    double value;
    do {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      uint64_t bits = round % 2 ? state : (state & 0x800fffffffffffffu) | (uint64_t)(960 + state % 110) << 52;
      memcpy(&value, &bits, sizeof value);
    } while (!isfinite(value) || value == floor(value));
    const char *text = number_text(arena, value);
    cr_assert_eq(strtod(text, NULL), value, "%s", text);
    int digits = digit_count(text);
    if (digits > 1) {
      char shorter[40];
      snprintf(shorter, sizeof shorter, "%.*e", digits - 2, value);
      cr_assert_neq(strtod(shorter, NULL), value, "%s, but %s reads back too", text, shorter);
    }
    arena_free(arena);
  }
}

/* ---- SHA-256 ---- */

Test(sha256, known_vectors) {
  char out[65];
  sha256_hex("", 0, out);
  cr_assert_str_eq(out, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  sha256_hex("abc", 3, out);
  cr_assert_str_eq(out, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  sha256_hex(two_blocks, sizeof two_blocks - 1, out);
  cr_assert_str_eq(out, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

/* ---- a small program ---- */

enum { BATCH_AXIS, WIDE_AXIS, CLASS_AXIS, AXES };

typedef struct Small { /* embed, three layers, a head; the first parameter is tied between embed and head */
  Graph graph;
  Config config;
  pd_program program;
  pd_segment_info segments[3];
  pd_wire_info wires[2];
  pd_param_info params[4];
  int64_t flops[5][3];
} Small;

/* Value, operation and list entries that only the communicators of the plan read. */
static Id add_value(Small *s, Arena *arena, const char *name, unsigned rank, const Id *axes, Id segment) {
  Value value = {.kind = VALUE_OP, .dtype = DT_REAL, .name = name, .rank = (uint8_t)rank, .segment = segment};
  for (unsigned i = 0; i < rank; i++) value.axes[i] = axes[i];
  vec_push(arena, &s->graph.values, value);
  return s->graph.values.count - 1;
}

static void fill_graph(Small *s, Arena *arena) {
  static const char *const names[] = {"embed", "layers", "head"};
  Graph *graph = &s->graph;
  graph->arena = arena;
  graph->model = "small";
  graph->batch = BATCH_AXIS;
  vec_push(arena, &graph->axes, (Axis){.name = "batch", .size = 16});
  vec_push(arena, &graph->axes, (Axis){.name = "wide", .size = 8});
  vec_push(arena, &graph->axes, (Axis){.name = "class", .size = 32, .mesh = MESH_TP});
  for (Id k = 0; k < 2; k++)
    vec_push(arena, &graph->wires,
             (Wire){.name = k ? "y" : "x", .rank = 2, .axes = {BATCH_AXIS, WIDE_AXIS}, .from = k});
  for (Id k = 0; k < 3; k++) {
    Segment segment = {.name = names[k], .trips = k == 1 ? 3 : 1};
    vec_push(arena, &graph->segments, segment);
  }
  Id wide[] = {BATCH_AXIS, WIDE_AXIS}, classes[] = {BATCH_AXIS, CLASS_AXIS};
  Id part = add_value(s, arena, "part", 2, wide, 1), whole = add_value(s, arena, "whole", 2, wide, 1);
  Op reduce = {
      .kind = OP_ALL_REDUCE, .in_count = 1, .out_count = 1, .in = {part}, .out = {whole}, .integer = {MESH_TP}};
  vec_push(arena, &graph->ops, reduce);
  vec_push(arena, &graph->segments.at[1].forward, 0);
  Id logits = add_value(s, arena, "logits", 2, classes, 2), targets = add_value(s, arena, "t", 1, wide, 2);
  Id loss = add_value(s, arena, "loss", 0, wide, 2), row_max = add_value(s, arena, "loss.max", 1, wide, 2);
  Id sums = add_value(s, arena, "loss.sums", 1, wide, 2);
  Op xent = {.kind = OP_XENT, .in_count = 2, .out_count = 3, .in = {logits, targets}, .out = {loss, row_max, sums}};
  vec_push(arena, &graph->ops, xent);
  vec_push(arena, &graph->segments.at[2].forward, 1);
}

static void fill_program(Small *s, int pp, int dp, int tp, int chunks) {
  s->config = (Config){.pp = pp,
                       .dp = dp,
                       .tp = tp,
                       .cp = 1,
                       .ep = 1,
                       .schedule = "1f1b",
                       .microbatch = 2,
                       .chunks = chunks,
                       .batch = 16,
                       .microbatches = 8 / dp};
  s->wires[0] = (pd_wire_info){.name = "x", .elements = 16, .needs_grad = true};
  s->wires[1] = (pd_wire_info){.name = "y", .elements = 16, .needs_grad = true};
  s->segments[0] = (pd_segment_info){.name = "embed",
                                     .trips = 1,
                                     .out_count = 1,
                                     .shared_count = 1,
                                     .out_wire = {0},
                                     .needs_d_out = {true},
                                     .shared = {0},
                                     .act_bytes = 64,
                                     .has_weight_grad = true};
  s->segments[1] = (pd_segment_info){.name = "layers",
                                     .trips = 3,
                                     .in_count = 1,
                                     .out_count = 1,
                                     .in_wire = {0},
                                     .in_carried = {0},
                                     .out_wire = {1},
                                     .needs_d_out = {true},
                                     .gives_d_in = {true},
                                     .act_bytes = 128,
                                     .weight_elements = 80,
                                     .trained_elements = 80,
                                     .has_weight_grad = true};
  s->segments[2] = (pd_segment_info){.name = "head",
                                     .trips = 1,
                                     .in_count = 1,
                                     .shared_count = 1,
                                     .in_wire = {1},
                                     .in_carried = {PD_NONE},
                                     .gives_d_in = {true},
                                     .shared = {0},
                                     .act_bytes = 64,
                                     .weight_elements = 16,
                                     .trained_elements = 16,
                                     .has_weight_grad = true};
  s->params[0] = (pd_param_info){.name = "table",
                                 .rank = 2,
                                 .shape = {32, 8},
                                 .split_axis = tp > 1 ? 0 : PD_NONE,
                                 .segment = PD_NONE,
                                 .decay = true,
                                 .elements = 32 * 8 / tp};
  s->params[1] = (pd_param_info){.name = "layers.{}.w",
                                 .rank = 2,
                                 .shape = {8, 8},
                                 .split_axis = PD_NONE,
                                 .segment = 1,
                                 .per_trip = true,
                                 .decay = true,
                                 .elements = 64};
  s->params[2] = (pd_param_info){.name = "layers.{}.b",
                                 .rank = 1,
                                 .shape = {8},
                                 .split_axis = PD_NONE,
                                 .segment = 1,
                                 .per_trip = true,
                                 .elements = 8,
                                 .offset = 64};
  s->params[3] =
      (pd_param_info){.name = "gain", .rank = 1, .shape = {8}, .split_axis = PD_NONE, .segment = 2, .elements = 8};
  s->program = (pd_program){.model = "small",
                            .compiler = "pdc test",
                            .real_bytes = 4,
                            .pp = pp,
                            .dp = dp,
                            .tp = tp,
                            .chunks = chunks,
                            .batch = 16,
                            .microbatch = 2,
                            .microbatches = 8 / dp,
                            .tokens_per_sample = 1,
                            .segment_count = 3,
                            .wire_count = 2,
                            .param_count = 4,
                            .segments = s->segments,
                            .wires = s->wires,
                            .params = s->params,
                            .loss_segment = 2,
                            .optimizer = PD_ADAMW};
  for (int unit = 0; unit < 5; unit++)
    for (int k = 0; k < 3; k++) s->flops[unit][k] = 4000000 * (k + 1);
}

typedef struct Written {
  const char *text;
  size_t length;
  char sha256[65];
  json_t *root;
} Written;

static Written write_plan(Arena *arena, const char *kind_name, int pp, int dp, int tp, int chunks, double flops) {
  Small *s = ARENA_NEW(arena, Small);
  fill_graph(s, arena);
  fill_program(s, pp, dp, tp, chunks);
  s->config.schedule = kind_name;
  s->config.flops = flops;
  const ScheduleKind *kind = schedule_find(kind_name);
  ScheduleRequest request = {pp, chunks, s->program.microbatches};
  cr_assert(kind && !kind->refuse(arena, &request));
  int count = pp * chunks, *rank_of = ARENA_ARRAY(arena, int, count);
  int64_t costs[] = {1, 1, 1, 1, 1}, *first_unit = ARENA_ARRAY(arena, int64_t, count + 1);
  pd_action_list *ranks = ARENA_ARRAY(arena, pd_action_list, pp);
  bool *gradients = ARENA_ARRAY(arena, bool, count);
  for (int c = 1; c < count; c++) gradients[c] = true;
  cr_assert(partition(arena, costs, 5, count, first_unit));
  kind->place(&request, rank_of);
  kind->generate(arena, &request, ranks);
  pd_pipeline pipeline = {.pp = pp,
                          .chunk_count = count,
                          .microbatches = s->program.microbatches,
                          .rank_of = rank_of,
                          .first_unit = first_unit,
                          .ranks = ranks,
                          .split = kind->split};
  schedule_insert_communication(arena, &pipeline, gradients, dp > 1);
  PlanInput input = {.arena = arena,
                     .graph = &s->graph,
                     .config = &s->config,
                     .program = &s->program,
                     .pipeline = &pipeline,
                     .source_sha256 = "0123",
                     .compiler = "pdc test",
                     .unit_flops = s->flops,
                     .prediction =
                         predict_step(arena, &(Prices){&s->config, &s->program, s->flops}, &s->graph, &pipeline)};
  Text text = {.arena = arena};
  Written written;
  plan_write(&input, &text, written.sha256);
  written.text = text.at;
  written.length = text.length;
  json_error_t error;
  written.root = json_loads(text.at, JSON_REJECT_DUPLICATES, &error);
  cr_assert(written.root != NULL, "line %d: %s", error.line, error.text);
  return written;
}

/* "chunks.0.layers.1" */
static json_t *at(json_t *root, const char *path) {
  char word[64];
  while (*path) {
    size_t length = strcspn(path, ".");
    snprintf(word, sizeof word, "%.*s", (int)length, path);
    root = json_is_array(root) ? json_array_get(root, (size_t)atoi(word)) : json_object_get(root, word);
    cr_assert_not_null(root, "nothing at %s", word);
    path += length + (path[length] == '.');
  }
  return root;
}

static void has_keys(json_t *object, const char *wanted) {
  char keys[512] = "";
  const char *key;
  json_t *value;
  json_object_foreach(object, key, value) {
    strcat(keys, *keys ? " " : "");
    strcat(keys, key);
  }
  cr_assert_str_eq(keys, wanted);
}

static int64_t whole(json_t *root, const char *path) {
  json_t *value = at(root, path);
  cr_assert(json_is_integer(value), "%s is not whole", path);
  return json_integer_value(value);
}

static const char *word(json_t *root, const char *path) {
  return json_string_value(at(root, path));
}

Test(plan, keys_stand_in_their_order) {
  Arena *arena = arena_new();
  Written plan = write_plan(arena, "1f1b", 2, 2, 2, 1, 0);
  has_keys(plan.root,
           "format version compiler model source parallel batch schedule parameters chunks ranks communicators "
           "certificate cluster prediction sha256");
  has_keys(at(plan.root, "parallel"), "pp dp tp cp ep zero sequence");
  has_keys(at(plan.root, "batch"), "global microbatch microbatches sequence_tokens");
  has_keys(at(plan.root, "schedule"), "kind chunks copies accumulators update_every delay placement");
  has_keys(at(plan.root, "parameters.0"), "name shape dtype chunk tied_with sharding decay");
  has_keys(at(plan.root, "chunks.0"), "chunk rank layers parameters flops cost_ns activation_bytes sends");
  has_keys(at(plan.root, "chunks.0.layers.0"), "name first last");
  has_keys(at(plan.root, "chunks.0.sends.0"), "tensor to_chunk dtype shape bytes");
  has_keys(at(plan.root, "ranks.0"), "rank weight_versions staleness actions memory");
  has_keys(at(plan.root, "ranks.0.memory"), "parameters gradients optimizer activations messages workspace total");
  has_keys(at(plan.root, "certificate"),
           "complete ordered matched acyclic makespan_ns beta_ns sigma_ns bound_ns idle_ns peak_bytes");
  has_keys(at(plan.root, "certificate.acyclic"), "buffered rendezvous grouped");
  json_decref(plan.root);
  arena_free(arena);
}

Test(plan, digest_covers_every_byte_before_its_line) {
  Arena *arena = arena_new();
  Written plan = write_plan(arena, "1f1b", 2, 1, 1, 1, 0);
  const char *line = strstr(plan.text, "\n  \"sha256\": \"") + 1;
  char digest[65];
  sha256_hex(plan.text, (size_t)(line - plan.text), digest);
  cr_assert_str_eq(digest, plan.sha256);
  cr_assert_str_eq(word(plan.root, "sha256"), digest);
  cr_assert_eq(strlen(plan.text), plan.length);
  cr_assert_str_eq(line + strlen("  \"sha256\": \"") + 64, "\"\n}\n");
  json_decref(plan.root);
  arena_free(arena);
}

/* Parsed and printed by another library in its own indented form, the text is the same: the layout is the usual one. */
Test(plan, is_the_usual_indented_form) {
  Arena *arena = arena_new();
  Written plan = write_plan(arena, "zb-h1", 2, 2, 2, 1, 0);
  char *again = json_dumps(plan.root, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
  cr_assert_eq(strlen(again) + 1, plan.length);
  cr_assert_eq(memcmp(again, plan.text, plan.length - 1), 0);
  free(again);
  json_decref(plan.root);
  arena_free(arena);
}

Test(plan, same_input_same_bytes_and_other_input_other_digest) {
  Arena *arena = arena_new();
  Written a = write_plan(arena, "1f1b", 2, 1, 1, 1, 0), b = write_plan(arena, "1f1b", 2, 1, 1, 1, 0),
          c = write_plan(arena, "gpipe", 2, 1, 1, 1, 0);
  cr_assert_str_eq(a.text, b.text);
  cr_assert_str_eq(a.sha256, b.sha256);
  cr_assert_str_neq(a.sha256, c.sha256);
  json_decref(a.root), json_decref(b.root), json_decref(c.root);
  arena_free(arena);
}

Test(plan, chunks_and_parameters) {
  Arena *arena = arena_new();
  Written plan = write_plan(arena, "1f1b", 2, 2, 2, 1, 2e12);
  json_t *root = plan.root;
  /* units: embed, layers 0 to 2, head: two and three of them */
  cr_assert_eq(json_array_size(at(root, "chunks")), 2);
  cr_assert_str_eq(word(root, "chunks.0.layers.0.name"), "embed");
  cr_assert_str_eq(word(root, "chunks.0.layers.1.name"), "layers");
  cr_assert_eq(whole(root, "chunks.0.layers.1.first"), 0);
  cr_assert_eq(whole(root, "chunks.0.layers.1.last"), 0);
  cr_assert_eq(whole(root, "chunks.1.layers.0.first"), 1);
  cr_assert_eq(whole(root, "chunks.1.layers.0.last"), 2);
  cr_assert_eq(whole(root, "chunks.0.parameters"), 256 + 72); /* the tied table counts once */
  cr_assert_eq(whole(root, "chunks.1.parameters"), 2 * 72 + 8);
  cr_assert_eq(whole(root, "chunks.1.flops.W"), 3 * 12000000);
  cr_assert_eq(whole(root, "chunks.1.cost_ns.W"), 9000); /* 36 MFLOP over two ranks of 2 TFLOP/s */
  cr_assert_eq(json_array_size(at(root, "chunks.0.sends")), 1);
  cr_assert_str_eq(word(root, "chunks.0.sends.0.tensor"), "y");
  cr_assert_eq(whole(root, "chunks.0.sends.0.to_chunk"), 1);
  cr_assert_eq(whole(root, "chunks.0.sends.0.shape.0"), 2);
  cr_assert_eq(whole(root, "chunks.0.sends.0.shape.1"), 8);
  cr_assert_eq(whole(root, "chunks.0.sends.0.bytes"), 64);
  cr_assert_str_eq(word(root, "chunks.1.sends.0.tensor"), "y.grad");
  cr_assert_eq(whole(root, "chunks.1.sends.0.to_chunk"), 0);

  cr_assert_eq(json_array_size(at(root, "parameters")), 1 + 3 * 2 + 1);
  cr_assert_eq(whole(root, "parameters.0.chunk"), 0);
  cr_assert_eq(whole(root, "parameters.0.tied_with.0"), 1);
  cr_assert_str_eq(word(root, "parameters.0.sharding.0"), "tp");
  cr_assert(json_is_null(at(root, "parameters.0.sharding.1")));
  cr_assert_str_eq(word(root, "parameters.2.name"), "layers.0.b");
  cr_assert_str_eq(word(root, "parameters.3.name"), "layers.1.w");
  cr_assert_eq(whole(root, "parameters.3.chunk"), 1);
  cr_assert(json_is_null(at(root, "parameters.3.tied_with")));
  cr_assert(json_is_true(at(root, "parameters.3.decay")));
  cr_assert(json_is_false(at(root, "parameters.7.decay")));
  json_decref(root);
  arena_free(arena);
}

Test(plan, communicators) {
  Arena *arena = arena_new();
  Written plan = write_plan(arena, "1f1b", 2, 2, 2, 1, 0);
  json_t *root = plan.root;
  cr_assert_eq(json_array_size(at(root, "communicators")), 1 + 2 + 2);
  cr_assert_str_eq(word(root, "communicators.0.axis"), "pp");
  cr_assert_eq(whole(root, "communicators.0.count"), 4);
  cr_assert_str_eq(word(root, "communicators.0.operations.0.op"), "tie_sum");
  cr_assert_str_eq(word(root, "communicators.0.operations.0.tensor"), "table");
  cr_assert_eq(whole(root, "communicators.0.operations.0.bytes"), 256 / 2 * 4);
  cr_assert_str_eq(word(root, "communicators.2.axis"), "dp");
  cr_assert_eq(whole(root, "communicators.2.pp_rank"), 1);
  /* every gradient of a rank once: two layers of 80 (padded) and the head's 16, then the tied table */
  int64_t bytes = 0;
  json_t *operations = at(root, "communicators.2.operations"), *operation;
  size_t index;
  json_array_foreach(operations, index, operation) bytes += whole(operation, "bytes");
  cr_assert_eq(bytes, (2 * 80 + 16 + 128) * 4);
  cr_assert_str_eq(word(operations, "0.after"), "1B3");
  cr_assert_str_eq(word(at(operations, ""), "0.op"), "all_reduce");
  /* tensor parallel: an all-reduce in every layer and micro-batch; rank 1 also has the loss over divided classes */
  cr_assert_eq(json_array_size(at(root, "communicators.3.operations")), 1);
  cr_assert_eq(whole(root, "communicators.3.operations.0.count"), 4);
  cr_assert_eq(whole(root, "communicators.4.operations.0.count"), 8);
  cr_assert_eq(whole(root, "communicators.4.operations.0.bytes"), 2 * 8 * 4);
  cr_assert_str_eq(word(root, "communicators.4.operations.0.after"), "1F");
  cr_assert_str_eq(word(root, "communicators.4.operations.1.op"), "all_reduce_max");
  cr_assert_eq(whole(root, "communicators.4.operations.1.bytes"), 2 * 4);
  cr_assert_eq(whole(root, "communicators.4.operations.2.bytes"), 2 * 2 * 4);
  json_decref(root);
  plan = write_plan(arena, "gpipe", 1, 1, 1, 1, 0);
  cr_assert_eq(json_array_size(at(plan.root, "communicators")), 0);
  json_decref(plan.root);
  arena_free(arena);
}

Test(plan, certificate_and_cluster) {
  Arena *arena = arena_new();
  Written plan = write_plan(arena, "zb-v", 2, 1, 1, 2, 0);
  json_t *root = plan.root;
  static const char *const facts[] = {"complete",           "ordered",        "matched", "acyclic.buffered",
                                      "acyclic.rendezvous", "acyclic.grouped"};
  for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++)
    cr_assert(json_is_true(at(at(root, "certificate"), facts[i])), "%s", facts[i]);
  static const int placement[] = {0, 1, 1, 0};
  for (size_t i = 0; i < 4; i++)
    cr_assert_eq(json_integer_value(json_array_get(at(root, "schedule.placement"), i)), placement[i]);
  for (size_t rank = 0; rank < 2; rank++) {
    json_t *memory = at(json_array_get(at(root, "ranks"), rank), "memory");
    int64_t sum = 0;
    for (int kind = 0; kind < PD_MEMORY_CLASSES; kind++)
      sum += whole(memory, pd_memory_class_name((pd_memory_class)kind));
    cr_assert_eq(whole(memory, "total"), sum);
    cr_assert_eq(json_integer_value(json_array_get(at(root, "certificate.peak_bytes"), rank)), sum);
  }
  cr_assert_geq(whole(root, "certificate.beta_ns"), whole(root, "certificate.bound_ns"));
  /* units cost 4, 8 and 12 us at the assumed figure; rank 0 holds one unit more than rank 1, or the other way round */
  int64_t idle0 = whole(root, "certificate.idle_ns.0"), idle1 = whole(root, "certificate.idle_ns.1");
  cr_assert_eq(llabs(idle0 - idle1), 8 * (4000 + 8000 + 12000));
  cr_assert_eq(whole(root, "cluster.flops"), 1000000000000);
  cr_assert(json_is_null(at(root, "cluster.memory")));
  cr_assert_str_eq(word(root, "cluster.assumed.0"), "flops");
  cr_assert_eq(json_array_size(at(root, "chunks.1.sends")),
               1); /* chunk 2 is on the same rank: only the gradient leaves */
  json_decref(root);
  plan = write_plan(arena, "1f1b", 2, 1, 1, 1, 5e11);
  cr_assert_eq(whole(plan.root, "cluster.flops"), 500000000000);
  cr_assert_eq(json_array_size(at(plan.root, "cluster.assumed")), 1); /* the link */
  json_decref(plan.root);
  arena_free(arena);
}

/* ---- CSV ---- */

Test(csv, one_line_a_rank) {
  Arena *arena = arena_new();
  ScheduleRequest request = {2, 1, 1};
  pd_action_list ranks[2];
  static const int rank_of[] = {0, 1};
  schedule_find("zb-h1")->generate(arena, &request, ranks);
  pd_pipeline pipeline = {
      .pp = 2, .chunk_count = 2, .microbatches = 1, .rank_of = rank_of, .ranks = ranks, .split = true};
  bool gradients[] = {false, true};
  schedule_insert_communication(arena, &pipeline, gradients, true);
  Text text = {.arena = arena};
  schedule_write_csv(&pipeline, &text);
  cr_assert_str_eq(text.at, "0F0,0SEND_F0,0RECV_B0,0I0,0W0,0REDUCE_GRAD\n1RECV_F0,1F0,1I0,1SEND_B0,1W0,1REDUCE_GRAD\n");
  arena_free(arena);
}
