/* -M: what a program is made of, as a rule for make. Every import gets a rule of its own without a recipe, so that a
 * deleted file makes the program out of date and not make fail. */
#include <string.h>

#include "driver/driver.h"
#include "driver/passes.h"

/* Blanks, `#` and `$` mean something to make. */
static void put_path(Text *out, const char *path) {
  for (; *path; path++) {
    if (*path == ' ' || *path == '\t' || *path == '#') text_put(out, "\\", 1);
    if (*path == '$') text_put(out, "$", 1);
    text_put(out, path, 1);
  }
}

void dependencies_text(const Compilation *c, const Options *options, const char *target, Text *out) {
  put_path(out, target);
  text_put(out, ":", 1);
  for (uint32_t i = 0; i < c->semantic.modules.count; i++) {
    if (i == 0 && strcmp(options->input, "-") == 0) continue;
    text_put(out, i ? " \\\n  " : " ", i ? 5 : 1);
    put_path(out, diag_source(c->diagnostics, c->semantic.modules.at[i]->file)->path);
  }
  text_put(out, "\n", 1);
  for (uint32_t i = 1; i < c->semantic.modules.count; i++) {
    text_put(out, "\n", 1);
    put_path(out, diag_source(c->diagnostics, c->semantic.modules.at[i]->file)->path);
    text_put(out, ":\n", 2);
  }
}
