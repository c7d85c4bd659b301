/* Stages and schedules: which units a chunk holds, what every rank does in which order, what that costs. */
#ifndef PDC_PIPELINE_PIPELINE_H
#define PDC_PIPELINE_PIPELINE_H

#include "schedule.h" /* runtime/: actions, pd_pipeline */
#include "support/arena.h"

/* Cuts `count` units in order into `parts` non-empty runs; minimises the largest run's cost, then balances the rest (equal
 * costs give sizes that differ by at most one). bounds gets parts + 1 entries. False when count < parts. Source: linear
 * partition by dynamic programming / parametric search; costs are positive. */
bool partition(Arena *arena, const int64_t *costs, int64_t count, int parts, int64_t *bounds);

typedef struct ScheduleKind ScheduleKind; /* one per file in schedules/ */
typedef struct ScheduleRequest {
  int pp;
  int chunks; /* per rank, of one copy of the model */
  int64_t microbatches;
} ScheduleRequest;

/* A compute-only schedule: lists of F, B or F, I, W. */
struct ScheduleKind {
  const char *name;
  const char *const *aliases;
  /* NULL if fine, else why not, with the nearest values that work: "interleaved needs …" */
  const char *(*refuse)(Arena *arena, const ScheduleRequest *request);
  /* rank of every chunk into rank_of (pp * chunks * copies entries) */
  void (*place)(const ScheduleRequest *request, int *rank_of);
  void (*generate)(Arena *arena, const ScheduleRequest *request, pd_action_list *ranks);
  bool split; /* uses I and W */
  int copies; /* of the model: as in pd_pipeline */
  int64_t (*step)(const ScheduleRequest *request); /* NULL: one step, ended by an update of all; else pd_pipeline.step */
  int delay;                                       /* pd_pipeline.delay */
};
const ScheduleKind *schedule_find(const char *name);
/* names of all that this version can generate, NULL-terminated */
const char *const *schedule_names(void);
/* The pipeline of a request that the kind does not refuse: everything but lists and units. */
pd_pipeline schedule_shape(Arena *arena, const ScheduleKind *kind, const ScheduleRequest *request);
/* The same with its lists, compute-only. */
pd_pipeline schedule_make(Arena *arena, const ScheduleKind *kind, const ScheduleRequest *request);
/* Two copies of the model that make one sum (pd_pipeline.accumulators): the second's weight gradients wait for the first's,
 * so they are split off and put to the end of the lists, where all that they wait for is done or never waits for them. */
void schedule_continue_sums(Arena *arena, pd_pipeline *pipeline);
/* Why kind=auto does not take it unless it is asked to: "keeps two copies of the model"; NULL if it may. */
const char *schedule_unasked(const ScheduleKind *kind);
/* Most activations of chunks that a rank holds at once: from F to the end of B or W. Divided by the chunks that it has of
 * one copy: micro-batches through its whole share. */
int64_t schedule_held(const pd_pipeline *pipeline, int rank);

typedef struct ScheduleCosts { /* of one micro-batch through one chunk; per chunk arrays; link: one hop */
  const double *f, *i, *w;
  double link;
} ScheduleCosts;

/* Times of a run in which every rank does its list in order, each action when its dependencies are done. */
typedef struct ScheduleTiming {
  double makespan, beta, sigma, bound;
  double *idle;      /* per rank */
  double *start;     /* per rank, per action, flattened in rank order; for pictures */
  double *end;
} ScheduleTiming;
/* False if the schedule deadlocks or is incomplete; then *why says which action of which rank waits for what. */
bool schedule_simulate(Arena *arena, const pd_pipeline *pipeline, const ScheduleCosts *costs, ScheduleTiming *timing,
                       const char **why);

/* What no schedule of these chunks on these ranks beats: its beta, and the work of the busiest rank. Reads no lists. */
double schedule_bound(Arena *arena, const pd_pipeline *pipeline, const ScheduleCosts *costs, double *busiest);

/* Adds SEND/RECV of activations and gradients and REDUCE_GRAD to a compute-only pipeline, in an order that is free of
 * deadlock when every send waits for its receive: messages are placed along one global topological order.
 * gradient_into[c]: chunk c's input carries a gradient. Reductions also come without `reduce` if there are several copies,
 * and never without a flush, where they belong to the updates. */
void schedule_insert_communication(Arena *arena, pd_pipeline *pipeline, const bool *gradient_into, bool reduce);
/* The same such that at these costs the lists take exactly as long as without messages: a receive is posted so early that
 * its message can cross the link. With a link of 0 it is the one above. */
void schedule_insert_timed_communication(Arena *arena, pd_pipeline *pipeline, const ScheduleCosts *costs,
                                         const bool *gradient_into, bool reduce);

/* Independent re-check of a pipeline with communication: complete, ordered, matched, acyclic under three send semantics. */
typedef struct Certificate {
  bool complete, ordered, matched, acyclic_buffered, acyclic_rendezvous, acyclic_grouped;
  const char *why; /* first thing that is wrong, naming action and rank; NULL */
} Certificate;
Certificate schedule_certify(Arena *arena, const pd_pipeline *pipeline);

#endif
