/* See command_line.h. */
#include "driver/command_line.h"

#include <stdlib.h>
#include <string.h>

int usage_error(const char *format, const char *argument) {
  fprintf(stderr, "pdc: ");
  fprintf(stderr, format, argument);
  fprintf(stderr, "\n");
  return EXIT_USAGE;
}

void command_line_help(const OptionRow *rows, int count) {
  for (int i = 0; i < count; i++) {
    char left[64];
    const char *between = rows[i].form == FORM_EQUALS ? "=" : rows[i].form == FORM_JOINED_OR_NEXT ? " " : "";
    snprintf(left, sizeof left, "%s%s%s", rows[i].name, rows[i].argument ? between : "",
             rows[i].argument ? rows[i].argument : "");
    printf("  %-22s %s\n", left, rows[i].help);
  }
}

static int unknown(const CommandLine *line, const char *argument) {
  const char *best = NULL;
  unsigned least = 4;
  for (int i = 0; i < line->row_count; i++) {
    size_t length = strcspn(argument, "=");
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(length < 60 ? length : 60), argument);
    unsigned distance = edit_distance(name, line->rows[i].name, 3);
    if (distance < least) least = distance, best = line->rows[i].name;
  }
  fprintf(stderr, "pdc: unknown option `%s`", argument);
  if (best) fprintf(stderr, "; did you mean `%s`?", best);
  fprintf(stderr, " (%s --help lists all)\n", line->command);
  return EXIT_USAGE;
}

int command_line_walk(Arena *arena, const CommandLine *line, int argc, char **argv, int first) {
  for (int i = first; i < argc; i++) {
    const char *argument = argv[i];
    if (argument[0] != '-' || argument[1] == 0) {
      int status = line->word(line->into, argument);
      if (status >= 0) return status;
      continue;
    }
    const OptionRow *row = NULL;
    const char *value = NULL;
    for (int k = 0; k < line->row_count && !row; k++) {
      const OptionRow *candidate = &line->rows[k];
      size_t length = strlen(candidate->name);
      if (strncmp(argument, candidate->name, length) != 0) continue;
      const char *rest = argument + length;
      if (candidate->form == FORM_FLAG && !*rest) row = candidate;
      if (candidate->form == FORM_PREFIX) row = candidate, value = rest;
      if (candidate->form == FORM_EQUALS && (*rest == '=' || !*rest)) row = candidate, value = *rest ? rest + 1 : NULL;
      if (candidate->form == FORM_JOINED_OR_NEXT) row = candidate, value = *rest ? rest : NULL;
    }
    if (!row) return unknown(line, argument);
    if (row->form != FORM_FLAG && row->form != FORM_PREFIX && !value) {
      if (i + 1 >= argc) return usage_error("option %s needs a value", row->name);
      value = argv[++i];
    }
    int status = line->option(arena, line->into, row, value);
    if (status >= 0) return status;
  }
  return -1;
}

int parse_costs(const char *text, double costs[4]) {
  int count = 0;
  const char *at = text;
  costs[3] = 0;
  while (count < 4) {
    char *end;
    if (!strchr("0123456789.", *at) || !*at) break;
    costs[count] = strtod(at, &end);
    if (end == at || strspn(at, "0123456789.eE+-") < (size_t)(end - at) || !(costs[count] >= 0 && costs[count] <= 1e12))
      break;
    count++;
    at = end;
    if (*at != ',') break;
    at++;
  }
  if (*at || count < 3 || at[-1] == ',')
    return usage_error("--costs=%s: write F,I,W or F,I,W,LINK: times from 0 to 1e12, as in --costs=1,1,0.5", text);
  if (!(costs[0] + costs[1] + costs[2] > 0)) return usage_error("--costs=%s: one of F, I and W must take time", text);
  return -1;
}

int parse_whole(const char *option, const char *text, int64_t least, int64_t most, int64_t *out) {
  char *end;
  size_t length = strlen(text);
  bool digits = length > 0 && length < 19 && strspn(text, "0123456789") == length;
  *out = digits ? strtoll(text, &end, 10) : 0;
  if (digits && *out >= least && *out <= most) return -1;
  fprintf(stderr, "pdc: %s=%s: must be a whole number from %lld to %lld\n", option, text, (long long)least,
          (long long)most);
  return EXIT_USAGE;
}

int parse_number(const char *option, const char *text, double *out) {
  char *end;
  *out = strtod(text, &end);
  if (*text && !*end && strspn(text, "0123456789.eE+-") == strlen(text) && *out > 0 && *out <= 1e12) return -1;
  fprintf(stderr, "pdc: %s=%s: must be a number above 0, at most 1e12\n", option, text);
  return EXIT_USAGE;
}
