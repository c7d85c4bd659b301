"""The CUDA target on a real GPU, in under five minutes: what the fake GPU of the tests cannot show.

usage: bench/gpu.sh [--mpi]                     builds, then runs this: one GPU and no MPI, or with --mpi all GPUs
       python3 bench/gpu.py [BUILD] --fake      the same on the fake GPU with small sizes, to test this script

Prints a line of figures for each part, and says what failed; exit status 1 then.
  kernels       the kernels' unit tests (tests/cuda) against the reference in double
  agreement     20 training steps of a small GPT against the host target: f32, and bf16 within its rounding
  nvrtc         the f32 program again, its kernels compiled by NVRTC: its losses must be those of nvcc's program, to the bit
  sanitizer     compute-sanitizer's memcheck, racecheck, initcheck and synccheck on two steps of it
  cudnn         attention by cuDNN, forward and backward, against the same in double
  attention     a model of nothing but attention, forward and backward, in bf16: TFLOP/s by cuDNN, by cuDNN with sums in any order,
                and by the program's own kernels; 14 b h s^2 d FLOPs of a layer, halved as half of the scores are masked
  product       one large product, forward and both gradients, in bf16: TFLOP/s, of the card's dense peak
  gpt2-124m     bf16, micro-batches of 1024 tokens a sample: tokens/s and MFU
                MFU = tokens/s x (6 N + 6 L E T) / peak: N all parameters, L layers, E width, T sequence, causal half
  graph         the same without the recorded step: what recording gains
  exposed       with --mpi and several GPUs: the share of a step that sums over replicas are waited for, from the same work a
                GPU on one and on all of them: 1 - t(1) / t(n)
"""
import json
import os
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
arguments = [word for word in sys.argv[1:] if not word.startswith("-")]
FAKE, MPI = "--fake" in sys.argv, "--mpi" in sys.argv
BUILD = os.path.abspath(arguments[0] if arguments else os.path.join(ROOT, "build"))
PDC = os.path.join(BUILD, "pdc")
PEAKS = {"A100": 312e12, "H100": 989e12, "H200": 989e12, "B200": 2250e12}  # dense bf16 FLOP/s
place = tempfile.mkdtemp(prefix="pdc-gpu-")
failures = []


def run(words, **more):
    result = subprocess.run(words, capture_output=True, text=True, **more)
    if result.returncode:
        raise RuntimeError("%s: status %d\n%s" % (" ".join(words), result.returncode, (result.stdout + result.stderr)[-2000:]))
    return result.stdout


def arch():
    if FAKE:
        return "90"
    return run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]).split()[0].replace(".", "")


def card():
    return "fake GPU" if FAKE else run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]).splitlines()[0]


def build(name, text, target="cuda", options=(), **defines):
    """The program NAME.TARGET of a model's text; options: more of them."""
    path = os.path.join(place, name + ".pd")
    with open(path, "w") as file:
        file.write(text)
    if target == "cuda":
        options = ["--target=cuda", "--arch=sm_" + arch(), "--save-temps", *options] + ([] if MPI else ["--no-mpi"])
    else:
        options = ["--target=host", *options]
    words = [word for key, value in defines.items() for word in ("-D", "%s=%s" % (key.replace("__", "."), value))]
    program = os.path.join(place, "%s.%s" % (name, target))
    run([PDC, *options, *words, "-o", program, path])
    return program


def environment(program, *options):
    """What a process on the GPU gets; options: of the compiler of the fake one's twin."""
    if not FAKE or not os.path.exists(program + ".cu") and not options:
        return dict(os.environ)
    source = program + ".cu" if os.path.exists(program + ".cu") else os.path.join(ROOT, "tests", "cuda", os.path.basename(program) + ".cu")
    twin = program + "-twin.so"
    if not os.path.exists(twin):
        library = os.path.join(BUILD, "lib", "pdc")
        run(["g++", "-x", "c++", "-std=c++17", "-O1", "-DPD_FAKE_GPU", "-include", os.path.join(ROOT, "tests", "fakegpu", "device.h"),
             "-isystem", os.environ.get("CUDA", "/usr/local/cuda") + "/include", "-I" + library + "/include", "-I" + library + "/cuda", "-fPIC",
             "-shared", "-Wl,-Bsymbolic", *options, source, "-o", twin])
    return dict(os.environ, LD_LIBRARY_PATH=os.path.join(BUILD, "fakegpu"), PD_FAKE_KERNELS=twin, PD_FAKE_ARCH="90", PD_FAKE_DEVICES="2")


def train(program, steps, data, head=(), **variables):
    """The log's lines of a run's steps."""
    log = os.path.join(place, "log.jsonl")
    run([*head, program, "--steps=%d" % steps, "--seed=3", "--data=" + data, "--log=" + log], env=dict(environment(program), **variables))
    with open(log) as file:
        return [line for line in map(json.loads, file) if "step" in line]


def text_file(size):
    path = os.path.join(place, "text")
    with open(path, "w") as file:
        file.write("".join("%d squared is %d. " % (i, i * i) for i in range(size)))
    return path


def kernels():
    tests, passed = os.path.join(ROOT, "tests", "cuda"), []
    include = ["-I" + os.path.join(ROOT, part) for part in ("templates/cuda", "runtime", "tests/cuda")]
    reference = os.path.join(place, "ref.o")
    run(["gcc", "-std=c11", "-O2", "-fPIC", *include, "-c", os.path.join(ROOT, "runtime", "kernels", "ref.c"), "-o", reference])
    names = sorted(name[:-3] for name in os.listdir(tests) if name.endswith("_test.cu") and name != "faults_test.cu")
    builds = [(os.path.join(place, name), subprocess.Popen(
        ["nvcc", "-O2", "-std=c++17", "-arch=sm_" + arch(), "-cudart", "shared", *include, os.path.join(tests, name + ".cu"), reference,
         "-o", os.path.join(place, name)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)) for name in names]
    for program, compiler in builds:
        out = compiler.communicate()[0]
        if compiler.returncode:
            raise RuntimeError("nvcc: " + out[-2000:])
        variables = environment(program, "-fno-strict-aliasing", *include, "-Wl," + reference, "-DPD_QUICK")
        ended = subprocess.run([program] + (["quick", "one-type"] if FAKE else []), capture_output=True, text=True, env=variables)
        passed.append("%s %s" % (os.path.basename(program), (ended.stdout.splitlines() or ["nothing"])[-1]))
        if ended.returncode:
            failures.append("kernels: %s: status %d\n%s" % (program, ended.returncode, (ended.stdout + ended.stderr)[-2000:]))
    return "; ".join(passed)


def small_gpt():
    with open(os.path.join(ROOT, "tests", "programs", "gpt.pd")) as file:
        return file.read()


def agreement():
    data, steps, figures = text_file(4000), 5 if FAKE else 20, []
    host = [line["loss"] for line in train(build("small", small_gpt(), "host", words=256), steps, data)]
    for precision, bound in (("f32", 1e-4), ("bf16", 2e-2)):
        ours = [line["loss"] for line in train(build("small-" + precision, small_gpt(), words=256, precision__compute=precision), steps, data)]
        error = max(abs(a - b) / abs(b) for a, b in zip(ours, host))
        figures.append("%s %.1e" % (precision, error))
        if not error < bound:
            failures.append("agreement %s: losses %s, on the host %s" % (precision, ours, host))
    return "%d steps, largest relative difference of the loss from the host's: %s" % (steps, ", ".join(figures))


def nvrtc():
    data, steps = text_file(4000), 5 if FAKE else 20
    theirs, ours = ([line["loss"] for line in train(build("small-" + compiler, small_gpt(), options=["--cuda-compiler=" + compiler], words=256), steps, data)]
                    for compiler in ("nvcc", "nvrtc"))
    if ours != theirs:
        failures.append("nvrtc: losses %s, of nvcc's program %s" % (ours, theirs))
    return "%d steps, %s losses as of nvcc's program" % (steps, "the same" if ours == theirs else "other")


def sanitizer():
    if FAKE or not shutil.which("compute-sanitizer"):
        return "skipped: no compute-sanitizer"
    program, data, done = build("small-f32", small_gpt(), words=256), text_file(4000), []
    for tool in ("memcheck", "racecheck", "initcheck", "synccheck"):
        try:
            train(program, 2, data, head=("compute-sanitizer", "--tool=" + tool, "--error-exitcode=9"))
            done.append(tool)
        except RuntimeError as failure:
            failures.append("%s: %s" % (tool, failure))
    return "clean: " + ", ".join(done)


def seconds_of(lines):
    return statistics.median(line["step_ms"] for line in lines[len(lines) // 2:]) / 1000


def peak():
    return next((value for name, value in PEAKS.items() if name in card()), None)


def share(rate):
    return "" if not peak() else " = %.1f %% of %.0f TFLOP/s" % (100 * rate / peak(), peak() / 1e12)


def array_file(name, shape):
    """Numbers of that shape, whose first axis repeats one row."""
    path, width = os.path.join(place, name + ".npy"), 1
    for size in shape[1:]:
        width *= size
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }" % ", ".join(map(str, shape))
    header += " " * (-(len(header) + 11) % 64) + "\n"
    row = struct.pack("<%df" % width, *[((i * 7919) % 1000 - 500) / 500 for i in range(width)])
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        for _ in range(shape[0]):
            file.write(row)
    return path


CUDNN = os.path.exists(os.path.join(BUILD, "lib", "pdc", "cudnn"))


def cudnn():
    if not CUDNN:
        return "skipped: pdc was built without cuDNN's headers"
    cuda, program = os.environ.get("CUDA", "/usr/local/cuda"), os.path.join(place, "attention")
    runtime = os.path.join(ROOT, "runtime")
    sources = [os.path.join(runtime, "cuda", name) for name in ("attention_cudnn.c", "attention_graph.c", "cudnn_library.c")]
    run(["gcc", "-std=gnu11", "-O1", "-I" + runtime, "-isystem", cuda + "/include", os.path.join(ROOT, "tests/fakegpu/programs/attention.c"),
         *sources, "-o", program, "-L" + cuda + "/lib64", "-Wl,-rpath," + cuda + "/lib64", "-lcudart", "-ldl", "-lm"])
    variables = dict(os.environ, LD_LIBRARY_PATH=os.path.join(BUILD, "fakegpu"), PD_FAKE_ARCH="90") if FAKE else dict(os.environ)
    ended = subprocess.run([program], capture_output=True, text=True, env=variables)
    if ended.returncode:
        failures.append("cudnn: status %d\n%s" % (ended.returncode, (ended.stdout + ended.stderr)[-2000:]))
    return "%d attentions %s" % (len(ended.stdout.splitlines()), "agree" if ended.returncode == 0 else "do not all agree")


def attention():
    batch, seq, heads, head, layers = (2, 16, 2, 16, 2) if FAKE else (4, 4096, 16, 128, 4)
    text = """
dim batch = %d, seq = %d, heads = %d, head = %d;
schedule < microbatch=%d; >
precision < compute=bf16; >
optimizer < kind=sgd; lr=1e-9; >
data < shuffle=off; >
model attend(x: f32[batch, seq, heads, head], y: f32[batch, seq, heads, head]) {
  repeat %d { param w: [head] = 1; q = x * w; x = sdpa(q, q, q, causal=true); }
  loss mse(x, y);
}""" % (batch, seq, heads, head, batch, layers)
    path, figures = array_file("positions", (batch, seq, heads, head)), []
    flops = layers * 14.0 * batch * heads * seq * seq * head / 2
    ways = [("own kernels", ["--attention=own"])]
    if CUDNN:
        ways += [("cuDNN", ["--attention=cudnn"]), ("cuDNN, sums in any order", ["--attention=cudnn", "--nondeterministic"])]
    for number, (way, options) in enumerate(ways):
        seconds = seconds_of(train(build("attend%d" % number, text, options=options), 6, "x=%s,y=%s" % (path, path)))
        figures.append("%s %.2f ms, %.1f TFLOP/s%s" % (way, seconds * 1e3, flops / seconds / 1e12, share(flops / seconds)))
    return "%d layers of %d x %d x %d heads of %d: %s" % (layers, batch, seq, heads, head, "; ".join(figures))


def product():
    n, batch = (64, 64) if FAKE else (8192, 8192)
    text = """
dim batch = %d, n = %d;
schedule < microbatch=%d; >
precision < compute=bf16; >
optimizer < kind=sgd; lr=1e-9; >
data < shuffle=off; >
model wide(x: f32[batch, n], y: f32[batch, n]) {
  repeat 16 { param w: [n, n] = normal(0.01); x = x @ w; }
  loss mse(x, y);
}""" % (batch, n, batch)
    path = array_file("x", (batch, n))
    seconds = seconds_of(train(build("wide", text), 6, "x=%s,y=%s" % (path, path)))
    count = 16 * 3 - 1  # the first has no gradient of its input
    rate = count * 2.0 * batch * n * n / seconds
    return "%d x %d x %d, %d of them a step of %.2f ms (copy of the data and update included): %.1f TFLOP/s%s" % (
        batch, n, n, count, seconds * 1e3, rate / 1e12, share(rate))


def gpt2_program(name, replicas=1):
    """GPT-2 124M with the same work on every replica; its batch, micro-batch, sequence and layers."""
    with open(os.path.join(ROOT, "examples", "gpt2-124m.pd")) as file:
        text = file.read()
    batch, micro, seq, layers = (2, 1, 16, 1) if FAKE else (64, 32, 1024, 12)
    text = re.sub(r"dim batch = 4, seq = 64", "dim batch = %d, seq = %d" % (batch * replicas, seq), text)
    text = re.sub(r"microbatch=4", "microbatch=%d" % micro, text)
    if FAKE:
        text = text.replace("50257", "512").replace("heads = 12", "heads = 2")
    return build(name, text, layers=layers, precision__compute="bf16", parallel__dp=replicas), batch, micro, seq, layers


def gpt2():
    program, batch, micro, seq, layers = gpt2_program("gpt2")
    data, steps = text_file(20000 if not FAKE else 2000), 3 if FAKE else 12
    figures = [seconds_of(train(program, steps, data, PDC_CUDA_GRAPH=graph)) for graph in ("1", "0")]
    flops = 6.0 * 124439808 + 6.0 * layers * 768 * seq
    rate = batch * seq / figures[0]
    print("gpt2-124m   batch %d x %d tokens, micro-batches of %d: %.1f ms a step, %.0f tokens/s, %.1f TFLOP/s%s"
          % (batch, seq, micro, figures[0] * 1e3, rate, rate * flops / 1e12, share(rate * flops)), flush=True)
    return "%.1f ms a step with the graph, %.1f ms without" % (figures[0] * 1e3, figures[1] * 1e3)


def exposed():
    devices = 2 if FAKE else len(run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]).splitlines())
    if not MPI or devices < 2:
        return "skipped: it takes --mpi and several GPUs"
    data, steps = text_file(20000 if not FAKE else 2000), 3 if FAKE else 12
    alone, together = (seconds_of(train(gpt2_program("gpt2-dp%d" % n, n)[0], steps, data)) for n in (1, devices))
    return "%.1f ms a step on one GPU, %.1f ms on %d: %.1f %%" % (alone * 1e3, together * 1e3, devices, 100 * (1 - alone / together))


began = time.monotonic()
print("card        %s, sm_%s" % (card(), arch()), flush=True)
try:
    for name, part in (("kernels", kernels), ("agreement", agreement), ("nvrtc", nvrtc), ("sanitizer", sanitizer), ("cudnn", cudnn),
                       ("attention", attention), ("product", product), ("graph", gpt2),
                       ("exposed", exposed)):
        try:
            print("%-11s %s" % (name, part()), flush=True)
        except RuntimeError as failure:
            failures.append("%s: %s" % (name, failure))
finally:
    shutil.rmtree(place, ignore_errors=True)
for failure in failures:
    print("FAILED      " + failure)
print("%.0f s" % (time.monotonic() - began))
sys.exit(1 if failures else 0)
