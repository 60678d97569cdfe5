"""huggingface_hub and datasets, unmodified, with a hosted repository as its Hub: branches, tags, history; datasets and spaces; new names, ends."""
import subprocess

import pytest

from clients.test_hub import KNOCKS, TREE, VERSIONS, client, venv

pytestmark = pytest.mark.xdist_group("hub names")
EVERY = pytest.mark.parametrize("version", [pytest.param(v, id=v or "newest") for v in VERSIONS])

PRELUDE = TREE + """
import json, sys
from huggingface_hub import CommitOperationAdd, HfApi, HfFileSystem, hf_hub_download, snapshot_download
api = HfApi()
def error(f, *a, **k):
    try:
        f(*a, **k)
    except Exception as e:
        return type(e).__name__.replace("Remote", "")
def text(name, path, **k):
    return open(hf_hub_download(name, path, **k)).read()
out = {}
"""

NAMES = PRELUDE + """
api.create_repo("me/gpt")
first = api.create_commit("me/gpt", [CommitOperationAdd("a", b"1"), CommitOperationAdd("d/b", b"b")], commit_message="add a", commit_description="as it has to be").oid
api.create_branch("me/gpt", branch="dev")
api.create_branch("me/gpt", branch="dev", exist_ok=True)
api.create_branch("me/gpt", branch="feature/x", revision=first)
out["again"] = error(api.create_branch, "me/gpt", branch="dev")
out["bad"] = error(api.create_branch, "me/gpt", branch="refs/pr/5")
api.upload_file(path_or_fileobj=b"dev", path_in_repo="a", repo_id="me/gpt", revision="dev", commit_message="on dev")
api.upload_file(path_or_fileobj=b"x" * (9 << 20), path_in_repo="large.bin", repo_id="me/gpt", revision="feature/x")
api.create_tag("me/gpt", tag="v1", revision=first, tag_message="the first")
api.create_tag("me/gpt", tag="latest", revision="dev")
api.create_tag("me/gpt", tag="v1", exist_ok=True)
refs = api.list_repo_refs("me/gpt")
out["branches"] = sorted(b.name for b in refs.branches)
out["tags"] = {t.name: t.target_commit == first for t in refs.tags}
out["read"] = [text("me/gpt", "a", revision=r) for r in ("main", "dev", "feature/x", "v1", "latest", first)]
out["snapshot"] = sorted(tree(snapshot_download("me/gpt", revision="feature/x")))
out["files"] = sorted(f.path for f in api.list_repo_tree("me/gpt", revision="feature/x", recursive=True))
api.upload_file(path_or_fileobj=b"2", path_in_repo="a", repo_id="me/gpt", commit_message="change a")
out["commits"] = [[c.title, c.message, c.authors] for c in api.list_repo_commits("me/gpt")]
out["on_dev"] = [c.title for c in api.list_repo_commits("me/gpt", revision="dev")]
api.delete_branch("me/gpt", branch="feature/x")
api.delete_tag("me/gpt", tag="latest")
out["gone"] = [error(api.delete_branch, "me/gpt", branch="feature/x"), error(text, "me/gpt", "a", revision="latest"),
               error(api.create_tag, "me/gpt", tag="t", revision="none"), error(api.create_commit, "me/gpt", [CommitOperationAdd("a", b"1")], commit_message="m", revision="none")]
api.super_squash_history("me/gpt", commit_message="all of it")
out["squashed"] = [[c.title for c in api.list_repo_commits("me/gpt", revision=r)] for r in ("main", "dev")]
out["after"] = text("me/gpt", "a")
print(json.dumps(out))
"""

KINDS = PRELUDE + """
api.create_repo("me/data", repo_type="dataset")
api.create_repo("me/data", repo_type="dataset", exist_ok=True)
api.upload_folder(folder_path=sys.argv[1], repo_id="me/data", repo_type="dataset")
out["files"] = sorted(api.list_repo_files("me/data", repo_type="dataset"))
out["info"] = [api.dataset_info("me/data").id, error(api.model_info, "me/data")]
out["snapshot"] = sorted(tree(snapshot_download("me/data", repo_type="dataset")))
api.create_branch("me/data", repo_type="dataset", branch="dev")
api.upload_file(path_or_fileobj=b"n", path_in_repo="new", repo_id="me/data", repo_type="dataset", revision="dev")
out["glob"] = sorted(HfFileSystem().glob("datasets/me/data@dev/*"))
out["space"] = str(api.create_repo("me/app", repo_type="space", space_sdk="gradio")).endswith("spaces/me/app")
api.upload_file(path_or_fileobj=b"import gradio", path_in_repo="app.py", repo_id="me/app", repo_type="space")
out["app"] = text("me/app", "app.py", repo_type="space")
out["space_info"] = api.space_info("me/app").id
print(json.dumps(out))
"""

MOVES = PRELUDE + """
api.create_repo("me/old")
api.upload_file(path_or_fileobj=b"1", path_in_repo="a b.txt", repo_id="me/old")
api.create_branch("me/old", branch="dev")
api.create_repo("me/taken")
out["taken"] = error(api.move_repo, "me/old", "me/taken") is not None
api.move_repo("me/old", "me/new")
out["new"] = [text("me/new", "a b.txt", revision="dev"), api.repo_info("me/new").id]
out["old"] = [text("me/old", "a b.txt"), api.repo_info("me/old").id, sorted(api.list_repo_files("me/old")), sorted(tree(snapshot_download("me/old", revision="dev")))]
api.upload_file(path_or_fileobj=b"2", path_in_repo="more", repo_id="me/old")
out["written"] = text("me/new", "more")
out["created"] = [str(api.create_repo("me/old", exist_ok=True)).endswith("/me/new"), error(api.create_repo, "me/old") is not None]
api.delete_repo("me/new")
api.delete_repo("me/new", missing_ok=True)
out["gone"] = [error(api.delete_repo, "me/new"), error(api.repo_info, "me/new"), error(api.repo_info, "me/old"), api.repo_exists("me/new")]
print(json.dumps(out))
"""


@EVERY
def test_names(home, version):
    out = home.python(client(version, version == ""), NAMES)
    assert out.pop("again") in ("HfHubHTTPError", "HTTPError") and out.pop("bad") == "BadRequestError"
    assert out == {
        "branches": ["dev", "feature/x", "main"], "tags": {"v1": True, "latest": False}, "read": ["1", "dev", "1", "1", "dev", "1"],
        "snapshot": ["a", "d/b", "large.bin"], "files": ["a", "d", "d/b", "large.bin"],
        "commits": [["change a", "", ["ci"]], ["add a", "as it has to be", ["ci"]], ["initial commit", "", ["ci"]]],
        "on_dev": ["on dev", "add a", "initial commit"],
        "gone": ["RevisionNotFoundError"] * 4, "squashed": [["all of it"], ["on dev", "add a", "initial commit"]], "after": "2"}


@EVERY
def test_kinds(home, version, tmp_path):
    for name in ("README.md", "data/train.csv"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("n\n1\n")
    home.env["HF_TOKEN"] = home.m.token("both", "publish:models/datasets/me/*", "publish:models/spaces/me/*")
    out = home.python(client(version, False), KINDS, tmp_path / "data")
    assert out == {
        "files": ["README.md", "data/train.csv"], "info": ["me/data", "RepositoryNotFoundError"], "snapshot": ["README.md", "data/train.csv"],
        "glob": [f"datasets/me/data@dev/{n}" for n in ("README.md", "data", "new")], "space": True, "app": "import gradio", "space_info": "me/app"}
    assert home.m.get("/models/datasets/me/data/data/train.csv").body == b"n\n1\n"


@EVERY
def test_moves(home, version):
    out = home.python(client(version, False), MOVES)
    assert out == {
        "taken": True, "new": ["1", "me/new"], "old": ["1", "me/new", ["a b.txt"], ["a b.txt"]], "written": "2", "created": [True, True],
        "gone": ["RepositoryNotFoundError"] * 3 + [False]}


@pytest.mark.parametrize("streaming", [False, True], ids=["parquet", "streaming"])
def test_datasets(home, tmp_path, streaming):
    """What was uploaded is loaded, from a branch too."""
    bins = venv("datasets")
    file = tmp_path / "mine" / "data" / "train-00000-of-00001.parquet"
    file.parent.mkdir(parents=True)
    subprocess.run([bins / "python", "-c", "import sys, pyarrow as a, pyarrow.parquet as p; "
                    "p.write_table(a.table({'n': list(range(1000))}), sys.argv[1])", file], check=True)
    home.env["HF_TOKEN"] = home.m.token("data", "publish:models/datasets/me/*")
    code = ("import json, sys; from datasets import load_dataset; from huggingface_hub import HfApi; a = HfApi()\n"
            "a.create_repo('me/data', repo_type='dataset'); a.create_branch('me/data', repo_type='dataset', branch='dev')\n"
            "a.upload_folder(folder_path=sys.argv[1], repo_id='me/data', repo_type='dataset', revision='dev')\n"
            f"d = load_dataset('me/data', split='train', revision='dev', streaming={streaming})\n"
            "print(json.dumps(sum(r['n'] for r in d)))")
    assert home.python(bins, code, tmp_path / "mine", knocks=KNOCKS) == sum(range(1000))
