/* Sections: one table of all keys, with type, range, default and place in the Config. Keys are evaluated when they are
 * first needed, so that a const may read `parallel.tp` and a section may read a const. `-D` overrides both. */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "semantic/internal.h"

typedef enum KeyType {
  KEY_INT,    /* int64_t */
  KEY_REAL,   /* double */
  KEY_BOOL,   /* bool */
  KEY_CHOICE, /* an enum, by position in `choices`; or text if place is NULL-typed: see KEY_NAME */
  KEY_NAME,   /* const char *: one of choices */
  KEY_TEXT,   /* const char * */
  KEY_PAIR,   /* two doubles */
  KEY_RATE    /* the learning rate */
} KeyType;

typedef struct KeyRow {
  const char *section, *key;
  KeyType type;
  const char *initial; /* default, as written; NULL: none */
  size_t place, span;  /* in Config; NOWHERE */
  double low, high;
  const char *choices;
} KeyRow;

#define NOWHERE SIZE_MAX
#define AT(member) offsetof(Config, member)
#define SCHEDULES                                                                                                 \
  "gpipe|1f1b|eager-1f1b|interleaved|breadth-first|zb-h1|zb-h2|interleaved-zb|zb-v|v-half|v-min|1f1b-v|dualpipe|" \
  "dualpipe-v|chimera|hanayo|pipedream|pipedream-2bw|auto"
static const double most = 9.2e18;

#define ANY -HUGE_VAL, HUGE_VAL
static const KeyRow rows[] = {
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
    {"schedule", "recompute", KEY_CHOICE, "none", AT(recompute), NOWHERE, 0, 0, "none|selective|full"},
    {"schedule", "layout", KEY_TEXT, NULL, AT(layout), NOWHERE, 0, 0, NULL},
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
    {"data", "format", KEY_TEXT, NULL, NOWHERE, NOWHERE, 0, 0, NULL},
    {"data", "seed", KEY_INT, "1234", AT(seed), NOWHERE, 0, HUGE_VAL, NULL},
    {"data", "shuffle", KEY_BOOL, NULL, NOWHERE, NOWHERE, 0, 0, NULL},
    {"data", "scale", KEY_REAL, NULL, NOWHERE, NOWHERE, ANY, NULL},
    {"train", "steps", KEY_INT, "100", AT(steps), NOWHERE, 0, HUGE_VAL, NULL},
    {"train", "eval_every", KEY_INT, "0", AT(eval_every), NOWHERE, 0, HUGE_VAL, NULL},
    {"train", "save_every", KEY_INT, "0", AT(save_every), NOWHERE, 0, HUGE_VAL, NULL},
    {"train", "log_every", KEY_INT, "1", AT(log_every), NOWHERE, 0, HUGE_VAL, NULL},
    {"checkpoint", "dir", KEY_TEXT, NULL, NOWHERE, NOWHERE, 0, 0, NULL},
    {"checkpoint", "keep", KEY_INT, NULL, NOWHERE, NOWHERE, 0, HUGE_VAL, NULL},
    {"checkpoint", "load", KEY_TEXT, NULL, NOWHERE, NOWHERE, 0, 0, NULL},
    {"checkpoint", "resume", KEY_BOOL, NULL, NOWHERE, NOWHERE, 0, 0, NULL},
    {"cluster", "memory", KEY_REAL, NULL, AT(memory), AT(memory_span), 1, HUGE_VAL, NULL},
    {"cluster", "flops", KEY_REAL, NULL, AT(flops), NOWHERE, 1, HUGE_VAL, NULL},
    {"cluster", "bandwidth", KEY_REAL, NULL, AT(bandwidth), NOWHERE, 1, HUGE_VAL, NULL},
    {"cluster", "latency", KEY_REAL, NULL, AT(latency), NOWHERE, 0, HUGE_VAL, NULL},
    {"cluster", "node_bandwidth", KEY_REAL, NULL, AT(node_bandwidth), NOWHERE, 1, HUGE_VAL, NULL},
    {"cluster", "node_latency", KEY_REAL, NULL, AT(node_latency), NOWHERE, 0, HUGE_VAL, NULL},
    {"cluster", "ranks_per_node", KEY_INT, NULL, AT(ranks_per_node), NOWHERE, 1, 1 << 20, NULL},
};
enum { ROW_COUNT = sizeof rows / sizeof *rows };

static const char *const sections[] = {"parallel", "shard", "schedule",   "optimizer", "precision",
                                       "data",     "train", "checkpoint", "cluster"};
enum { SECTION_COUNT = sizeof sections / sizeof *sections };

/* ---- finding ---- */

static int section_index(const char *name) {
  for (int i = 0; i < SECTION_COUNT; i++)
    if (!strcmp(sections[i], name)) return i;
  return -1;
}

static int row_index(const char *section, const char *key) {
  for (int i = 0; i < ROW_COUNT; i++)
    if (!strcmp(rows[i].section, section) && !strcmp(rows[i].key, key)) return i;
  return -1;
}

static const char *dotted_name(Sem *sem, const KeyRow *row) {
  return arena_printf(sem->arena, "%s.%s", row->section, row->key);
}

void spelling_keys(Spelling *spelling, Sem *sem) {
  for (int i = 0; i < ROW_COUNT; i++) spelling_try(spelling, dotted_name(sem, &rows[i]));
}

/* ---- evaluating a key ---- */

static Const key_error(Sem *sem, const KeyRow *row, const Expr *value, const char *why) {
  Diag *diag = report(sem, !strcmp(row->section, "parallel") ? "E0401" : "E0208", value->span,
                          "`%s` must be %s, not `%s`", dotted_name(sem, row), why, source_text(sem, value->span, 40));
  if (row->choices) {
    Text list = {.arena = sem->arena};
    for (const char *c = row->choices; *c; c++) text_put(&list, *c == '|' ? ", " : c, *c == '|' ? 2 : 1);
    Spelling spelling = spelling_of(value->kind == EXPR_STRING ? value->string : source_text(sem, value->span, 40));
    for (const char *c = row->choices; *c;) {
      size_t length = strcspn(c, "|");
      spelling_try(&spelling, arena_strndup(sem->arena, c, length));
      c += length + (c[length] == '|');
    }
    spelling_help(&spelling, diag);
    diag_note(diag, "possible: %s", list.at);
  }
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

static int choice_index(const char *choices, const char *text) {
  int index = 0;
  size_t length = strlen(text);
  for (const char *c = choices; *c; index++) {
    size_t n = strcspn(c, "|");
    if (n == length && !memcmp(c, text, n)) return index;
    c += n + (c[n] == '|');
  }
  return -1;
}

static Const number_key(Sem *sem, const KeyRow *row, const Expr *value) {
  if (value->kind == EXPR_STAR) {
    Diag *diag = report(sem, "E0408", value->span, "this version needs a number for `%s`",
                            dotted_name(sem, row));
    diag_help(diag, "say how many: %s=1", row->key);
    return (Const){.kind = CONST_ERROR};
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

static Const eval_key(Sem *sem, const KeyRow *row, const Expr *value) {
  switch (row->type) {
    case KEY_INT:
    case KEY_REAL: return number_key(sem, row, value);
    case KEY_BOOL: {
      if (value->kind == EXPR_NAME && (!strcmp(value->name.text, "on") || !strcmp(value->name.text, "off")))
        return const_bool(value->name.text[1] == 'n');
      Const c = const_eval(sem, sem->root, NULL, value);
      return c.kind == CONST_BOOL || c.kind == CONST_ERROR ? c : key_error(sem, row, value, "on or off");
    }
    case KEY_CHOICE:
    case KEY_NAME: {
      const char *text = literal_text(sem, value);
      if (choice_index(row->choices, text) >= 0) return const_text(text);
      return key_error(sem, row, value, "one of the known kinds");
    }
    case KEY_TEXT: {
      if (value->kind == EXPR_NAME && !find_symbol(sem, sem->root, value->name.text)) return const_text(value->name.text);
      Const c = const_eval(sem, sem->root, NULL, value);
      return c.kind == CONST_TEXT || c.kind == CONST_ERROR ? c : key_error(sem, row, value, "a string");
    }
    case KEY_PAIR:
    case KEY_RATE: break;
  }
  return const_real(0); /* read by fill_config */
}

static Const default_const(const KeyRow *row) {
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
    case KEY_BOOL: return const_bool(!strcmp(row->initial, "on"));
    default: return const_text(row->initial);
  }
}

static Const key_const(Sem *sem, int index) {
  SectionKey *key = &sem->keys[index];
  if (key->state == STATE_DONE) return key->constant;
  if (key->state == STATE_BUSY) {
    report(sem, "E0212", key->value->span, "`%s` is defined by itself", dotted_name(sem, &rows[index]));
    key->state = STATE_DONE;
    return key->constant = (Const){.kind = CONST_ERROR};
  }
  key->state = STATE_BUSY;
  Const c = key->value ? eval_key(sem, &rows[index], key->value) : default_const(&rows[index]);
  if (key->state == STATE_DONE) return key->constant;
  key->state = STATE_DONE;
  return key->constant = c;
}

bool section_const(Sem *sem, const char *dotted, Const *result) {
  for (int i = 0; i < ROW_COUNT; i++) {
    size_t length = strlen(rows[i].section);
    if (strncmp(rows[i].section, dotted, length) != 0 || dotted[length] != '.' || strcmp(rows[i].key, dotted + length + 1))
      continue;
    if (rows[i].type == KEY_PAIR || (!rows[i].initial && !sem->keys[i].value)) return false;
    if (rows[i].type == KEY_RATE && sem->keys[i].value) {
      *result = const_eval(sem, sem->root, NULL, sem->keys[i].value);
      return true;
    }
    *result = key_const(sem, i);
    return true;
  }
  return false;
}

/* ---- reading sections ---- */

static void unknown_key(Sem *sem, const char *section, const Name *name) {
  Diag *diag = report(sem, "E0206", name->span, "section `%s` has no key `%s`", section, name->text);
  Spelling spelling = spelling_of(name->text);
  Text list = {.arena = sem->arena};
  for (int i = 0; i < ROW_COUNT; i++) {
    if (strcmp(rows[i].section, section) != 0) continue;
    spelling_try(&spelling, rows[i].key);
    text_printf(&list, "%s%s", list.length ? ", " : "", rows[i].key);
  }
  spelling_help(&spelling, diag);
  if (!spelling.best) diag_note(diag, "its keys are %s", list.at);
}

static bool is_data_file(const char *section, const char *key) {
  return !strcmp(section, "data") && (!strncmp(key, "train.", 6) || !strncmp(key, "valid.", 6));
}

static void read_binding(Sem *sem, const char *section, const Name *name, const Expr *value, bool override) {
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
      if (!override) report(sem, "E0207", name->span, "`data.%s` is given twice", name->text);
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
    Diag *diag = report(sem, "E0207", name->span, "`%s` is given twice", dotted_name(sem, &rows[row]));
    diag_label(diag, key->span, "first here");
    return;
  }
  key->value = value;
  key->span = name->span;
}

void read_sections(Sem *sem) {
  sem->keys = ARENA_ARRAY(sem->arena, SectionKey, ROW_COUNT);
  const Module *module = sem->root->module;
  for (uint32_t i = 0; i < module->item_count; i++) {
    const Item *item = module->items[i];
    if (item->kind != ITEM_SECTION) continue;
    int index = section_index(item->name.text);
    if (index < 0) {
      Diag *diag = report(sem, "E0205", item->name.span, "unknown section `%s`", item->name.text);
      Spelling spelling = spelling_of(item->name.text);
      for (int k = 0; k < SECTION_COUNT; k++) spelling_try(&spelling, sections[k]);
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

/* ---- -D ---- */

static Span command_line(Sem *sem, const char *text) {
  uint32_t file = diag_add_source(sem->diagnostics, "command line", text, strlen(text));
  return (Span){file, 0, (uint32_t)strlen(text)};
}

static const Expr *string_expr(Sem *sem, const char *value, Span span) {
  Expr *expr = ARENA_NEW(sem->arena, Expr);
  *expr = (Expr){.kind = EXPR_STRING, .span = span, .string = value};
  return expr;
}

/* The value of a -D as an expression, parsed as a source of its own; NULL after an error. */
static const Expr *parse_define(Sem *sem, const Define *define) {
  const char *text = arena_printf(sem->arena, "const value = %s;\n", define->value);
  uint32_t file = diag_add_source(sem->diagnostics, arena_printf(sem->arena, "-D %s", define->name), text, strlen(text));
  unsigned errors = diag_errors(sem->diagnostics);
  const Module *module = syntax_parse(sem->arena, sem->names, sem->diagnostics, file);
  if (diag_errors(sem->diagnostics) != errors) return NULL;
  if (module->item_count == 1 && module->items[0]->kind == ITEM_CONST && module->items[0]->binding_count == 1)
    return module->items[0]->bindings[0].value;
  report(sem, "E0209", command_line(sem, arena_printf(sem->arena, "-D %s=%s", define->name, define->value)),
             "-D %s needs one value", define->name);
  return NULL;
}

static bool takes_text(const char *section, const char *key) {
  if (!strcmp(section, "shard") || is_data_file(section, key)) return true;
  int row = row_index(section, key);
  return row >= 0 && (rows[row].type == KEY_TEXT || rows[row].type == KEY_CHOICE || rows[row].type == KEY_NAME);
}

static const Expr *define_value(Sem *sem, const Define *define, bool text) {
  size_t length = strlen(define->value);
  bool quoted = length >= 2 && define->value[0] == '"' && define->value[length - 1] == '"';
  if (text && !quoted)
    return string_expr(sem, define->value,
                       (Span){diag_add_source(sem->diagnostics, arena_printf(sem->arena, "-D %s", define->name),
                                              define->value, length),
                              0, (uint32_t)length});
  return parse_define(sem, define);
}

static void define_key(Sem *sem, const Define *define, const char *dot) {
  char *section = arena_strndup(sem->arena, define->name, (size_t)(dot - define->name));
  Name name = {intern_str(sem->names, dot + 1), NO_SPAN};
  const Expr *value = define_value(sem, define, takes_text(section, name.text));
  if (!value) return;
  name.span = value->span;
  if (!strcmp(section, "parallel") || row_index(section, name.text) >= 0 || takes_text(section, name.text)) {
    if (row_index(section, name.text) >= 0 || takes_text(section, name.text)) {
      read_binding(sem, section, &name, value, true);
      return;
    }
  }
  Diag *diag = report(sem, "E0209", value->span, "-D %s: section `%s` has no key `%s`", define->name,
                          section, name.text);
  Spelling spelling = spelling_of(define->name);
  spelling_keys(&spelling, sem);
  spelling_help(&spelling, diag);
}

static void define_const(Sem *sem, const Define *define) {
  Symbol *symbol = unit_symbol(sem->root, intern_str(sem->names, define->name));
  if (symbol && symbol->kind == SYMBOL_CONST && symbol->config) {
    const Expr *value = define_value(sem, define, symbol->declared && symbol->declared->kind == EXPR_STRING);
    if (value) symbol->value = value;
    return;
  }
  Span span = command_line(sem, arena_printf(sem->arena, "-D %s=%s", define->name, define->value));
  if (symbol) {
    Diag *diag = report(sem, "E0209", span, "-D %s: `%s` is not a `config const`", define->name,
                            define->name);
    diag_label(diag, symbol->span, "declared here");
    diag_help(diag, symbol->kind == SYMBOL_DIM ? "give the dim a `config const` as its size"
                                               : "declare it `config const`");
    return;
  }
  Diag *diag = report(sem, "E0209", span, "-D %s: there is no such `config const`", define->name);
  Spelling spelling = spelling_of(define->name);
  for (uint32_t i = 0; i < sem->root->order.count; i++)
    if (sem->root->order.at[i]->config) spelling_try(&spelling, sem->root->order.at[i]->name);
  spelling_help(&spelling, diag);
}

void apply_defines(Sem *sem) {
  for (uint32_t i = 0; i < sem->input->define_count; i++) {
    const Define *define = &sem->input->defines[i];
    const char *dot = strchr(define->name, '.');
    char *section = dot ? arena_strndup(sem->arena, define->name, (size_t)(dot - define->name)) : NULL;
    if (section && section_index(section) >= 0)
      define_key(sem, define, dot);
    else if (section) {
      Diag *diag = report(sem, "E0209",
                              command_line(sem, arena_printf(sem->arena, "-D %s=%s", define->name, define->value)),
                              "-D %s: there is no section `%s`", define->name, section);
      Spelling spelling = spelling_of(define->name);
      spelling_keys(&spelling, sem);
      spelling_help(&spelling, diag);
    } else
      define_const(sem, define);
  }
}

/* ---- filling the Config ---- */

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

static void read_rate(Sem *sem, const KeyRow *row, const Expr *value) {
  Config *config = &sem->out->config;
  static const char *const kinds[] = {"cosine", "linear", "wsd"};
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
  for (int i = 0; i < 3; i++)
    if (!strcmp(kinds[i], value->name.text)) kind = i;
  if (kind < 0) {
    Diag *diag = report(sem, "E0208", value->name.span, "unknown learning-rate schedule `%s`",
                            value->name.text);
    Spelling spelling = spelling_of(value->name.text);
    for (int i = 0; i < 3; i++) spelling_try(&spelling, kinds[i]);
    spelling_help(&spelling, diag);
    diag_note(diag, "a number, or cosine, linear or wsd (peak, floor, warmup=, end=)");
    return;
  }
  config->rate = kind == 0 ? RATE_COSINE : kind == 1 ? RATE_LINEAR : RATE_WSD;
  RateArgument arguments[] = {{"peak", &config->peak, false},
                              {"floor", &config->floor, false},
                              {"warmup", &config->warmup, false},
                              {"end", &config->end, false},
                              {"decay_from", &config->decay_from, false}};
  unsigned count = config->rate == RATE_WSD ? 5 : 4, next = 0;
  for (uint32_t i = 0; i < value->arg_count; i++) {
    unsigned at = next;
    const char *name = value->arg_names ? value->arg_names[i].text : NULL;
    for (unsigned k = 0; name && k < count; k++)
      if (!strcmp(arguments[k].name, name)) at = k;
    bool known = !name || (at < count && !strcmp(arguments[at < count ? at : 0].name, name));
    if (!known || at >= count || arguments[at].given) {
      report(sem, "E0215", name ? value->arg_names[i].span : value->args[i]->span,
                 "`%s` takes peak, floor, warmup=, end=%s, each once", value->name.text,
                 config->rate == RATE_WSD ? ", decay_from=" : "");
      return;
    }
    arguments[at].given = true;
    if (!name) next++;
    const char *what = arena_printf(sem->arena, "`%s` of `%s`", arguments[at].name, value->name.text);
    if (!eval_number(sem, sem->root, NULL, value->args[i], what, arguments[at].place)) return;
    if (*arguments[at].place < 0) {
      report(sem, "E0208", value->args[i]->span, "%s must not be negative", what);
      return;
    }
  }
  if (!arguments[0].given) {
    report(sem, "E0215", value->span, "`%s` needs a peak", value->name.text);
    return;
  }
  if (!arguments[3].given) config->end = -1; /* the last step, known later */
  if (!arguments[4].given) config->decay_from = -1;
}

static void store(Sem *sem, int index) {
  const KeyRow *row = &rows[index];
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
    case KEY_TEXT: memcpy(config + row->place, &c.text, sizeof c.text); break;
    case KEY_PAIR:
    case KEY_RATE: break;
  }
}

_Static_assert(sizeof(OptimizerKind) == sizeof(int) && sizeof(Precision) == sizeof(int), "enums are stored as ints");
_Static_assert(offsetof(Config, beta2) == offsetof(Config, beta1) + sizeof(double), "beta is stored as a pair");

static void not_supported(Sem *sem, const char *section, const char *key, bool used) {
  const SectionKey *k = &sem->keys[row_index(section, key)];
  if (used && k->value)
    report(sem, "E0408", k->value->span, "this version does not support `%s=%s` yet", key,
               source_text(sem, k->value->span, 20));
}

void fill_config(Sem *sem) {
  Config *config = &sem->out->config;
  for (int i = 0; i < ROW_COUNT; i++) store(sem, i);
  for (int i = 0; i < ROW_COUNT; i++) {
    bool data = !strcmp(rows[i].section, "data");
    if ((!data && strcmp(rows[i].section, "checkpoint") != 0) || !sem->keys[i].value) continue;
    Const c = key_const(sem, i);
    if (c.kind == CONST_ERROR) continue;
    KeyValue pair = {rows[i].key, c.kind == CONST_TEXT ? c.text : const_value_text(sem, c), sem->keys[i].span,
                     sem->keys[i].value->span};
    if (data)
      vec_push(sem->arena, &config->data, pair);
    else
      vec_push(sem->arena, &config->checkpoint, pair);
  }
  const Item *parallel = sem->section_item[section_index("parallel")], *schedule = sem->section_item[section_index("schedule")],
             *cluster = sem->section_item[section_index("cluster")];
  config->parallel_span = parallel ? parallel->name.span : NO_SPAN;
  config->schedule_span = schedule ? schedule->name.span : NO_SPAN;
  config->cluster_span = cluster ? cluster->name.span : NO_SPAN;
  not_supported(sem, "parallel", "cp", config->cp > 1);
  not_supported(sem, "parallel", "ep", config->ep > 1);
  not_supported(sem, "parallel", "zero", config->zero > 0);
  not_supported(sem, "parallel", "sequence", config->sequence);
  static const char *const wide[] = {"master", "reduce"};
  for (int i = 0; i < 2; i++) {
    Const c = key_const(sem, row_index("precision", wide[i]));
    not_supported(sem, "precision", wide[i],
                  c.kind == CONST_TEXT && !strcmp(c.text, "f64") && config->compute != PRECISION_F64);
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
  Diag *diag = report(sem, "E0501", span,
                          "the batch `%s` = %" PRId64 " is not divisible by dp * microbatch = %" PRId64 " * %" PRId64,
                          batch->name, batch->size, config->dp, config->microbatch);
  diag_label(diag, batch->span, "`%s` = %" PRId64, batch->name, batch->size);
  Id id = sem->batch;
  axis_notes(sem, diag, 1, &id);
  if (!fits || step > batch->size) {
    diag_help(diag, "a batch has at least dp * microbatch samples");
    return;
  }
  int64_t below = batch->size / step * step, per_rank = batch->size / config->dp, micro = config->microbatch;
  if (batch->size % config->dp == 0) {
    while (per_rank % micro) micro--;
    diag_help(diag, "the nearest batches that divide are %" PRId64 " and %" PRId64 "; or microbatch=%" PRId64, below,
              below + step, micro);
  } else {
    diag_help(diag, "the nearest batches that divide are %" PRId64 " and %" PRId64, below, below + step);
  }
}

static void finish_rate(Sem *sem) {
  Config *config = &sem->out->config;
  if (config->rate == RATE_CONSTANT) {
    config->warmup = config->end = config->decay_from = 0;
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
  if (config->warmup > config->end)
    report(sem, "E0208", sem->rate->span, "the warm-up (%g steps) is longer than the schedule (%g steps)",
               config->warmup, config->end);
  else if (config->rate == RATE_WSD && (config->decay_from < config->warmup || config->decay_from > config->end))
    report(sem, "E0208", sem->rate->span, "`decay_from` (step %g) must lie between warm-up and end",
               config->decay_from);
}

static void finish_data(Sem *sem) {
  const Config *config = &sem->out->config;
  for (uint32_t i = 0; i < config->data.count; i++) {
    const KeyValue *pair = &config->data.at[i];
    if (!is_data_file("data", pair->key)) continue;
    bool found = false;
    Spelling spelling = spelling_of(pair->key + 6);
    for (uint32_t k = 0; k < sem->graph->data.count; k++) {
      found |= !strcmp(sem->graph->data.at[k].name, pair->key + 6);
      spelling_try(&spelling, sem->graph->data.at[k].name);
    }
    if (found) continue;
    Diag *diag = report(sem, "E0206", pair->span, "`data.%s`: the model has no input `%s`", pair->key,
                            pair->key + 6);
    spelling_help(&spelling, diag);
  }
}

void finish_config(Sem *sem) {
  if (sem->batch == NO_ID) return;
  finish_batch(sem);
  finish_rate(sem);
  finish_data(sem);
}

/* ---- --list-config ---- */

static const char *type_name(const KeyRow *row) {
  switch (row->type) {
    case KEY_INT: return "integer";
    case KEY_REAL: return "real";
    case KEY_BOOL: return "on|off";
    case KEY_TEXT: return "string";
    case KEY_PAIR: return "pair";
    case KEY_RATE: return "rate";
    case KEY_CHOICE:
    case KEY_NAME: break;
  }
  return row->choices;
}

static const char *plain_kind(ConstKind kind) {
  return kind == CONST_INT ? "integer" : kind == CONST_REAL ? "real" : kind == CONST_BOOL ? "boolean" : "string";
}

void list_config(Sem *sem, Text *out) {
  for (uint32_t i = 0; i < sem->root->order.count; i++) {
    Symbol *symbol = sem->root->order.at[i];
    if (!symbol->config) continue;
    Const value = symbol_const(sem, symbol);
    if (value.kind == CONST_ERROR) continue;
    text_printf(out, "%s %s %s", symbol->name, plain_kind(value.kind), const_value_text(sem, value));
    if (symbol->value != symbol->declared)
      text_printf(out, " (default %s)", expr_text(sem, symbol->unit, NULL, symbol->declared, false));
    text_printf(out, "\n");
  }
  for (int i = 0; i < ROW_COUNT; i++) {
    const SectionKey *key = &sem->keys[i];
    text_printf(out, "%s.%s %s ", rows[i].section, rows[i].key, type_name(&rows[i]));
    if (key->value)
      text_printf(out, "%s", source_text(sem, key->value->span, 200));
    else
      text_printf(out, "%s", rows[i].initial ? rows[i].initial : "none");
    if (key->value) text_printf(out, " (default %s)", rows[i].initial ? rows[i].initial : "none");
    text_printf(out, "\n");
  }
}
