"""fair.py - what one greedy client costs another: p99 of a modest client's requests, beside the same without the greedy one.

The modest client asks in turn for a warm file, a cold one, a listing and an upload; a crowd of others asks for warm files at
its leisure. Each client has an address of its own. mirrord's loop has core 0 and its other threads both, as on a host with more
cores than loops; clients have core 1, the greedy one with the least priority, so that what is measured is mirrord's queues and
not the clients' core.
"""
import contextlib
import http.client
import multiprocessing
import os
import pathlib
import selectors
import socket
import statistics
import threading
import time

from harness.mirrord import Mirrord
from harness.origin import Origin

MODEST, GREEDY = "127.0.0.2", "127.0.0.3"
KINDS = ("hit", "cold", "listing", "upload")
LISTING = "/models/me/gpt/d/?format=json"
PATHS = "/models/api/models/me/gpt/paths-info/main"


def connect(port, address):
    return socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(address, 0))


# --- the modest client ---------------------------------------------------------------------------------------------------

def modest(port, token, rounds, start, out):
    """Times in ms by kind. What it waits for is mirrord, not a turn on its own core, where the system lets it say so."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    got = {k: [] for k in KINDS}
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=120, source_address=(MODEST, 0))

    def ask(kind, method, path, body=None, headers=None):
        began = time.monotonic()
        c.request(method, path, body=body, headers=headers or {})
        r = c.getresponse()
        r.read()
        if r.status in (200, 201):
            got[kind].append((time.monotonic() - began) * 1e3)
    for i in range(start, start + rounds):
        ask("hit", "GET", "/data/warm")
        ask("cold", "GET", f"/data/cold{i}")
        ask("listing", "GET", LISTING + f"&n={i}", headers={"Accept": "application/json"})
        ask("upload", "PUT", f"/models/me/up/{i}", body=os.urandom(64 << 10), headers={"Authorization": f"Bearer {token}"})
    out.put(got)


def p99(times):
    return statistics.quantiles(times, n=100)[98] if len(times) > 1 else float("nan")


# --- the crowd: each client asks for the warm file once a second ------------------------------------------------------------

def crowd(port, count, stop):
    sel = selectors.DefaultSelector()
    ask = b"GET /data/warm HTTP/1.1\r\nHost: x\r\n\r\n"
    socks = []
    for i in range(count):
        s = connect(port, f"127.{1 + i // 250}.1.{1 + i % 250}")
        s.setblocking(False)
        sel.register(s, selectors.EVENT_READ)
        socks.append(s)
    at = 0
    while not stop.is_set():
        for _ in range(max(1, count // 20)):
            try:
                socks[at % count].send(ask)
            except BlockingIOError:
                pass
            at += 1
        for key, _ in sel.select(0):
            key.fileobj.recv(1 << 16)
        time.sleep(0.05)


# --- greedy ones: each does one thing at full speed ---------------------------------------------------------------------------

def greedy(port, what, token, stop):
    os.nice(19)
    {"hits": flood, "cold": cold_flood, "listings": lambda p, t, s: posts(p, t, s, PATHS), "bodies": bodies,
     "uploads": uploads, "idle": idle}[what](port, token, stop)


def flood(port, _, stop):
    ask = b"GET /data/warm HTTP/1.1\r\nHost: x\r\n\r\n"

    def run():
        s = connect(port, GREEDY)
        s.sendall(ask * 100)
        while not stop.is_set():
            n = s.recv(1 << 18).count(b"HTTP/1.1 200")
            s.sendall(ask * n)
    threads(run, 64, stop)


def threads(run, count, stop):
    def safe():
        try:
            run()
        except OSError:
            pass
    for _ in range(count):
        threading.Thread(target=safe, daemon=True).start()
    stop.wait()


def cold_flood(port, _, stop):
    n = iter(range(1 << 30))

    def run():
        while not stop.is_set():
            s = connect(port, GREEDY)
            s.sendall(b"".join(b"GET /data/none%d HTTP/1.1\r\nHost: x\r\n\r\n" % next(n) for _ in range(100)))
            for _ in range(100):
                s.recv(1 << 16)
            s.close()
    threads(run, 64, stop)


def posts(port, _, stop, path):
    n = iter(range(1 << 30))

    def run():
        while not stop.is_set():
            body = b"paths=d%%2F%d&" % next(n) + b"paths=a&" * 30000
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=120, source_address=(GREEDY, 0))
            c.request("POST", path, body=body, headers={"Content-Type": "application/x-www-form-urlencoded"})
            c.getresponse().read()
            c.close()
    threads(run, 40, stop)


def bodies(port, _, stop):
    head = f"POST {PATHS} HTTP/1.1\r\nHost: x\r\nContent-Length: {1 << 20}\r\n\r\n".encode()

    def run():
        while not stop.is_set():
            s = connect(port, GREEDY)
            s.sendall(head + bytes((1 << 20) - 1))
            s.settimeout(5)
            try:
                s.recv(100)
            except TimeoutError:
                pass
            s.close()
    threads(run, 128, stop)


def uploads(port, token, stop):
    n = iter(range(1 << 30))

    def run():
        while not stop.is_set():
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=120, source_address=(GREEDY, 0))
            c.request("PUT", f"/models/me/big/{next(n) % 50}", body=bytes(4 << 20), headers={"Authorization": f"Bearer {token}"})
            c.getresponse().read()
            c.close()
    threads(run, 32, stop)


def idle(port, _, stop):
    held = []
    while not stop.is_set():
        try:
            held.append(connect(port, GREEDY))
        except OSError:
            stop.wait(0.1)
        if len(held) >= 15000:
            stop.wait()


# --- shares: two clients that both always have requests in line ------------------------------------------------------------------

def count_answers(port, address, connections, seconds, out):
    ask, end, total = b"GET /data/warm HTTP/1.1\r\nHost: x\r\n\r\n", time.monotonic() + seconds, 0
    sel = selectors.DefaultSelector()
    for _ in range(connections):
        s = connect(port, address)
        s.sendall(ask * 500)
        sel.register(s, selectors.EVENT_READ)
    while time.monotonic() < end:
        for key, _ in sel.select(0.1):
            n = key.fileobj.recv(1 << 18).count(b"HTTP/1.1 200")
            key.fileobj.sendall(ask * n)
            total += n
    out.put((address, total / seconds))


def shares(port):
    """Answers a second of 64 connections beside 4 of another client, and of all 68 as one client's."""
    def run(*who):
        out = multiprocessing.Queue()
        ps = [multiprocessing.Process(target=count_answers, args=(port, a, n, 4, out), daemon=True) for a, n in who]
        for p in ps:
            p.start()
        got = [out.get(timeout=60) for _ in ps]
        for p in ps:
            p.join(5)
        return {a: sum(r for b, r in got if b == a) for a, _ in who}
    two, one_client = run((GREEDY, 64), (MODEST, 4)), run((GREEDY, 64), (GREEDY, 4))
    mine, all_of_it = two[MODEST], sum(two.values())
    return (f"Two clients with pipelined requests, one with 64 connections and one with 4: {two[GREEDY]:.0f} and {mine:.0f} responses per second, shares of "
            f"{100 * (1 - mine / all_of_it):.0f} and {100 * mine / all_of_it:.0f} %; one client with all 68: {sum(one_client.values()):.0f}.")


# --- the table ------------------------------------------------------------------------------------------------------------------

WHAT = {None: "nothing", "hits": "64 connections of pipelined hits", "cold": "64 connections of 100 cold GETs",
        "listings": "40 POSTs of 240 KB for listings", "bodies": "128 bodies of 1 MiB without their last byte",
        "uploads": "32 uploads of 4 MiB", "idle": "idle connections, as many as are accepted"}


def table(folder, build, quick):
    counts, rounds = ([10], 60) if quick else ([10, 100, 1000], 150)
    lines = ["p99 of a modest client's requests in ms; in parentheses, compared with the p99 without a greedy client.", "",
             "| clients | what the greedy client does | hit | cold GET | listing | upload |", "|---|---|---|---|---|---|"]
    with Origin() as origin:
        origin.put("/warm", size=1024)
        runs = rounds * len(WHAT) * len(counts)
        for i in range(runs + 1):
            origin.put(f"/cold{i}", size=64 << 10, seed=i)
        m = Mirrord(f'''repo "data" {{ protocol = "generic" origin = "{origin.url}/" rule "." {{ class = immutable }} }}
repo "models" {{ protocol = "hosted" }}
threads = 1''', folder=folder / "fair", build=build)
        m.folder.mkdir(exist_ok=True)
        m.access_log = "none"
        m.start()
        for thread in pathlib.Path(f"/proc/{m.child.pid}/task").iterdir():
            if (thread / "comm").read_text() == "loop\n":
                os.sched_setaffinity(int(thread.name), {0})
        try:
            mine, theirs = m.token("modest", "publish:models/me/*"), m.token("greedy", "publish:models/me/*")
            for i in range(200):
                m.put(f"/models/me/gpt/d/{i}", b"x", token=mine)
            for _ in range(2):
                m.get("/data/warm")
            told = shares(m.port)
            print(told, flush=True)
            start = 0
            for count in counts:
                alone = None
                for what, words in WHAT.items():
                    got = one(m.port, count, what, mine, theirs, rounds, start)
                    start += rounds
                    now = {k: p99(got[k]) for k in KINDS}
                    alone = alone or now
                    cells = " | ".join(f"{now[k]:.1f}" + (f" ({now[k] / alone[k]:.1f} x)" if what else "") +
                                       (f", {rounds - len(got[k])} failed" if len(got[k]) < rounds else "") for k in KINDS)
                    lines.append(f"| {count} | {words} | {cells} |")
                    print(lines[-1], flush=True)
        finally:
            m.stop()
    return "\n".join([*lines, "", told])


def one(port, count, what, mine, theirs, rounds, start):
    os.sched_setaffinity(0, {1})  # also of those started here
    stop, out = multiprocessing.Event(), multiprocessing.Queue()
    others = [multiprocessing.Process(target=crowd, args=(port, count, stop), daemon=True)]
    if what:
        others.append(multiprocessing.Process(target=greedy, args=(port, what, theirs, stop), daemon=True))
    for p in others:
        p.start()
    time.sleep(1)
    p = multiprocessing.Process(target=modest, args=(port, mine, rounds, start, out), daemon=True)
    p.start()
    try:
        return out.get(timeout=300)
    finally:
        stop.set()
        for q in [p, *others]:
            q.join(5)
            q.kill()
