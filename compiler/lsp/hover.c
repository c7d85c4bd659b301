/* What an editor shows about a name. The declaration is the user's text; sizes come from the typed program and are left
 * out when the program does not compile. A declaration in a block has as many sizes as the block has calls. */
#include <string.h>

#include "ir/sizes.h"
#include "lsp/lsp.h"

enum { MOST_SHOWN = 6 };

static const char *role_name(const Meaning *meaning) {
  switch (meaning->role) {
  case ROLE_CONST:
    return meaning->item->config ? "config const" : "const";
  case ROLE_DIM:
    return "dim";
  case ROLE_KEY:
    return "key of a section";
  case ROLE_BLOCK:
    return "block";
  case ROLE_MODEL:
    return "model";
  case ROLE_IMPORT:
    return "import";
  case ROLE_SIZE:
    return "size of a block";
  case ROLE_INPUT:
    return "input";
  case ROLE_PARAM:
    return "parameter";
  case ROLE_VALUE:
    return "value";
  case ROLE_INDEX:
    return "index of a loop";
  case ROLE_OPERATION:
    return "operation";
  case ROLE_NONE:
    break;
  }
  return "name";
}

static bool same_begin(Span a, Span b) {
  return a.file == b.file && a.begin == b.begin;
}

/* "[1, 2048, 12288]": what one rank has, in one micro-batch. */
static void put_local(const Compilation *c, Text *out, unsigned rank, const Id *axes) {
  text_put(out, "[", 1);
  for (unsigned k = 0; k < rank; k++)
    text_printf(out, "%s%lld", k ? ", " : "", (long long)axis_local(c->semantic.graph, &c->semantic.config, axes[k]));
  text_put(out, "]", 1);
}

static void put_tensor(const Compilation *c, Text *out, const char *name, unsigned rank, const Id *axes, bool integer,
                       const char *more) {
  const Graph *graph = c->semantic.graph;
  const Config *config = &c->semantic.config;
  double item = integer ? 4 : real_bytes(config); /* no overflow where the program is too large */
  text_printf(out, "\n- `%s`: %s%s, on a rank ", name, integer ? "i32" : "", axes_text(graph, rank, axes, true));
  put_local(c, out, rank, axes);
  text_printf(out, " = %.0f bytes%s", (double)axes_local_elements(graph, config, rank, axes) * item, more);
}

static void put_params(const Compilation *c, Text *out, const Meaning *meaning) {
  const Graph *graph = c->semantic.graph;
  unsigned shown = 0, left = 0;
  for (uint32_t i = 0; i < graph->params.count; i++) {
    const Param *param = &graph->params.at[i];
    if (!same_begin(param->span, meaning->declared)) continue;
    if (shown++ >= MOST_SHOWN) {
      left++;
      continue;
    }
    bool many = param->per_trip && param->segment != NO_ID;
    const char *more =
        many ? arena_printf(out->arena, ", in each of %lld trips", (long long)graph->segments.at[param->segment].trips)
             : "";
    put_tensor(c, out, param->name, param->rank, param->axes, false,
               arena_printf(out->arena, "%s%s", more, param->frozen ? ", frozen" : ""));
  }
  if (left) text_printf(out, "\n- and %u more", left);
}

static void put_inputs(const Compilation *c, Text *out, const Meaning *meaning) {
  const Graph *graph = c->semantic.graph;
  for (uint32_t i = 0; i < graph->data.count; i++) {
    const Data *data = &graph->data.at[i];
    if (data->span.file == meaning->declared.file && data->span.begin >= meaning->whole.begin &&
        data->span.end <= meaning->whole.end)
      put_tensor(c, out, data->name, data->rank, data->axes, data->dtype == DT_I32, " a micro-batch");
  }
}

/* The results that a statement gives this name, each shape once. */
static void put_values(const Compilation *c, Text *out, const Meaning *meaning) {
  const Graph *graph = c->semantic.graph;
  VEC(const char *) seen = {0};
  for (uint32_t i = 0; i < graph->values.count && seen.count < MOST_SHOWN; i++) {
    const Value *value = &graph->values.at[i];
    if (value->kind != VALUE_OP || value->span.file != meaning->whole.file ||
        value->span.begin < meaning->whole.begin || value->span.end > meaning->whole.end ||
        strcmp(value->name, meaning->name.text) != 0)
      continue;
    const char *shape = axes_text(graph, value->rank, value->axes, true);
    bool known = false;
    for (uint32_t k = 0; k < seen.count; k++) known |= strcmp(seen.at[k], shape) == 0;
    if (known) continue;
    vec_push(out->arena, &seen, shape);
    put_tensor(c, out, value->name, value->rank, value->axes, value->dtype == DT_I32, " a micro-batch");
  }
}

static void put_dim(const Compilation *c, Text *out, const Meaning *meaning) {
  const Graph *graph = c->semantic.graph;
  const Config *config = &c->semantic.config;
  for (Id i = 0; i < graph->axes.count; i++) {
    const Axis *axis = &graph->axes.at[i];
    if (!axis->name || !same_begin(axis->span, meaning->declared)) continue;
    text_printf(out, "\n- `%s` = %s%s%lld", axis->name, axis->derivation ? axis->derivation : "",
                axis->derivation ? " = " : "", (long long)axis->size);
    if (i == graph->batch && config->dp_open)
      text_printf(out, ", the batch: dp * x micro-batches of %lld%s%s", (long long)config->microbatch,
                  c->degrees ? "; dp is given at the launch: " : "", c->degrees ? degrees_text(c->degrees) : "");
    else if (i == graph->batch)
      text_printf(out, ", the batch: dp %lld x %lld micro-batches of %lld", (long long)config->dp,
                  (long long)config->microbatches, (long long)config->microbatch);
    else if (axis_is_split(graph, config, i))
      text_printf(out, ", divided over %s %lld: %lld on a rank", mesh_name(axis->mesh), (long long)config->tp,
                  (long long)axis_local(graph, config, i));
    return;
  }
}

static void put_source(const Compilation *c, Text *out, const Meaning *meaning) {
  const Source *source = diag_source(c->diagnostics, meaning->whole.file);
  if (!source || meaning->whole.end > source->length) return;
  text_printf(out, "\n```pd\n");
  if (meaning->role == ROLE_CONST) text_printf(out, "%sconst ", meaning->item->config ? "config " : "");
  if (meaning->role == ROLE_DIM) text_printf(out, "dim ");
  if (meaning->role == ROLE_PARAM) text_printf(out, "param ");
  if (meaning->role == ROLE_KEY) text_printf(out, "%s < ", meaning->item->name.text);
  text_put(out, source->text + meaning->whole.begin, meaning->whole.end - meaning->whole.begin);
  if (meaning->role == ROLE_KEY) text_printf(out, "; >");
  text_printf(out, "\n```");
}

const char *hover_text(const Compilation *c, const Meaning *meaning) {
  Text out = {.arena = c->arena};
  text_printf(&out, "%s `%s`", role_name(meaning), meaning->name.text);
  if (meaning->module && meaning->module != c->module)
    text_printf(&out, " of %s", diag_source(c->diagnostics, meaning->module->file)->path);
  if (meaning->role != ROLE_OPERATION) put_source(c, &out, meaning);
  if (!c->semantic.graph) return out.at;
  if (meaning->role == ROLE_PARAM) put_params(c, &out, meaning);
  if (meaning->role == ROLE_INPUT) put_inputs(c, &out, meaning);
  if (meaning->role == ROLE_VALUE) put_values(c, &out, meaning);
  if (meaning->role == ROLE_DIM) put_dim(c, &out, meaning);
  return out.at;
}
