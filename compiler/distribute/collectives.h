/* What an operation says to the other tensor-parallel ranks: one list for the plan, its prediction and its totals. */
#ifndef PDC_DISTRIBUTE_COLLECTIVES_H
#define PDC_DISTRIBUTE_COLLECTIVES_H

#include "ir/sizes.h"

typedef struct Collective {
  const char *op;     /* "all_reduce", "all_reduce_max", "all_gather" */
  const char *tensor; /* the user's name for it */
  int64_t bytes;      /* of the buffer on one rank, afterwards */
  bool gathers;       /* no sum: it moves half of the bytes */
  bool wide;          /* in f32 where the program computes in bf16 */
} Collective;

/* The collectives that one run of operation `op` makes, in order: writes up to two, returns how many. */
int collectives_of(const Graph *graph, const Config *config, Id op, Collective out[2]);

#endif
