"""Objects of other origins in a cluster: one mirror fetches each of them, and the others have it from that one."""
import concurrent.futures
import hashlib
import os
import random
import signal

import pytest

from harness.bucket import Bucket
from harness.mirrord import free_port, until

MIB = 1 << 20
FILES = 'repo "data" {{ protocol = "generic" origin = "{}/" rule \'^/keep/\' {{ class = immutable }} }}'


@pytest.fixture
def bucket():
    with Bucket() as b:
        yield b


@pytest.fixture
def start(mirrord, bucket, origin, tmp_path):
    """start() starts a mirror of the cluster, in front of the origin."""
    keys, secret = bucket.keys_file(tmp_path), tmp_path / "cluster.secret"
    secret.write_text("a secret of this cluster\n")
    secret.chmod(0o600)

    def one(conf="", more="", **kw):
        port = free_port()
        return mirrord(f'''{FILES.format(origin.url)} {conf}
            listen "127.0.0.1:{port}" {{ }}
            cluster "{bucket.url}" {{ endpoint = "{bucket.endpoint}" region = "eu-test-1" authorization = "file:{keys}" poll = "50ms"
                                      secret = "file:{secret}" address = "http://127.0.0.1:{port}" {more} }}''', **kw)
    return one


def know(bucket, count):
    """Waits until so many mirrors have announced themselves and have read of the others."""
    until(lambda: sum(k.startswith("prod/node/") for k in bucket.objects) >= count)
    beats = bucket.counts.get(("PUT", "node"), 0)
    until(lambda: bucket.counts.get(("PUT", "node"), 0) >= beats + 2 * count)


@pytest.fixture
def three(start, bucket):
    nodes = [start() for _ in range(3)]
    know(bucket, 3)
    return nodes


def digest(data):
    return hashlib.sha256(data).hexdigest()


def sha(origin, path):
    return digest(origin.bytes_of(path, 0, origin.stats(path).length()))


def test_a_cold_object_is_fetched_once(three, origin):
    for i in range(12):
        path, size = f"/keep/{i}", [10, 40_000, 3 * MIB, 20 * MIB][i % 4]
        thing = origin.put(path, size=size)
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            got = list(pool.map(lambda m: m.get(f"/data{path}"), three * 2))
        assert {g.status for g in got} == {200}, [(g.status, g.body[:200]) for g in got]
        assert {digest(g.body) for g in got} == {sha(origin, path)}
        assert len({g.headers["etag"] for g in got}) == 1
        assert (thing.bytes, thing.requests) == (size, 1) if size < 4 * MIB else thing.bytes == size
