/* A schedule in the format of Chrome's trace viewer (chrome://tracing, Perfetto): a thread per rank, flows for
 * messages, a counter per rank for what it holds. Times are microseconds; where a schedule's times have no unit, one is
 * shown as a millisecond. An event is one line. */
#include <string.h>

#include "artifact/draw.h"
#include "artifact/json.h"

typedef struct Trace {
  const Picture *picture;
  Text *out;
  double scale; /* microseconds per time */
} Trace;

static const char *number_text(const Trace *trace, double value) {
  Text text = {.arena = trace->picture->arena};
  json_put_number(&(Json){.out = &text}, NULL, value);
  return text.at;
}

static const char *string_text(const Trace *trace, const char *value) {
  Text text = {.arena = trace->picture->arena};
  json_put_string(&(Json){.out = &text}, NULL, value);
  return text.at;
}

/* The members that every event has. */
static void begin(Trace *trace, char phase, const char *name, int rank, double time) {
  text_printf(trace->out, ",\n{\"ph\":\"%c\",\"name\":%s,\"pid\":0,\"tid\":%d,\"ts\":%s", phase,
              string_text(trace, name), rank, number_text(trace, time * trace->scale));
}

static void put_names(Trace *trace) {
  int pp = trace->picture->document->pipeline.pp;
  text_printf(trace->out, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":0,\"args\":{\"name\":%s}}",
              string_text(trace, picture_title(trace->picture)));
  for (int rank = 0; rank < pp; rank++)
    text_printf(trace->out,
                ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":0,\"tid\":%d,\"args\":{\"name\":\"rank %d\"}},\n"
                "{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":0,\"tid\":%d,\"args\":{\"sort_index\":%d}}",
                rank, rank, rank, rank);
}

static void put_boxes(Trace *trace) {
  const Picture *picture = trace->picture;
  bool bytes = picture->document->chunk_bytes != NULL;
  int pp = picture->document->pipeline.pp;
  for (int rank = 0; rank < pp; rank++) {
    double held = 0;
    for (int64_t i = picture->box_of_rank[rank]; i < picture->box_of_rank[rank + 1]; i++) {
      const Box *box = &picture->boxes[i];
      double after = i + 1 < picture->box_of_rank[rank + 1] ? picture->boxes[i + 1].before : 0;
      char name[48];
      pd_action_text(box->action, name);
      begin(trace, 'X', name, rank, box->start);
      text_printf(trace->out, ",\"dur\":%s,\"cat\":%s,\"args\":{\"chunk\":%d,\"microbatch\":%d}}",
                  number_text(trace, (box->end - box->start) * trace->scale),
                  string_text(trace, action_words(box->action.kind)), (int)box->action.chunk,
                  (int)box->action.microbatch);
      const double values[] = {box->held, after}, times[] = {box->start, box->end};
      for (int k = 0; k < 2; k++) {
        if (values[k] == held) continue;
        held = values[k];
        begin(trace, 'C', arena_printf(picture->arena, "rank %d holds", rank), rank, times[k]);
        text_printf(trace->out, ",\"args\":{\"%s\":%s}}", bytes ? "bytes" : "micro-batches", number_text(trace, held));
      }
    }
  }
}

/* On a row of their own below the rank's: they run beside its computations. */
static void put_reductions(Trace *trace) {
  const Picture *picture = trace->picture;
  int pp = picture->document->pipeline.pp;
  for (int64_t i = 0; i < picture->reduction_count; i++) {
    const Reduction *reduction = &picture->reductions[i];
    char name[48];
    pd_action_text(reduction->action, name);
    if (i == 0 || reduction->rank != picture->reductions[i - 1].rank)
      text_printf(trace->out,
                  ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":0,\"tid\":%d,\"args\":{\"name\":\"rank %d "
                  "reduces\"}},\n{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":0,\"tid\":%d,\"args\":{\"sort_"
                  "index\":%d}}",
                  pp + reduction->rank, reduction->rank, pp + reduction->rank, reduction->rank);
    begin(trace, 'X', name, pp + reduction->rank, reduction->start);
    text_printf(trace->out, ",\"dur\":%s,\"cat\":%s,\"args\":{\"chunk\":%d}}",
                number_text(trace, (reduction->end - reduction->start) * trace->scale),
                string_text(trace, action_words(PD_REDUCE_GRAD)), (int)reduction->action.chunk);
  }
}

static void put_links(Trace *trace) {
  const Picture *picture = trace->picture;
  for (int64_t i = 0; i < picture->link_count; i++) {
    const Link *link = &picture->links[i];
    const char *name = action_words(link->action.kind);
    begin(trace, 's', name, link->from, link->middle); /* a flow leaves from the box around its time */
    text_printf(trace->out, ",\"cat\":\"message\",\"id\":%lld}", (long long)i);
    begin(trace, 'f', name, link->to, link->end);
    text_printf(trace->out, ",\"cat\":\"message\",\"id\":%lld,\"bp\":\"e\"}", (long long)i);
  }
}

void draw_trace(Arena *arena, const Document *document, const Measure *measure, Text *out) {
  Picture picture;
  picture_make(arena, document, measure, &picture);
  Trace trace = {.picture = &picture, .out = out, .scale = strcmp(document->unit, "ns") == 0 ? 1e-3 : 1e3};
  text_printf(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
  put_names(&trace);
  put_boxes(&trace);
  put_reductions(&trace);
  put_links(&trace);
  text_printf(out, "\n]}\n");
}
