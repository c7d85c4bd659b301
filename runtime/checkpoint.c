/* Checkpoints on the disk.
 *
 * DIR/step-00000012.tmp is written, synced and renamed to DIR/step-00000012; then a link is made beside DIR/latest and
 * renamed over it; then what --keep does not keep is renamed to .tmp and removed. Whatever is interrupted leaves a name
 * that ends in .tmp, which nobody reads and the next save removes.
 */
#include "checkpoint.h"

#include "data_weights.h"
#include "train.h"
#include "watch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FORMAT "pd-checkpoint"
#define VERSION 1

static _Noreturn void cannot(const char *what, const char *path) {
  pd_fail(PD_EXIT_CHECKPOINT, "checkpoint `%s`: cannot %s: %s", path, what, strerror(errno));
}

static char *join(const char *directory, const char *name) {
  char *path = NULL;
  if (asprintf(&path, "%s/%s", directory, name) < 0) pd_fail(PD_EXIT_MEMORY, "not enough memory");
  return path;
}

#define NAME 64
static void step_name(int64_t step, const char *ending, char out[NAME]) {
  snprintf(out, NAME, "step-%08" PRId64 "%s", step, ending);
}

static char *step_path(const char *directory, int64_t step, const char *ending) {
  char name[NAME];
  step_name(step, ending, name);
  return join(directory, name);
}

/* ---- what is in one ---- */

static const struct {
  pd_weights_kind kind;
  const char *file;
} files[] = {
    {PD_WEIGHTS, "weights.safetensors"},
    {PD_FIRST_MOMENTS, "moments-1.safetensors"},
    {PD_SECOND_MOMENTS, "moments-2.safetensors"},
};

static int file_count(const pd_program *program) {
  if (program->optimizer != PD_SGD) return 3;
  return program->momentum != 0 ? 2 : 1;
}

/* Of a schedule with a delay: what the next gradient is taken at. Not there: the weights. */
#define BEFORE "weights-before.safetensors"

static const char *optimizer_name(const pd_program *program) {
  static const char *const names[] = {[PD_SGD] = "sgd", [PD_ADAM] = "adam", [PD_ADAMW] = "adamw", [PD_LAMB] = "lamb"};
  return names[program->optimizer];
}

/* What has to be the same for a run to go on: numbers that decide which samples a step reads, and what is drawn. */
typedef struct must {
  const char *key, *what;
  int64_t value;
} must;
#define MUSTS 6
static void musts_of(const pd_run *run, must out[MUSTS]) {
  const pd_program *program = run->program;
  out[0] = (must){"seed", "--seed", run->options.seed};
  out[1] = (must){"data_seed", "the seed of the order of samples", (int64_t)run->train.seed};
  out[2] = (must){"shuffled", "data.shuffle", run->train.shuffle};
  out[3] = (must){"samples", "the number of training samples", run->train.samples};
  out[4] = (must){"batch", "the batch", program->batch};
  out[5] = (must){"real_bytes", "the bytes of a weight", pd_wide_bytes(program)};
}

/* ---- directories ---- */

static void sync_path(const char *path, int flags) {
  const int file = open(path, O_RDONLY | O_CLOEXEC | flags);
  if (file < 0 || fsync(file) != 0) cannot("sync", path);
  close(file);
}

/* A directory of files, not of directories. */
static void remove_directory(const char *path) {
  DIR *directory = opendir(path);
  if (directory == NULL) return;
  for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    unlinkat(dirfd(directory), entry->d_name, 0);
  }
  closedir(directory);
  rmdir(path);
}

/* The step of "step-00000012", -1 for any other name; *left: of "step-00000012.tmp". */
static int64_t step_of(const char *name, bool *left) {
  char *end;
  if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9') return -1;
  const long long step = strtoll(name + 5, &end, 10);
  *left = strcmp(end, ".tmp") == 0;
  return *left || *end == 0 ? step : -1;
}

static int descending(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x > y ? -1 : x < y;
}

/* Steps of the checkpoints in DIR, the last first; what was left unfinished is removed if `clean`. */
static int64_t *list_steps(const char *path, bool clean, int64_t *count) {
  DIR *directory = opendir(path);
  if (directory == NULL && errno != ENOENT) cannot("read", path);
  int64_t *steps = NULL;
  *count = 0;
  while (directory != NULL) {
    errno = 0;
    struct dirent *entry = readdir(directory);
    if (entry == NULL && errno != 0) cannot("read", path);
    if (entry == NULL) break;
    bool left = false;
    const int64_t step = step_of(entry->d_name, &left);
    if (step >= 0 && left && clean) {
      char *name = join(path, entry->d_name);
      remove_directory(name);
      free(name);
    }
    if (step < 0 || left) continue;
    int64_t *longer = realloc(steps, (size_t)(*count + 1) * sizeof *steps);
    if (longer == NULL) pd_fail(PD_EXIT_MEMORY, "not enough memory");
    steps = longer;
    steps[(*count)++] = step;
  }
  if (directory != NULL) closedir(directory);
  if (*count > 0) qsort(steps, (size_t)*count, sizeof *steps, descending);
  return steps;
}

void pd_checkpoint_prepare(pd_run *run) {
  const pd_options *options = &run->options;
  if (options->checkpoint == NULL) return;
  if (run->world.rank != 0 || options->dry_run) return;
  if (mkdir(options->checkpoint, 0777) != 0 && errno != EEXIST) cannot("create", options->checkpoint);
  if (access(options->checkpoint, W_OK | X_OK) != 0) cannot("write in", options->checkpoint);
}

/* ---- saving ---- */

static void write_state(const pd_run *run, const char *directory, pd_position position) {
  must musts[MUSTS];
  musts_of(run, musts);
  json_t *state = json_pack("{s:s, s:i, s:s, s:s, s:s, s:s, s:I, s:I}", "format", FORMAT, "version", VERSION, "model",
                            run->program->model, "compiler", run->program->compiler, "plan_sha256", run->plan.sha256,
                            "optimizer", optimizer_name(run->program), "step", (json_int_t)position.step, "updates",
                            (json_int_t)position.updates);
  for (int i = 0; i < MUSTS; i++) {
    if (json_object_set_new(state, musts[i].key, json_integer(musts[i].value)) != 0)
      pd_fail(PD_EXIT_MEMORY, "not enough memory");
  }
  char *path = join(directory, "state.json");
  if (state == NULL || json_dump_file(state, path, JSON_INDENT(2)) != 0) cannot("write", path);
  json_decref(state);
  sync_path(path, 0);
  free(path);
}

/* `latest` is a link that is renamed over the old one: at every moment it names a complete checkpoint. */
static void move_latest(const char *directory, int64_t step) {
  char *link = join(directory, "latest.tmp"), *latest = join(directory, "latest"), target[NAME];
  step_name(step, "", target);
  unlink(link);
  if (symlink(target, link) != 0 || rename(link, latest) != 0) cannot("write", latest);
  sync_path(directory, O_DIRECTORY);
  free(link);
  free(latest);
}

static void forget_old(const char *directory, int64_t newest, int64_t keep) {
  int64_t count, *steps = list_steps(directory, true, &count);
  int64_t kept = 0;
  for (int64_t i = 0; i < count; i++) {
    if (keep == 0 || steps[i] == newest || kept < keep - 1) {
      kept += steps[i] != newest;
      continue;
    }
    char *path = step_path(directory, steps[i], ""), *gone = step_path(directory, steps[i], ".tmp");
    if (rename(path, gone) == 0) remove_directory(gone);
    free(path);
    free(gone);
  }
  free(steps);
}

/* A run that was resumed from an earlier checkpoint comes by steps that have one already: the two change names, so that
 * one of them is there at every moment. File systems that cannot do that lose the old one first. */
static void publish(const char *temporary, const char *final) {
  if (renameat2(AT_FDCWD, temporary, AT_FDCWD, final, RENAME_EXCHANGE) == 0) {
    remove_directory(temporary);
    return;
  }
  if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP)
    remove_directory(final);
  else if (errno != ENOENT)
    cannot("write", final);
  if (rename(temporary, final) != 0) cannot("write", final);
}

void pd_checkpoint_save(pd_run *run, pd_position position) {
  const char *directory = run->options.checkpoint;
  const bool first = run->world.rank == 0;
  char *temporary = step_path(directory, position.step, ".tmp"), *final = step_path(directory, position.step, "");
  pd_watch_show("step %" PRId64 ", saving `%s`", position.step, final);
  if (first) {
    remove_directory(temporary);
    if (mkdir(temporary, 0777) != 0) cannot("create", temporary);
  }
  for (int i = 0; i < file_count(run->program); i++) {
    char *path = join(temporary, files[i].file);
    pd_weights_write(run->program, run->engine, &run->world, files[i].kind, path);
    free(path);
  }
  if (run->plan.pipeline.delay > 0) {
    char *path = join(temporary, BEFORE);
    pd_weights_write(run->program, run->engine, &run->world, PD_WEIGHTS_BEFORE, path);
    free(path);
  }
  if (first) {
    write_state(run, temporary, position);
    sync_path(temporary, O_DIRECTORY);
    publish(temporary, final);
    sync_path(directory, O_DIRECTORY);
    move_latest(directory, position.step);
    forget_old(directory, position.step, run->options.keep);
  }
  free(temporary);
  free(final);
  MPI_Barrier(run->world.all);
}

/* ---- resuming ---- */

/* The checkpoint that `directory` is or holds: `latest`, or, if that is lost, the one of the last step. Empty: none. */
static void find(const char *directory, char out[PATH_MAX]) {
  char *state = join(directory, "state.json"), *latest = join(directory, "latest/state.json");
  out[0] = 0;
  if (access(state, R_OK) == 0) {
    snprintf(out, PATH_MAX, "%s", directory);
  } else if (access(latest, R_OK) == 0) {
    char *link = join(directory, "latest");
    if (realpath(link, out) == NULL) snprintf(out, PATH_MAX, "%s", link);
    free(link);
  } else {
    int64_t count, *steps = list_steps(directory, false, &count);
    if (count > 0) {
      char *path = step_path(directory, steps[0], "");
      snprintf(out, PATH_MAX, "%s", path);
      free(path);
    }
    free(steps);
  }
  free(state);
  free(latest);
}

static int64_t integer_in(const json_t *state, const char *key, const char *path) {
  const json_t *value = json_object_get(state, key);
  if (!json_is_integer(value)) pd_fail(PD_EXIT_CHECKPOINT, "checkpoint `%s`: state.json: `%s` is no number", path, key);
  return json_integer_value(value);
}

static void check_state(const pd_run *run, const json_t *state, const char *path) {
  const char *format = json_string_value(json_object_get(state, "format")),
             *optimizer = json_string_value(json_object_get(state, "optimizer"));
  if (format == NULL || strcmp(format, FORMAT) != 0 || integer_in(state, "version", path) != VERSION) {
    pd_fail(PD_EXIT_CHECKPOINT, "checkpoint `%s`: state.json is not that of a " FORMAT " of version %d", path, VERSION);
  }
  if (optimizer == NULL || strcmp(optimizer, optimizer_name(run->program)) != 0) {
    pd_fail(PD_EXIT_CHECKPOINT,
            "checkpoint `%s`: it was made with optimizer `%s`, and this program has `%s`; its weights alone "
            "can be loaded with --init",
            path, optimizer != NULL ? optimizer : "?", optimizer_name(run->program));
  }
  must musts[MUSTS];
  musts_of(run, musts);
  for (int i = 0; i < MUSTS; i++) {
    const int64_t was = integer_in(state, musts[i].key, path);
    const bool of_data = i > 0 && i < 4; /* without steps, none are open */
    if (was == musts[i].value || (of_data && run->train.samples == 0)) continue;
    pd_fail(PD_EXIT_CHECKPOINT,
            "checkpoint `%s`: %s was %" PRId64 " and is %" PRId64 " now: the run would not go on as it was", path,
            musts[i].what, was, musts[i].value);
  }
}

bool pd_checkpoint_resume(pd_run *run, pd_position *position) {
  const pd_options *options = &run->options;
  char path[PATH_MAX] = "";
  const char *directory = options->resume != NULL && *options->resume != 0 ? options->resume : options->checkpoint;
  if (directory == NULL || (options->resume == NULL && !run->program->checkpoint_resume)) return false;
  if (run->world.rank == 0) find(directory, path); /* one rank looks, so that all read the same */
  MPI_Bcast(path, sizeof path, MPI_BYTE, 0, run->world.all);
  if (*path == 0) {
    if (options->resume == NULL) return false;
    pd_fail(PD_EXIT_CHECKPOINT, "checkpoint `%s`: there is none to resume from", directory);
  }
  char *file = join(path, "state.json");
  json_error_t error;
  json_t *state = json_load_file(file, JSON_REJECT_DUPLICATES, &error);
  if (state == NULL) pd_fail(PD_EXIT_CHECKPOINT, "checkpoint `%s`: line %d: %s", file, error.line, error.text);
  check_state(run, state, path);
  position->step = integer_in(state, "step", path);
  position->updates = integer_in(state, "updates", path);
  if (position->step < 0 || position->updates < 0)
    pd_fail(PD_EXIT_CHECKPOINT, "checkpoint `%s`: negative counts", path);
  json_decref(state);
  free(file);
  for (int i = 0; i < file_count(run->program); i++) {
    char *weights = join(path, files[i].file);
    pd_weights_load(run->program, run->engine, files[i].kind, weights);
    free(weights);
  }
  char *before = join(path, BEFORE);
  pd_engine_start_from_loaded(run->engine);
  if (run->plan.pipeline.delay > 0 && access(before, R_OK) == 0)
    pd_weights_load(run->program, run->engine, PD_WEIGHTS_BEFORE, before);
  free(before);
  pd_progress_say(&run->progress, false, "resumes after step %" PRId64 " from `%s`", position->step, path);
  return true;
}
