/* From a command to running ranks: starts mpirun when the program was started alone, refuses a wrong number of ranks,
 * prepares malloc and MPI, and decides how many threads a rank uses. */
#ifndef PD_LAUNCH_H
#define PD_LAUNCH_H

#include "world.h"

/* This process's rank as its launcher says in the environment; 0 when it was started alone. Valid before MPI_Init: what
 * must be said once, before there are ranks to agree, is said by rank 0. */
int pd_launch_rank(void);

/* How many ranks were started, as OpenMPI's launcher says in the environment; -1 when nobody says it. */
int pd_launch_size(void);

/* Returns PD_EXIT_OK if this process is to go on as one rank. Started alone, a program of several ranks starts mpirun, waits
 * for it, and is done with what it returns; with dp=* it starts `asked` replicas (--dp), or (0) as few as it can. Else the
 * problem has been printed by rank 0 and the exit code is returned. */
int pd_launch_ranks(const pd_program *program, int64_t asked, char **argv, bool quiet, bool *done);

/* malloc's and MPI's settings, MPI_Init, the number of ranks once more: the dp of this run; exits when it is wrong. */
int pd_launch_mpi(const pd_program *program, int64_t asked, char **argv);

typedef struct pd_machine {
  int cores;      /* that this process may run on */
  int node_ranks; /* ranks of this program on this node */
  int threads;    /* to use */
  bool bound;     /* held to one core of a machine with more */
} pd_machine;
/* `asked`: --threads, 0 for the default: OMP_NUM_THREADS, at most cores / ranks of the node. Collective. */
pd_machine pd_launch_machine(int64_t asked);

/* Whether what this process prints lands on a terminal. mpirun gives its ranks pseudo-terminals, so theirs is asked. */
bool pd_launch_terminal(void);

#endif
