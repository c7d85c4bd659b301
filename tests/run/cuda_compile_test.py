"""What nvcc says of the programs that pdc makes. The programs of the parity suite, on all their layouts, the examples and programs
with other kernels and sizes are emitted in f32 and bf16; every distinct kernel of them is compiled, with its launcher, with warnings
as errors and without a spilled register. One text holds all of a precision, so that nvcc reads its headers
once, and makes one PTX, that of the first architecture."""
import collections
import glob
import os
import re

import fakegpu
import harness
import parity_models
from cuda_programs import LIBRARY
from harness import add, check, directory, once, pdc, read_program, words_of

ARCHITECTURES = {"f32": ("80", "90"), "bf16": ("90", "100")}
# what neither the parity suite nor the examples have
OTHERS = [
    ("cnn", {}), ("cnn", {"parallel.dp": 2, "parallel.tp": 2, "schedule.microbatch": 3}), ("dropout", {}), ("extremes", {}),
    ("llama", {"head_width": 256, "queries": 2, "keys": 1}), ("llama", {"head_width": 512, "queries": 128, "keys": 8}), # rows of 65,536
    ("gpt", {"width": 132, "words": 65536}), ("gpt", {"width": 4}), ("mlp", {}),
]
RUNTIME = '#include "runtime.cuh"\n'
LIMIT = 900  # seconds: a compiler on a busy machine


def emitted(words, source=None):
    """The .cu text of a program."""
    place = directory()
    result = pdc("--target=cuda", "-S", *words, source=source, cwd=place)
    names = glob.glob(os.path.join(place, "*.cu"))
    check(result.code == 0 and len(names) == 1, result.describe())
    with open(names[0]) as file:
        return file.read()


def programs(precision):
    """Every .cu text of a precision, and how many programs have it."""
    def emit():
        found, choice = collections.Counter(), {"precision.compute": precision}
        for model in parity_models.MODELS:
            for layout in parity_models.layouts():
                name, defines = parity_models.program(model, layout)
                found[emitted([*words_of({**defines, **choice}), "-"], read_program(name))] += 1
        for name, defines in OTHERS:
            found[emitted([*words_of({**defines, **choice}), "-"], read_program(name))] += 1
        for path in sorted(glob.glob(os.path.join(harness.ROOT, "examples", "*.pd"))):
            found[emitted([*words_of(choice), path])] += 1
        return found
    return once("programs in " + precision, emit)


def parts(text):
    """The definitions of a .cu text behind its headers: each launcher, with the kernels before it."""
    found, kernels = [], ""
    for part in re.split(r'(?m)^(?=__global__|extern "C")', text.split(RUNTIME)[1]):
        kernels += part
        if part.startswith("extern"):
            found.append(kernels)
            kernels = ""
    check(not kernels.strip(), "behind the last launcher: " + kernels)
    return found


def union(precision):
    """(one text with every distinct definition, how many there are). Different ones of one name are numbered."""
    texts = programs(precision)
    headers = sorted({line for text in texts for line in re.findall(r'^#(?:define PD_BF16|include "pd_.*)$', text, re.M)})
    reals = {line for text in texts for line in re.findall(r"^typedef \w+ real;$", text, re.M)}
    check(len(reals) == 1, "real is %s" % reals)
    result, seen = headers + [reals.pop(), RUNTIME], collections.Counter()
    distinct = list(dict.fromkeys(part for text in texts for part in parts(text)))
    for part in distinct:
        for name in re.findall(r'^(?:__global__ void (?:__launch_bounds__\(\d+\) )?|extern "C" void )(\w+)\(', part, re.M):
            seen[name] += 1
            if seen[name] > 1:
                part = re.sub(r"\b%s\b" % name, "%s_other_%d" % (name, seen[name]), part)
        result.append(part)
    return "\n".join(result), len(distinct)


def nvcc_flags():
    with open(os.path.join(LIBRARY, "nvccflags")) as file:
        return file.read().split()


def compiles(precision):
    (text, count), archs = union(precision), ARCHITECTURES[precision]
    check(sum(programs(precision).values()) >= 220 and count >= 280, "%d programs, %d definitions" % (sum(programs(precision).values()), count))
    place = directory()
    with open(os.path.join(place, "all.cu"), "w") as file:
        file.write(text)
    flags = ["-O0" if word == "-O2" else word for word in nvcc_flags()] # the host's, where there are only launchers
    check("all-warnings" in flags and "-warn-spills" in flags, "pdc's own options for nvcc: %s" % flags)
    code = [word for arch in archs for word in ("-gencode", "arch=compute_%s,code=sm_%s" % (archs[0], arch))]
    result = harness.command([fakegpu.tool("nvcc"), "-ccbin", "g++", *flags, *code, "-I" + LIBRARY + "/include",
                              "-I" + LIBRARY + "/cuda", "-c", "all.cu", "-o", "all.o"], LIMIT, cwd=place)
    check(result.code == 0 and "warning" not in result.text, result.describe())


def test_a_spilled_register_is_an_error():
    """A kernel with more values than registers, under the options of the test above."""
    place = directory()
    with open(os.path.join(place, "spills.cu"), "w") as file:
        file.write("""__global__ void __launch_bounds__(1024) spills(float *x) {
  float v[96];
  for (int i = 0; i < 96; i++) v[i] = x[i * 1024 + threadIdx.x];
  __syncthreads();
  for (int k = 0; k < 96; k++)
    for (int i = 0; i < 96; i++) v[i] += v[(i * 7 + k) % 96] * v[k];
  for (int i = 0; i < 96; i++) x[i * 1024 + threadIdx.x] = v[i];
}
""")
    result = harness.command([fakegpu.tool("nvcc"), "-ccbin", "g++", *nvcc_flags(), "-arch=sm_90", "-c", "spills.cu", "-o", "spills.o"], LIMIT, cwd=place)
    check("spill" in result.text and (result.code != 0 or "warning" in result.text), result.describe())


for real in ARCHITECTURES:
    add("every kernel of the parity suite and the examples, " + real, compiles, real)

harness.main(__name__)
