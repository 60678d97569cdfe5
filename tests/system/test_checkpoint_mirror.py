"""Checkpoints of several ranks that go to the mirror while training goes on; a fresh node resumes from there."""
import json
import os
import shutil
import signal
import subprocess

import pytest

from harness.checkpoint import digests
from harness.mirrord import BUILD, until
from harness.ranks import mpirun, mpirun_each
from test_agent import Agent

pytestmark = pytest.mark.skipif(not shutil.which("mpirun") or not (BUILD / "trainer-mpi.so").exists(), reason="no Open MPI here")

SHAPE = {"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 256, "n_positions": 16}


def test_a_lost_node_is_resumed_from_the_mirror(mirrord, tmp_path):
    """Two ranks die with their disk; another node goes on from what the mirror has, and its bits are those of the unbroken run."""
    m = mirrord('repo "models" { protocol = "hosted" }')
    (tmp_path / "text").write_bytes(bytes(i * i % 251 for i in range(9000)))
    (tmp_path / "shape.json").write_text(json.dumps(SHAPE))
    subprocess.run([BUILD / "trainer", "tokenize", "--out", tmp_path / "data.bin", tmp_path / "text"], check=True, capture_output=True)

    def train(out, *more):
        return [BUILD / "trainer", "train", "--config", tmp_path / "shape.json", "--data", tmp_path / "data.bin", "--device", "cpu",
                "--batch", 1, "--deterministic", "--zero", 3, "--steps", 1000000, "--out", out, *more]

    spot, fresh = Agent(tmp_path / "spot", m), Agent(tmp_path / "fresh", m)
    lost = spot.folder / "run"
    ranks = mpirun(2, train(lost, "--save-every", 200, "--keep", 2), tmp_path / "log")
    follows = spot.start("publish", "--follow", lost, "models/me/gpt", "-v")
    try:
        def published():
            listing = m.get("/models/me/gpt/trainer.json")
            return listing.status == 200 and json.loads(listing.body)["step"] >= 400 or follows.poll() is not None
        until(published)
        assert follows.poll() is None and ranks.process.poll() is None
        os.kill(ranks.pid(1), signal.SIGKILL)  # in the middle of whatever is being sent
        follows.kill()
        said = follows.communicate()[1]
        ranks.wait()
    finally:
        follows.kill()
        ranks.close()
    assert "publish.followed to=models/me/gpt step=" in said, said
    shutil.rmtree(lost)

    fresh("pull", "models/me/gpt", "--to", fresh.folder / "pulled")
    subprocess.run(["sha256sum", "-c", "--quiet", "manifest.sha256"], cwd=fresh.folder / "pulled", check=True)
    step = json.loads((fresh.folder / "pulled/trainer.json").read_text())["step"]
    end = ["--stop-at", step + 5]
    went_on = mpirun_each(*[train(fresh.folder / "run", "--resume", fresh.folder / "pulled", *end)] * 2)
    assert went_on.returncode == 0, went_on.stderr
    whole = mpirun_each(*[train(tmp_path / "whole", *end)] * 2)
    assert whole.returncode == 0, whole.stderr
    assert digests(fresh.folder / f"run/checkpoint-{step + 5}") == digests(tmp_path / f"whole/checkpoint-{step + 5}")
