"""The packages of `make deb`: all that `make install` installs is in one of them, they can be taken apart and run, and come and go
on a system without leaving more than data."""
import os
import re
import shutil
import subprocess

import pytest

from harness.mirrord import ROOT, SLOW

pytestmark = pytest.mark.xdist_group("deb")  # unpacked once, not by each worker
PACKAGES = ("mirrord", "trainagent", "trainer", "mirror-doc")


@pytest.fixture(scope="module")
def packages(packed, tmp_path_factory):
    """{name: its folder, unpacked}; built from a copy of debian/, so that nothing of the tree is touched."""
    if SLOW != 1:
        pytest.skip("a sanitizer build is not packed")
    if not os.access("/usr/bin/dh", os.X_OK):
        pytest.skip("debhelper is not installed")
    work, out = packed(), {}
    unpacked = tmp_path_factory.mktemp("unpacked")
    for name in PACKAGES:
        file, = work.glob(f"{name}_*.deb")
        out[name] = unpacked / name
        subprocess.run(["dpkg-deb", "-R", file, out[name]], check=True)
    out["all"] = work / "debian/tmp"
    out["files"] = [next(work.glob(f"{name}_*.deb")) for name in PACKAGES]
    return out


def files(top):
    found = {str(f.relative_to(top)) for f in top.rglob("*") if not f.is_dir() and "DEBIAN" not in f.relative_to(top).parts}
    return {re.sub(r"^lib/", "usr/lib/", re.sub(r"(man/.*)\.gz$", r"\1", f)) for f in found}


def test_everything_is_in_one(packages):
    every = [f for name in PACKAGES for f in files(packages[name])
             if not re.fullmatch(r"usr/share/doc/[^/]+/(changelog.*|copyright)", f)]
    every.append("etc/mirrord/mirrord.conf")  # the postinst puts it there once
    every.remove("usr/share/mirrord/mirrord.conf")
    assert sorted(every) == sorted(files(packages["all"]))


def test_what_they_say(packages):
    version = (ROOT / "VERSION").read_text().strip()
    for name in PACKAGES:
        control = (packages[name] / "DEBIAN/control").read_text()
        assert f"\nVersion: {version}\n" in control, "debian/changelog is of another version"
        assert name == "mirror-doc" or "libssl3" in control
    assert (packages["mirrord"] / "DEBIAN/conffiles").read_text().split() == ["/etc/logrotate.d/mirrord"]
    for name in ("mirrord", "trainagent"):
        assert "systemd-sysusers" in (packages[name] / "DEBIAN/postinst").read_text()
        assert "deb-systemd-invoke stop" in (packages[name] / "DEBIAN/prerm").read_text()


@pytest.mark.parametrize("program", ["mirrord/usr/sbin/mirrord", "mirrord/usr/bin/mirrorctl", "trainagent/usr/bin/trainagent", "trainer/usr/bin/trainer"])
def test_they_run(packages, program):
    name, _, path = program.partition("/")
    done = subprocess.run([packages[name] / path, "--version"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0 and (ROOT / "VERSION").read_text().strip() in done.stdout


def test_links_of_its_pages_lead_somewhere(packages):
    """Installed, without the tree: from each page to the next."""
    top = packages["mirror-doc"] / "usr/share/doc/mirror"
    pages = sorted(top.rglob("*.md"))
    assert {top / "README.md", top / "tests/README.md", top / "docs/operations.md"} <= set(pages)
    assert len([p for p in pages if p.parent.name == "decisions"]) == len(list((ROOT / "docs/decisions").glob("*.md")))
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            assert re.match(r"https?:", target) or (page.parent / target).resolve().is_relative_to(top) and (page.parent / target).exists(), \
                (page.relative_to(top), target)
    for path in re.findall(r"`((?:docs|conf)/[\w./-]*)`", (top / "README.md").read_text()):
        assert (top / path).exists() or path == "docs/man/", path  # manuals are where man looks


# An overlay of the system: what the packages do there is gone with the mount. The machine itself may have data of ours, of an agent that
# root ran here, say; the packages would keep them.
IN_AN_OVERLAY = """
set -e
mount -t tmpfs none "$1"
mkdir "$1/up" "$1/work" "$1/root"
mount -t overlay none -o "lowerdir=/,upperdir=$1/up,workdir=$1/work" "$1/root"
mount --bind /dev "$1/root/dev" && mount -t proc none "$1/root/proc"
rm -rf "$1/root/etc/mirrord" "$1/root/etc/trainagent" "$1/root/var/lib/mirrord" "$1/root/var/cache/trainagent" "$1/root/var/log/mirrord"
mount -t tmpfs none "$1/root/run"  # other tests have tickets in this system's
mount -t tmpfs none "$1/root/tmp" && cp "$2"/*.deb "$1/root/tmp/"
exec chroot "$1/root" sh -c "$3"
"""


def on_a_system(packages, tmp_path, commands):
    """What these commands print in a copy of this system where the packages are in /tmp."""
    if os.geteuid() != 0 or not os.access("/usr/bin/unshare", os.X_OK):
        pytest.skip("only root can mount an overlay")
    if subprocess.run(["unshare", "-m", "sh", "-c", IN_AN_OVERLAY, "sh", tmp_path, packages["files"][0].parent, "true"], check=False,
                      capture_output=True, timeout=120).returncode != 0:
        pytest.skip("this kernel lets us mount no overlay")
    done = subprocess.run(["unshare", "-m", "sh", "-c", IN_AN_OVERLAY, "sh", tmp_path, packages["files"][0].parent, commands],
                          capture_output=True, text=True, check=False, timeout=600, env=dict(os.environ, DEBIAN_FRONTEND="noninteractive"))
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stderr)
    return done.stdout


INSTALL = "dpkg --force-depends -i /tmp/mirrord_*.deb /tmp/trainagent_*.deb >/dev/null 2>&1"
LEFT = ("find /etc /var /run /usr -newer /tmp/before \\( -path '*mirrord*' -o -path '*trainagent*' \\) -not -path '/var/lib/dpkg/*' -not -path '/var/log/dpkg*'; "
        "getent passwd mirrord trainagent | cut -d: -f1; true")


def test_a_purge_leaves_nothing_but_data(packages, tmp_path):
    """After a life as operators lead it: own files, drop-ins, enabled units, a certificate."""
    life = f"""touch /tmp/before; sleep 1; {INSTALL}
        systemctl enable mirrord.service trainagent.timer >/dev/null 2>&1
        echo '# mine' > /etc/mirrord/conf.d/mine.conf; mirrorctl tls init >/dev/null
        echo x > /var/log/mirrord/access.log; echo 'mirror = "x"' > /etc/trainagent/trainagent.conf"""
    seen, left = on_a_system(packages, tmp_path, f"""{life}
        stat -c '%U:%G %a' /etc/mirrord/tls/key.pem; ls /etc/systemd/system/multi-user.target.wants/mirrord.service
        {LEFT}; echo --; dpkg -P mirrord trainagent >/dev/null; {LEFT}""").split("--\n")
    assert "root:mirrord 640" in seen and "wants/mirrord.service" in seen and "\nmirrord\ntrainagent\n" in seen
    assert left.split() == []
    stopped, kept, left = on_a_system(packages, tmp_path, f"""{life}
        mkdir -p /run/systemd/system; printf '#!/bin/sh\necho "$@" >&3\n' >/usr/bin/deb-systemd-invoke
        dpkg -r mirrord trainagent 3>&1 >/dev/null; echo --; ls /etc/mirrord/tls; echo --
        install -o mirrord -d /var/lib/mirrord/meta; echo data > /var/lib/mirrord/meta/row
        dpkg -P mirrord trainagent >/dev/null; {LEFT}""").split("--\n")
    assert stopped.splitlines() == ["stop mirrord.service", "stop trainagent.timer trainagent.service"], "a pull goes on as a user that is to go"
    assert kept.split() == ["cert.pem", "key.pem"], "what is removed may come back"
    assert left.split() == ["/var/lib/mirrord", "/var/lib/mirrord/meta", "/var/lib/mirrord/meta/row", "mirrord"]


def test_it_installs_what_it_lacks(tmp_path):
    """On a machine without the libraries `make deb` goes on once they are there. Nothing is installed or packed: the programs that
    would do so are ours; pkg-config finds nothing before apt-get has been called."""
    if SLOW != 1:
        pytest.skip("a sanitizer build is not packed")
    there = tmp_path / "installed"
    real = shutil.which("pkg-config")
    for name, text in {"id": "echo 0", "dpkg-query": "exit 1", "systemctl": "", "env": 'shift 2; exec "$@"',
                       "apt-get": f"test $1 != install || touch {there}",
                       "pkg-config": f'test -e {there} || exit 1; exec {real} "$@"',
                       "dh": 'touch "$DEST/x.deb"'}.items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    work = tmp_path / "tree"
    (work / "tests").mkdir(parents=True)
    for name in ("Makefile", "VERSION", "debian", "tests/tests.mk", "tests/deps.sh", "tests/packages.txt"):
        subprocess.run(["cp", "-r", ROOT / name, work / name], check=True)
    (work / "kernels").mkdir()
    (work / "kernels/cuda.mk").write_text("plugins:\n.PHONY: plugins\n")
    for name in ("server/main.c", "server/ctl/main.c", "agent/main.c", "agent/train/main.c", "common/a.c", "kernels/a.c", "server/a.c", "server/ctl/a.c",
                 "agent/a.c", "agent/train/a.c"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("int main(void);\nint main(void) { return 0; }\n" if name.endswith("main.c") else f"extern int {name[0]}x; int {name[0]}x;\n")
    done = subprocess.run(["make", "-C", work, "deb", "L_BASE=", "L_COMMON=", "L_SERVER=", "L_AGENT=", "L_TRAIN=", "JEMALLOC="], capture_output=True,
                          text=True, check=False, timeout=300,
                          env={**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "POLICY_RC_D": str(tmp_path / "policy")})
    assert done.returncode == 0 and there.exists() and "build/deb/x.deb" in done.stdout, done.stdout + done.stderr
