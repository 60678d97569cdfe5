"""Repositories of a Hub that are kept whole: listed by their commit, fetched ahead of demand, answered when the Hub is gone."""
import json
import subprocess
from urllib.parse import quote

import pytest

from harness.hub import Big, read, sha256_of
from harness.mirrord import BUILD

FILES = {
    ".gitattributes": b"*.safetensors filter=lfs\n", "README.md": b"# demo\n", "config.json": b'{"a": 1}', "empty.txt": b"",
    "model.safetensors": Big(3 << 20), "sub/with blank.txt": b"blank\n", "sub/100% +i#?.txt": b"odd\n",
    "sub/deep/weights.bin": Big(70000, 2),
}
SYNC = 'sync {{ repos = {{ {0} }} backoff = "100ms" {1} }}'


@pytest.fixture
def hub(hub):
    hub.page = 3
    hub.demo = hub.repo("org/demo", files=FILES)
    return hub


@pytest.fixture
def start(mirrord, hub):
    def begin(repos='"org/demo"', more="", repo_more=""):
        return mirrord(hub.config(more=SYNC.format(repos, more) + repo_more))
    return begin


def run(m, *args, rc=0):
    done = m.ctl("--json", "sync", "run", "hf", "--wait", *args, check=False)
    assert done.returncode == rc, (done, m.ctl("sync", "logs", "hf", check=False).stdout)
    return json.loads(done.stdout)


def lines(m):
    return m.ctl("sync", "logs", "hf").stdout


def info(m, name="org/demo", rev=None, kind="models", wire="h1"):
    return m.get(f"/hf/api/{kind}/{name}" + (f"/revision/{quote(rev, safe='')}" if rev else ""), wire)


def check(m, repo, sha, files, rev=None, kind="models", prefix="", name=None, wire="h1"):
    """What clients ask of a commit: the branch, the listing, each file's head and bytes."""
    name = name or repo.name
    said = json.loads(info(m, name, rev, kind, wire).body)
    assert said["sha"] == sha and said["id"] == repo.name and {s["rfilename"] for s in said["siblings"]} == set(files)
    assert "xetEnabled" not in said and "downloads" not in said
    listed = json.loads(m.get(f"/hf/api/{kind}/{name}/tree/{sha}?recursive=true", wire).body)
    assert {e["path"] for e in listed if e["type"] == "file"} == set(files)
    for path, data in files.items():
        got = m.get(f"/hf/{prefix}{name}/resolve/{sha}/{quote(path)}", wire)
        assert (got.status, got.body) == (200, read(data)), path
        assert got["etag"] == f'"{repo.etag(path, sha)}"' and got["x-repo-commit"] == sha


def test_a_repository_is_kept_whole(start, hub, wire):
    m = start()
    assert info(m).status == 503
    done = run(m)
    assert done["outcome"] == "published" and done["listed"] == len(FILES) + 3
    hub.down()
    check(m, hub.demo, hub.demo.sha, FILES, wire=wire)
    check(m, hub.demo, hub.demo.sha, FILES, rev="main", wire=wire)
    check(m, hub.demo, hub.demo.sha, FILES, rev=hub.demo.sha, wire=wire)
    part = m.get("/hf/org/demo/resolve/main/model.safetensors", wire, headers={"Range": "bytes=100-199"})
    assert (part.status, part.body) == (206, read(FILES["model.safetensors"], 100, 200))
    head = m.get("/hf/org/demo/resolve/main/model.safetensors", wire, method="HEAD")
    assert head["x-linked-size"] == str(3 << 20) and head["content-length"] == str(3 << 20)
    hub.up()


def test_files_are_left_out_by_rules(start, hub, wire):
    m = start(more='filter = {"+ *.safetensors", "- /sub/deep/", "- *.json"} max_size = "1m"')
    run(m)
    left = {p: d for p, d in FILES.items() if p not in ("model.safetensors", "sub/deep/weights.bin", "config.json")}
    check(m, hub.demo, hub.demo.sha, left, wire=wire)
    for path in ("model.safetensors", "sub/deep/weights.bin", "config.json"):
        assert m.get(f"/hf/org/demo/resolve/main/{path}", wire).status == 404
    listed = json.loads(m.get("/hf/api/models/org/demo/tree/main/sub", wire).body)
    assert {e["path"] for e in listed} == {p for p in left if p.startswith("sub/")}
    assert run(m)["outcome"] == "unchanged"


def test_other_rules_make_another_snapshot(start, hub):
    m = start(more='filter = {"- *.bin"}')
    run(m)
    m.config = m.config.replace("- *.bin", "- *.md")
    m.reload()
    assert run(m)["outcome"] == "published"
    check(m, hub.demo, hub.demo.sha, {p: d for p, d in FILES.items() if p != "README.md"})


def test_no_change_is_one_question(start, hub):
    m = start('"org/demo", "org/other@main"')
    hub.repo("org/other", files={"a.txt": b"a"})
    run(m)
    hub.calls.clear(), hub.cdn_calls.clear()
    assert run(m)["outcome"] == "unchanged"
    assert len(hub.calls) == 2 and not hub.cdn_calls, hub.calls


def test_a_new_commit_and_the_way_back(start, hub, wire):
    m = start()
    first = hub.demo.sha
    run(m)
    second = hub.demo.commit({"config.json": b'{"a": 2}', "new.bin": Big(50000, 7), "README.md": None})
    files = dict(FILES, **{"config.json": b'{"a": 2}', "new.bin": Big(50000, 7)})
    del files["README.md"]
    hub.calls.clear(), hub.cdn_calls.clear()
    done = run(m)
    assert done["outcome"] == "published" and done["seq"] == 2
    fetched = [c for c in hub.calls if "/resolve" in c[1]]
    assert {c[1].rsplit("/", 1)[-1] for c in fetched} == {"config.json", "new.bin"} and len(hub.cdn_calls) == 1
    hub.down()
    check(m, hub.demo, second, files, wire=wire)
    check(m, hub.demo, first, FILES, rev=first, wire=wire)  # who was told of it before goes on
    diff = {r["path"]: r["what"] for r in m.ctl_json("snapshot", "diff", "hf", "v1")}
    at = "models/org/demo@main/files/"
    assert diff[at + "config.json"] == "changed" and diff[at + "new.bin"] == "added" and diff[at + "README.md"] == "removed"
    assert not {p for p in diff if p.startswith(at)} - {at + n for n in ("config.json", "new.bin", "README.md")}
    m.ctl("snapshot", "rollback", "hf", "v1")
    check(m, hub.demo, first, FILES, wire=wire)
    assert info(m, rev=second).status == 404 and info(m, rev=second)["x-error-code"] == "RevisionNotFound"
    hub.up()


def test_kinds_revisions_and_other_names(start, hub):
    data = hub.repo("org/data", "datasets", files={"train.jsonl": b"{}\n", "big.bin": Big(40000, 3)})
    pr = hub.demo.commit({"config.json": b'{"a": 3}'}, ref="pr")
    hub.demo.refs["refs/pr/1"] = pr
    hub.rename("demo", "org/demo")
    m = start(f'"demo", "org/demo@refs/pr/1", "datasets/org/data", "org/demo@{hub.demo.sha}"')
    run(m)
    hub.down()
    check(m, hub.demo, hub.demo.sha, FILES)
    check(m, hub.demo, hub.demo.sha, FILES, name="demo")
    check(m, hub.demo, pr, {"config.json": b'{"a": 3}'}, rev="refs/pr/1")
    check(m, data, data.sha, {"train.jsonl": b"{}\n", "big.bin": Big(40000, 3)}, kind="datasets", prefix="datasets/")
    for name, rev, code in (("org/none", None, "RepoNotFound"), ("org/demo", "v9", "RevisionNotFound"),
                            ("org/demo", "0" * 40, "RevisionNotFound")):
        got = info(m, name, rev)
        assert (got.status, got["x-error-code"]) == (404, code)
    got = m.get("/hf/org/demo/resolve/main/none.txt")
    assert (got.status, got["x-error-code"], got["x-repo-commit"]) == (404, "EntryNotFound", hub.demo.sha)
    assert m.get("/hf/api/models?search=x").status == 404
    assert json.loads(m.get("/hf/api/models/org/demo/refs").body)["branches"][0]["targetCommit"] == hub.demo.sha
    assert json.loads(m.get(f"/hf/api/models/org/demo/commits/main").body)[0]["id"] == hub.demo.sha
    hub.up()


def test_the_mirrors_own_token(start, hub, tmp_path):
    hub.users["hf_service"] = "service"
    hub.repo("meta/gated", files={"weights.bin": Big(50000, 5), "a.txt": b"a"}, gated=True, readers={"hf_service"})
    token = tmp_path / "token"
    token.write_text("hf_service")
    m = start('"meta/gated"', repo_more=f' authorization = "file:{token}"')
    run(m)
    assert m.get("/hf/meta/gated/resolve/main/weights.bin").body == read(Big(50000, 5))


@pytest.mark.parametrize("what", ["gated", "gone", "lie", "lfs lie", "endless", "cut page", "no file"])
def test_trouble_leaves_the_old_snapshot(start, hub, what):
    m = start(more="tries = 1")
    first = hub.demo.sha
    run(m)
    hub.demo.commit({"config.json": b'{"a": 2}', "new.bin": Big(50000, 7)})
    if what == "gated":
        hub.demo.gated = True
    elif what == "gone":
        del hub.repos["models", "org/demo"]
    elif what == "lie":
        hub.order("body:config.json", "flip", times=100)
    elif what == "lfs lie":
        hub.order(sha256_of(Big(50000, 7)), "flip", times=100, cdn=True)
    elif what == "endless":
        hub.order("/tree/", {"Link": f'<{hub.url}/api/models/org/demo/tree/main?cursor=1>; rel="next"'}, times=10000)
    elif what == "cut page":
        hub.order("/tree/", b"[{", times=100)
    elif what == "no file":
        hub.order("resolve/.*/config.json", 404, times=100)
    failed = run(m, rc=69)
    assert failed["outcome"] == "failed", failed
    check(m, hub.demo, first, FILES)
    if what in ("gated", "gone"):
        assert "org/demo" in failed["why"] + lines(m), "which repository it was"


def test_what_is_fetched_is_what_git_and_lfs_name(start, hub):
    """A lie once is asked for again; what comes then is right."""
    hub.order("body:config.json", "flip")
    hub.order(sha256_of(FILES["model.safetensors"]), "flip", cdn=True)
    m = start()
    run(m)
    check(m, hub.demo, hub.demo.sha, FILES)
    assert m.ctl("verify", check=False).returncode == 0


def test_killed_half_way_nothing_comes_twice(start, hub):
    hub.order("body:config.json", 404, times=100)
    hub.order("resolve-cache.*/config.json", 503, times=100)
    m = start(more="tries = 1")
    run(m, rc=69)
    hub.script.clear()
    hub.cdn_bytes.clear()
    run(m)
    assert not hub.cdn_bytes
    check(m, hub.demo, hub.demo.sha, FILES)


def test_settings_that_make_no_sense(tmp_path, hub):
    for n, (text, said) in enumerate((
            (hub.config(more="sync { }"), "names no repositories"),
            (hub.config(more='sync { repos = {"a b"} }'), "is not the name of a repository"),
            (hub.config(more='credentials = caller sync { repos = {"a/b"} }'), "a sync has no caller"),
            (f'repo "x" {{ protocol = "generic" origin = "{hub.url}" sync {{ repos = {{"a/b"}} }} }}', "only for protocol hf"))):
        conf = tmp_path / f"{n}.conf"
        conf.write_text(f'state_dir = "{tmp_path}/s"\nlisten "127.0.0.1:0" {{ }}\n{text}\n')
        done = subprocess.run([BUILD / "mirrord", "-t", "-c", conf], capture_output=True, text=True, check=False)
        assert done.returncode == 78 and said in done.stderr, done.stderr
