/* What stands behind cuBLASLt's opaque descriptors in the fake library. */
#ifndef PD_FAKE_CUBLASLT_OBJECTS_H
#define PD_FAKE_CUBLASLT_OBJECTS_H

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>

namespace fake_lt {

struct layout {
  int32_t type, order, batch;
  uint64_t rows, cols;
  int64_t ld, stride;
};

struct desc {
  int32_t compute, scale, pointer_mode, trans_a, trans_b, trans_c;
  uint32_t epilogue;
  const void *bias;
  void *aux;
  int64_t bias_stride, aux_ld, aux_stride;
  int32_t aux_type, bias_type, sm_count; /* types: -1, that of D */
};

struct preference {
  uint64_t workspace;
  uint32_t align_a, align_b, align_c, align_d;
};

/* What an algorithm was chosen for. It may be used for nothing else: cuBLASLt would refuse it, or run something slow.
 */
struct algorithm {
  uint64_t mark, problem, workspace;
  uint32_t align_a, align_b, align_c, align_d;
};
static_assert(sizeof(layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "fits");
static_assert(sizeof(desc) <= sizeof(cublasLtMatmulDescOpaque_t), "fits");
static_assert(sizeof(preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "fits");
static_assert(sizeof(algorithm) <= sizeof(cublasLtMatmulAlgo_t), "fits");

template <class O, class P> O &as(P *pointer) {
  return *reinterpret_cast<O *>(pointer);
}
template <class O, class P> const O &as(const P *pointer) {
  return *reinterpret_cast<const O *>(pointer);
}

/* bytes of an element; 0: a type that this library does not know */
size_t type_bytes(int32_t type);

} // namespace fake_lt
#endif
