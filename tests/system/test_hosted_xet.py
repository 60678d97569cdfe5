"""Uploads by Xet's protocol (server/repo/hosted/assemble.h): xorbs and shards as hf_xet sends them, and as nobody should."""
import hashlib
import json
import os
import struct

import pytest

MAGIC = b"HFRepoMetaData\0UigEj{\x81W\x83\xa5\xbd\xd9\\\xcd\xd1J\xa9"
VERIFIED, METADATA = 1 << 31, 1 << 30
ROW = 48


def words(hexes):
    """A hash as a shard has it: four little-endian words."""
    return b"".join(int(hexes[i:i + 16], 16).to_bytes(8, "little") for i in range(0, 64, 16))


def chunk(data, scheme=0, stored=None):
    stored = data if stored is None else stored
    return b"\0" + len(stored).to_bytes(3, "little") + bytes([scheme]) + len(data).to_bytes(3, "little") + stored


def shard(*files, end=True, version=2):
    """files: (sha256 or None, [(xorb, first, end, bytes)...])"""
    out = MAGIC.ljust(32, b"\0")[:32] + struct.pack("<QQ", version, 0)
    for sha, terms in files:
        flags = VERIFIED | (METADATA if sha else 0)
        out += bytes(32) + struct.pack("<IIQ", flags, len(terms), 0)
        for xorb, first, stop, size in terms:
            out += words(xorb) + struct.pack("<IIII", 0, size, first, stop)
        out += bytes(ROW) * len(terms)
        out += words(sha) + bytes(16) if sha else b""
    return out + (b"\xff" * 32 + bytes(16) if end else b"") + b"what follows is not read"


def sha(data):
    return hashlib.sha256(data).hexdigest()


X1, X2 = "1" * 64, "0123456789abcdef" * 4
A, B, C = os.urandom(100_000), os.urandom(70_000), b"c" * 131072


@pytest.fixture
def home(mirrord):
    m = mirrord('repo "models" { protocol = "hosted" }')
    m.ci, m.other = m.token("ci", "publish:models/me/*"), m.token("other", "publish:models/you/*")
    for name, owner, token in (("gpt", "me", m.ci), ("theirs", "you", m.other)):
        made = m.put("/models/api/repos/create", json.dumps({"name": name, "organization": owner}).encode(), token=token, method="POST")
        assert made.status == 200, made.body
    return m


def store(m, tree="me/gpt", token=None):
    got = m.get(f"/models/api/models/{tree}/xet-write-token/main", headers={"Authorization": f"Bearer {token or m.ci}"})
    assert got.status == 200, got.body
    said = json.loads(got.body)
    assert said["accessToken"] == (token or m.ci) and said["casUrl"].startswith(m.url("/models/"))
    return said["casUrl"][len(m.url("")) - (m.url("")[-1] == "/"):]


def post(m, path, data, token=None):
    return m.put(path, data, token=token or m.ci, method="POST")


def commit(m, path, digest, size, tree="me/gpt", token=None):
    lines = [{"key": "header", "value": {"summary": "x"}}, {"key": "lfsFile", "value": {"path": path, "algo": "sha256", "oid": digest, "size": size}}]
    return m.put(f"/models/api/models/{tree}/commit/main", "\n".join(map(json.dumps, lines)).encode(), token=token or m.ci, method="POST")


def test_there_and_back(home, wire):
    """Chunks of two xorbs, some twice, in another order than they came."""
    at = store(home)
    assert post(home, f"{at}/v1/xorbs/default/{X1}", chunk(A) + chunk(C) + b"XETBLOB and a footer").status == 200
    assert post(home, f"{at}/v1/xorbs/default/{X2}", chunk(B)).status == 200
    data = C + B + A + C + C
    got = post(home, f"{at}/v1/shards", shard((sha(data), [(X1, 1, 2, len(C)), (X2, 0, 1, len(B)), (X1, 0, 2, len(A + C)), (X1, 1, 2, len(C))]),
                                              (sha(A), [(X1, 0, 1, len(A))])))
    assert (got.status, json.loads(got.body)) == (200, {"result": 1})
    assert home.get("/models/me/gpt/whole.bin").status == 404, "nothing shows before the commit"
    assert commit(home, "whole.bin", sha(data), len(data)).status == 200
    assert home.get("/models/me/gpt/whole.bin", wire).body == data
    assert commit(home, "a.bin", sha(A), len(A)).status == 200
    again = store(home)
    assert post(home, f"{again}/v1/shards", shard((sha(data), [(X1, 1, 2, len(C))]))).status == 200, "what the tree has is not put together again"
    home.ctl("verify")


@pytest.mark.parametrize("terms", [
    [(X2, 0, 1, len(B))], [(X1, 0, 3, len(A + C))], [(X1, 1, 1, 0)], [(X1, 2, 1, 5)], [(X1, 0, 1, len(A) - 1)],
    [(X1, 0, 1 << 31, len(A))], [(X1, 1, 2, len(C))]], ids=["no xorb", "beyond", "none", "backwards", "size", "far beyond", "other bytes"])
def test_wrong_shards(home, terms):
    at = store(home)
    assert post(home, f"{at}/v1/xorbs/default/{X1}", chunk(A) + chunk(C)).status == 200
    got = post(home, f"{at}/v1/shards", shard((sha(A), terms)))
    assert got.status == 400 and b"error" in got.body
    assert commit(home, "a.bin", sha(A), len(A)).status >= 400
    if post(home, f"{at}/v1/xorb-grants/default/{X1}", b"{}").status == 404:  # forgotten: it may be the one that was wrong
        assert post(home, f"{at}/v1/xorbs/default/{X1}", chunk(A) + chunk(C)).status == 200
    assert post(home, f"{at}/v1/shards", shard((sha(A), [(X1, 0, 1, len(A))]))).status == 200, "the right one is still good"


@pytest.mark.parametrize("body", [
    b"", b"x", shard()[:40], shard(version=3), shard((sha(A), [(X1, 0, 1, len(A))]), end=False)[:-30], shard((None, [(X1, 0, 1, len(A))])),
    shard()[:48] + bytes(32) + struct.pack("<IIQ", VERIFIED, 0xffffffff, 0)],
    ids=["empty", "short", "head", "version", "cut", "no digest", "count"])
def test_no_shards(home, body):
    at = store(home)
    got = post(home, f"{at}/v1/shards", body)
    assert got.status in (400, 411), got.body


@pytest.mark.parametrize("xorb", [
    chunk(A, 1), chunk(A, 2), chunk(A, 9), chunk(A, 0, A + b"x"), chunk(A)[:-1], b"\1" + chunk(A)[1:], chunk(b"", 0, b"x"),
    chunk(A, 1, b"\x04\x22\x4d\x18\x60\x40\x82" + b"\0" * 4), chunk(A, 1, b"\x04\x22\x4d\x18" + os.urandom(500))],
    ids=["lz4", "grouped", "scheme", "two sizes", "cut", "version", "empty", "ends early", "garbage"])
def test_broken_xorbs(home, xorb):
    at = store(home)
    assert post(home, f"{at}/v1/xorbs/default/{X1}", xorb).status == 200, "it is looked at when it is used"
    assert post(home, f"{at}/v1/shards", shard((sha(A), [(X1, 0, 1, len(A))]))).status == 400
    assert post(home, f"{at}/v1/xorb-grants/default/{X1}", b"{}").status == 404, "it is to be brought again"
    assert post(home, f"{at}/v1/xorbs/default/{X1}", chunk(A)).status == 200
    assert post(home, f"{at}/v1/shards", shard((sha(A), [(X1, 0, 1, len(A))]))).status == 200
    home.ctl("verify")


def test_whose(home):
    """An upload is its tree's; who may not publish there brings nothing, and what one tree was brought is no other's."""
    at = store(home)
    assert post(home, f"{at}/v1/xorbs/default/{X1}", chunk(A)).status == 200
    good = shard((sha(A), [(X1, 0, 1, len(A))]))
    assert post(home, f"{at}/v1/shards", good, token=home.other).status == 403
    assert home.get("/models/api/models/me/gpt/xet-write-token/main").status == 401
    stolen = at.replace("me/gpt", "you/theirs")
    assert post(home, f"{stolen}/v1/shards", good, token=home.other).status == 404
    theirs = store(home, "you/theirs", home.other)
    assert post(home, f"{theirs}/v1/shards", good, token=home.other).status == 400, "no such xorb in this upload"
    assert post(home, f"{at}/v1/shards", good).status == 200
    assert commit(home, "a.bin", sha(A), len(A), "you/theirs", home.other).status >= 400


def test_an_upload_that_is_begun_again(home):
    """The same address for half a day, and what is there need not be sent."""
    at = store(home)
    assert post(home, f"{at}/v1/xorbs/default/{X1}", chunk(A)).status == 200
    home.kill()
    home.start()
    assert store(home).split("/models/")[1] == at.split("/models/")[1] != store(home, "you/theirs", home.other)
    assert post(home, f"{at}/v1/xorb-grants/default/{X1}", b'{"length": 1}').status == 200
    assert post(home, f"{at}/v1/xorb-grants/default/{X2}", b"{}").status == 404
    assert post(home, f"{at}/v1/xorb-grants/default/{X1}", b"{}", token=home.other).status == 403
    assert post(home, f"{store(home, 'you/theirs', home.other)}/v1/xorb-grants/default/{X1}", b"{}", token=home.other).status == 404
    assert post(home, f"{at}/v1/shards", shard((sha(A), [(X1, 0, 1, len(A))]))).status == 200


def test_what_newer_clients_ask_first(home):
    at = store(home)
    assert post(home, f"{at}/v1/xorb-grants/default/{X1}", b"{}").status == 404
    assert post(home, f"{at}/v2/shards", shard()).status == 404
    assert home.get(f"{at}/v1/chunks/default/{X1}", headers={"Authorization": f"Bearer {home.ci}"}).status == 404
    assert post(home, f"{at}/v1/xorbs/default/{'z' * 64}", b"x").status == 404
    assert post(home, f"{at[:-32]}{'0' * 32}/v1/xorbs/default/{X1}", chunk(A)).status == 404
    big = home.put(f"{at}/v1/xorbs/default/{X1}", bytes(80 << 20), token=home.ci, method="POST")
    assert big.status in (413, 0) or big.rc != 0


def test_killed_between(home):
    """What a xorb's answer has promised is there after SIGKILL."""
    at = store(home)
    assert post(home, f"{at}/v1/xorbs/default/{X1}", chunk(A)).status == 200
    home.kill()
    home.start()
    assert post(home, f"{at}/v1/shards", shard((sha(A), [(X1, 0, 1, len(A))]))).status == 200
    home.kill()
    home.start()
    assert commit(home, "a.bin", sha(A), len(A)).status == 200
    assert home.get("/models/me/gpt/a.bin").body == A
    home.ctl("verify")
