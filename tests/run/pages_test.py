"""docs/errors: a page for every code. Title and explanation are those of compiler/support/codes.def; a wrong and a right
program are written in the page itself, between them what pdc says about the wrong one. The tests compile both and hold the
rest of the page against the compiler; `make promote` writes it anew, and makes pages (without programs) for new codes.

A wrong program that a page cannot show is made by shell commands. What follows `pd` at the begin of a program is given to
pdc as options."""
import os
import re
import subprocess
import sys

import harness
from harness import add, check

PAGES = os.path.join(harness.ROOT, "docs", "errors")
UNREACHED = {"E0316", "E0411", "E0412", "E0900", "E0901"}  # as in bad_test.py
PAGE = re.compile(r"```(pd[^\n]*|sh)\n(.*?)```\n\n```\n(.*?)```\n\n## Right\n\n```(pd[^\n]*)\n(.*?)```\n", re.S)


def codes():
    """{code: (title, explanation)}, from the compiler."""
    with open(os.path.join(harness.ROOT, "compiler", "support", "codes.def")) as file:
        names = re.findall(r'^CODE\("(\w+)"', file.read(), re.M)
    result = {}
    for code in names:
        text = subprocess.run([harness.PDC, "--explain=" + code], capture_output=True, text=True, check=True).stdout
        title, explanation = text.split("\n", 1)
        result[code] = (title, explanation.strip("\n"))
    return result


def say(kind, program):
    """What `pdc check` says about a program: exit status and text."""
    place = harness.directory()
    if kind == "sh":
        subprocess.run(["sh", "-c", program], cwd=place, check=True, env=dict(os.environ, LC_ALL="C.UTF-8"))
    else:
        with open(os.path.join(place, "example.pd"), "w") as file:
            file.write(program)
    result = harness.pdc("check", *kind.split()[1:], "example.pd", cwd=place)
    check(result.out == "", "messages on standard output: %s" % result.out)
    return result.code, result.err.replace(os.path.join(os.path.dirname(harness.PDC), "lib", "pdc"), "LIBRARY")


def read(code):
    try:
        with open(os.path.join(PAGES, code + ".md")) as file:
            return file.read()
    except FileNotFoundError:
        return ""


def paragraphs(explanation):
    """An indented sample becomes a fenced one."""
    fence = lambda sample: "```\n%s\n```\n" % re.sub(r"^    ", "", sample.group(0).strip("\n"), flags=re.M)
    return re.sub(r"(?:^    .*(?:\n|\Z))+", fence, explanation, flags=re.M).rstrip("\n")


def wanted(code, title, explanation):
    """The page as it should be, its programs being what they are."""
    head = "# %s\n\n%s\n" % (title, paragraphs(explanation))
    parts = PAGE.search(read(code))
    if not parts:
        return head
    kind, wrong, _, right_kind, right = parts.groups()
    said = say(kind, wrong)[1].rstrip("\n") + "\n"
    return head + "\n## Wrong\n\n```%s\n%s```\n\n```\n%s```\n\n## Right\n\n```%s\n%s```\n" % (kind, wrong, said, right_kind, right)


def page(code, title, explanation):
    check(read(code) == wanted(code, title, explanation), "docs/errors/%s.md is not up to date; run `make promote`" % code)
    parts = PAGE.search(read(code))
    check((parts is None) == (code in UNREACHED), "docs/errors/%s.md needs a wrong and a right program" % code)
    if parts is None:
        return
    status, said = say(parts.group(1), parts.group(2))
    check(re.findall(r"^(?:error|warning)\[(\w+)\]", said, re.M) == [code], "the wrong program of %s: %s" % (code, said))
    status, said = say(parts.group(4), parts.group(5))
    check(status == 0 and said == "", "the right program of %s: exit status %d, %s" % (code, status, said))


def index(all_codes):
    lines = "".join("- [%s](%s.md)\n" % (title, code) for code, (title, _) in all_codes.items())
    return "# What pdc reports\n\nA page for each code. `pdc --explain E0301` prints the first part of one.\n\n" + lines


def promote():
    all_codes = codes()
    os.makedirs(PAGES, exist_ok=True)
    for code, (title, explanation) in all_codes.items():
        text = wanted(code, title, explanation)
        if text != read(code):
            print("page " + code)
            with open(os.path.join(PAGES, code + ".md"), "w") as file:
                file.write(text)
    with open(os.path.join(PAGES, "README.md"), "w") as file:
        file.write(index(all_codes))


def test_index():
    check(read("README") == index(codes()), "docs/errors/README.md is not up to date; run `make promote`")
    stray = {name[:-3] for name in os.listdir(PAGES)} - set(codes()) - {"README"}
    check(not stray, "pages of codes that do not exist: %s" % sorted(stray))


if "--promote" in sys.argv:
    promote()
    sys.exit(0)
for each, (each_title, each_explanation) in codes().items():
    add("page " + each, page, each, each_title, each_explanation)
harness.main(__name__)
