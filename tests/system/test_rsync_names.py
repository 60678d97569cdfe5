"""Stock rsync clients that say by a list which files they want (--files-from), beside the installed daemon."""
import os
import random
import re
import socket
import struct
import subprocess
import threading
import time

import pytest

from harness.mirrord import free_port
from harness.rsync_out import Out, contents
from harness.rsyncd import Rsyncd, Tree, facts, specials

SYNC = 'sync { backoff = "100ms" tries = 2 max_delete = "100%" }'


def said(text, options):
    """What both ends mean by it: the daemon follows links and we do not."""
    text = text.replace(b"Too many levels of symbolic links (40)", b"Not a directory (20)")
    text = text.replace(b"[receiver=", b"[Receiver=").replace(b"[generator=", b"[Receiver=")
    lines = sorted(line for line in text.splitlines() if line.startswith((b"rsync: ", b"rsync error: ", b"IO error")))
    if "--no-R" in options:  # goes from folder to folder, and says names from where it stands
        return [line for line in lines if b"rsync error" in line]
    return lines


def copy(to, options):
    entries, groups = facts(to)
    top = os.stat(to).st_mtime  # which the folder that all stands in gives, when it is told
    entries["."] = ("d", "left" if top == 1 else "told" if abs(top - time.time()) > 3600 else "made")
    if "--no-implied-dirs" in options:  # such folders have the time at which they were made
        entries = {path: f if f[0] == "f" or path == "." else "-" for path, f in entries.items()}
    return entries, groups


def listed(text, options):
    """Modes are not kept, folders have no size."""
    return sorted(re.sub(rb"^(.)\S+ +[0-9,]+", rb"\1", x) for x in text.splitlines()) if "--list-only" in options else []


class Beside:
    """One tree, served by the installed daemon and, once synced, by mirrord; both as the module m."""

    def __init__(self, mirrord, rsync, folder, port=free_port):
        self.rsync, self.folder = rsync, folder
        self.daemon = Rsyncd(rsync, folder, {"m": (folder / "src", [])})
        self.port = port()
        self.m = mirrord(f'repo "m" {{ protocol = "generic" origin = "{self.daemon.url}/m/" {SYNC} }}\n'
                         f'rsync "127.0.0.1:{self.port}" {{ }}')
        self.m.ctl("sync", "run", "m", "--wait")

    def take(self, url, to, names, options):
        run = subprocess.run([self.rsync, *options, "--files-from=-", url, f"{to}/"], input=names, capture_output=True,
                             timeout=120)
        refused = run.returncode == 4  # by the client itself, which had begun, or had not
        return (run.returncode, said(run.stderr, options), ({}, set()) if refused else copy(to, options),
                listed(run.stdout, options), b"Connection reset by peer" in run.stderr)

    def both(self, names, options, base=b""):
        """What each says and gives; into copies that have the same before."""
        self.times = getattr(self, "times", 0) + 1
        found = []
        for who, url in (("theirs", self.daemon.url), ("ours", f"rsync://127.0.0.1:{self.port}")):
            to = self.folder / f"{who}{self.times}"
            (to / "old").mkdir(parents=True)
            (to / "old/own").write_text("the client's")
            os.utime(to / "old/own", (1, 1))
            os.utime(to / "old", (1, 1))
            os.utime(to, (1, 1))
            found.append(self.take(os.fsencode(url + "/m/") + base, to, names, options))
        return found


def differ(ours, theirs):
    """What is not in both."""
    a, b = (list(x) if isinstance(x, list) else [*x[0].items(), *map(sorted, x[1])] for x in (ours, theirs))
    return [("ours", x) for x in a if x not in b] + [("theirs", x) for x in b if x not in a]


def name_of(r, paths, links):
    """A path of the tree, as somebody might write it. The installed daemon follows links inside a module, we follow none."""
    path = r.choice(paths)
    what = r.random() if path not in links else 0
    if what < 0.5:
        return path
    if what < 0.6:
        return path + r.choice([b"/", b"//", b"/."])
    if what < 0.7:
        return r.choice([b"/", b"./", b".//./", b"//"]) + path
    if what < 0.75:
        return path.replace(b"/", r.choice([b"//", b"/.//"]), 1)
    if what < 0.8:
        return path.replace(b"/", b"/./", 1)
    if what < 0.9:
        return path + r.choice([b"none", b"/none", b"/none/x", b"\xff", b"*", b"/" + b"n" * 300])
    return r.choice([b"none", b"#", b"# a", b"; b", b"old", b"old/own", b"*", b"-x", b" ", b"n" * 256, b"\x01\x7f"])


OPTIONS = [("-rt",), ("-t",), ("-rlt",), ("-rltH",), ("-tl", "--no-R"), ("-rt", "--no-R"), ("-rt", "--protocol=30"),
           ("-lt", "--protocol=30"), ("-rt", "--ignore-missing-args"), ("-rt", "--no-i-r"), ("-rlt", "--delete"), ("-t", "--no-implied-dirs"),
           ("-rt", "--exclude=foo*"), ("-rt", "--exclude=*a*/"), ("-t", "--include=*/", "--exclude=*b*"), ("-rtz",),
           ("-t", "--list-only"), ("-a",), ("-rt", "--protocol=30", "-z", "--delete"), ("-rtni",)]


@pytest.mark.timeout(86400)
@pytest.mark.parametrize("seed", range(int(os.environ.get("NAMES_TREES", "3"))))
def test_random_lists_as_the_installed_daemon(mirrord, client, tmp_path, seed):
    r = random.Random(seed)
    tree = Tree(tmp_path / "src", 500 + seed)
    tree.grow(60)
    for path in specials(tmp_path / "src"):
        os.unlink(os.path.join(tree.root, re.sub(rb"%(..)", lambda m: bytes([int(m[1], 16)]), path.encode())))
    root = tree.root
    for folder in tree.folders():
        tree.touch(folder)
    beside = Beside(mirrord, client("rsync"), tmp_path)
    paths = [os.path.relpath(os.path.join(f, n), root) for f, ds, fs in os.walk(root) for n in ds + fs]
    links = {p for p in paths if os.path.islink(os.path.join(root, p))}
    try:
        for _ in range(int(os.environ.get("NAMES_LISTS", "10"))):
            options = r.choice(OPTIONS)
            names = [name_of(r, paths, links) for _ in range(r.choice([0, 1, 2, 5, 30, 200]))]
            if "--no-R" in options:  # of two that have one name either may come
                last = {n.rstrip(b"/."): n for n in names if os.path.isfile(os.path.join(root, n))}
                names = list({os.path.basename(n): n for n in last.values()}.values()) + [b"none"]
            zero = any(b"\n" in n or b"\r" in n for n in names) or r.random() < 0.5
            text = (b"\0" if zero else r.choice([b"\n", b"\r\n", b"\n\n"])).join(names)
            text += r.choice([b"", b"\0" if zero else b"\n"])
            theirs, ours = beside.both(text, (*options, "-0") if zero else options)
            if theirs[0] == 2 or theirs[4]:  # of two names told alike with hard links it makes nothing; a daemon that was too quick
                continue
            assert ours[0] == theirs[0] and differ(ours[1], theirs[1]) == [] and differ(ours[2], theirs[2]) == [], (options, text)
            assert ours[3] == theirs[3], (options, text)
    finally:
        beside.daemon.close()


def test_a_folder_is_told_though_its_first_name_is_left_out(mirrord, client, tmp_path):
    for path in ("d/a.o", "d/b.c", "e/f/a.o", "e/f/b.c", "z"):
        (tmp_path / "src" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / path).write_text(path)
    for folder in ("d", "e", "e/f"):
        os.chmod(tmp_path / "src" / folder, 0o700)
        os.utime(tmp_path / "src" / folder, (1e9, 1e9))
    beside = Beside(mirrord, client("rsync"), tmp_path)
    try:
        theirs, ours = beside.both(b"z\nd/a.o\nd/b.c\ne/f/a.o\ne/f/b.c\n", ("-rtp", "--exclude=*.o"))
        assert ours == theirs and ours[0] == 0 and ours[2][0]["d"][2] == 10 ** 18
    finally:
        beside.daemon.close()


@pytest.fixture
def out(mirrord, client):
    out = Out(mirrord, client("rsync"))
    for path in ("a/b/c", "a/x", "top", "z/y", "odd/\\back"):
        out.put(path.replace("\\", "%5C"), path.encode())
    return out


TREE = "/models/me/tree"


def take(out, names, to, *options, base="", **how):
    return subprocess.run([out.rsync, *(options or ("-rt",)), "--files-from=-", f"{out.url}{TREE}{base}", f"{to}/"],
                          input=names, capture_output=True, timeout=120, **how)


@pytest.mark.parametrize("base, names, want", [
    ("/a", b"b/c\nx\n", {"b/c": b"a/b/c", "x": b"a/x"}), ("/a/", b"./b\n../top\n", None),
    ("/./a/b/", b"c", {"c": b"a/b/c"}), ("/", b"a/./b/c\n", {"b/c": b"a/b/c"}), ("", b"a/../top\n", None)])
def test_names_stand_below_the_path(out, tmp_path, base, names, want):
    """The installed client itself refuses what it did not name; ours is that ".." leads nowhere else."""
    run = take(out, names, tmp_path / "dst", base=base)
    have = contents(tmp_path / "dst") if (tmp_path / "dst").exists() else {}
    assert (run.returncode, have) == (0, want) if want is not None else run.returncode in (4, 23), run.stderr
    assert b"root:" not in b"".join(have.values())


@pytest.mark.parametrize("protocol", ["--protocol=30", "--protocol=31"])
def test_a_folder_that_is_not_there(out, tmp_path, protocol):
    for base, why in (("/none/", b"No such file or directory (2)"), ("/top", b"Not a directory (20)")):
        run = take(out, b"x\n" * 1000, tmp_path / "dst", "-rt", protocol, base=base)
        assert run.returncode == 3 and b"change_dir" in run.stderr and why in run.stderr, run


def test_what_is_refused_is_said(out, tmp_path):
    for options, words in ((("-rt", "--delete-missing-args"), b"--delete-missing-args is not supported"),
                           (("-rtc",), b"-c is not supported")):
        run = take(out, b"a/x\n" * 5_000, tmp_path / "dst", *options)
        assert run.returncode == 4 and words in run.stderr, run.stderr
    run = out.run("-rt", "--files-from=:top", out.url + TREE, f"{tmp_path}/dst/", check=False)
    assert run.returncode == 4 and "use a list on the client" in run.stderr, run.stderr


@pytest.mark.parametrize("protocol", ["--protocol=30", "--protocol=31"])
def test_very_long_lists(out, tmp_path, protocol):
    """Each name again and again. More of them the installed client takes minutes for, by itself."""
    names = b"".join(b"a/x\nnot/there/%d\na/./b/c\na/\n" % i for i in range(1_000))
    run = take(out, names, tmp_path / "dst", "-rt", protocol)
    assert run.returncode == 23 and run.stderr.count(b"link_stat") == 1_000
    assert contents(tmp_path / "dst") == {"a/x": b"a/x", "a/b/c": b"a/b/c", "b/c": b"a/b/c"}


def test_names_of_a_slow_program(out, tmp_path):
    child = subprocess.Popen([out.rsync, "-rt", "--files-from=-", out.url + TREE, f"{tmp_path}/dst/"], stdin=subprocess.PIPE,
                             stderr=subprocess.PIPE)
    for piece in (b"a/x\n", b"top\n", b"z/y\n"):
        time.sleep(0.3)  # names that are whole: of one that comes in two the client itself makes two
        child.stdin.write(piece)
        child.stdin.flush()
    assert child.communicate(timeout=60)[1] == b"" and child.returncode == 0
    assert set(contents(tmp_path / "dst")) == {"a/x", "top", "z/y"}


def ask(out, after, protocol=31):
    """A client by hand, up to its filters; what comes back is read by who called."""
    s = socket.create_connection(("127.0.0.1", out.port), 60)
    s.sendall(b"@RSYNCD: %d.0 md5\nmodels\n" % protocol)
    got = b""
    while b"OK\n" not in got:
        piece = s.recv(1000)
        assert piece, got
        got += piece
    s.settimeout(300)  # it may work long without a word
    s.sendall(b"--server\0--sender\0-rRe.LfxCIvu\0--files-from=-\0--from0\0.\0models/me/tree/\0\0\x03md5"
              + struct.pack("<Ii", 7 << 24 | 4, 0) + after)
    return s


def rest(s):
    got = b""
    try:
        while piece := s.recv(65536):
            got += piece
    except ConnectionError:
        pass
    return got


def send(s, data):
    try:
        s.sendall(data)
    except OSError:
        pass


@pytest.mark.parametrize("protocol", [30, 31])
def test_more_that_is_missing_than_any_buffer_holds(out, protocol):
    s = ask(out, b"", protocol)
    heard = []
    reader = threading.Thread(target=lambda: heard.append(rest(s)), daemon=True)
    reader.start()
    names = b"".join(b"not/there/%d\0" % i for i in range(50_000))
    send(s, (names if protocol == 30 else struct.pack("<I", 7 << 24 | len(names)) + names)
         + (b"\0" if protocol == 30 else struct.pack("<I", 7 << 24 | 1) + b"\0"))
    s.shutdown(socket.SHUT_WR)
    reader.join(120)
    assert heard[0].count(b"link_stat") == 50_000 and b"not/there/49999" in heard[0]


@pytest.mark.parametrize("protocol", [30, 31])
@pytest.mark.parametrize("name", [b"x" * (1 << 20), (b"a" + b"/" * 509 + b"x\0") * (1 << 11)], ids=["one", "many"])
def test_a_list_that_does_not_end(out, protocol, name, tmp_path):
    """One name, or all the same: when it is too much that is said, and whoever is still sending hears it."""
    s = ask(out, b"", protocol)
    heard = []
    reader = threading.Thread(target=lambda: heard.append(rest(s)), daemon=True)
    reader.start()
    frame = name if protocol == 30 else struct.pack("<I", 7 << 24 | len(name)) + name
    for _ in range(300):
        send(s, frame)
    reader.join(300)
    assert heard and b"the list of names is longer than 256 MiB" in heard[0], heard
    assert take(out, b"top", tmp_path / "dst").returncode == 0


def test_a_list_that_trickles(mirrord, client):
    """Something always comes before the stall is over, and the list has its end all the same."""
    out = Out(mirrord, client("rsync"), 'stall = "1s"')
    out.put("top", b"x")
    heard = []
    for _ in range(20):  # on a machine that let us wait before the list, we were given up before it
        try:
            s = ask(out, b"")
        except (AssertionError, OSError):
            continue
        reader = threading.Thread(target=lambda s=s: heard.append(rest(s)), daemon=True)
        reader.start()
        while reader.is_alive():
            send(s, struct.pack("<I", 7 << 24 | 1) + b"n")
            reader.join(0.2)
        if b"did not end in time" in heard[-1]:
            return
    raise AssertionError(heard)


def test_clients_that_lie_in_their_list(out, tmp_path):
    none = struct.pack("<I", 7 << 24 | 1) + b"\0"
    for protocol, after in ((31, none + struct.pack("<I", 7 << 24 | 1) + b"\5"), (30, b"a/x\0\0" + b"rubbish"),
                            (30, b""), (31, b"\xff" * 100), (31, struct.pack("<I", (7 + 86) << 24)),
                            (30, b"\0" + struct.pack("<I", 7 << 24 | 1) + b"\5")):
        s = ask(out, after, protocol)
        s.shutdown(socket.SHUT_WR)
        rest(s)
    s = ask(out, struct.pack("<I", 7 << 24 | 9) + b"a/x\0top", 31)  # and is gone
    s.close()
    assert take(out, b"a/x\ntop", tmp_path / "dst").returncode == 0


def test_only_what_one_may_read(mirrord, client, tmp_path):
    secrets, word = tmp_path / "users", tmp_path / "word"
    for file, text in ((secrets, "part:of it\n"), (word, "of it\n")):
        file.touch(0o600)
        file.write_text(text)
    out = Out(mirrord, client("rsync"), f'users = "{secrets}"')
    out.m.token("part", "read:secret/me/tree/*")
    out.put("a/x", b"yours", repo="secret/me/tree")
    out.put("b", b"not yours", repo="secret/me/other")
    def names(text, base, to):
        return subprocess.run([out.rsync, "-rt", f"--password-file={word}", "--files-from=-", f"rsync://part@127.0.0.1:{out.port}/secret/{base}",
                               tmp_path / to], input=text, capture_output=True, timeout=60)
    assert names(b"a/x", "me/tree/", "one").returncode == 0
    assert names(b"me/tree/a/x\nme/tree/", "", "two").returncode == 0
    for text, base in ((b"me/tree/a/x\nme/other/b", ""), (b"b", "me/other"), (b"none", "me/other/"), (b"", "me/other/"),
                       (b"me/tree/../other/b", ""), (b"../other/b", "me/tree/")):
        run = names(text, base, "three")
        assert b"not yours" not in b"".join(contents(tmp_path / "three").values())
        assert run.returncode != 0, (text, base, run)
    assert "b" not in contents(tmp_path / "three")
