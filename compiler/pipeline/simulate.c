/* Plays a pipeline: every rank does its list in order, each action as soon as what it depends on is there. A list with
 * messages is played as the runtime runs it: SEND and RECV take no time and wait for nobody, a message crosses the link
 * once its sender and its receiver have both come to it, and the computation that reads it waits. In a compute-only
 * list a message leaves with the end of what makes it. Assumes nothing about the lists: a wrong one is reported, never
 * followed out of bounds. */
#include "pipeline/pipeline.h"

/* When things were there, per (chunk, micro-batch); below 0: not yet. */
enum { DONE_F, DONE_I, DONE_W, SENT_F, SENT_B, AWAITED_F, AWAITED_B, EVENT_COUNT };

typedef struct Play {
  Arena *arena;
  const pd_pipeline *pipeline;
  const ScheduleCosts *costs;
  bool messages;       /* the lists contain some */
  bool *gradient_sent; /* per chunk: some SEND_B of it exists */
  double *at[EVENT_COUNT];
} Play;

static bool is_message(pd_action_kind kind) {
  return kind == PD_SEND_F || kind == PD_RECV_F || kind == PD_SEND_B || kind == PD_RECV_B;
}

static size_t slot(const Play *play, int chunk, int64_t microbatch) {
  return (size_t)chunk * (size_t)play->pipeline->microbatches + (size_t)microbatch;
}

static const char *name_of(Arena *arena, pd_action action) {
  char *text = arena_alloc(arena, 48);
  pd_action_text(action, text);
  return text;
}

/* What an action waits for: the time it is there (below 0: not yet), and the action that makes it. */
typedef struct Need {
  double time;
  pd_action maker;
} Need;

static Need need(const Play *play, int event, pd_action_kind maker, int chunk, int64_t microbatch) {
  return (Need){play->at[event][slot(play, chunk, microbatch)], {maker, (int32_t)chunk, (int32_t)microbatch}};
}

static Need over_link(const Play *play, Need direct) {
  if (direct.time >= 0) direct.time += play->costs->link;
  return direct;
}

enum { MAX_NEEDS = 3 };

/* Writes what `action` needs before it can start; returns how many. */
static int needs_of(const Play *play, pd_action action, Need *out) {
  const pd_pipeline *pipeline = play->pipeline;
  const int *rank_of = pipeline->rank_of;
  int chunk = action.chunk, count = 0;
  int64_t mb = action.microbatch;
  pd_action_kind backward = pipeline->split ? PD_I : PD_B;
  switch (action.kind) {
  case PD_F:
    if (chunk == 0) break;
    if (rank_of[chunk - 1] == rank_of[chunk]) {
      out[count++] = need(play, DONE_F, PD_F, chunk - 1, mb);
    } else if (play->messages) {
      out[count++] = over_link(play, need(play, AWAITED_F, PD_RECV_F, chunk, mb));
      out[count++] = over_link(play, need(play, SENT_F, PD_SEND_F, chunk - 1, mb));
    } else {
      out[count++] = over_link(play, need(play, DONE_F, PD_F, chunk - 1, mb));
    }
    break;
  case PD_B:
  case PD_I:
    out[count++] = need(play, DONE_F, PD_F, chunk, mb);
    if (chunk == pipeline->chunk_count - 1) break;
    if (rank_of[chunk + 1] == rank_of[chunk]) {
      out[count++] = need(play, DONE_I, backward, chunk + 1, mb);
    } else if (!play->messages) {
      out[count++] = over_link(play, need(play, DONE_I, backward, chunk + 1, mb));
    } else if (play->gradient_sent[chunk + 1]) {
      out[count++] = over_link(play, need(play, AWAITED_B, PD_RECV_B, chunk, mb));
      out[count++] = over_link(play, need(play, SENT_B, PD_SEND_B, chunk + 1, mb));
    }
    break;
  case PD_W:
    out[count++] = need(play, DONE_I, PD_I, chunk, mb);
    break;
  case PD_SEND_F:
    out[count++] = need(play, DONE_F, PD_F, chunk, mb);
    break;
  case PD_SEND_B:
    out[count++] = need(play, DONE_I, backward, chunk, mb);
    break;
  default:
    break;
  }
  return count;
}

static double cost_of(const Play *play, pd_action action) {
  const ScheduleCosts *costs = play->costs;
  switch (action.kind) {
  case PD_F:
    return costs->f[action.chunk];
  case PD_B:
    return costs->i[action.chunk] + costs->w[action.chunk];
  case PD_I:
    return costs->i[action.chunk];
  case PD_W:
    return costs->w[action.chunk];
  default:
    return 0;
  }
}

static void record(const Play *play, pd_action action, double end) {
  if (action.kind == PD_REDUCE_GRAD) return;
  size_t at = slot(play, action.chunk, action.microbatch);
  switch (action.kind) {
  case PD_F:
    play->at[DONE_F][at] = end;
    break;
  case PD_B:
    play->at[DONE_I][at] = play->at[DONE_W][at] = end;
    break;
  case PD_I:
    play->at[DONE_I][at] = end;
    break;
  case PD_W:
    play->at[DONE_W][at] = end;
    break;
  case PD_SEND_F:
    play->at[SENT_F][at] = end;
    break;
  case PD_SEND_B:
    play->at[SENT_B][at] = end;
    break;
  case PD_RECV_F:
    play->at[AWAITED_F][at] = end;
    break;
  case PD_RECV_B:
    play->at[AWAITED_B][at] = end;
    break;
  default:
    break;
  }
}

static const char *find_nonsense(Arena *arena, const pd_pipeline *pipeline) {
  for (int chunk = 0; chunk < pipeline->chunk_count; chunk++)
    if (pipeline->rank_of[chunk] < 0 || pipeline->rank_of[chunk] >= pipeline->pp)
      return arena_printf(arena, "chunk %d lies on rank %d of %d", chunk, pipeline->rank_of[chunk], pipeline->pp);
  for (int rank = 0; rank < pipeline->pp; rank++)
    for (int64_t i = 0; i < pipeline->ranks[rank].count; i++) {
      pd_action action = pipeline->ranks[rank].at[i];
      bool whole = action.kind == PD_REDUCE_GRAD;
      if (action.kind < 0 || action.kind >= PD_ACTION_KINDS || action.chunk < 0 ||
          action.chunk >= pipeline->chunk_count ||
          (!whole && (action.microbatch < 0 || action.microbatch >= pipeline->microbatches)))
        return arena_printf(arena, "action %lld of rank %d is none of this pipeline: kind %d, chunk %d, micro-batch %d",
                            (long long)i, rank, (int)action.kind, action.chunk, action.microbatch);
    }
  return NULL;
}

/* Runs all lists as far as they go; cursor[rank] is left where each stops. */
static void play_lists(Play *play, ScheduleTiming *timing, const int64_t *first_of, int64_t *cursor) {
  const pd_pipeline *pipeline = play->pipeline;
  double *clock = ARENA_ARRAY(play->arena, double, pipeline->pp);
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < pipeline->pp; rank++) {
      const pd_action_list *list = &pipeline->ranks[rank];
      for (; cursor[rank] < list->count; cursor[rank]++, moved = true) {
        pd_action action = list->at[cursor[rank]];
        Need needs[MAX_NEEDS];
        int count = needs_of(play, action, needs);
        double begin = clock[rank];
        bool ready = true;
        for (int k = 0; k < count; k++) {
          if (needs[k].time < 0) ready = false;
          if (needs[k].time > begin) begin = needs[k].time;
        }
        if (!ready) break;
        timing->start[first_of[rank] + cursor[rank]] = begin;
        clock[rank] = begin + cost_of(play, action);
        timing->end[first_of[rank] + cursor[rank]] = clock[rank];
        record(play, action, clock[rank]);
      }
    }
  }
}

static const char *find_blocked(const Play *play, const int64_t *cursor) {
  const pd_pipeline *pipeline = play->pipeline;
  for (int rank = 0; rank < pipeline->pp; rank++) {
    if (cursor[rank] == pipeline->ranks[rank].count) continue;
    pd_action action = pipeline->ranks[rank].at[cursor[rank]];
    Need needs[MAX_NEEDS];
    int count = needs_of(play, action, needs);
    for (int k = 0; k < count; k++)
      if (needs[k].time < 0)
        return arena_printf(play->arena, "rank %d waits in %s (action %lld) for %s of rank %d, which never comes", rank,
                            name_of(play->arena, action), (long long)cursor[rank], name_of(play->arena, needs[k].maker),
                            pipeline->rank_of[needs[k].maker.chunk]);
  }
  return NULL;
}

static const char *find_missing(const Play *play) {
  const pd_pipeline *pipeline = play->pipeline;
  static const pd_action_kind kinds[] = {PD_F, PD_I, PD_W};
  for (int chunk = 0; chunk < pipeline->chunk_count; chunk++)
    for (int64_t mb = 0; mb < pipeline->microbatches; mb++)
      for (int event = DONE_F; event <= DONE_W; event++)
        if (play->at[event][slot(play, chunk, mb)] < 0) {
          pd_action_kind kind = event == DONE_F || pipeline->split ? kinds[event] : PD_B;
          pd_action action = {kind, (int32_t)chunk, (int32_t)mb};
          return arena_printf(play->arena, "%s is missing on rank %d", name_of(play->arena, action),
                              pipeline->rank_of[chunk]);
        }
  return NULL;
}

/* Beta and sigma are measured against the busiest rank. The bound: rank r cannot start before the forwards of all
 * chunks below its first one, and then has its work to do; with equal chunks dealt in a loop that is (pp - 1) F /
 * chunks. */
static void measure(const Play *play, const int64_t *first_of, ScheduleTiming *timing) {
  const pd_pipeline *pipeline = play->pipeline;
  double *busy = ARENA_ARRAY(play->arena, double, pipeline->pp), busiest = 0, longest = 0;
  timing->makespan = 0;
  for (int rank = 0; rank < pipeline->pp; rank++) {
    double begin = -1, end = 0;
    for (int64_t i = 0; i < pipeline->ranks[rank].count; i++) {
      double cost = cost_of(play, pipeline->ranks[rank].at[i]);
      busy[rank] += cost;
      if (cost <= 0) continue;
      if (begin < 0) begin = timing->start[first_of[rank] + i];
      end = timing->end[first_of[rank] + i];
    }
    if (end > timing->makespan) timing->makespan = end;
    if (busy[rank] > busiest) busiest = busy[rank];
    if (begin >= 0 && end - begin > longest) longest = end - begin;
  }
  for (int rank = 0; rank < pipeline->pp; rank++) timing->idle[rank] = timing->makespan - busy[rank];
  timing->beta = timing->makespan - busiest;
  timing->sigma = longest - busiest;
  timing->bound = 0;
  bool *seen = ARENA_ARRAY(play->arena, bool, pipeline->pp);
  double head = 0;
  for (int chunk = 0; chunk < pipeline->chunk_count; chunk++) {
    int rank = pipeline->rank_of[chunk];
    if (chunk > 0) {
      head += play->costs->f[chunk - 1];
      if (pipeline->rank_of[chunk - 1] != rank) head += play->costs->link;
    }
    if (!seen[rank] && head + busy[rank] - busiest > timing->bound) timing->bound = head + busy[rank] - busiest;
    seen[rank] = true;
  }
}

bool schedule_simulate(Arena *arena, const pd_pipeline *pipeline, const ScheduleCosts *costs, ScheduleTiming *timing,
                       const char **why) {
  *why = find_nonsense(arena, pipeline);
  if (*why) return false;
  Play play = {.arena = arena, .pipeline = pipeline, .costs = costs};
  play.gradient_sent = ARENA_ARRAY(arena, bool, pipeline->chunk_count);
  int64_t *first_of = ARENA_ARRAY(arena, int64_t, pipeline->pp + 1);
  for (int rank = 0; rank < pipeline->pp; rank++) {
    const pd_action_list *list = &pipeline->ranks[rank];
    first_of[rank + 1] = first_of[rank] + list->count;
    for (int64_t i = 0; i < list->count; i++) {
      play.messages |= is_message(list->at[i].kind);
      if (list->at[i].kind == PD_SEND_B) play.gradient_sent[list->at[i].chunk] = true;
    }
  }
  size_t slots = (size_t)pipeline->chunk_count * (size_t)pipeline->microbatches;
  for (int event = 0; event < EVENT_COUNT; event++) {
    play.at[event] = ARENA_ARRAY(arena, double, slots);
    for (size_t i = 0; i < slots; i++) play.at[event][i] = -1;
  }
  timing->idle = ARENA_ARRAY(arena, double, pipeline->pp);
  timing->start = ARENA_ARRAY(arena, double, first_of[pipeline->pp]);
  timing->end = ARENA_ARRAY(arena, double, first_of[pipeline->pp]);
  int64_t *cursor = ARENA_ARRAY(arena, int64_t, pipeline->pp);
  play_lists(&play, timing, first_of, cursor);
  *why = find_blocked(&play, cursor);
  if (!*why) *why = find_missing(&play);
  if (*why) return false;
  measure(&play, first_of, timing);
  return true;
}
