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
 * These are the tensors a pipeline cut there sends. Writes at most PD_MAX_WIRES ids; returns the count (which may be
 * larger: then the program cannot be cut there). */
int pd_live_wires(const pd_program *program, int64_t unit, int *wires);

/* Offsets for pipeline rank `pp_rank`. The result is one malloc'd block: free with pd_layout_free. */
pd_layout *pd_layout_new(const pd_program *program, const pd_pipeline *pipeline, int pp_rank);
void pd_layout_free(pd_layout *layout);
int64_t pd_layout_bytes(const pd_layout *layout, pd_memory_class kind);
int64_t pd_layout_total(const pd_layout *layout);

/* Gradient buckets of this rank in the order in which they become final: contiguous gradient elements of whole units (a
 * large unit is cut), at most PD_BUCKET_BYTES each, or a multiple of that where a rank would have more than
 * PD_BUCKETS_USUAL of them. Tied parameters come last, one bucket run each. */
#ifndef PD_BUCKET_BYTES /* tests make it small */
#define PD_BUCKET_BYTES (16 << 20)
#endif
#define PD_BUCKETS_USUAL 1024
#define PD_LIBRARY_ALIGNMENT 256 /* cuda target: of the place where cuBLASLt and cuDNN work, in an allocation aligned so */
#define PD_NORM_PARTS 1024 /* cuda target: parts of a sum of squares (templates/cuda/pd_optimizer.cuh) */

typedef struct pd_bucket {
  int chunk;          /* PD_NONE: a tied parameter */
  int64_t unit;       /* the unit whose last W makes it final (the bucket's lowest unit) */
  int param;          /* tied parameter, else PD_NONE */
  int64_t offset;     /* bytes inside the allocation */
  int64_t elements;
} pd_bucket;
int pd_layout_buckets(const pd_layout *layout, const pd_bucket **buckets);

/* Elements of scratch that a sum of n elements over `size` ranks needs (host/reduce.h). */
int64_t pd_sum_scratch(int64_t n, int size);

/* ---- Inside: what the engine walks. ----
 *
 * A chunk's activation slot holds the wires that enter the chunk, every unit's wires out and every unit's act block.
 * Gradients of wires lie in one of the places below; the walk over a chunk's units is always backwards, so a wire with
 * several readers sums their contributions in reverse program order, wherever the pipeline is cut. */

typedef enum pd_home {
  PD_HOME_NONE,     /* there is none */
  PD_HOME_ZERO,     /* the block of zeros */
  PD_HOME_RECEIVED, /* the micro-batch's slot of gradients from the next chunk */
  PD_HOME_SENT,     /* its slot of gradients for the chunk before */
  PD_HOME_INNER,    /* its slot of gradients that stay inside the chunk */
  PD_HOME_TEMP      /* scratch: added to its sum at once, or dropped */
} pd_home;

typedef struct pd_place {
  pd_home home;
  int64_t offset; /* bytes inside the slot or block */
} pd_place;

/* `count` equal slots from byte `base` of the allocation; micro-batch i has slot i % count. */
typedef struct pd_slots {
  int64_t base, bytes, count;
} pd_slots;

typedef struct pd_unit_plan {
  int64_t unit, trip;
  int segment;
  bool backward;                     /* some gradient passes through or ends here */
  int64_t weights, gradients;        /* bytes in the allocation; PD_NONE: nothing (trained) */
  int64_t moments[2];                /* optimizer state, each the size of the gradients; PD_NONE: none */
  int64_t act;                       /* inside the activation slot; PD_NONE: the rank's shared act block (recompute) */
  int64_t stash;                     /* inside the inner slot */
  int64_t in[PD_MAX_WIRES], out[PD_MAX_WIRES]; /* inside the activation slot */
  pd_place d_out[PD_MAX_WIRES];
  pd_place d_in[PD_MAX_WIRES];       /* where input_grad writes */
  pd_place sum[PD_MAX_WIRES];        /* where d_in is added afterwards; PD_HOME_NONE: nowhere */
  int64_t shared[PD_MAX_WIRES], shared_gradients[PD_MAX_WIRES]; /* bytes in the allocation, PD_NONE if frozen */
} pd_unit_plan;

/* One side of a chunk: what passes between it and the chunk before or after. */
typedef struct pd_edge {
  int peer;                            /* pipeline rank of the neighbour; PD_NONE: the model begins or ends here */
  bool local;                          /* the neighbour is on this rank: a copy instead of messages */
  int wire_count, grad_count;          /* wires forward; those that need a gradient backward */
  int wire[PD_MAX_WIRES];
  int64_t wire_at[PD_MAX_WIRES];       /* inside the activation slot */
  int grad_wire[PD_MAX_WIRES];
  int64_t grad_at[PD_MAX_WIRES];       /* inside the slot of received (next) or sent (previous) gradients */
  bool grad_known[PD_MAX_WIRES];       /* false: no later unit gives one, so zeros travel and are not looked at */
  pd_place grad_from[PD_MAX_WIRES];    /* previous: where the finished sum is, copied into the slot unless it is there */
} pd_edge;

typedef struct pd_chunk_plan {
  int chunk;
  int64_t first_unit, unit_count;
  pd_unit_plan *units;
  bool split;                          /* some I and W are separate actions */
  bool backward;                       /* some unit has one */
  int64_t last_weight_action;          /* index in the rank's list of the last B or W; PD_NONE: none */
  int64_t final_action;                /* of the action after which its gradients are final: that one, or with several
                                        * copies of the model the REDUCE_GRAD */
  int64_t gradients, gradient_bytes;   /* of all its units, one after the other */
  pd_edge previous, next;
  pd_slots activations, received, sent, inner;
  int64_t temp_bytes, zero_bytes;
} pd_chunk_plan;

/* A tied parameter that this rank holds. Every unit of the whole program that uses it is a slot with a gradient
 * accumulator of its own on its rank; the gradient is the sum of the slots in unit order. A parameter that nobody uses
 * has one slot without a unit. */
typedef struct pd_tied_slot {
  int64_t unit; /* PD_NONE: no user */
  int chunk, rank;
  int64_t at; /* bytes in the allocation; PD_NONE: on another rank, or frozen */
} pd_tied_slot;
typedef struct pd_tied_plan {
  int param;
  int64_t weights, gradients; /* gradients: this rank's first slot, which gets the sum; PD_NONE: frozen */
  int64_t moments[2];
  int slot_count;
  pd_tied_slot *slots;
  bool used;
} pd_tied_plan;

struct pd_layout {
  int pp_rank;
  int64_t bytes[PD_MEMORY_CLASSES], base[PD_MEMORY_CLASSES];
  int chunk_count, tied_count, bucket_count;
  pd_chunk_plan *chunks;  /* of this rank, ascending */
  pd_tied_plan *tied;     /* ascending parameter id */
  pd_bucket *buckets;
  int64_t versions, version_bytes; /* of this rank's weights; their offsets are those of version 0 */
  int64_t masters; /* of these, that the optimizer has: all, or in a bf16 program without a delay the newest alone */
  int64_t sums, sum_bytes; /* of this rank's gradients: 2 if each half of the micro-batches has one; offsets are those of
                            * the first, which gets the sum of both */
  /* workspace: bytes in the allocation */
  int64_t scratch, act, temp, zero, tensor;
  int64_t tensor_elements;    /* what `tensor` holds */
  int64_t reductions[2];      /* receive space of gradient reductions: two are under way at once */
  int64_t tied_sum[2], tied_receive, tied_piece; /* the last: bytes of a tied gradient exchanged at a time; a second sum
                                                  * only with two accumulators */
  int64_t copy_receive, copy_piece;              /* the same of what two copies of a chunk exchange */
  int64_t master;             /* weights that the optimizer changes: those of the model, or in a bf16 program their f32 */
  /* cuda target: workspace on the device */
  int64_t results, values, counts, squares, partial_squares, constants, libraries, product_row, kernels;
  int64_t lengths;            /* of lamb's tensors and their directions, of whole tensors and of parts: 4 a tensor */
  int64_t rows, rows_bytes;   /* where all data lie */
  int64_t data[PD_MAX_WIRES]; /* rows of all micro-batches, PD_NONE: not read here */
  int64_t data_stride[PD_MAX_WIRES];
};

/* The wire that wire-in `k` of a segment reads in this trip. */
int pd_read_wire(const pd_segment_info *segment, int64_t trip, int k);
/* Bytes of a wire's buffer: its elements, padded to a multiple of 64. */
int64_t pd_wire_bytes(const pd_program *program, int wire);
/* Whether the wire, as it is at the boundary before `unit`, gets a gradient from that unit or a later one. */
bool pd_gradient_produced(const pd_program *program, int64_t unit, int wire);
/* The chunk's buffers inside its slots: fills everything of `plan` but the bases and counts of slots, parameters and
 * peers. first_unit, unit_count, units and split are set by the caller. */
void pd_walk_plan(const pd_program *program, pd_chunk_plan *plan);

#endif
