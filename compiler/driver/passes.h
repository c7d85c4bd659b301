/* One compilation and its passes, on text in memory: what `pdc FILE`, the language server and the fuzzer share. Each
 * pass reports into `diagnostics`; a pass runs only when those before it found no errors. */
#ifndef PDC_DRIVER_PASSES_H
#define PDC_DRIVER_PASSES_H

#include "memory/memory.h"
#include "pipeline/degrees.h"
#include "program.h" /* runtime/ */
#include "semantic/semantic.h"

typedef struct Compilation {
  Arena *arena;
  Diagnostics *diagnostics;
  Intern *names;
  SemanticInput input; /* model, defines and import_dirs are set by the caller, the rest by passes_parse */
  Target target;       /* set by the caller */
  CudaAttention attention; /* set by the caller, for the cuda target */
  Module *module;
  Semantic semantic;
  MemoryPlan *memory;
  Degrees *degrees; /* NULL after errors, as the next two */
  /* those of the first degree, which is the only one unless dp=*; semantic.config is its config then */
  pd_program *program;
  pd_pipeline *pipeline;
  /* plan: empty with dp=*, packed_plans: else. cu: of the cuda target */
  Text plan, packed_plans, c, cu;
} Compilation;

Compilation *compilation_new(Arena *arena);
/* `path` as it is shown to the user; imports are searched beside it. False when there are errors, as below. */
bool passes_parse(Compilation *c, const char *path, const char *text, size_t length);
bool passes_semantic(Compilation *c);
/* Tensor parallelism, gradients, memory, stages, schedule. */
bool passes_plan(Compilation *c);
/* The plan, or with dp=* the plans of all degrees, and the C source. `name` is that of the files. */
void passes_emit(Compilation *c, const char *name);

#endif
