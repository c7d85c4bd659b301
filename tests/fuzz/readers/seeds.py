"""Inputs that fuzz_readers starts from: right files of every kind it reads. usage: seeds.py PDC DIRECTORY"""
import gzip
import json
import os
import struct
import subprocess
import sys

pdc, place = sys.argv[1:]
os.makedirs(place, exist_ok=True)
root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def seed(name, tag, data):
    with open(os.path.join(place, name), "wb") as file:
        file.write(tag + (data.encode() if isinstance(data, str) else data))


def run(*words):
    return subprocess.run([pdc, *words], stdout=subprocess.PIPE, check=True).stdout


for kind in ("gpipe", "1f1b", "zb-h1", "zb-v", "interleaved", "dualpipe", "pipedream", "hanayo"):
    extra = ["--chunks=2"] if kind in ("interleaved", "zb-v", "hanayo") else []
    for form in ("json", "csv"):
        seed("%s.%s" % (kind, form), b"d", run("schedule", "--kind=" + kind, "--pp=2", "--microbatches=4", "--format=" + form, *extra))
seed("plan", b"d", run("--emit=plan", "-Dparallel.pp=2", "-Dschedule.microbatch=6", os.path.join(root, "tests", "programs", "mlp.pd")))
seed("layout", b"l", "Et*3|(tt|)*2,m|L")
seed("layout2", b"l", "E|(t|)*6L")
header = json.dumps({"__metadata__": {"format": "pt"}, "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "v": {"dtype": "BF16", "shape": [1], "data_offsets": [24, 26]}}).encode()
seed("safetensors", b"s", struct.pack("<Q", len(header)) + header + b"\0" * 26)
text = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }"
text += " " * (63 - (10 + len(text)) % 64) + "\n"
npy = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + b"\0" * 48
idx = b"\0\0\x08\x02" + struct.pack(">II", 3, 4) + bytes(range(12))
for name, data in (("npy", npy), ("idx", idx), ("npy.gz", gzip.compress(npy)), ("idx.gz", gzip.compress(idx))):
    seed(name, b"a", data)
seed("tokens", b"t", bytes(range(40)))
document = {"uri": "file:///m.pd"}
messages = [{"method": "initialized", "params": {}},
            {"method": "textDocument/didOpen", "params": {"textDocument": dict(document, text="dim batch = 4, n = 3;\nmodel m(x: f32[batch, n]) {\n  param w: [n];\n  loss mean(x * w);\n}\n")}},
            {"method": "textDocument/didChange", "params": {"textDocument": document, "contentChanges": [{"range": {"start": {"line": 2, "character": 2}, "end": {"line": 2, "character": 5}}, "text": "p"}]}},
            {"id": 1, "method": "textDocument/hover", "params": {"textDocument": document, "position": {"line": 3, "character": 14}}},
            {"id": 2, "method": "textDocument/definition", "params": {"textDocument": document, "position": {"line": 3, "character": 18}}},
            {"id": 3, "method": "textDocument/completion", "params": {"textDocument": document, "position": {"line": 3, "character": 3}}},
            {"id": 4, "method": "textDocument/formatting", "params": {"textDocument": document}},
            {"method": "textDocument/didClose", "params": {"textDocument": document}}, {"id": 5, "method": "shutdown"}, {"method": "exit"}]
seed("messages", b"m", "\n".join(json.dumps(message) for message in messages))
bodies = [json.dumps(message).encode() for message in [{"id": 0, "method": "initialize"}] + messages]
seed("stream", b"r", b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(body), body) for body in bodies))
