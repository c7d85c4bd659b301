/* Diagnostics as a user sees them, pinned as whole texts: excerpts with labels on one and several lines, stacked and
 * beside each other, in several files; tabs, wide characters, control bytes; the three formats, colour, order, limits.
 * Also what reports stand on: the arena, growing text, interned names, edit distance, UTF-8. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "support/diag.h"
#include "support/utf8.h"

typedef struct Fixture {
  Arena *arena;
  Diagnostics *all;
  const char *text; /* of file 0 */
} Fixture;

static Fixture fixture(const char *text) {
  Fixture made = {.arena = arena_new(), .text = text};
  made.all = diagnostics_new(made.arena);
  diag_add_source(made.all, "m.pd", text, strlen(text));
  return made;
}

/* The span of the `nth` (from 0) occurrence of `words` in file 0. */
static Span find_nth(const Fixture *in, const char *words, unsigned nth) {
  const char *at = strstr(in->text, words);
  for (; nth > 0 && at != NULL; nth--) at = strstr(at + 1, words);
  cr_assert_not_null(at, "no `%s` in the text", words);
  uint32_t begin = (uint32_t)(at - in->text);
  return (Span){0, begin, begin + (uint32_t)strlen(words)};
}

static Span find(const Fixture *in, const char *words) {
  return find_nth(in, words, 0);
}

static Span from_to(const Fixture *in, const char *first, const char *last) {
  return span_join(find(in, first), find(in, last));
}

static void renders_with(const Fixture *in, DiagFormat format, bool color, const char *expected) {
  char *bytes = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&bytes, &size);
  diag_render(in->all, out, format, color);
  fclose(out);
  cr_assert_str_eq(bytes, expected);
  free(bytes);
  arena_free(in->arena);
}

static void renders(const Fixture *in, const char *expected) {
  renders_with(in, DIAG_TEXT, false, expected);
}

/* --- excerpts --- */

/* The example of the language page, line numbers and all. */
Test(text, contraction_of_the_wrong_axis) {
  Fixture in = fixture("\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n"
                       "  param w1: [embed, ffn], b1: [ffn] = 0, w2: [ffn, embed], b2: [embed] = 0;\n"
                       "  return gelu(x @ w1 + b1) + x @ w2;\n");
  Span at = find_nth(&in, "@", 1);
  Diag *diag = diag_error(in.all, "E0301", at, "`@` cannot contract `%s` with `%s`", "embed", "ffn");
  diag_label(diag, find(&in, "w2: [ffn, embed]"), "`w2` starts with `ffn` = %d", 49152);
  diag_label(diag, (Span){0, at.begin - 2, at.begin - 1}, "`x` ends with `embed` = 12288");
  diag_note(diag, "embed = heads * head = 96 * 128 (gpt3.pd:3:57)");
  diag_help(diag, "contract with `w1`, or apply `w2` to `gelu(x @ w1 + b1)`");
  renders(&in, "error[E0301]: `@` cannot contract `embed` with `ffn`\n"
               "  --> m.pd:22:32\n"
               "   |\n"
               "21 |   param w1: [embed, ffn], b1: [ffn] = 0, w2: [ffn, embed], b2: [embed] = 0;\n"
               "   |                                          ---------------- `w2` starts with `ffn` = 49152\n"
               "22 |   return gelu(x @ w1 + b1) + x @ w2;\n"
               "   |                              - ^\n"
               "   |                              |\n"
               "   |                              `x` ends with `embed` = 12288\n"
               "   = note: embed = heads * head = 96 * 128 (gpt3.pd:3:57)\n"
               "   = help: contract with `w1`, or apply `w2` to `gelu(x @ w1 + b1)`\n\n");
}

Test(text, one_label_beside) {
  Fixture in = fixture("const a = b;\n");
  diag_primary(diag_error(in.all, "E0201", find(&in, "b"), "unknown name"), "not declared");
  renders(&in, "error[E0201]: unknown name\n"
               " --> m.pd:1:11\n"
               "  |\n"
               "1 | const a = b;\n"
               "  |           ^ not declared\n\n");
}

Test(text, three_labels_stack) {
  Fixture in = fixture("vec.push(vec.pop());\n");
  Diag *diag = diag_error(in.all, "E0001", find(&in, "push"), "stack");
  diag_primary(diag, "this makes no sense");
  diag_label(diag, find(&in, "vec"), "first");
  diag_label(diag, find(&in, "pop"), "last");
  renders(&in, "error[E0001]: stack\n"
               " --> m.pd:1:5\n"
               "  |\n"
               "1 | vec.push(vec.pop());\n"
               "  | --- ^^^^     --- last\n"
               "  | |   |\n"
               "  | |   this makes no sense\n"
               "  | first\n\n");
}

Test(text, short_labels_share_a_row) {
  Fixture in = fixture("aaaaaaaaaa bbbbbbbbbb cccccccccc\n");
  Diag *diag = diag_error(in.all, "E0001", find(&in, "cccccccccc"), "share");
  diag_primary(diag, "c");
  diag_label(diag, find(&in, "aaaaaaaaaa"), "a");
  diag_label(diag, find(&in, "bbbbbbbbbb"), "b");
  renders(&in, "error[E0001]: share\n"
               " --> m.pd:1:23\n"
               "  |\n"
               "1 | aaaaaaaaaa bbbbbbbbbb cccccccccc\n"
               "  | ---------- ---------- ^^^^^^^^^^ c\n"
               "  | |          |\n"
               "  | a          b\n\n");
}

Test(text, labels_overlap) {
  Fixture in = fixture("y = f(a @ b);\n");
  Diag *diag = diag_error(in.all, "E0001", find(&in, "@"), "overlap");
  diag_primary(diag, "here");
  diag_label(diag, find(&in, "a @ b"), "the product");
  diag_label(diag, find(&in, "f(a @ b)"), "the call");
  renders(&in, "error[E0001]: overlap\n"
               " --> m.pd:1:9\n"
               "  |\n"
               "1 | y = f(a @ b);\n"
               "  |     ----^---\n"
               "  |     | | |\n"
               "  |     | | here\n"
               "  |     | the product\n"
               "  |     the call\n\n");
}

Test(text, two_labels_at_one_place) {
  Fixture in = fixture("y = f;\n");
  Diag *diag = diag_error(in.all, "E0001", find(&in, "f"), "same place");
  diag_primary(diag, "one");
  diag_label(diag, find(&in, "f"), "two");
  renders(&in, "error[E0001]: same place\n"
               " --> m.pd:1:5\n"
               "  |\n"
               "1 | y = f;\n"
               "  |     ^\n"
               "  |     |\n"
               "  |     two\n"
               "  |     one\n\n");
}

Test(text, lines_between) {
  Fixture in = fixture("one\ntwo\nthree\nfour\nfive\nsix\nseven\n");
  Diag *diag = diag_error(in.all, "E0001", find(&in, "seven"), "gaps");
  diag_label(diag, find(&in, "one"), "a");
  diag_label(diag, find(&in, "three"), "b");
  renders(&in, "error[E0001]: gaps\n"
               " --> m.pd:7:1\n"
               "  |\n"
               "1 | one\n"
               "  | --- a\n"
               "2 | two\n"
               "3 | three\n"
               "  | ----- b\n"
               "...\n"
               "7 | seven\n"
               "  | ^^^^^\n\n");
}

Test(text, a_span_of_several_lines) {
  Fixture in = fixture("block f {\n  a = 1;\n  b = 2;\n  c = 3;\n}\n");
  diag_primary(diag_error(in.all, "E0001", from_to(&in, "block", "}"), "long"), "all of it");
  renders(&in, "error[E0001]: long\n"
               " --> m.pd:1:1\n"
               "  |\n"
               "1 | / block f {\n"
               "... |\n"
               "5 | | }\n"
               "  | |_^ all of it\n\n");
}

Test(text, a_span_of_several_lines_from_the_middle) {
  Fixture in = fixture("  x = f(1,\n    2,\n    3);\n");
  Diag *diag = diag_error(in.all, "E0001", from_to(&in, "f(", "3)"), "call");
  diag_primary(diag, "these arguments");
  diag_label(diag, find(&in, "2"), "the second");
  renders(&in, "error[E0001]: call\n"
               " --> m.pd:1:7\n"
               "  |\n"
               "1 |     x = f(1,\n"
               "  |  _______^\n"
               "2 | |     2,\n"
               "  | |     - the second\n"
               "3 | |     3);\n"
               "  | |______^ these arguments\n\n");
}

Test(text, spans_of_several_lines_nest_and_cross) {
  Fixture in = fixture("block f {\n  d = foo(1,\n    2,\n    3);\n}\n");
  Diag *diag = diag_error(in.all, "E0001", from_to(&in, "block", "}"), "nest");
  diag_primary(diag, "outer");
  diag_label(diag, from_to(&in, "foo", "3)"), "inner");
  renders(&in, "error[E0001]: nest\n"
               " --> m.pd:1:1\n"
               "  |\n"
               "1 | /  block f {\n"
               "2 | |    d = foo(1,\n"
               "  | | _______-\n"
               "3 | ||     2,\n"
               "4 | ||     3);\n"
               "  | ||______- inner\n"
               "5 | |  }\n"
               "  | |__^ outer\n\n");
  in = fixture("  d = foo(1,\n    2,\n    3);\n");
  diag = diag_error(in.all, "E0001", from_to(&in, "foo", "3)"), "cross");
  diag_primary(diag, "later");
  diag_label(diag, from_to(&in, "d =", "2"), "sooner");
  renders(&in, "error[E0001]: cross\n"
               " --> m.pd:1:7\n"
               "  |\n"
               "1 | /    d = foo(1,\n"
               "  | | _______^\n"
               "2 | ||     2,\n"
               "  | ||_____- sooner\n"
               "3 |  |     3);\n"
               "  |  |______^ later\n\n");
}

Test(text, several_files) {
  Fixture in = fixture("x\ny\n");
  uint32_t other = diag_add_source(in.all, "std/nn.pd", "a\nb\nblock layernorm\n", 20);
  Diag *diag = diag_error(in.all, "E0202", find(&in, "y"), "declared twice");
  diag_label(diag, (Span){other, 4, 9}, "first here");
  renders(&in, "error[E0202]: declared twice\n"
               " --> m.pd:2:1\n"
               "  |\n"
               "2 | y\n"
               "  | ^\n"
               " ::: std/nn.pd:3:1\n"
               "  |\n"
               "3 | block layernorm\n"
               "  | ----- first here\n\n");
}

Test(text, no_place) {
  Fixture in = fixture("x\n");
  Diag *diag = diag_error(in.all, "E0206", NO_SPAN, "`-D laers=3` names nothing");
  diag_label(diag, NO_SPAN, "never shown");
  diag_note(diag, "first line\nsecond line");
  diag_help(diag, "did you mean `layers`?");
  renders(&in, "error[E0206]: `-D laers=3` names nothing\n"
               "  = note: first line\n"
               "          second line\n"
               "  = help: did you mean `layers`?\n\n");
}

Test(text, gaps_and_ends) {
  Fixture in = fixture("ab\n\ncd");
  diag_primary(diag_error(in.all, "E0001", (Span){0, 2, 2}, "after a line"), "here");
  diag_primary(diag_error(in.all, "E0002", (Span){0, 3, 3}, "on an empty line"), "here");
  diag_primary(diag_error(in.all, "E0003", (Span){0, 6, 6}, "at the end"), "here");
  diag_primary(diag_error(in.all, "E0004", (Span){0, 90, 99}, "beyond the end"), "here");
  diag_primary(diag_error(in.all, "E0005", (Span){0, 0, 3}, "with its line end"), "here");
  renders(&in, "error[E0005]: with its line end\n --> m.pd:1:1\n  |\n1 | ab\n  | ^^ here\n\n"
               "error[E0001]: after a line\n --> m.pd:1:3\n  |\n1 | ab\n  |   ^ here\n\n"
               "error[E0002]: on an empty line\n --> m.pd:2:1\n  |\n2 |\n  | ^ here\n\n"
               "error[E0003]: at the end\n --> m.pd:3:3\n  |\n3 | cd\n  |   ^ here\n\n"
               "error[E0004]: beyond the end\n --> m.pd:3:3\n  |\n3 | cd\n  |   ^ here\n\n");
}

/* --- characters --- */

Test(text, tabs_and_wide_characters_line_up) {
  Fixture in = fixture("\ta\tb\n\xe4\xb8\xad\xe6\x96\x87 x e\xcc\x81 y\n");
  diag_primary(diag_error(in.all, "E0001", find(&in, "b"), "tab"), "b");
  diag_primary(diag_error(in.all, "E0002", find(&in, "x"), "wide"), "x");
  diag_primary(diag_error(in.all, "E0003", find(&in, "\xe6\x96\x87"), "wide"), "two columns");
  diag_primary(diag_error(in.all, "E0004", find(&in, "y"), "combining"), "y");
  renders(&in, "error[E0001]: tab\n --> m.pd:1:4\n  |\n1 |     a    b\n  |          ^ b\n\n"
               "error[E0003]: wide\n --> m.pd:2:2\n  |\n2 | \xe4\xb8\xad\xe6\x96\x87 x e y\n  |   ^^ two columns\n\n"
               "error[E0002]: wide\n --> m.pd:2:4\n  |\n2 | \xe4\xb8\xad\xe6\x96\x87 x e y\n  |      ^ x\n\n"
               "error[E0004]: combining\n --> m.pd:2:9\n  |\n2 | \xe4\xb8\xad\xe6\x96\x87 x e y\n  |          ^ y\n\n");
}

Test(text, control_bytes_are_shown_never_sent) {
  Fixture in = fixture("a \x1b[31m \x07 \xff \xc2\x9b \xe2\x80\xae z\r\n");
  Diag *diag = diag_error(in.all, "E0001", find(&in, "z"), "name `\x1b]0;t\x07` and \xff\nnext");
  diag_primary(diag, "label \x1b[2J");
  diag_note(diag, "note \x08");
  diag_help(diag, "help \xe2\x80\x8b");
  renders(&in, "error[E0001]: name `\\x1b]0;t\\x07` and \\xff next\n"
               " --> m.pd:1:17\n"
               "  |\n"
               "1 | a \\x1b[31m \\x07 \\xff \\u{9b} \\u{202e} z\n"
               "  |                                      ^ label \\x1b[2J\n"
               "  = note: note \\x08\n"
               "  = help: help \\u{200b}\n\n");
}

/* Every byte, in a source, its name, and each text of a report: only printable bytes and line ends come out. */
Test(text, no_control_byte_in_any_format) {
  char bytes[256];
  for (int i = 0; i < 255; i++) bytes[i] = (char)(i + 1);
  bytes[255] = '\0';
  for (int format = DIAG_TEXT; format <= DIAG_JSON; format++) {
    Fixture in = {.arena = arena_new()};
    in.all = diagnostics_new(in.arena);
    diag_add_source(in.all, bytes, bytes, 256);
    Diag *diag = diag_error(in.all, "E0001", (Span){0, 20, 256}, "%s", bytes);
    diag_primary(diag, "%s", bytes);
    diag_label(diag, (Span){0, 128, 255}, "%s", bytes);
    diag_note(diag, "%s", bytes);
    diag_help(diag, "%s", bytes);
    char *out = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&out, &size);
    diag_render(in.all, file, (DiagFormat)format, false);
    fclose(file);
    cr_assert_gt(size, 256u);
    for (size_t at = 0; at < size;) {
      uint32_t code = 0;
      unsigned length = utf8_decode(out + at, size - at, &code);
      cr_assert_neq(length, 0u, "format %d: byte %02x at %zu", format, (unsigned char)out[at], at);
      cr_assert(code == '\n' || !unicode_is_hidden(code), "format %d: U+%04x at %zu", format, code, at);
      at += length;
    }
    free(out);
    arena_free(in.arena);
  }
}

Test(text, a_long_line_is_cut_around_its_label) {
  char line[1001];
  memset(line, 'a', 1000);
  line[1000] = '\0';
  Fixture in = fixture(line);
  diag_primary(diag_error(in.all, "E0001", (Span){0, 500, 504}, "far out"), "here");
  diag_primary(diag_error(in.all, "E0002", (Span){0, 0, 1000}, "all of it"), "everything");
  char expected[2000], row[200], marks[200];
  memset(row, 'a', 154);
  row[154] = '\0';
  memset(marks, '^', 160);
  marks[160] = '\0';
  snprintf(expected, sizeof expected,
           "error[E0002]: all of it\n --> m.pd:1:1\n  |\n1 | aaa%s...\n  | %s everything\n\n"
           "error[E0001]: far out\n --> m.pd:1:501\n  |\n1 | ...%s...\n  | %40s^^^^ here\n\n",
           row, marks, row, "");
  renders(&in, expected);
}

/* --- formats --- */

static Fixture sample(void) {
  Fixture in = fixture("a\nbb \"c\"\n");
  Diag *diag = diag_warning(in.all, "W0101", find(&in, "bb"), "unused `bb`");
  diag_primary(diag, "never read");
  diag_error(in.all, "E0102", NO_SPAN, "no place \"quoted\" \\ \xff");
  diag = diag_error(in.all, "E0101", find(&in, "a"), "first");
  diag_label(diag, find(&in, "\"c\""), "a \"label\"\nof two lines");
  diag_note(diag, "n1");
  diag_note(diag, "n2 \x1b");
  diag_help(diag, "h");
  return in;
}

Test(formats, short_is_one_line_each) {
  Fixture in = sample();
  renders_with(&in, DIAG_SHORT, false,
               "m.pd:1:1: error[E0101]: first\n"
               "m.pd:2:1: warning[W0101]: unused `bb`\n"
               "error[E0102]: no place \"quoted\" \\ \\xff\n");
}

Test(formats, json_is_one_object_each) {
  Fixture in = sample();
  renders_with(
      &in, DIAG_JSON, true,
      "{\"level\":\"error\",\"code\":\"E0101\",\"message\":\"first\",\"file\":\"m.pd\",\"line\":1,\"column\":1,"
      "\"end_line\":1,\"end_column\":2,\"begin\":0,\"end\":1,\"labels\":[{\"file\":\"m.pd\",\"line\":2,"
      "\"column\":4,\"end_line\":2,\"end_column\":7,\"begin\":5,\"end\":8,"
      "\"message\":\"a \\\"label\\\"\\nof two lines\"}],\"notes\":[\"n1\",\"n2 \\u001b\"],\"helps\":[\"h\"]}\n"
      "{\"level\":\"warning\",\"code\":\"W0101\",\"message\":\"unused `bb`\",\"file\":\"m.pd\",\"line\":2,"
      "\"column\":1,\"end_line\":2,\"end_column\":3,\"begin\":2,\"end\":4,\"label\":\"never read\",\"labels\":[],"
      "\"notes\":[],\"helps\":[]}\n"
      "{\"level\":\"error\",\"code\":\"E0102\",\"message\":\"no place \\\"quoted\\\" \\\\ \\ufffd\",\"labels\":[],"
      "\"notes\":[],\"helps\":[]}\n");
}

Test(formats, color) {
  Fixture in = fixture("a b\n");
  Diag *diag = diag_error(in.all, "E0101", find(&in, "b"), "red");
  diag_primary(diag, "p");
  diag_label(diag, find(&in, "a"), "s");
  diag_help(diag, "h");
  renders_with(&in, DIAG_TEXT, true,
               "\x1b[1;31merror[E0101]\x1b[0m\x1b[1m: red\x1b[0m\n"
               "\x1b[1;34m --> \x1b[0mm.pd:1:3\n"
               "\x1b[1;34m  |\x1b[0m\n"
               "\x1b[1;34m1 |\x1b[0m a b\n"
               "\x1b[1;34m  |\x1b[0m \x1b[1;34m-\x1b[0m \x1b[1;31m^\x1b[0m \x1b[1;31mp\x1b[0m\n"
               "\x1b[1;34m  |\x1b[0m \x1b[1;34m|\x1b[0m\n"
               "\x1b[1;34m  |\x1b[0m \x1b[1;34ms\x1b[0m\n"
               "\x1b[1;34m  = \x1b[0m\x1b[1;36mhelp\x1b[0m: h\n\n");
}

/* --- the collection --- */

Test(collection, nothing_renders_as_nothing) {
  Fixture in = fixture("x");
  cr_assert_eq(diag_errors(in.all), 0u);
  renders(&in, "");
}

Test(collection, one_report_for_a_code_and_place) {
  Fixture in = fixture("a b\n");
  diag_error(in.all, "E0101", find(&in, "a"), "first");
  diag_primary(diag_error(in.all, "E0101", find(&in, "a"), "again"), "still a valid report");
  diag_error(in.all, "E0101", find(&in, "b"), "elsewhere");
  diag_error(in.all, "E0102", find(&in, "a"), "another kind");
  diag_error(in.all, "E0103", NO_SPAN, "x");
  diag_error(in.all, "E0103", NO_SPAN, "y");
  diag_error(in.all, "E0103", NO_SPAN, "x");
  cr_assert_eq(diag_errors(in.all), 5u);
  renders_with(&in, DIAG_SHORT, false,
               "m.pd:1:1: error[E0101]: first\n"
               "m.pd:1:1: error[E0102]: another kind\n"
               "m.pd:1:3: error[E0101]: elsewhere\n"
               "error[E0103]: x\n"
               "error[E0103]: y\n");
}

Test(collection, twenty_errors_and_no_more) {
  Fixture in = fixture("abcdefghijklmnopqrstuvwxyz");
  for (uint32_t i = 0; i < 26; i++) {
    cr_assert_eq(diag_full(in.all), i >= 20);
    diag_warning(in.all, "W0001", (Span){0, i, i + 1}, "w");
    diag_error(in.all, "E0001", (Span){0, i, i + 1}, "e");
  }
  cr_assert_eq(diag_errors(in.all), 20u);
  char *bytes = NULL;
  size_t size = 0, lines = 0;
  FILE *out = open_memstream(&bytes, &size);
  diag_render(in.all, out, DIAG_SHORT, false);
  fclose(out);
  for (size_t i = 0; i < size; i++) lines += bytes[i] == '\n';
  cr_assert_eq(lines, 47u);
  cr_assert_str_eq(bytes + size - 34, "too many errors: stopped after 20\n");
  free(bytes);
  arena_free(in.arena);
}

Test(collection, the_last_rule_about_a_warning_decides) {
  Fixture in = fixture("a b c d e\n");
  diag_warning(in.all, "W0001", find(&in, "a"), "kept: no rule yet");
  diag_enable_warning(in.all, NULL, false);
  diag_warning(in.all, "W0001", find(&in, "b"), "dropped");
  diag_enable_warning(in.all, "W0001", true);
  diag_warning(in.all, "W0001", find(&in, "c"), "kept");
  diag_note(diag_warning(in.all, "W0002", find(&in, "d"), "dropped"), "a dropped report can be built on");
  diag_error(in.all, "E0001", find(&in, "e"), "errors are always kept");
  cr_assert_eq(diag_warnings(in.all), 2u);
  renders_with(&in, DIAG_SHORT, false,
               "m.pd:1:1: warning[W0001]: kept: no rule yet\n"
               "m.pd:1:5: warning[W0001]: kept\n"
               "m.pd:1:9: error[E0001]: errors are always kept\n");
}

Test(collection, lines_and_columns) {
  Fixture in = fixture("ab\n\tc\xc3\xa9"
                       "d\r\n\xff"
                       "e");
  const uint32_t expected[][3] = {{0, 1, 1}, {2, 1, 3},  {3, 2, 1},  {4, 2, 2},  {5, 2, 3},
                                  {7, 2, 4}, {10, 3, 1}, {11, 3, 2}, {12, 3, 3}, {99, 3, 3}};
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    uint32_t line, column;
    diag_line_column(in.all, (Span){0, expected[i][0], expected[i][0]}, &line, &column);
    cr_assert(line == expected[i][1] && column == expected[i][2], "offset %u is %u:%u", expected[i][0], line, column);
  }
  uint32_t line = 9, column = 9;
  diag_line_column(in.all, NO_SPAN, &line, &column);
  cr_assert(line == 0 && column == 0);
  cr_assert_null(diag_source(in.all, 1));
  cr_assert_str_eq(diag_source(in.all, 0)->path, "m.pd");
  arena_free(in.arena);
}

/* --- what it stands on --- */

Test(support, arena) {
  Arena *arena = arena_new();
  unsigned char *blocks[400];
  size_t sizes[400];
  for (size_t i = 0; i < 400; i++) { /* small and large ones mixed: aligned, zeroed, apart */
    sizes[i] = i % 7 == 0 ? i * 997 : i % 50;
    blocks[i] = arena_alloc(arena, sizes[i]);
    cr_assert_eq((uintptr_t)blocks[i] % 16, 0u);
    for (size_t j = 0; j < sizes[i]; j++) cr_assert_eq(blocks[i][j], 0);
    memset(blocks[i], (int)(i % 255) + 1, sizes[i]);
  }
  for (size_t i = 0; i < 400; i++)
    for (size_t j = 0; j < sizes[i]; j++) cr_assert_eq(blocks[i][j], i % 255 + 1, "block %zu byte %zu", i, j);
  cr_assert_str_eq(arena_printf(arena, "%s-%03d", "x", 7), "x-007");
  cr_assert_str_eq(arena_strndup(arena, "abcdef", 3), "abc");
  VEC(int) numbers = {0};
  for (int i = 0; i < 1000; i++) vec_push(arena, &numbers, i * i);
  for (uint32_t i = 0; i < 1000; i++) cr_assert_eq(numbers.at[i], (int)(i * i));
  Text text = {.arena = arena};
  for (int i = 0; i < 100; i++) text_printf(&text, "%d,", i);
  text_put(&text, "\0!", 2);
  cr_assert_eq(text.length, 292u);
  cr_assert_eq(text.at[291], '!');
  cr_assert_eq(text.at[292], '\0');
  arena_free(arena);
  arena_free(NULL);
}

Test(support, interned_names_are_one_pointer) {
  Arena *arena = arena_new();
  Intern *names = intern_new(arena);
  const char *first[2000];
  for (int i = 0; i < 2000; i++) first[i] = intern_str(names, arena_printf(arena, "name%d", i));
  for (int i = 0; i < 2000; i++) {
    const char *text = arena_printf(arena, "name%d", i);
    cr_assert_eq(intern(names, text, strlen(text)), first[i]);
    cr_assert_str_eq(first[i], text);
  }
  cr_assert_eq(intern(names, "name1234", 5), first[1]);
  cr_assert_neq(intern_str(names, ""), intern_str(names, "n"));
  arena_free(arena);
}

Test(support, edit_distance) {
  cr_assert_eq(edit_distance("layers", "layers", 3), 0u);
  cr_assert_eq(edit_distance("laers", "layers", 3), 1u);
  cr_assert_eq(edit_distance("lyaers", "layers", 3), 1u); /* neighbours swapped */
  cr_assert_eq(edit_distance("kitten", "sitting", 3), 3u);
  cr_assert_eq(edit_distance("kitten", "sitting", 2), 3u); /* gave up */
  cr_assert_eq(edit_distance("", "abc", 5), 3u);
  cr_assert_eq(edit_distance("abcdef", "uvwxyz", 2), 3u);
  cr_assert_eq(edit_distance("a", "abcdefgh", 3), 4u);
  char longest[300];
  memset(longest, 'x', 299);
  longest[299] = '\0';
  cr_assert_eq(edit_distance(longest, longest, 2), 0u);
  cr_assert_eq(edit_distance(longest, longest + 1, 2), 3u); /* too long to compare */
}

Test(support, utf8) {
  static const struct {
    const char *bytes;
    unsigned length;
    uint32_t code;
  } cases[] = {{"a", 1, 'a'},
               {"\x7f", 1, 0x7f},
               {"\xc2\x80", 2, 0x80},
               {"\xdf\xbf", 2, 0x7ff},
               {"\xe0\xa0\x80", 3, 0x800},
               {"\xef\xbf\xbf", 3, 0xffff},
               {"\xf0\x90\x80\x80", 4, 0x10000},
               {"\xf4\x8f\xbf\xbf", 4, 0x10ffff},
               {"\x80", 0, 0},
               {"\xc0\x80", 0, 0},
               {"\xc1\xbf", 0, 0},
               {"\xe0\x9f\xbf", 0, 0},
               {"\xed\xa0\x80", 0, 0},
               {"\xf0\x8f\xbf\xbf", 0, 0},
               {"\xf4\x90\x80\x80", 0, 0},
               {"\xf5\x80\x80\x80", 0, 0},
               {"\xe2\x82", 0, 0},
               {"\xe2"
                "a\x82",
                0, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint32_t code = 0;
    char back[4];
    cr_assert_eq(utf8_decode(cases[i].bytes, strlen(cases[i].bytes), &code), cases[i].length, "case %zu", i);
    if (cases[i].length == 0) continue;
    cr_assert_eq(code, cases[i].code, "case %zu", i);
    cr_assert_eq(utf8_encode(code, back), cases[i].length);
    cr_assert_eq(memcmp(back, cases[i].bytes, cases[i].length), 0);
  }
}
