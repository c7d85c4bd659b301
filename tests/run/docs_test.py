"""The documentation says what is so: its programs compile, its tables are those of the compiler and of compiled programs,
its links lead somewhere.

Marks of fenced blocks: `pd` is a complete program that `pdc check` accepts without a warning; `pd error=E0301` one that it
refuses with that code; `names` lists the parameters of the program before it, in order. Other blocks are not read, but
their marks must be known, so that a misspelt one does not pass for prose.
"""
import glob
import json
import os
import re
from collections import namedtuple

import harness
from harness import add, check, once, pdc

DOCS = [os.path.join(harness.ROOT, "README.md")] + sorted(glob.glob(os.path.join(harness.ROOT, "docs", "*.md")))
MARKS = {"", "text", "python", "sh", "c", "json", "names", "pd"}
Block = namedtuple("Block", "file line mark text")  # line: of the first line inside


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def doc(name):
    return read(os.path.join(harness.ROOT, "docs", name))


def shown(path):
    return os.path.relpath(path, harness.ROOT)


def blocks_of(path):
    """The fenced blocks of a file."""
    blocks, start, mark, inside = [], 0, "", []
    for number, line in enumerate(read(path).split("\n"), 1):
        if not start and line.startswith("```"):
            start, mark, inside = number, line[3:].strip(), []
        elif start and line.startswith("```"):
            check(line.strip() == "```", "%s:%d: a block that begins inside a block" % (shown(path), number))
            blocks.append(Block(shown(path), start + 1, mark, "\n".join(inside) + "\n"))
            start = 0
        elif start:
            inside.append(line)
    check(not start, "%s:%d: this block never ends" % (shown(path), start))
    return blocks


def prose_of(text):
    """The text without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


# ---- programs ----

def accepted(block):
    result = pdc("check", "-Werror", "-", source=block.text)
    check(result.code == 0, "%s:%d: this program does not compile: %s" % (block.file, block.line, result.describe()))


def refused(block, code):
    result = pdc("check", "--diagnostics=short", "-", source=block.text)
    where = "%s:%d" % (block.file, block.line)
    check(result.code == 1, "%s: this program should be refused: %s" % (where, result.describe()))
    codes = re.findall(r"error\[(\w+)\]", result.err)
    check(codes == [code], "%s: refused with %s, not with %s: %s" % (where, codes, code, result.err))


def parameters(block, wanted):
    plan = json.loads(harness.emit("plan", block.text))
    check([entry["name"] for entry in plan["parameters"]] == wanted.text.split(),
          "%s:%d: the names are %s" % (wanted.file, wanted.line, "\n".join(entry["name"] for entry in plan["parameters"])))


for path in DOCS:
    last = None
    for block in blocks_of(path):
        title = "%s:%d" % (block.file, block.line)
        words = block.mark.split()
        if block.mark == "pd":
            add("program " + title, accepted, block)
        elif len(words) == 2 and words[0] == "pd" and re.fullmatch(r"error=E\d{4}", words[1]):
            add("program " + title, refused, block, words[1][6:])
        elif block.mark == "names":
            check(last is not None and last.mark == "pd", title + ": names without a program before them")
            add("names " + title, parameters, last, block)
        elif block.mark not in MARKS:
            add("mark " + title, check, False, "%s: unknown mark `%s`" % (title, block.mark))
        if words[:1] == ["pd"]:
            last = block


def test_there_are_programs_to_compile():
    count = lambda name: sum(block.mark == "pd" for block in blocks_of(os.path.join(harness.ROOT, name)))
    check(count("README.md") >= 1, "the tour of README.md is marked `pd`")
    check(count("docs/language.md") >= 5, "docs/language.md has samples")


# ---- tables ----

def cells_of(line):
    """The cells of a table's row; `\\|` is a bar in a cell."""
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def tables_of(text):
    """All tables: lists of rows, the header first."""
    tables, rows = [], []
    for line in prose_of(text).split("\n") + [""]:
        if line.startswith("|"):
            rows.append(cells_of(line))
        elif rows:
            tables.append([rows[0]] + rows[2:])
            rows = []
    return tables


def section_of(text, heading):
    """What stands under a heading, up to the next of its level or above."""
    level = len(heading.split()[0])
    found = re.search(r"^%s$\n(.*?)(?=^#{1,%d} |\Z)" % (re.escape(heading), level), text, re.M | re.S)
    check(found, "there is no heading `%s`" % heading)
    return found.group(1)


def code_in(cell):
    return re.findall(r"`([^`]+)`", cell)


def same(documented, real, what):
    """Two sets, or dictionaries, are equal; says what is missing on which side."""
    check(documented, what + ": nothing is documented")
    check(set(documented) >= set(real), "%s: not documented: %s" % (what, sorted(set(real) - set(documented))))
    check(set(real) >= set(documented), "%s: documented, but not there: %s" % (what, sorted(set(documented) - set(real))))
    if isinstance(documented, dict):
        wrong = {key: (documented[key], real[key]) for key in real if documented[key] != real[key]}
        check(not wrong, "%s: documented and real: %s" % (what, wrong))


def test_rows_have_the_cells_of_their_table():
    count = 0
    for path in DOCS:
        for table in tables_of(read(path)):
            for row in table:
                count += 1
                check(len(row) == len(table[0]), "%s: a row of %d cells in a table of %d: %s" % (shown(path), len(row), len(table[0]), row))
    check(count > 100, "the tables are found: %d rows" % count)


# ---- compiled programs ----

def program():
    """The first program of language.md, built with dp=*, as which it has every option; and its --help."""
    first = next(block for block in blocks_of(DOCS_LANGUAGE) if block.mark == "pd")
    path = harness.build(first.text, {"parallel.dp": "*", "shard.batch": "dp"}, options=("-O0",))
    return path, once("help of a program", lambda: harness.command([path, "--help"], 30)).out


DOCS_LANGUAGE = os.path.join(harness.ROOT, "docs", "language.md")


def test_options_of_a_program():
    documented = {code_in(row[0])[0] for row in tables_of(section_of(doc("training.md"), "## Options"))[0][1:]}
    real = set(re.findall(r"^  (--\S+)", program()[1], re.M))
    same(documented, real, "options of a program")


def test_exit_statuses_of_a_program():
    documented = {row[0] for row in tables_of(section_of(doc("training.md"), "## Exit status"))[0][1:]}
    real = set(re.findall(r"^  (\d+)  ", program()[1], re.M))
    same(documented, real, "exit statuses")


def test_keys_of_the_log():
    text = os.path.join(harness.directory(), "text.txt")
    with open(text, "w") as file:
        file.write("the quick brown fox jumps over the lazy dog. " * 40)
    first = next(block for block in blocks_of(DOCS_LANGUAGE) if block.mark == "pd")
    declared = harness.build(first.text, {"cluster.flops": 1e12}, options=("-O0",))
    run = harness.train(declared, "--steps=2", "--threads=1", data=text, valid=text)
    steps, evaluation, use = tables_of(section_of(doc("training.md"), "## What is printed, and the log"))[:3]
    for step in run.steps:
        same({code_in(row[0])[0] for row in steps[1:]}, set(step), "keys of a step")
    same({code_in(row[0])[0] for row in use[1:]}, set(run.use), "keys of the use of the machine")
    check(len(run.evals) == 1, "one evaluation at the end")
    same({code_in(row[0])[0] for row in evaluation[1:]}, set(run.evals[0]), "keys of an evaluation")


# ---- sections ----

TINY = """
dim batch = 4, a = 4;
shard < batch=dp; >
model tiny(x: f32[batch, a]) {
  param w: [a, a];
  h = x @ w;
  loss mse(h, x);
}
"""


def listed_keys():
    """section.key: (type, default), as --list-config has them."""
    result = pdc("--list-config", "-", source=TINY)
    check(result.code == 0, result.describe())
    return {name: tuple(rest) for name, *rest in (re.split(r" ", line, maxsplit=2) for line in result.out.splitlines())}


def documented_keys():
    """section.key: (type, default, meaning)."""
    keys = {}
    sections = section_of(doc("language.md"), "## Sections")
    for name in re.findall(r"^### `(\w+)`$", sections, re.M):
        for table in tables_of(section_of(sections, "### `%s`" % name)):
            for row in table[1:]:
                keys["%s.%s" % (name, code_in(row[0])[0])] = tuple(row[1:4])
    return keys


def test_keys_of_sections():
    documented, real = {key: row[:2] for key, row in documented_keys().items()}, listed_keys()
    for key, (kind, default) in list(documented.items()):
        if kind == "choice" and key in real and "|" in real[key][0]:  # too many to repeat
            documented[key] = (real[key][0], default)
    same(documented, real, "keys of sections")


def test_documented_keys_are_accepted():
    """Each with its default or a value of its type, in a section and with -D; one without a default that the documents call
    refused is refused."""
    real = listed_keys()
    samples = {"integer": "1", "real": "1", "on|off": "off", "string": "some.txt"}
    for key, (kind, default, meaning) in documented_keys().items():
        if key == "schedule.layout":
            continue  # must fit the model: schedule_test has it
        value = "1GiB" if key == "cluster.memory" else default if default != "none" or kind not in samples else samples[kind]
        choices = real[key][0].split("|")
        if kind == "choice" and value not in choices:
            value = choices[-1]
        section, name = key.split(".")
        text = '"%s"' % value if kind == "string" else value
        more = "ranks_per_node=8; " if key.startswith("cluster.node_") else ""
        wanted = 1 if default == "none" and "version refuses it" in meaning else 0
        for result in (pdc("check", "-D", "%s=%s" % (key, value), *(["-D", "cluster." + more[:-2]] if more else []), "-", source=TINY),
                       pdc("check", "-", source="%s < %s=%s; %s>\n%s" % (section, name, text, more, TINY))):
            check(result.code == wanted, "%s=%s should %s: %s" % (key, value, "be refused" if wanted else "be accepted", result.describe()))
            codes = re.findall(r"error\[(\w+)\]", result.err)
            check(not {"E0206", "E0208", "E0209"} & set(codes), "%s=%s: %s" % (key, value, result.err))
    for section in {key.split(".")[0] for key in documented_keys()}:
        check(pdc("check", "-", source="%s < no_such_key=1; >\n%s" % (section, TINY)).code == 1, "a wrong key of %s is refused" % section)


def test_documented_schedules_are_the_ones_that_work():
    row = next(row for row in tables_of(section_of(doc("language.md"), "### `schedule`"))[0] if row[0] == "`kind`")
    works = set()
    for kind in listed_keys()["schedule.kind"][0].split("|"):
        results = [pdc("check", "-D", "schedule.kind=" + kind, "-D", "schedule.chunks=%d" % chunks, "-D", "parallel.pp=%d" % pp, "-", source=TINY)
                   for pp, chunks in ((1, 1), (1, 2), (2, 1))]
        if any(result.code == 0 for result in results):
            works.add(kind)
    same(set(code_in(row[3])), works, "schedules")


# ---- the rest of the language ----

def test_operations_are_in_a_program():
    text = doc("language.md")
    programs = "\n".join(block.text for block in blocks_of(DOCS_LANGUAGE) if block.mark == "pd")
    table = tables_of(section_of(text, "## Operations"))[0]
    names = {name for row in table[1:] for code in code_in(row[0]) for name in re.findall(r"^(\w+)\(", code)}
    check(len(names) >= 20, "operations are found: %s" % names)
    for name in names:
        check(re.search(r"\b%s\(" % name, programs), "no program of language.md shows `%s`" % name)


def test_library_is_documented():
    table = tables_of(section_of(doc("language.md"), "## Imports and the library"))[0]
    documented = {re.match(r"nn\.(\w+)\(", code_in(row[0])[0]).group(1): set(re.findall(r"`(\w+):", row[2])) for row in table[1:]}
    real = {}
    for block in re.split(r"^block ", read(os.path.join(harness.ROOT, "templates", "std", "nn.pd")), flags=re.M)[1:]:
        declared = " ".join(re.findall(r"param ([^;]*);", block))
        real[re.match(r"\w+", block).group()] = set(re.findall(r"(\w+): \[", declared))
    same(documented, real, "blocks of std/nn.pd and their parameters")


# ---- words that must exist ----

def test_error_codes_exist():
    codes = {}
    for path in DOCS:
        for code in re.findall(r"\b[EW]\d{4}\b", read(path)):
            codes.setdefault(code, shown(path))
    check(len(codes) >= 15, "codes are found: %s" % sorted(codes))
    for code, where in codes.items():
        result = pdc("--explain", code)
        check(result.code == 0 and result.out.startswith(code + ": "), "%s speaks of %s: %s" % (where, code, result.describe()))
    check(pdc("--explain", "E0999").code == 2, "a code that does not exist is refused")


def test_option_words_exist():
    """Every --option in the documents belongs to pdc, to a compiled program or to mpirun."""
    known = {"--bind-to", "--oversubscribe", "--allow-run-as-root", "--host", "--mca"}  # mpirun's
    known |= {"--check", "--name"}  # of `pdc fmt`; an example
    commands = [pdc("help", command).out for command in ("schedule", "certify", "diff")]
    for text in (pdc("--help").out, program()[1], *commands):
        known |= set(re.findall(r"^  (-[\w#-]+)", text, re.M))
    count = 0
    for path in DOCS:
        text = read(path)
        code = re.findall(r"`([^`\n]+)`", prose_of(text)) + [line for block in blocks_of(path) if block.mark in ("", "text", "sh")
                                                              for line in block.text.split("\n") if re.match(r"\$ |pdc |mpirun ", line)]
        for piece in code:
            for word in re.findall(r"(?<![\w-])--[a-z][\w-]*", piece):
                count += 1
                check(word in known, "%s: there is no option `%s`: %s" % (shown(path), word, piece))
    check(count > 30, "options are found: %d" % count)


def test_documented_options_of_pdc_exist():
    table = tables_of(section_of(doc("language.md"), "## The command"))[0]
    text = pdc("--help").out
    for row in table[1:]:
        for code in code_in(row[0]):
            name = re.match(r"-O(?=\d)|-+[\w#-]+", code).group()
            check(re.search(r"^  %s(?![\w-])" % re.escape(name) if name != "-O" else r"^  -O", text, re.M), "pdc has no `%s`" % code)


# ---- links ----

def anchors_of(path):
    """The anchors that a page's headings get, as GitHub makes them."""
    anchors = set()
    for title in re.findall(r"^#{1,6} (.*)$", prose_of(read(path)), re.M):
        anchor = re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
        number, base = 1, anchor
        while anchor in anchors:
            anchor = "%s-%d" % (base, number)
            number += 1
        anchors.add(anchor)
    return anchors


def test_links_resolve():
    count = 0
    for path in DOCS:
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose_of(read(path)))):
            if re.match(r"https?:", target):
                continue
            count += 1
            name, _, anchor = target.partition("#")
            file = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
            check(os.path.exists(file), "%s links to %s, which is not there" % (shown(path), target))
            check(file.startswith(harness.ROOT + os.sep), "%s links out of the repository: %s" % (shown(path), target))
            check(not anchor or anchor in anchors_of(file), "%s links to %s, which has no such heading" % (shown(path), target))
    check(count > 20, "links are found: %d" % count)


harness.main(__name__)
