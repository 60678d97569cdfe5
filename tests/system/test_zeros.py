"""Runs of zeros take no room: not in the store, not on a node. A checkpoint's padding, a disk image, a 52 GB test file
(HUGE=1: for a moment both ask for its whole size, some 120 GB of free disk)."""
import os
import subprocess

import pytest

from harness.hub import Hub, Zeros, read, sha256_of
from harness.mirrord import BUILD, SLOW

HUGE = os.environ.get("HUGE") == "1"
STORAGE = '\nstorage { quota = "200g" }'
SIZE = 52_000_000_000 if HUGE else 300 << 20


@pytest.mark.timeout(3600 if HUGE else 300)
def test_a_file_of_zeros(mirrord, tmp_path):
    with Hub() as hub:
        data = Zeros(SIZE)
        hub.repo("org/zeros", files={"model.safetensors": data, "config.json": b"{}"})
        m = mirrord(hub.config() + (STORAGE if HUGE else ""))
        env = dict(os.environ, TRAINAGENT_MIRROR=m.url(""), TRAINAGENT_SHELF=str(tmp_path / "shelf"),
                   TRAINAGENT_STATE=str(tmp_path / "state"))
        pull = [BUILD / "trainagent", "pull", "-q", "hf/org/zeros@main", "--to", tmp_path / "home"]
        subprocess.run(pull, env=env, check=True, timeout=3000 if HUGE else 120 * SLOW)
        m.settle()
        blob, = (tmp_path / "home/hub/models--org--zeros/blobs").glob(sha256_of(data))
        assert blob.stat().st_size == SIZE
        with open(blob, "rb") as f:
            for at in data.marks():
                first, end = max(0, at - 100), min(SIZE, at + 100)
                f.seek(first)
                assert f.read(end - first) == read(data, first, end)
        stored = next(p for p in m.state.rglob(sha256_of(data)))
        for kept in (stored, blob.resolve()):
            assert kept.stat().st_blocks * 512 < 64 << 20, f"{kept.stat().st_blocks * 512} bytes for zeros"
        m.ctl("verify")
