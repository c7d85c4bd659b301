/* The screen of rank 0.
 *
 * A live line is redrawn at most ten times a second and always leaves the cursor at its end; a line that stays wipes it
 * first. Without a terminal there are only whole lines, flushed one by one.
 */
#include "progress.h"

#include "rate.h"
#include "train.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

double pd_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the table at the start ---- */

static const char *const optimizers[] = {
    [PD_SGD] = "sgd", [PD_ADAM] = "adam", [PD_ADAMW] = "adamw", [PD_LAMB] = "lamb"};

static void row(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void row(const char *name, const char *format, ...) {
  va_list list;
  printf("  %-10s ", name);
  va_start(list, format);
  vprintf(format, list);
  va_end(list);
  putchar('\n');
}

static const char *plural(int64_t n) {
  return n == 1 ? "" : "s";
}

typedef struct group {
  int64_t tensors, elements;
} group;

static void add(group *g, int64_t tensors, int64_t elements) {
  g->tensors += tensors;
  g->elements += elements;
}

static void show_parameters(const pd_program *program) {
  group all = {0, 0}, decayed = {0, 0}, plain = {0, 0}, frozen = {0, 0};
  for (int p = 0; p < program->param_count; p++) {
    const pd_param_info *param = &program->params[p];
    int64_t n = 1, trips = param->per_trip && param->segment != PD_NONE ? program->segments[param->segment].trips : 1;
    if (param->statistic) continue;
    for (int k = 0; k < param->rank; k++) n *= param->shape[k];
    add(&all, trips, trips * n);
    add(param->frozen ? &frozen : param->decay && program->decay != 0 ? &decayed : &plain, trips, trips * n);
  }
  char a[PD_FIGURE], b[PD_FIGURE], c[PD_FIGURE];
  printf("%s: %" PRId64 " parameter%s in %" PRId64 " tensor%s, %s, compiled by %s\n", program->model, all.elements,
         plural(all.elements), all.tensors, plural(all.tensors),
         program->real_bytes == 2   ? "bf16 with f32 master weights"
         : program->real_bytes == 4 ? "f32"
                                    : "f64",
         program->compiler);
  row("decay", "%g on %" PRId64 " tensor%s (%s), none on %" PRId64 " (%s); frozen %" PRId64 " (%s)", program->decay,
      decayed.tensors, plural(decayed.tensors), pd_figure_count((double)decayed.elements, a), plain.tensors,
      pd_figure_count((double)plain.elements, b), frozen.tensors, pd_figure_count((double)frozen.elements, c));
}

static void show_recipe(const pd_program *program) {
  char rate[256], clip[64] = "", moments[128] = "";
  size_t n = (size_t)snprintf(rate, sizeof rate, "%s %g", pd_rate_name(program->rate), program->peak);
  if (program->rate != PD_RATE_CONSTANT) n += (size_t)snprintf(rate + n, sizeof rate - n, " -> %g", program->floor);
  if (program->warmup > 0) n += (size_t)snprintf(rate + n, sizeof rate - n, ", warm-up %.10g", program->warmup);
  if (program->rate == PD_RATE_WSD)
    n += (size_t)snprintf(rate + n, sizeof rate - n, ", decay from %.10g", program->decay_from);
  if (program->rate != PD_RATE_CONSTANT) n += (size_t)snprintf(rate + n, sizeof rate - n, ", end %.10g", program->end);
  if (program->rate != PD_RATE_CONSTANT || program->warmup > 0) snprintf(rate + n, sizeof rate - n, " steps");
  if (program->optimizer == PD_SGD) {
    if (program->momentum != 0) snprintf(moments, sizeof moments, " (momentum %g)", program->momentum);
  } else {
    snprintf(moments, sizeof moments, " (betas %g, %g, eps %g)", program->beta1, program->beta2, program->eps);
  }
  if (program->clip > 0) snprintf(clip, sizeof clip, "; clip %g", program->clip);
  row("optimizer", "%s%s; rate %s%s", optimizers[program->optimizer], moments, rate, clip);
}

static void show_data(const pd_run *run) {
  const pd_data *train = &run->train;
  const int64_t batch = run->program->batch;
  if (train->samples > 0) {
    const int64_t steps = pd_data_steps_per_epoch(train), dropped = train->samples - steps * batch;
    char order[64] = "in order";
    if (train->shuffle) snprintf(order, sizeof order, "shuffled by seed %" PRIu64, train->seed);
    row("data", "%" PRId64 " sample%s, %s; %" PRId64 " step%s an epoch, the last %" PRId64 " sample%s of it dropped",
        train->samples, plural(train->samples), order, steps, plural(steps), dropped, plural(dropped));
  }
  if (run->valid.samples > 0) row("validation", "%" PRId64 " sample%s", run->valid.samples, plural(run->valid.samples));
}

static void show_memory(const pd_run *run) {
  for (int r = 0; r < run->program->pp; r++) {
    const pd_planned_memory *memory = &run->plan.memory[r];
    char figure[PD_FIGURE], text[512] = "", name[32] = "memory";
    size_t n = 0;
    for (int kind = 0; kind < PD_MEMORY_CLASSES; kind++) {
      if (memory->bytes[kind] == 0) continue;
      n += (size_t)snprintf(text + n, sizeof text - n, "%s%s %s", n > 0 ? ", " : "",
                            pd_memory_class_name((pd_memory_class)kind),
                            pd_figure_bytes((double)memory->bytes[kind], figure));
    }
    if (run->program->pp > 1) snprintf(name, sizeof name, r == 0 ? "memory 0" : "       %d", r);
    row(name, "%s a rank: %s", pd_figure_bytes((double)memory->total, figure), text);
  }
}

/* A schedule without a flush: how often it updates, and on every pipeline rank how many versions of the weights it
 * keeps and how many updates late a gradient is. */
static void show_updates(const pd_pipeline *pipeline) {
  if (pipeline->step == 0) return;
  char versions[256] = "", staleness[256] = "";
  size_t n = 0, k = 0;
  for (int r = 0; r < pipeline->pp && n < sizeof versions && k < sizeof staleness; r++) { /* chunk r is on rank r */
    const char *comma = r > 0 ? ", " : "";
    n += (size_t)snprintf(versions + n, sizeof versions - n, "%s%" PRId64, comma, pd_weight_versions(pipeline, r));
    k += (size_t)snprintf(staleness + k, sizeof staleness - k, "%s%" PRId64, comma, pd_weight_staleness(pipeline, r));
  }
  row("updates",
      "%" PRId64 " a step, each after %" PRId64 " micro-batch%s; gradients %s updates late, %s versions of the weights",
      pd_list_updates(pipeline), pipeline->step, pipeline->step == 1 ? "" : "es", staleness, versions);
}

/* Steps between saves that save nothing, or never. */
static void warn_of_saving(const pd_run *run) {
  const pd_options *options = &run->options;
  const int64_t every = options->save_every, next = every > 0 ? (run->position.step / every + 1) * every : 0;
  if (every <= 0 || options->steps <= run->position.step) return;
  if (options->save == NULL && options->checkpoint == NULL) {
    printf("warning: save_every = %" PRId64
           " has no place to save to; start the program with --checkpoint=DIR or --save=W.safetensors\n",
           every);
  } else if (next > options->steps) {
    printf("warning: save_every = %" PRId64 " is not reached in steps %" PRId64 " to %" PRId64
           "; what is saved is the end\n",
           every, run->position.step + 1, options->steps);
  }
}

void pd_progress_table(const pd_run *run) {
  if (run->world.rank != 0 || run->options.quiet) return;
  const pd_program *program = run->program;
  const pd_machine *machine = &run->machine;
  const int ranks = run->world.size;
  char tokens[PD_FIGURE];
  show_parameters(program);
  const pd_pipeline *pipeline = &run->plan.pipeline;
  const int chunks = pd_copy_chunks(pipeline) / program->pp;
  row("layout", "%d rank%s: pp %d x dp %d x tp %d, %d chunk%s a rank%s", ranks, plural(ranks), program->pp, program->dp,
      program->tp, chunks, plural(chunks), pipeline->copies > 1 ? " of each of two copies of the model" : "");
  row("schedule", "%s%s, %" PRId64 " micro-batch%s of %" PRId64 "%s", run->plan.schedule,
      program->recompute ? " with recomputation" : "", program->microbatches, program->microbatches == 1 ? "" : "es",
      program->microbatch, pipeline->accumulators > 1 ? ", gradients summed in two halves" : "");
  show_updates(pipeline);
  char per_step[48] = "";
  if (!program->tokens_are_samples) {
    snprintf(per_step, sizeof per_step, ", %s tokens",
             pd_figure_count((double)(program->batch * program->tokens_per_sample), tokens));
  }
  row("batch", "%" PRId64 " sample%s%s a step; %" PRId64 " step%s", program->batch, plural(program->batch), per_step,
      run->options.steps, plural(run->options.steps));
  show_data(run);
  show_recipe(program);
  row("threads", "%d a rank, %s; %d core%s, %d rank%s on this node", machine->threads,
      pd_engine_device_name(run->engine), machine->cores, plural(machine->cores), machine->node_ranks,
      plural(machine->node_ranks));
  show_memory(run);
  row("plan", "sha256 %.12s", run->plan.sha256);
  if (machine->bound) {
    puts("warning: this process is held to one core of a machine with more; start mpirun with --bind-to none");
  }
  warn_of_saving(run);
  fflush(stdout);
}

/* ---- steps ---- */

void pd_progress_begin(pd_progress *progress, const pd_run *run) {
  const bool speaks = run->world.rank == 0;
  *progress = (pd_progress){.shows = speaks && !run->options.quiet,
                            .every = run->program->log_every,
                            .total = run->options.steps,
                            .unit = run->program->tokens_are_samples ? "samples" : "tokens",
                            .flops = run->program->step_flops,
                            .peak = run->program->peak_flops * run->world.size,
                            .predicted = run->plan.predicted_seconds,
                            .began = pd_now()};
  progress->terminal = progress->shows && pd_launch_terminal();
}

static void wipe(pd_progress *progress) {
  if (progress->drawn) fputs("\r\033[K", stdout);
  progress->drawn = false;
}

static void draw_live(pd_progress *progress, const pd_step_record *record, const char *eta) {
  char loss[PD_FIGURE], speed[PD_FIGURE], memory[PD_FIGURE];
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  wipe(progress);
  printf("step %" PRId64 "/%" PRId64 "  loss %s  %s %s/s  peak %s  eta %s", record->step, progress->total,
         pd_figure_loss(record->loss, loss),
         pd_figure_count(progress->average > 0 ? (double)record->tokens / progress->average : 0, speed), progress->unit,
         pd_figure_bytes((double)usage.ru_maxrss * 1024, memory), eta);
  fflush(stdout);
  progress->drawn = true;
}

void pd_progress_step(pd_progress *progress, const pd_step_record *record) {
  const double now = pd_now(), seconds = record->seconds;
  /* recent steps weigh more, and the first, which is slow, is forgotten at once */
  progress->average = progress->done < 2 ? seconds : 0.9 * progress->average + 0.1 * seconds;
  if (progress->done > 0) progress->after_first += seconds;
  progress->done++;
  progress->tokens += record->tokens;
  if (!progress->shows || progress->every == 0) return;
  const double rate = seconds > 0 ? (double)record->tokens / seconds : 0;
  const bool last = record->step == progress->total;
  char eta[PD_FIGURE], loss[PD_FIGURE], span[PD_FIGURE], speed[PD_FIGURE];
  pd_figure_time((double)(progress->total - record->step) * progress->average, eta);
  if (progress->terminal) {
    if (now - progress->last < 0.1 && !last) return;
    progress->last = now;
    draw_live(progress, record, eta);
    return;
  }
  if (record->step % progress->every != 0 && record->step != 1 && !last) return;
  printf("step %" PRId64 "/%" PRId64 "  loss %s  norm %.3g  lr %.1e  %s  %s %s/s  eta %s\n", record->step,
         progress->total, pd_figure_loss(record->loss, loss), record->grad_norm, record->rate,
         pd_figure_span(seconds, span), pd_figure_count(rate, speed), progress->unit, eta);
  fflush(stdout);
}

void pd_progress_say(pd_progress *progress, bool always, const char *format, ...) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank != 0 || !(always || progress->shows)) return;
  wipe(progress);
  va_list list;
  va_start(list, format);
  vprintf(format, list);
  va_end(list);
  putchar('\n');
  fflush(stdout);
}

bool pd_progress_use(const pd_progress *progress, int64_t last, pd_use_record *use) {
  const int64_t steps = progress->done - 1;
  if (steps < 1 || !(progress->peak > 0)) return false;
  *use = (pd_use_record){.step = last,
                         .steps = steps,
                         .seconds = progress->after_first / (double)steps,
                         .flops = progress->flops,
                         .peak = progress->peak,
                         .peak_measured = progress->peak_measured};
  return true;
}

void pd_progress_end(pd_progress *progress) {
  if (!progress->shows || progress->done == 0) return;
  const double seconds = pd_now() - progress->began;
  char time[PD_FIGURE], speed[PD_FIGURE];
  if (progress->drawn) putchar('\n');
  progress->drawn = false;
  printf("%" PRId64 " step%s in %s, %s %s/s\n", progress->done, plural(progress->done), pd_figure_time(seconds, time),
         pd_figure_count(seconds > 0 ? (double)progress->tokens / seconds : 0, speed), progress->unit);
  pd_use_record use;
  if (pd_progress_use(progress, 0, &use)) {
    printf("use of the machine (MFU): %.3g %% = %.4g GFLOP a step (F, I and W) / %.4g s / %.4g GFLOP/s (%s)\n",
           100 * pd_mfu(use.flops, use.seconds, use.peak), use.flops * 1e-9, use.seconds, use.peak * 1e-9,
           use.peak_measured ? "large products on all ranks at once, measured now" : "cluster.flops x ranks");
  }
  if (progress->predicted > 0 && progress->done > 1) {
    char measured[PD_FIGURE], predicted[PD_FIGURE];
    const double mean = progress->after_first / (double)(progress->done - 1);
    printf("a step took %s on average, predicted were %s: %.2f times as long\n", pd_figure_span(mean, measured),
           pd_figure_span(progress->predicted, predicted), mean / progress->predicted);
  }
  fflush(stdout);
}
