/* A run: everything one rank holds from start to end, and the training loop. */
#ifndef PD_TRAIN_H
#define PD_TRAIN_H

#include "checkpoint.h"
#include "data.h"
#include "engine.h"
#include "launch.h"
#include "log.h"
#include "options.h"
#include "plan.h"
#include "progress.h"

typedef struct pd_run {
  const pd_program *program;
  pd_options options;
  pd_machine machine;
  pd_world world;
  pd_plan plan;
  pd_engine *engine;
  pd_data train, valid;  /* samples 0: none given */
  double *valid_inverse; /* per normaliser: 1 / counted targets of the whole validation set */
  pd_position position; /* where it stands */
  bool stopped;         /* by a signal, before its last step */
  pd_log log;
  pd_progress progress;
} pd_run;

/* Trains for options.steps, evaluating, logging and saving on the way. */
void pd_train(pd_run *run);

/* --check-gradients on the data of the first step: stops with PD_EXIT_NUMERIC when a gradient is wrong. */
void pd_check(pd_run *run);

/* Fills the places of micro-batch `mb` with `samples` (microbatch of them) of `data`. Rows from `valid` on repeat
 * others and count nowhere: their targets become PD_IGNORE. Adds the counted targets to counts[] per normaliser.
 * Whole-number inputs are checked on every rank, whether it reads them or not, so that every layout finds the same
 * fault. */
void pd_feed(pd_run *run, const pd_data *data, int64_t mb, const int64_t *samples, int64_t valid, double *counts);
/* counts -> 1 / counts, 0 for none; true if any target counts, or nothing is counted in this model. */
bool pd_invert_counts(const pd_program *program, double *counts);
/* Checks every value of the training data, shared out over all ranks. */
void pd_train_check_data(const pd_run *run);

#endif
