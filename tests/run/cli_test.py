"""The command line of pdc: the formatter, what --emit prints, rules for make, warnings, colour. Every text that a tool
would read is pinned here; messages about wrong programs are pinned by bad_test.py."""
import glob
import os
import pty
import re
import shutil
import stat

import harness
from harness import check, directory, pdc

MLP = os.path.join(harness.PROGRAMS, "mlp.pd")
UNUSED = """dim batch = 4, n = 3;
model m(x: f32[batch, n], y: f32[batch, n]) {
  param w: [n] = 1, u: [n] = 1;
  loss mse(x * w, y);
}
"""
IMPORTS = 'import "std/nn.pd" as nn;\nimport "a b.pd" as ab;\n' + UNUSED.replace(", u: [n] = 1", "").replace("x * w", "ab.twice(nn.layernorm(x)) * w")
TWICE = "block twice(x: [..]) -> [..] { return x * 2; }\n"


def same(got, wanted, what):
    check(got == wanted, "%s:\n%s\nis not\n%s" % (what, got, wanted))


def ran(code, *words, **more):
    result = pdc(*words, **more)
    check(result.code == code, result.describe())
    return result


def write(place, name, text):
    path = os.path.join(place, name)
    with open(path, "w") as file:
        file.write(text)
    return path


def read(path):
    with open(path) as file:
        return file.read()


# ---- pdc fmt ----

def test_programs_of_this_project_are_formatted():
    files = [path for part in ("examples", "templates/*", "tests/programs") for path in sorted(glob.glob(os.path.join(harness.ROOT, part, "*.pd")))]
    check(len(files) >= 9, "only %d programs" % len(files))
    result = pdc("fmt", "--check", *files)
    check(result.code == 0 and result.text == "", "run `pdc fmt -w` on: " + result.describe())


def test_fmt_prints_and_checks():
    wrong, right = "const   a=1 ;  // one\n", "const a = 1;  // one\n"
    same(ran(0, "fmt", "-", source=wrong).out, right, "fmt of standard input")
    place = directory()
    one, two = write(place, "one.pd", wrong), write(place, "two.pd", right)
    same(ran(0, "fmt", one, two).out, right * 2, "fmt of two files")
    result = ran(1, "fmt", "--check", "one.pd", "two.pd", cwd=place)
    same(result.text, "one.pd\n", "what --check lists")
    same(ran(0, "fmt", "--check", two).text, "", "what --check says of a formatted file")
    same(ran(1, "fmt", "--check", "-", source=wrong).out, "-\n", "--check of standard input")
    same(read(one), wrong, "a file that was only checked")


def test_fmt_writes_all_or_nothing():
    place = directory()
    one, bad = write(place, "one.pd", "const   a=1;\n"), write(place, "bad.pd", "const a = ;\n")
    result = ran(1, "fmt", "-w", "one.pd", "bad.pd", cwd=place)
    check("bad.pd:1:11" in result.err and result.out == "", result.describe())
    same(read(one), "const   a=1;\n", "a file beside one with an error")
    ran(2, "fmt", "-w", "one.pd", "absent.pd", cwd=place)
    same(read(one), "const   a=1;\n", "a file beside one that is absent")
    os.chmod(one, 0o640)
    link = os.path.join(place, "link.pd")
    os.symlink("one.pd", link)
    same(ran(0, "fmt", "-w", link).text, "", "what -w says")
    same(read(one), "const a = 1;\n", "the formatted file")
    check(os.path.islink(link) and stat.S_IMODE(os.stat(one).st_mode) == 0o640, "link or mode lost")
    before = os.stat(one).st_mtime_ns
    ran(0, "fmt", "-w", one)
    check(os.stat(one).st_mtime_ns == before, "a formatted file was written again")
    check(sorted(os.listdir(place)) == ["bad.pd", "link.pd", "one.pd"], "files left: %s" % os.listdir(place))


def test_fmt_usage():
    for words, fact in (((), "no input"), (("-w", "-"), "standard input"), (("-w", "--check", "x.pd"), "exclude"), (("--chek", "x.pd"), "--chek")):
        result = ran(2, "fmt", *words, source="")
        check(fact in result.err, result.describe())


def test_fmt_keeps_the_plan():
    source = harness.read_program("gpt")
    ragged = re.sub(r"([,;{}=+*])", r"  \1  ", "\n".join(line for line in source.split("\n") if "//" not in line))
    ragged = ragged.replace("=  =", "==").replace("|  >", "|>")
    formatted = ran(0, "fmt", "-", source=ragged).out
    same(harness.emit("plan", formatted), harness.emit("plan", ragged), "the plan of a formatted program")


# ---- --emit ----

def test_emit_ast():
    text = ran(0, "--emit=ast", "-", source="config const a = -1 + 2 * 3; // no model\ntrain < steps=1K; >\n").out
    same(text, "1:1     module, edition 1\n1:1     config const\n1:14      a = (+ (- 1) (* 2 3))\n"
               "2:1     section train\n2:9       steps = 1000\n", "--emit=ast")
    text = ran(0, "--emit=ast", MLP).out
    for line in ("block linear<m, n> -> [.., n]", "input x: [.., m]", "w: [m, n] = (kaiming m)", "return (+ (@ x w) b)",
                 "repeat blocks", "metric accuracy = (accuracy out y)"):
        check(line in text, "--emit=ast has no line `%s`:\n%s" % (line, text))
    check(ran(1, "--emit=ast", "-", source="const a = ;").out == "", "a tree of a program with syntax errors")


def test_emit_sharding():
    text = ran(0, "--emit=sharding", "-Dparallel.dp=2", "-Dparallel.tp=4", "-Dschedule.microbatch=3", MLP).out
    rows = {line.split("  ")[0]: re.split(r"  +", line) for line in text.split("\n") if line}
    same(text.split("\n")[0], "8 ranks: pp 1 x dp 2 x tp 4; micro-batches of 3; reals of 4 bytes", "the head")
    same(rows["linear.w"][1:], ["[pixel = 20, hidden = 16]", "-", "[20, 16]", "1280"], "a whole parameter")
    same(rows["blocks.{}.linear.w"][1:], ["x 2", "[hidden = 16, wide = 32]", "wide/tp 4", "[16, 8]", "512"], "a divided parameter")
    same(rows["x"][1:], ["[batch = 12, pixel = 20]", "batch/dp 2", "[3, 20]", "240"], "an input")
    same(rows["h from linear"][1:], ["[batch = 12, hidden = 16]", "batch/dp 2", "[3, 16]", "192"], "a wire")
    wide = ran(0, "--emit=sharding", "-Dprecision.compute=f64", MLP).out
    check("reals of 8 bytes" in wide and re.search(r"linear\.w .* 2560\n", wide), wide)


def test_emit_sharding_agrees_with_the_plan():
    text = ran(0, "-Wno-all", "--emit=sharding", os.path.join(harness.ROOT, "examples", "gpt3-175b.pd")).out
    check(re.search(r"layers.\{\}.mlp.w1  x 96 .* ffn/tp 8 +\[12288, 6144\] +301989888\n", text), text)


def test_emit_dot():
    text = ran(0, "--emit=dot", "-Dparallel.tp=2", MLP).out
    check(text.startswith('digraph "mlp" {\n') and text.endswith("}\n"), text)
    check(text.count("{") == text.count("}") and text.count("subgraph cluster") == 5, text)
    nodes = set(re.findall(r"^ *(\w+) \[", text, re.M))
    ends = {end for pair in re.findall(r"^ *(\w+) -> (\w+) ", text, re.M) for end in pair}
    check(ends and ends <= nodes, "edges to nodes that are not there: %s" % (ends - nodes))
    check("all_reduce over tp" in text and 'label="h [batch, hidden]"' in text and 'label="next trip"' in text, text)
    if shutil.which("dot"):
        check(harness.command(["dot", "-Tsvg"], 30, stdin=text.encode()).code == 0, "dot refuses the graph")


# ---- rules for make ----

def test_rules_for_make():
    place = directory()
    library = os.path.join(os.path.dirname(harness.PDC), "lib", "pdc", "std", "nn.pd")
    write(place, "m.pd", IMPORTS)
    write(place, "a b.pd", TWICE)
    rule = ": m.pd \\\n  %s \\\n  a\\ b.pd\n\n%s:\n\na\\ b.pd:\n" % (library, library)
    same(ran(0, "-M", "m.pd", cwd=place).out, "m" + rule, "-M")
    same(ran(0, "--emit=deps", "-o", "bin/train", "m.pd", cwd=place).out, "bin/train" + rule, "--emit=deps -o")
    ran(0, "-M", "-MF", "rule", "m.pd", cwd=place)
    same(read(os.path.join(place, "rule")), "m" + rule, "-M -MF")
    ran(0, "-S", "-MD", "-o", "out.c", "m.pd", cwd=place)
    same(read(os.path.join(place, "out.d")), "out.c" + rule, "-MD")
    ran(0, "-S", "-MD", "-MFother", "m.pd", cwd=place)
    same(read(os.path.join(place, "other")), "m" + rule, "-MD -MF")
    same(ran(0, "-M", "-", source=UNUSED).out, "program:\n", "-M of standard input")
    write(place, "broken.pd", "const a = b;\n")
    ran(1, "-S", "-MD", "broken.pd", cwd=place)
    check(not os.path.exists(os.path.join(place, "broken.d")), "a rule for a broken program")


# ---- warnings and colour ----

def test_warnings():
    for words, code, warns in (((), 0, True), (("-Wall",), 0, True), (("-Wno-all",), 0, False), (("-Wno-W0201",), 0, False),
                               (("-Wno-unused-parameter",), 0, False), (("-Wno-all", "-Wunused-parameter"), 0, True),
                               (("-Werror",), 1, True), (("-Werror", "-Wno-W0201"), 0, False), (("-Werror", "-Wno-error"), 0, True)):
        result = ran(code, "check", *words, "-", source=UNUSED)
        check(("W0201" in result.err) == warns, result.describe())
    for word in ("-Wfoo", "-Wno-foo", "-W", "-WE0201"):
        check(word in ran(2, "check", word, "-", source=UNUSED).err, "what %s says" % word)
    text = ran(0, "--help").out
    check(re.search(r"W0201 +unused-parameter\n", text), text)


def on_terminal(environment, *words):
    """Standard error of pdc when it is a terminal."""
    master, slave = pty.openpty()
    path = write(directory(), "m.pd", UNUSED)
    env = {key: value for key, value in dict(os.environ, **harness.ENVIRONMENT).items() if key != "NO_COLOR"}
    child = harness.subprocess.Popen([harness.PDC, "check", *words, path], stdin=harness.subprocess.DEVNULL, stderr=slave,
                                     stdout=slave, env=dict(env, TERM="xterm", **environment) if "TERM" not in environment else dict(env, **environment))
    os.close(slave)
    text = b""
    try:
        while part := os.read(master, 65536):
            text += part
    except OSError:
        pass  # the end of a terminal
    os.close(master)
    check(child.wait(30) == 0, "pdc failed on a terminal: %r" % text)
    return b"\x1b[" in text


def test_colour():
    for environment, words, colour in (({}, (), True), ({}, ("--color=never",), False), ({"NO_COLOR": "1"}, (), False), ({"NO_COLOR": ""}, (), True),
                                       ({"TERM": "dumb"}, (), False), ({"NO_COLOR": "1"}, ("--color=always",), True),
                                       ({}, ("--diagnostics=json",), False)):
        check(on_terminal(environment, *words) == colour, "colour on a terminal with %s %s" % (environment, words))
    check("\x1b[" not in ran(0, "check", "-", source=UNUSED).err, "colour in a file")
    check("\x1b[" in ran(0, "check", "--color=always", "-", source=UNUSED).err, "no colour with --color=always")
    check("\x1b[" in ran(0, "check", "--color=always", "--diagnostics=short", "-", source=UNUSED).err, "no colour in short form")


# ---- outputs ----

def test_emit_c_prints():
    place = directory()
    result = ran(0, "--emit=c", MLP, cwd=place)
    check("int main(" in result.out and os.listdir(place) == [], "the C source, and no file: %s" % os.listdir(place))
    ran(0, "-S", MLP, cwd=place)
    same(read(os.path.join(place, "mlp.c")), result.out, "-S and --emit=c")


def test_slips_on_the_command_line():
    place = directory()
    write(place, "m.pd", UNUSED.replace(", u: [n] = 1", ""))
    for words, wanted in ((("chekc", "m.pd"), "did you mean `check`?"), (("schedul", "m.pd"), "did you mean `schedule`?"), (("m.pd", "m.pd"), "a second input"),
                          (("-MF", "x", "m.pd"), "-M or -MD"), (("--emit=foo", "m.pd"), "json"), (("--explain", "E9999"), "codes look like E0301")):
        check(wanted in ran(2, *words, cwd=place).err, "%s: no `%s`" % (words, wanted))
    for words in (("--diagnostics=json", "check", "m.pd"), ("-D", "schedule.microbatch=2", "check", "m.pd")):
        result = ran(0, *words, cwd=place)
        check(result.text == "" and os.listdir(place) == ["m.pd"], "options before `check`: " + result.describe())
    same(ran(0, "--explain", "e0301").out, ran(0, "--explain", "E0301").out, "a code in small letters")


def test_special_files_are_not_replaced():
    place = directory()
    link = os.path.join(place, "device")
    os.symlink("/dev/null", link)
    ran(0, "--emit=ir", "-o", link, "-", source=UNUSED)
    ran(0, "-S", "-o", link, "-", source=UNUSED)
    check("regular" in ran(2, "-o", link, "-", source=UNUSED).err, "a program into a device")
    check(os.path.islink(link) and os.listdir(place) == ["device"], "the link was replaced, or files left: %s" % os.listdir(place))


harness.main(__name__)
