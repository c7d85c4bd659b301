/* The one place that turns Philox blocks into numbers, shared by random.c and the kernels so that both draw the same.
 *
 * A stream is (seed, purpose, kind of draw); the seed is the Philox key, the purpose the high half of the counter and
 * the element's block the low half. The kind is mixed into the purpose: a uniform and a normal stream of one name are
 * unrelated. Nothing here keeps state, and everything is inline so that loops over blocks vectorise.
 */
#ifndef PD_DRAW_H
#define PD_DRAW_H

#include "kernels/kernels.h"
#include "kernels/math.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* kinds of draw; uniform is 0 */
#define PD_DRAW_NORMAL UINT64_C(0x9e3779b97f4a7c15)
#define PD_DRAW_PERMUTE UINT64_C(0xc2b2ae3d27d4eb4f)
#define PD_DRAW_DROPOUT UINT64_C(0x165667b19e3779f9)

/* Philox 4x32-10 on a 128-bit counter (hi:lo) and a 64-bit key */
PD_FN void pd_philox_block(uint64_t key, uint64_t lo, uint64_t hi, uint32_t out[4]) {
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
PD_FN float pd_unit24(uint32_t word) {
  return (float)(word >> 8) * 0x1p-24f;
}

/* uniform in [1,2) with 52 bits */
PD_FN double pd_unit52(uint32_t low, uint32_t high) {
  const uint64_t bits = ((uint64_t)high << 32 | low) >> 12 | UINT64_C(0x3ff0000000000000);
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* Two independent standard normals from a block (Box-Muller). The logarithm and the sine (pd_turn_f64) are series of
 * their own, exact to about 1e-15: without branches and calls a loop over blocks vectorises, and no libm changes the
 * weights. */
PD_FN void pd_normal_of_block(const uint32_t w[4], double out[2]) {
  /* log(x), x in (0,1]: exponent and mantissa m in [sqrt(1/2), sqrt(2)), 2 atanh((m-1)/(m+1)) */
  const double x = 2 - pd_unit52(w[0], w[1]);
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits += UINT64_C(0x3ff0000000000000) - UINT64_C(0x3fe6a09e667f3bcd);
  const double exponent = (double)((int32_t)(bits >> 52) - 1023);
  bits = (bits & UINT64_C(0x000fffffffffffff)) + UINT64_C(0x3fe6a09e667f3bcd);
  double m;
  memcpy(&m, &bits, sizeof m);
  const double f = (m - 1) / (m + 1), f2 = f * f;
  double p = 1.0 / 21;
  p = PD_FMA_F64(p, f2, 1.0 / 19);
  p = PD_FMA_F64(p, f2, 1.0 / 17);
  p = PD_FMA_F64(p, f2, 1.0 / 15);
  p = PD_FMA_F64(p, f2, 1.0 / 13);
  p = PD_FMA_F64(p, f2, 1.0 / 11);
  p = PD_FMA_F64(p, f2, 1.0 / 9);
  p = PD_FMA_F64(p, f2, 1.0 / 7);
  p = PD_FMA_F64(p, f2, 1.0 / 5);
  p = PD_FMA_F64(p, f2, 1.0 / 3);
  const double log_x = PD_FMA_F64(exponent, 0.69314718055994530942, PD_FMA_F64(2 * f * f2, p, 2 * f));
  const double radius = pd_sqrt_f64(-2 * log_x);

  double cosine, sine;
  pd_turn_f64(pd_unit52(w[2], w[3]) - 1, &cosine, &sine);
  out[0] = radius * cosine;
  out[1] = radius * sine;
}

/* elements 2*pair and 2*pair+1 of a normal stream */
PD_FN void pd_normal_pair(uint64_t seed, uint64_t purpose, uint64_t pair, double out[2]) {
  uint32_t w[4];
  pd_philox_block(seed, pair, purpose ^ PD_DRAW_NORMAL, w);
  pd_normal_of_block(w, out);
}

/* Key of the dropout masks of one step. A mask word is then word (position & 3) of block (position / 4, sample). */
PD_FN uint64_t pd_dropout_key(pd_key key, uint64_t step) {
  uint32_t w[4];
  pd_philox_block(key.seed, step, key.purpose ^ PD_DRAW_DROPOUT, w);
  return (uint64_t)w[1] << 32 | w[0];
}

/* An element is kept when its word is at least this: 2^32 for p = 1 keeps nothing, 0 for p = 0 everything. */
PD_FN uint64_t pd_dropout_limit(double p) {
  return p >= 1 ? UINT64_C(1) << 32 : p > 0 ? (uint64_t)(p * 0x1p32 + 0.5) : 0;
}

/* Global number of local element i. No description (NULL), or one without axes: the local tensor is the whole one. */
PD_FN int64_t pd_global_index(const pd_local *at, int64_t i) {
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
PD_FN int64_t pd_local_run(const pd_local *at, int64_t n) {
  if (at == NULL || at->rank <= 0) return n;
  int64_t run = 1;
  for (int axis = at->rank - 1; axis >= 0; axis--) {
    run *= at->size[axis];
    if (at->size[axis] != at->global[axis]) break;
  }
  return run;
}

#endif
