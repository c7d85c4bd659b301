/* Axes: what an expression in a shape means, when two axes are the same, and how shapes are told to a person: always
 * names and numbers, every derived size with its derivation. */
#include <inttypes.h>
#include <string.h>

#include "semantic/internal.h"

Id anonymous_axis(Sem *sem, int64_t size, const char *derivation, Span span) {
  Axis axis = {.size = size, .derivation = derivation, .span = span, .open = sem->generic};
  vec_push(sem->arena, &sem->graph->axes, axis);
  return sem->graph->axes.count - 1;
}

bool axis_is_error(const Sem *sem, Id axis) {
  return axis == sem->error_axis;
}

static Id named_axis(Sem *sem, Unit *unit, Frame *frame, const Expr *expr) {
  Local *local = find_local(frame, expr->name.text);
  if (local) return local->is_size ? local->axis : NO_ID;
  Symbol *symbol = find_symbol(sem, unit, expr->name.text);
  if (!symbol || symbol->kind != SYMBOL_DIM) return NO_ID;
  symbol_const(sem, symbol);
  return symbol->axis;
}

Id axis_of_expr(Sem *sem, Unit *unit, Frame *frame, const Expr *expr) {
  if (expr->kind == EXPR_NAME) {
    Id axis = named_axis(sem, unit, frame, expr);
    if (axis != NO_ID) return axis;
  }
  int64_t size;
  if (!eval_integer(sem, unit, frame, expr, "a size", &size)) return sem->error_axis;
  if (size < 0) {
    report(sem, "E0222", expr->span, "the size `%s` is %" PRId64, source_text(sem, expr->span, 60), size);
    return sem->error_axis;
  }
  const char *derivation = NULL;
  if (expr->kind != EXPR_INT) derivation = derivation_text(sem, unit, frame, expr);
  return anonymous_axis(sem, size, derivation, expr->span);
}

int64_t mesh_degree(const Sem *sem, Mesh mesh) {
  switch (mesh) {
  case MESH_DP:
    return sem->out->config.dp;
  case MESH_TP:
    return sem->out->config.tp;
  case MESH_CP:
    return sem->out->config.cp;
  case MESH_EP:
    return sem->out->config.ep;
  case MESH_NONE:
    break;
  }
  return 1;
}

bool same_axis(const Sem *sem, Id a, Id b) {
  if (a == b || axis_is_error(sem, a) || axis_is_error(sem, b)) return true;
  const Axis *x = &sem->graph->axes.at[a], *y = &sem->graph->axes.at[b];
  if (x->open || y->open) return axes_match(sem->graph, a, b);
  if (a == sem->batch || b == sem->batch) return false;
  if (x->mesh != y->mesh && mesh_degree(sem, x->mesh) * mesh_degree(sem, y->mesh) > 1) return false;
  return axes_match(sem->graph, a, b);
}

Id better_axis(const Sem *sem, Id a, Id b) {
  return sem->graph->axes.at[a].name || axis_is_error(sem, b) ? a : b;
}

bool has_error_axis(const Sem *sem, unsigned rank, const Id *axes) {
  for (unsigned i = 0; i < rank; i++)
    if (axis_is_error(sem, axes[i])) return true;
  return false;
}

const char *axis_text(const Sem *sem, Id axis) {
  const Axis *a = &sem->graph->axes.at[axis];
  if (a->open) return a->name ? arena_printf(sem->arena, "`%s`", a->name) : "of a size that is not known yet";
  if (a->name) return arena_printf(sem->arena, "`%s` = %" PRId64, a->name, a->size);
  return arena_printf(sem->arena, "%" PRId64, a->size);
}

const char *shape_text(const Sem *sem, Id value) {
  const Value *v = &sem->graph->values.at[value];
  return arena_printf(sem->arena, "%s%s", v->dtype == DT_I32 ? "i32" : "",
                      axes_text(sem->graph, v->rank, v->axes, true));
}

void axis_notes(const Sem *sem, Diag *diag, unsigned count, const Id *axes) {
  for (unsigned i = 0; i < count; i++) {
    const Axis *axis = &sem->graph->axes.at[axes[i]];
    bool told = !axis->derivation || axis->open || axis_is_error(sem, axes[i]);
    for (unsigned k = 0; k < i && !told; k++) {
      const Axis *other = &sem->graph->axes.at[axes[k]];
      bool alike = !axis->name && !other->name && axis->size == other->size && other->derivation;
      told = axes[k] == axes[i] || (alike && !strcmp(axis->derivation, other->derivation));
    }
    if (told) continue;
    if (axis->name)
      diag_note(diag, "%s = %s (%s)", axis->name, axis->derivation, place_text(sem, axis->span));
    else
      diag_note(diag, "%" PRId64 " = %s (%s)", axis->size, axis->derivation, place_text(sem, axis->span));
  }
}

void mismatch_help(const Sem *sem, Diag *diag, Id a, Id b) {
  const Axis *x = &sem->graph->axes.at[a], *y = &sem->graph->axes.at[b];
  if (x->size != y->size || a == b || x->open || y->open) return;
  if (x->name && y->name) {
    diag_note(diag, "`%s` and `%s` have the same size, but axes match by name", x->name, y->name);
    return;
  }
  const Axis *named = x->name ? x : y;
  if (a == sem->batch || b == sem->batch)
    diag_note(diag, "`%s` is the batch axis: every tensor that has it must name it", named->name);
  else if (named->mesh != MESH_NONE && named->name)
    diag_note(diag, "`%s` is split over %s: every tensor that has it must name it", named->name,
              mesh_name(named->mesh));
  else if (x->mesh != y->mesh && mesh_degree(sem, x->mesh) * mesh_degree(sem, y->mesh) > 1)
    diag_note(
        diag,
        "one of the two is split over %s, by a rule for a size of a block; a size of a block takes its rule along",
        mesh_name(x->mesh != MESH_NONE ? x->mesh : y->mesh));
}

static bool input_has_size(const Item *block, const char *size) {
  for (uint32_t i = 0; i < block->input_count; i++)
    for (uint32_t k = 0; block->inputs[i].type && k < block->inputs[i].type->dim_count; k++) {
      const Expr *dim = block->inputs[i].type->dims[k];
      if (dim->kind == EXPR_NAME && dim->name.text == size) return true;
    }
  return false;
}

/* Two sizes of a block are split, of which an input has one: with a rule for the other, that input enters whole. */
static void one_size_help(const Sem *sem, Diag *diag, Id a, Id b, Mesh mesh) {
  const char *made = NULL, *taken = NULL;
  for (uint32_t i = 0; sem->frame && i < sem->frame->locals.count; i++) {
    const Local *local = &sem->frame->locals.at[i];
    if (!local->is_size || (local->axis != a && local->axis != b)) continue;
    if (input_has_size(sem->frame->symbol->item, local->name))
      taken = local->name;
    else
      made = local->name;
  }
  if (made && taken)
    diag_help(diag, "or add `%s.%s=%s`: what enters `%s` along `%s` is then gathered", sem->frame->symbol->name, made,
              mesh_name(mesh), sem->frame->symbol->name, taken);
}

bool check_tensor(Sem *sem, Span span, const char *what, unsigned rank, const Id *axes) {
  if (has_error_axis(sem, rank, axes)) return false;
  const char *shape = axes_text(sem->graph, rank, axes, true);
  int64_t count = 1;
  for (unsigned i = 0; i < rank; i++) {
    const Axis *axis = &sem->graph->axes.at[axes[i]];
    for (unsigned k = 0; k < i; k++) {
      const Axis *other = &sem->graph->axes.at[axes[k]];
      if (axes[k] == axes[i] && axes[i] == sem->batch) {
        report(sem, "E0318", span, "%s %s has the batch axis twice", what, shape);
        return false;
      }
      if (axis->mesh == MESH_NONE || axis->mesh != other->mesh) continue;
      Diag *diag = report(sem, "E0405", span, "%s %s would be split twice over %s", what, shape, mesh_name(axis->mesh));
      diag_note(diag, "%s and %s are both split over %s", axis_text(sem, axes[k]), axis_text(sem, axes[i]),
                mesh_name(axis->mesh));
      diag_help(diag, "keep one of the two out of `shard < >`");
      one_size_help(sem, diag, axes[k], axes[i], axis->mesh);
      return false;
    }
    if (axis->size && __builtin_mul_overflow(count, axis->size, &count)) {
      Diag *diag = report(sem, "E0213", span, "%s %s has more elements than 64 bits can count", what, shape);
      axis_notes(sem, diag, rank, axes);
      return false;
    }
  }
  return true;
}
