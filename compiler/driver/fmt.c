/* `pdc fmt`: files in canonical form. All files are read and formatted before anything is written: one syntax error,
 * and no file changes. */
#include <errno.h>
#include <string.h>

#include "driver/driver.h"

typedef struct Job {
  const char *path, *text; /* text: as it is */
  size_t length;
  Text formatted;
  bool changes;
} Job;

static bool format(Arena *arena, Diagnostics *diagnostics, Intern *names, Job *job) {
  unsigned errors = diag_errors(diagnostics);
  uint32_t file =
      diag_add_source(diagnostics, strcmp(job->path, "-") == 0 ? "<stdin>" : job->path, job->text, job->length);
  Module *module = syntax_parse(arena, names, diagnostics, file);
  if (diag_errors(diagnostics) > errors) return false;
  job->formatted.arena = arena;
  syntax_format(&job->formatted, diagnostics, module);
  job->changes = job->formatted.length != job->length || memcmp(job->formatted.at, job->text, job->length) != 0;
  return true;
}

static int usage(const char *argument) {
  fprintf(stderr, "pdc fmt: %s; usage: pdc fmt [-w | --check] FILE.pd … (`-` is standard input)\n", argument);
  return EXIT_USAGE;
}

int fmt_command(Arena *arena, int argc, char **argv) {
  bool write = false, check = false;
  VEC(Job) jobs = {0};
  for (int i = 1; i < argc; i++) {
    const char *word = argv[i];
    if (strcmp(word, "-w") == 0)
      write = true;
    else if (strcmp(word, "--check") == 0)
      check = true;
    else if (word[0] == '-' && word[1])
      return usage(arena_printf(arena, "unknown option `%s`", word));
    else
      vec_push(arena, &jobs, (Job){.path = word});
  }
  if (!jobs.count) return usage("no input file");
  if (write && check) return usage("-w and --check exclude each other");
  Diagnostics *diagnostics = diagnostics_new(arena);
  Intern *names = intern_new(arena);
  bool changes = false;
  for (uint32_t i = 0; i < jobs.count; i++) {
    Job *job = &jobs.at[i];
    if (write && strcmp(job->path, "-") == 0) return usage("-w cannot rewrite standard input");
    job->text = read_whole(arena, job->path, &job->length);
    if (!job->text) return EXIT_USAGE;
    format(arena, diagnostics, names, job);
    changes |= job->changes;
  }
  diag_render(diagnostics, stderr, DIAG_TEXT, use_color("auto"));
  if (diag_errors(diagnostics)) return EXIT_PROGRAM;
  for (uint32_t i = 0; i < jobs.count; i++) {
    const Job *job = &jobs.at[i];
    if (check && job->changes) printf("%s\n", job->path);
    const char *path = write ? job->path : "-";
    if (!check && (!write || job->changes) && !write_whole(arena, path, job->formatted.at, job->formatted.length))
      return EXIT_USAGE;
  }
  return check && changes ? EXIT_PROGRAM : EXIT_OK;
}
