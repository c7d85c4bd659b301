"""The CUDA kernels on the fake GPU: with the blocks in different orders and under sanitizers, against the reference in double;
planted faults are caught."""
import glob
import os
import re

import fakegpu
import harness
from harness import check, directory

TESTS = os.path.join("tests", "cuda")
FOLDERS = [os.path.join(harness.ROOT, *part) for part in (("templates", "cuda"), ("runtime",), ("tests", "cuda"))]
PROGRAMS = ("rows_test", "loss_test", "attention_test", "image_test")
LIMIT = 900  # seconds: a compiler on a busy machine
SANITIZER = {"asan": "address", "ubsan": "address", "tsan": "thread"}
# what a twin leaves out: the sanitizers look at what threads do with shared memory and their stacks, which the type hardly changes;
# every access to memory of the device is checked by the fake GPU itself
OPTIONS = {None: ["-Wextra", "-Werror", "-Wno-maybe-uninitialized"], "address": ["-DPD_QUICK"], "traps": ["-DPD_QUICK"], "thread": ["-DPD_QUICK"]}


# ---- building ----

def reference():
    def compile_it():
        path = os.path.join(directory(), "ref.o")
        result = harness.command(["gcc", "-std=c11", "-O2", "-fPIC", "-Iruntime", "-c", "runtime/kernels/ref.c", "-o", path], LIMIT, cwd=harness.ROOT)
        check(result.code == 0, result.describe())
        return path
    return harness.once("reference kernels", compile_it)


def program(name):
    return fakegpu.nvcc(os.path.join(TESTS, name + ".cu"), "-lm", folders=FOLDERS, objects=(reference(),))


def run(name, *words, detector="run", **settings):
    """a test on the fake GPU, with fewer sizes under a sanitizer"""
    sanitize = "traps" if detector == "asan" and name in PROGRAMS else SANITIZER.get(detector)
    twins = fakegpu.twin(os.path.join(TESTS, name + ".cu"), "-fno-strict-aliasing", *OPTIONS[sanitize], sanitize=sanitize, folders=FOLDERS,
                         objects=(reference(),))
    return fakegpu.run(program(name), twins, *words, sanitize=sanitize, limit=LIMIT, **settings)


# ---- what they compute ----

def outcome(result):
    found = re.search(r"checksum (\w+)\n(\d+) passed, 0 failed", result.out)
    check(result.code == 0 and found is not None and int(found.group(2)) >= 40, result.describe())
    return found.group(1)


def orders(name):
    def test():
        outcome(run(name)) # with every size
        sums = {order: outcome(run(name, "quick", blocks=order)) for order in ("forward", "reverse", "seeded")}
        check(len(set(sums.values())) == 1, "results depend on the order of blocks: %s" % sums)
    return test


def sanitized(name, detector):
    return lambda: outcome(run(name, "quick", "one-type", detector=detector))


for test_name in PROGRAMS:
    harness.add("against the reference: " + test_name, orders(test_name))
    for tool in ("asan", "tsan"):
        harness.add("%s: %s" % (tool, test_name), sanitized(test_name, tool))


# ---- planted faults ----

def caught(path, detector, message):
    name = os.path.basename(path)[:-3]
    with open(path, encoding="utf-8") as file:
        lines = [number for number, line in enumerate(file, 1) if line.rstrip().endswith("<- here")]

    def test():
        right = run("faults_test", name, "right", detector=detector)
        check(right.code == 0 and "right" in right.out, "without the fault: " + right.describe())
        if detector == "order":
            seen, same = ({run("faults_test", name, *words, blocks=order).out for order in ("forward", "reverse")}
                          for words in ((), ("right",)))
            check(len(seen) == 2 and len(same) == 1, "%s against %s" % (seen, same))
            return
        wrong = run("faults_test", name, detector=detector)
        check(wrong.code != 0, "not caught: " + wrong.describe())
        if detector == "result":
            check(wrong.code == 1 and wrong.out.startswith("WRONG"), wrong.describe())
            return
        check(message in wrong.text and name + "_kernel" in wrong.text, wrong.describe())
        for line in lines:
            check("%s:%d" % (os.path.basename(path), line) in wrong.text, "line %d is not named: %s" % (line, wrong.describe()))
    return test


def test_all_faults_are_tests():
    faults = glob.glob(os.path.join(harness.ROOT, TESTS, "faults", "*.cu"))
    check(len(faults) >= 20, "%d faults" % len(faults))


for fault in sorted(glob.glob(os.path.join(harness.ROOT, TESTS, "faults", "*.cu"))):
    with open(fault, encoding="utf-8") as fault_file:
        marks = re.findall(r"^// caught by: (\w+) ?(.*)$", fault_file.read(), re.M)
    for mark in marks or [("nothing", "")]:
        harness.add("fault %s, %s" % (os.path.basename(fault)[:-3], mark[0]), caught(fault, *mark))

harness.main(__name__)
