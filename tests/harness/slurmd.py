"""What slurmd 22.05 does with the programs of slurm.conf, and nothing more: environment, descriptors, process group, how it reads and ends
them; and a node's files in a folder."""
import json
import os
import pathlib
import pwd
import re
import signal
import subprocess
import time

from harness.mirrord import BUILD, SANITIZERS, SLOW, until

LIMIT_S = 240 * SLOW


class Slurmd:
    """conf: what stands in the node's file beside its places. Programs are started by a link of their name, as `make install` lays it."""

    def __init__(self, folder, mirror, conf="", slurm="", user=None):
        self.folder, self.shelf, self.tickets = folder, folder / "cache", folder / "run"
        self.user = user or pwd.getpwuid(os.getuid()).pw_name
        self.mirror = mirror
        self.write(conf, slurm)
        for name in ("prolog", "taskprolog", "epilog"):
            (folder / f"slurm-{name}").symlink_to(BUILD / "trainagent")

    def write(self, conf="", slurm="", deadline=f"{120 * SLOW}s", wait=f"{LIMIT_S}s"):
        mirror = f'mirror = "{self.mirror}"\n' if self.mirror else ""
        (self.folder / "node.conf").write_text(f"""{mirror}shelf = "{self.shelf}"\nuser = "{self.user}"\n{conf}
            slurm {{ tickets = "{self.tickets}"\ndeadline = {deadline}\nwait = {wait}\n{slurm} }}\n""")

    def env(self, context, job, comment, more):
        env = {"SLURM_JOB_ID": str(job), "SLURM_JOBID": str(job), "SLURM_SCRIPT_CONTEXT": context, "SLURM_CLUSTER_NAME": "t",
               "SLURMD_NODENAME": "n1", "SLURM_CONF": "/etc/slurm/slurm.conf", "SLURM_JOB_UID": "1000", "SLURM_JOB_GID": "1000",
               "SLURM_JOB_USER": "me", "SLURM_UID": "1000", "SLURM_JOB_PARTITION": "p", "SLURM_NODELIST": "n1",
               "SLURM_JOB_WORK_DIR": "/", "SLURM_JOB_RESTART_COUNT": "0", "TRAINAGENT_CONF": str(self.folder / "node.conf")}
        return {**env, **({} if comment is None else {"SLURM_JOB_COMMENT": comment}), **SANITIZERS, **more}

    def start(self, name, job=42, comment=None, args=(), **more):
        return subprocess.Popen([self.folder / f"slurm-{name}", *args], env=self.env(f"{name}_slurmd", job, comment, more),
                                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                process_group=0, umask=0o022)

    def end(self, child):
        """It reads the pipe until nobody holds it, and waits; then the whole process group goes. Nobody is let off."""
        said = child.communicate(timeout=LIMIT_S)[0].decode()
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(child.pid, number)
            except ProcessLookupError:
                break
            time.sleep(0.01)
        return child.returncode, said

    def prolog(self, comment=None, job=42, **more):
        code, said = self.end(self.start("prolog", job, comment, **more))
        assert code == 0 and said.count("\n") <= 1 and len(said) < 300, (code, said)
        return said

    def epilog(self, job=42, **more):
        code, said = self.end(self.start("epilog", job, args=["--deadline", f"{LIMIT_S}s"], SLURM_JOB_EXIT_CODE="0", **more))
        assert code == 0 and said.count("\n") <= 1, (code, said)
        return said

    def task(self, job=42, code=0, **env):
        """A task's environment and prints after its prolog, as slurmstepd takes them from its stdout."""
        env = {"SLURM_JOB_ID": str(job), "SLURM_LOCALID": "0", "SLURM_PROCID": "0", "PATH": "/usr/bin:/bin", "HOME": "/nonexistent",
               "TRAINAGENT_CONF": str(self.folder / "node.conf"), **SANITIZERS, **env}
        done = subprocess.run([self.folder / "slurm-taskprolog"], env=env, cwd="/", stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=2 * LIMIT_S, check=False)
        assert done.returncode == code and done.stderr == "", done
        exported, printed = {}, []
        for line in done.stdout.splitlines():
            verb, _, rest = line.partition(" ")
            assert verb in ("export", "print", "unset"), line
            if verb == "export":
                name, _, value = rest.partition("=")
                exported[name] = value
            elif verb == "unset":
                exported[rest] = None
            else:
                printed.append(rest)
        return exported, "\n".join(printed)

    # --- what there is --------------------------------------------------------------------------------------------------

    def ticket(self, job=42):
        path = self.tickets / str(job)
        return json.loads(path.read_text()) if path.exists() else None

    def staged(self, job=42):
        folder = self.shelf / "jobs" / str(job)
        return sorted(str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file() or f.is_symlink())

    def left(self):
        """What epilogs should have taken away."""
        jobs = self.shelf / "jobs"
        return sorted(f.name for f in [*self.tickets.glob("*"), *(jobs.iterdir() if jobs.exists() else ())])

    def workers(self):
        """Processes that were started by our links, and live: by what the kernel says of them."""
        found = []
        for proc in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if str(self.folder).encode() in (proc / "cmdline").read_bytes() and \
                        not re.search(r"^State:\s+Z", (proc / "status").read_text(), re.M):
                    found.append(int(proc.name))
            except OSError:
                pass
        return found

    def worker(self, begun):
        """The one that is left when all others have ended, and that has begun: before that it may be no more than a fork."""
        until(lambda: begun() and len(self.workers()) == 1)
        return self.workers()[0]

    def settle(self):
        until(lambda: not self.workers())
