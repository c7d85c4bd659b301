/* `pdc FILE`: reads the program, runs the passes, shows what they report, and delivers what was asked for. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "artifact/artifact.h"
#include "artifact/draw.h"
#include "distribute/distribute.h"
#include "driver/driver.h"
#include "driver/passes.h"
#include "emit/emit.h"
#include "pipeline/stages.h"

const char *const *import_dirs(Arena *arena, const Options *options, uint32_t *count) {
  VEC(const char *) dirs = {0};
  for (uint32_t i = 0; i < options->import_dirs.count; i++) vec_push(arena, &dirs, options->import_dirs.at[i]);
  const char *library = toolchain_library(arena);
  if (library) vec_push(arena, &dirs, library);
  *count = dirs.count;
  return dirs.at;
}

/* Parses the program and, where the product needs it, goes on. False: nothing was read, the reason is said. */
static bool run(Compilation *c, const Options *o) {
  size_t length = 0;
  const char *text = read_whole(c->arena, o->input, &length);
  if (!text) return false;
  c->input.model = o->model;
  c->input.library = o->emit == EMIT_CHECK || o->emit == EMIT_DEPENDENCIES;
  c->target = o->target;
  if (o->target == TARGET_CUDA) c->attention = toolchain_attention(c->arena, o);
  c->input.defines = o->defines.at;
  c->input.define_count = o->defines.count;
  c->input.import_dirs = import_dirs(c->arena, o, &c->input.import_dir_count);
  for (uint32_t i = 0; i < o->warnings.count; i++)
    diag_enable_warning(c->diagnostics, o->warnings.at[i].code, o->warnings.at[i].on);
  if (!passes_parse(c, strcmp(o->input, "-") == 0 ? "<stdin>" : o->input, text, length) || o->emit == EMIT_AST)
    return true;
  if (o->emit == EMIT_CONFIG) {
    Text out = {.arena = c->arena};
    semantic_list_config(&c->input, &out);
    return write_whole(c->arena, "-", out.at ? out.at : "", out.length);
  }
  if (passes_semantic(c) && !c->semantic.library && o->emit != EMIT_DEPENDENCIES) passes_plan(c);
  return true;
}

static const char *stem(Arena *arena, const char *path) {
  if (strcmp(path, "-") == 0) return "program";
  const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *dot = strrchr(base, '.');
  return arena_strndup(arena, base, dot && dot != base ? (size_t)(dot - base) : strlen(base));
}

/* Nothing is written over a file that the program is made of, whatever it is called. */
static bool spares_sources(const Compilation *c, const char *path) {
  struct stat output, source;
  if (strcmp(path, "-") == 0 || stat(path, &output) != 0 || !S_ISREG(output.st_mode)) return true;
  for (uint32_t i = 0; diag_source(c->diagnostics, i); i++) {
    const char *read = diag_source(c->diagnostics, i)->path;
    if (stat(read, &source) != 0 || source.st_dev != output.st_dev || source.st_ino != output.st_ino) continue;
    fprintf(stderr, "pdc: %s would be written over %s, which was read; choose another name with -o\n", path, read);
    return false;
  }
  return true;
}

static bool write_text(const Compilation *c, const char *path, const Text *text) {
  return spares_sources(c, path) && write_whole(c->arena, path, text->at ? text->at : "", text->length);
}

/* The C file, and beside it the plan and the kernels of a CUDA program. */
static int deliver_c(Compilation *c, const Options *o, const char *name) {
  const char *path = o->output ? o->output : o->print_c ? "-" : arena_printf(c->arena, "%s.c", name);
  if (!write_text(c, path, &c->c)) return EXIT_USAGE;
  struct stat status;
  if (strcmp(path, "-") == 0 || (stat(path, &status) == 0 && !S_ISREG(status.st_mode)))
    return EXIT_OK; /* beside a device is no place */
  const char *slash = strrchr(path, '/');
  const char *directory = slash ? arena_strndup(c->arena, path, (size_t)(slash + 1 - path)) : "";
  if (c->cu.length && !write_text(c, arena_printf(c->arena, "%s%s.cu", directory, name), &c->cu)) return EXIT_USAGE;
  bool open = c->degrees->open;
  path = arena_printf(c->arena, "%s%s%s", directory, name, open ? ".plans" : ".plan.json");
  return write_text(c, path, open ? &c->packed_plans : &c->plan) ? EXIT_OK : EXIT_USAGE;
}

static int deliver_program(Compilation *c, const Options *o, const char *name) {
  if (o->output && strcmp(o->output, "-") == 0) {
    fprintf(stderr,
            "pdc: a program cannot be written to standard output; choose a file with -o, or -S for the source\n");
    return EXIT_USAGE;
  }
  if (o->no_mpi && c->degrees->open) {
    fprintf(stderr, "pdc: --no-mpi: dp=* leaves the number of replicas to MPI's launch; -D parallel.dp=1 makes it one\n");
    return EXIT_USAGE;
  }
  const int ranks = c->program->pp * c->program->dp * c->program->tp;
  if (o->no_mpi && ranks > 1) {
    fprintf(stderr, "pdc: --no-mpi: this program has %d ranks, which talk by MPI; -D parallel.pp=1 and so on make it one\n", ranks);
    return EXIT_USAGE;
  }
  const char *path = o->output ? o->output : name;
  return spares_sources(c, path) ? toolchain_build(o, name, c, path) : EXIT_USAGE;
}

/* A picture of the plan that was just made. */
static bool draw(Compilation *c, const Options *o, Text *out) {
  Document document;
  Measure measure = {0};
  const char *why = document_read(c->arena, c->plan.at, c->plan.length, &document);
  if (!why) {
    document_measure(c->arena, &document, &measure);
    why = measure.why;
  }
  if (why)
    fprintf(stderr, "pdc: the plan cannot be drawn: %s\n", why);
  else if (o->emit == EMIT_SVG)
    draw_svg(c->arena, &document, &measure, out);
  else if (o->emit == EMIT_HTML)
    draw_html(c->arena, &document, &measure, out);
  else
    draw_trace(c->arena, &document, &measure, out);
  document_free(&document);
  return !why;
}

/* The product as one text, or what builds files. */
static int deliver(Compilation *c, const Options *o, const char *name) {
  Text out = {.arena = c->arena};
  switch (o->emit) {
  case EMIT_AST:
    syntax_print(&out, c->diagnostics, c->module);
    break;
  case EMIT_DEPENDENCIES:
    dependencies_text(c, o, o->output ? o->output : name, &out);
    break;
  case EMIT_IR:
    graph_print(c->semantic.graph, &out);
    break;
  case EMIT_JSON:
    program_write(c->semantic.graph, &out);
    break;
  case EMIT_DOT:
    graph_dot(c->semantic.graph, &out);
    break;
  case EMIT_SHARDING:
    sharding_text(c->semantic.graph, &c->semantic.config, &out);
    break;
  case EMIT_SCHEDULE:
    schedule_write_csv(c->pipeline, &out);
    break;
  case EMIT_MEMORY:
    stages_memory_text(c->program, c->pipeline, &out);
    break;
  case EMIT_PLAN:
    out = c->plan;
    break;
  case EMIT_SVG:
  case EMIT_HTML:
  case EMIT_TRACE:
    if (!draw(c, o, &out)) return EXIT_PROGRAM;
    break;
  case EMIT_C:
    return deliver_c(c, o, name);
  case EMIT_PROGRAM:
    return deliver_program(c, o, name);
  case EMIT_CHECK:
  case EMIT_CONFIG:
    return EXIT_OK;
  }
  const char *path = o->emit == EMIT_DEPENDENCIES && o->dependency_file ? o->dependency_file
                     : o->emit != EMIT_DEPENDENCIES && o->output        ? o->output
                                                                        : "-";
  return write_text(c, path, &out) ? EXIT_OK : EXIT_USAGE;
}

/* -MD: beside the product. */
static bool deliver_dependencies(Compilation *c, const Options *o, const char *name) {
  const char *product = o->output && strcmp(o->output, "-") != 0 ? o->output : name;
  const char *slash = strrchr(product, '/'), *dot = strrchr(slash ? slash : product, '.');
  size_t length = dot && dot != (slash ? slash + 1 : product) ? (size_t)(dot - product) : strlen(product);
  const char *path = o->dependency_file ? o->dependency_file : arena_printf(c->arena, "%.*s.d", (int)length, product);
  Text out = {.arena = c->arena};
  dependencies_text(c, o, product, &out);
  return write_text(c, path, &out);
}

/* What is of one plan cannot be printed of several. */
static bool has_one(const Compilation *c, const Options *o) {
  static const char *const of_a_plan[] = {[EMIT_PLAN] = "plan", [EMIT_SCHEDULE] = "schedule", [EMIT_MEMORY] = "memory",
                                          [EMIT_SVG] = "svg",   [EMIT_HTML] = "html",         [EMIT_TRACE] = "trace"};
  const char *name = o->emit < sizeof of_a_plan / sizeof *of_a_plan ? of_a_plan[o->emit] : NULL;
  if (!c->degrees->open || !name) return true;
  const char *all = degrees_text(c->degrees);
  fprintf(stderr, "pdc: --emit=%s: dp=* has a plan for each number of replicas (%s); choose one: -D parallel.dp=%lld\n", name, all,
          (long long)c->degrees->at.at[0].config.dp);
  return false;
}

bool use_color(const char *when) {
  if (strcmp(when, "auto") != 0) return strcmp(when, "always") == 0;
  const char *refused = getenv("NO_COLOR"), *terminal = getenv("TERM");
  return isatty(STDERR_FILENO) && (!refused || !*refused) && (!terminal || strcmp(terminal, "dumb") != 0);
}

int compile(Arena *arena, const Options *o) {
  Compilation *c = compilation_new(arena);
  const char *name = stem(arena, o->input);
  if (!run(c, o)) return EXIT_USAGE;
  diag_render(c->diagnostics, stderr, o->diagnostics, use_color(o->color));
  if (diag_errors(c->diagnostics)) return EXIT_PROGRAM;
  if (o->emit == EMIT_CONFIG) return EXIT_OK;
  if (o->warnings_are_errors && diag_warnings(c->diagnostics)) {
    fprintf(stderr, "pdc: warnings are errors (-Werror)\n");
    return EXIT_PROGRAM;
  }
  if (o->emit == EMIT_AST || o->emit == EMIT_DEPENDENCIES) return deliver(c, o, name);
  if (c->semantic.library) {
    if (o->verbose) fprintf(stderr, "library %s: no model; its blocks were checked without calls\n", name);
    return EXIT_OK;
  }
  if (!c->pipeline) return EXIT_INTERNAL;
  if (!has_one(c, o)) return EXIT_USAGE;
  if (o->verbose) {
    if (c->degrees->open) degrees_say(c->degrees, stderr);
    stages_say(c->semantic.graph, &c->semantic.config, c->program, c->pipeline, stderr);
    attention_say(arena, c->semantic.graph, &c->semantic.config, stderr);
    predict_say(degree_predict(c->degrees, &c->degrees->at.at[0]), &c->semantic.config, stderr);
  }
  if (o->emit != EMIT_CHECK) passes_emit(c, name);
  int status = deliver(c, o, name);
  if (status == EXIT_OK && o->dependencies && !deliver_dependencies(c, o, name)) status = EXIT_USAGE;
  return status;
}
