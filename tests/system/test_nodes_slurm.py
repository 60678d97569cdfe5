"""Agents under a real Slurm with two nodes: an agent a node finds the others by what srun says, and nobody trains alone."""
import shutil
import tempfile
from pathlib import Path

import pytest

from harness.mirrord import SLOW, until
from harness.slurm_cluster import Cluster, needed

pytestmark = pytest.mark.xdist_group("slurm")  # one at a time


@pytest.fixture(scope="module")
def slurm():
    needed()
    if SLOW != 1:
        pytest.skip("a sanitizer build is not installed")
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    folder.chmod(0o777)  # outputs of jobs
    c = Cluster(folder)
    try:
        c.start("", nodes=2)
        yield c
    finally:
        c.close()
        shutil.rmtree(folder)


LAUNCH = "export HOME=/tmp; /run/bin/trainagent launch --ranks 2 "
SAY = """-- sh -c 'echo $RANK/$WORLD_SIZE on $SLURMD_NODENAME at $MASTER_ADDR $TORCHELASTIC_RUN_ID'"""


def test_a_step_is_one_world(slurm):
    state, said = slurm.wait(slurm.submit(f"srun -K --ntasks-per-node=1 sh -c {quote(LAUNCH + SAY)}", None, "-N", "2"))
    job = said and [line for line in said.splitlines() if " on " in line]
    assert state == "COMPLETED", (said, slurm.logs())
    assert sorted(line.split(" slurm-")[0] for line in job) == [f"{r}/4 on node{1 + r // 2} at node1" for r in range(4)], said


def quote(text):
    return "'" + text.replace("'", "'\\''") + "'"


def test_eight_agents_a_node_are_refused(slurm):
    state, said = slurm.wait(slurm.submit(f"srun -O --ntasks-per-node=2 sh -c {quote(LAUNCH + SAY)}", None, "-N", "2"))
    assert state == "FAILED" and "add --ntasks-per-node=1" in said and " on node" not in said, said


def test_a_failure_restarts_both_nodes_and_a_final_one_ends_the_job(slurm):
    script = """-- sh -c 'echo $TORCHELASTIC_RESTART_COUNT $RANK; test $RANK$TORCHELASTIC_RESTART_COUNT = 30 && kill -9 $$; sleep 1'"""
    state, said = slurm.wait(slurm.submit(f"srun -K --ntasks-per-node=1 sh -c {quote(LAUNCH + '--restarts 1 ' + script)}", None, "-N", "2"))
    began = {w for w in said.splitlines() if len(w) == 3}  # of the first generation some may be ended before they say so
    assert state == "COMPLETED" and {"0 3", *(f"1 {r}" for r in range(4))} <= began <= {f"{g} {r}" for g in range(2) for r in range(4)}, said
    script = """-- sh -c 'test $RANK = 3 && exit 65; sleep 600'"""
    state, said = slurm.wait(slurm.submit(f"srun -K --ntasks-per-node=1 sh -c {quote(LAUNCH + script)}; exit $?", None, "-N", "2"))
    # -K may end slurmstepd before it has forwarded an agent's last line; srun's own line is about the first task that ended
    assert state == "FAILED" and ("Exited with exit code 65" in said or "code=65" in said), said
    until(lambda: slurm.node().splitlines() in (["idle"], ["idle", "idle"]))
