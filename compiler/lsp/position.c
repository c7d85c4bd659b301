/* Byte offsets to lines and UTF-16 columns, paths to URIs, and back. Offsets and columns beyond an end count as the
 * end; a byte that is not UTF-8 is one column. */
#include <ctype.h>
#include <string.h>

#include "lsp/lsp.h"
#include "support/utf8.h"

/* The code point at `at`: its bytes, and its UTF-16 units in `units`. */
static size_t step(const char *text, size_t length, size_t at, uint32_t *units) {
  uint32_t code = 0;
  unsigned bytes = utf8_decode(text + at, length - at, &code);
  *units = bytes && code >= 0x10000 ? 2 : 1;
  return bytes ? bytes : 1;
}

Position position_of(const char *text, size_t length, size_t offset) {
  Position position = {0};
  size_t line = 0;
  if (offset > length) offset = length;
  for (size_t i = 0; i < offset; i++)
    if (text[i] == '\n') position.line++, line = i + 1;
  for (size_t at = line; at < offset;) {
    uint32_t units;
    at += step(text, length, at, &units);
    position.character += units;
  }
  return position;
}

size_t offset_of(const char *text, size_t length, Position position) {
  size_t at = 0;
  for (uint32_t line = 0; line < position.line; line++) {
    const char *end = memchr(text + at, '\n', length - at);
    if (!end) return length;
    at = (size_t)(end - text) + 1;
  }
  for (uint32_t column = 0; column < position.character && at < length && text[at] != '\n';) {
    uint32_t units;
    at += step(text, length, at, &units);
    column += units;
  }
  return at;
}

static int hex(char c) {
  return c >= '0' && c <= '9' ? c - '0' : isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10 : -1;
}

char *path_of_uri(Arena *arena, const char *uri) {
  if (strncmp(uri, "file://", 7) != 0) return NULL;
  const char *slash = strchr(uri + 7, '/'); /* after the host, which is empty or this one */
  if (!slash) return NULL;
  char *path = arena_strdup(arena, slash), *to = path;
  for (const char *from = slash; *from; from++) {
    int high = from[0] == '%' ? hex(from[1]) : -1, low = high >= 0 ? hex(from[2]) : -1;
    if (low >= 0 && (high || low)) from += 2;
    *to++ = low >= 0 && (high || low) ? (char)(high * 16 + low) : *from;
  }
  *to = '\0';
  return path;
}

char *uri_of_path(Arena *arena, const char *path) {
  Text uri = {.arena = arena};
  text_put(&uri, "file://", 7);
  for (; *path; path++) {
    if (isalnum((unsigned char)*path) || strchr("/-._~", *path))
      text_put(&uri, path, 1);
    else
      text_printf(&uri, "%%%02X", (unsigned char)*path);
  }
  return uri.at;
}
