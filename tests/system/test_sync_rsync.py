"""The rsync engine under the whole pipeline: a stock daemon's module mirrored, links, folders and hard links included."""
import json
import os
import pathlib
import socket
import struct
import subprocess
import tempfile
import threading

import pytest

from harness import rsync_peer as peers
from harness.mirrord import free_port, until
from harness.rsyncd import listens
from system.test_sync import run

CONFIG = 'repo "x" {{ protocol = "generic" origin = "rsync://127.0.0.1:{0}/m/" sync {{ backoff = "100ms" tries = 2 }} }}'


@pytest.fixture
def module(tmp_path, client):
    program, port, tree = client("rsync"), free_port(), tmp_path / "tree"
    tree.mkdir()
    conf = tmp_path / "rsyncd.conf"
    conf.write_text(f"use chroot = no\nport = {port}\naddress = 127.0.0.1\npid file = {tmp_path}/pid\n"
                    f"log file = {tmp_path}/log\n[m]\npath = {tree}\nread only = yes\n")
    child = subprocess.Popen([program, "--daemon", "--no-detach", f"--config={conf}"], stdin=subprocess.DEVNULL)
    assert listens(child, port)
    yield port, tree
    child.terminate()
    child.wait()


class Cutting:
    """A way to the daemon that breaks after so many bytes of it, as often as `cuts` says."""

    def __init__(self, port, after, cuts):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port, self.after, self.cuts, self.to = self.listener.getsockname()[1], after, cuts, port
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            limit = self.after if self.cuts > 0 else 1 << 60
            self.cuts -= 1
            server = socket.create_connection(("127.0.0.1", self.to))
            threading.Thread(target=self.pump, args=(client, server, 1 << 60), daemon=True).start()
            threading.Thread(target=self.pump, args=(server, client, limit), daemon=True).start()

    @staticmethod
    def pump(a, b, limit):
        try:
            while limit > 0 and (data := a.recv(min(65536, limit))):
                b.sendall(data)
                limit -= len(data)
        except OSError:
            pass
        for s in (a, b):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def listed(m, path=""):
    return {e["path"]: e for e in json.loads(m.get(f"/x/{path}", headers={"Accept": "application/json"}).body)["entries"]}


def test_a_module_with_everything(mirrord, module):
    port, tree = module
    (tree / "d/empty").mkdir(parents=True)
    (tree / "d/file").write_bytes(b"one" * 50000)
    (tree / "small").write_bytes(b"s")
    os.link(tree / "d/file", tree / "d/hard")
    os.symlink("d", tree / "link")
    os.symlink("/etc/passwd", tree / "out")
    pathlib.Path(os.fsdecode(os.fsencode(tree) + b"/odd\xff\n%")).write_bytes(b"odd")
    m = mirrord(CONFIG.format(port))
    first = run(m)
    assert first["outcome"] == "published" and first["files_done"] == 3  # the hard link is not fetched again
    assert m.get("/x/d/file").body == m.get("/x/d/hard").body == m.get("/x/link/file").body == b"one" * 50000
    assert m.get("/x/odd%FF%0A%25").status == 400 and m.get("/x/out").status == 404
    assert set(listed(m)) >= {"d/", "small", "link", "out"} and listed(m)["out"]["link"] == "/etc/passwd"
    assert listed(m, "d/empty/") == {} and set(listed(m, "link/")) == {"empty/", "file", "hard"}
    assert run(m)["outcome"] == "unchanged"
    (tree / "small").write_bytes(b"other")
    (tree / "d/empty").rmdir()
    done = run(m)
    assert done["outcome"] == "published" and done["files_done"] == 1
    assert m.get("/x/small").body == b"other" and m.get("/x/d/empty/").status == 404
    assert m.get("/x/@v1/small").body == b"s"
    m.ctl("verify", "--deep")


@pytest.mark.parametrize("after", [10, 600, 3000, 500000])
def test_the_connection_breaks(mirrord, module, after):
    """In the greeting, the list, the fetch: the next attempt goes on, with what was stored."""
    port, tree = module
    for i in range(40):
        (tree / f"file{i:02}").write_bytes(os.urandom(40000))
    way = Cutting(port, after, 1)
    m = mirrord(CONFIG.format(way.port))
    done = run(m)
    assert done["outcome"] == "published" and done["attempts"] == 2, done
    if after == 500000:
        assert done["files_todo"] < 40  # of the second attempt
    for i in range(40):
        assert m.get(f"/x/file{i:02}").body == (tree / f"file{i:02}").read_bytes()
    way.listener.close()


def test_a_slow_hour_ends_in_one_attempt(mirrord, module):
    """What came before a pause is used after it, though nothing more comes: the daemon waits for our word."""
    port, tree = module
    for i in range(3):
        (tree / f"file{i}").write_bytes(os.urandom(200000))
    m = mirrord(CONFIG.format(port).replace("sync {", 'stall = "20s" sync { hours = {"00:00-24:00 2m/s"}'))
    done = run(m)
    assert (done["outcome"], done["attempts"]) == ("published", 1), done
    for i in range(3):
        assert m.get(f"/x/file{i}").body == (tree / f"file{i}").read_bytes()


def test_a_large_file_goes_on_where_it_was_cut(mirrord, module):
    """rsync cannot begin in the middle: what came is the basis of a delta, whatever deltas brought before."""
    port, tree = module
    (tree / "large").write_bytes(os.urandom(12 << 20))
    way = Cutting(port, 9 << 20, 1)
    m = mirrord(CONFIG.format(way.port))
    done = run(m)
    assert done["outcome"] == "published" and done["attempts"] == 2, done
    assert m.metric("mirrord_sync_received_bytes_total") < 13 << 20
    assert done["saved_bytes"] > 8 << 20
    assert m.get("/x/large").body == (tree / "large").read_bytes()
    assert not list((m.state / "partial").iterdir())
    m.ctl("verify", "--deep")
    way.listener.close()


def test_what_a_delta_copies_is_no_byte_of_the_wire(mirrord, module):
    """Nor while it is copied: the run that breaks after it has counted what came, no more."""
    port, tree = module
    block = os.urandom(8 << 20)
    (tree / "large").write_bytes(block * 9)
    m = mirrord(CONFIG.format(port))
    run(m)
    with open(tree / "large", "ab") as f:
        f.write(os.urandom(1 << 20))
    way = Cutting(port, 400 << 10, 2)  # of both attempts, in the last MiB
    m.config = CONFIG.format(way.port)
    m.reload()
    failed = run(m, rc=69)
    assert failed["bytes_done"] > 72 << 20 and failed["wire_bytes"] < 1 << 20, failed
    done = run(m)
    assert done["outcome"] == "published" and done["wire_bytes"] < 2 << 20, done
    assert m.get("/x/large").body == (tree / "large").read_bytes()
    way.listener.close()


def test_a_large_file_goes_on_after_a_kill(mirrord, module):
    port, tree = module
    (tree / "large").write_bytes(os.urandom(8 << 20) * 12)
    m = mirrord(CONFIG.format(port))
    m.stop()
    m.env = {"MIRROR_CRASH_AT": "sync.kept"}
    m.start()
    m.env = {}
    m.ctl("sync", "run", "x", "--wait", check=False)
    assert m.child.wait(120) == -9
    m.child = None
    m.start()
    done = run(m)
    assert done["outcome"] == "published" and done["wire_bytes"] < 34 << 20
    assert m.get("/x/large").body == (tree / "large").read_bytes()
    m.ctl("verify", "--deep")


def test_busy_peers_are_asked_again(mirrord, module):
    """"max connections" is no failure while there are tries left; what will never be had is not asked for twice."""
    port, tree = module
    (tree / "file").write_bytes(b"1")
    busy = socket.create_server(("127.0.0.1", 0))
    seen = []

    def refuse():
        while True:
            try:
                client, _ = busy.accept()
            except OSError:
                return
            seen.append(1)
            with client, client.makefile("rb") as said:
                client.sendall(b"@RSYNCD: 31.0 sha512 sha256 sha1 md5 md4\n")
                said.readline()
                said.readline()
                client.sendall(b"@ERROR: max connections (1) reached -- try again later\n")
                client.shutdown(socket.SHUT_WR)
                said.read()  # what is unread when we close would take our words from it
    threading.Thread(target=refuse, daemon=True).start()
    settings = f'upstreams = {{"rsync://127.0.0.1:{port}/m/"}}'
    m = mirrord(CONFIG.format(busy.getsockname()[1]).replace("tries = 2", "tries = 2 " + settings))
    done = run(m)
    assert done["outcome"] == "published" and done["attempts"] == 2 and len(seen) == 1
    assert m.ctl_json("sync", "ls")[0]["failures"] == 0
    m.config = CONFIG.format(busy.getsockname()[1])
    m.reload()
    failed = run(m, rc=69)
    assert failed["attempts"] == 2 and "max connections" in failed["why"]
    assert m.get("/x/file").body == b"1"
    m.config = CONFIG.format(port).replace("/m/", "/none/")
    m.reload()
    failed = run(m, rc=69)
    assert failed["attempts"] == 1 and "none" in failed["why"]
    busy.close()


def test_what_a_peer_says_steers_no_terminal(mirrord, client):
    def script(s):
        s.greet()
        s.frame(b"rsync: the disk is on fire\x1b[2J\n", peers.ERROR)
        s.frame(struct.pack("<i", 11), peers.ERROR_EXIT)
    peer = peers.Peer(script)
    m = mirrord(CONFIG.format(peer.listener.getsockname()[1]))
    run(m, rc=69)
    for verb in (("sync", "ls"), ("sync", "show", "x"), ("sync", "logs", "x"), ("sync", "logs", "x", "1"),
                 ("sync", "run", "x", "--wait")):
        said = m.ctl(*verb, check=False)
        assert "\x1b" not in said.stdout + said.stderr and "on fire?[2J" in said.stdout, verb
    peer.close()


def test_what_came_by_rsync_is_counted_as_fetched(mirrord, module):
    """On the page and in status.json, whose looks at runs are a second old."""
    port, tree = module
    (tree / "f").write_bytes(os.urandom(1 << 20))
    m = mirrord(CONFIG.format(port))
    run(m)
    def fetched():
        return json.loads(m.get("/-/status.json").body)["upstream_bytes"]
    until(lambda: fetched() >= 1 << 20)
    assert fetched() < 2 << 20


def test_an_upstream_in_the_middle_of_its_own_run(mirrord, module):
    port, tree = module
    (tree / "file").write_bytes(b"1")
    m = mirrord(CONFIG.format(port).replace("sync {", 'sync { profile = debian'))
    (tree / "Archive-Update-in-Progress-a.example").write_bytes(b"")
    failed = run(m, rc=69)
    assert failed["attempts"] == 2 and "being updated" in failed["why"]
    (tree / "Archive-Update-in-Progress-a.example").unlink()
    assert run(m)["outcome"] == "published"


def test_what_the_upstream_cannot_read_stays(mirrord, client):
    """Its daemon says io_error: nothing is removed in this run, nor is it when it is gone for good in the same list."""
    if os.geteuid() != 0:
        pytest.skip("a daemon that may not read needs root to be one")
    program, port = client("rsync"), free_port()
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder, "tree")
        (tree / "secret").mkdir(parents=True)
        (tree / "secret/file").write_bytes(b"1")
        (tree / "gone").write_bytes(b"2")
        (tree / "file").write_bytes(b"3")
        os.chmod(folder, 0o755)
        conf = pathlib.Path(folder, "conf")
        conf.write_text(f"use chroot = no\nport = {port}\naddress = 127.0.0.1\nuid = nobody\ngid = nogroup\n"
                        f"log file = {folder}/log\n[m]\npath = {tree}\nread only = yes\n")
        child = subprocess.Popen([program, "--daemon", "--no-detach", f"--config={conf}"], stdin=subprocess.DEVNULL)
        try:
            assert listens(child, port)
            m = mirrord(CONFIG.format(port).replace("tries = 2", "tries = 5"))
            assert run(m)["outcome"] == "published"
            (tree / "secret").chmod(0o700)
            (tree / "gone").unlink()
            (tree / "new").write_bytes(b"4")
            done = run(m)
            assert done["outcome"] == "published" and done["gone"] == 0
            assert [m.get(f"/x/{p}").status for p in ("secret/file", "gone", "new")] == [200, 200, 200]
            (tree / "secret").chmod(0o755)
            assert run(m)["gone"] == 1 and m.get("/x/gone").status == 404
        finally:
            child.terminate()
            child.wait()
