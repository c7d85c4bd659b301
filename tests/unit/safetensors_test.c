/* safetensors: hostile and damaged files are each refused with file, tensor and reason, quickly and in little memory;
 * good files read exactly; a file being written appears whole or not at all. */
#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "safetensors.h"

/* ---- making files ---- */

static char directory[] = "/tmp/pd-safetensors-XXXXXX";
static char path[128];

static void begin(void) {
  cr_assert_not_null(mkdtemp(directory));
  snprintf(path, sizeof path, "%s/w.safetensors", directory);
}

static void end(void) {
  char other[160];
  unlink(path);
  snprintf(other, sizeof other, "%s.tmp", path);
  unlink(other);
  rmdir(directory);
}

static void write_file(uint64_t length, const char *header, size_t header_bytes, const void *data, size_t data_bytes) {
  FILE *file = fopen(path, "w");
  cr_assert_not_null(file);
  fwrite(&length, 1, 8, file);
  fwrite(header, 1, header_bytes, file);
  if (data_bytes > 0) fwrite(data, 1, data_bytes, file);
  cr_assert_eq(fclose(file), 0);
}

static const unsigned char zeros[64];

/* A file whose length field is right. */
static void write_header(const char *header, size_t data_bytes) {
  write_file(strlen(header), header, strlen(header), zeros, data_bytes);
}

/* The file at `path` is refused within a second and 200 MB, and the message has the file's name and all the words. */
static void refused(const char *tensor, const char *reason) {
  pd_safetensors file;
  pd_problem problem = {.text = ""};
  struct timespec from, to;
  clock_gettime(CLOCK_MONOTONIC, &from);
  const bool opened = pd_safetensors_open(&file, path, &problem);
  clock_gettime(CLOCK_MONOTONIC, &to);
  cr_assert(!opened, "was taken, want a refusal: %s", reason);
  cr_assert(strstr(problem.text, path) != NULL, "`%s` does not name the file", problem.text);
  cr_assert(tensor == NULL || strstr(problem.text, tensor) != NULL, "`%s` does not name `%s`", problem.text, tensor);
  cr_assert(strstr(problem.text, reason) != NULL, "`%s` does not say `%s`", problem.text, reason);
  cr_assert(strlen(problem.text) < 1000, "a message of %zu bytes", strlen(problem.text));
  for (const char *p = problem.text; *p != 0; p++)
    cr_assert((unsigned char)*p >= 0x20, "a control byte in the message");
  const double seconds = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) * 1e-9;
  cr_assert(seconds < 1, "took %g s", seconds);
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  cr_assert(usage.ru_maxrss < 200000, "took %ld kB", usage.ru_maxrss);
}

static void refused_header(const char *header, size_t data_bytes, const char *tensor, const char *reason) {
  write_header(header, data_bytes);
  refused(tensor, reason);
}

TestSuite(hostile, .init = begin, .fini = end);
TestSuite(reading, .init = begin, .fini = end);
TestSuite(writing, .init = begin, .fini = end);

/* ---- hostile files ---- */

#define ONE(name, dtype, shape, span)                                                                                  \
  "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" span "}"

Test(hostile, not_there) {
  refused(NULL, "cannot open");
}
Test(hostile, a_directory) {
  pd_safetensors file;
  pd_problem problem;
  cr_assert(!pd_safetensors_open(&file, directory, &problem));
  cr_assert_not_null(strstr(problem.text, "not a regular file"));
}
Test(hostile, empty_file) {
  fclose(fopen(path, "w"));
  refused(NULL, "has 0 bytes");
}
Test(hostile, shorter_than_its_length_field) {
  FILE *file = fopen(path, "w");
  fwrite("1234567", 1, 7, file);
  fclose(file);
  refused(NULL, "has 7 bytes");
}
Test(hostile, length_of_all_ones) {
  write_file(UINT64_MAX, "{}", 2, NULL, 0);
  refused(NULL, "18446744073709551615 bytes, at most 100000000");
}
Test(hostile, length_that_wraps_to_the_file) {
  write_file(UINT64_MAX - 5, "{}", 2, NULL, 0);
  refused(NULL, "at most 100000000");
}
Test(hostile, length_beyond_the_file) {
  write_file(3, "{}", 2, NULL, 0);
  refused(NULL, "has 3 bytes, but the file ends after 2");
}
Test(hostile, length_zero) {
  write_file(0, "{}", 2, NULL, 0);
  refused(NULL, "must start with `{`");
}
Test(hostile, not_an_object) {
  refused_header("[1]", 0, NULL, "must start with `{`");
  refused_header(" {}", 0, NULL, "must start with `{`");
}
Test(hostile, not_json) {
  refused_header("{" ONE("a", "F32", "[1]", "[0,4]") " x}", 4, "`a`", "byte ");
  refused_header("{" ONE("a", "F32", "[1]", "[0,4]"), 4, "`a`", "byte ");
  refused_header("{" ONE("a", "F32", "[1]", "[0,4]") "} {}", 4, "`a`", "end of file");
  refused_header("{\"a", 4, "`a`", "byte ");
}
Test(hostile, data_cut_short) {
  refused_header("{" ONE("a", "F32", "[2]", "[0,8]") "}", 7, "`a`", "ends at 8, but the file holds 7 bytes");
}
Test(hostile, begin_after_end) {
  refused_header("{" ONE("a", "F32", "[1]", "[8,4]") "}", 8, "`a`", "begins at 8, after its end 4");
}
Test(hostile, negative_numbers) {
  refused_header("{" ONE("a", "F32", "[1]", "[-4,0]") "}", 4, "`a`", "0 or more");
  refused_header("{" ONE("a", "F32", "[1]", "[0,-4]") "}", 4, "`a`", "0 or more");
  refused_header("{" ONE("a", "F32", "[-1]", "[0,4]") "}", 4, "`a`", "`shape[0]`");
  refused_header("{" ONE("a", "F32", "[-1,-1]", "[0,4]") "}", 4, "`a`", "`shape[0]`");
}
Test(hostile, overlap) {
  refused_header("{" ONE("a", "F32", "[2]", "[0,8]") "," ONE("b", "F32", "[2]", "[4,12]") "}", 12, "`b`", "inside `a`");
}
Test(hostile, the_same_span_twice) {
  refused_header("{" ONE("a", "F32", "[1]", "[0,4]") "," ONE("b", "F32", "[1]", "[0,4]") "}", 4, "`b`", "inside `a`");
}
Test(hostile, gap) {
  refused_header("{" ONE("a", "F32", "[1]", "[0,4]") "," ONE("b", "F32", "[1]", "[8,12]") "}", 12, "`b`",
                 "gap after 4");
  refused_header("{" ONE("a", "F32", "[1]", "[4,8]") "}", 8, "`a`", "gap after 0");
}
Test(hostile, end_beyond_the_file) {
  refused_header("{" ONE("a", "F32", "[1]", "[9223372036854775803,9223372036854775807]") "}", 4, "`a`",
                 "ends at 9223372036854775807");
}
Test(hostile, numbers_beyond_64_bits) {
  refused_header("{" ONE("a", "F32", "[1]", "[0,18446744073709551620]") "}", 4, "`a`", "too big integer");
}
Test(hostile, shape_that_does_not_fit_its_span) {
  refused_header("{" ONE("a", "F32", "[2]", "[0,4]") "}", 4, "`a`", "makes 8 bytes, its span has 4");
  refused_header("{" ONE("a", "F16", "[1]", "[0,4]") "}", 4, "`a`", "makes 2 bytes, its span has 4");
  refused_header("{" ONE("a", "F32", "[]", "[0,8]") "}", 8, "`a`", "makes 4 bytes, its span has 8");
}
Test(hostile, shape_whose_product_wraps) {
  refused_header("{" ONE("a", "F32", "[4294967296,4294967296]", "[0,0]") "}", 0, "`a`", "does not fit 64 bits");
  refused_header("{" ONE("a", "F32", "[4611686018427387905]", "[0,4]") "}", 4, "`a`", "does not fit 64 bits");
}
Test(hostile, too_many_dimensions) {
  refused_header("{" ONE("a", "F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, "`a`", "9 dimensions");
}
Test(hostile, unknown_dtype) {
  refused_header("{" ONE("a", "F99", "[1]", "[0,4]") "}", 4, "`a`", "unknown dtype `F99`");
  refused_header("{" ONE("a", "f32", "[1]", "[0,4]") "}", 4, "`a`", "unknown dtype `f32`");
}
Test(hostile, wrong_types_and_missing_keys) {
  refused_header("{\"a\":7}", 0, "`a`", "must be an object");
  refused_header("{\"a\":{}}", 0, "`a`", "`dtype`");
  refused_header("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "`a`", "`shape`");
  refused_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "`a`", "`data_offsets`");
  refused_header("{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "`a`", "`dtype`");
  refused_header("{" ONE("a", "F32", "[1.0]", "[0,4]") "}", 4, "`a`", "`shape[0]`");
  refused_header("{" ONE("a", "F32", "[\"1\"]", "[0,4]") "}", 4, "`a`", "`shape[0]`");
  refused_header("{" ONE("a", "F32", "[1]", "[0,4e0]") "}", 4, "`a`", "whole numbers");
  refused_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, "`a`",
                 "has keys besides");
}
Test(hostile, one_offset) {
  refused_header("{" ONE("a", "F32", "[1]", "[0]") "}", 4, "`a`", "array of two numbers");
  refused_header("{" ONE("a", "F32", "[1]", "[0,4,4]") "}", 4, "`a`", "array of two numbers");
}
Test(hostile, the_same_name_twice) {
  refused_header("{" ONE("a", "F32", "[1]", "[0,4]") "," ONE("a", "F32", "[1]", "[4,8]") "}", 8, "`a`",
                 "duplicate object key");
  refused_header("{" ONE("a", "F32", "[1]", "[0,4]") "," ONE("\\u0061", "F32", "[1]", "[4,8]") "}", 8, "a",
                 "duplicate object key");
}
Test(hostile, the_same_key_twice) {
  refused_header("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "`a`",
                 "duplicate object key");
}
Test(hostile, a_name_of_a_megabyte) {
  const size_t name = 1 << 20;
  char *header = malloc(name + 200);
  strcpy(header, "{\"");
  memset(header + 2, 'n', name);
  strcpy(header + 2 + name, "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}");
  refused_header(header, 4, "nnnnnnnn...", "its name has 1048576 bytes");
  free(header);
}
Test(hostile, deep_nesting) {
  const size_t deep = 10000000;
  char *header = malloc(deep + 10);
  strcpy(header, "{\"a\":");
  memset(header + 5, '[', deep);
  header[deep + 5] = 0;
  refused_header(header, 0, "`a`", "nested deeper");
  free(header);
  refused_header("{" ONE("a", "F32", "[[1]]", "[0,4]") "}", 4, "`a`", "nested deeper");
}
Test(hostile, nul_and_control_bytes_in_a_name) {
  refused_header("{" ONE("a\\u0000b", "F32", "[1]", "[0,4]") "}", 4, "a\\u0000b", "byte ");
  const char raw[] = "{\"a\0b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
  write_file(sizeof raw - 1, raw, sizeof raw - 1, zeros, 4);
  refused("a?b", "control character");
  refused_header("{\"a\x1b[2J\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "a?[2J",
                 "control character");
}
Test(hostile, bytes_that_are_no_utf8) {
  refused_header("{\"a\xff\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, NULL,
                 "unable to decode byte 0xff");
}
Test(hostile, metadata_that_is_no_object_of_strings) {
  refused_header("{\"__metadata__\":\"pt\"," ONE("a", "F32", "[1]", "[0,4]") "}", 4, "`__metadata__`",
                 "must be an object");
  refused_header("{\"__metadata__\":{\"format\":1}," ONE("a", "F32", "[1]", "[0,4]") "}", 4, "`__metadata__`",
                 "must be a string");
}
Test(hostile, too_many_tensors) {
  size_t length = 0;
  char *header = NULL;
  FILE *to = open_memstream(&header, &length);
  for (int i = 0; i < 100001; i++) {
    fprintf(to,
            "%c"
            "\"t%d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
            i == 0 ? '{' : ',', i);
  }
  fputc('}', to);
  fclose(to);
  refused_header(header, 0, "`t100000`", "more than 100000 tensors");
  free(header);
}
Test(hostile, bytes_after_the_last_tensor) {
  refused_header("{" ONE("a", "F32", "[1]", "[0,4]") "}", 5, "`a`", "1 bytes after the last tensor");
  refused_header("{}", 1, NULL, "1 bytes after the last tensor");
}
Test(hostile, a_hundred_megabytes_of_spaces) {
  const size_t length = 100000000;
  char *header = malloc(length + 1);
  memset(header, ' ', length);
  memcpy(header, "{\"a\":7}", 7);
  write_file(length, header, length, NULL, 0);
  free(header); /* memory of the test counts too: the limit below is on both */
  pd_safetensors file;
  pd_problem problem;
  cr_assert(!pd_safetensors_open(&file, path, &problem));
  cr_assert_not_null(strstr(problem.text, "must be an object"));
}

/* ---- reading ---- */

Test(reading, a_file_without_tensors) {
  pd_safetensors file;
  pd_problem problem;
  write_header("{}      ", 0);
  cr_assert(pd_safetensors_open(&file, path, &problem), "%s", problem.text);
  cr_assert_eq(file.count, 0);
  cr_assert_null(pd_safetensors_find(&file, "a"));
  pd_safetensors_close(&file);
}

Test(reading, entries_in_any_order_with_or_without_metadata) {
  pd_safetensors file;
  pd_problem problem;
  write_header("{" ONE("b", "I64", "[1,2]", "[8,24]") "," ONE("a", "F32", "[2]",
                                                              "[0,8]") "," ONE("empty", "F32", "[0,3]", "[8,8]") "}  ",
               24);
  cr_assert(pd_safetensors_open(&file, path, &problem), "%s", problem.text);
  cr_assert_eq(file.count, 3);
  cr_assert_str_eq(file.tensors[0].name, "a");
  const pd_tensor *b = pd_safetensors_find(&file, "b");
  cr_assert_not_null(b);
  cr_assert_eq(b->rank, 2);
  cr_assert_eq(b->shape[1], 2);
  cr_assert(!pd_safetensors_is_real(b));
  cr_assert_str_eq(pd_safetensors_type(b), "I64");
  cr_assert_eq(pd_safetensors_find(&file, "empty")->elements, 0);
  pd_safetensors_close(&file);
  write_header("{\"__metadata__\":{\"format\":\"pt\",\"note\":\"{[deep]}\"}," ONE("a", "F32", "[2]", "[0,8]") "}", 8);
  cr_assert(pd_safetensors_open(&file, path, &problem), "%s", problem.text);
  cr_assert_eq(file.count, 1);
  pd_safetensors_close(&file);
}

static void read_back(const char *dtype, int bytes, const void *data, int n, const double *want) {
  char header[256];
  pd_safetensors file;
  pd_problem problem;
  snprintf(header, sizeof header, "{\"x\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[0,%d]}}", dtype, n,
           n * bytes);
  write_file(strlen(header), header, strlen(header), data, (size_t)(n * bytes));
  cr_assert(pd_safetensors_open(&file, path, &problem), "%s", problem.text);
  float single[16];
  double wide[16];
  pd_safetensors_read(&file, &file.tensors[0], 0, n, 8, wide);
  pd_safetensors_read(&file, &file.tensors[0], 0, n, 4, single);
  for (int i = 0; i < n; i++) {
    cr_assert(wide[i] == want[i] || (isnan(wide[i]) && isnan(want[i])), "%s[%d]: %g, want %g", dtype, i, wide[i],
              want[i]);
    cr_assert_eq(signbit(wide[i]), signbit(want[i]));
    cr_assert(single[i] == (float)want[i] || isnan(want[i]), "%s[%d] as float: %g", dtype, i, (double)single[i]);
  }
  double middle;
  pd_safetensors_read(&file, &file.tensors[0], 1, 1, 8, &middle);
  cr_assert_eq(middle, want[1]);
  pd_safetensors_close(&file);
}

Test(reading, widening_is_exact) {
  const uint16_t f16[] = {0x3c00, 0xc000, 0x3800, 0x7bff, 0x0001, 0x7e00, 0x7c00, 0xfc00, 0x8000, 0x83ff, 0x0400};
  const double f16_want[] = {1, -2, 0.5, 65504, 0x1p-24, NAN, INFINITY, -INFINITY, -0.0, -1023 * 0x1p-24, 0x1p-14};
  read_back("F16", 2, f16, 11, f16_want);
  const uint16_t bf16[] = {0x3f80, 0xc000, 0x3f00, 0x7f80, 0x0001, 0x7fc0, 0x8000};
  const double bf16_want[] = {1, -2, 0.5, INFINITY, 0x1p-133, NAN, -0.0};
  read_back("BF16", 2, bf16, 7, bf16_want);
  const float f32[] = {1, -2, 0.5f, INFINITY, 0x1p-149f, 3.4028235e38f};
  const double f32_want[] = {1, -2, 0.5, INFINITY, 0x1p-149, (double)3.4028235e38f};
  read_back("F32", 4, f32, 6, f32_want);
  const double f64[] = {1, -2, 0.1, -INFINITY};
  read_back("F64", 8, f64, 4, f64);
}

/* ---- writing ---- */

static const pd_tensor_shape shapes[] = {{"a\"quoted", 0, {0}}, {"b.w", 2, {2, 3}}, {"c", 1, {1}}};

Test(writing, what_was_put_is_read) {
  pd_safetensors_writer writer;
  pd_safetensors file;
  pd_problem problem;
  const float values[] = {1, 2, 3, 4, 5, 6};
  cr_assert(pd_safetensors_create(&writer, path, shapes, 3, 4, &problem), "%s", problem.text);
  cr_assert(pd_safetensors_put(&writer, 1, 3, 3, values + 3, &problem));
  cr_assert(pd_safetensors_put(&writer, 1, 0, 3, values, &problem));
  cr_assert(pd_safetensors_put(&writer, 0, 0, 1, values + 5, &problem));
  cr_assert(pd_safetensors_put(&writer, 2, 0, 1, values + 4, &problem));
  cr_assert_neq(access(path, F_OK), 0, "the file is there before it is whole");
  cr_assert(pd_safetensors_finish(&writer, &problem), "%s", problem.text);
  cr_assert(pd_safetensors_open(&file, path, &problem), "%s", problem.text);
  cr_assert_eq(file.data % 8, 0);
  cr_assert_eq(file.count, 3);
  float back[6];
  pd_safetensors_read(&file, pd_safetensors_find(&file, "b.w"), 0, 6, 4, back);
  cr_assert_arr_eq(back, values, sizeof back);
  pd_safetensors_read(&file, pd_safetensors_find(&file, "a\"quoted"), 0, 1, 4, back);
  cr_assert_eq(back[0], 6);
  cr_assert_eq(pd_safetensors_find(&file, "a\"quoted")->rank, 0);
  pd_safetensors_close(&file);
}

static void put_old(void) {
  pd_safetensors_writer writer;
  pd_problem problem;
  const pd_tensor_shape old = {"old", 1, {1}};
  const float one = 1;
  cr_assert(pd_safetensors_create(&writer, path, &old, 1, 4, &problem));
  cr_assert(pd_safetensors_put(&writer, 0, 0, 1, &one, &problem));
  cr_assert(pd_safetensors_finish(&writer, &problem));
}

static void old_is_whole(void) {
  pd_safetensors file;
  pd_problem problem;
  char temporary[160];
  cr_assert(pd_safetensors_open(&file, path, &problem), "%s", problem.text);
  cr_assert_not_null(pd_safetensors_find(&file, "old"));
  pd_safetensors_close(&file);
  snprintf(temporary, sizeof temporary, "%s.tmp", path);
  cr_assert_neq(access(temporary, F_OK), 0, "a temporary file was left");
}

Test(writing, elements_that_are_missing_are_noticed) {
  pd_safetensors_writer writer;
  pd_problem problem;
  const float values[6] = {0};
  put_old();
  cr_assert(pd_safetensors_create(&writer, path, shapes, 3, 4, &problem));
  cr_assert(pd_safetensors_put(&writer, 0, 0, 1, values, &problem));
  cr_assert(pd_safetensors_put(&writer, 1, 0, 5, values, &problem));
  cr_assert(!pd_safetensors_finish(&writer, &problem));
  cr_assert_not_null(strstr(problem.text, "`b.w`: 5 of 6 elements"), "%s", problem.text);
  old_is_whole();
}

Test(writing, a_full_disk_leaves_the_old_file) {
  pd_safetensors_writer writer;
  pd_problem problem;
  const pd_tensor_shape large = {"large", 1, {1 << 20}};
  put_old();
  signal(SIGXFSZ, SIG_IGN);
  const struct rlimit limit = {.rlim_cur = 1 << 16, .rlim_max = 1 << 16};
  cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
  cr_assert(!pd_safetensors_create(&writer, path, &large, 1, 4, &problem));
  cr_assert_not_null(strstr(problem.text, "cannot write"), "%s", problem.text);
  old_is_whole();
}

Test(writing, a_directory_that_is_not_there) {
  pd_safetensors_writer writer;
  pd_problem problem;
  cr_assert(!pd_safetensors_create(&writer, "/nowhere/at/all/w.safetensors", shapes, 3, 4, &problem));
  cr_assert_not_null(strstr(problem.text, "/nowhere/at/all/w.safetensors"));
}
