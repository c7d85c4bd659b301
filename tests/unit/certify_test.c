/* The certifier: thousands of schedules that are each wrong in one place, and some that are changed and still right.
 * PD_TEST_FULL=1 in the environment takes ten times as many.
 * PD_TEST_MUTANTS=FILE writes the mutants, for tests/golden/torch_mutants.py. */
#include "artifact/artifact.h"
#include "unit/schedule_help.h"

/* ---- schedules that are wrong ---- */

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
  WRONG_PEER,
  WRONG_MICROBATCH,
  LATE_SEND,
  EARLY_RECEIVE,
  MUTATIONS
} Mutation;
static const char *const mutation_names[] = {
    "drop",       "duplicate",         "swap across a dependency", "other rank",
    "wrong peer", "wrong micro-batch", "reordered sends",          "reordered receives"};

/* A mutant and how the certifier must put it: all of `say`, and one of `name` if there is one. */
typedef struct Mutant {
  pd_pipeline pipeline;
  pd_action_list *ranks;
  const char *say[2], *name[2];
} Mutant;

static const char *on_rank(Arena *arena, pd_action action, const char *what, int rank) {
  return arena_printf(arena, "%s %s on rank %d", text_of(arena, action), what, rank);
}

static bool drop(Arena *arena, Mutant *mutant, int rank, int64_t index) {
  pd_action action = mutant->ranks[rank].at[index];
  remove_at(&mutant->ranks[rank], index);
  /* where some backwards are split, what is missing is told by its first half */
  if (action.kind == PD_B && mutant->pipeline.split) action.kind = PD_I;
  mutant->say[0] = on_rank(arena, action, "is missing", rank);
  return true;
}

static bool swap_dependent(Arena *arena, Mutant *mutant, int rank, int64_t index) {
  pd_action_list *list = &mutant->ranks[rank];
  pd_action action = list->at[index];
  for (int64_t later = index + 1; later < list->count; later++)
    if (depends(list->at[later], action)) {
      mutant->name[0] = text_of(arena, action);
      mutant->name[1] = text_of(arena, list->at[later]);
      mutant->say[0] = " comes before ";
      mutant->say[1] = arena_printf(arena, " on rank %d", rank);
      list->at[index] = list->at[later];
      list->at[later] = action;
      return true;
    }
  return false;
}

static bool move(Random *random, Arena *arena, Mutant *mutant, int rank, int64_t index) {
  pd_action action = mutant->ranks[rank].at[index];
  int to = (int)draw(random, 0, mutant->pipeline.pp - 1);
  if (to == rank) return false;
  remove_at(&mutant->ranks[rank], index);
  insert_at(&mutant->ranks[to], draw(random, 0, mutant->ranks[to].count), action);
  mutant->say[0] = on_rank(arena, action, "stands", to);
  mutant->say[1] = arena_printf(arena, "but chunk %d lies on rank %d", action.chunk, rank);
  return true;
}

/* A message to another chunk of the rank, or the other way. What it should have been is missing then, or what it has
 * become is there twice or makes no sense. */
static bool wrong_peer(Random *random, Arena *arena, Mutant *mutant, int rank, int64_t index) {
  pd_action *at = &mutant->ranks[rank].at[index], was = *at;
  if (!is_send(was.kind) && !is_receive(was.kind)) return false;
  if (draw(random, 0, 1) == 0) {
    at->kind = was.kind == PD_SEND_F   ? PD_SEND_B
               : was.kind == PD_SEND_B ? PD_SEND_F
               : was.kind == PD_RECV_F ? PD_RECV_B
                                       : PD_RECV_F;
  } else {
    at->chunk = (int32_t)draw(random, 0, mutant->pipeline.chunk_count - 1);
    if (at->chunk == was.chunk || mutant->pipeline.rank_of[at->chunk] != rank) return false;
  }
  mutant->name[0] = text_of(arena, was);
  mutant->name[1] = text_of(arena, *at);
  int64_t mb = was.microbatch;
  bool outside = mb < pd_chunk_first(&mutant->pipeline, at->chunk) || mb >= pd_chunk_end(&mutant->pipeline, at->chunk);
  if (outside) {
    mutant->name[0] = NULL;
    mutant->say[0] = "is none of this pipeline";
  }
  return true;
}

static bool wrong_microbatch(Random *random, Arena *arena, Mutant *mutant, int rank, int64_t index) {
  pd_action *at = &mutant->ranks[rank].at[index], was = *at;
  if (was.kind == PD_REDUCE_GRAD) return false;
  at->microbatch = (int32_t)draw(random, 0, mutant->pipeline.microbatches - 1);
  if (at->microbatch == was.microbatch) return false;
  bool outside = at->microbatch < pd_chunk_first(&mutant->pipeline, at->chunk) ||
                 at->microbatch >= pd_chunk_end(&mutant->pipeline, at->chunk);
  if (outside) {
    mutant->say[0] = "is none of this pipeline";
    return true;
  }
  /* it is there twice, or beside the other form of a backward; or what it was is missing, told by its first half */
  mutant->name[0] = text_of(arena, *at);
  if (was.kind == PD_B && mutant->pipeline.split) was.kind = PD_I;
  mutant->name[1] = on_rank(arena, was, "is missing", rank);
  return true;
}

/* The same two messages in another order at one end. */
static bool reorder(Arena *arena, Mutant *mutant, int rank, int64_t index, bool sends) {
  pd_action_list *list = &mutant->ranks[rank];
  pd_action action = list->at[index];
  if (sends ? !is_send(action.kind) : !is_receive(action.kind)) return false;
  int peer = peer_of(&mutant->pipeline, action);
  for (int64_t later = index + 1; later < list->count; later++) {
    pd_action other = list->at[later];
    if ((sends ? !is_send(other.kind) : !is_receive(other.kind)) || peer_of(&mutant->pipeline, other) != peer) continue;
    if (sends) {
      insert_at(list, later + 1, action);
      remove_at(list, index);
    } else {
      remove_at(list, later);
      insert_at(list, index, other);
    }
    mutant->say[0] = "sends them in the other order";
    mutant->say[1] = arena_printf(arena, "rank %d", rank);
    return true;
  }
  return false;
}

/* Applies one; false if it does not apply where chance pointed. */
static bool mutate(Random *random, Arena *arena, Mutant *mutant, Mutation mutation) {
  int rank = (int)draw(random, 0, mutant->pipeline.pp - 1);
  pd_action_list *list = &mutant->ranks[rank];
  int64_t index = draw(random, 0, list->count - 1);
  switch (mutation) {
  case DROP:
    return drop(arena, mutant, rank, index);
  case DUPLICATE:
    mutant->say[0] = on_rank(arena, list->at[index], "stands twice", rank);
    insert_at(list, draw(random, 0, list->count), list->at[index]);
    return true;
  case SWAP_DEPENDENT:
    return swap_dependent(arena, mutant, rank, index);
  case MOVE:
    return move(random, arena, mutant, rank, index);
  case WRONG_PEER:
    return wrong_peer(random, arena, mutant, rank, index);
  case WRONG_MICROBATCH:
    return wrong_microbatch(random, arena, mutant, rank, index);
  case LATE_SEND:
    return reorder(arena, mutant, rank, index, true);
  case EARLY_RECEIVE:
    return reorder(arena, mutant, rank, index, false);
  case MUTATIONS:
    break;
  }
  return false;
}

/* Which of the certificate's promises a mutation breaks, and that the text says so. */
static bool told_rightly(const Mutant *mutant, Mutation mutation, Certificate c) {
  if (!c.why || accepted(c)) return false;
  bool ordered = mutation == SWAP_DEPENDENT, matched = mutation == LATE_SEND || mutation == EARLY_RECEIVE;
  if (ordered && (!c.complete || c.ordered)) return false;
  if (matched && (!c.complete || !c.ordered || c.matched)) return false;
  if (!ordered && !matched && c.complete && c.matched) return false;
  for (int k = 0; k < 2; k++)
    if (mutant->say[k] && !strstr(c.why, mutant->say[k])) return false;
  return !mutant->name[0] || strstr(c.why, mutant->name[0]) || strstr(c.why, mutant->name[1]);
}

/* Those that PyTorch's lists can say: one copy of the model, a flush. As CSV with waits, behind a line that names it.
 */
static void write_mutant(FILE *file, const char *kind, Mutation mutation, const pd_pipeline *pipeline) {
  if (!file || pipeline->copies > 1 || pipeline->step > 0) return;
  Arena *arena = arena_new();
  Text text = {.arena = arena};
  schedule_write_waits_csv(arena, pipeline, &text);
  fprintf(file, "= %s, pp %d, chunks %d, microbatches %lld: %s\n%s", kind, pipeline->pp, pipeline->chunk_count,
          (long long)pipeline->microbatches, mutation == MUTATIONS ? "none" : mutation_names[mutation], text.at);
  arena_free(arena);
}

Test(mutants, are_all_rejected_for_the_right_reason, .timeout = 120) {
  Random random = {2024};
  const char *path = getenv("PD_TEST_MUTANTS");
  FILE *file = path ? fopen(path, "w") : NULL;
  int rejected[MUTATIONS] = {0}, total = 0, rounds = full_range() ? 400 : 40;
  static const int ranks[] = {2, 4, 6};
  for (const char *const *name = schedule_names(); *name; name++)
    for (size_t size = 0; size < sizeof ranks / sizeof ranks[0]; size++) {
      Arena *all = arena_new();
      int pp = ranks[size];
      int64_t m = 2 * pp;
      int v = chunks_for(all, kind_named(*name), pp, 2, m);
      cr_assert_gt(v, 0, "%s", *name);
      pd_pipeline good = make_with_messages(all, kind_named(*name), pp, v, m, true);
      cr_assert(accepted(schedule_certify(all, &good)));
      write_mutant(file, *name, MUTATIONS, &good);
      for (Mutation mutation = 0; mutation < MUTATIONS; mutation++)
        for (int round = 0; round < rounds; round++) {
          Arena *arena = arena_new();
          Mutant mutant = {0};
          mutant.pipeline = copy_of(arena, &good, &mutant.ranks);
          if (mutate(&random, arena, &mutant, mutation)) {
            Certificate c = schedule_certify(arena, &mutant.pipeline);
            cr_assert(told_rightly(&mutant, mutation, c), "%s p %d, %s, round %d: %s; expected: %s %s", *name, pp,
                      mutation_names[mutation], round, c.why ? c.why : "accepted", mutant.say[0] ? mutant.say[0] : "",
                      mutant.name[0] ? mutant.name[0] : "");
            write_mutant(file, *name, mutation, &mutant.pipeline);
            rejected[mutation]++, total++;
          }
          arena_free(arena);
        }
      arena_free(all);
    }
  for (int mutation = 0; mutation < MUTATIONS; mutation++)
    cr_assert_gt(rejected[mutation], 200, "%s: only %d", mutation_names[mutation], rejected[mutation]);
  cr_assert_geq(total, 5000);
  if (file) fclose(file);
  cr_log_info("%d mutants rejected: %d %d %d %d %d %d %d %d", total, rejected[0], rejected[1], rejected[2], rejected[3],
              rejected[4], rejected[5], rejected[6], rejected[7]);
}

/* Two copies add up one sum: their reductions must be there, and in one order on both ranks. */
Test(mutants, reductions_of_two_copies) {
  Arena *arena = arena_new();
  pd_pipeline good = make_with_messages(arena, kind_named("dualpipe"), 4, 1, 8, false);
  Certificate c = schedule_certify(arena, &good);
  cr_assert(accepted(c), "%s", c.why);
  pd_action_list *ranks;
  pd_pipeline bad = copy_of(arena, &good, &ranks);
  pd_action_list *first = &ranks[0];
  int64_t at[2], found = 0;
  for (int64_t i = 0; i < first->count; i++)
    if (first->at[i].kind == PD_REDUCE_GRAD) at[found++] = i;
  cr_assert_eq(found, 2);
  pd_action moved = first->at[at[0]]; /* behind the other one: allowed by itself, but not by the other rank */
  insert_at(first, at[1] + 1, moved);
  remove_at(first, at[0]);
  c = schedule_certify(arena, &bad);
  cr_assert(c.complete && c.ordered && c.matched && !c.acyclic_buffered && !c.acyclic_rendezvous && !c.acyclic_grouped);
  cr_assert_not_null(strstr(c.why, "REDUCE_GRAD"));
  bad = copy_of(arena, &good, &ranks);
  for (int rank = 0; rank < 4; rank++)
    for (int64_t i = ranks[rank].count; i-- > 0;)
      if (ranks[rank].at[i].kind == PD_REDUCE_GRAD) remove_at(&ranks[rank], i);
  c = schedule_certify(arena, &bad);
  cr_assert_not(c.complete);
  cr_assert_str_eq(c.why, "0REDUCE_GRAD is missing on rank 0");
  arena_free(arena);
}

/* ---- schedules that are changed and right ---- */

static bool is_computation(pd_action_kind kind) {
  return kind <= PD_W;
}

/* A weight gradient may change places with a neighbouring computation that it has nothing to do with: nobody else waits
 * for it. Works on a valid list and leaves a valid one. */
static int swap_weights(Random *random, pd_action_list *ranks, int pp, int tries) {
  int swapped = 0;
  for (int k = 0; k < tries; k++) {
    pd_action_list *list = &ranks[draw(random, 0, pp - 1)];
    int64_t i = draw(random, 0, list->count - 2);
    pd_action a = list->at[i], b = list->at[i + 1];
    if (!is_computation(a.kind) || !is_computation(b.kind) || (a.kind == PD_W) == (b.kind == PD_W)) continue;
    if (depends(b, a)) continue;
    if (a.chunk == b.chunk && (a.kind == PD_B || b.kind == PD_B)) continue; /* weight gradients stay in order */
    list->at[i] = b;
    list->at[i + 1] = a;
    swapped++;
  }
  return swapped;
}

/* I and W next to each other are B, and B is both. */
static int join_and_split(Random *random, pd_action_list *ranks, int pp, int tries) {
  int changed = 0;
  for (int k = 0; k < tries; k++) {
    pd_action_list *list = &ranks[draw(random, 0, pp - 1)];
    int64_t i = draw(random, 0, list->count - 2);
    pd_action a = list->at[i], b = list->at[i + 1];
    if (a.kind == PD_I && b.kind == PD_W && a.chunk == b.chunk && a.microbatch == b.microbatch) {
      list->at[i].kind = PD_B;
      remove_at(list, i + 1);
      changed++;
    }
  }
  return changed;
}

Test(reorderings, that_are_valid_are_accepted, .timeout = 60) {
  Random random = {31};
  int swapped = 0, changed = 0;
  for (const char *const *name = schedule_names(); *name; name++) {
    if (!kind_named(*name)->split) continue;
    for (int pp = 2; pp <= 6; pp += 2)
      for (int round = 0; round < 20; round++) {
        Arena *arena = arena_new();
        int v = chunks_for(arena, kind_named(*name), pp, 2, 2 * pp);
        pd_pipeline good = make_with_messages(arena, kind_named(*name), pp, v, 2 * pp, true);
        pd_action_list *ranks;
        pd_pipeline other = copy_of(arena, &good, &ranks);
        swapped += swap_weights(&random, ranks, pp, 60);
        changed += join_and_split(&random, ranks, pp, 30);
        Certificate c = schedule_certify(arena, &other);
        cr_assert(accepted(c), "%s p %d, round %d: %s", *name, pp, round, c.why);
        ScheduleTiming timing = play(arena, &other, 1, 1, 1, 0);
        cr_assert_geq(timing.beta, timing.bound);
        arena_free(arena);
      }
  }
  cr_assert(swapped > 500 && changed > 100, "%d swapped, %d changed", swapped, changed);
}

/* Every backward split where it stands. */
Test(reorderings, a_split_backward_is_as_good_as_a_whole_one) {
  static const char *const names[] = {"1f1b", "interleaved", "1f1b-v", "hanayo", "chimera"};
  for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
    Arena *arena = arena_new();
    int v = chunks_for(arena, kind_named(names[k]), 4, 2, 8);
    pd_pipeline pipeline = make(arena, kind_named(names[k]), 4, v, 8);
    double whole = play(arena, &pipeline, 3, 5, 2, 0).makespan;
    pd_action_list *ranks = ARENA_ARRAY(arena, pd_action_list, 4);
    for (int rank = 0; rank < 4; rank++) {
      const pd_action_list *list = &pipeline.ranks[rank];
      actions_reserve(arena, &ranks[rank], 2 * list->count);
      for (int64_t i = 0; i < list->count; i++) {
        pd_action a = list->at[i];
        action_put(&ranks[rank], a.kind == PD_B ? PD_I : a.kind, a.chunk, a.microbatch);
        if (a.kind == PD_B) action_put(&ranks[rank], PD_W, a.chunk, a.microbatch);
      }
    }
    pipeline.ranks = ranks;
    pipeline.split = true;
    cr_assert_leq(play(arena, &pipeline, 3, 5, 2, 0).makespan, whole);
    schedule_insert_communication(arena, &pipeline, all_true(arena, pipeline.chunk_count), true);
    Certificate c = schedule_certify(arena, &pipeline);
    cr_assert(accepted(c), "%s: %s", names[k], c.why);
    arena_free(arena);
  }
}
