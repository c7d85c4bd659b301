/* What a step takes on the declared machine: computing, waiting in the pipeline, and what of the communication does not
 * hide behind either. docs/plan.md states the model. */
#ifndef PDC_PIPELINE_PREDICT_H
#define PDC_PIPELINE_PREDICT_H

#include <stdio.h>

#include "pipeline/prices.h"

typedef struct PredictedChunk {
  double tensor[3]; /* ns of the tensor-parallel all-reduces of one F, I, W */
  double reduce;    /* ns of the reduction of its gradients over replicas */
} PredictedChunk;

typedef struct PredictedRank { /* bytes that one process of this position sends in a step */
  double sent_tensor, sent_pipeline, sent_replicas;
} PredictedRank;

typedef struct Prediction {
  double flops, peak;       /* operations of a step of the whole program; per second of all ranks */
  double step, utilisation; /* ns; flops / (peak * step) */
  /* what `step` is made of, ns */
  double busy;     /* computations of the busiest rank */
  double bubble;   /* its waiting, were communication free */
  double tensor;   /* all-reduces inside computations */
  double pipeline; /* messages between stages */
  double tied;     /* sums of tied gradients over stages */
  double replicas; /* reductions that do not hide behind computations */
  PredictedChunk *chunks;
  PredictedRank *ranks; /* per pipeline rank */
} Prediction;

/* Assumes a certified pipeline with its messages and units. */
Prediction *predict_step(Arena *arena, const Prices *prices, const Graph *graph, const pd_pipeline *pipeline);
/* For -v. */
void predict_say(const Prediction *prediction, const Config *config, FILE *out);

#endif
