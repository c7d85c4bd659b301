/* The commands beside compiling. Each lies in a file of its own with its options, and returns an exit status. */
#ifndef PDC_DRIVER_COMMANDS_H
#define PDC_DRIVER_COMMANDS_H

#include <stdbool.h>

#include "support/arena.h"

/* argv[0] is the command's name. */
typedef struct Command {
  const char *name;
  int (*run)(Arena *arena, int argc, char **argv);
  const char *usage, *help;
  bool has_help; /* understands --help */
} Command;

/* NULL if `name` is no command. */
const Command *command_find(const char *name);
/* The command that a word is almost, `check` included; NULL: none. */
const char *commands_nearest(const char *word);
/* A line per command, as in --help. */
void commands_help(void);

int command_schedule(Arena *arena, int argc, char **argv);
int command_certify(Arena *arena, int argc, char **argv);
int command_diff(Arena *arena, int argc, char **argv);
int command_nvrtc(Arena *arena, int argc, char **argv);

#endif
