/* Expressions of a block or model: numbers are folded, tensors become operations of the draft. */
#include <string.h>

#include "semantic/internal.h"

enum { MAX_DEPTH = 2000, MAX_STEPS = 200000 };

static Val eval_name(Sem *sem, Frame *frame, const Expr *expr) {
  const Local *local = find_local(frame, expr->name.text);
  if (local && !local->is_size) return local->value;
  return val_number(const_eval(sem, frame->unit, frame, expr));
}

static OpKind kind_of(int op) {
  switch (op) {
  case '+':
    return OP_ADD;
  case '-':
    return OP_SUB;
  case '*':
    return OP_MUL;
  case '/':
    return OP_DIV;
  default:
    return OP_COUNT;
  }
}

static Val eval_binary(Sem *sem, Frame *frame, const Expr *expr) {
  Val a = eval(sem, frame, expr->args[0]), b = eval(sem, frame, expr->args[1]);
  if (a.kind == VAL_ERROR || b.kind == VAL_ERROR) return val_error();
  if (expr->op == '@' && (a.kind != VAL_NUMBER || b.kind != VAL_NUMBER)) return contract_at(sem, frame, expr, a, b);
  if (a.kind == VAL_NUMBER && b.kind == VAL_NUMBER) return val_number(const_binary(sem, expr, a.number, b.number));
  OpKind kind = kind_of(expr->op);
  if (kind == OP_COUNT) {
    Diag *diag = report(sem, "E0308", expr->op_span, "`%s` works on constants, not on tensors",
                        source_text(sem, expr->op_span, 8));
    const Expr *tensor = expr->args[a.kind == VAL_NUMBER];
    diag_label(diag, tensor->span, "a tensor");
    return val_error();
  }
  return emit_binary(sem, kind, expr, expr->op_span, a, expr->args[0], b, expr->args[1]);
}

static Val eval_unary(Sem *sem, Frame *frame, const Expr *expr) {
  Val a = eval(sem, frame, expr->args[0]);
  if (a.kind == VAL_ERROR) return a;
  if (a.kind == VAL_NUMBER) return val_number(const_unary(sem, expr, a.number));
  if (expr->op != '-' || a.kind != VAL_TENSOR || value_at(sem, a.value)->dtype != DT_REAL) {
    report(sem, a.kind == VAL_TENSOR && expr->op == '-' ? "E0309" : "E0308", expr->span,
           "`%c` needs %s, and `%s` is %s", expr->op, expr->op == '-' ? "real numbers" : "a boolean",
           source_text(sem, expr->args[0]->span, 40),
           a.kind == VAL_TENSOR ? shape_text(sem, a.value) : "several tensors");
    return val_error();
  }
  Id axes[MAX_RANK];
  memcpy(axes, value_at(sem, a.value)->axes, sizeof axes);
  return emit(sem, OP_NEG, expr->span, &a.value, 1, value_at(sem, a.value)->rank, axes);
}

bool is_initialiser(const char *name) {
  return !strcmp(name, "normal") || !strcmp(name, "uniform") || !strcmp(name, "kaiming") || !strcmp(name, "xavier");
}

bool is_compared(const Expr *given, const char *name) {
  return given->kind == EXPR_BINARY && given->op == EXPR_OP_EQ && !given->parens && given->args[0]->kind == EXPR_NAME &&
         !strcmp(given->args[0]->name.text, name);
}

bool report_compared(Sem *sem, Frame *frame, const Expr *given) {
  const Name *name = &given->args[0]->name;
  const Local *local = find_local(frame, name->text);
  bool known =
      local ? local->is_size || local->value.kind == VAL_NUMBER : find_symbol(sem, frame->unit, name->text) != NULL;
  if (known) return false;
  Diag *diag = report(sem, "E0215", given->op_span, "`==` compares, and an argument is given with `=`");
  diag_help(diag, "write `%s=%s`", name->text, source_text(sem, given->args[1]->span, 40));
  return true;
}

void report_unknown_call(Sem *sem, Frame *frame, const Expr *expr) {
  const char *name = expr->name.text;
  const Local *local = find_local(frame, name);
  const Symbol *symbol = find_symbol(sem, frame->unit, name);
  if (local || symbol) {
    Diag *diag = report(sem, "E0204", expr->name.span, "`%s` cannot be called", name);
    diag_label(diag, local ? local->span : symbol->span, "`%s` is a %s", name,
               local                          ? "value"
               : symbol->kind == SYMBOL_DIM   ? "dim"
               : symbol->kind == SYMBOL_CONST ? "const"
               : symbol->kind == SYMBOL_MODEL ? "model"
                                              : "module");
    return;
  }
  if (is_initialiser(name)) {
    report(sem, "E0204", expr->span, "`%s` is an initialiser: it stands after `=` in a `param`", name);
    return;
  }
  const char *dot = strchr(name, '.');
  Symbol *import = dot ? unit_symbol(frame->unit, intern(sem->names, name, (size_t)(dot - name))) : NULL;
  if (import && import->kind == SYMBOL_IMPORT && !import->import) return; /* not found, reported */
  if (!first_unknown(sem, name)) return;
  if (dot && !import && is_told_owner(sem, frame->unit, frame, name)) return;
  Diag *diag = report(sem, "E0204", expr->name.span, "unknown block or operation `%s`", name);
  if (import && import->kind == SYMBOL_IMPORT) {
    Spelling inner = spelling_of(dot + 1);
    spelling_symbols(&inner, import->import, 1u << SYMBOL_BLOCK);
    if (inner.best) {
      diag_help(diag, "did you mean `%s.%s`?", import->name, inner.best);
      return;
    }
    Text list = {.arena = sem->arena};
    for (uint32_t i = 0; i < import->import->order.count; i++)
      if (import->import->order.at[i]->kind == SYMBOL_BLOCK)
        text_printf(&list, "%s%s", list.length ? ", " : "", import->import->order.at[i]->name);
    if (list.length && list.length < 300) diag_note(diag, "the blocks of `%s` are %s", import->name, list.at);
    return;
  }
  Spelling spelling = spelling_of(name);
  spelling_symbols(&spelling, frame->unit, 1u << SYMBOL_BLOCK);
  spelling_operations(&spelling);
  const char *owner = dot && !import ? intern(sem->names, name, (size_t)(dot - name)) : NULL;
  if (owner && (find_local(frame, owner) || find_symbol(sem, frame->unit, owner)))
    diag_help(diag, "tensors have no methods: write `%s(%s)`, or `%s |> %s(...)`", dot + 1, owner, owner, dot + 1);
  else if (dot && !import)
    diag_help(diag, "import what has it: `import \"std/nn.pd\" as %.*s;`", (int)(dot - name), name);
  else if (offer_imported(frame->unit, name, 1u << SYMBOL_BLOCK, diag))
    return;
  else if (spelling.best)
    spelling_help(&spelling, diag);
  else
    alias_help(name, diag);
}

static Val eval_call(Sem *sem, Frame *frame, const Expr *expr, const Expr *first) {
  uint32_t count = 0, most = expr->arg_count + 1;
  Expr **args = ARENA_ARRAY(sem->arena, Expr *, most);
  Name *names = ARENA_ARRAY(sem->arena, Name, most);
  if (first) {
    args[count] = ARENA_NEW(sem->arena, Expr);
    *args[count++] = *first;
  }
  for (uint32_t i = 0; i < expr->arg_count; i++) {
    args[count] = expr->args[i];
    if (expr->arg_names) names[count] = expr->arg_names[i];
    count++;
  }
  const char *name = expr->name.text;
  Symbol *symbol = find_symbol(sem, frame->unit, name);
  /* inside a block, its own name means the operation: `block layernorm(x: …) { … layernorm(x) … }` */
  bool itself = symbol && symbol == frame->symbol && is_operation(name);
  if (symbol && symbol->kind == SYMBOL_BLOCK && !itself)
    return call_block(sem, frame, symbol, expr, count, args, names);
  if (is_operation(name)) return call_operation(sem, frame, expr, count, args, names);
  if (is_const_function(name)) {
    Expr call = *expr;
    call.args = args;
    call.arg_names = names;
    call.arg_count = count;
    return val_number(const_eval(sem, frame->unit, frame, &call));
  }
  report_unknown_call(sem, frame, expr);
  return val_error();
}

static Val eval_tuple(Sem *sem, Frame *frame, const Expr *expr) {
  Val tuple = {.kind = VAL_TUPLE, .value = NO_ID, .count = expr->arg_count};
  tuple.items = ARENA_ARRAY(sem->arena, Val, expr->arg_count);
  for (uint32_t i = 0; i < expr->arg_count; i++) {
    tuple.items[i] = eval(sem, frame, expr->args[i]);
    if (tuple.items[i].kind == VAL_ERROR) return val_error();
  }
  return tuple;
}

bool go_deeper(Sem *sem, Span span) {
  if (sem->steps > MAX_STEPS) return false;
  if (++sem->steps > MAX_STEPS) {
    Diag *diag = report(sem, "E0319", span, "the model has more than %d statements and expressions", MAX_STEPS);
    diag_note(diag, "a block is written out at each of its calls, and blocks call each other");
    sem->too_long = true;
    return false;
  }
  if (sem->depth < MAX_DEPTH) {
    sem->depth++;
    return true;
  }
  report(sem, "E0110", span, "expressions, statements and calls are nested more than %d deep", MAX_DEPTH);
  return false;
}

static Val eval_inner(Sem *sem, Frame *frame, const Expr *expr) {
  switch (expr->kind) {
  case EXPR_NAME:
    return eval_name(sem, frame, expr);
  case EXPR_UNARY:
    return eval_unary(sem, frame, expr);
  case EXPR_BINARY:
    return eval_binary(sem, frame, expr);
  case EXPR_PIPE:
    if (expr->args[1]->kind != EXPR_CALL) return val_error(); /* reported by the parser */
    return eval_call(sem, frame, expr->args[1], expr->args[0]);
  case EXPR_CALL:
    return eval_call(sem, frame, expr, NULL);
  case EXPR_TUPLE:
    return eval_tuple(sem, frame, expr);
  default:
    return val_number(const_eval(sem, frame->unit, frame, expr));
  }
}

Val eval(Sem *sem, Frame *frame, const Expr *expr) {
  if (!expr || !go_deeper(sem, expr->span)) return val_error(); /* NULL: a syntax error, reported */
  Val result = eval_inner(sem, frame, expr);
  sem->depth--;
  if (result.kind == VAL_TENSOR) vec_push(sem->arena, &frame->seen, (Seen){expr, result.value});
  return result;
}
