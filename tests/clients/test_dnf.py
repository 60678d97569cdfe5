"""dnf, unmodified, at an rpm repository that was built by rpmbuild and createrepo_c and is mirrored by its own indexes."""
import os
import pathlib
import subprocess

import pytest

from harness.tree_origin import TreeOrigin

CONFIG = 'repo "rpms" {{ protocol = "generic" origin = "{0}" sync {{ list = rpm backoff = "100ms" tries = 2 max_delete = "90%" }} }}'
SPEC = """Name: {name}
Version: {version}
Release: 1
Summary: nothing much
License: none
BuildArch: noarch
{more}
%description
Nothing much.
%install
mkdir -p %{{buildroot}}/usr/share/{name}
echo {name} {version} > %{{buildroot}}/usr/share/{name}/text
%files
/usr/share/{name}/text
"""


def run(*command, **kw):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600, check=False, **kw)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Repository:
    def __init__(self, root, client, options):
        self.root, self.client, self.options = root, client, options
        self.tree = root / "tree"
        (self.tree / "Packages").mkdir(parents=True)

    def add(self, name, version, more=""):
        spec = self.root / f"{name}.spec"
        spec.write_text(SPEC.format(name=name, version=version, more=more))
        top = self.root / "build"
        run(self.client("rpmbuild"), "-bb", "--quiet", "--define", f"_topdir {top}", "--define", f"_rpmdir {self.tree}/Packages", spec)

    def index(self):
        run(self.client("createrepo_c"), "--quiet", *self.options, self.tree)

    def into(self, origin):
        with origin.lock:
            origin.files.clear()
        for path in self.tree.rglob("*"):
            if path.is_file():
                origin.put(str(path.relative_to(self.tree)), path.read_bytes(), mtime=int(path.stat().st_mtime))


@pytest.fixture
def dnf(client, client_env, tmp_path):
    """dnf(m, "download", ...) with nothing of the machine's own."""
    def call(m, *words):
        root = pathlib.Path(tmp_path, "dnf")
        root.mkdir(exist_ok=True)
        conf = root / "dnf.conf"
        conf.write_text(f"[main]\ngpgcheck=0\nreposdir={root}/none\nvarsdir={root}/none\npluginpath={root}/none\n"
                        f"cachedir={root}/cache\npersistdir={root}/state\nlogdir={root}\nzchunk=0\n"
                        f"[rpms]\nname=rpms\nbaseurl=http://127.0.0.1:{m.port}/rpms/\nenabled=1\nmetadata_expire=0\n")
        return run(client("dnf"), "-q", "-y", "--noplugins", "-c", conf, f"--installroot={root}/system", "--releasever=1", *words, env=client_env)
    return call


@pytest.mark.parametrize("options", [[], ["--checksum=sha512"], ["--xz"]], ids=["default", "sha512", "xz"])
def test_mirror_and_install(mirrord, client, dnf, tmp_path, options):
    client("dnf")
    r = Repository(tmp_path, client, options)
    r.add("base", "1.0")
    r.add("top", "1.0", "Requires: base >= 1.0")
    r.index()
    with TreeOrigin() as o:
        r.into(o)
        m = mirrord(CONFIG.format(o.url))
        first = m.ctl_json("sync", "run", "rpms", "--wait")
        assert first["outcome"] == "published"
        o.forget()
        assert "top-0:1.0" in dnf(m, "repoquery", "top")
        if os.geteuid() == 0:
            dnf(m, "install", "top")
            installed = tmp_path / "dnf/system/usr/share"
            assert (installed / "top/text").read_text() == "top 1.0\n" and (installed / "base/text").exists()
        r.add("top", "2.0", "Requires: base >= 1.0")
        r.index()
        r.into(o)
        assert m.ctl_json("sync", "run", "rpms", "--wait")["outcome"] == "published"
        assert "top-0:2.0" in dnf(m, "repoquery", "top", "--latest-limit=1", "--refresh"), "dnf counts an index's age in whole seconds"
        if os.geteuid() == 0:
            dnf(m, "upgrade")
            assert (installed / "top/text").read_text() == "top 2.0\n"
        m.ctl("snapshot", "rollback", "rpms", f"v{first['seq']}")
        assert "top-0:2.0" not in dnf(m, "repoquery", "top", "--refresh")
        assert not any("base-1.0" in p for p in o.sent), "what a client asks for is here"
        m.ctl("verify")
