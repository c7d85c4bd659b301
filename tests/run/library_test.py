"""templates/std/nn.pd: each block against finite differences, and the blocks of transformers against the same model written
by hand: the same bits, whether a layer is called as one block or put together from smaller ones, and PyTorch's numbers.
"""
import json
import os
import re

import harness
from harness import (GOLDEN, Random, add, build, check, close, once, read_npy, read_program, read_safetensors, start,
                     tensors_close, tensors_equal, train)

LIBRARY = os.path.join(harness.ROOT, "templates", "std", "nn.pd")

# ---- gradients ----

DIMS = """import "std/nn.pd" as nn;
dim batch = 4, seq = 5, n = 6, m = 8, heads = 4, kv = 2, head = 6, hidden = 10, vocab = 7, longest = 9;
schedule < microbatch=2; >
precision < compute=f64; >
optimizer < kind=sgd; lr=0.1; >
data < shuffle=off; >
model net(ids: i32[batch, seq], x: f64[batch, seq, n], z: f64[batch, seq, n]) {
  param scale: [n] = uniform(0.5, 1.5);
  h = x * scale;
  loss mse(%s, z);
}
"""
CALLS = {  # block: expression over h [batch, seq, n], and ids
    "layernorm": "nn.layernorm(h)", "rmsnorm": "nn.rmsnorm(h)", "linear": "nn.linear(nn.linear(h, n=m), n=n)",
    "project": "nn.project(h, n=n)", "mlp": "nn.mlp(h, hidden=hidden, std=0.5)", "swiglu": "nn.swiglu(h, hidden=hidden, std=0.5)",
    "embedding": "h + nn.embedding(ids, vocab=vocab, n=n)", "positions": "nn.positions(h, longest=longest)",
    "attention": "nn.attention(h, heads=heads, kv=heads, head=head, bias=true, std=0.5)",
    "attention of groups with positions, not causal":
        "nn.attention(h, heads=heads, kv=kv, head=head, causal=false, theta=100, std=0.5)",
    "gpt_block": "nn.gpt_block(h, heads=heads, head=head, hidden=hidden, drop=0.25, std=0.5)",
    "llama_block": "nn.llama_block(h, heads=heads, kv=kv, head=head, hidden=hidden, std=0.5)",
}
IMAGES = {  # over g [batch, 2, 3, 5]
    "conv2d": "nn.conv2d(g, co=2)", "batchnorm": "nn.batchnorm(g)", "conv_block": "nn.conv_block(nn.conv_block(g, co=4), co=2, k=1)",
    "residual": "nn.residual(g)",
}


def gradients_agree(expression):
    random = Random(9)
    data = {"ids": random.integers([4, 5], 7), "x": random.reals([4, 5, 6]), "z": random.reals([4, 5, 6])}
    run = start(build(DIMS % expression), "--check-gradients=20", "--steps=1", data=data)
    errors = {name: float(x) for name, x in re.findall(r"parameter (\S+): largest error (\S+)", run.result.out)}
    # a softmax does not see what is added to all its inputs: the gradient of the keys' bias is rounding, and relative to it
    # so is the difference quotient
    zero = [name for name in errors if name.endswith(".bk")]
    wrong = {name: x for name, x in errors.items() if name not in zero and not x < 5e-7}
    check(len(errors) >= 2 and not wrong and (zero or run.result.code == 0), run.result.describe())
    if zero:
        gradients = train(build(DIMS % expression), "--steps=1", data=data).gradients
        for name in zero:
            check(harness.norm(gradients[name].values) < 1e-14, "%s has a gradient: %s" % (name, gradients[name].values))


for name, expression in IMAGES.items():
    add("gradients of " + name, gradients_agree, "reshape(%s, batch, seq, n)" % re.sub(r"\bg\b", "reshape(h, batch, 2, 3, 5)", expression))
for name, expression in CALLS.items():
    add("gradients of " + name, gradients_agree, expression)


def test_every_block_is_called_here():
    with open(LIBRARY) as file:
        blocks = re.findall(r"^block (\w+)", file.read(), re.M)
    missing = [name for name in blocks if not any("nn.%s(" % name in call for call in list(CALLS.values()) + list(IMAGES.values()))]
    check(len(blocks) >= 11 and not missing, "blocks without a gradient check: %s" % missing)


# ---- the same as by hand ----

def without_blocks(source):
    return re.sub(r"^block .*?^}\n", "", source, flags=re.M | re.S)


def rewrite(source, *pairs):
    for old, new in pairs:
        check(old in source, "`%s` is not in the program" % old)
        source = source.replace(old, new)
    return source


def forms():
    """{model: {form: source}}: by hand, from parts of the library, a block of it for every layer."""
    gpt, llama = read_program("gpt"), 'import "std/nn.pd" as nn;\n' + read_program("llama")
    parts = "nn.attention(%s, heads=heads, kv=heads, head=head, bias=true)"
    loop = re.search(r"  repeat layers \{.*?\n  }\n", gpt, re.S).group(0)
    # with gains and biases that are 1 and 0, and no others: what rmsnorm(x) without a weight is
    normed = rewrite(llama, ("rmsnorm(x)", "nn.rmsnorm(x)"))
    layer = "x = x + attention(nn.rmsnorm(x)); x = x + swiglu(nn.rmsnorm(x));"
    return {
        "gpt": {
            "by hand": gpt,
            "parts": rewrite(without_blocks(gpt), ("attention(nn.layernorm(x))", parts % "nn.layernorm(x)"),
                             (" dropout(mlp(nn.layernorm(x))", " dropout(nn.mlp(nn.layernorm(x), hidden=ffn)")),
            "layers": rewrite(without_blocks(gpt), (loop, "  repeat layers { x = nn.gpt_block(x, heads=heads, head=head, hidden=ffn, drop=drop); }\n")),
        },
        "llama": {
            "by hand": normed,
            "parts": rewrite(without_blocks(normed), ("attention(", "nn.attention(heads=q, kv=kv, head=head, theta=5e5, x="), ("swiglu(", "nn.swiglu(hidden=ffn, x=")),
            "layers": rewrite(without_blocks(normed), (layer, "x = nn.llama_block(x, heads=q, kv=kv, head=head, hidden=ffn);")),
        },
    }


LAYOUTS = {"one rank": {"schedule.microbatch": 4},
           "pp2 tp2": {"parallel.pp": 2, "parallel.tp": 2, "schedule.microbatch": 3},
           "dp2 tp2": {"parallel.dp": 2, "parallel.tp": 2, "schedule.microbatch": 3}}


def plain_name(name):
    return re.sub(r"\.(gpt|llama)_block\.", ".", name)


def run_of(model, form, layout):
    def run():
        random = Random(7)
        data = {"tokens": random.integers([24, 8], 48), "targets": random.integers([24, 8], 48, ignored=0.3)}
        program = build(forms()[model][form], {"layers": 2, **LAYOUTS[layout]})
        names = sorted(train(program, "--steps=0").weights)
        drawn = once(("weights", model), lambda: weights_of(model))
        done = train(program, "--steps=2", data=data, init={name: drawn[plain_name(name)] for name in names})
        rename = lambda tensors: {plain_name(name): t for name, t in tensors.items()}
        return done.losses, done.norms, rename(done.gradients), rename(done.weights)
    return once(("run", model, form, layout), run)


def weights_of(model):
    random = Random(11)
    made = train(build(forms()[model]["by hand"], {"layers": 2, **LAYOUTS["one rank"]}), "--steps=0").weights
    return {name: random.reals(t.shape, "F32", 0.2, 1.0 if name.endswith("weight") else 0.0) for name, t in made.items()}


def same_as_by_hand(model, form, layout):
    wanted, got = run_of(model, "by hand", layout), run_of(model, form, layout)
    check(got[0] == wanted[0] and got[1] == wanted[1], "losses %s, by hand %s" % (got[0], wanted[0]))
    tensors_equal(got[2], wanted[2], "gradients of step 1")
    tensors_equal(got[3], wanted[3], "weights after two steps")


for model in ("gpt", "llama"):
    for form in ("parts", "layers"):
        for layout in LAYOUTS:
            add("%s from %s on %s" % (model, form, layout), same_as_by_hand, model, form, layout)


def test_gpt_from_parts_is_pytorchs():
    """The goldens of golden_test, for the model with the library's attention and MLP."""
    program = build(forms()["gpt"]["parts"], {"layers": 2, "precision.compute": "f64", "schedule.microbatch": 4})
    path = lambda name: os.path.join(GOLDEN, "gpt-tied." + name)
    run = train(program, "--steps=5", data={name: read_npy(path(name + ".npy")) for name in ("tokens", "targets")},
                init=path("weights.safetensors"))
    with open(path("json")) as file:
        wanted = json.load(file)["adamw"]
    close(run.losses, wanted["losses"], 1e-12, "losses")
    tensors_close(run.gradients, read_safetensors(path("gradients.safetensors")), 1e-10, "gradients", floor=1e-3)


# ---- sizes that only the block has ----

RULES = """import "std/nn.pd" as nn;
dim batch = 4, seq = 6, n = 16, vocab = 32, h = 4, f = 24;
parallel < tp=2; >
shard < batch=dp; %s >
schedule < microbatch=2; >
optimizer < kind=sgd; lr=0.1; >
data < shuffle=off; >
model lm(tokens: i32[batch, seq], targets: i32[batch, seq]) {
  x = nn.embedding(tokens, vocab=vocab, n=n);
  x = nn.gpt_block(x, heads=%s, head=4, hidden=%s);
  loss xent(nn.project(x, n=vocab), targets);
}
"""


def test_rules_for_sizes_of_blocks():
    """A size that is given as a number is divided by `nn.gpt_block.heads=tp`, as a dim is by its own rule."""
    random, results = Random(3), []
    data = {"tokens": random.integers([8, 6], 32), "targets": random.integers([8, 6], 32)}
    for words in (("h=tp; f=tp;", "h", "f"), ("nn.gpt_block.heads=tp; nn.gpt_block.hidden=tp;", "4", "24")):
        source = RULES % words
        done = train(build(source), "--steps=2", data=data)
        local = harness.emit("sharding", source)
        results.append((done.losses, done.weights, local))
    check(results[0][0] == results[1][0], "losses: %s" % [r[0] for r in results])
    tensors_equal(results[0][1], results[1][1], "weights")
    check(re.search(r"gpt_block\.mlp\.w1.*tp", results[1][2]), "w1 is divided: " + results[1][2])


CHANNELS = """import "std/nn.pd" as nn;
dim batch = 4, side = 6, class = 5;
parallel < tp=%d; >
shard < batch=dp; nn.conv_block.co=tp; nn.residual.c=tp; nn.conv2d.co=tp; >
schedule < microbatch=2; >
precision < compute=f64; >
optimizer < kind=sgd; lr=0.1; >
data < shuffle=off; >
model net(x: f32[batch, 3, side, side], y: i32[batch]) {
  t = nn.conv_block(x, co=4);
  t = nn.residual(nn.residual(t));
  t = nn.conv_block(t, co=8, s=2);
  loss xent(nn.linear(avgpool(t), n=class), y);
}
"""


def test_channels_of_blocks_over_tp():
    random = Random(5)
    data = {"x": random.reals([8, 3, 6, 6], "F64"), "y": random.integers([8], 5)}
    runs = [train(build(CHANNELS % tp), "--steps=2", data=data) for tp in (1, 2)]
    close(runs[1].losses, runs[0].losses, 1e-12, "losses")
    tensors_close(runs[1].gradients, runs[0].gradients, 1e-11, "gradients", floor=1e-6)
    local = harness.emit("sharding", CHANNELS % 2)
    check(len(re.findall(r"conv2d\.weight.*tp", local)) >= 4, "filters are divided: " + local)


harness.main(__name__)
