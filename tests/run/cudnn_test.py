"""cuDNN's plans for attention, built without a device: for a described A100, H200 and B200 the graphs of both directions are
recognised and compiled, with the workspace that they should need; what cuDNN cannot do is refused with its reason.

cuDNN asks the driver to load what it compiled. There is none here: a library with the driver's name whose functions all
succeed takes its place, made from the names of CUDA's stub."""
import os
import re
import sys

import harness
from harness import check, directory

CUDA = os.environ.get("CUDA", "/usr/local/cuda")
if not os.path.exists(CUDA + "/include/cudnn.h"):
    print("cuDNN is not installed under %s: its plans are not tested\n0 passed, 0 failed" % CUDA)
    sys.exit(0)
FLAGS = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wstrict-prototypes", "-Werror"]

# functions that do more than succeed: libraries and kernels get a handle, private tables and look-ups are refused
DRIVER = """
static int something;
int cuLibraryLoadData(void **made) { *made = &something; return 0; }
int cuLibraryGetKernel(void **made) { *made = &something; return 0; }
int cuGetExportTable(void) { return 100; }
int cuGetProcAddress(void) { return 100; }
int cuGetProcAddress_v2(void) { return 100; }
"""


def must(words):
    result = harness.command(words, harness.COMPILE_LIMIT)
    check(result.code == 0, result.describe())
    return result.out


def driver():
    def make():
        folder = os.path.join(directory(), "driver")
        os.makedirs(folder, exist_ok=True)
        names = re.findall(r" T (cu\w+)", must(["nm", "-D", CUDA + "/lib64/stubs/libcuda.so"]))
        own = set(re.findall(r"int (cu\w+)\(", DRIVER))
        check(len(names) > 400 and own <= set(names), "%d functions of the driver" % len(names))
        source = os.path.join(folder, "driver.c")
        with open(source, "w", encoding="ascii") as file:
            file.write(DRIVER + "".join("int %s(void) { return 0; }\n" % name for name in names if name not in own))
        must(["gcc", "-w", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", source, "-o", os.path.join(folder, "libcuda.so.1")])
        return folder
    return harness.once("stand-in driver", make)


def program():
    def compile_it():
        path = os.path.join(directory(), "attention_plans")
        root = harness.ROOT
        must(["gcc", *FLAGS, "-I" + os.path.join(root, "runtime"), "-isystem", CUDA + "/include",
              os.path.join(root, "runtime/cuda/attention_cudnn.c"), os.path.join(root, "tests/cuda/attention_plans.c"), "-o", path,
              "-L" + CUDA + "/lib64", "-lcudnn", "-lcudart", "-lm"])
        return path
    return harness.once("attention plans", compile_it)


def plans(arch, b, s, t, h, g, d, joint=False, causal=True, deterministic=False):
    numbers = [arch, b, s, t, h, g, d, int(joint), int(causal), int(deterministic)]
    result = harness.command([program(), *map(str, numbers)], 300, environment={"LD_LIBRARY_PATH": driver()})
    found = {direction: (int(operations), int(size), words) for direction, operations, size, words in
             re.findall(r"(forward|backward): (\d+) operations, (\d+) bytes, (\w+)", result.out)}
    return found, result


def wanted(forward, backward, sizes, limit, **how):
    """both plans, with that many operations, and at most `limit` bytes beside the operands in the backward pass"""
    def test():
        found, result = plans(*sizes, **how)
        check(result.code == 0 and set(found) == {"forward", "backward"}, result.describe())
        check(found["forward"][0] == forward and found["backward"][0] == backward, result.describe())
        check(found["forward"][1] <= 4096 and found["backward"][1] <= limit, result.describe())
        check(found["forward"][2] == "deterministic", result.describe())
        check(found["backward"][2] == ("deterministic" if how.get("deterministic") else "varies"), result.describe())
    return test


for arch in (80, 90, 100):
    for d, s in ((64, 1024), (128, 100), (96, 64)):
        b, h = 2, 4
        sums = b * h * s * d * 4  # of dq in float; an engine may keep its own, too
        harness.add("sm_%d, heads of %d, %d positions" % (arch, d, s),
                    wanted(14, 22, (arch, b, s, s, h, h, d), 2 * sums + 65536, joint=True))
    harness.add("sm_%d, key heads shared" % arch, wanted(14, 24, (arch, 2, 128, 128, 8, 2, 64), 2 * 2**20))
    # one matrix of scores in bf16, and sums of rows
    harness.add("sm_%d, sums in a fixed order" % arch,
                wanted(14, 21, (arch, 2, 256, 256, 4, 4, 64), 2 * 4 * 256 * 256 * 2 + 65536, deterministic=True))
harness.add("more keys than queries", wanted(15, 23, (90, 2, 128, 256, 4, 4, 64), 2**20))
harness.add("without a mask", wanted(10, 18, (90, 2, 128, 128, 4, 4, 64), 2**20, causal=False))
harness.add("heads of 256 on sm_90", wanted(14, 22, (90, 2, 128, 128, 4, 4, 256), 2 * 2**20))


def refused(reason, directions, sizes):
    def test():
        found, result = plans(*sizes)
        check(result.code == 1 and not set(found) & set(directions) and reason in result.out, result.describe())
    return test


harness.add("heads of 60", refused("not a multiple of 8", ("forward", "backward"), (90, 2, 128, 128, 4, 4, 60)))
for arch in (80, 100):
    harness.add("heads of 256 on sm_%d, backward" % arch,
                refused("not less than equal to 128", ("backward",), (arch, 2, 128, 128, 4, 4, 256)))

harness.main(__name__)
