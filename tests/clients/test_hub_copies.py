"""huggingface_hub copies on hosted repositories: files within one, between two, whole repositories; and what is told of sharded models."""
import hashlib
import json
import os

import pytest

from clients.test_hub import World, client

pytestmark = pytest.mark.xdist_group("hub home")

COPY = """
import json, sys
from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete, HfApi, HfFileSystem, hf_hub_download
api, fs = HfApi(), HfFileSystem()
api.create_repo("me/gpt")
api.create_commit("me/gpt", [CommitOperationAdd("small.txt", b"small"), CommitOperationAdd("big.bin", b"b" * (9 << 20))], commit_message="all")
api.create_commit("me/gpt", [CommitOperationCopy("small.txt", "sub/small.txt"), CommitOperationCopy("big.bin", "moved.bin"),
                             CommitOperationDelete("big.bin")], commit_message="copy")
fs.cp_file("me/gpt/small.txt", "me/gpt/again.txt")
fs.mv("me/gpt/moved.bin", "me/gpt/big.bin")
if sys.argv[1:]:
    api.copy_files("hf://me/gpt/sub/", "hf://me/gpt/third/")
print(json.dumps({"files": sorted(api.list_repo_files("me/gpt")), "size": len(open(hf_hub_download("me/gpt", "big.bin"), "rb").read()),
                  "again": open(hf_hub_download("me/gpt", "again.txt")).read()}))
"""


@pytest.mark.parametrize("version", ["0.36.0", "1.13.0", ""], ids=["0.36.0", "1.13.0", "newest"])
def test_within_a_repository(home, version):
    newest = ["third/small.txt"] if version == "" else []  # copy_files() into a repository
    out = home.python(client(version, False), COPY, *newest)
    assert out == {"files": ["again.txt", "big.bin", "small.txt", "sub/small.txt", *newest], "size": 9 << 20, "again": "small"}


def test_the_command_copies(home):
    bins = client("", True)
    (home.home / "w.bin").write_bytes(b"weights")
    home.run([bins / "hf", "upload", "me/gpt", home.home / "w.bin", "w.bin"])
    home.run([bins / "hf", "cp", "hf://me/gpt/w.bin", "hf://me/gpt/copy/w.bin"])
    assert home.python(bins, "import json; from huggingface_hub import HfApi; print(json.dumps(sorted(HfApi().list_repo_files('me/gpt'))))") == [
        "copy/w.bin", "w.bin"]


BETWEEN = """
import json
from huggingface_hub import CommitOperationAdd, HfApi, hf_hub_download
api = HfApi()
def said(f, *a, **k):
    try:
        return str(f(*a, **k))
    except Exception as e:
        return str(e)
api.create_repo("me/from")
api.create_repo("me/to")
api.create_commit("me/from", [CommitOperationAdd("a.bin", b"a" * 5000), CommitOperationAdd("d/b.bin", b"b" * (9 << 20))], commit_message="all")
api.copy_files("hf://me/from/", "hf://me/to/")
print(json.dumps({"files": sorted(api.list_repo_files("me/to")), "size": len(open(hf_hub_download("me/to", "d/b.bin"), "rb").read()),
                  "none": said(api.copy_files, "hf://you/secret/a.bin", "hf://me/to/x.bin")}))
"""


def test_between_repositories(home):
    out = home.python(client("", True), BETWEEN)
    assert out["files"] == ["a.bin", "d/b.bin"] and out["size"] == 9 << 20
    assert "Not Found" in out["none"]


DUPLICATE = """
import json
from huggingface_hub import CommitOperationAdd, HfApi, hf_hub_download
api = HfApi()
def said(f, *a, **k):
    try:
        return str(f(*a, **k))
    except Exception as e:
        return str(e)
api.create_repo("me/gpt")
api.upload_file(path_or_fileobj=b"one", path_in_repo="a.txt", repo_id="me/gpt")
api.upload_file(path_or_fileobj=b"two", path_in_repo="a.txt", repo_id="me/gpt")
api.create_branch("me/gpt", branch="dev")
api.create_tag("me/gpt", tag="t1")
url = api.duplicate_repo("me/gpt", "me/copy")
api.upload_file(path_or_fileobj=b"three", path_in_repo="a.txt", repo_id="me/copy")
api.create_repo("me/page", repo_type="space", space_sdk="static")
out = {"id": url.repo_id, "pending": url.files_copy_pending, "commits": len(api.list_repo_commits("me/copy")),
       "tags": [t.name for t in api.list_repo_refs("me/copy").tags], "branches": sorted(b.name for b in api.list_repo_refs("me/copy").branches),
       "dev": open(hf_hub_download("me/copy", "a.txt", revision="dev")).read(), "copy": open(hf_hub_download("me/copy", "a.txt")).read(),
       "source": open(hf_hub_download("me/gpt", "a.txt")).read(), "twice": said(api.duplicate_repo, "me/gpt", "me/copy"),
       "ok": said(api.duplicate_repo, "me/gpt", "me/copy", exist_ok=True), "none": said(api.duplicate_repo, "me/none", "me/x"),
       "other": said(api.duplicate_repo, "me/gpt", "you/x"),
       "space": api.duplicate_repo("me/page", "me/page2", repo_type="space").repo_id,
       "hardware": said(api.duplicate_repo, "me/page", "me/page3", repo_type="space", space_hardware="t4-medium"),
       "private": said(api.duplicate_repo, "me/gpt", "me/mine", private=True)}
print(json.dumps(out))
"""


def test_a_whole_repository(mirrord, tmp_path):
    m = mirrord('repo "models" { protocol = "hosted" }')
    w = World(m, tmp_path)
    w.env.update(HF_ENDPOINT=m.url("/models"), HF_TOKEN=m.token("ci", "publish:models/me/*", "publish:models/spaces/me/*"))
    out = w.python(client("", False), DUPLICATE)
    assert (out["id"], out["pending"], out["space"]) == ("me/copy", False, "me/page2")
    assert out["commits"] == 4 and out["tags"] == ["t1"] and out["branches"] == ["dev", "main"]
    assert (out["dev"], out["copy"], out["source"]) == ("two", "three", "two")
    assert "409" in out["twice"] and out["ok"].endswith("/me/copy")
    assert "Not Found" in out["none"] and "403" in out["other"]
    assert "does not run them" in out["hardware"] and "private repositories are not possible here" in out["private"]
    assert m.ctl("verify").returncode == 0


SHARDS = """
import json, struct, sys
from huggingface_hub import CommitOperationAdd, HfApi, get_safetensors_metadata
api = HfApi()
def shard(name):
    header = json.dumps({name: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "__metadata__": {"format": "pt"}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(8)
def said(f, *a, **k):
    try:
        return str(f(*a, **k))
    except Exception as e:
        return str(e)
def told(m):
    return [m.metadata, m.sharded, m.weight_map, sorted(m.files_metadata), m.files_metadata["model-1.safetensors"].metadata]
index = {"metadata": {"total_size": 16}, "weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
api.create_repo("me/gpt")
api.create_commit("me/gpt", [CommitOperationAdd("model-1.safetensors", shard("a")), CommitOperationAdd("model-2.safetensors", shard("b")),
    CommitOperationAdd("broken.json", b'{"weight_map": {"a": "none.safetensors"}}'), CommitOperationAdd("odd.json", b'{"weight_map": {"a": "odd.json"}}'),
    CommitOperationAdd("model.safetensors.index.json", json.dumps(index).encode())], commit_message="all")
print(json.dumps({"files": told(get_safetensors_metadata("me/gpt")), "one": told(api.get_sharded_safetensors_metadata("me/gpt")),
                  "none": said(api.get_sharded_safetensors_metadata, "me/gpt", filename="no.json"),
                  "broken": said(api.get_sharded_safetensors_metadata, "me/gpt", filename="broken.json"),
                  "odd": said(api.get_sharded_safetensors_metadata, "me/gpt", filename="odd.json"),
                  "likers": [u.username for u in api.list_repo_likers("me/gpt")], "discussions": list(api.get_repo_discussions("me/gpt")),
                  "discuss": said(api.create_discussion, "me/gpt", title="t")}))
"""


def test_a_sharded_model(home):
    out = home.python(client("", False), SHARDS)
    assert out["files"] == out["one"] == [
        {"total_size": 16}, True, {"a": "model-1.safetensors", "b": "model-2.safetensors"}, ["model-1.safetensors", "model-2.safetensors"],
        {"format": "pt"}]
    assert "no.json" in out["none"] and "none.safetensors" in out["broken"] and "not a safetensors file" in out["odd"]
    assert (out["likers"], out["discussions"]) == ([], []) and "no pull requests" in out["discuss"]


def bearer(token):
    return {"Authorization": f"Bearer {token}"} if token else {}


def test_rights(mirrord, wire):
    """Nothing comes out of a tree by what its reader could not read, nor into one that the token may not publish to."""
    m = mirrord('repo "closed" { protocol = "hosted" access { anonymous = none } }')
    owner, me = m.token("owner", "publish:closed/you/*"), m.token("me", "publish:closed/me/*")
    reader = m.token("reader", "publish:closed/me/*", "read:closed/you/*")

    def post(path, body, token):
        return m.put(f"/closed/{path}", json.dumps(body).encode(), wire, token, method="POST")
    data = os.urandom(100)
    assert m.put("/closed/you/secret/a.bin", data, wire, owner).status == 201
    assert m.put("/closed/me/gpt/b.bin", b"b", wire, me).status == 201
    digest = hashlib.sha256(data).hexdigest()
    files = {"target": {"type": "model", "name": "me/gpt"}, "files": [{"sha256": digest, "xetHash": digest, "filename": "a.bin"}]}
    lines = b"".join(json.dumps({"key": k, "value": v}).encode() + b"\n" for k, v in (
        ("header", {"summary": "s"}), ("lfsFile", {"path": "a.bin", "algo": "sha256", "oid": digest})))
    for token in (None, me):
        assert post("api/models/you/secret/duplicate", {"repository": "me/copy"}, token).status in (401, 404)
        assert post("api/models/you/secret/lfs-files/duplicate", files, token).status in (401, 404)
        assert m.get(f"/closed/me/gpt/-/objects/{digest}", wire, headers=bearer(token)).status in (401, 404)
    assert m.put("/closed/api/models/me/gpt/commit/main", lines, wire, me, method="POST").status == 409
    for token in (owner, reader):
        assert post("api/models/you/secret/duplicate", {"repository": "us/copy"}, token).status == 403
    lacks = json.loads(post("api/models/you/secret/lfs-files/duplicate", dict(files, files=[{"sha256": "0" * 64}]), reader).body)
    assert [f["sha256"] for f in lacks["failed"]] == ["0" * 64]
    assert json.loads(post("api/models/you/secret/lfs-files/duplicate", files, reader).body) == {"failed": []}
    assert m.get(f"/closed/me/gpt/-/objects/{digest}", wire, headers=bearer(me)).status == 404, "an object is read when a commit has named it"
    assert m.put("/closed/api/models/me/gpt/commit/main", lines, wire, reader, method="POST").status == 200
    got = m.get(f"/closed/me/gpt/-/objects/{digest}", wire, headers=bearer(me))
    assert (got.status, got.body) == (200, data)
    assert post("api/models/you/secret/duplicate", {"repository": "me/copy"}, reader).status == 200
    assert m.get("/closed/me/copy/a.bin", wire, headers=bearer(me)).body == data
