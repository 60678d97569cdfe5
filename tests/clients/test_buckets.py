"""Buckets of a Hub through the mirror, by the newest huggingface_hub with and without hf_xet: `hf buckets cp` and `sync`,
download_bucket_files() and HfFileSystem. Time-outs are the client's own."""
import hashlib
import json
import pathlib

import pytest

from clients.test_hub import World, client
from clients.test_hub_reads import SAID
from harness.hub import Big, read, sha256_of
from harness.mirrord import until

pytestmark = pytest.mark.xdist_group("hub")

FILES = {"a.txt": b"one", "d/b.bin": Big(300000), "d/c/e.txt": b"deep", "empty": b"", "d\u00e4.txt": b"umlaut", "d/c/x y#%?.bin": b"odd",
         "big.bin": Big(70 << 20, 3)}
SUMS = {p: sha256_of(d) for p, d in FILES.items()}


@pytest.fixture
def hub(hub):
    hub.users.update({"hf_alice": "alice", "hf_bob": "bob", "hf_carol": "carol"})
    hub.page = 2
    hub.bucket("org/data", FILES)
    hub.bucket("org/secret", {"s.txt": b"S3CRET", "d/t.txt": b"S3CRET too"}, private=True, readers={"hf_alice", "hf_carol"})
    return hub


CALM = "rule '^(api|buckets)' { ttl = 1h }"  # what a client was told stays so for as long as the slowest machine may need


def sums(folder):
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in pathlib.Path(folder).rglob("*") if p.is_file()}


def bytes_asked(hub):
    """What the Hub and its CDN have been asked for the bytes of buckets."""
    return [c for c in hub.calls if c[1].startswith("/buckets/")] + hub.cdn_calls


BUCKET = SAID + """
import hashlib, pathlib, sys
def sums(files):
    return {k: hashlib.sha256(v).hexdigest() for k, v in files.items()}
fs.get("hf://buckets/org/data/d", "here", recursive=True)
print(json.dumps({
    "info": [api.bucket_info("org/data").total_files, api.bucket_info("org/data").private],
    "list": sorted(b.id for b in api.list_buckets("org")),
    "tree": sorted(f.path for f in api.list_bucket_tree("org/data", recursive=True) if f.type == "file"),
    "top": sorted(f.path for f in api.list_bucket_tree("org/data")),
    "below": sorted(f.path for f in api.list_bucket_tree("org/data", prefix="d", recursive=True) if f.type == "file"),
    "paths": sorted((f.path, f.size) for f in api.get_bucket_paths_info("org/data", ["a.txt", "d/b.bin", "none", "d\u00e4.txt"])),
    "one": [f.path for f in api.get_bucket_paths_info("org/data", ["d/c/e.txt"])],
    "read": sums({p: fs.cat_file("buckets/org/data/" + p) for p in ("a.txt", "d/b.bin", "d/c/e.txt", "empty", "d\u00e4.txt")}),
    "part": fs.cat_file("buckets/org/data/d/b.bin", start=100, end=200).hex(),
    "got": sums({str(p.relative_to("here")): p.read_bytes() for p in pathlib.Path("here").rglob("*") if p.is_file()}),
    "none": said(fs.cat_file, "buckets/org/data/none"), "nobucket": said(api.bucket_info, "org/nothing"),
    "secret": [said(lambda: list(api.list_bucket_tree("org/secret"))), said(fs.cat_file, "buckets/org/secret/s.txt")],
    "mine": HfFileSystem(token="hf_alice").cat_file("buckets/org/secret/s.txt").decode(),
    "writes": [said(api.create_bucket, "org/new"), said(api.delete_bucket, "org/data"), said(api.move_bucket, "org/data", "org/other")],
    "batch": [said(api.batch_bucket_files, "org/data", delete=["a.txt"]), said(api.batch_bucket_files, "org/data", add=[(b"x", "new.txt")])],
}), flush=True)
"""


@pytest.mark.parametrize("xet", [False, True], ids=["http", "xet"])
def test_what_reads_and_what_writes(mirrord, hub, tmp_path, xet):
    w = World(mirrord(hub.config()), tmp_path)
    out = w.python(client("", xet), BUCKET)
    assert out["info"] == [len(FILES), False] and out["list"] == ["org/data"]
    assert out["tree"] == sorted(FILES) and out["top"] == ["a.txt", "big.bin", "d", "d\u00e4.txt", "empty"]
    assert out["below"] == sorted(p for p in FILES if p.startswith("d"))
    assert out["paths"] == [["a.txt", 3], ["d/b.bin", 300000], ["d\u00e4.txt", 6]] and out["one"] == ["d/c/e.txt"]
    assert out["read"] == {p: SUMS[p] for p in ("a.txt", "d/b.bin", "d/c/e.txt", "empty", "d\u00e4.txt")}
    assert out["part"] == read(FILES["d/b.bin"], 100, 200).hex()
    assert out["got"] == {p[2:]: SUMS[p] for p in FILES if p.startswith("d/")}
    assert "none" in out["none"] and "NotFoundError" in out["nobucket"]  # below a path the client says "repository"
    assert all("S3CRET" not in s for s in out["secret"]) and "NotFoundError" in out["secret"][0]
    assert out["mine"] == "S3CRET"
    for text in (*out["writes"], *(out["batch"][:1] if xet else [])):  # the client asks for hf_xet before it sends a batch
        assert "this repo is a mirror of a Hub and does not accept" in text, text
    assert ("403" if xet else "hf_xet") in out["batch"][1], "hf_xet tells the status alone"
    assert hub.cdn_bytes[SUMS["d/b.bin"]] == 300000, "once across the wire, whichever way it was read"
    assert not hub.leaks


def test_cp(mirrord, hub, tmp_path):
    w = World(mirrord(hub.config(more=CALM)), tmp_path)
    hf = client("", True) / "hf"
    for path, to in (("a.txt", "x.txt"), ("d/b.bin", "./"), ("d/c/x y#%?.bin", "odd.bin"), ("empty", "nothing"), ("big.bin", "big.bin")):
        w.run([hf, "buckets", "cp", f"hf://buckets/org/data/{path}", to])
    assert sums(w.home) | {"x.txt": SUMS["a.txt"], "b.bin": SUMS["d/b.bin"], "odd.bin": SUMS["d/c/x y#%?.bin"], "nothing": SUMS["empty"],
                           "big.bin": SUMS["big.bin"]} == sums(w.home)
    assert w.run([hf, "cp", "hf://buckets/org/data/a.txt", "-"]) == "one"
    assert "none" in w.run([hf, "buckets", "cp", "hf://buckets/org/data/none", "none"], fails=True)
    assert hub.cdn_bytes[SUMS["big.bin"]] == 70 << 20
    before = len(bytes_asked(hub))
    w.fresh()
    w.run([hf, "buckets", "cp", "hf://buckets/org/data/big.bin", "big.bin"])
    assert sums(w.home)["big.bin"] == SUMS["big.bin"] and len(bytes_asked(hub)) == before, "the second time it comes from here"


def test_sync_down(mirrord, hub, tmp_path):
    w = World(mirrord(hub.config(more=CALM)), tmp_path)
    hf = client("", True) / "hf"
    w.run([hf, "buckets", "sync", "hf://buckets/org/data", "all"])
    assert sums(w.home / "all") == SUMS
    before = len(bytes_asked(hub))
    w.run([hf, "buckets", "sync", "hf://buckets/org/data/d", "some"])
    assert sums(w.home / "some") == {p[2:]: s for p, s in SUMS.items() if p.startswith("d/")}
    assert len(bytes_asked(hub)) == before and sum(hub.cdn_bytes.values()) == sum(len(read(d)) for d in FILES.values())
    assert "403" in w.run([hf, "buckets", "sync", "some", "hf://buckets/org/data/up"], fails=True)


DOWNLOAD = SAID + """
import hashlib, sys
names = json.loads(sys.argv[1])
files = list(api.list_bucket_tree("org/data", recursive=True))
api.download_bucket_files("org/data", [(f, f"by-entry/{f.path}") for f in files])
api.download_bucket_files("org/data", [(n, f"by-name/{n}") for n in names])
meta = api.get_bucket_file_metadata("org/data", "d/b.bin")
print(json.dumps({"missing": said(api.download_bucket_files, "org/data", [("none", "none")], raise_on_missing_files=True),
                  "size": meta.size, "same": meta.xet_file_data.file_hash == [f.xet_hash for f in files if f.path == "d/b.bin"][0],
                  "route": meta.xet_file_data.refresh_route}), flush=True)
"""


def test_download_bucket_files(mirrord, hub, tmp_path):
    w = World(mirrord(hub.config()), tmp_path)
    out = w.python(client("", True), DOWNLOAD, json.dumps(list(FILES)))
    assert sums(w.home / "by-entry") == SUMS == sums(w.home / "by-name")
    assert "none" in out["missing"] and out["size"] == 300000 and out["same"]
    assert out["route"].startswith(w.env["HF_ENDPOINT"] + "/"), "the token comes from here"


def test_without_hf_xet_the_client_itself_refuses(mirrord, hub, tmp_path):
    """download_bucket_files() and the commands begin with an import of hf_xet, whatever a Hub offers."""
    w = World(mirrord(hub.config()), tmp_path)
    said = w.run([client("", False) / "hf", "buckets", "cp", "hf://buckets/org/data/a.txt", "x.txt"], fails=True)
    assert "hf_xet" in said, said


def test_a_mirror_without_a_chunk_store_says_so(mirrord, hub, tmp_path):
    w = World(mirrord(hub.config(more='xet = "off"')), tmp_path)
    said = w.run([client("", True) / "hf", "buckets", "cp", "hf://buckets/org/data/a.txt", "x.txt"], fails=True)
    assert "read buckets with HfFileSystem" in said, said
    out = w.python(client("", True), SAID + 'fs.get("buckets/org/data/d/b.bin", "b.bin"); print(json.dumps(len(open("b.bin", "rb").read())))')
    assert out == 300000


RANGES = SAID + """
import sys
out = []
with fs.open("hf://buckets/org/data/big.bin", block_size=1 << 20) as f:
    for at, n in json.loads(sys.argv[1]):
        f.seek(at)
        out.append(f.read(n).hex())
out += [b.hex() for b in fs.cat_ranges(["buckets/org/data/big.bin"] * 2, [0, 5000], [10, 5010])]
print(json.dumps(out), flush=True)
"""


@pytest.mark.parametrize("xet", [False, True], ids=["http", "xet"])
def test_ranges_by_fsspec(mirrord, hub, tmp_path, xet):
    w = World(mirrord(hub.config()), tmp_path)
    asked = [(0, 10), (5 << 20, 100), ((70 << 20) - 7, 100), (12345, 2 << 20)]
    out = w.python(client("", xet), RANGES, json.dumps(asked))
    big = FILES["big.bin"]
    assert out == [read(big, a, min(a + n, big.size)).hex() for a, n in asked] + [read(big, 0, 10).hex(), read(big, 5000, 5010).hex()]


SECRET = SAID + """
import pathlib
def got(path):
    try:
        return pathlib.Path(path).read_text()
    except OSError as e:
        return "none"
out = {"list": said(lambda: [f.path for f in api.list_bucket_tree("org/secret", recursive=True)]),
       "paths": said(lambda: [f.path for f in api.get_bucket_paths_info("org/secret", ["s.txt"])]),
       "cat": said(lambda: fs.cat_file("buckets/org/secret/s.txt").decode()),
       "part": said(lambda: fs.cat_file("buckets/org/secret/s.txt", start=1, end=4).decode())}
said(fs.get, "buckets/org/secret/s.txt", "get.txt")
said(api.download_bucket_files, "org/secret", [("s.txt", "down.txt")])
said(api.sync_bucket, "hf://buckets/org/secret", "sync")
print(json.dumps(dict(out, get=got("get.txt"), down=got("down.txt"), sync=got("sync/d/t.txt"))), flush=True)
"""


def test_a_private_bucket(mirrord, hub, tmp_path):
    """Who is entitled reads it by every way; for the others it is not there, also when it is warm here, and when the Hub is gone."""
    w = World(mirrord(hub.config(more=CALM)), tmp_path)
    whole = {"list": "['d/t.txt', 's.txt']", "paths": "['s.txt']", "cat": "S3CRET", "part": "3CR", "get": "S3CRET", "down": "S3CRET",
             "sync": "S3CRET too"}

    def reads(token):
        w.fresh()
        w.env["HF_TOKEN"] = token
        return w.python(client("", True), SECRET)

    def nothing(token):
        out = reads(token)
        assert not [v for v in out.values() if "S3CRET" in v or "3CR" in v or "s.txt'" in v], out
    nothing("hf_bob")
    assert reads("hf_alice") == whole
    before = len(bytes_asked(hub))
    for token in ("hf_bob", ""):
        nothing(token)
    assert reads("hf_carol") == whole
    assert len(bytes_asked(hub)) == before, "kept once for all who are entitled"
    hub.down()
    assert reads("hf_carol") == whole
    for token in ("hf_bob", ""):
        nothing(token)
    hub.up()


def test_a_warm_bucket_while_the_hub_is_gone(mirrord, hub, tmp_path):
    w = World(mirrord(hub.config()), tmp_path)
    hf, code = client("", True) / "hf", SAID + 'print(json.dumps(fs.cat_file("buckets/org/data/d/c/e.txt").decode()), flush=True)'

    def all_of_it():
        w.fresh()
        w.run([hf, "buckets", "sync", "hf://buckets/org/data", "all"])
        assert sums(w.home / "all") == SUMS
        w.run([hf, "buckets", "cp", "hf://buckets/org/data/d/b.bin", "b.bin"])
        assert sums(w.home)["b.bin"] == SUMS["d/b.bin"]
        assert w.python(client("", False), code) == "deep"
    all_of_it()
    w.m.settle()
    hub.down()
    all_of_it()
    w.m.stop()
    w.m.start()
    w.env["HF_ENDPOINT"] = f"http://127.0.0.1:{w.m.port}/hf"
    all_of_it()
    hub.up()


def test_a_file_that_changes_upstream(mirrord, hub, tmp_path):
    """Like a branch: the new file after the listing's time; and never a mixture, nor the new bytes under the former hash."""
    w = World(mirrord(hub.config(more="rule '^(api|buckets)' { ttl = 1s }")), tmp_path)
    hf, b = client("", True) / "hf", hub.buckets["org/data"]

    def copied():
        w.run([hf, "buckets", "cp", "hf://buckets/org/data/d/b.bin", "b.bin"])
        return sums(w.home)["b.bin"]
    assert copied() == SUMS["d/b.bin"]
    b.files["d/b.bin"] = new = Big(400000, 9)
    until(lambda: w.m.get("/hf/buckets/org/data/resolve/d/b.bin").body == read(new))
    assert copied() == sha256_of(new)


def test_a_bucket_that_closes(mirrord, hub):
    b = hub.bucket("org/open", {"a.txt": b"S3CRET"})
    m = mirrord(hub.config(more="rule '^(api|buckets)' { ttl = 1s }"))
    path = "/hf/buckets/org/open/resolve/a.txt"
    assert m.get(path).body == b"S3CRET"
    b.private, b.readers = True, {"hf_alice"}
    until(lambda: m.get(path).status in (401, 404))
    for way in (path, "/hf/api/buckets/org/open/tree"):
        assert m.get(way, headers={"Authorization": "Bearer hf_bob"}).status == 404
        assert m.get(way, headers={"Authorization": "Bearer hf_alice"}).status == 200
        assert m.get(way).status in (401, 404)
    assert m.get(path, headers={"Authorization": "Bearer hf_alice"}).body == b"S3CRET"
