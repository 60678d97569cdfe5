#!/usr/bin/env python3
"""bench.py - mirrord beside nginx and h2o, one core each, and beside rsync, in one run on this machine; tables with ratios.

As root it works in a network namespace of its own whose loopback uses cubic. Rates wander with the machine; CPU per
request and per GB are the stable figures, and the ratios are theirs: nginx's CPU over ours, so more than 1 is better.

  BENCH_QUICK=1      few short runs a row, a smaller large file, fewer idle connections
  BENCH_ONLY=agent   one section, or several with commas: idle, hits, logs, cold, hub, agent, swarm, fair, sync, million,
                     cluster; BENCH_BEFORE=DIR adds another build to its hits
  --build DIR        programs under test        --docs FILE    write the tables there too
"""
import argparse
import json
import os
import pathlib
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import agent  # noqa: E402
import cluster  # noqa: E402
import fair  # noqa: E402
import hub  # noqa: E402
import peers  # noqa: E402
import swarm  # noqa: E402
import sync  # noqa: E402
from harness.mirrord import certificate  # noqa: E402

QUICK = bool(os.environ.get("BENCH_QUICK"))
RUNS = 5
SECONDS = "1" if QUICK else "3"
LARGE = ("256m", 256 << 20) if QUICK else ("1g", 1 << 30)
SIZES = [("1k", 1 << 10), ("64k", 64 << 10), ("1m", 1 << 20), LARGE]
HERD = ("256m", 256 << 20)
IDLE = 1000 if QUICK else 10000
SECTIONS = {"idle": "Idle connections", "hits": "Hits", "logs": "Hits with an access log", "cold": "Cold", "hub": "Hugging Face Hub",
            "agent": "trainagent", "swarm": "Nodes that share a file", "fair": "One client beside a greedy one", "sync": "Sync",
            "million": "Sync of a million entries", "cluster": "Several mirrors over one bucket"}
TOOLS = {"hub": ["nginx", "h2load", "taskset", "curl"], "agent": ["curl", "taskset"], "swarm": ["ip", "tc"], "fair": ["taskset"], "sync": ["rsync"],
         "million": ["rsync"], "cluster": ["wrk", "taskset"]}
WEB_TOOLS = ["nginx", "h2o", "wrk", "h2load", "taskset", "curl"]
NAMES = {"h1": "HTTP/1.1", "h2": "HTTP/2, TLS", "h2c": "HTTP/2, clear"}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--build", default="build")
    p.add_argument("--docs")
    p.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args()
    only = [name for name in os.environ.get("BENCH_ONLY", "").split(",") if name] or list(SECTIONS)
    if "hub" in only and not args.inside:
        hub.prepare(pathlib.Path(args.build).resolve())
    if not args.inside and os.geteuid() == 0:
        return in_namespace()
    os.environ["PATH"] += ":/usr/sbin"
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    if unknown := set(only) - set(SECTIONS):
        raise SystemExit(f"bench: BENCH_ONLY={','.join(unknown)}: there are {', '.join(SECTIONS)}")
    for tool in sorted({tool for name in only for tool in TOOLS.get(name, WEB_TOOLS)}):
        if not shutil.which(tool):
            raise SystemExit(f"bench: {tool} is not installed: `make bench` installs it")
    folder = tempfile.mkdtemp(prefix="mirror-bench-")
    try:
        parts = measure(pathlib.Path(folder), pathlib.Path(args.build).resolve(), only)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(parts.values()))
    pathlib.Path(args.build, "bench.md").write_text("\n".join(parts.values()))
    if args.docs:
        replace_tables(pathlib.Path(args.docs), parts)
    return 0


def in_namespace():
    """The same again, in a namespace where loopback is cubic: bbr throttles clear text there by a factor of 5."""
    name = f"mirror-bench-{os.getpid()}"
    run = ["ip", "netns", "exec", name]
    if subprocess.run(["ip", "netns", "add", name], check=False).returncode != 0:
        return subprocess.run([sys.executable, *sys.argv, "--inside"], check=False).returncode
    try:
        subprocess.run([*run, "ip", "link", "set", "lo", "up"], check=True)
        for net in ("127.0.0.1", "127.0.0.0/8"):
            subprocess.run([*run, "ip", "route", "replace", "local", net, "dev", "lo", "proto", "kernel", "scope", "host",
                            "src", "127.0.0.1", "table", "local", "congctl", "cubic"], check=False)
        return subprocess.run([*run, sys.executable, *sys.argv, "--inside"], check=False).returncode
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


def measure(folder, build, only):
    """The text of each section."""
    folder.chmod(0o755)
    parts = beside_peers(folder, build, [name for name in only if name not in TOOLS])
    if "hub" in only:
        parts["hub"] = hub.table(folder, build, certificate(folder), QUICK)
    if "agent" in only:
        parts["agent"] = agent.table(folder, build, certificate(folder, agent.MIRROR), RUNS, QUICK)
    if "swarm" in only:
        parts["swarm"] = swarm.table(folder, build)
    if "fair" in only:
        parts["fair"] = fair.table(folder, build, QUICK)
    if "sync" in only:
        parts["sync"] = sync.table(folder, build, RUNS, QUICK)
    if "million" in only and not QUICK:
        parts["million"] = sync.million(folder, build)
    if "cluster" in only:
        parts["cluster"] = cluster.table(folder, build, QUICK)
    runs = {"hub": hub.RUNS, "swarm": swarm.RUNS}
    return {name: f"### {SECTIONS[name]}\n\n{heading(runs.get(name, RUNS))}\n{text}\n" for name, text in parts.items()}


def beside_peers(folder, build, only):
    if not only:
        return {}
    www = folder / "www"
    www.mkdir(mode=0o755)
    for name, size in {**dict(SIZES), **dict([HERD])}.items():
        with open(www / f"{name}.bin", "wb") as f:
            subprocess.run(["head", "-c", str(size), "/dev/urandom"], stdout=f, check=True)
    tools = build / "bench"
    yard = peers.Yard(folder, www, certificate(folder), build)
    try:
        warm(yard, tools)
        tables = {"idle": idle_table, "hits": hits_table, "logs": logs_table, "cold": cold_table}
        return {name: tables[name](yard, tools) for name in only}
    finally:
        yard.stop()


def heading(runs):
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return (f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores ({cpu[1] if cpu else platform.machine()}), "
            f"Linux {platform.release()}, {'quick, ' if QUICK else ''}median of {runs}, taking turns; "
            f"load {os.getloadavg()[0]:.1f} at the end{f', nice {os.nice(0)}' if os.nice(0) else ''}.\n")


def client(command, limit_s=300):
    done = subprocess.run(["taskset", "-c", peers.CLIENT_CORE, *map(str, command)], capture_output=True, text=True,
                          timeout=limit_s, check=False)
    return done.stdout + done.stderr


def warm(yard, tools):
    for server in yard.caches:
        for name, _ in SIZES:
            got = json.loads(client([tools / "dl", server.ports["h1"], server.path(f"{name}.bin")]))
            if got["whole"] != 1:
                raise SystemExit(f"bench: {server.name} does not serve {name}.bin: {got}")
    time.sleep(1)  # seals and hashing behind the first answer


# --- hits --------------------------------------------------------------------------------------------------------------

def load(server, wire, name, tools):
    """One load; returns (requests, seconds)."""
    port, path = server.ports[wire], server.path(f"{name}.bin")
    url = f"http{'s' if wire == 'h2' else ''}://127.0.0.1:{port}{path}"
    if wire == "h1" and name != LARGE[0]:
        clients = {"1k": 64, "64k": 64, "1m": 16}[name]
        text = client(["wrk", "-t1", f"-c{clients}", f"-d{SECONDS}s", url])
        found = re.search(r"(\d+) requests in ([\d.]+)(m?)s", text)
        if "Non-2xx" in text or not found:
            raise SystemExit(f"bench: {server.name} {wire} {name}: {text}")
        return int(found[1]), float(found[2])
    if wire == "h1":
        got = json.loads(client([tools / "dl", "-n", 8, port, path]))
        return got["whole"], got["took_s"]
    shape = {"1k": ["-c32", "-m32", "-D", SECONDS], "64k": ["-c32", "-m8", "-D", SECONDS],
             "1m": ["-c32", "-m4", "-n", "400" if QUICK else "2000"], LARGE[0]: ["-c1", "-m1", "-n6"]}[name]
    text = client(["h2load", "-t1", *(["--warm-up-time=0"] if "-D" in shape else []), *shape, url])
    took = re.search(r"finished in ([\d.]+)(ms|s|us)", text)
    done = re.search(r"(\d+) succeeded, (\d+) failed", text)
    if not took or not done or int(done[1]) == 0 or int(done[2]) > int(done[1]) // 100:
        raise SystemExit(f"bench: {server.name} {wire} {name}: {text}")
    return int(done[1]), float(took[1]) * {"s": 1, "ms": 1e-3, "us": 1e-6}[took[2]]


def hit(server, wire, name, tools):
    """(requests per second, CPU seconds per request) of one load."""
    before = server.cpu_s()
    requests, took_s = load(server, wire, name, tools)
    return requests / took_s, (server.cpu_s() - before) / requests


def hits(servers, wire, name, tools):
    """A median (rate, cost) for each server. They take turns: whatever else the machine does falls on all of them."""
    runs = [[hit(s, wire, name, tools) for s in servers] for _ in range(RUNS)]
    return [tuple(map(statistics.median, zip(*of_server))) for of_server in zip(*runs)]


def hits_table(yard, tools):
    rows = ["| wire | size | " + " | ".join(s.name for s in yard.measured) + " | x nginx | x nginx-cache | x h2o |",
            "|---|---|" + "---|" * (len(yard.measured) + 3)]
    for wire, wire_name in NAMES.items():
        for name, size in SIZES:
            got = hits(yard.measured, wire, name, tools)
            ours = got[0][1]
            cells = [cell(rate, cost, size) for rate, cost in got]
            ratios = [f"{cost / ours:.2f}" for _, cost in got[1:]]
            rows.append(f"| {wire_name} | {name} | " + " | ".join(cells + ratios) + " |")
            print(rows[-1], file=sys.stderr, flush=True)
    return "\n".join(rows)


def cell(rate, cost, size):
    if size >= 1 << 20:
        return f"{rate * size / 1e9:.2f} GB/s ({cost / size * 1e9:.3f} s/GB)"
    return f"{rate:,.0f}/s ({cost * 1e6:.1f} µs)"


# --- hits with an access log -------------------------------------------------------------------------------------------

def logs_table(yard, tools):
    """1 KiB over HTTP/1.1. A row's kinds take turns, so that what else the machine does falls on all of them."""
    kinds = [(server, log) for log in peers.LOGS for server in yard.logged]
    runs = []
    for _ in range(RUNS):
        runs.append([])
        for server, log in kinds:
            server.set_log(log)
            runs[-1].append(hit(server, "h1", "1k", tools))
    got = {(server.name, log): tuple(map(statistics.median, zip(*of_kind))) for (server, log), of_kind in zip(kinds, zip(*runs))}
    rows = ["CPU of a hit of 1 KiB over HTTP/1.1, including the threads that write the log. \"x off\" compares it with no access log.\n",
            "| access log | mirrord | x off | nginx | x off | x nginx |", "|---|---|---|---|---|---|"]
    for log in peers.LOGS:
        ours, theirs = got["mirrord", log], got["nginx-log", log]
        rows.append(f"| {log} | {cell(*ours, 1 << 10)} | {ours[1] / got['mirrord', 'off'][1]:.2f} | {cell(*theirs, 1 << 10)} | "
                    f"{theirs[1] / got['nginx-log', 'off'][1]:.2f} | {theirs[1] / ours[1]:.2f} |")
    lines = yard.logged[0].m.metric("mirrord_access_log_dropped_total")
    return "\n".join([*rows, f"\nLines that mirrord dropped: {lines:,.0f}."])


# --- idle connections --------------------------------------------------------------------------------------------------

def idle_table(yard, tools):
    rows = [f"Bytes of memory (Pss) per connection, {IDLE:,} held, after one request each.\n",
            "| server | HTTP/1.1 | HTTP/2, clear | HTTP/2, TLS |", "|---|---|---|---|"]
    for server in yard.measured:
        if server.name == "nginx-cache":
            continue
        cells = []
        for wire in ("h1", "h2c", "h2"):
            before = server.memory_bytes()
            with subprocess.Popen([tools / "idle", str(server.ports[wire]), wire, str(IDLE), server.path("1k.bin")],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
                opened = int(holder.stdout.readline().split()[1])
                grown = server.memory_bytes() - before
                holder.stdin.close()
                holder.wait(60)
            cells.append(f"{grown / max(opened, 1) / 1024:.1f} KiB" + ("" if opened == IDLE else f" ({opened} only)"))
            time.sleep(1)
        rows.append(f"| {server.name} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


# --- cold --------------------------------------------------------------------------------------------------------------

def cold_table(yard, tools):
    """A query makes a fresh object each time; the origin does not look at it."""
    name, size = HERD
    rows = ["| what | server | first byte, median / max | last byte | origin requests | origin bytes / object |",
            "|---|---|---|---|---|---|"]
    cases = [("100 clients, 200 MB/s a connection", "slow", ["-n", 100]),
             ("8 clients, 1 MB at 200 MB, cold", "slow", ["-n", 8, "-H", "Range: bytes=200000000-200999999"])]
    if not QUICK:
        cases.insert(1, ("100 clients, 40 MB/s a connection", "slow40", ["-n", 100]))
    turn = 0
    for what, folder, flags in cases:
        alone = json.loads(client([tools / "dl", *flags[2:], yard.origin.ports["h1"], f"/{folder}/{name}.bin"]))
        rows.append(f"| {what} | origin alone, 1 client | {alone['body_s'][1]:.3f} s | {alone['took_s']:.2f} s | | |")
        if "-H" not in flags:
            wire = json.loads(client([tools / "dl", "-t", 120, *flags, yard.measured[0].ports["h1"],
                                      yard.measured[0].path(f"{name}.bin")]))
            rows.append(f"| the same clients, a hit: the wire's own speed | mirrord | {wire['body_s'][1]:.3f} / "
                        f"{wire['body_s'][2]:.3f} s | {wire['end_s'][2]:.2f} s | 0 | |")
        for server in yard.caches:
            turn += 1
            before = yard.origin_log()
            got = json.loads(client([tools / "dl", "-t", 120, *flags, server.ports["h1"],
                                     server.path(f"{folder}/{name}.bin?turn={turn}")]))
            time.sleep(1)  # the origin's log is written when a request ends
            after = yard.origin_log()
            whole = "" if got["whole"] == got["clients"] else f" ({got['whole']} whole)"
            rows.append(f"| {what} | {server.name}{whole} | {got['body_s'][1]:.3f} / {got['body_s'][2]:.3f} s | "
                        f"{got['end_s'][2]:.2f} s | {after[0] - before[0]} | {(after[1] - before[1]) / size:.2f} |")
            print(rows[-1], file=sys.stderr, flush=True)
    return "\n".join(rows)


def replace_tables(docs, parts):
    """The sections between the two marks of docs/benchmarks.md; those that were not measured stay."""
    begin, end = "<!-- make bench: begin -->", "<!-- make bench: end -->"
    head, rest = docs.read_text().split(begin)
    old, tail = rest.split(end)
    stay = dict(re.findall(r"(?ms)^### (.*?)\n(.*?)(?=^### |\Z)", old))
    parts = {name: text for name, text in parts.items() if "\nNot measured: " not in text or SECTIONS[name] not in stay}
    texts = [parts.get(name) or f"### {title}\n{stay[title].rstrip()}\n"
             for name, title in SECTIONS.items() if name in parts or title in stay]
    docs.write_text(head + begin + "\n\n" + "\n".join(texts) + "\n" + end + tail)


if __name__ == "__main__":
    sys.exit(main())
