/* See degrees.h. A program that says its dp is one with a single degree, so that nobody else asks which it is. */
#include "degrees.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { MOST_LISTED = 12 };

int64_t pd_degrees_ranks(const pd_program *program, int dp) {
  return (int64_t)program->pp * program->tp * dp;
}

static int count(const pd_program *program) {
  return program->degree_count > 0 ? program->degree_count : 1;
}

static int dp_at(const pd_program *program, int index) {
  return program->degree_count > 0 ? program->degrees[index].dp : program->dp;
}

static bool wanted(const pd_program *program, int64_t asked, int index) {
  return asked == 0 || asked == dp_at(program, index);
}

bool pd_degrees_check(const pd_program *program, int64_t asked, pd_problem *problem) {
  if (asked == 0) return true;
  for (int i = 0; i < count(program); i++) {
    if (dp_at(program, i) == asked) return true;
  }
  return pd_problem_say(problem, "--dp=%" PRId64 ": this program was planned for dp %s", asked,
                        pd_degrees_text(program, 0, false));
}

int pd_degrees_of(const pd_program *program, int64_t asked, int64_t ranks) {
  for (int i = 0; i < count(program); i++) {
    const int dp = dp_at(program, i);
    if (wanted(program, asked, i) && pd_degrees_ranks(program, dp) == ranks) return dp;
  }
  return 0;
}

int pd_degrees_first(const pd_program *program, int64_t asked) {
  return asked != 0 ? (int)asked : dp_at(program, 0);
}

int pd_degrees_below(const pd_program *program, int64_t asked, int64_t ranks) {
  int best = pd_degrees_first(program, asked);
  for (int i = 0; i < count(program); i++) {
    const int dp = dp_at(program, i);
    if (wanted(program, asked, i) && pd_degrees_ranks(program, dp) <= ranks) best = dp;
  }
  return best;
}

const char *pd_degrees_text(const pd_program *program, int64_t asked, bool ranks) {
  static char texts[2][MOST_LISTED * 24];
  char *text = texts[ranks];
  size_t at = 0;
  const int all = asked != 0 ? 1 : count(program);
  for (int i = 0; i < all; i++) {
    const bool skips = all > MOST_LISTED && i == MOST_LISTED - 2;
    if (skips) i = all - 1;
    const int dp = asked != 0 ? (int)asked : dp_at(program, i);
    at += (size_t)snprintf(text + at, sizeof texts[0] - at, "%s%" PRId64,
                           i == 0        ? ""
                           : skips       ? ", … or "
                           : i + 1 < all ? ", "
                                         : " or ",
                           ranks ? pd_degrees_ranks(program, dp) : dp);
  }
  return text;
}

bool pd_degrees_take(const pd_program *program, int dp, pd_program *taken, pd_problem *problem) {
  *taken = *program;
  for (int i = 0; i < program->degree_count; i++) {
    const pd_degree *degree = &program->degrees[i];
    if (degree->dp != dp) continue;
    taken->dp = dp;
    taken->chunks = degree->chunks;
    taken->microbatches = degree->microbatches;
    char *plan = malloc((size_t)degree->plan_bytes + 1);
    uLongf size = (uLongf)degree->plan_bytes;
    if (plan == NULL) return pd_problem_say(problem, "plan: not enough memory");
    if (uncompress((Bytef *)plan, &size, program->packed_plans + degree->packed_at, (uLong)degree->packed_bytes) !=
            Z_OK ||
        size != (uLongf)degree->plan_bytes) {
      free(plan);
      return pd_problem_say(problem, "plan: that of dp %d cannot be unpacked: the program was altered", dp);
    }
    plan[size] = 0;
    taken->plan = plan;
  }
  return true;
}

void pd_degrees_release(const pd_program *program, pd_program *taken) {
  if (taken->plan != program->plan) free((void *)(uintptr_t)taken->plan);
  taken->plan = NULL;
}
