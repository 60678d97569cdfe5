"""twine and uv publish, unmodified, into a hosted repo; pip and uv, out of it again."""
import email
import hashlib
import json
import os
import shutil
import subprocess
import sys

import pytest

from clients.test_hub import venv
from harness.python_dist import metadata, sdist, wheel


class Dist:
    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()

    def add(self, made):
        (self.folder / made[0]).write_bytes(made[1])
        return self.folder / made[0]


@pytest.fixture
def models(mirrord):
    m = mirrord('repo "models" { protocol = "hosted" }')
    m.publisher = m.token("ci", "publish:models/simple/*")
    return m


@pytest.fixture
def dist(tmp_path):
    """Two packages, of which one needs the other, and a source archive."""
    d = Dist(tmp_path / "dist")
    d.add(wheel("mirror-demo", "1.0", requires_python=">=3.7", requires=["mirror-demo-dep>=0.5"]))
    d.add(wheel("mirror-demo-dep", "0.5"))
    d.add(wheel("mirror-demo-dep", "0.6+local.1"))
    d.add(sdist("mirror-demo", "0.9"))
    return d


def run(command, env, good=True, **kw):
    done = subprocess.run([str(c) for c in command], env=env, capture_output=True, text=True, timeout=600, check=False, **kw)
    assert (done.returncode == 0) == good, done.stdout + done.stderr
    return done.stdout + done.stderr


def twine_of(which):
    if which == "newest":
        return venv("twine") / "twine"
    if not os.path.exists("/usr/bin/twine"):
        pytest.skip("Debian's twine is not installed: run make deps")
    return "/usr/bin/twine"


@pytest.fixture(params=["debian", "newest"])
def twine(request, models, client_env):
    program = twine_of(request.param)

    def upload(*args, good=True, token=None):
        env = dict(client_env, TWINE_USERNAME="__token__", TWINE_PASSWORD=token or models.publisher, TWINE_NON_INTERACTIVE="1")
        return run([program, "upload", "--disable-progress-bar", "--repository-url", models.url("/models/legacy/"), *args], env, good)
    return upload


@pytest.fixture
def uv(models, client_env, python):
    env = dict(client_env, UV_PUBLISH_TOKEN=models.publisher, UV_NO_CONFIG="1", UV_PYTHON_DOWNLOADS="never")

    def publish(*args, good=True, token=None, url="/models/legacy/"):
        return run([python.parent / "uv", "publish", "--publish-url", models.url(url), *args],
                   dict(env, UV_PUBLISH_TOKEN=token or models.publisher), good)
    return publish


def page(m, name):
    return json.loads(m.get(f"/models/simple/{name}/", headers={"Accept": "application/vnd.pypi.simple.v1+json"}).body)


def told(m, *names):
    """What the pages say, against the files."""
    out = {}
    for name in names:
        for f in page(m, name)["files"]:
            out[f["filename"]] = f["hashes"]["sha256"]
    return out


def sums(folder):
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in folder.iterdir()}


# --- in ---


def test_twine(models, twine, dist):
    twine(*dist.folder.iterdir())
    assert told(models, "mirror-demo", "mirror-demo-dep") == sums(dist.folder)
    files = {f["filename"]: f for f in page(models, "mirror-demo")["files"]}
    assert files["mirror_demo-1.0-py3-none-any.whl"]["requires-python"] == ">=3.7"
    twine(*dist.folder.iterdir())  # again: the same files
    changed = dist.add(("mirror_demo-1.0-py3-none-any.whl", wheel("mirror-demo", "1.0", requires_python=">=3.9")[1]))
    assert "409" in twine(changed, good=False)
    assert "File already exists" in twine("--verbose", changed, good=False)


def test_twine_skips_what_is_there(models, twine, dist):
    file = dist.folder / "mirror_demo-1.0-py3-none-any.whl"
    twine(file)
    before = told(models, "mirror-demo")
    file.write_bytes(wheel("mirror-demo", "1.0", requires_python=">=3.9")[1])
    out = skip_existing(twine, file)
    assert "Skipping" in out or "UnsupportedConfiguration" in out, out
    assert told(models, "mirror-demo") == before


def skip_existing(twine, file):
    """Some versions take the flag for their own index alone, and say so."""
    try:
        return twine("--skip-existing", file)
    except AssertionError as why:
        assert "UnsupportedConfiguration" in str(why), why
        return str(why)


def test_twine_without_the_right(models, twine, dist):
    file = dist.folder / "mirror_demo-1.0-py3-none-any.whl"
    assert "401" in twine(file, good=False, token="mrd_none_such")
    other = models.token("other", "publish:models/simple/elsewhere/*")
    out = twine("--verbose", file, good=False, token=other)
    assert "403" in out and "publish:models/simple/mirror-demo/*" in out
    assert models.get("/models/simple/mirror-demo/").status == 404
    big = dist.add(wheel("mirror-big", "1.0", files={"blob.bin": os.urandom(24 << 20)}))
    assert "403" in twine(big, good=False, token=other)


def test_twine_brings_a_signature(models, client_env, dist):
    program = twine_of("debian")
    file = dist.folder / "mirror_demo-1.0-py3-none-any.whl"
    asc = dist.add((file.name + ".asc", b"-----BEGIN PGP SIGNATURE-----\n"))
    env = dict(client_env, TWINE_USERNAME="any", TWINE_PASSWORD=models.publisher)
    run([program, "upload", "--disable-progress-bar", "--repository-url", models.url("/models/legacy"), file, asc], env)
    assert page(models, "mirror-demo")["files"][0]["gpg-sig"] is True
    assert models.get(f"/models/simple/mirror-demo/{asc.name}").body == asc.read_bytes()


def test_uv_publish(models, uv, dist):
    uv(*dist.folder.iterdir())
    assert told(models, "mirror-demo", "mirror-demo-dep") == sums(dist.folder)
    check = ["--check-url", models.url("/models/simple/")]
    assert "already exists" in uv(*check, dist.folder / "mirror_demo-1.0-py3-none-any.whl")
    uv(*check, *dist.folder.iterdir())
    changed = dist.add(("mirror_demo-1.0-py3-none-any.whl", wheel("mirror-demo", "1.0", requires_python=">=3.9")[1]))
    out = uv(changed, good=False)
    assert "File already exists" in out, out
    assert "do not match" in uv(*check, changed, good=False)


def test_uv_publish_refused(models, uv, dist):
    file = dist.folder / "mirror_demo-1.0-py3-none-any.whl"
    other = models.token("other", "publish:models/simple/elsewhere/*")
    assert "publish:models/simple/mirror-demo/*" in uv(file, good=False, token=other)
    assert "401" in uv(file, good=False, token="mrd_none_such")
    out = uv(file, good=False, url="/models/simple/")
    assert "legacy/" in out and "index URL" in out, out
    uv(file, url="/models/legacy")


# --- out ---


@pytest.fixture
def filled(models, uv, dist):
    uv(*dist.folder.iterdir())
    return models


def index_url(m):
    return m.url("/models/simple/")


@pytest.mark.parametrize("features", [[], ["--use-feature=fast-deps"]], ids=["plain", "fast-deps"])
def test_pip_install(filled, python, client_env, tmp_path, features):
    out = tmp_path / "site"
    run([python, "-m", "pip", "install", "--isolated", "--no-cache-dir", "--disable-pip-version-check", "--index-url", index_url(filled),
         *features, "--target", out, "mirror-demo"], client_env)
    said = run([sys.executable, "-c", "import mirror_demo, mirror_demo_dep; print(mirror_demo.VERSION, mirror_demo_dep.VERSION)"],
               dict(client_env, PYTHONPATH=str(out)))
    assert said.split() == ["1.0", "0.6+local.1"]


def test_pip_download_of_a_version(filled, python, client_env, tmp_path, dist):
    out = tmp_path / "got"
    run([python, "-m", "pip", "download", "--isolated", "--no-cache-dir", "--disable-pip-version-check", "--index-url", index_url(filled),
         "--no-deps", "-d", out, "Mirror.Demo==1.0"], client_env)
    file, = out.iterdir()
    assert file.read_bytes() == (dist.folder / file.name).read_bytes()
    old = tmp_path / "old"
    run([python, "-m", "pip", "download", "--isolated", "--no-cache-dir", "--disable-pip-version-check", "--no-index", "--find-links",
         filled.url("/models/simple/mirror-demo-dep@v1/"), "--no-deps", "-d", old, "mirror-demo-dep"], client_env)
    assert len(list(old.iterdir())) == 1


def test_uv_install(filled, python, client_env, tmp_path):
    out = tmp_path / "site"
    env = dict(client_env, UV_NO_CONFIG="1", UV_PYTHON_DOWNLOADS="never", UV_CACHE_DIR=str(tmp_path / "cache"))
    install = [python.parent / "uv", "pip", "install", "--python", python, "--index-url", index_url(filled), "--target", out]
    run([*install, "mirror-demo"], env)
    assert (out / "mirror_demo.py").exists() and (out / "mirror_demo_dep.py").exists()
    shutil.rmtree(out)
    # What was uploaded after that moment is not looked at.
    assert "no solution" in run([*install, "--exclude-newer", "2020-01-01T00:00:00Z", "mirror-demo"],
                                env, good=False).lower()
    run([*install, "--exclude-newer", "2100-01-01T00:00:00Z", "mirror-demo"], env)


def test_a_closed_repo(mirrord, python, client_env, tmp_path, dist):
    m = mirrord('repo "models" { protocol = "hosted" access { anonymous = none } }')
    token = m.token("ci", "publish:models/simple/*")
    reader = m.token("reader", "read:models/simple/*")
    run([python.parent / "uv", "publish", "--publish-url", m.url("/models/legacy/"), *dist.folder.iterdir()],
        dict(client_env, UV_PUBLISH_TOKEN=token, UV_NO_CONFIG="1"))
    url = index_url(m).replace("://", f"://__token__:{reader}@")
    for i, command in enumerate(([python, "-m", "pip", "install", "--isolated", "--no-cache-dir", "--no-input"],
                                 [python.parent / "uv", "pip", "install", "--no-cache", "--python", python])):
        run([*command, "--index-url", url, "--target", tmp_path / f"site{i}", "mirror-demo"], dict(client_env, UV_NO_CONFIG="1"))
        assert (tmp_path / f"site{i}/mirror_demo_dep.py").exists()
        run([*command, "--index-url", index_url(m), "--target", tmp_path / f"none{i}", "mirror-demo"], dict(client_env, UV_NO_CONFIG="1"),
            good=False)


def test_a_yanked_file_is_left_out(filled, python, client_env, tmp_path):
    m = filled
    newer = [f["filename"] for f in page(m, "mirror-demo-dep")["files"] if "0.6" in f["filename"]][0]
    assert m.put(f"/models/simple/mirror-demo-dep/{newer}.yanked", b"loses data", token=m.publisher).status == 201
    out = tmp_path / "site"
    run([python, "-m", "pip", "install", "--isolated", "--no-cache-dir", "--disable-pip-version-check", "--index-url", index_url(m),
         "--target", out, "mirror-demo-dep"], client_env)
    assert (out / "mirror_demo_dep.py").read_text() == "VERSION = '0.5'\n"
    said = run([python, "-m", "pip", "download", "--isolated", "--no-cache-dir", "--disable-pip-version-check", "--index-url", index_url(m),
                "-d", tmp_path / "got", "mirror-demo-dep==0.6+local.1"], client_env)
    assert "loses data" in said


def test_metadata_is_what_the_wheel_has(filled):
    got = filled.get("/models/simple/mirror-demo/mirror_demo-1.0-py3-none-any.whl.metadata").body.decode()
    assert got == metadata("mirror-demo", "1.0", ">=3.7", ["mirror-demo-dep>=0.5"])
    assert email.message_from_string(got)["Requires-Dist"] == "mirror-demo-dep>=0.5"
