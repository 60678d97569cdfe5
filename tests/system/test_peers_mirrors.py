"""Nodes that share a file and know several mirrors: one of these leads the swarm, the same for all nodes, and another one when it fails."""
import random
import threading

import pytest

from harness.bucket import Bucket
from harness.mirrord import free_port, until
from harness.way import Way
from system.test_peers import BIG, CHUNK, DATA, REPO, SHA, Member, Node


@pytest.fixture
def cluster(mirrord, tmp_path):
    """cluster(config): three mirrors that have BIG, each at the end of a way; cluster.node(): a node that has them in some order."""
    class Cluster:
        def __init__(self, bucket):
            self.bucket, self.nodes = bucket, []

        def __call__(self, config):
            keys = bucket.keys_file(tmp_path)

            def mirror():
                port = free_port()
                return mirrord(f'''{REPO} {config} listen "127.0.0.1:{port}" {{ }}
                    cluster "{bucket.url}" {{ {bucket.access(keys)} poll = "50ms" }}''')
            self.mirrors = [mirror() for _ in range(3)]
            token = self.mirrors[0].token("ci", "publish:*")
            assert self.mirrors[0].put("/" + BIG, DATA, token=token).status == 201
            for m in self.mirrors:
                until(lambda m=m: m.get("/" + BIG, method="HEAD").status == 200)
            self.ways = [Way(m.port) for m in self.mirrors]
            return self

        def node(self, **kw):
            n = Node(tmp_path / f"node{len(self.nodes)}", self.mirrors[0], **kw)
            urls = [f"http://127.0.0.1:{w.port}" for w in self.ways]
            n.env["TRAINAGENT_MIRROR"] = ",".join(random.Random(len(self.nodes)).sample(urls, 3))
            self.nodes.append(n)
            return n

        def leaders(self):
            return [i for i, w in enumerate(self.ways) if w.asked("/-/peers/")]

        def close(self):
            for n in self.nodes:
                if n.child is not None and n.child.poll() is None:
                    n.child.kill()
                    n.child.communicate()
    with Bucket() as bucket:
        c = Cluster(bucket)
        yield c
        c.close()


def test_one_of_them_leads(cluster):
    c = cluster("peers { again = 1m }")
    for m in c.mirrors:
        m.get("/" + BIG)  # on every disk
    c.node(peers="linger = 0s").pull().done()
    member = Member(c.mirrors[c.leaders()[0]])  # nobody is alone, be it the first or the last to come
    nodes = [c.node() for _ in range(6)]
    for n in nodes:
        n.pull()
    said = [n.done() for n in nodes]
    member.close()
    assert len(c.leaders()) == 1
    assert sum(s["mirror_bytes"] for s in said) < 0.6 * 6 * len(DATA)
    assert sum(s["peers"] for s in said) > 0
    assert sum(bool(w.asked(BIG)) for w in c.ways) <= 2  # its bytes are asked of the one that leads, its HEAD of that of its path


def test_the_leader_is_killed(cluster):
    """Whoever is in the middle goes on at the next mirror, which leads from then on."""
    c = cluster('peers { again = 1s } limit "anonymous" { rate = "40m/s" }')
    for m in c.mirrors:
        m.get("/" + BIG)
    left, lock, killed = [3 * CHUNK], threading.Lock(), []

    def midway(m):
        def told(target, n):
            with lock:
                left[0] -= n if BIG in target else 0
                if left[0] <= 0 and not killed:
                    killed.append(m)
                    m.kill()
        return told
    for m, w in zip(c.mirrors, c.ways):
        w.midway = midway(m)
    nodes = [c.node() for _ in range(4)]
    for n in nodes:
        # The one that leads gives the bytes, too. It may be slow at that: a sixth of the time-out for a chunk, and the next one would lead.
        n.pull(f"{BIG}#sha256={SHA}", "--idle-timeout", "600")
    for n in nodes:
        n.done()
    assert killed and len(c.leaders()) == 2, "\n".join(n.log() for n in nodes)
    killed[0].start()


def test_an_announcement_brings_no_file(cluster):
    """A mirror that has only the name of a file leads its swarm all the same."""
    c = cluster("peers { again = 1m }")
    before = c.bucket.counts.get(("GET", "blob"), 0)
    for m in c.mirrors[1:]:
        member = Member(m)
        assert member.told["take"] == [] and member.told["swarm"] == 1
        member.close()
    assert c.bucket.counts.get(("GET", "blob"), 0) == before
