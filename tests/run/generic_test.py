"""Blocks that nothing calls: what no call could compile is an error, what some call compiles is none."""
import os
import re

import harness
from harness import add, check, pdc

SECTION = re.compile(r"^\w+\s*<[^>]*>\n?", re.M)
MODEL = re.compile(r"^model .*?^}\n?", re.M | re.S)
BLOCK = re.compile(r"^block .*?(?:^}|}$)", re.M | re.S)


def programs():
    for place in ("tests/programs", "tests/programs/reference", "examples"):
        folder = os.path.join(harness.ROOT, place)
        for name in sorted(os.listdir(folder)):
            if name.endswith(".pd"):
                with open(os.path.join(folder, name)) as file:
                    yield os.path.join(place, name), file.read()
    with open(os.path.join(harness.ROOT, "docs/language.md")) as file:
        for number, sample in enumerate(re.findall(r"^```pd\n(.*?)^```", file.read(), re.M | re.S)):
            yield "docs/language.md, sample %d" % (number + 1), sample


def checked(source):
    return pdc("check", "--diagnostics=short", "-", source=source)


def test_blocks_of_programs():
    """The blocks of programs that compile, without their models: nothing is wrong with them."""
    count = 0
    for name, source in programs():
        library = re.sub(r"parallel\.\w+", "1", MODEL.sub("", SECTION.sub("", source)))
        blocks = len(BLOCK.findall(library))
        if blocks:
            count += blocks
            result = checked(library)
            check(result.code == 0 and result.err == "", "%s: %s" % (name, result.describe()))
    check(count >= 30, "%d blocks" % count)


def test_the_library_itself():
    result = pdc("check", "-v", os.path.join(harness.ROOT, "templates/std/nn.pd"))
    check(result.code == 0 and "library nn: no model" in result.err, result.describe())


# ---- what a call decides ----

RIGHT = {
    "a quotient of sizes": "block f<s, n, q, kv, d>(x: [.., s, n]) -> [.., s, q, d] {"
                           " param a: [n, q, d], b: [n, kv, d]; return sdpa(x @ a, x @ b, x @ b, group=q / kv); }",
    "an even size": "block f<b, s, h, d>(x: [b, s, h, d]) -> [b, s, h, d] { return rope(x); }",
    "equal parts": "block f<a, b>(x: [a, b], k=3) -> [a, b / k] { y, z, w = split(x, k); return y * z * w; }",
    "a sum of sizes": "block f<a, b>(x: [a, b]) -> [a, 2 * b] { return concat(x, x, axis=-1); }",
    "the same elements": "block f<a, b, c>(x: [a, b * c]) -> [a, b, c] { return reshape(x, a, b, c); }",
    "a window": "block f<n, c, h, w>(x: [n, c, h, w]) -> [n, c, h / 2, w / 2] { return maxpool(x, 2); }",
    "a large window": "block f<n, c, h, w>(x: [n, c, h, w]) -> [n, c] { return avgpool(maxpool(x, 40)); }",
    "the batch": "block f<n, c>(x: [n, c]) -> [n, c] { return dropout(batchnorm(x), 0.5); }",
    "a loss": "block f<n, c>(x: [n, c], y: i32[n]) -> [] { return xent(x, y) + mse(x, x); }",
    "a branch": "block f<a, b>(x: [a, b]) -> [a, b] { if (b > 1000000) { return sum(x, b); } else { return x; } }",
    "what a branch leaves": "block f<a, b>(x: [a, b]) -> [a, b] { if (b > 1000000) { y = x; } else { y = sum(x, b); } return y; }",
    "a branch of a block that is called": "block g<b>(x: [b], k=2M) -> [b] { if (k > 1000000) { y = x; } else { y = sum(x); } return y; }"
                                          " block f<b>(x: [b]) -> [b] { return g(x, k=b); }",
    "a number of trips": "block f<a, b>(x: [a, b]) -> [a, b] { repeat b - 10000 { x = 2 * x; } return x; }",
    "a size above all": "block f<a, b>(x: [a, b]) -> [a, b - 5000] { return slice(x, axis=b, begin=5000); }",
    "an axis that is a dim": "dim n = 4; block f<m>(x: [.., m]) -> [.., n] { param w: [n, n]; return x @ w + x; }",
    "an axis by its dim": "dim n = 4; block f<m>(x: [.., m]) -> [..] { return sum(x, n); }",
    "a plain size": "block f<m>(x: [.., m]) -> [.., 64] { return x; }",
    "one axis at least": "block f(x: [..]) -> [..] { return softmax(x); }",
    "no axis at all": "block f(x: [..]) -> [] { param w: [3]; return sum(x * 2) + sum(w); }",
    "three axes": "block f(x: [..]) -> [..] { return x |> transpose(0, 2, 1) |> transpose(0, 2, 1); }",
    "the operation of its name": "block rmsnorm<n>(x: [.., n]) -> [.., n] { return rmsnorm(x); }",
    "a constant that must be given": "block f<n>(x: [.., n], std=0) -> [.., n] { param w: [n, n] = normal(1 / (std + 1)); return x @ w; }",
}

# ---- what no call can make right ----

WRONG = {
    "E0301 turned weights": "block f<m, n>(x: [.., m]) -> [.., n] { param w: [n, m]; return x @ w; }",
    "E0303 a bias of another size": "block f<m, n>(x: [.., m]) -> [.., m] { param b: [n]; return x + b; }",
    "E0306 another size": "block f<m, n>(x: [.., m]) -> [.., n] { return x; }",
    "E0306 a rank": "block f<m>(x: [.., m]) -> [..] { return x; }",
    "E0307 a loop": "block f<m>(x: [.., m]) -> [.., m] { repeat 2 { x = sum(x); } return x; }",
    "E0308 four axes": "block f<m, n>(x: [m, n]) -> [m, n] { return sdpa(x, x, x); }",
    "E0309 integers": "block f<m, n>(x: i32[m, n]) -> [m, n] { return relu(x); }",
    "E0312 no such axis": "block f<m, n>(x: [.., m]) -> [.., m] { return sum(x, n); }",
    "E0312 no such position": "block f<m, n>(x: [m, n]) -> [m] { return sum(x, 2); }",
    "E0305 a block that is called": "block g<m>(a: [m], b: [m]) -> [m] { return a; } block f<m, n>(a: [m], b: [n]) -> [m] { return g(a, b); }",
    "E0215 an argument": "block f<m>(x: [.., m]) -> [.., m] { return layernorm(x, epsilon=1e-5); }",
    "E0201 a name": "block f<m>(x: [.., m]) -> [.., m] { return x + y; }",
    "E0201 a name too early": "block f<m>(x: [.., m]) -> [.., m] { y = x + z; z = y; return z; }",
    "E0201 a name in another order": "block g<m>(a: [m], b: [m]) -> [m] { return a; } block f<m>(x: [m]) -> [m] { return g(b=g(x, q), a=q); }",
    "E0204 an operation": "block f<m>(x: [.., m]) -> [.., m] { return leru(x); }",
    "E0219 no result": "block f<m>(x: [.., m]) -> [.., m] { y = relu(x); }",
    "E0223 a tensor as a size": "block f<m>(x: [.., m]) -> [.., m] { param w: [x]; return x; }",
}


def right(source):
    result = checked(source)
    check(result.code == 0 and result.err == "", result.describe())


def wrong(code, source):
    """One error, alone and beside a model that does not call the block."""
    model = "\ndim batch = 8, side = 4;\nmodel main(input: f32[batch, side]) { param scale: [side]; loss mean(input * scale); }\n"
    for text in (source, source + model):
        result = checked(text)
        check(result.code == 1 and re.findall(r"error\[(E\d+)\]", result.err) == [code], result.describe())


for each, source in RIGHT.items():
    add("right: " + each, right, source)
for each, source in WRONG.items():
    add("wrong: " + each, wrong, each[:5], source)


def test_a_library_is_no_program():
    source = RIGHT["an even size"]
    for options in (("-S", "-o", "-"), ("--emit=plan",), ("--emit=c",), ("--model=m", "-fsyntax-only"), ("-D", "n=3", "-fsyntax-only")):
        result = pdc(*options, "-", source=source)
        check(result.code == 1 and result.out == "", result.describe())
    check(checked("import \"std/nn.pd\" as nn;\n").code == 1, "an import alone is no library")
    dependencies = pdc("-M", "-", source="import \"std/nn.pd\" as nn;\n" + source)
    check(dependencies.code == 0 and "nn.pd" in dependencies.out, dependencies.describe())


harness.main(__name__)
