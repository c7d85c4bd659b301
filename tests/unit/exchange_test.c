/* Schedules and plans as files: what is written is read back equal, and nothing else is read. Files are spoiled in
 * every way that a key, a character or an action can be wrong; each must be refused with the place where it is. Also
 * what differs between two schedules, pictures as text, and layout strings. */
#include <criterion/criterion.h>
#include <string.h>

#include "artifact/artifact.h"
#include "artifact/document.h"
#include "artifact/draw.h"
#include "pipeline/layout_string.h"
#include "artifact/words.h"

/* ---- help ---- */

typedef struct Made {
  Document document;
  Measure measure;
  Text json, csv, comms, waits;
} Made;

static Made make(Arena *arena, const char *name, int pp, int chunks, int64_t m, ShareCosts costs) {
  const ScheduleKind *kind = schedule_find(name);
  cr_assert(kind, "%s is not known", name);
  ScheduleRequest request = {pp, chunks, m};
  const char *why = kind->refuse ? kind->refuse(arena, &request) : NULL;
  cr_assert_null(why, "%s", why);
  Made made = {.json = {.arena = arena}, .csv = {.arena = arena}, .comms = {.arena = arena}, .waits = {.arena = arena}};
  document_generate(arena, kind, &request, costs, &made.document);
  document_measure(arena, &made.document, &made.measure);
  cr_assert_null(made.measure.why, "%s: %s", name, made.measure.why);
  schedule_write_json(&made.document, &made.measure, &made.json);
  schedule_write_compute_csv(&made.document.pipeline, &made.csv);
  schedule_write_csv(&made.document.pipeline, &made.comms);
  schedule_write_waits_csv(arena, &made.document.pipeline, &made.waits);
  return made;
}

static const ShareCosts unit = {1, 1, 1, 0};

/* "text" with the first `old` replaced; and with a digest that fits again. */
static char *swap(Arena *arena, const char *text, const char *old, const char *new) {
  const char *at = strstr(text, old);
  cr_assert(at, "`%s` is not there", old);
  return arena_printf(arena, "%.*s%s%s", (int)(at - text), text, new, at + strlen(old));
}

static char *rehash(Arena *arena, const char *text) {
  const char *line = strstr(text, "\n  \"sha256\": \"");
  cr_assert(line);
  char digest[65];
  sha256_hex(text, (size_t)(line + 1 - text), digest);
  return arena_printf(arena, "%.*s  \"sha256\": \"%s\"\n}\n", (int)(line + 1 - text), text, digest);
}

static const char *read_text(Arena *arena, const char *text, Document *document) {
  return document_read(arena, text, strlen(text), document);
}

/* `text` is refused, and the reason names `words`. */
static void refused(Arena *arena, const char *text, size_t length, const char *words) {
  Document document;
  const char *why = document_read(arena, text, length, &document);
  cr_assert(why, "taken, but `%s` is wrong in: %.200s", words, text);
  cr_assert(strstr(why, words), "`%s` does not say `%s`", why, words);
  cr_assert_null(document.root);
}

/* It is read, and then something is wrong: not certified, or a claim that is not so. */
static void not_certified(Arena *arena, const char *text, const char *words) {
  Document document;
  Measure measure;
  const char *why = read_text(arena, text, &document);
  cr_assert_null(why, "%s", why);
  document_measure(arena, &document, &measure);
  why = measure.why ? measure.why : document_check_claims(arena, &document, &measure);
  cr_assert(why, "certified, but `%s` is wrong", words);
  cr_assert(strstr(why, words), "`%s` does not say `%s`", why, words);
  document_free(&document);
}

/* ---- round trips ---- */

static bool same_lists(const pd_pipeline *a, const pd_pipeline *b, bool compute_only) {
  if (a->pp != b->pp || a->chunk_count != b->chunk_count || a->microbatches != b->microbatches) return false;
  for (int rank = 0; rank < a->pp; rank++) {
    int64_t i = 0, k = 0;
    for (;; i++, k++) {
      while (compute_only && i < a->ranks[rank].count && a->ranks[rank].at[i].kind > PD_W) i++;
      while (compute_only && k < b->ranks[rank].count && b->ranks[rank].at[k].kind > PD_W) k++;
      if (i == a->ranks[rank].count || k == b->ranks[rank].count) break;
      if (memcmp(&a->ranks[rank].at[i], &b->ranks[rank].at[k], sizeof(pd_action)) != 0) return false;
    }
    if (i != a->ranks[rank].count || k != b->ranks[rank].count) return false;
  }
  return memcmp(a->rank_of, b->rank_of, sizeof(int) * (size_t)a->chunk_count) == 0;
}

static void check_round_trip(const char *name, int pp, int chunks, int64_t m, ShareCosts costs) {
  Arena *arena = arena_new();
  Made made = make(arena, name, pp, chunks, m, costs);
  Document document;
  Measure measure;
  const char *why = read_text(arena, made.json.at, &document);
  cr_assert_null(why, "%s: %s", name, why);
  document_measure(arena, &document, &measure);
  cr_assert_null(measure.why, "%s: %s", name, measure.why);
  why = document_check_claims(arena, &document, &measure);
  cr_assert_null(why, "%s: %s", name, why);
  cr_assert(same_lists(&document.pipeline, &made.document.pipeline, false), "%s: other lists", name);
  Text again = {.arena = arena};
  schedule_write_json(&document, &measure, &again);
  cr_assert_str_eq(again.at, made.json.at, "%s is not written again as it was read", name);
  document_free(&document);
  const Text *forms[] = {&made.csv, &made.comms, &made.waits};
  for (int k = 0; k < 3; k++) {
    why = read_text(arena, forms[k]->at, &document);
    cr_assert_null(why, "%s, CSV %d: %s", name, k, why);
    cr_assert(same_lists(&document.pipeline, &made.document.pipeline, k == 0), "%s, CSV %d: other lists", name, k);
    document_measure(arena, &document, &measure);
    cr_assert_null(measure.why, "%s, CSV %d: %s", name, k, measure.why);
    cr_assert_eq(document.chunks, chunks);
    cr_assert_eq(document.pipeline.split, made.document.pipeline.split);
  }
  arena_free(arena);
}

Test(exchange, every_kind_is_read_as_it_was_written) {
  for (const char *const *name = schedule_names(); *name; name++)
    for (int chunks = 1; chunks <= 4; chunks++)
      for (int64_t m = 4; m <= 16; m += 4) {
        Arena *arena = arena_new();
        ScheduleRequest request = {4, chunks, m};
        const ScheduleKind *kind = schedule_find(*name);
        bool refuses = kind->refuse && kind->refuse(arena, &request);
        arena_free(arena);
        if (refuses) continue;
        check_round_trip(*name, 4, chunks, m, unit);
        if (m == 8) check_round_trip(*name, 4, chunks, m, (ShareCosts){1.1, 1.3, 0.7, 0.05});
      }
  check_round_trip("1f1b", 1, 1, 1, unit);
  check_round_trip("interleaved-zb", 3, 3, 7, (ShareCosts){10, 12, 8, 1});
}

Test(exchange, decimal_costs_give_decimal_figures) {
  Arena *arena = arena_new();
  Made made = make(arena, "interleaved", 4, 3, 8, (ShareCosts){0.1, 0.2, 0.3, 0});
  cr_assert_eq(made.measure.makespan, 5.4); /* 8 * 0.6 + 3 * 0.6 / 3 */
  cr_assert_eq(made.measure.beta, 0.6);
  cr_assert_eq(made.measure.bound, 0.1);
  arena_free(arena);
}

Test(exchange, the_file_to_the_byte) {
  Arena *arena = arena_new();
  Made made = make(arena, "1f1b", 2, 1, 1, unit);
  static const char wanted[] = "{\n  \"format\": \"pd-schedule\",\n  \"version\": 1,\n  \"kind\": \"1f1b\",\n  \"pp\": "
                               "2,\n  \"microbatches\": 1,\n"
                               "  \"chunks\": 1,\n  \"placement\": [\n    0,\n    1\n  ],\n  \"costs\": {\n    \"F\": "
                               "1,\n    \"I\": 1,\n    \"W\": 1,\n"
                               "    \"link\": 0\n  },\n  \"ranks\": [\n    [\n      \"0F0\",\n      \"0SEND_F0\",\n    "
                               "  \"0RECV_B0\",\n      \"0B0\"\n    ],\n"
                               "    [\n      \"1RECV_F0\",\n      \"1F0\",\n      \"1B0\",\n      \"1SEND_B0\"\n    "
                               "]\n  ],\n  \"certificate\": {\n"
                               "    \"complete\": true,\n    \"ordered\": true,\n    \"matched\": true,\n    "
                               "\"acyclic\": {\n      \"buffered\": true,\n"
                               "      \"rendezvous\": true,\n      \"grouped\": true\n    },\n    \"makespan\": 6,\n   "
                               " \"beta\": 3,\n    \"sigma\": 3,\n"
                               "    \"bound\": 1,\n    \"idle\": [\n      3,\n      3\n    ],\n    \"peak\": [\n      "
                               "1,\n      1\n    ]\n  },\n";
  cr_assert_eq(strncmp(made.json.at, wanted, sizeof wanted - 1), 0, "%s", made.json.at);
  cr_assert_str_eq(made.csv.at, "0F0,0B0\n1F0,1B0\n");
  cr_assert_str_eq(made.comms.at, "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n");
  cr_assert_str_eq(made.waits.at, "0F0,0SEND_F0,0RECV_B0,0B0,0WAIT_SEND_F0\n1RECV_F0,1F0,1B0,1SEND_B0,1WAIT_SEND_B0\n");
  arena_free(arena);
}

/* ---- pd-schedule: hostile ---- */

Test(hostile_json, keys_and_types) {
  Arena *arena = arena_new();
  const char *good = make(arena, "zb-v", 2, 2, 4, unit).json.at;
  static const struct {
    const char *old, *new, *words;
  } rows[] = {
      {"\"format\": \"pd-schedule\"", "\"format\": \"pd-scheduler\"", "$.format is \"pd-scheduler\""},
      {"\"version\": 1", "\"version\": 2", "$.version is 2; this pdc reads version 1"},
      {"\"version\": 1", "\"version\": \"1\"", "$.version is missing or no integer"},
      {"\"version\": 1", "\"version\": 1.0", "$.version is missing or no integer"},
      {"  \"pp\": 2,\n", "", "$.pp is missing"},
      {"  \"pp\": 2,\n", "  \"pp\": 2,\n  \"pq\": 2,\n", "$.pq: there is no such key"},
      {"  \"pp\": 2,\n  \"microbatches\": 4,\n", "  \"microbatches\": 4,\n  \"pp\": 2,\n",
       "$.microbatches comes where `pp` belongs"},
      {"\"pp\": 2", "\"pp\": \"2\"", "$.pp must be an integer, is a string"},
      {"\"pp\": 2", "\"pp\": 2.5", "$.pp must be an integer, is a real number"},
      {"\"pp\": 2", "\"pp\": null", "$.pp must be an integer, is null"},
      {"\"pp\": 2", "\"pp\": 0", "$.pp is 0, must be from 1"},
      {"\"pp\": 2", "\"pp\": -1", "$.pp is -1, must be from 1"},
      {"\"pp\": 2", "\"pp\": 4097", "$.pp is 4097, must be from 1 to 4096"},
      {"\"pp\": 2", "\"pp\": 99999999999999999999", "line"},
      {"\"pp\": 2", "\"pp\": 02", "line 5, column"},
      {"\"pp\": 2", "\"pp\": 2,\n  \"pp\": 2", "duplicate object key"},
      {"\"pp\": 2", "\"pp\": 1", "$.placement has 4 entries, must have 2"},
      {"\"microbatches\": 4", "\"microbatches\": 3", "names micro-batch 3 of 3"},
      {"\"microbatches\": 4", "\"microbatches\": 16777216", "0F4 is missing on rank 0"},
      {"\"kind\": \"zb-v\"", "\"kind\": \"ZB V\"", "$.kind must be small letters"},
      {"\"kind\": \"zb-v\"", "\"kind\": \"\"", "$.kind must be small letters"},
      {"\"kind\": \"zb-v\"", "\"kind\": [\n    1\n  ]", "$.kind must be a string, is an array"},
      {"\"placement\": [\n    0,", "\"placement\": [\n    7,", "$.placement[0] is 7, but there are ranks 0 to 1"},
      {"\"placement\": [\n    0,", "\"placement\": [\n    -1,", "$.placement[0] is -1"},
      {"\"placement\": [\n    0,", "\"placement\": [\n    true,",
       "$.placement[0] must be an integer, is a truth value"},
      {"\"F\": 1", "\"F\": -1", "$.costs.F is -1, must not be negative"},
      {"\"F\": 1", "\"F\": 10000000000000", "$.costs: 1e+13 is no cost"},
      {"\"F\": 1,\n    \"I\": 1,\n    \"W\": 1", "\"F\": 0,\n    \"I\": 0,\n    \"W\": 0",
       "$.costs: F, I and W are all 0"},
      {"\"0F0\"", "\"0F\"", "$.ranks[0][0]: \"0F\" is no action"},
      {"\"0F0\"", "\"00F0\"", "$.ranks[0][0]: \"00F0\" is no action"},
      {"\"0F0\"", "\"0F-1\"", "$.ranks[0][0]: \"0F-1\" is no action"},
      {"\"0F0\"", "\"0F0 \"", "is no action"},
      {"\"0F0\"", "\"0f0\"", "is no action"},
      {"\"0F0\"", "\"4F0\"", "$.ranks[0][0]: 4F0 names chunk 4 of 4"},
      {"\"0F0\"", "0", "$.ranks[0][0] must be a string, is an integer"},
      {"\"0F0\"", "{\n        \"a\": 1\n      }", "$.ranks[0][0] must be a string, is an object"},
      {"\"complete\": true", "\"complete\": 1", "$.certificate.complete must be true or false, is an integer"},
      {"\"buffered\": true,\n", "", "$.certificate.acyclic.buffered is missing"},
      {"\"makespan\": ", "\"makespan\": null,\n    \"x\": ", "$.certificate.makespan must be a number, is null"},
      {"\"idle\": [\n      0.5,", "\"idle\": [\n      0.5,\n      0.5,",
       "$.certificate.idle has 3 entries, must have 2"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const char *bad = rehash(arena, swap(arena, good, rows[i].old, rows[i].new));
    refused(arena, bad, strlen(bad), rows[i].words);
  }
  arena_free(arena);
}

Test(hostile_json, spelling_and_digest) {
  Arena *arena = arena_new();
  const char *good = make(arena, "zb-h1", 2, 1, 2, unit).json.at;
  size_t length = strlen(good);
  static const struct {
    const char *old, *new, *words;
    bool hashed;
  } rows[] = {
      {"  \"pp\"", "\t\"pp\"", "line 5: not in canonical form: it should read `  \"pp\": 2,`", true},
      {"\"pp\": 2", "\"pp\":2", "line 5: not in canonical form", true},
      {"\"F\": 1", "\"F\": 1.0", "line 13: not in canonical form", true},
      {"\"F\": 1", "\"F\": 1e0", "line 13: not in canonical form", true},
      {"\"F\": 1,", "\"F\": 1, ", "line 13: not in canonical form", true},
      {"\"zb-h1\"", "\"zb\\u002dh1\"", "line 4: not in canonical form", true},
      {"\"F\": 1", "\"F\": 2", "$.sha256 is not the digest", false},
      {"\"0F0\"", "\"0F1\"", "$.sha256 is not the digest", false},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char *bad = swap(arena, good, rows[i].old, rows[i].new);
    if (rows[i].hashed) bad = rehash(arena, bad);
    refused(arena, bad, strlen(bad), rows[i].words);
  }
  const char *longer = arena_printf(arena, "%s\n", good),
             *digest = strstr(good, "\"sha256\": \"") + strlen("\"sha256\": \"");
  refused(arena, longer, length + 1, "not in canonical form");
  char *other = arena_strdup(arena, good);
  other[digest - good] = other[digest - good] == '0' ? '1' : '0';
  refused(arena, other, length, "$.sha256 is not the digest");
  other = arena_strdup(arena, good);
  other[100] = 0;
  refused(arena, other, length, "NUL byte");
  arena_free(arena);
}

/* Cut anywhere, or with any one byte changed, it is never taken. */
Test(hostile_json, every_cut_and_every_byte) {
  Arena *arena = arena_new();
  const char *good = make(arena, "1f1b", 2, 1, 1, unit).json.at;
  size_t length = strlen(good);
  for (size_t cut = 0; cut < length; cut++) {
    Arena *small = arena_new();
    Document document;
    const char *text = arena_strndup(small, good, cut);
    cr_assert(document_read(small, text, cut, &document), "taken after %zu bytes", cut);
    arena_free(small);
  }
  for (size_t at = 0; at < length; at++) {
    Arena *small = arena_new();
    Document document;
    char *text = arena_strdup(small, good);
    text[at] = (char)(text[at] ^ (at % 2 ? 1 : 0x20));
    cr_assert(document_read(small, text, length, &document), "taken with another byte %zu: %s", at, text);
    arena_free(small);
  }
  arena_free(arena);
}

Test(hostile_json, deep_and_large) {
  Arena *arena = arena_new();
  Text deep = {.arena = arena};
  text_printf(&deep, "{\"format\": \"pd-schedule\", \"version\": 1, \"kind\": ");
  for (int i = 0; i < 100000; i++) text_put(&deep, "[", 1);
  refused(arena, deep.at, deep.length, "line 1");
  refused(arena, "", 0, "the file is empty");
  refused(arena, " \n\n", 3, "the file is empty");
  refused(arena, "{}", 2, "$.format is missing");
  refused(arena, "{", 1, "line 1");
  refused(arena, "{\"format\": 1}", 13, "$.format is missing");
  refused(arena, "0F0", (size_t)DOCUMENT_MOST_BYTES + 1, "at most");
  arena_free(arena);
}

Test(hostile_json, what_the_lists_say_is_checked) {
  Arena *arena = arena_new();
  const char *good = make(arena, "zb-v", 2, 2, 4, unit).json.at;
  static const struct {
    const char *old, *new, *words;
  } rows[] = {
      {"      \"0F1\",\n", "", "0F1 is missing on rank 0"},
      {"      \"0F1\",\n", "      \"0F1\",\n      \"0F1\",\n", "0F1 stands twice on rank 0"},
      {"      \"0F0\",\n", "      \"1F0\",\n", "1F0 stands on rank 0, but chunk 1 lies on rank 1"},
      {"      \"0SEND_F0\",\n", "", "0SEND_F0 is missing on rank 0"},
      {"\"makespan\": ", "\"makespan\": 1", "$.certificate.makespan is 1"},
      {"\"matched\": true", "\"matched\": false", "$.certificate.matched is false in the file, but is true"},
      {"\"grouped\": true", "\"grouped\": false", "$.certificate.acyclic.grouped is false in the file, but is true"},
      {"\"peak\": [\n      2", "\"peak\": [\n      3", "$.certificate.peak[0] is 3 in the file, but is 2"},
      {"\"idle\": [\n      0.5", "\"idle\": [\n      0.25", "$.certificate.idle[0] is 0.25 in the file, but is 0.5"},
      {"\"F\": 1", "\"F\": 2", "$.certificate.makespan is "},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    not_certified(arena, rehash(arena, swap(arena, good, rows[i].old, rows[i].new)), rows[i].words);
  arena_free(arena);
}

/* ---- CSV ---- */

Test(csv, what_pytorch_writes) {
  Arena *arena = arena_new();
  Document document;
  Measure measure;
  /* line ends, blanks, empty cells for steps of rest, quotes, a byte order mark */
  static const char *const same[] = {"0F0,0B0\n1F0,1B0\n",
                                     "0F0,,,0B0\r\n,1F0,1B0\r\n",
                                     " 0F0 , 0B0\n\t1F0,1B0",
                                     "0F0,0B0\n1F0,1B0\n\n\r\n",
                                     "\"0F0\",\"0B0\"\n1F0,1B0\n",
                                     "\357\273\2770F0,0B0\n1F0,1B0\n"};
  for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
    const char *why = read_text(arena, same[i], &document);
    cr_assert_null(why, "%zu: %s", i, why);
    cr_assert(document.pipeline.pp == 2 && document.pipeline.chunk_count == 2 && document.pipeline.microbatches == 1);
    cr_assert(!document.messages && !document.pipeline.split && document.pipeline.ranks[1].count == 2);
    cr_assert_str_eq(document.notes[0], "it holds computations only; messages were added");
    cr_assert_null(document.notes[1]);
    document_measure(arena, &document, &measure);
    cr_assert_null(measure.why, "%s", measure.why);
    cr_assert_eq(measure.makespan, 6);
  }
  /* as its runtime of today dumps a schedule with communication */
  cr_assert_null(
      read_text(arena,
                "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0WAIT_SEND_F0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0RESHARD\r\n"
                "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1RESHARD,1WAIT_SEND_B0\r\n",
                &document));
  cr_assert(document.messages && document.pipeline.ranks[0].count == 5);
  cr_assert(strstr(document.notes[0], "4 UNSHARD and RESHARD left out") &&
            strstr(document.notes[1], "4 WAIT actions left out"));
  document_measure(arena, &document, &measure);
  cr_assert_null(measure.why, "%s", measure.why);
  /* DualPipeV's pairs */
  cr_assert_null(read_text(arena, "0F0,(0F1;0B0)OVERLAP_F_B,( 0I1 ; 0W1 )OVERLAP_F_B\n", &document));
  cr_assert_eq(document.pipeline.ranks[0].count, 5);
  cr_assert(strstr(document.notes[0], "2 OVERLAP_F_B read as their parts"));
  document_measure(arena, &document, &measure);
  cr_assert_null(measure.why, "%s", measure.why);
  arena_free(arena);
}

Test(csv, hostile) {
  Arena *arena = arena_new();
  static const struct {
    const char *text, *words;
  } rows[] = {
      {"0F0,0B0\n1F0;1B0\n", "line 2, column 1: `1F0;1B0` is no action"},
      {"0F0,0X0\n", "line 1, column 5: `0X0` is no action"},
      {"0F0,\t0X0\n", "line 1, column 6: `0X0`"},
      {"F0\n", "line 1, column 1"},
      {"0F\n", "`0F` is no action"},
      {"0F0x\n", "`0F0x` is no action"},
      {"0 F0\n", "is no action"},
      {"-1F0\n", "is no action"},
      {"0F-1\n", "is no action"},
      {"0F99999999999\n", "is no action"},
      {"99999999999F0\n", "is no action"},
      {"0F16777216\n", "names micro-batch 16777216; at most 16777216 are read"},
      {"65536F0\n", "names chunk 65536; at most 65536 are read"},
      {"0REDUCE_GRAD0\n", "is no action"},
      {"0UNSHARD3\n", "is no action"},
      {"UNSHARD\n", "is no action"},
      {"0WAIT_SEND_F\n", "is no action"},
      {"0BW0\n", "`0BW0` is PyTorch's old spelling: BW is written B now"},
      {"(0F0;0B0)OVERLAP\n", "ends with `)OVERLAP_F_B`"},
      {"(0F0;0B0\n", "ends with `)OVERLAP_F_B`"},
      {"(0F0;)OVERLAP_F_B\n", "`` is no action"},
      {"()OVERLAP_F_B\n", "`` is no action"},
      {"((0F0;0B0)OVERLAP_F_B)OVERLAP_F_B\n", "ends with `)OVERLAP_F_B`"},
      {"0F0,0B\x01"
       "0\n",
       "line 1, column 7: byte 0x01"},
      {"0F0,0B0\n1F0\xc3\xa9\n", "line 2, column 4: byte 0xc3"},
      {"0F0\r0B0\n", "line 1, column 4: byte 0x0d"},
      {"0F0,0B0\n\n1F0,1B0\n", "line 2, column 1: rank 1 has no actions"},
      {"\n0F0,0B0\n", "line 1, column 1: rank 0 has no actions"},
      {",,,\n", "there are no actions"},
      {"0UNSHARD\n", "there are no actions"},
      {"0F0,0B0\n2F0,2B0\n", "chunk 1 is on no rank"},
      {"0F0,0B0,1F0,1B0\n2F0,2B0\n", "3 chunks cannot be dealt evenly to 2 ranks"},
      {"0F0,0B0,0F16777215\n", "0F1 is missing on rank 0"},
      {"# a comment\n", "line 1, column 1"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    refused(arena, rows[i].text, strlen(rows[i].text), rows[i].words);
  refused(arena, "0F0,\0,0B0\n", 10, "line 1, column 5: byte 0x00");
  Text wide = {.arena = arena}, tall = {.arena = arena};
  for (int i = 0; i < 500; i++) text_put(&wide, "1", 1);
  refused(arena, wide.at, wide.length, "a cell of 500 bytes");
  for (int i = 0; i < 5000; i++) text_printf(&tall, "%dF0,%dB0\n", i, i);
  refused(arena, tall.at, tall.length, "more than 4096 ranks");
  arena_free(arena);
}

Test(csv, what_the_lists_say_is_checked) {
  Arena *arena = arena_new();
  static const struct {
    const char *text, *words;
  } rows[] = {
      {"0F0\n1F0,1B0\n", "0B0 is missing on rank 0"},
      {"0B0,0F0\n1F0,1B0\n", "0B0 comes before 0F0 on rank 0"},
      {"0F0,1F0,0B0,1B0\n2F0,3F0,2B0,3B0,0F0\n", "0F0 stands on rank 1, but chunk 0 lies on rank 0"},
      {"0F0,0B0\n1B0,1F0\n", "1B0 comes before 1F0 on rank 1"},
      {"0F1,0F0,0B0,0B1\n", "0F1 comes before 0F0 on rank 0"},
      {"0F0,0B0,0F0\n", "0F0 stands twice on rank 0"},
      {"0F0,0B0,0W0\n", "0W0 stands on rank 0 beside 0B0, which contains it"},
      {"0F0,0I0\n", "0W0 is missing on rank 0"},
      /* each rank waits for the other */
      {"3F0,0F0,0B0,3B0\n1F0,2F0,2B0,1B0\n", "waits in"},
      {"0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1RECV_F0,1B0,1SEND_B0\n", "1F0 comes before 1RECV_F0 on rank 1"},
      {"0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0\n", "1SEND_B0 is missing on rank 1"},
      {"0F0,0F1,0SEND_F0,0SEND_F1,0B0,0B1\n1RECV_F1,1RECV_F0,1F0,1F1,1B0,1B1\n", "rank 1 receives"},
      /* fine with buffers, stuck when a send waits */
      {"0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n",
       "with rendezvous sends"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) not_certified(arena, rows[i].text, rows[i].words);
  arena_free(arena);
}

/* ---- what differs ---- */

static const char *diff_text(Arena *arena, const char *a, const char *b, bool wanted) {
  Document first, second;
  Text out = {.arena = arena};
  text_put(&out, "", 0);
  cr_assert_null(read_text(arena, a, &first));
  cr_assert_null(read_text(arena, b, &second));
  bool same = document_diff(arena, &first, &second, &out);
  cr_assert(same == wanted && same == (out.length == 0), "%s", out.at);
  document_free(&first);
  document_free(&second);
  return out.at;
}

Test(diff, nothing_differs_between_forms_of_one_schedule) {
  Arena *arena = arena_new();
  for (const char *const *name = schedule_names(); *name; name++) {
    ScheduleRequest request = {4, 2, 8};
    const ScheduleKind *kind = schedule_find(*name);
    if (kind->refuse && kind->refuse(arena, &request)) continue;
    Made made = make(arena, *name, 4, 2, 8, unit);
    const char *texts[] = {made.json.at, made.csv.at, made.comms.at, made.waits.at};
    for (int i = 0; i < 4; i++)
      for (int k = 0; k < 4; k++) diff_text(arena, texts[i], texts[k], true);
  }
  arena_free(arena);
}

Test(diff, says_what_a_person_wants_to_know) {
  Arena *arena = arena_new();
  const char *a = make(arena, "1f1b", 4, 1, 8, unit).json.at, *b = make(arena, "zb-v", 4, 2, 12, unit).json.at;
  cr_assert_str_eq(diff_text(arena, a, b, false),
                   "schedule: 1f1b -> zb-v\n"
                   "micro-batches: 8 -> 12\n"
                   "chunks a rank: 1 -> 2\n"
                   "memory of rank 1: 3 -> 4 micro-batches\n"
                   "memory of rank 2: 2 -> 4 micro-batches\n"
                   "memory of rank 3: 1 -> 4 micro-batches\n"
                   "messages a step: 48 -> 144\n"
                   "makespan: 33 -> 37.5\n"
                   "idle time with a barrier (beta): 9 -> 1.5\n"
                   "idle time without (sigma): 9 -> 0\n"
                   "lower bound of beta: 3 -> 1.5\n"
                   "actions of rank 0: 0RECV_B0 -> 0F4, after 8 that are equal (32 -> 120 in all)\n"
                   "actions of rank 1: 1SEND_F2 -> 1RECV_F3, after 8 that are equal (48 -> 168 in all)\n"
                   "actions of rank 2: 2RECV_B0 -> 2RECV_F2, after 6 that are equal (48 -> 168 in all)\n"
                   "actions of rank 3: 3B0 -> 3RECV_F1, after 2 that are equal (32 -> 120 in all)\n");
  const char *c = make(arena, "1f1b", 4, 1, 8, (ShareCosts){1, 1.5, 1, 0.25}).json.at;
  const char *text = diff_text(arena, a, c, false);
  cr_assert(strstr(text, "cost of I: 1 -> 1.5\ncost of a hop: 0 -> 0.25\n") == text, "%s", text);
  cr_assert(!strstr(text, "memory of"), "%s", text);
  /* a hop that takes time has its receives posted earlier */
  cr_assert(strstr(text, "actions of rank 0: 0F4 -> 0RECV_B1, after 10 that are equal (32 -> 32 in all)\n"), "%s", text);
  c = make(arena, "1f1b", 4, 1, 8, (ShareCosts){1, 1.5, 1, 0}).json.at;
  text = diff_text(arena, a, c, false);
  cr_assert(strstr(text, "cost of I: 1 -> 1.5\nmakespan: ") == text && !strstr(text, "actions of"), "%s", text);
  arena_free(arena);
}

/* ---- pictures ---- */

Test(pictures, text_of_a_small_schedule) {
  Arena *arena = arena_new();
  Made made = make(arena, "1f1b", 2, 1, 2, unit);
  Text out = {.arena = arena};
  draw_text(arena, &made.document, &made.measure, 80, &out);
  cr_assert_str_eq(out.at, "1f1b, 2 ranks, 2 micro-batches\n\n"
                           "       0                         9\n"
                           "rank 0 F0 F1 ......B0--- ...B1---\n"
                           "rank 1 ...F0 B0--- F1 B1--- ......\n\n"
                           "makespan  9 (F = 1, I = 1, W = 1, link = 0)\n"
                           "beta      3, no schedule goes below 1\n"
                           "sigma     3\n"
                           "idle      3 3\n"
                           "peak      2 1\n");
  arena_free(arena);
}

Test(pictures, text_stays_within_its_columns) {
  Arena *arena = arena_new();
  for (int columns = 40; columns <= 200; columns += 20)
    for (const char *const *name = schedule_names(); *name; name++) {
      ScheduleRequest request = {8, 2, 24};
      const ScheduleKind *kind = schedule_find(*name);
      if (kind->refuse && kind->refuse(arena, &request)) continue;
      Made made = make(arena, *name, 8, 2, 24, (ShareCosts){1, 1.2, 0.7, 0.1});
      Text out = {.arena = arena};
      draw_text(arena, &made.document, &made.measure, columns, &out);
      const char *line = strstr(out.at, "\n\n") + 2, *end = strstr(out.at, "makespan");
      while (line < end) {
        size_t length = strcspn(line, "\n");
        cr_assert(length <= (size_t)columns, "%s in %d columns: %zu", *name, columns, length);
        line += length + 1;
      }
    }
  arena_free(arena);
}

Test(pictures, figures_in_words) {
  Arena *arena = arena_new();
  cr_assert_str_eq(number_words(arena, 25.5), "25.5");
  cr_assert_str_eq(number_words(arena, 1.0 / 3), "0.333333");
  cr_assert_str_eq(number_words(arena, 1234567), "1234567");
  cr_assert_str_eq(number_words(arena, -0.0), "0");
  cr_assert_str_eq(time_words(arena, 1500, "ns"), "1.5 us");
  cr_assert_str_eq(time_words(arena, 2.5e9, "ns"), "2.5 s");
  cr_assert_str_eq(time_words(arena, 17, "ns"), "17 ns");
  cr_assert_str_eq(time_words(arena, 17, ""), "17");
  cr_assert_str_eq(bytes_words(arena, 100), "100 bytes");
  cr_assert_str_eq(bytes_words(arena, 1536), "1.5 KiB");
  cr_assert_str_eq(bytes_words(arena, 3.0 * (1 << 30)), "3 GiB");
  cr_assert_str_eq(count_words(arena, 1, "micro-batch"), "1 micro-batch");
  cr_assert_str_eq(count_words(arena, 2, "micro-batch"), "2 micro-batches");
  arena_free(arena);
}

/* ---- layout strings ---- */

/* "E1t3|t2|…|L1": what each stage holds. */
static const char *layout_words(Arena *arena, const char *text) {
  Layout layout;
  Text out = {.arena = arena};
  const char *why = layout_parse(arena, text, &layout);
  if (why) return why;
  text_put(&out, "", 0);
  for (int k = 0; k < layout.count; k++) {
    const LayoutStage *s = &layout.stages[k];
    if (k) text_put(&out, "|", 1);
    if (s->embeddings) text_printf(&out, "E%lld", (long long)s->embeddings);
    if (s->layers) text_printf(&out, "t%lld", (long long)s->layers);
    if (s->multi_token) text_printf(&out, "m%lld", (long long)s->multi_token);
    if (s->losses) text_printf(&out, "L%lld", (long long)s->losses);
  }
  return out.at;
}

Test(layout, what_megatron_reads) {
  Arena *arena = arena_new();
  static const struct {
    const char *text, *stages;
  } rows[] = {
      {"EttL", "E1t2L1"},
      {"Ett|ttL", "E1t2|t2L1"},
      {"E,t*3|t*4,L", "E1t3|t4L1"},
      {"Ettt|(tt|)*3,m|L", "E1t3|t2|t2|t2|m1|L1"},
      {"E|(t|)*3,m|m||L", "E1|t1|t1|t1|m1|m1||L1"},
      {"E,(ab", "column 4: `a` is none of E t m L, `|`, `*`, brackets and commas"},
      {"Et,(t|t|t)*2,tL", "E1t2|t1|t2|t1|t2L1"},
      {"(|t)*2,L", "there is no E: a model begins with its embedding"},
      {"E(|t)*2,L", "E1|t1|t1L1"},
      {"E|*3,L", "E1|||L1"},
      {"E((t|)*2,t)*2,L", "E1t1|t1|t2|t1|t1L1"},
      {" E , t * 2 , L ", "E1t2L1"},
      {"E,t*0,L", "E1L1"},
      {"EL", "E1L1"},
      {"E||L|", "E1||L1|"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    cr_assert_str_eq(layout_words(arena, rows[i].text), rows[i].stages);
  Layout layout;
  cr_assert_null(layout_parse(arena, "Ettt|(tt|)*29,m|L", &layout));
  cr_assert(layout.count == 32 && layout.total.layers == 61 && layout.total.multi_token == 1);
  arena_free(arena);
}

Test(layout, what_is_wrong_is_said_with_its_place) {
  Arena *arena = arena_new();
  static const struct {
    const char *text, *words;
  } rows[] = {
      {"", "there is no E"},
      {"Et", "there is no L"},
      {"EttLt", "stage 0: t comes after L"},
      {"Et|E|L", "stage 1: E comes after t"},
      {"EE|L", "stage 0: a second E"},
      {"E|L|L", "stage 2: a second L"},
      {"Et|mt|L", "stage 1: t comes after m"},
      {"E(t|L", "column 2: `(` is never closed"},
      {"Et)L", "column 3: `)` closes nothing"},
      {"Et*L", "column 3: `*` wants a number"},
      {"*3", "column 1: `*` wants a letter"},
      {"E,t*-1,L", "column 4: `*` wants a number"},
      {"Et*99999999999L", "more than 1048576 times"},
      {"E(t*1000000)*1000000L", "column 2: the layout becomes too long"},
      {"E(|*60000)*2L", "more than 65536 stages"},
      {"Et\xc3\xa9L", "column 3: this byte has no place"},
      {"EdL", "column 2: `d` is none of E t m L"},
      {"E((((((((((((((((((t))))))))))))))))))L", "nested too deeply"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const char *why = layout_words(arena, rows[i].text);
    cr_assert(strstr(why, rows[i].words), "%s: `%s` does not say `%s`", rows[i].text, why, rows[i].words);
  }
  arena_free(arena);
}

Test(layout, units_per_stage) {
  Arena *arena = arena_new();
  Layout layout;
  int64_t bounds[9];
  cr_assert_null(layout_parse(arena, "Ett|ttt||tL", &layout));
  static const int64_t layer_end[] = {3, 4, 6, 7, 8, 9, 10}; /* a statement goes with the second layer but one */
  LayoutUnits units = {.before = 2, .layers = 6, .after = 3, .layer_end = layer_end};
  cr_assert_null(layout_bounds(arena, &layout, 4, units, bounds));
  static const int64_t wanted[] = {0, 4, 8, 8, 12};
  cr_assert_arr_eq(bounds, wanted, sizeof wanted);
  cr_assert_str_eq(layout_bounds(arena, &layout, 8, units, bounds), "the layout has 4 stages, but there are 8 chunks");
  units.layers = 7;
  cr_assert_str_eq(layout_bounds(arena, &layout, 4, units, bounds), "the layout has 6 layers (t), but the model has 7");
  units.layers = 6;
  cr_assert_null(layout_parse(arena, "Ettttttm|L", &layout));
  cr_assert_str_eq(layout_bounds(arena, &layout, 2, units, bounds),
                   "the layout has 1 multi-token layers (m), which no model has here");
  cr_assert_null(layout_parse(arena, "|EttttttL", &layout));
  cr_assert_str_eq(layout_bounds(arena, &layout, 2, units, bounds), "stage 0 is empty: the first stage holds E");
  cr_assert_null(layout_parse(arena, "EttttttL|", &layout));
  cr_assert_str_eq(layout_bounds(arena, &layout, 2, units, bounds), "stage 1 is empty: the last stage holds L");
  units.before = 0;
  cr_assert_null(layout_parse(arena, "E|ttttttL", &layout));
  cr_assert_str_eq(layout_bounds(arena, &layout, 2, units, bounds),
                   "stage 0 is empty: the model has no statement before its layers for E");
  arena_free(arena);
}
