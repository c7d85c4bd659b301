/* From a costed program to a pipeline: units into chunks, the schedule with its messages, and whether it fits the memory
 * that `cluster` declares. */
#ifndef PDC_PIPELINE_STAGES_H
#define PDC_PIPELINE_STAGES_H

#include <stdio.h>

#include "pipeline/prices.h"

/* A layout says how many chunks a rank has where `chunks` does not. Before anything is counted by chunks. */
void stages_count_chunks(Arena *arena, Config *config);
/* NULL after errors (too few units for the stages, a schedule that cannot be made, memory exceeded). unit_flops gets
 * {F, I, W} per unit: of one micro-batch, before the tensor-parallel split. With kind=auto, config and program get the
 * kind and the chunks that were chosen; the kind stays "auto" if the order is none of the kinds. */
pd_pipeline *stages_plan(Arena *arena, const Graph *graph, Config *config, pd_program *program, Diagnostics *diagnostics,
                         int64_t (**unit_flops)[3]);
/* Cuts the program's units into chunks: bounds gets chunks + 1 entries. Where `layout` does not say where, of nearly equal
 * cost. NULL, or why not: too few units, or a layout that does not fit. */
const char *stages_cut(Arena *arena, const Prices *prices, int chunks, int64_t *bounds);
/* Adds the program's messages and reductions to a compute-only pipeline with its units. */
void stages_connect(Arena *arena, const Prices *prices, pd_pipeline *pipeline);
/* A table of bytes per pipeline rank and class: --emit=memory. */
void stages_memory_text(const pd_program *program, const pd_pipeline *pipeline, Text *out);
/* What was decided, for -v: parameters, stages, schedule, memory. */
void stages_say(const Graph *graph, const Config *config, const pd_program *program, const pd_pipeline *pipeline, FILE *out);

#endif
