"""`pdc lsp` with a scripted client: what it publishes, answers and survives."""
import json
import os
import pathlib
import re
import statistics
import subprocess
import threading
import time

import harness
from harness import check, directory

GPT = harness.read_program("gpt")
LIMIT = 60  # seconds


class Client:
    """A client that speaks with one server; every wait has an end."""

    def __init__(self, *words, initialize=True):
        self.process = subprocess.Popen([harness.PDC, "lsp", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.timer = threading.Timer(LIMIT, self.process.kill)
        self.timer.start()
        self.number, self.diagnostics = 0, {}
        if initialize:
            self.capabilities = self.request("initialize", {"processId": None, "rootUri": None, "capabilities": {}})["capabilities"]
            self.notify("initialized", {})

    def raw(self, body):
        self.process.stdin.write(body)
        self.process.stdin.flush()

    def send(self, message):
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.raw(b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def read(self):
        length = None
        while True:
            line = self.process.stdout.readline()
            if not line:
                raise harness.Failure("the server ended: %r" % self.process.stderr.read()[:2000])
            if line == b"\r\n":
                break
            name, value = line.decode().split(":")
            if name.lower() == "content-length":
                length = int(value)
        return json.loads(self.process.stdout.read(length))

    def next(self):
        message = self.read()
        check(message.get("jsonrpc") == "2.0", "a message without a version: %s" % message)
        return message

    def wait(self, key, value):
        while True:
            message = self.next()
            if message.get("method") == "textDocument/publishDiagnostics":
                self.diagnostics[message["params"]["uri"]] = message["params"]["diagnostics"]
            if message.get(key) == value and (key != "id" or "method" not in message):
                return message

    def ask(self, method, params):
        self.number += 1
        self.send({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        return self.wait("id", self.number)

    def request(self, method, params):
        answer = self.ask(method, params)
        check("result" in answer, "%s: %s" % (method, answer))
        return answer["result"]

    def fails(self, code, method, params):
        answer = self.ask(method, params)
        check("error" in answer and answer["error"]["code"] == code and answer["error"]["message"], "%s: %s, not error %d" % (method, answer, code))

    def notify(self, method, params):
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def open(self, path, text):
        uri = pathlib.Path(path).as_uri()
        self.notify("textDocument/didOpen", {"textDocument": {"uri": uri, "languageId": "pd", "version": 1, "text": text}})
        return uri, self.published(uri)

    def change(self, uri, text):
        self.notify("textDocument/didChange", {"textDocument": {"uri": uri, "version": 2}, "contentChanges": [{"text": text}]})
        return self.published(uri)

    def edit(self, uri, *edits):
        """Incremental changes: (start, end, text), each a (line, UTF-16 column)."""
        place = lambda at: {"line": at[0], "character": at[1]}
        changes = [{"range": {"start": place(start), "end": place(end)}, "text": text} for start, end, text in edits]
        self.notify("textDocument/didChange", {"textDocument": {"uri": uri, "version": 3}, "contentChanges": changes})
        return self.published(uri)

    def completions(self, uri, text, needle, **more):
        """Labels and kinds of what is offered after the needle."""
        result = self.at("textDocument/completion", uri, text, needle, inside=len(needle), **more)
        check(result["isIncomplete"] is False, result)
        return {item["label"]: item for item in result["items"]}

    def published(self, uri):
        while True:
            self.wait("method", "textDocument/publishDiagnostics")
            if uri in self.diagnostics:
                return self.diagnostics.pop(uri)

    def at(self, method, uri, text, needle, occurrence=0, inside=0):
        """A request about the occurrence-th `needle` of the text."""
        offset = -1
        for _ in range(occurrence + 1):
            offset = text.index(needle, offset + 1)
        before = text[:offset + inside]
        line = before.count("\n")
        character = len(before[before.rfind("\n") + 1:].encode("utf-16-le")) // 2
        return self.request(method, {"textDocument": {"uri": uri}, "position": {"line": line, "character": character}})

    def hover(self, *place, **more):
        result = self.at("textDocument/hover", *place, **more)
        return result and result["contents"]["value"]

    def end(self, shutdown=True):
        if shutdown:
            check(self.request("shutdown", None) is None, "the result of shutdown")
            self.notify("exit", None)
        self.process.stdin.close()
        status = self.process.wait(LIMIT)
        self.timer.cancel()
        errors = self.process.stderr.read()
        check(errors == b"", "the server said %r" % errors)
        return status


def place_of(text, result):
    """The text of a range."""
    lines = text.split("\n")
    start, end = result["start"], result["end"]
    check(start["line"] == end["line"], "a range of several lines: %s" % result)
    return start["line"] + 1, lines[start["line"]].encode("utf-16-le")[2 * start["character"]:2 * end["character"]].decode("utf-16-le")


def test_life():
    client = Client()
    wanted = {"positionEncoding": "utf-16", "textDocumentSync": {"openClose": True, "change": 2, "save": True}, "hoverProvider": True,
              "definitionProvider": True, "documentFormattingProvider": True, "completionProvider": {"triggerCharacters": ["."]}}
    check(client.capabilities == wanted, "capabilities: %s" % client.capabilities)
    check(client.end() == 0, "exit status after shutdown and exit")
    client = Client()
    client.notify("exit", None)
    check(client.end(shutdown=False) == 1, "exit status without shutdown")
    client = Client()
    check(client.end(shutdown=False) == 1, "exit status at the end of input")
    result = harness.pdc("lsp", "--frob", source="")
    check(result.code == 2 and "usage" in result.err, result.describe())


def test_order():
    client = Client(initialize=False)
    client.fails(-32002, "textDocument/hover", {})
    client.notify("textDocument/didOpen", {"textDocument": {"uri": "file:///x.pd", "text": "const"}})
    client.request("initialize", {})
    client.fails(-32601, "textDocument/rename", {})
    client.request("shutdown", None)
    client.fails(-32600, "textDocument/hover", {})
    client.notify("exit", None)
    check(client.end(shutdown=False) == 0, "exit status")


def test_diagnostics():
    client = Client()
    path = os.path.join(directory(), "a program.pd")
    uri, found = client.open(path, GPT)
    check(found == [], "reports about a right program: %s" % found)
    wrong = GPT.replace("x @ wq + bq", "y @ wq + bq")
    found = client.change(uri, wrong)
    check(len(found) == 1, "reports: %s" % found)
    check(found[0]["code"] == "E0201" and found[0]["severity"] == 1 and found[0]["source"] == "pdc" and "`y`" in found[0]["message"], found)
    check(place_of(wrong, found[0]["range"])[1] == "y", "the place of the report: %s" % found)
    wrong = GPT.replace("w2: [ffn, embed]", "w2: [embed, ffn]")
    found = client.change(uri, wrong)
    check([report["code"] for report in found] == ["E0301"], found)
    related = found[0]["relatedInformation"]
    check(related and all(entry["location"]["uri"] == uri for entry in related) and "w2" in place_of(wrong, related[1]["location"]["range"])[1], related)
    check("help: " in found[0]["message"], "the message has no help: %s" % found[0]["message"])
    # umlauts, wide characters and surrogate pairs before the place
    wrong = "// ä 中 \U0001f600\n" + GPT.replace("// A small", "// \U0001f600 A small").replace("loss xent", "/* */ loss xent", 1)
    found = client.change(uri, wrong)
    check(found[0]["code"] == "E0105" and place_of(wrong, found[0]["range"])[1] == "/*", found)
    found = client.change(uri, 'const 中 = "\U0001f600\U0001f600" + ;')
    check(all(report["range"]["start"]["line"] == 0 for report in found), found)
    check(client.change(uri, GPT) == [], "reports after repair")
    # warnings; errors of layout and of the schedule, found by later passes
    found = client.change(uri, GPT.replace("bo: [embed] = 0;", "bo: [embed] = 0, unused: [embed];"))
    check([report["severity"] for report in found] == [2] and "unused" in found[0]["message"], found)
    found = client.change(uri, GPT + "parallel < pp=64; >\n")
    check([report["code"] for report in found] == ["E0510"], found)
    client.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    check(client.published(uri) == [], "reports about a closed document")
    check(client.end() == 0, "exit status")


def test_imports():
    place = directory()
    library = "block twice(x: [..]) -> [..] { return x * 2; }\n"
    main = 'import "lib.pd" as lib;\ndim batch = 4, n = 3;\nmodel m(x: f32[batch, n], y: f32[batch, n]) {\n  param w: [n];\n  loss mse(lib.twice(x) * w, y);\n}\n'
    path = os.path.join(place, "lib.pd")
    with open(path, "w") as file:
        file.write(library)
    client = Client()
    uri, found = client.open(os.path.join(place, "main.pd"), main)
    check(found == [], found)
    result = client.at("textDocument/definition", uri, main, "lib.twice", inside=5)
    check(result["uri"] == pathlib.Path(os.path.realpath(path)).as_uri() and place_of(library, result["range"]) == (1, "twice"), result)
    check("block twice(x: [..]) -> [..]" in client.hover(uri, main, "lib.twice"), "hover on a block of an import")
    check(client.open(path, library)[1] == [], "a library is no program, and needs no model")
    client.published(uri)
    client.notify("textDocument/didClose", {"textDocument": {"uri": pathlib.Path(path).as_uri()}})
    check(client.published(uri) == [], "a library that is closed")
    with open(path, "w") as file:
        file.write(library.replace("x * 2", "z * 2"))
    client.notify("textDocument/didSave", {"textDocument": {"uri": pathlib.Path(path).as_uri()}})
    found = client.published(uri)
    check(len(found) == 1 and "lib.pd:1:39" in found[0]["message"] and place_of(main, found[0]["range"]) == (1, '"lib.pd"'), found)
    check(client.end() == 0, "exit status")
    client = Client("-I", place)
    check(client.open(os.path.join(directory(), "main.pd"), main.replace('"lib.pd"', '"lib.pd"'))[1] != [], "the library is broken still")
    check(client.end() == 0, "exit status")


def test_hover():
    client = Client()
    text = GPT.replace("shard <", "parallel < tp=2; >\nschedule < microbatch=3; >\nshard <")
    uri, found = client.open(os.path.join(directory(), "m.pd"), text)
    check(found == [], found)
    star = GPT.replace("shard <", "parallel < dp=*; >\nschedule < microbatch=3; >\nshard <")
    starred, found = client.open(os.path.join(directory(), "star.pd"), star)
    said = client.hover(starred, star, "batch, seq, embed]")
    check(found == [] and "the batch: dp * x micro-batches of 3; dp is given at the launch: 1, 2 and 4" in said, said)
    for needle, more, facts in (
            ("embed]", {}, ("dim `embed`", "embed = width", "`embed` = width = 16 = 16")),
            ("heads, head]", {}, ("dim `heads`", "4", "divided over tp 2: 2 on a rank")),
            ("batch, seq, embed]", {}, ("dim `batch`", "the batch: dp 1 x 4 micro-batches of 3")),
            ("wq: [", {}, ("parameter `wq`", "param wq: [embed, heads, head]", "layers.{}.attention.wq", "[embed = 16, heads = 4, head = 4], on a rank [16, 2, 4] = 512 bytes, in each of 3 trips")),
            ("x @ wq", {"inside": 4}, ("parameter `wq`", "layers.{}.attention.wq")),
            ("wte, tokens", {}, ("parameter `wte`", "[vocab = 48, embed = 16], on a rank [24, 16] = 1536 bytes")),
            ("tokens) +", {}, ("input `tokens`", "i32[batch = 12, seq = 8], on a rank [3, 8] = 96 bytes a micro-batch")),
            ("x = gather", {}, ("value `x`", "[batch = 12, seq = 8, embed = 16], on a rank [3, 8, 16] = 1536 bytes a micro-batch")),
            ("layers {", {}, ("config const `layers`", "config const layers = 3")),
            ("attention(nn", {}, ("block `attention`", "block attention(x: [batch, seq, embed]) -> [batch, seq, embed]")),
            ("nn.layernorm", {"inside": 4}, ("block `nn.layernorm` of", "block layernorm<n>(x: [.., n], eps=1e-5) -> [.., n]")),
            ("nn;", {}, ("import `nn`", 'import "std/nn.pd" as nn;')),
            ("gelu(", {}, ("operation `gelu`",)),
            ("model gpt", {"inside": 6}, ("model `gpt`", "model gpt(tokens: i32[batch, seq], targets: i32[batch, seq])")),
            ("lr=", {}, ("key of a section `lr`", "optimizer < lr=1e-2; >")),
            ("vocab=tp", {}, ("dim `vocab`", "divided over tp 2: 24 on a rank"))):
        said = client.hover(uri, text, needle, **more)
        check(said and all(fact in said for fact in facts), "hover on `%s`: %s has not all of %s" % (needle, said, facts))
    for needle in ("{\n", "= gather", "// A"):
        check(client.hover(uri, text, needle) is None, "hover on `%s`: %s" % (needle, client.hover(uri, text, needle)))
    broken = text.replace("x @ w1", "x @ w2")
    client.change(uri, broken)
    said = client.hover(uri, broken, "wq: [")
    check(said and "param wq" in said and "bytes" not in said, "hover in a program that does not compile: %s" % said)
    client.change(uri, "const a = 3; const b = a + ;")
    check("const a = 3" in client.hover(uri, "const a = 3; const b = a + ;", "a = 3"), "hover with a syntax error")
    check(client.end() == 0, "exit status")


def test_definition():
    client = Client()
    text = """config const layers = 2;
dim batch = 4, n = 3;
shard < batch=dp; linear.k=tp; >
train < steps=layers; >
block linear<k>(x: [.., k], scale=2) -> [.., k] {
  param w: [k, k];
  return x @ w * scale;
}
model m(x: f32[batch, n], y: f32[batch, n]) {
  h = linear(x, scale=3);
  repeat i = 0 .. layers { h = linear(h) + i * parallel.tp + train.steps; }
  loss mse(h, y);
}
"""
    uri, _ = client.open(os.path.join(directory(), "m.pd"), text)
    for needle, more, place in (("layers {", {}, (1, "layers")), ("batch, n], y", {}, (2, "batch")), ("x @ w", {}, (5, "x")), ("x @ w", {"inside": 4}, (6, "w")),
                                ("k, k];", {}, (5, "k")), ("scale;", {}, (5, "scale")), ("linear(x", {}, (5, "linear")), ("h, y", {}, (11, "h")),
                                ("linear(h)", {"inside": 7}, (10, "h")), ("i * par", {}, (11, "i")), ("train.steps", {"inside": 7}, (4, "steps")),
                                ("batch=dp", {}, (2, "batch")), ("linear.k", {"inside": 2}, (5, "k")), ("layers; >", {}, (1, "layers")), ("h = linear(x", {}, (10, "h"))):
        result = client.at("textDocument/definition", uri, text, needle, **more)
        check(result and result["uri"] == uri and place_of(text, result["range"]) == place, "definition of `%s`: %s, not %s" % (
            needle, result and place_of(text, result["range"]), place))
    for needle in ("mse(", "parallel.tp", "// x"):
        if needle in text:
            check(client.at("textDocument/definition", uri, text, needle) is None, "definition of `%s`" % needle)
    check(client.end() == 0, "exit status")


def test_formatting():
    client = Client()
    ragged = "// ä\nconst   a=3 ;\n\n\n\nconst b = a ; // \U0001f600\n"
    uri, _ = client.open(os.path.join(directory(), "m.pd"), ragged)
    options = {"textDocument": {"uri": uri}, "options": {"tabSize": 8, "insertSpaces": False}}
    edits = client.request("textDocument/formatting", options)
    check(len(edits) == 1 and edits[0]["newText"] == harness.pdc("fmt", "-", source=ragged).out, edits)
    check(edits[0]["range"] == {"start": {"line": 0, "character": 0}, "end": {"line": 6, "character": 0}}, edits)
    client.change(uri, edits[0]["newText"])
    check(client.request("textDocument/formatting", options) == [], "edits of a formatted document")
    client.change(uri, "const a = ;")
    client.fails(-32803, "textDocument/formatting", options)
    client.fails(-32803, "textDocument/formatting", {"textDocument": {"uri": "file:///not/open.pd"}})
    check(client.end() == 0, "exit status")


def test_incremental_changes():
    client = Client()
    text = "// \U0001f600\u00e4 one\nconst a = 1;\nconst b = a;\n"
    uri, found = client.open(os.path.join(directory(), "m.pd"), text)

    def is_now(wanted):
        """What the server has: the formatter says it back."""
        edits = client.request("textDocument/formatting", {"textDocument": {"uri": uri}, "options": {}})
        check((edits[0]["newText"] if edits else wanted) == wanted, "the document is %r, not %r" % (edits and edits[0]["newText"], wanted))

    client.edit(uri, ((1, 6), (1, 7), "c"), ((2, 10), (2, 11), "c"))  # in order, each on the result of the one before
    is_now("// \U0001f600\u00e4 one\nconst c = 1;\nconst b = c;\n")
    client.edit(uri, ((0, 5), (0, 10), "\U0001f601!"))  # two columns for what is outside of the first plane
    is_now("// \U0001f600\U0001f601!\nconst c = 1;\nconst b = c;\n")
    client.edit(uri, ((0, 0), (1, 0), ""))
    is_now("const c = 1;\nconst b = c;\n")
    client.edit(uri, ((1, 12), (99, 99), " // end\n"), ((0, 0), (0, 0), "dim n = 2;\n"))
    is_now("dim n = 2;\nconst c = 1;\nconst b = c;  // end\n")
    client.edit(uri, ((3, 0), (3, 0), "const d = 4;\n"))
    is_now("dim n = 2;\nconst c = 1;\nconst b = c;  // end\nconst d = 4;\n")
    found = client.edit(uri, ((0, 8), (0, 9), "x"))
    check([report["code"] for report in found if report["code"] == "E0201"] == ["E0201"], found)
    # a whole text between ranges, ranges that are none, an end before its begin
    client.notify("textDocument/didChange", {"textDocument": {"uri": uri}, "contentChanges": [
        {"text": "const a = 1;\n"}, {"range": {"start": {"line": 0, "character": 10}, "end": {"line": 0, "character": 11}}, "text": "7"},
        {"range": {}, "text": "x"}, {"range": 3, "text": "x"}, {"range": {"start": {"line": -1, "character": 0}, "end": {"line": 0, "character": 0}}, "text": "x"},
        {"range": {"start": {"line": 0, "character": 12}, "end": {"line": 0, "character": 3}}, "text": " // z"}, 7, {"text": None}]})
    client.published(uri)
    is_now("const a = 7;  // z\n")
    check(client.end() == 0, "exit status")


def test_typing_equals_opening():
    """A program typed key by key, with a few corrections, is the program."""
    client = Client()
    text = harness.read_program("mlp")
    uri, _ = client.open(os.path.join(directory(), "m.pd"), "")
    line = column = 0
    for character in text:
        client.notify("textDocument/didChange", {"textDocument": {"uri": uri}, "contentChanges": [
            {"range": {"start": {"line": line, "character": column}, "end": {"line": line, "character": column}}, "text": "x"},
            {"range": {"start": {"line": line, "character": column}, "end": {"line": line, "character": column + 1}}, "text": character}]})
        found = client.published(uri)
        line, column = (line + 1, 0) if character == "\n" else (line, column + 1)
    check(found == [], found)
    check(client.request("textDocument/formatting", {"textDocument": {"uri": uri}, "options": {}}) == [], "the text that was typed")
    check(client.end() == 0, "exit status")


def test_imports_while_typing():
    place = directory()
    library = "block twice(x: [..]) -> [..] {\n  return x * 2;\n}\n"
    main = 'import "lib.pd" as lib;\ndim batch = 4, n = 3;\nmodel m(x: f32[batch, n], y: f32[batch, n]) {\n  param w: [n];\n  loss mse(lib.twice(x) * w, y);\n}\n'
    path = os.path.join(place, "lib.pd")
    with open(path, "w") as file:
        file.write(library)
    client = Client()
    uri, found = client.open(os.path.join(place, "main.pd"), main)
    check(found == [], found)
    other, found = client.open(path, library)
    check(found == [] and client.published(uri) == [], "what a library is opened with is what is on the disk")
    found = client.edit(other, ((1, 9), (1, 10), "z"))
    check([report["code"] for report in found] == ["E0201"] and found[0]["range"]["start"]["line"] == 1, found)
    found = client.published(uri)
    check(len(found) == 1 and "lib.pd:2:10" in found[0]["message"] and place_of(main, found[0]["range"]) == (1, '"lib.pd"'), found)
    check(client.edit(other, ((1, 9), (1, 10), "x")) == [] and client.published(uri) == [], "a library that is right again")
    client.edit(other, ((0, 6), (0, 11), "thrice"))
    found = client.published(uri)
    check([report["code"] for report in found] == ["E0204"], found)
    client.notify("textDocument/didClose", {"textDocument": {"uri": other}})
    check(client.published(other) == [] and client.published(uri) == [], "a library that is closed is what is on the disk")
    check(client.end() == 0, "exit status")


def test_completion():
    client = Client()
    text = """import "std/nn.pd" as nn;
config const layers = 2;
dim batch = 4, width = 8;
parallel < p
schedule < kind=zb-; recompute=
shard < b
block mine<k>(inner: [.., k], factor=2) -> [.., k] {
  param weight: [k, k];
  first = inner @ weight;
  repeat i = 0 .. layers { inside = first; first = inside + i; }
  return f
}
model m(x: f32[batch, width], y: f32[batch, width]) {
  h = nn.l
  loss ms
  // in a comment b
  data = "in a string b";
"""
    uri, _ = client.open(os.path.join(directory(), "m.pd"), text)
    def offered(needle, *names, but=(), **more):
        found = client.completions(uri, text, needle, **more)
        for name in names:
            check(name in found, "after `%s`: no `%s` in %s" % (needle, name, sorted(found)))
        for name in but:
            check(name not in found, "after `%s`: `%s`" % (needle, name))
        return found

    item = offered("parallel < p", "pp", but=("dp", "microbatch", "param"))["pp"]
    check(item["kind"] == 10 and item["detail"] == "default 1" and item["textEdit"]["newText"] == "pp", item)
    check(item["textEdit"]["range"] == {"start": {"line": 3, "character": 11}, "end": {"line": 3, "character": 12}}, item)
    offered("kind=zb-", "zb-h1", "zb-h2", "zb-v", but=("gpipe",))
    offered("recompute=", "none", "full", "selective", "layers")
    offered("shard < b", "batch", but=("block", "width"))
    offered("return f", "first", "factor", but=("inside", "x", "i", "frozen param"))
    offered("inside = ", "first", "weight", "inner", "factor", "k", "layers", "batch", "mine", "nn", "i", "relu", "sdpa", "true", but=("h", "inside", "param"))
    check(offered("@ weig", "weight")["weight"]["kind"] == 5, "a parameter")
    found = offered("h = nn.l", "nn.linear", "nn.layernorm", but=("layers", "nn.rmsnorm"))
    check(found["nn.layernorm"]["textEdit"]["range"]["start"] == {"line": 13, "character": 6}, found["nn.layernorm"])
    check(offered("loss ms", "mse")["mse"]["detail"] == "a b", "what an operation takes")
    for needle in ("in a comment b", "in a string b"):
        check(client.completions(uri, text, needle) == {}, "completions in comments and strings")
    for text, needle, names in (("", "", ("import", "model", "dim", "config const", "parallel", "shard")), ("dim a = 1;\nmo", "mo", ("model",)),
                                ("model m(x: f32[batch]) {\n  \n}\n", "{\n  ", ("param", "loss", "repeat", "x", "relu")), ("const a = parallel.t", "parallel.t", ("parallel.tp",)),
                                ("dim abc = 1;\ndim de = ab", "de = ab", ("abc",)), ("train < steps=5; ", "; ", ("steps", "save_every"))):
        client.change(uri, text)
        offered(needle, *names)
    client.fails(-32602, "textDocument/completion", {"textDocument": {"uri": uri}})
    check(client.end() == 0, "exit status")


def test_answers_in_time():
    """A change of the large example, answered: the median of nine in 50 ms. Other work on the machine may spoil some nines, not
    all of five."""
    with open(os.path.join(harness.ROOT, "examples", "gpt3-175b.pd")) as file:
        text = file.read()
    client = Client()
    uri, found = client.open(os.path.join(harness.ROOT, "examples", "gpt3-175b.pd"), text)
    line = text[:text.index("layers = 96")].count("\n")
    column = len(text[:text.index("layers = 96")].split("\n")[-1]) + len("layers = ")
    medians = []
    while not medians or (medians[-1] >= 0.05 and len(medians) < 5):
        times = []
        for round_ in range(9):
            began = time.monotonic()
            found = client.edit(uri, ((line, column), (line, column + 2), "48" if round_ % 2 else "96"))
            times.append(time.monotonic() - began)
            check(all(report["severity"] == 2 for report in found), found)
        medians.append(statistics.median(times))
    check(medians[-1] < 0.05, "medians of nine changes: %s" % ["%.3f s" % median for median in medians])
    check(client.end() == 0, "exit status")


def test_malformed_messages():
    client = Client()
    for body in (b"{", b"", b"[1,2", b"\xff\xfe", b"nonsense", b'{"jsonrpc":"2.0","id":1,"method":"x\xff"}'):
        client.send(body)
        answer = client.next()
        check(answer["id"] is None and answer["error"]["code"] == -32700, "%r: %s" % (body, answer))
    for message in ([], 3, "text", None, {"id": {}, "method": "initialize"}, {"jsonrpc": "2.0"}, {"id": 7}):
        client.send(json.dumps(message).encode())
        answer = client.next()
        check(answer["error"]["code"] == -32600, "%r: %s" % (message, answer))
    for params in (None, [], 3, {}, {"textDocument": 3}, {"textDocument": {"uri": 3}}, {"textDocument": {"uri": "file:///x.pd"}}):
        client.fails(-32602, "textDocument/hover", params)
        client.fails(-32602, "textDocument/definition", params)
        client.fails(-32803, "textDocument/formatting", params)
        for name in ("didOpen", "didChange", "didClose"):
            client.notify("textDocument/" + name, params)
    client.notify("$/cancelRequest", {"id": 1})
    client.notify("unknown", {})
    client.send({"jsonrpc": "2.0", "id": 99, "result": None})
    # headers: other fields, other case, a missing or bad length, text between messages
    body = b'{"jsonrpc":"2.0","id":"a","method":"nothing"}'
    for header in (b"content-length: %d\r\nContent-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n", b"X: y\nContent-Length:%d\n\n",
                   b"\r\n\r\ngarbage\r\n\r\nContent-Length: %d\r\n\r\n", b"Content-Length: many\r\n\r\nContent-Length: %d\r\n\r\n",
                   b"Content-Length: -5\r\n\r\nContent-Length: %d\r\n\r\n", b"x" * 10000 + b"\r\nContent-Length: %d\r\n\r\n"):
        client.raw(header % len(body) + body)
        answer = client.next()
        check(answer["id"] == "a" and answer["error"]["code"] == -32601, "%r: %s" % (header[:60], answer))
    # documents of any kind
    uri, found = client.open("/x.pd", "\0" * 40)
    check(found[0]["code"] == "E0120", found)
    for text in ("", "\0", "(" * 5000, "a" * 100000, "model m(", "\n" * 1000 + "}", '"', "\r\n\r\nconst a = 1;\r\n"):
        client.change(uri, text)
        for position in ((0, 0), (0, 10 ** 6), (10 ** 6, 0), (2 ** 31 - 1, 2 ** 31 - 1)):
            client.request("textDocument/hover", {"textDocument": {"uri": uri}, "position": {"line": position[0], "character": position[1]}})
    client.request("textDocument/hover", {"textDocument": {"uri": uri}, "position": {"line": -1, "character": -1}})
    client.notify("textDocument/didOpen", {"textDocument": {"uri": "untitled:1", "text": "const a = ;"}})
    check(client.published("untitled:1")[0]["code"] == "E0111", "a document without a file")
    check(client.end() == 0, "exit status")
    # a message that ends in the middle
    client = Client()
    client.raw(b"Content-Length: 100\r\n\r\n{")
    check(client.end(shutdown=False) == 1, "exit status after half a message")


def test_every_prefix_of_a_program():
    """As it is typed: nothing falls over, and the last state is right."""
    client = Client()
    text = harness.read_program("mlp")
    uri, _ = client.open(os.path.join(directory(), "m.pd"), "")
    for end in list(range(1, len(text), 7)) + [len(text)]:
        found = client.change(uri, text[:end])
        client.request("textDocument/hover", {"textDocument": {"uri": uri}, "position": {"line": text[:end].count("\n"), "character": 3}})
    check(found == [], found)
    check(client.end() == 0, "exit status")


harness.main(__name__)
