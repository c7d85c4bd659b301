"""Inputs that nobody means: megabytes of one thing, nests without end, bytes that are no text, files that are none. Each
gets an answer that says what is wrong, within a second of processor time and in little memory, and never a crash."""
import os
import resource
import stat
import subprocess
import tempfile

import harness
from harness import add, check, directory

MEGABYTE = 1 << 20
DEEP = 100000
SECONDS = 1.0  # of processor time: other work on the machine does not count
HEAD = "dim batch = 4, n = 3;\n"


def model(body="", param="w: [n]"):
    return HEAD + "model m(x: f32[batch, n], y: f32[batch, n]) {\n  param %s;\n  h = x * w;\n%s  loss mse(h, y);\n}\n" % (param, body)


def numbered(form, count):
    return "".join(form.replace("#", str(i)) for i in range(count))


def doubling(inner, levels):
    calls = "".join("block b%d(x: [..]) -> [..] { return b%d(b%d(x)); }\n" % (i + 1, i, i) for i in range(levels))
    return "block b0(x: [..]) -> [..] { return %s; }\n" % inner + calls + model("  h = b%d(h);\n" % levels)


def bytes_like_random(count):
    random = harness.Random(5)
    return b"".join((random.bits() & (2**48 - 1)).to_bytes(6, "little") for _ in range(count // 6))


# name: (text, what the first error says; None: there is none)
TEXTS = {
    # one thing, a megabyte of it
    "blanks": (" " * MEGABYTE, "E0218"), "tabs": ("\t" * MEGABYTE, "E0218"), "line ends": ("\n" * MEGABYTE, "E0218"),
    "carriage returns": ("\r" * MEGABYTE, "E0218"), "one name": ("a" * MEGABYTE, "E0109"), "one comment": ("//" + "x" * MEGABYTE, "E0218"),
    "comments": ("// x\n" * (MEGABYTE // 5), "E0218"), "digits": ("const a = " + "7" * MEGABYTE + ";", "E0109"),
    "fraction": ("const a = 0." + "7" * MEGABYTE + ";", "E0109"), "string": ('const a = "' + "x" * MEGABYTE + '";', "E0109"),
    "quotes": ('"' * MEGABYTE, "E0111"), "single quotes": ("'" * MEGABYTE, "E0103"), "typographic quotes": ("\u201c" * (MEGABYTE // 3), "E0103"),
    "escapes": ('const a = "' + "\\q" * (MEGABYTE // 2) + '";', "E0109"), "hashes": ("a#" * (MEGABYTE // 2), "E0103"),
    "unended comments": ("/*\n" * (MEGABYTE // 3), "E0105"), "block comments": ("/**/" * (MEGABYTE // 4), "E0105"), "semicolons": (";" * MEGABYTE, "E0111"), "commas": ("," * MEGABYTE, "E0111"),
    "ats": ("@" * MEGABYTE, "E0111"), "points": ("." * MEGABYTE, "E0111"), "questions": ("const a = " + "true ? " * (MEGABYTE // 8) + "1;", "E0103"),
    "wide letters": ("\u4e2d" * (MEGABYTE // 3), "E0103"), "names and wide letters": ("a\u4e2d " * (MEGABYTE // 5), "E0103"),
    "hidden characters": ("a\u200b" * (MEGABYTE // 4), "E0103"), "byte order marks": ("\ufeff" * (MEGABYTE // 3), "E0103"), "dots in a name": ("a." * (MEGABYTE // 2), "E0109"),
    "versions": ("1." * (MEGABYTE // 2), "E0109"), "NUL": ("\0" * MEGABYTE, "E0120"), "NUL between": ("const a = 1;\0" * 70000, "E0120"),
    "no UTF-8": (b"\xff\xfe" * (MEGABYTE // 2), "E0120"), "Latin-1": ("const \u00e4 = 1;\n".encode("latin-1") * 70000, "E0120"),
    "UTF-16": (model().encode("utf-16"), "E0120"), "random bytes": (bytes_like_random(MEGABYTE), "E0120"),
    # nests
    "parentheses": ("const a = " + "(" * DEEP + "1" + ")" * DEEP + ";", "E0110"), "open parentheses": ("const a = " + "(" * MEGABYTE, "E0110"),
    "closing parentheses": (")" * MEGABYTE, "E0114"), "brackets": ("const a = " + "[" * DEEP + "]" * DEEP, "E0111"), "braces": ("{" * MEGABYTE, "E0111"),
    "braces in a model": (model("{" * DEEP + "}" * DEEP), "E0111"), "angles": ("train " + "<" * MEGABYTE, "E0111"),
    "loops": (model("repeat 2 {" * DEEP + "}" * DEEP), "E0110"), "open loops": (model("repeat 2 {" * DEEP), "E0110"),
    "conditions": (model("if (true) {" * DEEP + "}" * DEEP), "E0110"), "else if": (model("if (false) {}" + " else if (false) {}" * 50000), "E0110"),
    "signs": ("const a = " + "-" * MEGABYTE + "1;", "E0110"), "nots": ("const a = " + "!" * MEGABYTE + "true;", "E0110"),
    "a sum": ("const a = " + "1+" * (MEGABYTE // 2) + "1;", "E0110"), "pipes": (model("  h = h" + " |> relu()" * (MEGABYTE // 10) + ";\n"), "E0110"),
    # many
    "arguments": (model("  h = relu(" + "h, " * (MEGABYTE // 3) + "h);\n"), "E0215"), "dims": ("dim " + numbered("d# = 2, ", 70000) + "e = 1;" + model(), None),
    "consts": (numbered("const c# = #;\n", 50000) + model(), None), "twice": ("const a = 1;\n" * 80000, "E0202"),
    "a chain": ("const c0 = 1;" + "".join("const c%d = c%d;\n" % (i + 1, i) for i in range(45000)) + model(), None),
    "a chain backwards": ("".join("const c%d = c%d;\n" % (i, i + 1) for i in range(45000)) + "const c45000 = 1;", "E0212"),
    "unknown names": (numbered("const a# = b#;\n", 50000), "E0201"), "sections": ("train < steps=1; >\n" * 55000, "E0207"),
    "keys": ("train < " + "steps=1; " * 110000 + ">", "E0207"), "blocks": (numbered("block b#(x: [..]) -> [..] { return x; }\n", 20000) + model(), None),
    "blocks in a row": ("block b0(x: [..]) -> [..] { return x; }\n" + "".join("block b%d(x: [..]) -> [..] { return b%d(x); }\n" % (i + 1, i) for i in range(20000)) + model("  h = b20000(h);\n"), "E0217"),
    "doubling blocks": (doubling("x + 1", 40), "E0319"), "doubling calls": (doubling("x", 40), "E0319"), "statements": (model("  h = h;\n" * 99000), None), "too many statements": (model("  h = h;\n" * 100000), "E0319"),
    "operations": (model("  h = h + h;\n" * 80000), "E0319"), "parameters": (model(param="w: [n], " + numbered("p#: [n], ", 60000) + "z: [n]"), "E0319"),
    "metrics": (model(numbered("  metric a# = mean(x * #);\n", 30000)), "E0319"), "imports": ('import "std/nn.pd" as a;\n' * 20000, "E0202"),
    "imports that are not": (numbered('import "x#.pd" as a#;\n', 30000), "E0210"), "keywords": ("if " * (MEGABYTE // 3), "E0111"),
    "models": ("model " * (MEGABYTE // 6), "E0115"), "parameters without": ("param " * (MEGABYTE // 6), "E0111"), "repeats": ("repeat " * (MEGABYTE // 7), "E0111"),
    "unused parameters": (model(param="w: [n], " + numbered("p#: [n], ", 4000) + "z: [n]"), None),
    # huge numbers
    "trips": (model("  repeat 9223372036854775807 { h = h + 1; }\n"), "E0515"), "nested trips": (model("  repeat i = 0 .. 1M { repeat j = 0 .. 1M { h = h + 1; } }\n"), "E0319"),
    "empty trips": (model("  repeat i = 0 .. 1M { repeat j = 0 .. 1M { g = h; } }\n"), "E0319"), "many loops": (model("  repeat 1M { h = h + 1; }\n" * 1000), "E0515"),
    "stages": ("parallel < pp=1M; >\n" + model("  repeat 1M { h = h + 1; }\n"), "E0515"),
    "micro-batches": ("parallel < pp=4; >\nschedule < microbatch=1; >\n" + model("  repeat 4 { h = h * 2; }\n").replace("batch = 4", "batch = 100M"), "E0515"),
    # encodings that are read
    "byte order mark": ("\ufeff" + model(), None), "CR LF": (model().replace("\n", "\r\n"), None), "a name of 64 KiB": ("const " + "a" * 65536 + " = 1;\n" + model(), "E0109"),
    "CR": (model().replace("\n", "\r"), None), "empty": ("", "E0218"),
}


def timed(words, path):
    """Exit status, standard error and processor seconds of pdc. Output is counted, not kept."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        limits = lambda: (resource.setrlimit(resource.RLIMIT_CPU, (20, 20)), resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30)))
        child = subprocess.Popen([harness.PDC, *words, path], stdin=subprocess.DEVNULL, stdout=out, stderr=err, preexec_fn=limits)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        err.seek(0)
        return child.returncode, err.read().decode("utf-8"), usage.ru_utime + usage.ru_stime


def hostile(text, wanted):
    path = os.path.join(directory(), "hostile.pd")
    with open(path, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
    for words in (("check",), ("--emit=ast",)) + ((("fmt",),) if wanted is None else ()):
        code, err, seconds = timed(words, path)
        check(code in (0, 1), "pdc %s: exit status %d: %s" % (words, code, err[:400]))
        check(seconds < SECONDS, "pdc %s took %.2f s of processor time" % (words, seconds))
        check(len(err) < 100000, "pdc %s says %d bytes" % (words, len(err)))
        check("\0" not in err and "\x1b" not in err, "control bytes in what pdc %s says" % (words,))
        if words == ("check",):
            if wanted is None:
                check("error[" not in err, "an error: " + err[:400])
            else:
                check("error[%s]" % wanted in err, "no %s: %s" % (wanted, err[:400]))
        if code == 1:
            check("E0900" not in err, "the compiler contradicts itself: " + err[:400])


for name, (text, wanted) in TEXTS.items():
    add(name, hostile, text, wanted)


# ---- files ----

def pdc(place, *words):
    result = harness.pdc(*words, cwd=place, limit=30)
    check(result.seconds < 20, result.describe())
    return result


def test_inputs_that_are_no_files():
    place = directory()
    for path, fact in ((".", "Is a directory"), ("absent.pd", "No such file"), ("/proc/self/mem", "Input/output error"), ("m.pd/x", "o such file"), ("", "o such file")):
        for words in (("check",), ("fmt",), ("-S",), ("-M",), ("certify",)):
            result = pdc(place, *words, path)
            check(result.code == 2 and fact in result.err and result.err.count("\n") == 1, result.describe())
    os.symlink("loop.pd", os.path.join(place, "loop.pd"))
    check(pdc(place, "check", "loop.pd").code == 2, "a link to itself")
    if os.geteuid() != 0:
        path = os.path.join(place, "secret.pd")
        with open(path, "w") as file:
            file.write(model())
        os.chmod(path, 0)
        check("Permission denied" in pdc(place, "check", "secret.pd").err, "a file that may not be read")


def test_outputs_that_cannot_be_written():
    place = directory()
    with open(os.path.join(place, "m.pd"), "w") as file:
        file.write(model())
    for words in (("-o", "absent/m"), ("-S", "-o", "absent/m.c"), ("--emit=plan", "-o", "absent/p"), ("-S", "-o", "m.c", "-MD", "-MF", "absent/d"), ("-o", "."),
                  ("--emit=plan", "-o", "/dev/full"), ("-S", "-o", "/dev/full"), ("-o", "/dev/full")):
        result = pdc(place, *words, "m.pd")
        check(result.code == 2 and result.err.startswith("pdc: ") and result.err.count("\n") == 1, result.describe())
    left = [name for name in os.listdir(place) if name not in ("m.pd", "m.c", "m.plan.json")]
    check(not left, "files left: %s" % left)


def test_standard_output_that_is_full():
    place = directory()
    path = os.path.join(place, "m.pd")
    with open(path, "w") as file:
        file.write(model())
    for words in (("--help",), ("--version",), ("--explain", "E0301"), ("help",), ("--list-config", path), ("fmt", path), ("--emit=plan", path), ("-S", "-o", "-", path),
                  ("schedule", "--kind=gpipe", "--pp=2", "--microbatches=4"), ("schedule", "--help")):
        with open("/dev/full", "w") as full:
            result = subprocess.run([harness.PDC, *words], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, timeout=30)
        check(result.returncode == 2 and b"No space left" in result.stderr, "pdc %s: %s" % (words, result))


def test_the_plan_of_a_huge_model():
    """Buckets grow with a model, so its plan does not: GPT-3 with 7 and with 40,000 billion parameters."""
    path, lengths = os.path.join(directory(), "huge.pd"), []
    with open(os.path.join(harness.ROOT, "tests", "programs", "reference", "gpt3-175b.pd")) as file:
        text = file.read()
    for factor in (4, 1000):
        with open(path, "w") as file:
            file.write(text.replace("ffn = 4 * embed", "ffn = %d * embed" % factor))
        result = harness.command([harness.PDC, "--emit=plan", path], 30)
        check(result.code == 0 and result.seconds < 10, result.describe()[:1000])
        lengths.append(len(result.out))
    check(lengths[0] < lengths[1] < 2 * lengths[0], "plans of %s bytes" % lengths)


def test_nothing_is_written_over_a_source():
    place = directory()
    sources = {"m.pd": 'import "lib.pd" as lib;\n' + model("  h = lib.twice(h);\n"), "lib.pd": "block twice(x: [..]) -> [..] {\n  return x * 2;\n}\n"}
    for name, text in sources.items():
        with open(os.path.join(place, name), "w") as file:
            file.write(text)
    os.link(os.path.join(place, "m.pd"), os.path.join(place, "hard"))
    os.symlink("lib.pd", os.path.join(place, "soft"))
    os.symlink("m.pd", os.path.join(place, "m"))
    before = sorted(os.listdir(place))
    for words in (("-o", "m.pd"), ("-o", "./lib.pd"), ("-S", "-o", "m.pd"), ("--emit=plan", "-o", "lib.pd"), ("-o", "hard"), ("-S", "-o", "soft"), ("-M", "-MF", "m.pd"), ()):
        result = pdc(place, *words, "m.pd")
        check(result.code == 2 and "would be written over" in result.err, result.describe())
        for name, text in sources.items():
            with open(os.path.join(place, name)) as file:
                check(file.read() == text, "pdc %s changed %s" % (words, name))
    check(sorted(os.listdir(place)) == before, "files left: %s" % os.listdir(place))


harness.main(__name__)
