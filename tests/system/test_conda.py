"""Conda channels on a fake one: indexes that change, packages that do not, and what an origin may do wrong on the way."""
import concurrent.futures
import hashlib
import json
import re

import pytest

from harness.conda_channel import Channel, pack, unpack, unzstd, zstd
from harness.mirrord import until

A, B = "a-1.0-0.conda", "b-1.0-0.tar.bz2"


@pytest.fixture
def channel(origin):
    c = Channel(origin)
    c.add(A, b"a" * 3000)
    c.add(B, b"b" * 200000)
    c.publish()
    return c


@pytest.fixture
def forge(mirrord, channel):
    m = mirrord(f"""repo "forge" {{ protocol = "conda" origin = "{channel.origin.url}" }}""")
    m.channel, m.origin = channel, channel.origin
    return m


def test_channel(forge, wire):
    """Each form as the origin has it, byte for byte, with its validators; a package once."""
    for form in ("repodata.json", "repodata.json.zst", "repodata.json.bz2", "current_repodata.json"):
        thing = forge.origin.stats("/linux-64/" + form)
        for _ in range(2):
            reply = forge.get("/forge/linux-64/" + form, wire)
            assert reply.status == 200 and reply.body == thing.body
            assert reply["etag"] == thing.etag and reply["last-modified"].endswith("2023 22:13:20 GMT")
            age = int(re.fullmatch(r"public, max-age=(\d+)", reply["cache-control"])[1])
            assert age >= 300, "less than what it is good for"
        assert thing.requests == 1
    for name in (A, B):
        thing = forge.origin.stats("/linux-64/" + name)
        for _ in range(2):
            assert forge.get("/forge/linux-64/" + name, wire).body == thing.body
        assert thing.requests == 1 and "immutable" in forge.get("/forge/linux-64/" + name, wire)["cache-control"]


def test_channels_below_one_origin(mirrord, origin):
    for top in ("/one", "/two"):
        c = Channel(origin, top)
        c.add(A, top.encode())
        c.publish()
    m = mirrord(f"""repo "all" {{ protocol = "conda" origin = "{origin.url}/" }}""")
    for top in ("/one", "/two"):
        assert json.loads(m.get(f"/all{top}/linux-64/repodata.json").body)["packages.conda"][A]["size"] == 4
        assert m.get(f"/all{top}/linux-64/{A}").body == top.encode()


def test_forms_that_are_missing(forge):
    """A quick 404, also where an object store says 403; of repodata.json itself clients read what the origin said."""
    forge.origin.put("/noarch/repodata.json.zst", status=403)
    forge.origin.put("/noarch/repodata.json", status=403)
    for form, status in (("repodata.json.zst", 404), ("current_repodata.json", 404), ("repodata_shards.msgpack.zst", 404),
                         ("repodata.jlap", 404), ("repodata.json", 403)):
        for _ in range(3):
            reply = forge.get("/forge/noarch/" + form)
            assert reply.status == status and reply["content-type"].startswith("text/plain")
    assert forge.origin.stats("/noarch/repodata.json.zst").requests == 1, "a no is remembered for a while"
    assert "/noarch/repodata.jlap" not in forge.origin.misses
    assert forge.origin.misses.count("/noarch/current_repodata.json") == 1


def test_herd(forge):
    thing = forge.origin.put("/linux-64/repodata.json", body=forge.channel.document() + b" " * (8 << 20), hold_at=1 << 20)
    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        running = [pool.submit(forge.get, "/forge/linux-64/repodata.json") for _ in range(100)]
        forge.reaches("mirrord_http_sent_bytes_total", 100 << 20)
        thing.go.set()
        assert all(r.result().body == thing.body for r in running)
    assert thing.requests == 1 and thing.bytes == len(thing.body)


def test_kept_whole(mirrord, channel):
    """With a sync section the origin is asked by runs alone, and may be gone."""
    o = channel.origin
    m = mirrord(f"""repo "forge" {{ protocol = "conda" origin = "{o.url}" sync {{ subdirs = {{"linux-64"}} backoff = "100ms" tries = 2 }} }}""")
    assert m.get(f"/forge/linux-64/{A}").status == 503
    assert m.ctl_json("sync", "run", "forge", "--wait")["outcome"] == "published"
    before = o.requests
    for name in (A, B, "repodata.json", "repodata.json.zst"):
        assert m.get(f"/forge/linux-64/{name}").body == o.stats("/linux-64/" + name).body
    assert o.requests == before
    assert m.get(f"/forge/@v1/linux-64/{A}").status == 200
