"""The same program gives the same bytes on every machine: pdc built by gcc and by clang, in another locale (with a comma for
the decimal point), time zone and directory, and on one core, writes the same plans, schedules and pictures."""
import hashlib
import os
import shutil
import subprocess

import harness
from harness import check, directory, once

BUILD = os.path.dirname(os.path.abspath(harness.PDC))
CLANG = os.path.join(BUILD, "tests", "clang")
LIBRARY = os.path.join(BUILD, "lib", "pdc")
KINDS = (("gpipe", 4, 8, 1), ("1f1b", 5, 7, 1), ("eager-1f1b", 4, 9, 1), ("interleaved", 4, 11, 3), ("breadth-first", 3, 7, 2), ("zb-h1", 4, 9, 1),
         ("zb-h2", 4, 9, 1), ("interleaved-zb", 4, 13, 2), ("zb-v", 4, 9, 2), ("v-half", 4, 9, 2), ("v-min", 4, 9, 2), ("1f1b-v", 4, 9, 2),
         ("dualpipe", 4, 8, 1), ("dualpipe-v", 4, 9, 2), ("chimera", 4, 8, 1), ("hanayo", 4, 7, 4), ("pipedream", 4, 9, 1), ("pipedream-2bw", 4, 8, 1),
         ("auto", 4, 9, 0), ("zb-h1", 64, 512, 1))
PROGRAMS = (("gpt", ("parallel.pp=2", "parallel.dp=2", "parallel.tp=2", "schedule.kind=zb-v", "schedule.chunks=2", "cluster.bandwidth=3.3e9",
                     "cluster.latency=1.7e-6", "cluster.flops=7.1e10")),
            ("llama", ("layers=4", "parallel.pp=4", "schedule.kind=auto", "cluster.memory=1MiB")), ("mlp", ("parallel.dp=3", "schedule.recompute=full")))


def artifacts(pdc, place, environment, before=()):
    """Digest of everything that one pdc writes in one surrounding, by what it is."""
    found = {}

    def note(words, source=None):
        result = harness.command([*before, pdc, *words], 60, environment, cwd=place, stdin=None if source is None else source.encode())
        check(result.code == 0, result.describe())
        found[" ".join(words)] = hashlib.sha256((result.out + result.err).encode()).hexdigest()

    for kind, pp, m, chunks in KINDS:
        words = ["schedule", "--kind=" + kind, "--pp=%d" % pp, "--microbatches=%d" % m, "--costs=1.1,1.3,0.7,0.05"]
        words += ["--chunks=%d" % chunks] if chunks else []
        for form in ("json", "comms-csv", "text", "svg", "html", "trace") if m < 100 else ("json", "svg"):
            note(words + ["--columns=100", "--format=" + form])
    for name, defines in PROGRAMS:
        for kind in ("plan", "schedule", "memory", "svg", "html", "trace"):
            words = ["-v", "-I", LIBRARY, "--emit=" + kind] + [word for define in defines for word in ("-D", define)] + ["-"]
            note(words, harness.read_program(name))
    return found


def reference():
    return once("artifacts of gcc", lambda: artifacts(harness.PDC, directory(), {"LC_ALL": "C", "TZ": "UTC"}))


def same(found, what):
    wanted = reference()
    differ = [words for words in wanted if found.get(words) != wanted[words]]
    check(not differ and len(found) == len(wanted) > 100, "%s: other bytes of %s" % (what, "; pdc ".join(differ[:5])))


def comma_locale():
    """A locale that writes 1,5: LOCPATH of it and its name. Made from the sources of Debian's package `locales`."""
    def make():
        place = directory()
        made = subprocess.run(["localedef", "--no-archive", "-i", "de_DE", "-f", "UTF-8", os.path.join(place, "de_DE.UTF-8")], capture_output=True)
        check(os.path.exists(os.path.join(place, "de_DE.UTF-8", "LC_NUMERIC")), "localedef: %s (package locales)" % made.stderr.decode())
        return {"LOCPATH": place, "LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8"}
    return once("locale", make)


def test_locale_zone_directory_and_cores():
    environment = {**comma_locale(), "TZ": "Pacific/Chatham", "COLUMNS": "61", "HOME": "/", "USER": "nobody"}
    shown = subprocess.run(["printf", "%.1f", "2"], env={**os.environ, **environment, "POSIXLY_CORRECT": "1"}, capture_output=True, text=True).stdout
    check(shown == "2,0", "the locale has no comma: %s" % shown)
    core = sorted(os.sched_getaffinity(0))[0]
    place = os.path.join(directory(), "a b", "ü")
    os.makedirs(place)
    same(artifacts(harness.PDC, place, environment, ("taskset", "-c", str(core))), "in another locale, zone and directory, on one core")


def test_compilers():
    """The objects stay in the build directory, so that only what changed is compiled again."""
    check(shutil.which("clang"), "there is no clang")
    made = harness.command(["make", "-s", "-j%d" % os.cpu_count(), "BUILD=" + CLANG, "CC=clang", os.path.join(CLANG, "pdc")], 600, cwd=harness.ROOT)
    check(made.code == 0, made.describe())
    same(artifacts(os.path.join(CLANG, "pdc"), directory(), {"LC_ALL": "C", "TZ": "UTC"}), "built by clang")


harness.main(__name__)
