"""One mistake gives one error, and two mistakes give both of theirs. The mistakes: one token left out, doubled, or changed
over with its neighbour, and two letters of one word changed over."""
import os
import random
import re

import harness
from harness import add, check, pdc

TOKEN = re.compile(r'"[^"\n]*"|//[^\n]*|\w[\w.]*|->|\|>|\.\.|[^\s\w]')
PAIRS = 60      # of mistakes in one program
MASKED = 0.02   # of the pairs may lack one of the two errors: two slips can make one, or none, between them


def tokens_of(source):
    return [match.span() for match in TOKEN.finditer(source) if not match.group().startswith("//")]


# ---- mistakes: (begin, end, what stands there instead) ----

def joined(source, begin, end, text):
    """The mistake, with blanks where words would grow together."""
    if begin and text and re.match(r"\w\w", source[begin - 1] + text[0]):
        text = " " + text
    if text and end < len(source) and re.match(r"\w\w", text[-1] + source[end]):
        text += " "
    return begin, end, text


def left_out(source):
    return [(begin, end, "") for begin, end in tokens_of(source)]


def doubled(source):
    for begin, end in tokens_of(source):
        word = source[begin:end]
        yield joined(source, begin, end, word + (" " if re.match(r"\w", word) else "") + word)


def swapped(source):
    tokens = tokens_of(source)
    for (begin, end), (next_begin, next_end) in zip(tokens, tokens[1:]):
        first, second, gap = source[begin:end], source[next_begin:next_end], source[end:next_begin]
        if not gap and re.match(r"\w\w", second[-1] + first[0]):
            gap = " "
        yield joined(source, begin, next_end, second + gap + first)


def misspelt(source):
    for begin, end in tokens_of(source):
        word = source[begin:end]
        if re.fullmatch(r"[A-Za-z]\w{3,}", word):
            yield begin, end, word[0] + word[2] + word[1] + word[3:]


def changed(source, *mistakes):
    for begin, end, text in sorted(mistakes, reverse=True):
        source = source[:begin] + text + source[end:]
    return source


def errors_of(source, place):
    """Its errors, a line each; a warning is none."""
    with open(os.path.join(place, "p.pd"), "w") as file:
        file.write(source)
    result = pdc("check", "--diagnostics=short", "p.pd", cwd=place)
    errors = [line for line in result.err.splitlines() if re.search(r": error\[E\d{4}\]: ", line)]
    check(result.code == (1 if errors else 0), result.describe())
    return errors


def shown(source, mistake):
    begin, end, text = mistake
    return "line %d, `%s` for `%s`" % (source.count("\n", 0, begin) + 1, text, source[begin:end])


def one_error(name, change):
    source = harness.read_program(name)
    place = harness.directory()
    several, count = [], 0
    for mistake in change(source):
        if changed(source, mistake) == source:
            continue
        count += 1
        errors = errors_of(changed(source, mistake), place)
        if len(errors) > 1:
            several.append("%s: %s" % (shown(source, mistake), " and ".join(errors)))
    check(count > 50, "%d changes" % count)
    check(not several, "%d of %d programs give several errors:\n%s" % (len(several), count, "\n".join(several)))


def both_errors(name):
    """Syntax errors two at a time, on different lines: the same two lines as apart."""
    source = harness.read_program(name)
    place = harness.directory()
    mistakes = [m for change in (left_out, doubled, swapped) for m in change(source)]
    draw = random.Random(7)
    masked, count = [], 0
    while count < PAIRS:
        pair = draw.sample(mistakes, 2)
        apart = [errors_of(changed(source, mistake), place) for mistake in pair]
        lines = [source.count("\n", 0, mistake[0]) for mistake in pair]
        ends = [source.count("\n", 0, mistake[1]) for mistake in pair]
        if max(lines[0], lines[1]) - min(ends[0], ends[1]) < 1 or not all(re.search(r"error\[E01", "".join(a)) for a in apart):
            continue
        count += 1
        together = errors_of(changed(source, *pair), place)
        if not set(apart[0] + apart[1]) <= set(together):
            masked.append("%s: %s, not %s" % (" and ".join(shown(source, mistake) for mistake in pair), together, apart[0] + apart[1]))
    check(len(masked) <= MASKED * count, "of %d of %d pairs an error is missing:\n%s" % (len(masked), count, "\n".join(masked)))


def test_mistakes_side_by_side():
    """Statement by statement a slip, none of which hides the next or adds to it."""
    slips = ["repeat { 2 x = x * w; }", "x = relu(x ;)", "x = x * * w;", "x = x;;", "repeat 2 {{ x = x * w; }", "if (n == 4 { x = x; }", "x |> relu();", "x = x * w",
             "param v [n];", "loss = x;"]
    source = "dim batch = 8, n = 4;\nmodel m(x: f32[batch, n]) {\n  param w: [n];\n" + "".join("  %s\n" % slip for slip in slips) + "  loss mean(x * w);\n}\n"
    errors = errors_of(source, harness.directory())
    lines = [int(error.split(":")[1]) for error in errors]
    check(lines == list(range(4, 4 + len(slips))), "one error a line: %s" % "\n".join(errors))


for each in ("gpt", "llama", "cnn"):
    for what, mistakes_of in (("without a token", left_out), ("with a token doubled", doubled),
                              ("with two tokens changed over", swapped), ("with a misspelt word", misspelt)):
        add("%s %s" % (each, what), one_error, each, mistakes_of)
    add("%s with two mistakes" % each, both_errors, each)
add("a layout with a misspelt word", one_error, "reference/resnet34", misspelt)

harness.main(__name__)
