/* What each rank holds, as a table: --emit=sharding. A row for every parameter, input and wire: its axes, what divides
 * them, the shape on one rank and its bytes there. Wires and inputs are those of one micro-batch. */
#include <string.h>

#include "distribute/distribute.h"

enum { COLUMNS = 5 };

typedef struct Table {
  Arena *arena;
  VEC(const char *) cells; /* COLUMNS a row */
} Table;

static void add_row(Table *table, const char *name, const char *shape, const char *split, const char *local,
                    const char *bytes) {
  const char *const row[COLUMNS] = {name, shape, split, local, bytes};
  for (unsigned i = 0; i < COLUMNS; i++) vec_push(table->arena, &table->cells, row[i]);
}

/* "heads/tp 8, batch/dp 64", or "batch/dp *" when the launch gives dp */
static const char *split_text(Arena *arena, const Graph *graph, const Config *config, unsigned rank, const Id *axes) {
  Text text = {.arena = arena};
  text_put(&text, "", 0);
  for (unsigned k = 0; k < rank; k++) {
    const Axis *axis = &graph->axes.at[axes[k]];
    bool open = axis->mesh == MESH_DP && config->dp_open;
    int64_t degree = axis->mesh == MESH_DP ? config->dp : axis->mesh == MESH_TP ? config->tp : 1;
    if (degree < 2 && !open) continue;
    text_printf(&text, "%s%s/%s ", text.length ? ", " : "", axis->name ? axis->name : "axis", mesh_name(axis->mesh));
    if (open)
      text_put(&text, "*", 1);
    else
      text_printf(&text, "%lld", (long long)degree);
  }
  return text.length ? text.at : "-";
}

static const char *local_text(Arena *arena, const Graph *graph, const Config *config, unsigned rank, const Id *axes) {
  Text text = {.arena = arena};
  text_put(&text, "[", 1);
  for (unsigned k = 0; k < rank; k++)
    text_printf(&text, "%s%lld", k ? ", " : "", (long long)axis_local(graph, config, axes[k]));
  text_put(&text, "]", 1);
  return text.at;
}

static void add_tensor(Table *table, const Graph *graph, const Config *config, const char *name, unsigned rank,
                       const Id *axes, int64_t item) {
  Arena *arena = table->arena;
  int64_t bytes = axes_local_elements(graph, config, rank, axes) * item;
  add_row(table, name, axes_text(graph, rank, axes, true), split_text(arena, graph, config, rank, axes),
          local_text(arena, graph, config, rank, axes), arena_printf(arena, "%lld", (long long)bytes));
}

static void put_table(Text *out, const Table *table) {
  size_t width[COLUMNS] = {0};
  for (uint32_t i = 0; i < table->cells.count; i++) {
    size_t length = strlen(table->cells.at[i]);
    if (length > width[i % COLUMNS]) width[i % COLUMNS] = length;
  }
  for (uint32_t i = 0; i < table->cells.count; i++) {
    unsigned column = i % COLUMNS;
    if (column + 1 == COLUMNS)
      text_printf(out, "%*s\n", (int)width[column], table->cells.at[i]);
    else
      text_printf(out, "%-*s  ", (int)width[column], table->cells.at[i]);
  }
}

void sharding_text(const Graph *graph, const Config *config, Text *out) {
  Table table = {.arena = out->arena};
  int64_t real = real_bytes(config);
  if (config->dp_open)
    text_printf(out, "%lld ranks a replica: pp %lld x dp * x tp %lld", (long long)(config->pp * config->tp),
                (long long)config->pp, (long long)config->tp);
  else
    text_printf(out, "%lld ranks: pp %lld x dp %lld x tp %lld", (long long)(config->pp * config->dp * config->tp),
                (long long)config->pp, (long long)config->dp, (long long)config->tp);
  text_printf(out, "; micro-batches of %lld; reals of %lld bytes\n\n", (long long)config->microbatch, (long long)real);
  add_row(&table, "parameter", "axes", "divided", "on a rank", "bytes");
  for (uint32_t i = 0; i < graph->params.count; i++) {
    const Param *param = &graph->params.at[i];
    const char *name = param->name;
    if (param->per_trip && param->segment != NO_ID)
      name = arena_printf(out->arena, "%s  x %lld", name, (long long)graph->segments.at[param->segment].trips);
    add_tensor(&table, graph, config, name, param->rank, param->axes, real);
  }
  add_row(&table, "", "", "", "", "");
  add_row(&table, "input", "axes", "divided", "on a rank", "bytes");
  for (uint32_t i = 0; i < graph->data.count; i++) {
    const Data *data = &graph->data.at[i];
    add_tensor(&table, graph, config, data->name, data->rank, data->axes, data->dtype == DT_I32 ? 4 : real);
  }
  add_row(&table, "", "", "", "", "");
  add_row(&table, "wire", "axes", "divided", "on a rank", "bytes");
  for (uint32_t i = 0; i < graph->wires.count; i++) {
    const Wire *wire = &graph->wires.at[i];
    const char *name = arena_printf(out->arena, "%s from %s", wire->name, graph->segments.at[wire->from].name);
    add_tensor(&table, graph, config, name, wire->rank, wire->axes, real);
  }
  Text rows = {.arena = out->arena};
  put_table(&rows, &table);
  for (const char *line = rows.at; line && *line;) { /* no blanks at the ends of lines */
    size_t length = strcspn(line, "\n"), kept = length;
    while (kept && line[kept - 1] == ' ') kept--;
    text_put(out, line, kept);
    text_put(out, "\n", 1);
    line += length + (line[length] == '\n');
  }
}
