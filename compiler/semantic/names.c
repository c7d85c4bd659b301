/* Names: tables, look-up, spelling hints, and the texts in which diagnostics speak of expressions and places. */
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <strings.h>

#include "semantic/internal.h"

static uint32_t slot_of(const Table *table, const char *key) {
  uint64_t hash = (uint64_t)(uintptr_t)key;
  hash = (hash >> 3) * UINT64_C(0x9e3779b97f4a7c15);
  uint32_t mask = table->capacity - 1, at = (uint32_t)(hash >> 33) & mask;
  while (table->keys[at] && table->keys[at] != key) at = (at + 1) & mask;
  return at;
}

void *table_get(const Table *table, const char *key) {
  if (!table->count) return NULL;
  uint32_t at = slot_of(table, key);
  return table->keys[at] ? table->values[at] : NULL;
}

void table_put(Arena *arena, Table *table, const char *key, void *value) {
  if (table->count * 2 >= table->capacity) {
    Table larger = {.capacity = table->capacity ? table->capacity * 2 : 16};
    larger.keys = ARENA_ARRAY(arena, const char *, larger.capacity);
    larger.values = ARENA_ARRAY(arena, void *, larger.capacity);
    for (uint32_t i = 0; i < table->capacity; i++)
      if (table->keys[i]) {
        uint32_t at = slot_of(&larger, table->keys[i]);
        larger.keys[at] = table->keys[i];
        larger.values[at] = table->values[i];
        larger.count++;
      }
    *table = larger;
  }
  uint32_t at = slot_of(table, key);
  if (!table->keys[at]) table->count++;
  table->keys[at] = key;
  table->values[at] = value;
}

static bool is_generic(const Item *item) {
  bool generic = item->size_count > 0;
  for (uint32_t i = 0; i < item->input_count; i++)
    generic |= !item->inputs[i].type || item->inputs[i].type->leading_run;
  return generic;
}

Diag *report(const Sem *sem, const char *code, Span span, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  Diag *diag = diag_error(sem->diagnostics, code, span, "%s", arena_vprintf(sem->arena, format, arguments));
  va_end(arguments);
  for (const Frame *frame = sem->frame; frame && frame->caller; frame = frame->caller)
    if (frame->caller->symbol && is_generic(frame->symbol->item))
      diag_note(diag, "in block `%s`, called at %s", frame->symbol->name, place_text(sem, frame->call));
  return diag;
}

bool first_unknown(Sem *sem, const char *name) {
  if (sem->trial) return true;
  if (table_get(&sem->unknown, name)) return false;
  table_put(sem->arena, &sem->unknown, name, sem);
  return true;
}

Diag *of_number(Sem *sem, Diag *diag) {
  if (sem->trial) vec_push(sem->arena, &sem->of_numbers, diag);
  return diag;
}

bool first_mistyped(Sem *sem, const char *name) {
  if (sem->trial) return true;
  if (table_get(&sem->mistyped, name)) return false;
  table_put(sem->arena, &sem->mistyped, name, sem);
  return true;
}

Symbol *unit_symbol(const Unit *unit, const char *name) {
  return table_get(&unit->symbols, name);
}

Symbol *find_symbol(Sem *sem, const Unit *unit, const char *dotted) {
  const char *dot = strchr(dotted, '.');
  if (!dot) return unit_symbol(unit, dotted);
  Symbol *import = unit_symbol(unit, intern(sem->names, dotted, (size_t)(dot - dotted)));
  if (!import || import->kind != SYMBOL_IMPORT || !import->import) return NULL;
  Symbol *symbol = unit_symbol(import->import, intern_str(sem->names, dot + 1));
  return symbol && symbol->kind != SYMBOL_IMPORT ? symbol : NULL;
}

Local *find_local(Frame *frame, const char *name) {
  uintptr_t place = frame ? (uintptr_t)table_get(&frame->local_places, name) : 0;
  return place ? &frame->locals.at[place - 1] : NULL;
}

void add_local(Sem *sem, Frame *frame, Local local) {
  local.shadowed = table_get(&frame->local_places, local.name);
  vec_push(sem->arena, &frame->locals, local);
  table_put(sem->arena, &frame->local_places, local.name, (void *)(uintptr_t)frame->locals.count);
}

void drop_locals(Sem *sem, Frame *frame, uint32_t count) {
  while (frame->locals.count > count) {
    const Local *last = &frame->locals.at[--frame->locals.count];
    table_put(sem->arena, &frame->local_places, last->name, last->shadowed);
  }
}

Spelling spelling_of(const char *wanted) {
  size_t length = strlen(wanted);
  return (Spelling){.wanted = wanted, .distance = length < 4 ? 1 : length < 8 ? 2 : 3};
}

/* `attn` of `attention`, `dir` of `directory`: the same first letter, and the others in their order. */
static bool abbreviates(const char *brief, const char *word) {
  if (strlen(brief) < 3 || strlen(word) < 5 || *brief != *word) return false;
  for (; *brief && *word; word++) brief += *brief == *word;
  return !*brief;
}

static size_t common_prefix(const char *a, const char *b) {
  size_t length = 0;
  while (a[length] && a[length] == b[length]) length++;
  return length;
}

void spelling_try(Spelling *spelling, const char *candidate) {
  unsigned distance = edit_distance(spelling->wanted, candidate, spelling->distance);
  if (!strcasecmp(spelling->wanted, candidate)) distance = 0;
  bool near = distance <= spelling->distance && distance < strlen(spelling->wanted);
  if (!near && !spelling->best &&
      (abbreviates(spelling->wanted, candidate) || abbreviates(candidate, spelling->wanted)))
    spelling->best = candidate; /* until something nearer comes */
  if (!near) return;
  if (spelling->best && distance == spelling->distance &&
      common_prefix(spelling->wanted, candidate) <= common_prefix(spelling->wanted, spelling->best))
    return;
  spelling->best = candidate;
  spelling->distance = distance;
}

void spelling_help(const Spelling *spelling, Diag *diag) {
  if (spelling->best) diag_help(diag, "did you mean `%s`?", spelling->best);
}

void spelling_symbols(Spelling *spelling, const Unit *unit, unsigned kinds) {
  for (uint32_t i = 0; i < unit->order.count; i++)
    if (kinds & (1u << unit->order.at[i]->kind) && unit->order.at[i]->state != STATE_BUSY) /* what is being defined */
      spelling_try(spelling, unit->order.at[i]->name);
}

void spelling_locals(Spelling *spelling, Frame *frame) {
  for (uint32_t i = 0; frame && i < frame->locals.count; i++) spelling_try(spelling, frame->locals.at[i].name);
}

const char *source_text(const Sem *sem, Span span, size_t limit) {
  const Source *source = span.file == UINT32_MAX ? NULL : diag_source(sem->diagnostics, span.file);
  if (!source || span.begin >= span.end || span.end > source->length) return "?";
  Text text = {.arena = sem->arena};
  bool blank = false;
  for (uint32_t i = span.begin; i < span.end; i++) {
    unsigned char c = (unsigned char)source->text[i];
    if (c == '/' && i + 1 < span.end && source->text[i + 1] == '/') {
      while (i < span.end && source->text[i] != '\n') i++;
      blank = true;
      continue;
    }
    if (isspace(c)) {
      blank = true;
      continue;
    }
    if (blank && text.length) text_put(&text, " ", 1);
    blank = false;
    char byte = iscntrl(c) ? '?' : (char)c;
    text_put(&text, &byte, 1);
  }
  if (text.length > limit) {
    size_t cut = limit;
    while (cut && ((unsigned char)text.at[cut] & 0xc0) == 0x80) cut--;
    return arena_printf(sem->arena, "%.*s...", (int)cut, text.at);
  }
  return text.length ? text.at : "?";
}

const char *place_text(const Sem *sem, Span span) {
  uint32_t line, column;
  diag_line_column(sem->diagnostics, span, &line, &column);
  return arena_printf(sem->arena, "%s:%u:%u", diag_source(sem->diagnostics, span.file)->path, line, column);
}

const char *const_kind_name(ConstKind kind) {
  switch (kind) {
  case CONST_INT:
    return "an integer";
  case CONST_REAL:
    return "a real number";
  case CONST_BOOL:
    return "a boolean";
  case CONST_TEXT:
    return "a string";
  case CONST_ERROR:
    break;
  }
  return "an error";
}

const char *const_value_text(Sem *sem, Const c) {
  switch (c.kind) {
  case CONST_INT:
    return arena_printf(sem->arena, "%" PRId64, c.integer);
  case CONST_REAL: {
    char text[40]; /* the shortest form that reads back equal */
    for (int digits = 1; digits <= 17; digits++) {
      snprintf(text, sizeof text, "%.*g", digits, c.real);
      double back;
      if (sscanf(text, "%lf", &back) == 1 && back == c.real) break;
    }
    return arena_strdup(sem->arena, text);
  }
  case CONST_BOOL:
    return c.integer ? "true" : "false";
  case CONST_TEXT:
    return arena_printf(sem->arena, "\"%s\"", c.text);
  case CONST_ERROR:
    break;
  }
  return "?";
}

static int precedence(const Expr *expr) {
  if (expr->kind != EXPR_BINARY) return expr->kind == EXPR_UNARY ? 8 : expr->kind == EXPR_PIPE ? 0 : 9;
  switch (expr->op) {
  case EXPR_OP_OR:
    return 1;
  case EXPR_OP_AND:
    return 2;
  case '+':
  case '-':
    return 5;
  case '*':
  case '/':
  case '%':
    return 6;
  case '@':
    return 7;
  default:
    return 4;
  }
}

static void put_expr(Sem *sem, Text *out, Unit *unit, Frame *frame, const Expr *expr, bool numbers) {
  switch (expr->kind) {
  case EXPR_INT:
    text_printf(out, "%" PRId64, expr->integer);
    break;
  case EXPR_REAL:
    text_printf(out, "%s", const_value_text(sem, const_real(expr->real)));
    break;
  case EXPR_STRING:
    text_printf(out, "\"%s\"", expr->string);
    break;
  case EXPR_NAME: {
    Const value;
    if (numbers && name_const(sem, unit, frame, &expr->name, &value) && value.kind != CONST_ERROR)
      text_printf(out, "%s", const_value_text(sem, value));
    else
      text_printf(out, "%s", expr->name.text);
    break;
  }
  case EXPR_UNARY:
    text_printf(out, "%c", expr->op);
    put_expr(sem, out, unit, frame, expr->args[0], numbers);
    break;
  case EXPR_BINARY:
    for (uint32_t i = 0; i < 2; i++) {
      const Expr *part = expr->args[i];
      bool brackets = precedence(part) < precedence(expr) + (i == 1);
      if (i) text_printf(out, " %s ", syntax_operator(expr->op));
      if (brackets) text_printf(out, "(");
      put_expr(sem, out, unit, frame, part, numbers);
      if (brackets) text_printf(out, ")");
    }
    break;
  case EXPR_CALL:
  case EXPR_TUPLE:
    text_printf(out, "%s(", expr->kind == EXPR_CALL ? expr->name.text : "");
    for (uint32_t i = 0; i < expr->arg_count; i++) {
      if (i) text_printf(out, ", ");
      if (expr->kind == EXPR_CALL && expr->arg_names && expr->arg_names[i].text)
        text_printf(out, "%s=", expr->arg_names[i].text);
      put_expr(sem, out, unit, frame, expr->args[i], numbers);
    }
    text_printf(out, ")");
    break;
  case EXPR_PIPE:
    put_expr(sem, out, unit, frame, expr->args[0], numbers);
    text_printf(out, " |> ");
    put_expr(sem, out, unit, frame, expr->args[1], numbers);
    break;
  case EXPR_STAR:
    text_printf(out, "*");
    break;
  case EXPR_ERROR:
    text_printf(out, "?");
    break;
  }
}

const char *derivation_text(Sem *sem, Unit *unit, Frame *frame, const Expr *expr) {
  const char *symbolic = expr_text(sem, unit, frame, expr, false), *plain = expr_text(sem, unit, frame, expr, true);
  return strcmp(symbolic, plain) ? arena_printf(sem->arena, "%s = %s", symbolic, plain) : plain;
}

const char *expr_text(Sem *sem, Unit *unit, Frame *frame, const Expr *expr, bool numbers) {
  Text text = {.arena = sem->arena};
  put_expr(sem, &text, unit, frame, expr, numbers);
  return text.at;
}
