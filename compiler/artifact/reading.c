/* What the readers of pd-schedule, pd-plan and CSV share: actions, placements, certificates. They come from files whose
 * shape has been checked; what they say has not. */
#include "artifact/reading.h"

#include <string.h>

static bool flag(const json_t *object, const char *key) {
  return json_is_true(json_object_get(object, key));
}

double json_number_at(const json_t *object, const char *key) {
  return json_number_value(json_object_get(object, key));
}

static const double *numbers(Arena *arena, const json_t *array) {
  double *values = ARENA_ARRAY(arena, double, json_array_size(array) + 1);
  for (size_t i = 0; i < json_array_size(array); i++) values[i] = json_number_value(json_array_get(array, i));
  return values;
}

const Claims *claims_read(Arena *arena, const json_t *certificate, const char *suffix, const char *peak) {
  const json_t *acyclic = json_object_get(certificate, "acyclic");
  Claims *claims = ARENA_NEW(arena, Claims);
  claims->certificate = (Certificate){.complete = flag(certificate, "complete"),
                                      .ordered = flag(certificate, "ordered"),
                                      .matched = flag(certificate, "matched"),
                                      .acyclic_buffered = flag(acyclic, "buffered"),
                                      .acyclic_rendezvous = flag(acyclic, "rendezvous"),
                                      .acyclic_grouped = flag(acyclic, "grouped")};
  claims->makespan = json_number_at(certificate, arena_printf(arena, "makespan%s", suffix));
  claims->beta = json_number_at(certificate, arena_printf(arena, "beta%s", suffix));
  claims->sigma = json_number_at(certificate, arena_printf(arena, "sigma%s", suffix));
  claims->bound = json_number_at(certificate, arena_printf(arena, "bound%s", suffix));
  claims->idle = numbers(arena, json_object_get(certificate, arena_printf(arena, "idle%s", suffix)));
  claims->peak = numbers(arena, json_object_get(certificate, peak));
  return claims;
}

const char *actions_read(Arena *arena, const json_t *texts, const char *path, const pd_pipeline *pipeline,
                         pd_action_list *list) {
  size_t count = json_array_size(texts);
  list->at = ARENA_ARRAY(arena, pd_action, count + 1);
  list->count = (int64_t)count;
  for (size_t i = 0; i < count; i++) {
    const char *text = json_string_value(json_array_get(texts, i));
    char again[48];
    bool known = pd_action_parse(text, &list->at[i]);
    if (known) pd_action_text(list->at[i], again);
    if (!known || strcmp(text, again) != 0)
      return arena_printf(arena, "%s[%zu]: \"%.60s\" is no action", path, i, text);
    if (list->at[i].chunk >= pipeline->chunk_count)
      return arena_printf(arena, "%s[%zu]: %s names chunk %d of %d", path, i, again, list->at[i].chunk,
                          pipeline->chunk_count);
    if (list->at[i].microbatch >= pipeline->microbatches)
      return arena_printf(arena, "%s[%zu]: %s names micro-batch %d of %lld", path, i, again, list->at[i].microbatch,
                          (long long)pipeline->microbatches);
  }
  return NULL;
}

bool actions_split(const pd_pipeline *pipeline) {
  for (int rank = 0; rank < pipeline->pp; rank++)
    for (int64_t i = 0; i < pipeline->ranks[rank].count; i++)
      if (pipeline->ranks[rank].at[i].kind == PD_I || pipeline->ranks[rank].at[i].kind == PD_W) return true;
  return false;
}

bool actions_have_messages(const pd_pipeline *pipeline) {
  bool needed = false;
  for (int chunk = 1; chunk < pipeline->chunk_count; chunk++)
    needed = needed || (pd_chunk_before(pipeline, chunk) != PD_NO_CHUNK &&
                        pipeline->rank_of[chunk] != pipeline->rank_of[chunk - 1]);
  for (int rank = 0; rank < pipeline->pp; rank++)
    for (int64_t i = 0; i < pipeline->ranks[rank].count; i++) {
      pd_action_kind kind = pipeline->ranks[rank].at[i].kind;
      if (kind == PD_SEND_F || kind == PD_RECV_F || kind == PD_SEND_B || kind == PD_RECV_B) return true;
    }
  return !needed;
}

const char *count_check(Arena *arena, const json_t *array, const char *path, int64_t count, const char *because) {
  size_t size = json_array_size(array);
  if ((int64_t)size == count) return NULL;
  return arena_printf(arena, "%s has %zu entries, must have %lld: %s", path, size, (long long)count, because);
}

/* What the name of a kind tells beside its lists. */
static void apply_kind(const char *name, int pp, int chunks, pd_pipeline *pipeline) {
  const ScheduleKind *kind = schedule_find(name);
  ScheduleRequest request = {pp, chunks, pipeline->microbatches};
  pipeline->copies = kind && kind->copies > 1 ? kind->copies : 1;
  pipeline->accumulators = pipeline->copies;
  pipeline->step = kind && kind->step ? kind->step(&request) : 0;
  pipeline->delay = kind ? kind->delay : 0;
}

const char *placement_read(Arena *arena, const json_t *placement, const char *path, const char *kind, int pp,
                           int chunks, pd_pipeline *pipeline) {
  apply_kind(kind, pp, chunks, pipeline);
  int count = pp * chunks * pipeline->copies;
  const char *why = count_check(
      arena, placement, path, count,
      arena_printf(arena, "%d ranks hold %d chunk%s each%s", pp, chunks, chunks == 1 ? "" : "s",
                   pipeline->copies > 1 ? arena_printf(arena, " of each of %d copies", pipeline->copies) : ""));
  if (why) return why;
  int *rank_of = ARENA_ARRAY(arena, int, count);
  for (int chunk = 0; chunk < count; chunk++) {
    rank_of[chunk] = (int)json_integer_value(json_array_get(placement, (size_t)chunk));
    if (rank_of[chunk] >= pp)
      return arena_printf(arena, "%s[%d] is %d, but there are ranks 0 to %d", path, chunk, rank_of[chunk], pp - 1);
  }
  pipeline->pp = pp;
  pipeline->chunk_count = count;
  pipeline->rank_of = rank_of;
  return NULL;
}

const char *costs_refuse(Arena *arena, ShareCosts costs) {
  double values[] = {costs.f, costs.i, costs.w, costs.link};
  for (int k = 0; k < 4; k++)
    if (!(values[k] >= 0 && values[k] <= 1e12))
      return arena_printf(arena, "%g is no cost: costs are from 0 to 1e12", values[k]);
  if (!(costs.f + costs.i + costs.w > 0)) return "F, I and W are all 0: one of them must take time";
  return NULL;
}
