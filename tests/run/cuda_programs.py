"""Programs of the CUDA target: built by pdc and nvcc, run unmodified on the fake GPU (fakegpu.py), with what they called recorded.

  program = build_cuda(source, defines)
  run = train_cuda(program, "--steps=5", seed=3, data=…)     # a harness.Run; calls(run, rank) is the list of calls
"""
import os
import sys

import fakegpu
import harness
from harness import Random, build, check, directory, start

LIBRARY = os.path.join(os.path.dirname(harness.PDC), "lib", "pdc")


# of a text pdc has one object of nvcc's (nvcc_kept.py)
KEPT = {"PDC_NVCC": "%s %s %s %s" % (sys.executable, os.path.join(harness.ROOT, "tests", "run", "nvcc_kept.py"), fakegpu.KEPT, fakegpu.tool("nvcc"))}


def twin(program, sanitize=None):
    """The kernels of a program as the fake GPU runs them."""
    return fakegpu.twin(program + ".cu", sanitize=sanitize, folders=(LIBRARY + "/include", LIBRARY + "/cuda"))


def build_cuda(source, defines, arch="90", options=()):
    """Code for one architecture does not run on another one: what starts it says PD_FAKE_ARCH."""
    program = build(source, defines, options=("--target=cuda", "--arch=sm_" + arch, "--save-temps", *options), environment=KEPT)
    twin(program)
    return program


def start_cuda(program, *options, seed=0, sanitize=None, environment=None, timeout=120, **more):
    """(the Run, where the calls of rank %r are)"""
    variables = fakegpu.environment(twin(program, sanitize), sanitize, seed, devices=8, timeout=timeout, arch=90,
                                    record=os.path.join(directory(), "calls.%r"))
    variables.update(environment or {})
    return start(program, *options, environment=variables, **more), variables["PD_FAKE_RECORD"]


def train_cuda(program, *options, **more):
    """As start_cuda, and the run must end well."""
    run, record = start_cuda(program, *options, **more)
    check(run.result.code == 0, "the program failed: " + run.result.describe())
    run.record = record
    return run


def calls(run, rank):
    with open(run.record.replace("%r", str(rank))) as file:
        return file.read()


def relative(got, wanted):
    """The largest difference, each relative to the number that is wanted."""
    return max(abs(a - b) / (abs(b) + 1e-12) for a, b in zip(got, wanted))


# ---- a small program that makes every kind of call ----

# tied weights at both ends, random masks, a bias whose gradient is a sum, clipping
SMALL = """
config const global = 4;
dim batch = global, seq = 4, embed = 8, word = 24, ffn = 16;
shard < batch=dp; ffn=tp; >
optimizer < kind=adamw; lr=3e-2; decay=0.1; clip=0.5; >
data < shuffle=off; >
model small(tokens: i32[batch, seq], targets: i32[batch, seq]) {
  param table: [word, embed];
  h = dropout(gather(table, tokens), 0.1);
  repeat 4 {
    param up: [embed, ffn], down: [ffn, embed], bias: [embed] = 0;
    h = h + gelu(h @ up) @ down + bias;
  }
  loss xent(h @ transpose(table), targets);
}
"""


def small(layout, precision, kind="1f1b"):
    """A rank's micro-batch has one sample: layouts of one tp share their kernels."""
    pp, dp, tp = layout
    return build_cuda(SMALL, {"global": 4 * dp, "schedule.microbatch": 1, "parallel.pp": pp, "parallel.dp": dp, "parallel.tp": tp,
                                "schedule.kind": kind if pp > 1 else "gpipe", "precision.compute": precision})


def small_data(dp):
    """Two global batches, which come again and again."""
    random, samples = Random(5), 4 * dp * 2
    return {"tokens": random.integers([samples, 4], 24), "targets": random.integers([samples, 4], 24, ignored=0.2)}
