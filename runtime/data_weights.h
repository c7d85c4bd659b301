/* Weights and gradients between the ranks and safetensors files: one tensor per parameter and trip, named as the user
 * wrote it with the trip in place of {}, in its logical shape whatever the layout. Problems end the run with
 * PD_EXIT_CHECKPOINT. */
#ifndef PD_DATA_WEIGHTS_H
#define PD_DATA_WEIGHTS_H

#include "engine.h"

typedef enum pd_weights_kind {
  PD_WEIGHTS,
  PD_WEIGHTS_BEFORE, /* pd_part.before */
  PD_WEIGHT_GRADIENTS,
  PD_FIRST_MOMENTS,
  PD_SECOND_MOMENTS
} pd_weights_kind;

/* Every rank reads its own parts. The file must hold every parameter (of all but weights: that is trained) in its logical
 * shape, and nothing else. */
void pd_weights_load(const pd_program *program, pd_engine *engine, pd_weights_kind kind, const char *path);

/* Gathers part by part to rank 0, which writes. Collective. Gradients: trained parameters only. */
void pd_weights_save(const pd_program *program, pd_engine *engine, const pd_world *world, pd_weights_kind kind,
                     const char *path);
/* The same without gathering: rank 0 makes the file, and every rank writes its own parts. Collective. */
void pd_weights_write(const pd_program *program, pd_engine *engine, const pd_world *world, pd_weights_kind kind,
                      const char *path);
/* Whether rank 0 will be able to create `path`; asked before training rather than after. */
void pd_weights_check_target(const pd_world *world, const char *path);

#endif
