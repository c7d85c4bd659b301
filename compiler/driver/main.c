/* Entry point of pdc: commands that stand alone, else the compile. */
#include "driver/commands.h"
#include "driver/driver.h"

int main(int argc, char **argv) {
  Arena *arena = arena_new();
  Options options;
  const Command *command = argc > 1 ? command_find(argv[1]) : NULL;
  int status = command ? command->run(arena, argc - 1, argv + 1) : options_parse(arena, argc, argv, &options);
  if (status < 0) status = compile(arena, &options);
  arena_free(arena);
  return status;
}
