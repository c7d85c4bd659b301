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
FAKE_WEAK void __tsan_ignore_thread_begin(void);
FAKE_WEAK void __tsan_ignore_thread_end(void);
FAKE_WEAK void AnnotateIgnoreSyncBegin(const char *file, int line);
FAKE_WEAK void AnnotateIgnoreSyncEnd(const char *file, int line);
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
/* ThreadSanitizer looks away while this exists: code that runs for a stream on the program's own stack, with memory of
 * its own (MPI's, say), would look like a race with the program. What it does to the program's memory is announced as
 * ranges. */
struct tsan_blind {
  tsan_blind() {
    if (!under_tsan()) return;
    __tsan_ignore_thread_begin();
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
  }
  ~tsan_blind() {
    if (!under_tsan()) return;
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
    __tsan_ignore_thread_end();
  }
};
inline void asan_poison(const void *start, size_t bytes) {
  if (under_asan()) __asan_poison_memory_region(start, bytes);
}
inline void asan_unpoison(const void *start, size_t bytes) {
  if (under_asan()) __asan_unpoison_memory_region(start, bytes);
}

} // namespace fake
#endif
