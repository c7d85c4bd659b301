/* Where every rank is, and what happens when one does not come: a board in memory that the ranks of a node share, on
 * which each says what it is doing, and a thread of each rank that reads it. A rank that is lost, or that all others
 * wait for longer than the time-out, ends the run with a report that names it; nothing waits for ever. Signals that ask
 * a run to end arrive here too. */
#ifndef PD_WATCH_H
#define PD_WATCH_H

#include "device.h"

/* Limits how long MPI_Init may take: to be called before it, and with 0 after it. */
void pd_watch_start_up(int64_t seconds);

/* The board of this node and this rank's thread. Collective. Until then, and where one rank has no time-out (0),
 * nothing is watched but the signals that ask for an end. */
void pd_watch_open(const pd_world *world, int64_t timeout);
/* The device that the thread asks whether what is queued can still end; NULL: none any more. */
void pd_watch_device(const pd_device *device);
/* This rank has nothing more to say and may be gone: no fault. Collective. */
void pd_watch_close(void);

/* What this rank does from now on: "step 12, 3F7". Shows that it moves. */
void pd_watch_show(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* True for the first rank of the node to ask: the one that may speak. */
bool pd_watch_speaks_first(void);

/* The ranks of this node end with this status, unless they already do with another. */
void pd_watch_all_leave(int code);

/* While taken, SIGTERM, SIGINT and SIGUSR1 ask for an end in order; a second one ends the process at once. */
void pd_watch_requests(bool taken);
/* Whether any rank was asked. Collective, and the same answer for all. */
bool pd_watch_asked_to_end(const pd_world *world);

#endif
