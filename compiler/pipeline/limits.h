/* What is too large to plan. */
#ifndef PDC_PIPELINE_LIMITS_H
#define PDC_PIPELINE_LIMITS_H

#include "ir/sizes.h"

/* Units, chunks and micro-batches are planned one by one, and bytes and operations are counted in 64 bits: reports
 * E0515 and returns false where a program has too many. Assumes all three lists of every segment; to be called before
 * costs and memory are counted. */
bool limits_check(const Graph *graph, const Config *config, Diagnostics *diagnostics);

#endif
