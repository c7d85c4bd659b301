"""The gradient of every operation against central finite differences, in f64, with the program's own --check-gradients.

Each operation is compiled twice: with parameters as its operands (their gradient is a weight gradient), and with operands
that an earlier statement computes from parameters and data (their gradient is an input gradient of another piece of the
program). Then whole small models, and operations on axes that two ranks share.
"""
import re

import harness
from harness import Random, Tensor, add, check, start

TOLERANCE = 2e-7
DIMS = """dim batch = 4, one = 1, seq = 3, keys = 5, e = 4, f = 5, g = 6, heads = 2, many = 4, head = 4, vocab = 7, wide = 8, words = 8, side = 5, high = 6;
schedule < microbatch=2; >
precision < compute=f64; >
optimizer < kind=sgd; lr=0.1; >
data < shuffle=off; >
"""
SIZES = {"batch": 4, "one": 1, "seq": 3, "keys": 5, "e": 4, "f": 5, "g": 6, "heads": 2, "many": 4, "head": 4, "vocab": 7,
         "wide": 8, "words": 8, "side": 5, "high": 6}
ANY, POSITIVE = (-1.5, 1.5), (0.5, 2.0)


def data_of(source):
    """Random arrays for the inputs of the model in a source text; positive ones where the name starts with `p`."""
    random, data = Random(23), {}
    header = re.search(r"model \w+\((.*)\) \{", source).group(1)
    for name, kind, shape in re.findall(r"(\w+): (\w+)\[([^\]]*)\]", header):
        shape = [int(word) if word.isdigit() else SIZES[word] for word in shape.split(", ")]
        count = 1
        for size in shape:
            count *= size
        if kind == "i32":
            data[name] = random.integers(shape, SIZES["vocab"], ignored=0.3 if name == "targets" else 0)
        else:
            low, high = POSITIVE if name.startswith("p") else ANY
            data[name] = Tensor(shape, [random.uniform(low, high) for _ in range(count)])
    return data


def gradients_agree(source, parameters, defines=None, kernels=("host", "ref"), elements=40):
    program = harness.build(source, defines)
    for kernel in kernels:
        run = start(program, "--check-gradients=%d" % elements, "--kernels=" + kernel, "--steps=1", data=data_of(source))
        errors = {name: float(x) for name, x in re.findall(r"parameter (\S+): largest error (\S+)", run.result.out)}
        check(errors, "nothing was checked: " + run.result.describe() + "\n" + source)
        wrong = {name: x for name, x in errors.items() if not x <= TOLERANCE}
        check(not wrong, "%s kernels: gradients are wrong: %s\n%s" % (kernel, wrong, source))
        check(run.result.code == 0, run.result.describe())
        check(sorted(errors) == sorted(parameters), "these parameters were checked: %s" % sorted(errors))


def of_parameters(operands, expression, result, span, lead):
    """The operands are parameters of the statement itself: loss mse(x * f(a, b), z)."""
    shape = "".join(", " + word for word in (("one" if lead else ""), result) if word)
    lines = ["param %s: [%s] = uniform(%g, %g);" % (name, ", ".join(word for word in ("one" if lead and batched else "", part) if word),
                                                  *span) for name, part, batched in operands]
    text = expression.replace("{B}", "one, " if lead else "").replace("{L}", "one")
    return "%smodel m(x: f64[batch%s], z: f64[batch%s]) {\n  %s\n  loss mse(x * (%s), z);\n}\n" % (
        DIMS, shape, shape, "\n  ".join(lines), text)


def of_computed(operands, expression, result, span, lead):
    """Statements before it compute the operands: a = x_a * w_a; y = f(a, b); loss mse(y * r, z)."""
    inputs, lines = ["z: f64[batch, %s]" % result], []
    data = "p" if span == POSITIVE else "x"
    for name, part, batched in operands:
        lines.append("param w_%s: [%s] = uniform(%g, %g);" % (name, part, *span))
        if batched:
            inputs.append("%s_%s: f64[batch%s]" % (data, name, ", " + part if part else ""))
            lines.append("%s = %s_%s * w_%s;" % (name, data, name, name))
        else:
            lines.append("%s = w_%s * 1.25;" % (name, name))
    lines.append("frozen param r: [%s] = uniform(-1, 1);" % result)
    lines.append("y = %s;" % expression.replace("{B}", "batch, ").replace("{L}", "batch"))
    lines.append("loss mse(y * r, z);")
    return "%smodel m(%s) {\n  %s\n}\n" % (DIMS, ", ".join(inputs), "\n  ".join(lines))


def operation(name, operands, expression, result, span=ANY, lead=False, paths="WI"):
    """operands: (name, shape without the batch, whether it has the batch when computed). In the expression {B} stands for
    the leading axis and a comma where there is one. lead: the operation needs a leading axis even on parameters."""
    if "W" in paths:
        source = of_parameters(operands, expression, result, span, lead)
        add(name + " of parameters", gradients_agree, source, [operand[0] for operand in operands])
    if "I" in paths:
        source = of_computed(operands, expression, result, span, lead)
        add(name + " of computed tensors", gradients_agree, source, ["w_" + operand[0] for operand in operands])


A = ("a", "seq, e", True)
for name, text, span in (
        ("relu", "relu(a)", ANY), ("silu", "silu(a)", ANY), ("sigmoid", "sigmoid(a)", ANY), ("tanh", "tanh(a)", ANY),
        ("exp", "exp(a)", ANY), ("log", "log(a)", POSITIVE), ("sqrt", "sqrt(a)", POSITIVE), ("gelu", "gelu(a)", ANY),
        ("gelu with erf", "gelu(a, approximate=none)", ANY), ("negation", "-a", ANY), ("a plus a number", "a + 1.5", ANY),
        ("a number minus", "2.0 - a", ANY), ("times a number", "a * 3.0", ANY), ("by a number", "a / 3.0", ANY),
        ("a number by", "3.0 / a", POSITIVE), ("softmax", "softmax(a)", ANY), ("layernorm", "layernorm(a)", ANY),
        ("layernorm with a large epsilon", "layernorm(a, eps=0.5)", ANY), ("rmsnorm", "rmsnorm(a)", ANY),
        ("rmsnorm with a large epsilon", "rmsnorm(a, eps=0.5)", ANY), ("a tensor used twice", "a * a", ANY),
        ("a tensor used three times", "a * tanh(a) + a", ANY), ("a tensor by itself", "a / (a * a + 1.0)", ANY),
        ("a chain", "a |> tanh() |> exp() |> softmax()", ANY)):
    operation(name, [A], text, "seq, e", span)

for sign, name in (("+", "sum"), ("-", "difference"), ("*", "product"), ("/", "quotient")):
    span = POSITIVE if sign == "/" else ANY
    operation("%s of equal shapes" % name, [A, ("b", "seq, e", True)], "a %s b" % sign, "seq, e", span)
    operation("%s with a row" % name, [A, ("b", "e", False)], "a %s b" % sign, "seq, e", span)
    operation("%s of a row with all" % name, [A, ("b", "e", False)], "b %s a" % sign, "seq, e", span)
    operation("%s with a column" % name, [A, ("b", "seq", True)], "a %s b" % sign, "seq, e", span)
    operation("%s of a column with all" % name, [A, ("b", "seq", True)], "b %s a" % sign, "seq, e", span)
    operation("%s with a matrix" % name, [A, ("b", "seq, e", False)], "a %s b" % sign, "seq, e", span)

B = ("b", "e, f", False)
operation("matrix product", [A, B], "a @ b", "seq, f")
operation("product with a vector", [A, ("b", "e", False)], "a @ b", "seq")
operation("product over two axes", [("a", "seq, heads, head", True), ("b", "heads, head, e", False)], "a @ b", "seq, e")
operation("product into two axes", [A, ("b", "e, heads, head", False)], "a @ b", "seq, heads, head")
operation("two products", [A, B, ("c", "f, g", False)], "tanh(a @ b) @ c", "seq, g")
operation("product with a transposed matrix", [A, ("b", "f, e", False)], "a @ transpose(b)", "seq, f")
operation("a matrix used in two products", [A, ("b", "e, f", False)], "(a @ b) @ transpose(b)", "seq, e")
operation("einsum matrix product", [A, B], 'einsum("{L} s e, e f -> {L} s f", a, b)'.replace("{L} ", ""), "seq, f", paths="W")
operation("einsum with the batch", [A, B], 'einsum("n s e, e f -> n f s", a, b)', "f, seq", paths="I")
operation("einsum of two computed", [("a", "heads, seq, e", True), ("b", "heads, f, e", True)],
          'einsum("n h s e, n h f e -> n h s f", a, b)', "heads, seq, f", paths="I")
operation("einsum of two parameters", [("a", "heads, seq, e", True), ("b", "heads, f, e", True)],
          'einsum("h s e, h f e -> h s f", a, b)', "heads, seq, f", paths="W")
operation("einsum outer product", [("a", "e", True), ("b", "f", True)], 'einsum("n e, n f -> n e f", a, b)', "e, f", paths="I")
operation("einsum sum of one label", [A, ("b", "seq, f", True)], 'einsum("n s e, n s f -> n f", a, b)', "f", paths="I")
operation("einsum of one operand", [A], 'einsum("n s e -> n e", a)', "e", paths="I")
operation("einsum transposition", [A], 'einsum("n s e -> n e s", a)', "e, seq", paths="I")
operation("einsum diagonal product", [A, ("b", "seq, e", True)], 'einsum("n s e, n s e -> n s", a, b)', "seq", paths="I")

operation("sum over the last axis", [A], "sum(a, e)", "seq")
operation("sum over the first axis", [A], "sum(a, seq)", "e")
operation("mean over the last axis", [A], "mean(a, e)", "seq")
operation("mean over two axes", [("a", "seq, e, f", True)], "mean(a, seq, f)", "e")
operation("largest over the last axis", [A], "max(a, e)", "seq")
operation("largest over the first axis", [A], "max(a, seq)", "e")
operation("smallest over two axes", [("a", "seq, e, f", True)], "min(a, f, seq)", "e")
operation("transposition", [A], "transpose(a, {B}e, seq)", "e, seq", lead=True)
operation("transposition of three axes", [("a", "seq, e, f", True)], "transpose(a, {B}f, seq, e)", "f, seq, e", lead=True)
operation("reshape that joins", [A], "reshape(a, {B}12)", "12", lead=True)
operation("reshape that cuts", [("a", "g", True)], "reshape(a, {B}2, 3)", "2, 3", lead=True)
operation("reshape that joins and cuts", [("a", "seq, g", True)], "reshape(a, {B}9, 2)", "9, 2", lead=True)
operation("slice", [A], "slice(a, axis=e, begin=1, end=3)", "seq, 2")
operation("slice of a middle axis", [A], "slice(a, axis=seq, begin=1)", "2, e")
operation("slice of a whole axis", [A], "slice(a, axis=e, begin=0, end=4)", "seq, 4")
operation("concatenation", [A, ("b", "seq, f", True)], "concat(a, axis=-1, b)", "seq, 9")
operation("concatenation of three", [A, ("b", "seq, f", True), ("c", "seq, e", True)], "concat(a, axis=-1, b, c)", "seq, 13")
operation("concatenation with itself", [A], "concat(a, axis=seq, a)", "6, e")
operation("rotary positions", [("a", "seq, heads, head", True)], "rope(a)", "seq, heads, head", lead=True)
operation("rotary positions with a base", [("a", "seq, heads, head", True)], "rope(a, theta=50.0)", "seq, heads, head", lead=True)
Q, K, V = [(name, "seq, heads, head", True) for name in "qkv"]
for causal in ("true", "false"):
    operation("attention causal=" + causal, [Q, K, V], "sdpa(q, k, v, causal=%s)" % causal, "seq, heads, head", lead=True)
    operation("grouped attention causal=" + causal, [("q", "seq, many, head", True), K, V],
              "sdpa(q, k, v, causal=%s, group=2)" % causal, "seq, many, head", lead=True)
    operation("attention to a longer sequence causal=" + causal, [Q, ("k", "keys, heads, head", True), ("v", "keys, heads, head", True)],
              "sdpa(q, k, v, causal=%s)" % causal, "seq, heads, head", lead=True)

IMAGE = ("a", "2, high, side", True)
for name, filters, arguments, result in (
        ("convolution", "3, 2, 3, 3", "", "3, 4, 3"), ("padded convolution", "3, 2, 3, 3", ", pad=1", "3, 6, 5"),
        ("convolution with a stride", "3, 2, 3, 3", ", stride=2, pad=1", "3, 3, 3"),
        ("convolution that leaves a rest", "4, 2, 2, 2", ", stride=3", "4, 2, 2"),
        ("wide padding", "1, 2, 2, 2", ", stride=2, pad=3", "1, 6, 5"), ("convolution of points", "5, 2, 1, 1", "", "5, 6, 5"),
        ("strided convolution of points", "5, 2, 1, 1", ", stride=2", "5, 3, 3"),
        ("filters that are not square", "3, 2, 1, 4", ", pad=1", "3, 8, 4"), ("a filter as large as the image", "2, 2, 6, 5", "", "2, 1, 1")):
    operation(name, [IMAGE, ("b", filters, False)], "conv2d(a, b%s)" % arguments, result, lead=True)
operation("convolution with a bias", [IMAGE, ("b", "3, 2, 3, 3", False), ("c", "3", False)],
          "conv2d(a, b, pad=1, bias=c)", "3, 6, 5", lead=True)
for name, call, result in (
        ("largest of 2 x 2", "maxpool(a, 2)", "2, 3, 2"), ("largest of overlapping windows", "maxpool(a, 3, stride=2, pad=1)", "2, 3, 3"),
        ("largest of 3 x 3 everywhere", "maxpool(a, k=3, stride=1)", "2, 4, 3"), ("mean of 2 x 2", "avgpool(a, 2)", "2, 3, 2"),
        ("mean of overlapping windows", "avgpool(a, 3, stride=2)", "2, 2, 2"), ("mean of the image", "avgpool(a)", "2")):
    operation(name, [IMAGE], call, result, lead=True)
for name, call in (("batch normalisation", "batchnorm(a)"), ("batch normalisation with a large epsilon", "batchnorm(a, eps=0.5)")):
    operation(name, [IMAGE], call, "2, high, side", paths="I")
operation("batch normalisation with scale and bias", [IMAGE, ("b", "2", False), ("c", "2", False)],
          "batchnorm(a, scale=b, bias=c)", "2, high, side", paths="I")
operation("batch normalisation of features", [("a", "e", True)], "batchnorm(a)", "e", paths="I")


def program(name, source, parameters):
    add(name, gradients_agree, DIMS + source, parameters)


program("split into equal parts", """model m(x: f64[batch, g]) {
  param w: [g] = uniform(-1, 1);
  h = x * w;
  a, b, c = split(h, 3);
  loss mean(a * tanh(b) * c + a);
}
""", ["w"])
program("split into unequal parts", """model m(x: f64[batch, g]) {
  param w: [g] = uniform(-1, 1);
  h = x * w;
  a, b = split(h, 2, 4);
  loss mean(exp(a)) + mean(b * b);
}
""", ["w"])
program("look-up in a parameter", """model m(ids: i32[batch, seq], x: f64[batch, seq, e]) {
  param table: [vocab, e] = uniform(-1, 1);
  loss mean(tanh(gather(table, ids)) * x);
}
""", ["table"])
program("look-up in a computed table", """model m(ids: i32[batch, seq], x: f64[batch, seq, e]) {
  param table: [vocab, e] = uniform(-1, 1), gain: [e] = uniform(-1, 1);
  t = table * gain;
  loss mean(gather(t, ids) * x);
}
""", ["table", "gain"])
program("cross-entropy of a product of parameters", """model m(ids: i32[batch], targets: i32[batch]) {
  param w: [one, vocab] = uniform(-1, 1), table: [vocab, one] = uniform(-1, 1);
  loss xent(gather(table, ids) @ w, targets);
}
""", ["w", "table"])
program("cross-entropy over positions", """model m(x: f64[batch, seq, vocab], targets: i32[batch, seq]) {
  param w: [vocab] = uniform(-1, 1);
  h = x * w;
  loss xent(h, targets);
}
""", ["w"])
program("mean square error of both sides", """model m(x: f64[batch, seq, e], y: f64[batch, seq, e]) {
  param w: [e] = uniform(-1, 1), u: [e] = uniform(-1, 1);
  a = x * w;
  b = y * u;
  loss mse(a, b);
}
""", ["w", "u"])
program("mean square error of a parameter", """model m(y: f64[batch, e]) {
  param w: [e] = uniform(-1, 1);
  frozen param zero: [e] = 0;
  loss mse(y * zero + w, y);
}
""", ["w"])
program("mean of a product", """model m(x: f64[batch, e]) {
  param w: [e] = uniform(-1, 1);
  loss mean(x * w);
}
""", ["w"])
program("mean of a function", """model m(x: f64[batch, seq, e]) {
  param w: [e] = uniform(-1, 1);
  h = x * w;
  loss mean(exp(h) * h);
}
""", ["w"])
program("sum over all axes", """model m(x: f64[batch, seq, e]) {
  param w: [e] = uniform(-1, 1);
  loss sum(tanh(x * w)) / 48.0;
}
""", ["w"])
program("several losses", """model m(x: f64[batch, vocab], y: f64[batch, vocab], ids: i32[batch], targets: i32[batch]) {
  param w: [vocab] = uniform(-1, 1), u: [vocab] = uniform(-1, 1);
  h = x * w;
  loss xent(h, targets) + 0.5 * mse(h * u, y) - mean(h) / 3.0 + 2.0 * xent(h + u, ids);
}
""", ["w", "u"])
program("a loop with parameters of every trip", """model m(x: f64[batch, e], y: f64[batch, e]) {
  h = x;
  repeat 3 { param w: [e, e] = uniform(-1, 1), b: [e] = uniform(-1, 1); h = h + tanh(h @ w + b); }
  loss mse(h, y);
}
""", ["repeat.%d.%s" % (i, name) for i in range(3) for name in "wb"])
program("a loop that uses a parameter from outside", """model m(x: f64[batch, e], y: f64[batch, e]) {
  param w: [e, e] = uniform(-1, 1), b: [e] = uniform(-1, 1);
  h = x * b;
  repeat 3 { h = h + tanh(h @ w + b); }
  loss mse(h @ w, y);
}
""", ["w", "b"])
program("a loop that carries two tensors", """model m(x: f64[batch, e], y: f64[batch, e]) {
  param w: [e] = uniform(-1, 1);
  h = x * w;
  k = tanh(x);
  repeat 3 { param u: [e, e] = uniform(-1, 1); t = h; h = tanh(k @ u) + h; k = t * k; }
  loss mse(h * k, y);
}
""", ["w"] + ["repeat.%d.u" % i for i in range(3)])
program("a loop that reads a tensor from outside", """model m(x: f64[batch, e], y: f64[batch, e]) {
  param w: [e] = uniform(-1, 1);
  k = x * w;
  h = tanh(k);
  repeat 3 { param u: [e, e] = uniform(-1, 1); h = tanh(h @ u) + k; }
  loss mse(h * k, y);
}
""", ["w"] + ["repeat.%d.u" % i for i in range(3)])
program("an unrolled loop", """model m(x: f64[batch, e], y: f64[batch, e]) {
  h = x;
  repeat i = 0 .. 3 { param u: [e, e] = uniform(-1, 1); h = tanh(h @ u) * (i + 1.0) + h; }
  loss mse(h, y);
}
""", ["repeat.%d.u" % i for i in range(3)])
program("a loop from below zero", """model m(x: f64[batch, e], y: f64[batch, e]) {
  h = x;
  repeat i = -1 .. 2 { param u: [e, e] = uniform(-1, 1); h = tanh(h @ u) * (i + 1.5) + h; }
  loss mse(h, y);
}
""", ["repeat.%d.u" % i for i in range(-1, 2)])
program("a loop in a loop", """model m(x: f64[batch, e], y: f64[batch, e]) {
  h = x;
  repeat 2 { repeat 2 { param u: [e, e] = uniform(-1, 1); h = tanh(h @ u) + h; } }
  loss mse(h, y);
}
""", ["repeat.%d.repeat.%d.u" % (i, k) for i in range(2) for k in range(2)])
program("skipped statements", """model m(x: f64[batch, e], y: f64[batch, e]) {
  param u: [e] = uniform(-1, 1), v: [e] = uniform(-1, 1), w: [e] = uniform(-1, 1);
  a = x * u;
  b = tanh(a * v);
  c = exp(b) * w;
  loss mse(c + a * b, y);
}
""", ["u", "v", "w"])
program("a tied parameter in three pieces", """model m(ids: i32[batch, seq], targets: i32[batch, seq]) {
  param table: [vocab, e] = uniform(-1, 1);
  x = gather(table, ids);
  y = tanh(x @ transpose(table)) @ table;
  loss xent(y @ transpose(table), targets);
}
""", ["table"])
program("frozen parameters in between", """model m(x: f64[batch, e], y: f64[batch, e]) {
  param u: [e] = uniform(-1, 1);
  frozen param w: [e, e] = uniform(-1, 1);
  a = x * u;
  b = tanh(a @ w);
  loss mse(b @ w, y);
}
""", ["u"])


# ---- axes that two ranks share; and the same with stages and replicas ----

SPLIT = {
    "column and row products": ("wide=tp", """model m(x: f64[batch, seq, e], y: f64[batch, seq, e]) {
  param w: [e, wide] = uniform(-1, 1), b: [wide] = uniform(-1, 1), u: [wide, e] = uniform(-1, 1), c: [e] = uniform(-1, 1);
  h = gelu(x @ w + b);
  loss mse(h @ u + c, y);
}
""", ["w", "b", "u", "c"]),
    "a norm before a column product": ("wide=tp", """model m(x: f64[batch, seq, e], y: f64[batch, seq, e]) {
  param w: [e, wide] = uniform(-1, 1), u: [wide, e] = uniform(-1, 1), g0: [e] = uniform(-1, 1);
  a = x * g0;
  h = silu(layernorm(a) @ w);
  loss mse(a + h @ u, y);
}
""", ["w", "u", "g0"]),
    "attention heads": ("heads=tp", """model m(x: f64[batch, seq, e], y: f64[batch, seq, e]) {
  param wq: [e, heads, head] = uniform(-1, 1), wk: [e, heads, head] = uniform(-1, 1), wv: [e, heads, head] = uniform(-1, 1);
  param bq: [heads, head] = uniform(-1, 1), wo: [heads, head, e] = uniform(-1, 1), bo: [e] = uniform(-1, 1);
  o = sdpa(rope(x @ wq + bq), rope(x @ wk), x @ wv);
  loss mse(o @ wo + bo, y);
}
""", ["wq", "wk", "wv", "bq", "wo", "bo"]),
    "grouped attention heads": ("heads=tp; many=tp", """model m(x: f64[batch, seq, e], y: f64[batch, seq, e]) {
  param wq: [e, many, head] = uniform(-1, 1), wk: [e, heads, head] = uniform(-1, 1), wv: [e, heads, head] = uniform(-1, 1);
  param wo: [many, head, e] = uniform(-1, 1);
  o = sdpa(x @ wq, x @ wk, x @ wv, group=2);
  loss mse(o @ wo, y);
}
""", ["wq", "wk", "wv", "wo"]),
    "a split vocabulary": ("words=tp", """model m(ids: i32[batch, seq], targets: i32[batch, seq]) {
  param table: [words, e] = uniform(-1, 1), u: [e] = uniform(-1, 1);
  x = gather(table, ids) * u;
  loss xent(tanh(x) @ transpose(table), targets);
}
""", ["table", "u"]),
    "a table split by columns": ("g=tp", """model m(ids: i32[batch, seq], y: f64[batch, seq, e]) {
  param table: [vocab, g] = uniform(-1, 1), u: [g, e] = uniform(-1, 1);
  x = gather(table, ids);
  loss mse(x @ u, y);
}
""", ["table", "u"]),
    "sums over a split axis": ("g=tp", """model m(x: f64[batch, seq, e], y: f64[batch, seq, g]) {
  param w: [e, g] = uniform(-1, 1), u: [g] = uniform(-1, 1), v: [seq] = uniform(-1, 1);
  h = tanh(x @ w) * u;
  k = mean(h, g) * v;
  loss mse(h, y) + mean(k * k) + mean(h * y);
}
""", ["w", "u", "v"]),
    "a parameter on split and whole tensors": ("g=tp", """model m(x: f64[batch, seq, e], y: f64[batch, seq, e]) {
  param w: [e, g] = uniform(-1, 1), s: [e] = uniform(-1, 1);
  h = tanh((x * s) @ w);
  loss mse((h @ transpose(w)) * s, y);
}
""", ["w", "s"]),
}
SPLIT["filters that make shared channels"] = ("conv.co=tp", """block conv<ci, co, h, w>(x: [batch, ci, h, w]) -> [batch, co, h, w] {
  param filter: [co, ci, 3, 3] = uniform(-1, 1), b: [co] = uniform(-1, 1);
  return tanh(batchnorm(conv2d(x, filter, pad=1), bias=b));
}
block linear<m, n>(x: [.., m]) -> [.., n] {
  param w: [m, n] = uniform(-1, 1);
  return x @ w;
}
model m(x: f64[batch, 2, side, side], y: f64[batch, 3]) {
  t = conv(x, co=4);
  repeat 2 { t = t + conv(conv(t, co=6), co=4); }
  loss mse(linear(avgpool(maxpool(t, 2)), n=3), y);
}
""", ["linear.w", "conv.filter", "conv.b"] + ["repeat.%d.%s.%s" % (i, block, name) for i in range(2) for block in ("conv", "conv_2") for name in ("filter", "b")])
SPLIT["channels that are a dim"] = ("wide=tp; conv.co=tp", """block conv<ci, co, h, w>(x: [batch, ci, h, w]) -> [batch, co, h, w] {
  param filter: [co, ci, 3, 3] = uniform(-1, 1);
  return tanh(conv2d(x, filter, pad=1));
}
model m(x: f64[batch, 2, side, side], y: f64[batch, e]) {
  param u: [wide, e] = uniform(-1, 1);
  t = conv(conv(x, co=wide), co=wide);
  loss mse(avgpool(t) @ u, y);
}
""", ["u", "conv.filter", "conv_2.filter"])
SPLIT["channels that one block splits and another sums"] = ("first.co=tp", """block first<ci, co, h, w>(x: [batch, ci, h, w]) -> [batch, co, h, w] {
  param filter: [co, ci, 3, 3] = uniform(-1, 1);
  return tanh(conv2d(x, filter, pad=1));
}
block second<ci, co, h, w>(x: [batch, ci, h, w]) -> [batch, co, h, w] {
  param filter: [co, ci, 3, 3] = uniform(-1, 1);
  return tanh(batchnorm(conv2d(x, filter, pad=1)));
}
model m(x: f64[batch, 2, side, side], y: f64[batch, 2]) {
  t = x;
  repeat 2 { t = t + second(first(t, co=6), co=2); }
  loss mse(avgpool(t), y);
}
""", ["repeat.%d.%s.filter" % (i, block) for i in range(2) for block in ("first", "second")])
LAYOUTS = {
    "one rank": {}, "tp=2": {"parallel.tp": 2}, "pp=2 zb-h1": {"parallel.pp": 2, "schedule.kind": "zb-h1"},
    "pp=2 dp=2 tp=2": {"parallel.tp": 2, "parallel.pp": 2, "parallel.dp": 2, "schedule.microbatch": 1},
}

RECOMPUTED = {"schedule.recompute": "selective", "parallel.tp": 2}

for name, (rules, source, parameters) in SPLIT.items():
    text = DIMS + "shard < batch=dp; %s; >\n" % rules + source
    for layout, defines in LAYOUTS.items():
        kernels = ("host", "ref") if layout == "tp=2" else ("host",)
        add("%s on %s" % (name, layout), gradients_agree, text, parameters, defines, kernels, 20 if layout == "one rank" else 4)
    add("%s recomputed selectively" % name, gradients_agree, text, parameters, RECOMPUTED, ("host",), 4)

harness.main(__name__)
