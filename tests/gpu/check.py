#!/usr/bin/env python3
"""check.py - everything that a GPU is asked, in one go: `make gpu-check`, or alone beside a kit (`make gpu-kit`).

  check.py [--build DIR] [--minutes 9] [--only twins,resume,speed,sanitizer,tables]

twins      every operation beside its CPU meaning, tiny models trained on both, a run repeated to the bit
resume     a training that was stopped and resumed equals the unbroken one, to the bit
speed      whole steps of ours, then of PyTorch when python3 has it, on the same shapes
sanitizer  compute-sanitizer on the tiny models, when it is there
tables     each operation of two models by itself; those that memory binds beside a copy

Each has a time limit of its own, and all together --minutes: what finds no time left says so. One table comes last.
Exit 1 when correctness failed; speed is told, not judged. Without a GPU it says so and exits 0.
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
import time

HERE = pathlib.Path(__file__).resolve().parent
PEAK_FLOPS = {"H100": 989.5e12, "H200": 989.5e12, "A100": 312e12}  # dense bf16, by the datasheets
# name, batch, seq, tokens/s below which something is wrong on an H200, operations a token by PaLM's count
SHAPES = (("gpt2-124m", 64, 1024, 550e3, 0.860e9), ("llama-1b", 8, 4096, 60e3, 9.026e9),
          ("gpt2-1558m", 16, 1024, 55e3, 10.289e9))
PARTS = ("twins", "resume", "speed", "sanitizer", "tables")
NEAR_COPY = ("norm backward", "cross-entropy")  # within 1.15 of a copy's time



def library_folders(build):
    """A kit's own libraries, then those of Python's CUDA packages, then what was set."""
    site = [p for p in sys.path if p.endswith("-packages")]
    pip = sorted({os.path.dirname(f) for p in site for f in glob.glob(f"{p}/nvidia/**/lib*.so*", recursive=True)})
    return [str(build / "lib"), *pip, *os.environ.get("LD_LIBRARY_PATH", "").split(":")]


class Session:
    """Programs under a common deadline, and the rows of the table."""

    def __init__(self, build, minutes):
        self.build, self.deadline, self.rows, self.failed = build, time.monotonic() + 60 * minutes, [], False
        self.env = dict(os.environ, LD_LIBRARY_PATH=":".join(filter(None, library_folders(build))))

    def run(self, command, limit_s, env=None):
        """Exit status and output; a status of None says that time ran out."""
        limit_s = min(limit_s, self.deadline - time.monotonic())
        if limit_s < 5:
            return None, "no time left"
        p = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             env=env or self.env, start_new_session=True)
        try:
            output = p.communicate(timeout=limit_s)[0]
            return p.returncode, output.decode(errors="replace")
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            return None, p.communicate()[0].decode(errors="replace") + f"\nstopped after {limit_s:.0f} s"

    def row(self, what, verdict, note=""):
        self.rows.append((what, verdict, note))
        self.failed |= verdict == "FAILED"
        print(f"-- {what}: {verdict} {note}", flush=True)


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1][:110] if lines else "it said nothing"


def last_json(text):
    for line in reversed(text.strip().splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    return None


def judge(s, what, rc, output):
    s.row(what, "ok" if rc == 0 else "no time" if rc is None else "FAILED", "" if rc == 0 else last_line(output))


# --- correctness --------------------------------------------------------------------------------------------------------

def twins(s, _work):
    rc, output = s.run([s.build / "gpu-check"], 120)
    print(output, end="")
    judge(s, "twins", rc, output)


def resume(s, work):
    """Twenty steps, and ten and ten: every byte of weights and optimiser the same."""
    words = ("stream", "tile", "warp", "lane", "block", "queue", "shape", "plan")
    draw = random.Random(1)
    (work / "text.txt").write_text(" ".join(draw.choice(words) for _ in range(20000)))
    rc, output = s.run([s.build / "trainer", "tokenize", work / "text.txt", "--out", work / "data.bin"], 20)
    if rc != 0:
        judge(s, "resume", rc, output)
        return
    for dtype in ("f32", "bf16"):
        common = [s.build / "trainer", "train", "--config", "demo", "--device", "cuda", "--dtype", dtype, "--data",
                  work / "data.bin", "--batch", 4, "--seq", 64, "--steps", 20, "--save-every", 10, "--log-every", 20,
                  "--deterministic"]
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
    rc, output = s.run([tool, "--tool", "memcheck", "--error-exitcode", 9, s.build / "gpu-check", "--models"], 90)
    judge(s, "sanitizer", rc, output)


# --- speed --------------------------------------------------------------------------------------------------------------

def ours(s, name, batch, seq):
    rc, output = s.run([s.build / "trainer", "bench", "--config", name, "--batch", batch, "--seq", seq, "--dtype", "bf16",
                        "--device", "cuda", "--steps", 15, "--only", "steps", "--json"], 60)
    found = last_json(output) if rc == 0 else None
    return (found["tokens_per_s"], found.get("device", "")) if found else (None, last_line(output))


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
    return (found["tokens_per_s"], "") if found else (None, last_line(output))


def speed(s, _work):
    mine = {name: ours(s, name, batch, seq) for name, batch, seq, *_ in SHAPES}
    python, best, notes = torch_python(s), {}, {}
    for sdpa in ("cudnn", "flash") if python else ():
        for name, batch, seq, *_ in SHAPES:
            rate, why = theirs(s, python, name, batch, seq, sdpa, 75)
            best[name] = max(best.get(name, (0, "")), (rate or 0, sdpa))
            notes[name] = why if rate is None else notes.get(name, "")
    for name, batch, seq, floor, flop in SHAPES:
        rate, about = mine[name]
        if rate is None:
            s.row(f"speed {name}", "none", about)
            continue
        peak = next((v for k, v in PEAK_FLOPS.items() if k in about), None)
        torch_rate, sdpa = best.get(name, (0, ""))
        words = [f"{rate:,.0f} tokens/s at {batch} x {seq} (floor {floor:,.0f})"]
        words += [f"{100 * rate * flop / peak:.1f} % of the peak"] if peak else []
        words += [f"{rate / torch_rate:.2f} x PyTorch's {torch_rate:,.0f} ({sdpa})"] if torch_rate else [
            "no PyTorch here" if not python else f"PyTorch: {notes.get(name, '')}"]
        s.row(f"speed {name}", "level" if torch_rate and rate >= torch_rate else "below" if torch_rate else "seen",
              ", ".join(words))


def tables(s, _work):
    for name, batch, seq, *_ in SHAPES[:2]:
        rc, output = s.run([s.build / "trainer", "bench", "--config", name, "--batch", batch, "--seq", seq, "--dtype", "bf16",
                            "--device", "cuda", "--only", "gemm,copy,attention,memory", "--json"], 60)
        found = last_json(output) if rc == 0 else None
        if not found:
            s.row(f"tables {name}", "none", last_line(output))
            continue
        for r in found["rows"]:
            rate = f"{r['tflops']:10.4g} TFLOP/s" if "tflops" in r else f"{r['gb_per_s']:10.4g} GB/s"
            share = f"  {r['of_copy']:.2f} of copy" if "of_copy" in r else ""
            print(f"{r['what']:<20} {r['shape']:>28} {r['ms']:12.4f} ms {rate}{share}")
        near = {r["what"]: r["of_copy"] for r in found["rows"] if r["what"] in NEAR_COPY}
        good = all(near.get(what, 0) >= 1 / 1.15 for what in NEAR_COPY)
        s.row(f"tables {name}", "level" if good else "below",
              ", ".join(f"{what} {share:.2f} of a copy's rate" for what, share in near.items()) +
              f"; attention by {found['attention_by']}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    p.add_argument("--minutes", type=float, default=9)
    p.add_argument("--only", default=",".join(PARTS), type=lambda text: text.split(","))
    args = p.parse_args()
    if unknown := set(args.only) - set(PARTS):
        p.error(f"no part is called {', '.join(unknown)}")
    s = Session(args.build.resolve(), args.minutes)
    rc, output = s.run([s.build / "gpu-check", "--look"], 60)
    if rc != 0 or "skipped" in output:
        print(last_line(output))
        sys.exit(0 if "skipped" in output else 1)
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as work:
        for part in PARTS:
            if part not in args.only:
                continue
            try:
                globals()[part](s, pathlib.Path(work))
            except (OSError, ValueError, KeyError, IndexError) as e:  # a part's trouble is not the others'
                s.row(part, "FAILED", f"{type(e).__name__}: {e}")
    print()
    for what, verdict, note in s.rows:
        print(f"{what:<18} {verdict:<8} {note}")
    print(f"gpu-check: {'FAILED' if s.failed else 'what was asked holds'}")
    sys.exit(1 if s.failed else 0)


if __name__ == "__main__":
    main()
