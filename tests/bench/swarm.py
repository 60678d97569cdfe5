"""swarm.py - nodes that want one file at the same moment, each alone and sharing its chunks; and what leading them costs.

Each node is a namespace behind a link of its own to one switch, as is the mirror; every link is shaped, both ways. All agents
start together, cold. Left alone they wait for the mirror's link; sharing, each chunk should leave it once.
"""
import base64
import contextlib
import http.client
import json
import os
import random
import secrets
import shutil
import statistics
import subprocess
import sys
import threading
import time

from agent import Unshaped, tool
from harness.mirrord import Mirrord

RATE, RATE_MB_S = "200mbit", 25
NET = "10.214.0"
CHUNKS, MEMBERS, ROUNDS = 20000, 1000, 3
QUICK = bool(os.environ.get("BENCH_QUICK"))
NODES, FILE_BYTES, RUNS = (4, 256 << 20, 1) if QUICK else (8, 512 << 20, 3)


@contextlib.contextmanager
def shaped_switch(nodes):
    """Yields for each node the prefix of commands that run there; we are the mirror, at NET.1."""
    if os.geteuid() != 0:
        raise Unshaped("namespaces and traffic control need root")
    pid = os.getpid()
    switch, made = f"mirror-switch-{pid}", []

    def shape(where, link):
        tool("ip", "-n", where, "link", "set", link, "up") if where else tool("ip", "link", "set", link, "up")
        tool("tc", *(["-n", where] if where else []), "qdisc", "add", "dev", link, "root", "tbf", "rate", RATE, "burst", "128k",
             "latency", "20ms")

    def plug(i, where):
        """Host i's link into the switch: its own end in `where`, None for ours."""
        near, far = f"ms{pid % 100000}p{i}", f"ms{pid % 100000}h{i}"
        tool("ip", "link", "add", far, "type", "veth", "peer", "name", near, "netns", switch)
        tool("ip", "-n", switch, "link", "set", near, "master", "sw0")
        shape(switch, near)
        if where:
            tool("ip", "link", "set", far, "netns", where)
        tool("ip", *(["-n", where] if where else []), "addr", "add", f"{NET}.{i}/24", "dev", far)
        shape(where, far)

    try:
        for name in (switch, *(f"mirror-swarm-{pid}-{i}" for i in range(nodes))):
            tool("ip", "netns", "add", name)
            made.append(name)
            tool("ip", "-n", name, "link", "set", "lo", "up")
        tool("ip", "-n", switch, "link", "add", "name", "sw0", "type", "bridge")
        tool("ip", "-n", switch, "link", "set", "sw0", "up")
        plug(1, None)
        for i, name in enumerate(made[1:]):
            plug(i + 2, name)
        yield [["ip", "netns", "exec", name] for name in made[1:]]
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def mirror(folder, build):
    m = Mirrord('log_level = "warn"\nstorage { quota = "20g" reserve = "16m" }\nrepo "o" { protocol = "hosted" }\npeers { }',
                folder=folder, build=build)
    m.access_log, m.wire_port = "none", 18081
    m.config += f'\nlisten "{NET}.1:{m.wire_port}" {{ tcp_congestion = "cubic" }}'
    return m.start()


def fill(m, folder, build, size):
    big, token = folder / "publish", folder / "token"
    big.mkdir()
    with open(big / "big", "wb") as f:
        subprocess.run(["head", "-c", str(size), "/dev/urandom"], stdout=f, check=True)
    token.write_text(m.token("bench", "publish:o/*") + "\n")
    subprocess.run([build / "trainagent", "-q", "--mirror", m.url(""), "--token-file", token, "--shelf", folder / "s", "--state",
                    folder / "s", "publish", big, "o/bench/big"], check=True)
    shutil.rmtree(big)
    shutil.rmtree(folder / "s", ignore_errors=True)


def herd(prefixes, folder, build, m, flags):
    """All at once, cold; (seconds of each node, bytes that left the mirror, CPU seconds of an agent)."""
    before = m.metric("mirrord_http_response_bytes_total")
    began, children, took, cpu = time.monotonic(), [], [], 0.0
    for i, prefix in enumerate(prefixes):
        home = folder / f"node{i}"
        shutil.rmtree(home, ignore_errors=True)
        (home / "to").mkdir(parents=True)
        env = dict(os.environ, TRAINAGENT_MIRROR=f"http://{NET}.1:{m.wire_port}", TRAINAGENT_SHELF=str(home / "shelf"),
                   TRAINAGENT_STATE=str(home / "state"))
        env.pop("TRAINAGENT_TOKEN_FILE", None)
        children.append(subprocess.Popen([*prefix, build / "trainagent", "-q", "pull", "o/bench/big/big", "--to", home / "to", *flags],
                                         env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
    for _ in children:
        pid, status, used = os.wait4(-1, 0)
        took.append(time.monotonic() - began)
        cpu += used.ru_utime + used.ru_stime
        child = next(c for c in children if c.pid == pid)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            raise SystemExit(f"bench: an agent ended with {child.returncode}")
    for i in range(len(prefixes)):
        shutil.rmtree(folder / f"node{i}")
    return took, m.metric("mirrord_http_response_bytes_total") - before, cpu / len(prefixes)


def herds(folder, build, runs=RUNS, nodes=NODES, size=FILE_BYTES):
    rows = [f"{nodes} nodes and the mirror at one switch, each link shaped to {RATE_MB_S} MB/s both ways; a file of {size >> 20} MiB, cold, all agents "
            "started at once.\n",
            "| | half of the nodes have it after | the last | bytes from the mirror / file | the last, x alone | CPU of an agent |",
            "|---|---|---|---|---|---|"]
    with shaped_switch(nodes) as prefixes:
        m = mirror(folder / "mirror", build)
        try:
            fill(m, folder, build, size)
            got = {name: [] for name in ("each alone", "sharing")}
            for _ in range(runs):
                for name, flags in (("each alone", []), ("sharing", ["--peers"])):
                    got[name].append(herd(prefixes, folder, build, m, flags))
                    took, sent, _ = got[name][-1]
                    print(f"swarm: {name}: {statistics.median(took):.1f} s, {max(took):.1f} s, {sent / size:.2f}", file=sys.stderr, flush=True)
        finally:
            m.stop()
    alone_s = statistics.median(max(took) for took, _, _ in got["each alone"])
    for name, all_runs in got.items():
        half_s = statistics.median(statistics.median(took) for took, _, _ in all_runs)
        last_s = statistics.median(max(took) for took, _, _ in all_runs)
        sent = statistics.median(sent for _, sent, _ in all_runs)
        cpu_s = statistics.median(cpu for _, _, cpu in all_runs)
        rows.append(f"| {name} | {half_s:.1f} s | {last_s:.1f} s | {sent / size:.2f} | {alone_s / last_s:.1f} | {cpu_s:.2f} s |")
    return rows


# --- what it costs to lead them ----------------------------------------------------------------------------------------

class Member:
    def __init__(self):
        self.id, self.have, self.take = secrets.token_hex(16), bytearray(CHUNKS // 8), []

    def get(self, chunks):
        for c in chunks:
            self.have[c // 8] |= 0x80 >> c % 8

    def body(self):
        return json.dumps({"id": self.id, "port": 4000, "have": base64.b64encode(self.have).decode(), "take": 4}).encode()


def announce(m, digest, members, there):
    """Each once: it has brought what it was asked for, and got as many from others."""
    wire = http.client.HTTPConnection("127.0.0.1", m.port)
    for one in members:
        one.get(one.take)
        one.get(random.sample(there, min(len(there), 4)))
        wire.request("POST", f"/-/peers/{digest}", one.body())
        answer = wire.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"bench: an announcement was answered {answer.status}: {text}")
        one.take = json.loads(text)["take"]
        there += one.take
    wire.close()


def cpu_s(m):
    with open(f"/proc/{m.child.pid}/stat", encoding="ascii") as f:
        fields = f.read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def leading(folder, build):
    """A file that is one hole: its chunks are counted, never read."""
    digest = secrets.token_hex(32)
    m = Mirrord('access_log_format = "json"\nrepo "o" { protocol = "hosted" }\npeers { again = 5m }', folder=folder, build=build)
    m.start()
    m.stop()
    subprocess.run([build / "harness" / "sparse_blob", m.state, digest, str(CHUNKS * 8 << 20), "o", "big"], check=True)
    m.start()
    try:
        members = [Member() for _ in range(MEMBERS)]
        announce(m, digest, members, [])
        began, lanes = cpu_s(m), []
        for i in range(4):
            part, there = members[i::4], []
            lanes.append(threading.Thread(target=lambda part=part, there=there: [announce(m, digest, part, there) for _ in range(ROUNDS)]))
            lanes[-1].start()
        for lane in lanes:
            lane.join()
        each_us = (cpu_s(m) - began) / (MEMBERS * ROUNDS) * 1e6
        return (f"\n{MEMBERS:,} members that announce a file of {CHUNKS:,} chunks: {each_us:.0f} µs of mirrord's CPU each; with "
                f"`again = 5s`, {each_us * MEMBERS / 5 / 1e4:.1f} % of a core. Peak memory {m.peak_bytes() >> 20} MiB.")
    finally:
        m.stop()


def table(folder, build):
    """The section's text; without links to shape, why there is none."""
    for name in ("mirror", "leading"):
        (folder / name).mkdir()
    try:
        rows = herds(folder, build)
    except Unshaped as why:
        rows = [f"Not measured: {why}."]
    return "\n".join([*rows, leading(folder / "leading", build)])
