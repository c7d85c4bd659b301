/* Growing text in an arena: what emitters and renderers write into. Assumes `arena` is set before the first call;
 * the text is NUL-terminated after each call and may contain NULs put there. */
#include <stdio.h>
#include <string.h>

#include "support/arena.h"

static void reserve(Text *text, size_t extra) {
  size_t needed = text->length + extra + 1;
  if (needed <= text->capacity) return;
  size_t capacity = text->capacity < 64 ? 64 : text->capacity;
  while (capacity < needed) capacity *= 2;
  char *larger = arena_alloc(text->arena, capacity);
  if (text->length > 0) memcpy(larger, text->at, text->length);
  text->at = larger;
  text->capacity = capacity;
}

void text_put(Text *text, const char *bytes, size_t length) {
  reserve(text, length);
  if (length > 0) memcpy(text->at + text->length, bytes, length);
  text->length += length;
  text->at[text->length] = '\0';
}

void text_printf(Text *text, const char *format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  int length = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  if (length >= 0) {
    reserve(text, (size_t)length);
    vsnprintf(text->at + text->length, (size_t)length + 1, format, again);
    text->length += (size_t)length;
  }
  va_end(again);
}
