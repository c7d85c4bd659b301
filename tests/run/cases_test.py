"""Faults that training systems are known for, each with a right answer that was computed by hand.

Most models here are toys whose loss and gradients are short formulas, so that a fault which every layout shares is seen
too; the others are held against the same program on one rank. Runs use compute=f64 where more digits are wanted.
"""
import json
import math
import os
import re
import subprocess

import harness
from harness import (Random, Tensor, add, check, close, emit, once, pdc, plan, read_program, refused, start, tensor,
                     tensors_close, tensors_equal, train)

F64 = {"precision.compute": "f64"}
SGD = "optimizer < kind=sgd; lr=1; >\n"


def layout(pp=1, dp=1, tp=1, microbatch=1, kind="1f1b", chunks=1, **more):
    defines = {"parallel.pp": pp, "parallel.dp": dp, "parallel.tp": tp, "schedule.microbatch": microbatch,
               "schedule.kind": kind, "schedule.chunks": chunks}
    return {**defines, **{key.replace("__", "."): value for key, value in more.items()}}


def value(run, name):
    """The numbers of a saved parameter."""
    return list(run.weights[name].values)


# ---- the toys ----

# logits are one trained row, so that a target y costs -ln p[y]; the frozen identity is what a second stage computes
ROW = """
config const global = 2, length = 3;
dim batch = global, seq = length, one = 1, class = 4;
shard < batch=dp; >
data < shuffle=off; >
optimizer < kind=sgd; lr=1; >
model row(tokens: i32[batch, seq], targets: i32[batch, seq]) {
  param row: [one, class];
  frozen param same: [class, class];
  h = gather(row, tokens);
  loss xent(h @ same, targets);
}
"""
P4 = [0.1, 0.2, 0.3, 0.4]
ROW_START = {"row": tensor([[math.log(k) for k in (1, 2, 3, 4)]]),
             "same": tensor([[1.0 if i == k else 0.0 for i in range(4)] for k in range(4)])}


def row_data(targets):
    return {"tokens": tensor([[0] * len(targets[0])] * len(targets), "I32"), "targets": tensor(targets, "I32")}


def row_answer(targets):
    """Loss and gradient of the row: means over the targets that count."""
    counted = [y for sample in targets for y in sample if y != -100]
    loss = math.fsum(-math.log(P4[y]) for y in counted) / len(counted)
    return loss, [P4[k] - counted.count(k) / len(counted) for k in range(4)]


def run_row(targets, defines, *options, **more):
    sizes = {"global": len(targets), "length": len(targets[0])}
    program = harness.build(ROW, {**F64, **sizes, **defines})
    return train(program, "--steps=1", *options, data=row_data(targets), init=ROW_START, **more)


def check_row(targets, defines):
    run = run_row(targets, defines)
    loss, gradient = row_answer(targets)
    close(run.losses, [loss], 1e-12, "loss")
    close(list(run.gradients["row"].values), gradient, 1e-12, "gradient of the row", relative=False)
    return run


# x -> + a -> * 0.75 -> | -> + b -> * 4; with x = a = b = 0 and target -0.5: dL/da = 3, dL/db = 4, norm 5
CHAIN = """
config const global = 16, long = false;
dim batch = global;
shard < batch=dp; >
data < shuffle=off; >
optimizer < kind=sgd; lr=1; >
model chain(x: f32[batch, 1], y: f32[batch, 1]) {
  param a: [1] = 0, b: [1] = 0;
  frozen param k: [1] = 0.75, c: [1] = 4;
  if (long) {
    h = x + a;
    h = h * k;
    h = h + b;
    loss mse(h * c, y);
  } else {
    h = (x + a) * k;
    loss mse((h + b) * c, y);
  }
}
"""


def run_chain(global_batch, defines, long=False):
    program = harness.build(CHAIN, {**F64, "global": global_batch, "long": long, **defines})
    return train(program, "--steps=1", data={"x": tensor([[0.0]] * global_batch), "y": tensor([[-0.5]] * global_batch)})


def check_chain(run, a, b):
    close(run.norms, [5.0], 1e-12, "gradient norm")
    close(value(run, "a") + value(run, "b"), [a, b], 1e-12, "a, b after one step")
    check(re.search(r"norm 5(\.0*)?\b", run.result.out), "the printed norm is 5: " + run.result.out)


# y = x * w: with w = 0 and target -0.5 the gradient is the mean of x. Both stages have a weight in the second form.
SCALE = """
config const global = 4;
dim batch = global;
shard < batch=dp; >
data < shuffle=off; >
optimizer < kind=sgd; lr=1; >
model scale(x: f32[batch, 1], y: f32[batch, 1]) {
  param w: [1] = 0;
  loss mse(x * w, y);
}
"""
SCALE_TWO = SCALE.replace("param w: [1] = 0;\n  loss mse(x * w, y);", """param w: [1] = 0, u: [1] = 0;
  h = x * w;
  loss mse(h + x * u, y);""")


def scale_data(xs):
    return {"x": tensor([[float(x)] for x in xs]), "y": tensor([[-0.5]] * len(xs))}


# one embedding used as input and, transposed, as output: vocabulary 2, width 1
TIED = """
config const global = 2, middle = 0;
dim batch = global, seq = 1, vocab = 2, embed = 1;
shard < batch=dp; vocab=tp; >
data < shuffle=off; >
optimizer < kind=sgd; lr=1; >
model tied(tokens: i32[batch, seq], targets: i32[batch, seq]) {
  param e: [vocab, embed];
  x = gather(e, tokens);
  repeat middle {
    frozen param one: [embed] = 1;
    x = x * one;
  }
  loss xent(x @ transpose(e), targets);
}
"""


def run_tied(defines, steps=1, middle=0, batch=2):
    program = harness.build(TIED, {**F64, "global": batch, "middle": middle, **defines})
    init = {"e": tensor([[1.0], [0.0]])}
    init.update({"middle.%d.one" % i: tensor([1.0]) for i in range(middle)})
    return train(program, "--steps=%d" % steps, data={"tokens": tensor([[0]] * batch, "I32"), "targets": tensor([[1]] * batch, "I32")},
                 init=init)


def check_tied(run):
    close(run.losses, [math.log(1 + math.e)], 1e-12, "loss")  # 1.313262
    close(run.norms, [math.hypot(1.4621171573, 0.7310585786)], 1e-9, "gradient norm")  # 1.634697
    close(value(run, "e"), [-0.4621171573, 0.7310585786], 1e-9, "the embedding after one step")


# ---- a GPT against itself ----

def gpt_data(samples, length, words, seed=3, ignored=0.0):
    random = Random(seed)
    return {"tokens": random.integers([samples, length], words),
            "targets": random.integers([samples, length], words, ignored=ignored)}


def gpt(layers, width, heads, words, length, batch, **more):
    return {"layers": layers, "width": width, "head_count": heads, "words": words, "length": length, "places": length + 1,
            "global": batch, "tied": False, **more}


def run_gpt(sizes, defines, steps, data, *options, **more):
    key = json.dumps([sizes, defines, steps, options, {name: list(t.values) for name, t in data.items()}], sort_keys=True)
    program = harness.build(read_program("gpt"), {**sizes, **defines})
    return once(("gpt run", key), lambda: train(program, "--steps=%d" % steps, *options, data=data, **more))


def same_bits(run, reference, what):
    check(run.losses == reference.losses, "%s: losses %s, not %s" % (what, run.losses, reference.losses))
    check(run.norms == reference.norms, "%s: norms %s, not %s" % (what, run.norms, reference.norms))
    tensors_equal(run.gradients, reference.gradients, what + ": gradients")
    tensors_equal(run.weights, reference.weights, what + ": weights")


def same_numbers(run, reference, what, loss=2e-6):
    tensors_close(run.gradients, reference.gradients, 1e-5, what + ": gradients", floor=1e-3)
    close(run.losses, reference.losses, loss, what + ": losses")


# ---- loss normalisation, micro-batches ----

RAGGED = [[0, 0, 0], [3, -100, -100]]


def test_loss_is_one_mean_over_unequal_microbatches():
    close(row_answer(RAGGED)[0], 1.956012, 5e-7, "the hand-computed loss")
    close(row_answer(RAGGED)[1], [-0.65, 0.2, 0.3, 0.15], 1e-12, "the hand-computed gradient", relative=False)
    for defines in (layout(), layout(microbatch=2), layout(pp=2), layout(pp=2, microbatch=2)):
        check_row(RAGGED, defines)


def test_loss_is_one_mean_over_unequal_replicas():
    for defines in (layout(dp=2), layout(pp=2, dp=2)):
        run = check_row(RAGGED, defines)
        printed = set(re.findall(r"loss (\d+\.\d+)", run.result.out))
        check(printed == {"1.9560"}, "the printed loss is 1.9560 wherever it is printed: " + run.result.out)


def test_gradient_does_not_depend_on_the_number_of_microbatches():
    for microbatch in (16, 8, 4, 1):
        check_chain(run_chain(16, layout(pp=2, microbatch=microbatch)), -3, -4)


def test_gradient_is_scaled_once_and_not_at_every_stage():
    check_chain(run_chain(8, layout(pp=2)), -3, -4)
    check_chain(run_chain(8, layout(pp=4), long=True), -3, -4)
    check_chain(run_chain(8, layout(pp=4, kind="gpipe"), long=True), -3, -4)


def test_every_microbatch_adds_to_the_gradient():
    run = train(harness.build(SCALE, {**F64, **layout(dp=2)}), "--steps=1", data=scale_data([1, 3, 1, 3]))
    close(value(run, "w"), [-2.0], 1e-12, "w after one step")


def test_last_incomplete_batch_follows_the_stated_policy():
    program = harness.build(SCALE, {**F64, **layout(microbatch=2), "optimizer.lr": 0})
    run = train(program, "--steps=4", data=scale_data(range(1, 11)))
    check(re.search(r"2 samples.* drop|drop.* 2 samples", run.result.out), "the policy is said at the start: " + run.result.out)
    close(run.norms, [2.5, 6.5, 2.5, 6.5], 1e-12, "gradients of two epochs of two steps")


def test_labels_are_shifted_once():
    letters = "abcdefghijklmno"  # 15 letters, windows of 8: every letter starts a window
    place = harness.directory()
    path = os.path.join(place, "text.txt")
    with open(path, "w") as file:
        file.write(letters * 80)
    for pp in (1, 2):
        program = harness.build(read_program("gpt"), {
            **gpt(1, 16, 2, 256, 8, 10), **layout(pp=pp, microbatch=5), "optimizer.lr": 0.01, "optimizer.decay": 0})
        run = train(program, "--steps=300", "--quiet", "--generate=f", "--tokens=20", "--temperature=0", data=path)
        check(run.result.out.strip() == (letters * 3)[5:26], "continuation of f: " + run.result.out)


def test_a_row_does_not_see_another_row():
    sizes, rows = gpt(2, 16, 2, 32, 8, 2), gpt_data(2, 8, 16)
    losses = []
    for other in (16, 17, 31):  # row 2 is made of other tokens each time, and its targets do not count
        data = {name: Tensor(t.shape, list(t.values), "I32") for name, t in rows.items()}
        data["tokens"].values[8:] = [other] * 8
        data["targets"].values[8:] = [-100] * 8
        losses.append(run_gpt(sizes, layout(microbatch=2), 1, data).losses)
    check(losses[0] == losses[1] == losses[2], "the loss of row 1 changes with row 2: %s" % losses)


def test_batch_not_divisible_by_the_microbatch_is_refused():
    refused(read_program("gpt"), 8, 3, defines={**gpt(4, 16, 2, 32, 8, 8), **layout(pp=2, microbatch=3)})


def test_batch_not_divisible_by_the_replicas_is_refused():
    refused(read_program("gpt"), 10, 4, defines={**gpt(2, 16, 2, 32, 8, 10), **layout(pp=2, dp=4, tp=2)})


def test_microbatches_are_counted_by_replicas_and_not_by_ranks():
    sizes, defines = gpt(2, 16, 2, 32, 8, 8), layout(pp=2, dp=4, tp=2)
    check(plan(read_program("gpt"), {**sizes, **defines})["batch"]["microbatches"] == 2, "8 samples, 4 replicas: 2 micro-batches")
    run = run_gpt(sizes, defines, 1, gpt_data(8, 8, 32), limit=120)
    check(run.steps[0]["tokens"] == 8 * 8, "a step has 8 samples of 8 tokens: %s" % run.steps[0])


def test_step_without_a_counted_target_changes_nothing():
    seen, none = [[0, 1, 2], [3, 3, 1]], [[-100] * 3] * 2
    adam = {"optimizer.kind": "adamw", "optimizer.lr": 0.1, "optimizer.decay": 0.1}
    for defines in (layout(microbatch=2), layout(dp=2, pp=2)):
        program = harness.build(ROW, {**F64, **adam, **defines})
        short = train(program, "--steps=2", data=row_data(seen + seen), init=ROW_START)
        gap = train(program, "--steps=3", data=row_data(seen + none + seen), init=ROW_START)
        tensors_equal(gap.weights, short.weights, "weights with a step in between that counts nothing")
        check(gap.losses[0] == short.losses[0] and gap.losses[2] == short.losses[1], "losses %s, %s" % (gap.losses, short.losses))


# ---- schedules ----

def fewer_microbatches_than_stages(count):
    sizes, data = gpt(8, 16, 2, 32, 8, count), gpt_data(2 * count, 8, 32)
    reference = run_gpt(sizes, layout(), 2, data)
    others = ("zb-h1", "zb-h2", "eager-1f1b", "interleaved-zb", "breadth-first") if count in (1, 9) else () # the most extreme counts
    for kind in ("gpipe", "1f1b", "interleaved", *others):
        defines = layout(pp=8, kind=kind)
        result = pdc("-fsyntax-only", *harness.words_of({**sizes, **defines}), "-", source=read_program("gpt"))
        if result.code == 0:
            same_bits(run_gpt(sizes, defines, 2, data), reference, "%s with %d micro-batches on 8 stages" % (kind, count))
        else:
            check(result.code == 1 and str(count) in result.err and "8" in result.err, "a refusal names both: " + result.err)


for count in (1, 2, 7, 8, 9):
    add("schedules_work_with_%d_microbatches_on_8_stages" % count, fewer_microbatches_than_stages, count)


def test_next_and_previous_stage_may_be_the_same_rank():
    sizes, data = gpt(8, 16, 2, 32, 8, 4), gpt_data(8, 8, 32)
    reference = run_gpt(sizes, layout(), 2, data)
    for kind, chunks in (("interleaved", 2), ("interleaved", 4), ("zb-v", 2)):
        same_bits(run_gpt(sizes, layout(pp=2, kind=kind, chunks=chunks), 2, data), reference, "%s, %d chunks" % (kind, chunks))


SKIP = """
dim batch = 8, e = 8;
config const far = true;
shard < batch=dp; >
data < shuffle=off; >
optimizer < kind=sgd; lr=0.1; >
block linear(x: [batch, e]) -> [batch, e] {
  param w: [e, e] = normal(0.5), b: [e] = normal(0.5);
  return tanh(x @ w + b);
}
model skip(x: f32[batch, e], y: f32[batch, e]) {
  h1 = linear(x);
  h2 = linear(h1);
  h3 = linear(h2);
  loss mse(linear(h3) + h1, y);
}
"""


def test_skip_connection_over_several_stages():
    random = Random(5)
    data = {"x": random.reals([16, 8]), "y": random.reals([16, 8])}
    one = train(harness.build(SKIP, {**F64, **layout(microbatch=2)}), "--steps=2", data=data)
    for pp, kind in ((4, "1f1b"), (4, "gpipe"), (4, "zb-h1"), (2, "1f1b")):
        run = train(harness.build(SKIP, {**F64, **layout(pp=pp, microbatch=2, kind=kind)}), "--steps=2", data=data)
        same_bits(run, one, "pp=%d %s" % (pp, kind))


BIG = """
config const wide = 256, trips = 8;
dim batch = 8, one = 1, w = wide;
data < shuffle=off; >
optimizer < kind=sgd; lr=0.1; >
model big(x: f32[batch, one], y: f32[batch, one]) {
  param spread: [one, w] = normal(0.1), gather_up: [w, one] = normal(0.01);
  h = x @ spread;
  repeat trips {
    param b: [w] = normal(0.1);
    h = h + b;
  }
  loss mse(h @ gather_up, y);
}
"""


def messages_of_every_size(wide, environment):
    random = Random(5)
    data = {"x": random.reals([8, 1]), "y": random.reals([8, 1])}
    one = once(("big", wide), lambda: train(harness.build(BIG, {"wide": wide, **layout()}), "--steps=1", data=data))
    for kind, chunks in (("1f1b", 1), ("interleaved", 2)):
        program = harness.build(BIG, {"wide": wide, **layout(pp=4, kind=kind, chunks=chunks)})
        made = plan(BIG, {"wide": wide, **layout(pp=4, kind=kind, chunks=chunks)})
        check(made["certificate"]["acyclic"]["rendezvous"], "%s may stop for good where sends wait" % kind)
        run = train(program, "--steps=1", data=data, environment=environment)
        same_bits(run, one, "%s, rows of %d" % (kind, wide))


add("messages_of_1_kilobyte", messages_of_every_size, 1 << 8, {})
add("messages_of_1_kilobyte_with_the_least_buffering", messages_of_every_size, 1 << 8, {"OMPI_MCA_btl_vader_eager_limit": "256"})
add("messages_of_64_kilobytes", messages_of_every_size, 1 << 14, {})
add("messages_of_8_megabytes", messages_of_every_size, 1 << 21, {})


def test_v_placement_puts_the_last_stage_on_the_first_rank():
    sizes, data = gpt(8, 16, 2, 32, 8, 8), gpt_data(16, 8, 32)
    defines = layout(pp=4, kind="zb-v", chunks=2)
    placement = plan(read_program("gpt"), {**sizes, **defines})["schedule"]["placement"]
    check(placement == [0, 1, 2, 3, 3, 2, 1, 0], "placement %s" % placement)
    last = plan(read_program("gpt"), {**sizes, **defines})["chunks"][-1]
    check(last["rank"] == 0 and last["layers"][-1]["name"] == "loss", "the loss is on rank 0: %s" % last["layers"])
    same_bits(run_gpt(sizes, defines, 2, data), run_gpt(sizes, layout(), 2, data), "zb-v")


def replicas_are_averaged(kind, microbatches):
    xs = [3.0 * i - 7 + i * i % 5 for i in range(2 * microbatches)]
    program = harness.build(SCALE_TWO, {**F64, "global": len(xs), **layout(pp=2, dp=2, kind=kind)})
    run = train(program, "--steps=1", data=scale_data(xs))
    mean = math.fsum(xs) / len(xs)
    close(value(run, "w") + value(run, "u"), [-mean, -mean], 1e-12, "both weights after one step")
    made = plan(SCALE_TWO, {**F64, "global": len(xs), **layout(pp=2, dp=2, kind=kind)})
    reduced = [(group["pp_rank"], operation.get("bucket", operation.get("tensor")), operation["bytes"])
               for group in made["communicators"] if group["axis"] == "dp" for operation in group["operations"]]
    check(len({entry[:2] for entry in reduced}) == len(reduced), "nothing is reduced twice: %s" % reduced)
    for rank in made["ranks"]:
        size = sum(entry[2] for entry in reduced if entry[0] == rank["rank"])
        check(size == rank["memory"]["gradients"], "all gradients are reduced: %s, %s" % (reduced, rank["memory"]))


for kind, count in (("1f1b", 1), ("1f1b", 2), ("1f1b", 3), ("1f1b", 8), ("zb-h1", 4), ("gpipe", 3)):
    add("replicas_are_averaged_once_in_%s_with_%d_microbatches" % (kind, count), replicas_are_averaged, kind, count)


def test_zero_bubble_reduces_over_replicas():
    program = harness.build(SCALE_TWO, {**F64, "global": 16, **layout(pp=2, dp=2, microbatch=2, kind="zb-h1")})
    run = train(program, "--steps=1", data=scale_data(range(1, 17)))
    close(value(run, "w") + value(run, "u"), [-8.5, -8.5], 1e-12, "both weights after one step")


def test_every_microbatch_has_its_own_loss():
    targets = [[0], [1], [2], [3]]
    close(row_answer(targets)[0], 1.508072, 5e-7, "the hand-computed loss")
    close(row_answer(targets)[1], [-0.15, -0.05, 0.05, 0.15], 1e-12, "the hand-computed gradient", relative=False)
    for kind in ("gpipe", "1f1b", "zb-h1"):
        check_row(targets, layout(pp=2, kind=kind))


def test_memory_does_not_grow_with_the_number_of_microbatches():
    """Weight gradients are added up as they come; planned bytes are allocated bytes."""
    sizes = gpt(8, 256, 4, 1000, 64, 64)

    def totals(kind, count):
        made = plan(read_program("gpt"), {**sizes, **layout(pp=4, kind=kind, microbatch=64 // count)})
        check(made["batch"]["microbatches"] == count, made["batch"])
        return [rank["memory"]["total"] for rank in made["ranks"]]

    gpipe = totals("gpipe", 8)
    for kind in ("1f1b", "zb-h1"):
        fewest = totals(kind, 8)
        check(all(mine < theirs for mine, theirs in zip(fewest, gpipe)), "%s needs %s bytes, gpipe %s" % (kind, fewest, gpipe))
        for count in (16, 32, 64):
            more = totals(kind, count)
            check(all(b <= 1.05 * a for a, b in zip(fewest, more)), "%s with 8 micro-batches %s bytes, with %d %s" % (kind, fewest, count, more))


# the second stage looks up the same ids as the first: rows k and 2k+1 add up to 3k+1, in whole numbers that f32 holds
IDS = """
dim batch = 4, seq = 1, vocab = 50257, one = 1;
shard < vocab=tp; >
data < shuffle=off; >
optimizer < kind=sgd; lr=0; >
model ids(tokens: i32[batch, seq], y: f32[batch, seq, one]) {
  frozen param first: [vocab, one], second: [vocab, one];
  param b: [one] = 0;
  x = gather(first, tokens) + b;
  loss mse(x + gather(second, tokens), y);
}
"""


def test_token_ids_are_whole_at_every_stage():
    ids = [2049, 32651, 50256, 64]
    init = {"first": tensor([[float(k)] for k in range(50257)]), "second": tensor([[2.0 * k + 1] for k in range(50257)])}
    data = {"tokens": tensor([[k] for k in ids], "I32"), "y": tensor([[[3.0 * k + 1]] for k in ids])}
    for defines in (layout(), layout(pp=2), layout(pp=2, microbatch=2, kind="zb-h1")):
        program = harness.build(IDS, defines)
        run = train(program, "--steps=1", data=data, init={**init, "b": tensor([0.0])})
        check(run.losses == [0.0], "%s: loss %s" % (defines, run.losses))
    other = {**data, "y": tensor([[[3.0 * k + 2]] for k in ids])}
    check(train(program, "--steps=1", data=other, init={**init, "b": tensor([0.0])}).losses == [1.0], "an id that is off by a half is seen")


# logits are row k of a frozen table with 10 at place k: a target that belongs to another sample costs 10 more
MATCH = """
config const global = 8;
dim batch = global, seq = 5, vocab = 8, class = 8;
shard < batch=dp; >
data < shuffle=off; >
optimizer < kind=sgd; lr=0; >
model match(tokens: i32[batch, seq], targets: i32[batch, seq]) {
  frozen param table: [vocab, class];
  param shift: [class] = 0;
  h = gather(table, tokens);
  repeat 4 {
    frozen param one: [class] = 1;
    h = h * one;
  }
  loss xent(h + shift, targets);
}
"""


def test_first_and_last_stage_read_the_same_samples():
    rows = [[k] * 5 for k in range(8)]
    data = {"tokens": tensor(rows, "I32"), "targets": tensor(rows, "I32")}
    init = {"table": tensor([[10.0 if i == k else 0.0 for i in range(8)] for k in range(8)]), "shift": tensor([0.0] * 8)}
    init.update({"repeat.%d.one" % i: tensor([1.0] * 8) for i in range(4)})
    for defines in (layout(pp=4), layout(pp=4, kind="gpipe"), layout(pp=2, dp=2, microbatch=2), layout(pp=4, dp=2)):
        run = train(harness.build(MATCH, {**F64, **defines}), "--steps=3", data=data, init=init)
        close(run.losses, [math.log(1 + 7 * math.exp(-10))] * 3, 1e-9, "loss of matching samples")
    sizes, data = gpt(4, 16, 2, 32, 8, 8), {"tokens": tensor([[k] * 8 for k in range(8)] * 2, "I32")}
    data["targets"] = data["tokens"]
    same_bits(run_gpt(sizes, layout(pp=4), 2, data), run_gpt(sizes, layout(), 2, data), "constant samples")


def test_evaluation_has_its_own_number_of_rows():
    targets = [[0, 1], [2, 3], [1, 1], [3, 0]]
    rows = [[0, 0], [1, -100], [2, 3], [3, 3], [0, 2], [-100, -100], [1, 2]]
    for defines in (layout(microbatch=2), layout(pp=2, microbatch=2), layout(pp=2, dp=2), layout(pp=2, dp=2, microbatch=2)):
        defines = {**defines, "optimizer.lr": 0.5}
        plain = run_row(targets, defines, "--steps=3")
        run = run_row(targets, defines, "--steps=3", "--eval-every=1", valid=row_data(rows))
        check(run.losses == plain.losses, "training losses with evaluation %s, without %s" % (run.losses, plain.losses))
        check([line["step"] for line in run.evals] == [1, 2, 3], "an evaluation after each step: %s" % run.evals)
        logits = [math.log(k) for k in (1, 2, 3, 4)]
        for step in range(3):
            total = math.fsum(map(math.exp, logits))
            p = [math.exp(x) / total for x in logits]
            counted = [y for row in targets for y in row]
            logits = [x - 0.5 * (q - counted.count(k) / len(counted)) for k, (x, q) in enumerate(zip(logits, p))]
            total = math.log(math.fsum(map(math.exp, logits)))
            valid = [y for row in rows for y in row if y != -100]
            close(run.evals[step]["loss"], math.fsum(total - logits[y] for y in valid) / len(valid), 1e-12, "validation loss")


# ---- cutting layers into stages ----

def layers_of(program):
    """Per chunk the numbers of the iterations of loops it has."""
    return [[i for part in chunk["layers"] if part["name"] == "layers"
             for i in range(part["first"], part["last"] + 1)] for chunk in program["chunks"]]


def parameter_count(defines):
    result = pdc("check", "-v", *harness.words_of(defines), "-", source=read_program("gpt"))
    check(result.code == 0, result.describe())
    return re.search(r"(\d+) parameters", result.err).group(1)


def test_no_layer_is_lost_between_virtual_stages():
    for layers, pp in ((80, 16), (40, 8)):
        sizes, defines = gpt(layers, 8, 1, 16, 4, 16), layout(pp=pp, kind="interleaved", chunks=2)
        made = plan(read_program("gpt"), {**sizes, **defines})
        check(sum(layers_of(made), []) == list(range(layers)), "%d layers: %s" % (layers, layers_of(made)))
        check(len(made["chunks"]) == 2 * pp, "%d chunks" % len(made["chunks"]))
        check(parameter_count({**sizes, **defines}) == parameter_count({**sizes, **layout()}), "the parameter count changes with pp")
    sizes, data = gpt(10, 8, 1, 16, 4, 4), gpt_data(8, 4, 16)
    same_bits(run_gpt(sizes, layout(pp=4, kind="interleaved", chunks=2), 2, data), run_gpt(sizes, layout(), 2, data), "10 layers")


STACK = """
config const layers = 5, heavy = 1;
dim batch = 16, e = 32, wide = 32 * heavy;
model stack(x: f32[batch, e], y: f32[batch, e]) {
  h = x;
  repeat layers {
    param w: [e, e];
    h = relu(h @ w);
  }
  if (heavy > 1) {
    param w1: [e, wide], w2: [wide, e];
    h = relu(h @ w1) @ w2;
  }
  loss mse(h, y);
}
"""


def test_equal_layers_are_shared_out_evenly():
    for layers, pp, wanted in ((5, 4, [1, 1, 1, 2]), (10, 3, [3, 3, 4]), (38, 8, [4, 4] + [5] * 6), (42, 16, [2] * 6 + [3] * 10)):
        counts = [len(part) for part in layers_of(plan(STACK, {"layers": layers, **layout(pp=pp)}))]
        check(sorted(counts) == wanted, "%d layers on %d stages: %s" % (layers, pp, counts))
    made = plan(STACK, {"layers": 5, "heavy": 10, **layout(pp=4)})
    counts = [sum(part["last"] - part["first"] + 1 for part in chunk["layers"]) for chunk in made["chunks"]]
    check(min(counts) >= 1, "one heavy layer leaves a stage empty: %s" % counts)
    refused(STACK, 8, defines={"layers": 1, **layout(pp=8)})


FROZEN = """
config const front = 2, back = 6, front_frozen = false;
dim batch = 8, seq = 4, embed = 8, vocab = 16;
shard < batch=dp; >
data < shuffle=off; >
optimizer < kind=adamw; lr=0.01; decay=0.1; clip=1.0; >
block free(x: [batch, seq, embed]) -> [batch, seq, embed] {
  param w: [embed, embed] = normal(0.3), b: [embed] = normal(0.3);
  return x + tanh(layernorm(x) @ w + b);
}
block fixed(x: [batch, seq, embed]) -> [batch, seq, embed] {
  frozen param w: [embed, embed] = normal(0.3), b: [embed] = normal(0.3);
  return x + tanh(layernorm(x) @ w + b);
}
model frozen_ends(tokens: i32[batch, seq], targets: i32[batch, seq]) {
  frozen param wte: [vocab, embed] = normal(1), out: [embed, vocab] = normal(0.3);
  x = gather(wte, tokens);
  if (front_frozen) {
    repeat front { x = fixed(x); }
    repeat back { x = free(x); }
  } else {
    repeat front { x = free(x); }
    repeat back { x = fixed(x); }
  }
  loss xent(x @ out, targets);
}
"""


def stages_with_nothing_to_train(front, front_frozen):
    sizes = {"front": front, "back": 8 - front, "front_frozen": front_frozen}
    data = gpt_data(40, 4, 16)
    start_weights = train(harness.build(FROZEN, {**sizes, **layout()}), "--steps=0").weights
    one = train(harness.build(FROZEN, {**sizes, **layout(microbatch=2)}), "--steps=5", data=data)
    for kind in ("1f1b", "gpipe", "zb-h1"):
        program = harness.build(FROZEN, {**sizes, **layout(pp=4, microbatch=2, kind=kind)})
        run = train(program, "--steps=5", data=data)
        same_bits(run, one, kind)
        for name, t in run.weights.items():
            moved = t.values != start_weights[name].values
            fixed = ".fixed." in name or name in ("wte", "out")
            check(moved != fixed, "`%s` %s" % (name, "moved, and is frozen" if moved else "did not move"))


add("only_the_first_stage_has_something_to_train", stages_with_nothing_to_train, 2, False)
add("only_the_last_stage_has_something_to_train", stages_with_nothing_to_train, 6, True)


def test_plan_counts_microbatches_in_flight():
    sizes = gpt(16, 16, 2, 32, 8, 8)
    for kind, wanted in (("1f1b", ["4", "3", "2", "1"]), ("gpipe", ["8"] * 4)):
        result = pdc("check", "-v", *harness.words_of({**sizes, **layout(pp=4, kind=kind)}), "-", source=read_program("gpt"))
        check(re.findall(r"(\d+) micro-batch\w* in flight", result.err) == wanted, "%s: %s" % (kind, result.err))


def test_memory_limit_that_cannot_be_met_is_refused():
    sizes = {**gpt(16, 64, 4, 1000, 32, 8), **layout(pp=4)}
    made = plan(read_program("gpt"), sizes)
    totals = [rank["memory"]["total"] for rank in made["ranks"]]
    source = read_program("gpt") + "cluster < memory=%d; >\n" % (max(totals) - 1)
    message = refused(source, max(totals) - 1, max(totals), defines=sizes)
    check(re.search(r"stage %d\b" % totals.index(max(totals)), message), "the stage is named: " + message)
    source = read_program("gpt") + "cluster < memory=%d; >\n" % max(totals)
    check(pdc("check", *harness.words_of(sizes), "-", source=source).code == 0, "exactly enough memory is enough")


def test_parameter_without_elements_is_refused():
    source = SKIP.replace("loss mse(linear(h3) + h1, y);", "h4 = last(h3, n=0);\n  loss mse(h3 + h1, y);")
    source += "block last<m, n>(x: [.., m]) -> [.., n] { param w: [m, n], b: [n] = 0; return x @ w + b; }\n"
    message = refused(source, 0, defines=layout(dp=2))
    check("last" in message, "the layer is named: " + message)


# ---- tied parameters ----

def test_tied_embedding_adds_the_gradients_of_all_its_uses():
    close(math.log(1 + math.e), 1.313262, 5e-7, "the hand-computed loss")
    for defines, middle in ((layout(), 0), (layout(pp=2), 0), (layout(pp=4), 2), (layout(pp=2, kind="interleaved", chunks=2), 2),
                            (layout(pp=2, kind="zb-v", chunks=2), 2), (layout(tp=2), 0), (layout(pp=2, tp=2), 0),
                            (layout(pp=2, dp=2), 0), (layout(pp=2, kind="zb-h1"), 1)):
        check_tied(run_tied(defines, middle=middle))


def test_copies_of_a_tied_embedding_stay_the_same():
    one = run_tied(layout(), steps=4)
    for defines, middle in ((layout(pp=2), 0), (layout(pp=4), 2), (layout(pp=2, kind="zb-v", chunks=2), 2)):
        run = run_tied(defines, steps=4, middle=middle)
        check(run.losses == one.losses and value(run, "e") == value(one, "e"), "four steps: %s, %s" % (run.losses, one.losses))


def test_tied_embedding_with_many_virtual_stages_starts():
    sizes, data = gpt(18, 8, 2, 16, 4, 6, tied=True), gpt_data(6, 4, 16)
    run = run_gpt(sizes, layout(pp=6, kind="interleaved", chunks=3), 1, data)
    same_bits(run, run_gpt(sizes, layout(), 1, data), "interleaved, 3 chunks on 6 ranks")


# ---- gradient norm, clipping, what is not finite ----

def test_clipping_uses_the_norm_of_all_stages():
    clip = {"optimizer.clip": 1.0}
    for defines, long in ((layout(), False), (layout(pp=2), False), (layout(pp=2, kind="interleaved", chunks=2), True),
                          (layout(pp=2, dp=2), False)):
        check_chain(run_chain(8, {**defines, **clip}, long=long), -0.6, -0.8)


def test_replicated_parameters_count_once_in_the_norm():
    clip = {"optimizer.clip": 1.0}
    for defines in (layout(tp=4), layout(pp=2, tp=2)):
        check_chain(run_chain(8, {**defines, **clip}), -0.6, -0.8)
    sizes, data = gpt(2, 32, 4, 64, 8, 4), gpt_data(4, 8, 64)
    one = run_gpt(sizes, layout(microbatch=4), 1, data)
    for tp in (2, 4):
        close(run_gpt(sizes, layout(tp=tp, microbatch=4), 1, data).norms, one.norms, 1e-6, "norm at tp=%d" % tp)


def test_a_target_that_is_not_finite_stops_all_ranks():
    xs = [1.0] * 24
    for bad in (math.nan, math.inf):
        for defines in (layout(), layout(dp=2), layout(pp=2, dp=2)):
            data = scale_data(xs)
            data["y"].values[2 * 4 + 2] = bad  # step 3 of batches of 4; the second replica's half
            program = harness.build(SCALE_TWO, {**defines, "optimizer.lr": 0.1, "train.save_every": 1})
            run = start(program, "--steps=6", data=data)
            check(run.result.code == 5, "exit status 5: " + run.result.describe())
            check(re.search(r"step 3\b", run.result.err), "the step is named: " + run.result.err)
            check(run.result.err.count("error:") == 1, "said once: " + run.result.err)
            check(len(run.losses) == 2, "steps 1 and 2 are logged: %s" % run.lines)
            check(all(math.isfinite(x) for t in run.weights.values() for x in t.values), "the saved weights are finite")


EQUAL = """
dim batch = 1, seq = 1, one = 1, class = 2;
data < shuffle=off; >
optimizer < kind=sgd; lr=0; >
model equal(tokens: i32[batch, seq], targets: i32[batch, seq]) {
  param row: [one, class];
  loss xent(gather(row, tokens), targets);
}
"""
WIDE_ROW = EQUAL.replace("class = 2", "class = 8").replace("data <", "shard < class=tp; >\ndata <")


def test_cross_entropy_of_huge_logits():
    for precision in ("f32", "f64"):
        program = harness.build(EQUAL, {"precision.compute": precision})
        for kernels in ("host", "ref"):
            for c in (1.0, 1e4, 1e8, -1e8, 3e38):
                data = {"tokens": tensor([[0]], "I32"), "targets": tensor([[1]], "I32")}
                run = train(program, "--steps=1", "--kernels=" + kernels, data=data, init={"row": tensor([[c, c]], "F32")})
                close(run.losses, [math.log(2)], 1e-6, "loss of two logits of %g" % c)
                close(list(run.gradients["row"].values), [0.5, -0.5], 1e-6, "gradient of two logits of %g" % c)


def test_cross_entropy_takes_the_maximum_over_all_ranks():
    wanted = math.log(1 + math.exp(-1))  # 0.313262
    for tp in (1, 2):
        data = {"tokens": tensor([[0]], "I32"), "targets": tensor([[5]], "I32")}
        run = train(harness.build(WIDE_ROW, layout(tp=tp)), "--steps=1", data=data,
                    init={"row": tensor([[0.0, 1000.0, 0, 0, 0, 1001.0, 0, 0]], "F32")})
        close(run.losses, [wanted], 1e-5, "loss at tp=%d" % tp)


# ---- tensor parallelism ----

def test_vocabulary_not_divisible_by_tp_is_refused():
    refused(WIDE_ROW.replace("class = 8", "class = 3"), 3, 2, defines=layout(tp=2))
    refused(read_program("gpt"), 50257, 2, defines={**gpt(2, 16, 2, 50257, 8, 4), **layout(tp=2)})


def test_heads_not_divisible_by_tp_are_refused():
    refused(read_program("llama"), 2, 4, defines={"queries": 8, "keys": 2, "head_width": 8, **layout(tp=4)})
    refused(read_program("llama"), 3, 2, defines={"queries": 6, "keys": 3, "head_width": 8, **layout(tp=2)})
    refused(read_program("gpt"), 6, 4, defines={**gpt(2, 24, 6, 48, 8, 4), **layout(tp=4)})


BIAS = """
dim batch = 2, wide = 8, out = 4;
shard < wide=tp; >
data < shuffle=off; >
optimizer < kind=sgd; lr=1; >
model bias(x: f32[batch, wide], y: f32[batch, out]) {
  param w: [wide, out] = 0, b: [out];
  loss mse(x @ w + b, y);
}
"""


def test_bias_of_a_split_product_is_added_once():
    start_bias = [100.0, 200.0, 300.0, 400.0]
    for tp in (1, 2, 4):
        run = train(harness.build(BIAS, {**F64, **layout(tp=tp, microbatch=2)}), "--steps=1",
                    data={"x": tensor([[1.0] * 8] * 2), "y": tensor([[b - 0.5 for b in start_bias]] * 2)},
                    init={"w": tensor([[0.0] * 4] * 8), "b": tensor(start_bias)})
        close(run.losses, [0.25], 1e-12, "loss: the output is the bias")
        close(list(run.gradients["b"].values), [0.25] * 4, 1e-12, "gradient of the bias at tp=%d" % tp)
        close(value(run, "b"), [b - 0.25 for b in start_bias], 1e-12, "bias after a step at tp=%d" % tp)


# ---- random numbers ----

def test_initial_weights_do_not_depend_on_the_layout():
    sizes = gpt(4, 32, 4, 64, 8, 4)
    made = []
    for defines in (layout(), layout(pp=4), layout(tp=4), layout(pp=2, dp=2, tp=2)):
        program = harness.build(read_program("gpt"), {**sizes, **defines})
        made.append(train(program, "--steps=0", "--seed=1234").weights)
        tensors_equal(made[-1], made[0], "initial weights")
    seen = {}
    for name, t in made[0].items():
        if len(set(t.values)) == 1:  # a constant: biases and gains
            continue
        part = len(t.values) // 4
        for k in range(4):
            piece = tuple(t.values[k * part:(k + 1) * part])
            check(piece not in seen, "quarter %d of `%s` is the same as one of `%s`" % (k, name, seen.get(piece)))
            seen[piece] = name
        size = harness.norm(t.values) / math.sqrt(len(t.values))
        check(0.01 < size < 0.03, "`%s` has a standard deviation of %g, not 0.02" % (name, size))
    other = train(harness.build(read_program("gpt"), {**sizes, **layout()}), "--steps=0", "--seed=1235").weights
    check(other["wte"].values != made[0]["wte"].values, "another seed gives other weights")


def test_dropout_does_not_depend_on_the_layout():
    sizes, data = gpt(2, 32, 4, 64, 8, 4, drop=0.1), gpt_data(20, 8, 64)
    one = run_gpt(sizes, layout(), 20, data)
    plain = run_gpt({**sizes, "drop": 0.0}, layout(), 20, data)
    check(one.losses != plain.losses, "dropout changes something")
    for defines in (layout(pp=2), layout(pp=2, kind="gpipe")):
        same_bits(run_gpt(sizes, defines, 20, data), one, "dropout on %s" % defines)
    for defines in (layout(tp=2), layout(microbatch=4), layout(dp=2), layout(dp=2, tp=2, pp=2)):
        same_numbers(run_gpt(sizes, defines, 20, data), one, "dropout on %s" % defines, loss=1e-4)


DROP = """
dim batch = 64, e = 1000;
config const p = 0.25;
data < shuffle=off; >
optimizer < kind=sgd; lr=0; >
model drop(x: f32[batch, e], y: f32[batch, e]) {
  param w: [e] = 1;
  loss mse(dropout(x * w, p), y);
}
"""


def test_dropout_keeps_its_share_and_its_mean():
    data = {"x": tensor([[1.0] * 1000] * 64), "y": tensor([[0.0] * 1000] * 64)}
    run = train(harness.build(DROP, {**F64, **layout(microbatch=16)}), "--steps=2", data=data)
    for loss in run.losses:  # mean of (keep / (1 - p))^2 = 1 / (1 - p), with a deviation of 0.0023
        close(loss, 1 / 0.75, 0.01, "mean square of what is kept")
    check(run.losses[0] != run.losses[1], "every step draws its own mask")
    for g in run.gradients["w"].values:  # 2 keep / (1 - p)^2 over 64 samples of 1000 elements
        kept = g * 64 * 1000 / 2 * 0.75**2
        close(kept, round(kept), 1e-9, "the gradient has the mask of the forward pass", relative=False)
        check(25 <= kept <= 63, "%g of 64 kept" % kept)


def test_recomputation_draws_the_same_dropout():
    sizes, data = gpt(4, 16, 2, 32, 8, 4, drop=0.1), gpt_data(20, 8, 32)
    plain = run_gpt(sizes, layout(pp=2), 20, data)
    same_bits(run_gpt(sizes, layout(pp=2, schedule__recompute="full"), 20, data), plain, "recompute=full")
    same_bits(run_gpt(sizes, layout(schedule__recompute="full"), 20, data), plain, "recompute=full on one rank")


# ---- data ----

def test_too_few_samples_for_a_batch():
    program = harness.build(SCALE, {**F64, **layout(dp=4)})
    run = start(program, "--steps=1", data=scale_data([1, 2, 3]))
    check(run.result.code == 3, "exit status 3: " + run.result.describe())
    check("3" in run.result.err and "4" in run.result.err and run.result.err.count("error:") == 1, run.result.err)
    run = train(program, "--steps=4", data=scale_data(range(9)))
    check(len(run.steps) == 4 and "drop" in run.result.out, run.result.out)


UNUSED = SKIP.replace("loss mse(linear(h3) + h1, y);", "h4 = idle(h3);\n  loss mse(linear(h3) + h1, y);").replace(
    "model skip", """block idle(x: [batch, e]) -> [batch, e] {
  param w: [e, e] = normal(0.5);
  return x @ w;
}
model skip""")


def test_unused_layer_is_reported_and_has_no_gradient():
    random = Random(5)
    data = {"x": random.reals([16, 8]), "y": random.reals([16, 8])}
    adam = {"optimizer.kind": "adamw", "optimizer.lr": 0.01}
    result = pdc("check", *harness.words_of(layout(pp=2, dp=2)), "-", source=UNUSED)
    check(result.code == 0 and "warning" in result.err and "idle" in result.err, "a warning names it: " + result.describe())
    weights = []
    for defines in (layout(), layout(pp=2, dp=2), layout(pp=4), layout(dp=2, kind="gpipe")):
        program = harness.build(UNUSED, {**F64, **adam, **defines})
        first = train(program, "--steps=0").weights["idle.w"].values
        run = train(program, "--steps=3", data=data)
        if "idle.w" in run.gradients:
            check(set(run.gradients["idle.w"].values) == {0.0}, "its gradient is 0")
        check(run.weights["idle.w"].values == first, "nothing decays it, and nothing moves it")
        weights.append(run.weights)
        tensors_close(run.weights, weights[0], 1e-12, "weights")
    decays = [train(harness.build(UNUSED, {**F64, **adam, **defines, "optimizer.decay": 0.1}), "--steps=3", data=data).weights
              for defines in (layout(), layout(pp=2, dp=2))]
    tensors_close(decays[1], decays[0], 1e-12, "weights with decay: one policy on every layout")


DEAD = """
dim batch = 4, e = 3;
data < shuffle=off; >
shard < batch=dp; >
model dead(x: f32[batch, e], y: f32[batch, e]) {
  param w: [e] = 1;
  h = x * w;
  k = h * 2.0;
  repeat 3 { param u: [e, e] = normal(0.1); k = tanh(k @ u); }
  loss mse(h, y);
}
"""


DEAD_INSIDE = DEAD.replace("repeat 3 { param u: [e, e] = normal(0.1); k = tanh(k @ u); }",
                           "repeat 3 { param u: [e, e] = normal(0.1); idle = h @ u; h = tanh(h); }")


def parameters_of_loops_that_reach_no_loss(source):
    random = Random(5)
    data = {"x": random.reals([8, 3], "F32"), "y": random.reals([8, 3], "F32")}
    result = pdc("check", "-v", "-", source=source)
    check(result.code == 0 and "warning" in result.err and "u`" in result.err, "a warning names it: " + result.describe())
    for defines in (layout(), layout(pp=2), layout(dp=2)):
        names = sorted(parameter["name"] for parameter in plan(source, defines)["parameters"])
        check(names in (["w"], ["repeat.%d.u" % i for i in range(3)] + ["w"]), "parameters of the plan: %s" % names)
        program = harness.build(source, defines)
        first, run = train(program, "--steps=0").weights, train(program, "--steps=2", data=data)
        check(sorted(run.weights) == names, "saved parameters %s, those of the plan %s" % (sorted(run.weights), names))
        for name in set(names) - {"w"}:
            check(run.weights[name].values == first[name].values, "`%s` moved" % name)


add("unused_loop_is_reported_and_has_no_gradient", parameters_of_loops_that_reach_no_loss, DEAD)
add("unused_statement_of_a_loop_is_reported_and_has_no_gradient", parameters_of_loops_that_reach_no_loss, DEAD_INSIDE)


def test_rows_of_an_embedding_that_are_never_read():
    sizes, data = gpt(2, 16, 2, 32, 8, 4), gpt_data(4, 8, 16)
    for defines in (layout(), layout(pp=2, dp=2), layout(tp=2)):
        run = run_gpt(sizes, defines, 1, data)
        rows = run.gradients["wte"].values
        check(all(x == 0 for x in rows[16 * 16:]), "rows 16 to 31 have no gradient")
        check(any(x != 0 for x in rows[:16 * 16]), "the others have one")


# a sample k has loss 4^k: the loss of a step tells which samples it read, exactly
COUNT = """
dim batch = 4;
shard < batch=dp; >
optimizer < kind=sgd; lr=0; >
data < seed=17; >
model count(x: f32[batch, 1], y: f32[batch, 1]) {
  param w: [1] = 1;
  h = x * w;
  loss mse(h, y);
}
"""


def samples_of(loss):
    total, found = round(loss * 4), []
    for k in range(24):
        found += [k] * (total % 4)
        total //= 4
    return found


def test_every_sample_is_read_once_an_epoch_in_the_same_order_on_every_layout():
    data = {"x": tensor([[2.0**k] for k in range(24)]), "y": tensor([[0.0]] * 24)}
    orders = []
    for defines in (layout(), layout(microbatch=2), layout(dp=2), layout(tp=2), layout(pp=2, dp=2, tp=2), layout(pp=2, dp=4)):
        run = train(harness.build(COUNT, {**F64, **defines}), "--steps=18", data=data)
        orders.append([samples_of(loss) for loss in run.losses])
        check(orders[-1] == orders[0], "the order on %s" % defines)
        for epoch in range(3):
            read = sorted(sum(orders[-1][6 * epoch:6 * epoch + 6], []))
            check(read == list(range(24)), "epoch %d reads %s" % (epoch, read))
    check(orders[0][:6] != orders[0][6:12] != [list(range(4 * i, 4 * i + 4)) for i in range(6)], "epochs are shuffled")


# ---- learning rates, saved weights ----

def test_learning_rate_is_that_of_the_update_on_every_layout():
    columns = []
    for defines in (layout(), layout(dp=4), layout(pp=2, dp=2, tp=2), layout(microbatch=4)):
        source = SCALE_TWO.replace("kind=sgd; lr=1;", "kind=adamw; lr=cosine(1e-3, 0, warmup=10, end=100);")
        run = train(harness.build(source, {**F64, **defines}), "--steps=102", data=scale_data(range(1, 9)))
        columns.append([line["lr"] for line in run.steps])
        check(columns[-1] == columns[0], "the rates differ on %s" % defines)
    lr = columns[0]
    close(lr[50], 5.868241e-4, 1e-7, "rate of the update with index 50")
    close(lr[:10], [1e-4 * (i + 1) for i in range(10)], 1e-12, "warm-up")
    close(lr[10], 1e-3, 1e-12, "rate right after the warm-up")
    close(lr[100:], [0.0, 0.0], 1e-18, "rate after the end", relative=False)


def test_saved_weights_are_complete_and_go_on_where_they_were():
    sgd = {"optimizer.kind": "sgd", "optimizer.lr": 0.1, "optimizer.decay": 0}
    data = gpt_data(8, 4, 16)
    sizes = {"front": 2, "back": 2, **sgd}
    program = harness.build(FROZEN, {**sizes, **layout(pp=2, dp=2, microbatch=2)})
    through = train(program, "--steps=4", data=data)
    begun = train(program, "--steps=3", data=data)
    names = [parameter["name"] for parameter in plan(FROZEN, {**sizes, **layout(pp=2, dp=2, microbatch=2)})["parameters"]]
    check(sorted(begun.weights) == sorted(names), "the saved names are those of the plan: %s" % sorted(set(begun.weights) ^ set(names)))
    for defines in (layout(pp=2, dp=2, microbatch=2), layout(microbatch=8), layout(pp=4, microbatch=4)):
        again = train(harness.build(FROZEN, {**sizes, **defines}), "--steps=1", "--seed=99", data=data,
                      init=begun.path("weights.safetensors"))
        close(again.losses[0], through.losses[3], 2e-6, "the loss goes on")
    tied = gpt(2, 16, 2, 32, 8, 4, tied=True)
    names = run_gpt(tied, layout(pp=2, dp=2), 1, gpt_data(4, 8, 32)).weights
    check("wte" in names and "out" not in names, "a tied parameter is saved once")


# ---- operations by their numbers ----

ROTARY = """
dim batch = 1, seq = 2, heads = 1, head = 4;
optimizer < kind=sgd; lr=0; >
model rotary(x: f32[batch, seq, heads, head], y: f32[batch, seq, heads, head]) {
  param w: [head] = 1;
  loss mse(rope(x * w), y);
}
"""


def test_rotary_positions_pair_halves():
    q = [1.0, 2.0, 3.0, 4.0]
    turned = [-1.984111, 1.959901, 2.462378, 4.019800]
    data = {"x": tensor([[[q], [q]]]), "y": tensor([[[q], [turned]]])}
    run = train(harness.build(ROTARY, F64), "--steps=1", data=data)
    check(run.losses[0] < 1e-12, "mean square error %g" % run.losses[0])


NORM = """
dim batch = 1, e = 4;
optimizer < kind=sgd; lr=0; >
config const eps = 1e-6;
model norm(x: f32[batch, e], y: f32[batch, e]) {
  param w: [e] = 1;
  loss mse(rmsnorm(x * w, eps=eps), y);
}
"""


def test_norm_uses_its_epsilon():
    for eps, wanted in ((1e-6, 0.7071068), (1e-5, 0.3015113)):
        data = {"x": tensor([[0.001] * 4]), "y": tensor([[wanted] * 4])}
        run = train(harness.build(NORM, {**F64, "eps": eps}), "--steps=1", data=data)
        check(run.losses[0] < 1e-14, "eps %g: mean square error %g" % (eps, run.losses[0]))
    source = NORM.replace("rmsnorm(x * w, eps=eps)", "rmsnorm(x * w)").replace("config const eps = 1e-6;\n", "")
    run = train(harness.build(source, F64), "--steps=1", data={"x": tensor([[0.001] * 4]), "y": tensor([[0.3015113] * 4])})
    check(run.losses[0] < 1e-14, "the default is 1e-5: mean square error %g" % run.losses[0])


def test_slice_of_a_whole_axis_is_still_a_slice():
    sizes = {**gpt(1, 16, 2, 32, 8, 4), "places": 8}
    run = run_gpt(sizes, layout(), 1, gpt_data(4, 8, 32))
    close(run.losses, [math.log(32)], 0.05, "loss of an untrained model")


# ---- token data ----

def test_token_out_of_range_is_an_error_on_every_layout():
    sizes = gpt(2, 16, 2, 100, 8, 4)
    for name, bad in (("tokens", 100), ("tokens", 65535), ("targets", 100), ("targets", -1), ("targets", -101), ("tokens", -100)):
        data = gpt_data(8, 8, 100)
        data[name].values[43] = bad  # sample 5, in step 2
        for defines in (layout(), layout(tp=2), layout(pp=2)):
            program = harness.build(read_program("gpt"), {**sizes, **defines})
            run = start(program, "--steps=2", data=data)
            check(run.result.code == 3, "%s=%d: exit status 3: %s" % (name, bad, run.result.describe()))
            check(run.result.err.count("error:") == 1, "said once: " + run.result.err)
            for fact in (bad, 43, 100, name):
                check(re.search(r"(?<!\w)%s(?!\w)" % re.escape(str(fact)), run.result.err), "`%s` is named: %s" % (fact, run.result.err))
            check(len(run.steps) == 1, "step 1 was good")
    data = gpt_data(8, 8, 100)
    data["targets"].values[43] = -100
    run_gpt(sizes, layout(), 2, data)


def test_sequence_longer_than_the_position_table_is_refused():
    refused(read_program("gpt"), 9, 8, defines={**gpt(2, 16, 2, 32, 9, 4), "places": 8, **layout(pp=2)})
    program = harness.build(read_program("gpt"), {**gpt(2, 16, 2, 32, 16, 4), "places": 16})
    other = train(harness.build(read_program("gpt"), {**gpt(2, 16, 2, 32, 8, 4), "places": 9}), "--steps=0")
    run = start(program, "--steps=0", init=other.path("weights.safetensors"))
    check(run.result.code == 4, "exit status 4: " + run.result.describe())
    check("wpe" in run.result.err and "[9, 16]" in run.result.err and "[16, 16]" in run.result.err, run.result.err)


# ---- sizes ----

HUGE = """
dim batch = 8, seq = 8192, embed = 64, vocab = 32768;
schedule < microbatch=8; >
model huge(tokens: i32[batch, seq], targets: i32[batch, seq]) {
  param wte: [vocab, embed], out: [embed, vocab];
  x = gather(wte, tokens);
  loss xent(x @ out, targets);
}
"""


def numbers_in(text):
    return [int(word) for word in re.findall(r"(?<![\w.])-?\d+(?![\w.])", text)]


def test_sizes_beyond_32_bits_are_planned_and_emitted():
    memory = emit("memory", HUGE)
    check(max(numbers_in(memory)) > 8589934592, "8 x 8192 x 32768 logits of 4 bytes are in the plan: " + memory)
    made = emit("plan", HUGE)
    check(min(numbers_in(made)) >= 0, "no negative number in the plan")
    made = json.loads(emit("plan", HUGE.replace("vocab = 32768", "vocab = 65536").replace("embed = 64", "embed = 32768")))
    check(made["chunks"][0]["parameters"] == 2 * 65536 * 32768, "two tables of 2147483648 elements: %s" % made["chunks"][0]["parameters"])
    check(made["ranks"][0]["memory"]["parameters"] == 2 * 8589934592, "of 8589934592 bytes: %s" % made["ranks"][0]["memory"])


def test_emitted_code_has_no_conversion_warnings():
    library = os.path.join(os.path.dirname(harness.PDC), "lib", "pdc")
    for name, defines in (("gpt", {}), ("gpt", {**F64, **layout(pp=2, tp=2)}), ("llama", {}), ("mlp", {}), (None, {})):
        place = harness.directory()
        with open(os.path.join(place, "model.pd"), "w") as file:
            file.write(read_program(name) if name else HUGE)
        result = pdc("-S", "-o", "model.c", *harness.words_of(defines), "model.pd", cwd=place)
        check(result.code == 0, result.describe())
        words = ["mpicc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-fsyntax-only",
                 "-fopenmp", "-I" + os.path.join(library, "include"), "model.c"]
        result = harness.command(words, 60, cwd=place)
        check(result.code == 0, "%s: %s" % (name, result.describe()))


# ---- launching, logging ----

def test_wrong_number_of_ranks_is_said_once():
    program = harness.build(SCALE_TWO, {**F64, "global": 8, **layout(pp=2, dp=2, tp=2)})
    for ranks in (4, 16):
        run = start(program, "--steps=1", data=scale_data(range(8)), ranks=ranks, limit=30)
        check(run.result.code != 0, "it fails: " + run.result.describe())
        check(run.result.seconds < 20, "it takes %.1f s" % run.result.seconds)
        found = re.findall(r"needs 8 ranks \(pp.2 .*dp.2 .*tp.2\).* %d\b" % ranks, run.result.text)
        check(len(found) == 1, "the numbers, once: " + run.result.text)
        check(re.search(r"mpirun -n 8 .*program", run.result.text), "the command to use: " + run.result.text)
    for ranks in (8, None):
        run = train(program, "--steps=1", data=scale_data(range(8)), ranks=ranks)
        close(value(run, "w"), [-3.5], 1e-12, "w after one step")


def test_one_rank_runs_without_a_launcher():
    program = harness.build(SCALE, {**F64, **layout()})
    train(program, "--steps=1", data=scale_data(range(4)), environment={"PATH": "/nowhere"})


def test_log_has_one_whole_line_a_step_in_order():
    targets = [[0], [1], [2], [3]]
    program = harness.build(ROW, {**F64, "global": 4, "length": 1, **layout(pp=2, dp=2, tp=2), "optimizer.lr": 0.01})
    run = train(program, "--steps=200", data=row_data(targets), init=ROW_START)
    check([line["step"] for line in run.steps] == list(range(1, 201)), "steps 1 to 200 in order")
    close(run.losses[0], 1.508072, 5e-7, "loss of step 1")
    check({line["tokens"] for line in run.steps} == {4}, "4 tokens a step, whatever tp and pp")
    printed = re.findall(r"^step (\d+)/200  loss \d+\.\d+  norm \S+  lr \S+ .*tokens/s .*$", run.result.out, re.M)
    check(printed == [str(i) for i in range(1, 201)], "one printed line a step: " + run.result.out[:1500])
    for line in run.steps:
        close(line["tokens_per_s"], 4 / (line["step_ms"] / 1000), 1e-6, "tokens per second")


# ---- weight decay ----

STILL = read_program("gpt").replace("transpose(wte), targets)", "transpose(wte) * 0.0, targets)")


def test_decay_leaves_gains_and_biases_alone_and_takes_tied_weights_once():
    check(STILL != read_program("gpt"), "the logits of this program are all 0")
    decay = {"optimizer.lr": 0.1, "optimizer.decay": 0.1, "optimizer.clip": 0}
    sizes = {**gpt(2, 16, 2, 32, 8, 4, tied=True), **decay}
    names = [parameter for parameter in plan(STILL, {**sizes, **layout()})["parameters"]]
    shapes = {parameter["name"]: parameter["shape"] for parameter in names}
    random = Random(13)
    init = {name: random.reals(shape, "F32") for name, shape in shapes.items()}
    for defines in (layout(), layout(pp=2, dp=2), layout(tp=2), layout(pp=2, tp=2)):
        run = train(harness.build(STILL, {**sizes, **defines}), "--steps=1", data=gpt_data(4, 8, 32), init=init)
        check(run.norms == [0.0], "all gradients are 0: norm %s" % run.norms)
        close(run.losses, [math.log(32)], 1e-6, "loss of equal logits")
        for name, t in run.weights.items():
            before = harness.array.array("f", init[name].values)
            if len(t.shape) == 1:
                check(t.values == before, "`%s` decays" % name)
            else:
                close(list(t.values), [0.99 * x for x in before], 2e-7, "`%s` after one step" % name)
        found = re.search(r"decay +0\.1 on (\d+) tensors .* none on (\d+)", run.result.out)
        plain = sum(1 for shape in shapes.values() if len(shape) == 1)
        check(found and found.groups() == (str(len(shapes) - plain), str(plain)), "both groups are listed: " + run.result.out)


harness.main(__name__)
