/* Allocations of the fake devices, and the CUDA calls that make and free them. */
#include "memory.h"

#include "api.h"
#include "races.h"
#include "report.h"
#include "sanitizer.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

namespace fake {
namespace {

enum { PAGE = 4096, ALIGNMENT = 256 };

/* by first address of the mapping; freed ones stay */
std::map<uintptr_t, allocation> &table() {
  static auto *all = new std::map<uintptr_t, allocation>;
  return *all;
}
auto &used = *new std::map<int, size_t>;
auto &peers = *new std::set<std::pair<int, int>>;
int open_count;
uint64_t made;

/* Opening and closing costs a system call and page faults; the program's own accesses do not depend on the seed. */
bool gated(const allocation &a) {
  return (a.kind == memory_kind::device || a.kind == memory_kind::pinned) && a.state == memory_state::live &&
         config().seed == 0;
}

char *inside(const allocation &a) {
  return a.map + PAGE;
}
size_t inside_bytes(const allocation &a) {
  return a.map_bytes - 2 * PAGE;
}

void protect(const allocation &a, int protection) {
  if (mprotect(inside(a), inside_bytes(a), protection)) fake_fault("setup", "mprotect: %s", strerror(errno));
}

/* what the program's own code may do with memory that is gated */
int closed(const allocation &a) {
  return a.kind == memory_kind::device ? PROT_NONE : pinned_protection(a);
}

const char *kind_name(memory_kind kind) {
  switch (kind) {
  case memory_kind::device:
    return "device memory";
  case memory_kind::pinned:
    return "pinned host memory";
  case memory_kind::managed:
    return "managed memory";
  case memory_kind::registered:
    return "registered host memory";
  }
  return "";
}

std::string name_of(const allocation &a) {
  return "a" + std::to_string(a.number) + " (" + a.made_by + ", " + std::to_string(a.bytes) + " bytes)";
}

/* the first allocation of this kind of misuse: what the address touched, for the fault of a stray access */
[[noreturn]] void report_access(void *address) {
  const allocation *a = find_memory(address);
  std::string text = describe_address(address);
  if (a->state == memory_state::freed) fake_fault("use-after-free", "access to %p: %s", address, text.c_str());
  if (a->state == memory_state::reserved)
    fake_fault("use-before-malloc", "access to %p, whose stream-ordered allocation has not run: %s", address,
               text.c_str());
  if (a->kind == memory_kind::device && open_count == 0 && static_cast<char *>(address) < a->start + a->bytes)
    fake_fault("host-access", "the program's own code touches device memory at %p: %s", address, text.c_str());
  if (a->kind == memory_kind::pinned && open_count == 0 && static_cast<char *>(address) < a->start + a->bytes)
    fake_fault("host-access", "the program has not waited for what uses the memory that it touches at %p: %s", address,
               text.c_str());
  fake_fault("out-of-bounds", "access to %p: %s", address, text.c_str());
}

struct sigaction previous[NSIG];

/* The program's own code touches pinned memory of which only other bytes are in use: it is open until something is
 * queued that uses it. */
bool open_pinned(const void *address, bool write) {
  const allocation *a = find_memory(address);
  if (a->kind != memory_kind::pinned || !gated(*a) || open_count || in_use(address, write) ||
      static_cast<const char *>(address) >= a->start + a->bytes)
    return false;
  protect(*a, PROT_READ | PROT_WRITE);
  return true;
}

/* a stray access to the fake's memory becomes a fault; every other goes the usual way */
void on_stray(int number, siginfo_t *info, void *context) {
  if (find_memory(info->si_addr)) {
#if defined(__x86_64__)
    bool write = static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_ERR] & 2;
#else
    bool write = true;
#endif
    if (open_pinned(info->si_addr, write)) return;
    report_access(info->si_addr);
  }
  struct sigaction &old = previous[number];
  if (old.sa_flags & SA_SIGINFO && old.sa_sigaction)
    old.sa_sigaction(number, info, context);
  else
    sigaction(number, &old, nullptr); /* the access is repeated and ends the process */
}

__attribute__((constructor)) void watch_strays() {
  if (under_asan() || under_tsan()) return; /* they report better, with the line of the access */
  struct sigaction action = {};
  action.sa_sigaction = on_stray;
  action.sa_flags = SA_SIGINFO;
  for (int number : {SIGSEGV, SIGBUS}) sigaction(number, &action, &previous[number]);
}

} // namespace

open_memory::open_memory() {
  if (open_count++) return;
  for (auto &entry : table())
    if (gated(entry.second)) protect(entry.second, PROT_READ | PROT_WRITE);
}

open_memory::~open_memory() {
  if (--open_count) return;
  for (auto &entry : table())
    if (gated(entry.second)) protect(entry.second, closed(entry.second));
}

allocation *find_memory(const void *address) {
  auto next = table().upper_bound(reinterpret_cast<uintptr_t>(address));
  if (next == table().begin()) return nullptr;
  allocation &a = (--next)->second;
  return static_cast<const char *>(address) < a.map + a.map_bytes ? &a : nullptr;
}

allocation *make_memory(size_t bytes, int device, memory_kind kind, memory_state state, const char *made_by) {
  bool host = kind == memory_kind::pinned;
  if (!host && (bytes > config().memory || used[device] > config().memory - bytes)) return nullptr;
  size_t room = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, pages = (room + PAGE - 1) / PAGE * PAGE;
  void *map = mmap(nullptr, pages + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return nullptr;
  madvise(map, pages + 2 * PAGE, MADV_HUGEPAGE); /* opening and closing takes time by the page */
  allocation a = {};
  a.map = static_cast<char *>(map);
  a.map_bytes = pages + 2 * PAGE;
  a.start = a.map + PAGE + pages - room; /* its end is as near to the forbidden page as alignment allows */
  a.bytes = bytes;
  a.device = host ? -1 : device;
  a.kind = kind;
  a.state = state;
  a.number = ++made;
  a.made_by = made_by;
  if (!host) used[device] += bytes;
  auto &entry = table()[reinterpret_cast<uintptr_t>(map)] = a;
  if (state == memory_state::live) make_live(entry);
  return &entry;
}

void make_live(allocation &a) {
  a.state = memory_state::live;
  protect(a, PROT_READ | PROT_WRITE);
  memset(inside(a), 0xff, inside_bytes(a)); /* NaN in every floating-point format */
  asan_poison(inside(a), static_cast<size_t>(a.start - inside(a)));
  asan_poison(a.start + a.bytes, inside_bytes(a) - static_cast<size_t>(a.start - inside(a)) - a.bytes);
  if (gated(a) && !open_count) protect(a, closed(a));
}

bool closes_pinned() { /* and opens it again when it is touched, which sanitizers leave no way to see */
  return config().seed == 0 && !under_asan() && !under_tsan();
}

void apply_protection(const allocation &a) {
  if (gated(a) && !open_count) protect(a, closed(a));
}

/* the bytes between the end of an allocation and its forbidden page must be as they were */
static void check_slack(const allocation &a) {
  if (a.kind == memory_kind::registered || under_asan()) return;
  open_memory open;
  auto look = [&](const char *from, const char *to, const char *side) {
    for (const char *p = from; p < to; p++)
      if (*p != static_cast<char>(0xff))
        fake_fault("out-of-bounds", "something was written %td bytes %s %s",
                   p < a.start ? a.start - p : p - a.start - static_cast<ptrdiff_t>(a.bytes), side, name_of(a).c_str());
  };
  look(inside(a), a.start, "before the start of");
  look(a.start + a.bytes, inside(a) + inside_bytes(a), "after the end of");
}

void free_memory(allocation &a) {
  if (a.kind == memory_kind::registered) {
    table().erase(reinterpret_cast<uintptr_t>(a.map));
    return;
  }
  check_slack(a);
  asan_unpoison(inside(a), inside_bytes(a));
  race_forget(a);
  protect(a, PROT_NONE);
  madvise(inside(a), inside_bytes(a), MADV_DONTNEED);
  a.state = memory_state::freed;
  if (a.device >= 0) used[a.device] -= a.bytes;
}

allocation *register_memory(void *start, size_t bytes) {
  allocation a = {};
  a.start = a.map = static_cast<char *>(start);
  a.bytes = a.map_bytes = bytes;
  a.device = -1;
  a.kind = memory_kind::registered;
  a.state = memory_state::live;
  a.number = ++made;
  a.made_by = "cudaHostRegister";
  return &(table()[reinterpret_cast<uintptr_t>(start)] = a);
}

void check_range(const void *start, size_t bytes, int device, const char *fault, const char *what) {
  const allocation *a = find_memory(start);
  const char *from = static_cast<const char *>(start);
  if (!a) fake_fault(fault, "%s: %p is not memory of a device", what, start);
  if (a->state == memory_state::freed) fake_fault("use-after-free", "%s: %s", what, describe_address(start).c_str());
  if (a->state == memory_state::reserved && running)
    fake_fault("use-before-malloc", "%s: the stream-ordered allocation has not run: %s", what,
               describe_address(start).c_str());
  if (from < a->start || from > a->start + a->bytes || bytes > static_cast<size_t>(a->start + a->bytes - from))
    fake_fault("out-of-bounds", "%s: %zu bytes from %p: %s", what, bytes, start,
               describe_address(from < a->start ? from : from + bytes - (bytes > 0)).c_str());
  if (a->kind == memory_kind::device && device >= 0 && a->device != device && !peer_allowed(device, a->device))
    fake_fault("wrong-device", "%s: device %d uses memory of device %d without peer access: %s", what, device,
               a->device, describe_address(start).c_str());
}

void allow_peer(int device, int peer, bool allowed) {
  if (allowed)
    peers.insert({device, peer});
  else
    peers.erase({device, peer});
}

bool peer_allowed(int device, int peer) {
  return peers.count({device, peer}) != 0;
}

size_t memory_used(int device) {
  return used[device];
}

std::string symbolic(const void *address) {
  if (!address) return "null";
  const allocation *a = find_memory(address);
  if (!a || static_cast<const char *>(address) < a->start) return "host";
  return "a" + std::to_string(a->number) + "+" + std::to_string(static_cast<const char *>(address) - a->start);
}

std::string describe_address(const void *address) {
  const allocation *a = find_memory(address);
  if (!a) return "";
  const char *p = static_cast<const char *>(address);
  std::string text;
  if (p < a->start)
    text = std::to_string(a->start - p) + " bytes before the start of ";
  else if (p >= a->start + a->bytes)
    text = std::to_string(p - a->start - static_cast<ptrdiff_t>(a->bytes)) + " bytes after the end of ";
  else
    text = std::to_string(p - a->start) + " bytes into ";
  text += name_of(*a) + ", " + kind_name(a->kind);
  if (a->state == memory_state::freed) text += ", freed before";
  return text;
}

void check_memory_leaks() {
  for (auto &entry : table()) {
    const allocation &a = entry.second;
    if (a.state == memory_state::live && a.kind != memory_kind::registered) check_slack(a);
  }
  size_t count = 0, bytes = 0;
  const allocation *first = nullptr;
  for (auto &entry : table()) {
    const allocation &a = entry.second;
    if (a.state != memory_state::live) continue;
    count++;
    bytes += a.bytes;
    if (!first || a.number < first->number) first = &a;
  }
  if (count)
    fake_fault("leak", "%zu allocations, %zu bytes, not freed at exit; the first is %s", count, bytes,
               name_of(*first).c_str());
}

} // namespace fake

using namespace fake;

/* ---- CUDA ---- */

cudaError_t cudaMalloc(void **pointer, size_t bytes) {
  return api("cudaMalloc", capture_use::forbidden, [&]() -> cudaError_t {
    if (!pointer) return cudaErrorInvalidValue;
    *pointer = nullptr;
    if (planted("half")) bytes /= 2;
    if (!bytes) return cudaSuccess;
    allocation *a = make_memory(bytes, current_device(), memory_kind::device, memory_state::live, "cudaMalloc");
    if (!a) {
      fake_explain("cudaMalloc", "device %d has %zu of %zu bytes in use, no room for %zu", current_device(),
                   memory_used(current_device()), config().memory, bytes);
      return cudaErrorMemoryAllocation;
    }
    *pointer = a->start;
    fake_record("host: cudaMalloc %zu = %s", bytes, symbolic(a->start).c_str());
    return cudaSuccess;
  });
}

/* the start of a live allocation of one of the kinds, or a fault */
static allocation &freeable(void *pointer, const char *call, bool device) {
  allocation *a = find_memory(pointer);
  if (!a) fake_fault("bad-free", "%s: %p is no allocation", call, pointer);
  if (a->state == memory_state::freed || a->freeing)
    fake_fault("double-free", "%s: %s", call, describe_address(pointer).c_str());
  if (a->start != pointer) fake_fault("bad-free", "%s: %s", call, describe_address(pointer).c_str());
  if ((a->kind == memory_kind::device || a->kind == memory_kind::managed) != device ||
      a->kind == memory_kind::registered)
    fake_fault("bad-free", "%s: %s", call, describe_address(pointer).c_str());
  return *a;
}

cudaError_t cudaFree(void *pointer) {
  return api("cudaFree", capture_use::forbidden, [&]() -> cudaError_t {
    if (!pointer) return cudaSuccess;
    allocation &a = freeable(pointer, "cudaFree", true);
    fake_record("host: cudaFree %s", symbolic(pointer).c_str());
    wait_for_all(); /* as a real device does */
    free_memory(a);
    return cudaSuccess;
  });
}

static cudaError_t allocate_host(const char *call, void **pointer, size_t bytes) {
  return api(call, capture_use::forbidden, [&]() -> cudaError_t {
    if (!pointer) return cudaErrorInvalidValue;
    *pointer = nullptr;
    if (planted("half")) bytes /= 2;
    if (!bytes) return cudaSuccess;
    allocation *a = make_memory(bytes, -1, memory_kind::pinned, memory_state::live, call);
    if (!a) return cudaErrorMemoryAllocation;
    *pointer = a->start;
    fake_record("host: %s %zu = %s", call, bytes, symbolic(a->start).c_str());
    return cudaSuccess;
  });
}

cudaError_t cudaMallocHost(void **pointer, size_t bytes) {
  return allocate_host("cudaMallocHost", pointer, bytes);
}

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned int flags) {
  if (flags & ~(cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined))
    return api("cudaHostAlloc", capture_use::allowed, [] { return cudaErrorInvalidValue; });
  return allocate_host("cudaHostAlloc", pointer, bytes);
}

cudaError_t cudaFreeHost(void *pointer) {
  return api("cudaFreeHost", capture_use::forbidden, [&]() -> cudaError_t {
    if (!pointer) return cudaSuccess;
    allocation &a = freeable(pointer, "cudaFreeHost", false);
    fake_record("host: cudaFreeHost %s", symbolic(pointer).c_str());
    wait_for_all();
    free_memory(a);
    return cudaSuccess;
  });
}

cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned int) {
  return api("cudaHostRegister", capture_use::forbidden, [&]() -> cudaError_t {
    if (!pointer || !bytes) return cudaErrorInvalidValue;
    if (find_memory(pointer)) return cudaErrorHostMemoryAlreadyRegistered;
    register_memory(pointer, bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaHostUnregister(void *pointer) {
  return api("cudaHostUnregister", capture_use::forbidden, [&]() -> cudaError_t {
    allocation *a = find_memory(pointer);
    if (!a || a->kind != memory_kind::registered || a->start != pointer) return cudaErrorHostMemoryNotRegistered;
    wait_for_all();
    free_memory(*a);
    return cudaSuccess;
  });
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned int) {
  return api("cudaHostGetDevicePointer", capture_use::allowed, [&]() -> cudaError_t {
    if (!device || !find_memory(host)) return cudaErrorInvalidValue;
    *device = host;
    return cudaSuccess;
  });
}

cudaError_t cudaMallocManaged(void **pointer, size_t bytes, unsigned int flags) {
  return api("cudaMallocManaged", capture_use::forbidden, [&]() -> cudaError_t {
    if (!pointer || !bytes || flags != cudaMemAttachGlobal) return cudaErrorInvalidValue;
    allocation *a = make_memory(bytes, current_device(), memory_kind::managed, memory_state::live, "cudaMallocManaged");
    if (!a) return cudaErrorMemoryAllocation;
    *pointer = a->start;
    fake_record("host: cudaMallocManaged %zu = %s", bytes, symbolic(a->start).c_str());
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  return api("cudaMemGetInfo", capture_use::allowed, [&]() -> cudaError_t {
    if (total) *total = config().memory;
    if (free) *free = config().memory - memory_used(current_device());
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *pointer) {
  return api("cudaPointerGetAttributes", capture_use::allowed, [&]() -> cudaError_t {
    if (!attributes) return cudaErrorInvalidValue;
    *attributes = {};
    attributes->device = -2;
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->hostPointer = const_cast<void *>(pointer);
    const allocation *a = find_memory(pointer);
    if (!a || a->state == memory_state::freed) return cudaSuccess;
    bool device = a->kind == memory_kind::device;
    attributes->type = device                            ? cudaMemoryTypeDevice
                       : a->kind == memory_kind::managed ? cudaMemoryTypeManaged
                                                         : cudaMemoryTypeHost;
    attributes->device = a->device < 0 ? current_device() : a->device;
    attributes->devicePointer = const_cast<void *>(pointer);
    if (device) attributes->hostPointer = nullptr;
    return cudaSuccess;
  });
}

/* ---- stream-ordered allocation; one pool per device, whose attributes are kept ---- */

struct CUmemPoolHandle_st {
  int device;
  uint64_t threshold;
};

static cudaMemPool_t default_pool(int device) {
  static auto &pools = *new std::map<int, CUmemPoolHandle_st>;
  auto &pool = pools[device];
  pool.device = device;
  return &pool;
}

cudaError_t cudaMallocFromPoolAsync(void **pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  return api("cudaMallocAsync", capture_use::allowed, [&]() -> cudaError_t {
    if (!pointer || !pool) return cudaErrorInvalidValue;
    if (is_capturing(stream)) {
      fake_explain("cudaMallocAsync", "allocation nodes in graphs are not supported by the fake GPU");
      return cudaErrorNotSupported;
    }
    *pointer = nullptr;
    if (!bytes) return cudaSuccess;
    allocation *a = make_memory(bytes, pool->device, memory_kind::device, memory_state::reserved, "cudaMallocAsync");
    if (!a) return cudaErrorMemoryAllocation;
    *pointer = a->start;
    return submit(stream, "cudaMallocAsync", std::to_string(bytes) + " = " + symbolic(a->start), {},
                  [a](std::vector<char> &) {
                    make_live(*a);
                    return FAKE_DONE;
                  });
  });
}

cudaError_t cudaMallocAsync(void **pointer, size_t bytes, cudaStream_t stream) {
  return cudaMallocFromPoolAsync(pointer, bytes, default_pool(current_device()), stream);
}

cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream) {
  return api("cudaFreeAsync", capture_use::allowed, [&]() -> cudaError_t {
    if (!pointer) return cudaSuccess;
    allocation *a = &freeable(pointer, "cudaFreeAsync", true);
    a->freeing = true;
    return submit(stream, "cudaFreeAsync", symbolic(pointer), {}, [a](std::vector<char> &) {
      if (a->state == memory_state::reserved)
        fake_fault("use-before-malloc", "cudaFreeAsync: %s", describe_address(a->start).c_str());
      free_memory(*a);
      return FAKE_DONE;
    });
  });
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
  return api("cudaDeviceGetDefaultMemPool", capture_use::allowed, [&]() -> cudaError_t {
    if (!pool) return cudaErrorInvalidValue;
    if (device < 0 || device >= config().devices) return cudaErrorInvalidDevice;
    *pool = default_pool(device);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device) {
  return cudaDeviceGetDefaultMemPool(pool, device);
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void *value) {
  return api("cudaMemPoolSetAttribute", capture_use::allowed, [&]() -> cudaError_t {
    if (!pool || !value) return cudaErrorInvalidValue;
    if (attribute != cudaMemPoolAttrReleaseThreshold) return cudaErrorNotSupported;
    pool->threshold = *static_cast<uint64_t *>(value);
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void *value) {
  return api("cudaMemPoolGetAttribute", capture_use::allowed, [&]() -> cudaError_t {
    if (!pool || !value) return cudaErrorInvalidValue;
    switch (attribute) {
    case cudaMemPoolAttrReleaseThreshold:
      *static_cast<uint64_t *>(value) = pool->threshold;
      return cudaSuccess;
    case cudaMemPoolAttrUsedMemCurrent:
      *static_cast<uint64_t *>(value) = memory_used(pool->device);
      return cudaSuccess;
    default:
      return cudaErrorNotSupported;
    }
  });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t) {
  return api("cudaMemPoolTrimTo", capture_use::allowed, [&] { return pool ? cudaSuccess : cudaErrorInvalidValue; });
}

/* ---- for the other fake libraries ---- */

void fake_check_device(const void *start, size_t bytes, const char *name, const char *what) {
  std::lock_guard<std::recursive_mutex> hold(lock);
  const allocation *a = find_memory(start);
  if (a && a->kind == memory_kind::pinned) fake_fault(name, "%s: %s", what, describe_address(start).c_str());
  check_range(start, bytes, current_device(), name, what);
}

int fake_is_device(const void *address) {
  std::lock_guard<std::recursive_mutex> hold(lock);
  const allocation *a = find_memory(address);
  return a && a->state != memory_state::freed && (a->kind == memory_kind::device || a->kind == memory_kind::managed);
}
