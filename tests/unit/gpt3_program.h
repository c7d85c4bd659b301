/* GPT-3 with every block written out, as a program of the tests. */
#ifndef TESTS_UNIT_GPT3_PROGRAM_H
#define TESTS_UNIT_GPT3_PROGRAM_H

static const char gpt3_program[] =
    "import \"std/nn.pd\" as nn;\n"
    "config const layers = 96, global = 1536;\n"
    "dim batch = global, seq = 2048, heads = 96, head = 128, embed = heads * head, ffn = 4 * embed;\n"
    "dim vocab = roundup(50257, 128 * parallel.tp);\n"
    "\n"
    "parallel < pp=8; dp=64; tp=8; >\n"
    "shard < batch=dp; heads=tp; ffn=tp; vocab=tp; >\n"
    "schedule < kind=interleaved; chunks=2; microbatch=1; recompute=selective; >\n"
    "optimizer < kind=adamw; lr=cosine(6e-5, 6e-6, warmup=375M, end=260B); beta=(0.9, 0.95);\n"
    "            decay=0.1; clip=1.0; >\n"
    "precision < compute=bf16; master=f32; reduce=f32; >\n"
    "data < train=\"pile/train.bin\"; seed=1234; >\n"
    "\n"
    "block attention(x: [batch, seq, embed]) -> [batch, seq, embed] {\n"
    "  param wq: [embed, heads, head], wk: [embed, heads, head], wv: [embed, heads, head];\n"
    "  param bq: [heads, head] = 0, bk: [heads, head] = 0, bv: [heads, head] = 0;\n"
    "  param wo: [heads, head, embed] = normal(0.02 / sqrt(2 * layers)), bo: [embed] = 0;\n"
    "  return sdpa(x @ wq + bq, x @ wk + bk, x @ wv + bv, causal=true) @ wo + bo;\n"
    "}\n"
    "block mlp(x: [batch, seq, embed]) -> [batch, seq, embed] {\n"
    "  param w1: [embed, ffn], b1: [ffn] = 0, w2: [ffn, embed], b2: [embed] = 0;\n"
    "  return gelu(x @ w1 + b1) @ w2 + b2;\n"
    "}\n"
    "model gpt3(tokens: i32[batch, seq], targets: i32[batch, seq]) {\n"
    "  param wte: [vocab, embed], wpe: [seq, embed];\n"
    "  x = gather(wte, tokens) + wpe;\n"
    "  repeat layers {\n"
    "    x = x + attention(nn.layernorm(x));\n"
    "    x = x + mlp(nn.layernorm(x));\n"
    "  }\n"
    "  loss xent(nn.layernorm(x) @ transpose(wte), targets);   // tied with the embedding\n"
    "}\n";

#endif
