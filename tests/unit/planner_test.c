/* kind=auto: never worse than any kind that fits, better where one can be, what it says about its choice, and that
 * choosing is fast. PD_TEST_FULL=1 in the environment takes ten times as many random cases. */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "pipeline/orders.h"
#include "pipeline/planner.h"
#include "unit/schedule_help.h"

enum { MOST_RANKS = 64 };

typedef struct Case { /* a question to the planner, with room for its costs */
  double f[MOST_RANKS], i[MOST_RANKS], w[MOST_RANKS];
  PlannerInput input;
} Case;

static Case *equal_case(Arena *arena, int pp, int64_t m, double f, double i, double w) {
  Case *c = ARENA_NEW(arena, Case);
  for (int rank = 0; rank < pp; rank++) c->f[rank] = f, c->i[rank] = i, c->w[rank] = w;
  c->input = (PlannerInput){.pp = pp, .microbatches = m, .barrier = true, .f = c->f, .i = c->i, .w = c->w};
  return c;
}

static PlannerChoice choose(Arena *arena, const Case *c) {
  PlannerChoice choice;
  cr_assert(planner_choose(arena, &c->input, &choice), "%s", choice.why);
  return choice;
}

static double score_of(const PlannerInput *input, const ScheduleTiming *timing) {
  return input->barrier ? timing->makespan : timing->makespan - timing->beta + timing->sigma;
}

/* Plays a pipeline with the costs of a case. */
static ScheduleTiming play_case(Arena *arena, const PlannerInput *input, const pd_pipeline *pipeline) {
  int chunks = pd_copy_chunks(pipeline) / pipeline->pp;
  double *costs[3];
  const double *shares[] = {input->f, input->i, input->w};
  for (int k = 0; k < 3; k++) {
    costs[k] = ARENA_ARRAY(arena, double, pipeline->chunk_count);
    for (int c = 0; c < pipeline->chunk_count; c++) costs[k][c] = shares[k][pipeline->rank_of[c]] / chunks;
  }
  ScheduleTiming timing;
  const char *why;
  bool good =
      schedule_simulate(arena, pipeline, &(ScheduleCosts){costs[0], costs[1], costs[2], input->link}, &timing, &why);
  cr_assert(good, "%s", why);
  return timing;
}

static double held_of(const pd_pipeline *pipeline) {
  return (double)most_held(pipeline) * pipeline->pp / pd_copy_chunks(pipeline);
}

/* The best that any kind comes to; INFINITY if none fits. */
static double best_kind(const PlannerInput *input) {
  double best = INFINITY;
  for (const char *const *name = schedule_names(); *name; name++)
    for (int v = 1; v <= 4; v++) {
      const ScheduleKind *kind = kind_named(*name);
      Arena *arena = arena_new();
      ScheduleRequest request = {input->pp, v, input->microbatches};
      bool wanted =
          !kind->step && (kind->copies < 2 || input->two_copies) && (input->chunks == 0 || v == input->chunks);
      if (wanted && !kind->refuse(arena, &request)) {
        pd_pipeline pipeline = schedule_make(arena, kind, &request);
        ScheduleTiming timing = play_case(arena, input, &pipeline);
        if (!(input->memory > 0) || held_of(&pipeline) <= input->memory) best = fmin(best, score_of(input, &timing));
      }
      arena_free(arena);
    }
  return best;
}

static void check_choice(Arena *arena, const PlannerInput *input, const PlannerChoice *choice) {
  ScheduleTiming timing = play_case(arena, input, &choice->pipeline);
  cr_assert(timing.makespan == choice->timing.makespan && timing.sigma == choice->timing.sigma);
  cr_assert(choice->held == held_of(&choice->pipeline) &&
            choice->chunks == pd_copy_chunks(&choice->pipeline) / input->pp);
  if (input->memory > 0) cr_assert_leq(choice->held, input->memory);
  pd_pipeline pipeline = choice->pipeline;
  schedule_insert_communication(arena, &pipeline, all_true(arena, pipeline.chunk_count), true);
  Certificate certificate = schedule_certify(arena, &pipeline);
  cr_assert(accepted(certificate), "%s: %s", choice->text, certificate.why);
}

Test(planner, is_never_worse_than_the_best_kind_that_fits, .timeout = 300) {
  Random random = {77};
  const char *full = getenv("PD_TEST_FULL");
  int better = 0, rounds = full && strcmp(full, "1") == 0 ? 400 : 40;
  for (int round = 0; round < rounds; round++) {
    Arena *arena = arena_new();
    int pp = (int)draw(&random, 1, 6);
    Case *c = equal_case(arena, pp, draw(&random, 1, 14), 0, 0, 0);
    bool unequal = round % 3 == 0;
    for (int rank = 0; rank < pp; rank++) {
      bool again = unequal || rank == 0;
      c->f[rank] = again ? (double)draw(&random, 1, 20) : c->f[0];
      c->i[rank] = again ? (double)draw(&random, 1, 20) : c->i[0];
      c->w[rank] = again ? (double)draw(&random, 0, 20) : c->w[0];
    }
    c->input.link = (double)draw(&random, 0, 4) * (double)draw(&random, 0, 1);
    c->input.chunks = (int)(draw(&random, 0, 2) == 0 ? draw(&random, 1, 4) : 0);
    c->input.memory = draw(&random, 0, 1) ? (double)draw(&random, 1, 2 * pp) : 0;
    c->input.barrier = draw(&random, 0, 3) > 0;
    c->input.two_copies = draw(&random, 0, 3) == 0;
    double kind = best_kind(&c->input);
    PlannerChoice choice;
    bool found = planner_choose(arena, &c->input, &choice);
    cr_assert(found || isinf(kind), "round %d: %s, but a kind takes %g", round, choice.why, kind);
    if (found) {
      double score = score_of(&c->input, &choice.timing);
      cr_assert(score <= kind * (1 + 1e-12), "round %d: %s, but a kind takes %g", round, choice.why, kind);
      better += score < kind * (1 - 1e-12);
      check_choice(arena, &c->input, &choice);
    }
    arena_free(arena);
  }
  cr_assert_gt(better, rounds / 8, "better than every kind in %d of %d", better, rounds);
}

/* With equal costs interleaved zero bubble meets the bound: the planner finds it, with all the chunks it may use. */
Test(planner, meets_the_bound_at_equal_costs) {
  for (int pp = 2; pp <= 8; pp++)
    for (int64_t m = pp; m <= 4 * pp; m += 3) {
      Arena *arena = arena_new();
      Case *c = equal_case(arena, pp, m, 12, 12, 12);
      PlannerChoice choice = choose(arena, c);
      cr_assert(choice.timing.beta == 3.0 * (pp - 1) && choice.chunks == 4, "%s", choice.why);
      cr_assert_not_null(strstr(choice.why, "the least that is possible"));
      arena_free(arena);
    }
}

/* An optimizer that waits for all ranks makes the makespan count, else idle time inside a rank's own span does. */
Test(planner, knows_whether_a_step_ends_in_a_barrier) {
  Arena *arena = arena_new();
  Case *c = equal_case(arena, 4, 8, 12, 12, 12);
  c->input.chunks = 1;
  PlannerChoice choice = choose(arena, c);
  cr_assert_str_eq(choice.kind, "zb-h1", "%s", choice.why); /* ZB-H2 takes as long and more memory */
  c->input.barrier = false;
  choice = choose(arena, c);
  cr_assert(strcmp(choice.kind, "zb-h2") == 0 && choice.timing.sigma == 0, "%s", choice.why);
  arena_free(arena);
}

Test(planner, trades_time_for_memory) {
  Arena *arena = arena_new();
  static const struct {
    double memory, makespan, held;
    const char *kind;
  } known[] = {{4, 297, 4, "interleaved-zb"}, {3, 318, 3, "v-half"}, {2, 354, 2, "v-min"}};
  double before = 0;
  for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
    Case *c = equal_case(arena, 4, 8, 12, 12, 12);
    c->input.memory = known[k].memory;
    PlannerChoice choice = choose(arena, c);
    cr_assert(strcmp(choice.kind, known[k].kind) == 0 && choice.timing.makespan == known[k].makespan &&
                  choice.held == known[k].held,
              "%s", choice.why);
    cr_assert_gt(choice.timing.makespan, before);
    before = choice.timing.makespan;
  }
  /* the same limit in bytes: two units of weights, and 100 for each micro-batch */
  Case *c = equal_case(arena, 4, 8, 12, 12, 12);
  double fixed[] = {50, 50, 50, 50}, activation[] = {100, 100, 100, 100};
  c->input.fixed = fixed;
  c->input.activation = activation;
  c->input.memory = 350;
  cr_assert_str_eq(choose(arena, c).kind, "v-half");
  c->input.memory = 349;
  cr_assert_neq(choose(arena, c).held, 3);
  arena_free(arena);
}

/* No kind is content with one micro-batch at a time; an order of its own is. */
Test(planner, makes_an_order_where_no_kind_fits) {
  Arena *arena = arena_new();
  Case *c = equal_case(arena, 4, 8, 12, 12, 12);
  c->input.memory = 1;
  PlannerChoice choice = choose(arena, c);
  cr_assert(strcmp(choice.kind, "auto") == 0 && choice.held == 1, "%s", choice.why);
  check_choice(arena, &c->input, &choice);
  c->input.memory = 0.2;
  PlannerChoice none;
  cr_assert_not(planner_choose(arena, &c->input, &none));
  cr_assert_str_eq(none.why, "no schedule fits into 0.2 on every rank");
  cr_assert(none.rejected_count == 18 && strstr(none.rejected[0], "may hold 0.2"), "%s", none.rejected[0]);
  arena_free(arena);
}

/* Costs at which the closed forms leave something: F, B, W = 10, 12, 8 on 8 ranks in two chunks. */
Test(planner, finds_orders_that_no_kind_has) {
  Arena *arena = arena_new();
  Case *c = equal_case(arena, 8, 32, 10, 12, 8);
  c->input.chunks = 2;
  PlannerChoice choice = choose(arena, c);
  cr_assert(choice.timing.beta == 35 && choice.timing.bound == 35, "%s", choice.why);
  cr_assert(best_kind(&c->input) >= choice.timing.makespan + 5);
  arena_free(arena);
}

/* A hop of a fifth of a forward: 1F1B and ZB-H1 pay for it in every round, more forwards ahead do not. */
Test(planner, takes_the_link_into_account) {
  Arena *arena = arena_new();
  Case *c = equal_case(arena, 8, 32, 10, 10, 10);
  c->input.chunks = 1;
  c->input.link = 2;
  PlannerChoice choice = choose(arena, c);
  pd_pipeline plain = schedule_make(arena, kind_named("zb-h1"), &(ScheduleRequest){8, 1, 32});
  cr_assert(choice.timing.makespan == 8 * 32 * 3.75 + 7 * 12, "%s", choice.why);
  cr_assert_gt(play_case(arena, &c->input, &plain).makespan, choice.timing.makespan);
  arena_free(arena);
}

static bool cut_two(void *context, int chunks, double *f, double *i, double *w) {
  const int *most = context;
  for (int c = 0; c < 4 * chunks; c++) f[c] = i[c] = w[c] = c == 0 ? 2 : 1; /* the first chunk is heavier */
  return chunks <= *most;
}

static bool fits_four(void *context, const pd_pipeline *pipeline, const char **why) {
  (void)context;
  *why = "it holds more than four chunks";
  return most_held(pipeline) <= 4;
}

Test(planner, asks_the_model_for_costs_and_memory) {
  Arena *arena = arena_new();
  int most = 2;
  PlannerInput input = {.pp = 4, .microbatches = 8, .barrier = true, .cut = cut_two, .context = &most};
  PlannerChoice choice;
  cr_assert(planner_choose(arena, &input, &choice) && choice.chunks <= 2);
  input.fits = fits_four;
  cr_assert(planner_choose(arena, &input, &choice));
  cr_assert_leq(most_held(&choice.pipeline), 4);
  bool told = false;
  for (int k = 0; k < choice.rejected_count; k++) told |= strstr(choice.rejected[k], "more than four chunks") != NULL;
  cr_assert(told);
  most = 0;
  cr_assert_not(planner_choose(arena, &input, &choice));
  arena_free(arena);
}

Test(planner, says_why_every_other_kind_was_not_taken) {
  Arena *arena = arena_new();
  Case *c = equal_case(arena, 4, 8, 12, 12, 12);
  c->input.memory = 3;
  PlannerChoice choice = choose(arena, c);
  cr_assert_str_eq(choice.kind, "v-half");
  cr_assert_eq(choice.rejected_count, 17);
  for (const char *const *name = schedule_names(); *name; name++) {
    int lines = 0;
    for (int k = 0; k < choice.rejected_count; k++) {
      size_t length = strlen(*name);
      const char *after = strncmp(choice.rejected[k], *name, length) == 0 ? choice.rejected[k] + length : NULL;
      lines += after && (strncmp(after, ": ", 2) == 0 || strncmp(after, " with ", 6) == 0);
    }
    cr_assert_eq(lines, strcmp(*name, "v-half") != 0, "%s: %d lines", *name, lines);
  }
  Text all = {.arena = arena};
  for (int k = 0; k < choice.rejected_count; k++) text_printf(&all, "%s\n", choice.rejected[k]);
  static const char *const wanted[] = {
      "gpipe: it cannot take less than 324\n",
      "zb-v: rank 0 holds 4 micro-batches, and may hold 3\n",
      "v-min: with 2 chunks it takes 354, 36 more\n",
      "dualpipe: it keeps two copies of the model\n",
      "pipedream: it never waits for a step to end, so that micro-batches see different weights\n",
  };
  for (size_t k = 0; k < sizeof wanted / sizeof wanted[0]; k++)
    cr_assert_not_null(strstr(all.at, wanted[k]), "%s is not in\n%s", wanted[k], all.at);
  arena_free(arena);
}

Test(planner, gives_the_same_order_for_the_same_question) {
  Arena *arena = arena_new();
  Random random = {5};
  Case *c = equal_case(arena, 5, 13, 0, 0, 0);
  for (int rank = 0; rank < 5; rank++)
    c->f[rank] = (double)draw(&random, 5, 9), c->i[rank] = (double)draw(&random, 5, 9),
    c->w[rank] = (double)draw(&random, 3, 9);
  PlannerChoice a = choose(arena, c), b = choose(arena, c);
  cr_assert_str_eq(a.why, b.why);
  for (int rank = 0; rank < 5; rank++) {
    cr_assert_eq(a.pipeline.ranks[rank].count, b.pipeline.ranks[rank].count);
    cr_assert_arr_eq(a.pipeline.ranks[rank].at, b.pipeline.ranks[rank].at,
                     sizeof(pd_action) * (size_t)a.pipeline.ranks[rank].count);
  }
  arena_free(arena);
}

/* ---- orders ---- */

/* However little room there is, a play ends: a rank always leaves room for its later chunks. */
Test(orders, a_play_always_ends_within_its_memory) {
  Random random = {6};
  for (int round = 0; round < 400; round++) {
    Arena *arena = arena_new();
    int pp = (int)draw(&random, 1, 6), v = (int)draw(&random, 1, 4);
    int64_t m = draw(&random, 1, 12);
    bool wave = draw(&random, 0, 1) && v % 2 == 0;
    pd_pipeline pipeline =
        schedule_shape(arena, kind_named(wave ? "hanayo" : "interleaved"), &(ScheduleRequest){pp, v, m});
    pipeline.split = true;
    double *costs[3];
    for (int k = 0; k < 3; k++) {
      costs[k] = ARENA_ARRAY(arena, double, pp *v);
      for (int c = 0; c < pp * v; c++) costs[k][c] = (double)draw(&random, 0, 9);
    }
    int64_t *cap = ARENA_ARRAY(arena, int64_t, pp);
    for (int rank = 0; rank < pp; rank++) cap[rank] = draw(&random, v, 2 * v + 3);
    OrderPolicy policy = {draw(&random, 0, 1), draw(&random, 0, 1), (double)draw(&random, 0, 2) / 2};
    ScheduleCosts all = {costs[0], costs[1], costs[2], (double)draw(&random, 0, 3)};
    pd_action_list *ranks = ARENA_ARRAY(arena, pd_action_list, pp);
    cr_assert(order_by_playing(arena, &pipeline, &all, cap, policy, ranks));
    pipeline.ranks = ranks;
    for (int rank = 0; rank < pp; rank++) cr_assert_leq(schedule_held(&pipeline, rank), cap[rank]);
    schedule_insert_communication(arena, &pipeline, all_true(arena, pp * v), true);
    Certificate certificate = schedule_certify(arena, &pipeline);
    cr_assert(accepted(certificate), "round %d: %s", round, certificate.why);
    for (int rank = 0; rank < pp; rank++) cap[rank] = v - 1;
    cr_assert_not(order_by_playing(arena, &pipeline, &all, cap, policy, ranks));
    arena_free(arena);
  }
}

/* With the depths of interleaved zero bubble a table gives its order. */
Test(orders, a_table_has_interleaved_zero_bubble_among_its_orders) {
  Arena *arena = arena_new();
  ScheduleRequest request = {4, 3, 10};
  pd_pipeline wanted = schedule_make(arena, kind_named("interleaved-zb"), &request);
  int64_t ahead[4], delay[4];
  for (int rank = 0; rank < 4; rank++) ahead[rank] = 3 - rank + 2 * 5, delay[rank] = rank;
  pd_action_list ranks[4];
  order_along_table(arena, &request, ahead, delay, ranks);
  for (int rank = 0; rank < 4; rank++) {
    cr_assert_eq(ranks[rank].count, wanted.ranks[rank].count);
    cr_assert_arr_eq(ranks[rank].at, wanted.ranks[rank].at, sizeof(pd_action) * (size_t)ranks[rank].count);
  }
  arena_free(arena);
}

/* ---- time ---- */

static double cpu_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* 64 ranks and 1024 micro-batches, in CPU time; limits leave room for a busy machine. */
Test(time, of_every_kind_and_of_the_planner, .timeout = 120) {
  for (const char *const *name = schedule_names(); *name; name++)
    for (int v = 1; v <= 2; v++) {
      Arena *arena = arena_new();
      ScheduleRequest request = {64, v, 1024};
      if (!kind_named(*name)->refuse(arena, &request)) {
        double begin = cpu_seconds();
        pd_pipeline pipeline = schedule_make(arena, kind_named(*name), &request);
        play(arena, &pipeline, 1, 1, 1, 0);
        double took = cpu_seconds() - begin;
        cr_log_info("%s, %d chunks: %.0f ms", *name, v, 1e3 * took);
        cr_assert_lt(took, 0.25, "%s, %d chunks: %.0f ms", *name, v, 1e3 * took);
      }
      arena_free(arena);
    }
  Random random = {64};
  for (int unequal = 0; unequal < 2; unequal++) {
    Arena *arena = arena_new();
    Case *c = equal_case(arena, 64, 1024, 10, 12, 8);
    for (int rank = 0; rank < 64 && unequal; rank++)
      c->f[rank] += (double)draw(&random, 0, 4), c->i[rank] += (double)draw(&random, 0, 4),
          c->w[rank] += (double)draw(&random, 0, 4);
    c->input.link = unequal;
    double begin = cpu_seconds();
    PlannerChoice choice = choose(arena, c);
    double took = cpu_seconds() - begin;
    cr_log_info("%s: %.0f ms", choice.why, 1e3 * took);
    cr_assert_lt(took, 3, "%.0f ms", 1e3 * took);
    arena_free(arena);
  }
}
