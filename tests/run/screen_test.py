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
    logged(run, "measured", work, peak)
    check(not any("mfu" in step for step in run.steps), "a peak that is measured at the end is not known before")
    run = harness.train(harness.build(SOURCE + "cluster < flops=2.5e11; >\n", {"parallel.pp": 2}), "--steps=20", data=data())
    _, _, peak, how = use_of(run.result.out)
    check(peak == 500 and how == "cluster.flops x ranks", run.result.out)
    use = logged(run, "declared", work, 500)
    for step in run.steps:
        close(step["mfu"], use["flops"] / (step["step_ms"] / 1000) / 5e11, 1e-12, "the use in step %d" % step["step"])
    run = harness.train(harness.build(SOURCE), "--steps=20", "--quiet", data=data())
    check("MFU" not in run.result.out and len(run.lines) == 20, "--quiet is not")
    run = harness.train(harness.build(SOURCE), "--steps=1", data=data())
    check("MFU" not in run.result.out and len(run.lines) == 1, "the first step is no measure: %s" % run.lines)
    run = harness.train(harness.build(SOURCE + "cluster < flops=2.5e11; >\n"), "--steps=20", "--quiet", data=data())
    check("MFU" not in run.result.out and run.use["peak_flops"] == 2.5e11, "what is declared is logged: %s" % run.lines[-1])


def logged(run, how, work, peak):
    """The last line of the log: it says what the screen says, and its figures are each other's quotients."""
    use = run.use
    check(use["step"] == 20 and use["steps"] == 19 and use["peak"] == how, use)
    close(use["step_ms"], sum(step["step_ms"] for step in run.steps[1:]) / 19, 1e-9, "the mean step but for the first")
    close([use["flops"], use["peak_flops"]], [work * 1e9, peak * 1e9], 1e-3, "operations and peak")
    close(use["mfu"], use["flops"] / (use["step_ms"] / 1000) / use["peak_flops"], 1e-12, "mfu")
    return use


def test_saves_that_save_nothing():
    """save_every without a place, or beyond the end, is told at the start."""
    binary = harness.build(SOURCE.replace("steps=200;", "steps=6; save_every=4;"))
    nowhere, late = "save_every = 4 has no place to save to; start the program with --checkpoint=DIR or --save=W.safetensors", "save_every = %d is not reached in steps %d to %d"
    for options, wanted in ((("--save=",), nowhere), ((), None), (("--checkpoint=ck",), None), (("--save-every=0", "--save="), None),
                            (("--save-every=7",), late % (7, 1, 6)), (("--steps=3",), late % (4, 1, 3)), (("--save-every=6",), None),
                            (("--steps=0", "--save="), None), (("--quiet", "--save="), None)):
        place, words = harness.directory(), [option for option in options if option != "--save="]
        if "--save=" not in options and "--checkpoint=ck" not in options:
            words.append("--save=w.safetensors")
        for name, array in data().items():
            harness.write_npy("%s/%s.npy" % (place, name), array)
        result = harness.command([binary, "--data=x=x.npy,y=y.npy", *words], harness.RUN_LIMIT, cwd=place)
        warnings = [line for line in result.out.splitlines() if line.startswith("warning: save_every")]
        check(result.code == 0 and len(warnings) == (wanted is not None) and (wanted or "") in "".join(warnings), result.describe())
    place = harness.directory()
    for name, array in data().items():
        harness.write_npy("%s/%s.npy" % (place, name), array)
    for options, wanted in ((("--steps=5",), None), (("--resume", "--steps=6"), late % (4, 6, 6)), (("--resume", "--steps=8"), None)):
        result = harness.command([binary, "--data=x=x.npy,y=y.npy", "--checkpoint=ck", *options], harness.RUN_LIMIT, cwd=place)
        check(result.code == 0 and ("warning: save_every" in result.out) == (wanted is not None) and (wanted or "") in result.out, result.describe())


harness.main(__name__)
