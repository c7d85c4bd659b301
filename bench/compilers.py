"""What --cuda-compiler=nvrtc saves: the time to build programs of the cuda target, by nvcc and by NVRTC.

usage: python3 bench/compilers.py [BUILD] [--rounds=N]     needs a CUDA toolkit (CUDA_HOME), no GPU

The two take turns, and the smallest of N times counts. Seconds are of the clock, and of all processors together; ratios are
nvcc's by NVRTC's. Give it compilers that remember nothing: PDC_NVCC, PDC_CC and PDC_CXX without ccache.
"""
import os
import resource
import subprocess
import sys
import tempfile
import time

EXAMPLES = (("mlp-fashion", "f32"), ("gpt-bible", "f32"), ("gpt2-124m", "bf16"), ("llama3-70b", "bf16"))


def build(pdc, example, precision, options, target):
    """(seconds of the clock, seconds of processors) of one build"""
    words = [pdc, "--target=cuda", *options, "-D", "precision.compute=" + precision, "-o", target, "examples/%s.pd" % example]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(words, check=True)
    clock, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(words):
    rounds = 3
    place = "build"
    for word in words:
        if word.startswith("--rounds="):
            rounds = int(word.split("=")[1])
        else:
            place = word
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    print("%-24s %-8s %20s %20s %14s" % ("program", "archs", "nvcc clock / cpu", "nvrtc clock / cpu", "ratio"))
    with tempfile.TemporaryDirectory() as directory:
        for example, precision in EXAMPLES:
            for name, archs in (("sm_90", ["--arch=sm_90"]), ("default", [])):
                times = {"nvcc": [], "nvrtc": []}
                for _ in range(rounds):
                    for compiler in times:
                        times[compiler].append(build(os.path.join(place, "pdc"), example, precision, archs + ["--cuda-compiler=" + compiler],
                                                     os.path.join(directory, "program")))
                best = [[min(run[kind] for run in times[compiler]) for kind in (0, 1)] for compiler in ("nvcc", "nvrtc")]
                print("%-24s %-8s %12.1f / %5.1f %12.1f / %5.1f %7.2f / %.2f" %
                      (example + " " + precision, name, *best[0], *best[1], best[0][0] / best[1][0], best[0][1] / best[1][1]), flush=True)


main(sys.argv[1:])
