"""Predicted against measured: a small GPT on layouts of this machine. For every number of ranks the machine is measured first
(bench/machine.c: products, messages), the program is compiled with that as its `cluster < >`, run, and the shortest of its
steps is held against the plan's. With pp=4 every synchronous schedule is run, and must compute the same bits as gpipe.

usage: python3 bench/predict.py [BUILD]      needs `make` first; a table for bench/README.md
"""
import json
import os
import subprocess
import sys
import tempfile

build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
library = os.path.join(build, "lib", "pdc")
WIDTH, LENGTH, LAYERS, BATCH, STEPS = 256, 64, 8, 8, 16
PROGRAM = """
import "std/nn.pd" as nn;
config const global = %d;
dim batch = global, seq = %d, heads = 4, head = %d, embed = %d, ffn = 4 * embed, vocab = 512;
shard < batch=dp; heads=tp; ffn=tp; >
optimizer < kind=sgd; lr=1e-3; >
data < shuffle=off; >
block attention(x: [batch, seq, embed]) -> [batch, seq, embed] {
  param wq: [embed, heads, head], wk: [embed, heads, head], wv: [embed, heads, head], wo: [heads, head, embed];
  return sdpa(x @ wq, x @ wk, x @ wv, causal=true) @ wo;
}
block mlp(x: [batch, seq, embed]) -> [batch, seq, embed] {
  param w1: [embed, ffn], w2: [ffn, embed];
  return relu(x @ w1) @ w2;
}
model lm(tokens: i32[batch, seq], targets: i32[batch, seq]) {
  param table: [vocab, embed], out: [embed, vocab];
  x = gather(table, tokens);
  repeat %d { x = x + attention(nn.layernorm(x)); x = x + mlp(nn.layernorm(x)); }
  loss xent(nn.layernorm(x) @ out, targets);
}
""" % (BATCH, LENGTH, WIDTH // 4, WIDTH, LAYERS)
# pp, dp, tp, schedule, chunks; one sample a micro-batch
LAYOUTS = [(1, 1, 1, "gpipe", 1), (2, 1, 1, "gpipe", 1), (2, 1, 1, "1f1b", 1), (2, 1, 1, "zb-h1", 1), (2, 1, 1, "zb-v", 2), (1, 2, 1, "gpipe", 1),
           (1, 1, 2, "gpipe", 1)]
FOUR = [("gpipe", 1), ("1f1b", 1), ("eager-1f1b", 1), ("interleaved", 2), ("breadth-first", 2), ("zb-h1", 1), ("zb-h2", 1), ("interleaved-zb", 2),
        ("zb-v", 2), ("v-half", 2), ("v-min", 2), ("1f1b-v", 2), ("dualpipe-v", 2), ("dualpipe", 1), ("chimera", 1), ("hanayo", 2), ("auto", 1)]
LAYOUTS += [(2, 2, 1, "1f1b", 1), (2, 1, 2, "1f1b", 1)] + [(4, 1, 1, kind, chunks) for kind, chunks in FOUR]
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
               "OMPI_MCA_hwloc_base_binding_policy": "none", "OMP_NUM_THREADS": "1"}


def words(name):
    with open(os.path.join(library, name)) as file:
        return file.read().split()


def said(command):
    return subprocess.run(command, check=True, capture_output=True, text=True, env=ENVIRONMENT).stdout


def measure(machine, ranks):
    """{flops, latency, bandwidth, reduction} with so many ranks at once."""
    text = said(["mpirun", "-n", str(ranks), machine, str(LENGTH), str(4 * WIDTH), str(WIDTH)]).split()
    return dict(zip(text[::2], map(float, text[1::2])))


with tempfile.TemporaryDirectory() as place:
    machine, source, text = (os.path.join(place, name) for name in ("machine", "lm.pd", "text"))
    subprocess.run(["mpicc", *words("cflags"), "-O3", "-Iruntime", "bench/machine.c", os.path.join(library, "libpdrt.a"), *words("libs"),
                    "-o", machine], check=True)
    with open(source, "w") as file:
        file.write(PROGRAM)
    with open(text, "w") as file:
        file.write("".join("%d squared is %d. " % (i, i * i) for i in range(20000)))
    found, losses = {}, {}
    for ranks in (1, 2, 4):
        found[ranks] = measure(machine, ranks)
        print("%d rank%s at once: %s" % (ranks, "s" if ranks > 1 else "", ", ".join("%s %.3g" % item for item in found[ranks].items())))
    print("\n| pp | dp | tp | schedule | predicted ms | measured ms | ratio | of the prediction: bubble, tp, pp, dp % |\n|---|---|---|---|---|---|---|---|")
    for pp, dp, tp, kind, chunks in LAYOUTS:
        cluster = [word for key, value in found[pp * dp * tp].items() if key != "reduction" for word in ("-D", "cluster.%s=%r" % (key, value))]
        defines = ["-D", "parallel.pp=%d" % pp, "-D", "parallel.dp=%d" % dp, "-D", "parallel.tp=%d" % tp, "-D", "schedule.kind=" + kind,
                   "-D", "schedule.chunks=%d" % chunks, *cluster]
        program, log = os.path.join(place, "lm"), os.path.join(place, "log")
        subprocess.run([os.path.join(build, "pdc"), source, *defines, "-o", program], check=True, stderr=subprocess.DEVNULL)
        prediction = json.loads(said([os.path.join(build, "pdc"), "--emit=plan", *defines, source]))["prediction"]
        said([program, "--data=" + text, "--steps=%d" % STEPS, "--threads=1", "--log=" + log])
        with open(log) as file:
            lines = [line for line in map(json.loads, file) if "step" in line]
        measured = min(line["step_ms"] for line in lines[1:])
        losses[(pp, dp, tp, kind)] = [line["loss"] for line in lines]
        exposed, step = prediction["exposed_ns"], prediction["step_ns"]
        shares = ", ".join("%.0f" % (100 * part / step) for part in (prediction["bubble_ns"], exposed["tp"], exposed["pp"], exposed["dp"]))
        print("| %d | %d | %d | %s | %.1f | %.1f | %.2f | %s |" % (pp, dp, tp, kind, step / 1e6, measured, measured / (step / 1e6), shares), flush=True)
    same = [kind for kind, _ in FOUR if losses[(4, 1, 1, kind)] == losses[(4, 1, 1, "gpipe")] == losses[(1, 1, 1, "gpipe")]]
    print("\nlosses of %d steps are those of one rank to the bit with pp=4 and: %s" % (STEPS, ", ".join(same)))
    if len(same) != len(FOUR):
        sys.exit("other bits with: " + ", ".join(kind for kind, _ in FOUR if kind not in same))
