"""The packages of `make deb`: all that `make install` installs is in one of them, and they can be taken apart and run."""
import os
import re
import subprocess

import pytest

from harness.mirrord import ROOT, SLOW

PACKAGES = ("mirrord", "trainagent", "trainer", "mirror-doc")


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """{name: its folder, unpacked}; built from a copy of debian/, so that nothing of the tree is touched."""
    if SLOW != 1:
        pytest.skip("a sanitizer build is not packed")
    if not os.access("/usr/bin/dh", os.X_OK):
        pytest.skip("debhelper is not installed")
    work = tmp_path_factory.mktemp("deb")
    subprocess.run(["cp", "-r", ROOT / "debian", work], check=True)
    done = subprocess.run(["debian/rules", "binary"], cwd=work, env=dict(os.environ, TOP=str(ROOT), DEST=str(work)),
                          capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    out = {}
    (work / "unpacked").mkdir()
    for name in PACKAGES:
        file, = work.glob(f"{name}_*.deb")
        out[name] = work / "unpacked" / name
        subprocess.run(["dpkg-deb", "-R", file, out[name]], check=True)
    out["all"] = work / "debian/tmp"
    return out


def files(top):
    found = {str(f.relative_to(top)) for f in top.rglob("*") if not f.is_dir() and "DEBIAN" not in f.relative_to(top).parts}
    return {re.sub(r"^lib/", "usr/lib/", re.sub(r"(man/.*)\.gz$", r"\1", f)) for f in found}


def test_everything_is_in_one(packages):
    every = [f for name in PACKAGES for f in files(packages[name])
             if not re.fullmatch(r"usr/share/doc/[^/]+/(changelog.*|copyright)", f)]
    assert sorted(every) == sorted(files(packages["all"]))


def test_what_they_say(packages):
    version = (ROOT / "VERSION").read_text().strip()
    for name in PACKAGES:
        control = (packages[name] / "DEBIAN/control").read_text()
        assert f"\nVersion: {version}\n" in control, "debian/changelog is of another version"
        assert name == "mirror-doc" or "libssl3" in control
    assert (packages["mirrord"] / "DEBIAN/conffiles").read_text().split() == ["/etc/logrotate.d/mirrord", "/etc/mirrord/mirrord.conf"]
    for name in ("mirrord", "trainagent"):
        assert "systemd-sysusers" in (packages[name] / "DEBIAN/postinst").read_text()
        assert "deb-systemd-invoke stop" in (packages[name] / "DEBIAN/prerm").read_text()


@pytest.mark.parametrize("program", ["mirrord/usr/sbin/mirrord", "mirrord/usr/bin/mirrorctl", "trainagent/usr/bin/trainagent", "trainer/usr/bin/trainer"])
def test_they_run(packages, program):
    name, _, path = program.partition("/")
    done = subprocess.run([packages[name] / path, "--version"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0 and (ROOT / "VERSION").read_text().strip() in done.stdout
