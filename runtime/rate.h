/* The learning rate of an update, a pure function of the recipe and the update's number. */
#ifndef PD_RATE_H
#define PD_RATE_H

#include "program.h"

/* Rate of the update with index `u`, counted from 0: updates that were really made, so that skipped steps do not move
 * the schedule, and no layout or number of micro-batches does.
 *   warm-up   while u < warmup: peak * (u + 1) / warmup; the last warm-up update already uses the peak
 *   constant  peak
 *   cosine    from peak at u = warmup to floor at u = end: floor + (peak - floor) (1 + cos(pi t)) / 2,
 *             t = (u - warmup) / (end - warmup)
 *   linear    the same with a straight line
 *   wsd       peak until u = decay_from, then a straight line to floor at u = end
 * After `end`: floor. */
double pd_rate_at(const pd_program *program, int64_t u);
const char *pd_rate_name(pd_rate rate);

#endif
