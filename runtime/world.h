/* The ranks of a run and how they talk: MPI, its communicators (made once, in one global order), deterministic
 * reductions. One world per process. */
#ifndef PD_WORLD_H
#define PD_WORLD_H

#include <mpi.h>
#include <stdarg.h>

#include "program.h"

typedef struct pd_world {
  int rank, size; /* world rank = (pp_rank * dp + dp_rank) * tp + tp_rank */
  int pp, dp, tp;
  int pp_rank, dp_rank, tp_rank;
  MPI_Comm all, pipe, replicas, tensor; /* same (dp,tp) by pp_rank; same (pp,tp) by dp_rank; same (pp,dp) by tp_rank */
} pd_world;

/* Documented exit codes of a compiled program. */
enum {
  PD_EXIT_OK = 0,
  PD_EXIT_USAGE = 2,      /* command line, wrong number of ranks */
  PD_EXIT_DATA = 3,       /* training data missing, malformed, out of range */
  PD_EXIT_CHECKPOINT = 4, /* weights file unreadable or unwritable */
  PD_EXIT_NUMERIC = 5,    /* loss or gradient is not finite */
  PD_EXIT_PEER = 6,       /* another rank failed or was lost */
  PD_EXIT_PLAN = 7,       /* ranks run different plans, or the plan does not fit the program */
  PD_EXIT_MEMORY = 8,     /* not enough memory */
  PD_EXIT_STOPPED = 75,   /* a signal asked for an end; a checkpoint was written if there is a place for one */
  /* of programs for CUDA */
  PD_EXIT_NO_DEVICE = 9,      /* there is no device */
  PD_EXIT_DRIVER = 10,        /* there is no driver, or it is too old */
  PD_EXIT_FEW_DEVICES = 11,   /* fewer devices than ranks on a node */
  PD_EXIT_DEVICE_MEMORY = 12, /* the plan does not fit the device's memory */
  PD_EXIT_CUDA = 13           /* a call of CUDA, cuBLASLt, cuDNN or NCCL failed */
};

/* From now on an error of MPI's, in any communicator that is made later too, is one line and PD_EXIT_PEER. */
void pd_world_report_errors(void);
/* MPI must be initialised. Checks nothing about sizes: the caller has. */
void pd_world_open(pd_world *world, const pd_program *program);
void pd_world_close(pd_world *world);

/* Prints "error: …" once for the whole run (the first failing rank speaks, naming itself when size > 1), ends all
 * ranks, exits with `code`. Callable from any rank at any time. */
_Noreturn void pd_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Sum of doubles in rank order, small n. */
void pd_sum_double(MPI_Comm comm, double *x, int n);

/* Starts one message of any number of bytes (MPI's own counts are 32 bits wide). */
void pd_send_start(MPI_Comm comm, const void *from, int64_t bytes, int peer, int tag, MPI_Request *request);
void pd_receive_start(MPI_Comm comm, void *into, int64_t bytes, int peer, int tag, MPI_Request *request);

#endif
