/* Plays a pipeline: every rank does its list in order, each action as soon as what it depends on is there. A list with
 * messages is played as the runtime runs it: SEND and RECV take no time and wait for nobody, a message crosses the link
 * once its sender and its receiver have both come to it, and the computation that reads it waits. In a compute-only
 * list a message leaves with the end of what makes it. A rank that waits is looked at again when something for it was
 * made, so the time is linear in the number of actions. Assumes nothing about the lists: a wrong one is reported, never
 * followed out of bounds. */
#include "pipeline/pipeline.h"

/* When things were there, per (chunk, micro-batch); below 0: not yet. */
enum { DONE_F, DONE_I, DONE_W, SENT_F, SENT_B, AWAITED_F, AWAITED_B, EVENT_COUNT };

typedef struct Chunk { /* what does not change during the play */
  int rank, before, after;
  int continues, continued; /* chunks of another copy: whose sums it goes on with, and which goes on with its */
  bool crosses_before, crosses_after; /* the neighbour is on another rank */
  bool gradient_comes;                /* some SEND_B of the chunk after it exists */
  int64_t first, end;                 /* its micro-batches */
  double cost[PD_ACTION_KINDS];
} Chunk;

typedef struct Rank { /* while it is played, and what it came to */
  int64_t cursor;     /* its next action */
  double clock;
  double busy, begin, finish; /* of computations that take time; begin is below 0 if there are none */
} Rank;

typedef struct Play {
  Arena *arena;
  const pd_pipeline *pipeline;
  double link;
  bool messages; /* the lists contain some */
  Chunk *chunks;
  Rank *ranks;
  int64_t *first_of; /* per rank: where its actions begin in start and end */
  int64_t missing;   /* of F, I and W of all (chunk, micro-batch) */
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
  if (direct.time >= 0) direct.time += play->link;
  return direct;
}

enum { MAX_NEEDS = 3 };

/* Writes what `action` needs before it can start; returns how many. */
static int needs_of(const Play *play, pd_action action, Need *out) {
  int chunk = action.chunk, count = 0;
  const Chunk *at = &play->chunks[chunk];
  int64_t mb = action.microbatch;
  pd_action_kind backward = play->pipeline->split ? PD_I : PD_B;
  switch (action.kind) {
  case PD_F:
    if (at->before == PD_NO_CHUNK) break;
    if (!at->crosses_before) {
      out[count++] = need(play, DONE_F, PD_F, at->before, mb);
    } else if (play->messages) {
      out[count++] = over_link(play, need(play, AWAITED_F, PD_RECV_F, chunk, mb));
      out[count++] = over_link(play, need(play, SENT_F, PD_SEND_F, at->before, mb));
    } else {
      out[count++] = over_link(play, need(play, DONE_F, PD_F, at->before, mb));
    }
    break;
  case PD_B:
  case PD_I:
    out[count++] = need(play, DONE_F, PD_F, chunk, mb);
    if (at->after == PD_NO_CHUNK) break;
    if (!at->crosses_after) {
      out[count++] = need(play, DONE_I, backward, at->after, mb);
    } else if (!play->messages) {
      out[count++] = over_link(play, need(play, DONE_I, backward, at->after, mb));
    } else if (at->gradient_comes) {
      out[count++] = over_link(play, need(play, AWAITED_B, PD_RECV_B, chunk, mb));
      out[count++] = over_link(play, need(play, SENT_B, PD_SEND_B, at->after, mb));
    }
    break;
  case PD_W:
    out[count++] = need(play, DONE_I, PD_I, chunk, mb);
    if (at->continues != PD_NO_CHUNK && mb == at->first)
      out[count++] = over_link(play, need(play, DONE_W, PD_W, at->continues, play->chunks[at->continues].end - 1));
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

/* When `action` can start, as far as what it needs is concerned; below 0: not yet. The same as needs_of says. */
static double ready_at(const Play *play, pd_action action) {
  const Chunk *chunk = &play->chunks[action.chunk];
  size_t here = slot(play, action.chunk, action.microbatch);
  double time, other;
  switch (action.kind) {
  case PD_F:
    if (chunk->before == PD_NO_CHUNK) return 0;
    if (play->messages && chunk->crosses_before) break;
    time = play->at[DONE_F][slot(play, chunk->before, action.microbatch)];
    return chunk->crosses_before && time >= 0 ? time + play->link : time;
  case PD_B:
  case PD_I:
    time = play->at[DONE_F][here];
    if (time < 0 || chunk->after == PD_NO_CHUNK) return time;
    if (play->messages && chunk->crosses_after) break;
    other = play->at[DONE_I][slot(play, chunk->after, action.microbatch)];
    if (other < 0) return other;
    if (chunk->crosses_after) other += play->link;
    return other > time ? other : time;
  case PD_W:
    if (chunk->continues != PD_NO_CHUNK && action.microbatch == chunk->first) break;
    return play->at[DONE_I][here];
  default:
    break;
  }
  Need needs[MAX_NEEDS];
  int count = needs_of(play, action, needs);
  time = 0;
  for (int k = 0; k < count; k++) {
    if (needs[k].time < 0) return -1;
    if (needs[k].time > time) time = needs[k].time;
  }
  return time;
}

static void note(Play *play, int event, size_t at, double end) {
  play->missing -= event <= DONE_W && play->at[event][at] < 0;
  play->at[event][at] = end;
}

/* Writes down what an action made; returns the chunk that may have waited for it, or PD_NO_CHUNK. */
static int record(Play *play, pd_action action, double end) {
  if (action.kind == PD_REDUCE_GRAD) return PD_NO_CHUNK;
  size_t at = slot(play, action.chunk, action.microbatch);
  const Chunk *chunk = &play->chunks[action.chunk];
  switch (action.kind) {
  case PD_F:
    note(play, DONE_F, at, end);
    return chunk->after;
  case PD_B:
    note(play, DONE_W, at, end);
    note(play, DONE_I, at, end);
    return chunk->before;
  case PD_I:
    note(play, DONE_I, at, end);
    return chunk->before;
  case PD_W:
    note(play, DONE_W, at, end);
    return PD_NO_CHUNK;
  case PD_SEND_F:
    note(play, SENT_F, at, end);
    return chunk->after;
  case PD_SEND_B:
    note(play, SENT_B, at, end);
    return chunk->before;
  case PD_RECV_F:
    note(play, AWAITED_F, at, end);
    return PD_NO_CHUNK;
  case PD_RECV_B:
    note(play, AWAITED_B, at, end);
    return PD_NO_CHUNK;
  default:
    return PD_NO_CHUNK;
  }
}

static const char *prepare_chunks(Play *play, const ScheduleCosts *costs) {
  const pd_pipeline *pipeline = play->pipeline;
  play->chunks = ARENA_ARRAY(play->arena, Chunk, pipeline->chunk_count);
  for (int c = 0; c < pipeline->chunk_count; c++) {
    Chunk *chunk = &play->chunks[c];
    chunk->rank = pipeline->rank_of[c];
    if (chunk->rank < 0 || chunk->rank >= pipeline->pp)
      return arena_printf(play->arena, "chunk %d lies on rank %d of %d", c, chunk->rank, pipeline->pp);
    chunk->before = pd_chunk_before(pipeline, c);
    chunk->after = pd_chunk_after(pipeline, c);
    chunk->crosses_before = chunk->before != PD_NO_CHUNK && pipeline->rank_of[chunk->before] != chunk->rank;
    chunk->crosses_after = chunk->after != PD_NO_CHUNK && pipeline->rank_of[chunk->after] != chunk->rank;
    chunk->continues = pd_chunk_continued(pipeline, c);
    chunk->continued = PD_NO_CHUNK;
    if (chunk->continues != PD_NO_CHUNK) play->chunks[chunk->continues].continued = c;
    chunk->first = pd_chunk_first(pipeline, c);
    chunk->end = pd_chunk_end(pipeline, c);
    chunk->cost[PD_F] = costs->f[c];
    chunk->cost[PD_I] = costs->i[c];
    chunk->cost[PD_W] = costs->w[c];
    chunk->cost[PD_B] = costs->i[c] + costs->w[c];
    play->missing += 3 * (chunk->end - chunk->first);
  }
  return NULL;
}

/* Counts the actions and looks for messages; says which action is none of this pipeline. */
static const char *prepare_ranks(Play *play) {
  const pd_pipeline *pipeline = play->pipeline;
  play->first_of = ARENA_ARRAY(play->arena, int64_t, pipeline->pp + 1);
  play->ranks = ARENA_ARRAY(play->arena, Rank, pipeline->pp);
  for (int rank = 0; rank < pipeline->pp; rank++) {
    const pd_action_list *list = &pipeline->ranks[rank];
    play->first_of[rank + 1] = play->first_of[rank] + list->count;
    play->ranks[rank].begin = -1;
    for (int64_t i = 0; i < list->count; i++) {
      pd_action action = list->at[i];
      bool known = (unsigned)action.kind < PD_ACTION_KINDS && action.chunk >= 0 && action.chunk < pipeline->chunk_count;
      if (known && action.kind != PD_REDUCE_GRAD)
        known =
            action.microbatch >= play->chunks[action.chunk].first && action.microbatch < play->chunks[action.chunk].end;
      if (!known)
        return arena_printf(play->arena,
                            "action %lld of rank %d is none of this pipeline: kind %d, chunk %d, micro-batch %d",
                            (long long)i, rank, (int)action.kind, action.chunk, action.microbatch);
      play->messages |= is_message(action.kind);
      if (action.kind != PD_SEND_B) continue;
      int to = play->chunks[action.chunk].before;
      if (to != PD_NO_CHUNK) play->chunks[to].gradient_comes = true;
    }
  }
  return NULL;
}

static void prepare_events(Play *play) {
  size_t slots = (size_t)play->pipeline->chunk_count * (size_t)play->pipeline->microbatches;
  for (int event = 0; event < (play->messages ? EVENT_COUNT : SENT_F); event++) {
    play->at[event] = ARENA_ARRAY(play->arena, double, slots);
    for (size_t i = 0; i < slots; i++) play->at[event][i] = -1;
  }
}

/* Runs all lists as far as they go; each rank's cursor is left where it stops. */
static void play_lists(Play *play, ScheduleTiming *timing) {
  const pd_pipeline *pipeline = play->pipeline;
  int *queue = ARENA_ARRAY(play->arena, int, pipeline->pp); /* a ring of ranks to look at */
  bool *queued = ARENA_ARRAY(play->arena, bool, pipeline->pp);
  int head = 0, waiting = pipeline->pp;
  for (int rank = 0; rank < pipeline->pp; rank++) queue[rank] = rank, queued[rank] = true;
  while (waiting > 0) {
    int rank = queue[head];
    head = head + 1 == pipeline->pp ? 0 : head + 1;
    waiting--;
    queued[rank] = false;
    const pd_action_list *list = &pipeline->ranks[rank];
    double *start = timing->start + play->first_of[rank], *end = timing->end + play->first_of[rank];
    Rank now = play->ranks[rank];
    for (; now.cursor < list->count; now.cursor++) {
      pd_action action = list->at[now.cursor];
      double begin = ready_at(play, action), cost = play->chunks[action.chunk].cost[action.kind];
      if (begin < 0) break;
      if (begin < now.clock) begin = now.clock;
      start[now.cursor] = begin;
      end[now.cursor] = now.clock = begin + cost;
      if (cost > 0) {
        now.busy += cost;
        if (now.begin < 0) now.begin = begin;
        now.finish = now.clock;
      }
      const Chunk *chunk = &play->chunks[action.chunk];
      bool ends = (action.kind == PD_B || action.kind == PD_W) && action.microbatch == chunk->end - 1;
      int wake[] = {record(play, action, now.clock), ends ? chunk->continued : PD_NO_CHUNK};
      for (int k = 0; k < 2; k++) {
        int other = wake[k] == PD_NO_CHUNK ? rank : play->chunks[wake[k]].rank;
        if (other == rank || queued[other]) continue;
        queue[head + waiting < pipeline->pp ? head + waiting : head + waiting - pipeline->pp] = other;
        queued[other] = true;
        waiting++;
      }
    }
    play->ranks[rank] = now;
  }
}

static const char *find_blocked(const Play *play) {
  const pd_pipeline *pipeline = play->pipeline;
  for (int rank = 0; rank < pipeline->pp; rank++) {
    int64_t at = play->ranks[rank].cursor;
    if (at == pipeline->ranks[rank].count) continue;
    pd_action action = pipeline->ranks[rank].at[at];
    Need needs[MAX_NEEDS];
    int count = needs_of(play, action, needs);
    for (int k = 0; k < count; k++)
      if (needs[k].time < 0)
        return arena_printf(play->arena, "rank %d waits in %s (action %lld) for %s of rank %d, which never comes", rank,
                            name_of(play->arena, action), (long long)at, name_of(play->arena, needs[k].maker),
                            pipeline->rank_of[needs[k].maker.chunk]);
  }
  return NULL;
}

static const char *find_missing(const Play *play) {
  const pd_pipeline *pipeline = play->pipeline;
  static const pd_action_kind kinds[] = {PD_F, PD_I, PD_W};
  if (play->missing == 0) return NULL;
  for (int chunk = 0; chunk < pipeline->chunk_count; chunk++)
    for (int64_t mb = pd_chunk_first(pipeline, chunk); mb < pd_chunk_end(pipeline, chunk); mb++)
      for (int event = DONE_F; event <= DONE_W; event++)
        if (play->at[event][slot(play, chunk, mb)] < 0) {
          pd_action_kind kind = event == DONE_F || pipeline->split ? kinds[event] : PD_B;
          pd_action action = {kind, (int32_t)chunk, (int32_t)mb};
          return arena_printf(play->arena, "%s is missing on rank %d", name_of(play->arena, action),
                              pipeline->rank_of[chunk]);
        }
  return NULL;
}

/* No rank can start before the forwards of all chunks below its first one, and then has its work to do; with equal
 * chunks dealt in a loop that is (pp - 1) F / chunks. With two copies a rank's first chunk is the one nearer to an end.
 */
double schedule_bound(Arena *arena, const pd_pipeline *pipeline, const ScheduleCosts *costs, double *busiest) {
  double *head = ARENA_ARRAY(arena, double, pipeline->pp); /* before a rank's first chunk; below 0: none yet */
  double *busy = ARENA_ARRAY(arena, double, pipeline->pp);
  for (int rank = 0; rank < pipeline->pp; rank++) head[rank] = -1;
  double below = 0, bound = 0;
  *busiest = 0;
  for (int c = 0; c < pipeline->chunk_count; c++) {
    int rank = pipeline->rank_of[c], before = pd_chunk_before(pipeline, c);
    if (before == PD_NO_CHUNK)
      below = 0;
    else
      below += costs->f[before] + (pipeline->rank_of[before] != rank ? costs->link : 0);
    if (head[rank] < 0 || below < head[rank]) head[rank] = below;
    busy[rank] +=
        (costs->f[c] + costs->i[c] + costs->w[c]) * (double)(pd_chunk_end(pipeline, c) - pd_chunk_first(pipeline, c));
    if (busy[rank] > *busiest) *busiest = busy[rank];
  }
  for (int rank = 0; rank < pipeline->pp; rank++)
    if (head[rank] + busy[rank] - *busiest > bound) bound = head[rank] + busy[rank] - *busiest;
  return bound;
}

/* Beta and sigma are measured against the busiest rank. */
static void measure(const Play *play, const ScheduleCosts *costs, ScheduleTiming *timing) {
  double busiest = 0, longest = 0;
  timing->makespan = 0;
  for (int r = 0; r < play->pipeline->pp; r++) {
    const Rank *rank = &play->ranks[r];
    if (rank->finish > timing->makespan) timing->makespan = rank->finish;
    if (rank->busy > busiest) busiest = rank->busy;
    if (rank->begin >= 0 && rank->finish - rank->begin > longest) longest = rank->finish - rank->begin;
  }
  for (int r = 0; r < play->pipeline->pp; r++) timing->idle[r] = timing->makespan - play->ranks[r].busy;
  timing->beta = timing->makespan - busiest;
  timing->sigma = longest - busiest;
  timing->bound = schedule_bound(play->arena, play->pipeline, costs, &busiest);
}

bool schedule_simulate(Arena *arena, const pd_pipeline *pipeline, const ScheduleCosts *costs, ScheduleTiming *timing,
                       const char **why) {
  Play play = {.arena = arena, .pipeline = pipeline, .link = costs->link};
  *why = prepare_chunks(&play, costs);
  if (!*why) *why = prepare_ranks(&play);
  if (*why) return false;
  prepare_events(&play);
  timing->idle = ARENA_ARRAY(arena, double, pipeline->pp);
  timing->start = ARENA_ARRAY(arena, double, play.first_of[pipeline->pp]);
  timing->end = ARENA_ARRAY(arena, double, play.first_of[pipeline->pp]);
  play_lists(&play, timing);
  *why = find_blocked(&play);
  if (!*why) *why = find_missing(&play);
  if (*why) return false;
  measure(&play, costs, timing);
  return true;
}
