/* Calls of blocks: sizes are bound by name or from the arguments, the body is elaborated in a frame of its own, and the
 * result is held against the declared type. A call leaves nothing behind but its operations and its parameters. */
#include <inttypes.h>
#include <string.h>

#include "semantic/elaborate.h"

enum { MAX_CALL_DEPTH = 100 };

/* ---- sizes ---- */

static void bind_size(Sem *sem, Frame *frame, const Name *size, Id axis) {
  Local local = {.name = size->text, .span = size->span, .is_size = true, .axis = axis};
  const Name *rule = NULL;
  Mesh mesh = shard_of_size(sem, frame->symbol, size->text, &rule);
  Axis *bound = &sem->graph->axes.at[axis];
  if (mesh != MESH_NONE && !axis_is_error(sem, axis) && !bound->open) {
    if (!bound->name && bound->mesh == MESH_NONE) {
      local.axis = anonymous_axis(sem, bound->size, bound->derivation, bound->span);
      sem->graph->axes.at[local.axis].mesh = mesh;
      if (bound->size % mesh_degree(sem, mesh)) {
        const char *name = arena_printf(sem->arena, "%s.%s", frame->symbol->name, size->text);
        does_not_divide(sem, frame->call, name, local.axis);
        local.axis = sem->error_axis;
      }
    } else if (bound->mesh != mesh) {
      Diag *diag = report(sem, "E0413", frame->call, "`%s=%s` splits %s, which is not split outside of the block",
                          rule->text, mesh_name(mesh), axis_text(sem, axis));
      diag_label(diag, rule->span, "the rule");
      diag_help(diag, "write `%s=%s` in `shard < >`", bound->name ? bound->name : "dim", mesh_name(mesh));
    }
  }
  add_local(sem, frame, local);
}

static bool is_size_name(const Item *item, const char *name) {
  for (uint32_t i = 0; i < item->size_count; i++)
    if (item->sizes[i].text == name) return true;
  return false;
}

static const Name *size_of_expr(const Item *item, const Expr *expr) {
  if (expr->kind != EXPR_NAME) return NULL;
  for (uint32_t i = 0; i < item->size_count; i++)
    if (item->sizes[i].text == expr->name.text) return &item->sizes[i];
  return NULL;
}

/* True when an expression mentions a size of the block that is not bound yet. */
static bool mentions_unbound(const Frame *frame, const Item *item, const Expr *expr) {
  if (expr->kind == EXPR_NAME && is_size_name(item, expr->name.text))
    return !find_local((Frame *)(uintptr_t)frame, expr->name.text);
  for (uint32_t i = 0; i < expr->arg_count; i++)
    if (mentions_unbound(frame, item, expr->args[i])) return true;
  return false;
}

/* ---- types ---- */

bool type_dtype(Sem *sem, const TypeExpr *type, DType *dtype) {
  const char *name = type->dtype.text;
  *dtype = DT_REAL;
  if (!name || !strcmp(name, "f32") || !strcmp(name, "f64") || !strcmp(name, "bf16")) return true;
  *dtype = DT_I32;
  if (!strcmp(name, "i32")) return true;
  Diag *diag = report(sem, "E0201", type->dtype.span, "unknown element type `%s`", name);
  diag_note(diag, "element types are i32, f32, bf16 and f64");
  return false;
}

typedef struct Against { /* a tensor held against a type */
  Sem *sem;
  Frame *frame;
  const TypeExpr *type;
  Id value;
  Span span;
  const char *what; /* "argument `x` of `linear`" */
} Against;

static bool type_mismatch(const Against *a, const char *code, unsigned position, Id expected) {
  Sem *sem = a->sem;
  const Value *v = value_at(sem, a->value);
  Diag *diag = report(sem, code, a->span, "%s is %s, not `%s`", a->what, shape_text(sem, a->value),
                      source_text(sem, a->type->span, 60));
  diag_label(diag, a->type->span, "declared here");
  if (expected == NO_ID) return false;
  diag_note(diag, "axis %u is %s where %s is declared", position + 1, axis_text(sem, v->axes[position]),
            axis_text(sem, expected));
  Id both[2] = {v->axes[position], expected};
  axis_notes(sem, diag, 2, both);
  mismatch_help(sem, diag, both[0], both[1]);
  window_help(sem, diag, a->value, position, sem->graph->axes.at[expected].size);
  return false;
}

/* One axis of a value against one dim of a type; binds the size that the dim names. */
static bool match_dim(const Against *a, const char *code, unsigned position, const Expr *dim, bool plain_names) {
  Sem *sem = a->sem;
  const Item *item = a->frame->symbol->item;
  const Name *size = size_of_expr(item, dim);
  Id axis = value_at(sem, a->value)->axes[position];
  if (plain_names != (size != NULL)) return true;
  if (size && !find_local(a->frame, size->text)) {
    bind_size(sem, a->frame, size, axis);
    return true;
  }
  if (!size && mentions_unbound(a->frame, item, dim)) return true; /* reported with the unbound size */
  Id expected = axis_of_expr(sem, a->frame->unit, a->frame, dim);
  if (axis_is_error(sem, expected)) return false;
  return same_axis(sem, expected, axis) || type_mismatch(a, code, position, expected);
}

bool match_type(Sem *sem, Frame *frame, const TypeExpr *type, Id value, Span span, const char *what, const char *code,
                bool plain_names) {
  Against a = {sem, frame, type, value, span, what};
  const Value *v = value_at(sem, value);
  DType dtype;
  if (!type_dtype(sem, type, &dtype)) return false;
  if (dtype != v->dtype || v->rank < type->dim_count || (!type->leading_run && v->rank != type->dim_count))
    return type_mismatch(&a, dtype != v->dtype ? "E0309" : code, 0, NO_ID);
  unsigned run = v->rank - type->dim_count;
  if (type->leading_run && !frame->has_run) {
    frame->has_run = true;
    frame->run_count = run;
    memcpy(frame->run, v->axes, run * sizeof(Id));
  } else if (type->leading_run) {
    if (run != frame->run_count) return type_mismatch(&a, code, 0, NO_ID);
    for (unsigned i = 0; i < run; i++)
      if (!same_axis(sem, frame->run[i], v->axes[i])) return type_mismatch(&a, code, i, frame->run[i]);
  }
  for (unsigned i = 0; i < type->dim_count; i++)
    if (!match_dim(&a, code, run + i, type->dims[i], plain_names)) return false;
  return true;
}

/* ---- arguments that a block's own rule wants whole ---- */

/* `conv.co=tp` splits the channels that a convolution makes. Those that enter it, which the one before made, would be
 * split too, and its filter [co, ci, …] twice: a size without a rule is whole where another size of the block has one
 * for the same mesh axis. */
static bool enters_whole(Sem *sem, const Symbol *block, const Name *size, Id axis) {
  const Axis *a = &sem->graph->axes.at[axis];
  if (!size || axis == sem->batch || a->mesh == MESH_NONE || shard_of_size(sem, block, size->text, NULL) != MESH_NONE)
    return false;
  for (uint32_t i = 0; i < block->item->size_count; i++)
    if (shard_of_size(sem, block, block->item->sizes[i].text, NULL) == a->mesh) return true;
  return false;
}

/* The same, made for another call of this segment. */
static Val gathered_before(Sem *sem, Id value, unsigned position) {
  const Draft *draft = sem->current == NO_ID ? NULL : &sem->drafts.at[sem->current];
  for (uint32_t i = 0; draft && i < draft->ops.count; i++) {
    const Op *op = &sem->graph->ops.at[draft->ops.at[i]];
    if (op->kind == OP_ALL_GATHER && op->in[0] == value && op->integer[0] == position) return val_tensor(op->out[0]);
  }
  return val_error();
}

/* The argument with such axes whole: every rank gets the others' parts. */
static Val whole_argument(Sem *sem, const Symbol *block, const TypeExpr *type, Val argument, Span span) {
  for (unsigned i = 0; i < type->dim_count && argument.kind == VAL_TENSOR; i++) {
    const Value *v = value_at(sem, argument.value);
    if (v->rank < type->dim_count || v->dtype != DT_REAL) return argument; /* told with the shape */
    unsigned position = (unsigned)v->rank - type->dim_count + i, rank = v->rank;
    Id axis = v->axes[position], axes[MAX_RANK];
    if (!enters_whole(sem, block, size_of_expr(block->item, type->dims[i]), axis)) continue;
    Val before = gathered_before(sem, argument.value, position);
    if (before.kind == VAL_TENSOR) {
      argument = before;
      continue;
    }
    memcpy(axes, v->axes, sizeof axes);
    Mesh mesh = sem->graph->axes.at[axis].mesh;
    const char *name = v->name;
    axes[position] = anonymous_axis(sem, sem->graph->axes.at[axis].size, sem->graph->axes.at[axis].derivation,
                                    sem->graph->axes.at[axis].span);
    argument = emit(sem, mesh_degree(sem, mesh) > 1 ? OP_ALL_GATHER : OP_RESHAPE, span, &argument.value, 1, rank, axes);
    if (argument.kind != VAL_TENSOR) break;
    op_of(sem, argument)->integer[0] = position;
    value_at(sem, argument.value)->name = name; /* it is the same tensor */
  }
  return argument;
}

/* ---- arguments ---- */

typedef struct Arguments {
  Sem *sem;
  Frame *caller, *frame;
  Symbol *block;
  const Expr *expr;
  const Expr **given; /* per input of the block, NULL: not given */
  Val *values;
} Arguments;

static bool bind_named_argument(Arguments *a, const Name *name, const Expr *value) {
  Sem *sem = a->sem;
  const Item *item = a->block->item;
  for (uint32_t i = 0; i < item->size_count; i++) {
    if (item->sizes[i].text != name->text) continue;
    if (find_local(a->frame, name->text)) {
      report(sem, "E0215", name->span, "size `%s` is given twice", name->text);
      return false;
    }
    Id axis = axis_of_expr(sem, a->caller->unit, a->caller, value);
    if (axis_is_error(sem, axis)) return false;
    bind_size(sem, a->frame, &item->sizes[i], axis);
    return true;
  }
  for (uint32_t i = 0; i < item->input_count; i++) {
    if (item->inputs[i].name.text != name->text) continue;
    if (a->given[i]) {
      report(sem, "E0215", name->span, "`%s` is given twice", name->text);
      return false;
    }
    a->given[i] = value;
    return true;
  }
  Diag *diag = report(sem, "E0215", name->span, "block `%s` has no input or size `%s`", a->expr->name.text, name->text);
  Spelling spelling = spelling_of(name->text);
  for (uint32_t i = 0; i < item->size_count; i++) spelling_try(&spelling, item->sizes[i].text);
  for (uint32_t i = 0; i < item->input_count; i++) spelling_try(&spelling, item->inputs[i].name.text);
  spelling_help(&spelling, diag);
  if (!spelling.best) {
    Text list = {.arena = sem->arena};
    for (uint32_t i = 0; i < item->input_count; i++)
      text_printf(&list, "%s%s", i ? ", " : "", item->inputs[i].name.text);
    for (uint32_t i = 0; i < item->size_count; i++)
      text_printf(&list, "%s%s", i ? ", " : "; its sizes are ", item->sizes[i].text);
    if (list.length && list.length < 200) diag_note(diag, "its inputs are %s", list.at);
  }
  return false;
}

static bool place_arguments(Arguments *a, uint32_t count, Expr *const *args, const Name *names) {
  const Item *item = a->block->item;
  uint32_t next = 0;
  bool usable = true;
  for (uint32_t i = 0; i < count; i++)
    if (names[i].text) usable &= bind_named_argument(a, &names[i], args[i]);
  for (uint32_t i = 0; i < count; i++) {
    if (names[i].text) continue;
    bool compared = false;
    for (uint32_t k = 0; k < item->input_count; k++) compared |= is_compared(args[i], item->inputs[k].name.text);
    for (uint32_t k = 0; k < item->size_count; k++) compared |= is_compared(args[i], item->sizes[k].text);
    if (compared && report_compared(a->sem, a->caller, args[i])) return false;
    while (next < item->input_count && a->given[next]) next++;
    if (next < item->input_count) {
      a->given[next] = args[i];
      continue;
    }
    if (i < item->input_count) { /* its place is taken by name */
      report(a->sem, "E0215", args[i]->span, "input `%s` of `%s` is given twice", item->inputs[i].name.text,
             a->expr->name.text);
      return false;
    }
    Diag *diag = report(a->sem, "E0215", args[i]->span, "block `%s` takes %u input%s", a->expr->name.text,
                        item->input_count, item->input_count == 1 ? "" : "s");
    if (item->size_count) diag_note(diag, "sizes are given by name: %s=...", item->sizes[0].text);
    return false;
  }
  return usable;
}

/* A constant of another kind than the default would be an error somewhere in the block: told where it is given. */
static bool fits_default(Arguments *a, const Input *input, const Expr *given, Const value) {
  if (!input->value) return true;
  Const initial = const_eval(a->sem, a->block->unit, NULL, input->value);
  if (initial.kind == CONST_ERROR) return false;
  if (value.kind == initial.kind || (const_is_number(value) && const_is_number(initial))) return true;
  Diag *diag = report(a->sem, "E0215", given->span, "input `%s` of `%s` is %s, and `%s` is %s", input->name.text,
                      a->expr->name.text,
                      initial.kind == CONST_BOOL ? "true or false"
                      : const_is_number(initial) ? "a number"
                                                 : const_kind_name(initial.kind),
                      source_text(a->sem, given->span, 40), const_kind_name(value.kind));
  diag_label(diag, input->name.span, "declared here");
  return false;
}

/* Evaluates what is given (all of it, so that every error shows), and the defaults of constants. */
static bool evaluate_arguments(Arguments *a) {
  Sem *sem = a->sem;
  const Item *item = a->block->item;
  bool usable = true, misplaced = false; /* a tensor stands where a constant does: then no tensor is missing */
  for (uint32_t i = 0; i < item->input_count; i++)
    if (a->given[i]) a->values[i] = eval(sem, a->caller, a->given[i]);
  for (uint32_t i = 0; i < item->input_count; i++)
    misplaced |= a->given[i] && !item->inputs[i].type && a->values[i].kind == VAL_TENSOR;
  for (uint32_t i = 0; i < item->input_count; i++) {
    const Input *input = &item->inputs[i];
    if (!a->given[i] && misplaced && input->type) {
      usable = false;
      continue;
    }
    if (!a->given[i]) {
      if (input->type || !input->value) {
        Diag *diag = report(sem, "E0215", a->expr->span, "block `%s` needs the input `%s`", a->expr->name.text,
                            input->name.text);
        diag_label(diag, input->name.span, "declared here");
        usable = false;
      } else {
        a->values[i] = val_number(const_eval(sem, a->block->unit, NULL, input->value));
        usable &= a->values[i].kind != VAL_ERROR;
      }
      continue;
    }
    Val v = a->values[i];
    if (v.kind == VAL_ERROR) {
      usable = false;
    } else if (input->type ? v.kind != VAL_TENSOR : v.kind != VAL_NUMBER) {
      Diag *diag =
          report(sem, "E0215", a->given[i]->span, "input `%s` of `%s` is a %s, and `%s` is %s", input->name.text,
                 a->expr->name.text, input->type ? "tensor" : "constant", source_text(sem, a->given[i]->span, 40),
                 v.kind == VAL_TENSOR  ? "a tensor"
                 : v.kind == VAL_TUPLE ? "several tensors"
                                       : const_kind_name(v.number.kind));
      diag_label(diag, input->name.span, "declared here");
      usable = false;
    } else if (!input->type) {
      usable &= fits_default(a, input, a->given[i], v.number);
    }
  }
  return usable;
}

static bool bind_inputs(Arguments *a) {
  Sem *sem = a->sem;
  const Item *item = a->block->item;
  bool usable = true;
  for (uint32_t i = 0; i < item->input_count; i++) {
    if (!item->inputs[i].type) continue;
    a->values[i] = whole_argument(sem, a->block, item->inputs[i].type, a->values[i], a->given[i]->span);
    if (a->values[i].kind == VAL_ERROR) return false;
  }
  for (int pass = 0; pass < 2 && usable; pass++) /* plain sizes first: `[2 * n]` may stand before `[n]` */
    for (uint32_t i = 0; i < item->input_count; i++) {
      if (!item->inputs[i].type) continue;
      const char *what = arena_printf(sem->arena, "input `%s` of `%s`", item->inputs[i].name.text, a->expr->name.text);
      usable &= match_type(sem, a->frame, item->inputs[i].type, a->values[i].value, a->given[i]->span, what, "E0305",
                           pass == 0);
    }
  for (uint32_t i = 0; usable && i < item->size_count; i++) {
    if (find_local(a->frame, item->sizes[i].text)) continue;
    Diag *diag = report(sem, "E0314", a->expr->span, "the size `%s` of `%s` is not known here", item->sizes[i].text,
                        a->expr->name.text);
    diag_label(diag, item->sizes[i].span, "no input has this size");
    diag_help(diag, "give it by name: %s(..., %s=...)", a->expr->name.text, item->sizes[i].text);
    return false;
  }
  for (uint32_t i = 0; i < item->input_count; i++) {
    Local local = {
        .name = item->inputs[i].name.text, .span = item->inputs[i].name.span, .is_value = true, .value = a->values[i]};
    add_local(sem, a->frame, local);
  }
  return usable;
}

static bool is_recursive(Sem *sem, Frame *caller, Symbol *block, const Expr *expr) {
  bool found = false;
  for (const Frame *f = caller; f && !found; f = f->caller) found = f->symbol == block;
  if (!found) return false;
  Text chain = {.arena = sem->arena};
  text_printf(&chain, "%s", block->name);
  for (const Frame *f = caller; f; f = f->caller) { /* from the inside out; told from the outside in */
    Text longer = {.arena = sem->arena};
    text_printf(&longer, "%s -> %s", f->symbol->name, chain.at);
    chain = longer;
    if (f->symbol == block) break;
  }
  Diag *diag = diag_error(sem->diagnostics, "E0217", expr->span, "block `%s` calls itself", block->name);
  diag_note(diag, "%s", chain.at);
  return true;
}

static Val check_result(Sem *sem, Frame *frame, const Symbol *block) {
  Val result = frame->result;
  if (!frame->returned) {
    Diag *diag = report(sem, "E0219", block->item->name.span, "block `%s` returns nothing", block->name);
    diag_help(diag, "end it with `return ...;`");
    return val_error();
  }
  if (result.kind == VAL_ERROR) return result;
  if (result.kind != VAL_TENSOR) {
    report(sem, "E0306", frame->result_span, "block `%s` must return a tensor, not %s", block->name,
           result.kind == VAL_TUPLE ? "several" : const_kind_name(result.number.kind));
    return val_error();
  }
  const char *what = arena_printf(sem->arena, "the result of `%s`", block->name);
  for (int pass = 0; pass < 2; pass++)
    if (block->item->result &&
        !match_type(sem, frame, block->item->result, result.value, frame->result_span, what, "E0306", pass == 0))
      return val_error();
  return result;
}

Val call_block(Sem *sem, Frame *caller, Symbol *block, const Expr *expr, uint32_t count, Expr *const *args,
               const Name *arg_names) {
  const Item *item = block->item;
  Frame frame = {.unit = block->unit,
                 .symbol = block,
                 .caller = caller,
                 .call = expr->span,
                 .depth = caller->depth + 1,
                 .loop_depth = sem->loop_depth};
  if (!sem->checking) block->called = true;
  if (is_recursive(sem, caller, block, expr)) return val_error();
  if (frame.depth > MAX_CALL_DEPTH) {
    of_number(sem, report(sem, "E0217", expr->span, "blocks call each other more than %d deep", MAX_CALL_DEPTH));
    return val_error();
  }
  Arguments a = {.sem = sem, .caller = caller, .frame = &frame, .block = block, .expr = expr};
  a.given = ARENA_ARRAY(sem->arena, const Expr *, item->input_count + 1);
  a.values = ARENA_ARRAY(sem->arena, Val, item->input_count + 1);
  bool usable = place_arguments(&a, count, args, arg_names);
  usable &= evaluate_arguments(&a);
  if (!usable || block->broken || !bind_inputs(&a)) return val_error();
  Naming naming = {.prefix = arena_printf(sem->arena, "%s.", naming_child(sem, caller->naming, block->name))};
  frame.naming = &naming;
  unsigned errors = frame.errors = diag_errors(sem->diagnostics);
  const Frame *outer = sem->frame;
  sem->frame = &frame;
  exec_list(sem, &frame, item->body, item->body_count);
  Val result = diag_errors(sem->diagnostics) == errors ? check_result(sem, &frame, block) : val_error();
  sem->frame = outer;
  if (diag_errors(sem->diagnostics) != errors && !sem->trial) block->broken = true;
  return result;
}
