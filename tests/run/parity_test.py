"""Every layout computes what one rank computes.

Each model runs five AdamW steps with clipping on every layout of pp 1, 2, 4 x dp 1, 2, 3 x tp 1, 2, 4 with at most eight
ranks. Against one rank with one micro-batch: every parameter's gradient of step 1, and all losses. Against pp=1 with the
same dp, tp and micro-batch size: the losses and the saved parameters, to the bit, whatever the schedule. Batch normalisation
looks at one micro-batch, so the CNN's one rank has micro-batches of the same samples. It and Lamb run on fewer layouts.
"""
import math

import harness
from parity_models import BATCH, MODELS, SOME, STEPS, layouts, name_of, program
from harness import Random, Tensor, add, check, close, once, read_program, tensors_close, tensors_equal, train

REFERENCE = (1, 1, 1, BATCH, "gpipe", 1)


def data_of(model):
    random = Random(7)
    if model.startswith("cnn"):
        return {"x": random.reals([STEPS * BATCH, 2, 10, 10], "F32"), "y": random.integers([STEPS * BATCH], 10)}
    if model.startswith("mlp"):
        return {"x": random.reals([STEPS * BATCH, 20], "F32"), "y": random.integers([STEPS * BATCH], 10)}
    tokens = random.integers([STEPS * BATCH, 8], 48)
    return {"tokens": tokens, "targets": random.integers([STEPS * BATCH, 8], 48, ignored=0.3)}


def weights_of(model):
    """Random weights in the shapes of the model, away from zeros and ones; vectors near 1 stay near 1."""
    random, weights = Random(11), {}
    made = train(program_of(model, REFERENCE), "--steps=0", "--seed=1").weights
    for name, t in made.items():
        start = 1.0 if len(t.shape) == 1 and set(t.values) == {1.0} else 0.0
        fan = math.prod(t.shape[:-1]) if len(t.shape) > 1 and name != "wte" else 4
        fan = math.prod(t.shape[1:]) if len(t.shape) == 4 else fan
        scale = 0.2 if len(t.shape) == 1 or ".attention.b" in name else 1 / math.sqrt(fan)
        weights[name] = random.reals(t.shape, "F32", scale, start)
    return weights


def program_of(model, layout, more=None):
    name, defines = program(model, layout)
    return harness.build(read_program(name), {**defines, **(more or {})})


def run_of(model, layout):
    """What a run of the model on the layout left: losses, norms, gradients, weights."""
    def run():
        weights = once(("weights", model), lambda: weights_of(model))
        done = train(program_of(model, layout), "--steps=%d" % STEPS, data=data_of(model), init=weights)
        return done.losses, done.norms, done.gradients, done.weights
    return once(("run", model, layout), run)


def parity(model, layout):
    losses, norms, gradients, weights = run_of(model, layout)
    pp, dp, tp, microbatch, kind, chunks = layout
    wanted = run_of(model, (1, 1, 1, microbatch, "gpipe", 1) if model.startswith("cnn") else REFERENCE)
    tensors_close(gradients, wanted[2], 1e-5, "gradients of step 1 against one rank", floor=1e-3)
    close(losses, wanted[0], 2e-6, "losses against one rank")
    close(norms, wanted[1], 1e-4, "gradient norms against one rank")
    check(losses[-1] != losses[0], "the loss moves")
    if pp > 1:
        same = run_of(model, (1, dp, tp, microbatch, "gpipe", 1))
        check(losses == same[0], "losses are not those of pp=1 to the bit: %s, %s" % (losses, same[0]))
        check(norms == same[1], "gradient norms are not those of pp=1 to the bit: %s, %s" % (norms, same[1]))
        tensors_equal(weights, same[3], "weights after five steps, against pp=1")


def activations(model, layout, recompute):
    """Bytes of activations on a rank of each stage."""
    name, defines = program(model, layout)
    text = harness.emit("memory", read_program(name), {**defines, "schedule.recompute": recompute})
    lines = [line.split() for line in text.splitlines()]
    column = lines[0].index("activations")
    return [int(line[column]) for line in lines[1:]]


def recomputed(model, layout, which):
    """Computing activations once more changes no bit, and keeps fewer of them."""
    plain = run_of(model, layout)
    weights = once(("weights", model), lambda: weights_of(model))
    done = train(program_of(model, layout, {"schedule.recompute": which}), "--steps=%d" % STEPS, data=data_of(model), init=weights)
    check(done.losses == plain[0] and done.norms == plain[1], "losses %s, without recomputation %s" % (done.losses, plain[0]))
    tensors_equal(done.weights, plain[3], "weights after five steps, against those without recomputation")
    kept = {recompute: max(activations(model, layout, recompute)) for recompute in ("none", which)}
    check(kept[which] < kept["none"], "bytes of activations on a rank: %s" % kept)


LAYOUTS = [((4, 1, 1, 3, "1f1b", 1), "E|tt||ttL"), ((2, 1, 1, 1, "interleaved", 2), "Ettt|||tL"), ((2, 1, 1, 1, "zb-v", 2), "E||t*4|L"),
           ((4, 1, 1, 3, "zb-h1", 1), "Et||ttt|L"), ((2, 2, 1, 2, "gpipe", 1), "(Et|t)*1,ttL"), ((2, 1, 2, 3, "1f1b-v", 2), "E(t|)*3tL")]


def laid_out(model, layout, text):
    """Where stages are cut, by a layout string with empty stages too, changes no bit."""
    pp, dp, tp, microbatch, kind, chunks = layout
    weights = once(("weights", model), lambda: weights_of(model))
    done = train(program_of(model, layout, {"schedule.layout": text}), "--steps=%d" % STEPS, data=data_of(model), init=weights)
    same = run_of(model, (1, dp, tp, microbatch, "gpipe", 1))
    check(done.losses == same[0] and done.norms == same[1], "losses %s, without a pipeline %s" % (done.losses, same[0]))
    tensors_equal(done.gradients, same[2], "gradients of step 1")
    tensors_equal(done.weights, same[3], "weights after five steps")


def threaded(model):
    """Neither does another number of threads."""
    weights = once(("weights", model), lambda: weights_of(model))
    layout = (1, 1, 1, 3, "gpipe", 1)
    wanted = run_of(model, layout)
    for threads in (2, 3):
        done = train(program_of(model, layout), "--steps=%d" % STEPS, "--threads=%d" % threads, data=data_of(model), init=weights,
                     environment={"OMP_NUM_THREADS": "4"})
        check(done.losses == wanted[0], "losses with %d threads %s, with one %s" % (threads, done.losses, wanted[0]))
        tensors_equal(done.weights, wanted[3], "weights after five steps with %d threads" % threads)


for model in MODELS:
    for layout in layouts()[::SOME.get(model, 1)]:
        add("%s %s" % (model, name_of(layout)), parity, model, layout)
    add("%s threads" % model, threaded, model)
    if model.endswith("-lamb"):  # the rest has nothing to do with the optimizer
        continue
    for layout in ((1, 1, 1, 3, "gpipe", 1), (2, 1, 1, 3, "1f1b", 1), (2, 2, 1, 2, "zb-h1", 1), (2, 1, 1, 1, "interleaved", 2)):
        for which in ("selective", "full"):
            add("%s recompute=%s %s" % (model, which, name_of(layout)), recomputed, model, layout, which)
    for layout, text in LAYOUTS if model in ("gpt-tied", "mlp") else ():
        add("%s layout %s %s" % (model, text, name_of(layout)), laid_out, model, layout, text)

harness.main(__name__)
