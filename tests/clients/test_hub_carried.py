"""A Hub's repositories carried across an air gap, for unmodified clients where no Hub is in reach; and the carrying folder as it stands."""
import os
import shutil

import pytest

from clients.test_hub import CLIENTS, FILES, TREE, World, client, digest, stock, venv
from harness.hub import Big

pytestmark = pytest.mark.xdist_group("hub")

CODE = TREE + """
import json, sys
from huggingface_hub import HfApi, hf_hub_download, snapshot_download
api = HfApi()
print(json.dumps({"snapshot": tree(snapshot_download("org/demo")), "sha": api.repo_info("org/demo").sha,
    "tag": tree(snapshot_download("org/demo", revision="v1.0", cache_dir="c1")),
    "files": sorted(api.list_repo_files("org/demo")), "config": open(hf_hub_download("org/demo", "config.json")).read(),
    "pinned": tree(snapshot_download("org/demo", revision=sys.argv[1], cache_dir="c2")),
    "data": tree(snapshot_download("org/data", repo_type="dataset", local_dir="data")),
    "paths": sorted(p.path for p in api.get_paths_info("org/demo", ["config.json", "none", "sub"])),
    "refs": [[r.name, r.target_commit] for r in api.list_repo_refs("org/demo").branches],
    "exists": [api.file_exists("org/demo", "config.json"), api.file_exists("org/demo", "none")]}))
"""


@pytest.fixture
def hub(hub):
    demo = stock(hub).demo
    demo.refs["v1.0"] = demo.sha
    demo.commit({**FILES, "config.json": b'{"a": 2}'})
    return hub


@pytest.fixture
def disk(mirrord, hub, tmp_path):
    near = mirrord(hub.config())
    near.ctl("hf", "export", "hf", "org/demo", "org/demo@v1.0", "datasets/org/data", "org/tok", "--fetch",
             "--to", str(tmp_path / "disk"))
    hub.down()
    near.stop()
    return tmp_path / "disk"


@pytest.fixture
def world(mirrord, disk, tmp_path):
    far = mirrord('repo "hf" { protocol = "hf" origin = "http://127.0.0.1:1/" connect_timeout = 1s }')  # where nobody ever listens
    far.ctl("hf", "import", str(disk))
    shutil.rmtree(disk)
    return World(far, tmp_path)


@pytest.mark.parametrize("version,xet", [CLIENTS[0], CLIENTS[3], CLIENTS[-2], CLIENTS[-1]])
def test_huggingface_hub(world, hub, version, xet):
    old, new = hub.demo.refs["v1.0"], hub.demo.sha
    got = world.python(client(version, xet), CODE, old)
    first = {p: digest(d) for p, d in FILES.items()}
    whole = {**first, "config.json": digest(b'{"a": 2}')}
    assert (got["sha"], got["snapshot"], got["files"]) == (new, whole, sorted(FILES))
    assert got["tag"] == first and got["pinned"] == first and got["config"] == '{"a": 2}'
    assert got["data"] == {"a/train.bin": digest(Big(90000, 4))} and got["paths"] == ["config.json", "sub"]
    assert got["refs"] == [["main", new]] and got["exists"] == [True, False]


def test_command_line(world):
    bins = client("", False)
    command = bins / ("hf" if (bins / "hf").exists() else "huggingface-cli")
    world.run([command, "download", "org/demo", "--local-dir", "here"])
    assert {str(p.relative_to(world.home / "here")) for p in (world.home / "here").rglob("*")
            if p.is_file() and ".cache" not in p.parts} == set(FILES)


TOKENS = ("import json; from transformers import AutoTokenizer; t = AutoTokenizer.from_pretrained('org/tok'); "
          "print(json.dumps(t('hello world')['input_ids']))")


def test_transformers(world):
    assert len(world.python(venv("transformers"), TOKENS)) == 2


def test_the_folder_is_a_cache(disk, hub, mirrord, tmp_path):
    """HF_HOME leads to it, nobody is asked; and it is whole to the library that keeps such caches."""
    w = World(mirrord('repo "none" { protocol = "hosted" }'), tmp_path)
    code = TREE + ("import json; from huggingface_hub import snapshot_download as s, scan_cache_dir; "
                   "print(json.dumps([tree(s('org/demo')), tree(s('org/demo', revision='v1.0')), "
                   "sorted(r.repo_id for r in scan_cache_dir().repos), [str(x) for x in scan_cache_dir().warnings]]))")
    first = {p: digest(d) for p, d in FILES.items()}
    for version, xet in (("0.30.2", False), ("", True)):
        env = {"HF_HUB_CACHE": str(disk / "hub"), "HF_HUB_OFFLINE": "1"}
        now, then, ids, warnings = w.python(client(version, xet), code, more=env)
        assert now == {**first, "config.json": digest(b'{"a": 2}')} and then == first
        assert ids == ["org/data", "org/demo", "org/tok"] and warnings == []
    assert os.path.samefile(*(disk / "hub/models--org--demo/snapshots" / sha / "model.safetensors"
                              for sha in (hub.demo.sha, hub.demo.refs["v1.0"]))), "what two commits share is on the disk once"
