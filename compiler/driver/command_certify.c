/* `pdc certify`: derives the certificate of a plan or schedule from its lists alone, and compares it with what the file
 * claims. Exit status 1 and the first thing that is wrong if it is none. */
#include <string.h>

#include "artifact/document.h"
#include "artifact/words.h"
#include "driver/command_line.h"
#include "driver/commands.h"

typedef enum OptionId { CERTIFY_COSTS, CERTIFY_HELP } OptionId;

static const OptionRow rows[] = {
    {CERTIFY_COSTS, "--costs", FORM_EQUALS, "F,I,W[,LINK]",
     "measure with these times of a micro-batch through a rank's share, and of a hop"},
    {CERTIFY_HELP, "--help", FORM_FLAG, NULL, "this text"},
};
enum { ROW_COUNT = sizeof rows / sizeof *rows };

typedef struct Wanted {
  const char *input;
  bool has_costs;
  ShareCosts costs;
} Wanted;

static int help(void) {
  printf(
      "usage: pdc certify [--costs=F,I,W[,LINK]] FILE\n\n"
      "FILE is a pd-plan, a pd-schedule, or a CSV as PyTorch's pipelining schedules write it, with communication or\n"
      "without. Prints the certificate, or the first thing that is wrong with exit status 1.\n\noptions:\n");
  command_line_help(rows, ROW_COUNT);
  return EXIT_OK;
}

static int apply(Arena *arena, void *into, const OptionRow *row, const char *value) {
  Wanted *wanted = into;
  (void)arena;
  if (row->id == CERTIFY_HELP) return help();
  double costs[4] = {0};
  int status = parse_costs(value, costs);
  wanted->costs = (ShareCosts){costs[0], costs[1], costs[2], costs[3]};
  wanted->has_costs = true;
  return status;
}

static int take_word(void *into, const char *word) {
  Wanted *wanted = into;
  if (wanted->input) return usage_error("one file at a time: `%s` is a second", word);
  wanted->input = word;
  return -1;
}

static const char *fault_of(const Certificate *certificate) {
  if (!certificate->complete) return "not complete";
  if (!certificate->ordered) return "not in order";
  if (!certificate->matched) return "messages do not match";
  return "not free of deadlock";
}

/* "0 1.5 1.5", broken into lines of ten. */
static void print_row(Arena *arena, const char *name, const double *values, int count,
                      const char *(*words)(Arena *, double)) {
  printf("%-10s", name);
  for (int i = 0; i < count; i++)
    printf("%s%s", i == 0 ? "" : i % 10 == 0 ? "\n          " : "  ", words(arena, values[i]));
  printf("\n");
}

static const char *nanoseconds(Arena *arena, double time) {
  return time_words(arena, time, "ns");
}

static void print_certificate(Arena *arena, const char *path, const Document *document, const Measure *measure) {
  const pd_pipeline *pipeline = &document->pipeline;
  int64_t messages = 0;
  for (int rank = 0; rank < pipeline->pp; rank++)
    for (int64_t i = 0; i < pipeline->ranks[rank].count; i++)
      messages += pipeline->ranks[rank].at[i].kind == PD_SEND_F || pipeline->ranks[rank].at[i].kind == PD_SEND_B;
  for (const char *const *note = document->notes; note && *note; note++) printf("%-10s%s\n", "note", *note);
  printf("%-10s%s: %s, %s of %s, %s\n", "schedule", path, document->kind, count_words(arena, pipeline->pp, "rank"),
         count_words(arena, document->chunks, "chunk"), count_words(arena, pipeline->microbatches, "micro-batch"));
  printf("%-10severy micro-batch goes once through every chunk, forward and back\n", "complete");
  printf("%-10swhat an action reads on its rank comes before it; micro-batches of a chunk ascend\n", "ordered");
  printf("%-10s%s, each with its receive, in one order at both ends\n", "matched",
         count_words(arena, messages, "message"));
  printf("%-10sno deadlock with buffered, rendezvous or grouped sends\n", "acyclic");
  bool plan = document->form == DOCUMENT_PLAN;
  const char *costs =
      plan ? arena_printf(arena, "from the plan's costs, link = %s", time_words(arena, document->times.link, "ns"))
           : arena_printf(arena, "F = %s, I = %s, W = %s, link = %s", number_words(arena, document->costs.f),
                          number_words(arena, document->costs.i), number_words(arena, document->costs.w),
                          number_words(arena, document->costs.link));
  printf("%-10s%s (%s)\n", "makespan", time_words(arena, measure->makespan, document->unit), costs);
  printf("%-10s%s; no schedule of these chunks goes below %s (gap %s)\n", "beta",
         time_words(arena, measure->beta, document->unit), time_words(arena, measure->bound, document->unit),
         time_words(arena, measure->beta - measure->bound, document->unit));
  printf("%-10s%s\n", "sigma", time_words(arena, measure->sigma, document->unit));
  print_row(arena, "idle", measure->idle, pipeline->pp, plan ? nanoseconds : number_words);
  if (plan)
    print_row(arena, "memory", document->claims->peak, pipeline->pp, bytes_words);
  else
    print_row(arena, "peak", measure->peak, pipeline->pp, number_words);
}

static int certify(Arena *arena, const Wanted *wanted, Document *document) {
  Measure measure;
  document_measure(arena, document, &measure);
  if (measure.why) {
    fprintf(stderr, "pdc: %s: %s: %s\n", wanted->input, fault_of(&measure.certificate), measure.why);
    return EXIT_PROGRAM;
  }
  const char *wrong = document_check_claims(arena, document, &measure);
  if (wrong) {
    fprintf(stderr, "pdc: %s: it claims what is not so: %s\n", wanted->input, wrong);
    return EXIT_PROGRAM;
  }
  if (wanted->has_costs) {
    document_state_costs(arena, document, wanted->costs);
    document_measure(arena, document, &measure);
  }
  print_certificate(arena, wanted->input, document, &measure);
  return EXIT_OK;
}

int command_certify(Arena *arena, int argc, char **argv) {
  Wanted wanted = {0};
  CommandLine line = {"pdc certify", rows, ROW_COUNT, &wanted, apply, take_word};
  int status = command_line_walk(arena, &line, argc, argv, 1);
  if (status >= 0) return status;
  if (!wanted.input) return usage_error("say which file: %s", "pdc certify FILE");
  size_t length;
  const char *text = read_whole(arena, wanted.input, &length);
  if (!text) return EXIT_USAGE;
  Document document;
  const char *why = document_read(arena, text, length, &document);
  if (why) {
    fprintf(stderr, "pdc: %s: %s\n", wanted.input, why);
    return EXIT_PROGRAM;
  }
  status = certify(arena, &wanted, &document);
  document_free(&document);
  return status;
}
