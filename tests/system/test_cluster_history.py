"""Mirrors of a cluster in network namespaces, under every fault at once: killed, stopped, cut off from the bucket and from each other, in
one direction too, with clocks that jump, over a bucket whose responses are lost, late and wrong. What clients were told is judged against
the log (harness/mirror_history.py).

  MIRROR_PUBLISHES=10000   how many publishes must be acknowledged; MIRROR_MIRRORS=5 on how many mirrors
"""
import collections
import copy
import os
import pathlib
import random
import signal
import struct
import subprocess
import time

import pytest

from harness import mirror_history as mh
from harness import netns
from harness.bucket import Bucket, Fault
from harness.mirrord import BUILD, SLOW, free_port, until
from harness.netns import Net
from harness.origin import Origin, span

PUBLISHES = int(os.environ.get("MIRROR_PUBLISHES", "2000" if os.environ.get("MIRROR_HEAVY") else "100"))
MIRRORS = int(os.environ.get("MIRROR_MIRRORS", "3"))
STALE_S = 4
OBJECTS = [(1 << 20) * (i % 7) + 12345 for i in range(200)]  # of a pull-through repository
NOT_THE_PROBE = "(?!probe/)"
READS = "(log|pack|idx|blob|ckpt|ckpt.part|node)/"

pytestmark = pytest.mark.skipif(netns.missing() is not None, reason=str(netns.missing()))


def unsure(p):
    """Faults of a bucket, each with this probability."""
    return [*(Fault(k, NOT_THE_PROBE, ("PUT", "GET", "POST", "DELETE"), p) for k in ("500", "cut", "503", "429")),
            *(Fault(k, NOT_THE_PROBE, ("PUT",), p) for k in ("503-after", "cut-after", "late", "500-late")),
            Fault("409", "log/", ("PUT",), p), Fault("truncate", READS, ("GET",), p), Fault("flip", READS, ("GET",), p / 5)]


@pytest.fixture
def net():
    with Net(MIRRORS + 1) as n:
        yield n


@pytest.fixture
def origin(net):
    with Origin(host=net.outside) as o:
        for i, size in enumerate(OBJECTS):
            o.put(f"/{i}", size=size)
        yield o


@pytest.fixture
def bucket(net):
    with Bucket(host=net.bucket) as b:
        yield b


class Clock:
    """The wall clock of one mirror: fake/skew.so."""

    def __init__(self, path):
        self.path = path
        self.set(0)

    def set(self, seconds):
        with open(self.path, "r+b" if self.path.exists() else "wb") as f:
            f.write(struct.pack("=q", seconds))

    def env(self):
        return {"LD_PRELOAD": str(BUILD.resolve() / "fake/skew.so"), "SKEW": str(self.path)} if SLOW == 1 else {}  # a sanitizer must be first


@pytest.fixture
def node(mirrord, net, bucket, origin, tmp_path):
    """node(i) starts mirror i on host i."""
    keys, secret, port = bucket.keys_file(tmp_path), bucket.secret_file(tmp_path), free_port()

    def start(i, more=""):
        address = net.address(i)
        clock = Clock(tmp_path / f"clock{i}")
        m = mirrord(f'''repo "models" {{ protocol = "hosted" }} plaintext_token = true
            repo "data" {{ protocol = "generic" origin = "{origin.url}/" rule '.' {{ class = immutable }} }}
            listen "{address}:{port}" {{ }}
            cluster "{bucket.url}" {{ {bucket.access(keys)} poll = "500ms"
                stale_after = "{STALE_S}s" checkpoint = 100 collect = "3s" collect_delay = "1s" orphan_age = "20s" secret = "file:{secret}" address = "http://{address}:{port}" {more} }}''',
                    host=address, command=net.command(i), env=clock.env())
        m.clock = clock
        return m
    return start


class Faults:
    """What is done to the mirrors and their network; each returns what ends it."""

    def __init__(self, mirrors, net, bucket, dice):
        self.mirrors, self.net, self.bucket, self.dice = mirrors, net, bucket, dice
        self.done, self.next, self.usual = collections.Counter(), [], bucket.faults

    def kill(self, i):
        m = self.mirrors[i]
        m.kill()
        self.net.heal(i)

        def again():
            m.clock.set(self.dice.randrange(-200, 200))  # what the bucket's check accepts
            m.start()
        return again

    def stop(self, i):
        self.mirrors[i].child.send_signal(signal.SIGSTOP)
        return lambda: self.mirrors[i].child.send_signal(signal.SIGCONT)

    def without_bucket(self, i):
        self.net.cut(i, self.net.bucket, self.way())
        return lambda: self.net.heal(i)

    def without_each_other(self, i):
        self.net.cut(i, self.net.address((i + 1) % len(self.mirrors)), self.way())
        return lambda: self.net.heal(i)

    def clock(self, i):
        self.mirrors[i].clock.set(self.dice.choice((-86400, -600, 600, 86400)))
        return lambda: self.mirrors[i].clock.set(0)

    def bucket_away(self, _):
        self.bucket.faults = [Fault("cut")]

        def back():
            self.bucket.faults = self.usual  # it may be away twice at the same time
        return back

    def way(self):
        return self.dice.choice(("both", "in", "out"))

    def some(self, seconds):
        """One or two mirrors have a fault for a while. Each kind comes once before one comes again."""
        ends = []
        for i in self.dice.sample(range(len(self.mirrors)), self.dice.choice((1, 1, 2))):
            if not self.next:
                self.next = [self.kill, self.stop, self.without_bucket, self.without_each_other, self.clock, self.bucket_away]
                self.dice.shuffle(self.next)
            kind = self.next.pop()
            self.done[kind.__name__] += 1
            ends.append(kind(i))
        time.sleep(self.dice.uniform(0.2, seconds))
        for end in ends:
            end()


def ctl(m, *args):
    """0: it was done. A mirror that was stopped or killed does not answer."""
    try:
        return m.ctl(*args, check=False, limit_s=20)
    except (subprocess.TimeoutExpired, AssertionError):
        return None


def revoke_tokens(h, dice):
    """Token by token: made on one mirror, revoked on another, used on all for as long as one could accept it."""
    lines, n = [mh.Line(m) for m in h.mirrors], 0

    def use(node, token):
        o = {"t": "use", "token": token, "node": node, "t0": time.monotonic()}
        try:
            o["status"], _ = lines[node].request("PUT", "/models/tokens/t/x", str(dice.random()), Authorization=f"Bearer {token}")
        except (OSError, mh.http.client.HTTPException):
            o["status"] = 0
        h.lines.append(o)
        return o["status"]

    while not h.ending.is_set():
        n += 1
        made = ctl(dice.choice(h.mirrors), "token", "create", "--name", f"t{n}", "--scope", "publish:models/tokens/*")
        found = mh.re.search(r"mrd_\w+", made.stdout) if made is not None and made.returncode == 0 else None
        if not found:
            continue
        until_s = time.monotonic() + 5
        while time.monotonic() < until_s and use(dice.randrange(len(lines)), found[0]) not in (200, 201):
            time.sleep(0.05)
        node = dice.randrange(len(lines))
        done = ctl(h.mirrors[node], "token", "revoke", f"t{n}")
        if done is None or done.returncode != 0:
            continue
        h.lines.append({"t": "revoked", "token": found[0], "node": node, "t1": time.monotonic()})
        end = time.monotonic() + 1.5 * STALE_S
        while time.monotonic() < end and not h.ending.is_set():
            use(dice.randrange(len(lines)), found[0])
            time.sleep(0.1)


GARDEN = {name: random.Random(name).randbytes(size) for name, size in (("a", 300), ("b", 60_000), ("c", 1_500_000), ("d", 61_000))}


def publish_the_same_again(h, dice):
    """A few contents over and over, whose old versions are deleted: what a collection has condemned or deleted is published anew."""
    lines = [mh.Line(m) for m in h.mirrors]
    while not h.ending.is_set():
        node, name, path = dice.randrange(len(lines)), dice.choice(list(GARDEN)), f"x{dice.randrange(3)}"
        try:
            status, body = lines[node].request("PUT", f"/models/me/garden/{path}", GARDEN[name], Authorization=f"Bearer {h.token}")
            h.lines.append({"t": "garden", "what": "ok" if status in (200, 201) else "no"})
            newest = mh.version_of(mh.json.loads(body)) if status in (200, 201) else 0
        except (OSError, mh.http.client.HTTPException):
            newest = 0
        for version in range(max(1, newest - 3), newest):
            ctl(dice.choice(h.mirrors), "snapshot", "rm", "models", "me/garden", f"v{version}")
        if dice.random() < 0.2:
            ctl(dice.choice(h.mirrors), "cluster", "gc")


def pull_through(h, dice):
    """Objects of an origin, whole and in ranges, cold and warm, through whichever mirror owns them."""
    lines, wanted = [mh.Line(m) for m in h.mirrors], list(enumerate(OBJECTS))
    while not h.ending.is_set():
        i, size = dice.choice(wanted)
        first = dice.randrange(size) if dice.random() < 0.5 else 0
        last = dice.randrange(first, size) if first else size - 1
        o = {"t": "pull", "node": dice.randrange(len(lines)), "object": i, "first": first, "last": last}
        try:
            status, body = lines[o["node"]].request("GET", f"/data/{i}", **({"Range": f"bytes={first}-{last}"} if first else {}))
        except (OSError, mh.http.client.HTTPException):
            time.sleep(0.02)
            continue
        o["what"] = status if status not in (200, 206) else "right" if body == span(1, first, last + 1) else "wrong"
        h.lines.append(o)
        time.sleep(0.05)


def of_pulls(lines):
    return [f"wrong bytes: {o}" for o in lines if o["t"] == "pull" and o["what"] in ("wrong", 404, 416)]


def of_the_garden(m):
    """Every version that is left has the bytes that its list names."""
    bad = []
    for row in m.ctl_json("snapshot", "ls", "models", "me/garden"):
        listing = mh.json.loads(m.get(f"/models/me/garden@v{row['seq']}/?format=json").body)
        for e in listing["entries"]:
            got = m.get(f"/models/me/garden@v{row['seq']}/{e['path']}")
            if got.status != 200 or mh.hashlib.sha256(got.body).hexdigest() != e["sha256"]:
                bad.append(f"collected: {e['path']} of version {row['seq']}: {got.status} {got.body[:100]}")
    return bad


def of_old_versions(m, states, dice):
    """Bytes of some files of some versions."""
    every = [(tree, n, path, sha256) for tree, versions in states.items() for n, (_, files) in versions.items() for path, sha256 in files.items()]
    return [f"the end: {path} of version {n} of {tree} has other bytes" for tree, n, path, sha256 in dice.sample(every, min(200, len(every)))
            if mh.hashlib.sha256(m.get(f"/models/{tree}@v{n}/{path}").body).hexdigest() != sha256]


def of_tokens(lines):
    """A revoked token is refused at once where it was revoked, and after stale_after everywhere."""
    revoked = {o["token"]: o for o in lines if o["t"] == "revoked"}
    return [f"revoked token accepted on mirror {o['node']} {o['t0'] - r['t1']:.2f} s after mirror {r['node']} revoked it"
            for o in lines if o["t"] == "use" and o["status"] in (200, 201) and (r := revoked.get(o["token"]))
            and o["t0"] > r["t1"] + (0 if o["node"] == r["node"] else STALE_S)]


def is_settled(m):
    s = mh.json.loads(m.ctl("--json", "cluster", "status", check=False).stdout)
    return s["state"] == "up" and not s["commits_waiting"]


def test_what_clients_were_told(node, net, bucket, origin, tmp_path):
    dice = random.Random(int(os.environ.get("MIRROR_SEED", "1")))
    mirrors = [node(i) for i in range(MIRRORS)]
    token = mirrors[0].token("ci", "publish:models/*")
    for m in mirrors:
        until(lambda m=m: m.put("/models/ready/t/x", os.urandom(8), token=token).status in (200, 201))
    h = mh.History(mirrors, token)
    h.add(revoke_tokens, h, random.Random(2))
    h.add(publish_the_same_again, h, random.Random(3))
    for i in range(2):
        h.add(pull_through, h, random.Random(4 + i))
    bucket.faults = unsure(0.02)
    faults = Faults(mirrors, net, bucket, dice)
    began = time.monotonic()
    h.start()
    try:
        while (h.published < PUBLISHES or len(faults.done) < 6 or not h.count("use")) and not h.failure:
            faults.some(2.5 if PUBLISHES >= 1000 else 1)
            time.sleep(dice.uniform(0.1, 0.8))
    finally:
        h.end()
    took = time.monotonic() - began
    bucket.faults = []
    for m in mirrors:
        until(lambda m=m: is_settled(m))  # no change whose outcome is unknown gets into the log any more
    mirrors.append(node(MIRRORS))  # one that had no part in it
    log = mh.Log(bucket.ever_under("log/0/"))
    states = mh.states_of(mirrors[-1], h.trees, log)
    bad = mh.Judge(log, states, h.lines).findings() + of_tokens(h.lines) + of_pulls(h.lines) + at_the_end(mirrors, h.trees, log, states)
    bad += of_old_versions(mirrors[-1], states, dice)
    bad += [f"mirror {i}: {b}" for i, m in enumerate(mirrors) for b in of_the_garden(m)]
    figures = report(h, faults, log, took) + f"; the origin sent {asked_of(origin)}"
    print(figures)
    pathlib.Path(os.environ.get("MIRROR_REPORT", tmp_path / "report")).write_text(figures + "\n" + "\n".join(bad) + "\n")
    assert not bad, (len(bad), bad[:20])
    assert h.count("use") > 0
    for what, lie in LIES.items():
        assert mh.Judge(log, *lie(copy.deepcopy(states), copy.deepcopy(h.lines))).findings(), f"the judge does not find {what}"


def test_a_store_that_ignores_some_conditions_is_found(node, bucket):
    """By the mirrors, which stop, or by the judge."""
    mirrors = [node(i) for i in range(MIRRORS)]
    token = mirrors[0].token("ci", "publish:models/*")
    for m in mirrors:
        until(lambda m=m: m.put("/models/ready/t/x", os.urandom(8), token=token).status in (200, 201))
    h = mh.History(mirrors, token, trees=1)
    bucket.faults = [Fault("ignore", "log/", ("PUT",), 0.3)]
    h.start()
    try:
        until(lambda: h.published > 300 or any("cluster.stopped" in m.log() for m in mirrors))
    finally:
        h.end()
    if not any("cluster.stopped" in m.log() for m in mirrors):
        try:
            log = mh.Log(bucket.ever_under("log/0/"))
        except mh.history.Broken:
            return
        bucket.faults = []
        assert mh.Judge(log, mh.states_of(node(MIRRORS), h.trees, log), h.lines).findings()


def lost_update(states, lines):
    """A version that lacks what the one before it had."""
    versions = states[max(states, key=lambda t: len(states[t]))]
    root, files = versions[max(versions)]
    files.pop(next(path for path in files if files[path] == versions[max(versions) - 1][1].get(path)))
    versions[max(versions)] = root, files
    return states, lines


def an_ok(lines):
    return next(o for o in lines if o["t"] == "put" and o["what"] == "ok")


def no_that_was_done(states, lines):
    an_ok(lines)["what"] = "no"
    return states, lines


def ok_that_was_not(states, lines):
    lines.append({**an_ok(lines), "v": "0 1000000"})
    return states, lines


def read_of_the_past(states, lines):
    last = max((o for o in lines if o["t"] == "read" and o["version"] > 1), key=lambda o: o["t0"])
    root, files = states[last["tree"]][1]
    lines.append({**last, "t0": last["t0"] + 1000, "version": 1, "root": root, "files": files})
    return states, lines


LIES = {"a lost update": lost_update, "a refusal that was none": no_that_was_done, "an acknowledgement that was none": ok_that_was_not,
        "a read of the past": read_of_the_past}


def at_the_end(mirrors, trees, log, states):
    """All mirrors have the same, whole and in order."""
    bad = []
    for number, m in enumerate(mirrors):
        for tree in trees:
            newest = max(log.versions[tree])
            line = mh.Line(m)

            def listing():
                return mh.state_of(mh.json.loads(line.request("GET", f"/models/{tree}/?format=json")[1]))
            until(lambda: listing()["version"] >= newest)
            got = listing()
            if (got["version"], got["root"], got["files"]) != (newest, *states[tree][newest]):
                bad.append(f"the end: mirror {number} has version {got['version']} of {tree}")
            for path, sha256 in got["files"].items():
                data = m.get(f"/models/{tree}/{path}").body
                if mh.hashlib.sha256(data).hexdigest() != sha256:
                    bad.append(f"the end: mirror {number} sends {data[:40]} for {tree}/{path}")
        done = m.ctl("verify", "--deep", check=False)
        if done.returncode != 0:
            bad.append(f"the end: mirror {number}: {done.stdout}{done.stderr}")
    return bad


def asked_of(origin):
    things = [origin.stats(f"/{i}") for i in range(len(OBJECTS))]
    seen = sum(size for t, size in zip(things, OBJECTS) if t.bytes)
    return f"{sum(t.bytes for t in things) / max(seen, 1):.2f} x the objects"


def report(h, faults, log, took):
    revoked = sum(o["t"] == "revoked" for o in h.lines)
    gone = collections.Counter(k.split("/")[1] for k in faults.bucket.deleted)
    return (f"{MIRRORS} mirrors, {took:.0f} s: {h.count('put', 'ok')} publishes acknowledged, {h.count('put', 'no')} refused, "
            f"{h.count('put', 'unknown')} unknown; {h.count('read')} reads; {revoked} tokens revoked, {h.count('use')} uses; "
            f"{h.count('garden', 'ok')} publishes of the same contents; "
            f"{h.count('pull', 'right')} objects pulled, {h.count('pull') - h.count('pull', 'right')} not; {log.length} entries; deleted: {dict(gone)}; faults: {dict(faults.done)}; "
            f"refusals: {collections.Counter(o.get('status', 0) for o in h.lines if o['t'] == 'put' and o['what'] == 'no')}")
