/* Devices: how many, what they can do, which is current; versions; error codes and their texts; the checks that every
 * API function begins with, and what is checked at exit. */
#include "api.h"
#include "device_limits.h"
#include "memory.h"
#include "report.h"
#include "stream.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace fake {
namespace {

thread_local int device_now;
thread_local cudaError_t last_error;

const device_limits table[] = {
    {50, 20, 2048, 64 << 10, 48 << 10, 2 << 20},     {75, 40, 1024, 64 << 10, 64 << 10, 4 << 20},
    {80, 108, 2048, 164 << 10, 163 << 10, 40 << 20}, {86, 84, 1536, 100 << 10, 99 << 10, 6 << 20},
    {87, 16, 1536, 164 << 10, 163 << 10, 4 << 20},   {89, 128, 1536, 100 << 10, 99 << 10, 72 << 20},
    {90, 132, 2048, 228 << 10, 227 << 10, 50 << 20}, {100, 148, 2048, 228 << 10, 227 << 10, 126 << 20},
    {120, 170, 1536, 100 << 10, 99 << 10, 96 << 20},
};

/* what a program leaves behind is a fault, but not after an error of its own */
void at_exit(int status, void *) {
  if (status != 0 || broken() || !config().leaks) return;
  std::lock_guard<std::recursive_mutex> hold(lock);
  std::string open = unfinished();
  if (!open.empty()) fake_fault("unfinished", "never waited for:%s", open.c_str());
  check_memory_leaks();
  check_objects();
}

__attribute__((constructor)) void watch_exit() {
  on_exit(at_exit, nullptr);
}

} // namespace

int device_arch() {
  if (config().arch) return config().arch;
  int newest = newest_code();
  return newest ? newest : 90;
}

const device_limits &limits() {
  const device_limits *found = table;
  for (const device_limits &l : table)
    if (l.arch <= device_arch()) found = &l;
  return *found;
}

int current_device() {
  return device_now;
}

cudaError_t enter_api(const char *call, capture_use use) {
  if (running) {
    fake_explain(call, "called by a host function on a stream (%s)", running);
    return cudaErrorNotPermitted;
  }
  if (config().driver < CUDART_VERSION / 1000 * 1000) return cudaErrorInsufficientDriver;
  if (config().devices == 0) return cudaErrorNoDevice;
  if (broken()) return cudaErrorLaunchFailure;
  if (use == capture_use::forbidden && break_captures(call)) return cudaErrorStreamCaptureUnsupported;
  return cudaSuccess;
}

cudaError_t leave_api(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

static bool exists(int device) {
  return device >= 0 && device < config().devices;
}

/* the value of an attribute; -1 if the fake knows none */
static int attribute(cudaDeviceAttr which) {
  const device_limits &l = limits();
  switch (which) {
  case cudaDevAttrMaxThreadsPerBlock:
    return 1024;
  case cudaDevAttrMaxBlockDimX:
    return 1024;
  case cudaDevAttrMaxBlockDimY:
    return 1024;
  case cudaDevAttrMaxBlockDimZ:
    return 64;
  case cudaDevAttrMaxGridDimX:
    return 0x7fffffff;
  case cudaDevAttrMaxGridDimY:
    return 65535;
  case cudaDevAttrMaxGridDimZ:
    return 65535;
  case cudaDevAttrMaxSharedMemoryPerBlock:
    return 48 << 10;
  case cudaDevAttrMaxSharedMemoryPerBlockOptin:
    return l.shared_optin;
  case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
    return l.shared_sm;
  case cudaDevAttrReservedSharedMemoryPerBlock:
    return 1024;
  case cudaDevAttrTotalConstantMemory:
    return 64 << 10;
  case cudaDevAttrWarpSize:
    return 32;
  case cudaDevAttrMaxRegistersPerBlock:
    return 64 << 10;
  case cudaDevAttrMaxRegistersPerMultiprocessor:
    return 64 << 10;
  case cudaDevAttrMultiProcessorCount:
    return l.multiprocessors;
  case cudaDevAttrMaxThreadsPerMultiProcessor:
    return l.threads_sm;
  case cudaDevAttrMaxBlocksPerMultiprocessor:
    return 32;
  case cudaDevAttrL2CacheSize:
    return l.l2;
  case cudaDevAttrComputeCapabilityMajor:
    return device_arch() / 10;
  case cudaDevAttrComputeCapabilityMinor:
    return device_arch() % 10;
  case cudaDevAttrStreamPrioritiesSupported:
    return 1;
  case cudaDevAttrUnifiedAddressing:
    return 1;
  case cudaDevAttrCanMapHostMemory:
    return 1;
  case cudaDevAttrConcurrentKernels:
    return 1;
  case cudaDevAttrAsyncEngineCount:
    return 3;
  case cudaDevAttrMemoryPoolsSupported:
    return 1;
  case cudaDevAttrManagedMemory:
    return 1;
  case cudaDevAttrConcurrentManagedAccess:
    return 0;
  case cudaDevAttrPageableMemoryAccess:
    return 0;
  case cudaDevAttrCooperativeLaunch:
    return 0;
  case cudaDevAttrIntegrated:
    return 0;
  case cudaDevAttrComputeMode:
    return cudaComputeModeDefault;
  case cudaDevAttrEccEnabled:
    return 1;
  case cudaDevAttrGlobalMemoryBusWidth:
    return 5120;
  case cudaDevAttrPciBusId:
    return 1;
  case cudaDevAttrPciDeviceId:
    return 0;
  case cudaDevAttrPciDomainId:
    return 0;
  default:
    return -1;
  }
}

} // namespace fake

using namespace fake;

cudaError_t cudaGetDeviceCount(int *count) {
  std::lock_guard<std::recursive_mutex> hold(lock);
  if (!count) return leave_api(cudaErrorInvalidValue);
  *count = 0;
  cudaError_t error = enter_api("cudaGetDeviceCount", capture_use::allowed);
  if (error == cudaSuccess) *count = config().devices;
  return leave_api(error);
}

cudaError_t cudaSetDevice(int device) {
  return api("cudaSetDevice", capture_use::allowed, [&]() -> cudaError_t {
    if (!exists(device)) return cudaErrorInvalidDevice;
    device_now = device;
    return cudaSuccess;
  });
}

cudaError_t cudaInitDevice(int device, unsigned int, unsigned int) {
  return api("cudaInitDevice", capture_use::allowed,
             [&] { return exists(device) ? cudaSuccess : cudaErrorInvalidDevice; });
}

cudaError_t cudaGetDevice(int *device) {
  return api("cudaGetDevice", capture_use::allowed, [&]() -> cudaError_t {
    if (!device) return cudaErrorInvalidValue;
    *device = device_now;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr which, int device) {
  return api("cudaDeviceGetAttribute", capture_use::allowed, [&]() -> cudaError_t {
    if (!value) return cudaErrorInvalidValue;
    if (!exists(device)) return cudaErrorInvalidDevice;
    int known = attribute(which);
    if (known < 0) {
      fake_explain("cudaDeviceGetAttribute", "attribute %d is not known to the fake GPU", static_cast<int>(which));
      return cudaErrorInvalidValue;
    }
    *value = known;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
  return api("cudaGetDeviceProperties", capture_use::allowed, [&]() -> cudaError_t {
    if (!p) return cudaErrorInvalidValue;
    if (!exists(device)) return cudaErrorInvalidDevice;
    *p = {};
    snprintf(p->name, sizeof p->name, "Fake GPU %d.%d", device_arch() / 10, device_arch() % 10);
    memset(p->uuid.bytes, device + 1, sizeof p->uuid.bytes);
    p->totalGlobalMem = config().memory;
    p->sharedMemPerBlock = static_cast<size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlock));
    p->sharedMemPerBlockOptin = static_cast<size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
    p->sharedMemPerMultiprocessor = static_cast<size_t>(attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor));
    p->reservedSharedMemPerBlock = static_cast<size_t>(attribute(cudaDevAttrReservedSharedMemoryPerBlock));
    p->totalConstMem = static_cast<size_t>(attribute(cudaDevAttrTotalConstantMemory));
    p->regsPerBlock = attribute(cudaDevAttrMaxRegistersPerBlock);
    p->regsPerMultiprocessor = attribute(cudaDevAttrMaxRegistersPerMultiprocessor);
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 0x7fffffff;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->maxThreadsPerMultiProcessor = attribute(cudaDevAttrMaxThreadsPerMultiProcessor);
    p->maxBlocksPerMultiProcessor = attribute(cudaDevAttrMaxBlocksPerMultiprocessor);
    p->multiProcessorCount = attribute(cudaDevAttrMultiProcessorCount);
    p->l2CacheSize = attribute(cudaDevAttrL2CacheSize);
    p->major = device_arch() / 10;
    p->minor = device_arch() % 10;
    p->streamPrioritiesSupported = p->unifiedAddressing = p->canMapHostMemory = p->concurrentKernels = 1;
    p->memoryPoolsSupported = p->managedMemory = p->ECCEnabled = 1;
    p->asyncEngineCount = attribute(cudaDevAttrAsyncEngineCount);
    p->memoryBusWidth = attribute(cudaDevAttrGlobalMemoryBusWidth);
    p->pciBusID = device + 1;
    p->textureAlignment = 512;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int device) {
  return api("cudaDeviceGetPCIBusId", capture_use::allowed, [&]() -> cudaError_t {
    if (!text || bytes < 13) return cudaErrorInvalidValue;
    if (!exists(device)) return cudaErrorInvalidDevice;
    snprintf(text, static_cast<size_t>(bytes), "0000:%02x:00.0", device + 1);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  return api("cudaDeviceGetStreamPriorityRange", capture_use::allowed, [&]() -> cudaError_t {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  return api("cudaDeviceCanAccessPeer", capture_use::allowed, [&]() -> cudaError_t {
    if (!can) return cudaErrorInvalidValue;
    if (!exists(device) || !exists(peer)) return cudaErrorInvalidDevice;
    *can = device != peer;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
  return api("cudaDeviceEnablePeerAccess", capture_use::allowed, [&]() -> cudaError_t {
    if (flags) return cudaErrorInvalidValue;
    if (!exists(peer) || peer == device_now) return cudaErrorInvalidDevice;
    if (peer_allowed(device_now, peer)) return cudaErrorPeerAccessAlreadyEnabled;
    allow_peer(device_now, peer, true);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return api("cudaDeviceDisablePeerAccess", capture_use::allowed, [&]() -> cudaError_t {
    if (!peer_allowed(device_now, peer)) return cudaErrorPeerAccessNotEnabled;
    allow_peer(device_now, peer, false);
    return cudaSuccess;
  });
}

cudaError_t cudaSetDeviceFlags(unsigned int) {
  return api("cudaSetDeviceFlags", capture_use::allowed, [] { return cudaSuccess; });
}

cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) {
  return api("cudaDeviceSetLimit", capture_use::allowed, [] { return cudaSuccess; });
}

cudaError_t cudaDeviceReset(void) {
  return api("cudaDeviceReset", capture_use::forbidden, [] {
    wait_for_all();
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int *version) {
  if (!version) return leave_api(cudaErrorInvalidValue);
  *version = config().driver;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
  if (!version) return leave_api(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}

/* ---- errors ---- */

cudaError_t cudaGetLastError(void) {
  cudaError_t error = last_error;
  last_error = cudaSuccess;
  return broken() ? cudaErrorLaunchFailure : error;
}

cudaError_t cudaPeekAtLastError(void) {
  return broken() ? cudaErrorLaunchFailure : last_error;
}

static const struct {
  cudaError_t code;
  const char *name, *text;
} error_texts[] = {
#define ERROR(code, text)                                                                                              \
  { code, #code, text }
    ERROR(cudaSuccess, "no error"),
    ERROR(cudaErrorInvalidValue, "invalid argument"),
    ERROR(cudaErrorMemoryAllocation, "out of memory"),
    ERROR(cudaErrorInitializationError, "initialization error"),
    ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ERROR(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    ERROR(cudaErrorInvalidSymbol, "invalid device symbol"),
    ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    ERROR(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    ERROR(cudaErrorMissingConfiguration, "__global__ function call is not configured"),
    ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"),
    ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    ERROR(cudaErrorNotReady, "device not ready"),
    ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    ERROR(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    ERROR(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped"),
    ERROR(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"),
    ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    ERROR(cudaErrorNotPermitted, "operation not permitted"),
    ERROR(cudaErrorNotSupported, "operation not supported"),
    ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    ERROR(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    ERROR(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences"),
    ERROR(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    ERROR(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    ERROR(cudaErrorStreamCaptureImplicit,
          "operation would make the legacy stream depend on a capturing blocking stream"),
    ERROR(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
    ERROR(cudaErrorStreamCaptureWrongThread,
          "attempt to terminate a thread-local capture sequence from another thread"),
    ERROR(cudaErrorUnknown, "unknown error"),
#undef ERROR
};

const char *cudaGetErrorName(cudaError_t error) {
  for (const auto &e : error_texts)
    if (e.code == error) return e.name;
  return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error) {
  for (const auto &e : error_texts)
    if (e.code == error) return e.text;
  return "unrecognized error code";
}
