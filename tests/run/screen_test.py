"""What a run prints: a line for every step, whole, in order and from one rank, and at the end how much of the machine it used."""
import re

import harness
from harness import check, close

SOURCE = """
dim batch = 8, n = 16, m = 16;
shard < batch=dp; m=tp; >
schedule < microbatch=1; >
train < steps=200; >
model net(x: f32[batch, n], y: f32[batch, n]) {
  repeat 4 { param w: [n, m], v: [m, n]; x = x + relu(x @ w) @ v; }
  loss mse(x, y);
}
"""


def data():
    random = harness.Random(2)
    return {name: random.reals((16, 16), "F32") for name in "xy"}


def test_one_line_a_step():
    binary = harness.build(SOURCE, {"parallel.pp": 2, "parallel.dp": 2, "parallel.tp": 2, "schedule.kind": "zb-v", "schedule.chunks": 2})
    run = harness.train(binary, data=data())
    printed = [line for line in run.result.out.split("\n") if line.startswith("step ")]
    check(len(printed) == 200 and len(run.steps) == 200, "%d lines, %d in the log" % (len(printed), len(run.steps)))
    for number, (line, step) in enumerate(zip(printed, run.steps), 1):
        match = re.fullmatch(r"step (\d+)/200  loss (\S+)  norm (\S+)  lr (\S+)  .*tokens/s  eta \S+|step (\d+)/200  loss (\S+) .*samples/s  eta \S+", line)
        check(match and int(match.group(1) or match.group(5)) == number and step["step"] == number, "line %d: %s" % (number, line))
        close(float(match.group(2) or match.group(6)), step["loss"], 1e-3, "the loss that is printed")
        check(step["tokens"] == 8, "what a step reads is counted once: %s" % step)


def use_of(out):
    line = re.search(r"use of the machine \(MFU\): ([\d.e+-]+) % = ([\d.e+-]+) GFLOP a step \(F, I and W\) / ([\d.e+-]+) s / ([\d.e+-]+) GFLOP/s \((.*)\)", out)
    check(line, "no line says what was used of the machine: " + out)
    percent, work, seconds, peak = map(float, line.groups()[:4])
    close(percent, 100 * work / seconds / peak, 1e-2, "the percentage")
    return work, seconds, peak, line.group(5)


def test_use_of_the_machine():
    products = 4 * 2 * 2 * 8 * 16 * 16 * 3  # layers, products, 2 a multiply-add, batch, sizes; F, I and W
    run = harness.train(harness.build(SOURCE, {"parallel.pp": 2}), "--steps=20", data=data())
    work, seconds, peak, how = use_of(run.result.out)
    check(0.8 * products <= work * 1e9 <= 1.3 * products and "measured" in how and peak > 0.1, run.result.out)
    close(seconds, sum(step["step_ms"] for step in run.steps[1:]) / 19e3, 0.01, "the mean step but for the first")
    run = harness.train(harness.build(SOURCE + "cluster < flops=2.5e11; >\n", {"parallel.pp": 2}), "--steps=20", data=data())
    _, _, peak, how = use_of(run.result.out)
    check(peak == 500 and how == "cluster.flops x ranks", run.result.out)
    run = harness.train(harness.build(SOURCE), "--steps=20", "--quiet", data=data())
    check("MFU" not in run.result.out, "--quiet is not")


harness.main(__name__)
