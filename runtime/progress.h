/* What rank 0 shows of a run: the table at its start, a line for steps, lines that stay. On a terminal the step line is
 * drawn over itself; elsewhere every shown step is a line. Other ranks and --quiet show nothing of this. */
#ifndef PD_PROGRESS_H
#define PD_PROGRESS_H

#include "log.h"

#include <stdbool.h>
#include <stdint.h>

struct pd_run;

typedef struct pd_progress {
  bool shows, terminal;
  bool drawn; /* a live line stands on the screen */
  int64_t every, total;
  const char *unit;   /* "tokens" or "samples" */
  double last, began; /* seconds: the last time it was drawn; the start of training */
  double average;     /* seconds per step, recent */
  double after_first; /* seconds of all steps but the first, which is slow */
  double peak;        /* operations a second of all ranks, 0: not known; measured ones before pd_progress_end */
  bool peak_measured; /* not declared */
  double flops;       /* of a step */
  double predicted;   /* seconds of a step by the plan; 0: not predicted */
  int64_t done, tokens;
} pd_progress;

void pd_progress_table(const struct pd_run *run);
void pd_progress_begin(pd_progress *progress, const struct pd_run *run);
void pd_progress_step(pd_progress *progress, const pd_step_record *record);
/* A line that stays; `always`: --quiet does not silence it. Rank 0 only prints. */
void pd_progress_say(pd_progress *progress, bool always, const char *format, ...) __attribute__((format(printf, 3, 4)));
void pd_progress_end(pd_progress *progress);
/* Of the steps that were shown to pd_progress_step, `last` the last one; false when nothing can be said. */
bool pd_progress_use(const pd_progress *progress, int64_t last, pd_use_record *use);

/* Seconds on a clock that only goes forward. */
double pd_now(void);

#endif
