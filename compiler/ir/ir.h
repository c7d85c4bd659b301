/* The typed program: what is computed, on named axes, with loops kept as loops.
 *
 * A Graph is a chain of segments. A segment is a straight list of operations, run `trips` times: a top-level statement
 * of the model is a segment of one trip, a top-level `repeat N` is a segment of N trips whose trips are the units that
 * pipeline partitioning cuts. Between segments (and trips) values travel on wires; a wire that skips segments is
 * relayed by the stages between. Everything is an id into an array of the Graph. */
#ifndef PDC_IR_IR_H
#define PDC_IR_IR_H

#include "support/diag.h"

typedef uint32_t Id;
#define NO_ID UINT32_MAX
#define MAX_RANK 8
#define MAX_INPUTS 6
#define MAX_OUTPUTS 3

typedef VEC(Id) IdVec;

typedef enum Mesh { MESH_NONE, MESH_DP, MESH_TP, MESH_CP, MESH_EP } Mesh;
const char *mesh_name(Mesh mesh);

/* A named axis (`dim embed = …`) or an anonymous one (name NULL). Two axes match when their ids are equal, or when at
 * least one is anonymous and the sizes are equal. An open one matches all but other open ones with a name. */
typedef struct Axis {
  const char *name;
  int64_t size;           /* of the whole model, before any split */
  bool open;              /* size not known: of a generic block that is checked without a call, see axes_match */
  Mesh mesh;              /* split over this mesh axis, from shard < > */
  const char *derivation; /* "heads * head = 96 * 128", NULL for a plain number */
  Span span;
} Axis;

typedef enum DType { DT_REAL, DT_I32 } DType; /* DT_REAL: the compute precision */

typedef enum ValueKind {
  VALUE_OP,    /* result of an operation: ops.at[source].out[output] */
  VALUE_WIRE,  /* arrives on wire `source` */
  VALUE_DATA,  /* model input `source`: every rank reads it itself */
  VALUE_PARAM, /* parameter `source` */
  VALUE_CONST, /* the number `number`; rank 0 */
  VALUE_GRAD   /* gradient that arrives for wire `source` (made by autodiff) */
} ValueKind;

/* A sum over these is still to be done: over tensor-parallel ranks; over samples outside this micro-batch (all
 * micro-batches and replicas; only rank-0 losses and metrics end like this). */
enum { PARTIAL_TP = 1, PARTIAL_BATCH = 2 };

typedef struct Value {
  ValueKind kind;
  DType dtype;
  const char *name; /* for people: the user's name where there is one, else made from the operation */
  Span span;
  uint8_t rank;
  Id axes[MAX_RANK];
  Id source;
  uint8_t output;
  uint8_t partial;  /* filled by distribute/ */
  double number;
  Id segment;       /* segment whose functions see this value; NO_ID for consts */
} Value;

typedef enum OpKind {
#define OP(kind, name, what) OP_##kind,
#include "ir/ops.def"
  OP_COUNT
} OpKind;

typedef struct Op {
  OpKind kind;
  Span span;
  uint8_t in_count, out_count;
  Id in[MAX_INPUTS], out[MAX_OUTPUTS];
  /* CONTRACT and SUM: a label per axis of each operand and of the result; equal labels are the same axis. SUM: label of
   * in[0] axes and of the result. */
  uint8_t label[3][MAX_RANK]; /* [0] in[0], [1] in[1], [2] out[0] */
  /* element-wise: axis of the result at which operand k starts (leading runs 0, trailing runs rank difference) */
  uint8_t offset[2];
  int64_t integer[MAX_RANK]; /* see ops.def. SDPA: [0] causal, [1] group */
  double real[2];            /* LAYERNORM, RMSNORM, BATCHNORM: eps; ROPE: theta; DROPOUT: p; SUM: factor; CONTRACT: unused */
  const char *purpose;       /* DROPOUT: dotted name of the call, what its random numbers are for ("{}" = trip) */
  Id accumulate;             /* parameter into whose gradient out[0] is added (autodiff), else NO_ID */
} Op;

typedef enum InitKind { INIT_NUMBER, INIT_NORMAL, INIT_UNIFORM } InitKind;
typedef struct Init {
  InitKind kind;
  double a, b; /* NUMBER: value a; NORMAL: std a; UNIFORM: [a, b) */
} Init;

typedef struct Param {
  const char *name; /* dotted, unique; "{}" stands for the trip: "layers.{}.attention.wq" */
  Span span;
  uint8_t rank;
  Id axes[MAX_RANK];
  Init init;
  bool frozen;
  bool decay;      /* weight decay applies: rank above 1 */
  bool statistic;  /* a running mean of what its "gradient" collects in a step; no optimizer touches it */
  double momentum; /* STATISTIC: the share of a step in the running mean */
  Id segment;      /* the one segment that uses it, or NO_ID: tied, used by several segments or by a loop from outside */
  bool per_trip;   /* declared inside the loop: one per trip */
  IdVec users;      /* segments that use it, in program order */
} Param;

typedef struct Data { /* a model input */
  const char *name;
  Span span;
  DType dtype;
  uint8_t rank;
  Id axes[MAX_RANK];
  bool ignores; /* targets of an `xent`, which does not count those that are `ignored` */
  int64_t ignored;
  Span ignored_span;
} Data;

typedef struct Wire {
  const char *name;
  Span span;
  uint8_t rank;
  Id axes[MAX_RANK]; /* always DT_REAL; wires never carry partial sums */
  Id from;           /* segment that makes it */
  bool needs_grad;   /* a trainable parameter lies upstream (autodiff) */
} Wire;

typedef struct WireIn {
  Id wire;
  Id value;        /* VALUE_WIRE in this segment */
  uint32_t carried; /* index into outs that the next trip reads instead, or NO_ID: the same in every trip */
} WireIn;
typedef struct WireOut {
  Id wire;  /* after the last trip */
  Id value; /* in this segment */
} WireOut;

typedef struct Segment {
  const char *name; /* C identifier, unique: "embed", "layers", "head"… */
  Span span;
  int64_t trips;
  VEC(WireIn) ins;
  VEC(WireOut) outs;
  IdVec forward;         /* operations in order */
  IdVec input_grad;      /* I: gradients of the wires in (autodiff) */
  IdVec weight_grad;     /* W: gradients of the parameters (autodiff) */
  Id grads_in[16];       /* per outs[k]: VALUE_GRAD that arrives, or NO_ID (autodiff) */
  Id grads_out[16];      /* per ins[k]: value that leaves as its gradient, or NO_ID (autodiff) */
  int64_t flops_f, flops_i, flops_w; /* one sample, one trip, before tensor-parallel split (cost) */
} Segment;
#define MAX_WIRES 16

typedef struct Metric {
  const char *name;
  Id value; /* rank 0 */
} Metric;

typedef struct Graph {
  Arena *arena;
  Intern *names;
  const char *model;
  VEC(Axis) axes;
  VEC(Value) values;
  VEC(Op) ops;
  VEC(Param) params;
  VEC(Data) data;
  VEC(Wire) wires;
  VEC(Segment) segments;
  VEC(Metric) metrics;
  Id batch;      /* the axis that micro-batches and replicas split: the leading axis of the model's inputs */
  Id loss;       /* rank-0 value */
  Span loss_span;
} Graph;

/* `count` operands; returns the op id. Outputs are added by graph_output. */
Id graph_op(Graph *graph, OpKind kind, Span span, const Id *inputs, unsigned count);
/* Adds a result with these axes to an operation; returns its value. */
Id graph_output(Graph *graph, Id op, Id segment, const char *name, unsigned rank, const Id *axes);
Id graph_const(Graph *graph, double number);
bool axes_match(const Graph *graph, Id a, Id b);
const char *op_name(OpKind kind);
bool op_is_elementwise(OpKind kind);
/* Kept in f32 in a bf16 program too: what describes a row (its maximum, its deviation) or a channel, and single numbers. */
bool value_is_wide(const Graph *graph, Id value);
/* A tensor on these axes is a single number. */
bool axes_are_single(const Graph *graph, unsigned rank, const Id *axes);
/* "[batch = 8, seq = 128, embed = 64]" with sizes, for diagnostics; "[batch, seq, embed]" without. */
const char *axes_text(const Graph *graph, unsigned rank, const Id *axes, bool sizes);
/* Every rule above, checked; the first violation as text, or NULL. */
const char *graph_verify(const Graph *graph);
/* Readable text of the whole graph: --emit=ir. */
void graph_print(const Graph *graph, Text *out);
/* The forward pass as a picture for Graphviz: --emit=dot. */
void graph_dot(const Graph *graph, Text *out);

#endif
