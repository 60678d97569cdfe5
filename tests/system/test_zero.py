"""Ranks under mpirun that share out what they train (--zero): the same bits in every stage, and from every checkpoint."""
import itertools
import json
import shutil
import subprocess
from unittest.mock import ANY

import pytest

from harness.checkpoint import digests
from harness.mirrord import BUILD
from harness.ranks import mpirun_each

pytestmark = pytest.mark.skipif(not shutil.which("mpirun") or not (BUILD / "trainer-mpi.so").exists(), reason="no Open MPI here")

SHAPES = {
    "gpt2": {"model_type": "gpt2", "n_layer": 3, "n_head": 2, "n_embd": 24, "vocab_size": 256, "n_positions": 16},
    "llama": {"model_type": "llama", "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32,
              "intermediate_size": 48, "vocab_size": 256, "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
              "tie_word_embeddings": False}}


def run(ranks, *args):
    return mpirun_each(*[[BUILD / "trainer", *args]] * ranks)


class Job:
    def __init__(self, folder):
        self.folder, self.names = folder, itertools.count()
        (folder / "text").write_bytes(bytes(i * i % 251 for i in range(9000)))
        subprocess.run([BUILD / "trainer", "tokenize", "--out", folder / "data.bin", folder / "text"], check=True, capture_output=True)
        for name, shape in SHAPES.items():
            (folder / f"{name}.json").write_text(json.dumps(shape))

    def args(self, shape, out, *more, deterministic=True):
        return ("train", "--config", self.folder / f"{shape}.json", "--data", self.folder / "data.bin", "--device", "cpu", "--steps", 20,
                "--batch", 1, *(["--deterministic"] if deterministic else []), "--out", out, *more)

    def train(self, ranks, shape, *more, out=None):
        """The tensors' digests of the newest checkpoint, and what was said."""
        out = out or self.folder / str(next(self.names))
        done = run(ranks, *self.args(shape, out, *more))
        assert done.returncode == 0, done.stderr
        newest = max(out.glob("checkpoint-*"), key=lambda p: int(p.name.split("-")[1]))
        return digests(newest), done.stderr

    def start_apart(self, one, other, deterministic=True):
        return mpirun_each(*[[BUILD / "trainer", *self.args("llama", self.folder / "apart", *more, deterministic=deterministic)]
                             for more in (one, other)])


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_all_stages_give_the_same_bits(job, shape, ranks):
    """Validation gathers parameters too, on ranks that have a batch less as well."""
    for more in (["--accum", 2, "--recompute", "block"],
                 ["--val", job.folder / "data.bin", "--val-every", 9, "--val-batches", 5])[:2 if ranks == 2 else 1]:
        got = [job.train(ranks, shape, "--zero", z, *more)[0] for z in range(4)]
        assert got[1:] == got[:1] * 3


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_narrow_parameters_too(job, dtype):
    """Rounded by chance, and with f16 steps that overflow at first: all ranks leave them out."""
    more = ["--dtype", dtype, *(["--loss-scale", 1e10] if dtype == "fp16" else [])]
    got = [job.train(3, "llama", "--zero", z, *more) for z in range(4)]
    assert [tensors for tensors, _ in got][1:] == [got[0][0]] * 3
    assert all(("the gradient overflowed" in said) == (dtype == "fp16") for _, said in got)


def test_a_resumed_run_goes_on_to_the_same_bits(job):
    whole, _ = job.train(2, "llama", "--zero", 2)
    out = job.folder / "stopped"
    job.train(2, "llama", "--zero", 2, "--stop-at", 11, out=out)
    assert job.train(2, "llama", "--zero", 2, "--resume", "auto", out=out)[0] == whole
    # In another stage, and as one rank that adds up two batches for each of theirs.
    other = job.folder / "other"
    job.train(2, "llama", "--zero", 3, "--stop-at", 11, out=other)
    assert job.train(2, "llama", "--zero", 0, "--resume", "auto", out=other)[0] == whole


@pytest.mark.parametrize("zero,accum", [(1, 1), (2, 2), (3, 1)])
def test_groups_of_ranks_hold_copies(job, zero, accum):
    """Sums are of two ranks, then of two sums. One group of all is the same as no groups, and so is a sum over groups of one."""
    more = ["--zero", zero, "--accum", accum, "--shard-group"]
    whole, pairs, again, alone = (job.train(4, "llama", *more, n)[0] for n in (0, 2, 2, 1))
    assert pairs == again and whole == alone
    assert job.train(1, "llama", "--zero", zero)[0] == job.train(1, "llama")[0]
    done = run(4, *job.args("llama", job.folder / "no", "--zero", 1, "--shard-group", 3))
    assert done.returncode == 64 and "the number of ranks (4) must be a multiple of it" in done.stderr


def test_fewer_ranks_go_on(job):
    out = job.folder / "out"
    job.train(4, "gpt2", "--zero", 3, "--stop-at", 6, out=out)
    _, said = job.train(2, "gpt2", "--zero", 1, "--accum", 2, "--resume", "auto", out=out)
    assert "resumed with --accum 2 (was 1), ranks 2 (was 4): a step takes 64 tokens as before" in said


@pytest.mark.parametrize("one,other", [
    (["--zero", 1], ["--zero", 2]), (["--zero", 0, "--dtype", "bf16"], ["--zero", 1, "--dtype", "bf16"]),
    (["--zero", 1, "--dtype", "bf16"], ["--zero", 1, "--dtype", "f32"]), (["--zero", 1, "--shard-group", 1], ["--zero", 1]),
    (["--zero", 3, "--recompute", 2], ["--zero", 3]), (["--skip-norm", 3], [])], ids=str)
def test_ranks_with_different_options_are_refused(job, one, other):
    """Before a collective that only some of them would make."""
    done = job.start_apart(one, other)
    assert done.returncode == 78 and "1 of 2 ranks do not start in the state of rank 0" in done.stderr, done.stderr


def test_ranks_that_add_in_different_orders_are_refused(job):
    done = job.start_apart(["--deterministic"], [], deterministic=False)
    assert done.returncode == 78 and "only some ranks were started with --deterministic" in done.stderr, done.stderr


def test_an_unknown_stage_is_refused(job):
    done = run(1, *job.args("gpt2", job.folder / "out", "--zero", 4))
    assert done.returncode == 64 and "--zero 4" in done.stderr


def test_info_predicts_what_each_rank_takes():
    def rank(*more):
        done = subprocess.run([BUILD / "trainer", "info", "--config", "llama-8b", "--device", "cpu", "--dtype", "bf16", "--recompute",
                               "block", "--batch", "1", "--seq", "4096", "--json", *map(str, more)], check=True, text=True, capture_output=True)
        memory = json.loads(done.stdout.splitlines()[-1])["memory"]
        return {**memory["train"], "host": memory["checkpoint_host"]}

    alone, shared = rank(), [rank("--ranks", 8, "--zero", z) for z in range(4)]
    assert shared[0]["weights"] == pytest.approx(alone["weights"], rel=1e-3)
    assert shared[1]["optimizer"] == pytest.approx(alone["optimizer"] / 8, rel=1e-3)
    assert shared[1]["gradients"] == shared[0]["gradients"] > 2 * shared[2]["gradients"]
    assert shared[2]["weights"] > 3 * shared[3]["weights"]
    assert shared[3]["total"] < 40 << 30
    assert alone["host"] == pytest.approx(12 * 8.03e9, rel=1e-2) and shared[3]["host"] < 1.2 * alone["host"] / 8


def info(*more):
    return subprocess.run([BUILD / "trainer", "info", "--config", "llama-8b", "--recompute", "block", "--batch", "1", "--seq", "4096", "--json",
                           *map(str, more)], text=True, capture_output=True, check=False)


def planned(*more):
    done = info(*more)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])["memory"]


def test_info_divides_within_groups():
    """A rank of 64 in groups of 8 takes as much as one of 8, and sends its piece to the other groups besides."""
    more = ["--device", "cpu", "--dtype", "bf16", "--zero", 3]
    group, eight, world = planned("--ranks", 64, "--shard-group", 8, *more), planned("--ranks", 8, *more), planned("--ranks", 64, *more)
    assert group["train"] == eight["train"] and group["train"]["total"] > world["train"]["total"]
    assert group["gradient_bytes"]["plain"] - eight["gradient_bytes"]["plain"] == pytest.approx(2 * 4 * 8.03e9 / 8 * 7 / 8, rel=1e-2)
    assert planned("--ranks", 64, "--shard-group", 64, *more) == {**world, "shard_group": 64, "free": ANY, "largest_batch": ANY}


def test_info_plans_for_a_gpu_that_is_not_here():
    """In its type, with what its streams take: the model's own, and one for the collectives of several ranks."""
    more = ["--zero", 1, "--ranks", 16]
    gpu, cpu = planned("--memory", "79g", *more), planned("--device", "cpu", "--dtype", "bf16", *more)
    assert gpu["device"] == "a GPU of 79.0 GiB" and gpu["dtype"] == "bf16" and gpu["free"] == (79 << 30) - (128 << 20)
    assert gpu["train"]["gradients"] - cpu["train"]["gradients"] == 128 << 20 and gpu["train"]["weights"] == cpu["train"]["weights"]
    assert gpu["largest_batch"]["train"] > 0 and planned("--memory", "40g", *more)["largest_batch"]["train"] == 0
    at = planned("--memory", "79g", *more, "--batch", gpu["largest_batch"]["train"])
    assert at["train"]["total"] <= gpu["free"]


@pytest.mark.parametrize("more,said", [
    (["--memory", "much"], "--memory much is not a size; write one such as 79g"), (["--memory", "0"], "--memory 0 is not a size; write one such as 79g"),
    (["--ranks", 6, "--zero", 1, "--shard-group", 4], "--shard-group 4: the number of ranks (6) must be a multiple of it"),
    (["--ranks", 4, "--shard-group", 2], "--shard-group needs --zero 1, 2 or 3"), (["--zero", 4], "--zero 4 is invalid; give 0, 1, 2 or 3")], ids=str)
def test_info_refuses(more, said):
    done = info(*more)
    assert done.returncode == 64 and said in done.stderr, done.stderr
