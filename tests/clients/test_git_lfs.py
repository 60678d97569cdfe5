"""git-lfs, unmodified, against hosted repositories and through the mirror of a Hub: push, fetch and pull with `lfs.url`, without a git server."""
import base64
import json
import os
import subprocess

import pytest

from harness.hub import Big, read, sha256_of
from harness.mirrord import SLOW


class Work:
    """A git repository with a home of its own, whose LFS server is a mirror."""

    def __init__(self, folder, url, user=None):
        self.folder = folder
        self.env = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1",
                    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
        folder.mkdir()
        self.git("init", "-q", "-b", "main", ".")
        self.git("init", "-q", "--bare", str(folder) + ".git")
        self.git("remote", "add", "origin", str(folder) + ".git")
        self.git("lfs", "install", "--local", "--skip-smudge")
        self.git("config", "lfs.url", url)
        self.git("config", "lfs.locksverify", "false")
        self.git("config", "lfs.transfer.maxretries", "1")
        if user:
            self.git("config", "credential.helper", f"!f() {{ echo username={user[0]}; echo password={user[1]}; }}; f")
        (folder / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")

    def git(self, *words, fails=False):
        done = subprocess.run(["git", *words], cwd=self.folder, env=self.env, capture_output=True, text=True, check=False, timeout=300 * SLOW)
        assert (done.returncode != 0) == fails, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def point(self, files):
        """Pointers to what is not here."""
        (self.folder / ".gitattributes").unlink(missing_ok=True)
        self.add({n: pointer(d) for n, d in files.items()})

    def add(self, files):
        for name, data in files.items():
            (self.folder / name).write_bytes(data)
        self.git("add", ".")
        self.git("commit", "-q", "-m", "all")

    def objects(self):
        return {p.name: p.read_bytes() for p in (self.folder / ".git/lfs/objects").rglob("*") if p.is_file()}

    def forget(self):
        for p in (self.folder / ".git/lfs/objects").rglob("*"):
            if p.is_file():
                p.unlink()


def pointer(data):
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256_of(data)}\nsize {len(read(data))}\n".encode()


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def batch(m, path, *datas, token=None, wire="h1"):
    body = {"operation": "download", "transfers": ["basic"], "objects": [{"oid": sha256_of(d), "size": len(read(d))} for d in datas]}
    return m.put(path, json.dumps(body).encode(), wire, token, method="POST")


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_hosted(mirrord, client, tmp_path, closed):
    client("git-lfs")
    m = mirrord('repo "models" { protocol = "hosted" %s }' % ("access { anonymous = none }" if closed else ""))
    token = m.token("ci", "publish:models/me/*", "read:models/me/*")
    assert m.put("/models/api/repos/create", json.dumps({"name": "gpt", "organization": "me"}).encode(), "h1", token, method="POST").status == 200
    files = {"a.bin": os.urandom(300000), "b.bin": b"b" * 70000}
    w = Work(tmp_path / "w", m.url("/models/me/gpt.git/info/lfs"), ("ci", token))
    w.add(files)
    w.git("lfs", "push", "--all", "origin")
    want = {sha256_of(d): d for d in files.values()}
    assert w.objects() == want
    w.forget()
    w.git("lfs", "fetch")  # brought, and named by no commit: for those who may publish
    assert w.objects() == want
    stranger = Work(tmp_path / "stranger", m.url("/models/me/gpt.git/info/lfs"), ("r", m.token("reader", "read:models/me/*")))
    stranger.point(files)
    stranger.git("lfs", "fetch", fails=True)
    assert not stranger.objects()
    lines = [{"key": "header", "value": {"summary": "s"}}] + [
        {"key": "lfsFile", "value": {"path": n, "algo": "sha256", "oid": sha256_of(d), "size": len(d)}} for n, d in files.items()]
    assert m.put("/models/api/models/me/gpt/commit/main", b"".join(json.dumps(x).encode() + b"\n" for x in lines), "h1", token,
                 method="POST").status == 200
    for name in files:
        (w.folder / name).unlink()
    w.git("lfs", "pull")
    assert w.objects() == want
    w.git("checkout", "-q", "--", ".")
    w.git("lfs", "checkout")
    assert {n: (w.folder / n).read_bytes() for n in files} == files
    if not closed:
        other = Work(tmp_path / "other", m.url("/models/me/gpt.git/info/lfs"))
        other.point(files)
        other.git("lfs", "fetch")
        assert other.objects() == want


def test_a_batch_of_a_hosted_tree(mirrord, wire):
    m = mirrord('repo "open" { protocol = "hosted" }\nrepo "closed" { protocol = "hosted" access { anonymous = none } }')
    for repo, status in (("open", 200), ("closed", 401)):
        token = m.token(f"ci-{repo}", f"publish:{repo}/me/*", f"read:{repo}/me/*")
        assert m.put(f"/{repo}/me/gpt/a.bin", b"a" * 100, wire, token).status == 201
        at = f"/{repo}/me/gpt.git/info/lfs/objects/batch"
        got = batch(m, at, b"a" * 100, b"none", wire=wire)
        assert got.status == status and b"publish" not in got.body
        one, none = json.loads(batch(m, at, b"a" * 100, b"none", token=token, wire=wire).body)["objects"]
        assert none["error"]["code"] == 404 and "actions" not in none
        down = one["actions"]["download"]
        assert ("header" in down) == (repo == "closed")
        path = "/" + down["href"].split("/", 3)[3]
        assert m.get(path, wire, headers=bearer(token)).body == b"a" * 100
        assert m.get(path, wire).status == status
        assert batch(m, f"/{repo}/me/none.git/info/lfs/objects/batch", b"a", token=token, wire=wire).status == 404


def test_what_was_brought(mirrord, wire):
    """Until a commit names it, it is read by those who may publish to that tree."""
    m = mirrord('repo "models" { protocol = "hosted" }')
    mine, other = m.token("mine", "publish:models/me/*"), m.token("other", "publish:models/you/*", "read:models/*")
    assert m.put("/models/me/gpt/a.bin", b"a", wire, mine).status == 201
    data = b"brought" * 10
    body = {"operation": "upload", "transfers": ["basic"], "objects": [{"oid": sha256_of(data), "size": len(data)}]}
    one, = json.loads(m.put("/models/me/gpt.git/info/lfs/objects/batch", json.dumps(body).encode(), wire, mine, method="POST").body)["objects"]
    path = "/" + one["actions"]["upload"]["href"].split("/", 3)[3]
    assert m.get(path, wire, headers=bearer(mine)).status == 404
    missing, = json.loads(batch(m, "/models/me/gpt.git/info/lfs/objects/batch", data, token=mine, wire=wire).body)["objects"]
    assert "error" in missing
    assert m.put(path, data, wire).status == 200
    assert m.get(path, wire).status == 401 and m.get(path, wire, headers=bearer(other)).status == 403
    assert m.get(path, wire, headers=bearer(mine)).body == data
    assert m.get(path.split("?")[0], wire, headers=bearer(mine)).status == 404
    for token, found in ((mine, True), (other, False), (None, False)):
        got, = json.loads(batch(m, "/models/me/gpt.git/info/lfs/objects/batch", data, token=token, wire=wire).body)["objects"]
        assert ("actions" in got) == found


FILES = {".gitattributes": b"*.bin filter=lfs\n", "README.md": b"# card\n", "a.bin": Big(300000), "sub/b c.bin": Big(70000, 2)}


@pytest.mark.parametrize("closed", [False, True], ids=["open", "gated"])
def test_a_hub(mirrord, hub, client, tmp_path, closed):
    client("git-lfs")
    hub.users.update({"hf_alice": "alice", "hf_bob": "bob"})
    repo = hub.repo("org/demo", files=FILES, gated=closed, readers={"hf_alice"})
    old = Big(5000, 9)
    repo.refs["old"] = repo.commit({"a.bin": old}, ref="old")
    m = mirrord(hub.config())
    url = m.url("/hf/org/demo.git/info/lfs")
    w = Work(tmp_path / "w", url, ("alice", "hf_alice") if closed else None)
    w.point({"a.bin": FILES["a.bin"], "b.bin": FILES["sub/b c.bin"]})
    w.git("lfs", "fetch")
    assert w.objects() == {sha256_of(d): read(d) for d in (FILES["a.bin"], FILES["sub/b c.bin"])}
    assert hub.cdn_bytes[sha256_of(FILES["a.bin"])] == 300000
    w.forget()
    w.git("lfs", "fetch")
    assert hub.cdn_bytes[sha256_of(FILES["a.bin"])] == 300000, "once across the wire"
    w.git("checkout", "-q", "-b", "old")
    w.point({"a.bin": old})
    w.git("rm", "-q", "b.bin")
    w.git("commit", "-q", "-m", "less")
    w.forget()
    w.git("lfs", "fetch", "origin", "old")
    assert w.objects() == {sha256_of(old): read(old)}
    assert "does not accept uploads" in w.git("lfs", "push", "--all", "origin", fails=True)
    if closed:
        bob = Work(tmp_path / "bob", url, ("bob", "hf_bob"))
        bob.point({"a.bin": FILES["a.bin"]})
        bob.git("lfs", "fetch", fails=True)
        assert not bob.objects()
    assert not hub.leaks


def test_a_batch_of_a_hub(mirrord, hub, wire):
    hub.users["hf_alice"] = "alice"
    hub.repo("org/gated", files=FILES, gated=True, readers={"hf_alice"})
    hub.repo("org/demo", kind="datasets", files=FILES)
    m = mirrord(hub.config())
    at = "/hf/org/gated.git/info/lfs/objects/batch"
    assert batch(m, at, FILES["a.bin"], wire=wire).status == 401
    got = json.loads(batch(m, at, FILES["a.bin"], b"none", token="hf_alice", wire=wire).body)["objects"]
    assert got[0]["actions"]["download"]["header"] == {"Authorization": "Bearer hf_alice"} and got[1]["error"]["code"] == 404
    got, = json.loads(batch(m, "/hf/datasets/org/demo.git/info/lfs/objects/batch", FILES["sub/b c.bin"], wire=wire).body)["objects"]
    assert "header" not in got["actions"]["download"]
    assert m.get("/" + got["actions"]["download"]["href"].split("/", 3)[3], wire).body == read(FILES["sub/b c.bin"])
    basic = base64.b64encode(b"alice:hf_alice").decode()
    body = json.dumps({"operation": "download", "objects": [{"oid": sha256_of(FILES["a.bin"]), "size": 300000}]}).encode()
    assert m.put(at, body, wire, None, method="POST", headers={"Authorization": f"Basic {basic}"}).status == 200
    assert m.put(at, b"[1]", wire, "hf_alice", method="POST").status == 422
    assert not hub.leaks
