"""A Debian archive mirrored by its own indexes: one state of it, whole, or nothing new."""
import bz2
import gzip
import hashlib
import lzma
import os

import pytest

from harness.tree_origin import TreeOrigin
from system.test_sync import check, lines, run

CONFIG = 'repo "x" {{ protocol = "generic" origin = "{0}" sync {{ backoff = "100ms" tries = 2 {1} }} }}'
BY_INDEX = 'list = debian suites = {"stable"}'
LATER = 1700009999


PACK = {".gz": lambda d: gzip.compress(d, mtime=0), ".xz": lzma.compress, ".bz2": bz2.compress}


def sha(data):
    return hashlib.sha256(data).hexdigest()


class Archive:
    """Packages with random content; build() writes indexes for what there is into the origin."""

    def __init__(self, origin, by_hash=True, packing=".gz", absent=()):
        self.o, self.by_hash, self.debs, self.clock = origin, by_hash, {}, LATER
        self.packing, self.absent = packing, absent  # absent: forms that Release names, and that are nowhere
        for i in range(12):
            self.add(f"p{i}")
        self.build()

    def add(self, name, version=1):
        self.debs[name] = (f"pool/main/{name[0]}/{name}_{version}_all.deb", os.urandom(500))

    def index(self):
        return "".join(f"Package: {n}\nVersion: 1\nArchitecture: all\nDescription: one\n two\nFilename: {p}\nSize: {len(d)}\n"
                       f"SHA256: {sha(d)}\n\n" for n, (p, d) in self.debs.items()).encode()

    def files(self):
        """path -> bytes of a whole state of the archive."""
        packages, pack = self.index(), PACK[self.packing]
        indexes = {"main/binary-amd64/Packages": packages, f"main/binary-amd64/Packages{self.packing}": pack(packages),
                   "main/binary-amd64/Release": b"Archive: stable\nComponent: main\n", "main/i18n/Translation-en.gz": b"t",
                   f"contrib/binary-amd64/Packages{self.packing}": pack(b"")}
        release = (f"Origin: Test\nSuite: stable\nComponents: main contrib\nArchitectures: all amd64\n"
                   f"Acquire-By-Hash: {'yes' if self.by_hash else 'no'}\nSHA256:\n"
                   + "".join(f" {sha(d)} {len(d):>8} {p}\n" for p, d in indexes.items())
                   + "".join(f" {sha(b'x')} 1 main/binary-amd64/Packages{form}\n" for form in self.absent)
                   + f" {sha(b'')} 0 main/source/Sources.gz\n").encode()  # named, and nowhere
        signed = b"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n" + release + b"-----BEGIN PGP SIGNATURE-----\n\nx\n"
        out = {f"dists/stable/{p}": d for p, d in indexes.items()}
        out |= {"dists/stable/Release": release, "dists/stable/InRelease": signed, "dists/stable/Release.gpg": b"sig"}
        if self.by_hash:
            out |= {f"dists/stable/{os.path.dirname(p)}/by-hash/SHA256/{sha(d)}": d for p, d in indexes.items()}
        out |= dict(self.debs.values())
        return out

    def build(self):
        self.clock += 3600
        for path, data in self.files().items():
            if self.o.files.get(path, (None,))[0] != data:
                self.o.put(path, data, mtime=self.clock)

    def mirrored(self):
        """What list = debian takes: no unpacked Packages, as a packed one is there."""
        return {p: d for p, d in self.files().items() if not p.endswith("/Packages") and
                sha(self.index()) not in p}


@pytest.fixture
def o():
    with TreeOrigin({"dists/stable/other": b"not in an index", "pool/stray.deb": b"nor this"}) as origin:
        yield origin


@pytest.mark.parametrize("by_hash", [True, False])
def test_mirrored_by_its_indexes(mirrord, o, by_hash):
    a = Archive(o, by_hash)
    m = mirrord(CONFIG.format(o.url, BY_INDEX))
    done = run(m)
    assert done["outcome"] == "published" and "12 files" in lines(m)
    check(m, a.mirrored())
    o.forget()
    assert run(m)["outcome"] == "unchanged" and o.requests == ["dists/stable/InRelease"]
    old = a.mirrored()
    a.add("q")
    a.add("p3", version=2)
    a.build()
    o.forget()
    assert run(m)["outcome"] == "published"
    check(m, a.mirrored())
    assert not any(p.endswith("p1_1_all.deb") for p in o.sent)
    check(m, old, prefix="@v1/")


@pytest.mark.parametrize("by_hash", [True, False])
def test_an_index_comes_once(mirrord, o, by_hash):
    """It is read out of the store, where it is published from; one that did not change comes never again."""
    a = Archive(o, by_hash)
    m = mirrord(CONFIG.format(o.url, BY_INDEX))
    o.forget()
    run(m)
    packages = {p: n for p, n in o.sent.items() if "Packages.gz" in p or "by-hash" in p}
    assert packages == {"dists/stable/main/binary-amd64/Packages.gz": 1, "dists/stable/contrib/binary-amd64/Packages.gz": 1,
                        **{p: n for p, n in packages.items() if "i18n" in p or sha(b"Archive: stable\nComponent: main\n") in p}}
    a.add("new")
    a.build()
    o.forget()
    assert run(m)["outcome"] == "published"
    assert not any("contrib" in p for p in o.requests), o.requests
    assert sum(n for p, n in o.sent.items() if "Packages" in p) == 1
    check(m, a.mirrored())


@pytest.mark.parametrize("packing, absent", [(".xz", ()), (".bz2", ()), (".xz", (".gz",))])
def test_other_packings(mirrord, o, packing, absent):
    """Suites without a gzip form, and those whose Release names one that is nowhere."""
    a = Archive(o, packing=packing, absent=absent)
    m = mirrord(CONFIG.format(o.url, BY_INDEX))
    assert run(m)["outcome"] == "published" and "12 files" in lines(m)
    check(m, a.mirrored())
    old = a.mirrored()
    a.add("q")
    a.build()
    o.rm(a.debs["q"][0])
    assert "which is missing" in run(m, rc=69)["why"]
    check(m, old)


def test_an_index_that_names_what_is_not_there(mirrord, o):
    a = Archive(o)
    m = mirrord(CONFIG.format(o.url, BY_INDEX))
    run(m)
    old = a.mirrored()
    a.add("q")
    a.build()
    o.rm(a.debs["q"][0])
    failed = run(m, rc=69)
    assert "which is missing" in failed["why"]
    check(m, old)
    a.build()
    assert run(m)["outcome"] == "published"
    check(m, a.mirrored())


def test_wrong_sums(mirrord, o):
    """A file whose bytes are not those that the index vouches for is never published, and asked for twice at most an attempt."""
    a = Archive(o)
    m = mirrord(CONFIG.format(o.url, BY_INDEX))
    run(m)
    old = a.mirrored()
    a.add("q")
    a.build()
    o.put(a.debs["q"][0], os.urandom(500))
    o.forget()
    failed = run(m, rc=69)
    assert "SHA-256" in failed["why"] and o.sent[a.debs["q"][0]] <= 4
    check(m, old)
    a.build()
    assert run(m)["outcome"] == "published"


def test_updated_while_we_look(mirrord, o):
    """The upstream moves on between our InRelease and our files: what is published is one of the two states, whole."""
    a = Archive(o)
    m = mirrord(CONFIG.format(o.url, BY_INDEX))
    run(m)
    states = [a.mirrored()]
    a.add("q")
    a.build()
    states.append(a.mirrored())
    moved = []

    def disturb(path):
        if path.endswith("Packages.gz") and not moved:
            moved.append(1)
            a.add("p5", version=7)
            a.build()
            states.append(a.mirrored())
    o.disturb = disturb
    assert run(m)["outcome"] == "published"
    assert any(m.get("/x/dists/stable/InRelease").body == s["dists/stable/InRelease"] for s in states[1:])
    state = next(s for s in states if m.get("/x/dists/stable/InRelease").body == s["dists/stable/InRelease"])
    check(m, state)


def test_inrelease_and_release_of_two_states(mirrord, o):
    a = Archive(o)
    m = mirrord(CONFIG.format(o.url, BY_INDEX))
    run(m)
    old = a.mirrored()
    release = a.files()["dists/stable/Release"]
    a.add("q")
    a.build()
    o.put("dists/stable/Release", release)
    assert "list different files" in run(m, rc=69)["why"]
    check(m, old)


def test_folder_pages_pass_the_same_gate(mirrord, o):
    a = Archive(o)
    m = mirrord(CONFIG.format(o.url, "profile = debian"))
    assert run(m)["outcome"] == "published"
    check(m, o.tree())
    old = o.tree()
    a.add("q")
    a.build()
    o.rm(a.debs["q"][0])
    assert "which is missing" in run(m, rc=69)["why"]
    check(m, old)
    a.build()
    o.put("dists/stable/main/binary-amd64/Packages.gz", b"half of it", mtime=LATER + 99999)
    assert "does not match its Release file" in run(m, rc=69)["why"]
    check(m, old)


@pytest.mark.parametrize("release", [b"", b"<html>not found</html>", b"Suite: x\n", b"SHA256:\n zz 1 a\n ../x\n",
                                     b"-----BEGIN PGP SIGNED MESSAGE-----\n"])
def test_a_release_that_is_none(mirrord, o, release):
    o.put("dists/stable/InRelease", release)
    m = mirrord(CONFIG.format(o.url, BY_INDEX))
    done = m.ctl("--json", "sync", "run", "x", "--wait", check=False)
    assert done.returncode in (0, 69) and m.get("/x/dists/").status in (200, 503)
