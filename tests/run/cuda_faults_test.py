"""Mistakes in whole programs of the CUDA target. The fake GPU plants one in a call that an unmodified program makes
(PD_FAKE_MISTAKE, tests/fakegpu/fake.h), on one rank; the suite's proofs must find each, and name what is wrong.

Every event wait of two steps, one queued and one captured, is left out in turn. Where nothing finds that, the wait must be
one of the two kinds that are known to be redundant there."""
import os
import re

import harness
from cuda_programs import calls, small, small_data, start_cuda, train_cuda
from harness import add, check, once

SQUARE = (2, 2, 1)  # pp, dp, tp


def clean(layout, precision="f32"):
    return once(("clean", layout, precision), lambda: train_cuda(
        small(layout, precision), "--steps=3", "--seed=3", "--quiet", sanitize="races", data=small_data(layout[1])))


def planted(mistake, layout=SQUARE, precision="f32"):
    """The run with a mistake: what its fault says, or that its numbers are not those of the clean run; None: all is well."""
    run, _ = start_cuda(small(layout, precision), "--steps=3", "--seed=3", "--quiet", sanitize="races", data=small_data(layout[1]), timeout=4,
                        environment={"PD_FAKE_MISTAKE": mistake})
    if run.result.code:
        return run.result.err
    ours, wanted = run.losses + run.norms, clean(layout, precision).losses + clean(layout, precision).norms
    return None if ours == wanted else "other numbers: losses %s, not %s" % (run.losses, clean(layout, precision).losses)


def list_of(rank, layout=SQUARE, precision="f32"):
    return calls(clean(layout, precision), rank).splitlines()


# ---- every wait ----

def waits(rank):
    """(its number, line) of each event wait of the first two steps."""
    lines = list_of(rank)
    return list(enumerate((i for i, line in enumerate(lines[:lines.index(next(l for l in lines if "cudaStreamEndCapture" in l))])
                           if "cudaStreamWaitEvent" in line), 1))


def stream_of(line):
    return line.split(":")[0].split(" ")[0]


def redundant(lines, at):
    """Whether a wait is there for a case that this place of the list does not have: a receive waits for what read its slot
    last, and in the first step nothing has; a send that is waited for is older than one of the same stream that the
    next line waits for."""
    stream, event = stream_of(lines[at]), lines[at].split()[-1]
    if "ncclRecv" in lines[at + 1] and "captured" not in lines[at]:
        return not any("ncclRecv" in line for line in lines[:at])
    following = lines[at + 1].split()
    if "cudaStreamWaitEvent" not in following or stream_of(lines[at + 1]) != stream:
        return False
    recorded = {name: max(i for i in range(at) if lines[i].endswith("cudaEventRecord " + name)) for name in (event, following[-1])}
    return stream_of(lines[recorded[event]]) == stream_of(lines[recorded[following[-1]]]) and recorded[event] < recorded[following[-1]]


def without_wait(rank, number, at):
    lines, said = list_of(rank), planted("drop:cudaStreamWaitEvent:%d@%d" % (number, rank))
    if said is None:
        check(redundant(lines, at), "nothing finds that `%s` is missing before `%s`" % (lines[at], lines[at + 1]))
    else:
        check("fault: race" in said or "fault: uninitialised" in said or "not joined" in said or "outside the capture" in said, "found, but not named: " + said)
        check(not redundant(lines, at), "`%s` is not redundant: %s" % (lines[at], said))


def every_wait(rank, part):
    found = waits(rank)
    check(len(found) >= 30, "%d waits" % len(found))
    for number, at in found[part::4]:
        without_wait(rank, number, at)


# ---- mistakes by name ----

def nth(lines, call, condition):
    """The number of the first call of a name whose line a condition holds for."""
    number = 0
    for i, line in enumerate(lines):
        if re.match(r"[^:]+: %s\b" % re.escape(call), line):
            number += 1
            if condition(lines, i):
                return number
    raise harness.Failure("no such call of " + call)


def before(text):
    return lambda lines, i: text in lines[i + 1]


def after(text):
    return lambda lines, i: text in lines[i - 1]


def joins(text):
    """The compute stream waits for an event that was recorded behind such a call."""
    def condition(lines, i):
        records = [k for k in range(i) if lines[k].endswith("cudaEventRecord " + lines[i].split()[-1])]
        return stream_of(lines[i]) == "s1" and records and text in lines[records[-1] - 1]
    return condition


def has(text):
    return lambda lines, i: text in lines[i]


def in_graph(condition):
    return lambda lines, i: "(captured)" in lines[i] and condition(lines, i)


def step(condition):
    """Behind the first copy of data: not what sets a program up."""
    return lambda lines, i: any(line.startswith("s2: cudaMemcpyAsync") for line in lines[:i]) and condition(lines, i)


ANY = lambda lines, i: True
RACE = r"fault: (race|uninitialised): " # whichever of the two ran first
UNINITIALISED = r"fault: uninitialised: "
# name: (mistake, call, which one, what must be said[, layout, precision])
MISTAKES = {
    "compute does not wait for the data": ("drop", "cudaStreamWaitEvent", ANY, RACE + r".*pd_gather_kernel"),
    "a send does not wait for what it sends": ("drop", "cudaStreamWaitEvent", lambda l, i: "ncclSend" in l[i + 1] and "ncclSend" in "".join(l[:i]), RACE + r"ncclSend"),
    "a slot is written before it is sent": ("drop", "cudaStreamWaitEvent", joins("ncclSend"), RACE + r".*ncclSend"),
    "compute does not wait for a receive": ("drop", "cudaStreamWaitEvent", joins("ncclRecv"), RACE + r"(ncclRecv|cublasLtMatmul)"),
    "a receive does not wait for the last reader": ("drop", "cudaStreamWaitEvent", lambda l, i: "ncclRecv" in l[i + 1] and "ncclRecv" in "".join(l[:i]), RACE + r"ncclRecv"),
    "a reduction does not wait for its gradients": ("drop", "cudaStreamWaitEvent", before("ncclAllReduce f32"), RACE + r"ncclAllReduce"),
    "the norm does not wait for reductions": ("drop", "cudaStreamWaitEvent", joins("ncclAllReduce"), RACE + r".*ncclAllReduce"),
    "a captured stream is not forked": ("drop", "cudaStreamWaitEvent", in_graph(before("ncclSend")), r"recorded outside the capture"),
    "a captured stream is not joined": ("drop", "cudaStreamWaitEvent", in_graph(joins("ncclAllReduce")), r"ncclAllReduce .* is not joined"),
    "the event of a send is recorded too early": ("early", "cudaEventRecord", lambda l, i: "ncclSend" in l[i + 2] and "ncclSend" in "".join(l[:i]), RACE),
    "the event of a receive is recorded too early": ("early", "cudaEventRecord", after("ncclRecv"), RACE + r"(.*ncclRecv|cublasLtMatmul)"),
    "the event of a reduction is recorded too early": ("early", "cudaEventRecord", after("ncclAllReduce"), RACE + r".*ncclAllReduce"),
    "the event of the data is recorded too early": ("early", "cudaEventRecord", after("cudaMemcpyAsync"), RACE + r".*pd_gather_kernel"),
    "a captured event is recorded too early": ("early", "cudaEventRecord", in_graph(after("ncclAllReduce")), r"is not joined|" + RACE),
    "a send is left out": ("drop", "ncclSend", ANY, r"fault: no-progress: (.*\n)*.*nccl|fault: message mismatch"),
    "a receive is left out": ("drop", "ncclRecv", ANY, r"fault: no-progress: (.*\n)*.*nccl|fault: message mismatch|" + RACE),
    "a message has half its size": ("half", "ncclSend", ANY, r"fault: message mismatch: .*count=128.*count=64"),
    "a reduction has half its size on one rank": ("half", "ncclAllReduce", ANY, r"fault: collective mismatch: .*count="),
    "two reductions are in another order on one rank": ("late", "ncclAllReduce", ANY, r"fault: collective mismatch: .*ncclAllReduce"),
    "a reduction goes to another communicator": ("other", "ncclAllReduce", ANY, r"fault: (collective mismatch|no-progress|race)"),
    "the squares are summed over another communicator": ("other", "ncclAllReduce", has("f64"), r"fault: (collective mismatch|no-progress|race)"),
    "the host reads results without waiting": ("drop", "cudaStreamSynchronize", step(after("device-to-host")), r"fault: host-access: the program has not waited"),
    "the graph of a step is not launched": ("drop", "cudaGraphLaunch", ANY, r"other numbers|not finite|no-progress|" + RACE),
    "gradients are not cleared": ("drop", "cudaMemsetAsync", step(lambda l, i: " 40 " not in l[i] and "a1+" in l[i] and int(l[i].split()[3]) > 1000), UNINITIALISED),
    "moments are not cleared": ("drop", "cudaMemsetAsync", lambda l, i: int(l[i].split()[3]) > 1000, UNINITIALISED + r".*pd_adamw_kernel"),
    "half of the gradients are cleared": ("half", "cudaMemsetAsync", step(lambda l, i: int(l[i].split()[3]) > 1000), UNINITIALISED),
    "half of the data is copied": ("half", "cudaMemcpyAsync", step(lambda l, i: l[i].startswith("s2: ")), r"other numbers|not finite|fault"),
    "device memory is half as large": ("half", "cudaMalloc", ANY, r"fault: out-of-bounds|the pointers are host-to-host"),
    "pinned memory is half as large": ("half", "cudaMallocHost", ANY, r"fault: out-of-bounds"),
    "an update is left out": ("drop", "kernel pd_adamw_kernel", ANY, r"ranks that hold the same weights differ"),
    "rows of a product are further apart": ("wide", "cublasLtMatrixLayoutCreate", None, UNINITIALISED + r"cublasLtMatmul"),
    "the model's copy of the weights is not made": ("drop", "kernel pd_scale_kernel", has("<false, float, __nv_bfloat16>"), UNINITIALISED, (1, 1, 1), "bf16"),
}


def mistake(name):
    kind, call, condition, says, *where = MISTAKES[name]
    layout, precision = where or (SQUARE, "f32")
    number = nth(list_of(0, layout, precision), call, condition) if condition else 1
    said = planted("%s:%s:%d@0" % (kind, call, number), layout, precision)
    check(said is not None, "nothing finds it")
    check(re.search(says, said), "found, but not named: " + said)


def test_mistakes_are_counted():
    check(len(MISTAKES) >= 25, "%d mistakes" % len(MISTAKES))
    run, _ = start_cuda(small((1, 1, 1), "f32"), "--steps=1", data=small_data(1), environment={"PD_FAKE_MISTAKE": "lose:cudaFree:1"})
    check(run.result.code != 0 and "PD_FAKE_MISTAKE=lose:cudaFree:1: should be" in run.result.err, run.result.describe())


# Ranks of one stage make the same calls. The last stage's waits are of the same kinds, so they are tried when asked: ALL_WAITS=1.
for rank in (0, 2) if os.environ.get("ALL_WAITS") else (0,):
    for part in range(4):
        add("every wait of rank %d, part %d of 4" % (rank, part + 1), every_wait, rank, part)
for name in MISTAKES:
    add("mistake: " + name, mistake, name)

harness.main(__name__, jobs=3)
