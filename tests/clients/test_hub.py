"""huggingface_hub from 0.30 to the newest, transformers and datasets, unmodified, against mirrord before the fixture Hub.

Each version has a venv of its own below build/, made from this machine's package index; one that cannot be made is a skip. A trap
around the client (harness/egress.py) sees that it reaches nobody but the mirror.
"""
import fcntl
import functools
import hashlib
import json
import os
import subprocess
import time

import pytest

from harness.egress import Trap
from harness.hub import Big, read, sha256_of
from harness.mirrord import BUILD, ROOT, SLOW

pytestmark = pytest.mark.xdist_group("hub")

PATIENCE_S = 600 * SLOW  # with a client: it is only spent where something is wrong
VERSIONS = ["0.30.2", "0.34.6", "0.36.0", "1.13.0", "1.20.0", "1.22.0", ""]  # "": the newest
CLIENTS = [pytest.param(v, x, id=f"{v or 'newest'}-{'xet' if x else 'http'}") for v in VERSIONS for x in (False, True)]
FILES = {
    ".gitattributes": b"*.safetensors filter=lfs\n", "README.md": b"# demo\n", "config.json": b'{"a": 1}', "empty.txt": b"",
    "model.safetensors": Big(12 << 20), "sub/with blank.txt": b"blank\n", "sub/100% \xc3\xbcn+i#?.txt".encode("latin-1").decode(): b"odd\n",
    "sub/deep/weights.bin": Big(70000, 2),
}


@functools.cache
def venv(*packages, without=()):
    """A Python that has them; the test is skipped when the index cannot give them."""
    uv = ROOT / ".venv/bin/uv"
    if not uv.exists():
        pytest.skip("no .venv with Python clients: run make deps with a package index in reach")
    name = hashlib.sha256(json.dumps([packages, without]).encode()).hexdigest()[:12]
    folder = BUILD / "venvs" / name
    folder.parent.mkdir(exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:  # tests of one client run beside another's
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            make_venv(uv, folder, packages, without)
    return folder / "bin"


def make_venv(uv, folder, packages, without):
    steps = [[uv, "venv", "-q", "--clear", folder], [uv, "pip", "install", "-q", "--python", folder, *packages]]
    steps += [[uv, "pip", "uninstall", "-q", "--python", folder, p] for p in without]
    for step in steps:
        done = subprocess.run(list(map(str, step)), capture_output=True, text=True, check=False, timeout=600)
        if done.returncode != 0:
            pytest.skip(f"{' '.join(packages)} cannot be installed here: {done.stderr.strip().splitlines()[-1][:200]}")
    (folder / "ready").write_text("")


def client(version, xet):
    package = "huggingface_hub" + (f"=={version}" if version else "")
    return venv(package, "hf_xet") if xet else venv(package, without=("hf_xet",))


def stock(hub):
    """What the tests of repositories that are kept whole, or carried, have in common."""
    hub.page = 3
    hub.demo = hub.repo("org/demo", files=FILES)
    hub.data = hub.repo("org/data", "datasets", files={"a/train.bin": Big(90000, 4)})
    hub.repo("org/tok", files={
        "config.json": json.dumps({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}).encode(),
        "tokenizer.json": json.dumps(TOKENIZER).encode(),
        "tokenizer_config.json": b'{"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"}'})
    return hub


@pytest.fixture
def demo(hub):
    r = hub.repo("org/demo", files=FILES)
    r.refs["refs/pr/1"] = r.commit({"config.json": b'{"a": 2}'}, ref="pr")
    hub.rename("demo", "org/demo")
    return r


class World:
    """A client's home, the mirror, the trap."""

    def __init__(self, m, folder):
        self.m, self.folder, self.count = m, folder, 0
        self.trap = Trap(folder, f"127.0.0.1:{m.port}")
        self.env = {"LANG": "C.UTF-8", "PATH": os.environ["PATH"], "HF_ENDPOINT": f"http://127.0.0.1:{m.port}/hf",
                    "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1"}
        if SLOW > 1:  # under sanitizers; else the clients' own time-outs, of ten seconds, have to do
            self.env.update(HF_HUB_ETAG_TIMEOUT="120", HF_HUB_DOWNLOAD_TIMEOUT="120")
        self.fresh()

    def fresh(self):
        self.count += 1
        self.home = self.folder / f"home{self.count}"
        self.home.mkdir()

    def run(self, command, more=None, fails=False, knocks=()):
        env = dict(self.env, HOME=str(self.home), HF_HOME=str(self.home / "hf"), TMPDIR=str(self.home), **self.trap.env(), **(more or {}))
        done = subprocess.run(list(map(str, command)), env=env, cwd=self.home, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert (done.returncode != 0) == fails, done.stdout[-3000:] + done.stderr[-6000:]
        strangers = [s for s in self.trap.strangers() if s not in knocks]
        assert not strangers, strangers
        return done.stdout + done.stderr if fails else done.stdout

    def python(self, bins, code, *args, **kw):
        """What it prints last. It leaves without the interpreter's end, in which pyarrow's threads may abort a program that is done."""
        code += "\nimport os, sys\nsys.stdout.flush()\nos._exit(0)\n"
        out = self.run([bins / "python", "-c", code, *args], **kw)
        return out if kw.get("fails") else json.loads(out.splitlines()[-1])


@pytest.fixture
def world(mirrord, hub, demo, tmp_path):
    return World(mirrord(hub.config()), tmp_path)


@pytest.fixture
def calm(mirrord, hub, demo, tmp_path):
    """A branch stays known for as long as the slowest machine may need."""
    return World(mirrord(hub.config(more="rule '^api/.*/revision/' { ttl = 1h }")), tmp_path)


@pytest.fixture
def chunked(mirrord, hub, demo, tmp_path):
    """A mirror that offers every LFS file by Xet's protocol."""
    return World(mirrord(hub.config(more='xet = "on"')), tmp_path)


def digest(data):
    return hashlib.sha256(read(data)).hexdigest()


TREE = """
import hashlib, pathlib
def tree(folder):
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in pathlib.Path(folder).rglob("*")
            if p.is_file() and ".cache" not in p.parts}
"""

ALL = TREE + """
import json, sys
from huggingface_hub import HfApi, HfFileSystem, hf_hub_download, snapshot_download, hf_hub_url, get_hf_file_metadata
from huggingface_hub import errors, utils
one = lambda p: hashlib.sha256(open(p, "rb").read()).hexdigest()
def error(f, *a, **k):
    try:
        f(*a, **k)
    except Exception as e:
        return type(e).__name__
sha = sys.argv[1]
api = HfApi()
fs = HfFileSystem()
out = {
    "single": one(hf_hub_download("org/demo", "model.safetensors")),
    "pr": open(hf_hub_download("org/demo", "config.json", revision="refs/pr/1")).read(),
    "pinned": one(hf_hub_download("org/demo", "sub/deep/weights.bin", revision=sha)),
    "bare": open(hf_hub_download("demo", "config.json")).read(),
    "snapshot": tree(snapshot_download("org/demo")),
    "pinned snapshot": tree(snapshot_download("org/demo", revision=sha, cache_dir="c1")),
    "filtered": sorted(tree(snapshot_download("org/demo", allow_patterns=["*.json", "sub/*"], ignore_patterns=["*.bin"], cache_dir="c2"))),
    "local": tree(snapshot_download("org/demo", local_dir="here")),
    "files": sorted(api.list_repo_files("org/demo")),
    "ls": sorted(fs.ls("org/demo", detail=False)),
    "glob": sorted(fs.glob("org/demo/**/*.bin")),
    "part": fs.cat_file("org/demo/model.safetensors", start=100, end=200).hex(),
    "paths": sorted(p.path for p in api.get_paths_info("org/demo", ["config.json", "none", "sub"])),
    "sha": api.repo_info("org/demo").sha,
    "exists": [api.file_exists("org/demo", "config.json"), api.file_exists("org/demo", "none")],
    "size": get_hf_file_metadata(hf_hub_url("org/demo", "model.safetensors")).size,
    "errors": [error(hf_hub_download, "org/demo", "none"), error(hf_hub_download, "org/demo", "config.json", revision="none"),
               error(hf_hub_download, "no/body", "config.json"), error(hf_hub_download, "meta/gated", "weights.bin"),
               error(snapshot_download, "no/body")],
    "gated": one(hf_hub_download("meta/gated", "weights.bin", token="hf_alice")),
    "refs": [b.name for b in api.list_repo_refs("org/demo").branches],
}
print(json.dumps(out))
"""


@pytest.mark.parametrize("mode", ["large", "on"])
@pytest.mark.parametrize("version,xet", CLIENTS)
def test_huggingface_hub(request, hub, demo, version, xet, mode):
    world = request.getfixturevalue("chunked" if mode == "on" else "world")
    bins = client(version, xet)
    hub.users["hf_alice"] = "alice"
    hub.repo("meta/gated", files={"weights.bin": Big(50000, 5), ".gitattributes": b"x"}, gated=True, readers={"hf_alice"})
    whole = {p: digest(d) for p, d in FILES.items()}
    got = world.python(bins, ALL, demo.sha)
    assert got["single"] == whole["model.safetensors"] and got["pinned"] == whole["sub/deep/weights.bin"]
    assert got["pr"] == '{"a": 2}' and got["bare"] == '{"a": 1}'
    assert got["snapshot"] == got["pinned snapshot"] == got["local"] == whole
    assert got["filtered"] == sorted(p for p in FILES if p.endswith(".json") or p.startswith("sub/") and not p.endswith(".bin"))
    assert got["files"] == sorted(FILES)
    assert got["ls"] == sorted({"org/demo/" + p.split("/")[0] for p in FILES})
    assert got["glob"] == ["org/demo/sub/deep/weights.bin"]
    assert bytes.fromhex(got["part"]) == read(FILES["model.safetensors"], 100, 200)
    assert got["paths"] == ["config.json", "sub"] and got["sha"] == demo.sha and got["exists"] == [True, False]
    assert got["size"] == 12 << 20
    assert got["errors"][0] in ("EntryNotFoundError", "RemoteEntryNotFoundError") and got["errors"][1] == "RevisionNotFoundError"
    assert got["errors"][2] == got["errors"][4] == "RepositoryNotFoundError" and got["errors"][3] == "GatedRepoError"
    assert got["gated"] == digest(Big(50000, 5))
    assert hub.cdn_bytes[sha256_of(FILES["model.safetensors"])] == 12 << 20, "six downloads, one transfer"
    assert "hf_alice" not in {c[2] for c in hub.calls if "org/demo" in c[1]}
    world.m.forsaken()
    asked = world.m.access_log.read_text()
    assert (f"/data/{whole['model.safetensors']}" in asked) == (mode == "on" and xet)


@pytest.mark.parametrize("version,xet", [CLIENTS[0], CLIENTS[3], CLIENTS[-2], CLIENTS[-1]])
def test_command_line_warm_and_offline(world, hub, demo, version, xet):
    """Cold, warm with the Hub down, then with no network call at all."""
    bins = client(version, xet)
    command = [bins / ("hf" if (bins / "hf").exists() else "huggingface-cli"), "download", "org/demo", "--include", "[cm]o*"]
    world.run(command)
    world.m.settle()
    hub.down()
    world.fresh()
    world.run(command)
    code = TREE + "import json; from huggingface_hub import snapshot_download as s; print(json.dumps(tree(s('org/demo', allow_patterns=['[cm]o*']))))"
    world.trap.clear()
    assert world.python(bins, code, more={"HF_HUB_OFFLINE": "1"})["model.safetensors"] == digest(FILES["model.safetensors"])
    assert not world.trap.seen()
    hub.up()


@pytest.mark.parametrize("version", VERSIONS, ids=lambda v: v or "newest")
def test_staged_by_trainagent(world, demo, tmp_path, version):
    """What the agent lays out is a cache to the client: found by name, with no network call."""
    env = dict(os.environ, TRAINAGENT_MIRROR=world.m.url(""), TRAINAGENT_SHELF=str(tmp_path / "shelf"),
               TRAINAGENT_STATE=str(tmp_path / "state"))
    subprocess.run([BUILD / "trainagent", "pull", "-q", "hf/org/demo@main", "--to", world.home / "hf"], env=env, check=True, timeout=PATIENCE_S)
    code = TREE + """
import json
from huggingface_hub import hf_hub_download, snapshot_download
print(json.dumps([tree(snapshot_download("org/demo")), open(hf_hub_download("org/demo", "config.json")).read()]))
"""
    got = world.python(client(version, False), code, more={"HF_HUB_OFFLINE": "1"})
    assert got == [{p: digest(d) for p, d in FILES.items()}, '{"a": 1}'] and not world.trap.seen()


def test_listings_in_pages(calm, hub):
    """2,500 files are three of the Hub's pages, and one answer of ours."""
    hub.repo("org/many", kind="datasets", files={f"data/{i:05}.json": b"%d" % i for i in range(2500)})
    world, bins = calm, client("", True)
    got = world.python(bins, "import json; from huggingface_hub import HfApi; "
                             "print(json.dumps(len(HfApi().list_repo_files('org/many', repo_type='dataset'))))")
    again = world.python(bins, "import json; from huggingface_hub import HfFileSystem; "
                               "print(json.dumps(len(HfFileSystem().glob('datasets/org/many/data/000*.json'))))")
    assert (got, again) == (2500, 100)
    assert sum("/tree/" in c[1] for c in hub.calls) == 3


@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]], ids=["oldest", "newest"])
def test_a_branch_that_moves_in_the_middle(mirrord, hub, demo, tmp_path, version):
    """A snapshot is of one commit, the one that its client was told at first; the next is of the new one, whole too."""
    world = World(mirrord(hub.config(more="rule '^api/.*/revision/' { ttl = 1s }")), tmp_path)
    new = dict(FILES, **{"config.json": b'{"a": 3}', "model.safetensors": Big(9 << 20, 7)})

    def move():
        demo.commit(new)
        time.sleep(2)
    hub.order(r"/resolve/.*/sub/deep/weights\.bin", move)
    code = TREE + "import json; from huggingface_hub import snapshot_download as s; print(json.dumps(tree(s('org/demo', max_workers=1))))"
    assert world.python(client(version, False), code) == {p: digest(d) for p, d in FILES.items()}
    assert world.python(client(version, False), code) == {p: digest(d) for p, d in new.items()}


def test_what_the_client_refuses(world, hub):
    """More than 50 GB over plain HTTP: the client says so itself, before it asks for a byte."""
    hub.repo("org/huge", files={"model.safetensors": Big(52_000_000_000, digest="ab" * 32)})
    said = world.python(client("", False), "from huggingface_hub import hf_hub_download as d; d('org/huge', 'model.safetensors')", fails=True)
    assert "regular download method" in said and not hub.cdn_calls


def test_uploads_are_refused_in_words(world):
    said = world.python(client("", False), "from huggingface_hub import HfApi; HfApi(token='hf_x').create_repo('me/new')", fails=True)
    assert "mirror" in said


# --- what stands on huggingface_hub ---

TOKENIZER = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
             "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
             "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "hello": 1, "world": 2}, "unk_token": "[UNK]"}}


def test_transformers(calm, hub):
    world, bins = calm, venv("transformers")
    hub.repo("org/tok", files={
        "config.json": json.dumps({"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 3}).encode(),
        "tokenizer.json": json.dumps(TOKENIZER).encode(),
        "tokenizer_config.json": b'{"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"}'})
    code = ("import json; from transformers import AutoConfig, AutoTokenizer; t = AutoTokenizer.from_pretrained('org/tok'); "
            "print(json.dumps([AutoConfig.from_pretrained('org/tok').n_embd, t('hello world').input_ids]))")
    assert world.python(bins, code) == [16, [1, 2]]
    world.m.settle()
    asked = len(hub.calls)
    hub.down()
    world.fresh()
    assert world.python(bins, code) == [16, [1, 2]], "warm, with the Hub down"
    assert len(hub.calls) == asked
    hub.up()


# datasets makes a host of its own out of HF_ENDPOINT's, and counts downloads elsewhere; it does without an answer of either.
KNOCKS = ["lookup datasets-server.127.0.0.1", "lookup s3.amazonaws.com"]


@pytest.mark.parametrize("streaming", [False, True], ids=["parquet", "streaming"])
def test_datasets(world, hub, streaming):
    bins = venv("datasets")
    made = subprocess.run([bins / "python", "-c", "import sys, pyarrow as a, pyarrow.parquet as p; "
                           "p.write_table(a.table({'n': list(range(1000))}), sys.stdout.buffer)"], capture_output=True, check=True)
    hub.repo("org/data", kind="datasets", files={"README.md": b"---\nlicense: mit\n---\n", "data/train-00000-of-00001.parquet": made.stdout})
    code = (f"import json; from datasets import load_dataset; d = load_dataset('org/data', split='train', streaming={streaming}); "
            "print(json.dumps(sum(r['n'] for r in d)))")
    assert world.python(bins, code, knocks=KNOCKS) == sum(range(1000))


def test_the_trap_holds(world):
    """A control: what reaches elsewhere is refused and seen, by name and by address."""
    code = ("import socket\n"
            "for f, to in ((socket.create_connection, ('huggingface.example', 80)), (socket.socket().connect, ('127.0.0.2', 1))):\n"
            "    try:\n        f(to)\n    except OSError:\n        print('null')\n    else:\n        raise SystemExit(1)")
    world.python(client("", False), code, knocks=["lookup huggingface.example", "connect 127.0.0.2:1"])
    assert len(world.trap.strangers()) == 2
