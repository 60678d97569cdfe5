"""Ranks under mpirun that cut a model between them (--tp): as one rank that has it all, with the same files."""
import itertools
import json
import shutil
import subprocess

import pytest

from harness.checkpoint import digests
from harness.mirrord import BUILD
from harness.ranks import mpirun_each

pytestmark = pytest.mark.skipif(not shutil.which("mpirun") or not (BUILD / "trainer-mpi.so").exists(), reason="no Open MPI here")

# 301 tokens: with --tp 4 the last rank has none of them, for each has 128 rows.
SHAPES = {
    "gpt2": {"model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 24, "vocab_size": 301, "n_positions": 16},
    "llama": {"model_type": "llama", "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4, "hidden_size": 32,
              "intermediate_size": 48, "vocab_size": 301, "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
              "tie_word_embeddings": False}}
SHAPES["gqa"] = {**SHAPES["llama"], "num_key_value_heads": 2, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}


class Job:
    def __init__(self, folder):
        self.folder, self.names = folder, itertools.count()
        (folder / "text").write_bytes(bytes(i * i % 251 for i in range(9000)))
        subprocess.run([BUILD / "trainer", "tokenize", "--out", folder / "data.bin", folder / "text"], check=True, capture_output=True)
        for name, shape in SHAPES.items():
            (folder / f"{name}.json").write_text(json.dumps(shape))

    def start(self, ranks, shape, *more, out):
        start = ["--config", self.folder / f"{shape}.json"] if "--model" not in more else []
        args = ("train", *start, "--data", self.folder / "data.bin", "--device", "cpu", "--batch", 2, "--log-every", 1, "--out", out, *more)
        return mpirun_each(*[[BUILD / "trainer", *args]] * ranks)

    def train(self, ranks, shape, *more, out=None):
        """The newest checkpoint, and what was said."""
        out = out or self.folder / str(next(self.names))
        done = self.start(ranks, shape, *more, out=out)
        assert done.returncode == 0, done.stderr
        return max(out.glob("checkpoint-*"), key=lambda p: int(p.name.split("-")[1])), done.stderr


def losses(checkpoint, key="loss"):
    lines = map(json.loads, (checkpoint.parent / "metrics.jsonl").read_text().splitlines())
    return [line[key] for line in lines if key in line]


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


@pytest.mark.parametrize("shape,tp", [("gpt2", 2), ("gpt2", 4), ("llama", 2), ("llama", 4), ("gqa", 2)])
def test_fresh_weights_and_files_are_the_same_bytes(job, shape, tp):
    """A step with a learning rate of 0, then one from the file that was written."""
    still = ["--steps", 1, "--lr", 0]
    whole, _ = job.train(1, shape, *still)
    cut, said = job.train(tp, shape, *still, "--tp", tp)
    assert f"each model divided among {tp}" in said
    assert digests(cut)[0] == digests(whole)[0]
    again, _ = job.train(tp, shape, *still, "--tp", tp, "--model", cut)
    assert digests(again)[0] == digests(whole)[0]
    assert losses(cut) == pytest.approx(losses(whole), rel=1e-5)


@pytest.mark.parametrize("shape,ranks,more", [
    ("gpt2", 2, []), ("gqa", 2, ["--accum", 2, "--recompute", "block"]), ("llama", 4, ["--zero", 1]), ("gqa", 4, ["--zero", 3]),
    ("gpt2", 8, ["--zero", 2, "--shard-group", 2])], ids=str)
def test_learns_as_one_rank_does(job, shape, ranks, more):
    """In f32, whose rounding grows: 1e-12 in f64 is unit/agent/train/tensor_parallel's."""
    steps = ["--steps", 10, "--lr", 3e-3, "--val", job.folder / "data.bin", "--val-every", 5, "--val-batches", 3]
    passes = ranks // 2 * (2 if "--accum" in more else 1)
    whole, _ = job.train(1, shape, *steps, "--accum", passes)
    cut, _ = job.train(ranks, shape, *steps, *more, "--tp", 2)
    assert len(losses(cut)) == 10 and len(losses(cut, "val_loss")) == 2
    assert losses(cut) == pytest.approx(losses(whole), rel=1e-4)
    assert losses(cut, "val_loss") == pytest.approx(losses(whole, "val_loss"), rel=1e-4)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_narrow_types(job, dtype):
    cut, _ = job.train(2, "gqa", "--steps", 10, "--lr", 3e-3, "--tp", 2, "--dtype", dtype)
    whole, _ = job.train(1, "gqa", "--steps", 10, "--lr", 3e-3, "--dtype", dtype)
    assert losses(cut) == pytest.approx(losses(whole), rel=0.03)


def test_the_same_bits_again_and_after_a_stop(job):
    more = ["--steps", 12, "--deterministic", "--zero", 1, "--tp", 2]
    whole, _ = job.train(4, "llama", *more)
    out = job.folder / "stopped"
    job.train(4, "llama", *more, "--stop-at", 7, out=out)
    resumed, _ = job.train(4, "llama", *more, "--resume", "auto", out=out)
    assert digests(resumed) == digests(whole)


def test_goes_on_with_another_cut(job):
    more = ["--steps", 12, "--lr", 3e-3]
    whole, _ = job.train(1, "gqa", *more)
    out = job.folder / "other"
    job.train(2, "gqa", *more, "--tp", 2, "--stop-at", 4, out=out)
    job.train(1, "gqa", *more, "--resume", "auto", "--stop-at", 8, out=out)
    cut, said = job.train(2, "gqa", *more, "--resume", "auto", "--tp", 2, out=out)
    assert "resumed with ranks 2 (was 1), --tp 2 (was 1): a step takes 32 tokens as before" in said
    assert losses(cut) == pytest.approx(losses(whole), rel=1e-4)


@pytest.mark.parametrize("ranks,shape,more,said", [
    (3, "gpt2", ["--tp", 3], "--tp 3: the model's 4 heads cannot be divided evenly by this number of ranks"),
    (4, "gqa", ["--tp", 4], "--tp 4: the model's 2 key and value heads cannot be divided evenly"),
    (3, "gpt2", ["--tp", 2], "--tp 2: the number of ranks (3) must be a multiple of it"),
    (2, "gpt2", ["--tp", 2, "--seq", 7], "--seq 7 must be a multiple of --tp 2"),
    (1, "gpt2", ["--tp", 0], "--tp 0 is too small; give at least 1"),
    (1, "gpt2", ["--zero", 1, "--shard-group", 2**32 + 1], "--shard-group 4.29497e+09 is out of range; give at least 0 and less than"),
    (4, "llama", ["--tp", 2, "--zero", 1, "--shard-group", 3], "--shard-group 3: the number of ranks (2 with the same part of a model) must be a multiple of it")],
    ids=str)
def test_refused(job, ranks, shape, more, said):
    done = job.start(ranks, shape, *more, out=job.folder / "out")
    assert done.returncode == 64 and said in done.stderr, done.stderr


def test_ranks_with_different_cuts_are_refused(job):
    args = ("train", "--config", job.folder / "llama.json", "--data", job.folder / "data.bin", "--device", "cpu", "--out", job.folder / "out")
    done = mpirun_each([BUILD / "trainer", *args, "--tp", 2], [BUILD / "trainer", *args])
    assert done.returncode == 78 and "1 of 2 ranks do not start in the state of rank 0" in done.stderr, done.stderr


def test_info_predicts_what_each_rank_takes(job):
    def info(*more):
        return subprocess.run([BUILD / "trainer", "info", "--config", "llama-8b", "--device", "cpu", "--dtype", "bf16", "--recompute", "block",
                               "--batch", "1", "--seq", "4096", "--json", *map(str, more)], text=True, capture_output=True)

    def rank(*more):
        return json.loads(info(*more).stdout.splitlines()[-1])["memory"]["train"]

    alone, cut, both = rank(), rank("--ranks", 8, "--tp", 8), rank("--ranks", 64, "--tp", 8, "--zero", 1)
    for part in ("weights", "gradients", "optimizer"):
        assert cut[part] == pytest.approx(alone[part] / 8, rel=2e-3) # but for copies and padding
    assert cut["activations"] < alone["activations"] / 4
    assert both["optimizer"] == pytest.approx(cut["optimizer"] / 8, rel=1e-3)
    assert info("--ranks", 4, "--tp", 8).returncode == 64
    assert info("--ranks", 3, "--tp", 3).returncode == 64


def test_takes_what_info_says(job):
    """Each rank says what it takes before it takes it; info is of the same options."""
    _, said = job.train(2, "llama", "--steps", 1, "--tp", 2, "--dtype", "f32")
    done = subprocess.run([BUILD / "trainer", "info", "--config", job.folder / "llama.json", "--device", "cpu", "--dtype", "f32", "--ranks", "2",
                           "--tp", "2", "--batch", "2"], check=True, text=True, capture_output=True)
    total = next(line for line in said.splitlines() if line.startswith("memory on")).split(": ")[2].split(" of ")[0]
    assert total in done.stdout, (total, done.stdout)
