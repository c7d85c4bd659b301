/* Chooses a kernel table by name. Owns the merged tables: the host set with ref in the places it leaves open.
 *
 * A program calls it once, at start, from one thread; the merge happens then, so further calls may come from any.
 */
#include "kernels/kernels.h"
#include "kernels/sets.h"

#include <stddef.h>
#include <string.h>

#define PD_FOR_EACH_KERNEL(DO)                                                                                         \
  DO(gemm)                                                                                                             \
  DO(contract)                                                                                                         \
  DO(copy)                                                                                                             \
  DO(fill) DO(add) DO(scale) DO(sum_rows) DO(sum_cols) DO(layernorm) DO(layernorm_grad) DO(rmsnorm) DO(rmsnorm_grad)   \
      DO(softmax) DO(softmax_grad) DO(max) DO(max_grad) DO(gather) DO(gather_grad) DO(sdpa) DO(sdpa_grad) DO(rope)     \
          DO(conv2d) DO(conv2d_input_grad) DO(conv2d_filter_grad) DO(maxpool) DO(maxpool_grad) DO(avgpool)             \
              DO(avgpool_grad) DO(batchnorm) DO(batchnorm_given) DO(batchnorm_grad) DO(xent_max) DO(xent_sums)         \
                  DO(xent_loss) DO(xent_grad) DO(accuracy) DO(mse) DO(mse_grad) DO(dropout) DO(adamw) DO(lamb_moments) \
                      DO(lamb_step) DO(sgd) DO(sum_squares) DO(init_normal) DO(init_uniform)

/* a kernel added to the table but not to this list would stay NULL */
#define PD_COUNT(name) +1
_Static_assert(sizeof(pd_kernels_f32) == (1 PD_FOR_EACH_KERNEL(PD_COUNT)) * sizeof(void *), "the list is incomplete");

#define PD_FILL(name)                                                                                                  \
  if (merged.name == NULL) merged.name = ref->name;

#define PD_SELECT(suffix)                                                                                              \
  const pd_kernels_##suffix *pd_kernels_select_##suffix(const char *set) {                                             \
    static pd_kernels_##suffix merged;                                                                                 \
    const pd_kernels_##suffix *ref = &pd_set_ref_##suffix;                                                             \
    if (set != NULL && strcmp(set, "ref") == 0) return ref;                                                            \
    if (set != NULL && strcmp(set, "host") != 0) return NULL;                                                          \
    if (merged.set == NULL) {                                                                                          \
      merged = pd_set_host_##suffix;                                                                                   \
      PD_FOR_EACH_KERNEL(PD_FILL)                                                                                      \
    }                                                                                                                  \
    return &merged;                                                                                                    \
  }

PD_SELECT(f32)
PD_SELECT(f64)
