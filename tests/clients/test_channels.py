"""A client of conda channels, unmodified (rattler, as pixi has it): solves and installs from a channel that its own indexer made,
mirrored whole by its indexes, or as it is asked for."""
import bz2
import hashlib
import io
import json
import subprocess
import tarfile

import pytest

from harness.tree_origin import TreeOrigin

CONFIG = """repo "forge" {{ protocol = "generic" origin = "{0}"
    sync {{ list = conda subdirs = {{"linux-64", "noarch"}} backoff = "100ms" tries = 2 }} }}"""
INDEX = """
import asyncio, os, sys
from rattler.index import index_fs
asyncio.run(index_fs(sys.argv[1], force=True))
os._exit(0)
"""
INSTALL = """
import asyncio, os, sys
from rattler import Gateway, SourceConfig, install, solve

async def main(url, spec, cache, prefix, form="zst"):
    how = SourceConfig(zstd_enabled=form == "zst", bz2_enabled=form == "bz2", sharded_enabled=form == "shards")
    records = await solve([url], [spec], gateway=Gateway(cache_dir=cache + "/data", default_config=how), platforms=["linux-64", "noarch"])
    await install(records, target_prefix=prefix, cache_dir=cache + "/packages", show_progress=False)
    for r in records:
        print(r.name.normalized, r.version, flush=True)
asyncio.run(main(*sys.argv[1:]))
os._exit(0)  # its threads do not always survive the interpreter's own end
"""


def package(folder, name, version, depends=()):
    """<folder>/<name>-<version>-0.tar.bz2 with one file."""
    text = f"{name} {version}\n".encode()
    files = {f"share/{name}/text": text,
             "info/index.json": json.dumps({"name": name, "version": version, "build": "0", "build_number": 0, "depends": list(depends),
                                            "subdir": folder.name, "arch": "x86_64", "platform": "linux",
                                            "timestamp": 1700000000000}).encode(),
             "info/files": f"share/{name}/text\n".encode(),
             "info/paths.json": json.dumps({"paths_version": 1, "paths": [{
                 "_path": f"share/{name}/text", "path_type": "hardlink", "sha256": hashlib.sha256(text).hexdigest(),
                 "size_in_bytes": len(text)}]}).encode()}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        for path, data in files.items():
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(data), 0o644
            t.addfile(member, io.BytesIO(data))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}-{version}-0.tar.bz2").write_bytes(bz2.compress(out.getvalue()))


@pytest.fixture
def rattler(python, client_env):
    def call(script, *words):
        done = subprocess.run([python, "-c", script, *map(str, words)], capture_output=True, text=True, timeout=600, env=client_env,
                              check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
    if subprocess.run([python, "-c", "import rattler"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no rattler for Python in .venv: run make deps")
    return call


def test_mirror_solve_install(mirrord, rattler, tmp_path):
    tree = tmp_path / "channel"
    package(tree / "noarch", "base", "1.0")
    package(tree / "linux-64", "top", "1.0", ["base >=1.0"])

    def publish(o):
        rattler(INDEX, tree)
        with o.lock:
            o.files.clear()
        for path in tree.rglob("*"):
            if path.is_file():
                o.put(str(path.relative_to(tree)), path.read_bytes(), mtime=int(path.stat().st_mtime))
    with TreeOrigin() as o:
        publish(o)
        m = mirrord(CONFIG.format(o.url))
        first = m.ctl_json("sync", "run", "forge", "--wait")
        assert first["outcome"] == "published"

        def top(name):
            said = rattler(INSTALL, f"http://127.0.0.1:{m.port}/forge", "top", tmp_path / name, tmp_path / name / "prefix")
            assert "base 1.0" in said
            return (tmp_path / name / "prefix/share/top/text").read_text()
        o.forget()
        assert top("one") == "top 1.0\n" and not o.requests, "what a client asks for is here"
        package(tree / "linux-64", "top", "2.0", ["base >=1.0"])
        publish(o)
        assert m.ctl_json("sync", "run", "forge", "--wait")["outcome"] == "published"
        assert top("two") == "top 2.0\n"
        m.ctl("snapshot", "rollback", "forge", f"v{first['seq']}")
        assert top("three") == "top 1.0\n"
        m.ctl("verify")


# --- as it is asked for ---

PULL = """repo "forge" {{ protocol = "conda" origin = "{0}" rule 'json|msgpack' {{ ttl = 0s neg_ttl = 0s }} }}"""


class Served:
    """A channel folder at the fake origin."""

    def __init__(self, origin, folder, rattler, top=""):
        self.origin, self.folder, self.rattler, self.top = origin, folder, rattler, top

    def publish(self):
        self.rattler(INDEX, self.folder)
        for path in self.folder.rglob("*"):
            if path.is_file():
                name, body = f"{self.top}/{path.relative_to(self.folder)}", path.read_bytes()
                had = self.origin.things.get(name)
                if had is None or had.body != body:
                    self.origin.put(name, body=body, etag='"%s"' % hashlib.sha256(body).hexdigest()[:20],
                                    last_modified=int(path.stat().st_mtime))

    def packages(self):
        """path -> bytes that the origin has given of each package."""
        return {p: t.bytes for p, t in self.origin.things.items() if p.endswith((".conda", ".tar.bz2"))}


@pytest.mark.parametrize("form", ["shards", "zst", "bz2", "json"])
def test_pull_through(mirrord, rattler, origin, tmp_path, form):
    """Two machines, one transfer of each package; an upload is seen; the third machine needs no origin."""
    s = Served(origin, tmp_path / "channel", rattler, "/org/forge")
    package(s.folder / "noarch", "base", "1.0")
    package(s.folder / "linux-64", "top", "1.0", ["base >=1.0"])
    s.publish()
    m = mirrord(PULL.format(origin.url + "/org"))

    def top(name):
        said = rattler(INSTALL, f"http://127.0.0.1:{m.port}/forge/forge", "top", tmp_path / name, tmp_path / name / "prefix", form)
        assert "base 1.0" in said
        return (tmp_path / name / "prefix/share/top/text").read_text()
    assert top("one") == "top 1.0\n"
    assert set(origin.things) >= {"/org/forge/linux-64/repodata_shards.msgpack.zst"}, "the indexer writes all forms"
    m.settle()
    assert top("two") == "top 1.0\n"
    assert all(t.bytes == t.length() for p, t in origin.things.items() if p in s.packages()), "each came once"
    known = {r["key"] for r in m.ctl_json("cache", "ls", "forge")}
    assert any("/shards/" in k for k in known) == (form == "shards")
    package(s.folder / "linux-64", "top", "2.0", ["base >=1.0"])
    s.publish()
    assert top("three") == "top 2.0\n"
    m.settle()
    for thing in origin.things.values():
        thing.no_head = True
    assert top("four") == "top 2.0\n"
    m.ctl("verify")


def test_pull_through_another_upload_of_a_name(mirrord, rattler, origin, tmp_path):
    s = Served(origin, tmp_path / "channel", rattler)
    package(s.folder / "noarch", "base", "1.0")
    package(s.folder / "linux-64", "top", "1.0", ["base >=1.0"])
    s.publish()
    m = mirrord(PULL.format(origin.url))

    def top(name):
        rattler(INSTALL, f"http://127.0.0.1:{m.port}/forge", "top", tmp_path / name, tmp_path / name / "prefix", "zst")
        return json.loads(next((tmp_path / name / "prefix/conda-meta").glob("top-*.json")).read_text())["depends"]
    assert top("one") == ["base >=1.0"]
    m.settle()
    package(s.folder / "linux-64", "top", "1.0", ["base"])
    s.publish()
    assert top("two") == ["base"]
