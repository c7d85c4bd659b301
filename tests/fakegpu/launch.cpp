/* Kernels: what nvcc's host code registers, the twins that g++ made of the same text, and launches that run them. */
#include "api.h"
#include "block.h"
#include "device_limits.h"
#include "image.h"
#include "launch.h"
#include "memory.h"
#include "report.h"

#include <cstring>
#include <dlfcn.h>
#include <link.h>
#include <map>

namespace fake {

/* what the program registered, by handle; never forgotten, for exit handlers may come before the last launch */
static std::map<void **, std::vector<device_image>> &binaries() {
  static auto *all = new std::map<void **, std::vector<device_image>>;
  return *all;
}

int newest_code() {
  int newest = 0;
  for (auto &entry : binaries())
    for (const device_image &i : entry.second) newest = std::max(newest, i.arch);
  return newest;
}

namespace {

struct variable {
  std::string name;
  size_t bytes;
};

template <class T> std::map<const void *, T> &registry() {
  static auto *all = new std::map<const void *, T>;
  return *all;
}

std::vector<const fake_kernel *> &twins() {
  static auto *all = new std::vector<const fake_kernel *>;
  return *all;
}

struct configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
thread_local std::vector<configuration> configurations;

/* One form for the names that g++ and nvcc give a kernel: g++ marks internal linkage with an L before the length of a
 * name, and the two name the unnamed namespace differently. */
std::string normal(const std::string &name) {
  std::string out;
  for (size_t i = 0; i < name.size();) {
    if (name[i] == 'L' && i + 1 < name.size() && isdigit(name[i + 1])) {
      i++;
    } else if (isdigit(name[i])) {
      size_t end = i;
      unsigned long length = 0;
      while (end < name.size() && isdigit(name[end]))
        length = length * 10 + static_cast<unsigned long>(name[end++] - '0');
      if (name.compare(end, 10, "_GLOBAL__N") == 0 && end + length <= name.size()) {
        out += "12_GLOBAL__N_1";
        i = end + length;
      } else {
        out += name.substr(i, end - i);
        i = end;
      }
    } else {
      out += name[i++];
    }
  }
  return out;
}

/* the functions of a twin, by normal name: also those that are not exported, so from the file's symbol table */
using symbols = std::map<std::string, const void *>;

symbols read_symbols(const char *path, uintptr_t base) {
  symbols found;
  for (auto &entry : read_functions(path, base)) found[normal(entry.first)] = entry.second;
  return found;
}

struct twin_library {
  void *handle;
  symbols functions;
};

/* the libraries of PD_FAKE_KERNELS, loaded by the first call */
const std::vector<twin_library> &libraries() {
  static auto *all = [] {
    auto *loaded = new std::vector<twin_library>;
    std::string list = config().kernels;
    for (size_t at = 0, end; at < list.size(); at = end + 1) {
      end = std::min(list.find(':', at), list.size());
      std::string path = list.substr(at, end - at);
      void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (!handle) fake_fault("twin", "PD_FAKE_KERNELS: %s", dlerror());
      link_map *map;
      dlinfo(handle, RTLD_DI_LINKMAP, &map);
      loaded->push_back({handle, read_symbols(path.c_str(), map->l_addr)});
    }
    return loaded;
  }();
  return *all;
}

const fake_kernel *find_twin(const std::string &name) {
  for (const twin_library &library : libraries()) {
    auto found = library.functions.find(normal(name));
    if (found == library.functions.end()) continue;
    for (const fake_kernel *k : twins())
      if (k->function == found->second) return k;
  }
  fake_fault("twin",
             "kernel %s (%s) has no twin in PD_FAKE_KERNELS=%s: compile its .cu with g++ and name it in "
             "FAKE_KERNEL",
             demangled(name.c_str()).c_str(), name.c_str(), config().kernels.c_str());
}

/* a fault if the library that the kernel is of was unloaded */
function *check_loaded(function *f) {
  if (f && f->unloaded)
    fake_fault("use-after-unload", "kernel %s is of a library that was unloaded before", f->text.c_str());
  return f;
}

/* `handle`: the host function that the program registered, a cudaKernel_t or a cudaFunction_t */
function *find_function(const void *handle) {
  auto found = registry<function>().find(handle);
  if (found != registry<function>().end()) return &found->second;
  for (auto &entry : registry<function>())
    if (&entry.second == handle) return check_loaded(&entry.second);
  return nullptr;
}

/* arguments of one launch, copied: a kernel runs long after its launch */
struct argument_block {
  std::vector<std::vector<char>> values;
  std::vector<void *> pointers;
};

std::shared_ptr<argument_block> copy_arguments(const function &f, void **arguments, std::string &detail) {
  auto block = std::make_shared<argument_block>();
  for (int i = 0; i < f.twin->count; i++) {
    const fake_parameter &p = f.twin->parameters[i];
    const char *from = static_cast<const char *>(arguments[i]);
    block->values.emplace_back(from, from + p.bytes);
    if (!p.pointer) continue;
    void *value;
    memcpy(&value, from, sizeof value);
    detail += " " + symbolic(value);
    if (!value) continue;
    allocation *a = find_memory(value);
    std::string what = f.text + ", argument " + std::to_string(i);
    if (!a) fake_fault("kernel-argument", "kernel %s: %p is not memory of a device", what.c_str(), value);
    if (a->kind == memory_kind::registered) continue;
    check_range(value, 0, current_device(), "kernel-argument", ("kernel " + what).c_str());
  }
  for (auto &value : block->values) block->pointers.push_back(value.data());
  return block;
}

cudaError_t refuse(cudaError_t error, const function &f, const std::string &why) {
  fake_explain(("launch of kernel " + f.text).c_str(), "%s", why.c_str());
  return error;
}

/* what the kernel needs on this device; false if the program has no code for it */
bool find_needs(const function &f, kernel_needs &needs) {
  const device_image *image = choose_image(*f.images, device_arch());
  if (!image) {
    std::string list;
    for (const device_image &i : *f.images) list += (i.ptx ? " PTX " : " sm_") + std::to_string(i.arch);
    fake_explain(("launch of kernel " + f.text).c_str(), "the device is sm_%d, the program has code for%s only",
                 device_arch(), list.c_str());
    return false;
  }
  auto found = image->kernels.find(f.name);
  needs = found == image->kernels.end() ? kernel_needs{} : found->second;
  return true;
}

enum { REGISTERS = 65536, SHARED = 48 << 10 }; /* of a block, the latter without cudaFuncSetAttribute */

cudaError_t launch_kernel(function *f, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream) {
  static uint64_t launches, runs; /* runs: also of a captured launch */
  if (!f) return cudaErrorInvalidDeviceFunction;
  uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (!threads || threads > 1024 || block.x > 1024 || block.y > 1024 || block.z > 64)
    return refuse(cudaErrorInvalidConfiguration, *f,
                  "a block of " + text_of(block) + " threads; at most 1024, and 64 along z");
  if (!grid.x || !grid.y || !grid.z || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
    return refuse(cudaErrorInvalidConfiguration, *f,
                  "a grid of " + text_of(grid) + " blocks; at most 2147483647, 65535, 65535, and none 0");
  kernel_needs needs;
  if (!find_needs(*f, needs)) return cudaErrorNoKernelImageForDevice;
  if (threads > static_cast<uint64_t>(needs.max_threads))
    return refuse(cudaErrorInvalidValue, *f,
                  "a block of " + text_of(block) + " threads; __launch_bounds__ allows " +
                      std::to_string(needs.max_threads));
  if (static_cast<uint64_t>(needs.registers) * ((threads + 31) / 32 * 32) > REGISTERS)
    return refuse(cudaErrorLaunchOutOfResources, *f,
                  std::to_string(threads) + " threads of " + std::to_string(needs.registers) +
                      " registers; a block has 65536");
  if (shared > static_cast<size_t>(f->dynamic_limit) ||
      shared + needs.shared > static_cast<size_t>(limits().shared_optin) ||
      (f->dynamic_limit == SHARED && shared + needs.shared > SHARED))
    return refuse(cudaErrorInvalidValue, *f,
                  std::to_string(shared) + " bytes of dynamic and " + std::to_string(needs.shared) +
                      " of static shared memory; allowed are " + std::to_string(f->dynamic_limit) +
                      " of dynamic (cudaFuncAttributeMaxDynamicSharedMemorySize) and " +
                      std::to_string(limits().shared_optin) + " in all");
  cudaError_t error = check_stream(stream, "cudaLaunchKernel");
  if (error != cudaSuccess || dropped(("kernel " + f->text.substr(0, f->text.find('<'))).c_str())) return error;
  if (!f->twin) f->twin = find_twin(f->name);
  std::string detail =
      f->text + " grid " + text_of(grid) + " block " + text_of(block) + " shared " + std::to_string(shared);
  auto copied = copy_arguments(*f, arguments, detail);
  bool uses_shared = shared || needs.shared || !needs.registers; /* no registers: nothing is known of the kernel */
  uint64_t seed = mix(seed_now(), ++launches);
  return submit(stream, "kernel", detail, {}, [=](std::vector<char> &) {
    check_loaded(f);
    run_kernel({f->twin, f->text.c_str(), grid, block, shared, uses_shared, copied->pointers.data(), ++runs, seed});
    return FAKE_DONE;
  });
}

/* a registered variable's place: that of the twin's variable of the same name */
cudaError_t find_variable(const void *symbol, void **address, size_t *bytes) {
  auto found = registry<variable>().find(symbol);
  if (found == registry<variable>().end()) return cudaErrorInvalidSymbol;
  for (const twin_library &library : libraries())
    if (void *place = dlsym(library.handle, found->second.name.c_str())) {
      if (address) *address = place;
      if (bytes) *bytes = found->second.bytes;
      return cudaSuccess;
    }
  fake_fault("twin", "variable %s has no twin in PD_FAKE_KERNELS=%s", found->second.name.c_str(),
             config().kernels.c_str());
}

cudaError_t copy_symbol(const char *call, const void *symbol, void *host, size_t bytes, size_t offset, bool to_symbol,
                        cudaStream_t stream, bool wait) {
  void *place;
  size_t size;
  cudaError_t error = find_variable(symbol, &place, &size);
  if (error != cudaSuccess) return error;
  if (offset > size || bytes > size - offset) return cudaErrorInvalidValue;
  char *at = static_cast<char *>(place) + offset;
  auto staged = std::make_shared<std::vector<char>>(static_cast<char *>(host),
                                                    static_cast<char *>(host) + (to_symbol ? bytes : 0));
  error = submit(
      stream, call, std::to_string(bytes), {},
      [=](std::vector<char> &) {
        if (to_symbol)
          memcpy(at, staged->data(), bytes);
        else
          memcpy(host, at, bytes);
        return FAKE_DONE;
      },
      stream_use::foreign);
  return error == cudaSuccess && (wait || !to_symbol) ? synchronize_stream(stream, call) : error;
}

} // namespace

function *add_function(const void *key, const char *name, const std::vector<device_image> *images) {
  std::string text = demangled(name);
  if (text.compare(0, 5, "void ") == 0) text = text.substr(5); /* templates have their result in their name */
  text = text.substr(0, text.find('(', text.find("(anonymous namespace)") == 0 ? 1 : 0));
  function &f = registry<function>()[key];
  f = {name, text, nullptr, images, SHARED, false};
  return &f;
}

} // namespace fake

using namespace fake;

void fake_kernel_register(fake_kernel *kernel) {
  twins().push_back(kernel);
}

/* ---- what the code that nvcc adds to a host object calls ---- */

extern "C" {

void **__cudaRegisterFatBinary(void *image) {
  auto handle = new void *(image);
  binaries()[handle] = read_images(image);
  return handle;
}

void __cudaRegisterFatBinaryEnd(void **) {
}

void __cudaUnregisterFatBinary(void **) {
}

void __cudaRegisterFunction(void **handle, const char *host, char *, const char *name, int, uint3 *, uint3 *, dim3 *,
                            dim3 *, int *) {
  add_function(host, name, &binaries()[handle]);
}

void __cudaRegisterVar(void **, char *host, char *, const char *name, int, size_t bytes, int, int) {
  registry<variable>()[host] = {name, bytes};
}

char __cudaInitModule(void **) {
  return 1;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st *stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  if (configurations.empty()) return cudaErrorMissingConfiguration;
  configuration &c = configurations.back();
  *grid = c.grid;
  *block = c.block;
  *shared = c.shared;
  *static_cast<cudaStream_t *>(stream) = c.stream;
  configurations.pop_back();
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host) {
  std::lock_guard<std::recursive_mutex> hold(lock);
  *kernel = reinterpret_cast<cudaKernel_t>(find_function(host));
  return *kernel ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                               cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}
}

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                             cudaStream_t stream) {
  return api("cudaLaunchKernel", capture_use::allowed,
             [&] { return launch_kernel(find_function(kernel), grid, block, arguments, shared, stream); });
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *kernel, void **arguments) {
  return api("cudaLaunchKernelExC", capture_use::allowed, [&]() -> cudaError_t {
    if (!c) return cudaErrorInvalidValue;
    for (unsigned i = 0; i < c->numAttrs; i++) {
      cudaLaunchAttributeID id = c->attrs[i].id;
      /* hints that change no result; everything else would */
      if (id != cudaLaunchAttributePriority && id != cudaLaunchAttributeAccessPolicyWindow &&
          id != cudaLaunchAttributeIgnore) {
        fake_explain("cudaLaunchKernelExC", "launch attribute %d is not supported by the fake GPU",
                     static_cast<int>(id));
        return cudaErrorNotSupported;
      }
    }
    return launch_kernel(find_function(kernel), c->gridDim, c->blockDim, arguments, c->dynamicSmemBytes, c->stream);
  });
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value) {
  return api("cudaFuncSetAttribute", capture_use::allowed, [&]() -> cudaError_t {
    function *f = find_function(kernel);
    kernel_needs needs;
    if (!f) return cudaErrorInvalidDeviceFunction;
    switch (attribute) {
    case cudaFuncAttributeMaxDynamicSharedMemorySize:
      if (!find_needs(*f, needs)) return cudaErrorNoKernelImageForDevice;
      if (value < 0 || static_cast<size_t>(value) + needs.shared > static_cast<size_t>(limits().shared_optin)) {
        fake_explain("cudaFuncSetAttribute",
                     "kernel %s: %d bytes of dynamic and %zu of static shared memory; the device has %d",
                     f->text.c_str(), value, needs.shared, limits().shared_optin);
        return cudaErrorInvalidValue;
      }
      f->dynamic_limit = value;
      return cudaSuccess;
    case cudaFuncAttributePreferredSharedMemoryCarveout:
      return cudaSuccess; /* a hint */
    default:
      return cudaErrorNotSupported;
    }
  });
}

cudaError_t cudaFuncSetCacheConfig(const void *kernel, cudaFuncCache) {
  return api("cudaFuncSetCacheConfig", capture_use::allowed,
             [&] { return find_function(kernel) ? cudaSuccess : cudaErrorInvalidDeviceFunction; });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *kernel) {
  return api("cudaFuncGetAttributes", capture_use::allowed, [&]() -> cudaError_t {
    function *f = find_function(kernel);
    if (!attributes) return cudaErrorInvalidValue;
    if (!f) return cudaErrorInvalidDeviceFunction;
    kernel_needs needs;
    if (!find_needs(*f, needs)) return cudaErrorNoKernelImageForDevice;
    *attributes = {};
    attributes->maxThreadsPerBlock = needs.max_threads;
    attributes->numRegs = needs.registers;
    attributes->sharedSizeBytes = needs.shared;
    attributes->maxDynamicSharedSizeBytes = f->dynamic_limit;
    attributes->ptxVersion = attributes->binaryVersion = device_arch();
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *kernel, int threads,
                                                                   size_t shared, unsigned int) {
  return api("cudaOccupancyMaxActiveBlocksPerMultiprocessor", capture_use::allowed, [&]() -> cudaError_t {
    function *f = find_function(kernel);
    if (!blocks || threads <= 0) return cudaErrorInvalidValue;
    if (!f) return cudaErrorInvalidDeviceFunction;
    kernel_needs needs;
    if (!find_needs(*f, needs)) return cudaErrorNoKernelImageForDevice;
    size_t by_shared = static_cast<size_t>(limits().shared_sm) / (shared + needs.shared + 1024);
    int whole = (threads + 31) / 32 * 32, by_threads = limits().threads_sm / whole;
    int by_registers = needs.registers ? REGISTERS / (needs.registers * whole) : by_threads;
    *blocks = threads > needs.max_threads || shared > static_cast<size_t>(f->dynamic_limit)
                  ? 0
                  : std::min({32, by_threads, by_registers, static_cast<int>(by_shared)});
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel, int threads, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, threads, shared, 0);
}

cudaError_t cudaGetSymbolAddress(void **address, const void *symbol) {
  return api("cudaGetSymbolAddress", capture_use::allowed, [&]() -> cudaError_t {
    return address ? find_variable(symbol, address, nullptr) : cudaErrorInvalidValue;
  });
}

cudaError_t cudaGetSymbolSize(size_t *bytes, const void *symbol) {
  return api("cudaGetSymbolSize", capture_use::allowed,
             [&]() -> cudaError_t { return bytes ? find_variable(symbol, nullptr, bytes) : cudaErrorInvalidValue; });
}

cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset, cudaMemcpyKind) {
  return api("cudaMemcpyToSymbol", capture_use::forbidden, [&] {
    return copy_symbol("cudaMemcpyToSymbol", symbol, const_cast<void *>(from), bytes, offset, true, cudaStreamLegacy,
                       true);
  });
}

cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset, cudaMemcpyKind) {
  return api("cudaMemcpyFromSymbol", capture_use::forbidden, [&] {
    return copy_symbol("cudaMemcpyFromSymbol", symbol, to, bytes, offset, false, cudaStreamLegacy, true);
  });
}
