"""trainagent with a list of mirrors: whichever of them fails, at whichever byte, each pull succeeds with the right bytes, and what was verified is not
fetched again (agent/mirrors.h)."""
import json
import random

import pytest

from harness.fake_mirror import CHUNK, Mirror
from system.test_agent_faulty_mirror import BIG, Agent, gets, sha

SMALL = {f"/d/small/{i}": random.Random(i).randbytes(1000 * i) for i in range(1, 40)}


class Mirrors:
    """Some that have the same files, and an agent with a list of them."""

    def __init__(self, tmp, count, files):
        self.all = [Mirror() for _ in range(count)]
        for m in self.all:
            m.files.update(files)
            m.many = m.batch
        self.agent = Agent(tmp, self.all[0])
        self.agent.env["TRAINAGENT_MIRROR"] = ",".join(m.url for m in self.all)

    def owner(self, path):
        """The one that the agent asks first for a path, and the others."""
        self.agent("pull", path[1:])
        first = max(self.all, key=lambda m: len(gets(m, path)))
        assert sum(len(gets(m, path)) > 0 for m in self.all) == 1, "one mirror of many"
        for m in self.all:
            m.log.clear()
            m.sent = 0
        for blob in self.agent.blobs():
            blob.unlink()
        return first, [m for m in self.all if m is not first]

    def sent(self):
        return sum(m.sent for m in self.all)

    def close(self):
        for m in self.all:
            m.close()
        for child in self.agent.children:
            child.kill()
        self.agent.nothing_wrong()


@pytest.fixture
def mirrors(tmp_path):
    made = []

    def make(count=2, files=None):
        made.append(Mirrors(tmp_path, count, files or {"/d/big.bin": BIG, **SMALL}))
        return made[-1]
    yield make
    for m in made:
        m.close()


# --- which one is asked ------------------------------------------------------------------------------------------------------


def test_the_order_is_of_the_file_and_not_of_the_list(mirrors):
    files = {f"/d/{i}.bin": random.Random(i).randbytes(2000) for i in range(40)}
    ms = mirrors(3, files)
    for path in files:
        ms.agent("pull", path[1:])
    asked = {path: [i for i, m in enumerate(ms.all) if gets(m, path)] for path in files}
    assert all(len(who) == 1 for who in asked.values())
    assert len({who[0] for who in asked.values()}) == 3, "every mirror has some"
    for m in ms.all:
        m.log.clear()
    ms.agent.env["TRAINAGENT_SHELF"] += "2"
    for path in files:
        ms.agent("pull", path[1:], TRAINAGENT_MIRROR=", ".join(m.url + "/" for m in reversed(ms.all)))
    assert asked == {path: [i for i, m in enumerate(ms.all) if gets(m, path)] for path in files}


@pytest.mark.parametrize("way", ["comma", "repeated", "file", "job"])
def test_how_a_list_is_written(mirrors, tmp_path, way):
    ms = mirrors(2)
    first, (other,) = ms.owner("/d/big.bin")
    first.close()
    del ms.agent.env["TRAINAGENT_MIRROR"]
    urls = [m.url for m in ms.all]
    listed = 'mirror = {"%s"}\n' % '", "'.join(urls)
    if way == "comma":
        ms.agent("--mirror", ",".join(urls), "pull", "d/big.bin")
    elif way == "repeated":
        ms.agent("pull", "--mirror", urls[0], "d/big.bin", "--mirror", urls[1])
    elif way == "file":
        conf = tmp_path / "node.conf"
        conf.write_text(listed)
        ms.agent("pull", "d/big.bin", "--node-file", conf)
    else:
        conf = tmp_path / "job.conf"
        conf.write_text(listed + 'artifact "a" { from = "d/big.bin" }')
        ms.agent("run", conf)
    assert ms.agent.blob(BIG) == BIG


def test_a_list_that_is_none(mirrors):
    ms = mirrors(1)
    ms.agent("--mirror", ms.all[0].url + ",ftp://x", "pull", "d/big.bin", code=64)
    assert "ftp://x" in ms.agent.err
    ms.agent("--mirror", ",".join(f"http://127.0.0.1:{i + 1}" for i in range(65)), "pull", "d/big.bin", code=64)
    assert "64" in ms.agent.err
    ms.agent("--mirror", " , ", "pull", "d/big.bin", code=64)


# --- one fails -----------------------------------------------------------------------------------------------------------------


def test_one_is_away_from_the_start(mirrors, tmp_path):
    ms = mirrors(2)
    first, _ = ms.owner("/d/big.bin")
    first.close()
    ms.agent("pull", "d/big.bin")
    assert ms.agent.blob(BIG) == BIG
    ms.agent("pull", "d/", "--to", tmp_path / "out")  # whatever is whose
    for path, data in SMALL.items():
        assert (tmp_path / "out" / path[3:]).read_bytes() == data
    assert ms.sent() < len(BIG) + sum(map(len, SMALL.values())) + 100_000


@pytest.mark.parametrize("chunks", [True, False])
@pytest.mark.parametrize("at", [1, 100_000, CHUNK + 5, 3 * CHUNK])
def test_one_breaks_off(mirrors, at, chunks):
    """With a list of parts and in one stream; the other goes on with the next byte."""
    ms = mirrors(2)
    for m in ms.all:
        m.chunks = chunks
    first, (other,) = ms.owner("/d/big.bin")
    first.short, first.short_times = at, 1
    first.fail_get = {}
    ms.agent("pull", "d/big.bin", "--connections", 1)
    assert ms.agent.blob(BIG) == BIG
    assert ms.sent() < len(BIG) + CHUNK + 100_000
    if not chunks or at < CHUNK:
        assert gets(other, "/d/big.bin"), "the other one went on"
    assert len([e for m in ms.all for e in m.log if e[0] == "HEAD"]) == 1


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_one_refuses(mirrors, tmp_path, status):
    ms = mirrors(2)
    first, (other,) = ms.owner("/d/big.bin")
    first.fail = {path: [status] * 100 for path in ["/d/big.bin", "/d/", "/-/sync/blobs", *SMALL]}
    ms.agent("pull", "d/big.bin", "--tries", 1)
    assert ms.agent.blob(BIG) == BIG and ms.sent() < len(BIG) + 100_000
    ms.agent("pull", "d/", "--to", tmp_path / "out", "--tries", 1)
    assert (tmp_path / "out/small/7").read_bytes() == SMALL["/d/small/7"]


@pytest.mark.parametrize("size", [len(BIG), 5000])
def test_one_sends_wrong_bytes(mirrors, size):
    ms = mirrors(2, {"/d/x.bin": BIG[:size]})
    first, (other,) = ms.owner("/d/x.bin")
    first.damage = True
    ms.agent("pull", "d/x.bin", "--connections", 2)
    assert ms.agent.blob(BIG[:size]) == BIG[:size]
    wrong = len(gets(first, "/d/x.bin"))
    assert ms.sent() < size + wrong * min(size, CHUNK) + 100_000


def test_one_sends_small_files_wrong(mirrors, tmp_path):
    ms = mirrors(2)
    for m in ms.all:
        m.files.pop("/d/big.bin")
    ms.all[0].damage = True
    ms.all[0].many = lambda h, digests: ms.all[0].batch(h, digests, lambda d, data: b"\0\0\0\1x" if data else None)
    ms.agent("pull", "d/", "--to", tmp_path / "out")
    for path, data in SMALL.items():
        assert (tmp_path / "out" / path[3:]).read_bytes() == data


def test_one_has_a_list_that_lies(mirrors):
    """Two mirrors that both have something else than the list are right, and the list is wrong."""
    ms = mirrors(2, {"/d/x.bin": BIG[:CHUNK + 100]})
    first, _ = ms.owner("/d/x.bin")
    first.lie_chunk_list = True
    ms.agent("pull", "d/x.bin")
    assert ms.agent.blob(BIG[:CHUNK + 100]) == BIG[:CHUNK + 100]


def test_one_is_silent(mirrors):
    ms = mirrors(2)
    first, (other,) = ms.owner("/d/big.bin")
    first.hold_at = 100_000
    ms.agent("pull", "d/big.bin", "--idle-timeout", 5, "--tries", 1)  # longer than a busy machine holds up the one that is well
    assert ms.agent.blob(BIG) == BIG and gets(other, "/d/big.bin")
    assert ms.sent() < len(BIG) + CHUNK + 100_000


def test_one_does_not_have_it_yet(mirrors, tmp_path):
    """A mirror that has not heard of a file, or has an older one: the others are asked, and it has not failed."""
    ms = mirrors(3)
    first, others = ms.owner("/d/big.bin")
    first.files.clear()
    ms.agent("pull", "d/big.bin", "--tries", 1)
    assert ms.agent.blob(BIG) == BIG and ms.sent() < len(BIG) + 100_000
    ms.agent("pull", "d/none", code=66)
    ms.agent("pull", f"d/big.bin#sha256={sha(BIG)}")


def test_all_are_away(mirrors):
    ms = mirrors(2)
    for m in ms.all:
        m.close()
    ms.agent("pull", "d/big.bin", "--tries", 2, code=69)


def test_all_are_away_for_a_while(mirrors):
    ms = mirrors(2)
    for m in ms.all:
        m.refuse = 3
        m.fail = {"/d/big.bin": [503, 503]}
    ms.agent("pull", "d/big.bin")
    assert ms.agent.blob(BIG) == BIG and ms.sent() < len(BIG) + 100_000


def test_the_token_is_for_the_mirrors_of_the_file(mirrors, tmp_path):
    """The node's token is not sent to a mirror that is not in the node's file, nor over plain HTTP to any that is far away."""
    ms = mirrors(2)
    token = tmp_path / "token"
    token.write_text("mrd_abc\n")
    ms.agent("--mirror", ms.all[0].url + ",http://far.example", "--token-file", token, "pull", "d/big.bin", code=77)
    assert "far.example" in ms.agent.err


# --- any number of failures, anywhere -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_faults_in_any_order(mirrors, tmp_path, seed):
    """Bytes are at most the file, and a block for each failure."""
    dice = random.Random(seed)
    ms = mirrors(3)
    bad = dice.sample(ms.all, 2)
    for m in bad:
        what = dice.choice(["cut", "wrong", "refuse", "gone"])
        if what == "cut":
            m.short, m.short_times = dice.randrange(1, 2 * CHUNK), dice.randrange(1, 9)
        elif what == "wrong":
            m.bad_chunk = {dice.randrange(6): dice.choice([1, -1]) for _ in range(3)}
        elif what == "refuse":
            m.refuse = dice.randrange(1, 9)
        else:
            m.close()
    ms.agent("pull", "d/big.bin", "--connections", dice.choice([1, 2, 8]))
    assert ms.agent.blob(BIG) == BIG
    failures = sum(len(gets(m, "/d/big.bin")) for m in bad)
    assert ms.sent() <= len(BIG) + failures * CHUNK + 100_000


# --- publishing --------------------------------------------------------------------------------------------------------------------


def test_what_is_published_goes_to_the_next(mirrors, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    for i in range(5):
        (out / f"{i}.bin").write_bytes(random.Random(i).randbytes(20_000))
    ms = mirrors(2)
    ms.agent("publish", out, "models/me/a")
    first = next(m for m in ms.all if m.commits)
    other = next(m for m in ms.all if m is not first)
    (out / "new.bin").write_bytes(b"new")
    (out / "newer.bin").write_bytes(b"newer")
    first.fail = {"/models/me/a/-/uploads/u1/newer.bin": [503] * 100}
    said = json.loads(ms.agent("publish", out, "models/me/a", "--json"))
    assert other.commits and said["files"] == 7
    assert {p.rsplit("/", 1)[1] for p in other.files if p.startswith("/models/me/a/")} == {p.name for p in out.iterdir()}
