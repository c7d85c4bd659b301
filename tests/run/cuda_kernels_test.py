"""The CUDA kernels: compiled by nvcc for every architecture without a warning or a spilled register; run on the fake GPU,
with the blocks in different orders and under sanitizers, against the reference in double; planted faults are caught."""
import glob
import os
import re

import fakegpu
import harness
from harness import check, directory

TESTS = os.path.join("tests", "cuda")
FOLDERS = [os.path.join(harness.ROOT, *part) for part in (("templates", "cuda"), ("runtime",), ("tests", "cuda"))]
ARCHITECTURES = ("80", "90", "100")
PROGRAMS = ("rows_test", "loss_test", "attention_test", "image_test")
LIMIT = 900  # seconds: a compiler on a busy machine
SANITIZER = {"asan": "address", "ubsan": "address", "tsan": "thread"}
# what a twin leaves out; which threads share memory does not depend on the type
OPTIONS = {None: ["-Wextra", "-Werror", "-Wno-maybe-uninitialized"], "address": ["-DPD_QUICK"], "thread": ["-DPD_QUICK", "-DPD_ONE_TYPE"]}


def must(words):
    result = harness.command(words, LIMIT, cwd=harness.ROOT)
    check(result.code == 0, result.describe())
    return result.text


# ---- building ----

def compiled(name):
    """(object, what ptxas says) of a test by nvcc: one PTX, which ptxas makes into code for every architecture"""
    def compile_it():
        path = os.path.join(directory(), name + ".o")
        code = [word for arch in ARCHITECTURES for word in ("-gencode", "arch=compute_%s,code=sm_%s" % (ARCHITECTURES[0], arch))]
        return path, must([fakegpu.tool("nvcc"), "-ccbin", "g++", "-O0", "-std=c++17", "-Werror", "all-warnings", "-Xptxas",
                           "-v,-warn-spills", *code, *("-I" + folder for folder in FOLDERS), "-c", os.path.join(TESTS, name + ".cu"), "-o", path])
    return harness.once("nvcc " + name, compile_it)


def reference():
    def compile_it():
        path = os.path.join(directory(), "ref.o")
        must(["gcc", "-std=c11", "-O2", "-fPIC", "-Iruntime", "-c", "runtime/kernels/ref.c", "-o", path])
        return path
    return harness.once("reference kernels", compile_it)


def program(name):
    def link():
        path = os.path.join(directory(), name)
        must(["g++", compiled(name)[0], reference(), "-o", path, "-L" + os.path.join(fakegpu.CUDA, "lib64"), "-lcudart", "-lm"])
        return path
    return harness.once("program " + name, link)


def run(name, *words, detector="run", **settings):
    """a test on the fake GPU, with fewer sizes under a sanitizer"""
    sanitize = SANITIZER.get(detector)
    options = OPTIONS[sanitize]
    if sanitize == "address" and name in PROGRAMS: # the compiler takes two thirds of the time without the texts of what it finds
        options = options + ["-fsanitize-undefined-trap-on-error"]
    twins = fakegpu.twin(os.path.join(TESTS, name + ".cu"), "-fno-strict-aliasing", *options, sanitize=sanitize, folders=FOLDERS,
                         objects=(reference(),))
    return fakegpu.run(program(name), twins, *words, sanitize=sanitize, limit=LIMIT, **settings)


# ---- what nvcc says ----

def kernels_of(text):
    """(name, architecture, stack, spilled stores, spilled loads, registers, shared bytes) for every kernel"""
    found, name, arch, frame = [], None, None, None
    for line in text.splitlines():
        entry = re.search(r"Compiling entry function '(\w+)' for 'sm_(\w+)'", line)
        if entry: name, arch = entry.groups()
        stack = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line)
        if stack: frame = tuple(map(int, stack.groups()))
        used = re.search(r"Used (\d+) registers", line)
        if used and name:
            shared = re.search(r"(\d+) bytes smem", line)
            found.append((name, arch, *frame, int(used.group(1)), int(shared.group(1)) if shared else 0))
            name = None
    return found


def gate(name):
    def test():
        kernels = kernels_of(compiled(name)[1])
        check(len(kernels) >= 60 and {k[1] for k in kernels} == set(ARCHITECTURES), "%d kernels in ptxas' report" % len(kernels))
        for kernel, arch, stack, stores, loads, registers, shared in kernels:
            what = "%s for sm_%s" % (kernel, arch)
            check(stores == 0 and loads == 0, what + ": registers are spilled")
            check(stack <= 64, what + ": %d bytes of stack" % stack)
            check(registers <= 255, what + ": %d registers" % registers)
            check(shared <= 48 * 1024, what + ": %d bytes of static shared memory" % shared)
    return test


for test_name in PROGRAMS:
    harness.add("no spilled registers: " + test_name, gate(test_name))


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
    words = ["quick", "one-type"] if detector == "tsan" else ["quick"]
    return lambda: outcome(run(name, *words, detector=detector))


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
