"""The CNN examples as programs that run, what batch normalisation keeps, and what tensor parallelism of channels moves."""
import os
import re

import harness
from harness import Random, build, check, close, plan, read_program, tensors_close, train

EXAMPLES = os.path.join(harness.ROOT, "examples")
FASHION = "/usr/share/datasets/fashion-mnist"


def example(name):
    with open(os.path.join(EXAMPLES, name + ".pd")) as file:
        return file.read()


def fashion(steps, **defines):
    source = re.sub(r"\s*valid\.[xy]=\S+;", "", example("cnn-fashion"))  # an evaluation takes longer than the steps
    check("valid" not in source, "the validation data of the example are named otherwise")
    return train(build(source, defines), "--steps=%d" % steps, limit=240)


def test_fashion_on_two_layouts():
    """Divided channels and replicas are the same training, and it goes well: the loss is far below log 10 after 30 steps."""
    replicas = fashion(30)
    channels = fashion(3, parallel__dp=1, parallel__tp=2)
    close(channels.losses, replicas.losses[:3], 2e-5, "losses with divided channels")
    check(min(replicas.losses[-5:]) < 1.4, "losses: %s" % replicas.losses)


def small_resnet():
    source = example("resnet34")
    small = source.replace("batch = 8192, side = 224, class = 1000", "batch = 8, side = 32, class = 10")
    check(small != source, "examples/resnet34.pd has other sizes")
    for channels in (64, 128, 256, 512):
        small = small.replace("co=%d" % channels, "co=%d" % (channels // 8))
    return re.sub(r"data < .*? >\n", "data < shuffle=off; >\n", small, flags=re.S) + "schedule < microbatch=2; >\nprecision < compute=f64; >\n"


def test_resnet34_in_small():
    """The whole model on small images and few ranks: pipeline, replicas and channels give the losses of one rank. In f64,
    because there are 2 numbers a channel at the end. Lamb's first step goes by the signs of gradients, those of rounding
    errors too: the second loss is not as close as the first."""
    random = Random(3)
    data = {"x": random.reals([16, 3, 32, 32], "F32"), "y": random.integers([16], 10)}
    runs = [train(build(small_resnet(), {"parallel.pp": pp, "parallel.dp": dp, "parallel.tp": tp}), "--steps=2", data=data, limit=240)
            for pp, dp, tp in ((1, 1, 1), (2, 1, 2), (2, 2, 1))]
    for run in runs[1:]:
        close(run.losses[0], runs[0].losses[0], 1e-10, "first loss")
        close(run.losses[1], runs[0].losses[1], 1e-4, "second loss")
        tensors_close(run.gradients, runs[0].gradients, 1e-7, "gradients of step 1", floor=1e-3)
    check(runs[0].losses[0] != runs[0].losses[1], "nothing moves")


def test_gathers_of_a_plan():
    """Where `co` is divided, what a convolution takes is gathered, and its gradient summed; the last ones of a pair are not."""
    source = read_program("cnn")
    operations = [operation for communicator in plan(source, {"parallel.tp": 2, "schedule.microbatch": 4})["communicators"]
                  if communicator["axis"] == "tp" for operation in communicator["operations"]]
    gathers = [operation for operation in operations if operation["op"] == "all_gather"]
    sums = [operation for operation in operations if operation["op"] == "all_reduce"]
    image = 4 * 8 * 5 * 5 * 4  # a micro-batch of 4, 8 channels
    # two convolutions in each of two residual blocks, and conv_2; the first convolution takes the images themselves
    check([(g["bytes"], g["count"]) for g in gathers] == [(image, 6), (image, 6), (image, 3)], "gathers: %s" % gathers)
    check(sum(s["count"] for s in sums if s["bytes"] == image) == 15, "sums of gradients: %s" % sums)


def test_operations_of_a_convolution():
    """2 * out * height * width * in * k * k for F, as many for I and for W, whatever else the layer does is little."""
    flops = {}
    for chunk in plan(example("resnet34"), {"parallel.dp": 1, "parallel.tp": 1})["chunks"]:
        for key, value in chunk["flops"].items():
            flops[key] = flops.get(key, 0) + value
    layers = [(64, 3, 7, 112)] + [(64, 64, 3, 56)] * 6 + [(128, 64, 3, 28)] + [(128, 128, 3, 28)] * 8 + [(256, 128, 3, 14)] \
        + [(256, 256, 3, 14)] * 12 + [(512, 256, 3, 7)] + [(512, 512, 3, 7)] * 6
    wanted = [2 * out * size * size * into * k * k for out, into, k, size in layers] + [2 * 512 * 1000]
    for key, whole in (("F", sum(wanted)), ("I", sum(wanted[1:])), ("W", sum(wanted))):
        check(whole < flops[key] < 1.02 * whole, "%s: %d operations, and the products alone are %d" % (key, flops[key], whole))


def test_one_gather_for_two_convolutions():
    """Two that take the same tensor in one statement share its gather."""
    source = """dim batch = 4, side = 6;
parallel < tp=2; >
shard < conv.co=tp; >
block conv<ci, co, h, w>(x: [batch, ci, h, w], k=3) -> [batch, co, h, w] {
  param f: [co, ci, k, k];
  return conv2d(x, f, pad=(k - 1) / 2);
}
model m(x: f32[batch, 2, side, side], y: f32[batch]) {
  t = conv(x, co=4);
  t = conv(t, co=4) + conv(t, co=4, k=1);
  loss mse(einsum("b c -> b", avgpool(conv(t, co=4))), y);
}
"""
    ir = harness.emit("ir", source)
    check(len(re.findall(r"= all_gather", ir)) == 2, ir)


def test_running_statistics_by_hand():
    """One channel of two values a step: means and variances that fit in the head."""
    source = """dim batch = 4, one = 1, two = 2;
shard < batch=dp; >
optimizer < kind=sgd; lr=0; >
precision < compute=f64; >
data < shuffle=off; >
model m(x: f64[batch, one, two], y: f64[batch, one, two]) {
  param w: [two] = 1;
  loss mse(batchnorm(x * w, momentum=0.5), y);
}
"""
    values = [1, 3, 5, 7, 10, 10, 10, 10]
    data = {"x": harness.Tensor((4, 1, 2), values, "F64"), "y": harness.Tensor((4, 1, 2), [0] * 8, "F64")}
    run = train(build(source, {"schedule.microbatch": 4}), "--steps=1", data=data)
    mean = sum(values) / 8
    close(run.weights["running_mean"].values[0], 0.5 * mean, 1e-14, "mean of one micro-batch")
    spread = sum((x - mean) ** 2 for x in values) / 7
    close(run.weights["running_variance"].values[0], 0.5 + 0.5 * spread, 1e-14, "variance of one micro-batch")
    for defines in ({"schedule.microbatch": 2}, {"schedule.microbatch": 2, "parallel.dp": 2}):
        run = train(build(source, defines), "--steps=1", data=data)  # {1, 3, 5, 7}: 4 and 20/3; {10, 10, 10, 10}: 10 and 0
        close(run.weights["running_mean"].values[0], 0.5 * (4 + 10) / 2, 1e-14, "mean of two")
        close(run.weights["running_variance"].values[0], 0.5 + 0.5 * (20 / 3 + 0) / 2, 1e-14, "variance of two")
        check("running_mean" not in run.gradients, "a statistic has a gradient: %s" % sorted(run.gradients))


def test_statistics_before_any_parameter():
    """Nothing upstream is trained, so no gradient arrives there; what was measured is collected all the same."""
    source = """dim batch = 4, one = 1, two = 2;
schedule < microbatch=2; >
shard < batch=dp; >
optimizer < kind=sgd; lr=0.1; >
precision < compute=f64; >
data < shuffle=off; >
model m(x: f64[batch, one, two], y: f64[batch, one, two]) {
  a = batchnorm(x, momentum=0.5);
  param w: [two] = 1;
  loss mse(a * w, y);
}
"""
    data = {"x": harness.Tensor((4, 1, 2), [1, 3, 5, 7, 10, 10, 10, 10], "F64"), "y": harness.Tensor((4, 1, 2), [0] * 8, "F64")}
    for defines in ({}, {"parallel.pp": 2}, {"parallel.pp": 2, "schedule.kind": "zb-h1"}, {"parallel.dp": 2}):
        run = train(build(source, defines), "--steps=1", data=data)
        close(run.weights["running_mean"].values[0], 3.5, 1e-14, "%s: mean" % defines)
        close(run.weights["running_variance"].values[0], 0.5 + 10 / 6, 1e-14, "%s: variance" % defines)
        check(list(run.gradients) == ["w"], "gradients: %s" % list(run.gradients))


def test_statistics_of_other_schedules():
    """An update within the list takes the mean over its own micro-batches."""
    source = """dim batch = 4, one = 1, two = 2;
optimizer < kind=sgd; lr=0; >
precision < compute=f64; >
data < shuffle=off; >
model m(x: f64[batch, one, two], y: f64[batch, one, two]) {
  param w: [two] = 1;
  a = x * w;
  b = batchnorm(a, momentum=0.5);
  c = b * 2;
  loss mse(c, y);
}
"""
    data = {"x": harness.Tensor((4, 1, 2), [1, 3, 5, 7, 10, 10, 10, 10], "F64"), "y": harness.Tensor((4, 1, 2), [0] * 8, "F64")}
    for kind, mean, variance in (("pipedream", 6, 25 / 12 - 1 / 6), ("gpipe", 3.5, 0.5 + 10 / 6)):
        run = train(build(source, {"schedule.kind": kind, "parallel.pp": 2, "schedule.microbatch": 2}), "--steps=1", data=data)
        close(run.weights["running_mean"].values[0], mean, 1e-14, kind + ": mean")
        close(run.weights["running_variance"].values[0], variance, 1e-14, kind + ": variance")


def test_statistics_start_over_and_evaluate():
    """An evaluation before any step uses mean 0 and variance 1, whatever the data."""
    source = """dim batch = 4, n = 3;
precision < compute=f64; >
schedule < microbatch=2; >
model m(x: f64[batch, n], y: f64[batch, n]) {
  param w: [n] = 1;
  loss mse(batchnorm(x * w, eps=3), y);
}
"""
    random = Random(9)
    valid = {"x": random.reals([6, 3], "F64", 5), "y": harness.Tensor((6, 3), [0] * 18, "F64")}
    run = train(build(source), "--steps=0", valid=valid)
    wanted = sum((x / 2) ** 2 for x in valid["x"].values) / 18  # sqrt(1 + 3) = 2
    close(run.evals[-1]["loss"], wanted, 1e-13, "loss")


harness.main(__name__)
