"""Bodies that are sent but for their last byte: what they hold has a bound, and the client that holds most of it gives first."""
import select
import socket
import threading

import pytest

from harness.crowd import Client
from harness.http import DATA, END_HEADERS, H2, HEADERS, request
from harness.mirrord import SLOW, until

GREEDY, MODEST = "127.0.0.2", "127.0.0.3"
PATHS = "/models/api/models/me/gpt/paths-info/main"
MEMORY = 16 << 20
ANY_RATE = 'min_rate = "0"'  # bodies that wait here are not cut for being slow


@pytest.fixture
def m(mirrord):
    m = mirrord(f'repo "models" {{ protocol = "hosted" }}\nhttp {{ body_memory = "{MEMORY}"  {ANY_RATE} }}')
    m.api = m.token("ci", "publish:models/me/*")
    assert m.put("/models/me/gpt/a", b"x", token=m.api).status in (200, 201)
    return m


def connect(m, address):
    return socket.create_connection(("127.0.0.1", m.port), timeout=300 * SLOW, source_address=(address, 0))


def almost(m, address, size=1 << 20):
    """A POST over HTTP/1.1 whose last byte does not come."""
    s = connect(m, address)
    head = f"POST {PATHS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {size}\r\n\r\n"
    threading.Thread(target=push, args=(s, head.encode() + b"paths=a&" * (size // 8 - 1)), daemon=True).start()
    return s


def push(s, data):
    try:
        s.sendall(data)
    except OSError:
        pass


def modest_is_served(m):
    modest = Client(m, MODEST)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for size in (10, 100_000, 600_000):
        assert modest.ask(PATHS, "POST", b"x=" + b"a" * size + b"&paths=a", form)[0] == 200  # few fields, many bytes
    assert modest.ask("/models/me/gpt/a")[0] == 200
    assert Client(m, MODEST, m.api).ask("/models/me/gpt/b", "PUT", bytes(3 << 20))[0] in (200, 201)


def held(m):
    return m.metric("mirrord_http_body_memory_bytes")


def test_bodies_over_http1(m):
    before = m.peak_bytes()
    held_open = [almost(m, GREEDY) for _ in range(100)]
    until(lambda: m.metric("mirrord_http_body_memory_refused_total") >= 100 - MEMORY // (1 << 20))
    assert held(m) <= MEMORY
    modest_is_served(m)
    assert m.peak_bytes() - before < 4 * MEMORY or SLOW > 1
    until(lambda: len(select.select(held_open, [], [], 0)[0]) >= 100 - MEMORY // (1 << 20))  # counted, and sent
    refused = 0
    for s in held_open:
        s.settimeout(0.05)
        try:
            refused += s.recv(20).startswith(b"HTTP/1.1 503")
        except OSError:
            pass
        s.close()
    assert refused >= 100 - MEMORY // (1 << 20)
    until(lambda: held(m) < 1 << 20)


def test_refused_bodies_that_do_not_end(m):
    """Each is answered, its last byte does not come: what others need is not taken from a request that has its answer."""
    block, more = b"paths=a&" * (500_000 // 8), b"paths=a&" * (100_000 // 8)
    head = f"POST {PATHS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {1 << 20}\r\n\r\n"
    held_open = []
    for i in range(28):  # 576 KiB each
        held_open.append(connect(m, GREEDY))
        held_open[-1].sendall(head.encode() + block)
        until(lambda i=i: held(m) >= (i + 1) * (576 << 10))  # a body that is not here yet may fit
    for s in held_open:
        s.sendall(more)
    for s in held_open:
        assert s.recv(12) == b"HTTP/1.1 503"
    modest_is_served(m)
    for s in held_open:
        s.close()
    until(lambda: held(m) < 1 << 20)


def test_streams_over_http2(m):
    """A stream's first window is 64 KiB, and nobody has to have read a byte of it."""
    conns = []
    for _ in range(8):
        c = H2(connect(m, GREEDY))
        for k in range(100):
            stream = 2 * k + 1
            c.send(HEADERS, END_HEADERS, stream, request(PATHS.encode(), method=b"POST"))
            for _ in range(3):
                c.send(DATA, 0, stream, b"paths=a&" * 2000)
        conns.append(c)
    until(lambda: m.metric("mirrord_http_body_memory_refused_total") > 0)
    assert held(m) <= MEMORY
    modest_is_served(m)
    for c in conns:
        c.sock.close()
    until(lambda: held(m) < 1 << 20)


def test_bodies_that_nobody_reads(mirrord, origin):
    """Of requests that wait for the origin: what ends them is not answered a second time when the origin speaks."""
    origin.put("/slow", size=100, hold_at=0)
    m = mirrord(f'repo "models" {{ protocol = "hosted" }}\nrepo "data" {{ protocol = "generic" origin = "{origin.url}/" stall = "1h" }}\n'
                f'http {{ body_memory = "{MEMORY}"  {ANY_RATE} }}')
    m.api = m.token("ci", "publish:models/me/*")
    assert m.put("/models/me/gpt/a", b"x", token=m.api).status in (200, 201)
    conns = []
    for _ in range(4):
        c = H2(connect(m, GREEDY))
        for k in range(70):
            c.send(HEADERS, END_HEADERS, 2 * k + 1, request(b"/data/slow", method=b"GET"))
            for _ in range(3):
                c.send(DATA, 0, 2 * k + 1, bytes(16000))
        conns.append(c)
    until(lambda: m.metric("mirrord_http_body_memory_refused_total") > 0)
    modest_is_served(m)
    origin.things["/slow"].go.set()
    until(lambda: Client(m, MODEST).ask("/data/slow")[0] == 200)
    for c in conns:
        c.sock.close()
    until(lambda: held(m) < 1 << 20)


def test_bodies_that_are_too_long(mirrord, hub):
    """They are answered once, while they are still being sent, and hold nothing from then on."""
    hub.repo("org/demo", files={"config.json": b"{}"})
    m = mirrord(hub.config() + f'\nrepo "models" {{ protocol = "hosted" }}\nhttp {{ body_memory = "{MEMORY}"  {ANY_RATE} }}')
    m.api = m.token("ci", "publish:models/me/*")
    assert m.put("/models/me/gpt/a", b"x", token=m.api).status in (200, 201)
    head = ("POST /hf/api/models/org/demo/paths-info/main HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
            "Transfer-Encoding: chunked\r\n\r\n")
    held_open = []
    for i in range(15):
        held_open.append(connect(m, GREEDY))
        held_open[-1].sendall(head.encode())
        for _ in range(9):  # who is answered in the middle and slow to end may be hung up on
            push(held_open[-1], b"20000\r\npaths=" + b"a" * ((1 << 17) - 7) + b"&\r\n")
    modest_is_served(m)
    for s in held_open:
        assert s.recv(12) in (b"HTTP/1.1 413", b"HTTP/1.1 503")
    modest_is_served(m)
    until(lambda: held(m) < 1 << 20)
    for s in held_open:
        s.close()


def test_uploads_wait_instead(m):
    """Many large ones of one client: slower, and none is refused."""
    greedy = Client(m, GREEDY, m.api)
    for i in range(24):
        greedy.begin(f"/models/me/gpt/{i}", method="PUT", body=bytes(4 << 20))
    modest_is_served(m)
    greedy.join()
    assert [status for _, status in greedy.done].count(201) == 24, greedy.done
    until(lambda: held(m) < 1 << 20)


def test_requests_that_wait_are_counted_too(mirrord, origin):
    for i in range(300):
        origin.put(f"/{i}", size=100, seed=i, hold_at=0)
    origin.put("/a", size=100)
    m = mirrord(f'repo "data" {{ protocol = "generic" origin = "{origin.url}/" connections = 3 stall = "1h" }}\nhttp {{ body_memory = "2m" }}')
    greedy = Client(m, GREEDY)
    for i in range(300):
        greedy.begin(f"/data/{i}")
    until(lambda: len(greedy.done) >= 150)  # 16 KiB each
    assert {status for _, status in greedy.done} == {503}
    assert Client(m, MODEST).ask("/data/a")[0] == 200
    for i in range(300):
        origin.things[f"/{i}"].go.set()
    greedy.join()
