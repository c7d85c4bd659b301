/* Threads of a block as fibers: the stack switch, block barriers, warp exchanges, and the check that both are reached
 * by everyone they wait for. A fiber runs until it waits; then the next ready lane of its warp runs, then the next
 * warp. */
#include "block.h"

#include "report.h"
#include "sanitizer.h"

#include <atomic>
#include <chrono>
#include <link.h>
#include <linux/futex.h>
#include <map>
#include <memory>
#include <numeric>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

__thread fake_thread *fake_here;
/* the built-in variables, constant for kernels; thread_index changes with the fiber */
__thread uint3 thread_index __asm__("fake_threadIdx"), block_index __asm__("fake_blockIdx");
__thread dim3 block_size __asm__("fake_blockDim"), grid_size __asm__("fake_gridDim");
extern const int warpSize = 32;                             /* declared by cuda_runtime.h */
extern "C" void *__tls_get_addr(size_t *module_and_offset); /* the dynamic loader's */

/* fake_switch(save, to): pushes what a function must keep, stores the stack pointer in *save, continues where `to` left
 * off */
extern "C" void fake_switch(void **save, void *to);
#if defined(__x86_64__)
asm(R"(
  .text
  .globl fake_switch
  .hidden fake_switch
  .type fake_switch, @function
fake_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size fake_switch, . - fake_switch
)");
enum { SAVED_WORDS = 8, RETURN_WORD = 6 }; /* six registers, the place to continue, a return address for it (0) */
#elif defined(__aarch64__)
asm(R"(
  .text
  .globl fake_switch
  .hidden fake_switch
  .type fake_switch, %function
fake_switch:
  stp x29, x30, [sp, #-160]!
  stp x19, x20, [sp, #16]
  stp x21, x22, [sp, #32]
  stp x23, x24, [sp, #48]
  stp x25, x26, [sp, #64]
  stp x27, x28, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #16]
  ldp x21, x22, [sp, #32]
  ldp x23, x24, [sp, #48]
  ldp x25, x26, [sp, #64]
  ldp x27, x28, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  ldp x29, x30, [sp], #160
  ret
  .size fake_switch, . - fake_switch
)");
enum { SAVED_WORDS = 20, RETURN_WORD = 1 };
#else
#error "the fake GPU's stack switch is written for x86-64 and aarch64"
#endif

namespace fake {
namespace {

enum { WARP = 32, MAX_THREADS = 1024 };

/* lanes of one mask that meet at a warp operation */
struct exchange {
  unsigned mask, arrived, unread; /* free when both arrived and unread are 0; closed when arrived == mask */
  const char *name;
  fake_place place;
  void *order;
  uint64_t slots[WARP];
};

struct fiber;

struct warp {
  unsigned exists, ready, live;
  fiber *lanes;
  int meeting; /* exchanges in use */
  exchange meetings[WARP + 1];
};

enum class wait { none, barrier, meeting, exited };

struct fiber : fake_thread {
  uint3 index;
  void *stack_pointer, *stack_top, *tsan;
  struct warp *own;
  wait state;
  const exchange *meeting;
  const char *name;
  fake_place place;
};

/* What one CPU thread needs to run blocks; kept from kernel to kernel. */
struct worker {
  std::vector<fiber> fibers = std::vector<fiber>(MAX_THREADS);
  std::vector<warp> warps = std::vector<warp>(MAX_THREADS / WARP);
  void *stack_pointer = nullptr, *tsan = nullptr;
  const struct launch *launch = nullptr;
  bool backwards = false;

  /* the block's barrier; `total` counts exited threads too, so that a barrier after an exit never completes */
  int total = 0, waiting = 0, sum = 0, result = 0;
  const char *barrier_name = nullptr;
  fake_place barrier_place = {};
  void *barrier_order = nullptr, *released_order = nullptr;

  /* addresses that stand for one barrier each in ThreadSanitizer */
  char orders[1 << 14];
  size_t next_order = 0;
  char begun = 0, ended = 0;
  uint64_t filled = 0; /* number of the launch that static shared memory was filled for */

  char *stacks = nullptr, *shared = nullptr;
  size_t shared_bytes = 0;
  int marked = 0; /* stacks that have their mark */

  worker();
  void *order() {
    return &orders[next_order++ % sizeof orders];
  }
};

/* No page between two stacks is forbidden: they lie in huge pages, since a block's fibers touch a stack after the other
 * and would else miss in the TLB at every switch. What a thread writes over the mark above the
 * end of its stack tells that it was not enough. The odd distance spreads equal frames over the sets of the caches. */
enum { BELOW_MARK = 1024, MARK_BYTES = 64, MARK = 0xa5 };
size_t stack_bytes() {
  return (under_asan() || under_tsan() ? 256 << 10 : 32 << 10) + MARK_BYTES + BELOW_MARK;
}

worker::worker() {
  size_t page = 4096, each = stack_bytes(), bytes = each * MAX_THREADS;
  stacks = static_cast<char *>(
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (stacks == MAP_FAILED) fake_fault("setup", "no memory for the stacks of %d threads", MAX_THREADS);
  for (size_t i = 0; i < MAX_THREADS; i++) {
    fibers[i].stack_top = stacks + (i + 1) * each;
    fibers[i].own = &warps[i / WARP];
    fibers[i].tsan = nullptr;
    fibers[i].lane = static_cast<unsigned>(i % WARP);
    fibers[i].warp = static_cast<unsigned>(i / WARP);
  }
  for (size_t i = 0; i < warps.size(); i++) warps[i].lanes = &fibers[i * WARP];
  /* dynamic shared memory ends at a page that may not be touched */
  shared_bytes = 256 << 10;
  shared = static_cast<char *>(mmap(nullptr, shared_bytes + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (shared == MAP_FAILED || mprotect(shared += page, shared_bytes, PROT_READ | PROT_WRITE))
    fake_fault("setup", "no memory for shared memory");
}

thread_local std::unique_ptr<worker> own_worker;
__thread worker *at_work; /* own_worker while it runs a block */

fiber *self() {
  return static_cast<fiber *>(fake_here);
}

int pick(unsigned ready, bool backwards) {
  return backwards ? 31 - __builtin_clz(ready) : __builtin_ctz(ready);
}

void resume(void **save, fiber *next) {
  next->own->ready &= ~(1u << next->lane);
  fake_here = next;
  thread_index = next->index;
  tsan_switch(next->tsan);
  fake_switch(save, next->stack_pointer);
}

/* the calling fiber waits: another one goes on, or the scheduler in run_block */
void leave(fiber *me) {
  worker *w = at_work;
  struct warp *own = me->own;
  if (own->ready) {
    resume(&me->stack_pointer, &own->lanes[pick(own->ready, w->backwards)]);
  } else {
    fake_here = nullptr;
    tsan_switch(w->tsan);
    fake_switch(&me->stack_pointer, w->stack_pointer);
  }
}

/* where a new fiber begins */
void enter() {
  worker *w = at_work;
  w->launch->kernel->run(w->launch->arguments);
  fiber *me = self();
  me->state = wait::exited;
  me->own->live &= ~(1u << me->lane);
  leave(me);
  __builtin_unreachable();
}

bool same(const fake_place &a, const fake_place &b) {
  return a.line == b.line && (a.file == b.file || !strcmp(a.file, b.file));
}

std::string text_of(const fake_place &place) {
  return std::string(place.file) + ":" + std::to_string(place.line);
}

std::string text_of(const uint3 &v) {
  return "(" + std::to_string(v.x) + "," + std::to_string(v.y) + "," + std::to_string(v.z) + ")";
}

std::string state_of(const fiber &f) {
  if (f.state == wait::exited) return "has exited";
  return std::string("waits in ") + f.name + " at " + text_of(f.place);
}

/* nothing can run and threads are left: says which of them waits for what */
[[noreturn]] void report_stall(worker &w) {
  int warps = (w.total + WARP - 1) / WARP, exited = 0;
  fiber *at_barrier = nullptr;
  for (int i = 0; i < w.total; i++) {
    fiber &f = w.fibers[static_cast<size_t>(i)];
    if (f.state == wait::exited) exited++;
    if (f.state == wait::barrier && !at_barrier) at_barrier = &f;
  }
  for (int i = 0; i < warps; i++)
    for (int lane = 0; lane < WARP; lane++) {
      fiber &f = w.warps[static_cast<size_t>(i)].lanes[lane];
      if (!(f.own->exists >> lane & 1) || f.state != wait::meeting) continue;
      unsigned missing = f.meeting->mask & ~f.meeting->arrived;
      fiber &other = f.own->lanes[__builtin_ctz(missing)];
      bool exists = f.own->exists >> other.lane & 1;
      fake_here = &f;
      fake_fault("warp-incomplete", "%s at %s with mask 0x%08x is not reached by lanes 0x%08x: lane %u %s", f.name,
                 text_of(f.place).c_str(), f.meeting->mask, missing, other.lane,
                 exists ? state_of(other).c_str() : "does not exist in this block");
    }
  fake_here = at_barrier;
  fake_fault("barrier-exited", "%s at %s is not reached by %d of %d threads, which have exited", at_barrier->name,
             text_of(at_barrier->place).c_str(), exited, w.total);
}

/* a library's segment that holds some code, and the library's thread-local storage */
struct storage {
  uintptr_t code, start, end;
  size_t module, bytes;
};

storage find_storage(uintptr_t code) {
  storage found = {code, 0, 0, 0, 0};
  dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *data) {
        auto *s = static_cast<storage *>(data);
        size_t bytes = 0;
        for (int i = 0; i < info->dlpi_phnum; i++) {
          const auto &h = info->dlpi_phdr[i];
          uintptr_t start = info->dlpi_addr + h.p_vaddr;
          if (h.p_type == PT_LOAD && s->code >= start && s->code < start + h.p_memsz)
            s->start = start, s->end = start + h.p_memsz;
          if (h.p_type == PT_TLS) bytes = h.p_memsz;
        }
        if (!s->end) return 0;
        s->module = info->dlpi_tls_modid;
        s->bytes = bytes;
        return 1;
      },
      &found);
  return found;
}

/* static shared memory is the twin's thread-local storage: filled, so that what is read before it is written shows */
void fill_static_shared(uintptr_t code) {
  thread_local storage known = {};
  if (code < known.start || code >= known.end) known = find_storage(code);
  size_t index[2] = {known.module, 0};
  if (known.bytes) memset(__tls_get_addr(index), 0xff, known.bytes);
}

/* In ThreadSanitizer, the block's threads come after what the caller has done, and the caller after what they have
 * done. Blocks that use the same shared memory one after another are ordered so; those without any are not, and races
 * between them are found. */
void begin_threads(worker &w, int count) {
  if (!under_tsan()) return;
  void *caller = __tsan_get_current_fiber();
  tsan_release(&w.begun);
  for (int i = 0; i < count; i++) {
    fiber &f = w.fibers[static_cast<size_t>(i)];
    if (!f.tsan) {
      f.tsan = __tsan_create_fiber(0);
      __tsan_set_fiber_name(f.tsan, ("device thread " + std::to_string(i)).c_str());
    }
    tsan_switch(f.tsan);
    tsan_acquire(&w.begun);
    tsan_switch(caller);
  }
}
void end_threads(worker &w, int count) {
  if (!under_tsan()) return;
  void *caller = __tsan_get_current_fiber();
  for (int i = 0; i < count; i++) {
    tsan_switch(w.fibers[static_cast<size_t>(i)].tsan);
    tsan_release(&w.ended);
    tsan_switch(caller);
  }
  tsan_acquire(&w.ended);
}

/* dynamic shared memory of a block: filled, with its end at the forbidden page */
char *prepare_shared(worker &w, const struct launch &launch) {
  if (w.filled != launch.number) { /* once a launch: twins have the shared memory of many kernels */
    fill_static_shared(reinterpret_cast<uintptr_t>(launch.kernel->run));
    w.filled = launch.number;
  }
  char *end = w.shared + w.shared_bytes, *start = end - (launch.dynamic_bytes + 15) / 16 * 16;
  asan_unpoison(w.shared, w.shared_bytes);
  memset(start, 0xff, static_cast<size_t>(end - start));
  asan_poison(w.shared, static_cast<size_t>(start - w.shared));
  asan_poison(start + launch.dynamic_bytes, static_cast<size_t>(end - start) - launch.dynamic_bytes);
  return start;
}

void check_shared(worker &w, const struct launch &launch, const char *start) {
  for (const char *p = start + launch.dynamic_bytes; p < w.shared + w.shared_bytes && !under_asan(); p++)
    if (*p != static_cast<char>(0xff))
      fake_fault("out-of-bounds",
                 "kernel %s, block %s: something was written after the %zu bytes of dynamic shared memory", launch.name,
                 text_of(block_index).c_str(), launch.dynamic_bytes);
}

char *mark_of(const worker &w, int thread) {
  return w.stacks + static_cast<size_t>(thread) * stack_bytes() + BELOW_MARK;
}

void check_stacks(const worker &w, const struct launch &launch) {
  static const std::string mark(MARK_BYTES, static_cast<char>(MARK));
  for (int i = 0; i < w.total; i++)
    if (memcmp(mark_of(w, i), mark.data(), MARK_BYTES))
      fake_fault("stack", "kernel %s, block %s, thread %s: its %zu bytes of stack are not enough", launch.name,
                 text_of(block_index).c_str(), text_of(w.fibers[static_cast<size_t>(i)].index).c_str(), stack_bytes());
}

/* every thread of the block at the start of the kernel */
void prepare_threads(worker &w, const struct launch &launch, char *shared) {
  for (; w.marked < w.total; w.marked++) memset(mark_of(w, w.marked), MARK, MARK_BYTES);
  uint3 thread = {0, 0, 0};
  for (int i = 0; i < w.total; i++) {
    fiber &f = w.fibers[static_cast<size_t>(i)];
    f.index = thread;
    f.dynamic_shared = shared;
    f.dynamic_bytes = launch.dynamic_bytes;
    f.state = wait::none;
    void **stack = static_cast<void **>(f.stack_top) - SAVED_WORDS;
    memset(stack, 0, SAVED_WORDS * sizeof *stack);
    stack[RETURN_WORD] = reinterpret_cast<void *>(enter);
    f.stack_pointer = stack;
    if (++thread.x == launch.block.x) thread.x = 0, ++thread.y == launch.block.y ? thread.y = 0, thread.z++ : 0;
  }
  for (int i = 0; i * WARP < w.total; i++) {
    struct warp &p = w.warps[static_cast<size_t>(i)];
    int lanes = std::min<int>(WARP, w.total - i * WARP);
    p.exists = p.ready = p.live = lanes == WARP ? ~0u : (1u << lanes) - 1;
    p.meeting = 0;
    for (exchange &e : p.meetings) e.arrived = e.unread = 0;
  }
}

void run_block(worker &w, const struct launch &launch, uint64_t index) {
  const dim3 grid = launch.grid;
  bool seeded = config().blocks == block_order::seeded;
  uint64_t choice = seeded ? mix(launch.seed, index) : 0;
  block_index = {static_cast<unsigned>(index % grid.x), static_cast<unsigned>(index / grid.x % grid.y),
                 static_cast<unsigned>(index / grid.x / grid.y)};
  block_size = launch.block;
  grid_size = grid;
  w.backwards = config().blocks == block_order::reverse || choice & 1;
  w.launch = &launch;
  w.total = static_cast<int>(launch.block.x * launch.block.y * launch.block.z);
  w.waiting = w.sum = 0;
  w.barrier_order = w.order();
  char *shared = prepare_shared(w, launch);
  prepare_threads(w, launch, shared);
  if (launch.uses_shared) begin_threads(w, w.total);
  at_work = &w;
  w.tsan = under_tsan() ? __tsan_get_current_fiber() : nullptr;
  int warps = (w.total + WARP - 1) / WARP;
  for (bool left = true; left;) {
    left = false;
    bool ran = false;
    if (seeded) choice = mix(choice, 1);
    int first = seeded ? static_cast<int>(choice % static_cast<unsigned>(warps)) : 0;
    for (int i = 0; i < warps; i++) {
      int at = (first + (w.backwards ? warps - i : i)) % warps;
      struct warp &p = w.warps[static_cast<size_t>(at)];
      if (p.ready) {
        ran = true;
        resume(&w.stack_pointer, &p.lanes[pick(p.ready, w.backwards)]);
      }
      left |= p.live != 0;
    }
    if (left && !ran) report_stall(w);
  }
  at_work = nullptr;
  if (launch.uses_shared) end_threads(w, w.total);
  check_shared(w, launch, shared);
  check_stacks(w, launch);
}

void run_blocks(const struct launch &launch) {
  uint64_t blocks = uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z, step = 1, start = 0;
  switch (config().blocks) {
  case block_order::forward:
    break;
  case block_order::reverse:
    step = start = blocks - 1;
    break;
  case block_order::seeded: /* start + i * step visits every block once when step and blocks have no common divisor */
    start = mix(launch.seed, 1) % blocks;
    for (step = mix(launch.seed, 2) % blocks + 1; std::gcd(step, blocks) != 1;) step++;
    step %= blocks;
    break;
  }
  auto one = [&](uint64_t i) {
    if (!own_worker) own_worker = std::make_unique<worker>();
    run_block(*own_worker, launch, static_cast<uint64_t>((static_cast<fake_uint128>(i) * step + start) % blocks));
  };
  int threads = under_tsan() ? 1 : config().threads; /* its fibers belong to one thread */
  if (threads == 1 || blocks == 1) {
    if (!own_worker) own_worker = std::make_unique<worker>();
    int count = static_cast<int>(launch.block.x * launch.block.y * launch.block.z);
    if (!launch.uses_shared) begin_threads(*own_worker, count);
    for (uint64_t i = 0; i < blocks; i++) one(i);
    if (!launch.uses_shared) end_threads(*own_worker, count);
  } else {
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (uint64_t i = 0; i < blocks; i++) one(i);
  }
}

/* Under ThreadSanitizer every stream has a CPU thread for its kernels, and so shared memory of its own: kernels of two
 * streams must not be ordered by the use of one multiprocessor. The caller sleeps while the thread works; they meet by
 * semaphores that ThreadSanitizer does not see, and are ordered by `given` and `taken` alone. */
struct executor {
  std::atomic<int> turn{0}; /* 0: the caller's, 1: the thread's */
  const struct launch *launch = nullptr;
  const char *running = nullptr;
  char given = 0, taken = 0;

  void wait(int mine) {
    for (int now; (now = turn.load()) != mine;) syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, now, nullptr, nullptr, 0);
  }
  void pass(int next) {
    turn.store(next);
    syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }
  void work() {
    for (;;) {
      wait(1);
      fake::running = running;
      tsan_acquire(&given);
      run_blocks(*launch);
      tsan_release(&taken);
      pass(0);
    }
  }
  void run(const struct launch &l) {
    launch = &l;
    running = fake::running;
    tsan_release(&given);
    pass(1);
    wait(0);
    tsan_acquire(&taken);
  }
};

} // namespace

void run_kernel(const launch &launch) {
  if (!under_tsan()) {
    run_blocks(launch);
    return;
  }
  static auto *executors = new std::map<void *, executor *>; /* by the stream's fiber */
  executor *&own = (*executors)[__tsan_get_current_fiber()];
  if (!own) {
    own = new executor;
    std::thread(&executor::work, own).detach();
  }
  own->run(launch);
}

std::string kernel_position() {
  fiber *me = self();
  if (!me) return "";
  return std::string("kernel ") + at_work->launch->name + ", block " + text_of(block_index) + ", thread " +
         text_of(me->index);
}

} // namespace fake

using namespace fake;

int fake_block_barrier(int predicate, const char *name, fake_place place) {
  worker *w = at_work;
  fiber *me = self();
  if (w->waiting == 0) {
    w->barrier_name = name;
    w->barrier_place = place;
  } else if (!same(place, w->barrier_place)) {
    fake_fault("barrier-divergent", "%s at %s, but %d threads of the block wait in %s at %s", name,
               text_of(place).c_str(), w->waiting, w->barrier_name, text_of(w->barrier_place).c_str());
  }
  w->sum += predicate != 0;
  tsan_release(w->barrier_order);
  if (++w->waiting == w->total) {
    w->result = w->sum;
    w->sum = w->waiting = 0;
    w->released_order = w->barrier_order;
    w->barrier_order = w->order();
    for (int i = 0; i * WARP < w->total; i++) {
      struct warp &p = w->warps[static_cast<size_t>(i)];
      p.ready = p.live;
    }
    me->own->ready &= ~(1u << me->lane);
  } else {
    me->state = wait::barrier;
    me->name = name;
    me->place = place;
    leave(me);
    me->state = wait::none;
  }
  tsan_acquire(w->released_order); /* the next barrier cannot complete before all have been here */
  return w->result;
}

const uint64_t *fake_warp_exchange(unsigned mask, uint64_t value, int orders, const char *name, fake_place place) {
  fiber *me = self();
  struct warp *own = me->own;
  unsigned bit = 1u << me->lane;
  if (!(mask & bit))
    fake_fault("warp-mask", "%s at %s: mask 0x%08x does not contain the calling lane %u", name, text_of(place).c_str(),
               mask, me->lane);
  exchange *e = nullptr, *free = nullptr;
  int seen = 0;
  for (exchange &other : own->meetings) {
    if (!other.arrived && !other.unread) {
      if (!free) free = &other;
    } else if (other.mask == mask && other.arrived != mask) {
      e = &other;
      break;
    } else {
      seen++;
    }
    if (free && seen == own->meeting) break; /* no more in use */
  }
  if (!e) {
    e = free;
    own->meeting++;
    e->mask = mask;
    e->name = name;
    e->place = place;
    if (orders) e->order = at_work->order();
  } else if (e->name != name && strcmp(e->name, name)) {
    fake_fault("warp-mixed", "%s at %s, but other lanes of mask 0x%08x wait in %s at %s", name, text_of(place).c_str(),
               mask, e->name, text_of(e->place).c_str());
  }
  e->slots[me->lane] = value;
  if (orders) tsan_release(e->order);
  if ((e->arrived |= bit) == mask) {
    e->unread = mask;
    own->ready |= mask & ~bit;
  } else {
    me->state = wait::meeting;
    me->meeting = e;
    me->name = name;
    me->place = place;
    leave(me);
    me->state = wait::none;
  }
  if (orders) tsan_acquire(e->order);
  if (!(e->unread &= ~bit)) {
    e->arrived = 0;
    own->meeting--;
  }
  return e->slots; /* valid until this lane waits again */
}

void fake_device_fault(const char *name, const char *what, fake_place place) {
  fake_fault(name, "%s at %s", what, text_of(place).c_str());
}

void fake_fence(void) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

long long fake_clock(void) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
