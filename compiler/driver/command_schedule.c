/* `pdc schedule`: generates a pipeline schedule without a model, or takes one from a file, certifies it, and writes it
 * as JSON, as CSV for PyTorch or as a picture. What is not certified is not written. */
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "artifact/artifact.h"
#include "artifact/draw.h"
#include "artifact/words.h"
#include "driver/command_line.h"
#include "driver/commands.h"
#include "pipeline/planner.h"

typedef enum Format {
  FORMAT_JSON,
  FORMAT_CSV,
  FORMAT_COMMS_CSV,
  FORMAT_WAITS_CSV,
  FORMAT_TEXT,
  FORMAT_SVG,
  FORMAT_HTML,
  FORMAT_TRACE
} Format;

static const struct {
  const char *name;
  Format format;
} formats[] = {{"json", FORMAT_JSON},           {"csv", FORMAT_CSV},    {"comms-csv", FORMAT_COMMS_CSV},
               {"waits-csv", FORMAT_WAITS_CSV}, {"text", FORMAT_TEXT},  {"svg", FORMAT_SVG},
               {"html", FORMAT_HTML},           {"trace", FORMAT_TRACE}};
enum { FORMAT_COUNT = sizeof formats / sizeof *formats };

typedef enum OptionId {
  SCHEDULE_KIND,
  SCHEDULE_PP,
  SCHEDULE_MICROBATCHES,
  SCHEDULE_CHUNKS,
  SCHEDULE_COSTS,
  SCHEDULE_MEMORY,
  SCHEDULE_FORMAT,
  SCHEDULE_COLUMNS,
  SCHEDULE_OUTPUT,
  SCHEDULE_VERBOSE,
  SCHEDULE_HELP
} OptionId;

static const OptionRow rows[] = {
    {SCHEDULE_KIND, "--kind", FORM_EQUALS, "KIND",
     "the kind of schedule (below is a list), or auto: the best for these costs"},
    {SCHEDULE_PP, "--pp", FORM_EQUALS, "N", "ranks of the pipeline"},
    {SCHEDULE_MICROBATCHES, "--microbatches", FORM_EQUALS, "N", "micro-batches of a step"},
    {SCHEDULE_CHUNKS, "--chunks", FORM_EQUALS, "N",
     "chunks of the model on a rank (default: the fewest that the kind takes)"},
    {SCHEDULE_COSTS, "--costs", FORM_EQUALS, "F,I,W[,LINK]",
     "times of a micro-batch through a rank's share, and of a hop (default 1,1,1,0)"},
    {SCHEDULE_MEMORY, "--memory", FORM_EQUALS, "UNITS", "refuse if a rank holds more micro-batches than this"},
    {SCHEDULE_FORMAT, "--format", FORM_EQUALS, "FORM",
     "json (default); csv: computations; comms-csv: with messages; waits-csv: and\n                         "
     "with waits, as PyTorch of today wants; text, svg, html; trace: for Chrome"},
    {SCHEDULE_COLUMNS, "--columns", FORM_EQUALS, "N", "width of the text (default: the terminal's, else 100)"},
    {SCHEDULE_OUTPUT, "-o", FORM_JOINED_OR_NEXT, "FILE", "write to FILE instead of standard output"},
    {SCHEDULE_VERBOSE, "-v", FORM_FLAG, NULL, "with --kind=auto: say why every other kind was not taken"},
    {SCHEDULE_HELP, "--help", FORM_FLAG, NULL, "this text"},
};
enum { ROW_COUNT = sizeof rows / sizeof *rows };

typedef struct Wanted {
  const char *kind, *input, *output;
  int64_t pp, chunks, microbatches; /* 0: not said */
  bool has_costs;
  ShareCosts costs;
  double memory; /* 0: no limit */
  bool verbose;
  Format format;
  int64_t columns;
} Wanted;

static const char *kind_list(Arena *arena) {
  Text text = {.arena = arena};
  for (const char *const *name = schedule_names(); *name; name++) text_printf(&text, "%s, ", *name);
  text_printf(&text, "auto");
  return text.at;
}

static int help(Arena *arena) {
  printf("usage: pdc schedule --kind=KIND --pp=N --microbatches=N [options]   generate a schedule\n"
         "       pdc schedule [options] FILE                                  read a plan, pd-schedule or CSV, write "
         "it in another form\n"
         "\noptions:\n");
  command_line_help(rows, ROW_COUNT);
  printf("\nkinds: %s\n", kind_list(arena));
  return EXIT_OK;
}

static int choose_format(const char *value, Format *format) {
  for (int i = 0; i < FORMAT_COUNT; i++)
    if (strcmp(formats[i].name, value) == 0) {
      *format = formats[i].format;
      return -1;
    }
  return usage_error("--format=%s: choose one of json, csv, comms-csv, waits-csv, text, svg, html, trace", value);
}

static int apply(Arena *arena, void *into, const OptionRow *row, const char *value) {
  Wanted *wanted = into;
  switch ((OptionId)row->id) {
  case SCHEDULE_KIND:
    wanted->kind = value;
    break;
  case SCHEDULE_PP:
    return parse_whole(row->name, value, 1, DOCUMENT_MOST_RANKS, &wanted->pp);
  case SCHEDULE_MICROBATCHES:
    return parse_whole(row->name, value, 1, DOCUMENT_MOST_MICROBATCHES, &wanted->microbatches);
  case SCHEDULE_CHUNKS:
    return parse_whole(row->name, value, 1, DOCUMENT_MOST_CHUNKS, &wanted->chunks);
  case SCHEDULE_COSTS: {
    double costs[4] = {0};
    int status = parse_costs(value, costs);
    wanted->costs = (ShareCosts){costs[0], costs[1], costs[2], costs[3]};
    wanted->has_costs = true;
    return status;
  }
  case SCHEDULE_MEMORY:
    return parse_number(row->name, value, &wanted->memory);
  case SCHEDULE_FORMAT:
    return choose_format(value, &wanted->format);
  case SCHEDULE_COLUMNS:
    return parse_whole(row->name, value, 40, 1000, &wanted->columns);
  case SCHEDULE_OUTPUT:
    wanted->output = value;
    break;
  case SCHEDULE_VERBOSE:
    wanted->verbose = true;
    break;
  case SCHEDULE_HELP:
    return help(arena);
  }
  return -1;
}

static int take_word(void *into, const char *word) {
  Wanted *wanted = into;
  if (wanted->input) return usage_error("one schedule at a time: `%s` is a second file", word);
  wanted->input = word;
  return -1;
}

static int check_wanted(Arena *arena, const Wanted *wanted) {
  if (wanted->input) {
    if (!wanted->kind && !wanted->pp && !wanted->microbatches && !wanted->chunks) return -1;
    return usage_error("%s says its kind, pp, micro-batches and chunks itself: give either a file or these",
                       wanted->input);
  }
  if (!wanted->kind) return usage_error("say which schedule: --kind=KIND; this version has %s", kind_list(arena));
  if (strcmp(wanted->kind, "auto") != 0 && !schedule_find(wanted->kind)) {
    fprintf(stderr, "pdc: --kind=%s: this version has %s\n", wanted->kind, kind_list(arena));
    return EXIT_USAGE;
  }
  if (!wanted->pp) return usage_error("say how many ranks: %s", "--pp=N");
  if (!wanted->microbatches) return usage_error("say how many micro-batches: %s", "--microbatches=N");
  return -1;
}

/* Without --chunks the fewest that the kind takes. */
static const char *refusal_of(Arena *arena, const ScheduleKind *kind, const Wanted *wanted, ScheduleRequest *request) {
  const char *why = NULL;
  *request = (ScheduleRequest){.pp = (int)wanted->pp, .chunks = 1, .microbatches = wanted->microbatches};
  if (wanted->chunks) request->chunks = (int)wanted->chunks;
  for (int chunks = 1; chunks <= (wanted->chunks ? 1 : 4); chunks++) {
    ScheduleRequest asked = *request;
    if (!wanted->chunks) asked.chunks = chunks;
    const char *here = kind->refuse ? kind->refuse(arena, &asked) : NULL;
    if (!here) {
      *request = asked;
      return NULL;
    }
    if (!why) why = here;
  }
  return why;
}

/* NULL if what is asked for can be held, measured and read again. */
static const char *too_large(Arena *arena, int64_t pp, int64_t chunks, int64_t microbatches) {
  if (pp * chunks > DOCUMENT_MOST_CHUNKS / 4)
    return arena_printf(arena, "%lld chunks are too many: at most %d", (long long)(pp * chunks),
                        DOCUMENT_MOST_CHUNKS / 4);
  if (pp * chunks * microbatches <= DOCUMENT_MOST_ACTIONS / 7) return NULL; /* a pair has at most seven actions */
  return arena_printf(arena, "%lld chunks and %lld micro-batches are too many: at most %d pairs of them",
                      (long long)(pp * chunks), (long long)microbatches, DOCUMENT_MOST_ACTIONS / 7);
}

static int generate(Arena *arena, const Wanted *wanted, Document *document) {
  const ScheduleKind *kind = schedule_find(wanted->kind);
  ScheduleRequest request;
  const char *why = refusal_of(arena, kind, wanted, &request);
  if (!why) why = too_large(arena, request.pp, request.chunks, request.microbatches);
  if (why) {
    fprintf(stderr, "pdc: %s\n", why);
    return EXIT_PROGRAM;
  }
  document_generate(arena, kind, &request, wanted->costs, document);
  return -1;
}

static int choose(Arena *arena, const Wanted *wanted, Document *document) {
  double *times[3];
  for (int k = 0; k < 3; k++) {
    times[k] = ARENA_ARRAY(arena, double, wanted->pp);
    for (int64_t rank = 0; rank < wanted->pp; rank++)
      times[k][rank] = k == 0 ? wanted->costs.f : k == 1 ? wanted->costs.i : wanted->costs.w;
  }
  PlannerInput input = {.pp = (int)wanted->pp,
                        .microbatches = wanted->microbatches,
                        .chunks = (int)wanted->chunks,
                        .barrier = true,
                        .f = times[0],
                        .i = times[1],
                        .w = times[2],
                        .link = wanted->costs.link,
                        .memory = wanted->memory};
  PlannerChoice choice;
  const char *large = too_large(arena, wanted->pp, wanted->chunks ? wanted->chunks : 4, wanted->microbatches);
  if (large) {
    fprintf(stderr, "pdc: auto: %s\n", large);
    return EXIT_PROGRAM;
  }
  bool found = planner_choose(arena, &input, &choice);
  for (int i = 0; (wanted->verbose || !found) && i < choice.rejected_count; i++)
    fprintf(stderr, "pdc: auto: %s\n", choice.rejected[i]);
  fprintf(stderr, "pdc: auto: %s\n", choice.why);
  if (!found) return EXIT_PROGRAM;
  document_adopt(arena, choice.kind, &choice.pipeline, choice.chunks, wanted->costs, document);
  return -1;
}

static int load(Arena *arena, const Wanted *wanted, Document *document) {
  size_t length;
  const char *text = read_whole(arena, wanted->input, &length);
  if (!text) return EXIT_USAGE;
  const char *why = document_read(arena, text, length, document);
  if (why) {
    fprintf(stderr, "pdc: %s: %s\n", wanted->input, why);
    return EXIT_PROGRAM;
  }
  for (const char *const *note = document->notes; note && *note; note++)
    fprintf(stderr, "pdc: %s: note: %s\n", wanted->input, *note);
  if (wanted->has_costs) document_state_costs(arena, document, wanted->costs);
  if (document->form == DOCUMENT_PLAN && wanted->format == FORMAT_JSON) {
    fprintf(stderr,
            "pdc: %s: every chunk of a plan has costs of its own, a pd-schedule has one for all: say --costs=F,I,W\n",
            wanted->input);
    return EXIT_USAGE;
  }
  return -1;
}

/* Over the limit: which rank holds how much. */
static bool fits(Arena *arena, const Wanted *wanted, const Document *document, const Measure *measure) {
  if (wanted->memory <= 0 || document->chunk_bytes) return true;
  for (int rank = 0; rank < document->pipeline.pp; rank++)
    if (measure->peak[rank] > wanted->memory) {
      fprintf(stderr, "pdc: %s holds %s micro-batches on rank %d, but --memory is %s\n", document->kind,
              number_words(arena, measure->peak[rank]), rank, number_words(arena, wanted->memory));
      return false;
    }
  return true;
}

static int columns_of(const Wanted *wanted) {
  struct winsize size;
  if (wanted->columns) return (int)wanted->columns;
  bool terminal = !wanted->output && isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  if (!terminal || size.ws_col == 0) return 100;
  return size.ws_col < 80 ? 80 : size.ws_col > 200 ? 200 : size.ws_col;
}

static void write_form(Arena *arena, const Wanted *wanted, const Document *document, const Measure *measure,
                       Text *out) {
  switch (wanted->format) {
  case FORMAT_JSON:
    schedule_write_json(document, measure, out);
    break;
  case FORMAT_CSV:
    schedule_write_compute_csv(&document->pipeline, out);
    break;
  case FORMAT_COMMS_CSV:
    schedule_write_csv(&document->pipeline, out);
    break;
  case FORMAT_WAITS_CSV:
    schedule_write_waits_csv(arena, &document->pipeline, out);
    break;
  case FORMAT_TEXT:
    draw_text(arena, document, measure, columns_of(wanted), out);
    break;
  case FORMAT_SVG:
    draw_svg(arena, document, measure, out);
    break;
  case FORMAT_HTML:
    draw_html(arena, document, measure, out);
    break;
  case FORMAT_TRACE:
    draw_trace(arena, document, measure, out);
    break;
  }
}

static int write_schedule(Arena *arena, const Wanted *wanted, Document *document) {
  Measure measure;
  document_measure(arena, document, &measure);
  if (measure.why) {
    fprintf(stderr, "pdc: %s: not certified: %s\n", wanted->input ? wanted->input : document->kind, measure.why);
    return wanted->input ? EXIT_PROGRAM : EXIT_INTERNAL;
  }
  if (!fits(arena, wanted, document, &measure)) return EXIT_PROGRAM;
  Text out = {.arena = arena};
  write_form(arena, wanted, document, &measure, &out);
  return write_whole(arena, wanted->output ? wanted->output : "-", out.at, out.length) ? EXIT_OK : EXIT_USAGE;
}

int command_schedule(Arena *arena, int argc, char **argv) {
  Wanted wanted = {.format = FORMAT_JSON, .costs = {1, 1, 1, 0}};
  CommandLine line = {"pdc schedule", rows, ROW_COUNT, &wanted, apply, take_word};
  int status = command_line_walk(arena, &line, argc, argv, 1);
  if (status < 0) status = check_wanted(arena, &wanted);
  if (status >= 0) return status;
  Document document = {0};
  if (wanted.input)
    status = load(arena, &wanted, &document);
  else if (strcmp(wanted.kind, "auto") == 0)
    status = choose(arena, &wanted, &document);
  else
    status = generate(arena, &wanted, &document);
  if (status < 0) status = write_schedule(arena, &wanted, &document);
  document_free(&document);
  return status;
}
