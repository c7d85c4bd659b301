/* The formatter: what it makes of programs is what they were, and stays when it is formatted again. */
#include "unit/gpt3_program.h"
#include "unit/syntax_help.h"

static const char llama[] =
    "config const layers = 80;\n"
    "dim batch = 1024, seq = 8192, q = 64, kv = 8, head = 128, embed = q * head, ffn = 28672, vocab = 128256;\n"
    "parallel < pp=8; dp=64; tp=8; >\n"
    "shard < batch=dp; q=tp; kv=tp; ffn=tp; vocab=tp; >\n"
    "schedule < kind=1f1b; microbatch=1; >\n"
    "optimizer < kind=adamw; lr=cosine(1.5e-4, 1.5e-6, warmup=8000, end=1.2M); decay=0.1; clip=1.0; >\n"
    "\n"
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
    "}\n";

static const char residual_mlp[] = "dim batch = 16384, pixel = 784, hidden = 1024, wide = 4096, class = 10;\n"
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
                                   "}\n";

static const char residual_cnn[] =
    "dim batch = 8192, side = 224, class = 1000;\n"
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
    "model resnet34(x: f32[batch, 3, side, side], y: i32[batch]) {\n"
    "  t = x |> conv(co=64, k=7, s=2) |> maxpool(2);\n"
    "  repeat 3 { t = residual(t); }   t = conv(t, co=128, s=2);\n"
    "  repeat 4 { t = residual(t); }   t = conv(t, co=256, s=2);\n"
    "  repeat 6 { t = residual(t); }   t = conv(t, co=512, s=2);\n"
    "  repeat 3 { t = residual(t); }\n"
    "  loss xent(t |> avgpool() |> linear(n=class), y);     // linear as in the MLP\n"
    "}\n";

static const char *formatted(const Parsed *parsed) {
  Text out = {.arena = parsed->arena};
  syntax_format(&out, parsed->all, parsed->module);
  return out.at;
}

static void formats_as(const char *text, const char *expected) {
  Parsed parsed = parse_well(text);
  const char *once = formatted(&parsed);
  cr_assert_str_eq(once, expected);
  Parsed again = parse_well(once);
  cr_assert_str_eq(formatted(&again), once);
  arena_free(again.arena);
  arena_free(parsed.arena);
}

static void stays(const char *text) {
  formats_as(text, text);
}

Test(format, programs_keep_their_words) {
  const char *programs[] = {gpt3_program, llama, residual_mlp, residual_cnn};
  for (size_t i = 0; i < 4; i++) {
    Parsed parsed = parse_well(programs[i]);
    const char *once = formatted(&parsed);
    const char *a = programs[i], *b = once; /* equal but for blanks */
    while (*a != '\0' || *b != '\0') {
      while (*a == ' ' || *a == '\n') a++;
      while (*b == ' ' || *b == '\n') b++;
      cr_assert_eq(*a, *b, "program %zu: `%.20s` became `%.20s`", i, a, b);
      if (*a != '\0') a++, b++;
    }
    for (const char *line = once; *line != '\0'; line = strchr(line, '\n') + 1)
      cr_assert_leq(strcspn(line, "\n"), 110u, "long line: %.120s", line);
    Parsed again = parse_well(once);
    cr_assert_str_eq(formatted(&again), once);
    arena_free(again.arena);
    arena_free(parsed.arena);
  }
  stays(llama);
  stays(residual_mlp);
}

Test(format, spaces) {
  formats_as("pd   1 ;const a=1,b=a*2;config   const c=(a<b)&&!d;dim e=-3;import\"x.pd\"as y;data<>\n"
             "schedule<kind=zb-h1;t=(1,2);dp=*;conv.co=tp;>",
             "pd 1;\nconst a = 1, b = a * 2;\nconfig const c = (a < b) && !d;\ndim e = -3;\nimport \"x.pd\" as y;\n"
             "data < >\nschedule < kind=zb-h1; t=(1, 2); dp=*; conv.co=tp; >\n");
  formats_as("block f<m,n>(x:[..,m],y:f32[],k=3)->[..,n]{param w:[m,n]=kaiming(m),b:[n];frozen param c:[];\n"
             "a,b=split(x,n=2);repeat i=0 ..k*2{a=a;}if(k==1){a=b;}else if(k>2){}else{a=x|>g( )|>nn.h(b);}\n"
             "metric q=a;loss a;return((a+b))@c*-d;}",
             "block f<m, n>(x: [.., m], y: f32[], k=3) -> [.., n] {\n"
             "  param w: [m, n] = kaiming(m), b: [n];\n"
             "  frozen param c: [];\n"
             "  a, b = split(x, n=2);\n"
             "  repeat i = 0 .. k * 2 { a = a; }\n"
             "  if (k == 1) { a = b; } else if (k > 2) { } else { a = x |> g() |> nn.h(b); }\n"
             "  metric q = a;\n"
             "  loss a;\n"
             "  return (a + b) @ c * -d;\n"
             "}\n");
  formats_as("", "");
  formats_as("\n\n  // lonely  \r\n", "// lonely\n");
  formats_as("const a = 375M, b = 1e-5, c = 1f1b, d = 64KiB, e = \"q\\\"\\\\\\n\";",
             "const a = 375M, b = 1e-5, c = 1f1b, d = 64KiB, e = \"q\\\"\\\\\\n\";\n");
}

Test(format, blank_lines_and_bodies) {
  formats_as(
      "\n\nconst a = 1;\n\n\n\nconst b = 2;\nmodel m() {\n\n  x = 1;\n\n\n  repeat 2 { x = 2;\n  }\n\n}\nblock g() -> "
      "[] {\n}\n",
      "const a = 1;\n\nconst b = 2;\nmodel m() {\n  x = 1;\n\n  repeat 2 {\n    x = 2;\n  }\n}\nblock g() -> [] { }\n");
  formats_as("model m() {\n  if (a) {\n x = 1; } else { if (b) { y = 1; } }\n}\n",
             "model m() {\n  if (a) {\n    x = 1;\n  } else {\n    if (b) { y = 1; }\n  }\n}\n");
}

Test(format, comments_stay_with_their_line) {
  stays("// head of the file\n\n// about layers\nconfig const layers = 96,  // how many\n             global = 1536;  "
        "// samples\n\n"
        "dim a = 3,  // three\n    // before b\n    b = 4;\n"
        "parallel < pp=8;  // stages\n           // replicas\n           dp=64; >\n"
        "optimizer < kind=adamw;\n            lr=3;  // last\n          >  // after\n"
        "block f(x: [a],  // first\n        y: [b]) -> [a] {  // body\n  // in the body\n\n"
        "  param w: [a, b],  // w\n        b: [b] = 0;  // b\n"
        "  repeat 3 { x = x + 1; }  // thrice\n  if (a) {\n    x = 2;\n    // end of then\n  } else if (b) {  // "
        "else\n    x = 3;\n"
        "  } else {\n    // only a comment\n    x = 4;\n  }\n\n  // tail\n}\n// end\n");
  formats_as("model m() {\n  x = f(a, // one\n    b); // two\n  y = 1; } // three\n",
             "model m() {\n  // one\n  x = f(a, b);  // two\n  y = 1;\n}  // three\n");
  formats_as("const a = \"// no comment\"; // comment\n", "const a = \"// no comment\";  // comment\n");
}

Test(format, long_lines_break) {
  formats_as(
      "model m() {\n  yyyyyyyyyyyyyyyyyyyyyyyyyyyyyy = "
      "ffffffffffffffffffffffffffffffffffffffff(aaaaaaaaaaaaaaaaaaaaaaaaa, "
      "bbbbbbbbbbbbbbbbbbbbbbbbbbbbb + ccccccccccccccccccccc, d);\n"
      "  z = aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa * bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb + "
      "cccccccccccccccccccccc * dd;\n}\n",
      "model m() {\n"
      "  yyyyyyyyyyyyyyyyyyyyyyyyyyyyyy = ffffffffffffffffffffffffffffffffffffffff(aaaaaaaaaaaaaaaaaaaaaaaaa,\n"
      "                                                                            bbbbbbbbbbbbbbbbbbbbbbbbbbbbb\n"
      "                                                                            + ccccccccccccccccccccc, d);\n"
      "  z = aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa * bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\n"
      "      + cccccccccccccccccccccc * dd;\n}\n");
}

/* A tree whose values did not come from a source prints by value, with the parentheses its shape needs. */
Test(format, values_made_by_hand) {
  Parsed parsed = parse_well("const a = b @ c;\ndim d = 4;\n");
  Expr *product = parsed.module->items[0]->bindings[0].value;
  Expr *sum = ARENA_NEW(parsed.arena, Expr), *five = ARENA_NEW(parsed.arena, Expr),
       *half = ARENA_NEW(parsed.arena, Expr);
  *five = (Expr){.kind = EXPR_INT, .integer = -5, .span = NO_SPAN};
  *half = (Expr){.kind = EXPR_REAL, .real = 3, .span = NO_SPAN};
  *sum = (Expr){.kind = EXPR_BINARY, .op = '+', .span = NO_SPAN, .arg_count = 2};
  sum->args = ARENA_ARRAY(parsed.arena, Expr *, 2);
  sum->args[0] = product->args[0];
  sum->args[1] = half;
  product->args[0] = sum;
  parsed.module->items[1]->bindings[0].value = five;
  cr_assert_str_eq(formatted(&parsed), "const a = (b + 3.0) @ c;\ndim d = -5;\n");
  arena_free(parsed.arena);
}
