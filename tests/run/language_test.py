"""What a program means when it runs: statements, operations and options of the language that no other suite trains."""
import math

import harness
from harness import Random, add, build, check, close, once, read_program, start, tensors_close, train

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


harness.main(__name__)
