/* Chooses a schedule. First the kinds, all of them for every allowed number of chunks, except where the bound alone
 * shows that one cannot win. Then, as long as something could still win, orders of the planner's own: tried on few
 * micro-batches, the best of them on all. The effort of that search is counted in actions played, not in seconds, so
 * that the result does not depend on the machine. Each trial has an arena of its own; only the best one's is kept. */
#include "pipeline/planner.h"

#include <math.h>
#include <string.h>

#include "pipeline/orders.h"

enum { MOST_CHUNKS = 4, SEARCH_ACTIONS = 2000000, FINAL_ACTIONS = 1000000, FINALISTS = 3 };

/* An order of the planner's own. */
typedef enum Way { ALONG_TABLE, PLAYED_LOOP, PLAYED_V } Way;
typedef struct Recipe {
  Way way;
  int chunks;
  int64_t *ahead, *delay;          /* along a table, per rank */
  double times_ahead, times_delay; /* what they were made from; NAN once they were changed one by one */
  OrderPolicy policy;              /* played */
  double room;                     /* played: activations for so many times pp micro-batches */
  double score;                    /* on few micro-batches */
} Recipe;

typedef struct Trial { /* something played, and its judgement */
  Arena *arena;
  pd_pipeline pipeline;
  ScheduleTiming timing;
  double score, held;
} Trial;

typedef struct Note { /* what is known of a kind */
  const char *name;
  int chunks;             /* of the best trial; 0: none */
  double score, at_least; /* at_least: it was not played, its bound is this */
  const char *refusal, *misfit;
} Note;

typedef struct Planner {
  Arena *arena;
  const PlannerInput *input;
  int least_chunks, most_chunks;
  bool any;
  Trial best;
  const char *kind, *text;
  int chunks;
  double floor; /* no order of any allowed shape takes less */
  int64_t left; /* actions that the search may still play */
  Note *notes;  /* one for each kind, in the order in which they were tried */
  int note_count;
  Recipe finalists[FINALISTS];
  int finalist_count;
} Planner;

/* ---- costs, memory, judgement ---- */

/* Costs of the chunks of a shape; false if the model has too few pieces. */
static bool costs_of(Arena *arena, const PlannerInput *input, const pd_pipeline *shape, ScheduleCosts *costs) {
  int count = shape->chunk_count, layers = pd_copy_chunks(shape), chunks = layers / shape->pp;
  double *all[3];
  for (int k = 0; k < 3; k++) all[k] = ARENA_ARRAY(arena, double, count);
  *costs = (ScheduleCosts){all[0], all[1], all[2], input->link};
  const double *shares[] = {input->f, input->i, input->w};
  if (input->cut && !input->cut(input->context, chunks, all[0], all[1], all[2])) return false;
  for (int k = 0; k < 3; k++)
    for (int c = 0; c < count; c++) {
      if (!input->cut)
        all[k][c] = shares[k][shape->rank_of[c]] / chunks;
      else if (c >= layers)
        all[k][c] = all[k][c - layers];
    }
  return true;
}

static double activation_of(const PlannerInput *input, int rank) {
  return input->activation ? input->activation[rank] : 1;
}
static double fixed_of(const PlannerInput *input, int rank) {
  return input->fixed ? input->fixed[rank] : 0;
}
static int chunks_a_rank(const pd_pipeline *pipeline) {
  return pd_copy_chunks(pipeline) / pipeline->pp;
}

/* NULL if no rank holds more than memory has room for, else which one does. */
static const char *find_overflow(Arena *arena, const PlannerInput *input, const pd_pipeline *pipeline) {
  int copies = pipeline->chunk_count / pd_copy_chunks(pipeline);
  for (int rank = 0; rank < pipeline->pp && input->memory > 0; rank++) {
    double held = (double)schedule_held(pipeline, rank) / chunks_a_rank(pipeline);
    double fixed = fixed_of(input, rank) * copies, needs = fixed + activation_of(input, rank) * held;
    if (needs > input->memory * (1 + 1e-12))
      return input->activation || input->fixed
                 ? arena_printf(arena, "rank %d needs %.15g for %g micro-batches, and has %.15g", rank, needs, held,
                                input->memory)
                 : arena_printf(arena, "rank %d holds %g micro-batches, and may hold %g", rank, held, input->memory);
  }
  return NULL;
}

/* NULL if the pipeline fits into memory, else why not. */
static const char *find_misfit(Arena *arena, const PlannerInput *input, const pd_pipeline *pipeline) {
  const char *overflow = find_overflow(arena, input, pipeline), *why = NULL;
  if (overflow || !input->fits || input->fits(input->context, pipeline, &why)) return overflow;
  return why ? why : "it does not fit into memory";
}

static double score_of(const PlannerInput *input, const ScheduleTiming *timing) {
  return input->barrier ? timing->makespan : timing->makespan - timing->beta + timing->sigma;
}

/* The least score that any order of a shape can have. */
static double least_score(Arena *arena, const PlannerInput *input, const pd_pipeline *shape,
                          const ScheduleCosts *costs) {
  double busiest, bound = schedule_bound(arena, shape, costs, &busiest);
  return input->barrier ? busiest + bound : busiest;
}

/* Plays the trial's pipeline. False if it deadlocks. */
static bool judge(const PlannerInput *input, Trial *trial) {
  ScheduleCosts costs;
  const char *why;
  if (!costs_of(trial->arena, input, &trial->pipeline, &costs)) return false;
  if (!schedule_simulate(trial->arena, &trial->pipeline, &costs, &trial->timing, &why)) return false;
  trial->score = score_of(input, &trial->timing);
  trial->held = 0;
  for (int rank = 0; rank < input->pp; rank++) {
    double held = (double)schedule_held(&trial->pipeline, rank) / chunks_a_rank(&trial->pipeline);
    if (held > trial->held) trial->held = held;
  }
  return true;
}

/* Clearly less: not only by rounding. */
static bool less(double a, double b) {
  return a < b - 1e-12 * fabs(b);
}

/* By score, then by the makespan, then by memory; the earlier of equals. */
static bool is_better(const Trial *trial, const Trial *than) {
  if (less(trial->score, than->score) || less(than->score, trial->score)) return trial->score < than->score;
  double a = trial->timing.makespan, b = than->timing.makespan;
  if (less(a, b) || less(b, a)) return a < b;
  return trial->held < than->held;
}

/* Keeps the trial if it is the best so far and fits; else frees it. `misfit`, if not NULL, gets the reason. */
static void consider(Planner *planner, Trial *trial, const char *kind, const char *text, const char **misfit) {
  if (!planner->any || is_better(trial, &planner->best)) {
    const char *why = find_misfit(planner->arena, planner->input, &trial->pipeline);
    if (misfit && why) *misfit = why;
    if (!why) {
      if (planner->any) arena_free(planner->best.arena);
      planner->best = *trial;
      planner->any = true;
      planner->kind = kind;
      planner->text = arena_strdup(planner->arena, text);
      planner->chunks = chunks_a_rank(&trial->pipeline);
      return;
    }
  }
  arena_free(trial->arena);
}

/* ---- kinds ---- */

static const char *chunks_text(Arena *arena, int chunks) {
  return arena_printf(arena, "%d chunk%s", chunks, chunks == 1 ? "" : "s");
}

static Note *note_of(Planner *planner, const char *name) {
  for (int k = 0; k < planner->note_count; k++)
    if (strcmp(planner->notes[k].name, name) == 0) return &planner->notes[k];
  planner->notes[planner->note_count] = (Note){.name = name, .score = INFINITY, .at_least = INFINITY};
  return &planner->notes[planner->note_count++];
}

static void try_kind(Planner *planner, const ScheduleKind *kind, int chunks) {
  const PlannerInput *input = planner->input;
  Note *note = note_of(planner, kind->name);
  ScheduleRequest request = {input->pp, chunks, input->microbatches};
  if (kind->step || (kind->copies > 1 && !input->two_copies)) {
    note->refusal = arena_printf(planner->arena, "%s: it %s", kind->name, schedule_unasked(kind));
    return;
  }
  const char *refusal = kind->refuse ? kind->refuse(planner->arena, &request) : NULL;
  if (refusal) {
    if (!note->refusal) note->refusal = refusal;
    return;
  }
  Trial trial = {.arena = arena_new()};
  ScheduleCosts costs;
  trial.pipeline = schedule_shape(trial.arena, kind, &request);
  bool cut = costs_of(trial.arena, input, &trial.pipeline, &costs);
  double at_least = cut ? least_score(trial.arena, input, &trial.pipeline, &costs) : INFINITY;
  if (!cut || (planner->any && !less(at_least, planner->best.score))) {
    if (!cut && !note->refusal)
      note->refusal = arena_printf(planner->arena, "%s: the model has too few pieces for %s a rank", kind->name,
                                   chunks_text(planner->arena, chunks));
    if (cut && at_least < note->at_least) note->at_least = at_least;
    arena_free(trial.arena);
    return;
  }
  trial.pipeline = schedule_make(trial.arena, kind, &request);
  const char *misfit = find_overflow(planner->arena, input, &trial.pipeline);
  if (misfit) note->misfit = misfit;
  if (misfit || !judge(input, &trial)) {
    arena_free(trial.arena);
    return;
  }
  double score = trial.score;
  consider(planner, &trial, kind->name,
           arena_printf(planner->arena, "%s, %s", kind->name, chunks_text(planner->arena, chunks)), &misfit);
  if (misfit)
    note->misfit = misfit;
  else if (score < note->score)
    note->score = score, note->chunks = chunks;
}

static void try_kinds(Planner *planner) {
  /* first the kind that most often meets the bound: the others are then soon out. With one chunk it is ZB-H1. */
  const ScheduleKind *first = schedule_find("interleaved-zb"), *single = schedule_find("zb-h1");
  for (int chunks = planner->most_chunks; chunks >= planner->least_chunks; chunks--)
    try_kind(planner, chunks == 1 ? single : first, chunks);
  for (int chunks = planner->most_chunks; chunks >= planner->least_chunks; chunks--)
    for (const char *const *name = schedule_names(); *name; name++) {
      const ScheduleKind *kind = schedule_find(*name);
      if (kind != first && (kind != single || chunks != 1)) try_kind(planner, kind, chunks);
    }
}

/* ---- orders of its own ---- */

static pd_pipeline shape_of(Arena *arena, const Recipe *recipe, const PlannerInput *input, int64_t microbatches) {
  const ScheduleKind *like = schedule_find(recipe->way == PLAYED_V ? "zb-v" : "interleaved-zb");
  return schedule_shape(arena, like, &(ScheduleRequest){input->pp, recipe->chunks, microbatches});
}

/* Chunks' activations that memory has room for on a rank; many if there is no limit. */
static double room_on(const PlannerInput *input, int rank, int chunks) {
  if (!(input->memory > 0)) return HUGE_VAL;
  return floor((input->memory - fixed_of(input, rank)) / activation_of(input, rank) * chunks * (1 + 1e-12));
}

/* False if the order cannot be made, or deadlocks. */
static bool cook(Planner *planner, const Recipe *recipe, int64_t microbatches, Trial *trial) {
  const PlannerInput *input = planner->input;
  *trial = (Trial){.arena = arena_new()};
  trial->pipeline = shape_of(trial->arena, recipe, input, microbatches);
  pd_action_list *ranks = ARENA_ARRAY(trial->arena, pd_action_list, input->pp);
  bool made = true;
  if (recipe->way == ALONG_TABLE) {
    ScheduleRequest request = {input->pp, recipe->chunks, microbatches};
    order_along_table(trial->arena, &request, recipe->ahead, recipe->delay, ranks);
  } else {
    ScheduleCosts costs;
    int64_t *cap = ARENA_ARRAY(trial->arena, int64_t, input->pp);
    for (int rank = 0; rank < input->pp; rank++) {
      double room = fmin(room_on(input, rank, recipe->chunks), ceil(recipe->room * input->pp * recipe->chunks));
      cap[rank] = (int64_t)fmax(fmin(room, 1e9), recipe->chunks);
    }
    made = costs_of(trial->arena, input, &trial->pipeline, &costs) &&
           order_by_playing(trial->arena, &trial->pipeline, &costs, cap, recipe->policy, ranks);
  }
  trial->pipeline.ranks = ranks;
  if (made && judge(input, trial)) return true;
  arena_free(trial->arena);
  return false;
}

static int64_t actions_of(const Planner *planner, const Recipe *recipe, int64_t microbatches) {
  return 3 * microbatches * recipe->chunks * planner->input->pp;
}

/* So few micro-batches that the search can try many orders, and so many that the middle of the run counts; with the
 * same remainder, so that groups are alike. */
static int64_t few(const Planner *planner) {
  int64_t p = planner->input->pp, m = planner->input->microbatches;
  return m <= 5 * p ? m : 4 * p + m % p;
}

/* Its score on few micro-batches; INFINITY if that is not below `limit`, it does not work or fit, or there is no effort
 * left. */
static double taste(Planner *planner, Recipe *recipe, double limit) {
  Trial trial;
  int64_t m = few(planner);
  recipe->score = INFINITY;
  planner->left -= actions_of(planner, recipe, m);
  if (planner->left < 0 || !cook(planner, recipe, m, &trial)) return recipe->score;
  if ((isinf(limit) || less(trial.score, limit)) && !find_misfit(trial.arena, planner->input, &trial.pipeline))
    recipe->score = trial.score;
  arena_free(trial.arena);
  return recipe->score;
}

/* A recipe must be better than this to be kept. */
static double entry(const Planner *planner) {
  return planner->finalist_count < FINALISTS ? INFINITY : planner->finalists[FINALISTS - 1].score;
}

/* Keeps the best few, best first. */
static void enter(Planner *planner, const Recipe *recipe) {
  int at = planner->finalist_count;
  while (at > 0 && less(recipe->score, planner->finalists[at - 1].score)) at--;
  if (at == FINALISTS || isinf(recipe->score)) return;
  if (planner->finalist_count < FINALISTS) planner->finalist_count++;
  for (int k = planner->finalist_count - 1; k > at; k--) planner->finalists[k] = planner->finalists[k - 1];
  planner->finalists[at] = *recipe;
}

static bool shape_can_win(Planner *planner, const Recipe *recipe) {
  Arena *arena = arena_new();
  pd_pipeline shape = shape_of(arena, recipe, planner->input, planner->input->microbatches);
  ScheduleCosts costs;
  bool can = costs_of(arena, planner->input, &shape, &costs) &&
             (!planner->any || less(least_score(arena, planner->input, &shape, &costs), planner->best.score));
  arena_free(arena);
  return can;
}

static int64_t largest_group(int64_t p, int64_t m) {
  int64_t groups = m < p ? 1 : m / p;
  return (m + groups - 1) / groups;
}

/* Forwards ahead and delays in proportion to how far a rank is from the last and from the first. */
static void set_depths(Planner *planner, Recipe *recipe) {
  const PlannerInput *input = planner->input;
  int64_t p = input->pp, v = recipe->chunks, group = largest_group(p, input->microbatches);
  recipe->ahead = ARENA_ARRAY(planner->arena, int64_t, p);
  recipe->delay = ARENA_ARRAY(planner->arena, int64_t, p);
  for (int rank = 0; rank < p; rank++) {
    double room = room_on(input, rank, (int)v) - 1; /* one more is held during its own backward */
    double ahead = ceil(recipe->times_ahead * (double)(p - 1 - rank)) + (double)((v - 1) * group);
    double delay = ceil(recipe->times_delay * rank);
    recipe->ahead[rank] = (int64_t)fmax(fmin(ahead, room), 0);
    recipe->delay[rank] = (int64_t)fmax(fmin(delay, room - (double)recipe->ahead[rank]), 0);
  }
}

static void search_tables(Planner *planner, int chunks) {
  static const double aheads[] = {1, 2, 1.5, 3, 1.25}, delays[] = {1, 2, 0, 1.5, 0.5, 3};
  Recipe recipe = {.way = ALONG_TABLE, .chunks = chunks};
  if (!shape_can_win(planner, &recipe)) return;
  for (size_t a = 0; a < sizeof aheads / sizeof aheads[0]; a++)
    for (size_t d = 0; d < sizeof delays / sizeof delays[0]; d++) {
      recipe.times_ahead = aheads[a];
      recipe.times_delay = delays[d];
      if (planner->left < actions_of(planner, &recipe, few(planner))) return;
      set_depths(planner, &recipe);
      taste(planner, &recipe, entry(planner));
      enter(planner, &recipe);
    }
}

static void search_plays(Planner *planner, Way way, int chunks) {
  static const double rooms[] = {1, 2, 1.5, 0.75, 0.5}, patience[] = {1, 0, 0.5};
  Recipe recipe = {.way = way, .chunks = chunks};
  if (!shape_can_win(planner, &recipe)) return;
  for (size_t r = 0; r < sizeof rooms / sizeof rooms[0]; r++)
    for (size_t k = 0; k < 12; k++) {
      recipe.room = rooms[r];
      recipe.policy = (OrderPolicy){k % 2 == 0, k / 2 % 2 == 0, patience[k / 4]};
      if (planner->left < actions_of(planner, &recipe, few(planner))) return;
      taste(planner, &recipe, entry(planner));
      enter(planner, &recipe);
    }
}

/* Changes a table's depths one rank at a time as long as that helps. */
static void refine(Planner *planner, const Recipe *from) {
  Recipe recipe = *from;
  int64_t p = planner->input->pp;
  bool changed = false;
  for (bool better = true; better;) {
    better = false;
    for (int64_t k = 0; k < 4 * p; k++) {
      if (planner->left < actions_of(planner, &recipe, few(planner))) break;
      Recipe other = recipe;
      other.ahead = ARENA_ARRAY(planner->arena, int64_t, p);
      other.delay = ARENA_ARRAY(planner->arena, int64_t, p);
      memcpy(other.ahead, recipe.ahead, sizeof(int64_t) * (size_t)p);
      memcpy(other.delay, recipe.delay, sizeof(int64_t) * (size_t)p);
      int64_t *depth = k % 4 < 2 ? &other.ahead[k / 4] : &other.delay[k / 4];
      *depth += k % 2 == 0 ? 1 : -1;
      if (*depth < 0 || isinf(taste(planner, &other, recipe.score))) continue;
      recipe = other;
      better = changed = true;
    }
  }
  recipe.times_ahead = recipe.times_delay = NAN;
  if (changed) enter(planner, &recipe);
}

static const char *recipe_text(Arena *arena, const Recipe *recipe) {
  if (recipe->way == ALONG_TABLE) {
    if (isnan(recipe->times_ahead))
      return arena_printf(arena,
                          "own order: interleaved, %s, forwards ahead and weight gradients put off as solved per "
                          "rank",
                          chunks_text(arena, recipe->chunks));
    return arena_printf(arena, "own order: interleaved, %s, forwards ahead x %g, weight gradients put off x %g",
                        chunks_text(arena, recipe->chunks), recipe->times_ahead, recipe->times_delay);
  }
  return arena_printf(arena, "own order: played in a %s, %s", recipe->way == PLAYED_V ? "V" : "loop",
                      chunks_text(arena, recipe->chunks));
}

static bool can_improve(const Planner *planner) {
  return !planner->any || less(planner->floor, planner->best.score);
}

static void search(Planner *planner) {
  planner->left = SEARCH_ACTIONS;
  for (int chunks = planner->most_chunks; chunks >= planner->least_chunks; chunks--) {
    /* each number of chunks and each way gets an equal part of the effort */
    int64_t part = SEARCH_ACTIONS / (2 * (planner->most_chunks - planner->least_chunks + 1) + 2), kept = planner->left;
    planner->left = part;
    search_tables(planner, chunks);
    kept -= part - planner->left;
    planner->left = part;
    search_plays(planner, PLAYED_LOOP, chunks);
    kept -= part - planner->left;
    planner->left = kept;
    if (chunks == 2) search_plays(planner, PLAYED_V, chunks);
  }
  for (int k = 0; k < planner->finalist_count; k++)
    if (planner->finalists[k].way == ALONG_TABLE) {
      refine(planner, &planner->finalists[k]);
      break;
    }
  planner->left = FINAL_ACTIONS;
  for (int k = 0; k < planner->finalist_count && can_improve(planner); k++) {
    Trial trial;
    if (k > 0 && planner->left <= 0) break;
    planner->left -= actions_of(planner, &planner->finalists[k], planner->input->microbatches);
    if (cook(planner, &planner->finalists[k], planner->input->microbatches, &trial))
      consider(planner, &trial, "auto", recipe_text(planner->arena, &planner->finalists[k]), NULL);
  }
}

/* ---- the choice ---- */

static double floor_of_copies(const PlannerInput *input) {
  if (!input->two_copies || input->pp % 2 != 0) return INFINITY;
  Arena *arena = arena_new();
  pd_pipeline shape =
      schedule_shape(arena, schedule_find("dualpipe"), &(ScheduleRequest){input->pp, 1, input->microbatches});
  ScheduleCosts costs;
  double floor = costs_of(arena, input, &shape, &costs) ? least_score(arena, input, &shape, &costs) : INFINITY;
  arena_free(arena);
  return floor;
}

/* What no order in a loop, in a V or with two copies can beat, for any allowed number of chunks. */
static double floor_of(Planner *planner) {
  double floor = planner->least_chunks == 1 ? floor_of_copies(planner->input) : INFINITY;
  for (int chunks = planner->least_chunks; chunks <= planner->most_chunks; chunks++)
    for (Way way = PLAYED_LOOP; way <= PLAYED_V; way++) {
      if (way == PLAYED_V && chunks != 2) continue;
      Arena *arena = arena_new();
      Recipe recipe = {.way = way, .chunks = chunks};
      pd_pipeline shape = shape_of(arena, &recipe, planner->input, planner->input->microbatches);
      ScheduleCosts costs;
      if (costs_of(arena, planner->input, &shape, &costs))
        floor = fmin(floor, least_score(arena, planner->input, &shape, &costs));
      arena_free(arena);
    }
  return floor;
}

static const char *rejection(const Planner *planner, const Note *note) {
  Arena *arena = planner->arena;
  double best = planner->any ? planner->best.score : 0;
  if (!isinf(note->score) && planner->any && !less(best, note->score))
    return arena_printf(arena, "%s: with %s it takes as long", note->name, chunks_text(arena, note->chunks));
  if (!isinf(note->score))
    return arena_printf(arena, "%s: with %s it takes %.9g, %.9g more", note->name, chunks_text(arena, note->chunks),
                        note->score, note->score - best);
  if (note->misfit) return arena_printf(arena, "%s: %s", note->name, note->misfit);
  if (!isinf(note->at_least))
    return arena_printf(arena, "%s: it cannot take less than %.9g", note->name, note->at_least);
  return note->refusal ? note->refusal : arena_printf(arena, "%s: it has no order for these sizes", note->name);
}

/* Moves the best trial's lists and times into the caller's arena. */
static void hand_over(Planner *planner, PlannerChoice *choice) {
  Arena *arena = planner->arena;
  const Trial *best = &planner->best;
  int pp = best->pipeline.pp;
  int64_t total = 0;
  choice->pipeline = best->pipeline;
  choice->timing = best->timing;
  int *rank_of = ARENA_ARRAY(arena, int, best->pipeline.chunk_count);
  memcpy(rank_of, best->pipeline.rank_of, sizeof(int) * (size_t)best->pipeline.chunk_count);
  pd_action_list *ranks = ARENA_ARRAY(arena, pd_action_list, pp);
  for (int rank = 0; rank < pp; rank++) {
    const pd_action_list *list = &best->pipeline.ranks[rank];
    ranks[rank] = (pd_action_list){ARENA_ARRAY(arena, pd_action, list->count), list->count};
    memcpy(ranks[rank].at, list->at, sizeof(pd_action) * (size_t)list->count);
    total += list->count;
  }
  choice->pipeline.rank_of = rank_of;
  choice->pipeline.ranks = ranks;
  const struct {
    double **to;
    const double *from;
    int64_t count;
  } times[] = {{&choice->timing.idle, best->timing.idle, pp},
               {&choice->timing.start, best->timing.start, total},
               {&choice->timing.end, best->timing.end, total}};
  for (size_t k = 0; k < sizeof times / sizeof times[0]; k++) {
    *times[k].to = ARENA_ARRAY(arena, double, times[k].count);
    memcpy(*times[k].to, times[k].from, sizeof(double) * (size_t)times[k].count);
  }
  arena_free(best->arena);
}

static void explain(Planner *planner, PlannerChoice *choice) {
  Arena *arena = planner->arena;
  choice->rejected = ARENA_ARRAY(arena, const char *, planner->note_count + 1);
  for (int k = 0; k < planner->note_count; k++) {
    const Note *note = &planner->notes[k];
    if (planner->any && strcmp(note->name, planner->kind) == 0) continue;
    choice->rejected[choice->rejected_count++] = rejection(planner, note);
  }
  if (!planner->any) {
    choice->why = planner->input->memory > 0
                      ? arena_printf(arena, "no schedule fits into %.15g on every rank", planner->input->memory)
                      : "no schedule exists for these sizes";
    return;
  }
  const char *measure = planner->input->barrier ? "one step" : "a rank, from its first to its last action,";
  const char *gap = can_improve(planner) ? arena_printf(arena, "%.9g more than the least that is possible",
                                                        planner->best.score - planner->floor)
                                         : "the least that is possible";
  choice->why = arena_printf(arena, "%s: %s takes %.9g, %s, with at most %g micro-batches held on a rank",
                             planner->text, measure, planner->best.score, gap, planner->best.held);
}

bool planner_choose(Arena *arena, const PlannerInput *input, PlannerChoice *choice) {
  Planner planner = {.arena = arena, .input = input};
  int most = input->most_chunks > 0 ? input->most_chunks : MOST_CHUNKS;
  planner.least_chunks = input->chunks > 0 ? input->chunks : 1;
  planner.most_chunks = input->chunks > 0 ? input->chunks : most;
  *choice = (PlannerChoice){0};
  if (input->pp < 1 || input->microbatches < 1 || input->microbatches > INT32_MAX / 8) {
    choice->why = arena_printf(arena, "no schedule has %d ranks and %lld micro-batches", input->pp,
                               (long long)input->microbatches);
    return false;
  }
  int names = 0;
  while (schedule_names()[names]) names++;
  planner.notes = ARENA_ARRAY(arena, Note, names);
  planner.floor = floor_of(&planner);
  try_kinds(&planner);
  if (can_improve(&planner)) search(&planner);
  if (planner.any) {
    choice->kind = planner.kind;
    choice->text = planner.text;
    choice->chunks = planner.chunks;
    choice->held = planner.best.held;
  }
  explain(&planner, choice);
  if (planner.any) hand_over(&planner, choice);
  return planner.any;
}
