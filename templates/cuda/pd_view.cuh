/* Strided views for kernels: pd_view (kernels/kernels.h) with neighbouring axes joined and division by a constant in
 * place of division, so that a thread finds its elements from its number in a few instructions. Built on the host,
 * given to a kernel by value. */
#ifndef PD_VIEW_CUH
#define PD_VIEW_CUH

#include "pd_device.cuh"

#include "kernels/kernels.h"

/* x / divisor for 0 <= x < 2^31 as a multiplication (Granlund and Montgomery 1994) */
typedef struct pd_divider {
  uint32_t divisor, multiplier, shift;
} pd_divider;

static inline pd_divider pd_divider_of(int64_t divisor) {
  pd_divider d = {(uint32_t)divisor, 0, 0};
  while ((UINT64_C(1) << d.shift) < (uint64_t)divisor) d.shift++;
  d.multiplier = (uint32_t)(((UINT64_C(1) << 32) * ((UINT64_C(1) << d.shift) - d.divisor)) / d.divisor + 1);
  return d;
}

static __device__ __forceinline__ uint32_t pd_divide(pd_divider d, uint32_t x) {
  return ((uint32_t)((uint64_t)x * d.multiplier >> 32) + x) >> d.shift;
}

/* The axes of a view that have (or do not have) a place in the result, the last one fastest. */
typedef struct pd_walk {
  int rank;
  int64_t items; /* product of the sizes */
  int64_t size[PD_MAX_RANK], out[PD_MAX_RANK], a[PD_MAX_RANK], b[PD_MAX_RANK];
  pd_divider by[PD_MAX_RANK];
} pd_walk;

typedef struct pd_place {
  int64_t out, a, b; /* offsets in elements */
} pd_place;

/* too many items for 32-bit arithmetic */
static inline bool pd_walk_is_wide(const pd_walk &walk) {
  return walk.items > INT32_MAX;
}

static inline void pd_walk_finish(pd_walk *walk) {
  walk->items = 1;
  for (int i = 0; i < walk->rank; i++) walk->items *= walk->size[i];
  for (int i = 0; i < walk->rank; i++)
    walk->by[i] = pd_divider_of(walk->size[i] > 0 && walk->size[i] <= INT32_MAX ? walk->size[i] : 1);
}

/* The summed axes of a view (those without a stride in the result), or the others. Axes of size 1 are dropped, and
 * neighbours that every operand walks as one are joined: offsets and their order stay the same. */
static inline pd_walk pd_walk_of(const pd_view *view, bool summed) {
  pd_walk walk = {};
  for (int i = 0; i < view->rank; i++) {
    const bool is_summed = view->out[i] == 0 && view->size[i] != 1;
    if (is_summed != summed || view->size[i] == 1) continue;
    const int last = walk.rank - 1;
    const int64_t n = view->size[i];
    if (last >= 0 && walk.out[last] == n * view->out[i] && walk.a[last] == n * view->a[i] &&
        walk.b[last] == n * view->b[i]) {
      walk.size[last] *= n, walk.out[last] = view->out[i], walk.a[last] = view->a[i], walk.b[last] = view->b[i];
    } else {
      walk.size[walk.rank] = n, walk.out[walk.rank] = view->out[i];
      walk.a[walk.rank] = view->a[i], walk.b[walk.rank] = view->b[i];
      walk.rank++;
    }
  }
  pd_walk_finish(&walk);
  return walk;
}

/* Counts packs of `lanes` elements along the last axis instead of elements, where that is possible for `out` and `a`.
 */
static inline bool pd_walk_pack(pd_walk *walk, int lanes) {
  const int last = walk->rank - 1;
  if (last < 0 || walk->out[last] != 1 || walk->a[last] != 1 || walk->size[last] % lanes != 0) return false;
  for (int i = 0; i < last; i++) {
    if (walk->out[i] % lanes != 0 || walk->a[i] % lanes != 0) return false;
  }
  walk->size[last] /= lanes, walk->out[last] = lanes, walk->a[last] = lanes;
  pd_walk_finish(walk);
  return true;
}

/* Offsets of item number `item` of a walk. */
template <bool wide> static __device__ __forceinline__ pd_place pd_place_of(const pd_walk &walk, int64_t item) {
  pd_place at = {0, 0, 0};
  uint32_t rest = (uint32_t)item;
  PD_UNROLL(PD_MAX_RANK)
  for (int i = PD_MAX_RANK - 1; i >= 0; i--) {
    if (i >= walk.rank) continue;
    int64_t index;
    if (wide) {
      index = item % walk.size[i];
      item /= walk.size[i];
    } else {
      const uint32_t quotient = pd_divide(walk.by[i], rest);
      index = rest - quotient * walk.by[i].divisor;
      rest = quotient;
    }
    at.out += index * walk.out[i], at.a += index * walk.a[i], at.b += index * walk.b[i];
  }
  return at;
}

#endif
