/* The command line of a compiled program.
 *
 * Adding an option is one row of `rows` and one field of pd_options: the parser, the error texts and --help read the
 * table. Later values win over earlier ones.
 */
#include "options.h"

#include "degrees.h"
#include "world.h" /* exit codes */

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table ---- */

typedef enum kind { FLAG, WHOLE, REAL, TEXT, OPTIONAL, CHOICE } kind; /* OPTIONAL: a text, empty when it is not given */

typedef struct row {
  const char *name, *value; /* value: how --help calls it; for CHOICE the words, joined by | */
  kind kind;
  size_t at; /* offset in pd_options */
  int64_t low, high;
  const char *help;
} row;

#define AT(field) offsetof(pd_options, field)
static const row rows[] = {
    {"steps", "N", WHOLE, AT(steps), 0, INT64_MAX, "optimizer steps to train for; 0 trains nothing"},
    {"seed", "N", WHOLE, AT(seed), 0, INT64_MAX, "seed of initial weights, dropout and data order"},
    {"data", "PATH", TEXT, AT(data), 0, 0, "training data: a file, a directory, or input=file,input=file"},
    {"valid", "PATH", TEXT, AT(valid), 0, 0, "validation data, in the same forms"},
    {"eval-every", "N", WHOLE, AT(eval_every), 0, INT64_MAX,
     "evaluate every N steps, besides at the end; 0: only there"},
    {"init", "W.safetensors", TEXT, AT(init), 0, 0, "start from these weights"},
    {"save", "W.safetensors", TEXT, AT(save), 0, 0, "save the weights at the end (and every save_every steps)"},
    {"checkpoint", "DIR", TEXT, AT(checkpoint), 0, 0, "write checkpoints into this directory"},
    {"save-every", "N", WHOLE, AT(save_every), 0, INT64_MAX,
     "save weights and checkpoints every N steps, besides at the end; 0: only there"},
    {"keep", "N", WHOLE, AT(keep), 0, INT64_MAX, "how many checkpoints to keep; 0: all"},
    {"resume", "DIR", OPTIONAL, AT(resume), 0, 0, "go on from the last checkpoint there (else: of --checkpoint)"},
    {"gradients", "G.safetensors", TEXT, AT(gradients), 0, 0, "save the first step's gradients, before clipping"},
    {"log", "run.jsonl", TEXT, AT(log), 0, 0, "write a line of JSON for every step and evaluation"},
    {"generate", "PROMPT", TEXT, AT(generate), 0, 0, "after training, continue this text (byte-level models)"},
    {"tokens", "N", WHOLE, AT(tokens), 1, INT64_MAX, "how many tokens to generate"},
    {"temperature", "T", REAL, AT(temperature), 0, 1000, "randomness of --generate; 0 takes the likeliest"},
    {"check-gradients", "N", WHOLE, AT(check_gradients), 0, INT64_MAX,
     "compare N elements of every parameter's gradient with finite differences, and stop"},
    {"dry-run", NULL, FLAG, AT(dry_run), 0, 0, "check everything, all of the data too, and stop before step 1"},
    {"plan", NULL, FLAG, AT(plan), 0, 0, "print the plan this program was compiled to, and stop"},
    {"dp", "N", WHOLE, AT(dp), 1, INT64_MAX,
     "how many replicas to start, or to print the plan of (else: what the ranks make; alone the fewest)"},
    {"threads", "N", WHOLE, AT(threads), 1, 4096, "threads per rank (else: cores of the node / its ranks)"},
    {"kernels", "host|ref", CHOICE, AT(kernels), 0, 0, "kernel set: fast, or the plain reference"},
    {"timeout", "SECONDS", WHOLE, AT(timeout), 0, INT64_MAX,
     "end the run when no rank moves for so long, and say where they are (600 with several ranks, never with one); 0: never"},
    {"quiet", NULL, FLAG, AT(quiet), 0, 0, "print only problems, validation results and generated text"},
    {"help", NULL, FLAG, AT(help), 0, 0, "print this, and stop"},
    {"version", NULL, FLAG, AT(version), 0, 0, "print what this was compiled from and by, and stop"},
};
#define ROWS (sizeof rows / sizeof rows[0])

static const struct {
  int code;
  const char *meaning;
  bool cuda; /* of programs for CUDA only */
} exits[] = {
    {PD_EXIT_OK, "done", false},
    {PD_EXIT_USAGE, "command line, wrong number of ranks, or a log or standard output that cannot be written", false},
    {PD_EXIT_DATA, "training data missing, malformed or out of range", false},
    {PD_EXIT_CHECKPOINT, "weights or checkpoint unreadable or unwritable", false},
    {PD_EXIT_NUMERIC, "loss or gradient is not finite, or --check-gradients found a wrong one; nothing is saved",
     false},
    {PD_EXIT_PEER, "another rank failed or was lost, or nothing moved for --timeout seconds", false},
    {PD_EXIT_PLAN, "ranks run different plans, or the plan does not fit the program", false},
    {PD_EXIT_MEMORY, "not enough memory", false},
    {PD_EXIT_NO_DEVICE, "there is no CUDA device", true},
    {PD_EXIT_DRIVER, "there is no NVIDIA driver, or it is too old", true},
    {PD_EXIT_FEW_DEVICES, "fewer CUDA devices on a node than ranks", true},
    {PD_EXIT_DEVICE_MEMORY, "the plan, or what CUDA needs beside it, does not fit the device's memory", true},
    {PD_EXIT_CUDA, "a call of CUDA, cuBLASLt, cuDNN or NCCL failed", true},
    {PD_EXIT_STOPPED, "stopped by a signal after a step, with a checkpoint if there is a place for one", false},
};

static void *field(pd_options *options, const row *r) {
  return (char *)options + r->at;
}

static void defaults(const pd_program *program, pd_options *options) {
  *options = (pd_options){
      .steps = program->steps,
      .eval_every = program->eval_every,
      .seed = program->seed,
      .init = program->checkpoint_load,
      .checkpoint = program->checkpoint_dir,
      .save_every = program->save_every,
      .keep = program->checkpoint_keep,
      .tokens = 200,
      .timeout = -1,
      .temperature = 0.8,
      .kernels = "host",
  };
}

int64_t pd_options_timeout(const pd_options *options, int ranks) {
  if (options->timeout >= 0) return options->timeout;
  return ranks > 1 ? 600 : 0;
}

/* ---- suggestions ---- */

/* Number of single-letter edits between two short words. */
static size_t distance(const char *a, const char *b) {
  const size_t n = strlen(a), m = strlen(b);
  size_t before[64], now[64];
  if (n >= 63 || m >= 63) return 64;
  for (size_t j = 0; j <= m; j++) before[j] = j;
  for (size_t i = 1; i <= n; i++) {
    now[0] = i;
    for (size_t j = 1; j <= m; j++) {
      size_t best = before[j - 1] + (a[i - 1] != b[j - 1]);
      if (before[j] + 1 < best) best = before[j] + 1;
      if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
      now[j] = best;
    }
    memcpy(before, now, sizeof now);
  }
  return before[m];
}

/* The option meant by an unknown name, or NULL: the beginning of one, or few edits away. */
static const char *suggestion(const char *name) {
  const char *best = NULL;
  size_t least = strlen(name) / 3 + 2;
  for (size_t i = 0; i < ROWS; i++) {
    if (strlen(name) >= 2 && strncmp(name, rows[i].name, strlen(name)) == 0) return rows[i].name;
  }
  for (size_t i = 0; i < ROWS; i++) {
    const size_t d = distance(name, rows[i].name);
    if (d < least) best = rows[i].name, least = d;
  }
  return best;
}

static bool unknown(const char *argument, const char *name, pd_problem *problem) {
  const char *better = suggestion(name);
  if (better == NULL) return pd_problem_say(problem, "unknown option `%.200s` (--help lists them all)", argument);
  return pd_problem_say(problem, "unknown option `%.200s`; did you mean `--%s`?", argument, better);
}

/* ---- the parser ---- */

static bool read_value(const row *r, const char *text, pd_options *options, pd_problem *problem) {
  char *end = NULL;
  errno = 0;
  switch (r->kind) {
  case FLAG:
    break;
  case TEXT:
  case OPTIONAL:
    *(const char **)field(options, r) = text;
    return true;
  case CHOICE: {
    const size_t length = strlen(text);
    for (const char *word = r->value; word != NULL; word = strchr(word, '|')) {
      word += *word == '|';
      if (length > 0 && strchr(text, '|') == NULL && strncmp(word, text, length) == 0 &&
          (word[length] == '|' || word[length] == 0)) {
        *(const char **)field(options, r) = text;
        return true;
      }
    }
    return pd_problem_say(problem, "--%s=%.200s: must be %s", r->name, text, r->value);
  }
  case WHOLE: {
    const long long value = strtoll(text, &end, 10);
    if (*text == 0 || *end != 0 || text[0] == ' ') {
      return pd_problem_say(problem, "--%s=%.200s: must be a whole number", r->name, text);
    }
    if (errno == ERANGE || value < r->low || value > r->high) {
      if (r->high == INT64_MAX) {
        return pd_problem_say(problem, "--%s=%.200s: must be at least %" PRId64, r->name, text, r->low);
      }
      return pd_problem_say(problem, "--%s=%.200s: must lie between %" PRId64 " and %" PRId64, r->name, text, r->low,
                            r->high);
    }
    *(int64_t *)field(options, r) = value;
    return true;
  }
  case REAL: {
    const double value = strtod(text, &end);
    if (*text == 0 || *end != 0 || !isfinite(value) || value < (double)r->low || value > (double)r->high) {
      return pd_problem_say(problem, "--%s=%.200s: must be a number between %" PRId64 " and %" PRId64, r->name, text,
                            r->low, r->high);
    }
    *(double *)field(options, r) = value;
    return true;
  }
  }
  return pd_problem_say(problem, "--%s takes no value", r->name);
}

/* NULL if the program has the option, else why not: threads and kernel sets are the host target's, and a number of
 * replicas is for programs that do not say it. */
static const char *lacks(const pd_program *program, const row *r) {
  if (program->target != PD_TARGET_HOST && (r->at == AT(threads) || r->at == AT(kernels)))
    return "is about computing on the host; this program runs on a CUDA device";
  if (program->degree_count == 0 && r->at == AT(dp))
    return "is for programs that were compiled with dp=*; this one says its dp";
  return NULL;
}

bool pd_options_parse(const pd_program *program, int argc, char **argv, pd_options *options, pd_problem *problem) {
  defaults(program, options);
  for (int i = 1; i < argc; i++) {
    const char *argument = argv[i];
    if (argument[0] != '-') {
      return pd_problem_say(problem, "unexpected argument `%.200s`: options start with `--` (--help lists them)",
                            argument);
    }
    if (strcmp(argument, "-h") == 0) {
      options->help = true;
      continue;
    }
    const char *equals = strchr(argument, '=');
    char name[256];
    const size_t dashes = strspn(argument, "-");
    const size_t length = equals != NULL ? (size_t)(equals - argument) : strlen(argument);
    snprintf(name, sizeof name, "%.*s", (int)(length > dashes ? (length - dashes < 255 ? length - dashes : 255) : 0),
             argument + dashes);
    const row *found = NULL;
    for (size_t r = 0; r < ROWS && dashes == 2; r++) {
      if (strcmp(rows[r].name, name) == 0) found = &rows[r];
    }
    if (found == NULL) return unknown(argument, name, problem);
    if (lacks(program, found) != NULL) return pd_problem_say(problem, "--%s %s", name, lacks(program, found));
    if (found->kind == FLAG) {
      if (equals != NULL) return pd_problem_say(problem, "--%s takes no value", found->name);
      *(bool *)field(options, found) = true;
      continue;
    }
    const bool follows = found->kind != OPTIONAL && i + 1 < argc;
    const char *value = equals != NULL ? equals + 1 : follows ? argv[++i] : found->kind == OPTIONAL ? "" : NULL;
    if (value == NULL) return pd_problem_say(problem, "--%s needs a value: --%s=%s", name, name, found->value);
    if (!read_value(found, value, options, problem)) return false;
    if (found->at == AT(seed)) options->seed_given = true;
  }
  return true;
}

/* ---- --help ---- */

/* What holds when an option is not given, as it is said in --help; empty when there is nothing to say. */
static void default_text(const pd_program *program, const row *r, char *out, size_t size) {
  pd_options options;
  defaults(program, &options);
  out[0] = 0;
  if (r->kind == CHOICE) snprintf(out, size, " [%s]", *(const char **)field(&options, r));
  if (r->kind == REAL) snprintf(out, size, " [%g]", *(double *)field(&options, r));
  if (r->kind == WHOLE && *(int64_t *)field(&options, r) >= r->low) {
    snprintf(out, size, " [%" PRId64 "]", *(int64_t *)field(&options, r));
  }
}

void pd_options_help(const pd_program *program, FILE *to) {
  const bool open = program->degree_count > 0;
  const char *ranks = pd_degrees_text(program, 0, true);
  const bool one = strcmp(ranks, "1") == 0;
  fprintf(to, "Trains the model `%s`. Runs as %s rank%s", program->model, ranks, one ? "" : "s");
  if (!one)
    fprintf(to, " (pp %d x dp %s x tp %d); started alone, it starts %s with mpirun", program->pp,
            pd_degrees_text(program, 0, false), program->tp, open ? "the fewest, or those of --dp," : "them");
  fputs(".\n", to);
  fprintf(to, "\nOptions, as --name=value or --name value [default]:\n");
  for (size_t i = 0; i < ROWS; i++) {
    if (lacks(program, &rows[i]) != NULL) continue;
    char left[64], now[64];
    const bool optional = rows[i].kind == OPTIONAL;
    snprintf(left, sizeof left, "--%s%s%s%s%s", rows[i].name, optional ? "[" : "", rows[i].value ? "=" : "",
             rows[i].value ? rows[i].value : "", optional ? "]" : "");
    default_text(program, &rows[i], now, sizeof now);
    fprintf(to, "  %-26s %s%s\n", left, rows[i].help, now);
  }
  fprintf(to, "\nExit status:\n");
  for (size_t i = 0; i < sizeof exits / sizeof exits[0]; i++) {
    if (!exits[i].cuda || program->target == PD_TARGET_CUDA) fprintf(to, "  %d  %s\n", exits[i].code, exits[i].meaning);
  }
}
