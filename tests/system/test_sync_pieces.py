"""Mirrord to mirrord, large files that changed: only what is new of them comes, and what has nothing in common comes once."""
import hashlib
import os
import random

import pytest

from harness.way import Way
from system.test_sync import lines, run
from system.test_sync_mirrord import EDGE, Liar, edge_of, item, node_of
from system.test_sync_trouble import clean

MIB = 1 << 20
SIZE = 96 * MIB


def blocks_changed(data, share=0.01, block=128 << 10):
    out, places = bytearray(data), range(0, len(data), block)
    for at in random.Random(1).sample(places, round(len(places) * share)):
        out[at:at + block] = os.urandom(block)
    return bytes(out)


@pytest.fixture
def core(mirrord):
    m = mirrord('repo "x" { protocol = "hosted" }')
    m.t = m.token("t", "publish:*")
    return m


def put(core, data, name="model.bin"):
    assert core.put(f"/x/me/gpt/{name}", data, token=core.t).status in (200, 201)


def follow(edge, way):
    way.forget()
    done = run(edge)
    assert done["outcome"] == "published"
    return done, way.bytes


def test_large_files_that_changed(mirrord, core):
    base = os.urandom(SIZE)
    third = len(base) // 3
    put(core, base)
    with Way(core.port) as way:
        edge = edge_of(mirrord, way, "x/me/gpt/")
        run(edge)
        assert not way.asked("/cdc/")

        changed = blocks_changed(base)
        put(core, changed)
        done, wire = follow(edge, way)
        assert wire < len(base) / 12 and done["wire_bytes"] < wire and done["saved_bytes"] > len(base) * 0.9
        assert edge.get("/x/model.bin").body == changed and "came from the previous version" in lines(edge)

        longer = changed[:third] + os.urandom(4096) + changed[third:]
        put(core, longer)
        done, wire = follow(edge, way)
        assert wire < MIB and edge.get("/x/model.bin").body == longer
        assert len(way.asked("/-/blob/")) == 1

        put(core, base)  # an older one again: it is still here
        done, wire = follow(edge, way)
        assert not way.asked("/-/blob/") and not way.asked("/cdc/")

        other = os.urandom(SIZE)
        put(core, other)
        done, wire = follow(edge, way)
        assert len(base) < wire < len(base) * 1.01 and len(way.asked("/cdc/")) == 1 and "the whole file is downloaded" in lines(edge)
        assert edge.get("/x/model.bin").body == other
        clean(edge)
        clean(core)


def test_what_is_compressed_or_small_comes_whole(mirrord, core):
    base = os.urandom(SIZE)
    put(core, base, "data.tar.gz")
    put(core, base[:MIB], "small.bin")
    with Way(core.port) as way:
        edge = edge_of(mirrord, way, "x/me/gpt/")
        run(edge)
        put(core, b"!" + base, "data.tar.gz")
        put(core, b"!" + base[:MIB], "small.bin")
        follow(edge, way)
        assert not way.asked("/cdc/") and len(way.asked("/-/blob/")) == 2


def test_the_way_breaks_in_the_middle(mirrord, core):
    """The next try goes on where the last one ended, by pieces again."""
    base = os.urandom(SIZE)
    changed = blocks_changed(base)
    put(core, base)
    with Way(core.port) as way:
        edge = edge_of(mirrord, way, "x/me/gpt/")
        run(edge)
        put(core, changed)
        passed = [0]

        def die(target, n):
            before = passed[0]
            passed[0] += n if "/-/blob/" in target else 0
            return "cut" if before < 700000 <= passed[0] else None
        way.midway = die
        done, wire = follow(edge, way)
        assert wire < len(base) / 10 and len(way.asked("/cdc/")) == 2 and done["attempts"] == 1
        assert edge.get("/x/model.bin").body == changed


def list_of(data, whole=None, pieces=None):
    pieces = [data[at:at + 65536] for at in range(0, len(data), 65536)] if pieces is None else pieces
    return (b"mrdpcs01" + len(data).to_bytes(8, "big") + hashlib.sha256(whole or data).digest() + len(pieces).to_bytes(4, "big") +
            b"".join(len(p).to_bytes(4, "big") + hashlib.sha256(p).digest()[:16] for p in pieces))


@pytest.mark.parametrize("lie", ["another file's", "no list", "a piece too long", "none", "all is here"])
def test_lists_that_lie(mirrord, core, lie):
    """The worst that a list can do is to cost its own bytes, or one more try: the file's digest decides."""
    base, other = os.urandom(64 * MIB), os.urandom(64 * MIB)
    put(core, base)
    edge = edge_of(mirrord, core, "x/me/gpt/")
    run(edge)
    listed = core.get(f"/-/sync/cdc/{hashlib.sha256(base).hexdigest()}").body
    assert len(listed) < len(base) // 2000
    node = node_of(0, [item(b"model.bin", other)])
    liar = Liar(node, blobs=(other,))
    digest = hashlib.sha256(other).digest()
    liar.lists[digest.hex()] = {"another file's": listed, "no list": b"mrdpcs01" + os.urandom(5000), "none": None,
                                "a piece too long": list_of(other, pieces=[other]),
                                "all is here": listed[:16] + digest + listed[48:]}[lie]
    edge.config = EDGE.format(liar.port, "x/", 1)
    edge.reload()
    assert run(edge)["outcome"] == "published" and edge.get("/x/model.bin").body == other
    assert liar.sent.count(digest.hex()) == 1
    liar.server.shutdown()
    liar.server.server_close()


def test_who_may_have_a_list(mirrord):
    m = mirrord('repo "secret" { protocol = "hosted" access { anonymous = none } }')
    token = m.token("t", "publish:secret/*")
    data = os.urandom(300000)
    m.put("/secret/a/b/file", data, token=token)
    path = f"/-/sync/cdc/{hashlib.sha256(data).hexdigest()}"
    assert m.get(path).status == 404
    got = m.get(path, headers={"Authorization": f"Bearer {token}"})
    assert got.status == 200 and got["content-type"] == "application/vnd.mirrord.pieces"
    assert got.body[:8] == b"mrdpcs01" and got.body == m.get(path, headers={"Authorization": f"Bearer {token}"}).body
    sizes = [int.from_bytes(got.body[at:at + 4], "big") for at in range(52, len(got.body), 20)]
    assert sum(sizes) == len(data) and all(8192 <= n <= 131072 for n in sizes[:-1])
    for bad in ("0" * 64, "12", "", "x" * 64):
        assert m.get(f"/-/sync/cdc/{bad}", headers={"Authorization": f"Bearer {token}"}).status == 404
