"""Ranks of the trainer, started as users start them: which process is which, and how they end."""
import os
import pathlib
import subprocess
import time
import uuid

from harness.mirrord import SLOW


class Ranks:
    """argv under a launcher; each rank is found by what the launcher put into its environment."""

    def __init__(self, argv, log, rank_name, **env):
        self.mark, self.rank_name = f"RANKS_MARK={uuid.uuid4().hex}", rank_name
        self.log = pathlib.Path(log)
        name, value = self.mark.split("=")
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen([str(a) for a in argv], stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                            env={**os.environ, "OMP_NUM_THREADS": "1", **env, name: value})

    @property
    def said(self):
        return self.log.read_text(errors="replace")

    def pid(self, rank, patience=120):
        """Of the trainer that is this rank; waits until it is there."""
        want = {self.mark, f"{self.rank_name}={rank}"}
        end = time.monotonic() + patience
        while time.monotonic() < end:
            for p in pathlib.Path("/proc").glob("[0-9]*"):
                try:
                    if want <= set((p / "environ").read_text().split("\0")) and (p / "exe").resolve().name.startswith("trainer"):
                        return int(p.name)
                except OSError:
                    continue
            time.sleep(0.05)
        raise AssertionError(f"rank {rank} did not start: {self.said}")

    def until(self, holds, what, patience=240):
        end = time.monotonic() + patience
        while not holds():
            assert self.process.poll() is None, f"ended with {self.process.returncode} before {what}: {self.said}"
            assert time.monotonic() < end, f"{what} did not come: {self.said}"
            time.sleep(0.05)

    def wait(self, patience=240):
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running: {self.said}") from None

    def close(self):
        """Ends what is left of them, stopped ones too."""
        for p in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if self.mark in (p / "environ").read_text().split("\0"):
                    os.kill(int(p.name), 9)
            except OSError:
                continue
        self.process.wait(60)


MPI_ENV = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def mpirun(n, argv, log, **env):
    return Ranks(["mpirun", "--oversubscribe", "-n", n, *argv], log, "OMPI_COMM_WORLD_RANK", **MPI_ENV, **env)


def mpirun_start(*commands, env=()):
    """A rank for each command."""
    argv = ["mpirun", "--oversubscribe"]
    for command in commands:
        argv += [*((":",) if len(argv) > 2 else ()), "-n", "1", *map(str, command)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "OMP_NUM_THREADS": "1", **MPI_ENV, **dict(env)})


def mpirun_each(*commands, env=()):
    """To its end, with what it said."""
    started = mpirun_start(*commands, env=env)
    out, err = started.communicate(timeout=240 * SLOW)
    return subprocess.CompletedProcess(started.args, started.returncode, out, err)
