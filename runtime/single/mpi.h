/* MPI as far as the runtime uses it, for programs of one process: `pdc --no-mpi`. What has two sides ends the program: a
 * program of one rank never gets there. */
#ifndef PD_SINGLE_MPI_H
#define PD_SINGLE_MPI_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A datatype is the number of its bytes. */
typedef int MPI_Comm, MPI_Datatype, MPI_Request, MPI_Op, MPI_Info, MPI_Win, MPI_Errhandler, MPI_Status;
typedef ptrdiff_t MPI_Aint;
typedef void MPI_Comm_errhandler_function(MPI_Comm *, int *, ...);

enum {
  MPI_SUCCESS, MPI_COMM_NULL = 0, MPI_COMM_WORLD, MPI_COMM_SELF, MPI_INFO_NULL = 0, MPI_REQUEST_NULL = 0,
  MPI_COMM_TYPE_SHARED = 0, MPI_SUM = 0, MPI_MAX, MPI_MIN, MPI_THREAD_FUNNELED = 1, MPI_THREAD_MULTIPLE = 3,
  MPI_BYTE = 1, MPI_INT = 4, MPI_UINT = 4, MPI_INT64_T = 8, MPI_UINT64_T = 8, MPI_DOUBLE = 8, MPI_MAX_ERROR_STRING = 64,
  MPI_ANY_SOURCE = -1, MPI_ANY_TAG = -1, MPI_TAG_UB = 0
};
#define MPI_IN_PLACE ((void *)-1)
#define MPI_STATUS_IGNORE ((MPI_Status *)0)
#define MPI_STATUSES_IGNORE ((MPI_Status *)0)

static inline _Noreturn void pd_single_misuse(const char *call) {
  fprintf(stderr, "error: %s in a program that was built without MPI\n", call);
  exit(70);
}

static inline int *pd_single_state(void) { /* 1: initialised, 2: finalised */
  static int state;
  return &state;
}
static inline int MPI_Init_thread(int *argc, char ***argv, int wanted, int *provided) {
  (void)argc, (void)argv;
  *provided = wanted;
  *pd_single_state() = 1;
  return MPI_SUCCESS;
}
static inline int MPI_Initialized(int *flag) {
  *flag = *pd_single_state() > 0;
  return MPI_SUCCESS;
}
static inline int MPI_Finalized(int *flag) {
  *flag = *pd_single_state() == 2;
  return MPI_SUCCESS;
}
static inline int MPI_Finalize(void) {
  *pd_single_state() = 2;
  return MPI_SUCCESS;
}
static inline int MPI_Abort(MPI_Comm comm, int code) {
  (void)comm;
  _Exit(code);
}

/* ---- communicators ---- */

static inline int MPI_Comm_rank(MPI_Comm comm, int *rank) {
  (void)comm;
  *rank = 0;
  return MPI_SUCCESS;
}
static inline int MPI_Comm_size(MPI_Comm comm, int *size) {
  (void)comm;
  *size = 1;
  return MPI_SUCCESS;
}
static inline int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *made) {
  *made = comm;
  return MPI_SUCCESS;
}
static inline int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *made) {
  (void)color, (void)key;
  *made = comm;
  return MPI_SUCCESS;
}
static inline int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *made) {
  (void)type, (void)key, (void)info;
  *made = comm;
  return MPI_SUCCESS;
}
static inline int MPI_Comm_free(MPI_Comm *comm) {
  *comm = MPI_COMM_NULL;
  return MPI_SUCCESS;
}
static inline int MPI_Comm_create_errhandler(MPI_Comm_errhandler_function *function, MPI_Errhandler *handler) {
  (void)function;
  *handler = 1;
  return MPI_SUCCESS;
}
static inline int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler) {
  (void)comm, (void)handler;
  return MPI_SUCCESS;
}
static inline int MPI_Errhandler_free(MPI_Errhandler *handler) {
  *handler = 0;
  return MPI_SUCCESS;
}
static inline int MPI_Error_string(int code, char *text, int *length) {
  *length = snprintf(text, MPI_MAX_ERROR_STRING, "error %d", code);
  return MPI_SUCCESS;
}

/* ---- collectives: what one rank gives, it gets ---- */

static inline int MPI_Barrier(MPI_Comm comm) {
  (void)comm;
  return MPI_SUCCESS;
}
static inline int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  (void)buffer, (void)count, (void)type, (void)root, (void)comm;
  return MPI_SUCCESS;
}
static inline int MPI_Allreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  (void)op, (void)comm;
  if (from != MPI_IN_PLACE) memcpy(to, from, (size_t)count * (size_t)type);
  return MPI_SUCCESS;
}
static inline int MPI_Reduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, int root,
                             MPI_Comm comm) {
  (void)root;
  return MPI_Allreduce(from, to, count, type, op, comm);
}
static inline int MPI_Allgather(const void *from, int count, MPI_Datatype type, void *to, int to_count,
                                MPI_Datatype to_type, MPI_Comm comm) {
  (void)to_count, (void)to_type;
  return MPI_Allreduce(from, to, count, type, MPI_SUM, comm);
}
static inline int MPI_Gather(const void *from, int count, MPI_Datatype type, void *to, int to_count,
                             MPI_Datatype to_type, int root, MPI_Comm comm) {
  (void)root;
  return MPI_Allgather(from, count, type, to, to_count, to_type, comm);
}

/* ---- what has two sides ---- */

static inline int MPI_Send(const void *from, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm) {
  (void)from, (void)count, (void)type, (void)peer, (void)tag, (void)comm;
  pd_single_misuse("MPI_Send");
}
static inline int MPI_Recv(void *into, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
                           MPI_Status *status) {
  (void)into, (void)count, (void)type, (void)peer, (void)tag, (void)comm, (void)status;
  pd_single_misuse("MPI_Recv");
}
static inline int MPI_Isend(const void *from, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
                            MPI_Request *request) {
  (void)request;
  return MPI_Send(from, count, type, peer, tag, comm);
}
static inline int MPI_Irecv(void *into, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
                            MPI_Request *request) {
  (void)request;
  return MPI_Recv(into, count, type, peer, tag, comm, MPI_STATUS_IGNORE);
}
static inline int MPI_Type_contiguous(int count, MPI_Datatype type, MPI_Datatype *made) {
  (void)count, (void)type, (void)made;
  pd_single_misuse("MPI_Type_contiguous");
}
static inline int MPI_Type_create_struct(int count, const int *lengths, const MPI_Aint *at, const MPI_Datatype *types,
                                         MPI_Datatype *made) {
  (void)count, (void)lengths, (void)at, (void)types, (void)made;
  pd_single_misuse("MPI_Type_create_struct");
}
static inline int MPI_Type_commit(MPI_Datatype *type) {
  (void)type;
  return MPI_SUCCESS;
}
static inline int MPI_Type_free(MPI_Datatype *type) {
  (void)type;
  return MPI_SUCCESS;
}
static inline void **pd_single_window(void) { /* there is at most one at a time in a file */
  static void *memory;
  return &memory;
}
static inline int MPI_Win_allocate_shared(MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, void *base,
                                          MPI_Win *win) {
  (void)unit, (void)info, (void)comm;
  void **memory = pd_single_window();
  *memory = calloc(1, (size_t)bytes + 1);
  if (*memory == NULL) pd_single_misuse("MPI_Win_allocate_shared without memory");
  memcpy(base, memory, sizeof *memory);
  *win = 1;
  return MPI_SUCCESS;
}
static inline int MPI_Win_shared_query(MPI_Win win, int rank, MPI_Aint *bytes, int *unit, void *base) {
  (void)win, (void)rank, (void)bytes, (void)unit, (void)base; /* the base that the caller has */
  return MPI_SUCCESS;
}
static inline int MPI_Win_free(MPI_Win *win) {
  free(*pd_single_window());
  *win = 0;
  return MPI_SUCCESS;
}

#endif
