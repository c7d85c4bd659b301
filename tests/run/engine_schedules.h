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

/* `chunks` per rank, dealt round or, with `vee`, there and back again. Messages are placed along the one order in which
 * the ticks happen. `cut`
 * moves the borders of chunks. */
schedule schedule_make(const pd_program *program, style kind, int chunks, bool vee, int cut, bool reduce);
void schedule_free(schedule *s);

#endif
