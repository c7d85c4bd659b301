/* What an emitted program tells the runtime about itself: segments, wires, parameters, the plan.
 *
 * The compiler fills the same structure in memory, computes layouts on it (layout.h) and prints it as C, so planned and
 * allocated bytes come from one function. Words:
 *   unit        one trip of one segment; units are numbered 0.. in program order; pipeline chunks are unit ranges
 *   wire        a tensor that travels between units; buffers hold one micro-batch, this rank's part
 *   real        the compute precision: 4 or 8 bytes
 * Ranks: world rank = (pp_rank * dp + dp_rank) * tp + tp_rank. */
#ifndef PD_PROGRAM_H
#define PD_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "step.h"

#define PD_MAX_WIRES 16
#define PD_NONE (-1)

/* One call of a segment function: where everything lies for this unit and micro-batch. Arrays are indexed as in the
 * segment's description. */
typedef struct pd_frame {
  void *in[PD_MAX_WIRES];         /* wires in (read only) */
  void *out[PD_MAX_WIRES];        /* wires out: forward writes, gradients may read */
  void *d_out[PD_MAX_WIRES];      /* gradients of the wires out (read only); valid where needs_d_out */
  void *d_in[PD_MAX_WIRES];       /* input_grad overwrites; valid where gives_d_in */
  void *act;                      /* forward writes, gradients read: kept from F to the end of W */
  void *stash;                    /* input_grad writes, weight_grad reads */
  void *scratch;                  /* free to use inside one call */
  const void *weights;            /* the unit's own parameters, at the parameters' offsets */
  void *gradients;                /* their gradients, same offsets; weight_grad adds */
  const void *shared[PD_MAX_WIRES];    /* tied parameters, by index in the segment's list */
  void *shared_gradients[PD_MAX_WIRES]; /* this unit's own accumulator for each */
  const void *const *data;        /* per model input: rows of this micro-batch (int32 or real) */
  double *results;                /* loss at 0, metrics at 1..; forward adds this micro-batch's share */
  const double *inverse_counts;   /* per normaliser: 1 / counted targets of the whole step, or 0 if there are none */
  double batch_scale;             /* global batch / samples really evaluated; 1 in training */
  int64_t samples;                /* valid samples in this micro-batch; microbatch in training */
  int64_t sample0;                /* number of the first sample in the global batch order (dropout) */
  uint64_t step, seed;
  int64_t trip;
  int tp_rank;
  bool training;                  /* false: dropout is the identity, batch normalisation takes its running statistics */
  /* of the cuda target only, whose pointers above are the device's */
  struct pd_device *device;
  void *stream;                    /* cudaStream_t that the unit's work goes to */
  const pd_step_values *values;    /* step where kernels read it, on the device, as inverse_counts are */
  const float *constants;          /* the program's, on the device */
  void *space;                     /* kernel_space bytes: an operation's own while its kernels are at work */
} pd_frame;

typedef void pd_segment_function(const pd_frame *frame);

typedef struct pd_wire_info {
  const char *name;
  int64_t elements; /* of one micro-batch on one rank */
  bool needs_grad;
  bool wide; /* f32 in a bf16 program too: a single number */
} pd_wire_info;

typedef struct pd_segment_info {
  const char *name;
  int64_t trips;
  int in_count, out_count, shared_count;
  int in_wire[PD_MAX_WIRES];
  int in_carried[PD_MAX_WIRES]; /* index into out that the next trip reads instead, or PD_NONE: same in every trip */
  int out_wire[PD_MAX_WIRES];
  bool needs_d_out[PD_MAX_WIRES], gives_d_in[PD_MAX_WIRES];
  int shared[PD_MAX_WIRES];     /* parameter ids */
  int64_t act_bytes, stash_bytes, scratch_bytes; /* one unit; multiples of 64 */
  int64_t tp_elements;          /* elements of the largest single pd_tp_sum or pd_tp_max of any of its functions; 0: none */
  int64_t weight_elements;      /* the unit's own parameters, padded; trained ones first */
  int64_t trained_elements;     /* size of the gradient block: a prefix of the weights */
  bool has_weight_grad;         /* weight_grad does something */
  bool uses_data[PD_MAX_WIRES]; /* model inputs read */
  pd_segment_function *forward, *input_grad, *weight_grad; /* NULL in the compiler */
} pd_segment_info;

typedef enum pd_init { PD_INIT_NUMBER, PD_INIT_NORMAL, PD_INIT_UNIFORM } pd_init;

/* A parameter as the user declared it; with trips it is one tensor per trip, "{}" in its name stands for the trip. */
typedef struct pd_param_info {
  const char *name;
  int rank;
  int64_t shape[PD_MAX_RANK]; /* logical */
  int split_axis;             /* axis divided over tp, or PD_NONE */
  int segment;                /* owner, or PD_NONE: tied (or unused) */
  bool per_trip, frozen, decay;
  /* a running mean of statistics of the samples: what weight_grad adds to its gradient in a step is a sum over
   * micro-batches and replicas, whose mean enters with the weight `momentum`. No optimizer, norm or check sees it. */
  bool statistic;
  double momentum;
  int64_t elements;           /* on one rank */
  int64_t offset;             /* elements, inside the unit's block; 0 for tied ones */
  pd_init init;
  double a, b;                /* NUMBER a; NORMAL std a; UNIFORM [a, b) */
} pd_param_info;

typedef struct pd_data_info {
  const char *name;
  bool is_integer;
  int rank;
  int64_t shape[PD_MAX_RANK];       /* of one sample, logical: the batch axis is left out */
  int64_t elements;                 /* of one sample, on one rank */
  int split_axis;                   /* axis of shape divided over tp, or PD_NONE */
  int64_t limit;                    /* values must lie in 0 .. limit-1 (size of the table or classes they index); 0: no rule */
  bool is_target;                   /* targets of a loss: those that are `ignored` count nowhere */
  int64_t ignored;                  /* becomes PD_IGNORE when it is read */
} pd_data_info;

/* A product of the cuda target: C[m,n] = op(A) op(B), rows packed as in pd_kernels' gemm, `batch` of them one after the
 * other. Element sizes: 4 is f32, 2 is bf16. What a product does on the way: adds a row to its result; adds a row, keeps
 * that and takes its gelu; multiplies by the derivative of gelu at what was kept; sums the rows of B, which are what a row
 * that was added has for a gradient. */
typedef enum pd_epilogue {
  PD_EPILOGUE_NONE,
  PD_EPILOGUE_BIAS,
  PD_EPILOGUE_BIAS_GELU,
  PD_EPILOGUE_GELU_GRAD,
  PD_EPILOGUE_ROW_SUMS
} pd_epilogue;
typedef struct pd_product_plan pd_product_plan;
typedef struct pd_product {
  bool ta, tb, accumulate; /* accumulate: C += */
  int64_t m, n, k, batch;
  int a_bytes, b_bytes, c_bytes;
  pd_epilogue epilogue;
  pd_product_plan *plan; /* made at the start; NULL: this device is faster with kernels of their own for the epilogue */
} pd_product;

/* Attention of the cuda target by cuDNN, forward or its gradient, of packed bf16: q, o [b,s,h,d], k, v [b,t,g,d], and a
 * float lse [b,h,s] between the two. */
typedef struct pd_attention_plan pd_attention_plan;
typedef struct pd_attention {
  int64_t b, s, t, h, g, d; /* samples, queries, keys, heads, key heads, head size */
  bool causal;              /* query i sees keys 0..i (+ t - s) */
  bool gradient;
  bool any_order;           /* the gradient of queries is added up in the order in which blocks come */
  pd_attention_plan *plan;  /* made at the start; NULL: kernels of its own do it */
} pd_attention;

typedef enum pd_optimizer { PD_SGD, PD_ADAM, PD_ADAMW, PD_LAMB } pd_optimizer;
typedef enum pd_rate { PD_RATE_CONSTANT, PD_RATE_COSINE, PD_RATE_LINEAR, PD_RATE_WSD } pd_rate;

typedef struct pd_text_pair { /* key=value of a section, as written */
  const char *key, *value;
} pd_text_pair;

typedef enum pd_target { PD_TARGET_HOST, PD_TARGET_CUDA } pd_target;

/* A data-parallel degree of a program whose dp is left to the launch: what depends on it. */
typedef struct pd_degree {
  int dp, chunks;
  int64_t microbatches;
  int64_t plan_bytes;              /* of the plan's text */
  int64_t packed_at, packed_bytes; /* a zlib stream in the program's packed_plans */
} pd_degree;

typedef struct pd_program {
  const char *model, *compiler; /* "gpt", "pdc 0.1.0" */
  /* dp=*: dp, chunks, microbatches are 0 and plan is NULL until a degree is taken (degrees.h); 0 when the program says its dp */
  int degree_count;
  const pd_degree *degrees;          /* dp ascending */
  const unsigned char *packed_plans;
  const char *plan;             /* canonical JSON, NUL-terminated; NULL in the compiler */
  pd_target target;
  int real_bytes;               /* 2 (bf16, cuda target), 4 or 8 */
  int pp, dp, tp, chunks;       /* chunks: per rank */
  int64_t batch, microbatch, microbatches;
  int64_t tokens_per_sample;    /* elements of one sample of the first integer input of rank 2 or more; else 1 */
  bool tokens_are_samples;      /* true: the log's "tokens" are samples */
  bool recompute;               /* full: activations of a unit are computed again in the gradient */
  int segment_count, wire_count, param_count, data_count, metric_count, normaliser_count;
  const pd_segment_info *segments;
  const pd_wire_info *wires;
  const pd_param_info *params;
  const pd_data_info *data;
  const char *const *metrics;
  const int *normalisers;       /* per normaliser: the data id whose counted targets it divides by */
  int loss_segment;             /* segment that adds the loss */
  /* logits of the loss, for --generate and predictions: real[microbatch * rows_per_sample, classes / tp-split] inside
   * the loss segment's act block; logits_segment PD_NONE when the loss has no class logits */
  int logits_segment;
  int64_t logits_offset;        /* bytes */
  int64_t logits_rows_per_sample, logits_classes; /* logical classes */
  bool logits_split;
  /* the recipe */
  pd_optimizer optimizer;
  double beta1, beta2, eps, decay, momentum, clip; /* clip 0: none */
  pd_rate rate;
  double peak, floor, warmup, end, decay_from; /* in steps */
  int64_t steps, eval_every, save_every, log_every, seed;
  const char *checkpoint_dir, *checkpoint_load; /* checkpoint < >; NULL: none */
  int64_t checkpoint_keep;      /* 0: all */
  bool checkpoint_resume;       /* when there is one */
  int section_data_count;
  const pd_text_pair *section_data; /* data < > */
  double peak_flops;            /* of one rank, as cluster.flops says; 0: not said */
  double forward_flops, step_flops; /* one whole step of the whole program, for MFU */
  /* of the cuda target */
  int64_t product_space;    /* bytes that products may use as they like */
  int64_t product_row;      /* bytes of the longest row that a product with PD_EPILOGUE_ROW_SUMS writes */
  int64_t kernel_space;     /* bytes that one operation's kernels may use as they like */
  int constant_count;
  const float *constants;   /* numbers that kernels want in memory */
  int product_count;
  pd_product *products;
  int attention_count;
  pd_attention *attentions;
  int64_t attention_space;  /* bytes that attention by cuDNN may use; products and attention take turns in one place */
  bool attention_required;  /* there are no kernels of its own for what cuDNN cannot do */
  void (*open_attentions)(struct pd_device *device), (*close_attentions)(struct pd_device *device); /* NULL: none by cuDNN */
  /* of the host target */
  void (*use_kernels)(const char *set); /* selects the kernel set the segment functions call; NULL in the compiler */
} pd_program;

/* The emitted main: parses the command line, starts ranks if needed, trains. Returns the exit code. */
int pd_main(const pd_program *program, int argc, char **argv);

/* Bytes of an element of what is summed over micro-batches or ranks: gradients, moments, and the weights that the
 * optimizer changes. In a bf16 program those are f32, and the weights that the model reads are copies of them. */
static inline int pd_wide_bytes(const pd_program *program) {
  return program->real_bytes < 4 ? 4 : program->real_bytes;
}

/* Bytes of a wire's elements, without padding. */
static inline int64_t pd_wire_data_bytes(const pd_program *program, int wire) {
  const pd_wire_info *info = &program->wires[wire];
  return info->elements * (info->wide ? pd_wide_bytes(program) : program->real_bytes);
}

/* Called by segment functions of the host target. Sums (or maximum) over the tensor-parallel ranks, in place, in rank order: the same bits
 * on every member and for every layout of the other axes. */
void pd_tp_sum_f32(float *x, int64_t n);
void pd_tp_sum_f64(double *x, int64_t n);
void pd_tp_max_f32(float *x, int64_t n);
void pd_tp_max_f64(double *x, int64_t n);
/* y[outer, ranks, n] from every rank's x[outer, n]: the whole of an axis that the ranks share. */
void pd_tp_gather_f32(int64_t outer, int64_t n, const float *x, float *y);
void pd_tp_gather_f64(int64_t outer, int64_t n, const double *x, double *y);

#endif
