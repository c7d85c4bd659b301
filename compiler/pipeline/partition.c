/* Cuts a chain of units into contiguous, non-empty runs. The largest run is made as cheap as possible (parametric
 * search on its cost); among all such cuts the one with the least sum of squares is taken, so that what the largest run
 * does not decide is balanced too (dynamic programming inside the windows that the largest run leaves, divide and
 * conquer over the monotone best cut). Ties go to smaller runs first: early stages keep more micro-batches in flight.
 */
#include <stdbool.h>

#include "pipeline/pipeline.h"

__extension__ typedef __int128 Wide;

typedef struct Cutter {
  int64_t count;
  int parts;
  int64_t limit;         /* cost of the largest run */
  const int64_t *prefix; /* count + 1 sums; their total is below 2^62 */
  int64_t *low, *high;   /* per cut 0..parts: where it may lie */
  const Wide *before;    /* least sum of squares of the runs up to the previous cut, by its position */
  Wide *here;            /* the same for this cut */
  int32_t *choice;       /* previous cut, by position of this one */
} Cutter;

/* Largest end of a run that starts at `begin` and costs at most `limit`. */
static int64_t reach(const int64_t *prefix, int64_t count, int64_t begin, int64_t limit) {
  int64_t low = begin, high = count;
  while (low < high) {
    int64_t middle = low + (high - low + 1) / 2;
    if (prefix[middle] - prefix[begin] <= limit)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

static bool feasible(const int64_t *prefix, int64_t count, int parts, int64_t limit) {
  int64_t at = 0;
  for (int part = 0; part < parts && at < count; part++) {
    int64_t next = reach(prefix, count, at, limit);
    if (next == at) return false;
    at = next;
  }
  return at == count;
}

static int64_t least_limit(const int64_t *prefix, int64_t count, int parts) {
  int64_t low = 0, high = prefix[count];
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (feasible(prefix, count, parts, middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* Smallest begin of a run that ends at `end` and costs at most `limit`. */
static int64_t reach_back(const int64_t *prefix, int64_t end, int64_t limit) {
  int64_t low = 0, high = end;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (prefix[end] - prefix[middle] <= limit)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}
static int64_t most(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* Cut k may lie where the runs before it and the runs after it can each keep to the limit, none of them empty. */
static void find_windows(Cutter *cutter) {
  const int64_t *prefix = cutter->prefix;
  int64_t count = cutter->count;
  int parts = cutter->parts;
  cutter->low[parts] = cutter->high[parts] = count;
  cutter->low[0] = cutter->high[0] = 0;
  for (int cut = 1; cut < parts; cut++)
    cutter->high[cut] = least(reach(prefix, count, cutter->high[cut - 1], cutter->limit), count - (parts - cut));
  for (int cut = parts - 1; cut > 0; cut--)
    cutter->low[cut] = most(reach_back(prefix, cutter->low[cut + 1], cutter->limit), cut);
}

/* Fills here[] and choice[] for positions first..last of cut `cut`; the best previous cut lies in from..to. Every
 * position of a window can be reached from the window before it, so there always is one. */
static void solve(Cutter *cutter, int cut, int64_t first, int64_t last, int64_t from, int64_t to) {
  while (first <= last) {
    int64_t middle = first + (last - first) / 2, best = -1;
    int64_t begin = most(from, reach_back(cutter->prefix, middle, cutter->limit)), end = least(to, middle - 1);
    Wide least_sum = 0;
    for (int64_t previous = begin; previous <= end; previous++) {
      Wide run = cutter->prefix[middle] - cutter->prefix[previous];
      Wide sum = cutter->before[previous - cutter->low[cut - 1]] + run * run;
      if (best < 0 || sum < least_sum) least_sum = sum, best = previous;
    }
    cutter->here[middle - cutter->low[cut]] = least_sum;
    cutter->choice[middle - cutter->low[cut]] = (int32_t)best;
    solve(cutter, cut, first, middle - 1, from, best);
    first = middle + 1;
    from = best;
  }
}

/* Sums of costs, scaled down until squares of sums fit in 127 bits. */
static int64_t *sums_of(Arena *arena, const int64_t *costs, int64_t count) {
  int64_t *prefix = ARENA_ARRAY(arena, int64_t, count + 1);
  for (int shift = 0;; shift++) {
    bool fits = true;
    for (int64_t i = 0; i < count && fits; i++) {
      int64_t cost = costs[i] > 0 ? costs[i] >> shift : 0;
      fits = !__builtin_add_overflow(prefix[i], cost, &prefix[i + 1]) && prefix[i + 1] < INT64_C(1) << 62;
    }
    if (fits) return prefix;
  }
}

bool partition(Arena *arena, const int64_t *costs, int64_t count, int parts, int64_t *bounds) {
  if (parts < 1 || count < parts || count > INT32_MAX) return false;
  Cutter cutter = {.count = count, .parts = parts};
  cutter.prefix = sums_of(arena, costs, count);
  cutter.limit = least_limit(cutter.prefix, count, parts);
  cutter.low = ARENA_ARRAY(arena, int64_t, parts + 1);
  cutter.high = ARENA_ARRAY(arena, int64_t, parts + 1);
  find_windows(&cutter);
  int32_t **choices = ARENA_ARRAY(arena, int32_t *, parts + 1);
  int64_t widest = 1;
  for (int cut = 0; cut <= parts; cut++) widest = most(widest, cutter.high[cut] - cutter.low[cut] + 1);
  Wide *sums[2] = {ARENA_ARRAY(arena, Wide, widest), ARENA_ARRAY(arena, Wide, widest)};
  for (int cut = 1; cut <= parts; cut++) {
    cutter.before = sums[(cut - 1) % 2];
    cutter.here = sums[cut % 2];
    cutter.choice = choices[cut] = ARENA_ARRAY(arena, int32_t, cutter.high[cut] - cutter.low[cut] + 1);
    solve(&cutter, cut, cutter.low[cut], cutter.high[cut], cutter.low[cut - 1], cutter.high[cut - 1]);
  }
  bounds[parts] = count;
  for (int cut = parts; cut > 0; cut--) bounds[cut - 1] = choices[cut][bounds[cut] - cutter.low[cut]];
  return true;
}
