"""apt-mirror, debmirror and debootstrap, unmodified: the programs that copy an archive, or install a system from one."""
import gzip
import os
import random
import re
import socket
import subprocess

import pytest

from clients.test_apt import COMPONENT, CONFIG
from harness.mirrord import SLOW
from harness.tree_origin import TreeOrigin
from system.test_sync_debian import BY_INDEX, Archive
from system.test_sync_debian import CONFIG as SYNCED


@pytest.fixture
def run(client_env, tmp_path):
    def start(*command):
        done = subprocess.run([str(c) for c in command], cwd=tmp_path, env=client_env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=600 * SLOW, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
    return start


def test_apt_mirror_copies_what_was_synced(mirrord, client, run, tmp_path):
    """It looks for its files in a folder without the port, wget writes them into one with it: so only port 80 will do."""
    program, host = client("apt-mirror"), f"127.80.{random.randrange(256)}.{random.randrange(1, 255)}"
    try:
        socket.create_server((host, 80)).close()
    except OSError as why:
        pytest.skip(f"apt-mirror needs port 80: {why}")
    with TreeOrigin({}) as origin:
        archive = Archive(origin)
        m = mirrord(SYNCED.format(origin.url, BY_INDEX) + f'\nlisten "{host}:80" {{ }}')
        m.ctl("sync", "run", "x", "--wait")
        origin.forget()
        conf = tmp_path / "mirror.list"
        conf.write_text(f"set base_path {tmp_path}/spool\nset nthreads 4\nset run_postmirror 0\nset defaultarch amd64\n"
                        f"deb http://{host}/x stable main contrib\n")
        for folder in ("mirror", "skel", "var"):
            (tmp_path / "spool" / folder).mkdir(parents=True)
        copied = tmp_path / "spool/mirror" / host / "x"

        def debs():
            return {str(p.relative_to(copied)): p.read_bytes() for p in copied.rglob("*.deb")}
        run(program, conf)
        assert debs() == dict(archive.debs.values())
        index = copied / "dists/stable/main/binary-amd64/Packages.gz"
        assert gzip.decompress(index.read_bytes()) == archive.index()
        archive.add("q")
        archive.build()
        m.ctl("sync", "run", "x", "--wait")
        origin.forget()
        run(program, conf)
        assert debs() == dict(archive.debs.values())
        assert not origin.requests, "a client's request reached the archive"


def test_debmirror_copies_a_package(mirrord, archive, client, run, tmp_path):
    """One package of a small component; it verifies the archive's signature and each file's digests."""
    program = client("debmirror")
    if not archive.keyring:
        pytest.skip("apt's settings name no keyring of the archive")
    m = mirrord(CONFIG.format(url=archive.url))
    packages = m.get(f"/debian/dists/{archive.release}/{COMPONENT}/binary-{archive.architecture}/Packages.gz")
    if packages.status != 200:
        pytest.skip(f"the archive has no {COMPONENT}")
    path = min(re.findall(r"^Filename: (\S+)\nSize: (\d+)$", gzip.decompress(packages.body).decode(), re.M), key=lambda f: int(f[1]))[0]
    none = tmp_path / "debmirror.conf"
    none.write_text("1;\n")
    for name in ("cold", "warm"):
        before = m.upstream_requests()
        run(program, "--method=http", f"--host=127.0.0.1:{m.port}", "--root=debian", f"--dist={archive.release}", f"--section={COMPONENT}",
            f"--arch={archive.architecture}", "--nosource", "--diff=none", f"--keyring={archive.keyring}", "--rsync-extra=none",
            "--exclude=/", f"--include=^{re.escape(path)}$", f"--config-file={none}", tmp_path / name)
        assert (tmp_path / name / path).exists()
        m.settle()
        asked = m.upstream_requests() - before
        assert asked > 0 if name == "cold" else asked == 0, f"{name}: {asked} requests to the archive"


def test_debootstrap_downloads_a_system(mirrord, archive, client, run, tmp_path):
    program = client("debootstrap")
    if os.geteuid() != 0:
        pytest.skip("debootstrap runs as root alone")
    m = mirrord(CONFIG.format(url=archive.url))
    checked = [f"--keyring={archive.keyring}", "--force-check-gpg"] if archive.keyring else ["--no-check-gpg"]
    debs = {}
    for name in ("cold", "warm"):
        before = m.upstream_requests()
        run(program, "--variant=minbase", "--download-only", f"--arch={archive.architecture}", *checked, archive.release, tmp_path / name,
            f"http://127.0.0.1:{m.port}/debian")
        debs[name] = {p.name for p in (tmp_path / name / "var/cache/apt/archives").glob("*.deb")}
        assert any(d.startswith("dpkg_") for d in debs[name]) and len(debs[name]) > 50
        m.settle()
        asked = m.upstream_requests() - before
        assert asked > 0 if name == "cold" else asked == 0, f"{name}: {asked} requests to the archive"
    assert debs["cold"] == debs["warm"]
