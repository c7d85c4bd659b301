/* Words for people and for machines: problem texts that travel up to whoever may end the run, figures in a reader's
 * units, and the run's log as JSON lines. Knows nothing of ranks; only rank 0 opens a log. */
#ifndef PD_LOG_H
#define PD_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* What went wrong, as one sentence for the user. Functions that can fail for reasons outside the program return false
 * and fill one. */
typedef struct pd_problem {
  char text[3072];
} pd_problem;
/* Always false, so that a function can end with `return pd_problem_say(…)`. */
bool pd_problem_say(pd_problem *problem, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Figures in short form; `out` holds PD_FIGURE bytes and is returned. */
#define PD_FIGURE 32
char *pd_figure_count(double value, char out[PD_FIGURE]);  /* 812, 8.1k, 124.4M */
char *pd_figure_bytes(double bytes, char out[PD_FIGURE]);  /* 812 B, 1.50 GiB */
char *pd_figure_time(double seconds, char out[PD_FIGURE]); /* 0:31, 2:05:10, 3d 04:00 */
char *pd_figure_span(double seconds, char out[PD_FIGURE]); /* 8.2 ms, 123 ms, 12.4 s */
char *pd_figure_loss(double value, char out[PD_FIGURE]);   /* 2.4321 */

/* One optimizer step, as it is logged. */
typedef struct pd_step_record {
  int64_t step; /* counts from 1 */
  double loss, grad_norm, rate;
  int64_t tokens; /* of this step, all replicas; samples when the model has no token axis */
  double seconds;
  double mfu; /* pd_mfu of this step; 0: the peak is not declared, and the log has none */
} pd_step_record;

/* How much of the machine a run used, without its first step, which is slow. */
typedef struct pd_use_record {
  int64_t step;       /* the last one */
  int64_t steps;      /* how many there were after the first */
  double seconds;     /* of one of them, on average */
  double flops;       /* operations of a step */
  double peak;        /* operations a second of all ranks */
  bool peak_measured; /* not declared */
} pd_use_record;
/* Model FLOPs utilisation: the share of `peak` (operations a second) that `flops` operations in `seconds` are; 0 when
 * one of the two is not known. */
double pd_mfu(double flops, double seconds, double peak);

typedef struct pd_metric {
  const char *name;
  double value;
} pd_metric;

/* JSON lines. Every line is written whole and flushed; numbers read back equal. */
typedef struct pd_log {
  FILE *file; /* NULL: no log */
  const char *path;
} pd_log;
/* Starts the file anew; with `steps` above 0, goes on with one that is there, after its lines of steps up to that one.
 */
bool pd_log_open(pd_log *log, const char *path, int64_t steps, pd_problem *problem);
bool pd_log_step(pd_log *log, const pd_step_record *record, pd_problem *problem);
/* {"use": {"step": …, "steps": …, "step_ms": …, "flops": …, "peak_flops": …, "peak": "declared" or "measured", "mfu":
 * …}} */
bool pd_log_use(pd_log *log, const pd_use_record *record, pd_problem *problem);
/* {"eval": {"step": …, "loss": …, "samples": …, metrics…}} */
bool pd_log_eval(pd_log *log, int64_t step, double loss, int64_t samples, const pd_metric *metrics, int count,
                 pd_problem *problem);
bool pd_log_close(pd_log *log, pd_problem *problem);

#endif
