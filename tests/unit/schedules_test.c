/* What every kind of schedule is: against its closed forms, the oracle table, and the certifier, over all sizes.
 *
 * Sizes: up to 16 ranks, 4 chunks a rank and 5 pp micro-batches. Where all of them take long, every n-th is taken,
 * always the same; PD_TEST_FULL=1 in the environment takes all. Costs are whole numbers, so every figure is exact. */
#include <math.h>
#include <stdlib.h>

#include "unit/schedule_help.h"

enum { MOST_RANKS = 16, MOST_CHUNKS = 4 };

/* ---- names, refusals, placements ---- */

Test(kinds, are_found_by_name_and_alias) {
  int count = 0;
  for (const char *const *name = schedule_names(); *name; name++, count++)
    cr_assert_str_eq(kind_named(*name)->name, *name);
  cr_assert_eq(count, 18);
  cr_assert_str_eq(kind_named("zbv")->name, "zb-v");
  cr_assert_str_eq(kind_named("vhalf")->name, "v-half");
  cr_assert_null(schedule_find("2f2b"));
}

Test(kinds, refusals_name_everything_and_what_works) {
  Arena *arena = arena_new();
  static const char *const one_chunk[] = {"gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2", "pipedream"};
  for (size_t i = 0; i < sizeof one_chunk / sizeof one_chunk[0]; i++) {
    const ScheduleKind *kind = kind_named(one_chunk[i]);
    cr_assert_null(kind->refuse(arena, &(ScheduleRequest){8, 1, 1}));
    const char *why = kind->refuse(arena, &(ScheduleRequest){8, 2, 24});
    cr_assert(why && strstr(why, kind->name) && strstr(why, "pp = 8") && strstr(why, "microbatches = 24") &&
                  strstr(why, "chunks = 2:") && strstr(why, "chunks = 1"),
              "%s", why ? why : "accepted");
  }
  static const struct {
    const char *kind;
    ScheduleRequest request;
    const char *nearest;
  } refused[] = {
      {"zb-v", {4, 1, 8}, "in a V; the nearest that works is chunks = 2"},
      {"v-half", {4, 3, 8}, "in a V; the nearest that works is chunks = 2"},
      {"v-min", {4, 1, 8}, "in a V; the nearest that works is chunks = 2"},
      {"1f1b-v", {4, 1, 8}, "in a V; the nearest that works is chunks = 2"},
      {"dualpipe", {5, 1, 10}, "the nearest that works is pp = 4 or 6"},
      {"dualpipe", {1, 1, 10}, "the nearest that works is pp = 2"},
      {"dualpipe", {4, 1, 6}, "the nearest that works is microbatches = 8"},
      {"dualpipe", {4, 1, 9}, "the nearest that works is microbatches = 10 or 8"},
      {"dualpipe", {4, 2, 8}, "the nearest that works is chunks = 1, or kind = dualpipe-v"},
      {"dualpipe-v", {4, 2, 7}, "the nearest that works is microbatches = 8"},
      {"dualpipe-v", {4, 1, 8}, "in a V; the nearest that works is chunks = 2"},
      {"chimera", {3, 1, 3}, "the nearest that works is pp = 2 or 4"},
      {"chimera", {4, 1, 6}, "the nearest that works is microbatches = 4 or 8"},
      {"chimera", {4, 1, 3}, "the nearest that works is microbatches = 4"},
      {"hanayo", {4, 1, 8}, "the nearest that works is chunks = 2"},
      {"hanayo", {4, 3, 8}, "the nearest that works is chunks = 2 or 4"},
      {"pipedream-2bw", {4, 1, 6}, "the nearest that works is microbatches = 4 or 8"},
  };
  for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
    const char *why = kind_named(refused[i].kind)->refuse(arena, &refused[i].request);
    size_t length = strlen(refused[i].nearest);
    cr_assert(why && strncmp(why, refused[i].kind, strlen(refused[i].kind)) == 0 && strlen(why) > length &&
                  strcmp(why + strlen(why) - length, refused[i].nearest) == 0,
              "%s", why ? why : "accepted");
  }
  for (const char *const *name = schedule_names(); *name; name++) {
    cr_assert_not_null(kind_named(*name)->refuse(arena, &(ScheduleRequest){4, 2, 0}), "%s", *name);
    cr_assert_not_null(kind_named(*name)->refuse(arena, &(ScheduleRequest){0, 2, 4}), "%s", *name);
    cr_assert_not_null(kind_named(*name)->refuse(arena, &(ScheduleRequest){4, 0, 4}), "%s", *name);
  }
  arena_free(arena);
}

Test(kinds, placements) {
  Arena *arena = arena_new();
  static const int v[] = {0, 1, 2, 3, 3, 2, 1, 0}, loop[] = {0, 1, 2, 3, 0, 1, 2, 3},
                   wave[] = {0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0};
  static const char *const vs[] = {"zb-v", "v-half", "v-min", "1f1b-v", "dualpipe-v", "hanayo"};
  for (size_t i = 0; i < sizeof vs / sizeof vs[0]; i++)
    cr_assert_arr_eq(make(arena, kind_named(vs[i]), 4, 2, 8).rank_of, v, sizeof v);
  cr_assert_arr_eq(make(arena, kind_named("interleaved"), 4, 2, 8).rank_of, loop, sizeof loop);
  cr_assert_arr_eq(make(arena, kind_named("hanayo"), 3, 4, 3).rank_of, wave, sizeof wave);
  arena_free(arena);
}

Test(kinds, two_copies_lie_on_mirrored_ranks_and_share_the_microbatches) {
  Arena *arena = arena_new();
  static const char *const names[] = {"dualpipe", "chimera"};
  for (size_t k = 0; k < 2; k++) {
    pd_pipeline pipeline = make(arena, kind_named(names[k]), 4, 1, 8);
    cr_assert(pipeline.copies == 2 && pipeline.chunk_count == 8 && pd_copy_chunks(&pipeline) == 4);
    for (int chunk = 0; chunk < 4; chunk++) {
      cr_assert(pipeline.rank_of[chunk] == chunk && pipeline.rank_of[4 + chunk] == 3 - chunk);
      cr_assert(pd_chunk_first(&pipeline, chunk) == 0 && pd_chunk_end(&pipeline, chunk) == 4);
      cr_assert(pd_chunk_first(&pipeline, 4 + chunk) == 4 && pd_chunk_end(&pipeline, 4 + chunk) == 8);
    }
    cr_assert(pd_chunk_before(&pipeline, 4) == PD_NO_CHUNK && pd_chunk_after(&pipeline, 3) == PD_NO_CHUNK);
    cr_assert(pd_chunk_before(&pipeline, 5) == 4 && pd_chunk_after(&pipeline, 5) == 6);
    cr_assert_not_null(schedule_unasked(kind_named(names[k])));
  }
  cr_assert_null(schedule_unasked(kind_named("dualpipe-v")));
  cr_assert_not_null(schedule_unasked(kind_named("pipedream")));
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

/* ---- the oracle table ---- */

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
  cr_assert_eq(timing.bound, pipeline.copies > 1 ? 12.0 : 12 * 3.0 / chunks);
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
  check_oracle("v-half", 2, 26.5, 2.5, 2.5, 3);
  check_oracle("v-min", 2, 29.5, 5.5, 5.5, 2);
  check_oracle("dualpipe", 1, 25, 1, 1, 5);
  check_oracle("dualpipe-v", 2, 25.5, 1.5, 1.5, 4.5);
}

/* Figures that are known for some sizes only, in units of a share at F = B = W. */
Test(kinds, single_figures) {
  static const struct {
    const char *kind;
    int pp, chunks;
    int64_t m;
    double beta, peak;
  } known[] = {
      {"1f1b-v", 4, 2, 8, 7.5, 3},  {"1f1b-v", 8, 2, 16, 16.5, 6},      {"1f1b-v", 16, 2, 32, 37.5, 11},
      {"hanayo", 4, 2, 4, 6, 4},    {"hanayo", 4, 4, 4, 3.25, 4},       {"hanayo", 4, 8, 4, 1.625, 4},
      {"1f1b", 4, 1, 8, 9, 4},      {"1f1b", 8, 1, 16, 21, 8},          {"1f1b", 16, 1, 32, 45, 16},
      {"dualpipe", 8, 1, 20, 3, 9}, {"dualpipe-v", 8, 2, 20, 3.5, 8.5}, {"chimera", 4, 1, 4, 4, 4},
  };
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    Arena *arena = arena_new();
    int v = known[i].chunks;
    pd_pipeline pipeline = make(arena, kind_named(known[i].kind), known[i].pp, v, known[i].m);
    ScheduleTiming timing = play(arena, &pipeline, 1, 1, 1, 0);
    cr_assert(timing.beta == v * known[i].beta && (double)most_held(&pipeline) == v * known[i].peak,
              "%s p %d m %lld: beta %g peak %g", known[i].kind, known[i].pp, (long long)known[i].m, timing.beta / v,
              (double)most_held(&pipeline) / v);
    arena_free(arena);
  }
}

/* ---- closed forms ---- */

typedef struct Costs { /* of a chunk */
  double f, i, w;
} Costs;

static Costs draw_costs(Random *random) {
  return (Costs){(double)draw(random, 1, 20), (double)draw(random, 1, 20), (double)draw(random, 1, 20)};
}

/* What a kind should come to; below 0 (beta, sigma: NAN): no closed form for these sizes or costs. */
typedef struct Expected {
  double beta, sigma;
  int64_t peak; /* chunks */
} Expected;

static int64_t largest_group(int pp, int64_t m) {
  int64_t q = m < pp ? 1 : m / pp;
  return (m + q - 1) / q;
}

/* In the costs of a chunk, with p in doubles. */
static Expected expect_loop(const char *name, int pp, int v, int64_t m, Costs c) {
  bool equal = c.f == c.i && c.i == c.w;
  double p = pp, whole = c.f + c.i + c.w, late = larger(c.i, c.f + c.i - c.w);
  Expected e = {NAN, NAN, -1};
  if (!strcmp(name, "gpipe")) return (Expected){(p - 1) * whole, (p - 1) * whole, m};
  if (!strcmp(name, "1f1b") || !strcmp(name, "pipedream") || !strcmp(name, "pipedream-2bw"))
    return (Expected){(p - 1) * whole, (p - 1) * whole, least(m, pp)};
  if (!strcmp(name, "eager-1f1b")) return (Expected){(p - 1) * whole, NAN, least(m, 2 * pp - 1)};
  if (!strcmp(name, "interleaved") || !strcmp(name, "breadth-first")) {
    e.beta = (p - 1) * whole + (m < pp ? (double)((pp - m) * (v - 1)) * whole : 0);
    int64_t most = v == 1 ? pp : 2 * (pp - 1) + (v - 1) * largest_group(pp, m) + 1;
    e.peak = *name == 'b' ? m * v : least(m * v, most);
  } else if (!strcmp(name, "zb-h1") && m >= pp) {
    e = (Expected){(p - 1) * larger(c.f, late), m >= 2 * pp ? (p - 1) * late : NAN, pp};
  } else if (!strcmp(name, "zb-h2") && m >= 2 * pp - 1) {
    late = larger(c.i - c.f, c.f + c.i - 2 * c.w);
    e = (Expected){(p - 1) * larger(c.f, late), (p - 1) * larger(0, late), 2 * pp - 1};
  } else if (!strcmp(name, "interleaved-zb") && m >= pp) {
    if (equal || m % pp == 0) e.beta = (p - 1) * larger(c.f, late);
    if (m % pp == 0 && m >= 2 * pp) e.sigma = (p - 1) * late;
    e.peak = pp + (v - 1) * largest_group(pp, m);
  }
  return e;
}

/* At equal costs only. */
static Expected expect_v(const char *name, int pp, int v, int64_t m, Costs c) {
  Expected e = {NAN, NAN, -1};
  int64_t beta = -1, p = pp;
  if (!strcmp(name, "zb-v")) {
    if (m >= 2 * p - 1 || (m == 2 * p - 2 && p > 2)) beta = p - 1;
    if (m >= 2 * p - 1) e.sigma = 0;
    e.peak = least(2 * m, 2 * p);
  } else if (!strcmp(name, "v-half") && m >= 2 * p && p >= 3) {
    beta = p % 2 == 0 ? 3 * p - 7 : 3 * p - 4;
    e.peak = 2 * (p / 2 + 1);
  } else if (!strcmp(name, "v-min") && m >= 2 * p && p >= 2) {
    beta = p % 3 == 0 ? 4 * p - 7 : 4 * p - 5;
    e.peak = 2 * ((p + 4) / 3);
  } else if (!strcmp(name, "1f1b-v") && m >= 2 * p) {
    if (p % 3 == 1) beta = 5 * (p - 1);
    if (p % 3 == 2 && p > 2) beta = 5 * p - 7;
    e.peak = 2 * ((2 * p + 3) / 3);
  } else if (!strcmp(name, "dualpipe")) {
    beta = p / 2 - 1;
    e.peak = p + 1;
  } else if (!strcmp(name, "dualpipe-v")) {
    beta = p - 1;
    e.peak = 2 * p + 1;
  } else if (!strcmp(name, "chimera")) {
    beta = 2 * (p - 2) * (m / p);
    e.peak = p;
  } else if (!strcmp(name, "hanayo") && m <= p) {
    e.peak = m * v;
  }
  if (beta >= 0) e.beta = (double)beta * c.f;
  if (beta >= 0 && strcmp(name, "zb-v") != 0) e.sigma = e.beta;
  return e;
}

static Expected expect(const char *name, int pp, int v, int64_t m, Costs c) {
  static const char *const others[] = {"zb-v",     "v-half",     "v-min",   "1f1b-v",
                                       "dualpipe", "dualpipe-v", "chimera", "hanayo"};
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
    if (!strcmp(name, others[i])) {
      bool equal = c.f == c.i && c.i == c.w;
      Expected e = expect_v(name, pp, v, m, c);
      return equal ? e : (Expected){NAN, NAN, e.peak};
    }
  return expect_loop(name, pp, v, m, c);
}

static double universal_bound(const pd_pipeline *pipeline, Costs c) {
  return (pipeline->copies > 1 ? pipeline->pp / 2 - 1 : pipeline->pp - 1) * c.f;
}

static void check_figures(const char *name, const pd_pipeline *pipeline, int v, Costs c, ScheduleTiming timing) {
  int64_t m = pipeline->microbatches, peak = most_held(pipeline);
  Expected e = expect(name, pipeline->pp, v, m, c);
  cr_assert(timing.bound == universal_bound(pipeline, c) && timing.beta >= timing.bound);
  cr_assert((isnan(e.beta) || timing.beta == e.beta) && (isnan(e.sigma) || timing.sigma == e.sigma) &&
                (e.peak < 0 || peak == e.peak),
            "%s p %d v %d m %lld F %g B %g W %g: beta %g, sigma %g, peak %lld, not %g, %g, %lld", name, pipeline->pp, v,
            (long long)m, c.f, c.i, c.w, timing.beta, timing.sigma, (long long)peak, e.beta, e.sigma,
            (long long)e.peak);
}

/* Lists must be in the order that lets buffers be reused and gradients be added. */
static void check_order(Arena *arena, const char *name, const pd_pipeline *pipeline) {
  int64_t(*next)[3] = arena_alloc(arena, sizeof *next * (size_t)pipeline->chunk_count);
  for (int c = 0; c < pipeline->chunk_count; c++)
    for (int k = 0; k < 3; k++) next[c][k] = pd_chunk_first(pipeline, c);
  for (int rank = 0; rank < pipeline->pp; rank++)
    for (int64_t i = 0; i < pipeline->ranks[rank].count; i++) {
      pd_action action = pipeline->ranks[rank].at[i];
      int64_t *at = next[action.chunk];
      bool good = pipeline->rank_of[action.chunk] == rank;
      if (action.kind == PD_F) good &= at[0]++ == action.microbatch;
      if (action.kind == PD_I || action.kind == PD_B) good &= at[1]++ == action.microbatch;
      if (action.kind == PD_W || action.kind == PD_B) good &= at[2]++ == action.microbatch;
      cr_assert(good, "%s p %d m %lld: %s on rank %d", name, pipeline->pp, (long long)pipeline->microbatches,
                text_of(arena, action), rank);
    }
  for (int c = 0; c < pipeline->chunk_count; c++)
    for (int k = 0; k < 3; k++) cr_assert_eq(next[c][k], pd_chunk_end(pipeline, c));
}

static void check_messages(Arena *arena, const char *name, const pd_pipeline *bare, double alone) {
  for (int variant = 0; variant < 2; variant++) {
    pd_pipeline pipeline = *bare;
    bool *gradient_into = all_true(arena, pipeline.chunk_count);
    int layers = pd_copy_chunks(bare);
    /* nothing is trained below the middle: no gradient travels there */
    for (int c = 0; variant == 1 && c < pipeline.chunk_count; c++) gradient_into[c] = c % layers > layers / 2;
    schedule_insert_communication(arena, &pipeline, gradient_into, variant == 0);
    Certificate certificate = schedule_certify(arena, &pipeline);
    cr_assert(accepted(certificate) && !certificate.why, "%s p %d m %lld: %s", name, pipeline.pp,
              (long long)pipeline.microbatches, certificate.why);
    double made = play(arena, &pipeline, 1, 1, 1, 0).makespan; /* gradients that do not travel are not waited for */
    cr_assert(variant == 0 ? made == alone : made <= alone, "%s p %d m %lld: %g, not %g", name, pipeline.pp,
              (long long)pipeline.microbatches, made, alone);
    int64_t messages[PD_ACTION_KINDS] = {0}, crossing = 0, returning = 0;
    for (int rank = 0; rank < pipeline.pp; rank++)
      for (int64_t i = 0; i < pipeline.ranks[rank].count; i++) messages[pipeline.ranks[rank].at[i].kind]++;
    for (int c = 0; c < pipeline.chunk_count; c++) {
      int before = pd_chunk_before(&pipeline, c);
      int64_t count = pd_chunk_end(&pipeline, c) - pd_chunk_first(&pipeline, c);
      bool crosses = before != PD_NO_CHUNK && pipeline.rank_of[c] != pipeline.rank_of[before];
      crossing += crosses ? count : 0;
      returning += crosses && gradient_into[c] ? count : 0;
    }
    bool reduces = pipeline.step == 0 && (variant == 0 || pipeline.copies > 1);
    cr_assert(messages[PD_SEND_F] == crossing && messages[PD_RECV_F] == crossing && messages[PD_SEND_B] == returning &&
                  messages[PD_RECV_B] == returning && messages[PD_REDUCE_GRAD] == (reduces ? pipeline.chunk_count : 0),
              "%s p %d m %lld", name, pipeline.pp, (long long)pipeline.microbatches);
  }
}

/* Everything about one request at equal costs. False if the kind refuses it. */
static bool check_request(const char *name, int pp, int v, int64_t m) {
  Arena *arena = arena_new();
  const ScheduleKind *kind = kind_named(name);
  bool taken = !kind->refuse(arena, &(ScheduleRequest){pp, v, m});
  if (taken) {
    pd_pipeline bare = make(arena, kind, pp, v, m);
    check_order(arena, name, &bare);
    ScheduleTiming timing = play(arena, &bare, 1, 1, 1, 0);
    check_figures(name, &bare, v, (Costs){1, 1, 1}, timing);
    check_messages(arena, name, &bare, timing.makespan);
  }
  arena_free(arena);
  return taken;
}

/* Sizes that are always taken: those at which a formula begins or ends to hold, and every n-th of the others. */
static bool chosen(int pp, int v, int64_t m, int64_t every) {
  if (full_range() || pp <= 4) return true;
  int64_t mark = (pp * 31 + v) * 101 + m;
  return m == pp || m == 2 * pp - 1 || m == 2 * pp || mark % every == 0;
}

static int check_kind(const char *name) {
  int built = 0;
  for (int pp = 1; pp <= MOST_RANKS; pp++)
    for (int v = 1; v <= MOST_CHUNKS; v++)
      for (int64_t m = 1; m <= 5 * pp; m++)
        if (chosen(pp, v, m, pp <= 8 ? 3 : 11)) built += check_request(name, pp, v, m);
  return built;
}

#define CHECK_KIND(test, name)                                                                                         \
  Test(every_size, test, .timeout = 900) {                                                                             \
    cr_assert_gt(check_kind(name), 12);                                                                                \
  }
CHECK_KIND(gpipe, "gpipe")
CHECK_KIND(one_f_one_b, "1f1b")
CHECK_KIND(eager_1f1b, "eager-1f1b")
CHECK_KIND(interleaved, "interleaved")
CHECK_KIND(breadth_first, "breadth-first")
CHECK_KIND(zb_h1, "zb-h1")
CHECK_KIND(zb_h2, "zb-h2")
CHECK_KIND(interleaved_zb, "interleaved-zb")
CHECK_KIND(zb_v, "zb-v")
CHECK_KIND(v_half, "v-half")
CHECK_KIND(v_min, "v-min")
CHECK_KIND(one_f_one_b_v, "1f1b-v")
CHECK_KIND(dualpipe, "dualpipe")
CHECK_KIND(dualpipe_v, "dualpipe-v")
CHECK_KIND(chimera, "chimera")
CHECK_KIND(hanayo, "hanayo")
CHECK_KIND(pipedream, "pipedream")
CHECK_KIND(pipedream_2bw, "pipedream-2bw")

/* ---- other costs ---- */

/* Equal chunks that cost f, i, w each. */
static void check_costs(const char *name, int pp, int v, int64_t m, Costs c) {
  Arena *arena = arena_new();
  const ScheduleKind *kind = kind_named(name);
  if (!kind->refuse(arena, &(ScheduleRequest){pp, v, m})) {
    pd_pipeline pipeline = make(arena, kind, pp, v, m);
    check_figures(name, &pipeline, v, c, play(arena, &pipeline, c.f, c.i, c.w, 0));
  }
  arena_free(arena);
}

Test(closed_forms, hold_for_whole_random_costs, .timeout = 120) {
  Random random = {2025};
  for (const char *const *name = schedule_names(); *name; name++)
    for (int pp = 1; pp <= MOST_RANKS; pp++)
      for (int v = 1; v <= MOST_CHUNKS; v++)
        for (int64_t m = 1; m <= 5 * pp + 2; m++) check_costs(*name, pp, v, m, draw_costs(&random));
}

Test(closed_forms, zb_h1_and_zb_h2_for_many_costs) {
  Random random = {1500};
  for (int round = 0; round < 1500; round++) {
    int pp = (int)draw(&random, 2, 8);
    int64_t m = draw(&random, 2 * pp, 5 * pp);
    Costs c = draw_costs(&random);
    check_costs("zb-h1", pp, 1, m, c);
    check_costs("zb-h2", pp, 1, m, c);
  }
}

Test(closed_forms, interleaved_zb_meets_the_bound_for_every_number_of_microbatches) {
  for (int pp = 2; pp <= MOST_RANKS; pp++)
    for (int v = 1; v <= MOST_CHUNKS; v++)
      for (int64_t m = pp; m <= 5 * pp + 2; m++) {
        Arena *arena = arena_new();
        pd_pipeline pipeline = make(arena, kind_named("interleaved-zb"), pp, v, m);
        ScheduleTiming timing = play(arena, &pipeline, 1, 1, 1, 0);
        cr_assert(timing.beta == pp - 1 && timing.bound == pp - 1, "p %d v %d m %lld: %g", pp, v, (long long)m,
                  timing.beta);
        arena_free(arena);
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

/* With F = X Chimera has half the bubble that it has with X = 2 F. */
Test(closed_forms, chimera_with_equal_passes) {
  for (int pp = 2; pp <= MOST_RANKS; pp += 2) {
    Arena *arena = arena_new();
    pd_pipeline pipeline = make(arena, kind_named("chimera"), pp, 1, pp);
    cr_assert_eq(play(arena, &pipeline, 1, 1, 0, 0).beta, pp - 2);
    for (int rank = 0; rank < pp; rank++)
      cr_assert(schedule_held(&pipeline, rank) > pp / 2 && schedule_held(&pipeline, rank) <= pp);
    arena_free(arena);
  }
}

/* V-Min has no slack between its passes: at these costs every micro-batch adds waiting, up to more than 1F1B has. */
Test(closed_forms, v_min_is_fragile) {
  static const struct {
    int64_t m;
    double beta;
  } known[] = {{24, 10.2}, {32, 11.9}}; /* in F + B + W */
  for (size_t k = 0; k < 2; k++) {
    Arena *arena = arena_new();
    pd_pipeline pipeline = make(arena, kind_named("v-min"), 8, 2, known[k].m);
    double beta = play(arena, &pipeline, 18522, 18086, 9337, 0).beta / (2 * (18522 + 18086 + 9337));
    cr_assert(beta > known[k].beta - 0.05 && beta < known[k].beta + 0.05, "m %lld: %g", (long long)known[k].m, beta);
    arena_free(arena);
  }
}

/* A link delays the first micro-batch on its way down and the first gradient on its way up, once each. Twice as many
 * forwards ahead hide it; 1F1B has no micro-batch to spare while a message travels, and pays in every round. */
Test(closed_forms, link_latency) {
  Random random = {7};
  for (int pp = 2; pp <= 8; pp++)
    for (int64_t m = pp; m <= 4 * pp; m += pp) {
      Arena *arena = arena_new();
      Costs c = draw_costs(&random);
      double whole = (pp - 1) * (c.f + c.i + c.w), link = 1;
      pd_pipeline gpipe = make(arena, kind_named("gpipe"), pp, 1, m), plain = make(arena, kind_named("1f1b"), pp, 1, m),
                  eager = make(arena, kind_named("eager-1f1b"), pp, 1, m);
      cr_assert_eq(play(arena, &gpipe, c.f, c.i, c.w, link).beta, whole + 2 * link * (pp - 1));
      cr_assert_eq(play(arena, &gpipe, c.f, c.i, c.w, link).bound, (pp - 1) * (c.f + link));
      cr_assert_eq(play(arena, &eager, 20, 20, 20, link).beta, (pp - 1) * (60 + 2 * link));
      cr_assert_eq(play(arena, &plain, 20, 20, 20, link).beta,
                   (pp - 1) * 60 + 2 * link * (pp - 2) + 2 * link * (pp - 1) * (double)(m / pp));
      if (m >= 2 * pp) cr_assert_gt(play(arena, &plain, c.f, c.i, c.w, link).beta, whole + 2 * link * (pp - 1));
      arena_free(arena);
    }
}

/* Messages that know of the link cost nothing beyond it. */
Test(closed_forms, timed_messages_take_no_longer_than_none, .timeout = 60) {
  Random random = {88};
  for (int round = 0; round < 1200; round++) {
    Arena *arena = arena_new();
    const ScheduleKind *kind = kind_named(schedule_names()[draw(&random, 0, 17)]);
    int pp = (int)draw(&random, 1, 8), v;
    int64_t m = draw(&random, 1, 24);
    v = chunks_for(arena, kind, pp, (int)draw(&random, 1, 4), m);
    if (v > 0) {
      pd_pipeline pipeline = make(arena, kind, pp, v, m);
      double *costs[3];
      for (int k = 0; k < 3; k++) {
        costs[k] = ARENA_ARRAY(arena, double, pipeline.chunk_count);
        for (int c = 0; c < pipeline.chunk_count; c++) costs[k][c] = (double)draw(&random, k == 2 ? 0 : 1, 12);
      }
      ScheduleCosts all = {costs[0], costs[1], costs[2], (double)draw(&random, 0, 6)};
      ScheduleTiming bare, full;
      const char *why;
      cr_assert(schedule_simulate(arena, &pipeline, &all, &bare, &why), "%s", why);
      schedule_insert_timed_communication(arena, &pipeline, &all, all_true(arena, pipeline.chunk_count), true);
      cr_assert(schedule_simulate(arena, &pipeline, &all, &full, &why), "%s", why);
      Certificate certificate = schedule_certify(arena, &pipeline);
      cr_assert(accepted(certificate), "%s p %d v %d m %lld: %s", kind->name, pp, v, (long long)m, certificate.why);
      cr_assert(full.makespan == bare.makespan && full.sigma == bare.sigma, "%s p %d v %d m %lld link %g: %g, not %g",
                kind->name, pp, v, (long long)m, all.link, full.makespan, bare.makespan);
    }
    arena_free(arena);
  }
}

/* ---- two copies that make one sum ---- */

/* When the last weight gradient of chunk `chunk` is done, and when its first begins. */
static void weights_of(const pd_pipeline *pipeline, const ScheduleTiming *timing, int chunk, double *first,
                       double *last) {
  int rank = pipeline->rank_of[chunk];
  int64_t at = 0;
  for (int r = 0; r < rank; r++) at += pipeline->ranks[r].count;
  *first = -1;
  for (int64_t i = 0; i < pipeline->ranks[rank].count; i++) {
    pd_action action = pipeline->ranks[rank].at[i];
    if (action.chunk != chunk || (action.kind != PD_B && action.kind != PD_W)) continue;
    if (*first < 0) *first = timing->start[at + i];
    *last = timing->end[at + i];
  }
}

Test(copies, the_second_goes_on_with_the_sums_of_the_first) {
  static const char *const names[] = {"dualpipe", "chimera"};
  for (size_t k = 0; k < 2; k++)
    for (int pp = 2; pp <= 10; pp += 2)
      for (int64_t m = 2 * pp; m <= 6 * pp; m += pp) {
        Arena *arena = arena_new();
        pd_pipeline pipeline = make(arena, kind_named(names[k]), pp, 1, m);
        double published = play(arena, &pipeline, 1, 1, 1, 0).makespan;
        pipeline.accumulators = 1;
        schedule_continue_sums(arena, &pipeline);
        bool *gradients = ARENA_ARRAY(arena, bool, 2 * pp);
        for (int c = 0; c < 2 * pp; c++) gradients[c] = true;
        schedule_insert_communication(arena, &pipeline, gradients, false);
        Certificate c = schedule_certify(arena, &pipeline);
        cr_assert(accepted(c), "%s p %d m %lld: %s", names[k], pp, (long long)m, c.why);
        ScheduleTiming timing = play(arena, &pipeline, 1, 1, 1, 0);
        double more = (double)(k == 0 ? pp / 2 : m / pp);
        cr_assert_eq(timing.makespan, published + more, "%s p %d m %lld: %g, published %g", names[k], pp, (long long)m,
                     timing.makespan, published);
        for (int chunk = 0; chunk < pp; chunk++) {
          double first, last, unused;
          cr_assert_eq(pd_chunk_continued(&pipeline, pp + chunk), chunk);
          weights_of(&pipeline, &timing, chunk, &unused, &last);
          weights_of(&pipeline, &timing, pp + chunk, &first, &unused);
          cr_assert_geq(first, last);
        }
        arena_free(arena);
      }
}

/* With its weight gradients where they were, the second copy waits for the first in the middle, which waits for it. */
Test(copies, weight_gradients_that_wait_in_the_middle_are_a_circle) {
  Arena *arena = arena_new();
  pd_pipeline pipeline = make_with_messages(arena, kind_named("dualpipe"), 4, 1, 12, false);
  cr_assert(accepted(schedule_certify(arena, &pipeline)));
  pipeline.accumulators = 1;
  Certificate c = schedule_certify(arena, &pipeline);
  cr_assert(c.matched && !c.acyclic_buffered && !c.acyclic_rendezvous && !c.acyclic_grouped);
  cr_assert(strstr(c.why, "waits for"), "%s", c.why);
  ScheduleTiming timing;
  const char *why;
  double ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  cr_assert_not(schedule_simulate(arena, &pipeline, &(ScheduleCosts){ones, ones, ones, 0}, &timing, &why));
  arena_free(arena);
}

/* ---- without a flush ---- */

Test(no_flush, pipedream_keeps_a_version_for_every_microbatch_under_way) {
  for (int pp = 1; pp <= 12; pp++)
    for (int64_t m = 2 * pp; m <= 5 * pp; m += pp) {
      Arena *arena = arena_new();
      pd_pipeline pipeline = make(arena, kind_named("pipedream"), pp, 1, m);
      cr_assert(pipeline.step == 1 && pipeline.delay == 0);
      for (int rank = 0; rank < pp; rank++) {
        cr_assert_eq(pd_weight_versions(&pipeline, rank), pp - rank);
        cr_assert_eq(pd_weight_staleness(&pipeline, rank), pp - 1 - rank);
        int64_t updates = 0; /* of the weights, when a forward begins */
        for (int64_t i = 0; i < pipeline.ranks[rank].count; i++) {
          pd_action action = pipeline.ranks[rank].at[i];
          if (action.kind == PD_F && action.microbatch >= pp - 1 - rank)
            cr_assert_eq(action.microbatch - updates, pp - 1 - rank); /* staleness of its gradient */
          updates += action.kind == PD_B;
        }
      }
      arena_free(arena);
    }
}

Test(no_flush, two_versions_are_enough_with_a_delay_of_one_step) {
  for (int pp = 1; pp <= 12; pp++)
    for (int64_t m = pp; m <= 6 * pp; m += pp) {
      Arena *arena = arena_new();
      pd_pipeline pipeline = make(arena, kind_named("pipedream-2bw"), pp, 1, m);
      cr_assert(pipeline.step == pp && pipeline.delay == 1);
      for (int rank = 0; rank < pp; rank++) {
        cr_assert_eq(pd_weight_versions(&pipeline, rank), 2, "p %d m %lld rank %d", pp, (long long)m, rank);
        cr_assert_eq(pd_weight_staleness(&pipeline, rank), 1);
      }
      arena_free(arena);
    }
}

/* Once the pipeline is full no rank waits. */
Test(no_flush, no_idle_time_in_the_middle) {
  Random random = {12};
  static const char *const names[] = {"pipedream", "pipedream-2bw"};
  for (size_t k = 0; k < 2; k++)
    for (int pp = 2; pp <= 8; pp++) {
      Arena *arena = arena_new();
      Costs c = draw_costs(&random);
      pd_pipeline pipeline = make(arena, kind_named(names[k]), pp, 1, 6 * pp);
      ScheduleTiming timing = play(arena, &pipeline, c.f, c.i, c.w, 0);
      int64_t first_of = 0;
      for (int rank = 0; rank < pp; rank++) {
        const pd_action_list *list = &pipeline.ranks[rank];
        bool full = false;
        for (int64_t i = 0; i + 1 < list->count && list->at[i + 1].microbatch < 6 * pp - 1; i++) {
          full |= list->at[i].kind == PD_B;
          if (full) cr_assert_eq(timing.end[first_of + i], timing.start[first_of + i + 1]);
        }
        first_of += list->count;
      }
      arena_free(arena);
    }
}

Test(no_flush, certifier_wants_the_weights_before_they_are_used) {
  Arena *arena = arena_new();
  pd_pipeline pipeline = make_with_messages(arena, kind_named("pipedream-2bw"), 4, 1, 12, false);
  cr_assert(accepted(schedule_certify(arena, &pipeline)));
  pipeline.step = 1; /* micro-batch 3 would use what micro-batch 1 left, but rank 0 begins it before */
  Certificate c = schedule_certify(arena, &pipeline);
  cr_assert(c.complete && !c.ordered);
  cr_assert_str_eq(c.why, "0F2 comes before 0B0 on rank 0");
  arena_free(arena);
}
