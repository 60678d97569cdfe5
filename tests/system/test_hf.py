"""The Hugging Face Hub pulled through, on the fixture Hub: the contract of resolve, listings, rights, trouble, counted calls."""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import socket
import subprocess
import threading
import time
import urllib.parse

import pytest

from harness.hub import Big, git_oid, read, sha256_of, size_of
from harness.mirrord import BUILD, SLOW, until

FILES = {
    ".gitattributes": b"*.bin filter=lfs\n",
    "README.md": b"# demo\n",
    "config.json": b'{"model_type": "gpt2"}',
    "empty.txt": b"",
    "model.safetensors": Big(3 << 20),
    "sub/with blank.txt": b"blank\n",
    "sub/100% ünï+code#?.txt": b"strange\n",
    "sub/deep/weights.bin": Big(70000, 2),
}
LFS = [p for p, d in FILES.items() if isinstance(d, Big)]
CALM = "rule '^api/.*/revision/' { ttl = 1h }"  # a branch stays known for as long as the slowest machine may need
GONE = ("location", "x-xet-hash", "x-xet-refresh-route", "x-powered-by", "x-amz-request-id")


@pytest.fixture
def hub(hub):
    hub.page = 3
    return hub


@pytest.fixture
def demo(hub):
    return hub.repo("org/demo", files=FILES)


@pytest.fixture
def hf(mirrord, hub, demo):
    return mirrord(hub.config())


def file_path(path, repo="org/demo", rev="main", prefix=""):
    return f"/hf/{prefix}{repo}/resolve/{urllib.parse.quote(rev, safe='')}/{urllib.parse.quote(path)}"


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def no_way_out(hub, reply):
    """Neither the head nor the body leads anywhere but here."""
    for name in GONE:
        assert reply[name] is None, f"{name}: {reply[name]}"
    assert "xet" not in (reply["link"] or "")
    for host in (hub.url, hub.cdn, "127.0.0.2"):
        assert host not in str(reply.headers)


# --- the contract of resolve ---

@pytest.mark.parametrize("path", FILES)
def test_a_file(hf, hub, demo, wire, path):
    data, tag = read(FILES[path]), f'"{demo.etag(path)}"'
    for rev in ("main", demo.sha):
        head = hf.get(file_path(path, rev=rev), wire, head=True)
        assert (head.status, head["content-length"], head["etag"]) == (200, str(len(data)), tag)
        assert head["x-repo-commit"] == demo.sha and head["accept-ranges"] == "bytes"
        assert head["content-disposition"].startswith("inline; filename*=UTF-8''")
        assert (head["x-linked-etag"], head["x-linked-size"]) == (
            (tag, str(len(data))) if path in LFS else (None, None))
        body = hf.get(file_path(path, rev=rev), wire)
        assert (body.status, body.body, body["etag"], body["x-repo-commit"]) == (200, data, tag, demo.sha)
        assert body["content-encoding"] is None and body["content-length"] == str(len(data))
        no_way_out(hub, head)
        no_way_out(hub, body)


def test_ranges_and_conditions(hf, demo, wire):
    data, at = read(FILES["model.safetensors"]), file_path("model.safetensors", rev=demo.sha)
    for value, part in (("bytes=0-0", data[:1]), ("bytes=100-199", data[100:200]), ("bytes=3000000-", data[3000000:]),
                        ("bytes=-5", data[-5:])):
        got = hf.get(at, wire, headers={"Range": value})
        assert got.status == 206 and got.body == part, value
        assert got["content-range"].endswith(f"/{len(data)}") and got["x-repo-commit"] == demo.sha
    past = hf.get(at, wire, headers={"Range": f"bytes={len(data)}-"})
    assert (past.status, past["content-range"]) == (416, f"bytes */{len(data)}")
    assert hf.get(at, wire, headers={"If-None-Match": f'"{demo.etag("model.safetensors")}"'}).status == 304
    assert hf.get(at, wire, head=True, headers={"If-None-Match": f'"{demo.etag("model.safetensors")}"'}).status == 304
    joined = hf.get(at, wire, headers={"Range": "bytes=5-9", "If-Range": f'"{demo.etag("model.safetensors")}"'})
    assert joined.status == 206 and joined.body == data[5:10]


def test_heads_ask_for_no_file(hf, hub, demo):
    """All that a HEAD tells stands in the listing: no file is asked for, also of a commit never seen before."""
    for path in FILES:
        assert hf.get(file_path(path, rev=demo.sha), head=True).status == 200
    assert not [c for c in hub.calls if "/resolve" in c[1]] and not hub.cdn_calls
    assert len(hub.api_calls()) == 5, "whose it is, and a listing in four pages"


def test_revisions(hf, hub, demo):
    old = demo.sha
    new = demo.commit({"config.json": b"{}"}, ref="side/branch")
    demo.refs["refs/pr/1"] = new
    demo.refs["v1.0"] = old
    for rev, sha in (("side/branch", new), ("refs/pr/1", new), ("v1.0", old), (new, new), (old, old)):
        got = hf.get(file_path("config.json", rev=rev))
        assert got.status == 200 and got["x-repo-commit"] == sha, rev
        assert got.body == demo.commits[sha]["config.json"]
    for rev in ("nothing", "0" * 40):
        got = hf.get(file_path("config.json", rev=rev), head=True)
        assert (got.status, got["x-error-code"]) == (404, "RevisionNotFound"), rev


def test_words_of_refusal(hf, hub, demo, wire):
    got = hf.get(file_path("tokenizer.json"), wire, head=True)
    assert (got.status, got["x-error-code"], got["x-repo-commit"]) == (404, "EntryNotFound", demo.sha)
    got = hf.get(file_path("sub"), wire)
    assert (got.status, got["x-error-code"]) == (404, "EntryNotFound")
    assert json.loads(got.body)["error"]
    got = hf.get(file_path("config.json", repo="no/body"), wire, head=True)
    assert (got.status, got["x-error-code"]) == (401, "RepoNotFound")
    got = hf.get("/hf/api/models/no/body/revision/main", wire)
    assert (got.status, got["x-error-code"]) == (401, "RepoNotFound")
    got = hf.get(f"/hf/api/models/org/demo/tree/{demo.sha}/additional_chat_templates?recursive=false", wire)
    assert (got.status, got["x-error-code"]) == (404, "EntryNotFound")
    for path in ("/hf/org/demo/resolve/main/a/../../b", "/hf/org/demo/resolve/main/a%2F..%2Fb", "/hf/org/demo/resolve/main/%00",
                 "/hf/org/demo/resolve/main/", "/hf/org/demo/resolve/main/%zz"):
        assert hf.get(path, wire).status == 400, path
    got = hf.get("/hf/api/repos/create", wire, method="POST", data=b"{}")
    assert got.status == 403 and "mirror" in got["x-error-message"]
    assert hf.get("/hf/org/demo", wire).status == 404


def test_a_no_is_remembered(hf, hub):
    for _ in range(5):
        assert hf.get(file_path("config.json", repo="no/body"), head=True).status == 401
    assert len(hub.calls) == 1


@pytest.mark.parametrize("kind,prefix", [("datasets", "datasets/"), ("spaces", "spaces/"), ("kernels", "kernels/")])
def test_other_kinds(hf, hub, kind, prefix):
    r = hub.repo("org/data", kind=kind, files={"data/train.parquet": Big(50000), "README.md": b"x"})
    got = hf.get(file_path("data/train.parquet", repo="org/data", prefix=prefix))
    assert got.status == 200 and got.body == read(Big(50000)) and got["x-repo-commit"] == r.sha
    assert json.loads(hf.get(f"/hf/api/{kind}/org/data/revision/main").body)["sha"] == r.sha


def test_bare_renamed_and_case(hf, hub):
    r = hub.repo("openai-community/gpt2", files={"config.json": b"{}", "model.safetensors": Big(100000)})
    hub.rename("gpt2", "openai-community/gpt2")
    for name in ("gpt2", "OpenAI-community/GPT2", "openai-community/gpt2"):
        for rev in ("main", r.sha):
            head = hf.get(file_path("model.safetensors", repo=name, rev=rev), head=True)
            assert head.status == 200 and head["location"] is None, (name, rev)
            got = hf.get(file_path("model.safetensors", repo=name, rev=rev))
            assert got.body == read(Big(100000)), (name, rev)
        info = json.loads(hf.get(f"/hf/api/models/{name}/revision/main").body)
        assert (info["id"], info["sha"]) == ("openai-community/gpt2", r.sha)
    assert hub.cdn_bytes == {sha256_of(Big(100000)): 100000}, "one object under all of its names"


# --- listings ---

def listed(reply):
    assert reply.status == 200 and reply["link"] is None, reply.headers
    return {e["path"]: e for e in json.loads(reply.body)}


def test_tree(hf, hub, demo, wire):
    whole = hf.get(f"/hf/api/models/org/demo/tree/{demo.sha}?recursive=True&expand=False", wire)
    no_way_out(hub, whole)
    assert b"xet" not in whole.body
    found = listed(whole)
    assert {p for p, e in found.items() if e["type"] == "file"} == set(FILES)
    assert {p for p, e in found.items() if e["type"] == "directory"} == {"sub", "sub/deep"}
    for path, data in FILES.items():
        e = found[path]
        assert e["size"] == size_of(data)
        if path in LFS:
            assert e["lfs"] == {"oid": sha256_of(data), "size": size_of(data), "pointerSize": e["lfs"]["pointerSize"]}
            assert e["lfs"]["pointerSize"] > 100
        else:
            assert e["oid"] == git_oid(data) and "lfs" not in e
    assert set(listed(hf.get("/hf/api/models/org/demo/tree/main", wire))) == {
        p for p in FILES if "/" not in p} | {"sub"}
    assert set(listed(hf.get(f"/hf/api/models/org/demo/tree/{demo.sha}/sub", wire))) == {
        "sub/deep", "sub/with blank.txt", "sub/100% ünï+code#?.txt"}
    for path in ("sub%2Fdeep", "sub/deep", "sub/deep/"):
        assert set(listed(hf.get(f"/hf/api/models/org/demo/tree/main/{path}", wire))) == {"sub/deep/weights.bin"}
    below = listed(hf.get("/hf/api/models/org/demo/tree/main/sub?recursive=1", wire))
    assert set(below) == {p for p in FILES if p.startswith("sub/")} | {"sub/deep"}


def test_paths_info(hf, demo, wire):
    form = urllib.parse.urlencode([("paths", "config.json"), ("paths", "sub/100% ünï+code#?.txt"), ("paths", "none"),
                                   ("paths", "sub"), ("expand", "False")])
    got = hf.get(f"/hf/api/models/org/demo/paths-info/{demo.sha}", wire, method="POST", data=form.encode())
    assert set(listed(got)) == {"config.json", "sub/100% ünï+code#?.txt", "sub"}
    assert hf.get(f"/hf/api/models/org/demo/paths-info/{demo.sha}", wire, method="POST", data=b"").body == b"[]"
    if wire == "h1":  # curl over h2 takes the early answer for a broken stream
        huge = hf.get(f"/hf/api/models/org/demo/paths-info/{demo.sha}", wire, method="POST", data=b"paths=a&" * 200000)
        assert huge.status == 413
    assert hf.get(f"/hf/api/models/org/demo/paths-info/{demo.sha}", wire).status == 405


def test_details(hf, hub, demo, wire):
    """expand=true: the Hub's last commits and scans, in its parts; without them while it is silent, and that is said."""
    hub.page = 3
    path, found = f"/hf/api/models/org/demo/tree/{demo.sha}?recursive=true&expand=true", {}
    while path:
        got = hf.get(path, wire)
        assert got.status == 200 and b"xet" not in got.body
        found.update({e["path"]: e for e in json.loads(got.body)})
        link = re.fullmatch(r'<([^>]*)>; rel="next"', got["link"] or "")
        path = link and "/" + link[1].split("/", 3)[3]
        assert not path or path.startswith("/hf/")
    assert {p for p, e in found.items() if e["type"] == "file"} == set(FILES)
    assert all(e["lastCommit"]["title"] == "touched " + p for p, e in found.items())
    assert all(e["securityFileStatus"]["status"] == "safe" for e in found.values() if e["type"] == "file")
    form = urllib.parse.urlencode([("paths", "config.json"), ("paths", "sub/deep/weights.bin"), ("paths", "none"), ("expand", "True")]).encode()
    ask = lambda: hf.get(f"/hf/api/models/org/demo/paths-info/{demo.sha}", wire, method="POST", data=form)  # noqa: E731
    assert {p: e["lastCommit"]["id"] for p, e in listed(ask()).items()} == {"config.json": demo.sha, "sub/deep/weights.bin": demo.sha}
    hub.down()
    hf.stop()  # what is kept is kept; the connections are not
    hf.start()
    assert "lastCommit" in listed(ask())["config.json"]
    other = hf.get(f"/hf/api/models/org/demo/tree/{demo.sha}/sub?expand=1", wire)  # not asked for before
    assert other.status == 200 and other["warning"]
    assert "lastCommit" not in json.loads(other.body)[0]


def test_info_without_xet(hf, hub, demo, wire):
    for path in ("/hf/api/models/org/demo", "/hf/api/models/org/demo/revision/main",
                 f"/hf/api/models/org/demo/revision/{demo.sha}", f"/hf/api/models/org/demo/revision/{demo.sha}?blobs=true",
                 "/hf/api/models/org/demo?blobs=True", "/hf/api/models"):
        got = hf.get(path, wire)
        assert got.status == 200 and b"xet" not in got.body and got["content-type"].startswith("application/json")
        if path != "/hf/api/models":
            assert json.loads(got.body)["sha"] == demo.sha
        no_way_out(hub, got)
    assert {s["rfilename"] for s in json.loads(hf.get("/hf/api/models/org/demo").body)["siblings"]} == set(FILES)
    assert json.loads(hf.get("/hf/api/models/org/demo/refs").body)["converts"] == []
    assert json.loads(hf.get("/hf/api/models/org/demo/commits/main").body)[0]["id"] == demo.sha
    store = json.loads(hf.get(f"/hf/api/models/org/demo/xet-read-token/{demo.sha}").body)["casUrl"]
    assert store.startswith(hf.url("/hf/")), "the only chunk store is ours"


@pytest.mark.parametrize("public", ["", "https://mirror.example/"])
def test_lists_go_on_here(mirrord, hub, demo, wire, public):
    """The next part of a list is at the mirror, by the name that the client knows it by."""
    for i in range(4):
        hub.repo(f"org/n{i}", files={"a": b"a"})
    m = mirrord((f'public_url = "{public}" ' if public else "") + hub.config())
    names, at = [], "/hf/api/models?limit=2"
    while at:
        got = m.get(at, wire)
        names += [r["id"] for r in json.loads(got.body)]
        link = re.fullmatch(r'<([^>]*)>; rel="next"', got["link"] or "")
        assert not link or link[1].startswith((public or m.url("/", wire)) + "hf/api/models?"), link
        at = link and "/hf/" + link[1].split("/hf/")[1]
    assert names == ["org/demo", "org/n0", "org/n1", "org/n2", "org/n3"]


# --- what it costs the Hub ---

def test_calls_per_commit(mirrord, hub, demo):
    """A new commit costs what its listing has in pages and one word on what the branch is; a known one nothing."""
    hub.page = 1000
    m = mirrord(hub.config(more=CALM))

    def snapshot():
        sha = json.loads(m.get("/hf/api/models/org/demo/revision/main").body)["sha"]
        for path in listed(m.get(f"/hf/api/models/org/demo/tree/{sha}?recursive=true")):
            if path in FILES:
                assert m.get(file_path(path, rev=sha), head=True).status == 200
                assert m.get(file_path(path, rev=sha)).body == read(FILES[path])

    snapshot()
    assert len(hub.api_calls()) == 2, hub.api_calls()
    gets = len(hub.calls)
    snapshot()
    assert len(hub.calls) == gets and sum(hub.cdn_bytes.values()) == sum(size_of(FILES[p]) for p in LFS)
    m.settle()
    m.stop()  # what is known is known after a restart too
    m.start()
    hub.calls.clear()
    hub.cdn_calls.clear()
    snapshot()
    assert not hub.calls and not hub.cdn_calls


def test_a_herd_on_a_cold_repo(mirrord, hub):
    """100 clients at once: each byte leaves the Hub once, and so does each word."""
    files = {f"part-{i}.safetensors": Big(2 << 20, i) for i in range(10)} | {"config.json": b"{}"}
    r = hub.repo("org/big", files=files)
    hub.page = 1000
    m = mirrord(hub.config(more=CALM))
    for name in ("config.json", "part-0.safetensors"):
        assert name in r.commits[r.sha]

    def one(i):
        path = list(files)[i % len(files)]
        assert m.get("/hf/api/models/org/big/revision/main").status == 200
        assert m.get(file_path(path, repo="org/big", rev=r.sha), head=True).status == 200
        got = m.get(file_path(path, repo="org/big", rev=r.sha))
        return got.status == 200 and hashlib.sha256(got.body).hexdigest() == sha256_of(files[path])

    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        assert all(pool.map(one, range(100)))
    assert len(hub.api_calls()) == 2, hub.api_calls()
    assert hub.cdn_bytes == {sha256_of(d): size_of(d) for d in files.values() if isinstance(d, Big)}


def test_an_unchanged_file_of_a_new_commit(hf, hub, demo):
    old = demo.sha
    assert hf.get(file_path("model.safetensors", rev=old)).status == 200
    new = demo.commit({"config.json": b"{1}"})
    hub.cdn_calls.clear()
    got = hf.get(file_path("model.safetensors", rev=new))
    assert got["x-repo-commit"] == new and got.body == read(FILES["model.safetensors"]) and not hub.cdn_calls


def test_alias_moves(mirrord, hub, demo):
    m = mirrord(hub.config(more="rule '^api/.*/revision/' { ttl = 1s }"))
    old = demo.sha
    assert m.get(file_path("config.json"))["x-repo-commit"] == old
    new = demo.commit({"config.json": b"[2]"})
    until(lambda: m.get(file_path("config.json"))["x-repo-commit"] == new)
    assert m.get(file_path("config.json")).body == b"[2]"
    assert m.get(file_path("config.json", rev=old)).body == FILES["config.json"]


# --- what the Hub promises is held against what it gives ---

@pytest.mark.parametrize("path", ["model.safetensors", "config.json"])
def test_wrong_bytes(hf, hub, demo, path):
    if path in LFS:
        hub.order(".", "flip", times=100, cdn=True)
    else:
        hub.order("^body:" + path, "flip", times=100)
    got = hf.get(file_path(path, rev=demo.sha))
    assert not (got.whole and got.status == 200), "bytes that are not the file's were served as it"
    hub.script.clear()
    hub.cdn_script.clear()
    until(lambda: hf.get(file_path(path, rev=demo.sha)).status == 200)
    assert hf.get(file_path(path, rev=demo.sha)).body == read(FILES[path])


def test_a_cut_body_is_resumed(hf, hub, demo):
    hub.order(".", "cut", times=1, cdn=True)
    got = hf.get(file_path("model.safetensors", rev=demo.sha))
    assert got.whole and got.body == read(FILES["model.safetensors"])


RANGES = "cache { segment = 8m parallel_from = 16m }"  # as if the files were as large as they are in the world


def test_a_large_file_costs_one_question(mirrord, hub):
    """Its many ranges go to the CDN; the Hub, which counts its callers' questions, is asked where that is once."""
    big, hf = Big(64 << 20, 4), mirrord(hub.config() + RANGES)
    r = hub.repo("org/big", files={"model.safetensors": big})
    got = hf.get(file_path("model.safetensors", repo="org/big"))
    assert hashlib.sha256(got.body).hexdigest() == sha256_of(big)
    assert len(hub.cdn_calls) > 3 and hub.cdn_bytes[sha256_of(big)] == big.size
    assert sum("/resolve/" in c[1] for c in hub.calls) == 1
    assert r.sha == got["x-repo-commit"]


def test_a_signature_that_expires(mirrord, hub):
    big, hf = Big(64 << 20, 5), mirrord(hub.config() + RANGES)
    hub.repo("org/big", files={"model.safetensors": big})
    hub.order("bytes=[1-9]", 403, times=2, cdn=True)
    got = hf.get(file_path("model.safetensors", repo="org/big"))
    assert got.whole and hashlib.sha256(got.body).hexdigest() == sha256_of(big)
    assert 1 < sum("/resolve/" in c[1] for c in hub.calls) <= 3


# --- one document for a repository and its main branch --------------------------------------------------------------------

@pytest.mark.parametrize("kind", ["models", "datasets", "spaces"])
@pytest.mark.parametrize("query", ["", "?blobs=true"])
@pytest.mark.parametrize("first", ["", "/revision/main"])
def test_main_is_the_default_branch(mirrord, hub, kind, query, first):
    r = hub.repo("org/it", kind=kind, files=FILES)
    m = mirrord(hub.config(more="rule '' { ttl = 1h }"))
    api = f"/hf/api/{kind}/org/it"
    said = m.get(api + first + query).body
    assert json.loads(said)["sha"] == r.sha
    m.settle()
    m.stop()  # connections that are open would go on
    hub.down()
    m.start()
    for path in (api, api + "/revision/main"):
        assert m.get(path + query).body == said, path
    hub.up()


def test_a_branch_shows_one_commit(mirrord, hub, demo):
    m = mirrord(hub.config(more="rule '' { ttl = 1h }"))
    api = "/hf/api/models/org/demo"
    old = demo.sha
    assert json.loads(m.get(api + "/revision/main").body)["sha"] == old
    demo.commit({"config.json": b"{1}"})
    assert json.loads(m.get(api).body)["sha"] == old


@pytest.mark.parametrize("query", ["", "?blobs=true"])
def test_a_repository_without_main(mirrord, hub, demo, query):
    demo.refs = {"trunk": demo.sha}
    demo.default = "trunk"
    m = mirrord(hub.config())
    got = m.get("/hf/api/models/org/demo" + query)
    assert got.status == 200 and json.loads(got.body)["sha"] == demo.refs["trunk"]
    assert m.get("/hf/api/models/org/demo/revision/main").status == 404


# --- trouble ---

def test_the_hub_is_down(hf, hub, demo):
    """What is warm works, by commit and by branch, and says that it may be old; a cold file says what is wrong, at once."""
    warm = [p for p in FILES if p != "sub/deep/weights.bin"]
    for path in warm:
        assert hf.get(file_path(path)).status == 200
    assert hf.get("/hf/api/models/org/demo/revision/main").status == 200
    hf.settle()
    hub.down()
    hf.stop()
    hf.config = hf.config.replace("protocol", "rule '^api/.*/revision/' { ttl = 0s sie = 10d } protocol")
    hf.start()
    for rev in ("main", demo.sha):
        for path in warm:
            got = hf.get(file_path(path, rev=rev))
            assert got.status == 200 and got.body == read(FILES[path]), (path, rev, got.headers)
            assert (got["x-hf-warning"] is not None) == (rev == "main")
            assert hf.get(file_path(path, rev=rev), head=True)["etag"] == got["etag"]
        assert listed(hf.get(f"/hf/api/models/org/demo/tree/{rev}?recursive=true"))
    got = hf.get("/hf/api/models/org/demo/revision/main")
    assert got.status == 200 and "110" in got["warning"]
    for path in (file_path("sub/deep/weights.bin", rev=demo.sha), file_path("x", repo="org/other"),
                 "/hf/api/models/org/other/revision/main"):
        asked = hf.upstream_requests()
        got = hf.get(path)
        assert got.status in (502, 503, 504), path
        assert "not on this mirror" in got["x-error-message"] and "Hub" in got["x-error-message"]
        # At once: three tries for each thing that it needs, and what is looked up behind earlier answers, not ten times as many.
        assert hf.upstream_requests() - asked < 15, path
    hub.up()


def test_what_a_repository_lacks_is_said_without_the_hub(hf, hub, demo):
    """Clients ask for optional files at every load, and give up on anything but a 404: the listing says that there is none, also after
    a restart, while the Hub is gone."""
    lacks = [(file_path(path, rev=rev), head) for rev in ("main", demo.sha) for head in (True, False)
             for path in ("adapter_config.json", "chat_template.jinja", "sub/none.json")]
    lacks += [(f"/hf/api/models/org/demo/tree/{rev}/additional_chat_templates?recursive=false", False) for rev in ("main", demo.sha)]
    assert hf.get(file_path("config.json")).status == 200
    for path, head in lacks[:1]:
        assert hf.get(path, head=head).status == 404
    hf.settle()
    hub.down()
    hf.stop()
    hf.config = hf.config.replace("protocol", "rule '^api/.*/revision/' { ttl = 0s sie = 10d } protocol")
    hf.start()
    for path, head in lacks:
        got = hf.get(path, head=head)
        assert (got.status, got["x-error-code"]) == (404, "EntryNotFound"), path
        assert "resolve" not in path or got["x-repo-commit"] == demo.sha, path
    for path in ("no/body", "org/other"):  # nobody has asked for the one, and neither is known to be absent
        assert hf.get(file_path("config.json", repo=path), head=True).status in (502, 503, 504), path
    hub.up()


def with_a_hub_gone(hf, hub, more):
    """Warm, begun again, with a branch that is asked for each time; connections to the Hub that were open are none any more."""
    assert hf.get(file_path("config.json")).status == 200
    hf.settle()
    hub.down()
    hf.stop()
    hf.config = hf.config.replace("protocol", f"{more} rule '^api/.*/revision/' {{ ttl = 0s sie = 10d }} protocol")
    hf.start()


def test_the_hub_is_silent(hf, hub, demo):
    """It takes connections and says nothing: what is known is served when it has been waited for, and the Hub is noticed again."""
    with_a_hub_gone(hf, hub, "stall = 3s")
    with socket.create_server(("127.0.0.1", hub.port)):
        got = hf.get(file_path("config.json"), head=True)
        assert got.status == 200 and got["x-hf-warning"]
    hub.up()
    until(lambda: not hf.get(file_path("config.json"), head=True)["x-hf-warning"])


def test_a_silent_hub_is_waited_for_once(hf, hub, demo):
    """The first who asks finds out, the next need not wait for it again."""
    hf.config += " threads = 1"
    with_a_hub_gone(hf, hub, "stall = 1h")
    with socket.create_server(("127.0.0.1", hub.port)) as silent, concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(hf.get, file_path("config.json"), head=True, limit_s=600 * SLOW)
        for _ in range(3):  # tries; at last it hangs up
            silent.accept()[0].close()
        assert first.result().status == 200 and first.result()["x-hf-warning"]
        time.sleep(6)  # gatherings that are stale hold for 5 s
        second = hf.get(file_path("config.json"), head=True)
        assert second.status == 200 and second["x-hf-warning"]
        with silent.accept()[0] as asked:  # and not one word from there until now
            assert b"/revision/" in asked.recv(4096)


@pytest.fixture
def held():
    """hub.order(what, held.wait, ...): those answers come when it is set, at the test's end at the latest."""
    event = threading.Event()
    yield event
    event.set()


def test_who_leaves_and_who_stays(hf, hub, demo, held):
    """A client that leaves in the middle of a crawl takes nothing from the one who stays."""
    hub.order("/tree/", held.wait)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        stays = pool.submit(hf.get, file_path("config.json"))
        until(lambda: [c for c in hub.calls if "/tree/" in c[1]])
        with socket.create_connection(("127.0.0.1", hf.port)) as leaves:
            leaves.sendall(f"GET {file_path('README.md')} HTTP/1.1\r\nHost: m\r\n\r\n".encode())
        hf.answered("README.md", complete=False)
        held.set()
        assert stays.result().body == FILES["config.json"]


def test_all_leave_and_the_daemon_ends(hf, hub, demo, held):
    hf.stop()
    hf.config += " drain = 1s"
    hf.start()
    hub.order("/tree/", held.wait, times=100)
    assert hf.get(file_path("config.json"), limit_s=1).rc == 28
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waits = pool.submit(hf.get, file_path("config.json"))
        time.sleep(0.5)
        hf.stop()
        assert waits.result().status != 200


def test_killed_in_a_crawl(hf, hub, demo, held):
    for at in ("/tree/.*cursor", "/resolve/"):
        hub.order(at, held.wait)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waits = pool.submit(hf.get, file_path("model.safetensors"))
            until(lambda: [c for c in hub.calls if re.search(at, c[1])])
            hf.kill()
            waits.result()
        held.set()
        hf.start()
        held.clear()
        assert hf.ctl("verify").returncode == 0
    for path in FILES:
        assert hf.get(file_path(path)).body == read(FILES[path])


def test_the_hub_is_busy(hf, hub, demo):
    """A 429 is waited for when the wait is short, and what is known costs nothing meanwhile."""
    hub.order("/revision/", 429)
    assert hf.get(file_path("config.json")).status == 200
    assert sum(1 for c in hub.calls if "/revision/" in c[1]) == 2


@pytest.mark.parametrize("what", [500, 503])
def test_errors_do_not_become_no_such_file(hf, hub, demo, what):
    hub.order(".", what, times=1000)
    got = hf.get(file_path("config.json"))
    assert got.status >= 500 and got["x-error-code"] is None and got["x-error-message"]


def test_garbage_for_a_listing(hf, hub, demo, mirrord):
    hub.page = 1000
    r = hub.repo("org/bad", files={"a": b"a"})
    r.commits[r.sha] = {"../../etc/passwd": b"x", "a": b"a", "b/./c": b"y"}
    got = listed(hf.get(f"/hf/api/models/org/bad/tree/{r.sha}?recursive=true"))
    assert {p for p, e in got.items() if e["type"] == "file"} == {"a"}


@pytest.mark.parametrize("what", ["/tree/", "/revision/"])
def test_an_answer_that_nobody_can_read_is_not_kept(hf, hub, demo, what):
    """A captive portal's page, say: 200, and no JSON. The next try asks the Hub anew."""
    hub.order(what, b"<html>log in here</html>")
    got = hf.get(file_path("config.json"))
    assert got.status == 502 and got["x-error-code"] is None and "JSON" in got["x-error-message"]
    got = hf.get(file_path("config.json"))
    assert got.status == 200 and got.body == FILES["config.json"]


def test_a_listing_that_never_ends(hf, hub, demo):
    hub.order("/tree/", {"Link": f'<{hub.url}/api/models/org/demo/tree/{demo.sha}?recursive=true&expand=false>; rel="next"'}, times=10000)
    got = hf.get(file_path("config.json"), limit_s=600 * SLOW)
    assert got.status == 502 and "listing" in got["x-error-message"]


def test_cache_ls_and_rm(hf, hub, demo):
    for path in FILES:
        assert hf.get(file_path(path)).status == 200
    hf.settle()
    kept = hf.ctl("cache", "ls", "hf").stdout
    assert f"models/org/demo/blobs/{demo.etag('model.safetensors')}" in kept and f"api/models/org/demo/tree/{demo.sha}" in kept
    hf.ctl("cache", "rm", "hf/models/org/demo/")
    hub.cdn_calls.clear()
    assert hf.get(file_path("model.safetensors")).status == 200 and hub.cdn_calls


# --- rights ---

GATED = {".gitattributes": b"x\n", "weights.safetensors": Big(200000, 9), "config.json": b"{}"}


@pytest.fixture
def closed(hub):
    """A gated and a private repository; alice may read both, bob neither."""
    hub.users.update({"hf_alice": "alice", "hf_bob": "bob"})
    return (hub.repo("meta/gated", files=GATED, gated=True, readers={"hf_alice"}),
            hub.repo("me/private", files=GATED, private=True, readers={"hf_alice"}))


def test_a_right_is_each_callers_own(hf, hub, closed, wire):
    for name in ("meta/gated", "me/private"):
        path = file_path("weights.safetensors", repo=name)
        for method in ({"head": True}, {}):
            got = hf.get(path, wire, **method)
            assert got.status == 401, name
        assert got["x-error-code"] == ("GatedRepo" if name == "meta/gated" else "RepoNotFound")
        got = hf.get(path, wire, headers=bearer("hf_alice"))
        assert got.status == 200 and got.body == read(GATED["weights.safetensors"])
        hf.settle()
        for headers, statuses in ((bearer("hf_bob"), (403, 404)), ({}, (401,)), (bearer("hf_nobody"), (401,))):
            for method in ({"head": True}, {}):
                for rev in ("main", closed[0].sha if name == "meta/gated" else closed[1].sha):
                    got = hf.get(file_path("weights.safetensors", repo=name, rev=rev), wire, headers=headers, **method)
                    assert got.status in statuses and b"weights" not in got.body, (name, headers, rev)
        again = len(hub.calls)
        assert hf.get(path, wire, headers=bearer("hf_alice")).status == 200
        assert len(hub.calls) == again, "alice's right was asked for again"


def test_listings_of_the_closed(hf, hub, closed):
    assert hf.get("/hf/api/models/meta/gated/tree/main?recursive=true").status == 200, "the Hub shows these to everybody"
    assert hf.get("/hf/api/models/me/private/tree/main?recursive=true", headers=bearer("hf_alice")).status == 200
    for headers in ({}, bearer("hf_bob")):
        assert hf.get("/hf/api/models/me/private/tree/main?recursive=true", headers=headers).status in (401, 404)
        assert hf.get("/hf/api/models/me/private", headers=headers).status in (401, 404)
    assert hf.get("/hf/api/models/meta/gated/auth-check", headers=bearer("hf_alice")).status == 200
    assert hf.get("/hf/api/models/meta/gated/auth-check", headers=bearer("hf_bob")).status == 403
    assert json.loads(hf.get("/hf/api/whoami-v2", headers=bearer("hf_alice")).body)["name"] == "alice"
    assert hf.get("/hf/api/whoami-v2").status == 401


def test_what_is_kept_ready_is_everybodys(hf, hub, demo, closed):
    """A HEAD or a listing that is worded once is for those who see the same; a token does not make them others."""
    hub.users["hf_carol"] = "carol"
    for _ in range(2):
        for headers in ({}, bearer("hf_carol"), bearer("hf_nobody")):
            got = hf.get(file_path("config.json"), headers=headers, head=True)
            assert (got.status, got["x-repo-commit"]) == (200, demo.sha)
            assert len(json.loads(hf.get("/hf/api/models/org/demo/tree/main?recursive=true", headers=headers).body)) == 10
    assert hf.get(file_path("config.json"), headers=bearer("hf_carol")).body == FILES["config.json"], "a HEAD has no bytes to give"
    asked = len(hub.calls)
    assert hf.get(file_path("config.json"), head=True).status == 200 and len(hub.calls) == asked
    for headers, status in ((bearer("hf_alice"), 200), ({}, 401), (bearer("hf_alice"), 200), (bearer("hf_bob"), 404)):
        for what in ("tree/main", "revision/main", "refs"):
            assert hf.get(f"/hf/api/models/me/private/{what}", headers=headers).status == status, (headers, what)


def test_what_is_kept_ready_moves_with_the_branch(mirrord, hub, demo):
    m = mirrord(hub.config(more="rule '^api/.*/revision/' { ttl = 1s }"))

    def seen():
        return (m.get(file_path("config.json"), head=True)["etag"], json.loads(m.get("/hf/api/models/org/demo/revision/main").body)["sha"],
                [e["oid"] for e in json.loads(m.get("/hf/api/models/org/demo/tree/main").body) if e["path"] == "config.json"][0])
    old = seen()
    assert seen() == old and old[1] == demo.sha
    new = demo.commit({"config.json": b"[2]"})
    until(lambda: seen() == (f'"{demo.etag("config.json")}"', new, demo.etag("config.json")))
    third = demo.commit({"config.json": b"[3]"})
    m.ctl("cache", "rm", "hf/api/models/org/demo/revision/main")
    assert seen()[1] == third, "nobody waits for a minute after a purge"


def test_a_digest_is_no_right(hf, hub, closed):
    """Who knows the SHA-256 of a gated file, and listings tell it, gets it nowhere else either."""
    path = file_path("weights.safetensors", repo="meta/gated")
    assert hf.get(path, headers=bearer("hf_alice")).status == 200
    hf.settle()
    digest = sha256_of(GATED["weights.safetensors"])
    for what in ("blob", "chunks"):
        for headers in ({}, bearer("hf_bob")):
            assert hf.get(f"/-/{what}/{digest}", headers=headers).status == 404


def test_open_repositories_see_no_token(hf, hub, demo, closed):
    assert hf.get(file_path("model.safetensors"), headers=bearer("hf_alice")).status == 200
    assert {c[2] for c in hub.calls} == {""}


def test_a_service_token(mirrord, hub, closed, tmp_path):
    """One credential of ours for all, none of the callers' passed on; the mirror's own tokens say who may read."""
    hub.users["hf_service"] = "service"
    for r in closed:
        r.readers.add("hf_service")
    secret = tmp_path / "token"
    secret.write_text("Bearer hf_service\n")
    m = mirrord(hub.config(more=f'authorization = "file:{secret}" access {{ anonymous = none }}'))
    path = file_path("weights.safetensors", repo="meta/gated")
    mine = m.token("reader", "read:hf/models/meta/*")
    assert m.get(path).status == 401 and not hub.calls
    got = m.get(path, headers=bearer(mine))
    assert got.status == 200 and got.body == read(GATED["weights.safetensors"])
    assert m.get(file_path("weights.safetensors", repo="me/private"), headers=bearer(mine)).status == 403
    assert {c[2] for c in hub.calls} == {"hf_service"}


# --- a mirror behind a mirror ---

def test_edge_and_core(mirrord, hub, demo, closed):
    weights = file_path("weights.safetensors", repo="meta/gated")
    core = mirrord(hub.config())
    edge = mirrord(f'repo "hf" {{ protocol = "hf" origin = "http://127.0.0.1:{core.port}/hf" }}')
    for rev in ("main", demo.sha):
        for path, data in FILES.items():
            got = edge.get(file_path(path, rev=rev))
            assert got.status == 200 and got.body == read(data) and got["etag"] == f'"{demo.etag(path)}"', path
            assert got["x-repo-commit"] == demo.sha
    got = edge.get(file_path("none"), head=True)
    assert (got.status, got["x-error-code"], got["x-repo-commit"]) == (404, "EntryNotFound", demo.sha)
    for m in (core, edge):
        assert m.get(weights, headers=bearer("hf_alice")).status == 200
        assert m.get(weights, headers=bearer("hf_bob")).status == 403
        assert m.get(weights)["x-error-code"] == "GatedRepo"
    edge.settle()
    core.settle()
    hub.down()
    core.stop()
    for path, data in FILES.items():
        assert edge.get(file_path(path, rev=demo.sha)).body == read(data)
    hub.up()


# --- trainagent stages a repository as the Hub's client keeps it ---

def node(tmp_path, m, **more):
    return dict(os.environ, TRAINAGENT_MIRROR=m.url(""), TRAINAGENT_SHELF=str(tmp_path / "shelf"),
                TRAINAGENT_STATE=str(tmp_path / "state"), **more)


def trainagent(env, *args, code=0):
    done = subprocess.run([BUILD / "trainagent", *map(str, args)], env=env, capture_output=True, text=True, check=False,
                          timeout=600 * SLOW)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def staged(home, r, rev, files, kind="models"):
    """Is it what the client would have made?"""
    folder = home / "hub" / f"{kind}--{r.name.replace('/', '--')}"
    sha = r.resolve(rev)
    assert (folder / "refs" / rev).read_text() == sha
    snapshot = folder / "snapshots" / sha
    assert {str(p.relative_to(snapshot)) for p in snapshot.rglob("*") if not p.is_dir()} == set(files)
    for path in files:
        assert (snapshot / path).is_symlink()
        assert (snapshot / path).resolve() == (folder / "blobs" / r.etag(path, sha)).resolve()
        assert (snapshot / path).read_bytes() == read(r.commits[sha][path])


def test_trainagent_pulls_a_repository(mirrord, hub, demo, tmp_path):
    env = node(tmp_path, mirrord(hub.config(more=CALM)))
    trainagent(env, "pull", "hf/org/demo@main", "--to", tmp_path / "home")
    staged(tmp_path / "home", demo, "main", FILES)
    asked = len(hub.calls)
    said = json.loads(trainagent(env, "pull", "hf/org/demo", "--to", tmp_path / "again", "--json"))
    staged(tmp_path / "again", demo, "main", FILES)
    assert said["fetched_bytes"] == 0 and len(hub.calls) == asked
    demo.refs["refs/pr/1"] = demo.commit({"config.json": b"[]", "model.safetensors": Big(20 << 20, 3)}, ref="pr")
    trainagent(env, "pull", "hf/org/demo@refs/pr/1", "--to", tmp_path / "home")
    staged(tmp_path / "home", demo, "refs/pr/1", ["config.json", "model.safetensors"])
    staged(tmp_path / "home", demo, "main", FILES)
    data = hub.repo("org/data", kind="datasets", files={"data/a.parquet": Big(30000)})
    trainagent(env, "pull", "hf/datasets/org/data@main", "--to", tmp_path / "home")
    staged(tmp_path / "home", data, "main", ["data/a.parquet"], kind="datasets")
    trainagent(env, "pull", "hf/org/nothing@main", "--to", tmp_path / "x", code=77)
    trainagent(env, "pull", "hf/org/demo/resolve/main/config.json", "--to", tmp_path / "one")
    assert (tmp_path / "one/config.json").read_bytes() == FILES["config.json"]


def test_trainagent_runs_a_job_on_it(hf, hub, demo, tmp_path):
    env = node(tmp_path, hf)
    job = tmp_path / "job.conf"
    job.write_text('artifact "model" { from = "hf/org/demo@main" include = {"*.json", "*.safetensors"} exclude = {"sub/*"} }\n'
                   'run { command = {"sh", "-c", "cp {model}/config.json {out}/seen; echo $HF_HUB_CACHE > {out}/cache"} }\n')
    for _ in range(2):
        trainagent(env, "run", job)
        out = next((tmp_path / "state/jobs").glob("*/out"))
        assert (out / "seen").read_bytes() == FILES["config.json"]
        cache = pathlib.Path((out / "cache").read_text().strip())
        staged(cache.parent, demo, "main", ["config.json", "model.safetensors"])


def test_trainagent_believes_no_listing(hf, hub, demo, tmp_path, mirrord, origin):
    """A mirror that gives other bytes than it lists, or lists names that lead elsewhere."""
    sha = "1" * 40
    origin.put("/hf/api/models/a/b/revision/main", body=json.dumps({"sha": sha}).encode())
    origin.put("/hf/a/b/resolve/" + sha + "/config.json", body=b"other bytes")
    env = dict(node(tmp_path, hf), TRAINAGENT_MIRROR=origin.url)
    for path, oid in (("config.json", git_oid(b"these bytes")), ("../../config.json", git_oid(b"other bytes"))):
        listing = [{"type": "file", "path": path, "oid": oid, "size": 11}]
        origin.put(f"/hf/api/models/a/b/tree/{sha}?recursive=true", body=json.dumps(listing).encode())
        trainagent(env, "pull", "hf/a/b@main", "--to", tmp_path / "home", code=65)
    assert not list(tmp_path.rglob("home/**/config.json"))
