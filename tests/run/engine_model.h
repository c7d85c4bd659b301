/* A model written by hand as an emitted program would be: an embedding, a loop of six layers, a layer after it and a
 * loss, with everything that makes gradients hard: a tied matrix, a tensor shared by all trips, wires with several
 * readers, one that skips over the loop and is read in it, one that gets its first gradient inside the loop, one that
 * is made anew in every trip, one whose gradient is zero, and a frozen tensor. Parts are split over tp. */
#ifndef ENGINE_MODEL_H
#define ENGINE_MODEL_H

#include "engine.h"

#ifdef PD_TEST_DOUBLE
typedef double REAL;
#define TP_SUM pd_tp_sum_f64
#define TP_MAX pd_tp_max_f64
#else
typedef float REAL;
#define TP_SUM pd_tp_sum_f32
#define TP_MAX pd_tp_max_f32
#endif

enum { SEQ = 3, EMBED = 8, FFN = 12, VOCAB = 12, LAYERS = 6, UNUSED = 5, UNITS = LAYERS + 3 };

typedef struct model {
  pd_program program;
  pd_segment_info segments[4];
  pd_wire_info wires[8];
  pd_param_info params[9];
  pd_data_info data[2];
  int normalisers[1];
  const char *metrics[1];
} model;

typedef struct variant {
  bool recompute;
  bool frozen_start; /* the embedding, and so the tied matrix, is not trained: nothing flows back into it */
  pd_optimizer optimizer;
} variant;
/* Fills `m`; it must not move afterwards. `batch` is the global one. */
void model_build(model *m, int pp, int dp, int tp, int64_t batch, int64_t microbatch, variant how);
/* Makes the functions compute for this model: its micro-batch, its number of tensor-parallel ranks. */
void model_use(const model *m);
/* Token and target at position p of sample s of the global batch. */
int32_t model_token(uint64_t step, int64_t s, int p);
int32_t model_target(uint64_t step, int64_t s, int p);

#endif
