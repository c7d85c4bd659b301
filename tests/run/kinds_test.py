"""Every kind of schedule, run by compiled programs on four pipeline ranks.

Kinds that end a step with one update: losses, gradients and weights have the bits of gpipe. Kinds that update without a
flush: losses and weights are those of one rank that applies the same late gradients, written out below in plain Python
with derivatives by hand.
"""
import math
import os
import shutil

import harness
from harness import Random, Tensor, add, check, close, once, read_program, tensors_close, tensors_equal, train

# ---- without a flush: a model, its gradient, and late updates, in plain Python ----

LATE = """
dim batch = %(batch)d, n = 5, h = 6, c = 4;
optimizer < %(optimizer)s >
precision < compute=f64; >
data < shuffle=off; >
model mlp(x: f32[batch, n], y: %(target)s) {
  param w0: [n, h], b0: [h] = 0.1;
  u = tanh(x @ w0 + b0);
  repeat 2 { param w: [h, h] = normal(0.4), b: [h] = 0.1; u = u + tanh(u @ w + b); }
  param wo: [h, c];
  frozen param shift: [c] = 0.25;
  loss %(loss)s;
}
"""
LOSSES = {"xent": ("i32[batch]", "xent(u @ wo + shift, y)"), "mse": ("f32[batch, c]", "mse(u @ wo + shift, y)")}
LAYERS = [("w0", "b0"), ("repeat.0.w", "repeat.0.b"), ("repeat.1.w", "repeat.1.b"), ("wo", "shift")]  # from the first to the last


def rows_of(tensor, first, count):
    width = math.prod(tensor.shape[1:])
    part = tensor.values[first * width:(first + count) * width]
    return [list(part[i * width:(i + 1) * width]) for i in range(count)] if len(tensor.shape) > 1 else list(part)


def product(a, w):
    """Rows a times a matrix of rows w."""
    return [[math.fsum(x * w[k][j] for k, x in enumerate(row)) for j in range(len(w[0]))] for row in a]


def loss_and_gradients(kind, weights, x, y):
    """The mean loss of some samples, or None if no target counts, and its gradient for every parameter."""
    inputs, u = [], x
    for w, b in LAYERS[:3]:
        t = [[math.tanh(s + c) for s, c in zip(row, weights[b])] for row in product(u, weights[w])]
        inputs.append((u, t))
        u = t if w == "w0" else [[p + q for p, q in zip(old, new)] for old, new in zip(u, t)]
    out = [[s + c for s, c in zip(row, weights["shift"])] for row in product(u, weights["wo"])]
    if kind == "mse":
        count = len(out) * len(out[0])
        loss = math.fsum((p - q) ** 2 for row, wanted in zip(out, y) for p, q in zip(row, wanted)) / count
        d = [[2 * (p - q) / count for p, q in zip(row, wanted)] for row, wanted in zip(out, y)]
    else:
        count = sum(target >= 0 for target in y)
        if count == 0:
            return None, None
        loss, d = 0.0, []
        for row, target in zip(out, y):
            top = max(row)
            total = math.fsum(math.exp(p - top) for p in row)
            soft = [math.exp(p - top) / total for p in row]
            loss += -math.log(soft[target]) / count if target >= 0 else 0
            d.append([(p - (j == target)) / count if target >= 0 else 0.0 for j, p in enumerate(soft)])
    gradients = {"wo": outer(u, d)}
    d = [[math.fsum(p * q for p, q in zip(row, line)) for line in weights["wo"]] for row in d]
    for layer in (2, 1, 0):
        (w, b), (u, t) = LAYERS[layer], inputs[layer]
        inner = [[p * (1 - q * q) for p, q in zip(row, line)] for row, line in zip(d, t)]
        gradients[w] = outer(u, inner)
        gradients[b] = [math.fsum(row[j] for row in inner) for j in range(len(inner[0]))]
        back = [[math.fsum(p * q for p, q in zip(row, line)) for line in weights[w]] for row in inner]
        d = [[p + q for p, q in zip(old, new)] for old, new in zip(d, back)] if layer else back
    return loss, gradients


def outer(u, d):
    return [[math.fsum(a[i] * b[j] for a, b in zip(u, d)) for j in range(len(d[0]))] for i in range(len(u[0]))]


def each(function, *values):
    """The function on the numbers of nested lists."""
    if isinstance(values[0], list):
        return [each(function, *parts) for parts in zip(*values)]
    return function(*values)


class Optimizer:
    """sgd with momentum and decay, or adamw, for one parameter. Decay is for matrices only."""

    def __init__(self, kind, value):
        self.kind, self.m = kind, each(lambda w: 0.0, value)
        self.v, self.decay = self.m, 0.1 if isinstance(value[0], list) else 0.0

    def update(self, w, g, rate, t):
        if self.kind == "sgd":
            self.m = each(lambda m, x, y: 0.9 * m + x + self.decay * y, self.m, g, w)
            return each(lambda x, m: x - rate * m, w, self.m)
        self.m = each(lambda m, x: 0.9 * m + (1 - 0.9) * x, self.m, g)
        self.v = each(lambda v, x: 0.95 * v + (1 - 0.95) * x * x, self.v, g)
        return each(lambda x, m, v: x - rate * (m / (1 - 0.9**t) / (math.sqrt(v / (1 - 0.95**t)) + 1e-8) + self.decay * x),
                    w, self.m, self.v)


OPTIMIZERS = {
    "sgd": "kind=sgd; momentum=0.9; decay=0.1; lr=linear(0.2, 0.05, warmup=2, end=8);",
    "adamw": "kind=adamw; beta=(0.9, 0.95); eps=1e-8; decay=0.1; lr=0.02;",
}


def rate_of(optimizer, step):
    if optimizer == "adamw":
        return 0.02
    return 0.2 * (step + 1) / 2 if step < 2 else 0.2 + (0.05 - 0.2) * (step - 2) / 6


def reference(case, stage_of, weights, data):
    """Losses and norms of the steps, and the weights after them. Stage s of p takes the gradient of update t at the
    weights that it had: `pipedream` the newest when the forward began, and all of them at the begin of a step; 2bw those
    before update t - 1, whatever the step."""
    kind, loss_kind, optimizer, pp, dp, batch, microbatch, steps = case
    microbatches, per_update = batch // dp // microbatch, 1 if kind == "pipedream" else pp
    history = {name: [value] for name, value in weights.items()}  # after every update
    optimizers = {name: Optimizer(optimizer, value) for name, value in weights.items()}
    losses, norms, made = [], [], 0
    for step in range(steps):
        mean, largest, groups = 0.0, 0.0, microbatches // per_update
        for group in range(groups):
            update = step * groups + group
            x, y = [], []
            for replica in range(dp):
                first = step * batch + replica * (batch // dp) + group * per_update * microbatch
                x += rows_of(data["x"], first, per_update * microbatch)
                y += rows_of(data["y"], first, per_update * microbatch)
            def version(name):
                if kind == "pipedream":
                    return update - min(group, pp - 1 - stage_of[name])
                return max(update - 1, 0)
            seen = {name: values[version(name)] for name, values in history.items()}
            loss, gradients = loss_and_gradients(loss_kind, seen, x, y)
            made += loss is not None
            for name, values in history.items():
                trained = loss is not None and name != "shift"
                values.append(optimizers[name].update(values[-1], gradients[name], rate_of(optimizer, step), made) if trained else values[-1])
            if loss is None:
                continue
            mean += loss / groups
            flat = [number for g in gradients.values() for number in flatten(g)]
            largest = max(largest, math.sqrt(math.fsum(number * number for number in flat)))
        losses.append(mean)
        norms.append(largest)
    return losses, norms, {name: values[-1] for name, values in history.items()}


def flatten(value):
    return [number for part in value for number in flatten(part)] if isinstance(value, list) else [value]


def late_data(loss, batch, steps, microbatch):
    random = Random(5)
    x = random.reals([batch * steps, 5])
    if loss == "mse":
        return {"x": x, "y": random.reals([batch * steps, 4])}
    y = random.integers([batch * steps], 4, ignored=0.2)
    for i in range(batch, batch + 2 * microbatch):
        y.values[i] = -100  # updates of step 2 in which nothing counts
    return {"x": x, "y": y}


def late(case):
    """What a compiled program does is what the reference does."""
    kind, loss, optimizer, pp, dp, batch, microbatch, steps = case
    source = LATE % {"batch": batch, "optimizer": OPTIMIZERS[optimizer], "target": LOSSES[loss][0], "loss": LOSSES[loss][1]}
    defines = {"parallel.pp": pp, "parallel.dp": dp, "schedule.kind": kind, "schedule.microbatch": microbatch}
    if dp > 1:
        source = source.replace("data <", "shard < batch=dp; > data <")
    program, data = harness.build(source, defines), late_data(loss, batch, steps, microbatch)
    plan = harness.plan(source, defines)
    begin = train(program, "--steps=0", "--seed=3").weights
    stage_of = {parameter["name"]: plan["chunks"][parameter["chunk"]]["rank"] for parameter in plan["parameters"]}
    nested = {name: rows_of(t, 0, t.shape[0]) for name, t in begin.items()}
    losses, norms, weights = reference(case, stage_of, nested, data)
    run = train(program, "--steps=%d" % steps, data=data, init=begin)
    close(run.losses, losses, 1e-12, "losses")
    close(run.norms, norms, 1e-11, "gradient norms")
    wanted = {name: Tensor(begin[name].shape, flatten(value)) for name, value in weights.items()}
    tensors_close(run.weights, wanted, 1e-12, "weights after %d steps" % steps)
    check(pp == 1 or max(rank["staleness"] for rank in plan["ranks"]) > 0, "gradients are late")
    if pp > 1:  # and the gradient of step 1 that is asked for is that of the whole batch, as gpipe's
        other = train(harness.build(source, {**defines, "schedule.kind": "gpipe"}), "--steps=1", data=data, init=begin)
        tensors_equal(run.gradients, other.gradients, "gradients of step 1 against gpipe")


LATE_CASES = [  # kind, loss, optimizer, pp, dp, batch, microbatch, steps
    ("pipedream", "xent", "sgd", 4, 1, 16, 2, 5), ("pipedream", "mse", "adamw", 4, 1, 8, 1, 4), ("pipedream", "xent", "adamw", 4, 2, 24, 1, 3),
    ("pipedream", "mse", "sgd", 2, 1, 12, 4, 4), ("pipedream", "mse", "sgd", 4, 1, 2, 1, 5), ("pipedream", "xent", "sgd", 1, 1, 12, 2, 4),
    ("pipedream-2bw", "xent", "sgd", 4, 1, 24, 2, 5), ("pipedream-2bw", "mse", "adamw", 4, 1, 4, 1, 6), ("pipedream-2bw", "xent", "adamw", 4, 2, 24, 1, 3),
    ("pipedream-2bw", "mse", "sgd", 2, 1, 24, 3, 4), ("pipedream-2bw", "mse", "adamw", 1, 1, 6, 1, 4),
]
for case in LATE_CASES:
    add("%s %s %s pp%d dp%d batch %d microbatch %d" % case[:-1], late, case)


def test_plan_says_versions_and_staleness():
    source = LATE % {"batch": 16, "optimizer": OPTIMIZERS["sgd"], "target": LOSSES["mse"][0], "loss": LOSSES["mse"][1]}
    for kind, versions, staleness in (("pipedream", [4, 3, 2, 1], [3, 2, 1, 0]), ("pipedream-2bw", [2] * 4, [1] * 4), ("1f1b", [1] * 4, [0] * 4)):
        defines = {"parallel.pp": 4, "schedule.kind": kind}
        ranks = harness.plan(source, defines)["ranks"]
        check([rank["weight_versions"] for rank in ranks] == versions, "versions of %s: %s" % (kind, ranks))
        check([rank["staleness"] for rank in ranks] == staleness, "staleness of %s: %s" % (kind, ranks))
        one = [rank["memory"]["parameters"] for rank in harness.plan(source, {**defines, "schedule.kind": "1f1b"})["ranks"]]
        check([rank["memory"]["parameters"] for rank in ranks] == [a * b for a, b in zip(one, versions)], "bytes of the versions")
        if kind != "1f1b":
            table = train(harness.build(source, defines), "--steps=0", "--seed=1").result.out
            for numbers in (versions, staleness):
                check(", ".join(map(str, numbers)) in table, "the table at the start says it: " + table)


# ---- one update a step: the bits of gpipe ----

STEPS, BATCH = 4, 16
KINDS = {"gpipe": 1, "1f1b": 1, "eager-1f1b": 1, "interleaved": 2, "breadth-first": 2, "zb-h1": 1, "zb-h2": 1, "interleaved-zb": 2, "zb-v": 2,
         "v-half": 2, "v-min": 2, "1f1b-v": 2, "dualpipe": 1, "dualpipe-v": 2, "chimera": 1, "hanayo": 2, "auto": 1}  # chunks on a rank
TWO_COPIES = ("dualpipe", "chimera")
MODELS = {
    "gpt": ("gpt", {"layers": 8, "words": 48, "drop": 0.1, "global": BATCH}),
    "mlp": ("mlp", {"blocks": 8, "global": BATCH}),
}


def data_of(model):
    random, count = Random(7), STEPS * BATCH
    if model == "mlp":
        return {"x": random.reals([count, 20], "F32"), "y": random.integers([count], 10)}
    tokens = random.integers([count, 8], 48)
    return {"tokens": tokens, "targets": random.integers([count, 8], 48, ignored=0.3)}


def valid_of(model):
    """21 samples: a whole batch and a part of one."""
    return {name: Tensor((21,) + t.shape[1:], t.values[:21 * math.prod(t.shape[1:])], t.kind) for name, t in data_of(model).items()}


def program_of(model, pp, kind, chunks, more):
    source, sizes = MODELS[model]
    dp = more.get("parallel.dp", 1)
    return harness.build(read_program(source), {
        **sizes, "parallel.pp": pp, "schedule.kind": kind, "schedule.chunks": chunks, "schedule.microbatch": BATCH // dp // 8, **more})


def run_of(model, pp, kind, chunks, more):
    """What a run leaves: losses, norms, evaluations, gradients, weights, generated text."""
    def run():
        options = ["--steps=%d" % STEPS, "--seed=5", "--eval-every=2"]
        if model == "gpt":
            options += ["--generate=!+", "--tokens=6", "--temperature=1"]
        done = train(program_of(model, pp, kind, chunks, more), *options, data=data_of(model), valid=valid_of(model))
        text = done.result.out.splitlines()[-1] if model == "gpt" else ""
        return done.losses, done.norms, done.evals, done.gradients, done.weights, text
    return once(("kinds", model, pp, kind, chunks, tuple(sorted(more.items()))), run)


def same_bits(model, kind, more):
    got = run_of(model, 4, kind, KINDS[kind], more)
    wanted = run_of(model, 1, "gpipe", 1, {name: value for name, value in more.items() if name != "schedule.recompute"})
    for what, a, b in zip(("losses", "gradient norms", "evaluations"), got, wanted):
        check(a == b, "%s are not those of gpipe on one pipeline rank: %s, %s" % (what, a, b))
    tensors_equal(got[3], wanted[3], "gradients of step 1")
    tensors_equal(got[4], wanted[4], "weights after %d steps" % STEPS)
    check(got[5] == wanted[5], "generated text is %r, not %r" % (got[5], wanted[5]))
    check(got[0][-1] != got[0][0], "the loss moves")


for model in MODELS:
    for kind in KINDS:
        add("%s %s" % (model, kind), same_bits, model, kind, {})
    for kind in TWO_COPIES:
        add("%s %s dp2" % (model, kind), same_bits, model, kind, {"parallel.dp": 2})
        add("%s %s dp2 two accumulators" % (model, kind), same_bits, model, kind, {"parallel.dp": 2, "schedule.accumulators": 2})
    for kind in TWO_COPIES + ("gpipe", "interleaved", "zb-v"):
        add("%s %s two accumulators" % (model, kind), same_bits, model, kind, {"schedule.accumulators": 2})
    add("%s dualpipe recomputed" % model, same_bits, model, "dualpipe", {"schedule.recompute": "full"})
add("gpt chimera tp2", same_bits, "gpt", "chimera", {"parallel.tp": 2})


def test_slow_messages():
    """Every message waits for its receiver."""
    slow = {"OMPI_MCA_btl_vader_eager_limit": "80", "OMPI_MCA_btl_self_eager_limit": "80"}
    for kind in TWO_COPIES:
        for accumulators in (1, 2):
            more = {"schedule.accumulators": accumulators}
            wanted = run_of("gpt", 1, "gpipe", 1, more)
            done = train(program_of("gpt", 4, kind, 1, more), "--steps=%d" % STEPS, "--seed=5", data=data_of("gpt"), environment=slow)
            check(done.losses == wanted[0], "losses of %s: %s, %s" % (kind, done.losses, wanted[0]))
            tensors_equal(done.weights, wanted[4], "weights of " + kind)


def test_halves_are_two_sums():
    """The two ways of summing differ in their bits, and only in them; a replica is a half too."""
    one, two = (run_of("gpt", 1, "gpipe", 1, {"schedule.accumulators": n}) for n in (1, 2))
    check(any(harness.pack(one[4][name]) != harness.pack(two[4][name]) for name in one[4]), "the bits differ")
    tensors_close(two[3], one[3], 1e-5, "gradients", floor=1e-3)


def test_halves_are_replicas():
    """With two accumulators the first and the second half of a batch are summed as two replicas sum theirs."""
    halves = run_of("gpt", 4, "dualpipe", 1, {"schedule.accumulators": 2})
    replicas = run_of("gpt", 1, "gpipe", 1, {"parallel.dp": 2, "schedule.microbatch": 2})
    tensors_equal(halves[3], replicas[3], "gradients of step 1")
    tensors_equal(halves[4], replicas[4], "weights after %d steps" % STEPS)


def test_memory_of_two_copies():
    """Both copies' weights are planned; gradients in one sum hold half of the micro-batches, in two sums p + 1."""
    source, sizes = MODELS["gpt"]
    plans = {}
    for kind in ("gpipe", "dualpipe"):
        for accumulators in (1, 2):
            plans[kind, accumulators] = harness.plan(read_program(source), {
                **sizes, "global": 64, "parallel.pp": 4, "schedule.kind": kind, "schedule.accumulators": accumulators})
    total = lambda key, name: sum(rank["memory"][name] for rank in plans[key]["ranks"])
    for name in ("parameters", "optimizer"):
        check(total(("dualpipe", 1), name) > 1.7 * total(("gpipe", 1), name), "two copies of the " + name)
    check(total(("gpipe", 2), "gradients") == 2 * total(("gpipe", 1), "gradients"), "two sums of gradients")
    check(total(("dualpipe", 2), "gradients") == total(("dualpipe", 1), "gradients"), "one sum on each copy")
    check(total(("dualpipe", 2), "activations") < total(("dualpipe", 1), "activations") / 3 < total(("gpipe", 1), "activations") / 3,
          "activations: %s" % {key: total(key, "activations") for key in plans})
    for key, plan in plans.items():
        check(plan["schedule"]["copies"] == (2 if key[0] == "dualpipe" else 1) and plan["schedule"]["accumulators"] == key[1], "the plan says it")
        certificate = plan["certificate"]
        check(certificate["complete"] and certificate["ordered"] and certificate["matched"] and all(certificate["acyclic"].values()), "certified")


IMAGES = """
dim batch = 16, side = 8, class = 4;
optimizer < kind=sgd; lr=0.05; momentum=0.9; >
data < shuffle=off; >
schedule < microbatch=2; >
block conv<ci, co, h, w>(x: [batch, ci, h, w], k=3, s=1) -> [batch, co, h / s, w / s] {
  param f: [co, ci, k, k] = kaiming(ci * k * k), scale: [co] = 1, bias: [co] = 0;
  return x |> conv2d(f, stride=s, pad=(k - 1) / 2) |> batchnorm(scale=scale, bias=bias) |> relu();
}
model cnn(x: f32[batch, 3, side, side], y: i32[batch]) {
  param w: [4, class];
  t = x |> conv(co=4);
  repeat 4 { t = t + t |> conv(co=4); }
  loss xent(avgpool(t) @ w, y);
}
"""


def test_running_statistics():
    """Of batch normalisation: sums over micro-batches like gradients, in every kind the same bits."""
    random = Random(3)
    data = {"x": random.reals([48, 3, 8, 8], "F32"), "y": random.integers([48], 4)}
    for accumulators in (1, 2):
        weights = {}
        for kind, pp, chunks in (("gpipe", 1, 1), ("dualpipe", 4, 1), ("chimera", 2, 1), ("zb-v", 2, 2)):
            program = harness.build(IMAGES, {"schedule.kind": kind, "parallel.pp": pp, "schedule.chunks": chunks, "schedule.accumulators": accumulators})
            weights[kind] = train(program, "--steps=3", "--seed=2", data=data).weights
            tensors_equal(weights[kind], weights["gpipe"], "weights and running statistics of " + kind)
        moved = [name for name, t in weights["gpipe"].items() if "running_mean" in name and any(t.values)]
        check(len(moved) == 5, "running means of five layers: %s" % moved)


def test_table_says_copies():
    for accumulators in (1, 2):
        table = train(program_of("mlp", 4, "dualpipe", 1, {"schedule.accumulators": accumulators}), "--steps=0", "--seed=1").result.out
        check("1 chunk a rank of each of two copies of the model" in table and ("summed in two halves" in table) == (accumulators == 2), table)


def cut(kind, more, other=None, forget=None):
    """A run that is cut after two steps and goes on, perhaps in another program, is the run that was not."""
    first = program_of("mlp", 4, kind, 1, more)
    second = program_of("mlp", 1, other, 1, more) if other else first
    whole = train(first, "--steps=%d" % STEPS, "--seed=5", data=data_of("mlp"))
    place = harness.directory()
    train(first, "--steps=2", "--seed=5", "--checkpoint=" + place, data=data_of("mlp"))
    resume = ("--steps=%d" % STEPS, "--seed=5", "--checkpoint=" + place, "--resume")
    if forget:
        os.rename(os.path.join(place, "latest", forget), os.path.join(place, "kept"))
        check(train(second, *resume, data=data_of("mlp")).losses != whole.losses[2:], "the run needs " + forget)
        shutil.rmtree(os.path.join(place, "step-%08d" % STEPS))
        os.unlink(os.path.join(place, "latest"))
        os.rename(os.path.join(place, "kept"), os.path.join(place, "step-00000002", forget))
    rest = train(second, *resume, data=data_of("mlp"))
    check(rest.losses == whole.losses[2:], "losses %s, not cut %s" % (rest.losses, whole.losses))
    tensors_equal(rest.weights, whole.weights, "weights after %d steps" % STEPS)


late_sgd = {"optimizer.kind": "sgd", "optimizer.momentum": 0.9, "optimizer.lr": 1e-3, "optimizer.clip": 0}
add("cut dualpipe", cut, "dualpipe", {})
add("cut dualpipe, then gpipe", cut, "dualpipe", {}, "gpipe")
add("cut chimera two accumulators", cut, "chimera", {"schedule.accumulators": 2})
add("cut pipedream", cut, "pipedream", {"optimizer.clip": 0})
add("cut pipedream-2bw", cut, "pipedream-2bw", late_sgd, None, "weights-before.safetensors")


def test_gradients_against_differences():
    for kind in TWO_COPIES + ("pipedream", "pipedream-2bw"):
        for accumulators in (1, 2) if kind in TWO_COPIES else (1,):
            program = program_of("mlp", 4, kind, 1, {"precision.compute": "f64", "optimizer.clip": 0, "schedule.accumulators": accumulators})
            run = harness.start(program, "--check-gradients=2", data=data_of("mlp"))
            check(run.result.code == 0 and "largest error of all" in run.result.out, "%s: %s" % (kind, run.result.describe()))


harness.main(__name__)
