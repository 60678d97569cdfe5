"""curl, wget and aria2c, unmodified: resuming, parallel ranges, cold and warm, over what each of them speaks."""
import hashlib
import os
import subprocess

import pytest

from harness.mirrord import SLOW

SIZE = 48 << 20


@pytest.fixture
def data(mirrord, origin):
    m = mirrord(f"""repo "data" {{ protocol = "generic" origin = "{origin.url}/" rule '.' {{ class = immutable }} }}""")
    m.origin = origin
    m.thing = origin.put("/set.tar", size=SIZE, rate=64 << 20)
    m.sha256 = origin.sha256("/set.tar")
    return m


def run(command, cwd, env):
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=env, capture_output=True, text=True, timeout=600 * SLOW, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def cut_short(path, origin):
    """What a broken download leaves behind."""
    path.write_bytes(origin.bytes_of("/set.tar", 0, SIZE // 3))


FLAGS = {"h1": ["--http1.1"], "h2": ["--http2"], "h2c": ["--http2-prior-knowledge"]}


def test_curl(data, wire, client, client_env, tmp_path):
    for name in ("cold", "warm"):
        run([client("curl"), "-sSf", *FLAGS[wire], "--cacert", data.cert[0], "-o", name, data.url("/data/set.tar", wire)],
            tmp_path, client_env)
        assert sha256(tmp_path / name) == data.sha256
    assert data.thing.bytes == SIZE


def test_curl_resumes(data, wire, client, client_env, tmp_path):
    cut_short(tmp_path / "part", data.origin)
    run([client("curl"), "-sSf", *FLAGS[wire], "--cacert", data.cert[0], "-C", "-", "-o", "part",
         data.url("/data/set.tar", wire)], tmp_path, client_env)
    assert sha256(tmp_path / "part") == data.sha256


@pytest.mark.parametrize("wire", ["h1", "h2"], ids=["plain", "tls"])
def test_wget_continues(data, wire, client, client_env, tmp_path):
    for name in ("cold", "warm"):
        folder = tmp_path / name
        folder.mkdir()
        cut_short(folder / "set.tar", data.origin)
        run([client("wget"), "-q", "-c", f"--ca-certificate={data.cert[0]}", data.url("/data/set.tar", wire)], folder,
            client_env)
        assert sha256(folder / "set.tar") == data.sha256
    assert data.thing.bytes <= SIZE * 1.01


def test_wget_knows_it_has_all(data, client, client_env, tmp_path):
    run([client("wget"), "-q", data.url("/data/set.tar")], tmp_path, client_env)
    before = os.stat(tmp_path / "set.tar").st_mtime_ns
    run([client("wget"), "-q", "-N", data.url("/data/set.tar")], tmp_path, client_env)
    assert os.stat(tmp_path / "set.tar").st_mtime_ns == before


@pytest.mark.parametrize("wire", ["h1", "h2"], ids=["plain", "tls"])
def test_aria2_in_sixteen_pieces(data, wire, client, client_env, tmp_path):
    for name in ("cold", "warm"):
        run([client("aria2c"), "-q", "-x", "16", "-s", "16", "-k", "1M", "--no-conf", f"--ca-certificate={data.cert[0]}",
             "--file-allocation=none", "-o", name, data.url("/data/set.tar", wire)], tmp_path, client_env)
        assert sha256(tmp_path / name) == data.sha256
    # As it came here: of a range that was cut for another the origin has more on the way, maybe.
    assert data.metric("mirrord_upstream_bytes_total") <= SIZE * 1.05, "sixteen ranges cost more than the object"
