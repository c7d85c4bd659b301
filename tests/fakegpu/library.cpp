/* Libraries: device code that the program loads itself, as NVRTC makes it. */
#include "api.h"
#include "device_limits.h"
#include "launch.h"
#include "report.h"

#include <cstring>
#include <list>

namespace fake {
namespace {

const char *const KIND = "library";

struct library {
  std::vector<device_image> images;          /* one */
  std::map<std::string, function *> kernels; /* that were asked for */
};

/* never freed: a handle is never used again */
std::list<library> &loaded() {
  static auto *all = new std::list<library>;
  return *all;
}

library *check_library(cudaLibrary_t handle, const char *call) {
  fake_object_check(KIND, handle, call);
  return reinterpret_cast<library *>(handle);
}

cudaError_t load(cudaLibrary_t *handle, const void *code) {
  device_image image;
  if (!read_image(code, image)) {
    fake_explain("cudaLibraryLoadData", "the image is neither a cubin nor PTX");
    return cudaErrorInvalidKernelImage;
  }
  std::vector<device_image> images = {image};
  if (!choose_image(images, device_arch())) {
    fake_explain("cudaLibraryLoadData", "the device is sm_%d, the image is%s sm_%d", device_arch(),
                 image.ptx ? " PTX for" : " for", image.arch);
    return cudaErrorNoKernelImageForDevice;
  }
  loaded().push_back({images, {}});
  *handle = reinterpret_cast<cudaLibrary_t>(&loaded().back());
  fake_object_made(KIND, *handle);
  fake_record("host: cudaLibraryLoadData %s sm_%d kernels=%zu", image.ptx ? "PTX" : "cubin", image.arch,
              image.kernels.size());
  return cudaSuccess;
}

} // namespace
} // namespace fake

using namespace fake;

cudaError_t cudaLibraryLoadData(cudaLibrary_t *handle, const void *code, cudaJitOption *, void **, unsigned jit_options,
                                cudaLibraryOption *, void **, unsigned library_options) {
  return api("cudaLibraryLoadData", capture_use::forbidden, [&]() -> cudaError_t {
    if (!handle || !code) return cudaErrorInvalidValue;
    if (jit_options || library_options) {
      fake_explain("cudaLibraryLoadData", "options are not supported by the fake GPU");
      return cudaErrorNotSupported;
    }
    return load(handle, code);
  });
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t handle, const char *name) {
  return api("cudaLibraryGetKernel", capture_use::allowed, [&]() -> cudaError_t {
    library *from = check_library(handle, "cudaLibraryGetKernel");
    if (!kernel || !name) return cudaErrorInvalidValue;
    auto known = from->images[0].kernels.find(name);
    if (known == from->images[0].kernels.end()) {
      fake_explain("cudaLibraryGetKernel", "the library has no kernel %s", name);
      return cudaErrorSymbolNotFound;
    }
    function *&f = from->kernels[name];
    if (!f) f = add_function(&known->second, name, &from->images);
    *kernel = reinterpret_cast<cudaKernel_t>(f);
    return cudaSuccess;
  });
}

cudaError_t cudaLibraryUnload(cudaLibrary_t handle) {
  return api("cudaLibraryUnload", capture_use::forbidden, [&]() -> cudaError_t {
    library *gone = check_library(handle, "cudaLibraryUnload");
    for (auto &entry : gone->kernels) entry.second->unloaded = true;
    fake_object_destroyed(KIND, handle);
    fake_record("host: cudaLibraryUnload");
    return cudaSuccess;
  });
}
