/* The memory of the fake devices and pinned host memory. Every allocation has pages of its own that end at a page
 * nobody may touch, and its addresses are never used again. At seed 0 device memory is closed (no access) while the
 * program's own code runs. */
#ifndef PD_FAKE_MEMORY_H
#define PD_FAKE_MEMORY_H

#include <cstddef>
#include <cstdint>
#include <string>

namespace fake {

enum class memory_kind { device, pinned, managed, registered };
enum class memory_state { reserved, live, freed }; /* reserved: its stream-ordered allocation has not run */

struct allocation {
  char *start;
  size_t bytes;
  char *map;
  size_t map_bytes;
  int device;
  memory_kind kind;
  memory_state state;
  bool freeing; /* a stream-ordered free has been issued */
  uint64_t number;
  const char *made_by;
  void *shadow; /* of the race detector */
};

/* keeps device memory open while it exists */
struct open_memory {
  open_memory();
  ~open_memory();
};

/* the allocation that holds an address or held it, also the byte after its end and its guard page; else null */
allocation *find_memory(const void *address);

/* A new allocation filled with 0xff; null when the device has no room (`limit` true) or the process has none. */
allocation *make_memory(size_t bytes, int device, memory_kind kind, memory_state state, const char *made_by);
void make_live(allocation &a);
void free_memory(allocation &a);
/* host memory of the program's own that is pinned from now on */
allocation *register_memory(void *start, size_t bytes);

/* fault unless the bytes lie in one live allocation that `device` (-1: any) may use; `what` names the call or argument
 */
void check_range(const void *start, size_t bytes, int device, const char *fault, const char *what);

/* whether the program's own code is kept out of pinned memory that is in use, and sets what it may do now */
bool closes_pinned();
void apply_protection(const allocation &a);

/* lets one device use another's memory */
void allow_peer(int device, int peer, bool allowed);
bool peer_allowed(int device, int peer);

size_t memory_used(int device);

/* "a3+256" for an address inside an allocation, "host" or "null" else: the same in every run */
std::string symbolic(const void *address);

/* "address is 8 bytes after the end of a3 (cudaMalloc, 4096 bytes)"; empty when no allocation is near */
std::string describe_address(const void *address);

/* a fault if allocations are left */
void check_memory_leaks();

} // namespace fake
#endif
