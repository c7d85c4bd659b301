/* Greedy schedules with communication for the engine's test; see engine_schedules.h. */
#include "engine_schedules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct maker {
  const pd_program *program;
  schedule *s;
  style kind;
  bool reduce;
  int64_t m;                         /* micro-batches */
  int *f, *i, *w;                    /* per chunk * m + mb: tick in which it was done, 0: not yet */
  int64_t *next_f, *next_i, *next_w; /* per chunk */
} maker;

static void append(maker *k, int rank, pd_action_kind kind, int chunk, int64_t mb) {
  pd_action_list *list = &k->s->ranks[rank];
  list->at = realloc(list->at, (size_t)(list->count + 1) * sizeof *list->at);
  if (list->at == NULL) abort();
  list->at[list->count++] = (pd_action){kind, chunk, (int32_t)mb};
}

static int64_t first_of(const maker *k, int chunk) {
  return pd_chunk_first(&k->s->pipeline, chunk);
}

static int64_t end_of(const maker *k, int chunk) {
  return pd_chunk_end(&k->s->pipeline, chunk);
}

/* Weight gradients that wait for another copy's are apart. */
static bool is_split(const maker *k, int chunk, int64_t mb) {
  if (pd_chunk_continued(&k->s->pipeline, chunk) != PD_NO_CHUNK) return true;
  return k->kind == STYLE_SPLIT || (k->kind == STYLE_MIXED && mb % 2 == 0);
}

static bool carries_gradient(const maker *k, int chunk) {
  int wires[PD_MAX_WIRES], cut = chunk % pd_copy_chunks(&k->s->pipeline);
  int count = pd_live_wires(k->program, k->s->first_unit[cut], wires);
  for (int i = 0; i < count; i++) {
    if (k->program->wires[wires[i]].needs_grad) return true;
  }
  return false;
}

/* The message after an action, if the neighbour is another rank. */
static void message(maker *k, bool forward, int chunk, int64_t mb) {
  int to = forward ? pd_chunk_after(&k->s->pipeline, chunk) : pd_chunk_before(&k->s->pipeline, chunk);
  if (to == PD_NO_CHUNK || k->s->rank_of[to] == k->s->rank_of[chunk]) return;
  if (!forward && !carries_gradient(k, chunk)) return;
  append(k, k->s->rank_of[chunk], forward ? PD_SEND_F : PD_SEND_B, chunk, mb);
  append(k, k->s->rank_of[to], forward ? PD_RECV_F : PD_RECV_B, to, mb);
}

static bool done_before(const int *table, int64_t at, int tick) {
  return table[at] > 0 && table[at] < tick;
}

/* Whether this rank is still to do forwards: gpipe's backwards wait for that. */
static bool has_forwards_left(const maker *k, int rank) {
  for (int c = 0; c < k->s->pipeline.chunk_count; c++) {
    if (k->s->rank_of[c] == rank && k->next_f[c] < end_of(k, c)) return true;
  }
  return false;
}

static bool try_backward(maker *k, int c, int tick) {
  int64_t mb = k->next_i[c], at = c * k->m + mb;
  if (mb == end_of(k, c) || !done_before(k->f, at, tick)) return false;
  if (pd_chunk_after(&k->s->pipeline, c) != PD_NO_CHUNK && !done_before(k->i, at + k->m, tick)) return false;
  if (k->kind == STYLE_GPIPE && has_forwards_left(k, k->s->rank_of[c])) return false;
  bool split = is_split(k, c, mb);
  if (!split && k->next_w[c] < mb) return false; /* weight gradients in order */
  k->next_i[c]++;
  k->i[at] = tick;
  append(k, k->s->rank_of[c], split ? PD_I : PD_B, c, mb);
  if (!split) {
    k->next_w[c]++;
    k->w[at] = tick;
  }
  message(k, false, c, mb);
  return true;
}

static bool try_forward(maker *k, int c, int tick) {
  int64_t mb = k->next_f[c], at = c * k->m + mb;
  int each = pd_copy_chunks(&k->s->pipeline);
  bool waits = pd_chunk_continued(&k->s->pipeline, c) != PD_NO_CHUNK; /* its weight gradients come at the end */
  int64_t most = k->kind == STYLE_GPIPE || waits ? k->m : each - c % each + (k->kind != STYLE_1F1B);
  if (mb == end_of(k, c) || mb - k->next_w[c] >= most) return false;
  if (c % each > 0 && !done_before(k->f, at - k->m, tick)) return false;
  k->next_f[c]++;
  k->f[at] = tick;
  append(k, k->s->rank_of[c], PD_F, c, mb);
  message(k, true, c, mb);
  return true;
}

static bool try_weights(maker *k, int c, int tick) {
  int64_t mb = k->next_w[c], at = c * k->m + mb;
  int before = pd_chunk_continued(&k->s->pipeline, c);
  if (mb == end_of(k, c) || !is_split(k, c, mb) || k->i[at] == 0) return false;
  if (before != PD_NO_CHUNK && k->next_w[before] < end_of(k, before)) return false;
  k->next_w[c]++;
  k->w[at] = tick;
  append(k, k->s->rank_of[c], PD_W, c, mb);
  return true;
}

static bool tick_rank(maker *k, int rank, int tick) {
  int count = k->s->pipeline.chunk_count;
  for (int c = count - 1; c >= 0; c--) {
    if (k->s->rank_of[c] == rank && try_backward(k, c, tick)) return true;
  }
  for (int c = count - 1; c >= 0; c--) {
    if (k->s->rank_of[c] == rank && try_forward(k, c, tick)) return true;
  }
  for (int c = count - 1; c >= 0; c--) {
    if (k->s->rank_of[c] == rank && try_weights(k, c, tick)) return true;
  }
  return false;
}

static void fill(maker *k) {
  int each = pd_copy_chunks(&k->s->pipeline), count = k->s->pipeline.chunk_count;
  int64_t total = each * k->m, done = 0;
  for (int c = 0; c < count; c++) k->next_f[c] = k->next_i[c] = k->next_w[c] = first_of(k, c);
  for (int tick = 1, idle = 0; done < total; tick++) {
    bool any = false;
    for (int r = 0; r < k->s->pipeline.pp; r++) any = tick_rank(k, r, tick) || any;
    idle = any ? 0 : idle + 1;
    if (idle > 2) {
      fprintf(stderr, "the test's own schedule is stuck\n");
      abort();
    }
    done = 0;
    for (int c = 0; c < count; c++) done += k->next_w[c] - first_of(k, c);
  }
  for (int first = each - 1; first >= 0 && (k->reduce || each < count); first--) {
    for (int c = first; c < count; c += each) append(k, k->s->rank_of[c], PD_REDUCE_GRAD, c, PD_NO_MICROBATCH);
  }
}

static void *zeros(int64_t count, size_t size) {
  void *block = calloc((size_t)count + 1, size);
  if (block == NULL) abort();
  return block;
}

schedule schedule_make(const pd_program *program, style kind, shape form, bool reduce) {
  int pp = program->pp, each = pp * form.chunks, count = each * form.copies;
  int64_t units = pd_unit_count(program);
  schedule s = {.rank_of = zeros(count, sizeof(int)),
                .first_unit = zeros(each + 1, sizeof(int64_t)),
                .ranks = zeros(pp, sizeof(pd_action_list))};
  for (int c = 0; c < count; c++) {
    int lap = c / pp, at = c % pp;
    s.rank_of[c] = (form.vee || form.copies > 1) && lap % 2 == 1 ? pp - 1 - at : at;
    int64_t first = (units * c + form.cut) / each;
    if (c < each) s.first_unit[c] = c == 0 ? 0 : first < units ? first : units;
  }
  s.first_unit[each] = units;
  s.pipeline = (pd_pipeline){.pp = pp,
                             .chunk_count = count,
                             .microbatches = program->microbatches,
                             .rank_of = s.rank_of,
                             .first_unit = s.first_unit,
                             .ranks = s.ranks,
                             .split = kind == STYLE_SPLIT || kind == STYLE_MIXED,
                             .copies = form.copies,
                             .accumulators = form.accumulators};
  int64_t cells = count * program->microbatches;
  maker k = {.program = program,
             .s = &s,
             .kind = kind,
             .reduce = reduce,
             .m = program->microbatches,
             .f = zeros(cells, sizeof(int)),
             .i = zeros(cells, sizeof(int)),
             .w = zeros(cells, sizeof(int)),
             .next_f = zeros(count, sizeof(int64_t)),
             .next_i = zeros(count, sizeof(int64_t)),
             .next_w = zeros(count, sizeof(int64_t))};
  fill(&k);
  free(k.f);
  free(k.i);
  free(k.w);
  free(k.next_f);
  free(k.next_i);
  free(k.next_w);
  return s;
}

void schedule_free(schedule *s) {
  for (int r = 0; r < s->pipeline.pp; r++) free(s->ranks[r].at);
  free(s->ranks);
  free(s->rank_of);
  free(s->first_unit);
}
