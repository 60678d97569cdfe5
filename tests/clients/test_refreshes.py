"""pip, rattler, skopeo and hf, unmodified, ten seconds after they have asked for the same: how often the origin is asked."""
import subprocess
import sys
import time

import pytest

from clients.test_channels import INDEX, INSTALL, package
from harness.hub import Big
from harness.mirrord import SLOW
from harness.python_index import Index
from harness.registry import Registry

PAUSE_S = 10  # longer than the floor under a client's no-cache that generic repos have
RULE = "rule '' { ttl = 1h }"  # fresh for as long as the slowest machine may need


def run(command, env, cwd):
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=env, capture_output=True, text=True, timeout=300 * SLOW, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def cold_and_again(m, command, env, tmp_path):
    """Requests to the origin of the first and the second run, each in a folder of its own."""
    asked = []
    for name in ("cold", "again"):
        folder = tmp_path / name
        folder.mkdir()
        before = m.upstream_requests()
        run(command(folder), dict(env, HOME=str(folder)), folder)
        m.settle()
        asked.append(m.upstream_requests() - before)
        time.sleep(PAUSE_S if name == "cold" else 0)
    return asked


@pytest.mark.parametrize("whose", ["Debian", "newest"])
def test_pip_installs_twenty_projects(request, mirrord, client_env, tmp_path, whose):
    """Each page with Cache-Control: max-age=0: so does every pip before 26, Debian's among them."""
    python = request.getfixturevalue("python") if whose == "newest" else "/usr/bin/python3"
    if subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode != 0:
        pytest.skip(f"{python} has no pip: install python3-pip")
    names = [f"project-{i:02}" for i in range(20)]
    with Index() as index:
        for name in names:
            index.wheel(name, "1.0", sidecar=False)
        index.publish()
        m = mirrord(f'repo "pypi" {{ protocol = "pypi" origin = "{index.url}" {RULE} }}')

        def command(folder):
            return [python, "-m", "pip", "install", "--isolated", "--no-cache-dir", "--disable-pip-version-check",
                    "--index-url", m.url("/pypi/simple/"), "--target", folder / "site", *names]
        assert cold_and_again(m, command, client_env, tmp_path) == [40, 0]
        assert [index.origin.stats(f"/simple/{n}/").requests for n in names] == [1] * 20
        run([sys.executable, "-c", "import project_00, project_19"], dict(client_env, PYTHONPATH=str(tmp_path / "again/site")), tmp_path)


def test_rattler_installs(mirrord, origin, python, client_env, tmp_path):
    if subprocess.run([python, "-c", "import rattler"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no rattler for Python in .venv: run make deps")
    tree = tmp_path / "channel"
    package(tree / "noarch", "base", "1.0")
    package(tree / "linux-64", "top", "1.0", ["base >=1.0"])
    run([python, "-c", INDEX, tree], client_env, tmp_path)
    for path in tree.rglob("*"):
        if path.is_file():
            origin.put(f"/{path.relative_to(tree)}", body=path.read_bytes())
    m = mirrord(f'repo "forge" {{ protocol = "conda" origin = "{origin.url}" {RULE} }}')

    def command(folder):
        return [python, "-c", INSTALL, m.url("/forge/"), "top", folder / "cache", folder / "env"]
    cold, again = cold_and_again(m, command, client_env, tmp_path)
    assert cold >= 4 and again == 0


def test_skopeo_asks_for_a_tag(mirrord, client, client_env, tmp_path):
    skopeo, registry = client("skopeo"), Registry()
    try:
        registry.image("team/app", "1.0", size=1000)
        m = mirrord(f'repo "hub" {{ protocol = "oci" origin = "{registry.url}" {RULE} }}')

        def command(folder):
            return [skopeo, "--insecure-policy", "copy", "--src-tls-verify=false", f"docker://127.0.0.1:{m.port}/hub/team/app:1.0",
                    f"dir:{folder}/image"]
        cold, again = cold_and_again(m, command, client_env, tmp_path)
        assert cold >= 5 and again == 0
    finally:
        registry.close()


def test_hf_downloads_a_branch(mirrord, hub, python, client_env, tmp_path):
    hf = python.parent / "hf"
    if not hf.exists():
        pytest.skip("no hf in .venv: run make deps")
    hub.repo("org/demo", files={"config.json": b"{}", "model.safetensors": Big(100000)})
    m = mirrord(hub.config(more=RULE))
    env = dict(client_env, HF_ENDPOINT=m.url("/hf"), HF_HUB_DISABLE_UPDATE_CHECK="1", HF_HUB_DISABLE_XET="1")
    cold, again = cold_and_again(m, lambda folder: [hf, "download", "org/demo"], env, tmp_path)
    assert cold >= 4 and again == 0
