"""Several mirrors over one bucket: what one is given, the others have, and what the bucket lacks is nobody's."""
import hashlib
import os
import random

import pytest

from harness.bucket import Bucket, Fault
from harness.mirrord import until

REPO = 'repo "models" { protocol = "hosted" }'


@pytest.fixture
def bucket():
    with Bucket() as b:
        yield b


@pytest.fixture
def node(mirrord, bucket, tmp_path):
    """node() starts a mirror of the cluster."""
    def start(more="", conf="", **kw):
        keys = bucket.keys_file(tmp_path)
        return mirrord(f'''{REPO} {conf}
            cluster "{bucket.url}" {{ endpoint = "{bucket.endpoint}" region = "eu-test-1" authorization = "file:{keys}" poll = "50ms" {more} }}''', **kw)
    return start


def has(m, path, data):
    got = m.get(path)
    return got.status == 200 and got.body == data


def seen(m, path, data):
    until(lambda: has(m, path, data))


def test_what_one_is_given_the_others_have(node):
    a, b = node(), node()
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
