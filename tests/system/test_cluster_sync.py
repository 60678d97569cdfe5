"""A repository that several mirrors of a cluster are to sync: each run is one mirror's, and none is lost with its mirror."""
import os
import signal
import threading

import pytest

from harness.bucket import Bucket, Fault
from harness.mirrord import until
from harness.tree_origin import TreeOrigin

FAST = 'backoff = "100ms" tries = 2'


@pytest.fixture
def bucket():
    with Bucket() as b:
        yield b


@pytest.fixture
def o():
    with TreeOrigin({"top": b"1", "a/one.bin": os.urandom(70_000), "a/two.bin": os.urandom(300_000)}) as origin:
        yield origin


@pytest.fixture
def node(mirrord, bucket, o, tmp_path):
    """node() starts a mirror of the cluster; all have the same section, with the same schedule if there is one. Of the ten seconds after which
    another one takes over, a busy machine may need nine for a heartbeat."""
    keys = bucket.keys_file(tmp_path)

    def start(schedule="", takeover="10s", **kw):
        return mirrord(f'''repo "x" {{ protocol = "generic" origin = "{o.url}" sync {{ {FAST} {schedule} }} }}
            cluster "{bucket.url}" {{ {bucket.access(keys)} poll = "50ms" heartbeat = "1s"
                takeover = "{takeover}" }}''', **kw)
    return start


class Gate:
    """An origin that stops in the middle of a run, until it is opened."""

    def __init__(self, o, path="a/one.bin"):
        self.path, self.reached, self.open = path, threading.Event(), threading.Event()
        o.disturb = self.pass_through

    def pass_through(self, path):
        if path == self.path and not self.open.is_set():
            self.reached.set()
            self.open.wait(600)


def state(m):
    return m.ctl_json("sync", "ls")[0]


def runs(m):
    return m.ctl_json("sync", "show", "x")


def outcomes(m):
    return [(r["run"], r["outcome"]) for r in runs(m) if "run" in r]


def has(m, path, data):
    got = m.get(f"/x/{path}")
    return got.status == 200 and got.body == data


def test_each_run_is_one_mirrors(node, o):
    nodes = [node('schedule = "every 1s"') for _ in range(3)]
    until(lambda: outcomes(nodes[0])[:1] and outcomes(nodes[0])[0][0] >= 4)
    for m in nodes:
        m.ctl("sync", "pause", "x")
    until(lambda: not any(state(m)["running"] or state(m)["elsewhere"] for m in nodes))
    until(lambda: len({tuple(outcomes(m)) for m in nodes}) == 1)
    ids = [run for run, _ in outcomes(nodes[0])]
    assert ids == list(range(len(ids), 0, -1))
    started = sum(m.log().count("sync.start repo=x") for m in nodes)
    assert started == len(ids)
    assert o.requests.count("a/one.bin") == 1


def test_who_runs_it(node, o):
    """A second run is refused with the name of the mirror; any mirror can stop it, and go on."""
    a, b = node(), node()
    gate = Gate(o)
    a.ctl("sync", "run", "x")
    assert gate.reached.wait(120)
    until(lambda: state(b)["elsewhere"])
    refused = b.ctl("sync", "run", "x", check=False)
    name = runs(a)[0]["mirror"]
    assert name and refused.returncode != 0 and f"run 1 of \"x\" is under way on the mirror {name}" in refused.stderr, refused
    assert "is under way on the mirror" in b.ctl("sync", "show", "x").stdout
    b.ctl("sync", "stop", "x")
    until(lambda: not state(a)["running"])
    until(lambda: outcomes(b) == [(1, "stopped")])
    gate.open.set()
    b.ctl("sync", "run", "x", "--wait")
    assert outcomes(b) == [(2, "published"), (1, "stopped")]
    until(lambda: has(a, "top", b"1"))


def test_due_times_are_those_of_the_last_run(node, o):
    """A mirror that joins does not begin a run that another one has made."""
    a = node('schedule = "every 1h"')
    until(lambda: outcomes(a) == [(1, "published")])
    b = node('schedule = "every 1h"')
    until(lambda: state(b)["next_unix_s"])
    assert 0 <= state(b)["next_unix_s"] - state(a)["next_unix_s"] <= 5
    assert outcomes(b) == [(1, "published")] and "sync.start" not in b.log()


def test_a_mirror_that_dies_in_a_run(node, o):
    gate = Gate(o)
    a = node('schedule = "every 1h"')
    assert gate.reached.wait(120)
    b = node('schedule = "every 1h"')
    until(lambda: state(b)["elsewhere"])
    a.kill()
    gate.open.set()
    until(lambda: outcomes(b) == [(2, "published"), (1, "interrupted")])
    assert has(b, "a/one.bin", o.tree()["a/one.bin"])
    a.start()
    until(lambda: outcomes(a) == [(2, "published"), (1, "interrupted")])
    assert a.log().count("sync.start") == 1
    a.ctl("sync", "run", "x", "--wait")
    assert outcomes(a)[0] == (3, "unchanged")


@pytest.mark.parametrize("point, published", [
    *((point, False) for point in ("sync.list", "sync.plan", "sync.seal:1", "sync.fetched", "sync.nodes", "sync.built", "sync.gate", "sync.publish")),
    *((point, True) for point in ("sync.published", "sync.settled", "sync.done"))])
def test_a_mirror_that_dies_at_each_step_of_a_run(node, o, bucket, point, published):
    """All mirrors have the version before, or the one after, and whoever runs it next ends it."""
    def shows(m, tree):
        return all(has(m, path, data) for path, data in tree.items())
    a, b = node(), node()
    a.ctl("sync", "run", "x", "--wait")
    old = o.tree()
    o.put("new/large", os.urandom(2_000_000))
    o.put("top", b"2", mtime=1700009999)
    o.rm("a/two.bin")
    new = o.tree()
    until(lambda: shows(b, old))
    a.stop()
    a.env = {"MIRROR_CRASH_AT": point}
    a.start()
    a.env = {}
    a.ctl("sync", "run", "x", "--wait", check=False)
    assert a.child.wait(120) == -9, f"{point} was never reached:\n{a.log()[-2000:]}"
    a.child = None
    until(lambda: shows(b, new if published else old))
    assert b.get("/x/new/large").status == (200 if published else 404)
    until(lambda: b.ctl("sync", "run", "x", "--wait", check=False).returncode == 0)
    assert outcomes(b)[0][1] == ("unchanged" if published else "published")
    a.start()
    for m in (a, b, node()):
        assert shows(m, new) and m.get("/x/a/two.bin").status == 404
        m.ctl("verify", "--deep")
    assert a.ctl("cluster", "verify", "--deep").returncode == 0


def test_a_mirror_that_dies_and_comes_back(node, o):
    """It need not wait: the claim is its own."""
    gate = Gate(o)
    a = node('schedule = "every 1h"', "1d")
    assert gate.reached.wait(120)
    a.kill()
    gate.open.set()
    a.start()
    until(lambda: outcomes(a) == [(2, "published"), (1, "interrupted")])


def test_a_mirror_that_is_stopped_in_a_run(node, o):
    """Another one goes on at once, because it is told."""
    gate = Gate(o)
    a = node('schedule = "every 1h"', "1d")
    assert gate.reached.wait(120)
    b = node('schedule = "every 1h"', "1d")
    until(lambda: state(b)["elsewhere"])
    a.stop()
    gate.open.set()
    until(lambda: outcomes(b) == [(2, "published"), (1, "interrupted")])


def test_a_mirror_that_was_paused_for_too_long(node, o):
    """What it still publishes is refused, because another mirror has taken over its run: the tree itself has not changed since."""
    a = node('schedule = "every 1h"')
    until(lambda: outcomes(a) == [(1, "published")])
    o.put("new", b"new")
    gate = Gate(o, "new")
    o.disturb, o.midway = None, lambda path, at: gate.pass_through(path)
    a.ctl("sync", "run", "x")
    assert gate.reached.wait(120)
    b = node('schedule = "every 1h"')
    until(lambda: state(b)["elsewhere"])
    a.child.send_signal(signal.SIGSTOP)
    o.rm("new")
    until(lambda: outcomes(b)[0] == (3, "unchanged"))
    a.child.send_signal(signal.SIGCONT)
    gate.open.set()
    until(lambda: not state(a)["running"])
    assert b.ctl("sync", "run", "x", "--wait").returncode == 0
    until(lambda: outcomes(a) == [(4, "unchanged"), (3, "unchanged"), (2, "stopped"), (1, "published")])
    assert state(a)["failures"] == 0
    for m in (a, b):
        assert m.get("/x/new").status == 404


def test_a_snapshot_is_approved_on_another_mirror(node, o):
    a, b = node("max_delete = 1"), node("max_delete = 1")
    a.ctl("sync", "run", "x", "--wait")
    o.rm("a/one.bin", "a/two.bin")
    a.ctl("sync", "run", "x", "--wait", check=False)
    until(lambda: state(b)["state"] == "held")
    b.ctl("sync", "approve", "x")
    until(lambda: a.get("/x/a/one.bin").status == 404)
    until(lambda: state(a)["held_seq"] == 0)


def test_a_pause_counts_everywhere(node, o):
    gate = Gate(o)
    a, b = node(), node()
    a.ctl("sync", "run", "x")
    assert gate.reached.wait(120)
    until(lambda: state(b)["elsewhere"])
    b.ctl("sync", "pause", "x")
    until(lambda: not state(a)["running"] and state(a)["paused"])
    gate.open.set()


def test_a_bucket_that_fails(node, bucket, o):
    """No claim, no run; and then it goes on by itself."""
    a = node('schedule = "every 1h"')
    until(lambda: outcomes(a) == [(1, "published")])
    bucket.faults = [Fault("503", "log/")]
    failed = a.ctl("sync", "run", "x", "--wait", check=False)
    assert failed.returncode != 0 and "bucket" in failed.stderr, failed
    bucket.faults = []
    until(lambda: a.ctl("sync", "run", "x", "--wait", check=False).returncode == 0)
    last = outcomes(a)[0]
    assert last[1] == "unchanged" and last[0] in (2, 3)
