"""Orders of streams. A program leaves the device free to choose among what streams, events and the graph of a step leave open, and
computes the same bits whatever it chooses: twenty-one orders for one, two and four ranks, over every axis of the mesh, in f32
and bf16, from a captured step and from one that is queued anew."""
import re

import harness
from cuda_programs import calls, small, small_data, train_cuda
from harness import add, check, once, tensors_equal

STEPS, SEEDS = 22, 21
# pp, dp, tp
LAYOUTS = [(1, 1, 1), (2, 1, 1), (4, 1, 1), (1, 2, 1), (1, 4, 1), (1, 1, 2), (1, 1, 4), (2, 2, 1), (2, 1, 2), (1, 2, 2)]


def trained(layout, precision, seed, graph=True):
    return once((layout, precision, seed, graph), lambda: train_cuda(
        small(layout, precision), "--steps=%d" % STEPS, "--seed=3", "--quiet", seed=seed, data=small_data(layout[1]),
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


def races(layout, precision):
    """Of all operations that touch the same memory, one of them writing it, streams, events and the graph say which comes first."""
    for graph in ("1", "0"):
        ours = train_cuda(small(layout, precision), "--steps=3", "--seed=3", "--quiet", sanitize="races", data=small_data(layout[1]),
                          environment={"PDC_CUDA_GRAPH": graph})
        check(ours.losses == trained(layout, precision, 0).losses[:3], "losses %s" % ours.losses)


def sanitized(layout, precision, sanitizer):
    """On several ranks: no access outside of a tensor and no undefined behaviour; no race, that of threads of a kernel included."""
    ours = train_cuda(small(layout, precision), "--steps=2", "--seed=3", "--quiet", seed=1, sanitize=sanitizer, timeout=300, limit=400,
                      data=small_data(layout[1]))
    check(ours.losses == trained(layout, precision, 0).losses[:2], "losses %s" % ours.losses)


for precision in ("f32", "bf16"):
    for layout in LAYOUTS:
        add("orders: pp%d dp%d tp%d %s" % (*layout, precision), orders, layout, precision)
for layout in ((1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 1)):
    add("orders, queued anew: pp%d dp%d tp%d" % layout, orders, layout, "f32", False)

for layout, precision in (((1, 1, 1), "bf16"), ((4, 1, 1), "f32"), ((2, 2, 1), "bf16"), ((2, 1, 2), "f32"), ((1, 2, 2), "f32")):
    add("no race: pp%d dp%d tp%d %s" % (*layout, precision), races, layout, precision)
for layout, precision, sanitizer in (((2, 2, 1), "f32", "address"), ((1, 1, 2), "bf16", "address"), ((2, 1, 1), "bf16", "thread"), ((1, 2, 1), "f32", "thread"),
                                     ((1, 1, 2), "f32", "thread")):
    add("%s sanitizer: pp%d dp%d tp%d %s" % (sanitizer, *layout, precision), sanitized, layout, precision, sanitizer)

harness.main(__name__)
