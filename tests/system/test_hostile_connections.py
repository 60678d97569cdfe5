"""Sockets that do nothing, and sockets that are all in use: who comes after them is served, or hears why not."""
import http.client
import json
import socket
import ssl
import time

import pytest

from harness.crowd import Client
from harness.http import read_answer
from harness.mirrord import SLOW, certificate, until

GREEDY, MODEST = "127.0.0.2", "127.0.0.3"
REPO = 'repo "data" {{ protocol = "generic" origin = "{}/" stall = "1h" rule "." {{ class = immutable }} }}\n'


def sockets(m, address, count):
    return [socket.create_connection(("127.0.0.1", m.port), timeout=120 * SLOW, source_address=(address, 0)) for _ in range(count)]


def ended(s):
    """Has the other side closed it?"""
    s.setblocking(False)
    try:
        return s.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        s.setblocking(True)


def test_idle_sockets_of_one_address(mirrord, origin):
    """Three hundred of one host at `connections = 300` locked everybody out, health checks too."""
    origin.put("/a", size=100)
    m = mirrord(REPO.format(origin.url) + "http { connections = 300 }")
    held = sockets(m, GREEDY, 300)
    modest = Client(m, MODEST)
    assert modest.ask("/healthz")[0] == 200 and modest.ask("/data/a")[0] == 200
    until(lambda: sum(ended(s) for s in held) >= 225)  # a quarter is what one address has
    assert sum(ended(s) for s in held) == 225
    for s in held:
        s.close()


def test_a_limit_says_how_many_instead(mirrord):
    m = mirrord('http { connections = 100 }\nlimit "127.0.0.2/32" { connections = 40 }')
    held = sockets(m, GREEDY, 50)
    until(lambda: sum(ended(s) for s in held) == 10)
    for s in held:
        s.close()


def test_idle_ones_make_room(mirrord, origin):
    """Of the client that has most of them, the oldest first; those in use stay."""
    origin.put("/a", size=100)
    origin.put("/slow", size=1 << 20, hold_at=1000)
    m = mirrord(REPO.format(origin.url) + "threads = 1 http { connections = 24 client_connections = 24 }")
    in_use = Client(m, GREEDY)
    in_use.begin("/data/slow")
    until(lambda: origin.things["/slow"].requests)
    held = []
    for _ in range(23):
        held += sockets(m, GREEDY, 1)
        held[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_answer(held[-1])[0] == 200  # it is idle from now on, not from when a busy daemon comes to it together with the next
        time.sleep(0.01)  # idle since later than the one before
    others = [Client(m, MODEST) for _ in range(6)]
    for o in others:
        until(lambda o=o: o.ask("/data/a")[0] == 200)
    until(lambda: ended(held[0]))
    assert not ended(held[-1])
    origin.things["/slow"].go.set()
    in_use.join()
    assert in_use.done == [("/data/slow", 200)]
    for s in held:
        s.close()


def test_all_are_in_use(mirrord, origin):
    for i in range(8):
        origin.put(f"/slow{i}", size=1 << 20, seed=i, hold_at=1000)
    origin.put("/a", size=100)
    m = mirrord(REPO.format(origin.url) + "http { connections = 8 client_connections = 8 }")
    greedy = Client(m, GREEDY)
    for i in range(8):
        greedy.begin(f"/data/slow{i}")
    until(lambda: all(origin.things[f"/slow{i}"].requests for i in range(8)))
    modest = Client(m, MODEST)
    for path in ("/healthz", "/readyz", "/metrics"):
        assert modest.ask(path)[0] == 200
        over_tls = http.client.HTTPSConnection("127.0.0.1", m.tls_port, timeout=60 * SLOW, source_address=(MODEST, 0),
                                               context=ssl._create_unverified_context())
        over_tls.request("GET", path)
        assert over_tls.getresponse().status == 200
        over_tls.close()
    c = modest.connect()
    c.request("GET", "/data/a")
    reply = c.getresponse()
    assert (reply.status, reply.headers["Retry-After"], reply.headers["Connection"]) == (503, "1", "close")
    assert b"in use" in reply.read()
    for i in range(8):
        origin.things[f"/slow{i}"].go.set()
    greedy.join()
    assert len(greedy.done) == 8
    until(lambda: modest.ask("/data/a")[0] == 200)


def test_status_is_made_once(mirrord):
    m = mirrord('repo "models" { protocol = "hosted" }\nstatus_age = "1m"')
    one, two = Client(m, GREEDY), Client(m, MODEST)
    for path in ("/metrics", "/-/status.json", "/"):
        first = one.ask(path)
        assert first[0] == 200 and all(two.ask(path) == first for _ in range(20))
    assert one.ask("/metrics", headers={"Accept": "application/openmetrics-text"}) != one.ask("/metrics")
    # Links begin with the Host that a client says; nobody has a text made anew, or another's put out, by saying many.
    status = two.ask("/-/status.json")
    for i in range(40):
        host = f"h{i}:81" if i % 2 else f"h{i}"
        code, page = one.ask("/", headers={"Host": host})[:2]
        assert code == 200 and f"HF_ENDPOINT=http://{host}/models ".encode() in page
        assert f"--trusted-host h{i} ".encode() in page and b".invalid" not in page
        assert json.loads(one.ask("/-/status.json", headers={"Host": host})[1])["base_url"] == f"http://{host}"
    assert two.ask("/-/status.json") == status
    assert two.ask("/metrics")[0] == 200 and two.ask("/healthz")[0] == 200


def test_status_counts_against_limits(mirrord):
    m = mirrord('limit "anonymous" { requests = "0.01/s" burst = 3 }\nstatus_age = "1s"')
    asker = Client(m, MODEST)
    for path in ("/metrics", "/-/status.json", "/-/tunasync.json", "/"):
        until(lambda: asker.ask(path)[0] == 429)
    assert [asker.ask("/healthz")[0] for _ in range(10)] == [200] * 10


def test_a_handshake_whose_answer_nobody_reads(mirrord, tmp_path):
    """The server's flight is more than the socket holds; its last bytes are still to be sent when the connection's time is over."""
    m = mirrord("")
    m.cert = certificate(tmp_path)
    m.cert[0].write_text(m.cert[0].read_text() * 800)
    m.reload()
    hello = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
        s.settimeout(120 * SLOW)
        s.connect(("127.0.0.1", m.tls_port))
        s.sendall(hello.read())
        assert s.recv(1)
        m.stop()  # which fails where the daemon does not end in order
