/* What all forms of a document share: telling them apart, costs, sizes, measuring.
 *
 * Costs are multiplied by the smallest power of ten that makes them whole before a run is played, and a chunk's cost is
 * a share's: the clock then counts whole numbers, and a figure is rounded once, when it is divided again. So 0.1 + 0.2
 * is 0.3 here, and figures have the fewest digits. */
#include "artifact/document.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void document_free(Document *document) {
  json_decref(document->root);
  document->root = NULL;
}

const char *document_read(Arena *arena, const char *text, size_t length, Document *document) {
  *document = (Document){0};
  if (length > DOCUMENT_MOST_BYTES)
    return arena_printf(arena, "the file has %zu bytes; at most %d are read", length, DOCUMENT_MOST_BYTES);
  size_t first = 0;
  while (first < length && strchr(" \t\r\n", text[first]) && text[first]) first++;
  if (first == length) return "the file is empty";
  if (text[first] != '{') return schedule_read_csv(arena, text, length, document);
  bool plan = strstr(text, "\"pd-plan\"") != NULL && !strstr(text, "\"pd-schedule\"");
  return plan ? plan_read(arena, text, length, document) : schedule_read_json(arena, text, length, document);
}

/* ---- costs ---- */

/* The smallest power of ten that makes all four whole; 1 if none does. */
static double whole_scale(ShareCosts c) {
  double values[] = {c.f, c.i, c.w, c.link};
  for (double scale = 1; scale <= 1e6; scale *= 10) {
    bool whole = true;
    for (int k = 0; k < 4; k++) {
      double scaled = round(values[k] * scale);
      whole = whole && scaled < 1e12 && scaled / scale == values[k];
    }
    if (whole) return scale;
  }
  return 1;
}

static const double *same_for_all(Arena *arena, int count, double cost, double scale) {
  double *costs = ARENA_ARRAY(arena, double, count);
  double scaled = scale == 1 ? cost : round(cost * scale);
  for (int chunk = 0; chunk < count; chunk++) costs[chunk] = scaled;
  return costs;
}

void document_set_costs(Arena *arena, Document *document, ShareCosts costs) {
  double scale = whole_scale(costs);
  int count = document->pipeline.chunk_count;
  document->costs = costs;
  document->times =
      (ScheduleCosts){same_for_all(arena, count, costs.f, scale), same_for_all(arena, count, costs.i, scale),
                      same_for_all(arena, count, costs.w, scale),
                      (scale == 1 ? costs.link : round(costs.link * scale)) * document->chunks};
  document->scale = scale * document->chunks;
}

void document_state_costs(Arena *arena, Document *document, ShareCosts costs) {
  document_set_costs(arena, document, costs);
  document->claims = NULL;
  document->chunk_bytes = document->reductions = NULL;
  document->unit = "";
  if (document->form == DOCUMENT_PLAN) document->form = DOCUMENT_SCHEDULE;
}

/* ---- generating ---- */

/* Placed for the costs that the document has by now: a slow link has its receives posted earlier. */
static void add_messages(Arena *arena, Document *document) {
  bool *gradients = ARENA_ARRAY(arena, bool, document->pipeline.chunk_count);
  for (int chunk = 1; chunk < document->pipeline.chunk_count; chunk++) gradients[chunk] = true;
  schedule_insert_timed_communication(arena, &document->pipeline, &document->times, gradients, false);
  document->messages = true;
}

void document_adopt(Arena *arena, const char *kind, const pd_pipeline *pipeline, int chunks, ShareCosts costs,
                    Document *document) {
  *document = (Document){.form = DOCUMENT_SCHEDULE, .kind = kind, .pipeline = *pipeline, .chunks = chunks, .unit = ""};
  document_set_costs(arena, document, costs);
  add_messages(arena, document);
}

void document_generate(Arena *arena, const ScheduleKind *kind, const ScheduleRequest *request, ShareCosts costs,
                       Document *document) {
  pd_pipeline pipeline = schedule_make(arena, kind, request);
  document_adopt(arena, kind->name, &pipeline, request->chunks, costs, document);
}

/* ---- sizes ---- */

static int compare_actions(const void *left, const void *right) {
  const pd_action *a = left, *b = right;
  if (a->chunk != b->chunk) return a->chunk < b->chunk ? -1 : 1;
  return (a->microbatch > b->microbatch) - (a->microbatch < b->microbatch);
}

const char *document_check_size(Arena *arena, const pd_pipeline *pipeline) {
  int copies = pipeline->copies > 1 ? pipeline->copies : 1;
  int64_t actions = 0, forwards = 0, slots = (int64_t)pipeline->chunk_count * pipeline->microbatches;
  for (int rank = 0; rank < pipeline->pp; rank++) actions += pipeline->ranks[rank].count;
  if (slots <= actions) return NULL; /* the certifier says what is wrong with it */
  pd_action *all = arena_alloc(arena, sizeof *all * (size_t)(actions + 1));
  for (int rank = 0; rank < pipeline->pp; rank++)
    for (int64_t i = 0; i < pipeline->ranks[rank].count; i++)
      if (pipeline->ranks[rank].at[i].kind == PD_F) all[forwards++] = pipeline->ranks[rank].at[i];
  qsort(all, (size_t)forwards, sizeof *all, compare_actions);
  pd_action missing = {PD_F, 0, (int32_t)pd_chunk_first(pipeline, 0)};
  for (int64_t i = 0; i < forwards; i++) {
    int before = compare_actions(&all[i], &missing);
    if (before > 0) break;
    if (before < 0) continue; /* stands twice */
    bool last = missing.microbatch + 1 == pd_chunk_end(pipeline, missing.chunk);
    missing.chunk += last;
    if (missing.chunk == pipeline->chunk_count) break; /* all are there; the certifier has the word */
    missing.microbatch = last ? (int32_t)pd_chunk_first(pipeline, missing.chunk) : missing.microbatch + 1;
  }
  if (missing.chunk == pipeline->chunk_count) return NULL;
  char name[48];
  pd_action_text(missing, name);
  return arena_printf(
      arena, "%s is missing on rank %d: %d chunks and %lld micro-batches need %lld forwards, and there are %lld", name,
      pipeline->rank_of[missing.chunk], pipeline->chunk_count, (long long)pipeline->microbatches,
      (long long)slots / copies, (long long)forwards);
}

/* ---- measuring ---- */

double document_weight(const Document *document, int chunk) {
  return document->chunk_bytes ? document->chunk_bytes[chunk] : 1.0 / document->chunks;
}

double document_peak(const Document *document, int rank) {
  if (!document->chunk_bytes) return (double)schedule_held(&document->pipeline, rank) / document->chunks;
  const pd_action_list *list = &document->pipeline.ranks[rank];
  double now = 0, most = 0;
  for (int64_t i = 0; i < list->count; i++) {
    double bytes = document->chunk_bytes[list->at[i].chunk];
    if (list->at[i].kind == PD_F) now += bytes;
    if (now > most) most = now;
    if (list->at[i].kind == PD_B || list->at[i].kind == PD_W) now -= bytes;
  }
  return most;
}

/* Without messages: complete and ordered by the certifier, then whether the lists can be run at all. The certifier
 * wants reductions where there are several copies, and they come with the messages. */
static bool sound_without_messages(Arena *arena, const Document *document, Measure *measure) {
  if (document->pipeline.copies <= 1) {
    Certificate certificate = schedule_certify(arena, &document->pipeline);
    measure->certificate = (Certificate){.complete = certificate.complete, .ordered = certificate.ordered};
    measure->why = certificate.why;
    if (!certificate.complete || !certificate.ordered) return false;
  }
  ScheduleTiming timing;
  return schedule_simulate(arena, &document->pipeline, &document->times, &timing, &measure->why);
}

void document_measure(Arena *arena, Document *document, Measure *measure) {
  *measure = (Measure){0};
  int pp = document->pipeline.pp;
  if (!document->messages) {
    if (!sound_without_messages(arena, document, measure)) return;
    add_messages(arena, document);
  }
  measure->certificate = schedule_certify(arena, &document->pipeline);
  measure->why = measure->certificate.why;
  ScheduleTiming timing;
  const char *why;
  if (measure->why) return;
  if (!schedule_simulate(arena, &document->pipeline, &document->times, &timing, &why)) {
    measure->why = why;
    return;
  }
  measure->makespan = timing.makespan / document->scale;
  measure->beta = timing.beta / document->scale;
  measure->sigma = timing.sigma / document->scale;
  measure->bound = timing.bound / document->scale;
  measure->idle = timing.idle;
  measure->start = timing.start;
  measure->end = timing.end;
  measure->peak = ARENA_ARRAY(arena, double, pp);
  measure->first_of = ARENA_ARRAY(arena, int64_t, pp + 1);
  for (int rank = 0; rank < pp; rank++) {
    measure->idle[rank] /= document->scale;
    measure->peak[rank] = document_peak(document, rank);
    measure->first_of[rank + 1] = measure->first_of[rank] + document->pipeline.ranks[rank].count;
  }
  for (int64_t i = 0; i < measure->first_of[pp]; i++) {
    measure->start[i] /= document->scale;
    measure->end[i] /= document->scale;
  }
}

/* ---- claims ---- */

static const char *check_number(Arena *arena, const Document *document, const char *name, double claimed,
                                double measured) {
  if (claimed == measured) return NULL;
  return arena_printf(arena, "$.certificate.%s%s is %.17g in the file, but is %.17g", name,
                      document->form == DOCUMENT_PLAN ? "_ns" : "", claimed, measured);
}

const char *document_check_claims(Arena *arena, const Document *document, const Measure *measure) {
  const Claims *claims = document->claims;
  if (!claims) return NULL;
  const Certificate *c = &claims->certificate, *m = &measure->certificate;
  const struct {
    const char *name;
    bool claimed, found;
  } flags[] = {{"complete", c->complete, m->complete},
               {"ordered", c->ordered, m->ordered},
               {"matched", c->matched, m->matched},
               {"acyclic.buffered", c->acyclic_buffered, m->acyclic_buffered},
               {"acyclic.rendezvous", c->acyclic_rendezvous, m->acyclic_rendezvous},
               {"acyclic.grouped", c->acyclic_grouped, m->acyclic_grouped}};
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
    if (flags[i].claimed != flags[i].found)
      return arena_printf(arena, "$.certificate.%s is %s in the file, but is %s", flags[i].name,
                          flags[i].claimed ? "true" : "false", flags[i].found ? "true" : "false");
  const struct {
    const char *name;
    double claimed, found;
  } figures[] = {{"makespan", claims->makespan, measure->makespan},
                 {"beta", claims->beta, measure->beta},
                 {"sigma", claims->sigma, measure->sigma},
                 {"bound", claims->bound, measure->bound}};
  const char *why = NULL;
  for (size_t i = 0; i < sizeof figures / sizeof *figures && !why; i++)
    why = check_number(arena, document, figures[i].name, figures[i].claimed, figures[i].found);
  for (int rank = 0; rank < document->pipeline.pp && !why; rank++) {
    if (claims->idle[rank] != measure->idle[rank])
      why = arena_printf(arena, "$.certificate.idle%s[%d] is %.17g in the file, but is %.17g",
                         document->form == DOCUMENT_PLAN ? "_ns" : "", rank, claims->idle[rank], measure->idle[rank]);
    /* the bytes of a plan are more than what the lists say; its reader adds them up */
    else if (document->form == DOCUMENT_SCHEDULE && claims->peak[rank] != measure->peak[rank])
      why = arena_printf(arena, "$.certificate.peak[%d] is %.17g in the file, but is %.17g", rank, claims->peak[rank],
                         measure->peak[rank]);
  }
  return why;
}
