/* What differs between two plans or schedules, in a person's words: from the large (parallel degrees, schedule, where
 * stages are cut) to the small (the first action of a rank that is another). What only follows from something told
 * above is not told again. A file that says less than the other (a CSV has no costs, a compute-only one no messages) is
 * compared in what it says. */
#include <math.h>
#include <string.h>

#include "artifact/document.h"
#include "artifact/reading.h"
#include "artifact/words.h"

enum { MOST_LINES = 12 }; /* of one kind; the rest is counted */

typedef struct Diff {
  Arena *arena;
  const Document *a, *b;
  Text *out;
  bool same;
  bool cuts_differ;      /* chunks hold other layers, or lie elsewhere */
  int64_t lines, unsaid; /* of the section being told */
} Diff;

static void say(Diff *d, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(Diff *d, const char *format, ...) {
  d->same = false;
  if (d->lines++ >= MOST_LINES) {
    d->unsaid++;
    return;
  }
  va_list arguments;
  va_start(arguments, format);
  text_printf(d->out, "%s\n", arena_vprintf(d->arena, format, arguments));
  va_end(arguments);
}

/* Ends a section: counts what was not said one by one. */
static void end_section(Diff *d, const char *things) {
  if (d->unsaid) text_printf(d->out, "and %lld more %s\n", (long long)d->unsaid, things);
  d->lines = d->unsaid = 0;
}

static const char *value_words(Diff *d, const json_t *value) {
  switch (value ? json_typeof(value) : JSON_NULL) {
  case JSON_STRING:
    return arena_printf(d->arena, "%.80s", json_string_value(value));
  case JSON_INTEGER:
    return arena_printf(d->arena, "%lld", (long long)json_integer_value(value));
  case JSON_REAL:
    return arena_printf(d->arena, "%.17g", json_real_value(value));
  case JSON_TRUE:
    return "yes";
  case JSON_FALSE:
    return "no";
  case JSON_ARRAY: {
    Text text = {.arena = d->arena};
    text_put(&text, "", 0);
    for (size_t i = 0; i < json_array_size(value); i++)
      text_printf(&text, "%s%s", i ? " x " : "", value_words(d, json_array_get(value, i)));
    return *text.at ? text.at : "none";
  }
  default:
    return "none";
  }
}

/* Members `keys` of the object called `name` in both files. */
static void diff_members(Diff *d, const char *name, const char *const *keys, size_t count) {
  const json_t *a = json_object_get(d->a->root, name), *b = json_object_get(d->b->root, name);
  for (size_t i = 0; i < count; i++) {
    json_t *in_a = json_object_get(a, keys[i]), *in_b = json_object_get(b, keys[i]);
    if (!json_equal(in_a, in_b)) say(d, "%s: %s %s -> %s", name, keys[i], value_words(d, in_a), value_words(d, in_b));
  }
  end_section(d, "differences of this kind");
}
#define DIFF_MEMBERS(d, name, ...)                                                                                     \
  diff_members(d, name, (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void diff_member(Diff *d, const char *key, const char *words) {
  json_t *a = json_object_get(d->a->root, key), *b = json_object_get(d->b->root, key);
  if (!json_equal(a, b)) say(d, "%s: %s -> %s", words, value_words(d, a), value_words(d, b));
}

/* ---- schedule and cuts ---- */

static void diff_schedule(Diff *d) {
  const Document *a = d->a, *b = d->b;
  bool kinds = a->form != DOCUMENT_CSV && b->form != DOCUMENT_CSV; /* a CSV does not name its kind */
  if (kinds && strcmp(a->kind, b->kind) != 0) say(d, "schedule: %s -> %s", a->kind, b->kind);
  bool plans = a->form == DOCUMENT_PLAN && b->form == DOCUMENT_PLAN;
  if (plans && a->pipeline.accumulators != b->pipeline.accumulators)
    say(d, "sums of gradients over micro-batches: %d -> %d", a->pipeline.accumulators, b->pipeline.accumulators);
  if (!plans) {
    if (a->pipeline.pp != b->pipeline.pp) say(d, "pipeline ranks: %d -> %d", a->pipeline.pp, b->pipeline.pp);
    if (a->pipeline.microbatches != b->pipeline.microbatches)
      say(d, "micro-batches: %lld -> %lld", (long long)a->pipeline.microbatches, (long long)b->pipeline.microbatches);
  }
  if (a->chunks != b->chunks) say(d, "chunks a rank: %d -> %d", a->chunks, b->chunks);
  if (a->pipeline.chunk_count != b->pipeline.chunk_count) {
    d->cuts_differ = true;
  } else {
    for (int chunk = 0; chunk < a->pipeline.chunk_count; chunk++)
      if (a->pipeline.rank_of[chunk] != b->pipeline.rank_of[chunk]) {
        say(d, "chunk %d: on rank %d -> on rank %d", chunk, a->pipeline.rank_of[chunk], b->pipeline.rank_of[chunk]);
        d->cuts_differ = true;
      }
  }
  end_section(d, "chunks on other ranks");
}

/* "embed, layers 0..5" */
static const char *layers_words(Diff *d, const Document *document, int chunk) {
  if (chunk >= document->pipeline.chunk_count) return "none";
  const json_t *entry = json_array_get(json_object_get(document->root, "chunks"), (size_t)chunk);
  const json_t *layers = json_object_get(entry, "layers");
  Text text = {.arena = d->arena};
  for (size_t i = 0; i < json_array_size(layers); i++) {
    const json_t *layer = json_array_get(layers, i);
    int64_t first = json_integer_value(json_object_get(layer, "first")),
            last = json_integer_value(json_object_get(layer, "last"));
    text_printf(&text, "%s%.60s", i ? ", " : "", json_string_value(json_object_get(layer, "name")));
    if (first == last && first > 0) text_printf(&text, " %lld", (long long)first);
    if (first != last) text_printf(&text, " %lld..%lld", (long long)first, (long long)last);
  }
  return text.at;
}

static void diff_cuts(Diff *d) {
  int a = d->a->pipeline.chunk_count, b = d->b->pipeline.chunk_count;
  for (int chunk = 0; chunk < (a > b ? a : b); chunk++) {
    const char *in_a = layers_words(d, d->a, chunk), *in_b = layers_words(d, d->b, chunk);
    if (strcmp(in_a, in_b) == 0) continue;
    d->cuts_differ = true;
    say(d, "stage cut, chunk %d: %s -> %s", chunk, in_a, in_b);
  }
  end_section(d, "chunks with other layers");
}

/* ---- figures ---- */

static void diff_chunk_figures(Diff *d) {
  static const char *const keys[] = {"parameters", "flops", "cost_ns", "activation_bytes"};
  static const char *const words[] = {"parameters", "FLOPs", "nanoseconds", "activation bytes"};
  if (d->cuts_differ) return; /* other layers cost otherwise */
  for (int chunk = 0; chunk < d->a->pipeline.chunk_count; chunk++) {
    const json_t *a = json_array_get(json_object_get(d->a->root, "chunks"), (size_t)chunk);
    const json_t *b = json_array_get(json_object_get(d->b->root, "chunks"), (size_t)chunk);
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
      json_t *in_a = json_object_get(a, keys[k]), *in_b = json_object_get(b, keys[k]);
      if (json_equal(in_a, in_b)) continue;
      if (!json_is_object(in_a)) {
        say(d, "chunk %d: %s %s -> %s", chunk, value_words(d, in_a), words[k], value_words(d, in_b));
        continue;
      }
      static const char *const parts[] = {"F", "I", "W"};
      for (int part = 0; part < 3; part++)
        if (!json_equal(json_object_get(in_a, parts[part]), json_object_get(in_b, parts[part])))
          say(d, "chunk %d: %s takes %s -> %s %s", chunk, parts[part],
              value_words(d, json_object_get(in_a, parts[part])), value_words(d, json_object_get(in_b, parts[part])),
              words[k]);
    }
  }
  end_section(d, "figures of chunks");
}

static void diff_costs(Diff *d) {
  if (d->a->form != DOCUMENT_SCHEDULE || d->b->form != DOCUMENT_SCHEDULE) return;
  ShareCosts a = d->a->costs, b = d->b->costs;
  if (a.f != b.f) say(d, "cost of F: %.17g -> %.17g", a.f, b.f);
  if (a.i != b.i) say(d, "cost of I: %.17g -> %.17g", a.i, b.i);
  if (a.w != b.w) say(d, "cost of W: %.17g -> %.17g", a.w, b.w);
  if (a.link != b.link) say(d, "cost of a hop: %.17g -> %.17g", a.link, b.link);
  end_section(d, "costs");
}

static void diff_time(Diff *d, const char *words, double a, double b) {
  if (a == b) return;
  const char *in_a = time_words(d->arena, a, d->a->unit), *in_b = time_words(d->arena, b, d->b->unit);
  if (strcmp(in_a, in_b) == 0) /* rounded away */
    say(d, "%s: %.17g -> %.17g %s", words, a, b, d->a->unit);
  else
    say(d, "%s: %s -> %s", words, in_a, in_b);
}

static void diff_claims(Diff *d) {
  const Claims *a = d->a->claims, *b = d->b->claims;
  if (!a || !b || d->a->form != d->b->form) return;
  const Certificate *ca = &a->certificate, *cb = &b->certificate;
  const struct {
    const char *words;
    bool a, b;
  } flags[] = {{"complete", ca->complete, cb->complete},
               {"ordered", ca->ordered, cb->ordered},
               {"matched", ca->matched, cb->matched},
               {"free of deadlock with buffered sends", ca->acyclic_buffered, cb->acyclic_buffered},
               {"free of deadlock with rendezvous sends", ca->acyclic_rendezvous, cb->acyclic_rendezvous},
               {"free of deadlock with grouped sends", ca->acyclic_grouped, cb->acyclic_grouped}};
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
    if (flags[i].a != flags[i].b)
      say(d, "%s: %s -> %s", flags[i].words, flags[i].a ? "yes" : "no", flags[i].b ? "yes" : "no");
  diff_time(d, "makespan", a->makespan, b->makespan);
  diff_time(d, "idle time with a barrier (beta)", a->beta, b->beta);
  diff_time(d, "idle time without (sigma)", a->sigma, b->sigma);
  diff_time(d, "lower bound of beta", a->bound, b->bound);
  if (d->a->pipeline.pp == d->b->pipeline.pp && a->makespan == b->makespan)
    for (int rank = 0; rank < d->a->pipeline.pp; rank++)
      diff_time(d, arena_printf(d->arena, "idle time of rank %d", rank), a->idle[rank], b->idle[rank]);
  end_section(d, "figures");
}

/* ---- memory ---- */

/* "activations 4096 -> 8192, messages …": the classes that differ. */
static const char *classes_words(Diff *d, json_t *a, json_t *b) {
  Text text = {.arena = d->arena};
  const char *key;
  json_t *value;
  text_put(&text, "", 0);
  json_object_foreach(a, key, value) {
    json_t *other = json_object_get(b, key);
    if (strcmp(key, "total") == 0 || json_equal(value, other)) continue;
    text_printf(&text, "%s%s %s -> %s", text.length ? ", " : "", key, value_words(d, value), value_words(d, other));
  }
  return text.at;
}

static void diff_plan_memory(Diff *d) {
  int a = d->a->pipeline.pp, b = d->b->pipeline.pp;
  for (int rank = 0; rank < a && rank < b; rank++) {
    json_t *in_a = json_object_get(json_array_get(json_object_get(d->a->root, "ranks"), (size_t)rank), "memory");
    json_t *in_b = json_object_get(json_array_get(json_object_get(d->b->root, "ranks"), (size_t)rank), "memory");
    int64_t total_a = json_integer_value(json_object_get(in_a, "total")),
            total_b = json_integer_value(json_object_get(in_b, "total"));
    const char *classes = classes_words(d, in_a, in_b);
    if (*classes)
      say(d, "memory of rank %d: %s -> %s%s: %s", rank, bytes_words(d->arena, (double)total_a),
          bytes_words(d->arena, (double)total_b),
          total_a > 0 ? arena_printf(d->arena, " (%+.3g %%)", 100 * ((double)total_b / (double)total_a - 1)) : "",
          classes);
  }
  for (int rank = a < b ? a : b; rank < (a > b ? a : b); rank++) {
    const Document *document = a > b ? d->a : d->b;
    const char *bytes = bytes_words(d->arena, document->claims->peak[rank]);
    say(d, "memory of rank %d: %s -> %s", rank, a > b ? bytes : "none", a > b ? "none" : bytes);
  }
  end_section(d, "ranks with other memory");
}

static void diff_peaks(Diff *d) {
  if (d->a->chunk_bytes || d->b->chunk_bytes) return;
  for (int rank = 0; rank < d->a->pipeline.pp && rank < d->b->pipeline.pp; rank++) {
    double a = document_peak(d->a, rank), b = document_peak(d->b, rank);
    if (a != b)
      say(d, "memory of rank %d: %s -> %s micro-batches", rank, number_words(d->arena, a), number_words(d->arena, b));
  }
  end_section(d, "ranks with other memory");
}

/* ---- messages and actions ---- */

static int64_t count_messages(const Document *document) {
  int64_t count = 0;
  for (int rank = 0; rank < document->pipeline.pp; rank++)
    for (int64_t i = 0; i < document->pipeline.ranks[rank].count; i++) {
      pd_action_kind kind = document->pipeline.ranks[rank].at[i].kind;
      count += kind == PD_SEND_F || kind == PD_SEND_B;
    }
  return count;
}

/* Bytes of all messages of a step: per chunk, what it sends forward and back, for every micro-batch. */
static double message_bytes(const Document *document) {
  double bytes = 0;
  const json_t *chunks = json_object_get(document->root, "chunks");
  for (size_t c = 0; c < json_array_size(chunks); c++) {
    const json_t *sends = json_object_get(json_array_get(chunks, c), "sends");
    for (size_t i = 0; i < json_array_size(sends); i++)
      bytes += (double)json_integer_value(json_object_get(json_array_get(sends, i), "bytes"));
  }
  return bytes * (double)document->pipeline.microbatches;
}

static void diff_messages(Diff *d) {
  if (!d->a->messages || !d->b->messages) return;
  int64_t a = count_messages(d->a), b = count_messages(d->b);
  bool plans = d->a->form == DOCUMENT_PLAN && d->b->form == DOCUMENT_PLAN;
  double bytes_a = plans ? message_bytes(d->a) : 0, bytes_b = plans ? message_bytes(d->b) : 0;
  if (plans && (a != b || bytes_a != bytes_b))
    say(d, "messages a step: %lld of %s -> %lld of %s", (long long)a, bytes_words(d->arena, bytes_a), (long long)b,
        bytes_words(d->arena, bytes_b));
  else if (a != b)
    say(d, "messages a step: %lld -> %lld", (long long)a, (long long)b);
  if (plans && a == b && bytes_a == bytes_b && !d->cuts_differ)
    for (int chunk = 0; chunk < d->a->pipeline.chunk_count; chunk++) {
      const json_t *in_a = json_array_get(json_object_get(d->a->root, "chunks"), (size_t)chunk);
      const json_t *in_b = json_array_get(json_object_get(d->b->root, "chunks"), (size_t)chunk);
      if (!json_equal(json_object_get(in_a, "sends"), json_object_get(in_b, "sends")))
        say(d, "chunk %d sends other tensors", chunk);
    }
  end_section(d, "chunks with other messages");
}

static bool is_compute(pd_action action) {
  return action.kind == PD_F || action.kind == PD_B || action.kind == PD_I || action.kind == PD_W;
}

/* A rank's list, or its computations. */
static pd_action_list list_of(Diff *d, const Document *document, int rank, bool compute_only) {
  pd_action_list list = document->pipeline.ranks[rank], chosen = {0};
  if (!compute_only) return list;
  chosen.at = ARENA_ARRAY(d->arena, pd_action, list.count + 1);
  for (int64_t i = 0; i < list.count; i++)
    if (is_compute(list.at[i])) chosen.at[chosen.count++] = list.at[i];
  return chosen;
}

static const char *action_words(Diff *d, pd_action_list list, int64_t index) {
  if (index >= list.count) return "the end";
  char *name = arena_alloc(d->arena, 48);
  pd_action_text(list.at[index], name);
  return name;
}

static void diff_actions(Diff *d) {
  bool compute_only = !d->a->messages || !d->b->messages;
  if (d->a->pipeline.pp != d->b->pipeline.pp) return; /* the ranks are other ones */
  for (int rank = 0; rank < d->a->pipeline.pp; rank++) {
    pd_action_list a = list_of(d, d->a, rank, compute_only), b = list_of(d, d->b, rank, compute_only);
    int64_t i = 0;
    while (i < a.count && i < b.count && memcmp(&a.at[i], &b.at[i], sizeof a.at[i]) == 0) i++;
    if (i == a.count && i == b.count) continue;
    say(d, "actions of rank %d: %s -> %s, after %lld that %s equal (%lld -> %lld in all)", rank, action_words(d, a, i),
        action_words(d, b, i), (long long)i, i == 1 ? "is" : "are", (long long)a.count, (long long)b.count);
  }
  end_section(d, "ranks with other actions");
}

/* ---- what only plans have ---- */

static void diff_parameters(Diff *d) {
  const json_t *a = json_object_get(d->a->root, "parameters"), *b = json_object_get(d->b->root, "parameters");
  static const char *const keys[] = {"shape", "dtype", "sharding", "decay", "chunk", "tied_with"};
  json_t *by_name = json_object();
  for (size_t i = 0; i < json_array_size(b); i++) {
    json_t *parameter = json_array_get(b, i);
    json_object_set(by_name, json_string_value(json_object_get(parameter, "name")), parameter);
  }
  for (size_t i = 0; i < json_array_size(a); i++) {
    const json_t *parameter = json_array_get(a, i);
    const char *name = json_string_value(json_object_get(parameter, "name"));
    const json_t *other = json_object_get(by_name, name);
    if (!other) say(d, "parameter %.80s: only in the first", name);
    for (size_t k = 0; other && k < sizeof keys / sizeof *keys; k++) {
      json_t *in_a = json_object_get(parameter, keys[k]), *in_b = json_object_get(other, keys[k]);
      if (json_equal(in_a, in_b) || (k >= 4 && d->cuts_differ)) continue;
      say(d, "parameter %.80s: %s %s -> %s", name, keys[k], value_words(d, in_a), value_words(d, in_b));
    }
    json_object_del(by_name, name);
  }
  const char *name;
  json_t *left;
  json_object_foreach(by_name, name, left) say(d, "parameter %.80s: only in the second", name);
  json_decref(by_name);
  end_section(d, "differences of parameters");
}

typedef struct Traffic { /* of one communicator in one step */
  int64_t size, groups, operations;
  double bytes;
} Traffic;

static Traffic traffic_of(const Document *document, const char *axis, int rank, json_t **found) {
  Traffic traffic = {0};
  const json_t *all = json_object_get(document->root, "communicators");
  *found = NULL;
  for (size_t i = 0; i < json_array_size(all); i++) {
    json_t *communicator = json_array_get(all, i), *at = json_object_get(communicator, "pp_rank");
    if (strcmp(json_string_value(json_object_get(communicator, "axis")), axis) != 0) continue;
    if (rank != (at ? (int)json_integer_value(at) : -1)) continue;
    const json_t *operations = json_object_get(communicator, "operations");
    traffic.size = json_integer_value(json_object_get(communicator, "size"));
    traffic.groups = json_integer_value(json_object_get(communicator, "count"));
    for (size_t k = 0; k < json_array_size(operations); k++) {
      const json_t *operation = json_array_get(operations, k), *count = json_object_get(operation, "count");
      int64_t times = count ? json_integer_value(count) : 1;
      traffic.operations += times;
      traffic.bytes += (double)times * (double)json_integer_value(json_object_get(operation, "bytes"));
    }
    *found = communicator;
  }
  return traffic;
}

static void diff_communicators(Diff *d) {
  static const char *const axes[] = {"pp", "dp", "tp", "cp", "ep"};
  int ranks = d->a->pipeline.pp > d->b->pipeline.pp ? d->a->pipeline.pp : d->b->pipeline.pp;
  for (size_t k = 0; k < sizeof axes / sizeof *axes; k++)
    for (int rank = -1; rank < ranks; rank++) {
      json_t *in_a, *in_b;
      Traffic a = traffic_of(d->a, axes[k], rank, &in_a), b = traffic_of(d->b, axes[k], rank, &in_b);
      if (json_equal(in_a, in_b) || (!in_a && !in_b)) continue;
      const char *where = rank < 0 ? "" : arena_printf(d->arena, " of rank %d", rank);
      if (a.operations != b.operations || a.bytes != b.bytes || a.size != b.size)
        say(d, "%s group%s: %lld operations of %s among %lld -> %lld of %s among %lld", axes[k], where,
            (long long)a.operations, bytes_words(d->arena, a.bytes), (long long)a.size, (long long)b.operations,
            bytes_words(d->arena, b.bytes), (long long)b.size);
      else if (a.groups != b.groups)
        say(d, "%s group%s: %lld -> %lld such groups", axes[k], where, (long long)a.groups, (long long)b.groups);
      else if (!d->cuts_differ)
        say(d, "%s group%s: the same volume, but other operations", axes[k], where);
    }
  end_section(d, "differences of groups");
}

static void diff_prediction(Diff *d) {
  const json_t *a = json_object_get(d->a->root, "prediction"), *b = json_object_get(d->b->root, "prediction");
  diff_time(d, "predicted step", json_number_at(a, "step_ns"), json_number_at(b, "step_ns"));
  double used[] = {json_number_at(a, "mfu"), json_number_at(b, "mfu")};
  if (used[0] != used[1])
    say(d, "predicted use of the machine (mfu): %.4g %% -> %.4g %%", 100 * used[0], 100 * used[1]);
}

/* True if the digests say that both files are the same bytes. */
static bool same_digest(const Document *a, const Document *b) {
  return a->root && b->root && a->form == b->form &&
         json_equal(json_object_get(a->root, "sha256"), json_object_get(b->root, "sha256"));
}

bool document_diff(Arena *arena, const Document *a, const Document *b, Text *out) {
  Diff d = {.arena = arena, .a = a, .b = b, .out = out, .same = true};
  if (same_digest(a, b)) return true;
  bool plans = a->form == DOCUMENT_PLAN && b->form == DOCUMENT_PLAN;
  if (plans) {
    diff_member(&d, "compiler", "compiler");
    diff_member(&d, "model", "model");
    DIFF_MEMBERS(&d, "source", "sha256");
    DIFF_MEMBERS(&d, "parallel", "pp", "dp", "tp", "cp", "ep", "zero", "sequence");
    DIFF_MEMBERS(&d, "batch", "global", "microbatch", "microbatches", "sequence_tokens");
  }
  diff_schedule(&d);
  if (plans) diff_cuts(&d);
  diff_costs(&d);
  if (plans) diff_chunk_figures(&d);
  if (plans) diff_plan_memory(&d);
  diff_peaks(&d);
  diff_messages(&d);
  diff_claims(&d);
  diff_actions(&d);
  if (plans) {
    diff_parameters(&d);
    diff_communicators(&d);
    DIFF_MEMBERS(&d, "cluster", "memory", "flops", "bandwidth", "latency", "node_bandwidth", "node_latency",
                 "ranks_per_node", "link_ns", "assumed");
    diff_prediction(&d);
    if (d.same) say(&d, "the files differ, but in nothing that matters"); /* as the order of parameters */
  }
  return d.same;
}
