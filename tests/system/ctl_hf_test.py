"""mirrorctl hf: what is here of a Hub's repositories, and of our own; on the fixture Hub."""
import json
import re
import urllib.request

import pytest

from harness.hub import Big, Hub, sha256_of

FILES = {"README.md": b"# demo\n", "config.json": b"{}", "model.safetensors": Big(3 << 20), "sub/weights.bin": Big(70000, 2)}
TOTAL = sum(d.size if isinstance(d, Big) else len(d) for d in FILES.values())
MODELS = 'repo "models" { protocol = "hosted" }\n'


@pytest.fixture
def hub():
    with Hub() as h:
        yield h
        assert not h.leaks, h.leaks


@pytest.fixture
def demo(hub):
    return hub.repo("org/demo", files=FILES)


@pytest.fixture
def hf(mirrord, hub, demo):
    return mirrord(hub.config() + "\n" + MODELS)


def fetch(m, path, repo="org/demo", rev="main", prefix=""):
    got = m.get(f"/hf/{prefix}{repo}/resolve/{rev}/{path}")
    assert got.status == 200, got.body
    return got


def ls(m, *args):
    return {r["id"]: r for r in m.ctl_json("hf", "ls", *args)}


def test_ls_and_show(hf, hub, demo):
    assert hf.ctl_json("hf", "ls") == []
    fetch(hf, "config.json")
    fetch(hf, "model.safetensors")
    hf.settle()
    calls = len(hub.calls)
    row = ls(hf)["org/demo"]
    assert (row["repo"], row["kind"], row["type"], row["commit"]) == ("hf", "pull-through", "models", demo.sha)
    assert (row["files"], row["bytes"], row["files_here"], row["bytes_here"]) == (4, TOTAL, 2, (3 << 20) + 2)
    assert row["last_asked_unix_s"] > 0 and not row["pinned"] and not row["held"]
    main, = hf.ctl_json("hf", "show", "org/demo")
    assert (main["revision"], main["commit"], main["files_here"], main["files"]) == ("main", demo.sha, 2, 4)
    for args in (("hf", "org/demo", "main"), ("org/demo@main",), ("hf/org/demo@" + demo.sha,), ("hf", "org/demo", demo.sha[:9]),
                 ("hf", "ORG/Demo", "main")):
        files = {f["path"]: f for f in hf.ctl_json("hf", "show", *args)}
        assert {p: f["state"] for p, f in files.items()} == {
            "README.md": "absent", "config.json": "whole", "model.safetensors": "whole", "sub/weights.bin": "absent"}, args
        assert files["model.safetensors"]["sha256"] == sha256_of(FILES["model.safetensors"])
        assert files["config.json"]["git_oid"] == demo.etag("config.json") and files["config.json"]["sha256"] is None
    assert len(hub.calls) == calls, "looking asks the Hub nothing"


def test_revisions(hf, hub, demo):
    old = demo.sha
    new = demo.commit({"config.json": b"[]"}, ref="v2")
    fetch(hf, "config.json")
    fetch(hf, "config.json", rev="v2")
    fetch(hf, "config.json", rev="v2")
    rows = [(r["revision"], r["commit"], r["files_here"]) for r in hf.ctl_json("hf", "show", "hf", "org/demo")]
    assert rows == [("main", old, 1), ("v2", new, 1)]
    demo.refs["main"] = new  # the mirror has not asked yet
    assert hf.ctl_json("hf", "show", "hf", "org/demo")[0]["commit"] == old


def test_partly_here(hf, hub, demo):
    """A file under way, and one whose fetching broke off."""
    big = Big(64 << 20, 3)
    hub.repo("org/big", files={"big.bin": big})
    hub.order(".", ("slow", 8 << 20), times=100, cdn=True)
    with urllib.request.urlopen(hf.url("/hf/org/big/resolve/main/big.bin"), timeout=60) as client:
        client.read(1 << 20)
        file, = hf.ctl_json("hf", "show", "hf", "org/big", "main")
        assert file["state"] == "partial" and 0 < file["have"] < big.size
    assert re.search(r"big.bin\t67108864\tpartial \d+%\t", hf.ctl("hf", "show", "hf", "org/big", "main").stdout)


def test_kinds_names_and_the_lost(hf, hub, demo):
    hub.repo("org/set", kind="datasets", files={"a.parquet": Big(5000)})
    hub.repo("openai-community/gpt2", files={"config.json": b"{}"})
    hub.rename("gpt2", "openai-community/gpt2")
    fetch(hf, "a.parquet", repo="org/set", prefix="datasets/")
    fetch(hf, "config.json", repo="gpt2")
    token = hf.token("ci", "publish:models/*")
    assert hf.put("/models/me/m/x.bin", b"one", token=token).status == 201
    assert hf.put("/models/me/m/x.bin", b"two", token=token).status == 201
    hf.settle()
    assert set(ls(hf)) == {"org/set", "openai-community/gpt2", "me/m"}
    assert set(ls(hf, "hf")) == {"org/set", "openai-community/gpt2"}
    assert set(ls(hf, "hf", "datasets/")) == {"org/set"} and set(ls(hf, "hf", "openai")) == {"openai-community/gpt2"}
    for spelled in ("gpt2", "openai-community/gpt2"):
        assert [f["state"] for f in hf.ctl_json("hf", "show", "hf", spelled, "main")] == ["whole"]
    assert [f["path"] for f in hf.ctl_json("hf", "show", "datasets/org/set@main")] == ["a.parquet"]
    mine = ls(hf, "models")["me/m"]
    assert (mine["kind"], mine["files"], mine["bytes_here"], mine["revisions"]) == ("hosted", 1, 3, 2)
    rows = {r["revision"]: r["commit"] for r in hf.ctl_json("hf", "show", "models/me/m")}
    assert set(rows) == {"main", "v1", "v2"} and rows["main"] == rows["v2"] != rows["v1"]
    for args, code, says in ((("org/none",), 66, "no client has asked"), (("models/me/none",), 66, "has no me/none"),
                             (("hf", "org/set@v9"), 66, "nothing is known"), (("datasets/org/set@v9",), 66, "no revision \"v9\""),
                             (("a/b/c/d",), 65, "names no repository"), (("none", "org/set"), 66, "is no repo")):
        done = hf.ctl("hf", "show", *args, check=False)
        assert done.returncode == code and says in done.stderr, (args, done)
    assert hf.ctl("hf", "ls", "nope", check=False).returncode == 66


def test_synced(mirrord, hub, demo):
    hub.repo("org/set", kind="datasets", files={"a.parquet": Big(5000)})
    m = mirrord(hub.config(more='sync { repos = {"org/demo", "org/demo@v1/x", "datasets/org/set"} }'))
    old = demo.sha
    demo.refs["v1/x"] = demo.commit({**FILES, "config.json": b"[1]"}, ref="v1/x")
    assert json.loads(m.ctl("--json", "sync", "run", "hf", "--wait").stdout)["outcome"] == "published"
    rows = ls(m)
    assert set(rows) == {"org/demo", "org/set"} and rows["org/demo"]["kind"] == "synced"
    assert (rows["org/demo"]["revisions"], rows["org/demo"]["files_here"], rows["org/demo"]["commit"]) == (2, 4, old)
    revisions = {r["revision"]: r["commit"] for r in m.ctl_json("hf", "show", "org/demo")}
    assert revisions == {"main": old, "v1/x": demo.refs["v1/x"]}
    for rev in ("v1/x", demo.refs["v1/x"]):
        files = {f["path"]: f for f in m.ctl_json("hf", "show", "hf", "org/demo", rev)}
        assert set(files) == set(FILES) and files["config.json"]["size"] == 3
    assert m.ctl("hf", "show", "org/none", check=False).returncode == 66


def test_whoever_was_let_in_is_told_to_administrators_alone(hf, hub):
    """A private repository that one caller's token opened."""
    hub.users["hf_a"] = "a"
    hub.repo("org/secret", private=True, readers={"hf_a"}, files={"config.json": b"{}"})
    got = hf.get("/hf/org/secret/resolve/main/config.json", headers={"Authorization": "Bearer hf_a"})
    assert got.status == 200
    hf.settle()
    assert ls(hf)["org/secret"]["files_here"] == 1
    assert [f["state"] for f in hf.ctl_json("hf", "show", "org/secret@main")] == ["whole"]
