/* What units cost: floating-point operations of F, I and W. */
#ifndef PDC_PIPELINE_COST_H
#define PDC_PIPELINE_COST_H

#include "ir/sizes.h"

/* Fills Segment.flops_f, flops_i and flops_w: operations for one sample through one trip, of the whole tensors (before any
 * split). A product counts 2 per multiply-add; causal attention counts half of the score matrix; element-wise and row
 * operations count one per element. */
void cost_run(Graph *graph);

#endif
