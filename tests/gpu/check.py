#!/usr/bin/env python3
"""check.py - everything that a GPU is asked, in one go: `make gpu-check`, or alone beside a kit (`make gpu-kit`).

  check.py [--build DIR] [--quick] [--minutes 9] [--only twins,resume,speed,tables,sanitizer,torch] [--log FILE]
  check.py [--build DIR] --run PROGRAM [ARGUMENT...]       one of the programs, with the libraries that it needs

twins      every operation beside its CPU meaning, tiny models trained on both, a run repeated to the bit
resume     a training that was stopped and resumed equals the unbroken one, to the bit
speed      whole steps of ours
tables     each operation of two models by itself; those that memory binds beside a copy
sanitizer  compute-sanitizer: memory on the tiny models and on all operations, races in those that share memory
torch      PyTorch's whole steps on the same shapes, when python3 has it

The cheapest and most telling comes first. Each part has a time limit of its own, and all together --minutes: what finds no
time left says so, and a part that hangs is stopped. --quick is a minute, three where a cold disk has CUDA's libraries to
read first: one shape of each operation, and one small training. The table comes last, with the rows that failed; --log
keeps everything.
Exit 1 when correctness failed; speed is told, not judged. Without a GPU it says so and exits 0; with one that our programs
cannot use it exits 1.
"""
import argparse
import glob
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
PEAK_FLOPS = {"H100": 989.5e12, "H200": 989.5e12, "A100": 312e12}  # dense bf16, by the datasheets
# name, batch, seq, tokens/s below which something is wrong on an H200, operations a token by PaLM's count
SHAPES = (("gpt2-124m", 64, 1024, 550e3, 0.860e9), ("llama-1b", 8, 4096, 60e3, 9.026e9),
          ("gpt2-1558m", 16, 1024, 55e3, 10.289e9))
PARTS = ("twins", "resume", "speed", "tables", "sanitizer", "torch")
QUICK = ("twins", "training")
NEAR_COPY = ("norm backward", "cross-entropy")  # within 1.15 of a copy's time
SHARING = ("attention, our own", "attention, one more", "layernorm", "bias", "crossentropy", "crossentropy, cut", "embedding",
           "reduce, clip")
FAILURES_TOLD = 24  # lines: what comes back of a run may be its last pages alone
END_S = 10  # a program that was killed is given so long to go


def library_folders(build):
    """A kit's own libraries, then those of Python's CUDA packages, then what was set. Never a folder of link-time stubs."""
    site = [p for p in sys.path if p.endswith("-packages")]
    pip = sorted({os.path.dirname(f) for p in site for f in glob.glob(f"{p}/nvidia/**/lib*.so*", recursive=True)})
    set_before = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return [str(build / "lib"), *(p for p in (*pip, *set_before) if "/stubs" not in p)]


class Session:
    """Programs under a common deadline, and the rows of the table."""

    def __init__(self, build, minutes, quick=False, log=None):
        self.build, self.deadline, self.quick, self.log = build, time.monotonic() + 60 * minutes, quick, log
        self.rows, self.failures, self.rates, self.failed = [], [], {}, False
        self.env = dict(os.environ, LD_LIBRARY_PATH=":".join(filter(None, library_folders(build))))

    def say(self, text=""):
        print(text, flush=True)
        if self.log:
            print(text, file=self.log, flush=True)

    def run(self, command, limit_s, env=None, show=False):
        """Exit status and output; a status of None says that time ran out. With `show` lines are printed as they come."""
        limit_s = min(limit_s, self.deadline - time.monotonic())
        if limit_s < 5:
            return None, "no time left"
        p = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             env=env or self.env, start_new_session=True)
        lines, ends = [], time.monotonic() + limit_s

        def read():
            for line in p.stdout:
                text = line.decode(errors="replace").rstrip("\n")
                lines.append(text)
                if show:
                    self.say(text)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        reader.join(max(0, ends - time.monotonic()))
        stopped = reader.is_alive()
        if not stopped:
            try:
                p.wait(max(0.1, ends - time.monotonic()))
            except subprocess.TimeoutExpired:
                stopped = True
        if stopped:
            self.end(p, lines)
            reader.join(END_S)
            lines.append(f"stopped after {limit_s:.0f} s")
        return None if stopped else p.returncode, "\n".join(lines)

    @staticmethod
    def end(p, lines):
        """A process in a call to a driver that is stuck may outlive its SIGKILL: nobody waits for it."""
        try:
            os.killpg(p.pid, signal.SIGKILL)
            p.wait(END_S)
        except ProcessLookupError:
            pass
        except subprocess.TimeoutExpired:
            lines.append("its process cannot be ended: the device hangs")

    def row(self, what, verdict, note=""):
        self.rows.append((what, verdict, note))
        self.failed |= verdict == "FAILED"
        self.say(f"-- {what}: {verdict} {note}")


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1][:200] if lines else "it said nothing"


def last_json(text):
    for line in reversed(text.strip().splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    return None


def ended(rc):
    """How a program ended, when its status says more than its last line."""
    return f" (signal {-rc})" if rc is not None and rc < 0 else f" (status {rc})" if rc else ""


def judge(s, what, rc, output):
    """A program that had to be stopped failed; one that had no time at all did not."""
    hung = rc is None and output != "no time left"
    s.row(what, "ok" if rc == 0 else "FAILED" if rc is not None or hung else "no time",
          "" if rc == 0 else last_line(output) + ended(rc))


# --- what is there ------------------------------------------------------------------------------------------------------

def gpu_is_there():
    return any(os.path.exists(f"/dev/nvidia{n}") for n in range(16)) or os.path.exists("/dev/dxg")


def describe(s):
    """What a fault is asked about first. A line each, and none for what is missing."""
    def first(command):
        try:
            return s.run(command, 20, os.environ)[1].strip().splitlines()[0][:160]
        except (OSError, IndexError):
            return "not here"
    s.say("driver   " + first(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,memory.used,compute_mode,mig.mode.current",
                               "--format=csv,noheader"]))
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    s.say("nvcc     " + (s.run([nvcc, "--version"], 20)[1].strip().splitlines() or ["?"])[-1] if os.access(nvcc, os.X_OK)
          else "nvcc     not here")
    for name in ("libcublasLt.so", "libcudnn.so", "libcuda.so.1"):
        found = [f for p in s.env["LD_LIBRARY_PATH"].split(":") for f in sorted(glob.glob(f"{p}/{name}*"))]
        s.say(f"{name:<16} {found[0] if found else 'as the linker finds it'}")


# --- correctness --------------------------------------------------------------------------------------------------------

def twins(s, _work):
    rc, output = s.run([s.build / "gpu-check", *(["--quick", "--limit", "60"] if s.quick else [])],
                       120 if s.quick else 240, show=True)
    lines = output.splitlines()
    for i, line in enumerate(lines):
        if "  FAILED" in line:
            s.failures += [line, *(x for x in lines[i + 1:i + 3] if x.startswith("    "))]
    judge(s, "twins", rc, output)


def make_data(s, work):
    words = ("stream", "tile", "warp", "lane", "block", "queue", "shape", "plan")
    draw = random.Random(1)
    (work / "text.txt").write_text(" ".join(draw.choice(words) for _ in range(20000)))
    return s.run([s.build / "trainer", "tokenize", work / "text.txt", "--out", work / "data.bin"], 20)


def train(s, work, dtype, steps, *more):
    return [s.build / "trainer", "train", "--config", "demo", "--device", "cuda", "--dtype", dtype, "--data",
            work / "data.bin", "--batch", 4, "--seq", 64, "--steps", steps, "--log-every", steps, *more]


def training(s, work):
    """A few steps of a small model, the whole program with its files."""
    rc, output = make_data(s, work)
    for dtype in ("f32", "bf16"):
        if rc == 0:
            rc, output = s.run(train(s, work, dtype, 5, "--out", work / f"few-{dtype}"), 30)
    judge(s, "training", rc, output)


def resume(s, work):
    """Twenty steps, and ten and ten: every byte of weights and optimiser the same."""
    rc, output = make_data(s, work)
    if rc != 0:
        judge(s, "resume", rc, output)
        return
    for dtype in ("f32", "bf16"):
        common = train(s, work, dtype, 20, "--save-every", 10, "--deterministic")
        rc, output = s.run([*common, "--out", work / f"whole-{dtype}"], 40)
        if rc == 0:
            part = work / f"part-{dtype}"
            shutil.copytree(work / f"whole-{dtype}" / "checkpoint-10", part / "checkpoint-10")
            rc, output = s.run([*common, "--out", part, "--resume", part / "checkpoint-10"], 40)
        if rc == 0:
            names = [f.name for f in (part / "checkpoint-20").glob("*.safetensors")]
            other = [n for n in names if (part / "checkpoint-20" / n).read_bytes() !=
                     (work / f"whole-{dtype}" / "checkpoint-20" / n).read_bytes()]
            rc, output = (1, f"{', '.join(other) or 'no files'}: not the same bytes") if other or not names else (0, "")
        judge(s, f"resume {dtype}", rc, output)


def sanitizer(s, _work):
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.access(tool, os.X_OK):
        s.row("sanitizer", "skipped", "compute-sanitizer is not here")
        return
    for what, how, rows in (("memory", "memcheck", ["--models"]), ("memory, all", "memcheck", ["--quick"]),
                            ("races", "racecheck", ["--quick", "--only", "+".join(SHARING)])):
        # Libraries ask for what a driver may lack, and are told so: that is no error of ours.
        quiet = ["--report-api-errors", "no"] if how == "memcheck" else []
        rc, output = s.run([tool, "--tool", how, *quiet, "--error-exitcode", 9, s.build / "gpu-check", *rows, "--here"], 60)
        said = [line for line in output.splitlines() if line.startswith("=========")]
        if "not supported" in output:  # some virtual machines: that says nothing of us
            s.row(f"sanitizer {what}", "skipped", last_line(output))
        elif rc is None:  # it may be a hundred times slower
            s.row(f"sanitizer {what}", "no time", last_line(output))
        else:
            s.failures += said[:12] if rc != 0 else []
            judge(s, f"sanitizer {what}", rc, output)


# --- speed --------------------------------------------------------------------------------------------------------------

def ours(s, name, batch, seq):
    rc, output = s.run([s.build / "trainer", "bench", "--config", name, "--batch", batch, "--seq", seq, "--dtype", "bf16",
                        "--device", "cuda", "--steps", 15, "--only", "steps", "--json"], 90)
    found = last_json(output) if rc == 0 else None
    return (found, "") if found else (None, last_line(output) + ended(rc))


def speed(s, _work):
    for name, batch, seq, floor, flop in SHAPES:
        found, why = ours(s, name, batch, seq)
        if found is None:
            s.row(f"speed {name}", "none", why)
            continue
        rate, device = found["tokens_per_s"], found.get("device", "")
        s.rates[name] = rate
        peak = next((v for k, v in PEAK_FLOPS.items() if k in device), None)
        share = f", {100 * rate * flop / peak:.1f} % of the peak" if peak else ""
        s.row(f"speed {name}", "seen", f"{rate:,.0f} tokens/s at {batch} x {seq} (floor {floor:,.0f}){share}; attention by "
              f"{found.get('attention_by', '?')}")


def torch_python(s):
    """A python3 that has PyTorch and sees the GPU, with the environment that it came with."""
    for python in dict.fromkeys(filter(None, (sys.executable, shutil.which("python3")))):
        rc, output = s.run([python, "-c", "import torch; print('yes' if torch.cuda.is_available() else 'no')"], 60,
                           os.environ)
        if rc == 0 and output.split()[-1:] == ["yes"]:
            return python
    return None


def theirs(s, python, name, batch, seq, sdpa, limit_s):
    script = next(p for p in (HERE / "torch_baseline.py", HERE.parent / "bench" / "torch_baseline.py") if p.exists())
    rc, output = s.run([python, script, "--config", name, "--batch", batch, "--seq", seq, "--sdpa", sdpa, "--compile"],
                       limit_s, os.environ)
    found = last_json(output) if rc == 0 else None
    return (found["tokens_per_s"], "") if found else (None, last_line(output) + ended(rc))


def torch(s, _work):
    python, best, notes = torch_python(s), {}, {}
    if python is None:
        s.row("torch", "skipped", "no python3 here has PyTorch that sees the GPU")
        return
    for sdpa in ("cudnn", "flash"):
        for name, batch, seq, *_ in SHAPES:
            rate, why = theirs(s, python, name, batch, seq, sdpa, 75)
            best[name] = max(best.get(name, (0, "")), (rate or 0, sdpa))
            notes[name] = why or notes.get(name, "")
    for name, *_ in SHAPES:
        rate, sdpa = best[name]
        mine = s.rates.get(name)
        if not rate:
            s.row(f"torch {name}", "none", notes[name])
        else:
            s.row(f"torch {name}", "seen" if not mine else "level" if mine >= rate else "below",
                  f"PyTorch's {rate:,.0f} tokens/s ({sdpa})" + (f": ours is {mine / rate:.2f} of it" if mine else ""))


def tables(s, _work):
    for name, batch, seq, *_ in SHAPES[:2]:
        rc, output = s.run([s.build / "trainer", "bench", "--config", name, "--batch", batch, "--seq", seq, "--dtype", "bf16",
                            "--device", "cuda", "--only", "gemm,copy,attention,memory", "--json"], 60)
        found = last_json(output) if rc == 0 else None
        if not found:
            s.row(f"tables {name}", "none", last_line(output) + ended(rc))
            continue
        for r in found["rows"]:
            rate = f"{r['tflops']:8.4g} TFLOP/s" if "tflops" in r else f"{r['gb_per_s']:8.4g} GB/s"
            share = f"  {r['of_copy']:.2f} of copy" if "of_copy" in r else ""
            s.say(f"{r['what']:<20} {r['shape']:>24} {r['ms']:10.4f} ms {rate}{share}")
        near = {r["what"]: r["of_copy"] for r in found["rows"] if r["what"] in NEAR_COPY}
        good = all(near.get(what, 0) >= 1 / 1.15 for what in NEAR_COPY)
        s.row(f"tables {name}", "level" if good else "below",
              ", ".join(f"{what} {share:.2f} of a copy's rate" for what, share in near.items()) +
              f"; attention by {found['attention_by']}")


# --- all of it ----------------------------------------------------------------------------------------------------------

def usable(s):
    """Whether our programs see a GPU; ends the program when they do not."""
    begin = time.monotonic()
    rc, output = s.run([s.build / "gpu-check", "--look"], 120)
    if rc == 0 and "skipped" not in output:
        s.say(f"first look       {time.monotonic() - begin:.0f} s: the libraries load, a kernel runs")
        return
    s.say(last_line(output) + ended(rc))
    if rc == 0 and not gpu_is_there():
        sys.exit(0)
    s.say("gpu-check: FAILED: there is a GPU, and our programs cannot use it")
    sys.exit(1)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    p.add_argument("--minutes", type=float)
    p.add_argument("--quick", action="store_true")
    p.add_argument("--only", type=lambda text: text.split(","))
    p.add_argument("--log", type=lambda path: open(path, "w", encoding="utf-8"))
    p.add_argument("--run", nargs=argparse.REMAINDER)
    args = p.parse_args()
    if args.run:
        build = args.build.resolve()
        os.execve(build / args.run[0], args.run, Session(build, 0).env)
    parts = args.only or (QUICK if args.quick else PARTS)
    if unknown := set(parts) - {*PARTS, *QUICK}:
        p.error(f"no part is called {', '.join(unknown)}")
    s = Session(args.build.resolve(), args.minutes or (3 if args.quick else 9), args.quick, args.log)
    if gpu_is_there():
        describe(s)
    usable(s)
    with tempfile.TemporaryDirectory(prefix="gpu-check-", ignore_cleanup_errors=True) as work:
        for part in (x for x in dict.fromkeys((*QUICK, *PARTS)) if x in parts):
            try:
                globals()[part](s, pathlib.Path(work))
            except (OSError, ValueError, KeyError, IndexError, StopIteration) as e:  # a part's trouble is not the others'
                s.row(part, "FAILED", f"{type(e).__name__}: {e}")
    s.say()
    for line in s.failures[:FAILURES_TOLD]:
        s.say(line[:240])
    if len(s.failures) > FAILURES_TOLD:
        s.say(f"... and {len(s.failures) - FAILURES_TOLD} lines more, above")
    for what, verdict, note in s.rows:
        s.say(f"{what:<18} {verdict:<8} {note}")
    s.say(f"gpu-check: {'FAILED' if s.failed else 'what was asked holds'}")
    sys.stdout.flush()
    os._exit(1 if s.failed else 0)  # a program that nobody can end keeps no thread of ours


if __name__ == "__main__":
    main()
