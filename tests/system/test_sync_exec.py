"""The installed rsync as the engine: the same trees as the native one makes, by daemon and by ssh; and a program that fails, hangs,
is killed, is not there."""
import fcntl
import json
import os
import pathlib
import random

import pytest

from harness.mirrord import until
from system.test_sync import run
from system.test_sync_hooks import gone
from system.test_sync_rsync import listed, module  # noqa: F401 (a fixture)

FAST = 'backoff = "100ms" tries = 2'
EXEC = 'repo "{0}" {{ protocol = "generic" origin = "{1}" stall = "{3}" sync {{ {2} }} }}'

# What stands for ssh: it forgets where to, and does here what it was to do there.
FAKE_SSH = """#!/bin/bash
echo "$$ $*" >> {tmp}/calls
{first}
while [[ "$1" == -* ]]; do case "$1" in -l|-p|-i) shift;; esac; shift; done
shift
eval "exec $*"
"""


@pytest.fixture
def ssh(tmp_path, client):
    client("rsync")

    def make(first=""):
        path = tmp_path / "fake ssh"
        path.write_text(FAKE_SSH.format(tmp=tmp_path, first=first))
        path.chmod(0o755)
        return path
    return make


@pytest.fixture
def far(mirrord, ssh, tmp_path):
    """A mirrord that mirrors tmp_path/far by "ssh"."""
    tree = tmp_path / "far"
    tree.mkdir()

    def begin(settings="", first="", stall="20s", **kw):
        program = ssh(first)
        m = mirrord(EXEC.format("x", f"ssh://me@far.example:2222{tree}/", f'{FAST} ssh = "{program}" {settings}', stall), **kw)
        m.tree = tree
        return m
    return begin


def fill(top, seed, names=40):
    """A random tree: folders in folders, odd names and times, links, hard links, empty ones."""
    dice = random.Random(seed)
    folders, files = [os.fsencode(top)], []
    for i in range(names):
        name = dice.choice([b"f%d", b"-f%d", b"f %d", b"f\n%d", b"f\\#012%d", b"\xff\xfe%d", b"F%d.x", b"f*[%d]", b".f%d"]) % i
        path = os.path.join(dice.choice(folders), name)
        kind = dice.random()
        if kind < 0.25:
            os.mkdir(path)
            folders.append(path)
        elif kind < 0.35:
            os.symlink(dice.choice([b"..", b"/etc/passwd", b"f1", b"../../out\xff", b"/rsyncd-munged/x"]), path)
        elif kind < 0.5 and files:
            os.link(dice.choice(files), path)
        else:
            with open(path, "wb") as f:
                f.write(dice.randbytes(dice.choice([0, 1, 700, 5000, 70000, 600000])))
            os.chmod(path, dice.choice([0o644, 0o755, 0o4755, 0o444]))
            os.utime(path, ns=(0, dice.choice([0, 1, -5, 1700000000_123456789, 2**33 * 10**9 + 7])))
            files.append(path)
    for path in folders[1:]:
        os.chmod(path, dice.choice([0o755, 0o555]))


def clear(top):
    for folder, folders, files in os.walk(os.fsencode(top)):
        os.chmod(folder, 0o755)
    for folder, folders, files in os.walk(os.fsencode(top), topdown=False):
        for name in files + [f for f in folders if os.path.islink(os.path.join(folder, f))]:
            os.unlink(os.path.join(folder, name))
        if folder != os.fsencode(top):
            os.rmdir(folder)


def both(m):
    out = []
    for repo in ("x", "y"):
        done = m.ctl("--json", "sync", "run", repo, "--wait")
        assert done.returncode == 0
        out.append(json.loads(done.stdout))
    return out


@pytest.mark.parametrize("seed", range(4))
def test_the_same_root_as_the_native_engine(mirrord, module, seed):  # noqa: F811
    """Of three states of a random tree, each what became of the one before."""
    port, tree = module
    url = f"rsync://127.0.0.1:{port}/m/"
    m = mirrord(EXEC.format("x", url, f'{FAST} engine = "exec-rsync" max_delete = "100%"', "20s") +
                EXEC.format("y", url, f'{FAST} max_delete = "100%"', "20s"))
    for state in range(3):
        if state != 1:
            clear(tree)
        else:
            (tree / "more").mkdir()
            fill(tree / "more", seed, 5)
        if state != 1:
            fill(tree, 10 * seed + state)
        a, b = both(m)
        assert (a["root"], a["listed"], a["outcome"]) == (b["root"], b["listed"], b["outcome"]), state
    again, _ = both(m)
    assert again["outcome"] == "unchanged"
    m.ctl("verify", "--deep")


def test_by_ssh(far, tmp_path):
    for name in ("a key", "known hosts"):
        (tmp_path / name).touch()
    m = far(f'ssh_key = "{tmp_path}/a key" known_hosts = "{tmp_path}/known hosts"')
    fill(m.tree, 7)
    (m.tree / "d").mkdir()
    (m.tree / "d/file").write_bytes(b"one" * 100000)
    first = run(m)
    assert first["outcome"] == "published" and m.get("/x/d/file").body == b"one" * 100000
    call = (tmp_path / "calls").read_text()
    assert "-oBatchMode=yes" in call and "-p 2222" in call and f"-i {tmp_path}/a key" in call and "-l me far.example rsync --server --sender" in call
    assert run(m)["outcome"] == "unchanged"
    work = pathlib.Path(m.state) / "exec/x"
    assert work.stat().st_mode & 0o777 == 0o700 and not list((work / "tmp").iterdir())
    (m.tree / "d/file").write_bytes(b"two")
    done = run(m)
    assert done["outcome"] == "published" and done["files_done"] == 1 and m.get("/x/d/file").body == b"two"


def test_what_rsync_passes_over_is_not_published_from_before(far):
    """It leaves a file alone that became too large, or a pipe: its former bytes are no part of the tree."""
    m = far('max_size = "1k" filter = {"- *.iso"} links = "safe" max_delete = "100%"')
    for name in ("grows", "pipe", "stays", "new\nline", "a.iso"):
        (m.tree / name).write_bytes(b"small")
    (m.tree / "link").symlink_to("stays")
    run(m)
    assert set(listed(m)) == {"grows", "pipe", "stays", "new\nline", "link"}
    (m.tree / "grows").write_bytes(b"x" * 2000)
    (m.tree / "new\nline").write_bytes(b"x" * 2000)
    (m.tree / "pipe").unlink()
    os.mkfifo(m.tree / "pipe")
    (m.tree / "link").unlink()
    (m.tree / "link").symlink_to("/etc/passwd")
    run(m)
    assert set(listed(m)) == {"stays"}


@pytest.mark.parametrize("first,words", [
    ("echo 'me@far: Permission denied (publickey).' >&2; exit 255", "Permission denied (publickey)"),
    ("echo 'ssh: connect to host far port 22: Connection refused' >&2; exit 255", "refused"),
    ("echo 'sh: rsync: command not found' >&2; exit 127", "command not found"),
    ("exit 0", "rsync exited with"),
    ("head -c 100000 /dev/urandom; exit 0", "rsync exited with"),
    ("yes 'a line of nonsense' | head -n 5000 >&2; exit 1", "rsync exited with"),
])
def test_a_way_that_fails(far, first, words):
    m = far(first=first)
    (m.tree / "file").write_bytes(b"x")
    assert m.ctl("sync", "run", "x", "--wait", check=False).returncode == 69
    assert words in m.ctl("sync", "show", "x").stdout
    assert len(m.ctl("sync", "logs", "x").stdout.splitlines()) < 450


def test_a_way_that_hangs(far, tmp_path):
    m = far(first="exec sleep 600", stall="3s")  # by when it has begun, and said so in `calls`
    (m.tree / "file").write_bytes(b"x")
    assert m.ctl("sync", "run", "x", "--wait", check=False).returncode == 69
    for call in (tmp_path / "calls").read_text().splitlines():
        until(lambda pid=call.split()[0]: gone(pid))


def test_a_run_that_is_stopped_leaves_no_program(far, tmp_path):
    m = far(first="trap '' TERM; sleep 600", stall="600s")
    m.ctl("sync", "run", "x")
    until(lambda: (tmp_path / "calls").exists() and (tmp_path / "calls").read_text().endswith("\n"))
    m.ctl("sync", "stop", "x")
    until(lambda: gone((tmp_path / "calls").read_text().split()[0]))


def test_the_program_is_killed(far, tmp_path):
    """Once; the second attempt does it."""
    m = far(first=f"if mkdir {tmp_path}/once 2>&-; then kill -9 $PPID; sleep 600; fi")
    (m.tree / "file").write_bytes(b"x")
    done = run(m)
    assert done["outcome"] == "published" and done["attempts"] == 2


def lock_of(m):
    """The lock of its working tree, or None while somebody has it."""
    f = open(m.state / "exec" / "x" / "lock", "r+")
    try:
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        f.close()
        return None
    return f


def test_mirrord_is_killed_and_its_rsync_with_it(far, tmp_path):
    """Though the other side hangs still: the next run does all of it."""
    m = far(first=f"if mkdir {tmp_path}/once 2>&-; then while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; fi", stall="600s")
    for i in range(20):
        (m.tree / f"file{i}").write_bytes(os.urandom(100000))
    m.ctl("sync", "run", "x")
    until(lambda: (tmp_path / "once").exists())
    m.child.kill()
    m.child.wait()
    m.child = None
    until(lambda: lock_of(m) is not None)
    m.start()
    assert run(m)["outcome"] == "published"
    for i in range(20):
        assert m.get(f"/x/file{i}").body == (m.tree / f"file{i}").read_bytes()
    (tmp_path / "go").touch()
    until(lambda: gone((tmp_path / "calls").read_text().split()[0]))


def test_an_rsync_of_an_earlier_run_lives_on(far):
    """One with rights that we lack is not ended with us: two never write to one tree."""
    m = far()
    (m.tree / "file").write_bytes(b"x")
    assert run(m)["outcome"] == "published"
    (m.tree / "file").write_bytes(b"xy")
    with lock_of(m):
        done = m.ctl("sync", "run", "x", "--wait", check=False)
        assert done.returncode == 69 and "earlier run is still writing" in m.ctl("sync", "show", "x").stdout
    assert run(m)["outcome"] == "published"
    assert m.get("/x/file").body == b"xy"


def test_no_rsync_here(mirrord, tmp_path, client):
    client("rsync")
    (tmp_path / "bin").mkdir()
    m = mirrord(EXEC.format("x", "ssh://far.example/tree/", FAST, "5s"))
    m.stop()
    m.env = {"PATH": str(tmp_path / "bin")}
    m.start()
    assert m.ctl("sync", "run", "x", "--wait", check=False).returncode == 69
    assert "install it" in m.ctl("sync", "show", "x").stdout


@pytest.mark.parametrize("secret,rc", [("me:hush", 0), ("me:wrong", 69), (None, 69)])
def test_a_daemon_with_a_password(mirrord, module, tmp_path, secret, rc):  # noqa: F811
    port, tree = module
    (tree / "file").write_bytes(b"x")
    conf = tmp_path / "rsyncd.conf"
    conf.write_text(conf.read_text() + f"auth users = me\nsecrets file = {tmp_path}/secrets\n")  # read by each connection
    for name, line in (("secrets", "me:hush\n"), ("ours", f"{secret}\n")):
        (tmp_path / name).write_text(line)
        (tmp_path / name).chmod(0o600)
    words = f'authorization = "file:{tmp_path}/ours" ' if secret else ""
    m = mirrord(EXEC.format("x", f"rsync://127.0.0.1:{port}/m/", f'engine = "exec-rsync" {FAST}', "20s").replace("stall", words + "stall"))
    assert m.ctl("sync", "run", "x", "--wait", check=False).returncode == rc
    assert rc == 0 or "auth failed" in m.ctl("sync", "show", "x").stdout
    assert "hush" not in m.log()
