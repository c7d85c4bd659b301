/* What devices of the supported architectures have: the figures of NVIDIA's table of compute capabilities. */
#ifndef PD_FAKE_DEVICE_LIMITS_H
#define PD_FAKE_DEVICE_LIMITS_H

namespace fake {

struct device_limits {
  int arch;
  int multiprocessors;
  int threads_sm;
  int shared_sm, shared_optin; /* bytes per multiprocessor; per block with cudaFuncSetAttribute */
  int l2;
};

/* the devices' architecture: PD_FAKE_ARCH, else the newest that the program has code for, else 90 */
int device_arch();

/* the newest architecture in the program's device code, 0 if it has none (launch.cpp) */
int newest_code();

/* of that architecture, or of the nearest older one */
const device_limits &limits();

} // namespace fake
#endif
