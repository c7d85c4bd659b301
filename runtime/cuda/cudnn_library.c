/* Opens cuDNN and looks its functions up. */
#include "cuda/cudnn_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define TEXT_OF(number) #number
#define SONAME(major) "libcudnn.so." TEXT_OF(major)
#define GRAPH_SONAME(major) "libcudnn_graph.so." TEXT_OF(major)

pd_cudnn_library pd_cudnn;

static bool look_up(void *library, const char *name, void *into, char *why, size_t why_size) {
  void *const found = dlsym(library, name);
  if (found == NULL) {
    snprintf(why, why_size, "%s has no %s", SONAME(CUDNN_MAJOR), name);
    return false;
  }
  memcpy(into, &found, sizeof found); /* C has no cast from an address of data to one of a function */
  return true;
}

bool pd_cudnn_open(char *why, size_t why_size) {
  pd_cudnn_library found;
  /* cuDNN itself ends the process where this part of it is missing */
  if (dlopen(GRAPH_SONAME(CUDNN_MAJOR), RTLD_NOW | RTLD_LOCAL) == NULL) {
    snprintf(why, why_size, "%s cannot be loaded: %s", GRAPH_SONAME(CUDNN_MAJOR), dlerror());
    return false;
  }
  void *const library = dlopen(SONAME(CUDNN_MAJOR), RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    snprintf(why, why_size, "%s cannot be loaded: %s", SONAME(CUDNN_MAJOR), dlerror());
    return false;
  }
#define F(name)                                                                                                        \
  if (!look_up(library, #name, &found.name, why, why_size)) return false;
  PD_CUDNN_FUNCTIONS(F)
#undef F
  const size_t version = found.cudnnGetVersion();
  if (version < PD_CUDNN_LEAST) {
    snprintf(why, why_size, "cuDNN is of version %zu.%zu.%zu here, and %d.%d or later is needed", version / 10000,
             version % 10000 / 100, version % 100, PD_CUDNN_LEAST / 10000, PD_CUDNN_LEAST % 10000 / 100);
    return false;
  }
  pd_cudnn = found;
  return true;
}
