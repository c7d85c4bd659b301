/* The operations of the language: found by name in one table, their arguments bound by a signature and read. In a
 * signature, `x eps=` is one argument that must be given and one that may be; `*` takes the rest. Everything can be
 * given by name. The typing rules stand in files by subject. */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "semantic/operations.h"

static const Row rows[] = {
    {"relu", "x", rule_unary, OP_RELU},
    {"silu", "x", rule_unary, OP_SILU},
    {"sigmoid", "x", rule_unary, OP_SIGMOID},
    {"tanh", "x", rule_unary, OP_TANH},
    {"exp", "x", rule_unary, OP_EXP},
    {"log", "x", rule_unary, OP_LOG},
    {"sqrt", "x", rule_unary, OP_SQRT},
    {"gelu", "x approximate=", rule_gelu, OP_GELU_TANH},
    {"layernorm", "x eps=", rule_norm, OP_LAYERNORM},
    {"rmsnorm", "x eps=", rule_norm, OP_RMSNORM},
    {"softmax", "x axis=", rule_softmax, OP_SOFTMAX},
    {"dropout", "x p", rule_dropout, OP_DROPOUT},
    {"rope", "x theta=", rule_rope, OP_ROPE},
    {"gather", "table ids", rule_gather, OP_GATHER},
    {"sdpa", "q k v causal= group=", rule_sdpa, OP_SDPA},
    {"transpose", "x *", rule_transpose, OP_PERMUTE},
    {"reshape", "x *", rule_reshape, OP_RESHAPE},
    {"concat", "x axis *", rule_concat, OP_CONCAT},
    {"split", "x axis= *", rule_split, OP_SLICE},
    {"slice", "x axis begin= end=", rule_slice, OP_SLICE},
    {"sum", "x *", rule_sum, OP_SUM},
    {"mean", "x *", rule_sum, OP_SUM},
    {"max", "x *", rule_max, OP_COUNT},
    {"min", "x *", rule_max, OP_COUNT},
    {"einsum", "labels a b=", rule_einsum, OP_CONTRACT},
    {"xent", "logits targets ignore=", rule_xent, OP_XENT},
    {"accuracy", "logits targets", rule_accuracy, OP_ACCURACY},
    {"mse", "a b", rule_mse, OP_MSE},
    {"conv2d", "x f stride= pad= bias=", rule_conv2d, OP_CONV2D},
    {"maxpool", "x k stride= pad=", rule_pool, OP_MAXPOOL},
    {"avgpool", "x k= stride=", rule_pool, OP_AVGPOOL},
    {"batchnorm", "x eps= momentum= scale= bias=", rule_batchnorm, OP_BATCHNORM},
};

static const Row *row_of(const char *name) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (!strcmp(rows[i].name, name)) return &rows[i];
  return NULL;
}

const char *semantic_operation(uint32_t index, const char **signature) {
  if (index >= sizeof rows / sizeof *rows) return NULL;
  *signature = rows[index].signature;
  return rows[index].name;
}

bool is_operation(const char *name) {
  return row_of(name) != NULL;
}

void spelling_operations(Spelling *spelling) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) spelling_try(spelling, rows[i].name);
}

/* ---- reading arguments ---- */

Val fail(Call *call, const char *code, Span span, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  report(call->sem, code, span, "%s", arena_vprintf(call->sem->arena, format, arguments));
  va_end(arguments);
  return val_error();
}

Val fail_number(Call *call, const char *code, Span span, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  of_number(call->sem, report(call->sem, code, span, "%s", arena_vprintf(call->sem->arena, format, arguments)));
  va_end(arguments);
  return val_error();
}

const char *source_of(Call *call, const Expr *expr) {
  return source_text(call->sem, expr->span, 40);
}

Val tensor_value(Call *call, const Expr *expr, Val v, DType dtype) {
  Sem *sem = call->sem;
  if (v.kind == VAL_ERROR) return v;
  if (v.kind != VAL_TENSOR)
    return fail(call, "E0308", expr->span, "`%s` needs a tensor, and `%s` is %s", call->row->name,
                source_of(call, expr), v.kind == VAL_TUPLE ? "several tensors" : const_kind_name(v.number.kind));
  const Value *value = value_at(sem, v.value);
  if (value->dtype == dtype) return v;
  if (value->kind == VALUE_DATA && !first_mistyped(sem, value->name)) return val_error();
  Diag *diag =
      report(sem, "E0309", expr->span, "`%s` needs %s here, and `%s` is %s", call->row->name,
             dtype == DT_I32 ? "integers (i32)" : "real numbers", source_of(call, expr), shape_text(sem, v.value));
  if (value->kind == VALUE_DATA) diag_label(diag, value->span, "declared here");
  return val_error();
}

Val tensor_expr(Call *call, const Expr *expr, DType dtype) {
  return tensor_value(call, expr, eval(call->sem, call->frame, expr), dtype);
}

Val tensor_arg(Call *call, unsigned slot) {
  return tensor_expr(call, call->slot[slot], DT_REAL);
}

bool reals_and_integers(Call *call, Val *reals, Val *integers) {
  Sem *sem = call->sem;
  const Expr *first = call->slot[0], *second = call->slot[1];
  Val a = eval(sem, call->frame, first), b = eval(sem, call->frame, second);
  bool tensors = a.kind == VAL_TENSOR && b.kind == VAL_TENSOR;
  if (tensors && value_at(sem, a.value)->dtype == DT_I32 && value_at(sem, b.value)->dtype == DT_REAL) {
    Diag *diag =
        report(sem, "E0309", call->expr->span, "`%s` has its two arguments the wrong way round", call->row->name);
    diag_label(diag, first->span, "%s", shape_text(sem, a.value));
    diag_label(diag, second->span, "%s", shape_text(sem, b.value));
    diag_help(diag, "write `%s(%s, %s)`", call->row->name, source_of(call, second), source_of(call, first));
    return false;
  }
  *reals = tensor_value(call, first, a, DT_REAL);
  *integers = tensor_value(call, second, b, DT_I32);
  return reals->kind != VAL_ERROR && integers->kind != VAL_ERROR;
}

bool number_arg(Call *call, unsigned slot, const char *what, double fallback, double *result) {
  *result = fallback;
  return !call->slot[slot] || eval_number(call->sem, call->frame->unit, call->frame, call->slot[slot], what, result);
}

bool integer_arg(Call *call, unsigned slot, const char *what, int64_t fallback, int64_t *result) {
  *result = fallback;
  return !call->slot[slot] || eval_integer(call->sem, call->frame->unit, call->frame, call->slot[slot], what, result);
}

bool bool_arg(Call *call, unsigned slot, const char *what, bool fallback, bool *result) {
  *result = fallback;
  if (!call->slot[slot]) return true;
  Const value = const_eval(call->sem, call->frame->unit, call->frame, call->slot[slot]);
  *result = value.integer != 0;
  if (value.kind == CONST_BOOL || value.kind == CONST_ERROR) return value.kind == CONST_BOOL;
  fail(call, "E0308", call->slot[slot]->span, "`%s` must be true or false, not %s", what, const_kind_name(value.kind));
  return false;
}

bool axis_arg(Call *call, const Expr *expr, Id tensor, unsigned *position) {
  Sem *sem = call->sem;
  const Value *v = value_at(sem, tensor);
  bool number = expr->kind == EXPR_INT || expr->kind == EXPR_UNARY;
  if (number) {
    int64_t at;
    if (!eval_integer(sem, call->frame->unit, call->frame, expr, "an axis position", &at)) return false;
    if (at < 0) at += v->rank;
    *position = (unsigned)at;
    if (at >= 0 && at < v->rank) return true;
    fail(call, "E0312", expr->span, "there is no axis %s in %s", source_of(call, expr), shape_text(sem, tensor));
    return false;
  }
  Id axis = axis_of_expr(sem, call->frame->unit, call->frame, expr);
  if (axis_is_error(sem, axis)) return false;
  unsigned found = 0;
  for (unsigned i = 0; i < v->rank; i++)
    if (v->axes[i] == axis && !found++) *position = i;
  if (found == 1) return true;
  Diag *diag =
      report(sem, "E0312", expr->span, found ? "`%s` stands more than once in %s" : "there is no axis `%s` in %s",
             source_of(call, expr), shape_text(sem, tensor));
  const Axis *named = &sem->graph->axes.at[axis];
  bool maybe = false; /* an axis of the tensor may turn out to be this one */
  for (unsigned i = 0; i < v->rank; i++) maybe |= sem->graph->axes.at[v->axes[i]].open && !(named->open && named->name);
  if (maybe) of_number(sem, diag);
  if (found || !sem->graph->axes.at[axis].name)
    diag_help(diag, "give the position of the axis: 0 is the first, -1 the last");
  return false;
}

bool whole_axis(Call *call, Id axis, Span span) {
  Sem *sem = call->sem;
  const Axis *a = &sem->graph->axes.at[axis];
  if (axis == sem->batch) {
    Diag *diag =
        report(sem, "E0318", span, "`%s` cannot work along the batch axis %s", call->row->name, axis_text(sem, axis));
    diag_note(diag, "the batch is cut into micro-batches and replicas: samples must not mix");
    return false;
  }
  int64_t degree = mesh_degree(sem, a->mesh);
  if (degree <= 1) return true;
  Diag *diag = report(sem, "E0409", span, "`%s` needs all of %s, which is split over %s=%" PRId64, call->row->name,
                      axis_text(sem, axis), mesh_name(a->mesh), degree);
  if (a->name)
    diag_help(diag, "take `%s=%s` out of `shard < >`, or set %s=1", a->name, mesh_name(a->mesh), mesh_name(a->mesh));
  return false;
}

void copy_axes(Sem *sem, Id value, Id *axes) {
  memcpy(axes, value_at(sem, value)->axes, sizeof(Id) * MAX_RANK);
}

/* ---- binding arguments to the signature ---- */

typedef struct Slot {
  char name[16];
  bool optional;
} Slot;

static unsigned read_signature(const char *text, Slot *slots, bool *rest) {
  unsigned count = 0;
  *rest = false;
  while (*text) {
    size_t length = strcspn(text, " ");
    if (*text == '*') {
      *rest = true;
    } else {
      bool optional = text[length - 1] == '=';
      snprintf(slots[count].name, sizeof slots[count].name, "%.*s", (int)(length - optional), text);
      slots[count++].optional = optional;
    }
    text += length;
    text += *text == ' ';
  }
  return count;
}

static bool bind_named(Call *call, const Name *name, const Expr *value, const Slot *slots, unsigned count) {
  for (unsigned i = 0; i < count; i++) {
    if (strcmp(slots[i].name, name->text) != 0) continue;
    if (call->slot[i]) {
      fail(call, "E0215", name->span, "`%s` is given twice", name->text);
      return false;
    }
    call->slot[i] = value;
    return true;
  }
  Diag *diag = report(call->sem, "E0215", name->span, "`%s` has no argument `%s`", call->row->name, name->text);
  Spelling spelling = spelling_of(name->text);
  for (unsigned i = 0; i < count; i++) spelling_try(&spelling, slots[i].name);
  spelling_help(&spelling, diag);
  if (spelling.best) return false;
  if (call->row->rule == rule_sum || call->row->rule == rule_max) {
    diag_help(diag, "the axes follow the tensor: `%s(x, seq)` or `%s(x, -1)`", call->row->name, call->row->name);
    return false;
  }
  Text list = {.arena = call->sem->arena};
  for (unsigned i = 0; i < count; i++) text_printf(&list, "%s%s", i ? ", " : "", slots[i].name);
  diag_note(diag, "its argument%s %s", count == 1 ? " is" : "s are", list.at);
  return false;
}

Val call_operation(Sem *sem, Frame *frame, const Expr *expr, uint32_t count, Expr *const *args, const Name *arg_names) {
  Call call = {.sem = sem, .frame = frame, .expr = expr, .row = row_of(expr->name.text)};
  Slot slots[MAX_SLOTS];
  bool rest;
  unsigned slot_count = read_signature(call.row->signature, slots, &rest), next = 0;
  for (uint32_t i = 0; i < count; i++)
    if (arg_names[i].text && !bind_named(&call, &arg_names[i], args[i], slots, slot_count)) return val_error();
  for (uint32_t i = 0; i < count; i++) {
    if (arg_names[i].text) continue;
    for (unsigned k = 0; k < slot_count; k++)
      if (is_compared(args[i], slots[k].name) && report_compared(sem, frame, args[i])) return val_error();
    /* with `*`, only the first argument has a place: the rest are the tensors, axes or sizes */
    while (next < slot_count && (call.slot[next] || (rest && next > 0))) next++;
    if (next < slot_count) {
      call.slot[next++] = args[i];
    } else if (rest && call.rest_count < MAX_REST) {
      call.rest[call.rest_count++] = args[i];
    } else {
      return fail(&call, "E0215", args[i]->span, "`%s` takes at most %u argument%s", call.row->name,
                  rest ? MAX_REST : slot_count, !rest && slot_count == 1 ? "" : "s");
    }
  }
  for (unsigned i = 0; i < slot_count; i++)
    if (!call.slot[i] && !slots[i].optional)
      return fail(&call, "E0215", expr->span, "`%s` needs the argument `%s`", call.row->name, slots[i].name);
  return call.row->rule(&call);
}
