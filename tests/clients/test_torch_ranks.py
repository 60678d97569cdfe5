"""PyTorch's ranks over agents of two nodes, each a loopback address: torch.distributed finds its peers by what the agent puts into the
environment, sums over all of them, and goes on after one has died."""
import contextlib
import json
import os
import subprocess

import pytest

from harness.mirrord import BUILD, SANITIZERS, free_port

PROGRAM = r'''
import json, os, pathlib, signal, sys, time
import torch, torch.distributed as dist
out = pathlib.Path(sys.argv[1])
dist.init_process_group("gloo", init_method="env://")
rank, world, generation = dist.get_rank(), dist.get_world_size(), os.environ.get("TRAINAGENT_GENERATION", "1")
weights = torch.full((1000,), float(rank + 1))
try:
    dist.all_reduce(weights)  # may be under way here when it has ended there
    if len(sys.argv) > 2 and generation == "1" and rank == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()
except RuntimeError as e:
    print(f"rank {rank}: {e}", file=sys.stderr)
    sys.exit(75)
(out / f"rank-{generation}-{rank}").write_text(json.dumps([world, weights.unique().tolist(), os.environ["LOCAL_RANK"]]))
dist.destroy_process_group()
'''


@pytest.fixture
def launch(tmp_path, python_with):
    """python(), and the exit codes and words of two agents that run a command each."""
    python = python_with("torch")
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "out").mkdir()
    agents = []

    def start(*command, ranks=2):
        place = f"127.0.0.2:{free_port()}"
        for r in range(2):
            env = {**os.environ, **SANITIZERS, "OMP_NUM_THREADS": "1", "TRAINAGENT_STATE": str(tmp_path / f"state{r}"), "GLOO_SOCKET_IFNAME": "lo"}
            with open(tmp_path / f"log{r}", "wb") as log:
                agents.append(subprocess.Popen([BUILD / "trainagent", "launch", "--nodes", "2", "--node-rank", str(r), "--rendezvous", place, "--ranks",
                                                str(ranks), "--restarts", "2", "--", python, *command], cwd=tmp_path, env=env, stdin=subprocess.DEVNULL,
                                               stdout=log, stderr=log))
        codes = [a.wait(timeout=600) for a in agents]
        return codes, [(tmp_path / f"log{r}").read_text() for r in range(2)]
    yield start
    for a in agents:
        with contextlib.suppress(ProcessLookupError):
            a.kill()
        a.wait()


def sums(tmp_path, generation):
    """What each rank of four found; (1 + 2 + 3 + 4) each."""
    found = {p.name: json.loads(p.read_text()) for p in (tmp_path / "out").iterdir()}
    assert {name: f[:2] for name, f in found.items()} == {f"rank-{generation}-{r}": [4, [10.0]] for r in range(4)}, found
    return [found[f"rank-{generation}-{r}"][2] for r in range(4)]


def test_gloo_over_two_nodes(launch, tmp_path):
    codes, said = launch("program.py", tmp_path / "out")
    assert codes == [0, 0], said
    assert sums(tmp_path, 1) == ["0", "1", "0", "1"]


def test_a_rank_that_dies(launch, tmp_path):
    """Its peers' sums fail, and all start again."""
    codes, said = launch("program.py", tmp_path / "out", "3")
    assert codes == [0, 0] and "generation=2" in said[0], said
    assert sums(tmp_path, 2) == ["0", "1", "0", "1"]
