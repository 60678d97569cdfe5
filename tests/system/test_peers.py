"""Nodes that share a file, all of it: several agents and a mirror, and whatever may go wrong between them."""
import base64
import contextlib
import hashlib
import json
import os
import random
import secrets
import signal
import socket
import subprocess
import threading

import pytest

from harness.mirrord import BUILD, SANITIZERS, SLOW, free_port, until

CHUNK = 8 << 20
CHUNKS = 9
DATA = random.Random(3).randbytes(CHUNKS * CHUNK - 12345)
SHA = hashlib.sha256(DATA).hexdigest()
OTHER = random.Random(4).randbytes(CHUNK)
BIG = "models/me/x/big.bin"
REPO = 'repo "models" { protocol = "hosted" } '
CONFIG = REPO + "peers { again = 1m }"  # nobody is forgotten for being slow
SLOWLY = REPO + 'peers { again = 1s } limit "anonymous" { rate = "40m/s" }'  # long enough for something to happen meanwhile


class Node:
    """A node of its own: a shelf, a file of settings. It talks on loopback."""

    def __init__(self, folder, m, peers="linger = 60s"):
        self.folder, self.m, self.child, self.err = folder, m, None, ""
        folder.mkdir()
        self.shelf = folder / "shelf"
        self.conf = folder / "trainagent.conf"
        self.conf.write_text(f'peers {{ address = "127.0.0.1" {peers} }}' if peers is not None else "")
        self.env = dict(os.environ, **SANITIZERS, TRAINAGENT_MIRROR=m.url(""), TRAINAGENT_SHELF=str(self.shelf),
                        TRAINAGENT_STATE=str(folder / "state"), TRAINAGENT_CONF=str(self.conf))

    def pull(self, what=BIG, *more):
        self.child = subprocess.Popen([BUILD / "trainagent", "-v", "--json", "pull", what, *more], stdout=subprocess.PIPE,
                                      stderr=open(self.folder / "log", "ab"), text=True, env=self.env)
        return self

    def log(self):
        return (self.folder / "log").read_text()

    def done(self, data=DATA):
        """Ends well, with the right bytes on the shelf; what it says of the pull."""
        out, _ = self.child.communicate(timeout=300 * SLOW)
        assert self.child.returncode == 0, self.log()[-4000:]
        said = json.loads(out)
        sha = said["files"][0]["sha256"]
        assert hashlib.sha256((self.shelf / "blobs/sha256" / sha[:2] / sha).read_bytes()).hexdigest() == sha
        assert sha == hashlib.sha256(data).hexdigest()
        assert said["mirror_bytes"] + said["peer_bytes"] == said["fetched_bytes"]
        return said

    def kill(self, how=signal.SIGKILL):
        self.child.send_signal(how)

    def partial(self):
        return self.shelf / "partial" / f"{SHA}.part"


class Member:
    """One that announces, and gives on a port what the test likes: a node with bad manners."""

    def __init__(self, m, port=0, have=(), chunks=CHUNKS, sha=SHA):
        self.m, self.port, self.sha, self.id = m, port, sha, secrets.token_hex(16)
        bits = bytearray((chunks + 7) // 8)
        for c in have:
            bits[c // 8] |= 0x80 >> c % 8
        self.bitmap = bytes(bits)
        self.stop = threading.Event()
        self.told = self.say()
        self.thread = threading.Thread(target=self.again)
        self.thread.start()

    def say(self):
        got = self.m.put(f"/-/peers/{self.sha}", json.dumps(
            {"id": self.id, "port": self.port, "have": base64.b64encode(self.bitmap).decode()}).encode(), method="POST")
        assert got.status == 200, got.body
        return json.loads(got.body)

    def again(self):
        while not self.stop.wait(0.5):
            with contextlib.suppress(Exception):
                self.say()

    def close(self):
        self.stop.set()
        self.thread.join()


@pytest.fixture
def world(mirrord, tmp_path):
    """world(config): a mirror that has BIG; world.node(): one more node; all that still runs at the end is ended."""
    class World:
        def __call__(self, config=CONFIG):
            self.m = mirrord(config)
            token = self.m.token("ci", "publish:*", "read:*")
            for path, data in (("/" + BIG, DATA), ("/models/me/x/other.bin", OTHER), ("/models/me/x/small.bin", DATA[:CHUNK * 2])):
                assert self.m.put(path, data, token=token).status in (200, 201)
            self.nodes, self.members = [], []
            return self

        def node(self, **kw):
            self.nodes.append(Node(tmp_path / f"node{len(self.nodes)}", self.m, **kw))
            return self.nodes[-1]

        def member(self, **kw):
            self.members.append(Member(self.m, **kw))
            return self.members[-1]

        def asked(self):
            return "/-/peers/" in (self.m.access_log.read_text() if self.m.access_log.exists() else "")

        def underway(self, chunks=3):
            """So many chunks have left the mirror."""
            self.m.answered(BIG, chunks, status=206)

    w = World()
    yield w
    for member in getattr(w, "members", []):
        member.close()
    for n in getattr(w, "nodes", []):
        if n.child is not None and n.child.poll() is None:
            n.kill(signal.SIGCONT)
            n.kill()
            n.child.communicate()


def test_a_herd_asks_the_mirror_about_once(world, capsys):
    w = world()
    w.member()  # nobody is alone, be it the first or the last to come
    nodes = [w.node().pull() for _ in range(6)]
    said = [n.done() for n in nodes]
    times = sum(s["mirror_bytes"] for s in said) / len(DATA)
    with capsys.disabled():
        print(f"\n6 nodes, {len(DATA) >> 20} MiB: {times:.2f} times from the mirror")
    assert times < 0.6 * 6
    assert sum(s["peers"] for s in said) > 0


def test_without_a_door_all_is_as_ever(world):
    n = world(REPO).node().pull()
    said = n.done()
    assert (said["mirror_bytes"], said["peer_bytes"], said["peers"]) == (len(DATA), 0, 0)


def test_without_the_nodes_word_nobody_is_told(world):
    w = world()
    w.node(peers=None).pull().done()
    assert not w.asked()
    one = w.node(peers=None).pull(BIG, "--peers")  # on all addresses, but the mirror tells loopback's to loopback's only
    one.done()
    until(w.asked)


def test_what_is_small_comes_from_the_mirror(world):
    w = world()
    w.node().pull("models/me/x/small.bin").done(DATA[:CHUNK * 2])
    assert not w.asked()
    w.node(peers="min_size = 1m").pull("models/me/x/small.bin").done(DATA[:CHUNK * 2])
    until(w.asked)


def test_one_that_is_killed_holds_up_nobody(world):
    w = world(SLOWLY)
    nodes = [w.node().pull() for _ in range(4)]
    w.underway()
    nodes[0].kill()
    for n in nodes[1:]:
        n.done()
    nodes[0].child.communicate()
    nodes[0].pull().done()  # and goes on where it was


def test_one_that_is_stopped_holds_up_nobody(world):
    w = world(SLOWLY)
    nodes = [w.node().pull() for _ in range(4)]
    w.underway()
    nodes[0].kill(signal.SIGSTOP)
    for n in nodes[1:]:
        n.done()
    nodes[0].kill(signal.SIGCONT)
    nodes[0].done()


def test_a_disk_that_changes_bytes_harms_only_itself(world):
    """What it gives from then on is not what the mirror's list says, and is refused; its own file is looked through."""
    w = world(SLOWLY)
    nodes = [w.node().pull() for _ in range(3)]
    w.underway(5)
    nodes[0].kill(signal.SIGSTOP)
    with contextlib.suppress(FileNotFoundError):
        with open(nodes[0].partial(), "r+b") as f:
            f.write(bytes(CHUNKS * CHUNK // 2))
    nodes[0].kill(signal.SIGCONT)
    for n in nodes[1:]:
        n.done()
    nodes[0].child.communicate(timeout=300 * SLOW)


def test_a_mirror_that_starts_anew(world):
    w = world(SLOWLY)
    nodes = [w.node().pull(BIG, "--tries", "12") for _ in range(3)]
    w.underway()
    w.m.kill()
    w.m.start()
    for n in nodes:
        n.done()


def test_a_port_that_is_taken(world):
    w = world()
    with socket.socket() as s:
        s.bind(("127.0.0.1", free_port()))
        s.listen()
        one, two = w.node(peers="linger = 0s"), w.node(peers=f"port = {s.getsockname()[1]}")
        one.pull()
        two.pull()
        one.done()
        two.done()
    assert two.log().count("peers.give") == 1 and "does not upload" in two.log()


# --- members with bad manners: each says that it has everything -----------------------------------------------------------------


@contextlib.contextmanager
def listener(behave):
    """behave(connection) for each that comes, until the end."""
    over = threading.Event()

    def run():
        while not over.is_set():
            try:
                c, _ = s.accept()
            except OSError:
                continue
            threading.Thread(target=one, args=(c,), daemon=True).start()

    def one(c):
        with c, contextlib.suppress(OSError):
            behave(c, over)
    with socket.socket() as s:
        s.bind(("127.0.0.1", free_port()))
        s.listen(64)
        s.settimeout(0.1)
        t = threading.Thread(target=run)
        t.start()
        try:
            yield s.getsockname()[1]
        finally:
            over.set()
            t.join()


def nonsense(c, _over):
    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello" * 100)


def silence(_c, over):
    over.wait()


def trickle(c, over):
    while not over.wait(0.2):
        c.sendall(b"\x16")


@pytest.mark.parametrize("behave", [nonsense, silence, trickle])
def test_a_neighbour_that_speaks_no_tls(world, behave):
    w = world()
    with listener(behave) as port:
        w.member(port=port, have=range(CHUNKS))
        nodes = [w.node().pull() for _ in range(2)]
        for n in nodes:
            n.done()


@contextlib.contextmanager
def giver(folder, key, **files):
    """A node that has the key, and gives for each path what the files say: whole answers, heads and all."""
    port = free_port()
    (folder / SHA).mkdir()
    for name, text in files.items():
        (folder / SHA / name.strip("_")).write_bytes(text)
    p = subprocess.Popen(["openssl", "s_server", "-accept", f"127.0.0.1:{port}", "-tls1_3", "-psk", key, "-psk_identity", SHA,
                          "-nocert", "-HTTP", "-quiet"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
    try:
        def up():
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", port)) == 0
        until(up)
        yield port
    finally:
        p.kill()
        p.communicate()


def answer(body, length=None):
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (len(body) if length is None else length) + body


def refusal(status):
    return f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()


EVERYTHING = answer(b"\xff\x80")


@pytest.mark.parametrize("lie", ["other bytes", "less than it says", "another length", "a bitmap of another length", "no answer", "no place", "not here"])
def test_a_neighbour_that_lies(world, tmp_path, lie):
    w = world()
    key = w.member().told["key"]  # who stays, so that the key does
    chunk = {"other bytes": answer(bytes(CHUNK)), "less than it says": answer(bytes(1000), CHUNK),
             "another length": answer(bytes(1000)), "no answer": b"", "no place": refusal("503 Service Unavailable"),
             "not here": refusal("404 Not Found")}.get(lie, b"")
    have = {"a bitmap of another length": answer(b"\xff\x80\xff"), "not here": answer(b"\xff\x00")}.get(lie, EVERYTHING)
    with giver(tmp_path, key, have=have, **{f"_{i}_": chunk for i in range(CHUNKS)}) as port:
        w.member(port=port, have=range(CHUNKS))  # the mirror is told too that it has all: nothing is to be brought
        for _ in range(10 if lie == "other bytes" else 1):  # one that answers late on a busy machine is not asked for anything
            n = w.node(peers="linger = 0s").pull()
            assert n.done()["peers"] == 0
            if "peers.liar" in n.log():
                break
    if lie == "other bytes":
        assert n.log().count("peers.liar") == 1 and f"127.0.0.1:{port}" in n.log()


# --- who may come in ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def host(world):
    """A node that has the file, stays, and gives it: (world, port, key)."""
    w = world()
    keeper = w.member()
    port = free_port()
    n = w.node(peers=f"port = {port} linger = 10m")
    n.pull()
    until(lambda: "peers.stays" in n.log())
    return w, port, keeper.told["key"]


def ask(port, key, path, identity=SHA):
    """What a node answers to a request; nothing when there is no getting in."""
    p = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-tls1_3", "-quiet",
                        *(["-psk", key, "-psk_identity", identity] if key else [])], check=False,
                       input=f"GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n".encode(), capture_output=True, timeout=120 * SLOW)
    return p.stdout


def test_who_has_the_key_gets_that_file_and_no_other(host):
    _, port, key = host
    other = hashlib.sha256(OTHER).hexdigest()
    def answers(path, status, body):  # again: who is slow on a busy machine is let go
        def right():
            got = ask(port, key, path)
            assert not got or got.startswith(b"HTTP/1.1 %d " % status), got[:100]
            return got.endswith(b"\r\n\r\n" + body)
        until(right)

    answers(f"/{SHA}/3", 200, DATA[3 * CHUNK:4 * CHUNK])
    answers(f"/{SHA}/have", 200, b"\xff\x80")
    answers(f"/{SHA}/{CHUNKS}", 404, b"")
    for path in (f"/{other}/0", f"/{other}/have", f"/{SHA}/x", f"/{SHA}/", "/", f"/{SHA}/../{SHA}/0"):
        answers(path, 400, b"")


def test_who_has_no_key_gets_nothing(host):
    _, port, key = host
    wrong = key[:-1] + ("0" if key[-1] != "0" else "1")
    assert ask(port, wrong, f"/{SHA}/have") == b""
    assert ask(port, None, f"/{SHA}/have") == b""
    assert ask(port, key, f"/{SHA}/have", identity=hashlib.sha256(OTHER).hexdigest()) == b""
    assert ask(port, key, f"/{SHA}/have", identity="x") == b""
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall(f"GET /{SHA}/have HTTP/1.1\r\n\r\n".encode())
        s.settimeout(120 * SLOW)
        with contextlib.suppress(ConnectionError):
            while more := s.recv(4096):
                assert b"HTTP" not in more
    until(lambda: ask(port, key, f"/{SHA}/have").startswith(b"HTTP/1.1 200 "))


def test_it_goes_when_it_is_told_to(host):
    """A node that stays for others goes at once with the job that it belongs to."""
    w, _, _ = host
    w.nodes[0].kill(signal.SIGTERM)
    w.nodes[0].done()
