/* The number of replicas of a run. A program says its dp, or (dp=*) has a plan for each of several, and the launch
 * gives one of them: by its number of ranks, or by --dp. Below, `asked` is --dp, 0 when it is not given. */
#ifndef PD_DEGREES_H
#define PD_DEGREES_H

#include "log.h"
#include "program.h"

/* World ranks with `dp` replicas. */
int64_t pd_degrees_ranks(const pd_program *program, int dp);
/* Whether the program can run with `asked` replicas; a problem that says which it can. 0 is always good. */
bool pd_degrees_check(const pd_program *program, int64_t asked, pd_problem *problem);
/* The dp of a run on `ranks` ranks, or 0 if they are not a number that works. */
int pd_degrees_of(const pd_program *program, int64_t asked, int64_t ranks);
/* The dp to start, or to speak of, when no ranks are there: the one that was asked for, or the smallest. */
int pd_degrees_first(const pd_program *program, int64_t asked);
/* The dp with the most ranks that are not more than `ranks`; if all need more, the smallest. */
int pd_degrees_below(const pd_program *program, int64_t asked, int64_t ranks);

/* The numbers that work, "2, 4 or 8", as dp or (ranks) as world ranks: in a buffer that the next call with the same
 * `ranks` writes over. Of very many, some are left out. */
const char *pd_degrees_text(const pd_program *program, int64_t asked, bool ranks);

/* The program with one of its dp, its plan unpacked: what everything after the launch works with. A copy, which
 * pd_degrees_release frees. False with a problem when the plan cannot be
 * unpacked; `taken` is good but for it. */
bool pd_degrees_take(const pd_program *program, int dp, pd_program *taken, pd_problem *problem);
void pd_degrees_release(const pd_program *program, pd_program *taken);

#endif
