/* The race detector. Each four bytes of memory remember who wrote them last and who has read them since: a lane and a
 * number in it. An operation knows of every lane how far it had come before the operation may begin, so whether it
 * comes after another one is one comparison. Memory of a device that nobody has written may not be read. */
#include "races.h"

#include "report.h"

#include <algorithm>
#include <map>
#include <sys/mman.h>

namespace fake {
namespace {

enum { GRAIN = 4, READERS = 3, TICK_BITS = 24 };

/* a lane and a tick, 0: nobody */
using stamp = uint32_t;
uint32_t lane_of(stamp s) {
  return s >> TICK_BITS;
}
uint32_t tick_of(stamp s) {
  return s & ((1u << TICK_BITS) - 1);
}

struct cell {
  stamp writer, readers[READERS];
};

/* what an operation was, for reports */
struct past {
  work_ref what;
  std::string stream;
};
auto &pasts = *new std::map<stamp, past>;

const operation *current;
stamp own_stamp;

stamp stamp_of(const operation &o) {
  if (o.on->number >= 256 || o.tick >> TICK_BITS) fake_fault("setup", "the race detector has run out of numbers");
  return o.on->number << TICK_BITS | o.tick;
}

/* whether the current operation comes after another one, by more than luck */
bool follows(stamp other) {
  uint32_t lane_number = lane_of(other);
  return lane_number < current->seen.size() && current->seen[lane_number] >= tick_of(other);
}

std::string name_of(stamp s) {
  const past &p = pasts[s];
  return std::string(p.what->call) + " " + p.what->detail + " on " + p.stream;
}

[[noreturn]] void report(const char *address, bool writes, stamp other, bool other_writes) {
  /* the current operation is named by the fault itself */
  fake_fault("race", "%s %s, which %s %s: nothing orders them", writes ? "writes" : "reads", symbolic(address).c_str(),
             name_of(other).c_str(), other_writes ? "writes" : "reads");
}

void touch_cell(cell &c, const char *address, bool write, bool device) {
  if (device && !write && !c.writer)
    fake_fault("uninitialised", "reads %s, which nothing has written", symbolic(address).c_str());
  if (c.writer && c.writer != own_stamp && !follows(c.writer)) report(address, write, c.writer, true);
  if (!write) {
    stamp *place = nullptr;
    for (stamp &r : c.readers) {
      if (r == own_stamp) return;
      if (!place && (!r || follows(r))) place = &r;
    }
    *(place ? place : &c.readers[own_stamp % READERS]) = own_stamp; /* more than three at once: one is forgotten */
    return;
  }
  for (stamp &r : c.readers) {
    if (r && r != own_stamp && !follows(r)) report(address, true, r, false);
    r = 0;
  }
  c.writer = own_stamp;
}

cell *cells_of(allocation &a) {
  if (!a.shadow) {
    size_t bytes = (a.bytes / GRAIN + 2) * sizeof(cell);
    void *map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) fake_fault("setup", "no memory for the race detector");
    a.shadow = map;
  }
  return static_cast<cell *>(a.shadow);
}

/* the allocation of the last access: kernels stay in one for long */
allocation *near;

void touch(const void *start, size_t bytes, bool write) {
  const char *from = static_cast<const char *>(start);
  if (!near || from < near->start || from >= near->start + near->bytes) {
    allocation *a = find_memory(start);
    if (!a || a->state != memory_state::live || a->kind == memory_kind::registered || from < a->start) return;
    near = a;
  }
  cell *cells = cells_of(*near);
  size_t first = static_cast<size_t>(from - near->start), last = std::min(first + bytes, near->bytes);
  bool device = near->kind == memory_kind::device; /* pinned memory is also written by the program's own code */
  for (size_t i = first / GRAIN; i * GRAIN < last; i++) touch_cell(cells[i], near->start + i * GRAIN, write, device);
}

/* ---- pinned memory ---- */

/* what an operation that the program has not waited for does with pinned memory */
struct pending {
  allocation *where;
  const char *start;
  size_t bytes;
  uint32_t lane_number, tick;
  bool write;
};
auto &pendings = *new std::vector<pending>;

} // namespace

int pinned_protection(const allocation &a) {
  int protection = PROT_READ | PROT_WRITE;
  for (const pending &p : pendings)
    if (p.where == &a) protection &= p.write ? PROT_NONE : PROT_READ;
  return protection;
}

bool in_use(const void *address, bool write) {
  const char *at = static_cast<const char *>(address);
  for (const pending &p : pendings)
    if (at >= p.start && at < p.start + p.bytes && (p.write || write)) return true;
  return false;
}

void race_queued(const operation &o) {
  if (config().races) pasts[stamp_of(o)] = {o.what, o.stream};
  if (!closes_pinned()) return;
  for (const fake_range &r : o.what->ranges) {
    allocation *a = find_memory(r.start);
    if (!a || a->kind != memory_kind::pinned || a->state != memory_state::live) continue;
    pendings.push_back({a, static_cast<const char *>(r.start), r.bytes, o.on->number, o.tick, r.write != 0});
    apply_protection(*a);
  }
}

void race_observed() {
  std::vector<allocation *> changed;
  auto over = [&](const pending &p) {
    if (!observed(p.lane_number, p.tick)) return false;
    changed.push_back(p.where);
    return true;
  };
  pendings.erase(std::remove_if(pendings.begin(), pendings.end(), over), pendings.end());
  for (allocation *a : changed) apply_protection(*a);
}

void race_begin(const operation &o) {
  if (!config().races) return;
  current = &o;
  own_stamp = stamp_of(o);
}

void race_end() {
  current = nullptr;
}

void race_ran(const operation &o) {
  if (!config().races) return;
  race_begin(o);
  for (const fake_range &r : o.what->ranges) touch(r.start, r.bytes, r.write != 0);
  race_end();
}

void race_forget(allocation &a) {
  if (a.shadow) munmap(a.shadow, (a.bytes / GRAIN + 2) * sizeof(cell));
  a.shadow = nullptr;
  near = nullptr;
  pendings.erase(std::remove_if(pendings.begin(), pendings.end(), [&](const pending &p) { return p.where == &a; }),
                 pendings.end());
}

} // namespace fake

/* ---- what code compiled with -fsanitize=thread calls ---- */

using fake::current;
using fake::touch;

extern "C" {

#define FAKE_ACCESSES(bytes)                                                                                           \
  void __tsan_read##bytes(void *address) {                                                                             \
    if (current) touch(address, bytes, false);                                                                         \
  }                                                                                                                    \
  void __tsan_write##bytes(void *address) {                                                                            \
    if (current) touch(address, bytes, true);                                                                          \
  }                                                                                                                    \
  void __tsan_unaligned_read##bytes(void *address) {                                                                   \
    if (current) touch(address, bytes, false);                                                                         \
  }                                                                                                                    \
  void __tsan_unaligned_write##bytes(void *address) {                                                                  \
    if (current) touch(address, bytes, true);                                                                          \
  }                                                                                                                    \
  void __tsan_volatile_read##bytes(void *address) {                                                                    \
    if (current) touch(address, bytes, false);                                                                         \
  }                                                                                                                    \
  void __tsan_volatile_write##bytes(void *address) {                                                                   \
    if (current) touch(address, bytes, true);                                                                          \
  }
FAKE_ACCESSES(1)
FAKE_ACCESSES(2)
FAKE_ACCESSES(4)
FAKE_ACCESSES(8)
FAKE_ACCESSES(16)

void __tsan_read_range(void *start, unsigned long bytes) {
  if (current) touch(start, bytes, false);
}
void __tsan_write_range(void *start, unsigned long bytes) {
  if (current) touch(start, bytes, true);
}

/* atomics of device_math.h; every one of them counts as a write */
#define FAKE_ATOMICS(bits, type)                                                                                       \
  type __tsan_atomic##bits##_load(const volatile type *address, int) {                                                 \
    if (current) touch(const_cast<type *>(address), sizeof(type), false);                                              \
    return __atomic_load_n(address, __ATOMIC_SEQ_CST);                                                                 \
  }                                                                                                                    \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile type *address, type *wanted, type value, int, int) {      \
    if (current) touch(const_cast<type *>(address), sizeof(type), true);                                               \
    return __atomic_compare_exchange_n(address, wanted, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);             \
  }
FAKE_ATOMICS(32, unsigned)
FAKE_ATOMICS(64, unsigned long)

void __tsan_init(void) {
}
void __tsan_func_entry(void *) {
}
void __tsan_func_exit(void) {
}
}
