/* What the files of this folder share: one file per kind of schedule, found by name through kinds.c. */
#ifndef PDC_PIPELINE_SCHEDULES_KINDS_H
#define PDC_PIPELINE_SCHEDULES_KINDS_H

#include "pipeline/pipeline.h"

extern const ScheduleKind schedule_gpipe, schedule_one_f_one_b, schedule_eager_1f1b, schedule_interleaved,
    schedule_breadth_first, schedule_zb_h1, schedule_zb_h2, schedule_interleaved_zb, schedule_zb_v, schedule_v_half,
    schedule_v_min, schedule_one_f_one_b_v, schedule_dualpipe, schedule_dualpipe_v, schedule_chimera, schedule_hanayo,
    schedule_pipedream, schedule_pipedream_2bw;

/* "loop": chunk k on rank k mod pp. */
void place_loop(const ScheduleRequest *request, int *rank_of);
/* "V", and with more chunks a wave of Vs: down the ranks and up again, so that neighbours share the rank at the turns.
 */
void place_v(const ScheduleRequest *request, int *rank_of);
/* Two copies of one chunk a rank: chunk k on rank k, its copy pp + k on rank pp - 1 - k. */
void place_mirrored(const ScheduleRequest *request, int *rank_of);

/* Room for `count` actions in an empty list; action_put appends within it. */
void actions_reserve(Arena *arena, pd_action_list *list, int64_t count);
void action_put(pd_action_list *list, pd_action_kind kind, int64_t chunk, int64_t microbatch);

/* "NAME with pp = 4, microbatches = 8, chunks = 2: REASON" */
const char *refuse(Arena *arena, const char *name, const ScheduleRequest *request, const char *reason);
/* The refusal that every kind has: counts below 1, or NULL. */
const char *refuse_counts(Arena *arena, const char *name, const ScheduleRequest *request);
/* Also refuses more than one chunk a rank; `instead` names the kind that keeps several. */
const char *refuse_chunks(Arena *arena, const char *name, const ScheduleRequest *request, const char *instead);

/* Also refuses anything but two chunks a rank. */
const char *refuse_v(Arena *arena, const char *name, const ScheduleRequest *request);

/* The order in which an interleaved schedule visits its (local chunk, micro-batch) pairs: groups of micro-batches, in a
 * group chunk by chunk, in a chunk ascending. Groups are floor(m / pp) in number (one if m < pp) and differ by at most
 * one in size, the largest first: with that, any m keeps the bubble of a multiple of pp and no order deadlocks. */
typedef struct OrderTable {
  int64_t count;   /* microbatches * chunks */
  int64_t largest; /* micro-batches of the largest group */
  struct OrderEntry {
    int32_t chunk; /* 0 .. chunks - 1 */
    int32_t microbatch;
  } * at;
} OrderTable;
/* `groups` 0: as above; else that many. */
OrderTable order_table(Arena *arena, const ScheduleRequest *request, int64_t groups);

/* Warm-up forwards, then forward and fused backward in turn, then the remaining backwards, all along the table. */
void generate_along_table(Arena *arena, const ScheduleRequest *request, const OrderTable *table, int rank,
                          int64_t warm_up, pd_action_list *list);

/* Passes of a micro-batch over a V: chunks down and up, gradients down and up. Slots of micro-batch 0 on one rank. */
typedef enum VPass { V_F0, V_F1, V_B1, V_B0, V_PASSES } VPass;
typedef struct VBlock {
  int64_t slot[V_PASSES];
} VBlock;
/* Repeats a block (one entry a rank) for every micro-batch and squeezes the result. */
void generate_v_blocks(Arena *arena, const ScheduleRequest *request, const VBlock *blocks, bool split,
                       pd_action_list *ranks);

/* A rank's two chunks in DualPipe and DualPipeV, and the first micro-batch that goes through each; phase 0 is the one
 * nearer to the model's begin. `count` micro-batches through each, `depth` ranks to the turn, r: ranks behind this one.
 */
typedef struct DualPhase {
  int64_t chunk, first;
} DualPhase;
void generate_dual_steps(Arena *arena, const DualPhase phase[2], int64_t count, int64_t depth, int64_t r,
                         pd_action_list *list);

#endif
