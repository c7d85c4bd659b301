/* Tensor parallelism: from the axes that `shard` divides follow, for every operation, which results are partial sums, and
 * where an all-reduce completes them. The same rule serves forward and backward: a sum over a divided axis is partial;
 * additions of partial sums stay partial; everything else needs the complete value. */
#ifndef PDC_DISTRIBUTE_DISTRIBUTE_H
#define PDC_DISTRIBUTE_DISTRIBUTE_H

#include "ir/sizes.h"

/* Appends operations to one list of one segment. */
typedef struct Builder {
  Graph *graph;
  const Config *config;
  Diagnostics *diagnostics;
  Id segment;
  bool backward; /* gradients: sums over samples are completed by the engine at the end of the step */
  IdVec *list;
  Id *complete;            /* per value: its completed (all-reduced) twin, or NO_ID */
  uint32_t complete_count; /* size of `complete` */
} Builder;

/* Appends an operation whose results have been added to it, working out `partial` of its results and completing inputs
 * where the operation needs it. Reports an error for what cannot be divided. */
void builder_append(Builder *builder, Id op);
/* The value, with an all-reduce appended first if it is a partial sum over tensor-parallel ranks. */
Id builder_complete(Builder *builder, Id value);

/* Rewrites every segment's forward list. Errors: normalising over a divided axis, and the like. */
bool distribute_run(Graph *graph, const Config *config, Diagnostics *diagnostics);
/* A table of what a rank holds of every parameter, input and wire: --emit=sharding. */
void sharding_text(const Graph *graph, const Config *config, Text *out);

#endif
