/* The main of every compiled program: from the command line to the last line, one call after the other.
 *
 * What can be answered without ranks is answered first. Then every rank checks what it was given (plan, memory, data,
 * files to write) before anything is computed, so that a run that starts also ends.
 */
#include "data_weights.h"
#include "degrees.h"
#include "device.h"
#include "evaluate.h"
#include "generate.h"
#include "train.h"
#include "watch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* With dp=*: of the degree that was asked for, else of that of the ranks there are, else of the smallest. */
static int print_plan(const pd_program *program, int64_t asked) {
  const int started = asked == 0 ? pd_degrees_of(program, 0, pd_launch_size()) : 0;
  pd_program taken;
  pd_problem problem;
  if (!pd_degrees_take(program, started > 0 ? started : pd_degrees_first(program, asked), &taken, &problem)) {
    fprintf(stderr, "error: %s\n", problem.text);
    return PD_EXIT_PLAN;
  }
  fputs(taken.plan, stdout);
  pd_degrees_release(program, &taken);
  return PD_EXIT_OK;
}

static int answer(const pd_program *program, const pd_options *options) {
  int status = PD_EXIT_OK;
  if (pd_launch_rank() != 0) return PD_EXIT_OK;
  if (options->help)
    pd_options_help(program, stdout);
  else if (options->version)
    printf("%s, compiled by %s\n", program->model, program->compiler);
  else
    status = print_plan(program, options->dp);
  if (fflush(stdout) != 0 || ferror(stdout)) {
    fprintf(stderr, "error: standard output: cannot write: %s\n", strerror(errno));
    return PD_EXIT_USAGE;
  }
  return status;
}

/* Only rank 0 fails: a launcher ends all ranks when one does, and must not end rank 0 before it has spoken. */
static int refuse(const char *why) {
  if (pd_launch_rank() != 0) return PD_EXIT_OK;
  fprintf(stderr, "error: %s\n", why);
  return PD_EXIT_USAGE;
}

/* Threads, the plan, the engine and its memory. */
static void start_engine(pd_run *run) {
  const pd_program *program = run->program;
  pd_problem problem;
  run->machine = pd_launch_machine(run->options.threads);
  pd_device_threads(run->machine.threads);
  if (!pd_plan_read(program, &run->plan, &problem)) pd_fail(PD_EXIT_PLAN, "%s", problem.text);
  pd_plan_agree(&run->world, &run->plan);
  run->engine = pd_engine_new(program, &run->plan.pipeline, &run->world, run->options.kernels);
  const int64_t planned = run->plan.memory[run->world.pp_rank].total,
                allocated = pd_engine_allocated_bytes(run->engine);
  if (planned != allocated) {
    pd_fail(PD_EXIT_PLAN, "the plan says %" PRId64 " bytes for pipeline rank %d, the program allocates %" PRId64,
            planned, run->world.pp_rank, allocated);
  }
}

static void open_data(pd_run *run) {
  const pd_program *program = run->program;
  const pd_options *options = &run->options;
  const int64_t seed = options->seed_given ? options->seed : -1;
  pd_problem problem;
  if (options->steps > 0 || options->check_gradients > 0) {
    if (!pd_data_given(program, "train", options->data)) {
      pd_fail(PD_EXIT_DATA, "no training data: give --data=PATH, or train=\"...\" in the data section");
    }
    if (!pd_data_open(&run->train, program, "train", options->data, seed, &problem))
      pd_fail(PD_EXIT_DATA, "%s", problem.text);
    if (run->train.samples < program->batch) {
      pd_fail(PD_EXIT_DATA, "the training data hold %" PRId64 " samples, but a step takes a batch of %" PRId64,
              run->train.samples, program->batch);
    }
  }
  const bool only_generates = options->steps == 0 && options->generate != NULL && options->valid == NULL;
  if (!only_generates && pd_data_given(program, "valid", options->valid)) {
    if (!pd_data_open(&run->valid, program, "valid", options->valid, seed, &problem))
      pd_fail(PD_EXIT_DATA, "%s", problem.text);
    pd_evaluate_prepare(run);
  }
}

static void set_weights(pd_run *run) {
  const char *init = run->options.init;
  if (pd_checkpoint_resume(run, &run->position)) return;
  pd_engine_initialise(run->engine, (uint64_t)run->options.seed);
  if (init != NULL) pd_weights_load(run->program, run->engine, PD_WEIGHTS, init);
}

static void open_outputs(pd_run *run) {
  pd_problem problem;
  pd_weights_check_target(&run->world, run->options.save);
  pd_weights_check_target(&run->world, run->options.gradients);
  pd_checkpoint_prepare(run);
  if (run->world.rank == 0 && !run->options.dry_run &&
      !pd_log_open(&run->log, run->options.log, run->position.step, &problem)) {
    pd_fail(PD_EXIT_USAGE, "%s", problem.text);
  }
}

static void dry_run(pd_run *run) {
  const pd_options *options = &run->options;
  pd_train_check_data(run);
  MPI_Barrier(run->world.all);
  if (run->world.rank != 0) return;
  printf("dry run: plan, memory and data are good; would train %" PRId64 " steps", options->steps);
  if (run->valid.samples > 0) printf(", validate on %" PRId64 " samples", run->valid.samples);
  if (options->save != NULL) printf(", save `%s`", options->save);
  if (options->generate != NULL) printf(", generate %" PRId64 " tokens", options->tokens);
  puts("");
}

static void do_run(pd_run *run) {
  if (run->options.check_gradients > 0) {
    pd_check(run);
    return;
  }
  pd_progress_begin(&run->progress, run);
  if (run->options.steps > 0)
    pd_train(run);
  else if (run->valid.samples > 0)
    pd_evaluate(run, 0);
  if (run->options.steps == 0 && run->options.save != NULL) {
    pd_weights_save(run->program, run->engine, &run->world, PD_WEIGHTS, run->options.save);
  }
  if (run->options.generate != NULL && !run->stopped) pd_generate(run);
}

static void end_run(pd_run *run) {
  pd_problem problem;
  if (!pd_log_close(&run->log, &problem)) pd_fail(PD_EXIT_USAGE, "%s", problem.text);
  if (run->train.program != NULL) pd_data_close(&run->train);
  if (run->valid.program != NULL) pd_data_close(&run->valid);
  free(run->valid_inverse);
  pd_engine_free(run->engine);
  pd_plan_free(&run->plan);
  pd_watch_close();
  pd_world_close(&run->world);
  fflush(NULL); /* nothing of ours is lost if MPI does not end well */
  MPI_Finalize();
}

int pd_main(const pd_program *program, int argc, char **argv) {
  pd_program taken;
  pd_run run = {.program = &taken};
  pd_problem problem;
  if (!pd_options_parse(program, argc, argv, &run.options, &problem)) return refuse(problem.text);
  if (!pd_degrees_check(program, run.options.dp, &problem)) return refuse(problem.text);
  if (run.options.help || run.options.version || run.options.plan) return answer(program, &run.options);
  if (run.options.steps == 0 && run.options.gradients != NULL) {
    return refuse("--gradients saves the gradients of the first step: it needs --steps of at least 1");
  }
  if (run.options.generate != NULL && !pd_generate_possible(program, run.options.generate, &problem))
    return refuse(problem.text);
  if (run.options.resume != NULL && *run.options.resume == 0 && run.options.checkpoint == NULL) {
    return refuse(
        "--resume needs a directory: --resume=DIR, --checkpoint=DIR, or dir=\"...\" in the checkpoint section");
  }
  bool done;
  const int status = pd_launch_ranks(program, run.options.dp, argv, run.options.quiet, &done);
  if (status != PD_EXIT_OK || done) return status;
  const int64_t timeout = pd_options_timeout(&run.options, 2); /* how many ranks there are is not known yet */
  pd_watch_start_up(timeout < 60 ? timeout : 60);
  const int dp = pd_launch_mpi(program, run.options.dp, argv);
  const bool unpacked = pd_degrees_take(program, dp, &taken, &problem);
  pd_world_open(&run.world, &taken);
  pd_watch_start_up(0);
  pd_watch_open(&run.world, pd_options_timeout(&run.options, run.world.size));
  if (!unpacked) pd_fail(PD_EXIT_PLAN, "%s", problem.text);
  start_engine(&run);
  open_data(&run);
  set_weights(&run);
  open_outputs(&run);
  pd_progress_table(&run);
  if (run.options.dry_run)
    dry_run(&run);
  else
    do_run(&run);
  end_run(&run);
  pd_degrees_release(program, &taken);
  return run.stopped ? PD_EXIT_STOPPED : PD_EXIT_OK;
}
