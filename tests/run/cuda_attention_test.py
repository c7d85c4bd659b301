"""Attention by cuDNN in programs of the cuda target, on the fake GPU and its fake cuDNN: it computes what the host does and
what the program's own kernels do, in every order of streams; it is used where it can be, and where it cannot, that is said.
"""
import os
import re
import shutil

import fakegpu
import harness
from cuda_programs import build_cuda, calls, relative, start_cuda, train_cuda
from harness import Random, add, build, check, command, directory, once, pdc, read_program, tensors_close, tensors_equal, train

if not os.path.exists(os.path.join(fakegpu.CUDA, "include", "cudnn.h")):
    print("cuDNN is not installed under %s: attention by it is not tested\n0 passed, 0 failed" % fakegpu.CUDA)
    raise SystemExit(0)

FORWARD, BACKWARD = "M*gg>?m-esl+/M", "*s*M*gg>?-er" # how recordings begin to tell what cuDNN computes
STEPS = 5
MODELS = {"gpt": {"layers": 2, "words": 48, "width": 32}, "llama": {"layers": 2, "head_width": 16}} # heads that cuDNN takes
# model, pp, dp, tp, microbatch, schedule
RUNS = [("gpt", 1, 1, 1, 3, "gpipe"), ("llama", 1, 1, 1, 6, "gpipe"), ("gpt", 2, 1, 1, 3, "1f1b"), ("llama", 1, 2, 2, 3, "gpipe")]


def program_of(run):
    model, pp, dp, tp, microbatch, kind = run
    return read_program(model), dict(MODELS[model], parallel__pp=pp, parallel__dp=dp, parallel__tp=tp, schedule__microbatch=microbatch,
                                     schedule__kind=kind, precision__compute="bf16")


def name_of(run):
    return "%s pp%d dp%d tp%d microbatch %d %s" % run


def data():
    random, samples = Random(7), 12 * STEPS
    return {"tokens": random.integers([samples, 8], 48), "targets": random.integers([samples, 8], 48, ignored=0.3)}


def host_run(run):
    source, defines = program_of(run)
    return once("host " + name_of(run), lambda: train(build(source, defines, options=("-O1", "--target=host")), "--steps=%d" % STEPS,
                                                      "--seed=3", data=data()))


def train_run(run, *options, environment=None, seed=0, steps=STEPS):
    source, defines = program_of(run)
    return once((run, options, tuple(sorted((environment or {}).items())), seed, steps), lambda: train_cuda(
        build_cuda(source, defines, options=options), "--steps=%d" % steps, "--seed=3", seed=seed, data=data(), environment=environment))


def broken(library="libcudnn.so.9"):
    """A folder whose libcudnn cannot be loaded, to stand before all others: programs compute by kernels of their own."""
    folder = directory()
    with open(os.path.join(folder, library), "w") as file:
        file.write("this is no library\n")
    return {"LD_LIBRARY_PATH": folder + ":" + fakegpu.LIBRARIES}


BROKEN = broken()


def own_run(run):
    return train_run(run, environment=BROKEN)


def counts(run, rank):
    """Attentions of a rank by cuDNN, forward and backward, and those by kernels of the program's own."""
    text = calls(run, rank)
    return text.count("cudnnBackendExecute " + FORWARD), text.count("cudnnBackendExecute " + BACKWARD), len(re.findall(r"sdpa", text))


def agrees(run, ours):
    hosts, own = host_run(run), own_run(run)
    for what, other, bound in (("the host", hosts, 5e-3), ("own kernels", own, 5e-3)):
        check(len(ours.losses) == STEPS and relative(ours.losses, other.losses) < bound, "losses %s, by %s %s" % (ours.losses, what, other.losses))
        tensors_close(ours.gradients, other.gradients, 2e-2, "gradients of the first step, against " + what, floor=1e-3)
    check(ours.losses != own.losses, "two ways to add up give the same bits: is it cuDNN?")


def computes(run):
    """What the host and the program's own kernels do. The step is one graph, in one allocation."""
    first = train_run(run)
    agrees(run, first)
    for rank in range(run[1] * run[2] * run[3]):
        forward, backward, own = counts(first, rank)
        check(forward > 0 and backward > 0 and own == 0, "rank %d: %d forward, %d backward, %d own" % (rank, forward, backward, own))
        text = calls(first, rank)
        check(len(re.findall(r"\bcudaMalloc\b", text)) == 1 and len(re.findall(r"\bcudaGraphLaunch\b", text)) == STEPS - 1,
              "rank %d: not one allocation, or not one graph" % rank)


def orders(run):
    """Twenty-one orders of streams, another one at every wait: the same bits as with the latest one."""
    first, ours = train_run(run, steps=22), train_run(run, steps=22, seed="1-21")
    check(ours.losses == first.losses and ours.norms == first.norms, "losses %s, at seed 0 %s" % (ours.losses, first.losses))
    tensors_equal(ours.weights, first.weights, "weights")
    check(counts(ours, 0)[2] == 0, "kernels of its own")


def eager(run):
    recorded, plain = train_run(run), train_run(run, environment={"PDC_CUDA_GRAPH": "0"})
    check("cudaGraphLaunch" not in calls(plain, 0) and counts(plain, 0)[2] == 0, "PDC_CUDA_GRAPH=0 runs graphs, or kernels of its own")
    check(recorded.losses == plain.losses, "losses %s with a graph, %s without" % (recorded.losses, plain.losses))
    tensors_equal(recorded.weights, plain.weights, "weights with and without a graph")


def test_sums_in_any_order():
    """--nondeterministic: another graph, which adds to what was cleared; right, and without the matrix of scores in the plan."""
    run = RUNS[1]
    ours = train_run(run, "--nondeterministic", seed="1-5")
    agrees(run, ours)
    check(re.search(r"cudnnBackendExecute \S*rM=", calls(ours, 0)) and counts(ours, 0)[2] == 0, "the gradient has another graph")
    spaces = [attention_space("llama", *more, head_width=16, length=4096) for more in ((), ("--nondeterministic",))]
    check(spaces[0] > 2 * 8 * 4096 * 4096 > 20 * spaces[1], "bytes in the plan: %s" % spaces)


def test_only_cudnn():
    """--attention=cudnn: no kernels of its own, the same bits."""
    run = RUNS[0]
    source, defines = program_of(run)
    program = build_cuda(source, defines, options=("--attention=cudnn",))
    with open(program + ".cu") as file:
        check("pd_sdpa" not in file.read(), "it has kernels of its own")
    ours, both = train_run(run, "--attention=cudnn"), train_run(run)
    check(ours.losses == both.losses, "losses %s and %s" % (ours.losses, both.losses))


def test_only_kernels_of_its_own():
    """--attention=own: cuDNN is not looked for, the same bits as where it is not found."""
    run = RUNS[0]
    ours = train_run(run, "--attention=own")
    check("cudnn" not in calls(ours, 0) and "note:" not in ours.result.err, ours.result.err)
    check(ours.losses == own_run(run).losses, "losses %s and %s" % (ours.losses, own_run(run).losses))


def falls_back(run, why, environment):
    """One line says why, kernels of its own do it; a program with --attention=cudnn ends."""
    ours = train_run(run, environment=environment)
    lines = [line for line in ours.result.err.splitlines() if line.startswith("note:")]
    check(len(lines) == 1 and "attention runs on this program's own kernels, which are slower: " in lines[0] and why in lines[0], ours.result.err)
    check(counts(ours, 0)[1] == 0 and counts(ours, 0)[2] > 0, "who computed attention: %s" % (counts(ours, 0),))
    source, defines = program_of(RUNS[0])
    program = build_cuda(source, defines, options=("--attention=cudnn",))
    must, _ = start_cuda(program, "--steps=1", data=data(), environment=dict(environment, PD_FAKE_LEAKS="0"))
    check(must.result.code == 13 and must.result.err.count("error:") == 1, must.result.describe())
    check("--attention=cudnn" in must.result.err and why in must.result.err, must.result.describe())


# ---- what the compiler decides ----

def source_of(name, *options, **defines):
    place = directory()
    words = [word for key, value in defines.items() for word in ("-D", "%s=%s" % (key.replace("__", "."), value))]
    result = pdc("--target=cuda", "-S", "-v", "-D", "precision.compute=bf16", *options, *words, os.path.join(harness.PROGRAMS, name + ".pd"), cwd=place)
    check(result.code == 0, result.describe())
    with open(os.path.join(place, name + ".c")) as file:
        return file.read(), result.err


def attention_space(name, *options, **defines):
    return int(re.search(r"\.attention_space = (\d+)", source_of(name, *options, **defines)[0]).group(1))


def chooses(directions, reason, options, defines):
    text, said = source_of("llama", *options, **defines)
    found = {name for name in ("pd_attend", "pd_attend_grad") if name + "(" in text}
    check(found == set(directions), "by cuDNN: %s" % found)
    check(reason in said, "-v does not say %r: %s" % (reason, said))


for defines, options, directions, reason in (
        ({"head_width": 16}, (), ("pd_attend", "pd_attend_grad"), "attention: by cuDNN where the program finds it, else by kernels of its own"),
        ({"head_width": 16}, ("--attention=cudnn",), ("pd_attend", "pd_attend_grad"), "attention: by cuDNN\n"),
        ({"head_width": 16}, ("--attention=own",), (), "gradient of attention: by kernels of its own: --attention=own"),
        ({"head_width": 12}, (), (), "heads of 12 elements are not a multiple of 8"),
        ({"head_width": 16, "precision__compute": "f32"}, (), (), "it computes in bf16, and this program does not"),
        ({"head_width": 16, "length": 1}, (), (), "one query and one key"),
        ({"head_width": 256}, ("--arch=sm_90",), ("pd_attend", "pd_attend_grad"), "gradient of attention: by cuDNN"),
        ({"head_width": 256}, (), ("pd_attend",), "heads of 256 elements are longer than the 128 that its gradient takes"),
        ({"head_width": 136}, ("--arch=sm_80",), ("pd_attend",), "longer than the 128 that its gradient takes"),
        ({"head_width": 128}, ("--arch=sm_100",), ("pd_attend", "pd_attend_grad"), "by cuDNN"),
        ({"head_width": 136}, ("--arch=sm_90,sm_100",), ("pd_attend",), "longer than the 128 that its gradient takes")):
    add("choice: %s %s" % (defines, " ".join(options)), chooses, directions, reason, options, defines)


def test_a_mixed_program_runs():
    """Heads of 136: forward by cuDNN, its gradient by kernels of the program's own, from cuDNN's statistics."""
    source, defines = program_of(RUNS[1])
    defines = dict(defines, head_width=136, queries=2, keys=1, layers=1)
    program = build_cuda(source, defines, arch="80,sm_90")
    ours = train_cuda(program, "--steps=2", "--seed=3", data=data())
    forward, backward, own = counts(ours, 0)
    check(forward > 0 and backward == 0 and own > 0, "%d forward, %d backward, %d own" % (forward, backward, own))
    other = train_cuda(program, "--steps=2", "--seed=3", data=data(), environment=BROKEN)
    check(relative(ours.losses, other.losses) < 5e-3, "losses %s and %s" % (ours.losses, other.losses))
    tensors_close(ours.gradients, other.gradients, 2e-2, "gradients", floor=1e-3)


def test_programs_without_it_have_none_of_it():
    """No attention by cuDNN, no code for it: such a program does not look for the library. One that has it starts without."""
    program = build_cuda(*program_of(RUNS[0]), options=("--attention=own",))
    check("pd_cudnn_open" not in command(["nm", program], 20).out, "it has the code")
    with_it = build_cuda(*program_of(RUNS[0]))
    check("pd_cudnn_open" in command(["nm", with_it], 20).out, "nm would show it")
    check("libcudnn" not in command(["readelf", "-d", with_it], 20).out, "it cannot start where the library is not")


def test_a_pdc_that_was_built_without_cudnn():
    place = directory()
    library = os.path.join(place, "lib", "pdc")
    os.makedirs(library)
    shutil.copy(harness.PDC, os.path.join(place, "pdc"))
    real = os.path.join(os.path.dirname(os.path.abspath(harness.PDC)), "lib", "pdc")
    for name in os.listdir(real):
        if name != "cudnn":
            os.symlink(os.path.join(real, name), os.path.join(library, name))
    compiler, source = os.path.join(place, "pdc"), os.path.join(harness.PROGRAMS, "gpt.pd")
    options = ["-D", "precision.compute=bf16", "-D", "width=32", "--target=cuda"]
    result = command([compiler, *options, "-v", "--emit=plan", "-o", os.path.join(place, "plan"), source], 60)
    check(result.code == 0 and "by kernels of its own: this pdc was built where cuDNN was not" in result.err, result.describe())
    result = command([compiler, *options, "--attention=cudnn", "-o", os.path.join(place, "program"), source], 60)
    check(result.code == 2 and "built where cudnn.h was not" in result.err, result.describe())
    result = command([compiler, "--print-cuda-requirements"], 60)
    check(result.code == 0 and "built where cudnn.h was not" in result.out and "libcudnn" not in result.out, result.describe())
    check("libcudnn.so.9" in pdc("--print-cuda-requirements").out, "the requirements do not name cuDNN")


def refuses(fact, *options):
    result = pdc(*options, "-fsyntax-only", os.path.join(harness.PROGRAMS, "gpt.pd"))
    check(result.code == 2 and fact in result.err, result.describe())


add("option: no such choice", refuses, "choose auto, cudnn or own", "--attention=fast")
add("option: of the host", refuses, "--attention=own: that is for --target=cuda", "--attention=own", "--target=host")
add("option: order, of the host", refuses, "--nondeterministic: that is for --target=cuda", "--nondeterministic", "--target=host")
add("option: order of own kernels", refuses, "--attention=own excludes", "--nondeterministic", "--attention=own")
for run in RUNS:
    add("computes: " + name_of(run), computes, run)
for run in RUNS[2:]:
    add("orders of streams: " + name_of(run), orders, run)
add("without a graph: " + name_of(RUNS[0]), eager, RUNS[0])
add("fallback: no library", falls_back, RUNS[2], "libcudnn.so.9 cannot be loaded", BROKEN) # of two ranks one speaks
add("fallback: half of a library", falls_back, RUNS[0], "libcudnn_graph.so.9 cannot be loaded", broken("libcudnn_graph.so.9"))
add("fallback: an old library", falls_back, RUNS[0], "cuDNN is of version 9.15.0 here, and 9.16 or later is needed", {"PD_FAKE_CUDNN_VERSION": "91500"})
add("fallback: a plan with a large workspace", falls_back, RUNS[0], "are in the program's plan", {"PD_FAKE_CUDNN_WORKSPACE": "10000000"})

harness.main(__name__)
