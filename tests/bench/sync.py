"""sync.py - mirrord beside the rsync program, both fed by the same rsync daemon over loopback: time, bytes, CPU, memory.

The tree is research's: files of 140 bytes, a hundred a folder. rsync copies it as mirrors do (-rltH --delete-delay, the whole
list at once); mirrord takes it into its store. They take turns, A B B A, after the same change of the source; ratios are medians of
those pairs. rsync makes nothing durable unless told to (--fsync), mirrord syncs and hashes every byte.
"""
import contextlib
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from harness.mirrord import Mirrord
from harness.rsyncd import Rsyncd, free_port

FILES, FEWER_FILES, FILE_BYTES, A_FOLDER = 100_000, 20_000, 140, 100
BLOCK = 128 << 10
LISTERS = 8
PROBE = "stamp"
RSYNC = ["rsync", "-rltH", "--delete-delay", "--no-inc-recursive"]


# --- the source --------------------------------------------------------------------------------------------------------

def write_tree(root, count, size, seed=1):
    rng, began = random.Random(seed), 1_700_000_000
    for i in range(count):
        if i % A_FOLDER == 0:
            folder = root / "pool" / f"{i // 10_000:03d}" / f"{i // A_FOLDER % 100:02d}"
            folder.mkdir(parents=True)
        with open(folder / f"pkg-{i:07d}_1.{i % 7}.bin", "wb") as f:
            f.write(rng.randbytes(size))
            os.utime(f.fileno(), (began + i, began + i))
    (root / PROBE).write_bytes(b"0")


class Changes:
    """What happens to the source between two runs: each file and each block at most a few times, all of them scattered."""

    def __init__(self, root, files, large):
        self.root, self.files, self.large, self.rng, self.turn = root, files, large, random.Random(7), 0

    def stamp(self):
        self.turn += 1
        (self.root / PROBE).write_text(f"{self.turn:08d}")
        os.utime(self.root / PROBE, (1_800_000_000 + self.turn,) * 2)

    def some_files(self):
        for i in self.rng.sample(range(self.files), self.files // 100):
            path = self.root / "pool" / f"{i // 10_000:03d}" / f"{i // A_FOLDER % 100:02d}" / f"pkg-{i:07d}_1.{i % 7}.bin"
            path.write_bytes(self.rng.randbytes(FILE_BYTES))
            os.utime(path, (1_800_000_000 + self.turn,) * 2)
        self.stamp()

    def some_blocks(self):
        blocks = self.large.stat().st_size // BLOCK
        with open(self.large, "r+b") as f:
            for at in self.rng.sample(range(blocks), blocks // 100):
                f.seek(at * BLOCK)
                f.write(self.rng.randbytes(BLOCK))
        self.turn += 1
        os.utime(self.large, (1_800_000_000 + self.turn,) * 2)


# --- what a process took -----------------------------------------------------------------------------------------------

def stat_s(pid, children):
    """CPU of a process, threads that ended included; of its children that were waited for."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    ticks = fields[13:15] if children else fields[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def status_kib(pid, name):
    with contextlib.suppress(OSError):
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1])
    return 0


def fresh_peak(pid):
    """The peak begins anew; returns what the process has now, in KiB."""
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
    return status_kib(pid, "VmRSS")


def synced(m, repo, want, *flags):
    done = json.loads(m.ctl("--json", "sync", "run", repo, "--wait", *flags, limit_s=3600).stdout)
    if done["outcome"] != want:
        raise SystemExit(f"bench: the run ended as {done['outcome']}: {done['why']}")


class Visits:
    """What the daemon's log tells of the visits from here on: bytes sent and received."""

    def __init__(self, daemon):
        self.daemon, self.began = daemon, len(daemon.log())

    def wire_bytes(self):
        """It writes when a visit is over, maybe a moment after the client has left."""
        end = time.monotonic() + 5
        while True:
            log = self.daemon.log()[self.began:]
            ended = re.findall(r"sent (\d+) bytes +received (\d+) bytes", log)
            if len(ended) >= log.count("] rsync on ") or time.monotonic() > end:
                return sum(int(n) for pair in ended for n in pair)
            time.sleep(0.02)


class Took:
    """One run: seconds, CPU seconds here and at the daemon, bytes that the daemon sent and got, peak memory."""

    def __init__(self, wall_s, cpu_s, daemon_s, wire, memory):
        self.wall_s, self.cpu_s, self.daemon_s, self.wire, self.memory = wall_s, cpu_s, daemon_s, wire, memory


class Theirs:
    """The rsync program into a folder."""
    name = "rsync"

    def __init__(self, daemon, to):
        self.daemon, self.to = daemon, to
        to.mkdir()

    def run(self, *flags, module="m", to=None):
        visits, daemon_s = Visits(self.daemon), stat_s(self.daemon.process.pid, True)
        began = time.monotonic()
        child = subprocess.Popen([*RSYNC, *flags, f"{self.daemon.url}/{module}/", f"{to or self.to}/"], stdin=subprocess.DEVNULL)
        peaks, over = {}, threading.Event()
        watch = threading.Thread(target=self.watch, args=(child.pid, peaks, over))
        watch.start()
        _, status, used = os.wait4(child.pid, 0)
        wall_s = time.monotonic() - began
        over.set()
        watch.join()
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            raise SystemExit(f"bench: rsync ended with {child.returncode}")
        return Took(wall_s, used.ru_utime + used.ru_stime, stat_s(self.daemon.process.pid, True) - daemon_s,
                    visits.wire_bytes(), sum(peaks.values()) * 1024)

    @staticmethod
    def watch(pid, peaks, over):
        """Generator and receiver are two processes; what they share is counted twice, as it is for everybody."""
        while not over.wait(0.02):
            with contextlib.suppress(OSError):
                children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
                for p in [pid, *map(int, children)]:
                    if pathlib.Path(f"/proc/{p}/comm").read_text() == "rsync\n":  # not we, about to be it
                        peaks[p] = max(peaks.get(p, 0), status_kib(p, "VmHWM"))


class Ours:
    """mirrord: `repo` follows the module of that name; the full list unless `probe`."""
    name = "mirrord"

    def __init__(self, daemon, folder, build, modules):
        folder.mkdir()
        repos = "\n".join(f'repo "{name}" {{ protocol = "generic" origin = "{daemon.url}/{name}/" '
                          f'sync {{ {"probe = " + chr(34) + PROBE + chr(34) if name == "m" else ""} }} }}' for name in modules)
        self.rsync_port = free_port()
        self.daemon = daemon
        self.m = Mirrord(f'log_level = "warn"\nstorage {{ quota = "40g" reserve = "16m" }}\n{repos}\n'
                         f'rsync "127.0.0.1:{self.rsync_port}" {{ connections = 64 }}', folder=folder, build=build)
        self.m.access_log = "none"
        self.m.start()

    def run(self, repo="m", probe=False, want="published"):
        pid = self.m.child.pid
        rest = fresh_peak(pid)
        visits, cpu_s, daemon_s = Visits(self.daemon), stat_s(pid, False), stat_s(self.daemon.process.pid, True)
        began = time.monotonic()
        synced(self.m, repo, want, *([] if probe else ["--force"]))
        wall_s = time.monotonic() - began
        return Took(wall_s, stat_s(pid, False) - cpu_s, stat_s(self.daemon.process.pid, True) - daemon_s, visits.wire_bytes(),
                    max(0, status_kib(pid, "VmHWM") - rest) * 1024)


class Edge:
    """A second mirrord that follows the tree of the first by its root; bytes are what the first counted."""

    def __init__(self, core, folder, build):
        self.core = core
        self.m = Mirrord(f'log_level = "warn"\nrepo "m" {{ protocol = "generic" origin = "{core.m.url("/m")}" '
                         f'sync {{ engine = "mirrord" }} }}', folder=folder, build=build)
        self.m.access_log = "none"
        self.m.start()

    def sent(self):
        return self.core.m.metric("mirrord_http_sent_bytes_total") + self.core.m.metric("mirrord_http_received_bytes_total")

    def run(self, want="published"):
        pid, core = self.m.child.pid, self.core.m.child.pid
        self.sent()
        first = self.sent()
        before = self.sent()  # asking for the count counts
        rest, cpu_s, core_s = fresh_peak(pid), stat_s(pid, False), stat_s(core, False)
        began = time.monotonic()
        synced(self.m, "m", want)
        wall_s = time.monotonic() - began
        return Took(wall_s, stat_s(pid, False) - cpu_s, stat_s(core, False) - core_s, self.sent() - before - (before - first),
                    max(0, status_kib(pid, "VmHWM") - rest) * 1024)


# --- rows --------------------------------------------------------------------------------------------------------------

def turns(rounds, ours, theirs, change=lambda: None):
    """Pairs of (ours, theirs), each after a change of its own; who begins changes."""
    pairs = []
    for i in range(rounds):
        change()
        pair = [None, None]
        for side in ((0, 1) if i % 2 == 0 else (1, 0)):
            pair[side] = (ours, theirs)[side]()
        pairs.append(pair)
    return pairs


def middle(values):
    return statistics.median(values)


def size(n):
    return f"{n / 1e6:,.2f} MB" if n >= 1e5 else f"{n / 1e3:,.1f} kB"


def cells(runs, memory=True):
    cpu = f"{middle(r.cpu_s for r in runs):.2f} + {middle(r.daemon_s for r in runs):.2f} s"
    peak = f"{max(r.memory for r in runs) / (1 << 20):.0f} MiB" if memory else ""
    return f"{middle(r.wall_s for r in runs):.2f} s", cpu, size(middle(r.wire for r in runs)), peak


HEAD = ["| what | | time | x rsync | CPU, own + daemon's | bytes | x rsync | memory |", "|---|---|---|---|---|---|---|---|"]


def rows_of(what, pairs, name="mirrord", peer=True, rival="rsync"):
    """Ratios are ours over theirs: less is better."""
    ours, theirs = zip(*pairs)
    ratios = [a.wall_s / b.wall_s for a, b in pairs]
    mine, its = cells(ours), cells(theirs)
    spread = f" ({min(ratios):.2f}-{max(ratios):.2f})" if len(ratios) > 1 else ""
    moved = middle(a.wire / b.wire for a, b in pairs)
    out = [f"| {what} | {name} | {mine[0]} | {middle(ratios):.2f}{spread} | {mine[1]} | {mine[2]} | {moved:.3f} | {mine[3]} |"]
    if peer:
        out.append(f"| | {rival} | {its[0]} | | {its[1]} | {its[2]} | | {its[3]} |")
    for row in out:
        print(row, file=sys.stderr, flush=True)
    return out


class Yard:
    """The source, its daemon, and both that follow it."""

    def __init__(self, folder, build, files, large_bytes):
        self.build, self.first, self.same = build, None, []
        self.files, self.folder, self.tree, self.big = files, folder, folder / "tree", folder / "big"
        for path in (self.tree, self.big):
            path.mkdir()
        write_tree(self.tree, files, FILE_BYTES)
        large = self.big / "large.bin"
        with open(large, "wb") as f:
            subprocess.run(["head", "-c", str(large_bytes), "/dev/urandom"], stdout=f, check=True)
        self.changes = Changes(self.tree, files, large)
        self.daemon = Rsyncd("rsync", folder, {"m": (self.tree, []), "big": (self.big, [])})
        self.ours = Ours(self.daemon, folder / "mirrord", build, ["m", "big"])
        self.theirs = Theirs(self.daemon, folder / "copy")
        self.their_big = Theirs(self.daemon, folder / "copy-big")

    def stop(self):
        self.ours.m.stop()
        self.daemon.close()


def many_files(y, rounds):
    first = turns(1, y.ours.run, y.theirs.run)
    rows = rows_of(f"first copy of {y.files:,} files", first)
    same = turns(rounds, lambda: y.ours.run(want="unchanged"), y.theirs.run)
    rows += rows_of("the same, nothing changed, full list", same)
    y.first, y.same = first[0][1], [theirs for _, theirs in same]
    probed = turns(rounds, lambda: y.ours.run(probe=True, want="unchanged"), lambda: None)
    rows += rows_of("the same, with `probe`", [(p[0], s[1]) for p, s in zip(probed, same)], peer=False)
    rows += rows_of("1 % of the files changed", turns(rounds, y.ours.run, y.theirs.run, y.changes.some_files))
    return rows


def followed(y, rounds):
    """The same tree from mirrord to mirrord, beside what rsync moves."""
    home = y.folder / "edge"
    home.mkdir()
    edge = Edge(y.ours, home, y.build)
    try:
        rows = rows_of("from mirrord to mirrord: first copy", [(edge.run(), y.first)], peer=False)
        rows += rows_of("the same, nothing changed", [(edge.run(want="unchanged"), t) for t in y.same[:rounds]], peer=False)

        def change():
            y.changes.some_files()
            y.ours.run()
        rows += rows_of("the same, 1 % of the files changed", turns(rounds, edge.run, y.theirs.run, change), peer=False)
    finally:
        edge.m.stop()
    return rows


def first_copy(y, i, *flags):
    """Of the large file into a store or a folder that has nothing yet; `flags` is rsync's, None: mirrord."""
    home = y.folder / f"first{i}"
    os.sync()
    try:
        if flags != (None,):
            return Theirs(y.daemon, home).run(*flags, module="big")
        ours = Ours(y.daemon, home, y.build, ["big"])
        try:
            return ours.run("big")
        finally:
            ours.m.stop()
    finally:
        shutil.rmtree(home)


def one_large(y, rounds, gib):
    n = itertools.count()
    what = f"first copy of one file of {gib:g} GiB"
    rows = rows_of(what, turns(rounds, lambda: first_copy(y, next(n), None), lambda: first_copy(y, next(n))))
    rows += rows_of(f"{what}, durable at the end", turns(rounds, lambda: first_copy(y, next(n), None),
                                                         lambda: first_copy(y, next(n), "--fsync")), rival="rsync --fsync")
    y.ours.run("big")
    y.their_big.run(module="big")
    delta = turns(rounds, lambda: y.ours.run("big"), lambda: y.their_big.run(module="big"), y.changes.some_blocks)
    rows += rows_of("1 % of its blocks changed", delta)
    y.changes.some_blocks()
    whole = y.their_big.run("--whole-file", module="big")
    rows.append(f"| | rsync --whole-file | {whole.wall_s:.2f} s | | {whole.cpu_s:.2f} + {whole.daemon_s:.2f} s | {size(whole.wire)} "
                f"| | {whole.memory / (1 << 20):.0f} MiB |")
    y.ours.run("big")
    return rows


def timed(work):
    began = time.monotonic()
    work()
    return time.monotonic() - began


def versions(y, rounds):
    """A snapshot more, back to the one before, and rid of the oldest; rsync's way is a tree of hard links for each."""
    links, ctl = y.folder / "links", y.ours.m.ctl
    shutil.copytree(y.theirs.to, links / "0", copy_function=os.link)
    live, new = links / "live", links / "new"
    seq = ctl_seq(y)
    ours, theirs, back, went = [], [], [], []
    for i in range(1, rounds + 1):
        y.changes.some_files()
        ours.append(y.ours.run())
        theirs.append(y.theirs.run("--link-dest", str(links / f"{i - 1}"), to=links / str(i)))
        back.append(timed(lambda n=i: ctl("snapshot", "rollback", "m", f"v{seq + n - 1}")))
        ctl("snapshot", "rollback", "m", f"v{seq + i}")
        ctl("snapshot", "hold", "m", "--off")
        new.symlink_to(str(i - 1))
        went.append(timed(lambda: os.replace(new, live)))
    rows = rows_of("a snapshot more, 1 % changed (rsync: --link-dest)", list(zip(ours, theirs)))
    gone = timed(lambda: shutil.rmtree(links / "0"))
    let_go = timed(lambda: (ctl("snapshot", "rm", "m", f"v{seq}"), ctl("cache", "gc")))
    more = [f"| back to the one before (rsync: a link renamed) | mirrord | {middle(back) * 1e3:.0f} ms | | | | | |",
            f"| | rsync | {middle(went) * 1e3:.1f} ms | | | | | |",
            f"| rid of the oldest (`snapshot rm`, `cache gc`; rm -rf) | mirrord | {let_go:.2f} s | {let_go / gone:.2f} | | | | |",
            f"| | rsync | {gone:.2f} s | | | | | |"]
    print("\n".join(more), file=sys.stderr, flush=True)
    return rows + more


def ctl_seq(y):
    """The number of the live snapshot."""
    return next(row["seq"] for row in y.ours.m.ctl_json("sync", "ls") if row["repo"] == "m")


def drop_caches():
    """Names and inodes of the disk are read again; False: not ours to do."""
    os.sync()
    try:
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
        return True
    except OSError:
        return False


def list_all(url):
    children = [subprocess.Popen(["rsync", "-r", "--list-only", url], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
                for _ in range(LISTERS)]
    if any([child.wait(600) for child in children]):
        raise SystemExit(f"bench: {url} gave no list")


def served(y, rounds, cold):
    """The list, to eight stock clients at once. Cold: the first is asked after the disk's caches were dropped."""
    ours, theirs = f"rsync://127.0.0.1:{y.ours.rsync_port}/m/", f"{y.daemon.url}/m/"
    rows = []
    for what, prepare in (("warm", lambda: True), ("cold", drop_caches)):
        if what == "cold" and (not cold or not prepare()):
            continue
        took, cpu = [[], []], [[], []]
        for i in range(rounds if what == "warm" else 2):
            for side in ((0, 1) if i % 2 == 0 else (1, 0)):
                if what == "cold":
                    y.ours.m.stop()  # its rows are in its own memory otherwise
                    y.ours.m.start()
                    prepare()
                pid = (y.ours.m.child.pid, y.daemon.process.pid)[side]
                before = stat_s(pid, side == 1)
                took[side].append(timed(lambda s=side: list_all((ours, theirs)[s])))
                cpu[side].append(stat_s(pid, side == 1) - before)
        ratio = middle(a / b for a, b in zip(*took))
        for side, name in ((0, "mirrord"), (1, "rsync --daemon")):
            rows.append(f"| the list to {LISTERS} clients at once, {what} | {name} | {middle(took[side]):.2f} s | "
                        f"{f'{ratio:.2f}' if side == 0 else ''} | {middle(cpu[side]):.2f} s | | | |")
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def table(folder, build, runs, quick):
    """The section's text."""
    gib = 0.25 if quick else 1
    rounds = 3 if quick else runs
    folder = folder / "sync"
    folder.mkdir()
    y = Yard(folder, build, FEWER_FILES if quick else FILES, int(gib * (1 << 30)))
    try:
        rows = many_files(y, rounds) + followed(y, rounds) + one_large(y, rounds, gib)
        rows += served(y, rounds, cold=not quick)
        rows += versions(y, 1 if quick else 3)
    finally:
        y.stop()
    return "\n".join([ABOUT, *HEAD, *rows])


# --- a million ---------------------------------------------------------------------------------------------------------

MILLION = 1_000_000
SAMPLE_S = 0.2


class Watch(threading.Thread):
    """The most that mirrord held while it lives, without and with the rows' own memory (block cache and memtables)."""

    def __init__(self, m):
        super().__init__(daemon=True)
        self.m, self.over, self.own, self.rows = m, threading.Event(), 0, 0
        self.rest = self.sample()[0]
        self.start()

    def sample(self):
        rows = sum(self.m.metric(f"mirrord_rocksdb_{name}_bytes") for name in ("block_cache", "memtable"))
        return status_kib(self.m.child.pid, "RssAnon") * 1024 - rows, rows

    def run(self):
        while not self.over.wait(SAMPLE_S):
            own, rows = self.sample()
            self.own, self.rows = max(self.own, own), max(self.rows, rows)

    def cells(self):
        self.over.set()
        self.join()
        return f"{(self.own - self.rest) / (1 << 20):.0f} MiB | {self.rows / (1 << 20):.0f} MiB"


def million(folder, build):
    """Empty files in memory: what a list of that length takes on its whole way."""
    folder = folder / "million"
    folder.mkdir()
    with tempfile.TemporaryDirectory(prefix="mirror-bench-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as tree:
        write_tree(pathlib.Path(tree), MILLION, 0)
        daemon = Rsyncd("rsync", folder, {"m": (tree, [])})
        ours = Ours(daemon, folder / "mirrord", build, ["m"])
        rows = ["| run | time | memory beyond its rest | of RocksDB beside it | rsync: time | memory |", "|---|---|---|---|---|---|"]
        try:
            theirs = Theirs(daemon, folder / "copy")
            for what, want in (("first copy", "published"), ("nothing changed, full list", "unchanged")):
                watch = Watch(ours.m)
                took = ours.run(want=want)
                cells_ = watch.cells()
                peer = theirs.run()
                rows.append(f"| {what} | {took.wall_s:.1f} s | {cells_} | {peer.wall_s:.1f} s | {peer.memory / (1 << 20):.0f} MiB |")
                print(rows[-1], file=sys.stderr, flush=True)
        finally:
            ours.m.stop()
            daemon.close()
    about = (f"{MILLION:,} empty files from a daemon, in {MILLION // A_FOLDER:,} folders. \"Memory beyond its rest\" is the growth of the process "
             "without block cache and memtables, sampled five times a second.\n")
    return "\n".join([about, *rows])


ABOUT = ("An rsync daemon over loopback, files in the page cache, all processes on all cores. Ratios are medians of pairs, with their "
         "spread; less is better. Bytes are those that the daemon sent and received, according to its log. Memory is, for mirrord, its peak "
         "less its use at rest, including RocksDB's memtables and block cache; for rsync, the peaks of receiver and generator together.\n")
