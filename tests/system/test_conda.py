"""Conda channels on a fake one: indexes that change, packages that do not, and what an origin may do wrong on the way."""
import bz2
import concurrent.futures
import hashlib
import json
import re
import time

import pytest

from harness.curl import curl
from harness.conda_channel import Channel, pack, unpack, unzstd, zstd
from harness.mirrord import SLOW, until
from harness.origin import Origin

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
    forge.channel.grow(4 << 20)
    thing = forge.origin.put("/linux-64/repodata.json", body=forge.channel.document(), hold_at=1 << 20)
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


# --- what indexes tell binds their packages ---

@pytest.fixture
def eager(mirrord, channel):
    """Asks the origin each time that an index is asked for."""
    m = mirrord(f"""repo "forge" {{ protocol = "conda" origin = "{channel.origin.url}" rule 'json|msgpack' {{ ttl = 0s neg_ttl = 0s }} }}""")
    m.channel, m.origin = channel, channel.origin
    return m


def test_a_package_that_is_not_what_the_index_says(eager, wire):
    """Nothing of it counts as whole; who asks for another is not harmed."""
    c = eager.channel
    c.add("liar-1.0-0.conda", b"x" * 300000, sha256="1" * 64)
    c.publish()
    assert eager.get("/forge/linux-64/repodata.json").status == 200
    reply = eager.get("/forge/linux-64/liar-1.0-0.conda", wire)
    assert not reply.whole or reply.status >= 500, "its end is withheld"
    assert len(reply.body) < 300000
    assert eager.get("/forge/linux-64/" + A, wire).body == b"a" * 3000


@pytest.mark.parametrize("form", ["repodata.json", "repodata.json.zst", "repodata.json.bz2", "current_repodata.json"])
def test_an_upload_under_the_same_name(eager, form):
    """The index tells of other bytes: they are fetched, though a package never changes. Whichever form the client reads."""
    c, path = eager.channel, "/forge/linux-64/" + A
    assert eager.get("/forge/linux-64/" + form).status == 200
    assert eager.get(path).body == b"a" * 3000
    eager.settle()  # else the next may still share those very answers
    c.add(A, b"A" * 4000)
    c.publish(modified=1700000100)
    assert eager.get(path).body == b"a" * 3000, "nobody has said so yet"
    assert eager.get("/forge/linux-64/" + form).body == c.origin.stats("/linux-64/" + form).body
    for _ in range(3):
        assert eager.get(path).body == b"A" * 4000
    assert c.origin.stats("/linux-64/" + A).requests == 1


def test_an_older_form_takes_nothing_back(eager):
    """.zst is newer than .json, which is read last: what the newer one said of a file stands."""
    c = eager.channel
    old = c.document()
    c.add(A, b"A" * 4000)
    c.publish("repodata.json.zst", modified=1700000100)
    assert eager.get("/forge/linux-64/repodata.json.zst").status == 200
    assert eager.get("/forge/linux-64/repodata.json").body == old
    for _ in range(2):
        assert eager.get("/forge/linux-64/" + A).body == b"A" * 4000


def test_forms_follow_each_other(forge):
    """When one form is another, the rest is not taken for fresh any more: nobody has to wait for its five minutes."""
    c = forge.channel
    forge.origin.put("/linux-64/repodata.json.zst", status=404)
    assert forge.get("/forge/linux-64/repodata.json").status == 200
    time.sleep(1.1)  # the times of requests are in seconds
    c.add(A, b"A" * 4000)
    c.publish("repodata.json", "current_repodata.json", modified=1700000100)
    until(lambda: forge.get("/forge/linux-64/current_repodata.json").status == 200)
    until(lambda: forge.get("/forge/linux-64/repodata.json").body == c.document())


# --- what is no index ---

@pytest.mark.parametrize("form", ["repodata.json", "repodata.json.zst"])
def test_garbage_is_no_index(eager, form):
    """A login form with status 200, JSON that ends too soon, a file in the wrong packing: what was here before is given."""
    c = eager.channel
    path, at = "/forge/linux-64/" + form, "/linux-64/" + form
    good = eager.get(path).body
    cut = c.document()[:-20]
    for n, thing in enumerate((dict(body=b"<html>log in</html>", type="text/html; charset=utf-8"), dict(body=b"{}"), dict(body=b""),
                               dict(body=zstd(cut) if form.endswith("zst") else cut), dict(body=good[:-10]),
                               dict(body=b"<html>log in</html>", type="application/json"))):
        eager.origin.put(at, etag=f'"garbage-{n}"', **thing)
        reply = eager.get(path)
        assert not (reply.whole and reply.status == 200) or reply.body == good, "never as if it were whole"
        until(lambda: eager.get(path).body == good)
        eager.settle()
    c.publish(modified=1700000200)
    until(lambda: eager.get(path).body == eager.origin.stats(at).body)


@pytest.mark.parametrize("form", ["repodata.json.zst", "repodata.json.bz2"])
def test_an_index_that_unpacks_to_more(eager, form):
    """A few kilobytes that name a million packages: read by and by, in the memory that one piece of it takes."""
    bomb = b'{"packages":{' + b'"a":{},' * 1000000 + b'"b":{}}}'
    body = zstd(bomb) if form.endswith("zst") else bz2.compress(bomb)
    assert len(body) < len(bomb) // 500
    eager.get("/forge/linux-64/" + form)
    eager.settle()
    eager.origin.put("/linux-64/" + form, body=body, etag='"bomb"')
    before = eager.peak_bytes()
    assert eager.get("/forge/linux-64/" + form).body == body
    eager.settle()
    if SLOW == 1:  # sanitizers have a memory of their own
        assert eager.peak_bytes() - before < 48 << 20
    assert eager.get("/forge/linux-64/" + A).body == b"a" * 3000


def test_garbage_from_the_first_on(eager):
    eager.origin.put("/noarch/repodata.json", body=b"<html>log in</html>", type="text/html")
    reply = eager.get("/forge/noarch/repodata.json")
    assert reply.status == 502 and b"login" in reply.body
    eager.origin.put("/linux-64/c-1.0-0.conda", body=b"<html>log in</html>", type="text/html")
    assert eager.get("/forge/linux-64/c-1.0-0.conda").status == 502


def test_an_origin_that_is_gone(eager):
    """Indexes are given as they were, packages too."""
    for name in ("repodata.json", "repodata.json.zst", A):
        assert eager.get("/forge/linux-64/" + name).status == 200
    eager.settle()
    eager.origin.put("/linux-64/repodata.json.zst", status=503)
    eager.origin.put("/linux-64/repodata.json", no_head=True)
    for name in ("repodata.json", "repodata.json.zst", A):
        assert eager.get("/forge/linux-64/" + name).status == 200


def test_a_body_that_is_cut(eager):
    """An index goes on where it was cut, or fails as one: never a part for the whole."""
    eager.channel.grow(3 << 20)
    thing = eager.origin.put("/linux-64/repodata.json", body=eager.channel.document(), die_at=50, times=2)
    reply = eager.get("/forge/linux-64/repodata.json")
    assert reply.whole and reply.body == thing.body


def test_head_is_no_fill(eager):
    eager.channel.grow(3 << 20)
    plain = eager.channel.document()
    cold = eager.origin.put("/linux-64/repodata.json", body=plain)
    assert eager.get("/forge/linux-64/repodata.json", head=True)["content-length"] == str(len(plain))
    assert cold.bytes == 0 and cold.heads == 1
    eager.origin.put("/linux-64/current_repodata.json", body=plain, etag='"one"')
    assert eager.get("/forge/linux-64/current_repodata.json").body == plain
    eager.settle()
    changed = eager.origin.put("/linux-64/current_repodata.json", body=plain + b" ", etag='"two"')
    reply = eager.get("/forge/linux-64/current_repodata.json", head=True)
    assert reply.status == 200 and reply["content-length"] == str(len(plain) + 1)
    assert changed.bytes == 0, "it has changed, and nobody asked for its bytes"


# --- nothing leads past the mirror ---

@pytest.fixture
def elsewhere():
    with Origin(host="127.0.0.2") as o:
        yield o


def based(mirrord, channel, other, more=""):
    m = mirrord(f"""repo "forge" {{ protocol = "conda" origin = "{channel.origin.url}" hosts = {{"127.0.0.2:{other.port}"}} {more} }}""")
    m.origin = channel.origin
    return m


@pytest.mark.parametrize("size", [0, 3 << 20])
@pytest.mark.parametrize("form", ["repodata.json", "repodata.json.zst", "current_repodata.json"])
def test_packages_elsewhere(mirrord, channel, elsewhere, form, size):
    """info.base_url (CEP 15): the index leads here, packages are fetched there, and held against their digests."""
    m = based(mirrord, channel, elsewhere)
    elsewhere.put("/pkgs/" + A, body=b"a" * 3000)
    elsewhere.put("/pkgs/" + B, body=b"not b")
    channel.grow(size)
    channel.publish(base_url=elsewhere.url + "/pkgs")
    assert not size or len(channel.origin.stats("/linux-64/" + form).body) > 100000
    reply = m.get("/forge/linux-64/" + form)
    if not reply.whole:  # a large one was on its way already when that showed: it is cut, and right from then on
        assert size
        reply = m.get("/forge/linux-64/" + form)
    assert reply.status == 200 and elsewhere.url.encode() not in reply.body
    said = json.loads(unzstd(reply.body) if form.endswith("zst") else reply.body)
    assert said["packages.conda"][A] == channel.records[A] and said["info"] == {"subdir": "linux-64"}
    assert reply["etag"] and m.get("/forge/linux-64/" + form, headers={"If-None-Match": reply["etag"]}).status == 304
    assert m.get("/forge/linux-64/" + A).body == b"a" * 3000
    assert m.get("/forge/linux-64/" + B).status == 502
    assert channel.origin.stats("/linux-64/" + A).requests == 0
    assert m.get("/forge/linux-64/repodata.json.bz2").status == 404, "clients take another form"
    m.settle()
    assert {r["key"] for r in m.ctl_json("cache", "ls", "forge")} >= {f"linux-64/{form}?elsewhere"}


def test_packages_that_come_home(mirrord, channel, elsewhere):
    m = based(mirrord, channel, elsewhere, "rule 'json' { ttl = 0s }")
    elsewhere.put("/pkgs/" + A, body=b"a" * 3000)
    channel.publish(base_url=elsewhere.url + "/pkgs/")
    assert m.get("/forge/linux-64/repodata.json").status == 200
    assert m.get("/forge/linux-64/" + A).status == 200
    plain = channel.publish(modified=1700000100)
    until(lambda: m.get("/forge/linux-64/repodata.json").body == plain)
    assert m.get("/forge/linux-64/" + B).body == b"b" * 200000


def test_a_base_that_may_not_be_reached(mirrord, channel, elsewhere):
    """Plain http names no other host: the package is refused in words, the index still does not lead there."""
    m = mirrord(f"""repo "forge" {{ protocol = "conda" origin = "{channel.origin.url}" }}""")
    elsewhere.put("/pkgs/" + A, body=b"a" * 3000)
    channel.publish(base_url=elsewhere.url + "/pkgs/")
    assert m.get("/forge/linux-64/repodata.json").status == 200
    assert elsewhere.url.encode() not in m.get("/forge/linux-64/repodata.json").body
    reply = m.get("/forge/linux-64/" + A)
    assert reply.status == 403 and b"hosts" in reply.body
    assert elsewhere.requests == 0


# --- sharded (CEP 16) ---

def shards_of(m, subdir="linux-64"):
    reply = m.get(f"/forge/{subdir}/repodata_shards.msgpack.zst")
    assert reply.status == 200
    said = unpack(unzstd(reply.body))
    assert said["info"] == {"base_url": "./", "shards_base_url": "./shards/", "subdir": subdir}
    return {name: f"/forge/{subdir}/shards/{digest.hex()}.msgpack.zst" for name, digest in said["shards"].items()}


@pytest.mark.parametrize("far", [False, True])
def test_shards(mirrord, channel, elsewhere, far):
    m = based(mirrord, channel, elsewhere)
    if far:
        channel.origin, here = elsewhere, channel.origin
        channel.folder = "/pkgs/"
        channel.add(A, b"a" * 3000)
        channel.publish_shards(elsewhere.url + "/pkgs", elsewhere.url + "/there/", at="/there/")
        here.put("/linux-64/repodata_shards.msgpack.zst", body=elsewhere.stats("/pkgs/repodata_shards.msgpack.zst").body)
    else:
        channel.add("liar-1.0-0.conda", b"x" * 300000, sha256="1" * 64)
        channel.publish_shards(channel.origin.url + "/linux-64/", channel.origin.url + "/linux-64/shards/")
    found = shards_of(m)
    for name, path in found.items():
        reply = m.get(path)
        assert reply.status == 200 and hashlib.sha256(reply.body).hexdigest() in path
        assert "immutable" in reply["cache-control"]
    assert m.get("/forge/linux-64/" + A).body == b"a" * 3000
    if far:
        assert m.get("/forge/linux-64/" + B).status == 404 and elsewhere.misses == ["/pkgs/" + B]
    else:
        reply = m.get("/forge/linux-64/liar-1.0-0.conda")
        assert not reply.whole or reply.status >= 500


def test_a_shard_that_is_not_its_name(forge):
    paths = forge.channel.publish_shards()
    forge.origin.put("/linux-64/" + paths["a"], body=zstd(pack({"packages": {}, "packages.conda": {}, "removed": []})))
    found = shards_of(forge)
    reply = forge.get(found["a"])
    assert not reply.whole or reply.status == 502
    assert forge.get(found["b"]).status == 200


def test_garbage_for_a_list_of_shards(eager):
    for n, body in enumerate((b"", b"x", zstd(b""), zstd(pack({"shards": {}}))[:-3], zstd(pack({"info": {}})), zstd(pack([1])))):
        eager.origin.put("/linux-64/repodata_shards.msgpack.zst", body=body, etag=f'"{n}"')
        assert eager.get("/forge/linux-64/repodata_shards.msgpack.zst").status == 502


# --- what is dispensable, while the origin is away ---

def test_forms_that_nobody_ever_had(eager):
    """Clients ask for them first, and would give up at a 502: they are not there, what is here is."""
    assert eager.get("/forge/linux-64/repodata.json").status == 200
    eager.settle()
    forms = ("repodata.json.zst", "current_repodata.json", "repodata_shards.msgpack.zst", "run_exports.json")
    for path in (*("/linux-64/" + n for n in forms), "/linux-64/repodata.json", "/notices.json", "/noarch/repodata.json",
                 "/noarch/repodata.json.zst"):
        eager.origin.put(path, no_head=True)
    for name in forms:
        assert eager.get("/forge/linux-64/" + name).status == 404
    assert eager.get("/forge/notices.json").status == 404
    assert eager.get("/forge/linux-64/repodata.json").status == 200
    for name in ("repodata.json", "repodata.json.zst"):
        assert eager.get("/forge/noarch/" + name).status in (502, 503), "of this one nothing was ever here"


# --- tokens in paths ---

def test_a_token_in_the_path(mirrord, channel, wire):
    """Ours opens, in either place and spelling; no key, log or origin has it."""
    m = mirrord(f"""repo "forge" {{ protocol = "conda" origin = "{channel.origin.url}" access {{ anonymous = none }} }}
        repo "open" {{ protocol = "conda" origin = "{channel.origin.url}" }}
        repo "files" {{ protocol = "generic" origin = "{channel.origin.url}" }}""")
    token = m.token("ci", "read:forge/*")
    dashed = token.replace("_", "-")
    for path in (f"/t/{dashed}/forge", f"/t/{token}/forge", f"/forge/t/{dashed}"):
        assert m.get(path + "/linux-64/" + A, wire).body == b"a" * 3000
    assert m.get("/forge/linux-64/" + A, wire).status == 401
    for wrong in (dashed[:-1] + ("0" if dashed[-1] != "0" else "1"), "an-other-servers", "x"):
        assert m.get(f"/t/{wrong}/forge/linux-64/" + A, wire).status == 401
        assert m.get(f"/t/{wrong}/open/linux-64/{A}?x", wire).status == (401 if wrong.startswith("mrd") else 200)
    for path in (f"/open/t/{token}", f"/open/t/{dashed}"):  # the channel's own page, the slash forgotten
        assert m.get(path, wire).status == m.get("/open/", wire).status
    channel.origin.put("/t/x/y", body=b"a file")
    assert m.get("/files/t/x/y", wire).body == b"a file", "no other protocol has such paths"
    assert m.get("/t/x/files/linux-64/" + A, wire).status == 404
    m.settle()
    assert {r["key"] for r in m.ctl_json("cache", "ls", "forge")} == {"linux-64/" + A}
    m.answered("/linux-64/", 9)
    log = m.access_log.read_text() + m.log()
    for secret in (token.split("_")[2], "an-other-servers"):
        assert secret not in log
    assert not [p for p in channel.origin.misses if "/t/" in p]


def last_port(m):
    """Of its listeners the last one's: the log is written by a thread."""
    m.says("daemon.ready")
    return re.search(r"daemon\.ready .*listen=\S*127\.0\.0\.1:(\d+)", m.log())[1]


def test_a_token_in_a_path_that_nobody_takes_it_from(mirrord, channel):
    """A repo's name misspelt, where another repo is at the root: its origin does not see the token."""
    m = mirrord(f"""repo "forge" {{ protocol = "conda" origin = "{channel.origin.url}" }}
        repo "files" {{ protocol = "generic" origin = "{channel.origin.url}" }}
        listen "127.0.0.1:0" {{ root = "files" }}""")
    token = m.token("ci", "read:forge/*")
    port = last_port(m)
    for spelt in (token, token.replace("_", "-")):
        for path in (f"/t/{spelt}/forg/linux-64/{A}", f"/t/{spelt}/", f"/t/{spelt}", f"/files/t/{spelt}/forge/{A}", f"/files/t/{spelt}"):
            assert curl(f"http://127.0.0.1:{port}{path}").status == 404, path
    assert not [p for p in channel.origin.misses if "/t/" in p]


def test_a_token_in_the_path_of_a_repo_at_the_root(mirrord, channel):
    m = mirrord(f"""repo "forge" {{ protocol = "conda" origin = "{channel.origin.url}" access {{ anonymous = none }} }}
        listen "127.0.0.1:0" {{ root = "forge" }}""")
    token = m.token("ci", "read:forge/*").replace("_", "-")
    port = last_port(m)
    reply = curl(f"http://127.0.0.1:{port}/t/{token}/linux-64/{A}")
    assert reply.body == b"a" * 3000
    assert curl(f"http://127.0.0.1:{port}/linux-64/{A}").status == 401
