/* `pdc lsp`: the language server on standard input and output. */
#include "lsp/lsp.h"

#include <string.h>

#include "driver/driver.h"

int lsp_command(Arena *arena, int argc, char **argv) {
  Options options = {0};
  for (int i = 1; i < argc; i++) {
    const char *word = argv[i];
    if (strcmp(word, "--stdio") == 0) continue; /* what clients say by habit */
    const char *directory = strncmp(word, "-I", 2) != 0 ? NULL : word[2] ? word + 2 : i + 1 < argc ? argv[++i] : NULL;
    if (!directory) {
      fprintf(stderr, "pdc lsp: unknown option `%s`; usage: pdc lsp [-I DIR]\n", word);
      return EXIT_USAGE;
    }
    vec_push(arena, &options.import_dirs, directory);
  }
  uint32_t count = 0;
  const char *const *dirs = import_dirs(arena, &options, &count);
  return lsp_serve(stdin, stdout, dirs, count);
}
