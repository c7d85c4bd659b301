/* Attention by cuDNN's graph API: flash kernels for tensor cores, built when the program starts, for one shape.
 *
 * A graph of matrix products, a mask and a softmax describes what is to be computed; cuDNN recognises the pattern,
 * chooses an engine and compiles it. Tensors are packed bf16: q, o [b,s,h,d], k, v [b,t,g,d]. lse is float [b,h,s], the
 * same numbers as pd_sdpa's.
 *
 * Plans can be built without a device, from a description of one: how a build machine checks shapes. pd_cudnn_open
 * (cudnn_library.h) comes before everything here.
 */
#ifndef PD_ATTENTION_CUDNN_H
#define PD_ATTENTION_CUDNN_H

#include <cudnn.h>

#include "program.h"

/* What plans are made for: the device of a handle, or one described by JSON (keys as cudnn's DEVICEPROP descriptor has
 * them). NULL if cuDNN refuses it; `why` gets its words. Freed with cudnnBackendDestroyDescriptor. */
cudnnBackendDescriptor_t pd_attention_device(cudnnHandle_t handle, char *why, size_t why_size);
cudnnBackendDescriptor_t pd_attention_device_described(const char *json, char *why, size_t why_size);

/* A plan for attention or its gradient. The gradient of queries is added up in a fixed order, for which cuDNN needs a
 * workspace of about 2 b h s t bytes; or, `any_order`, by blocks as they come, which gives other last bits in every
 * run. NULL if cuDNN has no engine for it; `why` gets the reason. */
pd_attention_plan *pd_attention_plan_make(cudnnBackendDescriptor_t device, const pd_attention *attention, char *why,
                                          size_t why_size);
void pd_attention_plan_free(pd_attention_plan *plan);

/* Bytes of device memory that an execution needs beside its operands, to be aligned to 256. */
int64_t pd_attention_workspace(const pd_attention_plan *plan);
/* Operations of the graph. */
int pd_attention_operations(const pd_attention_plan *plan);

/* Enqueue on the handle's stream; the plan must be of that direction. Return what cuDNN returns. */
cudnnStatus_t pd_attention_forward(const pd_attention_plan *plan, cudnnHandle_t handle, const void *q, const void *k,
                                   const void *v, void *o, float *lse, void *workspace);
cudnnStatus_t pd_attention_backward(const pd_attention_plan *plan, cudnnHandle_t handle, const void *q, const void *k,
                                    const void *v, const void *o, const float *lse, const void *d_o, void *dq, void *dk,
                                    void *dv, void *workspace);

#endif
