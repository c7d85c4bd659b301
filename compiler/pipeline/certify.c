/* The independent check of a pipeline with communication. It shares nothing with the generators, the insertion of
 * messages or the simulator: it reads the lists and re-derives what must hold. One pass finds where every action
 * stands, a second checks each (chunk, micro-batch), then each pair of ranks, then three graphs for cycles:
 *
 *   buffered    a send does not wait; its receive waits for it
 *   rendezvous  a send and its receive are one event: each waits for the other
 *   grouped     neighbouring messages of a list start together and end together (ncclGroupStart/End); each one needs
 *               both its ends to have started, and the group ends when all its messages have
 *
 * Gradient messages of a boundary are there for all micro-batches or for none (nothing upstream is trained); reductions
 * for all chunks or for none (one replica). Micro-batches of a chunk must come in ascending order, forwards, backwards
 * and weight gradients: buffers are reused in that order and gradients are added in it.
 *
 * Two copies of the model: each does its half of the micro-batches and has its own ends; their reductions must be
 * there, and those of one and the same layers are one event, since they make one sum. If they do not sum up their
 * halves by themselves, the second copy's weight gradients wait for all of the first's. Without a flush: the weights
 * that a forward is to use must have been made before it. */
#include "pipeline/pipeline.h"

#define NOWHERE (-1)

typedef struct Checker {
  Arena *arena;
  const pd_pipeline *pipeline;
  int64_t total;                /* actions of all ranks; an action's number is first_of[rank] + index */
  int64_t *first_of;            /* per rank */
  int *rank_at;                 /* per action */
  int64_t *at[PD_ACTION_KINDS]; /* per (chunk, micro-batch): the action's number; REDUCE_GRAD: per chunk */
  int64_t *partner;             /* per action: of a message its other end, else NOWHERE */
  Certificate *result;
} Checker;

static const pd_action *action_at(const Checker *checker, int64_t number) {
  int rank = checker->rank_at[number];
  return &checker->pipeline->ranks[rank].at[number - checker->first_of[rank]];
}

static const char *text_of(const Checker *checker, pd_action_kind kind, int chunk, int64_t microbatch) {
  char *text = arena_alloc(checker->arena, 48);
  pd_action_text((pd_action){kind, (int32_t)chunk, (int32_t)microbatch}, text);
  return text;
}

static bool is_message(pd_action_kind kind) {
  return kind == PD_SEND_F || kind == PD_RECV_F || kind == PD_SEND_B || kind == PD_RECV_B;
}

static int64_t find(const Checker *checker, pd_action_kind kind, int chunk, int64_t microbatch) {
  if (kind == PD_REDUCE_GRAD) return checker->at[kind][chunk];
  return checker->at[kind][chunk * checker->pipeline->microbatches + microbatch];
}

/* Where the gradient of a chunk's input, or of its weights, is made: B, else the split half. */
static int64_t find_backward(const Checker *checker, pd_action_kind half, int chunk, int64_t microbatch) {
  int64_t fused = find(checker, PD_B, chunk, microbatch);
  return fused != NOWHERE ? fused : find(checker, half, chunk, microbatch);
}

#define FAIL(checker, ...)                                                                                             \
  do {                                                                                                                 \
    if (!(checker)->result->why) (checker)->result->why = arena_printf((checker)->arena, __VA_ARGS__);                 \
    return false;                                                                                                      \
  } while (0)

/* ---- complete ---- */

static bool check_shape(Checker *checker) {
  const pd_pipeline *p = checker->pipeline;
  if (p->pp < 1 || p->chunk_count < p->pp || p->microbatches < 1)
    FAIL(checker, "a pipeline of %d ranks with %d chunks and %lld micro-batches", p->pp, p->chunk_count,
         (long long)p->microbatches);
  if (p->copies > 1 && (p->chunk_count % p->copies != 0 || p->microbatches % p->copies != 0))
    FAIL(checker, "%d copies of the model cannot share %d chunks and %lld micro-batches equally", p->copies,
         p->chunk_count, (long long)p->microbatches);
  if (p->copies < 0 || p->step < 0 || p->delay < 0)
    FAIL(checker, "a pipeline with %d copies, a step of %lld micro-batches and a delay of %d", p->copies,
         (long long)p->step, p->delay);
  bool *holds = ARENA_ARRAY(checker->arena, bool, p->pp);
  for (int chunk = 0; chunk < p->chunk_count; chunk++) {
    int rank = p->rank_of[chunk];
    if (rank < 0 || rank >= p->pp) FAIL(checker, "chunk %d lies on rank %d of %d", chunk, rank, p->pp);
    holds[rank] = true;
    if (!p->first_unit || chunk >= pd_copy_chunks(p)) continue;
    /* between the first and the last, chunks may only pass on what they get */
    int64_t units = p->first_unit[chunk + 1] - p->first_unit[chunk];
    if (units < 0 || (units == 0 && (chunk == 0 || chunk == pd_copy_chunks(p) - 1)))
      FAIL(checker, "chunk %d holds no units: it begins at %lld and ends at %lld", chunk,
           (long long)p->first_unit[chunk], (long long)p->first_unit[chunk + 1]);
  }
  if (p->first_unit && p->first_unit[0] != 0)
    FAIL(checker, "units 0 to %lld are in no chunk", (long long)p->first_unit[0] - 1);
  for (int rank = 0; rank < p->pp; rank++)
    if (!holds[rank]) FAIL(checker, "rank %d holds no chunk", rank);
  return true;
}

/* Numbers every action; each must be possible, stand on the right rank, and stand once. */
static bool index_actions(Checker *checker) {
  const pd_pipeline *p = checker->pipeline;
  checker->first_of = ARENA_ARRAY(checker->arena, int64_t, p->pp + 1);
  for (int rank = 0; rank < p->pp; rank++) checker->first_of[rank + 1] = checker->first_of[rank] + p->ranks[rank].count;
  checker->total = checker->first_of[p->pp];
  checker->rank_at = ARENA_ARRAY(checker->arena, int, checker->total);
  checker->partner = ARENA_ARRAY(checker->arena, int64_t, checker->total);
  for (int kind = 0; kind < PD_ACTION_KINDS; kind++) {
    int64_t count = p->chunk_count * (kind == PD_REDUCE_GRAD ? 1 : p->microbatches);
    checker->at[kind] = ARENA_ARRAY(checker->arena, int64_t, count);
    for (int64_t i = 0; i < count; i++) checker->at[kind][i] = NOWHERE;
  }
  for (int rank = 0; rank < p->pp; rank++)
    for (int64_t i = 0; i < p->ranks[rank].count; i++) {
      pd_action action = p->ranks[rank].at[i];
      int64_t number = checker->first_of[rank] + i;
      checker->rank_at[number] = rank;
      checker->partner[number] = NOWHERE;
      bool whole = action.kind == PD_REDUCE_GRAD;
      if ((unsigned)action.kind >= PD_ACTION_KINDS || action.chunk < 0 || action.chunk >= p->chunk_count ||
          (whole ? action.microbatch != PD_NO_MICROBATCH
                 : action.microbatch < pd_chunk_first(p, action.chunk) ||
                       action.microbatch >= pd_chunk_end(p, action.chunk)))
        FAIL(checker, "action %lld of rank %d is none of this pipeline: kind %d, chunk %d, micro-batch %d",
             (long long)i, rank, (int)action.kind, action.chunk, action.microbatch);
      if (p->rank_of[action.chunk] != rank)
        FAIL(checker, "%s stands on rank %d, but chunk %d lies on rank %d",
             text_of(checker, action.kind, action.chunk, action.microbatch), rank, action.chunk,
             p->rank_of[action.chunk]);
      int64_t *place =
          &checker->at[action.kind][whole ? action.chunk : action.chunk * p->microbatches + action.microbatch];
      if (*place != NOWHERE)
        FAIL(checker, "%s stands twice on rank %d", text_of(checker, action.kind, action.chunk, action.microbatch),
             rank);
      *place = number;
    }
  return true;
}

static bool check_complete(Checker *checker) {
  const pd_pipeline *p = checker->pipeline;
  int64_t reductions = 0;
  for (int chunk = 0; chunk < p->chunk_count; chunk++) {
    int rank = p->rank_of[chunk];
    reductions += find(checker, PD_REDUCE_GRAD, chunk, 0) != NOWHERE;
    for (int64_t mb = pd_chunk_first(p, chunk); mb < pd_chunk_end(p, chunk); mb++) {
      if (find(checker, PD_F, chunk, mb) == NOWHERE)
        FAIL(checker, "%s is missing on rank %d", text_of(checker, PD_F, chunk, mb), rank);
      bool b = find(checker, PD_B, chunk, mb) != NOWHERE, i = find(checker, PD_I, chunk, mb) != NOWHERE,
           w = find(checker, PD_W, chunk, mb) != NOWHERE;
      if (b && (i || w))
        FAIL(checker, "%s stands on rank %d beside %s, which contains it", text_of(checker, i ? PD_I : PD_W, chunk, mb),
             rank, text_of(checker, PD_B, chunk, mb));
      if (!b && !i && !w)
        FAIL(checker, "%s is missing on rank %d", text_of(checker, p->split ? PD_I : PD_B, chunk, mb), rank);
      if (i != w) FAIL(checker, "%s is missing on rank %d", text_of(checker, i ? PD_W : PD_I, chunk, mb), rank);
      if (i && !p->split)
        FAIL(checker, "%s splits a backward in a pipeline said to have none split", text_of(checker, PD_I, chunk, mb));
    }
  }
  bool wanted = reductions > 0 || p->copies > 1;
  for (int chunk = 0; wanted && chunk < p->chunk_count; chunk++)
    if (find(checker, PD_REDUCE_GRAD, chunk, 0) == NOWHERE)
      FAIL(checker, "%s is missing on rank %d", text_of(checker, PD_REDUCE_GRAD, chunk, PD_NO_MICROBATCH),
           p->rank_of[chunk]);
  return true;
}

/* ---- ordered ---- */

/* Both stand on one rank; `first` must come earlier. An action that is not there is another check's business. */
static bool check_before(Checker *checker, int64_t first, int64_t then) {
  if (first == NOWHERE || then == NOWHERE || first < then) return true;
  pd_action a = *action_at(checker, first), b = *action_at(checker, then);
  FAIL(checker, "%s comes before %s on rank %d", text_of(checker, b.kind, b.chunk, b.microbatch),
       text_of(checker, a.kind, a.chunk, a.microbatch), checker->rank_at[then]);
}

/* Without a flush and with a delay: a forward uses the weights that its own step had before the last `delay` updates,
 * so all weight gradients in them come before it. */
static bool check_version(Checker *checker, int chunk, int64_t microbatch) {
  const pd_pipeline *p = checker->pipeline;
  if (p->step == 0 || p->delay == 0) return true;
  int64_t version = microbatch / p->step - p->delay;
  if (version <= 0) return true;
  return check_before(checker, find_backward(checker, PD_W, chunk, version * p->step - 1),
                      find(checker, PD_F, chunk, microbatch));
}

static bool check_ordered(Checker *checker) {
  const pd_pipeline *p = checker->pipeline;
  for (int chunk = 0; chunk < p->chunk_count; chunk++) {
    int below = pd_chunk_before(p, chunk);
    bool below_here = below != PD_NO_CHUNK && p->rank_of[below] == p->rank_of[chunk];
    for (int64_t mb = pd_chunk_first(p, chunk); mb < pd_chunk_end(p, chunk); mb++) {
      int64_t f = find(checker, PD_F, chunk, mb), i = find_backward(checker, PD_I, chunk, mb),
              w = find_backward(checker, PD_W, chunk, mb);
      bool good = check_before(checker, f, i) && (w == i || check_before(checker, i, w)) &&
                  check_before(checker, find(checker, PD_RECV_F, chunk, mb), f) &&
                  check_before(checker, f, find(checker, PD_SEND_F, chunk, mb)) &&
                  check_before(checker, find(checker, PD_RECV_B, chunk, mb), i) &&
                  check_before(checker, i, find(checker, PD_SEND_B, chunk, mb)) &&
                  check_before(checker, w, find(checker, PD_REDUCE_GRAD, chunk, 0)) &&
                  check_version(checker, chunk, mb);
      if (good && below_here)
        good = check_before(checker, find(checker, PD_F, below, mb), f) &&
               check_before(checker, i, find_backward(checker, PD_I, below, mb));
      if (good && mb > pd_chunk_first(p, chunk))
        good = check_before(checker, find(checker, PD_F, chunk, mb - 1), f) &&
               check_before(checker, find_backward(checker, PD_I, chunk, mb - 1), i) &&
               check_before(checker, find_backward(checker, PD_W, chunk, mb - 1), w);
      if (!good) return false;
    }
  }
  return true;
}

/* ---- matched ---- */

/* Messages of one kind from a chunk to its neighbour must be there for all micro-batches if they are for one, and at
 * both ends alike. */
static bool pair_boundary(Checker *checker, pd_action_kind send, int from, pd_action_kind receive, int to) {
  const pd_pipeline *p = checker->pipeline;
  bool crosses = p->rank_of[from] != p->rank_of[to], wanted = send == PD_SEND_F && crosses;
  int64_t first = pd_chunk_first(p, from), end = pd_chunk_end(p, from);
  for (int64_t mb = first; mb < end && crosses; mb++)
    wanted = wanted || find(checker, send, from, mb) != NOWHERE || find(checker, receive, to, mb) != NOWHERE;
  for (int64_t mb = first; mb < end; mb++) {
    int64_t sent = find(checker, send, from, mb), received = find(checker, receive, to, mb);
    if (!crosses && (sent != NOWHERE || received != NOWHERE))
      FAIL(checker, "%s stands on rank %d, but chunks %d and %d share the rank",
           sent != NOWHERE ? text_of(checker, send, from, mb) : text_of(checker, receive, to, mb), p->rank_of[from],
           from < to ? from : to, from < to ? to : from);
    if (!wanted) continue;
    if (sent == NOWHERE) FAIL(checker, "%s is missing on rank %d", text_of(checker, send, from, mb), p->rank_of[from]);
    if (received == NOWHERE)
      FAIL(checker, "%s is missing on rank %d", text_of(checker, receive, to, mb), p->rank_of[to]);
    checker->partner[sent] = received;
    checker->partner[received] = sent;
  }
  return true;
}

/* Sends from a rank to each other rank must be received in the order in which they are sent. */
static bool check_pair_orders(Checker *checker, int rank) {
  int64_t *last = ARENA_ARRAY(checker->arena, int64_t, checker->pipeline->pp); /* per receiver: its latest receive */
  for (int to = 0; to < checker->pipeline->pp; to++) last[to] = NOWHERE;
  for (int64_t number = checker->first_of[rank]; number < checker->first_of[rank + 1]; number++) {
    pd_action action = *action_at(checker, number);
    if (action.kind != PD_SEND_F && action.kind != PD_SEND_B) continue;
    int64_t received = checker->partner[number];
    int to = checker->rank_at[received];
    if (last[to] > received) {
      pd_action late = *action_at(checker, last[to]), early = *action_at(checker, received);
      FAIL(checker, "rank %d receives %s before %s, but rank %d sends them in the other order", to,
           text_of(checker, early.kind, early.chunk, early.microbatch),
           text_of(checker, late.kind, late.chunk, late.microbatch), rank);
    }
    last[to] = received;
  }
  return true;
}

/* At an end of the model some messages make no sense. */
static bool check_end(Checker *checker, int chunk, pd_action_kind kind) {
  for (int64_t mb = pd_chunk_first(checker->pipeline, chunk); mb < pd_chunk_end(checker->pipeline, chunk); mb++)
    if (find(checker, kind, chunk, mb) != NOWHERE)
      FAIL(checker, "%s has no chunk at its other end", text_of(checker, kind, chunk, mb));
  return true;
}

/* The reductions of the copies of one chunk are one event: in a ring, each has the next as its partner. */
static void join_reductions(Checker *checker) {
  const pd_pipeline *p = checker->pipeline;
  for (int chunk = 0; p->copies > 1 && chunk < p->chunk_count; chunk++) {
    int64_t here = find(checker, PD_REDUCE_GRAD, chunk, 0),
            there = find(checker, PD_REDUCE_GRAD, (chunk + pd_copy_chunks(p)) % p->chunk_count, 0);
    if (here != NOWHERE) checker->partner[here] = there;
  }
}

static bool check_matched(Checker *checker) {
  const pd_pipeline *p = checker->pipeline;
  for (int chunk = 0; chunk < p->chunk_count; chunk++) {
    int before = pd_chunk_before(p, chunk);
    bool good = before == PD_NO_CHUNK ? check_end(checker, chunk, PD_RECV_F) && check_end(checker, chunk, PD_SEND_B)
                                      : pair_boundary(checker, PD_SEND_F, before, PD_RECV_F, chunk) &&
                                            pair_boundary(checker, PD_SEND_B, chunk, PD_RECV_B, before);
    if (good && pd_chunk_after(p, chunk) == PD_NO_CHUNK)
      good = check_end(checker, chunk, PD_SEND_F) && check_end(checker, chunk, PD_RECV_B);
    if (!good) return false;
  }
  for (int rank = 0; rank < p->pp; rank++)
    if (!check_pair_orders(checker, rank)) return false;
  join_reductions(checker);
  return true;
}

/* ---- free of deadlock ---- */

typedef enum Sends { SENDS_BUFFERED, SENDS_RENDEZVOUS, SENDS_GROUPED } Sends;

typedef struct Network { /* nodes and edges; every node has at most one edge out of its list and some more */
  int64_t nodes, edges;
  int64_t *from, *to;
} Network;

static void add_edge(Network *network, int64_t from, int64_t to) {
  network->from[network->edges] = from;
  network->to[network->edges++] = to;
}

/* Node of an action: its number, but the two ends of a message are the receive's node under rendezvous, and reductions
 * that are one event are the first one's. */
static int64_t node_of(const Checker *checker, Sends sends, int64_t number) {
  pd_action_kind kind = action_at(checker, number)->kind;
  if (sends == SENDS_RENDEZVOUS && (kind == PD_SEND_F || kind == PD_SEND_B)) return checker->partner[number];
  if (kind != PD_REDUCE_GRAD) return number;
  int64_t least = number;
  for (int64_t at = checker->partner[number]; at != NOWHERE && at != number; at = checker->partner[at])
    if (at < least) least = at;
  return least;
}

/* Grouped: actions 0..total-1; the message's own completion is total + number of its send; a group's begin is the node
 * of its first action, its end is 2 * total + that. */
static void connect_groups(const Checker *checker, Network *network, int rank) {
  int64_t end = checker->first_of[rank + 1], before = NOWHERE, total = checker->total;
  for (int64_t number = checker->first_of[rank]; number < end;) {
    int64_t node = node_of(checker, SENDS_GROUPED, number);
    if (before != NOWHERE) add_edge(network, before, node);
    before = node;
    int64_t first = number++;
    if (!is_message(action_at(checker, first)->kind)) continue;
    before = 2 * total + first;
    add_edge(network, first, before);
    while (number < end && is_message(action_at(checker, number)->kind)) number++;
    for (int64_t message = first; message < number; message++) {
      pd_action_kind kind = action_at(checker, message)->kind;
      bool sends = kind == PD_SEND_F || kind == PD_SEND_B;
      int64_t completion = total + (sends ? message : checker->partner[message]);
      add_edge(network, first, completion);
      add_edge(network, completion, before);
    }
  }
}

/* A copy of the model that goes on with the sums of another begins its weight gradients after the other's last. */
static void connect_sums(const Checker *checker, Network *network) {
  const pd_pipeline *p = checker->pipeline;
  for (int chunk = 0; chunk < p->chunk_count; chunk++) {
    int before = pd_chunk_continued(p, chunk);
    if (before == PD_NO_CHUNK) continue;
    int64_t last = find_backward(checker, PD_W, before, pd_chunk_end(p, before) - 1),
            first = find_backward(checker, PD_W, chunk, pd_chunk_first(p, chunk));
    if (last != NOWHERE && first != NOWHERE) add_edge(network, last, first);
  }
}

static void connect(const Checker *checker, Network *network, Sends sends) {
  for (int rank = 0; rank < checker->pipeline->pp; rank++) {
    if (sends == SENDS_GROUPED) {
      connect_groups(checker, network, rank);
      continue;
    }
    for (int64_t number = checker->first_of[rank]; number < checker->first_of[rank + 1]; number++) {
      if (number > checker->first_of[rank])
        add_edge(network, node_of(checker, sends, number - 1), node_of(checker, sends, number));
      pd_action_kind kind = action_at(checker, number)->kind;
      if (sends == SENDS_BUFFERED && (kind == PD_SEND_F || kind == PD_SEND_B))
        add_edge(network, number, checker->partner[number]);
    }
  }
  connect_sums(checker, network);
}

/* One topological sort. NULL if it reaches every node (nodes without edges do not matter), else for each node one that
 * it waits for and that is never reached either, NOWHERE for those that were reached. */
static int64_t *find_stuck(const Checker *checker, const Network *network) {
  int64_t *degree = ARENA_ARRAY(checker->arena, int64_t, network->nodes);
  int64_t *first = ARENA_ARRAY(checker->arena, int64_t, network->nodes + 1);
  int64_t *filled = ARENA_ARRAY(checker->arena, int64_t, network->nodes);
  int64_t *next = ARENA_ARRAY(checker->arena, int64_t, network->edges);
  int64_t *queue = ARENA_ARRAY(checker->arena, int64_t, network->nodes);
  for (int64_t e = 0; e < network->edges; e++) first[network->from[e] + 1]++, degree[network->to[e]]++;
  for (int64_t n = 0; n < network->nodes; n++) first[n + 1] += first[n];
  for (int64_t e = 0; e < network->edges; e++) {
    int64_t from = network->from[e];
    next[first[from] + filled[from]++] = network->to[e];
  }
  int64_t queued = 0;
  for (int64_t n = 0; n < network->nodes; n++)
    if (degree[n] == 0) queue[queued++] = n;
  for (int64_t done = 0; done < queued; done++)
    for (int64_t e = first[queue[done]]; e < first[queue[done] + 1]; e++)
      if (--degree[next[e]] == 0) queue[queued++] = next[e];
  if (queued == network->nodes) return NULL;
  int64_t *waits_for = queue; /* no longer needed */
  for (int64_t n = 0; n < network->nodes; n++) waits_for[n] = NOWHERE;
  for (int64_t e = 0; e < network->edges; e++)
    if (degree[network->from[e]] > 0 && degree[network->to[e]] > 0) waits_for[network->to[e]] = network->from[e];
  return waits_for;
}

/* "1F2 on rank 0 waits for 0SEND_F2 on rank 0, which waits for …": the circle, at most eight of it. */
static const char *circle_text(const Checker *checker, const int64_t *waits_for, int64_t nodes) {
  int64_t at = 0;
  while (waits_for[at] == NOWHERE) at++;
  for (int64_t step = 0; step < nodes; step++) at = waits_for[at]; /* now surely on the circle */
  Text text = {.arena = checker->arena};
  int64_t begin = at, shown = NOWHERE;
  int count = 0;
  do {
    int64_t number = at % checker->total; /* the several nodes of a group show as one */
    if (number != shown) {
      pd_action action = *action_at(checker, number);
      text_printf(&text, "%s%s on rank %d",
                  count == 0   ? ""
                  : count == 1 ? " waits for "
                               : ", which waits for ",
                  text_of(checker, action.kind, action.chunk, action.microbatch), checker->rank_at[number]);
      count++;
    }
    shown = number;
    at = waits_for[at];
  } while (at != begin && count < 8);
  text_printf(&text, at == begin ? ", which waits for the first" : ", and so on in a circle");
  return text.at;
}

static bool check_acyclic(Checker *checker, Sends sends, const char *name) {
  Network network = {.nodes = checker->total * (sends == SENDS_GROUPED ? 3 : 1)};
  int64_t edges = 4 * checker->total + checker->pipeline->chunk_count;
  network.from = ARENA_ARRAY(checker->arena, int64_t, edges);
  network.to = ARENA_ARRAY(checker->arena, int64_t, edges);
  connect(checker, &network, sends);
  const int64_t *waits_for = find_stuck(checker, &network);
  if (!waits_for) return true;
  FAIL(checker, "with %s sends %s", name, circle_text(checker, waits_for, network.nodes));
}

Certificate schedule_certify(Arena *arena, const pd_pipeline *pipeline) {
  Certificate result = {0};
  Checker checker = {.arena = arena, .pipeline = pipeline, .result = &result};
  if (!check_shape(&checker) || !index_actions(&checker)) return result;
  result.complete = check_complete(&checker);
  result.ordered = check_ordered(&checker);
  result.matched = check_matched(&checker);
  if (!result.matched) return result; /* the graphs need both ends of every message */
  result.acyclic_buffered = check_acyclic(&checker, SENDS_BUFFERED, "buffered");
  result.acyclic_rendezvous = check_acyclic(&checker, SENDS_RENDEZVOUS, "rendezvous");
  result.acyclic_grouped = check_acyclic(&checker, SENDS_GROUPED, "grouped");
  return result;
}
