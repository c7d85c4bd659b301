/* Learning rates: the oracle values of a cosine with warm-up, every kind at its corners, and what warm-up means. */
#include <criterion/criterion.h>
#include <math.h>

#include "rate.h"

static void near(double got, double want, double tolerance, const char *what) {
  cr_assert(fabs(got - want) <= tolerance, "%s: got %.17g, want %.17g", what, got, want);
}

static const pd_program cosine = {.rate = PD_RATE_COSINE, .peak = 1e-3, .floor = 0, .warmup = 10, .end = 100};

Test(rate, cosine_oracle) {
  near(pd_rate_at(&cosine, 50), 5.868241e-4, 5e-11, "update 50");
  near(pd_rate_at(&cosine, 51), 5.695866e-4, 5e-11, "update 51");
  near(pd_rate_at(&cosine, 49), 6.039558e-4, 5e-11, "update 49");
  near(pd_rate_at(&cosine, 55), 5e-4, 1e-18, "half way");
}

Test(rate, warm_up_counts_from_one) {
  near(pd_rate_at(&cosine, 0), 1e-4, 1e-19, "update 0");
  near(pd_rate_at(&cosine, 4), 5e-4, 1e-19, "update 4");
  near(pd_rate_at(&cosine, 9), 1e-3, 0, "the last warm-up update");
  near(pd_rate_at(&cosine, 10), 1e-3, 0, "the first after it");
  cr_assert(pd_rate_at(&cosine, 11) < 1e-3);
}

Test(rate, warm_up_that_is_no_whole_number) {
  pd_program program = cosine;
  program.warmup = 2.5;
  near(pd_rate_at(&program, 0), 4e-4, 1e-18, "update 0");
  near(pd_rate_at(&program, 2), 1e-3, 0, "never above the peak");
}

Test(rate, ends_at_the_floor) {
  pd_program program = cosine;
  program.floor = 1e-5;
  near(pd_rate_at(&program, 100), 1e-5, 0, "at the end");
  near(pd_rate_at(&program, INT64_MAX / 2), 1e-5, 0, "long after");
  program.rate = PD_RATE_LINEAR;
  near(pd_rate_at(&program, 100), 1e-5, 1e-20, "linear, at the end");
  near(pd_rate_at(&program, 1000), 1e-5, 1e-20, "linear, after");
}

Test(rate, linear) {
  pd_program program = cosine;
  program.rate = PD_RATE_LINEAR;
  near(pd_rate_at(&program, 10), 1e-3, 0, "start");
  near(pd_rate_at(&program, 55), 5e-4, 1e-18, "half way");
  near(pd_rate_at(&program, 91), 1e-4, 1e-18, "near the end");
}

Test(rate, constant_keeps_its_warm_up) {
  const pd_program program = {.rate = PD_RATE_CONSTANT, .peak = 0.5, .warmup = 4};
  near(pd_rate_at(&program, 1), 0.25, 0, "warm-up");
  near(pd_rate_at(&program, 1000000), 0.5, 0, "ever after");
  const pd_program plain = {.rate = PD_RATE_CONSTANT, .peak = 1};
  near(pd_rate_at(&plain, 0), 1, 0, "no warm-up");
}

Test(rate, wsd_is_flat_then_falls) {
  const pd_program program = {.rate = PD_RATE_WSD, .peak = 1, .floor = 0.2, .warmup = 10, .decay_from = 80, .end = 100};
  near(pd_rate_at(&program, 4), 0.5, 0, "warm-up");
  near(pd_rate_at(&program, 10), 1, 0, "flat");
  near(pd_rate_at(&program, 80), 1, 0, "flat to its end");
  near(pd_rate_at(&program, 90), 0.6, 1e-15, "half way down");
  near(pd_rate_at(&program, 100), 0.2, 1e-15, "the end");
  near(pd_rate_at(&program, 500), 0.2, 1e-15, "after");
}
