"""Ranks that write a checkpoint together: a slow one, one without room, files that are damaged or missing, a signal meanwhile."""
import json
import os
import re
import shutil
import signal
import subprocess

import pytest

from harness.checkpoint import digests
from harness.mirrord import BUILD
from harness.ranks import mpirun, mpirun_each

pytestmark = pytest.mark.skipif(not shutil.which("mpirun") or not (BUILD / "trainer-mpi.so").exists(), reason="no Open MPI here")

SHAPE = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "hidden_size": 16,
         "intermediate_size": 24, "vocab_size": 256, "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
         "tie_word_embeddings": False}


class Job:
    def __init__(self, folder):
        self.folder, self.out = folder, folder / "out"
        (folder / "text").write_bytes(bytes(i * i % 251 for i in range(9000)))
        subprocess.run([BUILD / "trainer", "tokenize", "--out", folder / "data.bin", folder / "text"], check=True, capture_output=True)
        (folder / "shape.json").write_text(json.dumps(SHAPE))

    def train(self, *more, out=None):
        return [BUILD / "trainer", "train", "--config", self.folder / "shape.json", "--data", self.folder / "data.bin", "--device", "cpu",
                "--batch", 1, "--deterministic", "--keep", 0, "--resume", "auto", "--out", out or self.out, *more]

    def run(self, ranks, *more, code=0, out=None):
        done = mpirun_each(*[self.train(*more, out=out)] * ranks)
        assert done.returncode == code, done.stderr
        return done.stderr

    def one_errs(self, ranks, rank, order, *more):
        """Ranks of which one has disk calls that fail, or wait, as crash/failer.c reads it."""
        setup = (f'if [ "$OMPI_COMM_WORLD_RANK" = {rank} ]; then export LD_PRELOAD={BUILD}/crash/failer.so '
                 f'FAIL_FILE={self.folder}/order; fi; exec "$@"')
        (self.folder / "order").write_text(order)
        return mpirun(ranks, ["sh", "-c", setup, "sh", *self.train(*more)], self.folder / "log")

    def step(self):
        """The last one that metrics.jsonl knows of."""
        lines = (self.out / "metrics.jsonl").read_text().splitlines() if (self.out / "metrics.jsonl").exists() else []
        return json.loads(lines[-1])["step"] if lines and lines[-1].endswith("}") else 0

    def checkpoints(self):
        return sorted(p.name for p in self.out.glob("checkpoint-*"))


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


def test_another_number_of_ranks_in_another_stage_goes_on(job):
    """In deterministic mode the run that goes on with as many ranks equals the unbroken one, in whatever stage."""
    job.run(4, "--zero", 3, "--steps", 12, out=job.folder / "whole")
    job.run(4, "--zero", 3, "--steps", 12, "--stop-at", 6)
    saved = digests(job.out / "checkpoint-6")
    for ranks, zero in ((1, 0), (2, 1), (3, 2), (8, 3)):
        out = job.folder / f"{ranks}-ranks"
        shutil.copytree(job.out, out)
        said = job.run(ranks, "--zero", zero, "--steps", 12, "--stop-at", 7, out=out)
        assert f"ranks {ranks} (was 4)" in said and digests(out / "checkpoint-6") == saved != digests(out / "checkpoint-7")
    job.run(4, "--zero", 0, "--steps", 12)
    assert digests(job.out / "checkpoint-12") == digests(job.folder / "whole/checkpoint-12")


def test_training_goes_on_while_a_rank_is_slow_to_write(job):
    ranks = job.one_errs(3, 2, "0 on write optimizer-00003", "--zero", 2, "--steps", 1000000, "--save-every", 2, "--log-every", 1)
    try:
        ranks.until(lambda: list(job.out.glob("checkpoint-2.*.partial")), "a checkpoint")
        ranks.until(lambda: job.step() == 4, "the next one, which waits for it")
        assert [re.sub(r"\.[0-9a-f]+\.", ".", name) for name in job.checkpoints()] == ["checkpoint-2.partial"]
        (job.folder / "order").unlink()
        ranks.until(lambda: (job.out / "checkpoint-2").exists() and job.step() > 6, "more of them")
        os.kill(ranks.pid(1), signal.SIGTERM)
        assert ranks.wait() == 75, ranks.said
    finally:
        ranks.close()
    digests(job.out / "checkpoint-2")


def test_a_signal_while_ranks_write(job):
    """What is under way is committed, and the step of the signal after it, before all end with 75."""
    ranks = job.one_errs(2, 1, "0 on write optimizer-00002", "--zero", 1, "--steps", 1000000, "--save-every", 3, "--log-every", 1)
    try:
        ranks.until(lambda: list(job.out.glob("checkpoint-3.*.partial")), "a checkpoint")
        os.kill(ranks.pid(0), signal.SIGTERM)
        (job.folder / "order").unlink()
        assert ranks.wait() == 75, ranks.said
    finally:
        ranks.close()
    last = int(ranks.said.split(" after step ")[1].split(";")[0])
    assert set(job.checkpoints()) == {f"checkpoint-{s}" for s in {*range(3, last + 1, 3), last}}
    for name in job.checkpoints():
        digests(job.out / name)


def test_a_rank_without_room_voids_the_checkpoint(job):
    """For all ranks, with a warning; nothing of it stays, and the next one is tried in its turn."""
    ranks = job.one_errs(3, 1, "28 1 write optimizer-00002", "--zero", 3, "--steps", 6, "--save-every", 2)  # once
    try:
        assert ranks.wait() == 0, ranks.said
    finally:
        ranks.close()
    assert "checkpoint.part step=2 rank=1" in ranks.said and "No space left" in ranks.said
    assert "checkpoint.failed step=2 another rank could not write its part" in ranks.said
    assert job.checkpoints() == ["checkpoint-4", "checkpoint-6"]

    ranks = job.one_errs(3, 2, "28 on write optimizer-00003", "--zero", 3, "--steps", 8)  # the last one: all end by it
    try:
        assert ranks.wait() == 73, ranks.said
    finally:
        ranks.close()
    assert job.checkpoints() == ["checkpoint-4", "checkpoint-6"]


def test_ranks_pass_over_what_one_of_them_finds_damaged(job):
    job.run(4, "--zero", 3, "--steps", 6, "--save-every", 2)
    shutil.copytree(job.out, job.folder / "before")
    part = job.out / "checkpoint-6/optimizer-00003-of-00004.safetensors"
    data = bytearray(part.read_bytes())
    data[-20] ^= 1
    part.write_bytes(data)
    (job.out / "checkpoint-4/optimizer-00002-of-00004.safetensors").unlink()
    said = job.run(2, "--zero", 2, "--steps", 6)
    assert "checkpoint-6/optimizer-00003-of-00004.safetensors: the file differs from the manifest" in said
    assert "checkpoint-4/optimizer-00002-of-00004.safetensors: No such file" in said and "out/checkpoint-2: llama" in said
    digests(job.out / "checkpoint-6")  # written again

    shutil.rmtree(job.out)
    shutil.copytree(job.folder / "before", job.out)
    for step in (2, 4, 6):
        (job.out / f"checkpoint-{step}/optimizer-00001-of-00004.safetensors").unlink()
    said = job.run(2, "--zero", 2, "--steps", 7, code=66)
    assert "every checkpoint is damaged" in said and "optimizer-00001-of-00004.safetensors" in said


def test_files_of_a_larger_model_are_several_ranks(job):
    """Each about as large as the others, and read by whoever reads the Hub's."""
    (job.folder / "shape.json").write_text(json.dumps({**SHAPE, "hidden_size": 512, "intermediate_size": 512, "num_hidden_layers": 8}))
    job.run(3, "--zero", 3, "--steps", 1)
    at = job.out / "checkpoint-1"
    sizes = [p.stat().st_size for p in sorted(at.glob("model-*-of-00003.safetensors"))]
    assert len(sizes) == 3 and max(sizes) < 1.5 * min(sizes) and not (at / "model.safetensors").exists()
    index = json.loads((at / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == {f"model-{i:05}-of-00003.safetensors" for i in (1, 2, 3)}
    subprocess.run(["sha256sum", "-c", "--quiet", "manifest.sha256"], cwd=at, check=True)
    said = subprocess.run([BUILD / "trainer", "info", "--json", at], check=True, capture_output=True, text=True).stdout
    assert json.loads(said.splitlines()[-1])["verified"]
