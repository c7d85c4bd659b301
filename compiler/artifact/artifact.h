/* The plan as a file: canonical JSON, written and read strictly. */
#ifndef PDC_ARTIFACT_ARTIFACT_H
#define PDC_ARTIFACT_ARTIFACT_H

#include "layout.h" /* runtime/ */
#include "pipeline/predict.h"
#include "semantic/semantic.h"

/* Everything a plan is made of. */
typedef struct PlanInput {
  Arena *arena;
  const Graph *graph;
  const Config *config;
  const pd_program *program;   /* the description that is emitted too */
  const pd_pipeline *pipeline; /* with communication */
  const char *source_sha256;   /* of the resolved program text */
  const char *compiler;        /* "pdc 0.1.0" */
  int64_t (*unit_flops)[3];      /* per unit: F, I, W of one micro-batch on one rank's share of batch, before tp */
  const Prediction *prediction;
} PlanInput;

/* The pd-plan, version 1, ending with its sha256 key. `sha256` (65 bytes) gets the hex digest. */
void plan_write(const PlanInput *input, Text *out, char *sha256);
/* --emit=schedule: one CSV row per pipeline rank, PyTorch's action names. */
/* The typed program (program.c): --emit=json. */
void program_write(const Graph *graph, Text *out);
void schedule_write_csv(const pd_pipeline *pipeline, Text *out);
/* The computations alone. */
void schedule_write_compute_csv(const pd_pipeline *pipeline, Text *out);
/* With a WAIT_SEND_F or WAIT_SEND_B for every send and a WAIT_REDUCE_GRAD for every reduction. */
void schedule_write_waits_csv(Arena *arena, const pd_pipeline *pipeline, Text *out);
/* Appends the bytes as one zlib stream, the same on every machine with the same zlib. */
void pack(Text *out, const char *bytes, size_t length);
/* lower-case hex SHA-256 of bytes, 64 digits and a NUL */
void sha256_hex(const void *bytes, size_t length, char out[65]);

#endif
