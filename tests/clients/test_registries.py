"""podman, skopeo and containerd, unmodified, through a mirror of a registry that wants tokens and redirects to a CDN."""
import hashlib
import json
import os
import pathlib
import subprocess
import tempfile

import pytest

from harness.mirrord import SLOW, until
from harness.registry import Registry


@pytest.fixture
def hub(mirrord):
    """A registry with a user of its own, whom the clients never hear of; and the mirror in front."""
    with Registry(auth="bearer", redirects=True) as r:
        r.image("library/alpine", "3.20", size=700_000)
        r.image("team/app", "1.0", docker=True)
        r.image("team/app", "1.1", docker=True, seed=2)
        m = mirrord(f'''repo "hub" {{ protocol = "oci" origin = "{r.url}" hosts = {{ "{r.token_host}", "{r.cdn_host}" }}
            names = {{ "docker.io", "registry.example" }} rule '/manifests/' {{ ttl = 1h }} }}
            repo "closed" {{ protocol = "oci" origin = "{r.url}" hosts = {{ "{r.token_host}", "{r.cdn_host}" }} names = {{ }}
            access {{ anonymous = none }} }}''')
        m.registry = r
        yield m


@pytest.fixture
def run(client_env, tmp_path):
    """run(command...) is what it printed; a client of its own home and settings."""
    def start(*command, fails=False):
        done = subprocess.run([str(c) for c in command], cwd=tmp_path, capture_output=True, text=True, timeout=300 * SLOW,
                              env=client_env, check=False)
        assert fails == (done.returncode != 0), f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout + (done.stderr if fails else "")
    return start


def whole(folder):
    """A dir: of skopeo's: all its blobs are what they are called. So many."""
    names = [p for p in folder.iterdir() if len(p.name) == 64]
    for p in names:
        assert hashlib.sha256(p.read_bytes()).hexdigest() == p.name
    return len(names)


# --- skopeo ---------------------------------------------------------------------------------------------------------------

def test_skopeo_copies_and_costs_nothing_twice(hub, client, run, tmp_path):
    skopeo, r = client("skopeo"), hub.registry
    source = f"docker://127.0.0.1:{hub.port}/hub/library/alpine:3.20"
    run(skopeo, "--insecure-policy", "copy", "--all", "--src-tls-verify=false", source, "dir:cold")
    assert r.count("GET", door="cdn") >= 4 and whole(tmp_path / "cold") >= 3
    hub.settle()
    r.forget()
    run(skopeo, "--insecure-policy", "copy", "--all", "--src-tls-verify=false", source, "dir:warm")
    assert r.asked == [] and whole(tmp_path / "warm") == whole(tmp_path / "cold")
    assert (tmp_path / "warm/manifest.json").read_bytes() == r.repo("library/alpine")["manifests"][
        r.repo("library/alpine")["tags"]["3.20"]][1]


def test_skopeo_inspects_and_lists(hub, client, run):
    skopeo = client("skopeo")
    seen = json.loads(run(skopeo, "inspect", "--tls-verify=false", f"docker://127.0.0.1:{hub.port}/hub/team/app:1.0"))
    assert seen["Digest"] == hub.registry.repo("team/app")["tags"]["1.0"] and seen["Architecture"] in ("amd64", "arm64")
    hub.registry.page = 1
    tags = json.loads(run(skopeo, "list-tags", "--tls-verify=false", f"docker://127.0.0.1:{hub.port}/hub/team/app"))
    assert tags["Tags"] == ["1.0", "1.1"]
    assert "manifest unknown" in run(skopeo, "inspect", "--tls-verify=false", f"docker://127.0.0.1:{hub.port}/hub/team/app:9",
                                     fails=True).lower()


def test_skopeo_by_its_registries_conf(hub, client, run, client_env):
    """The image has the registry's name, the settings send it to the mirror; the registry itself is never called."""
    conf = pathlib.Path(client_env["HOME"], ".config/containers/registries.conf")
    conf.parent.mkdir(parents=True, exist_ok=True)
    conf.write_text('[[registry]]\nlocation = "registry.example"\nblocked = false\n'
                    f'[[registry.mirror]]\nlocation = "127.0.0.1:{hub.port}/hub"\ninsecure = true\n')
    seen = run(client("skopeo"), "inspect", "--no-tags", "docker://registry.example/team/app:1.1")
    assert json.loads(seen)["Digest"] == hub.registry.repo("team/app")["tags"]["1.1"]


def test_skopeo_with_a_token(hub, client, run, tmp_path):
    skopeo = client("skopeo")
    source = f"docker://127.0.0.1:{hub.port}/closed/team/app:1.0"
    assert "unauthorized" in run(skopeo, "inspect", "--tls-verify=false", source, fails=True).lower()
    token = hub.token("ci", "read:closed/team/*")
    run(skopeo, "--insecure-policy", "copy", "--src-tls-verify=false", "--src-creds", f"any:{token}", source, "dir:with")
    assert whole(tmp_path / "with") >= 3
    wrong = run(skopeo, "inspect", "--tls-verify=false", "--creds", "any:mrd_no_no_no", source, fails=True).lower()
    assert "unauthorized" in wrong
    assert not any(token in (auth or "") for _, _, _, auth in hub.registry.asked)
    login = [skopeo, "login", "--tls-verify=false", "--authfile", "auth.json", "-u", "any"]
    run(*login, "-p", token, f"127.0.0.1:{hub.port}")
    run(*login, "-p", "not-a-token", f"127.0.0.1:{hub.port}", fails=True)


def test_skopeo_while_the_registry_is_away(hub, client, run):
    source = f"docker://127.0.0.1:{hub.port}/hub/library/alpine:3.20"
    run(client("skopeo"), "--insecure-policy", "copy", "--src-tls-verify=false", source, "dir:before")
    hub.settle()
    hub.registry.down = True
    run(client("skopeo"), "--insecure-policy", "copy", "--src-tls-verify=false", source, "dir:after")


# --- podman ---------------------------------------------------------------------------------------------------------------

def test_podman(hub, client, run, tmp_path):
    program = client("podman")
    if os.getuid() != 0:
        pytest.skip("podman is tried as root alone: user namespaces differ from machine to machine")
    with tempfile.TemporaryDirectory(prefix="p-") as short:  # it takes no longer one
        podman = [program, "--root", tmp_path / "root", "--runroot", short, "--storage-driver", "vfs",
                  "--cgroup-manager", "cgroupfs", "--events-backend", "none"]
        name = f"127.0.0.1:{hub.port}/hub/library/alpine:3.20"
        run(*podman, "pull", "--tls-verify=false", name)
        hub.settle()
        hub.registry.forget()
        run(*podman, "rmi", name)
        run(*podman, "pull", "--tls-verify=false", name)
        assert hub.registry.asked == []
        run(*podman, "rmi", name)


# --- containerd -----------------------------------------------------------------------------------------------------------

@pytest.fixture
def containerd(client, client_env, tmp_path):
    """One of our own, on sockets in a folder; ctr(...) speaks to it, with hosts.toml as hosts says."""
    daemon, ctr = client("containerd"), client("ctr")
    if os.getuid() != 0:
        pytest.skip("containerd runs as root alone")
    address = tmp_path / "c.sock"
    conf = tmp_path / "config.toml"
    conf.write_text(f'version = 2\nroot = "{tmp_path}/c-root"\nstate = "{tmp_path}/c-state"\n'
                    'disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]\n'
                    f'[grpc]\naddress = "{address}"\n[ttrpc]\naddress = "{tmp_path}/t.sock"\n')
    log = open(tmp_path / "c.log", "wb")
    child = subprocess.Popen([daemon, "-c", conf], stdout=log, stderr=log, env=client_env)

    def start(*command, hosts=None, fails=False):
        if hosts:
            for name, text in hosts.items():
                folder = tmp_path / "certs.d" / name
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "hosts.toml").write_text(text)
        done = subprocess.run([str(c) for c in (ctr, "-a", address, *command)], capture_output=True, text=True,
                              timeout=300 * SLOW, env=client_env, cwd=tmp_path, check=False)
        assert fails == (done.returncode != 0), f"{done.stdout}{done.stderr}{(tmp_path / 'c.log').read_text()[-3000:]}"
        return done.stdout + done.stderr

    def answers():
        assert child.poll() is None, (tmp_path / "c.log").read_text()[-3000:]
        return subprocess.run([ctr, "-a", str(address), "version"], capture_output=True, timeout=60 * SLOW, check=False).returncode == 0

    until(answers)
    yield start
    child.terminate()
    child.wait(60 * SLOW)
    log.close()


@pytest.mark.parametrize("where,path", [("registry.example", ""), ("_default", ""), ("registry.example", "/v2/hub")])
def test_containerd(hub, containerd, tmp_path, where, path):
    """By ?ns= for one registry or for all, and with the repo in the path; the registry itself cannot be reached from here."""
    override = "override_path = true\n" if path else ""
    hosts = {where: f'server = "http://127.0.0.1:1"\n[host."http://127.0.0.1:{hub.port}{path}"]\n'
                    f'capabilities = ["pull", "resolve"]\n{override}'}
    image = "registry.example/library/alpine:3.20"
    fetch = ("content", "fetch", "--all-platforms", "--hosts-dir", tmp_path / "certs.d", image)
    containerd(*fetch, hosts=hosts)
    index = hub.registry.repo("library/alpine")["tags"]["3.20"]
    assert index in containerd("images", "ls")
    have = containerd("content", "ls")
    for digest, (_, data) in hub.registry.repo("library/alpine")["manifests"].items():
        assert digest in have
    for digest in hub.registry.repo("library/alpine")["blobs"]:
        assert digest in have


def test_containerd_asks_for_a_registry_that_is_none(hub, containerd, tmp_path):
    hosts = {"_default": f'server = "http://127.0.0.1:1"\n[host."http://127.0.0.1:{hub.port}"]\ncapabilities = ["pull", "resolve"]\n'}
    said = containerd("content", "fetch", "--hosts-dir", tmp_path / "certs.d", "other.example/team/app:1.0", hosts=hosts, fails=True)
    assert "127.0.0.1" in said or "not found" in said
    assert not hub.registry.asked
