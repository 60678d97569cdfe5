#!/usr/bin/env python3
"""run.py - the one runner: unit programs (cmocka), then system, client and crash tests (pytest).

Prints a line per finished part, the whole output of what failed, every skip with its reason, the slowest tests, and ends with
"N passed, N failed, N skipped" alone on the last line. Exit 1 when something failed or nothing ran.

  --build DIR        what to test: build, or build/address-undefined and the like
  --only PATH        below tests/, may be repeated: unit/common, system/test_range.py, crash
  -k EXPR            pytest's selection
  --workers N        tests that run at the same time, instead of two a core and two: they wait more than they compute
  --need-gpu         without an NVIDIA device, skip everything and say so
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORES = os.cpu_count() or 1
SLOWEST = 20  # that are named at the end
# Unit programs that wait far more than they compute. They begin first, beside the workers, and the other tests do not wait for them.
WAITING = ("agent/train/watchdog", "common/xfer/xfer", "server/cache/fetch", "server/cache/lies", "server/cache/restart", "server/store/blob",
           "server/store/ingest", "server/store/verify")
# In the order of their start. The longest chains of tests that one worker runs one by one (xdist_group) are clients', and the longest test
# is a crash test; begun last, they would leave the other workers idle.
PYTEST_FOLDERS = ("clients", "crash", "system")
Counts = collections.namedtuple("Counts", "passed failed skipped")


def main():
    args = parse()
    os.chdir(ROOT)
    # More memory than there is, is an answer of the allocator as without a sanitizer, not a finding.
    os.environ.setdefault("ASAN_OPTIONS", "allocator_may_return_null=1")
    os.environ.setdefault("TSAN_OPTIONS", f"allocator_may_return_null=1:suppressions={ROOT}/tests/tsan.supp")
    if args.need_gpu and not os.path.exists("/dev/nvidiactl"):
        print("skipped: no NVIDIA device on this machine")
        return finish(Counts(0, 0, 1), may_be_empty=True)
    slow = 5 if args.build != "build" else 1  # sanitizers
    total = Counts(0, 0, 0)
    compiling = None if args.only else compile_tests()
    with concurrent.futures.ThreadPoolExecutor(args.workers) as pool, concurrent.futures.ThreadPoolExecutor(len(WAITING)) as beside:
        units = start_units(args, slow, pool, beside) if wanted(args.only, "unit") else []
        concurrent.futures.wait([future for program, future in units if not waits(program)])
        if compiling:
            compiling.wait()
        if any(wanted(args.only, folder) for folder in PYTEST_FOLDERS):
            total = add(total, run_pytest(args, slow))
        if units:
            total = add(total, count_units(units))
    return finish(total)


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--build", default="build")
    p.add_argument("--only", action="append", default=[])
    p.add_argument("-k", default="")
    p.add_argument("--workers", type=int, default=2 * CORES + 2)
    p.add_argument("--need-gpu", action="store_true")
    return p.parse_args()


def wanted(only, path):
    return not only or any(o == path or o.startswith(path + "/") or path.startswith(o + "/") for o in only)


def add(a, b):
    return Counts(*(x + y for x, y in zip(a, b)))


def finish(c, may_be_empty=False):
    if c.passed + c.failed == 0 and not may_be_empty:
        print("nothing ran")
        c = Counts(0, 1, c.skipped)
    print(f"{c.passed} passed, {c.failed} failed, {c.skipped} skipped", flush=True)
    return 1 if c.failed else 0


# --- unit: one program a file, each in a folder of its own -------------------------------------------------------------

def waits(program):
    return str(program.relative_to("unit")) in WAITING


def start_units(args, slow, pool, beside):
    """[(program, future)]. beside: for those that wait."""
    programs = [ROOT / args.build / "unit" / f.relative_to("tests/unit").with_suffix("")
                for f in sorted(pathlib.Path("tests/unit").rglob("*.c"))
                if wanted(args.only, str(f.with_suffix("").relative_to("tests")))]
    names = [p.relative_to(ROOT / args.build) for p in programs]
    return [(name, (beside if waits(name) else pool).submit(run_unit, p, 300 * slow)) for name, p in zip(names, programs)]


def count_units(units):
    total = Counts(0, 0, 0)
    for name, future in units:
        counts, output = future.result()
        if counts.failed:
            print(f"--- {name}\n{output}")
            print(f"FAILED {name}: {counts.failed} of {sum(counts)}", flush=True)
        for line in re.findall(r"^\[  SKIPPED \] (?!\d+ test)(.*)$", output, re.M):
            print(f"skipped: {name}: {line}")
        total = add(total, counts)
    print(f"unit: {len(units)} programs, {total.passed} passed, {total.failed} failed, {total.skipped} skipped", flush=True)
    return total


def run_unit(program, limit_s):
    """cmocka's own marks are counted; a program that dies without one counts as one failure."""
    env = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", CMOCKA_MESSAGE_OUTPUT="STDOUT",
               UBSAN_OPTIONS="print_stacktrace=1", MIRROR_SOURCE=str(ROOT))
    with tempfile.TemporaryDirectory(prefix="mirror-unit-") as folder:
        env["TMPDIR"] = folder
        try:
            child = subprocess.Popen([program], cwd=folder, env=env, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as why:
            return Counts(0, 1, 0), str(why)
        try:
            output, _ = child.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            output, _ = child.communicate()
            output += f"\ntook longer than {limit_s} s\n".encode()
    text = output.decode(errors="replace")
    passed = len(re.findall(r"^\[       OK \] ", text, re.M))
    skipped = len(re.findall(r"^\[  SKIPPED \] (?!\d+ test)", text, re.M))
    failed = len(set(re.findall(r"^\[  FAILED  \] (?!\d+ test)(.*)$", text, re.M)))
    unclean = child.returncode != 0 or "runtime error: " in text
    return Counts(passed, failed or int(unclean), skipped), text


# --- pytest: whole programs on loopback --------------------------------------------------------------------------------

def compile_tests():
    """Every worker imports every test, and rewriting the asserts takes most of that. It is done once, beside the unit programs; the
    workers read the bytecode."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.Popen([sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider",
                             *all_folders()], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL)


def all_folders():
    return [f"tests/{f}" for f in PYTEST_FOLDERS if pathlib.Path("tests", f).is_dir()]


def run_pytest(args, slow):
    paths = [f"tests/{o}" for o in args.only if o.split("/")[0] in PYTEST_FOLDERS]
    paths = paths or all_folders()
    report = ROOT / args.build / "pytest.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(args.workers), "--dist", "loadgroup",
               "--timeout", str(900 * slow), "--tb=short", "--no-header", "-p", "no:cacheprovider",
               "--junitxml", str(report), "-k", args.k, *paths]
    env = dict(os.environ, MIRROR_BUILD=str(ROOT / args.build), MIRROR_SLOW=str(slow), PYTHONDONTWRITEBYTECODE="1")
    report.unlink(missing_ok=True)
    rc = subprocess.run(command, env=env, stdin=subprocess.DEVNULL).returncode
    if not report.exists():
        return Counts(0, 1, 0)
    passed = failed = skipped = 0
    took = []
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        took.append((float(case.get("time", 0)), f"{case.get('classname')}.{case.get('name')}"))
        if kinds & {"failure", "error"}:
            failed += 1
        elif "skipped" in kinds:
            skipped += 1
            print(f"skipped: {case.get('classname')}.{case.get('name')}: {case.find('skipped').get('message')}")
        else:
            passed += 1
    for seconds, name in sorted(took, reverse=True)[:SLOWEST]:
        print(f"slow: {seconds:.0f} s {name}")
    if rc not in (0, 1, 5) and not failed:  # interrupted, or pytest itself broke
        failed = 1
    return Counts(passed, failed, skipped)


if __name__ == "__main__":
    sys.exit(main())
