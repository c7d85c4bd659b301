/* Starting ranks.
 *
 * Assumes OpenMPI's launcher where it starts ranks itself; any launcher's ranks are recognised once MPI runs. Settings
 * for one host go into the environment before mpirun or MPI_Init reads it, and never over a user's own.
 */
#include "launch.h"

#include "degrees.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define AGAIN "PD_STARTED_BY_ITSELF" /* set for mpirun's ranks, so that a launcher we cannot see never loops */

static int number_in(const char *name) {
  const char *text = getenv(name);
  return text != NULL && *text != 0 ? atoi(text) : -1;
}

static bool launched(void) {
  return getenv("OMPI_COMM_WORLD_SIZE") != NULL || getenv("PMIX_RANK") != NULL || getenv("PMI_RANK") != NULL;
}

int pd_launch_rank(void) {
  static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
  for (int i = 0; i < 3; i++) {
    if (number_in(names[i]) >= 0) return number_in(names[i]);
  }
  return 0;
}

/* ---- the number of ranks ---- */

/* A word as a shell reads it back. */
static void print_word(const char *word) {
  const bool plain =
      *word != 0 &&
      strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./,:+@%") == strlen(word);
  fputc(' ', stderr);
  if (!plain) fputc('\'', stderr);
  for (const char *p = word; *p != 0; p++) {
    if (*p == '\'')
      fputs("'\\''", stderr);
    else
      fputc(*p, stderr);
  }
  if (!plain) fputc('\'', stderr);
}

/* The command that starts the program on `ranks` ranks. */
static void print_command(int64_t ranks, char **argv) {
  if (ranks > 1) {
    fprintf(stderr, "mpirun -n %" PRId64 " --bind-to none --oversubscribe%s", ranks,
            geteuid() == 0 ? " --allow-run-as-root" : "");
    for (char **word = argv; *word != NULL; word++) print_word(*word);
  } else {
    fputs(argv[0], stderr);
    for (char **word = argv + 1; *word != NULL; word++) print_word(*word);
  }
  fputc('\n', stderr);
}

static void print_wrong_size(const pd_program *program, int64_t asked, int started, char **argv) {
  const char *ranks = pd_degrees_text(program, asked, true), *dp = pd_degrees_text(program, asked, false);
  if (asked > 0) fprintf(stderr, "with --dp=%" PRId64 " ", asked);
  fprintf(stderr, "this program needs %s rank%s (pp %d x dp %s x tp %d); it was started with %d\n", ranks,
          strcmp(ranks, "1") == 0 ? "" : "s", program->pp, dp, program->tp, started);
  fputs("start it with: ", stderr);
  print_command(pd_degrees_ranks(program, pd_degrees_below(program, asked, started)), argv);
  fflush(stderr);
}

/* ---- starting mpirun ---- */

/* One host: shared memory, plain copies, nothing that needs a network or a resolvable host name. */
static void set_for_one_host(void) {
  setenv("OMPI_MCA_pml", "ob1", 0);
  setenv("OMPI_MCA_btl", "self,vader", 0);
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
}

/* mpirun leaves its ranks a second when it is asked to end, which is not enough for a step and a checkpoint. So
 * requests go to this process, which hands them on as SIGUSR1; mpirun forwards that, and the ranks end in order. A
 * second one ends mpirun. */
static volatile pid_t child;
static volatile sig_atomic_t requests;

static void hand_on(int signal) {
  (void)signal;
  if (child > 0) kill(child, requests++ == 0 ? SIGUSR1 : SIGTERM);
}

/* Runs the command and waits; its exit status, 128 + the signal that ended it, or -1 if there is no such command. */
static int run_command(char **command) {
  int status = 0, trouble[2]; /* a pipe that tells why exec failed */
  if (pipe2(trouble, O_CLOEXEC) != 0) return -1;
  const pid_t parent = getpid();
  signal(SIGCHLD, SIG_DFL); /* who ignores it, as a parent may have asked, never hears how a child ended */
  child = fork();
  if (child < 0) return -1;
  if (child == 0) {
    setpgid(0, 0); /* a terminal's Ctrl-C is for the parent alone */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(PD_EXIT_PEER);
    const int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    execvp(command[0], command);
    const int why = errno;
    if (write(trouble[1], &why, sizeof why) < 0) _exit(127);
    _exit(127);
  }
  struct sigaction action = {.sa_handler = hand_on, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGUSR1, &action, NULL);
  close(trouble[1]);
  int why = 0;
  const bool failed = read(trouble[0], &why, sizeof why) == (ssize_t)sizeof why;
  close(trouble[0]);
  pid_t ended;
  while ((ended = waitpid(child, &status, 0)) < 0 && errno == EINTR) continue;
  if (failed) errno = why;
  if (failed || ended < 0) return -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int run_mpirun(const pd_program *program, int dp, char **argv, bool quiet) {
  char self[PATH_MAX], count[24];
  const int64_t ranks = pd_degrees_ranks(program, dp);
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  snprintf(self + (length > 0 ? length : 0), sizeof self - (length > 0 ? (size_t)length : 0), "%s",
           length > 0 ? "" : argv[0]);
  snprintf(count, sizeof count, "%" PRId64, ranks);
  int words = 0;
  while (argv[words] != NULL) words++;
  char *const head[] = {"mpirun", "-q", "-n", count, "--bind-to", "none", "--oversubscribe", self};
  const int before = (int)(sizeof head / sizeof head[0]);
  char **command = calloc((size_t)(before + words), sizeof *command);
  if (command == NULL) {
    fputs("error: not enough memory\n", stderr);
    return PD_EXIT_MEMORY;
  }
  memcpy(command, head, sizeof head);
  if (words > 1) memcpy(command + before, argv + 1, (size_t)(words - 1) * sizeof *command); /* calloc ends the list */

  set_for_one_host();
  setenv(AGAIN, "1", 1);
  if (geteuid() == 0) { /* mpirun refuses root, which everybody is in a container, unless told twice */
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
  }
  if (!quiet) {
    printf("starting %" PRId64 " ranks (pp %d x dp %d x tp %d) with mpirun\n", ranks, program->pp, dp, program->tp);
    fflush(stdout);
  }
  const int status = run_command(command);
  const int why = errno;
  free(command);
  if (status >= 0) return status;
  fprintf(stderr, "error: this program needs %" PRId64 " ranks, and `mpirun` cannot be started: %s\n", ranks,
          strerror(why));
  fputs("install OpenMPI, then: ", stderr);
  print_command(ranks, argv);
  return PD_EXIT_USAGE;
}

/* Rank 0 does, and if mpirun starts several programs together (`:` between them), the first rank of each. */
static bool speaks_for_program(void) {
  const char *sizes = getenv("OMPI_APP_CTX_NUM_PROCS"); /* "1 2": of each program */
  char *end;
  long first = 0, size;
  if (sizes == NULL) return pd_launch_rank() == 0;
  for (; first != pd_launch_rank(); sizes = end) {
    size = strtol(sizes, &end, 10);
    if (end == sizes || size < 1) return false;
    first += size;
  }
  return true;
}

int pd_launch_size(void) {
  return number_in("OMPI_COMM_WORLD_SIZE");
}

int pd_launch_ranks(const pd_program *program, int64_t asked, char **argv, bool quiet, bool *done) {
  *done = false;
  const int size = pd_launch_size(), dp = pd_degrees_first(program, asked);
  if (size > 0 && pd_degrees_of(program, asked, size) == 0) {
    /* before MPI_Init: quick, however many were started. Only rank 0 fails: a launcher ends all ranks when one does,
     * and must not end rank 0 before it has spoken. */
    if (!speaks_for_program()) exit(PD_EXIT_OK);
    print_wrong_size(program, asked, size, argv);
    return PD_EXIT_USAGE;
  }
  *done = !launched() && pd_degrees_ranks(program, dp) > 1 && getenv(AGAIN) == NULL;
  return *done ? run_mpirun(program, dp, argv, quiet) : PD_EXIT_OK;
}

/* ---- MPI ---- */

int pd_launch_mpi(const pd_program *program, int64_t asked, char **argv) {
  /* page faults cost more than memory: no block of a step or of MPI's collectives is ever given back to the system */
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  if (!launched()) {
    set_for_one_host();
    /* one rank alone needs no daemon, nor a session directory, which it would share with every other such program */
    setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
    setenv("OMPI_MCA_orte_create_session_dirs", "0", 0);
  }
  int level = 0, size = 0, rank = 0;
  MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
  pd_world_report_errors();
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int dp = pd_degrees_of(program, asked, size);
  if (dp > 0) return dp;
  if (rank == 0) print_wrong_size(program, asked, size, argv);
  MPI_Finalize();
  exit(PD_EXIT_USAGE);
}

pd_machine pd_launch_machine(int64_t asked) {
  pd_machine machine = {.cores = 1, .node_ranks = 1, .threads = 1};
  /* a mask larger than cpu_set_t: machines with more than 1,024 cores */
  const size_t most = 1 << 16;
  cpu_set_t *mask = CPU_ALLOC(most);
  if (mask != NULL && sched_getaffinity(0, CPU_ALLOC_SIZE(most), mask) == 0) {
    machine.cores = CPU_COUNT_S(CPU_ALLOC_SIZE(most), mask);
  }
  if (mask != NULL) CPU_FREE(mask);
  MPI_Comm node;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &machine.node_ranks);
  MPI_Comm_free(&node);
  machine.bound = machine.cores == 1 && sysconf(_SC_NPROCESSORS_ONLN) > 1;
  machine.threads = machine.cores / machine.node_ranks;
  if (machine.threads < 1) machine.threads = 1;
  const int environment = number_in("OMP_NUM_THREADS");
  if (environment > 0 && environment < machine.threads) machine.threads = environment;
  if (asked > 0) machine.threads = (int)asked;
  return machine;
}

bool pd_launch_terminal(void) {
  if (!isatty(STDOUT_FILENO)) return false;
  if (!launched()) return true;
  char path[64];
  snprintf(path, sizeof path, "/proc/%ld/fd/1", (long)getppid());
  const int file = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
  if (file < 0) return false;
  const bool terminal = isatty(file) != 0;
  close(file);
  return terminal;
}
