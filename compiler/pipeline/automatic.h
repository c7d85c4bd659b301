/* kind=auto of a program: the planner with the costs, the link and the memory that the plan states. */
#ifndef PDC_PIPELINE_AUTOMATIC_H
#define PDC_PIPELINE_AUTOMATIC_H

#include "pipeline/planner.h"
#include "pipeline/stages.h"

/* config->chunks of 1: the planner chooses how many chunks a rank has. False if nothing fits. */
bool automatic_choose(Arena *arena, const Prices *prices, PlannerChoice *choice);
/* What was chosen and why, and a line for each kind that was not. */
const char *automatic_text(Arena *arena, const PlannerChoice *choice);

#endif
