/* Runs a kernel: its blocks one after another (or over CPU threads), the threads of a block as fibers. */
#ifndef PD_FAKE_BLOCK_H
#define PD_FAKE_BLOCK_H

#include "device.h"

#include <string>

namespace fake {

struct launch {
  const fake_kernel *kernel;
  const char *name;
  dim3 grid, block;
  size_t dynamic_bytes;
  bool uses_shared; /* static or dynamic shared memory */
  void *const *arguments;
  uint64_t number; /* of the launch, from 1 */
  uint64_t seed;
};

/* runs to the end of the last block; misuse of barriers and warp operations is a fault */
void run_kernel(const launch &launch);

/* `kernel f(int*), block (0,0,0), thread (3,0,0)` of the calling device thread; empty outside kernels */
std::string kernel_position();

} // namespace fake
#endif
