/* Stages and schedules: partition against brute force, the simulator, insertion of messages, and the certifier on lists
 * written by hand. What every kind of schedule is and costs is tested in schedules_test.c. */
#include "unit/schedule_help.h"

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
      int pp = (int)draw(&random, 1, 6);
      int64_t m = draw(&random, 1, 15);
      int chunks = chunks_for(arena, kind_named(*name), pp, (int)draw(&random, 1, 3), m);
      if (chunks == 0) {
        arena_free(arena);
        continue;
      }
      pd_pipeline pipeline = make(arena, kind_named(*name), pp, chunks, m);
      double f[24], i[24], w[24];
      for (int c = 0; c < pipeline.chunk_count; c++)
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
        cr_assert_eq(pd_in_flight(&pipeline, chunk), schedule_held(&bare, chunk), "%s p %d chunk %d: %lld, not %lld",
                     names[k], pp, chunk, (long long)pd_in_flight(&pipeline, chunk),
                     (long long)schedule_held(&bare, chunk));
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

Test(certify, says_what_is_wrong_where) {
  Arena *arena = arena_new();
  pd_pipeline good = make_with_messages(arena, kind_named("1f1b"), 2, 1, 2, true);
  pd_action_list *ranks;
  pd_pipeline bad = copy_of(arena, &good, &ranks);
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

Test(certify, wants_every_unit_in_a_chunk_and_units_at_both_ends_and_a_chunk_on_every_rank) {
  Arena *arena = arena_new();
  pd_pipeline pipeline = make_with_messages(arena, kind_named("1f1b"), 3, 1, 4, false);
  static const int64_t empty[] = {0, 2, 2, 3}; /* the middle one passes on what it gets */
  pipeline.first_unit = empty;
  cr_assert(accepted(schedule_certify(arena, &pipeline)));
  static const int64_t wrong[][4] = {{1, 2, 3, 4}, {0, 0, 2, 3}, {0, 2, 3, 3}, {0, 2, 1, 3}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    pipeline.first_unit = wrong[i];
    cr_assert_not(schedule_certify(arena, &pipeline).complete, "%zu", i);
  }
  static const int crowded[] = {0, 1, 1};
  pipeline = make_with_messages(arena, kind_named("1f1b"), 3, 1, 4, false);
  pipeline.rank_of = crowded;
  cr_assert_not(schedule_certify(arena, &pipeline).complete);
  arena_free(arena);
}
