/* The plan inside the program: read back strictly, checked against the program it is compiled into. */
#ifndef PD_PLAN_H
#define PD_PLAN_H

#include "layout.h"
#include "log.h"
#include "world.h"

typedef struct pd_planned_memory { /* bytes on one rank of a pipeline position */
  int64_t bytes[PD_MEMORY_CLASSES];
  int64_t total;
} pd_planned_memory;

typedef struct pd_plan {
  pd_pipeline pipeline;
  char sha256[65];           /* of the plan, recomputed and equal to what it says */
  char schedule[64];         /* its kind, "1f1b" */
  pd_planned_memory *memory; /* per pipeline rank */
  double predicted_seconds;  /* of a step; 0: the program does not say how fast a rank is */
  /* what the pipeline points into */
  int *rank_of;
  int64_t *first_unit;
  pd_action_list *ranks;
} pd_plan;

bool pd_plan_read(const pd_program *program, pd_plan *plan, pd_problem *problem);
void pd_plan_free(pd_plan *plan);
/* Every rank must hold the same plan; ends the run with PD_EXIT_PLAN otherwise. Collective. */
void pd_plan_agree(const pd_world *world, const pd_plan *plan);

#endif
