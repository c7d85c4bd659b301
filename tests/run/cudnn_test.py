"""cuDNN's plans for attention, built by the real library without a device: for a described A100, H200 and B200, what compiled
programs ask for is recognised and compiled, within the bytes that their plans have for it; what cuDNN cannot do is refused
with its reason.

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


def plans():
    """The program that makes a plan as compiled programs do."""
    def compile_it():
        path = os.path.join(directory(), "attention_plans")
        runtime = os.path.join(harness.ROOT, "runtime")
        sources = [os.path.join(runtime, "cuda", name) for name in ("attention_cudnn.c", "attention_graph.c", "cudnn_library.c")]
        must(["gcc", *FLAGS, "-I" + runtime, "-isystem", CUDA + "/include", *sources, os.path.join(harness.ROOT, "tests/cuda/attention_plans.c"),
              "-o", path, "-L" + CUDA + "/lib64", "-Wl,-rpath," + CUDA + "/lib64", "-lcudart", "-ldl", "-lm"])
        return path
    return harness.once("attention plans", compile_it)


def attentions(name, *options):
    """What a model's program for CUDA asks of cuDNN: its table, and the bytes that its plan has for it."""
    place = directory()
    result = harness.pdc("--target=cuda", "-S", "-D", "precision.compute=bf16", *options, os.path.join(harness.ROOT, name), cwd=place)
    check(result.code == 0, result.describe())
    with open(os.path.join(place, os.path.basename(name)[:-3] + ".c"), encoding="utf-8") as file:
        text = file.read()
    table = [dict((key, int(value)) for key, value in re.findall(r"\.(\w+) = (\d+)", line))
             for line in re.findall(r"\{(\.b = [^}]*)\}", text)]
    check(table, "no attention by cuDNN in " + name)
    return table, int(re.search(r"\.attention_space = (\d+)", text).group(1))


def plan(arch, entry):
    """Operations and bytes of its plan; None and the reason."""
    numbers = [arch] + [entry[key] for key in ("b", "s", "t", "h", "g", "d", "causal", "gradient", "any_order")]
    result = harness.command([plans(), *map(str, numbers)], 300, environment={"LD_LIBRARY_PATH": driver()})
    found = re.search(r"(\d+) operations, (\d+) bytes", result.out)
    return (int(found.group(1)), int(found.group(2))) if found and result.code == 0 else (None, result.describe())


def fits(arch, operations, name, *options):
    """Every attention of a program has a plan that fits into the bytes planned for it, and not by far too many."""
    def test():
        table, space = attentions(name, *options)
        most, found = 0, []
        for entry in table:
            count, bytes_or_why = plan(arch, entry)
            check(count is not None, "%s: %s" % (entry, bytes_or_why))
            check(bytes_or_why <= space, "%s: cuDNN wants %d bytes, %d are planned" % (entry, bytes_or_why, space))
            most, found = max(most, bytes_or_why), found + [count]
        check(found == operations, "operations: %s" % found)
        small = any(entry["s"] < 128 or entry["t"] < 128 for entry in table) # a tile is the least that is planned
        check(small or space <= 2 * most + 65536, "%d bytes are planned, cuDNN wants %d" % (space, most))
    return test


GPT2, GPT, LLAMA = "examples/gpt2-124m.pd", "tests/programs/gpt.pd", "tests/programs/llama.pd"
LONG = ("-D", "length=1024", "-D", "places=1024")
ANY = "--nondeterministic"
for arch in (80, 90, 100):
    harness.add("sm_%d, gpt2-124m" % arch, fits(arch, [14, 21], GPT2))
    harness.add("sm_%d, gpt2-124m, sums in any order" % arch, fits(arch, [14, 22], GPT2, ANY))
    harness.add("sm_%d, small gpt" % arch, fits(arch, [14, 21], GPT, "-D", "width=32"))
    harness.add("sm_%d, key heads shared" % arch, fits(arch, [14, 23], LLAMA, "-D", "head_width=16"))
    harness.add("sm_%d, key heads shared, 1024 positions" % arch, fits(arch, [14, 23], LLAMA, "-D", "head_width=128", *LONG[:2]))
    harness.add("sm_%d, key heads shared, 1000 positions, sums in any order" % arch,
                fits(arch, [14, 24], LLAMA, "-D", "head_width=72", "-D", "length=1000", ANY))
harness.add("heads of 256 on sm_90", fits(90, [14, 21], GPT, "--arch=sm_90", "-D", "width=1024"))


def direct(arch, b, s, t, h, g, d, causal=1, gradient=0, any_order=0):
    return plan(arch, dict(b=b, s=s, t=t, h=h, g=g, d=d, causal=causal, gradient=gradient, any_order=any_order))


def accepted(operations, *sizes, **how):
    def test():
        count, why = direct(*sizes, **how)
        check(count == operations, "%s operations: %s" % (count, why))
    return test


def refused(reason, *sizes, **how):
    def test():
        count, why = direct(*sizes, **how)
        check(count is None and reason in why, "%s operations: %s" % (count, why))
    return test


for gradient, with_offset, without_mask in ((0, 15, 10), (1, 22, 17)):
    direction = "backward" if gradient else "forward"
    harness.add("more keys than queries, " + direction, accepted(with_offset, 90, 2, 128, 256, 4, 4, 64, gradient=gradient))
    harness.add("without a mask, " + direction, accepted(without_mask, 90, 2, 128, 128, 4, 4, 64, causal=0, gradient=gradient))
# the limits that the compiler knows are cuDNN's
for gradient in (0, 1):
    harness.add("heads of 60, %d" % gradient, refused("not a multiple of 8", 90, 2, 128, 128, 4, 4, 60, gradient=gradient))
for arch in (80, 100):
    harness.add("heads of 256 on sm_%d, forward" % arch, accepted(14, arch, 2, 128, 128, 4, 4, 256))
    harness.add("heads of 256 on sm_%d, backward" % arch, refused("not less than equal to 128", arch, 2, 128, 128, 4, 4, 256, gradient=1))

harness.main(__name__)
