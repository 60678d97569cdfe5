"""Private and gated repositories of a Hub against callers without the right: every way to a byte, cold and after somebody with the
right has warmed all of it, with the Hub's own question (auth-check) and at a Hub that lacks it."""
import concurrent.futures
import hashlib
import http.client
import json
import subprocess
import time
import urllib.parse

import pytest

from harness import serving
from harness.hub import read
from harness.mirrord import BUILD, until

OWNER, STRANGER = "hf_alice", "hf_bob"
SHORT = "rule '^(api|rights)' { ttl = 1s }"


def secret(name, size):
    """Bytes that are found again wherever they leak."""
    return (b"S3CRET:" + name.encode() + b" " * size)[:size]


README, ATTRIBUTES = b"# a card\n", b"*.bin filter=lfs\n"
# By what their smallest file is. Those that are LFS are named *.bin.
SHAPES = {
    "card": {"README.md": README, ".gitattributes": ATTRIBUTES, "config.json": secret("config", 40), "weights.bin": secret("w", 3000),
             "sub/README.md": secret("below", 60)},
    "config": {"README.md": README * 30, ".gitattributes": ATTRIBUTES * 9, "config.json": secret("config", 20),
               "weights.bin": secret("w", 3000), "sub/README.md": secret("below", 60)},
    "weight": {"README.md": README * 30, ".gitattributes": ATTRIBUTES * 9, "config.json": secret("config", 70),
               "weights.bin": secret("w", 30), "sub/README.md": secret("below", 60)},
}
KINDS = {"models": "", "datasets": "datasets/"}


class Case:
    """A repository with one history: a branch, a tag, commits, and a name that it had once."""

    def __init__(self, hub, kind, shape, private=False, files=None):
        word = "private" if private else "gated"
        self.kind, self.prefix, self.private = kind, KINDS[kind], private
        self.name, self.old = f"Meta/{word}-{shape}", f"once/{word}-{shape}"
        mark = f"S3CRET:{kind}{word}{shape}:".encode()  # no two repositories have the same secrets
        self.files = {p: (d.replace(b"S3CRET:", mark) if d.startswith(b"S3CRET") else mark + d if private else d)[:len(d)]
                      for p, d in (files or SHAPES[shape]).items()}
        self.repo = hub.repo(self.name, kind=kind, private=private, gated=not private, readers={OWNER})
        self.repo.lfs.update(p for p in self.files if p.endswith(".bin"))
        self.sha = self.repo.commit(self.files)
        self.repo.refs["v1.0"] = self.repo.refs["side/branch"] = self.sha
        hub.rename(self.old, self.name, kind=kind)
        self.api = f"/hf/api/{kind}/{self.name}"

    def is_open(self, path):
        return not self.private and path in ("README.md", ".gitattributes")

    def hidden(self):
        return {p: d for p, d in self.files.items() if not self.is_open(p)}

    def file(self, path, rev="main", name=None):
        return f"/hf/{self.prefix}{name or self.name}/resolve/{urllib.parse.quote(rev, safe='')}/{urllib.parse.quote(path)}"


@pytest.fixture
def cases(hub):
    hub.users.update({OWNER: "alice", STRANGER: "bob"})
    return [Case(hub, kind, shape) for kind in KINDS for shape in SHAPES] + [
        Case(hub, "models", "weight", private=True), Case(hub, "datasets", "card", private=True)]


@pytest.fixture(params=["auth-check", "no auth-check"])
def asks(hub, request):
    hub.auth_check = request.param == "auth-check"
    return hub.auth_check


class Caller:
    """One connection of one caller: thousands of questions, no process for any."""

    def __init__(self, m, token):
        self.token, self.m, self.line = token, m, None

    def ask(self, path, method="GET", body=None, **headers):
        fields = {k.replace("_", "-"): v for k, v in headers.items()}
        if self.token:
            fields["Authorization"] = f"Bearer {self.token}"
        reply = self.send(method, path, body, fields)
        reply.bytes = reply.read()
        return reply

    def send(self, method, path, body, fields):
        """Again where the mirror has closed a line that was idle for a minute."""
        for last in (False, True):
            self.line = self.line or http.client.HTTPConnection("127.0.0.1", self.m.port, timeout=300)
            try:
                self.line.request(method, path, body=body, headers=fields)
                return self.line.getresponse()
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                self.line.close()
                if last:
                    raise
        return None


def spellings(c, path):
    """(address, whether the mirror must give it to those with the right)"""
    yield from ((c.file(path, rev), True) for rev in ("main", "v1.0", "side/branch", c.sha, c.sha[:10]))
    yield c.file(path, name=c.old), True
    yield c.file(path, c.sha, name=c.old), True
    yield c.file(path, name=c.name.upper()), True
    yield c.file(path, c.sha, name=c.name.lower()), True
    yield f"/hf/api/resolve-cache/{c.kind}/{c.name}/{c.sha}/{path}", True
    yield c.file(path) + "/", True
    yield c.file(path) + "?download=true", True
    yield c.file(path.replace("o", "%6F")).replace("%256F", "%6F"), True
    folded = c.name.replace("a", "%61")
    for name in (folded, c.name.replace("/", "%2F"), c.name + "/", "/" + c.name, "./" + c.name, c.name + "%00", c.name + ".git"):
        yield c.file(path, name=name), False
    yield f"/hf/{c.kind}/{c.name}/resolve/main/{path}", False
    yield f"/hf/api/{c.kind}/{c.name}/resolve/main/{path}", False
    for word in ("raw", "blob", "RESOLVE", "%72esolve"):
        yield c.file(path).replace("/resolve/", f"/{word}/"), False
    yield f"/hf/api/resolve-cache/{c.kind}/{c.old}/{c.sha}/{path}", True
    yield f"/hf/{c.kind}/{c.name}/blobs/{c.repo.etag(path)}", False
    yield f"/hf/rights/{c.kind}/{c.name}", False


def conditions(c, path):
    tag = f'"{c.repo.etag(path)}"'
    yield from (("HEAD", {}), ("GET", {"Range": "bytes=0-9"}), ("GET", {"Range": "bytes=-5"}), ("GET", {"Range": "bytes=2-3,5-6"}),
                ("GET", {"If_None_Match": tag}), ("HEAD", {"If_None_Match": tag}), ("GET", {"If_None_Match": "*"}), ("GET", {"If_Match": tag}),
                ("GET", {"Range": "bytes=0-9", "If_Range": tag}), ("GET", {"If_Modified_Since": "Fri, 01 Jan 2100 00:00:00 GMT"}),
                ("GET", {"Cache_Control": "only-if-cached"}), ("GET", {"Cache_Control": "max-stale"}), ("POST", {}))


def chunk_store(c, path):
    digest = hashlib.sha256(c.files[path]).hexdigest()
    for rev in ("main", c.sha):
        yield "GET", f"{c.api}/xet-read-token/{rev}", {}
    for name in (c.name, c.old):
        at = f"/hf/api/{c.kind}/{name}/xet/{c.sha}"
        yield "GET", f"{at}/v1/reconstructions/{digest}", {}
        yield "GET", f"{at}/v1/reconstructions/{digest}", {"Range": "bytes=0-9"}
        yield "GET", f"{at}/data/{digest}", {}
        yield "GET", f"{at}/data/{digest}", {"Range": "bytes=0-17"}
        yield "GET", f"{at}/data/{digest}?key=", {"Range": "bytes=0-17"}


def no_way_out(hub, reply):
    said = str(reply.getheaders()).encode() + reply.bytes
    for host in (hub.url, hub.cdn, "127.0.0.2"):
        assert host.encode() not in said, said[:500]


def told(c, who, hub):
    """What the Hub tells everybody of a gated repository, and nobody of a private one."""
    form = urllib.parse.urlencode([("paths", p) for p in c.files] + [("expand", "true")])
    yield who.ask(c.api)
    for query in ("blobs=true", "securityStatus=true&blobs=true", "expand=siblings"):
        yield who.ask(f"{c.api}?{query}")
        yield who.ask(f"{c.api}/revision/{c.sha}?{query}")
    for rev in ("main", c.sha):
        yield who.ask(f"{c.api}/revision/{rev}")
        yield who.ask(f"{c.api}/tree/{rev}?recursive=true&expand=true")
        yield who.ask(f"{c.api}/paths-info/{rev}", "POST", form, Content_Type="application/x-www-form-urlencoded")
        yield who.ask(f"{c.api}/commits/{rev}")
    yield who.ask(f"{c.api}/refs")


def is_refused(c, who, hub):
    """Not a byte, by no way."""
    asked = 0
    for path in c.hidden():
        for at, _ in spellings(c, path):
            ways = [("GET", {})] + (list(conditions(c, path)) if at in (c.file(path), c.file(path, c.sha), c.file(path, name=c.old)) else [])
            for method, headers in ways:
                got = who.ask(at, method, **headers)
                asked += 1
                assert got.status >= 400, (who.token, c.name, method, at, headers, got.status, got.bytes[:80])
                assert b"S3CRET" not in got.bytes and not got.getheader("ETag"), (who.token, at)
                no_way_out(hub, got)
        for method, at, headers in chunk_store(c, path):
            got = who.ask(at, method, **headers)
            asked += 1
            assert got.status >= 400 and b"S3CRET" not in got.bytes, (who.token, at, got.status)
            no_way_out(hub, got)
        digest = hashlib.sha256(c.files[path])
        for at in ("blob", "chunks", "sync/cdc"):
            got = who.ask(f"/-/{at}/{digest.hexdigest()}", Range="bytes=0-9")
            assert got.status == 404, (who.token, at, path)
        got = who.ask("/-/sync/blobs", "POST", digest.digest(), Content_Type="application/vnd.mirrord.digests")
        assert b"S3CRET" not in got.bytes and (got.status != 200 or got.bytes == b"\xff" * 4), (who.token, path)
        asked += 4
    got = who.ask(f"/hf/{c.prefix}{c.name}.git/info/lfs/objects/batch", "POST", json.dumps({"operation": "download", "objects": [
        {"oid": hashlib.sha256(d).hexdigest(), "size": len(d)} for d in c.files.values()]}))
    assert got.status in (401, 403, 404) and b"actions" not in got.bytes
    no_way_out(hub, got)
    for got in told(c, who, hub):
        asked += 1
        assert got.status >= 400 if c.private else got.status == 200, (who.token, c.name)
        assert b"S3CRET" not in got.bytes and b"xet" not in got.bytes.replace(b'"xetHash":"', b"") or c.private
        no_way_out(hub, got)
    return asked


def card_is_shown(c, who):
    for path in c.files:
        if c.is_open(path):
            for at in (c.file(path), c.file(path, c.sha), c.file(path, name=c.old)):
                got = who.ask(at)
                assert (got.status, got.bytes, got.getheader("ETag")) == (200, c.files[path], f'"{c.repo.etag(path)}"'), (who.token, at)
                assert who.ask(at, "HEAD").status == 200
            assert who.ask(c.file(path), If_None_Match=f'"{c.repo.etag(path)}"').status == 304


def is_let_in(c, who):
    for path, data in c.files.items():
        for at, works in spellings(c, path):
            got = who.ask(at)
            assert not works or (got.status, got.bytes) == (200, data), (c.name, at, got.status, got.bytes[:200])
        for method, headers in conditions(c, path):
            assert who.ask(c.file(path), method, **headers).status in (200, 206, 304, 403, 504), (method, headers)
        if c.repo.is_lfs(path, data):
            at = f"{c.api}/xet/{c.sha}/v1/reconstructions/{hashlib.sha256(data).hexdigest()}"
            terms = json.loads(who.ask(at).bytes)
            place, = terms["fetch_info"][terms["terms"][0]["hash"]]
            assert b"S3CRET" in who.ask(place["url"][place["url"].index("/hf/"):]).bytes


def callers(m):
    return [Caller(m, token) for token in (STRANGER, "", "hf_nobody", m.token("reader", "read:*"))]


def checks_as_the_hub(c, hub, callers_):
    for who in callers_:
        direct = http.client.HTTPConnection("127.0.0.1", hub.port, timeout=60)
        token = who.token if not who.token.startswith("mrd_") else ""
        direct.request("GET", f"/api/{c.kind}/{c.name}/auth-check", headers={"Authorization": f"Bearer {token}"} if token else {})
        want = direct.getresponse()
        want.read()
        for name in (c.name, c.old, c.name.lower()):
            got = who.ask(f"/hf/api/{c.kind}/{name}/auth-check")
            assert who.token == OWNER or got.status != 200
            if hub.auth_check:
                assert (got.status, got.getheader("X-Error-Code")) == (want.status, want.getheader("X-Error-Code")), (who.token, name)
        assert who.ask(f"/hf/api/{c.kind}/{c.name}/auth-check/write").status == 403


def test_every_way_to_a_byte(mirrord, hub, cases, asks):
    m = mirrord(hub.config(more='xet = "on"'))
    owner, strangers = Caller(m, OWNER), callers(m)
    asked = sum(is_refused(c, who, hub) for c in cases for who in strangers[:2])
    for c in cases:
        is_let_in(c, owner)
    m.settle()
    asked += sum(is_refused(c, who, hub) for c in cases for who in strangers)
    for c in cases:
        for who in (owner, *strangers):
            card_is_shown(c, who)
        checks_as_the_hub(c, hub, (owner, *strangers))
    assert asked > 5000
    for c in cases:
        is_let_in(c, owner)


def test_a_right_is_asked_for_once(mirrord, hub, cases, asks):
    """Whatever the name's spelling, the revision and the file: one right of one caller to one repository."""
    m = mirrord(hub.config())
    owner, c = Caller(m, OWNER), cases[0]
    for path in c.files:
        for at, works in spellings(c, path):
            assert not works or owner.ask(at).status == 200
    checks = [call for call in hub.calls if call[1].startswith("/api/") and call[1].endswith("/auth-check") and c.name in call[1]]
    assert len(checks) == 1 and checks[0][2] == OWNER
    tried = [call for call in hub.calls if call[1].startswith("/api/resolve-cache/") and call[1].endswith("/config.json")]
    assert len(tried) <= (1 if asks else 2), "the file itself, and a right tried on it"


def test_nothing_but_a_card(mirrord, hub):
    """At a Hub without auth-check, a repository that has no other file gives no right to assume."""
    hub.users.update({OWNER: "alice", STRANGER: "bob"})
    hub.auth_check = False
    c = Case(hub, "models", "bare", files={"README.md": README, ".gitattributes": ATTRIBUTES, "sub/README.md": secret("b", 90)})
    m = mirrord(hub.config())
    for token in (OWNER, STRANGER, ""):
        who = Caller(m, token)
        card_is_shown(c, who)
        assert who.ask(c.file("sub/README.md")).status == (403 if token else 401), "nobody's right can be told here"
        got = who.ask(c.api + "/auth-check")
        assert (got.status, got.getheader("X-Error-Code")) == (403 if token else 401, "GatedRepo")


def odd(body, kind="application/json"):
    return 200, {"Content-Type": kind}, body


@pytest.mark.parametrize("what", [
    b"<html><form>log in</form></html>", 500, 503, odd(b"[]"), odd(b"please sign in", "text/plain"), odd(b"\xef\xbb\xbf<html>sign in</html>"),
    odd(b'{"error":"sign in"}'), odd(b"true"), odd(b"{} {}")], ids=lambda what: str(what[-1] if isinstance(what, tuple) else what)[:24])
def test_an_odd_word_is_no_yes(mirrord, hub, cases, what):
    """A login page in place of the Hub's word, or its trouble, lets nobody in, and is asked about again."""
    m = mirrord(hub.config())
    c = cases[0]
    for who in (Caller(m, STRANGER), Caller(m, OWNER)):
        hub.order("/auth-check", what, times=100)
        got = who.ask(c.file("config.json"))
        assert got.status in (502, 503, 504) and b"S3CRET" not in got.bytes
        hub.script.clear()
    m.stop()
    m.start()
    assert Caller(m, STRANGER).ask(c.file("config.json")).status == 403
    assert Caller(m, OWNER).ask(c.file("config.json")).bytes == c.files["config.json"]


def test_pages_name_no_private_repository(mirrord, hub, cases):
    """Not even after somebody with the right has brought its files."""
    m = mirrord(hub.config())
    private, gated = cases[-1], cases[0]
    for c in (private, gated):
        is_let_in(c, Caller(m, OWNER))
    m.settle()
    who = Caller(m, STRANGER)
    for path in ("/-/repos/hf/", "/", "/-/status.json"):
        assert b"private-card" not in who.ask(path).bytes, path
    for query in ("", "?rev=main", f"?rev={private.sha}"):
        assert who.ask(f"/-/repos/hf/{private.prefix}{private.name}{query}").status == 404
    assert gated.name.encode() in who.ask("/-/repos/hf/").bytes


def test_a_right_that_was_taken_away(mirrord, hub, cases, asks):
    """What the Hub has refused once is not allowed later because the Hub is silent."""
    m = mirrord(hub.config(more=SHORT))
    gated, private = cases[0], cases[-1]
    owner = Caller(m, OWNER)
    for c in (gated, private):
        assert owner.ask(c.file("config.json")).bytes == c.files["config.json"]
        c.repo.readers.clear()
        until(lambda c=c: owner.ask(c.file("config.json")).status in (403, 404))
    m.stop()  # a no is forgotten here, what is on the disk is not
    hub.down()
    m.start()
    owner = Caller(m, OWNER)
    for c in (gated, private):
        got = owner.ask(c.file("config.json"))
        assert got.status in (502, 504) and b"S3CRET" not in got.bytes, c.name
    hub.up()


@pytest.mark.parametrize("rev", ["main", None], ids=["branch", "commit"])
def test_a_repository_that_was_open(mirrord, hub, rev):
    """It is private since the Hub has said so once, silent or not."""
    hub.users.update({OWNER: "alice", STRANGER: "bob"})
    repo = hub.repo("org/demo", files={"config.json": b"{}", "weights.bin": secret("w", 300)})
    m = mirrord(hub.config(more=SHORT))
    path = f"/hf/org/demo/resolve/{rev or repo.sha}/weights.bin"
    strangers = [Caller(m, token) for token in (STRANGER, "")]
    assert all(who.ask(path).status == 200 for who in strangers)
    repo.private = True
    for who in strangers:
        until(lambda who=who: who.ask(path).status in (401, 404))
    m.stop()  # a no is forgotten here, what is on the disk is not
    hub.down()
    m.start()
    for token in (STRANGER, ""):
        got = Caller(m, token).ask(path)
        assert got.status in (401, 404, 502, 504) and b"S3CRET" not in got.bytes, token
    hub.up()


CLOSINGS = {
    "private": lambda hub, repo: setattr(repo, "private", True),
    "gated": lambda hub, repo: setattr(repo, "gated", True),
    "removed": lambda hub, repo: hub.repos.pop(("models", "org/demo")),
}


@pytest.fixture(params=CLOSINGS)
def demo(mirrord, hub, request):
    """Open to everybody until close(); a word of the Hub's holds for a second."""
    hub.users.update({OWNER: "alice", STRANGER: "bob"})
    repo = hub.repo("org/demo", files={"README.md": README, "config.json": b"{}", "weights.bin": secret("w", 3000)})
    repo.refs["v1.0"] = repo.sha
    hub.rename("once/demo", "org/demo")
    repo.m = mirrord(hub.config(more=SHORT))
    repo.close = lambda: CLOSINGS[request.param](hub, repo)
    repo.digest = hashlib.sha256(secret("w", 3000))
    repo.at = {"main": "/hf/org/demo/resolve/main/weights.bin", "tag": "/hf/org/demo/resolve/v1.0/weights.bin",
               "spelling": "/hf/ORG/Demo/resolve/main/weights.bin", "former name": "/hf/once/demo/resolve/main/weights.bin",
               "commit": f"/hf/org/demo/resolve/{repo.sha}/weights.bin",
               "commit, former name": f"/hf/once/demo/resolve/{repo.sha}/weights.bin"}
    return repo


def is_no_bytes(got):
    return got.status >= 400 and b"S3CRET" not in got.bytes


def gone_by_digest(demo):
    who = Caller(demo.m, "")
    got = who.ask("/-/sync/blobs", "POST", demo.digest.digest(), Content_Type="application/vnd.mirrord.digests")
    return b"S3CRET" not in got.bytes and (got.status != 200 or got.bytes == b"\xff" * 4) and all(
        who.ask(f"/-/{at}/{demo.digest.hexdigest()}", Range="bytes=0-9").status == 404 for at in ("blob", "chunks", "sync/cdc"))


@pytest.mark.parametrize("asked", ["main", "tag", "spelling", "former name", "commit"])
def test_what_is_closed_at_one_address_is_closed_at_all(hub, demo, asked):
    """Whatever address the Hub has said no to: when it falls silent no other one, asked for before, gives a byte."""
    m = demo.m
    for at in demo.at.values():
        assert Caller(m, STRANGER).ask(at).status == 200
    m.settle()
    demo.close()
    until(lambda: Caller(m, STRANGER).ask(demo.at[asked]).status in (401, 403, 404))
    hub.down()
    for restart in (False, True):
        if restart:
            m.stop()
            m.start()
        for name, at in demo.at.items():
            assert all(is_no_bytes(Caller(m, token).ask(at)) for token in (STRANGER, "")), (name, restart)
        assert gone_by_digest(demo)
    hub.up()


def test_a_digest_is_everybodys_while_its_repository_is(hub, demo):
    m = demo.m
    assert Caller(m, STRANGER).ask(demo.at["main"]).status == 200
    m.settle()
    assert Caller(m, "").ask(f"/-/blob/{demo.digest.hexdigest()}").bytes == secret("w", 3000)
    demo.close()
    until(lambda: Caller(m, STRANGER).ask(demo.at["main"]).status in (401, 403, 404))
    assert gone_by_digest(demo)
    demo.private = demo.gated = False
    hub.repos["models", "org/demo"] = demo
    until(lambda: Caller(m, "").ask(demo.at["main"]).status == 200 and not gone_by_digest(demo))
    assert Caller(m, "").ask(f"/-/blob/{demo.digest.hexdigest()}").bytes == secret("w", 3000)


def test_silence_opens_what_was_open(hub, demo):
    """No word of the Hub's has closed it: all addresses go on."""
    for at in demo.at.values():
        assert Caller(demo.m, "").ask(at).status == 200
    demo.m.settle()
    hub.down()
    demo.m.stop()
    demo.m.start()
    for at in demo.at.values():
        assert Caller(demo.m, "").ask(at).bytes == secret("w", 3000)
    assert Caller(demo.m, "").ask(f"/-/blob/{demo.digest.hexdigest()}").status == 200
    hub.up()


def test_what_is_said_of_a_repository_ends_with_its_openness(hub, demo):
    """Listings and documents, which a rule allows to be stale for an hour; the branch's own document may be so for five minutes."""
    demo.m.stop()
    demo.m.config = hub.config(more="rule '' { ttl = 1s neg_ttl = 1s stale_while = 1h }")
    demo.m.start()
    who, api = Caller(demo.m, STRANGER), "/hf/api/models/org/demo"
    form = urllib.parse.urlencode({"paths": "weights.bin"})
    asks = [(f"{api}/tree/main",), (f"{api}/tree/{demo.sha}",), (f"{api}/tree/main?expand=true",), (f"{api}/revision/{demo.sha}",), (f"{api}/refs",),
            (f"{api}/commits/main",), (f"{api}?blobs=true",), (f"{api}/paths-info/main", "POST", form), (f"{api}/auth-check",)]
    for ask in asks:
        assert who.ask(*ask).status == 200, ask
    demo.m.settle()
    demo.close()
    time.sleep(2)
    for ask in asks:
        got = who.ask(*ask)
        assert got.status == (403 if demo.gated and ask[0].endswith("auth-check") else 200 if demo.gated else 404), (ask, got.status)
    for page in ("/-/repos/hf/", "/-/repos/hf/org/demo", f"/-/repos/hf/org/demo?rev={demo.sha}"):
        got = who.ask(page)
        assert demo.gated or got.status == 404 or b"demo" not in got.bytes, page
    hub.down()
    for ask in asks[:-1]:
        got = who.ask(*ask)
        assert demo.gated or b"weights" not in got.bytes and got.status >= 400, ask
    hub.up()


def test_a_right_outlives_silence_for_its_time_alone(mirrord, hub, cases):
    """`sie` of a rule, an hour at most: asking often does not make it longer."""
    m = mirrord(hub.config(more="rule '^rights' { ttl = 1s sie = 2s }"))
    owner, c = Caller(m, OWNER), cases[0]
    assert owner.ask(c.file("config.json", c.sha)).status == 200
    hub.down()
    until(lambda: owner.ask(c.file("config.json", c.sha)).status in (502, 504))
    hub.up()


def test_another_repository_under_the_name(mirrord, hub):
    """Who registers a name that a gated repository had once has a right to nothing of that one."""
    hub.users.update({OWNER: "alice", STRANGER: "bob"})
    m = mirrord(hub.config(more=SHORT))
    c = Case(hub, "models", "card")
    owner, thief = Caller(m, OWNER), Caller(m, STRANGER)
    for name in (c.name, c.old):
        assert owner.ask(c.file("config.json", c.sha, name=name)).status == 200
    m.settle()
    del hub.renamed["models", c.old]
    hub.repo(c.old, gated=True, readers={STRANGER}, files={"config.json": b"{}"})
    until(lambda: thief.ask(f"/hf/api/models/{c.old}/auth-check").status == 200)
    for path in c.hidden():
        got = thief.ask(c.file(path, c.sha, name=c.old))
        assert got.status >= 400 and b"S3CRET" not in got.bytes, path


@pytest.mark.parametrize("how", ["former name", "its name then", "its name then, and former"])
def test_an_old_name_gives_nothing_of_who_had_it(mirrord, hub, how):
    """A repository was open, is renamed and private, and somebody registers the name that it was asked for by."""
    former = how == "former name"
    hub.users.update({OWNER: "alice", STRANGER: "bob"})
    files = {"config.json": b"{}", "weights.bin": secret("w", 3000)}
    repo = hub.repo("org/demo" if former else "once/demo", files=files)
    if former:
        hub.rename("once/demo", "org/demo")
    m = mirrord(hub.config(more=SHORT))
    who = Caller(m, STRANGER)
    at = f"/hf/once/demo/resolve/{repo.sha}/weights.bin"
    assert who.ask(at).status == 200
    m.settle()
    hub.repos.clear()
    repo.name = "org/demo"
    hub.repos["models", "org/demo"] = repo
    if how == "its name then, and former":
        hub.rename("once/demo", "org/demo")
        until(lambda: b'"org/demo"' in who.ask("/hf/api/models/once/demo/revision/main").bytes)
        assert who.ask(at).status == 200
        m.settle()
    repo.private = True
    if how == "its name then, and former":
        until(lambda: who.ask(at).status in (401, 404))
    if former:
        until(lambda: who.ask(f"/hf/org/demo/resolve/{repo.sha}/weights.bin").status in (401, 404))
    hub.renamed.clear()
    hub.repo("once/demo", files={"config.json": b"{}"})
    until(lambda: b'"once/demo"' in who.ask("/hf/api/models/once/demo").bytes and who.ask("/hf/once/demo/resolve/main/config.json").status == 200)
    for path in (at, f"/hf/api/models/once/demo/tree/{repo.sha}", "/-/blob/" + hashlib.sha256(files["weights.bin"]).hexdigest()):
        got = who.ask(path)
        assert is_no_bytes(got) and b"weights" not in got.bytes, (path, got.status)


class Elsewhere(serving.Handler):
    """Somebody's login page, which answers as JSON to whoever asks for that."""

    def do_GET(self):
        body = b'{"login":"please"}'
        self.send_response_only(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def test_another_host_gives_no_right(mirrord, hub, cases):
    """A question about a right is answered by the Hub itself, though it may lead to that host for files."""
    idp, c = serving.Server(("127.0.0.3", 0), Elsewhere), cases[0]
    serving.run(idp)
    try:
        there = f"127.0.0.3:{idp.server_address[1]}"
        m = mirrord(f'repo "hf" {{ protocol = "hf" origin = "{hub.url}" hosts = {{"127.0.0.2:{hub.cdn_port}", "{there}"}} }}')
        assert Caller(m, OWNER).ask(c.file("config.json")).status == 200
        hub.order("/auth-check", (302, {"Location": f"http://{there}/login"}, b""), times=100)
        assert is_no_bytes(Caller(m, STRANGER).ask(c.file("config.json")))
    finally:
        serving.stop(idp)


ALLOWS_STALE = {"Cache-Control": "max-age=0, stale-while-revalidate=86400, stale-if-error=864000"}


@pytest.mark.parametrize("private", [True, False], ids=["private", "gated"])
def test_the_hubs_words_do_not_make_a_right_longer(mirrord, hub, private):
    hub.users.update({OWNER: "alice"})
    hub.fields.update(ALLOWS_STALE)
    c = Case(hub, "models", "card", private=private)
    m = mirrord(hub.config(more="rule '^(rights|api/[a-z]+/[^/]+/[^/]+/revision)' { ttl = 1s neg_ttl = 1s sie = 2s }"))
    owner = Caller(m, OWNER)
    assert owner.ask(c.file("config.json")).status == 200
    m.settle()
    c.repo.readers.clear()
    time.sleep(2)
    assert owner.ask(c.file("config.json")).status in (403, 404)
    c.repo.readers.add(OWNER)
    until(lambda: owner.ask(c.file("config.json")).status == 200)
    m.settle()
    hub.down()
    time.sleep(4)
    for _ in range(3):
        assert owner.ask(c.file("config.json")).status in (502, 504)
    hub.up()


def test_a_right_tried_on_a_large_file(mirrord, hub):
    """A Hub without auth-check, and nothing but a file that no document may be as large as: it is asked about, not fetched."""
    hub.users.update({OWNER: "alice", STRANGER: "bob", "hf_carol": "carol"})
    hub.auth_check = False
    c = Case(hub, "models", "one", files={"README.md": README, "weights.bin": secret("w", 300000)})
    c.repo.readers.add("hf_carol")
    m = mirrord("cache { document = 64k }\n" + hub.config())
    for token in (OWNER, "hf_carol"):
        assert Caller(m, token).ask(c.file("weights.bin"), "HEAD").status == 200
    assert not hub.cdn_bytes
    for token in (STRANGER, ""):
        assert is_no_bytes(Caller(m, token).ask(c.file("weights.bin")))
    assert Caller(m, OWNER).ask(c.file("weights.bin")).bytes == c.files["weights.bin"]
    assert sum(hub.cdn_bytes.values()) == 300000


def test_a_page_that_nobody_can_read_takes_no_other_along(mirrord, hub):
    hub.users.update({OWNER: "alice"})
    for name in ("org/demo", "org/demo-2"):
        hub.repo(name, files={"config.json": b"{}"})
    m = mirrord(hub.config(more=SHORT))
    assert m.get("/hf/org/demo-2/resolve/main/config.json").status == 200
    m.settle()
    hub.order("^/api/models/org/demo(/revision/main)?$", b"<html>", times=100)
    assert m.get("/hf/api/models/org/demo").status == 502
    hub.down()
    m.stop()  # what is in memory is forgotten
    m.start()
    assert m.get("/hf/org/demo-2/resolve/main/config.json").status == 200
    hub.up()


def test_the_hubs_own_store_stays_there(mirrord, hub, cases):
    """No spelling of a path brings the address of the Hub's chunk store, and no token of its; nor does anything else that is not a
    document of ours reach the Hub by one that is."""
    hub.repo("squad", kind="datasets", files={"a.txt": b"a"})
    m = mirrord(hub.config())
    at = cases[0].name
    paths = ["api/buckets/org/b/xet-read-token", "api/buckets/org/b/xet-write-token", "api/Buckets/org/b/xet-read-token", "api/buckets/org/b",
             "api/buckets%2Forg/b/xet-read-token", "api/buckets/org/b/xet%2Dread-token", "api/x/y/XET-READ-TOKEN/main", "api//buckets/org/b",
             f"api/Models/{at}/xet-read-token/main", f"api/%6Dodels/{at}/xet-read-token/main", f"api/models/{at}/refs/../xet-read-token/main",
             f"api/models/{at}/refs/%2e%2e/xet-read-token/main", f"api/models/{at}/commits/main/../../xet-read-token/main",
             f"api/models/{at}/commits/main/x", f"api/models/{at}/refs/x", f"api/models/{at}/revision/main/xet-read-token?a=b",
             f"api/models/{at}/revision/main/../../xet-read-token/main?a=b", f"api/models/{at}/xet-read-token", "api/daily_papers/../models",
             f"api/models/{at}/xet-write-token/main", f"api/models/{at}/xet-read-token/main/x", "api/x/../buckets/org/b/xet-read-token",
             "api/datasets/squad/xet-read-token", "api/datasets/squad/xet-read-token?a=b", "api/datasets/squad/parquet?a=b"]
    for token in ("", OWNER):
        who = Caller(m, token)
        for path in paths:
            got = who.ask("/hf/" + path)
            assert got.status >= 400, (path, got.status, got.bytes[:200])
            assert b"casUrl" not in got.bytes and b"accessToken" not in got.bytes
            no_way_out(hub, got)
    # what a bucket has is read as a repository's listing is; nothing else of it
    reached = [c[1] for c in hub.calls if c[1] != "/api/buckets/org/b" and any(w in urllib.parse.unquote(c[1]).lower() for w in ("bucket", "xet", "..", "parquet"))]
    assert not [p for p in reached if "squad" not in p], reached
    hub.leaks[:] = [leak for leak in hub.leaks if "squad" not in leak[1]]  # a name that a repository may have, too


def test_many_at_once(mirrord, hub, cases):
    """Who waits beside somebody with the right gets his own answer."""
    m = mirrord(hub.config())
    c = cases[0]

    def one(i):
        who = Caller(m, (OWNER, STRANGER, "")[i % 3])
        got = [who.ask(c.file("weights.bin")) for _ in range(5)]
        return who.token, {(g.status, g.bytes) for g in got}
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        for token, got in pool.map(one, range(48)):
            assert {s for s, _ in got} == {{OWNER: 200, STRANGER: 403, "": 401}[token]}, token
            assert token != OWNER or got == {(200, read(c.files["weights.bin"]))}


def test_a_right_of_the_former_key_is_no_yes(mirrord, hub):
    """Answers of versions that kept them under another key are to another question: the Hub is asked again."""
    hub.users.update({OWNER: "alice"})
    c = Case(hub, "models", "config")
    m = mirrord(f'repo "hf" {{ protocol = "hf" origin = "{hub.url}" }}')
    ask = {"headers": {"Authorization": f"Bearer {OWNER}"}}
    assert m.get(c.file("config.json"), **ask).body == c.files["config.json"]
    m.settle()
    m.stop()
    renamed = subprocess.run([BUILD / "harness" / "old_rights", m.state], capture_output=True, text=True, check=True).stdout
    assert int(renamed) >= 1
    c.repo.readers.clear()
    m.start()
    assert m.get(c.file("config.json"), **ask).status == 403
