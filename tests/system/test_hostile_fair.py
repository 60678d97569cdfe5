"""One client asks for all that there is: another's turn comes all the same. Turns are counted, nothing is timed: `stall = "1h"`, for an
origin that is held for as long as a slow machine needs to queue the others."""
import contextlib
import datetime
import json
import os
import re
import signal
import socket
import threading
import time

import pytest

from harness.crowd import Client
from harness.mirrord import BUILD, SLOW, until
from harness.tree_origin import TreeOrigin

GREEDY, MODEST = "127.0.0.2", "127.0.0.3"


@pytest.mark.parametrize("seats", [2, 4])
def test_one_client_never_has_all_of_an_origin(mirrord, origin, seats):
    """No seat is given back before the other client was answered."""
    for i in range(12):
        origin.put(f"/a{i}", size=1000, seed=i, hold_at=0)
    origin.put("/b", size=1000)
    m = mirrord(f'repo "data" {{ protocol = "generic" origin = "{origin.url}/" connections = {seats} stall = "1h" }}')
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


@pytest.fixture
def held(mirrord, origin):
    """A mirror with one connection to its origin, which the greedy client holds until `let_go()`."""
    def start(more=""):
        origin.put("/held", size=1000, hold_at=0)
        m = mirrord(f'repo "data" {{ protocol = "generic" origin = "{origin.url}/" connections = 1 stall = "1h" {more} }}')
        m.greedy, m.modest = Client(m, GREEDY), Client(m, MODEST)
        m.greedy.begin("/data/held")
        until(lambda: origin.requests == 1 and m.metric("mirrord_cache_waiting") == 0)
        m.let_go = origin.things["/held"].go.set
        return m
    return start


def test_clients_take_turns_at_an_origin(held, origin):
    m = held()
    for i in range(60):
        m.greedy.begin(f"/data/none{i}")
    m.reaches("mirrord_cache_fills_open", 61)
    m.modest.begin("/data/mine")
    m.reaches("mirrord_cache_fills_open", 62)
    m.let_go()
    m.greedy.join()
    m.modest.join()
    assert origin.misses.index("/mine") <= 2 and len(origin.misses) == 61


def test_what_a_greedy_client_has_queued_is_fetched_in_the_turn_of_whoever_joins(held, origin):
    """The last of 60 objects that one client has queued is wanted by another, too: it was asked for as the 59th."""
    m = held()
    for i in range(60):
        m.greedy.begin(f"/data/none{i}")
        m.reaches("mirrord_cache_fills_open", i + 2)
    m.modest.begin("/data/none59")
    m.reaches("mirrord_cache_waiting", 61)
    m.let_go()
    m.greedy.join()
    m.modest.join()
    assert origin.misses.index("/none59") <= 2 and len(origin.misses) == 60
    assert m.modest.done == [("/data/none59", 404)]


@pytest.mark.skipif(SLOW > 1, reason="a sanitizer's runtime must come first")
def test_a_syncs_run_never_has_all_threads_of_the_disk(mirrord, tmp_path):
    """Each file's seal waits for the disk: a client's upload is done meanwhile."""
    order = tmp_path / "hold"
    with TreeOrigin({f"f{i}": bytes([i]) * 300_000 for i in range(8)}) as o:
        m = mirrord(f"""disk_threads = 2 repo "x" {{ protocol = "generic" origin = "{o.url}" sync {{ parallel = 8 }} }}
            repo "models" {{ protocol = "hosted" }}""")
        token = m.token("ci", "publish:models/*")
        m.stop()
        m.env = {"LD_PRELOAD": str(BUILD / "crash" / "failer.so"), "FAIL_FILE": str(order)}
        m.start()
        order.write_text("0 on sync /blobs/")
        try:
            m.ctl("sync", "run", "x")
            until(lambda: len(o.sent) == 8 and order.with_suffix(".count").exists())
            for i in range(5):
                assert m.put(f"/models/me/x/f{i}", b"x" * i, token=token).status == 201
            assert m.ctl_json("sync", "ls")[0]["running"]
        finally:
            order.unlink()
        until(lambda: not m.ctl_json("sync", "ls")[0]["running"])
        assert m.get("/x/f7").body == bytes([7]) * 300_000


def refused(*clients):
    return sum(status == 503 for c in clients for _, status in c.done)


def test_one_client_never_has_all_places_before_an_origin(held):
    """Of 32 objects that may be waited for 16 are for one client: it hears 503 beyond, others wait."""
    m = held("waiting = 32")
    for i in range(40):
        m.greedy.begin(f"/data/none{i}")
    until(lambda: refused(m.greedy) >= 24)
    m.modest.begin("/data/mine")
    m.reaches("mirrord_cache_waiting", 17)
    m.let_go()
    m.greedy.join()
    m.modest.join()
    assert m.modest.done == [("/data/mine", 404)] and refused(m.greedy) == 24


def test_before_a_crowded_origin_the_client_with_most_gives(held):
    """Two clients have all places: for a third, the last that came of one of theirs is sent away."""
    m = held("waiting = 32")
    other = Client(m, "127.0.0.4")
    for c, name in ((m.greedy, "a"), (other, "b")):
        for i in range(16):
            c.begin(f"/data/{name}{i}")
    m.reaches("mirrord_cache_waiting", 32)
    assert not refused(m.greedy, other)
    m.modest.begin("/data/mine")
    m.reaches("mirrord_cache_crowded_total", 1)
    m.let_go()
    for c in (m.greedy, other, m.modest):
        c.join()
    assert m.modest.done == [("/data/mine", 404)]
    assert refused(m.greedy, other) == 1 and m.metric("mirrord_cache_crowded_total") == 1


def test_requests_for_one_object_have_a_bound_a_client(held):
    """Of 256 requests that may wait 128 are for one client, though all wait for the same object."""
    m = held("waiting = 32")
    for _ in range(132):
        m.greedy.begin("/data/none")
    until(lambda: refused(m.greedy) >= 4)
    m.modest.begin("/data/none")
    m.reaches("mirrord_cache_waiting", 129)
    m.let_go()
    m.greedy.join()
    m.modest.join()
    assert m.modest.done == [("/data/none", 404)] and refused(m.greedy) == 4


def test_a_token_is_one_client_wherever_it_asks(mirrord, origin):
    for i in range(8):
        origin.put(f"/a{i}", size=1000, seed=i, hold_at=0)
    origin.put("/b", size=1000)
    m = mirrord(f'repo "data" {{ protocol = "generic" origin = "{origin.url}/" connections = 4 stall = "1h" }}')
    token = m.token("ci", "read:data/*")
    for i in range(8):
        Client(m, f"127.0.1.{i + 1}", token).begin(f"/data/a{i}")
    until(lambda: origin.requests >= 3)
    assert Client(m, "127.0.1.1").ask("/data/b")[0] == 200  # without the token it is another client
    assert origin.requests == 4
    for i in range(8):
        origin.things[f"/a{i}"].go.set()


LISTING = {"path": "/models/me/gpt/?format=json", "headers": {"Accept": "application/json"}}


def answered_meanwhile(m, modest, path, headers):
    """How many answers the greedy client was given between the other one's request and its answer. The daemon stands still until that
    request is there, and the access log of its one loop has the answers in their order: how late we see any of them does not count."""
    with contextlib.closing(modest.connect()) as c:
        c.request("GET", "/healthz")
        assert c.getresponse().read()
        m.child.send_signal(signal.SIGSTOP)
        os.waitpid(m.child.pid, os.WUNTRACED)  # it may run on for a while
        stood_ms = time.time_ns() // 1_000_000
        c.request("GET", path, headers=headers)
        m.child.send_signal(signal.SIGCONT)
        reply = c.getresponse()
        assert reply.read() and reply.status == 200
    m.answered(reply.headers["X-Request-Id"])
    lines = [json.loads(line) for line in m.access_log.read_text().split("\n")[:-1]]
    lines = lines[:[e["id"] for e in lines].index(reply.headers["X-Request-Id"])]
    return sum(e["client"] == GREEDY and datetime.datetime.fromisoformat(e["ts"]).timestamp() * 1000 >= stood_ms for e in lines)


def test_documents_are_made_in_turns(mirrord):
    """Each of these asks costs the maker of documents a while; a listing waits for those that run, not for those that wait."""
    m = mirrord('threads = 1\nrepo "models" { protocol = "hosted" }')
    token = m.token("ci", "publish:models/me/*")
    for i in range(50):
        assert m.put(f"/models/me/gpt/d/{i}", b"x", token=token).status in (200, 201)
    greedy, modest = Client(m, GREEDY), Client(m, MODEST)
    for i in range(16):
        form = "&".join(f"paths=d%2F{k % 50}" for k in range(4000 + i)).encode()
        greedy.begin("/models/api/models/me/gpt/paths-info/main", method="POST", body=form,
                     headers={"Content-Type": "application/x-www-form-urlencoded"})
    until(lambda: greedy.done)
    assert answered_meanwhile(m, modest, **LISTING) <= 6, greedy.done
    greedy.join()
    assert {status for _, status in greedy.done} == {200}


def test_a_listing_is_made_in_the_turn_of_whoever_joins(mirrord):
    """One client has queued it behind 16 dear forms of its own; whoever wants the same does not wait for those."""
    m = mirrord('threads = 1\nrepo "models" { protocol = "hosted" }')
    token = m.token("ci", "publish:models/me/*")
    for i in range(50):
        assert m.put(f"/models/me/gpt/d/{i}", b"x", token=token).status in (200, 201)
    greedy, modest = Client(m, GREEDY), Client(m, MODEST)
    begun = m.metric("mirrord_documents_made_total")
    for i in range(24):
        form = "&".join(f"paths=d%2F{k % 50}" for k in range(4000 + i)).encode()
        greedy.begin("/models/api/models/me/gpt/paths-info/main", method="POST", body=form,
                     headers={"Content-Type": "application/x-www-form-urlencoded"})
    m.reaches("mirrord_documents_made_total", begun + 24)
    greedy.begin(**LISTING)
    m.reaches("mirrord_documents_made_total", begun + 25)
    assert answered_meanwhile(m, modest, **LISTING) <= 7, greedy.done
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
    modest = flood(m, MODEST, 10 * many)  # so many: 64 threads of ours have their turns before it says more
    until(lambda: modest.answers)  # from here on: what the others get before it has come does not count
    before, first = total(), modest.answers
    until(lambda: modest.answers - first >= count)
    theirs = total() - before - (modest.answers - first)
    for f in [*greedy, modest]:
        f.stop()
    assert theirs < 3 * count, f"{theirs} for one client, {modest.answers - first} for the other"


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


def test_listings_of_a_hub_are_fetched_in_turns(mirrord, hub):
    """One client has queued the listings of 60 repositories; another wants the last of them, too, on the same loop, and three more."""
    for i in range(64):
        hub.repo(f"org/m{i}", files={"config.json": b"{}"})
    m = mirrord("threads = 1\n" + hub.config(more='connections = 1 patience = 1h stall = "1h"'))
    greedy, modest = Client(m, GREEDY), Client(m, MODEST)
    hub.voice.clear()

    def listing(i):
        return f"/hf/api/models/org/m{i}/tree/main?recursive=true"
    for i in [60, *range(60)]:
        greedy.begin(listing(i))
        m.reaches("mirrord_cache_fills_open", len(greedy.threads))
    until(lambda: hub.calls)
    wants = modest.connect()
    wants.request("GET", listing(59))  # said before the next three are
    for i in (61, 62, 63):  # each takes the way that the first has taken, and shows that it is queued
        modest.begin(listing(i))
        m.reaches("mirrord_cache_fills_open", i + 1)
    hub.voice.set()
    reply = wants.getresponse()
    assert reply.read() and reply.status == 200
    greedy.join()
    modest.join()
    order = [int(re.search(r"/org/m(\d+)(/|$)", target)[1]) for _, target, _ in hub.calls]
    for i in (59, 61, 62, 63):
        assert len(set(order[:order.index(i)])) <= 12, (i, order)
    assert {status for _, status in greedy.done + modest.done} == {200}
