/* The whole compile as a page of passes. Assumes nothing about files but what imports need. */
#include "driver/passes.h"

#include <string.h>

#include "artifact/artifact.h"
#include "autodiff/autodiff.h"
#include "distribute/distribute.h"
#include "driver/driver.h"
#include "emit/emit.h"
#include "pipeline/cost.h"
#include "pipeline/stages.h"

Compilation *compilation_new(Arena *arena) {
  Compilation *c = ARENA_NEW(arena, Compilation);
  c->arena = c->plan.arena = c->packed_plans.arena = c->c.arena = c->cu.arena = arena;
  c->diagnostics = diagnostics_new(arena);
  c->names = intern_new(arena);
  return c;
}

bool passes_parse(Compilation *c, const char *path, const char *text, size_t length) {
  uint32_t file = diag_add_source(c->diagnostics, path, text, length);
  c->module = syntax_parse(c->arena, c->names, c->diagnostics, file);
  c->input.arena = c->arena;
  c->input.names = c->names;
  c->input.diagnostics = c->diagnostics;
  c->input.root = c->module;
  return diag_errors(c->diagnostics) == 0;
}

bool passes_semantic(Compilation *c) {
  return semantic_run(&c->input, &c->semantic);
}

/* Where the program says what a key of a section is; NO_SPAN when -D does. */
static Span key_span(const Module *module, const char *section, const char *key) {
  for (uint32_t i = 0; i < module->item_count; i++) {
    const Item *item = module->items[i];
    if (item->kind != ITEM_SECTION || strcmp(item->name.text, section) != 0) continue;
    for (uint32_t k = 0; k < item->binding_count; k++)
      if (strcmp(item->bindings[k].name.text, key) == 0) return item->bindings[k].value->span;
  }
  return NO_SPAN;
}

/* What the language has and the host target has not. */
static void check_target(Compilation *c) {
  const Config *config = &c->semantic.config;
  if (config->compute == PRECISION_BF16 && config->target == TARGET_HOST)
    diag_warning(c->diagnostics, "W0901", key_span(c->module, "precision", "compute"),
                 "`compute=bf16` runs in f32 on the host target; the plan counts f32 bytes");
}

static void refuse_on_cuda(Compilation *c, Span span, const char *what) {
  Diag *diag = diag_error(c->diagnostics, "E0931", span, "the CUDA target has no %s", what);
  diag_help(diag, "build with --target=host");
}

/* The longest heads that a block of the attention kernels has room for. */
#define CUDA_HEAD_SIZE 512

/* --attention=cudnn means what it says. */
static bool check_attention(Compilation *c, const Op *op) {
  if (c->semantic.config.attention.choice != ATTENTION_CUDNN) return true;
  const char *obstacle = attention_obstacle(c->arena, c->semantic.graph, &c->semantic.config, op);
  if (!obstacle) return true;
  Diag *diag = diag_error(c->diagnostics, "E0931", op->span, "cuDNN cannot compute this attention: %s", obstacle);
  diag_help(diag, "build with --attention=auto, and kernels of the program's own do it");
  return false;
}

/* What the CUDA target lacks of what the host target does. */
static bool check_cuda(Compilation *c) {
  const Config *config = &c->semantic.config;
  const Graph *graph = c->semantic.graph;
  if (config->target != TARGET_CUDA) return true;
  if (config->compute == PRECISION_F64) refuse_on_cuda(c, key_span(c->module, "precision", "compute"), "f64");
  for (uint32_t i = 0; i < graph->ops.count; i++) {
    const Op *op = &graph->ops.at[i];
    if (op->kind != OP_SDPA && op->kind != OP_SDPA_GRAD) continue;
    if (axis_local(graph, config, graph->values.at[op->in[0]].axes[3]) > CUDA_HEAD_SIZE) {
      refuse_on_cuda(c, op->span, "attention over heads of more than 512 elements");
      return false;
    }
    if (!check_attention(c, op)) return false;
  }
  return !diag_errors(c->diagnostics);
}

/* The runtime's frames have room for so many wires, inputs and tied parameters. */
static bool check_limits(Compilation *c) {
  const Graph *graph = c->semantic.graph;
  if (graph->data.count > PD_MAX_WIRES)
    diag_error(c->diagnostics, "E0922", graph->data.at[PD_MAX_WIRES].span, "model `%s` has %u inputs; this version has room for %d",
               graph->model, graph->data.count, PD_MAX_WIRES);
  for (uint32_t s = 0; s < graph->segments.count; s++) {
    unsigned tied = 0;
    for (uint32_t p = 0; p < graph->params.count; p++) {
      const Param *param = &graph->params.at[p];
      for (uint32_t k = 0; k < param->users.count && param->segment == NO_ID; k++) tied += param->users.at[k] == s;
    }
    if (tied > PD_MAX_WIRES)
      diag_error(c->diagnostics, "E0922", graph->segments.at[s].span,
                 "this statement uses %u parameters that other statements use too; this version has room for %d", tied, PD_MAX_WIRES);
  }
  return !diag_errors(c->diagnostics);
}

/* What is asked of "the" plan is asked of the first. */
static void take_degrees(Compilation *c, Degrees *degrees) {
  const Degree *first = &degrees->at.at[0];
  c->degrees = degrees;
  c->semantic.config = first->config;
  c->program = first->program;
  c->pipeline = first->pipeline;
}

bool passes_plan(Compilation *c) {
  Graph *graph = c->semantic.graph;
  const Config *config = &c->semantic.config;
  c->semantic.config.target = c->target;
  c->semantic.config.attention = c->attention;
  check_target(c);
  stages_count_chunks(c->arena, &c->semantic.config);
  const char *broken = graph_verify(graph);
  if (!broken && check_limits(c) && distribute_run(graph, config, c->diagnostics) && autodiff_run(graph, config, c->diagnostics) && check_cuda(c)) {
    if (config->recompute == RECOMPUTE_SELECTIVE) recompute_selectively(graph);
    broken = graph_verify(graph);
    Degrees *degrees = degrees_find(c->arena, graph, config, c->diagnostics);
    if (!degrees->at.count) return false;
    cost_run(graph);
    c->memory = memory_plan(graph, config);
    const pd_program *program = describe_program(c->arena, graph, &degrees->at.at[0].config, c->memory, PDC_VERSION);
    if (!degrees_plan(degrees, program, c->diagnostics)) return false;
    take_degrees(c, degrees);
  }
  if (broken) diag_error(c->diagnostics, "E0900", NO_SPAN, "internal error: the program's graph is malformed: %s", broken);
  return diag_errors(c->diagnostics) == 0;
}

/* The resolved program: every module formatted, then what -D set. Its hash names the source in the plan. With dp=* it is
 * that of the program compiled with -D parallel.dp=N, so that the plan of a degree is the same bytes. */
static void hash_source(const Compilation *c, Arena *arena, int64_t dp, char sha256[65]) {
  Text text = {.arena = arena};
  for (uint32_t i = 0; i < c->semantic.modules.count; i++) syntax_format(&text, c->diagnostics, c->semantic.modules.at[i]);
  bool said = !c->degrees->open;
  for (uint32_t i = 0; i < c->input.define_count; i++) {
    const Define *define = &c->input.defines[i];
    bool is_open = c->degrees->open && strcmp(define->name, "parallel.dp") == 0;
    if (is_open) text_printf(&text, "-D %s=%lld\n", define->name, (long long)dp);
    else text_printf(&text, "-D %s=%s\n", define->name, define->value);
    said |= is_open;
  }
  if (!said) text_printf(&text, "-D parallel.dp=%lld\n", (long long)dp);
  sha256_hex(text.at ? text.at : "", text.length, sha256);
}

/* In the arena of `out`. */
static void write_plan(const Compilation *c, Degree *degree, Text *out, char sha256[65]) {
  char source[65];
  hash_source(c, out->arena, degree->config.dp, source);
  PlanInput input = {out->arena, c->semantic.graph, &degree->config, degree->program, degree->pipeline, source, PDC_VERSION,
                     degree->unit_flops, degree_predict(c->degrees, degree)};
  plan_write(&input, out, sha256);
}

/* The plans of all degrees, each packed by itself. As texts they are large, and are kept no longer than that takes. */
static const EmitPlan *pack_plans(Compilation *c) {
  EmitPlan *plans = ARENA_ARRAY(c->arena, EmitPlan, c->degrees->at.count);
  for (uint32_t i = 0; i < c->degrees->at.count; i++) {
    Degree *degree = &c->degrees->at.at[i];
    Text plan = {.arena = arena_new()};
    write_plan(c, degree, &plan, plans[i].sha256);
    plans[i].degree = (pd_degree){.dp = degree->program->dp, .chunks = degree->program->chunks,
                                  .microbatches = degree->program->microbatches, .plan_bytes = (int64_t)plan.length,
                                  .packed_at = (int64_t)c->packed_plans.length};
    pack(&c->packed_plans, plan.at, plan.length);
    arena_free(plan.arena);
    plans[i].degree.packed_bytes = (int64_t)c->packed_plans.length - plans[i].degree.packed_at;
  }
  return plans;
}

void passes_emit(Compilation *c, const char *name) {
  EmitPlan single;
  EmitInput emit = {c->arena, c->diagnostics, c->semantic.graph, &c->semantic.config, c->memory, c->program, NULL, 1, &single};
  if (c->degrees->open) {
    emit.plan_file = arena_printf(c->arena, "%s.plans", name);
    emit.plan_count = c->degrees->at.count;
    emit.plans = pack_plans(c);
  } else {
    emit.plan_file = arena_printf(c->arena, "%s.plan.json", name);
    write_plan(c, &c->degrees->at.at[0], &c->plan, single.sha256);
  }
  if (c->semantic.config.target == TARGET_CUDA) emit_cuda(&emit, name, &c->c, &c->cu);
  else emit_c(&emit, &c->c);
}
