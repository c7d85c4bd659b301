/* A writer of canonical JSON: two-space indent, every member and element on a line of its own, keys in the order given,
 * UTF-8 as it is, one way to write every number. What is written parses back equal and is the same on every machine. */
#ifndef PDC_ARTIFACT_JSON_H
#define PDC_ARTIFACT_JSON_H

#include <stdbool.h>

#include "support/arena.h"

typedef struct Json { /* {.out = text} to begin */
  Text *out;
  int depth;
  bool has_items;  /* the innermost open object or array has some */
  bool line_begun; /* the next member's line has been begun already */
} Json;

/* `key` NULL: an element of an array, or the whole document. */
void json_open_object(Json *json, const char *key);
void json_close_object(Json *json);
void json_open_array(Json *json, const char *key);
void json_close_array(Json *json);
/* Bytes that are no UTF-8 become U+FFFD. */
void json_put_string(Json *json, const char *key, const char *text);
void json_put_integer(Json *json, const char *key, int64_t value);
/* Whole numbers without fraction and exponent; others with the fewest digits that read back equal. A number that is not
 * finite becomes null. */
void json_put_number(Json *json, const char *key, double value);
void json_put_bool(Json *json, const char *key, bool value);
void json_put_null(Json *json, const char *key);
/* Writes the comma and the end of line that another member of this object will need: what stands then in `out` is every
 * byte before that member's line. */
void json_end_line(Json *json);

#endif
