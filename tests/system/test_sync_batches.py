"""Mirrord to mirrord, trees of many small files: they come many in an answer (docs/protocols/sync.md, batches). What a peer gets wrong
costs at most that files are asked for one by one; what it has no right to, nobody gets."""
import hashlib
import os
import struct
import threading

import pytest

from harness.fake_mirror import trickle
from harness.mirrord import SLOW, until
from system.test_full_disk import small_disk  # noqa: F401, a fixture
from system.test_sync import lines, run, served, url_of
from system.test_sync_full import STORAGE, fill_up, when_there_is_room
from system.test_sync_mirrord import EDGE, Liar, Source, core, edge_of, item, node_of, root, way  # noqa: F401
from system.test_sync_trouble import clean

BATCH = "/-/sync/blobs"
FIRST, MOST = 16, 1024
ABSENT, ALONE = struct.pack(">I", 0xffffffff), struct.pack(">I", 0xfffffffe)
FILES = {f"pool/{i % 20:02}/file{i:04}": os.urandom(40 + i) for i in range(1500)}


@pytest.fixture
def o():
    with Source(FILES) as origin:
        origin.sums()
        yield origin


def look(m, tree):
    """As many entries, and some of them byte by byte; the root has said the rest."""
    assert len(served(m)["entries"]) == len(tree)
    for path in sorted(tree)[::max(1, len(tree) // 12)]:
        got = m.get(url_of(path))
        assert (got.status, got.body) == (200, tree[path]), path


def record(data):
    return struct.pack(">I", len(data)) + data


def ask(m, digests, wire="h1", token=None, accept=None, **kw):
    headers = {"Content-Type": "application/vnd.mirrord.digests", **({"Accept": accept} if accept else {})}
    return m.put(BATCH, b"".join(digests), wire=wire, token=token, headers=headers, method="POST", **kw)


def sha(data):
    return hashlib.sha256(data).digest()


# --- two mirrords ------------------------------------------------------------------------------------------------------

def test_first_copy(mirrord, core, way):
    """All of 1,501 files (the sums are one, too large for a batch) in a handful of requests."""
    edge = edge_of(mirrord, way)
    done = run(edge)
    assert (done["outcome"], done["root"], done["files_done"]) == ("published", root(core), len(core.o.tree()))
    assert len(way.asked("/-/blob/")) == 1 and 3 <= len(way.asked(BATCH)) < 60
    assert done["wire_bytes"] < way.bytes
    look(edge, core.o.tree())
    clean(edge)


def test_a_core_that_knows_none(mirrord, core, way):
    """As an older one answers: 405."""
    way.rewrite = (b"POST /-/sync/blobs ", b"POST /-/sync/none_ ")
    edge = edge_of(mirrord, way)
    assert run(edge)["root"] == root(core)
    assert len(way.asked("/-/sync/none_")) == 1 and len(way.asked("/-/blob/")) == len(core.o.tree())
    assert "one by one: the core answers a batch request with 405" in lines(edge)
    clean(edge)


def test_one_file_is_asked_for_as_itself(mirrord, core, way):
    edge = edge_of(mirrord, way)
    run(edge)
    way.forget()
    core.o.put("pool/00/file0000", b"changed", mtime=1700009999)
    core.o.sums()
    run(core)
    assert run(edge)["root"] == root(core)
    assert not way.asked(BATCH) and len(way.asked("/-/blob/")) == 2  # and the sums


def test_text_comes_packed(mirrord, way, core):
    words = [f"word{i}" for i in range(50)]
    for i in range(500):
        core.o.put(f"text/{i}", " ".join(words[(i * k) % 50] for k in range(400)))
    core.o.sums()
    run(core)
    text = sum(len(d) for p, d in core.o.tree().items() if p.startswith("text/"))
    edge = edge_of(mirrord, way)
    run(edge)
    rest = way.bytes - sum(len(d) for d in FILES.values())
    assert text > 1_000_000 and rest < text  # nodes, sums and all
    look(edge, core.o.tree())


@pytest.mark.parametrize("tries", [1, 5])
def test_the_line_breaks_in_the_midst_of_answers(mirrord, core, way, tries):
    """With each break at least some files have come: one attempt is enough."""
    edge = edge_of(mirrord, way, tries=tries)
    left = [6]

    def cut(target, n):
        if BATCH in target and n > 2000 and left[0] > 0:
            left[0] -= 1
            return "cut"
        return None
    way.midway = cut
    done = run(edge)
    assert (done["outcome"], done["root"], done["attempts"]) == ("published", root(core), 1) and left[0] == 0
    assert done["files_done"] == len(core.o.tree()) and "one by one" not in lines(edge)
    clean(edge)


def test_a_line_that_carries_no_answer_to_many(mirrord, core, way):
    """It breaks each time before the first file: then one by one."""
    way.disturb = lambda target: "cut" if BATCH in target else None
    edge = edge_of(mirrord, way)
    assert run(edge)["root"] == root(core)
    assert "break off before the first" in lines(edge) and len(way.asked("/-/blob/")) == len(core.o.tree())


def held(way, after):
    """The batch behind so many others is not passed on; the event is set when it has been asked for."""
    asked, go = threading.Event(), threading.Event()
    count = [after]

    def hold(target):
        if BATCH in target:
            count[0] -= 1
            if count[0] < 0:
                asked.set()
                go.wait(240 * SLOW)
                return "cut"
        return None
    way.disturb = hold
    return asked, go


def stored(m):
    return m.ctl_json("sync", "ls")[0]["last"].get("files_done", 0)


def test_an_edge_is_killed_in_the_middle(mirrord, core, way):
    edge = edge_of(mirrord, way)
    asked, go = held(way, 1)
    edge.ctl("sync", "run", "x")
    assert asked.wait(240 * SLOW)
    until(lambda: stored(edge) >= FIRST)
    edge.kill()
    go.set()
    way.disturb = None
    edge.start()
    assert edge.get("/x/pool/00/file0000").status == 503
    done = run(edge)
    assert done["root"] == root(core) and done["files_done"] <= len(core.o.tree()) - FIRST
    clean(edge)


def test_a_core_is_killed_in_the_middle(mirrord, core, way):
    edge = edge_of(mirrord, way, tries=1)
    asked, go = held(way, 1)
    edge.ctl("sync", "run", "x")
    assert asked.wait(240 * SLOW)
    core.kill()
    go.set()
    until(lambda: not edge.ctl_json("sync", "ls")[0]["running"])
    assert edge.ctl_json("sync", "show", "x")[0]["outcome"] == "failed"
    way.disturb = None
    core.start()
    done = run(edge)
    assert done["root"] == root(core) and done["files_done"] <= len(core.o.tree()) - FIRST
    clean(edge)
    clean(core)


def test_two_edges_and_two_repos_at_once(mirrord, core, way):
    """The same files on their way twice into one store, and to another edge."""
    both = mirrord(EDGE.format(way.port, "x/", 2) + "\n" + EDGE.format(way.port, "x/", 2).replace('repo "x"', 'repo "y"'))
    other = edge_of(mirrord, way)
    for m, repo in ((both, "x"), (both, "y"), (other, "x")):
        m.ctl("sync", "run", repo)
    for m in (both, other):
        until(lambda m=m: all(r["last"].get("outcome") == "published" for r in m.ctl_json("sync", "ls")))
        look(m, core.o.tree())
        clean(m)
    assert both.ctl_json("snapshot", "show", "y")["root"] == root(core)


def test_a_rate_holds_and_ends(mirrord, core, way):
    edge = mirrord(EDGE.format(way.port, "x/", 2).replace("tries", 'hours = {"00:00-24:00 3m/s"} tries'))
    assert run(edge)["root"] == root(core)
    assert not [t for t in way.asked("/-/blob/")][1:]
    look(edge, core.o.tree())


def test_a_full_disk(mirrord, core, way, small_disk):  # noqa: F811
    """What came before it was full stays; the published tree too, and room is all that the next run wants."""
    edge = mirrord(EDGE.format(way.port, "x/", 2) + STORAGE, state=small_disk / "state")
    run(edge)
    old = core.o.tree()
    for i in range(1500):
        core.o.put(f"more/{i:04}", os.urandom(16000))
    core.o.sums()
    run(core)
    fill_up(small_disk, 14 << 20)
    failed = run(edge, rc=69)
    assert failed["outcome"] == "failed" and any(w in failed["why"] for w in ("No space", "fit", "space")), failed
    look(edge, old)
    (small_disk / "ballast").unlink()
    assert when_there_is_room(edge)["root"] == root(core)
    clean(edge)


# --- who may, and what is asked ------------------------------------------------------------------------------------------

def test_who_may_read(mirrord, wire):
    """Each digest by itself, as at /-/blob/: none is given to whom no path that holds it is open."""
    m = mirrord('repo "secret" { protocol = "hosted" access { anonymous = none } }\n'
                'repo "open" { protocol = "hosted" }')
    write, reader, other = m.token("w", "publish:*"), m.token("r", "read:secret/*"), m.token("o", "read:secret/another/*")
    assert m.put("/secret/a/b/file", b"hidden", token=write).status == 201
    assert m.put("/open/a/b/file", b"public", token=write).status == 201
    assert m.put("/open/a/b/none", b"", token=write).status == 201
    assert m.put("/open/a/b/large", bytes(32769), token=write).status == 201
    all_of_them = [sha(b"hidden"), sha(b"public"), sha(b"never seen"), sha(b""), sha(bytes(32769)), sha(b"public")]
    rest = record(b"public") + ABSENT + record(b"") + ALONE + record(b"public")
    for token, first in ((None, ABSENT), (other, ABSENT), (reader, record(b"hidden"))):
        got = ask(m, all_of_them, wire, token)
        assert (got.status, got["content-type"], got.body) == (200, "application/vnd.mirrord.blobs", first + rest), token
    m.ctl("token", "revoke", "r")
    assert ask(m, all_of_them, wire, reader).status == 401
    for digests, status in (([], 400), ([b"x"], 400), ([bytes(31)], 400), ([bytes(33)], 400), ([bytes(32)] * (MOST + 1), 413)):
        assert ask(m, digests, wire).status == status
    assert ask(m, [bytes(32)] * MOST, wire).body == ABSENT * MOST
    for method in ("GET", "HEAD", "PUT", "DELETE"):
        got = m.get(BATCH, wire, method=method, **({"data": b"x"} if method == "PUT" else {}))
        assert (got.status, got["allow"]) == (405, "POST")
    assert m.get("/-/sync/blobs/x", wire).status == 404


def test_one_tree_of_many_that_hold_it(mirrord):
    """Of those that have the same bytes each token is shown its own, wherever that stands among them."""
    m = mirrord('repo "open" { protocol = "hosted" }\nrepo "secret" { protocol = "hosted" access { anonymous = none } }\n'
                'repo "zoo" { protocol = "hosted" access { anonymous = none } }')
    write = m.token("w", "publish:*")
    trees = [f"{repo}/u{i:02}/t" for repo in ("secret", "zoo") for i in range(14)]
    for tree in trees:
        assert m.put(f"/{tree}/f", b"the same", token=write).status == 201
    for tree in trees[::6] + trees[-1:]:
        assert m.put(f"/{tree}/g", b"another", token=write).status == 201
    for i, tree in enumerate(trees[::3] + trees[-1:]):
        token = m.token(f"t{i}", f"read:{tree}/*")
        want = record(b"the same") + (record(b"another") if tree in trees[::6] + trees[-1:] else ABSENT)
        assert ask(m, [sha(b"the same"), sha(b"another")], token=token).body == want, tree
        # By itself, so that the one before has opened no tree.
        assert ask(m, [sha(b"another")], token=token).body == want[len(record(b"the same")):], tree
    for i, (scope, fine) in enumerate((("read:zoo/*", True), ("publish:secret/u07*", True), ("read:*/u13/*", True), ("read:zoo/u99/*", False),
                        ("read:zo/*", False), ("read:secret/u0", False), ("read:secret/u00/t", False), ("sync:*", False))):
        token = m.token(f"s{i}", scope)
        assert ask(m, [sha(b"the same")], token=token).body == (record(b"the same") if fine else ABSENT), scope
    assert ask(m, [sha(b"the same")]).body == ABSENT
    assert m.put("/open/a/b/f", b"the same", token=write).status == 201
    assert ask(m, [sha(b"the same")]).body == record(b"the same")


def test_an_answer_ends_behind_a_mebibyte(mirrord, wire):
    m = mirrord('repo "open" { protocol = "hosted" }')
    token = m.token("w", "publish:*")
    data = [os.urandom(32000) for _ in range(40)]
    for i, d in enumerate(data):
        assert m.put(f"/open/a/b/{i}", d, token=token).status == 201
    n = -(-(1 << 20) // 32004)
    got = ask(m, [sha(d) for d in data], wire)
    assert got.body == b"".join(record(d) for d in data[:n])
    rest = ask(m, [sha(d) for d in data[n:]], wire, accept="application/vnd.mirrord.blobs+zstd")
    assert rest.body == b"".join(record(d) for d in data[n:])  # does not shrink
    assert m.put("/open/a/b/zeros", bytes(30000), token=token).status == 201
    packed = ask(m, [sha(bytes(30000))], wire, accept="application/vnd.mirrord.blobs+zstd")
    assert packed["content-type"].endswith("+zstd") and len(packed.body) < 200


def test_limits_count_what_is_in_it(mirrord):
    m = mirrord('repo "open" { protocol = "hosted" }\nlimit "anonymous" { requests = "1/s" burst = 2 }')
    assert ask(m, [bytes(32)] * MOST).status == 200
    late = ask(m, [bytes(32)])
    assert late.status == 429 and int(late["retry-after"]) > 2  # 16 requests more were in it


# --- a core that lies ---------------------------------------------------------------------------------------------------

def plain(name):
    """No leaf of the tree begins with it."""
    return all(hashlib.sha256(name).digest()[i] & 63 for i in (0, 7, 31))


NAMES = [n for n in (b"%04d" % i for i in range(300)) if plain(n)][:200]
TREE = {n: n * 20 for n in NAMES}
LEAF = node_of(0, [item(n, d) for n, d in TREE.items()])
BY_SHA = {sha(d): d for d in TREE.values()}
BAD = TREE[NAMES[150]]


def answer(h, body, status=200, kind="application/vnd.mirrord.blobs", length=None):
    h.send_response(status)
    h.send_header("Content-Type", kind)
    h.send_header("Content-Length", str(len(body) if length is None else length))
    h.end_headers()
    h.wfile.write(body)
    if length is not None:
        h.close_connection = True


def records(digests, other=lambda d: None):
    return b"".join(other(BY_SHA[d]) or record(BY_SHA[d]) for d in digests)


def instead(of, what):
    return lambda d: what if d == of else None


def chunked(h, piece, count):
    h.send_response(200)
    h.send_header("Content-Type", "application/vnd.mirrord.blobs")
    h.send_header("Transfer-Encoding", "chunked")
    h.end_headers()
    try:
        for _ in range(count):
            h.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
    except OSError:
        pass


def elsewhere(h, digests):
    h.send_response(307)
    h.send_header("Location", "/-/sync/blobs")
    h.send_header("Content-Length", "0")
    h.end_headers()


def silent(h, digests):
    h.close_connection = True


def broken(h, digests):
    """Three records, and a bit of the fourth."""
    body = records(digests)
    answer(h, body[:3 * 84 + 20], length=len(body)) if len(digests) > 3 else answer(h, body)


ZSTD = "application/vnd.mirrord.blobs+zstd"
ZEROS = bytes.fromhex("02001000")  # a block: 128 KiB of them
BOMB, WIDE = bytes.fromhex("28b52ffd0058") + ZEROS * 32, bytes.fromhex("28b52ffd0088") + ZEROS
SINGLY = "requested one by one"
# what the peer answers, what the log says, do batches go on?
TROUBLE = {
    "wrong bytes in one": (lambda h, ds: answer(h, records(ds, instead(BAD, record(b"y" * len(BAD))))), "do not match its SHA-256", True),
    "one is longer": (lambda h, ds: answer(h, records(ds, instead(BAD, record(BAD + b"y")))), "81 bytes were received instead of 80", True),
    "one is empty": (lambda h, ds: answer(h, records(ds, instead(BAD, record(b"")))), "0 bytes were received instead of 80", True),
    "one is to be asked for alone": (lambda h, ds: answer(h, records(ds, instead(BAD, ALONE))), None, True),
    "all are to be asked for alone": (lambda h, ds: answer(h, ALONE * len(ds)), None, True),
    "all are wrong": (lambda h, ds: answer(h, records(ds, lambda d: record(b"y" * len(d)))), "too many files were wrong", False),
    "all are longer": (lambda h, ds: answer(h, records(ds, lambda d: record(d + b"y"))), "too many files were wrong", False),
    "a length that cannot be": (lambda h, ds: answer(h, records(ds[:3]) + b"\x00\x00\x80\x01" + b"y" * 32769), "a record of 32769", False),
    "an endless length": (lambda h, ds: answer(h, b"\xff\xff\xff\xfd" + b"y" * 1000), "a record of 4294967293", False),
    "a record without its end": (lambda h, ds: answer(h, records(ds)[:-1]), "in the middle of a file", False),
    "a head without its end": (lambda h, ds: answer(h, records(ds[:5]) + b"\x00\x00"), "in the middle of a file", False),
    "nothing": (lambda h, ds: answer(h, b""), "has no file", False),
    "more than was asked for": (lambda h, ds: answer(h, records(ds) + record(b"y")), "more records than", False),
    "endless": (lambda h, ds: chunked(h, record(b"y") * 1000, 1 << 20), SINGLY, False),
    "endless and right": (lambda h, ds: chunked(h, records(ds), 1 << 20), "more records than", False),
    "another type": (lambda h, ds: answer(h, b"<html>" * 1000, kind="text/html"), "another content type", False),
    "404": (lambda h, ds: answer(h, b"no", 404), "answers a batch request with 404", False),
    "501": (lambda h, ds: answer(h, b"no", 501), "answers a batch request with 501", False),
    "503": (lambda h, ds: answer(h, b"no", 503), "answers a batch request with 503", False),
    "another place": (elsewhere, "redirects", False),
    "no answer": (silent, "break off before the first", False),
    "it breaks after three": (broken, None, True),
    "one at a time": (lambda h, ds: answer(h, records(ds[:1])), None, True),
    "no frame": (lambda h, ds: answer(h, b"(\xb5/\xfd nothing", kind=ZSTD), "damaged", False),
    "a bomb": (lambda h, ds: answer(h, BOMB, kind=ZSTD), "decompresses to more than", False),
    "a frame that wants much memory": (lambda h, ds: answer(h, WIDE, kind=ZSTD), "damaged", False),
    "half a frame": (lambda h, ds: answer(h, b"\x28\xb5\x2f\xfd", kind=ZSTD), "in the middle of a file", False),
}


@pytest.fixture
def liar():
    made = Liar(LEAF, entries=len(TREE), blobs=TREE.values())
    made.asked = []
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.mark.parametrize("how", TROUBLE)
def test_a_peer_in_trouble(mirrord, liar, how):
    """The files are what they should be in the end: at worst each was asked for by itself."""
    liar.many, says, goes_on = TROUBLE[how]
    edge = edge_of(mirrord, liar)
    done = run(edge)
    assert done["outcome"] == "published" and done["root"] == hashlib.sha256(LEAF).hexdigest()
    told = lines(edge)
    assert (SINGLY not in told) if goes_on else (SINGLY in told), told
    assert says is None or says in told, told
    # A file that waits alone while no batch is under way goes alone: one at the beginning or the end, more where lookups are slow.
    assert len(liar.sent) <= len(TREE) and (not goes_on or "all" in how or len(liar.sent) <= len(TREE) // 20)
    if how == "it breaks after three":
        assert sum(map(len, liar.asked)) < 30 * len(TREE)  # digests: fewer go to one who answers few
    look(edge, {n.decode(): d for n, d in TREE.items()})
    clean(edge)


def test_absent_ones_are_missing(mirrord, liar):
    """What one file is to /-/blob/, many are in a batch: without them nothing is published."""
    liar.many = lambda h, ds: answer(h, records(ds, instead(BAD, ABSENT)))
    edge = edge_of(mirrord, liar, tries=1)
    failed = run(edge, rc=69)
    assert failed["outcome"] == "failed" and "could not be downloaded" in failed["why"] + lines(edge) or "do not add up to the tree" in failed["why"]
    assert "the core no longer has it" in lines(edge)
    liar.many = lambda h, ds: answer(h, records(ds))
    liar.asked.clear()
    assert run(edge)["outcome"] == "published"
    assert not liar.asked and len(liar.sent) == 1  # the others were stored


def test_one_that_is_never_right(mirrord, liar):
    """Wrong in the batch and wrong by itself: the run fails, names it, and publishes nothing."""
    liar.many = lambda h, ds: answer(h, records(ds, instead(BAD, record(b"y" * len(BAD)))))
    liar.by_id[sha(BAD).hex()] = b"z" * len(BAD)
    edge = edge_of(mirrord, liar, tries=1)
    failed = run(edge, rc=69)
    assert "does not match the announced" in failed["why"] and NAMES[150].decode() in lines(edge)
    assert edge.get(f"/x/{NAMES[0].decode()}").status == 503
    clean(edge)


def test_too_many_requests_then_enough(mirrord, liar):
    count = [3]

    def many(h, ds):
        count[0] -= 1
        answer(h, b"no", 429) if count[0] >= 0 else answer(h, records(ds))
    liar.many = many
    edge = edge_of(mirrord, liar)
    assert run(edge)["outcome"] == "published" and SINGLY not in lines(edge) and not liar.sent


def test_one_that_trickles(mirrord, liar):
    """A byte now and then is no answer: `stall` ends it, and the files come one by one."""
    over = threading.Event()
    liar.many = trickle("application/vnd.mirrord.blobs", over)
    edge = mirrord(EDGE.format(liar.port, "x/", 2).replace("sync {", 'stall = "4s" sync {'))
    try:
        assert run(edge)["outcome"] == "published"
    finally:
        over.set()
    look(edge, {n.decode(): d for n, d in TREE.items()})
