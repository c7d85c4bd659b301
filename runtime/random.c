/* Counter-based random numbers of the runtime: the streams, the hash of their names and the pseudo-random permutation.
 *
 * Owns what is drawn for one element at a time; kernels/draw.h, which this file is a thin layer over, holds the block
 * generator that the kernels use for whole tensors. No state; every function may be called from any thread.
 */
#include "random.h"

#include "kernels/draw.h"

void pd_philox(const uint32_t c[4], const uint32_t k[2], uint32_t out[4]) {
  pd_philox_block((uint64_t)k[1] << 32 | k[0], (uint64_t)c[1] << 32 | c[0], (uint64_t)c[3] << 32 | c[2], out);
}

uint64_t pd_purpose(const char *name) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
  for (const unsigned char *p = (const unsigned char *)name; *p != 0; p++) {
    hash = (hash ^ *p) * UINT64_C(0x100000001b3);
  }
  hash = (hash ^ hash >> 33) * UINT64_C(0xff51afd7ed558ccd); /* finalizer of MurmurHash3: every bit on every bit */
  hash = (hash ^ hash >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
  return hash ^ hash >> 33;
}

float pd_uniform_at(uint64_t seed, uint64_t purpose, uint64_t index) {
  uint32_t w[4];
  pd_philox_block(seed, index / 4, purpose, w);
  return pd_unit24(w[index % 4]);
}

double pd_normal_at(uint64_t seed, uint64_t purpose, uint64_t index) {
  double pair[2];
  pd_normal_pair(seed, purpose, index / 2, pair);
  return pair[index % 2];
}

/* One pass of a balanced Feistel network over 2*half bits: a bijection whatever the round function is. */
static uint64_t feistel(uint64_t seed, uint64_t purpose, int half, uint64_t x) {
  const uint64_t mask = (UINT64_C(1) << half) - 1;
  uint64_t left = x >> half, right = x & mask;
  for (uint32_t round = 0; round < 8; round++) {
    uint32_t w[4];
    pd_philox_block(seed, (uint64_t)round << 32 | right, purpose ^ PD_DRAW_PERMUTE, w);
    const uint64_t next = left ^ (w[0] & mask);
    left = right;
    right = next;
  }
  return left << half | right;
}

uint64_t pd_permute(uint64_t seed, uint64_t purpose, uint64_t n, uint64_t index) {
  if (n <= 1) return 0;
  int half = 1; /* the smallest domain of an even number of bits that holds n; at most four times n */
  while (half < 32 && (n - 1) >> (2 * half) != 0) half++;
  uint64_t x = index % n;
  do x = feistel(seed, purpose, half, x);
  while (x >= n); /* ends: the cycle that x lies on leads back to x itself, which is below n */
  return x;
}
