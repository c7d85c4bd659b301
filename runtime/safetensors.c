/* safetensors, to the byte: u64 length N, N bytes of JSON, packed little-endian data.
 *
 * The reader compares every figure with the file before it uses it. A quick scan of the header bounds depth, names and
 * the number of tensors; then jansson parses it (rejecting duplicate keys, bad UTF-8, NUL, numbers beyond 64 bits);
 * then every entry is checked by itself, and all of them together must tile the data: no gap, no overlap, no byte left
 * over. Messages name the file, the tensor and the reason.
 *
 * The writer fills a temporary file beside the target and renames it when all of it is on disk.
 */
#include "safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors data are little-endian and are read in place"
#endif

/* ---- dtypes ---- */

enum { F64, F32, F16, BF16 }; /* the readable ones come first */
static const struct {
  const char *name;
  int bytes;
} dtypes[] = {{"F64", 8}, {"F32", 4}, {"F16", 2},     {"BF16", 2},    {"I64", 8}, {"U64", 8}, {"I32", 4}, {"U32", 4},
              {"I16", 2}, {"U16", 2}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I8", 1},  {"U8", 1},  {"BOOL", 1}};
#define DTYPES (int)(sizeof dtypes / sizeof dtypes[0])

const char *pd_safetensors_type(const pd_tensor *tensor) {
  return dtypes[tensor->type].name;
}

bool pd_safetensors_is_real(const pd_tensor *tensor) {
  return tensor->type <= BF16;
}

/* ---- problems ---- */

/* A name fit for a terminal: short, control bytes replaced. */
typedef struct shown {
  char text[96];
} shown;

static shown show(const char *name, size_t length) {
  shown s;
  size_t n = 0;
  for (; n < length && n < 64; n++) s.text[n] = (unsigned char)name[n] < 0x20 || name[n] == 0x7f ? '?' : name[n];
  while (n > 0 && length > 64 && ((unsigned char)s.text[n - 1] & 0x80) != 0) n--; /* no half character at the cut */
  snprintf(s.text + n, sizeof s.text - n, "%s", length > 64 ? "..." : "");
  return s;
}

static bool wrong_file(const pd_safetensors *file, pd_problem *problem, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static bool wrong_file(const pd_safetensors *file, pd_problem *problem, const char *format, ...) {
  char why[512];
  va_list list;
  va_start(list, format);
  vsnprintf(why, sizeof why, format, list);
  va_end(list);
  return pd_problem_say(problem, "weights `%s`: %s", file->path, why);
}

static bool wrong_tensor(const pd_safetensors *file, const char *name, pd_problem *problem, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static bool wrong_tensor(const pd_safetensors *file, const char *name, pd_problem *problem, const char *format, ...) {
  char why[512];
  va_list list;
  va_start(list, format);
  vsnprintf(why, sizeof why, format, list);
  va_end(list);
  return pd_problem_say(problem, "weights `%s`: tensor `%s`: %s", file->path, show(name, strlen(name)).text, why);
}

/* ---- the quick scan ---- */

/* The shape of the header without its meaning: where keys of the outermost object are, how deep it goes. */
typedef struct scan {
  const char *key; /* the last tensor name seen, raw */
  size_t key_length;
  int64_t keys;
} scan;

/* Scans the header until byte `stop`; false with the problem said if a limit is passed. Malformed JSON is left to
 * jansson. */
static bool scan_header(const pd_safetensors *file, const char *text, size_t stop, scan *out, pd_problem *problem) {
  const size_t length = (size_t)(file->data - 8);
  int depth = 0;
  *out = (scan){.key = "", .key_length = 0};
  bool key_next = false;
  for (size_t i = 0; i < stop; i++) {
    const char c = text[i];
    if (c == '{' || c == '[') {
      if (++depth > 3) {
        return wrong_file(file, problem, "tensor `%s`: byte %zu: nested deeper than a header is",
                          show(out->key, out->key_length).text, i + 8);
      }
      key_next = c == '{';
    } else if (c == '}' || c == ']') {
      depth--;
    } else if (c == ',') {
      key_next = depth == 1;
    } else if (c == '"') {
      const size_t start = ++i;
      while (i < length && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
      if (i > length) i = length;
      if (depth != 1 || !key_next) continue;
      const bool metadata = i - start == 12 && memcmp(text + start, "__metadata__", 12) == 0;
      *out = (scan){.key = text + start, .key_length = i - start, .keys = out->keys + !metadata};
      key_next = false;
      if (out->key_length > PD_SAFETENSORS_NAME) {
        return wrong_file(file, problem, "tensor `%s`: its name has %zu bytes, at most %d are read",
                          show(out->key, out->key_length).text, out->key_length, PD_SAFETENSORS_NAME);
      }
      if (out->keys > PD_SAFETENSORS_TENSORS) {
        return wrong_file(file, problem, "tensor `%s`: holds more than %d tensors",
                          show(out->key, out->key_length).text, PD_SAFETENSORS_TENSORS);
      }
    }
  }
  return true;
}

/* ---- entries ---- */

static bool read_dtype(const pd_safetensors *file, pd_tensor *tensor, json_t *entry, pd_problem *problem) {
  const char *type = json_string_value(json_object_get(entry, "dtype"));
  if (type == NULL) return wrong_tensor(file, tensor->name, problem, "`dtype` must be a string");
  while (tensor->type < DTYPES && strcmp(dtypes[tensor->type].name, type) != 0) tensor->type++;
  if (tensor->type < DTYPES) return true;
  return wrong_tensor(file, tensor->name, problem, "unknown dtype `%s`", show(type, strlen(type)).text);
}

static bool read_shape(const pd_safetensors *file, pd_tensor *tensor, json_t *entry, pd_problem *problem) {
  json_t *shape = json_object_get(entry, "shape");
  if (!json_is_array(shape)) return wrong_tensor(file, tensor->name, problem, "`shape` must be an array");
  if (json_array_size(shape) > PD_MAX_RANK) {
    return wrong_tensor(file, tensor->name, problem, "%zu dimensions, at most %d are read", json_array_size(shape),
                        PD_MAX_RANK);
  }
  tensor->rank = (int)json_array_size(shape);
  tensor->elements = 1;
  for (int i = 0; i < tensor->rank; i++) {
    json_t *size = json_array_get(shape, (size_t)i);
    if (!json_is_integer(size) || json_integer_value(size) < 0) {
      return wrong_tensor(file, tensor->name, problem, "`shape[%d]` must be a whole number, 0 or more", i);
    }
    tensor->shape[i] = json_integer_value(size);
    if (__builtin_mul_overflow(tensor->elements, tensor->shape[i], &tensor->elements)) {
      return wrong_tensor(file, tensor->name, problem, "the product of its shape does not fit 64 bits");
    }
  }
  return true;
}

static bool read_span(const pd_safetensors *file, pd_tensor *tensor, json_t *entry, pd_problem *problem) {
  json_t *span = json_object_get(entry, "data_offsets");
  if (!json_is_array(span) || json_array_size(span) != 2) {
    return wrong_tensor(file, tensor->name, problem, "`data_offsets` must be an array of two numbers");
  }
  json_t *begin = json_array_get(span, 0), *end = json_array_get(span, 1);
  if (!json_is_integer(begin) || !json_is_integer(end) || json_integer_value(begin) < 0 ||
      json_integer_value(end) < 0) {
    return wrong_tensor(file, tensor->name, problem, "`data_offsets` must be whole numbers, 0 or more");
  }
  tensor->begin = json_integer_value(begin);
  tensor->end = json_integer_value(end);
  const int64_t there = file->size - file->data;
  int64_t bytes;
  if (tensor->begin > tensor->end) {
    return wrong_tensor(file, tensor->name, problem, "begins at %" PRId64 ", after its end %" PRId64, tensor->begin,
                        tensor->end);
  }
  if (tensor->end > there) {
    return wrong_tensor(file, tensor->name, problem,
                        "ends at %" PRId64 ", but the file holds %" PRId64 " bytes of data", tensor->end, there);
  }
  if (__builtin_mul_overflow(tensor->elements, (int64_t)dtypes[tensor->type].bytes, &bytes)) {
    return wrong_tensor(file, tensor->name, problem, "its shape times %s does not fit 64 bits",
                        dtypes[tensor->type].name);
  }
  if (bytes == tensor->end - tensor->begin) return true;
  return wrong_tensor(file, tensor->name, problem, "its shape times %s makes %" PRId64 " bytes, its span has %" PRId64,
                      dtypes[tensor->type].name, bytes, tensor->end - tensor->begin);
}

static bool read_metadata(const pd_safetensors *file, json_t *metadata, pd_problem *problem) {
  const char *key;
  json_t *value;
  if (!json_is_object(metadata)) return wrong_tensor(file, "__metadata__", problem, "must be an object");
  json_object_foreach(metadata, key, value) {
    if (!json_is_string(value)) {
      return wrong_tensor(file, "__metadata__", problem, "`%s` must be a string", show(key, strlen(key)).text);
    }
  }
  return true;
}

static bool read_entry(pd_safetensors *file, const char *name, json_t *entry, pd_problem *problem) {
  if (strcmp(name, "__metadata__") == 0) return read_metadata(file, entry, problem);
  if (file->count == PD_SAFETENSORS_TENSORS) {
    return wrong_tensor(file, name, problem, "holds more than %d tensors", PD_SAFETENSORS_TENSORS);
  }
  pd_tensor *tensor = &file->tensors[file->count];
  tensor->name = strdup(name);
  if (tensor->name == NULL) return wrong_tensor(file, name, problem, "not enough memory");
  file->count++;
  if (!json_is_object(entry)) return wrong_tensor(file, name, problem, "must be an object");
  if (json_object_size(entry) > 3)
    return wrong_tensor(file, name, problem, "has keys besides dtype, shape, data_offsets");
  return read_dtype(file, tensor, entry, problem) && read_shape(file, tensor, entry, problem) &&
         read_span(file, tensor, entry, problem);
}

/* ---- all entries together ---- */

static int by_name(const void *a, const void *b) {
  return strcmp(((const pd_tensor *)a)->name, ((const pd_tensor *)b)->name);
}
static int by_place(const void *a, const void *b) {
  const pd_tensor *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return x->end < y->end ? -1 : x->end > y->end;
}

static bool check_tiles(pd_safetensors *file, pd_problem *problem) {
  qsort(file->tensors, (size_t)file->count, sizeof *file->tensors, by_place);
  int64_t at = 0;
  for (int64_t i = 0; i < file->count; i++) {
    const pd_tensor *tensor = &file->tensors[i];
    if (tensor->begin < at) {
      return wrong_tensor(file, tensor->name, problem, "begins at %" PRId64 ", inside `%s`, which ends at %" PRId64,
                          tensor->begin, show(tensor[-1].name, strlen(tensor[-1].name)).text, at);
    }
    if (tensor->begin > at) {
      return wrong_tensor(file, tensor->name, problem, "begins at %" PRId64 ", leaving a gap after %" PRId64,
                          tensor->begin, at);
    }
    at = tensor->end;
  }
  if (at != file->size - file->data) {
    const char *last = file->count > 0 ? file->tensors[file->count - 1].name : "";
    return wrong_file(file, problem, "%" PRId64 " bytes after the last tensor, `%s`", file->size - file->data - at,
                      show(last, strlen(last)).text);
  }
  qsort(file->tensors, (size_t)file->count, sizeof *file->tensors, by_name);
  return true;
}

/* ---- opening ---- */

static bool map_file(pd_safetensors *file, pd_problem *problem) {
  struct stat info;
  const int fd = open(file->path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return wrong_file(file, problem, "cannot open: %s", strerror(errno));
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return wrong_file(file, problem, "not a regular file");
  }
  file->size = info.st_size;
  if (file->size < 8) {
    close(fd);
    return wrong_file(file, problem, "has %" PRId64 " bytes, must start with a length of 8", file->size);
  }
  void *map = mmap(NULL, (size_t)file->size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int why = errno;
  close(fd);
  if (map == MAP_FAILED)
    return wrong_file(file, problem, "cannot map %" PRId64 " bytes: %s", file->size, strerror(why));
  file->map = map;
  return true;
}

static bool read_header(pd_safetensors *file, pd_problem *problem) {
  uint64_t length;
  memcpy(&length, file->map, sizeof length);
  if (length > PD_SAFETENSORS_HEADER) {
    return wrong_file(file, problem, "byte 0: the header has %" PRIu64 " bytes, at most %d are allowed", length,
                      PD_SAFETENSORS_HEADER);
  }
  if ((int64_t)length > file->size - 8) {
    return wrong_file(file, problem, "byte 0: the header has %" PRIu64 " bytes, but the file ends after %" PRId64,
                      length, file->size - 8);
  }
  const char *text = (const char *)file->map + 8;
  file->data = 8 + (int64_t)length;
  if (length == 0 || text[0] != '{') return wrong_file(file, problem, "byte 8: the header must start with `{`");
  scan found;
  if (!scan_header(file, text, (size_t)length, &found, problem)) return false;
  json_error_t error;
  json_t *root = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error);
  if (root == NULL) {
    pd_problem ignored;
    const size_t at = error.position < 0 ? 0 : (size_t)error.position;
    scan_header(file, text, at < length ? at : length, &found, &ignored);
    return wrong_file(file, problem, "tensor `%s`: byte %zu: %.160s", show(found.key, found.key_length).text, at + 8,
                      error.text);
  }
  bool good = json_is_object(root) || wrong_file(file, problem, "byte 8: the header must be an object");
  file->tensors = calloc(json_object_size(root) + 1, sizeof *file->tensors);
  if (file->tensors == NULL) good = wrong_file(file, problem, "not enough memory");
  const char *name;
  json_t *entry;
  if (good) {
    json_object_foreach(root, name, entry) {
      if (good) good = read_entry(file, name, entry, problem);
    }
  }
  json_decref(root);
  return good && check_tiles(file, problem);
}

bool pd_safetensors_open(pd_safetensors *file, const char *path, pd_problem *problem) {
  *file = (pd_safetensors){.path = strdup(path)};
  if (file->path == NULL) return pd_problem_say(problem, "weights `%s`: not enough memory", path);
  if (map_file(file, problem) && read_header(file, problem)) return true;
  pd_safetensors_close(file);
  return false;
}

void pd_safetensors_close(pd_safetensors *file) {
  for (int64_t i = 0; i < file->count; i++) free(file->tensors[i].name);
  free(file->tensors);
  if (file->map != NULL) munmap((void *)(uintptr_t)file->map, (size_t)file->size);
  free(file->path);
  *file = (pd_safetensors){.path = NULL};
}

const pd_tensor *pd_safetensors_find(const pd_safetensors *file, const char *name) {
  const pd_tensor key = {.name = (char *)(uintptr_t)name};
  if (file->count == 0) return NULL;
  return bsearch(&key, file->tensors, (size_t)file->count, sizeof *file->tensors, by_name);
}

/* ---- elements ---- */

static float from_f16(uint16_t half) {
  const uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
  uint32_t bits = sign | (exponent + 112) << 23 | fraction << 13;
  float value;
  if (exponent == 31) bits = sign | 0x7f800000 | fraction << 13; /* infinity, NaN */
  if (exponent == 0) {                                           /* zero, denormals: exact in float */
    value = (float)fraction * 0x1p-24f;
    return sign != 0 ? -value : value;
  }
  memcpy(&value, &bits, sizeof value);
  return value;
}

static double element(int type, const unsigned char *at) {
  uint16_t half;
  float single;
  double wide;
  switch (type) {
  case F64:
    memcpy(&wide, at, sizeof wide);
    return wide;
  case F32:
    memcpy(&single, at, sizeof single);
    return (double)single;
  case F16:
    memcpy(&half, at, sizeof half);
    return (double)from_f16(half);
  default:
    break;
  }
  memcpy(&half, at, sizeof half);
  const uint32_t bits = (uint32_t)half << 16; /* BF16 is the upper half of a float */
  memcpy(&single, &bits, sizeof single);
  return (double)single;
}

void pd_safetensors_read(const pd_safetensors *file, const pd_tensor *tensor, int64_t first, int64_t n, int real_bytes,
                         void *out) {
  const int bytes = dtypes[tensor->type].bytes;
  const unsigned char *at = file->map + file->data + tensor->begin + first * bytes;
  if ((tensor->type == F32 || tensor->type == F64) && bytes == real_bytes) {
    memcpy(out, at, (size_t)(n * bytes));
  } else if (real_bytes == 4) {
    for (int64_t i = 0; i < n; i++) ((float *)out)[i] = (float)element(tensor->type, at + i * bytes);
  } else {
    for (int64_t i = 0; i < n; i++) ((double *)out)[i] = element(tensor->type, at + i * bytes);
  }
}

/* ---- writing ---- */

static bool cannot_write(const pd_safetensors_writer *writer, int why, pd_problem *problem) {
  return pd_problem_say(problem, "weights `%s`: cannot write: %s", writer->path, strerror(why));
}

static bool write_at(pd_safetensors_writer *writer, const void *from, int64_t n, int64_t at, pd_problem *problem) {
  const char *next = from;
  while (n > 0) {
    const ssize_t done = pwrite(writer->file, next, (size_t)n, at);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return cannot_write(writer, done < 0 ? errno : ENOSPC, problem);
    next += done, at += done, n -= done;
  }
  return true;
}

/* The header's JSON, padded so that the data start at a multiple of 8. NULL when memory is short. */
static char *header_text(const pd_safetensors_writer *writer, const pd_tensor_shape *tensors, size_t *length) {
  char *text = NULL;
  FILE *to = open_memstream(&text, length);
  if (to == NULL) return NULL;
  bool short_of_memory = false;
  fputs("{\"__metadata__\":{\"format\":\"pt\"}", to);
  for (int64_t i = 0; i < writer->count; i++) {
    json_t *name = json_string(tensors[i].name);
    char *quoted = json_dumps(name, JSON_ENCODE_ANY | JSON_COMPACT);
    json_decref(name);
    short_of_memory |= quoted == NULL;
    fprintf(to, ",%s:{\"dtype\":\"%s\",\"shape\":[", quoted != NULL ? quoted : "",
            writer->real_bytes == 4 ? "F32" : "F64");
    free(quoted);
    for (int k = 0; k < tensors[i].rank; k++) fprintf(to, "%s%" PRId64, k > 0 ? "," : "", tensors[i].shape[k]);
    fprintf(to, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", writer->begin[i] * writer->real_bytes,
            writer->begin[i + 1] * writer->real_bytes);
  }
  fputc('}', to);
  for (long n = ftell(to); n % 8 != 0; n++) fputc(' ', to);
  if (fclose(to) == 0 && !short_of_memory) return text;
  free(text);
  return NULL;
}

static bool start_file(pd_safetensors_writer *writer, const pd_tensor_shape *tensors, pd_problem *problem) {
  size_t length = 0;
  char *header = header_text(writer, tensors, &length);
  if (header == NULL) return cannot_write(writer, ENOMEM, problem);
  const uint64_t n = length;
  writer->data = 8 + (int64_t)length;
  writer->file = open(writer->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  bool good = writer->file >= 0 || cannot_write(writer, errno, problem);
  writer->made = good;
  if (good) { /* a full disk shows now, not after hours of gathering */
    const int64_t size = writer->data + writer->begin[writer->count] * writer->real_bytes;
    if (fallocate(writer->file, 0, 0, size) != 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
      good = cannot_write(writer, errno, problem);
    }
  }
  good = good && write_at(writer, &n, 8, 0, problem) && write_at(writer, header, (int64_t)length, 8, problem);
  free(header);
  return good;
}

/* Everything but the file. */
static bool lay_out(pd_safetensors_writer *writer, const char *path, const char *ending, const pd_tensor_shape *tensors,
                    int64_t count, int real_bytes, pd_problem *problem) {
  *writer = (pd_safetensors_writer){.file = -1, .real_bytes = real_bytes, .path = strdup(path)};
  writer->names = calloc((size_t)count + 1, sizeof *writer->names);
  writer->begin = calloc((size_t)count + 1, sizeof *writer->begin);
  writer->written = calloc((size_t)count + 1, sizeof *writer->written);
  const int room = asprintf(&writer->temporary, "%s%s", path, ending);
  if (room < 0) writer->temporary = NULL;
  bool good = writer->path != NULL && writer->temporary != NULL && writer->names != NULL && writer->begin != NULL &&
              writer->written != NULL;
  if (!good) pd_problem_say(problem, "weights `%s`: not enough memory", path);
  for (int64_t i = 0; i < count && good; i++) {
    int64_t n = 1;
    for (int k = 0; k < tensors[i].rank; k++) n *= tensors[i].shape[k];
    writer->begin[i + 1] = writer->begin[i] + n;
    writer->names[i] = strdup(tensors[i].name);
    writer->count = i + 1;
    if (writer->names[i] == NULL) good = pd_problem_say(problem, "weights `%s`: not enough memory", path);
  }
  return good;
}

bool pd_safetensors_create(pd_safetensors_writer *writer, const char *path, const pd_tensor_shape *tensors,
                           int64_t count, int real_bytes, pd_problem *problem) {
  const bool good =
      lay_out(writer, path, ".tmp", tensors, count, real_bytes, problem) && start_file(writer, tensors, problem);
  if (!good) pd_safetensors_discard(writer);
  return good;
}

bool pd_safetensors_share(pd_safetensors_writer *writer, const char *path, const pd_tensor_shape *tensors,
                          int64_t count, int real_bytes, bool first, pd_problem *problem) {
  bool good = lay_out(writer, path, "", tensors, count, real_bytes, problem);
  if (good && first) good = start_file(writer, tensors, problem);
  if (good && !first) {
    size_t length = 0;
    char *header = header_text(writer, tensors, &length);
    good = header != NULL || cannot_write(writer, ENOMEM, problem);
    free(header);
    writer->data = 8 + (int64_t)length;
    if (good) writer->file = open(path, O_WRONLY | O_CLOEXEC);
    if (good && writer->file < 0) good = cannot_write(writer, errno, problem);
  }
  writer->made = false; /* it is not this writer's to remove */
  if (!good) pd_safetensors_discard(writer);
  return good;
}

bool pd_safetensors_part_done(pd_safetensors_writer *writer, int64_t *elements, pd_problem *problem) {
  *elements = 0;
  for (int64_t i = 0; i < writer->count; i++) *elements += writer->written[i];
  bool good = fsync(writer->file) == 0 || cannot_write(writer, errno, problem);
  const int closed = close(writer->file);
  writer->file = -1;
  if (good && closed != 0) good = cannot_write(writer, errno, problem);
  pd_safetensors_discard(writer);
  return good;
}

bool pd_safetensors_put(pd_safetensors_writer *writer, int64_t tensor, int64_t first, int64_t n, const void *from,
                        pd_problem *problem) {
  writer->written[tensor] += n;
  return write_at(writer, from, n * writer->real_bytes,
                  writer->data + (writer->begin[tensor] + first) * writer->real_bytes, problem);
}

/* The directory too must reach the disk, or the new name may not. */
static void sync_directory(const char *path) {
  char *copy = strdup(path);
  if (copy == NULL) return;
  char *slash = strrchr(copy, '/');
  if (slash != NULL) slash[slash == copy ? 1 : 0] = 0;
  const int directory = open(slash != NULL ? copy : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    fsync(directory);
    close(directory);
  }
  free(copy);
}

bool pd_safetensors_finish(pd_safetensors_writer *writer, pd_problem *problem) {
  bool good = true;
  for (int64_t i = 0; i < writer->count && good; i++) {
    const int64_t want = writer->begin[i + 1] - writer->begin[i];
    if (writer->written[i] != want) {
      good = pd_problem_say(problem, "weights `%s`: tensor `%s`: %" PRId64 " of %" PRId64 " elements were gathered",
                            writer->path, writer->names[i], writer->written[i], want);
    }
  }
  if (good && fsync(writer->file) != 0) good = cannot_write(writer, errno, problem);
  if (good) {
    const int closed = close(writer->file);
    writer->file = -1;
    if (closed != 0) good = cannot_write(writer, errno, problem);
  }
  if (good && rename(writer->temporary, writer->path) != 0) good = cannot_write(writer, errno, problem);
  if (good) {
    sync_directory(writer->path);
    writer->made = false;
  }
  pd_safetensors_discard(writer);
  return good;
}

void pd_safetensors_discard(pd_safetensors_writer *writer) {
  if (writer->file >= 0) close(writer->file);
  if (writer->made) unlink(writer->temporary);
  for (int64_t i = 0; i < writer->count; i++) free(writer->names[i]);
  free(writer->names);
  free(writer->begin);
  free(writer->written);
  free(writer->path);
  free(writer->temporary);
  *writer = (pd_safetensors_writer){.file = -1};
}
