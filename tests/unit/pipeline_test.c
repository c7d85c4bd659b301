/* Stages and schedules: partition against brute force, every kind of schedule against its closed forms, insertion of
 * messages, and the certifier against hundreds of schedules that are each wrong in one place. Costs are whole numbers,
 * so every figure is exact. */
#include <criterion/criterion.h>
#include <string.h>

#include "pipeline/pipeline.h"
#include "pipeline/schedules/kinds.h"

/* ---- help ---- */

typedef struct Random { /* xorshift64*: the same numbers everywhere */
  uint64_t state;
} Random;

static int64_t draw(Random *random, int64_t low, int64_t high) {
  random->state ^= random->state >> 12;
  random->state ^= random->state << 25;
  random->state ^= random->state >> 27;
  return low + (int64_t)((random->state * UINT64_C(2685821657736338717)) >> 33) % (high - low + 1);
}

static const ScheduleKind *kind_named(const char *name) {
  const ScheduleKind *kind = schedule_find(name);
  cr_assert(kind != NULL, "%s is not known", name);
  return kind;
}

/* Compute-only; one unit a chunk. */
static pd_pipeline make(Arena *arena, const ScheduleKind *kind, int pp, int chunks, int64_t m) {
  ScheduleRequest request = {pp, chunks, m};
  int count = pp * chunks, *rank_of = ARENA_ARRAY(arena, int, count);
  int64_t *first_unit = ARENA_ARRAY(arena, int64_t, count + 1);
  pd_action_list *ranks = ARENA_ARRAY(arena, pd_action_list, pp);
  for (int i = 0; i <= count; i++) first_unit[i] = i;
  kind->place(&request, rank_of);
  kind->generate(arena, &request, ranks);
  return (pd_pipeline){.pp = pp,
                       .chunk_count = count,
                       .microbatches = m,
                       .rank_of = rank_of,
                       .first_unit = first_unit,
                       .ranks = ranks,
                       .split = kind->split};
}

static bool *all_true(Arena *arena, int count) {
  bool *flags = ARENA_ARRAY(arena, bool, count);
  memset(flags, true, (size_t)count);
  return flags;
}

static pd_pipeline make_with_messages(Arena *arena, const ScheduleKind *kind, int pp, int chunks, int64_t m,
                                      bool reduce) {
  pd_pipeline pipeline = make(arena, kind, pp, chunks, m);
  schedule_insert_communication(arena, &pipeline, all_true(arena, pipeline.chunk_count), reduce);
  return pipeline;
}

/* Every chunk costs the same. */
static ScheduleTiming play(Arena *arena, const pd_pipeline *pipeline, double f, double i, double w, double link) {
  double *costs[3];
  for (int k = 0; k < 3; k++) {
    costs[k] = ARENA_ARRAY(arena, double, pipeline->chunk_count);
    for (int c = 0; c < pipeline->chunk_count; c++) costs[k][c] = k == 0 ? f : k == 1 ? i : w;
  }
  ScheduleTiming timing;
  const char *why;
  bool good = schedule_simulate(arena, pipeline, &(ScheduleCosts){costs[0], costs[1], costs[2], link}, &timing, &why);
  cr_assert(good, "%s", why);
  return timing;
}

/* Most chunk activations held at once on a rank, from F to the end of B or W. */
static int64_t held(const pd_pipeline *pipeline, int rank) {
  int64_t now = 0, most = 0;
  for (int64_t i = 0; i < pipeline->ranks[rank].count; i++) {
    pd_action_kind kind = pipeline->ranks[rank].at[i].kind;
    now += kind == PD_F;
    if (now > most) most = now;
    now -= kind == PD_B || kind == PD_W;
  }
  return most;
}

static int64_t most_held(const pd_pipeline *pipeline) {
  int64_t most = 0;
  for (int rank = 0; rank < pipeline->pp; rank++)
    if (held(pipeline, rank) > most) most = held(pipeline, rank);
  return most;
}

static bool accepted(Certificate c) {
  return c.complete && c.ordered && c.matched && c.acyclic_buffered && c.acyclic_rendezvous && c.acyclic_grouped;
}

static double larger(double a, double b) {
  return a > b ? a : b;
}

/* ---- partition ---- */

static int64_t run_cost(const int64_t *costs, const int64_t *bounds, int part) {
  int64_t sum = 0;
  for (int64_t i = bounds[part]; i < bounds[part + 1]; i++) sum += costs[i];
  return sum;
}

static void check_equal_weights(int count, int parts, int large, int small) {
  Arena *arena = arena_new();
  int64_t *costs = ARENA_ARRAY(arena, int64_t, count), *bounds = ARENA_ARRAY(arena, int64_t, parts + 1);
  for (int i = 0; i < count; i++) costs[i] = 7;
  cr_assert(partition(arena, costs, count, parts, bounds));
  int ceiling = (count + parts - 1) / parts, larges = 0, smalls = 0;
  for (int part = 0; part < parts; part++) {
    larges += bounds[part + 1] - bounds[part] == ceiling;
    smalls += bounds[part + 1] - bounds[part] == ceiling - 1;
  }
  cr_assert(larges == large && smalls == small, "(%d,%d): %d runs of %d, %d of %d", count, parts, larges, ceiling,
            smalls, ceiling - 1);
  arena_free(arena);
}

Test(partition, equal_weights_differ_by_at_most_one) {
  check_equal_weights(5, 4, 1, 3);
  check_equal_weights(10, 3, 1, 2);
  check_equal_weights(38, 8, 6, 2);
  check_equal_weights(42, 16, 10, 6);
  check_equal_weights(80, 32, 16, 16);
  check_equal_weights(40, 16, 8, 8);
  check_equal_weights(96, 16, 16, 0);
  check_equal_weights(100000, 64, 32, 32);
}

Test(partition, one_heavy_layer_stands_alone) {
  static const int sizes[][2] = {{5, 4}, {10, 3}, {38, 8}, {42, 16}};
  Arena *arena = arena_new();
  for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
    for (int heavy = 0; heavy < sizes[k][0]; heavy++) {
      int count = sizes[k][0], parts = sizes[k][1];
      int64_t *costs = ARENA_ARRAY(arena, int64_t, count), *bounds = ARENA_ARRAY(arena, int64_t, parts + 1);
      for (int i = 0; i < count; i++) costs[i] = i == heavy ? 10 : 1;
      cr_assert(partition(arena, costs, count, parts, bounds));
      cr_assert(bounds[0] == 0 && bounds[parts] == count);
      int64_t most = 0;
      for (int part = 0; part < parts; part++) {
        cr_assert_lt(bounds[part], bounds[part + 1]);
        if (run_cost(costs, bounds, part) > most) most = run_cost(costs, bounds, part);
      }
      /* with two neighbours to share nine ones, the heavy one need not be alone only where parts are very few */
      cr_assert(most == 10 || (parts == 3 && most <= 11), "(%d,%d) heavy at %d: largest %lld", count, parts, heavy,
                (long long)most);
    }
  arena_free(arena);
}

/* Least largest run, and least sum of squares among those, by trying every cut. */
static void brute(const int64_t *costs, int64_t count, int parts, int64_t begin, int64_t most, int64_t squares,
                  int64_t best[2]) {
  if (parts == 0) {
    if (begin == count && (most < best[0] || (most == best[0] && squares < best[1]))) best[0] = most, best[1] = squares;
    return;
  }
  int64_t sum = 0;
  for (int64_t end = begin + 1; end <= count - (parts - 1); end++) {
    sum += costs[end - 1];
    brute(costs, count, parts - 1, end, sum > most ? sum : most, squares + sum * sum, best);
  }
}

Test(partition, is_best_among_all_cuts) {
  Random random = {4711};
  for (int round = 0; round < 2000; round++) {
    Arena *arena = arena_new();
    int64_t count = draw(&random, 1, 11), costs[11], bounds[12], range = draw(&random, 1, 3) == 1 ? 3 : 30;
    int parts = (int)draw(&random, 1, count);
    for (int64_t i = 0; i < count; i++) costs[i] = draw(&random, round % 5 == 0 ? 0 : 1, range);
    cr_assert(partition(arena, costs, count, parts, bounds));
    int64_t best[2] = {INT64_MAX, INT64_MAX}, most = 0, squares = 0;
    brute(costs, count, parts, 0, 0, 0, best);
    cr_assert(bounds[0] == 0 && bounds[parts] == count);
    for (int part = 0; part < parts; part++) {
      int64_t cost = run_cost(costs, bounds, part);
      cr_assert_lt(bounds[part], bounds[part + 1]);
      if (cost > most) most = cost;
      squares += cost * cost;
    }
    cr_assert(most == best[0] && squares == best[1], "round %d: largest %lld, best %lld; squares %lld, best %lld",
              round, (long long)most, (long long)best[0], (long long)squares, (long long)best[1]);
    arena_free(arena);
  }
}

Test(partition, refuses_fewer_units_than_parts) {
  Arena *arena = arena_new();
  int64_t costs[] = {1, 1, 1}, bounds[5];
  cr_assert_not(partition(arena, costs, 3, 4, bounds));
  cr_assert_not(partition(arena, costs, 0, 1, bounds));
  cr_assert(partition(arena, costs, 3, 3, bounds));
  cr_assert(bounds[1] == 1 && bounds[2] == 2);
  arena_free(arena);
}

Test(partition, large_costs_do_not_overflow) {
  Arena *arena = arena_new();
  int64_t costs[64], bounds[9];
  for (int i = 0; i < 64; i++) costs[i] = INT64_MAX - i;
  cr_assert(partition(arena, costs, 64, 8, bounds));
  for (int part = 0; part < 8; part++) cr_assert_eq(bounds[part + 1] - bounds[part], 8);
  arena_free(arena);
}

Test(partition, many_uneven_units) {
  Arena *arena = arena_new();
  Random random = {99};
  int64_t count = 100000, *costs = ARENA_ARRAY(arena, int64_t, count), bounds[65], total = 0, largest = 0;
  for (int64_t i = 0; i < count; i++) {
    costs[i] = draw(&random, 1, 1000);
    if (i == 50000) costs[i] = 3000000; /* above the mean of a run: the windows of the cuts become wide */
    if (costs[i] > largest) largest = costs[i];
    total += costs[i];
  }
  cr_assert(partition(arena, costs, count, 64, bounds));
  int64_t sum = 0, second = 0;
  for (int part = 0; part < 64; part++) {
    int64_t cost = run_cost(costs, bounds, part);
    sum += cost;
    if (cost < largest && cost > second) second = cost;
    cr_assert_leq(cost, largest);
  }
  cr_assert_eq(sum, total);
  cr_assert_lt(second, (total - largest) / 63 * 21 / 20); /* 63 runs on two sides cannot all be equal, but nearly */
  arena_free(arena);
}

/* ---- kinds ---- */

Test(kinds, are_found_by_name_and_alias) {
  for (const char *const *name = schedule_names(); *name; name++) cr_assert_str_eq(kind_named(*name)->name, *name);
  cr_assert_str_eq(kind_named("zbv")->name, "zb-v");
  cr_assert_null(schedule_find("2f2b"));
}

Test(kinds, refusals_name_everything_and_what_works) {
  Arena *arena = arena_new();
  static const char *const one_chunk[] = {"gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2"};
  for (size_t i = 0; i < sizeof one_chunk / sizeof one_chunk[0]; i++) {
    const ScheduleKind *kind = kind_named(one_chunk[i]);
    cr_assert_null(kind->refuse(arena, &(ScheduleRequest){8, 1, 1}));
    const char *why = kind->refuse(arena, &(ScheduleRequest){8, 2, 24});
    cr_assert(why && strstr(why, kind->name) && strstr(why, "pp = 8") && strstr(why, "microbatches = 24") &&
                  strstr(why, "chunks = 2:") && strstr(why, "chunks = 1"),
              "%s", why ? why : "accepted");
  }
  cr_assert_str_eq(
      kind_named("zb-v")->refuse(arena, &(ScheduleRequest){4, 1, 8}),
      "zb-v with pp = 4, microbatches = 8, chunks = 1: it keeps two chunks on a rank, in a V; the nearest that "
      "works is chunks = 2");
  for (const char *const *name = schedule_names(); *name; name++)
    cr_assert_not_null(kind_named(*name)->refuse(arena, &(ScheduleRequest){4, 2, 0}), "%s", *name);
  arena_free(arena);
}

Test(kinds, placements) {
  Arena *arena = arena_new();
  static const int v[] = {0, 1, 2, 3, 3, 2, 1, 0}, loop[] = {0, 1, 2, 3, 0, 1, 2, 3};
  cr_assert_arr_eq(make(arena, kind_named("zb-v"), 4, 2, 8).rank_of, v, sizeof v);
  cr_assert_arr_eq(make(arena, kind_named("interleaved"), 4, 2, 8).rank_of, loop, sizeof loop);
  arena_free(arena);
}

Test(kinds, groups_are_balanced_with_the_largest_first) {
  Arena *arena = arena_new();
  OrderTable table = order_table(arena, &(ScheduleRequest){4, 2, 11}, 0);
  cr_assert(table.count == 22 && table.largest == 6);
  for (int j = 0; j < 22; j++) { /* two groups, of six and of five */
    int chunk = j < 12 ? j / 6 : (j - 12) / 5, mb = j < 12 ? j % 6 : 6 + (j - 12) % 5;
    cr_assert(table.at[j].chunk == chunk && table.at[j].microbatch == mb, "entry %d", j);
  }
  cr_assert_eq(order_table(arena, &(ScheduleRequest){4, 2, 3}, 0).largest, 3);
  arena_free(arena);
}

/* Costs of a chunk are 12 / chunks, so that a share costs 12 and one unit of the table is 12. */
static void check_oracle(const char *name, int chunks, double t, double beta, double sigma, double peak) {
  Arena *arena = arena_new();
  pd_pipeline pipeline = make(arena, kind_named(name), 4, chunks, 8);
  double share = 12.0 / chunks;
  ScheduleTiming timing = play(arena, &pipeline, share, share, share, 0);
  cr_assert(timing.makespan == 12 * t && timing.beta == 12 * beta && timing.sigma == 12 * sigma &&
                (double)most_held(&pipeline) == chunks * peak,
            "%s, %d chunks: T %g beta %g sigma %g peak %g", name, chunks, timing.makespan / 12, timing.beta / 12,
            timing.sigma / 12, (double)most_held(&pipeline) / chunks);
  cr_assert_eq(timing.bound, 12 * 3.0 / chunks);
  for (int rank = 0; rank < 4; rank++) cr_assert_eq(timing.idle[rank], timing.beta);
  arena_free(arena);
}

Test(kinds, oracle_table_of_four_ranks_and_eight_microbatches) {
  check_oracle("gpipe", 1, 33, 9, 9, 8);
  check_oracle("1f1b", 1, 33, 9, 9, 4);
  check_oracle("eager-1f1b", 1, 33, 9, 9, 7);
  check_oracle("interleaved", 1, 33, 9, 9, 4);
  check_oracle("interleaved", 2, 28.5, 4.5, 4.5, 5.5);
  check_oracle("interleaved", 4, 26.25, 2.25, 2.25, 4.75);
  check_oracle("breadth-first", 2, 28.5, 4.5, 4.5, 8);
  check_oracle("zb-h1", 1, 27, 3, 3, 4);
  check_oracle("zb-h2", 1, 27, 3, 0, 7);
  check_oracle("zb-v", 2, 25.5, 1.5, 0, 4);
  check_oracle("interleaved-zb", 2, 25.5, 1.5, 1.5, 4);
  check_oracle("interleaved-zb", 4, 24.75, 0.75, 0.75, 4);
}

typedef struct Costs {
  double f, i, w;
} Costs;

static Costs draw_costs(Random *random) {
  return (Costs){(double)draw(random, 1, 20), (double)draw(random, 1, 20), (double)draw(random, 1, 20)};
}

/* Beta of one request with equal chunks that cost f, i, w. */
static double beta_of(const char *name, int pp, int chunks, int64_t m, Costs costs, double *sigma, int64_t *peak) {
  Arena *arena = arena_new();
  pd_pipeline pipeline = make(arena, kind_named(name), pp, chunks, m);
  ScheduleTiming timing = play(arena, &pipeline, costs.f, costs.i, costs.w, 0);
  double beta = timing.beta;
  cr_assert_eq(timing.bound, (pp - 1) * costs.f);
  cr_assert_geq(beta, timing.bound, "%s p %d v %d m %lld", name, pp, chunks, (long long)m);
  if (sigma) *sigma = timing.sigma;
  if (peak) *peak = most_held(&pipeline);
  arena_free(arena);
  return beta;
}

#define SAME(got, wanted)                                                                                              \
  cr_assert((got) == (wanted), "%s p %d v %d m %lld F %g B %g W %g: %g, not %g", name, pp, v, (long long)m, c.f, c.i,  \
            c.w, (double)(got), (double)(wanted))

Test(closed_forms, gpipe_1f1b_and_eager) {
  Random random = {1};
  int v = 1;
  for (int pp = 1; pp <= 8; pp++)
    for (int64_t m = 1; m <= 5 * pp + 2; m++) {
      Costs c = draw_costs(&random);
      double whole = (pp - 1) * (c.f + c.i + c.w);
      double sigma;
      int64_t peak;
      const char *name = "gpipe";
      SAME(beta_of(name, pp, v, m, c, &sigma, &peak), whole);
      SAME(sigma, whole);
      SAME(peak, m);
      name = "1f1b";
      SAME(beta_of(name, pp, v, m, c, &sigma, &peak), whole);
      SAME(sigma, whole);
      SAME(peak, m < pp ? m : pp);
      name = "eager-1f1b";
      SAME(beta_of(name, pp, v, m, c, NULL, &peak), whole);
      SAME(peak, m < 2 * pp - 1 ? m : 2 * pp - 1);
    }
}

Test(closed_forms, gpipe_with_unequal_stages) {
  Random random = {2};
  for (int round = 0; round < 300; round++) {
    Arena *arena = arena_new();
    int pp = (int)draw(&random, 1, 8);
    int64_t m = draw(&random, 1, 30);
    double f[8], x[8], none[8] = {0}, sum = 0, most_f = 0, most_x = 0;
    for (int s = 0; s < pp; s++) {
      f[s] = (double)draw(&random, 1, 50), x[s] = (double)draw(&random, 1, 50);
      sum += f[s] + x[s], most_f = larger(most_f, f[s]), most_x = larger(most_x, x[s]);
    }
    pd_pipeline pipeline = make(arena, kind_named("gpipe"), pp, 1, m);
    ScheduleTiming timing;
    const char *why;
    cr_assert(schedule_simulate(arena, &pipeline, &(ScheduleCosts){f, x, none, 0}, &timing, &why), "%s", why);
    cr_assert_eq(timing.makespan, sum + (double)(m - 1) * (most_f + most_x));
    arena_free(arena);
  }
}

Test(closed_forms, one_f_one_b_holds_fewer_towards_the_end) {
  Arena *arena = arena_new();
  for (int pp = 1; pp <= 8; pp++)
    for (int64_t m = 1; m <= 20; m++) {
      pd_pipeline pipeline = make_with_messages(arena, kind_named("1f1b"), pp, 1, m, false);
      for (int s = 0; s < pp; s++) cr_assert_eq(pd_in_flight(&pipeline, s), m < pp - s ? m : pp - s);
    }
  arena_free(arena);
}

Test(closed_forms, interleaved_for_every_number_of_microbatches) {
  Random random = {3};
  for (int pp = 1; pp <= 8; pp++)
    for (int v = 1; v <= 4; v++)
      for (int64_t m = 1; m <= 5 * pp + 2; m++) {
        Costs c = draw_costs(&random);
        double all = c.f + c.i + c.w;
        double beta = (pp - 1) * all + (m < pp ? (double)(pp - m) * (v - 1) * all : 0);
        int64_t q = m < pp ? 1 : m / pp, largest = (m + q - 1) / q, peak;
        const char *name = "interleaved";
        SAME(beta_of(name, pp, v, m, c, NULL, &peak), beta);
        int64_t most = v == 1 ? pp : 2 * (pp - 1) + (v - 1) * largest + 1;
        SAME(peak, m * v < most ? m * v : most);
        name = "breadth-first";
        SAME(beta_of(name, pp, v, m, c, NULL, &peak), beta);
        SAME(peak, m * v);
      }
}

Test(closed_forms, zb_h1) {
  Random random = {4};
  const char *name = "zb-h1";
  int v = 1;
  for (int pp = 2; pp <= 8; pp++)
    for (int64_t m = pp; m <= 5 * pp; m++)
      for (int round = 0; round < 8; round++) {
        Costs c = draw_costs(&random);
        double sigma, wanted = (pp - 1) * larger(larger(c.f, c.i), c.f + c.i - c.w);
        int64_t peak;
        SAME(beta_of(name, pp, v, m, c, &sigma, &peak), wanted);
        if (m >= 2 * pp) SAME(sigma, (pp - 1) * larger(c.i, c.f + c.i - c.w));
        SAME(peak, pp);
      }
}

Test(closed_forms, zb_h2) {
  Random random = {5};
  const char *name = "zb-h2";
  int v = 1;
  for (int pp = 2; pp <= 8; pp++)
    for (int64_t m = 2 * pp - 1; m <= 5 * pp; m++)
      for (int round = 0; round < 8; round++) {
        Costs c = draw_costs(&random);
        double sigma, late = larger(c.i - c.f, c.f + c.i - 2 * c.w);
        int64_t peak;
        SAME(beta_of(name, pp, v, m, c, &sigma, &peak), (pp - 1) * larger(c.f, late));
        SAME(sigma, (pp - 1) * larger(0, late));
        SAME(peak, 2 * pp - 1);
      }
}

Test(closed_forms, interleaved_zb) {
  Random random = {6};
  const char *name = "interleaved-zb";
  for (int pp = 2; pp <= 16; pp++)
    for (int v = 1; v <= 4; v++)
      for (int64_t m = pp; m <= 5 * pp + 2; m++) {
        Costs c = {1, 1, 1};
        int64_t q = m / pp, largest = (m + q - 1) / q, peak;
        SAME(beta_of(name, pp, v, m, c, NULL, &peak), pp - 1); /* the bound, for every m */
        SAME(peak, pp + (v - 1) * largest);
        if (m % pp != 0 || pp > 8) continue;
        c = draw_costs(&random);
        double sigma, late = larger(c.i, c.f + c.i - c.w);
        SAME(beta_of(name, pp, v, m, c, &sigma, NULL), (pp - 1) * larger(c.f, late));
        if (m >= 2 * pp) SAME(sigma, (pp - 1) * late);
      }
}

Test(closed_forms, zb_v) {
  const char *name = "zb-v";
  int v = 2;
  Costs c = {1, 1, 1};
  for (int pp = 1; pp <= 12; pp++)
    for (int64_t m = 1; m <= 5 * pp + 2; m++) {
      double sigma;
      int64_t peak;
      double beta = beta_of(name, pp, v, m, c, &sigma, &peak);
      if (m >= 2 * pp - 1 || (m == 2 * pp - 2 && pp > 2)) SAME(beta, pp - 1);
      if (m >= 2 * pp - 1) SAME(sigma, 0);
      SAME(peak, 2 * m < 2 * pp ? 2 * m : 2 * pp);
    }
}

/* A link delays the first micro-batch on its way down and the first gradient on its way up, once each. */
Test(closed_forms, link_latency) {
  Random random = {7};
  for (int pp = 2; pp <= 8; pp++)
    for (int64_t m = pp; m <= 4 * pp; m += pp) {
      Arena *arena = arena_new();
      Costs c = draw_costs(&random);
      double whole = (pp - 1) * (c.f + c.i + c.w), link = 1;
      pd_pipeline gpipe = make(arena, kind_named("gpipe"), pp, 1, m), plain = make(arena, kind_named("1f1b"), pp, 1, m);
      cr_assert_eq(play(arena, &gpipe, c.f, c.i, c.w, link).beta, whole + 2 * link * (pp - 1));
      cr_assert_eq(play(arena, &gpipe, c.f, c.i, c.w, link).bound, (pp - 1) * (c.f + link));
      /* 1F1B has no micro-batch to spare while a message travels: it pays in every round */
      if (m >= 2 * pp) cr_assert_gt(play(arena, &plain, c.f, c.i, c.w, link).beta, whole + 2 * link * (pp - 1));
      arena_free(arena);
    }
}

/* ---- simulator ---- */

Test(simulate, reports_what_is_missing_and_who_waits) {
  Arena *arena = arena_new();
  double ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  ScheduleCosts costs = {ones, ones, ones, 0};
  ScheduleTiming timing;
  const char *why;
  pd_pipeline pipeline = make(arena, kind_named("1f1b"), 2, 1, 2);
  pd_action_list lists[2] = {pipeline.ranks[0], pipeline.ranks[1]};
  pipeline.ranks = lists;
  lists[0].count--;
  cr_assert_not(schedule_simulate(arena, &pipeline, &costs, &timing, &why));
  cr_assert_str_eq(why, "0B1 is missing on rank 0");
  lists[0] = (pd_action_list){lists[0].at + 1, 3};
  cr_assert_not(schedule_simulate(arena, &pipeline, &costs, &timing, &why));
  cr_assert_str_eq(why, "rank 0 waits in 0B0 (action 1) for 0F0 of rank 0, which never comes");
  lists[0].at[0].chunk = 2;
  cr_assert_not(schedule_simulate(arena, &pipeline, &costs, &timing, &why));
  cr_assert_not_null(strstr(why, "none of this pipeline"));
  arena_free(arena);
}

/* Groups of at most pp with a short one at the end, as interleaving is often written: for pp 4, three chunks and five
 * micro-batches the order itself deadlocks. */
Test(simulate, naive_groups_deadlock) {
  Arena *arena = arena_new();
  ScheduleRequest request = {4, 3, 5};
  OrderTable naive = order_table(arena, &request, 1);
  int64_t entry = 0;
  for (int64_t first = 0; first < 5; first += 4)
    for (int32_t chunk = 0; chunk < 3; chunk++)
      for (int32_t i = (int32_t)first; i < 5 && i < first + 4; i++) naive.at[entry++] = (struct OrderEntry){chunk, i};
  pd_action_list ranks[4];
  int rank_of[12];
  double ones[12];
  for (int i = 0; i < 12; i++) ones[i] = 1;
  place_loop(&request, rank_of);
  for (int rank = 0; rank < 4; rank++)
    generate_along_table(arena, &request, &naive, rank, 2 * (3 - rank) + 2 * 4, &ranks[rank]);
  pd_pipeline pipeline = {.pp = 4, .chunk_count = 12, .microbatches = 5, .rank_of = rank_of, .ranks = ranks};
  ScheduleTiming timing;
  const char *why;
  cr_assert_not(schedule_simulate(arena, &pipeline, &(ScheduleCosts){ones, ones, ones, 0}, &timing, &why));
  cr_assert_not_null(strstr(why, "which never comes"), "%s", why);
  arena_free(arena);
}

/* With unequal chunks too, no schedule beats the bound and no rank's idle time is below beta. */
Test(simulate, bound_holds_for_unequal_chunks) {
  Random random = {8};
  for (const char *const *name = schedule_names(); *name; name++)
    for (int round = 0; round < 60; round++) {
      Arena *arena = arena_new();
      int pp = (int)draw(&random, 1, 6), chunks = (int)draw(&random, 1, 3);
      int64_t m = draw(&random, 1, 15);
      if (kind_named(*name)->refuse(arena, &(ScheduleRequest){pp, chunks, m})) chunks = strcmp(*name, "zb-v") ? 1 : 2;
      pd_pipeline pipeline = make(arena, kind_named(*name), pp, chunks, m);
      double f[18], i[18], w[18];
      for (int c = 0; c < pp * chunks; c++)
        f[c] = (double)draw(&random, 1, 9), i[c] = (double)draw(&random, 1, 9), w[c] = (double)draw(&random, 0, 9);
      ScheduleTiming timing;
      const char *why;
      cr_assert(
          schedule_simulate(arena, &pipeline, &(ScheduleCosts){f, i, w, (double)draw(&random, 0, 3)}, &timing, &why),
          "%s", why);
      cr_assert_geq(timing.beta, timing.bound);
      cr_assert_geq(timing.beta, timing.sigma);
      for (int rank = 0; rank < pp; rank++) cr_assert_geq(timing.idle[rank], timing.beta);
      arena_free(arena);
    }
}

/* ---- messages ---- */

static void check_request(const char *name, int pp, int chunks, int64_t m) {
  Arena *arena = arena_new();
  const ScheduleKind *kind = kind_named(name);
  if (kind->refuse(arena, &(ScheduleRequest){pp, chunks, m})) {
    arena_free(arena);
    return;
  }
  pd_pipeline bare = make(arena, kind, pp, chunks, m);
  double alone = play(arena, &bare, 1, 1, 1, 0).makespan;
  for (int variant = 0; variant < 2; variant++) {
    pd_pipeline pipeline = bare;
    bool *gradient_into = all_true(arena, pipeline.chunk_count);
    /* nothing is trained below the middle: no gradient travels there */
    for (int c = 0; variant == 1 && c <= pipeline.chunk_count / 2; c++) gradient_into[c] = false;
    schedule_insert_communication(arena, &pipeline, gradient_into, variant == 0);
    Certificate certificate = schedule_certify(arena, &pipeline);
    cr_assert(accepted(certificate), "%s p %d v %d m %lld: %s", name, pp, chunks, (long long)m, certificate.why);
    cr_assert_null(certificate.why);
    double with_messages =
        play(arena, &pipeline, 1, 1, 1, 0).makespan; /* gradients that do not travel are not waited for */
    cr_assert(variant == 0 ? with_messages == alone : with_messages <= alone, "%s p %d v %d m %lld: %g, not %g", name,
              pp, chunks, (long long)m, with_messages, alone);
    int64_t messages[PD_ACTION_KINDS] = {0}, crossing = 0, returning = 0;
    for (int rank = 0; rank < pp; rank++)
      for (int64_t i = 0; i < pipeline.ranks[rank].count; i++) messages[pipeline.ranks[rank].at[i].kind]++;
    for (int c = 1; c < pipeline.chunk_count; c++) {
      crossing += pipeline.rank_of[c] != pipeline.rank_of[c - 1];
      returning += pipeline.rank_of[c] != pipeline.rank_of[c - 1] && gradient_into[c];
    }
    cr_assert_eq(messages[PD_SEND_F], m * crossing);
    cr_assert_eq(messages[PD_RECV_F], m * crossing);
    cr_assert_eq(messages[PD_SEND_B], m * returning);
    cr_assert_eq(messages[PD_RECV_B], m * returning);
    cr_assert_eq(messages[PD_REDUCE_GRAD], variant == 0 ? pipeline.chunk_count : 0);
  }
  arena_free(arena);
}

Test(messages, every_schedule_is_certified_for_every_m, .timeout = 120) {
  for (const char *const *name = schedule_names(); *name; name++)
    for (int pp = 1; pp <= 8; pp++)
      for (int chunks = 1; chunks <= 4; chunks++)
        for (int64_t m = 1; m <= 3 * pp + 2; m++) check_request(*name, pp, chunks, m);
}

static const char *line_of(Arena *arena, const pd_action_list *list) {
  Text text = {.arena = arena};
  for (int64_t i = 0; i < list->count; i++) {
    char name[48];
    pd_action_text(list->at[i], name);
    text_printf(&text, "%s%s", i ? " " : "", name);
  }
  return text.at;
}

Test(messages, lists_of_two_ranks) {
  Arena *arena = arena_new();
  pd_pipeline pipeline = make_with_messages(arena, kind_named("1f1b"), 2, 1, 3, true);
  cr_assert_str_eq(line_of(arena, &pipeline.ranks[0]),
                   "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0F2 0SEND_F2 0RECV_B1 0B1 0RECV_B2 0B2 0REDUCE_GRAD");
  cr_assert_str_eq(line_of(arena, &pipeline.ranks[1]),
                   "1RECV_F0 1F0 1B0 1RECV_F1 1SEND_B0 1F1 1B1 1RECV_F2 1SEND_B1 1F2 1B2 1SEND_B2 1REDUCE_GRAD");
  arena_free(arena);
}

/* A message waits in its sender rather than in the receiver's memory, where that costs no time. */
Test(messages, received_tensors_do_not_raise_the_peak) {
  Arena *arena = arena_new();
  static const char *const names[] = {"gpipe", "1f1b", "zb-h1"};
  for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
    for (int pp = 2; pp <= 8; pp++) {
      pd_pipeline bare = make(arena, kind_named(names[k]), pp, 1, 3 * pp);
      pd_pipeline pipeline = make_with_messages(arena, kind_named(names[k]), pp, 1, 3 * pp, true);
      for (int chunk = 0; chunk < pp; chunk++)
        cr_assert_eq(pd_in_flight(&pipeline, chunk), held(&bare, chunk), "%s p %d chunk %d: %lld, not %lld", names[k],
                     pp, chunk, (long long)pd_in_flight(&pipeline, chunk), (long long)held(&bare, chunk));
    }
  arena_free(arena);
}

/* ---- certifier ---- */

/* Lists of actions by hand: chunk c on rank c. */
static pd_pipeline by_hand(Arena *arena, int64_t microbatches, const char *const *lines, int pp) {
  pd_action_list *ranks = ARENA_ARRAY(arena, pd_action_list, pp);
  int *rank_of = ARENA_ARRAY(arena, int, pp);
  for (int rank = 0; rank < pp; rank++) {
    rank_of[rank] = rank;
    actions_reserve(arena, &ranks[rank], 64);
    char *words = arena_strdup(arena, lines[rank]), *rest = NULL;
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
      cr_assert(pd_action_parse(word, &ranks[rank].at[ranks[rank].count++]), "%s", word);
  }
  return (pd_pipeline){.pp = pp, .chunk_count = pp, .microbatches = microbatches, .rank_of = rank_of, .ranks = ranks};
}

Test(certify, three_kinds_of_sends_differ) {
  Arena *arena = arena_new();
  static const char *const eager[] = {/* every send right after its producer, every receive right before its use */
                                      "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
                                      "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1"};
  pd_pipeline pipeline = by_hand(arena, 2, eager, 2);
  Certificate c = schedule_certify(arena, &pipeline);
  cr_assert(c.complete && c.ordered && c.matched, "%s", c.why);
  cr_assert(c.acyclic_buffered && !c.acyclic_rendezvous && c.acyclic_grouped);
  cr_assert(strstr(c.why, "with rendezvous sends") && strstr(c.why, "waits for"), "%s", c.why);

  static const char *const receive_first[] = {"0F0 0SEND_F0 0F1 0RECV_B0 0SEND_F1 0B0 0RECV_B1 0B1",
                                              "1RECV_F0 1F0 1B0 1RECV_F1 1SEND_B0 1F1 1B1 1SEND_B1"};
  pipeline = by_hand(arena, 2, receive_first, 2);
  c = schedule_certify(arena, &pipeline);
  cr_assert(c.complete && c.ordered && c.matched, "%s", c.why);
  cr_assert(!c.acyclic_buffered && !c.acyclic_rendezvous && c.acyclic_grouped);

  static const char *const good[] = {"0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
                                     "1RECV_F0 1F0 1B0 1RECV_F1 1SEND_B0 1F1 1B1 1SEND_B1"};
  pipeline = by_hand(arena, 2, good, 2);
  c = schedule_certify(arena, &pipeline);
  cr_assert(accepted(c), "%s", c.why);

  static const char *const apart[] = {"0F0 0SEND_F0 0RECV_B0 0B0 0F1 0SEND_F1 0RECV_B1 0B1",
                                      "1RECV_F0 1F0 1RECV_F1 1F1 1B0 1SEND_B0 1B1 1SEND_B1"};
  pipeline = by_hand(arena, 2, apart, 2); /* a computation on both sides: nothing helps */
  c = schedule_certify(arena, &pipeline);
  cr_assert(c.complete && c.ordered && c.matched, "%s", c.why);
  cr_assert(!c.acyclic_buffered && !c.acyclic_rendezvous && !c.acyclic_grouped);
  arena_free(arena);
}

Test(certify, wants_receives_in_the_order_of_sends_and_microbatches_in_theirs) {
  Arena *arena = arena_new();
  static const char *const crossed[] = {"0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
                                        "1RECV_F1 1RECV_F0 1F0 1F1 1B0 1SEND_B0 1B1 1SEND_B1"};
  pd_pipeline pipeline = by_hand(arena, 2, crossed, 2);
  Certificate c = schedule_certify(arena, &pipeline);
  cr_assert(c.complete && c.ordered && !c.matched);
  cr_assert_str_eq(c.why, "rank 1 receives 1RECV_F1 before 1RECV_F0, but rank 0 sends them in the other order");
  static const char *const turned[] = {"0F1 0F0 0B0 0B1", "0F0 0F1 0B1 0B0", "0F0 0F1 0I0 0I1 0W1 0W0"};
  for (size_t k = 0; k < 3; k++) {
    pipeline = by_hand(arena, 2, &turned[k], 1);
    pipeline.split = k == 2;
    c = schedule_certify(arena, &pipeline);
    cr_assert(c.complete && !c.ordered, "%s", turned[k]);
  }
  arena_free(arena);
}

/* The order of a deadlock that PyTorch users met: two chunks a rank on two ranks. */
Test(certify, finds_a_deadlock_of_two_neighbours) {
  Arena *arena = arena_new();
  static const char *const rank0 =
      "0F0 0SEND_F0 0F1 0SEND_F1 2RECV_F0 2F0 2SEND_F0 2RECV_F1 2F1 2SEND_F1 0F2 0SEND_F2 2RECV_B0 2B0 2RECV_B1 "
      "2SEND_B0 "
      "2B1 2RECV_F2 2SEND_B1 2F2 0RECV_B0 2SEND_F2 0B0 0RECV_B1 0B1 2RECV_B2 2B2 2SEND_B2 0RECV_B2 0B2";
  static const char *const rank1 = /* where 1RECV_F2 stands decides */
      "1RECV_F0 1F0 1RECV_F1 1SEND_F0 1F1 3RECV_F0 1SEND_F1 3F0 3B0 3RECV_F1 %s 3SEND_B0 3F1 3B1 %s 3SEND_B1 1RECV_B0 "
      "1F2 "
      "1SEND_F2 1RECV_B1 1B0 1SEND_B0 3RECV_F2 1B1 1SEND_B1 3F2 3B2 3SEND_B2 1RECV_B2 1B2 1SEND_B2";
  static const int rank_of[] = {0, 1, 0, 1};
  for (int late = 0; late < 2; late++) {
    const char *lines[] = {rank0, arena_printf(arena, rank1, late ? "" : "1RECV_F2", late ? "1RECV_F2" : "")};
    pd_pipeline pipeline = by_hand(arena, 3, lines, 2);
    pipeline.chunk_count = 4;
    pipeline.rank_of = rank_of;
    Certificate c = schedule_certify(arena, &pipeline);
    cr_assert(c.complete && c.ordered && c.matched && c.acyclic_buffered, "%s", c.why);
    cr_assert_eq(c.acyclic_rendezvous, !late, "%s", c.why);
    if (late) cr_assert(strstr(c.why, "1RECV_F2 on rank 1") && strstr(c.why, "2RECV_B0 on rank 0"), "%s", c.why);
  }
  arena_free(arena);
}

/* A copy of a pipeline whose lists may be changed: room for one more action each. */
static pd_pipeline copy_of(Arena *arena, const pd_pipeline *pipeline) {
  pd_pipeline copy = *pipeline;
  pd_action_list *ranks = ARENA_ARRAY(arena, pd_action_list, pipeline->pp);
  for (int rank = 0; rank < pipeline->pp; rank++) {
    ranks[rank].count = pipeline->ranks[rank].count;
    ranks[rank].at = ARENA_ARRAY(arena, pd_action, ranks[rank].count + 1);
    memcpy(ranks[rank].at, pipeline->ranks[rank].at, sizeof(pd_action) * (size_t)ranks[rank].count);
  }
  copy.ranks = ranks;
  return copy;
}

static void remove_at(pd_action_list *list, int64_t index) {
  memmove(&list->at[index], &list->at[index + 1], sizeof(pd_action) * (size_t)(list->count - index - 1));
  list->count--;
}

static void insert_at(pd_action_list *list, int64_t index, pd_action action) {
  memmove(&list->at[index + 1], &list->at[index], sizeof(pd_action) * (size_t)(list->count - index));
  list->at[index] = action;
  list->count++;
}

static bool is_receive(pd_action_kind kind) {
  return kind == PD_RECV_F || kind == PD_RECV_B;
}
static bool is_send(pd_action_kind kind) {
  return kind == PD_SEND_F || kind == PD_SEND_B;
}

/* `later` needs `earlier` directly: same chunk and micro-batch, and one makes what the other takes. */
static bool depends(pd_action later, pd_action earlier) {
  if (later.chunk != earlier.chunk) return false;
  bool backward = earlier.kind == PD_B || earlier.kind == PD_I;
  if (later.kind == PD_REDUCE_GRAD) return earlier.kind == PD_B || earlier.kind == PD_W;
  if (later.kind == earlier.kind && !is_receive(later.kind) && !is_send(later.kind))
    return later.microbatch > earlier.microbatch;
  if (later.microbatch != earlier.microbatch) return false;
  switch (later.kind) {
  case PD_F:
    return earlier.kind == PD_RECV_F;
  case PD_B:
  case PD_I:
    return earlier.kind == PD_F || earlier.kind == PD_RECV_B;
  case PD_W:
    return earlier.kind == PD_I || earlier.kind == PD_F;
  case PD_SEND_F:
    return earlier.kind == PD_F;
  case PD_SEND_B:
    return backward;
  default:
    return false;
  }
}

static int peer_of(const pd_pipeline *pipeline, pd_action message) {
  bool up = message.kind == PD_SEND_F || message.kind == PD_RECV_B;
  return pipeline->rank_of[message.chunk + (up ? 1 : -1)];
}

typedef enum Mutation {
  DROP,
  DUPLICATE,
  SWAP_DEPENDENT,
  MOVE,
  SWAP_RECEIVES,
  OTHER_CHUNK,
  OTHER_MICROBATCH,
  MUTATIONS
} Mutation;
static const char *const mutation_names[] = {
    "drop",          "duplicate",   "swap across a dependency", "move to another rank",
    "swap receives", "other chunk", "other micro-batch"};

/* Applies one; false if it does not apply where chance pointed. */
static bool mutate(Random *random, pd_pipeline *pipeline, pd_action_list *ranks, Mutation mutation) {
  int rank = (int)draw(random, 0, pipeline->pp - 1);
  pd_action_list *list = &ranks[rank];
  int64_t index = draw(random, 0, list->count - 1);
  pd_action action = list->at[index];
  switch (mutation) {
  case DROP:
    remove_at(list, index);
    return true;
  case DUPLICATE:
    insert_at(list, draw(random, 0, list->count), action);
    return true;
  case SWAP_DEPENDENT:
    for (int64_t later = index + 1; later < list->count; later++)
      if (depends(list->at[later], action)) {
        list->at[index] = list->at[later];
        list->at[later] = action;
        return true;
      }
    return false;
  case MOVE: {
    int to = (int)draw(random, 0, pipeline->pp - 1);
    if (to == rank) return false;
    remove_at(list, index);
    insert_at(&ranks[to], draw(random, 0, ranks[to].count), action);
    return true;
  }
  case SWAP_RECEIVES:
    if (!is_receive(action.kind)) return false;
    for (int64_t later = index + 1; later < list->count; later++)
      if (is_receive(list->at[later].kind) && peer_of(pipeline, list->at[later]) == peer_of(pipeline, action)) {
        list->at[index] = list->at[later];
        list->at[later] = action;
        return true;
      }
    return false;
  case OTHER_CHUNK:
    list->at[index].chunk = (int32_t)draw(random, 0, pipeline->chunk_count - 1);
    return list->at[index].chunk != action.chunk;
  case OTHER_MICROBATCH:
    if (action.kind == PD_REDUCE_GRAD) return false;
    list->at[index].microbatch = (int32_t)draw(random, 0, pipeline->microbatches - 1);
    return list->at[index].microbatch != action.microbatch;
  case MUTATIONS:
    break;
  }
  return false;
}

Test(certify, rejects_every_mutant) {
  Random random = {2024};
  int rejected[MUTATIONS] = {0};
  for (const char *const *name = schedule_names(); *name; name++) {
    Arena *arena = arena_new();
    int chunks = 2;
    if (kind_named(*name)->refuse(arena, &(ScheduleRequest){4, chunks, 6})) chunks = 1;
    pd_pipeline good = make_with_messages(arena, kind_named(*name), 4, chunks, 6, true);
    cr_assert(accepted(schedule_certify(arena, &good)));
    for (int mutation = 0; mutation < MUTATIONS; mutation++)
      for (int round = 0; round < 40; round++) {
        pd_pipeline mutant = copy_of(arena, &good);
        pd_action_list *ranks = ARENA_ARRAY(arena, pd_action_list, mutant.pp);
        memcpy(ranks, mutant.ranks, sizeof(pd_action_list) * (size_t)mutant.pp);
        mutant.ranks = ranks;
        if (!mutate(&random, &mutant, ranks, (Mutation)mutation)) continue;
        Certificate c = schedule_certify(arena, &mutant);
        cr_assert_not(accepted(c), "%s: %s, round %d, was accepted", *name, mutation_names[mutation], round);
        cr_assert_not_null(c.why, "%s: %s", *name, mutation_names[mutation]);
        rejected[mutation]++;
      }
    arena_free(arena);
  }
  for (int mutation = 0; mutation < MUTATIONS; mutation++)
    cr_assert_gt(rejected[mutation], 30, "%s: only %d", mutation_names[mutation], rejected[mutation]);
}

Test(certify, says_what_is_wrong_where) {
  Arena *arena = arena_new();
  pd_pipeline good = make_with_messages(arena, kind_named("1f1b"), 2, 1, 2, true);
  pd_pipeline bad = copy_of(arena, &good);
  pd_action_list ranks[2] = {bad.ranks[0], bad.ranks[1]};
  bad.ranks = ranks;
  remove_at(&ranks[1], 0);
  cr_assert_str_eq(schedule_certify(arena, &bad).why, "1RECV_F0 is missing on rank 1");
  insert_at(&ranks[1], 1, (pd_action){PD_RECV_F, 1, 0});
  cr_assert_str_eq(schedule_certify(arena, &bad).why, "1F0 comes before 1RECV_F0 on rank 1");
  ranks[1].at[1] = (pd_action){PD_F, 1, 0};
  cr_assert_str_eq(schedule_certify(arena, &bad).why, "1F0 stands twice on rank 1");
  ranks[1].at[1] = (pd_action){PD_F, 0, 0};
  cr_assert_str_eq(schedule_certify(arena, &bad).why, "0F0 stands on rank 1, but chunk 0 lies on rank 0");
  arena_free(arena);
}

Test(certify, wants_every_unit_in_a_chunk_and_a_chunk_on_every_rank) {
  Arena *arena = arena_new();
  pd_pipeline pipeline = make_with_messages(arena, kind_named("1f1b"), 3, 1, 4, false);
  static const int64_t empty[] = {0, 2, 2, 3}, late[] = {1, 2, 3, 4};
  pipeline.first_unit = empty;
  cr_assert_not(schedule_certify(arena, &pipeline).complete);
  pipeline.first_unit = late;
  cr_assert_not(schedule_certify(arena, &pipeline).complete);
  static const int crowded[] = {0, 1, 1};
  pipeline = make_with_messages(arena, kind_named("1f1b"), 3, 1, 4, false);
  pipeline.rank_of = crowded;
  cr_assert_not(schedule_certify(arena, &pipeline).complete);
  arena_free(arena);
}
