/* The number of replicas of a run: which numbers of ranks work, which one is taken, how they are listed, and that what is
 * taken is the program with that plan. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "degrees.h"

static const pd_program says_it = {.model = "toy", .pp = 3, .dp = 2, .tp = 2, .microbatches = 5, .plan = "{}"};
static const pd_degree four[] = {{.dp = 1}, {.dp = 2}, {.dp = 6}, {.dp = 12}};
static const pd_program open = {.model = "toy", .pp = 2, .tp = 2, .degree_count = 4, .degrees = four};

Test(degrees, a_program_that_says_its_dp_has_one) {
  cr_assert_eq(pd_degrees_of(&says_it, 0, 12), 2);
  cr_assert_eq(pd_degrees_of(&says_it, 0, 6), 0);
  cr_assert_eq(pd_degrees_first(&says_it, 0), 2);
  cr_assert_eq(pd_degrees_below(&says_it, 0, 5), 2);
  cr_assert_str_eq(pd_degrees_text(&says_it, 0, true), "12");
  cr_assert_str_eq(pd_degrees_text(&says_it, 0, false), "2");
  pd_program taken;
  pd_problem problem;
  cr_assert(pd_degrees_take(&says_it, 2, &taken, &problem));
  cr_assert(taken.dp == 2 && taken.microbatches == 5 && taken.plan == says_it.plan);
  pd_degrees_release(&says_it, &taken);
}

Test(degrees, ranks_give_one_of_several) {
  static const struct {
    int64_t asked, ranks;
    int dp, below;
  } rows[] = {{0, 4, 1, 1},  {0, 8, 2, 2},  {0, 24, 6, 6},  {0, 48, 12, 12}, {0, 1, 0, 1},
              {0, 12, 0, 2}, {0, 47, 0, 6}, {0, 100, 0, 12}, {2, 8, 2, 2},    {2, 4, 0, 2},
              {6, 48, 0, 6}, {0, 0, 0, 1},  {0, -1, 0, 1}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    cr_assert_eq(pd_degrees_of(&open, rows[i].asked, rows[i].ranks), rows[i].dp, "row %zu", i);
    cr_assert_eq(pd_degrees_below(&open, rows[i].asked, rows[i].ranks), rows[i].below, "row %zu", i);
  }
  cr_assert_eq(pd_degrees_first(&open, 0), 1);
  cr_assert_eq(pd_degrees_first(&open, 6), 6);
}

Test(degrees, what_cannot_be_is_refused) {
  pd_problem problem;
  cr_assert(pd_degrees_check(&open, 0, &problem) && pd_degrees_check(&open, 12, &problem));
  cr_assert(!pd_degrees_check(&open, 3, &problem));
  cr_assert_str_eq(problem.text, "--dp=3: this program was planned for dp 1, 2, 6 or 12");
  cr_assert(!pd_degrees_check(&open, (int64_t)1 << 32 | 1, &problem)); /* 1 in 32 bits */
}

Test(degrees, a_list_is_never_long) {
  pd_degree degrees[64];
  for (int i = 0; i < 64; i++) degrees[i] = (pd_degree){.dp = (1 << 20) - 64 + i};
  pd_program many = {.pp = 1 << 10, .tp = 1 << 10, .degree_count = 12, .degrees = degrees};
  const char *text = pd_degrees_text(&many, 0, true);
  cr_assert_not_null(strstr(text, "1099444518912, ")); /* (2^20 - 64) 2^20 */
  cr_assert_null(strstr(text, "…"));
  many.degree_count = 64;
  text = pd_degrees_text(&many, 0, false);
  cr_assert_str_eq(text, "1048512, 1048513, 1048514, 1048515, 1048516, 1048517, 1048518, 1048519, 1048520, 1048521, … or 1048575");
  cr_assert_str_eq(pd_degrees_text(&many, 1048520, false), "1048520");
}

Test(degrees, the_plan_that_is_taken_is_unpacked) {
  static const char *const plans[] = {"{\"first\": 1}\n", "{\"the second one\": [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]}\n"};
  unsigned char packed[512];
  pd_degree degrees[2];
  uLongf at = 0;
  for (int i = 0; i < 2; i++) {
    uLongf size = sizeof packed - at;
    cr_assert_eq(compress(packed + at, &size, (const Bytef *)plans[i], strlen(plans[i])), Z_OK);
    degrees[i] = (pd_degree){.dp = i + 1, .chunks = 3 + i, .microbatches = 8 >> i, .plan_bytes = (int64_t)strlen(plans[i]),
                             .packed_at = (int64_t)at, .packed_bytes = (int64_t)size};
    at += size;
  }
  const pd_program both = {.model = "toy", .pp = 1, .tp = 1, .degree_count = 2, .degrees = degrees, .packed_plans = packed};
  for (int i = 0; i < 2; i++) {
    pd_program taken;
    pd_problem problem;
    cr_assert(pd_degrees_take(&both, i + 1, &taken, &problem));
    cr_assert_str_eq(taken.plan, plans[i]);
    cr_assert(taken.dp == i + 1 && taken.chunks == 3 + i && taken.microbatches == 8 >> i && strcmp(taken.model, "toy") == 0);
    pd_degrees_release(&both, &taken);
    cr_assert_null(taken.plan);
  }
  degrees[1].plan_bytes--; /* another length than was packed */
  pd_program taken;
  pd_problem problem;
  cr_assert(!pd_degrees_take(&both, 2, &taken, &problem));
  cr_assert_not_null(strstr(problem.text, "that of dp 2 cannot be unpacked"));
  cr_assert(taken.dp == 2 && taken.plan == NULL);
}
