/* Sections: one table of all keys, with type, range, default and place in the Config. Keys are evaluated when they are
 * first needed, so that a const may read `parallel.tp` and a section may read a const. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "semantic/sections.h"

#define AT(member) offsetof(Config, member)
#define SCHEDULES                                                                                                      \
  "gpipe|1f1b|eager-1f1b|interleaved|breadth-first|zb-h1|zb-h2|interleaved-zb|zb-v|v-half|v-min|1f1b-v|dualpipe|"      \
  "dualpipe-v|chimera|hanayo|pipedream|pipedream-2bw|auto"
static const double most = 9.2e18; /* a bound above it is no bound */

#define ANY -HUGE_VAL, HUGE_VAL
const KeyRow key_rows[] = {
    {"parallel", "pp", KEY_INT, "1", AT(pp), AT(pp_span), 1, 1 << 20, NULL},
    {"parallel", "dp", KEY_INT, "1", AT(dp), AT(dp_span), 1, 1 << 20, NULL},
    {"parallel", "tp", KEY_INT, "1", AT(tp), AT(tp_span), 1, 1 << 20, NULL},
    {"parallel", "cp", KEY_INT, "1", AT(cp), NOWHERE, 1, 1 << 20, NULL},
    {"parallel", "ep", KEY_INT, "1", AT(ep), NOWHERE, 1, 1 << 20, NULL},
    {"parallel", "zero", KEY_INT, "0", AT(zero), NOWHERE, 0, 3, NULL},
    {"parallel", "sequence", KEY_BOOL, "off", AT(sequence), NOWHERE, 0, 0, NULL},
    {"schedule", "kind", KEY_NAME, "1f1b", AT(schedule), AT(kind_span), 0, 0, SCHEDULES},
    {"schedule", "microbatch", KEY_INT, "1", AT(microbatch), AT(microbatch_span), 1, HUGE_VAL, NULL},
    {"schedule", "chunks", KEY_INT, "1", AT(chunks), AT(chunks_span), 1, 1 << 20, NULL},
    {"schedule", "accumulators", KEY_INT, "1", AT(accumulators), AT(accumulators_span), 1, 2, NULL},
    {"schedule", "recompute", KEY_CHOICE, "none", AT(recompute), NOWHERE, 0, 0, "none|selective|full"},
    {"schedule", "layout", KEY_TEXT, NULL, AT(layout), AT(layout_span), 0, 0, NULL},
    {"optimizer", "kind", KEY_CHOICE, "adamw", AT(optimizer), NOWHERE, 0, 0, "sgd|adam|adamw|lamb"},
    {"optimizer", "lr", KEY_RATE, "0.001", NOWHERE, NOWHERE, 0, HUGE_VAL, NULL},
    {"optimizer", "beta", KEY_PAIR, "(0.9, 0.95)", AT(beta1), NOWHERE, 0, 1, NULL},
    {"optimizer", "eps", KEY_REAL, "1e-8", AT(eps), NOWHERE, 0, HUGE_VAL, NULL},
    {"optimizer", "decay", KEY_REAL, "0", AT(decay), NOWHERE, 0, HUGE_VAL, NULL},
    {"optimizer", "momentum", KEY_REAL, "0", AT(momentum), NOWHERE, 0, 1, NULL},
    {"optimizer", "clip", KEY_REAL, "0", AT(clip), NOWHERE, 0, HUGE_VAL, NULL},
    {"precision", "compute", KEY_CHOICE, "f32", AT(compute), NOWHERE, 0, 0, "f32|f64|bf16"},
    {"precision", "master", KEY_NAME, "f32", NOWHERE, NOWHERE, 0, 0, "f32|f64"},
    {"precision", "reduce", KEY_NAME, "f32", NOWHERE, NOWHERE, 0, 0, "f32|f64"},
    {"data", "train", KEY_TEXT, NULL, NOWHERE, NOWHERE, 0, 0, NULL},
    {"data", "valid", KEY_TEXT, NULL, NOWHERE, NOWHERE, 0, 0, NULL},
    {"data", "format", KEY_NAME, NULL, NOWHERE, NOWHERE, 0, 0, "text|u16|u32|npy|idx"},
    {"data", "seed", KEY_INT, "1234", AT(seed), NOWHERE, 0, HUGE_VAL, NULL},
    {"data", "shuffle", KEY_BOOL, NULL, NOWHERE, NOWHERE, 0, 0, NULL},
    {"data", "scale", KEY_REAL, NULL, NOWHERE, NOWHERE, ANY, NULL},
    {"train", "steps", KEY_INT, "100", AT(steps), NOWHERE, 0, HUGE_VAL, NULL},
    {"train", "eval_every", KEY_INT, "0", AT(eval_every), NOWHERE, 0, HUGE_VAL, NULL},
    {"train", "save_every", KEY_INT, "0", AT(save_every), NOWHERE, 0, HUGE_VAL, NULL},
    {"train", "log_every", KEY_INT, "1", AT(log_every), NOWHERE, 0, HUGE_VAL, NULL},
    {"checkpoint", "dir", KEY_TEXT, NULL, NOWHERE, NOWHERE, 0, 0, NULL},
    {"checkpoint", "keep", KEY_INT, "0", NOWHERE, NOWHERE, 0, HUGE_VAL, NULL},
    {"checkpoint", "load", KEY_TEXT, NULL, NOWHERE, NOWHERE, 0, 0, NULL},
    {"checkpoint", "resume", KEY_BOOL, "off", NOWHERE, NOWHERE, 0, 0, NULL},
    {"cluster", "memory", KEY_REAL, NULL, AT(memory), AT(memory_span), 1, HUGE_VAL, NULL},
    {"cluster", "flops", KEY_REAL, NULL, AT(flops), NOWHERE, 1, HUGE_VAL, NULL},
    {"cluster", "bandwidth", KEY_REAL, NULL, AT(bandwidth), NOWHERE, 1, HUGE_VAL, NULL},
    {"cluster", "latency", KEY_REAL, NULL, AT(latency), NOWHERE, 0, HUGE_VAL, NULL},
    {"cluster", "node_bandwidth", KEY_REAL, NULL, AT(node_bandwidth), NOWHERE, 1, HUGE_VAL, NULL},
    {"cluster", "node_latency", KEY_REAL, NULL, AT(node_latency), NOWHERE, 0, HUGE_VAL, NULL},
    {"cluster", "ranks_per_node", KEY_INT, NULL, AT(ranks_per_node), NOWHERE, 1, 1 << 20, NULL},
};
const int key_count = sizeof key_rows / sizeof *key_rows;

static const char *const sections[] = {"parallel", "shard", "schedule",   "optimizer", "precision",
                                       "data",     "train", "checkpoint", "cluster"};
enum { SECTION_COUNT = sizeof sections / sizeof *sections };

bool may_be_open(const KeyRow *row) {
  return !strcmp(row->section, "parallel") && !strcmp(row->key, "dp");
}

SectionKeyInfo semantic_key(uint32_t index) {
  if (index >= (uint32_t)key_count) return (SectionKeyInfo){0};
  const KeyRow *row = &key_rows[index];
  const char *choices = row->type == KEY_BOOL ? "on|off" : may_be_open(row) ? "*" : row->choices;
  return (SectionKeyInfo){row->section, row->key, row->initial, choices};
}

/* ---- finding ---- */

int section_index(const char *name) {
  for (int i = 0; i < SECTION_COUNT; i++)
    if (!strcmp(sections[i], name)) return i;
  return -1;
}

int row_index(const char *section, const char *key) {
  for (int i = 0; i < key_count; i++)
    if (!strcmp(key_rows[i].section, section) && !strcmp(key_rows[i].key, key)) return i;
  return -1;
}

const char *dotted_name(Sem *sem, const KeyRow *row) {
  return arena_printf(sem->arena, "%s.%s", row->section, row->key);
}

void spelling_keys(Spelling *spelling, Sem *sem) {
  for (int i = 0; i < key_count; i++) spelling_try(spelling, dotted_name(sem, &key_rows[i]));
}

/* ---- evaluating a key ---- */

enum { SHORT_LIST = 40 }; /* bytes of choices that fit into a sentence */

/* "a, b or c" */
static const char *choice_list(Sem *sem, const char *choices, const char *last) {
  Text list = {.arena = sem->arena};
  for (const char *c = choices; *c;) {
    size_t length = strcspn(c, "|");
    bool ends = !c[length];
    if (c != choices) text_printf(&list, "%s", ends ? last : ", ");
    text_put(&list, c, length);
    c += length + !ends;
  }
  return list.at;
}

Const key_error(Sem *sem, const KeyRow *row, const Expr *value, const char *why) {
  Diag *diag = report(sem, !strcmp(row->section, "parallel") ? "E0401" : "E0208", value->span,
                      "`%s` must be %s, not `%s`", dotted_name(sem, row), why, source_text(sem, value->span, 40));
  if (row->choices) {
    Spelling spelling = spelling_of(value->kind == EXPR_STRING ? value->string : source_text(sem, value->span, 40));
    for (const char *c = row->choices; *c;) {
      size_t length = strcspn(c, "|");
      spelling_try(&spelling, arena_strndup(sem->arena, c, length));
      c += length + (c[length] == '|');
    }
    spelling_help(&spelling, diag);
    if (strlen(row->choices) > SHORT_LIST) diag_note(diag, "possible: %s", choice_list(sem, row->choices, ", "));
  }
  if (value->kind == EXPR_STAR && !strcmp(row->section, "parallel"))
    diag_help(diag,
              "only `dp` can be left to the launch: stages and parts of tensors are cut when the program is compiled");
  return (Const){.kind = CONST_ERROR};
}

/* `zb-h1` is a name here, though it looks like a difference: the text of the source without blanks. */
static const char *literal_text(Sem *sem, const Expr *value) {
  if (value->kind == EXPR_STRING) return value->string;
  const char *text = source_text(sem, value->span, 64);
  Text plain = {.arena = sem->arena};
  for (; *text; text++)
    if (*text != ' ') text_put(&plain, text, 1);
  return plain.at ? plain.at : "";
}

int choice_index(const char *choices, const char *text) {
  int index = 0;
  size_t length = strlen(text);
  for (const char *c = choices; *c; index++) {
    size_t n = strcspn(c, "|");
    if (n == length && !memcmp(c, text, n)) return index;
    c += n + (c[n] == '|');
  }
  return -1;
}

Const number_key(Sem *sem, const KeyRow *row, const Expr *value) {
  if (value->kind == EXPR_STAR) {
    if (may_be_open(row)) return (Const){.kind = CONST_ERROR}; /* nobody knows yet */
    return key_error(sem, row, value, row->type == KEY_INT ? "a whole number" : "a number");
  }
  Const c = const_eval(sem, sem->root, NULL, value);
  if (c.kind == CONST_ERROR) return c;
  bool integer = row->type == KEY_INT;
  if (integer && c.kind == CONST_REAL && c.real == floor(c.real) && fabs(c.real) < 9e15) c = const_int((int64_t)c.real);
  if (integer ? c.kind != CONST_INT : !const_is_number(c))
    return key_error(sem, row, value, integer ? "a whole number" : "a number");
  double x = const_number(c);
  if (x >= row->low && x <= row->high) return c;
  if (x < row->low && row->high > most)
    return key_error(sem, row, value, arena_printf(sem->arena, "at least %g", row->low));
  return key_error(sem, row, value, arena_printf(sem->arena, "from %.10g to %.10g", row->low, row->high));
}

static bool has_unknown_name(Sem *sem, const Expr *expr) {
  Const ignored;
  if (expr->kind == EXPR_NAME)
    return !find_symbol(sem, sem->root, expr->name.text) && !section_const(sem, expr->name.text, &ignored);
  for (uint32_t i = 0; i < expr->arg_count; i++)
    if (has_unknown_name(sem, expr->args[i])) return true;
  return false;
}

static Const eval_key(Sem *sem, const KeyRow *row, const Expr *value) {
  switch (row->type) {
  case KEY_INT:
  case KEY_REAL:
    return number_key(sem, row, value);
  case KEY_BOOL: {
    if (value->kind == EXPR_NAME && (!strcmp(value->name.text, "on") || !strcmp(value->name.text, "off")))
      return const_bool(value->name.text[1] == 'n');
    bool word =
        value->kind == EXPR_NAME && strcmp(value->name.text, "true") != 0 && strcmp(value->name.text, "false") != 0;
    if (word && !find_symbol(sem, sem->root, value->name.text)) return key_error(sem, row, value, "on or off");
    Const c = const_eval(sem, sem->root, NULL, value);
    return c.kind == CONST_BOOL || c.kind == CONST_ERROR ? c : key_error(sem, row, value, "on or off");
  }
  case KEY_CHOICE:
  case KEY_NAME: {
    const char *text = literal_text(sem, value);
    if (choice_index(row->choices, text) >= 0) return const_text(text);
    bool brief = strlen(row->choices) <= SHORT_LIST;
    return key_error(sem, row, value, brief ? choice_list(sem, row->choices, " or ") : "one of the known kinds");
  }
  case KEY_TEXT: {
    if (value->kind == EXPR_NAME && !find_symbol(sem, sem->root, value->name.text)) return const_text(value->name.text);
    if (value->kind == EXPR_BINARY && has_unknown_name(sem, value)) { /* pile/train.bin */
      Diag *diag = report(sem, "E0208", value->span, "`%s` must be a string", dotted_name(sem, row));
      diag_help(diag, "put it in quotes: \"%s\"", literal_text(sem, value));
      return (Const){.kind = CONST_ERROR};
    }
    Const c = const_eval(sem, sem->root, NULL, value);
    return c.kind == CONST_TEXT || c.kind == CONST_ERROR ? c : key_error(sem, row, value, "a string");
  }
  case KEY_PAIR:
  case KEY_RATE:
    break;
  }
  return const_real(0); /* read by fill_config */
}

Const default_const(const KeyRow *row) {
  if (!row->initial) return (Const){.kind = CONST_ERROR};
  double x = 0;
  switch (row->type) {
  case KEY_INT:
    sscanf(row->initial, "%lf", &x);
    return const_int((int64_t)x);
  case KEY_REAL:
  case KEY_RATE:
    sscanf(row->initial, "%lf", &x);
    return const_real(x);
  case KEY_BOOL:
    return const_bool(!strcmp(row->initial, "on"));
  default:
    return const_text(row->initial);
  }
}

Const key_const(Sem *sem, int index) {
  SectionKey *key = &sem->keys[index];
  if (key->state == STATE_DONE) return key->constant;
  if (key->state == STATE_BUSY) {
    report(sem, "E0212", key->value->span, "`%s` is defined by itself", dotted_name(sem, &key_rows[index]));
    key->state = STATE_DONE;
    return key->constant = (Const){.kind = CONST_ERROR};
  }
  key->state = STATE_BUSY;
  Const c = key->value ? eval_key(sem, &key_rows[index], key->value) : default_const(&key_rows[index]);
  if (key->state == STATE_DONE) return key->constant;
  key->state = STATE_DONE;
  return key->constant = c;
}

const Expr *open_degree(const Sem *sem) {
  const Expr *value = sem->keys[row_index("parallel", "dp")].value;
  return value && value->kind == EXPR_STAR ? value : NULL;
}

bool section_const(Sem *sem, const char *dotted, Const *result) {
  for (int i = 0; i < key_count; i++) {
    size_t length = strlen(key_rows[i].section);
    if (strncmp(key_rows[i].section, dotted, length) != 0 || dotted[length] != '.' ||
        strcmp(key_rows[i].key, dotted + length + 1))
      continue;
    if (key_rows[i].type == KEY_PAIR || (!key_rows[i].initial && !sem->keys[i].value)) return false;
    if (key_rows[i].type == KEY_RATE && sem->keys[i].value) {
      *result = const_eval(sem, sem->root, NULL, sem->keys[i].value);
      return true;
    }
    *result = key_const(sem, i);
    return true;
  }
  return false;
}

/* ---- reading sections ---- */

/* What other programs call it, or where else it stands. */
static bool key_elsewhere(const char *name, Diag *diag) {
  static const char *const rows[][2] = {
      {"learning_rate", "the learning rate is `optimizer < lr=...; >`"},
      {"weight_decay", "weight decay is `optimizer < decay=...; >`"},
      {"grad_clip", "clipping is `optimizer < clip=...; >`"},
      {"clip_norm", "clipping is `optimizer < clip=...; >`"},
      {"max_grad_norm", "clipping is `optimizer < clip=...; >`"},
      {"warmup", "a warm-up belongs to the rate: `lr=cosine(peak, warmup=...);`"},
      {"batch_size", "the batch is the first axis of the inputs: `dim batch = ...;`"},
      {"batch", "the batch is the first axis of the inputs: `dim batch = ...;`"},
      {"epochs", "training is counted in steps: `train < steps=...; >`"},
      {"microbatches", "there are batch / (dp * microbatch) of them: set `schedule < microbatch=...; >`"},
      {"accumulate", "micro-batches are accumulated: set `schedule < microbatch=...; >`"}};
  for (int i = 0; i < key_count; i++) {
    if (strcmp(key_rows[i].key, name) != 0) continue;
    diag_help(diag, "`%s` is a key of `%s < >`", name, key_rows[i].section);
    return true;
  }
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (strcmp(rows[i][0], name) != 0) continue;
    diag_help(diag, "%s", rows[i][1]);
    return true;
  }
  return false;
}

static void unknown_key(Sem *sem, const char *section, const Name *name) {
  Diag *diag = report(sem, "E0206", name->span, "section `%s` has no key `%s`", section, name->text);
  if (key_elsewhere(name->text, diag)) return;
  Spelling spelling = spelling_of(name->text);
  Text list = {.arena = sem->arena};
  for (int i = 0; i < key_count; i++) {
    if (strcmp(key_rows[i].section, section) != 0) continue;
    spelling_try(&spelling, key_rows[i].key);
    text_printf(&list, "%s%s", list.length ? ", " : "", key_rows[i].key);
  }
  spelling_help(&spelling, diag);
  if (!spelling.best) diag_note(diag, "its keys are %s", list.at);
}

bool is_data_file(const char *section, const char *key) {
  return !strcmp(section, "data") && (!strncmp(key, "train.", 6) || !strncmp(key, "valid.", 6));
}

void read_binding(Sem *sem, const char *section, const Name *name, const Expr *value, bool override) {
  if (!strcmp(section, "shard")) {
    for (uint32_t i = 0; i < sem->shard.count; i++) {
      if (sem->shard.at[i].name.text != name->text) continue;
      if (override) {
        sem->shard.at[i].value = value;
        return;
      }
      Diag *diag = report(sem, "E0207", name->span, "`%s` is split twice", name->text);
      diag_label(diag, sem->shard.at[i].name.span, "first here");
      return;
    }
    vec_push(sem->arena, &sem->shard, (ShardRule){.name = *name, .value = value});
    return;
  }
  if (is_data_file(section, name->text)) {
    if (value->kind != EXPR_STRING) {
      report(sem, "E0208", value->span, "`data.%s` must be a string", name->text);
      return;
    }
    for (uint32_t i = 0; i < sem->out->config.data.count; i++) {
      KeyValue *old = &sem->out->config.data.at[i];
      if (strcmp(old->key, name->text) != 0) continue;
      if (!override)
        diag_label(report(sem, "E0207", name->span, "`data.%s` is given twice", name->text), old->span, "first here");
      old->value = value->string;
      return;
    }
    vec_push(sem->arena, &sem->out->config.data, (KeyValue){name->text, value->string, name->span, value->span});
    return;
  }
  int row = row_index(section, name->text);
  if (row < 0) {
    unknown_key(sem, section, name);
    return;
  }
  SectionKey *key = &sem->keys[row];
  if (key->value && !override) {
    Diag *diag = report(sem, "E0207", name->span, "`%s` is given twice", dotted_name(sem, &key_rows[row]));
    diag_label(diag, key->span, "first here");
    return;
  }
  key->value = value;
  key->span = name->span;
}

void read_sections(Sem *sem) {
  sem->keys = ARENA_ARRAY(sem->arena, SectionKey, key_count);
  const Module *module = sem->root->module;
  for (uint32_t i = 0; i < module->item_count; i++) {
    const Item *item = module->items[i];
    if (item->kind != ITEM_SECTION) continue;
    int index = section_index(item->name.text);
    if (index < 0) {
      sem->rule_in_error = true; /* `shard`, perhaps */
      Diag *diag = report(sem, "E0205", item->name.span, "unknown section `%s`", item->name.text);
      Spelling spelling = spelling_of(item->name.text);
      Text list = {.arena = sem->arena};
      for (int k = 0; k < SECTION_COUNT; k++) {
        spelling_try(&spelling, sections[k]);
        text_printf(&list, "%s%s", k ? ", " : "", sections[k]);
      }
      if (!spelling.best) diag_note(diag, "sections are %s", list.at);
      spelling_help(&spelling, diag);
      continue;
    }
    if (sem->section_item[index]) {
      Diag *diag = report(sem, "E0207", item->name.span, "section `%s` is given twice", item->name.text);
      diag_label(diag, sem->section_item[index]->name.span, "first here");
      continue;
    }
    sem->section_item[index] = item;
    for (uint32_t k = 0; k < item->binding_count; k++)
      read_binding(sem, item->name.text, &item->bindings[k].name, item->bindings[k].value, false);
  }
}
