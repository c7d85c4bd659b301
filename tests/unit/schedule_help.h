/* What the tests of stages and schedules share: chance that is the same everywhere, pipelines with their costs, and
 * lists that may be changed. */
#ifndef TESTS_UNIT_SCHEDULE_HELP_H
#define TESTS_UNIT_SCHEDULE_HELP_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/pipeline.h"
#include "pipeline/schedules/kinds.h"

typedef struct Random { /* xorshift64*: the same numbers everywhere */
  uint64_t state;
} Random;

static inline int64_t draw(Random *random, int64_t low, int64_t high) {
  random->state ^= random->state >> 12;
  random->state ^= random->state << 25;
  random->state ^= random->state >> 27;
  return low + (int64_t)((random->state * UINT64_C(2685821657736338717)) >> 33) % (high - low + 1);
}

/* whether tests take all sizes, where that takes long */
static inline bool full_range(void) {
  const char *value = getenv("PD_TEST_FULL");
  return value && strcmp(value, "1") == 0;
}

static inline double larger(double a, double b) {
  return a > b ? a : b;
}
static inline int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static inline const ScheduleKind *kind_named(const char *name) {
  const ScheduleKind *kind = schedule_find(name);
  cr_assert(kind != NULL, "%s is not known", name);
  return kind;
}

/* Compute-only; one unit a chunk. */
static inline pd_pipeline make(Arena *arena, const ScheduleKind *kind, int pp, int chunks, int64_t m) {
  pd_pipeline pipeline = schedule_make(arena, kind, &(ScheduleRequest){pp, chunks, m});
  int count = pd_copy_chunks(&pipeline);
  int64_t *first_unit = ARENA_ARRAY(arena, int64_t, count + 1);
  for (int i = 0; i <= count; i++) first_unit[i] = i;
  pipeline.first_unit = first_unit;
  return pipeline;
}

/* The first number of chunks from `chunks` on, and around, that the kind takes; 0 if none of 1 to 4 is. */
static inline int chunks_for(Arena *arena, const ScheduleKind *kind, int pp, int chunks, int64_t m) {
  for (int i = 0; i < 4; i++) {
    int tried = 1 + (chunks - 1 + i) % 4;
    if (!kind->refuse(arena, &(ScheduleRequest){pp, tried, m})) return tried;
  }
  return 0;
}

static inline bool *all_true(Arena *arena, int count) {
  bool *flags = ARENA_ARRAY(arena, bool, count);
  memset(flags, true, (size_t)count);
  return flags;
}

static inline pd_pipeline make_with_messages(Arena *arena, const ScheduleKind *kind, int pp, int chunks, int64_t m,
                                             bool reduce) {
  pd_pipeline pipeline = make(arena, kind, pp, chunks, m);
  schedule_insert_communication(arena, &pipeline, all_true(arena, pipeline.chunk_count), reduce);
  return pipeline;
}

/* Every chunk costs the same. */
static inline ScheduleTiming play(Arena *arena, const pd_pipeline *pipeline, double f, double i, double w,
                                  double link) {
  double *costs[3];
  for (int k = 0; k < 3; k++) {
    costs[k] = ARENA_ARRAY(arena, double, pipeline->chunk_count);
    for (int c = 0; c < pipeline->chunk_count; c++) costs[k][c] = k == 0 ? f : k == 1 ? i : w;
  }
  ScheduleTiming timing;
  const char *why;
  bool good = schedule_simulate(arena, pipeline, &(ScheduleCosts){costs[0], costs[1], costs[2], link}, &timing, &why);
  cr_assert(good, "%s", why);
  return timing;
}

static inline int64_t most_held(const pd_pipeline *pipeline) {
  int64_t most = 0;
  for (int rank = 0; rank < pipeline->pp; rank++)
    if (schedule_held(pipeline, rank) > most) most = schedule_held(pipeline, rank);
  return most;
}

static inline bool accepted(Certificate c) {
  return c.complete && c.ordered && c.matched && c.acyclic_buffered && c.acyclic_rendezvous && c.acyclic_grouped;
}

static inline const char *text_of(Arena *arena, pd_action action) {
  char *text = arena_alloc(arena, 48);
  pd_action_text(action, text);
  return text;
}

/* A copy of a pipeline whose lists, in *lists, may be changed: room for one more action each. */
static inline pd_pipeline copy_of(Arena *arena, const pd_pipeline *pipeline, pd_action_list **lists) {
  pd_pipeline copy = *pipeline;
  pd_action_list *ranks = ARENA_ARRAY(arena, pd_action_list, pipeline->pp);
  for (int rank = 0; rank < pipeline->pp; rank++) {
    ranks[rank].count = pipeline->ranks[rank].count;
    ranks[rank].at = ARENA_ARRAY(arena, pd_action, ranks[rank].count + 1);
    memcpy(ranks[rank].at, pipeline->ranks[rank].at, sizeof(pd_action) * (size_t)ranks[rank].count);
  }
  copy.ranks = *lists = ranks;
  return copy;
}

static inline void remove_at(pd_action_list *list, int64_t index) {
  memmove(&list->at[index], &list->at[index + 1], sizeof(pd_action) * (size_t)(list->count - index - 1));
  list->count--;
}

static inline void insert_at(pd_action_list *list, int64_t index, pd_action action) {
  memmove(&list->at[index + 1], &list->at[index], sizeof(pd_action) * (size_t)(list->count - index));
  list->at[index] = action;
  list->count++;
}

#endif
