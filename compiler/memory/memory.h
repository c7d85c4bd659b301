/* Where every value of a segment lives, to the byte: kept activations, what I keeps for W, scratch inside one call. */
#ifndef PDC_MEMORY_MEMORY_H
#define PDC_MEMORY_MEMORY_H

#include "ir/sizes.h"

typedef enum Place {
  PLACE_NONE,     /* no memory: constants, results nobody reads */
  PLACE_REGISTER, /* lives inside one fused loop */
  PLACE_IN,       /* frame->in[index] */
  PLACE_OUT,      /* frame->out[index] */
  PLACE_D_OUT,    /* frame->d_out[index] */
  PLACE_D_IN,     /* frame->d_in[index] */
  PLACE_ACT,      /* frame->act + offset */
  PLACE_STASH,    /* frame->stash + offset */
  PLACE_SCRATCH,  /* frame->scratch + offset */
  PLACE_WEIGHT,   /* frame->weights + offset elements of parameter */
  PLACE_SHARED,   /* frame->shared[index] */
  PLACE_DATA      /* frame->data[index] */
} Place;

typedef struct Home {
  Place place;
  uint32_t index;
  int64_t offset; /* bytes */
} Home;

typedef enum FunctionKind { FUNCTION_FORWARD, FUNCTION_INPUT_GRAD, FUNCTION_WEIGHT_GRAD, FUNCTION_KINDS } FunctionKind;

typedef struct SegmentMemory {
  int64_t act_bytes, stash_bytes, scratch_bytes;
  int64_t weight_elements, trained_elements;
  IdVec shared;                          /* tied parameters in the order of frame->shared */
  uint32_t *group[FUNCTION_KINDS];       /* per operation of the list: first operation of its fused group (itself if alone) */
} SegmentMemory;

typedef struct MemoryPlan {
  Home *home;               /* per value; aliases (reshape, in-place all-reduce) have their root's home */
  Id *root;                 /* per value: the value whose memory it is */
  SegmentMemory *segments;
  int64_t *param_offset;    /* per parameter: elements inside the unit's block */
} MemoryPlan;

const IdVec *segment_list(const Segment *segment, FunctionKind kind);
MemoryPlan *memory_plan(const Graph *graph, const Config *config);

/* How an operand of an element-wise operation is read inside a loop over rows x cols of the result. */
typedef enum Broadcast { BROADCAST_FULL, BROADCAST_ROW, BROADCAST_COLUMN, BROADCAST_MIDDLE, BROADCAST_SCALAR } Broadcast;
/* ROW: index col (a trailing run, *cols set to its size); COLUMN: index row (a leading run, *cols set to the rest);
 * MIDDLE: index row modulo the operand's size (axes in between, *cols set to what comes after them). */
Broadcast operand_broadcast(const Graph *graph, const Config *config, const Op *op, unsigned operand, int64_t *cols);

#endif
