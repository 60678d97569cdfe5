"""A training run under trainagent, killed twice in the middle, ends with the bits of a run that nobody touched."""
import contextlib
import os
import signal
import subprocess
import time

import pytest

from harness.mirrord import BUILD

SHAPE = '{"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 16, "vocab_size": 256, "n_positions": 16}'
STEPS = 600


def argv(folder, out):
    return ["trainer", "train", "--config", folder / "shape.json", "--data", folder / "data.bin", "--out", out, "--device", "cpu",
            "--steps", STEPS, "--batch", 4, "--save-every", 20, "--keep", 2, "--resume", "auto"]


def run_and_kill(tmp_path, env, out, how):
    """How often it was killed: each time behind a checkpoint that is newer than at the kill before, each time another process."""
    (tmp_path / "pid").unlink(missing_ok=True)
    words = ", ".join(f'"{a}"' for a in argv(tmp_path, out))
    # The rank's own number is what we kill; exec keeps it.
    (tmp_path / "train.conf").write_text(f'''
run {{ command = {{"sh", "-c", "echo $$ >{tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; exec \\"$@\\"", "sh", {words}}}
      ranks = 1 restarts = 5 backoff = "10ms" }}
''')
    with subprocess.Popen([BUILD / "trainagent", "run", tmp_path / "train.conf"], env=env, stderr=subprocess.PIPE, text=True) as child:
        killed = []
        while child.poll() is None:
            steps = [int(p.name.split("-")[1]) for p in out.glob("checkpoint-*[0-9]")]
            if len(killed) < 2 and steps and max(steps) > (killed[-1][1] if killed else 0) and (tmp_path / "pid").exists():
                now = int((tmp_path / "pid").read_text())
                if now not in [k[0] for k in killed]:
                    with contextlib.suppress(ProcessLookupError):  # it has just ended
                        os.kill(now, how)
                        killed.append((now, max(steps)))
            time.sleep(0.002)
        err = child.stderr.read()
        assert child.returncode == 0, err
    return len(killed)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_killed_twice_and_bit_equal(tmp_path, how):
    env = dict(os.environ, PATH=f"{BUILD}:{os.environ['PATH']}", TRAINAGENT_STATE=str(tmp_path / "state"),
               TRAINAGENT_SHELF=str(tmp_path / "shelf"), OMP_NUM_THREADS="1")
    (tmp_path / "shape.json").write_text(SHAPE)
    (tmp_path / "text").write_bytes(bytes(i * i % 251 for i in range(20000)))
    subprocess.run(["trainer", "tokenize", "--out", tmp_path / "data.bin", tmp_path / "text"], env=env, check=True,
                   capture_output=True)
    subprocess.run([str(a) for a in argv(tmp_path, tmp_path / "whole")], env=env, check=True, capture_output=True)

    # On a busy machine it may be over before we kill it: then that run shows nothing, and another one does.
    out = next(o for o in (tmp_path / f"broken{i}" for i in range(20)) if run_and_kill(tmp_path, env, o, how) == 2)
    for name in ("model.safetensors", "optimizer.safetensors"):
        whole, broken = (run / f"checkpoint-{STEPS}" / name for run in (tmp_path / "whole", out))
        assert whole.read_bytes() == broken.read_bytes(), name
