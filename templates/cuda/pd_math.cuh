/* Scalar functions of element-wise kernels, and the generator of random masks: the files of the host kernels, which are
 * written for both. So the two targets compute the same functions and draw the same bits. */
#ifndef PD_MATH_CUH
#define PD_MATH_CUH

#include "kernels/draw.h"
#include "kernels/kernels.h"
#include "kernels/math.h"

#endif
