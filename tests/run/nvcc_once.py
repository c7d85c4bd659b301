"""nvcc that compiles a text once. Many programs of the tests have the same kernels: pipelines, replicas and schedules change the
host's part alone. The suites name this in PDC_NVCC; the object of a text that was compiled before with the same options is copied.

usage: nvcc_once.py FOLDER nvcc-command words of pdc: … -c NAME.cu -o NAME.cu.o
"""
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys


def main():
    folder, words = sys.argv[1], sys.argv[2:]
    source, target = words[words.index("-c") + 1], words[words.index("-o") + 1]
    with open(source, "rb") as file:
        text = file.read()
    rest = [word for word in words if word not in (source, target)]
    kept = os.path.join(folder, hashlib.sha256("\0".join(rest).encode() + b"\0" + text).hexdigest())
    with open(kept + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(kept):
            code = subprocess.run(words, check=False).returncode
            if code:
                return code
            os.replace(target, kept)
        shutil.copy(kept, target)
    return 0


sys.exit(main())
