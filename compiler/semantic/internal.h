/* What the rooms of semantic/ share: symbols, constants, frames, and the draft of the graph.
 *
 * Elaboration writes a draft: a Graph whose operations refer to each other freely, and a list of Drafts that say which
 * operation belongs to which future segment. cut.c then makes the final graph: it drops what nobody uses and turns
 * every reference across segments into a wire.
 *
 * An error is reported once, where it is found; its result is CONST_ERROR, VAL_ERROR or the error axis, and whatever
 * meets one of those is silent. */
#ifndef PDC_SEMANTIC_INTERNAL_H
#define PDC_SEMANTIC_INTERNAL_H

#include "semantic/semantic.h"

typedef struct Sem Sem;
typedef struct Unit Unit;
typedef struct Symbol Symbol;
typedef struct Frame Frame;

/* Interned name -> pointer. */
typedef struct Table {
  const char **keys;
  void **values;
  uint32_t count, capacity;
} Table;
void *table_get(const Table *table, const char *key);
void table_put(Arena *arena, Table *table, const char *key, void *value);

/* ---- constants ---- */
typedef enum ConstKind { CONST_ERROR, CONST_INT, CONST_REAL, CONST_BOOL, CONST_TEXT } ConstKind;
typedef struct Const {
  ConstKind kind;
  int64_t integer; /* INT; BOOL: 0 or 1 */
  double real;     /* REAL */
  const char *text;
} Const;
static inline Const const_int(int64_t value) {
  return (Const){.kind = CONST_INT, .integer = value};
}
static inline Const const_real(double value) {
  return (Const){.kind = CONST_REAL, .real = value};
}
static inline Const const_bool(bool value) {
  return (Const){.kind = CONST_BOOL, .integer = value};
}
static inline Const const_text(const char *text) {
  return (Const){.kind = CONST_TEXT, .text = text};
}
static inline bool const_is_number(Const c) {
  return c.kind == CONST_INT || c.kind == CONST_REAL;
}
static inline double const_number(Const c) {
  return c.kind == CONST_INT ? (double)c.integer : c.real;
}

/* ---- symbols ---- */
typedef enum SymbolKind { SYMBOL_CONST, SYMBOL_DIM, SYMBOL_BLOCK, SYMBOL_MODEL, SYMBOL_IMPORT } SymbolKind;
typedef enum State { STATE_FRESH, STATE_BUSY, STATE_DONE } State;

struct Symbol { /* a name of a source file */
  SymbolKind kind;
  const char *name;
  Span span;
  Unit *unit;
  const Item *item;
  const Expr *value;    /* CONST, DIM: its expression, from -D where given */
  const Expr *declared; /* as in the file */
  bool config, defined; /* CONST: may be set by -D; is */
  State state;
  Const constant;
  Id axis;      /* DIM */
  Unit *import; /* IMPORT */
  bool called;  /* BLOCK: by something that was elaborated */
  bool broken;  /* BLOCK: an error in its body was reported; calls are silent */
};

struct Unit { /* a source file */
  const Module *module;
  const char *path, *directory; /* directory "" for the current one */
  Table symbols;
  VEC(Symbol *) order;
  State state;
};

/* ---- values of expressions ---- */
typedef enum ValKind { VAL_ERROR, VAL_NUMBER, VAL_TENSOR, VAL_TUPLE } ValKind;
typedef struct Val {
  ValKind kind;
  Const number;
  Id value; /* TENSOR: value of the draft */
  struct Val *items;
  uint32_t count;
} Val;
static inline Val val_error(void) {
  return (Val){.kind = VAL_ERROR, .value = NO_ID};
}
static inline Val val_tensor(Id id) {
  return (Val){.kind = VAL_TENSOR, .value = id};
}
static inline Val val_number(Const c) {
  return (Val){.kind = c.kind == CONST_ERROR ? VAL_ERROR : VAL_NUMBER, .number = c, .value = NO_ID};
}

/* ---- frames: one instantiation of a block, or the model ---- */
typedef struct Naming { /* gives dotted names: "layers.{}." */
  const char *prefix;
  Table taken; /* child name -> how often (as a pointer-sized count) */
} Naming;

typedef struct Local {
  const char *name;
  Span span;
  bool is_size;  /* a size `<n>` of the block: axis */
  bool is_value; /* assigned by a statement, or an input */
  Val value;
  Id axis;
  void *shadowed; /* the entry of its name in the frame's table before */
} Local;

typedef struct Seen { /* an expression that was computed in this frame, for hints */
  const Expr *expr;
  Id value;
} Seen;

struct Frame {
  Unit *unit;
  const Symbol *symbol; /* the block or model */
  Frame *caller;
  Span call;
  Naming *naming;
  VEC(Local) locals; /* in order; added and dropped at the end */
  Table local_places; /* name -> its last place in `locals`, from 1 */
  VEC(Seen) seen;
  bool has_run; /* `..` is bound */
  uint32_t run_count;
  Id run[MAX_RANK];
  bool returned;
  Val result;
  Span result_span;
  unsigned depth;
  unsigned loop_depth; /* of the program where this frame was entered */
  unsigned errors;     /* reported before it was entered */
};

/* ---- the draft ---- */
typedef struct Carry { /* a name that a loop assigns and that exists before it */
  const char *name;
  Span span;
  Id before; /* its value before the loop */
  Id copy;   /* the same, as the result of an operation of an earlier segment (differs for inputs and parameters) */
  Id inside; /* VALUE_WIRE placeholder in the loop */
  Id after;  /* its value after a trip; `inside` itself when the loop does not change it */
  Val original;
} Carry;

typedef struct Draft { /* a future segment */
  const char *name;    /* not yet unique */
  Span span;
  int64_t trips;
  bool loop;
  VEC(Id) ops;
  VEC(Carry) carries;
} Draft;

typedef struct SectionKey { /* one key=value of a section, or the default of a key nobody wrote */
  const struct KeyRow *row;
  const Expr *value; /* NULL: default */
  Span span;         /* of the key */
  State state;
  Const constant;
} SectionKey;

typedef struct ShardRule {
  Name name;
  const Expr *value;
  Mesh mesh;
} ShardRule;

struct Sem {
  const SemanticInput *input;
  Arena *arena;
  Intern *names;
  Diagnostics *diagnostics;
  Semantic *out;
  VEC(Unit *) units;
  Unit *root;
  const Symbol *model;
  unsigned const_depth, depth; /* of recursion: constants; expressions and statements */
  uint32_t steps;              /* expressions and statements, each as often as its block is called */

  /* sections */
  const Item *section_item[16]; /* by section index, NULL when absent */
  SectionKey *keys;             /* by row of the key table */
  VEC(ShardRule) shard;
  Span shard_span;
  const Expr *rate; /* lr = … */

  /* trials.c: a block that nothing calls is checked; its errors are taken back at first; it is generic; the errors that
   * numbers decided */
  bool checking, trial, generic;
  DiagList of_numbers;
  uint32_t certain; /* so many reports of the trial are not behind a branch that sizes decide */
  bool rule_in_error; /* of `shard < >`, that of the batch perhaps */
  bool half_read;     /* an imported file has syntax errors: what is missing in it would be told again */
  Table unknown;      /* names reported as unknown: told once */
  Table mistyped;     /* inputs reported as of another type: told once */
  const Frame *frame; /* innermost block being elaborated, NULL: none */

  /* the draft */
  Graph *graph;
  VEC(Draft) drafts;
  Id current;               /* draft that receives operations, or NO_ID: the next operation starts one */
  const char *pending_name; /* of the draft to start */
  Span pending_span;
  unsigned loop_depth; /* inside how many repeats (kept or unrolled) */
  Id loop;             /* the draft of the kept repeat that we are in, or NO_ID */
  unsigned unrolling;
  uint32_t unrolled_ops, unrolled_trips;
  bool unroll_failed;
  bool too_long; /* reported; nothing more is added */
  VEC(uint8_t) batch_sum;  /* per value: a sum over the batch that is complete only after the last micro-batch */
  Id error_axis;
  Id empty_axis; /* of size 0, as was reported for an input; NO_ID: none */
  Id batch;
  bool has_loss;
  bool may_have_loss; /* in a branch whose condition has an error */
};

/* ---- names.c ---- */
/* Begins an error, with a note where the generic block was called whose body is being elaborated. */
Diag *report(const Sem *sem, const char *code, Span span, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Says that an error may be one of the numbers that a size or constant happens to have: for generic blocks that are
 * checked without a call, where these are made up. */
Diag *of_number(Sem *sem, Diag *diag);
/* True the first time that a name is found to be unknown. */
bool first_unknown(Sem *sem, const char *name);
/* True the first time that an input is found to have the wrong type of elements. */
bool first_mistyped(Sem *sem, const char *name);
Symbol *unit_symbol(const Unit *unit, const char *name);
/* Resolves `name` or `module.name` from a unit; NULL when there is none. */
Symbol *find_symbol(Sem *sem, const Unit *unit, const char *dotted);
Local *find_local(Frame *frame, const char *name);
void add_local(Sem *sem, Frame *frame, Local local);
/* Forgets all but the first `count`. */
void drop_locals(Sem *sem, Frame *frame, uint32_t count);
/* Best spelling among candidates, for "did you mean". */
typedef struct Spelling {
  const char *wanted, *best;
  unsigned distance;
} Spelling;
Spelling spelling_of(const char *wanted);
void spelling_try(Spelling *spelling, const char *candidate);
void spelling_help(const Spelling *spelling, Diag *diag);
/* For names that other languages have: what it is called here. */
void alias_help(const char *name, Diag *diag);
void spelling_symbols(Spelling *spelling, const Unit *unit, unsigned kinds); /* bits 1 << SymbolKind */
void spelling_locals(Spelling *spelling, Frame *frame);
/* The text of an expression as the user wrote it, without surrounding blanks; cut with … above `limit` bytes. */
const char *source_text(const Sem *sem, Span span, size_t limit);
/* "gpt.pd:3:57" */
const char *place_text(const Sem *sem, Span span);
/* The canonical text of a constant expression; with numbers in place of names if `numbers`. */
const char *expr_text(Sem *sem, Unit *unit, Frame *frame, const Expr *expr, bool numbers);
/* "heads * head = 96 * 128"; numbers alone are said once. */
const char *derivation_text(Sem *sem, Unit *unit, Frame *frame, const Expr *expr);
const char *const_kind_name(ConstKind kind);
const char *const_value_text(Sem *sem, Const c);

/* ---- imports.c ---- */
bool load_units(Sem *sem);
/* The name of a block's signature (its sizes, then its inputs) before number `i` that is the same; NULL: none, as it should. */
const Name *earlier_in_signature(const Item *item, uint32_t i);

/* ---- constants.c ---- */
/* Evaluates every const and dim of a unit, in order. */
void evaluate_unit(Sem *sem, Unit *unit);
Const symbol_const(Sem *sem, Symbol *symbol);
Const const_eval(Sem *sem, Unit *unit, Frame *frame, const Expr *expr);
Const const_unary(Sem *sem, const Expr *expr, Const a);
Const const_binary(Sem *sem, const Expr *expr, Const a, Const b);
bool is_const_function(const char *name);
Const const_call(Sem *sem, const Expr *expr, const char *name, const Const *args, uint32_t count);
/* The constant that a name means: local, const, dim, section key. Reports unknown names. */
bool name_const(Sem *sem, Unit *unit, Frame *frame, const Name *name, Const *result);
/* True when the import that this dotted name wants was found to be missing before: told once. */
bool is_told_owner(Sem *sem, const Unit *unit, Frame *frame, const char *dotted);
/* "did you mean `nn.linear`?" for a name that an import of the unit has (bits 1 << SymbolKind); false: none has. */
bool offer_imported(const Unit *unit, const char *name, unsigned kinds, Diag *diag);
void report_unknown_name(Sem *sem, Unit *unit, Frame *frame, const Name *name);
/* An integer or a real where one is needed; reports and returns false otherwise. */
bool eval_integer(Sem *sem, Unit *unit, Frame *frame, const Expr *expr, const char *what, int64_t *result);
bool eval_number(Sem *sem, Unit *unit, Frame *frame, const Expr *expr, const char *what, double *result);

/* ---- axes.c ---- */
Id anonymous_axis(Sem *sem, int64_t size, const char *derivation, Span span);
/* The axis that an expression in a type or an argument means: a dim, a size, or an anonymous axis. */
Id axis_of_expr(Sem *sem, Unit *unit, Frame *frame, const Expr *expr);
bool axis_is_error(const Sem *sem, Id axis);
/* axes_match, and an error axis matches all; an anonymous axis never stands for the batch or a split axis. */
bool same_axis(const Sem *sem, Id a, Id b);
/* Of two that match, the named one. */
Id better_axis(const Sem *sem, Id a, Id b);
bool has_error_axis(const Sem *sem, unsigned rank, const Id *axes);
/* "`embed` = 12288", "48" */
const char *axis_text(const Sem *sem, Id axis);
const char *shape_text(const Sem *sem, Id value);
/* Notes: where a size comes from; why an anonymous axis does not do. Each derivation once per diagnostic. */
void axis_notes(const Sem *sem, Diag *diag, unsigned count, const Id *axes);
void mismatch_help(const Sem *sem, Diag *diag, Id a, Id b);
/* Rank, mesh axes, batch, element count of a tensor to be made. Reports and returns false when it cannot be. */
bool check_tensor(Sem *sem, Span span, const char *what, unsigned rank, const Id *axes);
int64_t mesh_degree(const Sem *sem, Mesh mesh);

/* ---- shard.c ---- */
void read_shard(Sem *sem);
void apply_shard(Sem *sem);
/* Reports that a split axis does not divide, with the numbers that would. */
void does_not_divide(Sem *sem, Span span, const char *name, Id axis);
/* The mesh axis that `block.size=…` gives to a size of a block, and the rule's name as written. */
Mesh shard_of_size(Sem *sem, const Symbol *block, const char *size, const Name **rule);
void check_layout(Sem *sem);
/* Warns of tensor-parallel ranks with nothing to share. Needs the final graph. */
void warn_idle_ranks(Sem *sem);

/* ---- sections.c ---- */
void read_sections(Sem *sem);
void apply_defines(Sem *sem);
/* Once constants can be evaluated: what -D gives is of the declared kind. */
void check_defines(Sem *sem);
/* A section key in an expression: `parallel.tp`. False when there is no such key. */
bool section_const(Sem *sem, const char *dotted, Const *result);
/* The `*` of `parallel < dp=*; >`, which leaves the number of replicas to the launch; NULL when the program says it. */
const Expr *open_degree(const Sem *sem);
void spelling_keys(Spelling *spelling, Sem *sem);
void fill_config(Sem *sem);
void finish_config(Sem *sem);
void list_config(Sem *sem, Text *out);

/* ---- elaborate.c ---- */
void elaborate_model(Sem *sem);
Val call_block(Sem *sem, Frame *caller, Symbol *block, const Expr *expr, uint32_t count, Expr *const *args,
               const Name *arg_names);
const char *naming_child(Sem *sem, Naming *naming, const char *name);

/* ---- convolutions.c ---- */
/* The filter or padding with which the height or width (axis `position`) of `value` would be `wanted`, as help, if it
 * comes from a window over an image. */
void window_help(Sem *sem, Diag *diag, Id value, unsigned position, int64_t wanted);

/* ---- expressions.c ---- */
/* Recursion through expressions, statements and calls is bounded: false, after a report, when it is too deep. A true
 * one is paid back with sem->depth--. */
bool go_deeper(Sem *sem, Span span);
Val eval(Sem *sem, Frame *frame, const Expr *expr);
/* True when an argument says `name == value`. */
bool is_compared(const Expr *given, const char *name);
/* Reports such an argument as a slip for `name=value`; false when `name` is a constant, so that it may be meant. */
bool report_compared(Sem *sem, Frame *frame, const Expr *given);
/* What only an initialiser may say: `normal` … */
bool is_initialiser(const char *name);
/* Reports that a call is of nothing that can be called. */
void report_unknown_call(Sem *sem, Frame *frame, const Expr *expr);

/* ---- operations.c ---- */
bool is_operation(const char *name);
void spelling_operations(Spelling *spelling);
Val call_operation(Sem *sem, Frame *frame, const Expr *expr, uint32_t count, Expr *const *args, const Name *arg_names);

/* ---- draft.c ---- */
/* Adds an operation to the current draft with its first result; checks that result. NULL-safe name: made from the
 * operation. On error reports and returns VAL_ERROR. */
Val emit(Sem *sem, OpKind kind, Span span, const Id *inputs, unsigned count, unsigned rank, const Id *axes);
Op *op_of(Sem *sem, Val result);
void emit_more(Sem *sem, Val result, const char *name, unsigned rank, const Id *axes); /* a further result */
Val emit_binary(Sem *sem, OpKind kind, const Expr *expr, Span operator_span, Val a, const Expr *left, Val b,
                const Expr *right);
Val emit_sum(Sem *sem, Span span, Id x, unsigned axes_mask, double factor);
Val emit_permute(Sem *sem, Span span, Id x, const unsigned *order);
/* Work on a model is bounded: true, after a report, when no operation, parameter or statement can be added. */
bool is_too_long(Sem *sem, Span span);
Id draft_const(Sem *sem, double number);
Value *value_at(Sem *sem, Id id);

/* ---- contract.c ---- */
Val contract_at(Sem *sem, Frame *frame, const Expr *expr, Val a, Val b);
Val einsum(Sem *sem, const Expr *expr, const Expr *spec, const char *text, Val a, const Expr *left, const Val *b,
           const Expr *right);

/* ---- trials.c ---- */
/* Checks a block that nothing calls, as far as that is possible without one. */
void check_uncalled(Sem *sem, Symbol *block);

/* In a trial: what is reported from here on depends on made-up sizes. */
void uncertain_from_here(Sem *sem);

/* ---- unused.c ---- */
/* Checks what the model does not reach; warns of blocks that no model calls. Needs an elaborated model. */
void check_unused(Sem *sem);

/* ---- cut.c ---- */
void cut_segments(Sem *sem);

#endif
