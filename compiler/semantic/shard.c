/* `shard < axis=mesh-axis; … >`: which axes are split over which ranks, and whether the sizes allow it. Nothing else in
 * the compiler decides a layout. */
#include <inttypes.h>
#include <string.h>

#include "semantic/internal.h"

static bool read_mesh(Sem *sem, const Expr *expr, Mesh *mesh) {
  static const Mesh all[] = {MESH_DP, MESH_TP, MESH_CP, MESH_EP};
  if (expr->kind == EXPR_ERROR) return false;
  const char *text = expr->kind == EXPR_NAME ? expr->name.text : expr->kind == EXPR_STRING ? expr->string : NULL;
  for (size_t i = 0; text && i < sizeof all / sizeof *all; i++)
    if (!strcmp(text, mesh_name(all[i]))) {
      *mesh = all[i];
      return true;
    }
  Diag *diag = report(sem, "E0404", expr->span, "`%s` is no mesh axis", source_text(sem, expr->span, 40));
  diag_note(diag, "mesh axes are dp, tp, cp and ep%s",
            text && !strcmp(text, "pp") ? "; pp cuts the program into stages, not tensors" : "");
  return false;
}

/* `block.size`: the block, or NULL. */
static Symbol *block_of_rule(Sem *sem, const char *name, const char **size) {
  const char *dot = strrchr(name, '.');
  if (!dot) return NULL;
  Symbol *block = find_symbol(sem, sem->root, intern(sem->names, name, (size_t)(dot - name)));
  if (!block || block->kind != SYMBOL_BLOCK) return NULL;
  *size = intern_str(sem->names, dot + 1);
  return block;
}

static void unknown_axis(Sem *sem, const Name *name, const Symbol *symbol) {
  if (!symbol && !first_unknown(sem, name->text)) return;
  Diag *diag = report(sem, "E0403", name->span, "`%s` in `shard < >` is no axis", name->text);
  if (symbol) {
    diag_label(diag, symbol->span, "`%s` is a %s; axes are declared with `dim`", name->text,
               symbol->kind == SYMBOL_CONST   ? "const"
               : symbol->kind == SYMBOL_BLOCK ? "block"
               : symbol->kind == SYMBOL_MODEL ? "model"
                                              : "module");
    return;
  }
  const char *size;
  Symbol *block = block_of_rule(sem, name->text, &size);
  if (block) {
    Spelling spelling = spelling_of(size);
    for (uint32_t i = 0; i < block->item->size_count; i++) spelling_try(&spelling, block->item->sizes[i].text);
    if (spelling.best)
      diag_help(diag, "did you mean `%.*s.%s`?", (int)(strrchr(name->text, '.') - name->text), name->text,
                spelling.best);
    else
      diag_note(diag, "block `%s` has no size `%s`", block->name, size);
    return;
  }
  const char *dot = strrchr(name->text, '.');
  if (dot) { /* no such block: then nobody calls one either */
    const char *owner = intern(sem->names, name->text, (size_t)(dot - name->text));
    first_unknown(sem, owner);
    Spelling near = spelling_of(owner);
    spelling_symbols(&near, sem->root, 1u << SYMBOL_BLOCK);
    if (near.best) {
      diag_help(diag, "did you mean `%s%s`?", near.best, dot);
      return;
    }
    diag_note(diag, "there is no block `%s`", owner);
    return;
  }
  Spelling spelling = spelling_of(name->text);
  spelling_symbols(&spelling, sem->root, 1u << SYMBOL_DIM);
  Text list = {.arena = sem->arena};
  for (uint32_t i = 0; i < sem->root->order.count; i++)
    if (sem->root->order.at[i]->kind == SYMBOL_DIM)
      text_printf(&list, "%s%s", list.length ? ", " : "", sem->root->order.at[i]->name);
  if (!spelling.best && list.length && list.length < 200) diag_note(diag, "the dims of this file are %s", list.at);
  spelling_help(&spelling, diag);
}

void read_shard(Sem *sem) {
  for (uint32_t i = 0; i < sem->shard.count; i++) {
    ShardRule *rule = &sem->shard.at[i];
    rule->mesh = MESH_NONE;
    const char *size;
    Symbol *symbol = find_symbol(sem, sem->root, rule->name.text), *block = block_of_rule(sem, rule->name.text, &size);
    bool known = symbol && symbol->kind == SYMBOL_DIM;
    for (uint32_t k = 0; block && k < block->item->size_count; k++) known |= block->item->sizes[k].text == size;
    if (!known) unknown_axis(sem, &rule->name, symbol);
    bool mesh = read_mesh(sem, rule->value, &rule->mesh);
    if (!mesh || (!known && rule->mesh == MESH_DP)) sem->rule_in_error = true;
    if (!mesh || !known) rule->mesh = MESH_NONE;
  }
}

/* The multiples of `step` around a size, as text: "8 or 12". */
static const char *nearest_multiples(Sem *sem, int64_t size, int64_t step) {
  int64_t below = size / step * step;
  if (below == 0) return arena_printf(sem->arena, "%" PRId64, step);
  if (below > INT64_MAX - step) return arena_printf(sem->arena, "%" PRId64, below);
  return arena_printf(sem->arena, "%" PRId64 " or %" PRId64, below, below + step);
}

void does_not_divide(Sem *sem, Span span, const char *name, Id id) {
  const Axis *axis = &sem->graph->axes.at[id];
  const char *mesh = mesh_name(axis->mesh);
  int64_t degree = mesh_degree(sem, axis->mesh), lower = degree;
  Diag *diag =
      report(sem, "E0402", span, "`%s` = %" PRId64 " cannot be split over %s = %" PRId64 ": it does not divide", name,
             axis->size, mesh, degree);
  if (axis->name) diag_label(diag, axis->span, "`%s` = %" PRId64, axis->name, axis->size);
  axis_notes(sem, diag, 1, &id);
  if (axis->size < degree) diag_note(diag, "there are fewer `%s` than ranks that share them", name);
  while (axis->size % lower) lower--;
  diag_help(diag, "nearest sizes that work: %s; or %s=%" PRId64, nearest_multiples(sem, axis->size, degree), mesh,
            lower);
}

void apply_shard(Sem *sem) {
  for (uint32_t i = 0; i < sem->shard.count; i++) {
    ShardRule *rule = &sem->shard.at[i];
    Symbol *symbol = find_symbol(sem, sem->root, rule->name.text);
    if (rule->mesh == MESH_NONE || !symbol || symbol->kind != SYMBOL_DIM) continue;
    symbol_const(sem, symbol);
    if (axis_is_error(sem, symbol->axis)) continue;
    Axis *axis = &sem->graph->axes.at[symbol->axis];
    axis->mesh = rule->mesh;
    if (rule->mesh != MESH_DP && axis->size % mesh_degree(sem, rule->mesh))
      does_not_divide(sem, rule->name.span, axis->name, symbol->axis);
  }
}

Mesh shard_of_size(Sem *sem, const Symbol *block, const char *size, const Name **name) {
  for (uint32_t i = 0; i < sem->shard.count; i++) {
    const ShardRule *rule = &sem->shard.at[i];
    const char *of = NULL;
    if (rule->mesh != MESH_NONE && block_of_rule(sem, rule->name.text, &of) == block && of == size) {
      if (name) *name = &rule->name;
      return rule->mesh;
    }
  }
  return MESH_NONE;
}

/* Ranks of a mesh axis that divides nothing all do the same work. */
void warn_idle_ranks(Sem *sem) {
  const Config *config = &sem->out->config;
  const Graph *graph = sem->graph;
  if (config->tp <= 1) return;
  for (uint32_t i = 0; i < graph->values.count; i++)
    for (unsigned k = 0; k < graph->values.at[i].rank; k++)
      if (graph->axes.at[graph->values.at[i].axes[k]].mesh == MESH_TP) return;
  Diag *diag = diag_warning(sem->diagnostics, "W0204", config->tp_span,
                            "tp = %" PRId64 ", but no axis of the model is split over tp", config->tp);
  diag_note(diag, "the %" PRId64 " ranks of a group all hold and compute the same", config->tp);
  diag_help(diag, "name the axes to split, such as heads or hidden sizes: `shard < AXIS=tp; >`");
}

/* What only makes sense once the batch is known: dp cuts the batch and nothing else. */
void check_layout(Sem *sem) {
  Config *config = &sem->out->config;
  for (uint32_t i = 0; i < sem->shard.count; i++) {
    const ShardRule *rule = &sem->shard.at[i];
    const Symbol *symbol = find_symbol(sem, sem->root, rule->name.text);
    bool is_batch = symbol && symbol->kind == SYMBOL_DIM && symbol->axis == sem->batch;
    if (rule->mesh == MESH_NONE || (rule->mesh == MESH_DP) == is_batch || sem->batch == NO_ID) continue;
    const char *batch = sem->graph->axes.at[sem->batch].name;
    Diag *diag;
    if (is_batch)
      diag = report(sem, "E0406", rule->name.span, "the batch `%s` can only be split over dp, not %s", batch,
                    mesh_name(rule->mesh));
    else
      diag =
          report(sem, "E0406", rule->name.span, "dp can only split the batch `%s`, not `%s`", batch, rule->name.text);
    diag_note(diag, "replicas of dp share the samples: everything else they have alike");
    if (symbol && symbol->kind == SYMBOL_DIM) sem->graph->axes.at[symbol->axis].mesh = MESH_NONE; /* told once */
  }
  if (sem->batch == NO_ID || (config->dp <= 1 && !config->dp_open)) return;
  const Axis *batch = &sem->graph->axes.at[sem->batch];
  if (batch->mesh != MESH_NONE || sem->rule_in_error) return;
  const char *degree = config->dp_open ? "*" : arena_printf(sem->arena, "%" PRId64, config->dp);
  Diag *diag =
      report(sem, "E0407", config->dp_span, "dp = %s, but no rule splits the batch `%s` over dp", degree, batch->name);
  diag_help(diag, "add `%s=dp;` to `shard < >`", batch->name);
}
