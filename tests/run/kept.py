"""What compilers make of the same text for several suites, kept in a folder under a digest of all that goes into it.

  path = kept.file(folder, [words of the command, …], ["source.cu", …], lambda target: compile(target))
"""
import fcntl
import functools
import glob
import hashlib
import os
import shutil
import time

UNUSED_DAYS = 2  # what no suite has asked for since then is removed


@functools.lru_cache(None)
def _contents(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).digest()


@functools.lru_cache(None)
def texts(folder):
    """What a text may include of a folder and the folders in it."""
    found = (glob.glob(os.path.join(folder, "**", pattern), recursive=True) for pattern in ("*.h", "*.cuh", "*.cu", "*.inc*"))
    return tuple(sorted(path for paths in found for path in paths))


@functools.lru_cache(None)
def compiler(name):
    """What tells one installed compiler from another."""
    path = os.path.realpath(shutil.which(name))
    return "%s %d %d" % (path, os.stat(path).st_size, os.stat(path).st_mtime_ns)


@functools.lru_cache(None)
def _prepare(folder):
    os.makedirs(folder, exist_ok=True)
    for path in glob.glob(os.path.join(folder, "*")):
        try:
            if os.stat(path).st_mtime < time.time() - UNUSED_DAYS * 86400:
                os.remove(path)
        except FileNotFoundError: # another suite was faster
            pass


def file(folder, words, inputs, make, suffix=""):
    """The path of the file that make(path) makes of words and the files of `inputs`. A failure of make is raised and not kept."""
    _prepare(folder)
    digest = hashlib.sha256("\0".join(words).encode())
    for path in inputs:
        digest.update(os.path.basename(path).encode() + b"\0" + _contents(path))
    path = os.path.join(folder, digest.hexdigest() + suffix)
    with open(path + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(path):
            make(path + ".new")
            os.replace(path + ".new", path)
        os.utime(path)
    return path
