"""SIGKILL between any two steps of a run, and readers while snapshots change: what is served is one snapshot, whole, and what
had been fetched is not asked for again."""
import json
import os
import threading

import pytest

from harness.mirrord import until
from harness.tree_origin import TreeOrigin
from system.test_sync import CONFIG, FAST, check, run

OLD = {f"pool/{i:02}/file{k}": os.urandom(300 * k + 10) for i in range(6) for k in range(4)}
NEW = {f"new/{i}": os.urandom(n) for i, n in enumerate((10, 40000, 1 << 20, 3 << 20))}
BEFORE = ("sync.list", "sync.plan", "sync.seal:1", "sync.seal:3", "sync.fetched", "sync.nodes", "sync.built", "sync.gate",
          "sync.publish")
AFTER = ("sync.published", "sync.settled", "sync.done")


@pytest.fixture
def o():
    with TreeOrigin(OLD) as origin:
        yield origin


@pytest.fixture
def m(mirrord, o):
    m = mirrord(CONFIG.format(o.url, FAST))
    run(m)
    m.old = o.tree()
    return m


def change(o):
    for path, data in NEW.items():
        o.put(path, data)
    o.put("pool/00/file0", b"changed", mtime=1700009999)
    o.rm("pool/01/file1")
    o.forget()


def die_at(m, point, *verb):
    """The next run ends the process there; then it lives again."""
    m.stop()
    m.env = {"MIRROR_CRASH_AT": point}
    m.start()
    m.env = {}
    m.ctl(*(verb or ("sync", "run", "x", "--wait")), check=False)
    assert m.child.wait(120) == -9, f"{point} was never reached:\n{m.log()[-2000:]}"
    m.child = None
    m.start()


def clean(m):
    done = m.ctl("verify", "--deep", check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("point", BEFORE)
def test_killed_before_it_is_published(m, o, point):
    change(o)
    m.config = CONFIG.format(o.url, FAST + " parallel = 1")  # one after another: at the third, two rows have been committed
    die_at(m, point)
    check(m, m.old)
    clean(m)
    assert m.ctl_json("sync", "show", "x")[0]["outcome"] == "interrupted"
    stored = point not in ("sync.list", "sync.plan", "sync.seal:1", "sync.seal:3")
    o.forget()
    done = run(m)
    assert (done["outcome"], done["seq"]) == ("published", 2)
    assert not o.sent if stored else o.sent
    if point == "sync.seal:3":
        assert len(o.sent) <= len(NEW) - 1
    check(m, o.tree())
    clean(m)


@pytest.mark.parametrize("point", AFTER)
def test_killed_after_it_is_published(m, o, point):
    change(o)
    die_at(m, point)
    check(m, o.tree())
    clean(m)
    o.forget()
    again = run(m)
    assert (again["outcome"], again["seq"]) == ("unchanged", 2) and not o.sent
    check(m, m.old, prefix="@v1/")
    m.ctl("snapshot", "rollback", "x", "v1")
    check(m, m.old)


@pytest.mark.parametrize("point", ["sync.park", "sync.parked"])
def test_killed_while_it_is_held(m, o, point):
    o.rm(*[p for p in m.old if p < "pool/04"])
    die_at(m, point)
    check(m, m.old)
    clean(m)
    held = run(m, rc=75)
    assert held["outcome"] == "held" and held["seq"] == 2
    die_at(m, "sync.approved", "sync", "approve", "x")
    check(m, o.tree())
    clean(m)
    assert run(m)["outcome"] == "unchanged" and m.ctl_json("sync", "ls")[0]["held_seq"] == 0


def test_killed_in_the_first_run_of_all(mirrord, o):
    m = mirrord(CONFIG.format(o.url, FAST))
    change(o)
    die_at(m, "sync.publish")
    assert m.get("/x/pool/02/file1").status == 503
    clean(m)
    o.forget()
    assert run(m)["outcome"] == "published" and not o.sent
    check(m, o.tree())


class Reader(threading.Thread):
    """Lists the whole repo, again and again: all that one answer names must be of one version, by its size."""

    def __init__(self, m, wire):
        super().__init__(daemon=True)
        self.m, self.wire, self.seen, self.wrong = m, wire, [], []
        self.over = threading.Event()

    def run(self):
        while not self.over.is_set():
            got = self.m.get("/x/?recursive=1", self.wire, headers={"Accept": "application/json"})
            entries = json.loads(got.body)["entries"] if got.status == 200 and got.whole else None
            sizes = {e["size"] for e in entries or [] if e["path"].startswith("all/")}
            if entries is None or len(sizes) != 1 or len(entries) != 700:
                self.wrong.append((got.status, sizes, len(entries or [])))
                return
            if not self.seen or self.seen[-1] not in sizes:
                self.seen.append(sizes.pop())


def test_readers_see_no_mixture_while_it_publishes_and_rolls_back(mirrord, wire):
    """`all/` is rewritten as a whole by each version; a listing that spans many nodes is never of two."""
    def version(o, n):
        for i in range(700):
            o.put(f"all/{i:03}/f", b"x" * n, mtime=1700000000 + 100 * n)

    with TreeOrigin({}) as o:
        version(o, 1)
        m = mirrord(CONFIG.format(o.url, FAST + " parallel = 32"))
        run(m)
        readers = [Reader(m, wire) for _ in range(3)]
        for r in readers:
            r.start()
        for n in (2, 3):
            until(lambda n=n: all(r.wrong or n - 1 in r.seen for r in readers))
            version(o, n)
            assert run(m)["outcome"] == "published"
        for v in ("v1", "v3", "v2", "v3"):
            m.ctl("snapshot", "rollback", "x", v)
        for r in readers:
            r.over.set()
            r.join()
        assert not [r.wrong for r in readers if r.wrong]
        assert {1, 2} <= set().union(*(r.seen for r in readers))
        clean(m)
