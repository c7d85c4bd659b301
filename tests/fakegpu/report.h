/* Settings of the fake GPU (from the environment), the recording, and the objects that must be gone at exit. */
#ifndef PD_FAKE_REPORT_H
#define PD_FAKE_REPORT_H

#include "fake.h"

#include <cstdint>
#include <string>

namespace fake {

enum class block_order { forward, reverse, seeded };

/* a mistake planted in the program's calls (PD_FAKE_MISTAKE) */
struct mistake {
  std::string kind, call;
  uint64_t number = 0; /* of the call, from 1; 0: none */
};

struct settings {
  uint64_t seed = 0, seeds = 1; /* the first, and how many */
  std::string record, kernels;
  int devices = 1, arch = 0, driver = 13000, threads = 1;
  size_t memory = size_t{16} << 30;
  double timeout = 60;
  mistake planted;
  bool leaks = true, races = false;
  block_order blocks = block_order::seeded;
};

/* the settings; read from the environment by the first call */
const settings &config();

/* a number that is a function of its arguments: the source of every choice */
uint64_t mix(uint64_t a, uint64_t b);

/* the operation being run, for reports; nullptr outside */
extern thread_local const char *running;

/* a name as in the source, from a mangled one */
std::string demangled(const char *name);

/* true when fake_record writes something */
bool recording();

/* a fault if anything registered with fake_object_made is alive; called at exit */
void check_objects();

} // namespace fake
#endif
