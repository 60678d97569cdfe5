"""trainagent with a list of mirrord: a cluster over one bucket, and mirrors that only have the same content. One is killed in mid-file, stopped, or
never there; another goes on."""
import hashlib
import json
import os
import random
import signal
import threading

import pytest

from harness.bucket import Bucket
from harness.mirrord import SLOW, free_port, until
from harness.way import Way
from system.test_agent import Agent

CHUNK = 8 << 20
BIG = random.Random(7).randbytes(4 * CHUNK + 4321)
SMALL = {f"{i % 5}/{i}.txt": random.Random(i).randbytes(700 * i) for i in range(60)}
REPO = 'repo "models" { protocol = "hosted" }'


def sha(data):
    return hashlib.sha256(data).hexdigest()


class Site:
    """Mirrors, each at the end of a way, and an agent that knows the ways."""

    def __init__(self, nodes, folder):
        self.nodes, self.folder = nodes, folder
        self.ways = [Way(m.port) for m in nodes]
        self.agent = Agent(folder / "node", nodes[0])
        self.agent.env["TRAINAGENT_MIRROR"] = ",".join(f"http://127.0.0.1:{w.port}" for w in self.ways)
        self.published = {**SMALL, "big.bin": BIG}
        self.out = folder / "out"
        for name, data in self.published.items():
            (self.out / name).parent.mkdir(parents=True, exist_ok=True)
            (self.out / name).write_bytes(data)

    def publish(self):
        """A mirror that was killed in the middle is waited for until it counts as lost: most of a minute."""
        child = self.agent.start("publish", self.out, "models/me/gpt", "--json")
        out, err = child.communicate(timeout=300 * SLOW)
        assert child.returncode == 0, (out, err)
        return json.loads(out)

    def at(self, node, what, where):
        """what(node) once so many bytes have come through its way."""
        way, left, lock = self.ways[node], [where], threading.Lock()

        def midway(_target, n):
            with lock:
                before, left[0] = left[0], left[0] - n
            if before > 0 >= left[0]:
                what(self.nodes[node])
        way.midway = midway

    def bytes(self):
        return sum(w.bytes for w in self.ways)

    def forget(self):
        for w in self.ways:
            w.forget()
            w.midway = None

    def owner(self, what):
        """Which node is asked for it first."""
        self.forget()
        self.pull(what, "first")
        asked = [sum(what.rsplit("/", 1)[1].split("#")[0] in t for t in w.targets) for w in self.ways]
        self.forget()
        return asked.index(max(asked))

    def pull(self, what, shelf, *more):
        out = self.folder / shelf
        self.agent("pull", what, "--to", out, *more, TRAINAGENT_SHELF=str(self.folder / f"{shelf}.shelf"))
        return out


@pytest.fixture(params=["cluster", "twins"])
def site(request, mirrord, tmp_path):
    """Three nodes of a cluster, or two mirrors to which the same was published; the file is at each."""
    if request.param == "twins":
        s = Site([mirrord(REPO) for _ in range(2)], tmp_path)
        for m in s.nodes:
            Agent(tmp_path / f"publisher{m.port}", m)("publish", s.out, "models/me/gpt")
        s.agent.env["TRAINAGENT_TOKEN_FILE"] = ""
        yield s
        return
    with Bucket() as bucket:
        keys, secret = bucket.keys_file(tmp_path), bucket.secret_file(tmp_path)

        def node():
            port = free_port()
            return mirrord(f'''{REPO} listen "127.0.0.1:{port}" {{ }}
                cluster "{bucket.url}" {{ {bucket.access(keys)}
                    poll = "50ms" secret = "file:{secret}" address = "http://127.0.0.1:{port}" }}''')
        s = Site([node() for _ in range(3)], tmp_path)
        s.publish()
        for m in s.nodes:
            until(lambda m=m: m.get("/models/me/gpt/big.bin").status == 200)
        s.agent.env["TRAINAGENT_TOKEN_FILE"] = ""
        yield s


def all_there(site, out):
    return {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()} == site.published


@pytest.mark.parametrize("at", [1, 300_000, CHUNK + 7, 3 * CHUNK])
def test_one_is_killed_in_mid_file(site, at):
    first = site.owner(f"models/me/gpt/big.bin#sha256={sha(BIG)}")
    site.at(first, lambda m: m.kill(), at)
    out = site.pull(f"models/me/gpt/big.bin#sha256={sha(BIG)}", "again")
    assert (out / "big.bin").read_bytes() == BIG
    assert not site.nodes[first].alive()
    assert site.bytes() < len(BIG) + 8 * CHUNK  # at most a block for each connection that broke
    site.nodes[first].start()


def test_one_is_killed_between_many_files(site):
    for node in range(len(site.nodes)):
        site.at(node, lambda m: m.kill(), 200_000)
        out = site.pull("models/me/gpt/", f"try{node}")
        assert all_there(site, out)
        site.forget()
        if not site.nodes[node].alive():
            site.nodes[node].start()


def test_one_is_away_from_the_start(site):
    site.forget()
    site.nodes[0].kill()
    assert all_there(site, site.pull("models/me/gpt", "all"))  # a folder, although it looks like a file
    assert site.bytes() < len(BIG) + sum(map(len, SMALL.values())) + 400_000
    site.nodes[0].start()


def test_one_is_stopped(site):
    first = site.owner(f"models/me/gpt/big.bin#sha256={sha(BIG)}")
    site.at(first, lambda m: m.child.send_signal(signal.SIGSTOP), CHUNK + 100)
    try:
        out = site.pull(f"models/me/gpt/big.bin#sha256={sha(BIG)}", "again", "--idle-timeout", 2)
    finally:
        site.nodes[first].child.send_signal(signal.SIGCONT)
    assert (out / "big.bin").read_bytes() == BIG and site.bytes() < len(BIG) + 8 * CHUNK


def test_nodes_that_are_killed_again_and_again(site):
    """Several agents at once, and whichever mirror sends the byte with which another 5 MiB are full is killed and started again: no pull fails."""
    lock, passed, kills, threads = threading.Lock(), [0], [0], []

    def again(m):
        m.kill()
        m.start()

    def midway(m):
        def told(_target, n):
            with lock:
                before, passed[0] = passed[0], passed[0] + n
                if before // (5 << 20) == passed[0] // (5 << 20) or any(t.is_alive() for t in threads):
                    return
                kills[0] += 1
                threads.append(threading.Thread(target=again, args=(m,)))
                threads[-1].start()
        return told
    for m, w in zip(site.nodes, site.ways):
        w.midway = midway(m)
    outs = [site.folder / f"again{i}" for i in range(4)]
    agents = [site.agent.start("pull", "models/me/gpt/", "--to", out, "--tries", 10, TRAINAGENT_SHELF=f"{out}.shelf") for out in outs]
    for a, out in zip(agents, outs):
        said = a.communicate(timeout=300 * SLOW)
        assert a.returncode == 0, said
        assert all_there(site, out)
    for t in threads:
        t.join()
    files = sum(map(len, site.published.values()))
    assert kills[0] > 0 and site.bytes() <= len(outs) * (files + 500_000) + kills[0] * len(outs) * 8 * CHUNK


def test_all_are_away(site):
    for m in site.nodes:
        m.kill()
    site.agent("pull", "models/me/gpt/big.bin", "--tries", 1, code=69)
    back = threading.Timer(1, lambda: [m.start() for m in site.nodes])
    back.start()
    out = site.pull("models/me/gpt/", "all", "--tries", 9)
    back.join()
    assert all_there(site, out)


@pytest.mark.parametrize("site", ["cluster"], indirect=True)
@pytest.mark.parametrize("at", [1, 1000, 5 * CHUNK // 2])
def test_a_publish_whose_mirror_is_killed(site, at):
    """It begins its upload anew at the next, and what is published is all of it."""
    more = random.Random(at).randbytes(3 * CHUNK)
    (site.out / "more.bin").write_bytes(more)
    site.published["more.bin"] = more
    site.agent.env["TRAINAGENT_TOKEN_FILE"] = str(site.agent.folder / "token")
    site.forget()
    left, lock, killed = [at], threading.Lock(), []

    def sending(m):
        def told(n):
            with lock:
                before, left[0] = left[0], left[0] - n
            if before > 0 >= left[0]:
                killed.append(m)
                m.kill()
        return told
    for m, w in zip(site.nodes, site.ways):
        w.sending = sending(m)
    said = site.publish()
    assert len(killed) == 1 and said["files"] == len(site.published)
    for w in site.ways:
        w.sending = None
    alive = next(m for m in site.nodes if m not in killed)
    until(lambda: alive.get("/models/me/gpt/more.bin").body == more)
    assert all_there(site, site.pull("models/me/gpt/", "published"))
    killed[0].start()
    killed[0].ctl("verify", "--deep")


@pytest.mark.parametrize("site", ["cluster"], indirect=True)
def test_a_commit_whose_response_is_lost(site):
    """The next mirror has the tree already: that is what was to be published, also if the root before it was demanded."""
    site.agent.env["TRAINAGENT_TOKEN_FILE"] = str(site.agent.folder / "token")
    root = site.publish()["root"]
    for i in range(3):
        data = os.urandom(10_000)
        (site.out / "x.bin").write_bytes(data)
        cut = []

        def midway(way, cut=cut):
            def told(target, _n):
                if "/commit" not in target or (cut and way is not cut[0]):
                    return None
                cut.append(way)  # the first mirror, as often as it is asked
                return "cut"
            return told
        for w in site.ways:
            w.midway = midway(w)
        said = json.loads(site.agent("publish", site.out, "models/me/gpt", "--json", "--if-match", root))
        assert cut and said["root"] != root
        root = said["root"]
        for m in site.nodes:
            until(lambda m=m, data=data: m.get("/models/me/gpt/x.bin").body == data)


@pytest.mark.parametrize("site", ["cluster"], indirect=True)
def test_who_has_published_pulls_it_anywhere(site):
    """Also from a mirror that has not heard of it yet."""
    site.agent.env["TRAINAGENT_TOKEN_FILE"] = str(site.agent.folder / "token")
    for i in range(10):
        data = os.urandom(50_000)
        (site.out / "x.bin").write_bytes(data)
        site.publish()
        site.published["x.bin"] = data
        assert all_there(site, site.pull("models/me/gpt/", f"pull{i}"))
