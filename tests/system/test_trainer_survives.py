"""One of four ranks is killed, stands still, or has a fault of NCCL, in every part of a run: the others end with 75 and a flight record, and
`trainagent run` starts all again, to the weights of a run that nothing happened to.

On a GPU and NCCL that the host plays (tests/simt) the place is a kernel's number, taken from a trace of the whole run. Under mpirun the
ranks are on CPUs."""
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from harness.mirrord import BUILD, SANITIZERS, SLOW, until
from harness.ranks import MPI_ENV

DOUBLE = BUILD / "simt/trainer"
SHAPE = '{"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 16, "vocab_size": 256, "n_positions": 16}'
STEPS, SAVE_EVERY, VAL_EVERY = 3, 2, 2
TIMEOUT = 15 * SLOW  # only one that stands still costs it: longer than a busy machine's step
# What is only of the first attempt; the writer is rank 0.
FIRST_ALONE = r'''
rank=${OMPI_COMM_WORLD_RANK-$RANK}
if [ "$TRAINAGENT_GENERATION" = 1 ]; then
    export FAKE_CUDA="$GPU_FAULT" FAKE_NCCL="$NCCL_FAULT" SIMT_TRACE="$TRACE"
    [ "$rank" != 0 ] || [ -z "$HOLD" ] || export LD_PRELOAD="$FAILER" FAIL_FILE="$HOLD"
fi
[ -n "$SIMT_TRACE" ] || unset SIMT_TRACE
exec "$@"'''

needs_double = pytest.mark.skipif(not DOUBLE.exists(), reason="sanitizers do not understand threads that are fibers")
needs_mpi = pytest.mark.skipif(not shutil.which("mpirun") or not (BUILD / "trainer-mpi.so").exists(), reason="no Open MPI here")


class Job:
    """`trainagent run` of a job file, in a folder of its own."""

    def __init__(self, folder, mpi=False, gpu_fault="", nccl_fault="", hold=False, timeout=TIMEOUT):
        self.folder, self.out, self.mpi = folder, folder / "out", mpi
        folder.mkdir()
        (folder / "shape.json").write_text(SHAPE)
        for name, n in (("data", 5000), ("val", 600)):
            (folder / name).write_bytes(bytes(i * i % 251 for i in range(n)))
            subprocess.run([BUILD / "trainer", "tokenize", "--out", folder / f"{name}.bin", folder / name], check=True, capture_output=True)
        (folder / "first_alone.sh").write_text(FIRST_ALONE)
        self.hold = folder / "hold"
        if hold:
            self.hold.write_text("0 on write model.safetensors")
        command = ["sh", "first_alone.sh", str(BUILD / "trainer" if mpi else DOUBLE), "train", "--config", "shape.json", "--data", "data.bin",
                   "--val", "val.bin", "--val-every", VAL_EVERY, "--val-batches", 4, "--out", str(self.out), "--device", "cpu" if mpi else "cuda",
                   "--batch", 1, "--steps", STEPS, "--save-every", SAVE_EVERY, "--resume", "auto", "--deterministic", "--log-every", 1,
                   "--comm-timeout", timeout]
        if mpi:
            command = ["mpirun", "--oversubscribe", "-n", 4, *command]
        words = ", ".join(json.dumps(str(w)) for w in command)
        (folder / "job.conf").write_text(f'run {{ command = {{{words}}} ranks = {1 if mpi else 4} restarts = 3 grace = {10 * SLOW}s backoff = 100ms '
                                         f'out = "{self.out}" }}\n')
        env = {"PATH": f"{BUILD}:{os.environ['PATH']}", "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache"), "OMP_NUM_THREADS": "1",
               "TRAINAGENT_STATE": str(folder / "state"), "TRAINAGENT_SHELF": str(folder / "shelf"), **SANITIZERS, **MPI_ENV,
               "GPU_FAULT": gpu_fault, "NCCL_FAULT": nccl_fault, "TRACE": "" if mpi else str(folder / "trace"),
               "OMPI_MCA_odls_base_sigkill_timeout": "5",  # as long as ranks may need to write their records
               "FAILER": str(BUILD / "crash/failer.so"), "HOLD": str(self.hold) if hold else ""}
        self.log = folder / "log"
        with open(self.log, "wb") as log:
            self.agent = subprocess.Popen([BUILD / "trainagent", "run", "job.conf"], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def said(self):
        return self.log.read_text(errors="replace")

    def until(self, holds):
        """What the log has may be over by the time that we see it."""
        until(lambda: holds() or self.agent.poll() is not None)
        assert holds(), self.said()

    def rank(self, rank):
        """pid of the trainer that is this rank, of those below our agent."""
        name = f"{'OMPI_COMM_WORLD_RANK' if self.mpi else 'RANK'}={rank}"
        for p in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                environment = (p / "environ").read_text().split("\0")
                if name in environment and f"HOME={self.folder}" in environment and (p / "comm").read_text() == "trainer\n":
                    return int(p.name)
        return None

    def ends_well(self):
        code = self.agent.wait(timeout=600)
        assert code == 0, (code, self.said())
        return self.weights()

    def weights(self):
        return hashlib.sha256((self.out / f"checkpoint-{STEPS}/model.safetensors").read_bytes()).hexdigest()

    def records(self):
        """The heads of the flight records of the first attempt, which the second one puts aside."""
        heads = [json.loads(p.read_text().split("\n")[0]) for p in self.out.glob("flight-*.json.old")]
        return {h["rank"]: h for h in heads}

    def close(self):
        self.agent.kill()
        self.agent.wait()


@pytest.fixture
def job(tmp_path):
    made = []

    def start(**more):
        made.append(Job(tmp_path / f"job{len(made)}", **more))
        return made[-1]
    yield start
    for j in made:
        j.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory, once):
    """Of the doubles: the weights that must come out, and the trace of each rank."""
    def run():
        with contextlib.closing(Job(tmp_path_factory.mktemp("whole") / "job", timeout=600)) as j:
            weights = j.ends_well()
        return weights, [[line.split()[1] for line in (j.folder / f"trace.{r}").read_text().splitlines()] for r in range(4)]
    return once("trainer-survives", run)


def kernels_of(trace):
    """The ranges that each kernel lies in, outermost first; before the first step, ("start",)."""
    inside, found, steps = [], [], 0
    for what in trace:
        if what.startswith("begin:"):
            steps += what == "begin:step"
            inside.append(what[6:] if what != "begin:step" else f"step {steps}")
        elif what == "end":
            inside.pop()
        elif what == "kernel":
            found.append(tuple(inside) if steps else ("start",))
    return found


def kernel_in(trace, part):
    """The number of a kernel in the midst of a part of the run, from 1."""
    holds = {"first step": lambda k: k[:2] == ("step 1", "forward"), "backward": lambda k: k[:2] == ("step 3", "backward"),
             "update": lambda k: k[:2] == ("step 3", "update"), "validation": lambda k: not k or not k[0].startswith("st")}[part]
    numbers = [i + 1 for i, k in enumerate(kernels_of(trace)) if holds(k)]
    assert numbers, (part, set(kernels_of(trace)))
    return numbers[len(numbers) // 2]


def check_first_attempt(j, victim, why):
    """Each other rank has a record that names the victim, and ended with 75 unless it was the one whose end was heard of first."""
    records = j.records()
    assert {0, 1, 2, 3} - {victim} <= set(records), (records, j.said())
    for rank, head in records.items():
        assert head["exit"] == 75 and head["suspects"] == [victim] and why in head["why"], head
    assert j.said().count("launch.again") == 1, j.said()


@needs_double
@pytest.mark.parametrize("part,victim,how", [
    ("first step", 1, "kill"), ("validation", 3, "kill"), ("backward", 2, "stop"),
])
def test_a_rank_that_dies_or_stands_still(job, whole, part, victim, how):
    weights, traces = whole
    number = kernel_in(traces[victim], part)
    j = job(gpu_fault=f"{victim}.{how}={number}", timeout=600 if how == "kill" else TIMEOUT)
    assert j.ends_well() == weights
    check_first_attempt(j, victim, f"rank {victim} has died" if how == "kill" else f"rank {victim} does not respond")
    trace = [line.split()[1] for line in (j.folder / f"trace.{victim}").read_text().splitlines()]
    assert kernels_of(trace)[-1] == kernels_of(traces[victim])[number - 1]  # that is where it was


@needs_double
def test_the_writer_dies_in_a_save(job, whole):
    j = job(hold=True, timeout=600)
    j.until(lambda: (j.folder / "hold.count").exists())
    os.kill(j.rank(0), signal.SIGKILL)
    j.until(lambda: "launch.again" in j.said())
    j.hold.unlink()
    assert j.ends_well() == whole[0]
    check_first_attempt(j, 0, "rank 0 has died")


def collective_in(trace, step):
    """The number of a collective in the midst of a step, from 1."""
    steps, numbers, count = 0, [], 0
    for what in trace:
        steps += what == "begin:step"
        count += what == "allreduce"
        if what == "allreduce" and steps == step:
            numbers.append(count)
    return numbers[len(numbers) // 2]


@needs_double
@pytest.mark.parametrize("fault,suspects,why", [
    ("async=6", None, "remote process exited or there was a network error: NET/IB : Got completion from peer with status=12 (rank 2)"),
    ("hang=1", [2], "rank 2 has not returned from the call of allreduce "),
    ("never=1", [], "all ranks are at the same point: allreduce "),
], ids=["async error", "hangs in its call", "hangs on the GPU"])
def test_a_fault_of_nccl_on_one_of_four(job, whole, fault, suspects, why):
    """After the checkpoint of step 2. Of a collective that hangs on the GPUs nobody knows whose fault it is: the records name the collective."""
    weights, traces = whole
    j = job(nccl_fault=f"2.{fault};at={collective_in(traces[2], 3)}")
    j.until(lambda: "launch.again" in j.said())
    ended = time.time()
    struck = (j.folder / "trace.2").stat().st_mtime  # the last that rank 2 did
    assert j.ends_well() == weights
    assert j.said().count("launch.again code=75") == j.said().count("launch.again") == 1 and ended - struck <= TIMEOUT + 30 * SLOW, j.said()
    records = j.records()
    assert set(records) == {0, 1, 2, 3}, (records, j.said())
    for head in records.values():
        assert head["exit"] == 75 and head["suspects"] == suspects and why in head["why"], head


@needs_double
@pytest.mark.parametrize("result,suspects,why", [
    (2, [2], "no socket interface found"), (6, None, "remote process exited or there was a network error")], ids=["own", "a peer's"])
def test_nccl_that_cannot_connect(job, whole, result, suspects, why):
    """Its record accuses the rank, unless NCCL says that it lost a peer; the others, which wait for it, are ended with it."""
    j = job(nccl_fault=f"2.init={result}", timeout=600)
    assert j.ends_well() == whole[0]
    assert j.said().count("launch.again code=75") == 1 and why in j.said(), j.said()
    [head] = j.records().values()
    assert head["exit"] == 75 and head["rank"] == 2 and head["suspects"] == suspects and why in head["why"] and "(rank 2)" in head["why"], head


@pytest.fixture(scope="module")
def whole_mpi(tmp_path_factory, once):
    def run():
        with contextlib.closing(Job(tmp_path_factory.mktemp("whole-mpi") / "job", mpi=True, timeout=600)) as j:
            return j.ends_well()
    return once("trainer-survives-mpi", run)


@needs_mpi
@pytest.mark.parametrize("part,victim,how", [
    ("start", 1, signal.SIGKILL), ("save", 0, signal.SIGKILL), ("save", 3, signal.SIGSTOP)])
def test_under_mpirun(job, whole_mpi, part, victim, how):
    """mpirun kills all ranks when one has died, before they can say so; of one that stands still it knows nothing."""
    j = job(mpi=True, hold=True, timeout=600 if how == signal.SIGKILL else TIMEOUT)  # one that is killed late has not ended before
    j.until(lambda: j.rank(victim) is not None and ("comm.ready" in j.said() if part == "start" else
                                                    (j.folder / "hold.count").exists()))
    os.kill(j.rank(victim), how)
    j.until(lambda: "launch.again" in j.said())
    j.hold.unlink(missing_ok=True)
    assert j.ends_well() == whole_mpi
    assert j.said().count("launch.again") == 1 and re.search(f"launch.again code={75 if how == signal.SIGSTOP else 137}", j.said()), j.said()
    if how == signal.SIGSTOP:
        records = j.records()
        assert {0, 1, 2} <= set(records) and all(h["suspects"] == [victim] and h["exit"] == 75 for h in records.values()), records
