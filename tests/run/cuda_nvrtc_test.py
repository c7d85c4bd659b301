"""Programs whose kernels NVRTC compiles (pdc --cuda-compiler=nvrtc): the same bits as nvcc's on the fake GPU, the same code in
every build, the right code for each device, and no nvcc anywhere.
"""
import collections
import glob
import os
import re
import shutil

import fakegpu
import harness
from cuda_programs import KEPT, LIBRARY, calls, start_cuda, train_cuda
from harness import Random, add, build, check, command, directory, once, pdc, read_program, tensors_equal

NVRTC = ("--target=cuda", "--cuda-compiler=nvrtc")
NVCC = ("--target=cuda", "--cuda-compiler=nvcc")
STEPS, BATCH = 4, 12
MODELS = {
    "mlp f32": ("mlp", {"blocks": 4, "schedule__microbatch": 2, "schedule__kind": "gpipe"}),
    "gpt bf16": ("gpt", {"layers": 4, "words": 48, "parallel__tp": 2, "schedule__microbatch": 6, "schedule__kind": "gpipe",
                         "precision__compute": "bf16"}),
}


def data_of(name):
    random = Random(7)
    samples = STEPS * BATCH
    if name == "mlp":
        return {"x": random.reals([samples, 20], "F32"), "y": random.integers([samples], 10)}
    return {"tokens": random.integers([samples, 8], 48), "targets": random.integers([samples, 8], 48, ignored=0.3)}


def program(model, compiler, *options):
    name, defines = MODELS[model]
    return build(read_program(name), defines, options=(*compiler, *options, "--save-temps"), environment=KEPT)


def run(model, path, device=90, seed=1, graph="1"):
    """The run, and the recorded calls of rank 0."""
    result = train_cuda(path, "--steps=%d" % STEPS, "--seed=3", seed=seed, data=data_of(MODELS[model][0]),
                        environment={"PDC_CUDA_GRAPH": graph, "PD_FAKE_ARCH": str(device)})
    return result, calls(result, 0)


def flags_of(file):
    with open(os.path.join(LIBRARY, file)) as opened:
        return opened.read().split()


def arithmetic(ptx):
    """How often each kernel does what on floating-point numbers."""
    kernels = {}
    with open(ptx) as file:
        for name, body in re.findall(r"\.entry (\w+)\((.*?)^\}", file.read(), re.S | re.M):
            kernels[name] = collections.Counter(re.findall(r"^\s+(?:@!?%p\d+ )?([a-z0-9]+\.[a-z0-9.]*f(?:32|64|16|16x2))\s", body, re.M))
    return kernels


def test_the_same_arithmetic():
    """What the fake GPU cannot show: the two compilers round at the same places."""
    path = program("gpt bf16", NVRTC, "--arch=sm_90") + ".cu"
    place = directory()
    result = command([fakegpu.tool("nvcc"), "-ptx", "-arch=sm_90", *flags_of("nvccflags"), "-I" + LIBRARY + "/include",
                      "-I" + LIBRARY + "/cuda", path, "-o", os.path.join(place, "nvcc.ptx")], harness.COMPILE_LIMIT)
    check(result.code == 0, result.describe())
    result = pdc("nvrtc", "-o", "k.cubin", "--ptx=nvrtc.ptx", path, *flags_of("nvrtcflags"), "--gpu-architecture=sm_90", "-I" + LIBRARY + "/include",
                 "-I" + LIBRARY + "/cuda", "-I" + fakegpu.CUDA + "/include", "-I" + LIBRARY + "/cuda/nvrtc", cwd=place)
    check(result.code == 0, result.describe())
    ours, theirs = (arithmetic(os.path.join(place, compiler + ".ptx")) for compiler in ("nvrtc", "nvcc"))
    check(len(ours) > 20 and sum(ours["_Z15pd_adamw_kernelILb1ELb1E13__nv_bfloat16EvlPfPT1_PKfS1_S1_PK14pd_step_values14pd_adamw_rates"].values()) > 10,
          "kernels: %s" % list(ours))
    for name in sorted(set(ours) | set(theirs)):
        a, b = ours.get(name), theirs.get(name)
        check(a == b, "%s: NVRTC %s, nvcc %s" % (name, a and dict(a - (b or a)), b and dict(b - (a or b))))


def refused(path, device):
    result = start_cuda(path, "--steps=1", data=data_of("mlp"), environment={"PD_FAKE_ARCH": str(device), "PD_FAKE_LEAKS": "0"})[0].result
    check(result.code == 13 and result.err.count("error:") == 1, result.describe())
    return result.err


def same_bits(model):
    """With every step queued, and with all but the first replayed from a graph."""
    ours, theirs = (program(model, compiler, "--arch=sm_90") for compiler in (NVRTC, NVCC))
    with open(ours + ".cu") as a, open(theirs + ".cu") as b:
        check(a.read() == b.read(), "the two compilers are given different sources")
    wanted = once("nvcc " + model, lambda: run(model, theirs)[0])
    check(len(wanted.losses) == STEPS and wanted.losses[0] != wanted.losses[-1], "losses %s" % wanted.losses)
    for graph, seed in (("1", 1), ("1", 2), ("0", 1)):
        got, called = run(model, ours, seed=seed, graph=graph)
        what = "graph %s, seed %d: " % (graph, seed)
        check(got.losses == wanted.losses and got.norms == wanted.norms, what + "losses %s, not %s" % (got.losses, wanted.losses))
        tensors_equal(got.weights, wanted.weights, what + "weights")
        tensors_equal(got.gradients, wanted.gradients, what + "gradients")
        check(called.count("cudaLibraryLoadData") == 1 and called.count("cudaLibraryUnload") == 1, what + "not one library")
        check(called.index("cudaLibraryLoadData") < called.index(" kernel "), what + "loaded after a kernel")
        check(("cudaStreamBeginCapture" in called) == (graph == "1"), what + "graph")


def test_code_for_each_device():
    """The program for all architectures chooses the device's own code, else that of its family, else PTX."""
    path = program("mlp f32", NVRTC)
    first = None
    for device, image in ((80, "cubin sm_80"), (86, "cubin sm_80"), (90, "cubin sm_90"), (100, "cubin sm_100"), (103, "cubin sm_100"),
                          (120, "PTX sm_100")):
        got, called = run("mlp f32", path, device)
        check("cudaLibraryLoadData " + image in called, "on sm_%d: %s" % (device, called[:200]))
        if device in (80, 86, 100, 103, 120): # sm_90 has epilogues in its products
            first = first or got
            check(got.losses == first.losses, "losses on sm_%d: %s, not %s" % (device, got.losses, first.losses))
    said = refused(path, 75)
    check("this program is compiled for sm_80, sm_90, sm_100, later ones; this device is sm_75; compile it with --arch=sm_75" in said, said)


def test_no_code_for_the_device():
    said = refused(program("mlp f32", NVRTC, "--arch=sm_90"), 80)
    check("this program is compiled for sm_90; this device is sm_80; compile it with --arch=sm_80" in said, said)
    said = refused(program("mlp f32", NVCC, "--arch=sm_90"), 80)
    check("this program has no code for this device" in said, said)


def test_code_for_one_device_alone():
    """sm_90a is for sm_90 and for nothing later; a program can have it beside others."""
    path = program("mlp f32", NVRTC, "--arch=sm_90a,sm_80")
    check("cudaLibraryLoadData cubin sm_90" in run("mlp f32", path, 90)[1], "sm_90")
    check("cudaLibraryLoadData cubin sm_80" in run("mlp f32", path, 86)[1], "sm_86")
    check("compiled for sm_90a, sm_80; this device is sm_100" in refused(path, 100), "sm_100")


def test_the_same_bytes():
    """Code and table do not depend on the build."""
    path = os.path.join(harness.PROGRAMS, "mlp.pd")
    places = [directory(), directory()]
    for place in places:
        result = pdc(*NVRTC, "--arch=sm_90", "--save-temps", "-o", "program", path, cwd=place)
        check(result.code == 0 and not result.err, result.describe())
    for file in ("program", "program.sm_90.cubin", "program.kernels.c"):
        bytes_of = []
        for place in places:
            with open(os.path.join(place, file), "rb") as opened:
                bytes_of.append(opened.read())
        check(bytes_of[0] == bytes_of[1], file + " differs from build to build")


def compiles(path, precision):
    result = pdc(*NVRTC, "--arch=sm_90", "-D", "precision.compute=" + precision, "-o", os.path.join(directory(), "program"), path)
    check(result.code == 0 and not result.err, "not without a warning: " + result.describe())


# ---- the compiler by itself ----

def kernels(text, *options, arch="sm_90"):
    place = directory()
    with open(os.path.join(place, "k.cu"), "w") as file:
        file.write(text)
    return pdc("nvrtc", "-o", "k.cubin", "k.cu", "-default-device", "-std=c++17", "--gpu-architecture=" + arch,
               "--ptxas-options=--warn-on-spills", *options, cwd=place), os.path.join(place, "k.cubin")


SPILLS = """__global__ void k(float *x) {
  float a[64];
  for (int i = 0; i < 64; i++) a[i] = x[i * 64 + threadIdx.x];
  for (int j = 0; j < 100; j++) for (int i = 0; i < 64; i++) a[i] = a[i] * a[(i + 1) % 64] + x[j];
  for (int i = 0; i < 64; i++) x[i * 64 + threadIdx.x] = a[i];
}
"""


def every_family(opening, real):
    """No header of kernels includes what NVRTC lacks, or the C++ compiler that reads the launchers."""
    families = sorted(os.path.basename(path) for path in glob.glob(os.path.join(LIBRARY, "cuda", "*.cuh")))
    families.remove("pd_host.cuh") # the C++ compiler's own
    check(len(families) >= 18 and families[-1] == "runtime.cuh", "families: %s" % families)
    text = opening + '#include "pd_device.cuh"\ntypedef %s real;\n' % real + "".join('#include "%s"\n' % name for name in families)
    include = ["-I" + path for path in (LIBRARY + "/include", LIBRARY + "/cuda", fakegpu.CUDA + "/include")]
    result, cubin = kernels(text, "-fmad=false", *include, "-I" + LIBRARY + "/cuda/nvrtc")
    check(result.code == 0 and not result.err and os.path.getsize(cubin) > 1000, result.describe())
    place = directory()
    with open(os.path.join(place, "k.cpp"), "w") as file:
        file.write(text)
    result = command(["g++", "-std=c++17", "-DPD_NVRTC", "-Wall", "-Wno-unknown-pragmas", "-fsyntax-only", *include, "k.cpp"], harness.COMPILE_LIMIT, cwd=place)
    check(result.code == 0, result.describe())


add("every family f32", every_family, "", "float")
add("every family bf16", every_family, "#define PD_BF16\n", "__nv_bfloat16")


def test_warnings_are_errors():
    result, cubin = kernels(SPILLS)
    check(result.code == 0 and not result.err and os.path.getsize(cubin) > 1000, result.describe())
    for text, options, facts in ((SPILLS, ("--maxrregcount=24",), ("Registers are spilled", "warnings are errors")),
                                 ("__global__ void k() { int unused; }", (), ("k.cu(1): warning #177-D", "warnings are errors")),
                                 ("__global__ void k() { missing(); }", (), ("k.cu(1): error", "NVRTC_ERROR_COMPILATION"))):
        result, cubin = kernels(text, *options)
        check(result.code == 3 and not os.path.exists(cubin), result.describe())
        for fact in facts:
            check(fact in result.err, "%s is not in: %s" % (fact, result.describe()))


def test_a_failure_is_shown_once():
    """All architectures are compiled at once; one of them says what is wrong."""
    result = pdc(*NVRTC, "--arch=sm_90,sm_95,sm_96", "-o", os.path.join(directory(), "program"), os.path.join(harness.PROGRAMS, "mlp.pd"))
    check(result.code == 3 and result.err.count("no program was written") == 1, result.describe())
    check("sm_95" in result.err and "sm_96" not in result.err, result.describe())


def test_usage():
    for words, fact in (((), "no input file"), (("a.cu",), "no output file"), (("a.cu", "b.cu"), "one file at a time"), (("-o",), "-o needs a file")):
        result = pdc("nvrtc", *words)
        check(result.code == 2 and fact in result.err and "usage: pdc nvrtc" in result.err, result.describe())
    result, _ = kernels(SPILLS, arch="compute_90")
    check(result.code == 2 and "name an architecture such as --gpu-architecture=sm_90" in result.err, result.describe())


def test_commands_are_shown():
    result = pdc(*NVRTC, "-###", "-o", "program", os.path.join(harness.PROGRAMS, "mlp.pd"))
    for fact in ("pdc nvrtc -o sm_80.cubin", "pdc nvrtc -o sm_100.cubin --ptx=compute_100.ptx mlp.cu", "-fmad=false", "c++ ", "-DPD_NVRTC", "mlp.kernels.c"):
        check(fact in result.err, "%s is not in: %s" % (fact, result.err))
    check("nvcc" not in result.err, result.err)


def test_sources_are_kept():
    """Also of a program whose files are called as those that pdc adds."""
    place = directory()
    source = os.path.join(directory(), "a kernels.pd")
    shutil.copy(os.path.join(harness.PROGRAMS, "mlp.pd"), source)
    result = pdc(*NVRTC, "--arch=sm_80,sm_90", "--save-temps", "-o", "train", source, cwd=place)
    check(result.code == 0, result.describe())
    check(sorted(os.listdir(place)) == ["train", "train.c", "train.cu", "train.kernels.c", "train.plan.json", "train.sm_80.cubin", "train.sm_90.cubin"],
          str(sorted(os.listdir(place))))


# ---- a machine without a toolkit ----

def wheels(*left_out):
    """CUDA as Python's packages lay it out: nvidia/cu13 and nvidia/nccl, no nvcc, libraries by their sonames."""
    root = os.path.join(directory(), "nvidia")
    for folder in ("cu13/include", "cu13/lib", "nccl/lib"):
        os.makedirs(os.path.join(root, folder))
    for header in os.listdir(os.path.join(fakegpu.CUDA, "include")):
        os.symlink(os.path.join(fakegpu.CUDA, "include", header), os.path.join(root, "cu13/include", header))
    for pattern, folder in (("libcudart.so.13", "cu13"), ("libcublasLt.so.13", "cu13"), ("libnvrtc.so.13", "cu13"),
                            ("libnvrtc-builtins.so.*", "cu13"), ("libnccl.so.2", "nccl")):
        for library in [] if pattern in left_out else glob.glob(os.path.join(fakegpu.CUDA, "lib64", pattern)):
            os.symlink(library, os.path.join(root, folder, "lib", os.path.basename(library)))
    return os.path.join(root, "cu13")


def without_toolkit(cuda, *words):
    """pdc where PATH has no nvcc and nothing else says where a toolkit is."""
    tools = os.path.join(directory(), "bin")
    os.makedirs(tools)
    for tool in ("gcc", "g++", "c++", "cc", "mpicc", "as", "ld", "ld.gold"):
        found = shutil.which(tool, path="/usr/bin:/bin")
        if found:
            os.symlink(found, os.path.join(tools, tool))
    variables = {"PATH": tools, "CUDA_HOME": cuda, "PDC_NVCC": "", "PDC_NVRTC": "", "PDC_CC": "", "PDC_CXX": "", "LD_LIBRARY_PATH": os.path.join(cuda, "lib")}
    return command([harness.PDC, "--target=cuda", *words], harness.COMPILE_LIMIT, environment=variables)


def test_without_nvcc():
    """Built from Python's packages alone, with and without MPI, and run."""
    cuda = wheels()
    place = directory()
    source = os.path.join(place, "mlp.pd")
    with open(source, "w") as file:
        file.write(read_program("mlp"))
    with_nvcc = program("mlp f32", NVCC, "--arch=sm_90")
    wanted = once("nvcc mlp f32", lambda: run("mlp f32", with_nvcc)[0])
    for name, more in (("mpi", ()), ("single", ("--no-mpi",))):
        target = os.path.join(place, name)
        words = ("--arch=sm_90", "--save-temps", *harness.words_of(MODELS["mlp f32"][1]), *more, "-o", target, source)
        result = without_toolkit(cuda, "--cuda-compiler=nvrtc", *words)
        check(result.code == 0 and not result.err, result.describe())
        check(run("mlp f32", target)[0].losses == wanted.losses, "losses of " + name)
        paths = command(["readelf", "-d", target], 10).out
        check(cuda + "/lib" in paths and cuda + "/../nccl/lib" in paths, "where it looks for libraries: " + paths)
    result = without_toolkit(cuda, "-o", os.path.join(place, "none"), source)
    check(result.code == 3 and "the CUDA compiler `nvcc` failed" in result.err, "there is an nvcc: " + result.describe())


def test_relative_places():
    """What the environment names is meant from where pdc is called."""
    cuda = wheels()
    place = os.path.dirname(os.path.dirname(cuda))
    variables = {"CUDA_HOME": "nvidia/cu13", "PDC_NVRTC": "nvidia/cu13/lib/libnvrtc.so.13"}
    result = command([harness.PDC, *NVRTC, "--arch=sm_90", "-o", "program", os.path.join(harness.PROGRAMS, "mlp.pd")],
                     harness.COMPILE_LIMIT, cwd=place, environment=variables)
    check(result.code == 0 and not result.err, result.describe())
    check(cuda + "/lib" in command(["readelf", "-d", os.path.join(place, "program")], 10).out, "the program looks for libraries elsewhere")


def test_without_nvrtc():
    source = os.path.join(harness.PROGRAMS, "mlp.pd")
    cuda = wheels("libnvrtc.so.13")
    with open(os.path.join(cuda, "lib", "libnvrtc.so.13"), "w") as file: # the system may have one, which must not be found
        file.write("no library")
    result = without_toolkit(cuda, "--cuda-compiler=nvrtc", "-o", os.path.join(directory(), "program"), source)
    check(result.code == 3 and result.err.count("\n") == 1 and "pip install nvidia-cuda-nvrtc" in result.err, result.describe())
    variables = {"PDC_NVRTC": "/nowhere/libnvrtc.so.13"}
    result = command([harness.PDC, *NVRTC, "-o", os.path.join(directory(), "program"), source], 60, environment=variables)
    check(result.code == 3 and "PDC_NVRTC: /nowhere/libnvrtc.so.13" in result.err, result.describe())


def test_compilers_of_the_host():
    """--cxx and PDC_CXX name the C++ compiler; with nvcc --cxx is the one that it uses."""
    source = os.path.join(harness.PROGRAMS, "mlp.pd")
    result = pdc(*NVRTC, "-###", "--cxx=ccache clang++", source)
    check(re.search(r"^ccache clang\+\+ -O2", result.err, re.M), result.err)
    result = command([harness.PDC, *NVRTC, "-###", source], 60, environment={"PDC_CXX": "clang++-14"})
    check(re.search(r"^clang\+\+-14 -O2", result.err, re.M), result.err)
    result = pdc(*NVCC, "-###", "--cxx=g++-11", source)
    check("-ccbin g++-11" in result.err, result.err)
    result = pdc(*NVRTC, "--arch=sm_90", "--cxx=no-such-compiler", "-o", os.path.join(directory(), "program"), source)
    check(result.code == 3 and "the C++ compiler `no-such-compiler` failed" in result.err, result.describe())
    if shutil.which("clang++"):
        result = pdc(*NVRTC, "--arch=sm_90", "--cxx=clang++", "-o", os.path.join(directory(), "program"), source)
        check(result.code == 0 and not result.err, result.describe())


for name in MODELS:
    add("same bits as nvcc: " + name, same_bits, name)
for example, precision in (("mlp-fashion", "f32"), ("cnn-fashion", "bf16"), ("gpt2-124m", "bf16"), ("llama3-70b", "bf16")):
    add("compiles: " + example, compiles, os.path.join(harness.ROOT, "examples", example + ".pd"), precision)

harness.main(__name__)
