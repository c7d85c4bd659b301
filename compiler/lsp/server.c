/* The loop of the language server: requests and notifications of the protocol (JSON-RPC 2.0), the open documents, and
 * what is published about them. Whatever a client sends is answered or ignored, never fatal. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "driver/driver.h"
#include "lsp/lsp.h"

enum {
  PARSE_ERROR = -32700,
  INVALID_REQUEST = -32600,
  METHOD_NOT_FOUND = -32601,
  INVALID_PARAMS = -32602,
  NOT_INITIALIZED = -32002,
  REQUEST_FAILED = -32803
};

typedef struct Document {
  struct Document *next;
  char *uri, *text;
  size_t length;
  Arena *arena; /* of the compilation */
  Compilation *compilation;
} Document;

typedef struct Server {
  FILE *out;
  const char *const *import_dirs;
  uint32_t import_dir_count;
  Document *documents;
  bool initialized, shut_down, done;
} Server;

/* ---- sending ---- */

static void send(Server *server, json_t *message) {
  json_object_set_new(message, "jsonrpc", json_string("2.0"));
  char *text = json_dumps(message, JSON_COMPACT);
  if (text) message_write(server->out, text, strlen(text));
  free(text);
  json_decref(message);
}

static void notify(Server *server, const char *method, json_t *params) {
  send(server, json_pack("{s:s, s:o}", "method", method, "params", params));
}

static void answer(Server *server, json_t *id, json_t *result) {
  send(server, json_pack("{s:O, s:o}", "id", id, "result", result));
}

static void refuse(Server *server, json_t *id, int code, const char *reason) {
  json_t *error = json_pack("{s:i, s:s}", "code", code, "message", reason);
  send(server, json_pack("{s:o, s:o}", "id", id ? json_incref(id) : json_null(), "error", error));
}

/* A string that may hold anything: what is not UTF-8 becomes a question mark. */
static json_t *text_json(const char *text) {
  json_t *value = json_string(text);
  if (value) return value;
  char *copy = strdup(text);
  if (!copy) exit(70);
  for (char *c = copy; *c; c++)
    if ((unsigned char)*c >= 0x80) *c = '?';
  value = json_string(copy);
  free(copy);
  return value;
}

static json_t *range_json(const char *text, size_t length, size_t begin, size_t end) {
  Position from = position_of(text, length, begin), to = position_of(text, length, end);
  return json_pack("{s:{s:i, s:i}, s:{s:i, s:i}}", "start", "line", (int)from.line, "character", (int)from.character,
                   "end", "line", (int)to.line, "character", (int)to.character);
}

/* ---- diagnostics ---- */

/* The source with the path that a report names. */
static const Source *source_named(const Compilation *c, const char *path) {
  for (uint32_t i = 0; path; i++) {
    const Source *source = diag_source(c->diagnostics, i);
    if (!source || strcmp(source->path, path) == 0) return source;
  }
  return NULL;
}

static const char *absolute(Arena *arena, const char *path) {
  char *real = realpath(path, NULL);
  const char *result = real ? arena_strdup(arena, real) : path;
  free(real);
  return result;
}

static void add_lines(Text *message, const char *kind, const json_t *lines) {
  size_t i;
  json_t *line;
  json_array_foreach((json_t *)lines, i, line) text_printf(message, "\n%s: %s", kind, json_string_value(line));
}

/* One report of the compilation of `document` as a diagnostic of the file `own`. What is reported of another file shows
 * at that file's import. */
static json_t *diagnostic_json(const Document *document, const Source *own, const json_t *report) {
  const Compilation *c = document->compilation;
  Text message = {.arena = c->arena};
  const char *path = json_string_value(json_object_get(report, "file")),
             *label = json_string_value(json_object_get(report, "label"));
  size_t begin = 0, end = 0;
  if (path && strcmp(path, own->path) == 0) {
    begin = (size_t)json_integer_value(json_object_get(report, "begin"));
    end = (size_t)json_integer_value(json_object_get(report, "end"));
  } else if (path) {
    text_printf(&message, "%s:%d:%d: ", path, (int)json_integer_value(json_object_get(report, "line")),
                (int)json_integer_value(json_object_get(report, "column")));
    for (uint32_t i = 0; i < c->module->item_count && !end; i++)
      if (c->module->items[i]->kind == ITEM_IMPORT)
        begin = c->module->items[i]->path_span.begin, end = c->module->items[i]->path_span.end;
  }
  text_printf(&message, "%s", json_string_value(json_object_get(report, "message")));
  if (label) text_printf(&message, "\n%s", label);
  add_lines(&message, "note", json_object_get(report, "notes"));
  add_lines(&message, "help", json_object_get(report, "helps"));
  bool error = strcmp(json_string_value(json_object_get(report, "level")), "error") == 0;
  json_t *result = json_pack("{s:o, s:i, s:O, s:s, s:o}", "range", range_json(own->text, own->length, begin, end),
                             "severity", error ? 1 : 2, "code", json_object_get(report, "code"), "source", "pdc",
                             "message", text_json(message.at));
  json_t *related = json_array(), *mark;
  size_t i;
  json_array_foreach(json_object_get(report, "labels"), i, mark) {
    const char *file = json_string_value(json_object_get(mark, "file"));
    const Source *source = source_named(c, file);
    if (!source) continue;
    bool is_root = source == diag_source(c->diagnostics, c->module->file);
    const char *uri = is_root ? document->uri : uri_of_path(c->arena, absolute(c->arena, file));
    json_t *range = range_json(source->text, source->length, (size_t)json_integer_value(json_object_get(mark, "begin")),
                               (size_t)json_integer_value(json_object_get(mark, "end")));
    json_array_append_new(related, json_pack("{s:{s:s, s:o}, s:o}", "location", "uri", uri, "range", range, "message",
                                             text_json(json_string_value(json_object_get(mark, "message")))));
  }
  json_object_set_new(result, "relatedInformation", related);
  return result;
}

static bool has_model(const Module *module) {
  for (uint32_t i = 0; i < module->item_count; i++)
    if (module->items[i]->kind == ITEM_MODEL) return true;
  return false;
}

static bool says_the_same(const json_t *list, const json_t *diagnostic) {
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *other = json_array_get(list, i);
    if (json_equal(json_object_get(other, "code"), json_object_get(diagnostic, "code")) &&
        json_equal(json_object_get(other, "range"), json_object_get(diagnostic, "range")))
      return true;
  }
  return false;
}

/* Adds what the compilation of `document` reports: all of it for its own file, of an import what is in the import. */
static void add_reports(const Document *document, const Source *own, bool imported, json_t *list) {
  char *text = NULL;
  size_t length = 0;
  FILE *lines = open_memstream(&text, &length);
  if (!lines) return;
  diag_render(document->compilation->diagnostics, lines, DIAG_JSON, false);
  fclose(lines);
  for (const char *line = text; *line;) {
    size_t size = strcspn(line, "\n");
    json_t *report = json_loadb(line, size, JSON_ALLOW_NUL, NULL);
    const char *file = json_string_value(json_object_get(report, "file"));
    /* a program that is only begun has no model yet */
    bool wanted = imported ? file && strcmp(file, own->path) == 0
                           : report && (strcmp(json_string_value(json_object_get(report, "code")), "E0218") != 0 ||
                                        has_model(document->compilation->module));
    json_t *diagnostic = wanted ? diagnostic_json(document, own, report) : NULL;
    if (diagnostic && !says_the_same(list, diagnostic)) json_array_append(list, diagnostic);
    json_decref(diagnostic);
    json_decref(report);
    line += size + (line[size] == '\n');
  }
  free(text);
}

/* The source that the compilation of `reader` has read from the file of `document`, NULL if it has not. */
static const Source *read_by(const Document *reader, const Document *document) {
  const char *path = path_of_uri(reader->arena, document->uri);
  if (!path || reader == document) return NULL;
  path = absolute(reader->arena, path);
  for (uint32_t i = 1; diag_source(reader->compilation->diagnostics, i); i++) {
    const Source *source = diag_source(reader->compilation->diagnostics, i);
    if (strcmp(absolute(reader->arena, source->path), path) == 0) return source;
  }
  return NULL;
}

/* What is wrong in a document: by itself, and as open programs see it that import it. */
static void publish(Server *server, const Document *document) {
  json_t *list = json_array();
  if (document->compilation) {
    const Compilation *c = document->compilation;
    add_reports(document, diag_source(c->diagnostics, c->module->file), false, list);
    for (const Document *reader = server->documents; reader; reader = reader->next) {
      const Source *source = read_by(reader, document);
      if (source) add_reports(reader, source, true, list);
    }
  }
  notify(server, "textDocument/publishDiagnostics", json_pack("{s:s, s:o}", "uri", document->uri, "diagnostics", list));
}

/* ---- documents ---- */

typedef struct OpenTexts { /* what imports read: first what is open here */
  const Server *server;
  Arena *arena;
} OpenTexts;

static const char *open_text(void *context, const char *path, size_t *length) {
  const OpenTexts *texts = context;
  for (const Document *document = texts->server->documents; document; document = document->next) {
    const char *own = path_of_uri(texts->arena, document->uri);
    if (!own || strcmp(absolute(texts->arena, own), path) != 0) continue;
    *length = document->length;
    return arena_strndup(texts->arena, document->text, document->length); /* it may change before the next compile */
  }
  return NULL;
}

static void compile_document(const Server *server, Document *document) {
  if (document->arena) arena_free(document->arena);
  document->arena = arena_new();
  Compilation *c = document->compilation = compilation_new(document->arena);
  OpenTexts *texts = ARENA_NEW(document->arena, OpenTexts);
  *texts = (OpenTexts){server, document->arena};
  c->input.library = true;
  c->input.open_text = open_text;
  c->input.context = texts;
  c->input.import_dirs = server->import_dirs;
  c->input.import_dir_count = server->import_dir_count;
  const char *path = path_of_uri(document->arena, document->uri);
  char *text = arena_strndup(document->arena, document->text, document->length);
  if (!passes_parse(c, path ? path : document->uri, text, document->length))
    semantic_read_imports(&c->input, &c->semantic);
  else if (passes_semantic(c) && !c->semantic.library)
    passes_plan(c);
}

static Document *document_of(const Server *server, const json_t *params) {
  const char *uri = json_string_value(json_object_get(json_object_get(params, "textDocument"), "uri"));
  for (Document *document = server->documents; uri && document; document = document->next)
    if (strcmp(document->uri, uri) == 0) return document;
  return NULL;
}

/* text[begin, end) of the document becomes `text`. */
static void edit(Document *document, size_t begin, size_t end, const json_t *text) {
  size_t added = json_string_length(text), rest = document->length - end;
  char *whole = malloc(begin + added + rest + 1);
  if (!whole) exit(70);
  if (begin) memcpy(whole, document->text, begin);
  memcpy(whole + begin, json_string_value(text), added);
  if (rest) memcpy(whole + begin + added, document->text + end, rest);
  free(document->text);
  document->text = whole;
  document->length = begin + added + rest;
  whole[document->length] = '\0';
}

static bool read_position(const json_t *json, Position *position) {
  const json_t *line = json_object_get(json, "line"), *character = json_object_get(json, "character");
  json_int_t l = json_integer_value(line), ch = json_integer_value(character);
  if (!json_is_integer(line) || !json_is_integer(character) || l < 0 || ch < 0 || l > UINT32_MAX || ch > UINT32_MAX)
    return false;
  *position = (Position){(uint32_t)l, (uint32_t)ch};
  return true;
}

/* One change: the whole text, or a range of it. */
static void apply_change(Document *document, const json_t *change) {
  const json_t *text = json_object_get(change, "text"), *range = json_object_get(change, "range");
  Position from, to;
  if (!json_is_string(text)) return;
  if (!range) {
    edit(document, 0, document->length, text);
    return;
  }
  if (!read_position(json_object_get(range, "start"), &from) || !read_position(json_object_get(range, "end"), &to))
    return;
  size_t begin = offset_of(document->text, document->length, from),
         end = offset_of(document->text, document->length, to);
  edit(document, begin, end > begin ? end : begin, text);
}

/* What has read the changed document is told of the change too, and what these have read. */
static void compile_all_with(Server *server, Document *changed) {
  compile_document(server, changed);
  for (Document *document = server->documents; document; document = document->next)
    if (read_by(document, changed)) compile_document(server, document);
  publish(server, changed);
  for (Document *document = server->documents; document; document = document->next)
    if (document != changed && (read_by(document, changed) || read_by(changed, document))) publish(server, document);
}

static void did_open(Server *server, const json_t *params) {
  json_t *item = json_object_get(params, "textDocument");
  const json_t *text = json_object_get(item, "text");
  const char *uri = json_string_value(json_object_get(item, "uri"));
  if (!uri || !json_is_string(text)) return;
  Document *document = document_of(server, params);
  if (!document) {
    document = calloc(1, sizeof *document);
    if (!document || !(document->uri = strdup(uri))) exit(70);
    document->next = server->documents;
    server->documents = document;
  }
  edit(document, 0, document->length, text);
  compile_all_with(server, document);
}

static void did_change(Server *server, const json_t *params) {
  Document *document = document_of(server, params);
  const json_t *changes = json_object_get(params, "contentChanges");
  if (!document || !json_is_array(changes)) return;
  for (size_t i = 0; i < json_array_size(changes); i++) apply_change(document, json_array_get(changes, i));
  compile_all_with(server, document);
}

/* Saving one file may change what another imports. */
static void did_save(Server *server, const json_t *params) {
  (void)params;
  for (Document *document = server->documents; document; document = document->next) compile_document(server, document);
  for (Document *document = server->documents; document; document = document->next) publish(server, document);
}

static void free_document(Document *document) {
  if (document->arena) arena_free(document->arena);
  free(document->uri);
  free(document->text);
  free(document);
}

static void did_close(Server *server, const json_t *params) {
  Document *closed = document_of(server, params);
  for (Document **at = &server->documents; closed && *at; at = &(*at)->next)
    if (*at == closed) {
      *at = closed->next;
      closed->compilation = NULL;
      publish(server, closed);
      free_document(closed);
      did_save(server, NULL); /* others read it from the disk again */
      return;
    }
}

static void finish(Server *server, const json_t *params) {
  (void)params;
  server->done = true;
}

/* ---- requests: each gives its result ---- */

static json_t *initialize(Server *server, const json_t *params, const char **problem) {
  (void)params, (void)problem;
  server->initialized = true;
  return json_pack("{s:{s:s, s:{s:b, s:i, s:b}, s:b, s:b, s:b, s:{s:[s]}}, s:{s:s, s:s}}", "capabilities",
                   "positionEncoding", "utf-16", "textDocumentSync", "openClose", 1, "change", 2, "save", 1,
                   "hoverProvider", 1, "definitionProvider", 1, "documentFormattingProvider", 1, "completionProvider",
                   "triggerCharacters", ".", "serverInfo", "name", "pdc", "version", PDC_VERSION);
}

static json_t *shut_down(Server *server, const json_t *params, const char **problem) {
  (void)params, (void)problem;
  server->shut_down = true;
  return json_null();
}

/* The document and offset that a request names; NULL, with a problem if the request is malformed. */
static Document *place_of(const Server *server, const json_t *params, size_t *offset, const char **problem) {
  Document *document = document_of(server, params);
  const json_t *json = json_object_get(params, "position");
  Position position;
  if (!document || !json_is_integer(json_object_get(json, "line")) ||
      !json_is_integer(json_object_get(json, "character"))) {
    *problem = document ? "the request needs a position" : "this document is not open";
    return NULL;
  }
  if (!read_position(json, &position)) return NULL;
  *offset = offset_of(document->text, document->length, position);
  return document;
}

/* The meaning of the name at the position that a request names. */
static Document *asked(const Server *server, const json_t *params, Meaning *meaning, const char **problem) {
  size_t offset;
  Document *document = place_of(server, params, &offset, problem);
  if (!document) return NULL;
  *meaning = meaning_at(document->compilation, (uint32_t)offset);
  return meaning->role == ROLE_NONE ? NULL : document;
}

static json_t *completion(Server *server, const json_t *params, const char **problem) {
  static const int kinds[] = {
      [COMPLETION_KEYWORD] = 14, [COMPLETION_KEY] = 10,    [COMPLETION_VALUE] = 12, [COMPLETION_OPERATION] = 3,
      [COMPLETION_BLOCK] = 3,    [COMPLETION_MODULE] = 9,  [COMPLETION_DIM] = 25,   [COMPLETION_CONST] = 21,
      [COMPLETION_PARAM] = 5,    [COMPLETION_VARIABLE] = 6}; /* the protocol's numbers */
  size_t offset = 0, begin = 0;
  const Document *document = place_of(server, params, &offset, problem);
  if (!document) return json_null();
  Completions list = {0};
  complete_at(document->compilation, document->text, offset, &list, &begin);
  json_t *items = json_array();
  for (uint32_t i = 0; i < list.count; i++) {
    const Completion *item = &list.at[i];
    json_array_append_new(items, json_pack("{s:o, s:i, s:o, s:{s:o, s:o}}", "label", text_json(item->name), "kind",
                                           kinds[item->kind], "detail", text_json(item->detail), "textEdit", "range",
                                           range_json(document->text, document->length, begin, offset), "newText",
                                           text_json(item->name)));
  }
  return json_pack("{s:b, s:o}", "isIncomplete", 0, "items", items);
}

static json_t *hover(Server *server, const json_t *params, const char **problem) {
  Meaning meaning;
  const Document *document = asked(server, params, &meaning, problem);
  if (!document) return json_null();
  return json_pack("{s:{s:s, s:o}, s:o}", "contents", "kind", "markdown", "value",
                   text_json(hover_text(document->compilation, &meaning)), "range",
                   range_json(document->text, document->length, meaning.name.span.begin, meaning.name.span.end));
}

static json_t *definition(Server *server, const json_t *params, const char **problem) {
  Meaning meaning;
  const Document *document = asked(server, params, &meaning, problem);
  const Source *source =
      document && meaning.module ? diag_source(document->compilation->diagnostics, meaning.declared.file) : NULL;
  if (!source) return json_null();
  bool own = meaning.module == document->compilation->module;
  const char *uri = own ? document->uri : uri_of_path(document->arena, absolute(document->arena, source->path));
  return json_pack("{s:s, s:o}", "uri", uri, "range",
                   range_json(source->text, source->length, meaning.declared.begin, meaning.declared.end));
}

static json_t *formatting(Server *server, const json_t *params, const char **problem) {
  const Document *document = document_of(server, params);
  if (!document) {
    *problem = "this document is not open";
    return NULL;
  }
  Arena *arena = arena_new();
  Diagnostics *diagnostics = diagnostics_new(arena);
  uint32_t file = diag_add_source(diagnostics, "document", arena_strndup(arena, document->text, document->length),
                                  document->length);
  const Module *module = syntax_parse(arena, intern_new(arena), diagnostics, file);
  Text out = {.arena = arena};
  json_t *edits = json_array();
  if (diag_errors(diagnostics)) {
    *problem = "the document has syntax errors";
  } else {
    syntax_format(&out, diagnostics, module);
    if (out.length != document->length || memcmp(out.at, document->text, out.length) != 0)
      json_array_append_new(edits, json_pack("{s:o, s:o}", "range",
                                             range_json(document->text, document->length, 0, document->length),
                                             "newText", json_stringn(out.at, out.length)));
  }
  arena_free(arena);
  return edits;
}

/* ---- dispatch ---- */

typedef struct Method {
  const char *name;
  json_t *(*request)(Server *, const json_t *params, const char **problem);
  void (*notification)(Server *, const json_t *params);
} Method;

static const Method *method_named(const char *name) {
  static const Method methods[] = {
      {"initialize", initialize, NULL},
      {"shutdown", shut_down, NULL},
      {"textDocument/hover", hover, NULL},
      {"textDocument/completion", completion, NULL},
      {"textDocument/definition", definition, NULL},
      {"textDocument/formatting", formatting, NULL},
      {"exit", NULL, finish},
      {"textDocument/didOpen", NULL, did_open},
      {"textDocument/didChange", NULL, did_change},
      {"textDocument/didSave", NULL, did_save},
      {"textDocument/didClose", NULL, did_close},
  };
  for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
    if (strcmp(methods[i].name, name) == 0) return &methods[i];
  return NULL;
}

static void serve_request(Server *server, const char *name, json_t *id, const json_t *params) {
  const Method *method = method_named(name);
  if (server->shut_down)
    refuse(server, id, INVALID_REQUEST, "the server was shut down");
  else if (!server->initialized && strcmp(name, "initialize") != 0)
    refuse(server, id, NOT_INITIALIZED, "the server is not initialized");
  else if (!method || !method->request)
    refuse(server, id, METHOD_NOT_FOUND, "this server does not have the method");
  else {
    const char *problem = NULL;
    json_t *result = method->request(server, params, &problem);
    if (problem) {
      json_decref(result);
      refuse(server, id, strcmp(name, "textDocument/formatting") == 0 ? REQUEST_FAILED : INVALID_PARAMS, problem);
    } else {
      answer(server, id, result);
    }
  }
}

static void serve(Server *server, json_t *message) {
  json_t *id = json_object_get(message, "id");
  const char *name = json_string_value(json_object_get(message, "method"));
  bool valid_id = !id || json_is_string(id) || json_is_number(id) || json_is_null(id);
  if (!json_is_object(message) || !valid_id) {
    refuse(server, NULL, INVALID_REQUEST, "this is no request");
  } else if (!name) {
    /* an answer to a request, which this server never sends, or nothing at all */
    if (!json_object_get(message, "result") && !json_object_get(message, "error"))
      refuse(server, id, INVALID_REQUEST, "the request has no method");
  } else if (id) {
    serve_request(server, name, id, json_object_get(message, "params"));
  } else {
    const Method *method = method_named(name);
    bool allowed =
        method && method->notification && ((server->initialized && !server->shut_down) || strcmp(name, "exit") == 0);
    if (allowed) method->notification(server, json_object_get(message, "params"));
  }
}

int lsp_serve(FILE *in, FILE *out, const char *const *import_dirs, uint32_t import_dir_count) {
  Server server = {.out = out, .import_dirs = import_dirs, .import_dir_count = import_dir_count};
  while (!server.done) {
    size_t length = 0;
    char *body = message_read(in, &length);
    if (!body) break;
    json_t *message = json_loadb(body, length, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
    free(body);
    if (message)
      serve(&server, message);
    else
      refuse(&server, NULL, PARSE_ERROR, "the message is not JSON");
    json_decref(message);
  }
  for (Document *document = server.documents, *next; document; document = next) {
    next = document->next;
    free_document(document);
  }
  return server.done && server.shut_down ? 0 : 1;
}
