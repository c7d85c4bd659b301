/* Edit distance for spelling hints: insertions, deletions, replacements and swaps of neighbours each cost one.
 * Assumes that nobody wants a hint for names longer than LONGEST: those are reported as too far apart. */
#include <string.h>

#include "support/arena.h"

enum { LONGEST = 128 };

static unsigned least(unsigned a, unsigned b) {
  return a < b ? a : b;
}

unsigned edit_distance(const char *a, const char *b, unsigned limit) {
  size_t rows = strlen(a), columns = strlen(b);
  size_t apart = rows > columns ? rows - columns : columns - rows;
  if (apart > limit) return limit + 1;
  if (rows > LONGEST || columns > LONGEST) return strcmp(a, b) == 0 ? 0 : limit + 1;
  unsigned table[3][LONGEST + 1]; /* the row being filled, the one before, and the one before that */
  unsigned *current = table[0], *previous = table[1], *older = table[2];
  for (size_t j = 0; j <= columns; j++) previous[j] = (unsigned)j;
  memset(older, 0, sizeof table[0]);
  for (size_t i = 1; i <= rows; i++) {
    unsigned best = current[0] = (unsigned)i;
    for (size_t j = 1; j <= columns; j++) {
      unsigned cost = a[i - 1] == b[j - 1] ? 0 : 1;
      unsigned distance = least(least(previous[j], current[j - 1]) + 1, previous[j - 1] + cost);
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) distance = least(distance, older[j - 2] + 1);
      current[j] = distance;
      best = least(best, distance);
    }
    if (best > limit) return limit + 1;
    unsigned *recycled = older;
    older = previous;
    previous = current;
    current = recycled;
  }
  return least(previous[columns], limit + 1);
}
