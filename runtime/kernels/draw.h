/* The one place that turns Philox blocks into numbers, shared by random.c and the kernels so that both draw the same.
 *
 * A stream is (seed, purpose, kind of draw); the seed is the Philox key, the purpose the high half of the counter and
 * the element's block the low half. The kind is mixed into the purpose: a uniform and a normal stream of one name are
 * unrelated. Nothing here keeps state, and everything is inline so that loops over blocks vectorise.
 */
#ifndef PD_DRAW_H
#define PD_DRAW_H

#include "kernels/kernels.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* kinds of draw; uniform is 0 */
#define PD_DRAW_NORMAL UINT64_C(0x9e3779b97f4a7c15)
#define PD_DRAW_PERMUTE UINT64_C(0xc2b2ae3d27d4eb4f)
#define PD_DRAW_DROPOUT UINT64_C(0x165667b19e3779f9)

/* Philox 4x32-10 on a 128-bit counter (hi:lo) and a 64-bit key */
static inline void pd_philox_block(uint64_t key, uint64_t lo, uint64_t hi, uint32_t out[4]) {
  uint32_t c0 = (uint32_t)lo, c1 = (uint32_t)(lo >> 32), c2 = (uint32_t)hi, c3 = (uint32_t)(hi >> 32);
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  for (int round = 0; round < 10; round++) {
    const uint64_t p0 = (uint64_t)UINT32_C(0xD2511F53) * c0, p1 = (uint64_t)UINT32_C(0xCD9E8D57) * c2;
    c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
    c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)p1;
    c3 = (uint32_t)p0;
    k0 += UINT32_C(0x9E3779B9);
    k1 += UINT32_C(0xBB67AE85);
  }
  out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* uniform in [0,1): the top 24 bits of a word, exact in float */
static inline float pd_unit24(uint32_t word) {
  return (float)(word >> 8) * 0x1p-24f;
}

/* Elements 2*pair and 2*pair+1 of a normal stream. Two 53-bit uniforms, so that the tail reaches 8.5 sigma. */
static inline void pd_normal_pair(uint64_t seed, uint64_t purpose, uint64_t pair, double out[2]) {
  const double turn = 6.283185307179586476925286766559;
  uint32_t w[4];
  pd_philox_block(seed, pair, purpose ^ PD_DRAW_NORMAL, w);
  const uint64_t a = ((uint64_t)w[1] << 32 | w[0]) >> 11, b = ((uint64_t)w[3] << 32 | w[2]) >> 11;
  const double radius = sqrt(-2.0 * log((double)(a + 1) * 0x1p-53)); /* (0,1]: the logarithm is finite */
  const double angle = turn * ((double)b * 0x1p-53);
  out[0] = radius * cos(angle);
  out[1] = radius * sin(angle);
}

/* Key of the dropout masks of one step. A mask word is then word (position & 3) of block (position / 4, sample). */
static inline uint64_t pd_dropout_key(pd_key key, uint64_t step) {
  uint32_t w[4];
  pd_philox_block(key.seed, step, key.purpose ^ PD_DRAW_DROPOUT, w);
  return (uint64_t)w[1] << 32 | w[0];
}

/* An element is kept when its word is at least this: 2^32 for p = 1 keeps nothing, 0 for p = 0 everything. */
static inline uint64_t pd_dropout_limit(double p) {
  return p >= 1 ? UINT64_C(1) << 32 : p > 0 ? (uint64_t)(p * 0x1p32 + 0.5) : 0;
}

/* Global number of local element i. No description (NULL), or one without axes: the local tensor is the whole one. */
static inline int64_t pd_global_index(const pd_local *at, int64_t i) {
  if (at == NULL || at->rank <= 0) return i;
  int64_t global = 0, stride = 1;
  for (int axis = at->rank - 1; axis >= 0; axis--) {
    global += (at->first[axis] + i % at->size[axis]) * stride;
    i /= at->size[axis];
    stride *= at->global[axis];
  }
  return global;
}

/* How many consecutive local elements have consecutive global numbers: whole trailing axes, then a part of one. The
 * local tensor is a sequence of such runs. n is its number of elements. */
static inline int64_t pd_local_run(const pd_local *at, int64_t n) {
  if (at == NULL || at->rank <= 0) return n;
  int64_t run = 1;
  for (int axis = at->rank - 1; axis >= 0; axis--) {
    run *= at->size[axis];
    if (at->size[axis] != at->global[axis]) break;
  }
  return run;
}

#endif
