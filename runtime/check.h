/* What a program checks about itself: its gradients against central finite differences of its loss, and that ranks which
 * hold the same weights agree on them. */
#ifndef PD_CHECK_H
#define PD_CHECK_H

#include "engine.h"

/* The data of step 0 are in place. For every trained parameter tensor, compares up to `elements` of its elements (drawn
 * from the seed) and prints, on rank 0, `parameter NAME: largest error X` where X is |g - d| / (|g| + |d| + scale), d being
 * the fourth-order central difference of the loss and scale the tensor's root mean square gradient. Returns the largest of all on every
 * rank. Meant for compute=f64. */
double pd_check_gradients(pd_engine *engine, pd_world *world, const pd_program *program, uint64_t seed,
                          const double *inverse_counts, int64_t elements);

/* Ranks that hold the same part of a tensor (replicas, copies of the model, users of a tied parameter) must hold the same
 * bits of it; ends the run with PD_EXIT_NUMERIC and the tensor's name otherwise. Collective. */
void pd_check_replicas(pd_engine *engine, const pd_world *world, const pd_program *program);

#endif
