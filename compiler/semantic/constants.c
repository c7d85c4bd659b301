/* Constants: everything a program says in numbers is computed here, in 64-bit integers with overflow checks and in
 * doubles. Integers stay integers while they can: 7 / 2 is 3.5, and a size that needs an integer says so. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "semantic/sections.h"

enum { MAX_CONST_DEPTH = 4000 };

static const Const error_const = {.kind = CONST_ERROR};

static Const overflow(Sem *sem, const Expr *expr) {
  Diag *diag = report(sem, "E0213", expr->span, "`%s` does not fit in 64 bits", source_text(sem, expr->span, 60));
  diag_note(diag, "integers are 64 bits wide: at most %" PRId64, INT64_MAX);
  return error_const;
}

static Const wrong_operand(Sem *sem, const Expr *expr, const char *what, Const a) {
  report(sem, "E0214", expr->span, "%s needs numbers, and `%s` is %s", what, source_text(sem, expr->span, 60),
         const_kind_name(a.kind));
  return error_const;
}

static Const checked_real(Sem *sem, const Expr *expr, double value) {
  if (isfinite(value)) return const_real(value);
  report(sem, "E0213", expr->span, "`%s` is not a finite number", source_text(sem, expr->span, 60));
  return error_const;
}

Const const_unary(Sem *sem, const Expr *expr, Const a) {
  if (a.kind == CONST_ERROR) return a;
  if (expr->op == '!') {
    if (a.kind == CONST_BOOL) return const_bool(!a.integer);
    report(sem, "E0214", expr->span, "`!` needs a boolean, and `%s` is %s", source_text(sem, expr->args[0]->span, 60),
           const_kind_name(a.kind));
    return error_const;
  }
  if (a.kind == CONST_REAL) return const_real(-a.real);
  if (a.kind != CONST_INT) return wrong_operand(sem, expr->args[0], "`-`", a);
  return a.integer == INT64_MIN ? overflow(sem, expr) : const_int(-a.integer);
}

static Const compare(int op, int order) {
  switch (op) {
  case EXPR_OP_EQ:
    return const_bool(order == 0);
  case EXPR_OP_NE:
    return const_bool(order != 0);
  case EXPR_OP_LE:
    return const_bool(order <= 0);
  case EXPR_OP_GE:
    return const_bool(order >= 0);
  case EXPR_OP_LT:
    return const_bool(order < 0);
  default:
    return const_bool(order > 0);
  }
}

static Const divide(Sem *sem, const Expr *expr, Const a, Const b) {
  if (const_number(b) == 0) {
    report(sem, "E0214", expr->span, "`%s` divides by zero", source_text(sem, expr->span, 60));
    return error_const;
  }
  if (a.kind == CONST_INT && b.kind == CONST_INT) {
    if (a.integer == INT64_MIN && b.integer == -1) return overflow(sem, expr);
    if (a.integer % b.integer == 0) return const_int(a.integer / b.integer);
  }
  return checked_real(sem, expr, const_number(a) / const_number(b));
}

static Const remainder_of(Sem *sem, const Expr *expr, Const a, Const b) {
  if (a.kind != CONST_INT || b.kind != CONST_INT || b.integer <= 0) {
    report(sem, "E0214", expr->span, "`%%` needs integers and a positive divisor in `%s`",
           source_text(sem, expr->span, 60));
    return error_const;
  }
  int64_t rest = a.integer % b.integer;
  return const_int(rest < 0 ? rest + b.integer : rest);
}

Const const_binary(Sem *sem, const Expr *expr, Const a, Const b) {
  if (a.kind == CONST_ERROR || b.kind == CONST_ERROR) return error_const;
  int op = expr->op;
  if (op == EXPR_OP_AND || op == EXPR_OP_OR) {
    if (a.kind == CONST_BOOL && b.kind == CONST_BOOL)
      return const_bool(op == EXPR_OP_AND ? a.integer && b.integer : a.integer || b.integer);
    const Expr *wrong = expr->args[a.kind == CONST_BOOL];
    report(sem, "E0214", wrong->span, "`%s` needs booleans, and `%s` is %s", op == EXPR_OP_AND ? "&&" : "||",
           source_text(sem, wrong->span, 60), const_kind_name(a.kind == CONST_BOOL ? b.kind : a.kind));
    return error_const;
  }
  if ((op == EXPR_OP_EQ || op == EXPR_OP_NE) && a.kind == b.kind && !const_is_number(a))
    return compare(op, a.kind == CONST_TEXT ? strcmp(a.text, b.text) : a.integer != b.integer);
  if (!const_is_number(a)) return wrong_operand(sem, expr->args[0], "arithmetic", a);
  if (!const_is_number(b)) return wrong_operand(sem, expr->args[1], "arithmetic", b);
  bool integers = a.kind == CONST_INT && b.kind == CONST_INT;
  double x = const_number(a), y = const_number(b);
  int64_t result;
  switch (op) {
  case '+':
    if (!integers) return checked_real(sem, expr, x + y);
    return __builtin_add_overflow(a.integer, b.integer, &result) ? overflow(sem, expr) : const_int(result);
  case '-':
    if (!integers) return checked_real(sem, expr, x - y);
    return __builtin_sub_overflow(a.integer, b.integer, &result) ? overflow(sem, expr) : const_int(result);
  case '*':
    if (!integers) return checked_real(sem, expr, x * y);
    return __builtin_mul_overflow(a.integer, b.integer, &result) ? overflow(sem, expr) : const_int(result);
  case '/':
    return divide(sem, expr, a, b);
  case '%':
    return remainder_of(sem, expr, a, b);
  case '@':
    report(sem, "E0214", expr->span, "`@` contracts tensors, and both sides are numbers");
    return error_const;
  default:
    if (integers) return compare(op, (a.integer > b.integer) - (a.integer < b.integer));
    return compare(op, (x > y) - (x < y));
  }
}

typedef struct ConstFunction {
  const char *name;
  unsigned least, most;
} ConstFunction;
static const ConstFunction functions[] = {{"sqrt", 1, 1},  {"exp", 1, 1},  {"log", 1, 1},  {"log2", 1, 1},
                                          {"floor", 1, 1}, {"min", 2, 64}, {"max", 2, 64}, {"roundup", 2, 2}};

static const ConstFunction *const_function(const char *name) {
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (!strcmp(functions[i].name, name)) return &functions[i];
  return NULL;
}

bool is_const_function(const char *name) {
  return const_function(name) != NULL;
}

static Const round_up(Sem *sem, const Expr *expr, Const a, Const b) {
  if (a.kind != CONST_INT || b.kind != CONST_INT || a.integer < 0 || b.integer <= 0) {
    report(sem, "E0214", expr->span, "`roundup` needs an integer and a positive integer in `%s`",
           source_text(sem, expr->span, 60));
    return error_const;
  }
  int64_t rest = a.integer % b.integer, result;
  if (rest == 0) return a;
  return __builtin_add_overflow(a.integer, b.integer - rest, &result) ? overflow(sem, expr) : const_int(result);
}

static Const extreme(const char *name, const Const *args, uint32_t count) {
  Const best = args[0];
  for (uint32_t i = 1; i < count; i++) {
    bool both = best.kind == CONST_INT && args[i].kind == CONST_INT;
    bool less = both ? args[i].integer < best.integer : const_number(args[i]) < const_number(best);
    bool more = both ? args[i].integer > best.integer : const_number(args[i]) > const_number(best);
    if (name[1] == 'i' ? less : more) best = args[i];
  }
  return best;
}

Const const_call(Sem *sem, const Expr *expr, const char *name, const Const *args, uint32_t count) {
  const ConstFunction *function = const_function(name);
  for (uint32_t i = 0; i < count; i++)
    if (args[i].kind == CONST_ERROR) return error_const;
  if (count < function->least || count > function->most) {
    report(sem, "E0215", expr->span, "`%s` takes %s%u argument%s, and %u %s given", name,
           function->most > function->least ? "at least " : "", function->least, function->least == 1 ? "" : "s", count,
           count == 1 ? "is" : "are");
    return error_const;
  }
  for (uint32_t i = 0; i < count; i++)
    if (!const_is_number(args[i])) {
      report(sem, "E0214", expr->span, "`%s` needs numbers, and argument %u is %s", name, i + 1,
             const_kind_name(args[i].kind));
      return error_const;
    }
  if (!strcmp(name, "roundup")) return round_up(sem, expr, args[0], args[1]);
  if (!strcmp(name, "min") || !strcmp(name, "max")) return extreme(name, args, count);
  double x = const_number(args[0]);
  if (!strcmp(name, "sqrt")) return checked_real(sem, expr, sqrt(x));
  if (!strcmp(name, "exp")) return checked_real(sem, expr, exp(x));
  if (!strcmp(name, "log")) return checked_real(sem, expr, log(x));
  double whole = !strcmp(name, "floor") ? floor(x) : log2(x);
  if (args[0].kind == CONST_INT && name[0] == 'f') return args[0];
  if (isfinite(whole) && whole == floor(whole) && fabs(whole) < 9e15) return const_int((int64_t)whole);
  return checked_real(sem, expr, whole);
}

/* What other languages call it. */
void alias_help(const char *name, Diag *diag) {
  static const char *const rows[][2] = {
      {"matmul", "a product is `a @ b`"},
      {"mm", "a product is `a @ b`"},
      {"bmm", "a product is `a @ b`, or an `einsum`"},
      {"dot", "a product is `a @ b`"},
      {"cross_entropy", "it is called `xent(logits, targets)`"},
      {"nll_loss", "it is called `xent(logits, targets)`"},
      {"mse_loss", "it is called `mse(a, b)`"},
      {"cat", "it is called `concat(a, b, axis=...)`"},
      {"concatenate", "it is called `concat(a, b, axis=...)`"},
      {"permute", "it is called `transpose(x, axes in their new order)`"},
      {"view", "it is called `reshape(x, sizes)`"},
      {"attention", "it is called `sdpa(q, k, v)`; `nn.attention` of std/nn.pd has the projections"},
      {"scaled_dot_product_attention", "it is called `sdpa(q, k, v)`"},
      {"layer_norm", "it is called `layernorm(x)`"},
      {"batch_norm", "it is called `batchnorm(x)`"},
      {"rms_norm", "it is called `rmsnorm(x)`"},
      {"embedding", "it is called `gather(table, ids)`"},
      {"lookup", "it is called `gather(table, ids)`"},
      {"swish", "it is called `silu(x)`"},
      {"pow", "powers are products: `x * x`"},
      {"square", "it is `x * x`"},
      {"normal", "an initialiser is called: `normal(std)`"},
      {"uniform", "an initialiser is called: `uniform(lo, hi)`"},
      {"kaiming", "an initialiser is called: `kaiming(fan_in)`"},
      {"xavier", "an initialiser is called: `xavier(fan_in, fan_out)`"},
      {"zeros", "a number is initial value enough: `= 0`"},
      {"ones", "a number is initial value enough: `= 1`"},
      {"randn", "it is called `normal(std)`"},
      {"he", "it is called `kaiming(fan_in)`"},
      {"glorot", "it is called `xavier(fan_in, fan_out)`"},
      {"yes", "write `true`; `on` and `off` are for sections"},
      {"no", "write `false`; `on` and `off` are for sections"},
      {"on", "write `true`; `on` and `off` are for sections"},
      {"off", "write `false`; `on` and `off` are for sections"},
      {"True", "write `true`"},
      {"False", "write `false`"},
      {"None", "leave it out"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (!strcmp(rows[i][0], name)) diag_help(diag, "%s", rows[i][1]);
}

bool is_told_owner(Sem *sem, const Unit *unit, Frame *frame, const char *dotted) {
  const char *owner = intern(sem->names, dotted, (size_t)(strchr(dotted, '.') - dotted));
  if (section_index(owner) >= 0 || find_local(frame, owner) || unit_symbol(unit, owner)) return false;
  return !first_unknown(sem, intern_str(sem->names, arena_printf(sem->arena, "%s.", owner)));
}

bool offer_imported(const Unit *unit, const char *name, unsigned kinds, Diag *diag) {
  for (uint32_t i = 0; i < unit->order.count; i++) {
    const Symbol *import = unit->order.at[i];
    const Symbol *inner = import->kind == SYMBOL_IMPORT && import->import ? unit_symbol(import->import, name) : NULL;
    if (!inner || !(kinds >> inner->kind & 1)) continue;
    diag_help(diag, "did you mean `%s.%s`?", import->name, name);
    return true;
  }
  return false;
}

/* Where a body assigns a name inside of a loop or a branch that ends before `place`, and inside of which; NULL:
 * nowhere. `inside` is that of the body itself. */
static const Name *assigned_inside(Stmt *const *body, uint32_t count, const char *name, Span place,
                                   const Stmt **inside) {
  const Name *found = NULL;
  for (uint32_t i = 0; i < count && !found; i++) {
    const Stmt *stmt = body[i], *outer = *inside;
    bool ends = stmt->span.file == place.file && stmt->span.end <= place.begin;
    for (uint32_t k = 0; outer && k < stmt->target_count && !found; k++)
      if (stmt->targets[k].text == name) found = &stmt->targets[k];
    if (outer && stmt->index.text == name && !found) found = &stmt->index;
    if (!outer && ends && (stmt->kind == STMT_REPEAT || stmt->kind == STMT_IF)) *inside = stmt;
    if (!outer && ends && stmt->kind == STMT_REPEAT && stmt->index.text == name) found = &stmt->index;
    if (!found) found = assigned_inside(stmt->body, stmt->body_count, name, place, inside);
    if (!found) found = assigned_inside(stmt->otherwise, stmt->otherwise_count, name, place, inside);
    if (!found) *inside = outer;
  }
  return found;
}

void report_unknown_name(Sem *sem, Unit *unit, Frame *frame, const Name *name) {
  const char *dot = strchr(name->text, '.');
  Symbol *import = dot ? unit_symbol(unit, intern(sem->names, name->text, (size_t)(dot - name->text))) : NULL;
  if (import && import->kind == SYMBOL_IMPORT && !import->import) return; /* not found, reported */
  if (!first_unknown(sem, name->text)) return;
  if (dot && !import && is_told_owner(sem, unit, frame, name->text)) return;
  Diag *diag = report(sem, "E0201", name->span, "unknown name `%s`", name->text);
  Spelling spelling = spelling_of(name->text);
  if (import && import->kind == SYMBOL_IMPORT && import->import) {
    Spelling inner = spelling_of(dot + 1);
    spelling_symbols(&inner, import->import, ~0u);
    if (inner.best)
      diag_help(diag, "did you mean `%s.%s`?", import->name, inner.best);
    else
      diag_note(diag, "`%s` is %s", import->name, import->import->path);
    return;
  }
  spelling_locals(&spelling, frame);
  spelling_symbols(&spelling, unit, 1u << SYMBOL_CONST | 1u << SYMBOL_DIM);
  if (dot) spelling_keys(&spelling, sem);
  const Item *item = frame && frame->symbol ? frame->symbol->item : NULL;
  const Stmt *inside = NULL;
  const Name *ended = item ? assigned_inside(item->body, item->body_count, name->text, name->span, &inside) : NULL;
  if (ended && inside->index.text == name->text) {
    diag_label(diag, ended->span, "the index `%s` ends with its loop", name->text);
    return;
  }
  if (ended && inside->kind == STMT_REPEAT) {
    diag_label(diag, ended->span, "`%s` is assigned in a loop, and ends with it", name->text);
    diag_help(diag, "give `%s` a value before the loop, so that it goes from trip to trip and beyond", name->text);
    return;
  }
  if (ended) {
    diag_label(diag, ended->span, "`%s` is assigned in a branch that is not taken", name->text);
    diag_help(diag, "give `%s` a value in the other branch too, or before the `if`", name->text);
    return;
  }
  for (Frame *f = frame ? frame->caller : NULL; f && f->symbol; f = f->caller) {
    const Local *outside = find_local(f, name->text);
    if (!outside) continue;
    diag_label(diag, outside->span, "block `%s` does not see what belongs to `%s`", frame->symbol->name,
               f->symbol->name);
    diag_help(diag, "make it an input of `%s`", frame->symbol->name);
    return;
  }
  for (uint32_t i = 0; i < sem->graph->metrics.count; i++) {
    if (sem->graph->metrics.at[i].name != name->text) continue;
    diag_help(diag, "a metric is reported only; name its value first: `e = ...; metric %s = e;`", name->text);
    return;
  }
  if (dot && spelling.best && !strcmp(spelling.best, name->text)) {
    diag_note(diag, "this key has no value that an expression can read");
    return;
  }
  if (dot && find_local(frame, intern(sem->names, name->text, (size_t)(dot - name->text)))) {
    diag_note(diag, "a tensor has no members; its sizes are those of its axes, which have names: `seq`, `embed`");
    return;
  }
  if (dot && !spelling.best) {
    int length = (int)(dot - name->text);
    diag_note(diag, "`%.*s` is no import", length, name->text);
    diag_help(diag, "import what has it: `import \"%s.pd\" as %.*s;`",
              length == 2 && !strncmp(name->text, "nn", 2) ? "std/nn" : "...", length, name->text);
  }
  if (name->text[0] >= '0' && name->text[0] <= '9')
    diag_note(diag, "numbers take K M B T (powers of 1000) and KiB MiB GiB: 80GiB, 1.5M");
  if (!dot && offer_imported(unit, name->text, 1u << SYMBOL_CONST | 1u << SYMBOL_DIM, diag)) return;
  bool word = !strcmp(name->text, "on") || !strcmp(name->text, "off") || !strcmp(name->text, "no");
  if (!word) spelling_help(&spelling, diag);
  if (word || !spelling.best) alias_help(name->text, diag);
}

Const symbol_const(Sem *sem, Symbol *symbol) {
  if (symbol->state == STATE_DONE) return symbol->constant;
  if (symbol->state == STATE_BUSY) {
    Diag *diag = report(sem, "E0212", symbol->span, "`%s` is defined by itself", symbol->name);
    diag_note(diag, "its value needs `%s` again before it is known", symbol->name);
    symbol->constant = error_const;
    symbol->axis = sem->error_axis;
    symbol->state = STATE_DONE;
    return error_const;
  }
  symbol->state = STATE_BUSY;
  Const value = symbol->value ? const_eval(sem, symbol->unit, NULL, symbol->value) : error_const;
  if (symbol->state == STATE_DONE) return error_const; /* a circle, reported */
  symbol->state = STATE_DONE;
  symbol->constant = value;
  if (symbol->kind != SYMBOL_DIM) return value;
  /* a dim is an axis too */
  if (value.kind != CONST_ERROR && (value.kind != CONST_INT || value.integer < 0)) {
    Diag *diag = report(sem, "E0222", symbol->value->span, "the size of dim `%s` is %s", symbol->name,
                        value.kind == CONST_BOOL || value.kind == CONST_TEXT ? const_kind_name(value.kind)
                                                                             : const_value_text(sem, value));
    if (const_is_number(value) && symbol->value->kind != EXPR_REAL && symbol->value->kind != EXPR_INT)
      diag_note(diag, "%s = %s", symbol->name, derivation_text(sem, symbol->unit, NULL, symbol->value));
    diag_note(diag, "a size is a whole number, not negative");
    value = symbol->constant = error_const;
  }
  if (value.kind == CONST_ERROR) {
    symbol->axis = sem->error_axis;
    return value;
  }
  Axis axis = {.name = symbol->name, .size = value.integer, .span = symbol->span};
  if (symbol->value->kind != EXPR_INT) axis.derivation = derivation_text(sem, symbol->unit, NULL, symbol->value);
  vec_push(sem->arena, &sem->graph->axes, axis);
  symbol->axis = sem->graph->axes.count - 1;
  return value;
}

/* The value of `parallel.dp` where the launch gives it. */
static void report_open_degree(Sem *sem, Span span) {
  Diag *diag = report(sem, "E0414", span, "`parallel.dp` is not known here: `dp=*` leaves it to the launch");
  diag_label(diag, open_degree(sem)->span, "as many replicas as the launch has ranks for");
  diag_help(diag, "say how many replicas, `dp=8`, or leave `parallel.dp` out here");
}

bool name_const(Sem *sem, Unit *unit, Frame *frame, const Name *name, Const *result) {
  Local *local = find_local(frame, name->text);
  if (local) {
    if (local->is_size) {
      *result = axis_is_error(sem, local->axis) ? error_const : const_int(sem->graph->axes.at[local->axis].size);
      return true;
    }
    if (local->value.kind == VAL_NUMBER || local->value.kind == VAL_ERROR) {
      *result = local->value.kind == VAL_NUMBER ? local->value.number : error_const;
      return true;
    }
    return false;
  }
  Symbol *symbol = find_symbol(sem, unit, name->text);
  if (symbol && (symbol->kind == SYMBOL_CONST || symbol->kind == SYMBOL_DIM)) {
    *result = symbol_const(sem, symbol);
    return true;
  }
  if (symbol) return false;
  if (!strcmp(name->text, "true") || !strcmp(name->text, "false")) {
    *result = const_bool(name->text[0] == 't');
    return true;
  }
  if (!strchr(name->text, '.') || !section_const(sem, name->text, result)) return false;
  if (!strcmp(name->text, "parallel.dp") && open_degree(sem)) report_open_degree(sem, name->span);
  return true;
}

static Const eval_name(Sem *sem, Unit *unit, Frame *frame, const Expr *expr) {
  Const result = error_const;
  if (name_const(sem, unit, frame, &expr->name, &result)) return result;
  Local *local = find_local(frame, expr->name.text);
  Symbol *symbol = local ? NULL : find_symbol(sem, unit, expr->name.text);
  if (local) {
    Diag *diag = report(sem, "E0223", expr->span, "`%s` is a tensor, and a value known at compile time is needed here",
                        expr->name.text);
    diag_label(diag, local->span, "`%s` is computed by the program", expr->name.text);
  } else if (symbol) {
    report(sem, "E0223", expr->span, "`%s` is a %s, and a value is needed here", expr->name.text,
           symbol->kind == SYMBOL_BLOCK   ? "block"
           : symbol->kind == SYMBOL_MODEL ? "model"
                                          : "module");
  } else {
    report_unknown_name(sem, unit, frame, &expr->name);
  }
  return error_const;
}

static Const eval_call(Sem *sem, Unit *unit, Frame *frame, const Expr *expr) {
  if (!is_const_function(expr->name.text)) {
    Frame nobody = {.unit = unit};
    const Symbol *symbol = find_symbol(sem, unit, expr->name.text);
    if (!is_operation(expr->name.text) && !is_initialiser(expr->name.text) &&
        (!symbol || symbol->kind != SYMBOL_BLOCK)) {
      report_unknown_call(sem, frame ? frame : &nobody, expr);
      return error_const;
    }
    Diag *diag = report(sem, "E0223", expr->span, "`%s` is not computed at compile time", expr->name.text);
    diag_note(diag, "constants may use sqrt, exp, log, log2, floor, min, max and roundup");
    return error_const;
  }
  Const *args = ARENA_ARRAY(sem->arena, Const, expr->arg_count + 1);
  for (uint32_t i = 0; i < expr->arg_count; i++) args[i] = const_eval(sem, unit, frame, expr->args[i]);
  return const_call(sem, expr, expr->name.text, args, expr->arg_count);
}

static Const eval_inner(Sem *sem, Unit *unit, Frame *frame, const Expr *expr) {
  switch (expr->kind) {
  case EXPR_INT:
    return const_int(expr->integer);
  case EXPR_REAL:
    return checked_real(sem, expr, expr->real);
  case EXPR_STRING:
    return const_text(expr->string);
  case EXPR_NAME:
    return eval_name(sem, unit, frame, expr);
  case EXPR_UNARY:
    return const_unary(sem, expr, const_eval(sem, unit, frame, expr->args[0]));
  case EXPR_BINARY: {
    Const a = const_eval(sem, unit, frame, expr->args[0]), b = const_eval(sem, unit, frame, expr->args[1]);
    return const_binary(sem, expr, a, b);
  }
  case EXPR_CALL:
    return eval_call(sem, unit, frame, expr);
  case EXPR_ERROR:
    return error_const;
  case EXPR_PIPE:
  case EXPR_TUPLE:
  case EXPR_STAR:
    break;
  }
  report(sem, "E0223", expr->span, "`%s` is not a value known at compile time", source_text(sem, expr->span, 60));
  return error_const;
}

Const const_eval(Sem *sem, Unit *unit, Frame *frame, const Expr *expr) {
  if (!expr) return error_const; /* a syntax error, reported */
  if (sem->const_depth >= MAX_CONST_DEPTH) {
    report(sem, "E0212", expr->span, "constants are nested more than %d deep", MAX_CONST_DEPTH);
    return error_const;
  }
  sem->const_depth++;
  Const result = eval_inner(sem, unit, frame, expr);
  sem->const_depth--;
  return result;
}

/* `h / 2` with an odd h: the sizes around it that divide. */
static void division_help(Sem *sem, Unit *unit, Frame *frame, const Expr *expr, Diag *diag) {
  if (expr->kind != EXPR_BINARY || expr->op != '/' || expr->args[0]->kind == EXPR_INT) return;
  Const a = const_eval(sem, unit, frame, expr->args[0]), b = const_eval(sem, unit, frame, expr->args[1]);
  if (a.kind != CONST_INT || b.kind != CONST_INT || b.integer < 1 || a.integer < b.integer ||
      a.integer > INT64_MAX - b.integer)
    return;
  int64_t below = a.integer / b.integer * b.integer;
  diag_help(diag, "nearest values of `%s` that divide: %" PRId64 " or %" PRId64,
            source_text(sem, expr->args[0]->span, 40), below, below + b.integer);
}

bool eval_integer(Sem *sem, Unit *unit, Frame *frame, const Expr *expr, const char *what, int64_t *result) {
  Const value = const_eval(sem, unit, frame, expr);
  *result = value.integer;
  if (value.kind == CONST_INT || value.kind == CONST_ERROR) return value.kind == CONST_INT;
  Diag *diag = report(sem, "E0214", expr->span, "%s must be a whole number, not %s", what,
                      value.kind == CONST_REAL ? const_value_text(sem, value) : const_kind_name(value.kind));
  if (expr->kind != EXPR_REAL && value.kind == CONST_REAL)
    diag_note(diag, "%s = %s", derivation_text(sem, unit, frame, expr), const_value_text(sem, value));
  if (value.kind == CONST_REAL) division_help(sem, unit, frame, expr, diag);
  return false;
}

bool eval_number(Sem *sem, Unit *unit, Frame *frame, const Expr *expr, const char *what, double *result) {
  Const value = const_eval(sem, unit, frame, expr);
  *result = const_is_number(value) ? const_number(value) : 0;
  if (const_is_number(value) || value.kind == CONST_ERROR) return const_is_number(value);
  report(sem, "E0214", expr->span, "%s must be a number, not %s", what, const_kind_name(value.kind));
  return false;
}

void evaluate_unit(Sem *sem, Unit *unit) {
  for (uint32_t i = 0; i < unit->order.count && !diag_full(sem->diagnostics); i++) {
    Symbol *symbol = unit->order.at[i];
    if (symbol->kind == SYMBOL_CONST || symbol->kind == SYMBOL_DIM) symbol_const(sem, symbol);
  }
}
