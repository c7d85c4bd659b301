/* Planted faults: kernels of templates/cuda with one mistake each, and the same kernel without it. A file holds one
 * fault: a `__global__` template with a parameter `wrong`, and a function `template <bool wrong> int run()` in a struct
 * that launches it and returns whether the result is right. Comments that the test reads:
 *
 *   caught by: DETECTOR NAME    what reports it (run: the fake GPU itself; asan, ubsan, tsan: a sanitizer; result: the
 *                               numbers; order: they depend on the order of blocks), and the name in the report
 *   `<- here`                   at the end of each line that the report must name
 */
#ifndef PD_FAULT_H
#define PD_FAULT_H

#include "kernel_check.h"

#define FAULT_BLOCK 128

static inline bool near_to(double got, double want) {
  return fabs(got - want) <= 1e-4 * (fabs(want) + 1);
}

#endif
