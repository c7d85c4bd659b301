/* Counter-based random numbers: Philox 4x32-10 (Salmon et al., SC'11). Every number is a pure function of
 * (seed, purpose, counter), so that initial weights, dropout and data order do not depend on the layout. */
#ifndef PD_RANDOM_H
#define PD_RANDOM_H

#include <stdint.h>

/* 128 random bits for counter `c` (128 bits, little words first) and key `k` (64 bits). */
void pd_philox(const uint32_t c[4], const uint32_t k[2], uint32_t out[4]);

/* 64-bit hash of a name (FNV-1a then a finalizer): the purpose of a stream. */
uint64_t pd_purpose(const char *name);

/* Element `index` of the stream (seed, purpose): uniform in [0,1) with 24 bits, and standard normal (Box-Muller over
 * the pair that the element belongs to). */
float pd_uniform_at(uint64_t seed, uint64_t purpose, uint64_t index);
double pd_normal_at(uint64_t seed, uint64_t purpose, uint64_t index);

/* Position `index` of a pseudo-random permutation of 0..n-1 (a Feistel network with cycle walking): a pure function of
 * (seed, purpose, index), so that a shuffled epoch needs no table. */
uint64_t pd_permute(uint64_t seed, uint64_t purpose, uint64_t n, uint64_t index);

#endif
