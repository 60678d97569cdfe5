"""Agents on several nodes that start one world: each node is a loopback address and a folder of its own, and a process that can be
killed or stopped.

The command of most tests is EXCHANGE, a training loop in small: all ranks meet at MASTER_ADDR:MASTER_PORT, sum a number a step over all of
them, rank 0 writes checkpoint-<step> folders, and a rank whose peer is gone or silent ends with 75, as the trainer does."""
import contextlib
import hashlib
import hmac
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from harness.mirrord import BUILD, SANITIZERS, SLOW, free_port, until

EXCHANGE = r'''
import json, os, pathlib, signal, socket, struct, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
out, steps, patience = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
out.mkdir(exist_ok=True)
generation = os.environ["TRAINAGENT_GENERATION"]
(out / f"rank-{generation}-{rank}").write_text(json.dumps({**os.environ, "PID": os.getpid()}))

def again(why):
    print(f"rank {rank} of {world}, generation {generation}: {why}", file=sys.stderr, flush=True)
    os._exit(75)

def get(s):
    got = b""
    while len(got) < 8:
        some = s.recv(8 - len(got))
        if not some:
            again("a peer is gone")
        got += some
    return struct.unpack("!q", got)[0]

def meet():
    if rank == 0:
        listener = socket.create_server(place)
        listener.settimeout(patience)
        peers = {}
        while len(peers) < world - 1:
            s, _ = listener.accept()
            s.settimeout(patience)
            peers[get(s)] = s
        return [peers[r] for r in sorted(peers)]
    end = time.monotonic() + patience
    while True:
        try:
            s = socket.create_connection(place, timeout=patience)
            s.sendall(struct.pack("!q", rank))
            return [s]
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)

def holds(step):
    try:
        return step >= int((out / "hold").read_text())
    except FileNotFoundError:  # the test takes it away at any moment
        return False

try:
    peers = meet()
    done = max([int(p.name.split("-")[1]) for p in out.glob("checkpoint-*")], default=0)
    state = (out / f"checkpoint-{done}/state").read_text() if done else ""
    if rank == 0:
        for p in peers:
            p.sendall(struct.pack("!q", done))
    else:
        done = get(peers[0])
    for step in range(done + 1, steps + 1):
        mine = step * step * 7 % 13
        if rank == 0:
            total = mine + sum(get(p) for p in peers)
            for p in peers:
                p.sendall(struct.pack("!q", total))
            state += f"{step} {total} {world}\n"
            folder = out / f"new-{step}"
            folder.mkdir(exist_ok=True)
            (folder / "state").write_text(state)
            folder.rename(out / f"checkpoint-{step}")
        else:
            peers[0].sendall(struct.pack("!q", mine))
            get(peers[0])
        if holds(step):
            (out / f"held-{generation}-{rank}").touch()
            while (out / "hold").exists():
                time.sleep(0.01)
except OSError as e:
    again(e)
'''


class Node:
    def __init__(self, cluster, rank):
        self.cluster, self.rank, self.child, self.inside = cluster, rank, None, []
        self.folder = cluster.folder / f"node{rank}"
        self.folder.mkdir()
        self.address = f"127.0.0.{2 + rank}"
        (self.folder / "node.conf").write_text('preflight { timeout = 60s only = {"memory"} }\n')

    def start(self, *command, options=(), **env):
        """A process group of its own: what the agent leaves behind is ended with it."""
        env = {"PATH": f"{BUILD}:{os.environ['PATH']}", "HOME": str(self.folder), **SANITIZERS, "TRAINAGENT_STATE": str(self.folder / "state"),
               "TRAINAGENT_SHELF": str(self.folder / "shelf"), "TRAINAGENT_PREFLIGHT": str(self.folder / "node.conf"), **env}
        self.log = open(self.folder / "log", "ab")
        self.child = subprocess.Popen([*self.inside, BUILD / "trainagent", *map(str, [*options, *command])], env=env, cwd=self.folder,
                                      stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)
        self.cluster.children.append(self.child)
        return self

    def said(self):
        return (self.folder / "log").read_text()

    def ends(self, code):
        try:
            got = self.child.wait(timeout=240 * SLOW)
        except subprocess.TimeoutExpired:
            got = "nothing, it still runs"
        assert got == code, (self.rank, got, self.cluster.logs())


class Cluster:
    """nodes agents; --elastic and the like by options. The service is at node 0's address."""

    def __init__(self, folder):
        self.folder, self.children, self.node = folder, [], {}
        self.port, self.out = free_port(), folder / "out"
        (folder / "exchange.py").write_text(EXCHANGE)
        self.more = []

    def launch(self, rank, command=None, nodes=2, ranks=2, restarts=3, steps=30, patience=60 * SLOW, options=(), **env):
        n = self.node.get(rank) or self.node.setdefault(rank, Node(self, rank))
        command = command or [sys.executable, self.folder / "exchange.py", self.out, steps, patience]
        return n.start("launch", "--nodes" if isinstance(nodes, int) else "--elastic", nodes, "--node-rank", rank, "--rendezvous",
                       f"127.0.0.2:{self.port}", "--ranks", ranks, "--restarts", restarts, "--checkpoints", self.out, *options, "--", *command, **env)

    def all(self, nodes=2, **more):
        return [self.launch(r, nodes=nodes, **more) for r in range(nodes)]

    def rendezvous(self, nodes, restarts=3, options=()):
        """A process of its own; agents get --rendezvous-external."""
        n = self.node.setdefault("rendezvous", Node(self, 90))
        return n.start("rendezvous", "--nodes" if isinstance(nodes, int) else "--elastic", nodes, "--rendezvous", f"127.0.0.2:{self.port}",
                       "--restarts", restarts, "--checkpoints", self.out, *options)

    def hold(self, step):
        self.out.mkdir(exist_ok=True)
        (self.out / "hold").write_text(str(step))

    def go(self):
        (self.out / "hold").unlink()

    def held(self, ranks, generation=1):
        until(lambda: all((self.out / f"held-{generation}-{r}").exists() for r in range(ranks)) or
              any(c.poll() not in (None, 0, -9) for c in self.children))
        assert all((self.out / f"held-{generation}-{r}").exists() for r in range(ranks)), self.logs()

    def rank(self, generation, rank):
        return json.loads((self.out / f"rank-{generation}-{rank}").read_text())

    def state(self, step=30):
        return (self.out / f"checkpoint-{step}/state").read_text()

    def generations(self):
        return max(int(p.name.split("-")[1]) for p in self.out.glob("rank-*"))

    def logs(self):
        return "\n".join(f"node {r}:\n{n.said()}" for r, n in self.node.items())


def service_of(node):
    children = Path(f"/proc/{node.child.pid}/task/{node.child.pid}/children").read_text().split()
    [service] = [int(c) for c in children if Path(f"/proc/{c}/comm").read_text() == "rendezvous\n"]
    return service


def connections(pid):
    count = 0
    for p in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since
            count += os.readlink(p).startswith("socket:")
    return count


def whole(world, steps=30):
    return "".join(f"{s} {world * (s * s * 7 % 13)} {world}\n" for s in range(1, steps + 1))


@pytest.fixture
def cluster(tmp_path):
    c = Cluster(tmp_path)
    yield c
    for child in c.children:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signal.SIGCONT)
        child.kill()
        child.wait()


FAST = ["--node-timeout", f"{8 * SLOW}s"]  # the subject of the tests that have it


# --- one world --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [2, 4])
def test_nodes_start_one_world(cluster, nodes):
    for n in reversed(cluster.all(nodes)):
        n.ends(0)
    assert cluster.state() == whole(2 * nodes)
    seen = [cluster.rank(1, r) for r in range(2 * nodes)]
    for r, env in enumerate(seen):
        assert (env["RANK"], env["LOCAL_RANK"], env["WORLD_SIZE"], env["LOCAL_WORLD_SIZE"]) == (str(r), str(r % 2), str(2 * nodes), "2")
        assert (env["GROUP_RANK"], env["GROUP_WORLD_SIZE"], env["MASTER_ADDR"]) == (str(r // 2), str(nodes), "127.0.0.2")
        assert env["TORCHELASTIC_RESTART_COUNT"] == "0" and env["TORCHELASTIC_RUN_ID"] == f"127.0.0.2:{cluster.port}"
    assert len({env["MASTER_PORT"] for env in seen}) == 1


def test_nodes_may_come_in_any_order_and_with_other_numbers_of_ranks(cluster):
    nodes = [cluster.launch(r, nodes=3, ranks=3 - r) for r in (2, 1, 0)]
    for n in nodes:
        n.ends(0)
    assert cluster.state() == whole(6)
    assert [cluster.rank(1, r)["GROUP_RANK"] for r in range(6)] == ["0", "0", "0", "1", "1", "2"]


def test_by_job_files_and_published_once(cluster, mirrord):
    m = mirrord('repo "models" { protocol = "hosted" }\n')
    (cluster.folder / "token").write_text(m.token("publisher", "publish:models/me/*"))
    for r in (0, 1):
        n = cluster.node.setdefault(r, Node(cluster, r))
        path = n.folder / "job.conf"
        path.write_text(f"""mirror = "{m.url("")}"
            run {{ command = {{"{sys.executable}", "{cluster.folder}/exchange.py", "{{out}}", "5", "60"}} ranks = 1 restarts = 2
                  nodes = 2 node_rank = {r} rendezvous = "127.0.0.2:{cluster.port}" rendezvous_id = "wiki" out = "{cluster.out}" }}
            publish {{ from = "{{out}}" to = "models/me/sums" }}\n""")
        n.start("run", path, TRAINAGENT_TOKEN_FILE=str(cluster.folder / "token"))
    for r in (0, 1):
        cluster.node[r].ends(0)
    assert cluster.state(5) == whole(2, 5) and cluster.rank(1, 1)["TORCHELASTIC_RUN_ID"] == "wiki"
    assert m.get("/models/me/sums/state").body.decode() == whole(2, 5)
    uploads = [n for n in cluster.node.values() if json.loads((next((n.folder / "state/jobs").glob("*")) / "result.json").read_text())["phase"] == "publish"]
    assert [n.rank for n in uploads] == [0]


def test_a_home_that_all_nodes_share(cluster):
    """Their records and inputs are apart, and {out} is one folder."""
    path, state = cluster.folder / "job.conf", cluster.folder / "state"
    path.write_text(f"""run {{ command = {{"{sys.executable}", "{cluster.folder}/exchange.py", "{{out}}", "5", "60"}} ranks = 1
                  nodes = 2 rendezvous = "127.0.0.2:{cluster.port}" join_timeout = {30 * SLOW}s }}\n""")
    for r in (0, 1):
        n = cluster.node.setdefault(r, Node(cluster, r))
        n.start("run", path, "--node-rank", r, TRAINAGENT_STATE=str(state))
    for r in (0, 1):
        cluster.node[r].ends(0)
    [out] = state.glob("jobs/*/out")
    assert (out / "checkpoint-5/state").read_text() == whole(2, 5)
    names = sorted(p.parent.name for p in state.glob("jobs/*/result.json"))
    assert len(names) == 2 and names[1] == f"{names[0]}-node1", names


# --- faults -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", [0, 1, 3])
@pytest.mark.parametrize("step", [1, 17])
def test_a_rank_that_is_killed(cluster, victim, step):
    """All ranks of all nodes start again from the checkpoint, and come to what an unbroken run comes to."""
    cluster.hold(step)
    nodes = cluster.all()
    cluster.held(4)
    os.kill(cluster.rank(1, victim)["PID"], signal.SIGKILL)
    until(lambda: cluster.generations() == 2)
    cluster.go()
    for n in nodes:
        n.ends(0)
    assert cluster.state() == whole(4) and cluster.generations() == 2
    ports = {cluster.rank(g, r)["MASTER_PORT"] for g in (1, 2) for r in range(4)}
    assert len(ports) == 2  # a late process of the first generation knows only its own
    assert {cluster.rank(2, r)["TORCHELASTIC_RESTART_COUNT"] for r in range(4)} == {"1"}


@pytest.mark.parametrize("seed", range(4))
def test_kills_at_any_time(cluster, seed):
    """While ranks start, meet, sum, save, end: whatever the moment, the sums are those of an unbroken run."""
    dice = random.Random(seed)
    nodes = cluster.all(steps=3000, restarts=50)
    for _ in range(4):
        time.sleep(dice.random())
        found = [p for p in cluster.out.glob("rank-*") if p.exists()] if cluster.out.exists() else []
        newest = [p for p in found if p.name.split("-")[1] == str(cluster.generations())]
        for path in dice.sample(newest, min(1, len(newest))):
            with contextlib.suppress(OSError, ValueError):  # half written, or gone
                pid = json.loads(path.read_text())["PID"]
                if str(cluster.out).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
    for n in nodes:
        n.ends(0)
    assert cluster.state(3000) == whole(4, 3000)


def test_a_rank_that_is_stopped(cluster):
    """Its peers find it silent and end with 75, as the trainer does; it is killed with its generation."""
    cluster.hold(5)
    nodes = cluster.all(patience=8 * SLOW)
    cluster.held(4)
    os.kill(cluster.rank(1, 3)["PID"], signal.SIGSTOP)
    cluster.go()
    pid = cluster.rank(1, 3)["PID"]
    for n in nodes:
        n.ends(0)
    assert cluster.state() == whole(4) and cluster.generations() >= 2
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_an_agent_that_is_killed_or_stopped_ends_the_others_with_75(cluster, victim, how):
    cluster.hold(5)
    nodes = cluster.all(3, options=FAST)
    cluster.held(6)
    nodes[victim].child.send_signal(how)
    for n in nodes:
        if n.rank != victim:
            n.ends(75)
    assert cluster.generations() == 1
    if how == signal.SIGSTOP:
        nodes[victim].child.send_signal(signal.SIGCONT)
        nodes[victim].ends(75)
    for r in range(6):
        until(lambda pid=cluster.rank(1, r)["PID"]: not Path(f"/proc/{pid}").exists())
    cluster.go()
    for n in cluster.all(3):  # the scheduler starts it again
        n.ends(0)
    assert cluster.state() == whole(6)


def test_the_rendezvous_is_killed(cluster):
    cluster.hold(5)
    nodes = cluster.all()
    cluster.held(4)
    os.kill(service_of(nodes[0]), signal.SIGKILL)
    for n in nodes:
        n.ends(75)
        assert "the rendezvous closed the connection: node 0 or its agent has ended" in n.said()


@pytest.fixture
def cable():
    """Two networks of one host each, and a cable between them: [pid of one of its processes], cut()."""
    if os.geteuid() != 0:
        pytest.skip("networks of its own need root")
    holders = [subprocess.Popen(["unshare", "-n", "--kill-child", "sleep", "infinity"]) for _ in range(2)]
    mine = os.readlink("/proc/self/ns/net")
    pids = [h.pid for h in holders]
    until(lambda: all(os.readlink(f"/proc/{p}/ns/net") != mine for p in pids) or any(h.poll() is not None for h in holders))
    if any(h.poll() is not None for h in holders):
        pytest.skip("no networks of its own here")

    def ip(i, *args):
        subprocess.run(["nsenter", "-t", str(pids[i]), "-n", "ip", *args], check=True, capture_output=True)
    ip(0, "link", "add", "c0", "type", "veth", "peer", "name", "c0", "netns", str(pids[1]))
    for i in range(2):
        ip(i, "address", "add", f"192.0.2.{i + 1}/24", "dev", "c0")
        ip(i, "link", "set", "lo", "up")
        ip(i, "link", "set", "c0", "up")
    yield pids, lambda: ip(0, "link", "set", "c0", "down")
    for h in holders:
        h.kill()
        h.wait()


@pytest.mark.parametrize("nodes", [2, "1:2"])
def test_a_cable_that_is_cut(cluster, cable, nodes):
    """Nobody closes a connection: silence alone tells it, on both sides."""
    pids, cut = cable
    cluster.hold(5)
    cluster.out.mkdir(exist_ok=True)
    for r in range(2):
        n = cluster.node.setdefault(r, Node(cluster, r))
        n.inside = ["nsenter", "-t", str(pids[r]), "-n"]
        n.start("launch", "--nodes" if nodes == 2 else "--elastic", nodes, "--node-rank", r, "--rendezvous", "192.0.2.1:29400", "--ranks", 1,
                *FAST, "--", sys.executable, cluster.folder / "exchange.py", cluster.out, 30, 600)
    cluster.held(2)
    cut()
    if nodes == 2:
        cluster.node[0].ends(75)
        cluster.node[1].ends(75)
        assert "node 1 (192.0.2.2) was silent for too long" in cluster.node[0].said()
        assert "the rendezvous was silent for too long" in cluster.node[1].said()
        return
    cluster.held(1, generation=2)
    cluster.go()
    cluster.node[0].ends(0)
    cluster.node[1].ends(75)
    assert cluster.rank(2, 0)["WORLD_SIZE"] == "1"


def test_sigterm_to_one_agent(cluster):
    """A node that is drained: its ranks end, and the others end with 75."""
    cluster.hold(5)
    nodes = cluster.all(2)
    cluster.held(4)
    nodes[1].child.send_signal(signal.SIGTERM)
    nodes[1].ends(143)
    nodes[0].ends(75)
    assert "node 1 (127.0.0.1) left: a signal stopped the agent" in nodes[0].said()


@pytest.mark.parametrize("code", [1, 73, 78])
def test_a_final_code_of_one_rank_ends_all(cluster, code):
    for n in cluster.all(command=["sh", "-c", f"test $RANK = 3 && exit {code}; sleep 600"]):
        n.ends(code)


def test_the_code_that_ended_the_job_stays_when_the_rendezvous_is_gone_before_the_ranks(cluster):
    """Ranks that write a checkpoint on SIGTERM may take longer than the rendezvous lasts."""
    script = """test $RANK = 3 && { until [ -e $0/ready-0 -a -e $0/ready-1 -a -e $0/ready-2 ]; do sleep 0.05; done; exit 1; }
        trap 'touch $0/told-$RANK; until [ -e $0/go ]; do sleep 0.05; done; exit 75' TERM; touch $0/ready-$RANK; while :; do sleep 0.05; done"""
    cluster.out.mkdir()
    nodes = cluster.all(command=["sh", "-c", script, cluster.out], options=["--grace", "300s"])
    until(lambda: all((cluster.out / f"told-{r}").exists() for r in range(3)) or any(n.child.poll() is not None for n in nodes))
    os.kill(service_of(nodes[0]), signal.SIGKILL)
    until(lambda: connections(nodes[1].child.pid) == 0 or nodes[1].child.poll() is not None)
    (cluster.out / "go").touch()
    for n in nodes:
        n.ends(1)


def test_restarts_are_bounded(cluster):
    nodes = cluster.all(command=["sh", "-c", "echo x >>tries-$RANK; test $RANK = 2 && exit 75; sleep 600"], restarts=2)
    for n in nodes:
        n.ends(70)
        assert "after 2 restarts without a newer checkpoint" in n.said()
    assert (nodes[1].folder / "tries-2").read_text() == "x\n" * 3


def test_ranks_that_end_slowly_are_waited_for_beyond_the_join_timeout(cluster):
    """Ranks that write a checkpoint may take the whole grace, and only then does their agent join again."""
    script = f"""test $TRAINAGENT_GENERATION = 1 || exit 0; touch $0/began-$RANK
        test $RANK = 0 && {{ until [ -e $0/began-1 ]; do sleep 0.05; done; exit 75; }}
        trap 'sleep {12 * SLOW}; exit 75' TERM; while :; do sleep 0.05; done"""
    cluster.out.mkdir()
    for n in cluster.all(command=["sh", "-c", script, cluster.out], ranks=1, options=["--join-timeout", f"{10 * SLOW}s", "--grace", "300s"]):
        n.ends(0)


def test_progress_lets_restarts_go_on(cluster):
    """Each attempt comes one checkpoint further."""
    script = "n=$(ls -d $0/checkpoint-* 2>/dev/null | wc -l); test $n = 4 && exit 0; test $RANK = 0 || sleep 600; mkdir -p $0/checkpoint-$((n + 1)); exit 75"
    for n in cluster.all(command=["sh", "-c", script, cluster.out], ranks=1, restarts=1):
        n.ends(0)


def test_the_same_step_three_times_is_final(cluster):
    script = """mkdir -p $0; test $RANK = 0 || sleep 600; printf '{"step":7,"loss":1}\\n' >$0/metrics.jsonl; exit 75"""
    for n in cluster.all(command=["sh", "-c", script, cluster.out], ranks=1, restarts=50):
        n.ends(70)
        assert "failed 3 times in a row after step 7" in n.said()


def test_a_node_that_fell_sick_is_left(cluster):
    """Its agent ends with 71, so that the scheduler drains it; the others end with 75, and can go on elsewhere."""
    fakes = {"LD_LIBRARY_PATH": str(BUILD / "fake")}
    if not (BUILD / "fake/libnvidia-ml.so.1").exists():
        pytest.fail(f"{BUILD}/fake is not built: make test-programs")
    script = "test $RANK = 1 && exit 75; sleep 600"
    for r in (0, 1):
        n = cluster.node.setdefault(r, Node(cluster, r))
        (n.folder / "node.conf").write_text('preflight { timeout = 60s skip = {"cuda"} }\n')
    nodes = [cluster.launch(0, ["sh", "-c", script], ranks=1, FAKE_NVML="gpus=1", **fakes),
             cluster.launch(1, ["sh", "-c", script], ranks=1, FAKE_NVML="gpus=1;0.ecc=2", **fakes)]
    nodes[1].ends(71)
    nodes[0].ends(75)
    assert "this node is not fit for the job: ecc: " in nodes[1].said() and "node 1 (127.0.0.1) left: this node is not fit" in nodes[0].said()


# --- a rendezvous of its own -------------------------------------------------------------------------------------------------

EXTERNAL = ["--rendezvous-external"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_node_0_may_be_lost(cluster, how):
    cluster.hold(10)
    service = cluster.rendezvous("2:3", restarts=0, options=FAST)
    nodes = [cluster.launch(r, nodes="2:3", options=[*EXTERNAL, *FAST]) for r in range(3)]
    cluster.held(6)
    nodes[0].child.send_signal(how)
    until(lambda: all((cluster.out / f"held-2-{r}").exists() for r in range(4)) or service.child.poll() is not None)
    cluster.go()
    for n in (nodes[1], nodes[2], service):
        n.ends(0)
    assert cluster.state().splitlines() == whole(6).splitlines()[:10] + whole(4).splitlines()[10:]
    first = cluster.rank(2, 0)
    assert first["GROUP_RANK"] == "0" and first["WORLD_SIZE"] == "4" and first["HOME"] == str(nodes[1].folder)
    assert nodes[0].child.wait(240) != 0 and "node 0 (127.0.0.1) " in service.said()


def test_node_0_that_is_lost_without_elastic(cluster):
    cluster.hold(5)
    service = cluster.rendezvous(2, options=FAST)
    nodes = cluster.all(2, options=[*EXTERNAL, *FAST])
    cluster.held(4)
    nodes[0].child.kill()
    nodes[1].ends(75)
    service.ends(75)
    assert cluster.generations() == 1


def test_a_rendezvous_of_its_own_is_killed(cluster):
    cluster.hold(5)
    service = cluster.rendezvous(2)
    nodes = cluster.all(2, options=EXTERNAL)
    cluster.held(4)
    service.child.kill()
    for n in nodes:
        n.ends(75)
        assert "the rendezvous closed the connection: it has ended" in n.said()


def test_a_rendezvous_of_its_own_waits_for_the_first_agent(cluster):
    """The job may wait in a line."""
    service = cluster.rendezvous(2, options=["--join-timeout", "1s"])
    until(lambda: "rendezvous.listen" in service.said())
    time.sleep(2)
    first = cluster.launch(0, options=EXTERNAL)
    first.ends(75)  # but not for the last one
    service.ends(75)
    assert "only 1 of 2 nodes joined the rendezvous in time" in service.said()


def test_a_final_code_is_that_of_the_rendezvous_too(cluster):
    service = cluster.rendezvous(2)
    for n in [*cluster.all(2, command=["sh", "-c", "test $RANK = 3 && exit 65; sleep 600"], options=EXTERNAL), service]:
        n.ends(65)


def test_rank_0_is_found_where_its_agent_came_from(cluster, cable):
    pids, _ = cable
    cluster.out.mkdir(exist_ok=True)
    service = cluster.node.setdefault("rendezvous", Node(cluster, 90))
    service.inside = ["nsenter", "-t", str(pids[0]), "-n"]
    service.start("rendezvous", "--nodes", 2, "--rendezvous", "192.0.2.1:29400")
    for r in range(2):
        n = cluster.node.setdefault(r, Node(cluster, r))
        n.inside = ["nsenter", "-t", str(pids[1 - r]), "-n"]
        n.start("launch", "--nodes", 2, "--node-rank", r, "--rendezvous", "192.0.2.1:29400", *EXTERNAL, "--ranks", 1, "--", sys.executable,
                cluster.folder / "exchange.py", cluster.out, 5, 60)
    for n in cluster.node.values():
        n.ends(0)
    assert {cluster.rank(1, r)["MASTER_ADDR"] for r in range(2)} == {"192.0.2.2"} and cluster.state(5) == whole(2, 5)


def test_rank_0_is_found_at_a_link_local_address(cluster, cable):
    """Each node by the name that its own interface has."""
    pids, _ = cable
    for i, name in enumerate(("c0", "d0")):
        for args in (["link", "set", "c0", "down"], ["link", "set", "c0", "name", name], ["link", "set", name, "up"],
                     ["address", "add", f"fe80::{i + 1}/64", "dev", name, "nodad"]):
            if args[-1] != "c0" or args[-2] != "name":
                subprocess.run(["nsenter", "-t", str(pids[i]), "-n", "ip", *args], check=True, capture_output=True)
    cluster.out.mkdir(exist_ok=True)
    service = cluster.node.setdefault("rendezvous", Node(cluster, 90))
    service.inside = ["nsenter", "-t", str(pids[0]), "-n"]
    service.start("rendezvous", "--nodes", 2, "--rendezvous", "[fe80::1%c0]:29400", "--rendezvous-id", "job")
    for r, (pid, name) in enumerate(((pids[1], "d0"), (pids[0], "c0"))):
        n = cluster.node.setdefault(r, Node(cluster, r))
        n.inside = ["nsenter", "-t", str(pid), "-n"]
        n.start("launch", "--nodes", 2, "--node-rank", r, "--rendezvous", f"[fe80::1%{name}]:29400", "--rendezvous-id", "job", *EXTERNAL, "--ranks", 1,
                "--", "sh", "-c", 'echo $MASTER_ADDR >$0/at-$RANK', cluster.out)
    for n in cluster.node.values():
        n.ends(0)
    assert [(cluster.out / f"at-{r}").read_text() for r in range(2)] == ["fe80::2%d0\n", "fe80::2%c0\n"]


def test_the_first_node_that_is_left_publishes(cluster, mirrord):
    m = mirrord('repo "models" { protocol = "hosted" }\n')
    (cluster.folder / "token").write_text(m.token("publisher", "publish:models/me/*"))
    cluster.hold(3)
    cluster.rendezvous("1:2", options=FAST)
    for r in (0, 1):
        n = cluster.node.setdefault(r, Node(cluster, r))
        path = n.folder / "job.conf"
        path.write_text(f"""mirror = "{m.url("")}"
            run {{ command = {{"{sys.executable}", "{cluster.folder}/exchange.py", "{{out}}", "5", "60"}} ranks = 1 elastic = "1:2" node_rank = {r}
                  rendezvous = "127.0.0.2:{cluster.port}" rendezvous_external = true out = "{cluster.out}" }}
            publish {{ from = "{{out}}" to = "models/me/sums" }}\n""")
        n.start("run", path, TRAINAGENT_TOKEN_FILE=str(cluster.folder / "token"))
    cluster.held(2)
    cluster.node[0].child.kill()
    cluster.held(1, generation=2)
    cluster.go()
    cluster.node[1].ends(0)
    assert m.get("/models/me/sums/state").body.decode() == cluster.state(5)


# --- elastic ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
def test_elastic_goes_on_with_one_node(cluster, how):
    cluster.hold(10)
    nodes = [cluster.launch(r, nodes="1:2", restarts=0, options=FAST) for r in range(2)]
    cluster.held(4)
    nodes[1].child.send_signal(how)
    cluster.go() if how == signal.SIGSTOP else None
    if how != signal.SIGSTOP:
        until(lambda: cluster.generations() == 2)
        cluster.go()
    nodes[0].ends(0)
    if how == signal.SIGSTOP:  # the world may have finished before the silence was noticed: then both are done
        return
    lines = cluster.state().splitlines()
    assert lines[:10] == whole(4).splitlines()[:10] and lines[11:] == whole(2).splitlines()[11:], lines
    assert cluster.rank(2, 0)["WORLD_SIZE"] == "2" and cluster.rank(2, 0)["TORCHELASTIC_RESTART_COUNT"] == "1"


def test_elastic_a_stopped_node_that_wakes_joins_no_generation_that_runs(cluster):
    cluster.hold(10)
    nodes = [cluster.launch(r, nodes="1:2", options=FAST) for r in range(2)]
    cluster.held(4)
    pids = [cluster.rank(1, r)["PID"] for r in (2, 3)]
    nodes[1].child.send_signal(signal.SIGSTOP)
    cluster.held(2, generation=2)
    assert cluster.rank(2, 0)["WORLD_SIZE"] == "2"
    nodes[1].child.send_signal(signal.SIGCONT)
    for pid in pids:  # its ranks of the first generation end
        until(lambda p=pid: not Path(f"/proc/{p}").exists())
    os.kill(cluster.rank(2, 0)["PID"], signal.SIGKILL)
    cluster.held(4, generation=3)  # and it is there again in the next one
    cluster.go()
    for n in nodes:
        n.ends(0)
    assert cluster.rank(3, 0)["WORLD_SIZE"] == "4"


def test_elastic_begins_without_those_that_do_not_come(cluster):
    n = cluster.launch(0, nodes="1:2", options=FAST)
    n.ends(0)
    assert cluster.state() == whole(2)


def test_too_few_nodes(cluster):
    n = cluster.launch(0, options=["--join-timeout", "1s"])
    n.ends(75)
    assert "only 1 of 2 nodes joined the rendezvous in time" in n.said() and not list(cluster.out.glob("rank-*"))
    n = cluster.launch(1, options=["--join-timeout", "1s"])
    n.ends(75)
    assert f"cannot reach the rendezvous at 127.0.0.2, port {cluster.port}: Connection refused" in n.said()


def test_elastic_a_node_that_is_lost_again_and_again(cluster):
    """One loss is what 1:2 allows for; the next ones without a newer checkpoint count as restarts."""
    script = "test $TRAINAGENT_GENERATION = 4 && exit 0; touch $0/began-$TRAINAGENT_GENERATION-$RANK; exec sleep 600"
    cluster.out.mkdir()

    def start(rank):
        return cluster.launch(rank, ["sh", "-c", script, cluster.out], nodes="1:2", ranks=1, restarts=1)
    first = start(0)
    for generation in (1, 2, 3):
        node = start(1)
        until(lambda g=generation: (cluster.out / f"began-{g}-1").exists() or first.child.poll() is not None)
        node.child.kill()
        node.child.wait()
    node = start(1)
    first.ends(70)
    node.ends(70)
    assert "after 1 restarts without a newer checkpoint" in first.said()


def test_elastic_losses_with_progress_between_go_on(cluster):
    script = """test $TRAINAGENT_GENERATION = 5 && exit 0; mkdir -p $0/checkpoint-$TRAINAGENT_GENERATION
        touch $0/began-$TRAINAGENT_GENERATION-$RANK; exec sleep 600"""
    nodes = [cluster.launch(r, ["sh", "-c", script, cluster.out], nodes="1:2", ranks=1, restarts=0) for r in range(2)]
    for generation in (1, 2, 3, 4):
        until(lambda g=generation: (cluster.out / f"began-{g}-1").exists() or nodes[0].child.poll() is not None)
        nodes[1].child.kill()
        nodes[1].child.wait()
        nodes[1] = cluster.launch(1, ["sh", "-c", script, cluster.out], nodes="1:2", ranks=1, restarts=0)
    for n in nodes:
        n.ends(0)


def test_elastic_a_waiting_node_that_leaves_excuses_no_failure(cluster):
    """It had no ranks in the generation that failed."""
    script = """test $TRAINAGENT_GENERATION = 1 || exit 0; touch $0/began-$RANK
        test $RANK = 0 && { until [ -e $0/fail ]; do sleep 0.05; done; exit 75; }
        trap 'until [ -e $0/go ]; do sleep 0.05; done; exit 75' TERM; while :; do sleep 0.05; done"""
    cluster.out.mkdir()
    node = cluster.launch(0, ["sh", "-c", script, cluster.out], nodes="1:2", restarts=0, options=[*FAST, "--grace", "300s"])
    until(lambda: (cluster.out / "began-0").exists() and (cluster.out / "began-1").exists() or node.child.poll() is not None)
    spare = greet(cluster.port, f"127.0.0.2:{cluster.port}")
    spare.sendall(message(JOIN, node=1, ranks=1, low=1, high=2))
    (cluster.out / "fail").touch()
    until(lambda: "rendezvous.failed" in node.said() or node.child.poll() is not None)
    spare.close()
    until(lambda: "rendezvous.left" in node.said() or node.child.poll() is not None)
    (cluster.out / "go").touch()
    node.ends(75)
    assert "after 0 restarts" in node.said()


# --- strangers --------------------------------------------------------------------------------------------------------------


def greet(port, ident):
    """An agent's greeting, in Python: the socket of one that is let in."""
    s = socket.create_connection(("127.0.0.2", port), timeout=60)
    hello = b""
    while len(hello) < 24:
        hello += s.recv(24 - len(hello))
    assert hello[:8] == b"mrdagnt1"
    mine, key = os.urandom(16), hashlib.sha256(ident.encode()).digest()
    s.sendall(mine + hmac.new(key, b"agent" + hello[8:] + mine, "sha256").digest())
    answer = b""
    while len(answer) < 32:
        some = s.recv(32 - len(answer))
        if not some:
            return None
        answer += some
    assert answer == hmac.new(key, b"service" + hello[8:] + mine, "sha256").digest()
    return s


def message(kind, generation=0, node=0, ranks=0, low=0, high=0, code=0, text=b""):
    body = struct.pack("!B12I", kind, generation, node, ranks, low, high, code, 0, 0, 0, 0, 0, 0) + text
    return struct.pack("!H", len(body)) + body


JOIN, FAILED, DONE, LEAVE = 2, 3, 4, 5


def test_strangers_at_the_port_harm_nobody(cluster):
    cluster.hold(5)
    first = cluster.launch(0)
    until(lambda: socket.socket().connect_ex(("127.0.0.2", cluster.port)) == 0)
    silent = [socket.create_connection(("127.0.0.2", cluster.port)) for _ in range(100)]
    half = socket.create_connection(("127.0.0.2", cluster.port))
    half.sendall(b"GET / HT")
    loud = socket.create_connection(("127.0.0.2", cluster.port))
    loud.sendall(b"x" * 4096)
    assert greet(cluster.port, "another job") is None
    nodes = [first, cluster.launch(1)]
    cluster.held(4)
    assert greet(cluster.port, "another job") is None
    cluster.go()
    for n in nodes:
        n.ends(0)
    assert cluster.state() == whole(4) and "the rendezvous id differs from this job's" in first.said()
    for s in (*silent, half, loud):
        s.close()


def test_who_knows_the_id_and_lies_harms_nobody(cluster):
    """Words of another generation are not heard, nonsense ends the connection, a node rank that is taken stays so."""
    ident = f"127.0.0.2:{cluster.port}"
    cluster.hold(5)
    nodes = cluster.all()
    cluster.held(4)
    for lie in (message(FAILED, 1, code=75), message(FAILED, 9, code=75), message(DONE, 1), message(99), message(JOIN, node=7, ranks=1, low=2, high=2),
                message(JOIN, node=1, ranks=0, low=2, high=2), b"\xff\xff" + b"y" * 600, message(JOIN, node=1, ranks=2, low=2, high=2),
                message(LEAVE, text=b"n" * 199), message(FAILED, 1)[:20], message(1)):
        s = greet(cluster.port, ident)
        s.sendall(lie)
        s.shutdown(socket.SHUT_WR)
        while s.recv(4096):
            pass
        s.close()
    idle = greet(cluster.port, ident)  # takes no part, and is not waited for
    idle.sendall(message(1))
    os.kill(cluster.rank(1, 2)["PID"], signal.SIGKILL)
    cluster.held(4, generation=2)
    cluster.go()
    for n in nodes:
        n.ends(0)
    assert cluster.state() == whole(4) and cluster.generations() == 2
    idle.close()


def test_more_strangers_than_descriptors(cluster):
    """The oldest ones make room, and the log has it once."""
    n = cluster.node.setdefault(0, Node(cluster, 0))
    n.inside = ["prlimit", "--nofile=24:24", "--"]
    cluster.launch(0, steps=3)
    until(lambda: socket.socket().connect_ex(("127.0.0.2", cluster.port)) == 0)
    strangers = [socket.create_connection(("127.0.0.2", cluster.port)) for _ in range(60)]
    until(lambda: "rendezvous.full" in n.said() or n.child.poll() is not None)
    cluster.launch(1, steps=3).ends(0)
    n.ends(0)
    assert n.said().count("rendezvous.full") == 1
    for s in strangers:
        s.close()


def test_descriptors_up_to_the_hard_limit(cluster):
    n = cluster.node.setdefault(0, Node(cluster, 0))
    n.inside = ["prlimit", "--nofile=24:4096", "--"]
    cluster.launch(0, steps=3)
    until(lambda: socket.socket().connect_ex(("127.0.0.2", cluster.port)) == 0)
    strangers = [socket.create_connection(("127.0.0.2", cluster.port)) for _ in range(60)]
    for s in strangers:  # each is greeted
        assert s.recv(1) == b"m"
        s.close()
    cluster.launch(1, steps=3).ends(0)
    n.ends(0)
    assert "rendezvous.full" not in n.said()


def test_an_agent_of_another_job_or_with_other_nodes_is_told(cluster):
    first = cluster.launch(0)
    other = cluster.launch(1, nodes="2:3")
    other.ends(78)
    assert "node 1 was started for 2:3 nodes, but node 0 for 2:2; give all nodes the same --nodes or --elastic" in other.said()
    other = cluster.launch(1, options=["--rendezvous-id", "another", "--join-timeout", "1s"])
    other.ends(75)
    assert "--rendezvous-id differs" in other.said()
    cluster.launch(1).ends(0)
    first.ends(0)


def test_a_node_rank_that_is_taken(cluster):
    cluster.hold(3)
    nodes = cluster.all()
    cluster.held(4)
    second = Node(cluster, 5)
    cluster.node[5] = second
    second.start("launch", "--nodes", 2, "--node-rank", 1, "--rendezvous", f"127.0.0.2:{cluster.port}", "--join-timeout", "1s", "--", "true")
    second.ends(75)
    assert "node rank 1 is already used by the agent at 127.0.0.1" in second.said()
    cluster.go()
    for n in nodes:
        n.ends(0)


def test_two_jobs_at_one_address(cluster, tmp_path):
    """Without an id both are known by the address alone: the second one meets on the next port."""
    cluster.hold(3)
    first = cluster.all()
    cluster.held(4)
    (tmp_path / "second").mkdir()
    second = Cluster(tmp_path / "second")
    second.port, second.children = cluster.port, cluster.children
    for n in second.all(steps=3, options=["--join-timeout", f"{20 * SLOW}s"]):
        n.ends(0)
    assert second.state(3) == whole(4, 3)
    cluster.go()
    for n in first:
        n.ends(0)
    assert cluster.state() == whole(4)


@pytest.mark.parametrize("talks", [False, True])
def test_a_port_in_use(cluster, talks):
    """By a program that says nothing, or something else: agents meet on the next port."""
    with socket.create_server(("127.0.0.2", cluster.port)) as taken:
        def chat():
            with contextlib.suppress(OSError):
                while True:
                    s, _ = taken.accept()
                    if talks:
                        s.sendall(b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n")
                        s.close()
                    else:
                        held.append(s)
        held = []
        threading.Thread(target=chat, daemon=True).start()
        for n in cluster.all(steps=3):
            n.ends(0)
        taken.shutdown(socket.SHUT_RDWR)
    assert cluster.state(3) == whole(4, 3)


def test_the_service_listens_on_its_address_alone(cluster):
    cluster.hold(3)
    nodes = cluster.all()
    cluster.held(4)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.9", cluster.port))
    cluster.go()
    for n in nodes:
        n.ends(0)


def test_a_signal_is_heard_while_the_ports_are_tried(cluster):
    """All are others', and silent: each is given its time, but not after SIGTERM."""
    with contextlib.ExitStack() as stack:
        ports = [stack.enter_context(socket.create_server(("127.0.0.2", cluster.port + i))) for i in range(8)]
        node = cluster.launch(1)
        kept = stack.enter_context(ports[0].accept()[0])
        node.child.send_signal(signal.SIGTERM)
        node.ends(75)
        ports[7].setblocking(False)
        with pytest.raises(BlockingIOError):
            ports[7].accept()
        kept.close()


def test_an_address_that_is_not_of_node_0(cluster):
    n = Node(cluster, 0)
    cluster.node[0] = n
    n.start("launch", "--nodes", 2, "--node-rank", 0, "--rendezvous", "192.0.2.7:1234", "--join-timeout", "1s", "--", "true")
    n.ends(75)
    assert "--rendezvous must be an address of node 0" in n.said()


# --- launchers --------------------------------------------------------------------------------------------------------------


def test_as_kubeflow_says_it(cluster):
    for r in range(2):
        n = cluster.node.setdefault(r, Node(cluster, r))
        n.start("launch", "--", sys.executable, cluster.folder / "exchange.py", cluster.out, 4, 60, PET_NNODES="2", PET_NPROC_PER_NODE="3",
                PET_NODE_RANK=str(r), PET_MASTER_ADDR="127.0.0.2", PET_MASTER_PORT=str(cluster.port), PET_RDZV_ID="job")
    for r in range(2):
        cluster.node[r].ends(0)
    assert cluster.state(4) == whole(6, 4)


@pytest.mark.skipif(not any(os.access(f"{d}/mpirun", os.X_OK) for d in os.environ["PATH"].split(":")), reason="no Open MPI here")
def test_under_mpirun(cluster):
    """An agent a process; its ranks do not see Open MPI's variables."""
    env = {"PATH": f"{BUILD}:{os.environ['PATH']}", "HOME": str(cluster.folder), **SANITIZERS, "TRAINAGENT_STATE": str(cluster.folder / "state"),
           "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    start = ["mpirun", "--oversubscribe", "-n", "2", BUILD / "trainagent", "launch", "--ranks", "1"]
    command = ["--", sys.executable, cluster.folder / "exchange.py", cluster.out, "4", "60"]
    said = subprocess.run([*start, *command], env=env, capture_output=True, text=True, check=False, timeout=240)
    assert said.returncode == 78 and "give --rendezvous HOST:PORT" in said.stderr, said  # and nobody trains alone
    subprocess.run([*start, "--rendezvous", f"127.0.0.2:{cluster.port}", *command], env=env, check=True, capture_output=True, timeout=240)
    assert cluster.state(4) == whole(2, 4)
    assert not [name for name in cluster.rank(1, 1) if re.match("OMPI_COMM_WORLD|PMIX_", name)]


def test_what_is_missing_is_said_before_anything_starts(cluster):
    n = Node(cluster, 0)
    cluster.node[0] = n
    for args, says in ((["--nodes", 2], "give --node-rank"), (["--nodes", 2, "--node-rank", 0], "give --rendezvous HOST:PORT")):
        n.start("launch", *args, "--", "touch", "began")
        n.ends(78)
        assert says in n.said() and not (n.folder / "began").exists()
