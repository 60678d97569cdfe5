"""Gradients that go between ranks in bf16 (--reduce-dtype): half of the bytes, the same bits in every stage, much the same losses."""
import json
import shutil
import subprocess

import pytest

from harness.mirrord import BUILD
from harness.ranks import mpirun_each

pytestmark = pytest.mark.skipif(not shutil.which("mpirun") or not (BUILD / "trainer-mpi.so").exists(), reason="no Open MPI here")


@pytest.fixture
def train(tmp_path):
    (tmp_path / "text").write_bytes(bytes(i * i % 251 for i in range(9000)))
    subprocess.run([BUILD / "trainer", "tokenize", "--out", tmp_path / "data.bin", tmp_path / "text"], check=True, capture_output=True)

    def run(name, *more, ranks=2):
        argv = [BUILD / "trainer", "train", "--config", "demo", "--data", tmp_path / "data.bin", "--device", "cpu", "--steps", 12, "--batch", 1, "--seq",
                32, "--out", tmp_path / name, *more]
        done = mpirun_each(*[argv] * ranks)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]

    return run


def told(*more):
    done = subprocess.run([BUILD / "trainer", "info", "--config", "demo", "--device", "cpu", "--json", *map(str, more)], check=True, text=True,
                          capture_output=True)
    return json.loads(done.stdout.splitlines()[-1])["memory"]


def test_half_is_sent_and_as_much_learned(train):
    wide, narrow = train("wide"), train("narrow", "--reduce-dtype", "bf16")
    assert all(2 * n["gradient_bytes"] == w["gradient_bytes"] for n, w in zip(narrow, wide))
    assert narrow[0]["loss"] == wide[0]["loss"] and narrow[-1]["loss"] != wide[-1]["loss"]
    assert narrow[-1]["loss"] == pytest.approx(wide[-1]["loss"], rel=0.01) and wide[-1]["loss"] < 0.95 * wide[0]["loss"]
    plan = told("--ranks", 2, "--reduce-dtype", "bf16")
    assert plan["gradient_bytes"]["plain"] == narrow[0]["gradient_bytes"]
    assert plan["train"]["gradients"] > told("--ranks", 2)["train"]["gradients"]


def test_groups_of_ranks_too(train):
    """Pieces are scattered inside a group of two, and summed over two groups."""
    wide, narrow = (train(dtype, "--reduce-dtype", dtype, "--zero", 2, "--shard-group", 2, ranks=4) for dtype in ("f32", "bf16"))
    assert 2 * narrow[0]["gradient_bytes"] == wide[0]["gradient_bytes"]
    assert wide[0]["gradient_bytes"] == told("--ranks", 4, "--zero", 2, "--shard-group", 2)["gradient_bytes"]["plain"]
    assert narrow[-1]["loss"] == pytest.approx(wide[-1]["loss"], rel=0.01) and narrow[-1]["loss"] != wide[-1]["loss"]


@pytest.mark.parametrize("accum", [1, 2])
def test_all_stages_give_the_same_bits(train, accum):
    got = [train(f"stage-{z}", "--reduce-dtype", "bf16", "--deterministic", "--accum", accum, "--zero", z, ranks=3) for z in range(4)]
    for z, steps in enumerate(got):
        assert [s["loss"] for s in steps] == [s["loss"] for s in got[0]]
        sent = told("--ranks", 3, "--reduce-dtype", "bf16", "--deterministic", "--accum", accum, "--zero", z)["gradient_bytes"]["plain"]
        assert steps[0]["gradient_bytes"] == pytest.approx(sent, abs=1)


@pytest.mark.parametrize("args,said", [(["f16"], "--reduce-dtype f16 is invalid; give f32 or bf16"),
                                       (["bf16", "--compress", "powersgd:2"], "--reduce-dtype bf16 cannot be combined with --compress")], ids=str)
def test_what_is_refused(tmp_path, args, said):
    done = subprocess.run([BUILD / "trainer", "info", "--config", "demo", "--ranks", "2", "--device", "cpu", "--reduce-dtype", *args], text=True,
                          capture_output=True)
    assert done.returncode == 64 and said in done.stderr
