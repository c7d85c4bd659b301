/* From the planned program to C: its description for the runtime, and the readable source. */
#ifndef PDC_EMIT_EMIT_H
#define PDC_EMIT_EMIT_H

#include <stdio.h>

#include "memory/memory.h"
#include "program.h" /* runtime/ */

/* A plan that is embedded. */
typedef struct EmitPlan {
  char sha256[65];
  pd_degree degree; /* with dp=*: what the program knows of it */
} EmitPlan;

/* Everything emission reads. */
typedef struct EmitInput {
  Arena *arena;
  const Diagnostics *diagnostics; /* for the source lines beside the code */
  const Graph *graph;
  const Config *config;
  const MemoryPlan *memory;
  const pd_program *program;
  const char *plan_file;   /* beside the C file, included at assembly: the plan, or with dp=* the packed plans */
  uint32_t plan_count;
  const EmitPlan *plans;   /* one, or with config->dp_open one a degree */
} EmitInput;

/* The runtime's description of the program, function pointers and plan NULL. Lives in the arena. */
pd_program *describe_program(Arena *arena, const Graph *graph, const Config *config, const MemoryPlan *memory, const char *compiler);

/* What keeps cuDNN from computing an OP_SDPA or OP_SDPA_GRAD of a program for CUDA; NULL: nothing. */
const char *attention_obstacle(Arena *arena, const Graph *graph, const Config *config, const Op *op);
/* Fills the program's attention_space and attention_required. */
void attention_describe(Arena *arena, const Graph *graph, const Config *config, pd_program *program);
/* For -v: a line for each direction that a program for CUDA has. */
void attention_say(Arena *arena, const Graph *graph, const Config *config, FILE *out);

/* The whole C source. Its size does not depend on layers, micro-batches or ranks. */
void emit_c(const EmitInput *input, Text *out);
/* The same for a CUDA program: NAME.c, that queues work, and NAME.cu, the kernels. */
void emit_cuda(const EmitInput *input, const char *name, Text *c, Text *cu);

#endif
