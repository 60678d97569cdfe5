"""The rsync engine beside the installed rsync, and against peers that lie, stop and trickle."""
import hashlib
import os
import socket
import ssl
import struct
import subprocess
import threading

import pytest

from harness import rsync_peer as peers
from harness.mirrord import BUILD, SLOW, free_port
from harness.rsyncd import Pull, Rsyncd, Tree, expected, facts, specials, without
from harness.tls import Authority

TREES = int(os.environ.get("TREES", "100"))
PARTS = 4


@pytest.fixture
def rsync(client):
    return client("rsync")


@pytest.fixture
def daemon(rsync, tmp_path):
    """daemon({name: lines}) serves tmp_path/src as each of these modules."""
    running = []

    def start(modules=None, extra=""):
        (tmp_path / "src").mkdir(exist_ok=True)
        running.append(Rsyncd(rsync, tmp_path, {n: (tmp_path / "src", more) for n, more in
                                                (modules or {"m": []}).items()}, extra))
        return running[-1]

    yield start
    for d in running:
        d.close()


@pytest.fixture
def peer():
    running = []

    def start(script):
        running.append(peers.Peer(script))
        return running[-1]

    yield start
    for p in running:
        p.close()
        assert not p.errors, p.errors


# --- beside the installed program -----------------------------------------------------------------------------------------

@pytest.mark.timeout(86400)
@pytest.mark.parametrize("part", range(PARTS))
def test_random_trees_are_as_rsync_makes_them(rsync, tmp_path, part):
    """Each tree is copied, changed, copied again: by rsync into a folder, by us into a store."""
    for seed in range(part, TREES, PARTS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        tree = Tree(folder / "src", seed)
        d = Rsyncd(rsync, folder, {"m": (folder / "src", [])})
        try:
            for change in (tree.grow, tree.edit):
                change(tree.random.choice([0, 3, 20, 60]))
                copy = subprocess.run([rsync, "-rltH", "--delete", "--no-inc-recursive", "-q", d.url + "/m/",
                                       f"{folder}/dst/"], capture_output=True, text=True)
                assert copy.returncode == 0, copy.stderr
                pull = Pull(folder / "state", d.url + "/m/")
                assert pull.code == 0, (seed, pull.err)
                dst, groups = without(facts(folder / "dst"), specials(folder / "src"))
                got, got_groups = pull.facts()
                assert got == expected(facts(folder / "src")[0], dst), seed
                assert got_groups == groups, seed
        finally:
            d.close()
        subprocess.run(["rm", "-rf", folder], check=True)


@pytest.mark.parametrize("options", [(), ("-o", "30"), ("-b",), ("-b", "-o", "30")])
def test_older_ways_to_speak(daemon, tmp_path, options):
    tree = Tree(tmp_path / "src", 7)
    tree.grow(150)
    d = daemon()
    run = subprocess.run([BUILD / "harness/rsync_pull", *options, "127.0.0.1", str(d.port), "m"],
                         capture_output=True, timeout=240)
    counts = dict(w.split("=") for w in run.stderr.decode().split("\n")[-2].split() if "=" in w)
    assert run.returncode == 0, run.stderr
    assert counts["bad"] == counts["missing"] == "0" and counts["done"] == "1"
    assert counts["version"] == ("30" if "30" in options else "31")
    assert counts["checksum"] == ("md5" if "-b" in options else "xxh128")
    assert int(counts["good"]) > 10


@pytest.mark.timeout(600)
def test_a_sparse_file_of_more_than_4_gib(daemon, tmp_path):
    d = daemon()
    with open(tmp_path / "src/large", "wb") as f:
        f.seek((4 << 30) + 12345)
        f.write(b"the end")
    pull = Pull(tmp_path / "state", d.url + "/m/", timeout=500)
    assert pull.code == 0, pull.err
    size = (4 << 30) + 12345 + 7
    zero, h = bytes(1 << 20), hashlib.sha256()
    for _ in range(4 << 10):
        h.update(zero)
    h.update(bytes(12345) + b"the end")
    assert pull.facts()[0]["large"][1:5:3] == (size, h.hexdigest())
    kept = sum(p.stat().st_blocks * 512 for p in (tmp_path / "state/blobs").rglob("*") if p.is_file())
    assert kept < 64 << 20, "runs of zeros take no room"


def test_a_delta_moves_what_rsync_moves(rsync, daemon, tmp_path):
    d = daemon()
    src = tmp_path / "src/weights"
    block = os.urandom(1 << 20)
    src.write_bytes(b"".join(bytes([i]) + block[1:] for i in range(24)))
    first = Pull(tmp_path / "state", d.url + "/m/")
    subprocess.run([rsync, "-t", d.url + "/m/weights", tmp_path / "copy"], check=True)
    d.sent_bytes(2)  # both are in its log, before what comes next
    with open(src, "r+b") as f:
        for at in (5000, 9 << 20, 20 << 20):
            f.seek(at)
            f.write(os.urandom(300))
    whole = src.read_bytes()
    src.write_bytes(whole[:7 << 20] + b"inserted" + whole[7 << 20:])
    second = Pull(tmp_path / "state", d.url + "/m/")
    ours = d.sent_bytes(3)
    subprocess.run([rsync, "-t", "--no-whole-file", d.url + "/m/weights", tmp_path / "copy"], check=True)
    theirs = d.sent_bytes(4)
    assert first.code == second.code == 0, second.err
    assert second.facts()[0]["weights"][4] == hashlib.sha256(src.read_bytes()).hexdigest()
    assert second.counts["restarts"] == "0"
    assert ours <= theirs * 1.05 + 200, (ours, theirs)


def test_a_file_may_be_asked_for_twice(daemon, tmp_path):
    """What a damaged digest leads to: the installed sender answers again."""
    Tree(tmp_path / "src", 3).grow(60)
    pull = Pull(tmp_path / "state", daemon().url + "/m/", "-2")
    assert pull.code == 0 and pull.counts["corrupt"] == "0", pull.err


def test_rules_leave_out(daemon, tmp_path):
    src = tmp_path / "src"
    for name in ("a.iso", "b.deb", "dists/c.iso", "dists/keep.iso", "tmp/x"):
        (src / name).parent.mkdir(parents=True, exist_ok=True)
        (src / name).write_text(name)
    pull = Pull(tmp_path / "state", daemon().url + "/m/", "-f", "+ keep.iso", "-f", "- *.iso", "-f", "- /tmp/")
    assert set(pull.facts()[0]) == {"b.deb", "dists", "dists/keep.iso"}


def test_below_a_module(daemon, tmp_path):
    (tmp_path / "src/a/b").mkdir(parents=True)
    (tmp_path / "src/a/b/c").write_text("c")
    pull = Pull(tmp_path / "state", daemon().url + "/m/a/")
    assert set(pull.facts()[0]) == {"b", "b/c"}


def test_passwords_and_refusals(daemon, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a").write_text("a")
    secrets = tmp_path / "secrets"
    secrets.write_text("me:open:sesame\n")
    secrets.chmod(0o600)
    d = daemon({"m": ["auth users = me", f"secrets file = {secrets}"], "full": ["max connections = -1"],
                "far": ["hosts deny = *"]})
    assert Pull(tmp_path / "state", d.url + "/m/", "-s", "me:open:sesame").code == 0
    assert Pull(tmp_path / "state", d.url.replace("//", "//me@") + "/m/", "-s", ":open:sesame").code == 0
    for url, secret, error in (("/m/", "me:wrong", "E_DENIED"), ("/m/", None, "E_DENIED"),
                               ("/none/", None, "E_NOTFOUND"), ("/far/", None, "E_DENIED"),
                               ("/full/", None, "E_BUSY")):
        pull = Pull(tmp_path / "state", d.url + url, *(("-s", secret) if secret else ()))
        assert pull.error.startswith(error) and "sesame" not in pull.err, (url, pull.err)


def test_a_probe_sees_what_changed(daemon, tmp_path):
    (tmp_path / "src/trace").mkdir(parents=True)
    trace = tmp_path / "src/trace/master"
    trace.write_text("monday")
    d = daemon()
    probe = ("-p", "trace/master")
    first = Pull(tmp_path / "state", d.url + "/m/", *probe)
    assert "probe=unknown" in first.err and first.code == 0, first.err
    cursor = first.err.split("cursor=")[1].split("\n")[0]
    assert "probe=same" in Pull(tmp_path / "state", d.url + "/m/", *probe, "-k", cursor).err
    trace.write_text("tuesday!")
    assert "probe=changed" in Pull(tmp_path / "state", d.url + "/m/", *probe, "-k", cursor).err
    trace.unlink()
    gone = Pull(tmp_path / "state", d.url + "/m/", *probe, "-k", cursor)
    assert "probe=unknown" in gone.err and gone.code == 0, gone.err


def tls_before(port, cert, key):
    """A TLS door before a clear port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    listener = socket.create_server(("127.0.0.1", 0))

    def pipe(a, b):
        try:
            while got := a.recv(65536):
                b.sendall(got)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def run():
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            try:
                inner = context.wrap_socket(sock, server_side=True)
            except OSError:
                continue
            outer = socket.create_connection(("127.0.0.1", port))
            threading.Thread(target=pipe, args=(inner, outer), daemon=True).start()
            threading.Thread(target=pipe, args=(outer, inner), daemon=True).start()

    threading.Thread(target=run, daemon=True).start()
    return listener


def test_rsyncs_checks_the_certificate(daemon, tmp_path):
    authority = Authority(tmp_path)
    Tree(tmp_path / "src", 11).grow(40)
    d = daemon()
    for chain, key, wanted in ((*authority.issue("good"), 0),
                               (*authority.issue("other", names="DNS:elsewhere.example"), "E_DENIED"),
                               (*authority.self_signed("own"), "E_DENIED")):
        listener = tls_before(d.port, chain, key)
        pull = Pull(tmp_path / "state", f"rsyncs://127.0.0.1:{listener.getsockname()[1]}/m/", "-c", authority.pem)
        listener.close()
        if wanted == 0:
            assert pull.code == 0 and pull.facts()[0] == facts(tmp_path / "src")[0], pull.err
        else:
            assert pull.error.startswith(wanted), pull.err


# --- peers as they should not be ------------------------------------------------------------------------------------------

HELLO = b"hello, world\n" * 1000


def three(s):
    """A list of three files; returns their contents by index."""
    s.greet()
    s.frame(peers.TOP + b"".join(peers.entry(n, len(HELLO)) for n in (b"a", b"b", b"c")) + peers.LIST_END)
    return {1: HELLO, 2: HELLO, 3: HELLO}


def test_an_honest_peer(peer, tmp_path):
    pull = Pull(tmp_path / "s", peer(lambda s: s.serve(three(s))).url)
    assert pull.code == 0 and pull.counts["files"] == "3", pull.err


def test_it_dies_in_the_list(peer, tmp_path):
    def script(s):
        s.greet()
        s.frame(peers.TOP + peers.entry(b"a", 5) + peers.entry(b"b", 5)[:9])
    pull = Pull(tmp_path / "s", peer(script).url)
    assert pull.error.startswith("E_NETWORK") and "in the list" in pull.error and pull.run.stdout == b""


def test_it_dies_in_a_file(peer, tmp_path):
    def script(s):
        files = three(s)
        s.answer(s.request()[0], files[1])
        s.begin(s.request()[0])
        s.literal(HELLO[:77])
    pull = Pull(tmp_path / "s", peer(script).url)
    assert pull.error.startswith("E_NETWORK") and "in a file" in pull.error and pull.counts["files"] == "1", pull.err


def test_it_says_why_it_gives_up(peer, tmp_path):
    def script(s):
        three(s)
        s.request()
        s.frame(b"rsync: the disk is on fire\x1b[2J\n", peers.ERROR)
        s.frame(struct.pack("<i", 11), peers.ERROR_EXIT)
    pull = Pull(tmp_path / "s", peer(script).url)
    assert pull.error.startswith("E_NETWORK") and "on fire" in pull.error and "(11)" in pull.error


def test_a_list_without_end(peer, tmp_path):
    def script(s):
        s.greet()
        s.frame(peers.TOP)
        for i in range(10 ** 9):
            s.frame(b"".join(peers.entry(b"%d-%d" % (i, k)) for k in range(1000)))
    pull = Pull(tmp_path / "s", peer(script).url, "-m", "20000")
    assert pull.error.startswith("E_TOOBIG")


@pytest.mark.parametrize("name", [b"../x", b"a/../../x", b"/etc/passwd", b"a\0b", b"a//b", b"", b"a/", b"n" * 4096])
def test_names_that_lead_elsewhere(peer, tmp_path, name):
    def script(s):
        s.greet()
        s.frame(peers.TOP + peers.entry(b"good", 5) + peers.entry(name, 5) + peers.LIST_END)
        s.serve({1: b"hello", 2: b"hello"})
    pull = Pull(tmp_path / "s", peer(script).url)
    assert pull.error.startswith("E_PROTOCOL") and pull.run.stdout == b"", pull.err


def test_a_list_that_is_not_all(peer, tmp_path):
    def script(s):
        s.greet()
        s.frame(peers.TOP + peers.entry(b"a", 5) + peers.entry(b"pipe", mode=0o10644) + b"\0\x01")
        s.serve({1: b"hello"})
    pull = Pull(tmp_path / "s", peer(script).url)
    assert pull.code == 0 and pull.counts["partial"] == "1" and pull.counts["left_out"] == "1", pull.err


@pytest.mark.parametrize("lies, outcome", [(1, ("3", "0")), (2, ("2", "1"))])
def test_a_wrong_digest(peer, tmp_path, lies, outcome):
    left = [lies]

    def script(s):
        files = three(s)
        while (asked := s.request()) is not None:
            lie = asked[0] == 2 and left[0] > 0
            left[0] -= lie
            s.answer(asked[0], files[asked[0]], b"\0" * 16 if lie else None)
        s.goodbye()
    pull = Pull(tmp_path / "s", peer(script).url)
    assert pull.code == 0 and (pull.counts["files"], pull.counts["corrupt"]) == outcome, pull.err


def test_a_delta_with_a_wrong_digest_ends_whole(peer, tmp_path):
    """First the blocks that were asked for in another order, then full sums, then all of it."""
    content = os.urandom(200000)
    heads = []

    def honest(s):
        s.greet()
        s.frame(peers.TOP + peers.entry(b"a", len(content)) + peers.LIST_END)
        s.serve({1: content})

    def liar(s):
        s.greet()
        s.frame(peers.TOP + peers.entry(b"a", len(content)) + peers.LIST_END)
        while (asked := s.request()) is not None:
            heads.append(asked[1])
            if asked[1][0] == 0:
                s.answer(1, content)
                continue
            s.begin(1, asked[1])
            s.frame(struct.pack("<iii", -2, -1, 0) + hashlib.md5(content).digest())
        s.goodbye()
    assert Pull(tmp_path / "s", peer(honest).url).code == 0
    pull = Pull(tmp_path / "s", peer(liar).url)
    assert pull.code == 0 and pull.counts["restarts"] == "2", pull.err
    assert pull.facts()[0]["a"][4] == hashlib.sha256(content).hexdigest()
    assert [h[2] for h in heads] == [2, 16, 0]


def test_a_file_that_vanished(peer, tmp_path):
    def script(s):
        files = three(s)
        while (asked := s.request()) is not None:
            if asked[0] == 2:
                s.frame(struct.pack("<i", 2), peers.NO_SEND)
            else:
                s.answer(asked[0], files[asked[0]])
        s.goodbye()
    pull = Pull(tmp_path / "s", peer(script).url)
    assert pull.code == 0 and (pull.counts["files"], pull.counts["missing"]) == ("2", "1"), pull.err


@pytest.mark.parametrize("what", ["other", "twice", "block", "message", "kind", "phase", "endless", "number",
                                  "taken back"])
def test_answers_beyond_bounds(peer, tmp_path, what):
    def script(s):
        three(s)
        s.request()
        if what == "other":
            s.answer(3, HELLO)
        elif what == "twice":
            s.answer(1, HELLO)
            s.answer(1, HELLO)
        elif what == "block":
            s.begin(1)
            s.frame(struct.pack("<i", -1))
        elif what == "message":
            s.raw(struct.pack("<I", (7 + 3) << 24 | 1 << 20))
        elif what == "kind":
            s.raw(struct.pack("<I", (7 + 55) << 24))
        elif what == "phase":
            s.frame(b"\0")
        elif what == "number":
            s.frame(b"\xff\x05\0\x80" + bytes(16))
        elif what == "taken back":  # a file that has begun, once the others are out of the way
            for index in (2, 3):
                s.frame(struct.pack("<i", index), peers.NO_SEND)
            s.begin(1)
            s.literal(HELLO[:77])
            s.frame(struct.pack("<i", 1), peers.NO_SEND)
            s.literal(HELLO[77:])
        elif what == "endless":
            s.begin(1)
            while True:
                s.literal(bytes(1 << 24))
        s.exactly(1 << 30)
    pull = Pull(tmp_path / "s", peer(script).url)
    assert pull.error.startswith("E_PROTOCOL"), pull.err


def test_it_stops_and_it_trickles(peer, tmp_path):
    def stops(s):
        three(s)
        s.request()
        s.exactly(1 << 30)

    def trickles(s):
        three(s)
        s.request()
        peers.trickle(s, struct.pack("<I", 7 << 24 | 600) + bytes(600), 0.05)
        s.exactly(1 << 30)

    def silent(s):
        s.exactly(1 << 30)
    for script in (stops, trickles, silent):
        pull = Pull(tmp_path / "s", peer(script).url, "-t", str(700 * SLOW))
        assert pull.error.startswith(("E_TIMEOUT", "E_PROTOCOL")), pull.err


def test_it_keeps_the_line_alive(peer, tmp_path):
    """Slow, but it says that it is there."""
    def script(s):
        files = three(s)
        asked = s.request()
        for _ in range(6):
            peers.time.sleep(1.5 * SLOW)
            s.frame(b"", peers.NOOP)
        s.answer(asked[0], files[1])
        s.serve(files)
    pull = Pull(tmp_path / "s", peer(script).url, "-t", str(8000 * SLOW))
    assert pull.code == 0 and pull.counts["files"] == "3", pull.err


@pytest.mark.parametrize("text, error", [
    (b"@RSYNCD: 29.0\n", "E_UNSUPPORTED"), (b"HTTP/1.1 400 Bad Request\r\n\r\n", "E_PROTOCOL"),
    (b"@RSYNCD: 31.0 md5\n@ERROR: max connections (5) reached -- try again later\n", "E_BUSY"),
    (b"x" * 100000, "E_TOOBIG")])
def test_greetings_that_end_it(peer, tmp_path, text, error):
    def script(s):
        s.raw(text)
        s.exactly(1 << 30)
    assert Pull(tmp_path / "s", peer(script).url).error.startswith(error)


def test_nobody_listens(tmp_path):
    assert Pull(tmp_path / "s", f"rsync://127.0.0.1:{free_port()}/m/").error.startswith("E_NETWORK")
