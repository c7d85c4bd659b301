/* The page of this pass: files, names, constants, sections, layout, then the model, its segments, and what the sections
 * say about it. Every step reports what it finds and goes on; later steps are silent about earlier errors. */
#include <string.h>

#include "semantic/internal.h"

static Sem *new_sem(const SemanticInput *input, Semantic *out) {
  Sem *sem = ARENA_NEW(input->arena, Sem);
  *sem = (Sem){.input = input,
               .arena = input->arena,
               .names = input->names,
               .diagnostics = input->diagnostics,
               .out = out,
               .current = NO_ID,
               .loop = NO_ID,
               .batch = NO_ID,
               .empty_axis = NO_ID};
  *out = (Semantic){0};
  Graph *graph = sem->graph = ARENA_NEW(input->arena, Graph);
  *graph = (Graph){.arena = input->arena, .names = input->names, .batch = NO_ID, .loss = NO_ID, .loss_span = NO_SPAN};
  sem->error_axis = NO_ID;
  sem->error_axis = anonymous_axis(sem, 1, NULL, NO_SPAN);
  return sem;
}

/* Items of the kinds that an import makes visible, and no section. */
static bool is_library(const Sem *sem) {
  const Module *module = sem->root->module;
  bool visible = false;
  for (uint32_t i = 0; i < module->item_count; i++) {
    ItemKind kind = module->items[i]->kind;
    if (kind == ITEM_SECTION) return false;
    visible |= kind == ITEM_BLOCK || kind == ITEM_CONST || kind == ITEM_DIM;
  }
  return visible && !sem->input->model && !sem->input->define_count;
}

/* The model to compile: the only one, or the one that --model names. */
static bool choose_model(Sem *sem, Semantic *out) {
  const Symbol *first = NULL;
  unsigned count = 0;
  Spelling spelling = spelling_of(sem->input->model ? sem->input->model : "");
  Text list = {.arena = sem->arena};
  for (uint32_t i = 0; i < sem->root->order.count; i++) {
    const Symbol *symbol = sem->root->order.at[i];
    if (symbol->kind != SYMBOL_MODEL) continue;
    text_printf(&list, "%s%s", count ? ", " : "", symbol->name);
    if (!count++) first = symbol;
    if (!sem->input->model) continue;
    spelling_try(&spelling, symbol->name);
    if (!strcmp(symbol->name, sem->input->model)) sem->model = symbol;
  }
  Span start = {sem->root->module->file, 0, 0};
  if (!sem->input->model && count == 1) sem->model = first;
  if (sem->model) return true;
  if (!count && is_library(sem)) {
    out->library = true;
    if (sem->input->library) return false;
    Diag *diag = report(sem, "E0218", start, "the program has no model");
    diag_note(diag, "a file with blocks and without a model is a library, to be imported: `pdc check` checks it");
    diag_help(diag, "add `model name(x: f32[batch, ...], ...) { ... loss ...; }`");
  } else if (!count) {
    diag_help(report(sem, "E0218", start, "the program has no model"),
              "add `model name(x: f32[batch, ...], ...) { ... loss ...; }`");
  } else if (sem->input->model) {
    Diag *diag = report(sem, "E0218", first->span, "there is no model `%s`", sem->input->model);
    spelling_help(&spelling, diag);
    diag_note(diag, "models: %s", list.at);
  } else {
    Diag *diag = report(sem, "E0218", first->span, "the program has %u models: %s", count, list.at);
    diag_help(diag, "choose one: --model=%s", first->name);
  }
  return false;
}

static void prepare(Sem *sem) {
  load_units(sem);
  if (sem->half_read) return;
  read_sections(sem);
  apply_defines(sem);
  for (uint32_t i = 0; i < sem->units.count; i++) evaluate_unit(sem, sem->units.at[i]);
  check_defines(sem);
  fill_config(sem);
  read_shard(sem);
  apply_shard(sem);
}

bool semantic_run(const SemanticInput *input, Semantic *out) {
  unsigned errors = diag_errors(input->diagnostics);
  Sem *sem = new_sem(input, out);
  prepare(sem);
  if (diag_full(sem->diagnostics) || sem->half_read) return false;
  if (!choose_model(sem, out)) {
    if (out->library && input->library) check_unused(sem);
    return out->library && diag_errors(sem->diagnostics) == 0;
  }
  elaborate_model(sem);
  if (!diag_full(sem->diagnostics)) check_unused(sem);
  if (diag_errors(sem->diagnostics) == 0) cut_segments(sem);
  finish_config(sem);
  if (diag_errors(sem->diagnostics) == 0) warn_idle_ranks(sem);
  bool fine = diag_errors(sem->diagnostics) == errors && errors == 0;
  out->graph = fine ? sem->graph : NULL;
  return fine;
}

void semantic_read_imports(const SemanticInput *input, Semantic *out) {
  load_units(new_sem(input, out));
}

void semantic_list_config(const SemanticInput *input, Text *out) {
  Semantic ignored;
  Sem *sem = new_sem(input, &ignored);
  prepare(sem);
  if (!sem->half_read) list_config(sem, out);
}
