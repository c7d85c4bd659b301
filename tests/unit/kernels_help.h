/* What the tests of kernels share: draws, memory that lasts for a test, the reference. */
#ifndef TESTS_UNIT_KERNELS_HELP_H
#define TESTS_UNIT_KERNELS_HELP_H

#include "kernels/kernels.h"
#include "random.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

enum { GUARD = 16 }; /* elements after every buffer that nothing may write */

static uint64_t draws;

static double between(double low, double high) {
  return low + (high - low) * (double)pd_uniform_at(11, 22, draws++);
}

static int64_t pick(int64_t low, int64_t high) { /* both included */
  return low + (int64_t)(between(0, 1) * (double)(high - low + 1));
}

static void *bag[4096];
static int bag_count;

static void *hold(size_t bytes) {
  cr_assert(bag_count < (int)(sizeof bag / sizeof *bag));
  return bag[bag_count++] = malloc(bytes + 1);
}

static void let_go(void) {
  while (bag_count > 0) free(bag[--bag_count]);
}

static const pd_kernels_f64 *ref;

static void start(void) {
  ref = pd_kernels_select_f64("ref");
  pd_kernels_threads(2);
}

#endif
