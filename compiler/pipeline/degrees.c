/* Tries every degree on diagnostics of its own, so that what is wrong with one is a reason and no error. */
#include "pipeline/degrees.h"

#include <inttypes.h>
#include <string.h>

#include "pipeline/limits.h"
#include "pipeline/stages.h"

/* What bounds the work: degrees, and pairs of a chunk and a micro-batch in the plans of all of them. */
enum { MOST_DEGREES = 64, MOST_PAIRS = 1 << 20, MOST_DP = 1 << 20, MOST_NOTES = 8 };

/* One pass over a degree: false, and an error in `diagnostics`, when it cannot be. */
typedef bool Attempt(const Degrees *degrees, Degree *degree, Diagnostics *diagnostics);

/* Adds the degree `dp`, which divides the batch. */
static void add(Degrees *degrees, const Config *config, int64_t dp) {
  Degree degree = {.config = *config};
  degree.config.dp = dp;
  degree.config.microbatches = config->batch / (dp * config->microbatch);
  vec_push(degrees->arena, &degrees->at, degree);
}

/* Every degree of dp=* failed: for one reason, which is reported as for a program with that dp, or each for its own. */
static void report_none(Degrees *degrees, const Degree *first, Attempt *attempt, Diagnostics *diagnostics) {
  bool alike = true;
  for (uint32_t i = 1; i < degrees->left_out.count; i++)
    alike &= strcmp(degrees->left_out.at[i].why, degrees->left_out.at[0].why) == 0;
  if (alike) {
    Degree again = *first;
    attempt(degrees, &again, diagnostics);
    return;
  }
  Diag *diag = diag_error(diagnostics, "E0516", first->config.dp_span, "`dp=*`: no number of replicas can be planned");
  for (uint32_t i = 0; i < degrees->left_out.count && i < MOST_NOTES; i++)
    diag_note(diag, "dp %" PRId64 ": %s", degrees->left_out.at[i].dp, degrees->left_out.at[i].why);
  if (degrees->left_out.count > MOST_NOTES) diag_note(diag, "and %u more", degrees->left_out.count - MOST_NOTES);
  diag_help(diag, "-D parallel.dp=%" PRId64 " compiles for one of them, and says what would help", degrees->left_out.at[0].dp);
}

/* Keeps the degrees for which `attempt` succeeds. False if there are none; then errors were reported. */
static bool keep(Degrees *degrees, Attempt *attempt, Diagnostics *diagnostics) {
  Degree first = degrees->at.at[0];
  uint32_t kept = 0;
  for (uint32_t i = 0; i < degrees->at.count; i++) {
    Degree degree = degrees->at.at[i];
    Diagnostics *own = degrees->open ? diagnostics_new(degrees->arena) : diagnostics;
    if (attempt(degrees, &degree, own)) degrees->at.at[kept++] = degree;
    else if (degrees->open) vec_push(degrees->arena, &degrees->left_out, ((LeftOut){degree.config.dp, diag_first_error(own)}));
  }
  degrees->at.count = kept;
  if (!kept && degrees->open) report_none(degrees, &first, attempt, diagnostics);
  return kept > 0;
}

static bool within_limits(const Degrees *degrees, Degree *degree, Diagnostics *diagnostics) {
  return limits_check(degrees->graph, &degree->config, diagnostics);
}

/* Keeps as many degrees as have few enough micro-batches together, the largest first: those have the fewest. */
static void keep_bounded(Degrees *degrees) {
  int64_t pairs = 0;
  uint32_t first = degrees->at.count;
  while (first > 0) {
    const Config *config = &degrees->at.at[first - 1].config;
    pairs += config->pp * config->chunks * config->microbatches; /* limits.h: each is at most MOST_PAIRS */
    if (pairs > MOST_PAIRS && first < degrees->at.count) break;
    first--;
  }
  for (uint32_t i = 0; i < first; i++)
    vec_push(degrees->arena, &degrees->left_out,
             ((LeftOut){degrees->at.at[i].config.dp, "its plan and those of larger dp have too many micro-batches together"}));
  degrees->at.count -= first;
  memmove(degrees->at.at, degrees->at.at + first, sizeof *degrees->at.at * degrees->at.count);
}

Degrees *degrees_find(Arena *arena, const Graph *graph, const Config *config, Diagnostics *diagnostics) {
  Degrees *degrees = ARENA_NEW(arena, Degrees);
  *degrees = (Degrees){.arena = arena, .graph = graph, .open = config->dp_open};
  int64_t steps = config->batch / config->microbatch; /* of all replicas */
  int64_t most = INT32_MAX / (config->pp * config->tp); /* MPI counts ranks in 32 bits */
  if (most > MOST_DP) most = MOST_DP;
  if (!config->dp_open) add(degrees, config, config->dp);
  for (int64_t dp = 1; config->dp_open && dp <= steps; dp++) {
    if ((dp > most && dp > 1) || degrees->at.count == MOST_DEGREES) {
      degrees->last = dp - 1;
      break;
    }
    if (steps % dp == 0) add(degrees, config, dp);
  }
  if (keep(degrees, within_limits, diagnostics) && degrees->open) keep_bounded(degrees);
  return degrees;
}

static bool plan(const Degrees *degrees, Degree *degree, Diagnostics *diagnostics) {
  degree->pipeline =
      stages_plan(degrees->arena, degrees->graph, &degree->config, degree->program, diagnostics, &degree->unit_flops);
  return degree->pipeline != NULL;
}

bool degrees_plan(Degrees *degrees, const pd_program *program, Diagnostics *diagnostics) {
  for (uint32_t i = 0; i < degrees->at.count; i++) {
    Degree *degree = &degrees->at.at[i];
    degree->program = ARENA_NEW(degrees->arena, pd_program);
    *degree->program = *program;
    degree->program->dp = (int)degree->config.dp;
    degree->program->microbatches = degree->config.microbatches;
  }
  return keep(degrees, plan, diagnostics);
}

const Prediction *degree_predict(const Degrees *degrees, Degree *degree) {
  Prices prices = {&degree->config, degree->program, degree->unit_flops};
  if (!degree->prediction)
    degree->prediction = predict_step(degrees->arena, &prices, degrees->graph, degree->pipeline);
  return degree->prediction;
}

const char *degrees_text(const Degrees *degrees) {
  Text text = {.arena = degrees->arena};
  uint32_t count = degrees->at.count;
  for (uint32_t i = 0; i < count; i++)
    text_printf(&text, "%s%" PRId64, i == 0 ? "" : i + 1 < count ? ", " : " and ", degrees->at.at[i].config.dp);
  return text.at;
}

static int64_t largest_total(const Degree *degree) {
  int64_t largest = 0;
  for (int rank = 0; rank < degree->pipeline->pp; rank++) {
    pd_layout *layout = pd_layout_new(degree->program, degree->pipeline, rank);
    if (pd_layout_total(layout) > largest) largest = pd_layout_total(layout);
    pd_layout_free(layout);
  }
  return largest;
}

void degrees_say(const Degrees *degrees, FILE *out) {
  fprintf(out, "dp=*: the launch gives the number of replicas, one of %s\n", degrees_text(degrees));
  fprintf(out, "%8s%10s%15s  %-16s%20s%14s\n", "dp", "ranks", "micro-batches", "schedule", "bytes a rank, most", "step, s");
  for (uint32_t i = 0; i < degrees->at.count; i++) {
    Degree *degree = &degrees->at.at[i];
    const Config *config = &degree->config;
    fprintf(out, "%8" PRId64 "%10" PRId64 "%15" PRId64 "  %-16s%20" PRId64 "%14.6g\n", config->dp,
            config->pp * config->dp * config->tp, config->microbatches, config->schedule, largest_total(degree),
            degree_predict(degrees, degree)->step / 1e9);
  }
  for (uint32_t i = 0; i < degrees->left_out.count; i++)
    fprintf(out, "not dp %" PRId64 ": %s\n", degrees->left_out.at[i].dp, degrees->left_out.at[i].why);
  if (degrees->last > 0) fprintf(out, "larger ones than dp %" PRId64 " were not tried\n", degrees->last);
  fprintf(out, "what follows is of dp %" PRId64 "\n", degrees->at.at[0].config.dp);
}
