"""The models and layouts of the parity suite (parity_test.py), which cuda_compile_test.py compiles for CUDA."""

STEPS, BATCH = 5, 12
MODELS = {
    "gpt-tied": ("gpt", {"layers": 4, "words": 48}),
    "gpt-untied": ("gpt", {"layers": 4, "words": 48, "tied": False}),
    "llama": ("llama", {"layers": 4}),
    "mlp": ("mlp", {"blocks": 4}),
    "gpt-tied-lamb": ("gpt", {"layers": 4, "words": 48, "optimizer.kind": "lamb"}),
    "mlp-lamb": ("mlp", {"blocks": 4, "optimizer.kind": "lamb", "optimizer.lr": 0.05}),
    "cnn": ("cnn", {"blocks": 4}),
    "cnn-lamb": ("cnn", {"blocks": 4, "optimizer.kind": "lamb", "optimizer.lr": 0.05}),
}
SOME = {"gpt-tied-lamb": 13, "mlp-lamb": 5, "cnn": 2, "cnn-lamb": 7}  # every so many layouts


def layouts():
    """(pp, dp, tp, microbatch, schedule, chunks): each layout, its schedules, and micro-batch sizes for its dp."""
    result = []
    for dp in (1, 2, 3):
        for tp in (1, 2, 4):
            sizes = {1: (3, 1), 2: (2, 6), 3: (2, 4)}[dp]
            for microbatch in sizes if tp == 1 else sizes[:1]:
                for pp in (1, 2, 4):
                    if pp * dp * tp > 8:
                        continue
                    for kind in ("gpipe", "1f1b") if pp > 1 else ("gpipe",):
                        result.append((pp, dp, tp, microbatch, kind, 1))
    return result + [
        (2, 1, 1, 1, "interleaved", 2), (2, 1, 1, 3, "interleaved", 3), (2, 2, 2, 2, "interleaved", 2),
        (2, 1, 1, 1, "zb-h1", 1), (4, 1, 1, 3, "zb-h1", 1), (2, 2, 1, 2, "zb-h1", 1), (2, 1, 2, 3, "zb-h1", 1),
        (2, 1, 1, 1, "zb-v", 2), (4, 1, 1, 1, "zb-h2", 1),
        (2, 1, 1, 1, "v-half", 2), (2, 1, 1, 1, "v-min", 2), (2, 1, 1, 1, "1f1b-v", 2), (2, 1, 1, 1, "hanayo", 2),
        (2, 1, 1, 1, "dualpipe-v", 2), (2, 2, 1, 2, "auto", 1), (4, 1, 1, 1, "auto", 1),
    ]


def program(model, layout):
    """(name of the program in tests/programs, its defines)"""
    pp, dp, tp, microbatch, kind, chunks = layout
    name, sizes = MODELS[model]
    return name, {**sizes, "parallel.pp": pp, "parallel.dp": dp, "parallel.tp": tp, "schedule.kind": kind, "schedule.chunks": chunks,
                  "schedule.microbatch": microbatch}


def name_of(layout):
    pp, dp, tp, microbatch, kind, chunks = layout
    return "pp%d dp%d tp%d microbatch %d %s%s" % (pp, dp, tp, microbatch, kind, " chunks %d" % chunks if chunks > 1 else "")
