"""A Hub's repositories that the mirror keeps whole, for unmodified clients, with the Hub gone from the start."""

import pytest

from clients.test_hub import CLIENTS, FILES, TREE, World, client, digest, stock, venv
from harness.hub import Big

pytestmark = pytest.mark.xdist_group("hub")

CODE = TREE + """
import json, sys
from huggingface_hub import HfApi, hf_hub_download, snapshot_download
api = HfApi()
print(json.dumps({"snapshot": tree(snapshot_download("org/demo")), "sha": api.repo_info("org/demo").sha,
    "files": sorted(api.list_repo_files("org/demo")), "config": open(hf_hub_download("org/demo", "config.json")).read(),
    "pinned": open(hf_hub_download("org/demo", "config.json", revision=sys.argv[1])).read(),
    "data": tree(snapshot_download("org/data", repo_type="dataset", local_dir="data")),
    "paths": sorted(p.path for p in api.get_paths_info("org/demo", ["config.json", "none", "sub"])),
    "exists": [api.file_exists("org/demo", "config.json"), api.file_exists("org/demo", "none"), api.repo_exists("no/body")]}))
"""


@pytest.fixture
def hub(hub):
    return stock(hub)


@pytest.fixture
def world(mirrord, hub, tmp_path):
    w = World(mirrord(hub.config(more='sync { repos = {"org/demo", "datasets/org/data", "org/tok"} }')), tmp_path)
    w.m.ctl("sync", "run", "hf", "--wait")
    return w


@pytest.mark.parametrize("version,xet", [CLIENTS[0], CLIENTS[3], CLIENTS[-2], CLIENTS[-1]])
def test_huggingface_hub(world, hub, version, xet):
    """All from the first snapshot; then a new commit; then the way back."""
    bins = client(version, xet)
    first, whole = hub.demo.sha, {p: digest(d) for p, d in FILES.items()}
    hub.down()
    got = world.python(bins, CODE, first)
    assert got["snapshot"] == whole and got["sha"] == first and got["files"] == sorted(FILES)
    assert got["data"] == {"a/train.bin": digest(Big(90000, 4))} and got["paths"] == ["config.json", "sub"]
    assert got["exists"] == [True, False, False]
    hub.up()
    second = hub.demo.commit({"config.json": b'{"a": 2}'})
    world.m.ctl("sync", "run", "hf", "--wait")
    hub.down()
    world.fresh()
    got = world.python(bins, CODE, first)
    assert (got["sha"], got["config"], got["pinned"]) == (second, '{"a": 2}', '{"a": 1}')
    world.m.ctl("snapshot", "rollback", "hf", "v1")
    world.fresh()
    got = world.python(bins, CODE, first)
    assert (got["sha"], got["config"]) == (first, '{"a": 1}') and got["snapshot"] == whole
    hub.up()


def test_by_xet(mirrord, hub, tmp_path):
    """LFS files through our chunk store, out of the snapshot."""
    w = World(mirrord(hub.config(more='xet = "on" sync { repos = {"org/demo"} }')), tmp_path)
    w.m.ctl("sync", "run", "hf", "--wait")
    hub.down()
    code = TREE + "import json; from huggingface_hub import snapshot_download as s; print(json.dumps(tree(s('org/demo'))))"
    assert w.python(client("", True), code) == {p: digest(d) for p, d in FILES.items()}
    hub.up()


def test_command_line(world, hub):
    bins = client("", False)
    hub.down()
    command = bins / ("hf" if (bins / "hf").exists() else "huggingface-cli")
    world.run([command, "download", "org/demo", "--local-dir", "here"])
    assert {str(p.relative_to(world.home / "here")) for p in (world.home / "here").rglob("*")
            if p.is_file() and ".cache" not in p.parts} == set(FILES)
    hub.up()


def test_transformers(world, hub):
    bins = venv("transformers")
    hub.down()
    code = ("import json; from transformers import AutoTokenizer; t = AutoTokenizer.from_pretrained('org/tok'); "
            "print(json.dumps(t('hello world')['input_ids']))")
    assert len(world.python(bins, code)) == 2
    hub.up()
