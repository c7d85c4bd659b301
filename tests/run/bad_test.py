"""Wrong programs and what pdc says about them. Each file of tests/bad is a program with one mistake (the others are called
several-…); its name begins with the code that it provokes. Its last lines, from `//= text` on, are the whole expected
message: as text, and in short form. A program that cannot end in comments has them in NAME.expected instead. A first line
`// pdc: WORDS` gives words for the command line.

After a change of messages, `make promote` writes what pdc says now into the files: read the difference before you keep it.
"""
import glob
import os
import re
import subprocess
import sys

import harness
from harness import add, check

BAD = os.path.join(harness.ROOT, "tests", "bad")
LIBRARY = os.path.join(os.path.dirname(harness.PDC), "lib", "pdc")
MARK = "//= text\n"
UNREACHED = {"E0316", "E0411", "E0412", "E0900", "E0901"}


def names():
    return sorted(os.path.basename(path)[:-3] for path in glob.glob(os.path.join(BAD, "*.pd")))


def read(name):
    """Program, expected messages, and whether those stand in a file of their own."""
    with open(os.path.join(BAD, name + ".pd"), "rb") as file:
        program = file.read()
    beside = os.path.join(BAD, name + ".expected")
    if os.path.exists(beside):
        with open(beside) as file:
            return program, file.read(), True
    at = program.rfind(MARK.encode())
    if at < 0:
        return program, None, False
    return program[:at], program[at:].decode(), False


def say(name, program, form):
    words = re.match(rb"// pdc: (.*)\n", program)
    words = words.group(1).decode().split() if words else []
    result = subprocess.run([harness.PDC, "check", "--diagnostics=" + form] + words + [name + ".pd"], cwd=BAD, timeout=60,
                            capture_output=True, env=dict(os.environ, **harness.ENVIRONMENT))
    check(result.stdout == b"", "%s: messages go to standard error, not to: %r" % (name, result.stdout[:200]))
    return result.returncode, result.stderr.decode("utf-8").replace(LIBRARY, "LIBRARY")


def messages(name, program):
    status, text = say(name, program, "text")
    again, short = say(name, program, "short")
    check(status == again, "%s: exit status %d as text, %d in short form" % (name, status, again))
    block = MARK + text.rstrip("\n") + "\n//= short\n" + short
    return status, "".join(line if line.startswith("//=") else ("// " + line).rstrip() + "\n" for line in block.splitlines(True))


def case(name):
    program, expected, _ = read(name)
    status, said = messages(name, program)
    check(expected is not None, "no expected message; run `make promote` and read it")
    check(said == expected, "pdc says\n%s\nnot\n%s" % (said, expected))
    code = re.match(r"([EW]\d{4})-", name)
    told = re.findall(r"^// (?:.*?:\d+:\d+: )?(error|warning)\[(\w+)\]", said[said.index("//= short"):], re.M)
    if code:
        check(len(told) == 1 and told[0][1] == code.group(1), "not one %s: %s" % (code.group(1), told))
    check(status == (1 if any(level == "error" for level, _ in told) else 0), "exit status %d with %s" % (status, told))


def test_every_code_has_a_program():
    """But those of checks that earlier ones stand before: another pass would have to be wrong for them."""
    with open(os.path.join(harness.ROOT, "compiler", "support", "codes.def")) as file:
        codes = set(re.findall(r'^CODE\("(\w+)"', file.read(), re.M))
    provoked = {name.split("-")[0] for name in names()}
    check(codes - provoked == UNREACHED, "codes without a program in tests/bad: %s" % sorted((codes - provoked) ^ UNREACHED))
    check(not (provoked - codes - {"several"}), "programs for codes that do not exist: %s" % sorted(provoked - codes))


def promote():
    for name in names():
        program, expected, beside = read(name)
        said = messages(name, program)[1]
        if said == expected:
            continue
        print(("new " if expected is None else "changed ") + name)
        try:
            ends = beside or (program + said.encode()).decode("utf-8") == "" or b"\0" in program or (program and not program.endswith(b"\n"))
        except UnicodeDecodeError:
            ends = True
        path = os.path.join(BAD, name + (".expected" if ends else ".pd"))
        with open(path, "wb") as file:
            file.write(said.encode() if ends else program + said.encode())


if "--promote" in sys.argv:
    promote()
    sys.exit(0)
for each in names():
    add(each, case, each)
harness.main(__name__)
