/* Reverse mode: for every segment the operations of I (gradients of the wires in) and of W (gradients of the parameters),
 * separately, so that any schedule can split them. */
#ifndef PDC_AUTODIFF_AUTODIFF_H
#define PDC_AUTODIFF_AUTODIFF_H

#include "distribute/distribute.h"

/* Fills Segment.input_grad, weight_grad, grads_in, grads_out and Wire.needs_grad. Contributions to one value are added
 * in reverse program order. Gradients are of the loss, whose own gradient is 1. */
bool autodiff_run(Graph *graph, const Config *config, Diagnostics *diagnostics);

/* recompute=selective (recompute.c): cheap forward results that I and W read are computed there again, not kept. */
void recompute_selectively(Graph *graph);

/* Gradient rule of one operation (gradients.c): given the gradients of its results (NO_ID where none), calls `give` with
 * the gradient of input k for every input that `wants`. */
typedef struct Gradients Gradients;
bool gradients_wanted(const Gradients *gradients, Id value);
void gradients_give(Gradients *gradients, Id value, Id gradient);
void gradient_rule(Gradients *gradients, Builder *builder, Id op, const Id *d_out);

#endif
