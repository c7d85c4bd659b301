/* A target for libFuzzer: everything but programs that is read from outside. The first byte says by what:
 *   d  a plan, schedule or CSV, as `pdc certify`, `pdc diff` and `pdc schedule --from` read it
 *   l  a layout string       s  safetensors       a  an array file (npy, IDX, compressed)       t  a stream of tokens
 *   r  the language server's input       m  messages for it, one a line, after `initialize`
 * Beside what ASan and UBSan find: what is refused is refused with a reason, what is accepted can be used to its end,
 * and a document that is written again reads back the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "artifact/document.h"
#include "artifact/draw.h"
#include "data.h"
#include "lsp/lsp.h"
#include "pipeline/layout_string.h"
#include "safetensors.h"

static void promise(bool kept, const char *what) {
  if (kept) return;
  fprintf(stderr, "broken promise: %s\n", what);
  abort();
}

/* ---- documents ---- */

static void read_document(const char *text, size_t length) {
  Arena *arena = arena_new();
  Document document, again;
  const char *why = document_read(arena, text, length, &document);
  promise(!why || *why, "a refused document has a reason");
  if (!why) {
    Measure measure;
    Text out = {.arena = arena};
    document_measure(arena, &document, &measure);
    document_check_claims(arena, &document, &measure);
    promise(document_diff(arena, &document, &document, &out), "a document is equal to itself");
    if (!measure.why) {
      draw_text(arena, &document, &measure, 100, &out);
      draw_svg(arena, &document, &measure, &out);
      draw_trace(arena, &document, &measure, &out);
    }
    if (!measure.why && document.form == DOCUMENT_SCHEDULE) {
      Text written = {.arena = arena};
      schedule_write_json(&document, &measure, &written);
      const char *refused = document_read(arena, written.at, written.length, &again);
      promise(!refused, "what was written is read");
      document_free(&again);
    }
  }
  document_free(&document);
  arena_free(arena);
}

static void read_layout(const char *text) {
  Arena *arena = arena_new();
  Layout layout = {0};
  const char *why = layout_parse(arena, text, &layout);
  promise(!why || *why, "a refused layout has a reason");
  arena_free(arena);
}

/* ---- files of data ---- */

/* The bytes as a file; its path. */
static int as_file(const char *text, size_t length, char path[64]) {
  int file = memfd_create("fuzz", MFD_CLOEXEC);
  if (file < 0 || write(file, text, length) != (ssize_t)length) abort();
  snprintf(path, 64, "/proc/self/fd/%d", file);
  return file;
}

static void read_safetensors(const char *path) {
  pd_problem problem = {""};
  pd_safetensors file;
  if (!pd_safetensors_open(&file, path, &problem)) {
    promise(problem.text[0], "a refused file has a reason");
    return;
  }
  for (int64_t i = 0; i < file.count; i++) {
    const pd_tensor *tensor = &file.tensors[i];
    promise(pd_safetensors_find(&file, tensor->name) == tensor, "a tensor is found by its name");
    if (!pd_safetensors_is_real(tensor) || tensor->elements == 0) continue;
    double first, last;
    pd_safetensors_read(&file, tensor, 0, 1, 8, &first);
    pd_safetensors_read(&file, tensor, tensor->elements - 1, 1, 8, &last);
  }
  pd_safetensors_close(&file);
}

/* A model of an array and its classes, or of tokens and those that follow them. */
static pd_data_info inputs[2];
static pd_program program_for(bool tokens, int format) {
  static const char *const formats[] = {"text", "u16", "u32", "npy", "idx"};
  static pd_text_pair pairs[2];
  pairs[0] = (pd_text_pair){"format", formats[format % 5]};
  inputs[0] =
      (pd_data_info){.name = "x", .is_integer = tokens, .rank = 1, .shape = {4}, .elements = 4, .split_axis = PD_NONE};
  inputs[1] = (pd_data_info){.name = "y",
                             .is_integer = true,
                             .rank = 1,
                             .shape = {4},
                             .elements = 4,
                             .split_axis = PD_NONE,
                             .is_target = true};
  inputs[0].limit = tokens ? 200 : 0;
  inputs[1].limit = 200;
  return (pd_program){.real_bytes = 4,
                      .pp = 1,
                      .dp = 1,
                      .tp = 1,
                      .batch = 2,
                      .microbatch = 1,
                      .microbatches = 2,
                      .data_count = tokens ? 2 : 1,
                      .data = inputs,
                      .section_data = pairs,
                      .section_data_count = format < 5};
}

static void read_data(const char *path, bool tokens, int format) {
  pd_program program = program_for(tokens, format);
  pd_problem problem = {""};
  pd_data data = {.program = NULL};
  if (!pd_data_open(&data, &program, "train", path, -1, &problem)) {
    promise(problem.text[0], "refused data have a reason");
    return;
  }
  const int64_t ends[2] = {0, data.samples - 1};
  for (int end = 0; end < 2 && data.samples > 0; end++) {
    for (int input = 0; input < program.data_count; input++) {
      int32_t row[4];
      int64_t counted;
      pd_data_row(&data, input, ends[end], 0, row, &counted, &problem);
    }
  }
  for (uint64_t step = 0; step < 3 && data.samples >= program.batch; step++) {
    int64_t sample = pd_data_sample(&data, step, 1);
    promise(sample >= 0 && sample < data.samples, "a step reads samples that are there");
  }
  pd_data_close(&data);
}

/* ---- the language server ---- */

static void serve(const char *text, size_t length) {
  if (length == 0) return;
  FILE *in = fmemopen((void *)(uintptr_t)text, length, "r"), *out = fopen("/dev/null", "w");
  if (!in || !out) abort();
  lsp_serve(in, out, NULL, 0);
  fclose(in);
  fclose(out);
}

static void serve_lines(const char *text, size_t length) {
  static const char initialize[] = "{\"id\":0,\"method\":\"initialize\"}";
  Arena *arena = arena_new();
  Text stream = {.arena = arena};
  text_printf(&stream, "Content-Length: %zu\r\n\r\n%s", sizeof initialize - 1, initialize);
  while (length > 0) {
    const char *end = memchr(text, '\n', length);
    size_t line = end ? (size_t)(end - text) : length;
    text_printf(&stream, "Content-Length: %zu\r\n\r\n", line);
    text_put(&stream, text, line);
    length -= end ? line + 1 : line;
    text += end ? line + 1 : line;
  }
  serve(stream.at, stream.length);
  arena_free(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length) {
  if (length < 2) return -1;
  char *text = malloc(length), path[64]; /* to the byte, and NUL-terminated as all texts are */
  if (!text) abort();
  memcpy(text, data + 1, length - 1);
  text[length - 1] = '\0';
  int file = strchr("sat", data[0]) && data[0] ? as_file(text, length - 1, path) : -1;
  switch (data[0]) {
  case 'd':
    read_document(text, length - 1);
    break;
  case 'l':
    read_layout(text);
    break;
  case 's':
    read_safetensors(path);
    break;
  case 'a':
    read_data(path, false, 5);
    break;
  case 't':
    read_data(path, true, data[1] % 6);
    break;
  case 'r':
    serve(text, length - 1);
    break;
  case 'm':
    serve_lines(text, length - 1);
    break;
  default:
    free(text);
    return -1;
  }
  if (file >= 0) close(file);
  free(text);
  return 0;
}
