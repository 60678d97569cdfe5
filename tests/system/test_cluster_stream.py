"""Large files that lie in the cluster's bucket, and not on the disk of the mirror that is asked: they are sent while they arrive, on every path."""
import contextlib
import hashlib
import http.client
import json
import random
import re

import pytest

from harness.bucket import Fault
from harness.image import Image, manifest
from harness.mirrord import SLOW, know_each_other, until
from system.test_agent import Agent
from system.test_cluster import bucket, has, node, seen  # noqa: F401  (fixtures)
from system.test_hf_xet import CHUNK, frames
from system.test_hosted_hub import Hub

MIB = 1 << 20
SIZE = 24 * MIB
DATA = random.Random(19).randbytes(SIZE)
HEX = hashlib.sha256(DATA).hexdigest()
PATHS = {"tree": "/models/me/gpt/x", "hub": "/models/me/gpt/resolve/main/x", "blob": f"/-/blob/{HEX}", "image": f"/v2/models/me/app/blobs/sha256:{HEX}",
         "object": f"/models/me/gpt/-/objects/{HEX}"}


@pytest.fixture
def stored(node):
    """A mirror that has published the file, and its token."""
    a = node()
    token = a.token("ci", "publish:models/*")
    assert a.put("/models/me/gpt/x", DATA, token=token).status == 201
    Image(a, "models/me/app", token).push("v1", [DATA])
    return a


def knowing(node, **kw):
    """Another mirror, once it knows of the file."""
    b = node(**kw)
    until(lambda: b.get(PATHS["tree"], method="HEAD").status == 200)
    return b


def hold_the_first_half(bucket):
    """Requests for what begins there are held back, also those that are made after a silence."""
    def first_of(r):
        found = re.match(r"bytes=(\d+)", r.fields.get("range", ""))
        return int(found[1]) if found else 0
    bucket.fault_of = lambda r: ("hold", 0) if r.method == "GET" and "/blob/" in r.key and first_of(r) <= SIZE // 2 else (None, 0)


def comes_whole(m, path, **kw):
    got = m.get(path, **kw)
    assert got.rc != 0 or got.status >= 500 or got.body == DATA, "wrong bytes came whole"
    return got.rc == 0 and got.status == 200


@contextlib.contextmanager
def reading(m, path, **fields):
    c = http.client.HTTPConnection("127.0.0.1", m.port, timeout=60 * SLOW)
    try:
        c.request("GET", path, headers=fields)
        yield c.getresponse()
    finally:
        c.close()


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
def test_the_first_half_comes_before_the_second(node, bucket, stored, path):
    """The bucket keeps the second half back until the client has some of the first."""
    b = knowing(node)
    assert b.get(path, method="HEAD")["content-length"] == str(SIZE) and ("GET", "blob") not in bucket.counts
    bucket.faults = [Fault("hold", "blob/", ("GET",))]
    with reading(b, path) as answer:
        assert answer.status == 200 and answer.getheader("content-length") == str(SIZE)
        first = answer.read(4 * MIB)
        bucket.go.set()
        assert first + answer.read() == DATA
    assert bucket.sent["blob"] == SIZE


def test_xet(node, bucket, stored):
    """The framed bytes: the same, and ranges of them, of which clients ask for many at once."""
    b = knowing(node)
    commit = b.get(PATHS["hub"], method="HEAD")["x-repo-commit"]
    path = f"/models/api/models/me/gpt/xet/{commit}/data/{HEX}"
    where = 20 * MIB // CHUNK * (CHUNK + 8)
    chunk = {"Range": f"bytes={where}-{where + CHUNK + 7}"}
    assert frames(b.get(path, headers=chunk).body) == DATA[20 * MIB:20 * MIB + CHUNK]
    assert bucket.sent["blob"] < MIB
    c = knowing(node)
    hold_the_first_half(bucket)
    with reading(c, path) as answer:
        assert answer.status == 200
        first = answer.read(4 * MIB)
        part = c.get(path, headers=chunk)
        assert part.status == 206 and frames(part.body) == DATA[20 * MIB:20 * MIB + CHUNK]
        bucket.go.set()
        assert frames(first + answer.read()) == DATA


@pytest.mark.parametrize("way", ["tree", "blob"])
def test_a_range_in_the_middle(node, bucket, stored, way):
    """Of a file that nobody else reads, it alone is read; of one that is on its way, it does not wait for what comes before it."""
    b, path = knowing(node), PATHS[way]
    assert b.get(path, headers={"Range": "bytes=20000000-20000099"}).body == DATA[20000000:20000100]
    assert bucket.sent["blob"] < MIB
    c = knowing(node)
    hold_the_first_half(bucket)
    with reading(c, path) as answer:
        first = answer.read(MIB)
        part = c.get(path, headers={"Range": "bytes=20000000-20000099"})
        assert part.status == 206 and part.body == DATA[20000000:20000100]
        bucket.go.set()
        assert first + answer.read() == DATA


@pytest.mark.parametrize("way", ["tree", "blob"])
def test_two_clients_at_once(node, bucket, stored, way):
    """Of two mirrors: the owner of the file reads it from the bucket, and the bytes go through the other one while they arrive."""
    nodes = [knowing(node, poll=None) for _ in range(2)]
    know_each_other([stored, *nodes])
    bucket.faults = [Fault("hold", "blob/", ("GET",))]
    with contextlib.ExitStack() as all_of_them:
        answers = [all_of_them.enter_context(reading(m, PATHS[way])) for m in nodes * 2]
        firsts = [a.read(4 * MIB) for a in answers]
        bucket.go.set()
        assert all(first + a.read() == DATA for first, a in zip(firsts, answers))
    assert bucket.sent["blob"] == SIZE


@pytest.mark.parametrize("way", ["tree", "blob"])
def test_a_bucket_that_stops_in_mid_file(node, bucket, stored, way):
    b, path = knowing(node), PATHS[way]
    bucket.faults = [Fault("truncate", "blob/", ("GET",), first=1)]
    assert has(b, path, DATA), "it goes on from there"
    c = knowing(node)
    bucket.faults = [Fault("truncate", "blob/", ("GET",), first=1), Fault("cut", "blob/", ("GET",))]
    assert not comes_whole(c, path, limit_s=15)  # the mirror itself tries for some minutes
    bucket.faults = []
    seen(c, path, DATA)


@pytest.mark.parametrize("way", ["tree", "blob"])
@pytest.mark.parametrize("owned", [False, True], ids=["bucket", "owner"])
def test_a_wrong_bit_in_the_second_half(node, bucket, stored, way, owned):
    """The client has the first half by then: its transfer breaks, and never comes whole."""
    nodes = [knowing(node, poll=None if owned else "50ms") for _ in range(2 if owned else 1)]
    know_each_other([stored, *nodes])
    bucket.faults = [Fault("hold-flip", "blob/", ("GET",))]
    with contextlib.ExitStack() as all_of_them:
        answers = [all_of_them.enter_context(reading(m, PATHS[way])) for m in nodes]
        assert [len(a.read(4 * MIB)) for a in answers] == [4 * MIB] * len(nodes)
        bucket.go.set()
        for a in answers:
            with pytest.raises((http.client.IncompleteRead, ConnectionError)):
                a.read()
    bucket.faults = []
    for b in nodes:
        seen(b, PATHS[way], DATA)


@pytest.mark.parametrize("way", ["tree", "blob"])
def test_a_mirror_that_is_killed_in_mid_file(node, bucket, stored, way):
    b = knowing(node)
    bucket.faults = [Fault("hold", "blob/", ("GET",), first=1)]
    with reading(b, PATHS[way]) as answer:
        assert len(answer.read(4 * MIB)) == 4 * MIB
        b.kill()
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            answer.read()
    bucket.go.set()
    b.start()
    assert has(b, PATHS[way], DATA)
    b.ctl("verify", "--deep")


# --- lists of chunks, which an agent asks for before the bytes ---

LIST = f"/-/chunks/{HEX}"


def test_the_list_of_chunks_comes_without_the_file(node, bucket, stored):
    expected = stored.get(LIST)
    assert expected.status == 200 and len(expected.body) == 56 + 32 * 3
    b = knowing(node)
    assert LIST in b.get(PATHS["tree"], method="HEAD")["link"]
    reads = bucket.counts["GET", "pack"]
    for _ in range(3):
        got = b.get(LIST)
        assert (got.status, got.body) == (200, expected.body), got
    assert ("GET", "blob") not in bucket.counts and bucket.counts["GET", "pack"] == reads + 1, "one range of the pack"
    assert has(b, PATHS["tree"], DATA) and b.get(LIST).body == expected.body
    b.ctl("verify", "--deep")
    b.ctl("cluster", "verify", "--deep")


def test_a_list_of_chunks_that_is_damaged_is_not_known(node, bucket, stored):
    """Clients do without until the file is here."""
    b = knowing(node)
    bucket.faults = [Fault("flip", "pack/", ("GET",))]
    got = b.get(LIST)
    assert got.status == 404 and b"not known now" in got.body, got
    assert ("GET", "blob") not in bucket.counts
    assert has(b, PATHS["blob"], DATA)
    b.settle()
    assert b.get(LIST).body == stored.get(LIST).body


# --- requests that only need to know that there is such a file, and its size ---

def test_words_about_a_file_do_not_bring_it(node, bucket, stored):
    """What LFS says of it, an image that takes a layer of another one, a copy in a commit: they read all of the file from the bucket."""
    b = knowing(node)
    token = b.token("other", "publish:models/*")
    said = b.put("/models/me/gpt.git/info/lfs/objects/batch", json.dumps({"operation": "download", "objects": [{"oid": HEX, "size": SIZE}]}).encode(),
                 method="POST", headers={"Content-Type": "application/vnd.git-lfs+json"})
    assert json.loads(said.body)["objects"][0]["size"] == SIZE and b"download" in said.body, said
    mounted = b.put(f"/v2/models/me/other/blobs/uploads/?mount=sha256:{HEX}&from=models/me/app", b"", token=token, method="POST")
    assert mounted.status == 201, mounted
    hub = Hub.__new__(Hub)
    hub.m, hub.wire, hub.repo, hub.token = b, "h1", "models", token
    assert hub.commit(("lfsFile", {"path": "copy", "algo": "sha256", "oid": HEX, "size": SIZE})).status == 200
    assert ("GET", "blob") not in bucket.counts
    assert has(b, "/models/me/gpt/copy", DATA)
    image = Image(b, "models/me/other", token)
    image.push_blob(b"{}")
    assert image.put_manifest("v1", manifest(b"{}", [DATA])).status == 201
    for m in (b, stored):
        seen(m, f"/v2/models/me/other/blobs/sha256:{HEX}", DATA)
        m.ctl("cache", "gc")
        m.ctl("verify", "--deep")


# --- what an agent makes of it ---

@pytest.mark.parametrize("listed", [True, False], ids=["list", "no list"])
def test_an_agent_pulls_a_folder(node, bucket, stored, tmp_path, listed):
    """With the list it asks for parts; without one it takes one stream. The bucket sends the file once."""
    b = knowing(node)
    if not listed:
        bucket.faults = [Fault("flip", "pack/", ("GET",))]
    Agent(tmp_path / "agent", b)("pull", "models/me/gpt/", "--to", tmp_path / "gpt")
    assert (tmp_path / "gpt/x").read_bytes() == DATA
    assert bucket.sent["blob"] == SIZE
    assert len(b.answered("/models/me/gpt/x", status=206 if listed else 200)) >= (3 if listed else 1)
