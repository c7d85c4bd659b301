/* Matrix products by cuBLASLt. Descriptors and algorithms are chosen once, at the start.
 *
 * cuBLAS is column-major: a row-major C = A B is the column-major C' = B' A' of the same memory, so operands trade
 * places and leading dimensions are row lengths. */
#include "cuda/cuda.h"

#include <stdlib.h>

#include "cuda/launch.h"

struct pd_product_plan {
  cublasLtMatmulDesc_t operation;
  cublasLtMatrixLayout_t a, b, c; /* of the row-major operands */
  cublasLtMatmulAlgo_t algorithm;
};

static cudaDataType_t type_of(int bytes) {
  return bytes == 2 ? CUDA_R_16BF : CUDA_R_32F;
}

/* A row-major matrix of `rows` x `cols`, `batch` of them: column-major it is cols x rows. */
static cublasLtMatrixLayout_t layout_of(int64_t rows, int64_t cols, int bytes, int64_t batch) {
  cublasLtMatrixLayout_t layout;
  CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&layout, type_of(bytes), (uint64_t)cols, (uint64_t)rows, cols));
  if (batch > 1) {
    const int32_t count = (int32_t)batch;
    const int64_t stride = rows * cols;
    CUBLAS_CHECK(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
    CUBLAS_CHECK(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                                  sizeof stride));
  }
  return layout;
}

static bool choose_algorithm(const pd_device *device, const pd_product *product, pd_product_plan *plan) {
  const uint64_t space = (uint64_t)device->program->product_space;
  const uint32_t alignment = 16; /* tensors start at multiples of it */
  cublasLtMatmulPreference_t preference;
  cublasLtMatmulHeuristicResult_t result;
  int found = 0;
  CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&preference));
  CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &space,
                                                    sizeof space));
  static const cublasLtMatmulPreferenceAttributes_t operands[] = {
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
  for (int i = 0; i < 4; i++) {
    CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, operands[i], &alignment, sizeof alignment));
  }
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(device->products, plan->operation, plan->b, plan->a,
                                                               plan->c, plan->c, preference, 1, &result, &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
    found = 0;
  } else {
    pd_cublas_check(status, "cublasLtMatmulAlgoGetHeuristic", __FILE__, __LINE__);
  }
  CUBLAS_CHECK(cublasLtMatmulPreferenceDestroy(preference));
  plan->algorithm = result.algo;
  if (found == 0 && product->epilogue == PD_EPILOGUE_NONE) {
    pd_fail(PD_EXIT_CUDA, "cuBLASLt has no algorithm for a product of %lld x %lld x %lld (batch %lld)",
            (long long)product->m, (long long)product->n, (long long)product->k, (long long)product->batch);
  }
  return found > 0;
}

static void set_row(pd_product_plan *plan, const void *row) {
  CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &row, sizeof row));
}

static void set_kept(pd_product_plan *plan, const void *kept) {
  CUBLAS_CHECK(
      cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &kept, sizeof kept));
}

/* The algorithm is chosen with some addresses, as aligned as the later ones. */
static void set_epilogue(const pd_device *device, pd_product_plan *plan, const pd_product *product) {
  static const cublasLtEpilogue_t epilogues[] = {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS,
                                                 CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU,
                                                 CUBLASLT_EPILOGUE_BGRADA /* A of the column-major product is b */};
  const cublasLtEpilogue_t epilogue = epilogues[product->epilogue];
  CUBLAS_CHECK(
      cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
  if (product->epilogue != PD_EPILOGUE_GELU_GRAD) set_row(plan, device->memory + device->layout->libraries);
  if (product->epilogue == PD_EPILOGUE_BIAS || product->epilogue == PD_EPILOGUE_ROW_SUMS) return;
  set_kept(plan, device->memory + device->layout->libraries);
  CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &product->n,
                                              sizeof product->n));
}

static void free_plan(pd_product_plan *plan) {
  CUBLAS_CHECK(cublasLtMatrixLayoutDestroy(plan->a));
  CUBLAS_CHECK(cublasLtMatrixLayoutDestroy(plan->b));
  CUBLAS_CHECK(cublasLtMatrixLayoutDestroy(plan->c));
  CUBLAS_CHECK(cublasLtMatmulDescDestroy(plan->operation));
  free(plan);
}

/* NULL: there is no algorithm with this epilogue. */
static pd_product_plan *plan_product(const pd_device *device, const pd_product *p) {
  pd_product_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) pd_fail(PD_EXIT_MEMORY, "out of memory");
  CUBLAS_CHECK(cublasLtMatmulDescCreate(&plan->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const cublasOperation_t first = p->tb ? CUBLAS_OP_T : CUBLAS_OP_N, second = p->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
  CUBLAS_CHECK(
      cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
  CUBLAS_CHECK(
      cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
  plan->a = layout_of(p->ta ? p->k : p->m, p->ta ? p->m : p->k, p->a_bytes, p->batch);
  plan->b = layout_of(p->tb ? p->n : p->k, p->tb ? p->k : p->n, p->b_bytes, p->batch);
  plan->c = layout_of(p->m, p->n, p->c_bytes, p->batch);
  if (p->epilogue != PD_EPILOGUE_NONE) set_epilogue(device, plan, p);
  if (choose_algorithm(device, p, plan)) return plan;
  free_plan(plan);
  return NULL;
}

void pd_cuda_open_products(pd_device *device) {
  CUBLAS_CHECK(cublasLtCreate(&device->products));
  for (int i = 0; i < device->program->product_count; i++) {
    pd_product *product = &device->program->products[i];
    if (product->epilogue == PD_EPILOGUE_NONE || device->fuses) product->plan = plan_product(device, product);
  }
}

void pd_cuda_close_products(pd_device *device) {
  for (int i = 0; i < device->program->product_count; i++) {
    pd_product *product = &device->program->products[i];
    if (product->plan != NULL) free_plan(product->plan);
    product->plan = NULL;
  }
  CUBLAS_CHECK(cublasLtDestroy(device->products));
}

void pd_multiply(const pd_frame *f, const pd_product *product, const void *a, const void *b, void *c) {
  const pd_device *device = f->device;
  const pd_product_plan *plan = product->plan;
  const float one = 1, beta = product->accumulate ? 1 : 0;
  CUBLAS_CHECK(cublasLtMatmul(device->products, plan->operation, &one, b, plan->b, a, plan->a, &beta, c, plan->c, c,
                              plan->c, &plan->algorithm, device->memory + device->layout->libraries,
                              (size_t)device->program->product_space, device->compute));
}

void pd_multiply_fused(const pd_frame *f, const pd_product *product, const void *a, const void *b, const void *row,
                       void *kept, void *c) {
  if (row != NULL) set_row(product->plan, row);
  if (kept != NULL) set_kept(product->plan, kept);
  pd_multiply(f, product, a, b, c);
}

/* cuBLASLt writes the sums; that of micro-batches is made here. */
void pd_multiply_sum_rows(const pd_frame *f, const pd_product *product, const void *a, const void *b, void *c, void *sums) {
  void *row = f->device->memory + f->device->layout->product_row;
  set_row(product->plan, row);
  pd_multiply(f, product, a, b, c);
  pd_cuda_add(f->device->compute, true, product->n, row, sums);
}
