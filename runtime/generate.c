/* Sampling from a byte-level language model, one token at a time through the evaluation path.
 *
 * Assumes a causal model: rows of the window beyond the text are zeros and cannot reach the position that is read. The
 * window slides when it is full. One rank draws (the first that holds the logits) and tells all others, so that every
 * layout with the same weights prints the same text.
 */
#include "generate.h"

#include "random.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool pd_generate_possible(const pd_program *program, const char *prompt, pd_problem *problem) {
  if (program->logits_segment == PD_NONE) {
    return pd_problem_say(problem, "--generate: the model `%s` has no class logits to draw from", program->model);
  }
  const pd_data_info *tokens = program->data_count > 0 ? &program->data[0] : NULL;
  if (tokens == NULL || !tokens->is_integer || tokens->rank != 1 ||
      program->logits_rows_per_sample != tokens->shape[0]) {
    return pd_problem_say(problem,
                          "--generate: the first input of `%s` must be whole numbers [batch, seq], one logit row each",
                          program->model);
  }
  if (program->logits_classes > 256) {
    return pd_problem_say(problem,
                          "--generate: the model has %lld classes; only byte-level models, of at most 256, can be "
                          "read as text",
                          (long long)program->logits_classes);
  }
  for (const unsigned char *p = (const unsigned char *)prompt; *p != 0; p++) {
    if (tokens->limit > 0 && *p >= tokens->limit) {
      return pd_problem_say(problem,
                            "--generate: byte %d of the prompt, at position %td, is not below the model's %lld", *p,
                            p - (const unsigned char *)prompt, (long long)tokens->limit);
    }
  }
  return true;
}

/* The window at the start of row 0; everything else is zero, targets are ignored. */
static void fill(pd_run *run, const unsigned char *text, int64_t length) {
  const pd_program *program = run->program;
  for (int d = 0; d < program->data_count; d++) {
    const pd_data_info *info = &program->data[d];
    if (!pd_engine_uses_data(run->engine, d)) continue;
    void *place = pd_engine_data(run->engine, d, 0);
    const int64_t n = program->microbatch * info->elements;
    memset(place, 0, (size_t)(n * (info->is_integer ? 4 : program->real_bytes)));
    int32_t *ids = place;
    if (d == 0) {
      for (int64_t i = 0; i < length; i++) ids[i] = text[i];
    } else if (info->is_integer && info->is_target) {
      for (int64_t i = 0; i < n; i++) ids[i] = PD_IGNORE;
    }
  }
}

/* Row `row` of the logits, all classes, on the rank that draws; false on every other. */
static bool gather_logits(pd_run *run, int64_t row, double *logits) {
  const pd_program *program = run->program;
  const int64_t classes = program->logits_classes / (program->logits_split ? program->tp : 1);
  double own[256];
  if (run->world.dp_rank != 0 || !pd_engine_logits(run->engine, 0, row * classes, classes, own)) return false;
  if (program->logits_split) {
    MPI_Gather(own, (int)classes, MPI_DOUBLE, logits, (int)classes, MPI_DOUBLE, 0, run->world.tensor);
  } else {
    memcpy(logits, own, (size_t)classes * sizeof *own);
  }
  return run->world.tp_rank == 0;
}

static int draw(const double *logits, int64_t classes, double temperature, uint64_t seed, uint64_t position) {
  int best = 0;
  for (int c = 1; c < classes; c++) {
    if (logits[c] > logits[best]) best = c;
  }
  if (temperature <= 0) return best;
  double weight[256], sum = 0;
  for (int c = 0; c < classes; c++) sum += weight[c] = exp((logits[c] - logits[best]) / temperature);
  double left = (double)pd_uniform_at(seed, pd_purpose("generate"), position) * sum;
  for (int c = 0; c < classes; c++) {
    left -= weight[c];
    if (left < 0) return c;
  }
  return best; /* rounding only */
}

/* The token after `text`, the same on every rank. */
static int next_token(pd_run *run, const unsigned char *text, int64_t length, uint64_t position, double *inverse,
                      double *results, int64_t *samples) {
  double logits[256];
  fill(run, text, length);
  pd_engine_evaluate(run->engine, 1, samples, inverse, 1, results);
  int token = -1, drawn;
  if (gather_logits(run, length - 1, logits)) {
    token = draw(logits, run->program->logits_classes, run->options.temperature, (uint64_t)run->options.seed, position);
  }
  MPI_Allreduce(&token, &drawn, 1, MPI_INT, MPI_MAX, run->world.all);
  return drawn;
}

void pd_generate(pd_run *run) {
  const pd_program *program = run->program;
  const int64_t window = program->data[0].shape[0];
  const char *prompt = *run->options.generate != 0 ? run->options.generate : "\n"; /* something to continue */
  const int64_t given = (int64_t)strlen(prompt);
  unsigned char *text = malloc((size_t)(given + run->options.tokens));
  double *inverse = calloc((size_t)program->normaliser_count + 1, sizeof *inverse);
  double *results = calloc((size_t)program->metric_count + 1, sizeof *results);
  int64_t samples[1] = {1};
  if (text == NULL || inverse == NULL || results == NULL) pd_fail(PD_EXIT_MEMORY, "not enough memory");
  memcpy(text, prompt, (size_t)given);
  const bool speaks = run->world.rank == 0;
  if (speaks) fwrite(run->options.generate, 1, strlen(run->options.generate), stdout);
  for (int64_t length = given; length < given + run->options.tokens; length++) {
    const int64_t from = length > window ? length - window : 0;
    const int token = next_token(run, text + from, length - from, (uint64_t)length, inverse, results, samples);
    text[length] = (unsigned char)token;
    if (speaks) {
      putchar(token);
      fflush(stdout);
    }
  }
  if (speaks) {
    putchar('\n');
    if (fflush(stdout) != 0 || ferror(stdout))
      pd_fail(PD_EXIT_USAGE, "standard output: cannot write: %s", strerror(errno));
  }
  free(text);
  free(inverse);
  free(results);
}
