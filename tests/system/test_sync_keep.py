"""A large file that was cut, by whatever: the next run asks for the rest alone, and what lies here is verified before."""
import hashlib
import os
import threading

import pytest

from harness.mirrord import until
from harness.tree_origin import TreeOrigin
from system.test_sync import CONFIG, FAST, check, lines, run

MIB = 1 << 20
LARGE = os.urandom(12 * MIB)


@pytest.fixture
def o():
    with TreeOrigin({"small": b"1", "large": LARGE}) as origin:
        yield origin


@pytest.fixture
def m(mirrord, o):
    return mirrord(CONFIG.format(o.url, FAST))


class Stall:
    """The origin stops in the middle of `large`, until it is let go."""

    def __init__(self, o, at):
        self.there, self.go = threading.Event(), threading.Event()
        o.midway = lambda path, pos: self.wait() if path == "large" and pos >= at else None

    def wait(self):
        self.there.set()
        self.go.wait(240)
        return "cut"


def done_bytes(m):
    return m.ctl_json("sync", "ls")[0]["last"].get("bytes_done", 0)


def idle(m):
    return not m.ctl_json("sync", "ls")[0]["running"]


def partials(m):
    return list((m.state / "partial").iterdir())


def rest_alone(m, o, here):
    """The next run publishes, and has asked for no more than what was missing."""
    o.midway = None
    o.forget()
    done = run(m)
    small = sum(len(d) for p, d in o.tree().items() if p != "large")
    assert done["outcome"] == "published" and o.bytes <= len(LARGE) - here + small, (o.bytes, here)
    assert done["bytes_done"] >= len(LARGE) and done["wire_bytes"] < len(LARGE)
    check(m, o.tree())
    assert not partials(m)
    m.ctl("verify", "--deep")


def stopped_in_the_middle(m, o):
    stall = Stall(o, 9 * MIB)
    m.ctl("sync", "run", "x")
    until(lambda: done_bytes(m) >= 9 * MIB)
    m.ctl("sync", "stop", "x")
    until(lambda: idle(m))
    stall.go.set()
    o.midway = None


@pytest.mark.parametrize("how", ["stop", "pause", "sigterm", "reload"])
def test_ended_in_the_middle(m, o, how):
    stall = Stall(o, 9 * MIB)
    m.ctl("sync", "run", "x")
    until(lambda: done_bytes(m) >= 9 * MIB)
    if how == "sigterm":
        m.stop()
        m.start()
    elif how == "reload":  # the repo goes and comes back: what was kept for it went with it
        m.config = 'repo "y" { protocol = "hosted" }'
        m.reload()
        until(lambda: not partials(m))
        m.config = CONFIG.format(o.url, FAST)
        m.reload()
    else:
        m.ctl("sync", how, "x")
        until(lambda: idle(m))
    stall.go.set()
    if how == "pause":
        m.ctl("sync", "resume", "x")
    if how == "reload":
        o.midway = None
        assert run(m)["outcome"] == "published"
        check(m, o.tree())
        return
    assert len(partials(m)) == 1
    m.ctl("verify")
    rest_alone(m, o, 9 * MIB)


def test_killed_in_the_middle(mirrord, tmp_path):
    """Saved every 64 MiB: what came by then is not asked for again."""
    data = os.urandom(8 * MIB) * 12
    with TreeOrigin({"large": data}) as o:
        m = mirrord(CONFIG.format(o.url, FAST))
        m.stop()
        m.env = {"MIRROR_CRASH_AT": "sync.kept"}
        m.start()
        m.env = {}
        m.ctl("sync", "run", "x", "--wait", check=False)
        assert m.child.wait(120) == -9
        m.child = None
        m.start()
        m.ctl("verify")
        o.forget()
        assert run(m)["outcome"] == "published"
        assert o.bytes <= len(data) - 64 * MIB
        check(m, o.tree())


def test_cut_in_every_try(m, o):
    """The run fails in the end; each later one goes on where the last one was."""
    for at in (5, 8):
        o.midway = lambda path, pos, at=at: "cut" if path == "large" and pos >= at * MIB else None
        assert run(m, rc=69)["outcome"] == "failed"
    assert o.bytes < len(LARGE)
    rest_alone(m, o, 8 * MIB)


def test_cut_where_no_size_is_listed(m, o):
    o.style = "python"
    test_cut_in_every_try(m, o)


def sums(o):
    o.put("SHA256SUMS", "".join(f"{hashlib.sha256(d).hexdigest()}  {p}\n" for p, d in sorted(o.tree().items())
                                if p != "SHA256SUMS"))


@pytest.fixture
def by_digest(mirrord, o):
    """A list of digests, and a server without any ETag."""
    o.etags = False
    sums(o)
    return mirrord(CONFIG.format(o.url, FAST + " list = sums"))


def test_a_known_digest_vouches_for_both_halves(by_digest, o):
    test_cut_in_every_try(by_digest, o)


def test_halves_of_two_files_do_not_make_one(by_digest, o):
    """The list names the new one, the server gave the old one's beginning, and gives it again: then the run fails."""
    o.midway = lambda path, pos: "cut" if path == "large" and pos >= 8 * MIB else None
    new = os.urandom(12 * MIB)
    o.put("SHA256SUMS", f"{hashlib.sha256(new).hexdigest()}  large\n")
    assert run(by_digest, rc=69)["outcome"] == "failed"
    o.midway = None
    o.put("large", new)
    assert run(by_digest)["outcome"] == "published"
    assert by_digest.get("/x/large").body == new
    assert not partials(by_digest)


def test_another_file_by_then(m, o):
    stopped_in_the_middle(m, o)
    o.put("large", os.urandom(12 * MIB), mtime=1700009999)
    assert run(m)["outcome"] == "published"
    check(m, o.tree())
    assert not partials(m)


def test_the_same_name_and_time_but_another_validator(m, o):
    """The list cannot tell; If-Range does: nothing is spliced."""
    stopped_in_the_middle(m, o)
    o.put("large", os.urandom(12 * MIB))
    assert run(m)["outcome"] == "published"
    check(m, o.tree())


def test_what_was_kept_is_damaged(m, o):
    stopped_in_the_middle(m, o)
    with open(partials(m)[0], "r+b") as f:
        f.seek(5 * MIB)
        f.write(b"rotten")
    assert run(m)["outcome"] == "published"
    assert "not resumed: the saved part of the file is damaged" in lines(m)
    check(m, o.tree())
    m.ctl("verify", "--deep")


def test_it_is_listed_no_more(m, o):
    stopped_in_the_middle(m, o)
    o.rm("large")
    assert run(m)["outcome"] == "published" and not partials(m)
    check(m, o.tree())
