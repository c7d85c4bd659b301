/* From a place in the text to what the name there means, on the syntax tree alone, so that it works in programs that do
 * not compile. A name inside a block or model is its nearest declaration above; then a name of the file; then one of an
 * import (`nn.linear`) or of a section (`parallel.tp`); then an operation of the language. */
#include <string.h>

#include "lsp/lsp.h"

typedef struct Walk {
  const Compilation *c;
  const Module *module;
  const Item *item;
  uint32_t offset;
  Meaning found; /* role ROLE_NONE: a reference, still to be resolved; name.text NULL: nothing yet */
  bool is_call;
} Walk;

static bool holds(Span span, uint32_t offset) {
  return span.begin <= offset && offset <= span.end && span.end > span.begin;
}

static Span join(Span a, Span b) {
  return b.file == a.file && b.end > a.end ? span_join(a, b) : a;
}

static Span to_end_of(Span span, const TypeExpr *type, const Expr *value) {
  if (type) span = join(span, type->span);
  return value ? join(span, value->span) : span;
}

static void declare(Walk *walk, SymbolRole role, Name name, Span whole) {
  if (!name.text || !holds(name.span, walk->offset)) return;
  walk->found = (Meaning){role, name, walk->module, walk->item, name.span, whole};
}

static void refer(Walk *walk, Name name, bool is_call) {
  if (!name.text || !holds(name.span, walk->offset) || walk->found.name.text) return;
  walk->found = (Meaning){.name = name, .item = walk->item};
  walk->is_call = is_call;
}

static void walk_expr(Walk *walk, const Expr *expr) {
  if (!expr || !holds(expr->span, walk->offset)) return;
  if (expr->kind == EXPR_NAME || expr->kind == EXPR_CALL) refer(walk, expr->name, expr->kind == EXPR_CALL);
  for (uint32_t i = 0; i < expr->arg_count; i++) walk_expr(walk, expr->args[i]);
}

static void walk_type(Walk *walk, const TypeExpr *type) {
  for (uint32_t i = 0; type && i < type->dim_count; i++) walk_expr(walk, type->dims[i]);
}

static void walk_body(Walk *walk, Stmt *const *body, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    const Stmt *stmt = body[i];
    if (!holds(stmt->span, walk->offset)) continue;
    for (uint32_t k = 0; k < stmt->param_count; k++) {
      const ParamDecl *param = &stmt->params[k];
      declare(walk, ROLE_PARAM, param->name, to_end_of(param->name.span, param->type, param->init));
      walk_type(walk, param->type);
      walk_expr(walk, param->init);
    }
    for (uint32_t k = 0; k < stmt->target_count; k++) declare(walk, ROLE_VALUE, stmt->targets[k], stmt->span);
    if (stmt->index.text) declare(walk, ROLE_INDEX, stmt->index, span_join(stmt->index.span, stmt->upper->span));
    walk_expr(walk, stmt->value);
    walk_expr(walk, stmt->upper);
    walk_body(walk, stmt->body, stmt->body_count);
    walk_body(walk, stmt->otherwise, stmt->otherwise_count);
  }
}

static SymbolRole role_of_item(const Item *item) {
  switch (item->kind) {
  case ITEM_IMPORT:
    return ROLE_IMPORT;
  case ITEM_CONST:
    return ROLE_CONST;
  case ITEM_DIM:
    return ROLE_DIM;
  case ITEM_SECTION:
    return ROLE_KEY;
  case ITEM_BLOCK:
    return ROLE_BLOCK;
  case ITEM_MODEL:
    break;
  }
  return ROLE_MODEL;
}

/* The header of a block or model: up to its result or last input. */
static Span header(const Item *item) {
  Span span = span_join(item->span, item->name.span);
  for (uint32_t i = 0; i < item->input_count; i++) span = to_end_of(span, item->inputs[i].type, item->inputs[i].value);
  return item->result        ? join(span, item->result->span)
         : item->input_count ? (Span){span.file, span.begin, span.end + 1}
                             : span;
}

static void walk_item(Walk *walk, const Item *item) {
  if (!holds(item->span, walk->offset)) return;
  walk->item = item;
  SymbolRole role = role_of_item(item);
  if (item->kind == ITEM_IMPORT) {
    declare(walk, role, item->name, item->span);
    if (holds(item->path_span, walk->offset)) declare(walk, role, (Name){item->name.text, item->path_span}, item->span);
  } else if (role == ROLE_BLOCK || role == ROLE_MODEL) {
    declare(walk, role, item->name, header(item));
  }
  for (uint32_t i = 0; i < item->binding_count; i++) {
    const Binding *binding = &item->bindings[i];
    declare(walk, role, binding->name, to_end_of(binding->name.span, NULL, binding->value));
    if (item->kind == ITEM_SECTION && strcmp(item->name.text, "shard") == 0) { /* its keys are axes, its values words */
      if (walk->found.role == ROLE_KEY) walk->found = (Meaning){.name = binding->name};
      continue;
    }
    walk_expr(walk, binding->value);
  }
  for (uint32_t i = 0; i < item->size_count; i++) declare(walk, ROLE_SIZE, item->sizes[i], item->sizes[i].span);
  for (uint32_t i = 0; i < item->input_count; i++) {
    const Input *input = &item->inputs[i];
    declare(walk, ROLE_INPUT, input->name, to_end_of(input->name.span, input->type, input->value));
    walk_type(walk, input->type);
    walk_expr(walk, input->value);
  }
  walk_type(walk, item->result);
  walk_body(walk, item->body, item->body_count);
}

/* ---- resolving ---- */

static void take(Walk *walk, SymbolRole role, Name name, Span whole) {
  Name asked = walk->found.name;
  walk->found = (Meaning){role, asked, walk->module, walk->item, name.span, whole};
}

static bool is(const Name *name, const char *text, size_t length) {
  return name->text && strlen(name->text) == length && memcmp(name->text, text, length) == 0;
}

/* The last declaration of the name above the reference; a statement does not see what it assigns itself. */
static void resolve_in_body(Walk *walk, Stmt *const *body, uint32_t count, const char *text) {
  uint32_t at = walk->found.name.span.begin;
  size_t length = strlen(text);
  for (uint32_t i = 0; i < count; i++) {
    const Stmt *stmt = body[i];
    if (stmt->span.begin > at) return;
    for (uint32_t k = 0; k < stmt->param_count; k++) {
      const ParamDecl *param = &stmt->params[k];
      if (is(&param->name, text, length))
        take(walk, ROLE_PARAM, param->name, to_end_of(param->name.span, param->type, param->init));
    }
    bool inside = stmt->body_count || stmt->otherwise_count;
    if (stmt->index.text && is(&stmt->index, text, length) && at <= stmt->span.end)
      take(walk, ROLE_INDEX, stmt->index, span_join(stmt->index.span, stmt->upper->span));
    for (uint32_t k = 0; stmt->kind == STMT_ASSIGN && stmt->span.end <= at && k < stmt->target_count; k++)
      if (is(&stmt->targets[k], text, length)) take(walk, ROLE_VALUE, stmt->targets[k], stmt->span);
    if (!inside) continue;
    resolve_in_body(walk, stmt->body, stmt->body_count, text);
    resolve_in_body(walk, stmt->otherwise, stmt->otherwise_count, text);
  }
}

static void resolve_in_item(Walk *walk, const char *text) {
  const Item *item = walk->item;
  size_t length = strlen(text);
  for (uint32_t i = 0; i < item->size_count; i++)
    if (is(&item->sizes[i], text, length)) take(walk, ROLE_SIZE, item->sizes[i], item->sizes[i].span);
  for (uint32_t i = 0; i < item->input_count; i++) {
    const Input *input = &item->inputs[i];
    if (is(&input->name, text, length))
      take(walk, ROLE_INPUT, input->name, to_end_of(input->name.span, input->type, input->value));
  }
  resolve_in_body(walk, item->body, item->body_count, text);
}

/* A name of a whole file. */
static void resolve_in_module(Walk *walk, const Module *module, const char *text, size_t length) {
  walk->module = module;
  for (uint32_t i = 0; i < module->item_count && walk->found.role == ROLE_NONE; i++) {
    const Item *item = walk->item = module->items[i];
    SymbolRole role = role_of_item(item);
    bool named = role == ROLE_BLOCK || role == ROLE_MODEL;
    if ((named || role == ROLE_IMPORT) && is(&item->name, text, length))
      take(walk, role, item->name, named ? header(item) : item->span);
    for (uint32_t k = 0; role != ROLE_KEY && k < item->binding_count; k++)
      if (is(&item->bindings[k].name, text, length))
        take(walk, role, item->bindings[k].name, to_end_of(item->bindings[k].name.span, NULL, item->bindings[k].value));
  }
}

static bool ends_with(const char *path, const char *end) {
  size_t a = strlen(path), b = strlen(end);
  return a >= b && strcmp(path + a - b, end) == 0 && (a == b || path[a - b - 1] == '/' || end[0] == '/');
}

const Module *module_of_import(const Compilation *c, const Item *item) {
  for (uint32_t i = 1; i < c->semantic.modules.count; i++) {
    const Module *module = c->semantic.modules.at[i];
    if (ends_with(diag_source(c->diagnostics, module->file)->path, item->path)) return module;
  }
  return NULL;
}

static void resolve_dotted(Walk *walk, const char *text, const char *dot) {
  const Module *root = walk->module;
  size_t length = (size_t)(dot - text);
  for (uint32_t i = 0; i < root->item_count && walk->found.role == ROLE_NONE; i++) {
    const Item *item = root->items[i];
    if (!is(&item->name, text, length)) continue;
    walk->item = item;
    const Module *imported = item->kind == ITEM_IMPORT ? module_of_import(walk->c, item) : NULL;
    if (imported)
      resolve_in_module(walk, imported, dot + 1, strlen(dot + 1));
    else if (item->kind == ITEM_IMPORT)
      take(walk, ROLE_IMPORT, item->name, item->span);
    for (uint32_t k = 0; item->kind == ITEM_SECTION && k < item->binding_count; k++)
      if (is(&item->bindings[k].name, dot + 1, strlen(dot + 1)))
        take(walk, ROLE_KEY, item->bindings[k].name,
             to_end_of(item->bindings[k].name.span, NULL, item->bindings[k].value));
    for (uint32_t k = 0; item->kind == ITEM_BLOCK && k < item->size_count; k++) /* linear.n in `shard` */
      if (is(&item->sizes[k], dot + 1, strlen(dot + 1))) take(walk, ROLE_SIZE, item->sizes[k], item->sizes[k].span);
  }
}

Meaning meaning_at(const Compilation *c, uint32_t offset) {
  Walk walk = {.c = c, .module = c->module, .offset = offset};
  for (uint32_t i = 0; i < c->module->item_count; i++) walk_item(&walk, c->module->items[i]);
  const char *text = walk.found.name.text;
  if (!text || walk.found.role != ROLE_NONE) return walk.found;
  const char *dot = strchr(text, '.');
  walk.item = walk.found.item;
  /* inside of a block, its own name may be that of an operation; outside, a call is of a block first */
  if (walk.item && !dot && (walk.item->kind == ITEM_BLOCK || walk.item->kind == ITEM_MODEL))
    resolve_in_item(&walk, text);
  if (walk.found.role == ROLE_NONE && !dot) resolve_in_module(&walk, c->module, text, strlen(text));
  if (walk.found.role == ROLE_NONE && dot) resolve_dotted(&walk, text, dot);
  if (walk.found.role == ROLE_NONE && walk.is_call) walk.found.role = ROLE_OPERATION;
  return walk.found;
}
