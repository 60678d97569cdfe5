"""skopeo, podman and buildah, unmodified, with images of a hosted repo: pushed with a token, pulled by everybody."""
import json
import os
import pathlib
import shutil
import subprocess

import pytest

from harness.image import Image, digest, layout
from harness.mirrord import SLOW

CONFIG = 'repo "models" { protocol = "hosted" }'


class World:
    def __init__(self, m, tmp_path):
        self.m, self.home, self.token = m, tmp_path, m.token("ci", "publish:models/me/*")
        self.name = f"127.0.0.1:{m.port}/models/me/img"
        self.creds = f"anybody:{self.token}"
        policy = tmp_path / "policy.json"
        policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        (tmp_path / "auth.json").write_text("{}")
        storage = tmp_path / "storage.conf"
        storage.write_text(f'[storage]\ndriver = "vfs"\ngraphroot = "{tmp_path}/graph"\nrunroot = "{tmp_path}/run"\n')
        self.env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path),
                    "CONTAINERS_STORAGE_CONF": str(storage), "REGISTRY_AUTH_FILE": str(tmp_path / "auth.json"),
                    "BUILDAH_ISOLATION": "chroot", "_CONTAINERS_USERNS_CONFIGURED": "1"}
        self.policy = str(policy)

    def run(self, *command, check=True):
        done = subprocess.run([str(x) for x in command], cwd=self.home, env=self.env, capture_output=True, text=True,
                              timeout=300 * SLOW, check=False)
        assert not check or done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}\n{self.m.log()[-2000:]}"
        return done

    def skopeo(self, *args, check=True):
        return self.run(shutil.which("skopeo"), "--policy", self.policy, *args, check=check)


@pytest.fixture
def world(mirrord, tmp_path, client):
    client("skopeo")
    return World(mirrord(CONFIG), tmp_path)


@pytest.fixture
def image(world):
    """An OCI layout and its manifest's digest."""
    files = {"a": os.urandom(3 << 20), "b": b"small", "empty": b""}
    return world.home / "img", layout(world.home / "img", files)


def blobs(folder):
    return {p.name: p.read_bytes() for p in pathlib.Path(folder, "blobs/sha256").iterdir()}


def test_skopeo_there_and_back(world, image):
    folder, name = image
    copy = ("copy", "--dest-tls-verify=false", "--dest-creds", world.creds, f"oci:{folder}:latest")
    world.skopeo(*copy, f"docker://{world.name}:v1")
    got = json.loads(world.skopeo("inspect", "--tls-verify=false", f"docker://{world.name}:v1").stdout)
    assert got["Digest"] == name and got["RepoTags"] == ["v1"]
    world.skopeo("copy", "--src-tls-verify=false", f"docker://{world.name}@{name}", "oci:back:latest")
    assert blobs(world.home / "back") == blobs(folder)
    # again, under another tag: nothing is sent that is there
    before = world.m.metric("mirrord_http_received_bytes_total")
    world.skopeo(*copy, f"docker://{world.name}:v2")
    assert world.m.metric("mirrord_http_received_bytes_total") - before < 100_000
    assert json.loads(world.skopeo("list-tags", "--tls-verify=false", f"docker://{world.name}").stdout)["Tags"] == ["v1", "v2"]
    # and as another image, from this one: mounted, not sent
    before = world.m.metric("mirrord_http_received_bytes_total")
    world.skopeo("copy", "--src-tls-verify=false", "--dest-tls-verify=false", "--dest-creds", world.creds,
                 f"docker://{world.name}:v1", f"docker://{world.name}-two:v1")
    assert world.m.metric("mirrord_http_received_bytes_total") - before < 100_000
    world.skopeo("delete", "--tls-verify=false", "--creds", world.creds, f"docker://{world.name}:v1")
    assert Image(world.m).tags() == [] and Image(world.m, "models/me/img-two").tags() == ["v1"]


def test_skopeo_in_dockers_form(world, image):
    """Docker's manifest, a folder as the source, a login instead of a password in the line."""
    folder, _ = image
    world.skopeo("login", "--tls-verify=false", "-u", "me", "-p", world.token, f"127.0.0.1:{world.m.port}")
    world.skopeo("copy", f"oci:{folder}:latest", "dir:flat")
    world.skopeo("copy", "--format", "v2s2", "--dest-tls-verify=false", "dir:flat", f"docker://{world.name}:v1")
    got = Image(world.m).get("manifests/v1")
    assert got["content-type"] == "application/vnd.docker.distribution.manifest.v2+json"
    assert got["docker-content-digest"] == digest(got.body)
    world.skopeo("logout", f"127.0.0.1:{world.m.port}")
    world.skopeo("copy", "--src-tls-verify=false", f"docker://{world.name}:v1", "oci:back:latest")


def test_skopeo_is_told_no(world, image):
    folder, _ = image
    to = ("copy", "--dest-tls-verify=false", f"oci:{folder}:latest", f"docker://{world.name}:v1")
    for creds, word in ((None, "token"), (f"me:{world.m.token('other', 'publish:models/you/*')}", "scope"), ("me:mrd_0_0_0", "token")):
        done = world.skopeo(*to, *(("--dest-creds", creds) if creds else ()), check=False)
        assert done.returncode != 0 and word in done.stderr, done.stderr
    done = world.skopeo("login", "--tls-verify=false", "-u", "me", "-p", "wrong", f"127.0.0.1:{world.m.port}", check=False)
    assert done.returncode != 0
    done = world.skopeo("inspect", "--tls-verify=false", f"docker://{world.name}:v1", check=False)
    assert done.returncode != 0 and "no image of this name" in done.stderr
    assert Image(world.m).tags() is None


def test_skopeo_and_a_closed_repo(mirrord, tmp_path, client):
    client("skopeo")
    world = World(mirrord('repo "models" { protocol = "hosted" access { anonymous = none } }'), tmp_path)
    layout(tmp_path / "img", {"a": b"secret"})
    world.skopeo("copy", "--dest-tls-verify=false", "--dest-creds", world.creds, "oci:img:latest", f"docker://{world.name}:v1")
    assert world.skopeo("inspect", "--tls-verify=false", f"docker://{world.name}:v1", check=False).returncode != 0
    world.skopeo("inspect", "--tls-verify=false", "--creds", world.creds, f"docker://{world.name}:v1")


def test_buildah_and_podman(world, image, client):
    """An image built here, pushed by one, pulled by the other."""
    buildah, podman = client("buildah"), client("podman")
    (world.home / "Containerfile").write_text("FROM scratch\nCOPY a.txt /\nLABEL of=mirror\n")
    (world.home / "a.txt").write_text("hello")
    built = world.run(buildah, "--storage-driver", "vfs", "bud", "--signature-policy", world.policy, "-t", "built", ".", check=False)
    if built.returncode != 0:
        pytest.skip(f"buildah cannot build on this machine: {built.stderr.strip()[-200:]}")
    world.run(buildah, "--storage-driver", "vfs", "push", "--signature-policy", world.policy, "--tls-verify=false", "--creds", world.creds,
              "built", f"docker://{world.name}:v1")
    world.run(podman, "--storage-driver", "vfs", "pull", "--signature-policy", world.policy, "--tls-verify=false", f"{world.name}:v1")
    world.run(podman, "--storage-driver", "vfs", "push", "--signature-policy", world.policy, "--tls-verify=false", "--creds", world.creds,
              f"{world.name}:v1", f"{world.name}:v2")
    assert Image(world.m).tags() == ["v1", "v2"]
