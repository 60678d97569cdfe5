"""A whole Slurm on this machine, in namespaces of its own: munged, slurmctld, one slurmd for each node. Files that
programs look for at fixed places (/etc, /run, /var/cache) are its own, the network is a loopback of its own; one kill ends all of it."""
import ctypes
import os
import pathlib
import shutil
import socket
import subprocess
import threading

import pytest

from harness.mirrord import BUILD, SLOW, until

NEEDS = ["slurmctld", "slurmd", "munged", "sbatch", "scancel", "sinfo", "unshare", "nsenter", "runuser", "ip", "hostname"]
USERS = {"alice": 4242, "trainagent": 4243}
CLONE_NEWNET = 0x40000000

SETUP = """
set -e
mount --make-rprivate /
mkdir -p {folder}/etc && cp -a /etc/. {folder}/etc/ && mount --bind {folder}/etc /etc
for at in /run /var/cache /var/log /var/spool; do mount -t tmpfs -o mode=755 tmpfs $at; done
hostname node1
ip link set lo up && ip addr add 192.0.2.1/32 dev lo   # with loopback addresses alone Slurm resolves none
echo '127.0.0.1 localhost node1 node2' >/etc/hosts
mkdir -p /etc/trainagent /etc/slurm /run/bin /run/lib/trainagent /run/munge /run/systemd/journal /var/log/slurm /var/spool/ctld
chmod 755 /run/munge
cp {trainagent} /run/bin/trainagent && chmod 755 /run/bin/trainagent
for f in prolog taskprolog epilog; do ln -s ../../bin/trainagent /run/lib/trainagent/slurm-$f; done
head -c 1024 /dev/urandom >/run/munge.key && chmod 400 /run/munge.key
cat >/etc/slurm/slurm.conf <<'END'
ClusterName=t
SlurmctldHost=node1(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=/run/munge/socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
ReturnToService=2
SchedulerParameters=nohold_on_prolog_fail
PrologFlags=Alloc
MessageTimeout=100
BatchStartTimeout=300
SlurmdTimeout=600
SlurmdParameters=config_overrides
PrologEpilogTimeout={timeout}
Prolog=/run/lib/trainagent/slurm-prolog
TaskProlog=/run/lib/trainagent/slurm-taskprolog
Epilog=/run/lib/trainagent/slurm-epilog
StateSaveLocation=/var/spool/ctld
SlurmdSpoolDir=/var/spool/slurmd-%n
SlurmctldLogFile=/var/log/slurm/ctld.log
SlurmdLogFile=/var/log/slurm/%n.log
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/%n.pid
{nodes}
PartitionName=p Nodes=ALL Default=YES State=UP OverSubscribe=YES
END
"""


class Cluster:
    def __init__(self, folder):
        self.folder, self.lines = folder, []
        self.holder = subprocess.Popen(["unshare", "-m", "-n", "-p", "-u", "--fork", "--kill-child", "--mount-proc",
                                        "env", "--ignore-signal=CHLD", "sleep", "infinity"],  # who is nobody's child is reaped
                                      
                                       stderr=subprocess.PIPE)
        children = pathlib.Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children")
        until(lambda: self.holder.poll() is not None or (children.exists() and children.read_text().strip()))
        if self.holder.poll() is not None:
            pytest.skip(f"no namespaces here: {self.holder.stderr.read().decode().strip()}")
        self.pid = int(children.read_text())
        until(lambda: pathlib.Path(f"/proc/{self.pid}/comm").read_text().strip() == "sleep")
        self.root = pathlib.Path(f"/proc/{self.pid}/root")

    def close(self):
        self.holder.kill()
        self.holder.wait()

    def run(self, *args, user=None, check=True, text=None):
        inside = ["nsenter", "-t", str(self.pid), "-m", "-n", "-p", "-u", "--wd=/", *(["runuser", "-u", user, "--"] if user else []), *args]
        done = subprocess.run(inside, capture_output=True, text=True, check=False, timeout=300 * SLOW, input=text,
                              env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SLURM_CONF": "/etc/slurm/slurm.conf", "LANG": "C"})
        assert not check or done.returncode == 0, (args, done, self.logs())
        return done

    def start(self, conf, nodes=1):
        users = "".join(f"{name}:x:{uid}:{uid}::/tmp:/bin/sh\n" for name, uid in USERS.items())
        groups = "".join(f"{name}:x:{uid}:\n" for name, uid in USERS.items())
        self.run("sh", "-c", SETUP.format(folder=self.folder, trainagent=BUILD / "trainagent", timeout=100 * SLOW, nodes="\n".join(
            f"NodeName=node{i + 1} NodeHostname=node1 NodeAddr=127.0.0.1 Port={17000 + i} CPUs=4 State=UNKNOWN" for i in range(nodes))))
        for name, text in (("passwd", users), ("group", groups)):
            with open(self.root / "etc" / name, "a", encoding="utf-8") as f:
                f.write(text)
        (self.root / "etc/trainagent/trainagent.conf").write_text(conf)
        self.listen()
        self.run("munged", "--force", "--key-file=/run/munge.key", "--socket=/run/munge/socket", "--pid-file=/run/munged.pid",
                 "--log-file=/var/log/munged.log", "--seed-file=/run/munge.seed")
        self.run("slurmctld")
        for i in range(nodes):
            self.run("slurmd", "-N", f"node{i + 1}")
        until(lambda: self.node() == "idle")

    def mirror(self, make):
        """make() with the network of the cluster: a socket stays where it was made."""
        got = []

        def there():
            with open(f"/proc/{self.pid}/ns/net", "rb") as ns:
                if ctypes.CDLL(None, use_errno=True).setns(ns.fileno(), CLONE_NEWNET) == 0:
                    got.append(make())
        t = threading.Thread(target=there)
        t.start()
        t.join()
        assert got, "setns"
        return got[0]

    def listen(self):
        """As systemd's journal does."""
        self.journal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.journal.bind(str(self.root / "run/systemd/journal/socket"))
        os.chmod(self.root / "run/systemd/journal/socket", 0o666)
        self.journal.setblocking(False)

    def journal_of(self, job):
        while True:
            try:
                self.lines.append(self.journal.recv(65536).decode())
            except BlockingIOError:
                return "\n".join(line for line in self.lines if f"\nSLURM_JOB_ID={job}\n" in line)

    # --- what one does with a Slurm ---------------------------------------------------------------------------------------

    def node(self):
        return self.run("sinfo", "-h", "-o", "%T", check=False).stdout.strip()

    def submit(self, script, comment=None, *args):
        return int(self.run("sbatch", "--parsable", "-D", "/tmp", "-o", str(self.out("%j")), *args,
                            *([f"--comment={comment}"] if comment else []), user="alice", text=f"#!/bin/sh\n{script}\n").stdout)

    def out(self, job):
        return pathlib.Path(self.folder, f"out-{job}")

    def state(self, job):
        words = dict(w.split("=", 1) for w in self.run("scontrol", "show", "job", str(job)).stdout.split() if "=" in w)
        return words["JobState"]

    def wait(self, job):
        """Its state, when it is done and its epilog too."""
        def over():
            return self.state(job) in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT") and self.node() == "idle"
        until(over)
        return self.state(job), self.out(job).read_text() if self.out(job).exists() else ""

    def left(self):
        found = [*(self.root / "run/trainagent").glob("*"), *(self.root / "var/cache/trainagent/jobs").glob("*")]
        return sorted(f.name for f in found)

    def workers(self):
        return self.run("pgrep", "-x", "slurm-prolog", check=False).stdout.split()

    def logs(self):
        return "\n".join(f"{f.name}:\n{f.read_text(errors='replace')[-3000:]}" for f in (self.root / "var/log/slurm").glob("*.log"))


def needed():
    if os.geteuid() != 0:
        pytest.skip("a cluster of its own needs root")
    for name in NEEDS:
        if shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin") is None:
            pytest.skip(f"{name} is not installed")
