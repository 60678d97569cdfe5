"""Clients that know nothing of mirrord walk its folders by their pages: rclone, wget -r, lftp, fsspec; and read what they find."""
import datetime
import hashlib
import io
import json
import os
import pathlib
import subprocess
import tarfile
import urllib.parse

import pytest

from harness.mirrord import SLOW
from harness.tree_origin import TreeOrigin

# Paths are bytes, written as latin-1. A name with a ':' would be a scheme, one with '?' or '#' ends a path.
FILES = {"top.txt": b"top", "a:b.txt": b"colon", "sp ace.txt": b"blank", "quo\"te'd.txt": b"quotes", "lt<gt>&amp;.txt": b"markup", "q?x=1.txt": b"query",
         "h#sh.txt": b"fragment", "per%20cent.txt": b"percent", "plus+.txt": b"plus", "\xc3\xbc.txt": b"umlaut", "http:/host/x": b"looks like a URL",
         "a:b/in.txt": b"below a colon", "sub/one.bin": os.urandom(70000), "sub/c:d.txt": b"colon", "sub/deep/er.bin": os.urandom(100), "sub/httpd.conf": b"no scheme", "sub/deep/two words/x": b"deepest"}
WILD = {"\xff\xfe.txt": b"no UTF-8", **FILES}


def quoted(path):
    return urllib.parse.quote(path.encode("latin-1"), safe="/")


def run(*command, cwd, env, rc=0):
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=env, capture_output=True, timeout=600 * SLOW, check=False)
    assert done.returncode == rc, (done.returncode, done.stdout, done.stderr)
    return done.stdout


def tree_at(folder):
    """Path as latin-1 -> bytes, of all files below."""
    top = os.fsencode(folder)
    found = {}
    for base, _, names in os.walk(top):
        for name in names:
            path = os.path.join(base, name)
            found[os.path.relpath(path, top).decode("latin-1")] = pathlib.Path(os.fsdecode(path)).read_bytes()
    return found


class World:
    def __init__(self, m, path):
        self.m, self.path = m, path
        self.url = m.url(path)


@pytest.fixture(params=["hosted", "version", "synced", "snapshot"])
def world(request, mirrord):
    """The same files as a hosted tree and as a synced one, each as it is now and as a version of it."""
    if request.param in ("hosted", "version"):
        m = mirrord('repo "models" { protocol = "hosted" }')
        token = m.token("ci", "publish:models/me/*")
        opened = m.put("/models/me/gpt/-/uploads", b"", token=token, method="POST")["location"].replace(m.url(""), "")
        for path, data in WILD.items():
            assert m.put(f"{opened}/{quoted(path)}", data, token=token).status == 201, path
        assert m.put(opened + "/commit", b"", token=token, method="POST").status == 201
        yield World(m, "/models/me/gpt/" if request.param == "hosted" else "/models/me/gpt@v1/")
        return
    with TreeOrigin(WILD) as origin:
        m = mirrord(f'repo "files" {{ protocol = "generic" origin = "{origin.url}" sync {{ backoff = "100ms" tries = 2 }} }}')
        m.ctl("sync", "run", "files", "--wait")
        yield World(m, "/files/" if request.param == "synced" else "/files/@v1/")


def test_rclone(world, client, client_env, tmp_path):
    # Of a first segment with a ':' it asks by "./a:b", and no path with such a segment is answered.
    wanted = {p: d for p, d in WILD.items() if ":" not in p.partition("/")[0]}
    flags = ["--config", tmp_path / "none", "--http-url", world.url]
    leave = ["--exclude", "/a:b.txt", "--exclude", "/a:b/**", "--exclude", "/http:/**"]
    run(client("rclone"), "copy", *flags, *leave, ":http:", tmp_path / "got", cwd=tmp_path, env=client_env)
    got = tree_at(tmp_path / "got")
    # Names that are not UTF-8 it writes in another way.
    assert {p: d for p, d in got.items() if p in FILES} == {p: d for p, d in wanted.items() if p in FILES} and len(got) == len(wanted)
    run(client("rclone"), "check", "--download", "--one-way", *flags, ":http:sub", tmp_path / "got/sub", cwd=tmp_path, env=client_env)
    listed = run(client("rclone"), "lsf", *flags, ":http:", cwd=tmp_path, env=client_env).split(b"\n")[:-1]
    tops = {p.partition("/")[0] for p in WILD}
    assert len(listed) in (len(tops), len(tops - {"a:b.txt"})), (listed, "the entries, and no link beside them")


def test_wget_recursive(world, client, client_env, tmp_path):
    depth = world.path.count("/") - 1
    run(client("wget"), "-q", "-r", "-l", "inf", "-np", "-nH", f"--cut-dirs={depth}", "--restrict-file-names=nocontrol", "-P", "got", "-R", "index.html*", world.url,
        cwd=tmp_path, env=client_env)
    # It decodes a name twice.
    assert tree_at(tmp_path / "got") == {p.replace("%20", " "): d for p, d in WILD.items()}


def test_lftp_mirror(world, client, client_env, tmp_path):
    run(client("lftp"), "-c", f"set net:max-retries 2; set cmd:fail-exit yes; open {world.url}; mirror . got", cwd=tmp_path, env=client_env)
    assert tree_at(tmp_path / "got") == WILD


FIND = """
import fsspec, json, sys
fs = fsspec.filesystem("http")
url = sys.argv[1]
assert sorted(fs.ls(url + "sub/", detail=False)) == sorted(fs.ls(url + "sub", detail=False)), "with and without the last slash"
found = fs.find(url)
print(json.dumps({path: fs.cat(path).hex() for path in found}))
"""


def test_fsspec(world, python, client_env, tmp_path):
    found = json.loads(run(python, "-c", FIND, world.url, cwd=tmp_path, env=client_env))
    got = {urllib.parse.unquote_to_bytes(url.removeprefix(world.url)).decode("latin-1"): bytes.fromhex(data) for url, data in found.items()}
    assert got == WILD
    assert all("/./" not in url for url in found)


def test_walking_from_the_top(mirrord, client, client_env, python, tmp_path):
    """A hosted repo is owners, then trees, then files: each a folder to a client that takes one level at a time."""
    m = mirrord('repo "models" { protocol = "hosted" }')
    token = m.token("ci", "publish:models/*")
    files = {"me/gpt/a.txt": b"1", "me/gpt/sub/b.txt": b"2", "me/other/c.txt": b"3", "you/x/d.txt": b"4", "datasets/me/d/e.txt": b"5"}
    for path, data in files.items():
        assert m.put(f"/models/{path}", data, token=token).status == 201
    url = m.url("/models/")
    run(client("rclone"), "copy", "--config", tmp_path / "none", "--http-url", url, ":http:", tmp_path / "rclone", cwd=tmp_path, env=client_env)
    assert tree_at(tmp_path / "rclone") == files
    run(client("wget"), "-q", "-r", "-l", "inf", "-np", "-nH", "--cut-dirs=1", "-P", "wget", "-R", "index.html*", url, cwd=tmp_path, env=client_env)
    assert tree_at(tmp_path / "wget") == files
    run(client("lftp"), "-c", f"set net:max-retries 2; set cmd:fail-exit yes; open {url}; mirror . lftp", cwd=tmp_path, env=client_env)
    assert tree_at(tmp_path / "lftp") == files
    found = run(python, "-c", "import fsspec, sys; print('\\n'.join(fsspec.filesystem('http').find(sys.argv[1])))", url, cwd=tmp_path, env=client_env)
    assert sorted(found.decode().split()) == sorted(url + path for path in files)


# --- files of hosted trees ------------------------------------------------------------------------------------------------


SHARDS = """
import sys, webdataset
got = [(s["__key__"], s["txt"]) for s in webdataset.WebDataset(sys.argv[1], shardshuffle=False)]
assert got == [(f"{n:06d}", b"sample %d" % n) for n in range(30)], got
"""


def test_webdataset_reads_shards(mirrord, python, client_env, tmp_path):
    m = mirrord('repo "models" { protocol = "hosted" }')
    token = m.token("ci", "publish:models/datasets/me/*")
    for shard in range(3):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for n in range(10 * shard, 10 * shard + 10):
                info = tarfile.TarInfo(f"{n:06d}.txt")
                info.size = len(b"sample %d" % n)
                tar.addfile(info, io.BytesIO(b"sample %d" % n))
        assert m.put(f"/models/datasets/me/wds/train-{shard:04d}.tar", out.getvalue(), token=token).status == 201
    run(python, "-c", SHARDS, m.url("/models/datasets/me/wds/train-{0000..0002}.tar"), cwd=tmp_path, env=client_env)


S3 = """
import botocore, botocore.config, botocore.session, sys
s3 = botocore.session.Session().create_client("s3", region_name="us-east-1", endpoint_url=sys.argv[1],
    config=botocore.config.Config(signature_version=botocore.UNSIGNED, s3={"addressing_style": "path"}))
got = s3.get_object(Bucket="models", Key="me/gpt/a.txt")
head = s3.head_object(Bucket="models", Key="me/gpt/a.txt")
assert got["Body"].read() == b"one" and got["LastModified"] == head["LastModified"], (got, head)
assert got["ETag"] == head["ETag"] and head["ContentLength"] == 3
print(head["LastModified"].timestamp())
"""


def test_an_s3_client_reads_a_hosted_file(mirrord, python, client_env, tmp_path):
    """There is no API of S3: a GET and a HEAD by a path-style client are those of the file, and it wants a date."""
    m = mirrord('repo "models" { protocol = "hosted" }')
    before = datetime.datetime.now(datetime.timezone.utc).timestamp()
    assert m.put("/models/me/gpt/a.txt", b"one", token=m.token("ci", "publish:models/me/*")).status == 201
    said = float(run(python, "-c", S3, m.url(""), cwd=tmp_path, env=client_env))
    assert said >= int(before)


def test_zsync_fetches_what_changed(mirrord, client, client_env, tmp_path):
    """An old copy and a .zsync file beside the new one: the ranges that differ, and no more."""
    m = mirrord('repo "models" { protocol = "hosted" }')
    token = m.token("ci", "publish:models/me/*")
    old = os.urandom(4 << 20)
    new = old[:1 << 20] + os.urandom(100 << 10) + old[1 << 20:]
    (tmp_path / "old").write_bytes(old)
    (tmp_path / "set.bin").write_bytes(new)
    run(client("zsyncmake"), "-u", "set.bin", "-o", "set.bin.zsync", "set.bin", cwd=tmp_path, env=client_env)
    for name in ("set.bin", "set.bin.zsync"):
        assert m.put(f"/models/me/sets/{name}", (tmp_path / name).read_bytes(), token=token).status == 201
    os.remove(tmp_path / "set.bin")
    run(client("zsync"), "-q", "-i", "old", "-o", "got", m.url("/models/me/sets/set.bin.zsync"), cwd=tmp_path, env=client_env)
    assert (tmp_path / "got").read_bytes() == new
    sent = sum(e["bytes"] for e in m.answered("/models/me/sets/set.bin", method="GET"))
    assert sent < len(new) // 4


METALINK = """<?xml version="1.0" encoding="UTF-8"?>
<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="got"><size>{size}</size><hash type="sha-256">{sha256}</hash><url>{url}</url></file></metalink>
"""


def test_aria2_by_a_metalink(mirrord, client, client_env, tmp_path):
    m = mirrord('repo "models" { protocol = "hosted" }')
    token = m.token("ci", "publish:models/me/*")
    data = os.urandom(3 << 20)
    link = METALINK.format(size=len(data), sha256=hashlib.sha256(data).hexdigest(), url=m.url("/models/me/sets/set.bin"))
    for name, body in (("set.bin", data), ("set.meta4", link.encode())):
        assert m.put(f"/models/me/sets/{name}", body, token=token).status == 201
    run(client("aria2c"), "-q", "--no-conf", "--follow-metalink=mem", m.url("/models/me/sets/set.meta4"), cwd=tmp_path, env=client_env)
    assert (tmp_path / "got").read_bytes() == data
