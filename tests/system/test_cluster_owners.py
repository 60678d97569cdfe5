"""Objects of other origins in a cluster: one mirror fetches each of them, and the others have it from that one."""
import concurrent.futures
import hashlib
import os
import random
import signal
import subprocess
import time

import pytest

from harness.bucket import Bucket
from harness.mirrord import SLOW, free_port, know_each_other, until

MIB = 1 << 20
RING = int(os.environ.get("RING", "60"))  # objects: 2000 make 10,000 requests
FILES = 'repo "models" {{ protocol = "hosted" }} repo "data" {{ protocol = "generic" origin = "{}/" rule \'^/keep/\' {{ class = immutable }} }}'


@pytest.fixture(scope="module")
def bucket():
    with Bucket() as b:
        yield b


@pytest.fixture(scope="module")
def start(shared_mirrord, bucket, shared_origin, tmp_path_factory):
    """start() starts a mirror of the cluster, in front of the origin. After four beats of silence it counts as dead, and others fetch what it
    owns: that is longer than a busy machine stands still."""
    folder = tmp_path_factory.mktemp("cluster")
    keys, secret = bucket.keys_file(folder), bucket.secret_file(folder)

    def one(conf="", more="", heartbeat="2s", **kw):
        port = free_port()
        return shared_mirrord(f'''{FILES.format(shared_origin.url)} {conf}
            listen "127.0.0.1:{port}" {{ }}
            cluster "{bucket.url}" {{ {bucket.access(keys)} poll = "50ms" heartbeat = "{heartbeat}"
                                      secret = "file:{secret}" address = "http://127.0.0.1:{port}" {more} }}''', **kw)
    return one


@pytest.fixture(scope="module")
def three(start):
    nodes = [start() for _ in range(3)]
    know_each_other(nodes)
    return nodes


@pytest.fixture
def origin(shared_origin):
    return shared_origin


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


def test_what_mirrors_ask_each_other_is_counted(three, origin):
    before = [m.metric("mirrord_cluster_owner_bytes_total") for m in three]
    origin.put("/keep/counted", size=100_000)
    for m in three:
        assert m.get("/data/keep/counted").status == 200
    assert sum(m.metric("mirrord_cluster_owner_bytes_total") for m in three) - sum(before) == 200_000
    assert sum(m.metric("mirrord_cluster_owner_requests_total", result="ok") for m in three) >= 2


def test_expiry_and_absence_are_asked_for_once(three, origin):
    """An object that is fresh for a second, and one that is not there: however many mirrors are asked."""
    thing, began = origin.put("/changes", size=1000, fields="cache-control: max-age=2"), time.monotonic()

    def more():
        """So often it may have expired meanwhile: its Date has whole seconds, so one of the two may be over when it comes."""
        return int(time.monotonic() - began)
    for m in three * 3:
        assert m.get("/data/changes").status == 200
    assert thing.requests <= 2 + more()
    until(lambda: int(three[0].get("/data/changes").headers.get("age", "0")) < 2 and thing.requests >= 2)
    asked, began = thing.requests, time.monotonic()
    for m in three * 5:
        got = m.get("/data/changes")
        assert got.status == 200 and int(got.headers.get("age", "0")) <= 3 + int(got.total_s)
    assert thing.requests <= asked + 3 + more(), "each mirror asks for itself"
    absent = origin.put("/absent", status=404, words="no such thing")
    for m in three * 3:
        assert m.get("/data/absent").status == 404
    assert absent.requests == 1


@pytest.mark.parametrize("etag", ["strong", "weak", "none"])
def test_all_mirrors_send_the_same_etag(three, origin, etag):
    path = f"/file-{etag}"
    thing = origin.put(path, size=3 * MIB, etag=etag)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        got = list(pool.map(lambda m: m.get(f"/data{path}"), three))
    assert len({g.headers["etag"] for g in got}) == 1 and {digest(g.body) for g in got} == {sha(origin, path)}
    assert thing.bytes == 3 * MIB
    for m in three:
        part = m.get(f"/data{path}", headers={"range": "bytes=100-199", "if-range": got[0].headers["etag"]})
        assert part.status == 206 and part.body == origin.bytes_of(path, 100, 200)
    assert thing.bytes == 3 * MIB


def test_ranges_and_heads(three, origin):
    thing = origin.put("/keep/big", size=40 * MIB)
    for m in three:
        head = m.get("/data/keep/big", method="HEAD")
        assert head.status == 200 and head.headers["content-length"] == str(40 * MIB)
    for i, m in enumerate(three * 2):
        first = (30 - 3 * i) * MIB
        got = m.get("/data/keep/big", headers={"range": f"bytes={first}-{first + 999}"})
        assert got.status == 206 and got.body == origin.bytes_of("/keep/big", first, first + 1000)
    for m in three:
        assert digest(m.get("/data/keep/big").body) == sha(origin, "/keep/big")
    assert thing.bytes == 40 * MIB


def test_what_an_origin_says_no_with(three, origin):
    """The words and the status of its refusals; and why there is nothing when it fails."""
    origin.put("/forbidden", status=403, words="not you")
    origin.put("/broken", no_head=True)
    for m in three:
        got = m.get("/data/forbidden")
        assert got.status == 403 and b"not you" in got.body
        got = m.get("/data/broken")
        assert got.status in (502, 504) and b"origin" in got.body, got.body


def test_a_large_file_leaves_the_bucket_once(three, bucket):
    """What is hosted: the owner of a file reads it from the bucket, for all of them."""
    a, *others = three
    data = random.Random(7).randbytes(24 * MIB)
    token = a.token("ci", "publish:models/*")
    assert a.put("/models/me/big/file", data, token=token).status == 201
    name = "/models/me/big/file"
    until(lambda: all(m.get(name, method="HEAD").status == 200 for m in three))
    sent = bucket.sent.get("blob", 0)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        got = list(pool.map(lambda m: m.get(name), others * 3))
    assert {g.status for g in got} == {200} and all(g.body == data for g in got)
    assert (bucket.sent.get("blob", 0) - sent) // MIB <= 24
    part = others[0].get(name, headers={"range": "bytes=1000000-1000099"})
    assert part.status == 206 and part.body == data[1000000:1000100]


def test_a_damaged_copy_elsewhere_is_asked_for_once(three):
    """The mirror that has it sends bytes that are not those of the digest: they never come whole, and the next try reads the bucket."""
    a, b, _ = three
    token = a.token("ci2", "publish:models/*")
    files = {f"/models/me/rot/{i}": random.Random(i).randbytes(2 * MIB) for i in range(6)}
    for name, data in files.items():
        assert a.put(name, data, token=token).status == 201
    damaged = 0
    for data in files.values():
        for path in a.state.rglob(digest(data)):
            with open(path, "r+b") as f:
                f.seek(100)
                f.write(b"damage")
            damaged += 1
    assert damaged == 6
    for name, data in files.items():
        until(lambda: b.get(name).body == data)  # noqa: B023


@pytest.mark.parametrize("how", ["rm", "refresh"])
def test_what_was_removed_is_not_had_from_the_others(three, origin, how):
    """`cache rm` and `cache refresh` on one mirror: its next copy is the origin's, although the others have the one from before."""
    for i, m in enumerate(three * 2):  # owner or not
        path, size = f"/{how}/{i}", (1000, 3 * MIB)[i % 2]
        origin.put(path, size=size, seed=1, fields="cache-control: max-age=3600")
        for other in three:
            assert digest(other.get(f"/data{path}").body) == sha(origin, path)
            other.settle()
        origin.put(path, size=size, seed=2, fields="cache-control: max-age=3600")
        m.ctl("cache", how, *((f"data{path}",) if how == "rm" else ("data", path[1:])))
        assert digest(m.get(f"/data{path}").body) == sha(origin, path), (i, how)


def test_strangers_are_refused(three, origin):
    thing = origin.put("/keep/x", size=10)
    m = three[0]
    assert m.get("/-/cluster/object").status == 403
    assert m.get("/-/cluster/object", headers={"mirrord-lookup": "AQ==", "mirrord-signature": "0" * 64}).status == 403
    assert m.get("/-/cluster/object", method="POST", data=b"x").status == 404
    assert thing.requests == 0


# --- mirrors that come and go: the last tests of the file ---

def test_a_mirror_that_joins_has_it_from_the_others(start, three, origin):
    things = {f"/keep/joins/{i}": origin.put(f"/keep/joins/{i}", size=100_000) for i in range(40)}
    for path in things:
        for m in three:
            assert m.get(f"/data{path}").status == 200
    fourth = start()
    know_each_other([*three, fourth])
    for path in things:
        assert digest(fourth.get(f"/data{path}").body) == sha(origin, path)
    assert {t.requests for t in things.values()} == {1}
    fourth.stop()
    know_each_other(three)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_an_owner_that_dies(three, origin, how):
    """While it sends: its readers get the right bytes, and the origin gives again what was lost with it at most."""
    size, path = 60 * MIB, f"/keep/dies-{how}"
    thing = origin.put(path, size=size, hold_at=20 * MIB)
    before = {m: m.upstream_requests() for m in three}
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        got = {m: pool.submit(m.get, f"/data{path}") for m in three}
        until(lambda: thing.bytes >= 20 * MIB and any(m.upstream_requests() > before[m] for m in three))
        owner = next(m for m in three if m.upstream_requests() > before[m])
        owner.child.send_signal(how)
        thing.go.set()
        try:
            for m in three:
                if m is not owner:
                    assert digest(got[m].result().body) == sha(origin, path)
            assert thing.bytes <= 1.5 * size
        finally:
            owner.child.send_signal(signal.SIGCONT)
            if how == signal.SIGKILL:
                owner.kill()
                owner.start()
    if how == signal.SIGKILL:  # it has lost what it had
        assert digest(owner.get(f"/data{path}").body) == sha(origin, path)
        assert thing.bytes <= 1.5 * size
    know_each_other(three)


def test_an_owner_that_is_killed_and_started_again(three, origin, tmp_path):
    """While all three are asked, by clients that try again: the origin gives again no more than was in flight."""
    size, path = 24 * MIB, "/keep/starts-again"
    thing = origin.put(path, size=size, rate=8 * MIB, hold_at=size // 3)
    before = {m: m.upstream_requests() for m in three}

    def curl(m):
        to = tmp_path / str(m.port)
        subprocess.run(["curl", "-sS", "-f", "--retry", "20", "--retry-all-errors", "--retry-delay", "1", "-o", to, m.url(f"/data{path}")], check=True)
        return digest(to.read_bytes())

    def has_most(m):
        to = tmp_path / str(m.port)
        return to.exists() and to.stat().st_size >= size // 3 - MIB
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        got = [pool.submit(curl, m) for m in three]
        until(lambda: thing.bytes >= size // 3 and any(m.upstream_requests() > before[m] for m in three))
        until(lambda: all(has_most(m) for m in three))  # on a busy machine, all of that may be in flight
        owner = next(m for m in three if m.upstream_requests() > before[m])
        owner.kill()
        thing.go.set()
        owner.start()
        assert {g.result() for g in got} == {sha(origin, path)}
    assert thing.bytes <= (1.25 if SLOW == 1 else 1.6) * size  # a mirror under a sanitizer has more in flight
    know_each_other(three)


def test_a_file_outlives_those_who_had_it(three):
    """The mirror that took it and its owner are gone: the last one reads it from the bucket, large or small."""
    *gone, last = three
    token = gone[0].token("ci3", "publish:models/*")
    files = {f"/models/me/outlives/{i}": random.Random(i).randbytes(size) for i, size in enumerate((10, 50_000, 2 * MIB, 9 * MIB))}
    for path, data in files.items():
        assert gone[0].put(path, data, token=token).status == 201
        until(lambda: gone[1].get(path).body == data)  # noqa: B023  (a busy mirror has it with its next poll)
    until(lambda: last.get(path, method="HEAD").status == 200)  # and so all before it
    for m in gone:
        m.kill()
    try:
        for path, data in files.items():
            assert last.get(path).body == data
    finally:
        for m in gone:
            m.start()
    know_each_other(three)


def test_mirrors_that_disagree_wait_for_nobody(start, three, origin):
    """Each of these looks at the list of members once a minute, and so knows only those that were there before it: every one has another owner
    for the same object. No request waits for ever, and nothing is fetched more often than there are opinions."""
    late = [start(heartbeat="1m") for _ in range(3)]
    things = [origin.put(f"/keep/ring/{i}", size=30_000, delay=0.01) for i in range(RING)]
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        got = [pool.submit(m.get, f"/data/keep/ring/{i}") for i in range(RING) for m in random.Random(i).sample(late + three[:2], 5)]
        assert {g.result().status for g in got} == {200}
    assert max(t.requests for t in things) <= 4
    for m in late:
        m.stop()
