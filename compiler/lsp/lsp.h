/* The language server: one loop that reads messages, keeps the open documents, compiles each after a change and answers
 * questions about it. An import that is open is read as it is open, else from the disk. */
#ifndef PDC_LSP_LSP_H
#define PDC_LSP_LSP_H

#include "driver/passes.h"

/* Serves until `exit` or the end of input. Returns the exit status: 0 after `shutdown`, else 1. */
int lsp_serve(FILE *in, FILE *out, const char *const *import_dirs, uint32_t import_dir_count);

/* ---- transport.c ---- */
/* The body of the next message, malloced; NULL at the end of input. What is no header is skipped. */
char *message_read(FILE *in, size_t *length);
void message_write(FILE *out, const char *body, size_t length);

/* ---- position.c: byte offsets and the protocol's lines and UTF-16 columns ---- */
typedef struct Position {
  uint32_t line, character; /* from 0 */
} Position;
Position position_of(const char *text, size_t length, size_t offset);
size_t offset_of(const char *text, size_t length, Position position);
/* `file:///a%20b.pd` to `/a b.pd` and back. Other schemes give NULL. */
char *path_of_uri(Arena *arena, const char *uri);
char *uri_of_path(Arena *arena, const char *path);

/* ---- symbols.c: what a name in a module means ---- */
typedef enum SymbolRole {
  ROLE_NONE,
  ROLE_CONST,
  ROLE_DIM,
  ROLE_KEY,
  ROLE_BLOCK,
  ROLE_MODEL,
  ROLE_IMPORT,
  ROLE_SIZE,
  ROLE_INPUT,
  ROLE_PARAM,
  ROLE_VALUE,
  ROLE_INDEX,
  ROLE_OPERATION
} SymbolRole;

typedef struct Meaning {
  SymbolRole role;
  Name name;            /* as it stands at the place asked about */
  const Module *module; /* where it is declared; NULL: in the language */
  const Item *item;     /* the item that declares it, or around the declaration */
  Span declared;        /* the name in its declaration */
  Span whole;           /* the declaration */
} Meaning;
Meaning meaning_at(const Compilation *c, uint32_t offset);

/* The file that `import PATH as NAME` read, or NULL. */
const Module *module_of_import(const Compilation *c, const Item *item);

/* ---- complete.c ---- */
typedef enum CompletionKind {
  COMPLETION_KEYWORD,
  COMPLETION_KEY,
  COMPLETION_VALUE,
  COMPLETION_OPERATION,
  COMPLETION_BLOCK,
  COMPLETION_MODULE,
  COMPLETION_DIM,
  COMPLETION_CONST,
  COMPLETION_PARAM,
  COMPLETION_VARIABLE
} CompletionKind;

typedef struct Completion {
  CompletionKind kind;
  const char *name, *detail; /* a dotted name is whole: "nn.linear" */
} Completion;
typedef VEC(Completion) Completions;

/* What could stand at `offset` and begins with the word that is there already, which starts at *begin. */
void complete_at(const Compilation *c, const char *text, size_t offset, Completions *list, size_t *begin);

/* ---- hover.c ---- */
/* Markdown about a meaning: its declaration, and sizes where the program compiles. */
const char *hover_text(const Compilation *c, const Meaning *meaning);

#endif
