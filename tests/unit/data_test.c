/* Data sets: windows of text, arrays in .npy and IDX files, order over epochs, parts of tensor-parallel ranks, range
 * checks, and files that are malformed, each refused with its name, the place and what was expected. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

#include "data.h"

/* ---- programs and files ---- */

static char directory[] = "/tmp/pd-data-XXXXXX";

static void begin(void) {
  cr_assert_not_null(mkdtemp(directory));
  cr_assert_eq(chdir(directory), 0);
}

static void end(void) {
  char command[64];
  snprintf(command, sizeof command, "rm -r %s", directory);
  cr_assert_eq(chdir("/"), 0);
  cr_assert_eq(system(command), 0);
}

TestSuite(text, .init = begin, .fini = end);
TestSuite(arrays, .init = begin, .fini = end);
TestSuite(malformed, .init = begin, .fini = end);

static const pd_segment_info reads_both = {.uses_data = {true, true}};

static const pd_data_info language_inputs[] = {
    {.name = "tokens", .is_integer = true, .rank = 1, .shape = {4}, .elements = 4, .split_axis = PD_NONE, .limit = 128},
    {.name = "targets",
     .is_integer = true,
     .rank = 1,
     .shape = {4},
     .elements = 4,
     .split_axis = PD_NONE,
     .limit = 128,
     .is_target = true, .ignored = PD_IGNORE}};
static const pd_program language = {.real_bytes = 4,
                                    .tp = 1,
                                    .batch = 2,
                                    .microbatch = 2,
                                    .data_count = 2,
                                    .data = language_inputs,
                                    .segment_count = 1,
                                    .segments = &reads_both,
                                    .seed = 7};

static const pd_data_info image_inputs[] = {
    {.name = "x", .rank = 1, .shape = {6}, .elements = 6, .split_axis = PD_NONE},
    {.name = "y", .is_integer = true, .rank = 0, .elements = 1, .split_axis = PD_NONE, .limit = 10, .is_target = true, .ignored = PD_IGNORE}};
static const pd_program image = {.real_bytes = 4,
                                 .tp = 1,
                                 .batch = 2,
                                 .microbatch = 2,
                                 .data_count = 2,
                                 .data = image_inputs,
                                 .segment_count = 1,
                                 .segments = &reads_both};

static void put(const char *path, const void *bytes, size_t n) {
  FILE *file = fopen(path, "w");
  cr_assert_not_null(file);
  cr_assert_eq(fwrite(bytes, 1, n, file), n);
  fclose(file);
}

static void put_gzip(const char *path, const void *bytes, size_t n) {
  gzFile file = gzopen(path, "wb");
  cr_assert_eq(gzwrite(file, bytes, (unsigned)n), (int)n);
  gzclose(file);
}

/* A .npy file, version 1, as numpy writes it. */
static void put_npy(const char *path, const char *type, const char *shape, const void *data, size_t bytes) {
  char header[4096], dictionary[3000];
  snprintf(dictionary, sizeof dictionary, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", type, shape);
  const size_t padded = (10 + strlen(dictionary) + 1 + 63) / 64 * 64;
  memcpy(header, "\x93NUMPY\x01\x00", 8);
  header[8] = (char)((padded - 10) & 0xff), header[9] = (char)((padded - 10) >> 8);
  memset(header + 10, ' ', padded - 10);
  memcpy(header + 10, dictionary, strlen(dictionary));
  header[padded - 1] = '\n';
  FILE *file = fopen(path, "w");
  fwrite(header, 1, padded, file);
  if (bytes > 0) fwrite(data, 1, bytes, file);
  fclose(file);
}

static pd_data must_open(const pd_program *program, const char *split, const char *command) {
  pd_data data;
  pd_problem problem = {.text = ""};
  cr_assert(pd_data_open(&data, program, split, command, -1, &problem), "%s", problem.text);
  return data;
}

static void refused(const pd_program *program, const char *command, const char *first, const char *second) {
  pd_data data;
  pd_problem problem = {.text = ""};
  cr_assert(!pd_data_open(&data, program, "train", command, -1, &problem), "`%s` was taken, want `%s`", command, first);
  cr_assert(strstr(problem.text, first) != NULL, "`%s` does not say `%s`", problem.text, first);
  cr_assert(strstr(problem.text, second) != NULL, "`%s` does not say `%s`", problem.text, second);
}

static void row_refused(const pd_data *data, int input, int64_t sample, const char *first, const char *second) {
  pd_problem problem = {.text = ""};
  int64_t counted;
  cr_assert(!pd_data_row(data, input, sample, 0, NULL, &counted, &problem), "the row was taken, want `%s`", first);
  cr_assert(strstr(problem.text, first) != NULL, "`%s` does not say `%s`", problem.text, first);
  cr_assert(strstr(problem.text, second) != NULL, "`%s` does not say `%s`", problem.text, second);
}

static int64_t read_row(const pd_data *data, int input, int64_t sample, int tp_rank, void *out) {
  pd_problem problem = {.text = ""};
  int64_t counted = -1;
  cr_assert(pd_data_row(data, input, sample, tp_rank, out, &counted, &problem), "%s", problem.text);
  return counted;
}

/* ---- text ---- */

Test(text, windows_and_their_targets) {
  put("t", "abcdefghijklm", 13);
  pd_data data = must_open(&language, "train", "t");
  cr_assert_eq(data.samples, 3); /* (13 - 1) / 4 */
  int32_t row[4];
  cr_assert_eq(read_row(&data, 0, 0, 0, row), 4);
  cr_assert(row[0] == 'a' && row[3] == 'd');
  read_row(&data, 1, 0, 0, row);
  cr_assert(row[0] == 'b' && row[3] == 'e', "targets are the tokens one further on, shifted once");
  read_row(&data, 0, 2, 0, row);
  cr_assert(row[0] == 'i' && row[3] == 'l');
  read_row(&data, 1, 2, 0, row);
  cr_assert(row[0] == 'j' && row[3] == 'm');
  pd_data_close(&data);
}

Test(text, the_last_window_needs_its_last_target) {
  put("t", "abcdefgh", 8);
  pd_data data = must_open(&language, "train", "t");
  cr_assert_eq(data.samples, 1);
  pd_data_close(&data);
  put("t", "abcd", 4);
  refused(&language, "t", "holds 4 tokens", "seq + 1 = 5");
  put("t", "", 0);
  refused(&language, "t", "`t`", "holds 0 tokens");
  refused(&language, "absent", "`absent`", "cannot open");
}

Test(text, an_epoch_reads_every_sample_once_and_drops_the_rest) {
  char bytes[4 * 11 + 1];
  memset(bytes, 'x', sizeof bytes);
  put("t", bytes, sizeof bytes);
  pd_program program = language;
  program.batch = 4;
  pd_data data = must_open(&program, "train", "t");
  cr_assert_eq(data.samples, 11);
  cr_assert_eq(pd_data_steps_per_epoch(&data), 2);
  int64_t first_order[8];
  bool differs = false;
  for (uint64_t epoch = 0; epoch < 3; epoch++) {
    int seen[11] = {0};
    for (int i = 0; i < 8; i++) {
      const int64_t sample = pd_data_sample(&data, epoch * 2 + (uint64_t)i / 4, i % 4);
      cr_assert(sample >= 0 && sample < 11);
      cr_assert_eq(seen[sample]++, 0, "sample %d twice in an epoch", (int)sample);
      if (epoch == 0)
        first_order[i] = sample;
      else
        differs = differs || sample != first_order[i];
    }
  }
  cr_assert(differs, "every epoch has the same order");
  cr_assert_eq(pd_data_sample(&data, 1, 2), first_order[6], "the order has a state");
  pd_data_close(&data);
}

Test(text, the_order_depends_on_the_seed_alone) {
  char bytes[4 * 64 + 1];
  memset(bytes, 'x', sizeof bytes);
  put("t", bytes, sizeof bytes);
  pd_data a, b, c;
  pd_problem problem;
  cr_assert(pd_data_open(&a, &language, "train", "t", 1, &problem));
  cr_assert(pd_data_open(&b, &language, "train", "t", 1, &problem));
  cr_assert(pd_data_open(&c, &language, "train", "t", 2, &problem));
  int same = 0;
  for (uint64_t step = 0; step < 32; step++) {
    cr_assert_eq(pd_data_sample(&a, step, 0), pd_data_sample(&b, step, 0));
    same += pd_data_sample(&a, step, 0) == pd_data_sample(&c, step, 0);
  }
  cr_assert(same < 8);
  pd_data_close(&a), pd_data_close(&b), pd_data_close(&c);
}

Test(text, the_section_names_files_and_order) {
  put("t", "abcdefghijklmnopq", 17);
  const pd_text_pair section[] = {{"train", "t"}, {"shuffle", "off"}, {"seed", "5"}, {"valid", "t"}};
  pd_program program = language;
  program.section_data = section;
  program.section_data_count = 4;
  cr_assert(pd_data_given(&program, "train", NULL));
  cr_assert(!pd_data_given(&language, "train", NULL));
  pd_data data = must_open(&program, "train", NULL);
  cr_assert_eq(data.seed, 5);
  for (int i = 0; i < 2; i++) cr_assert_eq(pd_data_sample(&data, 1, i), 2 + i);
  cr_assert_eq(pd_data_sample(&data, 2, 1), 1, "the second epoch starts again");
  pd_data_close(&data);
  pd_data valid = must_open(&program, "valid", NULL);
  cr_assert(!valid.shuffle);
  pd_data_close(&valid);
}

Test(text, an_id_that_is_too_large_is_named) {
  put("t", "abcdefg\x80ijklmnopq", 17);
  pd_data data = must_open(&language, "train", "t");
  read_row(&data, 0, 0, 0, NULL);
  row_refused(&data, 0, 1, "id 128 at position 7 (byte 7", "limit 128");
  row_refused(&data, 1, 1, "id 128 at position 7 (byte 7", "`targets`");
  pd_data_close(&data);
}

Test(text, models_that_text_does_not_fit) {
  put("t", "abcdefghijklm", 13);
  refused(&image, "t", "`t`", "`x`");
}

Test(text, files_beyond_four_gigabytes) {
  const int64_t tokens = 2500000000, marks[] = {2147483647, 2147483648, 2147483649, 2400000000, 2499999998};
  const int file = open("large", O_WRONLY | O_CREAT, 0600);
  cr_assert_eq(ftruncate(file, tokens * 2), 0);
  for (int i = 0; i < 5; i++) {
    const uint16_t value = (uint16_t)(65000 + i);
    cr_assert_eq(pwrite(file, &value, 2, marks[i] * 2), 2);
  }
  close(file);
  const pd_text_pair section[] = {{"format", "u16"}};
  pd_data_info inputs[2] = {language_inputs[0], language_inputs[1]};
  inputs[0].limit = inputs[1].limit = 65536;
  pd_program program = language;
  program.data = inputs;
  program.section_data = section;
  program.section_data_count = 1;
  pd_data data = must_open(&program, "train", "large");
  cr_assert_eq(data.samples, (tokens - 1) / 4);
  for (int i = 0; i < 5; i++) {
    int32_t row[4];
    read_row(&data, 0, marks[i] / 4, 0, row);
    cr_assert_eq(row[marks[i] % 4], 65000 + i, "mark %d: %d", i, row[marks[i] % 4]);
  }
  pd_data_close(&data);
}

/* ---- arrays ---- */

Test(arrays, npy_of_every_type) {
  static const char *const names[] = {"|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<i8", "<f4", "<f8"};
  const unsigned char u1[] = {3, 4};
  const signed char i1[] = {3, 4};
  const uint16_t u2[] = {3, 4};
  const int16_t i2[] = {3, 4};
  const uint32_t u4[] = {3, 4};
  const int32_t i4[] = {3, 4};
  const int64_t i8[] = {3, 4};
  const float f4[] = {3, 4};
  const double f8[] = {3, 4};
  const void *const data[] = {u1, i1, u2, i2, u4, i4, i8, f4, f8};
  const size_t bytes[] = {1, 1, 2, 2, 4, 4, 8, 4, 8};
  const pd_data_info input = {.name = "v", .rank = 0, .elements = 1, .split_axis = PD_NONE};
  pd_program program = {.real_bytes = 8,
                        .tp = 1,
                        .batch = 1,
                        .data_count = 1,
                        .data = &input,
                        .segment_count = 1,
                        .segments = &reads_both};
  for (int t = 0; t < 9; t++) {
    put_npy("v.npy", names[t], "(2,)", data[t], 2 * bytes[t]);
    pd_data set = must_open(&program, "train", "v=v.npy");
    double value = 0;
    read_row(&set, 0, 1, 0, &value);
    cr_assert_eq(value, 4, "%s: %g", names[t], value);
    pd_data_close(&set);
  }
}

Test(arrays, signs_are_kept) {
  const int64_t y[] = {-100, 3};
  const float x[12] = {-1.5f, 2};
  put_npy("x.npy", "<f4", "(2, 6)", x, sizeof x);
  put_npy("y.npy", "<i8", "(2,)", y, sizeof y);
  pd_data data = must_open(&image, "train", ".");
  float row[6];
  int32_t label;
  read_row(&data, 0, 0, 0, row);
  cr_assert_eq(row[0], -1.5f);
  cr_assert_eq(read_row(&data, 1, 0, 0, &label), 0, "an ignored target is not counted");
  cr_assert_eq(label, PD_IGNORE);
  cr_assert_eq(read_row(&data, 1, 1, 0, &label), 1);
  cr_assert_eq(label, 3);
  pd_data_close(&data);
}

Test(arrays, only_minus_100_is_ignored_and_only_in_targets) {
  const int32_t y[] = {-1, -100, -101, 10, 9};
  const float x[30] = {0};
  put_npy("x.npy", "<f4", "(5, 6)", x, sizeof x);
  put_npy("y.npy", "<i4", "(5,)", y, sizeof y);
  pd_data data = must_open(&image, "train", ".");
  row_refused(&data, 1, 0, "id -1 at position 0", "0 .. 9 (limit 10) or -100");
  read_row(&data, 1, 1, 0, NULL);
  row_refused(&data, 1, 2, "id -101 at position 2", "y.npy");
  row_refused(&data, 1, 3, "id 10 at position 3", "limit 10");
  read_row(&data, 1, 4, 0, NULL);
  pd_data_close(&data);
  const int64_t wide[] = {INT64_C(4294967296), 0, 0, 0, 0};
  put_npy("y.npy", "<i8", "(5,)", wide, sizeof wide);
  data = must_open(&image, "train", ".");
  row_refused(&data, 1, 0, "id 4294967296", "limit 10");
  pd_data_close(&data);
  pd_data_info inputs[2] = {image_inputs[0], image_inputs[1]};
  inputs[1].is_target = false;
  pd_program program = image;
  program.data = inputs;
  put_npy("y.npy", "<i4", "(5,)", y, sizeof y);
  data = must_open(&program, "train", ".");
  row_refused(&data, 1, 1, "id -100", "0 .. 9 (limit 10)");
  pd_data_close(&data);
}

static const unsigned char idx_x[] = {0, 0, 8, 3,  0,   0,   0,   2,   0, 0, 0, 2, 0, 0,
                                      0, 3, 0, 51, 102, 153, 204, 255, 1, 2, 3, 4, 5, 6};
static const unsigned char idx_y[] = {0, 0, 8, 1, 0, 0, 0, 2, 7, 9};

static void check_images(const char *command, float scale) {
  pd_data data = must_open(&image, "train", command);
  float row[6];
  int32_t label;
  cr_assert_eq(data.samples, 2);
  read_row(&data, 0, 0, 0, row);
  for (int i = 0; i < 6; i++) cr_assert_float_eq(row[i], 51.0f * (float)i * scale, 1e-6f * 51);
  read_row(&data, 1, 1, 0, &label);
  cr_assert_eq(label, 9);
  pd_data_close(&data);
}

Test(arrays, idx_plain_and_compressed) {
  put("x", idx_x, sizeof idx_x);
  put("y", idx_y, sizeof idx_y);
  put_gzip("x.gz", idx_x, sizeof idx_x);
  put_gzip("y.gz", idx_y, sizeof idx_y);
  check_images("x=x,y=y", 1 / 255.0f);
  check_images("x=x.gz,y=y.gz", 1 / 255.0f);
}

Test(arrays, idx_scaled_by_the_section) {
  put("x", idx_x, sizeof idx_x);
  put("y", idx_y, sizeof idx_y);
  const pd_text_pair section[] = {{"scale", "2"}, {"train.x", "x"}, {"train.y", "y"}};
  pd_program program = image;
  program.section_data = section;
  program.section_data_count = 3;
  pd_data data = must_open(&program, "train", NULL);
  float row[6];
  read_row(&data, 0, 0, 0, row);
  cr_assert_eq(row[5], 510);
  int32_t label;
  read_row(&data, 1, 0, 0, &label);
  cr_assert_eq(label, 7, "whole-number inputs are not scaled");
  pd_data_close(&data);
}

Test(arrays, idx_of_reals_is_big_endian) {
  const unsigned char file[] = {0, 0, 0x0D, 1, 0, 0, 0, 1, 0xc0, 0x20, 0, 0};
  put("v", file, sizeof file);
  const pd_data_info input = {.name = "v", .rank = 0, .elements = 1, .split_axis = PD_NONE};
  pd_program program = {.real_bytes = 4,
                        .tp = 1,
                        .batch = 1,
                        .data_count = 1,
                        .data = &input,
                        .segment_count = 1,
                        .segments = &reads_both};
  pd_data data = must_open(&program, "train", "v=v");
  float value;
  read_row(&data, 0, 0, 0, &value);
  cr_assert_eq(value, -2.5f);
  pd_data_close(&data);
}

Test(arrays, tensor_parallel_ranks_take_their_part) {
  const float x[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  put_npy("x.npy", "<f4", "(1, 2, 4, 2)", x, sizeof x);
  pd_data_info input = {.name = "x", .rank = 3, .shape = {2, 4, 2}, .elements = 8, .split_axis = 1};
  pd_program program = {.real_bytes = 4,
                        .tp = 2,
                        .batch = 1,
                        .data_count = 1,
                        .data = &input,
                        .segment_count = 1,
                        .segments = &reads_both};
  pd_data data = must_open(&program, "train", "x=x.npy");
  const float want[2][8] = {{0, 1, 2, 3, 8, 9, 10, 11}, {4, 5, 6, 7, 12, 13, 14, 15}};
  for (int rank = 0; rank < 2; rank++) {
    float row[8];
    read_row(&data, 0, 0, rank, row);
    cr_assert_arr_eq(row, want[rank], sizeof row);
  }
  pd_data_close(&data);
  const int32_t ids[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  put_npy("x.npy", "<i4", "(1, 2, 4, 2)", ids, sizeof ids);
  input.is_integer = true;
  data = must_open(&program, "train", "x=x.npy");
  int32_t part[8];
  cr_assert_eq(read_row(&data, 0, 0, 1, part), 16, "counts are those of the whole sample");
  for (int i = 0; i < 8; i++) cr_assert_eq(part[i], (int)want[1][i]);
  pd_data_close(&data);
}

Test(arrays, what_is_missing_or_does_not_fit) {
  const float x[12] = {0};
  const int32_t y[3] = {0};
  put_npy("x.npy", "<f4", "(2, 6)", x, sizeof x);
  put_npy("y.npy", "<i4", "(3,)", y, sizeof y);
  refused(&image, "x=x.npy", "input `y`", "no train data");
  refused(&image, "x=x.npy,y=y.npy", "`y.npy`: holds 3 samples", "`x.npy` holds 2");
  refused(&image, "x=x.npy,x=x.npy", "`x`", "twice");
  refused(&image, "z=x.npy", "no input `z`", "`x`, `y`");
  refused(&image, "x=x.npy,y", "`y`", "input=file");
  refused(&image, "x=y.npy", "`y.npy`: a sample has shape []", "has [6]");
  refused(&image, "y=x.npy", "holds reals", "`y`");
  refused(&image, "x.npy", "one array", "2 inputs");
  put_npy("x.npy", "<f4", "(2, 3, 2)", x, sizeof x); /* a flattened sample is the same sample */
  put_npy("y.npy", "<i4", "(2, 1)", y, 8);
  pd_data data = must_open(&image, "train", "x=x.npy,y=y.npy");
  pd_data_close(&data);
  cr_assert_eq(unlink("y.npy"), 0);
  refused(&image, ".", "holds no `y.npy`", "`y`");
}

/* ---- malformed files ---- */

static const pd_data_info one_input = {.name = "v", .rank = 1, .shape = {2}, .elements = 2, .split_axis = PD_NONE};
static const pd_program one = {.real_bytes = 4,
                               .tp = 1,
                               .batch = 1,
                               .data_count = 1,
                               .data = &one_input,
                               .segment_count = 1,
                               .segments = &reads_both};

static void bad(const void *bytes, size_t n, const char *place, const char *expected) {
  put("bad", bytes, n);
  refused(&one, "v=bad", "`bad`", place);
  refused(&one, "v=bad", "expected", expected);
}

Test(malformed, no_array_at_all) {
  bad("hello, world", 12, "byte 0", "a .npy file");
  bad("", 0, "byte 0", "a .npy file");
  bad("\x93NUMP", 5, "byte 0", "a .npy file");
}

Test(malformed, npy_headers) {
  bad("\x93NUMPY\x01", 7, "byte 7", "but the file ends");
  bad("\x93NUMPY\x03\x00\x02\x00\x00\x00{}", 14, "byte 6", "version 1.0 or 2.0");
  bad("\x93NUMPY\x01\x00\xff\x00{'descr'", 18, "byte 18", "the rest of the .npy header");
  bad("\x93NUMPY\x02\x00\xff\xff\xff\xff{}", 14, "byte 8", "less than 64 KiB");
  bad("\x93NUMPY\x01\x00\x02\x00[]", 12, "byte 10", "`{`");
  bad("\x93NUMPY\x01\x00\x02\x00{}", 12, "byte 10", "all of 'descr'");
  bad("\x93NUMPY\x01\x00\x0d\x00{'shape':(2)x}", 23, "byte 22", "`,` or `}`");
  bad("\x93NUMPY\x01\x00\x18\x00{'shape':(),'shape':()  }", 34, "byte 22", "each once");
}

static void bad_npy(const char *type, const char *shape, size_t bytes, const char *place, const char *expected) {
  const unsigned char data[64] = {0};
  put_npy("bad", type, shape, data, bytes);
  refused(&one, "v=bad", "`bad`", place);
  refused(&one, "v=bad", "expected", expected);
}

Test(malformed, npy_contents) {
  bad_npy(">f4", "(1, 2)", 8, "byte 20", "little-endian type");
  bad_npy("<c8", "(1, 2)", 16, "byte 20", "little-endian type");
  bad_npy("<f4", "(1, -2)", 8, "byte ", "a shape");
  bad_npy("<f4", "(99999999999999999999, 2)", 8, "byte ", "a shape");
  bad_npy("<f4", "(4611686018427387904, 2)", 8, "byte ", "fits 63 bits");
  bad_npy("<f4", "(1, 1, 1, 1, 1, 1, 1, 1, 1, 2)", 8, "byte ", "a shape");
  bad_npy("<f4", "()", 4, "byte ", "number of samples");
  bad_npy("<f4", "(1, 2)", 7, "byte ",
          "more elements, but the file ends: the header promises 8 bytes of elements, 7 are there");
  bad_npy("<f4", "(1, 2)", 9, "byte ", "the end of the file");
  bad_npy("<f4", "(1000000000, 1000000)", 8, "byte ", "more elements");
  const unsigned char data[8] = {0};
  put_npy("bad", "<f4', 'fortran_order': True, 'x': '", "(1, 2)", data, 8);
  refused(&one, "v=bad", "`bad`", "C order");
  put_npy("bad", "<f4", "(0, 2)", data, 0);
  refused(&one, "v=bad", "no sample", "train");
}

Test(malformed, idx_files) {
  bad("\0\0\x07\x01\0\0\0\x01", 8, "byte 2", "IDX element type");
  bad("\0\0\x08\0\0\0\0\x01", 8, "byte 3", "IDX rank");
  bad("\0\0\x08\x0a\0\0\0\x01", 8, "byte 3", "IDX rank");
  bad("\0\0\x08\x02\0\0\0\x01\0\0", 10, "byte 10", "sizes of an IDX header");
  bad("\0\0\x08\x02\0\0\0\x01\0\0\0\x02x", 13, "byte 13", "more elements");
  bad("\0\0\x08\x02\0\0\0\x01\0\0\0\x02xyz", 15, "byte 14", "the end of the file");
  bad("\0\0\x0e\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16, "byte 4", "fits 63 bits");
}

Test(malformed, gzip_files) {
  unsigned char packed[200];
  unsigned char file[12 + 2] = {0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 2, 5, 6};
  put_gzip("good", file, sizeof file);
  FILE *from = fopen("good", "r");
  const size_t n = fread(packed, 1, sizeof packed, from);
  fclose(from);
  put("bad", packed, n - 12);
  refused(&one, "v=bad", "`bad`", "expected");
  packed[n - 6] ^= 1; /* the checksum */
  put("bad", packed, n);
  refused(&one, "v=bad", "`bad`", "damaged gzip data");
  put_gzip("bad", file, 13);
  refused(&one, "v=bad", "`bad`", "more elements");
  put("bad", "\x1f\x8b", 2);
  refused(&one, "v=bad", "`bad`", "");
}

Test(malformed, a_compressed_text) {
  put_gzip("text.gz", "To be, or not to be, that is the question.", 42);
  refused(&language, "text.gz", "`text.gz`", "unpack it first");
  refused(&one, "text.gz", "`text.gz`", "unpack it first");
  pd_text_pair format = {"format", "text"};
  pd_program text = language;
  text.section_data = &format;
  text.section_data_count = 1;
  refused(&text, "text.gz", "`text.gz`", "unpack it first");
}

Test(malformed, a_gzip_bomb_is_not_inflated) {
  static const unsigned char header[12] = {0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 2}, zeros[1 << 16];
  gzFile file = gzopen("bad", "wb1");
  gzwrite(file, header, sizeof header);
  for (int i = 0; i < 4096; i++) gzwrite(file, zeros, sizeof zeros);
  gzclose(file);
  refused(&one, "v=bad", "`bad`", "the end of the file: the header promises 2 bytes");
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  cr_assert(usage.ru_maxrss < 100000, "took %ld kB for a file of 256 MB", usage.ru_maxrss);
}
