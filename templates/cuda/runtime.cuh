/* The kernels that the runtime itself launches (runtime/cuda/cuda.h), compiled with each program so that they are built
 * for its architectures. `real` is the program's compute precision. */
#include "pd_move.cuh"
#include "pd_optimizer.cuh"

/* NVRTC's code is in another file of the program; what nvcc makes needs no table. */
#if defined(__NVCC__)
#include "cuda/kernels.h"
const pd_cuda_kernels pd_cuda_program_kernels = {};
#endif

extern "C" void pd_cuda_add(cudaStream_t stream, bool wide, int64_t n, const void *a, void *out) {
  if (wide) {
    pd_add<float, float>(stream, n, static_cast<const float *>(a), static_cast<float *>(out));
  } else {
    pd_add<real, real>(stream, n, static_cast<const real *>(a), static_cast<real *>(out));
  }
}

extern "C" void pd_cuda_sum_squares(cudaStream_t stream, int64_t n, const float *x, double *parts, double *out) {
  pd_sum_squares(stream, n, x, parts, out);
}

extern "C" void pd_cuda_decide(cudaStream_t stream, int64_t count, const double *squares, double clip,
                               pd_step_values *values) {
  pd_decide(stream, count, squares, clip, values);
}

extern "C" void pd_cuda_adamw(cudaStream_t stream, int64_t n, float *w, void *copy, const float *gradient, float *m,
                              float *v, const pd_step_values *values, double beta1, double beta2, double eps,
                              double decay, bool coupled) {
  pd_adamw<real>(stream, n, w, static_cast<real *>(copy), gradient, m, v, values, beta1, beta2, eps, decay, coupled);
}

extern "C" void pd_cuda_sgd(cudaStream_t stream, int64_t n, float *w, void *copy, const float *gradient, float *buffer,
                            const pd_step_values *values, double momentum, double decay) {
  pd_sgd<real>(stream, n, w, static_cast<real *>(copy), gradient, buffer, values, momentum, decay);
}

extern "C" void pd_cuda_lamb_measure(cudaStream_t stream, int64_t n, const float *w, const float *gradient, float *m,
                                     float *v, const pd_step_values *values, double beta1, double beta2, double eps,
                                     double decay, double *parts, double *lengths) {
  pd_lamb_measure(stream, n, w, gradient, m, v, values, beta1, beta2, eps, decay, parts, lengths);
}

extern "C" void pd_cuda_lamb(cudaStream_t stream, int64_t n, float *w, void *copy, const float *m, const float *v,
                             const pd_step_values *values, double eps, double decay, const double *lengths) {
  pd_lamb<real>(stream, n, w, static_cast<real *>(copy), m, v, values, eps, decay, lengths);
}

extern "C" void pd_cuda_update_statistic(cudaStream_t stream, int64_t n, float *w, void *copy, const float *sums,
                                         const pd_step_values *values, double momentum, double count) {
  pd_update_statistic<real>(stream, n, w, static_cast<real *>(copy), sums, values, momentum, count);
}

extern "C" void pd_cuda_cast(cudaStream_t stream, int64_t n, const float *w, void *copy) {
  pd_cast<real>(stream, n, w, static_cast<real *>(copy));
}
