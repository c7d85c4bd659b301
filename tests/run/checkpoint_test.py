"""Checkpoints: a run that is cut and goes on is the run that was not cut, to the bit on its layout, and with the same
parameters and moments on any other; and at no moment is there half a checkpoint."""
import json
import os
import shutil
import signal
import subprocess
import time

import harness
from harness import check, close, directory, tensors_equal

# tied weights, a parameter per layer, a frozen one, sizes that tp does not divide, shuffled data, a rate that moves
PROGRAM = """
config const width = 6, global = 8;
dim batch = global, seq = 3, embed = width, vocab = 10, inner = 8;
shard < batch=dp; inner=tp; >
optimizer < kind=adamw; lr=cosine(1e-2, warmup=3, end=20); beta=(0.9, 0.95); decay=0.1; clip=1.0; >
schedule < microbatch=1; >
train < steps=20; save_every=4; >
model lm(tokens: i32[batch, seq], targets: i32[batch, seq]) {
  param table: [vocab, embed];
  frozen param scale: [embed] = 1.5;
  x = gather(table, tokens) * scale;
  repeat 4 {
    param up: [embed, inner], down: [inner, embed], b: [embed] = 0;
    x = dropout(x, 0.1) + gelu(x @ up) @ down + b;
  }
  loss xent(x @ transpose(table), targets);
}
"""
SAMPLES = 21  # five steps of four in an epoch of eight at a time: batches cross no epoch, and some samples are dropped
LAYOUTS = {"1": {}, "pp2": {"parallel.pp": 2}, "pp4": {"parallel.pp": 4}, "dp2": {"parallel.dp": 2}, "tp2": {"parallel.tp": 2}, "all": {"parallel.pp": 2, "parallel.dp": 2, "parallel.tp": 2}}


def program(layout="1", **more):
    return harness.build(PROGRAM, {"global": 4, **LAYOUTS[layout], **{key.replace("__", "."): value for key, value in more.items()}})


def data():
    def make():
        place = directory()
        random = harness.Random(11)
        for name in ("tokens", "targets"):
            harness.write_npy(os.path.join(place, name + ".npy"), random.integers((SAMPLES, 3), 10, ignored=0.2 if name == "targets" else 0))
        return place
    return harness.once("data", make)


def run(binary, place, *options, code=0, log="log"):
    words = [binary, "--data=" + data(), "--log=" + os.path.join(place, log), "--quiet", "--timeout=30", *options]
    result = harness.command(words, harness.RUN_LIMIT, cwd=place)
    check(result.code == code, result.describe())
    return result


def lines(place, log="log"):
    """The log without times, and without what was used of the machine."""
    with open(os.path.join(place, log)) as file:
        whole = [json.loads(line) for line in file]
    return [{key: value for key, value in line.items() if key not in ("step_ms", "tokens_per_s")} for line in whole if "use" not in line]


def contents(path):
    """Every tensor of a checkpoint, and its state."""
    tensors = {}
    for name in ("weights", "moments-1", "moments-2"):
        file = os.path.join(path, name + ".safetensors")
        if os.path.exists(file):
            tensors.update({name + "/" + key: value for key, value in harness.read_safetensors(file).items()})
    with open(os.path.join(path, "state.json")) as file:
        return tensors, json.load(file)


def checkpoint(place, step, folder="ck"):
    return os.path.join(place, folder, "step-%08d" % step)


def whole(layout="1"):
    """The run that is not cut: its place, with a checkpoint of every step."""
    def make():
        place = directory()
        run(program(layout), place, "--checkpoint=ck", "--save-every=1", "--steps=20")
        return place
    return harness.once("whole " + layout, make)


def test_what_is_in_one():
    place = whole("all")
    check(os.readlink(os.path.join(place, "ck", "latest")) == "step-00000020", os.listdir(os.path.join(place, "ck")))
    tensors, state = contents(checkpoint(place, 7))
    names = ["table", "scale"] + ["%d.%s" % (i, name) for i in range(4) for name in ("up", "down", "b")]
    weights = sorted(key[8:] for key in tensors if key.startswith("weights/"))
    check(len(weights) == len(names) and "table" in weights and "scale" in weights, weights)
    for kind in ("moments-1/", "moments-2/"):
        check(sorted(key[len(kind):] for key in tensors if key.startswith(kind)) == [name for name in weights if name != "scale"], "moments: %s" % sorted(tensors))
    check(state["step"] == 7 and state["updates"] == 7 and state["samples"] == SAMPLES and len(state["plan_sha256"]) == 64 and state["model"] == "lm", state)
    check(list(tensors["weights/scale"].values) == [1.5] * 6, "a frozen parameter")
    check(sorted(os.listdir(os.path.join(place, "ck"))) == ["latest"] + ["step-%08d" % step for step in range(1, 21)], os.listdir(os.path.join(place, "ck")))


def test_a_step_that_has_a_checkpoint_already():
    """The new one takes the place of the old one at once, even of one that cannot be removed."""
    place = directory()
    shutil.copytree(os.path.join(whole(), "ck"), os.path.join(place, "ck"), symlinks=True)
    old = checkpoint(place, 6)
    with open(os.path.join(old, "weights.safetensors"), "w") as file:
        file.write("of another run")
    os.mkdir(os.path.join(old, "notes"))
    run(program(), place, "--resume=" + checkpoint(place, 5), "--checkpoint=ck", "--save-every=1", "--steps=6")
    got, wanted = contents(checkpoint(place, 6)), contents(checkpoint(whole(), 6))
    tensors_equal(got[0], wanted[0], "the checkpoint of step 6")
    check(not os.path.exists(os.path.join(old, "notes")), "it is the new one")
    check(os.readlink(os.path.join(place, "ck", "latest")) == "step-00000006", "latest")


def resumed(layout, step, origin=None):
    """A run of `layout` that goes on from step `step` of another; its place."""
    place = directory()
    shutil.copytree(os.path.join(origin or whole(layout), "ck"), os.path.join(place, "from"), symlinks=True)
    run(program(layout), place, "--resume=" + checkpoint(place, step, "from"), "--checkpoint=ck", "--save-every=1", "--steps=20")
    return place


def same_run(layout, step):
    place = resumed(layout, step)
    check(lines(place) == lines(whole(layout))[step:], "the log after step %d: %s\nnot %s" % (step, lines(place)[:2], lines(whole(layout))[step:step + 2]))
    for later in (step + 1, 20):
        got, wanted = contents(checkpoint(place, later)), contents(checkpoint(whole(layout), later))
        tensors_equal(got[0], wanted[0], "step %d after a cut at %d" % (later, step))
        check(got[1] == wanted[1], "state: %s, not %s" % (got[1], wanted[1]))


for name, cuts in (("1", (1, 3, 5, 7, 10, 19)), ("pp2", (3,)), ("all", (5, 9))):
    for cut in cuts:
        harness.add("cut %s at %d" % (name, cut), same_run, name, cut)


def other_layout(first, second):
    """A run goes on under another layout."""
    place = directory()
    shutil.copytree(checkpoint(whole(first), 6), os.path.join(place, "from"))
    run(program(second), place, "--resume=from", "--checkpoint=ck", "--steps=7")
    got, wanted = contents(checkpoint(place, 7)), contents(checkpoint(whole(first), 7))
    check(got[1]["step"] == 7 and got[1]["updates"] == 7, got[1])
    step, expected = lines(place)[0], lines(whole(first))[6]
    check(step["step"] == 7 and step["lr"] == expected["lr"], "the first step after it: %s, not %s" % (step, expected))
    close([step["loss"], step["grad_norm"]], [expected["loss"], expected["grad_norm"]], 1e-5, "loss and norm")
    harness.tensors_close(got[0], wanted[0], 1e-4, "one step later", floor=1e-6)


for first, second in (("1", "all"), ("all", "1"), ("pp4", "tp2"), ("tp2", "dp2"), ("dp2", "pp4"), ("pp2", "all")):
    harness.add("%s to %s" % (first, second), other_layout, first, second)


def all_pairs(layouts):
    """A way from layout to layout that goes once from each to each, itself included, and ends where it began."""
    ahead, way, path = {layout: list(layouts) for layout in layouts}, [layouts[0]], []
    while way:
        if ahead[way[-1]]:
            way.append(ahead[way[-1]].pop())
        else:
            path.append(way.pop())
    return path[::-1]


def test_every_layout_reads_every_other():
    """Nothing but reading and writing: no target of the data counts, so that the steps update nothing. From layout to layout,
    the files of parameters and moments stay the same to the byte."""
    idle, place = directory(), directory()
    for name in ("tokens", "targets"):
        values = harness.read_npy(os.path.join(data(), name + ".npy"))
        harness.write_npy(os.path.join(idle, name + ".npy"), harness.Tensor(values.shape, [-100 if name == "targets" else x for x in values.values], "I32"))
    path = all_pairs(("1", "pp2", "pp4", "tp2", "all"))
    check(len(path) == 26 and len(set(zip(path, path[1:]))) == 25, path)
    files = lambda step: {name: open(os.path.join(checkpoint(place, step), name), "rb").read() for name in sorted(os.listdir(checkpoint(place, step))) if name.endswith(".safetensors")}
    shutil.copytree(checkpoint(whole(path[0]), 6), checkpoint(place, 6))
    origin = files(6)
    check(len(origin) == 3, list(origin))
    for step, (first, second) in enumerate(zip(path, path[1:]), 7):
        words = ["--data=" + idle, "--quiet", "--resume=" + checkpoint(place, step - 1), "--checkpoint=ck", "--steps=%d" % step]
        result = harness.command([program(second)] + words, harness.RUN_LIMIT, cwd=place)
        check(result.code == 0, result.describe())
        check(files(step) == origin, "step %d: %s read what %s wrote, and wrote something else" % (step, second, first))
        check(contents(checkpoint(place, step))[1]["updates"] == 6, "an update in step %d" % step)


def test_log_goes_on():
    """Killed between checkpoints, the log has lines that are done again: they are there once."""
    place = directory()
    binary = program("pp2")
    run(binary, place, "--checkpoint=ck", "--steps=6", "--save-every=4")
    shutil.rmtree(checkpoint(place, 6))
    with open(os.path.join(place, "log"), "a") as file:
        file.write('{"step": 7, "los')
    run(binary, place, "--checkpoint=ck", "--resume", "--steps=20")
    check(lines(place) == lines(whole("pp2")), "the log: %s" % [line["step"] for line in lines(place)])


def test_keep():
    place = directory()
    os.makedirs(os.path.join(place, "ck", "step-00000099.tmp"))
    open(os.path.join(place, "ck", "step-00000099.tmp", "weights.safetensors"), "w").close()
    open(os.path.join(place, "ck", "notes"), "w").close()
    run(program(), place, "--checkpoint=ck", "--save-every=3", "--keep=2", "--steps=10")
    check(sorted(os.listdir(os.path.join(place, "ck"))) == ["latest", "notes", "step-00000009", "step-00000010"], os.listdir(os.path.join(place, "ck")))


def test_section():
    source = PROGRAM + 'checkpoint < dir="ck"; keep=3; resume=on; >\n'
    binary = harness.build(source, {"global": 4})
    place = directory()
    run(binary, place, "--steps=10")
    check(sorted(os.listdir(os.path.join(place, "ck"))) == ["latest", "step-00000004", "step-00000008", "step-00000010"], os.listdir(os.path.join(place, "ck")))
    run(binary, place)
    check(lines(place) == lines(whole()), "a run that resumes because the program says so")
    weights = os.path.join(checkpoint(place, 20), "weights.safetensors")
    loads = harness.build(PROGRAM + 'checkpoint < load="%s"; >\n' % weights, {"global": 4})
    run(loads, place, "--steps=0", "--save=w.safetensors")
    tensors_equal(harness.read_safetensors(os.path.join(place, "w.safetensors")), harness.read_safetensors(weights), "checkpoint < load >")


def signalled(layout, which, at_parent):
    """Asked to end in the middle, a run finishes its step, saves, and says so; what follows is the run that was not asked."""
    binary, place = program(layout, train__steps=100000), directory()
    process = subprocess.Popen([binary, "--data=" + data(), "--log=log", "--checkpoint=ck", "--save=w.safetensors", "--save-every=100000"], cwd=place, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(os.environ, **harness.ENVIRONMENT), start_new_session=True)
    try:
        end = time.monotonic() + 60
        while not os.path.exists(os.path.join(place, "log")) or len(open(os.path.join(place, "log")).read().split("\n")) < 6:
            check(process.poll() is None and time.monotonic() < end, "the run does not move")
            time.sleep(0.02)
        process.send_signal(which)
        said = process.communicate(timeout=60)[0].decode()
    finally:
        harness.end_group(process)
    check(process.returncode == 75, "exit status %s: %s" % (process.returncode, said))
    step = len(lines(place))
    check("stopped by a signal after step %d; --resume goes on from there" % step in said, said)
    check(os.readlink(os.path.join(place, "ck", "latest")) == "step-%08d" % step, os.listdir(os.path.join(place, "ck")))
    tensors_equal(harness.read_safetensors(os.path.join(place, "w.safetensors")), harness.read_safetensors(os.path.join(checkpoint(place, step), "weights.safetensors")), "--save")
    run(binary, place, "--checkpoint=ck", "--resume", "--steps=%d" % (step + 3))
    other = directory()
    run(binary, other, "--steps=%d" % (step + 3))
    check(lines(place) == lines(other), "the log of a run that was asked to end after step %d" % step)


harness.add("SIGTERM to one rank", signalled, "1", signal.SIGTERM, True)
harness.add("SIGINT to four ranks", signalled, "pp4", signal.SIGINT, True)
harness.add("SIGTERM to four ranks", signalled, "pp4", signal.SIGTERM, True)


def test_killed_while_saving():
    """Whatever is killed when: there is a complete checkpoint, and it is that of the run that was not killed."""
    binary, place = program("pp2", train__steps=20), directory()
    for attempt in range(6):
        process = subprocess.Popen([binary, "--data=" + data(), "--quiet", "--log=log", "--checkpoint=ck", "--save-every=1"] + (["--resume"] if attempt else []), cwd=place,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ, **harness.ENVIRONMENT), start_new_session=True)
        end = time.monotonic() + 60
        want = 1 + 2 * attempt
        while process.poll() is None and time.monotonic() < end and not os.path.exists(checkpoint(place, want)):
            time.sleep(0.002)
        time.sleep(0.003 * attempt)
        os.killpg(process.pid, signal.SIGKILL)  # mpirun ends the ranks when its parent is gone
        process.wait()
        time.sleep(0.5)
        tensors, state = contents(os.path.join(place, "ck", "latest"))
        tensors_equal(tensors, contents(checkpoint(whole("pp2"), state["step"]))[0], "after a kill: step %d" % state["step"])
    run(binary, place, "--checkpoint=ck", "--resume", "--save-every=1")
    check(lines(place) == lines(whole("pp2")), "the log of a run that was killed six times: %s" % [line["step"] for line in lines(place)])


def test_refusals():
    place = directory()
    origin = checkpoint(whole(), 6)
    broken = os.path.join(place, "broken")

    def refused(fact, *options, code=4, binary=None):
        result = run(binary or program(), place, *options, code=code)
        check(fact in result.err and result.err.count("error:") == 1, result.describe())

    refused("there is none to resume from", "--resume=" + place)
    refused("needs a directory", "--resume", code=2)
    refused("--seed was 1234 and is 5 now", "--resume=" + origin, "--seed=5")
    refused("optimizer `adamw`, and this program has `sgd`", "--resume=" + origin, binary=program(optimizer__kind="sgd", optimizer__decay=0))
    refused("the batch was 4 and is 8 now", "--resume=" + origin, binary=program(**{"global": 8}))
    refused("has shape [6], the model's is [4]", "--resume=" + origin, binary=program(width=4))
    refused("the bytes of a weight was 4 and is 8 now", "--resume=" + origin, binary=program(precision__compute="f64"))
    for name, change, fact in (("state.json", "{", "state.json"), ("state.json", "{}", "is not that of a pd-checkpoint"), ("weights.safetensors", "x", "weights.safetensors"), ("moments-2.safetensors", None, "moments-2.safetensors")):
        shutil.rmtree(broken, ignore_errors=True)
        shutil.copytree(origin, broken)
        if change is None:
            os.truncate(os.path.join(broken, name), os.path.getsize(os.path.join(broken, name)) - 4)
        else:
            with open(os.path.join(broken, name), "w") as file:
                file.write(change)
        refused(fact, "--resume=" + broken)
    refused("cannot create", "--checkpoint=absent/ck")
    refused("cannot", "--checkpoint=/dev/null")


def test_full_disk():
    """No room: the run ends, and the checkpoint that was there is whole."""
    place = directory()
    run(program(), place, "--checkpoint=ck", "--steps=2")
    before = contents(os.path.join(place, "ck", "latest"))
    result = harness.command(["bash", "-c", 'ulimit -f 1; trap "" XFSZ; exec "$0" "$@"', program(), "--data=" + data(), "--quiet", "--checkpoint=ck", "--resume", "--steps=4"], harness.RUN_LIMIT, cwd=place)
    check(result.code == 4 and "cannot write" in result.err, result.describe())
    after = contents(os.path.join(place, "ck", "latest"))
    tensors_equal(after[0], before[0], "the old checkpoint")
    run(program(), place, "--checkpoint=ck", "--resume", "--steps=4")
    check([name for name in os.listdir(os.path.join(place, "ck")) if name.endswith(".tmp")] == [], "left over: %s" % os.listdir(os.path.join(place, "ck")))


harness.main(__name__)
