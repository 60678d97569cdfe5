"""Unmodified clients that upload to a cluster of three mirrors through HAProxy without affinity."""
import json
import os
import subprocess

import pytest

from clients import test_git_lfs, test_images, test_python_uploads
from clients.test_hub import World, client as hub_client
from clients.test_hub_home import BIG, FILES, folder, sums  # noqa: F401
from harness.bucket import Bucket
from harness.hub import sha256_of
from harness.image import layout
from harness.mirrord import SLOW, until
from harness.round_robin import Cluster, HAProxy

pytestmark = pytest.mark.xdist_group("cluster clients")


@pytest.fixture(scope="module")
def world(shared_mirrord, tmp_path_factory):
    import shutil
    program = shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin")
    if program is None:
        pytest.skip("haproxy is not installed")
    with Bucket() as b:
        w = Cluster(shared_mirrord, b, tmp_path_factory.mktemp("cluster"), 'repo "models" { protocol = "hosted" xet = "on" }')
        w.ci = w.token("ci", "publish:models/*")
        with HAProxy(program, w.nodes, tmp_path_factory.mktemp("haproxy")) as w.front:
            yield w


def create(w, name):
    body = json.dumps({"name": name, "organization": "me"}).encode()
    assert w.nodes[0].put("/models/api/repos/create", body, token=w.ci, method="POST").status == 200
    for m in w.nodes:
        until(lambda m=m: m.get(f"/models/api/models/me/{name}").status == 200)


def everywhere(w, path, data):
    for m in w.nodes:
        until(lambda m=m: m.get(path).body == data)


@pytest.mark.parametrize(("version", "xet"), [("0.30.2", False), ("0.36.0", True), ("1.22.0", False), ("1.22.0", True), ("", True)])
def test_hf(world, tmp_path, folder, version, xet):  # noqa: F811
    bins, name = hub_client(version, xet), f"v{version.replace('.', '-') or 'newest'}-{xet}"
    create(world, name)
    files = {**FILES, "model.safetensors": os.urandom(9 << 20), "text.bin": b"hello world " * 900000 + os.urandom(9), "again.safetensors": BIG}
    for path, data in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(data)
    home = World(world.front, tmp_path)
    home.env.update(HF_ENDPOINT=world.front.url("/models"), HF_TOKEN=world.ci)
    program = [bins / "hf"] if (bins / "hf").exists() else [bins / "huggingface-cli"]
    home.run([*program, "upload", f"me/{name}", folder, "."])
    for path in ("again.safetensors", "text.bin", "model.safetensors", "config.json"):
        everywhere(world, f"/models/me/{name}/{path}", files[path])
    home.fresh()
    home.run([*program, "download", f"me/{name}", "--local-dir", "got"])
    got = {str(p.relative_to(home.home / "got")): p.read_bytes() for p in (home.home / "got").rglob("*") if p.is_file() and ".cache" not in p.parts}
    assert sums(got) == sums(files)


def test_skopeo(world, tmp_path, client):
    client("skopeo")
    world.front.token = lambda *args: world.ci
    w = test_images.World(world.front, tmp_path)
    layout(tmp_path / "img", {"a": os.urandom(3 << 20), "b": b"small", "empty": b"", "c": os.urandom(200_000)})
    for i in range(3):
        name = f"docker://127.0.0.1:{world.front.port}/models/me/img{i}"
        w.skopeo("copy", "--dest-tls-verify=false", "--dest-creds", w.creds, f"oci:{tmp_path}/img:latest", f"{name}:v1")
        for m in world.nodes:
            until(lambda m=m, i=i: m.get(f"/v2/models/me/img{i}/manifests/v1", headers={"Accept": "*/*"}).status == 200)
        w.skopeo("copy", "--src-tls-verify=false", f"{name}:v1", f"oci:{tmp_path}/back{i}:latest")
        assert test_images.blobs(tmp_path / f"back{i}") == test_images.blobs(tmp_path / "img")


def test_git_lfs_there_and_back(world, tmp_path, client):
    """Without a git server: what was brought is fetched by those who may publish."""
    client("git-lfs")
    create(world, "git")
    files = {"a.bin": os.urandom(300000), "b.bin": b"b" * 70000, **{f"{i}.bin": os.urandom(1000 + i) for i in range(20)}}
    w = test_git_lfs.Work(tmp_path / "w", world.front.url("/models/me/git.git/info/lfs"), ("ci", world.ci))
    w.add(files)
    w.git("lfs", "push", "--all", "origin")
    want = {sha256_of(d): d for d in files.values()}
    w.forget()
    w.git("lfs", "fetch")
    assert w.objects() == want
    lines = [{"key": "header", "value": {"summary": "s"}}] + [
        {"key": "lfsFile", "value": {"path": n, "algo": "sha256", "oid": sha256_of(d), "size": len(d)}} for n, d in files.items()]
    assert world.front.put("/models/api/models/me/git/commit/main", b"".join(json.dumps(x).encode() + b"\n" for x in lines), token=world.ci,
                           method="POST").status == 200
    for name, data in files.items():
        everywhere(world, f"/models/me/git/{name}", data)


def test_twine_and_pip(world, tmp_path, client_env):
    program, dist = test_python_uploads.twine_of("debian"), test_python_uploads.Dist(tmp_path / "dist")
    for made in (test_python_uploads.wheel("mirror-demo", "1.0", requires=["mirror-demo-dep>=0.5"]), test_python_uploads.wheel("mirror-demo-dep", "0.5"),
                 test_python_uploads.sdist("mirror-demo", "0.9")):
        dist.add(made)
    env = dict(client_env, TWINE_USERNAME="__token__", TWINE_PASSWORD=world.ci, TWINE_NON_INTERACTIVE="1")
    test_python_uploads.run([program, "upload", "--disable-progress-bar", "--repository-url", world.front.url("/models/legacy/"),
                             *dist.folder.iterdir()], env)
    for m in world.nodes:
        until(lambda m=m: len(test_python_uploads.told(m, "mirror-demo", "mirror-demo-dep")) == 3)
    pip = ["python3", "-m", "pip", "download", "-q", "--no-cache-dir", "--index-url", world.front.url("/models/simple/"), "-d", tmp_path / "got",
           "mirror-demo"]
    if subprocess.run(["python3", "-m", "pip", "--version"], env=client_env, capture_output=True, check=False).returncode != 0:
        pytest.skip("pip is not installed")
    subprocess.run(list(map(str, pip)), env=client_env, check=True, timeout=300 * SLOW)
    assert sorted(p.name for p in (tmp_path / "got").iterdir()) == ["mirror_demo-1.0-py3-none-any.whl", "mirror_demo_dep-0.5-py3-none-any.whl"]
