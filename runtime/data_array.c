/* Array files: .npy and IDX headers, gzip, and elements of every type they hold.
 *
 * Headers are parsed from a prefix of the file, so that a compressed file is inflated to exactly the size its header
 * promises and not a byte more: a few bytes cannot become gigabytes.
 */
#include "data_array.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* ---- bytes ---- */

bool pd_bytes_open(pd_bytes *bytes, const char *path, pd_problem *problem) {
  *bytes = (pd_bytes){.path = strdup(path), .mapped = true};
  struct stat info;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (bytes->path == NULL || file < 0 || fstat(file, &info) != 0) {
    const int why = errno;
    if (file >= 0) close(file);
    return pd_problem_say(problem, "data `%s`: cannot open: %s", path, strerror(why));
  }
  if (!S_ISREG(info.st_mode)) {
    close(file);
    return pd_problem_say(problem, "data `%s`: not a regular file", path);
  }
  if (info.st_size > 0) {
    void *at = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    const int why = errno;
    if (at == MAP_FAILED) {
      close(file);
      return pd_problem_say(problem, "data `%s`: cannot map %" PRId64 " bytes: %s", path, (int64_t)info.st_size,
                            strerror(why));
    }
    bytes->at = at;
    bytes->size = info.st_size;
  }
  close(file);
  return true;
}

static void release(pd_bytes *bytes) {
  if (bytes->mapped && bytes->at != NULL) munmap((void *)(uintptr_t)bytes->at, (size_t)bytes->size);
  if (!bytes->mapped) free((void *)(uintptr_t)bytes->at);
  bytes->at = NULL;
}

void pd_bytes_close(pd_bytes *bytes) {
  release(bytes);
  free(bytes->path);
  *bytes = (pd_bytes){.path = NULL};
}

/* ---- elements ---- */

int pd_element_bytes(pd_element type) {
  static const int bytes[] = {1, 1, 2, 2, 4, 4, 8, 4, 8};
  return bytes[type];
}

bool pd_element_whole(pd_element type) {
  return type != PD_F32 && type != PD_F64;
}

/* The bytes of an element as an unsigned number. */
static inline uint64_t raw_at(int bytes, bool big_endian, const unsigned char *at) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; i++) value |= (uint64_t)at[big_endian ? bytes - 1 - i : i] << (8 * i);
  return value;
}

int64_t pd_element_whole_at(pd_element type, bool big_endian, const unsigned char *at) {
  switch (type) {
  case PD_U8:
    return at[0];
  case PD_I8:
    return (int8_t)at[0];
  case PD_U16:
    return (int64_t)raw_at(2, big_endian, at);
  case PD_I16:
    return (int16_t)raw_at(2, big_endian, at);
  case PD_U32:
    return (int64_t)raw_at(4, big_endian, at);
  case PD_I32:
    return (int32_t)raw_at(4, big_endian, at);
  case PD_I64:
    return (int64_t)raw_at(8, big_endian, at);
  case PD_F32:
  case PD_F64:
    break;
  }
  return 0;
}

double pd_element_real_at(pd_element type, bool big_endian, const unsigned char *at) {
  if (type == PD_F32) {
    const uint32_t raw = (uint32_t)raw_at(4, big_endian, at);
    float value;
    memcpy(&value, &raw, sizeof value);
    return (double)value;
  }
  if (type == PD_F64) {
    const uint64_t raw = raw_at(8, big_endian, at);
    double value;
    memcpy(&value, &raw, sizeof value);
    return value;
  }
  return (double)pd_element_whole_at(type, big_endian, at);
}

/* ---- headers ---- */

static const unsigned char npy_magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
#define PREFIX 65536 /* a header lies within this many bytes */

static bool wrong(pd_problem *problem, const char *path, int64_t offset, const char *expected) {
  return pd_problem_say(problem, "data `%s`: byte %" PRId64 ": expected %s", path, offset, expected);
}

/* Multiplies the shape up; false when it does not fit 63 bits. */
static bool count_bytes(pd_array *array) {
  int64_t n = pd_element_bytes(array->type);
  for (int i = 0; i < array->rank; i++) {
    if (__builtin_mul_overflow(n, array->shape[i], &n)) return false;
  }
  array->bytes = n;
  return true;
}

static bool read_idx(const unsigned char *at, int64_t size, const char *path, pd_array *array, pd_problem *problem) {
  static const struct {
    unsigned char code;
    pd_element type;
  } types[] = {{0x08, PD_U8}, {0x09, PD_I8}, {0x0B, PD_I16}, {0x0C, PD_I32}, {0x0D, PD_F32}, {0x0E, PD_F64}};
  const size_t known = sizeof types / sizeof types[0];
  size_t t = 0;
  while (t < known && types[t].code != at[2]) t++;
  if (t == known) return wrong(problem, path, 2, "an IDX element type (08 09 0B 0C 0D 0E)");
  if (at[3] < 1 || at[3] > PD_MAX_RANK + 1) return wrong(problem, path, 3, "an IDX rank from 1 to 9");
  *array = (pd_array){.type = types[t].type, .big_endian = true, .idx = true, .rank = at[3]};
  array->first = 4 + 4 * (int64_t)array->rank;
  if (size < array->first) return wrong(problem, path, size, "the sizes of an IDX header, but the file ends");
  for (int i = 0; i < array->rank; i++) array->shape[i] = (int64_t)raw_at(4, true, at + 4 + 4 * i);
  return count_bytes(array) || wrong(problem, path, 4, "sizes whose product fits 63 bits");
}

/* The dictionary of a .npy header, with a cursor; offsets in messages are those of the file. */
typedef struct cursor {
  const char *text;
  int64_t at, end;
} cursor;

static void skip_space(cursor *c) {
  while (c->at < c->end && (c->text[c->at] == ' ' || c->text[c->at] == '\n')) c->at++;
}

static bool take(cursor *c, const char *word) {
  skip_space(c);
  const int64_t n = (int64_t)strlen(word);
  if (c->end - c->at < n || strncmp(c->text + c->at, word, (size_t)n) != 0) return false;
  c->at += n;
  return true;
}

static bool npy_type(cursor *c, pd_array *array) {
  static const struct {
    const char *name;
    pd_element type;
  } types[] = {{"'|u1'", PD_U8},  {"'|i1'", PD_I8},  {"'<u2'", PD_U16}, {"'<i2'", PD_I16}, {"'<u4'", PD_U32},
               {"'<i4'", PD_I32}, {"'<i8'", PD_I64}, {"'<f4'", PD_F32}, {"'<f8'", PD_F64}};
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
    if (take(c, types[i].name)) {
      array->type = types[i].type;
      return true;
    }
  }
  return false;
}

static bool npy_shape(cursor *c, pd_array *array) {
  if (!take(c, "(")) return false;
  while (!take(c, ")")) {
    skip_space(c);
    int64_t value = 0;
    const int64_t start = c->at;
    while (c->at < c->end && c->text[c->at] >= '0' && c->text[c->at] <= '9') {
      if (__builtin_mul_overflow(value, 10, &value)) return false;
      if (__builtin_add_overflow(value, c->text[c->at] - '0', &value)) return false;
      c->at++;
    }
    if (c->at == start || array->rank > PD_MAX_RANK) return false;
    array->shape[array->rank++] = value;
    if (!take(c, ",")) return take(c, ")");
  }
  return true;
}

static bool read_npy(const unsigned char *at, int64_t size, const char *path, pd_array *array, pd_problem *problem) {
  *array = (pd_array){.rank = 0};
  if (size < 12) return wrong(problem, path, size, "a .npy header, but the file ends");
  if ((at[6] != 1 && at[6] != 2) || at[7] != 0) return wrong(problem, path, 6, ".npy version 1.0 or 2.0");
  const int64_t start = at[6] == 1 ? 10 : 12, length = (int64_t)raw_at(at[6] == 1 ? 2 : 4, false, at + 8);
  if (length > PREFIX - start) return wrong(problem, path, 8, "a header of less than 64 KiB");
  if (length > size - start) return wrong(problem, path, size, "the rest of the .npy header, but the file ends");
  array->first = start + length;
  cursor c = {.text = (const char *)at, .at = start, .end = array->first};
  bool type = false, order = false, shape = false;
  if (!take(&c, "{")) return wrong(problem, path, c.at, "`{`");
  while (!take(&c, "}")) {
    if (!type && take(&c, "'descr':")) {
      if (!(type = npy_type(&c, array))) {
        return wrong(problem, path, c.at,
                     "a little-endian type: '|u1' '|i1' '<u2' '<i2' '<u4' '<i4' '<i8' '<f4' '<f8'");
      }
    } else if (!order && take(&c, "'fortran_order':")) {
      if (!(order = take(&c, "False"))) return wrong(problem, path, c.at, "`False`: elements must lie in C order");
    } else if (!shape && take(&c, "'shape':")) {
      if (!(shape = npy_shape(&c, array))) return wrong(problem, path, c.at, "a shape of at most 9 sizes");
    } else {
      return wrong(problem, path, c.at, "one of 'descr', 'fortran_order', 'shape', each once");
    }
    if (!take(&c, ",")) {
      if (!take(&c, "}")) return wrong(problem, path, c.at, "`,` or `}`");
      break;
    }
  }
  skip_space(&c);
  if (c.at != c.end) return wrong(problem, path, c.at, "nothing after `}`");
  if (!type || !order || !shape) return wrong(problem, path, start, "all of 'descr', 'fortran_order', 'shape'");
  if (array->rank == 0) return wrong(problem, path, start, "a shape whose first size is the number of samples");
  return count_bytes(array) || wrong(problem, path, start, "sizes whose product fits 63 bits");
}

static bool is_npy(const unsigned char *at, int64_t size) {
  return size >= 6 && memcmp(at, npy_magic, 6) == 0;
}
static bool is_idx(const unsigned char *at, int64_t size) {
  return size >= 4 && at[0] == 0 && at[1] == 0 && at[2] >= 0x08 && at[2] <= 0x0E && at[3] >= 1 && at[3] <= 9;
}
static bool is_gzip(const unsigned char *at, int64_t size) {
  return size >= 2 && at[0] == 0x1f && at[1] == 0x8b;
}

static bool read_header(const unsigned char *at, int64_t size, const char *path, pd_array *array, pd_problem *problem) {
  if (is_npy(at, size)) return read_npy(at, size, path, array, problem);
  if (size >= 4 && at[0] == 0 && at[1] == 0) return read_idx(at, size, path, array, problem);
  return wrong(problem, path, 0, "a .npy file (93 4E 55 4D 50 59) or an IDX file (00 00 08 rank)");
}

/* ---- gzip ---- */

/* Inflates to what the header inside promises. */
static bool inflate_file(gzFile file, pd_bytes *bytes, pd_array *array, pd_problem *problem) {
  int64_t room = PREFIX, size = 0, need = -1;
  unsigned char *at = malloc((size_t)room);
  for (;;) {
    if (at == NULL)
      return pd_problem_say(problem, "data `%s`: not enough memory for %" PRId64 " bytes", bytes->path, room);
    const int64_t ask = room - size < 1 << 20 ? room - size : 1 << 20;
    const int got = gzread(file, at + size, (unsigned)ask);
    if (got < 0) {
      int code = 0;
      const char *why = gzerror(file, &code);
      free(at);
      return pd_problem_say(problem, "data `%s`: damaged gzip data after %" PRId64 " bytes of contents: %s",
                            bytes->path, size, why);
    }
    size += got;
    if (need < 0 && (got == 0 || size == PREFIX)) { /* the header is here, or never will be */
      if (!read_header(at, size, bytes->path, array, problem)) {
        free(at);
        return false;
      }
      if (__builtin_add_overflow(array->first, array->bytes, &need)) need = INT64_MAX;
    }
    if (got == 0 || (need >= 0 && size > need)) break;
    if (size == room) {
      room *= 2;
      if (room > need && need < INT64_MAX) room = need + 1; /* one byte more shows a file that is too long */
      if (room <= size) room = size + 1;
      unsigned char *larger = realloc(at, (size_t)room);
      if (larger == NULL) free(at);
      at = larger;
    }
  }
  release(bytes);
  bytes->at = at;
  bytes->size = size;
  bytes->mapped = false;
  return true;
}

/* ---- the whole ---- */

bool pd_array_is(const pd_bytes *bytes) {
  return is_npy(bytes->at, bytes->size) || is_idx(bytes->at, bytes->size) || is_gzip(bytes->at, bytes->size);
}

bool pd_array_is_compressed_other(const pd_bytes *bytes) {
  unsigned char begin[8];
  gzFile file = is_gzip(bytes->at, bytes->size) ? gzopen(bytes->path, "rb") : NULL;
  if (file == NULL) return false;
  const int got = gzread(file, begin, sizeof begin);
  gzclose(file);
  return got >= 0 && !is_npy(begin, got) && !is_idx(begin, got);
}

bool pd_array_open(pd_bytes *bytes, pd_array *array, pd_problem *problem) {
  if (is_gzip(bytes->at, bytes->size)) {
    gzFile file = gzopen(bytes->path, "rb");
    if (file == NULL) return pd_problem_say(problem, "data `%s`: cannot open: %s", bytes->path, strerror(errno));
    const bool good = inflate_file(file, bytes, array, problem);
    gzclose(file);
    if (!good) return false;
  } else if (!read_header(bytes->at, bytes->size, bytes->path, array, problem)) {
    return false;
  }
  if (bytes->size - array->first == array->bytes) return true;
  const bool shorter = bytes->size - array->first < array->bytes;
  return pd_problem_say(problem,
                        "data `%s`: byte %" PRId64 ": expected %s: the header promises %" PRId64
                        " bytes of elements, %" PRId64 " are there",
                        bytes->path, shorter ? bytes->size : array->first + array->bytes,
                        shorter ? "more elements, but the file ends" : "the end of the file", array->bytes,
                        bytes->size - array->first);
}
