/* Kernels as the program knows them: from nvcc's registration or from a library that it loaded. */
#ifndef PD_FAKE_LAUNCH_H
#define PD_FAKE_LAUNCH_H

#include "image.h"

#include <string>
#include <vector>

struct fake_kernel; /* device.h */

namespace fake {

struct function {
  std::string name; /* mangled */
  std::string text; /* as in the source, without parameters */
  const fake_kernel *twin;
  const std::vector<device_image> *images; /* that contain it */
  int dynamic_limit;                       /* bytes of dynamic shared memory that a launch may ask for */
  bool unloaded;                           /* its library is gone: to use it is a fault */
};

/* Makes a kernel known by `key`. The result is its cudaKernel_t, and is never freed. `images` must stay. */
function *add_function(const void *key, const char *name, const std::vector<device_image> *images);

} // namespace fake
#endif
