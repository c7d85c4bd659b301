/* cublasLtMatmul on the CPU: the rules that cuBLASLt states for its arguments are checked, then the product is computed
 * in float by a BLAS and the epilogue element by element; bf16 inputs are exact in float, results are rounded to their
 * type once. */
#include "objects.h"

#include "../fake.h"

#include <cblas.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace fake_lt {
namespace {

const uint64_t algorithm_mark = 0x70646c7400000001;
const uint64_t workspace_used = 64 << 10; /* what the fake algorithms ask for, if they may have that much */

struct epilogue {
  uint32_t kind;
  bool bias, gelu, relu, aux_out, aux_in, bgrad; /* bgrad: sums of D's columns */
  int bgrad_of;                                  /* 'A', 'B' or 0: sums of an input over k */
};

bool read_epilogue(uint32_t kind, epilogue *e) {
  *e = epilogue();
  e->kind = kind;
  switch (kind) {
  case CUBLASLT_EPILOGUE_DEFAULT:
    return true;
  case CUBLASLT_EPILOGUE_RELU_BIAS:
    e->bias = true;
    [[fallthrough]];
  case CUBLASLT_EPILOGUE_RELU:
    e->relu = true;
    return true;
  case CUBLASLT_EPILOGUE_BIAS:
    e->bias = true;
    return true;
  case CUBLASLT_EPILOGUE_GELU_BIAS:
    e->bias = true;
    [[fallthrough]];
  case CUBLASLT_EPILOGUE_GELU:
    e->gelu = true;
    return true;
  case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    e->bias = true;
    [[fallthrough]];
  case CUBLASLT_EPILOGUE_GELU_AUX:
    e->gelu = e->aux_out = true;
    return true;
  case CUBLASLT_EPILOGUE_DGELU_BGRAD:
    e->bgrad = true;
    [[fallthrough]];
  case CUBLASLT_EPILOGUE_DGELU:
    e->aux_in = true;
    return true;
  case CUBLASLT_EPILOGUE_BGRADA:
    e->bgrad_of = 'A';
    return true;
  case CUBLASLT_EPILOGUE_BGRADB:
    e->bgrad_of = 'B';
    return true;
  default:
    return false;
  }
}

/* one product, as its run needs it */
struct product {
  desc d;
  layout a, b, c, out;
  const void *pa, *pb, *pc;
  void *pout, *workspace;
  uint64_t workspace_bytes;
  float alpha, beta;
};

cublasStatus_t refuse(const char *call, cublasStatus_t status, const char *why) {
  fake_explain(call, "%s", why);
  return status;
}

/* the shapes and types of a product, before there are pointers */
cublasStatus_t check_problem(const char *call, const desc &d, const layout &a, const layout &b, const layout &c,
                             const layout &out) {
  const cublasStatus_t invalid = CUBLAS_STATUS_INVALID_VALUE, unsupported = CUBLAS_STATUS_NOT_SUPPORTED;
  epilogue e;
  if (d.compute != CUBLAS_COMPUTE_32F && d.compute != CUBLAS_COMPUTE_32F_FAST_TF32 &&
      d.compute != CUBLAS_COMPUTE_32F_PEDANTIC)
    return refuse(call, unsupported, "the fake computes in 32F only");
  if (d.scale != CUDA_R_32F) return refuse(call, unsupported, "alpha and beta of a 32F product must be CUDA_R_32F");
  if (d.pointer_mode != CUBLASLT_POINTER_MODE_HOST)
    return refuse(call, unsupported, "alpha and beta must be on the host");
  if ((d.trans_a != CUBLAS_OP_N && d.trans_a != CUBLAS_OP_T) ||
      (d.trans_b != CUBLAS_OP_N && d.trans_b != CUBLAS_OP_T) || d.trans_c != CUBLAS_OP_N)
    return refuse(call, unsupported, "transposes must be N or T, and N for C");
  if (!read_epilogue(d.epilogue, &e)) return refuse(call, unsupported, "the fake does not know this epilogue");
  for (const layout *l : {&a, &b, &c, &out}) {
    if (!type_bytes(l->type) || l->type == CUDA_R_64F) return refuse(call, unsupported, "matrices must be 32F or 16BF");
    if (l->order != CUBLASLT_ORDER_COL) return refuse(call, unsupported, "matrices must be in column order");
    if (l->rows == 0 || l->cols == 0) return refuse(call, invalid, "a matrix is empty");
    if (l->ld < (int64_t)l->rows) return refuse(call, invalid, "a leading dimension is smaller than the matrix's rows");
    if (l->batch != out.batch || l->batch < 1) return refuse(call, invalid, "batch counts differ");
  }
  uint64_t m = d.trans_a == CUBLAS_OP_N ? a.rows : a.cols, k = d.trans_a == CUBLAS_OP_N ? a.cols : a.rows;
  uint64_t kb = d.trans_b == CUBLAS_OP_N ? b.rows : b.cols, n = d.trans_b == CUBLAS_OP_N ? b.cols : b.rows;
  if (k != kb || out.rows != m || out.cols != n || c.rows != m || c.cols != n) {
    fake_explain(call, "shapes do not fit: op(A) is %llu x %llu, op(B) %llu x %llu, C %llu x %llu, D %llu x %llu",
                 (unsigned long long)m, (unsigned long long)k, (unsigned long long)kb, (unsigned long long)n,
                 (unsigned long long)c.rows, (unsigned long long)c.cols, (unsigned long long)out.rows,
                 (unsigned long long)out.cols);
    return invalid;
  }
  bool half = a.type == CUDA_R_16BF;
  if (a.type != b.type || c.type != out.type || (!half && out.type != CUDA_R_32F))
    return refuse(call, unsupported, "types must be A = B and C = D; D of 32F inputs is 32F");
  if ((e.bias || e.bgrad || e.bgrad_of) && d.bias_type >= 0 && d.bias_type != out.type)
    return refuse(call, unsupported, "the bias must have the type of D");
  if ((e.aux_in || e.aux_out) && d.aux_type >= 0 && d.aux_type != out.type)
    return refuse(call, unsupported, "the auxiliary matrix must have the type of D");
  if ((e.aux_in || e.aux_out) && (d.aux_ld < (int64_t)m || d.aux_ld % 8))
    return refuse(call, invalid, "the auxiliary leading dimension must be a multiple of 8, and not below D's rows");
  return CUBLAS_STATUS_SUCCESS;
}

void mix(uint64_t *hash, uint64_t value) {
  for (int i = 0; i < 8; i++) *hash = (*hash ^ (value >> 8 * i & 255)) * 0x100000001b3;
}

/* what an algorithm depends on: everything but addresses and factors */
uint64_t hash_problem(const desc &d, const layout &a, const layout &b, const layout &c, const layout &out) {
  uint64_t hash = 0xcbf29ce484222325;
  for (int64_t v : {(int64_t)d.compute, (int64_t)d.trans_a, (int64_t)d.trans_b, (int64_t)d.epilogue, d.aux_ld})
    mix(&hash, (uint64_t)v);
  for (const layout *l : {&a, &b, &c, &out})
    for (int64_t v : {(int64_t)l->type, (int64_t)l->rows, (int64_t)l->cols, l->ld, (int64_t)l->batch, l->stride})
      mix(&hash, (uint64_t)v);
  return hash;
}

bool aligned(const void *pointer, uint64_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

/* bytes from the first to the last element of all batches */
size_t span(const layout &l) {
  size_t elements = (size_t)l.ld * (l.cols - 1) + l.rows + (size_t)(l.batch - 1) * (size_t)l.stride;
  return elements * type_bytes(l.type);
}

bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
  const char *x = static_cast<const char *>(a), *y = static_cast<const char *>(b);
  return x < y + b_bytes && y < x + a_bytes;
}

float load(const void *base, int32_t type, size_t at) {
  if (type == CUDA_R_32F) return static_cast<const float *>(base)[at];
  uint32_t bits = (uint32_t) static_cast<const uint16_t *>(base)[at] << 16;
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

void store(void *base, int32_t type, size_t at, float x) {
  if (type == CUDA_R_32F) {
    static_cast<float *>(base)[at] = x;
    return;
  }
  uint32_t bits;
  memcpy(&bits, &x, 4);
  bits = std::isnan(x) ? 0x7fff0000 : bits + 0x7fff + (bits >> 16 & 1); /* to nearest, ties to even */
  static_cast<uint16_t *>(base)[at] = (uint16_t)(bits >> 16);
}

float gelu(float x) {
  return 0.5f * x * (1 + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
}

float gelu_slope(float x) {
  float t = std::tanh(0.7978845608f * (x + 0.044715f * x * x * x));
  return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * x * x);
}

/* a matrix as floats, column by column with leading dimension *ld; no copy where it is one already */
const float *as_floats(const layout &l, const void *base, size_t first, std::vector<float> *space, int *ld) {
  if (l.type == CUDA_R_32F) {
    *ld = (int)l.ld;
    return static_cast<const float *>(base) + first;
  }
  space->resize(l.rows * l.cols);
  for (size_t c = 0; c < l.cols; c++)
    for (size_t r = 0; r < l.rows; r++) (*space)[c * l.rows + r] = load(base, l.type, first + c * (size_t)l.ld + r);
  *ld = (int)l.rows;
  return space->data();
}

/* sums of op(X) over k, for BGRADA and BGRADB */
void sum_over_k(const float *x, int ld, size_t kept, size_t k, bool k_is_column, void *out, int32_t type,
                size_t first) {
  for (size_t i = 0; i < kept; i++) {
    double sum = 0;
    for (size_t j = 0; j < k; j++) sum += (double)(k_is_column ? x[j * (size_t)ld + i] : x[i * (size_t)ld + j]);
    store(out, type, first + i, (float)sum);
  }
}

void compute_batch(const product &p, const epilogue &e, size_t batch) {
  std::vector<float> space_a, space_b, result(p.out.rows * p.out.cols);
  int lda, ldb;
  const float *a = as_floats(p.a, p.pa, batch * (size_t)p.a.stride, &space_a, &lda);
  const float *b = as_floats(p.b, p.pb, batch * (size_t)p.b.stride, &space_b, &ldb);
  const size_t m = p.out.rows, n = p.out.cols, k = p.d.trans_a == CUBLAS_OP_N ? p.a.cols : p.a.rows;
  cblas_sgemm(CblasColMajor, p.d.trans_a == CUBLAS_OP_N ? CblasNoTrans : CblasTrans,
              p.d.trans_b == CUBLAS_OP_N ? CblasNoTrans : CblasTrans, (int)m, (int)n, (int)k, p.alpha, a, lda, b, ldb,
              0, result.data(), (int)m);
  void *bias = const_cast<void *>(p.d.bias);
  const size_t bias_first = batch * (size_t)p.d.bias_stride, aux_first = batch * (size_t)p.d.aux_stride;
  std::vector<double> sums(e.bgrad ? m : 0);
  for (size_t c = 0; c < n; c++)
    for (size_t r = 0; r < m; r++) {
      float x = result[c * m + r];
      if (p.beta != 0) x += p.beta * load(p.pc, p.c.type, batch * (size_t)p.c.stride + c * (size_t)p.c.ld + r);
      if (e.bias) x += load(bias, p.out.type, bias_first + r);
      if (e.aux_out) store(p.d.aux, p.out.type, aux_first + c * (size_t)p.d.aux_ld + r, x);
      if (e.aux_in) x *= gelu_slope(load(p.d.aux, p.out.type, aux_first + c * (size_t)p.d.aux_ld + r));
      if (e.gelu) x = gelu(x);
      if (e.relu) x = x > 0 ? x : 0;
      if (e.bgrad) sums[r] += (double)x;
      store(p.pout, p.out.type, batch * (size_t)p.out.stride + c * (size_t)p.out.ld + r, x);
    }
  for (size_t r = 0; r < sums.size(); r++) store(bias, p.out.type, bias_first + r, (float)sums[r]);
  if (e.bgrad_of == 'A') sum_over_k(a, lda, m, k, p.d.trans_a == CUBLAS_OP_N, bias, p.out.type, bias_first);
  if (e.bgrad_of == 'B') sum_over_k(b, ldb, n, k, p.d.trans_b != CUBLAS_OP_N, bias, p.out.type, bias_first);
}

fake_state run(void *context) {
  product p;
  memcpy(&p, context, sizeof p);
  epilogue e;
  read_epilogue(p.d.epilogue, &e);
  if (p.workspace_bytes) memset(p.workspace, 0xff, p.workspace_bytes); /* whoever shares it meanwhile reads NaN */
  for (int i = 0; i < p.out.batch; i++) compute_batch(p, e, (size_t)i);
  return FAKE_DONE;
}

/* pointers, alignments, overlaps; fills the ranges */
cublasStatus_t check_pointers(const char *call, const product &p, const epilogue &e, const algorithm *algo,
                              std::vector<fake_range> *ranges) {
  const cublasStatus_t invalid = CUBLAS_STATUS_INVALID_VALUE;
  const bool reads_c = p.beta != 0;
  if (!p.pa || !p.pb || !p.pout || (reads_c && !p.pc)) return refuse(call, invalid, "a matrix is NULL");
  if (algo && (!aligned(p.pa, algo->align_a) || !aligned(p.pb, algo->align_b) || !aligned(p.pout, algo->align_d) ||
               (reads_c && !aligned(p.pc, algo->align_c)))) {
    fake_explain(call,
                 "a matrix is less aligned than the algorithm was chosen for (A %u, B %u, C %u, D %u bytes): set "
                 "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_*_BYTES",
                 algo->align_a, algo->align_b, algo->align_c, algo->align_d);
    return invalid;
  }
  *ranges = {{p.pa, span(p.a), 0}, {p.pb, span(p.b), 0}, {p.pout, span(p.out), 1}};
  for (size_t i = 0; i < 2; i++)
    if (overlap(p.pout, span(p.out), (*ranges)[i].start, (*ranges)[i].bytes))
      return refuse(call, invalid, "D overlaps an input");
  if (reads_c) {
    if (p.pc == p.pout ? p.c.ld != p.out.ld || p.c.stride != p.out.stride
                       : overlap(p.pc, span(p.c), p.pout, span(p.out)))
      return refuse(call, invalid, "C and D overlap and are not the same");
    ranges->push_back({p.pc, span(p.c), 0});
  }
  if (e.bias || e.bgrad || e.bgrad_of) {
    const size_t bytes = type_bytes(p.out.type), count = e.bgrad_of == 'B' ? p.out.cols : p.out.rows;
    if (!p.d.bias || !aligned(p.d.bias, bytes))
      return refuse(call, invalid, "this epilogue needs CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned to its elements");
    ranges->push_back({p.d.bias, (count + (size_t)(p.out.batch - 1) * (size_t)p.d.bias_stride) * bytes, !e.bias});
  }
  if (e.aux_in || e.aux_out) {
    if (!p.d.aux || !aligned(p.d.aux, 16))
      return refuse(call, invalid,
                    "this epilogue needs CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aligned to 16 bytes");
    layout aux = p.out;
    aux.ld = p.d.aux_ld;
    aux.stride = p.d.aux_stride;
    ranges->push_back({p.d.aux, span(aux), e.aux_out});
  }
  if (p.workspace_bytes) {
    if (!p.workspace || !aligned(p.workspace, 16))
      return refuse(call, invalid, "the workspace is not aligned to 16 bytes");
    ranges->push_back({p.workspace, p.workspace_bytes, 1});
  }
  for (const fake_range &r : *ranges)
    if (!fake_is_device(r.start)) return refuse(call, invalid, "a matrix, bias or workspace is not in device memory");
  return CUBLAS_STATUS_SUCCESS;
}

std::string describe(const product &p) {
  char text[256];
  const char *ta = p.d.trans_a == CUBLAS_OP_N ? "N" : "T", *tb = p.d.trans_b == CUBLAS_OP_N ? "N" : "T";
  snprintf(
      text, sizeof text, "%s%s m=%llu n=%llu k=%llu %s->%s epilogue=%u beta=%g", ta, tb, (unsigned long long)p.out.rows,
      (unsigned long long)p.out.cols, (unsigned long long)(p.d.trans_a == CUBLAS_OP_N ? p.a.cols : p.a.rows),
      p.a.type == CUDA_R_32F ? "f32" : "bf16", p.out.type == CUDA_R_32F ? "f32" : "bf16", p.d.epilogue, (double)p.beta);
  return text;
}

} // namespace
} // namespace fake_lt

using namespace fake_lt;

extern "C" {

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t object,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wish, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *count) {
  const char *call = "cublasLtMatmulAlgoGetHeuristic";
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!object || !a || !b || !c || !d || !wish || wanted < 1 || !results || !count) return CUBLAS_STATUS_INVALID_VALUE;
  *count = 0;
  cublasStatus_t status =
      check_problem(call, as<desc>(object), as<layout>(a), as<layout>(b), as<layout>(c), as<layout>(d));
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const preference &p = as<preference>(wish);
  results[0] = cublasLtMatmulHeuristicResult_t();
  algorithm &chosen = as<algorithm>(&results[0].algo);
  chosen.mark = algorithm_mark;
  chosen.problem = hash_problem(as<desc>(object), as<layout>(a), as<layout>(b), as<layout>(c), as<layout>(d));
  chosen.workspace = p.workspace < workspace_used ? 0 : workspace_used;
  chosen.align_a = p.align_a;
  chosen.align_b = p.align_b;
  chosen.align_c = p.align_c;
  chosen.align_d = p.align_d;
  results[0].workspaceSize = chosen.workspace;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  results[0].wavesCount = 1;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t object, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  const char *call = "cublasLtMatmul";
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  fake_object_check("cublasLt handle", handle, call);
  if (!object || !a_layout || !b_layout || !c_layout || !d_layout || !alpha || !beta)
    return refuse(call, CUBLAS_STATUS_INVALID_VALUE, "a descriptor or factor is NULL");
  fake_object_check("cublasLt matmul descriptor", object, call);
  product p = {as<desc>(object),
               as<layout>(a_layout),
               as<layout>(b_layout),
               as<layout>(c_layout),
               as<layout>(d_layout),
               a,
               b,
               c,
               d,
               workspace,
               0,
               *static_cast<const float *>(alpha),
               *static_cast<const float *>(beta)};
  cublasStatus_t status = check_problem(call, p.d, p.a, p.b, p.c, p.out);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const algorithm *chosen = algo ? &as<algorithm>(algo) : nullptr;
  if (chosen) {
    if (chosen->mark != algorithm_mark || chosen->problem != hash_problem(p.d, p.a, p.b, p.c, p.out))
      return refuse(call, CUBLAS_STATUS_INVALID_VALUE, "the algorithm was not chosen for this product");
    if (chosen->workspace > workspace_bytes)
      return refuse(call, CUBLAS_STATUS_INVALID_VALUE, "the workspace is smaller than the algorithm needs");
    p.workspace_bytes = chosen->workspace;
  }
  epilogue e;
  read_epilogue(p.d.epilogue, &e);
  std::vector<fake_range> ranges;
  status = check_pointers(call, p, e, chosen, &ranges);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  std::string detail = describe(p);
  fake_operation operation = {call, detail.c_str(), run, &p, sizeof p, ranges.data(), ranges.size()};
  return fake_enqueue(stream, &operation) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
}
