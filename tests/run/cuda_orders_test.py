"""Orders of streams. A program leaves the device free to choose among what streams, events and the graph of a step leave open, and
computes the same bits whatever it chooses, and what the host target computes: twenty-one orders for one, two and four ranks, over
every axis of the mesh, in f32 and bf16, from a captured step and from one that is queued anew."""
import re

import harness
from cuda_programs import SMALL, calls, relative, small, small_data, train_cuda
from harness import add, build, check, once, tensors_equal, train

STEPS, SEEDS = 22, 21
# pp, dp, tp
LAYOUTS = [(1, 1, 1), (2, 1, 1), (4, 1, 1), (1, 2, 1), (1, 4, 1), (1, 1, 2), (1, 1, 4), (2, 2, 1), (2, 1, 2), (1, 2, 2)]


def trained(layout, precision, seed, graph=True):
    return once((layout, precision, seed, graph), lambda: train_cuda(
        small(layout, precision), "--steps=%d" % STEPS, "--seed=3", "--quiet", seed=seed, data=small_data(layout[1]),
        environment={} if graph else {"PDC_CUDA_GRAPH": "0"}))


def on_the_host(replicas, precision):
    """The same batches on one rank of the host target."""
    defines = {"global": 4 * replicas, "schedule.microbatch": 1, "precision.compute": precision}
    return once(("host", replicas, precision), lambda: train(build(SMALL, defines, options=("-O1", "--target=host")), "--steps=5",
                                                             "--seed=3", "--quiet", data=small_data(replicas)))


def orders(layout, precision, graph=True):
    first, ours = trained(layout, precision, SEEDS + 1), trained(layout, precision, "1-%d" % SEEDS, graph)
    check(ours.losses == first.losses and ours.norms == first.norms, "losses %s, in another order %s" % (ours.losses, first.losses))
    tensors_equal(ours.weights, first.weights, "weights")
    hosts = on_the_host(layout[1], precision)
    check(relative(ours.losses[:5], hosts.losses) < (1e-5 if precision == "f32" else 2e-2), "losses %s, on the host %s" % (ours.losses[:5], hosts.losses))
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
        check(ours.losses == trained(layout, precision, SEEDS + 1).losses[:3], "losses %s" % ours.losses)


def sanitized(layout, precision, sanitizer):
    """On several ranks: no access outside of a tensor and no undefined behaviour; no race, that of threads of a kernel included."""
    ours = train_cuda(small(layout, precision), "--steps=2", "--seed=3", "--quiet", seed=1, sanitize=sanitizer, timeout=300, limit=400,
                      data=small_data(layout[1]))
    check(ours.losses == trained(layout, precision, SEEDS + 1).losses[:2], "losses %s" % ours.losses)


for precision in ("f32", "bf16"):
    for layout in LAYOUTS:
        add("orders: pp%d dp%d tp%d %s" % (*layout, precision), orders, layout, precision)
for layout in ((1, 1, 1), (1, 1, 2), (2, 2, 1)):
    add("orders, queued anew: pp%d dp%d tp%d" % layout, orders, layout, "f32", False)

for layout, precision in (((1, 1, 1), "bf16"), ((4, 1, 1), "f32"), ((2, 2, 1), "bf16"), ((2, 1, 2), "f32"), ((1, 2, 2), "f32")):
    add("no race: pp%d dp%d tp%d %s" % (*layout, precision), races, layout, precision)
for layout, precision, sanitizer in (((2, 2, 1), "f32", "address"), ((2, 1, 1), "bf16", "thread"), ((1, 1, 2), "f32", "thread")):
    add("%s sanitizer: pp%d dp%d tp%d %s" % (sanitizer, *layout, precision), sanitized, layout, precision, sanitizer)

harness.main(__name__)
