/* Orders of actions that no closed form has, for the planner to try. */
#ifndef PDC_PIPELINE_ORDERS_H
#define PDC_PIPELINE_ORDERS_H

#include "pipeline/pipeline.h"

/* The order of interleaved zero bubble (one chunk a rank: of ZB-H1) with a free number of forwards ahead and a free
 * delay of weight gradients, per rank. Chunks lie in a loop. Some choices deadlock: the simulator says so. */
void order_along_table(Arena *arena, const ScheduleRequest *request, const int64_t *ahead, const int64_t *delay,
                       pd_action_list *ranks);

/* How a rank chooses when it is free. Weight gradients come last, but before a forward that memory has no room for. */
typedef struct OrderPolicy {
  bool backward_first; /* of a forward and a backward that are both ready; else in turn */
  bool deep_first;     /* of several forwards the one nearest to the end of the model; else the lowest micro-batch */
  double patience; /* a weight gradient begins only if nothing else is known to come within this share of its time */
} OrderPolicy;

/* Plays the computations and writes down what each rank did. cap: most chunks' activations a rank may hold, at least
 * its chunks; a forward leaves room for one more of each later chunk of its rank, so that the play always ends. Reads
 * of `shape` everything but the lists. False if a cap is too small. */
bool order_by_playing(Arena *arena, const pd_pipeline *shape, const ScheduleCosts *costs, const int64_t *cap,
                      OrderPolicy policy, pd_action_list *ranks);

#endif
