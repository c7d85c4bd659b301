/* Convolutions in f32 by oneDNN's own kernels, which keep images and filters in blocks of channels. */
#ifndef PD_DIRECT_H
#define PD_DIRECT_H

#include <stddef.h>

#include "kernels/kernels.h"

typedef enum pd_direct_kind {
  PD_DIRECT_FORWARD,    /* x, f -> y */
  PD_DIRECT_INPUT_GRAD, /* f, dy -> dx */
  PD_DIRECT_FILTER_GRAD /* x, dy -> df, which accumulates */
} pd_direct_kind;

/* Operands in the order of the kernel table. False, and nothing done, where oneDNN has nothing better than columns or
 * the convolution is too small for the rearrangement to pay: a function of the sizes alone. The same bits for every
 * number of threads: images are cut into parts by their number, and each part is one thread's. `scratch` gives memory
 * that lasts until it is asked again. */
bool pd_direct_convolution(pd_direct_kind kind, const pd_image_window *v, const float *a, const float *b, float *out,
                           void *(*scratch)(size_t bytes));

#endif
