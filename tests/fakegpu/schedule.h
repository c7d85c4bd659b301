/* Operations, what they wait for, and the order they run in. An operation is put on a stream (stream.cpp decides what
 * it waits for) and stays queued until something forces it: a wait of the program. Then the scheduler picks among what
 * may run, by seed; it never runs an operation before those it waits for, and keeps no other order. */
#ifndef PD_FAKE_SCHEDULE_H
#define PD_FAKE_SCHEDULE_H

#include "fake.h"

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fake {

/* What an operation does; `own` is memory of this run, empty at its first call. */
using action = std::function<fake_state(std::vector<char> &own)>;

/* shared by all runs of a captured operation */
struct work {
  const char *call;   /* the API function */
  std::string detail; /* its arguments, for the recording */
  int device;
  action run;
  std::vector<fake_range> ranges;
  bool marker = false; /* of an event: orders operations, does nothing */
};
using work_ref = std::shared_ptr<const work>;

/* operations that run one after another: those of a stream, or of a branch of an executable graph */
struct lane {
  uint32_t number; /* from 0 */
  void *fiber;     /* for ThreadSanitizer, null outside of it */
  uint32_t ticks = 0;
};

struct operation;
using operation_ref = std::shared_ptr<operation>;

struct operation {
  uint64_t number = 0; /* in the order of issue */
  work_ref what;
  std::string stream;                   /* its name, for reports */
  lane *on;                             /* of its stream or its branch of a graph */
  uint32_t tick = 0;                    /* its number in the lane, from 1 */
  std::vector<uint32_t> seen;           /* by lane: the last tick that came before this operation */
  std::vector<operation_ref> waits;     /* until it has run */
  std::vector<operation_ref> followers; /* that wait for this one */
  size_t unmet = 0;                     /* of `waits`, not done */
  uint64_t needed = 0;                  /* number of the wait that needs it */
  bool done = false;
  double finished = 0; /* milliseconds */
  std::vector<char> own;
  char issued_order = 0, finished_order = 0; /* addresses that stand for both moments in ThreadSanitizer */
};

/* the lock that every API function holds */
extern std::recursive_mutex lock;

/* queues an operation; entries of `waits` may be null or done */
operation_ref enqueue(work_ref what, std::vector<operation_ref> waits, const std::string &stream, lane *own);

/* runs what it takes until the operation is done (nothing for null) */
void wait_for(const operation_ref &target);

/* runs everything that is queued */
void wait_for_all();

/* tries to get one operation done without waiting; true if one made progress */
bool progress();

/* an operation's result is known to the program from now on (it saw that the operation is done) */
void observe(const operation_ref &seen);

/* operations that have not run, as text; markers of events are not counted */
std::string unfinished();

/* true after an operation failed: the device is unusable */
bool broken();

lane *new_lane(const std::string &name);

/* whether the program knows that the operation is done: it has waited for it, or for one that comes after it */
bool observed(uint32_t lane_number, uint32_t tick);

/* the seed of what is drawn now: of several, the next one after every wait */
uint64_t seed_now();

/* milliseconds of a steady clock */
double now();

} // namespace fake
#endif
