/* -D: overrides a `config const` or a key of a section; and --list-config, which prints what it may override. A value
 * is parsed as a source of its own, so that it can be any expression and its errors point into it. */
#include <string.h>

#include "semantic/sections.h"

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
  if (!define->value[0]) {
    Span place = command_line(sem, arena_printf(sem->arena, "-D %s=", define->name));
    report(sem, "E0209", place, "-D %s has no value", define->name);
    return NULL;
  }
  /* what is parsed and what is shown: the value at the same place in both */
  const char *shown = arena_printf(sem->arena, "pdc -D %s=%s", define->name, define->value);
  const char *text = arena_printf(sem->arena, "dim v=%*s%s;\n", (int)strlen(define->name) + 2, "", define->value);
  uint32_t file =
      diag_add_source(sem->diagnostics, arena_printf(sem->arena, "-D %s", define->name), text, strlen(text));
  unsigned errors = diag_errors(sem->diagnostics);
  const Module *module = syntax_parse(sem->arena, sem->names, sem->diagnostics, file);
  diag_show_source(sem->diagnostics, file, shown, strlen(shown));
  if (diag_errors(sem->diagnostics) != errors) return NULL;
  if (module->item_count == 1 && module->items[0]->kind == ITEM_DIM && module->items[0]->binding_count == 1)
    return module->items[0]->bindings[0].value;
  report(sem, "E0209", command_line(sem, arena_printf(sem->arena, "-D %s=%s", define->name, define->value)),
         "-D %s needs one value", define->name);
  return NULL;
}

static bool takes_text(const char *section, const char *key) {
  if (!strcmp(section, "shard") || is_data_file(section, key)) return true;
  int row = row_index(section, key);
  return row >= 0 &&
         (key_rows[row].type == KEY_TEXT || key_rows[row].type == KEY_CHOICE || key_rows[row].type == KEY_NAME);
}

/* `-D parallel.dp=*`: no expression, and none of the grammar. */
static const Expr *star_expr(Sem *sem, const Define *define) {
  uint32_t file = diag_add_source(sem->diagnostics, arena_printf(sem->arena, "-D %s", define->name), "*", 1);
  Expr *expr = ARENA_NEW(sem->arena, Expr);
  *expr = (Expr){.kind = EXPR_STAR, .span = {file, 0, 1}};
  return expr;
}

static const Expr *define_value(Sem *sem, const Define *define, bool text) {
  size_t length = strlen(define->value);
  bool file = strncmp(define->name, "data.", 5) == 0; /* "" is the file that there is none of */
  if (!length && text && !file) return parse_define(sem, define);
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
  bool text = takes_text(section, name.text);
  const Expr *value = !text && !strcmp(define->value, "*") ? star_expr(sem, define) : define_value(sem, define, text);
  if (!value) return;
  name.span = value->span;
  if (row_index(section, name.text) >= 0 || takes_text(section, name.text)) {
    read_binding(sem, section, &name, value, true);
    return;
  }
  Diag *diag =
      report(sem, "E0209", value->span, "-D %s: section `%s` has no key `%s`", define->name, section, name.text);
  Spelling spelling = spelling_of(define->name);
  spelling_keys(&spelling, sem);
  spelling_help(&spelling, diag);
}

static void define_const(Sem *sem, const Define *define) {
  Symbol *symbol = unit_symbol(sem->root, intern_str(sem->names, define->name));
  if (symbol && symbol->kind == SYMBOL_CONST && symbol->config) {
    const Expr *value = define_value(sem, define, symbol->declared && symbol->declared->kind == EXPR_STRING);
    if (value) symbol->value = value;
    if (value) symbol->defined = true;
    return;
  }
  Span span = command_line(sem, arena_printf(sem->arena, "-D %s=%s", define->name, define->value));
  if (symbol) {
    Diag *diag = report(sem, "E0209", span, "-D %s: `%s` is not a `config const`", define->name, define->name);
    diag_label(diag, symbol->span, "declared here");
    if (symbol->kind == SYMBOL_DIM || symbol->kind == SYMBOL_CONST)
      diag_help(diag,
                symbol->kind == SYMBOL_DIM ? "give the dim a `config const` as its size" : "declare it `config const`");
    return;
  }
  Diag *diag = report(sem, "E0209", span, "-D %s: there is no such `config const`", define->name);
  Spelling spelling = spelling_of(define->name);
  for (uint32_t i = 0; i < sem->root->order.count; i++)
    if (sem->root->order.at[i]->config) spelling_try(&spelling, sem->root->order.at[i]->name);
  spelling_help(&spelling, diag);
  for (uint32_t i = 0; i < sem->units.count; i++) {
    const Symbol *imported = unit_symbol(sem->units.at[i], intern_str(sem->names, define->name));
    if (imported && imported->config) {
      diag_label(diag, imported->span, "that of an imported file keeps its value");
      return;
    }
  }
}

/* A value of another kind than the declared one would be an error wherever it is used: told where it is given. */
void check_defines(Sem *sem) {
  for (uint32_t i = 0; i < sem->root->order.count; i++) {
    Symbol *symbol = sem->root->order.at[i];
    if (!symbol->defined) continue;
    Const value = symbol_const(sem, symbol), declared = const_eval(sem, symbol->unit, NULL, symbol->declared);
    bool error = value.kind == CONST_ERROR || declared.kind == CONST_ERROR;
    if (error || value.kind == declared.kind || (const_is_number(value) && const_is_number(declared))) continue;
    Diag *diag =
        report(sem, "E0209", symbol->value->span, "-D %s: `%s` is %s, and this is %s", symbol->name, symbol->name,
               declared.kind == CONST_BOOL ? "true or false"
               : const_is_number(declared) ? "a number"
                                           : const_kind_name(declared.kind),
               const_kind_name(value.kind));
    diag_label(diag, symbol->span, "declared here");
    symbol->constant = (Const){.kind = CONST_ERROR};
  }
}

void apply_defines(Sem *sem) {
  for (uint32_t i = 0; i < sem->input->define_count; i++) {
    const Define *define = &sem->input->defines[i];
    const char *dot = strchr(define->name, '.');
    if (!dot) {
      define_const(sem, define);
      continue;
    }
    const char *section = arena_strndup(sem->arena, define->name, (size_t)(dot - define->name));
    if (section_index(section) >= 0) {
      define_key(sem, define, dot);
      continue;
    }
    Span span = command_line(sem, arena_printf(sem->arena, "-D %s=%s", define->name, define->value));
    Diag *diag = report(sem, "E0209", span, "-D %s: there is no section `%s`", define->name, section);
    Spelling spelling = spelling_of(define->name);
    spelling_keys(&spelling, sem);
    spelling_help(&spelling, diag);
  }
}

/* ---- --list-config ---- */

static const char *type_name(const KeyRow *row) {
  switch (row->type) {
  case KEY_INT:
    return may_be_open(row) ? "integer|*" : "integer";
  case KEY_REAL:
    return "real";
  case KEY_BOOL:
    return "on|off";
  case KEY_TEXT:
    return "string";
  case KEY_PAIR:
    return "pair";
  case KEY_RATE:
    return "rate";
  case KEY_CHOICE:
  case KEY_NAME:
    break;
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
  for (int i = 0; i < key_count; i++) {
    const SectionKey *key = &sem->keys[i];
    text_printf(out, "%s.%s %s ", key_rows[i].section, key_rows[i].key, type_name(&key_rows[i]));
    if (key->value)
      text_printf(out, "%s", source_text(sem, key->value->span, 200));
    else
      text_printf(out, "%s", key_rows[i].initial ? key_rows[i].initial : "none");
    if (key->value) text_printf(out, " (default %s)", key_rows[i].initial ? key_rows[i].initial : "none");
    text_printf(out, "\n");
  }
}
