"""The Hub's API on hosted repositories, spoken by hand: what is refused, what is bounded, what never shows. Real clients: clients/test_hub_home.py."""
import base64
import hashlib
import json
import os
import socket
import threading

import pytest

CONFIG = 'repo "models" { protocol = "hosted" }\nrepo "closed" { protocol = "hosted" access { anonymous = none } }'


class Hub:
    def __init__(self, m, wire="h1", repo="models"):
        self.m, self.wire, self.repo = m, wire, repo
        self.token = m.token(f"ci-{wire}-{repo}", f"publish:{repo}/me/*")

    def post(self, path, body, token="", **kw):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.m.put(f"/{self.repo}/{path}", data, self.wire, self.token if token == "" else token, method="POST", **kw)

    def create(self, name="gpt", **more):
        return self.post("api/repos/create", {"name": name, "organization": "me", **more})

    def commit(self, *lines, parent=None, name="gpt", token=""):
        header = {"summary": "s", "description": "", **({"parentCommit": parent} if parent else {})}
        rows = [{"key": "header", "value": header}, *({"key": k, "value": v} for k, v in lines)]
        return self.post(f"api/models/me/{name}/commit/main", b"".join(json.dumps(r).encode() + b"\n" for r in rows), token)

    def info(self, name="gpt"):
        return json.loads(self.m.get(f"/{self.repo}/api/models/me/{name}", self.wire).body)

    def files(self, name="gpt"):
        return sorted(s["rfilename"] for s in self.info(name)["siblings"])

    def batch(self, *objects, name="gpt", token=""):
        got = self.post(f"me/{name}.git/info/lfs/objects/batch",
                        {"operation": "upload", "transfers": ["basic"], "objects": [{"oid": o, "size": n} for o, n in objects]}, token)
        return got, json.loads(got.body) if got.status == 200 else None


def file(path, data):
    return "file", {"path": path, "content": base64.b64encode(data).decode(), "encoding": "base64"}


def lfs(path, data, size=None):
    return "lfsFile", {"path": path, "algo": "sha256", "oid": sha(data), "size": len(data) if size is None else size}


def sha(data):
    return hashlib.sha256(data).hexdigest()


def below(href):
    return "/" + href.split("/", 3)[3]


@pytest.fixture
def m(mirrord):
    return mirrord(CONFIG)


@pytest.fixture
def hub(m, wire):
    h = Hub(m, wire)
    assert h.create().status == 200
    return h


def test_a_commit_is_a_version(hub):
    got = hub.commit(file("a.txt", b"one"), file("d/b.txt", b""))
    assert got.status == 200 and len(json.loads(got.body)["commitOid"]) == 40
    first = json.loads(got.body)["commitOid"]
    assert hub.info()["sha"] == first
    assert hub.m.get("/models/me/gpt/a.txt", hub.wire).body == b"one"
    assert json.loads(hub.commit(file("a.txt", b"one")).body)["commitOid"] == first  # nothing changed
    hub.commit(file("a.txt", b"two"))
    read = hub.m.get(f"/models/me/gpt/resolve/{first}/a.txt", hub.wire)
    assert (read.body, read["x-repo-commit"], read["etag"]) == (b"one", first, f'"{sha(b"one")}"')
    assert hub.m.get("/models/me/gpt/resolve/main/a.txt", hub.wire).body == b"two"
    assert hub.m.get("/models/me/gpt/resolve/main/a.txt", hub.wire, headers={"Range": "bytes=1-"}).body == b"wo"


def test_rights(hub):
    mine = [file("x", b"x")]
    assert hub.commit(*mine, token=None).status == 401
    other = hub.m.token("other" + hub.wire, "publish:models/you/*", "read:models/*")
    assert hub.commit(*mine, token=other).status == 403
    assert hub.post("api/repos/create", {"name": "new", "organization": "me"}, other).status == 403
    assert hub.post("api/repos/create", {"name": "new", "organization": "me"}, None).status == 401
    assert hub.batch((sha(b"x"), 1), token=other)[0].status == 403
    assert hub.post("api/models/me/gpt/preupload/main", {"files": []}, None).status == 401
    assert hub.m.get("/models/api/whoami-v2", hub.wire).status == 401
    assert hub.files() == []


def test_closed_repositories_are_closed(m):
    h = Hub(m, repo="closed")
    assert h.create(visibility="private").status == 200
    assert h.commit(file("a", b"secret")).status == 200
    for path in ("api/models/me/gpt", "api/models/me/gpt/tree/main", "api/models/me/gpt/refs", "api/models/me/gpt/commits/main",
                 "me/gpt/resolve/main/a", "api/models/me/gpt/auth-check"):
        got = m.get(f"/closed/{path}")
        assert (got.status, got["x-error-code"]) == (401, "GatedRepo"), path
    reader = m.token("reader", "read:closed/*")
    assert m.put("/closed/me/gpt/resolve/main/a", None, token=reader, method="GET").body == b"secret"
    assert m.put("/closed/api/models/me/gpt", None, token=reader, method="GET").status == 200


def test_what_cannot_be_kept_is_refused(hub):
    for more in ({"visibility": "private"}, {"private": True}, {"type": "kernel"}, {"type": 5}, {"type": ""}):
        assert hub.create("p", **more).status == 400, more
    assert hub.post("api/repos/create", {"name": "../x", "organization": "me"}).status == 400
    assert hub.post("api/repos/create", b"[]").status == 400
    again = hub.create()
    assert again.status == 409 and json.loads(again.body)["url"].endswith("/models/me/gpt")
    assert hub.post("api/models/me/gpt/commit/dev", b"").status == 404
    assert hub.post("api/models/me/gpt/commit/main?create_pr=1", b"").status == 400
    assert hub.post("api/models/me/none/commit/main", b"")["x-error-code"] == "RepoNotFound"
    for path in ("api/models/me/gpt/discussions", "api/models/me/gpt/settings"):
        assert hub.post(path, {}).status == 403, path


def test_a_stale_parent(hub):
    first = json.loads(hub.commit(file("a", b"1")).body)["commitOid"]
    assert hub.commit(file("a", b"2"), parent=first).status == 200
    assert hub.commit(file("a", b"3"), parent=first).status == 412
    assert hub.m.get("/models/me/gpt/a", hub.wire).body == b"2"
    assert hub.commit(file("a", b"3"), parent="main").status == 400


def test_bad_commits_change_nothing(hub):
    hub.commit(file("a", b"1"))
    before = hub.info()["sha"]
    good = json.dumps({"key": "header", "value": {}}).encode() + b"\n"
    new = json.dumps({"key": "file", "value": file("new", b"n")[1]}).encode() + b"\n"
    for body in (b"", b"\n", b"{}", b"[]\n", good + new + good, good + new + b'{"key": "fi', good + new + b'{"key": "other", "value": {}}\n', new,
                 good + new + b"\xff\xfe\n", good + new + b'{"key": "file", "value": {"path": "b", "content": "%%%", "encoding": "base64"}}\n',
                 good + new + b'{"key": "file", "value": {"path": "b", "content": "YQ==", "encoding": "utf-8"}}\n'):
        assert hub.post("api/models/me/gpt/commit/main", body).status == 400, body
    for path in ("../x", "/x", "a//b", "-/x", "resolve/main/x", "", "."):
        assert hub.commit(file(path, b"x")).status == 400, path
    assert hub.commit(file("new", b"n"), ("deletedFile", {"path": "none"}))["x-error-code"] == "EntryNotFound"
    assert hub.commit(file("a/b", b"a is a file")).status == 409
    assert hub.info()["sha"] == before


def test_a_line_has_a_bound(m):
    hub = Hub(m)  # over HTTP/2 curl drops an answer that comes before it has sent all
    hub.create()
    size = 8 << 20
    assert hub.commit(file("most", bytes(size))).status == 200
    assert hub.commit(file("more", bytes(size + 1))).status in (400, 413)
    assert hub.commit(file("much", bytes(size * 2))).status == 413
    assert hub.files() == ["most"]
    assert hub.post("api/models/me/gpt/preupload/main", b" " * (2 << 20)).status == 413


def test_objects_before_the_commit(hub):
    data = os.urandom(300000)
    got, offer = hub.batch((sha(data), len(data)))
    href = below(offer["objects"][0]["actions"]["upload"]["href"])
    assert offer["transfer"] == "basic"
    assert hub.commit(lfs("w", data)).status == 409  # not here yet
    assert hub.m.put(href, data[:-1] + bytes([data[-1] ^ 1]), hub.wire).status == 422
    assert hub.m.put(href, data[:-1], hub.wire).status == 422
    assert hub.commit(lfs("w", data)).status == 409
    assert hub.m.put(href, data, hub.wire).status == 200  # no token: the address is the right
    assert hub.m.get("/-/blob/" + sha(data), hub.wire).status == 404  # nobody reads it before the commit
    assert "actions" not in hub.batch((sha(data), len(data)))[1]["objects"][0]
    assert hub.commit(lfs("w", data, size=5)).status == 400
    assert hub.commit(lfs("w", data)).status == 200
    assert hub.m.get("/models/me/gpt/resolve/main/w", hub.wire).body == data


def test_an_address_is_good_for_its_tree_alone(hub):
    data = b"some bytes"
    href = below(hub.batch((sha(data), len(data)))[1]["objects"][0]["actions"]["upload"]["href"])
    hub.create("other")
    for bad in (href.replace("/gpt/", "/other/"), href.split("?")[0], href[:-4] + "0000", href.replace(sha(data), "0" * 64)):
        assert hub.m.put(bad, data, hub.wire).status in (404, 422), bad
    assert hub.m.put(href, data, hub.wire).status == 200
    # Whoever may write one tree cannot take the bytes of another by their digest.
    assert hub.commit(lfs("w", data), name="other").status == 409
    assert "actions" in hub.batch((sha(data), len(data)), name="other")[1]["objects"][0]
    assert hub.commit(lfs("w", data)).status == 200
    assert hub.commit(lfs("w", data), name="other").status == 409


def test_many_repositories_with_one_object(m):
    """Each brings it before the first of them is committed: as many as may come at a time."""
    hub = Hub(m)
    data, names = b"the same weights", [f"many-{i}" for i in range(80)]
    for name in names:
        assert hub.create(name).status == 200
        href = below(hub.batch((sha(data), len(data)), name=name)[1]["objects"][0]["actions"]["upload"]["href"])
        assert hub.m.put(href, data, hub.wire).status == 200
    assert [hub.commit(lfs("w", data), name=name).status for name in names] == [200] * len(names)


def test_objects_wait_over_a_restart(m):
    h = Hub(m)
    h.create()
    data = os.urandom(100000)
    href = below(h.batch((sha(data), len(data)))[1]["objects"][0]["actions"]["upload"]["href"])
    m.kill()
    m.start()
    assert m.put(href, data).status == 200
    m.kill()
    m.start()
    assert h.commit(lfs("w", data)).status == 200
    assert m.get("/models/me/gpt/w").body == data
    assert m.ctl("verify").returncode == 0


def test_batches_have_a_bound(hub):
    assert hub.batch(*[(sha(str(i).encode()), 1) for i in range(256)])[0].status == 200
    assert hub.batch(*[(sha(str(i).encode()), 1) for i in range(257)])[0].status == 422
    assert hub.batch(("zz", 1))[0].status == 422


def test_a_body_that_breaks_off(m):
    h = Hub(m)
    h.create()
    line = json.dumps({"key": "header", "value": {}}).encode() + b"\n" + json.dumps({"key": "file", "value": file("a", b"a")[1]}).encode() + b"\n"
    with socket.create_connection(("127.0.0.1", m.port), 120) as s:
        s.sendall(f"POST /models/api/models/me/gpt/commit/main HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {h.token}\r\n"
                  f"Content-Length: {len(line) + 1}\r\n\r\n".encode() + line)
        s.shutdown(socket.SHUT_WR)
        while s.recv(4096):
            pass
    assert h.files() == []


def test_two_at_once(m):
    """Without a parent nobody's files are lost; with one, one of them is told."""
    h = Hub(m)
    h.create()
    parent = json.loads(h.commit(file("a", b"a")).body)["commitOid"]
    free, bound = [], []
    jobs = [threading.Thread(target=lambda i=i: free.append(h.commit(file(f"f{i}", b"x"), name="gpt").status)) for i in range(8)]
    for j in jobs:
        j.start()
    for j in jobs:
        j.join()
    assert free == [200] * 8 and h.files() == ["a", *(f"f{i}" for i in range(8))]
    parent = h.info()["sha"]
    jobs = [threading.Thread(target=lambda i=i: bound.append(h.commit(file("a", str(i).encode()), parent=parent).status)) for i in range(4)]
    for j in jobs:
        j.start()
    for j in jobs:
        j.join()
    assert sorted(bound) == [200, 412, 412, 412]


def test_a_folder_that_is_removed_over_and_over(m):
    """Each removal of a folder stands for all that lies in it: what one commit makes of that has a bound."""
    hub = Hub(m)
    assert hub.create().status == 200
    assert hub.commit(*(file(f"many/{i}", b"") for i in range(2000)), file("other", b"x")).status == 200
    got = hub.commit(*[("deletedFolder", {"path": "many"})] * 60)
    assert got.status == 413 and b"too many times" in got.body
    assert len(hub.files()) == 2001
    assert hub.commit(*[("deletedFolder", {"path": "many/"})] * 3, file("many/0", b"new")).status == 200
    assert hub.files() == ["many/0", "other"]


def test_files_that_one_commit_makes_and_removes(m):
    hub = Hub(m)
    assert hub.create().status == 200
    made = [file(f"many/{i}", b"") for i in range(300)]
    gone = [("deletedFile", {"path": f"many/{i}"}) for i in range(1, 300)]
    assert hub.commit(*made, *reversed(gone)).status == 200
    assert hub.files() == ["many/0"]
    assert hub.commit(("deletedFile", {"path": "later"}), file("later", b"x")).status == 404
    assert hub.commit(file("a", b"x"), ("deletedFile", {"path": "b"})).status == 404
    assert hub.files() == ["many/0"]


def test_values_without_end(m):
    """What a text takes when it is read depends on how many values it has, not on its length."""
    hub = Hub(m)
    assert hub.create().status == 200
    assert hub.commit(file("a", b"x")).status == 200
    many = [{}] * 1000
    got = hub.commit(("deletedFile", {"path": "a", "more": many}))
    assert got.status == 400 and b"line 2 " in got.body and b"1000 values" in got.body
    assert hub.post("api/models/me/gpt/preupload/main", {"files": [{"path": "a", "size": 1}], "more": many * 51}).status == 400
    assert hub.post("api/models/me/gpt/preupload/main", {"files": [{"path": "a", "size": 1}], "more": many}).status == 200
    got = m.put("/v2/models/me/image/manifests/x", json.dumps({"schemaVersion": 2, "manifests": [], "more": many * 101}).encode(),
                token=hub.token, headers={"Content-Type": "application/vnd.oci.image.index.v1+json"})
    assert got.status == 400 and b"200,000 values" in got.body
    assert hub.files() == ["a"]
