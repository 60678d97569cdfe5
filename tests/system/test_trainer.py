"""The trainer as a whole program: what it says about what it made."""
import json
import os
import subprocess

import pytest

from harness.mirrord import BUILD

SHAPE = '{"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 16, "vocab_size": 256, "n_positions": 16}'


def trainer(*args, code=0):
    run = subprocess.run([BUILD / "trainer", *map(str, args)], env=dict(os.environ, OMP_NUM_THREADS="1"), text=True,
                         capture_output=True, check=False)
    assert run.returncode == code, run.stderr
    return run.stdout if code == 0 else run.stderr


@pytest.fixture
def out(tmp_path):
    """What a run leaves: checkpoint-2, checkpoint-4 and checkpoint-10."""
    (tmp_path / "shape.json").write_text(SHAPE)
    (tmp_path / "text").write_bytes(bytes(i * i % 251 for i in range(5000)))
    trainer("tokenize", "--out", tmp_path / "data.bin", tmp_path / "text")
    for steps in (4, 10):
        trainer("train", "--config", tmp_path / "shape.json", "--data", tmp_path / "data.bin", "--out", tmp_path / "out", "--device",
                "cpu", "--steps", steps, "--batch", 2, "--save-every", 2 if steps == 4 else 10, "--keep", 9, "--resume", "auto")
    return tmp_path / "out"


def test_info_of_a_runs_folder_is_its_newest_checkpoint(out):
    said = json.loads(trainer("info", out, "--json").splitlines()[-1])
    assert said["step"] == 10 and said["verified"] and said["checkpoint"] == f"{out}/checkpoint-10"
    assert f"{out}/checkpoint-10, the newest of 3" in trainer("info", out)
    direct = json.loads(trainer("info", out / "checkpoint-4", "--json").splitlines()[-1])
    assert direct["step"] == 4 and "checkpoint" not in direct
    with open(out / "checkpoint-10/model.safetensors", "ab") as f:  # damaged: the next one, and a word about it
        f.write(b"x")
    run = subprocess.run([BUILD / "trainer", "info", out, "--json"], text=True, capture_output=True, check=True)
    assert json.loads(run.stdout.splitlines()[-1])["step"] == 4 and "checkpoint-10" in run.stderr


def test_info_of_what_is_nothing(tmp_path):
    assert f"{tmp_path}: holds neither a model (config.json) nor checkpoint-<step> folders" in trainer("info", tmp_path, code=66)
