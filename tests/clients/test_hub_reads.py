"""The newest huggingface_hub through the mirror of a Hub: discussions, likers, tensors; what reads is read, what writes is refused in words.
Buckets: test_buckets.py."""
import json
import struct

import pytest

from clients.test_hub import World, client
from harness.hub import Big, pointer, read

pytestmark = pytest.mark.xdist_group("hub")

SAID = """
import json
from huggingface_hub import HfApi, HfFileSystem, get_safetensors_metadata
api, fs = HfApi(), HfFileSystem()
def said(f, *a, **k):
    try:
        return str(f(*a, **k))
    except Exception as e:
        return f"{type(e).__name__} {e}"
"""


def shard(name):
    header = json.dumps({name: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "__metadata__": {"format": "pt"}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(8)


INDEX = json.dumps({"metadata": {"total_size": 16}, "weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}).encode()
SHARDED = {"README.md": b"# card\n", "model.safetensors.index.json": INDEX, "model-1.safetensors": shard("a"), "model-2.safetensors": shard("b")}

ABOUT = SAID + """
def told(m):
    return [m.metadata, m.sharded, m.weight_map, sorted(m.files_metadata)]
print(json.dumps({
    "discussions": [d.title for d in api.get_repo_discussions("org/demo")],
    "comment": api.get_discussion_details("org/demo", 2).events[0].content,
    "no discussion": said(api.get_discussion_details, "org/demo", 99),
    "likers": [u.username for u in api.list_repo_likers("org/demo")],
    "files": told(get_safetensors_metadata("org/demo")), "one": told(api.get_sharded_safetensors_metadata("org/demo")),
    "gated": said(api.get_sharded_safetensors_metadata, "meta/gated"),
    "alice": told(api.get_sharded_safetensors_metadata("meta/gated", token="hf_alice")),
    "bob": said(api.get_sharded_safetensors_metadata, "meta/gated", token="hf_bob"),
    "private": said(lambda: list(api.get_repo_discussions("meta/private"))),
    "mine": [d.title for d in api.get_repo_discussions("meta/private", token="hf_alice")],
    "writes": [said(api.create_discussion, "org/demo", title="t"), said(api.comment_discussion, "org/demo", 1, comment="c"),
               said(api.duplicate_repo, "org/demo", "me/demo"), said(api.update_repo_settings, "org/demo", gated="auto"),
               said(api.create_branch, "org/demo", branch="b"), said(api.upload_file, path_or_fileobj=b"x", path_in_repo="x", repo_id="org/demo")]}))
"""


@pytest.fixture
def hub_of_all(hub):
    hub.users.update({"hf_alice": "alice", "hf_bob": "bob"})
    hub.page = 2
    demo = hub.repo("org/demo", files=SHARDED)
    demo.likers = ["ann", "ben"]
    demo.discussions = [{"num": n, "title": f"about {n}", "text": f"word {n}"} for n in (1, 2, 3)]
    hub.repo("meta/gated", files=SHARDED, gated=True, readers={"hf_alice"})
    mine = hub.repo("meta/private", files=SHARDED, private=True, readers={"hf_alice"})
    mine.discussions = [{"num": 1, "title": "a secret", "text": "x"}]
    return hub


def test_what_is_about_a_repository(mirrord, hub_of_all, tmp_path):
    w = World(mirrord(hub_of_all.config()), tmp_path)
    w.env["HF_TOKEN"] = "hf_bob"
    out = w.python(client("", False), ABOUT)
    one = [{"total_size": 16}, True, {"a": "model-1.safetensors", "b": "model-2.safetensors"}, ["model-1.safetensors", "model-2.safetensors"]]
    assert out["discussions"] == ["about 1", "about 2", "about 3"] and out["comment"] == "word 2" and "404" in out["no discussion"]
    assert out["likers"] == ["ann", "ben"]
    assert out["files"] == out["one"] == out["alice"] == one
    assert out["gated"].startswith("GatedRepoError") and out["bob"].startswith("GatedRepoError")
    assert out["private"].startswith("RepositoryNotFoundError") and out["mine"] == ["a secret"]
    for text in out["writes"]:
        assert "this repo is a mirror of a Hub and does not accept" in text, text
    assert not hub_of_all.leaks
    asked = len(hub_of_all.calls)
    assert w.m.get("/hf/api/models/org/demo/likers").status == 200 and len(hub_of_all.calls) == asked


def test_as_git_has_it(mirrord, hub_of_all, wire):
    """/raw/: the file, or the pointer to one of LFS; of a gated repository to those who have a right to it."""
    big = Big(5000)
    hub_of_all.repo("org/text", "datasets", files={"README.md": b"# card\n", "a/b.bin": big})
    hub_of_all.repo("meta/text", files={"config.json": b"{}", "b.bin": big}, gated=True, readers={"hf_alice"})
    m = mirrord(hub_of_all.config())
    assert m.get("/hf/datasets/org/text/raw/main/README.md", wire).body == b"# card\n"
    got = m.get("/hf/datasets/org/text/raw/main/a/b.bin", wire)
    assert (got.status, got.body) == (200, pointer(big))
    assert m.get("/hf/datasets/org/text/raw/main/none", wire).status == 404
    for path, data in (("config.json", b"{}"), ("b.bin", pointer(big))):
        assert m.get(f"/hf/meta/text/raw/main/{path}", wire).status == 401
        assert m.get(f"/hf/meta/text/raw/main/{path}", wire, headers={"Authorization": "Bearer hf_bob"}).status == 403
        assert m.get(f"/hf/meta/text/raw/main/{path}", wire, headers={"Authorization": "Bearer hf_alice"}).body == data
    assert not hub_of_all.cdn_bytes


def test_a_signature_that_expires(mirrord, hub_of_all, wire):
    """Between two ranges of a file the address at the CDN has gone stale: the Hub is asked for a new one."""
    big = Big(12 << 20, 5)
    hub_of_all.repo("org/big", files={"w.bin": big})
    m = mirrord(hub_of_all.config())
    assert m.get("/hf/org/big/resolve/main/w.bin", wire, headers={"Range": "bytes=0-99"}).body == read(big, 0, 100)
    hub_of_all.expire()
    got = m.get("/hf/org/big/resolve/main/w.bin", wire)
    assert got.whole and got.body == read(big)


def test_what_the_fixture_says(hub_of_all):
    """The Hub of these tests refuses as the real one does: a signature of before, all of what is beyond 50 GB."""
    import urllib.error
    import urllib.request
    from harness.hub import Zeros
    huge = Zeros(50_000_000_001, digest="7" * 64)
    hub_of_all.repo("org/huge", files={"w.bin": huge})
    url = hub_of_all.signed_url("7" * 64)

    def status(**headers):
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as r:
                return r.status
        except urllib.error.HTTPError as e:
            return e.code
    assert status(Range="bytes=0-9") == 206 and status() == 400
    hub_of_all.expire()
    assert status(Range="bytes=0-9") == 403
