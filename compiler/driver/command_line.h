/* Options as a table of rows: one parser and one list of help for `pdc` and each of its commands. */
#ifndef PDC_DRIVER_COMMAND_LINE_H
#define PDC_DRIVER_COMMAND_LINE_H

#include "driver/driver.h"

typedef enum OptionForm {
  FORM_FLAG,
  FORM_JOINED_OR_NEXT /* -ofile, -o file */,
  FORM_EQUALS /* --emit=x */,
  FORM_PREFIX /* -O3 */
} OptionForm;

typedef struct OptionRow {
  int id;
  const char *name;
  OptionForm form;
  const char *argument, *help;
} OptionRow;

typedef struct CommandLine {
  const char *command; /* "pdc schedule" */
  const OptionRow *rows;
  int row_count;
  void *into;
  /* what an option or a word without a dash does; -1 to go on, or the exit status of a command that is done */
  int (*option)(Arena *arena, void *into, const OptionRow *row, const char *value);
  int (*word)(void *into, const char *word);
} CommandLine;

/* Walks argv[first …]. Returns -1 to go on, or an exit status. */
int command_line_walk(Arena *arena, const CommandLine *line, int argc, char **argv, int first);
/* A line per row. */
void command_line_help(const OptionRow *rows, int count);
/* "pdc: " and the sentence, with one argument; EXIT_USAGE. */
int usage_error(const char *format, const char *argument);
/* "F,I,W" or "F,I,W,LINK" */
int parse_costs(const char *text, double costs[4]);
/* A whole number from `least` to `most`. */
int parse_whole(const char *option, const char *text, int64_t least, int64_t most, int64_t *out);
/* A number above 0. */
int parse_number(const char *option, const char *text, double *out);

#endif
