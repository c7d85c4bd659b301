/* Lists of actions for the engine's test, made greedily: every tick each rank does the most urgent thing it can. */
#ifndef ENGINE_SCHEDULES_H
#define ENGINE_SCHEDULES_H

#include "layout.h"

typedef enum style {
  STYLE_GPIPE, /* all F before any B */
  STYLE_1F1B,  /* B first, F while few enough are in flight */
  STYLE_SPLIT, /* I and W apart, W as late as the list allows: when there is nothing else to do */
  STYLE_MIXED  /* split for even micro-batches, fused for odd ones */
} style;

typedef struct schedule {
  pd_pipeline pipeline;
  int *rank_of;
  int64_t *first_unit;
  pd_action_list *ranks;
} schedule;

typedef struct shape {
  int chunks; /* per rank, of one copy of the model */
  bool vee;
  int cut;
  int copies;       /* 1 or 2; then chunks is 1 and pp and the micro-batches are even */
  int accumulators; /* as in pd_pipeline */
} shape;

/* `chunks` per rank, dealt round or, with `vee`, there and back again. Messages are placed along the one order in which
 * the ticks happen. `cut` moves the borders of chunks. A second copy lies on the ranks in reverse. */
schedule schedule_make(const pd_program *program, style kind, shape form, bool reduce);
void schedule_free(schedule *s);

#endif
