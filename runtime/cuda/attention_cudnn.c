/* Builds cuDNN's graphs for attention and runs their plans. The order of operations is the one that its engines
 * recognise: a graph that computes the same in another order has no engine.
 *
 * Forward, 14 operations: s = q k^T; scale; two index generators, comparison, selection (mask); maximum, difference,
 * exponential, sum, logarithm, lse = sum of both; quotient p; o = p v.
 * Backward, 22: delta = rowsum(do o), times one (where dropout would rescale it), in three; s, scale, mask in 4;
 * p = exp(s - lse) in two; p^T; dv = p^T do; dp = do v^T; ds = (dp - delta) p scale in three; ds^T; dk = ds^T q; k from
 * k^T; dq = ds k in float, then rounded; or 21, with dq as one product.
 */
#include "cuda/attention_cudnn.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef cudnnBackendDescriptor_t descriptor;

enum { MAX_DESCRIPTORS = 128, MAX_OPERATIONS = 32 };

/* names of the tensors that an execution is given */
enum {
  Q = 1,
  K,
  V,
  O,
  LSE,
  D_O,
  DQ,
  DK,
  DV,
  SCALE,
  LOWEST,
  OFFSET,
  ONE,
  DQ_SUM,
  DELTA,
  DK_HEADS,
  DV_HEADS,
  FIRST_INNER = 100
};

struct pd_attention_plan {
  pd_attention_shape shape;
  bool forward, deterministic;
  descriptor plan;
  int64_t workspace; /* the engine's own; behind it lie delta, the float sums of dq, dk and dv by heads */
  int operations;
};

/* A graph being built. The first thing that goes wrong is kept; what follows is skipped. */
typedef struct builder {
  descriptor made[MAX_DESCRIPTORS], operation[MAX_OPERATIONS];
  int made_count, operation_count;
  int64_t inner; /* the last name given to a tensor that exists inside the graph only */
  cudnnStatus_t status;
  const char *failed;
} builder;

static bool ok(builder *b, cudnnStatus_t status, const char *what) {
  if (b->status == CUDNN_STATUS_SUCCESS && status != CUDNN_STATUS_SUCCESS) b->status = status, b->failed = what;
  return b->status == CUDNN_STATUS_SUCCESS;
}

static descriptor make(builder *b, cudnnBackendDescriptorType_t type) {
  descriptor d = NULL;
  if (b->status != CUDNN_STATUS_SUCCESS) return NULL;
  if (b->made_count == MAX_DESCRIPTORS) {
    ok(b, CUDNN_STATUS_INTERNAL_ERROR, "too many descriptors");
    return NULL;
  }
  if (!ok(b, cudnnBackendCreateDescriptor(type, &d), "create a descriptor")) return NULL;
  return b->made[b->made_count++] = d;
}

static void set(builder *b, descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                int64_t count, const void *value) {
  if (b->status == CUDNN_STATUS_SUCCESS) {
    ok(b, cudnnBackendSetAttribute(d, name, type, count, value), "set an attribute");
  }
}

static void finish(builder *b, descriptor d, const char *what) {
  if (b->status == CUDNN_STATUS_SUCCESS) ok(b, cudnnBackendFinalize(d), what);
}

static void set_int64(builder *b, descriptor d, cudnnBackendAttributeName_t name, int64_t value) {
  set(b, d, name, CUDNN_TYPE_INT64, 1, &value);
}

static void set_descriptor(builder *b, descriptor d, cudnnBackendAttributeName_t name, descriptor value) {
  set(b, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void set_data_type(builder *b, descriptor d, cudnnBackendAttributeName_t name, cudnnDataType_t value) {
  set(b, d, name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}

/* ---- tensors ---- */

typedef struct extent {
  int64_t size[4], stride[4]; /* batch, head, and the two axes of a matrix */
} extent;

static extent packed(int64_t batch, int64_t head, int64_t rows, int64_t cols) {
  return (extent){{batch, head, rows, cols}, {head * rows * cols, rows * cols, cols, 1}};
}

/* [batch, position, head, d] as matrices of positions by d */
static extent positions(int64_t batch, int64_t head, int64_t count, int64_t d, int64_t step) {
  return (extent){{batch, head, count, d}, {count * step, d, step, 1}};
}

static extent transposed(extent e) {
  const extent t = {{e.size[0], e.size[1], e.size[3], e.size[2]}, {e.stride[0], e.stride[1], e.stride[3], e.stride[2]}};
  return t;
}

static descriptor tensor(builder *b, int64_t name, cudnnDataType_t type, extent e, bool inner, bool by_value) {
  descriptor d = make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  set_data_type(b, d, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  set(b, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, e.size);
  set(b, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, e.stride);
  set_int64(b, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, name);
  set_int64(b, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 16);
  set(b, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inner);
  set(b, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
  finish(b, d, "describe a tensor");
  return d;
}

static descriptor outer(builder *b, int64_t name, cudnnDataType_t type, extent e) {
  return tensor(b, name, type, e, false, false);
}

static descriptor inner(builder *b, cudnnDataType_t type, extent e) {
  return tensor(b, b->inner++, type, e, true, false);
}

/* a number that is given with the execution, from host memory */
static descriptor number(builder *b, int64_t name, cudnnDataType_t type) {
  return tensor(b, name, type, packed(1, 1, 1, 1), false, true);
}

/* ---- operations ---- */

static void add_operation(builder *b, descriptor d, const char *what) {
  finish(b, d, what);
  if (b->status != CUDNN_STATUS_SUCCESS) return;
  if (b->operation_count == MAX_OPERATIONS)
    ok(b, CUDNN_STATUS_INTERNAL_ERROR, "too many operations");
  else
    b->operation[b->operation_count++] = d;
}

/* y = mode(x, with); with and choose may be NULL. The axis is that of an index generator. */
static descriptor pointwise(builder *b, cudnnPointwiseMode_t mode, descriptor x, descriptor with, descriptor choose,
                            int64_t axis, descriptor y) {
  descriptor how = make(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  set(b, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  set_data_type(b, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  if (mode == CUDNN_POINTWISE_GEN_INDEX) set_int64(b, how, CUDNN_ATTR_POINTWISE_AXIS, axis);
  finish(b, how, "describe an element-wise operation");
  descriptor d = make(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set_descriptor(b, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  set_descriptor(b, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  if (with != NULL) set_descriptor(b, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, with);
  if (choose != NULL) set_descriptor(b, d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, choose);
  set_descriptor(b, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  add_operation(b, d, "an element-wise operation");
  return y;
}

static descriptor product(builder *b, descriptor left, descriptor right, descriptor result) {
  descriptor how = make(b, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  set_data_type(b, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  finish(b, how, "describe a product");
  descriptor d = make(b, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  set_descriptor(b, d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, left);
  set_descriptor(b, d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, right);
  set_descriptor(b, d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, result);
  set_descriptor(b, d, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
  add_operation(b, d, "a product");
  return result;
}

static descriptor reduction(builder *b, cudnnReduceTensorOp_t kind, descriptor x, descriptor y) {
  descriptor how = make(b, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  set(b, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &kind);
  set_data_type(b, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  finish(b, how, "describe a reduction");
  descriptor d = make(b, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  set_descriptor(b, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
  set_descriptor(b, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
  set_descriptor(b, d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
  add_operation(b, d, "a reduction");
  return y;
}

/* the same elements seen along other strides */
static descriptor reshape(builder *b, descriptor x, descriptor y) {
  descriptor d = make(b, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  set_descriptor(b, d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
  set_descriptor(b, d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
  add_operation(b, d, "a reshape");
  return y;
}

/* ---- the graphs ---- */

static const cudnnDataType_t BF16 = CUDNN_DATA_BFLOAT16, F32 = CUDNN_DATA_FLOAT;

/* scale * q k^T with the places that a query does not see at -infinity */
static descriptor masked_scores(builder *b, const pd_attention_shape *z, descriptor q, descriptor kt,
                                descriptor scale) {
  const extent scores = packed(z->b, z->h, z->s, z->t);
  descriptor s = product(b, q, kt, inner(b, F32, scores));
  s = pointwise(b, CUDNN_POINTWISE_MUL, s, scale, NULL, 0, inner(b, F32, scores));
  if (!z->causal) return s;
  descriptor row = pointwise(b, CUDNN_POINTWISE_GEN_INDEX, s, NULL, NULL, 2, inner(b, CUDNN_DATA_INT32, scores));
  if (z->t != z->s) {
    row = pointwise(b, CUDNN_POINTWISE_ADD, row, number(b, OFFSET, CUDNN_DATA_INT32), NULL, 0,
                    inner(b, CUDNN_DATA_INT32, scores));
  }
  descriptor column = pointwise(b, CUDNN_POINTWISE_GEN_INDEX, s, NULL, NULL, 3, inner(b, CUDNN_DATA_INT32, scores));
  descriptor seen = pointwise(b, CUDNN_POINTWISE_CMP_GE, row, column, NULL, 0, inner(b, CUDNN_DATA_BOOLEAN, scores));
  return pointwise(b, CUDNN_POINTWISE_BINARY_SELECT, s, number(b, LOWEST, F32), seen, 0, inner(b, F32, scores));
}

static extent queries_of(const pd_attention_shape *z, int64_t step) {
  return positions(z->b, z->h, z->s, z->d, step != 0 ? step : z->h * z->d);
}

static extent keys_of(const pd_attention_shape *z, int64_t step) {
  return positions(z->b, z->g, z->t, z->d, step != 0 ? step : z->g * z->d);
}

static void forward_graph(builder *b, const pd_attention_shape *z) {
  const extent scores = packed(z->b, z->h, z->s, z->t), rows = packed(z->b, z->h, z->s, 1);
  descriptor q = outer(b, Q, BF16, queries_of(z, z->q_step)), kt = outer(b, K, BF16, transposed(keys_of(z, z->k_step)));
  descriptor v = outer(b, V, BF16, keys_of(z, z->v_step)), o = outer(b, O, BF16, queries_of(z, 0));
  descriptor s = masked_scores(b, z, q, kt, number(b, SCALE, F32));
  descriptor most = reduction(b, CUDNN_REDUCE_TENSOR_MAX, s, inner(b, F32, rows));
  descriptor below = pointwise(b, CUDNN_POINTWISE_SUB, s, most, NULL, 0, inner(b, F32, scores));
  descriptor e = pointwise(b, CUDNN_POINTWISE_EXP, below, NULL, NULL, 0, inner(b, F32, scores));
  descriptor sum = reduction(b, CUDNN_REDUCE_TENSOR_ADD, e, inner(b, F32, rows));
  descriptor log_sum = pointwise(b, CUDNN_POINTWISE_LOG, sum, NULL, NULL, 0, inner(b, F32, rows));
  pointwise(b, CUDNN_POINTWISE_ADD, most, log_sum, NULL, 0, outer(b, LSE, F32, rows));
  descriptor p = pointwise(b, CUDNN_POINTWISE_DIV, e, sum, NULL, 0, inner(b, BF16, scores));
  product(b, p, v, o);
}

/* left^T right for every query head; where query heads share a key head, their results are added in a second step */
static void key_gradient(builder *b, const pd_attention_shape *z, descriptor left, descriptor right, int64_t heads_name,
                         int64_t name) {
  descriptor result = outer(b, name, BF16, keys_of(z, 0));
  if (z->h == z->g) {
    product(b, left, right, result);
  } else {
    reduction(b, CUDNN_REDUCE_TENSOR_ADD,
              product(b, left, right, outer(b, heads_name, BF16, positions(z->b, z->h, z->t, z->d, z->h * z->d))),
              result);
  }
}

/* How dq is added up decides which kernels an engine uses: as a product in float outside the graph, blocks add to it as
 * they come; as the product of the graph itself, a second kernel reads ds, kept in the workspace, in a fixed order. */
static void backward_graph(builder *b, const pd_attention_shape *z, bool deterministic) {
  const extent scores = packed(z->b, z->h, z->s, z->t), rows = packed(z->b, z->h, z->s, 1);
  const extent queries = queries_of(z, 0);
  descriptor q = outer(b, Q, BF16, queries_of(z, z->q_step)), kt = outer(b, K, BF16, transposed(keys_of(z, z->k_step)));
  descriptor vt = outer(b, V, BF16, transposed(keys_of(z, z->v_step))), o = outer(b, O, BF16, queries);
  descriptor d_o = outer(b, D_O, BF16, queries), lse = outer(b, LSE, F32, rows), scale = number(b, SCALE, F32);
  descriptor delta = pointwise(b, CUDNN_POINTWISE_MUL, d_o, o, NULL, 0, inner(b, F32, packed(z->b, z->h, z->s, z->d)));
  delta = reduction(b, CUDNN_REDUCE_TENSOR_ADD, delta, inner(b, F32, rows));
  delta = pointwise(b, CUDNN_POINTWISE_MUL, delta, number(b, ONE, F32), NULL, 0, outer(b, DELTA, F32, rows));
  descriptor s = masked_scores(b, z, q, kt, scale);
  s = pointwise(b, CUDNN_POINTWISE_SUB, s, lse, NULL, 0, inner(b, F32, scores));
  descriptor p = pointwise(b, CUDNN_POINTWISE_EXP, s, NULL, NULL, 0, inner(b, BF16, scores));
  descriptor pt = reshape(b, p, inner(b, BF16, transposed(scores)));
  key_gradient(b, z, pt, d_o, DV_HEADS, DV);
  descriptor ds = product(b, d_o, vt, inner(b, F32, scores));
  ds = pointwise(b, CUDNN_POINTWISE_SUB, ds, delta, NULL, 0, inner(b, F32, scores));
  ds = pointwise(b, CUDNN_POINTWISE_MUL, ds, p, NULL, 0, inner(b, F32, scores));
  ds = pointwise(b, CUDNN_POINTWISE_MUL, ds, scale, NULL, 0, inner(b, BF16, scores));
  descriptor dst = reshape(b, ds, inner(b, BF16, transposed(scores)));
  key_gradient(b, z, dst, q, DK_HEADS, DK);
  descriptor k = reshape(b, kt, inner(b, BF16, keys_of(z, z->k_step)));
  descriptor dq = outer(b, DQ, BF16, queries);
  if (deterministic) {
    product(b, ds, k, dq);
  } else {
    descriptor sum = product(b, ds, k, outer(b, DQ_SUM, F32, packed(z->b, z->h, z->s, z->d)));
    pointwise(b, CUDNN_POINTWISE_IDENTITY, sum, NULL, NULL, 0, dq);
  }
}

/* ---- plans ---- */

static void reason(builder *b, char *why, size_t size) {
  char text[512] = "";
  cudnnGetLastErrorString(text, sizeof text);
  snprintf(why, size, "cuDNN could not %s: %s%s%s", b->failed != NULL ? b->failed : "go on",
           cudnnGetErrorString(b->status), text[0] != 0 ? ": " : "", text);
}

static void release(builder *b) {
  for (int i = b->made_count; i-- > 0;) cudnnBackendDestroyDescriptor(b->made[i]);
}

static descriptor device_of(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                            const void *value, char *why, size_t why_size) {
  builder b = {.status = CUDNN_STATUS_SUCCESS};
  descriptor d = make(&b, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  set(&b, d, name, type, count, value);
  finish(&b, d, "take the description of the device");
  if (b.status == CUDNN_STATUS_SUCCESS) return d;
  reason(&b, why, why_size);
  release(&b);
  return NULL;
}

cudnnBackendDescriptor_t pd_attention_device(cudnnHandle_t handle, char *why, size_t why_size) {
  return device_of(CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle, why, why_size);
}

cudnnBackendDescriptor_t pd_attention_device_described(const char *json, char *why, size_t why_size) {
  return device_of(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(json) + 1, json, why,
                   why_size);
}

/* The engine of a configuration gives other bits in another run. */
static bool timing_dependent(builder *b, descriptor configuration) {
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  int64_t count = 0;
  descriptor engine = make(b, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  if (engine == NULL) return true;
  if (!ok(b,
          cudnnBackendGetAttribute(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                   &engine),
          "look at an engine") ||
      !ok(b,
          cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                   CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes),
          "look at an engine's notes")) {
    return true;
  }
  for (int64_t i = 0; i < count; i++) {
    if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return true;
  }
  return false;
}

/* The first of the heuristic's configurations that can be built, and whose engine does not say of itself that it
 * depends on timing if that is not wanted. */
static void choose_plan(builder *b, descriptor device, bool deterministic, pd_attention_plan *plan) {
  descriptor graph = make(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set(b, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, b->operation_count, b->operation);
  finish(b, graph, "understand the graph");
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  descriptor heuristic = make(b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  set_descriptor(b, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  set(b, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  set_descriptor(b, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
  finish(b, heuristic, "find an engine");
  enum { MOST = 16 };
  descriptor configuration[MOST];
  for (int i = 0; i < MOST; i++) configuration[i] = make(b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  int64_t count = 0;
  if (b->status != CUDNN_STATUS_SUCCESS ||
      !ok(b,
          cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST,
                                   &count, configuration),
          "find an engine")) {
    return;
  }
  for (int64_t i = 0; i < count && plan->plan == NULL; i++) {
    const bool varies = timing_dependent(b, configuration[i]);
    if (b->status != CUDNN_STATUS_SUCCESS) return;
    if (varies && deterministic) continue;
    descriptor d = NULL;
    if (!ok(b, cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &d), "create a descriptor"))
      return;
    if (cudnnBackendSetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                 &configuration[i]) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendSetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device) ==
            CUDNN_STATUS_SUCCESS &&
        cudnnBackendFinalize(d) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendGetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, NULL,
                                 &plan->workspace) == CUDNN_STATUS_SUCCESS) {
      plan->plan = d;
    } else {
      cudnnBackendDestroyDescriptor(d);
    }
  }
  if (plan->plan == NULL)
    ok(b, CUDNN_STATUS_NOT_SUPPORTED,
       deterministic ? "find an engine whose sums do not depend on timing" : "find an engine");
}

pd_attention_plan *pd_attention_plan_make(cudnnBackendDescriptor_t device, const pd_attention_shape *shape,
                                          bool forward, bool deterministic, char *why, size_t why_size) {
  pd_attention_plan *plan = calloc(1, sizeof *plan);
  builder *b = calloc(1, sizeof *b);
  if (plan == NULL || b == NULL) {
    snprintf(why, why_size, "out of memory");
    free(plan);
    free(b);
    return NULL;
  }
  b->status = CUDNN_STATUS_SUCCESS;
  b->inner = FIRST_INNER;
  plan->shape = *shape;
  plan->forward = forward;
  plan->deterministic = deterministic || forward;
  if (forward)
    forward_graph(b, shape);
  else
    backward_graph(b, shape, deterministic);
  plan->operations = b->operation_count;
  choose_plan(b, device, deterministic, plan);
  if (b->status != CUDNN_STATUS_SUCCESS) {
    reason(b, why, why_size);
    pd_attention_plan_free(plan);
    plan = NULL;
  }
  release(b);
  free(b);
  return plan;
}

void pd_attention_plan_free(pd_attention_plan *plan) {
  if (plan == NULL) return;
  if (plan->plan != NULL) cudnnBackendDestroyDescriptor(plan->plan);
  free(plan);
}

static int64_t rounded(int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

static int64_t delta_bytes(const pd_attention_shape *z) {
  return rounded(z->b * z->h * z->s * (int64_t)sizeof(float));
}

/* the float sums of dq, if blocks add to them */
static int64_t sum_bytes(const pd_attention_plan *plan) {
  const pd_attention_shape *z = &plan->shape;
  return plan->deterministic ? 0 : rounded(z->b * z->h * z->s * z->d * (int64_t)sizeof(float));
}

/* dk, and dv, of every query head, if heads share keys */
static int64_t heads_bytes(const pd_attention_plan *plan) {
  const pd_attention_shape *z = &plan->shape;
  return z->h == z->g ? 0 : rounded(z->b * z->h * z->t * z->d * 2);
}

int64_t pd_attention_workspace(const pd_attention_plan *plan) {
  const int64_t own = rounded(plan->workspace);
  return plan->forward ? own : own + delta_bytes(&plan->shape) + sum_bytes(plan) + 2 * heads_bytes(plan);
}

int pd_attention_operations(const pd_attention_plan *plan) {
  return plan->operations;
}

bool pd_attention_deterministic(const pd_attention_plan *plan) {
  return plan->deterministic;
}

/* ---- execution ---- */

typedef struct operands {
  int64_t name[20];
  void *at[20];
  int count;
} operands;

static void give(operands *o, int64_t name, const void *at) {
  o->name[o->count] = name;
  memcpy(&o->at[o->count], &at, sizeof at); /* cuDNN takes inputs as void *, too */
  o->count++;
}

static cudnnStatus_t execute(const pd_attention_plan *plan, cudnnHandle_t handle, operands *o, void *workspace) {
  const pd_attention_shape *z = &plan->shape;
  const float scale = (float)(1 / sqrt((double)z->d)), lowest = -INFINITY, one = 1;
  const int32_t offset = (int32_t)(z->t - z->s);
  give(o, SCALE, &scale);
  if (!plan->forward) give(o, ONE, &one);
  if (z->causal) give(o, LOWEST, &lowest);
  if (z->causal && z->t != z->s) give(o, OFFSET, &offset);
  descriptor pack = NULL;
  cudnnStatus_t status = cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, o->count, o->name);
  if (status == CUDNN_STATUS_SUCCESS)
    status =
        cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, o->count, o->at);
  if (status == CUDNN_STATUS_SUCCESS)
    status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  if (status == CUDNN_STATUS_SUCCESS) status = cudnnBackendFinalize(pack);
  if (status == CUDNN_STATUS_SUCCESS) status = cudnnBackendExecute(handle, plan->plan, pack);
  cudnnBackendDestroyDescriptor(pack);
  return status;
}

cudnnStatus_t pd_attention_forward(const pd_attention_plan *plan, cudnnHandle_t handle, const void *q, const void *k,
                                   const void *v, void *o, float *lse, void *workspace) {
  if (!plan->forward) return CUDNN_STATUS_BAD_PARAM;
  operands given = {.count = 0};
  give(&given, Q, q);
  give(&given, K, k);
  give(&given, V, v);
  give(&given, O, o);
  give(&given, LSE, lse);
  return execute(plan, handle, &given, workspace);
}

cudnnStatus_t pd_attention_backward(const pd_attention_plan *plan, cudnnHandle_t handle, const void *q, const void *k,
                                    const void *v, const void *o, const float *lse, const void *d_o, void *dq, void *dk,
                                    void *dv, void *workspace) {
  if (plan->forward) return CUDNN_STATUS_BAD_PARAM;
  char *const delta = (char *)workspace + rounded(plan->workspace), *const sum = delta + delta_bytes(&plan->shape);
  char *const heads = sum + sum_bytes(plan);
  cudaStream_t stream = NULL;
  cudnnStatus_t status = cudnnGetStream(handle, &stream);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (sum_bytes(plan) > 0 && cudaMemsetAsync(sum, 0, (size_t)sum_bytes(plan), stream) != cudaSuccess) {
    return CUDNN_STATUS_EXECUTION_FAILED;
  }
  operands given = {.count = 0};
  give(&given, Q, q);
  give(&given, K, k);
  give(&given, V, v);
  give(&given, O, o);
  give(&given, LSE, lse);
  give(&given, D_O, d_o);
  give(&given, DQ, dq);
  give(&given, DK, dk);
  give(&given, DV, dv);
  give(&given, DELTA, delta);
  if (sum_bytes(plan) > 0) give(&given, DQ_SUM, sum);
  if (heads_bytes(plan) > 0) {
    give(&given, DK_HEADS, heads);
    give(&given, DV_HEADS, heads + heads_bytes(plan));
  }
  return execute(plan, handle, &given, workspace);
}
