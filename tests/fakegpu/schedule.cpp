/* The scheduler: which operation runs next. Seed 0 runs only what a wait demands, the latest first; other seeds draw
 * one of several habits for each wait, and now and then let operations run early, as soon as they are queued. */
#include "schedule.h"

#include "memory.h"
#include "races.h"
#include "report.h"
#include "sanitizer.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <unistd.h>

namespace fake {

std::recursive_mutex lock;

/* unmet == 0, not done; like all tables of the fake never destroyed, for it is looked at when the process ends */
static auto &ready = *new std::vector<operation_ref>;
static size_t waiting; /* queued and not ready */
static uint64_t waits_made, choices_made, habits_made;
static bool device_broken;

uint64_t seed_now() {
  return config().seed + waits_made % config().seeds;
}

double now() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool broken() {
  return device_broken;
}

static std::string name_of(const operation &o) {
  return std::string(o.what->call) + (o.what->detail.empty() ? "" : " ") + o.what->detail + " on " + o.stream;
}

std::string unfinished() {
  std::vector<operation_ref> open = ready;
  std::set<operation *> seen;
  std::string text;
  while (!open.empty()) {
    operation_ref o = open.back();
    open.pop_back();
    if (!seen.insert(o.get()).second) continue;
    if (!o->what->marker) text += "\n  " + name_of(*o);
    open.insert(open.end(), o->followers.begin(), o->followers.end());
  }
  return text;
}

static auto &lanes = *new std::vector<lane *>;

lane *new_lane(const std::string &name) {
  auto made = new lane{static_cast<uint32_t>(lanes.size()), nullptr};
  lanes.push_back(made);
  if (under_tsan()) {
    made->fiber = __tsan_create_fiber(0);
    __tsan_set_fiber_name(made->fiber, name.c_str());
  }
  return made;
}

/* by lane: the last operation that the program has waited for, directly or not */
static auto &host_seen = *new std::vector<uint32_t>;

static void join(std::vector<uint32_t> &seen, const std::vector<uint32_t> &more) {
  if (seen.size() < more.size()) seen.resize(more.size());
  for (size_t i = 0; i < more.size(); i++) seen[i] = std::max(seen[i], more[i]);
}

bool observed(uint32_t lane_number, uint32_t tick) {
  return lane_number < host_seen.size() && host_seen[lane_number] >= tick;
}

static uint64_t choose(uint64_t below) {
  return mix(seed_now(), ++choices_made) % below;
}

/* One call of an operation's action, as its stream. Between the two switches nothing may be allocated or freed that the
 * other side frees or allocates: ThreadSanitizer would take that for a race of the program. */
static fake_state run(operation &o) {
  std::string name = name_of(o);
  const char *outer = running;
  running = name.c_str();
  void *host = under_tsan() ? __tsan_get_current_fiber() : nullptr;
  if (under_tsan()) {
    tsan_switch(o.on->fiber);
    tsan_acquire(&o.issued_order);
    for (const operation_ref &before : o.waits)
      if (before) tsan_acquire(&before->finished_order);
    for (const fake_range &r : o.what->ranges) {
      void *start = const_cast<void *>(r.start);
      r.write ? __tsan_write_range(start, r.bytes) : __tsan_read_range(start, r.bytes);
    }
  }
  for (const fake_range &r : o.what->ranges)
    if (find_memory(r.start)) check_range(r.start, r.bytes, o.what->device, "memory", o.what->call);
  race_begin(o);
  fake_state state = o.what->run(o.own);
  race_end();
  if (state != FAKE_AGAIN) race_ran(o);
  if (state != FAKE_AGAIN) std::vector<char>().swap(o.own);
  if (under_tsan()) {
    tsan_release(&o.finished_order);
    tsan_switch(host);
  }
  running = outer;
  return state;
}

/* tries one ready operation; true when it is done */
static bool attempt(size_t index) {
  operation_ref o = ready[index];
  switch (run(*o)) {
  case FAKE_AGAIN:
    return false;
  case FAKE_FAILED:
    device_broken = true;
    break;
  case FAKE_DONE:
    break;
  }
  /* what its stream read may not be freed by the program's thread, which need not have waited for it */
  static auto *kept = new std::vector<work_ref>;
  if (under_tsan()) kept->push_back(o->what);
  o->done = true;
  o->finished = now();
  o->waits.clear();
  ready.erase(std::find(ready.begin(), ready.end(), o));
  for (operation_ref &f : o->followers)
    if (--f->unmet == 0) {
      waiting--;
      ready.push_back(f);
    }
  o->followers.clear();
  return true;
}

enum habit { LATEST, ANY_NEEDED, ANY, OTHERS_FIRST, OLDEST, HABITS };

/* The habit of this wait. Of HABITS seeds in a row, each has another one at every wait, so that a few seeds try all. */
static habit choose_habit() {
  if (!seed_now()) return LATEST;
  return static_cast<habit>((seed_now() + mix(seed_now() / HABITS, ++habits_made)) % HABITS);
}

/* indices of ready operations in the order in which a habit tries them; `needed` 0: all are wanted */
static std::vector<size_t> candidates(habit how, uint64_t needed) {
  std::vector<size_t> order(ready.size());
  for (size_t i = 0; i < order.size(); i++) order[i] = i;
  auto number = [](size_t i) { return ready[i]->number; };
  if (how == LATEST)
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return number(a) > number(b); });
  else if (how == OLDEST)
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return number(a) < number(b); });
  else
    for (size_t i = order.size(); i > 1; i--) std::swap(order[i - 1], order[choose(i)]);
  auto wanted = [&](size_t i) { return !needed || ready[i]->needed == needed; };
  /* what is not wanted comes last: it runs only when what is wanted waits for another process */
  if (how == OTHERS_FIRST)
    std::stable_partition(order.begin(), order.end(), [&](size_t i) { return !wanted(i); });
  else if (how != ANY)
    std::stable_partition(order.begin(), order.end(), wanted);
  return order;
}

static bool progress_as(habit how, uint64_t needed) {
  open_memory open;
  for (size_t index : candidates(how, needed))
    if (attempt(index)) return true;
  return false;
}

bool progress() {
  return progress_as(choose_habit(), 0);
}

static void mark(operation &target, uint64_t number) {
  std::vector<operation *> open = {&target};
  target.needed = number;
  while (!open.empty()) {
    operation *o = open.back();
    open.pop_back();
    for (const operation_ref &before : o->waits)
      if (before && !before->done && before->needed != number) {
        before->needed = number;
        open.push_back(before.get());
      }
  }
}

/* Nothing moves: other processes have not done their part. They may need this one's processor, so it sleeps the longer,
 * the longer it has waited. */
static void idle(double since, const char *target) {
  if (now() - since > config().timeout * 1000) {
    std::string list;
    for (const operation_ref &o : ready) list += "\n  " + name_of(*o);
    fake_fault("no-progress",
               "nothing has moved for %.0f s while the program waits for %s; ready and waiting for other "
               "processes:%s",
               config().timeout, target, list.c_str());
  }
  usleep(static_cast<useconds_t>(std::clamp((now() - since) * 250, 50.0, 1000.0)));
}

void wait_for(const operation_ref &target) {
  if (!target) return;
  uint64_t number = ++waits_made; /* also where nothing is left to do: the next seed has its turn */
  if (!target->done) {
    habit how = choose_habit();
    mark(*target, number);
    std::string name = std::string(target->what->call) + " on " + target->stream;
    open_memory open;
    for (double since = now(); !target->done;)
      if (progress_as(how, number))
        since = now();
      else
        idle(since, name.c_str());
  }
  observe(target);
}

void wait_for_all() {
  habit how = choose_habit();
  open_memory open;
  for (double since = now(); !ready.empty() || waiting;)
    if (progress_as(how, 0))
      since = now();
    else
      idle(since, "all streams");
  for (uint32_t i = 0; i < lanes.size(); i++) {
    if (host_seen.size() <= i) host_seen.push_back(0);
    host_seen[i] = lanes[i]->ticks;
  }
  race_observed();
}

void observe(const operation_ref &seen) {
  if (!seen) return;
  tsan_acquire(&seen->finished_order);
  join(host_seen, seen->seen);
  race_observed();
}

operation_ref enqueue(work_ref what, std::vector<operation_ref> waits, const std::string &stream, lane *own) {
  static uint64_t count;
  auto o = std::make_shared<operation>();
  o->what = std::move(what);
  o->stream = stream;
  o->on = own;
  o->tick = ++own->ticks;
  o->seen = host_seen;
  o->number = ++count;
  o->waits = std::move(waits);
  for (const operation_ref &before : o->waits) {
    if (before) join(o->seen, before->seen);
    if (before && !before->done) {
      before->followers.push_back(o);
      o->unmet++;
    }
  }
  if (o->seen.size() <= own->number) o->seen.resize(own->number + 1);
  o->seen[own->number] = o->tick;
  race_queued(*o);
  tsan_release(&o->issued_order);
  if (o->unmet)
    waiting++;
  else
    ready.push_back(o);
  /* a real device does not wait until it is asked: some seeds run everything at once, others a little now and then */
  if (seed_now() % 8 == 1) {
    while (progress_as(OLDEST, 0)) {
    }
  } else if (seed_now() && choose(8) == 0) {
    for (uint64_t n = choose(4) + 1; n && progress(); n--) {
    }
  }
  return o;
}

} // namespace fake

int fake_progress(void) {
  std::lock_guard<std::recursive_mutex> hold(fake::lock);
  return fake::progress();
}
