"""One client asks for all that there is: another's turn comes all the same. Turns are counted, nothing is timed."""
import contextlib
import socket
import threading

import pytest

from harness.crowd import Client
from harness.mirrord import SLOW, until

GREEDY, MODEST = "127.0.0.2", "127.0.0.3"


@pytest.mark.parametrize("seats", [2, 4])
def test_one_client_never_has_all_of_an_origin(mirrord, origin, seats):
    """No seat is given back before the other client was answered."""
    for i in range(12):
        origin.put(f"/a{i}", size=1000, seed=i, hold_at=0)
    origin.put("/b", size=1000)
    m = mirrord(f'repo "data" {{ protocol = "generic" origin = "{origin.url}/" connections = {seats} }}')
    greedy, modest = Client(m, GREEDY), Client(m, MODEST)
    for i in range(12):
        greedy.begin(f"/data/a{i}")
    until(lambda: origin.requests >= seats - 1)
    assert modest.ask("/data/b")[0] == 200
    assert not greedy.done and origin.requests == seats  # all but one are of the greedy one's
    for i in range(12):
        origin.things[f"/a{i}"].go.set()
    greedy.join()
    assert [status for _, status in greedy.done] == [200] * 12


@pytest.mark.parametrize("seats", [1])
def test_clients_take_turns_at_an_origin(mirrord, origin, seats):
    for i in range(seats):
        origin.put(f"/held{i}", size=1000, seed=i, hold_at=0)
    m = mirrord(f'repo "data" {{ protocol = "generic" origin = "{origin.url}/" connections = {seats} }}')
    greedy, modest = Client(m, GREEDY), Client(m, MODEST)
    for i in range(seats):
        greedy.begin(f"/data/held{i}")
    until(lambda: origin.requests == seats)
    for i in range(60):
        greedy.begin(f"/data/none{i}")
    until(lambda: m.metric("mirrord_cache_fills_open") == 60 + seats)
    modest.begin("/data/mine")
    until(lambda: m.metric("mirrord_cache_fills_open") == 61 + seats)
    for i in range(seats):
        origin.things[f"/held{i}"].go.set()
    greedy.join()
    modest.join()
    assert origin.misses.index("/mine") <= 2 * seats and len(origin.misses) == 61


def test_a_token_is_one_client_wherever_it_asks(mirrord, origin):
    for i in range(8):
        origin.put(f"/a{i}", size=1000, seed=i, hold_at=0)
    origin.put("/b", size=1000)
    m = mirrord(f'repo "data" {{ protocol = "generic" origin = "{origin.url}/" connections = 4 }}')
    token = m.token("ci", "read:data/*")
    for i in range(8):
        Client(m, f"127.0.1.{i + 1}", token).begin(f"/data/a{i}")
    until(lambda: origin.requests >= 3)
    assert Client(m, "127.0.1.1").ask("/data/b")[0] == 200  # without the token it is another client
    assert origin.requests == 4
    for i in range(8):
        origin.things[f"/a{i}"].go.set()


def test_documents_are_made_in_turns(mirrord):
    """Each of these asks costs the maker of documents a while; a listing waits for those that run, not for those that wait."""
    m = mirrord('repo "models" { protocol = "hosted" }')
    token = m.token("ci", "publish:models/me/*")
    for i in range(50):
        assert m.put(f"/models/me/gpt/d/{i}", b"x", token=token).status in (200, 201)
    greedy, modest = Client(m, GREEDY), Client(m, MODEST)
    for i in range(16):
        form = "&".join(f"paths=d%2F{k % 50}" for k in range(4000 + i)).encode()
        greedy.begin("/models/api/models/me/gpt/paths-info/main", method="POST", body=form,
                     headers={"Content-Type": "application/x-www-form-urlencoded"})
    until(lambda: greedy.done)
    before = len(greedy.done)
    assert modest.ask("/models/me/gpt/?format=json", headers={"Accept": "application/json"})[0] == 200
    assert len(greedy.done) - before <= 6, greedy.done
    greedy.join()
    assert {status for _, status in greedy.done} == {200}


def test_connections_of_one_client_share_its_turns(mirrord, origin):
    """64 connections of one client and one of another, all with requests in line: both are answered as often."""
    origin.put("/a", size=100)
    m = mirrord(f'repo "data" {{ protocol = "generic" origin = "{origin.url}/" rule "." {{ class = immutable }} }}\nthreads = 1')
    for _ in range(2):
        assert m.get("/data/a").status == 200
    m.settle()
    many, count = 250, 20000
    greedy = [flood(m, GREEDY, many) for _ in range(64)]
    total = lambda: m.metric("mirrord_http_requests_total", repo="data")  # noqa: E731
    until(lambda: total() > 30000)
    before = total()
    modest = flood(m, MODEST, many)
    until(lambda: modest.answers >= count)
    theirs = total() - before - modest.answers
    for f in [*greedy, modest]:
        f.stop()
    assert theirs < 3 * count, f"{theirs} for one client, {modest.answers} for the other"


class flood:
    """A connection with so many requests in line, always."""

    def __init__(self, m, address, many):
        self.sock = socket.create_connection(("127.0.0.1", m.port), source_address=(address, 0), timeout=300 * SLOW)
        self.answers, self.ask = 0, b"GET /data/a HTTP/1.1\r\nHost: x\r\n\r\n"
        self.sock.sendall(self.ask * many)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        rest = b""
        with contextlib.suppress(OSError):
            while piece := self.sock.recv(1 << 18):
                rest = rest[-11:] + piece
                n = rest.count(b"HTTP/1.1 200")
                self.answers += n
                self.sock.sendall(self.ask * n)

    def stop(self):
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()
