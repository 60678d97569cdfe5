"""Repositories of a Hub carried across an air gap: mirrorctl hf export, a folder or a tar, mirrorctl hf import; the Hub is out of reach."""
import hashlib
import io
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tarfile
import time
import urllib.parse

import pytest

from harness.hub import Big, read
from harness.mirrord import BUILD, SANITIZERS, free_port, until

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
def hub(hub):
    hub.page = 3
    return hub


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


def warm(m, r, rev="main", prefix="", headers=None):
    assert m.get(f"/hf/api/{r.kind}/{r.name}/revision/{urllib.parse.quote(rev, safe='')}", headers=headers).status == 200
    for path in r.commits[r.resolve(rev)]:
        assert m.get(url(path, r.name, rev, prefix), headers=headers).status == 200, path
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
    assert [r["pinned"] for r in far.ctl_json("hf", "ls", "hf")] == [True]
    far.ctl("hf", "unpin", "org/demo")
    assert [r["pinned"] for r in far.ctl_json("hf", "ls", "hf")] == [False] and far.ctl_json("cache", "pins") == []


def test_empty_files_need_not_have_been_fetched(mirrord, far, hub, tmp_path):
    """The newest clients look at them and never ask for their bytes."""
    r = hub.repo("org/demo", files=dict(FILES))
    near = mirrord(hub.config())
    assert near.get("/hf/api/models/org/demo/revision/main").status == 200
    for path, data in FILES.items():
        assert near.get(url(path), head=not data).status == 200
    near.settle()
    row, = near.ctl_json("hf", "ls")
    assert (row["files"], row["files_here"]) == (len(FILES), len(FILES))
    calls = len(hub.calls)
    got = near.get(url("empty.txt"))
    assert (got.status, got.body, got["etag"], got["x-repo-commit"]) == (200, b"", f'"{r.etag("empty.txt")}"', r.sha)
    export(near, "org/demo", to=tmp_path / "carry")
    assert len(hub.calls) == calls
    far.ctl("hf", "import", str(tmp_path / "carry"))
    serves(far, r)


def test_what_is_written_is_its_owners(near, tmp_path):
    for to in ("carry", "carry.tar"):
        export(near, "org/demo", to=tmp_path / to)
    for name in ("carry/MANIFEST.json", "carry/SHA256SUMS", "carry.tar"):
        assert (tmp_path / name).stat().st_mode & 0o022 == 0, name


def test_what_is_closed_at_the_hub_is_not_opened_by_an_import(mirrord, hub, tmp_path):
    hub.users["hf_in"] = "in"
    r = hub.repo("org/shut", private=True, readers={"hf_in"}, files={"config.json": b"{}", "w.bin": Big(9000)})
    m = mirrord(hub.config() + "\n" + HOSTED + 'repo "inner" { protocol = "hosted" access { anonymous = none } }\n')
    warm(m, r, headers={"Authorization": "Bearer hf_in"})
    export(m, "hf/org/shut", to=tmp_path / "carry")
    for into in ("hf", "models"):
        no = m.ctl("hf", "import", str(tmp_path / "carry"), "--into", into, check=False)
        assert no.returncode == 77 and "--open" in no.stderr, no.stderr
    assert m.get("/models/org/shut/config.json").status == 404
    m.ctl("hf", "import", str(tmp_path / "carry"), "--into", "inner")
    assert m.get("/inner/org/shut/config.json").status == 401
    m.ctl("hf", "import", str(tmp_path / "carry"), "--into", "models", "--open")
    assert m.get("/models/org/shut/config.json").body == b"{}"


def test_who_is_turned_away_reads_why(near, tmp_path):
    """The daemon has said it, and hung up, before the first line of the request is written."""
    idle = [socket.socket(socket.AF_UNIX) for _ in range(16)]
    for s in idle:
        s.connect(str(near.socket))
    for i in range(5):
        done = near.ctl("hf", "export", "org/demo", "--to", str(tmp_path / "out"), check=False)
        assert done.returncode == 75 and "too many control clients" in done.stderr, (i, done)
        assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())
    for s in idle:
        s.close()


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


def carried(near, far, *what, to, **kw):
    told = export(near, *what, to=to)
    return told, far.ctl_json("hf", "import", str(to), *[a for k, v in kw.items() for a in (f"--{k}", *([v] if v is not True else []))])


def test_branches_tags_and_commits(mirrord, hub, demo, near, tmp_path):
    """Several revisions in one bundle, two of one commit; one that is known by its commit alone, so nothing is known of main."""
    demo.refs["v1.0"] = old = demo.sha
    new = demo.commit({"config.json": b"{}", "model.safetensors": FILES["model.safetensors"]}, ref="side/branch")
    demo.refs["refs/pr/1"] = new
    data = hub.repo("org/data", kind="datasets", files={"a.parquet": Big(50000, 3), "README.md": b"# data\n"})
    for rev in ("v1.0", "side/branch", "refs/pr/1"):
        warm(near, demo, rev)
    warm(near, data, prefix="datasets/")
    told, got = carried(near, mirrord(nowhere()), "org/demo@v1.0", "org/demo@side/branch", "org/demo@refs/pr/1", "org/demo@" + new,
                        "hf/datasets/org/data", to=tmp_path / "a.tar")
    assert [r["commit"] for r in told["revisions"]] == [old, new, new, new, data.sha]
    far = mirrord(nowhere())
    far.ctl("hf", "import", str(tmp_path / "a.tar"))
    hub.down()
    for rev in ("v1.0", "side/branch", "refs/pr/1", new):
        serves(far, demo, rev)
    serves(far, data, prefix="datasets/")
    refs = json.loads(far.get("/hf/api/models/org/demo/refs").body)
    assert {t["name"]: t["targetCommit"] for t in refs["tags"]} == {"v1.0": old, "side/branch": new}
    assert far.get(url("config.json")).status in (502, 504), "main was not carried, and nothing else is given for it"
    assert got["files"] == told["files"]


def test_by_another_name(near, mirrord, hub, demo, tmp_path):
    hub.rename("demo", "org/demo")
    assert near.get("/hf/api/models/demo/revision/main").status == 200
    assert near.get(url("config.json", "demo")).status == 200
    near.settle()
    far = mirrord(nowhere())
    _, got = carried(near, far, "hf", "demo", to=tmp_path / "a")
    assert got["revisions"][0]["id"] == "org/demo"
    hub.down()
    serves(far, demo)
    assert far.get(url("model.safetensors", "demo")).body == read(FILES["model.safetensors"])


def test_what_is_not_here_is_counted(mirrord, hub, demo, tmp_path):
    m = mirrord(hub.config())
    for args, says in ((("hf", "org/demo"), "has not asked the Hub"), (("nothing", "org/demo"), "see `mirrorctl repo ls`"),
                       (("hf", "org/../demo"), "")):
        done = m.ctl("hf", "export", *args, "--to", str(tmp_path / "a"), check=False)
        assert done.returncode in (64, 65, 66) and says in done.stderr, done
    assert m.get(url("config.json")).status == 200
    m.settle()
    done = m.ctl("hf", "export", "hf", "org/demo", "--to", str(tmp_path / "a"), check=False)
    assert done.returncode == 66 and f"{len(FILES) - 3} files (3." in done.stderr, done
    assert not (tmp_path / "a").exists()
    done = m.ctl("hf", "export", "org/demo", check=False)
    assert done.returncode == 64 and "--to is missing" in done.stderr


def test_many_small_files(near, far, hub, tmp_path):
    """More than are written together; some with the same bytes, also in another revision of the same bundle."""
    hub.page = 1000
    r = hub.repo("org/many", files={f"d{i % 7}/{i:04}.txt": b"file %d\n" % (i // 2) for i in range(700)})
    r.refs["v1"] = r.sha
    r.commit({"d0/0000.txt": b"another\n", "new.txt": b"file 5\n", "d1/0001.txt": None})
    near.ctl("hf", "export", "org/many@v1", "org/many", "--fetch", "--to", str(tmp_path / "a"))
    hub.down()
    for into in ("hf", "models"):
        far.ctl("hf", "import", str(tmp_path / "a"), "--into", into)
        for rev in ("v1", "main"):
            shown = far.ctl_json("hf", "show", into, "org/many", rev)
            assert {f["path"] for f in shown if f["state"] == "whole"} == set(r.commits[r.refs[rev]]), (into, rev)
            for path in ("d0/0000.txt", "d6/0699.txt", "new.txt"):
                got, data = far.get(url(path, "org/many", rev, mount=into)), r.commits[r.refs[rev]].get(path)
                assert (got.status, got.body) == (200, data) if data else got.status == 404, (into, rev, path)
    assert far.ctl_json("verify", "--deep")["clean"]


# --- other homes ---

def test_into_a_hosted_repo_and_on(near, far, mirrord, hub, demo, tmp_path):
    """A version of its own; exported from there and taken into a third, hosted and pulled through."""
    _, got = carried(near, far, "org/demo", to=tmp_path / "a", into="models")
    hub.down()
    commit = serves(far, demo, mount="models", etags=False)
    assert objects(far) == [] and far.ctl_json("cache", "pins") == []
    head, = far.ctl_json("snapshot", "ls", "models", "org/demo")
    assert head["entries"] == len(FILES) and head["root"].startswith(commit)
    far.ctl("hf", "import", str(tmp_path / "a"), "--into", "models")
    assert [s["seq"] for s in far.ctl_json("snapshot", "ls", "models", "org/demo")] == [1], "the same again is no new version"
    assert got["revisions"][0]["repo"] == "models"
    third = mirrord(nowhere() + HOSTED)
    carried(far, third, "models", "org/demo", to=tmp_path / "b.tar")
    assert serves(third, demo, mount="models", etags=False) == commit, "the same files have the same commit"
    carried(far, third, "models/org/demo", to=tmp_path / "c.tar", into="hf")
    assert serves(third, demo, etags=False) == commit


def test_branches_of_a_hosted_repo(near, far, mirrord, hub, demo, tmp_path):
    """A revision that is not main is a branch of that name; main stays. Datasets have a home, too."""
    old = demo.sha
    demo.refs["v1.0"] = old
    data = hub.repo("org/data", kind="datasets", files={"a.parquet": Big(50000, 3)})
    warm(near, demo, "v1.0")
    warm(near, data, prefix="datasets/")
    carried(near, far, "org/demo@v1.0", "hf/datasets/org/data", to=tmp_path / "a.tar", into="models")
    near.config = hub.config(more="rule '^api/[a-z]+/.*/revision/' { ttl = 0s }") + HOSTED
    near.reload()
    demo.commit({"config.json": b'{"new": 1}'})
    demo.refs["next"] = demo.commit({"config.json": b'{"next": 1}'}, ref="next")
    for rev in ("main", "next"):
        warm(near, demo, rev)
    carried(near, far, "org/demo@main", "org/demo@next", to=tmp_path / "b.tar", into="models")
    hub.down()
    commits = {rev: serves(far, demo, rev, mount="models", etags=False) for rev in ("main", "next", "v1.0")}
    assert len(set(commits.values())) == 3
    serves(far, data, prefix="datasets/", mount="models", etags=False)
    third = mirrord(nowhere() + HOSTED)
    carried(far, third, "models", "org/demo@next", "datasets/org/data", to=tmp_path / "c", into="hf")
    assert serves(third, demo, "next", etags=False) == commits["next"]
    serves(third, data, prefix="datasets/", etags=False)


def test_fetched_first(mirrord, hub, demo, far, tmp_path):
    near = mirrord(hub.config())
    near.ctl("hf", "export", "hf", "org/demo", "--fetch", "--to", str(tmp_path / "a.tar"))
    none = near.ctl("hf", "export", "hf", "no/body", "--fetch", "--to", str(tmp_path / "b.tar"), check=False)
    assert none.returncode != 0 and not (tmp_path / "b.tar").exists()
    far.ctl("hf", "import", str(tmp_path / "a.tar"))
    hub.down()
    serves(far, demo)


def test_out_of_a_synced_repo(mirrord, hub, demo, far, tmp_path):
    near = mirrord(hub.config(more='sync { repos = {"org/demo"} }'))
    near.ctl("sync", "run", "hf", "--wait")
    told, _ = carried(near, far, "org/demo", to=tmp_path / "a.tar")
    hub.down()
    serves(far, demo)
    done = near.ctl("hf", "import", str(tmp_path / "a.tar"), check=False)
    assert done.returncode == 64 and "is synced" in done.stderr
    assert told["revisions"][0]["commit"] == demo.sha


def test_gated(mirrord, hub, tmp_path):
    """Rights cannot be asked where no Hub is: one says who may read, or it is not taken in."""
    hub.users["hf_alice"] = "alice"
    secret = hub.repo("org/secret", files=FILES, gated=True, readers={"hf_alice"})
    near = mirrord(hub.config())
    warm(near, secret, headers={"Authorization": "Bearer hf_alice"})
    said = near.ctl("hf", "export", "org/secret", "--to", str(tmp_path / "a.tar"))
    assert "warning: org/secret is private or gated at the Hub" in said.stderr
    far = mirrord(nowhere() + nowhere('credentials = "service" access { anonymous = none }').replace('"hf"', '"ours"', 1) + HOSTED)
    done = far.ctl("hf", "import", str(tmp_path / "a.tar"), check=False)
    assert done.returncode == 77 and "--open" in done.stderr
    nothing_came(far)
    far.ctl("hf", "import", "--into", "ours", str(tmp_path / "a.tar"))
    hub.down()
    token = far.token("reader", "read:ours/*")
    assert far.get(url("config.json", "org/secret", mount="ours")).status == 401
    serves(far, secret, mount="ours", headers={"Authorization": f"Bearer {token}"})
    assert far.get(url("config.json", "org/secret")).status in (502, 504)
    far.ctl("hf", "import", "--open", str(tmp_path / "a.tar"))
    serves(far, secret)


# --- words of another time ---

def test_the_hub_has_the_last_word(mirrord, hub, near, demo, tmp_path):
    """What was carried is given at once, and asked for behind its back; later answers win, also against an import."""
    old = demo.sha
    export(near, "org/demo", to=tmp_path / "old.tar")
    hub.down()
    time.sleep(1.1)  # when the Hub said something is kept in whole seconds
    far = mirrord(hub.config(more="rule '^api/[a-z]+/.*/revision/' { ttl = 0s sie = 365d }"))
    far.ctl("hf", "import", str(tmp_path / "old.tar"))
    got = far.get(url("config.json"))
    assert (got.status, got["x-repo-commit"]) == (200, old) and "stale-while-revalidate" in got["cache-status"]
    new = demo.commit({"config.json": b'{"new": 1}'})
    hub.up()
    far.reaches("mirrord_upstream_requests_total", 1)
    until(lambda: far.get(url("config.json"))["x-repo-commit"] == new)
    assert far.get(url("config.json")).body == b'{"new": 1}'
    done = far.ctl("hf", "import", str(tmp_path / "old.tar"))
    assert "was seen later than the imported one" in done.stderr
    assert far.get(url("config.json"))["x-repo-commit"] == new
    assert far.get(url("config.json", rev=old)).body == FILES["config.json"]


def test_a_silent_network_delays_nothing(mirrord, near, demo, hub, tmp_path):
    """Not even an error comes back from where the Hub was: no answer about what was carried waits for it."""
    export(near, "org/demo@" + demo.sha, "org/demo@main", to=tmp_path / "a")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(0)
        far = mirrord(f'repo "hf" {{ protocol = "hf" origin = "http://127.0.0.1:{s.getsockname()[1]}/" stall = 10m }}')
        far.ctl("hf", "import", str(tmp_path / "a"))
        serves(far, demo)
        serves(far, demo, rev=demo.sha)


# --- again, in parts, at once ---

def test_again_costs_nothing_and_a_newer_one_only_what_is_new(near, far, hub, demo, tmp_path):
    disk = tmp_path / "disk"
    carried(near, far, "org/demo", to=disk)
    again = far.ctl_json("hf", "import", str(disk))
    assert (again["files_here"], again["bytes"]) == (len(FILES), 0)
    first = json.loads((disk / "MANIFEST.json").read_text())
    kept = tmp_path / "kept.json"
    shutil.copy(disk / "MANIFEST.json", kept)
    old = demo.sha
    demo.commit({**FILES, "config.json": b'{"v": 2}'})
    far_rule = "rule '^api/[a-z]+/.*/revision/' { ttl = 0s }"
    near.config = hub.config(more=far_rule) + HOSTED
    near.reload()
    warm(near, demo)
    told = export(near, "org/demo", "--since", str(kept), to=tmp_path / "new.tar")
    assert (told["left_out"], told["files"]) == (len(FILES) - 1, len(FILES))
    assert (tmp_path / "new.tar").stat().st_size < 100_000
    got = far.ctl_json("hf", "import", str(tmp_path / "new.tar"))
    assert got["files_here"] == len(FILES) - 1
    told = export(near, "org/demo", to=disk)
    names = {(r["revision"], r["commit"]) for r in json.loads((disk / "MANIFEST.json").read_text())["revisions"]}
    assert names == {("main", demo.sha)} and first["revisions"][0]["commit"] == old
    hub.down()
    serves(far, demo)
    assert far.get(url("config.json", rev=old)).body == FILES["config.json"]


def test_without_what_was_left_out(near, far, mirrord, demo, tmp_path):
    export(near, "org/demo", to=tmp_path / "a")
    export(near, "org/demo", "--since", str(tmp_path / "a"), to=tmp_path / "b.tar")
    done = far.ctl("hf", "import", str(tmp_path / "b.tar"), check=False)
    assert done.returncode == 66 and f"leaves out {len(FILES)} files" in done.stderr and "--since" in done.stderr
    nothing_came(far)


def test_a_folder_is_gone_on_with(near, far, demo, tmp_path):
    to = tmp_path / "carry"
    export(near, "org/demo", to=to)
    files = to / "hub/models--org--demo/snapshots" / demo.sha
    before = (files / "model.safetensors").stat().st_ino
    (to / "MANIFEST.json").unlink()
    (files / "sub/deep/weights.bin").unlink()
    (files / "config.json").write_bytes(b"x" * len(FILES["config.json"]))
    done = far.ctl("hf", "import", str(to), check=False)
    assert done.returncode == 66 and "not finished" in done.stderr
    export(near, "org/demo", to=to)
    assert (files / "model.safetensors").stat().st_ino == before, "what is whole is not copied again"
    subprocess.run(["sha256sum", "-c", "--quiet", "--strict", "SHA256SUMS"], cwd=to, check=True)
    far.ctl("hf", "import", str(to))
    serves(far, demo)


def test_two_at_once(near, far, hub, demo, tmp_path):
    export(near, "org/demo", to=tmp_path / "a")
    export(near, "org/demo", to=tmp_path / "a.tar")
    env = dict(os.environ, **SANITIZERS)
    both = [subprocess.Popen([BUILD / "mirrorctl", "--socket", far.socket, "hf", "import", tmp_path / n], env=env) for n in ("a", "a.tar")]
    assert [p.wait(120) for p in both] == [0, 0]
    hub.down()
    serves(far, demo)
    assert far.ctl_json("verify", "--deep")["clean"]


# --- what is no good ---

class Tar:
    """A bundle's entries in their order, to be spoilt and packed again."""

    def __init__(self, path):
        with tarfile.open(path) as t:
            self.entries = [(m, t.extractfile(m).read() if m.isreg() else b"") for m in t.getmembers()]

    def at(self, end):
        return next(i for i, (m, _) in enumerate(self.entries) if m.name.endswith(end))

    def add(self, name, data=b"", kind=tarfile.REGTYPE, link="", where=None):
        m = tarfile.TarInfo(name)
        m.type, m.linkname, m.size = kind, link, len(data)
        self.entries.insert(len(self.entries) if where is None else where, (m, data))

    def change(self, end, data):
        i = self.at(end)
        m = self.entries[i][0]
        m.size = len(data)
        self.entries[i] = (m, data)

    def manifest(self, change, honest=True):
        """The manifest changed; honest: SHA256SUMS goes with it."""
        value = json.loads(self.entries[1][1])
        change(value)
        self.change("MANIFEST.json", json.dumps(value).encode())
        if honest:
            sums = self.entries[0][1].split(b"\n", 1)[1]
            self.change("SHA256SUMS", hashlib.sha256(self.entries[1][1]).hexdigest().encode() + b"  MANIFEST.json\n" + sums)

    def pack(self):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as t:
            for m, data in self.entries:
                t.addfile(m, io.BytesIO(data))
        return out.getvalue()


def file_of(value, path="config.json"):
    return next(f for f in value["revisions"][0]["files"] if f["path"] == path)


def lying_config(t):
    """All that the bundle says of itself agrees; the Hub's listing does not."""
    data = b"[" + FILES["config.json"][1:]
    t.change("/config.json", data)
    t.manifest(lambda v: file_of(v).update(sha256=hashlib.sha256(data).hexdigest()))


def lying_model(t):
    data = bytes(3 << 20)
    t.change("model.safetensors", data)
    t.manifest(lambda v: file_of(v, "model.safetensors").update(sha256=hashlib.sha256(data).hexdigest()))


def other_words(t):
    i = t.at("info.json")
    data = t.entries[i][1].replace(b"org/demo", b"org/evil")
    t.change("info.json", data)
    t.manifest(lambda v: v["revisions"][0]["info"].update(sha256=hashlib.sha256(data).hexdigest()))


def files_first(t):
    words = [e for e in t.entries[2:] if e[0].name.startswith("words")]
    t.entries = t.entries[:2] + [e for e in t.entries[2:] if e not in words] + words


SPOILT = {
    "dotdot": (lambda t: t.add("../../etc/passwd", b"x"), "not in its manifest"),
    "dotdot inside": (lambda t: t.add("hub/../../x", b"x"), "not in its manifest"),
    "absolute": (lambda t: t.add("/etc/passwd", b"x", where=2), "not in its manifest"),
    "unlisted": (lambda t: t.add("hub/models--org--demo/more", b"x"), "not in its manifest"),
    "symlink": (lambda t: t.add(t.entries.pop(t.at("README.md"))[0].name, kind=tarfile.SYMTYPE, link="/etc/passwd"), "not a regular file"),
    "device": (lambda t: t.add(t.entries.pop(t.at("README.md"))[0].name, kind=tarfile.CHRTYPE), "not a regular file"),
    "fifo": (lambda t: t.add(t.entries.pop(t.at("README.md"))[0].name, kind=tarfile.FIFOTYPE), "not a regular file"),
    "hard link to other bytes": (lambda t: t.add(t.entries.pop(t.at("README.md"))[0].name, kind=tarfile.LNKTYPE,
                                                 link=t.entries[t.at("/refs/main")][0].name), "a link to a file with other content"),
    "hard link outside": (lambda t: t.add(t.entries.pop(t.at("README.md"))[0].name, kind=tarfile.LNKTYPE, link="/etc/passwd"),
                          "a link to a file with other content"),
    "twice": (lambda t: t.entries.append(t.entries[t.at("README.md")]), "twice"),
    "manifest twice": (lambda t: t.entries.insert(2, t.entries[1]), "not in its manifest"),
    "without one": (lambda t: t.entries.pop(t.at("README.md")), "is truncated"),
    "without words": (lambda t: t.entries.pop(t.at("tree.json")), "does not come before the files"),
    "files first": (files_first, "does not come before the files"),
    "no sums": (lambda t: t.entries.pop(0), "does not begin with SHA256SUMS"),
    "no manifest": (lambda t: t.entries.pop(1), "does not begin with SHA256SUMS"),
    "longer": (lambda t: t.change("README.md", b"# demo\n\n"), "8 bytes, but 7 in the manifest"),
    "a byte": (lambda t: t.change("model.safetensors", bytes(3 << 20)), "is damaged: its SHA-256 differs"),
    "a byte of words": (lambda t: t.change("tree.json", t.entries[t.at("tree.json")][1].replace(b"demo", b"DEMO", 1)[::-1]),
                        "tree.json\" is damaged"),
    "config and manifest": (lying_config, "config.json: the bytes do not match the git id"),
    "model and manifest": (lying_model, "differ from the commit's listing"),
    "other words": (other_words, "of another repository or commit"),
    "manifest alone": (lambda t: t.manifest(lambda v: v.update(x=1), honest=False), "MANIFEST.json is damaged"),
    "version": (lambda t: t.manifest(lambda v: v.update(version=2)), "version 2"),
    "format": (lambda t: t.manifest(lambda v: v.update(format="other")), "not the manifest of a bundle"),
    "manifest dotdot": (lambda t: t.manifest(lambda v: file_of(v).update(path="../../x")), "invalid path of a file"),
    "manifest id": (lambda t: t.manifest(lambda v: v["revisions"][0].update(id="../x")), "invalid type, id, revision"),
    "manifest commit": (lambda t: t.manifest(lambda v: v["revisions"][0].update(commit="..")), "invalid type, id, revision"),
    "manifest revision": (lambda t: t.manifest(lambda v: v["revisions"][0].update(revision="a/../b")), "invalid type, id, revision"),
    "manifest path twice": (lambda t: t.manifest(lambda v: v["revisions"][0]["files"].append(file_of(v))), "names \"hub/"),
    "huge": (lambda t: t.manifest(lambda v: file_of(v).update(size=1 << 50)), "in the manifest"),
    "one more in the manifest": (lambda t: t.manifest(lambda v: v["revisions"][0]["files"].append(
        {"path": "zz", "size": 1, "sha256": "0" * 64})), "has more files than"),
    "not json": (lambda t: t.change("MANIFEST.json", b"{"), "damaged"),
}


def refused(far, path, says, codes=(65, 69), *args):
    done = far.ctl("hf", "import", str(path), *args, check=False)
    lines = done.stderr.splitlines()
    assert done.returncode in codes and len(lines) == 1 and lines[0].startswith("mirrorctl: "), done
    assert says in lines[0] and len(lines[0]) < 300, lines[0]
    return lines[0]


def test_spoilt_tars(near, far, demo, tmp_path):
    good = tmp_path / "good.tar"
    export(near, "org/demo", to=good)
    for name, (spoil, says) in SPOILT.items():
        t = Tar(good)
        spoil(t)
        (tmp_path / "bad.tar").write_bytes(t.pack())
        print(name, refused(far, tmp_path / "bad.tar", says, (65, 69), "--deep"))
    nothing_came(far)
    data = good.read_bytes()
    for cut in (0, 100, 512, 700, 5000, len(data) // 2, len(data) - 80_000, len(data) - 10_000):
        (tmp_path / "bad.tar").write_bytes(data[:cut])
        print(cut, refused(far, tmp_path / "bad.tar", "", (65,), "--deep"))
    for junk in (b"junk" * 5000, bytes(20000), b"\x1f\x8b" + bytes(1000), os.urandom(30000)):
        (tmp_path / "bad.tar").write_bytes(junk)
        refused(far, tmp_path / "bad.tar", "")
    nothing_came(far)
    done = far.ctl("hf", "import", "--digest", "0" * 64, str(good), check=False)
    assert done.returncode == 65 and "--digest" in done.stderr
    assert far.ctl("hf", "import", "--digest", "0", str(good), check=False).returncode == 64
    done = far.ctl("hf", "import", "--into", "none", str(good), check=False)
    assert done.returncode == 66 and "there is no repo" in done.stderr
    nothing_came(far)
    far.ctl("hf", "import", str(good))
    serves(far, demo)


@pytest.mark.parametrize("end, data, says", [
    ("model.safetensors", bytes(3 << 20), "model.safetensors: the bytes do not match the announced SHA-256"),
    ("README.md", b"# DEMO\n", "README.md: the bytes do not match the git id")], ids=["lfs", "git"])
def test_a_daemon_that_is_lied_to(near, far, demo, tmp_path, end, data, says):
    """It holds all that comes against the listing, whoever sends it."""
    export(near, "org/demo", to=tmp_path / "good.tar")
    t = Tar(tmp_path / "good.tar")
    t.change(end, data)
    (tmp_path / "bad.tar").write_bytes(t.pack())
    refused(far, tmp_path / "bad.tar", says)
    nothing_came(far)


def test_an_endless_tar(near, far, demo, tmp_path):
    """A writer that never ends is left as soon as what it sends is none of the bundle's."""
    export(near, "org/demo", to=tmp_path / "good.tar")
    t = Tar(tmp_path / "good.tar")
    head = t.pack().rstrip(b"\0")
    head += bytes(-len(head) % 512)
    more = tarfile.TarInfo("hub/more")
    more.size = 1 << 40
    run = subprocess.Popen([BUILD / "mirrorctl", "--socket", far.socket, "hf", "import", "-"], stdin=subprocess.PIPE,
                           stderr=subprocess.PIPE, env=dict(os.environ, **SANITIZERS))
    sent = 0
    try:
        run.stdin.write(head + more.tobuf(tarfile.PAX_FORMAT))
        while sent < 1 << 30:
            sent += run.stdin.write(bytes(1 << 20))
    except BrokenPipeError:
        pass
    _, err = run.communicate(timeout=240)
    assert run.returncode == 65 and b"not in its manifest" in err and sent < 1 << 30
    nothing_came(far)


def test_spoilt_folders(near, far, demo, tmp_path):
    good = tmp_path / "good"
    export(near, "org/demo", to=good)
    at = pathlib.Path("hub/models--org--demo/snapshots", demo.sha)

    def link(p):
        (p / at / "README.md").unlink()
        (p / at / "README.md").symlink_to("/etc/passwd")

    def link_folder(p):
        shutil.move(p / at / "sub", p / "elsewhere")
        (p / at / "sub").symlink_to(p / "elsewhere")

    def pipe(p):
        (p / at / "README.md").unlink()
        os.mkfifo(p / at / "README.md")

    def shorter(p):
        (p / at / "model.safetensors").write_bytes(b"short")

    def other(p):
        (p / at / "model.safetensors").unlink()
        (p / at / "model.safetensors").write_bytes(bytes(3 << 20))

    for spoil, says in ((link, "not a regular file"), (link_folder, "not a regular file"), (pipe, "not a regular file"), (shorter, "has 5 bytes"),
                        (other, "its SHA-256 differs"), (lambda p: (p / at / "config.json").unlink(), "is missing from the bundle"),
                        (lambda p: shutil.rmtree(p / "words"), "is missing from the bundle")):
        bad = tmp_path / "bad"
        shutil.copytree(good, bad)
        spoil(bad)
        refused(far, bad, says, (65, 66), "--deep")
        shutil.rmtree(bad)
    refused(far, tmp_path, "it is not a bundle", (66,))
    refused(far, "/dev/null", "")
    nothing_came(far)
    (good / "notes.txt").write_text("what else is on the disk is left alone")
    far.ctl("hf", "import", str(good))
    serves(far, demo)


# --- kills and full disks ---

@pytest.mark.parametrize("point", ["carry.file:1", "carry.file:4", "carry.commit", "carry.committed"])
def test_killed(near, far, hub, demo, tmp_path, point):
    export(near, "org/demo", to=tmp_path / "a")
    far.stop()
    far.env = {"MIRROR_CRASH_AT": point}
    far.start()
    done = far.ctl("hf", "import", str(tmp_path / "a"), check=False)
    assert done.returncode == 75 and "closed the connection" in done.stderr
    far.child.wait(120)
    far.child = None
    far.env = {}
    far.start()
    assert far.ctl_json("verify", "--deep")["clean"]
    if point != "carry.committed":
        assert objects(far) == []
    got = far.ctl_json("hf", "import", str(tmp_path / "a"))
    assert (got["files_here"] > 0) == (point != "carry.file:1"), "what had come is found, but for small files that waited for others"
    hub.down()
    serves(far, demo)
    assert far.ctl_json("verify", "--deep")["clean"]


def test_a_client_that_is_killed(near, far, demo, tmp_path):
    export(near, "org/demo", to=tmp_path / "a.tar")
    data = (tmp_path / "a.tar").read_bytes()
    run = subprocess.Popen([BUILD / "mirrorctl", "--socket", far.socket, "hf", "import", "-"], stdin=subprocess.PIPE,
                           env=dict(os.environ, **SANITIZERS))
    run.stdin.write(data[:len(data) // 2])
    run.stdin.flush()
    run.kill()
    run.wait()
    assert objects(far) == []
    far.ctl("hf", "import", str(tmp_path / "a.tar"))
    serves(far, demo)
    far.stop()  # and no thread waits for a client that is gone


def test_a_stop_does_not_wait_for_a_slow_tape(near, far, demo, tmp_path):
    export(near, "org/demo", to=tmp_path / "a.tar")
    data = (tmp_path / "a.tar").read_bytes()
    run = subprocess.Popen([BUILD / "mirrorctl", "--socket", far.socket, "hf", "import", "-"], stdin=subprocess.PIPE,
                           stderr=subprocess.PIPE, env=dict(os.environ, **SANITIZERS))
    run.stdin.write(data[:len(data) // 2])
    run.stdin.flush()
    far.says("import.begin")
    far.stop()
    run.stdin.close()
    assert run.wait(120) != 0
    run.stderr.close()
    far.start()
    assert objects(far) == [] and far.ctl_json("verify", "--deep")["clean"]


def test_no_room(near, mirrord, demo, tmp_path):
    export(near, "org/demo", to=tmp_path / "a.tar")
    far = mirrord(nowhere() + HOSTED + 'storage { quota = "2m" reserve = "16m" }')
    line = refused(far, tmp_path / "a.tar", "", (73,))
    assert "space" in line or "quota" in line or "room" in line
    nothing_came(far)
    far.config = nowhere() + HOSTED
    far.stop()
    far.start()
    far.ctl("hf", "import", str(tmp_path / "a.tar"))
    serves(far, demo)


def test_what_was_imported_stays(near, mirrord, demo, hub, tmp_path, origin):
    """Nothing could fetch it again: eviction takes other things, until the pin is taken away."""
    export(near, "org/demo", to=tmp_path / "a.tar")
    far = mirrord(nowhere() + f'repo "data" {{ protocol = "generic" origin = "{origin.url}/" }}\n' +
                  'storage { quota = "16m" reserve = "16m" }')
    far.ctl("hf", "import", str(tmp_path / "a.tar"))
    assert {p["scope"] for p in far.ctl_json("cache", "pins")} == {"hf/models/org/demo/blobs/", "hf/api/models/org/demo"}
    for i in range(10):
        origin.put(f"/{i}", size=(4 << 20) + i)
        assert far.get(f"/data/{i}").status == 200
        far.settle()
    far.reaches("mirrord_cache_evicted_bytes_total", 4 << 20)
    hub.down()
    serves(far, demo)
