/* Actions of a pipeline as text, and how many micro-batches are under way at once. Shared by compiler and runtime: no
 * MPI, no state. */
#include "schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[PD_ACTION_KINDS] = {"F",      "B",      "I",      "W",          "SEND_F",
                                                        "RECV_F", "SEND_B", "RECV_B", "REDUCE_GRAD"};

void pd_action_text(pd_action action, char *out) {
  bool known = (unsigned)action.kind < PD_ACTION_KINDS;
  const char *name = known ? kind_names[action.kind] : "?";
  if (action.microbatch == PD_NO_MICROBATCH) {
    snprintf(out, 48, "%d%s", (int)action.chunk, name);
  } else {
    snprintf(out, 48, "%d%s%d", (int)action.chunk, name, (int)action.microbatch);
  }
}

/* Digits at *text into *number, moving *text past them; false if there are none or the number is too large. */
static bool read_number(const char **text, int32_t *number) {
  const char *p = *text;
  int64_t value = 0;
  for (; *p >= '0' && *p <= '9'; p++) {
    value = value * 10 + (*p - '0');
    if (value > INT32_MAX) return false;
  }
  if (p == *text) return false;
  *number = (int32_t)value;
  *text = p;
  return true;
}

bool pd_action_parse(const char *text, pd_action *action) {
  pd_action read = {PD_F, 0, PD_NO_MICROBATCH};
  if (!read_number(&text, &read.chunk)) return false;
  size_t length = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
  int kind = 0;
  while (kind < PD_ACTION_KINDS &&
         (strlen(kind_names[kind]) != length || memcmp(kind_names[kind], text, length) != 0)) {
    kind++;
  }
  if (kind == PD_ACTION_KINDS) return false;
  text += length;
  read.kind = (pd_action_kind)kind;
  if (read.kind != PD_REDUCE_GRAD && !read_number(&text, &read.microbatch)) return false;
  if (*text != '\0') return false;
  *action = read;
  return true;
}

/* Follows a window over the rank's list. With slots > 0: whether micro-batch i can always have slot i % slots; else
 * `peak` gets the most that are open at once. State per micro-batch: 0 not yet, 1 open, 2 closed. */
static bool follow(const pd_pipeline *pipeline, int rank, pd_window window, int64_t slots, int64_t *peak) {
  size_t count = (size_t)(pipeline->microbatches > 0 ? pipeline->microbatches : 1);
  char *state = calloc(count, 1);
  char *taken = calloc(count, 1);
  if (state == NULL || taken == NULL) abort();
  const pd_action_list *list = &pipeline->ranks[rank];
  int64_t open = 0;
  bool fits = true;
  *peak = 0;
  for (int64_t i = 0; i < list->count && fits; i++) {
    pd_action action = list->at[i];
    int64_t mb = action.microbatch;
    if (mb < 0 || mb >= pipeline->microbatches) continue;
    unsigned bit = 1u << action.kind;
    if (action.chunk == window.from_chunk && (window.from_kinds & bit) && state[mb] == 0) {
      state[mb] = 1;
      open++;
      if (open > *peak) *peak = open;
      if (slots > 0) {
        fits = !taken[mb % slots];
        taken[mb % slots] = 1;
      }
    }
    if (action.chunk == window.to_chunk && (window.to_kinds & bit) && state[mb] == 1) {
      state[mb] = 2;
      open--;
      if (slots > 0) taken[mb % slots] = 0;
    }
  }
  free(state);
  free(taken);
  return fits;
}

int64_t pd_window_peak(const pd_pipeline *pipeline, int rank, pd_window window) {
  int64_t peak;
  follow(pipeline, rank, window, 0, &peak);
  return peak;
}

int64_t pd_window_slots(const pd_pipeline *pipeline, int rank, pd_window window) {
  int64_t peak, unused;
  follow(pipeline, rank, window, 0, &peak);
  int64_t slots = peak > 0 ? peak : 1;
  while (slots < pipeline->microbatches && !follow(pipeline, rank, window, slots, &unused)) slots++;
  return peak > 0 ? slots : 0;
}

int64_t pd_in_flight(const pd_pipeline *pipeline, int chunk) {
  pd_window window = {chunk, chunk, 1u << PD_F | 1u << PD_RECV_F, 1u << PD_B | 1u << PD_W};
  return pd_window_peak(pipeline, pipeline->rank_of[chunk], window);
}

typedef struct versions {
  int64_t most, staleness;
} versions;

/* Follows the versions of a chunk's weights over its rank's list. */
static versions follow_versions(const pd_pipeline *pipeline, int chunk) {
  versions found = {1, 0};
  int64_t count = pipeline->microbatches > 0 ? pipeline->microbatches : 1;
  int64_t *version = calloc((size_t)count, sizeof *version); /* that a micro-batch began with */
  if (version == NULL) abort();
  const pd_action_list *list = &pipeline->ranks[pipeline->rank_of[chunk]];
  int64_t begun = 0, finished = 0; /* micro-batches of a chunk come in order */
  for (int64_t i = 0; i < list->count && finished < count; i++) {
    pd_action action = list->at[i];
    if (action.chunk != chunk) continue;
    if (action.kind == PD_F && begun < count) version[begun++] = finished / pipeline->step;
    if (action.kind == PD_B || action.kind == PD_W) {
      int64_t late = finished / pipeline->step - version[finished];
      if (late > found.staleness) found.staleness = late;
      finished++;
    }
    int64_t kept = 1, last = finished / pipeline->step;
    for (int64_t mb = begun; mb-- > finished;) {
      kept += version[mb] != last;
      last = version[mb];
    }
    if (kept > found.most) found.most = kept;
  }
  free(version);
  return found;
}

int64_t pd_weight_versions(const pd_pipeline *pipeline, int chunk) {
  if (pipeline->step <= 0) return 1;
  return pipeline->delay > 0 ? pipeline->delay + 1 : follow_versions(pipeline, chunk).most;
}

int64_t pd_weight_staleness(const pd_pipeline *pipeline, int chunk) {
  if (pipeline->step <= 0) return 0;
  return pipeline->delay > 0 ? pipeline->delay : follow_versions(pipeline, chunk).staleness;
}
