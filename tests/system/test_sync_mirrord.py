"""Mirrord to mirrord: an edge follows a core's trees by their roots. What travels is what changed, and what is published is
the core's tree to the last bit, or nothing."""
import hashlib
import json
import os
import threading

import pytest

from harness import serving
from harness.mirrord import until
from harness.tree_origin import TreeOrigin
from harness.way import Way
from system.test_sync import check, lines, run
from system.test_sync_rsync import CONFIG as FROM_RSYNC, module  # noqa: F401
from system.test_sync_trouble import clean

CORE = 'repo "x" {{ protocol = "generic" origin = "{0}" sync {{ list = sums backoff = "100ms" tries = 2 }} }}'
EDGE = 'repo "x" {{ protocol = "generic" origin = "http://127.0.0.1:{0}/{1}" sync {{ engine = "mirrord" backoff = "100ms" tries = {2} }} }}'
# A core that knows no batches (test_sync_batches.py), so that each file is a request.
ONE_BY_ONE = (b"POST /-/sync/blobs ", b"POST /-/sync/none_ ")
FILES = {f"pool/{i % 20:02}/file{i:04}": os.urandom(40 + i) for i in range(1000)}


class Source(TreeOrigin):
    """A folder with its SHA256SUMS."""

    def sums(self):
        self.put("SHA256SUMS", "".join(f"{hashlib.sha256(d).hexdigest()}  {p}\n" for p, d in sorted(self.tree().items())
                                       if p != "SHA256SUMS"))


@pytest.fixture
def o():
    with Source(FILES) as origin:
        origin.sums()
        yield origin


@pytest.fixture
def core(mirrord, o):
    m = mirrord(CORE.format(o.url))
    m.o = o
    run(m)
    return m


@pytest.fixture
def way(core):
    with Way(core.port) as w:
        yield w


def edge_of(mirrord, way, path="x/", tries=2, **kw):
    return mirrord(EDGE.format(way.port, path, tries), **kw)


def root(m, version=""):
    return m.ctl_json("snapshot", "show", "x", *([version] if version else []))["root"]


def change(core, count=10):
    for i in range(count):
        core.o.put(f"pool/{i % 20:02}/file{i:04}", os.urandom(60), mtime=1700009999)
    core.o.sums()
    assert run(core)["outcome"] == "published"


def test_first_copy_then_nothing_then_a_little(mirrord, core, way):
    edge = edge_of(mirrord, way)
    first = run(edge)
    assert (first["outcome"], first["listed"], first["root"]) == ("published", len(core.o.tree()), root(core))
    check(edge, core.o.tree())
    way.forget()
    again = run(edge)
    assert again["outcome"] == "unchanged" and again["seq"] == 1
    assert way.targets == ["/-/sync/x/head"] and way.bytes < 1024
    way.forget()
    assert run(edge, "--force")["outcome"] == "unchanged"  # all nodes are here
    assert way.targets == ["/-/sync/x/head"]
    change(core)
    way.forget()
    done = run(edge)
    assert (done["outcome"], done["changed"], done["files_done"], done["root"]) == ("published", 11, 11, root(core))
    assert len(way.asked("/-/blob/")) == 1 and len(way.asked("/-/sync/blobs")) == 1 and 1 < len(way.asked("/node/")) <= 11 + 2
    assert "nodes were downloaded" in lines(edge) and "were already here" in lines(edge)
    check(edge, core.o.tree())
    clean(edge)


def test_everything_that_a_tree_can_hold(mirrord, module):  # noqa: F811
    port, tree = module
    (tree / "d/empty").mkdir(parents=True)
    (tree / "d/file").write_bytes(b"one" * 50000)
    (tree / "d/run").write_bytes(b"#!/bin/sh\n")
    os.chmod(tree / "d/run", 0o755)
    os.utime(tree / "d/run", ns=(-5_123_456_789, -5_123_456_789))
    os.link(tree / "d/file", tree / "a-first")
    os.link(tree / "d/file", tree / "z-last")
    os.symlink("d", tree / "link")
    os.symlink("/etc/passwd", tree / "out")
    (tree / "copy").write_bytes(b"one" * 50000)
    open(os.fsencode(tree) + b"/odd\xff %", "wb").close()
    core = mirrord(FROM_RSYNC.format(port))
    run(core)
    with Way(core.port) as way:
        edge = edge_of(mirrord, way)
        first = run(edge)
        assert first["outcome"] == "published" and first["root"] == root(core)
        # five names of one content, once; the two small ones together
        assert len(way.asked("/-/blob/")) == 1 and len(way.asked("/-/sync/blobs")) == 1
        os.utime(tree / "z-last", (1_600_000_000, 1_600_000_000))
        os.chmod(tree / "d/run", 0o644)
        (tree / "d/empty").rmdir()
        os.unlink(tree / "a-first")
        run(core)
        way.forget()
        done = run(edge)
        assert done["outcome"] == "published" and done["root"] == root(core) and not way.asked("/-/blob/")
        assert edge.get("/x/link/file").body == b"one" * 50000


def test_a_rollback_at_the_core_is_followed(mirrord, core, way):
    edge = edge_of(mirrord, way)
    run(edge)
    before = root(core)
    change(core)
    run(edge)
    core.ctl("snapshot", "rollback", "x", "v1")
    way.forget()
    back = run(edge)
    assert (back["outcome"], back["seq"], back["root"]) == ("published", 3, before)
    assert not way.asked("/-/blob/") and not way.asked("/node/")  # all of it is still here


def test_a_hosted_tree_and_a_version_of_it(mirrord, wire):
    core = mirrord('repo "models" { protocol = "hosted" }')
    token = core.token("t", "publish:models/*")
    for name, data in (("config.json", b"{}"), ("sub/weights", os.urandom(100000))):
        assert core.put(f"/models/me/gpt/{name}", data, token=token).status == 201
    head = core.get("/-/sync/models/me/gpt/head", wire)
    doc = json.loads(head.body)
    assert (doc["version"], doc["repo"], doc["tree"], doc["seq"], doc["entries"], doc["bytes"]) == \
        (1, "models", "me/gpt", 2, 2, 100002)
    assert head["etag"] == f'"{doc["root"]}"' and head["cache-control"] == "no-cache"
    same = core.get("/-/sync/models/me/gpt/head", wire, headers={"If-None-Match": head["etag"]})
    assert (same.status, same.body) == (304, b"")
    node = core.get(f"/-/sync/models/me/gpt/node/{doc['root']}", wire)
    assert hashlib.sha256(node.body).hexdigest() == doc["root"] and "immutable" in node["cache-control"]
    with Way(core.port) as way:
        edge = edge_of(mirrord, way, "models/me/gpt/")
        assert run(edge)["root"] == doc["root"] and edge.get("/x/sub/weights", wire).body[:0] == b""
        assert edge.get("/x/config.json", wire).body == b"{}"
        old = edge_of(mirrord, way, "models/me/gpt@v1")
        assert run(old)["listed"] == 1


@pytest.mark.parametrize("where", ["/node/", "/-/blob/"])
def test_the_core_dies_and_nothing_comes_twice(mirrord, core, way, where):
    """In the walk and in the fetch: the run fails, the next one asks only for what has not come."""
    way.rewrite = ONE_BY_ONE
    edge = edge_of(mirrord, way, tries=1)
    left, go = [4], threading.Event()

    def die(target):
        left[0] -= where in target
        return "cut" if left[0] < 0 and go.wait(240) else None
    way.disturb = die
    edge.ctl("sync", "run", "x")
    until(lambda: left[0] < 0)
    if where == "/-/blob/":  # what was let through has come, before the rest is cut
        until(lambda: edge.ctl_json("sync", "ls")[0]["last"].get("files_done", 0) >= 4)
    go.set()
    until(lambda: not edge.ctl_json("sync", "ls")[0]["running"])
    assert edge.ctl_json("sync", "show", "x")[0]["outcome"] == "failed"
    assert edge.get("/x/pool/00/file0000").status == 503
    assert len(way.asked(where)) >= 4
    way.disturb = None
    way.forget()
    assert run(edge)["root"] == root(core)
    if where == "/-/blob/":  # 1001 files; four were let through
        assert len(way.asked(where)) <= 1001 - 4
    assert len(way.asked("/node/")) == len(set(way.asked("/node/")))
    clean(edge)


@pytest.mark.parametrize("where", ["/node/", "/-/blob/"])
def test_killed_in_the_middle(mirrord, core, way, where):
    way.rewrite = ONE_BY_ONE
    edge = edge_of(mirrord, way)
    first = 40 if where == "/-/blob/" else 3
    left, go = [first], threading.Event()

    def hold(target):
        left[0] -= where in target
        return "cut" if left[0] < 0 and go.wait(240) else None
    way.disturb = hold
    edge.ctl("sync", "run", "x")
    until(lambda: left[0] < 0)
    if where == "/-/blob/":  # those that were let through are stored: what is under way at the kill are the held ones alone
        until(lambda: edge.ctl_json("sync", "ls")[0]["last"].get("files_done", 0) >= first)
    edge.kill()
    go.set()
    way.disturb = None
    before = set(way.asked(where))
    way.forget()
    edge.start()
    assert run(edge)["root"] == root(core)
    assert len(before & set(way.asked(where))) <= 3 * 8  # those under way
    if where == "/-/blob/":
        assert len(way.asked(where)) < 1000 - 10
    clean(edge)


def test_who_may_read(mirrord, core):
    """The right is the one to read the tree; an id is none, wherever it is known from."""
    m = mirrord('repo "secret" { protocol = "hosted" access { anonymous = none } }\n'
                'repo "open" { protocol = "hosted" }\n'
                'repo "web" { protocol = "generic" origin = "http://127.0.0.1:9/" }')
    write = m.token("w", "publish:secret/*", "publish:open/*")
    reader, other = m.token("r", "read:secret/*"), m.token("o", "read:secret/another/*")
    assert m.put("/secret/a/b/file", b"hidden", token=write).status == 201
    assert m.put("/open/a/b/file", b"public", token=write).status == 201

    def get(path, token=None, **kw):
        return m.get(f"/-/sync/{path}", headers={"Authorization": f"Bearer {token}"} if token else None, **kw)
    hidden = json.loads(get("secret/a/b/head", reader).body)["root"]
    public = json.loads(get("open/a/b/head").body)["root"]
    for path in ("secret/a/b/head", f"secret/a/b/node/{hidden}"):
        assert get(path).status == 401 and get(path, other).status == 403 and get(path, reader).status == 200
    assert get(f"open/a/b/node/{public}").status == 200
    assert get(f"open/a/b/node/{hidden}").status == 404
    assert get(f"open/a/b/node/{hidden}?root={public}").status == 404
    assert get(f"open/a/b/node/{hidden}?root={public}&way=0").status == 404
    for path in ("", "head", "open/head", "web/head", "nobody/head", "open/a/c/head", "open/a/b/node/12", "open/a/b/node",
                 f"open/a/b/node/{public}?way=0", f"open/a/b/node/{public}?way=x", f"open/a/b/node/{public}?root=1",
                 f"open/a/b/node/{public}?way=" + ".".join("0" * 99), "open/a%00b/head", "open/a/b@v9/head", "%zz/head"):
        assert get(path).status == 404, path
    assert get("open/a/b@v1/head").status == 200
    assert get("open/a/b/head", method="PUT", data=b"").status == 405
    with Way(m.port) as way:
        for token, rc, why in ((None, 69, "401"), (reader, 0, "")):
            folder = core.folder / f"edge{rc}"
            folder.mkdir()
            (folder / "token").write_text(token or "mrd_none")
            edge = mirrord(f'repo "x" {{ protocol = "generic" origin = "http://127.0.0.1:{way.port}/secret/a/b/" '
                           f'authorization = "file:{folder}/token" sync {{ engine = "mirrord" tries = 1 }} }}')
            done = run(edge, rc=rc)
            assert why in done["why"], done
        assert edge.get("/x/file").body == b"hidden"


def test_over_tls_and_the_next_upstream(mirrord, core, cert):
    """The first one is gone, the second speaks TLS under an authority of its own."""
    edge = mirrord(f'repo "x" {{ protocol = "generic" origin = "http://127.0.0.1:9/x/" ca_file = "{cert[0]}" '
                   f'sync {{ engine = "mirrord" upstreams = {{"https://127.0.0.1:{core.tls_port}/x/"}} backoff = "100ms" tries = 2 }} }}')
    assert run(edge)["root"] == root(core)


def test_one_after_another(mirrord, core, way):
    """An edge is a core to others."""
    edge = edge_of(mirrord, way)
    run(edge)
    with Way(edge.port) as second:
        far = edge_of(mirrord, second)
        assert run(far)["root"] == root(core)


# --- a core that lies ---

def number(n, size):
    return (n & (1 << 8 * size) - 1).to_bytes(size, "big")


def item(path, data=b"x", size=None, mtime=0):
    return (number(len(path), 2) + path + b"\x01\x00" + number(mtime, 8) +
            number(len(data) if size is None else size, 8) + hashlib.sha256(data).digest())


def node_of(level, items):
    return b"\x01" + bytes([level]) + number(len(items), 4) + b"".join(items)


def child(first, node, entries=1, size=1):
    return number(len(first), 2) + first + hashlib.sha256(node).digest() + number(entries, 8) + number(size, 8)


class Liar:
    """nodes and blobs by their ids, unless `wrong` has other bytes for one."""

    def __init__(self, root_node, nodes=(), entries=1, blobs=(b"x",), wrong=None, head=None):
        outer = self
        self.by_id = {hashlib.sha256(n).hexdigest(): n for n in (root_node, *nodes, *blobs)}
        self.by_id.update(wrong or {})
        self.lists, self.sent, self.asked, self.many = {}, [], [], None
        self.head = head or json.dumps({"version": 1, "repo": "x", "tree": "", "seq": 1, "time": 1, "bytes": 1, "entries": entries,
                                        "root": hashlib.sha256(root_node).hexdigest()}).encode()

        class Answer(serving.Handler):
            def do_GET(self):
                name = self.path.partition("?")[0].rpartition("/")[2]
                body = outer.head if name == "head" else (outer.lists if "/cdc/" in self.path else outer.by_id).get(name)
                outer.sent += [name] if "/-/blob/" in self.path else []
                if body is endless:
                    self.send_response(200)
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    try:
                        while True:
                            self.wfile.write(b"100000\r\n" + b"\x01" * 0x100000 + b"\r\n")
                    except OSError:
                        return
                self.send_response(404 if body is None else 200)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                digests = [body[i:i + 32] for i in range(0, len(body), 32)]
                outer.asked.append(digests)
                if outer.many is None:  # as one who knows no batches
                    self.send_response(405)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                else:
                    outer.many(self, digests)
        self.server = serving.Server(("127.0.0.1", 0), Answer)
        self.port = self.server.server_address[1]
        serving.run(self.server)


def endless():
    pass


def deep(levels):
    nodes = [node_of(0, [item(b"a")])]
    for level in range(1, levels):
        nodes.append(node_of(level, [child(b"a", nodes[-1])]))
    return nodes


A, B = node_of(0, [item(b"a")]), node_of(0, [item(b"b")])
PAIR = node_of(1, [child(b"a", A), child(b"b", B)])
SHARED = [node_of(1, [child(b"a", A), child(b"c", node_of(0, [item(b"c")]))]), node_of(1, [child(b"b", B), child(b"c", node_of(0, [item(b"c")]))])]
HEX_A = hashlib.sha256(A).hexdigest()
LIES = {
    "another node": (dict(root_node=A, wrong={HEX_A: B}), "does not match its id"),
    "no node": (dict(root_node=A, wrong={HEX_A: b"\x01\x02\x03"}), "does not match its id"),
    "no frame": (dict(root_node=A, wrong={HEX_A: b"\x28nothing"}), "frame"),
    "a bomb": (dict(root_node=A, wrong={HEX_A: bytes.fromhex("28b52ffda0") + number(0xffffffff, 4)}), "a node is too large"),
    "endless node": (dict(root_node=A, wrong={HEX_A: endless}), "larger"),
    "a way out": (dict(root_node=node_of(0, [item(b"../a")])), "decode"),
    "unsorted": (dict(root_node=node_of(0, [item(b"b"), item(b"a")]), entries=2), "decode"),
    "other count": (dict(root_node=A, entries=7), "does not match its parent"),
    "other child": (dict(root_node=node_of(1, [child(b"a", B)]), nodes=[B]), "does not match its parent"),
    "other level": (dict(root_node=node_of(2, [child(b"a", A)]), nodes=[A]), "does not match its parent"),
    "sum that wraps": (dict(root_node=node_of(1, [child(b"a", A, 1 << 63), child(b"b", B, 1 << 63)]), nodes=[A, B], entries=0), "does not match its parent"),
    "past its neighbour": (dict(root_node=node_of(2, [child(b"a", SHARED[0], 2), child(b"b", SHARED[1], 2)]), entries=4,
                                nodes=[*SHARED, A, B, node_of(0, [item(b"c")])]), "does not match its parent"),
    "cut elsewhere": (dict(root_node=PAIR, nodes=[A, B], entries=2), "do not add up to the tree"),
    "deep": (dict(root_node=deep(16)[-1], nodes=deep(15)), "do not add up to the tree"),
    "too deep": (dict(root_node=deep(17)[-1], nodes=deep(16)), "decode"),
    "a node is missing": (dict(root_node=PAIR, nodes=[A], entries=2), "removed the snapshot"),
    "too many": (dict(root_node=A, entries=20000001), "max_entries"),
    "no head": (dict(root_node=A, head=b"<html>"), "not that of a mirrord"),
    "another version": (dict(root_node=A, head=b'{"version": 2}'), "version 2"),
    "half a head": (dict(root_node=A, head=b'{"version": 1, "seq": 1}'), "cannot be parsed"),
    "endless head": (dict(root_node=A, head=endless), "larger"),
    "another file": (dict(root_node=A, wrong={hashlib.sha256(b"x").hexdigest(): b"y"}), "does not match the announced"),
    "a longer file": (dict(root_node=A, wrong={hashlib.sha256(b"x").hexdigest(): b"xx"}), "could not be downloaded"),
    "endless file": (dict(root_node=A, wrong={hashlib.sha256(b"x").hexdigest(): endless}), "could not be downloaded"),
    "no file": (dict(root_node=A, blobs=()), "could not be downloaded"),
}


@pytest.mark.parametrize("lie", LIES)
def test_the_core_is_replaced_by_a_liar(mirrord, lie):
    how, why = LIES[lie]
    core = mirrord('repo "x" { protocol = "hosted" }')
    token = core.token("t", "publish:*")
    core.put("/x/a/b/file", b"good", token=token)
    edge = edge_of(mirrord, core, "x/a/b/")
    good = run(edge)["root"]
    liar = Liar(**how)
    edge.config = EDGE.format(liar.port, "x/", 1)
    edge.reload()
    failed = run(edge, rc=69)
    assert failed["outcome"] == "failed" and why in failed["why"], failed
    assert root(edge) == good and edge.get("/x/file").body == b"good"
    clean(edge)
    liar.server.shutdown()
    liar.server.server_close()


def test_a_liar_who_tells_the_truth(mirrord):
    """So that the lies above fail for what they say."""
    liar = Liar(A)
    edge = edge_of(mirrord, liar)
    assert run(edge)["root"] == HEX_A and edge.get("/x/a").body == b"x"
    liar.server.shutdown()
    liar.server.server_close()


def test_configuration_says_what_is_wrong(mirrord):
    m = mirrord('repo "x" { protocol = "generic" origin = "http://127.0.0.1:9/" sync { engine = "mirrord" tries = 1 } }')
    assert "needs the name of its repo" in run(m, rc=69)["why"]
