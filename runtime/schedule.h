/* The actions of a pipeline rank, shared by compiler and runtime. Spelling as in PyTorch's pipelining schedules:
 * <chunk><kind><micro-batch>, "0F3"; B is I and W together. */
#ifndef PD_SCHEDULE_H
#define PD_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum pd_action_kind {
  PD_F, PD_B, PD_I, PD_W,
  PD_SEND_F, PD_RECV_F, /* activations of `chunk`'s output / input: SEND_F names the sender's chunk, RECV_F the receiver's */
  PD_SEND_B, PD_RECV_B, /* gradients: SEND_B names the sender's chunk (gradient of its input), RECV_B the receiver's */
  PD_REDUCE_GRAD,       /* gradients of a chunk complete over replicas; microbatch is PD_NO_MICROBATCH */
  PD_ACTION_KINDS
} pd_action_kind;
#define PD_NO_MICROBATCH (-1)

typedef struct pd_action {
  pd_action_kind kind;
  int32_t chunk, microbatch;
} pd_action;

typedef struct pd_action_list {
  pd_action *at;
  int64_t count;
} pd_action_list;

/* The static part of a pipeline: who holds which units, and every rank's ordered list. */
typedef struct pd_pipeline {
  int pp, chunk_count;          /* chunk_count = pp * chunks per rank * copies */
  int64_t microbatches;
  const int *rank_of;           /* per chunk: its rank ("placement") */
  const int64_t *first_unit;    /* per chunk of one copy, and one more: chunk c holds units first_unit[c] .. first_unit[c+1]-1 */
  const pd_action_list *ranks;  /* per pipeline rank */
  bool split;                   /* some backward is split into I and W */
  int copies;                   /* of the model; 0 and 1: one. With more, chunks c, c + chunk_count / copies, … hold the same
                                 * units, and copy k does the k-th of as many equal shares of the micro-batches */
  int accumulators;             /* how gradients are summed over micro-batches. 0 and 1: all in their order, in one sum, which
                                 * a second copy takes over from the first once that is done. 2: the first and the second half
                                 * of the micro-batches each in a sum of its own, then first + second */
  int64_t step;                 /* 0: the list is one step, and weights change after it. Else no flush: a chunk updates its
                                 * weights after each `step` of its micro-batches and goes on */
  int delay;                    /* with step: 0: a forward takes the newest weights of its chunk; d: those from before the
                                 * last d of the updates that precede its micro-batch, on every rank the same */
} pd_pipeline;

#define PD_NO_CHUNK (-1)
/* Chunks of one copy of the model. */
static inline int pd_copy_chunks(const pd_pipeline *pipeline) {
  return pipeline->copies > 1 ? pipeline->chunk_count / pipeline->copies : pipeline->chunk_count;
}
/* The chunk that makes a chunk's input, and the one that takes its output. */
static inline int pd_chunk_before(const pd_pipeline *pipeline, int chunk) {
  return chunk % pd_copy_chunks(pipeline) == 0 ? PD_NO_CHUNK : chunk - 1;
}
static inline int pd_chunk_after(const pd_pipeline *pipeline, int chunk) {
  return (chunk + 1) % pd_copy_chunks(pipeline) == 0 ? PD_NO_CHUNK : chunk + 1;
}
/* Micro-batches first .. end - 1 go through a chunk: all, or those of its copy. */
static inline int64_t pd_chunk_first(const pd_pipeline *pipeline, int chunk) {
  return pipeline->copies > 1 ? chunk / pd_copy_chunks(pipeline) * pipeline->microbatches / pipeline->copies : 0;
}
static inline int64_t pd_chunk_end(const pd_pipeline *pipeline, int chunk) {
  return pipeline->copies > 1 ? (chunk / pd_copy_chunks(pipeline) + 1) * pipeline->microbatches / pipeline->copies
                              : pipeline->microbatches;
}

/* The chunk of the first copy whose sums this one goes on with; PD_NO_CHUNK: none. */
static inline int pd_chunk_continued(const pd_pipeline *pipeline, int chunk) {
  int copies = pipeline->copies > 1 && pipeline->accumulators < 2;
  return copies && chunk >= pd_copy_chunks(pipeline) ? chunk - pd_copy_chunks(pipeline) : PD_NO_CHUNK;
}

/* Text of an action into `out` (at least 48 bytes), and back; false when `text` is no action. */
void pd_action_text(pd_action action, char *out);
bool pd_action_parse(const char *text, pd_action *action);

/* Most micro-batches of `chunk` that are in flight on its rank at once: from F (from RECV_F if that comes earlier) until
 * the end of B or W. */
int64_t pd_in_flight(const pd_pipeline *pipeline, int chunk);

/* Updates that a chunk makes within its list: 0 unless `step` is set. */
static inline int64_t pd_list_updates(const pd_pipeline *pipeline) {
  return pipeline->step > 0 ? pipeline->microbatches / pipeline->step : 0;
}
/* Most versions of a chunk's weights that are needed at once: the newest, and those that micro-batches in flight began
 * with; with a delay also those that the next list begins with. 1 unless `step` is set. */
int64_t pd_weight_versions(const pd_pipeline *pipeline, int chunk);
/* Most updates that a chunk makes between the version that a gradient is taken at and the update that it goes into. */
int64_t pd_weight_staleness(const pd_pipeline *pipeline, int chunk);

/* A stretch of a rank's list in which a micro-batch occupies a buffer: from its first action of `from_kinds` (bits
 * 1u << kind) on chunk `from_chunk` to its next one of `to_kinds` on `to_chunk`. An action may both open and close. */
typedef struct pd_window {
  int from_chunk, to_chunk;
  unsigned from_kinds, to_kinds;
} pd_window;
/* Most windows that are open at once on `rank`; and the fewest slots such that micro-batch i may use slot i % slots: the
 * same number when micro-batches come in order. */
int64_t pd_window_peak(const pd_pipeline *pipeline, int rank, pd_window window);
int64_t pd_window_slots(const pd_pipeline *pipeline, int rank, pd_window window);

#endif
