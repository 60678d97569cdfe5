"""huggingface_hub, unmodified, bringing what is large to a hosted repository: files in parts, folders of many files, and what is
sent again of an upload that was broken off."""
import hashlib
import os
import signal
import subprocess

import pytest

from clients.test_hub import PATIENCE_S, VERSIONS, client
from clients.test_hub_home import BIG, folder  # noqa: F401
from harness.mirrord import until

pytestmark = pytest.mark.xdist_group("hub home")

ATONCE = 5  # the files that huggingface_hub sends at once
LARGE = (256 << 20) + (5 << 20) + 3
EACH = [pytest.param(v, id=v or "newest") for v in VERSIONS]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Random at its ends and in the middle, else a hole."""
    path = tmp_path_factory.mktemp("large") / "model.safetensors"
    with open(path, "wb") as f:
        for at in (0, LARGE // 2, LARGE - 70000):
            f.seek(at)
            f.write(os.urandom(70000))
    with open(path, "rb") as f:
        return path, hashlib.file_digest(f, "sha256").hexdigest()


def paths(m, method, what, status=None):
    """Of the requests with that method, whose path holds `what`; while clients are at work, of those that have their line in the log."""
    said = {"method": method} | ({} if status is None else {"status": status})
    return [e["path"] for e in m.answered("", least=0, **said) if what in e["path"]]


def asked(m, *which):
    """How many, once no client is there any more."""
    m.forsaken()
    return len(paths(m, *which))


@pytest.mark.parametrize("version", EACH)
def test_a_file_in_parts(home, large, version):
    path, oid = large
    up = "import sys; from huggingface_hub import HfApi; a = HfApi(); a.create_repo('me/gpt', exist_ok=True); " \
         "a.upload_file(path_or_fileobj=sys.argv[1], path_in_repo='model.safetensors', repo_id='me/gpt'); print('1')"
    home.python(client(version, False), up, path)
    assert (asked(home.m, "PUT", oid), asked(home.m, "POST", oid)) == (5, 2)
    got = home.m.get("/models/me/gpt/resolve/main/model.safetensors", head=True)
    assert (got["etag"], got["content-length"]) == (f'"{oid}"', str(LARGE))
    home.python(client(version, False), up, path)  # what is here is not sent again
    assert (asked(home.m, "PUT", oid), asked(home.m, "POST", oid)) == (5, 2)


@pytest.mark.parametrize("version", EACH)
def test_what_has_not_changed_is_not_sent(home, folder, version):  # noqa: F811
    """Small files too, and there is no commit of nothing."""
    (folder / "model.safetensors").write_bytes(BIG)
    up = "import sys; from huggingface_hub import HfApi; a = HfApi(); a.create_repo('me/gpt', exist_ok=True); " \
         "a.upload_folder(folder_path=sys.argv[1], repo_id='me/gpt'); print('1')"
    home.python(client(version, False), up, folder)
    home.python(client(version, False), up, folder)
    assert asked(home.m, "POST", "/commit/") == 1
    (folder / "config.json").write_bytes(b'{"a": 2}')
    home.python(client(version, False), up, folder)
    assert asked(home.m, "POST", "/commit/") == 2 and asked(home.m, "PUT", "/objects/") == 1
    assert home.m.get("/models/me/gpt/config.json").body == b'{"a": 2}'


def start(home, command):
    env = dict(home.env, HOME=str(home.home), HF_HOME=str(home.home / "hf"), TMPDIR=str(home.home), **home.trap.env())
    return subprocess.Popen(list(map(str, command)), env=env, cwd=home.home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                            start_new_session=True)


def break_off(m, child, how, when):
    """Ends the client once that is true, and waits until mirrord is done with what it sent; False: it was faster."""
    until(lambda: when() or child.poll() is not None, 300)
    running = child.poll() is None
    if running:
        os.kill(child.pid, how)
    child.wait(PATIENCE_S)
    m.forsaken()
    until(lambda: not m.metric("mirrord_cache_staged_bytes"))
    return running


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["kill", "int"])
def test_an_upload_broken_off_by_xet(home, tmp_path, how):
    """The next one brings what is missing, as little as a later one of a changed file; the newest hf_xet asks before it sends."""
    path = tmp_path / "w.bin"
    path.write_bytes(os.urandom(260 << 20))
    up = [client("", True) / "hf", "upload", "me/gpt", path, "w.bin"]
    which = home.m, "POST", "/v1/xorbs/", 200
    xorbs = lambda: asked(*which)  # noqa: E731
    broken = break_off(home.m, start(home, up), how, lambda: len(paths(*which)) >= 2)
    before = xorbs()
    home.run(up)
    assert xorbs() <= 6 or not broken  # of five; four, when what came whole had its answer go nowhere
    assert len(set(paths(*which))) == xorbs() >= before  # none twice
    with open(path, "rb") as f:
        assert home.m.get("/models/me/gpt/resolve/main/w.bin", head=True)["etag"] == f'"{hashlib.file_digest(f, "sha256").hexdigest()}"'
    before = xorbs()
    with open(path, "r+b") as f:
        f.seek(100 << 20)
        f.write(b"changed")
    home.run(up)
    assert xorbs() == before + 1
    with open(path, "rb") as f:
        assert home.m.get("/models/me/gpt/resolve/main/w.bin", head=True)["etag"] == f'"{hashlib.file_digest(f, "sha256").hexdigest()}"'


def test_an_upload_broken_off_by_lfs(home, tmp_path):
    """What came whole is not sent again."""
    (tmp_path / "up").mkdir()
    for i in range(12):
        (tmp_path / "up" / f"w{i}.bin").write_bytes(os.urandom(12 << 20))
    up = [client("", False) / "hf", "upload", "me/gpt", tmp_path / "up", "."]
    which = home.m, "PUT", "/objects/", 200
    broken = break_off(home.m, start(home, up), signal.SIGKILL, lambda: len(paths(*which)) >= 2)
    shown = home.m.get("/models/me/gpt/w0.bin", head=True).status
    assert shown == 404 or asked(home.m, "POST", "/commit/")  # nothing shows before the commit
    home.run(up)
    home.m.forsaken()
    sent = paths(*which)
    assert len(set(sent)) == len(sent)  # none twice
    assert len(sent) == 12 or broken and len(sent) >= 12 - ATONCE  # fewer, when one came whole and its answer went nowhere
    for i in range(12):
        assert home.m.get(f"/models/me/gpt/w{i}.bin", head=True)["content-length"] == str(12 << 20)
