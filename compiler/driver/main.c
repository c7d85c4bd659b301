/* Entry point of pdc. */
#include "driver/driver.h"

int main(int argc, char **argv) {
  Arena *arena = arena_new();
  Options options;
  int status = options_parse(arena, argc, argv, &options);
  if (status < 0) status = compile(arena, &options);
  arena_free(arena);
  return status;
}
