"""nvcc for programs that run on the fake GPU, which never executes the device code that nvcc makes of their kernels. It is compiled
without optimization, and an object is kept for all programs with the same text: pipelines, replicas and schedules change the
host's part alone. What nvcc says with pdc's own options is another test's (cuda_compile_test.py).

usage: nvcc_kept.py FOLDER nvcc words of pdc: … -c NAME.cu -o NAME.cu.o
"""
import shutil
import subprocess
import sys

import kept


class CompilerFailed(Exception):
    pass


def quick(words):
    """The words without what takes nvcc's time or judges what it optimizes."""
    found = []
    for word in words:
        if word == "-warn-spills" and found[-1] == "-Xptxas":
            found.pop()
        elif not word.startswith("-O"):
            found.append(word)
    return found + ["-O0", "--Ofast-compile=max"]


def main():
    folder, words = sys.argv[1], sys.argv[2:]
    source, target = words[words.index("-c") + 1], words[words.index("-o") + 1]
    rest = quick([word for word in words if word not in (source, target, "-c", "-o")])

    def compile_it(path):
        code = subprocess.run([*rest, "-c", source, "-o", path], check=False).returncode
        if code:
            raise CompilerFailed(code)
    includes = [word[2:] for word in rest if word.startswith("-I")]
    inputs = [source, *(path for folder in includes for path in kept.texts(folder))]
    try:
        shutil.copy(kept.file(folder, [*rest, kept.compiler(words[0]), kept.compiler("g++")], inputs, compile_it), target)
    except CompilerFailed as failure:
        return failure.args[0]
    return 0


sys.exit(main())
