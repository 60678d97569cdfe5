"""Clients that leave early, and clients that only look: what the origin gives is what was read, and what was read stays.

`stall = "1h"`: an origin that is held here is not a silent one, however long a slow machine takes."""
import contextlib
import socket
import struct

import pytest

from harness.crowd import Client
from harness.mirrord import until
from system.test_crowd import Silent

MIB = 1 << 20
KIB = 1 << 10
BLOCK = 64 * KIB
SEVERAL = ("127.0.0.2", "127.0.0.3")


@pytest.fixture
def data(mirrord, origin):
    m = mirrord(f"""repo "data" {{ protocol = "generic" origin = "{origin.url}/" stall = "1h" rule '.' {{ class = immutable }} }}""")
    m.origin = origin
    return m


def asked(m, path, read=1, fields=(), address="127.0.0.1"):
    """A connection that has asked, and has had so many bytes of the answer's body."""
    s = socket.create_connection(("127.0.0.1", m.port), source_address=(address, 0), timeout=300)
    s.sendall("\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *fields, "", ""]).encode())
    head, got = b"", 0
    while got < read:
        more = s.recv(MIB)
        assert more, got
        if b"\r\n\r\n" not in head:
            head += more
            more = head.partition(b"\r\n\r\n")[2]
        got += len(more)
    return s


def leave(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def part(m, path, first, end, **kw):
    return m.get(path, headers={"Range": f"bytes={first}-{end - 1}"}, **kw)


def test_who_leaves_at_once_costs_next_to_nothing(data):
    """100 bytes of a request cost what is on the way; before, all of each file for as long as `grace` lets it."""
    things = [data.origin.put(f"/{i}", size=256 * MIB, seed=i, hold_at=16 * MIB) for i in range(4)]
    for i in range(4):
        leave(asked(data, f"/data/{i}", read=100))
    data.forsaken()
    for t in things:
        t.go.set()
    data.settle()
    assert sum(t.bytes for t in things) <= 4 * 24 * MIB


@pytest.mark.parametrize("size", [64 * MIB, 900 * MIB])
def test_a_look_at_the_head_costs_its_blocks(data, wire, size):
    thing = data.origin.put("/a", size=size)
    for first, end in ((0, 8), (8, 100 * KIB), (100 * KIB, 300 * KIB)):
        got = part(data, "/data/a", first, end, wire=wire)
        assert got.status == 206 and got.body == data.origin.bytes_of("/a", first, end)
    data.forsaken()
    assert thing.bytes <= 300 * KIB + 2 * BLOCK
    before = thing.bytes
    assert part(data, "/data/a", 50, 200 * KIB, wire=wire).body == data.origin.bytes_of("/a", 50, 200 * KIB)
    assert thing.bytes == before, "what was read is here"


def test_a_slice_of_a_huge_file(data, wire):
    """3 MiB of 5 GiB, by blocks as a file system reads them."""
    thing = data.origin.put("/a", size=5 << 30)
    at = 2 << 30
    for i in range(12):
        got = part(data, "/data/a", at + i * 256 * KIB, at + (i + 1) * 256 * KIB, wire=wire)
        assert got.body == data.origin.bytes_of("/a", at + i * 256 * KIB, at + (i + 1) * 256 * KIB)
    assert thing.bytes <= 3 * MIB + 2 * BLOCK


def test_a_suffix_costs_its_bytes(data, wire):
    """bytes=-200 of 900 MiB whose length nobody knows: a HEAD, then a block or two."""
    thing = data.origin.put("/a", size=900 * MIB)
    got = data.get("/data/a", wire, headers={"Range": "bytes=-200"})
    assert got.status == 206 and got["content-range"] == f"bytes {900 * MIB - 200}-{900 * MIB - 1}/{900 * MIB}"
    assert got.body == data.origin.bytes_of("/a", 900 * MIB - 200)
    data.forsaken()
    assert thing.bytes <= 2 * BLOCK and thing.heads == 1
    again = data.get("/data/a", wire, headers={"Range": f"bytes=-{MIB}"})
    assert again.body == data.origin.bytes_of("/a", 899 * MIB)
    assert thing.bytes <= 2 * MIB + 3 * BLOCK and thing.heads == 1


def test_a_suffix_where_nobody_speaks_head(data):
    """The GET that follows says what is so: 404 here, and the whole where the origin tells no length."""
    assert data.get("/data/none", headers={"Range": "bytes=-200"}).status == 404
    thing = data.origin.put("/c", size=3 * MIB, chunked=True)
    got = data.get("/data/c", headers={"Range": "bytes=-200"})
    assert got.status in (200, 206) and got.body[-200:] == data.origin.bytes_of("/c", 3 * MIB - 200) and thing.bytes == 3 * MIB


def test_what_was_read_is_reused_and_outlives_a_restart(data):
    size = 40 * MIB
    thing = data.origin.put("/a", size=size)
    part(data, "/data/a", 0, MIB)
    part(data, "/data/a", 30 * MIB, 32 * MIB)
    data.forsaken()
    read = thing.bytes
    data.stop()
    data.start()
    assert part(data, "/data/a", 30 * MIB, 31 * MIB).body == data.origin.bytes_of("/a", 30 * MIB, 31 * MIB)
    assert thing.bytes <= read + BLOCK
    read = thing.bytes
    assert data.get("/data/a").body == data.origin.bytes_of("/a")
    assert thing.bytes <= size + BLOCK and thing.bytes > read
    data.settle()
    before = thing.requests
    assert data.get("/data/a").body == data.origin.bytes_of("/a") and thing.requests == before


def test_what_is_nearly_there_is_finished(data):
    thing = data.origin.put("/a", size=40 * MIB, hold_at=37 * MIB)
    s = asked(data, "/data/a", read=36 * MIB)
    leave(s)
    data.forsaken()
    thing.go.set()
    until(lambda: thing.bytes == 40 * MIB)
    data.settle()
    assert data.get("/data/a").body == data.origin.bytes_of("/a") and thing.bytes == 40 * MIB


def test_what_several_asked_for_is_finished(data):
    thing = data.origin.put("/a", size=64 * MIB, hold_at=8 * MIB)
    both = [asked(data, "/data/a", read=MIB, address=a) for a in SEVERAL]
    for s in both:
        leave(s)
    data.forsaken()
    thing.go.set()
    until(lambda: thing.bytes == 64 * MIB)
    data.settle()
    assert data.get("/data/a").body == data.origin.bytes_of("/a") and thing.bytes == 64 * MIB


def test_a_client_has_a_few_of_those_at_a_time(data):
    """Of ten that are nearly there when their client leaves, four go on."""
    things = [data.origin.put(f"/{i}", size=40 * MIB, seed=i, hold_at=37 * MIB) for i in range(6)]
    held = [asked(data, f"/data/{i}", read=36 * MIB) for i in range(6)]
    until(lambda: all(t.bytes >= 37 * MIB for t in things))
    for s in held:
        leave(s)
    data.forsaken()
    until(lambda: data.metric("mirrord_cache_fills_open") <= 4)
    for t in things:
        t.go.set()
    data.settle()
    data.says("fetch.done", 4)
    assert data.log().count("fetch.done") == 4  # of the others a socket's buffer may have had the rest


def test_all_clients_have_so_many_of_those_at_a_time(mirrord, origin):
    """Ten clients leave four small objects each: 32 go on."""
    m = mirrord(f"""repo "data" {{ protocol = "generic" origin = "{origin.url}/" connections = 64 stall = "1h" rule '.' {{ class = immutable }} }}""")
    things = [origin.put(f"/{i}", size=4 * MIB, seed=i, hold_at=MIB) for i in range(40)]
    held = [asked(m, f"/data/{i}", address=f"127.0.3.{i // 4 + 1}") for i in range(40)]
    for s in held:
        leave(s)
    m.forsaken()
    until(lambda: m.metric("mirrord_cache_fills_open") == 32)
    for t in things:
        t.go.set()
    m.says("fetch.done", 32)
    m.settle()
    assert m.log().count("fetch.done") == 32


def test_who_leaves_while_it_waits_for_its_turn_costs_nothing(mirrord, origin):
    """Twelve requests of 64 MiB were fetched after their client had left, one after the other, and its next one waited for them."""
    origin.put("/held", size=1000, hold_at=0)
    things = [origin.put(f"/{i}", size=64 * MIB, seed=i) for i in range(12)]
    m = mirrord(f"""repo "data" {{ protocol = "generic" origin = "{origin.url}/" connections = 1 stall = "1h" rule '.' {{ class = immutable }} }}""")
    other = Client(m, SEVERAL[1])
    other.begin("/data/held")
    until(lambda: origin.requests == 1)
    waiting = [asked(m, f"/data/{i}", read=0) for i in range(12)]
    m.reaches("mirrord_cache_fills_open", 13)
    for s in waiting:
        leave(s)
    until(lambda: m.metric("mirrord_cache_fills_open") == 1 and m.metric("mirrord_cache_waiting") <= 1)
    origin.things["/held"].go.set()
    other.join()
    assert m.get("/data/none").status == 404
    assert sum(t.requests for t in things) == 0 and origin.requests == 2
    assert m.get("/data/0").body == origin.bytes_of("/0"), "that somebody left says nothing of the origin"


def test_who_waits_still_gets_what_another_has_left(mirrord, origin):
    origin.put("/held", size=1000, hold_at=0)
    thing = origin.put("/a", size=MIB)
    m = mirrord(f"""repo "data" {{ protocol = "generic" origin = "{origin.url}/" connections = 1 stall = "1h" rule '.' {{ class = immutable }} }}""")
    first, other = Client(m, "127.0.0.4"), Client(m, SEVERAL[1])
    first.begin("/data/held")
    until(lambda: origin.requests == 1 and m.metric("mirrord_cache_waiting") == 0)  # its head is here: it waits no more
    leaves = asked(m, "/data/a", read=0)
    until(lambda: m.metric("mirrord_cache_waiting") == 1)
    other.begin("/data/a")
    until(lambda: m.metric("mirrord_cache_waiting") == 2)
    leave(leaves)
    until(lambda: m.metric("mirrord_cache_waiting") == 1)
    origin.things["/held"].go.set()
    other.join()
    assert other.done == [("/data/a", 200)] and thing.requests == 1


def test_who_leaves_before_the_origin_speaks_ends_the_request(mirrord):
    """And that is no trouble of the origin: the next client asks it at once."""
    with contextlib.closing(Silent()) as silent:
        m = mirrord(f"""repo "data" {{ protocol = "generic" origin = "{silent.url}/" stall = "10m" rule '.' {{ class = immutable }} }}""")
        leaves = asked(m, "/data/a", read=0)
        m.reaches("mirrord_cache_fills_open", 1)
        leave(leaves)
        until(lambda: m.metric("mirrord_cache_fills_open") == 0)
        silent.go.set()
        assert m.get("/data/a").status == 200


def test_who_comes_back_goes_on(data):
    """A broken line: the next try asks for what is missing and no more."""
    thing = data.origin.put("/a", size=64 * MIB, hold_at=20 * MIB)
    leave(asked(data, "/data/a", read=20 * MIB))  # all that the origin has given: nothing is on the way when it leaves
    data.forsaken()
    data.settle()
    thing.go.set()
    assert data.get("/data/a").body == data.origin.bytes_of("/a")
    assert thing.bytes == 64 * MIB


def test_a_crowd_after_one_who_left(data):
    thing = data.origin.put("/a", size=64 * MIB, hold_at=20 * MIB)
    leave(asked(data, "/data/a", read=MIB))
    thing.go.set()
    crowd = [Client(data, f"127.0.2.{i + 1}") for i in range(20)]
    for c in crowd:
        c.begin("/data/a")
    for c in crowd:
        c.join()
        assert c.done == [("/data/a", 200)]
    # What was on the way when the first one left may have been given twice.
    assert thing.bytes <= 64 * MIB + 24 * MIB
