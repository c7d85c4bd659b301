/* The data-parallel degrees that a program can be started with: the one it says, or with `dp=*` every one that divides its
 * batch and can be planned. Only what a plan holds depends on dp (micro-batches, schedule, memory, prediction); graph, memory
 * of a unit and functions are the same for all. */
#ifndef PDC_PIPELINE_DEGREES_H
#define PDC_PIPELINE_DEGREES_H

#include <stdio.h>

#include "pipeline/predict.h"

typedef struct Degree {
  Config config;       /* the program's with this dp, and with what kind=auto chose for it */
  pd_program *program; /* NULL until it is planned, and so the next two */
  pd_pipeline *pipeline;
  int64_t (*unit_flops)[3];     /* {F, I, W} of each unit, as stages_plan gives them */
  const Prediction *prediction; /* NULL until degree_predict */
} Degree;

typedef struct LeftOut {
  int64_t dp;
  const char *why; /* a sentence without full stop */
} LeftOut;

typedef struct Degrees {
  Arena *arena;
  const Graph *graph;
  bool open;               /* dp=* */
  VEC(Degree) at;          /* dp ascending */
  VEC(LeftOut) left_out;   /* that divide the batch, dp ascending in each of the two passes */
  int64_t last;            /* larger degrees were not tried: there are too many; 0: all were */
} Degrees;

/* The degrees within the bounds of planning (limits.h), for a program whose config has dp, or dp_open and dp 1. `at` is
 * empty after errors; with dp_open that is when no degree is left. */
Degrees *degrees_find(Arena *arena, const Graph *graph, const Config *config, Diagnostics *diagnostics);
/* Plans each for a program as describe_program made it for the first, which is copied; those that cannot be planned are
 * left out. False after errors: none is left. */
bool degrees_plan(Degrees *degrees, const pd_program *program, Diagnostics *diagnostics);
/* What a step of a planned degree will take; computed once. */
const Prediction *degree_predict(const Degrees *degrees, Degree *degree);
/* "1, 2 and 4" */
const char *degrees_text(const Degrees *degrees);
/* What can be chosen at the launch, a line a degree, and what was left out and why: for -v, with dp=*. */
void degrees_say(const Degrees *degrees, FILE *out);

#endif
