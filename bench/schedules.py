"""Every kind of schedule on four pipeline ranks: what a step takes against what the plan predicts.

usage: python3 bench/schedules.py [BUILD] [--pp=N] [--microbatches=N] [--piece=MICROSECONDS] [--compute]
needs `make` first; prints a line for each kind.

Pieces of the model all take --piece for F, for I and for W (5000): ranks sleep through most of it (delays.c), so the
machine may have fewer cores than ranks, and what is measured is the order of the lists, messages and waiting.
--compute: pieces take the time that they compute. Then the machine must have a core for each rank, and the speed that
the prediction rests on is that of one rank alone, measured first.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

build = next((word for word in sys.argv[1:] if not word.startswith("--")), "build")
number = lambda name, default: next((int(word.split("=")[1]) for word in sys.argv if word.startswith("--%s=" % name)), default)
pp, microbatches, piece, compute = number("pp", 4), number("microbatches", 8), number("piece", 5000), "--compute" in sys.argv
build = os.path.abspath(build)
library, pdc, delays = os.path.join(build, "lib", "pdc"), os.path.join(build, "pdc"), os.path.abspath("bench/delays.c")

KINDS = [("gpipe", 1), ("1f1b", 1), ("eager-1f1b", 1), ("interleaved", 2), ("breadth-first", 2), ("zb-h1", 1), ("zb-h2", 1), ("interleaved-zb", 2),
         ("zb-v", 2), ("v-half", 2), ("v-min", 2), ("1f1b-v", 2), ("dualpipe", 1), ("dualpipe, 2 accumulators", 1), ("dualpipe-v", 2), ("chimera", 1),
         ("chimera, 2 accumulators", 1), ("hanayo", 2), ("pipedream", 1), ("pipedream-2bw", 1), ("auto", 1)]
MODEL = """
config const rows = 8, width = 64, pieces = 16, global = 8;
dim batch = global, seq = rows, n = width;
optimizer < kind=sgd; lr=0.01; >
data < shuffle=off; >
model net(x: f32[batch, seq, n], y: f32[batch, seq, n]) {
  repeat pieces { param w: [n, n] = normal(0.05); x = tanh(x @ w); }
  loss mse(x, y);
}
"""
SIZES = {"rows": 512, "width": 512} if compute else {"rows": 8, "width": 64}
STEPS = 9


def words(name):
    with open(os.path.join(library, name)) as file:
        return file.read().split()


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit("%s\n%s%s" % (" ".join(command), done.stdout, done.stderr))
    return done.stdout


def options(kind, chunks, ranks, flops):
    kind, _, more = kind.partition(", ")
    defines = {**SIZES, "pieces": 4 * pp, "global": microbatches, "parallel.pp": ranks, "schedule.kind": kind, "schedule.chunks": chunks,
               "schedule.accumulators": 2 if more else 1, "cluster.flops": repr(flops)}
    return [word for key, value in defines.items() for word in ("-D", "%s=%s" % (key, value))]


def measure(place, source, defines):
    """Time of a step, in ms, without the first: the least, which other work on the machine disturbs least, and the median."""
    code, program, log = (os.path.join(place, name) for name in ("net.c", "net", "log.jsonl"))
    run(pdc, "-S", *defines, "-o", code, source)
    own = [] if compute else [delays, "-Wl,--wrap=pd_main"]
    run("mpicc", *words("cflags"), "-O3", "-I" + os.path.join(library, "include"), code, *own, os.path.join(library, "libpdrt.a"), *words("libs"), "-o", program, cwd=place)
    times = {} if compute else {"PD_DELAY_" + kind: str(piece) for kind in "FIW"}
    run(program, "--threads=1", "--quiet", "--steps=%d" % STEPS, "--data=x=%s,y=%s" % (data, data), "--log=" + log, env=dict(os.environ, **times))
    with open(log) as file:
        times = [line["step_ms"] for line in list(map(json.loads, file))[1:] if "step" in line]
    return min(times), statistics.median(times)


def write_data(path):
    size = microbatches * SIZES["rows"] * SIZES["width"]
    header = "{'descr': '|u1', 'fortran_order': False, 'shape': (%d, %d, %d), }" % (microbatches, SIZES["rows"], SIZES["width"])
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(i * 7 % 3 for i in range(size)))


with tempfile.TemporaryDirectory() as place:
    source, data = os.path.join(place, "net.pd"), os.path.join(place, "data.npy")
    write_data(data)
    with open(source, "w") as file:
        file.write(MODEL)
    plan_of = lambda defines: json.loads(run(pdc, "--emit=plan", *defines, source))
    one = plan_of(options("gpipe", 1, 1, 1e12))["chunks"][0]
    if compute:
        flops = sum(one["flops"].values()) * microbatches / (measure(place, source, options("gpipe", 1, 1, 1e12))[0] / 1e3)
        print("one rank alone computes %.1f GFLOP/s; %d cores" % (flops / 1e9, os.cpu_count()))
    else:
        flops = one["flops"]["F"] / (4 * pp) / (piece / 1e6)
    print("%d ranks, %d micro-batches, %d pieces" % (pp, microbatches, 4 * pp))
    print("%-26s %8s %12s %12s %8s %12s" % ("kind", "chunks", "predicted ms", "measured ms", "ratio", "median ms"))
    for kind, chunks in KINDS:
        defines = options(kind, chunks, pp, flops)
        plan = plan_of(defines)
        predicted = plan["prediction"]["step_ns"] / 1e6
        least, median = measure(place, source, defines)
        print("%-26s %8d %12.1f %12.1f %8.3f %12.1f" % (kind, plan["schedule"]["chunks"], predicted, least, least / predicted, median), flush=True)
