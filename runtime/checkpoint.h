/* Checkpoints: everything a run needs to go on as if it had not stopped. A checkpoint is a directory DIR/step-N with the
 * weights, the optimizer's moments and the state of the run; it appears under its name when all of it is on the disk, and
 * DIR/latest moves to it last. Tensors are stored in their logical shapes, each rank writing and reading its own ranges, so
 * any layout goes on from a checkpoint of any other. DIR must be one directory for all ranks. */
#ifndef PD_CHECKPOINT_H
#define PD_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

struct pd_run;

/* Where a run stands. */
typedef struct pd_position {
  int64_t step;    /* steps done */
  int64_t updates; /* of which changed the weights (or updates within lists) */
} pd_position;

/* Whether checkpoints can be written where the options say, and what they hold is enough for this program's schedule; asked
 * before training rather than after. Collective. */
void pd_checkpoint_prepare(struct pd_run *run);

/* Finds what --resume or `checkpoint < resume=on; >` asks for, checks it against the program and the data, and loads it. False:
 * there is none, and none was demanded. The data must be open. Collective. */
bool pd_checkpoint_resume(struct pd_run *run, pd_position *position);

/* Writes a checkpoint, then removes old ones. Collective; a problem ends the run with PD_EXIT_CHECKPOINT and leaves the
 * checkpoints that are there. */
void pd_checkpoint_save(struct pd_run *run, pd_position position);

#endif
