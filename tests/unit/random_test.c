/* Counter-based random numbers: the generator against its published vectors, the streams against what a uniform and a
 * normal distribution must satisfy, the permutation against being one. All draws are fixed, so nothing here is flaky.
 */
#include "random.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* known-answer vectors of Random123 1.14, kat_vectors: philox4x32 10 */
static const struct {
  uint32_t counter[4], key[2], want[4];
} known[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

Test(random, philox_known_answers) {
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    uint32_t got[4];
    pd_philox(known[i].counter, known[i].key, got);
    for (int w = 0; w < 4; w++) {
      cr_expect(got[w] == known[i].want[w], "vector %zu word %d: got %08x, want %08x", i, w, got[w], known[i].want[w]);
    }
  }
}

static int bits_set(uint64_t x) {
  int count = 0;
  for (; x != 0; x &= x - 1) count++;
  return count;
}

Test(random, purpose_separates_names) {
  const char *names[] = {"", "a", "b", "aa", "ab", "ba", "w1", "w2", "layer0.weight", "layer1.weight", "weight.layer0"};
  const size_t count = sizeof names / sizeof *names;
  for (size_t i = 0; i < count; i++) {
    cr_expect(pd_purpose(names[i]) == pd_purpose(names[i]));
    for (size_t j = 0; j < i; j++) {
      const int differing = bits_set(pd_purpose(names[i]) ^ pd_purpose(names[j]));
      cr_expect(differing >= 12 && differing <= 52, "'%s' and '%s' differ in %d bits", names[i], names[j], differing);
    }
  }
  /* a checkpoint's data order and masks depend on these bits: they may not change between versions */
  cr_expect(pd_purpose("layer0.weight") == UINT64_C(0x0038b2a30cefe989), "got %016llx",
            (unsigned long long)pd_purpose("layer0.weight"));
}

Test(random, uniform_is_uniform) {
  enum { COUNT = 200000, CELLS = 64 };
  int cells[CELLS] = {0};
  double sum = 0, squares = 0, product = 0, last = 0.5;
  for (uint64_t i = 0; i < COUNT; i++) {
    const float u = pd_uniform_at(7, 9, i);
    cr_assert(u >= 0 && u < 1, "element %d is %g", (int)i, (double)u);
    cr_assert(u * 0x1p24f == floorf(u * 0x1p24f), "element %d has more than 24 bits", (int)i);
    cells[(int)(u * CELLS)]++;
    sum += (double)u - 0.5, squares += ((double)u - 0.5) * ((double)u - 0.5), product += ((double)u - 0.5) * last;
    last = (double)u - 0.5;
  }
  const double n = COUNT;
  double chi = 0;
  for (int i = 0; i < CELLS; i++) chi += (cells[i] - n / CELLS) * (cells[i] - n / CELLS) / (n / CELLS);
  cr_expect(chi > 25 && chi < 120, "chi-square of 63 degrees is %g", chi); /* 5 sigma of its normal limit */
  cr_expect(fabs(sum / n) < 5 * sqrt(1 / 12.0 / n), "mean is off by %g", sum / n);
  cr_expect(fabs(squares / n * 12 - 1) < 0.01, "variance is %g of 1/12", squares / n * 12);
  cr_expect(fabs(product / n) < 5 / 12.0 / sqrt(n), "neighbours correlate by %g", product / n);
}

Test(random, normal_is_normal) {
  enum { COUNT = 200000 };
  double moment[5] = {0}, product = 0, last = 0;
  int beyond[5] = {0};
  for (uint64_t i = 0; i < COUNT; i++) {
    const double x = pd_normal_at(7, 9, i);
    cr_assert(isfinite(x));
    double power = 1;
    for (int k = 0; k < 5; k++) {
      moment[k] += power;
      power *= x;
      if (fabs(x) > k) beyond[k]++;
    }
    if (i % 2 == 1) product += x * last; /* the two of a pair are independent */
    last = x;
  }
  const double n = COUNT;
  cr_expect(fabs(moment[1] / n) < 5 / sqrt(n), "mean %g", moment[1] / n);
  cr_expect(fabs(moment[2] / n - 1) < 5 * sqrt(2 / n), "variance %g", moment[2] / n);
  cr_expect(fabs(moment[3] / n) < 5 * sqrt(15 / n), "third moment %g", moment[3] / n);
  cr_expect(fabs(moment[4] / n - 3) < 5 * sqrt(96 / n), "fourth moment %g", moment[4] / n);
  cr_expect(fabs(product / (n / 2)) < 5 / sqrt(n / 2), "pairs correlate by %g", product / (n / 2));
  for (int k = 1; k < 5; k++) {
    const double expected = n * erfc(k / sqrt(2.0));
    cr_expect(fabs(beyond[k] - expected) < 5 * sqrt(expected) + 1, "%d beyond %d sigma, not %g", beyond[k], k,
              expected);
  }
}

/* the numbers themselves, by libm from the block's words */
Test(random, normal_is_box_muller) {
  for (uint64_t i = 0; i < 20000; i++) {
    const uint32_t counter[4] = {(uint32_t)i, 0, 9 ^ UINT32_C(0x7f4a7c15), UINT32_C(0x9e3779b9)}, key[2] = {7, 0};
    uint32_t w[4];
    pd_philox(counter, key, w);
    const double u = 1 - (double)(((uint64_t)w[1] << 32 | w[0]) >> 12) * 0x1p-52;
    const double turn = 6.28318530717958647692 * ((double)(((uint64_t)w[3] << 32 | w[2]) >> 12) * 0x1p-52);
    const double radius = sqrt(-2 * log(u));
    cr_assert_float_eq(pd_normal_at(7, 9, 2 * i), radius * cos(turn), 2e-14, "pair %d", (int)i);
    cr_assert_float_eq(pd_normal_at(7, 9, 2 * i + 1), radius * sin(turn), 2e-14, "pair %d", (int)i);
  }
}

Test(random, streams_differ) {
  int same_seed = 0, same_purpose = 0, kinds = 0;
  double correlation = 0;
  for (uint64_t i = 0; i < 4000; i++) {
    same_purpose += pd_uniform_at(1, 5, i) == pd_uniform_at(2, 5, i);
    same_seed += pd_uniform_at(1, 5, i) == pd_uniform_at(1, 6, i);
    kinds += pd_normal_at(1, 5, i) == (double)pd_uniform_at(1, 5, i);
    correlation += pd_normal_at(1, 5, i) * ((double)pd_uniform_at(1, 5, i) - 0.5);
  }
  cr_expect(same_seed < 5 && same_purpose < 5 && kinds < 5, "%d %d %d", same_seed, same_purpose, kinds);
  cr_expect(fabs(correlation / 4000) < 5 / sqrt(12.0 * 4000), "normal and uniform correlate by %g", correlation / 4000);
  /* indices beyond 32 bits are different elements */
  cr_expect(pd_uniform_at(1, 5, 3) != pd_uniform_at(1, 5, 3 + (UINT64_C(1) << 34)));
  cr_expect(pd_normal_at(1, 5, 3) != pd_normal_at(1, 5, 3 + (UINT64_C(1) << 34)));
}

Test(random, permute_is_a_permutation) {
  for (uint64_t n = 1; n <= 1100; n += n < 40 ? 1 : 53) {
    bool *seen = calloc(n, sizeof *seen);
    uint64_t fixed = 0;
    for (uint64_t i = 0; i < n; i++) {
      const uint64_t x = pd_permute(3, 4, n, i);
      cr_assert(x < n, "n %d: %d goes to %d", (int)n, (int)i, (int)x);
      cr_assert_not(seen[x], "n %d: %d is reached twice", (int)n, (int)x);
      seen[x] = true;
      fixed += x == i;
    }
    cr_expect(n < 100 || fixed < 10, "n %d: %d stay where they are", (int)n, (int)fixed);
    free(seen);
  }
}

Test(random, permute_covers_all_orders) {
  int count[27] = {0}, orders = 0; /* of three elements, by seed */
  for (uint64_t seed = 0; seed < 6000; seed++) {
    const uint64_t a = pd_permute(seed, 4, 3, 0), b = pd_permute(seed, 4, 3, 1), c = pd_permute(seed, 4, 3, 2);
    count[a * 9 + b * 3 + c]++;
  }
  for (int i = 0; i < 27; i++) {
    if (count[i] == 0) continue;
    orders++;
    cr_expect(count[i] > 800 && count[i] < 1200, "an order comes up %d times of 6000", count[i]);
  }
  cr_expect(orders == 6, "%d orders", orders);
}

Test(random, permute_mixes_far_and_depends_on_seed) {
  enum { COUNT = 100000 };
  double sum = 0, product = 0;
  int same = 0;
  const uint64_t n = (UINT64_C(1) << 33) + 12345; /* beyond 32 bits */
  for (uint64_t i = 0; i < COUNT; i++) {
    const double x = (double)pd_permute(3, 4, n, i) / (double)n - 0.5;
    sum += x;
    product += x * ((double)i / COUNT - 0.5);
    same += pd_permute(3, 4, n, i) == pd_permute(5, 4, n, i) || pd_permute(3, 4, n, i) == pd_permute(3, 6, n, i);
  }
  cr_expect(fabs(sum / COUNT) < 5 / sqrt(12.0 * COUNT), "mean is off by %g", sum / COUNT);
  cr_expect(fabs(product / COUNT) < 5 / 12.0 / sqrt(COUNT), "place and index correlate by %g", product / COUNT);
  cr_expect(same < 5, "%d of two orders agree", same);
}
