"""What a plan predicts: bytes against the closed forms, times of small programs computed by hand, groups of ranks on nodes,
and a machine of 100,000 ranks in less than a second."""
import json
import re
import time

import harness
from harness import check, close, emit, pdc, plan, read_program, tensor, train

# a transformer's products and nothing else that is divided: 2 all-reduces a layer forward, 2 backward
LAYERS = """
import "std/nn.pd" as nn;
config const depth = 4, width = 64, length = 16, global = 16;
dim batch = global, seq = length, heads = 4, head = width / 4, embed = width, ffn = 4 * embed, vocab = 32;
shard < batch=dp; heads=tp; ffn=tp; >
block attention(x: [batch, seq, embed]) -> [batch, seq, embed] {
  param wq: [embed, heads, head], wk: [embed, heads, head], wv: [embed, heads, head], wo: [heads, head, embed];
  return sdpa(x @ wq, x @ wk, x @ wv, causal=true) @ wo;
}
block mlp(x: [batch, seq, embed]) -> [batch, seq, embed] {
  param w1: [embed, ffn], w2: [ffn, embed];
  return gelu(x @ w1) @ w2;
}
model lm(tokens: i32[batch, seq], targets: i32[batch, seq]) {
  param table: [vocab, embed], out: [embed, vocab];
  x = gather(table, tokens);
  repeat depth { x = x + attention(nn.layernorm(x)); x = x + mlp(nn.layernorm(x)); }
  loss xent(x @ out, targets);
}
"""


def layer_counts(made):
    """Per pipeline rank, how many trips of the loop it holds."""
    counts = [0] * made["parallel"]["pp"]
    for chunk in made["chunks"]:
        for run in chunk["layers"]:
            counts[chunk["rank"]] += run["last"] - run["first"] + 1 if run["name"] == "depth" else 0
    return counts


def test_bytes_are_those_of_the_closed_forms():
    b, s, h = 2, 16, 64
    for pp, dp, tp, kind, chunks in ((1, 1, 2, "gpipe", 1), (1, 1, 4, "gpipe", 1), (2, 1, 2, "1f1b", 1), (4, 2, 2, "zb-h1", 1), (2, 2, 4, "zb-v", 2),
                                     (2, 4, 1, "interleaved", 2)):
        made = plan(LAYERS, {"parallel.pp": pp, "parallel.dp": dp, "parallel.tp": tp, "schedule.kind": kind, "schedule.chunks": chunks,
                             "schedule.microbatch": b})
        m = made["batch"]["microbatches"]
        layers, ranks = layer_counts(made), [rank["sent_bytes"] for rank in made["prediction"]["ranks"]]
        what = "pp %d dp %d tp %d %s" % (pp, dp, tp, kind)
        check(sum(layers) == 4, "%s: layers %s" % (what, layers))
        for rank in range(pp):
            # 8 b s h (t - 1) / t elements of f32 a layer and micro-batch
            check(ranks[rank]["tp"] == layers[rank] * m * 8 * b * s * h * (tp - 1) // tp * 4, "%s: tp bytes of rank %d: %s" % (what, rank, ranks[rank]))
            # b s h a boundary, micro-batch and direction: forward out of every chunk but the last, back out of every one but the first
            hops = 0
            for chunk, at in enumerate(made["schedule"]["placement"]):
                hops += at == rank and chunk + 1 < pp * chunks and made["schedule"]["placement"][chunk + 1] != rank
                hops += at == rank and chunk > 0 and made["schedule"]["placement"][chunk - 1] != rank
            check(ranks[rank]["pp"] == hops * m * b * s * h * 4, "%s: pp bytes of rank %d: %s" % (what, rank, ranks[rank]))
            # 2 P (d - 1) / d elements, P: the parameters of the stage on one rank
            elements = 0
            for p in made["parameters"]:
                if made["schedule"]["placement"][p["chunk"]] == rank:
                    size = 1
                    for n, axis in zip(p["shape"], p["sharding"]):
                        size *= n // tp if axis == "tp" else n
                    elements += size
            check(ranks[rank]["dp"] == 2 * elements * (dp - 1) // dp * 4, "%s: dp bytes of rank %d: %s, %d elements" % (what, rank, ranks[rank], elements))


# one product of n x n a trip; a loss of n elements
PRODUCTS = """
config const global = 8, trips = 4, n = 64;
dim batch = global, in = n;
shard < batch=dp; >
model net(x: f32[batch, in], y: f32[batch, in]) {
  repeat trips { param w: [in, in]; x = x @ w; }
  loss mse(x, y);
}
"""


def whole(value):
    return int(value + 0.5)


def test_step_of_gpipe_by_hand():
    """p = 2, m = 4, d = 2: sum of a micro-batch over the stages + (m - 1) times the slowest + 2c, and the reduction of stage 0 after it."""
    flops, bandwidth, latency = 1e9, 1e8, 2e-6
    made = plan(PRODUCTS, {"parallel.pp": 2, "parallel.dp": 2, "schedule.kind": "gpipe", "cluster.flops": flops, "cluster.bandwidth": bandwidth,
                           "cluster.latency": latency})
    p, n = made["prediction"], 64
    F, X = [], []
    for chunk in made["chunks"]:
        trips = sum(run["last"] - run["first"] + 1 for run in chunk["layers"] if run["name"] == "trips")
        check(chunk["flops"]["F"] - 2 * n * n * trips in (0, n), "forward of %d products: %s" % (trips, chunk["flops"]))
        F.append(whole(chunk["flops"]["F"] / flops * 1e9))
        X.append(whole(chunk["flops"]["I"] / flops * 1e9) + whole(chunk["flops"]["W"] / flops * 1e9))
    alone = sum(F) + sum(X) + 3 * (max(F) + max(X))
    hop = whole((latency + n * 4 / bandwidth) * 1e9)
    check(p["busy_ns"] == 4 * max(f + x for f, x in zip(F, X)) and p["busy_ns"] + p["bubble_ns"] == alone, "computing: %s, by hand %s" % (p, alone))
    check(p["exposed_ns"]["pp"] == 2 * hop and made["cluster"]["link_ns"] == hop, "two hops of %d: %s" % (hop, p))
    reduce = [whole(2 * (latency + (2 * n * n * 4) / 2 / bandwidth) * 1e9)] * 2
    check([chunk["reduce_ns"] for chunk in p["chunks"]] == reduce, "reductions %s: %s" % (reduce, p["chunks"]))
    check(p["exposed_ns"]["dp"] == reduce[0] and p["exposed_ns"]["tp"] == p["exposed_ns"]["tied"] == 0, "the reduction of the last stage to finish: %s" % p)
    check(p["step_ns"] == alone + 2 * hop + reduce[0], "the step: %s" % p)
    total = 8 * sum(sum(chunk["flops"].values()) for chunk in made["chunks"])
    check(p["flops"] == total and p["peak_flops"] == 4 * flops and p["mfu"] == total / (4 * flops * p["step_ns"] * 1e-9), "utilisation: %s" % p)


def test_reductions_hide_in_the_cool_down():
    """With two chunks a rank, the second one's reduction runs while the first one still computes."""
    def exposed(bandwidth, **more):
        return plan(PRODUCTS, {"parallel.pp": 2, "parallel.dp": 2, "schedule.kind": "interleaved", "schedule.chunks": 2, "cluster.flops": 1e9,
                               "cluster.bandwidth": bandwidth, **more})["prediction"]
    fast = exposed(1e9)
    check(fast["exposed_ns"]["dp"] == fast["chunks"][0]["reduce_ns"] > 0, "only that of chunk 0 is left at the end: %s" % fast)
    slow = exposed(1e7)
    check(fast["chunks"][2]["reduce_ns"] > 0 and slow["exposed_ns"]["dp"] > slow["chunks"][0]["reduce_ns"], "a slow one does not hide: %s" % slow)


def test_without_a_flush_every_update_is_reduced():
    made = plan(PRODUCTS, {"parallel.pp": 2, "parallel.dp": 2, "schedule.kind": "pipedream-2bw", "cluster.flops": 1e9, "cluster.bandwidth": 1e8})
    p = made["prediction"]
    updates = made["batch"]["microbatches"] // made["schedule"]["update_every"]
    check(updates == 2 and p["exposed_ns"]["dp"] > 0, "%d updates: %s" % (updates, p))
    check(p["ranks"][0]["sent_bytes"]["dp"] == updates * 2 * 64 * 64 * 4, "bytes: %s" % p["ranks"])


def test_groups_over_nodes():
    """Ring inside a node, ring between nodes, or both: scattered inside, all-reduced between, gathered inside."""
    n, flops = 64, {"cluster.flops": 1e9, "cluster.bandwidth": 1e9, "cluster.latency": 1e-6, "cluster.node_bandwidth": 1e8, "cluster.node_latency": 2e-5}
    M = 4 * n * n * 4  # bytes of the gradients
    for per_node, k, nodes in ((8, 4, 1), (4, 4, 1), (1, 1, 4), (2, 2, 2), (3, 3, 2)):
        made = plan(PRODUCTS, {"parallel.dp": 4, "cluster.ranks_per_node": per_node, **flops})
        wanted = 2 * (k - 1) * (1e-6 + M / k / 1e9) + 2 * (nodes - 1) * (2e-5 + M / k / nodes / 1e8)
        check(made["prediction"]["chunks"][0]["reduce_ns"] == whole(wanted * 1e9), "%s ranks a node: %s, by hand %s" % (
            per_node, made["prediction"]["chunks"], wanted * 1e9))
    # tp=2 x dp=2 on nodes of two: tensor-parallel groups stay on a node, replicas do not
    made = plan(LAYERS, {"parallel.dp": 2, "parallel.tp": 2, "cluster.ranks_per_node": 2, "cluster.bandwidth": 1e9, "cluster.node_bandwidth": 1e8})
    bsh = 16 * 64 * 4
    check(made["prediction"]["chunks"][0]["tp_ns"] == {"F": 4 * 2 * whole(bsh / 1e9 * 1e9), "I": 4 * 2 * whole(bsh / 1e9 * 1e9), "W": 0},
          "8 all-reduces forward: %s" % made["prediction"]["chunks"])
    gradients = sum(op["bytes"] for group in made["communicators"] if group["axis"] == "dp" for op in group["operations"])
    close(made["prediction"]["chunks"][0]["reduce_ns"], gradients / 1e8 * 1e9, 1e-6, "a ring of two over the slow link")


def test_what_is_not_declared_costs_nothing_and_is_named():
    made = plan(LAYERS, {"parallel.pp": 2, "parallel.dp": 2, "parallel.tp": 2})
    check(made["prediction"]["exposed_ns"] == {"tp": 0, "pp": 0, "tied": 0, "dp": 0}, made["prediction"])
    check(made["cluster"]["assumed"] == ["flops", "bandwidth"] and made["prediction"]["peak_flops"] == 8e12, made["cluster"])
    made = plan(LAYERS, {"parallel.dp": 2, "cluster.flops": 1e10})
    check(made["cluster"]["assumed"] == ["bandwidth"], made["cluster"])
    text = pdc("-v", "--emit=memory", "-", "-D", "parallel.tp=2", "-D", "cluster.bandwidth=1e9", "-D", "cluster.flops=1e12", source=LAYERS).err
    for words in ("predicted step: ", "tp all-reduces (", "model FLOPs utilisation: ", "2 ranks x 1e+12 FLOP/s x step", "a rank of each stage sends"):
        check(words in text, "`%s` is not said by -v:\n%s" % (words, text))


def test_a_hundred_thousand_ranks():
    sizes = {"depth": 48, "width": 4096, "length": 2048, "global": 50000, "parallel.pp": 25, "parallel.dp": 500, "parallel.tp": 8,
             "schedule.kind": "interleaved", "schedule.layout": "(Et|)(t|)*47,|L", "cluster.ranks_per_node": 8, "cluster.flops": 1e15,
             "cluster.bandwidth": 4e11, "cluster.node_bandwidth": 5e10, "cluster.latency": 1e-6, "cluster.node_latency": 5e-6}
    source = LAYERS.replace("heads = 4, head = width / 4", "heads = 32, head = width / 32")
    began = time.monotonic()
    made = plan(source, sizes)
    took = time.monotonic() - began
    check(took < 3, "the plan took %.2f s" % took)  # a fifth of a second on an idle machine
    p = made["prediction"]
    check(p["peak_flops"] == 1e20 and 0 < p["mfu"] < 1 and all(part > 0 for key, part in p["exposed_ns"].items() if key != "tied"), p)


def test_altered_predictions_are_refused():
    text = emit("plan", PRODUCTS, {"parallel.pp": 2, "parallel.dp": 2, "cluster.bandwidth": 1e9})
    for change, fact in ((lambda p: p["prediction"].pop("mfu"), "$.prediction.mfu is missing"),
                         (lambda p: p["prediction"].update(step_ns=1), "$.prediction.step_ns is 1, but its parts add up to"),
                         (lambda p: p["prediction"].update(mfu=0.5), "$.prediction.mfu is 0.5"),
                         (lambda p: p["prediction"]["chunks"].pop(), "$.prediction.chunks has 1 entries"),
                         (lambda p: p["prediction"]["ranks"][0]["sent_bytes"].pop("dp"), "$.prediction.ranks[0].sent_bytes.dp is missing")):
        other = json.loads(text)
        change(other)
        result = pdc("certify", "-", source=harness.canonical(other))
        check(result.code == 1 and fact in result.err, "`%s`: %s" % (fact, result.describe()))


def test_the_program_compares():
    data = {"x": tensor([[0.5] * 64] * 8), "y": tensor([[0.0] * 64] * 8)}
    sizes = {"n": 64, "optimizer.kind": "sgd", "optimizer.lr": 1e-6}
    declared = train(harness.build(PRODUCTS, {**sizes, "cluster.flops": 1e9}), "--steps=3", data=data)
    found = re.search(r"a step took (\S+) ms on average, predicted were (\S+) ms: (\S+) times as long", declared.result.out)
    check(found, "no comparison: " + declared.result.out)
    close(float(found.group(2)), 64 * 64 * 4 * 8 * 6 / 1e6, 0.1, "the prediction that is shown")
    check("predicted" not in train(harness.build(PRODUCTS, sizes), "--steps=3", data=data).result.out, "a comparison with an assumed speed")


harness.main(__name__)
