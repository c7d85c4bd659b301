/* Memory of one compilation: every pass allocates here, nobody frees, the arena is freed once at the end. */
#ifndef PDC_SUPPORT_ARENA_H
#define PDC_SUPPORT_ARENA_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Arena Arena;

Arena *arena_new(void);
void arena_free(Arena *arena);

/* `size` zeroed bytes, aligned to 16. Never returns NULL: out of memory ends the process with exit code 70. */
void *arena_alloc(Arena *arena, size_t size);
char *arena_strndup(Arena *arena, const char *text, size_t length);
char *arena_strdup(Arena *arena, const char *text);
char *arena_printf(Arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *arena_vprintf(Arena *arena, const char *format, va_list arguments);

#define ARENA_NEW(arena, type) ((type *)arena_alloc((arena), sizeof(type)))
#define ARENA_ARRAY(arena, type, count) ((type *)arena_alloc((arena), sizeof(type) * (size_t)(count)))

/* Growing arrays in an arena. `VEC(T) v = {0}; vec_push(arena, &v, item); v.at[i]; v.count`. */
#define VEC(type)            \
  struct {                   \
    type *at;                \
    uint32_t count, capacity; \
  }
#define vec_push(arena, vec, ...)                                                                               \
  do {                                                                                                          \
    if ((vec)->count == (vec)->capacity)                                                                        \
      (vec)->at = vec_grow_((arena), (vec)->at, (vec)->count, &(vec)->capacity, sizeof *(vec)->at);             \
    (vec)->at[(vec)->count++] = (__VA_ARGS__);                                                                  \
  } while (0)
void *vec_grow_(Arena *arena, void *at, uint32_t count, uint32_t *capacity, size_t item_size);

/* Growing text in an arena (NUL-terminated after each call). */
typedef struct Text {
  Arena *arena;
  char *at;
  size_t length, capacity;
} Text;
void text_put(Text *text, const char *bytes, size_t length);
void text_printf(Text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Interned strings: equal texts have equal pointers within one table. */
typedef struct Intern Intern;
Intern *intern_new(Arena *arena);
const char *intern(Intern *table, const char *text, size_t length);
const char *intern_str(Intern *table, const char *text);

/* Edit distance (Damerau-Levenshtein) for spelling hints; gives up above `limit` and returns limit + 1. */
unsigned edit_distance(const char *a, const char *b, unsigned limit);

#endif
