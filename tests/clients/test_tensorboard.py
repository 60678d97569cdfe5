"""What TensorBoard makes of a run's events: each step once, also of a run that was stopped and went on."""
import json
import shutil
import subprocess

import pytest

from harness.mirrord import BUILD

READ = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
a = EventAccumulator(sys.argv[1]).Reload()
print(json.dumps({tag: [[e.step, e.value] for e in a.Scalars(tag)] for tag in a.Tags()["scalars"]}))
"""


@pytest.fixture(scope="module")
def tensorboard(python_with):
    python = python_with("tensorboard")
    return lambda folder: json.loads(subprocess.run([python, "-c", READ, folder], capture_output=True, text=True, check=True,
                                                    timeout=120).stdout.splitlines()[-1])


def test_a_run_that_went_on_is_one_curve(tensorboard, tmp_path):
    def train(steps, *more):
        subprocess.run([BUILD / "trainer", "train", "--config", "demo", "--device", "cpu", "--data", tmp_path / "text.bin", "--val",
                        tmp_path / "text.bin", "--out", tmp_path / "run", "--batch", "1", "--seq", "16", "--steps", str(steps),
                        "--save-every", "2", "--val-every", "2", "--val-batches", "1", *more], check=True, timeout=600)

    (tmp_path / "text").write_bytes(bytes(i * i % 251 for i in range(5000)))
    subprocess.run([BUILD / "trainer", "tokenize", "--out", tmp_path / "text.bin", tmp_path / "text"], check=True, timeout=600)
    train(6)
    shutil.rmtree(tmp_path / "run/checkpoint-6")  # as if it had been killed behind step 4
    train(8, "--resume", "auto")
    curves = tensorboard(tmp_path / "run")
    assert [step for step, _ in curves["train/loss"]] == list(range(1, 9))
    assert [step for step, _ in curves["val/loss"]] == [2, 4, 6, 8]
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert [value for _, value in curves["train/loss"]] == pytest.approx(losses, rel=1e-6)
