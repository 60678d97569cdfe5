"""A trainer killed while it writes a checkpoint in the background: the one before stays whole, and the run ends with the bits
of one that nobody touched. KILLS=50 for the full run (5 otherwise)."""
import json
import os
import subprocess
import time

from harness.mirrord import BUILD, SLOW

KILLS = int(os.environ.get("KILLS", "5"))
SHAPE = '{"model_type": "gpt2", "n_layer": 3, "n_head": 4, "n_embd": 96, "vocab_size": 256, "n_positions": 16}'
STEPS = 40 + 4 * KILLS


def trainer(folder, out, *args):
    words = [BUILD / "trainer", "train", "--config", folder / "shape.json", "--data", folder / "data.bin", "--out", out, "--device",
             "cpu", "--steps", STEPS, "--batch", 1, "--resume", "auto", *args]
    return subprocess.Popen([str(w) for w in words], env=dict(os.environ, OMP_NUM_THREADS="1"), stderr=subprocess.PIPE, text=True)


def kill_while_writing(child, out, delay_s):
    """Waits for a checkpoint that is not whole yet, and a little longer; False when the run was over first."""
    end = time.monotonic() + 60 * SLOW
    while child.poll() is None and time.monotonic() < end:
        if any(out.glob("*.partial")):
            time.sleep(delay_s)
            child.kill()
            child.communicate()
            return True
        time.sleep(0.0005)
    return False


def test_killed_while_writing(tmp_path):
    (tmp_path / "shape.json").write_text(SHAPE)
    (tmp_path / "text").write_bytes(bytes(i * i % 251 for i in range(9000)))
    subprocess.run([BUILD / "trainer", "tokenize", "--out", tmp_path / "data.bin", tmp_path / "text"], check=True,
                   capture_output=True)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert trainer(tmp_path, whole).wait() == 0

    kills = 0
    for _ in range(10 * KILLS):
        if kills == KILLS or not kill_while_writing(trainer(tmp_path, broken, "--save-every", 1), broken,
                                                     kills * 0.002):
            break
        kills += 1
        newest = sorted(broken.glob("checkpoint-*[0-9]"), key=lambda p: int(p.name.split("-")[1]))
        if newest:
            said = subprocess.run([BUILD / "trainer", "info", "--json", newest[-1]], check=True, capture_output=True, text=True)
            assert json.loads(said.stdout.splitlines()[-1])["verified"]
    assert kills > 0
    child = trainer(tmp_path, broken, "--save-every", 7)
    assert child.wait() == 0, child.stderr.read()
    assert not any(broken.glob("*.partial"))
    for name in ("model.safetensors", "optimizer.safetensors", "trainer.json"):
        a, b = (run / f"checkpoint-{STEPS}" / name for run in (whole, broken))
        assert a.read_bytes() == b.read_bytes(), name
