"""The calls of one training step, as a rank makes them, stream by stream: what is queued, in which order, with which sizes, and
which events join the streams. The lists of some programs are pinned in tests/cuda/calls; `make promote` (here: --promote)
writes them anew, and the difference is what a reviewer reads.

Addresses are left out. An event is named after the stream that records it and counted: `wait compute.3` follows the third
`record` of the compute stream."""
import difflib
import os
import re
import sys

import harness
from cuda_programs import build_cuda, calls, train_cuda
from harness import Random, add, check, read_program

FOLDER = os.path.join(harness.ROOT, "tests", "cuda", "calls")
# name: program, its defines, the ranks that are pinned
PROGRAMS = {
    "gpt-pp2-1f1b-bf16": ("gpt", {"layers": 2, "parallel.pp": 2, "schedule.kind": "1f1b", "schedule.microbatch": 6, "precision.compute": "bf16"}, (0, 1)),
    "gpt-pp2-interleaved": ("gpt", {"layers": 2, "tied": False, "parallel.pp": 2, "schedule.kind": "interleaved", "schedule.chunks": 2,
                                    "schedule.microbatch": 6}, (0, 1)),
    "mlp-dp2": ("mlp", {"parallel.dp": 2, "schedule.microbatch": 6}, (0,)),
    "llama-tp2": ("llama", {"layers": 1, "parallel.tp": 2, "schedule.microbatch": 12}, (0,)),
}
STREAMS = ["compute", "data", "reductions"] # s1, s2, s3; then one for each boundary of chunks and direction


def data_of(name):
    random = Random(7)
    if name == "mlp":
        return {"x": random.reals([36, 20], "F32"), "y": random.integers([36], 10)}
    return {"tokens": random.integers([36, 8], 48), "targets": random.integers([36, 8], 48)}


def stream_name(stream):
    number = int(stream[1:].split("@")[0])
    return STREAMS[number - 1] if number <= len(STREAMS) else "boundary %d" % (number - len(STREAMS))


def call_of(line):
    """A call without addresses; a kernel with its blocks and threads."""
    kernel = re.match(r"kernel (.*) grid ([\d,]+) block ([\d,]+)", line)
    if kernel:
        size = lambda text: "x".join(part for part in text.split(",") if part != "1") or "1"
        return "%s [%s of %s]" % (kernel.group(1), size(kernel.group(2)), size(kernel.group(3)))
    return re.sub(r" (<- )?(a\d+\+\d+|host)", "", line)


def step_of(text):
    """The list of the captured step: a paragraph for each stream, equal neighbours on one line."""
    streams, recorded, counts = {}, {}, {}
    step = text[text.index("cudaStreamBeginCapture"):text.index("cudaStreamEndCapture")]
    for stream, call in re.findall(r"^(s\S+) \(captured\): (.*)$", step, re.M):
        name, words = stream_name(stream), call.split()
        if words[0] == "cudaEventRecord":
            counts[name] = counts.get(name, 0) + 1
            recorded[words[1]] = "%s.%d" % (name, counts[name])
            call = "record %d" % counts[name]
        elif words[0] == "cudaStreamWaitEvent":
            call = "wait " + recorded[words[1]]
        else:
            call = call_of(call)
        lines = streams.setdefault(name, [])
        if lines and lines[-1][0] == call:
            lines[-1][1] += 1
        else:
            lines.append([call, 1])
    return "\n".join("%s\n%s" % (name, "".join("  %s%s\n" % (call, " (%d times)" % count if count > 1 else "") for call, count in streams[name]))
                     for name in sorted(streams, key=lambda name: (STREAMS + [name]).index(name)))


def lists(name):
    """What this program's ranks call now, by file."""
    program, defines, ranks = PROGRAMS[name]
    run = train_cuda(build_cuda(read_program(program), defines), "--steps=2", "--seed=3", "--quiet", data=data_of(program))
    return {os.path.join(FOLDER, "%s-rank%d.txt" % (name, rank)): step_of(calls(run, rank)) for rank in ranks}


def pinned(name):
    for path, now in lists(name).items():
        check(os.path.exists(path), "%s is not there: make promote" % path)
        with open(path) as file:
            before = file.read()
        check(before == now, "the step calls something else; if that is meant, make promote\n" + "\n".join(
            difflib.unified_diff(before.splitlines(), now.splitlines(), "pinned " + os.path.basename(path), "now", lineterm="", n=2)))


def promote():
    os.makedirs(FOLDER, exist_ok=True)
    for old in os.listdir(FOLDER):
        os.remove(os.path.join(FOLDER, old))
    for name in PROGRAMS:
        for path, now in lists(name).items():
            with open(path, "w") as file:
                file.write(now)


def test_no_list_is_left_over():
    wanted = {"%s-rank%d.txt" % (name, rank) for name, (_, _, ranks) in PROGRAMS.items() for rank in ranks}
    check(set(os.listdir(FOLDER)) == wanted, "in %s: %s" % (FOLDER, set(os.listdir(FOLDER)) ^ wanted))


for name in PROGRAMS:
    add("calls of a step: " + name, pinned, name)

if "--promote" in sys.argv:
    promote()
else:
    harness.main(__name__)
