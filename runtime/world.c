/* Communicators of a run, messages of any length, and the one way to fail. */
#include "world.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "watch.h"

#ifndef PD_MESSAGE_LIMIT
#define PD_MESSAGE_LIMIT INT_MAX /* bytes that one MPI count can say; tests make it small */
#endif

static const pd_world *here; /* the world of this process, for pd_fail */

/* ---- communicators ---- */

static void on_mpi_error(MPI_Comm *comm, int *code, ...) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  (void)comm;
  MPI_Error_string(*code, text, &length);
  pd_fail(PD_EXIT_PEER, "communication failed: %s", text);
}

void pd_world_report_errors(void) {
  MPI_Errhandler handler;
  MPI_Comm_create_errhandler(on_mpi_error, &handler);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
  MPI_Errhandler_free(&handler);
}

void pd_world_open(pd_world *world, const pd_program *program) {
  memset(world, 0, sizeof *world);
  pd_world_report_errors();
  world->pp = program->pp;
  world->dp = program->dp;
  world->tp = program->tp;
  MPI_Comm_dup(MPI_COMM_WORLD, &world->all);
  MPI_Comm_rank(world->all, &world->rank);
  MPI_Comm_size(world->all, &world->size);
  world->tp_rank = world->rank % world->tp;
  world->dp_rank = world->rank / world->tp % world->dp;
  world->pp_rank = world->rank / (world->tp * world->dp);
  MPI_Comm_split(world->all, world->dp_rank * world->tp + world->tp_rank, world->pp_rank, &world->pipe);
  MPI_Comm_split(world->all, world->pp_rank * world->tp + world->tp_rank, world->dp_rank, &world->replicas);
  MPI_Comm_split(world->all, world->pp_rank * world->dp + world->dp_rank, world->tp_rank, &world->tensor);
  here = world;
}

void pd_world_close(pd_world *world) {
  here = NULL;
  MPI_Comm_free(&world->tensor);
  MPI_Comm_free(&world->replicas);
  MPI_Comm_free(&world->pipe);
  MPI_Comm_free(&world->all);
}

/* ---- failing ---- */

/* Whether this rank is the one to speak. One that is not waits to be ended by the one that is, and ends the run itself
 * if that does not come. */
static bool is_first_to_fail(int rank) {
  if (here == NULL && rank > 0) sleep(2); /* before the world is open ranks fail together, over what they all see */
  if (pd_watch_speaks_first()) return true;
  sleep(10);
  return false;
}

_Noreturn void pd_fail(int code, const char *format, ...) {
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  int initialized = 0, finalized = 0, rank = 0, size = 1;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (here != NULL) {
    rank = here->rank;
    size = here->size;
  } else if (initialized && !finalized) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
  }
  if (size == 1) {
    fprintf(stderr, "error: %s\n", text);
    fflush(NULL);
    _exit(code);
  }
  if (is_first_to_fail(rank)) {
    if (here != NULL) {
      fprintf(stderr, "error: rank %d (pp %d, dp %d, tp %d): %s\n", rank, here->pp_rank, here->dp_rank, here->tp_rank,
              text);
    } else {
      fprintf(stderr, "error: %s\n", text);
    }
    fflush(NULL);
  }
  pd_watch_all_leave(code);
  MPI_Abort(MPI_COMM_WORLD, code);
  _exit(code);
}

/* ---- messages ---- */

/* A count and a type that together are `bytes` bytes. The type is to be freed if it is not MPI_BYTE. */
static int as_type(int64_t bytes, MPI_Datatype *type) {
  if (bytes <= PD_MESSAGE_LIMIT) {
    *type = MPI_BYTE;
    return (int)bytes;
  }
  const int64_t block = PD_MESSAGE_LIMIT / 2 + 1;
  int64_t blocks = bytes / block, rest = bytes % block;
  MPI_Datatype line, lines;
  MPI_Type_contiguous((int)block, MPI_BYTE, &line);
  MPI_Type_contiguous((int)blocks, line, &lines);
  int lengths[2] = {1, (int)rest};
  MPI_Aint at[2] = {0, (MPI_Aint)(blocks * block)};
  MPI_Datatype types[2] = {lines, MPI_BYTE};
  MPI_Type_create_struct(2, lengths, at, types, type);
  MPI_Type_commit(type);
  MPI_Type_free(&line);
  MPI_Type_free(&lines);
  return 1;
}

void pd_send_start(MPI_Comm comm, const void *from, int64_t bytes, int peer, int tag, MPI_Request *request) {
  MPI_Datatype type;
  int count = as_type(bytes, &type);
  MPI_Isend(from, count, type, peer, tag, comm, request);
  if (type != MPI_BYTE) MPI_Type_free(&type);
}

void pd_receive_start(MPI_Comm comm, void *into, int64_t bytes, int peer, int tag, MPI_Request *request) {
  MPI_Datatype type;
  int count = as_type(bytes, &type);
  MPI_Irecv(into, count, type, peer, tag, comm, request);
  if (type != MPI_BYTE) MPI_Type_free(&type);
}

/* ---- sums ---- */

void pd_sum_double(MPI_Comm comm, double *x, int n) {
  int size;
  MPI_Comm_size(comm, &size);
  if (size == 1 || n == 0) return;
  double *all = malloc((size_t)size * (size_t)n * sizeof *all);
  if (all == NULL) pd_fail(PD_EXIT_MEMORY, "out of memory");
  MPI_Allgather(x, n, MPI_DOUBLE, all, n, MPI_DOUBLE, comm);
  for (int i = 0; i < n; i++) {
    double sum = all[i];
    for (int q = 1; q < size; q++) sum += all[(int64_t)q * n + i];
    x[i] = sum;
  }
  free(all);
}
