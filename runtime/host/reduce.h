/* A reduction over a communicator that is under way while the caller computes: sum (or maximum) in rank order. */
#ifndef PD_REDUCE_H
#define PD_REDUCE_H

#include "layout.h"
#include "world.h"

typedef struct pd_reduction {
  MPI_Comm comm;
  int rank, size, real_bytes, tag;
  bool maximum;
  char *x; /* n elements, in place */
  int64_t n;
  char *scratch;         /* pd_sum_scratch(n, size) elements */
  MPI_Request *requests; /* 2 (size - 1), given by the caller; the caller sets all above */
  int request_count;
  int stage; /* 0: done; 1: pieces on their way; 2: sums on their way */
} pd_reduction;

/* Every member starts the same reductions in the same order. Two may be under way at once if their tags differ by 2. */
void pd_reduction_start(pd_reduction *reduction);
/* Moves it on without waiting; true once it is done. */
bool pd_reduction_test(pd_reduction *reduction);
void pd_reduction_finish(pd_reduction *reduction);

/* What pd_tp_sum_*, pd_tp_max_* and pd_tp_gather_* work over (size 0: nothing), and the receive space of the first two: `elements` as given by
 * pd_sum_scratch for the largest n they get. */
void pd_reduce_over_tensor(MPI_Comm comm, int size, void *scratch, int64_t elements);

#endif
