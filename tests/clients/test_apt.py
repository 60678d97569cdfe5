"""apt-get, unmodified but for its own folders, against this machine's archive through mirrord."""
import subprocess

CONFIG = r"""
repo "debian" {{
    protocol = "generic"
    origin = "{url}"
    rule '\.(deb|dsc|orig\.tar\.\w+|debian\.tar\.\w+)$' {{ class = immutable }}
    rule '/by-hash/SHA256/[0-9a-f]+$' {{ class = immutable digest_from = "path" }}
    rule '^dists/' {{ ttl = 5m sie = 7d refresh_floor = 5m }}
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
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=250, check=False)
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
        asked = m.upstream_requests() - before
        assert asked > 0 if name == "cold" else asked == 0, f"{name}: {asked} requests to the archive"
