/* What a strict reader demands of a JSON tree: every key, in order, with its type. Tables describe a format; what does
 * not fit is said with its path. */
#ifndef PDC_ARTIFACT_JSON_SHAPE_H
#define PDC_ARTIFACT_JSON_SHAPE_H

#include <jansson.h>
#include <stdbool.h>

#include "support/arena.h"

typedef enum ShapeKind {
  SHAPE_TEXT,
  SHAPE_EXACTLY, /* a string that must be `text` */
  SHAPE_WHOLE,   /* an integer from least to most */
  SHAPE_NUMBER,  /* an integer or a real from 0 on */
  SHAPE_BOOL,
  SHAPE_ARRAY,
  SHAPE_OBJECT
} ShapeKind;

typedef struct Shape Shape;
typedef struct ShapeField {
  const char *key; /* NULL ends a table */
  const Shape *shape;
  bool optional;
} ShapeField;
struct Shape {
  ShapeKind kind;
  bool nullable;
  const char *text;
  int64_t least, most;
  const Shape *element;
  const ShapeField *fields;
};

/* NULL if `value` fits, else the first thing that does not: "$.ranks[2].rank must be an integer, is a string". */
const char *shape_check(Arena *arena, const Shape *shape, json_t *value);

/* Parses text that must be an object written as json.h writes it, whose first two keys are `format` and `version` and
 * whose last is the `sha256` of every byte before its line. NULL with *why if it is not; release with json_decref. The
 * caller has seen to the size. */
json_t *canonical_parse(Arena *arena, const char *text, size_t length, const Shape *shape, const char **why);

#endif
