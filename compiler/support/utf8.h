/* UTF-8: decoding with full validation, and how a code point shows on a terminal. */
#ifndef PDC_SUPPORT_UTF8_H
#define PDC_SUPPORT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes the code point at `at` (of `left` bytes, left > 0). Returns its length in bytes; 0 when the bytes are not
 * well-formed UTF-8 (overlong forms, surrogates and values above U+10FFFF are not). */
unsigned utf8_decode(const char *at, size_t left, uint32_t *code);
/* Writes 1 to 4 bytes, returns how many. */
unsigned utf8_encode(uint32_t code, char out[4]);
/* Terminal columns: 0 for combining marks, 2 for East Asian wide characters and emoji, 1 otherwise. */
unsigned unicode_width(uint32_t code);
/* True for what must not reach a terminal raw: controls, and marks that reorder or hide text (bidirectional
 * overrides, zero-width spaces, line separators). */
bool unicode_is_hidden(uint32_t code);

#endif
