"""Building CUDA programs with nvcc and running them, as they are, on the fake GPU (tests/fakegpu).

A program is built once by nvcc; its kernels' twins are built by g++ from the same text, plain or for a sanitizer. run() puts
the fake libraries in front of NVIDIA's and returns the command's Result.

  program = fakegpu.nvcc("tests/fakegpu/programs/streams.cu")
  result = fakegpu.run(program, fakegpu.twin("tests/fakegpu/programs/streams.cu"), "graph", seed=3)
"""
import os
import shutil

import harness
import kept

ROOT = harness.ROOT
BUILD = os.path.abspath(os.environ.get("BUILD") or os.path.dirname(harness.PDC))
LIBRARIES = os.path.join(BUILD, "fakegpu")
KEPT = os.path.join(BUILD, "tests", "kept")
CUDA = os.environ.get("CUDA", "/usr/local/cuda")
DEVICE = os.path.join("tests", "fakegpu", "device.h")

# kinds of twins: what g++ is told, and the library that must be in the process first
SANITIZERS = {
    None: ([], None),
    # without optimization: its checks take g++ longer to optimize than the tests to run
    "address": (["-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"], "libasan.so"),
    # the same, but what is undefined ends the process without a word: a third of g++'s time
    "traps": (["-O0", "-fsanitize=address,undefined", "-fsanitize-undefined-trap-on-error"], "libasan.so"),
    # the fake's own race detector (tests/fakegpu/races.h): what g++ adds to accesses, without ThreadSanitizer's library
    "races": (["-fsanitize=thread", "-nodefaultlibs", "-lstdc++", "-lm", "-lgcc_s", "-lc"], None),
    "thread": (["-fsanitize=thread"], "libtsan.so"),
}


def chosen(sanitize):
    """Where everything is made with a sanitizer (make SANITIZE=…), so are twins, if no other one is asked for."""
    return sanitize or os.environ.get("SANITIZE") or None


def tool(name):
    """The path of a compiler, or a failure that says what is missing."""
    found = shutil.which(name) or shutil.which(os.path.join(CUDA, "bin", name))
    harness.check(found, "%s is not installed: the CUDA target's tests need the CUDA toolkit (CUDA=%s)" % (name, CUDA))
    return found


def _compiled(source, words, folders=(), objects=(), behind=(), suffix=""):
    """What a compiler makes of a file by these words, those `behind` it included, with headers of `folders`; kept for every text that
    is the same."""
    text = os.path.join(ROOT, source) # or elsewhere, if that is an absolute path

    def make(target):
        result = harness.command([*words, text, *behind, "-o", target], harness.COMPILE_LIMIT * 2, cwd=ROOT)
        harness.check(result.code == 0, "compilation failed: " + result.describe())
    inputs = [text, *objects, *(path for folder in (os.path.join(ROOT, "tests", "fakegpu"), *folders) for path in kept.texts(folder))]
    return kept.file(KEPT, [*words, kept.compiler(words[0]), kept.compiler(tool("nvcc"))], inputs, make, suffix)


def nvcc(source, *options, arch="sm_80", folders=(), objects=()):
    """A program of one .cu file, linked with the CUDA runtime as a shared library and without a path to it. What is not optimized
    nothing executes, or only makes ready what the twins do."""
    return harness.once(("nvcc", source, options, arch), lambda: _compiled(source, [ # -cubin or -ptx: device code instead
        tool("nvcc"), "-ccbin", "g++", "-O0", "--Ofast-compile=max", "-std=c++17", "-Werror", "all-warnings", "-arch=" + arch, "-cudart", "shared",
        *("-I" + folder for folder in folders), *options], folders, objects, objects))


def twin(source, *options, sanitize=None, folders=(), objects=()):
    """The library of a .cu file's kernels for the fake GPU, with objects that it needs. As in nvcc's code, a product and a sum are
    one operation only where the text says fma. -Bsymbolic: the program has functions of the same names."""
    sanitize = chosen(sanitize)

    def build():
        links = [word for word in SANITIZERS[sanitize][0] if word.startswith(("-l", "-nodefaultlibs"))]
        words = ["g++", "-std=c++17", "-O1", "-g1", "-march=native", "-ffp-contract=off", "-DPD_FAKE_GPU", "-isystem",
                 os.path.join(CUDA, "include"), "-fPIC", "-Wall", "-Wno-unused", "-Wno-unknown-pragmas",
                 *(word for word in SANITIZERS[sanitize][0] if word not in links)]
        # g++ reads CUDA's headers once for all twins of a kind
        prelude = _compiled(DEVICE, [*words, "-x", "c++-header"], suffix=".gch")
        return _compiled(source, [*words, "-include", prelude[:-4], "-Winvalid-pch", *("-I" + folder for folder in folders), "-shared",
                                  "-Wl,-Bsymbolic", *options, *links, "-x", "c++"], folders, objects, ["-Wl," + path for path in objects])
    return harness.once(("twin", source, options, sanitize), build)


def environment(twins, sanitize=None, seed=0, **settings):
    """The variables that put a process on the fake GPU; settings are PD_FAKE_ variables in lower case."""
    if isinstance(twins, str):
        twins = [twins]
    harness.check(os.path.exists(os.path.join(LIBRARIES, "libcudart.so.13")), "build the fake GPU first: make fakegpu")
    paths = [LIBRARIES] + ([os.environ["LD_LIBRARY_PATH"]] if os.environ.get("LD_LIBRARY_PATH") else [])
    variables = {"LD_LIBRARY_PATH": ":".join(paths), "PD_FAKE_KERNELS": ":".join(twins), "PD_FAKE_SEED": str(seed)}
    variables.update({"PD_FAKE_" + key.upper(): str(value) for key, value in settings.items()})
    if sanitize == "races":
        variables["PD_FAKE_RACES"] = "1"
    library = SANITIZERS[chosen(sanitize)][1]
    if library:
        variables.update(harness.SANITIZER_OPTIONS)
        path = harness.once(("preload", library), lambda: harness.command(["gcc", "-print-file-name=" + library], 10).out.strip())
        variables["LD_PRELOAD"] = path
    return variables


def run(program, twins, *words, sanitize=None, seed=0, limit=harness.RUN_LIMIT, cwd=None, **settings):
    """Runs a program on the fake GPU."""
    return harness.command([program] + [str(word) for word in words], limit, cwd=cwd,
                           environment=environment(twins, sanitize, seed, **settings))
