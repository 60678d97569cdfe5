"""The mirrors of a cluster are upgraded one after the other, under load, and one of them goes back: no request fails, and the origin is asked
for nothing twice.

From what to what: from this version to one that reads one more format of clusters (server/cluster/format.h), which is this version but
for that number; and, with `make test-heavy`, from the version before. MIRROR_BEFORE names a folder with the programs of another one.
"""
import hashlib
import http.client
import itertools
import json
import os
import pathlib
import random
import shutil
import subprocess
import threading
import time
import types

import pytest

from harness import publishers
from harness.bucket import Bucket, Fault
from harness.mirrord import BUILD, ROOT, SLOW, free_port, until
from system.test_agent import Agent
from system.test_newcomer import HEAVY, source

pytestmark = pytest.mark.timeout(3600)  # with heavy tests a version is built
NEXT = BUILD / "harness/next"


def git(*args):
    return subprocess.run(["git", *args], cwd=ROOT, check=False, capture_output=True, text=True).stdout.split()


def cluster_before():
    """The last tag. As long as it has no clusters, the oldest commit from which mirrors can be upgraded without a failed request: since then,
    the others know of a mirror before it is ready, and all that mirrors read of each other is covered by the format."""
    tag = git("describe", "--tags", "--abbrev=0", "HEAD^")
    found = git("log", "--reverse", "--format=%H", "-Spoke_hello", "--", "server/cluster/poke.h")
    if not found:
        pytest.skip("no version before is known: the clone is shallow")
    return tag[0] if tag and git("ls-tree", tag[0], "server/cluster/format.h") else found[0]


@pytest.fixture(scope="module")
def programs_before(tmp_path_factory):
    """The folder with the programs of the version before."""
    if "MIRROR_BEFORE" in os.environ:
        return pathlib.Path(os.environ["MIRROR_BEFORE"])
    if not HEAVY:
        pytest.skip("the version before is built with MIRROR_HEAVY")
    tree = source(tmp_path_factory.mktemp("upgrade") / "before", cluster_before())
    done = subprocess.run(["make", f"-j{os.cpu_count()}", f"CC={'ccache gcc' if shutil.which('ccache') else 'gcc'}", "CUDA_HOME=/none", "build/mirrord", "build/mirrorctl"],
                          cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return tree / "build"


@pytest.fixture
def bucket():
    with Bucket() as b:
        yield b


@pytest.fixture
def node(mirrord, bucket, origin, tmp_path):
    """node(build) starts a mirror of the cluster. A busy machine may keep it from a beat for some seconds: after four, it would count as dead, and
    what it owns be fetched again."""
    keys, secret = bucket.keys_file(tmp_path), bucket.secret_file(tmp_path)

    def start(build, more="", **kw):
        port = free_port()
        return mirrord(f'''
            repo "models" {{ protocol = "hosted" }} trusted_proxies = {{"127.0.0.1"}}
            repo "data" {{ protocol = "generic" origin = "{origin.url}/" rule '.' {{ class = immutable }} }}
            listen "127.0.0.1:{port}" {{ }}
            cluster "{bucket.url}" {{ {bucket.access(keys)} {"" if "poll" in more else 'poll = "100ms" heartbeat = "2s"'}
                secret = "file:{secret}" address = "http://127.0.0.1:{port}" {more} }}''', build=build, **kw)
    return start


def states(m):
    return sorted(n["state"] for n in m.ctl_json("cluster", "nodes"))


def know(mirrors):
    until(lambda: all(states(m) == ["ready"] * len(mirrors) for m in mirrors))


def change(m, build):
    m.stop()
    m.build = build
    m.start()


# --- clients ---

class Front:
    """What a balancer does that looks at /readyz: each request goes to a mirror that is ready. It knows what is under way at each."""

    def __init__(self, mirrors, token):
        self.mirrors, self.token, self.lock = mirrors, token, threading.Lock()
        self.under_way, self.dice = {m: 0 for m in mirrors}, random.Random(1)
        self.failed = []

    def count(self, m, n):
        with self.lock:
            self.under_way[m] += n

    def pick(self, but=None):
        """Whoever drains a mirror and then sees nothing under way there may stop it."""
        while True:
            m = self.dice.choice([m for m in self.mirrors if m is not but])
            self.count(m, 1)
            if self.ask(m, "GET", "/readyz")[0] == 200:
                return m
            self.count(m, -1)
            time.sleep(0.01)

    @staticmethod
    def ask(m, method, path, body=None, fields=None):
        c = http.client.HTTPConnection("127.0.0.1", m.port, timeout=120 * SLOW)
        try:
            c.request(method, path, body=body, headers=fields or {})
            got = c.getresponse()
            return got.status, got.headers, got.read()
        except (OSError, http.client.HTTPException) as why:
            return 0, {}, repr(why).encode()
        finally:
            c.close()

    def send(self, method, path, body=b"", fields=None, m=None, fails=()):
        """m: that one, which was picked."""
        m = m or self.pick()
        try:
            got = self.ask(m, method, path, body, {"Authorization": f"Bearer {self.token}", **(fields or {})})
            if not 200 <= got[0] < 300 and got[0] not in fails:
                self.failed.append((time.strftime("%T", time.gmtime()), self.mirrors.index(m), method, path, got[0], got[2][:300]))
            return got
        finally:
            self.count(m, -1)

    def check(self, path, want, m=None):
        got = self.send("GET", path, m=m)
        if got[0] == 200 and got[2] != want:
            self.failed.append((path, "has other bytes", len(got[2]), len(want)))

    def comes(self, path, want):
        """What was published a moment ago: a mirror that did not answer in 250 ms, on a busy machine, has it after its next poll."""
        def is_there():
            got = self.send("GET", path, fails=(404,))
            return got[0] != 404 and got[2] == want
        until(is_there)


class Load:
    """Clients, each on a thread: what they did and what must be there."""

    def __init__(self, front, origin, folder):
        self.front, self.origin, self.folder = front, origin, folder
        self.there, self.things, self.rounds, self.failures = {}, {}, {}, []
        self.ending = threading.Event()
        self.changes = 0  # of members: odd while one is under way
        self.threads = [threading.Thread(target=self.run, args=(kind,)) for kind in (self.small, self.image, self.hub, self.cold, self.again, self.agent)]

    def __enter__(self):
        self.agent_set()
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        for t in self.threads:
            t.join()

    def run(self, kind):
        dice = random.Random(kind.__name__)
        try:
            for i in itertools.count():
                if self.ending.is_set():
                    return
                kind(i, dice)
                self.rounds[kind.__name__] = i + 1
        except Exception as why:
            self.failures.append((kind.__name__, repr(why)))
            raise

    def pass_by(self, count=2):
        """So many rounds of each kind."""
        begin = dict(self.rounds)
        until(lambda: self.failures or all(self.rounds.get(t, 0) >= begin.get(t, 0) + count for t in ("small", "image", "hub", "cold", "again", "agent")))
        assert not self.failures and not self.front.failed, (self.failures, self.front.failed)

    def small(self, i, dice):
        path, data = f"/models/me/set{i % 3}/{i}", dice.randbytes(dice.choice((0, 1000, 100_000, 2_000_000)))
        self.front.send("PUT", path, data)
        self.front.comes(path, data)
        self.there[path] = data

    def publish(self, made):
        files, last = made if made else ({}, lambda: False)
        if last():
            for path, data in files.items():
                self.front.comes(path, data)
            self.there.update(files)

    def image(self, i, dice):
        self.publish(publishers.image(self.front.send, f"image{i}", dice.randbytes(1_500_000), dice.randbytes(300)))

    def hub(self, i, dice):
        self.publish(publishers.hub(self.front.send, f"hub{i}", dice.randbytes(1_200_000), dice.randbytes(200)))

    def cold(self, i, dice):
        """By two mirrors at the same time, so that two have it, whichever of them is away later."""
        path, size = f"/cold/{i}", dice.choice((10, 40_000, 3 << 20))
        thing, changes = self.origin.put(path, size=size), self.changes
        want, first = self.origin.bytes_of(path, 0, size), self.front.pick()
        both = [threading.Thread(target=self.front.check, args=(f"/data{path}", want, m)) for m in (first, self.front.pick(but=first))]
        for t in both:
            t.start()
        for t in both:
            t.join()
        stable = changes % 2 == 0 and changes == self.changes
        self.things[path] = thing, size, 1 if stable else thing.requests

    def again(self, _, dice):
        if self.things:
            path = dice.choice(list(self.things))
            self.front.check(f"/data{path}", self.origin.bytes_of(path, 0, self.things[path][1]))
        time.sleep(0.02)

    def agent_set(self):
        self.files = {f"{n}.bin": os.urandom(200_000 * n) for n in range(1, 5)}
        for name, data in self.files.items():
            assert self.front.send("PUT", f"/models/me/gpt/{name}", data)[0] == 201

    def agent(self, i, _):
        """It has a list of the mirrors, and an empty local cache."""
        at, first = self.folder / f"node{i}", self.front.mirrors[0]
        node = Agent(at, types.SimpleNamespace(token=lambda *_: self.front.token, url=first.url))
        child = node.start("pull", "models/me/gpt", "--to", at / "got", TRAINAGENT_MIRROR=",".join(m.url("") for m in self.front.mirrors))
        out, err = child.communicate(timeout=120 * SLOW)
        if child.returncode != 0 or any((at / "got" / name).read_bytes() != data for name, data in self.files.items()):
            self.front.failed.append(("trainagent", child.returncode, (out + err)[-1000:]))
        shutil.rmtree(at)


def roll(load, m, build):
    """As docs/cluster.md says: drain, stop, and start the other version."""
    load.pass_by()
    load.changes += 1
    m.ctl("cluster", "drain")
    until(lambda: load.front.under_way[m] == 0)
    load.pass_by(1)
    change(m, build)
    know(load.front.mirrors)
    load.changes += 1


def all_is_there(load, mirrors):
    assert not load.failures and not load.front.failed, (load.failures, load.front.failed)
    until(lambda: len({status_of(m)["entries"] for m in mirrors}) == 1)  # what came last was seen on one of them
    for m in mirrors:
        for path, data in load.there.items():
            got = m.get(path)
            assert (got.status, got.body == data) == (200, True), (path, got.status, got.body[:200])
        for path, (_, size, _) in load.things.items():
            assert m.get(f"/data{path}").body == load.origin.bytes_of(path, 0, size)
    again = {path: (asked, thing.requests) for path, (thing, _, asked) in load.things.items() if thing.requests > asked}
    assert not again, again  # two mirrors may ask for what is fetched at the moment when they hear of a third, and nobody asks later
    found = mirrors[0].ctl_json("cluster", "verify", "--deep")
    assert found["clean"], found


# --- the tests ---

@pytest.fixture(params=["next", "before"])
def versions(request):
    """From which to which."""
    return (BUILD, NEXT) if request.param == "next" else (request.getfixturevalue("programs_before"), BUILD)


def test_a_rolling_upgrade_under_load(node, versions, origin, tmp_path):
    before, after = versions
    mirrors = [node(before) for _ in range(3)]
    know(mirrors)
    token = mirrors[0].token("ci", "publish:models/*")
    until(lambda: all(m.put("/models/ready/t/x", os.urandom(8), token=token).status in (200, 201) for m in mirrors))
    with Load(Front(mirrors, token), origin, tmp_path) as load:
        for m in mirrors[:2]:
            roll(load, m, after)
        roll(load, mirrors[0], before)  # as long as one mirror has the version before, others can go back to it
        roll(load, mirrors[0], after)
        roll(load, mirrors[2], after)
        load.pass_by()
    all_is_there(load, mirrors)
    for m in mirrors:
        assert "level=error" not in m.log(), m.log()


def test_a_fourth_joins_and_one_leaves_under_load(node, origin, tmp_path):
    """The fourth is empty. What it is asked for, and what the one that leaves had, is not fetched again."""
    mirrors = [node(BUILD) for _ in range(3)]
    know(mirrors)
    token = mirrors[0].token("ci", "publish:models/*")
    until(lambda: all(m.put("/models/ready/t/x", os.urandom(8), token=token).status in (200, 201) for m in mirrors))
    front = Front(mirrors, token)
    with Load(front, origin, tmp_path) as load:
        load.pass_by(5)
        load.changes += 1
        fourth = node(BUILD)
        front.under_way[fourth] = 0
        mirrors.append(fourth)
        know(mirrors)
        load.changes += 1
        load.pass_by(5)
        load.changes += 1
        first, *rest = mirrors
        first.ctl("cluster", "drain")
        until(lambda: front.under_way[first] == 0)
        load.pass_by(1)
        first.stop()
        front.mirrors = rest
        know(rest)
        load.changes += 1
        load.pass_by(5)
    all_is_there(load, rest)


def test_a_commit_whose_objects_are_on_a_mirror_that_restarts(node):
    """They are not there until it is back: the client's request is not refused."""
    mirrors = [node(BUILD) for _ in range(3)]
    know(mirrors)
    token = mirrors[0].token("ci", "publish:models/*")
    until(lambda: all(m.put("/models/ready/t/x", os.urandom(8), token=token).status in (200, 201) for m in mirrors))
    front = Front(mirrors, token)
    for i in range(3):  # a tree's upload begins at any of the mirrors
        files, last = publishers.image(front.send, f"image{i}", os.urandom(1_500_000), os.urandom(300))
        m = mirrors[i]
        m.ctl("cluster", "drain")
        m.stop()
        ended = threading.Thread(target=lambda last=last: (last(), None))
        ended.start()
        m.start()
        ended.join()
        assert not front.failed, front.failed
        for path, data in files.items():
            front.comes(path, data)
        know(mirrors)


@pytest.mark.parametrize("ends", ["drain", "stop"])
def test_the_others_know_of_a_mirror_at_once(node, ends):
    """However rarely they look: when it starts, when it is drained, and when it is stopped. None of them waits for a heartbeat."""
    a, b = (node(BUILD, more='heartbeat = "1m" poll = "1s"') for _ in range(2))
    know([a, b])
    token = a.token("ci", "publish:models/*")
    until(lambda: b.put("/models/me/gpt/x", b"1", token=token).status in (200, 201))
    begun = b.put("/models/me/gpt/-/uploads", b"", method="POST", token=token)
    assert begun.status == 201
    upload = begun["location"].replace(b.url(""), "")
    assert a.put(f"{upload}/y", b"y", token=token).status == 201  # passed on
    assert a.put(f"{upload}/commit", b"", method="POST", token=token).status == 201
    if ends == "drain":
        b.ctl("cluster", "drain")
        until(lambda: states(a) == ["ready"])
        b.ctl("cluster", "drain", "--off")
        know([a, b])
    for _ in range(2):
        b.stop()
        until(lambda: "ready" not in [n["state"] for n in a.ctl_json("cluster", "nodes")[1:]], limit_s=30)
        b.start()
        know([a, b])
    assert a.put("/models/me/gpt/x", b"2", token=token).status in (200, 201)
    until(lambda: b.get("/models/me/gpt/x").body == b"2")


# --- the format ---

def status_of(m):
    return json.loads(m.ctl("--json", "cluster", "status", check=False).stdout)


def format_of(m):
    return status_of(m)["format"]


def entries_of_format(bucket):
    """Entries of the log that write table 15, TABLE_FORMAT: operation, table, key, value."""
    return [key for key, raw in bucket.under("log/") if b"\x01\x0f\x00\x00\x00\x00\x00\x012" in raw]


def refused(m, words):
    """Its start fails."""
    with pytest.raises(AssertionError, match="did not come up"):
        m.start(fails=True)
    code, m.child = m.child.returncode, None
    assert words in m.log(), m.log()
    return code


NO_WAY_BACK = "the cluster has format 2; this version of mirrord reads formats up to 1: upgrade this mirror"


def test_the_format_rises_when_all_mirrors_read_it(node, bucket):
    mirrors = [node(BUILD) for _ in range(3)]
    a, b, c = mirrors
    know(mirrors)
    token = a.token("ci", "publish:models/*")
    assert [n["format"] for n in a.ctl_json("cluster", "nodes")] == [1, 1, 1]
    for m in (a, b, a):
        change(m, NEXT)
        know(mirrors)
        assert m.put(f"/models/me/gpt/{m.port}", b"1", token=token).status in (200, 201)
    assert sorted(n["format"] for n in a.ctl_json("cluster", "nodes")) == [1, 2, 2]
    change(a, BUILD)  # as long as one mirror is of the version before, the others can go back
    know(mirrors)
    assert {format_of(m) for m in mirrors} == {1} and not entries_of_format(bucket)
    for m in (a, c):
        change(m, NEXT)
    until(lambda: {format_of(m) for m in mirrors} == {2})
    assert len(entries_of_format(bucket)) == 1
    b.stop()
    b.build = BUILD
    assert refused(b, NO_WAY_BACK) == 69
    b.log_path.unlink()
    shutil.rmtree(b.state)  # nor with nothing: it meets the entry
    assert refused(b, NO_WAY_BACK) == 69
    assert a.put("/models/me/gpt/x", b"2", token=token).status == 201
    b.build = NEXT
    b.start()
    assert b.get("/models/me/gpt/x").body == b"2" and format_of(b) == 2
    assert a.ctl_json("cluster", "verify")["clean"]


def test_a_new_mirror_of_the_version_before_meets_a_checkpoint(node, bucket):
    a, b = (node(NEXT, more="checkpoint = 10") for _ in range(2))
    until(lambda: format_of(a) == 2)
    token = a.token("ci", "publish:models/*")
    for i in range(15):
        assert a.put(f"/models/me/gpt/{i}", b"x", token=token).status == 201
    until(lambda: bucket.under("ckpt/"))
    b.stop()
    shutil.rmtree(b.state)
    b.build = BUILD
    assert refused(b, NO_WAY_BACK) == 69
    b.build = NEXT
    b.start()
    assert b.get("/models/me/gpt/3").body == b"x" and format_of(b) == 2


def test_a_mirror_of_the_version_before_that_nobody_saw(node, bucket):
    """The others raise the format. It stops there, says so, and serves what it has; then it is upgraded."""
    bucket.faults = [Fault("503", "node/", ("PUT",))]
    b = node(BUILD)
    token = b.token("ci", "publish:models/*")
    assert b.put("/models/me/gpt/x", b"1", token=token).status == 201
    bucket.faults = [Fault("503", "node/" + b.ctl_json("cluster", "nodes")[0]["id"], ("PUT",))]
    a = node(NEXT)
    until(lambda: format_of(a) == 2)
    until(lambda: status_of(b)["state"] == "stopped")
    status = status_of(b)
    assert NO_WAY_BACK in status["why"] and status["format"] == 1
    assert "install the version that the other mirrors have" in json.dumps(status["trouble"])
    assert b.get("/models/me/gpt/x").body == b"1"
    refusal = b.put("/models/me/gpt/y", b"2", token=token)
    assert refusal.status >= 500 and a.put("/models/me/gpt/y", b"3", token=token).status == 201
    bucket.faults = []
    change(b, NEXT)
    assert b.get("/models/me/gpt/y").body == b"3" and b.put("/models/me/gpt/z", b"4", token=token).status == 201
