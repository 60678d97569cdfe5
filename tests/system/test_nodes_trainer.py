"""The trainer over agents of two nodes, on a GPU and NCCL that the host plays (tests/simt): a rank that dies at any step, on any node, costs
the steps since the checkpoint and not one bit of the result."""
import contextlib
import hashlib
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from harness.mirrord import BUILD, SANITIZERS, SLOW, free_port, until

TRAINER = BUILD / "simt/trainer"
# Faults are of the first generation. HOLD: the checkpoint that it does not finish while that file is there (crash/failer.c); ranks do not go beyond
# the one after it, so what a test does to them does not come too late.
FIRST_ALONE = r'''
test "$TRAINAGENT_GENERATION" != 1 || export FAKE_NCCL="$FAULT" FAKE_CUDA="$GPU_FAULT"
test "$TRAINAGENT_GENERATION" != 1 -o -z "$HOLD" || export LD_PRELOAD="$FAILER" FAIL_FILE="$HOLD"
exec "$@"'''
SHAPE = '{"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 16, "vocab_size": 256, "n_positions": 16}'

pytestmark = pytest.mark.skipif(not TRAINER.exists(), reason=f"{TRAINER} is not built: make test-programs")


@pytest.fixture
def data(tmp_path):
    return job_folder(tmp_path)


def job_folder(path):
    (path / "shape.json").write_text(SHAPE)
    (path / "text").write_bytes(bytes(i * i % 251 for i in range(5000)))
    subprocess.run([TRAINER, "tokenize", "--out", path / "data.bin", path / "text"], check=True, capture_output=True)
    return path


class Nodes:
    def __init__(self, data, out, steps=20, nodes="2", patience=600, fault="", gpu_fault="", options=(), hold=0):
        self.data, self.out, self.port, self.logs = data, data / out, free_port(), []
        self.hold = data / f"{out}.hold"
        if hold:
            self.hold.write_text(f"0 on write checkpoint-{hold}.")
        self.agents = []
        for r in range(2):
            log = data / f"{out}-{r}.log"
            self.logs.append(log)
            env = {"PATH": f"{BUILD}:{os.environ['PATH']}", "HOME": str(data), "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(data / "cache"),
                   "TRAINAGENT_STATE": str(data / f"state{r}"), **SANITIZERS, "FAULT": fault, "GPU_FAULT": gpu_fault,
                   "FAILER": str(BUILD / "crash/failer.so"), "HOLD": str(self.hold) if hold else ""}
            argv = [BUILD / "trainagent", "launch", "--elastic" if ":" in nodes else "--nodes", nodes, "--node-rank", r, "--rendezvous",
                    f"127.0.0.2:{self.port}", "--ranks", 1, "--restarts", 5, "--checkpoints", self.out, *options, "--", "sh", "-c", FIRST_ALONE, "sh", TRAINER, "train", "--config",
                    data / "shape.json", "--data", data / "data.bin", "--out", self.out, "--device", "cuda", "--batch", 2, "--steps", steps,
                    "--save-every", 2, "--keep", 2, "--resume", "auto", "--deterministic", "--comm-timeout", patience, "--log-every", 1]
            with open(log, "wb") as f:
                self.agents.append(subprocess.Popen([str(a) for a in argv], env=env, cwd=data, stdin=subprocess.DEVNULL, stdout=f, stderr=f))

    def said(self):
        return "\n".join(log.read_text() for log in self.logs)

    def end(self, codes):
        got = [a.wait(timeout=400) for a in self.agents]
        assert got == codes, (got, self.said())

    def rank(self, node):
        """pid of the rank that this node's agent runs."""
        pid = self.agents[node].pid
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if Path(f"/proc/{child}/comm").read_text() == "trainer\n":
                return int(child)
        return None

    def close(self):
        for a in self.agents:
            a.send_signal(signal.SIGCONT)
            a.kill()
            a.wait()

    def step(self):
        path = self.out / "metrics.jsonl"
        return json.loads(path.read_text().rsplit("\n", 2)[-2])["step"] if path.exists() and path.read_text().count("\n") else 0


@pytest.fixture
def launch(data):
    made = []

    def start(*args, **more):
        made.append(Nodes(data, *args, **more))
        return made[-1]
    yield start
    for n in made:
        n.close()


def weights(out, step=20):
    return hashlib.sha256((out / f"checkpoint-{step}/model.safetensors").read_bytes()).hexdigest()


@pytest.fixture
def whole(tmp_path_factory, once):
    """The weights of a run that nothing happened to."""
    def run():
        with contextlib.closing(Nodes(job_folder(tmp_path_factory.mktemp("whole")), "whole")) as n:
            n.end([0, 0])
            assert "generation=2" not in n.said()
            return weights(n.out)
    return once("nodes-trainer", run)


@pytest.mark.parametrize("victim,step,how", [(1, 3, signal.SIGKILL), (0, 9, signal.SIGKILL), (1, 6, signal.SIGSTOP)])
def test_a_rank_that_dies_or_stands_still_costs_no_bit(launch, whole, victim, step, how):
    """Of one that stands still its peer finds out, after --comm-timeout."""
    n = launch("broken", patience=600 if how == signal.SIGKILL else 10 * SLOW, hold=step // 2 * 2 + 2)
    until(lambda: n.step() >= step or any(a.poll() is not None for a in n.agents))
    os.kill(n.rank(victim), how)
    n.hold.unlink()
    n.end([0, 0])
    assert "rendezvous.start generation=2" in n.said() and weights(n.out) == whole, n.said()


def test_a_fault_of_nccl_costs_no_bit(launch, whole):
    n = launch("broken", fault="1.async=6;at=12")
    n.end([0, 0])
    assert "rendezvous.start generation=2" in n.said() and "exited with 75" in n.said() and weights(n.out) == whole, n.said()


def test_elastic_goes_on_without_a_node_whose_gpu_broke(launch):
    n = launch("out", steps=4, nodes="1:2", gpu_fault="1.ecc=100", options=["--node-timeout", f"{8 * SLOW}s"])
    n.end([0, 71])
    assert "generation=2 nodes=1 ranks=1" in n.said(), n.said()
    assert "rank 1 (rank 0 of this node) exited with 71 " in n.logs[1].read_text() and "node 1 (127.0.0.1) left: rank 1 " in n.logs[0].read_text()


def test_the_node_whose_gpu_broke_ends_with_71_and_the_other_with_75(launch):
    n = launch("out", gpu_fault="0.ecc=100")
    n.end([71, 75])
    assert "GPU 0000:10:00.0" in n.logs[0].read_text() and "rank 0 (rank 0 of this node) exited with 71 " in n.logs[0].read_text(), n.said()
    assert "generation=2" not in n.said()


@pytest.mark.parametrize("kernel,after", [(20, 0), (60, 1)])
def test_a_kernel_that_fails_at_one_step_again_and_again(data, kernel, after):
    """Of one node alone: three times, then it is final; also where it never comes beyond its first step."""
    env = {"PATH": f"{BUILD}:{os.environ['PATH']}", "HOME": str(data), "XDG_CACHE_HOME": str(data / "cache"), "TRAINAGENT_STATE": str(data / "state"),
           **SANITIZERS, "FAKE_CUDA": f"illegal={kernel}", "FAKE_CUDA_NAME": "NVIDIA H100 80GB HBM3"}  # a known one: nothing is measured
    argv = [BUILD / "trainagent", "launch", "--ranks", 1, "--restarts", 50, "--checkpoints", data / "out", "--", TRAINER, "train", "--config",
            data / "shape.json", "--data", data / "data.bin", "--out", data / "out", "--device", "cuda", "--batch", 2, "--steps", 1000, "--resume",
            "auto", "--deterministic"]
    run = subprocess.run([str(a) for a in argv], env=env, cwd=data, capture_output=True, text=True, check=False, timeout=400)
    assert run.returncode == 70 and f"failed 3 times in a row after step {after}," in run.stderr and run.stderr.count("launch.again") == 2, run.stderr


def test_elastic_goes_on_with_one_node(launch):
    n = launch("out", steps=40, nodes="1:2", hold=4)
    until(lambda: any(c.suffix == "" for c in n.out.glob("checkpoint-*")))
    n.agents[1].kill()
    n.hold.unlink()
    n.agents[0].wait(timeout=400)
    assert n.agents[0].returncode == 0, n.said()
    assert "generation=2 nodes=1 ranks=1" in n.said(), n.said()
    state = json.loads((n.out / "checkpoint-40/trainer.json").read_text())
    assert state["step"] == 40 and 40 * 2 < state["samples"] < 40 * 2 * 2, state  # two ranks, then one
