"""The CUDA target on a real GPU, in under five minutes once pdc is built: what the fake GPU of the tests cannot show.

usage: bench/gpu.sh [--mpi]                     builds pdc, then runs this: one GPU and no MPI, or with --mpi all GPUs
       python3 bench/gpu.py [BUILD] --fake      the same on the fake GPU with small sizes, to test this script

Prints a line of figures for each part, and then what failed and what was not done.
  build         all programs and unit tests that the parts need, each once, as many at a time as there are cores
  kernels       the kernels' unit tests (tests/cuda), compiled with the flags of programs, against the reference in double
  agreement     20 training steps of a small GPT against the host target: f32, and bf16 within its rounding
  nvrtc         the f32 program again, its kernels compiled by NVRTC: its losses must be those of nvcc's program, to the bit
  cudnn         attention by cuDNN, forward and backward, against the same in double
  product       a large product of random numbers, forward and both gradients, in bf16: TFLOP/s
  attention     a model of little but attention, forward and backward, in bf16: TFLOP/s by cuDNN, by cuDNN with sums in any order,
                and by the program's own kernels; 14 b h s^2 d FLOPs of a layer, halved as half of the scores are masked.
                Time is that of whole steps, with what is not counted: sums around attentions, a small product for the loss
  gpt2-124m     bf16, micro-batches of 1024 tokens a sample: tokens/s and MFU, the share of the peak
                MFU = tokens/s x (6 N + 6 L E T) / peak: N all parameters, L layers, E width, T sequence, causal half
  graph         the same without the recorded step: what recording gains
  scaling       with --mpi and several GPUs: tokens/s and MFU on all, and the loss of scaling over dp, from the same work a GPU
                on one and on all of them: 1 - t(1) / t(n). It is what sums over replicas are waited for, and all else that is
                slower on n: reading data on one host, GPUs that share power and clocks unequally
  sanitizer     compute-sanitizer's memcheck, racecheck, initcheck and synccheck on two steps of the small GPT, and on the unit tests.
                A program has all its memory of the device in one allocation, in which memcheck and initcheck cannot tell one
                tensor from the next. Unit tests have an allocation for each tensor, but only kernels in bf16 and few sizes

Rates are shares of the card's peak, if it is known or given, and of what it reaches in the large product.
Exit status: 0 all was done and passed; 1 something failed; 2 wrong options, or something is missing without which there is no
start; 3 nothing failed, but something was not done: the time was over, or a tool is missing.
"""
import argparse
import concurrent.futures
import ctypes
import functools
import itertools
import json
import math
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# dense bf16 TFLOP/s by the name that the driver and nvidia-smi give; cards that share a chip differ in clocks and power
PEAKS = {"NVIDIA A100-SXM4-40GB": 312, "NVIDIA A100-SXM4-80GB": 312, "NVIDIA A100-PCIE-40GB": 312, "NVIDIA A100 80GB PCIe": 312,
         "NVIDIA H100 80GB HBM3": 989, "NVIDIA H100 PCIe": 756, "NVIDIA H100 NVL": 835, "NVIDIA H200": 989, "NVIDIA H200 NVL": 835,
         "NVIDIA GH200 480GB": 989, "NVIDIA B200": 2250, "NVIDIA GB200": 2500}


def positive(word):
    try:
        value = float(word)
    except ValueError:
        value = 0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError("%s is no number above 0" % word)
    return value


def arguments():
    peaks = "dense bf16 peaks, TFLOP/s, that are known by a card's name:\n" + "".join("  %-22s  %d\n" % item for item in PEAKS.items())
    parser = argparse.ArgumentParser(description=__doc__, epilog=peaks, usage=argparse.SUPPRESS, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", metavar="BUILD", default=os.path.join(ROOT, "build"),
                        help="where make built pdc (default: build)")
    parser.add_argument("--mpi", action="store_true", help="programs with MPI, and the part `scaling`")
    parser.add_argument("--fake", action="store_true", help="the fake GPU (make fakegpu)")
    parser.add_argument("--peak", type=positive, metavar="TFLOPS", help="the card's dense peak in bf16, for cards not listed below")
    parser.add_argument("--seconds", type=positive, default=280, metavar="N",
                        help="the time for everything (default: 280); one command gets a third of it")
    return parser.parse_args()


OPTIONS = arguments()
FAKE, MPI = OPTIONS.fake, OPTIONS.mpi
BUILD = os.path.abspath(OPTIONS.build)
PDC, LIBRARY = os.path.join(BUILD, "pdc"), os.path.join(BUILD, "lib", "pdc")
BEGAN, LIMIT = time.monotonic(), OPTIONS.seconds / 3
pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
commands = set()  # that run now
failures, undone, noted = [], [], {}
large_product = None  # FLOP/s, once measured


# ---- commands ----

class Failure(Exception):
    """One line that says what went wrong, and below it what the command printed."""

    def __init__(self, line, output=""):
        lines = [text for text in output.splitlines() if text.strip()]
        if len(lines) > 24:
            lines = lines[:12] + ["..."] + lines[-12:]
        super().__init__("".join([line] + ["\n    " + text for text in lines]))


def fail(part, failure):
    """Notes a failure; one of a program that several parts need, once."""
    if id(failure) not in noted:
        noted[id(failure)] = failure
        failures.append("%s: %s" % (part, failure))


class NotReached(Exception):
    """The time is over."""


class NotDone(Exception):
    """Something that the part needs is missing."""


def refuse(line):
    sys.stderr.write("bench/gpu.py: %s\n" % line)
    sys.exit(2)


def left():
    return OPTIONS.seconds - (time.monotonic() - BEGAN)


def end(process):
    """Ends a command and what it started; a launcher gets the time to end its ranks."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, how)
            process.wait(2)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            pass


def run(words, **more):
    """What a command prints on stdout, if it succeeds before its time is over."""
    limit, name = min(LIMIT, left()), os.path.basename(words[0])
    if limit <= 0:
        raise NotReached
    try:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                                   start_new_session=True, **more)
    except OSError as error:
        raise Failure("%s cannot be started: %s" % (words[0], error.strerror))
    commands.add(process)
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        end(process)
        if left() <= 0:
            raise NotReached
        raise Failure("%s was stopped after %.0f s" % (name, limit), " ".join(words))
    finally:
        commands.discard(process)
    if process.returncode:
        lines = [line for line in (err + "\n" + out).splitlines() if line.strip()] or ["no output"]
        said = next((line for line in lines if re.search("error|fail|invalid", line, re.I)), lines[-1])
        raise Failure("%s ended with status %d: %s" % (name, process.returncode, said.strip()), " ".join(words) + "\n" + out + err)
    return out


# ---- the machine ----

@functools.cache
def cuda():
    """Where the CUDA toolkit is; found as pdc does."""
    nvcc = shutil.which("nvcc")
    beside = os.path.dirname(os.path.dirname(os.path.realpath(nvcc))) if nvcc else "/usr/local/cuda"
    return os.path.abspath(os.environ.get("CUDA_HOME") or beside)


def tool(name, *places):
    """A tool of the toolkit: its path, or None."""
    paths = [os.path.join(cuda(), part) for part in ("bin", *places)] + [os.environ.get("PATH", "")]
    return shutil.which(name, path=os.pathsep.join(paths))


def includes():
    """Python's packages have NCCL and cuDNN in folders beside CUDA's."""
    return [word for part in ("include", "../nccl/include", "../cudnn/include") for word in ("-isystem", os.path.join(cuda(), part))]


def folders():
    """Where libraries are."""
    places = [os.path.join(cuda(), part) for part in ("lib64", "lib", "../nccl/lib", "../cudnn/lib")]
    return [path for path in places if os.path.isdir(path)]


def visible():
    """Name and architecture of each GPU that programs see. The driver is asked, as it heeds CUDA_VISIBLE_DEVICES."""
    if FAKE:
        return [("fake GPU", "90")] * 2
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        refuse("there is no NVIDIA driver: libcuda.so.1 cannot be loaded")
    count, found = ctypes.c_int(), []
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status or not count.value:
        refuse("the NVIDIA driver shows no GPU (cuInit: %d); CUDA_VISIBLE_DEVICES is %r" % (status, os.environ.get("CUDA_VISIBLE_DEVICES")))
    for number in range(count.value):
        device, name, capability = ctypes.c_int(), ctypes.create_string_buffer(256), [ctypes.c_int(), ctypes.c_int()]
        driver.cuDeviceGet(ctypes.byref(device), number)
        driver.cuDeviceGetName(name, 256, device)
        for value, attribute in zip(capability, (75, 76)):  # of compute capability: major, minor
            driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        found.append((name.value.decode(), "%d%d" % (capability[0].value, capability[1].value)))
    return found


GPUS = visible()
CARD, ARCH = GPUS[0]
PEAK = (OPTIONS.peak or PEAKS.get(CARD, 0)) * 1e12  # 0: not known
CUDNN = os.path.exists(os.path.join(LIBRARY, "cudnn"))
SANITIZER = None if FAKE else tool("compute-sanitizer", "compute-sanitizer")
place = tempfile.mkdtemp(prefix="pdc-gpu-")


# ---- programs ----

numbers, built = itertools.count(), {}


def build(name, text, target="cuda", options=(), **defines):
    """The future path of a model's program, which is built once; options: more of them."""
    key = (text, target, tuple(options), tuple(sorted(defines.items())))
    if key not in built:
        built[key] = pool.submit(compile_program, "%s-%d" % (name, next(numbers)), text, target, options, defines)
    return built[key]


def compile_program(name, text, target, options, defines):
    path, program = os.path.join(place, name + ".pd"), os.path.join(place, name)
    with open(path, "w") as file:
        file.write(text)
    if target == "cuda":
        options = ["--target=cuda", "--arch=sm_" + ARCH, "--save-temps", *options] + ([] if MPI else ["--no-mpi"])
    else:
        options = ["--target=host", *options]
    words = [word for key, value in defines.items() for word in ("-D", "%s=%s" % (key.replace("__", "."), value))]
    run([PDC, *options, *words, "-o", program, path])
    if FAKE and target == "cuda":
        compile_twin(program, program + ".cu")
    return program


def compile_twin(program, source, *options):
    """The kernels for the fake GPU."""
    run(["g++", "-x", "c++", "-std=c++17", "-O1", "-DPD_FAKE_GPU", "-include", os.path.join(ROOT, "tests", "fakegpu", "device.h"),
         *includes(), "-I" + LIBRARY + "/include", "-I" + LIBRARY + "/cuda", "-fPIC", "-shared", "-Wl,-Bsymbolic", *options, source,
         "-o", program + "-twin.so"])


TESTS = os.path.join(ROOT, "tests", "cuda")
UNITS = sorted(name[:-3] for name in os.listdir(TESTS) if name.endswith("_test.cu") and name != "faults_test.cu")
HEADERS = ["-I" + os.path.join(ROOT, part) for part in ("templates/cuda", "runtime", "tests/cuda")]


@functools.cache
def reference():
    return pool.submit(compile_reference)


@functools.cache
def unit(name):
    """The future path of a unit test of kernels."""
    return pool.submit(compile_unit, name, reference())


def compile_reference():
    path = os.path.join(place, "ref.o")
    run(["gcc", "-std=c11", "-O2", "-fPIC", *HEADERS, "-c", os.path.join(ROOT, "runtime", "kernels", "ref.c"), "-o", path])
    return path


def compile_unit(name, reference_object):
    source, program = os.path.join(TESTS, name + ".cu"), os.path.join(place, name)
    with open(os.path.join(LIBRARY, "nvccflags")) as file:  # those of programs: -fmad=false among them
        flags = file.read().split()
    linker = ["--enable-new-dtags", *("-rpath=" + folder for folder in folders())]
    run([tool("nvcc"), *flags, "-gencode", "arch=compute_%s,code=sm_%s" % (ARCH, ARCH), "-cudart", "shared", *HEADERS, source,
         reference_object.result(), *(word for option in linker for word in ("-Xlinker", option)), "-o", program])
    if FAKE:
        compile_twin(program, source, "-fno-strict-aliasing", *HEADERS, "-Wl," + reference_object.result(), "-DPD_QUICK")
    return program


def environment(program):
    """What a process on the GPU gets."""
    if not FAKE:
        return dict(os.environ)
    return dict(os.environ, LD_LIBRARY_PATH=os.path.join(BUILD, "fakegpu"), PD_FAKE_KERNELS=program + "-twin.so", PD_FAKE_ARCH="90",
                PD_FAKE_DEVICES=str(len(GPUS)))


def train(future, steps, data, head=(), **variables):
    """The log's lines of a run's steps."""
    program, log = future.result(), os.path.join(place, "log-%d" % next(numbers))
    run([*head, program, "--steps=%d" % steps, "--seed=3", "--data=" + data, "--log=" + log], env=dict(environment(program), **variables))
    with open(log) as file:
        lines = [line for line in map(json.loads, file) if "step" in line]
    if len(lines) != steps:
        raise Failure("%s logged %d steps, not %d" % (os.path.basename(program), len(lines), steps))
    return lines


def seconds_of(lines):
    return statistics.median(line["step_ms"] for line in lines[len(lines) // 2:]) / 1000


# ---- data ----

@functools.cache
def text_file(size):
    """A text of that many bytes, each of which is a token."""
    path, text = os.path.join(place, "text-%d" % size), []
    for i in itertools.count():
        if size <= 0:
            break
        text.append("%d squared is %d. " % (i, i * i))
        size -= len(text[-1])
    with open(path, "w") as file:
        file.write("".join(text))
    return path


@functools.cache
def random_file(size):
    """Random bytes: tokens below 256."""
    path = os.path.join(place, "random-%d" % size)
    with open(path, "wb") as file:
        file.write(random.Random(3).getrandbits(8 * size).to_bytes(size, "little"))
    return path


# ---- what is built ----

def small(target="cuda", compiler=None, precision="f32"):
    with open(os.path.join(ROOT, "tests", "programs", "gpt.pd")) as file:
        text = file.read()
    return build("small-" + (compiler or target), text, target, ["--cuda-compiler=" + compiler] if compiler else [], words=256,
                 precision__compute=precision)


# What a step reads is tokens, which pick rows of small random tables, so that its time is the GPU's: rows of real numbers would be
# converted by one thread of the host, and a card that its power limits runs faster on rows that are all the same.
PRODUCT = (2, 32, 64, 3) if FAKE else (32, 1024, 8192, 3)  # samples, tokens, width, layers


def product_program():
    """Many rows for few weights, which a host draws in seconds and a step updates in little time."""
    batch, seq, n, layers = PRODUCT
    return build("wide", """
dim batch = %d, seq = %d, n = %d, token = 256;
schedule < microbatch=%d; >
precision < compute=bf16; >
optimizer < kind=sgd; lr=1e-9; >
data < shuffle=off; >
model wide(tokens: i32[batch, seq], targets: i32[batch, seq]) {
  frozen param table: [token, n] = normal(1);
  param out: [n, token];
  x = gather(table, tokens);
  repeat %d { param w: [n, n] = normal(1 / sqrt(n)); x = x @ w; }
  loss xent(x @ out, targets);
}""" % (batch, seq, n, batch, layers))


ATTENTION = (2, 16, 2, 16, 2) if FAKE else (2, 8192, 16, 128, 4)  # samples, tokens, heads, width of a head, layers


def attention_program(options):
    """Queries and keys stay, and values are added to, so that scores and values are random in each layer."""
    batch, seq, heads, head, layers = ATTENTION
    return build("attend", """
dim batch = %d, seq = %d, heads = %d, head = %d, token = 256;
schedule < microbatch=%d; >
precision < compute=bf16; >
optimizer < kind=sgd; lr=1e-9; >
data < shuffle=off; >
model attend(tokens: i32[batch, seq], targets: i32[batch, seq]) {
  frozen param a: [token, heads, head] = normal(1), b: [token, heads, head] = normal(1), c: [token, heads, head] = normal(1);
  param u: [heads, head] = 1, v: [heads, head] = 1, w: [heads, head] = 1, out: [heads, head, token];
  q = gather(a, tokens) * u;
  k = gather(b, tokens) * v;
  x = gather(c, tokens) * w;
  repeat %d { x = x + sdpa(q, k, x, causal=true); }
  loss xent(x @ out, targets);
}""" % (batch, seq, heads, head, batch, layers), options=options)


def attention_ways():
    ways = [("own kernels", ["--attention=own"])]
    if CUDNN:
        ways += [("cuDNN", ["--attention=cudnn"]), ("cuDNN, sums in any order", ["--attention=cudnn", "--nondeterministic"])]
    return ways


GPT2 = (2, 1, 16, 1) if FAKE else (64, 32, 1024, 12)  # of each replica: samples, those of a micro-batch, tokens, layers


def gpt2_program(replicas):
    """GPT-2 124M with the same work on every replica."""
    with open(os.path.join(ROOT, "examples", "gpt2-124m.pd")) as file:
        text = file.read()
    batch, micro, seq, layers = GPT2
    text = re.sub(r"dim batch = 4, seq = 64", "dim batch = %d, seq = %d" % (batch * replicas, seq), text)
    text = re.sub(r"microbatch=4", "microbatch=%d" % micro, text)
    if FAKE:
        text = text.replace("50257", "512").replace("heads = 12", "heads = 2")
    return build("gpt2-%d" % replicas, text, layers=layers, precision__compute="bf16", parallel__dp=replicas)


def programs():
    """Starts to build everything."""
    futures = [unit(name) for name in UNITS]
    futures += [gpt2_program(1)] + ([gpt2_program(len(GPUS))] if MPI else [])
    futures += [small("host"), small(), small(precision="bf16"), small(compiler="nvrtc")]
    return futures + [attention_program(options) for way, options in attention_ways()] + [product_program()]


def building():
    futures = programs()
    for future in futures:
        if isinstance(future.exception(), Failure):  # the parts that need it fail, too
            fail("build", future.exception())
    good = sum(future.exception() is None for future in futures)
    return "%d of %d programs in %.0f s" % (good, len(futures), time.monotonic() - BEGAN)


# ---- what they compute ----

def run_unit(name, head, words):
    program = unit(name).result()
    return run([*head, program, *words], env=environment(program))


def kernels():
    words, passed = (["quick", "one-type"] if FAKE else []), []
    runs = [(name, pool.submit(run_unit, name, (), words)) for name in UNITS]
    for name, future in runs:
        try:
            passed.append("%s %s" % (name, (future.result().splitlines() or ["says nothing"])[-1]))
        except Failure as failure:
            fail("kernels: " + name, failure)
            passed.append(name + " failed")
    return "; ".join(passed)


STEPS = 5 if FAKE else 20
SMALL_TEXT = 100000


def losses(program):
    return [line["loss"] for line in train(program, STEPS, text_file(SMALL_TEXT))]


def agreement():
    host, figures = losses(small("host")), []
    for precision, bound in (("f32", 1e-4), ("bf16", 2e-2)):
        ours = losses(small(precision=precision))
        error = max(abs(a - b) / abs(b) for a, b in zip(ours, host))
        figures.append("%s %.1e" % (precision, error))
        if not error < bound:
            failures.append("agreement %s: losses %s, on the host %s" % (precision, ours, host))
    return "%d steps, largest relative difference of the loss from the host's: %s" % (STEPS, ", ".join(figures))


def nvrtc():
    theirs, ours = losses(small()), losses(small(compiler="nvrtc"))
    if ours != theirs:
        failures.append("nvrtc: losses %s, of nvcc's program %s" % (ours, theirs))
    return "%d steps, %s losses as of nvcc's program" % (STEPS, "the same" if ours == theirs else "other")


def cudnn():
    if not CUDNN:
        raise NotDone("pdc was built without cuDNN's headers")
    program, runtime = os.path.join(place, "attention"), os.path.join(ROOT, "runtime")
    sources = [os.path.join(runtime, "cuda", name) for name in ("attention_cudnn.c", "attention_graph.c", "cudnn_library.c")]
    run(["gcc", "-std=gnu11", "-O1", "-I" + runtime, *includes(), os.path.join(ROOT, "tests/fakegpu/programs/attention.c"),
         *sources, "-o", program, "-Wl,--enable-new-dtags", *(option + folder for folder in folders() for option in ("-L", "-Wl,-rpath,")),
         "-l:libcudart.so.13", "-ldl", "-lm"])
    return "%d attentions agree" % len(run([program], env=environment(program)).splitlines())


# ---- how fast they are ----

def share(rate, cards=1, name="of the peak"):
    """What a rate is of the peak, and of what the card reaches in the large product."""
    of = ["%.1f %% %s" % (100 * rate / cards / PEAK, name)] if PEAK else []
    of += ["%.1f %% of the large product" % (100 * rate / cards / large_product)] if large_product else []
    return " = " + ", ".join(of) if of else ""


def product():
    global large_product
    batch, seq, n, layers = PRODUCT
    seconds = seconds_of(train(product_program(), 6, random_file(2 * batch * seq)))
    count = layers * 3 - 1  # the first has no gradient of its input
    rate = count * 2.0 * batch * seq * n * n / seconds
    text = "%d x %d x %d, %d of them a step of %.2f ms (loss, with a small product, and update included): %.1f TFLOP/s%s" % (
        batch * seq, n, n, count, seconds * 1e3, rate / 1e12, share(rate))
    large_product = rate
    return text


def attention():
    batch, seq, heads, head, layers = ATTENTION
    flops, figures = layers * 14.0 * batch * heads * seq * seq * head / 2, []
    for way, options in attention_ways():
        try:
            seconds = seconds_of(train(attention_program(options), 6, random_file(2 * batch * seq)))
            figures.append("%s %.2f ms, %.1f TFLOP/s%s" % (way, seconds * 1e3, flops / seconds / 1e12, share(flops / seconds)))
        except Failure as failure:
            fail("attention: " + way, failure)
    return "%d layers of %d x %d x %d heads of %d: %s" % (layers, batch, seq, heads, head, "; ".join(figures) or "none")


@functools.cache
def gpt2_seconds(replicas, graph="1"):
    """Seconds a step. There must be samples for one step, of all replicas together."""
    batch, seq = GPT2[0], GPT2[2]
    steps, size = 3 if FAKE else 12, 2 * batch * replicas * seq
    return seconds_of(train(gpt2_program(replicas), steps, text_file(size), PDC_CUDA_GRAPH=graph))


def gpt2_figures(seconds, replicas):
    batch, micro, seq, layers = GPT2
    flops = 6.0 * 124439808 + 6.0 * layers * 768 * seq
    rate = batch * replicas * seq / seconds
    return "batch %d x %d tokens, micro-batches of %d: %.1f ms a step, %.0f tokens/s, %.1f TFLOP/s%s" % (
        batch * replicas, seq, micro, seconds * 1e3, rate, rate * flops / 1e12, share(rate * flops, replicas, "MFU"))


def gpt2():
    return gpt2_figures(gpt2_seconds(1), 1)


def graph():
    return "%.1f ms a step with the graph, %.1f ms without" % (gpt2_seconds(1) * 1e3, gpt2_seconds(1, "0") * 1e3)


def scaling():
    if not MPI:
        return "skipped: it takes --mpi and several GPUs"
    if len(GPUS) < 2:
        raise NotDone("there is one GPU")
    alone, together = gpt2_seconds(1), gpt2_seconds(len(GPUS))
    return "dp=%d: %s; on one GPU %.1f ms, so %.1f %% lost by scaling over dp" % (
        len(GPUS), gpt2_figures(together, len(GPUS)), alone * 1e3, 100 * (1 - alone / together))


# ---- what compute-sanitizer finds ----

def sanitizer():
    if FAKE:
        return "skipped: it takes a real GPU"
    if not SANITIZER:
        raise NotDone("compute-sanitizer is neither in %s nor on PATH" % cuda())
    # a few at a time: each waits for the host most of the time
    few, runs, clean = concurrent.futures.ThreadPoolExecutor(4), [], 0
    data = text_file(SMALL_TEXT)
    for checker in ("memcheck", "initcheck", "racecheck", "synccheck"):
        head = [SANITIZER, "--tool=" + checker, "--error-exitcode=9"]
        for name in UNITS:
            runs.append((checker, name, few.submit(run_unit, name, head, ("quick", "one-type"))))
        runs.append((checker, "the small GPT", few.submit(train, small(), 2, data, head)))
    missed = []
    for checker, name, future in runs:
        try:
            future.result()
            clean += 1
        except NotReached:
            missed.append("%s on %s" % (checker, name))
        except Failure as failure:
            fail("sanitizer: %s on %s" % (checker, name), failure)
    if missed:
        undone.append("sanitizer: the time was over before " + ", ".join(missed))
    return ("%d of %d runs clean: memcheck, initcheck, racecheck and synccheck on %s (quick one-type) and the small GPT (whose tensors "
            "lie in one allocation, so that memcheck and initcheck see little of it)" % (clean, len(runs), ", ".join(UNITS)))


# ---- all of it ----

PARTS = (("build", building), ("kernels", kernels), ("agreement", agreement), ("nvrtc", nvrtc), ("cudnn", cudnn), ("product", product),
         ("attention", attention), ("gpt2-124m", gpt2), ("graph", graph), ("scaling", scaling), ("sanitizer", sanitizer))


def measure(name, part):
    """Runs a part; the line for it."""
    try:
        if left() <= 0:
            raise NotReached
        return part()
    except NotReached:
        undone.append("%s: the %.0f s were over" % (name, OPTIONS.seconds))
        return "not reached: the %.0f s are over" % OPTIONS.seconds
    except NotDone as reason:
        undone.append("%s: %s" % (name, reason))
        return "not done: %s" % reason
    except Failure as failure:
        fail(name, failure)
    except (OSError, ValueError, LookupError, ArithmeticError) as failure:  # a log that is not what it should be
        fail(name, Failure("%s: %s" % (type(failure).__name__, failure)))
    return "failed"


def main():
    needed = [(PDC, "make"), (os.path.join(LIBRARY, "libpdrt_cuda.a"), "make CUDA=%s" % cuda())]
    for path, command in needed + ([(os.path.join(BUILD, "fakegpu", "libcudart.so.13"), "make fakegpu")] if FAKE else []):
        if not os.path.exists(path):
            refuse("%s is not there: %s" % (path, command))
    if not tool("nvcc"):
        refuse("nvcc is neither in %s/bin nor on PATH: install the CUDA toolkit 13, or set CUDA_HOME to where it is" % cuda())
    print("card        %s, sm_%s, %d to be seen; %s" % (
        CARD, ARCH, len(GPUS), "peak %g TFLOP/s, dense bf16, %s" % (PEAK / 1e12, "as given" if OPTIONS.peak else "by its name") if PEAK
        else "no peak is known for a card of this name: --peak=TFLOPS gives one"), flush=True)
    for name, part in PARTS:
        print("%-11s %s" % (name, measure(name, part)), flush=True)
    for failure in failures:
        print("FAILED      " + failure)
    for what in undone:
        print("NOT DONE    " + what)
    print("%.0f s: %d failed, %d not done" % (time.monotonic() - BEGAN, len(failures), len(undone)))
    return 1 if failures else 3 if undone else 0


signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
try:
    status = main()
except KeyboardInterrupt:
    status = 1
finally:
    OPTIONS.seconds = 0  # nothing more is started
    pool.shutdown(wait=False, cancel_futures=True)
    for process in list(commands):
        end(process)
    shutil.rmtree(place, ignore_errors=True)
sys.exit(status)
