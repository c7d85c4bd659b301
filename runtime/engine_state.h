/* The inside of the engine, shared by its files:
 *   engine.c           memory, the list of actions, evaluation
 *   engine_walk.c      one chunk's forward and backward for one micro-batch
 *   engine_messages.c  what passes between chunks
 *   engine_gradients.c gradients over replicas and over the uses of tied parameters
 *   engine_copies.c    gradients of the two copies of a chunk
 *   engine_params.c    parameters: where they are, initial values, norm, update
 *   engine_versions.c  several versions of the weights, and updates within a list */
#ifndef PD_ENGINE_STATE_H
#define PD_ENGINE_STATE_H

#include <stdatomic.h>

#include "device.h"
#include "engine.h"

typedef struct pd_chunk_state {
  pd_chunk_plan *plan;
  struct pd_chunk_state *before, *after; /* the neighbour if it is on this rank */
  pd_mail *wires_in, *wires_out, *gradients_in, *gradients_out; /* NULL: no messages */
  int64_t *holder; /* per activation slot: the micro-batch in it */
} pd_chunk_state;

#define PD_POSITION_BYTES 128

struct pd_engine {
  const pd_program *program;
  const pd_pipeline *pipeline;
  pd_world *world;
  pd_layout *layout;
  pd_device *device;
  char *memory; /* the device's */
  pd_chunk_state *chunks; /* as in the layout */
  pd_pass pass;
  int result_count;
  const pd_updates *updates;        /* NULL: the list updates nothing, and all of it runs with the newest weights */
  double *results;                  /* per micro-batch, of the pass that was closed last */
  const void **data;                /* per model input, of the micro-batch under way */
  /* versions of the weights */
  int64_t newest;                   /* where the newest lies: 0 .. versions - 1 */
  int64_t made;                     /* updates since the start, those that changed nothing included */
  int64_t made_before;              /* of which before this list */
  int64_t finished;                 /* micro-batches of this list whose gradients are in */
  int64_t *version;                 /* per micro-batch under way: where its weights lie */
  int64_t *users;                   /* per version: micro-batches that still need it */
  int64_t act_unit, act_microbatch; /* what the shared act block holds (recompute) */
  /* gradient buckets */
  int next_bucket;                  /* the first that is not final */
  bool buckets_open;                /* a step is under way that ends with their reduction */
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

/* ---- engine_gradients.c ---- */
void pd_engine_open_buckets(pd_engine *engine);
/* The weight gradients of `unit` are final: the buckets that completes start as soon as they can. */
void pd_engine_unit_is_final(pd_engine *engine, const pd_chunk_plan *plan, const pd_unit_plan *unit);
/* REDUCE_GRAD: all buckets of `chunk`, and of chunks that were final before it, are final. Does not wait for them. */
void pd_engine_reduce_chunk(pd_engine *engine, int chunk);
/* Sums tied gradients over their slots, then what is left over replicas. */
void pd_engine_finish_gradients(pd_engine *engine);

/* ---- engine_copies.c ---- */
void pd_engine_open_copies(const pd_engine *engine);
/* A weight gradient of the chunk for `mb` is about to be computed; it was, and no other of the chunk comes. */
void pd_engine_take_over_sums(pd_engine *engine, const pd_chunk_plan *plan, int64_t mb);
void pd_engine_hand_over_sums(pd_engine *engine, const pd_chunk_plan *plan);
/* REDUCE_GRAD: both copies of the chunk hold the sum over all micro-batches afterwards. */
void pd_engine_join_copies(pd_engine *engine, const pd_chunk_plan *plan);

/* ---- engine_params.c ---- */
/* The squares of gradients of each tensor, on the one pipeline rank that counts it, into set `set` of the device. */
void pd_engine_queue_squares(pd_engine *engine, int set);
void pd_engine_queue_update(pd_engine *engine);

/* ---- engine_versions.c ---- */
void pd_engine_open_versions(pd_engine *engine);
void pd_engine_close_versions(pd_engine *engine);
void pd_engine_begin_versions(pd_engine *engine);
/* A forward begins: it chooses its weights. */
void pd_engine_choose_version(pd_engine *engine, int64_t mb);
/* Norms of the updates, once the list is done; collective. */
void pd_engine_finish_versions(pd_engine *engine);
/* The weight gradient of a micro-batch is in: updates if that was the last one of an update. */
void pd_engine_weight_grad_done(pd_engine *engine);

/* ---- small things ---- */
/* Weights at byte `offset`, PD_NONE: none, as micro-batch `mb` sees them. */
static inline char *pd_weights_at(const pd_engine *engine, int64_t offset, int64_t mb) {
  int64_t version = engine->updates != NULL ? engine->version[mb] : engine->newest;
  return offset == PD_NONE ? NULL : engine->memory + offset + version * engine->layout->version_bytes;
}
static inline char *pd_slot(const pd_engine *engine, const pd_slots *slots, int64_t mb) {
  return engine->memory + slots->base + slots->bytes * (mb % slots->count);
}
static inline int64_t pd_wire_size(const pd_engine *engine, int wire) {
  return pd_wire_data_bytes(engine->program, wire);
}
void pd_engine_show(pd_engine *engine, const char *waits_for, int peer);

#endif
