/* Entry point of pdc: commands that stand alone, else the compile. */
#include <errno.h>
#include <string.h>

#include "driver/commands.h"
#include "driver/driver.h"

int main(int argc, char **argv) {
  Arena *arena = arena_new();
  Options options;
  const Command *command = argc > 1 ? command_find(argv[1]) : NULL;
  int status = command ? command->run(arena, argc - 1, argv + 1) : options_parse(arena, argc, argv, &options);
  if (status < 0) status = compile(arena, &options);
  arena_free(arena);
  if (fflush(stdout) != 0 && status == EXIT_OK) { /* --help on a full disk is no success either */
    fprintf(stderr, "pdc: cannot write to standard output: %s\n", strerror(errno));
    status = EXIT_USAGE;
  }
  return status;
}
