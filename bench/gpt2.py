"""A step of GPT-2 124M (batch 4 x 64 tokens, f32) against the product rate of the machine, measured in the same minute.

usage: python3 bench/gpt2.py [BUILD] [THREADS]      prints one line of figures; needs `make` first
"""
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

build = sys.argv[1] if len(sys.argv) > 1 else "build"
threads = sys.argv[2] if len(sys.argv) > 2 else str(os.cpu_count())
library = os.path.join(build, "lib", "pdc")
example = os.path.join("examples", "gpt2-124m.pd")


def words(name):
    with open(os.path.join(library, name)) as file:
        return file.read().split()


with tempfile.TemporaryDirectory() as place:
    text = os.path.join(place, "text")
    with open(text, "w") as file:
        file.write("".join("%d squared is %d. " % (i, i * i) for i in range(20000)))
    program, gemm, log = (os.path.join(place, name) for name in ("gpt2", "gemm", "log.jsonl"))
    subprocess.run([os.path.join(build, "pdc"), example, "-o", program], check=True)
    subprocess.run(["mpicc", *words("cflags"), "-O3", "-Iruntime", "bench/gemm.c", os.path.join(library, "libpdrt.a"), *words("libs"),
                    "-o", gemm], check=True)
    rates = subprocess.run([gemm, threads], check=True, capture_output=True, text=True).stdout
    subprocess.run([program, "--threads=" + threads, "--data=" + text, "--steps=12", "--log=" + log], check=True, stdout=subprocess.DEVNULL)
    with open(log) as file:
        seconds = statistics.median(line["step_ms"] for line in list(map(json.loads, file))[2:] if "step" in line) / 1000
    plan = json.loads(subprocess.run([os.path.join(build, "pdc"), "--emit=plan", example], check=True, capture_output=True, text=True).stdout)
    flops = sum(sum(chunk["flops"].values()) for chunk in plan["chunks"]) * plan["batch"]["microbatches"]
    line = next(line for line in rates.splitlines() if re.match(r"NT +256 +3072 +768 ", line))
    host = float(line.split("/")[3].split()[0])  # columns: OpenBLAS a / b, oneDNN a / b, host a / b
    print("step %.3f s; %.0f GFLOP a step = %.0f GFLOP/s; product 256 x 3072 x 768: %.0f GFLOP/s; ratio %.2f; %s threads"
          % (seconds, flops / 1e9, flops / seconds / 1e9, host, flops / seconds / 1e9 / host, threads))
