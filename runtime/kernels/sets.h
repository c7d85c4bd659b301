/* The kernel sets that are linked in, for select.c alone. A set may leave a member NULL: select.c takes it from ref. */
#ifndef PD_SETS_H
#define PD_SETS_H

#include "kernels/kernels.h"

extern const pd_kernels_f32 pd_set_ref_f32, pd_set_host_f32;
extern const pd_kernels_f64 pd_set_ref_f64, pd_set_host_f64;

#endif
