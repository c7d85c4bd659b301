"""One mistake gives one error: programs with one token left out, and with two letters of one word changed over."""
import os
import re

import harness
from harness import add, check, pdc

TOKEN = re.compile(r'"[^"\n]*"|//[^\n]*|\w[\w.]*|->|\|>|\.\.|[^\s\w]')
ALLOWED = 0.01  # of the programs may give two errors, none gives more


def tokens_of(source):
    return [match.span() for match in TOKEN.finditer(source) if not match.group().startswith("//")]


def left_out(source):
    for begin, end in tokens_of(source):
        yield source[begin:end], source[:begin] + source[end:]


def misspelt(source):
    for begin, end in tokens_of(source):
        word = source[begin:end]
        if re.fullmatch(r"[A-Za-z]\w{3,}", word):
            yield word, source[:begin] + word[0] + word[2] + word[1] + word[3:] + source[end:]


def one_error(name, change):
    source = harness.read_program(name)
    place = harness.directory()
    several, count = [], 0
    for word, changed in change(source):
        if changed == source:
            continue
        count += 1
        with open(os.path.join(place, "p.pd"), "w") as file:
            file.write(changed)
        result = pdc("check", "--diagnostics=short", "p.pd", cwd=place)
        errors = [line for line in result.err.splitlines() if re.search(r": error\[E\d{4}\]: ", line)]
        check(result.code == (1 if errors else 0), result.describe())
        check(len(errors) <= 2, "`%s`: %s" % (word, "\n".join(errors)))
        if len(errors) > 1:
            several.append("`%s`: %s" % (word, " and ".join(errors)))
    check(count > 80, "%d changes" % count)
    check(len(several) <= ALLOWED * count, "%d of %d programs give two errors:\n%s" % (len(several), count, "\n".join(several)))


for each in ("gpt", "llama", "cnn"):
    add("%s without a token" % each, one_error, each, left_out)
    add("%s with a misspelt word" % each, one_error, each, misspelt)

harness.main(__name__)
