"""Limits: requests, bytes and connections of a client; what a refusal says; who is not meant."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import resource
import socket

import pytest

from harness.mirrord import BUILD

CONFIG = """
repo "data" {{ protocol = "generic" origin = "{origin}/" rule '.' {{ class = immutable }} }}
{limits}
"""


@pytest.fixture
def limited(mirrord, origin):
    def start(limits):
        origin.put("/a", size=100)
        origin.put("/big", size=8 << 20)
        return mirrord(CONFIG.format(origin=origin.url, limits=limits))
    return start


def statuses(m, count, headers=()):
    """The statuses of requests in a row on one connection."""
    with socket.create_connection(("127.0.0.1", m.port), timeout=120) as s:
        fields = "".join(f"{k}: {v}\r\n" for k, v in headers)
        s.sendall(f"GET /data/a HTTP/1.1\r\nHost: x\r\n{fields}\r\n".encode() * (count - 1)
                  + f"GET /data/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{fields}\r\n".encode())
        text = b""
        while piece := s.recv(65536):
            text += piece
    return [int(x) for x in re.findall(rb"HTTP/1\.1 (\d+) ", text)], text.decode(errors="replace")


def test_too_many_requests(limited, wire):
    m = limited('limit "anonymous" { requests = "0.01/s" burst = 5 }')
    replies = [m.get("/data/a", wire) for _ in range(12)]
    refused = [r for r in replies if r.status == 429]
    assert {r.status for r in replies} == {200, 429} and len(refused) >= 6
    assert int(refused[0]["retry-after"]) >= 1 and any(n.startswith("ratelimit") for n in refused[0].headers)


def test_pipelined_requests_count_too(limited):
    m = limited('limit "anonymous" { requests = "0.01/s" burst = 10 }')
    got, text = statuses(m, 40)
    assert got.count(200) in (10, 11) and got.count(429) == 40 - got.count(200), text[:2000]


def test_a_token_has_its_own_bucket(limited):
    m = limited('limit "anonymous" { requests = "0.01/s" burst = 2 }\nlimit "ci" { requests = "1000/s" burst = 1000 }')
    token = m.token("ci", "read:data/*")
    got, _ = statuses(m, 30, [("Authorization", f"Bearer {token}")])
    assert got == [200] * 30
    got, _ = statuses(m, 30)
    assert 429 in got


def test_a_network_has_its_own_bucket(limited):
    m = limited('limit "anonymous" { requests = "0.01/s" burst = 1 }\nlimit "127.0.0.0/8" { requests = "1000/s" burst = 1000 }')
    assert statuses(m, 30)[0] == [200] * 30


def test_bytes_per_second(limited, wire):
    m = limited('limit "anonymous" { rate = "4m/s" }')
    m.get("/data/big", wire)
    reply = m.get("/data/big", wire)
    assert reply.whole and len(reply.body) == 8 << 20
    assert reply.total_s > 0.5, "8 MiB at 4 MiB/s came at once"


def test_connections(limited):
    m = limited('limit "anonymous" { connections = 4 }')
    held = []
    try:
        refused = 0
        for _ in range(12):
            s = socket.create_connection(("127.0.0.1", m.port), timeout=120)
            held.append(s)
            try:
                s.sendall(b"GET /data/a HTTP/1.1\r\nHost: x\r\n\r\n")
                head = s.recv(4096)
            except OSError:
                head = b""
            refused += not head.startswith(b"HTTP/1.1 200")
        assert refused == 8
    finally:
        for s in held:
            s.close()


def test_health_is_not_limited(limited):
    m = limited('limit "anonymous" { requests = "0.01/s" burst = 1 }')
    assert all(m.get("/healthz").status == 200 for _ in range(10))


def test_no_limit_without_a_block(limited):
    assert statuses(limited(""), 200)[0] == [200] * 200


def test_few_descriptors_serve_many_files(mirrord, origin):
    """What each loop remembers of files keeps them open: it must not take the descriptors that connections need."""
    m = mirrord(CONFIG.format(origin=origin.url, limits="threads = 2"), command=("prlimit", "--nofile=256:256"))
    count = 300
    for i in range(count):
        origin.put(f"/f{i}", size=40000)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", m.port, timeout=120)) as c:
        for _ in range(2):
            for i in range(count):
                c.request("GET", f"/data/f{i}")
                reply = c.getresponse()
                assert reply.status == 200 and len(reply.read()) == 40000, f"file {i}"
            m.settle()
    assert m.get("/readyz").status == 200


def test_connections_leave_descriptors_to_the_store(mirrord):
    """RocksDB begins a new log for each so many writes; the one that it cannot open is the last that it tries."""
    m = mirrord('threads = 2\nrepo "models" { protocol = "hosted" }', command=("prlimit", "--nofile=240:240"))
    token = m.token("ci", "publish:models/*")
    body = os.urandom(32000)
    with contextlib.ExitStack() as idle, contextlib.closing(http.client.HTTPConnection("127.0.0.1", m.port, timeout=600)) as c:
        c.request("GET", "/healthz")
        assert c.getresponse().read()
        for _ in range(300):
            idle.enter_context(socket.create_connection(("127.0.0.1", m.port)))
        m.says("accept.paused why=descriptors")
        for i in range(700):
            c.request("PUT", f"/models/me/many/{i}", body[:-4] + i.to_bytes(4, "big"), {"Authorization": f"Bearer {token}"})
            reply = c.getresponse()
            text = reply.read()
            assert reply.status == 201, f"file {i}: {text}"
    m.forsaken()
    assert m.put("/models/me/many/last", b"more", token=token).status == 201


def ask(line, **request):
    """One request on a control connection, its answer's object."""
    line.sendall(json.dumps(request).encode() + b"\n")
    return hear(line)


def hear(line):
    text = b""
    while not text.endswith(b"\n"):
        piece = line.recv(65536)
        if not piece:
            break
        text += piece
    return json.loads(text)


def clients(m):
    """Threads that serve a control connection each."""
    found = 0
    for task in pathlib.Path(f"/proc/{m.child.pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found += (task / "comm").read_text() == "control-client\n"
    return found


def test_no_more_threads(mirrord, origin):
    """What needs a thread of its own says so where the system gives none, and goes on when it does again."""
    if BUILD.name == "thread":
        pytest.skip("the thread sanitizer itself ends where there is no more address space")
    stack, room = 512 << 20, 256 << 20  # address space: enough for all else, not for one more stack
    config = f'repo "x" {{ protocol = "generic" origin = "{origin.url}/" sync {{ list = "sums" tries = 1 }} }}'
    m = mirrord(config, command=("prlimit", f"--stack={stack}:{stack}"))
    size = int(open(f"/proc/{m.child.pid}/statm", encoding="ascii").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    with contextlib.ExitStack() as held:
        lines = []

        def refused():
            """A stack that a former client left behind serves one more each."""
            line = held.enter_context(contextlib.closing(socket.socket(socket.AF_UNIX)))
            line.settimeout(120)
            line.connect(str(m.socket))
            with contextlib.suppress(BrokenPipeError):
                line.sendall(b'{"verb": "status"}\n')
            said = hear(line)
            if "ok" in said:
                lines.append(line)
                return None
            return said["error"]

        assert refused() is None  # one that is there before
        resource.prlimit(m.child.pid, resource.RLIMIT_AS, (size + room, resource.RLIM_INFINITY))
        quiet, error = False, None
        while not (quiet and error):  # none that ends may leave its stack to the next
            quiet = error is not None and clients(m) == len(lines)
            error = refused()
        assert error["code"] == "E_BUSY" and "gives mirrord no more threads; try again" in error["text"]
        done = m.ctl("status", check=False)
        assert done.returncode == 75 and "no more threads" in done.stderr, done
        error = ask(lines[0], verb="sync.run", repo="x")["error"]
        assert error["code"] == "E_BUSY" and error["text"].startswith('the run of "x" cannot start: the system allows')
        resource.prlimit(m.child.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert ask(lines[0], verb="sync.run", repo="x")["ok"]["run"] == 1
    assert ", serving, " in m.ctl("status", check=False).stdout  # what its run comes to does not matter here
