/* See json_shape.h. A file is accepted only if writing its tree again gives the same bytes, so that equal plans are
 * equal files and a digest means the plan and not its spelling. Recursion follows the tables, never the file. */
#include "artifact/json_shape.h"

#include <string.h>

#include "artifact/artifact.h"
#include "artifact/json.h"

typedef struct Path { /* of the value looked at, innermost first */
  const struct Path *outer;
  const char *key; /* NULL: `index` */
  size_t index;
} Path;

static void put_path(Text *out, const Path *path) {
  if (!path->outer) {
    text_put(out, "$", 1);
    return;
  }
  put_path(out, path->outer);
  if (path->key)
    text_printf(out, ".%.100s", path->key);
  else
    text_printf(out, "[%zu]", path->index);
}

static const char *path_text(Arena *arena, const Path *path) {
  Text text = {.arena = arena};
  put_path(&text, path);
  return text.at;
}

static const char *type_name(const json_t *value) {
  switch (json_typeof(value)) {
  case JSON_OBJECT:
    return "an object";
  case JSON_ARRAY:
    return "an array";
  case JSON_STRING:
    return "a string";
  case JSON_INTEGER:
    return "an integer";
  case JSON_REAL:
    return "a real number";
  case JSON_NULL:
    return "null";
  default:
    return "a truth value";
  }
}

static const char *shape_name(const Shape *shape) {
  switch (shape->kind) {
  case SHAPE_TEXT:
  case SHAPE_EXACTLY:
    return shape->nullable ? "a string or null" : "a string";
  case SHAPE_WHOLE:
    return shape->nullable ? "an integer or null" : "an integer";
  case SHAPE_NUMBER:
    return shape->nullable ? "a number or null" : "a number";
  case SHAPE_BOOL:
    return "true or false";
  case SHAPE_ARRAY:
    return shape->nullable ? "an array or null" : "an array";
  case SHAPE_OBJECT:
    break;
  }
  return "an object";
}

static bool type_fits(const Shape *shape, const json_t *value) {
  switch (shape->kind) {
  case SHAPE_TEXT:
  case SHAPE_EXACTLY:
    return json_is_string(value);
  case SHAPE_WHOLE:
    return json_is_integer(value);
  case SHAPE_NUMBER:
    return json_is_number(value);
  case SHAPE_BOOL:
    return json_is_boolean(value);
  case SHAPE_ARRAY:
    return json_is_array(value);
  case SHAPE_OBJECT:
    break;
  }
  return json_is_object(value);
}

static const char *check(Arena *arena, const Shape *shape, json_t *value, const Path *path);

static bool has_field(const ShapeField *field, const char *key) {
  for (; field->key; field++)
    if (strcmp(field->key, key) == 0) return true;
  return false;
}

/* The members come in the order of the table; optional ones may be left out. */
static const char *check_object(Arena *arena, const Shape *shape, json_t *value, const Path *path) {
  const ShapeField *field = shape->fields;
  const char *key;
  json_t *member;
  json_object_foreach(value, key, member) {
    while (field->key && strcmp(field->key, key) != 0 && field->optional) field++;
    Path here = {path, key, 0};
    if (!field->key || strcmp(field->key, key) != 0) {
      if (!has_field(shape->fields, key))
        return arena_printf(arena, "%s: there is no such key", path_text(arena, &here));
      if (field->key && !json_object_get(value, field->key)) break; /* said below */
      if (!field->key) return arena_printf(arena, "%s comes too late: the keys have an order", path_text(arena, &here));
      return arena_printf(arena, "%s comes where `%s` belongs: the keys have an order", path_text(arena, &here),
                          field->key);
    }
    const char *why = check(arena, field->shape, member, &here);
    if (why) return why;
    field++;
  }
  while (field->key && field->optional) field++;
  if (!field->key) return NULL;
  return arena_printf(arena, "%s is missing", path_text(arena, &(Path){path, field->key, 0}));
}

static const char *check(Arena *arena, const Shape *shape, json_t *value, const Path *path) {
  if (shape->nullable && json_is_null(value)) return NULL;
  if (!type_fits(shape, value))
    return arena_printf(arena, "%s must be %s, is %s", path_text(arena, path), shape_name(shape), type_name(value));
  switch (shape->kind) {
  case SHAPE_EXACTLY:
    if (strcmp(json_string_value(value), shape->text) == 0) return NULL;
    return arena_printf(arena, "%s is \"%.60s\", must be \"%s\"", path_text(arena, path), json_string_value(value),
                        shape->text);
  case SHAPE_WHOLE: {
    int64_t whole = json_integer_value(value);
    if (whole >= shape->least && whole <= shape->most) return NULL;
    return arena_printf(arena, "%s is %lld, must be from %lld to %lld", path_text(arena, path), (long long)whole,
                        (long long)shape->least, (long long)shape->most);
  }
  case SHAPE_NUMBER:
    if (json_number_value(value) >= 0) return NULL;
    return arena_printf(arena, "%s is %g, must not be negative", path_text(arena, path), json_number_value(value));
  case SHAPE_ARRAY:
    for (size_t i = 0; i < json_array_size(value); i++) {
      const char *why = check(arena, shape->element, json_array_get(value, i), &(Path){path, NULL, i});
      if (why) return why;
    }
    return NULL;
  case SHAPE_OBJECT:
    return check_object(arena, shape, value, path);
  default:
    return NULL;
  }
}

const char *shape_check(Arena *arena, const Shape *shape, json_t *value) {
  return check(arena, shape, value, &(Path){0});
}

/* ---- canonical text ---- */

/* Only trees that have passed shape_check come here: their depth is that of a table. */
static void put_tree(Json *json, const char *key, json_t *value) {
  switch (json_typeof(value)) {
  case JSON_OBJECT: {
    const char *name;
    json_t *member;
    json_open_object(json, key);
    json_object_foreach(value, name, member) put_tree(json, name, member);
    json_close_object(json);
    break;
  }
  case JSON_ARRAY:
    json_open_array(json, key);
    for (size_t i = 0; i < json_array_size(value); i++) put_tree(json, NULL, json_array_get(value, i));
    json_close_array(json);
    break;
  case JSON_STRING:
    json_put_string(json, key, json_string_value(value));
    break;
  case JSON_INTEGER:
    json_put_integer(json, key, json_integer_value(value));
    break;
  case JSON_REAL:
    json_put_number(json, key, json_real_value(value));
    break;
  case JSON_NULL:
    json_put_null(json, key);
    break;
  default:
    json_put_bool(json, key, json_is_true(value));
  }
}

static const char *check_canonical(Arena *arena, json_t *root, const char *text, size_t length) {
  Text again = {.arena = arena};
  Json json = {.out = &again};
  put_tree(&json, NULL, root);
  if (again.length == length && memcmp(again.at, text, length) == 0) return NULL;
  size_t at = 0, shorter = length < again.length ? length : again.length, line = 1, begin = 0;
  for (; at < shorter && text[at] == again.at[at]; at++)
    if (text[at] == '\n') line++, begin = at + 1;
  return arena_printf(arena, "line %zu: not in canonical form: it should read `%.*s`", line,
                      (int)strcspn(again.at + begin, "\n"), again.at + begin);
}

static const char *check_digest(Arena *arena, const char *text) {
  static const char key[] = "\n  \"sha256\": \"";
  const char *line = NULL;
  for (const char *at = strstr(text, key); at; at = strstr(at + 1, key)) line = at + 1;
  if (!line) return "$.sha256 is missing"; /* cannot be after the checks before */
  char digest[65];
  sha256_hex(text, (size_t)(line - text), digest);
  const char *said = line + sizeof key - 2;
  if (strncmp(said, digest, 64) == 0 && said[64] == '"') return NULL;
  return arena_printf(arena, "$.sha256 is not the digest of what stands before it, which is %s: the file was altered",
                      digest);
}

static const char *check_head(Arena *arena, json_t *root, const char *format) {
  const json_t *said = json_object_get(root, "format"), *version = json_object_get(root, "version");
  if (!json_is_object(root)) return "$ must be an object";
  if (!json_is_string(said)) return "$.format is missing: this is neither a pd-plan nor a pd-schedule";
  if (strcmp(json_string_value(said), format) != 0)
    return arena_printf(arena, "$.format is \"%.60s\", must be \"%s\"", json_string_value(said), format);
  if (!json_is_integer(version)) return "$.version is missing or no integer";
  if (json_integer_value(version) == 1) return NULL;
  return arena_printf(arena, "$.version is %lld; this pdc reads version 1 of %s",
                      (long long)json_integer_value(version), format);
}

json_t *canonical_parse(Arena *arena, const char *text, size_t length, const Shape *shape, const char **why) {
  json_error_t error;
  if (memchr(text, 0, length)) {
    *why = "there is a NUL byte in it";
    return NULL;
  }
  json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
  if (!root) {
    *why = arena_printf(arena, "line %d, column %d: %s", error.line, error.column, error.text);
    return NULL;
  }
  *why = check_head(arena, root, shape->fields[0].shape->text);
  if (!*why) *why = shape_check(arena, shape, root);
  if (!*why) *why = check_canonical(arena, root, text, length);
  if (!*why) *why = check_digest(arena, text);
  if (!*why) return root;
  json_decref(root);
  return NULL;
}
