/* `pdc diff`: what differs between two plans or schedules, in a person's words. Exit status 0: nothing, 1: something,
 * 2: one of them cannot be read. */
#include "artifact/document.h"
#include "driver/command_line.h"
#include "driver/commands.h"

enum { DIFF_HELP };

static const OptionRow rows[] = {{DIFF_HELP, "--help", FORM_FLAG, NULL, "this text"}};
enum { ROW_COUNT = sizeof rows / sizeof *rows };

typedef struct Wanted {
  const char *files[2];
} Wanted;

static int apply(Arena *arena, void *into, const OptionRow *row, const char *value) {
  (void)arena, (void)into, (void)row, (void)value;
  printf("usage: pdc diff A B\n\n"
         "A and B are pd-plans, pd-schedules, or CSVs as PyTorch's pipelining schedules write them. A line says what "
         "differs\n"
         "and how: from A -> to B. Exit status 0: nothing differs; 1: something does; 2: a file cannot be "
         "read.\n\noptions:\n");
  command_line_help(rows, ROW_COUNT);
  return EXIT_OK;
}

static int take_word(void *into, const char *word) {
  Wanted *wanted = into;
  if (wanted->files[1]) return usage_error("two files: `%s` is a third", word);
  wanted->files[wanted->files[0] != NULL] = word;
  return -1;
}

int command_diff(Arena *arena, int argc, char **argv) {
  Wanted wanted = {0};
  CommandLine line = {"pdc diff", rows, ROW_COUNT, &wanted, apply, take_word};
  int status = command_line_walk(arena, &line, argc, argv, 1);
  if (status >= 0) return status;
  if (!wanted.files[1]) return usage_error("say which two files: %s", "pdc diff A B");
  Document documents[2] = {{0}, {0}};
  for (int k = 0; k < 2 && status < 0; k++) {
    size_t length;
    const char *text = read_whole(arena, wanted.files[k], &length);
    const char *why = text ? document_read(arena, text, length, &documents[k]) : NULL;
    if (why) fprintf(stderr, "pdc: %s: %s\n", wanted.files[k], why);
    if (!text || why) status = EXIT_USAGE;
  }
  if (status < 0) {
    Text out = {.arena = arena};
    bool same = document_diff(arena, &documents[0], &documents[1], &out);
    if (same) text_printf(&out, "nothing differs\n");
    status = !write_whole(arena, "-", out.at, out.length) ? EXIT_USAGE : same ? EXIT_OK : EXIT_PROGRAM;
  }
  for (int k = 0; k < 2; k++) document_free(&documents[k]);
  return status;
}
