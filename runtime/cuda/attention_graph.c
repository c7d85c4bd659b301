/* Describes attention to cuDNN as a graph of operations. The order of operations is the one that its engines
 * recognise: a graph that computes the same in another order has no engine.
 *
 * Forward, 14 operations: s = q k^T; scale; two index generators, comparison, selection (mask); maximum, difference,
 * exponential, sum, logarithm, lse = sum of both; quotient p; o = p v.
 * Backward, 22: delta = rowsum(do o), times one (where dropout would rescale it), in three; s, scale, mask in 4;
 * p = exp(s - lse) in two; p^T; dv = p^T do; dp = do v^T; ds = (dp - delta) p scale in three; ds^T; dk = ds^T q; k from
 * k^T; dq = ds k in float, then rounded; or 21, with dq as one product.
 */
#include "cuda/attention_graph.h"

#include "cuda/cudnn_library.h"

bool pd_graph_ok(builder *b, cudnnStatus_t status, const char *what) {
  if (b->status == CUDNN_STATUS_SUCCESS && status != CUDNN_STATUS_SUCCESS) b->status = status, b->failed = what;
  return b->status == CUDNN_STATUS_SUCCESS;
}

descriptor pd_graph_make(builder *b, cudnnBackendDescriptorType_t type) {
  descriptor d = NULL;
  if (b->status != CUDNN_STATUS_SUCCESS) return NULL;
  if (b->made_count == MAX_DESCRIPTORS) {
    pd_graph_ok(b, CUDNN_STATUS_INTERNAL_ERROR, "too many descriptors");
    return NULL;
  }
  if (!pd_graph_ok(b, pd_cudnn.cudnnBackendCreateDescriptor(type, &d), "create a descriptor")) return NULL;
  return b->made[b->made_count++] = d;
}

void pd_graph_set(builder *b, descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  int64_t count, const void *value) {
  if (b->status == CUDNN_STATUS_SUCCESS) {
    pd_graph_ok(b, pd_cudnn.cudnnBackendSetAttribute(d, name, type, count, value), "set an attribute");
  }
}

void pd_graph_finish(builder *b, descriptor d, const char *what) {
  if (b->status == CUDNN_STATUS_SUCCESS) pd_graph_ok(b, pd_cudnn.cudnnBackendFinalize(d), what);
}

static void set_int64(builder *b, descriptor d, cudnnBackendAttributeName_t name, int64_t value) {
  pd_graph_set(b, d, name, CUDNN_TYPE_INT64, 1, &value);
}

void pd_graph_set_descriptor(builder *b, descriptor d, cudnnBackendAttributeName_t name, descriptor value) {
  pd_graph_set(b, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void set_data_type(builder *b, descriptor d, cudnnBackendAttributeName_t name, cudnnDataType_t value) {
  pd_graph_set(b, d, name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}

void pd_graph_release(builder *b) {
  for (int i = b->made_count; i-- > 0;) pd_cudnn.cudnnBackendDestroyDescriptor(b->made[i]);
}

/* ---- tensors ---- */

typedef struct extent {
  int64_t size[4], stride[4]; /* batch, head, and the two axes of a matrix */
} extent;

static extent packed(int64_t batch, int64_t head, int64_t rows, int64_t cols) {
  return (extent){{batch, head, rows, cols}, {head * rows * cols, rows * cols, cols, 1}};
}

/* packed [batch, position, head, d] as matrices of positions by d */
static extent positions(int64_t batch, int64_t head, int64_t count, int64_t d) {
  return (extent){{batch, head, count, d}, {count * head * d, d, head * d, 1}};
}

static extent transposed(extent e) {
  const extent t = {{e.size[0], e.size[1], e.size[3], e.size[2]}, {e.stride[0], e.stride[1], e.stride[3], e.stride[2]}};
  return t;
}

static descriptor tensor(builder *b, int64_t name, cudnnDataType_t type, extent e, bool inner, bool by_value) {
  descriptor d = pd_graph_make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  set_data_type(b, d, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  pd_graph_set(b, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, e.size);
  pd_graph_set(b, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, e.stride);
  set_int64(b, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, name);
  set_int64(b, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 16);
  pd_graph_set(b, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inner);
  pd_graph_set(b, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
  pd_graph_finish(b, d, "describe a tensor");
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
  pd_graph_finish(b, d, what);
  if (b->status != CUDNN_STATUS_SUCCESS) return;
  if (b->operation_count == MAX_OPERATIONS)
    pd_graph_ok(b, CUDNN_STATUS_INTERNAL_ERROR, "too many operations");
  else
    b->operation[b->operation_count++] = d;
}

/* y = mode(x, with); with and choose may be NULL. The axis is that of an index generator. */
static descriptor pointwise(builder *b, cudnnPointwiseMode_t mode, descriptor x, descriptor with, descriptor choose,
                            int64_t axis, descriptor y) {
  descriptor how = pd_graph_make(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  pd_graph_set(b, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  set_data_type(b, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  if (mode == CUDNN_POINTWISE_GEN_INDEX) set_int64(b, how, CUDNN_ATTR_POINTWISE_AXIS, axis);
  pd_graph_finish(b, how, "describe an element-wise operation");
  descriptor d = pd_graph_make(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  pd_graph_set_descriptor(b, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  pd_graph_set_descriptor(b, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  if (with != NULL) pd_graph_set_descriptor(b, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, with);
  if (choose != NULL) pd_graph_set_descriptor(b, d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, choose);
  pd_graph_set_descriptor(b, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  add_operation(b, d, "an element-wise operation");
  return y;
}

static descriptor product(builder *b, descriptor left, descriptor right, descriptor result) {
  descriptor how = pd_graph_make(b, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  set_data_type(b, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  pd_graph_finish(b, how, "describe a product");
  descriptor d = pd_graph_make(b, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  pd_graph_set_descriptor(b, d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, left);
  pd_graph_set_descriptor(b, d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, right);
  pd_graph_set_descriptor(b, d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, result);
  pd_graph_set_descriptor(b, d, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
  add_operation(b, d, "a product");
  return result;
}

static descriptor reduction(builder *b, cudnnReduceTensorOp_t kind, descriptor x, descriptor y) {
  descriptor how = pd_graph_make(b, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  pd_graph_set(b, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &kind);
  set_data_type(b, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  pd_graph_finish(b, how, "describe a reduction");
  descriptor d = pd_graph_make(b, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  pd_graph_set_descriptor(b, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
  pd_graph_set_descriptor(b, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
  pd_graph_set_descriptor(b, d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
  add_operation(b, d, "a reduction");
  return y;
}

/* the same elements seen along other strides */
static descriptor reshape(builder *b, descriptor x, descriptor y) {
  descriptor d = pd_graph_make(b, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  pd_graph_set_descriptor(b, d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
  pd_graph_set_descriptor(b, d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
  add_operation(b, d, "a reshape");
  return y;
}

/* ---- the graphs ---- */

static const cudnnDataType_t BF16 = CUDNN_DATA_BFLOAT16, F32 = CUDNN_DATA_FLOAT;

/* scale * q k^T with the places that a query does not see at -infinity */
static descriptor masked_scores(builder *b, const pd_attention *z, descriptor q, descriptor kt, descriptor scale) {
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

static extent queries_of(const pd_attention *z) {
  return positions(z->b, z->h, z->s, z->d);
}

static extent keys_of(const pd_attention *z) {
  return positions(z->b, z->g, z->t, z->d);
}

static void forward_graph(builder *b, const pd_attention *z) {
  const extent scores = packed(z->b, z->h, z->s, z->t), rows = packed(z->b, z->h, z->s, 1);
  descriptor q = outer(b, Q, BF16, queries_of(z)), kt = outer(b, K, BF16, transposed(keys_of(z)));
  descriptor v = outer(b, V, BF16, keys_of(z)), o = outer(b, O, BF16, queries_of(z));
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
static void key_gradient(builder *b, const pd_attention *z, descriptor left, descriptor right, int64_t heads_name,
                         int64_t name) {
  descriptor result = outer(b, name, BF16, keys_of(z));
  if (z->h == z->g) {
    product(b, left, right, result);
  } else {
    reduction(b, CUDNN_REDUCE_TENSOR_ADD,
              product(b, left, right, outer(b, heads_name, BF16, positions(z->b, z->h, z->t, z->d))), result);
  }
}

/* How dq is added up decides which kernels an engine uses: as a product in float outside the graph, blocks add to it as
 * they come; as the product of the graph itself, a second kernel reads ds, kept in the workspace, in a fixed order. */
static void backward_graph(builder *b, const pd_attention *z) {
  const extent scores = packed(z->b, z->h, z->s, z->t), rows = packed(z->b, z->h, z->s, 1);
  const extent queries = queries_of(z);
  descriptor q = outer(b, Q, BF16, queries_of(z)), kt = outer(b, K, BF16, transposed(keys_of(z)));
  descriptor vt = outer(b, V, BF16, transposed(keys_of(z))), o = outer(b, O, BF16, queries);
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
  descriptor k = reshape(b, kt, inner(b, BF16, keys_of(z)));
  descriptor dq = outer(b, DQ, BF16, queries);
  if (z->any_order) {
    descriptor sum = product(b, ds, k, outer(b, DQ_SUM, F32, packed(z->b, z->h, z->s, z->d)));
    pointwise(b, CUDNN_POINTWISE_IDENTITY, sum, NULL, NULL, 0, dq);
  } else {
    product(b, ds, k, dq);
  }
}

void pd_graph_describe(builder *b, const pd_attention *attention) {
  b->inner = FIRST_INNER;
  if (attention->gradient)
    backward_graph(b, attention);
  else
    forward_graph(b, attention);
}
