"""Announced sizes take no room: what others keep is put out by bytes that have come, and by nothing else."""
import json
import socket

import pytest

from harness.image import Image
from harness.mirrord import until
from system.test_hosted_hub import Hub, below, sha

MIB = 1 << 20
KIB = 1 << 10


@pytest.fixture
def small(mirrord, origin):
    """A cache of 64 MiB, of which 48 are in use."""
    m = mirrord(f"""storage {{ quota = "64m" reserve = "16m" client_uploads = 3 }}
        repo "data" {{ protocol = "generic" origin = "{origin.url}/" rule '.' {{ class = immutable }} }}
        repo "models" {{ protocol = "hosted" }}""")
    m.origin = origin
    m.kept = [origin.put(f"/{i}", size=8 * MIB, seed=i + 1) for i in range(6)]
    for i in range(6):
        assert m.get(f"/data/{i}").body == origin.bytes_of(f"/{i}")
    m.settle()
    return m


def nothing_was_put_out(m):
    assert m.metric("mirrord_cache_evicted_bytes_total") == 0
    for i, thing in enumerate(m.kept):
        assert m.get(f"/data/{i}").body == m.origin.bytes_of(f"/{i}") and thing.bytes == 8 * MIB


def test_a_byte_of_a_large_object_costs_no_more_room(small, wire):
    """1.8 GB in a cache of 2 GB: here 58 MiB in 64."""
    thing = small.origin.put("/large", size=58 * MIB)
    got = small.get("/data/large", wire, headers={"Range": "bytes=0-0"})
    assert got.status == 206 and got.body == small.origin.bytes_of("/large", 0, 1)
    assert thing.bytes <= 128 * KIB
    nothing_was_put_out(small)


def test_an_announced_upload_takes_no_room(small):
    token = small.token("ci", "publish:models/*")
    with socket.create_connection(("127.0.0.1", small.port)) as s:
        s.sendall(f"PUT /models/me/x/f HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
                  f"Content-Length: {58 * MIB}\r\n\r\nx".encode())
        until(lambda: small.metric("mirrord_cache_staged_bytes") > 0)
        assert small.put("/models/me/y/g", b"another", token=token).status == 201
        nothing_was_put_out(small)


def test_what_is_larger_than_the_quota_is_read_in_parts(small, wire):
    """A range of it was 507."""
    size = 4 << 30
    small.origin.put("/huge", size=size)
    for first in (0, 3 << 30, size - 300 * KIB):
        got = small.get("/data/huge", wire, headers={"Range": f"bytes={first}-{first + 200 * KIB - 1}"})
        assert got.status == 206 and got.body == small.origin.bytes_of("/huge", first, first + 200 * KIB)
    whole = small.get("/data/huge", wire)
    assert whole.status == 507 and b"than the quota" in whole.body
    nothing_was_put_out(small)


def test_room_is_made_as_bytes_come(small):
    assert small.get("/data/0").whole
    small.origin.put("/more", size=30 * MIB)
    assert small.get("/data/more").body == small.origin.bytes_of("/more")
    assert small.metric("mirrord_cache_evicted_bytes_total") > 0
    token = small.token("ci", "publish:models/*")
    data = small.origin.bytes_of("/more", 0, 20 * MIB)
    assert small.put("/models/me/x/f", data, token=token).status == 201
    assert small.get("/models/me/x/f").body == data
    assert small.ctl("verify").returncode == 0


def test_one_token_has_its_share_of_upload_sessions(small):
    greedy, modest = small.token("greedy", "publish:models/*"), small.token("modest", "publish:models/*")

    def opened(token):
        return small.put("/models/me/x/-/uploads", b"", token=token, method="POST")
    got = [opened(greedy) for _ in range(5)]
    assert [g.status for g in got] == [201, 201, 201, 429, 429]
    assert b"client_uploads" in got[4].body
    assert opened(modest).status == 201
    place = json.loads(got[0].body)["upload"]
    assert small.put(f"/models/me/x/-/uploads/{place}", b"", token=greedy, method="DELETE").status == 204
    assert opened(greedy).status == 201


def test_offers_and_layers_count_as_sessions(small):
    """They did not: one token had as many as it liked. What is finished counts no more."""
    hub = Hub(small)
    assert hub.create().status == 200
    data = [b"%d" % i * 100 for i in range(4)]
    offers = [hub.batch((sha(d), len(d))) for d in data]
    assert [got.status for got, _ in offers] == [200, 200, 200, 429]
    assert b"client_uploads" in offers[3][0].body
    layers = Image(small, name="models/me/image", token=hub.token)
    assert layers.ask("POST", "blobs/uploads/", b"").status == 429
    other = Image(small, name="models/me/image", token=small.token("other", "publish:models/me/*"))
    other.begin()
    up = offers[0][1]["objects"][0]["actions"]["upload"]
    assert small.put(below(up["href"]), data[0]).status == 200  # the offer is finished
    layers.push_blob(b"a layer")
    layers.push_blob(b"another")  # so was the first
    assert hub.batch((sha(data[3]), len(data[3])))[0].status == 200
    assert hub.batch((sha(b"x"), 1))[0].status == 429


def test_one_token_has_its_share_of_bytes_in_uploads(mirrord):
    """4 MiB: files of a session, whole or not, and layers that are not whole; what ends gives them back."""
    m = mirrord("""storage { quota = "64m" reserve = "16m" client_upload_bytes = "4m" }
        repo "models" { protocol = "hosted" }""")
    greedy, modest = m.token("greedy", "publish:models/*"), m.token("modest", "publish:models/*")
    data = bytes(range(256)) * (3 * MIB // 256)

    def opened(token):
        got = m.put("/models/me/x/-/uploads", b"", token=token, method="POST")
        return f"/models/me/x/-/uploads/{json.loads(got.body)['upload']}"
    first, second, others = opened(greedy), opened(greedy), opened(modest)
    for _ in range(3):  # again, and again: it is counted once
        assert m.put(f"{first}/a", data, token=greedy).status == 201
    refused = m.put(f"{second}/b", data, token=greedy)
    assert refused.status == 507 and b"client_upload_bytes" in refused.body
    layers = Image(m, name="models/me/image", token=greedy)
    layer = layers.begin()
    assert layers.ask("PATCH", layer, data).status == 507
    assert m.put(f"{others}/c", data, token=modest).status == 201
    assert m.metric("mirrord_cache_evicted_bytes_total") == 0
    for place in (first, second, layer):
        assert m.put(place, b"", token=greedy, method="DELETE").status == 204
    layers.push_blob(data)
    layers.push_blob(data[1:])
    layers.push_blob(2 * data)  # one object is bounded by the quota, as long as it is all that is under way
    assert m.ctl("verify").returncode == 0


def test_without_a_setting_the_share_is_a_quarter(small):
    token = small.token("ci", "publish:models/*")
    small.origin.put("/f", size=12 * MIB)
    data = small.origin.bytes_of("/f")

    def opened(tree):
        got = small.put(f"/models/me/{tree}/-/uploads", b"", token=token, method="POST")
        return f"/models/me/{tree}/-/uploads/{json.loads(got.body)['upload']}"
    first, second = opened("x"), opened("y")
    assert small.put(f"{first}/a", data, token=token).status == 201
    assert small.put(f"{second}/b", data, token=token).status == 507
    assert small.put(f"{first}/commit", b"", token=token, method="POST").status == 201
    assert small.put(f"{second}/b", data, token=token).status == 201
