"""What limits mean for several mirrors: each has its part, and an origin that asks one of them for a pause has it from all."""
import concurrent.futures
import itertools
import re

import pytest

from harness.bucket import Bucket
from harness.mirrord import until


@pytest.fixture
def bucket():
    with Bucket() as b:
        yield b


@pytest.fixture
def node(mirrord, bucket, origin, tmp_path):
    """node() starts a mirror of the cluster. They have no secret: each asks the origin for itself."""
    keys = bucket.keys_file(tmp_path)

    def start(more="", repo="", limits=""):
        return mirrord(f'''repo "data" {{ protocol = "generic" origin = "{origin.url}/" patience = 1h rule '.' {{ class = immutable }} {repo} }}
            {limits} cluster "{bucket.url}" {{ {bucket.access(keys)}
                poll = "50ms" {more} }}''')
    return start


LIMIT = 'limit "anonymous" { requests = "0.001/s" burst = 6 }'


def burst(m):
    """The limit that a refusal names."""
    while (got := m.get("/data/a")).status == 200:
        pass
    assert got.status == 429
    return int(re.match(r"limit=(\d+),", got["ratelimit"])[1])


def test_a_limit_is_shared(node, origin):
    origin.put("/a", size=100)
    a = node(limits=LIMIT)
    assert burst(a) == 6
    b = node(limits=LIMIT)
    until(lambda: burst(a) == burst(b) == 3)
    c = node(limits=LIMIT)
    until(lambda: burst(a) == burst(b) == burst(c) == 2)
    c.ctl("cluster", "drain")
    until(lambda: burst(a) == burst(b) == 3)
    c.stop()
    b.stop()
    until(lambda: burst(a) == 6)


def test_a_limit_of_each_mirror(node, origin):
    origin.put("/a", size=100)
    a, b, c = node('limits = "whole"', limits=LIMIT), node('limits = "whole"', limits=LIMIT), node(limits=LIMIT)
    until(lambda: burst(c) == 2)  # so the others have had time to learn of each other, too
    assert burst(a) == burst(b) == 6


def test_connections_to_an_origin_are_shared(node, bucket, origin):
    a, b = [node(repo="connections = 4") for _ in range(2)]
    until(lambda: all(n["state"] == "ready" for m in (a, b) for n in nodes(m)) and len(nodes(a)) == len(nodes(b)) == 2)
    beats = bucket.counts["PUT", "node"]
    until(lambda: bucket.counts["PUT", "node"] >= beats + 4)  # what they know is in force
    paths = [f"/{i}" for i in range(8)]
    for path in paths:
        origin.put(path, size=1000, hold_at=0)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        got = [pool.submit(a.get, f"/data{path}") for path in paths]
        until(lambda: asked(origin, paths) == 2)
        for n in range(3, 9):  # one ends, the next one begins
            first = next(p for p in paths if origin.stats(p).requests and not origin.stats(p).go.is_set())
            assert asked(origin, paths) == n - 1
            origin.stats(first).go.set()
            until(lambda n=n: asked(origin, paths) == n)
        for path in paths:
            origin.stats(path).go.set()
        assert [g.result().status for g in got] == [200] * 8


def nodes(m):
    return m.ctl_json("cluster", "nodes")


def asked(origin, paths):
    return sum(origin.stats(p).requests for p in paths)


def test_all_pause_for_an_origin(node, origin):
    a, b = node(), node()
    origin.put("/first", size=100)
    for m in (a, b):
        assert m.get("/data/first").status == 200
    origin.put("/busy", status=429, fields="Retry-After: 200")
    assert a.get("/data/busy").status in (429, 503)
    numbers = itertools.count()

    def is_refused():
        path = f"/{next(numbers)}"
        origin.put(path, size=100)
        return b.get(f"/data{path}").status != 200
    until(is_refused)
    origin.put("/other", size=100)
    refused = b.get("/data/other")
    assert refused.status == 503 and b"asked not to be contacted" in refused.body and origin.stats("/other").requests == 0, refused
    assert b.get("/data/first").status == 200
