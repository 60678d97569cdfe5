"""Ranks under mpirun that send thin factors instead of gradients (--compress): what is learned, what is sent, what is refused."""
import hashlib
import itertools
import json
import platform
import shutil
import subprocess

import pytest

from harness.mirrord import BUILD
from harness.ranks import mpirun_each

pytestmark = pytest.mark.skipif(not shutil.which("mpirun") or not (BUILD / "trainer-mpi.so").exists(), reason="no Open MPI here")

SHAPE = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64,
         "intermediate_size": 96, "vocab_size": 256, "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
         "tie_word_embeddings": False}
COMPRESSED = ("--compress", "powersgd:4", "--compress-start", 5)


def run(ranks, *args):
    return mpirun_each(*[[BUILD / "trainer", *args]] * ranks)


class Job:
    def __init__(self, folder):
        self.folder, self.names = folder, itertools.count()
        (folder / "text").write_bytes(bytes(i * i % 251 for i in range(9000)))
        subprocess.run([BUILD / "trainer", "tokenize", "--out", folder / "data.bin", folder / "text"], check=True, capture_output=True)
        (folder / "shape.json").write_text(json.dumps(SHAPE))

    def args(self, out, *more):
        return ("train", "--config", self.folder / "shape.json", "--data", self.folder / "data.bin", "--device", "cpu", "--steps", 30,
                "--batch", 1, "--out", out, *more)

    def train(self, ranks, *more, out=None):
        """What metrics.jsonl has of each step, the tensors' digests of the newest checkpoint, and what was said."""
        out = out or self.folder / str(next(self.names))
        done = run(ranks, *self.args(out, *more))
        assert done.returncode == 0, done.stderr
        newest = max(out.glob("checkpoint-*"), key=lambda p: int(p.name.split("-")[1]))
        steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        tensors = {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in newest.glob("*.safetensors")}
        return steps, tensors, done.stderr

    def info(self, *more):
        done = subprocess.run([BUILD / "trainer", "info", "--config", self.folder / "shape.json", "--device", "cpu", "--batch", "1", "--json",
                               *map(str, more)], check=True, text=True, capture_output=True)
        return json.loads(done.stdout.splitlines()[-1])["memory"]


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


def test_less_is_sent_and_as_much_learned(job):
    plain, _, _ = job.train(2)
    steps, _, said = job.train(2, *COMPRESSED)
    told = job.info("--ranks", 2, *COMPRESSED[:2])["gradient_bytes"]
    assert [s["gradient_bytes"] for s in steps] == [told["plain"]] * 5 + [told["compressed"]] * 25
    assert [s["gradient_bytes"] for s in plain] == [told["plain"]] * 30
    # q, o: 64 x 64, k, v: 32 x 64, gate, up, down: 96 x 64; and what is between two ranks is 2 / 2 of a sum.
    saved = 2 * 4 * (2 * (64 * 64 - 4 * 128) + 2 * (32 * 64 - 4 * 96) + 3 * (96 * 64 - 4 * 160))
    assert told["plain"] - told["compressed"] == saved
    assert [s["loss"] for s in steps[:6]] == [s["loss"] for s in plain[:6]]
    assert steps[-1]["loss"] < 1.02 * plain[-1]["loss"] < 0.95 * plain[0]["loss"]
    assert "gradients are compressed from step 6 on: each rank sends " in said


def test_memory_is_as_told(job):
    plain, compressed = (job.info("--ranks", 2, *more)["train"] for more in ([], COMPRESSED[:2]))
    matrices = 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 96 * 64)  # E; Q of each, and P of a block
    factors = 2 * 4 * (6 * 64 + 96) + 4 * (2 * 64 + 2 * 32 + 2 * 96 + 64)
    assert compressed["gradients"] - plain["gradients"] == 4 * (matrices + factors)
    assert {**compressed, "gradients": 0, "total": 0} == {**plain, "gradients": 0, "total": 0}


@pytest.mark.parametrize("more", [["--zero", 1, "--accum", 2], ["--dtype", "bf16"], ["--dtype", "fp16", "--loss-scale", 1e9]], ids=str)
def test_the_same_bits_each_time(job, more):
    """With fp16, after steps that overflow and are not taken."""
    one, other = (job.train(3, "--deterministic", "--compress", "powersgd:2", "--compress-start", 0, *more) for _ in range(2))
    assert one[1] == other[1]
    assert one[0][-1]["loss"] < 0.95 * one[0][0]["loss"]
    assert ("the gradient overflowed" in one[2]) == ("fp16" in more)


@pytest.mark.parametrize("args,said", [
    (["--compress", "powersgd:4", "--zero", 2], "--compress needs whole gradients on each rank, but --zero 2 divides them"),
    (["--compress", "powersgd:4", "--zero", 3], "--zero 0 or 1"),
    (["--compress", "powersgd:4", "--zero", 1, "--shard-group", 2], "leave out --shard-group"),
    (["--compress", "powersgd:4", "--tp", 2], "--compress needs whole matrices on each rank, but --tp 2 divides them"),
    (["--zero", 4], "--zero 4 is invalid; give 0, 1, 2 or 3"), (["--zero", -1], "--zero -1 is invalid; give 0, 1, 2 or 3"),
    (["--compress", "powersgd:0"], "with a rank from 1 to 256"), (["--compress", "powersgd:257"], "with a rank from 1 to 256"),
    (["--compress", "powersgd"], "give none or powersgd:RANK"), (["--compress", "topk:4"], "--compress topk:4 is invalid; give none or powersgd:RANK"),
    (["--compress-start", 4], "--compress-start needs --compress"), (["--compress-start", -2], "--compress-start -2")], ids=str)
def test_what_does_not_go_together_is_refused(job, args, said):
    done = run(1, *job.args(job.folder / "no", *args))
    assert done.returncode == 64 and said in done.stderr, done.stderr


def test_ranks_that_compress_otherwise_are_refused(job):
    done = mpirun_each(*[[BUILD / "trainer", *job.args(job.folder / "apart", *more)] for more in (COMPRESSED, COMPRESSED[:2])])
    assert done.returncode == 78 and "1 of 2 ranks do not start in the state of rank 0" in done.stderr, done.stderr


@pytest.mark.parametrize("more", [[], ["--zero", 1, "--deterministic", "--accum", 2], ["--dtype", "bf16"]], ids=str)
def test_a_resumed_run_goes_on_to_the_same_bits(job, more):
    """From a checkpoint before compression begins, and from one after."""
    _, whole, _ = job.train(2, *COMPRESSED, *more)
    assert sum(name.startswith("powersgd-0000") for name in whole) == 2
    out = job.folder / "out"
    _, early, _ = job.train(2, *COMPRESSED, *more, "--stop-at", 4, out=out)
    assert not any(name.startswith("powersgd") for name in early)
    job.train(2, *COMPRESSED, *more, "--resume", "auto", "--stop-at", 11, out=out)
    _, again, said = job.train(2, *COMPRESSED, *more, "--resume", "auto", out=out)
    assert again == whole and "is dropped" not in said


@pytest.mark.parametrize("ranks,more", [(3, []), (2, ["--compress", "powersgd:2"]), (1, [])], ids=str)
def test_what_fits_no_more_is_dropped(job, ranks, more):
    out = job.folder / "out"
    job.train(2, *COMPRESSED, "--stop-at", 11, out=out)
    steps, _, said = job.train(ranks, *COMPRESSED, *more, "--resume", "auto", out=out)
    assert "the accumulated compression error is dropped" in said and steps[-1]["loss"] < steps[0]["loss"]


def test_a_run_that_compresses_no_more_says_what_it_drops(job):
    out = job.folder / "out"
    job.train(2, *COMPRESSED, "--stop-at", 11, out=out)
    _, _, said = job.train(2, "--stop-at", 12, "--resume", "auto", out=out)
    assert "the accumulated compression error is dropped: gradients are no longer compressed" in said
    assert "is dropped" not in job.train(2, "--resume", "auto", out=out)[2]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="OPENBLAS_CORETYPE has other names here")
@pytest.mark.parametrize("zero", [0, 1])
def test_processors_that_round_in_different_ways(job, zero):
    """In stage 0 each rank would go on with weights of its own; in stage 1 each weight comes from one rank."""
    argv = [BUILD / "trainer", *job.args(job.folder / "out", *COMPRESSED, "--zero", zero)]
    done = mpirun_each(*[["env", f"OPENBLAS_CORETYPE={core}", *argv] for core in ("Prescott", "Haswell")])
    if zero == 0:
        assert done.returncode == 78 and "--compress: the parameters of the ranks differ after step 6" in done.stderr, done.stderr
    else:
        assert done.returncode == 0, done.stderr


@pytest.mark.skipif(platform.machine() != "x86_64", reason="OPENBLAS_CORETYPE has other names here")
def test_a_run_that_goes_on_with_other_processors(job):
    """The first step after it is compared, whatever its number: hosts may have been replaced."""
    out = job.folder / "out"
    job.train(2, *COMPRESSED, "--stop-at", 8, out=out)
    argv = [BUILD / "trainer", *job.args(out, *COMPRESSED, "--resume", "auto")]
    done = mpirun_each(*[["env", f"OPENBLAS_CORETYPE={core}", *argv] for core in ("Prescott", "Haswell")])
    assert done.returncode == 78 and "--compress: the parameters of the ranks differ after step 9" in done.stderr, done.stderr


def test_a_damaged_part_is_seen(job):
    """By its rank: the first one reads its own alone. The whole checkpoint counts as damaged then, and the one before it is taken."""
    out = job.folder / "out"
    job.train(2, *COMPRESSED, "--save-every", 8, "--stop-at", 16, out=out)
    part = out / "checkpoint-16/powersgd-00002-of-00002.safetensors"
    damaged = bytearray(part.read_bytes())
    damaged[-5] ^= 1
    part.write_bytes(damaged)
    _, again, said = job.train(2, *COMPRESSED, "--resume", "auto", out=out)
    assert "checkpoint-16" in said and "checkpoint-8" in said
    assert "powersgd-00002-of-00002.safetensors: the file differs from the manifest in the " in said
    assert again == job.train(2, *COMPRESSED)[1]


def test_a_rank_that_cannot_write_voids_the_checkpoint(job):
    """Of that step alone: the run goes on, and nothing of it is left."""
    out = job.folder / "out"
    (job.folder / "order").write_text("28 1 write powersgd-00002")
    argv = [BUILD / "trainer", *job.args(out, *COMPRESSED, "--save-every", 8, "--keep", 0)]
    fails = ["sh", "-c", f'export LD_PRELOAD={BUILD}/crash/failer.so FAIL_FILE={job.folder}/order; exec "$@"', "sh", *argv]
    done = mpirun_each(argv, fails)
    assert done.returncode == 0 and "another rank could not write its part" in done.stderr and "No space left" in done.stderr, done.stderr
    assert sorted(p.name for p in out.glob("checkpoint-*")) == ["checkpoint-16", "checkpoint-24", "checkpoint-30"]


def test_what_does_nothing_is_said(job):
    assert "--compress has no effect: a single rank sends no gradients" in job.train(1, *COMPRESSED)[2]
    assert "--compress has no effect: it starts after step 1000, but --steps is 30; start it sooner with --compress-start" in job.train(2, *COMPRESSED[:2])[2]
