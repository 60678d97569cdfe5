"""The installed rsync: a daemon on loopback, random trees, and what is compared with what."""
import hashlib
import os
import pathlib
import random
import shutil
import socket
import stat
import subprocess
import time

from .mirrord import BUILD, SLOW, free_port, until


def listens(child, port, limit_s=120):
    """Waits until the daemon takes connections; False when it ends, or it is somebody else who takes them."""
    end = time.monotonic() + limit_s * SLOW
    while child.poll() is None and time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 5).close()
            return child.poll() is None
        except OSError:
            time.sleep(0.02)
    return False


class Rsyncd:
    """rsync --daemon on a free port; modules are folders of `root`. Needs no root."""

    def __init__(self, program, folder, modules, extra=""):
        self.program, self.folder, self.modules, self.extra = program, pathlib.Path(folder), modules, extra
        for _ in range(5):  # a port may be taken between our look and its bind
            if self.start():
                return
        raise AssertionError("rsync --daemon does not listen")

    def start(self):
        self.port = free_port()
        self.url = f"rsync://127.0.0.1:{self.port}"
        conf = self.folder / "rsyncd.conf"
        lines = ["use chroot = no", "address = 127.0.0.1", f"port = {self.port}",
                 f"log file = {self.folder}/rsyncd.log", "reverse lookup = no", self.extra]
        if os.geteuid() == 0:
            lines += ["uid = 0", "gid = 0"]
        for name, (path, more) in self.modules.items():
            lines += [f"[{name}]", f"path = {path}", "read only = yes", *more]
        conf.write_text("\n".join(lines) + "\n")
        self.process = subprocess.Popen(
            [self.program, "--daemon", "--no-detach", f"--config={conf}"], stdin=subprocess.DEVNULL)
        if listens(self.process, self.port):
            return True
        self.close()
        return False

    def log(self):
        return (self.folder / "rsyncd.log").read_text(errors="replace")

    def sent_bytes(self, session):
        """What its log says of that session, counted from 1: it may come after the client's end."""
        until(lambda: self.log().count("] sent ") >= session)
        return int(self.log().split("] sent ")[session].split()[0])

    def close(self):
        self.process.terminate()
        self.process.wait(120)


def escape(path):
    return b"".join(bytes([c]) if 0x20 < c < 0x7f and c != 0x25 else b"%%%02X" % c
                    for c in path).decode()


def sha256(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest() if hasattr(hashlib, "file_digest") \
            else hashlib.sha256(f.read()).hexdigest()


def facts(root):
    """path -> (type, size, mtime_ns, x, content) of a folder, and its groups of hard links."""
    root = os.fsencode(root)
    out, groups = {}, {}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = os.path.join(folder, name)
            rel = escape(os.path.relpath(path, root))
            st = os.lstat(path)
            if stat.S_ISLNK(st.st_mode):
                out[rel] = ("l", 0, st.st_mtime_ns, "-", escape(os.readlink(path)))
            elif stat.S_ISDIR(st.st_mode):
                out[rel] = ("d", 0, st.st_mtime_ns, "-", "-")
            elif stat.S_ISREG(st.st_mode):
                x = "x" if st.st_mode & 0o111 else "-"
                out[rel] = ("f", st.st_size, st.st_mtime_ns, x, sha256(path))
                if st.st_nlink > 1:
                    groups.setdefault(st.st_ino, set()).add(rel)
    return out, {frozenset(g) for g in groups.values() if len(g) > 1}


def manifest(text):
    """The same of what rsync_manifest prints."""
    out, leaders = {}, {}
    for line in text.splitlines():
        kind, size, mtime, x, content, path = line.split(" ")
        out[path] = (kind, int(size), int(mtime), x, content)
        if kind == "f" and content.startswith("="):
            leaders[path] = content[1:]
    groups = {}
    for path, leader in leaders.items():
        groups.setdefault(leader, {leader}).add(path)
        out[path] = out[path][:4] + (out[leader][4],)
    return out, {frozenset(g) for g in groups.values()}


class Pull:
    """rsync_manifest, once."""

    def __init__(self, state, url, *options, timeout=120):
        self.run = subprocess.run([BUILD / "harness/rsync_manifest", *options, state, url],
                                  capture_output=True, timeout=timeout)
        self.code = self.run.returncode
        self.err = self.run.stderr.decode(errors="replace")
        self.counts = dict(w.split("=", 1) for line in self.err.splitlines()
                           if line.startswith("files=") for w in line.split(" ") if "=" in w)
        self.error = next((line[6:] for line in self.err.splitlines()
                           if line.startswith("error=")), f"none, exit {self.code}: {self.err}" if self.code else "")

    def facts(self):
        return manifest(self.run.stdout.decode())


def specials(root):
    """What is neither file nor folder nor link: named in rsync's list, and not taken."""
    root = os.fsencode(root)
    return {escape(os.path.relpath(os.path.join(folder, name), root)) for folder, _, files in os.walk(root) for name in files
            if stat.S_IFMT(os.lstat(os.path.join(folder, name)).st_mode) not in (stat.S_IFREG, stat.S_IFLNK)}


def without(dst, special):
    """Where a file or folder has become a pipe, rsync leaves the old one in place, and we have none."""
    entries, groups = dst
    left = {path for path in entries if any(path == s or path.startswith(s + "/") for s in special)}
    return {p: e for p, e in entries.items() if p not in left}, {g - left for g in groups if len(g - left) > 1}


def expected(src, dst):
    """The copy that rsync made. Where it saw no reason to touch an entry (same size, same second), what the source has."""
    out = {}
    for path, copy in dst.items():
        own = src[path]
        near = copy[0] == own[0] and copy[1] == own[1] and copy[2] // 10 ** 9 == own[2] // 10 ** 9
        out[path] = own if near else copy[:3] + (own[3],) + copy[4:]
    return out


# --- random trees ---------------------------------------------------------------------------------------------------------

LETTERS = [b"a", b"b", b"foo", b"foo.bar", b"foo-bar", b"zz", b"Z", b"0", b"\xff\xfe", b"n\nl", b" ",
           b"%41", b"\x01", b"caf\xc3\xa9", b"-x", b"..a", b"...", b"a" * 200, b"#", b"@ERROR", b"*?["]
TIMES = [0, 1, -1, -86400 * 365 * 30, 2 ** 31, 2 ** 31 - 1, 2 ** 33 + 7, 1700000000]


class Tree:
    """A folder that changes: everything that a mirror meets, and some that it should not."""

    def __init__(self, root, seed):
        self.root = os.fsencode(root)
        self.random = random.Random(seed)
        os.makedirs(self.root)

    def name(self):
        r = self.random
        name = b"".join(r.choice(LETTERS) for _ in range(r.randint(1, 2)))[:250]
        return name if name not in (b".", b"..") else b"x"

    def folders(self):
        return [f for f, _, _ in os.walk(self.root)]

    def files(self):
        return [os.path.join(f, n) for f, _, names in os.walk(self.root) for n in names]

    def regular(self):
        return [p for p in self.files() if stat.S_ISREG(os.lstat(p).st_mode)]

    def touch(self, path):
        r = self.random
        s = r.choice(TIMES) + r.randint(0, 3)
        ns = s * 10 ** 9 + r.choice([0, 0, 1, 999999999, 123456000])
        os.utime(path, ns=(ns, ns), follow_symlinks=False)

    def bytes(self):
        r = self.random
        n = r.choice([0, 0, 1, 3, 699, 700, 701, 4096, 32768, 32769, 65536, 70000, 200001])
        return r.choice([r.randbytes, lambda n: b"\0" * n, lambda n: b"ab" * (n // 2)])(n)

    def add(self):
        r = self.random
        at = os.path.join(r.choice(self.folders()), self.name())
        if os.path.lexists(at):
            return
        kind = r.random()
        if kind < 0.25:
            os.mkdir(at)
        elif kind < 0.33:
            os.symlink(r.choice([b"a", b"../x", b"/etc/passwd", b"../../../../etc", b"no\xffthing",
                                 b"x" * 300, b".", b"./a//b"]), at)
        elif kind < 0.43 and self.files():
            os.link(r.choice(self.files()), at, follow_symlinks=False)
        elif kind < 0.46:
            os.mkfifo(at)
            return
        elif kind < 0.50:
            with open(at, "wb") as f:
                f.truncate(r.randint(0, 3 << 20))
                f.seek(r.randint(0, 1 << 20))
                f.write(b"island")
        elif kind < 0.53:
            deep = at
            for _ in range(r.randint(2, 12)):
                os.mkdir(deep)
                deep = os.path.join(deep, b"d" * r.randint(1, 20))
            open(deep, "wb").close()
            return
        else:
            with open(at, "wb") as f:
                f.write(self.bytes())
            os.chmod(at, r.choice([0o644, 0o755, 0o600, 0o444]))
        self.touch(at)

    def change(self):
        r = self.random
        files = self.regular()
        what = r.random()
        if what < 0.4 or not files:
            self.add()
        elif what < 0.55:
            path = r.choice(self.files())
            os.unlink(path)
        elif what < 0.7:
            to = os.path.join(r.choice(self.folders()), self.name())
            if not os.path.lexists(to):
                os.rename(r.choice(files), to)
        elif what < 0.75:
            path = r.choice(self.folders())
            if path != self.root:
                shutil.rmtree(path)
        else:
            path = r.choice(files)
            os.chmod(path, 0o644)
            with open(path, "r+b") as f:
                n = os.path.getsize(path)
                f.seek(r.randint(0, n))
                f.write(r.randbytes(r.randint(1, 2000)))
            self.touch(path)

    def grow(self, steps):
        for _ in range(steps):
            self.add()
        for folder in self.folders():
            self.touch(folder)

    def edit(self, steps):
        for _ in range(steps):
            self.change()
        for folder in self.folders():
            self.touch(folder)
