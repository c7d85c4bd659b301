/* Source files: finds what `import` names, parses each file once, and enters the names of every file. A file that is
 * imported while it is being read closes a circle. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "semantic/internal.h"

enum { LARGEST_FILE = 64 * 1024 * 1024 };

typedef struct Loaded { /* which file is which unit */
  const char *identity; /* absolute path without links; NULL when unknown */
  Unit *unit;
} Loaded;

typedef struct Loader {
  Sem *sem;
  VEC(Loaded) files;
  VEC(Unit *) chain; /* being read, outermost first */
} Loader;

static const char *directory_of(Sem *sem, const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? arena_strndup(sem->arena, path, (size_t)(slash - path)) : "";
}

static const char *join_path(Sem *sem, const char *directory, const char *path) {
  if (path[0] == '/' || !strcmp(directory, "")) return path;
  return arena_printf(sem->arena, "%s/%s", directory, path);
}

static const char *identity_of(Sem *sem, const char *path) {
  char *real = realpath(path, NULL);
  if (!real) return NULL;
  const char *copy = intern_str(sem->names, real);
  free(real);
  return copy;
}

/* The whole file, or NULL with errno. */
static char *read_whole(Sem *sem, const char *path, size_t *length) {
  FILE *file = fopen(path, "rb");
  if (!file) return NULL;
  Text text = {.arena = sem->arena};
  char buffer[16384];
  size_t got;
  text_put(&text, "", 0);
  while ((got = fread(buffer, 1, sizeof buffer, file)) > 0 && text.length <= LARGEST_FILE) text_put(&text, buffer, got);
  bool bad = ferror(file) != 0;
  int error = errno;
  if (!bad && text.length > LARGEST_FILE) {
    bad = true;
    error = EFBIG;
  }
  fclose(file);
  errno = error;
  *length = text.length;
  return bad ? NULL : text.at;
}

static void load_items(Loader *loader, Unit *unit);

static void add_symbol(Sem *sem, Unit *unit, Symbol *symbol) {
  Symbol *first = unit_symbol(unit, symbol->name);
  if (first) {
    Diag *diag = report(sem, "E0202", symbol->span, "`%s` is already defined", symbol->name);
    diag_label(diag, first->span, "first defined here");
    if (symbol->kind == SYMBOL_MODEL || symbol->kind == SYMBOL_BLOCK) vec_push(sem->arena, &unit->order, symbol);
    return; /* nothing finds it by its name, but what it says is checked */
  }
  table_put(sem->arena, &unit->symbols, symbol->name, symbol);
  vec_push(sem->arena, &unit->order, symbol);
}

static Symbol *new_symbol(Sem *sem, Unit *unit, SymbolKind kind, const Item *item, const Name *name) {
  Symbol *symbol = ARENA_NEW(sem->arena, Symbol);
  *symbol = (Symbol){.kind = kind, .name = name->text, .span = name->span, .unit = unit, .item = item, .axis = NO_ID};
  return symbol;
}

static void report_circle(Loader *loader, const Item *item, const Unit *unit) {
  Text chain = {.arena = loader->sem->arena};
  bool inside = false;
  for (uint32_t i = 0; i < loader->chain.count; i++) {
    inside |= loader->chain.at[i] == unit;
    if (inside) text_printf(&chain, "%s -> ", loader->chain.at[i]->path);
  }
  text_printf(&chain, "%s", unit->path);
  Diag *diag = report(loader->sem, "E0211", item->path_span, "imports go in a circle");
  diag_note(diag, "%s", chain.at);
}

static Unit *add_unit(Sem *sem, const Module *module, const char *path) {
  Unit *unit = ARENA_NEW(sem->arena, Unit);
  *unit = (Unit){.module = module, .path = path, .directory = directory_of(sem, path)};
  vec_push(sem->arena, &sem->units, unit);
  vec_push(sem->arena, &sem->out->modules, module);
  return unit;
}

/* The first place where the file is, or NULL. */
static const char *find_file(Sem *sem, const Unit *from, const char *path) {
  for (uint32_t i = 0; i <= sem->input->import_dir_count; i++) {
    const char *directory = i ? sem->input->import_dirs[i - 1] : from->directory;
    const char *candidate = join_path(sem, directory, path);
    FILE *file = fopen(candidate, "rb");
    if (!file) continue;
    fclose(file);
    return candidate;
  }
  return NULL;
}

static Unit *import_file(Loader *loader, const Unit *from, const Item *item) {
  Sem *sem = loader->sem;
  const char *path = find_file(sem, from, item->path);
  if (!path) {
    Diag *diag = report(sem, "E0210", item->path_span, "there is no file `%s` to import", item->path);
    Text places = {.arena = sem->arena};
    text_printf(&places, "searched in %s", from->directory[0] ? from->directory : ".");
    for (uint32_t i = 0; i < sem->input->import_dir_count; i++)
      text_printf(&places, ", %s", sem->input->import_dirs[i]);
    diag_note(diag, "%s", places.at);
    const char *ended = arena_printf(sem->arena, "%s.pd", item->path);
    if (find_file(sem, from, ended)) diag_help(diag, "did you mean `%s`?", ended);
    return NULL;
  }
  const char *identity = identity_of(sem, path);
  for (uint32_t i = 0; identity && i < loader->files.count; i++) {
    if (loader->files.at[i].identity != identity) continue;
    if (loader->files.at[i].unit->state == STATE_DONE) return loader->files.at[i].unit;
    report_circle(loader, item, loader->files.at[i].unit);
    return NULL;
  }
  size_t length;
  errno = 0;
  const char *text = identity && sem->input->open_text
                         ? sem->input->open_text(sem->input->context, identity, &length)
                         : NULL;
  if (!text) text = read_whole(sem, path, &length);
  if (!text) {
    report(sem, "E0210", item->path_span, "cannot read `%s`: %s", path, strerror(errno));
    return NULL;
  }
  uint32_t file = diag_add_source(sem->diagnostics, path, text, length);
  unsigned errors = diag_errors(sem->diagnostics);
  Unit *unit = add_unit(sem, syntax_parse(sem->arena, sem->names, sem->diagnostics, file), path);
  sem->half_read |= diag_errors(sem->diagnostics) != errors;
  vec_push(sem->arena, &loader->files, (Loaded){identity, unit});
  load_items(loader, unit);
  return unit;
}

static void load_bindings(Loader *loader, Unit *unit, const Item *item) {
  Sem *sem = loader->sem;
  for (uint32_t i = 0; i < item->binding_count; i++) {
    const Binding *binding = &item->bindings[i];
    Symbol *symbol = new_symbol(sem, unit, item->kind == ITEM_DIM ? SYMBOL_DIM : SYMBOL_CONST, item, &binding->name);
    symbol->value = symbol->declared = binding->value;
    symbol->config = item->config;
    add_symbol(sem, unit, symbol);
  }
}

static const Name *name_in_signature(const Item *item, uint32_t i) {
  return i < item->size_count ? &item->sizes[i] : &item->inputs[i - item->size_count].name;
}

const Name *earlier_in_signature(const Item *item, uint32_t i) {
  for (uint32_t k = 0; k < i; k++)
    if (name_in_signature(item, k)->text == name_in_signature(item, i)->text) return name_in_signature(item, k);
  return NULL;
}

/* The names of a block's signature: each once. */
static void check_signature(Sem *sem, const Item *item) {
  for (uint32_t i = 0; i < item->size_count + item->input_count; i++) {
    const Name *name = name_in_signature(item, i), *other = earlier_in_signature(item, i);
    if (!other) continue;
    Diag *diag = report(sem, "E0202", name->span, "`%s` is already defined", name->text);
    diag_label(diag, other->span, "first defined here");
  }
}

static void load_items(Loader *loader, Unit *unit) {
  Sem *sem = loader->sem;
  unit->state = STATE_BUSY;
  vec_push(sem->arena, &loader->chain, unit);
  for (uint32_t i = 0; i < unit->module->item_count; i++) {
    const Item *item = unit->module->items[i];
    switch (item->kind) {
    case ITEM_IMPORT: {
      Symbol *symbol = new_symbol(sem, unit, SYMBOL_IMPORT, item, &item->name);
      symbol->import = import_file(loader, unit, item);
      add_symbol(sem, unit, symbol);
      break;
    }
    case ITEM_CONST:
    case ITEM_DIM:
      load_bindings(loader, unit, item);
      break;
    case ITEM_BLOCK:
    case ITEM_MODEL:
      check_signature(sem, item);
      add_symbol(sem, unit,
                 new_symbol(sem, unit, item->kind == ITEM_BLOCK ? SYMBOL_BLOCK : SYMBOL_MODEL, item, &item->name));
      break;
    case ITEM_SECTION:
      if (unit != sem->root)
        diag_help(report(sem, "E0205", item->name.span, "section `%s` stands in an imported file", item->name.text),
                  "move it to %s, which imports this file", sem->root->path);
      break;
    }
  }
  loader->chain.count--;
  unit->state = STATE_DONE;
}

bool load_units(Sem *sem) {
  Loader loader = {.sem = sem};
  const Module *root = sem->input->root;
  const Source *source = diag_source(sem->diagnostics, root->file);
  Unit *unit = sem->root = add_unit(sem, root, source->path);
  vec_push(sem->arena, &loader.files, (Loaded){identity_of(sem, source->path), unit});
  load_items(&loader, unit);
  return diag_errors(sem->diagnostics) == 0;
}
