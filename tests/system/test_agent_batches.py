"""trainagent and folders of many small files: they come many in an answer (docs/protocols/sync.md, batches). What a mirror gets wrong costs
at most that files are asked for one by one; what came whole is not fetched again, whatever ends the agent."""
import hashlib
import json
import os
import random
import re
import signal
import struct
import threading

import pytest

from harness.fake_mirror import trickle
from system.test_agent_faulty_mirror import Agent, agent, mirror, mount, sha, swept, until  # noqa: F401, fixtures
from system.test_agent import Agent as Node

BATCH = "/-/sync/blobs"
RNG = random.Random(5)
FILES = {f"f{i % 7}/{i:04}.txt": RNG.randbytes(50 + i) for i in range(300)}
BAD = FILES["f3/0150.txt"]
ALONE = struct.pack(">I", 0xfffffffe)
KIND = "application/vnd.mirrord.blobs"


@pytest.fixture
def many(mirror):  # noqa: F811
    for name, data in FILES.items():
        mirror.files[f"/m/{name}"] = data
    mirror.many = mirror.batch
    return mirror


def record(data):
    return struct.pack(">I", len(data)) + data


def tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def gets(mirror):  # noqa: F811
    return [path for method, path, *_ in mirror.log if method == "GET" and path != "/m/?recursive=1"]


def names(agent):  # noqa: F811
    """What lies in partial/ and locks/ besides the files for all small ones."""
    return [p.name for p in agent.shelf.glob("partial/*")] + [p.name for p in agent.shelf.glob("locks/*") if not re.fullmatch("small-[0-9a-f]", p.name)]


# --- a mirrord ---------------------------------------------------------------------------------------------------------------


HOSTED = 'repo "models" { protocol = "hosted" access { anonymous = none } }'


def published(node, files):
    source = node.folder / "source"
    for name, data in files.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(data)
    node("publish", source, "models/me/tree")


def test_a_folder_of_a_private_repo(mirrord, tmp_path):
    m = mirrord(HOSTED)
    node = Node(tmp_path / "node", m)
    files = {**FILES, "empty": b"", "twin": BAD, "limit": os.urandom(32768), "above": os.urandom(32769), "large": os.urandom(9 << 20)}
    published(node, files)
    done = json.loads(node("pull", "models/me/tree/", "--to", tmp_path / "to", "--json"))
    assert tree(tmp_path / "to") == files
    assert done["fetched_bytes"] == sum(map(len, set(files.values()))) and done["size"] == sum(map(len, files.values()))
    lines = lambda what: [line for line in m.access_log.read_text().splitlines() if what in line and '"ua":"trainagent' in line]  # noqa: E731
    until(lambda: lines(BATCH))
    brought = [line for line in lines('"method":"GET"') if '"status":2' in line]  # publish asked, too, when there was no tree
    assert len(lines(BATCH)) == 1 and len(brought) <= 1 + 1 + 1 + 2  # a listing, what is above, a chunk list, two parts
    assert not list(node.folder.glob("shelf/partial/*"))
    again = json.loads(node("pull", "models/me/tree/", "--to", tmp_path / "again", "--json"))
    assert again["fetched_bytes"] == 0 and tree(tmp_path / "again") == files


def test_without_the_right_to_it_nothing_comes(mirrord, tmp_path):
    """A listing that leaked opens no file: to a token without the right they are absent, and by itself each is refused."""
    m = mirrord(HOSTED)
    node = Node(tmp_path / "node", m)
    published(node, FILES)
    listing = m.get("/models/me/tree/?recursive=1", 
                    headers={"Accept": "application/json", "Authorization": "Bearer " + m.token("reader", "read:models/*")})
    digests = b"".join(bytes.fromhex(e["sha256"]) for e in json.loads(listing.body)["entries"] if e.get("sha256"))
    for token in (None, m.token("other", "read:others/*")):
        got = m.put(BATCH, digests, method="POST", token=token, headers={"Content-Type": "application/vnd.mirrord.digests"})
        assert got.body == b"\xff\xff\xff\xff" * (len(digests) // 32)
    del node.env["TRAINAGENT_TOKEN_FILE"]
    node("pull", "models/me/tree/", code=77)


def test_a_repository_of_a_hub(mirrord, hub, tmp_path):
    """LFS files have a SHA-256 in its listing: those that the mirror has come together; what it must fetch itself comes by its own name."""
    files = {f"part/{i:03}.bin": os.urandom(100 + i) for i in range(40)}
    repo = hub.repo("org/many", files={"config.json": b"{}", **files})
    repo.lfs |= set(files)
    m = mirrord(hub.config())
    for name in ("cold", "warm"):
        node = Node(tmp_path / name, m)
        done = json.loads(node("pull", "hf/org/many", "--to", tmp_path / f"{name}-home", "--json"))
        snapshot = next((tmp_path / f"{name}-home/hub/models--org--many/snapshots").iterdir())
        assert {n: (snapshot / n).read_bytes() for n in files} == files and done["fetched_bytes"] == done["size"]
        m.settle()
    _, warm = m.answered(BATCH, 2)
    assert warm["bytes"] == sum(map(len, files.values())) + 4 * len(files)


def test_limits_of_the_mirror_are_kept(mirrord, tmp_path):
    """Told to come later (the listing was one request), the agent does: all come, still together."""
    m = mirrord('repo "models" { protocol = "hosted" }')
    node = Node(tmp_path / "node", m)
    published(node, {f"{i}": b"%d" % i * 9 for i in range(700)})
    m.config += '\nlimit "127.0.0.0/8" { requests = "1/s" burst = 1 }'
    m.reload()
    node("pull", "models/me/tree/", "--to", tmp_path / "to")
    assert len(tree(tmp_path / "to")) == 700


# --- one that does what a test tells it ------------------------------------------------------------------------------------


def test_few_requests(agent, many, tmp_path):  # noqa: F811
    out = json.loads(agent("pull", "m/", "--to", tmp_path / "to", "--json"))
    assert tree(tmp_path / "to") == FILES
    assert len(many.asked) == 1 and gets(many) == [] and names(agent) == []
    assert out["fetched_bytes"] == out["size"] == sum(map(len, FILES.values()))
    assert agent.err == ""
    mtimes = {p.stat().st_mtime_ns for p in agent.blobs()}
    modes = {p.stat().st_mode & 0o777 for p in agent.blobs()}
    assert mtimes == {10**9} and modes == {0o444}
    many.log.clear()
    assert json.loads(agent("pull", "m/", "--to", tmp_path / "to", "--json"))["fetched_bytes"] == 0
    assert len(many.asked) == 1 and gets(many) == []
    assert json.loads(agent("status", "--json"))["shelf"]["partials"] == 0


def test_one_file_is_asked_for_as_itself(agent, many, tmp_path):  # noqa: F811
    many.files = {"/m/a": b"alone", "/m/b": b"alone"}
    agent("pull", "m/", "--to", tmp_path / "to")
    assert tree(tmp_path / "to") == {"a": b"alone", "b": b"alone"} and many.asked == [] and len(gets(many)) == 1


def test_an_older_mirror(agent, many, tmp_path):  # noqa: F811
    for status in (404, 405, 501):
        agent("gc", "--keep", "0")
        many.log.clear()
        many.many = lambda h, digests: many.reply(h, status)  # noqa: B023
        agent("pull", "m/", "--to", tmp_path / "to")
        assert tree(tmp_path / "to") == FILES and len(gets(many)) == len(FILES) and agent.err == ""
        assert len([entry for entry in many.log if entry[1] == BATCH]) == 1


def cut(h, body, length=None):
    h.send_response(200)
    h.send_header("Content-Type", KIND)
    h.send_header("Content-Length", str(length or len(body) + 1))
    h.end_headers()
    h.wfile.write(body)
    h.close_connection = True


def chunked(h, body, times):
    h.send_response(200)
    h.send_header("Content-Type", KIND)
    h.send_header("Transfer-Encoding", "chunked")
    h.end_headers()
    try:
        for _ in range(times):
            h.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))
        h.wfile.write(b"0\r\n\r\n")
    except OSError:
        h.close_connection = True


def instead(what):
    return lambda d, data: what if data == BAD else None


def answer(m, h, body, status=200, kind=KIND):
    m.reply(h, status, {"Content-Type": kind}, body)


SINGLY = "one by one"
# what the mirror answers; what the agent says of it; how many files are asked for by themselves at most
TROUBLE = {
    "wrong bytes in one": (lambda m, h, ds: m.batch(h, ds, instead(record(b"y" * len(BAD)))), "arrived damaged in a batch", 1),
    "one is longer": (lambda m, h, ds: m.batch(h, ds, instead(record(BAD + b"y"))), "arrived damaged in a batch", 1),
    "one is empty": (lambda m, h, ds: m.batch(h, ds, instead(record(b""))), "arrived damaged in a batch", 1),
    "one is to be asked for alone": (lambda m, h, ds: m.batch(h, ds, instead(ALONE)), "", 1),
    "one is absent": (lambda m, h, ds: m.batch(h, ds, instead(b"\xff" * 4)), "", 1),
    "all are to be asked for alone": (lambda m, h, ds: answer(m, h, ALONE * len(ds)), "", 300),
    "all are wrong": (lambda m, h, ds: m.batch(h, ds, lambda d, b: record(b"y" * len(b))), "too many files arrived damaged", 300),
    "one of another": (lambda m, h, ds: answer(m, h, b"".join(reversed(m.records(ds)))), "too many files arrived damaged", 300),
    "a length that cannot be": (lambda m, h, ds: answer(m, h, b"".join(m.records(ds)[:3]) + b"\x00\x00\x80\x01" + b"y" * 32769),
                                "a record of 32769", 297),
    "an endless length": (lambda m, h, ds: answer(m, h, b"\xff\xff\xff\xfd" + b"y" * 1000), "a record of 4294967293", 300),
    "a record without its end": (lambda m, h, ds: answer(m, h, b"".join(m.records(ds))[:-1]), "in the middle of a file", 1),
    "a head without its end": (lambda m, h, ds: answer(m, h, b"".join(m.records(ds)[:5]) + b"\x00\x00"), "in the middle of a file", 295),
    "nothing": (lambda m, h, ds: answer(m, h, b""), "had no file", 300),
    "more than was asked for": (lambda m, h, ds: answer(m, h, b"".join(m.records(ds)) + record(b"y")), "more records than", 0),
    "endless": (lambda m, h, ds: chunked(h, record(b"y") * 1000, 1 << 12), "exceeds the size limit", 300),
    "another type": (lambda m, h, ds: answer(m, h, b"<html>" * 1000, kind="text/html"), None, 300),
    "elsewhere": (lambda m, h, ds: m.reply(h, 302, {"Location": "http://127.0.0.1:1/"}), SINGLY, 300),
    "400": (lambda m, h, ds: m.reply(h, 400), SINGLY, 300),
    "it breaks after three": (lambda m, h, ds: cut(h, b"".join(m.records(ds))[:len(b"".join(m.records(ds)[:3])) + 20]), "", 1),
    "one at a time": (lambda m, h, ds: answer(m, h, m.records(ds)[0]), "", 1),
    "no answer": (lambda m, h, ds: setattr(h, "close_connection", True), SINGLY, 300),
}


@pytest.mark.parametrize("how", TROUBLE)
def test_a_mirror_in_trouble(agent, many, tmp_path, how):  # noqa: F811
    lie, says, most = TROUBLE[how]
    if "after three" in how or "at a time" in how:
        many.files = {name: data for name, data in many.files.items() if name < "/m/f1"}
    many.many = lambda h, digests: lie(many, h, digests)
    agent("pull", "m/", "--to", tmp_path / "to")
    assert tree(tmp_path / "to") == {name[3:]: data for name, data in many.files.items() if name.startswith("/m/")}
    assert len(gets(many)) <= most, how
    assert agent.err == "" if says == "" else says is None or says in agent.err, agent.err
    assert list(agent.shelf.glob("partial/*")) == []


def test_wrong_in_the_sheaf_and_by_itself(agent, many, tmp_path):  # noqa: F811
    many.many = lambda h, digests: many.batch(h, digests, instead(record(b"y" * len(BAD))))
    many.damage = True
    agent("pull", "m/", "--to", tmp_path / "to", code=65)
    assert "f3/0150.txt" in agent.err and sha(BAD)[:16] in agent.err and not (tmp_path / "to").exists()
    assert agent.blob(BAD) is None


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_mirror(agent, many, tmp_path, status):  # noqa: F811
    left = [3]

    def busy(h, digests):
        left[0] -= 1
        if left[0] >= 0:
            many.reply(h, status, {"Retry-After": "0"})
        else:
            many.batch(h, digests)
    many.many = busy
    agent("pull", "m/", "--to", tmp_path / "to")
    assert tree(tmp_path / "to") == FILES and gets(many) == [] and agent.err == ""


def test_one_that_trickles(agent, many, tmp_path):  # noqa: F811
    over = threading.Event()
    many.many = trickle(KIND, over)
    try:
        agent("pull", "m/", "--to", tmp_path / "to", "--idle-timeout", "3")
    finally:
        over.set()
    assert tree(tmp_path / "to") == FILES and SINGLY in agent.err


# --- what ends an agent, and two at once -------------------------------------------------------------------------------------


def held(mirror, after, go):  # noqa: F811
    """Batches of 16 files; the one behind so many waits for `go`."""
    def slow(h, digests):
        if len(mirror.asked) > after:
            go.wait(120)
        answer(mirror, h, b"".join(mirror.records(digests[:16])))
    return slow


def whole(agent):  # noqa: F811
    """Digests of what is staged or on the shelf, with a sealed blob's mtime: the last that is done to it."""
    found = list(agent.shelf.glob("partial/*.whole")) + agent.blobs()
    return {p.name[:64] for p in found if p.stat().st_mtime == 1}


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_what_came_whole_is_not_fetched_again(agent, many, tmp_path, end):  # noqa: F811
    go = threading.Event()
    many.many = held(many, 3, go)
    p = agent.start("pull", "m/", "--to", tmp_path / "to")
    try:
        until(lambda: len(many.asked) == 4)
        p.send_signal(end)
        assert p.wait(60) == (-9 if end == signal.SIGKILL else 75)
    finally:
        go.set()
    have = whole(agent)
    assert len(have) <= 48 and (end == signal.SIGKILL or len(have) == 48 == len(agent.blobs()))
    many.many = many.batch
    many.asked.clear()
    agent("pull", "m/", "--to", tmp_path / "to")
    asked = {d.hex() for digests in many.asked for d in digests}
    assert tree(tmp_path / "to") == FILES and names(agent) == []
    assert len(asked) == 300 - len(have) and not asked & have


def test_staged_files_are_taken_up_when_they_are_right(agent, many, tmp_path):  # noqa: F811
    """As a crash leaves them: whole, cut, of the right length with wrong bytes (a power cut), a link."""
    agent("status")
    left = {name: (agent.shelf / "partial" / (sha(data) + ".whole"), data) for name, data in FILES.items()}
    for i, (path, data) in enumerate(list(left.values())[:200]):
        if i % 4 == 3:
            path.symlink_to("/etc/passwd")
        else:
            path.write_bytes([data, data[:-1], bytes(len(data))][i % 4])
    agent("pull", "m/", "--to", tmp_path / "to")
    asked = {d.hex() for digests in many.asked for d in digests}
    assert tree(tmp_path / "to") == FILES and names(agent) == []
    assert asked == {sha(data) for i, data in enumerate(FILES.values()) if i >= 200 or i % 4 != 0}


@pytest.mark.parametrize("agents", [2, 5])
def test_agents_share_what_they_fetch(agent, many, tmp_path, agents):  # noqa: F811
    go = threading.Event()
    many.many = held(many, 2, go)
    children = [agent.start("pull", "m/", "--to", tmp_path / f"to{i}") for i in range(agents)]
    try:
        until(lambda: len(many.asked) > 2)
    finally:
        go.set()
    for i, child in enumerate(children):
        assert child.wait(120) == 0, child.stderr.read()
        assert tree(tmp_path / f"to{i}") == FILES
    came = [d for digests in many.asked for d in digests[:16]]
    assert len(came) == len(set(came)) == 300 - len(gets(many)) and len(set(gets(many))) == len(gets(many))
    assert list(agent.shelf.glob("partial/*")) == []


def test_waiting_for_another_agent_is_said_after_a_while(agent, many, tmp_path):  # noqa: F811
    go = threading.Event()
    many.many = held(many, 0, go)
    first = agent.start("pull", "m/")
    try:
        until(lambda: many.asked)
        second = agent.start("pull", "m/", "--idle-timeout", "3")
        said = any("pull.waits" in line for line in second.stderr)  # on a busy machine its listing, too, may have to be asked for again
    finally:
        go.set()
    assert said
    assert first.wait(120) == 0 and second.wait(120) == 0


def test_gc_takes_what_is_staged(agent, many, tmp_path):  # noqa: F811
    """Under way or not: the pull asks for it again, and ends well."""
    with swept(agent):
        for _ in range(8):
            p = agent.start("pull", "m/")
            _, err = p.communicate(timeout=120)
            assert p.returncode in (0, 75), err
    agent("pull", "m/", "--to", tmp_path / "to")
    assert tree(tmp_path / "to") == FILES


def test_a_full_disk(agent, many, tmp_path, mount):  # noqa: F811
    mount(tmp_path / "disk", "-t", "tmpfs", "-o", "size=1m", "tmpfs")
    agent.shelf = tmp_path / "disk/shelf"
    agent.env["TRAINAGENT_SHELF"] = str(agent.shelf)
    (tmp_path / "disk/ballast").write_bytes(bytes(900 << 10))
    agent("pull", "m/", code=73)
    assert "space" in agent.err
    (tmp_path / "disk/ballast").unlink()
    mount(tmp_path / "disk", "-o", "remount,size=16m", tmp_path / "disk")
    agent("pull", "m/", "--to", tmp_path / "disk/to")
    assert tree(tmp_path / "disk/to") == FILES


def test_a_shelf_that_is_read_only(agent, many, tmp_path, mount):  # noqa: F811
    agent("pull", "m/f1/")
    mount(tmp_path / "ro", "--bind", agent.shelf)
    mount(tmp_path / "ro", "-o", "remount,ro,bind")
    more = {"TRAINAGENT_SHELF": str(tmp_path / "ro")}
    agent("pull", "m/f1/", "--to", tmp_path / "to", **more)
    assert len(tree(tmp_path / "to")) == 43
    agent("pull", "m/", code=77, **more)
    assert "Read-only" in agent.err


def test_a_job_of_many(agent, many, tmp_path):  # noqa: F811
    """Two artifacts that share files: each comes once."""
    path = tmp_path / "job"
    path.write_text('''artifact "a" { from = "m/" }
        artifact "b" { from = "m/f3/" }
        run { command = {"sh", "-c", "test $(find {a} -type f | wc -l) = 300 && test $(ls {b} | wc -l) = 43"} ranks = 1 }''')
    agent("run", path)
    came = [d for digests in many.asked for d in digests]
    assert len(came) == len(set(came)) == 300 and gets(many) == ["/m/f3/?recursive=1"]
