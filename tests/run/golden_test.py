"""pdc against PyTorch: losses, gradient norms and per-parameter gradients in f64 and f32, losses of five steps with AdamW
and with SGD (some with Lamb), and evaluations. The numbers come from tests/golden/make_goldens.py."""
import json
import os

import harness
from harness import GOLDEN, Tensor, add, check, close, read_npy, read_program, read_safetensors, tensors_close, train

MODELS = {  # golden files: program, sizes, inputs
    "gpt-tied": ("gpt", {"layers": 2}, ("tokens", "targets")),
    "gpt-untied": ("gpt", {"layers": 1, "tied": False}, ("tokens", "targets")),
    "llama": ("llama", {"layers": 1}, ("tokens", "targets")),
    "mlp": ("mlp", {}, ("x", "y")),
    "cnn": ("cnn", {}, ("x", "y")),
}
RECIPES = {
    "adamw": {},
    "sgd": {"optimizer.kind": "sgd", "optimizer.lr": 0.1, "optimizer.momentum": 0.9, "optimizer.decay": 0, "optimizer.clip": 0},
    "lamb": {"optimizer.kind": "lamb", "optimizer.lr": 0.05},
}
TOLERANCE = {  # loss, norm, gradient of a parameter
    "f64": (1e-12, 1e-11, 1e-10),
    "f32": (2e-6, 1e-5, 1e-5),
}


def golden(model, recipe, precision, microbatch, kernels):
    program, sizes, inputs = MODELS[model]
    defines = {**sizes, **RECIPES[recipe], "precision.compute": precision, "schedule.microbatch": microbatch}
    run = train(harness.build(read_program(program), defines), "--steps=5", "--kernels=" + kernels,
                data={name: read_npy(os.path.join(GOLDEN, "%s.%s.npy" % (model, name))) for name in inputs},
                init=os.path.join(GOLDEN, model + ".weights.safetensors"))
    with open(os.path.join(GOLDEN, model + ".json")) as file:
        wanted = json.load(file)
    wanted = wanted.get("%s of %d" % (recipe, microbatch), wanted[recipe])
    gradients = model + (".gradients-of-4" if model == "cnn" and microbatch == 4 else ".gradients") + ".safetensors"
    loss, norm, gradient = TOLERANCE[precision]
    tensors_close(run.gradients, read_safetensors(os.path.join(GOLDEN, gradients)), gradient,
                  "gradients of step 1", floor=1e-3)
    close(run.losses, wanted["losses"], loss, "losses")
    close(run.norms, wanted["norms"], norm, "gradient norms")
    running = {name: Tensor((len(values),), values) for name, values in wanted.get("running", {}).items()}
    tensors_close({name: run.weights[name] for name in running}, running, gradient, "running statistics after five steps")
    check([line["step"] for line in run.steps] == [1, 2, 3, 4, 5], "the log has steps 1 to 5")


def evaluation(model, precision, layout):
    program, sizes, inputs = MODELS[model]
    pp, dp, tp, microbatch, kind, chunks = layout
    defines = {**sizes, "precision.compute": precision, "parallel.pp": pp, "parallel.dp": dp, "parallel.tp": tp,
               "schedule.microbatch": microbatch, "schedule.kind": kind, "schedule.chunks": chunks}
    valid = {}
    for name in inputs:  # 55 samples: no whole number of batches, replicas or micro-batches
        whole = read_npy(os.path.join(GOLDEN, "%s.%s.npy" % (model, name)))
        valid[name] = Tensor((55,) + whole.shape[1:], whole.values[:55 * len(whole.values) // whole.shape[0]], whole.kind)
    run = train(harness.build(read_program(program), defines), "--steps=0", valid=valid,
                init=os.path.join(GOLDEN, model + ".weights.safetensors"))
    with open(os.path.join(GOLDEN, model + ".json")) as file:
        wanted = json.load(file)["evaluation"]
    check(len(run.evals) == 1 and run.evals[0]["samples"] == 55, "one evaluation of 55 samples: %s" % run.lines)
    close(run.evals[0]["loss"], wanted["loss"], TOLERANCE[precision][0], "validation loss")
    if "accuracy" in wanted:
        close(run.evals[0]["accuracy"], wanted["accuracy"], 1e-6, "accuracy")


for model in MODELS:
    for precision, layout in (("f64", (1, 1, 1, 12, "1f1b", 1)), ("f32", (1, 1, 1, 1, "1f1b", 1)), ("f64", (2, 2, 2, 3, "1f1b", 1)),
                              ("f64", (1, 3, 1, 2, "gpipe", 1))):
        add("%s evaluation %s on pp%d dp%d tp%d microbatch %d" % (model, precision, *layout[:4]), evaluation, model, precision, layout)
for precision, layout in (("f64", (2, 1, 1, 4, "interleaved", 2)), ("f32", (2, 2, 1, 2, "zb-v", 2))):
    add("mlp evaluation %s on pp%d dp%d tp%d microbatch %d %s" % (precision, *layout[:5]), evaluation, "mlp", precision, layout)
for model in MODELS:
    for recipe in RECIPES:
        if recipe == "lamb" and model not in ("mlp", "cnn"):
            continue
        for precision in TOLERANCE:
            for microbatch, kernels in ((12, "host"), (4, "host"), (12, "ref")):
                if kernels == "host" or recipe == "adamw":
                    add("%s %s %s microbatch %d %s kernels" % (model, recipe, precision, microbatch, kernels), golden, model,
                        recipe, precision, microbatch, kernels)

harness.main(__name__)
