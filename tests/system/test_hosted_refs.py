"""Branches, tags, datasets, new names and ends of hosted repositories, by the Hub's API and by plain paths, spoken by hand. Real
clients: clients/test_hub_home.py."""
import json
import threading

import pytest

from system.test_hosted_hub import Hub, below, file, lfs, sha

CONFIG = 'repo "models" { protocol = "hosted" }\nrepo "closed" { protocol = "hosted" access { anonymous = none } }'


@pytest.fixture
def m(mirrord):
    return mirrord(CONFIG)


class Home(Hub):
    """One repository, "me/gpt" or another kind's, and what names it has."""

    def __init__(self, m, wire="h1", repo="models", kind="models"):
        self.m, self.wire, self.repo = m, wire, repo
        self.kind, self.below = kind, "" if kind == "models" else kind + "/"
        self.token = m.token(f"ci-{wire}-{kind}", f"publish:{repo}/{self.below}me/*")

    def ask(self, method, path, body=None, token=""):
        data = None if body is None else json.dumps(body).encode()
        return self.m.put(f"/{self.repo}/{path}", data, self.wire, self.token if token == "" else token, method=method)

    def api(self, path, name="gpt"):
        return f"api/{self.kind}/me/{name}/{path}"

    def branch(self, name, start=None, **kw):
        return self.ask("POST", self.api("branch/" + name), {"startingPoint": start} if start else {}, **kw)

    def tag(self, name, rev="main", message=None):
        return self.ask("POST", self.api("tag/" + rev), {"tag": name, **({"message": message} if message else {})})

    def commit_to(self, rev, *lines, summary="s", description="", parent=None, name="gpt"):
        header = {"summary": summary, "description": description, **({"parentCommit": parent} if parent else {})}
        rows = [{"key": "header", "value": header}, *({"key": k, "value": v} for k, v in lines)]
        return self.post(self.api("commit/" + rev, name), b"".join(json.dumps(r).encode() + b"\n" for r in rows))

    def id_of(self, rev):
        return json.loads(self.ask("GET", self.api("revision/" + rev)).body)["sha"]

    def refs(self, name="gpt"):
        got = json.loads(self.ask("GET", self.api("refs", name)).body)
        return {kind: {r["name"]: r["targetCommit"] for r in got[kind]} for kind in ("branches", "tags")}

    def commits(self, rev="main", name="gpt"):
        return json.loads(self.ask("GET", self.api("commits/" + rev, name)).body)

    def read(self, path, rev="main", name="gpt", **kw):
        return self.m.put(f"/{self.repo}/{self.below}me/{name}/resolve/{rev}/{path}", None, self.wire, self.token, method="GET", **kw)


@pytest.fixture
def home(m, wire):
    h = Home(m, wire)
    assert h.create().status == 200
    return h


def id_of(got):
    assert got.status == 200, got.body
    return json.loads(got.body)["commitOid"]


def test_branches(home):
    first = id_of(home.commit_to("main", file("a", b"1")))
    assert home.branch("dev").status == 200
    assert home.branch("dev").status == 409
    assert home.branch("feature%2Fx", first).status == 200
    assert home.branch("old", "v1").status == 200  # of no files
    assert home.refs()["branches"] == {"main": first, "dev": first, "feature/x": first, "old": home.id_of("v1")}
    dev = id_of(home.commit_to("dev", file("a", b"dev"), file("b", b"b")))
    fx = id_of(home.commit_to("feature%2Fx", file("a", b"fx")))
    assert [home.read("a", rev).body for rev in ("main", "dev", "feature%2Fx", first, dev, "refs%2Fheads%2Fdev")] == \
        [b"1", b"dev", b"fx", b"1", b"dev", b"dev"]
    assert home.read("a", "old").status == 404 and home.read("b").status == 404
    assert home.read("a", "dev")["x-repo-commit"] == dev
    # Plain paths say the same, and may write.
    assert home.m.get("/models/me/gpt@feature%2Fx/a", home.wire).body == b"fx"
    assert home.m.put("/models/me/gpt@feature%2Fx/c", b"c", home.wire, home.token).status == 201
    assert sorted(e["path"] for e in json.loads(home.ask("GET", home.api("tree/feature%2Fx")).body)) == ["a", "c"]
    assert home.m.put("/models/me/gpt@none/c", b"c", home.wire, home.token).status == 404
    assert home.m.put("/models/me/gpt@v1/c", b"c", home.wire, home.token).status == 405
    assert home.m.get("/models/me/gpt/a", home.wire).body == b"1"
    # A parent is judged on the branch.
    assert home.commit_to("dev", file("a", b"no"), parent=first).status == 412
    assert home.commit_to("dev", file("a", b"yes"), parent=dev).status == 200
    assert home.ask("DELETE", home.api("branch/feature%2Fx")).status == 200
    gone = home.read("a", "feature%2Fx")
    assert (gone.status, gone["x-error-code"]) == (404, "RevisionNotFound")
    assert home.read("a", fx).body == b"fx"  # a version stays
    assert home.m.get("/models/me/gpt@feature%2Fx/a", home.wire).status == 404


def test_objects_belong_to_all_branches(home):
    data = b"large enough for nobody"
    home.branch("dev")
    href = below(home.batch((sha(data), len(data)))[1]["objects"][0]["actions"]["upload"]["href"])
    assert home.m.put(href, data, home.wire).status == 200
    assert home.commit_to("dev", lfs("w", data)).status == 200
    assert "actions" not in home.batch((sha(data), len(data)))[1]["objects"][0]
    assert home.commit_to("main", lfs("w2", data)).status == 200
    assert home.read("w2").body == data


def test_an_upload_session_on_a_branch(home):
    home.branch("dev")
    at = home.m.put("/models/me/gpt@dev/-/uploads", b"", home.wire, home.token, method="POST")["location"]
    assert home.m.put(at + "/x/y", b"bytes", home.wire, home.token).status == 201
    assert home.m.put(at + "/commit", b"", home.wire, home.token, method="POST").status == 201
    assert home.read("x/y", "dev").body == b"bytes" and home.read("x/y").status == 404
    assert home.m.put("/models/me/gpt@none/-/uploads", b"", home.wire, home.token, method="POST").status == 404


def test_tags(home):
    first = id_of(home.commit_to("main", file("a", b"1")))
    assert home.tag("v1", message="the first").status == 200  # people call them so: it goes before our own v1
    assert home.tag("good").status == 200
    assert home.tag("v1").status == 409
    home.commit_to("main", file("a", b"2"))
    assert home.refs()["tags"] == {"good": first, "v1": first}
    assert home.read("a", "v1").body == b"1" and home.read("a", "refs%2Ftags%2Fv1").body == b"1"
    assert home.m.get("/models/me/gpt@v1/a", home.wire).status == 404  # by plain paths it is the number
    assert home.commit_to("good", file("a", b"3"))["x-error-code"] == "RevisionNotFound"
    home.m.ctl("snapshot", "tag", "models", "me/gpt", "v3", "label")
    assert home.tag("label").status == 409 and home.branch("label").status == 409
    assert home.m.ctl("snapshot", "tag", "models", "me/gpt", "v2", "good", check=False).returncode != 0
    assert set(home.refs()["tags"]) == {"good", "v1", "label"}
    for name, status in (("good", 200), ("label", 200), ("none", 404), ("main", 403)):
        assert home.ask("DELETE", home.api("tag/" + name)).status == status, name
    assert set(home.refs()["tags"]) == {"v1"}
    assert home.m.ctl("snapshot", "rm", "models", "me/gpt", "v2", check=False).returncode != 0  # v1 names it


def test_what_names_there_are(home):
    for bad in ("refs%2Fpr%2F1", "a..b", "x.lock", "a%20b", "-x", "0" * 40, "HEAD", "x" * 201):
        assert home.branch(bad).status == 400, bad
        assert home.tag(bad.replace("%2F", "/").replace("%20", " ")).status == 400, bad
    assert home.branch("main").status == 409
    assert home.ask("DELETE", home.api("branch/main")).status == 403
    assert home.ask("DELETE", home.api("branch/none"))["x-error-code"] == "RevisionNotFound"
    assert home.branch("dev", "none")["x-error-code"] == "RevisionNotFound"
    assert home.branch("dev", "0" * 40)["x-error-code"] == "RevisionNotFound"
    assert home.ask("POST", "api/models/me/none/branch/dev", {})["x-error-code"] == "RepoNotFound"
    assert home.ask("POST", "api/models/me/none/tag/main", {"tag": "x"})["x-error-code"] == "RepoNotFound"
    assert home.ask("PUT", home.api("branch/dev"), {}).status == 405
    assert home.ask("POST", home.api("tag/main"), {}).status == 400
    assert home.ask("POST", home.api("tag/main"), {"tag": "x", "message": "m" * 2049}).status == 413
    for path in (home.api("branch/dev"), home.api("tag/main")):
        assert home.post(path, b"[]").status == 400 and home.post(path, b"{").status == 400
    assert home.commit_to("refs%2Fpr%2F1", file("a", b"1"))["x-error-code"] == "RevisionNotFound"
    assert home.refs() == {"branches": {"main": home.id_of("main")}, "tags": {}}


def test_rights(home):
    home.branch("dev")
    home.create("other")
    stranger = home.m.token("you" + home.wire, "publish:models/you/*", "read:models/*")
    for method, path, body in (("POST", home.api("branch/x"), {}), ("DELETE", home.api("branch/dev"), None), ("POST", home.api("tag/main"), {"tag": "x"}),
                               ("DELETE", home.api("tag/x"), None), ("DELETE", "api/repos/delete", {"name": "gpt", "organization": "me"}),
                               ("POST", "api/repos/move", {"fromRepo": "me/gpt", "toRepo": "you/gpt"}),
                               ("POST", "api/repos/move", {"fromRepo": "you/gpt", "toRepo": "me/gpt2"})):
        assert home.ask(method, path, body, token=None).status == 401, path
        assert home.ask(method, path, body, token=stranger).status == 403, path
    # Both names, also from one's own to another's.
    assert home.ask("POST", "api/repos/move", {"fromRepo": "me/gpt", "toRepo": "you/gpt"}).status == 403
    assert home.refs()["branches"].keys() == {"main", "dev"}


def test_history(home):
    home.commit_to("main", file("a", b"1"), summary="add a", description="because\nit is needed")
    home.branch("dev")
    home.commit_to("main", file("a", b"2"), summary="change a")
    home.commit_to("dev", file("d", b"d"), summary="on dev")
    home.m.put("/models/me/gpt/plain", b"p", home.wire, home.token)
    assert [(c["title"], c["message"], [a["user"] for a in c["authors"]]) for c in home.commits()] == [
        ("v5", "", [f"ci-{home.wire}-models"]), ("change a", "", [f"ci-{home.wire}-models"]),
        ("add a", "because\nit is needed", [f"ci-{home.wire}-models"]), ("initial commit", "", [f"ci-{home.wire}-models"])]
    assert [c["title"] for c in home.commits("dev")] == ["on dev", "add a", "initial commit"]
    assert [c["title"] for c in home.commits("v2")] == ["add a", "initial commit"]
    # What was rolled back is no part of what comes after, and what is forgotten leaves no gap.
    home.m.ctl("snapshot", "rollback", "models", "me/gpt", "v3")
    home.commit_to("main", file("a", b"3"), summary="after")
    assert [c["title"] for c in home.commits()] == ["after", "change a", "add a", "initial commit"]
    home.m.ctl("snapshot", "rm", "models", "me/gpt", "v3")
    assert [c["title"] for c in home.commits()] == ["after", "add a", "initial commit"]
    assert home.commit_to("main", file("a", b"4"), summary="x" * 4097).status == 413
    assert home.commit_to("main", file("a", b"4"), description="x" * 65537).status == 413
    assert home.read("a").body == b"3"


def test_the_same_files_again(home):
    """One id, two versions: each with its own title and date."""
    first = id_of(home.commit_to("main", file("a", b"1"), summary="one"))
    home.commit_to("main", file("a", b"2"), summary="two")
    assert id_of(home.commit_to("main", file("a", b"1"), summary="back")) == first
    assert [(c["id"] == first, c["title"]) for c in home.commits()[:3]] == [(True, "back"), (False, "two"), (True, "one")]
    assert home.commits(first)[0]["title"] == "back"


def test_who_changed_what(home):
    home.commit_to("main", file("a", b"1"), file("d/b", b"1"), summary="first")
    home.commit_to("main", file("d/c", b"2"), summary="second")

    def last(got):
        assert got.status == 200
        return {e["path"]: e["lastCommit"]["title"] for e in json.loads(got.body) if "lastCommit" in e}
    assert last(home.ask("GET", home.api("tree/main?recursive=true&expand=true"))) == {"a": "first", "d": "second", "d/b": "first", "d/c": "second"}
    assert last(home.ask("GET", home.api("tree/main?recursive=true&expand=false"))) == {}
    form = home.m.put(f"/models/{home.api('paths-info/main')}", b"paths=d&paths=d%2Fb&expand=true", home.wire, home.token, method="POST",
                      headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert last(form) == {"d": "second", "d/b": "first"}


def test_a_history_begins_anew(home):
    first = id_of(home.commit_to("main", file("a", b"1"), summary="one"))
    home.branch("dev")
    home.commit_to("dev", file("b", b"2"), summary="two")
    assert home.ask("POST", home.api("super-squash/dev"), {"message": "all"}).status == 200
    assert [c["title"] for c in home.commits("dev")] == ["all"]
    assert [c["title"] for c in home.commits()] == ["one", "initial commit"]
    assert home.ask("POST", home.api("super-squash/main"), {}).status == 200
    assert (len(home.commits()), home.commits()[0]["id"]) == (1, first)
    assert home.read("b", "dev").body == b"2" and home.m.get("/models/me/gpt@v2/a", home.wire).body == b"1"  # versions stay
    assert home.ask("POST", home.api("super-squash/none"), {})["x-error-code"] == "RevisionNotFound"
    assert home.ask("POST", home.api("super-squash/main"), {"message": "x" * 4097}).status == 413
    assert home.ask("POST", home.api("super-squash/main"), {}, token=None).status == 401


def test_the_operator_sees_them(m):
    h = Home(m)
    h.create()
    h.commit_to("main", file("a", b"1"), summary="add\x1b[31m a", description="why")
    h.branch("feature%2Fx")
    h.tag("t")
    h.commit_to("feature%2Fx", file("b", b"2"), summary="more")
    h.commit_to("feature%2Fx", file("b", b"3"), summary="yet more")
    rows = m.ctl_json("snapshot", "ls", "models", "me/gpt")
    assert [(r["seq"], r["author"], r["title"], r["message"], r["names"], r["live"]) for r in rows] == [
        (4, "ci-h1-models", "yet more", "", ["feature/x"], False), (3, "ci-h1-models", "more", "", [], False),
        (2, "ci-h1-models", "add\x1b[31m a", "why", ["t"], True), (1, "ci-h1-models", "initial commit", "", [], False)]
    text = m.ctl("snapshot", "ls", "models", "me/gpt").stdout
    assert "yet more" in text and "\x1b" not in text
    branch = "me/gpt@feature/x"
    assert [r["seq"] for r in m.ctl_json("snapshot", "ls", "models", branch)] == [4, 3, 2, 1]
    assert m.ctl_json("snapshot", "show", "models", branch)["seq"] == 4
    assert m.ctl_json("snapshot", "show", "models", branch, "t")["seq"] == 2
    assert [(r["what"], r["path"]) for r in m.ctl_json("snapshot", "diff", "models", "me/gpt", "main", "feature/x")] == [("added", "b")]
    assert m.ctl_json("snapshot", "rollback", "models", branch, "v3")["seq"] == 3
    assert h.read("b", "feature%2Fx").body == b"2" and h.read("b").status == 404
    assert m.ctl("snapshot", "ls", "models", "me/gpt@none", check=False).returncode == 66
    assert m.ctl("snapshot", "rm", "models", "me/gpt", "v3", check=False).returncode != 0
    m.ctl("snapshot", "rm", "models", "me/gpt", "v4")
    Home(m, kind="datasets").ask("POST", "api/repos/create", {"name": "gpt", "organization": "me", "type": "dataset"})
    seen = {(r["type"], r["id"]) for r in m.ctl_json("hf", "ls", "models")}
    assert seen == {("models", "me/gpt"), ("datasets", "me/gpt")}


@pytest.mark.parametrize("kind", ["datasets", "spaces"])
def test_kinds(m, wire, kind):
    h = Home(m, wire, kind=kind)
    body = {"name": "gpt", "organization": "me", "type": kind[:-1], **({"sdk": "gradio"} if kind == "spaces" else {})}
    got = h.ask("POST", "api/repos/create", body)
    assert got.status == 200 and json.loads(got.body)["url"].endswith(f"/models/{kind}/me/gpt")
    assert h.ask("POST", "api/repos/create", body).status == 409
    data = b"d" * 5000
    offer = json.loads(h.post(f"{kind}/me/gpt.git/info/lfs/objects/batch",
                              {"operation": "upload", "transfers": ["basic"], "objects": [{"oid": sha(data), "size": len(data)}]}).body)
    assert m.put(below(offer["objects"][0]["actions"]["upload"]["href"]), data, wire).status == 200
    commit = id_of(h.commit_to("main", file("README.md", b"# d\n"), lfs("data/train.bin", data)))
    info = json.loads(h.ask("GET", f"api/{kind}/me/gpt").body)
    assert (info["id"], info["author"], info["sha"], "modelId" in info) == ("me/gpt", "me", commit, False)
    assert h.read("data/train.bin").body == data and h.read("data/train.bin")["x-repo-commit"] == commit
    assert h.branch("dev").status == 200 and h.commit_to("dev", file("x", b"x")).status == 200
    assert m.get(f"/models/{kind}/me/gpt@dev/x", wire).body == b"x"
    # One name, two kinds; the model's right does not reach the other.
    model = Home(m, wire)
    assert model.m.get("/models/api/models/me/gpt", wire).status == 404
    assert model.ask("POST", "api/repos/create", body).status == 403
    assert model.create().status == 200 and model.files() == []
    assert model.ask("POST", f"api/{kind}/me/gpt/branch/x", {}).status == 403
    assert model.ask("POST", "api/repos/create", {"name": "x", "organization": kind}).status == 400
    assert [t["name"] for t in json.loads(m.get(f"/models/{kind}/me/?format=json", wire).body)["trees"]] == [f"{kind}/me/gpt"]
    assert m.get(f"/models/{kind}/me/gpt", wire).status == 301
    assert m.ctl("snapshot", "ls", "models", f"{kind}/me/gpt").returncode == 0


def test_a_dataset_is_carried(m, mirrord, tmp_path):
    """Across an air gap, into a hosted repo of another mirror: its branch there, its files, its kind."""
    h = Home(m, kind="datasets")
    h.ask("POST", "api/repos/create", {"name": "gpt", "organization": "me", "type": "dataset"})
    h.branch("dev")
    h.commit_to("dev", file("data/a.csv", b"n\n1\n"))
    m.ctl("hf", "export", "models", "datasets/me/gpt@dev", "--to", str(tmp_path / "bundle"))
    far = mirrord('repo "models" { protocol = "hosted" }')
    far.ctl("hf", "import", str(tmp_path / "bundle"), "--into", "models")
    assert far.get("/models/datasets/me/gpt/resolve/main/data/a.csv").body == b"n\n1\n"
    assert far.get("/models/api/models/me/gpt").status == 404


def test_a_new_name(home):
    first = id_of(home.commit_to("main", file("a b", b"1"), summary="one"))
    home.branch("dev")
    home.tag("t")
    home.create("taken")
    move = {"fromRepo": "me/gpt", "toRepo": "me/new", "type": "model"}
    for bad, status in (({**move, "toRepo": "me/taken"}, 409), ({**move, "toRepo": "me/../x"}, 400), ({**move, "toRepo": "datasets/x"}, 400),
                        ({**move, "fromRepo": "me/none"}, 404), ({**move, "toRepo": 5}, 400), ({}, 400), ({**move, "toRepo": "me/gpt"}, 409)):
        assert home.ask("POST", "api/repos/move", bad).status == status, bad
    assert home.ask("POST", "api/repos/move", move).status == 200
    assert home.refs("new") == {"branches": {"main": first, "dev": first}, "tags": {"t": first}}
    assert [c["title"] for c in home.commits(name="new")] == ["one", "initial commit"]
    assert home.read("a%20b", name="new").body == b"1"
    # The old name leads on, with what stands behind it; whoever writes by the Hub's API, writes to the tree.
    for path in ("me/gpt/resolve/main/a%20b", "api/models/me/gpt/tree/main?recursive=true", "me/gpt@dev/a%20b", "me/gpt/"):
        got = home.ask("GET", path)
        assert (got.status, got["location"]) == (307, "/models/" + path.replace("gpt", "new")), path
    assert home.commit_to("main", file("c", b"c")).status == 200
    assert home.read("c", name="new").body == b"c"
    assert home.m.put("/models/me/gpt/d", b"d", home.wire, home.token).status == 410
    assert home.m.put("/models/me/gpt/-/uploads", b"", home.wire, home.token, method="POST").status == 410
    assert home.ask("POST", "api/repos/move", {**move, "toRepo": "me/again"}).status == 404  # no tree of that name
    assert home.ask("DELETE", "api/repos/delete", {"name": "gpt", "organization": "me"}).status == 404
    # `hf upload` asks for a new repository first, and goes on with the name that the answer gives.
    again = home.create()
    assert again.status == 409 and json.loads(again.body)["url"].endswith("/models/me/new") and "me/gpt was renamed to me/new; use that name" in json.loads(again.body)["error"]
    assert home.ask("GET", "api/models/me/gpt").status == 307
    # Somebody takes the old name.
    home.create("other")
    assert home.ask("POST", "api/repos/move", {**move, "fromRepo": "me/other", "toRepo": "me/gpt"}).status == 200
    assert home.files() == [] and home.files("new") == ["a b", "c"] and home.create().status == 409
    home.m.ctl("cache", "gc")
    assert home.m.ctl("verify", "--deep").returncode == 0
    assert home.read("a%20b", name="new").body == b"1"


def test_the_end(home):
    data = b"secret of this tree"
    home.commit_to("main", file("a", data))
    home.branch("dev")
    home.ask("POST", "api/repos/move", {"fromRepo": "me/gpt", "toRepo": "me/new"})
    assert home.m.get("/-/blob/" + sha(data), home.wire).body == data
    gone = {"name": "new", "organization": "me", "type": "model"}
    assert home.ask("DELETE", "api/repos/delete", {**gone, "type": "dataset"}, token=home.m.token("all" + home.wire, "publish:models/*")).status == 404
    assert home.ask("DELETE", "api/repos/delete", gone).status == 200
    again = home.ask("DELETE", "api/repos/delete", gone)
    assert (again.status, again["x-error-code"]) == (404, "RepoNotFound")
    for path in ("api/models/me/new", "api/models/me/gpt", "me/new/resolve/dev/a", "me/gpt/a", "me/new@v2/a"):
        assert home.ask("GET", path).status == 404, path
    assert home.m.get("/-/blob/" + sha(data), home.wire).status == 404  # not by its digest either
    home.create("new")
    assert home.refs("new")["branches"].keys() == {"main"} and home.files("new") == []
    assert home.commit_to("main", lfs("a", data), name="new").status == 409


def test_two_at_once(m):
    """Commits to several branches lose nothing; of equal names one is made; a tree that moves under writers is in one place."""
    h = Home(m)
    h.create()
    for b in ("b0", "b1", "b2"):
        h.branch(b)
    said = []
    jobs = [threading.Thread(target=lambda i=i: said.append(h.commit_to(f"b{i % 3}", file(f"f{i}", b"x")).status)) for i in range(12)]
    jobs += [threading.Thread(target=lambda: said.append(h.branch("same").status)) for _ in range(4)]
    for j in jobs:
        j.start()
    for j in jobs:
        j.join()
    assert sorted(said) == [200] * 13 + [409] * 3
    for i in range(12):
        assert h.read(f"f{i}", f"b{i % 3}").body == b"x"
    moves, names = [], ["gpt", "x1", "x2", "x3"]
    jobs = [threading.Thread(target=lambda n=n: moves.append(h.ask("POST", "api/repos/move", {"fromRepo": "me/gpt", "toRepo": f"me/{n}"}).status))
            for n in names[1:]]
    jobs += [threading.Thread(target=lambda i=i: h.commit_to("main", file(f"m{i}", b"m"))) for i in range(4)]
    for j in jobs:
        j.start()
    for j in jobs:
        j.join()
    assert moves.count(200) == 1 and set(moves) <= {200, 404, 409}
    there = [n for n in names if m.get(f"/models/api/models/me/{n}").status == 200]
    assert len(there) == 1 and there != ["gpt"]
    assert {*h.refs(there[0])["branches"]} == {"main", "same", "b0", "b1", "b2"}
    assert m.ctl("verify").returncode == 0


def test_killed_in_between(m):
    """Whatever instant it ends: each name is there or not, whole, and nothing needs repair."""
    h = Home(m)
    h.create()
    for i in range(5):
        h.commit_to("main", *[file(f"d{i}/{n}", f"{i} {n}".encode()) for n in range(50)])
    h.branch("dev")
    at, other = "gpt", "moved"
    for _ in range(4):
        ended = threading.Thread(target=lambda: h.ask("POST", "api/repos/move", {"fromRepo": f"me/{at}", "toRepo": f"me/{other}"}))
        ended.start()
        m.kill()
        ended.join()
        m.start()
        there = [n for n in ("gpt", "moved") if m.get(f"/models/api/models/me/{n}").status == 200]
        assert len(there) == 1, there
        at, other = there[0], ({"gpt", "moved"} - set(there)).pop()
        assert h.refs(at)["branches"].keys() == {"main", "dev"}
        assert len(h.files(at)) == 250 and h.read("d4/49", name=at).body == b"4 49"
        assert "bad rows 0" in m.ctl("verify").stdout
    m.ctl("cache", "gc")
    assert h.read("d0/0", "dev", name=at).body == b"0 0"
