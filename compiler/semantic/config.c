/* The Config: the sections as the passes after this one read them, with defaults, and with what can only be said once
 * the model is known: micro-batches, and the learning rate's counts in steps. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "semantic/sections.h"

static void read_pair(Sem *sem, const KeyRow *row, const Expr *value, double *pair) {
  bool usable = value->kind == EXPR_TUPLE && value->arg_count == 2;
  for (unsigned i = 0; usable && i < 2; i++) {
    if (!eval_number(sem, sem->root, NULL, value->args[i], dotted_name(sem, row), &pair[i])) return;
    usable = pair[i] >= row->low && pair[i] < row->high;
  }
  if (!usable) key_error(sem, row, value, "two numbers from 0 to below 1, like (0.9, 0.95)");
}

typedef struct RateArgument {
  const char *name;
  double *place;
  bool given;
} RateArgument;

/* The arguments of `cosine(…)` and the like; false after a report. */
static bool read_schedule(Sem *sem, const Expr *value) {
  Config *config = &sem->out->config;
  bool constant = config->rate == RATE_CONSTANT;
  RateArgument arguments[] = {{"peak", &config->peak, false},
                              {constant ? "warmup" : "floor", constant ? &config->warmup : &config->floor, false},
                              {"warmup", &config->warmup, false},
                              {"end", &config->end, false},
                              {"decay_from", &config->decay_from, false}};
  unsigned count = constant ? 2 : config->rate == RATE_WSD ? 5 : 4, next = 0;
  for (uint32_t i = 0; i < value->arg_count; i++) {
    unsigned at = next;
    const char *name = value->arg_names ? value->arg_names[i].text : NULL;
    for (unsigned k = 0; name && k < count; k++)
      if (!strcmp(arguments[k].name, name)) at = k;
    bool known = !name || (at < count && !strcmp(arguments[at < count ? at : 0].name, name));
    if (!known || at >= count || arguments[at].given) {
      Diag *diag = report(sem, "E0215", name ? value->arg_names[i].span : value->args[i]->span,
                          "`%s` takes peak, %s%s, each once", value->name.text,
                          constant ? "warmup=" : "floor, warmup=, end=",
                          config->rate == RATE_WSD ? ", decay_from=" : "");
      Spelling spelling = spelling_of(name ? name : "");
      for (unsigned k = 0; k < count && !known; k++) spelling_try(&spelling, arguments[k].name);
      spelling_help(&spelling, diag);
      return false;
    }
    arguments[at].given = true;
    if (!name) next++;
    const char *what = arena_printf(sem->arena, "`%s` of `%s`", arguments[at].name, value->name.text);
    if (!eval_number(sem, sem->root, NULL, value->args[i], what, arguments[at].place)) return false;
    if (*arguments[at].place < 0) {
      report(sem, "E0208", value->args[i]->span, "%s must not be negative", what);
      return false;
    }
  }
  if (!arguments[0].given) {
    report(sem, "E0215", value->span, "`%s` needs a peak", value->name.text);
    return false;
  }
  if (constant) config->floor = config->peak;
  if (!arguments[3].given) config->end = -1; /* the last step, known later */
  if (!arguments[4].given) config->decay_from = -1;
  return true;
}

static void read_rate(Sem *sem, const KeyRow *row, const Expr *value) {
  Config *config = &sem->out->config;
  static const char *const kinds[] = {"cosine", "linear", "wsd", "constant"};
  static const RateKind rates[] = {RATE_COSINE, RATE_LINEAR, RATE_WSD, RATE_CONSTANT};
  enum { KINDS = sizeof kinds / sizeof *kinds };
  sem->rate = value;
  if (value->kind != EXPR_CALL || is_const_function(value->name.text)) {
    SectionKey number = {.value = value};
    KeyRow real = *row;
    real.type = KEY_REAL;
    Const c = number_key(sem, &real, number.value);
    config->rate = RATE_CONSTANT;
    config->peak = config->floor = const_is_number(c) ? const_number(c) : 0;
    return;
  }
  int kind = -1;
  for (int i = 0; i < KINDS; i++)
    if (!strcmp(kinds[i], value->name.text)) kind = i;
  if (kind < 0) {
    Diag *diag = report(sem, "E0208", value->name.span, "unknown learning-rate schedule `%s`", value->name.text);
    Spelling spelling = spelling_of(value->name.text);
    for (int i = 0; i < KINDS; i++) spelling_try(&spelling, kinds[i]);
    spelling_help(&spelling, diag);
    diag_note(diag, "a number, constant(peak, warmup=), or cosine, linear or wsd (peak, floor, warmup=, end=)");
    return;
  }
  config->rate = rates[kind];
  if (!read_schedule(sem, value)) config->rate = RATE_CONSTANT; /* reported: nothing else is said of it */
}

static void store(Sem *sem, int index) {
  const KeyRow *row = &key_rows[index];
  const SectionKey *key = &sem->keys[index];
  char *config = (char *)&sem->out->config;
  if (row->span != NOWHERE) {
    Span span = key->value ? key->value->span : NO_SPAN;
    const Item *section = sem->section_item[section_index(row->section)];
    if (!key->value && section) span = section->name.span;
    memcpy(config + row->span, &span, sizeof span);
  }
  if (row->type == KEY_PAIR) {
    double pair[2] = {0.9, 0.95};
    if (key->value) read_pair(sem, row, key->value, pair);
    memcpy(config + row->place, pair, sizeof pair);
    return;
  }
  if (row->type == KEY_RATE && key->value) {
    read_rate(sem, row, key->value);
    return;
  }
  Const c = key_const(sem, index);
  if (row->type == KEY_RATE) sem->out->config.peak = sem->out->config.floor = c.real;
  if (row->place == NOWHERE) return;
  if (c.kind == CONST_ERROR) c = default_const(row);
  switch (row->type) {
  case KEY_INT: {
    int64_t value = c.integer;
    memcpy(config + row->place, &value, sizeof value);
    break;
  }
  case KEY_REAL: {
    double value = const_is_number(c) ? const_number(c) : 0;
    memcpy(config + row->place, &value, sizeof value);
    break;
  }
  case KEY_BOOL: {
    bool value = c.integer != 0;
    memcpy(config + row->place, &value, sizeof value);
    break;
  }
  case KEY_CHOICE: {
    int value = choice_index(row->choices, c.text);
    memcpy(config + row->place, &value, sizeof value); /* enums are ints; their order is the order of the choices */
    break;
  }
  case KEY_NAME:
  case KEY_TEXT:
    memcpy(config + row->place, &c.text, sizeof c.text);
    break;
  case KEY_PAIR:
  case KEY_RATE:
    break;
  }
}

_Static_assert(sizeof(OptimizerKind) == sizeof(int) && sizeof(Precision) == sizeof(int), "enums are stored as ints");
_Static_assert(offsetof(Config, beta2) == offsetof(Config, beta1) + sizeof(double), "beta is stored as a pair");

static void not_supported(Sem *sem, const char *section, const char *key, bool used, const char *instead) {
  const SectionKey *k = &sem->keys[row_index(section, key)];
  if (used && k->value)
    diag_help(report(sem, "E0408", k->value->span, "this version does not support `%s=%s` yet", key,
                     source_text(sem, k->value->span, 20)),
              "leave `%s` out%s%s", key, *instead ? "; " : "", instead);
}

/* What is said of links between nodes means nothing while nobody says where nodes end. */
static void check_nodes(Sem *sem) {
  static const char *const keys[] = {"node_bandwidth", "node_latency"};
  for (int i = 0; i < 2 && sem->out->config.ranks_per_node <= 0; i++) {
    const SectionKey *key = &sem->keys[row_index("cluster", keys[i])];
    if (!key->value) continue;
    diag_help(report(sem, "E0521", key->value->span, "`%s` is of links between nodes, but no rank is on another node",
                     keys[i]),
              "say how many ranks share a node: `cluster < ranks_per_node=8; … >`; or leave `%s` out", keys[i]);
  }
}

void fill_config(Sem *sem) {
  Config *config = &sem->out->config;
  for (int i = 0; i < key_count; i++) store(sem, i);
  for (int i = 0; i < key_count; i++) {
    bool data = !strcmp(key_rows[i].section, "data");
    if ((!data && strcmp(key_rows[i].section, "checkpoint") != 0) || !sem->keys[i].value) continue;
    Const c = key_const(sem, i);
    if (c.kind == CONST_ERROR) continue;
    KeyValue pair = {key_rows[i].key, c.kind == CONST_TEXT ? c.text : const_value_text(sem, c), sem->keys[i].span,
                     sem->keys[i].value->span};
    if (data)
      vec_push(sem->arena, &config->data, pair);
    else
      vec_push(sem->arena, &config->checkpoint, pair);
  }
  const Item *parallel = sem->section_item[section_index("parallel")],
             *schedule = sem->section_item[section_index("schedule")],
             *cluster = sem->section_item[section_index("cluster")];
  config->parallel_span = parallel ? parallel->name.span : NO_SPAN;
  config->schedule_span = schedule ? schedule->name.span : NO_SPAN;
  config->dp_open = open_degree(sem) != NULL;
  config->chunks_said = sem->keys[row_index("schedule", "chunks")].value != NULL;
  config->cluster_span = cluster ? cluster->name.span : NO_SPAN;
  check_nodes(sem);
  not_supported(sem, "parallel", "cp", config->cp > 1,
                "`tp`, `recompute=full` and a small `microbatch` make room for long sequences");
  not_supported(sem, "parallel", "ep", config->ep > 1, "`tp` divides the weights of a layer");
  not_supported(sem, "parallel", "zero", config->zero > 0, "`pp` and `tp` divide the optimizer's state");
  not_supported(sem, "parallel", "sequence", config->sequence,
                "`recompute=selective` keeps less of what tensor-parallel ranks have alike");
  static const char *const wide[] = {"master", "reduce"};
  for (int i = 0; i < 2; i++) {
    Const c = key_const(sem, row_index("precision", wide[i]));
    not_supported(sem, "precision", wide[i],
                  c.kind == CONST_TEXT && !strcmp(c.text, "f64") && config->compute != PRECISION_F64,
                  "or compute in f64 too: `compute=f64`");
  }
}

/* ---- what needs the model ---- */

static void finish_batch(Sem *sem) {
  Config *config = &sem->out->config;
  const Axis *batch = &sem->graph->axes.at[sem->batch];
  config->batch = batch->size;
  int64_t step;
  bool fits = !__builtin_mul_overflow(config->dp, config->microbatch, &step);
  if (fits && batch->size % step == 0) {
    config->microbatches = batch->size / step;
    return;
  }
  Span span = config->microbatch_span;
  if (sem->keys[row_index("schedule", "microbatch")].value == NULL) span = config->dp_span;
  if (span.file == UINT32_MAX) span = batch->span;
  const char *step_text = config->dp_open ? arena_printf(sem->arena, "microbatch = %" PRId64, config->microbatch)
                                          : arena_printf(sem->arena, "dp * microbatch = %" PRId64 " * %" PRId64,
                                                         config->dp, config->microbatch);
  Diag *diag = report(sem, "E0501", span, "the batch `%s` = %" PRId64 " is not divisible by %s", batch->name,
                      batch->size, step_text);
  diag_label(diag, batch->span, "`%s` = %" PRId64, batch->name, batch->size);
  Id id = sem->batch;
  axis_notes(sem, diag, 1, &id);
  if (!fits || step > batch->size) {
    if (fits)
      diag_help(diag, "a batch has at least %smicrobatch = %" PRId64 " samples", config->dp_open ? "" : "dp * ", step);
    return;
  }
  int64_t below = batch->size / step * step, per_rank = batch->size / config->dp, micro = config->microbatch;
  if (step > INT64_MAX - below) return;
  if (batch->size % config->dp == 0) {
    for (unsigned tried = 0; per_rank % micro; micro--)
      if (++tried > 1000000) micro = 2; /* 1 divides all */
    diag_help(diag, "the nearest batches that divide are %" PRId64 " and %" PRId64 "; or microbatch=%" PRId64, below,
              below + step, micro);
  } else {
    diag_help(diag, "the nearest batches that divide are %" PRId64 " and %" PRId64, below, below + step);
  }
}

static void finish_rate(Sem *sem) {
  Config *config = &sem->out->config;
  if (config->rate == RATE_CONSTANT) {
    config->end = config->decay_from = 0;
    return;
  }
  bool given = config->end >= 0;
  config->rate_in_tokens = given && config->end >= 1e8;
  if (config->rate_in_tokens) {
    double tokens = 0;
    for (uint32_t i = 0; i < sem->graph->data.count && tokens == 0; i++) {
      const Data *data = &sem->graph->data.at[i];
      if (data->dtype != DT_I32) continue;
      tokens = 1;
      for (unsigned k = 0; k < data->rank; k++) tokens *= (double)sem->graph->axes.at[data->axes[k]].size;
    }
    if (tokens == 0) {
      report(sem, "E0208", sem->rate->span,
             "an `end` of 100M or more is a number of tokens, and the model has no i32 input");
      return;
    }
    config->warmup /= tokens;
    config->end /= tokens;
    if (config->decay_from >= 0) config->decay_from /= tokens;
  }
  if (!given) config->end = (double)config->steps;
  if (config->decay_from < 0) config->decay_from = config->rate == RATE_WSD ? config->end * 0.9 : 0;
  if (config->warmup > config->end) {
    Diag *diag = report(sem, "E0208", sem->rate->span, "the warm-up (%g steps) is longer than the schedule (%g steps)",
                        config->warmup, config->end);
    if (!given) diag_note(diag, "`end` is not given: it is train.steps = %" PRId64, config->steps);
  }
  if (config->warmup <= config->end && config->rate == RATE_WSD &&
      (config->decay_from < config->warmup || config->decay_from > config->end))
    report(sem, "E0208", sem->rate->span, "`decay_from` (step %g) must lie between warm-up and end",
           config->decay_from);
}

static bool is_read(const Graph *graph, uint32_t input) {
  for (uint32_t i = 0; i < graph->values.count; i++)
    if (graph->values.at[i].kind == VALUE_DATA && graph->values.at[i].source == input) return true;
  return false;
}

/* `train.x = …`: the inputs of the model each from a file of their own, and then nothing else says where from. */
static void check_files(Sem *sem, const char *split) {
  const Config *config = &sem->out->config;
  const Graph *graph = sem->graph;
  const KeyValue *whole = NULL, *part = NULL, *format = NULL;
  size_t length = strlen(split);
  for (uint32_t i = 0; i < config->data.count; i++) {
    const KeyValue *pair = &config->data.at[i];
    if (!strcmp(pair->key, split)) whole = pair;
    if (!strcmp(pair->key, "format")) format = pair;
    if (!part && !strncmp(pair->key, split, length) && pair->key[length] == '.') part = pair;
  }
  if (!part) return;
  if (whole) {
    Diag *diag = report(sem, "E0207", part->span, "`data.%s` and `data.%s` both say what to read", split, part->key);
    diag_label(diag, whole->span, "for all inputs");
    diag_help(diag, "keep `%s`, a file or a directory for all inputs, or a `%s.NAME` for each", split, split);
    return;
  }
  if (format && !strcmp(split, "train"))
    diag_help(report(sem, "E0208", format->value_span,
                     "`data.format` is for a single file, and `data.%s` names one for each input", part->key),
              "leave `format` out: what an array file is, its first bytes tell");
  for (uint32_t k = 0; k < graph->data.count; k++) {
    const char *key = arena_printf(sem->arena, "%s.%s", split, graph->data.at[k].name);
    bool given = false;
    for (uint32_t i = 0; i < config->data.count; i++) given |= !strcmp(config->data.at[i].key, key);
    if (given || diag_errors(sem->diagnostics) || !is_read(graph, k)) continue;
    Diag *diag = diag_warning(sem->diagnostics, "W0202", part->span, "the input `%s` is given no %s data",
                              graph->data.at[k].name, !strcmp(split, "train") ? "training" : "validation");
    diag_label(diag, graph->data.at[k].span, "the model reads it");
    diag_help(diag, "add `%s=\"FILE\";`, or start the program with --%s", key,
              !strcmp(split, "train") ? "data" : "valid");
  }
}

/* A stream of tokens feeds one or two integer inputs of one shape [batch, n]. */
static void check_stream(Sem *sem, const KeyValue *format) {
  const Graph *graph = sem->graph;
  if (strcmp(format->value, "text") != 0 && strcmp(format->value, "u16") != 0 && strcmp(format->value, "u32") != 0)
    return;
  for (uint32_t i = 0; i < graph->data.count; i++) {
    const Data *data = &graph->data.at[i], *first = &graph->data.at[0];
    bool fits = i < 2 && data->dtype == DT_I32 && data->rank == 2 &&
                graph->axes.at[data->axes[1]].size == graph->axes.at[first->axes[1]].size;
    if (fits) continue;
    Diag *diag = report(sem, "E0208", format->value_span,
                        "`data.format=%s` is a stream of tokens, which the input `%s` cannot be read from",
                        format->value, data->name);
    diag_label(diag, data->span, "%s%s", data->dtype == DT_I32 ? "i32" : "",
               axes_text(graph, data->rank, data->axes, true));
    diag_note(diag,
              "a stream feeds models of one or two inputs i32[batch, seq]: the tokens, and the same one further on");
    diag_help(diag, "leave `format` out, and give a directory with an array for each input");
    return;
  }
}

/* What an `xent` ignores is found when the input is read; whoever looks it up would miss it. */
static void check_ignored(Sem *sem) {
  const Graph *graph = sem->graph;
  for (uint32_t i = 0; i < graph->ops.count; i++) {
    const Op *op = &graph->ops.at[i];
    const Value *ids = op->kind == OP_GATHER ? &graph->values.at[op->in[1]] : NULL;
    if (!ids || ids->kind != VALUE_DATA) continue;
    const Data *data = &graph->data.at[ids->source];
    if (!data->ignores || data->ignored == -100) continue;
    Diag *diag = report(sem, "E0921", data->ignored_span, "`%s` is looked up by `gather` too, so `ignore` must be -100",
                        data->name);
    diag_label(diag, op->span, "looked up here");
    diag_help(diag, "give the targets an input of their own");
    return;
  }
}

static void finish_data(Sem *sem) {
  const Config *config = &sem->out->config;
  for (uint32_t i = 0; i < config->data.count; i++) {
    const KeyValue *pair = &config->data.at[i];
    if (!strcmp(pair->key, "format")) check_stream(sem, pair);
    if (!is_data_file("data", pair->key)) continue;
    bool found = false;
    Spelling spelling = spelling_of(pair->key + 6);
    Text inputs = {.arena = sem->arena};
    for (uint32_t k = 0; k < sem->graph->data.count; k++) {
      found |= !strcmp(sem->graph->data.at[k].name, pair->key + 6);
      spelling_try(&spelling, sem->graph->data.at[k].name);
      text_printf(&inputs, "%s`%s`", k ? ", " : "", sem->graph->data.at[k].name);
    }
    if (found) continue;
    Diag *diag = report(sem, "E0206", pair->span, "`data.%s`: the model has no input `%s`", pair->key, pair->key + 6);
    if (inputs.length && inputs.length < 200) diag_note(diag, "its inputs are %s", inputs.at);
    spelling_help(&spelling, diag);
  }
  check_ignored(sem);
  check_files(sem, "train");
  check_files(sem, "valid");
}

void finish_config(Sem *sem) {
  if (sem->batch == NO_ID) return;
  finish_batch(sem);
  finish_rate(sem);
  finish_data(sem);
}
