/* What the segment functions of an emitted CUDA program call beside their own kernels. All of it is queued. */
#ifndef PD_CUDA_LAUNCH_H
#define PD_CUDA_LAUNCH_H

#include <cuda_runtime_api.h>

#include "program.h"

/* c = op(a) op(b), or c += */
void pd_multiply(const pd_frame *f, const pd_product *product, const void *a, const void *b, void *c);
/* The same with an epilogue: `row` of n elements, NULL if it has none; `kept` [m,n], what gelu is taken of. */
void pd_multiply_fused(const pd_frame *f, const pd_product *product, const void *a, const void *b, const void *row,
                       void *kept, void *c);
/* c += op(a) b, and sums[j] += the sum over rows of column j of b; `sums` has n elements, f32 as c */
void pd_multiply_sum_rows(const pd_frame *f, const pd_product *product, const void *a, const void *b, void *c, void *sums);
/* Attention and its gradient by cuDNN, of an entry that has a plan; operands as in pd_kernels' sdpa and sdpa_grad. */
void pd_attend(const pd_frame *f, const pd_attention *attention, const void *q, const void *k, const void *v, void *o,
               float *lse);
void pd_attend_grad(const pd_frame *f, const pd_attention *attention, const void *q, const void *k, const void *v,
                    const void *o, const float *lse, const void *d_o, void *dq, void *dk, void *dv);
/* What a program with attention by cuDNN gives the runtime as open_attentions and close_attentions. Opening makes the
 * plan of every entry of the program's table, or says in one line on stderr why kernels of the program's own do it;
 * ends the run with PD_EXIT_CUDA if it has none. */
void pd_cuda_open_attentions(struct pd_device *device);
void pd_cuda_close_attentions(struct pd_device *device);
void pd_move(const pd_frame *f, void *to, const void *from, int64_t bytes);
/* Sums, or the largest, over the tensor-parallel ranks, in place. element_bytes: 4 is f32, 2 is bf16. */
void pd_tensor_sum(const pd_frame *f, void *x, int64_t n, int element_bytes);
void pd_tensor_max(const pd_frame *f, void *x, int64_t n, int element_bytes);
/* y[ranks, n] = x[n] of every tensor-parallel rank. */
void pd_tensor_gather(const pd_frame *f, const void *x, int64_t n, int element_bytes, void *y);

#endif
