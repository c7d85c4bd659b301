/* The inside of the engine, shared by its files:
 *   engine.c           memory, the list of actions, evaluation
 *   engine_walk.c      one chunk's forward and backward for one micro-batch
 *   engine_messages.c  what passes between chunks
 *   engine_gradients.c gradients over replicas and over the uses of tied parameters
 *   engine_params.c    parameters: where they are, initial values, norm, update */
#ifndef PD_ENGINE_STATE_H
#define PD_ENGINE_STATE_H

#include <stdatomic.h>

#include "engine.h"
#include "reduce.h"

/* Requests of the messages of one kind, `per_slot` for each slot. */
typedef struct pd_mail {
  MPI_Request *requests;
  int64_t slots;
  int per_slot;
} pd_mail;

typedef struct pd_chunk_state {
  pd_chunk_plan *plan;
  struct pd_chunk_state *before, *after; /* the neighbour if it is on this rank */
  pd_mail wires_in, wires_out, gradients_in, gradients_out;
  int64_t *holder; /* per activation slot: the micro-batch in it */
} pd_chunk_state;

/* What is the same for all units of a step or an evaluation pass. */
typedef struct pd_pass {
  uint64_t step, seed;
  const double *inverse_counts;
  double batch_scale;
  const int64_t *samples; /* per micro-batch; NULL: all of them */
  bool training;
} pd_pass;

#define PD_POSITION_BYTES 128

struct pd_engine {
  const pd_program *program;
  const pd_pipeline *pipeline;
  pd_world *world;
  pd_layout *layout;
  char *memory;
  int64_t bytes;
  const pd_kernels_f32 *f32; /* the one of the program's precision */
  const pd_kernels_f64 *f64;
  pd_chunk_state *chunks; /* as in the layout */
  pd_pass pass;
  int result_count;
  double *results;                  /* per micro-batch */
  double *ignored;                  /* results of a forward that is run again */
  const void **data;                /* per model input, of the micro-batch under way */
  int64_t act_unit, act_microbatch; /* what the shared act block holds (recompute) */
  /* gradient buckets */
  int next_bucket;                  /* the first that is not started */
  int final_buckets;                /* so many, in order, are final */
  bool buckets_open; /* a step is under way that ends with their reduction */
  pd_reduction reductions[2];
  MPI_Request *tied_requests;
  /* where this rank is: two texts, of which one is shown while the other is written */
  char positions[2][PD_POSITION_BYTES];
  atomic_int position;
  char action[48];
};

/* ---- engine_walk.c ---- */
void pd_engine_forward(pd_engine *engine, pd_chunk_state *chunk, int64_t mb);
/* input: I; weights: W; both: B. `final`: no weight gradient of this chunk comes after these. */
void pd_engine_backward(pd_engine *engine, pd_chunk_state *chunk, int64_t mb, bool input, bool weights, bool final);

/* ---- engine_messages.c ---- */
void pd_engine_open_mail(pd_engine *engine);
void pd_engine_close_mail(pd_engine *engine);
void pd_engine_send_wires(pd_engine *engine, pd_chunk_state *chunk, int64_t mb);
void pd_engine_receive_wires(pd_engine *engine, pd_chunk_state *chunk, int64_t mb);
void pd_engine_send_gradients(pd_engine *engine, pd_chunk_state *chunk, int64_t mb);
void pd_engine_receive_gradients(pd_engine *engine, pd_chunk_state *chunk, int64_t mb);
/* The chunk's wires in are there, and what its slot held before has left. */
void pd_engine_settle_wires(pd_engine *engine, pd_chunk_state *chunk, int64_t mb);
void pd_engine_settle_gradients(pd_engine *engine, pd_chunk_state *chunk, int64_t mb);
void pd_engine_wait_wires_out(pd_engine *engine, pd_chunk_state *chunk, int64_t mb);
/* All sends of the pass have left. */
void pd_engine_settle_all(pd_engine *engine);
/* Lets messages that are under way move on. */
void pd_engine_progress(pd_engine *engine);
/* Waits; shows what for if that takes any time. */
void pd_engine_wait(pd_engine *engine, MPI_Request *requests, int count, const char *what, int peer);

/* ---- engine_gradients.c ---- */
void pd_engine_open_buckets(pd_engine *engine);
/* The weight gradients of `unit` are final: the buckets that completes start as soon as they can. */
void pd_engine_unit_is_final(pd_engine *engine, int chunk, int64_t unit);
void pd_engine_progress_buckets(pd_engine *engine);
/* REDUCE_GRAD: all buckets of `chunk`, and of chunks that were final before it, are final. Does not wait for them. */
void pd_engine_reduce_chunk(pd_engine *engine, int chunk);
/* Sums tied gradients over their slots, then what is left over replicas. */
void pd_engine_finish_gradients(pd_engine *engine);

/* ---- small things ---- */
static inline char *pd_slot(const pd_engine *engine, const pd_slots *slots, int64_t mb) {
  return engine->memory + slots->base + slots->bytes * (mb % slots->count);
}
static inline int64_t pd_wire_size(const pd_engine *engine, int wire) {
  return engine->program->wires[wire].elements * engine->program->real_bytes;
}
/* out[i] += a[i] */
static inline void pd_engine_add(const pd_engine *engine, int64_t n, const void *a, void *out) {
  if (engine->f32 != NULL) {
    engine->f32->add(n, a, out);
  } else {
    engine->f64->add(n, a, out);
  }
}
static inline void pd_engine_clear(const pd_engine *engine, int64_t bytes, void *out) {
  if (engine->f32 != NULL) {
    engine->f32->fill(bytes / 4, 0, out);
  } else {
    engine->f64->fill(bytes / 8, 0, out);
  }
}
void pd_engine_show(pd_engine *engine, const char *waits_for, int peer);

#endif
