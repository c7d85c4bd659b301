/* From a costed program to a pipeline: units into chunks, the schedule with its messages, and whether it fits the memory
 * that `cluster` declares. */
#ifndef PDC_PIPELINE_STAGES_H
#define PDC_PIPELINE_STAGES_H

#include <stdio.h>

#include "layout.h" /* runtime/ */
#include "pipeline/pipeline.h"
#include "semantic/semantic.h"

/* NULL after errors (too few units for the stages, a schedule that cannot be made, memory exceeded). unit_flops gets
 * {F, I, W} per unit: of one micro-batch, before the tensor-parallel split. */
pd_pipeline *stages_plan(Arena *arena, const Graph *graph, const Config *config, const pd_program *program,
                         Diagnostics *diagnostics, int64_t (**unit_flops)[3]);
/* A table of bytes per pipeline rank and class: --emit=memory. */
void stages_memory_text(const pd_program *program, const pd_pipeline *pipeline, Text *out);
/* What was decided, for -v: parameters, stages, schedule, memory. */
void stages_say(const Graph *graph, const Config *config, const pd_program *program, const pd_pipeline *pipeline, FILE *out);

#endif
