"""Repositories of a Hub carried across an air gap: mirrorctl hf export, a folder or a tar, mirrorctl hf import; the Hub is out of reach."""
import hashlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import urllib.parse

import pytest

from harness.hub import Big, Hub, read, sha256_of
from harness.mirrord import BUILD, SANITIZERS, free_port

FILES = {
    ".gitattributes": b"*.bin filter=lfs\n",
    "README.md": b"# demo\n",
    "config.json": b'{"model_type": "gpt2"}',
    "copy/config.json": b'{"model_type": "gpt2"}',
    "empty.txt": b"",
    "model.safetensors": Big(3 << 20),
    "sub/with blank.txt": b"blank\n",
    "sub/100% ünï+code#?.txt": b"strange\n",
    "sub/deep/weights.bin": Big(70000, 2),
    "sub/same.bin": Big(70000, 2),
}
HOSTED = 'repo "models" { protocol = "hosted" }\n'


@pytest.fixture
def hub():
    with Hub(page=3) as h:
        yield h
        assert not h.leaks, h.leaks


@pytest.fixture
def demo(hub):
    return hub.repo("org/demo", files=FILES)


@pytest.fixture
def near(mirrord, hub, demo):
    """A mirror that has all of org/demo."""
    m = mirrord(hub.config() + "\n" + HOSTED)
    warm(m, demo)
    return m


@pytest.fixture
def far(mirrord):
    """One from which no Hub can be reached."""
    return mirrord(nowhere() + HOSTED)


def nowhere(more=""):
    return f'repo "hf" {{ protocol = "hf" origin = "http://127.0.0.1:{free_port()}/" connect_timeout = 1s {more} }}\n'


def url(path, repo="org/demo", rev="main", prefix="", mount="hf"):
    return f"/{mount}/{prefix}{repo}/resolve/{urllib.parse.quote(rev, safe='')}/{urllib.parse.quote(path)}"


def warm(m, r, rev="main", prefix="", headers=()):
    assert m.get(f"/hf/api/{r.kind}/{r.name}/revision/{urllib.parse.quote(rev, safe='')}", headers=dict(headers)).status == 200
    for path in r.commits[r.resolve(rev)]:
        assert m.get(url(path, r.name, rev, prefix), headers=dict(headers)).status == 200, path
    m.settle()


def serves(m, r, rev="main", prefix="", mount="hf", etags=True, **kw):
    """All that a client asks for, byte for byte; nobody else is there to ask."""
    sha = r.resolve(rev)
    api = f"/{mount}/api/{r.kind}/{r.name}"
    info = m.get(f"{api}/revision/{urllib.parse.quote(rev, safe='')}", **kw)
    assert info.status == 200, info.body
    commit = json.loads(info.body)["sha"]
    assert commit == sha or not etags
    tree = m.get(f"{api}/tree/{commit}?recursive=true", **kw)
    assert tree.status == 200, tree.body
    assert {e["path"] for e in json.loads(tree.body) if e["type"] == "file"} == set(r.commits[sha])
    for path, data in r.commits[sha].items():
        for at in (rev, commit):
            got = m.get(url(path, r.name, at, prefix, mount), **kw)
            assert (got.status, got.body, got["x-repo-commit"]) == (200, read(data), commit), (path, at, got.body[:300])
            if etags:
                assert got["etag"] == f'"{r.etag(path, sha)}"'
    return commit


def export(m, *args, to):
    return m.ctl_json("hf", "export", *args, "--to", str(to))


def objects(m, repo="hf"):
    return [o["key"] for o in m.ctl_json("cache", "ls", repo)]


def nothing_came(m):
    assert objects(m) == [] and m.ctl_json("cache", "pins") == [] and m.ctl_json("snapshot", "ls", "models") == []
    m.ctl("cache", "gc")
    report = m.ctl_json("verify", "--deep")
    assert report["clean"], report


# --- there and back ---

@pytest.mark.parametrize("how", ["folder", "tar", "pipe"])
def test_across(near, far, hub, demo, tmp_path, how):
    to = tmp_path / ("carry.tar" if how == "tar" else "carry")
    if how == "pipe":
        ctl = [BUILD / "mirrorctl", "--socket"]
        env = dict(os.environ, **SANITIZERS)
        with subprocess.Popen([*ctl, near.socket, "hf", "export", "org/demo", "--to", "-"], stdout=subprocess.PIPE, env=env) as out:
            done = subprocess.run([*ctl, far.socket, "hf", "import", "-"], stdin=out.stdout, env=env, timeout=120, check=False)
        assert (out.returncode, done.returncode) == (0, 0)
    else:
        told = export(near, "hf", "org/demo@main", to=to)
        assert told["files"] == len(FILES) and told["revisions"][0]["commit"] == demo.sha
        got = far.ctl_json("hf", "import", "--digest", told["manifest_sha256"], str(to))
        assert got["revisions"][0]["commit"] == demo.sha and got["files_here"] == 0
    hub.down()
    serves(far, demo)
    serves(far, demo, rev=demo.sha)
    missing = far.get(url("nothing.txt"))
    assert (missing.status, missing["x-error-code"]) == (404, "EntryNotFound")
    refs = json.loads(far.get("/hf/api/models/org/demo/refs").body)
    assert refs["branches"] == [{"name": "main", "ref": "refs/heads/main", "targetCommit": demo.sha}]
    assert json.loads(far.get("/hf/api/models/org/demo").body)["sha"] == demo.sha
    assert far.ctl_json("verify", "--deep")["clean"]
    far.stop()
    far.start()
    serves(far, demo)


def test_a_folder_is_for_people_too(near, demo, tmp_path):
    to = tmp_path / "carry"
    export(near, "org/demo", to=to)
    subprocess.run(["sha256sum", "-c", "--quiet", "--strict", "SHA256SUMS"], cwd=to, check=True)
    at = to / "hub/models--org--demo"
    assert (at / "refs/main").read_text() == demo.sha
    for path, data in FILES.items():
        assert (at / "snapshots" / demo.sha / path).read_bytes() == read(data), path
    same = [(at / "snapshots" / demo.sha / p).stat().st_ino for p in ("sub/deep/weights.bin", "sub/same.bin")]
    assert same[0] == same[1], "bytes that two files share are there once"
