/* See words.h. */
#include "artifact/words.h"

#include <math.h>
#include <string.h>

const char *number_words(Arena *arena, double value) {
  if (value == 0) return "0"; /* and not -0 */
  if (value == floor(value) && fabs(value) < 1e15) return arena_printf(arena, "%.0f", value);
  return arena_printf(arena, "%.6g", value);
}

const char *time_words(Arena *arena, double time, const char *unit) {
  static const struct {
    double size;
    const char *name;
  } units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}};
  if (strcmp(unit, "ns") != 0 || time == 0) return number_words(arena, time);
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (fabs(time) >= units[i].size) return arena_printf(arena, "%.4g %s", time / units[i].size, units[i].name);
  return arena_printf(arena, "%s ns", number_words(arena, time));
}

const char *bytes_words(Arena *arena, double bytes) {
  static const char *const names[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  size_t k = 0;
  while (bytes >= 1024 && k + 1 < sizeof names / sizeof *names) bytes /= 1024, k++;
  return arena_printf(arena, k == 0 ? "%.0f %s" : "%.4g %s", bytes, names[k]);
}

const char *count_words(Arena *arena, int64_t count, const char *one) {
  return arena_printf(arena, "%lld %s%s", (long long)count, one,
                      count == 1                        ? ""
                      : strcmp(one, "micro-batch") == 0 ? "es"
                                                        : "s");
}
