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

struct operation;
using operation_ref = std::shared_ptr<operation>;

struct operation {
  uint64_t number = 0; /* in the order of issue */
  work_ref what;
  std::string stream;                   /* its name, for reports */
  void *fiber;                          /* of its stream, for ThreadSanitizer */
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
operation_ref enqueue(work_ref what, std::vector<operation_ref> waits, const std::string &stream, void *fiber);

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

/* a fiber for a stream, null outside ThreadSanitizer */
void *new_fiber(const std::string &name);

/* the seed of what is drawn now: of several, the next one after every wait */
uint64_t seed_now();

/* milliseconds of a steady clock */
double now();

} // namespace fake
#endif
