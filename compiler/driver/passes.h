/* One compilation and its passes, on text in memory: what `pdc FILE`, the language server and the fuzzer share. Each
 * pass reports into `diagnostics`; a pass runs only when those before it found no errors. */
#ifndef PDC_DRIVER_PASSES_H
#define PDC_DRIVER_PASSES_H

#include "memory/memory.h"
#include "pipeline/predict.h"
#include "program.h" /* runtime/ */
#include "semantic/semantic.h"

typedef struct Compilation {
  Arena *arena;
  Diagnostics *diagnostics;
  Intern *names;
  SemanticInput input; /* model, defines and import_dirs are set by the caller, the rest by passes_parse */
  Target target;       /* set by the caller */
  Module *module;
  Semantic semantic;
  MemoryPlan *memory;
  pd_program *program;
  pd_pipeline *pipeline; /* NULL after errors */
  int64_t (*unit_flops)[3];
  const Prediction *prediction; /* NULL until it is asked for */
  char source_sha256[65], plan_sha256[65];
  Text plan, c, cu; /* cu: of the cuda target */
} Compilation;

Compilation *compilation_new(Arena *arena);
/* `path` as it is shown to the user; imports are searched beside it. False when there are errors, as below. */
bool passes_parse(Compilation *c, const char *path, const char *text, size_t length);
bool passes_semantic(Compilation *c);
/* Tensor parallelism, gradients, memory, stages, schedule. */
bool passes_plan(Compilation *c);
/* What a step will take; needs the pipeline. */
const Prediction *passes_predict(Compilation *c);
/* The plan and the C source. `name` is that of the files. */
void passes_emit(Compilation *c, const char *name);

#endif
