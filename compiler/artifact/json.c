/* See json.h. Numbers that are not whole are written as ECMAScript writes them (RFC 8785): the shortest digits that
 * read back equal, an exponent below 1e-6. Assumes the C locale, as everywhere in the compiler. */
#include "artifact/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/utf8.h"

static void put_string(Text *out, const char *text) {
  text_put(out, "\"", 1);
  for (const char *at = text, *end = text + strlen(text); at < end;) {
    static const char plain[] = "\"\\\b\f\n\r\t", escaped[] = "\"\\bfnrt";
    const char *found = strchr(plain, *at);
    uint32_t code;
    unsigned length = utf8_decode(at, (size_t)(end - at), &code);
    if (found)
      text_printf(out, "\\%c", escaped[found - plain]);
    else if (length == 0)
      text_put(out, "\xef\xbf\xbd", 3);
    else if (code < 0x20)
      text_printf(out, "\\u%04x", code);
    else
      text_put(out, at, length);
    at += length > 0 ? length : 1;
  }
  text_put(out, "\"", 1);
}

/* Everything that stands before a value. */
static void begin(Json *json, const char *key) {
  if (json->has_items && !json->line_begun) text_put(json->out, ",", 1);
  if (json->depth > 0 && !json->line_begun) text_put(json->out, "\n", 1);
  text_printf(json->out, "%*s", 2 * json->depth, "");
  if (key) {
    put_string(json->out, key);
    text_put(json->out, ": ", 2);
  }
  json->has_items = true;
  json->line_begun = false;
}

static void open_with(Json *json, const char *key, const char *bracket) {
  begin(json, key);
  text_put(json->out, bracket, 1);
  json->depth++;
  json->has_items = false;
}

static void close_with(Json *json, const char *bracket) {
  json->depth--;
  if (json->has_items) text_printf(json->out, "\n%*s", 2 * json->depth, "");
  text_put(json->out, bracket, 1);
  json->has_items = true; /* the closed one, in what is open now */
  if (json->depth == 0) text_put(json->out, "\n", 1);
}

void json_open_object(Json *json, const char *key) {
  open_with(json, key, "{");
}

void json_close_object(Json *json) {
  close_with(json, "}");
}

void json_open_array(Json *json, const char *key) {
  open_with(json, key, "[");
}

void json_close_array(Json *json) {
  close_with(json, "]");
}

void json_put_string(Json *json, const char *key, const char *text) {
  begin(json, key);
  put_string(json->out, text);
}

void json_put_integer(Json *json, const char *key, int64_t value) {
  begin(json, key);
  text_printf(json->out, "%lld", (long long)value);
}

void json_put_bool(Json *json, const char *key, bool value) {
  begin(json, key);
  text_printf(json->out, value ? "true" : "false");
}

void json_put_null(Json *json, const char *key) {
  begin(json, key);
  text_printf(json->out, "null");
}

/* Whole numbers beyond are no integers to those who read JSON. */
#define LARGEST_WHOLE 9.2e18

/* Digits d1 d2 … dn with a decimal exponent: d1.d2…dn * 10^exponent, n as small as reads back equal. */
static void put_fraction(Text *out, double value) {
  char digits[32];
  int precision = 0;
  do snprintf(digits, sizeof digits, "%.*e", precision, value);
  while (strtod(digits, NULL) != value && ++precision < 17);
  int exponent = atoi(strchr(digits, 'e') + 1);
  if (exponent >= -6 && fabs(value) <= LARGEST_WHOLE) { /* a number that is not whole has few digits before its point */
    int decimals = precision - exponent;
    text_printf(out, "%.*f", decimals > 0 ? decimals : 0, value);
    return;
  }
  *strchr(digits, 'e') = '\0';
  text_printf(out, "%se%d", digits, exponent);
}

void json_put_number(Json *json, const char *key, double value) {
  begin(json, key);
  if (!isfinite(value))
    text_printf(json->out, "null");
  else if (value == floor(value) && fabs(value) <= LARGEST_WHOLE)
    text_printf(json->out, "%.0f", value == 0 ? 0.0 : value); /* no -0 */
  else
    put_fraction(json->out, value);
}

void json_end_line(Json *json) {
  text_put(json->out, ",\n", 2);
  json->line_begun = true;
}
