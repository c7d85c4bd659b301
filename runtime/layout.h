/* The memory layout of one rank: every buffer of a run inside one allocation, exact to the byte. Pure functions of the
 * program description and the pipeline; the compiler plans with them and the program allocates with them. */
#ifndef PD_LAYOUT_H
#define PD_LAYOUT_H

#include "program.h"
#include "schedule.h"

typedef enum pd_memory_class {
  PD_MEMORY_PARAMETERS, PD_MEMORY_GRADIENTS, PD_MEMORY_OPTIMIZER, PD_MEMORY_ACTIVATIONS, PD_MEMORY_MESSAGES,
  PD_MEMORY_WORKSPACE, PD_MEMORY_CLASSES
} pd_memory_class;
const char *pd_memory_class_name(pd_memory_class kind); /* "parameters", … as in the plan */

typedef struct pd_layout pd_layout; /* offsets of everything on one pipeline rank; see layout.c */

/* Units of the whole program, and which segment and trip a unit is. */
int64_t pd_unit_count(const pd_program *program);
void pd_unit_locate(const pd_program *program, int64_t unit, int *segment, int64_t *trip);

/* Wires that are live at the boundary before `unit` (made by an earlier unit, read by this or a later one), ascending.
 * These are the tensors a pipeline cut there sends. Writes at most PD_MAX_WIRES ids; returns the count. */
int pd_live_wires(const pd_program *program, int64_t unit, int *wires);

/* Offsets for pipeline rank `pp_rank`. The result is one malloc'd block: free with pd_layout_free. */
pd_layout *pd_layout_new(const pd_program *program, const pd_pipeline *pipeline, int pp_rank);
void pd_layout_free(pd_layout *layout);
int64_t pd_layout_bytes(const pd_layout *layout, pd_memory_class kind);
int64_t pd_layout_total(const pd_layout *layout);

/* Gradient buckets of this rank in the order in which they become final: contiguous gradient elements of whole units (a
 * large unit is cut), at most PD_BUCKET_BYTES each. Tied parameters come last, one bucket run each. */
#define PD_BUCKET_BYTES (16 << 20)
typedef struct pd_bucket {
  int chunk;          /* PD_NONE: a tied parameter */
  int64_t unit;       /* the unit whose last W makes it final (the bucket's lowest unit) */
  int param;          /* tied parameter, else PD_NONE */
  int64_t offset;     /* bytes inside the allocation */
  int64_t elements;
} pd_bucket;
int pd_layout_buckets(const pd_layout *layout, const pd_bucket **buckets);

#endif
