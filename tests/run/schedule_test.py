"""Schedules and plans without a program: `pdc schedule`, `pdc certify`, `pdc diff`, pictures. Every kind goes through every
form and comes back certified; files that were altered are refused with what is wrong and where."""
import json
import os
import re
import xml.etree.ElementTree as xml
from html.parser import HTMLParser

import harness
from harness import canonical, check, directory, pdc, rehashed

EXAMPLES = os.path.join(harness.ROOT, "examples")


def ran(code, *words, **more):
    result = pdc(*words, **more)
    check(result.code == code, result.describe())
    return result


def write(place, name, text):
    path = os.path.join(place, name)
    with open(path, "w") as file:
        file.write(text)
    return path


def schedule(kind, pp, microbatches, *options, code=0):
    return ran(code, "schedule", "--kind=%s" % kind, "--pp=%d" % pp, "--microbatches=%d" % microbatches, *options)


def kinds():
    return ran(0, "schedule", "--help").out.split("kinds: ")[1].split("\n")[0].split(", ")[:-1]  # the last is auto


def refused(text, *facts, command="certify"):
    place = directory()
    result = pdc(command, write(place, "x", text))
    check(result.code == 1, "`%s` is taken: %s" % (facts, result.describe()))
    check(result.out == "" and result.err.count("\n") == 1, "one line on standard error: " + result.describe())
    for fact in facts:
        check(fact in result.err, "`%s` is not said: %s" % (fact, result.err))


# ---- every kind, every form ----

def round_trip(kind):
    """Generated, certified, as CSV, certified, compared; and the JSON that is read is the JSON that is written."""
    place = directory()
    first = os.path.join(place, "a.json")
    schedule(kind, 4, 8, "-o", first)
    ran(0, "certify", first)
    with open(first) as file:
        text = file.read()
    check(ran(0, "schedule", first).out == text, "%s: read and written again it is another file" % kind)
    data = json.loads(text)
    check(all(data["certificate"][key] for key in ("complete", "ordered", "matched")) and all(data["certificate"]["acyclic"].values()), kind)
    rows = {}
    for form in ("csv", "comms-csv", "waits-csv"):
        table = write(place, form, ran(0, "schedule", "--format=" + form, first).out)
        certificate = ran(0, "certify", table).out
        check("makespan  %s (F = 1, I = 1, W = 1, link = 0)" % number(data["certificate"]["makespan"]) in certificate, certificate)
        check(ran(0, "diff", first, table).out == "nothing differs\n", "%s: %s differs" % (kind, form))
        with open(table) as file:
            rows[form] = [line.split(",") for line in file.read().splitlines()]
    check(rows["comms-csv"] == data["ranks"], "%s: comms-csv holds other actions" % kind)
    check(rows["csv"] == [[a for a in rank if re.fullmatch(r"\d+[FBIW]\d+", a)] for rank in data["ranks"]], "%s: csv" % kind)
    check([[a for a in rank if "WAIT" not in a] for rank in rows["waits-csv"]] == data["ranks"], "%s: waits-csv" % kind)
    for rank in rows["waits-csv"]:
        sends = [a.replace("SEND", "WAIT_SEND") for a in rank if "SEND" in a and "WAIT" not in a]
        check(sorted(sends) == sorted(a for a in rank if "WAIT_SEND" in a), "%s: not every send is waited for" % kind)
        check(all(rank.index(a.replace("SEND", "WAIT_SEND")) > i for i, a in enumerate(rank) if "_SEND" not in a and "SEND" in a), kind)


def number(value):
    return "%g" % value


for name in kinds() if os.access(harness.PDC, os.X_OK) else ():
    harness.add("round_trip_" + name, round_trip, name)


def test_oracle_table():
    """The bubble, the memory and the time of p = 4, m = 8 at unit costs, as published."""
    for kind, chunks, makespan, beta, sigma, peak in (
            ("gpipe", 1, 33, 9, 9, 8), ("1f1b", 1, 33, 9, 9, 4), ("eager-1f1b", 1, 33, 9, 9, 7), ("interleaved", 2, 28.5, 4.5, 4.5, 5.5),
            ("interleaved", 4, 26.25, 2.25, 2.25, 4.75), ("breadth-first", 2, 28.5, 4.5, 4.5, 8), ("zb-h1", 1, 27, 3, 3, 4),
            ("zb-h2", 1, 27, 3, 0, 7), ("zb-v", 2, 25.5, 1.5, 0, 4), ("interleaved-zb", 2, 25.5, 1.5, 1.5, 4)):
        c = json.loads(schedule(kind, 4, 8, "--chunks=%d" % chunks).out)["certificate"]
        got = (c["makespan"], c["beta"], c["sigma"], max(c["peak"]))
        check(got == (makespan, beta, sigma, peak), "%s with %d chunks: %s" % (kind, chunks, got))


def test_link_latency():
    """A hop of c costs gpipe and eager-1f1b 2c(p-1), 1f1b 2c(p-2) + 2c(p-1)m/p: receives are posted in time."""
    for pp, m, c in ((4, 8, 0.1), (4, 16, 0.05), (3, 9, 0.1), (8, 16, 0.01)):
        for kind, exposed in (("gpipe", 2 * c * (pp - 1)), ("eager-1f1b", 2 * c * (pp - 1)), ("1f1b", 2 * c * (pp - 2) + 2 * c * (pp - 1) * m / pp)):
            text = schedule(kind, pp, m, "--costs=1,1,1,%g" % c).out
            harness.close(json.loads(text)["certificate"]["beta"], 3 * (pp - 1) + exposed, 1e-12, "beta of %s, pp %d, m %d, link %g" % (kind, pp, m, c))
            certified = pdc("certify", "-", source=text)
            check(certified.code == 0, certified.describe())
            table = pdc("schedule", "--costs=1,1,1,%g" % c, "-", source=schedule(kind, pp, m, "--format=csv").out)
            check(json.loads(table.out)["certificate"]["beta"] == json.loads(text)["certificate"]["beta"], "%s read without its messages" % kind)


def test_auto_is_never_worse_than_a_kind():
    for costs, options in (("1,1,1,0", ()), ("1,1.3,0.7,0", ()), ("1,1,1,0", ("--memory=3",)), ("2,1,3,0", ("--chunks=1",)), ("1,1,1,0.1", ()),
                           ("1,2,1,0.5", ("--memory=4",))):
        auto = schedule("auto", 4, 8, "--costs=" + costs, *options)
        check(auto.err.startswith("pdc: auto: ") and auto.err.count("\n") == 1, auto.describe())
        mine = json.loads(auto.out)["certificate"]
        check("--memory=3" not in options or max(mine["peak"]) <= 3, "auto holds %s" % mine["peak"])
        for kind in ("1f1b", "zb-h1", "zb-v", "interleaved"):
            other = pdc("schedule", "--kind=" + kind, "--pp=4", "--microbatches=8", "--costs=" + costs, *options)
            if other.code == 0:
                theirs = json.loads(other.out)["certificate"]
                check(mine["makespan"] <= theirs["makespan"] + 1e-9, "%s %s: auto takes %s, %s %s" % (costs, options, mine["makespan"], kind, theirs["makespan"]))
        said = re.search(r"one step takes ([0-9.]+)", auto.err)
        check(said is None or abs(float(said.group(1)) - mine["makespan"]) < 1e-6, "auto says %s, the schedule takes %s" % (auto.err, mine["makespan"]))
        result = pdc("certify", "-", source=auto.out)
        check(result.code == 0, result.describe())
    result = schedule("auto", 4, 8, "--memory=0.5", code=1)
    check(result.err.count("\n") > 5 and "1f1b" in result.err, result.describe())
    check("gpipe" in schedule("auto", 4, 8, "-v").err, "-v does not say why gpipe was not taken")


def test_same_bytes_everywhere():
    words = ["schedule", "--kind=interleaved-zb", "--pp=4", "--microbatches=9", "--chunks=3", "--costs=1.1,1.3,0.7,0.05"]
    for form in ("json", "text", "svg", "html", "trace"):
        first = ran(0, *words, "--format=" + form).out
        other = harness.command([harness.PDC] + words + ["--format=" + form], 60, cwd=directory(),
                                environment={"LC_ALL": "tr_TR.UTF-8", "LANG": "de_DE.UTF-8", "TZ": "Pacific/Auckland", "COLUMNS": "77"})
        check(other.out == first and other.code == 0, "%s depends on the place or the locale" % form)


# ---- the commands ----

def test_transcript_of_certify():
    place = directory()
    schedule("zb-v", 4, 8, "-o", os.path.join(place, "z.json"))
    check(ran(0, "certify", "z.json", cwd=place).out == """\
schedule  z.json: zb-v, 4 ranks of 2 chunks, 8 micro-batches
complete  every micro-batch goes once through every chunk, forward and back
ordered   what an action reads on its rank comes before it; micro-batches of a chunk ascend
matched   96 messages, each with its receive, in one order at both ends
acyclic   no deadlock with buffered, rendezvous or grouped sends
makespan  25.5 (F = 1, I = 1, W = 1, link = 0)
beta      1.5; no schedule of these chunks goes below 1.5 (gap 0)
sigma     0
idle      1.5  1.5  1.5  1.5
peak      4  4  4  4
""", "the certificate of zb-v")
    text = ran(0, "certify", "--costs=1,2,1,0.5", "z.json", cwd=place).out
    check("(F = 1, I = 2, W = 1, link = 0.5)" in text and "peak      4  4  4  4" in text, text)
    text = ran(0, "certify", "-", source="0F0,(0F1;0B0)OVERLAP_F_B,,0B1\r\n").out
    check(text.startswith("note      1 OVERLAP_F_B read as their parts, one after the other\n"), text)


def test_usage():
    good = ("schedule", "--kind=1f1b", "--pp=2", "--microbatches=2")
    for words, code, fact in (
            (("schedule",), 2, "--kind=KIND; this version has gpipe, 1f1b"), (("schedule", "--kind=2f2b", "--pp=2", "--microbatches=2"), 2, "zb-v"),
            (good[:3], 2, "--microbatches=N"), ((good[0], good[1], good[3]), 2, "--pp=N"), (good + ("--format=png",), 2, "choose one of json, csv"),
            (good + ("--costs=1,1",), 2, "F,I,W"), (good + ("--costs=1,1,1,1,1",), 2, "F,I,W"), (good + ("--costs=1,x,1",), 2, "F,I,W"),
            (good + ("--costs=1,-1,1",), 2, "F,I,W"), (good + ("--costs=0,0,0",), 2, "must take time"), (good + ("--costs=nan,1,1",), 2, "F,I,W"),
            (good + ("--costs=",), 2, "F,I,W"), (good + ("--costs=0x10,1,1",), 2, "F,I,W"),
            (good + ("--pp=0",), 2, "from 1 to 4096"), (good + ("--pp=1e3",), 2, "whole number"), (good + ("--chunks=-1",), 2, "whole number"),
            (good + ("--microbatches=99999999999999999999",), 2, "whole number"), (good + ("--memory=0",), 2, "above 0"),
            (good + ("--columns=10",), 2, "from 40"), (good + ("--colunms=80",), 2, "did you mean `--columns`?"), (good + ("-o",), 2, "needs a value"),
            (good + ("x.json",), 2, "give either a file or these"), (("schedule", "a", "b"), 2, "second file"),
            (good + ("-o", "/nowhere/x"), 2, "cannot write /nowhere/x"), (("schedule", "absent.json"), 2, "absent.json"),
            (("certify",), 2, "pdc certify FILE"), (("certify", "a", "b"), 2, "second"), (("certify", "absent"), 2, "absent"),
            (("certify", "--cost=1,1,1", "x"), 2, "did you mean `--costs`?"), (("diff", "a"), 2, "two files"), (("diff", "a", "b", "c"), 2, "third"),
            (("diff", "absent", "absent"), 2, "absent"), (("help", "nothing"), 2, "no command `nothing`"),
            (("schedule", "--kind=zb-v", "--chunks=3", "--pp=4", "--microbatches=8"), 1, "chunks = 3"),
            (("schedule", "--kind=1f1b", "--chunks=2", "--pp=4", "--microbatches=8"), 1, "kind = interleaved"),
            (("schedule", "--kind=gpipe", "--pp=4096", "--microbatches=16000000"), 1, "too many"),
            (("schedule", "--kind=zb-h2", "--pp=4", "--microbatches=8", "--memory=6"), 1, "holds 7 micro-batches on rank 0, but --memory is 6")):
        result = ran(code, *words)
        check(fact in result.err and result.out == "", "pdc %s: %s" % (" ".join(words), result.describe()))
    schedule("zb-h2", 4, 8, "--memory=7")


def test_help():
    text = ran(0, "help").out
    check(text == ran(0, "--help").out, "pdc help is not pdc --help")
    for word in ("pdc schedule", "pdc certify", "pdc diff", "pdc fmt", "pdc help", "svg, html"):
        check(word in text, "--help does not mention `%s`" % word)
    for command, words in (("schedule", ("--kind=KIND", "--costs=F,I,W[,LINK]", "-o FILE", "kinds: gpipe, ")), ("certify", ("--costs", "PyTorch")),
                           ("diff", ("Exit status 0",)), ("fmt", ("--check",))):
        text = ran(0, "help", command).out
        check(all(word in text for word in words) and ("usage: pdc " + command) in text, text)
        if command != "fmt":
            check(ran(0, command, "--help").out == text, "pdc help %s is not pdc %s --help" % (command, command))


def test_devices_and_pipes_stay():
    schedule("1f1b", 2, 2, "-o", "/dev/full", code=2)
    result = ran(0, "schedule", "-", "--format=csv", source="0F0,0B0\n")
    check(result.out == "0F0,0B0\n", result.describe())


def test_plans_of_every_kind_are_certified():
    """With replicas and without: where gradients end, and what reduces them, agrees with the lists."""
    for kind, chunks in (("gpipe", 1), ("1f1b", 1), ("zb-v", 2), ("interleaved", 2), ("dualpipe", 1), ("chimera", 1), ("hanayo", 2), ("pipedream-2bw", 1)):
        for dp in (1, 2):
            defines = {"layers": 4, "tied": False, "global": 24, "optimizer.clip": 0, "parallel.pp": 2, "parallel.dp": dp, "schedule.kind": kind,
                       "schedule.chunks": chunks}
            ran(0, "certify", "-", source=harness.emit("plan", harness.read_program("gpt"), defines))


def test_forms_of_files():
    place = directory()
    plan = write(place, "plan.json", harness.emit("plan", harness.read_program("mlp")))
    for form in ("csv", "comms-csv", "waits-csv", "text", "svg", "html", "trace"):
        check(ran(0, "schedule", "--format=" + form, plan).out, form)
    ran(2, "schedule", plan)
    data = json.loads(ran(0, "schedule", "--costs=1,1,1", plan).out)
    check(data["format"] == "pd-schedule" and data["pp"] == json.load(open(plan))["parallel"]["pp"], "a plan as a schedule: %s" % data)
    table = write(place, "t.csv", "0F0,0B0\n1F0,1B0\n")
    result = ran(0, "schedule", table)
    check("note: it holds computations only; messages were added" in result.err, result.describe())
    data = json.loads(result.out)
    check(data["kind"] == "imported" and data["ranks"] == [["0F0", "0SEND_F0", "0RECV_B0", "0B0"], ["1RECV_F0", "1F0", "1B0", "1SEND_B0"]], data)
    ran(0, "certify", write(place, "again.json", result.out))
    result = ran(1, "schedule", write(place, "bad.csv", "0B0,0F0\n"))
    check("bad.csv: not certified: 0B0 comes before 0F0 on rank 0" in result.err and not result.out, result.describe())


# ---- what is refused ----

def test_altered_schedules():
    text = schedule("zb-h1", 3, 5).out
    refused(text.replace('"0F0"', '"0F1"'), "$.sha256", "altered")
    refused(text[:-3], "line ")
    refused(text + "{}", "line ")
    refused(rehashed(text.replace('"version": 1', '"version": 3')), "$.version is 3", "version 1")
    refused(rehashed(text.replace('"format": "pd-schedule"', '"format": "pd-scheme"')), "$.format")
    refused(rehashed(text.replace('      "1F2",\n', "")), "not complete: 1F2 is missing on rank 1")
    refused(rehashed(text.replace('      "1F2",\n', '      "1F2",\n      "1F2",\n')), "1F2 stands twice on rank 1")
    refused(rehashed(text.replace('"makespan": ', '"makespan": 1')), "it claims what is not so: $.certificate.makespan")
    for command in ("certify", "schedule"):
        refused("0F0,0Q0\n", "line 1, column 5", "`0Q0`", command=command)
    result = ran(2, "diff", write(directory(), "bad", "0Q0\n"), "absent")
    check("line 1, column 1" in result.err, result.describe())


def test_every_mutation_of_a_list_is_caught():
    """An action dropped, doubled, or moved to another rank, and neighbours exchanged wherever that matters."""
    data = json.loads(schedule("zb-v", 2, 3).out)
    caught = 0
    for rank, actions in enumerate(data["ranks"]):
        for i in range(0, len(actions), 2):
            for change in ("drop", "double", "move"):
                lists = [list(row) for row in data["ranks"]]
                action = lists[rank][i]
                if change == "double":
                    lists[rank].insert(i, action)
                else:
                    del lists[rank][i]
                if change == "move":
                    lists[1 - rank].insert(min(i, len(lists[1 - rank])), action)
                caught += 1
                result = pdc("certify", "-", source="".join(",".join(row) + "\n" for row in lists))
                check(result.code == 1 and ("rank" in result.err or "chunk" in result.err), "%s of %s: %s" % (change, action, result.describe()))
    check(caught > 50, "only %d mutations" % caught)


def test_altered_plans():
    text = harness.emit("plan", harness.read_program("gpt"), {"parallel__pp": 2})
    plan = json.loads(text)
    check(canonical(plan) == text, "the test writes plans otherwise than pdc")
    ran(0, "certify", write(directory(), "p", text))
    refused(text.replace('"decay": true', '"decay": false', 1), "$.sha256")
    changes = [
        (lambda p: p.pop("cluster"), "$.cluster is missing"),
        (lambda p: p["cluster"].update(extra=1), "$.cluster.extra: there is no such key"),
        (lambda p: p["parallel"].pop("tp"), "$.parallel.tp is missing"),
        (lambda p: p["parallel"].update(pp="2"), "$.parallel.pp must be an integer, is a string"),
        (lambda p: p["batch"].update(microbatches=p["batch"]["microbatches"] + 1), "$.batch.global"),
        (lambda p: p["schedule"].update(chunks=2), "$.schedule.placement has"),
        (lambda p: p["schedule"]["placement"].reverse(), "$.chunks[0].rank is 0, but $.schedule.placement says 1"),
        (lambda p: p["parameters"][0].update(shape=[1, 1]), "$.chunks[0].parameters is"),
        (lambda p: p["parameters"][0].pop("dtype"), "$.parameters[0].dtype is missing"),
        (lambda p: p["parameters"][0].update(chunk=9), "$.parameters[0].chunk is 9"),
        (lambda p: p["chunks"].pop(), "$.chunks has 1 entries, must have 2"),
        (lambda p: p["chunks"][1].update(rank=0), "$.chunks[1].rank is 0"),
        (lambda p: p["chunks"][1]["layers"][0].update(first=p["chunks"][1]["layers"][0]["first"] + 1), "$.chunks[1].layers[0].first"),
        (lambda p: p["chunks"][0]["layers"].clear(), "$.chunks[0].layers is empty"),
        (lambda p: p["chunks"][0]["sends"].clear(), "$.chunks[0].sends has no tensor for chunk 1"),
        (lambda p: p["chunks"][0]["sends"][0].update(bytes=3), "$.chunks[0].sends[0].bytes is 3"),
        (lambda p: p["chunks"][0]["sends"][0].update(to_chunk=5), "$.chunks[0].sends[0].to_chunk is 5"),
        (lambda p: p["chunks"][0]["cost_ns"].update(F=-1), "$.chunks[0].cost_ns.F is -1"),
        (lambda p: p["chunks"][0]["cost_ns"].update(F=12345678), "$.certificate.makespan_ns"),
        (lambda p: p["ranks"].pop(), "$.ranks has 1 entries, must have 2"),
        (lambda p: p["ranks"][1].update(rank=0), "$.ranks[1].rank is 0"),
        (lambda p: p["ranks"][0]["actions"].__setitem__(0, "0f0"), '$.ranks[0].actions[0]: "0f0" is no action'),
        (lambda p: p["ranks"][0]["actions"].pop(0), "0F0 is missing on rank 0"),
        (lambda p: p["ranks"][0]["actions"].append(p["ranks"][0]["actions"].pop(0)), "on rank 0"),
        (lambda p: p["ranks"][0]["memory"].update(workspace=1), "$.ranks[0].memory.total"),
        (lambda p: p["certificate"]["peak_bytes"].__setitem__(0, 1), "$.certificate.peak_bytes[0]"),
        (lambda p: p["certificate"]["idle_ns"].pop(), "$.certificate.idle_ns has 1 entries"),
        (lambda p: p["certificate"].update(beta_ns=0), "$.certificate.beta_ns is 0 in the file"),
        (lambda p: p["certificate"].update(matched=False), "$.certificate.matched is false"),
        (lambda p: p["cluster"].update(link_ns=7), "$.certificate.makespan_ns"),
        (lambda p: p["cluster"].update(flops=None), "$.cluster.flops must be a number, is null"),
    ]
    for change, fact in changes:
        other = json.loads(text)
        change(other)
        refused(canonical(other), fact)
    text = harness.emit("plan", harness.read_program("gpt"), {"parallel__pp": 2, "parallel__dp": 2})

    def without_reductions(p):
        for rank in p["ranks"]:
            rank["actions"] = [action for action in rank["actions"] if "REDUCE" not in action]

    def moved(p, chunk, before):
        actions = p["ranks"][chunk]["actions"]
        actions.remove("%dREDUCE_GRAD" % chunk)
        actions.insert(actions.index(before), "%dREDUCE_GRAD" % chunk)
    last = json.loads(text)["batch"]["microbatches"] - 1
    for change, facts in (
            (lambda p: p["communicators"][-1].update(size=9), ("$.communicators[", "].size is 9, but dp is 2")),
            (without_reductions, ("$.ranks has no REDUCE_GRAD, but dp is 2",)),
            (lambda p: p["ranks"][0]["actions"].remove("0REDUCE_GRAD"), ("0REDUCE_GRAD is missing on rank 0",)),
            (lambda p: p["ranks"][1]["actions"].append("1REDUCE_GRAD"), ("1REDUCE_GRAD stands twice on rank 1",)),
            (lambda p: moved(p, 1, "1B%d" % last), ("1REDUCE_GRAD comes before 1B%d on rank 1" % last,)),
            (lambda p: p["communicators"][-1]["operations"][0].update(after="1B0"), ('.after is "1B0", not what ends a chunk\'s gradients on rank 1',)),
            (lambda p: p["communicators"][-1]["operations"][0].update(bucket=3), (".bucket is 3: buckets are numbered in order",))):
        other = json.loads(text)
        change(other)
        refused(canonical(other), *facts)
    other = json.loads(harness.emit("plan", harness.read_program("gpt"), {"parallel__pp": 2}))
    for rank in (0, 1):
        other["ranks"][rank]["actions"].append("%dREDUCE_GRAD" % rank)
    refused(canonical(other), "$.ranks has REDUCE_GRAD, but dp is 1")


def test_layout_strings():
    """Stages in order of the model: the ranks' first chunks, then their second ones; an empty one passes on what it gets."""
    source, sizes = harness.read_program("gpt"), {"layers": 5, "parallel__pp": 2, "schedule__kind": "interleaved"}
    place = directory()
    for layout, trips in (("Et|tt||ttL", [(0, 0), (1, 2), None, (3, 4)]), ("Et*2|(t|)*2,tL", [(0, 1), (2, 2), (3, 3), (4, 4)]),
                          ("Ettttt|||L", [(0, 4), None, None, None]), ("E|||t*5L", [None, None, None, (0, 4)])):
        text = harness.emit("plan", source, {**sizes, "schedule__layout": layout})
        plan = json.loads(text)
        check(plan["schedule"]["placement"] == [0, 1, 0, 1] and plan["schedule"]["chunks"] == 2, plan["schedule"])
        found = [[(run["first"], run["last"]) for run in chunk["layers"] if run["name"] == "layers"] for chunk in plan["chunks"]]
        check(found == [[run] if run else [] for run in trips], "%s: %s" % (layout, found))
        names = [[run["name"] for run in chunk["layers"]] for chunk in plan["chunks"]]
        check(names[0][0] == "embedding" and names[-1][-1] == "loss" and sum(map(len, names)) == 2 + sum(run is not None for run in trips), names)
        ran(0, "certify", write(place, "p", text))
        same = harness.emit("plan", source, {**sizes, "schedule__layout": layout, "schedule__chunks": 2})
        check(json.loads(same)["chunks"] == plan["chunks"], "with chunks said it is another plan")
    plan["chunks"][0]["layers"].clear()
    refused(canonical(plan), "$.chunks[0].layers is empty")
    automatic = json.loads(harness.emit("plan", source, {**sizes, "schedule__kind": "auto", "schedule__layout": "Et|tt||ttL"}))
    check(automatic["schedule"]["chunks"] == 2 and [len(chunk["layers"]) for chunk in automatic["chunks"]] == [2, 1, 0, 2], automatic["chunks"])


# ---- what differs ----

def plan_file(place, name, **defines):
    return write(place, name, harness.emit("plan", harness.read_program("gpt"), defines))


def test_diff_of_plans():
    place = directory()
    a = plan_file(place, "a", parallel__pp=2)
    check(ran(0, "diff", a, a).out == "nothing differs\n", "a plan and itself")
    check(ran(0, "diff", a, plan_file(place, "same", parallel__pp=2)).out == "nothing differs\n", "the same plan twice")

    text = ran(1, "diff", a, plan_file(place, "b", parallel__pp=4)).out
    for words in ("parallel: pp 2 -> 4\n", "stage cut, chunk 0: ", "stage cut, chunk 2: none -> ", "memory of rank 0: ", "memory of rank 2: none -> ",
                  "messages a step: ", "makespan: "):
        check(words in text, "`%s` is not said:\n%s" % (words, text))
    check("schedule:" not in text and "micro-batches" not in text, "more is told than differs:\n" + text)

    text = ran(1, "diff", a, plan_file(place, "c", parallel__pp=2, schedule__kind="zb-h1")).out
    kind = json.load(open(a))["schedule"]["kind"]
    for words in ("schedule: %s -> zb-h1\n" % kind, "actions of rank 0: 0B", "makespan: "):
        check(words in text, "`%s` is not said:\n%s" % (words, text))
    check("parallel:" not in text and "stage cut" not in text and "parameter" not in text, "more is told than differs:\n" + text)

    text = ran(1, "diff", a, plan_file(place, "d", parallel__pp=2, parallel__dp=2)).out
    for words in ("parallel: dp 1 -> 2\n", "predicted step: ", "predicted use of the machine (mfu): ", "batch: microbatches ", "dp group of rank 0: 0 operations"):
        check(words in text, "`%s` is not said:\n%s" % (words, text))
    altered = json.loads(open(a).read())
    altered["cluster"]["memory"] = 12345
    text = ran(1, "diff", a, write(place, "e", canonical(altered))).out
    check(text == "cluster: memory none -> 12345\n", text)
    altered = json.loads(open(a).read())
    altered["parameters"][0]["decay"] = not altered["parameters"][0]["decay"]
    text = ran(1, "diff", a, write(place, "f", canonical(altered))).out
    check(re.fullmatch(r"parameter \S+: decay (yes -> no|no -> yes)\n", text), text)


# ---- pictures ----

class Page(HTMLParser):
    """Counts what a page draws; nothing in it may point outside."""

    def __init__(self):
        super().__init__()
        self.boxes, self.links = [], []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if "data-a" in attributes:
            self.boxes.append(attributes["data-a"])
        self.links += [value for key, value in attributes.items() if key in ("href", "src") or (value or "").startswith("http:") and key != "xmlns"]


def test_pictures_show_every_action():
    for kind, pp, m in (("zb-v", 8, 24), ("1f1b", 2, 2), ("dualpipe", 4, 8), ("interleaved", 4, 8)):
        lists = [row.split(",") for row in schedule(kind, pp, m, "--format=comms-csv").out.splitlines()]
        actions = sorted(action for row in lists for action in row if "SEND" not in action and "RECV" not in action)
        check(("0REDUCE_GRAD" in actions) == (kind == "dualpipe"), "reductions where there are two copies")
        root = xml.fromstring(schedule(kind, pp, m, "--format=svg").out)
        space = "{http://www.w3.org/2000/svg}"
        titles = [title.text for title in root.iter(space + "title")]
        check(sorted(title.split(" ")[0] for title in titles) == actions, "%s: the boxes of the SVG" % kind)
        words = " ".join(text.text for text in root.iter(space + "text"))
        for fact in (kind, "%d micro-batches" % m, "makespan", "beta", "sigma", "peak", "certified", "rank %d" % (pp - 1)):
            check(fact in words, "%s: the SVG does not say `%s`" % (kind, fact))
        check(float(root.get("width")) < 1900, "%s is %s wide" % (kind, root.get("width")))
        page = Page()
        page.feed(schedule(kind, pp, m, "--format=html").out)
        check(sorted(page.boxes) == actions and not page.links, "%s: the page" % kind)


def test_the_picture_in_the_documentation_is_current():
    with open(os.path.join(harness.ROOT, "docs", "pictures", "zb-v.svg")) as file:
        check(file.read() == schedule("zb-v", 4, 8, "--format=svg").out, "write docs/pictures/zb-v.svg again: pdc schedule --kind=zb-v ...")


def test_trace():
    trace = json.loads(schedule("zb-h1", 4, 8, "--format=trace", "--costs=1,1,1,0.5").out)
    data = json.loads(schedule("zb-h1", 4, 8, "--costs=1,1,1,0.5").out)
    boxes = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    check(sorted(event["name"] for event in boxes) == sorted(a for row in data["ranks"] for a in row if "_" not in a), "the boxes of the trace")
    check(max(event["ts"] + event["dur"] for event in boxes) == 1000 * data["certificate"]["makespan"], "the end of the trace")
    sends = sum("SEND" in a for row in data["ranks"] for a in row)
    check([sum(event["ph"] == phase for event in trace["traceEvents"]) for phase in "sf"] == [sends, sends], "the flows of the trace")
    held = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "C":
            held.setdefault(event["tid"], []).append(event["args"]["micro-batches"])
    check([max(held[rank]) for rank in sorted(held)] == data["certificate"]["peak"] and all(row[-1] == 0 for row in held.values()), "the counters")


def test_reductions_in_pictures():
    """Beside the rank's list, from the last weight gradient of a chunk on, as long as the plan predicts."""
    source = harness.read_program("gpt")
    defines = {"layers": 4, "parallel__pp": 2, "parallel__dp": 2, "schedule__kind": "interleaved", "schedule__chunks": 2, "cluster__bandwidth": 2e10}
    plan = harness.plan(source, defines)
    names = ["%dREDUCE_GRAD" % chunk for chunk in range(4)]
    trace = json.loads(harness.emit("trace", source, defines))["traceEvents"]
    events = {event["name"]: event for event in trace if event["ph"] == "X"}
    for chunk, name in enumerate(names):
        rank, kind = chunk % 2, events[name]
        last = max(event["ts"] + event["dur"] for event in events.values() if re.fullmatch(r"%dB\d+" % chunk, event["name"]))
        harness.close(kind["dur"] * 1000, plan["prediction"]["chunks"][chunk]["reduce_ns"], 1e-9, "how long %s takes" % name)
        check(kind["tid"] == 2 + rank and kind["dur"] > 0 and kind["ts"] >= last - 1e-9, "%s: %s, the last backward ends at %s" % (name, kind, last))
    check(events["2REDUCE_GRAD"]["ts"] < max(event["ts"] for name, event in events.items() if name.startswith("0B")), "that of chunk 2 runs beside backwards")
    root = xml.fromstring(harness.emit("svg", source, defines))
    titles = [title.text.split(" ")[0] for title in root.iter("{http://www.w3.org/2000/svg}title")]
    check(sorted(name for name in titles if "REDUCE" in name) == names, "the SVG has %s" % titles)
    words = " ".join(text.text for text in root.iter("{http://www.w3.org/2000/svg}text"))
    check("gradients reduced over replicas" in words and "after the last computation" in words, words)
    page = Page()
    page.feed(harness.emit("html", source, defines))
    check(sorted(name for name in page.boxes if "REDUCE" in name) == names, page.boxes)
    place = directory()
    text = ran(0, "schedule", "--format=text", write(place, "p", json.dumps(plan, indent=2, ensure_ascii=False) + "\n")).out
    check(all(re.search(name + " [0-9.]+ [nu]s to [0-9.]+ [nu]s,", text) for name in names), text)


def test_pictures_of_large_schedules():
    """Beyond 20000 boxes a picture shows shares of time and says so; it stays small, whatever m is."""
    sizes = {}
    for m in (64, 512, 2048):
        text = schedule("zb-h1", 32, m, "--format=svg").out
        root = xml.fromstring(text)
        words = " ".join(element.text for element in root.iter("{http://www.w3.org/2000/svg}text"))
        titles = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
        sizes[m] = len(text)
        large = 32 * m * 3 > 20000
        check(("%d boxes: share of time per 1/600 of the run" % (32 * m * 3) in words) == large, words)
        check(len(titles) == (32 if large else 32 * m * 3) and float(root.get("width")) < 30000, "m %d: %d titles" % (m, len(titles)))
    check(max(sizes[512], sizes[2048]) < 1 << 20, "sizes %s" % sizes)
    # what is drawn is what is computed: F fills a third of the area of a rank's row that is not idle
    path = next(p for p in root.iter("{http://www.w3.org/2000/svg}path") if p.get("class") == "F0")
    area, x, y, bottom = 0, None, None, None
    for letter, value, other in re.findall(r"([MHV])([0-9.]+)(?: ([0-9.]+))?", path.get("d")):
        if letter == "M":
            x, bottom, y = float(value), float(other), float(other)
        elif letter == "H":
            area += (float(value) - x) * (bottom - y)
            x = float(value)
        else:
            y = float(value)
    certificate = json.loads(schedule("zb-h1", 32, 2048).out)["certificate"]
    harness.close(area / (1200 * 18), 2048 / certificate["makespan"], 0.02, "the share of forwards of rank 0")


def test_pictures_of_programs():
    source = harness.read_program("gpt")
    plan = harness.plan(source, {"parallel__pp": 2})
    root = xml.fromstring(harness.emit("svg", source, {"parallel__pp": 2}))
    titles = [element.text for element in root.iter("{http://www.w3.org/2000/svg}title")]
    check(len(titles) == sum(bool(re.fullmatch(r"\d+[FBIW]\d+", a)) for rank in plan["ranks"] for a in rank["actions"]), "the boxes")
    check("holding" in titles[0] and ("bytes" in titles[0] or "iB" in titles[0]), titles[0])
    trace = json.loads(harness.emit("trace", source, {"parallel__pp": 2}))
    end = max(event["ts"] + event["dur"] for event in trace["traceEvents"] if event["ph"] == "X")
    harness.close(end * 1000, plan["certificate"]["makespan_ns"], 1e-9, "the end of the trace")
    page = Page()
    page.feed(harness.emit("html", source, {"parallel__pp": 2}))
    check(len(page.boxes) == len(titles) and not page.links, "the page")


harness.main(__name__)
