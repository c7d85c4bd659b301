/* The command line of a compiled program: one table of options, from which the parser and --help come. */
#ifndef PD_OPTIONS_H
#define PD_OPTIONS_H

#include "log.h"
#include "program.h"

typedef struct pd_options {
  int64_t steps, eval_every, save_every, seed; /* the program's where not said */
  bool seed_given;                             /* --seed overrides the seed of the data section too */
  const char *data, *valid;                    /* PATH or name=path,name=path; NULL: the data section's */
  const char *init, *save, *gradients;
  const char *checkpoint, *resume; /* resume: "" for that of `checkpoint` */
  int64_t keep;
  const char *log;
  const char *generate;
  int64_t tokens;
  int64_t check_gradients; /* elements per parameter; 0: no check */
  double temperature;
  int64_t dp; /* 0: what the number of ranks gives */
  bool dry_run, plan;
  int64_t timeout; /* seconds; 0: none; -1: not given, see pd_options_timeout */
  int64_t threads; /* 0: chosen from the machine */
  const char *kernels;
  bool quiet, help, version;
} pd_options;

/* Seconds without a move that end a run of so many ranks, 0: none. One rank, which no other can keep waiting, has a
 * time-out only if it is given one. */
int64_t pd_options_timeout(const pd_options *options, int ranks);
/* `--name=value`, `--name value`, `--flag`; an unknown name is a problem with a suggestion. */
bool pd_options_parse(const pd_program *program, int argc, char **argv, pd_options *options, pd_problem *problem);
void pd_options_help(const pd_program *program, FILE *to);

#endif
