/* Evaluation on the validation data: forward only, every sample once, no trace left in the training state. */
#ifndef PD_EVALUATE_H
#define PD_EVALUATE_H

#include "train.h"

/* Checks every value of the validation data and counts its targets, shared out over the ranks; once, before training:
 * better a fault found now than at the first evaluation. Collective. */
void pd_evaluate_prepare(pd_run *run);
/* Prints and logs loss and metrics after `step` steps. Collective. */
void pd_evaluate(pd_run *run, int64_t step);

#endif
