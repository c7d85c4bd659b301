/* A target for libFuzzer: any text through every pass in memory, to the plan, the C and all printed forms. Beside what
 * ASan and UBSan find it holds four promises: formatting is idempotent and keeps the program; a pass that fails says
 * why; the compiler never contradicts itself (E0900); every report renders in every form. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/artifact.h"
#include "distribute/distribute.h"
#include "driver/passes.h"
#include "lsp/lsp.h"
#include "pipeline/stages.h"

static void promise(bool kept, const char *what) {
  if (kept) return;
  fprintf(stderr, "broken promise: %s\n", what);
  abort();
}

static Text format(Arena *arena, Intern *names, const char *text, size_t length, bool *fine) {
  Diagnostics *diagnostics = diagnostics_new(arena);
  const Module *module = syntax_parse(arena, names, diagnostics, diag_add_source(diagnostics, "fuzz.pd", text, length));
  Text out = {.arena = arena};
  *fine = diag_errors(diagnostics) == 0;
  if (*fine) syntax_format(&out, diagnostics, module);
  return out;
}

static void check_format(Arena *arena, const char *text, size_t length) {
  bool fine;
  Intern *names = intern_new(arena);
  Text once = format(arena, names, text, length, &fine);
  if (!fine) return;
  Text twice = format(arena, names, once.at, once.length, &fine);
  promise(fine, "formatted text parses");
  promise(once.length == twice.length && memcmp(once.at, twice.at, once.length) == 0, "formatting is idempotent");
}

static void check_reports(const Diagnostics *diagnostics) {
  for (DiagFormat form = DIAG_TEXT; form <= DIAG_JSON; form++) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (!out) abort();
    diag_render(diagnostics, out, form, form == DIAG_TEXT);
    fclose(out);
    /* quotes of a source are escaped in JSON, so no source can say this */
    promise(form != DIAG_JSON || !strstr(text, "\"code\":\"E0900\""), "the compiler does not contradict itself");
    free(text);
  }
}

/* More than a moment's work, and not so much that it is refused. */
static bool is_large(const Compilation *c) {
  const Config *config = &c->semantic.config;
  double units = 0, actions = (double)config->pp * (double)config->chunks * (double)config->microbatches;
  for (uint32_t s = 0; s < c->semantic.graph->segments.count; s++)
    units += (double)c->semantic.graph->segments.at[s].trips;
  return (units > 1000 && units < 1e6) || (actions > 4000 && actions < 1e7);
}

static void print_all(const Compilation *c) {
  Text out = {.arena = c->arena};
  graph_print(c->semantic.graph, &out);
  graph_dot(c->semantic.graph, &out);
  sharding_text(c->semantic.graph, &c->semantic.config, &out);
  stages_memory_text(c->program, c->pipeline, &out);
  schedule_write_csv(c->pipeline, &out);
}

static void ask(const Compilation *c, size_t length) {
  for (uint32_t offset = 0; offset <= length; offset += 1 + (uint32_t)length / 16) {
    Meaning meaning = meaning_at(c, offset);
    if (meaning.role != ROLE_NONE) hover_text(c, &meaning);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length) {
  static const char *const dirs[] = {"templates"};
  Arena *arena = arena_new();
  const char *text = arena_strndup(arena, (const char *)data, length);
  check_format(arena, text, length);
  Compilation *c = compilation_new(arena);
  c->input.import_dirs = dirs;
  c->input.import_dir_count = 1;
  bool parsed = passes_parse(c, "fuzz.pd", text, length);
  Text tree = {.arena = arena};
  syntax_print(&tree, c->diagnostics, c->module);
  promise(parsed == (diag_errors(c->diagnostics) == 0), "a failing parse reports");
  if (parsed) {
    c->input.library = true;
    bool typed = passes_semantic(c);
    promise(typed == (diag_errors(c->diagnostics) == 0), "a failing semantic pass reports");
    typed = typed && !c->semantic.library && !is_large(c); /* large plans are right too, but take seconds */
    bool planned = typed && passes_plan(c);
    promise(!typed || planned == (diag_errors(c->diagnostics) == 0), "a failing plan reports");
    if (planned) passes_emit(c, "fuzz");
    if (planned) print_all(c);
  }
  ask(c, length);
  check_reports(c->diagnostics);
  arena_free(arena);
  return 0;
}
