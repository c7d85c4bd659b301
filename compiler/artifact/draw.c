/* What all pictures show, from the lists and the times: boxes for computations, links for messages, memory held. */
#include "artifact/draw.h"

#include <string.h>

#include "artifact/words.h"

static bool is_compute(pd_action_kind kind) {
  return kind == PD_F || kind == PD_B || kind == PD_I || kind == PD_W;
}

/* Per chunk: how many chunks of its rank come before it. */
static int *local_numbers(Arena *arena, const pd_pipeline *pipeline, int *most) {
  int *local = ARENA_ARRAY(arena, int, pipeline->chunk_count), *count = ARENA_ARRAY(arena, int, pipeline->pp);
  *most = 0;
  for (int chunk = 0; chunk < pipeline->chunk_count; chunk++) {
    local[chunk] = count[pipeline->rank_of[chunk]]++;
    if (count[pipeline->rank_of[chunk]] > *most) *most = count[pipeline->rank_of[chunk]];
  }
  return local;
}

static void make_boxes(Picture *picture) {
  const pd_pipeline *pipeline = &picture->document->pipeline;
  const Measure *measure = picture->measure;
  int *local = local_numbers(picture->arena, pipeline, &picture->most_local);
  picture->boxes = ARENA_ARRAY(picture->arena, Box, measure->first_of[pipeline->pp]);
  picture->box_of_rank = ARENA_ARRAY(picture->arena, int64_t, pipeline->pp + 1);
  int64_t count = 0;
  for (int rank = 0; rank < pipeline->pp; rank++) {
    const pd_action_list *list = &pipeline->ranks[rank];
    double held = 0;
    int64_t chunks_held = 0; /* counted whole, so that thirds add up */
    picture->box_of_rank[rank] = count;
    for (int64_t i = 0; i < list->count; i++) {
      pd_action action = list->at[i];
      if (!is_compute(action.kind)) continue;
      int64_t at = measure->first_of[rank] + i;
      double weight = document_weight(picture->document, action.chunk);
      bool equal = !picture->document->chunk_bytes;
      Box *box = &picture->boxes[count++];
      *box = (Box){action, rank, local[action.chunk], measure->start[at], measure->end[at], held, held};
      if (action.kind == PD_F) {
        chunks_held++;
        held = equal ? (double)chunks_held / picture->document->chunks : held + weight;
      }
      box->held = held;
      if (held > picture->most_held) picture->most_held = held;
      if (action.kind == PD_B || action.kind == PD_W) {
        chunks_held--;
        held = equal ? (double)chunks_held / picture->document->chunks : held - weight;
      }
    }
  }
  picture->box_of_rank[pipeline->pp] = count;
}

/* Times of F and of the input gradient of every (chunk, micro-batch), to find both ends of a message. */
static void make_links(Picture *picture) {
  const pd_pipeline *pipeline = &picture->document->pipeline;
  int64_t m = pipeline->microbatches, boxes = picture->box_of_rank[pipeline->pp];
  const Box **made[2];
  for (int k = 0; k < 2; k++) made[k] = ARENA_ARRAY(picture->arena, const Box *, pipeline->chunk_count *m);
  for (int64_t i = 0; i < boxes; i++) {
    const Box *box = &picture->boxes[i];
    if (box->action.kind != PD_W) made[box->action.kind != PD_F][box->action.chunk * m + box->action.microbatch] = box;
  }
  picture->links = ARENA_ARRAY(picture->arena, Link, picture->measure->first_of[pipeline->pp] + 1);
  for (int rank = 0; rank < pipeline->pp; rank++)
    for (int64_t i = 0; i < pipeline->ranks[rank].count; i++) {
      pd_action action = pipeline->ranks[rank].at[i];
      if (action.kind != PD_SEND_F && action.kind != PD_SEND_B) continue;
      bool back = action.kind == PD_SEND_B;
      int peer = back ? pd_chunk_before(pipeline, action.chunk) : pd_chunk_after(pipeline, action.chunk);
      const Box *from = made[back][action.chunk * m + action.microbatch];
      const Box *to = peer == PD_NO_CHUNK ? NULL : made[back][peer * m + action.microbatch];
      if (!from || !to) continue;
      picture->links[picture->link_count++] =
          (Link){action, rank, to->rank, from->end, to->start, (from->start + from->end) / 2};
    }
}

/* A rank's reductions come one after another, each from its REDUCE_GRAD on. */
static void make_reductions(Picture *picture) {
  const pd_pipeline *pipeline = &picture->document->pipeline;
  const double *times = picture->document->reductions;
  picture->reductions = ARENA_ARRAY(picture->arena, Reduction, pipeline->chunk_count + 1);
  for (int rank = 0; rank < pipeline->pp; rank++) {
    double free_from = 0;
    for (int64_t i = 0; i < pipeline->ranks[rank].count; i++) {
      pd_action action = pipeline->ranks[rank].at[i];
      if (action.kind != PD_REDUCE_GRAD) continue;
      double start = picture->measure->end[picture->measure->first_of[rank] + i];
      if (start < free_from) start = free_from;
      free_from = start + (times ? times[action.chunk] : 0);
      picture->reductions[picture->reduction_count++] = (Reduction){action, rank, start, free_from};
      if (free_from > picture->end) picture->end = free_from;
    }
  }
}

void picture_make(Arena *arena, const Document *document, const Measure *measure, Picture *picture) {
  *picture = (Picture){.arena = arena, .document = document, .measure = measure};
  picture->end = measure->makespan;
  make_boxes(picture);
  make_links(picture);
  make_reductions(picture);
}

const char *picture_title(const Picture *picture) {
  const Document *document = picture->document;
  Arena *arena = picture->arena;
  const char *ranks = count_words(arena, document->pipeline.pp, "rank");
  if (document->chunks > 1) ranks = arena_printf(arena, "%s x %d chunks", ranks, document->chunks);
  if (document->pipeline.copies > 1) ranks = arena_printf(arena, "%s x %d copies", ranks, document->pipeline.copies);
  const char *title = arena_printf(arena, "%s, %s, %s", document->kind, ranks,
                                   count_words(arena, document->pipeline.microbatches, "micro-batch"));
  const json_t *model = json_object_get(document->root, "model");
  return model ? arena_printf(arena, "%.60s: %s", json_string_value(model), title) : title;
}

const char *picture_costs(const Picture *picture) {
  const Document *document = picture->document;
  Arena *arena = picture->arena;
  if (document->form != DOCUMENT_PLAN)
    return arena_printf(arena, "F = %s, I = %s, W = %s, link = %s", number_words(arena, document->costs.f),
                        number_words(arena, document->costs.i), number_words(arena, document->costs.w),
                        number_words(arena, document->costs.link));
  const json_t *cluster = json_object_get(document->root, "cluster");
  return arena_printf(arena, "times from FLOPs at %s TFLOP/s a rank, link = %s",
                      number_words(arena, json_number_value(json_object_get(cluster, "flops")) / 1e12),
                      time_words(arena, document->times.link, document->unit));
}

const char *picture_held(const Picture *picture, double held) {
  if (picture->document->chunk_bytes) return bytes_words(picture->arena, held);
  return arena_printf(picture->arena, "%s micro-batch%s", number_words(picture->arena, held), held == 1 ? "" : "es");
}

const char *action_words(pd_action_kind kind) {
  switch (kind) {
  case PD_F:
    return "forward";
  case PD_B:
    return "backward";
  case PD_I:
    return "input gradient";
  case PD_W:
    return "weight gradient";
  case PD_SEND_F:
  case PD_RECV_F:
    return "activations";
  case PD_SEND_B:
  case PD_RECV_B:
    return "gradients";
  default:
    return "reduction of gradients";
  }
}

void xml_put(Text *out, const char *text) {
  for (; *text; text++) {
    switch (*text) {
    case '&':
      text_put(out, "&amp;", 5);
      break;
    case '<':
      text_put(out, "&lt;", 4);
      break;
    case '>':
      text_put(out, "&gt;", 4);
      break;
    case '"':
      text_put(out, "&quot;", 6);
      break;
    default:
      text_put(out, (unsigned char)*text < 0x20 ? " " : text, 1);
    }
  }
}
