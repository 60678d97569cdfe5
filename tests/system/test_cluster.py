"""Several mirrors over one bucket: what one is given, the others have, and what the bucket lacks is nobody's."""
import concurrent.futures
import hashlib
import itertools
import json
import os
import random
import re
import signal
import threading
import time

import pytest

from harness.bucket import Bucket, Fault
from harness.mirrord import Mirrord, free_port, know_each_other, until
from harness.tree_origin import TreeOrigin
from system.test_hosted_hub import Hub

REPO = 'repo "models" { protocol = "hosted" }'


@pytest.fixture
def bucket():
    with Bucket() as b:
        yield b


@pytest.fixture
def node(mirrord, bucket, tmp_path):
    """node() starts a mirror of the cluster."""
    keys, secret = bucket.keys_file(tmp_path), bucket.secret_file(tmp_path)

    def start(more="", conf="", poll="50ms", **kw):
        """poll: None leaves it at one second, and gives it an address, so the others tell it what is new."""
        port = free_port()
        ways = f'poll = "{poll}"' if poll else f'secret = "file:{secret}" address = "http://127.0.0.1:{port}"'
        return mirrord(f'''{REPO} {conf}
            listen "127.0.0.1:{port}" {{ }}
            cluster "{bucket.url}" {{ {bucket.access(keys)} {ways} {more} }}''', **kw)
    return start


def has(m, path, data):
    got = m.get(path)
    return got.status == 200 and got.body == data


def seen(m, path, data):
    until(lambda: has(m, path, data))


def learned(what):
    """A mirror looks into the log before it says that there is no such thing. It waits a second for that (LEARN_MS): only then it may be wrong."""
    began = time.monotonic()
    if not what():
        assert time.monotonic() - began > 0.9
        until(what)


def found(m, path, data):
    learned(lambda: has(m, path, data))


def test_what_one_is_given_the_others_have(node):
    a, b = node(), node()
    a.says("new_cluster=yes")
    b.says("new_cluster=no")
    token = a.token("ci", "publish:models/*")
    until(lambda: b.put("/models/me/gpt/b", b"from b", token=token).status == 201)  # b learns of the token
    for size in (0, 1, 1000, 40_000, 300_000, 2_500_000):
        data = random.Random(size).randbytes(size)
        assert a.put(f"/models/me/gpt/{size}", data, token=token).status == 201
        seen(b, f"/models/me/gpt/{size}", data)
    seen(a, "/models/me/gpt/b", b"from b")


def test_a_new_node_has_all_that_there_was(node, bucket):
    a = node()
    token = a.token("ci", "publish:models/*")
    files = {f"/models/me/set/{i % 7}/{i}": os.urandom(50 * i) for i in range(40)}
    for path, data in files.items():
        assert a.put(path, data, token=token).status == 201
    a.stop()
    b = node()
    for path, data in files.items():
        assert has(b, path, data)
    assert b.put("/models/me/set/new", b"1", token=token).status == 201
    assert ("PUT", "blob") not in bucket.counts  # small files go into packs


def test_keeping_house_on_a_node_that_has_only_names(node):
    """Verification finds nothing, and a collection takes nothing that a tree names, whoever has its bytes."""
    a = node()
    token = a.token("ci", "publish:models/*")
    files = {f"/models/me/set/{i}": os.urandom(20_000 * i) for i in range(10)}
    for path, data in files.items():
        assert a.put(path, data, token=token).status == 201
    b = node()
    for path in list(files)[:5]:
        assert has(b, path, files[path])
    for m in (a, b):
        m.ctl("verify", "--deep")
        m.ctl("cache", "gc")
    for m in (a, b):
        for path, data in files.items():
            assert has(m, path, data)
        m.ctl("verify", "--deep")


def test_a_disk_is_smaller_than_the_cluster(node):
    """What lies in the bucket is evicted, and comes back when it is asked for."""
    a = node(conf='storage { quota = "24m" high = "80%" low = "50%" reserve = "1m" }')
    token = a.token("ci", "publish:models/*")
    files = {f"/models/me/set/{i}": os.urandom(3_000_000) for i in range(20)}
    for path, data in files.items():
        until(lambda: a.put(path, data, token=token).status == 201)
    for _ in range(2):
        for path, data in files.items():
            assert has(a, path, data), (path, a.get(path))
    assert a.metric("mirrord_store_used_bytes") < 24e6
    a.ctl("verify", "--deep")


def test_who_has_written_reads_it_anywhere(node, bucket):
    """With a poll of a minute: only because the other mirrors are told. Whoever has not applied an entry 250 ms after it was written is not
    waited for, and may then be left out for ten seconds (cluster/poke.h): on a busy machine that is no failure."""
    a, b, c = nodes = [node('poll = "60s"', poll=None) for _ in range(3)]
    know_each_other(nodes)
    token = a.token("ci", "publish:models/*")
    for m in nodes:
        until(lambda m=m: m.put("/models/me/ready/x", b"", token=token).status in (200, 201))
    numbers, late = itertools.count(), {}  # when a mirror last waited in vain

    def in_time(m):
        """After an answer of this one: whether each of the others must have applied what it wrote."""
        written = max(at for key, (_, at) in bucket.objects.items() if key.startswith("prod/log/"))
        if time.time() - written > 0.24:
            late[id(m)] = time.monotonic()
        return time.monotonic() - late.get(id(m), -60) > 11

    def tells(writer, reader):
        data = str(next(numbers)).encode()
        assert writer.put("/models/me/gpt/x", data, token=token).status in (200, 201)
        must = in_time(writer)
        return has(reader, "/models/me/gpt/x", data), must
    for writer, reader in itertools.permutations(nodes, 2):
        until(lambda w=writer, r=reader: tells(w, r)[0])  # one that was slow to greet the others leaves them out, too
    dice, strict = random.Random(1), []

    def some_had_to():
        told, must = tells(*dice.sample(nodes, 2))
        assert told or not must
        strict.append(must)
        return sum(strict) >= 30
    until(some_had_to)
    assert b.ctl("token", "revoke", "ci").returncode == 0
    must = in_time(b)
    for m in nodes:
        refused = m.put("/models/me/gpt/y", b"no", token=token).status == 401
        assert refused or not (must or m is b)
        until(lambda m=m: m.put("/models/me/gpt/y", b"no", token=token).status == 401)


def test_a_tree_that_is_not_here_may_be_new(node, bucket):
    """A mirror that was not told, because it had just started, say, looks into the log before it says that there is no such tree or version."""
    a, b = node(poll="60s"), node(poll="60s")
    token = a.token("ci", "publish:models/*")
    for i in range(5):
        assert a.put(f"/models/me/new{i}/x", b"1", token=token).status == 201
        found(b, f"/models/me/new{i}/x", b"1")
        assert a.put(f"/models/me/new{i}/x", b"2", token=token).status in (200, 201)
        found(b, f"/models/me/new{i}@v2/x", b"2")
    before, began = bucket.counts["GET", "log"], time.monotonic()
    got = b.get_all([f"/models/me/none{i}/x" for i in range(300)])
    assert {status for status, _ in got} == {404}
    assert bucket.counts["GET", "log"] - before <= 20 + 10 * (time.monotonic() - began)
    for fault in (Fault("slow", delay=600), Fault("cut")):  # nobody waits for a bucket that does not answer, but the first
        bucket.faults = [fault]
        assert {status for status, _ in b.get_all([f"/models/me/none{i}/x" for i in range(50)])} == {404}
        assert has(b, "/models/me/new0/x", b"2")


def test_a_poke_of_a_stranger(node):
    a = node(poll=None)
    for query, headers in (("seq=5", {}), ("seq=5", {"Mirrord-Poke": "0" * 64}), ("seq=x", {}), ("", {})):
        assert a.put(f"/-/cluster/poke?{query}", b"", method="POST", headers=headers).status in (403, 404)


def test_a_mirror_that_does_not_answer_pokes(node):
    a, b = node(poll=None), node(poll=None)
    know_each_other([a, b])
    token = a.token("ci", "publish:models/*")
    b.child.send_signal(signal.SIGSTOP)
    try:
        for i in range(5):
            assert a.put(f"/models/me/gpt/{i}", b"x", token=token).status == 201
    finally:
        b.child.send_signal(signal.SIGCONT)
    for i in range(5):
        seen(b, f"/models/me/gpt/{i}", b"x")


def test_a_bucket_that_goes_away(node, bucket):
    """What is on the disk is served, tokens and writes are refused in words, and all comes back by itself."""
    a = node('stale_after = "1s"')
    token = a.token("ci", "publish:models/*")
    until(lambda: a.put("/models/me/gpt/x", b"here", token=token).status == 201)  # 503 where a poll took a second
    bucket.faults = [Fault("cut")]
    until(lambda: b"which tokens were revoked" in a.put("/models/me/gpt/y", b"no", token=token).body)  # the first may say that it was cut off
    refused = a.put("/models/me/gpt/y", b"no", token=token)
    assert refused.status == 503 and b"which tokens were revoked" in refused.body and refused["retry-after"]
    assert has(a, "/models/me/gpt/x", b"here")
    assert a.get("/readyz").status == 200
    bucket.faults = []
    until(lambda: a.put("/models/me/gpt/y", b"yes", token=token).status == 201)
    assert has(a, "/models/me/gpt/y", b"yes")


def test_a_new_mirror_begins_with_a_checkpoint(node, bucket):
    a = node("checkpoint = 10")
    token = a.token("ci", "publish:models/*")
    files = {f"/models/me/set{i % 3}/{i}": os.urandom(100 * i) for i in range(30)}
    for path, data in files.items():
        assert a.put(path, data, token=token).status == 201
    until(lambda: any(k.startswith("prod/ckpt/") for k in bucket.objects))
    for path in list(files)[:5]:
        assert a.put(path, files[path] + b"!", token=token).status == 201
        files[path] += b"!"
    for key in [k for k in bucket.objects if k.startswith("prod/log/0/")][:10]:
        del bucket.objects[key]  # a new mirror does not need them
    b = node()
    b.says("cluster.restored")
    for path, data in files.items():
        assert has(b, path, data), path
    b.ctl("verify", "--deep")
    assert b.put("/models/me/set0/new", b"1", token=token).status == 201
    seen(a, "/models/me/set0/new", b"1")


@pytest.mark.parametrize("kind, status, keys", [("read-only", 503, "log/"), *((kind, status, keys) for keys in ("pack/", "idx/", "blob/")
                                                                              for kind, status in (("read-only", 503), ("full", 507)))])
def test_a_bucket_that_takes_no_more(node, bucket, kind, status, keys):
    """Whatever it refuses: the client hears when to come again, or that there is no space, and nothing of it appears."""
    a = node()
    token = a.token("ci", "publish:models/*")
    bucket.faults = [Fault(kind, keys, ("PUT",))]
    refused = a.put("/models/me/gpt/x", os.urandom(2 << 20), token=token)
    assert refused.status == status and (status == 507 or refused["retry-after"]), refused
    assert a.get("/models/me/gpt/x").status == 404
    bucket.faults = []
    assert a.put("/models/me/gpt/x", b"yes", token=token).status == 201


def test_a_mirror_ends_although_the_bucket_is_silent(node, bucket):
    a = node(poll=None, conf='drain = "1s"')
    token = a.token("ci", "publish:models/*")
    assert a.put("/models/me/gpt/x", b"1", token=token).status == 201
    bucket.faults = [Fault("slow", delay=600)]
    until(lambda: a.metric("mirrord_cluster_lag_seconds") > 4)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(a.put, "/models/me/gpt/y", b"2", token=token)
        until(lambda: a.metric("mirrord_cluster_commits_waiting") > 0)
        a.stop(limit_s=60)
        assert waiting.result().status in (0, 503)


def test_a_start_without_the_bucket(node, bucket):
    """A mirror that has joined serves what it has; a new one has nothing to serve."""
    a = node('stale_after = "1s"')
    token = a.token("ci", "publish:models/*")
    until(lambda: a.put("/models/me/gpt/x", b"here", token=token).status == 201)  # 503 where a poll took a second
    a.stop()
    bucket.faults = [Fault("cut")]
    a.start()
    assert has(a, "/models/me/gpt/x", b"here")
    assert a.put("/models/me/gpt/y", b"no", token=token).status == 503
    bucket.faults = []
    until(lambda: a.put("/models/me/gpt/y", b"yes", token=token).status == 201)


@pytest.mark.parametrize("fault", ["cut", "503", "slow", "no process listens"])
def test_a_mirror_that_waits_for_the_bucket_ends_in_order(bucket, tmp_path, fault):
    """It has not served yet, and ends with 0 all the same: not as one that gave up."""
    access, away = bucket.access(bucket.keys_file(tmp_path)), fault == "no process listens"
    bucket.faults = [] if away else [Fault(fault, delay=3600)]
    m = Mirrord(f'{REPO} cluster "{bucket.url}" {{ {access.replace(str(bucket.port), str(free_port())) if away else access} }}')
    try:
        m.start(wait=False)
        if fault == "slow":
            until(lambda: bucket.at_once > 0)
        else:
            m.says("cluster.waiting")
            assert re.search(r'cluster.waiting bucket="s3://mirror/prod/ at http://[^"]*" at_most_s=60 why="[^"]+"', m.log())
        m.stop()
        assert "daemon.ended" in m.log() and m.log().count("cluster.waiting") == (fault != "slow")
        bucket.faults = []
        if not away:
            m.start()
            assert "store.unclean" not in m.log()
    finally:
        m.remove()


def test_a_bucket_that_stays_away_is_reported_once(node, bucket):
    a = node()
    a.token("ci", "publish:models/*")
    a.stop()
    bucket.faults = [Fault("cut", keys="probe/")]
    checks = bucket.counts["GET", "probe"]
    a.start()
    until(lambda: bucket.counts["GET", "probe"] > checks + 10)
    bucket.faults = []
    a.says("cluster.probe_passed")
    lines = [line for line in a.log().splitlines() if "cluster.probe" in line]
    assert len(lines) == 2 and "it can be read" in lines[0] and re.search(r"failures=\d+ after_s=\d+", lines[1]), lines


@pytest.mark.parametrize("seed", [1, 2])
def test_mirrors_that_are_killed(node, bucket, seed):
    """What was acknowledged is there, on every mirror and on a new one; every tree verifies."""
    dice = random.Random(seed)
    nodes = [node() for _ in range(3)]
    token = nodes[0].token("ci", "publish:models/*")
    for m in nodes:
        until(lambda m=m: m.put("/models/me/tree0/ready", b"", token=token).status in (200, 201))
    bucket.faults = [Fault(k, p=0.02) for k in ("503", "cut", "503-after", "cut-after")]
    acknowledged, stop = {}, threading.Event()

    def publish(m, number):
        i = 0
        while not stop.is_set():
            path, data = f"/models/me/tree{i % 3}/{number}-{i}", os.urandom(random.Random(i).choice((10, 5000, 70_000)))
            if m.put(path, data, token=token, limit_s=20).status == 201:
                acknowledged[path] = data
            i += 1
    threads = [threading.Thread(target=publish, args=(m, n)) for n, m in enumerate(nodes)]
    for t in threads:
        t.start()
    for _ in range(8):
        time.sleep(dice.uniform(0.2, 0.6))
        m = dice.choice(nodes)
        m.kill()
        m.start()
    until(lambda: len(acknowledged) > 60)
    stop.set()
    for t in threads:
        t.join()
    bucket.faults = []
    nodes.append(node())
    for m in nodes:
        for path, data in acknowledged.items():
            seen(m, path, data)
        m.ctl("verify", "--deep")


def test_a_large_file_is_sent_while_it_arrives(node, bucket):
    a, b = node(), node()
    token = a.token("ci", "publish:models/*")
    data = os.urandom(30 << 20)
    assert a.put("/models/me/gpt/x", data, token=token).status == 201
    seen(b, "/models/me/gpt/x", data)
    c = node()
    etag = a.get("/models/me/gpt/x")["etag"]
    head = c.get("/models/me/gpt/x", method="HEAD")
    assert head.status == 200 and head["content-length"] == str(len(data)) and head["etag"] == etag
    bucket.faults = [Fault("truncate", "blob/", ("GET",), p=0.5)]
    got = c.get("/models/me/gpt/x")
    assert got.body == data and got["etag"] == etag
    assert got["last-modified"] == a.get("/models/me/gpt/x")["last-modified"]
    bucket.faults = []
    d = node()
    part = d.get("/models/me/gpt/x", headers={"Range": "bytes=20000000-20000099"})
    assert part.status == 206 and part.body == data[20000000:20000100]
    for m in (c, d):
        m.settle()  # what came on the way to their clients is fetched to its end
    before = bucket.counts.get(("GET", "blob"), 0)
    assert has(a, "/models/me/gpt/x", data) and bucket.counts.get(("GET", "blob"), 0) == before
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        for got in pool.map(lambda _: d.get("/models/me/gpt/x"), range(20)):
            assert got.body == data
    d.ctl("verify", "--deep")


def test_a_large_file_that_is_damaged_in_the_bucket(node, bucket):
    a = node()
    token = a.token("ci", "publish:models/*")
    data = os.urandom(5 << 20)
    assert a.put("/models/me/gpt/x", data, token=token).status == 201
    key, = (k for k in bucket.objects if k.startswith("prod/blob/"))
    body, when = bucket.objects[key]
    bucket.objects[key] = (body[:-5] + b"wrong", when)
    b = node()
    got = b.get("/models/me/gpt/x")
    assert got.rc != 0 or got.status == 500 or got.status == 502 or got.status == 503
    bucket.objects[key] = (body, when)
    seen(b, "/models/me/gpt/x", data)
    del bucket.objects[key]
    c = node()
    gone = c.get("/models/me/gpt/x")
    assert gone.status in (500, 503), gone
    assert has(a, "/models/me/gpt/x", data)


@pytest.mark.parametrize("size", [100, 50_000, 3 << 20])
def test_a_copy_of_what_another_mirror_has(node, size):
    """The bytes need not come to the mirror that publishes them under another name."""
    a = node()
    data = os.urandom(size)
    hub = Hub(a)
    assert hub.create().status == 200
    assert a.put("/models/me/gpt/first", data, token=hub.token).status == 201
    b = node()
    other = Hub.__new__(Hub)
    other.m, other.wire, other.repo, other.token = b, "h1", "models", hub.token
    copied = other.commit(("lfsFile", {"path": "second", "algo": "sha256", "oid": hashlib.sha256(data).hexdigest()}))
    assert copied.status == 200, copied
    for m in (a, b):
        seen(m, "/models/me/gpt/second", data)
        m.ctl("cache", "gc")
        m.ctl("verify", "--deep")


def test_an_image_is_pulled_from_another_mirror(node):
    """Manifests and blobs by digest: what a tree holds is known on every mirror."""
    a = node()
    token = a.token("ci", "publish:models/*")
    auth = {"Authorization": f"Bearer {token}"}
    layer, config = os.urandom(3 << 20), b"{}"
    manifest = json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                           "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest(config), "size": len(config)},
                           "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest(layer), "size": len(layer)}]}).encode()
    for data in (layer, config):
        started = a.put("/v2/models/me/app/blobs/uploads/", b"", method="POST", headers=auth)
        assert started.status == 202, started
        where = started["location"]
        where = where[where.index("/v2/"):]
        assert a.put(f"{where}{'&' if '?' in where else '?'}digest={digest(data)}", data, headers=auth).status == 201
    kind = {"Content-Type": "application/vnd.oci.image.manifest.v1+json"}
    assert a.put("/v2/models/me/app/manifests/v1", manifest, headers={**auth, **kind}).status == 201
    b = node()
    for m in (b, a):
        got = m.get("/v2/models/me/app/manifests/v1", headers={"Accept": kind["Content-Type"]})
        assert got.body == manifest, got
        assert m.get(f"/v2/models/me/app/manifests/{digest(manifest)}", headers={"Accept": kind["Content-Type"]}).body == manifest
        for data in (layer, config):
            head = m.get(f"/v2/models/me/app/blobs/{digest(data)}", method="HEAD")
            assert head.status == 200 and head["content-length"] == str(len(data))
            assert m.get(f"/v2/models/me/app/blobs/{digest(data)}").body == data
    b.ctl("cache", "gc")
    b.ctl("verify", "--deep")


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def test_a_bucket_that_keeps_its_versions_to_itself(node, bucket):
    """Whether it has old versions is then unknown. That is no reason to read back what was uploaded."""
    bucket.faults = [Fault("read-only", methods=("GET",), query="versioning")]
    a = node()
    a.says("whether it keeps old versions of objects is unknown")
    token = a.token("ci", "publish:models/*")
    assert a.put("/models/me/set/large", os.urandom(2_000_000), token=token).status == 201
    assert bucket.counts["PUT", "blob"] == 1 and ("GET", "blob") not in bucket.counts
    assert a.get("/models/me/set/large").status == 200


def test_a_synced_tree_is_served_by_all(node):
    """One mirror has the schedule; the others have the section without it, and serve what that one has published."""
    files = {"top": b"1", "a/one.bin": os.urandom(70_000), "a/two.bin": os.urandom(2_000_000), "a/b/empty": b""}
    with TreeOrigin(files) as o:
        conf = f'repo "x" {{ protocol = "generic" origin = "{o.url}" sync {{ backoff = "100ms" tries = 2 }} }}'
        a, b = node(conf=conf), node(conf=conf)
        a.ctl("sync", "run", "x", "--wait")
        for path, data in files.items():
            seen(b, f"/x/{path}", data)
        o.put("new", b"new")
        a.ctl("sync", "run", "x", "--wait")
        seen(b, "/x/new", b"new")
        a.ctl("snapshot", "rollback", "x", "v1")
        until(lambda: b.get("/x/new").status == 404)
        assert "v2" in b.ctl("snapshot", "ls", "x").stdout
        b.ctl("verify", "--deep")
        b.ctl("snapshot", "rollback", "x", "v2")
        seen(a, "/x/new", b"new")
