/* Handles, descriptors and their attributes. Attributes that the fake does not act on are refused, not ignored. */
#include "objects.h"

#include "../fake.h"

#include <cstring>
#include <new>

namespace fake_lt {

size_t type_bytes(int32_t type) {
  switch (type) {
  case CUDA_R_16BF:
    return 2;
  case CUDA_R_32F:
    return 4;
  case CUDA_R_64F:
    return 8;
  default:
    return 0;
  }
}

namespace {

struct field {
  int attribute;
  size_t offset, bytes;
};

template <class O>
cublasStatus_t set(O *object, const field *fields, size_t count, const char *call, int attribute, const void *value,
                   size_t bytes) {
  for (size_t i = 0; i < count; i++) {
    if (fields[i].attribute != attribute) continue;
    if (!object || !value || bytes != fields[i].bytes) {
      fake_explain(call, "attribute %d has %zu bytes, not %zu", attribute, fields[i].bytes, bytes);
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(reinterpret_cast<char *>(object) + fields[i].offset, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  }
  fake_explain(call, "the fake cuBLASLt does not know attribute %d", attribute);
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

template <class O>
cublasStatus_t get(const O *object, const field *fields, size_t count, int attribute, void *value, size_t bytes,
                   size_t *written) {
  for (size_t i = 0; i < count; i++) {
    if (fields[i].attribute != attribute) continue;
    if (!object || (bytes && (!value || bytes < fields[i].bytes))) return CUBLAS_STATUS_INVALID_VALUE;
    if (bytes) memcpy(value, reinterpret_cast<const char *>(object) + fields[i].offset, fields[i].bytes);
    if (written) *written = fields[i].bytes;
    return CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

#define FIELD(O, attribute, member)                                                                                    \
  { attribute, offsetof(O, member), sizeof(O::member) }

const field layout_fields[] = {
    FIELD(layout, CUBLASLT_MATRIX_LAYOUT_TYPE, type),
    FIELD(layout, CUBLASLT_MATRIX_LAYOUT_ORDER, order),
    FIELD(layout, CUBLASLT_MATRIX_LAYOUT_ROWS, rows),
    FIELD(layout, CUBLASLT_MATRIX_LAYOUT_COLS, cols),
    FIELD(layout, CUBLASLT_MATRIX_LAYOUT_LD, ld),
    FIELD(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batch),
    FIELD(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride),
};

const field desc_fields[] = {
    FIELD(desc, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, compute),
    FIELD(desc, CUBLASLT_MATMUL_DESC_SCALE_TYPE, scale),
    FIELD(desc, CUBLASLT_MATMUL_DESC_POINTER_MODE, pointer_mode),
    FIELD(desc, CUBLASLT_MATMUL_DESC_TRANSA, trans_a),
    FIELD(desc, CUBLASLT_MATMUL_DESC_TRANSB, trans_b),
    FIELD(desc, CUBLASLT_MATMUL_DESC_TRANSC, trans_c),
    FIELD(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue),
    FIELD(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias),
    FIELD(desc, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, bias_stride),
    FIELD(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, bias_type),
    FIELD(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux),
    FIELD(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, aux_ld),
    FIELD(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, aux_stride),
    FIELD(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, aux_type),
    FIELD(desc, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, sm_count),
};

const field preference_fields[] = {
    FIELD(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace),
    FIELD(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, align_a),
    FIELD(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, align_b),
    FIELD(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, align_c),
    FIELD(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, align_d),
};

template <class T, size_t N> size_t length(const T (&)[N]) {
  return N;
}

template <class O> O *make(const char *kind) {
  O *object = new (std::nothrow) O();
  if (object) fake_object_made(kind, object);
  return object;
}

template <class O> cublasStatus_t destroy(const char *kind, O *object) {
  if (!object) return CUBLAS_STATUS_SUCCESS;
  fake_object_destroyed(kind, object);
  delete object;
  return CUBLAS_STATUS_SUCCESS;
}

const char handle_kind[] = "cublasLt handle", layout_kind[] = "cublasLt matrix layout",
           desc_kind[] = "cublasLt matmul descriptor", preference_kind[] = "cublasLt preference";

} // namespace
} // namespace fake_lt

using namespace fake_lt;

extern "C" {

struct cublasLtContext {
  int device;
};

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
  int device = 0;
  if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
  if (cudaGetDevice(&device) != cudaSuccess || cudaFree(nullptr) != cudaSuccess) {
    fake_explain("cublasLtCreate", "there is no device");
    return CUBLAS_STATUS_NOT_INITIALIZED;
  }
  auto *context = make<cublasLtContext>(handle_kind);
  if (!context) return CUBLAS_STATUS_ALLOC_FAILED;
  context->device = device;
  *handle = context;
  fake_record("cublasLtCreate");
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return destroy(handle_kind, handle);
}

size_t cublasLtGetVersion(void) {
  return CUBLAS_VERSION;
}

size_t cublasLtGetCudartVersion(void) {
  return CUDART_VERSION;
}

#define STATUSES(X)                                                                                                    \
  X(SUCCESS)                                                                                                           \
  X(NOT_INITIALIZED)                                                                                                   \
  X(ALLOC_FAILED) X(INVALID_VALUE) X(ARCH_MISMATCH) X(MAPPING_ERROR) X(EXECUTION_FAILED) X(INTERNAL_ERROR)             \
      X(NOT_SUPPORTED) X(LICENSE_ERROR)
const char *cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
#define X(name)                                                                                                        \
  case CUBLAS_STATUS_##name:                                                                                           \
    return "CUBLAS_STATUS_" #name;
    STATUSES(X)
#undef X
  }
  return "unknown status";
}

const char *cublasLtGetStatusString(cublasStatus_t status) {
  return cublasLtGetStatusName(status);
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t matrix, size_t size, cudaDataType type,
                                                 uint64_t rows, uint64_t cols, int64_t ld) {
  if (!matrix || size < sizeof(layout)) return CUBLAS_STATUS_INVALID_VALUE;
  layout &l = as<layout>(matrix);
  l = layout();
  l.type = type;
  l.order = CUBLASLT_ORDER_COL;
  l.rows = rows;
  l.cols = cols;
  l.ld = ld;
  l.batch = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *matrix, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  if (!matrix) return CUBLAS_STATUS_INVALID_VALUE;
  *matrix = make<cublasLtMatrixLayoutOpaque_t>(layout_kind);
  const char *mistake = fake_planted("cublasLtMatrixLayoutCreate");
  if (mistake && !strcmp(mistake, "wide")) ld += 8;
  return cublasLtMatrixLayoutInit_internal(*matrix, sizeof(**matrix), type, rows, cols, ld);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matrix) {
  return destroy(layout_kind, matrix);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matrix,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                size_t bytes) {
  return set(matrix, layout_fields, length(layout_fields), "cublasLtMatrixLayoutSetAttribute", attribute, value, bytes);
}

cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t matrix,
                                                cublasLtMatrixLayoutAttribute_t attribute, void *value, size_t bytes,
                                                size_t *written) {
  return get(matrix, layout_fields, length(layout_fields), attribute, value, bytes, written);
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t object, size_t size, cublasComputeType_t compute,
                                               cudaDataType_t scale) {
  if (!object || size < sizeof(desc)) return CUBLAS_STATUS_INVALID_VALUE;
  desc &d = as<desc>(object);
  d = desc();
  d.compute = compute;
  d.scale = scale;
  d.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  d.aux_type = d.bias_type = -1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *object, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (!object) return CUBLAS_STATUS_INVALID_VALUE;
  *object = make<cublasLtMatmulDescOpaque_t>(desc_kind);
  return cublasLtMatmulDescInit_internal(*object, sizeof(**object), compute, scale);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t object) {
  return destroy(desc_kind, object);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t object, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes) {
  return set(object, desc_fields, length(desc_fields), "cublasLtMatmulDescSetAttribute", attribute, value, bytes);
}

cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t object, cublasLtMatmulDescAttributes_t attribute,
                                              void *value, size_t bytes, size_t *written) {
  return get(object, desc_fields, length(desc_fields), attribute, value, bytes, written);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t object, size_t size) {
  if (!object || size < sizeof(preference)) return CUBLAS_STATUS_INVALID_VALUE;
  preference &p = as<preference>(object);
  p = preference();
  p.align_a = p.align_b = p.align_c = p.align_d = 256; /* what cuBLASLt assumes unless told otherwise */
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *object) {
  if (!object) return CUBLAS_STATUS_INVALID_VALUE;
  *object = make<cublasLtMatmulPreferenceOpaque_t>(preference_kind);
  return cublasLtMatmulPreferenceInit_internal(*object, sizeof(**object));
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t object) {
  return destroy(preference_kind, object);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t object,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t bytes) {
  return set(object, preference_fields, length(preference_fields), "cublasLtMatmulPreferenceSetAttribute", attribute,
             value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t object,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, void *value,
                                                    size_t bytes, size_t *written) {
  return get(object, preference_fields, length(preference_fields), attribute, value, bytes, written);
}
}
