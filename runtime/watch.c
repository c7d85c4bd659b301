/* The board, the thread that reads it, and signals.
 *
 * A rank's row holds a text, a count of the times that it began or ended to be written, and when that was last. The
 * thread never talks MPI: it reads the board, and ends its process when it must; a launcher then ends what is left. All
 * times are CLOCK_MONOTONIC, which is one for a node.
 */
#include "watch.h"

#include "launch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TEXT 160
#define TICK_MS 100
#define MOST_TOLD 16 /* rows in a report */

enum { WORDS = TEXT / sizeof(uint64_t) };
union text {
  char chars[TEXT];
  uint64_t words[WORDS];
};

typedef struct row {
  _Atomic int pid; /* 0: not there yet, or done */
  _Atomic int rank;
  _Atomic int64_t changed; /* ms */
  atomic_uint writes;      /* of the text; odd while it is written */
  _Atomic uint64_t text[WORDS];
} row;

typedef struct board {
  atomic_int spoken; /* a rank of this node speaks */
  atomic_int failed; /* exit status that all take, 0: none */
  row rows[];
} board;

static struct {
  const pd_world *world;
  MPI_Comm node;
  MPI_Win window;
  board *board;
  row *own;
  int rows;
  int64_t timeout; /* ms */
  pthread_t thread;
  pthread_mutex_t asking; /* the device */
  const pd_device *device;
  atomic_bool stop;
  volatile sig_atomic_t asked;
} watch = {.asking = PTHREAD_MUTEX_INITIALIZER};

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void pause_ms(int64_t ms) {
  nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* ---- what a rank says ---- */

void pd_watch_show(const char *format, ...) {
  row *own = watch.own;
  if (own == NULL) return;
  union text text = {0};
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text.chars, TEXT, format, arguments);
  va_end(arguments);
  atomic_fetch_add(&own->writes, 1); /* what is stored from here on is not seen before it */
  for (size_t i = 0; i < WORDS; i++) atomic_store_explicit(&own->text[i], text.words[i], memory_order_relaxed);
  atomic_fetch_add(&own->writes, 1);
  atomic_store(&own->changed, now_ms());
}

bool pd_watch_speaks_first(void) {
  return watch.board == NULL || atomic_exchange(&watch.board->spoken, 1) == 0;
}

void pd_watch_all_leave(int code) {
  int none = 0;
  if (watch.board != NULL) atomic_compare_exchange_strong(&watch.board->failed, &none, code);
}

/* ---- reports ---- */

/* The state letter of a process as /proc has it ('T': stopped), or 0. */
static char state_of(int pid) {
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE *file = fopen(path, "r");
  if (file == NULL) return 0;
  const size_t length = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[length] = 0;
  const char *end = strrchr(text, ')'); /* after the name, which may hold anything */
  return end != NULL && end[1] == ' ' ? end[2] : 0;
}

static bool is_gone(int pid) {
  return (kill(pid, 0) != 0 && errno == ESRCH) || state_of(pid) == 'Z';
}

static void place_text(const pd_world *world, int rank, char *out, size_t size) {
  snprintf(out, size, "rank %d (pp %d, dp %d, tp %d)", rank, rank / (world->tp * world->dp),
           rank / world->tp % world->dp, rank % world->tp);
}

/* What a rank showed last. A rank that was killed while it wrote leaves a text that is half another one. */
static const char *text_of(const row *r, union text *out) {
  for (int tries = 0; tries < 1000; tries++) {
    const unsigned before = atomic_load(&r->writes);
    for (size_t i = 0; i < WORDS; i++) out->words[i] = atomic_load_explicit(&r->text[i], memory_order_acquire);
    if (before % 2 == 0 && atomic_load(&r->writes) == before) break;
  }
  out->chars[TEXT - 1] = 0;
  return out->chars;
}

static double seconds_since(const row *r, int64_t now) {
  return (double)(now - atomic_load(&r->changed)) / 1e3;
}

/* One line a rank of this node, the longest silent first. */
static void tell_rows(int64_t now) {
  union text text;
  char place[96];
  bool told[4096] = {false};
  for (int n = 0; n < watch.rows && n < MOST_TOLD; n++) {
    int oldest = -1;
    for (int i = 0; i < watch.rows && i < 4096; i++) {
      if (!told[i] && (oldest < 0 ||
                       atomic_load(&watch.board->rows[i].changed) < atomic_load(&watch.board->rows[oldest].changed))) {
        oldest = i;
      }
    }
    if (oldest < 0) return;
    const row *r = &watch.board->rows[oldest];
    told[oldest] = true;
    place_text(watch.world, atomic_load(&r->rank), place, sizeof place);
    fprintf(stderr, "  %s: %s, since %.1f s%s\n", place, text_of(r, &text), seconds_since(r, now),
            atomic_load(&r->pid) != 0 && state_of(atomic_load(&r->pid)) == 'T' ? "; its process is stopped" : "");
  }
  if (watch.rows > MOST_TOLD) fprintf(stderr, "  and %d more ranks on this node\n", watch.rows - MOST_TOLD);
}

/* Ends this process, and lets the others of the node know. */
static _Noreturn void leave(int code) {
  pd_watch_all_leave(code);
  fflush(NULL);
  _exit(atomic_load(&watch.board->failed));
}

static void tell_lost(const row *lost, int64_t now) {
  union text text;
  char mine[96], other[96];
  if (!pd_watch_speaks_first()) return;
  place_text(watch.world, watch.world->rank, mine, sizeof mine);
  place_text(watch.world, atomic_load(&lost->rank), other, sizeof other);
  fprintf(stderr, "error: %s is gone: killed, or ended without a word; it was last seen %.1f s ago in %s\n", other,
          seconds_since(lost, now), text_of(lost, &text));
  fprintf(stderr, "  %s is in %s\n", mine, text_of(watch.own, &text));
}

/* Who is to blame for a silence: a process that is stopped, else the one that fell silent first: the others went on
 * until they needed it. */
static const row *suspect_of(void) {
  const row *best = NULL;
  bool best_stopped = false;
  for (int i = 0; i < watch.rows; i++) {
    const row *r = &watch.board->rows[i];
    const int pid = atomic_load(&r->pid);
    if (r == watch.own || pid == 0) continue;
    const bool stopped = state_of(pid) == 'T';
    const bool older = best == NULL || atomic_load(&r->changed) < atomic_load(&best->changed);
    if (best == NULL || (stopped && !best_stopped) || (stopped == best_stopped && older)) {
      best = r;
      best_stopped = stopped;
    }
  }
  return best;
}

static void tell_silence(int64_t now) {
  union text text;
  char mine[96], other[96];
  if (!pd_watch_speaks_first()) return;
  const row *suspect = suspect_of();
  place_text(watch.world, watch.world->rank, mine, sizeof mine);
  fprintf(stderr, "error: no rank of this node has moved for %.0f s (--timeout): %s is in %s",
          (double)watch.timeout / 1e3, mine, text_of(watch.own, &text));
  if (suspect != NULL) {
    place_text(watch.world, atomic_load(&suspect->rank), other, sizeof other);
    fprintf(stderr, "; %s was last seen %.1f s ago in %s", other, seconds_since(suspect, now), text_of(suspect, &text));
    if (state_of(atomic_load(&suspect->pid)) == 'T') fputs("; its process is stopped", stderr);
  }
  fputc('\n', stderr);
  tell_rows(now);
}

static void tell_trouble(const char *why) {
  union text text;
  char mine[96];
  if (!pd_watch_speaks_first()) return;
  place_text(watch.world, watch.world->rank, mine, sizeof mine);
  fprintf(stderr, "error: %s; %s is in %s\n", why, mine, text_of(watch.own, &text));
}

/* ---- the thread ---- */

void pd_watch_device(const pd_device *device) {
  pthread_mutex_lock(&watch.asking);
  watch.device = device;
  pthread_mutex_unlock(&watch.asking);
}

static bool device_is_sound(char *why, size_t room) {
  pthread_mutex_lock(&watch.asking);
  const bool sound = watch.device == NULL || pd_device_sound(watch.device, why, room);
  pthread_mutex_unlock(&watch.asking);
  return sound;
}

/* When the rank of this node that moved last did so. */
static int64_t last_move(void) {
  int64_t latest = 0;
  for (int i = 0; i < watch.rows; i++) {
    const int64_t changed = atomic_load(&watch.board->rows[i].changed);
    if (changed > latest) latest = changed;
  }
  return latest;
}

static void *look(void *unused) {
  (void)unused;
  while (!atomic_load(&watch.stop)) {
    pause_ms(TICK_MS);
    if (atomic_load(&watch.stop)) break;
    if (atomic_load(&watch.board->failed) != 0) leave(0); /* another has spoken */
    const int64_t now = now_ms();
    for (int i = 0; i < watch.rows; i++) {
      const row *r = &watch.board->rows[i];
      const int pid = atomic_load(&r->pid);
      if (pid == 0 || r == watch.own || !is_gone(pid) || atomic_load(&r->pid) == 0) continue;
      if (atomic_load(&watch.board->spoken) == 0) tell_lost(r, now);
      leave(PD_EXIT_PEER);
    }
    char why[512];
    if (!device_is_sound(why, sizeof why)) {
      tell_trouble(why);
      leave(PD_EXIT_CUDA);
    }
    if (now - last_move() > watch.timeout) {
      tell_silence(now);
      leave(PD_EXIT_PEER);
    }
  }
  return NULL;
}

/* ---- signals ---- */

/* The second time it is meant at once. */
static void on_request(int signal) {
  if (watch.asked != 0) {
    const struct sigaction usual = {.sa_handler = SIG_DFL};
    sigaction(signal, &usual, NULL);
    raise(signal);
  }
  watch.asked = signal;
}

/* Data are mapped: what cannot be read shows as this signal. */
static _Noreturn void on_bus_error(int signal) {
  static const char text[] = "error: a file that is being read became shorter, or its disk failed\n";
  (void)signal;
  if (pd_watch_speaks_first() && write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(PD_EXIT_DATA);
  if (watch.board != NULL) atomic_store(&watch.board->failed, PD_EXIT_DATA);
  _exit(PD_EXIT_DATA);
}

static void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, NULL);
}

void pd_watch_requests(bool taken) {
  handle(SIGTERM, taken ? on_request : SIG_DFL);
  handle(SIGINT, taken ? on_request : SIG_DFL);
  handle(SIGUSR1, taken ? on_request : SIG_DFL); /* which mpirun forwards */
}

bool pd_watch_asked_to_end(const pd_world *world) {
  int asked = watch.asked != 0;
  if (world->size > 1) MPI_Allreduce(MPI_IN_PLACE, &asked, 1, MPI_INT, MPI_MAX, world->all);
  return asked != 0;
}

static _Noreturn void on_late_start(int signal) {
  static const char text[] =
      "error: the ranks did not find each other in time (--timeout bounds this too): is every rank the same program, "
      "and can the hosts reach each other? OMPI_MCA_btl_tcp_if_include names the network interface to use\n";
  (void)signal;
  if (pd_launch_rank() != 0) pause_ms(2000); /* rank 0 speaks for all, if it is there */
  if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(PD_EXIT_PEER);
  _exit(PD_EXIT_PEER);
}

void pd_watch_start_up(int64_t seconds) {
  if (seconds > 0) handle(SIGALRM, on_late_start);
  alarm(seconds > 0 ? (unsigned)(seconds > 3600 ? 3600 : seconds) : 0);
}

/* ---- start and end ---- */

static void share_board(void) {
  MPI_Comm_split_type(watch.world->all, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &watch.node);
  int rank, unit;
  MPI_Comm_rank(watch.node, &rank);
  MPI_Comm_size(watch.node, &watch.rows);
  MPI_Aint bytes = (MPI_Aint)(sizeof(board) + (size_t)watch.rows * sizeof(row));
  void *base;
  MPI_Win_allocate_shared(rank == 0 ? bytes : 0, 1, MPI_INFO_NULL, watch.node, &base, &watch.window);
  MPI_Win_shared_query(watch.window, 0, &bytes, &unit, &base);
  watch.board = base;
  if (rank == 0) memset(base, 0, (size_t)bytes);
  MPI_Barrier(watch.node);
  watch.own = &watch.board->rows[rank];
  atomic_store(&watch.own->rank, watch.world->rank);
  pd_watch_show("start");
  MPI_Barrier(watch.node);
  atomic_store(&watch.own->pid, (int)getpid());
}

/* One rank has its board for itself. */
static void own_board(void) {
  watch.rows = 1;
  watch.board = calloc(1, sizeof(board) + sizeof(row));
  if (watch.board == NULL) pd_fail(PD_EXIT_MEMORY, "out of memory");
  watch.own = &watch.board->rows[0];
  pd_watch_show("start");
  atomic_store(&watch.own->pid, (int)getpid());
}

void pd_watch_open(const pd_world *world, int64_t timeout) {
  watch.world = world;
  watch.timeout = timeout > 0 && timeout < INT64_MAX / 1000 ? timeout * 1000 : INT64_MAX;
  handle(SIGBUS, on_bus_error);
  if (world->size > 1)
    share_board();
  else if (watch.timeout < INT64_MAX)
    own_board();
  else
    return;
  /* signals are for the threads that compute: this one sleeps */
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  if (pthread_create(&watch.thread, NULL, look, NULL) != 0) pd_fail(PD_EXIT_MEMORY, "cannot start a thread");
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void pd_watch_close(void) {
  if (watch.board == NULL) return;
  const bool shared = watch.world->size > 1;
  pd_watch_show("end");
  atomic_store(&watch.own->pid, 0); /* whoever still waits for this rank sees that it left in order */
  if (shared) MPI_Barrier(watch.node);
  atomic_store(&watch.stop, true);
  pthread_join(watch.thread, NULL);
  board *held = watch.board;
  watch.own = NULL;
  watch.board = NULL;
  if (shared) {
    MPI_Win_free(&watch.window);
    MPI_Comm_free(&watch.node);
  } else {
    free(held);
  }
}
