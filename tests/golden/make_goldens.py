"""Makes the golden files beside it: what PyTorch computes in f64 for the programs of tests/programs. Needs numpy and torch.
`make_goldens.py mlp cnn` makes those of these models only.

For each model: weights (f32 values, so that both precisions start from the same numbers), data, per-parameter gradients
of the first step, the losses and gradient norms of five steps under two recipes, and an evaluation. The recipes here are written out
rather than taken from torch.optim, because they are the language's definition: AdamW decays what has more than one axis,
and clipping multiplies by clip / norm exactly. Lamb is numpy's alone.
"""
import json
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
torch.set_default_dtype(torch.float64)
STEPS, BATCH, EVALUATED = 5, 12, 55
ADAMW = dict(lr=1e-2, beta1=0.9, beta2=0.95, eps=1e-8, decay=0.1, clip=0.5)
SGD = dict(lr=0.1, momentum=0.9)
LAMB = dict(lr=0.05, beta1=0.9, beta2=0.95, eps=1e-8, decay=0.1, clip=0.5, lamb=True)


def layernorm(p, name, x):
    return F.layer_norm(x, x.shape[-1:], eps=1e-5) * p[name + ".weight"] + p[name + ".bias"]


def attend(q, k, v):
    """[batch, seq, heads, head]; key heads are repeated for groups of query heads."""
    group = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
    scores = torch.einsum("bshd,bthd->bhst", q, k) / q.shape[3] ** 0.5
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
    return torch.einsum("bhst,bthd->bshd", weights, v)


def gpt(p, data, layers, tied):
    x = p["wte"][data["tokens"]] + p["wpe"][:data["tokens"].shape[1]]
    for i in range(layers):
        n = "layers.%d." % i
        y = layernorm(p, n + "layernorm", x)
        q, k, v = (torch.einsum("bse,ehd->bshd", y, p[n + "attention.w" + c]) + p[n + "attention.b" + c] for c in "qkv")
        x = x + torch.einsum("bshd,hde->bse", attend(q, k, v), p[n + "attention.wo"]) + p[n + "attention.bo"]
        y = layernorm(p, n + "layernorm_2", x)
        y = F.gelu(y @ p[n + "mlp.w1"] + p[n + "mlp.b1"], approximate="tanh")
        x = x + y @ p[n + "mlp.w2"] + p[n + "mlp.b2"]
    logits = layernorm(p, "layernorm", x) @ (p["wte"].T if tied else p["out"])
    return F.cross_entropy(logits.flatten(0, 1), data["targets"].flatten(), ignore_index=-100)


def gpt_shapes(layers, tied, e=16, h=4, vocab=48, positions=10):
    shapes = {"wte": [vocab, e], "wpe": [positions, e], "layernorm.weight": [e], "layernorm.bias": [e]}
    if not tied:
        shapes["out"] = [e, vocab]
    for i in range(layers):
        n = "layers.%d." % i
        for c in "qkv":
            shapes[n + "attention.w" + c], shapes[n + "attention.b" + c] = [e, h, e // h], [h, e // h]
        shapes.update({n + "attention.wo": [h, e // h, e], n + "attention.bo": [e], n + "mlp.w1": [e, 4 * e],
                       n + "mlp.b1": [4 * e], n + "mlp.w2": [4 * e, e], n + "mlp.b2": [e]})
        for norm in ("layernorm", "layernorm_2"):
            shapes[n + norm + ".weight"], shapes[n + norm + ".bias"] = [e], [e]
    return shapes


def rotate(x, theta):
    """Rotary positions on [batch, seq, heads, head], lane j paired with lane j + head / 2."""
    half = x.shape[3] // 2
    rates = theta ** (-2.0 * torch.arange(half) / x.shape[3])
    angle = torch.arange(x.shape[1])[:, None, None] * rates
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def rmsnorm(x):
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()


def llama(p, data, layers):
    x = p["wte"][data["tokens"]]
    for i in range(layers):
        n = "layers.%d." % i
        y = rmsnorm(x)
        q, k, v = (torch.einsum("bse,ehd->bshd", y, p[n + "attention.w" + c]) for c in "qkv")
        y = attend(rotate(q, 5e5), rotate(k, 5e5), v)
        x = x + torch.einsum("bshd,hde->bse", y, p[n + "attention.wo"])
        y = rmsnorm(x)
        x = x + (F.silu(y @ p[n + "swiglu.gate"]) * (y @ p[n + "swiglu.up"])) @ p[n + "swiglu.down"]
    logits = rmsnorm(x) @ p["out"]
    return F.cross_entropy(logits.flatten(0, 1), data["targets"].flatten(), ignore_index=-100)


def llama_shapes(layers, q=8, kv=4, d=4, ffn=48, vocab=48):
    e = q * d
    shapes = {"wte": [vocab, e], "out": [e, vocab]}
    for i in range(layers):
        n = "layers.%d." % i
        shapes.update({n + "attention.wq": [e, q, d], n + "attention.wk": [e, kv, d], n + "attention.wv": [e, kv, d],
                       n + "attention.wo": [q, d, e], n + "swiglu.gate": [e, ffn], n + "swiglu.up": [e, ffn],
                       n + "swiglu.down": [ffn, e]})
    return shapes


def linear(p, name, x):
    return x @ p[name + ".w"] + p[name + ".b"]


def mlp_logits(p, data, blocks):
    h = F.relu(linear(p, "linear", data["x"]))
    for i in range(blocks):
        h = h + linear(p, "blocks.%d.linear_2" % i, F.relu(linear(p, "blocks.%d.linear" % i, h)))
    return linear(p, "linear_2", h)


def mlp(p, data, blocks):
    return F.cross_entropy(mlp_logits(p, data, blocks), data["y"])


def mlp_shapes(blocks, pixel=20, hidden=16, wide=32, classes=10):
    shapes = {"linear.w": [pixel, hidden], "linear.b": [hidden], "linear_2.w": [hidden, classes], "linear_2.b": [classes]}
    for i in range(blocks):
        shapes.update({"blocks.%d.linear.w" % i: [hidden, wide], "blocks.%d.linear.b" % i: [wide],
                       "blocks.%d.linear_2.w" % i: [wide, hidden], "blocks.%d.linear_2.b" % i: [hidden]})
    return shapes


class Cnn:
    """Statistics of batch normalisation are those of each of `parts` micro-batches; running ones follow once a step, by
    PyTorch's own rule for one micro-batch (momentum=1 gives what it measured), with the mean over all of them."""

    def __init__(self, parts, training=True, blocks=2):
        self.parts, self.training, self.blocks = parts, training, blocks

    def norm(self, p, name, x):
        mean, variance = name + ".running_mean", name + ".running_variance"
        if not self.training:
            y = F.batch_norm(x, p[mean], p[variance], eps=1e-5)
        else:
            measured = torch.zeros(x.shape[1]), torch.zeros(x.shape[1])
            y = F.batch_norm(x, *measured, training=True, momentum=1.0, eps=1e-5)
            for key, value in zip((mean, variance), measured):
                self.measured.setdefault(key, []).append(value)
        return y * p[name + ".scale"][:, None, None] + p[name + ".bias"][:, None, None]

    def conv(self, p, name, x, s=1):
        f = p[name + ".f"]
        return F.gelu(self.norm(p, name, F.conv2d(x, f, stride=s, padding=(f.shape[2] - 1) // 2)), approximate="tanh")

    def logits(self, p, x):
        t = F.max_pool2d(self.conv(p, "conv", x), 3, stride=2, padding=1)
        for i in range(self.blocks):
            n = "blocks.%d.residual." % i
            t = t + self.conv(p, n + "conv_2", self.conv(p, n + "conv", t))
        t = F.avg_pool2d(self.conv(p, "conv_2", t), 2, stride=3)
        gray = F.conv2d(torch.cat([x, x[:, 1:]], 1), p["mix"], p["mixed"], stride=2).mean((2, 3))
        return linear(p, "linear", t.mean((2, 3))) + linear(p, "linear_2", torch.tanh(gray))

    def __call__(self, p, data):
        self.measured = {}
        losses = [F.cross_entropy(self.logits(p, x), y) for x, y in zip(data["x"].chunk(self.parts), data["y"].chunk(self.parts))]
        return sum(losses) / self.parts

    def step_ends(self, p):
        for name, values in self.measured.items():
            p[name].mul_(0.75).add_(sum(values) / len(values), alpha=0.25)


def cnn_shapes(blocks, width=8, classes=10):
    shapes = {"mix": [12, 3, 2, 1], "mixed": [12], "linear.w": [2 * width, classes], "linear.b": [classes],
              "linear_2.w": [12, classes], "linear_2.b": [classes]}
    convs = {"conv": (width, 2, 5), "conv_2": (2 * width, width, 1)}
    for i in range(blocks):
        for name in ("conv", "conv_2"):
            convs["blocks.%d.residual.%s" % (i, name)] = (width, width, 3)
    for name, (out, into, k) in convs.items():
        shapes[name + ".f"] = [out, into, k, k]
        for vector in ("scale", "bias", "running_mean", "running_variance"):
            shapes["%s.%s" % (name, vector)] = [out]
    return shapes


def trained(name):
    return not name.endswith(("running_mean", "running_variance"))


def random_weights(shapes, rng):
    """Every parameter away from its usual start, so that no gradient hides behind a zero or a one."""
    weights = {}
    for name, shape in sorted(shapes.items()):
        fan = np.prod(shape[:-1]) if len(shape) > 1 else 1
        if len(shape) == 4:
            fan = np.prod(shape[1:])
        around_one = name.endswith(("layernorm.weight", "layernorm_2.weight", ".scale", ".running_variance"))
        scale = 0.2 if len(shape) == 1 or ".b" in name else 0.5 if name == "wpe" else 1 / np.sqrt(fan if name != "wte" else 4)
        if name.startswith("blocks") and name.endswith(".f"):
            scale = 1 / np.sqrt(fan)
        weights[name] = (rng.normal(size=shape) * scale + around_one).astype(np.float32)
    return weights


def write_safetensors(path, arrays):
    kinds = {np.dtype(np.float32): "F32", np.dtype(np.float64): "F64"}
    header, data, at = {}, b"", 0
    for name, value in sorted(arrays.items()):
        raw = np.ascontiguousarray(value).tobytes()
        header[name] = {"dtype": kinds[value.dtype], "shape": list(value.shape), "data_offsets": [at, at + len(raw)]}
        data, at = data + raw, at + len(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)


def batch_of(data, step):
    return {name: torch.from_numpy(value[step * BATCH:(step + 1) * BATCH].astype(
        np.int64 if value.dtype == np.int32 else np.float64)) for name, value in data.items()}



def run(model, weights, data, recipe):
    """Losses and gradient norms of all steps, and the first step's gradients."""
    p = {name: torch.tensor(value, dtype=torch.float64, requires_grad=trained(name)) for name, value in weights.items()}
    state = {name: [torch.zeros_like(value), torch.zeros_like(value)] for name, value in p.items() if trained(name)}
    losses, norms, first = [], [], None
    for step in range(STEPS):
        loss = model(p, batch_of(data, step))
        loss.backward()
        norm = sum(p[name].grad.pow(2).sum() for name in state).sqrt().item()
        losses.append(loss.item())
        norms.append(norm)
        first = first or {name: p[name].grad.numpy().copy() for name in state}
        with torch.no_grad():
            for name in state:
                (update_lamb if "lamb" in recipe else update)(p[name], state[name], step + 1, norm, recipe)
                p[name].grad = None
            if hasattr(model, "step_ends"):
                model.step_ends(p)
    running = {name: value.tolist() for name, value in p.items() if not trained(name)}
    return {"losses": losses, "norms": norms, **({"running": running} if running else {})}, first


def update(w, state, step, norm, r):
    g = w.grad * min(1, r["clip"] / norm) if "clip" in r else w.grad
    if "beta1" not in r:
        state[0].mul_(r["momentum"]).add_(g)
        w -= r["lr"] * state[0]
        return
    state[0].mul_(r["beta1"]).add_(g, alpha=1 - r["beta1"])
    state[1].mul_(r["beta2"]).addcmul_(g, g, value=1 - r["beta2"])
    m, v = state[0] / (1 - r["beta1"] ** step), state[1] / (1 - r["beta2"] ** step)
    w -= r["lr"] * (m / (v.sqrt() + r["eps"]) + (r["decay"] * w if w.dim() > 1 else 0))


def update_lamb(w, state, step, norm, r):
    """You et al. 2020, algorithm 2; gains and biases neither decay nor follow the length of the tensor."""
    x, g = w.numpy(), w.grad.numpy() * min(1, r["clip"] / norm)
    m, v = (value.numpy() for value in state)
    m[...] = r["beta1"] * m + (1 - r["beta1"]) * g
    v[...] = r["beta2"] * v + (1 - r["beta2"]) * g * g
    direction = m / (1 - r["beta1"] ** step) / (np.sqrt(v / (1 - r["beta2"] ** step)) + r["eps"])
    ratio = 1.0
    if x.ndim > 1:
        direction = direction + r["decay"] * x
        length, other = np.sqrt((x * x).sum()), np.sqrt((direction * direction).sum())
        ratio = length / other if length > 0 and other > 0 else 1.0
    x -= r["lr"] * ratio * direction


def evaluate(model, weights, data):
    """The mean over the first EVALUATED samples, which fill no whole number of batches."""
    p = {name: torch.tensor(value, dtype=torch.float64) for name, value in weights.items()}
    part = {name: torch.from_numpy(value[:EVALUATED].astype(np.int64 if value.dtype == np.int32 else np.float64))
            for name, value in data.items()}
    result = {"loss": model(p, part).item()}
    if "y" in part:
        logits = model.logits(p, part["x"]) if isinstance(model, Cnn) else mlp_logits(p, part, 2)
        result["accuracy"] = (logits.argmax(-1) == part["y"]).double().mean().item()
    return result


def make(name, model, shapes, data, rng, recipes=("adamw", "sgd")):
    weights = random_weights(shapes, rng)
    if len(sys.argv) > 1 and name not in sys.argv[1:]:
        return
    result, cnn = {"evaluation": evaluate(Cnn(1, training=False) if name == "cnn" else model, weights, data)}, name == "cnn"
    for kind in recipes:
        result[kind], first = run(model, weights, data, {"adamw": ADAMW, "sgd": SGD, "lamb": LAMB}[kind])
        if cnn:  # three micro-batches have other statistics
            result[kind + " of 4"], of_four = run(Cnn(3), weights, data, {"adamw": ADAMW, "sgd": SGD, "lamb": LAMB}[kind])
            write_safetensors(os.path.join(HERE, "cnn.gradients-of-4.safetensors"), of_four)
    write_safetensors(os.path.join(HERE, name + ".weights.safetensors"), weights)
    write_safetensors(os.path.join(HERE, name + ".gradients.safetensors"), first)
    for key, value in data.items():
        np.save(os.path.join(HERE, "%s.%s.npy" % (name, key)), value)
    with open(os.path.join(HERE, name + ".json"), "w") as file:
        json.dump(result, file, indent=1)
        file.write("\n")


def tokens(rng, words=48, seq=8):
    text = rng.integers(0, words, size=(STEPS * BATCH, seq + 1)).astype(np.int32)
    targets = text[:, 1:].copy()
    targets[rng.random(targets.shape) < 0.2] = -100  # samples hold different numbers of counted targets
    targets[1] = -100                                # and one holds none
    return {"tokens": text[:, :-1].copy(), "targets": targets}


def main():
    rng = np.random.default_rng(20240607)
    make("gpt-tied", lambda p, d: gpt(p, d, 2, True), gpt_shapes(2, True), tokens(rng), rng)
    make("gpt-untied", lambda p, d: gpt(p, d, 1, False), gpt_shapes(1, False), tokens(rng), rng)
    make("llama", lambda p, d: llama(p, d, 1), llama_shapes(1), tokens(rng), rng)
    images = {"x": rng.normal(size=(STEPS * BATCH, 20)).astype(np.float32),
              "y": rng.integers(0, 10, size=STEPS * BATCH).astype(np.int32)}
    make("mlp", lambda p, d: mlp(p, d, 2), mlp_shapes(2), images, rng, ("adamw", "sgd", "lamb"))
    images = {"x": rng.normal(size=(STEPS * BATCH, 2, 10, 10)).astype(np.float32),
              "y": rng.integers(0, 10, size=STEPS * BATCH).astype(np.int32)}
    make("cnn", Cnn(1), cnn_shapes(2), images, rng, ("adamw", "sgd", "lamb"))


main()
