#!/usr/bin/env python3
"""demo.py - an artifact's whole way, once, on real input: archive -> mirrord -> trainagent -> trainer -> mirrord.

The text is a documentation package of this machine's own Debian archive, whatever its version is today; without an
archive in reach, the project's own pages from a small local origin. KEEP=1 leaves mirrord running at the end.
"""
import argparse
import functools
import hashlib
import http.server
import json
import lzma
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import threading
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))
from harness import registries  # noqa: E402
from harness.mirrord import Mirrord, certificate  # noqa: E402

# Mostly English, in every release, and which of their files are text.
CORPORA = [("perl-doc", "*.pod"), ("git-doc", "*.txt")]
TRAIN_S = 90
CONFIG = """
repo "archive" {{
    protocol = "generic"
    origin = "{origin}"
    rule '\\.deb$|\\.tar$' {{ class = immutable }}
    rule '/by-hash/SHA256/[0-9a-f]+$' {{ class = immutable digest_from = "path" }}
}}
repo "models" {{ protocol = "hosted" }}
"""
JOB = """
mirror = "{mirror}"
artifact "corpus" {{ from = "{path}" sha256 = "{sha256}" unpack = true }}
run {{ command = {{{command}}} }}
publish {{ from = "{{out}}" to = "models/demo/gpt" }}
"""


def say(text=""):
    print(text, flush=True)


class Corpus:
    def __init__(self, path, include, sha256, size, where):
        self.path, self.include, self.sha256, self.size, self.where = path, include, sha256, size, where


# --- where the text comes from -----------------------------------------------------------------------------------------

def from_archive(m, archive):
    """The archive's index, read through mirrord, says which version there is and what its digest must be."""
    index = f"/archive/dists/{archive.release}/{archive.component}/binary-{archive.architecture}/Packages.xz"
    with urllib.request.urlopen(m.url(index), timeout=120) as reply:
        stanzas = lzma.decompress(reply.read()).decode().split("\n\n")
    for package, include in CORPORA:
        for stanza in stanzas:
            if stanza.startswith(f"Package: {package}\n"):
                field = dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line and line[0] != " ")
                return Corpus(f"archive/{field['Filename']}", include, field["SHA256"], int(field["Size"]),
                              f"{package} {field['Version']} of this machine's Debian archive")
    raise SystemExit("demo: the archive has none of " + ", ".join(p for p, _ in CORPORA))


def local_origin(folder):
    """The project's own text behind a plain web server of Python's; returns its URL."""
    with tarfile.open(folder / "pages.tar", "w") as tar:
        for pattern in ("*.md", "docs/**/*.md", "common/**/*.h", "server/**/*.h", "kernels/*.h"):
            for f in sorted(HERE.parent.glob(pattern)):
                tar.add(f, arcname=str(f.relative_to(HERE.parent)).replace("/", "-") + ".text")
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *a: None})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/"


def from_pages(folder):
    data = (folder / "pages.tar").read_bytes()
    return Corpus("archive/pages.tar", "*.text", hashlib.sha256(data).hexdigest(), len(data), "the project's own pages")


# --- the way ------------------------------------------------------------------------------------------------------------

class Demo:
    def __init__(self, folder, build):
        self.folder, self.build = folder, build
        self.env = dict(os.environ, PATH=f"{build}:{os.environ['PATH']}", TRAINAGENT_STATE=str(folder / "agent"))
        self.rows = []

    def start_mirrord(self):
        archive, why = registries.apt_archive()
        if archive:
            origin = archive.url
        else:
            say(f"No package archive in reach ({why}): the corpus is the project's own pages, from a local origin.")
            pages = self.folder / "origin"
            pages.mkdir()
            origin = local_origin(pages)
        self.m = Mirrord(CONFIG.format(origin=origin), cert=certificate(self.folder), folder=self.folder / "mirrord",
                         build=self.build)
        self.m.folder.mkdir()
        self.m.start()
        say(f"mirrord runs at {self.m.url('/')} in front of {origin}")
        self.corpus = from_archive(self.m, archive) if archive else from_pages(self.folder / "origin")
        token = self.folder / "token"
        token.write_text(self.m.token("demo", "publish:models/demo/*", "read:models/*"))
        token.chmod(0o600)
        self.env.update(TRAINAGENT_MIRROR=self.m.url(""), TRAINAGENT_TOKEN_FILE=str(token))

    def agent(self, *args, shelf, name, size=None):
        """One run of trainagent; notes how long it took and what the origin gave for it."""
        before = self.m.metric("mirrord_upstream_bytes_total")
        began = time.monotonic()
        subprocess.run([self.build / "trainagent", *map(str, args)], check=True,
                       env=dict(self.env, TRAINAGENT_CACHE=str(self.folder / shelf)))
        took = time.monotonic() - began
        if size:
            self.note(name, size() if callable(size) else size, took, self.m.metric("mirrord_upstream_bytes_total") - before)

    def note(self, what, size, took_s, upstream):
        self.rows.append((what, f"{size / 1e6:.1f} MB", f"{took_s:.2f} s", f"{size / took_s / 1e6:.0f} MB/s",
                          f"{upstream / 1e6:.1f} MB"))

    def pull_cold(self):
        say(f"\n--- pull: {self.corpus.where}, {self.corpus.size / 1e6:.1f} MB")
        self.agent("pull", f"{self.corpus.path}#sha256={self.corpus.sha256}", "--to", self.folder / "cold", shelf="shelf",
                   name="the corpus, first time", size=self.corpus.size)

    def steps_in_time(self, shape, batch):
        """As many as this machine does in TRAIN_S seconds, by a quick look at its speed."""
        run = subprocess.run([self.build / "trainer", "bench", "--json", "--config", HERE / shape, "--batch", str(batch),
                              "--steps", "20"], check=True, capture_output=True, text=True, env=self.env)
        step_ms = json.loads(run.stdout.splitlines()[-1])["step_ms"]
        return max(100, min(4000, int(TRAIN_S * 1000 / step_ms)))

    def train(self):
        gpu = os.path.exists("/dev/nvidiactl") and (self.build / "trainer-cuda.so").exists()
        shape, batch = ("gpt-gpu.json", 64) if gpu else ("gpt-cpu.json", 16)
        steps = self.steps_in_time(shape, batch)
        say(f"\n--- run: stage, train a small GPT on the {'GPU' if gpu else 'CPU'} for {steps} steps, publish its checkpoint")
        options = ["--steps", steps, "--batch", batch, "--lr", "2e-3" if gpu else "4e-3", "--log-every", max(1, steps // 40),
                   "--val-every", max(1, steps // 4)]
        words = ["sh", HERE / "train.sh", "{corpus}", self.corpus.include, HERE / shape, "{out}", *options]
        job = self.folder / "demo.job"
        job.write_text(JOB.format(mirror=self.m.url(""), path=self.corpus.path, sha256=self.corpus.sha256,
                                  command=", ".join(json.dumps(str(w)) for w in words)))
        self.agent("run", job, shelf="shelf", name="job")

    def pull_warm(self):
        say("\n--- pull again, as another node would: the corpus, then the checkpoint that was just published")
        self.agent("pull", f"{self.corpus.path}#sha256={self.corpus.sha256}", "--to", self.folder / "warm", shelf="shelf-2",
                   name="the corpus, another node", size=self.corpus.size)
        model = self.folder / "model"
        self.agent("pull", "models/demo/gpt", "--to", model, shelf="shelf-2", name="the checkpoint, from the mirror",
                   size=lambda: sum(p.stat().st_size for p in model.rglob("*") if p.is_file()))

    def show(self):
        model = max((p.parent for p in (self.folder / "model").rglob("model.safetensors")), key=str)
        losses = [json.loads(line) for p in (self.folder / "model").rglob("metrics.jsonl") for line in open(p, encoding="utf-8")]
        said = subprocess.run([self.build / "trainer", "sample", "--model", model, "--prompt", "The ", "--tokens", "240"],
                              check=True, capture_output=True, text=True, errors="replace", env=self.env).stdout
        say("\n--- what came from where")
        table = [("what", "size", "took", "speed", "from the origin"), *self.rows]
        widths = [max(len(r[i]) for r in table) for i in range(5)]
        for row in table:
            say("  " + "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))))
        say(f"\n--- loss {losses_of(losses)}")
        say("\n--- a sample of its text, by the checkpoint as pulled from the mirror")
        say("  " + said.strip().replace("\n", "\n  "))


def losses_of(records):
    first = next(r["loss"] for r in records if "loss" in r)
    last = [r for r in records if "val_loss" in r][-1]
    return f"{first:.2f} nats a byte before, {last['val_loss']:.2f} after {last['step']} steps, on files it has not seen"


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--build", default="build")
    build = pathlib.Path(p.parse_args().build).resolve()
    keep = bool(os.environ.get("KEEP"))
    folder = build / "demo"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    demo = Demo(folder, build)
    try:
        demo.start_mirrord()
        demo.pull_cold()
        demo.train()
        demo.pull_warm()
        demo.show()
    except subprocess.CalledProcessError as why:
        raise SystemExit(f"demo: {why.cmd[0].name} {why.cmd[1]} failed ({why.returncode})") from None
    finally:
        if getattr(demo, "m", None) and not keep:
            demo.m.stop()
            say("\nmirrord is stopped; with KEEP=1 it goes on, and its status page can be looked at.")
    if keep:
        say(f"\nThe status page: {demo.m.url('/')}")
        say(f"mirrord goes on as process {demo.m.child.pid}: kill {demo.m.child.pid} ends it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
