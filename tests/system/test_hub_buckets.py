"""Buckets of a Hub, question by question: which bytes leave for whom by which way, and what becomes of files that change while they are
read. Clients: clients/test_buckets.py."""
import json
import time
import urllib.parse

import pytest

from harness.hub import Big, read, sha256_of, xet_of
from harness.mirrord import until
from system.test_hf_xet import frames

OWNER, STRANGER, NOBODY = "hf_alice", "hf_bob", ""
BIG = Big(300000, 4)
HASHES = {"a.txt": xet_of(b"S3CRET"), "d/big.bin": xet_of(BIG)}


@pytest.fixture
def hub(hub):
    hub.users.update({OWNER: "alice", STRANGER: "bob", "hf_carol": "carol"})
    hub.bucket("org/data", {"a.txt": b"S3CRET", "d/big.bin": BIG})
    hub.bucket("org/secret", {"a.txt": b"S3CRET", "d/big.bin": BIG}, private=True, readers={OWNER, "hf_carol"})
    return hub


class Client:
    """What huggingface_hub and hf_xet ask."""

    def __init__(self, m, token="", bucket="org/secret"):
        self.m, self.bucket = m, bucket
        self.fields = {"Authorization": f"Bearer {token}"} if token else {}

    def get(self, path, **more):
        head = more.pop("head", False)
        return self.m.get(path, headers={**self.fields, **more}, head=head)

    def store(self, at=""):
        reply = self.get(f"/hf/api/buckets/{self.bucket}/xet-read-token{at}")
        return urllib.parse.urlsplit(json.loads(reply.body)["casUrl"]).path if reply.status == 200 else None, reply

    def terms(self, name, at=""):
        store, reply = self.store(at)
        return reply if store is None else self.get(f"{store}/v1/reconstructions/{HASHES[name]}")

    def data(self, terms):
        """As hf_xet asks for it: without a credential."""
        [info] = next(iter(json.loads(terms.body)["fetch_info"].values()))
        url = urllib.parse.urlsplit(info["url"])
        return self.m.get(f"{url.path}?{url.query}", headers={"Range": f"bytes={info['url_range']['start']}-{info['url_range']['end']}"})

    def by_chunks(self, name):
        """hf_xet's way. The last answer, whose bytes are the file where it is a 206."""
        terms = self.terms(name)
        if terms.status != 200:
            return terms
        reply = self.data(terms)
        reply.body = frames(reply.body) if reply.status == 206 else reply.body
        return reply

    def ways(self):
        b = self.bucket
        return {"info": self.get(f"/hf/api/buckets/{b}"), "tree": self.get(f"/hf/api/buckets/{b}/tree?recursive=true"),
                "folder": self.get(f"/hf/api/buckets/{b}/tree/d"),
                "paths": self.m.get(f"/hf/api/buckets/{b}/paths-info", headers=self.fields,
                                    args=["-H", "Content-Type: application/json", "--data-binary", '{"paths": ["a.txt"]}']),
                "get": self.get(f"/hf/buckets/{b}/resolve/a.txt"), "head": self.get(f"/hf/buckets/{b}/resolve/a.txt", head=True),
                "range": self.get(f"/hf/buckets/{b}/resolve/a.txt", Range="bytes=0-2"), "terms": self.terms("a.txt"),
                "terms by path": self.terms("a.txt", "/a.txt"), "token": self.store()[1], "chunks": self.by_chunks("a.txt")}


def test_each_way_for_each_caller(mirrord, hub):
    """Cold, warm by somebody else's right, and while the Hub is gone."""
    m = mirrord(hub.config())

    def refused():
        for token in (STRANGER, NOBODY):
            for way, reply in Client(m, token).ways().items():
                assert reply.status in (401, 404), (token, way, reply.status)
                assert b"S3CRET" not in reply.body and b"a.txt" not in reply.body and HASHES["a.txt"].encode() not in reply.body, (token, way)

    def given(token):
        ways = Client(m, token).ways()
        assert {w: r.status for w, r in ways.items() if r.status not in (200, 206)} == {}
        assert (ways["get"].body, ways["range"].body, ways["chunks"].body) == (b"S3CRET", b"S3C", b"S3CRET")
        assert ways["head"]["x-xet-hash"] == HASHES["a.txt"] and ways["head"]["content-length"] == "6"
        assert all(r["cache-control"].startswith("private") for w, r in ways.items() if w not in ("info", "chunks")), ways
    refused()
    given(OWNER)
    refused()
    m.settle()
    asked = hub.cdn_bytes.copy()
    given("hf_carol")
    assert hub.cdn_bytes == asked, "what one entitled caller has brought is there for another"
    hub.down()
    given(OWNER)
    refused()
    hub.up()
    assert not hub.leaks


def test_a_right_that_ends(mirrord, hub):
    m = mirrord(hub.config(more="rule '^(api|buckets)' { ttl = 1s sie = 365d }"))
    carol = Client(m, "hf_carol")
    assert carol.by_chunks("a.txt").body == b"S3CRET"
    terms = carol.terms("a.txt")
    hub.buckets["org/secret"].readers.discard("hf_carol")
    until(lambda: carol.get("/hf/buckets/org/secret/resolve/a.txt").status == 404)
    until(lambda: carol.data(terms).status == 404)  # each loop hears of it by itself, within the second
    hub.down()
    for way, reply in carol.ways().items():
        assert reply.status >= 400 and b"S3CRET" not in reply.body, way
    hub.up()


def test_addresses_of_data_are_ours(mirrord, hub):
    """No client writes one: path and size in it are sealed with the hash, in a public bucket, too."""
    m = mirrord(hub.config())
    c = Client(m, bucket="org/data")
    terms = c.terms("a.txt")
    url = urllib.parse.urlsplit(next(iter(json.loads(terms.body)["fetch_info"].values()))[0]["url"])
    for query in ("x", "key", "key=", "ke%79=x", "x&" + url.query):  # nobody's key: the size would be the caller's
        forged = url.path.replace("6%2Fa.txt", "1%2Fa.txt")
        assert m.get(f"{forged}?{query}").status == 403, query
    assert c.get("/hf/buckets/org/data/resolve/a.txt").body == b"S3CRET", "no forged address disturbs a fetch"
    assert m.get(f"{url.path}?{url.query}").status == 200
    for path, query in ((url.path, ""), (url.path, "x"), (url.path.replace("6%2Fa.txt", "7%2Fa.txt"), url.query), (url.path, url.query[:-4] + "AAAA"),
                        (url.path.replace("6%2Fa.txt", "300000%2Fd%2Fbig.bin"), url.query),
                        (url.path.replace(HASHES["a.txt"], HASHES["d/big.bin"]), url.query),
                        (url.path.replace("org/data", "org/secret"), url.query)):
        assert m.get(f"{path}?{query}").status == 403, (path, query)


def test_nothing_leads_past_the_mirror(mirrord, hub):
    m = mirrord(hub.config())
    for way, reply in Client(m, OWNER).ways().items():
        said = "\n".join([*(f"{k}: {v}" for k, v in reply.headers.items()), reply.body.decode(errors="replace")])
        assert hub.cdn not in said and hub.url not in said and "Signature" not in said, way
    assert not hub.leaks


def test_the_file_of_a_hash_crosses_once(mirrord, hub, wire):
    """By path, by chunks and by another path, and never again after that, however old the listing."""
    hub.buckets["org/data"].files["copy.bin"] = BIG
    m = mirrord(hub.config(more="rule '^(api|buckets)' { ttl = 1s }"))
    c = Client(m, bucket="org/data")
    assert m.get("/hf/buckets/org/data/resolve/d/big.bin", wire).body == read(BIG)
    m.settle()
    assert c.by_chunks("d/big.bin").body == read(BIG) and m.get("/hf/buckets/org/data/resolve/copy.bin", wire).body == read(BIG)
    before = len(hub.calls)
    until(lambda: m.get("/hf/buckets/org/data/resolve/d/big.bin", wire).body == read(BIG) and len(hub.calls) > before + 3)
    assert hub.cdn_bytes == {sha256_of(BIG): BIG.size}


def test_a_file_that_changes_after_it_was_listed(mirrord, hub, wire):
    """The listing that is kept names content that the Hub no longer has there. Who reads the path gets the new file, at once; the former
    hash gets nothing, and nothing else is ever kept under it."""
    m = mirrord(hub.config(more="rule '^(api|buckets)' { ttl = 1h }"))
    c = Client(m, bucket="org/data")
    url = "/hf/buckets/org/data/resolve/d/big.bin"
    assert c.get(url, head=True)["x-xet-hash"] == xet_of(BIG) and not hub.cdn_bytes
    terms = c.terms("d/big.bin")
    new = Big(BIG.size, 5)  # as long as the former
    hub.buckets["org/data"].files["d/big.bin"] = new
    assert c.data(terms).status == 404
    got = m.get(url, wire)
    assert got.whole and got.body == read(new) and got["etag"] == f'"{xet_of(new)}"'
    assert c.data(terms).status == 404 and m.get(url, wire).body == read(new)
    hub.buckets["org/data"].files.update({"d/big.bin": BIG, "other.bin": BIG})
    assert c.data(terms).status == 206, "it is there again"
    assert hub.cdn_bytes == {sha256_of(new): new.size, sha256_of(BIG): BIG.size}


@pytest.mark.parametrize("witness,times", [("a file", 1), ("a listing", 2), ("paths", 1)])
def test_answers_about_a_bucket_agree(mirrord, hub, witness, times):
    """Listings are kept each for a time of its own. One that shows an upload ends those that were kept before it."""
    m = mirrord(hub.config(more="rule '^(api|buckets)' { ttl = 1h }"))
    c, files = Client(m, bucket="org/data"), hub.buckets["org/data"].files

    def paths(*some):
        reply = m.get("/hf/api/buckets/org/data/paths-info", args=["-H", "Content-Type: application/json", "--data-binary",
                                                                  json.dumps({"paths": some})])
        return {f["path"]: f["xetHash"] for f in json.loads(reply.body)}

    def hashes():
        """Of the file, by all answers."""
        trees = [c.get(f"/hf/api/buckets/org/data/tree{at}").body for at in ("?recursive=true", "/d", "/d?recursive=false", "/d/big.bin")]
        listed = [f["xetHash"] for t in trees for f in json.loads(t) if f["path"] == "d/big.bin"]
        return {*listed, *paths("d/big.bin").values(), *paths("d/big.bin", "d/none").values(), c.get(url, head=True)["x-xet-hash"],
                c.get(url, Range="bytes=0-0")["x-xet-hash"]}
    url = "/hf/buckets/org/data/resolve/d/big.bin"
    assert hashes() == {xet_of(BIG)} and len(files) == 2
    for seed in range(times):
        time.sleep(6 * seed)  # so long the Hub is not asked for all of it again
        files["d/big.bin"] = new = Big(BIG.size, 5 + seed)
        if witness == "a file":
            files["d/more.bin"] = b"of the same folder"
            assert m.get("/hf/buckets/org/data/resolve/d/more.bin").body == b"of the same folder"
        elif witness == "a listing":
            c.get(f"/hf/api/buckets/org/data/tree?recursive=true&seen={seed}")
        else:
            assert paths("d/big.bin", "d/b~") == {"d/big.bin": xet_of(new)}
        assert hashes() == {xet_of(new)}
        assert m.get(url).body == read(new)
        HASHES["d/new"] = xet_of(new)
        assert c.by_chunks("d/new").body == read(new)

    def asked():
        before = len(hub.calls)
        assert hashes() == {xet_of(new)}
        return len(hub.calls) - before
    until(lambda: asked() == 0)  # what was listed in the very second of the upload is asked for once more


def test_an_empty_file_has_the_etag_of_its_listing(mirrord, hub):
    hub.buckets["org/data"].files["none.txt"] = hub.buckets["org/secret"].files["none.txt"] = b""
    m = mirrord(hub.config())
    for bucket in "org/data", "org/secret":
        c = Client(m, OWNER, bucket)
        got, head = (c.get(f"/hf/buckets/{bucket}/resolve/none.txt", head=h) for h in (False, True))
        assert (got.status, got.body, head.status) == (200, b"", 200)
        assert got["etag"] == head["etag"] == f'"{xet_of(b"")}"'
        assert got["cache-control"] == head["cache-control"] == ("no-cache" if bucket == "org/data" else "private, no-cache")


def test_content_that_moves(mirrord, hub):
    """The same bytes at another path: a client that knows their hash gets them."""
    m = mirrord(hub.config(more="rule '^(api|buckets)' { ttl = 1h }"))
    c = Client(m, bucket="org/data")
    terms = c.terms("d/big.bin")
    files = hub.buckets["org/data"].files
    files["moved.bin"], files["d/big.bin"] = files["d/big.bin"], b"another"
    assert c.data(terms).status == 206 and c.by_chunks("d/big.bin").body == read(BIG)


def test_a_file_that_was_added_is_found_by_its_hash(mirrord, hub):
    """The listing of the whole bucket may be an hour old where it has the hash; where it has not, a new one is made."""
    m = mirrord(hub.config(more="rule '^(api|buckets)' { ttl = 1s }"))
    c = Client(m, bucket="org/data")
    assert c.terms("d/big.bin").status == 200
    new = Big(1000, 7)
    hub.buckets["org/data"].files["new.bin"] = new
    time.sleep(2)
    store, _ = c.store()
    assert c.get(f"{store}/v1/reconstructions/{xet_of(new)}").status == 200


def test_what_is_kept_is_read_by_its_hash(mirrord, hub):
    """Also when the file has another content since: a client has the hash from a listing of before."""
    m = mirrord(hub.config(more="rule '^(api|buckets)' { ttl = 1s }"))
    for bucket in ("org/data", "org/secret"):
        owner, new = Client(m, OWNER, bucket), Big(1000, 6)
        assert owner.by_chunks("d/big.bin").body == read(BIG)
        m.settle()
        hub.buckets[bucket].files["d/big.bin"] = new
        until(lambda c=owner, b=bucket, n=new: c.get(f"/hf/buckets/{b}/resolve/d/big.bin").body == read(n))
        until(lambda c=owner: xet_of(BIG).encode() not in c.get(f"/hf/api/buckets/{c.bucket}/tree/d").body)
        assert owner.by_chunks("d/big.bin").body == read(BIG)
    for token in (STRANGER, NOBODY):
        assert Client(m, token).by_chunks("d/big.bin").status in (401, 404)


def test_a_hub_that_names_no_content(mirrord, hub):
    """Bytes without a name are not taken for those of a hash: they are read by path, and revalidated as documents are."""
    m = mirrord(hub.config(more="rule '^(api|buckets)' { ttl = 1s }"))
    c, new = Client(m, bucket="org/data"), Big(BIG.size, 5)
    hub.order("^/buckets/org/data/resolve/d/big.bin", (302, {"Location": hub.signed_url(sha256_of(BIG))}), times=100)
    assert m.get("/hf/buckets/org/data/resolve/d/big.bin").body == read(BIG)
    assert c.by_chunks("d/big.bin").status == 404
    hub.script.clear()
    hub.buckets["org/data"].files["d/big.bin"] = new
    until(lambda: m.get("/hf/buckets/org/data/resolve/d/big.bin").body == read(new))


def test_a_hub_that_names_no_content_is_not_asked_each_time(mirrord, hub):
    """Two failed fetches and two listings tell that the answers have no name. That is not found out anew by each request, and the copy that
    is kept by path is there while the Hub is gone."""
    m = mirrord(hub.config(more="rule '^(api|buckets)' { ttl = 4s sie = 365d }"))
    url = "/hf/buckets/org/data/resolve/d/big.bin"
    hub.order("^/buckets/org/data/resolve/d/big.bin", (302, {"Location": hub.signed_url(sha256_of(BIG))}), times=10000)

    def asked_for_a_copy():
        before = len(hub.calls)
        assert m.get(url).body == read(BIG)
        return len(hub.calls) - before
    until(lambda: asked_for_a_copy() == 0)
    hub.down()
    late = time.monotonic() + 9
    while time.monotonic() < late:  # from when all is fresh until all is stale
        got = m.get(url)
        if time.monotonic() > late - 4:
            assert (got.status, got.body) == (200, read(BIG))
    hub.up()


@pytest.mark.parametrize("name,asked", [("a", 1), ("b", 1), ("zz", 1)])
def test_a_path_of_few_letters_lists_no_more_than_a_part(mirrord, hub, name, asked):
    """The Hub matches paths by their beginning: that was all of the bucket, part by part, for whatever path or hint a client wrote."""
    hub.page = 3
    hub.buckets["org/data"].files.update({f"{c}/{i:03}": b"x" for c in "ab" for i in range(60)}, a=b"this", zz=b"that")
    hub.buckets["org/data"].files.uploaded.clear()  # long ago: what was listed before an upload is listed again
    m = mirrord(hub.config())

    def below():
        return sum(urllib.parse.urlsplit(c[1]).path.endswith(f"/org/data/tree/{name}") for c in hub.calls)
    got = m.get(f"/hf/buckets/org/data/resolve/{name}", head=True)
    assert got.status == (404 if name == "b" else 200) and below() == asked
    assert m.get(f"/hf/api/buckets/org/data/xet/{name}0/v1/reconstructions/{'0' * 64}").status == 404
    assert m.get(f"/hf/api/buckets/org/data/xet/{name}/v1/reconstructions/{'0' * 64}").status == 404 and below() == asked


@pytest.mark.parametrize("asked,parts", [(["a/000", "a/001"], 1), (["a/059", "b/059"], 3), (["a/000", "b/000", "b/none"], 3), (["a/09", "b/1", "c"], 4),
                                         (["a/010", "a/020", "b/030", "b/040", "none"], 41)])
def test_paths_are_looked_for_where_they_can_be(mirrord, hub, asked, parts):
    """Below what they have in common the Hub lists all of the bucket. Its first part says how far it goes; what is behind it is asked for
    path by path, as long as those are few."""
    hub.page = 3
    hub.buckets["org/data"].files.clear()
    hub.buckets["org/data"].files.update({f"{c}/{i:03}": f"{c}{i}".encode() for c in "ab" for i in range(60)}, c=b"last")
    hub.buckets["org/data"].files.uploaded.clear()
    m = mirrord(hub.config())
    for _ in range(2):
        reply = m.get("/hf/api/buckets/org/data/paths-info", args=["-H", "Content-Type: application/json", "--data-binary", json.dumps({"paths": asked})])
        files = {f["path"]: f for f in json.loads(reply.body)}
        here = {p: d for p, d in hub.buckets["org/data"].files.items() if p in asked}
        assert {p: (f["xetHash"], f["size"], f["type"]) for p, f in files.items()} == {p: (xet_of(d), len(d), "file") for p, d in here.items()}
        assert list(files) == sorted(files)
        assert sum("/org/data/tree" in c[1] for c in hub.calls) == parts


def test_a_hub_that_lists_in_no_order(mirrord, hub):
    """The file itself may be in a later part, then."""
    files = [{"type": "file", "path": p, "size": 4, "xetHash": xet_of(b"this")} for p in ("ac", "ab", "a")]
    at = f"{hub.url}/api/buckets/org/data/tree/a?recursive=true&cursor=2"
    hub.order("^/api/buckets/org/data/tree/a.*cursor", (200, {"Content-Type": "application/json"}, json.dumps(files[2:]).encode()), times=9)
    hub.order("^/api/buckets/org/data/tree/a", (200, {"Content-Type": "application/json", "Link": f'<{at}>; rel="next"'},
                                                json.dumps(files[:2]).encode()), times=9)
    m = mirrord(hub.config())
    got = m.get("/hf/buckets/org/data/resolve/a", head=True)
    assert (got.status, got["x-xet-hash"]) == (200, xet_of(b"this"))


def test_files_without_a_hash(mirrord, hub):
    """A Hub whose listing tells no hash: by path, and asked for again like other documents."""
    m = mirrord(hub.config())
    listing = json.dumps([{"type": "file", "path": "a.txt", "size": 6}]).encode()
    hub.order("^/api/buckets/org/data/tree", (200, {"Content-Type": "application/json"}, listing), times=100)
    assert m.get("/hf/buckets/org/data/resolve/a.txt").body == b"S3CRET"
    m.settle()
    assert m.get("/hf/buckets/org/data/resolve/a.txt").body == b"S3CRET" and sum(hub.cdn_bytes.values()) == 6
    assert Client(m, bucket="org/data").terms("a.txt").status == 404
