"""What pdc itself promises: one size of source for every layout, the same bytes everywhere, outputs that appear whole or not
at all, memory that is refused when it does not fit, volumes of communication by their closed forms."""
import hashlib
import json
import os
import re
import shutil

import harness
from harness import check, command, directory, pdc, read_program

EXAMPLES = os.path.join(harness.ROOT, "examples")


def example(name):
    return os.path.join(EXAMPLES, name + ".pd")


def output(*words):
    result = pdc(*words)
    check(result.code == 0, result.describe())
    return result.out


def test_emitted_source_does_not_grow():
    sizes = [len(output("--emit=c", "-o", "-", *["-D%s" % d for d in defines], example("gpt3-175b")))
             for defines in ((), ("layers=16",), ("layers=960",), ("parallel.dp=2",), ("parallel.pp=4",), ("schedule.kind=gpipe", "schedule.chunks=1"))]
    check(max(sizes) - min(sizes) < 0.01 * min(sizes), "sizes of the source differ: %s" % sizes)


def test_gpt3_stages_hold_twelve_layers():
    for defines in (("-Dschedule.kind=1f1b", "-Dschedule.chunks=1"), ()):
        plan = json.loads(output("--emit=plan", *defines, example("gpt3-175b")))
        layers = [0] * 8
        for chunk in plan["chunks"]:
            for run in chunk["layers"]:
                if run["name"] == "layers":
                    layers[chunk["rank"]] += run["last"] - run["first"] + 1
        check(layers == [12] * 8, "layers of the stages: %s" % layers)
        check(plan["batch"]["microbatches"] == 24, "micro-batches: %s" % plan["batch"])


def test_parameter_counts():
    for name, count in (("gpt3-175b", 174615846912), ("gpt2-124m", 124439808), ("llama3-70b", 70552387584)):
        text = pdc("check", "-v", example(name)).err
        check("%d parameters" % count in text, "%s should have %d parameters: %s" % (name, count, text[:200]))


def test_reference_programs():
    """The models as the language's definition has them, every block written out, are the examples, which use the library."""
    counts = {"gpt3-175b": 174615846912, "llama3-70b": 70552387584, "mlp-residual": 67963914, "resnet34": 24705192}
    for name, count in counts.items():
        path = os.path.join(harness.PROGRAMS, "reference", name + ".pd")
        text = pdc("check", "-v", path)
        check(text.code == 0 and "%d parameters" % count in text.err, text.describe())
        if not os.path.exists(example(name)):
            continue
        plans = [re.sub(r'"(tensor|sha256)": "[^"]*"', "", output("--emit=plan", file)) for file in (path, example(name))]
        check(plans[0] == plans[1], "the plan of examples/%s.pd is not that of the program without the library" % name)


def test_selective_recomputation_halves_the_activations_of_gpt3():
    """And costs no message: the tp, pp and dp volumes stay."""
    kept, volumes = {}, set()
    for which in ("none", "selective", "full"):
        plan = json.loads(output("--emit=plan", "-Dschedule.recompute=" + which, example("gpt3-175b")))
        lines = [line.split() for line in output("--emit=memory", "-Dschedule.recompute=" + which, example("gpt3-175b")).splitlines()]
        kept[which] = int(lines[1][lines[0].index("activations")])
        if which != "full":
            volumes.add(json.dumps(plan["communicators"]))
    check(kept["full"] < kept["selective"] < 0.5 * kept["none"], "bytes of activations: %s" % kept)
    check(len(volumes) == 1, "messages differ")


def test_program_as_json():
    """Reads, names what the plan names, and says the same twice."""
    text = output("--emit=json", example("gpt3-175b"))
    program = json.loads(text)
    plan = json.loads(output("--emit=plan", example("gpt3-175b")))
    check(text == output("--emit=json", example("gpt3-175b")), "two runs differ")
    sizes = {axis["name"]: axis["size"] for axis in program["axes"]}
    check(sizes["ffn"] == 49152 and next(a for a in program["axes"] if a["name"] == "ffn")["derivation"] == "4 * embed = 4 * 12288", "axes: %s" % sizes)
    trips = {segment["name"]: segment["trips"] for segment in program["segments"]}
    names = set()
    for parameter in program["parameters"]:
        size = 1
        for axis in parameter["axes"]:
            size *= sizes[axis] if isinstance(axis, str) else axis
        for trip in range(trips[parameter["used_by"][0]] if parameter["per_trip"] else 1):
            names.add((parameter["name"].replace("{}", str(trip)), size))
    wanted = set()
    for parameter in plan["parameters"]:
        size = 1
        for extent in parameter["shape"]:
            size *= extent
        wanted.add((parameter["name"], size))
    check(names == wanted, "parameters: %s" % sorted(names ^ wanted)[:5])
    kinds = {operation["operation"] for segment in program["segments"] for operation in segment["forward"]}
    check({"contract", "sdpa", "layernorm", "xent", "all_reduce"} <= kinds, "operations: %s" % kinds)
    check(all(segment["weight_gradient"] for segment in program["segments"] if segment["name"] == "layers"), "gradients are there")


def cpu_ms(words):
    """Processor time of a command, start included."""
    pid = os.posix_spawn(words[0], words, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)])
    usage = os.wait4(pid, 0)[2]
    return 1e3 * (usage.ru_utime + usage.ru_stime)


def test_checking_is_quick():
    """`pdc check` of GPT-3 takes under 10 ms with the start of the process. Of processor time, since tests share the machine."""
    times = sorted(cpu_ms([harness.PDC, "check", example("gpt3-175b")]) for _ in range(20))
    check(times[10] < 10, "median of 20: %.1f ms" % times[10])


def test_tensor_parallel_volume():
    """Two all-reduces of b s h a layer forward, two backward (Megatron-LM); embedding one, head one, loss three of b s."""
    plan = json.loads(output("--emit=plan", "-Dschedule.kind=1f1b", "-Dschedule.chunks=1", example("gpt3-175b")))
    bsh = 1 * 2048 * 12288 * 4
    wide = narrow = 0
    for communicator in plan["communicators"]:
        if communicator["axis"] != "tp":
            continue
        for operation in communicator["operations"]:
            if operation["bytes"] == bsh:
                wide += operation["count"]
            else:
                narrow += operation["count"] * operation["bytes"]
    check(wide == 24 * (96 * 4 + 2), "all-reduces of b s h: %d" % wide)
    check(narrow == 24 * 3 * 2048 * 4, "bytes of the loss's reductions: %d" % narrow)


def test_data_parallel_volume():
    """Every gradient element is reduced exactly once a step: the buckets of a rank add up to its gradients, a tied one once."""
    plan = json.loads(output("--emit=plan", "-Dschedule.kind=1f1b", "-Dschedule.chunks=1", example("gpt3-175b")))
    for rank in plan["ranks"]:
        buckets = sum(operation["bytes"] for communicator in plan["communicators"]
                      if communicator["axis"] == "dp" and communicator["pp_rank"] == rank["rank"]
                      for operation in communicator["operations"])
        check(buckets == rank["memory"]["gradients"], "rank %d: buckets %d bytes, gradients %d" % (rank["rank"], buckets, rank["memory"]["gradients"]))


def test_same_bytes_everywhere():
    place = directory()
    shutil.copy(example("gpt-bible"), os.path.join(place, "gpt-bible.pd"))
    first = output("--emit=plan", example("gpt-bible"))
    other = harness.command([harness.PDC, "--emit=plan", "gpt-bible.pd"], 60, cwd=place,
                            environment={"LC_ALL": "tr_TR.UTF-8", "LANG": "de_DE.UTF-8", "TZ": "Pacific/Auckland", "OMP_NUM_THREADS": "7"})
    check(other.code == 0 and other.out == first, "the plan depends on the place or the locale")
    check("/" not in json.loads(first)["model"] and harness.ROOT not in first, "the plan names a path")


def test_plan_hash_covers_the_plan():
    text = output("--emit=plan", example("mlp-fashion"))
    at = text.rindex('  "sha256": "')
    body, rest = text[:at], text[at + len('  "sha256": "'):]
    check(hashlib.sha256(body.encode()).hexdigest() == rest.split('"')[0], "sha256 does not cover the bytes before its line")


def test_program_prints_the_compilers_plan():
    source = harness.read_program("mlp")
    program = harness.build(source)
    result = harness.command([program, "--plan"], 30)
    check(result.code == 0 and result.out == harness.emit("plan", source), "./train --plan and pdc --emit=plan differ")


def test_source_changes_change_the_plan():
    source = harness.read_program("mlp")
    first = harness.plan(source)["source"]["sha256"]
    check(harness.plan(source, {"blocks": 3})["source"]["sha256"] != first, "-D does not reach the source's hash")
    check(harness.plan("// a comment moves nothing\n" + source)["parallel"] == harness.plan(source)["parallel"], "comments matter")


def test_memory_is_refused_above_the_cluster():
    source = harness.read_program("mlp")
    need = max(rank["memory"]["total"] for rank in harness.plan(source)["ranks"])
    harness.plan(source + "cluster < memory=%d; >\n" % need)
    message = harness.refused(source + "cluster < memory=%d; >\n" % (need - 1), need, need - 1)
    check("stage 0" in message, "the refusal does not name the stage: %s" % message)


def test_constant_rate_has_a_warm_up():
    source = harness.read_program("mlp").replace("lr=1e-2", "lr=constant(0.1, warmup=4)")
    lines = [line for line in harness.emit("c", source, options=("-o", "-")).splitlines() if ".rate = " in line]
    check(lines and ".rate = PD_RATE_CONSTANT" in lines[0] and ".warmup = 4," in lines[0], "the recipe: %s" % lines)


def test_failing_c_compiler_leaves_nothing():
    place = directory()
    shutil.copy(example("mlp-fashion"), os.path.join(place, "m.pd"))
    result = pdc("--cc=false", "-o", "train", "m.pd", cwd=place)
    check(result.code == 3, result.describe())
    check(os.listdir(place) == ["m.pd"], "files left: %s" % os.listdir(place))


def test_kept_source_and_plan():
    place = directory()
    shutil.copy(example("mlp-fashion"), os.path.join(place, "m.pd"))
    result = pdc("-S", "m.pd", cwd=place)
    check(result.code == 0, result.describe())
    check(sorted(os.listdir(place)) == ["m.c", "m.pd", "m.plan.json"], "files: %s" % os.listdir(place))
    with open(os.path.join(place, "m.c")) as file:
        text = file.read()
    check("// m.pd:" in text and "[batch, pixel] = 32 x 784" in text, "no source lines or shapes in the C")


def test_usage_errors():
    for words, code, fact in ((("--emit=nothing", "x.pd"), 2, "choose one of"), (("--wide", "x.pd"), 2, "unknown option"),
                              (("--emitt=c", "x.pd"), 2, "--emit"), ((), 2, "no input"), (("absent.pd",), 2, "absent.pd"),
                              (("--target=tpu", "x.pd"), 2, "cuda"), (("--target=host", "--arch=sm_90", "x.pd"), 2, "cuda"),
                              (("--arch=sm_70", "x.pd"), 2, "sm_80"),
                              (("--cuda-compiler=clang", "x.pd"), 2, "--cuda-compiler=clang: choose nvcc or nvrtc"),
                              (("--target=host", "--cuda-compiler=nvrtc", "x.pd"), 2, "--cuda-compiler: that is for --target=cuda"),
                              (("--target=host", "--cxx=g++", "x.pd"), 2, "--cxx: that is for --target=cuda"), (("--print-cuda-requirements",), 0, "libnvrtc.so.13"), (("--print-cuda-requirements",), 0, "libnccl"), (("--explain=E0520",), 0, "memory"), (("--explain=E9999",), 2, "E9999")):
        result = pdc(*words)
        check(result.code == code and fact in result.text, "pdc %s: %s" % (" ".join(words), result.describe()))


def test_precisions_of_messages():
    """In a bf16 program gradients are summed in f32, and so is what a divided cross-entropy sums."""
    layout = {"precision.compute": "bf16", "parallel.pp": 2, "parallel.dp": 2, "parallel.tp": 2, "global": 24}
    text = harness.emit("plan", read_program("gpt"), layout, options=("--target=cuda",))
    plan = json.loads(text)
    found = {}
    for communicator in plan["communicators"]:
        for operation in communicator["operations"]:
            found.setdefault((communicator["axis"], operation.get("tensor", "bucket")), set()).add(operation["dtype"])
    check(found == {("pp", "wte"): {"f32"}, ("dp", "bucket"): {"f32"}, ("dp", "wte"): {"f32"}, ("tp", "gather"): {"bf16"}, ("tp", "contract"): {"bf16"},
                    ("tp", "d_add"): {"bf16"}, ("tp", "row_max"): {"f32"}, ("tp", "sums"): {"f32"}}, "precisions: %s" % found)
    place = directory()
    for change, code in ((0, 0), (2, 1)):
        plan["chunks"][0]["sends"][0]["bytes"] += change
        with open(os.path.join(place, "plan.json"), "w") as file:
            file.write(harness.canonical(plan))
        result = pdc("certify", os.path.join(place, "plan.json"))
        check(result.code == code and ("bytes is" in result.text) == bool(code), result.describe())


def test_usual_target():
    """PDC_TARGET says what is built where no option does."""
    for target, words, fact in (("host", (), "-lopenblas"), ("cuda", (), "-l:libcublasLt.so"), ("cuda", ("--target=host",), "-lopenblas"),
                                ("host", ("--arch=sm_90",), "-l:libcublasLt.so"), ("", ("--target=cuda",), "-l:libcublasLt.so")):
        result = pdc("-###", *words, os.path.join(harness.PROGRAMS, "mlp.pd"), environment={"PDC_TARGET": target})
        check(result.code == 0 and fact in result.err, result.describe())
    result = pdc("-###", os.path.join(harness.PROGRAMS, "mlp.pd"), environment={"PDC_TARGET": "tpu"})
    check(result.code == 2 and "PDC_TARGET=tpu: no such target; choose host or cuda" in result.err, result.describe())


def test_a_parent_that_ignores_its_children():
    """A SIGCHLD that is ignored is inherited; commands and ranks are waited for all the same."""
    ignoring = ["env", "--ignore-signal=CHLD"]
    place = directory()
    program = os.path.join(place, "program")
    result = command([*ignoring, harness.PDC, "-O1", "-D", "parallel.pp=2", "-o", program, os.path.join(harness.PROGRAMS, "mlp.pd")], 60)
    check(result.code == 0, result.describe())
    result = command([*ignoring, program, "--steps=1", "--data=x=missing.npy,y=missing.npy"], 60, cwd=place)
    check(result.code == 3, result.describe())


def test_standard_output_that_is_full():
    program = harness.build(read_program("mlp"))
    for option in ("--plan", "--help", "--version"):
        result = command(["bash", "-c", '"$0" %s >/dev/full' % option, program], 30)
        check(result.code == 2 and "standard output: cannot write" in result.err, result.describe())


def test_help_lists_every_option():
    text = output("--help")
    for option in ("-o FILE", "-D NAME=VALUE", "-I DIR", "-S", "--emit=KIND", "--explain=CODE", "exit status"):
        check(option in text, "--help does not mention %s" % option)


harness.main(__name__)
