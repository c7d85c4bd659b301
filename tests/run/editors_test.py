"""editors/: the words that Vim and TextMate colour are those of the lexer and the compiler, and Vim indents every program of
this project as `pdc fmt` does. What needs vim itself is skipped where there is none."""
import glob
import json
import os
import re
import shutil

import harness
from harness import check, directory

EDITORS = os.path.join(harness.ROOT, "editors")
VIM = os.path.join(EDITORS, "vim")


def read(*parts):
    with open(os.path.join(harness.ROOT, *parts)) as file:
        return file.read()


def words_of_the_language():
    keywords = re.findall(r'^"([a-z]+)" +\{ KEYWORD', read("compiler", "syntax", "lexer.l"), re.M)
    operations = re.findall(r'^    \{"(\w+)", "', read("compiler", "semantic", "operations.c"), re.M)
    sections = re.findall(r'"(\w+)"', re.search(r"sections\[\] = \{(.*?)\};", read("compiler", "semantic", "sections.c"), re.S).group(1))
    check(len(keywords) == 15 and len(operations) > 25 and len(sections) == 9, "%s %s %s" % (keywords, operations, sections))
    return keywords + operations + sections


def test_words():
    for name, text in (("vim", read("editors", "vim", "syntax", "pd.vim")), ("TextMate", read("editors", "pd.tmLanguage.json"))):
        missing = [word for word in words_of_the_language() if not re.search(r"(?<![a-z])(?:\\b)?%s(?![a-z])" % word, text)]
        check(not missing, "%s does not colour %s" % (name, missing))


def test_textmate():
    grammar = json.loads(read("editors", "pd.tmLanguage.json"))

    def patterns(node):
        if isinstance(node, list):
            for item in node:
                yield from patterns(item)
        elif isinstance(node, dict):
            if "include" in node:
                check(node["include"][1:] in grammar["repository"], "nothing is called " + node["include"])
            for key in ("match", "begin", "end"):
                if key in node:
                    yield node[key]
            for value in node.values():
                yield from patterns(value)

    found = list(patterns(grammar["patterns"])) + list(patterns(grammar["repository"]))
    check(len(found) > 15, "only %d patterns" % len(found))
    for pattern in found:
        re.compile(pattern)
    rules = grammar["repository"]["code"]["patterns"]
    number = re.compile([rule["match"] for rule in rules if rule.get("name") == "constant.numeric.pd"][0])
    for text, whole in (("375M", True), ("6e-5", True), ("0.95", True), ("64KiB", True), (".5", True), ("1f1b", False), ("x2", False)):
        check((number.fullmatch(text) is not None) == whole, "is %s a number?" % text)


def vim(path, *commands):
    words = ["vim", "-u", "NONE", "-i", "NONE", "-N", "-es", "--cmd", "set rtp^=" + VIM]
    for command in ("filetype plugin indent on", "syntax on", "edit " + path) + commands:
        words += ["-c", command]
    result = harness.command(words, 60)
    check(result.code == 0 and "E" not in re.findall(r"\b(E)\d+:", result.text), result.describe())


def test_vim_indents_as_fmt():
    if not shutil.which("vim"):
        return
    place = directory()
    for number, path in enumerate(sorted(glob.glob(os.path.join(harness.ROOT, "examples", "*.pd")) + glob.glob(os.path.join(harness.ROOT, "t*", "*", "nn.pd"))
                                         + glob.glob(os.path.join(harness.PROGRAMS, "*.pd")))):
        wanted = read(path)
        copy = os.path.join(place, "p%d.pd" % number)
        with open(copy, "w") as file:
            file.write(re.sub(r"(?m)^[ \t]+", "", wanted))
        vim(copy, "normal! gg=G", "wq!")
        check(read(copy) == wanted, "vim indents %s otherwise:\n%s" % (path, read(copy)))


def test_vim_colours():
    if not shutil.which("vim"):
        return
    place = directory()
    path, out = os.path.join(place, "m.pd"), os.path.join(place, "out")
    source = 'import "std/nn.pd" as nn; // note\nparallel < pp=8; >\nschedule < kind=1f1b; >\nblock f(x: [n]) -> [n] {\n  param w: [n] = normal(0.5);\n  return relu(x) * w;\n}\n'
    places = {(1, 1): "pdKeyword", (1, 9): "pdString", (1, 28): "pdComment", (2, 1): "pdSection", (2, 12): "pdKey", (2, 15): "pdNumber",
              (3, 17): "pdWord", (4, 1): "pdKeyword", (4, 7): "pdDeclared", (5, 3): "pdStatement", (5, 18): "pdInitialiser", (5, 25): "pdNumber",
              (6, 3): "pdStatement", (6, 10): "pdOperation"}
    with open(path, "w") as file:
        file.write(source)
    names = "[" + ",".join("synIDattr(synID(%d,%d,1),'name')" % place for place in places) + "]"
    vim(path, "call writefile(%s, '%s')" % (names, out), "quit!")
    found = dict(zip(places, read(out).split("\n")))
    check(found == places, "colours: %s" % {key: (found[key], places[key]) for key in places if found[key] != places[key]})


harness.main(__name__)
