"""huggingface_hub, unmodified, with a hosted repository as its Hub: create, upload, download, delete; with hf_xet and without."""
import hashlib
import os
from urllib.parse import quote

import pytest

from clients.test_hub import TREE, VERSIONS, World, client

pytestmark = pytest.mark.xdist_group("hub home")

BIG = os.urandom(9 << 20)
FILES = {"README.md": b"---\nlicense: mit\n---\n# demo\n", "config.json": b'{"a": 1}', "empty": b"", "sub/deep/w.bin": os.urandom(70000),
         "sub/with blank+%.txt": b"odd\n"}

WORK = TREE + """
import json, pathlib, sys
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, hf_hub_download, snapshot_download
api = HfApi()
def error(f, *a, **k):
    try:
        f(*a, **k)
    except Exception as e:
        return type(e).__name__
api.create_repo("me/gpt")
api.create_repo("me/gpt", exist_ok=True)
api.upload_folder(folder_path=sys.argv[1], repo_id="me/gpt", commit_message="all")
first = api.repo_info("me/gpt").sha
out = {"whoami": api.whoami()["name"], "first": first, "snapshot": tree(snapshot_download("me/gpt")), "files": sorted(api.list_repo_files("me/gpt"))}
api.upload_folder(folder_path=sys.argv[1], repo_id="me/gpt")
out["again"] = api.repo_info("me/gpt").sha == first
api.upload_file(path_or_fileobj=b"two", path_in_repo="config.json", repo_id="me/gpt")
api.create_commit("me/gpt", [CommitOperationAdd("new.txt", b"new"), CommitOperationDelete("sub/", is_folder=True)], commit_message="move",
                  parent_commit=api.repo_info("me/gpt").sha)
out["stale"] = error(api.create_commit, "me/gpt", [CommitOperationAdd("x", b"x")], commit_message="x", parent_commit=first)
api.delete_file("empty", "me/gpt")
out["after"] = sorted(api.list_repo_files("me/gpt"))
out["config"] = open(hf_hub_download("me/gpt", "config.json")).read()
out["old"] = open(hf_hub_download("me/gpt", "config.json", revision=first)).read()
out["paths"] = sorted(p.path for p in api.get_paths_info("me/gpt", ["config.json", "none"]))
out["commits"] = len(api.list_repo_commits("me/gpt"))
out["branches"] = [b.name for b in api.list_repo_refs("me/gpt").branches]
out["errors"] = [error(hf_hub_download, "me/gpt", "none"), error(hf_hub_download, "me/gpt", "config.json", revision="none"),
                 error(hf_hub_download, "me/none", "config.json"), error(api.delete_file, "none", "me/gpt")]
print(json.dumps(out))
"""


@pytest.fixture
def folder(tmp_path):
    for name, data in FILES.items():
        path = tmp_path / "mine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "mine"


def sums(files):
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


@pytest.mark.parametrize("version", [pytest.param(v, id=v or "newest") for v in VERSIONS])
def test_a_home(home, folder, version):
    """Beyond 8 MiB by LFS; what is below comes inside the commit."""
    (folder / "model.safetensors").write_bytes(BIG)
    files = {**FILES, "model.safetensors": BIG}
    out = home.python(client(version, False), WORK, folder)
    errors = out.pop("errors")
    first = out.pop("first")
    assert len(first) == 40
    assert out == {
        "whoami": "ci", "snapshot": sums(files), "files": sorted(files), "again": True, "stale": out["stale"],
        "after": ["README.md", "config.json", "model.safetensors", "new.txt"], "config": "two", "old": '{"a": 1}', "paths": ["config.json"],
        "commits": 5, "branches": ["main"]}
    assert out["stale"] in ("HfHubHTTPError", "HTTPError")
    assert [e.replace("Remote", "") for e in errors] == ["EntryNotFoundError", "RevisionNotFoundError", "RepositoryNotFoundError", "EntryNotFoundError"]


def test_the_command(home, folder):
    (folder / "model.safetensors").write_bytes(BIG)
    hf = client("", False) / "hf"
    home.run([hf, "upload", "me/gpt", folder, "."])
    home.fresh()
    home.run([hf, "download", "me/gpt", "--local-dir", "got"])
    got = {str(p.relative_to(home.home / "got")): p.read_bytes() for p in (home.home / "got").rglob("*") if p.is_file() and ".cache" not in p.parts}
    assert sums(got) == sums({**FILES, "model.safetensors": BIG})


def test_with_xet_off(mirrord, tmp_path, folder):
    """Files up to 8 MiB need no Xet; for the others the client says what to do, and nothing of the commit shows."""
    m = mirrord('repo "models" { protocol = "hosted" xet = "off" }')
    home = World(m, tmp_path)
    home.env.update(HF_ENDPOINT=f"http://127.0.0.1:{m.port}/models", HF_TOKEN=m.token("ci", "publish:models/me/*", "publish:models/datasets/me/*"))
    bins = client("", True)
    home.run([bins / "hf", "upload", "me/gpt", folder, "."])
    (folder / "model.safetensors").write_bytes(BIG)
    said = home.run([bins / "hf", "upload", "me/gpt", folder, "."], fails=True)
    assert "HF_HUB_DISABLE_XET=1" in said
    assert home.m.get("/models/me/gpt/model.safetensors").status == 404
    home.run([bins / "hf", "upload", "me/gpt", folder, "."], more={"HF_HUB_DISABLE_XET": "1"})
    assert home.m.get("/models/me/gpt/model.safetensors").body == BIG


@pytest.mark.parametrize("version", [pytest.param(v, id=v or "newest") for v in VERSIONS])
def test_uploads_by_xet(home, folder, version):
    """As every client does that pip installs today: random bytes, text that compresses, floats, zeros, twice the same, then a change."""
    files = {"model.safetensors": BIG, "text.bin": b"hello world " * 900000, "zeros.bin": bytes(30 << 20) + b"end",
             "floats.bin": b"".join((i * 40503 & 0xffff).to_bytes(2, "little") + bytes((i % 7, 63)) for i in range(3 << 20)),
             "again/model.safetensors": BIG}
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    bins = client(version, True)
    up = "import sys; from huggingface_hub import HfApi; a = HfApi(); a.create_repo('me/gpt', exist_ok=True); " \
         "a.upload_folder(folder_path=sys.argv[1], repo_id='me/gpt'); print('1')"
    home.python(bins, up, folder)
    for name, data in {**FILES, **files}.items():
        got = home.m.get(f"/models/me/gpt/{quote(name)}")
        assert got.status == 200 and got.body == data, (name, home.m.get("/models/me/gpt/sub/").body)
    home.m.forsaken()
    asked = home.m.access_log.read_text()
    assert ("/v1/shards" in asked) == ("/v1/xorbs/" in asked)
    changed = BIG[:5 << 20] + b"a few bytes more" + BIG[5 << 20:]
    (folder / "model.safetensors").write_bytes(changed)
    home.python(bins, up, folder)
    assert home.m.get("/models/me/gpt/model.safetensors").body == changed
    home.m.settle()
    home.m.ctl("verify")


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_downloads_by_xet(mirrord, tmp_path, folder, closed):
    """All files through the chunk store, as those beyond 50 GB go; with a token where one is needed."""
    access = "access { anonymous = none }" if closed else ""
    m = mirrord(f'repo "models" {{ protocol = "hosted" xet = "on" {access} }}')
    (folder / "model.safetensors").write_bytes(BIG)
    w = World(m, tmp_path)
    w.env.update(HF_ENDPOINT=f"http://127.0.0.1:{m.port}/models", HF_TOKEN=m.token("ci", "publish:models/me/*", "read:models/me/*"))
    bins = client("", True)
    w.run([bins / "hf", "upload", "me/gpt", folder, "."], more={"HF_HUB_DISABLE_XET": "1"})
    if not closed:
        w.env.pop("HF_TOKEN")
    got = w.python(bins, TREE + "import json; from huggingface_hub import snapshot_download as s; print(json.dumps(tree(s('me/gpt'))))")
    assert got == sums({**{k: v for k, v in FILES.items()}, "model.safetensors": BIG})
    m.forsaken()
    asked = m.access_log.read_text()
    assert f"/data/{hashlib.sha256(BIG).hexdigest()}" in asked
    other = m.get(f"/models/api/models/me/gpt/xet/{'0' * 40}/data/{hashlib.sha256(BIG).hexdigest()}")
    assert other.status == (401 if closed else 200)
    assert m.get(f"/models/api/models/me/none/xet/{'0' * 40}/data/{hashlib.sha256(BIG).hexdigest()}").status == (401 if closed else 404)

LISTS = """
import json
from huggingface_hub import HfApi, HfFileSystem
api, fs = HfApi(), HfFileSystem()
ids = lambda found: sorted(m.id for m in found)
out = {"all": ids(api.list_models()), "author": ids(api.list_models(author="me")), "search": ids(api.list_models(search="GP")),
       "limit": len(list(api.list_models(limit=1))), "sort": [m.id for m in api.list_models(sort="last_modified", limit=1)],
       "full": ids(api.list_models(full=True)), "task": ids(api.list_models(filter="text-generation")), "datasets": ids(api.list_datasets()),
       "spaces": ids(api.list_spaces()), "tag": next(iter(api.list_models())).pipeline_tag,
       "ls": sorted(fs.ls("me/gpt", detail=False)), "glob": sorted(fs.glob("me/gpt/**/*.bin")), "find": len(fs.find("me/gpt")),
       "size": fs.info("me/gpt/sub/deep/w.bin")["size"], "cat": fs.cat("me/gpt/config.json").decode(), "isdir": fs.isdir("me/gpt/sub"),
       "data": sorted(fs.ls("datasets/me/data", detail=False))}
print(json.dumps(out))
"""


@pytest.mark.parametrize("version", [pytest.param(v, id=v or "newest") for v in VERSIONS])
def test_lists_and_the_file_system(home, folder, version):
    up = "import sys; from huggingface_hub import HfApi; a = HfApi(); [a.create_repo(r) for r in ('me/other', 'me/gpt')]; " \
         "a.create_repo('me/data', repo_type='dataset'); a.upload_folder(folder_path=sys.argv[1], repo_id='me/gpt'); " \
         "a.upload_file(path_or_fileobj=b'x', path_in_repo='t.csv', repo_id='me/data', repo_type='dataset'); print('1')"
    home.python(client(version, False), up, folder)
    assert home.python(client(version, False), LISTS) == {
        "all": ["me/gpt", "me/other"], "author": ["me/gpt", "me/other"], "search": ["me/gpt"], "limit": 1, "sort": ["me/gpt"],
        "full": ["me/gpt", "me/other"], "task": [], "datasets": ["me/data"], "spaces": [], "tag": None,
        "ls": [f"me/gpt/{n}" for n in ("README.md", "config.json", "empty", "sub")], "glob": ["me/gpt/sub/deep/w.bin"], "find": len(FILES),
        "size": 70000, "cat": '{"a": 1}', "isdir": True, "data": ["datasets/me/data/t.csv"]}
