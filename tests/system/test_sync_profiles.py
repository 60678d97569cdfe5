"""Conda channels, rpm repositories and wheel trees: whatever brought them, their indexes name only what is there, or nothing new
is published."""
import bz2
import ctypes
import gzip
import hashlib
import json
import lzma
import os
import subprocess
import threading
from urllib.parse import quote

import pytest

from harness.mirrord import BUILD
from harness.rsyncd import Rsyncd
from harness.tree_origin import TreeOrigin
from system.test_sync import check, lines, run

CONFIG = 'repo "x" {{ protocol = "generic" origin = "{0}" sync {{ backoff = "100ms" tries = 3 {1} }} }}'
LATER = 1700009999


def sha(data, kind="sha256"):
    return hashlib.new(kind, data).hexdigest()


class Kind:
    """Packages with random content; files() is a whole state, build() puts it into the origin."""

    def __init__(self, origin, **options):
        self.o, self.packages, self.clock = origin, {}, LATER
        self.options = options
        for i in range(6):
            self.add(f"p{i}")
        self.build()

    def build(self):
        self.clock += 3600
        wanted = self.files()
        for path, data in wanted.items():
            if self.o.files.get(path, (None,))[0] != data:
                self.o.put(path, data, mtime=self.clock)
        return wanted

    def indexes(self):
        return {p: d for p, d in self.files().items() if p not in self.packages}


class Channel(Kind):
    name = "conda"
    main = "linux-64/repodata.json"

    def add(self, name, version=1):
        subdir = "noarch" if name.endswith("1") else "linux-64"
        for ending in ("conda", "tar.bz2"):
            self.packages[f"{subdir}/{name}-{version}-0.{ending}"] = os.urandom(700)

    def repodata(self, subdir):
        def some(ending):
            return {p.split("/")[1]: {"name": p.split("/")[1].split("-")[0], "version": p.split("-")[-2], "build": "0", "build_number": 0,
                                      "depends": [], "md5": sha(d, "md5"), "sha256": sha(d), "size": len(d), "subdir": subdir}
                    for p, d in self.packages.items() if p.startswith(subdir + "/") and p.endswith(ending)}
        return json.dumps({"info": {"subdir": subdir}, "packages": some(".tar.bz2"), "packages.conda": some(".conda"),
                           "removed": ["gone-1-0.tar.bz2"], "repodata_version": 1}).encode()

    def files(self):
        out = dict(self.packages)
        for subdir in ("linux-64", "noarch"):
            data = self.repodata(subdir)
            out[f"{subdir}/repodata.json"] = data
            out[f"{subdir}/repodata.json.bz2"] = bz2.compress(data)
            out[f"{subdir}/current_repodata.json"] = data
        out["channeldata.json"] = json.dumps({"channeldata_version": 1, "packages": {}, "subdirs": ["noarch"]}).encode()
        return out


class Rpms(Kind):
    name = "rpm"
    main = "repodata/repomd.xml"

    def add(self, name, version=1):
        self.packages[f"Packages/{name[0]}/{name}-{version}.noarch.rpm"] = os.urandom(700)

    def files(self):
        kind, pack = self.options.get("sum", "sha256"), self.options.get("pack", "gz")
        squeeze = {"gz": lambda d: gzip.compress(d, mtime=0), "xz": lzma.compress}[pack]
        primary = ('<?xml version="1.0" encoding="UTF-8"?>\n<metadata xmlns="http://linux.duke.edu/metadata/common" packages="%d">'
                   % len(self.packages))
        for path, data in self.packages.items():
            primary += (f'<package type="rpm"><name>{path}</name><arch>noarch</arch><version epoch="0" ver="1" rel="1"/>'
                        f'<checksum type="{kind}" pkgid="YES">{sha(data, kind)}</checksum><size package="{len(data)}" installed="1"/>'
                        f'<location href="{path}"/><format/></package>\n')
        indexes = {"primary": squeeze((primary + "</metadata>").encode()), "filelists": squeeze(b"<filelists/>"), "modules": b"--- x\n"}
        md, out = '<repomd xmlns="http://linux.duke.edu/metadata/repo"><revision>1</revision>', dict(self.packages)
        for what, data in indexes.items():
            path = f"repodata/{sha(data)}-{what}." + (f"xml.{pack}" if what != "modules" else "yaml")
            out[path] = data
            md += (f'<data type="{what}"><checksum type="{kind}">{sha(data, kind)}</checksum><location href="{path}"/>'
                   f'<size>{len(data)}</size></data>')
        out["repodata/repomd.xml"] = (md + "</repomd>").encode()
        return out

    def build(self):
        wanted = super().build()
        self.o.rm(*[p for p in self.o.tree() if p.startswith("repodata/") and p not in wanted])
        return wanted


KINDS = [Channel, Rpms]


@pytest.fixture
def o():
    with TreeOrigin() as origin:
        yield origin


@pytest.fixture(params=KINDS, ids=lambda k: k.name)
def kind(request, o):
    return request.param(o)


def fail(m):
    """A run that must, whatever its exit."""
    done = json.loads(m.ctl("--json", "sync", "run", "x", "--wait", check=False).stdout)
    assert done["outcome"] == "failed", done
    return done


def pages(kind):
    return CONFIG.format(kind.o.url, f"profile = {kind.name}")


def test_folder_pages(mirrord, o, kind):
    m = mirrord(pages(kind))
    assert run(m)["outcome"] == "published" and "; 0 indexes or links could not be read" in lines(m)
    check(m, o.tree())
    assert run(m)["outcome"] == "unchanged"
    kind.add("q")
    kind.build()
    assert run(m)["outcome"] == "published"
    check(m, o.tree())


def test_the_upstream_lacks_what_its_index_names(mirrord, o, kind):
    m = mirrord(pages(kind))
    run(m)
    old = o.tree()
    before = set(kind.packages)
    kind.add("q")
    kind.add("r")
    kind.build()
    new = [p for p in kind.packages if p not in before]
    kept = {p: o.files[p] for p in new}
    o.rm(*new)
    failed = run(m, rc=69)
    assert new[0].rsplit("/")[-1] in failed["why"] and "which is missing" in failed["why"] and "in total" in failed["why"]
    assert failed["attempts"] == 2, "one more look, no more"
    check(m, old)
    o.files.update(kept)
    assert run(m)["outcome"] == "published"
    check(m, o.tree())


def test_other_bytes_than_the_index_says(mirrord, o, kind):
    m = mirrord(pages(kind))
    run(m)
    old = o.tree()
    path = next(iter(kind.packages))
    o.put(path, os.urandom(700), mtime=LATER + 9999999)
    failed = run(m, rc=69)
    assert "which does not match" in failed["why"]
    check(m, old)


def test_changes_while_it_is_fetched(mirrord, o, kind):
    """The upstream publishes a package just as its index is asked for: the first look fails, the second has all of it."""
    m = mirrord(pages(kind))
    run(m)
    kind.add("q")
    kind.build()
    moved = []

    def disturb(path):
        if path == kind.main and not moved:
            moved.append(1)
            assert all(p in o.sent for p in kind.packages if "/q-" in p), "an index is taken before the content"
            kind.add("r")
            kind.build()
    o.forget()
    o.disturb = disturb
    done = run(m)
    assert done["outcome"] == "published" and done["attempts"] == 2
    check(m, o.tree())


@pytest.mark.parametrize("options", [{"sum": "sha512"}, {"sum": "sha1"}, {"pack": "xz"}], ids=str)
def test_kinds_of_rpm_repositories(mirrord, o, options):
    r = Rpms(o, **options)
    m = mirrord(pages(r))
    assert run(m)["outcome"] == "published"
    path = next(iter(r.packages))
    o.put(path, os.urandom(700), mtime=LATER + 9999999)
    assert "which does not match" in run(m, rc=69)["why"]


def wheels(files, **more):
    links = "".join(f'<a href="{href}#sha256={sha(data)}">x</a>\n' for href, data in files.items())
    return {"simple/pkg/index.html": f"<!DOCTYPE html><body>{links}</body>".encode(),
            "simple/index.html": b'<a href="pkg/">pkg</a>', **more}


class Daemon:
    """A folder behind rsync; each write has a later time."""

    def __init__(self, program, folder, files):
        self.root, self.clock = folder / "tree", LATER
        self.write(files)
        self.daemon = Rsyncd(program, folder, {"m": (self.root, [])})
        self.url = f"{self.daemon.url}/m/"

    def write(self, files):
        self.clock += 60
        for path, data in files.items():
            at = self.root / path
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_bytes(data)
            os.utime(at, (self.clock, self.clock))


@pytest.fixture
def rsyncd_of(client, tmp_path):
    running = []

    def start(files):
        running.append(Daemon(client("rsync"), tmp_path, files))
        return running[-1]
    yield start
    for d in running:
        d.daemon.close()


def test_wheel_trees(mirrord, rsyncd_of):
    a, b = b"wheel a" * 99, b"wheel b" * 99
    good = wheels({"../../packages/a.whl": a, "https://else.example/b.whl": b, "/packages/root.whl": b}, **{"packages/a.whl": a})
    good["simple/other/index.json"] = json.dumps({"meta": {"api-version": "1.0"}, "name": "other", "files": [
        {"filename": "b.whl", "url": "../../packages/b%20b.whl", "hashes": {"sha256": sha(b)}}]}).encode()
    good["packages/b b.whl"] = b
    d = rsyncd_of(good)
    m = mirrord(CONFIG.format(d.url, "profile = pypi"))
    assert run(m)["outcome"] == "published" and "3 indexes list 2 files" in lines(m)
    for path, data in good.items():
        assert m.get(f"/x/{quote(path)}").body == data
    d.write(wheels({"../../packages/a.whl": a, "../../packages/new.whl": b}))
    assert "new.whl, which is missing" in run(m, rc=69)["why"]
    assert m.get("/x/simple/pkg/index.html").body == good["simple/pkg/index.html"]
    d.write({"packages/new.whl": a})
    assert "which does not match" in run(m, rc=69)["why"]
    d.write({"packages/new.whl": b})
    assert run(m)["outcome"] == "published"


@pytest.mark.parametrize("path, data", [
    ("linux-64/repodata.json", b"{"), ("linux-64/repodata.json", b"<html>"), ("linux-64/repodata.json.bz2", b"BZh9 no"),
    ("linux-64/repodata.json", b'{"packages":{"../../etc/passwd":{"size":1}}}'),
    ("linux-64/repodata.json", b'{"info":{"base_url":"https://else.example"},"packages":{}}'),
    ("linux-64/repodata.json", b'{"packages":' + b"[" * 100000),
    ("linux-64/repodata.json", b'{"packages":{},"x":"' + b"a" * 3000000),
    ("linux-64/repodata.json.zst", b"\x28\xb5\x2f\xfd" + b"\0" * 50),
    ("linux-64/repodata.json.bz2", lambda: bz2.compress(b" " * 300000000)),  # not in each worker that imports this
], ids=range(9))
def test_hostile_repodata(mirrord, o, path, data):
    c = Channel(o)
    m = mirrord(pages(c))
    run(m)
    old = o.tree()
    o.put(path, data() if callable(data) else data, mtime=LATER + 9999999)
    assert path in fail(m)["why"]
    check(m, old)


@pytest.mark.parametrize("data", [
    b"", b"<repomd/>", b"{}", b'<!DOCTYPE a [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><repomd>&b;</repomd>', b"<a>" * 100000,
    b'<repomd><data type="primary"><checksum type="sha256">' + b"1" * 64 + b'</checksum><location href="../x"/></data></repomd>',
    b'<repomd><data type="primary"><checksum type="sha256">' + b"1" * 64 +
    b'</checksum><location xml:base="http://else.example/" href="x"/></data></repomd>',
], ids=range(7))
def test_hostile_repomd(mirrord, o, data):
    r = Rpms(o)
    m = mirrord(pages(r))
    run(m)
    old = o.tree()
    o.put("repodata/repomd.xml", data, mtime=LATER + 9999999)
    assert "repomd.xml" in fail(m)["why"]
    check(m, old)


# --- listed by their own indexes ---

SUBDIRS = 'subdirs = {"linux-64", "noarch"}'


def by_index(kind):
    return CONFIG.format(kind.o.url, f"list = {kind.name} {SUBDIRS if kind.name == 'conda' else ''}")


def mirrored(kind):
    return kind.files() | kind.options.get("more", {})


def index_paths(kind):
    return [p for p in kind.files() if p not in kind.packages]


def test_listed_by_indexes(mirrord, o, kind):
    o.put("stray.bin", b"no index names it")
    m = mirrord(by_index(kind))
    assert run(m)["outcome"] == "published" and "which are all present" in lines(m)
    check(m, mirrored(kind))
    assert all(n == 1 for n in o.sent.values()), "nothing is asked for twice, no index either"
    old = mirrored(kind)
    kind.add("q")
    kind.build()
    o.forget()
    assert run(m)["outcome"] == "published"
    check(m, mirrored(kind))
    check(m, old, prefix="@v1/")
    assert all("q-" in p for p in o.sent if p in kind.packages)


def test_nothing_changed_is_a_question_an_index(mirrord, o, kind):
    m = mirrord(by_index(kind))
    run(m)
    o.forget()
    assert run(m)["outcome"] == "unchanged"
    heads = ["linux-64/repodata.json", "noarch/repodata.json"] if kind.name == "conda" else ["repodata/repomd.xml"]
    assert o.requests == o.unchanged == heads and not o.sent
    o.forget()
    assert run(m, "--force")["outcome"] == "unchanged"
    assert not any(p in o.sent for p in kind.packages)


def test_no_validators(mirrord, o, kind):
    """An upstream that gives no ETag is asked by its dates."""
    o.etags = False
    m = mirrord(by_index(kind))
    run(m)
    o.forget()
    assert run(m)["outcome"] == "unchanged" and not o.sent
    kind.add("q")
    kind.build()
    assert run(m)["outcome"] == "published"
    check(m, mirrored(kind))


def test_what_another_repo_holds_is_not_fetched(mirrord, o, kind):
    config = by_index(kind)
    m = mirrord(config + "\n" + config.replace('"x"', '"y"'))
    run(m)
    o.forget()
    done = json.loads(m.ctl("--json", "sync", "run", "y", "--wait").stdout)
    assert done["outcome"] == "published" and not any(p in o.sent for p in kind.packages)


def test_listed_and_lacking(mirrord, o, kind):
    m = mirrord(by_index(kind))
    run(m)
    old = mirrored(kind)
    before = set(kind.packages)
    kind.add("q")
    kind.build()
    new = next(p for p in kind.packages if p not in before)
    data = o.files[new]
    o.rm(new)
    assert f"{new.rsplit('/')[-1]}, which is missing" in run(m, rc=69)["why"]
    check(m, old)
    o.put(new, os.urandom(len(data[0])))
    failed = fail(m)
    assert "SHA-256" in failed["why"]
    check(m, old)
    o.files[new] = data
    assert run(m)["outcome"] == "published"
    check(m, mirrored(kind))


def test_listed_while_it_changes(mirrord, o, kind):
    """The upstream moves on behind each index that is asked for: what is published is one of its states, whole."""
    m = mirrord(by_index(kind))
    run(m)
    states = []
    kind.add("q")
    states.append(kind.build())
    moved, moving = [], threading.Lock()  # indexes are asked for by several connections at once

    def disturb(path):
        with moving:
            if path in index_paths(kind) and len(moved) < 3 and path not in moved:
                moved.append(path)
                kind.add(f"r{len(moved)}")
                states.append(kind.build())
    o.disturb = disturb
    done = run(m)
    assert done["outcome"] == "published" and len(moved) >= 1
    main = m.get(f"/x/{kind.main}").body
    check(m, next(s for s in states if s[kind.main] == main))


def zstd(data):
    library, room = ctypes.CDLL("libzstd.so.1"), ctypes.create_string_buffer(len(data) + 1000)
    library.ZSTD_compress.restype = ctypes.c_size_t
    library.ZSTD_compress.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
    n = library.ZSTD_compress(room, len(room), data, len(data), 3)
    return room.raw[:n]


def test_packed_repodata(mirrord, o):
    c = Channel(o)
    for subdir in ("linux-64", "noarch"):
        o.put(f"{subdir}/repodata.json.zst", zstd(c.repodata(subdir)))
    m = mirrord(by_index(c))
    assert run(m)["outcome"] == "published"
    check(m, o.tree())
    o.forget()
    run(m)
    assert o.requests == ["linux-64/repodata.json.zst", "noarch/repodata.json.zst"]


def test_several_repositories(mirrord, o):
    r = Rpms(o)
    files = r.files()
    with o.lock:
        o.files.clear()
    for folder in ("a/os", "b"):
        for path, data in files.items():
            o.put(f"{folder}/{path}", data)
    m = mirrord(CONFIG.format(o.url, 'list = rpm subdirs = {"a/os", "b"}'))
    assert run(m)["outcome"] == "published"
    check(m, o.tree())
    assert not any(p.startswith("b/Packages") for p in o.sent), "the same bytes come once"


@pytest.mark.parametrize("name, sum_of", [("rpm", "sha1"), ("rpm", "sha512")])
def test_listed_with_other_digests(mirrord, o, name, sum_of):
    r = Rpms(o, sum=sum_of)
    m = mirrord(by_index(r))
    assert run(m)["outcome"] == "published"
    check(m, mirrored(r))
    assert run(m)["outcome"] == "unchanged"


@pytest.mark.parametrize("broken", ["primary", "gone"])
def test_a_primary_that_is_another(mirrord, o, broken):
    r = Rpms(o)
    m = mirrord(by_index(r))
    run(m)
    old = mirrored(r)
    r.add("q")
    r.build()
    path = next(p for p in r.files() if "primary" in p)
    if broken == "gone":
        o.rm(path)
    else:
        o.put(path, gzip.compress(b"<metadata/>"))
    assert ("does not match the one in repomd.xml" if broken == "primary" else path) in fail(m)["why"]
    check(m, old)


@pytest.mark.parametrize("data", [b"", b"{", b'{"packages":{"../x":{"size":1}}}', b"[" * 200000, b'{"packages":{"' + b"a" * 3000000],
                         ids=range(5))
def test_hostile_channel(mirrord, o, data):
    c = Channel(o)
    m = mirrord(by_index(c))
    run(m)
    old = mirrored(c)
    o.put("noarch/repodata.json", data)
    assert "noarch/repodata.json" in fail(m)["why"]
    check(m, old)


def test_endless_index(mirrord, o, kind):
    """An index that does not end, or is cut each time, ends the run and not the disk."""
    m = mirrord(by_index(kind))
    run(m)
    old = mirrored(kind)
    kind.add("q")
    kind.build()
    o.midway = lambda path, at: "cut" if path in (kind.main, "noarch/repodata.json") else None
    assert fail(m)["why"]
    check(m, old)
    o.midway = None
    assert run(m)["outcome"] == "published"


@pytest.mark.parametrize("wrong", ['list = conda', 'list = conda subdirs = {"../x"}', 'list = rpm subdirs = {"/x"}'])
def test_settings(tmp_path, wrong):
    conf = tmp_path / "conf"
    conf.write_text(f'state_dir = "{tmp_path}"\nlisten "127.0.0.1:0" {{ }}\n' + CONFIG.format("http://127.0.0.1:9/", wrong))
    done = subprocess.run([BUILD / "mirrord", "-t", "-c", conf], capture_output=True, text=True, check=False)
    assert done.returncode == 78 and "subdirs" in done.stderr
