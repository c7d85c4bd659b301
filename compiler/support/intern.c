/* Interned strings: one copy of each text, so that names compare by pointer. An open-addressed hash table that
 * doubles at half load; the texts and the table live in the arena. Assumes texts have no NUL inside. */
#include <string.h>

#include "support/arena.h"

typedef struct Slot {
  const char *text; /* NULL: free */
  size_t length;
  uint64_t hash;
} Slot;

struct Intern {
  Arena *arena;
  Slot *slots;
  size_t size, count; /* size is a power of two */
};

Intern *intern_new(Arena *arena) {
  Intern *table = ARENA_NEW(arena, Intern);
  table->arena = arena;
  table->size = 256;
  table->slots = ARENA_ARRAY(arena, Slot, table->size);
  return table;
}

static uint64_t hash_of(const char *text, size_t length) { /* FNV-1a */
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)text[i]) * 1099511628211u;
  return hash;
}

static Slot *find(const Intern *table, const char *text, size_t length, uint64_t hash) {
  size_t at = (size_t)hash & (table->size - 1);
  for (;; at = (at + 1) & (table->size - 1)) {
    Slot *slot = &table->slots[at];
    if (slot->text == NULL) return slot;
    if (slot->hash == hash && slot->length == length && memcmp(slot->text, text, length) == 0) return slot;
  }
}

static void grow(Intern *table) {
  Slot *old = table->slots;
  size_t old_size = table->size;
  table->size *= 2;
  table->slots = ARENA_ARRAY(table->arena, Slot, table->size);
  for (size_t i = 0; i < old_size; i++)
    if (old[i].text != NULL) *find(table, old[i].text, old[i].length, old[i].hash) = old[i];
}

const char *intern(Intern *table, const char *text, size_t length) {
  uint64_t hash = hash_of(text, length);
  Slot *slot = find(table, text, length, hash);
  if (slot->text != NULL) return slot->text;
  if (table->count * 2 >= table->size) {
    grow(table);
    slot = find(table, text, length, hash);
  }
  *slot = (Slot){arena_strndup(table->arena, text, length), length, hash};
  table->count++;
  return slot->text;
}

const char *intern_str(Intern *table, const char *text) {
  return intern(table, text, strlen(text));
}
