/* Evaluation on the validation data: forward only, every sample once, no trace left in the training state. */
#ifndef PD_EVALUATE_H
#define PD_EVALUATE_H

#include "train.h"

/* Prints and logs loss and metrics after `step` steps. Collective. */
void pd_evaluate(pd_run *run, int64_t step);

#endif
