/* The table of schedule kinds that this version generates, and the parts that their files share. */
#include "pipeline/schedules/kinds.h"

#include <string.h>

static const ScheduleKind *const kinds[] = {
    &schedule_gpipe,  &schedule_one_f_one_b,   &schedule_eager_1f1b,     &schedule_interleaved, &schedule_breadth_first,
    &schedule_zb_h1,  &schedule_zb_h2,         &schedule_interleaved_zb, &schedule_zb_v,        &schedule_v_half,
    &schedule_v_min,  &schedule_one_f_one_b_v, &schedule_dualpipe,       &schedule_dualpipe_v,  &schedule_chimera,
    &schedule_hanayo, &schedule_pipedream,     &schedule_pipedream_2bw,
};
enum { KIND_COUNT = sizeof kinds / sizeof kinds[0] };
static const char *const names[KIND_COUNT + 1] = {"gpipe",         "1f1b",          "eager-1f1b", "interleaved",
                                                  "breadth-first", "zb-h1",         "zb-h2",      "interleaved-zb",
                                                  "zb-v",          "v-half",        "v-min",      "1f1b-v",
                                                  "dualpipe",      "dualpipe-v",    "chimera",    "hanayo",
                                                  "pipedream",     "pipedream-2bw", NULL};

const ScheduleKind *schedule_find(const char *name) {
  for (size_t i = 0; i < KIND_COUNT; i++) {
    if (strcmp(kinds[i]->name, name) == 0) return kinds[i];
    for (const char *const *alias = kinds[i]->aliases; alias && *alias; alias++)
      if (strcmp(*alias, name) == 0) return kinds[i];
  }
  return NULL;
}

const char *const *schedule_names(void) {
  return names;
}

pd_pipeline schedule_shape(Arena *arena, const ScheduleKind *kind, const ScheduleRequest *request) {
  int copies = kind->copies > 1 ? kind->copies : 1, count = request->pp * request->chunks * copies;
  int *rank_of = ARENA_ARRAY(arena, int, count);
  kind->place(request, rank_of);
  return (pd_pipeline){.pp = request->pp,
                       .chunk_count = count,
                       .microbatches = request->microbatches,
                       .rank_of = rank_of,
                       .ranks = ARENA_ARRAY(arena, pd_action_list, request->pp),
                       .split = kind->split,
                       .copies = copies,
                       .accumulators = copies, /* as published: each copy sums up its own half */
                       .step = kind->step ? kind->step(request) : 0,
                       .delay = kind->delay};
}

pd_pipeline schedule_make(Arena *arena, const ScheduleKind *kind, const ScheduleRequest *request) {
  pd_pipeline pipeline = schedule_shape(arena, kind, request);
  pd_action_list *ranks = ARENA_ARRAY(arena, pd_action_list, request->pp);
  kind->generate(arena, request, ranks);
  pipeline.ranks = ranks;
  return pipeline;
}

const char *schedule_unasked(const ScheduleKind *kind) {
  if (kind->copies > 1) return "keeps two copies of the model";
  if (kind->step) return "never waits for a step to end, so that micro-batches see different weights";
  return NULL;
}

int64_t schedule_held(const pd_pipeline *pipeline, int rank) {
  int64_t now = 0, most = 0;
  const pd_action_list *list = &pipeline->ranks[rank];
  for (int64_t i = 0; i < list->count; i++) {
    pd_action_kind kind = list->at[i].kind;
    now += kind == PD_F;
    if (now > most) most = now;
    now -= kind == PD_B || kind == PD_W;
  }
  return most;
}

void place_loop(const ScheduleRequest *request, int *rank_of) {
  for (int chunk = 0; chunk < request->pp * request->chunks; chunk++) rank_of[chunk] = chunk % request->pp;
}

void place_v(const ScheduleRequest *request, int *rank_of) {
  for (int chunk = 0; chunk < request->pp * request->chunks; chunk++) {
    int along = chunk % request->pp;
    rank_of[chunk] = chunk / request->pp % 2 == 0 ? along : request->pp - 1 - along;
  }
}

void place_mirrored(const ScheduleRequest *request, int *rank_of) {
  for (int rank = 0; rank < request->pp; rank++) rank_of[rank] = rank_of[2 * request->pp - 1 - rank] = rank;
}

void actions_reserve(Arena *arena, pd_action_list *list, int64_t count) {
  list->at = ARENA_ARRAY(arena, pd_action, count);
  list->count = 0;
}

void action_put(pd_action_list *list, pd_action_kind kind, int64_t chunk, int64_t microbatch) {
  list->at[list->count++] = (pd_action){kind, (int32_t)chunk, (int32_t)microbatch};
}

const char *refuse(Arena *arena, const char *name, const ScheduleRequest *request, const char *reason) {
  return arena_printf(arena, "%s with pp = %d, microbatches = %lld, chunks = %d: %s", name, request->pp,
                      (long long)request->microbatches, request->chunks, reason);
}

const char *refuse_counts(Arena *arena, const char *name, const ScheduleRequest *request) {
  if (request->pp < 1) return refuse(arena, name, request, "the nearest that works is pp = 1");
  if (request->microbatches < 1) return refuse(arena, name, request, "the nearest that works is microbatches = 1");
  if (request->chunks < 1) return refuse(arena, name, request, "the nearest that works is chunks = 1");
  if (request->microbatches > INT32_MAX / 8)
    return refuse(arena, name, request,
                  arena_printf(arena, "the nearest that works is microbatches = %d", INT32_MAX / 8));
  return NULL;
}

const char *refuse_chunks(Arena *arena, const char *name, const ScheduleRequest *request, const char *instead) {
  const char *why = refuse_counts(arena, name, request);
  if (why || request->chunks == 1) return why;
  return refuse(
      arena, name, request,
      arena_printf(arena, "it keeps one chunk on a rank; the nearest that works is chunks = 1, or kind = %s", instead));
}

const char *refuse_v(Arena *arena, const char *name, const ScheduleRequest *request) {
  const char *why = refuse_counts(arena, name, request);
  if (why || request->chunks == 2) return why;
  return refuse(arena, name, request, "it keeps two chunks on a rank, in a V; the nearest that works is chunks = 2");
}

OrderTable order_table(Arena *arena, const ScheduleRequest *request, int64_t groups) {
  int64_t m = request->microbatches;
  if (groups == 0) groups = m < request->pp ? 1 : m / request->pp;
  OrderTable table = {.count = m * request->chunks, .largest = (m + groups - 1) / groups};
  table.at = arena_alloc(arena, sizeof table.at[0] * (size_t)table.count);
  int64_t entry = 0, first = 0;
  for (int64_t group = 0; group < groups; group++) {
    int64_t size = m / groups + (group < m % groups);
    for (int chunk = 0; chunk < request->chunks; chunk++)
      for (int64_t i = first; i < first + size; i++)
        table.at[entry++] = (struct OrderEntry){(int32_t)chunk, (int32_t)i};
    first += size;
  }
  return table;
}

void generate_along_table(Arena *arena, const ScheduleRequest *request, const OrderTable *table, int rank,
                          int64_t warm_up, pd_action_list *list) {
  int64_t p = request->pp, v = request->chunks;
  if (warm_up > table->count) warm_up = table->count;
  actions_reserve(arena, list, 2 * table->count);
  for (int64_t j = 0; j < table->count + warm_up; j++) {
    if (j < table->count) action_put(list, PD_F, table->at[j].chunk * p + rank, table->at[j].microbatch);
    if (j < warm_up) continue;
    const struct OrderEntry *entry = &table->at[j - warm_up];
    action_put(list, PD_B, (v - 1 - entry->chunk) * p + rank, entry->microbatch);
  }
}
