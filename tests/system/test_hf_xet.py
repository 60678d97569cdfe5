"""Files of a Hub by Xet's protocol: a chunk store that is made of whole files (server/repo/hf/xet.h)."""
import json
import os
import urllib.parse

import pytest

from harness.hub import Big, read, sha256_of

CHUNK, STRETCH = 128 << 10, 256
WEIGHTS = Big(40 * CHUNK + 777)
FILES = {"config.json": b"{}", "a b/weights.bin": WEIGHTS, "tiny.bin": Big(3, 7), "full.bin": Big(2 * CHUNK, 8)}


@pytest.fixture
def hub(hub):
    hub.users.update({"hf_alice": "alice", "hf_bob": "bob"})
    hub.repo("org/demo", files=FILES)
    hub.repo("meta/gated", files={"weights.bin": WEIGHTS, "x": b"x"}, gated=True, readers={"hf_alice", "hf_service"})
    return hub


@pytest.fixture
def hf(mirrord, hub):
    return mirrord(hub.config(more='xet = "on"'))


def bearer(token):
    return {"Authorization": f"Bearer {token}"} if token else {}


def path_of(m, url):
    """Below the mirror: nothing that it names is elsewhere."""
    for port, scheme in ((m.port, "http"), (m.tls_port, "https")):
        if url.startswith(f"{scheme}://127.0.0.1:{port}/"):
            return url[url.index("/", 9):]
    raise AssertionError(url)


def store_of(m, repo="org/demo", token=None, rev="main"):
    """What the client learns before it asks for chunks: where, and by which credential."""
    got = m.get(f"/hf/api/models/{repo}/xet-read-token/{rev}", headers=bearer(token))
    assert got.status == 200, got.body
    said = json.loads(got.body)
    assert said["casUrl"] == got["x-xet-cas-url"] and said["accessToken"] == got["x-xet-access-token"]
    assert str(said["exp"]) == got["x-xet-token-expiration"]
    return path_of(m, said["casUrl"]), said["accessToken"]


def frames(data):
    """The file's own bytes out of framed ones."""
    out, at = b"", 0
    while at < len(data):
        version, stored, scheme, plain = data[at], data[at + 1:at + 4], data[at + 4], data[at + 5:at + 8]
        assert version == 0 and scheme == 0 and stored == plain
        n = int.from_bytes(plain, "little")
        assert 0 < n <= CHUNK and at + 8 + n <= len(data)
        out += data[at + 8:at + 8 + n]
        at += 8 + n
    return out


def rebuilt(m, data, store, token, first=0, end=None, wire="h1"):
    """As hf_xet puts a range together."""
    end = data.size if end is None else end
    got = m.get(f"{store}/v1/reconstructions/{sha256_of(data)}", wire,
                headers={**bearer(token), "Range": f"bytes={first}-{end - 1}"})
    assert got.status == 200, got.body
    said, out = json.loads(got.body), b""
    for term in said["terms"]:
        place, = said["fetch_info"][term["hash"]]
        assert place["range"] == term["range"] and 0 <= term["range"]["start"] < term["range"]["end"] <= STRETCH
        where = place["url_range"]
        part = m.get(path_of(m, place["url"]), wire, headers={"Range": f"bytes={where['start']}-{where['end']}"})
        assert part.status == 206, part.body
        plain = frames(part.body)
        assert len(plain) == term["unpacked_length"]
        out += plain
    skip = said["offset_into_first_range"]
    return out[skip:skip + end - first]


def test_announced(hf, hub):
    for path, data in FILES.items():
        got = hf.get(f"/hf/org/demo/resolve/main/{urllib.parse.quote(path)}", head=True)
        if path == "config.json":
            assert got["x-xet-hash"] is None and got["link"] is None
            continue
        assert got["x-xet-hash"] == sha256_of(data)
        sha = hub.repos["models", "org/demo"].sha
        assert got["link"] == f'<{hf.url("")}/hf/api/models/org/demo/xet-read-token/{sha}>; rel="xet-auth"'.replace("//hf", "/hf")
    listed = json.loads(hf.get("/hf/api/models/org/demo/tree/main?recursive=true").body)
    assert {e["path"]: e.get("xetHash") for e in listed if e["type"] == "file"} == {
        p: sha256_of(d) if isinstance(d, Big) else None for p, d in FILES.items()}


def test_announced_under_the_name_that_was_asked(hf):
    """What is kept ready for the next who asks leads nobody to another's name for the mirror."""
    for head in (True, False, True):
        for host in ("one.example:8080", "two.example"):
            got = hf.get("/hf/org/demo/resolve/main/a%20b/weights.bin", headers={"Host": host}, head=head)
            assert f"<http://{host}/hf/" in got["link"], got["link"]
        hf.settle()


@pytest.mark.parametrize("path", [p for p in FILES if p != "config.json"])
def test_whole_and_in_ranges(hf, hub, wire, path):
    data = FILES[path]
    store, token = store_of(hf)
    spans = {(0, data.size), (0, 1), (data.size - 1, data.size), (min(CHUNK - 1, data.size - 1), min(CHUNK + 1, data.size)),
             (data.size // 2, data.size)}
    for first, end in sorted(spans, reverse=True):  # the first of them cold, in the middle
        assert rebuilt(hf, data, store, token, first, end, wire) == read(data, first, end), (first, end)
    assert hub.cdn_bytes[sha256_of(data)] == data.size


def test_ranges_of_the_framed_bytes(hf):
    """Any range of the framed bytes is a cut of the whole, wherever heads are."""
    store, _ = store_of(hf)
    where = f"{store}/data/{sha256_of(WEIGHTS)}"
    got = hf.get(where)
    whole = got.body
    assert got.status == 200 and frames(whole) == read(WEIGHTS)
    assert got["repr-digest"] is None and got["link"] is None and got["etag"] == f'"xorb-{sha256_of(WEIGHTS)}"'
    assert int(hf.get(where, head=True)["content-length"]) == len(whole)
    step = CHUNK + 8
    for first in (*range(step - 3, step + 12), *range(0, 10), len(whole) - 9):
        for n in (1, 7, 8, 9, 70000, 3 * step):
            got = hf.get(where, headers={"Range": f"bytes={first}-{first + n - 1}"})
            assert got.status == 206 and got.body == whole[first:first + n], (first, n)
    assert hf.get(where, headers={"Range": "bytes=-5"}).body == whole[-5:]
    assert hf.get(where, headers={"Range": f"bytes={len(whole)}-"}).status == 416


def test_what_is_not_there(hf, hub):
    store, token = store_of(hf)
    assert hf.get(f"{store}/v2/reconstructions/{sha256_of(WEIGHTS)}").status == 404, "the client falls back to v1"
    for path in ("v1/reconstructions/" + "0" * 64, "v1/reconstructions/xyz", "data/" + "0" * 64, "data/", "v1/chunks/default/x"):
        assert hf.get(f"{store}/{path}", headers=bearer(token)).status in (400, 404), path
    got = hf.get(f"{store}/v1/reconstructions/{sha256_of(WEIGHTS)}", headers={"Range": f"bytes={WEIGHTS.size}-"})
    assert got.status == 416
    assert hf.get("/hf/api/models/org/demo/xet-read-token/none").status == 404
    assert hf.get("/hf/api/models/no/body/xet-read-token/main")["x-error-code"] == "RepoNotFound"


def test_rights(hf, hub):
    """The bytes of a gated file go to those alone who may have them, and to whoever was given a sealed address for an hour."""
    for token in (None, "hf_bob"):
        assert hf.get("/hf/api/models/meta/gated/xet-read-token/main", headers=bearer(token)).status in (401, 403)
    store, token = store_of(hf, "meta/gated", "hf_alice")
    assert token == "hf_alice"
    assert rebuilt(hf, WEIGHTS, store, token) == read(WEIGHTS)
    terms = f"{store}/v1/reconstructions/{sha256_of(WEIGHTS)}"
    for other in (None, "hf_bob", "anonymous"):
        assert hf.get(terms, headers=bearer(other)).status in (401, 403), other
        assert hf.get(f"{store}/data/{sha256_of(WEIGHTS)}", headers=bearer(other)).status in (401, 403), other
    said = json.loads(hf.get(terms, headers=bearer("hf_alice")).body)
    url = path_of(hf, next(iter(said["fetch_info"].values()))[0]["url"])
    assert "hf_alice" not in url and hf.get(url).status == 200
    forged = url[:-10] + ("A" if url[-10] != "A" else "B") + url[-9:]
    assert hf.get(forged).status == 403
    key = url[url.index("?"):]
    demo, _ = store_of(hf)
    assert hf.get(f"{demo}/data/{sha256_of(WEIGHTS)}{key}").status == 403, "sealed for another repository"
    hf.stop()
    hf.start()
    assert hf.get(url).status == 403, "sealed before the restart"


def test_behind_tokens_of_ours(mirrord, hub, tmp_path):
    secret = tmp_path / "token"
    secret.write_text("Bearer hf_service\n")
    hub.users["hf_service"] = "service"
    m = mirrord(hub.config(more=f'xet = "on" authorization = "file:{secret}" access {{ anonymous = none }}'))
    mine, other = m.token("reader", "read:hf/models/meta/*"), m.token("other", "read:hf/models/org/*")
    store, token = store_of(m, "meta/gated", mine)
    assert token == mine
    assert rebuilt(m, WEIGHTS, store, token) == read(WEIGHTS)
    for stranger in (None, other):
        assert m.get(f"{store}/v1/reconstructions/{sha256_of(WEIGHTS)}", headers=bearer(stranger)).status in (401, 403)
        assert m.get(f"{store}/data/{sha256_of(WEIGHTS)}", headers=bearer(stranger)).status in (401, 403)


def test_which_files(mirrord, hub):
    """Usually those alone that clients refuse over plain HTTP."""
    hub.repo("org/huge", files={"huge.bin": Big(50_000_000_001, digest="ab" * 32), "large.bin": Big(50_000_000_000, digest="cd" * 32)})
    usual, off = mirrord(hub.config()), mirrord(hub.config(more='xet = "off"'))
    for m, offered in ((usual, {"huge.bin"}), (off, set())):
        listed = json.loads(m.get("/hf/api/models/org/huge/tree/main").body)
        assert {e["path"] for e in listed if "xetHash" in e} == offered
        for path in ("huge.bin", "large.bin"):
            head = m.get(f"/hf/org/huge/resolve/main/{path}", head=True)
            assert (head["x-xet-hash"] is not None) == (path in offered)
    assert off.get("/hf/api/models/org/huge/xet-read-token/main").status == 404
    store, token = store_of(usual, "org/huge")
    said = json.loads(usual.get(f"{store}/v1/reconstructions/{'ab' * 32}", headers={"Range": "bytes=49999999999-60000000000"}).body)
    assert len(said["terms"]) == 1 and said["offset_into_first_range"] == 49_999_999_999 % CHUNK


def test_a_stretch_far_away_comes_first(hf, hub):
    """A reader of a cold file's end does not wait for its beginning, and the origin gives each byte once."""
    data = Big(64 << 20, 11)
    hub.repo("org/long", files={"weights.bin": data})
    store, token = store_of(hf, "org/long")
    assert rebuilt(hf, data, store, token, 60 << 20, 61 << 20) == read(data, 60 << 20, 61 << 20)
    assert rebuilt(hf, data, store, token) == read(data)
    hf.settle()
    assert hub.cdn_bytes[sha256_of(data)] == data.size


def test_bytes_that_are_not_in_memory(hf):
    """A pool reads ahead what the file has, not what its frames would add behind its end."""
    data = FILES["full.bin"]
    store, token = store_of(hf)
    assert rebuilt(hf, data, store, token) == read(data)
    hf.settle()
    blob = next(p for p in hf.state.rglob(sha256_of(data)))
    with open(blob, "rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert rebuilt(hf, data, store, token) == read(data)
