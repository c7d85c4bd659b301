/* Problem texts, figures in a reader's units and the JSON-lines log.
 *
 * A log line is built in memory and handed to the file in one piece, then flushed: a reader that follows the file, or a
 * run that is killed, never leaves half a line before a whole one.
 */
#include "log.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool pd_problem_say(pd_problem *problem, const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(problem->text, sizeof problem->text, format, list);
  va_end(list);
  return false;
}

/* ---- figures ---- */

char *pd_figure_count(double value, char out[PD_FIGURE]) {
  static const char unit[] = {' ', 'k', 'M', 'B', 'T'};
  int u = 0;
  while (value >= 999.95 && u < 4) value /= 1000, u++;
  if (u == 0)
    snprintf(out, PD_FIGURE, value < 10 && value != floor(value) ? "%.1f" : "%.0f", value);
  else
    snprintf(out, PD_FIGURE, "%.1f%c", value, unit[u]);
  return out;
}

char *pd_figure_bytes(double bytes, char out[PD_FIGURE]) {
  static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int u = 0;
  while (bytes >= 1023.995 && u < 4) bytes /= 1024, u++;
  snprintf(out, PD_FIGURE, u == 0 ? "%.0f %s" : "%.2f %s", bytes, unit[u]);
  return out;
}

char *pd_figure_time(double seconds, char out[PD_FIGURE]) {
  if (!(seconds >= 0 && seconds < 1e12)) seconds = 0;
  const int64_t s = (int64_t)(seconds + 0.5), day = s / 86400;
  const int hour = (int)(s / 3600 % 24), minute = (int)(s / 60 % 60), second = (int)(s % 60);
  if (day > 0)
    snprintf(out, PD_FIGURE, "%" PRId64 "d %02d:%02d", day, hour, minute);
  else if (hour > 0)
    snprintf(out, PD_FIGURE, "%d:%02d:%02d", hour, minute, second);
  else
    snprintf(out, PD_FIGURE, "%d:%02d", minute, second);
  return out;
}

char *pd_figure_span(double seconds, char out[PD_FIGURE]) {
  if (seconds < 0.01)
    snprintf(out, PD_FIGURE, "%.2f ms", seconds * 1e3);
  else if (seconds < 10)
    snprintf(out, PD_FIGURE, "%.0f ms", seconds * 1e3);
  else
    snprintf(out, PD_FIGURE, "%.1f s", seconds);
  return out;
}

char *pd_figure_loss(double value, char out[PD_FIGURE]) {
  const double size = fabs(value);
  snprintf(out, PD_FIGURE, size == 0 || (size >= 0.01 && size < 1e6) ? "%.4f" : "%.4e", value);
  return out;
}

/* ---- JSON lines ---- */

/* A line under construction. Names come from the program (identifiers); quotes and control bytes are dropped rather
 * than trusted. */
typedef struct line {
  char text[8192];
  size_t length;
} line;

static void put(line *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(line *to, const char *format, ...) {
  va_list list;
  va_start(list, format);
  const int n = vsnprintf(to->text + to->length, sizeof to->text - to->length, format, list);
  va_end(list);
  if (n > 0) to->length += (size_t)n;
  if (to->length >= sizeof to->text) to->length = sizeof to->text - 1;
}

static void put_number(line *to, double value) {
  if (isfinite(value))
    put(to, "%.17g", value);
  else
    put(to, "null"); /* JSON has no other word for it */
}

static bool send_line(pd_log *log, line *from, pd_problem *problem) {
  put(from, "\n");
  if (fwrite(from->text, 1, from->length, log->file) == from->length && fflush(log->file) == 0) return true;
  return pd_problem_say(problem, "log `%s`: cannot write: %s", log->path, strerror(errno));
}

/* Cuts the file before the first line of a later step, or that is no line of a log, and stands at its end. */
static bool cut_after(FILE *file, int64_t steps) {
  static const char key[] = "\"step\": ";
  char *text = NULL;
  size_t room = 0;
  long end = 0;
  for (ssize_t n; (n = getline(&text, &room, file)) > 0 && text[n - 1] == '\n'; end += n) {
    const char *step = strstr(text, key);
    if (step == NULL || strtoll(step + sizeof key - 1, NULL, 10) > steps) break;
  }
  free(text);
  return !ferror(file) && fflush(file) == 0 && ftruncate(fileno(file), end) == 0 && fseek(file, end, SEEK_SET) == 0;
}

bool pd_log_open(pd_log *log, const char *path, int64_t steps, pd_problem *problem) {
  *log = (pd_log){.path = path};
  if (path == NULL) return true;
  log->file = steps > 0 ? fopen(path, "r+") : NULL;
  if (steps > 0 && log->file == NULL && errno != ENOENT)
    return pd_problem_say(problem, "log `%s`: cannot open: %s", path, strerror(errno));
  if (log->file != NULL && !cut_after(log->file, steps)) {
    return pd_problem_say(problem, "log `%s`: cannot write: %s", path, strerror(errno));
  }
  if (log->file == NULL) log->file = fopen(path, "w");
  if (log->file == NULL) return pd_problem_say(problem, "log `%s`: cannot open: %s", path, strerror(errno));
  return true;
}

bool pd_log_step(pd_log *log, const pd_step_record *record, pd_problem *problem) {
  if (log->file == NULL) return true;
  line l = {.length = 0};
  put(&l, "{\"step\": %" PRId64 ", \"loss\": ", record->step);
  put_number(&l, record->loss);
  put(&l, ", \"grad_norm\": ");
  put_number(&l, record->grad_norm);
  put(&l, ", \"lr\": ");
  put_number(&l, record->rate);
  put(&l, ", \"tokens\": %" PRId64 ", \"step_ms\": ", record->tokens);
  put_number(&l, record->seconds * 1e3);
  put(&l, ", \"tokens_per_s\": ");
  put_number(&l, record->seconds > 0 ? (double)record->tokens / record->seconds : 0);
  if (record->mfu > 0) {
    put(&l, ", \"mfu\": ");
    put_number(&l, record->mfu);
  }
  put(&l, "}");
  return send_line(log, &l, problem);
}

double pd_mfu(double flops, double seconds, double peak) {
  return seconds > 0 && peak > 0 ? flops / seconds / peak : 0;
}

bool pd_log_use(pd_log *log, const pd_use_record *record, pd_problem *problem) {
  if (log->file == NULL) return true;
  line l = {.length = 0};
  put(&l, "{\"use\": {\"step\": %" PRId64 ", \"steps\": %" PRId64 ", \"step_ms\": ", record->step, record->steps);
  put_number(&l, record->seconds * 1e3);
  put(&l, ", \"flops\": ");
  put_number(&l, record->flops);
  put(&l, ", \"peak_flops\": ");
  put_number(&l, record->peak);
  put(&l, ", \"peak\": \"%s\", \"mfu\": ", record->peak_measured ? "measured" : "declared");
  put_number(&l, pd_mfu(record->flops, record->seconds, record->peak));
  put(&l, "}}");
  return send_line(log, &l, problem);
}

static void put_key(line *to, const char *name) {
  put(to, "\"");
  for (const char *p = name; *p != 0; p++) {
    if (*p != '"' && *p != '\\' && (unsigned char)*p >= 0x20) put(to, "%c", *p);
  }
  put(to, "\": ");
}

bool pd_log_eval(pd_log *log, int64_t step, double loss, int64_t samples, const pd_metric *metrics, int count,
                 pd_problem *problem) {
  if (log->file == NULL) return true;
  line l = {.length = 0};
  put(&l, "{\"eval\": {\"step\": %" PRId64 ", \"loss\": ", step);
  put_number(&l, loss);
  put(&l, ", \"samples\": %" PRId64, samples);
  for (int i = 0; i < count; i++) {
    put(&l, ", ");
    put_key(&l, metrics[i].name);
    put_number(&l, metrics[i].value);
  }
  put(&l, "}}");
  return send_line(log, &l, problem);
}

bool pd_log_close(pd_log *log, pd_problem *problem) {
  FILE *file = log->file;
  log->file = NULL;
  if (file == NULL || fclose(file) == 0) return true;
  return pd_problem_say(problem, "log `%s`: cannot write: %s", log->path, strerror(errno));
}
