"""Orders of streams. A program leaves the device free to choose among what streams, events and the graph of a step leave open, and
computes the same bits whatever it chooses: twenty-one orders for one, two and four ranks, over every axis of the mesh, in f32
and bf16, from a captured step and from one that is queued anew."""
import re

import harness
from cuda_programs import build_cuda, calls, train_cuda
from harness import Random, add, check, once, tensors_equal

# tied weights at both ends, random masks, a bias whose gradient is a sum, clipping: every kind of call that the runtime makes
PROGRAM = """
config const global = 4;
dim batch = global, seq = 4, embed = 8, word = 24, ffn = 16;
shard < batch=dp; ffn=tp; >
optimizer < kind=adamw; lr=3e-2; decay=0.1; clip=0.5; >
data < shuffle=off; >
model small(tokens: i32[batch, seq], targets: i32[batch, seq]) {
  param table: [word, embed];
  h = dropout(gather(table, tokens), 0.1);
  repeat 4 {
    param up: [embed, ffn], down: [ffn, embed], bias: [embed] = 0;
    h = h + gelu(h @ up) @ down + bias;
  }
  loss xent(h @ transpose(table), targets);
}
"""
STEPS, SEEDS = 22, 21
# pp, dp, tp
LAYOUTS = [(1, 1, 1), (2, 1, 1), (4, 1, 1), (1, 2, 1), (1, 4, 1), (1, 1, 2), (1, 1, 4), (2, 2, 1), (2, 1, 2), (1, 2, 2)]


def program(layout, precision, kind="1f1b"):
    """A rank's micro-batch has one sample: layouts of one tp share their kernels."""
    pp, dp, tp = layout
    return build_cuda(PROGRAM, {"global": 4 * dp, "schedule.microbatch": 1, "parallel.pp": pp, "parallel.dp": dp, "parallel.tp": tp,
                                "schedule.kind": kind if pp > 1 else "gpipe", "precision.compute": precision})


def data(dp):
    """Two global batches, which come again and again."""
    random, samples = Random(5), 4 * dp * 2
    return {"tokens": random.integers([samples, 4], 24), "targets": random.integers([samples, 4], 24, ignored=0.2)}


def trained(layout, precision, seed, graph=True):
    return once((layout, precision, seed, graph), lambda: train_cuda(
        program(layout, precision), "--steps=%d" % STEPS, "--seed=3", "--quiet", seed=seed, data=data(layout[1]),
        environment={} if graph else {"PDC_CUDA_GRAPH": "0"}))


def same(ours, first):
    check(ours.losses == first.losses and ours.norms == first.norms, "losses %s, at seed 0 %s" % (ours.losses, first.losses))
    tensors_equal(ours.weights, first.weights, "weights")


def orders(layout, precision, graph=True):
    first, ours = trained(layout, precision, 0), trained(layout, precision, "1-%d" % SEEDS, graph)
    same(ours, first)
    check(first.losses[-1] < first.losses[0], "it does not learn: losses %s" % first.losses)
    if graph:
        for rank in range(layout[0] * layout[1] * layout[2]):
            seeds = set(re.findall(r"^host: seed (\d+)", calls(ours, rank), re.M))
            check(len(seeds) == SEEDS, "rank %d runs its step in the orders of seeds %s" % (rank, sorted(seeds)))


for precision in ("f32", "bf16"):
    for layout in LAYOUTS:
        add("orders: pp%d dp%d tp%d %s" % (*layout, precision), orders, layout, precision)
for layout in ((1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 1)):
    add("orders, queued anew: pp%d dp%d tp%d" % layout, orders, layout, "f32", False)

harness.main(__name__)
