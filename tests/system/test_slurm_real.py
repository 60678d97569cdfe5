"""trainagent's prologs under a real Slurm: what slurmd, slurmstepd and scancel make of them. Skipped where there is none."""
import random
import shutil
import tempfile
from pathlib import Path

import pytest

from harness.fake_mirror import CHUNK, Mirror
from harness.mirrord import SLOW, until
from harness.slurm_cluster import Cluster, needed

pytestmark = pytest.mark.xdist_group("slurm")  # one for all of them
BIG = random.Random(1).randbytes(2 * CHUNK)


@pytest.fixture(scope="module")
def cluster():
    needed()
    if SLOW != 1:
        pytest.skip("a sanitizer build is not installed")
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    folder.chmod(0o777)  # outputs of jobs
    c = Cluster(folder)
    try:
        c.server = c.mirror(Mirror)
        c.server.files.update({"/data/small.bin": b"small", "/data/big.bin": BIG, "/data/other.bin": BIG[::-1]})
        c.start(f'mirror = "{c.server.url}"\nslurm {{ deadline = 3s }}\n')
        yield c
        c.server.close()
    finally:
        c.close()
        shutil.rmtree(folder)


@pytest.fixture
def slurm(cluster):
    """Each test finds a node that is well, and leaves it so: nothing of it drains one."""
    cluster.server.hold_at = None
    cluster.server.go.clear()
    yield cluster
    cluster.server.go.set()
    until(lambda: cluster.node() == "idle")
    until(lambda: cluster.left() == [] and not cluster.workers())


def test_a_job_with_its_files(slurm):
    job = slurm.submit("id -un; cat $MIRROR_STAGED/data/small.bin; echo; echo $HF_ENDPOINT; srun -n 2 sh -c 'echo task $MIRROR_STAGED'",
                       "a run mirror=data/small.bin,data/none?", "-n", "2")
    state, said = slurm.wait(job)
    staged = f"/var/cache/trainagent/jobs/{job}"
    assert state == "COMPLETED", (said, slurm.logs())
    lines = said.splitlines()
    assert [line for line in lines if not line.startswith("mirror: ")] == [
        "alice", "small", f"{slurm.server.url}/hf", f"task {staged}", f"task {staged}"]
    assert lines.count("mirror: data/none: the mirror has no such file (not found on the mirror (404))") == 2  # the script, and the step
    told = slurm.journal_of(job)
    assert "from=data/small.bin" in told and "from=data/none" in told and "SYSLOG_IDENTIFIER=trainagent" in told


def test_a_job_that_asks_for_nothing(slurm):
    assert slurm.wait(slurm.submit("echo ${MIRROR_STAGED-none}")) == ("COMPLETED", "none\n")


def test_what_is_missing_fails_the_job_and_not_the_node(slurm):
    job = slurm.submit("echo it began", "mirror=data/none.bin")
    state, said = slurm.wait(job)
    assert state == "FAILED" and "data/none.bin: the mirror has no such file" in said and "it began" not in said, slurm.logs()
    assert slurm.node() == "idle"


def test_a_comment_that_is_none(slurm):
    state, said = slurm.wait(slurm.submit("echo it began", "mirror=$(reboot),http://x"))
    assert state == "FAILED" and "the syntax of the comment is invalid" in said and "it began" not in said


def test_a_mirror_that_hangs(slurm):
    """The prolog ends long before Slurm would end it; the task waits, and has its file when it comes."""
    slurm.server.hold_at = slurm.server.sent + 1000
    job = slurm.submit("wc -c <$MIRROR_STAGED/data/big.bin", "mirror=data/big.bin")
    until(lambda: slurm.state(job) == "RUNNING" and slurm.workers())
    until(lambda: slurm.run("pgrep", "-x", "slurm-taskprolo", check=False).stdout)
    slurm.server.go.set()
    assert slurm.wait(job) == ("COMPLETED", f"{len(BIG)}\n"), slurm.logs()


def test_a_job_that_is_cancelled_in_its_prolog(slurm):
    slurm.server.hold_at = slurm.server.sent + 1000
    job = slurm.submit("echo it began", "mirror=data/other.bin")
    until(lambda: slurm.workers())
    slurm.run("scancel", str(job))
    state, said = slurm.wait(job)
    assert state == "CANCELLED" and "it began" not in said
    until(lambda: slurm.left() == [] and not slurm.workers())  # while the mirror still holds the file back


def test_many_jobs_at_once(slurm):
    jobs = [slurm.submit("cat $MIRROR_STAGED/data/small.bin", "mirror=data/small.bin,data/big.bin", "-s") for _ in range(6)]
    assert [slurm.wait(job) for job in jobs] == [("COMPLETED", "small")] * 6
