/* The race detector: two operations that touch the same memory, one of which writes, must have an order that streams,
 * events and graphs give them, whatever order they happened to run in. It knows what copies, fills and library calls
 * touch from their ranges, and what kernels touch from twins compiled with -fsanitize=thread, whose calls of
 * __tsan_read4 and its kind it takes (without ThreadSanitizer's library in the process). By the same marks it finds
 * device memory that is read before anything has written it. On with PD_FAKE_RACES=1.
 *
 * Beside that, at seed 0, pinned memory is closed to the program's own code while an operation that the program has not
 * waited for writes it (and closed to writes while one reads it). */
#ifndef PD_FAKE_RACES_H
#define PD_FAKE_RACES_H

#include "memory.h"
#include "schedule.h"

namespace fake {

/* an operation was queued; the program has waited for something */
void race_queued(const operation &o);
void race_observed();

/* What kernels touch until race_end is of this operation. */
void race_begin(const operation &o);
void race_end();
/* An operation has run: its ranges are touched. */
void race_ran(const operation &o);

/* nothing is known of an allocation's memory from now on */
void race_forget(allocation &a);

/* what the program's own code may do with pinned memory now: PROT_ bits */
int pinned_protection(const allocation &a);
/* whether an operation that the program has not waited for uses this byte, so that it may not be written (read) */
bool in_use(const void *address, bool write);

} // namespace fake
#endif
