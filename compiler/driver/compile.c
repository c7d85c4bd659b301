/* The whole compile as a page of passes. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "artifact/artifact.h"
#include "autodiff/autodiff.h"
#include "distribute/distribute.h"
#include "driver/driver.h"
#include "emit/emit.h"
#include "memory/memory.h"
#include "pipeline/cost.h"
#include "pipeline/pipeline.h"
#include "pipeline/stages.h"

typedef struct Unit { /* one compilation */
  Arena *arena;
  const Options *options;
  Diagnostics *diagnostics;
  Semantic semantic;
  MemoryPlan *memory;
  pd_program *program;
  pd_pipeline *pipeline;
  int64_t (*unit_flops)[3];
  char source_sha256[65], plan_sha256[65];
  Text plan, c;
  const char *name; /* of the input without directory and ending */
} Unit;

static bool front(Unit *u) {
  size_t length = 0;
  const char *text = read_whole(u->arena, u->options->input, &length);
  if (!text) return false;
  const char *shown = strcmp(u->options->input, "-") == 0 ? "<stdin>" : u->options->input;
  Intern *names = intern_new(u->arena);
  uint32_t file = diag_add_source(u->diagnostics, shown, text, length);
  Module *module = syntax_parse(u->arena, names, u->diagnostics, file);
  if (diag_errors(u->diagnostics)) return true;
  VEC(const char *) dirs = {0};
  for (uint32_t i = 0; i < u->options->import_dirs.count; i++) vec_push(u->arena, &dirs, u->options->import_dirs.at[i]);
  const char *library = toolchain_library(u->arena);
  if (library) vec_push(u->arena, &dirs, library);
  SemanticInput input = {.arena = u->arena, .names = names, .diagnostics = u->diagnostics, .root = module, .model = u->options->model,
                         .defines = u->options->defines.at, .define_count = u->options->defines.count,
                         .import_dirs = dirs.at, .import_dir_count = dirs.count};
  if (u->options->emit == EMIT_CONFIG) {
    Text out = {.arena = u->arena};
    semantic_list_config(&input, &out);
    return write_whole(u->arena, "-", out.at ? out.at : "", out.length);
  }
  semantic_run(&input, &u->semantic);
  return true;
}

/* The resolved program: every module formatted, then what -D set. Its hash names the source in the plan. */
static void hash_source(Unit *u) {
  Text text = {.arena = u->arena};
  for (uint32_t i = 0; i < u->semantic.modules.count; i++) syntax_format(&text, u->diagnostics, u->semantic.modules.at[i]);
  for (uint32_t i = 0; i < u->options->defines.count; i++)
    text_printf(&text, "-D %s=%s\n", u->options->defines.at[i].name, u->options->defines.at[i].value);
  sha256_hex(text.at ? text.at : "", text.length, u->source_sha256);
}

/* What the language has and the host target has not. */
static void check_target(Unit *u) {
  const Config *config = &u->semantic.config;
  if (config->optimizer == OPTIMIZER_LAMB) {
    Diag *diag = diag_error(u->diagnostics, "E0903", NO_SPAN, "this version does not train with `lamb`");
    diag_help(diag, "use `optimizer < kind=adamw; … >`, `adam` or `sgd`");
  }
  if (config->compute == PRECISION_BF16)
    diag_warning(u->diagnostics, "W0901", NO_SPAN, "`compute=bf16` runs in f32 on the host target; the plan counts f32 bytes");
}

static bool middle(Unit *u) {
  Graph *graph = u->semantic.graph;
  const Config *config = &u->semantic.config;
  check_target(u);
  const char *broken = graph_verify(graph);
  if (!broken && distribute_run(graph, config, u->diagnostics) && autodiff_run(graph, config, u->diagnostics)) {
    broken = graph_verify(graph);
    cost_run(graph);
    u->memory = memory_plan(graph, config);
    u->program = describe_program(u->arena, graph, config, u->memory, PDC_VERSION);
    u->pipeline = stages_plan(u->arena, graph, config, u->program, u->diagnostics, &u->unit_flops);
  }
  if (broken) diag_error(u->diagnostics, "E0900", NO_SPAN, "internal error: the program's graph is malformed: %s", broken);
  return !diag_errors(u->diagnostics);
}

static void artifacts(Unit *u) {
  hash_source(u);
  u->plan.arena = u->c.arena = u->arena;
  PlanInput plan = {u->arena, u->semantic.graph, &u->semantic.config, u->program, u->pipeline, u->source_sha256, PDC_VERSION,
                    (const int64_t(*)[3])u->unit_flops};
  plan_write(&plan, &u->plan, u->plan_sha256);
  EmitInput emit = {u->arena, u->diagnostics, u->semantic.graph, &u->semantic.config, u->memory, u->program,
                    arena_printf(u->arena, "%s.plan.json", u->name), u->plan_sha256};
  emit_c(&emit, &u->c);
}

static int deliver(Unit *u) {
  const Options *o = u->options;
  Text out = {.arena = u->arena};
  switch (o->emit) {
  case EMIT_IR: graph_print(u->semantic.graph, &out); break;
  case EMIT_SCHEDULE: schedule_write_csv(u->pipeline, &out); break;
  case EMIT_MEMORY: stages_memory_text(u->program, u->pipeline, &out); break;
  case EMIT_PLAN: out = u->plan; break;
  case EMIT_C: {
    const char *path = o->output ? o->output : arena_printf(u->arena, "%s.c", u->name);
    if (!write_whole(u->arena, path, u->c.at, u->c.length)) return EXIT_USAGE;
    if (strcmp(path, "-") == 0) return EXIT_OK;
    const char *slash = strrchr(path, '/');
    const char *directory = slash ? arena_strndup(u->arena, path, (size_t)(slash + 1 - path)) : "";
    return write_whole(u->arena, arena_printf(u->arena, "%s%s.plan.json", directory, u->name), u->plan.at, u->plan.length) ? EXIT_OK : EXIT_USAGE;
  }
  case EMIT_PROGRAM:
    if (o->output && strcmp(o->output, "-") == 0) {
      fprintf(stderr, "pdc: a program cannot be written to standard output; choose a file with -o, or -S for the source\n");
      return EXIT_USAGE;
    }
    return toolchain_build(u->arena, o, u->name, &u->c, &u->plan, o->output ? o->output : u->name);
  default: return EXIT_OK;
  }
  return write_whole(u->arena, o->output ? o->output : "-", out.at ? out.at : "", out.length) ? EXIT_OK : EXIT_USAGE;
}

static const char *stem(Arena *arena, const char *path) {
  if (strcmp(path, "-") == 0) return "program";
  const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *dot = strrchr(base, '.');
  return arena_strndup(arena, base, dot && dot != base ? (size_t)(dot - base) : strlen(base));
}

int compile(Arena *arena, const Options *options) {
  Unit unit = {.arena = arena, .options = options, .diagnostics = diagnostics_new(arena), .name = stem(arena, options->input)};
  if (!front(&unit)) return EXIT_USAGE;
  bool planned = !diag_errors(unit.diagnostics) && unit.semantic.graph && middle(&unit);
  bool color = strcmp(options->color, "always") == 0 ||
               (strcmp(options->color, "auto") == 0 && isatty(STDERR_FILENO) && !getenv("NO_COLOR"));
  diag_render(unit.diagnostics, stderr, options->diagnostics, color);
  if (diag_errors(unit.diagnostics)) return EXIT_PROGRAM;
  if (options->emit == EMIT_CONFIG) return EXIT_OK;
  if (options->warnings_are_errors && diag_warnings(unit.diagnostics)) {
    fprintf(stderr, "pdc: warnings are errors (-Werror)\n");
    return EXIT_PROGRAM;
  }
  if (!planned) return EXIT_INTERNAL;
  if (options->verbose) stages_say(unit.semantic.graph, &unit.semantic.config, unit.program, unit.pipeline, stderr);
  if (options->emit == EMIT_CHECK) return EXIT_OK;
  artifacts(&unit);
  return deliver(&unit);
}
