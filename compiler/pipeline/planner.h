/* kind=auto: which schedule a pipeline gets. Every kind that exists for the sizes is made and played, and beside them
 * orders that no closed form has: interleaved tables with other warm-up depths and other delays of weight gradients,
 * and orders made by playing them, in a loop and in a V. The simulator is the judge, so the choice is never worse than
 * the best kind that fits. The same input gives the same choice, on every machine. */
#ifndef PDC_PIPELINE_PLANNER_H
#define PDC_PIPELINE_PLANNER_H

#include "pipeline/pipeline.h"

typedef struct PlannerInput {
  int pp;
  int64_t microbatches;
  int chunks;      /* per rank; 0: the best number up to most_chunks */
  int most_chunks; /* 0: 4 */
  /* The step ends when all ranks are done (an optimizer that waits for everybody): the makespan counts. Otherwise the
   * next step may begin on a rank that is done, and the longest time from a rank's first to its last action counts. */
  bool barrier;
  bool two_copies; /* also kinds that keep two copies of the model */

  /* Times of one micro-batch. Per rank, through its whole share, of which a chunk takes 1 / chunks; or, if `cut` is
   * set, as it says: per chunk (pp * chunks entries) of a model cut into so many; false if it has too few pieces. */
  const double *f, *i, *w;
  bool (*cut)(void *context, int chunks, double *f, double *i, double *w);
  double link; /* one hop */

  /* Memory: fixed + activation * (micro-batches through the whole share that are held at once) must not exceed `memory`
   * on any rank. `fits`, if set, is asked besides: the exact test of a compute-only pipeline, with the reason if not.
   */
  double memory;            /* 0: no limit */
  const double *fixed;      /* per rank, of one copy; NULL: 0 */
  const double *activation; /* per rank; NULL: 1, so that `memory` is in micro-batches */
  bool (*fits)(void *context, const pd_pipeline *pipeline, const char **why);
  void *context;
} PlannerInput;

typedef struct PlannerChoice {
  pd_pipeline pipeline; /* compute-only, no units */
  const char *kind;     /* "zb-v"; "auto" for an order that is none of the kinds */
  const char *text;     /* "zb-v, 2 chunks", "own order: …" */
  int chunks;
  ScheduleTiming timing; /* as the simulator gives it */
  double held;           /* most micro-batches held on a rank, in whole shares */
  const char *why;       /* one sentence: what decided */
  const char **rejected; /* one line for each kind that was not taken, with the reason */
  int rejected_count;
} PlannerChoice;

/* False if nothing fits; then choice->rejected says why not for each kind, and choice->why in one sentence. */
bool planner_choose(Arena *arena, const PlannerInput *input, PlannerChoice *choice);

#endif
