"""The rsync engine under the whole pipeline: a stock daemon's module mirrored, links, folders and hard links included."""
import json
import os
import pathlib
import subprocess
import time

import pytest

from harness.mirrord import free_port
from system.test_sync import run

CONFIG = 'repo "x" {{ protocol = "generic" origin = "rsync://127.0.0.1:{0}/m/" sync {{ backoff = "100ms" tries = 2 }} }}'


@pytest.fixture
def module(tmp_path, client):
    program, port, tree = client("rsync"), free_port(), tmp_path / "tree"
    tree.mkdir()
    conf = tmp_path / "rsyncd.conf"
    conf.write_text(f"use chroot = no\nport = {port}\naddress = 127.0.0.1\npid file = {tmp_path}/pid\n"
                    f"log file = {tmp_path}/log\n[m]\npath = {tree}\nread only = yes\n")
    child = subprocess.Popen([program, "--daemon", "--no-detach", f"--config={conf}"], stdin=subprocess.DEVNULL)
    for _ in range(200):
        if (tmp_path / "pid").exists():
            break
        time.sleep(0.02)
    yield port, tree
    child.terminate()
    child.wait()


def listed(m, path=""):
    return {e["path"]: e for e in json.loads(m.get(f"/x/{path}", headers={"Accept": "application/json"}).body)["entries"]}


def test_a_module_with_everything(mirrord, module):
    port, tree = module
    (tree / "d/empty").mkdir(parents=True)
    (tree / "d/file").write_bytes(b"one" * 50000)
    (tree / "small").write_bytes(b"s")
    os.link(tree / "d/file", tree / "d/hard")
    os.symlink("d", tree / "link")
    os.symlink("/etc/passwd", tree / "out")
    pathlib.Path(os.fsdecode(os.fsencode(tree) + b"/odd\xff\n%")).write_bytes(b"odd")
    m = mirrord(CONFIG.format(port))
    first = run(m)
    assert first["outcome"] == "published" and first["files_done"] == 3  # the hard link is not fetched again
    assert m.get("/x/d/file").body == m.get("/x/d/hard").body == m.get("/x/link/file").body == b"one" * 50000
    assert m.get("/x/odd%FF%0A%25").status == 400 and m.get("/x/out").status == 404
    assert set(listed(m)) >= {"d/", "small", "link", "out"} and listed(m)["out"]["link"] == "/etc/passwd"
    assert listed(m, "d/empty/") == {} and set(listed(m, "link/")) == {"empty/", "file", "hard"}
    assert run(m)["outcome"] == "unchanged"
    (tree / "small").write_bytes(b"other")
    (tree / "d/empty").rmdir()
    done = run(m)
    assert done["outcome"] == "published" and done["files_done"] == 1
    assert m.get("/x/small").body == b"other" and m.get("/x/d/empty/").status == 404
    assert m.get("/x/@v1/small").body == b"s"
    m.ctl("verify", "--deep")
