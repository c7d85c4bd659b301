/* Numbers and strings as written, turned into values. Assumes that `text` is NUL-terminated and lives in the arena,
 * and was matched by the lexer. Owns exactness: a number without a point or exponent, or with a
 * size suffix and a whole value, is an integer; what does not fit its type is an error, never rounded in silence. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "syntax/parser.h"

typedef unsigned __int128 Wide;

typedef struct Suffix {
  const char *text;
  int thousands, bits; /* times 1000^thousands * 2^bits */
} Suffix;

static Suffix suffix_of(const char *text, size_t length) {
  static const Suffix all[] = {{"KiB", 0, 10}, {"MiB", 0, 20}, {"GiB", 0, 30}, {"K", 1, 0},
                               {"M", 2, 0},    {"B", 3, 0},    {"T", 4, 0}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    size_t size = strlen(all[i].text);
    if (length > size && memcmp(text + length - size, all[i].text, size) == 0) return all[i];
  }
  return (Suffix){"", 0, 0};
}

/* digits * 10^exponent * 2^bits as an integer. False when it is no integer or larger than INT64_MAX; `*large` tells
 * which. Digits are at most LONGEST_NAME many. */
static bool exact_integer(const char *digits, size_t count, long exponent, int bits, int64_t *value, bool *large) {
  const Wide most = INT64_MAX;
  *large = false;
  while (count > 0 && *digits == '0') digits++, count--;
  while (count > 0 && digits[count - 1] == '0') count--, exponent++;
  if (count == 0) return *value = 0, true;
  if (count > 28) return *large = (long)count + exponent > 19, false; /* INT64_MAX has 19 digits */
  Wide number = 0;
  for (size_t i = 0; i < count; i++) number = number * 10 + (unsigned char)(digits[i] - '0');
  number <<= bits;
  for (; exponent < 0; exponent++) {
    if (number % 10 != 0) return *large = number / 10 > most, false;
    number /= 10;
  }
  for (; exponent > 0 && number <= most; exponent--) number *= 10;
  if (number > most) return *large = true, false;
  *value = (int64_t)number;
  return true;
}

static Expr *out_of_range(Parser *parser, const char *text, Span span, const char *why) {
  Diag *diag = diag_error(parser->all, "E0108", span, "`%s` is out of range", text);
  diag_note(diag, "%s", why);
  return build_error(parser, span);
}

Expr *literal_number(Parser *parser, const char *text, size_t length, Span span) {
  Suffix suffix = suffix_of(text, length);
  size_t plain = length - strlen(suffix.text); /* bytes without the suffix */
  const char *mark = memchr(text, 'e', plain);
  if (mark == NULL) mark = memchr(text, 'E', plain);
  size_t mantissa = mark != NULL ? (size_t)(mark - text) : plain;
  long exponent = mark != NULL ? strtol(mark + 1, NULL, 10) : 0;
  if (exponent > 100000) exponent = 100000;
  if (exponent < -100000) exponent = -100000;
  const char *point = memchr(text, '.', mantissa);

  Expr *expr = ARENA_NEW(parser->arena, Expr);
  expr->kind = EXPR_INT;
  expr->string = text;
  expr->span = span;
  expr->depth = 1;
  bool whole = point == NULL && mark == NULL;
  if (whole || suffix.text[0] != '\0') {
    char digits[LONGEST_NAME + 1];
    size_t count = 0;
    for (size_t i = 0; i < mantissa; i++)
      if (text[i] != '.') digits[count++] = text[i];
    long shift = exponent + 3 * suffix.thousands;
    if (point != NULL) shift -= (long)(mantissa - 1 - (size_t)(point - text));
    bool large;
    if (exact_integer(digits, count, shift, suffix.bits, &expr->integer, &large)) return expr;
    if (large && mark == NULL) return out_of_range(parser, text, span, "the largest integer is 9223372036854775807");
  }
  expr->kind = EXPR_REAL;
  char *decimal = arena_printf(parser->arena, "%.*se%ld", (int)mantissa, text, exponent + 3 * suffix.thousands);
  errno = 0;
  expr->real = strtod(decimal, NULL);
  bool vanished = expr->real == 0 && errno == ERANGE;
  expr->real = ldexp(expr->real, suffix.bits);
  if (!isfinite(expr->real)) return out_of_range(parser, text, span, "the largest number is about 1.8e308");
  if (vanished) return out_of_range(parser, text, span, "the smallest positive number is about 4.9e-324");
  return expr;
}

Expr *literal_string(Parser *parser, const char *text, size_t length, Span span) {
  Expr *expr = ARENA_NEW(parser->arena, Expr);
  expr->kind = EXPR_STRING;
  expr->span = span;
  expr->depth = 1;
  char *out = arena_alloc(parser->arena, length);
  size_t used = 0;
  for (size_t i = 1; i + 1 < length; i++) {
    if (text[i] != '\\') {
      out[used++] = text[i];
      continue;
    }
    static const char letters[] = "nrt\\\"", meanings[] = "\n\r\t\\\"";
    const char *letter = text[++i] == '\0' ? NULL : strchr(letters, text[i]);
    if (letter != NULL) {
      out[used++] = meanings[letter - letters];
      continue;
    }
    uint32_t at = span.begin + (uint32_t)i, end = at + 1;
    while (end < span.end - 1 && ((unsigned char)parser->text[end] & 0xc0) == 0x80) end++;
    Diag *diag = diag_error(parser->all, "E0106", (Span){span.file, at - 1, end}, "unknown escape `\\%.*s` in a string",
                            (int)(end - at), parser->text + at);
    diag_help(diag, "the escapes are `\\n`, `\\r`, `\\t`, `\\\\` and `\\\"`");
  }
  expr->string = arena_strndup(parser->arena, out, used);
  return expr;
}
