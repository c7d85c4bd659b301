/* Entry point of pdc: commands that stand alone, else the compile. */
#include <string.h>

#include "driver/driver.h"

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    int (*run)(Arena *, int, char **);
  } commands[] = {{"fmt", fmt_command}, {"lsp", lsp_command}};
  Arena *arena = arena_new();
  Options options;
  int status = -1;
  for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++)
    if (strcmp(argv[1], commands[i].name) == 0) status = commands[i].run(arena, argc - 1, argv + 1);
  if (status < 0) status = options_parse(arena, argc, argv, &options);
  if (status < 0) status = compile(arena, &options);
  arena_free(arena);
  return status;
}
