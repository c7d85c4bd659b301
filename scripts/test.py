#!/usr/bin/env python3
"""Runs every suite of tests/ and adds up what they report. Each suite ends with `N passed, N failed` (or Criterion's synthesis
line). Two suites run at once, so that one works while the other waits; their tests share TESTS_AT_ONCE slots (tests/run/harness.py).

usage: test.py BUILD [suite name part…]
CUDA is where the CUDA toolkit is; if it is empty, the suites of the CUDA target are left out, and that is said.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile
import time

SUITES_AT_ONCE, TESTS_AT_ONCE = 2, 3
LONGEST = "parity_test" # comes before its like: it would be left alone at the end
REPORTS = (re.compile(r"Tested: (?P<tested>\d+) \| Passing: (?P<passed>\d+)"), re.compile(r"^(?P<passed>\d+) passed, (?P<failed>\d+) failed", re.M))
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def name_of(path):
    return os.path.splitext(os.path.basename(path))[0]


def suites(build, cuda):
    """{name: command}, and the names of what is left out."""
    found, left_out = {}, []
    for path in sorted(glob.glob(os.path.join(build, "tests", "unit", "*_test"))):
        found["unit/" + name_of(path)] = [path]
    for path in sorted(glob.glob("tests/run/*_test.sh")):
        found["run/" + name_of(path)] = ["bash", path, build]
    paths = glob.glob("tests/run/*_test.py")
    for path in sorted(paths, key=lambda path: (name_of(path) != LONGEST, path)):
        if not cuda and re.search("cuda|fake", name_of(path)):
            left_out.append(name_of(path))
        else:
            found["run/" + name_of(path)] = ["python3", path]
    return found, left_out


class Suite:
    def __init__(self, build, name, command):
        self.name, self.began = name, time.monotonic()
        self.log = os.path.join(build, "tests", "log", name.replace("/", "-") + ".log")
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def report(self, status, usage):
        """Says how it went; how many tests passed and failed."""
        with open(self.log, errors="replace") as log:
            text = COLOURS.sub("", log.read())
        found = [list(report.finditer(text)) for report in REPORTS]
        counts = next((matches[-1].groupdict() for matches in found if matches), {"passed": 0, "failed": 1})
        passed = int(counts["passed"])
        failed = int(counts["failed"]) if "failed" in counts else int(counts["tested"]) - passed
        if status != 0 and failed == 0: # a suite that died without counting
            failed = 1
        print("%-24s %5d passed %4d failed  %4.0f s  %4.0f s of processors"
              % (self.name, passed, failed, time.monotonic() - self.began, usage.ru_utime + usage.ru_stime), flush=True)
        if failed:
            lines = [line for line in text.splitlines() if not line.startswith(("[PASS", "[RUN "))]
            print("\n".join(lines[-60:]), flush=True)
        return passed, failed


def run(build, chosen):
    """Runs {name: command}; how many tests passed and failed."""
    waiting, running, passed, failed = list(chosen.items()), {}, 0, 0
    try:
        while waiting or running:
            while waiting and len(running) < SUITES_AT_ONCE:
                suite = Suite(build, *waiting.pop(0))
                running[suite.process.pid] = suite
            pid, status, usage = os.wait3(0)
            suite = running.pop(pid)
            suite.process.returncode = os.waitstatus_to_exitcode(status)
            good, bad = suite.report(suite.process.returncode, usage)
            passed, failed = passed + good, failed + bad
    except KeyboardInterrupt: # the terminal told the suites too, and they end what they started
        for suite in running.values():
            suite.process.wait()
        raise
    return passed, failed


def main():
    build, parts = sys.argv[1], sys.argv[2:]
    os.makedirs(os.path.join(build, "tests", "log"), exist_ok=True)
    os.environ["PDC"] = os.path.join(build, "pdc")
    found, left_out = suites(build, os.environ.setdefault("CUDA", "/usr/local/cuda"))
    chosen = {name: command for name, command in found.items() if not parts or any(part in name for part in parts)}
    if not chosen:
        print("no suite has %s in its name; there are %s" % (" or ".join(parts), ", ".join(found)))
    with tempfile.TemporaryDirectory() as slots:
        for number in range(TESTS_AT_ONCE):
            open(os.path.join(slots, str(number)), "w").close()
        os.environ["TEST_SLOTS"] = slots
        passed, failed = run(build, chosen)
    if left_out:
        print("left out, as there is no CUDA toolkit with NCCL (say where with make CUDA=…): " + " ".join(left_out))
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed or not passed else 0


try:
    sys.exit(main())
except KeyboardInterrupt:
    sys.exit(130)
