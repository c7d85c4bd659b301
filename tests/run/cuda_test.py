"""The CUDA target. Programs are compiled by nvcc with warnings as errors, spilled registers among them, and run unmodified on
the fake GPU (tests/fakegpu), which runs their kernels' twins on the CPU and its streams in any order that the program
allows. They must compute what the host target computes: f32 to 1e-5 over five steps, bf16 within its rounding.
"""
import os
import re

import harness
from cuda_programs import KEPT, build_cuda, calls, relative, small, small_data, start_cuda, train_cuda
from harness import Random, add, build, check, close, command, directory, once, pdc, read_program, tensors_close, tensors_equal, train

STEPS, BATCH = 5, 12

MODELS = {
    "gpt-tied": ("gpt", {"layers": 4, "words": 48}),
    "gpt-untied": ("gpt", {"layers": 4, "words": 48, "tied": False}),
    "llama": ("llama", {"layers": 4}),
    "mlp": ("mlp", {"blocks": 4}),
    "dropout": ("dropout", {}),
    "extremes": ("extremes", {}),
    "cnn": ("cnn", {}),
    "cnn-lamb": ("cnn", {"optimizer__kind": "lamb", "optimizer__lr": 0.05}),
    "gpt-lamb": ("gpt", {"layers": 4, "words": 48, "optimizer__kind": "lamb"}),
    "gpt-halves": ("gpt", {"layers": 4, "words": 48, "schedule__accumulators": 2}),
    "mlp-late": ("mlp", {"blocks": 4, "optimizer__clip": 0, "optimizer__lr": 1e-3}),
}
# model, pp, dp, tp, microbatch, schedule, chunks, precision. Programs of one model with the same micro-batches and tp share their
# kernels, which are compiled once. Attention in bf16 by kernels of their own: cuda_attention_test.py.
MLP = ("mlp", 1, 1, 1, 2, "gpipe", 1, "f32")
MLP_BF16 = ("mlp", 1, 1, 1, 2, "gpipe", 1, "bf16")
MLP_REPLICAS = ("mlp", 1, 2, 1, 2, "gpipe", 1, "f32")
GPT = ("gpt-tied", 1, 1, 1, 3, "gpipe", 1, "f32")
GPT_STAGES = ("gpt-tied", 2, 1, 1, 3, "1f1b", 1, "f32")
CNN = ("cnn", 1, 2, 2, 3, "gpipe", 1, "f32")
RUNS = [
    MLP, GPT, MLP_BF16, CNN,
    ("llama", 1, 1, 1, 3, "gpipe", 1, "f32"),
    ("llama", 1, 1, 2, 6, "gpipe", 1, "f32"),
    ("gpt-tied", 2, 1, 2, 6, "1f1b", 1, "f32"),
    ("dropout", 1, 2, 2, 3, "gpipe", 1, "f32"),
    ("gpt-untied", 1, 1, 2, 6, "gpipe", 1, "bf16"),
    ("cnn-lamb", 1, 1, 1, 4, "gpipe", 1, "bf16"),
    ("gpt-lamb", 2, 1, 2, 6, "1f1b", 1, "f32"),
    ("extremes", 1, 2, 1, 3, "gpipe", 1, "f32"),
    ("extremes", 1, 1, 1, 12, "gpipe", 1, "bf16"),
    MLP_REPLICAS, GPT_STAGES,
]
# schedules that cuda_orders_test.py does not have
SCHEDULES = [
    ("gpt-untied", 2, 1, 1, 3, "interleaved", 2, "f32"),
    ("llama", 2, 1, 1, 3, "zb-h1", 1, "f32"),
    ("cnn", 2, 1, 2, 3, "1f1b", 1, "f32"),
    ("gpt-tied", 2, 2, 1, 3, "chimera", 1, "f32"), # the second copy goes on with the sums of the first
    ("gpt-halves", 2, 1, 1, 3, "dualpipe", 1, "f32"),
]
# with updates within a step, whose queue is another every time: no graph
LATE = [
    ("mlp-late", 2, 2, 1, 2, "pipedream", 1, "f32"),
    ("mlp-late", 2, 1, 1, 2, "pipedream", 1, "bf16"),
    ("mlp-late", 2, 1, 1, 2, "pipedream-2bw", 1, "f32"),
    ("mlp-late", 2, 1, 1, 2, "pipedream-2bw", 1, "bf16"),
]


def program_of(run):
    model, pp, dp, tp, microbatch, kind, chunks, precision = run
    name, defines = MODELS[model]
    defines = dict(defines, parallel__pp=pp, parallel__dp=dp, parallel__tp=tp, schedule__microbatch=microbatch,
                   schedule__kind=kind, precision__compute=precision)
    if chunks > 1:
        defines["schedule__chunks"] = chunks
    return read_program(name), defines


def data_of(model, samples=STEPS * BATCH):
    random = Random(7)
    if model.startswith("mlp"):
        return {"x": random.reals([samples, 20], "F32"), "y": random.integers([samples], 10)}
    if model == "extremes":
        return {"x": random.reals([samples, 10, 6], "F32"), "y": random.reals([samples], "F32")}
    if model.startswith("cnn"):
        return {"x": random.reals([samples, 2, 10, 10], "F32"), "y": random.integers([samples], 10)}
    return {"tokens": random.integers([samples, 8], 48), "targets": random.integers([samples, 8], 48, ignored=0.3)}


def host_run(run):
    source, defines = program_of(run)
    model = run[0]
    return once("host run %s %s" % (source, sorted(defines.items())),
                lambda: train(build(source, defines, options=("-O1", "--target=host")), "--steps=%d" % STEPS, "--seed=3", data=data_of(model)))


def run_of(run, seed):
    """Five steps with an order of streams."""
    return once("run %s seed %s" % (run, seed), lambda: train_cuda(build_cuda(*program_of(run)), "--steps=%d" % STEPS, "--seed=3", seed=seed,
                                                                     data=data_of(run[0])))


def agrees(run):
    """What the host target computes."""
    ours, hosts = run_of(run, 0), host_run(run)
    bound = 1e-5 if run[7] == "f32" else 2e-2
    check(len(ours.losses) == STEPS and relative(ours.losses, hosts.losses) < bound,
          "losses %s, on the host %s" % (ours.losses, hosts.losses))
    check(relative(ours.norms[:2], hosts.norms[:2]) < bound, "norms %s, on the host %s" % (ours.norms, hosts.norms))
    if run[7] == "f32":
        tensors_close(ours.gradients, hosts.gradients, 2e-5, "gradients of the first step", floor=1e-3)


def test_first_losses_differ_from_the_last():
    """The runs above compare something: they learn."""
    losses = host_run(MLP).losses
    check(losses[0] > 1.5 * losses[-1], "losses %s" % losses)


def one_allocation_one_graph(run):
    ours = run_of(run, 0)
    for rank in range(run[1] * run[2] * run[3]):
        text = calls(ours, rank)
        check(len(re.findall(r"\bcudaMalloc\b", text)) == 1, "rank %d allocates device memory more than once" % rank)
        check(len(re.findall(r"\bcudaGraphInstantiate\w*", text)) == 1 and len(re.findall(r"\bcudaGraphLaunch\b", text)) >= STEPS - 1,
              "rank %d does not replay its step as a graph" % rank)


def seeds_agree(run):
    """Another order of streams in every step gives the same bits; cuda_orders_test.py tries more of them."""
    ours, first = run_of(run, "1-5"), run_of(run, 0)
    check(ours.losses == first.losses and ours.norms == first.norms, "losses %s, at seed 0 %s" % (ours.losses, first.losses))
    tensors_equal(ours.weights, first.weights, "weights")


def name_of(run):
    model, pp, dp, tp, microbatch, kind, chunks, precision = run
    return "%s pp%d dp%d tp%d microbatch %d %s%s %s" % (model, pp, dp, tp, microbatch, kind, " chunks %d" % chunks if chunks > 1 else "", precision)


def test_late_updates_resumed():
    """The versions of the weights that a run is cut with, in f32 and as the model reads them, are those it goes on with."""
    run = LATE[3]
    program, data, place = build_cuda(*program_of(run)), data_of(run[0]), directory()
    whole, cut = run_of(run, 0), ("--seed=3", "--checkpoint=" + place)
    train_cuda(program, "--steps=2", *cut, data=data)
    rest = train_cuda(program, "--steps=%d" % STEPS, *cut, "--resume", data=data)
    check(rest.losses == whole.losses[2:], "losses %s, not cut %s" % (rest.losses, whole.losses))
    tensors_equal(rest.weights, whole.weights, "weights after %d steps" % STEPS)


def test_without_a_graph():
    for run in (MLP, GPT_STAGES):
        recorded, plain = run_of(run, 0), train_cuda(build_cuda(*program_of(run)), "--steps=%d" % STEPS, "--seed=3", data=data_of(run[0]),
                                                     environment={"PDC_CUDA_GRAPH": "0"})
        check("cudaGraphLaunch" not in calls(plain, 0), "PDC_CUDA_GRAPH=0 runs graphs")
        check(recorded.losses == plain.losses, "losses %s with a graph, %s without" % (recorded.losses, plain.losses))
        tensors_equal(recorded.weights, plain.weights, "weights with and without a graph")


def test_bits_do_not_depend_on_the_pipeline():
    """One rank and two, by two schedules, with the same micro-batches."""
    first = None
    for pp, kind in ((1, "gpipe"), (2, "1f1b"), (2, "zb-h1")):
        ours = run_of(("gpt-tied", pp, 1, 1, 3, kind, 1, "f32"), 0)
        first = first or ours
        check(ours.losses == first.losses, "pp%d %s: losses %s, not %s" % (pp, kind, ours.losses, first.losses))
        tensors_equal(ours.gradients, first.gradients, "gradients with pp%d %s" % (pp, kind))
        tensors_equal(ours.weights, first.weights, "weights with pp%d %s" % (pp, kind))


def test_the_launch_gives_the_replicas():
    """dp=*: on two ranks the bits of the program compiled for two, one graph; on three what the host computes on three."""
    run = MLP_REPLICAS
    source, defines = program_of(run)
    program = build_cuda(source, dict(defines, parallel__dp="*"))
    options = ("--steps=%d" % STEPS, "--seed=3")
    fixed = train_cuda(build_cuda(source, defines), *options, seed=4, data=data_of(run[0]))
    for words, ranks in (((), 2), (("--dp=2",), None)):
        ours = train_cuda(program, *options, *words, seed=4, data=data_of(run[0]), ranks=ranks)
        check(len(ours.losses) == STEPS and ours.losses == fixed.losses and ours.norms == fixed.norms, "losses %s, not %s" % (ours.losses, fixed.losses))
        tensors_equal(ours.gradients, fixed.gradients, "gradients")
        tensors_equal(ours.weights, fixed.weights, "weights")
        for rank in range(2):
            wanted = [len(re.findall(what, calls(fixed, rank))) for what in (r"\bcudaGraphLaunch\b", r"\bnccl\w+", r"\bcudaMalloc\b")]
            found = [len(re.findall(what, calls(ours, rank))) for what in (r"\bcudaGraphLaunch\b", r"\bnccl\w+", r"\bcudaMalloc\b")]
            check(found == wanted and wanted[0] > 0, "graph launches, NCCL calls, allocations: %s, not %s" % (found, wanted))
    ours = train_cuda(program, *options, data=data_of(run[0]), ranks=3)
    hosts = host_run(run[:2] + (3,) + run[3:])
    check(relative(ours.losses, hosts.losses) < 1e-5, "losses %s on three ranks, on the host %s" % (ours.losses, hosts.losses))
    tensors_close(ours.gradients, hosts.gradients, 2e-5, "gradients on three ranks", floor=1e-3)


def test_epilogues_by_architecture():
    """Products that also add, take gelu and its derivative, and sum rows for the gradient of what was added, on sm_90; kernels
    of their own on sm_80: the same numbers."""
    source, defines = program_of(GPT)
    for arch in ("90", "80"):
        ours = train_cuda(build_cuda(source, defines, arch), "--steps=%d" % STEPS, "--seed=3", data=data_of(GPT[0]), environment={"PD_FAKE_ARCH": arch})
        check(relative(ours.losses, host_run(GPT).losses) < 1e-5, "sm_%s: losses %s, on the host %s" % (arch, ours.losses, host_run(GPT).losses))
        fused = set(re.findall(r"cublasLtMatmul .*epilogue=(4|164|192|256) ", calls(ours, 0))) # bias, and gelu; its derivative; bias gradient
        check(len(fused) == (4 if arch == "90" else 0), "sm_%s: epilogues %s" % (arch, fused))


def test_evaluation_weights_and_text():
    """Validation, saved weights that the host reads, and sampled text."""
    source, defines = program_of(GPT)
    ours, hosts = build_cuda(source, defines), build(source, defines, options=("-O1", "--target=host"))
    data, valid = data_of("gpt-tied"), data_of("gpt-tied", 17)
    a = train_cuda(ours, "--steps=3", "--seed=3", "--eval-every=2", data=data, valid=valid)
    b = train(hosts, "--steps=3", "--seed=3", "--eval-every=2", data=data, valid=valid)
    check(len(a.evals) == len(b.evals) == 2, "evaluations %s and %s" % (a.evals, b.evals))
    for x, y in zip(a.evals, b.evals):
        close(x["loss"], y["loss"], 1e-5, "validation loss")
    again = train_cuda(ours, "--steps=0", "--seed=9", init=a.path("weights.safetensors"), valid=valid)
    close(again.evals[0]["loss"], a.evals[-1]["loss"], 1e-7, "validation loss of loaded weights")
    tensors_equal(again.weights, a.weights, "weights loaded and saved")
    texts = [start_run.result.out for start_run in
             (train_cuda(ours, "--steps=0", "--generate=!", "--tokens=6", "--temperature=0", init=a.path("weights.safetensors")),
              train(hosts, "--steps=0", "--generate=!", "--tokens=6", "--temperature=0", init=a.path("weights.safetensors")))]
    check(texts[0].splitlines()[-1] == texts[1].splitlines()[-1], "texts differ: %s" % texts)


def test_images_in_groups():
    """Columns of two images are more than are made at a time: each is a group of its own."""
    source = """dim batch = 2, side = 420, hidden = 3;
optimizer < kind=sgd; lr=0.01; >
data < shuffle=off; >
model m(x: f32[batch, 1, side, side], y: f32[batch, hidden, 140, 140]) {
  param first: [hidden, 1, 7, 7] = normal(0.1), second: [hidden, hidden, 7, 7] = normal(0.1);
  loss mse(x |> conv2d(first, pad=3) |> conv2d(second, stride=3, pad=3), y);
}
"""
    random, defines, options = Random(5), {"schedule.microbatch": 2}, ("--steps=1", "--seed=3")
    data = {"x": random.reals([2, 1, 420, 420], "F32"), "y": random.reals([2, 3, 140, 140], "F32")}
    program = build_cuda(source, defines)
    with open(program + ".c") as file:
        groups = re.findall(r"for \(int64_t i = 0; i < 2; i \+= 1\)", file.read())
    check(len(groups) == 2, "%d loops over groups of images, not those of the first convolution's two functions" % len(groups))
    ours, hosts = train_cuda(program, *options, data=data), train(build(source, defines, options=("-O1", "--target=host")), *options, data=data)
    close(ours.losses, hosts.losses, 1e-5, "loss")
    tensors_close(ours.gradients, hosts.gradients, 2e-5, "gradients", floor=1e-3)


def test_running_statistics():
    """What is validated after training depends on them; the files of weights have them."""
    source, defines = program_of(CNN)
    words = {"data": data_of("cnn"), "valid": data_of("cnn", 13)}
    ours = train_cuda(build_cuda(source, defines), "--steps=3", "--seed=3", "--eval-every=3", **words)
    hosts = train(build(source, defines, options=("-O1", "--target=host")), "--steps=3", "--seed=3", "--eval-every=3", **words)
    statistics = [name for name in hosts.weights if "running_" in name]
    check(len(statistics) >= 8, "statistics: %s" % statistics)
    for name in statistics:
        tensors_close({name: ours.weights[name]}, {name: hosts.weights[name]}, 1e-4, name, floor=1e-3)
    close(ours.evals[0]["loss"], hosts.evals[0]["loss"], 1e-4, "validation loss")


def test_gradients_by_finite_differences():
    source, defines = program_of(MLP)
    run, _ = start_cuda(build_cuda(source, defines), "--check-gradients=1", "--seed=3", "--log=/dev/null", data=data_of("mlp"))
    check(run.result.code == 0 and "largest error of all parameters" in run.result.out, run.result.describe())


def test_non_finite_loss_stops():
    source, defines = program_of(MLP)
    data = data_of("mlp")
    data["x"].values[3] = float("inf")
    run, _ = start_cuda(build_cuda(source, defines), "--steps=2", "--seed=3", data=data, environment={"PD_FAKE_LEAKS": "0"})
    check(run.result.code == 5 and "not finite" in run.result.err, run.result.describe())


def sanitized(run, sanitize):
    """No access outside of a tensor, no race between threads, streams or the host."""
    ours = train_cuda(build_cuda(*program_of(run)), "--steps=2", "--seed=3", seed=1, sanitize=sanitize, timeout=300, data=data_of(run[0]), limit=400)
    check(relative(ours.losses, host_run(run).losses[:2]) < (1e-5 if run[7] == "f32" else 2e-2), "losses %s" % ours.losses)


def fails(code, fact, environment, ranks=1, options=()):
    source, defines = program_of(MLP if ranks == 1 else GPT_STAGES)
    data = data_of("mlp" if ranks == 1 else "gpt-tied")
    run, _ = start_cuda(build_cuda(source, defines), "--steps=1", *options, data=data, environment=dict(environment, PD_FAKE_LEAKS="0"))
    check(run.result.code == code and fact in run.result.err, run.result.describe())
    check(run.result.err.count("error:") == 1, "one line for one failure: " + run.result.describe())


def test_default_architectures():
    result = pdc("--target=cuda", "-###", "-o", os.path.join(directory(), "program"), os.path.join(harness.PROGRAMS, "mlp.pd"))
    for fact in ("code=sm_80", "code=sm_90", "code=[sm_100,compute_100]", "-Werror all-warnings", "-warn-spills"):
        check(fact in result.err, "%s is not in: %s" % (fact, result.err))


def test_several_architectures():
    result = pdc("--target=cuda", "--arch=sm_80,sm_90", "-o", os.path.join(directory(), "program"), os.path.join(harness.PROGRAMS, "mlp.pd"))
    check(result.code == 0, result.describe())


def test_without_mpi():
    """A program of one process, built without MPI, trains as the one that has it."""
    source, defines = program_of(MLP)
    with_mpi = build_cuda(source, defines)
    without = build(source, defines, options=("--target=cuda", "--no-mpi", "--arch=sm_90", "--save-temps"), environment=KEPT)
    check("libmpi" not in command(["ldd", without], 10).out, "it is linked with MPI")
    a, b = (train_cuda(program, "--steps=3", "--seed=3", data=data_of("mlp")) for program in (with_mpi, without))
    check(a.losses == b.losses, "losses %s with MPI, %s without" % (a.losses, b.losses))
    tensors_equal(a.weights, b.weights, "weights with and without MPI")
    result = pdc("--target=cuda", "--no-mpi", "-D", "parallel.dp=2", "-o", os.path.join(directory(), "program"),
                 os.path.join(harness.PROGRAMS, "mlp.pd"))
    check(result.code == 2 and "2 ranks" in result.err, result.describe())


def resumed(layout, precision):
    """A run that is cut and goes on from its checkpoint is the run that was not cut, to the bit: masters, moments, random masks."""
    program, data = small(layout, precision), small_data(layout[1])
    options = ("--steps=6", "--seed=3", "--checkpoint=ck", "--save-every=3")
    whole = train_cuda(program, *options, data=data)
    check(sorted(os.listdir(whole.path("ck"))) == ["latest", "step-00000003", "step-00000006"], os.listdir(whole.path("ck")))
    again = train_cuda(program, *options, "--resume=" + os.path.join(whole.path("ck"), "step-00000003"), seed=7, data=data)
    check([line["step"] for line in again.steps] == [4, 5, 6] and again.losses == whole.losses[3:] and again.norms == whole.norms[3:],
          "losses %s, without a cut %s" % (again.losses, whole.losses))
    tensors_equal(again.weights, whole.weights, "weights after step 6")
    for name in ("weights", "moments-1", "moments-2"):
        tensors_equal(*(harness.read_safetensors(os.path.join(run.path("ck"), "step-00000006", name + ".safetensors")) for run in (again, whole)),
                      name + " in the checkpoint of step 6")


def test_sources():
    place = directory()
    result = pdc("--target=cuda", "-S", os.path.join(harness.PROGRAMS, "mlp.pd"), cwd=place)
    check(result.code == 0 and sorted(os.listdir(place)) == ["mlp.c", "mlp.cu", "mlp.plan.json"], result.describe())


add("resumed: pp2 dp2 bf16", resumed, (2, 2, 1), "bf16")
add("resumed: tp2 f32", resumed, (1, 1, 2), "f32")
# by test, not by case: two that run beside each other then do not wait for the same compilation
for case in RUNS + SCHEDULES + LATE:
    add("as on the host: " + name_of(case), agrees, case)
for case in RUNS + SCHEDULES:
    add("one allocation, one graph: " + name_of(case), one_allocation_one_graph, case)
for case in SCHEDULES + LATE:
    add("seeds: " + name_of(case), seeds_agree, case)
if not os.environ.get("SANITIZE"): # there every run has one, and a process has no two
    for case in (GPT, MLP_BF16):
        add("address sanitizer: " + name_of(case), sanitized, case, "address")
    add("thread sanitizer: " + name_of(MLP), sanitized, MLP, "thread")
if not os.path.exists("/dev/nvidiactl"):
    add("no driver", fails, 10, "no NVIDIA driver", {"LD_LIBRARY_PATH": ""}) # NVIDIA's own libraries
add("an old driver", fails, 10, "CUDA 12.8", {"PD_FAKE_DRIVER": "12080"})
add("no device", fails, 9, "no CUDA device", {"PD_FAKE_DEVICES": "0"})
add("too few devices", fails, 11, "2 ranks run on this node, which has 1 CUDA device", {"PD_FAKE_DEVICES": "1"}, 2)
add("a connection is lost", fails, 13, "NCCL has failed: ", # and the other rank waits for its sums for ever
    {"PD_FAKE_NCCL_LOST": "5", "PD_FAKE_MISTAKE": "drop:ncclAllReduce:1@1"}, 2)
add("too little device memory", fails, 12, "bytes on the device", {"PD_FAKE_MEMORY": "1M"})
for option in ("--kernels=ref", "--threads=2"):
    add("an option of the host: " + option, fails, 2, "this program runs on a CUDA device", {}, 1, (option,))

harness.main(__name__)
