/* Messages of the protocol: a header with `Content-Length`, an empty line, a body. A broken header is skipped up to the
 * next line that is one. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lsp/lsp.h"

enum { LONGEST_LINE = 4096, LONGEST_MESSAGE = 256 * 1024 * 1024 };

/* One line without its end, cut where it is too long. False at the end of input. */
static bool read_line(FILE *in, char *line) {
  size_t length = 0;
  int c;
  while ((c = getc(in)) != EOF && c != '\n')
    if (length + 1 < LONGEST_LINE) line[length++] = (char)c;
  if (c == EOF && length == 0) return false;
  while (length && line[length - 1] == '\r') length--;
  line[length] = '\0';
  return true;
}

/* The value of a `Content-Length` line, or -1. */
static long long content_length(const char *line) {
  static const char name[] = "content-length:";
  if (strncasecmp(line, name, sizeof name - 1) != 0) return -1;
  line += sizeof name - 1;
  while (*line == ' ' || *line == '\t') line++;
  if (!isdigit((unsigned char)*line)) return -1;
  char *end;
  long long value = strtoll(line, &end, 10);
  while (*end == ' ' || *end == '\t') end++;
  return *end ? -1 : value;
}

char *message_read(FILE *in, size_t *length) {
  char line[LONGEST_LINE];
  long long wanted = -1;
  while (read_line(in, line)) {
    long long value = content_length(line);
    if (value >= 0) wanted = value;
    if (line[0] || wanted < 0) continue;
    if (wanted > LONGEST_MESSAGE) { /* taken off the input, and forgotten */
      while (wanted-- > 0 && getc(in) != EOF) continue;
      wanted = -1;
      continue;
    }
    char *body = malloc((size_t)wanted + 1);
    if (!body) exit(70);
    *length = fread(body, 1, (size_t)wanted, in);
    body[*length] = '\0';
    if (*length == (size_t)wanted) return body;
    free(body);
    return NULL;
  }
  return NULL;
}

void message_write(FILE *out, const char *body, size_t length) {
  fprintf(out, "Content-Length: %zu\r\n\r\n", length);
  fwrite(body, 1, length, out);
  fflush(out);
}
