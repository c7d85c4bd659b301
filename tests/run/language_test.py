"""What a program means when it runs: statements, operations and options of the language that no other suite trains."""
import json
import math
import os

import harness
from harness import Random, Tensor, add, build, check, close, once, pdc, read_program, start, tensors_close, train

# ---- a loss with terms that do not depend on the samples ----

PENALTY = "penalty"


def penalty_data():
    random = Random(3)
    return {"x": random.reals([24, 8], "F64"), "y": random.reals([24, 8], "F64")}


def penalty_run(**defines):
    def run():
        done = train(build(read_program(PENALTY), defines), "--steps=2", data=penalty_data())
        return done.losses, done.gradients, done.weights
    return once(("penalty", tuple(sorted(defines.items()))), run)


def penalty_counts_once(defines):
    """Whatever replicas and micro-batches there are, losses and gradients are those of one rank in one micro-batch."""
    wanted, got = penalty_run(), penalty_run(**defines)
    close(got[0], wanted[0], 1e-13, "losses")
    tensors_close(got[1], wanted[1], 1e-12, "gradients", floor=1e-9)
    tensors_close(got[2], wanted[2], 1e-12, "weights", floor=1e-9)


for defines in ({"schedule__microbatch": 3}, {"parallel__dp": 3, "schedule__microbatch": 2}, {"parallel__tp": 2},
                {"parallel__pp": 2, "schedule__microbatch": 4}, {"parallel__pp": 4, "schedule__microbatch": 1},
                {"parallel__pp": 2, "parallel__dp": 2, "parallel__tp": 2, "schedule__microbatch": 2}):
    add("penalty " + " ".join("%s=%s" % item for item in defines.items()), penalty_counts_once, defines)


def test_penalty_by_hand():
    """From gradients and weights: d(0.1 * sum(w * w)) is 0.2 w, and so on; the rest is the gradient without the penalty."""
    source = read_program(PENALTY)
    start_at = train(build(source), "--steps=0").weights
    with_penalty = train(build(source), "--steps=1", data=penalty_data(), init=start_at)
    without = train(build(source.replace("0.1 * penalty", "0 * penalty")), "--steps=1", data=penalty_data(), init=start_at)
    total = 0
    for name, t in start_at.items():
        factor = 0.2 if name.endswith("w") else 0.1 / 64 if name.endswith("v") else 0
        for g, h, w in zip(with_penalty.gradients[name].values, without.gradients[name].values, t.values):
            check(abs(g - h - factor * w) < 1e-14, "gradient of %s: %r - %r is not %g * %r" % (name, g, h, factor, w))
            total += factor / 2 * w * w
    close([with_penalty.losses[0] - without.losses[0]], [total], 1e-12, "the penalty")


def test_penalty_in_evaluation():
    """A last batch that is not full: the penalty still counts once."""
    random, source = Random(5), read_program(PENALTY)
    valid = {"x": random.reals([17, 8], "F64"), "y": random.reals([17, 8], "F64")}
    weights = train(build(source), "--steps=0").weights
    for defines in ({}, {"parallel__dp": 2, "schedule__microbatch": 2}):
        result = train(build(source, defines), "--steps=0", valid=valid, init=weights).evals[-1]
        penalty = sum(0.1 * w * w if name.endswith("w") else 0.05 / 64 * w * w if name.endswith("v") else 0
                      for name, t in weights.items() for w in t.values)
        close([result["loss"]], [result["error"] * math.exp(-0.3) + penalty + 0.3], 1e-12, "the validation loss")


def test_penalty_gradients():
    run = start(build(read_program(PENALTY), {"schedule.microbatch": 4}), "--check-gradients=20", "--steps=1", data=penalty_data())
    check(run.result.code == 0 and "largest error of all" in run.result.out, run.result.describe())


# ---- what operations compute, against plain Python ----

VALUES = """dim batch = 2, seq = 3, e = 4, heads = 2, head = 2, g = 6;
schedule < microbatch=2; >
precision < compute=f64; >
optimizer < kind=sgd; lr=0.1; >
data < shuffle=off; >
model m(x: f64[batch, seq, e], w: f64[batch, seq, e], z: f64[batch, %s]) {
  param one: [] = 1;
  loss mse((%s) * one, z);
}
"""


def every(*sizes):
    """All positions of these axes, the last one fastest."""
    positions = [()]
    for size in sizes:
        positions = [at + (i,) for at in positions for i in range(size)]
    return positions


def value(expression, shape, wanted):
    """`expression` over x and w [batch, seq, e] is wanted(x, w, position)."""
    random = Random(31)
    x, w = random.reals([2, 3, 4]), random.reals([2, 3, 4])
    sizes = {"seq": 3, "e": 4, "heads": 2, "head": 2, "g": 6}
    whole = [2] + [int(word) if word.isdigit() else sizes[word] for word in shape.split(", ")]
    at = lambda t: (lambda b, s, e: t.values[(b * 3 + s) * 4 + e])
    result = [wanted(at(x), at(w), position) for position in every(*whole)]
    z = Tensor(whole, [v - 1 - 0.25 * i for i, v in enumerate(result)])  # the error of each position is one of a kind
    run = train(build(VALUES % (shape, expression)), "--steps=1", data={"x": x, "w": w, "z": z})
    close(run.losses, [math.fsum((1 + 0.25 * i) ** 2 for i in range(len(result))) / len(result)], 1e-12, expression)


def gelu_tanh(x):
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def row(x, b, s):
    return [x(b, s, e) for e in range(4)]


def normed(values, mean, eps=1e-5):
    centre = sum(values) / len(values) if mean else 0.0
    return [(v - centre) / math.sqrt(sum((u - centre) ** 2 for u in values) / len(values) + eps) for v in values]


def attended(x, w, b, s, h, d, causal=True):
    """sdpa(x, w, w) with two heads of two."""
    scores = [math.exp(sum(x(b, s, 2 * h + k) * w(b, t, 2 * h + k) for k in range(2)) / math.sqrt(2)) if t <= s or not causal else 0
              for t in range(3)]
    return sum(p * w(b, t, 2 * h + d) for t, p in enumerate(scores)) / sum(scores)


HEADS = "reshape(x, batch, seq, heads, head)"
for expression, shape, wanted in (
        ("einsum(\"b s e, b t e -> b s t\", x, w)", "seq, 3", lambda x, w, p: sum(x(p[0], p[1], e) * w(p[0], p[2], e) for e in range(4))),
        ("einsum(\"b s e -> b e\", x)", "e", lambda x, w, p: sum(x(p[0], s, p[1]) for s in range(3))),
        ("einsum(\"n s e, n s e -> n e s\", x, w)", "e, seq", lambda x, w, p: x(p[0], p[2], p[1]) * w(p[0], p[2], p[1])),
        ("slice(x, axis=e, begin=1, end=3)", "seq, 2", lambda x, w, p: x(p[0], p[1], p[2] + 1)),
        ("slice(x, axis=1, begin=2)", "1, e", lambda x, w, p: x(p[0], 2, p[2])),
        ("concat(x, axis=-1, slice(w, axis=e, begin=0, end=2))", "seq, 6",
         lambda x, w, p: x(*p) if p[2] < 4 else w(p[0], p[1], p[2] - 4)),
        ("transpose(x, 0, 2, 1)", "e, seq", lambda x, w, p: x(p[0], p[2], p[1])),
        ("reshape(x, batch, 2, 6)", "2, 6", lambda x, w, p: x(p[0], (6 * p[1] + p[2]) // 4, (6 * p[1] + p[2]) % 4)),
        ("sum(x, e)", "seq", lambda x, w, p: sum(row(x, *p))),
        ("mean(x, 1)", "e", lambda x, w, p: sum(x(p[0], s, p[1]) for s in range(3)) / 3),
        ("max(x, e)", "seq", lambda x, w, p: max(row(x, *p))),
        ("min(x, 1)", "e", lambda x, w, p: min(x(p[0], s, p[1]) for s in range(3))),
        ("x - max(x, e)", "seq, e", lambda x, w, p: x(*p) - max(row(x, p[0], p[1]))),
        ("softmax(x)", "seq, e", lambda x, w, p: math.exp(x(*p)) / sum(map(math.exp, row(x, p[0], p[1])))),
        ("layernorm(x, eps=0.1)", "seq, e", lambda x, w, p: normed(row(x, p[0], p[1]), True, 0.1)[p[2]]),
        ("rmsnorm(x)", "seq, e", lambda x, w, p: normed(row(x, p[0], p[1]), False)[p[2]]),
        ("gelu(x)", "seq, e", lambda x, w, p: gelu_tanh(x(*p))),
        ("x |> gelu(approximate=none)", "seq, e", lambda x, w, p: 0.5 * x(*p) * (1 + math.erf(x(*p) / math.sqrt(2)))),
        ("silu(x) - sigmoid(w)", "seq, e", lambda x, w, p: x(*p) / (1 + math.exp(-x(*p))) - 1 / (1 + math.exp(-w(*p)))),
        ("relu(x) / (1 + w * w)", "seq, e", lambda x, w, p: max(x(*p), 0) / (1 + w(*p) ** 2)),
        ("x |> tanh() |> exp()", "seq, e", lambda x, w, p: math.exp(math.tanh(x(*p)))),
        ("dropout(x, 0)", "seq, e", lambda x, w, p: x(*p)),
        ("x * mean(w, e)", "seq, e", lambda x, w, p: x(*p) * sum(row(w, p[0], p[1])) / 4),
        ("sdpa(%s, %s, %s)" % (HEADS, HEADS.replace("x", "w", 1).replace("reshape(w", "reshape(w"), HEADS.replace("(x", "(w")),
         "seq, heads, head", lambda x, w, p: attended(x, w, *p)),
        ("sdpa(%s, %s, %s, causal=false)" % (HEADS, HEADS.replace("(x", "(w"), HEADS.replace("(x", "(w")),
         "seq, heads, head", lambda x, w, p: attended(x, w, *p, causal=False))):
    add("value of " + expression, value, expression, shape, wanted)


def test_parts_of_a_split():
    value("concat(x, axis=-1, w)", "seq, 8", lambda x, w, p: x(*p) if p[2] < 4 else w(p[0], p[1], p[2] - 4))
    source = VALUES.replace("  loss mse((%s)", "  a, b = split(x, 1, 3);\n  c, d = split(w, 2);\n  loss mse((%s)")
    random = Random(8)
    x, w = random.reals([2, 3, 4]), random.reals([2, 3, 4])
    joined = [v for r in range(6) for v in (x.values[4 * r + 1:4 * r + 4] + w.values[4 * r + 2:4 * r + 4] + x.values[4 * r:4 * r + 1])]
    z = Tensor([2, 3, 6], [v - i for i, v in enumerate(joined)])
    run = train(build(source % ("seq, 6", "concat(b, axis=-1, d, a)")), "--steps=1", data={"x": x, "w": w, "z": z})
    close(run.losses, [sum(i * i for i in range(36)) / 36], 1e-12, "loss")


# ---- targets that do not count ----

IGNORE = """dim batch = 4, seq = 6, e = 5, vocab = 7;
schedule < microbatch=2; >
precision < compute=f64; >
optimizer < kind=sgd; lr=0.1; >
data < shuffle=off; >
model m(x: f64[batch, seq, e], targets: i32[batch, seq]) {
  param w: [e, vocab];
  metric accuracy = accuracy(x @ w, targets);
  loss xent(x @ w, targets%s);
}
"""


def test_ignored_targets():
    """ignore=3 is what -100 in the places of 3 is, in training and in evaluation; and 3 is no class then."""
    random = Random(2)
    x, targets = random.reals([8, 6, 5]), random.integers([8, 6], 7)
    hidden = Tensor(targets.shape, [-100 if t == 3 else t for t in targets.values], "I32")
    check(hidden.values != targets.values, "some targets are 3")
    runs = [train(build(IGNORE % words), "--steps=2", data={"x": x, "targets": t}, valid={"x": x, "targets": t})
            for words, t in ((", ignore=3", targets), ("", hidden))]
    check(runs[0].losses == runs[1].losses and runs[0].evals == runs[1].evals, "losses %s" % [r.losses for r in runs])
    harness.tensors_equal(runs[0].weights, runs[1].weights, "weights")
    refused = start(build(IGNORE % ", ignore=3"), "--steps=2", data={"x": x, "targets": hidden})
    check(refused.result.code == 3 and "must be 0 .. 6 (limit 7) or 3" in refused.result.err, refused.result.describe())


# ---- initial values ----

INITIAL = """dim batch = 4, n = 400, m = 300;
schedule < microbatch=4; >
model initial(x: f32[batch, n], y: f32[batch, m]) {
  param plain: [n, m], number: [n, m] = -1 / 4, wide: [n, m] = normal(2), even: [n, m] = uniform(-3, 1);
  param he: [n, m] = kaiming(n), glorot: [n, m] = xavier(n, m);
  loss mse(x @ (plain + number + wide + even + he + glorot), y);
}
"""


def test_initial_values():
    """Mean, standard deviation and bounds of 120,000 draws; no two parameters alike."""
    weights = train(build(INITIAL), "--steps=0").weights
    bound = math.sqrt(6 / 700)
    for name, mean, deviation, low, high in (
            ("plain", 0, 0.02, -0.12, 0.12), ("number", -0.25, 0, -0.25, -0.25), ("wide", 0, 2, -12, 12),
            ("even", -1, 4 / math.sqrt(12), -3, 1), ("he", 0, math.sqrt(2 / 400), -0.5, 0.5),
            ("glorot", 0, bound / math.sqrt(3), -bound, bound)):
        values = weights[name].values
        got = math.fsum(values) / len(values)
        spread = math.sqrt(math.fsum((v - got) ** 2 for v in values) / len(values))
        check(abs(got - mean) <= 0.02 * deviation and abs(spread - deviation) <= 0.01 * deviation and low <= min(values) and max(values) <= high,
              "%s: mean %g, deviation %g, from %g to %g" % (name, got, spread, min(values), max(values)))
    check(abs(weights["plain"].values[0] * 100 - weights["wide"].values[0]) > 1e-6, "two parameters have the same draws")


# ---- ways to say the same ----

SAME = """dim batch = 8, n = 6, m = 4;
%s
model net(x: f32[batch, n], y: f32[batch, n]) {
  %s
}
"""


def same_program(first, second, defines=(), items=("", "")):
    """Both are one program: their graphs are printed alike."""
    texts = []
    for body, item in zip((first, second), items):
        result = pdc("--emit=ir", *defines, "-", source=SAME % (item, body))
        check(result.code == 0, result.describe())
        texts.append(result.out)
    check(texts[0] == texts[1], "not the same program:\n%s\n%s" % tuple(texts))


for name, arguments in {
        "a pipe and a call": ("param w: [n]; loss mse(x * w |> softmax() |> layernorm(eps=1e-6), y);",
                              "param w: [n]; loss mse(layernorm(softmax(x * w), eps=1e-6), y);"),
        "if and the chosen part": ("param w: [n]; h = x * w; if (deep > 2 && !flat) { h = tanh(h); } else { h = exp(h); } loss mse(h, y);",
                                   "param w: [n]; h = x * w; h = tanh(h); loss mse(h, y);", (), ("config const deep = 3, flat = false;", "")),
        "else if": ("param w: [n]; h = x * w; if (deep == 1) { h = tanh(h); } else if (deep == 3) { h = exp(h); } else { h = relu(h); } loss mse(h, y);",
                    "param w: [n]; h = x * w; h = exp(h); loss mse(h, y);", (), ("config const deep = 3;", "")),
        "-D and a constant": ("param w: [n]; h = x * w; if (deep == 1) { h = tanh(h); } loss mse(h * deep, y);",
                              "param w: [n]; h = x * w; h = tanh(h); loss mse(h * 1, y);", ("-Ddeep=4 - 3",),
                              ("config const deep = 3;", "config const deep = 0;")),
        "the edition": ("param w: [n]; loss mse(x * w, y);", "param w: [n]; loss mse(x * w, y);")}.items():
    add("the same: " + name, same_program, *arguments)


def test_edition_line():
    source = SAME % ("", "param w: [n]; loss mse(x * w, y);")
    check(pdc("--emit=ir", "-", source="pd 1;\n" + source).out == pdc("--emit=ir", "-", source=source).out != "", "`pd 1;` changes nothing")
    check("E0119" in pdc("check", "-", source="pd 2;\n" + source).err, "edition 2 is refused")


def test_loop_with_an_index():
    """Is the same as its trips written one by one, also where the index decides a shape, a condition or a number."""
    loop = """param w: [n]; h = x * w;
  repeat i = 2 .. 5 {
    param u: [n, 2 * i] = uniform(-1, 1), v: [2 * i, n] = uniform(-1, 1);
    if (i % 2 == 0) { h = h + tanh(h @ u) @ v; } else { h = h - i * (h @ u @ v); }
  }
  loss mse(h, y);"""
    trips = ["param w: [n]; h = x * w;"]
    for i in (2, 3, 4):
        trips.append("param u%d: [n, %d] = uniform(-1, 1), v%d: [%d, n] = uniform(-1, 1);" % (i, 2 * i, i, 2 * i))
        trips.append(("h = h + tanh(h @ u%d) @ v%d;" if i % 2 == 0 else "h = h - 3 * (h @ u%d @ v%d);") % (i, i))
    names = {"w": "w"}
    names.update({"repeat.%d.%s" % (i, name): "%s%d" % (name, i) for i in (2, 3, 4) for name in "uv"})
    random = Random(4)
    data = {"x": random.reals([8, 6], "F32"), "y": random.reals([8, 6], "F32")}
    first = build(SAME % ("", loop))
    weights = train(first, "--steps=0").weights
    check(sorted(weights) == sorted(names), "parameters are %s" % sorted(weights))
    a = train(first, "--steps=2", data=data, init=weights)
    b = train(build(SAME % ("", "\n  ".join(trips + ["loss mse(h, y);"]))), "--steps=2", data=data,
              init={names[name]: t for name, t in weights.items()})
    check(a.losses == b.losses, "losses %s, written out %s" % (a.losses, b.losses))
    harness.tensors_equal({names[name]: t for name, t in a.weights.items()}, b.weights, "weights")


def test_overridden_section_key():
    """-D parallel.tp=4 is `parallel < tp=4; >`, also in an expression that reads it, and --list-config shows both values."""
    source = """config const scale = 3;
dim batch = 8, n = 8, wide = roundup(30, 4 * parallel.tp);
parallel < tp=%d; >
shard < wide=tp; >
model net(x: f32[batch, n], y: f32[batch, n]) {
  param w: [n, wide], v: [wide, n];
  loss mse(relu(x @ w) @ v * scale, y);
}
"""
    plans = [harness.plan(source % 1, {"parallel.tp": 4, "scale": 5}), harness.plan((source % 4).replace("scale = 3", "scale = 5"))]
    for plan in plans:
        plan.pop("source")
        plan.pop("sha256")
    check(json.dumps(plans[0]) == json.dumps(plans[1]), "the plans differ")
    shapes = {p["name"]: p["shape"] for p in plans[0]["parameters"]}
    check(shapes["w"] == [8, 32], "wide is 32: %s" % shapes)
    lines = pdc("--list-config", "-D", "parallel.tp=4", "-D", "scale=5", "-", source=source % 1).out.splitlines()
    check("scale integer 5 (default 3)" in lines and "parallel.tp integer 4 (default 1)" in lines, "\n".join(lines))


def test_imports():
    """A chain and a diamond of files, names that do not clash, and -I after the file's own directory."""
    place = harness.directory()
    files = {
        "base.pd": "const width = 3;\nblock f<n>(x: [.., n]) -> [.., n] { param w: [n] = 1; return x * w * width; }\n",
        "left.pd": 'import "base.pd" as b;\nconst width = 4;\nblock f<n>(x: [.., n]) -> [.., n] { return b.f(x) + width * b.width; }\n',
        "lib/right.pd": 'import "../base.pd" as base;\nblock g<n>(x: [.., n]) -> [.., n] { return base.f(x); }\n',
        "lib/base.pd": "const width = 1;\n",
        "main.pd": 'import "left.pd" as l;\nimport "right.pd" as r;\nimport "base.pd" as base;\ndim batch = 4, n = l.width + base.width;\n'
                   "block f<n>(x: [.., n]) -> [.., n] { return l.f(r.g(x)); }\n"
                   "model m(x: f32[batch, n], y: f32[batch, n]) { loss mse(f(x), y); }\n",
    }
    for name, text in files.items():
        os.makedirs(os.path.dirname(os.path.join(place, name)), exist_ok=True)
        with open(os.path.join(place, name), "w") as file:
            file.write(text)
    result = pdc("--emit=plan", "-I", "lib", "main.pd", cwd=place)
    check(result.code == 0, result.describe())
    shapes = {p["name"]: p["shape"] for p in json.loads(result.out)["parameters"]}
    check(shapes == {"f.g.f.w": [7], "f.f.f.w": [7]}, "parameters: %s" % shapes)
    made = pdc("-M", "-I", "lib", "main.pd", cwd=place).out
    check(all(name in made for name in ("left.pd", "lib/right.pd", "base.pd", "main.pd")), made)


harness.main(__name__)
