"""The fake GPU itself: the device language, streams and graphs in many orders, CUDA's error codes, and planted mistakes, each
of which must be found and named. All programs are built by nvcc and run as they are (tests/fakegpu/programs)."""
import os
import re

import fakegpu
import harness
from harness import check

PROGRAMS = "tests/fakegpu/programs/"
SEEDS = range(20)


def go(name, part, sanitize=None, seed=0, **settings):
    source = PROGRAMS + name + ".cu"
    return fakegpu.run(fakegpu.nvcc(source), fakegpu.twin(source, sanitize=sanitize), part, sanitize=sanitize, seed=seed, **settings)


def passes(*words, **more):
    result = go(*words, **more)
    check(result.code == 0 and result.out.endswith("ok\n"), "should pass: " + result.describe())
    return result


# ---- correct programs ----

def device_language(**settings):
    passes("device", "all", **settings)


for name, settings in {
        "forward": {"blocks": "forward"}, "reverse": {"blocks": "reverse"}, "threads": {"threads": 2},
        "address": {"sanitize": "address"}, "thread": {"sanitize": "thread"}}.items():
    harness.add("device_language_" + name, lambda settings=settings: device_language(**settings))
for seed in (1, 2, 3):
    harness.add("device_language_seed_%d" % seed, lambda seed=seed: device_language(seed=seed))

STREAMS = ("double_buffering", "graph", "legacy_stream", "copies", "stream_ordered", "host_functions", "queries",
           "launch_limits", "capture_rules", "two_devices")


def every_order(part):
    for seed in SEEDS:
        passes("streams", part, seed=seed, devices=2)


for part in STREAMS:
    harness.add("streams_" + part, lambda part=part: every_order(part))
    for sanitizer in ("address", "thread", "races"):
        harness.add("streams_%s_%s" % (part, sanitizer),
                    lambda part=part, sanitizer=sanitizer: passes("streams", part, sanitize=sanitizer, seed=5, devices=2))


# ---- mistakes: how each must be found ----
# A text: what stderr or stdout must say, at every seed. Sometimes(text): at one of the seeds, at least. None: only a sanitizer
# finds it.

class Sometimes(str):
    pass


FAULTS = {
    "missing_wait": Sometimes(r"wrong: element 0 is"),
    "wait_before_record": Sometimes(r"wrong: element 0 is"),
    "reused_too_early": Sometimes(r"wrong: element 0 is 2, not 1"),
    "read_too_early": Sometimes(r"wrong: element 0 is -?nan, not 1"),
    "overwritten_too_early": Sometimes(r"wrong: element 0 is 7, not 3"),
    "graph_without_dependency": Sometimes(r"wrong: element 0 is -?nan, not 3"),
    "nonblocking_without_order": Sometimes(r"wrong: element 0 is 0, not 1"),
    "freed_in_another_stream": Sometimes(r"fault: use-after-free: kernel add_to, .*128 bytes into a2 \(cudaMallocAsync, 256 bytes\)"
                                         r"|fault: use-after-free: kernel add_to, .*0 bytes into a2 \(cudaMallocAsync"),
    "used_before_malloc": Sometimes(r"fault: use-before-malloc: kernel fill, .*allocation has not run"),
    "never_waited_for": Sometimes(r"fault: unfinished: never waited for:\n  kernel fill .* on s1"),
    "leak": r"fault: leak: 1 allocations, 1000 bytes, not freed at exit; the first is a1 \(cudaMalloc, 1000 bytes\)",
    "leaked_event": r"fault: leak: not destroyed at exit: 1 event",
    "double_free": r"fault: double-free: cudaFree: 0 bytes into a1 \(cudaMalloc, 1000 bytes\), device memory, freed before",
    "freed_inside": r"fault: bad-free: cudaFree: 256 bytes into a1",
    "wrong_free": r"fault: bad-free: cudaFreeHost: 0 bytes into a1 .*device memory",
    "used_after_free": r"fault: use-after-free: kernel fill, argument 0: 0 bytes into a1",
    "copy_out_of_range": r"fault: out-of-bounds: cudaMemcpy: 260 bytes .* 3 bytes after the end of a1",
    "fill_out_of_range": r"fault: out-of-bounds: cudaMemsetAsync: 256 bytes .* 3 bytes after the end of a1",
    "kernel_out_of_bounds": r"fault: out-of-bounds: kernel fill, .*thread \(63,0,0\): .* 0 bytes after the end of a1",
    "kernel_in_the_slack": r"fault: out-of-bounds: something was written 0 bytes after the end of a1",
    "host_touches_device": r"fault: host-access: the program's own code touches device memory .* 0 bytes into a1",
    "host_pointer_to_kernel": r"fault: kernel-argument: kernel fill, argument 0: 0x[0-9a-f]+ is not memory of a device",
    "pointers_swapped": r"cudaMemcpy: the kind is host-to-device, the pointers are device-to-host",
    "never_written": r"wrong: element 0 is -?nan",
    "destroyed_stream": r"fault: handle: cudaStreamSynchronize: this stream was destroyed before",
    "event_destroyed_twice": r"fault: handle: destroy: this event was destroyed before",
    "memory_of_another_device": r"fault: wrong-device: kernel fill, argument 0: device 1 uses memory of device 0",
    "stream_of_another_device": r"cudaLaunchKernel: stream s1 belongs to device 0, the current device is 1",
    "too_many_threads": r"launch of kernel fill: a block of 2000,1,1 threads; at most 1024",
    "too_much_shared_memory": r"launch of kernel fill: 100000 bytes of dynamic and 0 of static shared memory; allowed are 49152",
    "synchronize_in_capture": r"cudaStreamSynchronize: waits for a stream that is captured",
    "capture_not_joined": r"cudaStreamEndCapture: kernel fill .* on stream s2 is not joined",
    "call_in_host_function": r"cudaDeviceSynchronize: called by a host function on a stream",
    "exits_before_barrier": r"fault: barrier-exited: kernel exits_before_barrier, .*faults.cu:\d+ is not reached by 1 of 64",
    "two_barriers": r"fault: barrier-divergent: kernel two_barriers, .*faults.cu:\d+, but 32 threads",
    "part_of_a_warp": r"fault: warp-incomplete: kernel part_of_a_warp, .*mask 0xffffffff is not reached by lanes 0x55555555",
    "wrong_mask": r"fault: warp-mask: kernel wrong_mask, .*mask 0x55555555 does not contain the calling lane \d+",
    "two_operations": r"fault: warp-mixed: kernel two_operations, .*other lanes of mask 0xffffffff wait in",
    "shared_race": r"wrong: element \d+ is -?nan",
    "block_race": Sometimes(r"wrong: element 0 is 0, not 1"),
    "shared_never_written": r"wrong: element 0 is -?nan",
    "beyond_static": None,
    "beyond_dynamic": r"fault: out-of-bounds: .*something was written after the 252 bytes of dynamic shared memory",
    "deep_stack": r"fault: stack: kernel deep_stack .*, thread \(\d+,0,0\): its \d+ bytes of stack are not enough",
}
# what the sanitizers say more: the line, whatever the order
SANITIZED = {
    ("kernel_out_of_bounds", "address"): r"AddressSanitizer: SEGV .*\n(.*\n)*.* in fill\(float\*, float\) .*faults.cu:\d+",
    ("kernel_in_the_slack", "address"): r"AddressSanitizer: .*\n(.*\n)*.* in fill\(float\*, float\) .*faults.cu:\d+",
    ("beyond_static", "address"): r"faults.cu:\d+:\d+: runtime error: index 64 out of bounds for type 'float \[64\]'",
    ("beyond_dynamic", "address"): r"AddressSanitizer: .*\n(.*\n)*.* in beyond_dynamic\(float\*\) .*faults.cu:\d+",
    ("shared_race", "thread"): r"ThreadSanitizer: data race .*\n(.*\n)*.* shared_race\(float\*\) .*faults.cu:\d+",
    ("block_race", "thread"): r"ThreadSanitizer: data race .*\n(.*\n)*.* two_blocks_write\(float\*\) .*faults.cu:\d+",
    ("missing_wait", "thread"): r"ThreadSanitizer: data race .*\n(.*\n)*.* fill\(float\*, float\) .*faults.cu:\d+",
    ("wait_before_record", "thread"): r"ThreadSanitizer: data race",
    ("overwritten_too_early", "thread"): r"ThreadSanitizer: data race .*\n(.*\n)*.* add_to\(float\*, float const\*\) .*faults.cu:\d+",
    ("graph_without_dependency", "thread"): r"ThreadSanitizer: data race .*\n(.*\n)*.* add_to\(float\*, float const\*\)",
    ("nonblocking_without_order", "thread"): r"ThreadSanitizer: data race",
}


# and the race detector, without running another order
RACES = ("missing_wait", "wait_before_record", "overwritten_too_early", "graph_without_dependency", "nonblocking_without_order")
for name in RACES:
    SANITIZED[(name, "races")] = (r"fault: race: .*(reads|writes) a\d+\+\d+, which .* (reads|writes): nothing orders them"
                                  r"|fault: uninitialised: .* reads a\d+\+\d+, which nothing has written") # the reader came first
SANITIZED[("never_written", "races")] = r"fault: uninitialised: kernel add_to, .* reads a\d+\+\d+, which nothing has written"


def found(result, text):
    return result.code != 0 and re.search(text, result.text)


def fault(part, text):
    if isinstance(text, Sometimes):
        results = [go("faults", part, seed=seed, devices=2) for seed in SEEDS]
        check(any(found(result, text) for result in results),
              "not found at any of %d seeds; the last: %s" % (len(results), results[-1].describe()))
    else:
        for seed in (0, 4) if part != "host_touches_device" else (0,): # memory is closed to the host at seed 0 only
            result = go("faults", part, seed=seed, devices=2)
            check(found(result, text), "not found or not named: " + result.describe())


for part, text in FAULTS.items():
    if text is not None:
        harness.add("fault_" + part, lambda part=part, text=text: fault(part, text))
    else:
        check(any(part == sanitized for sanitized, _ in SANITIZED), part + " is not looked for")


def sanitized(part, sanitizer, text):
    for seed in (0, 1):
        result = go("faults", part, sanitize=sanitizer, seed=seed, devices=2)
        check(found(result, text), "not found or not named: " + result.describe())


for (part, sanitizer), text in SANITIZED.items():
    harness.add("fault_%s_%s" % (part, sanitizer),
                lambda part=part, sanitizer=sanitizer, text=text: sanitized(part, sanitizer, text))


# ---- what the other fake libraries use ----

def enqueue(part, sanitize=None, **settings):
    def build():
        target = os.path.join(harness.directory(), "enqueue")
        result = harness.command(["gcc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-isystem", fakegpu.CUDA + "/include",
                                  PROGRAMS + "enqueue.c", "-o", target, "-L" + fakegpu.LIBRARIES,
                                  "-l:libcudart.so.13", "-Wl,--allow-shlib-undefined"], harness.COMPILE_LIMIT, cwd=harness.ROOT)
        check(result.code == 0, "compilation failed: " + result.describe())
        return target
    return fakegpu.run(harness.once("enqueue", build), [], part, sanitize=sanitize, **settings)


for part in ("again", "captured", "progress", "ranges", "objects", "failure"):
    def enqueued(part=part):
        for seed in SEEDS:
            result = enqueue(part, seed=seed)
            check(result.code == 0, "should pass: " + result.describe())
    harness.add("enqueue_" + part, enqueued)

def test_enqueue_ranges_thread():
    for seed in (0, 1):
        result = enqueue("ordered", sanitize="thread", seed=seed)
        check(result.code == 0, "should pass: " + result.describe())
        result = enqueue("unordered", sanitize="thread", seed=seed)
        check(result.code != 0 and "ThreadSanitizer: data race" in result.err, "not found: " + result.describe())


for part, text in {
        "stuck": r"fault: no-progress: nothing has moved for 1 s while the program waits for forever on s1; .*\n  forever in a test on s1",
        "range_too_long": r"fault: out-of-bounds: work: 8 bytes .* 3 bytes after the end of a1",
        "not_device": r"fault: argument: a test: 0x[0-9a-f]+ is not memory of a device",
        "object_left": r"fault: leak: not destroyed at exit: 1 thing",
        "object_of_another_kind": r"fault: handle: use: 0x[0-9a-f]+ is no handle"}.items():
    def refused(part=part, text=text):
        result = enqueue(part, timeout=1)
        check(result.code == 99 and re.search(text, result.err), "not found or not named: " + result.describe())
    harness.add("enqueue_" + part, refused)


# ---- device code that the program loads itself ----

LIBRARY = PROGRAMS + "library.cu"
# part: what it must say when it fails, None if it must pass
LIBRARIES = {
    "launches": None, "captured": None, "attributes": None, "errors": None, "garbage_as_kernel": None,
    "load_in_capture": r"cudaLibraryLoadData: .*captur",
    "never_unloaded": r"fault: leak: not destroyed at exit: 1 library",
    "unloaded_twice": r"fault: handle: cudaLibraryUnload: this library was destroyed before",
    "asked_after_unload": r"fault: handle: cudaLibraryGetKernel: this library was destroyed before",
    "launched_after_unload": r"fault: use-after-unload: kernel fill is of a library that was unloaded before",
    "unloaded_before_it_ran": Sometimes(r"fault: use-after-unload: .*kernel fill is of a library that was unloaded before"),
}


def library(part, seed=0, form="-cubin", arch="sm_80", device=80):
    """A part of library.cu, with its own text as what it loads."""
    environment = fakegpu.environment(fakegpu.twin(LIBRARY), seed=seed, arch=device)
    environment["IMAGE"] = fakegpu.nvcc(LIBRARY, form, arch=arch)
    return harness.command([fakegpu.nvcc(LIBRARY), part], harness.RUN_LIMIT, environment=environment)


def library_part(part, text, form):
    results = [library(part, seed, form) for seed in range(3)]
    if text is None:
        for result in results:
            check(result.code == 0 and result.out == "ok\n", "should pass: " + result.describe())
    else:
        enough = any if isinstance(text, Sometimes) else all
        check(enough(found(result, text) for result in results), "not found or not named: " + results[0].describe())


for part, text in LIBRARIES.items():
    harness.add("library_" + part, lambda part=part, text=text: library_part(part, text, "-cubin"))
for part in ("launches", "errors"):
    harness.add("library_ptx_" + part, lambda part=part: library_part(part, None, "-ptx"))


def test_library_for_another_device():
    """A cubin is for its family, PTX for every later device."""
    for form, arch, there in (("-cubin", "sm_80", {80: True, 86: True, 90: False}), ("-cubin", "sm_86", {80: False, 89: True}),
                              ("-ptx", "sm_90", {80: False, 90: True, 120: True})):
        for device, runs in there.items():
            result = library("launches" if runs else "other_device", form=form, arch=arch, device=device)
            check(result.code == 0, "%s for %s on sm_%d: %s" % (form, arch, device, result.describe()))
            check(runs or "the device is sm_%d, the image is" % device in result.err, result.describe())


def test_all_libraries_are_listed():
    parts = fakegpu.run(fakegpu.nvcc(LIBRARY), []).out.split()
    check(sorted(parts) == sorted([*LIBRARIES, "other_device"]), "library.cu and this list differ")


# ---- the process around ----

def test_all_faults_are_listed():
    parts = fakegpu.run(fakegpu.nvcc(PROGRAMS + "faults.cu"), []).out.split()
    check(sorted(parts) == sorted(FAULTS), "faults.cu and this list differ: %s" % (set(parts) ^ set(FAULTS)))


def test_no_device():
    result = go("device", "all", devices=0)
    check(result.code == 3 and "cudaErrorNoDevice" in result.out, "no device: " + result.describe())


def test_old_driver():
    result = go("device", "all", driver=12080)
    check(result.code == 3 and "cudaErrorInsufficientDriver" in result.out, "old driver: " + result.describe())


def test_out_of_memory():
    result = go("device", "all", memory=16)
    check(result.code == 3 and "cudaErrorMemoryAllocation" in result.out and "of 16 bytes in use" in result.err,
          "out of memory: " + result.describe())


def test_kernel_without_twin():
    result = fakegpu.run(fakegpu.nvcc(PROGRAMS + "faults.cu"), fakegpu.twin(PROGRAMS + "device.cu"), "missing_wait")
    check(result.code == 99 and "fault: twin: kernel fill(float*, float) (_Z4fillPff) has no twin" in result.err,
          "kernel without twin: " + result.describe())


def test_code_for_another_device():
    result = go("faults", "missing_wait", arch=75)
    check(result.code != 0 and "launch of kernel fill: the device is sm_75, the program has code for" in result.err, result.describe())
    result = go("device", "bfloat16", arch=90)  # nvcc added PTX
    check(result.code == 0, result.describe())


def test_bad_setting():
    result = go("device", "all", threads="many")
    check(result.code == 2 and "PD_FAKE_THREADS=many" in result.err, "bad setting: " + result.describe())
    for seed in ("20-1", "1-", "x", "-3"):
        result = go("device", "all", seed=seed)
        check(result.code == 2 and "PD_FAKE_SEED=" + seed in result.err, "bad setting: " + result.describe())
    for mistake in ("drop", "drop:cudaFree", "drop:cudaFree:0", "lose:cudaFree:1", "drop:cudaFree:1x"):
        result = go("device", "all", mistake=mistake)
        check(result.code == 2 and "PD_FAKE_MISTAKE=" + mistake in result.err, "bad setting: " + result.describe())


RECORDED = """host: cudaStreamCreate s1 nonblocking priority 0
host: cudaStreamCreate s2 nonblocking priority 0
host: cudaStreamCreate s3 nonblocking priority 0
host: cudaMalloc 800 = a1+0
host: cudaMalloc 800 = a2+0
host: cudaMalloc 800 = a3+0
s1: cudaStreamBeginCapture
s1 (captured): kernel add grid 4,1,1 block 64,1,1 shared 0 a1+0
s1 (captured): cudaEventRecord e1
s2 (captured): cudaStreamWaitEvent e1
s3 (captured): cudaStreamWaitEvent e1
s2 (captured): kernel copy grid 4,1,1 block 64,1,1 shared 0 a2+0 a1+0
s2 (captured): kernel multiply grid 4,1,1 block 64,1,1 shared 0 a2+0 a2+0
s3 (captured): cudaMemcpyAsync device-to-device 800 a3+0 <- a1+0
s3 (captured): kernel add grid 4,1,1 block 64,1,1 shared 0 a3+0
s2 (captured): cudaEventRecord e2
s3 (captured): cudaEventRecord e3
s1 (captured): cudaStreamWaitEvent e2
s1 (captured): cudaStreamWaitEvent e3
s1 (captured): kernel multiply grid 4,1,1 block 64,1,1 shared 0 a3+0 a2+0
s1: cudaStreamEndCapture
host: cudaGraphInstantiate g1 nodes 6 = x1
s1: cudaMemsetAsync 0 800 a1+0
s1: cudaGraphLaunch x1
s1: cudaGraphLaunch x1
s1: cudaGraphLaunch x1
s1: cudaGraphLaunch x1
s1: kernel add grid 4,1,1 block 64,1,1 shared 0 a3+0
host: cudaStreamSynchronize s1
legacy: cudaMemcpy device-to-host 800 host <- a1+0
legacy: cudaMemcpy device-to-host 800 host <- a3+0
"""


def test_recording():
    for seed in (0, 1, 2):
        file = os.path.join(harness.directory(), "calls-%r")
        passes("streams", "graph", seed=seed, record=file)
        with open(file.replace("%r", "0")) as recorded:
            text = recorded.read()
        check(text.startswith(RECORDED), "the recording at seed %d is not as expected:\n%s" % (seed, text))


harness.main(__name__, jobs=3)
