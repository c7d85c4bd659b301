/* The engine of one rank: its memory, its list of actions, a training step and an evaluation pass. It knows nothing of
 * files, command lines or logs. */
#ifndef PD_ENGINE_H
#define PD_ENGINE_H

#include "layout.h"
#include "world.h"

typedef struct pd_engine pd_engine;

/* Allocates exactly pd_layout_total bytes (fails with PD_EXIT_MEMORY naming the bytes), zeroed, huge pages advised. */
pd_engine *pd_engine_new(const pd_program *program, const pd_pipeline *pipeline, pd_world *world, const char *kernel_set);
void pd_engine_free(pd_engine *engine);
int64_t pd_engine_allocated_bytes(const pd_engine *engine);
/* What it runs on and with: "host kernels", "NVIDIA H200". */
const char *pd_engine_device_name(const pd_engine *engine);
/* As pd_device_product_rate. */
double pd_engine_product_rate(pd_engine *engine);
const pd_layout *pd_engine_layout(const pd_engine *engine);

/* True if a chunk on this rank reads model input `data` (then the caller must supply its rows). */
bool pd_engine_uses_data(const pd_engine *engine, int data);
/* Where the host puts rows of model input `data` of micro-batch `mb` of this rank: int32 or real, microbatch * elements
 * values. The caller fills them before a step. Training has `microbatches` of them; evaluation uses the same places. */
void *pd_engine_data(pd_engine *engine, int data, int64_t mb);
/* Position in the global batch of the first row of micro-batch `mb` on this rank: a replica has one contiguous part of
 * the batch, in micro-batch order. Dropout draws by it, so the caller must fill the rows accordingly. */
int64_t pd_engine_first_sample(const pd_engine *engine, int64_t mb);

/* One forward and backward over all micro-batches: gradients are complete on every rank afterwards (reduced over
 * replicas, tied parameters summed). inverse_counts: per normaliser. results[0] is the loss of the whole step,
 * results[1..] the metrics, the same bits on every rank. */
void pd_engine_step(pd_engine *engine, uint64_t step, uint64_t seed, const double *inverse_counts, double *results);
/* A whole training step: that, the norm of all gradients, clipping and the update. `update` counts from 1 (0: nothing is
 * updated). Nothing is updated either when the norm is not finite. */
void pd_engine_train(pd_engine *engine, uint64_t step, uint64_t seed, const double *inverse_counts, int64_t update,
                     double rate, double *results, double *norm);
/* The same for a pipeline that updates within its list (pd_pipeline.step): pd_list_updates of them, each as soon as a
 * chunk has its gradient, from weights that are as old as the schedule says. */
typedef struct pd_updates {
  double rate;
  const int64_t *number;        /* per update: its number, from 1; 0: it changes nothing */
  const double *inverse_counts; /* per update, then per normaliser: of its micro-batches, divided by how many updates */
  double *norms;                /* per update: out, the norm of its gradient */
} pd_updates;
void pd_engine_step_updating(pd_engine *engine, uint64_t step, uint64_t seed, const pd_updates *updates,
                             double *results);
/* Forward only over `count` micro-batches; samples[i] valid rows in micro-batch i of this replica. */
void pd_engine_evaluate(pd_engine *engine, int64_t count, const int64_t *samples, const double *inverse_counts,
                        double batch_scale, double *results);
/* After an evaluation pass: `count` logits (of local classes) of micro-batch `mb` from number `first` on, on the ranks
 * that hold the loss; false on others. Also false when a later micro-batch has taken their place: the last one
 * evaluated is always there. */
bool pd_engine_logits(pd_engine *engine, int64_t mb, int64_t first, int64_t count, double *out);

/* Global L2 norm of all gradients: every parameter element once, summed per parameter in double and then in program
 * order, so that the bits do not depend on pp. */
double pd_engine_grad_norm(pd_engine *engine);
/* Applies the optimizer of the program; `update` counts from 1; gradients are multiplied by `factor` first. Frozen
 * parameters are untouched. Leaves the gradients as they are. */
void pd_engine_update(pd_engine *engine, int64_t update, double rate, double factor);

/* This rank's part of parameter `param` in trip `trip` (0 if it has no trips): NULL pointers where it has none.
 * `owner`: this rank is the one that speaks for its part (dp_rank 0, lowest pipeline rank that holds it; tp_rank 0 if
 * it is not split over tp). */
typedef struct pd_part {
  void *weights, *gradients; /* gradients NULL if frozen */
  void *copy;                /* what the model reads of the weights in a bf16 program; else NULL */
  void *before;              /* the weights before the last update; NULL unless the pipeline has a delay */
  void *moments[2];          /* optimizer state: m and v, or the momentum; NULL: none */
  int64_t elements;
  pd_local local;
  bool owner;
} pd_part;
pd_part pd_engine_part(pd_engine *engine, int param, int64_t trip);
/* The weights were loaded, so they are those before the last update too, until `before` of the parts gets others. */
void pd_engine_start_from_loaded(pd_engine *engine);
/* The host's access to what parts point at. */
void pd_engine_read(pd_engine *engine, void *to, const void *from, int64_t bytes);
void pd_engine_write(pd_engine *engine, void *to, const void *from, int64_t bytes);
/* Initial weights from (seed, parameter name, element), the same on every layout. */
void pd_engine_initialise(pd_engine *engine, uint64_t seed);

/* Where this rank is, for a watchdog: a static text such as "step 12, 3F7". */
const char *pd_engine_position(const pd_engine *engine);

#endif
