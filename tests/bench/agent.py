"""agent.py - trainagent beside curl, on a wire of 300 MB/s: what verifying costs, and what many small files do.

The wire is a veth pair into a namespace of its own, with a token bucket at the mirror's end. Both clients take the same
bytes from the same mirrord into the same file system, cold, in turn; curl checks nothing and syncs nothing. The file system
is an ext4 of its own with a journal, as nodes have: without one, ext4 avoids inodes that were freed in the last minutes, and
the search for others costs more than all else.
"""
import contextlib
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import time

import peers
from harness.mirrord import Mirrord

RATE = "2400mbit"  # 300 MB/s
RATE_MB_S = 300
MIRROR, NODE = "10.213.77.1", "10.213.77.2"
SMALL_FILES, SMALL_BYTES = (1000, 10000), 16 << 10
NODE_CORES = f"1-{os.cpu_count() - 1}" if os.cpu_count() > 2 else "1"


class Unshaped(Exception):
    """No wire could be made; why."""


def tool(*command):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unshaped(f"`{' '.join(map(str, command))}`: {(done.stderr or done.stdout).strip().splitlines()[-1]}")


@contextlib.contextmanager
def shaped_wire():
    """Yields the prefix of commands that run at the node's end; we are the mirror's."""
    if os.geteuid() != 0:
        raise Unshaped("namespaces and traffic control need root")
    node = f"mirror-node-{os.getpid()}"
    near, far = f"mb{os.getpid() % 100000}a", f"mb{os.getpid() % 100000}b"
    tool("ip", "netns", "add", node)
    try:
        tool("ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", node)
        tool("ip", "addr", "add", f"{MIRROR}/30", "dev", near)
        tool("ip", "-n", node, "addr", "add", f"{NODE}/30", "dev", far)
        for where in (["ip", "link", "set", near, "up"], ["ip", "-n", node, "link", "set", far, "up"],
                      ["ip", "-n", node, "link", "set", "lo", "up"]):
            tool(*where)
        # A quarter of a megabyte at once, and a queue of 20 ms: a switch port, more or less.
        tool("tc", "qdisc", "add", "dev", near, "root", "tbf", "rate", RATE, "burst", "256k", "latency", "20ms")
        yield ["ip", "netns", "exec", node, "taskset", "-c", NODE_CORES]
    finally:
        subprocess.run(["ip", "link", "del", near], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", node], capture_output=True, check=False)


@contextlib.contextmanager
def journaled(folder):
    """Yields a folder on an ext4 with a journal."""
    image, at = folder.with_suffix(".ext4"), folder
    with open(image, "wb") as f:
        f.truncate(8 << 30)
    tool("mkfs.ext4", "-q", "-F", "-O", "has_journal", image)
    tool("mount", "-o", "loop", image, at)
    try:
        yield at
    finally:
        tool("umount", at)
        image.unlink()


class Node:
    """One end of the wire: runs a client on empty folders, and says (wall, CPU, peak memory)."""

    def __init__(self, prefix, folder, build, m, cert):
        self.prefix, self.folder, self.build, self.cert = prefix, folder, build, cert
        self.url = {"HTTP/1.1": f"http://{MIRROR}:{m.wire_port}", "HTTP/1.1, TLS": f"https://{MIRROR}:{m.wire_tls_port}"}

    def time(self, command, env=None):
        for name in ("shelf", "to"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        (self.folder / "to").mkdir()
        os.sync()
        time.sleep(0.3)
        began = time.monotonic()
        child = subprocess.Popen([*self.prefix, *map(str, command)], env=env, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        took_s = time.monotonic() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            raise SystemExit(f"bench: {command[0]} ended with {child.returncode}")
        return took_s, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024

    def curl(self, wire, name, count):
        args = ["curl", "-q", "-sS", "--no-progress-meter", "--noproxy", "*", "--http1.1", "--cacert", self.cert]
        if count == 1:
            return self.time([*args, "-o", self.folder / "to" / name, f"{self.url[wire]}/o/bench/{name}/{name}"])
        urls = self.folder / "urls"
        urls.write_text("".join(f'url = "{self.url[wire]}/o/bench/{name}/{i}.bin"\noutput = "{self.folder}/to/{i}.bin"\n'
                                for i in range(count)))
        return self.time([*args, "--parallel", "--parallel-max", "8", "-K", urls])

    def agent(self, wire, name, count):
        env = dict(os.environ, TRAINAGENT_MIRROR=self.url[wire], TRAINAGENT_SHELF=str(self.folder / "shelf"),
                   TRAINAGENT_STATE=str(self.folder / "state"), TRAINAGENT_CA_FILE=str(self.cert))
        env.pop("TRAINAGENT_TOKEN_FILE", None)
        what = f"o/bench/{name}/" if count > 1 else f"o/bench/{name}/{name}"
        return self.time([self.build / "trainagent", "-q", "pull", what, "--to", self.folder / "to"], env)


def mirror(folder, build, cert):
    m = Mirrord('threads = 1\nlog_level = "warn"\nstorage { quota = "20g" reserve = "16m" }\nrepo "o" { protocol = "hosted" }',
                folder=folder, build=build)
    m.access_log, m.wire_port, m.wire_tls_port = "none", 18080, 18443
    lan = 'tcp_congestion = "cubic"'
    m.config += (f'\nlisten "{MIRROR}:{m.wire_port}" {{ {lan} }}\nlisten "{MIRROR}:{m.wire_tls_port}" '
                 f'{{ {lan} tls_certificate = "{cert[0]}" tls_key = "{cert[1]}" }}')
    m.command = ["taskset", "-c", peers.SERVER_CORE]
    return m.start()


def fill(m, folder, build, big_bytes):
    """Publishes big/big and many1000/0.bin, ... into the hosted repo."""
    rng = random.Random(1)
    token = folder / "token"
    token.write_text(m.token("bench", "publish:o/*") + "\n")
    for name, count in (("big", 1), *((f"many{n}", n) for n in SMALL_FILES)):
        tree = folder / name
        tree.mkdir()
        if count == 1:
            with open(tree / name, "wb") as f:
                subprocess.run(["head", "-c", str(big_bytes), "/dev/urandom"], stdout=f, check=True)
        else:
            for i in range(count):
                (tree / f"{i}.bin").write_bytes(rng.randbytes(SMALL_BYTES))
        subprocess.run([build / "trainagent", "-q", "--mirror", m.url(""), "--token-file", token, "--shelf", folder / "s", "--state",
                        folder / "s", "publish", tree, f"o/bench/{name}"], check=True)
        shutil.rmtree(tree)


def table(folder, build, cert, runs, quick):
    """The section's text; without a wire, why there is none."""
    big_bytes = 512 << 20 if quick else 2 << 30
    rows = [f"A link shaped to {RATE_MB_S} MB/s, an empty local cache each time. curl verifies nothing and does not sync; the agent verifies "
            "every byte and makes it durable.\n",
            "| what | curl | trainagent | x curl | CPU, curl / agent | peak memory |", "|---|---|---|---|---|---|"]
    for name in ("agent-mirror", "node"):
        (folder / name).mkdir()
    try:
        with shaped_wire() as prefix, journaled(folder / "node") as disk:
            m = mirror(folder / "agent-mirror", build, cert)
            try:
                fill(m, folder, build, big_bytes)
                node = Node(prefix, disk, build, m, cert[0])
                cases = [(f"{big_bytes >> 20} MiB, {wire}", wire, "big", 1, big_bytes) for wire in node.url]
                cases += [(f"{n:,} files of 16 KiB, HTTP/1.1", "HTTP/1.1", f"many{n}", n, n * SMALL_BYTES) for n in SMALL_FILES]
                for case in cases:
                    rows.append(row(node, *case, runs))
                    print(rows[-1], file=sys.stderr, flush=True)
            finally:
                m.stop()
    except Unshaped as why:
        rows = [f"Not measured: {why}."]
    return "\n".join(rows)


def row(node, what, wire, name, count, size, runs):
    """Takes turns, A B B A; many small files are quick, and so have more of them."""
    curl, agent = [], []
    for i in range(runs if count == 1 else max(runs, 5)):
        for client, times in ((node.curl, curl), (node.agent, agent))[::-1 if i % 2 else 1]:
            times.append(client(wire, name, count))
    curl_s, agent_s = (statistics.median(run[0] for run in of) for of in (curl, agent))
    curl_cpu, agent_cpu = (statistics.median(run[1] for run in of) for of in (curl, agent))
    memory = max(run[2] for run in agent)

    def cell(took_s):
        return f"{took_s:.2f} s ({size / took_s / 1e6:,.0f} MB/s)"
    return (f"| {what} | {cell(curl_s)} | {cell(agent_s)} | {curl_s / agent_s:.2f} | {curl_cpu:.2f} / {agent_cpu:.2f} s | "
            f"{memory / 1e6:.0f} MB |")
