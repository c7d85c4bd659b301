/* Data sets: which files feed which model input, which sample a step reads, and rows in the engine's form.
 *
 * Assumes the names and shapes of the program's inputs; opens files through data_array.c. No state but the open files:
 * any rank can ask for any row at any time and gets the same answer.
 */
#include "data.h"

#include "random.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- the data section ---- */

const char *pd_data_key(const pd_program *program, const char *key) {
  for (int i = 0; i < program->section_data_count; i++) {
    if (strcmp(program->section_data[i].key, key) == 0) return program->section_data[i].value;
  }
  return NULL;
}

static int input_named(const pd_program *program, const char *name, size_t length) {
  for (int d = 0; d < program->data_count; d++) {
    if (strlen(program->data[d].name) == length && strncmp(program->data[d].name, name, length) == 0) return d;
  }
  return PD_NONE;
}

/* "train.x" for split "train": the rest, or NULL. */
static const char *after_split(const char *key, const char *split) {
  const size_t n = strlen(split);
  return strncmp(key, split, n) == 0 && key[n] == '.' ? key + n + 1 : NULL;
}

bool pd_data_given(const pd_program *program, const char *split, const char *command) {
  if (command != NULL || pd_data_key(program, split) != NULL) return true;
  for (int i = 0; i < program->section_data_count; i++) {
    if (after_split(program->section_data[i].key, split) != NULL) return true;
  }
  return false;
}

/* Inputs that nothing reads need no data. */
static bool is_read(const pd_program *program, int input) {
  for (int s = 0; s < program->segment_count; s++) {
    if (program->segments[s].uses_data[input]) return true;
  }
  for (int n = 0; n < program->normaliser_count; n++) {
    if (program->normalisers[n] == input) return true;
  }
  return false;
}

/* ---- opening ---- */

static pd_bytes *open_file(pd_data *data, const char *path, pd_problem *problem) {
  pd_bytes *file = &data->files[data->file_count++]; /* room for one per input and one stream */
  return pd_bytes_open(file, path, problem) ? file : NULL;
}

static void shape_text(const int64_t *shape, int rank, char *out, size_t size) {
  size_t n = (size_t)snprintf(out, size, "[");
  for (int i = 0; i < rank && n < size; i++) {
    n += (size_t)snprintf(out + n, size - n, "%s%" PRId64, i > 0 ? ", " : "", shape[i]);
  }
  if (n < size) snprintf(out + n, size - n, "]");
}

/* Whether a sample of the file is a sample of the model: the same shape but for axes of size 1, or flattened. */
static bool same_sample(const pd_array *array, const pd_data_info *info) {
  int64_t elements = 1;
  int i = 1, j = 0;
  for (int k = 1; k < array->rank; k++) {
    if (array->shape[k] != 0 && elements > INT64_MAX / array->shape[k]) return false;
    elements *= array->shape[k];
  }
  if (info->rank == 1 && elements == info->shape[0]) return true;
  for (;;) {
    while (i < array->rank && array->shape[i] == 1) i++;
    while (j < info->rank && info->shape[j] == 1) j++;
    if (i == array->rank || j == info->rank) return i == array->rank && j == info->rank;
    if (array->shape[i++] != info->shape[j++]) return false;
  }
}

static int64_t sample_elements(const pd_data_info *info) {
  int64_t n = 1;
  for (int i = 0; i < info->rank; i++) n *= info->shape[i];
  return n;
}

static bool read_scale(const pd_program *program, const pd_array *array, double *scale, pd_problem *problem) {
  const char *text = pd_data_key(program, "scale");
  *scale = array->idx && array->type == PD_U8 ? 1 / 255.0 : 1;
  if (text == NULL) return true;
  char *end = NULL;
  *scale = strtod(text, &end);
  return (*end == 0 && end != text && isfinite(*scale)) || pd_problem_say(problem, "data: scale=%s is no number", text);
}

static bool open_array(pd_data *data, int input, const char *path, pd_problem *problem) {
  const pd_data_info *info = &data->program->data[input];
  pd_bytes *file = open_file(data, path, problem);
  pd_array array;
  char has[256], wants[256];
  if (file == NULL || !pd_array_open(file, &array, problem)) return false;
  if (info->is_integer && !pd_element_whole(array.type)) {
    return pd_problem_say(problem, "data `%s`: holds reals, but input `%s` takes whole numbers", path, info->name);
  }
  if (!same_sample(&array, info)) {
    shape_text(array.shape + 1, array.rank - 1, has, sizeof has);
    shape_text(info->shape, info->rank, wants, sizeof wants);
    return pd_problem_say(problem, "data `%s`: a sample has shape %s, but a sample of input `%s` has %s", path, has,
                          info->name, wants);
  }
  double scale;
  if (!read_scale(data->program, &array, &scale, problem)) return false;
  data->sources[input] = (pd_source){.file = file,
                                     .type = array.type,
                                     .big_endian = array.big_endian,
                                     .first = array.first,
                                     .stride = sample_elements(info),
                                     .scale = pd_element_whole(array.type) ? scale : 1};
  if (data->samples >= 0 && data->samples != array.shape[0]) {
    return pd_problem_say(problem, "data `%s`: holds %" PRId64 " samples, but `%s` holds %" PRId64, path,
                          array.shape[0], data->files[0].path, data->samples);
  }
  data->samples = array.shape[0];
  return true;
}

/* A stream of tokens: the first input reads windows of it, the second the same windows one token further on. */
static bool open_stream(pd_data *data, pd_bytes *file, pd_element type, pd_problem *problem) {
  const pd_program *program = data->program;
  const int64_t seq = program->data_count > 0 && program->data[0].rank == 1 ? program->data[0].shape[0] : 0;
  for (int d = 0; d < program->data_count; d++) {
    const pd_data_info *info = &program->data[d];
    if (seq == 0 || d > 1 || !info->is_integer || info->rank != 1 || info->shape[0] != seq) {
      return pd_problem_say(
          problem,
          "data `%s`: a stream of tokens feeds models of one or two whole-number inputs [batch, seq], "
          "which input `%s` does not fit; name an array for every input: %s=FILE",
          file->path, info->name, info->name);
    }
    data->sources[d] = (pd_source){
        .file = file, .type = type, .first = d * (int64_t)pd_element_bytes(type), .stride = seq, .scale = 1};
  }
  const int64_t width = pd_element_bytes(type), tokens = file->size / width;
  if (file->size % width != 0) {
    return pd_problem_say(
        problem, "data `%s`: byte %" PRId64 ": expected the rest of a token of %" PRId64 " bytes, but the file ends",
        file->path, file->size, width);
  }
  if (tokens < seq + 1) {
    return pd_problem_say(problem, "data `%s`: holds %" PRId64 " tokens, but one sample takes seq + 1 = %" PRId64,
                          file->path, tokens, seq + 1);
  }
  data->samples = (tokens - 1) / seq;
  data->tokens = true;
  return true;
}

static bool refuse_compressed(const char *path, pd_problem *problem) {
  return pd_problem_say(problem,
                        "data `%s`: is compressed by gzip, which only arrays may be: a stream of tokens is read in "
                        "place; unpack it first (gunzip)",
                        path);
}

static bool is_directory(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool open_directory(pd_data *data, const char *path, pd_problem *problem) {
  static const char *const endings[] = {".npy", ".idx", ".npy.gz", ".idx.gz"};
  for (int d = 0; d < data->program->data_count; d++) {
    if (!is_read(data->program, d)) continue;
    char file[4096];
    struct stat info;
    size_t e = 0;
    do snprintf(file, sizeof file, "%s/%s%s", path, data->program->data[d].name, endings[e]);
    while (stat(file, &info) != 0 && ++e < 4);
    if (e == 4) {
      return pd_problem_say(problem, "data `%s`: holds no `%s.npy` for input `%s` (nor .idx, .npy.gz, .idx.gz)", path,
                            data->program->data[d].name, data->program->data[d].name);
    }
    if (!open_array(data, d, file, problem)) return false;
  }
  return true;
}

static bool open_single(pd_data *data, const char *path, pd_problem *problem) {
  static const struct {
    const char *name;
    pd_element type;
  } streams[] = {{"text", PD_U8}, {"u16", PD_U16}, {"u32", PD_U32}};
  const char *format = pd_data_key(data->program, "format");
  if (is_directory(path)) return open_directory(data, path, problem);
  if (format != NULL) {
    for (size_t i = 0; i < 3; i++) {
      if (strcmp(format, streams[i].name) != 0) continue;
      pd_bytes *file = open_file(data, path, problem);
      /* two bytes of other tokens may be anything */
      if (file != NULL && i == 0 && pd_array_is_compressed_other(file)) return refuse_compressed(path, problem);
      return file != NULL && open_stream(data, file, streams[i].type, problem);
    }
    if (strcmp(format, "npy") != 0 && strcmp(format, "idx") != 0) {
      return pd_problem_say(problem, "data: format=%s: must be text, u16, u32, npy or idx", format);
    }
  }
  pd_bytes *file = open_file(data, path, problem);
  if (file == NULL) return false;
  if (pd_array_is_compressed_other(file)) return refuse_compressed(path, problem);
  if (format == NULL && !pd_array_is(file)) return open_stream(data, file, PD_U8, problem);
  if (data->program->data_count != 1) {
    return pd_problem_say(problem,
                          "data `%s`: one array, but the model has %d inputs: give a directory or input=file,…", path,
                          data->program->data_count);
  }
  pd_bytes_close(file);
  data->file_count--;
  return open_array(data, 0, path, problem);
}

/* One `input=path`; `length` of the path. */
static bool open_named(pd_data *data, const char *name, size_t name_length, const char *path, size_t length,
                       pd_problem *problem) {
  const int input = input_named(data->program, name, name_length);
  if (input == PD_NONE) {
    char names[512] = "";
    for (int d = 0; d < data->program->data_count; d++) {
      const size_t n = strlen(names);
      snprintf(names + n, sizeof names - n, "%s`%s`", d > 0 ? ", " : "", data->program->data[d].name);
    }
    return pd_problem_say(problem, "data: the model has no input `%.*s`, only %s",
                          (int)(name_length < 100 ? name_length : 100), name, names);
  }
  if (data->sources[input].file != NULL) {
    return pd_problem_say(problem, "data: input `%s` is given twice", data->program->data[input].name);
  }
  char copy[4096];
  if (length >= sizeof copy) return pd_problem_say(problem, "data: the path of input `%.100s` is too long", name);
  snprintf(copy, sizeof copy, "%.*s", (int)length, path);
  return open_array(data, input, copy, problem);
}

static bool open_command(pd_data *data, const char *command, pd_problem *problem) {
  if (strchr(command, '=') == NULL) return open_single(data, command, problem);
  for (const char *part = command; *part != 0;) {
    const size_t length = strcspn(part, ",");
    const char *equals = memchr(part, '=', length);
    if (equals == NULL) {
      return pd_problem_say(problem, "data: `%.*s` must be input=file", (int)(length < 200 ? length : 200), part);
    }
    const size_t name = (size_t)(equals - part);
    if (!open_named(data, part, name, equals + 1, length - name - 1, problem)) return false;
    part += length + (part[length] == ',');
  }
  return true;
}

static bool open_section(pd_data *data, const char *split, pd_problem *problem) {
  const pd_program *program = data->program;
  const char *path = pd_data_key(program, split);
  for (int i = 0; i < program->section_data_count; i++) {
    const char *name = after_split(program->section_data[i].key, split), *file = program->section_data[i].value;
    if (name == NULL) continue;
    if (path != NULL) return pd_problem_say(problem, "data: `%s` and `%s.%s` are both given", split, split, name);
    if (!open_named(data, name, strlen(name), file, strlen(file), problem)) return false;
  }
  return path == NULL || open_single(data, path, problem);
}

static bool read_order(pd_data *data, const char *split, int64_t seed, pd_problem *problem) {
  const char *shuffle = pd_data_key(data->program, "shuffle"), *own = pd_data_key(data->program, "seed");
  const bool off = shuffle != NULL && (strcmp(shuffle, "off") == 0 || strcmp(shuffle, "false") == 0);
  if (shuffle != NULL && !off && strcmp(shuffle, "on") != 0 && strcmp(shuffle, "true") != 0) {
    return pd_problem_say(problem, "data: shuffle=%s: must be on or off", shuffle);
  }
  data->shuffle = !off && strcmp(split, "train") == 0;
  data->seed = (uint64_t)data->program->seed;
  if (own != NULL) {
    char *end = NULL;
    data->seed = strtoull(own, &end, 10);
    if (*own < '0' || *own > '9' || *end != 0)
      data->seed = (uint64_t)data->program->seed; /* spelled 1K: the compiler's */
  }
  if (seed >= 0) data->seed = (uint64_t)seed;
  return true;
}

bool pd_data_open(pd_data *data, const pd_program *program, const char *split, const char *command, int64_t seed,
                  pd_problem *problem) {
  const size_t inputs = (size_t)program->data_count;
  *data = (pd_data){.program = program, .samples = -1};
  data->sources = calloc(inputs + 1, sizeof *data->sources);
  data->files = calloc(inputs + 2, sizeof *data->files);
  if (data->sources == NULL || data->files == NULL) return pd_problem_say(problem, "data: not enough memory");
  bool good = read_order(data, split, seed, problem) &&
              (command != NULL ? open_command(data, command, problem) : open_section(data, split, problem));
  for (int d = 0; d < program->data_count && good; d++) {
    if (data->sources[d].file != NULL || !is_read(program, d)) continue;
    good = pd_problem_say(problem, "data: input `%s` of the model is given no %s data", program->data[d].name, split);
  }
  if (good && data->samples < 1) good = pd_problem_say(problem, "data: the %s data hold no sample", split);
  if (!good) pd_data_close(data);
  return good;
}

void pd_data_close(pd_data *data) {
  for (int i = 0; i < data->file_count; i++) pd_bytes_close(&data->files[i]);
  free(data->files);
  free(data->sources);
  *data = (pd_data){.program = NULL};
}

/* ---- order ---- */

int64_t pd_data_steps_per_epoch(const pd_data *data) {
  return data->samples / data->program->batch;
}

int64_t pd_data_sample(const pd_data *data, uint64_t step, int64_t index) {
  const uint64_t steps = (uint64_t)pd_data_steps_per_epoch(data), epoch = step / steps;
  const uint64_t at = step % steps * (uint64_t)data->program->batch + (uint64_t)index;
  if (!data->shuffle) return (int64_t)at;
  return (int64_t)pd_permute(data->seed, pd_purpose("data order") + epoch, (uint64_t)data->samples, at);
}

/* ---- rows ---- */

static const unsigned char *sample_at(const pd_source *source, int64_t sample) {
  return source->file->at + source->first + sample * source->stride * pd_element_bytes(source->type);
}

static bool out_of_range(const pd_data *data, int input, int64_t sample, int64_t index, int64_t value,
                         pd_problem *problem) {
  const pd_source *source = &data->sources[input];
  const pd_data_info *info = &data->program->data[input];
  const int64_t position = sample * source->stride + index;
  const int64_t byte = source->first + position * pd_element_bytes(source->type);
  char rule[96];
  if (info->limit > 0 && info->is_target) {
    snprintf(rule, sizeof rule, "0 .. %" PRId64 " (limit %" PRId64 ") or %" PRId64, info->limit - 1, info->limit,
             info->ignored);
  } else if (info->limit > 0) {
    snprintf(rule, sizeof rule, "0 .. %" PRId64 " (limit %" PRId64 ")", info->limit - 1, info->limit);
  } else {
    snprintf(rule, sizeof rule, "a whole number of 32 bits");
  }
  return pd_problem_say(problem,
                        "data `%s`: id %" PRId64 " at position %" PRId64 " (byte %" PRId64 ", sample %" PRId64
                        ") of input `%s`: must be %s",
                        source->file->path, value, data->tokens ? position + input : position, byte, sample, info->name,
                        rule);
}

/* A sample as outer x axis x inner elements, of which this rank has `size` positions of the axis from `first` on. */
typedef struct part {
  int64_t outer, axis, inner, first, size;
} part;

static part part_of(const pd_program *program, const pd_data_info *info, int tp_rank) {
  part p = {.outer = 1, .axis = 1, .inner = 1, .first = 0, .size = 1};
  if (info->split_axis == PD_NONE) {
    p.inner = sample_elements(info);
    return p;
  }
  for (int i = 0; i < info->rank; i++) {
    if (i < info->split_axis)
      p.outer *= info->shape[i];
    else if (i > info->split_axis)
      p.inner *= info->shape[i];
    else
      p.axis = info->shape[i];
  }
  p.size = p.axis / program->tp;
  p.first = p.size * tp_rank;
  return p;
}

static bool whole_row(const pd_data *data, int input, int64_t sample, const part *p, int32_t *out, int64_t *counted,
                      pd_problem *problem) {
  const pd_source *source = &data->sources[input];
  const pd_data_info *info = &data->program->data[input];
  const unsigned char *at = sample_at(source, sample);
  const int bytes = pd_element_bytes(source->type);
  const int64_t low = info->limit > 0 ? 0 : INT32_MIN, high = info->limit > 0 ? info->limit - 1 : INT32_MAX;
  const int64_t from = p->first * p->inner, to = from + p->size * p->inner, row = p->axis * p->inner;
  int64_t index = 0;
  for (int64_t o = 0; o < p->outer; o++) {
    for (int64_t i = 0; i < row; i++, index++, at += bytes) {
      const int64_t value = pd_element_whole_at(source->type, source->big_endian, at);
      const bool ignored = info->is_target && value == info->ignored;
      if (!ignored && (value < low || value > high)) return out_of_range(data, input, sample, index, value, problem);
      *counted += !ignored;
      if (out != NULL && i >= from && i < to) *out++ = ignored ? PD_IGNORE : (int32_t)value;
    }
  }
  return true;
}

#define REAL_RUN(R)                                                                                                    \
  static void real_run_##R(const pd_source *source, const unsigned char *at, int64_t n, R *out) {                      \
    if (source->type == PD_U8) {                                                                                       \
      for (int64_t i = 0; i < n; i++) out[i] = (R)(at[i] * source->scale);                                             \
    } else if (source->type == (sizeof(R) == 4 ? PD_F32 : PD_F64) && !source->big_endian) {                            \
      memcpy(out, at, (size_t)n * sizeof(R));                                                                          \
    } else {                                                                                                           \
      const int bytes = pd_element_bytes(source->type);                                                                \
      for (int64_t i = 0; i < n; i++) {                                                                                \
        out[i] = (R)(pd_element_real_at(source->type, source->big_endian, at + i * bytes) * source->scale);            \
      }                                                                                                                \
    }                                                                                                                  \
  }
REAL_RUN(float)
REAL_RUN(double)

/* To the nearest, ties to even; a NaN stays one. */
static uint16_t to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if (x != x) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void real_run_bf16(const pd_source *source, const unsigned char *at, int64_t n, uint16_t *out) {
  const int bytes = pd_element_bytes(source->type);
  for (int64_t i = 0; i < n; i++) {
    float x;
    real_run_float(source, at + i * bytes, 1, &x);
    out[i] = to_bf16(x);
  }
}

static void real_row(const pd_data *data, int input, int64_t sample, const part *p, void *out) {
  const pd_source *source = &data->sources[input];
  const unsigned char *at = sample_at(source, sample);
  const int64_t run = p->size * p->inner;
  for (int64_t o = 0; o < p->outer; o++) {
    const unsigned char *from = at + (o * p->axis + p->first) * p->inner * pd_element_bytes(source->type);
    if (data->program->real_bytes == 2)
      real_run_bf16(source, from, run, (uint16_t *)out + o * run);
    else if (data->program->real_bytes == 4)
      real_run_float(source, from, run, (float *)out + o * run);
    else
      real_run_double(source, from, run, (double *)out + o * run);
  }
}

bool pd_data_row(const pd_data *data, int input, int64_t sample, int tp_rank, void *out, int64_t *counted,
                 pd_problem *problem) {
  const pd_data_info *info = &data->program->data[input];
  *counted = 0;
  if (data->sources[input].file == NULL) return true;
  const part p = part_of(data->program, info, tp_rank);
  if (info->is_integer) return whole_row(data, input, sample, &p, out, counted, problem);
  if (out != NULL) real_row(data, input, sample, &p, out);
  *counted = sample_elements(info);
  return true;
}
