/* The arena: memory of one compilation. Owns blocks of growing size; nothing in it moves or is freed alone.
 * Assumes that zeroed memory is what every caller wants, so that a new node is valid without an initialiser. */
#include "support/arena.h"

#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 16, FIRST_BLOCK = 64 * 1024, LARGEST_STEP = 4 * 1024 * 1024, EXIT_INTERNAL = 70 };

typedef struct Block Block;
struct Block {
  Block *next;
  size_t used, size;
  alignas(ALIGNMENT) unsigned char bytes[];
};

struct Arena {
  Block *newest;
  size_t next_size;
};

static void *or_die(void *memory) {
  if (memory == NULL) {
    fputs("pdc: out of memory\n", stderr);
    exit(EXIT_INTERNAL);
  }
  return memory;
}

Arena *arena_new(void) {
  Arena *arena = or_die(calloc(1, sizeof *arena));
  arena->next_size = FIRST_BLOCK;
  return arena;
}

void arena_free(Arena *arena) {
  if (arena == NULL) return;
  for (Block *block = arena->newest; block != NULL;) {
    Block *next = block->next;
    free(block);
    block = next;
  }
  free(arena);
}

static Block *add_block(Arena *arena, size_t size) {
  Block *block = or_die(size > SIZE_MAX - sizeof(Block) ? NULL : calloc(1, sizeof(Block) + size));
  block->size = size;
  block->next = arena->newest;
  arena->newest = block;
  return block;
}

void *arena_alloc(Arena *arena, size_t size) {
  if (size > SIZE_MAX - ALIGNMENT) or_die(NULL);
  size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  Block *block = arena->newest;
  if (block == NULL || block->size - block->used < size) {
    if (size > arena->next_size / 4 && block != NULL) {
      /* a large item gets its own block behind the newest one, whose rest stays in use */
      Block *large = add_block(arena, size);
      arena->newest = block;
      large->next = block->next;
      block->next = large;
      large->used = size;
      return large->bytes;
    }
    block = add_block(arena, size > arena->next_size ? size : arena->next_size);
    if (arena->next_size < LARGEST_STEP) arena->next_size *= 2;
  }
  void *memory = block->bytes + block->used;
  block->used += size;
  return memory;
}

char *arena_strndup(Arena *arena, const char *text, size_t length) {
  char *copy = arena_alloc(arena, length + 1);
  if (length > 0) memcpy(copy, text, length);
  return copy;
}

char *arena_strdup(Arena *arena, const char *text) {
  return arena_strndup(arena, text, strlen(text));
}

char *arena_vprintf(Arena *arena, const char *format, va_list arguments) {
  va_list again;
  va_copy(again, arguments);
  int length = vsnprintf(NULL, 0, format, again);
  va_end(again);
  if (length < 0) return arena_strdup(arena, format);
  char *text = arena_alloc(arena, (size_t)length + 1);
  vsnprintf(text, (size_t)length + 1, format, arguments);
  return text;
}

char *arena_printf(Arena *arena, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char *text = arena_vprintf(arena, format, arguments);
  va_end(arguments);
  return text;
}

void *vec_grow_(Arena *arena, void *at, uint32_t count, uint32_t *capacity, size_t item_size) {
  if (*capacity > UINT32_MAX / 2) or_die(NULL);
  *capacity = *capacity == 0 ? 4 : *capacity * 2;
  void *larger = arena_alloc(arena, *capacity * item_size);
  if (count > 0) memcpy(larger, at, count * item_size);
  return larger;
}
