/* For NVRTC, which knows the functions of C by itself, but not this name. */
#ifndef PD_NVRTC_MATH_H
#define PD_NVRTC_MATH_H

#define INFINITY __int_as_float(0x7f800000)

#endif
