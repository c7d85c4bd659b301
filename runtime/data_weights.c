/* Loading and saving weights over the layout.
 *
 * A rank's part is a block of the logical tensor (pd_local). Its elements in memory order fall into runs that are
 * contiguous in the file; both directions walk those runs. Saving holds one piece of one part at a time on rank 0, so
 * its memory does not grow with the model.
 */
#include "data_weights.h"

#include "log.h"
#include "safetensors.h"
#include "watch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE ((int64_t)1 << 20) /* elements that travel at a time */

/* ---- names ---- */

typedef struct named {
  char *name;
  int param;
  int64_t trip;
} named;

typedef struct names {
  named *at;
  int64_t count;
} names;

static int by_name(const void *a, const void *b) {
  return strcmp(((const named *)a)->name, ((const named *)b)->name);
}

static char *trip_name(const pd_param_info *param, int64_t trip) {
  char *name = NULL;
  const char *braces = param->per_trip ? strstr(param->name, "{}") : NULL;
  const int n = braces == NULL
                    ? asprintf(&name, "%s", param->name)
                    : asprintf(&name, "%.*s%" PRId64 "%s", (int)(braces - param->name), param->name, trip, braces + 2);
  return n < 0 ? NULL : name;
}

static int64_t trips_of(const pd_program *program, const pd_param_info *param) {
  return param->per_trip && param->segment != PD_NONE ? program->segments[param->segment].trips : 1;
}

static names names_new(const pd_program *program, bool trained_only) {
  names list = {.count = 0};
  int64_t room = 1;
  for (int p = 0; p < program->param_count; p++) room += trips_of(program, &program->params[p]);
  list.at = calloc((size_t)room, sizeof *list.at);
  for (int p = 0; p < program->param_count && list.at != NULL; p++) {
    if (trained_only && (program->params[p].frozen || program->params[p].statistic)) continue;
    for (int64_t trip = 0; trip < trips_of(program, &program->params[p]); trip++) {
      list.at[list.count] = (named){.name = trip_name(&program->params[p], trip), .param = p, .trip = trip};
      if (list.at[list.count++].name == NULL) pd_fail(PD_EXIT_MEMORY, "not enough memory for the names of weights");
    }
  }
  if (list.at == NULL) pd_fail(PD_EXIT_MEMORY, "not enough memory for the names of weights");
  qsort(list.at, (size_t)list.count, sizeof *list.at, by_name);
  return list;
}

static void names_free(names *list) {
  for (int64_t i = 0; i < list->count; i++) free(list->at[i].name);
  free(list->at);
}

/* ---- runs ---- */

/* A part as `count` runs of `length` elements, each contiguous in the logical tensor. */
typedef struct runs {
  const pd_local *local;
  int outer; /* axes before the run */
  int64_t length, stride[PD_MAX_RANK];
} runs;

static runs runs_of(const pd_local *local) {
  runs r = {.local = local, .outer = local->rank, .length = 1};
  int64_t stride = 1;
  for (int k = local->rank - 1; k >= 0; k--) {
    r.stride[k] = stride;
    stride *= local->global[k];
  }
  while (r.outer > 0) { /* trailing axes that are whole, and one more */
    const int k = --r.outer;
    r.length *= local->size[k];
    if (local->size[k] != local->global[k]) break;
  }
  return r;
}

/* Where run `index` starts in the logical tensor. */
static int64_t run_start(const runs *r, int64_t index) {
  const pd_local *l = r->local;
  int64_t at = r->outer < l->rank ? l->first[r->outer] * r->stride[r->outer] : 0;
  for (int k = r->outer - 1; k >= 0; k--) {
    at += (l->first[k] + index % l->size[k]) * r->stride[k];
    index /= l->size[k];
  }
  return at;
}

/* ---- loading ---- */

static void shape_text(const int64_t *shape, int rank, char *out, size_t size) {
  size_t n = (size_t)snprintf(out, size, "[");
  for (int i = 0; i < rank && n < size; i++) {
    n += (size_t)snprintf(out + n, size - n, "%s%" PRId64, i > 0 ? ", " : "", shape[i]);
  }
  if (n < size) snprintf(out + n, size - n, "]");
}

/* A list of names that stays short: the first eight and how many more. */
typedef struct name_list {
  char text[1024];
  int64_t count;
} name_list;

static void add_name(name_list *list, const char *name) {
  const size_t n = strlen(list->text);
  if (list->count++ < 8) snprintf(list->text + n, sizeof list->text - n, "%s`%.96s`", n > 0 ? ", " : "", name);
}

static void check_names(const names *wanted, const pd_safetensors *file) {
  name_list missing = {.count = 0}, extra = {.count = 0};
  int64_t i = 0, j = 0;
  while (i < wanted->count || j < file->count) { /* both ascend */
    const int order = i == wanted->count ? 1
                      : j == file->count ? -1
                                         : strcmp(wanted->at[i].name, file->tensors[j].name);
    if (order < 0) add_name(&missing, wanted->at[i].name);
    if (order > 0) add_name(&extra, file->tensors[j].name);
    i += order <= 0;
    j += order >= 0;
  }
  if (missing.count == 0 && extra.count == 0) return;
  char text[2600] = "";
  size_t n = 0;
  if (missing.count > 0) {
    n = (size_t)snprintf(text, sizeof text, "lacks %" PRId64 " of %" PRId64 " tensors of the model: %s%s",
                         missing.count, wanted->count, missing.text, missing.count > 8 ? ", ..." : "");
  }
  if (extra.count > 0) {
    snprintf(text + n, sizeof text - n, "%sholds %" PRId64 " that the model does not have: %s%s", n > 0 ? "; " : "",
             extra.count, extra.text, extra.count > 8 ? ", ..." : "");
  }
  pd_fail(PD_EXIT_CHECKPOINT, "weights `%s`: %s", file->path, text);
}

static void check_tensor(const pd_param_info *param, const pd_tensor *tensor, const pd_safetensors *file) {
  bool same = tensor->rank == param->rank;
  for (int k = 0; k < param->rank && same; k++) same = tensor->shape[k] == param->shape[k];
  if (!same) {
    char has[256], wants[256];
    shape_text(tensor->shape, tensor->rank, has, sizeof has);
    shape_text(param->shape, param->rank, wants, sizeof wants);
    pd_fail(PD_EXIT_CHECKPOINT, "weights `%s`: tensor `%s` has shape %s, the model's is %s", file->path, tensor->name,
            has, wants);
  }
  if (!pd_safetensors_is_real(tensor)) {
    pd_fail(PD_EXIT_CHECKPOINT, "weights `%s`: tensor `%s` is %s; F64, F32, F16 and BF16 can be read", file->path,
            tensor->name, pd_safetensors_type(tensor));
  }
}

static char *part_at(const pd_part *part, pd_weights_kind kind) {
  switch (kind) {
  case PD_WEIGHTS:
    return part->weights;
  case PD_WEIGHTS_BEFORE:
    return part->before;
  case PD_WEIGHT_GRADIENTS:
    return part->gradients;
  case PD_FIRST_MOMENTS:
    return part->moments[0];
  case PD_SECOND_MOMENTS:
    break;
  }
  return part->moments[1];
}

/* By way of `piece`, since weights may lie on a device. */
static void load_part(pd_engine *engine, int real_bytes, const pd_safetensors *file, const pd_tensor *tensor,
                      const pd_part *part, char *to, char *piece) {
  const runs r = runs_of(&part->local);
  int64_t filled = 0; /* elements in `piece`; those before element `at` are on the device */
  for (int64_t at = 0; at < part->elements; at += filled, filled = 0) {
    while (filled < PIECE && at + filled < part->elements) {
      const int64_t inside = (at + filled) % r.length, rest = r.length - inside;
      const int64_t n = rest < PIECE - filled ? rest : PIECE - filled;
      pd_safetensors_read(file, tensor, run_start(&r, (at + filled) / r.length) + inside, n, real_bytes,
                          piece + filled * real_bytes);
      filled += n;
    }
    pd_engine_write(engine, to + at * real_bytes, piece, filled * real_bytes);
  }
}

void pd_weights_load(const pd_program *program, pd_engine *engine, pd_weights_kind kind, const char *path) {
  pd_problem problem;
  pd_safetensors file;
  if (!pd_safetensors_open(&file, path, &problem)) pd_fail(PD_EXIT_CHECKPOINT, "%s", problem.text);
  names list = names_new(program, kind != PD_WEIGHTS);
  check_names(&list, &file);
  for (int64_t i = 0; i < list.count; i++) { /* all of the file is judged before any weight changes */
    check_tensor(&program->params[list.at[i].param], pd_safetensors_find(&file, list.at[i].name), &file);
  }
  char *piece = malloc((size_t)(PIECE * pd_wide_bytes(program)));
  if (piece == NULL) pd_fail(PD_EXIT_MEMORY, "not enough memory to load `%s`", path);
  for (int64_t i = 0; i < list.count; i++) {
    const pd_tensor *tensor = pd_safetensors_find(&file, list.at[i].name);
    const pd_part part = pd_engine_part(engine, list.at[i].param, list.at[i].trip);
    char *to = part_at(&part, kind);
    if (to != NULL) load_part(engine, pd_wide_bytes(program), &file, tensor, &part, to, piece);
  }
  free(piece);
  names_free(&list);
  pd_safetensors_close(&file);
}

/* ---- saving ---- */

/* What a rank tells rank 0 about its part of a tensor. */
typedef struct offer {
  int64_t elements; /* 0: another rank speaks for this part */
  pd_local local;
} offer;

/* Elements at .. at+n-1 of a part, in its own order, to their places in the file. */
static void put_piece(pd_safetensors_writer *writer, int64_t tensor, const runs *r, int64_t at, int64_t n,
                      const char *from) {
  pd_problem problem;
  while (n > 0) {
    const int64_t inside = at % r->length, m = n < r->length - inside ? n : r->length - inside;
    if (!pd_safetensors_put(writer, tensor, run_start(r, at / r->length) + inside, m, from, &problem)) {
      pd_safetensors_discard(writer);
      pd_fail(PD_EXIT_CHECKPOINT, "%s", problem.text);
    }
    from += m * writer->real_bytes;
    at += m, n -= m;
  }
}

static void gather(pd_engine *engine, pd_safetensors_writer *writer, int64_t tensor, const pd_world *world,
                   const offer *offers, const char *own, char *piece) {
  for (int rank = 0; rank < world->size; rank++) {
    const runs r = runs_of(&offers[rank].local);
    for (int64_t at = 0; at < offers[rank].elements; at += PIECE) {
      const int64_t n = offers[rank].elements - at < PIECE ? offers[rank].elements - at : PIECE;
      if (rank != 0)
        MPI_Recv(piece, (int)(n * writer->real_bytes), MPI_BYTE, rank, 0, world->all, MPI_STATUS_IGNORE);
      else
        pd_engine_read(engine, piece, own + at * writer->real_bytes, n * writer->real_bytes);
      put_piece(writer, tensor, &r, at, n, piece);
    }
  }
}

static void send_part(pd_engine *engine, const pd_world *world, const offer *mine, const char *own, int real_bytes,
                      char *piece) {
  for (int64_t at = 0; at < mine->elements; at += PIECE) {
    const int64_t n = mine->elements - at < PIECE ? mine->elements - at : PIECE;
    pd_engine_read(engine, piece, own + at * real_bytes, n * real_bytes);
    MPI_Send(piece, (int)(n * real_bytes), MPI_BYTE, 0, 0, world->all);
  }
}

static pd_tensor_shape *shapes_of(const pd_program *program, const names *list, const char *path) {
  pd_tensor_shape *shapes = calloc((size_t)list->count + 1, sizeof *shapes);
  if (shapes == NULL) pd_fail(PD_EXIT_MEMORY, "not enough memory to save `%s`", path);
  for (int64_t i = 0; i < list->count; i++) {
    const pd_param_info *param = &program->params[list->at[i].param];
    shapes[i] = (pd_tensor_shape){.name = list->at[i].name, .rank = param->rank};
    memcpy(shapes[i].shape, param->shape, sizeof shapes[i].shape);
  }
  return shapes;
}

static void create(pd_safetensors_writer *writer, const pd_program *program, const names *list, const char *path) {
  pd_problem problem;
  pd_tensor_shape *shapes = shapes_of(program, list, path);
  if (!pd_safetensors_create(writer, path, shapes, list->count, pd_wide_bytes(program), &problem)) {
    pd_fail(PD_EXIT_CHECKPOINT, "%s", problem.text);
  }
  free(shapes);
}

void pd_weights_save(const pd_program *program, pd_engine *engine, const pd_world *world, pd_weights_kind kind,
                     const char *path) {
  pd_problem problem;
  pd_safetensors_writer writer = {.file = -1};
  names list = names_new(program, kind != PD_WEIGHTS);
  const bool writes = world->rank == 0;
  offer *offers = writes ? calloc((size_t)world->size, sizeof *offers) : NULL;
  char *piece = malloc((size_t)(PIECE * pd_wide_bytes(program)));
  if ((writes && offers == NULL) || piece == NULL) pd_fail(PD_EXIT_MEMORY, "not enough memory to save `%s`", path);
  if (writes) create(&writer, program, &list, path);
  for (int64_t i = 0; i < list.count; i++) {
    const pd_part part = pd_engine_part(engine, list.at[i].param, list.at[i].trip);
    const char *own = part_at(&part, kind);
    offer mine = {.elements = part.owner && own != NULL ? part.elements : 0, .local = part.local};
    pd_watch_show("saving `%s`", list.at[i].name);
    MPI_Gather(&mine, (int)sizeof mine, MPI_BYTE, offers, (int)sizeof mine, MPI_BYTE, 0, world->all);
    if (writes)
      gather(engine, &writer, i, world, offers, own, piece);
    else
      send_part(engine, world, &mine, own, pd_wide_bytes(program), piece);
  }
  if (writes && !pd_safetensors_finish(&writer, &problem)) pd_fail(PD_EXIT_CHECKPOINT, "%s", problem.text);
  free(piece);
  free(offers);
  names_free(&list);
  MPI_Barrier(world->all); /* when a rank goes on, the file is there */
}

static void write_part(pd_engine *engine, pd_safetensors_writer *writer, int64_t tensor, const pd_part *part,
                       const char *own, char *piece) {
  const runs r = runs_of(&part->local);
  for (int64_t at = 0; at < part->elements; at += PIECE) {
    const int64_t n = part->elements - at < PIECE ? part->elements - at : PIECE;
    pd_engine_read(engine, piece, own + at * writer->real_bytes, n * writer->real_bytes);
    put_piece(writer, tensor, &r, at, n, piece);
  }
}

void pd_weights_write(const pd_program *program, pd_engine *engine, const pd_world *world, pd_weights_kind kind,
                      const char *path) {
  pd_problem problem;
  pd_safetensors_writer writer;
  names list = names_new(program, kind != PD_WEIGHTS);
  pd_tensor_shape *shapes = shapes_of(program, &list, path);
  char *piece = malloc((size_t)(PIECE * pd_wide_bytes(program)));
  if (piece == NULL) pd_fail(PD_EXIT_MEMORY, "not enough memory to save `%s`", path);
  int64_t counts[2] = {0, 0}; /* elements that were put; that there are */
  for (int turn = 0; turn < 2; turn++) {
    if (turn == 1) MPI_Barrier(world->all); /* now the file is there */
    if ((world->rank == 0) != (turn == 0)) continue;
    if (!pd_safetensors_share(&writer, path, shapes, list.count, pd_wide_bytes(program), turn == 0, &problem))
      pd_fail(PD_EXIT_CHECKPOINT, "%s", problem.text);
  }
  const int64_t all = writer.begin[list.count];
  for (int64_t i = 0; i < list.count; i++) {
    const pd_part part = pd_engine_part(engine, list.at[i].param, list.at[i].trip);
    const char *own = part_at(&part, kind);
    pd_watch_show("saving `%s`", list.at[i].name);
    if (part.owner && own != NULL) write_part(engine, &writer, i, &part, own, piece);
  }
  if (!pd_safetensors_part_done(&writer, &counts[0], &problem)) pd_fail(PD_EXIT_CHECKPOINT, "%s", problem.text);
  MPI_Allreduce(&counts[0], &counts[1], 1, MPI_INT64_T, MPI_SUM, world->all);
  if (counts[1] != all) {
    pd_fail(PD_EXIT_CHECKPOINT, "weights `%s`: %" PRId64 " of %" PRId64 " elements were written", path, counts[1], all);
  }
  free(piece);
  free(shapes);
  names_free(&list);
}

void pd_weights_check_target(const pd_world *world, const char *path) {
  if (path == NULL || world->rank != 0) return;
  struct stat status; /* the file is renamed into place: a device or a directory would be replaced or in the way */
  if (stat(path, &status) == 0 && !S_ISREG(status.st_mode)) {
    pd_fail(PD_EXIT_CHECKPOINT, "weights `%s`: it is there and is no regular file; choose another name", path);
  }
  char *directory = strdup(path);
  if (directory == NULL) pd_fail(PD_EXIT_MEMORY, "not enough memory");
  char *slash = strrchr(directory, '/');
  if (slash != NULL) slash[slash == directory ? 1 : 0] = 0;
  const char *where = slash != NULL ? directory : ".";
  if (access(where, W_OK | X_OK) != 0) {
    pd_fail(PD_EXIT_CHECKPOINT, "weights `%s`: cannot write in `%s`: %s", path, where, strerror(errno));
  }
  free(directory);
}
