/* From syntax to a typed program: names, constants, axes, shapes, sections. */
#ifndef PDC_SEMANTIC_SEMANTIC_H
#define PDC_SEMANTIC_SEMANTIC_H

#include "ir/ir.h"
#include "syntax/ast.h"

typedef enum Recompute { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL } Recompute;
typedef enum Precision { PRECISION_F32, PRECISION_F64, PRECISION_BF16 } Precision;
typedef enum Target { TARGET_HOST, TARGET_CUDA } Target;
typedef enum RateKind { RATE_CONSTANT, RATE_COSINE, RATE_LINEAR, RATE_WSD } RateKind;
typedef enum OptimizerKind { OPTIMIZER_SGD, OPTIMIZER_ADAM, OPTIMIZER_ADAMW, OPTIMIZER_LAMB } OptimizerKind;

typedef struct KeyValue {
  const char *key;   /* dotted, as written */
  const char *value; /* text of a string, a name or a number */
  Span span, value_span;
} KeyValue;

/* All sections, checked, with their defaults. Counts are 64-bit; spans point at the value (or the section) for errors. */
/* Who computes attention in a program for CUDA: what the command line says, and what is known where it is built. */
typedef enum AttentionChoice { ATTENTION_AUTO, ATTENTION_CUDNN, ATTENTION_OWN } AttentionChoice;
typedef struct CudaAttention {
  AttentionChoice choice; /* auto: cuDNN where it can, with kernels of its own beside it */
  bool any_order;         /* sums of the gradient in any order: faster, other bits in every run */
  bool library;           /* this pdc has the runtime for cuDNN */
  int64_t heads[2];       /* the longest that cuDNN takes on every architecture built for: forward, gradient */
} CudaAttention;

typedef struct Config {
  int64_t pp, dp, tp, cp, ep, zero;
  bool dp_open;         /* dp=*: the launch says how many replicas; dp is 1 until a degree is planned (pipeline/degrees.h) */
  bool sequence;
  Span parallel_span, pp_span, dp_span, tp_span;

  const char *schedule; /* "gpipe", "1f1b", … as in the plan; default "1f1b" */
  const char *schedule_why; /* kind=auto: what was chosen and why; NULL until then */
  int64_t microbatch, chunks, accumulators;
  bool chunks_said;     /* in the program or with -D */
  int64_t batch;        /* global batch: the size of the batch axis */
  int64_t microbatches; /* batch / (dp * microbatch) */
  Recompute recompute;
  const char *layout;   /* NULL when absent */
  Span schedule_span, kind_span, microbatch_span, chunks_span, accumulators_span, layout_span;

  OptimizerKind optimizer;
  RateKind rate;
  double peak, floor;
  double warmup, end, decay_from; /* in optimizer steps (tokens converted); wsd: start of the decay */
  bool rate_in_tokens;            /* said in tokens: `end` of 100M or more */
  double beta1, beta2, eps, decay, momentum, clip;

  Precision compute;
  Target target;            /* set by the driver */
  CudaAttention attention;  /* set by the driver */
  VEC(KeyValue) data;       /* train, valid, seed, train.x … as written */
  int64_t seed;             /* data.seed, default 1234 */
  int64_t steps, eval_every, save_every, log_every; /* train < >; 0 = never; steps default 100, log_every 1 */
  VEC(KeyValue) checkpoint;

  /* cluster < >; 0 = not declared */
  double memory;            /* bytes a rank may use */
  double flops;             /* peak FLOP/s of a rank */
  double bandwidth, latency;             /* bytes/s and seconds of a link inside a node */
  double node_bandwidth, node_latency;   /* between nodes */
  int64_t ranks_per_node;
  Span memory_span, cluster_span;
} Config;

typedef struct Define { /* -D name=value, in command-line order */
  const char *name, *value;
} Define;

typedef struct SemanticInput {
  Arena *arena;
  Intern *names;
  Diagnostics *diagnostics;
  const Module *root;
  const char *model;              /* --model=NAME or NULL */
  bool library;                   /* a file without a model will do, if it can be imported */
  const Define *defines; uint32_t define_count;
  const char *const *import_dirs; uint32_t import_dir_count; /* -I …, then the installed library */
  /* The text of a file as its editor has it, or NULL for that on the disk; may be NULL itself. `path` is without links. */
  const char *(*open_text)(void *context, const char *path, size_t *length);
  void *context;
} SemanticInput;

/* What can be written: keys of sections and operations, one by one; section and name NULL beyond the last. */
typedef struct SectionKeyInfo {
  const char *section, *key, *initial, *choices; /* initial, choices ("a|b"): NULL: none */
} SectionKeyInfo;
SectionKeyInfo semantic_key(uint32_t index);
/* `signature`: "x eps=": names of arguments, those with `=` may be left out, `*` takes any number. */
const char *semantic_operation(uint32_t index, const char **signature);

typedef struct Semantic {
  Graph *graph;          /* NULL after errors, and of a library */
  bool library;          /* there is no model, and no section: the file is for others to import */
  Config config;
  VEC(const Module *) modules; /* all files read, root first (for deps, and the resolved text) */
} Semantic;

/* Reads imports and nothing more, so that what they offer is known of a program with syntax errors too. */
void semantic_read_imports(const SemanticInput *input, Semantic *out);
/* Reads imports, evaluates, checks, elaborates. Errors go to diagnostics; false when there was one. Of a library, where
 * that will do, everything is checked that needs no model. */
bool semantic_run(const SemanticInput *input, Semantic *out);

/* `name type value (default …)` lines: --list-config. */
void semantic_list_config(const SemanticInput *input, Text *out);

#endif
