/* What could stand at the cursor. Where the cursor is (an item, a body, a section's key or value) is read from the
 * bytes before it, since a program that is being typed seldom parses; names come from the tree, and words of the
 * language from the tables of the semantic room. */
#include <ctype.h>
#include <string.h>

#include "lsp/lsp.h"

typedef enum Where { AT_ITEM, IN_HEADER, AT_STATEMENT, IN_EXPRESSION, AT_KEY, IN_VALUE, IN_NOTHING } Where;

typedef struct Cursor {
  Where where;
  size_t begin;              /* of the word before the cursor, dots included */
  const char *section, *key; /* AT_KEY, IN_VALUE */
} Cursor;

static bool in_word(char c) {
  return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '-';
}

static bool is_section(const char *name) {
  const char *section;
  for (uint32_t i = 0; (section = semantic_key(i).section); i++)
    if (strcmp(section, name) == 0) return true;
  return strcmp(name, "shard") == 0;
}

static bool begins_item(const char *word) {
  static const char *const words[] = {"import", "const", "config", "dim", "block", "model"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcmp(words[i], word) == 0) return true;
  return false;
}

/* Words and brackets before the cursor, comments and strings left out. */
static Cursor look(Arena *arena, const char *text, size_t offset) {
  Cursor cursor = {.where = AT_ITEM, .begin = offset};
  unsigned braces = 0, round = 0;
  const char *word = "", *section = NULL, *key = NULL;
  bool value = false, begins = true; /* in a section: after `=`; a statement or item begins here */
  for (size_t at = 0; at < offset;) {
    char c = text[at];
    if (c == '/' && at + 1 < offset && text[at + 1] == '/') {
      while (at < offset && text[at] != '\n') at++;
      if (at == offset) return (Cursor){.where = IN_NOTHING};
      continue;
    }
    if (c == '"') {
      for (at++; at < offset && text[at] != '"' && text[at] != '\n';) at += text[at] == '\\' ? 2 : 1;
      if (at >= offset) return (Cursor){.where = IN_NOTHING};
      at++;
      continue;
    }
    if (in_word(c) && c != '-') {
      size_t end = at;
      while (end < offset && in_word(text[end])) end++;
      if (end == offset) {
        cursor.begin = at;
        break;
      }
      word = arena_strndup(arena, text + at, end - at);
      if (begins_item(word)) section = NULL; /* one that is not closed yet */
      begins = strcmp(word, "frozen") == 0 || (begins && strcmp(word, "config") == 0);
      at = end;
      continue;
    }
    at++;
    if (isspace((unsigned char)c)) continue;
    if (c == '(' || c == '[') round++;
    if ((c == ')' || c == ']') && round) round--;
    if (c == '<' && !braces && !round && is_section(word)) {
      section = word;
      value = false;
    } else if (section && !round) {
      if (c == '=') key = word, value = true;
      if (c == ';') value = false;
      if (c == '>') section = NULL;
    } else if (c == '{') {
      braces++;
    } else if (c == '}' && braces) {
      braces--;
    }
    begins = c == ';' || c == '{' || c == '}' || (c == '>' && !section);
    if (begins) round = 0;
  }
  cursor.section = section;
  cursor.key = key;
  if (section)
    cursor.where = value ? IN_VALUE : AT_KEY;
  else if (braces)
    cursor.where = begins ? AT_STATEMENT : IN_EXPRESSION;
  else
    cursor.where = begins ? AT_ITEM : IN_HEADER;
  return cursor;
}

/* ---- what is offered ---- */

typedef struct Offers {
  const Compilation *c;
  Completions *list;
  const char *typed; /* the word before the cursor */
} Offers;

static void offer(Offers *to, CompletionKind kind, const char *name, const char *detail) {
  if (!name || strncmp(name, to->typed, strlen(to->typed)) != 0) return;
  for (uint32_t i = 0; i < to->list->count; i++)
    if (strcmp(to->list->at[i].name, name) == 0) return; /* the nearest declaration was there first */
  vec_push(to->c->arena, to->list, ((Completion){kind, name, detail}));
}

static void offer_words(Offers *to, const char *const *words) {
  for (; *words; words++) offer(to, COMPLETION_KEYWORD, *words, "");
}

/* "f32|f64|bf16" */
static void offer_choices(Offers *to, const char *choices) {
  for (const char *at = choices; at && *at;) {
    size_t length = strcspn(at, "|");
    offer(to, COMPLETION_VALUE, arena_strndup(to->c->arena, at, length), "");
    at += length + (at[length] == '|');
  }
}

static const char *joined(const Offers *to, const char *before, const char *name) {
  return before ? arena_printf(to->c->arena, "%s.%s", before, name) : name;
}

static void offer_keys(Offers *to, const char *section, const char *before) {
  for (uint32_t i = 0;; i++) {
    SectionKeyInfo key = semantic_key(i);
    if (!key.section) return;
    if (strcmp(key.section, section) != 0) continue;
    offer(to, COMPLETION_KEY, joined(to, before, key.key),
          key.initial ? arena_printf(to->c->arena, "default %s", key.initial) : "");
  }
}

static void offer_operations(Offers *to) {
  const char *name, *signature;
  for (uint32_t i = 0; (name = semantic_operation(i, &signature)); i++)
    offer(to, COMPLETION_OPERATION, name, signature);
}

/* Consts, dims, blocks and imports of a file. */
static void offer_module(Offers *to, const Module *module, const char *before, bool blocks) {
  for (uint32_t i = 0; i < module->item_count; i++) {
    const Item *item = module->items[i];
    if (item->kind == ITEM_BLOCK && blocks) offer(to, COMPLETION_BLOCK, joined(to, before, item->name.text), "block");
    if (item->kind == ITEM_IMPORT && !before)
      offer(to, COMPLETION_MODULE, item->name.text, item->path ? item->path : "");
    bool named = item->kind == ITEM_CONST || item->kind == ITEM_DIM;
    for (uint32_t k = 0; named && k < item->binding_count; k++)
      offer(to, item->kind == ITEM_DIM ? COMPLETION_DIM : COMPLETION_CONST,
            joined(to, before, item->bindings[k].name.text), item->kind == ITEM_DIM ? "dim" : "const");
  }
}

static void offer_body(Offers *to, Stmt *const *body, uint32_t count, size_t offset) {
  for (uint32_t i = 0; i < count && body[i]->span.begin < offset; i++) {
    const Stmt *stmt = body[i];
    bool inside = offset <= stmt->span.end;
    for (uint32_t k = 0; k < stmt->param_count; k++)
      if (stmt->params[k].name.span.end < offset) offer(to, COMPLETION_PARAM, stmt->params[k].name.text, "param");
    for (uint32_t k = 0; stmt->kind == STMT_ASSIGN && k < stmt->target_count && stmt->span.end <= offset; k++)
      offer(to, COMPLETION_VARIABLE, stmt->targets[k].text, "value");
    if (inside && stmt->index.text) offer(to, COMPLETION_VARIABLE, stmt->index.text, "index");
    if (inside || stmt->kind == STMT_IF) {
      offer_body(to, stmt->body, stmt->body_count, offset);
      offer_body(to, stmt->otherwise, stmt->otherwise_count, offset);
    }
  }
}

/* The block or model around the cursor: the last that begins before it. */
static const Item *around(const Module *module, size_t offset) {
  const Item *found = NULL;
  for (uint32_t i = 0; i < module->item_count && module->items[i]->span.begin < offset; i++) {
    const Item *item = module->items[i];
    found = item->kind == ITEM_BLOCK || item->kind == ITEM_MODEL ? item : NULL;
  }
  return found;
}

static void offer_scope(Offers *to, size_t offset) {
  const Item *item = around(to->c->module, offset);
  if (item) {
    offer_body(to, item->body, item->body_count, offset);
    for (uint32_t i = 0; i < item->input_count; i++)
      offer(to, COMPLETION_VARIABLE, item->inputs[i].name.text, item->inputs[i].type ? "input" : "constant input");
    for (uint32_t i = 0; i < item->size_count; i++) offer(to, COMPLETION_DIM, item->sizes[i].text, "size");
  }
  offer_module(to, to->c->module, NULL, true);
  offer_operations(to);
}

/* `nn.` and `parallel.`: what belongs to an import or a section. */
static bool offer_dotted(Offers *to) {
  const char *dot = strchr(to->typed, '.');
  if (!dot) return false;
  const char *before = arena_strndup(to->c->arena, to->typed, (size_t)(dot - to->typed));
  const Module *root = to->c->module;
  for (uint32_t i = 0; i < root->item_count; i++) {
    const Item *item = root->items[i];
    if (item->kind != ITEM_IMPORT || !item->name.text || strcmp(item->name.text, before) != 0) continue;
    const Module *module = module_of_import(to->c, item);
    if (module) offer_module(to, module, before, true);
    return true;
  }
  offer_keys(to, before, before);
  return true;
}

static void offer_value(Offers *to, const Cursor *cursor) {
  static const char *const axes[] = {"dp", "tp", NULL};
  if (strcmp(cursor->section, "shard") == 0) {
    offer_words(to, axes);
    return;
  }
  for (uint32_t i = 0;; i++) {
    SectionKeyInfo key = semantic_key(i);
    if (!key.section) break;
    if (strcmp(key.section, cursor->section) == 0 && cursor->key && strcmp(key.key, cursor->key) == 0)
      offer_choices(to, key.choices);
  }
  offer_module(to, to->c->module, NULL, false);
}

void complete_at(const Compilation *c, const char *text, size_t offset, Completions *list, size_t *begin) {
  static const char *const items[] = {"import", "const", "config const", "dim", "block", "model", NULL};
  static const char *const statements[] = {"param", "frozen param", "repeat", "if", "return", "loss", "metric", NULL};
  static const char *const values[] = {"true", "false", NULL};
  Cursor cursor = look(c->arena, text, offset);
  Offers to = {c, list, ""};
  *begin = cursor.begin;
  if (cursor.where == IN_NOTHING) {
    *begin = offset;
    return;
  }
  to.typed = arena_strndup(c->arena, text + cursor.begin, offset - cursor.begin);
  if (cursor.where != AT_KEY && offer_dotted(&to)) return;
  switch (cursor.where) {
  case AT_ITEM:
    offer_words(&to, items);
    for (uint32_t i = 0; semantic_key(i).section; i++)
      offer(&to, COMPLETION_MODULE, semantic_key(i).section, "section");
    offer(&to, COMPLETION_MODULE, "shard", "section");
    break;
  case AT_STATEMENT:
    offer_words(&to, statements);
    offer_scope(&to, offset);
    break;
  case IN_EXPRESSION:
    offer_scope(&to, offset);
    offer_words(&to, values);
    break;
  case IN_HEADER:
    offer_module(&to, c->module, NULL, false);
    break;
  case AT_KEY:
    if (strcmp(cursor.section, "shard") == 0)
      offer_module(&to, c->module, NULL, false);
    else
      offer_keys(&to, cursor.section, NULL);
    break;
  case IN_VALUE:
    offer_value(&to, &cursor);
    break;
  case IN_NOTHING:
    break;
  }
}
