"""A mirror is killed at each step of a change that goes through the log: of versions, tokens, pins. What it leaves is the state before or
the one after, the same on every mirror; and after a kill that came once the entry was in the log, it is the one after."""
import json
import threading

import pytest

from harness.bucket import Fault
from harness.mirrord import know_each_other, until
from system.test_cluster import bucket, node  # noqa: F401  (fixtures)
from system.test_cluster_collect import fresh
from system.test_hosted_hub import Hub, file

QUIET = 'poll = "100ms" heartbeat = "200ms" collect = "0s"'
# (where the mirror dies, whether the change stands then). In the order of a commit.
STEPS = [("cluster.commit", False), ("sent", False), ("late", True), ("landed", True), ("cluster.apply", True), ("cluster.applied", True),
         ("cluster.announced", True), ("answered", True)]


def listing(m, tree):
    """All of a version by one request: (path, size) of each file, or the status."""
    got = m.get(f"/models/{tree}/?recursive=1", headers={"Accept": "application/json"})
    return sorted((e["path"], e["size"]) for e in json.loads(got.body)["entries"]) if got.status == 200 else got.status


def versions(m, tree):
    rows = m.ctl_json("snapshot", "ls", "models", tree)
    return sorted((r["seq"], r["live"], r["label"]) for r in rows)


def takes(m, token):
    return m.put("/models/me/other/probe", b"", token=token).status in (200, 201)


class Change:
    """act: what the client does. parts: what a mirror shows of it, each by one request. again: what a repeated act may end with once the
    change stands."""

    def __init__(self, act, *parts, again=(0,)):
        self.act, self.parts, self.again = act, parts, again

    def see(self, m):
        return [part(m) for part in self.parts]


def verb(*args):
    return lambda m: m.ctl(*args, check=False).returncode


def request(method, path, body, token):
    def act(m):
        got = m.put(path, body, token=token, method=method)
        return 0 if got.status in (200, 201, 204) else got.status or 1
    return act


@pytest.fixture
def demo(hub):
    return hub.repo("org/demo", files={"config.json": b"{}"})


def changes_of_hub(m, demo):
    """Of a repository of a Hub, which is pulled through: pins of two commits, and the branch that is held."""
    old = demo.sha
    m.ctl("hf", "pin", "org/demo")
    demo.commit({"config.json": b"[2]"})
    m.ctl("cache", "rm", "hf/api/models/org/demo/revision/", check=False)
    m.ctl("hf", "pin", "org/demo")
    assert len(m.ctl_json("cache", "pins")) == 2
    commit = lambda m: m.get("/hf/org/demo/resolve/main/config.json", head=True)["x-repo-commit"]  # noqa: E731
    return {
        "rollback of a Hub's branch": Change(verb("hf", "rollback", "org/demo", old), commit),
        "its release": Change(verb("hf", "rollback", "org/demo", "--release"), commit, again=(66,)),
        "unpin of two commits": Change(verb("hf", "unpin", "org/demo"), pins, again=(66,)),
    }


def pins(m):
    return sorted(p["scope"] for p in m.ctl_json("cache", "pins"))


def changes(m):
    """What they need is made here, while the mirror is alone, so nobody else commits it."""
    hub = Hub.__new__(Hub)
    hub.m, hub.wire, hub.repo, hub.token = m, "h1", "models", m.token("ci", "publish:models/*")
    for tree in ("set", "set-moved"):
        assert hub.create(tree).status == 200
        for k, more in ((1, []), (2, [file("more", b"2")])):
            assert hub.commit(*(file(f"d/{i}/x", bytes(10 * k)) for i in range(4)), *more, name=tree).status == 200
        assert m.put(f"/models/api/models/me/{tree}/branch/dev", b"{}", token=hub.token, method="POST").status in (200, 201)
    victim = m.token("victim", "publish:models/*")
    m.ctl("cache", "pin", "models/me/set/old")
    tree, token = "me/set", hub.token
    names = lambda m: sorted(r["name"] for r in m.ctl_json("token", "ls"))  # noqa: E731
    live, all_of = lambda m: listing(m, tree), lambda m: versions(m, tree)  # noqa: E731
    return {
        "rollback": Change(verb("snapshot", "rollback", "models", tree, "v2"), live, all_of),
        "rollback of a branch": Change(verb("snapshot", "rollback", "models", tree + "@dev", "v1"), lambda m: listing(m, tree + "@dev")),
        "tag": Change(verb("snapshot", "tag", "models", tree, "v1", "good"), lambda m: listing(m, tree + "@good"), all_of),
        "publish": Change(request("PUT", f"/models/{tree}/new", b"3" * 30, token), live, all_of),
        "removal of a folder": Change(request("DELETE", f"/models/{tree}/d/", None, token), live, all_of, again=(0, 404)),
        "rename": Change(request("POST", "/models/api/repos/move", json.dumps({"fromRepo": tree + "-moved", "toRepo": tree + "-new"}).encode(), token),
                         lambda m: listing(m, tree + "-new"), lambda m: listing(m, tree + "-moved"), again=(0, 404)),
        "removal of a version": Change(verb("snapshot", "rm", "models", tree, "v2"), all_of, again=(0, 66)),
        "creation of a token": Change(verb("token", "create", "--name", "new", "--scope", "read:*"), names, again=(73,)),
        "revocation": Change(verb("token", "revoke", "victim"), names, lambda m: takes(m, victim), again=(66,)),
        "pin": Change(verb("cache", "pin", "models/me/set/new"), pins),
        "unpin": Change(verb("cache", "unpin", "models/me/set/old"), pins, again=(66,)),
    }


class Watch(threading.Thread):
    """Looks at a mirror all the time."""

    def __init__(self, m, change):
        super().__init__(daemon=True)
        self.m, self.change, self.over = m, change, threading.Event()
        self.seen = [[state] for state in change.see(m)]
        self.start()

    def run(self):
        while not self.over.is_set():
            for part, seen in zip(self.change.parts, self.seen):
                now = part(self.m)
                if now != seen[-1]:
                    seen.append(now)

    def end(self):
        """The states of each part, in their order."""
        self.over.set()
        self.join()
        return self.seen


def die(m, bucket, step, act):
    """The mirror does this, and is killed at the step."""
    if step.startswith("cluster."):
        m.stop()
        m.env = {"MIRROR_CRASH_AT": step}
        m.start()
        m.env = {}
        assert act(m) != 0
        assert m.child.wait(120) == -9, step
        m.child = None
        return
    if step == "answered":
        assert act(m) == 0
        m.kill()
        return
    before = len(bucket.under("log/"))
    fault = Fault("slow-after" if step == "landed" else "slow", "log/0/", ("PUT",), delay=1 if step == "late" else 3600)
    bucket.faults = [fault]
    client = threading.Thread(target=act, args=(m,))
    client.start()
    until(lambda: len(bucket.under("log/")) > before if step == "landed" else fault.seen)
    m.kill()
    client.join()
    bucket.faults = []


@pytest.mark.parametrize("step, stands", STEPS, ids=[step for step, _ in STEPS])
def test_who_makes_it_is_killed(node, bucket, hub, demo, step, stands):
    a = node(QUIET, hub.config(), poll=None)
    todo = changes_of_hub(a, demo) | changes(a)
    b, c = (node(QUIET, hub.config(), poll=None) for _ in range(2))
    know_each_other([a, b, c])
    for name, change in todo.items():
        until(lambda: change.see(a) == change.see(b) == change.see(c))  # noqa: B023
        watch, before = Watch(b, change), change.see(b)
        die(a, bucket, step, change.act)
        a.start()
        first = change.see(a)
        if step == "late":
            until(lambda: change.see(a) != before)  # noqa: B023
        until(lambda: change.see(b) == change.see(c) == change.see(a))  # noqa: B023
        stood = change.see(a) != before
        assert stood == stands, (name, before, change.see(a))
        assert step == "late" or first == change.see(a), (name, "a start reads the whole log")
        for states in watch.end():
            assert len(states) <= 1 + stood, (name, states)
        assert change.act(a) in (change.again if stood else (0,)), name
        after = change.see(a)
        assert after != before, name
        until(lambda: change.see(b) == change.see(c) == after)  # noqa: B023
    for m in (a, b, c):
        m.ctl("verify", "--deep")
    d = fresh(node, {}, QUIET, conf=hub.config(), poll=None)
    for name, change in todo.items():
        assert change.see(d) == change.see(a), name


@pytest.mark.parametrize("step", ["cluster.apply", "cluster.applied"])
def test_who_learns_of_it_is_killed(node, bucket, hub, demo, step):
    """The change is answered meanwhile, and is what the mirror that was killed starts with."""
    a = node(QUIET, hub.config(), poll=None)
    todo = changes_of_hub(a, demo) | changes(a)
    b, c = (node(QUIET, hub.config(), poll=None) for _ in range(2))
    know_each_other([a, b, c])
    for name, change in todo.items():
        until(lambda: change.see(a) == change.see(b) == change.see(c))  # noqa: B023
        before = change.see(a)
        b.stop()
        b.env = {"MIRROR_CRASH_AT": step}
        b.start()
        b.env = {}
        assert change.act(a) == 0, name
        assert b.child.wait(120) == -9, name
        b.child = None
        after = change.see(a)
        assert after != before, name
        b.start()
        assert change.see(b) == after, name
        until(lambda: change.see(c) == after)  # noqa: B023
    for m in (a, b, c):
        m.ctl("verify", "--deep")
    d = fresh(node, {}, QUIET, conf=hub.config(), poll=None)
    for name, change in todo.items():
        assert change.see(d) == change.see(a), name
