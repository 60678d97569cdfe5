"""apt-get, unmodified but for its own folders, against this machine's archive through mirrord."""
import gzip
import os
import re
import subprocess

import pytest

CONFIG = r"""
repo "debian" {{
    protocol = "generic"
    origin = "{url}"
    rule '\.(deb|dsc|orig\.tar\.\w+|debian\.tar\.\w+)$' {{ class = immutable }}
    rule '/by-hash/SHA256/[0-9a-f]+$' {{ class = immutable digest_from = "path" }}
    rule '^dists/' {{ ttl = 1h sie = 7d refresh_floor = 1h }}
}}
"""
PACKAGE = "hello"  # small, and in every release


def private_apt(root, archive, port):
    """apt-get with state, cache and sources of its own; returns the command's beginning."""
    for folder in ("state/lists/partial", "cache/archives/partial", "etc", "log"):
        (root / folder).mkdir(parents=True)
    (root / "state/status").write_text("")
    signed = f" signed-by={archive.keyring}" if archive.keyring else ""
    (root / "etc/sources.list").write_text(
        f"deb [arch={archive.architecture}{signed}] http://127.0.0.1:{port}/debian {archive.release} main\n")
    options = {"Dir::State": root / "state", "Dir::State::status": root / "state/status", "Dir::Cache": root / "cache",
               "Dir::Etc::SourceList": root / "etc/sources.list", "Dir::Etc::SourceParts": "-", "Dir::Log": root / "log",
               "APT::Sandbox::User": "root", "Acquire::Languages": "none", "Acquire::http::Proxy": "DIRECT",
               "Acquire::Retries": "0"}
    return ["apt-get", "-q", *(x for k, v in options.items() for x in ("-o", f"{k}={v}"))]


def run(command, cwd):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_update_and_download_cold_then_warm(mirrord, archive, tmp_path):
    m = mirrord(CONFIG.format(url=archive.url))
    for name in ("cold", "warm"):
        before = m.upstream_requests()
        root = tmp_path / name
        apt = private_apt(root, archive, m.port)
        run([*apt, "update"], root)
        run([*apt, "download", PACKAGE], root)
        assert list(root.glob(f"{PACKAGE}_*.deb")), "no package came"
        m.settle()
        asked = m.upstream_requests() - before
        assert asked > 0 if name == "cold" else asked == 0, f"{name}: {asked} requests to the archive"


# --- the archive mirrored whole, as far as one small component goes ---

COMPONENT = "non-free-firmware"  # some 40 packages
MIRRORED = """
repo "debian" {{ protocol = "generic" origin = "{url}"
    sync {{ list = debian suites = {{"{release}"}} components = {{"{component}"}} architectures = {{{architectures}}} tries = 3 }} }}
"""


def packages(m, release, architecture):
    got = m.get(f"/debian/dists/{release}/{COMPONENT}/binary-{architecture}/Packages.gz")
    return gzip.decompress(got.body).decode() if got.status == 200 else None


def test_mirror_update_install_roll_back(mirrord, archive, tmp_path):
    def config(*architectures):
        return MIRRORED.format(url=archive.url, release=archive.release, component=COMPONENT,
                               architectures=", ".join(f'"{a}"' for a in architectures))
    other = "armhf" if archive.architecture != "armhf" else "arm64"
    m = mirrord(config(archive.architecture))
    first = m.ctl_json("sync", "run", "debian", "--wait")
    assert first["outcome"] == "published"
    asked = m.upstream_requests()
    text = packages(m, archive.release, archive.architecture)
    smallest = min((int(re.search(r"^Size: (\d+)", s, re.M)[1]), re.search(r"^Package: (\S+)", s, re.M)[1])
                   for s in text.strip().split("\n\n") if "\nDepends:" not in s and "\nPre-Depends:" not in s)[1]

    def apt(name):
        root = tmp_path / name
        command = private_apt(root, archive, m.port)
        source = root / "etc/sources.list"
        source.write_text(source.read_text().replace(" main", f" {COMPONENT}"))
        run([*command, "update"], root)
        return command, root
    command, root = apt("new")
    run([*command, "download", smallest], root)
    if os.geteuid() == 0:
        system = root / "system"
        (system / "var/lib/dpkg/info").mkdir(parents=True)
        (system / "var/lib/dpkg/updates").mkdir()
        (system / "var/lib/dpkg/status").write_text("")
        run([*command, "-o", f"Dir::State::status={system}/var/lib/dpkg/status", "-o", f"DPkg::Options::=--root={system}",
             "-o", "DPkg::Options::=--force-script-chrootless", "-y", "--no-install-recommends", "install", smallest], root)
        assert f"Package: {smallest}\nStatus: install ok installed" in (system / "var/lib/dpkg/status").read_text()
    assert m.upstream_requests() == asked, "a client's request reached the archive"

    m.config = config(archive.architecture, other)
    m.reload()
    second = m.ctl_json("sync", "run", "debian", "--wait", "--force")
    if second["outcome"] != "published":
        pytest.fail(f"a second architecture brought nothing: {second}")
    assert packages(m, archive.release, other)
    m.ctl("snapshot", "rollback", "debian", f"v{first['seq']}")
    assert packages(m, archive.release, other) is None and packages(m, archive.release, archive.architecture) == text
    apt("rolled-back")
    m.ctl("verify")
