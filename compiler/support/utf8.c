/* UTF-8 and terminal width. Owns no state; assumes nothing of the locale. The tables are coarse on purpose: they hold
 * the ranges that occur in comments and strings, not the whole of Unicode's properties. */
#include "support/utf8.h"

typedef struct Range {
  uint32_t first, last;
} Range;

unsigned utf8_decode(const char *at, size_t left, uint32_t *code) {
  const unsigned char *byte = (const unsigned char *)at;
  if (byte[0] < 0x80) return *code = byte[0], 1;
  unsigned length = byte[0] >= 0xf0 ? 4 : byte[0] >= 0xe0 ? 3 : byte[0] >= 0xc2 ? 2 : 0;
  if (length == 0 || byte[0] > 0xf4 || length > left) return 0;
  uint32_t value = byte[0] & (0xffu >> (length + 1));
  for (unsigned i = 1; i < length; i++) {
    if ((byte[i] & 0xc0) != 0x80) return 0;
    value = value << 6 | (byte[i] & 0x3f);
  }
  if (length == 3 && (value < 0x800 || (value >= 0xd800 && value <= 0xdfff))) return 0;
  if (length == 4 && (value < 0x10000 || value > 0x10ffff)) return 0;
  return *code = value, length;
}

unsigned utf8_encode(uint32_t code, char out[4]) {
  if (code < 0x80) return out[0] = (char)code, 1;
  unsigned length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (unsigned i = length - 1; i > 0; i--, code >>= 6) out[i] = (char)(0x80 | (code & 0x3f));
  out[0] = (char)((0xf00u >> length & 0xffu) | code);
  return length;
}

static bool within(const Range *ranges, size_t count, uint32_t code) {
  for (size_t i = 0; i < count; i++)
    if (code >= ranges[i].first && code <= ranges[i].last) return true;
  return false;
}

unsigned unicode_width(uint32_t code) {
  static const Range none[] = {{0x300, 0x36f},   {0x483, 0x489},   {0x591, 0x5bd},   {0x610, 0x61a},
                               {0x64b, 0x65f},   {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff}, {0x20d0, 0x20ff},
                               {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}};
  static const Range wide[] = {{0x1100, 0x115f},  {0x2e80, 0x303e},   {0x3041, 0xa4cf},   {0xa960, 0xa97f},
                               {0xac00, 0xd7a3},  {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},
                               {0xffe0, 0xffe6},  {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1faff},
                               {0x20000, 0x3fffd}};
  if (code < 0x300) return 1;
  if (within(none, sizeof none / sizeof *none, code)) return 0;
  return within(wide, sizeof wide / sizeof *wide, code) ? 2 : 1;
}

bool unicode_is_hidden(uint32_t code) {
  static const Range hidden[] = {{0, 0x1f},        {0x7f, 0x9f},     {0xad, 0xad},
                                 {0x61c, 0x61c},   {0x200b, 0x200f}, {0x2028, 0x202e},
                                 {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xe0000, 0xe0fff}};
  return within(hidden, sizeof hidden / sizeof *hidden, code);
}
