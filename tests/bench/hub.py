"""hub.py - mirrord as a mirror of the Hugging Face Hub beside nginx, that has the same files as its own, and Olah.

The Hub is the fixture of the tests, on loopback. mirrord and Olah are filled from it by a client; nginx gets files in a
folder, and says of them what the client needs: a commit, an ETag, a length. Each has core 0, clients have core 1. The client
of a snapshot is the newest huggingface_hub of this machine's package index; where it or Olah cannot be installed, its
cells say so.
"""
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time

import peers
from harness import hub as fixture
from harness.hub import Big, Hub, read, size_of

SMALL_FILES, SMALL_MAX_BYTES = 1000, 16 << 10
LARGE_FILES = 10
FOUR_MIB = "vision.safetensors"
REPO, FEW = "org/many", "org/few"
PART = 20  # Olah needs a quarter of a second for a file: it is asked for a twentieth of them
CONNECTIONS = 32
RUNS = 3
TOKEN = "hf_" + "t" * 34
NGINX = """access_log off; types {{ }} default_type application/octet-stream;
  server {{ """ + peers.LISTEN + """ root {www}; add_header X-Repo-Commit {sha};
    location /api/ {{ default_type application/json; }} }}"""
SNAPSHOT = """
import json, os, resource, sys, time
from huggingface_hub import snapshot_download
began = time.monotonic()
path = snapshot_download(sys.argv[1], max_workers=8)
took_s = time.monotonic() - began
files = [os.path.join(at, f) for at, _, names in os.walk(path) for f in names]
print(json.dumps({"took_s": took_s, "files": len(files), "bytes": sum(os.path.getsize(f) for f in files)}))
"""


class Missing(Exception):
    """Something cannot be installed here; why."""


def venv(build, package):
    """The newest of it, in an environment of its own that stays with the build."""
    folder = build / "venvs" / f"bench-{package}"
    if not (folder / "ready").exists():
        for step in ([sys.executable, "-m", "venv", "--clear", folder], [folder / "bin/pip", "install", "-q", package]):
            done = subprocess.run([*map(str, step)], capture_output=True, text=True, check=False, timeout=600)
            if done.returncode != 0:
                raise Missing(f"{package} cannot be installed: {(done.stderr.strip().splitlines() or ['?'])[-1][:160]}")
        (folder / "ready").write_text("")
    return folder / "bin"


def prepare(build):
    """While the package index is in reach, which it is not from a network namespace."""
    for package in ("huggingface_hub", "olah"):
        try:
            venv(build, package)
        except Missing as why:
            print(f"bench: {why}", file=sys.stderr)


def version(bins, package):
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([bins / "python", "-c", code], capture_output=True, text=True, check=True).stdout.strip()


# --- the files ---------------------------------------------------------------------------------------------------------

def files(count, large_files, large_bytes):
    rng = random.Random(count)
    small = {f"data/{i // 100:02d}/part-{i:04d}.json": rng.randbytes(rng.randrange(1000, SMALL_MAX_BYTES)) for i in range(count)}
    large = {f"model-{i:05d}-of-{large_files:05d}.safetensors": Big(large_bytes, i) for i in range(1, large_files)}
    return small | large | {FOUR_MIB: Big(4 << 20, count)}


def lay_out(www, sha, have, documents):
    """For nginx. Its ETags are time and length, and two files of one ETag are one blob to the client: so times differ."""
    for i, (path, data) in enumerate(have.items()):
        to = www / REPO / "resolve" / sha / path
        to.parent.mkdir(parents=True, exist_ok=True)
        with open(to, "wb") as f:
            for at in range(0, size_of(data), 1 << 20):
                f.write(read(data, at, min(size_of(data), at + (1 << 20))))
        os.utime(to, (1_700_000_000 + i,) * 2)
    for path, text in documents.items():
        (www / path).parent.mkdir(parents=True, exist_ok=True)
        (www / path).write_bytes(text)


# --- the servers -------------------------------------------------------------------------------------------------------

class Olah(peers.Server):
    """One worker; what it knows of a repository is good for as long as an alias is with us."""

    def __init__(self, bins, folder, hub, port):
        command = ["env", "-C", folder, bins / "olah-cli", "--host", "127.0.0.1", "--port", port, "--hf-scheme", "http", "--hf-netloc",
                   f"127.0.0.1:{hub.port}", "--hf-lfs-netloc", f"127.0.0.2:{hub.cdn_port}", "--repos-path", folder / "repos",
                   "--log-path", folder / "logs", "--metadata-cache-ttl", 60]
        super().__init__(f"Olah {version(bins, 'olah')}", command, {"h1": port})


class Counter:
    """What the Hub was asked since the last look."""

    def __init__(self, hub):
        self.hub = hub
        self.forget()

    def forget(self):
        with self.hub.lock:
            self.hub.calls.clear()
            self.hub.cdn_calls.clear()
            self.hub.cdn_bytes.clear()

    def cells(self, large):
        api = len(self.hub.api_calls())
        cells = (f"{api:,} | {len(self.hub.calls) - api:,} | {len(self.hub.cdn_calls):,} | "
                 f"{sum(self.hub.cdn_bytes.values()) / large:.2f}")
        self.forget()
        return cells


class Yard:
    """All of them, and the client."""

    def __init__(self, folder, build, cert, large_bytes):
        self.folder, self.build, self.servers = folder, build, []
        self.www, self.run = folder / "www", folder / "run"
        for path in (self.www, self.run, folder / "mirrord", folder / "olah"):
            path.mkdir()
        self.why_no_olah = None
        self.bins = venv(build, "huggingface_hub")
        fixture.SMALL = SMALL_MAX_BYTES  # as on the real Hub, text is no LFS file only for having a few kilobytes
        self.hub = Hub()
        self.hub.users[TOKEN] = "bench"
        self.repo = self.hub.repo(REPO, files=files(SMALL_FILES, LARGE_FILES, large_bytes))
        self.few = self.hub.repo(FEW, files=files(SMALL_FILES // PART, 1, large_bytes))
        self.have, self.sha = self.repo.commits[self.repo.sha], self.repo.sha
        self.counter = Counter(self.hub)
        self.ours = self.keep(peers.MirrordServer(folder / "mirrord", cert, build, self.hub.config(), "/hf"))
        try:
            self.olah = self.keep(Olah(venv(build, "olah"), folder / "olah", self.hub, 18380))
        except Missing as why:
            self.olah, self.why_no_olah = None, str(why)
        self.cert = cert
        self.nginx = None

    def keep(self, server):
        self.servers.append(server)
        return server

    def start_nginx(self):
        """With our own documents: none of them leads away."""
        api = f"api/models/{REPO}"
        documents = {f"{api}/revision/main": self.ours.m.get(f"/hf/{api}/revision/main").body,
                     f"{api}/tree/{self.sha}": self.ours.m.get(f"/hf/{api}/tree/{self.sha}?recursive=true&expand=false").body}
        lay_out(self.www, self.sha, self.have, documents)
        ports = {"h1": 18080, "h2": 18443, "h2c": 18081}
        conf = self.run / "nginx.conf"
        conf.write_text(peers.NGINX.format(
            name="nginx", run=self.run, cert=self.cert[0], key=self.cert[1], user="user root;" if os.geteuid() == 0 else "",
            nopush="on", body=NGINX.format(www=self.www, sha=self.sha, **ports)))
        self.nginx = self.keep(peers.Server("nginx", ["nginx", "-p", self.run, "-c", conf], ports))

    def measured(self):
        return [s for s in (self.ours, self.nginx, self.olah) if s is not None]

    def repo_of(self, server):
        return self.few if server is self.olah else self.repo

    def snapshot(self, server, repo):
        """(seconds, CPU seconds of the server); the client's own cache is a new one."""
        home = self.folder / "home"
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1",
               "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
               "HF_ENDPOINT": f"http://127.0.0.1:{server.ports['h1']}{server.prefix}", "HF_HUB_DOWNLOAD_TIMEOUT": "60",
               "HF_HUB_ETAG_TIMEOUT": "60"}
        home.mkdir()
        try:
            before = server.cpu_s()
            done = subprocess.run(["taskset", "-c", peers.CLIENT_CORE, self.bins / "python", "-c", SNAPSHOT, repo.name], env=env,
                                  capture_output=True, text=True, timeout=600, check=False)
            if done.returncode != 0:
                raise SystemExit(f"bench: the snapshot from {server.name} failed: {done.stderr[-2000:]}")
            got = json.loads(done.stdout.splitlines()[-1])
            now = repo.commits[repo.sha]
            if (got["files"], got["bytes"]) != (len(now), sum(map(size_of, now.values()))):
                raise SystemExit(f"bench: the snapshot from {server.name} is not whole: {got}")
            return got["took_s"], server.cpu_s() - before
        finally:
            shutil.rmtree(home, ignore_errors=True)

    def stop(self):
        for server in reversed(self.servers):
            if isinstance(server, Olah):
                server.child.send_signal(signal.SIGINT)
            server.stop()
        self.hub.close()


# --- what the Hub is asked ---------------------------------------------------------------------------------------------

def say(rows):
    for row in rows:
        print(row, file=sys.stderr, flush=True)
    return rows


def asked(y, what):
    """A snapshot of the small repository each; what the Hub saw of it."""
    large = sum(size_of(d) for d in y.few.commits[y.few.sha].values() if isinstance(d, Big))
    rows = []
    for server in (y.ours, y.olah):
        if server is not None:
            y.counter.forget()
            took_s, _ = y.snapshot(server, y.few)
            rows += say([f"| {what} | {server.name} | {took_s:.1f} s | {y.counter.cells(large)} |"])
    y.ours.m.settle()
    return rows


ASKED = [f"What the Hub is asked for a repository of {SMALL_FILES // PART} small files and a large one:\n",
         "| snapshot | server | time | API calls | for files | at the CDN | CDN bytes / bytes |", "|---|---|---|---|---|---|---|"]


def new_commit(y):
    """A branch is looked at again when it has been known for a minute: we wait for that."""
    y.few.commit({"data/00/part-0000.json": b"news" * 100})
    time.sleep(61)
    return asked(y, "a new commit, one small file of it new")


# --- rates -------------------------------------------------------------------------------------------------------------

class Load:
    """One kind of requests: run() gives (requests, bytes, seconds)."""

    def __init__(self, what, wire, run, bulk=False):
        self.what, self.wire, self.run, self.bulk = what, wire, run, bulk


def by_asks(y, paths, seconds, clients, *flags):
    """paths: of a repository, as this server has it. Olah has none done in three seconds when 32 ask."""
    def run(server):
        shape = ["-n", 4, "-d", 5] if server is y.olah else ["-n", clients, "-d", seconds]
        file = y.run / "paths"
        file.write_text("".join(f"{server.prefix}{p}\n" for p in paths(server)))
        command = [y.build / "bench/asks", *shape, *flags, server.ports["h1"], file]
        done = subprocess.run(["taskset", "-c", peers.CLIENT_CORE, *map(str, command)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"bench: {server.name}: {done.stderr}")
        got = json.loads(done.stdout)
        return got["requests"], got["bytes"], got["took_s"]
    return run


def by_h2load(y, paths, seconds):
    def run(server):
        file = y.run / "urls"
        file.write_text("".join(f"https://127.0.0.1:{server.ports['h2']}{server.prefix}{p}\n" for p in paths(server)))
        command = ["h2load", "-t1", f"-c{CONNECTIONS}", "-m8", "-D", seconds, "--warm-up-time=0", "-H", ":method: HEAD", "-i", file]
        text = subprocess.run(["taskset", "-c", peers.CLIENT_CORE, *map(str, command)], capture_output=True, text=True,
                              check=False).stdout
        done = [line for line in text.splitlines() if line.startswith("requests:")]
        if not done or " 0 failed" not in done[0]:
            raise SystemExit(f"bench: {server.name}: {text}")
        return int(done[0].split("done, ")[1].split()[0]), 0, float(seconds)
    return run


def loads(y, seconds):
    def resolve(server, path):
        repo = y.repo_of(server)
        return f"/{repo.name}/resolve/{repo.sha}/{path}"

    def every(server):
        return [resolve(server, p) for p in y.repo_of(server).commits[y.repo_of(server).sha]]

    def small(server):
        repo = y.repo_of(server)
        return [resolve(server, p) for p, d in repo.commits[repo.sha].items() if not isinstance(d, Big)]

    def four_mib(server):
        return [resolve(server, FOUR_MIB)]

    def listing(server):
        slash = "/" if server is y.olah else ""  # it redirects from a listing without
        return [f"/api/models/{y.repo_of(server).name}/tree/{y.repo_of(server).sha}{slash}?recursive=true&expand=false"]

    heads = [CONNECTIONS, "-I"]
    return [
        Load("HEAD of every file, HTTP/1.1", "h1", by_asks(y, every, seconds, *heads)),
        Load("the same, with a token", "h1", by_asks(y, every, seconds, *heads, "-H", f"Authorization: Bearer {TOKEN}")),
        Load("the same, HTTP/2 and TLS", "h2", by_h2load(y, every, seconds)),
        Load("GET of the small files", "h1", by_asks(y, small, seconds, CONNECTIONS)),
        Load("GET of 4 MiB, 16 at once", "h1", by_asks(y, four_mib, seconds, 16), bulk=True),
        Load(f"the listing, {len(y.have):,} entries", "h1", by_asks(y, listing, seconds, 4)),
    ]


def cell(runs, bulk):
    """runs: (requests, bytes, seconds, CPU seconds)."""
    if bulk:
        rate = statistics.median(b / s for _, b, s, _ in runs) / 1e9
        return f"{rate:.2f} GB/s ({statistics.median(c / b for _, b, _, c in runs) * 1e9:.3f} s/GB)"
    rate = statistics.median(n / s for n, _, s, _ in runs)
    return f"{rate:,.0f}/s ({cost(runs, False) * 1e6:,.1f} µs)"


def cost(runs, bulk):
    return statistics.median(c / (b if bulk else n) for n, b, _, c in runs)


def one(load, server):
    before = server.cpu_s()
    got = load.run(server)
    return (*got, server.cpu_s() - before)


def rates(y, rounds, seconds):
    rows = []
    for load in loads(y, seconds):
        runs = {s: [] for s in y.measured() if load.wire in s.ports}
        for i in range(rounds):
            for server, of in runs.items():
                if i == 0 or server is not y.olah:
                    of.append(one(load, server))
        rows += say([row(y, load.what, {s: (cell(r, load.bulk), cost(r, load.bulk)) for s, r in runs.items()})])
    return rows


def row(y, what, got):
    """got: of a server (its cell, its cost); ratios are the peer's CPU over ours."""
    cells = [got[s][0] if s in got else "" for s in (y.ours, y.nginx, y.olah)]
    ratios = [f"{got[s][1] / got[y.ours][1]:.2f}" if s in got else "" for s in (y.nginx, y.olah)]
    return f"| {what} | " + " | ".join(cells + ratios) + " |"


def snapshots(y, rounds):
    """Requests are the two listings, and a HEAD and a GET of each file."""
    size = sum(map(size_of, y.have.values()))
    got = {s: [y.snapshot(s, y.repo_of(s)) for _ in range(1)] for s in y.measured()}
    for _ in range(rounds - 1):
        for server in (y.ours, y.nginx):
            got[server].append(y.snapshot(server, y.repo))
    cells = {}
    for server, runs in got.items():
        took_s, cpu_s = (statistics.median(v) for v in zip(*runs))
        a_request = cpu_s / (2 + 2 * len(y.repo_of(server).commits[y.repo_of(server).sha]))
        part = "a twentieth of it: " if server is y.olah else ""
        cells[server] = (f"{part}{took_s:.1f} s ({a_request * 1e6:,.0f} µs a request)", a_request)
    return say([row(y, f"snapshot of {SMALL_FILES:,} small and {LARGE_FILES} large files, {size / 1e6:,.0f} MB", cells)])


def memory(y):
    return say([row(y, "memory after all that (Pss)",
                    {s: (f"{s.memory_bytes() / (1 << 20):.0f} MiB", s.memory_bytes()) for s in y.measured()})])


def table(folder, build, cert, quick):
    """The section's text."""
    folder = folder / "hub"
    folder.mkdir(mode=0o755)
    seconds = 1 if quick else 2
    try:
        y = Yard(folder, build, cert, (4 if quick else 32) << 20)
    except Missing as why:
        return f"Not measured: {why}."
    try:
        about = asked(y, "cold") + asked(y, "again, by a new client")
        for _ in range(2):  # what a fill still has to give is not resolved yet
            y.snapshot(y.ours, y.repo)
            y.ours.m.settle()
        y.start_nginx()
        head = [f"| warm | mirrord | nginx | {y.olah.name if y.olah else 'Olah'} | x nginx | x Olah |", "|---|---|---|---|---|---|"]
        rows = snapshots(y, 1 if quick else 2) + rates(y, RUNS, seconds) + memory(y)
        about += [] if quick else new_commit(y)
        note = [f"\nNo Olah: {y.why_no_olah}."] if y.why_no_olah else []
        client = f"The client of the snapshots is huggingface_hub {version(y.bins, 'huggingface_hub')}, 8 files at once.\n"
    finally:
        y.stop()
    return "\n".join([client, *head, *rows, "", *ASKED, *about, *note])
