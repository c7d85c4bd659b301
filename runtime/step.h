/* What changes from one training step to the next, where the device reads it: a captured step is replayed with other
 * values, not with other arguments. The host writes all but the last three before a step, and where a list has several
 * updates, all of them before each. Read by C, CUDA and C++. */
#ifndef PD_STEP_H
#define PD_STEP_H

#include <stdint.h>

typedef struct pd_step_values {
  uint64_t step;
  double rate;    /* learning rate */
  double c1, c2;  /* bias corrections of the moments: 1 - beta^t */
  int32_t update; /* 0: leave the parameters as they are, nothing was counted */
  int32_t finite; /* written by the device: the norm is a number, so the parameters may change */
  double norm;    /* written by the device: of all gradients */
  double factor;  /* written by the device: gradients are multiplied by it (clipping) */
} pd_step_values;

#endif
