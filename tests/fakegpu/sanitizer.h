/* Functions of ThreadSanitizer and AddressSanitizer, weak: present only in a process that runs under one of them. The
 * fake's own libraries are built once, without instrumentation; memory that it moves on behalf of a program is
 * announced here. */
#ifndef PD_FAKE_SANITIZER_H
#define PD_FAKE_SANITIZER_H

#include <cstddef>

extern "C" {
#define FAKE_WEAK __attribute__((weak))
FAKE_WEAK void *__tsan_get_current_fiber(void);
FAKE_WEAK void *__tsan_create_fiber(unsigned flags);
FAKE_WEAK void __tsan_switch_to_fiber(void *fiber, unsigned flags);
FAKE_WEAK void __tsan_set_fiber_name(void *fiber, const char *name);
FAKE_WEAK void __tsan_acquire(void *address);
FAKE_WEAK void __tsan_release(void *address);
FAKE_WEAK void __tsan_read_range(void *start, unsigned long bytes);
FAKE_WEAK void __tsan_write_range(void *start, unsigned long bytes);
FAKE_WEAK void __asan_poison_memory_region(void const volatile *start, size_t bytes);
FAKE_WEAK void __asan_unpoison_memory_region(void const volatile *start, size_t bytes);
#undef FAKE_WEAK
}

namespace fake {

inline bool under_tsan() {
  return __tsan_create_fiber != nullptr;
}
inline bool under_asan() {
  return __asan_poison_memory_region != nullptr;
}

/* what happened before a release of `address` happened before what follows an acquire of it */
inline void tsan_release(void *address) {
  if (under_tsan()) __tsan_release(address);
}
inline void tsan_acquire(void *address) {
  if (under_tsan()) __tsan_acquire(address);
}
/* goes on as another fiber without ordering the two */
inline void tsan_switch(void *fiber) {
  enum { NO_SYNC = 1 };
  if (under_tsan()) __tsan_switch_to_fiber(fiber, NO_SYNC);
}
inline void asan_poison(const void *start, size_t bytes) {
  if (under_asan()) __asan_poison_memory_region(start, bytes);
}
inline void asan_unpoison(const void *start, size_t bytes) {
  if (under_asan()) __asan_unpoison_memory_region(start, bytes);
}

} // namespace fake
#endif
