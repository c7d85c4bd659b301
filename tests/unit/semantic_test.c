/* The semantic pass, through the parser: what the programs of the language reference become, and what wrong programs
 * are told. Every wrong program gives exactly one error, of the code and with the words that stand beside it. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "semantic/semantic.h"
#include "unit/gpt3_program.h"

#ifndef PDC_BUILD_ROOT
#define PDC_BUILD_ROOT "."
#endif

typedef struct Result {
  Arena *arena;
  Diagnostics *diagnostics;
  Semantic semantic;
  bool fine;
  char *text; /* the diagnostics, rendered */
} Result;

static Result compile_with(const char *source, const char *model, const Define *defines, uint32_t count,
                           const char *directory) {
  Result result = {.arena = arena_new()};
  Intern *names = intern_new(result.arena);
  result.diagnostics = diagnostics_new(result.arena);
  const char *path = directory ? arena_printf(result.arena, "%s/test.pd", directory) : "test.pd";
  uint32_t file = diag_add_source(result.diagnostics, path, source, strlen(source));
  const char *const dirs[] = {PDC_BUILD_ROOT "/templates"};
  SemanticInput input = {.arena = result.arena,
                         .names = names,
                         .diagnostics = result.diagnostics,
                         .root = syntax_parse(result.arena, names, result.diagnostics, file),
                         .model = model,
                         .defines = defines,
                         .define_count = count,
                         .import_dirs = dirs,
                         .import_dir_count = 1};
  result.fine = semantic_run(&input, &result.semantic);
  size_t length = 0;
  FILE *out = open_memstream(&result.text, &length);
  diag_render(result.diagnostics, out, DIAG_TEXT, false);
  fclose(out);
  cr_assert_eq(result.fine, diag_errors(result.diagnostics) == 0, "%s", result.text);
  cr_assert_eq(result.fine, result.semantic.graph != NULL);
  if (result.fine) {
    const char *wrong = graph_verify(result.semantic.graph);
    cr_assert_null(wrong, "%s", wrong ? wrong : "");
  }
  return result;
}

static Result compile(const char *source) {
  return compile_with(source, NULL, NULL, 0, NULL);
}

static void release(Result *result) {
  free(result->text);
  arena_free(result->arena);
}

static Graph *graph_of(const Result *result) {
  cr_assert(result->fine, "%s", result->text);
  return result->semantic.graph;
}

static const Param *param_named(const Graph *graph, const char *name) {
  for (uint32_t i = 0; i < graph->params.count; i++)
    if (!strcmp(graph->params.at[i].name, name)) return &graph->params.at[i];
  cr_assert_fail("there is no parameter %s", name);
  return NULL;
}

static const Op *op_of_kind(const Graph *graph, OpKind kind, unsigned skip) {
  for (uint32_t i = 0; i < graph->ops.count; i++)
    if (graph->ops.at[i].kind == kind && skip-- == 0) return &graph->ops.at[i];
  cr_assert_fail("there is no %s", op_name(kind));
  return NULL;
}

static unsigned count_of(const Graph *graph, OpKind kind) {
  unsigned count = 0;
  for (uint32_t i = 0; i < graph->ops.count; i++) count += graph->ops.at[i].kind == kind;
  return count;
}

static void expect_segments(const Graph *graph, const char *list) {
  Text text = {.arena = graph->arena};
  for (uint32_t i = 0; i < graph->segments.count; i++)
    text_printf(&text, "%s%s*%lld", i ? " " : "", graph->segments.at[i].name, (long long)graph->segments.at[i].trips);
  cr_assert_str_eq(text.at, list);
}

static void expect_shape(const Graph *graph, Id value, const char *shape) {
  const Value *v = &graph->values.at[value];
  cr_assert_str_eq(axes_text(graph, v->rank, v->axes, false), shape);
}

/* ---- the programs of the language reference ---- */

Test(semantic, gpt_segments_and_wires) {
  Result r = compile(gpt3_program);
  Graph *g = graph_of(&r);
  expect_segments(g, "embedding*1 layers*96 loss*1");
  cr_assert_eq(g->wires.count, 2);
  const Segment *layers = &g->segments.at[1];
  cr_assert_eq(layers->ins.count, 1);
  cr_assert_eq(layers->ins.at[0].wire, 0);
  cr_assert_eq(layers->ins.at[0].carried, 0);
  cr_assert_eq(layers->outs.count, 1);
  cr_assert_eq(layers->outs.at[0].wire, 1);
  cr_assert_eq(g->segments.at[2].ins.at[0].carried, NO_ID);
  expect_shape(g, layers->outs.at[0].value, "[batch, seq, embed]");
  cr_assert_eq(count_of(g, OP_CONTRACT), 7);
  const Op *q = op_of_kind(g, OP_CONTRACT, 0), *o = op_of_kind(g, OP_CONTRACT, 3);
  cr_assert_arr_eq(q->label[0], "abc", 3);
  cr_assert_arr_eq(q->label[1], "cde", 3);
  cr_assert_arr_eq(q->label[2], "abde", 4);
  cr_assert_arr_eq(o->label[0], "abcd", 4);
  cr_assert_arr_eq(o->label[1], "cde", 3);
  cr_assert_arr_eq(o->label[2], "abe", 3);
  const Op *sdpa = op_of_kind(g, OP_SDPA, 0);
  cr_assert_eq(sdpa->integer[0], 1);
  cr_assert_eq(sdpa->integer[1], 1);
  expect_shape(g, sdpa->out[1], "[batch, heads, seq]");
  const Op *xent = op_of_kind(g, OP_XENT, 0);
  expect_shape(g, xent->out[1], "[batch, seq]");
  expect_shape(g, xent->out[2], "[2, batch, seq]");
  cr_assert_eq(g->loss, xent->out[0]);
  release(&r);
}

Test(semantic, gpt_params_and_config) {
  Result r = compile(gpt3_program);
  Graph *g = graph_of(&r);
  cr_assert_eq(g->params.count, 2 + 16 + 2);
  const Param *wte = param_named(g, "wte");
  cr_assert_eq(wte->segment, NO_ID);
  cr_assert_eq(wte->users.count, 2);
  cr_assert_not(wte->per_trip);
  cr_assert_eq(param_named(g, "wpe")->segment, 0);
  const Param *wo = param_named(g, "layers.{}.attention.wo");
  cr_assert(wo->per_trip);
  cr_assert(wo->decay);
  cr_assert_eq(wo->segment, 1);
  cr_assert_float_eq(wo->init.a, 0.02 / 13.856406460551018, 1e-15);
  cr_assert_not(param_named(g, "layers.{}.layernorm_2.bias")->decay);
  cr_assert_eq(param_named(g, "layers.{}.layernorm.weight")->init.a, 1);
  cr_assert_eq(param_named(g, "layernorm.weight")->segment, 2);
  const Config *c = &r.semantic.config;
  cr_assert(c->pp == 8 && c->dp == 64 && c->tp == 8 && c->chunks == 2);
  cr_assert_eq(c->microbatches, 24);
  cr_assert_str_eq(c->schedule, "interleaved");
  cr_assert_eq(c->recompute, RECOMPUTE_SELECTIVE);
  cr_assert_eq(c->compute, PRECISION_BF16);
  cr_assert_eq(c->optimizer, OPTIMIZER_ADAMW);
  cr_assert(c->rate_in_tokens);
  cr_assert_float_eq(c->warmup, 375e6 / (1536 * 2048.0), 1e-9);
  cr_assert_float_eq(c->end, 260e9 / (1536 * 2048.0), 1e-6);
  cr_assert(c->beta1 == 0.9 && c->beta2 == 0.95 && c->clip == 1 && c->decay == 0.1);
  cr_assert_eq(c->data.count, 2);
  cr_assert_eq(g->axes.at[g->batch].mesh, MESH_DP);
  release(&r);
}

Test(semantic, llama) {
  Result r = compile(
      "config const layers = 80;\n"
      "dim batch = 1024, seq = 8192, q = 64, kv = 8, head = 128, embed = q * head, ffn = 28672, vocab = 128256;\n"
      "parallel < pp=8; dp=64; tp=8; >\n"
      "shard < batch=dp; q=tp; kv=tp; ffn=tp; vocab=tp; >\n"
      "schedule < kind=1f1b; microbatch=1; >\n"
      "optimizer < kind=adamw; lr=cosine(1.5e-4, 1.5e-6, warmup=8000, end=1.2M); decay=0.1; clip=1.0; >\n"
      "block attention(x: [batch, seq, embed]) -> [batch, seq, embed] {\n"
      "  param wq: [embed, q, head], wk: [embed, kv, head], wv: [embed, kv, head], wo: [q, head, embed];\n"
      "  return sdpa(rope(x @ wq, theta=5e5), rope(x @ wk, theta=5e5), x @ wv, group=q / kv, causal=true) @ wo;\n"
      "}\n"
      "block swiglu(x: [batch, seq, embed]) -> [batch, seq, embed] {\n"
      "  param gate: [embed, ffn], up: [embed, ffn], down: [ffn, embed];\n"
      "  return (silu(x @ gate) * (x @ up)) @ down;\n"
      "}\n"
      "model llama(tokens: i32[batch, seq], targets: i32[batch, seq]) {\n"
      "  param wte: [vocab, embed], out: [embed, vocab];\n"
      "  x = gather(wte, tokens);\n"
      "  repeat layers { x = x + attention(rmsnorm(x)); x = x + swiglu(rmsnorm(x)); }\n"
      "  loss xent(rmsnorm(x) @ out, targets);\n"
      "}\n");
  Graph *g = graph_of(&r);
  expect_segments(g, "embedding*1 layers*80 loss*1");
  cr_assert_eq(op_of_kind(g, OP_SDPA, 0)->integer[1], 8);
  cr_assert_eq(op_of_kind(g, OP_ROPE, 1)->real[0], 5e5);
  cr_assert_eq(op_of_kind(g, OP_ROPE, 1)->integer[0], 1);
  cr_assert_eq(r.semantic.config.microbatches, 16);
  cr_assert_not(r.semantic.config.rate_in_tokens);
  cr_assert_eq(r.semantic.config.end, 1.2e6);
  release(&r);
}

Test(semantic, mlp) {
  Result r = compile("dim batch = 16384, pixel = 784, hidden = 1024, wide = 4096, class = 10;\n"
                     "parallel < pp=8; dp=64; tp=8; >\n"
                     "shard < batch=dp; wide=tp; >\n"
                     "optimizer < kind=sgd; lr=0.1; momentum=0.9; >\n"
                     "block linear<m, n>(x: [.., m]) -> [.., n] {\n"
                     "  param w: [m, n] = kaiming(m), b: [n] = 0;\n"
                     "  return x @ w + b;\n"
                     "}\n"
                     "model mlp(x: f32[batch, pixel], y: i32[batch]) {\n"
                     "  h = relu(linear(x, n=hidden));\n"
                     "  repeat 8 { h = h + linear(relu(linear(h, n=wide)), n=hidden); }\n"
                     "  out = linear(h, n=class);\n"
                     "  metric accuracy = accuracy(out, y);\n"
                     "  loss xent(out, y);\n"
                     "}\n");
  Graph *g = graph_of(&r);
  expect_segments(g, "linear*1 repeat*8 out*1 accuracy*1 loss*1");
  cr_assert_eq(g->metrics.count, 1);
  cr_assert_eq(g->wires.count, 3);
  const Param *w = param_named(g, "repeat.{}.linear_2.w");
  cr_assert_str_eq(axes_text(g, w->rank, w->axes, false), "[wide, hidden]");
  cr_assert_float_eq(w->init.a, 0.022097086912079612, 1e-15);
  param_named(g, "linear.w");
  param_named(g, "linear_2.b");
  const Config *c = &r.semantic.config;
  cr_assert(c->optimizer == OPTIMIZER_SGD && c->rate == RATE_CONSTANT && c->peak == 0.1 && c->momentum == 0.9);
  cr_assert_eq(c->microbatches, 256);
  release(&r);
}

Test(semantic, cnn) {
  Result r = compile("dim batch = 8192, side = 224, class = 1000;\n"
                     "parallel < pp=8; dp=64; tp=8; >\n"
                     "shard < batch=dp; conv.co=tp; >\n"
                     "optimizer < kind=lamb; lr=0.004; decay=0.01; >\n"
                     "block conv<ci, co, h, w>(x: [batch, ci, h, w], k=3, s=1) -> [batch, co, h / s, w / s] {\n"
                     "  param f: [co, ci, k, k] = kaiming(ci * k * k);\n"
                     "  return x |> conv2d(f, stride=s, pad=(k - 1) / 2) |> batchnorm() |> relu();\n"
                     "}\n"
                     "block residual<c, h, w>(x: [batch, c, h, w]) -> [batch, c, h, w] {\n"
                     "  return x + (x |> conv(co=c) |> conv(co=c));\n"
                     "}\n"
                     "block linear<m, n>(x: [.., m]) -> [.., n] { param w: [m, n], b: [n] = 0; return x @ w + b; }\n"
                     "model resnet34(x: f32[batch, 3, side, side], y: i32[batch]) {\n"
                     "  t = x |> conv(co=64, k=7, s=2) |> maxpool(2);\n"
                     "  repeat 3 { t = residual(t); }   t = conv(t, co=128, s=2);\n"
                     "  repeat 4 { t = residual(t); }   t = conv(t, co=256, s=2);\n"
                     "  repeat 6 { t = residual(t); }   t = conv(t, co=512, s=2);\n"
                     "  repeat 3 { t = residual(t); }\n"
                     "  loss xent(t |> avgpool() |> linear(n=class), y);\n"
                     "}\n");
  Graph *g = graph_of(&r);
  expect_segments(g, "conv*1 repeat*3 conv_2*1 repeat_2*4 conv_3*1 repeat_3*6 conv_4*1 repeat_4*3 loss*1");
  const Param *f = param_named(g, "repeat_3.{}.residual.conv_2.f");
  cr_assert_str_eq(axes_text(g, f->rank, f->axes, true), "[256, 256, 3, 3]");
  cr_assert_eq(g->axes.at[f->axes[0]].mesh, MESH_TP); /* the rule is about what a convolution makes, */
  cr_assert_eq(g->axes.at[f->axes[1]].mesh, MESH_NONE); /* not about what it takes */
  const Op *first = op_of_kind(g, OP_CONV2D, 0);
  cr_assert(first->integer[0] == 7 && first->integer[2] == 2 && first->integer[3] == 3);
  const Wire *last = &g->wires.at[g->wires.count - 1];
  cr_assert_str_eq(axes_text(g, last->rank, last->axes, true), "[batch = 8192, 512, 7, 7]");
  cr_assert_eq(g->axes.at[last->axes[1]].mesh, MESH_TP);
  const Param *mean = param_named(g, "repeat_4.{}.residual.conv.running_mean");
  cr_assert(mean->statistic && mean->per_trip && !mean->decay && mean->momentum == 0.1);
  const Config *c = &r.semantic.config;
  cr_assert(c->optimizer == OPTIMIZER_LAMB && c->peak == 0.004 && c->decay == 0.01);
  release(&r);
}

/* ---- pieces of the language ---- */

#define HEAD                                                                                                           \
  "dim batch = 8, seq = 4, embed = 6, other = 6, wide = 12, class = 5, heads = 2, kv = 1, head = 3;\n"                 \
  "config const layers = 3;\n"
#define DATA "model m(x: f32[batch, embed], z: f32[batch, seq, embed], t: i32[batch, seq], y: i32[batch]) {\n"
#define END "  param wl_: [embed, class]; loss xent(x @ wl_, y);\n}\n"

Test(semantic, unrolled_and_indexed_loops) {
  Result r = compile(HEAD DATA "  h = x;\n"
                               "  repeat i = 0 .. 3 { param w: [embed, embed]; h = h + (i + 1) * (h @ w); }\n"
                               "  repeat j = 1 .. 3 { param w: [embed, embed]; h = h @ w; }\n"
                               "  repeat layers { repeat 2 { param w: [embed, embed]; h = relu(h @ w); } }\n"
                               "  param v: [embed, class]; loss xent(h @ v, y);\n}\n");
  Graph *g = graph_of(&r);
  expect_segments(g, "repeat_0*1 repeat_1*1 repeat_2*1 repeat*2 layers*3 loss*1");
  param_named(g, "repeat.2.w");
  cr_assert(param_named(g, "repeat_2.{}.w")->per_trip);
  cr_assert(param_named(g, "layers.{}.repeat.1.w")->per_trip);
  cr_assert_eq(g->params.count, 3 + 1 + 2 + 1);
  release(&r);
}

Test(semantic, a_loop_inside_a_block_is_a_segment) {
  Result r = compile(HEAD "block deep(x: [.., embed], n=2) -> [.., embed] {\n"
                          "  param first: [embed, embed]; x = x @ first;\n"
                          "  repeat n { param w: [embed, embed]; x = x + relu(x @ w); }\n"
                          "  param last: [embed, embed]; return x @ last;\n}\n" DATA "  out = deep(deep(x), n=4);\n"
                          "  param v: [embed, class]; loss xent(out @ v, y);\n}\n");
  Graph *g = graph_of(&r);
  expect_segments(g, "out*1 n*2 out_2*1 n_2*4 out_3*1 loss*1");
  param_named(g, "deep.n.{}.w");
  param_named(g, "deep_2.first");
  release(&r);
}

Test(semantic, captured_and_carried_values) {
  Result r = compile(HEAD DATA "  a = relu(x);\n"
                               "  h = a;\n"
                               "  repeat 3 { h = h + a * 2; }\n"
                               "  param v: [embed, class]; loss xent((h + a) @ v, y);\n}\n");
  Graph *g = graph_of(&r);
  expect_segments(g, "a*1 repeat*3 loss*1");
  const Segment *loop = &g->segments.at[1];
  cr_assert_eq(loop->ins.count, 2);
  cr_assert_eq((loop->ins.at[0].carried == 0) + (loop->ins.at[1].carried == 0), 1);
  cr_assert_eq((loop->ins.at[0].carried == NO_ID) + (loop->ins.at[1].carried == NO_ID), 1);
  cr_assert_eq(g->segments.at[0].outs.count, 2); /* carried and captured: two wires */
  cr_assert_eq(g->segments.at[2].ins.count, 2);
  release(&r);
}

Test(semantic, swapped_names_and_inputs_are_copied_into_a_loop) {
  Result r = compile(HEAD DATA "  a = x; b = relu(x);\n"
                               "  repeat 3 { old = a; a = b + 1; b = old; }\n"
                               "  param v: [embed, class]; loss xent((a + b) @ v, y);\n}\n");
  Graph *g = graph_of(&r);
  const Segment *loop = &g->segments.at[g->segments.count - 2];
  cr_assert_eq(loop->trips, 3);
  cr_assert_eq(loop->outs.count, 2);
  cr_assert_eq(count_of(g, OP_COPY), 2);
  release(&r);
}

Test(semantic, unused_work_is_dropped_and_named) {
  Result r = compile(HEAD DATA "  param w: [embed, wide];\n"
                               "  lost = x @ w;\n" END);
  Graph *g = graph_of(&r);
  expect_segments(g, "loss*1");
  const Param *w = param_named(g, "w");
  cr_assert_eq(w->users.count, 0);
  cr_assert_eq(w->segment, NO_ID);
  cr_assert(strstr(r.text, "warning[W0201]") && strstr(r.text, "`w`"), "%s", r.text);
  release(&r);
}

Test(semantic, losses_of_several_statements_share_a_segment) {
  Result r = compile(HEAD DATA "  param v: [embed, class];\n"
                               "  h = x @ v;\n"
                               "  a = xent(h, y);\n"
                               "  b = mean(h * h);\n"
                               "  metric penalty = b;\n"
                               "  loss a + 0.1 * b - 2 * b / 4;\n}\n");
  Graph *g = graph_of(&r);
  expect_segments(g, "h*1 loss*1");
  const Op *sum = op_of_kind(g, OP_SUM, 0);
  cr_assert_float_eq(sum->real[0], 1.0 / (8 * 5), 1e-15);
  release(&r);
}

Test(semantic, broadcasting) {
  Result r = compile(HEAD DATA "  param p: [seq, embed], g: [embed], s: [];\n"
                               "  a = z + p; b = g * a; c = sum(b, embed); d = b - c; e = s * d / 3;\n"
                               "  param v: [embed, class]; loss xent(e @ v, t);\n}\n");
  Graph *g = graph_of(&r);
  const Op *b = op_of_kind(g, OP_MUL, 0), *d = op_of_kind(g, OP_SUB, 0);
  cr_assert_eq(b->offset[0], 2);
  cr_assert_eq(b->offset[1], 0);
  cr_assert_eq(d->offset[1], 0);
  cr_assert_eq(op_of_kind(g, OP_ADD, 0)->offset[1], 1);
  release(&r);
}

Test(semantic, einsum_and_moves) {
  Result r = compile(HEAD DATA "  param w: [heads, head, embed], u: [embed, heads, head];\n"
                               "  q = einsum(\"b s e, e h d -> b h s d\", z, u);\n"
                               "  k = transpose(q, batch, seq, heads, head);\n"
                               "  o = einsum(\"b s h d, h d e -> b s e\", k, w);\n"
                               "  m = einsum(\"b s e -> e b\", o);\n"
                               "  r = reshape(k, batch, seq, heads * head);\n"
                               "  a, b = split(r, 2, axis=-1);\n"
                               "  c = concat(b, a, axis=-1) + slice(concat(r, r, axis=-1), -1, begin=3, end=9);\n"
                               "  n = transpose(m) + sum(reshape(c, batch, seq, embed), seq);\n"
                               "  param v: [embed, class]; loss xent(n @ v, y);\n}\n");
  Graph *g = graph_of(&r);
  cr_assert_eq(count_of(g, OP_SLICE), 3);
  cr_assert_eq(count_of(g, OP_CONCAT), 2);
  cr_assert_eq(count_of(g, OP_PERMUTE), 3);
  const Op *slice = op_of_kind(g, OP_SLICE, 1);
  cr_assert(slice->integer[0] == 2 && slice->integer[1] == 3);
  release(&r);
}

Test(semantic, generic_blocks_infer_sizes) {
  Result r = compile(HEAD "block pair<n>(a: [.., 2 * n], b: [n, 4]) -> [.., n] {\n"
                          "  param w: [2 * n, n];\n"
                          "  return a @ w;\n}\n" DATA "  param b: [embed, 4], up: [embed, wide];\n"
                          "  h = pair(x @ up, b);\n"
                          "  param v: [embed, class]; loss xent(h @ v, y);\n}\n");
  Graph *g = graph_of(&r);
  const Param *w = param_named(g, "pair.w");
  cr_assert_str_eq(axes_text(g, w->rank, w->axes, false), "[12, embed]");
  release(&r);
}

Test(semantic, library) {
  Result r = compile(
      "import \"std/nn.pd\" as nn;\n" HEAD DATA
      "  h = nn.embedding(t, vocab=10, n=embed) |> nn.rmsnorm() |> nn.mlp(hidden=wide) |> nn.swiglu(hidden=wide);\n"
      "  h = dropout(nn.layernorm(nn.linear(h, n=embed)), 0.1);\n"
      "  loss xent(nn.project(h, n=class), t);\n}\n");
  Graph *g = graph_of(&r);
  param_named(g, "embedding.weight");
  param_named(g, "linear.bias");
  cr_assert_str_eq(op_of_kind(g, OP_DROPOUT, 0)->purpose, "dropout");
  release(&r);
}

Test(semantic, conditions_constants_and_scalars) {
  Result r =
      compile("const deep = true, name = \"a\" ;\n" HEAD DATA "  k = 2; h = x;\n"
              "  if (deep && layers >= 3 && name == \"a\") { k = k + 1; h = h * k; } else { h = softmax(h, 7); }\n"
              "  if (!deep) { h = h @ h; }\n"
              "  param w: [embed, class] = xavier(embed, class), u: [class] = uniform(-1, 1), c: [class] = -1 / 2;\n"
              "  loss mse(h @ w + u + c, h @ w);\n}\n");
  Graph *g = graph_of(&r);
  const Op *mul = op_of_kind(g, OP_MUL, 0);
  cr_assert_eq(g->values.at[mul->in[1]].number, 3);
  cr_assert_eq(param_named(g, "c")->init.a, -0.5);
  cr_assert_eq(param_named(g, "u")->init.kind, INIT_UNIFORM);
  cr_assert_float_eq(param_named(g, "w")->init.b, 0.7385489458759964, 1e-12);
  release(&r);
}

Test(semantic, a_size_of_a_block_may_be_split) {
  Result r = compile(HEAD "parallel < tp=2; > shard < f.n=tp; >\n"
                          "block f<n>(x: [.., embed]) -> [.., embed] { return x; }\n"
                          "block g(x: [.., embed], inner=4) -> [.., embed] { return up(x, n=inner) |> down(); }\n"
                          "block up<n>(x: [.., embed]) -> [.., n] { param w: [embed, n]; return x @ w; }\n"
                          "block down<n>(x: [.., n]) -> [.., embed] { param w: [n, embed]; return x @ w; }\n" DATA
                          "  h = g(x);\n" END);
  graph_of(&r);
  release(&r);
  r = compile(HEAD "parallel < tp=2; > shard < up.n=tp; >\n"
                   "block up<n>(x: [.., embed]) -> [.., n] { param w: [embed, n]; return x @ w; }\n"
                   "block down<n>(x: [.., n]) -> [.., embed] { param w: [n, embed]; return x @ w; }\n" DATA
                   "  h = up(x, n=4) |> down();\n"
                   "  param v: [embed, class]; loss xent(h @ v, y);\n}\n");
  Graph *g = graph_of(&r);
  cr_assert_eq(g->axes.at[param_named(g, "up.w")->axes[1]].mesh, MESH_TP);
  cr_assert_eq(g->axes.at[param_named(g, "down.w")->axes[0]].mesh, MESH_TP);
  release(&r);
}

Test(semantic, deep_nesting_is_refused_and_does_not_crash) {
  Arena *arena = arena_new();
  Text text = {.arena = arena};
  text_printf(&text, "%s", HEAD);
  for (int i = 0; i < 90; i++) {
    text_printf(&text, "block b%d(x: [.., embed]) -> [.., embed] { return ", i);
    for (int k = 0; k < 200; k++) text_printf(&text, "relu(");
    text_printf(&text, i < 89 ? "b%d(x)" : "x", i + 1);
    for (int k = 0; k < 200; k++) text_printf(&text, ")");
    text_printf(&text, "; }\n");
  }
  text_printf(&text, "%s h = b0(x);\n%s", DATA, END);
  Result r = compile(text.at);
  cr_assert_not(r.fine);
  cr_assert(strstr(r.text, "E0110"), "%s", r.text);
  release(&r);
  arena_free(arena);
}

Test(semantic, frozen_params_and_zero_trips) {
  Result r = compile(HEAD DATA "  frozen param e: [embed, embed];\n"
                               "  h = x @ e;\n"
                               "  repeat 0 { param q: [embed, embed]; h = h @ q; }\n"
                               "  param v: [embed, class]; loss xent(h @ v, y);\n}\n");
  Graph *g = graph_of(&r);
  cr_assert(param_named(g, "e")->frozen);
  cr_assert_eq(g->params.count, 2);
  release(&r);
}

Test(semantic, defines) {
  Define defines[] = {{"layers", "6 * 2"},       {"parallel.pp", "4"},      {"schedule.kind", "zb-h1"},
                      {"data.valid", "a/b.bin"}, {"data.train.x", "x.npy"}, {"shard.wide", "tp"},
                      {"train.steps", "1K"}};
  Result r =
      compile_with(HEAD "parallel < pp=2; >\n" DATA "  h = x; repeat layers { param w: [embed, embed]; h = h @ w; }\n"
                        "  param v: [embed, class]; loss xent(h @ v, y);\n}\n",
                   NULL, defines, sizeof defines / sizeof *defines, NULL);
  Graph *g = graph_of(&r);
  expect_segments(g, "h*1 layers*12 loss*1");
  cr_assert_eq(r.semantic.config.pp, 4);
  cr_assert_eq(r.semantic.config.steps, 1000);
  cr_assert_str_eq(r.semantic.config.schedule, "zb-h1");
  cr_assert_eq(r.semantic.config.data.count, 2);
  release(&r);
}

Test(semantic, learning_rates) {
  Result r = compile(HEAD "optimizer < lr=wsd(0.1, 0.01, warmup=10, end=200); > train < steps=50; >\n" DATA END);
  graph_of(&r);
  cr_assert_eq(r.semantic.config.rate, RATE_WSD);
  cr_assert_float_eq(r.semantic.config.decay_from, 180, 1e-9);
  release(&r);
  r = compile(HEAD "optimizer < lr=linear(0.1); > train < steps=50; >\n" DATA END);
  graph_of(&r);
  cr_assert_eq(r.semantic.config.rate, RATE_LINEAR);
  cr_assert(r.semantic.config.end == 50 && r.semantic.config.floor == 0);
  release(&r);
}

Test(semantic, several_models) {
  const char *source =
      HEAD "model a(x: f32[batch, embed], y: i32[batch]) {" END "model b(x: f32[batch, embed], y: i32[batch]) {" END;
  Result r = compile_with(source, "b", NULL, 0, NULL);
  cr_assert_str_eq(graph_of(&r)->model, "b");
  release(&r);
}

Test(semantic, list_config) {
  Arena *arena = arena_new();
  Intern *names = intern_new(arena);
  Diagnostics *diagnostics = diagnostics_new(arena);
  const char *source = HEAD "parallel < tp=2; >\n";
  uint32_t file = diag_add_source(diagnostics, "test.pd", source, strlen(source));
  Define define = {"layers", "7"};
  SemanticInput input = {.arena = arena,
                         .names = names,
                         .diagnostics = diagnostics,
                         .root = syntax_parse(arena, names, diagnostics, file),
                         .defines = &define,
                         .define_count = 1};
  Text text = {.arena = arena};
  semantic_list_config(&input, &text);
  cr_assert(strstr(text.at, "layers integer 7 (default 3)\n"), "%s", text.at);
  cr_assert(strstr(text.at, "parallel.tp integer 2 (default 1)\n"), "%s", text.at);
  cr_assert(strstr(text.at, "train.steps integer 100\n"), "%s", text.at);
  arena_free(arena);
}

Test(semantic, printed_graph_is_readable) {
  Result r = compile(gpt3_program);
  Text text = {.arena = r.arena};
  graph_print(graph_of(&r), &text);
  cr_assert(strstr(text.at, "segment layers trips 96"));
  cr_assert(strstr(text.at, "param @layers.{}.attention.wo [heads = 96, head = 128, embed = 12288]"));
  cr_assert(strstr(text.at, "axis embed = 12288 (heads * head = 96 * 128)"));
  release(&r);
}

Test(semantic, the_verifier_sees_damage) {
  Result r = compile(gpt3_program);
  Graph *g = graph_of(&r);
  Op *op = &g->ops.at[1];
  uint8_t offset = op->offset[1];
  op->offset[1] = 0;
  cr_assert_not_null(graph_verify(g));
  op->offset[1] = offset;
  g->segments.at[1].ins.at[0].carried = 7;
  cr_assert_not_null(graph_verify(g));
  g->segments.at[1].ins.at[0].carried = 0;
  g->segments.at[2].name = "layers";
  cr_assert_not_null(graph_verify(g));
  g->segments.at[2].name = "loss";
  cr_assert_null(graph_verify(g));
  release(&r);
}

/* ---- imports ---- */

static void write_file(const char *directory, const char *name, const char *text) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  FILE *file = fopen(path, "w");
  cr_assert_not_null(file);
  fputs(text, file);
  fclose(file);
}

static void remove_files(const char *directory, const char *const *names, size_t count) {
  char path[512];
  for (size_t i = 0; i < count; i++) {
    snprintf(path, sizeof path, "%s/%s", directory, names[i]);
    unlink(path);
  }
  rmdir(directory);
}

Test(semantic, imported_constants_dims_and_blocks) {
  char directory[] = "/tmp/pdc_semantic_XXXXXX";
  cr_assert_not_null(mkdtemp(directory));
  write_file(directory, "lib.pd",
             "import \"base.pd\" as base;\nconst twice = 2 * base.one;\ndim width = 6;\n"
             "block scale(x: [.., width]) -> [.., width] { param g: [width] = base.one; return x * g * twice; }\n");
  write_file(directory, "base.pd", "const one = 1;\n");
  const char *const names[] = {"lib.pd", "base.pd"};
  Result r =
      compile_with("import \"lib.pd\" as lib; import \"base.pd\" as b;\ndim batch = 4, class = 3 * lib.twice - b.one;\n"
                   "model m(x: f32[batch, lib.width], y: i32[batch]) {\n"
                   "  param v: [lib.width, class]; loss xent(lib.scale(x) @ v, y);\n}\n",
                   NULL, NULL, 0, directory);
  Graph *g = graph_of(&r);
  cr_assert_eq(r.semantic.modules.count, 3);
  param_named(g, "scale.g");
  release(&r);
  remove_files(directory, names, 2);
}

Test(semantic, import_circle_is_told_with_its_chain) {
  char directory[] = "/tmp/pdc_semantic_XXXXXX";
  cr_assert_not_null(mkdtemp(directory));
  write_file(directory, "a.pd", "import \"b.pd\" as b;\n");
  write_file(directory, "b.pd", "import \"a.pd\" as a;\n");
  const char *const names[] = {"a.pd", "b.pd"};
  Result r = compile_with("import \"a.pd\" as a;\n" HEAD DATA END, NULL, NULL, 0, directory);
  cr_assert_not(r.fine);
  cr_assert_eq(diag_errors(r.diagnostics), 1, "%s", r.text);
  cr_assert(strstr(r.text, "E0211"), "%s", r.text);
  cr_assert(strstr(r.text, "a.pd -> ") && strstr(r.text, "b.pd -> "), "%s", r.text);
  release(&r);
  remove_files(directory, names, 2);
}

/* ---- wrong programs ---- */

typedef struct Wrong {
  const char *source, *code, *words[6];
} Wrong;

#define BODY(text) HEAD DATA text "\n" END
static const Wrong wrong_programs[] = {
    /* names */
    {BODY("a = x + missing;"), "E0201", {"`missing`"}},
    {BODY("a = x + laiers;"), "E0201", {"`laiers`", "did you mean `layers`?"}},
    {BODY("a = x + parallel.tq;"), "E0201", {"`parallel.tq`", "did you mean `parallel.tp`?"}},
    {BODY("param w: [embd, 3];"), "E0201", {"`embd`", "did you mean `embed`?"}},
    {BODY("param w: f16[embed, 3];"), "E0201", {"element type `f16`"}},
    {HEAD "const a = 1, a = 2;\n" DATA END, "E0202", {"`a`", "first defined here"}},
    {BODY("param w: [embed], w: [embed];"), "E0202", {"`w`"}},
    {HEAD "block f<n>(n: [.., n]) -> [.., n] { return n; }\n" DATA END, "E0202", {"`n`"}},
    {BODY("embed = relu(x);"), "E0203", {"`embed` is a dim"}},
    {BODY("repeat i = 0 .. 2 { i = i + 1; }"), "E0203", {"`i` is a loop index"}},
    {BODY("a = atention(x);"), "E0204", {"`atention`"}},
    {BODY("a = reluu(x);"), "E0204", {"`reluu`", "did you mean `relu`?"}},
    {BODY("a = embed(x);"), "E0204", {"`embed` cannot be called", "dim"}},
    {BODY("a = normal(0.1);"), "E0204", {"initialiser"}},
    {BODY("param w: [embed] = norml(0.1);"), "E0204", {"`norml`", "did you mean `normal`?"}},
    {"import \"std/nn.pd\" as nn;\n" BODY("a = nn.layrnorm(x);"), "E0204", {"did you mean `nn.layernorm`?"}},
    {HEAD "paralel < pp=2; >\n" DATA END, "E0205", {"`paralel`", "did you mean `parallel`?"}},
    {HEAD "parallel < ppp=2; >\n" DATA END, "E0206", {"`ppp`", "did you mean `pp`?"}},
    {HEAD "optimizer < rate=2; >\n" DATA END, "E0206", {"`rate`", "lr"}},
    {HEAD "data < train.q=\"a\"; >\n" DATA END, "E0206", {"no input `q`"}},
    {HEAD "parallel < pp=2; pp=4; >\n" DATA END, "E0207", {"`parallel.pp`", "twice"}},
    {HEAD "parallel < pp=2; > parallel < tp=1; >\n" DATA END, "E0207", {"`parallel`", "twice"}},
    {HEAD "schedule < kind=zb-h9; >\n" DATA END, "E0208", {"`schedule.kind`", "`zb-h9`", "did you mean `zb-h"}},
    {HEAD "schedule < microbatch=0; >\n" DATA END, "E0208", {"`schedule.microbatch`", "at least 1", "`0`"}},
    {HEAD "optimizer < beta=0.9; >\n" DATA END, "E0208", {"`optimizer.beta`", "two numbers"}},
    {HEAD "optimizer < lr=cosin(1, 2); >\n" DATA END, "E0208", {"`cosin`", "did you mean `cosine`?"}},
    {HEAD "optimizer < lr=cosine(1, 2, warmup=20, end=10); >\n" DATA END, "E0208", {"20 steps", "10 steps"}},
    {HEAD "train < steps=2.5; >\n" DATA END, "E0208", {"`train.steps`", "whole number"}},
    {"import \"missing.pd\" as q;\n" BODY("a = q.f(x);"), "E0210", {"`missing.pd`", "searched in"}},
    {HEAD "const a = b, b = a;\n" DATA END, "E0212", {"defined by itself"}},
    {HEAD "const a = parallel.tp + 1; parallel < tp=a; >\n" DATA END, "E0212", {"defined by itself"}},
    {HEAD "const a = 9223372036854775807 + 1;\n" DATA END, "E0213", {"64 bits"}},
    {HEAD "dim big = 4000000000;\n" DATA "param w: [big, big, big];\n" END, "E0213", {"4000000000", "elements"}},
    {HEAD "const a = 1 / 0;\n" DATA END, "E0214", {"divides by zero"}},
    {HEAD "dim half = seq / 3;\n" DATA END, "E0222", {"`half`", "1.333"}},
    {BODY("param w: [seq / 3];"), "E0214", {"whole number", "seq / 3 = 4 / 3"}},
    {BODY("a = relu(x, x);"), "E0215", {"`relu`", "at most 1"}},
    {BODY("a = layernorm(x, epsilon=1);"), "E0215", {"`epsilon`"}},
    {BODY("a = dropout(x);"), "E0215", {"`dropout`", "`p`"}},
    {HEAD "block f(x: [.., embed]) -> [.., embed] { return x; }\n" DATA "a = f(x, q=3);\n" END,
     "E0215",
     {"`f`", "`q`"}},
    {HEAD "block f(x: [.., embed]) -> [.., embed] { return x; }\n" DATA "a = f();\n" END,
     "E0215",
     {"needs the input `x`"}},
    {HEAD "block f(x: [.., embed]) -> [.., embed] { return g(x); }\n"
          "block g(x: [.., embed]) -> [.., embed] { return f(x); }\n" DATA "a = f(x);\n" END,
     "E0217",
     {"f -> g -> f"}},
    {HEAD, "E0218", {"no model"}},
    {HEAD "model a(x: f32[batch, embed], y: i32[batch]) {" END "model b(x: f32[batch, embed], y: i32[batch]) {" END,
     "E0218",
     {"2 models: a, b", "--model="}},
    {HEAD "block f(x: [.., embed]) -> [.., embed] { y = x; }\n" DATA "a = f(x);\n" END,
     "E0219",
     {"`f` returns nothing"}},
    {HEAD "block f(x: [.., embed]) -> [.., embed] { repeat 2 { return x; } return x; }\n" DATA "a = f(x);\n" END,
     "E0219",
     {"`return`", "`repeat`"}},
    {BODY("loss mean(x);"), "E0219", {"second `loss`"}},
    {HEAD DATA "a = x + 1;\n}\n", "E0220", {"`m` has no `loss`"}},
    {BODY("if (layers) { }"), "E0221", {"`layers`", "integer"}},
    {BODY("repeat -1 { a = x; }"), "E0222", {"-1 trips"}},
    {BODY("param w: [x, 3];"), "E0223", {"`x` is a tensor"}},
    /* shapes */
    {BODY("param w: [wide, embed]; a = x @ w;"),
     "E0301",
     {"`embed` with `wide`", "`x` ends with `embed` = 6", "`w` starts with `wide` = 12"}},
    {BODY("param w: [wide, embed]; a = relu(gelu(x @ w)) + 1;"), "E0301", {"`embed` with `wide`"}},
    {BODY("param w: [other, embed]; a = x @ w;"), "E0301", {"`embed` with `other`", "match by name"}},
    {BODY("param w: [6, 6]; a = w @ concat(w, w, axis=0);"), "E0301", {"`6` with `12`"}},
    {BODY("param w: [6, 6], u: [6, 6]; a = w @ u;"), "E0302", {"ambiguous", "einsum"}},
    {BODY("param w: [wide]; a = x + w;"), "E0303", {"embed = 6", "wide = 12"}},
    {BODY("param p: [3, embed]; a = z + p;"), "E0303", {"seq = 4", "3"}},
    {BODY("param p: [8, embed]; a = x + p;"), "E0303", {"batch axis"}},
    {BODY("param p: [6, 6, 6], q: [6]; a = p + q;"), "E0304", {"ambiguous"}},
    {HEAD "block f(x: [.., wide]) -> [.., wide] { return x; }\n" DATA "a = f(x);\n" END,
     "E0305",
     {"input `x` of `f`", "embed = 6", "`wide` = 12"}},
    {HEAD "block f<n>(x: [.., n], y: [.., n]) -> [.., n] { return x + y; }\n" DATA
          "param w: [embed, wide]; a = f(x, x @ w);\n" END,
     "E0305",
     {"`wide` = 12", "`embed` = 6"}},
    {HEAD "block f(x: [.., embed]) -> [.., wide] { return x; }\n" DATA "a = f(x);\n" END,
     "E0306",
     {"the result of `f`"}},
    {BODY("h = x; param w: [embed, wide]; repeat 2 { h = h @ w; }"),
     "E0307",
     {"[batch = 8, embed = 6]", "[batch = 8, wide = 12]"}},
    {BODY("a, b = split(x, 3, axis=embed);"), "E0308", {"3 tensors for 2 names"}},
    {BODY("a = x < 3;"), "E0308", {"constants"}},
    {BODY("param s: [embed]; a = dropout(s, 0.5);"), "E0308", {"`dropout`", "batch", "[embed = 6]"}},
    {BODY("a = t + 1;"), "E0309", {"i32[batch = 8, seq = 4]"}},
    {BODY("param w: [class, embed]; a = gather(w, x);"), "E0309", {"i32"}},
    {BODY("a = einsum(\"b e -> b q\", x);"), "E0310", {"`q`"}},
    {BODY("a = einsum(\"b b -> b\", x);"), "E0310", {"twice"}},
    {BODY("a = einsum(\"b e f -> b\", x);"), "E0310", {"3 labels", "2 axes"}},
    {BODY("a = reshape(x, batch, 5);"), "E0311", {"40 elements", "48 elements"}},
    {BODY("a = sum(x, seq);"), "E0312", {"`seq`", "[batch = 8, embed = 6]"}},
    {BODY("param w: [embed, 0];"), "E0313", {"`w`", "size 0"}},
    {HEAD "dim none = 0;\nblock linear<m, n>(x: [.., m]) -> [.., n] { param w: [m, n]; return x @ w; }\n" DATA
          "a = linear(x, n=none);\n" END,
     "E0313",
     {"`linear.w`", "none = 0"}},
    {HEAD "block linear<m, n>(x: [.., m]) -> [.., n] { param w: [m, n]; return x @ w; }\n" DATA "a = linear(x);\n" END,
     "E0314",
     {"`n` of `linear`", "n=..."}},
    {HEAD DATA "loss x;\n}\n", "E0315", {"the loss", "[batch = 8, embed = 6]", "mean(x)"}},
    {HEAD DATA "param s: []; loss s * s;\n}\n", "E0315", {"does not depend on the samples"}},
    {HEAD "model m(x: f32[batch, embed], y: i32[embed]) { loss mean(x); }\n", "E0317", {"`embed` = 6", "`batch` = 8"}},
    {HEAD "model m(x: f32[8, embed]) { loss mean(x); }\n", "E0317", {"`x` starts with 8"}},
    {BODY("a = x - mean(x, batch);"), "E0318", {"`batch` = 8", "micro-batch"}},
    {BODY("param w: [batch, embed];"), "E0318", {"`w`", "batch"}},
    {BODY("a = softmax(transpose(x));"), "E0318", {"`softmax`", "`batch` = 8"}},
    {BODY("a = exp(mean(x));"), "E0318", {"`exp`"}},
    {BODY("a = reshape(z, 32, embed);"), "E0318", {"`batch` = 8"}},
    {BODY("a = mean(x); h = x; repeat 2 { h = relu(h); } metric q = a + mean(h);"), "E0318", {"`a`", "loop"}},
    {BODY("h = x; repeat i = 0 .. 2000 { h = relu(relu(relu(h + i) + i) + i); }"), "E0319", {"10000 operations"}},
    {BODY("h = x; repeat i = 0 .. 6000 { h = relu(h + i); }"), "E0319", {"2048 statements"}},
    {BODY("a = concat(x, z, axis=embed);"), "E0321", {"[batch = 8, seq = 4, embed = 6]"}},
    {BODY("a = slice(x, embed, begin=4, end=9);"), "E0321", {"4 to 9", "`embed` = 6"}},
    {BODY("a, b = split(x, 4, axis=embed);"), "E0321", {"`embed` = 6", "4 equal parts"}},
    {BODY("param q: [embed, heads, head], k: [embed, kv, head]; a = sdpa(z @ q, z @ k, z @ k);"),
     "E0308",
     {"`heads` = 2", "`kv` = 1", "group=2"}},
    {BODY("a = max(x, batch);"), "E0318", {"`max`"}},
    {HEAD DATA "param w: [embed, class]; loss xent(z @ w, t, ignore=0) + xent(z @ w, t);\n}\n", "E0921", {"-100"}},
    /* layout */
    {HEAD "parallel < tp=0; >\n" DATA END, "E0401", {"`parallel.tp`", "`0`"}},
    {HEAD "parallel < tp=2; > shard < class=tp; >\n" DATA END, "E0402", {"`class` = 5", "tp = 2", "4 or 6"}},
    {HEAD "parallel < tp=2; > shard < kv=tp; >\n" DATA END, "E0402", {"`kv` = 1", "tp = 2", "fewer"}},
    {HEAD "shard < baatch=dp; >\n" DATA END, "E0403", {"`baatch`", "did you mean `batch`?"}},
    {HEAD "shard < layers=tp; >\n" DATA END, "E0403", {"`layers`", "const"}},
    {HEAD "shard < wide=pp; >\n" DATA END, "E0404", {"`pp`", "dp, tp, cp and ep"}},
    {HEAD "shard < embed=tp; wide=tp; >\n" DATA "param w: [embed, wide]; a = x @ w;\n" END,
     "E0405",
     {"`w`", "`embed` = 6", "`wide` = 12", "tp"}},
    {HEAD "shard < embed=dp; >\n" DATA END, "E0406", {"`batch`", "`embed`"}},
    {HEAD "parallel < dp=2; >\n" DATA END, "E0407", {"dp = 2", "batch=dp;"}},
    {HEAD "parallel < cp=2; >\n" DATA END, "E0408", {"cp=2"}},
    {HEAD "parallel < dp=*; >\n" DATA END, "E0407", {"dp = *", "batch=dp;"}},
    {HEAD "parallel < dp=*; tp=parallel.dp; > shard < batch=dp; >\n" DATA END, "E0414", {"`parallel.dp`", "dp=8"}},
    {HEAD "parallel < pp=*; >\n" DATA END, "E0401", {"`parallel.pp`", "only `dp`"}},
    {HEAD "parallel < tp=2; > shard < wide=tp; >\n" DATA "param w: [embed, wide]; a = layernorm(x @ w);\n" END,
     "E0409",
     {"`layernorm`", "`wide` = 12", "tp=2"}},
    {HEAD "parallel < tp=2; > shard < f.n=tp; >\nblock f<n>(x: [.., embed]) -> [.., n] { param w: [embed, n]; return "
          "x @ w; }\n" DATA "a = f(x, n=5);\n" END,
     "E0402",
     {"`f.n` = 5", "tp = 2", "4 or 6"}},
    {HEAD "parallel < tp=2; > shard < f.n=tp; >\nblock f<n>(x: [.., embed]) -> [.., n] { param w: [embed, n]; return "
          "x @ w; }\n" DATA "a = f(x, n=wide);\n" END,
     "E0413",
     {"`f.n=tp`", "`wide` = 12"}},
    {HEAD "shard < f.m=tp; >\nblock f<n>(x: [.., n]) -> [.., n] { return x; }\n" DATA END,
     "E0403",
     {"`f.m`", "block `f` has no size `m`"}},
    {HEAD "parallel < dp=16; > shard < batch=dp; >\n" DATA END, "E0501", {"`batch` = 8", "16 * 1", "= 16 samples"}},
    {HEAD "schedule < microbatch=3; >\n" DATA END, "E0501", {"`batch` = 8", "1 * 3", "6 and 9", "microbatch=2"}},
    {HEAD "parallel < dp=3; > shard < batch=dp; >\n" DATA END, "E0501", {"`batch` = 8", "3 * 1", "6 and 9"}},
};

Test(semantic, wrong_programs) {
  for (size_t i = 0; i < sizeof wrong_programs / sizeof *wrong_programs; i++) {
    const Wrong *wrong = &wrong_programs[i];
    Result r = compile(wrong->source);
    cr_expect_not(r.fine, "accepted:\n%s", wrong->source);
    cr_expect_eq(diag_errors(r.diagnostics), 1, "%u errors, not 1:\n%s\n%s", diag_errors(r.diagnostics), wrong->source,
                 r.text);
    const char *mark = arena_printf(r.arena, "error[%s]", wrong->code);
    cr_expect(strstr(r.text, mark), "no %s:\n%s\n%s", wrong->code, wrong->source, r.text);
    for (size_t k = 0; k < 6 && wrong->words[k]; k++)
      cr_expect(strstr(r.text, wrong->words[k]), "not said: %s\n%s\n%s", wrong->words[k], wrong->source, r.text);
    release(&r);
  }
}

Test(semantic, wrong_defines) {
  const struct {
    Define define;
    const char *word;
  } cases[] = {{{"layer", "3"}, "did you mean `layers`?"},
               {{"embed", "3"}, "not a `config const`"},
               {{"parallel.tpp", "3"}, "did you mean `parallel.tp`?"},
               {{"paralell.tp", "3"}, "did you mean `parallel.tp`?"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Result r = compile_with(HEAD DATA END, NULL, &cases[i].define, 1, NULL);
    cr_expect_not(r.fine);
    cr_expect(strstr(r.text, "E0209") && strstr(r.text, cases[i].word), "%s", r.text);
    release(&r);
  }
}

Test(semantic, errors_do_not_stop_the_pass) {
  Result r = compile(BODY("a = x + nothing; b = a + 1; c = relu(b, b, b); param w: [wide]; d = x + w; e = d * 2;"));
  cr_assert_eq(diag_errors(r.diagnostics), 3, "%s", r.text);
  release(&r);
}

Test(semantic, an_error_in_a_block_is_told_once) {
  Result r = compile(HEAD "block f<n>(x: [.., n]) -> [.., n] { param w: [wide]; return x + w; }\n" DATA
                          "h = f(x); h = f(h); repeat layers { h = f(h); }\n" END);
  cr_assert_eq(diag_errors(r.diagnostics), 1, "%s", r.text);
  cr_assert(strstr(r.text, "in block `f`, called at test.pd:"), "%s", r.text);
  release(&r);
}

Test(semantic, the_documented_contraction_error) {
  Result r = compile(HEAD "block mlp(x: [batch, embed]) -> [batch, embed] {\n"
                          "  param w1: [embed, wide], b1: [wide] = 0, w2: [wide, embed], b2: [embed] = 0;\n"
                          "  return gelu(x @ w1 + b1) + x @ w2;\n}\n" DATA "h = mlp(x);\n" END);
  cr_assert(strstr(r.text, "error[E0301]: `@` cannot contract `embed` with `wide`"), "%s", r.text);
  cr_assert(strstr(r.text, "help: contract with `w1`, or apply `w2` to `gelu(x @ w1 + b1)`"), "%s", r.text);
  release(&r);
}
