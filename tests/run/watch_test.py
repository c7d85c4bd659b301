"""A rank that dies, hangs or cannot read leaves no other waiting: the run ends within the time-out, with a status that
is not 0 and a message that names the rank, the step and the operation. And nobody is called dead who is only slow."""
import os
import re
import signal
import subprocess
import tempfile
import time

import harness
from harness import check, directory

PROGRAM = """
dim batch = 16, n = 64, m = 64;
parallel < pp=2; dp=2; >
shard < batch=dp; >
schedule < microbatch=2; >
model net(x: f32[batch, n], y: f32[batch, n]) {
  param w: [n, m], v: [m, n];
  h = relu(x @ w);
  loss mse(h @ v, y);
}
"""
TIMEOUT = 6
LIMIT = 60


class Running:
    """A run of four ranks that is under way, past its first steps."""

    def __init__(self, *options, shim=None, steps=10**8):
        self.place = directory()
        program = harness.build(PROGRAM)
        random = harness.Random(3)
        self.data = {}
        for name in "xy":
            self.data[name] = os.path.join(self.place, name + ".npy")
            harness.write_npy(self.data[name], random.reals((64, 64), "F32"))
        words = ["--data=" + ",".join("%s=%s" % item for item in self.data.items()), "--log=" + os.path.join(self.place, "log"), "--quiet",
                 "--timeout=%d" % TIMEOUT, "--steps=%d" % steps, *options]
        env = dict(os.environ, **harness.ENVIRONMENT)
        if shim:
            env["LD_PRELOAD"] = shim
        self.err = tempfile.TemporaryFile()
        self.process = subprocess.Popen([program, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.err, env=env, start_new_session=True)
        self.wait_for_step(3)
        self.ranks = self.find_ranks()

    def steps(self):
        try:
            with open(os.path.join(self.place, "log")) as file:
                return len(file.read().split("\n")) - 1
        except FileNotFoundError:
            return 0

    def wait_for_step(self, step):
        end = time.monotonic() + LIMIT
        while self.steps() < step:
            check(self.process.poll() is None and time.monotonic() < end, "the run did not come to step %d: %s" % (step, self.said()))
            time.sleep(0.02)

    def find_ranks(self):
        """Rank -> pid, by their environment: the processes of this session."""
        found = {}
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                if os.getsid(int(name)) != self.process.pid and os.getpgid(int(name)) != self.process.pid:
                    with open("/proc/%s/stat" % name) as file:
                        if int(file.read().rsplit(")", 1)[1].split()[1]) != self.process.pid:
                            continue
                with open("/proc/%s/environ" % name, "rb") as file:
                    match = re.search(rb"OMPI_COMM_WORLD_RANK=(\d+)", file.read())
                if match:
                    found[int(match.group(1))] = int(name)
            except (ProcessLookupError, PermissionError, FileNotFoundError):
                pass
        check(sorted(found) == [0, 1, 2, 3], "ranks found: %s" % found)
        return found

    def said(self):
        self.err.seek(0)
        return self.err.read().decode("utf-8", "replace")

    def end(self, within):
        """Exit status; every process must be gone in time."""
        began = time.monotonic()
        try:
            status = self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            raise harness.Hang("HANG: the run did not end: " + self.said())
        finally:
            harness.end_group(self.process)
        seconds = time.monotonic() - began
        left = list(self.ranks.values())
        while left and time.monotonic() - began < within + 2:  # mpirun may be gone a moment before what it killed
            left = [pid for pid in left if alive(pid)]
            time.sleep(0.05)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        check(not left, "processes left: %s" % left)
        check(seconds < within, "it took %.1f s: %s" % (seconds, self.said()))
        return status

    def check_message(self, *facts):
        said = self.said()
        check(said.count("error:") == 1, "not one error: " + said)
        for fact in facts:
            check(re.search(fact, said), "the message lacks %s: %s" % (fact, said))


def alive(pid):
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


POSITION = r"in step \d+, \w+"


def test_killed():
    run = Running()
    os.kill(run.ranks[3], signal.SIGKILL)
    check(run.end(TIMEOUT) != 0, "exit status")
    run.check_message(r"error: rank 3 \(pp 1, dp 1, tp 0\) is gone", r"last seen [\d.]+ s ago " + POSITION, r"  rank [012] .* is " + POSITION)


def test_stopped():
    run = Running()
    os.kill(run.ranks[2], signal.SIGSTOP)
    status = run.end(TIMEOUT + 6)
    check(status == 6, "exit status %s: %s" % (status, run.said()))
    run.check_message(r"no rank of this node has moved for 6 s", r"rank 2 \(pp 1, dp 0, tp 0\) was last seen [\d.]+ s ago " + POSITION, "its process is stopped", "waits for")


def shim_of(place, text):
    """A library to preload."""
    source, library = os.path.join(place, "shim.c"), os.path.join(place, "shim.so")
    with open(source, "w") as file:
        file.write(text)
    result = harness.command(["cc", "-shared", "-fPIC", "-o", library, source, "-lpthread"], 30)
    check(result.code == 0, result.describe())
    return library


def exits(place):
    """Ends rank 1 with status 0 when told."""
    return shim_of(place, """#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *wait_for_it(void *unused) {
  while (access("%s/now", F_OK) != 0) usleep(10000);
  _exit(0);
  return unused;
}
__attribute__((constructor)) static void begin(void) {
  pthread_t thread;
  const char *rank = getenv("OMPI_COMM_WORLD_RANK");
  if (rank && strcmp(rank, "1") == 0) {
    pthread_create(&thread, NULL, wait_for_it, NULL);
    pthread_detach(thread);
  }
}
""" % place)


def hangs(place):
    """The program's own thread goes nowhere after a second."""
    return shim_of(place, """#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <unistd.h>
static pthread_t whole;
static void for_ever(int number) {
  for (;;) pause();
}
static void *hang(void *unused) {
  sleep(1);
  pthread_kill(whole, SIGRTMIN);
  return unused;
}
__attribute__((constructor)) static void begin(void) {
  pthread_t thread;
  whole = pthread_self();
  signal(SIGRTMIN, for_ever);
  pthread_create(&thread, NULL, hang, NULL);
  pthread_detach(thread);
}
""")


def test_exits_early():
    place = directory()
    run = Running(shim=exits(place))
    open(os.path.join(place, "now"), "w").close()
    check(run.end(TIMEOUT) != 0, "exit status")
    run.check_message(r"error: rank 1 \(pp 0, dp 1, tp 0\) is gone", POSITION)


def test_data_become_unreadable():
    run = Running()
    os.truncate(run.data["x"], 100)
    check(run.end(TIMEOUT) == 3, "exit status: " + run.said())
    run.check_message("a file that is being read became shorter")


def out_of_memory():
    program = harness.build(PROGRAM.replace("n = 64, m = 64", "n = 64, m = 4M"))
    place = directory()
    for name in "xy":
        harness.write_npy(os.path.join(place, name + ".npy"), harness.Random(3).reals((64, 64), "F32"))
    result = harness.command(["bash", "-c", 'ulimit -v 4000000; exec "$0" --steps=1 --timeout=6 --data=%s' % place, program], LIMIT)
    check(result.code == 8 and result.err.count("error:") == 1 and re.search(r"cannot allocate the \d+ bytes", result.err), result.describe())


def test_one_rank_alone():
    """It is watched where it has a time-out."""
    program = harness.build(PROGRAM.replace("parallel < pp=2; dp=2; >", ""))
    place = directory()
    for name in "xy":
        harness.write_npy(os.path.join(place, name + ".npy"), harness.Random(3).reals((64, 64), "F32"))
    result = harness.command([program, "--steps=100000000", "--quiet", "--timeout=2", "--data=" + place], LIMIT, environment={"LD_PRELOAD": hangs(place)})
    check(result.code == 6 and result.err.count("error:") == 1, result.describe())
    check(re.search(r"no rank of this node has moved for 2 s \(--timeout\): rank 0 \(pp 0, dp 0, tp 0\) is in step \d+", result.err), result.describe())


if not os.environ.get("SANITIZE"): # whose own memory is more than that
    harness.add("out_of_memory", out_of_memory)


def test_slow_is_not_dead():
    """A pause of half the time-out, three times."""
    run = Running()
    for _ in range(3):
        before = run.steps()
        os.kill(run.ranks[1], signal.SIGSTOP)
        time.sleep(TIMEOUT / 2)
        os.kill(run.ranks[1], signal.SIGCONT)
        run.wait_for_step(before + 2)
    check(run.process.poll() is None and run.said() == "", "a false alarm: " + run.said())
    for pid in run.ranks.values():
        os.kill(pid, signal.SIGKILL)
    run.end(TIMEOUT)


def test_never():
    run = Running("--timeout=0")
    os.kill(run.ranks[1], signal.SIGSTOP)
    time.sleep(1.5 * TIMEOUT)
    check(run.process.poll() is None, "--timeout=0 ended the run: " + run.said())
    for pid in run.ranks.values():
        os.kill(pid, signal.SIGKILL)
    run.end(TIMEOUT)


def test_programs_that_do_not_belong_together():
    four = harness.build(PROGRAM)
    two = harness.build(PROGRAM.replace("dp=2; >\nshard < batch=dp; >", ">"))
    for words in (["-n", "1", four, ":", "-n", "1", two], ["-n", "3", four, ":", "-n", "1", two]):
        result = harness.command(["mpirun", *words[:2], four, "--timeout=5", "--steps=0", ":", "-n", "1", two, "--timeout=5", "--steps=0"], LIMIT)
        check(result.code != 0 and result.seconds < 30, result.describe())
        check("it was started with %d" % (2 if words[1] == "1" else 4) in result.err or "did not find each other" in result.err, result.describe())


harness.main(__name__, jobs=3)
