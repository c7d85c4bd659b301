"""What the run tests share: compiling programs, running them on ranks, the files they read and write, and a small runner.

A test is a function that raises when something is wrong. A file of tests ends with `harness.main(__name__)`; it runs
`test_*` functions and what `add` registered, a few at a time, prints a line for each failure and then `N passed, N failed`.
Arguments on the command line select tests by a part of their name; `--list` lists them.

Everything has a time limit, and reaching it is a failure of its own kind (Hang). Environment: PDC names the compiler
(else BUILD/pdc, else build/pdc), JOBS how many tests run at once (2 or 3; scripts/test.py shares slots instead), KEEP=1 leaves the temporary directory.
"""
import array
import contextlib
import fcntl
import hashlib
import json
import math
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAMS = os.path.join(ROOT, "tests", "programs")
GOLDEN = os.path.join(ROOT, "tests", "golden")
PDC = os.path.abspath(os.environ.get("PDC") or os.path.join(os.environ.get("BUILD", os.path.join(ROOT, "build")), "pdc"))

COMPILE_LIMIT = 120  # seconds
RUN_LIMIT = 120

ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,vader",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_mpi_yield_when_idle": "1", "OMP_NUM_THREADS": "1", "NO_COLOR": "1",
    "HWLOC_COMPONENTS": "-pci,-linuxio", # a rank that starts does not ask for devices on buses, a seventh of its time
    "PDC_TARGET": "host", # on a machine with a GPU too
    "PDC_MEMORY": "nan", # what is read before it is written shows (runtime/device.h)
}
if shutil.which("ld.gold"): # it takes a third of ld's time for a program: libraries of thirty megabytes are linked with it
    ENVIRONMENT["OMPI_CC"] = (os.environ.get("OMPI_CC") or "gcc") + " -fuse-ld=gold"
# what pdc holds at its end is not lost; locks are those of MPI: their order is not looked at
SANITIZER_OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:handle_segv=1:verify_asan_link_order=0", # tests preload libraries
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:detect_deadlocks=0:suppressions=" + os.path.join(ROOT, "tests", "fakegpu", "thread-sanitizer.supp"),
}
if os.environ.get("SANITIZE"):
    ENVIRONMENT.update(SANITIZER_OPTIONS)


class Failure(AssertionError):
    """Something is not as it should be; the text says what."""


class Hang(Failure):
    """A command reached its time limit."""


def check(condition, text):
    if not condition:
        raise Failure(text)


# ---- commands ----

class Result:
    def __init__(self, command, code, out, err, seconds):
        self.command, self.code, self.out, self.err, self.seconds = command, code, out, err, seconds

    @property
    def text(self):
        return self.out + self.err

    def describe(self):
        end = lambda text: text if len(text) < 2000 else "... " + text[-2000:]
        return "%s\n  exit status %s after %.1f s\n  stdout: %s\n  stderr: %s" % (
            " ".join(self.command), self.code, self.seconds, end(self.out.strip()), end(self.err.strip()))


def end_group(process):
    """Asks a process group to end, then makes it: mpirun takes its ranks with it when asked."""
    for which, patience in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        try:
            os.killpg(process.pid, which)
            process.wait(patience)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def _ends(process, limit):
    """Whether a process ends in so many seconds. Popen.wait would look every 50 ms only."""
    end = os.pidfd_open(process.pid)
    try:
        return bool(select.select([end], [], [], limit)[0])
    finally:
        os.close(end)


def command(words, limit, environment=None, cwd=None, stdin=None):
    """Runs a command; its Result. Input and output are files: no pipe can fill up or be held open."""
    began = time.monotonic()
    env = dict(os.environ, **ENVIRONMENT, OMPI_MCA_orte_tmpdir_base=_own_folder())
    env.update(environment or {})
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin or b"")
        given.seek(0)
        process = subprocess.Popen(words, stdin=given, stdout=out, stderr=err, env=env, cwd=cwd, start_new_session=True)
        late = True
        try:
            late = not _ends(process, limit)
        finally:
            if late:
                end_group(process)
            process.wait()
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode("utf-8", "replace"))
    result = Result(words, process.returncode, texts[0], texts[1], time.monotonic() - began)
    if late:
        raise Hang("HANG: still running after %d s: %s" % (limit, result.describe()))
    return result


# ---- temporary files ----

def _own_folder():
    """Where mpirun keeps a session: the last one to end removes what another one is about to use, so no two share a folder."""
    path = os.path.join(scratch(), "mpi%d" % threading.get_native_id())
    os.makedirs(path, exist_ok=True)
    return path


_root = None
_lock = threading.Lock()
_count = 0


def scratch():
    """The directory of this process for everything it makes; removed at the end."""
    global _root
    with _lock:
        if _root is None:
            _root = tempfile.mkdtemp(prefix="pdc-test-")
    return _root


def directory():
    """A new, empty directory."""
    global _count
    with _lock:
        _count += 1
        number = _count
    # outside the lock: scratch() takes it too
    path = os.path.join(scratch(), "d%d" % number)
    os.mkdir(path)
    return path


# ---- compiling ----

def pdc(*words, source=None, limit=COMPILE_LIMIT, environment=None, cwd=None):
    """Runs pdc with these words; `source` is a program given on standard input."""
    return command([PDC] + [str(word) for word in words], limit, environment=environment, cwd=cwd,
                   stdin=None if source is None else source.encode())


def read_program(name):
    """The text of tests/programs/NAME.pd."""
    with open(os.path.join(PROGRAMS, name + ".pd")) as file:
        return file.read()


def words_of(defines):
    words = []
    for key, value in (defines or {}).items():
        if isinstance(value, bool):
            value = "true" if value else "false"
        words += ["-D", "%s=%s" % (key.replace("__", "."), value)]
    return words


def build(source, defines=None, options=("-O1",), environment=None):
    """Compiles a program (its text); the path of the result. The same text and options are compiled once."""
    def compile_it():
        place = directory()
        path = os.path.join(place, "program.pd")
        with open(path, "w") as file:
            file.write(source)
        target = os.path.join(place, "program")
        result = pdc("-o", target, *options, *words_of(defines), path, environment=environment)
        check(result.code == 0 and os.path.exists(target), "pdc failed: " + result.describe())
        return target

    return once(json.dumps([source, sorted((defines or {}).items()), list(options)]), compile_it)


def emit(kind, source, defines=None, options=()):
    """What `pdc --emit=KIND` prints."""
    result = pdc("--emit=" + kind, *options, *words_of(defines), "-", source=source)
    check(result.code == 0, "pdc --emit=%s failed: %s" % (kind, result.describe()))
    return result.out


def plan(source, defines=None):
    return json.loads(emit("plan", source, defines))


def rehashed(text):
    """The text of a plan or schedule with a digest that fits it again."""
    at = text.rindex('  "sha256": "')
    return text[:at] + '  "sha256": "%s"\n}\n' % hashlib.sha256(text[:at].encode()).hexdigest()


def canonical(value):
    """A value as pdc writes it, with a new digest."""
    return rehashed(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def refused(source, *facts, defines=None):
    """pdc must refuse this program: exit status 1, nothing written, every fact in the message; returns the message."""
    place = directory()
    with open(os.path.join(place, "program.pd"), "w") as file:
        file.write(source)
    result = pdc("-o", "program", *words_of(defines), "program.pd", cwd=place)
    check(result.code == 1, "pdc should refuse this program with exit status 1: " + result.describe())
    check(sorted(os.listdir(place)) == ["program.pd"], "a refusal left files: %s" % os.listdir(place))
    for fact in facts:
        found = re.search(r"(?<![\w.])%s(?![\w.]*\w)" % re.escape(str(fact)), result.err)
        check(found, "the refusal does not name `%s`: %s" % (fact, result.err))
    check(result.seconds < 10, "a refusal took %.1f s" % result.seconds)
    return result.err


# ---- running ----

class Run:
    """What a finished run left: exit status, texts, log lines, saved weights and gradients."""

    def __init__(self, result, place):
        self.result, self.place = result, place

    def path(self, name):
        return os.path.join(self.place, name)

    @property
    def lines(self):
        with open(self.path("log.jsonl")) as file:
            return [json.loads(line) for line in file]

    @property
    def steps(self):
        return [line for line in self.lines if "step" in line]

    @property
    def evals(self):
        return [line["eval"] for line in self.lines if "eval" in line]

    @property
    def use(self):
        """How much of the machine was used: the last line of a run that knows a peak."""
        return self.lines[-1]["use"]

    @property
    def losses(self):
        return [line["loss"] for line in self.steps]

    @property
    def norms(self):
        return [line["grad_norm"] for line in self.steps]

    @property
    def gradients(self):
        return read_safetensors(self.path("gradients.safetensors"))

    @property
    def weights(self):
        return read_safetensors(self.path("weights.safetensors"))


def start(program, *options, limit=RUN_LIMIT, environment=None, data=None, valid=None, init=None, ranks=None):
    """Runs a compiled program. data: {input: Array}; init: {parameter: Tensor} or a path; ranks: start with mpirun -n RANKS
    instead of letting the program start its own. Log, weights and gradients are written into a new directory."""
    place = directory()
    words = list(options)
    for name, arrays in (("data", data), ("valid", valid)):
        if isinstance(arrays, str):
            words.append("--%s=%s" % (name, arrays))
        elif arrays is not None:
            parts = []
            for key, value in arrays.items():
                path = os.path.join(place, "%s-%s.npy" % (name, key))
                write_npy(path, value)
                parts.append("%s=%s" % (key, path))
            words.append("--%s=%s" % (name, ",".join(parts)))
    if isinstance(init, str):
        words.append("--init=" + init)
    elif init is not None:
        path = os.path.join(place, "init.safetensors")
        write_safetensors(path, init)
        words.append("--init=" + path)
    given = [word.split("=")[0] for word in words]
    for name, file in (("--log", "log.jsonl"), ("--save", "weights.safetensors"), ("--gradients", "gradients.safetensors")):
        if name not in given and not (name == "--gradients" and "--steps=0" in words):
            words.append("%s=%s" % (name, os.path.join(place, file)))
    head = ["mpirun", "-n", str(ranks)] if ranks else []
    return Run(command(head + [program] + words, limit, environment=environment, cwd=place), place)


def train(program, *options, **more):
    """As start, and the run must end well."""
    run = start(program, *options, **more)
    check(run.result.code == 0, "the program failed: " + run.result.describe())
    return run


_once = {}


def once(key, function):
    """function(), the first time; its result (or its failure) ever after."""
    with _lock:
        entry = _once.setdefault(key, [threading.Lock()])
    with entry[0]:
        if len(entry) == 1:
            try:
                entry += [function(), None]
            except Exception as failure:
                entry += [None, failure]
    if entry[2] is not None:
        raise entry[2]
    return entry[1]


# ---- tensors and their files ----

class Tensor:
    """Numbers with a shape; kind is F32, F64 or I32."""

    def __init__(self, shape, values, kind="F64"):
        self.shape, self.values, self.kind = tuple(shape), values, kind
        count = 1
        for size in shape:
            count *= size
        check(count == len(values), "%s elements for the shape %s" % (len(values), shape))


def tensor(nested, kind="F64"):
    """A tensor of nested lists."""
    shape, values = [], nested
    while isinstance(values, list):
        shape.append(len(values))
        values = values[0] if values else None
    flat = [nested]
    for _ in shape:
        flat = [item for part in flat for item in part]
    return Tensor(shape, flat, kind)


_codes = {"F32": ("f", 4, "<f4"), "F64": ("d", 8, "<f8"), "I32": ("i", 4, "<i4")}


def pack(tensor_):
    values = tensor_.values
    code = _codes[tensor_.kind][0]
    return (values if isinstance(values, array.array) and values.typecode == code else array.array(code, values)).tobytes()


def write_npy(path, tensor_):
    shape = "(%s)" % "".join("%d," % size for size in tensor_.shape)
    header = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (_codes[tensor_.kind][2], shape)
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + pack(tensor_))


def read_npy(path):
    with open(path, "rb") as file:
        text = file.read()
    check(text[:8] == b"\x93NUMPY\x01\x00", "%s is no npy file of version 1" % path)
    length = struct.unpack("<H", text[8:10])[0]
    header = text[10:10 + length].decode()
    shape = [int(size) for size in re.findall(r"\d+", re.search(r"\(([^)]*)\)", header).group(1))]
    kind = {row[2]: kind for kind, row in _codes.items()}[re.search(r"'descr': '([^']*)'", header).group(1)]
    values = array.array(_codes[kind][0])
    values.frombytes(text[10 + length:])
    return Tensor(shape, values, kind)


def write_safetensors(path, tensors):
    """Ordered as the reference writer does: wide types first, then by name."""
    header, parts, at = {}, [], 0
    for name in sorted(tensors, key=lambda name: (-_codes[tensors[name].kind][1], name)):
        data = pack(tensors[name])
        header[name] = {"dtype": tensors[name].kind, "shape": list(tensors[name].shape), "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


def read_safetensors(path):
    with open(path, "rb") as file:
        text = file.read()
    length = struct.unpack("<Q", text[:8])[0]
    header, result, end = json.loads(text[8:8 + length]), {}, 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, stop = entry["data_offsets"]
        values = array.array(_codes[entry["dtype"]][0])
        values.frombytes(text[8 + length + begin:8 + length + stop])
        result[name] = Tensor(entry["shape"], values, entry["dtype"])
        end = max(end, stop)
    check(8 + length + end == len(text), "%s: %d bytes after the last tensor" % (path, len(text) - 8 - length - end))
    return result


class Random:
    """A small generator of its own, so that data are the same for every version of Python."""

    def __init__(self, seed):
        self.state = (seed * 2654435761 + 88172645463325252) & (2**64 - 1)

    def bits(self):
        x = self.state
        x ^= (x << 13) & (2**64 - 1)
        x ^= x >> 7
        x ^= (x << 17) & (2**64 - 1)
        self.state = x
        return (x * 0x2545F4914F6CDD1D & (2**64 - 1)) >> 11

    def uniform(self, low=0.0, high=1.0):
        return low + (high - low) * self.bits() / 2.0**53

    def below(self, n):
        return self.bits() % n

    def normal(self):
        return math.sqrt(-2 * math.log(1 - self.uniform())) * math.cos(2 * math.pi * self.uniform())

    def reals(self, shape, kind="F64", scale=1.0, mean=0.0):
        return Tensor(shape, [mean + scale * self.normal() for _ in range(math.prod(shape))], kind)

    def integers(self, shape, limit, ignored=0.0):
        """Whole numbers below limit; a share of them is -100, which no loss counts."""
        draw = lambda: -100 if ignored and self.uniform() < ignored else self.below(limit)
        return Tensor(shape, [draw() for _ in range(math.prod(shape))], "I32")


# ---- comparing ----

def norm(values):
    return math.sqrt(math.fsum(x * x for x in values))


def close(got, wanted, tolerance, what, relative=True):
    """Numbers or lists of numbers; the tolerance is relative to the size of what is wanted, or absolute."""
    if isinstance(wanted, (list, tuple, array.array)):
        check(len(got) == len(wanted), "%s: %d numbers, not %d" % (what, len(got), len(wanted)))
        for i, (g, w) in enumerate(zip(got, wanted)):
            close(g, w, tolerance, "%s[%d]" % (what, i), relative)
        return
    allowed = tolerance * (abs(wanted) if relative else 1)
    check(got is not None and abs(got - wanted) <= allowed, "%s is %s, not %.17g (off by %.3g, allowed %.3g)" % (
        what, got, wanted, math.nan if got is None else abs(got - wanted), allowed))


def tensors_close(got, wanted, tolerance, what, floor=0.0):
    """Per tensor: the norm of the difference relative to the norm of the tensor, but not below `floor` times the norm of
    all (a gradient that is zero in exact arithmetic has only rounding in it)."""
    check(sorted(got) == sorted(wanted), "%s: the names differ: %s" % (what, sorted(set(got) ^ set(wanted))))
    everything = norm([norm(t.values) for t in wanted.values()])
    worst = []
    for name in sorted(wanted):
        g, w = got[name], wanted[name]
        check(g.shape == w.shape, "%s: `%s` has shape %s, not %s" % (what, name, g.shape, w.shape))
        size = max(norm(w.values), floor * everything)
        off = norm([a - b for a, b in zip(g.values, w.values)])
        if not off <= tolerance * size:
            worst.append("`%s` is off by %.3g (allowed %.3g)" % (name, off / size if size else math.inf, tolerance))
    check(not worst, "%s: %d of %d tensors differ: %s" % (what, len(worst), len(wanted), "; ".join(worst[:8])))


def tensors_equal(got, wanted, what):
    """To the bit."""
    check(sorted(got) == sorted(wanted), "%s: the names differ: %s" % (what, sorted(set(got) ^ set(wanted))))
    for name in sorted(wanted):
        check(got[name].shape == wanted[name].shape and pack(got[name]) == pack(wanted[name]),
              "%s: `%s` is not the same to the bit" % (what, name))


# ---- the runner ----

_added = {}


def add(name, function, *arguments):
    """Registers function(*arguments) as a test."""
    check(name not in _added, "two tests are called " + name)
    _added[name] = lambda: function(*arguments)


@contextlib.contextmanager
def slot():
    """While a test runs. Where several suites run at once (scripts/test.py) their tests share the files of TEST_SLOTS: each locks one."""
    folder = os.environ.get("TEST_SLOTS")
    while folder:
        for name in os.listdir(folder):
            with open(os.path.join(folder, name)) as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                yield
                return
        time.sleep(0.02)
    yield


def cleanly(text):
    return "\n    ".join(str(text).strip().splitlines())


def main(module, jobs=2):
    """Runs the tests of a file; jobs: how many at once, more than 2 where they wait more than they work."""
    if module != "__main__":
        return
    tests = {name: function for name, function in vars(sys.modules[module]).items()
             if name.startswith("test_") and callable(function)}
    tests = {name[5:]: function for name, function in tests.items()}
    tests.update(_added)
    arguments = [word for word in sys.argv[1:] if not word.startswith("-")]
    chosen = {name: function for name, function in tests.items() if not arguments or any(word in name for word in arguments)}
    if "--list" in sys.argv:
        print("\n".join(chosen))
        sys.exit(0)
    verbose = "-v" in sys.argv
    if not os.access(PDC, os.X_OK):
        print("no compiler at %s; run `make`, or set PDC or BUILD" % PDC)
        print("0 passed, %d failed" % max(1, len(chosen)))
        sys.exit(1)
    failed = 0

    def run(item):
        name, function = item
        with slot():
            began = time.monotonic()
            try:
                function()
                return name, None, time.monotonic() - began
            except Failure as failure:
                return name, cleanly(failure), time.monotonic() - began
            except Exception:
                return name, cleanly(traceback.format_exc()), time.monotonic() - began

    times = []
    try:
        with ThreadPoolExecutor(int(os.environ.get("JOBS", jobs))) as pool:
            for name, problem, seconds in pool.map(run, chosen.items()):
                times.append((seconds, name))
                if problem is not None:
                    failed += 1
                    print("FAILED %s: %s" % (name, problem), flush=True)
                elif verbose:
                    print("passed %s (%.1f s)" % (name, seconds), flush=True)
    finally:
        if _root is not None and "KEEP" not in os.environ:
            shutil.rmtree(_root, ignore_errors=True)
    print("slowest: " + ", ".join("%s %.1f s" % (name, seconds) for seconds, name in sorted(times, reverse=True)[:8]))
    print("%d passed, %d failed" % (len(chosen) - failed, failed))
    sys.exit(1 if failed or not chosen else 0)
