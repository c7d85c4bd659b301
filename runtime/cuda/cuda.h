/* The inside of the CUDA device, shared by its files:
 *   device.c      the device, its memory, the host's access to it
 *   step.c        passes, the recorded step, memory operations, norm and update
 *   mail.c        NCCL: communicators, messages between chunks, reductions
 *   products.c    matrix products by cuBLASLt
 *   attention.c   attention by cuDNN, linked only into programs that have it; attention_cudnn.c, attention_graph.c and
 *                 cudnn_library.c stand below it
 *   kernels.c     the kernels of a program that NVRTC compiled (kernels.h)
 *
 * Streams. `compute` has the order of the engine's calls. Each mail has a stream of its own, and so have reductions over
 * replicas and copies of rows; events join them to `compute` on both sides of an operation, so a step that begins and
 * ends in `compute` can be captured. */
#ifndef PD_CUDA_H
#define PD_CUDA_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include "cuda/kernels.h"
#include "device.h"

/* One communicator for each boundary of chunks and direction, and for what a chunk sends to its other copy: its
 * messages have one order on both sides. */
typedef struct pd_link {
  ncclComm_t comm; /* NULL: this rank has no part in it */
  cudaStream_t stream;
  cudaEvent_t done; /* of sums of a chunk: the last message */
  bool under_way;   /* `compute` does not follow that yet */
} pd_link;

struct pd_device {
  const pd_program *program;
  const pd_layout *layout;
  const pd_world *world;
  char name[256];
  int arch;              /* 90: sm_90 */
  cudaLibrary_t kernels; /* NULL: the program's host code has registered them (nvcc) */
  char *memory;
  int64_t bytes;
  cudaStream_t compute, copies, reductions;
  cudaEvent_t rows_there, before, reduced; /* before: what an operation of another stream has to follow */
  /* what the host writes and reads, pinned */
  char *rows;
  pd_step_values *values; /* of the pass, then of updates within the list, one after the other: 1 + sets */
  double *results, *counts;
  pd_pass pass;
  int result_count, tensors;
  int sets;             /* of squares and counts: updates of a list, at least 1 */
  int values_used;      /* of those of updates, in this pass */
  bool norm_there;      /* on the host: close_pass has brought it with the results */
  bool masters_changed; /* by the host: the model's copies of the weights are old */
  /* the recorded step */
  bool records; /* PDC_CUDA_GRAPH is not 0 */
  int steps;    /* whole ones so far */
  cudaGraphExec_t graph;
  /* NCCL */
  ncclComm_t pipe, replicas, tensor; /* NULL: of one rank */
  pd_link *links;                    /* per chunk after the boundary, 2 each */
  pd_link *sums;                     /* per chunk, to its other copy */
  int link_count, sum_count;
  bool reducing; /* something is on the way in `reductions` */
  cublasLtHandle_t products;
  bool fuses; /* epilogues in products pay on this device */
  struct pd_cuda_attention *attention; /* NULL: none by cuDNN */
};

/* Every call of a library stands in one of these: what failed, where and why in one line, and an exit code. */
#define CUDA_CHECK(call) pd_cuda_check((call), #call, __FILE__, __LINE__)
#define NCCL_CHECK(call) pd_nccl_check((call), #call, __FILE__, __LINE__)
#define CUBLAS_CHECK(call) pd_cublas_check((call), #call, __FILE__, __LINE__)
void pd_cuda_check(cudaError_t error, const char *call, const char *file, int line);
void pd_nccl_check(ncclResult_t result, const char *call, const char *file, int line);
void pd_cublas_check(cublasStatus_t status, const char *call, const char *file, int line);
/* The same for a launch; called by the emitted program too. */
void pd_launch_failed(cudaError_t error, const char *kernel, const char *file, int line);

/* `stream` goes on after all that is queued in `compute`, and the reverse. */
void pd_cuda_fork(pd_device *device, cudaStream_t stream);
void pd_cuda_join(pd_device *device, cudaStream_t stream, cudaEvent_t event);

void pd_cuda_open_communicators(pd_device *device, const pd_pipeline *pipeline);
void pd_cuda_close_communicators(pd_device *device);
void pd_cuda_open_products(pd_device *device);
void pd_cuda_close_products(pd_device *device);
/* The copies of the weights that a bf16 program reads follow their masters. */
void pd_cuda_refresh_copies(pd_device *device);

/* In the emitted .cu (templates/cuda/runtime.cuh). T is the compute precision. */
void pd_cuda_add(cudaStream_t stream, bool wide, int64_t n, const void *a, void *out);
void pd_cuda_sum_squares(cudaStream_t stream, int64_t n, const float *x, double *parts, double *out);
void pd_cuda_decide(cudaStream_t stream, int64_t count, const double *squares, double clip, pd_step_values *values);
void pd_cuda_adamw(cudaStream_t stream, int64_t n, float *w, void *copy, const float *gradient, float *m, float *v,
                   const pd_step_values *values, double beta1, double beta2, double eps, double decay, bool coupled);
void pd_cuda_sgd(cudaStream_t stream, int64_t n, float *w, void *copy, const float *gradient, float *buffer,
                 const pd_step_values *values, double momentum, double decay);
void pd_cuda_lamb_measure(cudaStream_t stream, int64_t n, const float *w, const float *gradient, float *m, float *v,
                          const pd_step_values *values, double beta1, double beta2, double eps, double decay,
                          double *parts, double *lengths);
void pd_cuda_lamb(cudaStream_t stream, int64_t n, float *w, void *copy, const float *m, const float *v,
                  const pd_step_values *values, double eps, double decay, const double *lengths);
void pd_cuda_update_statistic(cudaStream_t stream, int64_t n, float *w, void *copy, const float *sums,
                              const pd_step_values *values, double momentum, double count);
void pd_cuda_cast(cudaStream_t stream, int64_t n, const float *w, void *copy);

#endif
