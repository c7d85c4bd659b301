/* The syntax of `.pd`: what the tree is for each form, where spans lie, every E01 diagnostic with its words and place,
 * what is still found after a mistake, and limits. Programs stand here as text, so that nothing but the
 * syntax folder is under test. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "unit/syntax_help.h"

/* The one-line reports of a text with mistakes, exactly. */
static void reports_bytes(const char *text, size_t length, const char *expected) {
  Parsed parsed = parse_bytes(text, length);
  cr_assert_str_eq(rendered(&parsed, DIAG_SHORT), expected);
  arena_free(parsed.arena);
}

static void reports(const char *text, const char *expected) {
  reports_bytes(text, strlen(text), expected);
}

/* --- the tree as text --- */

static void show(Text *out, const Expr *expr) {
  static const char *const words[] = {"==", "!=", "<=", ">=", "<", ">", "&&", "||"};
  switch (expr->kind) {
  case EXPR_INT:
    text_printf(out, "%lld", (long long)expr->integer);
    break;
  case EXPR_REAL:
    text_printf(out, "%g", expr->real);
    break;
  case EXPR_STRING:
    text_printf(out, "\"%s\"", expr->string);
    break;
  case EXPR_NAME:
    text_printf(out, "%s", expr->name.text);
    break;
  case EXPR_STAR:
    text_printf(out, "STAR");
    break;
  case EXPR_ERROR:
    text_printf(out, "ERROR");
    break;
  case EXPR_UNARY:
    text_printf(out, "(%c", expr->op);
    show(out, expr->args[0]);
    text_printf(out, ")");
    break;
  case EXPR_BINARY:
  case EXPR_PIPE:
    text_printf(out, "(");
    show(out, expr->args[0]);
    if (expr->kind == EXPR_PIPE)
      text_printf(out, " |> ");
    else if (expr->op >= 256)
      text_printf(out, " %s ", words[expr->op - EXPR_OP_EQ]);
    else
      text_printf(out, " %c ", expr->op);
    show(out, expr->args[1]);
    text_printf(out, ")");
    break;
  case EXPR_CALL:
  case EXPR_TUPLE:
    text_printf(out, "%s[", expr->kind == EXPR_CALL ? expr->name.text : "tuple");
    for (uint32_t i = 0; i < expr->arg_count; i++) {
      if (i > 0) text_printf(out, ", ");
      if (expr->kind == EXPR_CALL && expr->arg_names[i].text != NULL) text_printf(out, "%s=", expr->arg_names[i].text);
      show(out, expr->args[i]);
    }
    text_printf(out, "]");
    break;
  }
}

static const char *shown(const Parsed *parsed, const Expr *expr) {
  Text out = {.arena = parsed->arena};
  show(&out, expr);
  return out.at;
}

static void reads_as(const char *expression, const char *tree) {
  char text[256];
  snprintf(text, sizeof text, "const v = %s;\n", expression);
  Parsed parsed = parse_well(text);
  cr_assert_str_eq(shown(&parsed, parsed.module->items[0]->bindings[0].value), tree, "`%s`", expression);
  arena_free(parsed.arena);
}

static void slice_is(const Parsed *parsed, Span span, const char *expected) {
  cr_assert_eq(span.file, 0u);
  cr_assert_leq(span.end, strlen(parsed->text));
  const char *slice = arena_strndup(parsed->arena, parsed->text + span.begin, span.end - span.begin);
  cr_assert_str_eq(slice, expected);
}

/* --- expressions --- */

Test(syntax, precedence) {
  reads_as("a + b * c", "(a + (b * c))");
  reads_as("a - b - c", "((a - b) - c)");
  reads_as("a / b * c % d", "(((a / b) * c) % d)");
  reads_as("a * b @ c", "(a * (b @ c))");
  reads_as("a @ b * c", "((a @ b) * c)");
  reads_as("a @ b @ c", "((a @ b) @ c)");
  reads_as("x @ wq + bq", "((x @ wq) + bq)");
  reads_as("sdpa(x @ wq + bq, causal=true) @ wo + bo", "((sdpa[((x @ wq) + bq), causal=true] @ wo) + bo)");
  reads_as("-a @ b", "((-a) @ b)");
  reads_as("-a * -b", "((-a) * (-b))");
  reads_as("!a && b", "((!a) && b)");
  reads_as("--1", "(-(-1))");
  reads_as("a + b < c * d", "((a + b) < (c * d))");
  reads_as("a < b && c >= d || e != f", "(((a < b) && (c >= d)) || (e != f))");
  reads_as("a || b && c", "(a || (b && c))");
  reads_as("a == b || c <= d", "((a == b) || (c <= d))");
  reads_as("a || b |> f()", "((a || b) |> f[])");
  reads_as("x |> conv2d(f, stride=s) |> relu()", "((x |> conv2d[f, stride=s]) |> relu[])");
  reads_as("x + (x |> f())", "(x + (x |> f[]))");
  reads_as("(a + b) * c", "((a + b) * c)");
  reads_as("(a < b) == c", "((a < b) == c)");
  reads_as("a > b", "(a > b)");
}

Test(syntax, calls_tuples_and_names) {
  reads_as("f()", "f[]");
  reads_as("nn.layernorm(x)", "nn.layernorm[x]");
  reads_as("cosine(6e-5, 6e-6, warmup=375M, end=260B)", "cosine[6e-05, 6e-06, warmup=375000000, end=260000000000]");
  reads_as("((0.9, 0.95), 1)", "tuple[tuple[0.9, 0.95], 1]");
  reads_as("((x))", "x");
  reads_as("1f1b", "1f1b");
  reads_as("parallel.tp", "parallel.tp");
  reads_as("f(g(x, y=(1, 2)), z)", "f[g[x, y=tuple[1, 2]], z]");
  reads_as("\"a\\tb\\\\\\\"c\\n\"", "\"a\tb\\\"c\n\"");
}

Test(syntax, numbers_are_exact) {
  reads_as("0", "0");
  reads_as("007", "7");
  reads_as("1.2M", "1200000");
  reads_as("375M", "375000000");
  reads_as("1.2345678901T", "1234567890100");
  reads_as("9223372036854775807", "9223372036854775807");
  reads_as("9.223372036854775807e6T", "9223372036854775807");
  reads_as("64KiB", "65536");
  reads_as("1.5KiB", "1536");
  reads_as("3MiB", "3145728");
  reads_as("16GiB", "17179869184");
  reads_as("2B", "2000000000");
  reads_as("1e3K", "1000000");
  reads_as("100e-2K", "1000");
  reads_as("0.0005K", "0.5");
  reads_as("1.0", "1");
  reads_as("1. + 2", "(1 + 2)");
  reads_as(".5", "0.5");
  reads_as("6e-5", "6e-05");
  Parsed parsed = parse_well("const a = 1e4, b = 5, c = 2.0, d = 1.2M, e = 1e30B;");
  const ExprKind kinds[] = {EXPR_REAL, EXPR_INT, EXPR_REAL, EXPR_INT, EXPR_REAL};
  for (uint32_t i = 0; i < 5; i++)
    cr_assert_eq(parsed.module->items[0]->bindings[i].value->kind, kinds[i], "value %u", i);
  cr_assert_float_eq(parsed.module->items[0]->bindings[4].value->real, 1e39, 1e24);
  cr_assert_str_eq(parsed.module->items[0]->bindings[3].value->string, "1.2M");
  arena_free(parsed.arena);
}

/* --- items and statements --- */

Test(syntax, every_item) {
  Parsed parsed = parse_well("pd 1;\nimport \"std/nn.pd\" as nn;\nconst a = 1, b = a * 2;\nconfig const c = true;\n"
                             "dim batch = 8;\nblock f<m, n>(x: [.., m], y: f32[], k=3) -> [.., n] { return x; }\n"
                             "model g(t: i32[batch, seq]) { loss t; }\n");
  Module *module = parsed.module;
  cr_assert_eq(module->item_count, 6u);
  const ItemKind kinds[] = {ITEM_IMPORT, ITEM_CONST, ITEM_CONST, ITEM_DIM, ITEM_BLOCK, ITEM_MODEL};
  for (uint32_t i = 0; i < 6; i++) cr_assert_eq(module->items[i]->kind, kinds[i], "item %u", i);
  slice_is(&parsed, module->edition_span, "pd 1;");
  cr_assert_str_eq(module->items[0]->path, "std/nn.pd");
  cr_assert_str_eq(module->items[0]->name.text, "nn");
  slice_is(&parsed, module->items[0]->path_span, "\"std/nn.pd\"");
  cr_assert_eq(module->items[1]->binding_count, 2u);
  cr_assert(!module->items[1]->config && module->items[2]->config);
  slice_is(&parsed, module->items[2]->span, "config const c = true;");
  const Item *block = module->items[4];
  cr_assert_eq(block->size_count, 2u);
  cr_assert_eq(block->input_count, 3u);
  cr_assert(block->inputs[0].type->leading_run && block->inputs[0].type->dim_count == 1);
  cr_assert_null(block->inputs[0].type->dtype.text);
  cr_assert_str_eq(block->inputs[1].type->dtype.text, "f32");
  cr_assert_eq(block->inputs[1].type->dim_count, 0u);
  cr_assert_null(block->inputs[2].type);
  cr_assert_eq(block->inputs[2].value->integer, 3);
  cr_assert_str_eq(block->sizes[1].text, "n");
  cr_assert_not_null(block->result);
  slice_is(&parsed, block->result->span, "[.., n]");
  cr_assert_null(module->items[5]->result);
  arena_free(parsed.arena);
}

Test(syntax, section_values) {
  Parsed parsed =
      parse_well("schedule < kind=1f1b; chunks=2; layout=\"a b\"; >\nschedule < kind=zb-h1; >\n"
                 "shard < conv.co=tp; >\nparallel < dp=*; tp=a - b; pp=(a < b); ep=-1; cp=a-b; >\ndata < >\n"
                 "schedule < kind=1f1b-v; kind=a - b; kind=(a-b); kind=a-1; >\n");
  const char *values[5][4] = {
      {"1f1b", "2", "\"a b\""}, {"zb-h1"}, {"tp"}, {"STAR", "(a - b)", "(a < b)", "(-1)"}, {NULL}};
  for (uint32_t i = 0; i < 5; i++)
    for (uint32_t j = 0; j < 4 && values[i][j] != NULL; j++)
      cr_assert_str_eq(shown(&parsed, parsed.module->items[i]->bindings[j].value), values[i][j]);
  cr_assert_str_eq(shown(&parsed, parsed.module->items[3]->bindings[4].value), "(a - b)");
  cr_assert_str_eq(parsed.module->items[2]->bindings[0].name.text, "conv.co");
  cr_assert_eq(parsed.module->items[4]->binding_count, 0u);
  const char *kinds[] = {"1f1b-v", "(a - b)", "(a - b)", "(a - 1)"};
  for (uint32_t j = 0; j < 4; j++) {
    const Expr *value = parsed.module->items[5]->bindings[j].value;
    cr_assert_str_eq(shown(&parsed, value), kinds[j]);
    cr_assert_eq(value->kind, j == 0 ? EXPR_NAME : EXPR_BINARY);
  }
  arena_free(parsed.arena);
}

Test(syntax, every_statement) {
  Parsed parsed =
      parse_well("block f(x: [m]) -> [m] {\n  param w: [m, n] = normal(0.1), b: [n];\n  frozen param c: [];\n  y = x;\n"
                 "  a, b, c = split(x);\n  repeat 3 { y = y; }\n  repeat i = 0 .. 2 * k { y = y; }\n"
                 "  if (k == 1) { y = x; } else if (k == 2) { } else { y = b; y = c; }\n  metric acc = y;\n  loss y;\n "
                 " return y;\n}\n");
  Stmt *const *body = parsed.module->items[0]->body;
  cr_assert_eq(parsed.module->items[0]->body_count, 10u);
  cr_assert(body[0]->kind == STMT_PARAM && !body[0]->frozen && body[0]->param_count == 2);
  cr_assert_str_eq(shown(&parsed, body[0]->params[0].init), "normal[0.1]");
  cr_assert_null(body[0]->params[1].init);
  cr_assert(body[1]->kind == STMT_PARAM && body[1]->frozen && body[1]->params[0].type->dim_count == 0);
  cr_assert(body[2]->kind == STMT_ASSIGN && body[2]->target_count == 1);
  cr_assert_eq(body[3]->target_count, 3u);
  cr_assert_str_eq(body[3]->targets[2].text, "c");
  cr_assert(body[4]->kind == STMT_REPEAT && body[4]->index.text == NULL && body[4]->upper == NULL);
  cr_assert_eq(body[4]->value->integer, 3);
  cr_assert_str_eq(body[5]->index.text, "i");
  cr_assert_str_eq(shown(&parsed, body[5]->upper), "(2 * k)");
  cr_assert_eq(body[5]->body_count, 1u);
  cr_assert(body[6]->kind == STMT_IF && body[6]->otherwise_count == 1);
  const Stmt *inner = body[6]->otherwise[0];
  cr_assert(inner->kind == STMT_IF && inner->body_count == 0 && inner->otherwise_count == 2);
  cr_assert(body[7]->kind == STMT_METRIC && strcmp(body[7]->targets[0].text, "acc") == 0);
  cr_assert_eq(body[8]->kind, STMT_LOSS);
  cr_assert_eq(body[9]->kind, STMT_RETURN);
  slice_is(&parsed, body[3]->span, "a, b, c = split(x);");
  slice_is(&parsed, body[4]->span, "repeat 3 { y = y; }");
  slice_is(&parsed, body[9]->span, "return y;");
  arena_free(parsed.arena);
}

Test(syntax, spans_of_expressions) {
  Parsed parsed = parse_well("const v = (a + b) * f(c, k=d @ e);");
  const Expr *product = parsed.module->items[0]->bindings[0].value;
  slice_is(&parsed, product->span, "(a + b) * f(c, k=d @ e)");
  slice_is(&parsed, product->op_span, "*");
  slice_is(&parsed, product->args[0]->span, "(a + b)");
  cr_assert_eq(product->args[0]->parens, 1u);
  slice_is(&parsed, product->args[0]->op_span, "+");
  const Expr *call = product->args[1];
  slice_is(&parsed, call->span, "f(c, k=d @ e)");
  slice_is(&parsed, call->name.span, "f");
  slice_is(&parsed, call->arg_names[1].span, "k");
  slice_is(&parsed, call->args[1]->op_span, "@");
  cr_assert_eq(product->depth, 4u);
  cr_assert_eq(call->args[0]->name.text, parsed.module->items[0]->bindings[0].value->args[1]->args[0]->name.text);
  arena_free(parsed.arena);
}

Test(syntax, files_that_are_almost_nothing) {
  const char *texts[] = {"", "\n", "// only a comment", "\xef\xbb\xbf", "pd 1;", "\xef\xbb\xbfpd 1;\r\n", " \t\r\n"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    Parsed parsed = parse_well(texts[i]);
    cr_assert_eq(parsed.module->item_count, 0u);
    arena_free(parsed.arena);
  }
}

Test(syntax, names_of_sections_are_ordinary_names) {
  Parsed parsed =
      parse_well("data < train=\"f\"; >\ntrain < steps=1; >\nconst parallel = 1, pd = 2, kind = 3, zero = 4;\n");
  cr_assert_eq(parsed.module->item_count, 3u);
  arena_free(parsed.arena);
}

/* --- every code --- */

Test(errors, e0101_nul) {
  const char text[] = "const a = 1; // \0 in a comment\nconst b = \0;\nconst c = ;\n";
  reports_bytes(text, sizeof text - 1,
                "t.pd:1:17: error[E0101]: NUL byte in the source\n"
                "t.pd:3:11: error[E0111]: expected an expression, found `;`\n");
}

Test(errors, e0102_utf8) {
  reports("// caf\xe9\nconst a = \"\xc0\x80\xed\xa0\x80\";\n",
          "t.pd:1:7: error[E0102]: the source is not valid UTF-8\n");
  reports("// \xf4\x90\x80\x80\n", "t.pd:1:4: error[E0102]: the source is not valid UTF-8\n");
  reports("// \xe2\x82", "t.pd:1:4: error[E0102]: the source is not valid UTF-8\n");
  reports("// \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf\n", "");
}

Test(errors, e0103_characters) {
  reports("const a = 1 \x07;\nconst b = $;\n", "t.pd:1:13: error[E0103]: unexpected character `\\x07`\n"
                                               "t.pd:2:11: error[E0103]: unexpected character `$`\n");
  reports("# a comment; = 3\nconst a = 3 \xc3\x97 4;\n", "t.pd:1:1: error[E0103]: unexpected character `#`\n"
                                                         "t.pd:2:13: error[E0103]: unexpected character `\xc3\x97`\n");
  reports("const gr\xc3\xb6\xc3\x9f = 1;\n", "t.pd:1:9: error[E0103]: unexpected character `\xc3\xb6` in a name\n");
  reports("const a = 'b';\nconst c = \xe2\x80\x9c"
          "d\xe2\x80\x9d;\n",
          "t.pd:1:11: error[E0103]: strings are written in plain double quotes\n"
          "t.pd:2:11: error[E0103]: strings are written in plain double quotes\n");
  reports("const a = 1\xe2\x80\x8b;\n", "t.pd:1:12: error[E0103]: unexpected character `\\u{200b}`\n");
}

Test(errors, e0104_string) {
  reports("import \"std/nn.pd as nn;\nconst a = ;\n", "t.pd:1:8: error[E0104]: this string never ends\n"
                                                      "t.pd:2:11: error[E0111]: expected an expression, found `;`\n");
  reports("const a = \"b\\", "t.pd:1:11: error[E0104]: this string never ends\n");
  reports("data < train=\"x; >\nconst b = ;\n", "t.pd:1:14: error[E0104]: this string never ends\n"
                                                "t.pd:2:11: error[E0111]: expected an expression, found `;`\n");
}

Test(errors, e0105_block_comments) {
  reports("/* one\n two */ const a = 1;\nconst b = ;\n",
          "t.pd:1:1: error[E0105]: there are no `/* ... */` comments\n"
          "t.pd:3:11: error[E0111]: expected an expression, found `;`\n");
  reports("const a = 1; /* open\nconst b = 2;\n",
          "t.pd:1:14: error[E0105]: there are no `/* ... */` comments, and this one never ends\n");
}

Test(errors, e0106_escape) {
  reports("const a = \"x\\qy\\\xc3\xa9\", b = \"\\0\";\n",
          "t.pd:1:13: error[E0106]: unknown escape `\\q` in a string\n"
          "t.pd:1:16: error[E0106]: unknown escape `\\\xc3\xa9` in a string\n"
          "t.pd:1:26: error[E0106]: unknown escape `\\0` in a string\n");
}

Test(errors, e0107_number) {
  reports("const a = 1.5x, b = 6e-5y, c = 1.2.3;\n", "t.pd:1:11: error[E0107]: `1.5x` is not a number\n"
                                                     "t.pd:1:21: error[E0107]: `6e-5y` is not a number\n"
                                                     "t.pd:1:32: error[E0107]: `1.2.3` is not a number\n");
}

Test(errors, e0108_range) {
  reports("const a = 9223372036854775808;\nconst b = 9223373T;\nconst c = 1e400;\nconst d = 1e-400;\n"
          "const e = 99999999999999999999999999999999999999999999;\nconst f = 8589934592GiB;\n",
          "t.pd:1:11: error[E0108]: `9223372036854775808` is out of range\n"
          "t.pd:2:11: error[E0108]: `9223373T` is out of range\n"
          "t.pd:3:11: error[E0108]: `1e400` is out of range\n"
          "t.pd:4:11: error[E0108]: `1e-400` is out of range\n"
          "t.pd:5:11: error[E0108]: `99999999999999999999999999999999999999999999` is out of range\n"
          "t.pd:6:11: error[E0108]: `8589934592GiB` is out of range\n");
}

static char *repeated(const char *head, const char *unit, size_t times, const char *tail) {
  size_t unit_length = strlen(unit), head_length = strlen(head);
  char *text = malloc(head_length + unit_length * times + strlen(tail) + 1);
  cr_assert_not_null(text);
  memcpy(text, head, head_length);
  for (size_t i = 0; i < times; i++) memcpy(text + head_length + i * unit_length, unit, unit_length);
  strcpy(text + head_length + unit_length * times, tail);
  return text;
}

static void reports_repeated(const char *head, const char *unit, size_t times, const char *tail, const char *expected) {
  char *text = repeated(head, unit, times, tail);
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  reports(text, expected);
  clock_gettime(CLOCK_MONOTONIC, &end);
  double seconds = (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
  cr_assert_lt(seconds, 5.0, "`%s` %zu times took %.1f s", unit, times, seconds); /* it takes well under one */
  free(text);
}

Test(errors, e0109_length) {
  reports_repeated("const ", "a", 65536, " = 1;\nconst b = ;\n",
                   "t.pd:1:7: error[E0109]: this name is 65536 bytes long; the longest allowed has 1024\n"
                   "t.pd:2:11: error[E0111]: expected an expression, found `;`\n");
  reports_repeated("const a = ", "1", 1025, ";\n",
                   "t.pd:1:11: error[E0109]: this number is 1025 bytes long; the longest allowed has 1024\n");
  reports_repeated("const a = \"", "x", 65534, "\";\n",
                   "t.pd:1:11: error[E0109]: this string is 65536 bytes long; the longest allowed has 65535\n");
  reports_repeated("const ", "a", 1024, " = 1;\n", "");
  reports_repeated("const a = \"", "x", 65533, "\";\n", "");
}

Test(errors, e0110_depth) {
  reports_repeated("const a = ", "(", 100000, "", "t.pd:1:267: error[E0110]: brackets are nested too deeply\n");
  reports_repeated("const a = ", "f(", 100000, "", "t.pd:1:524: error[E0110]: brackets are nested too deeply\n");
  reports_repeated("model m() ", "{ repeat 2 ", 100000, "",
                   "t.pd:1:2827: error[E0110]: brackets are nested too deeply\n");
  reports_repeated("const a = ", "-", 100000, "1;\n", "t.pd:1:8005: error[E0110]: this is nested too deeply\n");
  reports_repeated("const a = 1", " + 1", 100000, ";\nconst b = ;\n",
                   "t.pd:1:4011: error[E0110]: this expression is nested too deeply\n"
                   "t.pd:2:11: error[E0111]: expected an expression, found `;`\n");
  reports_repeated("model m() { if (1) { } ", "else if (1) { } ", 100000, "}\n",
                   "t.pd:1:21316: error[E0110]: this is nested too deeply\n");
  reports_repeated("const a = 1", " + 1", 998, ";\n", "");
  reports_repeated("const a = ", "(", 256, ";\n", "t.pd:1:267: error[E0111]: expected an expression, found `;`\n");
  reports_repeated("model m() { ", "x = 1; ", 100000, "}\n", "");
  reports_repeated("const a = 1", ", a = 1", 100000, ";\n", "");
}

Test(errors, e0111_lists_at_most_four) {
  reports("}{", "t.pd:1:1: error[E0114]: `}` closes nothing\n"
                "t.pd:1:2: error[E0111]: expected `const`, `dim`, `block` or `model`, found `{`\n");
  reports("const a = 1 2;\n", "t.pd:1:13: error[E0111]: expected `;`, `,` or an operator, found `2`\n");
  reports("const a 1;\n", "t.pd:1:9: error[E0111]: expected `=`, found `1`\n");
  reports("const 1;\n", "t.pd:1:7: error[E0111]: expected a name, found `1`\n");
  reports("import nn;\n", "t.pd:1:8: error[E0111]: expected a string, found `nn`\n");
  reports("import \"a\";\n", "t.pd:1:11: error[E0111]: expected `as`, found `;`\n");
  reports("block f(x: [m]) { return x; }\n", "t.pd:1:17: error[E0111]: expected `->`, found `{`\n");
  reports("block f(x) -> [m] { }\n", "t.pd:1:10: error[E0111]: expected `=` or `:`, found `)`\n");
  reports("parallel { pp=8; }\n", "t.pd:1:10: error[E0111]: expected `<`, found `{`\n");
  reports("parallel < 8; >\n", "t.pd:1:12: error[E0111]: expected a key or `>`, found `8`\n");
  reports("model m() { relu(x); }\n", "t.pd:1:17: error[E0111]: expected `,` or `=`, found `(`\n");
  reports("model m() { x = y |> relu; }\n", "t.pd:1:26: error[E0111]: expected `(`, found `;`\n");
  reports("model m() { x = y |> relu() + 1; }\n", "t.pd:1:29: error[E0111]: expected `;` or `|>`, found `+`\n");
  reports("model m() { if x { } }\n", "t.pd:1:16: error[E0111]: expected `(`, found `x`\n");
  reports("model m() { repeat i = 0 { } }\n", "t.pd:1:26: error[E0111]: expected `..` or an operator, found `{`\n");
  reports("model m() {\n  const a = 3;\n  x = ;\n}\n", "t.pd:2:3: error[E0111]: `const` is not a statement\n"
                                                       "t.pd:3:7: error[E0111]: expected an expression, found `;`\n");
  reports("const a = (1, 2", "t.pd:1:16: error[E0113]: `(` is never closed\n");
  reports("block", "t.pd:1:6: error[E0111]: expected a name, found the end of the file\n");
}

Test(errors, e0112_semicolons) {
  reports("parallel < pp=8 dp=64; tp=8 >\nconst a = ;\n",
          "t.pd:1:16: error[E0112]: expected `;` after `8`\n"
          "t.pd:1:28: error[E0112]: expected `;` after `8`\n"
          "t.pd:2:11: error[E0111]: expected an expression, found `;`\n");
  reports("parallel < pp=8, dp=*; >\n", "t.pd:1:16: error[E0112]: expected `;` after `8`\n");
  reports("dim a = 3\ndim b = 4  // four\n\nparallel < pp=8; >\nconst c = 1",
          "t.pd:1:10: error[E0112]: expected `;` after `3`\n"
          "t.pd:2:10: error[E0112]: expected `;` after `4`\n"
          "t.pd:5:12: error[E0112]: expected `;` after `1`\n");
  reports("model m() {\n  x = f(a)\n  y = x\n  param w: [a]\n  z = 1 w = 2;\n  loss z\n}\n",
          "t.pd:2:11: error[E0112]: expected `;` after `)`\n"
          "t.pd:3:8: error[E0112]: expected `;` after `x`\n"
          "t.pd:4:15: error[E0112]: expected `;` after `]`\n"
          "t.pd:5:8: error[E0112]: expected `;` after `1`\n"
          "t.pd:6:9: error[E0112]: expected `;` after `z`\n");
}

Test(errors, e0113_unclosed) {
  reports("model m() {\n  x = f(a, (b;\n  y = f(a,\n    b\n  z = ;\n}\n",
          "t.pd:2:14: error[E0113]: `(` is never closed\n"
          "t.pd:4:6: error[E0113]: `(` is never closed\n"
          "t.pd:5:7: error[E0111]: expected an expression, found `;`\n");
  reports("model m() {\n  repeat 3 {\n    x = 1;\n\nblock f(x: [m]) -> [m] { return ; }\n",
          "t.pd:3:11: error[E0113]: `{` is never closed\n"
          "t.pd:5:33: error[E0111]: expected an expression, found `;`\n");
  reports("model m() {\n  x = 1;\n\ndata < seed=; >\n", "t.pd:2:9: error[E0113]: `{` is never closed\n"
                                                        "t.pd:4:13: error[E0111]: expected an expression, found `;`\n");
  reports("model m() {\n  if (a) { x = 1; else { x = 2; }\n  y = ;\n}\n",
          "t.pd:2:18: error[E0113]: `{` is never closed\n"
          "t.pd:3:7: error[E0111]: expected an expression, found `;`\n");
  reports("parallel < pp=8;\nshard < a=tp;\nblock f(x: [m) -> [m] { return ; }\ndata < seed=1;",
          "t.pd:1:17: error[E0113]: section `parallel` is never closed\n"
          "t.pd:2:14: error[E0113]: section `shard` is never closed\n"
          "t.pd:3:14: error[E0114]: `)` does not close `[`\n"
          "t.pd:3:32: error[E0111]: expected an expression, found `;`\n"
          "t.pd:4:15: error[E0113]: section `data` is never closed\n");
  reports("model m(a: [b] {\n  x = ;\n}\n", "t.pd:1:15: error[E0113]: `(` is never closed\n"
                                            "t.pd:2:7: error[E0111]: expected an expression, found `;`\n");
}

Test(errors, e0114_closes_nothing) {
  reports("model m() { x = f(a)); y = g[b); z = ; }\n",
          "t.pd:1:21: error[E0114]: `)` closes nothing\n"
          "t.pd:1:29: error[E0111]: expected `;` or an operator, found `[`\n"
          "t.pd:1:38: error[E0111]: expected an expression, found `;`\n");
  reports("const a = (1];\nconst b = ;\n", "t.pd:1:13: error[E0114]: `]` does not close `(`\n"
                                           "t.pd:2:11: error[E0111]: expected an expression, found `;`\n");
  reports("model m() { if (a) { x = 1; } }\n  loss x;\n  y = 3;\n}\nconst b = ;\n",
          "t.pd:2:3: error[E0111]: expected `const`, `dim`, `block` or `model`, found `loss`\n"
          "t.pd:5:11: error[E0111]: expected an expression, found `;`\n");
}

Test(errors, e0115_keywords) {
  reports("const dim = 3;\nmodel m(loss: [a]) {\n  return = 4;\n  param if: [a];\n  x = f(block=3);\n  y = repeat + "
          "1;\n  z = ;\n}\n",
          "t.pd:1:7: error[E0115]: `dim` is a keyword and cannot be a name\n"
          "t.pd:2:9: error[E0115]: `loss` is a keyword and cannot be a name\n"
          "t.pd:3:3: error[E0115]: `return` is a statement, not a name\n"
          "t.pd:4:9: error[E0115]: `if` is a keyword and cannot be a name\n"
          "t.pd:5:9: error[E0115]: `block` is a keyword and cannot be a name\n"
          "t.pd:6:7: error[E0115]: `repeat` is a keyword and cannot be a name\n"
          "t.pd:7:7: error[E0111]: expected an expression, found `;`\n");
  reports("data < model=\"x\"; seed=; >\n", "t.pd:1:8: error[E0115]: `model` is a keyword and cannot be a name\n"
                                            "t.pd:1:24: error[E0111]: expected an expression, found `;`\n");
}

Test(errors, e0116_dotted) {
  reports("const a.b = 3;\nmodel m() { nn.x = 3; param c.d: [a]; y = ; }\n",
          "t.pd:1:7: error[E0116]: `a.b` is not a plain name\n"
          "t.pd:2:13: error[E0116]: `nn.x` is not a plain name\n"
          "t.pd:2:29: error[E0116]: `c.d` is not a plain name\n"
          "t.pd:2:43: error[E0111]: expected an expression, found `;`\n");
}

Test(errors, e0117_chains) {
  reports("const a = 1 < 2 < 3;\nconst b = 1 == 2 != 3;\n", "t.pd:1:17: error[E0117]: comparisons do not chain\n"
                                                            "t.pd:2:18: error[E0117]: comparisons do not chain\n");
}

Test(errors, e0118_bare_comparisons) {
  reports("train < a=b < c; d=e > f; g=h && i; j=; >\nconst k = ;\n",
          "t.pd:1:13: error[E0118]: `<` needs parentheses in the value of a key\n"
          "t.pd:1:22: error[E0118]: `>` needs parentheses in the value of a key\n"
          "t.pd:1:31: error[E0118]: `&&` needs parentheses in the value of a key\n"
          "t.pd:1:39: error[E0111]: expected an expression, found `;`\n"
          "t.pd:2:11: error[E0111]: expected an expression, found `;`\n");
}

Test(errors, e0119_edition) {
  reports("pd 2;\n", "t.pd:1:4: error[E0119]: this is not an edition of the language\n");
  reports("pd 1.0;\n", "t.pd:1:4: error[E0119]: this is not an edition of the language\n");
  reports("const a = 1;\npd 1;\n", "t.pd:2:1: error[E0119]: the edition stands on the first line of the file\n");
}

Test(errors, e0120_no_text) {
  char bytes[64];
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = i % 2 == 0 ? 'a' : '\0'; /* UTF-16 */
  reports_bytes(bytes, sizeof bytes, "t.pd:1:2: error[E0120]: this file is not a text file\n");
  size_t large = (size_t)64 * 1024 * 1024 + 1;
  char *spaces = malloc(large);
  cr_assert_not_null(spaces);
  memset(spaces, ' ', large);
  reports_bytes(spaces, large, "t.pd:1:1: error[E0120]: this file has 67108865 bytes\n");
  reports_bytes(spaces, large - 1, "");
  free(spaces);
}

static void shows(const char *text, const char *expected) {
  Parsed parsed = parse(text);
  cr_assert_str_eq(rendered(&parsed, DIAG_TEXT), expected);
  arena_free(parsed.arena);
}

Test(errors, as_the_user_sees_them) {
  shows("parallel < pp=8; dp=64; tp=8 >\n", "error[E0112]: expected `;` after `8`\n"
                                            " --> t.pd:1:29\n"
                                            "  |\n"
                                            "1 | parallel < pp=8; dp=64; tp=8 >\n"
                                            "  |                             ^ add `;` here\n"
                                            "  = note: each key of a section ends with `;`, the last one too\n\n");
  shows("model m() {\n  x = f(a,\n        b;\n}\n", "error[E0113]: `(` is never closed\n"
                                                    " --> t.pd:3:10\n"
                                                    "  |\n"
                                                    "2 |   x = f(a,\n"
                                                    "  |        - opened here\n"
                                                    "3 |         b;\n"
                                                    "  |          ^ expected `)` here\n\n");
  shows("dims batch = 8;\n", "error[E0111]: expected `<`, found `batch`\n"
                             " --> t.pd:1:6\n"
                             "  |\n"
                             "1 | dims batch = 8;\n"
                             "  |      ^^^^^\n"
                             "  = help: did you mean `dim`, not `dims`?\n\n");
  shows("model m() {\n  retrun x;\n}\n", "error[E0111]: expected `,` or `=`, found `x`\n"
                                         " --> t.pd:2:10\n"
                                         "  |\n"
                                         "2 |   retrun x;\n"
                                         "  |          ^\n"
                                         "  = help: did you mean `return`, not `retrun`?\n\n");
  shows("const a = 1 < 2 < 3;\n", "error[E0117]: comparisons do not chain\n"
                                  " --> t.pd:1:17\n"
                                  "  |\n"
                                  "1 | const a = 1 < 2 < 3;\n"
                                  "  |                 ^\n"
                                  "  = help: write `a < b && b < c`\n\n");
}

/* What each kind of help is for, by its first words. */
Test(errors, helps) {
  static const char *const cases[][2] = {
      {"x = 3;", "a value is declared with `const`"},
      {"parallel { pp=8; }", "a section is written `parallel < key=value; >`"},
      {"const a = 1;\nmodel m() { };", "no `;` follows a `}`"},
      {"model m() { f(x); }", "a statement gives its value a name: `y = f(...);`"},
      {"model m() { relu(x); }", "a statement gives its value a name: `y = relu(...);`"},
      {"model m() { if (a = 3) { } }", "`==` compares"},
      {"block f(x: [m]) { }", "a block says what it returns"},
      {"model m() { x = y |> f() * 2; }", "`|>` binds loosest"},
      {"model m() { x = y |> relu; }", "a pipe ends in a call"},
      {"model m() { x = y |> 3; }", "a pipe ends in a call"},
      {"const loss = 3;", "choose another name, such as `loss_`"},
      {"# words", "comments begin with `//`"},
      {"model m() { frzen param w: [a]; }", "did you mean `frozen`, not `frzen`?"},
      {"blok f(x: [m]) -> [m] { }", "did you mean `block`, not `blok`?"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Parsed parsed = parse(cases[i][0]);
    const char *report = rendered(&parsed, DIAG_TEXT);
    cr_assert_eq(diag_errors(parsed.all), 1u, "%s", report);
    cr_assert_not_null(strstr(report, arena_printf(parsed.arena, "= help: %s", cases[i][1])), "no `%s` in\n%s",
                       cases[i][1], report);
    arena_free(parsed.arena);
  }
}

/* Every E01 code has its row, in order, with an explanation that ends its last line. */
Test(errors, codes_are_explained) {
  static const struct {
    const char *code, *title, *explanation;
  } codes[] = {
#define CODE(code, title, explanation) {code, title, explanation},
#include "support/codes.def"
#undef CODE
  };
  for (size_t i = 0; i < 20; i++) {
    char expected[8];
    snprintf(expected, sizeof expected, "E01%02zu", i + 1);
    cr_assert_str_eq(codes[i].code, expected);
    cr_assert_gt(strlen(codes[i].title), 5u);
    size_t length = strlen(codes[i].explanation);
    cr_assert_gt(length, 70u);
    cr_assert_eq(codes[i].explanation[length - 1], '\n');
  }
}

/* --- going on after a mistake --- */

Test(recovery, all_independent_mistakes_in_one_run) {
  reports("parallel pp=8; dp=; >\n"
          "block f(x: [a b]) -> [a] {\n"
          "  y = x + * 3;\n"
          "  repeat 3 y = y; }\n"
          "  repeat i = 0 .. { z = ; }\n"
          "  if (a = 3) { z = ; } else { z = ; }\n"
          "  return y;\n"
          "}\n"
          "block g(x: [m]) -> [m]\n"
          "  return ;\n"
          "}\n"
          "x = 3;\n"
          "const k = 3;;\n"
          "const l = ;\n",
          "t.pd:1:9: error[E0111]: expected `<` after `parallel`\n"
          "t.pd:1:19: error[E0111]: expected an expression, found `;`\n"
          "t.pd:2:15: error[E0111]: expected `,`, `]` or an operator, found `b`\n"
          "t.pd:3:11: error[E0111]: expected an expression, found `*`\n"
          "t.pd:4:11: error[E0111]: expected `{` after `3`\n"
          "t.pd:5:19: error[E0111]: expected an expression, found `{`\n"
          "t.pd:5:25: error[E0111]: expected an expression, found `;`\n"
          "t.pd:6:9: error[E0111]: expected `)` or an operator, found `=`\n"
          "t.pd:6:20: error[E0111]: expected an expression, found `;`\n"
          "t.pd:6:35: error[E0111]: expected an expression, found `;`\n"
          "t.pd:10:3: error[E0111]: expected `{`, found `return`\n"
          "t.pd:10:10: error[E0111]: expected an expression, found `;`\n"
          "t.pd:12:3: error[E0111]: expected `<`, found `=`\n"
          "t.pd:13:13: error[E0111]: expected `const`, `dim`, `block` or `model`, found `;`\n"
          "t.pd:14:11: error[E0111]: expected an expression, found `;`\n");
}

Test(recovery, stops_after_twenty) {
  char *text = repeated("", "const a = ;\n", 50, "");
  Parsed parsed = parse(text);
  cr_assert_eq(diag_errors(parsed.all), 20u);
  cr_assert(diag_full(parsed.all));
  cr_assert_not_null(strstr(rendered(&parsed, DIAG_SHORT), "too many errors: stopped after 20\n"));
  arena_free(parsed.arena);
  free(text);
}

/* Whatever is left out, doubled or swapped, parsing ends, and says something when it has no tree. */
Test(recovery, survives_every_single_damage, .timeout = 120) {
  static const char text[] =
      "pd 1;\nconst a = 1;\nparallel < pp=8; dp=(a < 2); >\nblock f<m>(x: [.., m], k=3) -> [m] {\n"
      "  param w: [m] = 0;\n  repeat i = 0 .. 3 { if (k == 1) { x = f(x, n=2); } else { y = \"s\"; } }\n"
      "  return (x |> f()) @ w;\n}\n";
  static const char inserts[] = ";(){}[]<>,=.\"@*-x1#\n\\\xff";
  size_t length = sizeof text - 1, wrong = 0, reported_once = 0;
  char *damaged = malloc(length + 2);
  cr_assert_not_null(damaged);
  for (size_t at = 0; at <= length; at++)
    for (size_t kind = 0; kind < sizeof inserts; kind++) { /* the last one deletes a byte instead */
      bool deletes = kind == sizeof inserts - 1;
      if (deletes && at == length) continue;
      memcpy(damaged, text, at);
      if (!deletes) damaged[at] = inserts[kind];
      memcpy(damaged + at + !deletes, text + at + deletes, length - at - deletes + 1);
      Parsed parsed = parse(damaged);
      wrong += diag_errors(parsed.all) > 0;
      reported_once += diag_errors(parsed.all) == 1;
      cr_assert_lt(diag_errors(parsed.all), 5u, "one damage, many reports:\n%s\n%s", damaged,
                   rendered(&parsed, DIAG_SHORT));
      arena_free(parsed.arena);
    }
  cr_assert_gt(wrong, 3000u);
  cr_assert_geq(reported_once * 100, wrong * 90, "%zu of %zu damages are reported once", reported_once, wrong);
  free(damaged);
}
