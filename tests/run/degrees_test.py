"""`dp=*`: one program, and the launch gives the number of replicas. At every degree it must be the program that was compiled for
it: the same plan, to the byte, and the same losses, gradients and weights, to the bit.
"""
import json
import os
import re
import zlib

import harness
from harness import Random, add, build, check, command, directory, emit, once, pdc, read_program, start, tensors_equal, train

LAYERS = """
dim batch = 12, n = 8, layers = 8;
%s
shard < batch=dp; >
schedule < %s >
model net(x: f32[batch, n], y: f32[batch, n]) {
  repeat layers { param w: [n, n], b: [n]; x = x + relu(x @ w + b); }
  loss mse(x, y);
}
"""


def layers(parallel="parallel < pp=2; dp=*; >", schedule="kind=1f1b;", more=""):
    return LAYERS % (parallel, schedule) + more


# ---- what the compiler makes ----

def sources(source, defines=None, options=()):
    """What -S writes: the C text, and per dp its plan's text, unpacked."""
    place = directory()
    result = pdc("-S", "-o", "program.c", "--target=host", *options, *harness.words_of(defines), "-", source=source, cwd=place)
    check(result.code == 0, result.describe())
    check(sorted(os.listdir(place)) == ["program.c", "program.plans"], "-S wrote %s" % sorted(os.listdir(place)))
    with open(os.path.join(place, "program.c")) as file:
        text = file.read()
    with open(os.path.join(place, "program.plans"), "rb") as file:
        packed = file.read()
    plans, end = {}, 0
    row = r"/\* sha256 (\w+) \*/\s*\{\.dp = (\d+), \.chunks = (\d+), \.microbatches = (\d+), \.plan_bytes = (\d+), \.packed_at = (\d+), \.packed_bytes = (\d+)\}"
    for found in re.finditer(row, text):
        sha256 = found.group(1)
        dp, chunks, microbatches, size, at, length = (int(word) for word in found.groups()[1:])
        check(at == end, "the plan of dp %d does not follow the one before" % dp)
        end = at + length
        plan = zlib.decompress(packed[at:end])
        parts = json.loads(plan)
        check(len(plan) == size and parts["sha256"] == sha256, "the row of dp %d" % dp)
        check((parts["parallel"]["dp"], parts["schedule"]["chunks"], parts["batch"]["microbatches"]) == (dp, chunks, microbatches),
              "the row of dp %d is not its plan's" % dp)
        plans[dp] = plan.decode()
    check(end == len(packed), "%d bytes after the last plan" % (len(packed) - end))
    return text, plans


def is_the_fixed_one(source, wanted, defines=None):
    """Every degree has the plan of the program that says it; `wanted` are the degrees."""
    _, plans = sources(source, defines)
    check(list(plans) == wanted, "degrees %s, not %s" % (list(plans), wanted))
    for dp, plan in plans.items():
        fixed = emit("plan", source, dict(defines or {}, **{"parallel.dp": dp}))
        check(plan == fixed, "the plan of dp %d is not that of the program compiled with dp=%d" % (dp, dp))


ALL = [1, 2, 3, 4, 6, 12]
KINDS = {
    "gpipe": ("kind=gpipe;", ALL),
    "1f1b": ("kind=1f1b;", ALL),
    "two": ("kind=1f1b; microbatch=2;", [1, 2, 3, 6]),
    "recomputed": ("kind=1f1b; recompute=full;", ALL),
    "interleaved": ("kind=interleaved; chunks=2;", ALL),
    "zb_v": ("kind=zb-v; chunks=2;", ALL),
    "auto": ("kind=auto;", ALL),
    "layout": ('kind=1f1b; layout="Etttt|ttttL";', ALL),
    "halves": ("kind=1f1b; accumulators=2;", ALL),
    # two copies of the model take half of the micro-batches each: 4 replicas would have 3, 12 would have 1
    "chimera": ("kind=chimera;", [1, 2, 3, 6]),
    "dualpipe": ("kind=dualpipe;", [1, 2, 3]),  # 2 pp micro-batches fill it
    "pipedream": ("kind=pipedream;", ALL),
    "pipedream_2bw": ("kind=pipedream-2bw;", [1, 2, 3, 6]),
}
for name, (schedule, wanted) in KINDS.items():
    add("plans_" + name, is_the_fixed_one, layers(schedule=schedule), wanted)


def test_plans_of_an_automatic_schedule_differ_in_kind():
    """What kind=auto chooses follows from the number of micro-batches, so each degree has a choice of its own."""
    _, plans = sources(read_program("gpt"), {"layers": 6, "parallel.pp": 4, "parallel.dp": "*", "schedule.kind": "auto"})
    kinds = {dp: (json.loads(plan)["schedule"]["kind"], json.loads(plan)["schedule"]["chunks"]) for dp, plan in plans.items()}
    check(len(set(kinds.values())) > 1, "one choice for all: %s" % kinds)


def test_plans_of_a_star_from_outside():
    """-D parallel.dp=* leaves it to the launch where the file says a number; the plans are those of -D parallel.dp=N."""
    is_the_fixed_one(read_program("gpt"), ALL, {"layers": 2, "parallel.dp": "*", "parallel.pp": 2})
    fixed = layers(parallel="parallel < pp=2; dp=3; >")
    _, plans = sources(fixed, {"parallel.dp": "*"})
    check(sorted(plans) == ALL and plans[2] == emit("plan", fixed, {"parallel.dp": 2}), "the plan of dp 2")


def test_functions_do_not_depend_on_the_degree():
    """The C of dp=* is that of a program that says its dp, but for the plans and what goes with them."""
    text, _ = sources(layers())
    for dp in (1, 3):
        fixed = emit("c", layers(), {"parallel.dp": dp}, options=("--target=host", "-o", "-"))
        head = lambda c: c[c.index("#include"):c.index("/* the plan" if "/* the plan" in c else "__asm__")]
        check(head(fixed) == head(text) and "_forward(" in head(text), "functions and tables of dp=%d" % dp)


def test_gpt3_with_a_plan_for_each_degree():
    """Twenty plans of 1.2 to 3.4 MB: packed they are small, and the C is as long as ever."""
    with open(os.path.join(harness.ROOT, "examples", "gpt3-175b.pd")) as file:
        text, plans = sources(file.read(), {"parallel.dp": "*"})
    check(len(plans) == 20 and max(plans) == 1536, "degrees %s" % list(plans))
    check(sum(len(plan) for plan in plans.values()) > 20e6, "the plans are small")
    check(len(text) < 60e3, "the C file has %d bytes" % len(text))
    size = sum(int(length) for length in re.findall(r"\.packed_bytes = (\d+)", text))
    check(size < 2.5e6, "packed plans of %d bytes" % size)


# ---- what it says ----

def said(source, defines=None):
    result = pdc("check", "-v", "--target=host", *harness.words_of(defines), "-", source=source)
    check(result.code == 0, result.describe())
    return result.err


def test_verbose_lists_degrees():
    text = said(layers(schedule="kind=chimera;"))
    check("dp=*: the launch gives the number of replicas, one of 1, 2, 3 and 6\n" in text, text)
    rows = re.findall(r"^ +(\d+) +(\d+) +(\d+)  chimera +(\d+) +\S+$", text, re.M)
    check([row[:3] for row in rows] == [("1", "2", "12"), ("2", "4", "6"), ("3", "6", "4"), ("6", "12", "2")], text)
    for dp, _, _, most in rows:
        ranks = harness.plan(layers(schedule="kind=chimera;"), {"parallel.dp": dp})["ranks"]
        check(max(rank["memory"]["total"] for rank in ranks) == int(most), "bytes of dp %s" % dp)
    check(re.search(r"^not dp 4: .*chimera.* 3", text, re.M) and re.search(r"^not dp 12: .*chimera", text, re.M), text)
    check("what follows is of dp 1\n" in text and "layout: pp 2 x dp 1 x tp 1; chimera, 12 micro-batches of 1" in text, text)


def test_memory_leaves_degrees_out():
    """The inputs of all micro-batches are in memory, so few replicas need more of it: dp=1 goes first."""
    totals = {dp: max(rank["memory"]["total"] for rank in harness.plan(layers(), {"parallel.dp": dp})["ranks"]) for dp in ALL}
    room = sorted(totals.values())[3]
    fits = [dp for dp in ALL if totals[dp] <= room]
    check(0 < len(fits) < len(ALL), "totals %s" % totals)
    source = layers(more="cluster < memory=%d; >\n" % room)
    is_the_fixed_one(source, fits)
    text = said(source)
    for dp in set(ALL) - set(fits):
        check("not dp %d: stage " % dp in text and "but `memory` is %d" % room in text, text)


def test_too_many_degrees():
    """The work is bounded: 55440 has 120 divisors, and the smallest 64 are tried."""
    text = said(layers().replace("batch = 12", "batch = 55440").replace("pp=2", "pp=1"))
    count = len(re.findall(r"^ +\d+ +\d+ +\d+  1f1b ", text, re.M))
    last = int(re.search(r"larger ones than dp (\d+) were not tried", text).group(1))
    check(count == 64, "%d degrees" % count)
    divisors = [dp for dp in range(1, 55441) if 55440 % dp == 0]
    check(divisors[63] <= last < divisors[64], "tried up to %d, the 64th is %d" % (last, divisors[63]))


def test_too_many_micro_batches():
    """All plans together have at most 2^20 pairs of a chunk and a micro-batch: those of the smallest dp are left out."""
    text = said(layers().replace("batch = 12", "batch = 360360"))
    kept = [int(dp) for dp in re.findall(r"^ +(\d+) +\d+ +\d+  1f1b ", text, re.M)]
    left_out = [int(dp) for dp in re.findall(r"^not dp (\d+): its plan and those of larger dp have too many micro-batches together$", text, re.M)]
    divisors = [dp for dp in range(1, 360361) if 360360 % dp == 0]
    check(left_out and left_out + kept == divisors[:64], "left out %s, kept %s" % (left_out, kept))
    pairs = lambda degrees: sum(2 * 360360 // dp for dp in degrees)
    check(pairs(kept) <= 2**20 < pairs(kept + left_out[-1:]), "%d pairs" % pairs(kept))


def test_what_is_of_one_plan_is_asked_for():
    for kind in ("plan", "schedule", "memory", "svg", "html", "trace"):
        result = pdc("--emit=" + kind, "-", source=layers())
        check(result.code == 2 and result.out == "", result.describe())
        check(result.err == "pdc: --emit=%s: dp=* has a plan for each number of replicas (1, 2, 3, 4, 6 and 12); choose one: -D parallel.dp=1\n"
              % kind, result.err)
        check(emit(kind, layers(), {"parallel.dp": 1}) != "", kind)


def test_sharding():
    text = emit("sharding", layers())
    check(text.startswith("2 ranks a replica: pp 2 x dp * x tp 1; micro-batches of 1;"), text)
    row = re.search(r"^x +\[.*$", text, re.M).group(0)
    check("batch/dp *" in row and "[1, 8]" in row, row)


def test_one_process_needs_a_number():
    result = pdc("--target=cuda", "--no-mpi", "-o", "program", "-", source=layers(parallel="parallel < dp=*; >"), cwd=directory())
    check(result.code == 2 and "dp=* leaves the number of replicas to MPI's launch; -D parallel.dp=1 makes it one" in result.err, result.describe())


# ---- running ----

STEPS = 3


def data(samples=36):
    random = Random(5)
    return {"x": random.reals([samples, 20], "F32"), "y": random.integers([samples], 10)}


def tokens(samples=36):
    random = Random(6)
    return {"tokens": random.integers([samples, 8], 48), "targets": random.integers([samples, 8], 48, ignored=0.3)}


# model, defines, what its data are, the degrees that run
RUNS = {
    "mlp": ("mlp", {}, data, (1, 2, 3, 4)),
    "pipeline": ("gpt", {"layers": 4, "words": 48, "parallel.pp": 2, "schedule.kind": "interleaved", "schedule.chunks": 2}, tokens, (1, 2)),
    "tensor": ("gpt", {"layers": 2, "words": 48, "parallel.tp": 2, "schedule.microbatch": 2}, tokens, (1, 2)),
    "auto": ("gpt", {"layers": 4, "words": 48, "parallel.pp": 2, "schedule.kind": "auto"}, tokens, (1, 2)),
    "copies": ("gpt", {"layers": 4, "words": 48, "parallel.pp": 2, "schedule.kind": "chimera"}, tokens, (1, 2)),
}


def open_program(name):
    model, defines, _, _ = RUNS[name]
    return build(read_program(model), dict(defines, **{"parallel.dp": "*"}), options=("-O1", "--target=host"))


def fixed_program(name, dp):
    model, defines, _, _ = RUNS[name]
    return build(read_program(model), dict(defines, **{"parallel.dp": dp}), options=("-O1", "--target=host"))


def ranks_of(name, dp):
    return dp * RUNS[name][1].get("parallel.pp", 1) * RUNS[name][1].get("parallel.tp", 1)


def runs_as_the_fixed_one(name, dp):
    samples = RUNS[name][2]()
    one = train(open_program(name), "--steps=%d" % STEPS, "--seed=9", data=samples, valid=samples, ranks=ranks_of(name, dp))
    other = train(fixed_program(name, dp), "--steps=%d" % STEPS, "--seed=9", data=samples, valid=samples)
    check(len(one.losses) == STEPS and one.losses == other.losses and one.norms == other.norms, "losses %s and %s" % (one.losses, other.losses))
    check(one.evals[0]["loss"] == other.evals[0]["loss"], "validation losses")
    tensors_equal(one.gradients, other.gradients, "gradients")
    tensors_equal(one.weights, other.weights, "weights")
    table = lambda run: re.findall(r"^  (?:layout|schedule|plan|rank \d+) .*$", run.result.out, re.M)
    check(len(table(one)) >= 3 and table(one) == table(other), "the tables at the start: %s and %s" % (table(one), table(other)))


for name, (_, _, _, degrees) in RUNS.items():
    for dp in degrees:
        add("runs_%s_dp%d" % (name, dp), runs_as_the_fixed_one, name, dp)


def test_alone_it_starts_the_fewest_or_what_dp_says():
    program = open_program("pipeline")
    for words, ranks, dp in (((), 2, 1), (("--dp=2",), 4, 2)):
        run = train(program, "--dry-run", *words, data=tokens())
        check("starting %d ranks (pp 2 x dp %d x tp 1) with mpirun\n" % (ranks, dp) in run.result.out, run.result.describe())


def test_plan_of_every_degree():
    program = open_program("pipeline")
    model, defines, _, _ = RUNS["pipeline"]
    wanted = {dp: emit("plan", read_program(model), dict(defines, **{"parallel.dp": dp})) for dp in ALL}
    for dp in ALL:
        result = command([program, "--plan", "--dp=%d" % dp], 20)
        check(result.code == 0 and result.out == wanted[dp], "--plan --dp=%d" % dp)
    check(command([program, "--plan"], 20).out == wanted[1], "--plan alone is that of the fewest replicas")
    result = command(["mpirun", "-n", "4", program, "--plan"], 60)
    check(result.code == 0 and result.out == wanted[2], "--plan on four ranks is theirs")


REFUSALS = {
    "five": (5, (), "this program needs 2, 4, 6, 8, 12 or 24 ranks (pp 2 x dp 1, 2, 3, 4, 6 or 12 x tp 1); it was started with 5\n"
                    "start it with: mpirun -n 4 "),
    "one": (1, (), "this program needs 2, 4, 6, 8, 12 or 24 ranks (pp 2 x dp 1, 2, 3, 4, 6 or 12 x tp 1); it was started with 1\n"
                   "start it with: mpirun -n 2 "),
    "dp": (2, ("--dp=3",), "with --dp=3 this program needs 6 ranks (pp 2 x dp 3 x tp 1); it was started with 2\n"
                           "start it with: mpirun -n 6 "),
    "no_such": (None, ("--dp=5",), "error: --dp=5: this program was planned for dp 1, 2, 3, 4, 6 or 12\n"),
    "no_number": (None, ("--dp=0",), "error: --dp=0: must be at least 1\n"),
}


def refuses(ranks, words, wanted):
    result = command((["mpirun", "-n", str(ranks)] if ranks else []) + [open_program("pipeline"), "--dry-run", *words], 60)
    check(result.code == 2 and wanted in result.err, result.describe())
    if ranks and not words:
        check("--dry-run\n" in result.err, "the command has the program's options: " + result.err)


for name, (ranks, words, wanted) in REFUSALS.items():
    add("refuses_" + name, refuses, ranks, words, wanted)


def test_a_program_that_says_its_dp_has_no_option_for_it():
    result = command([fixed_program("pipeline", 2), "--dp=2", "--plan"], 20)
    check(result.code == 2 and result.err == "error: --dp is for programs that were compiled with dp=*; this one says its dp\n", result.describe())
    check("--dp" not in command([fixed_program("pipeline", 2), "--help"], 20).out, "--help")
    text = command([open_program("pipeline"), "--help"], 20).out
    check("Runs as 2, 4, 6, 8, 12 or 24 ranks (pp 2 x dp 1, 2, 3, 4, 6 or 12 x tp 1); started alone, it starts the fewest, or those of --dp, "
          "with mpirun.\n" in text and "  --dp=N " in text, text)


def test_a_damaged_plan_is_found():
    with open(open_program("mlp"), "rb") as file:
        program = bytearray(file.read())
    _, plans = sources(read_program("mlp"), {"parallel.dp": "*"})
    packed = zlib.compress(plans[2].encode())
    at = program.index(packed)
    program[at + len(packed) // 2] ^= 0x55
    path = os.path.join(directory(), "damaged")
    with open(path, "wb") as file:
        file.write(program)
    os.chmod(path, 0o755)
    check(command([path, "--plan", "--dp=1"], 20).code == 0, "the plan of dp 1 is whole")
    for words in (["--plan", "--dp=2"], ["--dry-run", "--dp=2"]):
        result = command([path, *words], 60)
        check(result.code == 7 and "plan: that of dp 2 cannot be unpacked: the program was altered" in result.err, result.describe())


def test_a_checkpoint_goes_on_at_another_degree():
    """Of two replicas, and on with four: what the programs that say so do, to the bit."""
    samples = data()

    def chain(at):
        place = directory()
        first = train(at(2), "--steps=2", "--seed=9", "--checkpoint=" + os.path.join(place, "ck"), data=samples, ranks=2)
        second = train(at(4), "--steps=4", "--seed=9", "--resume=" + os.path.join(place, "ck"), data=samples, ranks=4)
        with open(os.path.join(place, "ck", "step-%08d" % 2, "state.json")) as file:
            return first, second, json.load(file)
    first, second, state = chain(lambda dp: open_program("mlp"))
    wanted_first, wanted, wanted_state = chain(lambda dp: fixed_program("mlp", dp))
    check([line["step"] for line in second.steps] == [3, 4], "it goes on after step 2")
    check(first.losses == wanted_first.losses and second.losses == wanted.losses, "losses %s, not %s" % (second.losses, wanted.losses))
    tensors_equal(second.weights, wanted.weights, "weights")
    plan = json.loads(command([open_program("mlp"), "--plan", "--dp=2"], 20).out)
    check(state == wanted_state and state["plan_sha256"] == plan["sha256"], "the checkpoint names the plan of its degree: %s" % state)


harness.main(__name__)
