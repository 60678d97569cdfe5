"""cluster.py - what it costs to be one of several mirrors over one bucket, beside a mirror that stands alone.

The bucket is the one of the tests (harness/bucket.py), which is Python: its times are a floor for nobody. Therefore requests are counted,
and CPU is compared. Measured mirrors have core 0; clients, the bucket and HAProxy have core 1. $BENCH_BEFORE is the build folder of an
earlier version, whose hits are then a column, too.
"""
import hashlib
import http.client
import os
import pathlib
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time

import peers
from harness.bucket import Bucket
from harness.mirrord import Mirrord, free_port, until
from harness.s3 import signed

RUNS = 5
SIZES = {"1k": 1 << 10, "64k": 64 << 10, "1m": 1 << 20}
FILE_BYTES = 10 << 10
HAPROXY = """
global
    nbthread 1
    maxconn 2000
defaults
    mode http
    timeout connect 2s
    timeout client 60s
    timeout server 60s
    option httpchk
    http-check send meth GET uri /readyz
    default-server check inter 500ms fall 2 rise 2
frontend mirror
    bind 127.0.0.1:{port}
    default_backend mirrors
backend mirrors
    balance uri
    hash-type consistent
    http-response set-header x-server %s
"""


class Mirror(peers.Server):
    """One loop thread; cluster: its section."""

    def __init__(self, name, build, cluster="", core=peers.SERVER_CORE):  # pylint: disable=super-init-not-called
        self.name, self.port = name, free_port()
        self.m = Mirrord(f'threads = 1 log_level = "warn" storage {{ quota = "20g" reserve = "16m" }}\n'
                         f'repo "models" {{ protocol = "hosted" }} listen "127.0.0.1:{self.port}" {{ }} {cluster.format(port=self.port)}', build=build)
        self.m.access_log, self.m.command = "none", ["taskset", "-c", core]
        self.m.start()
        self.child = self.m.child

    def stop(self):
        self.m.remove()


class Yard:
    """A bucket, and mirrors of its cluster."""

    def __init__(self, folder, build):
        self.build, self.bucket = build, Bucket().__enter__()
        self.secret = self.bucket.secret_file(folder)
        self.keys, self.mirrors = self.bucket.keys_file(folder), []

    def section(self, told=True, more=""):
        """told: the others tell it what is new."""
        ways = f'secret = "file:{self.secret}" address = "http://127.0.0.1:{{port}}"' if told else ""
        return (f'cluster "{self.bucket.url}" {{{{ {self.bucket.access(self.keys)} '
                f"{ways} {more} }}}}")

    def mirror(self, name, core=peers.SERVER_CORE, **how):
        self.mirrors.append(Mirror(name, self.build, self.section(**how), core))
        return self.mirrors[-1]

    def know_each_other(self, count):
        until(lambda: sum(k.startswith("prod/node/") for k in self.bucket.objects) >= count)
        beats = self.bucket.counts["PUT", "node"]
        until(lambda: self.bucket.counts["PUT", "node"] >= beats + 2 * count)

    def stop(self):
        for m in self.mirrors:
            m.stop()
        self.bucket.__exit__()


def table(folder, build, quick):
    """The section's text."""
    os.sched_setaffinity(0, {int(peers.CLIENT_CORE)})
    parts = []
    for part in (hits, behind_haproxy, many_files, small_publishes, seen_elsewhere):
        place = folder / part.__name__
        place.mkdir()
        parts.append(part(place, build, quick))
        print(parts[-1], file=sys.stderr, flush=True)
    return "\n\n".join(parts)


def client(*command):
    done = subprocess.run(["taskset", "-c", peers.CLIENT_CORE, *map(str, command)], capture_output=True, text=True, timeout=300, check=False)
    return done.stdout + done.stderr


def wrk(port, path, seconds, clients=32):
    """Requests that succeeded."""
    text = client("wrk", "-t1", f"-c{clients}", f"-d{seconds}s", f"http://127.0.0.1:{port}{path}")
    found = re.search(r"(\d+) requests in", text)
    if not found or "Non-2xx" in text:
        raise SystemExit(f"bench: {path}: {text}")
    return int(found[1])


def publish_sizes(m):
    token = m.token("ci", "publish:models/*")
    for name, size in SIZES.items():
        assert m.put(f"/models/me/gpt/{name}", os.urandom(size), token=token).status == 201
    return token


def cost(mirrors, load):
    """CPU in microseconds of all these mirrors for each request of load()."""
    before = sum(m.cpu_s() for m in mirrors)
    requests = load()
    return (sum(m.cpu_s() for m in mirrors) - before) / requests * 1e6


def medians(kinds):
    """kinds: name -> function that measures once. They take turns."""
    runs = [{name: measure() for name, measure in kinds.items()} for _ in range(RUNS)]
    return {name: statistics.median(run[name] for run in runs) for name in kinds}


# --- hits --------------------------------------------------------------------------------------------------------------

def hits(folder, build, quick):
    seconds, yard = 1 if quick else 3, Yard(folder, build)
    alone = [Mirror("alone", build)]
    if before := os.environ.get("BENCH_BEFORE"):
        alone.append(Mirror("before", pathlib.Path(before)))
    try:
        one = yard.mirror("in a cluster")
        yard.mirror("another")
        yard.know_each_other(2)
        for m in (*alone, one):
            publish_sizes(m.m)
        rows = [f"Hits of a hosted file over HTTP/1.1: CPU of the mirror for each request. In a cluster, it polls the log each second.\n\n"
                f"| size | {' | '.join(m.name for m in (*alone, one))} | in a cluster / alone{' | alone / before' if before else ''} |",
                f"|---|{'---|' * (len(alone) + 2 + bool(before))}"]
        for size in SIZES:
            got = medians({m.name: lambda m=m, size=size: cost([m], lambda: wrk(m.port, f"/models/me/gpt/{size}", seconds)) for m in (*alone, one)})
            more = f" {got['alone'] / got['before']:.2f} |" if before else ""
            rows.append(f"| {size} | {' | '.join(f'{v:.1f} µs' for v in got.values())} | {got['in a cluster'] / got['alone']:.2f} |{more}")
        return "\n".join(rows)
    finally:
        yard.stop()
        for m in alone:
            m.stop()


# --- three behind a balancer -------------------------------------------------------------------------------------------

def behind_haproxy(folder, build, quick):
    """Two cores cannot show three mirrors at work, and three on one core push each other out of its caches: three that are in no cluster
    cost as much more there. Therefore each is asked by itself, through HAProxy, for the files that HAProxy sends to it; the other two
    wait, and what they need meanwhile is counted, too. (So HAProxy has no hash-balance-factor here: it would send on what one gets.)"""
    if not shutil.which("haproxy"):
        return "Not measured: haproxy is not installed."
    yard, fronts = Yard(folder, build), []
    try:
        three = [yard.mirror(f"m{i}") for i in range(3)]
        token = three[0].m.token("ci", "publish:models/*")
        yard.know_each_other(3)
        bodies = [os.urandom(1 << 10) for _ in range(1200)]
        Uploader(three[0].port, token).send("/models/me/many", bodies)
        paths = [f"/models/me/many/{i // 1000}/{i}" for i in range(len(bodies))]
        for m in three:
            for path in paths:
                until(lambda m=m, path=path: m.m.get(path).status == 200)
        for count in (1, 3):
            conf, port = folder / f"haproxy{count}.cfg", free_port()
            conf.write_text(HAPROXY.format(port=port) + "".join(f"    server {m.name} 127.0.0.1:{m.port}\n" for m in three[:count]))
            fronts.append(peers.Server(f"haproxy{count}", ["haproxy", "-db", "-f", conf], {"h1": port}, core=peers.CLIENT_CORE))
        time.sleep(2)
        one, all_three = (f.ports["h1"] for f in fronts)

        def load(port, files):
            script = folder / "files.lua"
            script.write_text("local files, n = {" + ",".join(f'"{f}"' for f in files) + "}, 0\n"
                              'request = function() n = n % #files + 1 return wrk.format("GET", files[n]) end\n')
            text = client("wrk", "-t1", "-c32", f"-d{1 if quick else 3}s", "-s", script, f"http://127.0.0.1:{port}")
            assert "Non-2xx" not in text, text
            return int(re.search(r"(\d+) requests in", text)[1])

        sets, asker = {m.name: [] for m in three}, Uploader(all_three, token)
        for path in paths:
            sets[asker.ask("GET", path)[1]["x-server"]].append(path)
        sets = {name: files[:300] for name, files in sets.items()}
        assert all(len(files) == 300 for files in sets.values()), {name: len(files) for name, files in sets.items()}
        got = medians({"direct": lambda: cost(three[:1], lambda: load(three[0].port, paths[:300])),
                       "one": lambda: cost(three[:1], lambda: load(one, paths[:300])),
                       **{name: lambda files=files: cost(three, lambda: load(all_three, files)) for name, files in sets.items()}})
        behind = [got[m.name] for m in three]
        return ("Files of 1 KiB in turn over HTTP/1.1, 32 clients: CPU of all mirrors for each request. Each of the three is asked by itself for "
                "300 files that HAProxy sends to it (three on one core cost more, in a cluster or not: they share its caches). \"x one\" is what "
                "three mirrors of a core each do, beside one behind HAProxy.\n\n"
                "| one mirror, no balancer | one behind HAProxy | each of three behind HAProxy | x one |\n|---|---|---|---|\n"
                f"| {got['direct']:.1f} µs | {got['one']:.1f} µs | {', '.join(f'{b:.1f}' for b in behind)} µs | {sum(got['one'] / b for b in behind):.2f} |")
    finally:
        for f in fronts:
            f.stop()
        yard.stop()


# --- many small files --------------------------------------------------------------------------------------------------

class Uploader:
    """Requests one after the other on one connection, many under way."""

    def __init__(self, port, token):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=600)
        self.file, self.token = self.socket.makefile("rb"), token

    def head(self, method, path, length):
        return f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.token}\r\nContent-Length: {length}\r\n\r\n".encode()

    def response(self):
        status, fields = int(self.file.readline().split()[1]), {}
        while (line := self.file.readline()) != b"\r\n":
            name, _, value = line.decode().partition(":")
            fields[name.lower()] = value.strip()
        return status, fields, self.file.read(int(fields.get("content-length", 0)))

    def ask(self, method, path, body=b""):
        self.socket.sendall(self.head(method, path, len(body)) + body)
        return self.response()

    def send(self, where, bodies, at_once=64):
        for first in range(0, len(bodies), at_once):
            some = bodies[first:first + at_once]
            self.socket.sendall(b"".join(self.head("PUT", f"{where}/{(first + i) // 1000}/{first + i}", len(b)) + b for i, b in enumerate(some)))
            for _ in some:
                status, _, said = self.response()
                assert status == 201, said


def publish_many(m, count, token):
    """CPU seconds of the mirror: of the uploads, and of the commit."""
    seed = os.urandom(8)
    bodies = [hashlib.shake_128(seed + i.to_bytes(4, "big")).digest(FILE_BYTES) for i in range(count)]
    up, began = Uploader(m.port, token), m.cpu_s()
    status, fields, said = up.ask("POST", "/models/me/many/-/uploads")
    assert status == 201, said
    where = fields["location"]
    where = where[where.index("/models/"):]
    up.send(where, bodies)
    sent = m.cpu_s()
    status, _, said = up.ask("POST", f"{where}/commit?replace=1")
    assert status == 201, said
    return sent - began, m.cpu_s() - sent


def many_files(folder, build, quick):
    count = 10_000 if quick else 100_000
    yard, alone = Yard(folder, build), Mirror("alone", build)
    try:
        one = yard.mirror("in a cluster")
        tokens = {m: m.m.token("ci", "publish:models/*") for m in (alone, one)}
        half, before = {}, dict(yard.bucket.counts)
        for m in (alone, one):
            half[m] = publish_many(m, count, tokens[m])
        requests = {k[1]: v - before.get(k, 0) for k, v in sorted(yard.bucket.counts.items())
                    if k[0] in ("PUT", "POST") and k[1] != "node" and v != before.get(k, 0)}
        whole = {m: sum(half[m]) for m in half}
        return (f"One version of {count:,} new files of 10 KiB, by an upload session: CPU of the mirror (once), and requests that write to the bucket "
                f"({', '.join(f'{v} {name}' for name, v in requests.items())}).\n\n"
                "| | alone | in a cluster | in a cluster / alone | requests |\n|---|---|---|---|---|\n"
                f"| uploads | {half[alone][0]:.1f} s | {half[one][0]:.1f} s | {half[one][0] / half[alone][0]:.2f} | |\n"
                f"| commit | {half[alone][1]:.1f} s | {half[one][1]:.1f} s | {half[one][1] / half[alone][1]:.2f} | |\n"
                f"| all | {whole[alone]:.1f} s | {whole[one]:.1f} s | {whole[one] / whole[alone]:.2f} | {sum(requests.values())} |")
    finally:
        yard.stop()
        alone.stop()


# --- small publishes ---------------------------------------------------------------------------------------------------

def one_put(yard, line, number):
    """An object of 1 KiB, as a mirror writes its log."""
    body = os.urandom(1 << 10)
    path = f"/mirror/prod/bench/{number}"
    fields = signed("PUT", f"127.0.0.1:{yard.bucket.port}", path, payload=hashlib.sha256(body).hexdigest())
    line.request("PUT", path, body=body, headers=fields)
    r = line.getresponse()
    r.read()
    assert r.status == 200, r.status


def one_publish(line, token, number):
    line.request("PUT", "/models/me/small/x", body=f"{number} {time.time()}", headers={"Authorization": f"Bearer {token}"})
    r = line.getresponse()
    r.read()
    assert r.status in (200, 201), r.status


def small_publishes(folder, build, quick):
    count = 50 if quick else 200
    yard, alone = Yard(folder, build), Mirror("alone", build)
    try:
        one = yard.mirror("one")
        token = {m: m.m.token("ci", "publish:models/*") for m in (alone, one)}
        to_bucket = http.client.HTTPConnection("127.0.0.1", yard.bucket.port)
        to = {m: http.client.HTTPConnection("127.0.0.1", m.port) for m in (alone, one)}
        took = {"put": [], alone: [], one: [], "others": []}
        for number in range(count):
            took["put"].append(timed(lambda n=number: one_put(yard, to_bucket, n)))
            for m in (alone, one):
                took[m].append(timed(lambda m=m, n=number: one_publish(to[m], token[m], n)))
        for name in ("two", "three"):
            yard.mirror(name)
        yard.know_each_other(3)
        for number in range(count):
            took["others"].append(timed(lambda n=number: one_publish(to[one], token[one], n)))
        return ("A publish of one small file, one after the other: time until it is answered, median and 90 % (milliseconds). With others, the "
                "mirror tells them, and waits for them. The bucket needs most of its time for itself.\n\n"
                "| one PUT to the bucket | alone | in a cluster | in a cluster of three |\n|---|---|---|---|\n"
                f"| {of(took['put'])} | {of(took[alone])} | {of(took[one])} | {of(took['others'])} |")
    finally:
        yard.stop()
        alone.stop()


def timed(do):
    began = time.monotonic()
    do()
    return (time.monotonic() - began) * 1e3


def of(times):
    return f"{statistics.median(times):.1f} / {statistics.quantiles(times, n=10)[8]:.1f}"


# --- seen elsewhere ----------------------------------------------------------------------------------------------------

def seen_elsewhere(folder, build, quick):
    redis = start_redis()
    rows = ["Time from the answer to a publish on one mirror until another one has it, median and 90 % (milliseconds).\n",
            "| how it learns of it | time |", "|---|---|"]
    ways = [("it is told (`secret`, `address`)", {"told": True}), ("by its poll of 1 s", {"told": False})]
    if redis:
        ways.insert(1, ("by Redis (`hints`)", {"told": False, "more": f'hints = "redis://127.0.0.1:{redis.ports["h1"]}"'}))
    for number, (what, how) in enumerate(ways):
        place = folder / str(number)
        place.mkdir()
        yard = Yard(place, build)
        try:
            a, b = yard.mirror("a", **how), yard.mirror("b", **how)
            yard.know_each_other(2)
            token = a.m.token("ci", "publish:models/*")
            to, at = (http.client.HTTPConnection("127.0.0.1", m.port) for m in (a, b))
            rows.append(f"| {what} | {of([seen(to, at, token, n) for n in range(10 if quick else 50)])} |")
        finally:
            yard.stop()
    if redis:
        redis.stop()
    return "\n".join(rows)


def start_redis():
    """None: it is not installed."""
    program, port = shutil.which("redis-server"), free_port()
    command = [program, "--port", port, "--bind", "127.0.0.1", "--save", ""]
    return peers.Server("redis", command, {"h1": port}, core=peers.CLIENT_CORE) if program else None


def seen(to, at, token, number):
    time.sleep(random.random())  # anywhere between two polls
    body = f"{number} {time.time()}".encode()
    to.request("PUT", "/models/me/small/x", body=body, headers={"Authorization": f"Bearer {token}"})
    to.getresponse().read()
    began = time.monotonic()
    while True:
        at.request("GET", "/models/me/small/x")
        if at.getresponse().read() == body:
            return (time.monotonic() - began) * 1e3
        time.sleep(0.002)
