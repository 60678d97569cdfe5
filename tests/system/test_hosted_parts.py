"""Large objects of a hosted repository, in parts (server/upload/parts.h): in any order, twice, broken off, over a SIGKILL; what is not the
digest's never shows. Real clients: clients/test_hub_large.py."""
import concurrent.futures
import hashlib
import json
import os
import socket

import pytest

from harness.mirrord import until
from system.test_hosted_hub import CONFIG, Hub, below, lfs, sha

PART = 64 << 20
SEEDS = [os.urandom(64) for _ in range(4)]
TAIL = b"the last, short one"


def part(n):
    """From 1 on; zeros but for their ends, so that they cost little."""
    return TAIL if n == 5 else SEEDS[n - 1] + bytes(PART - 128) + SEEDS[n - 1]


@pytest.fixture(scope="module")
def oid():
    h = hashlib.sha256()
    for n in range(1, 6):
        h.update(part(n))
    return h.hexdigest()


SIZE = 4 * PART + len(TAIL)


@pytest.fixture
def m(mirrord):
    return mirrord(CONFIG)


@pytest.fixture
def hub(m):
    h = Hub(m)
    assert h.create().status == 200
    return h


class Parts:
    def __init__(self, hub, oid, name="gpt"):
        self.m, self.oid = hub.m, oid
        (one,) = hub.batch((oid, SIZE), name=name)[1]["objects"]
        up = one["actions"]["upload"]
        self.header, self.href, self.verify = up["header"], below(up["href"]), below(one["actions"]["verify"]["href"])
        assert self.header["chunk_size"] == str(PART) and len(self.header) == 6

    def put(self, n, data=None, **kw):
        return self.m.put(below(self.header[str(n)]), part(n) if data is None else data, **kw)

    def end(self, count=5, oid=None):
        body = {"oid": oid or self.oid, "parts": [{"partNumber": i + 1, "etag": "x"} for i in range(count)]}
        return self.m.put(self.href, json.dumps(body).encode(), method="POST")

    def known(self, size=SIZE):
        return self.m.put(self.verify, json.dumps({"oid": self.oid, "size": size}).encode(), method="POST").status


def committed(hub, oid, size=SIZE):
    return hub.commit(("lfsFile", {"path": "w", "algo": "sha256", "oid": oid, "size": size})).status


def is_whole(m, oid):
    got = m.get("/models/me/gpt/resolve/main/w")
    return got.status == 200 and sha(got.body) == oid


def test_in_any_order_and_twice(hub, oid, m):
    p = Parts(hub, oid)
    assert p.end().status == 400 and p.known() == 404
    tags = {n: p.put(n)["etag"] for n in (3, 1, 5, 4)}
    assert p.put(3)["etag"] == tags[3] and len(set(tags.values())) == 4
    missing = p.end()
    assert missing.status == 400 and b"part 2 of 5" in missing.body
    assert committed(hub, oid) == 409
    assert p.put(2).status == 200
    assert p.end(4).status == 400
    assert p.end().status == 200 and p.end().status == 200
    assert p.known() == 200 and p.known(SIZE - 1) == 404
    assert "actions" not in hub.batch((oid, SIZE))[1]["objects"][0]
    assert m.get("/-/blob/" + oid).status == 404  # nobody reads it before the commit
    assert committed(hub, oid) == 200 and is_whole(m, oid)
    assert p.put(1).status == 404  # there is nothing to add to any more
    m.ctl("verify")


def test_many_at_once(hub, oid, m):
    p = Parts(hub, oid)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert {r.status for r in pool.map(p.put, (5, 4, 3, 2, 1, 2, 5))} <= {200, 409, 503}
        for n in range(1, 6):
            assert p.put(n).status == 200
        assert {r.status for r in pool.map(lambda _: p.end(), range(3))} == {200}
    assert committed(hub, oid) == 200 and is_whole(m, oid)


def other(data):
    """Another first byte, whichever it was."""
    return bytes([data[0] ^ 1]) + data[1:]


def test_wrong_bytes_are_refused(hub, oid, m):
    """One part that differs from what came before is asked for again; a whole that has another digest goes."""
    p = Parts(hub, oid)
    bad = other(part(1))
    assert p.put(1, bad).status == 200
    assert p.put(1).status == 503  # one of the two is wrong
    for n in range(1, 6):
        assert p.put(n).status == 200
    assert p.put(2, other(part(2))).status == 503 and p.put(2).status == 200
    assert p.end().status == 200
    hub.create("other")
    p = Parts(hub, oid, "other")
    for n in range(1, 6):
        assert p.put(n, bad if n == 1 else None).status == 200
    assert p.end().status == 422 and p.known() == 404
    assert p.put(1).status == 404  # anew, from a batch on
    p = Parts(hub, oid, "other")
    for n in range(1, 6):
        assert p.put(n).status == 200
    assert p.end().status == 200
    m.ctl("verify")


def test_what_no_part_is(hub, oid):
    p = Parts(hub, oid)
    assert p.put(5, TAIL + b"x").status == 400 and p.put(5, TAIL[1:]).status == 400 and p.put(5, b"").status == 400
    href = below(p.header["5"])
    for bad in ("0", "6", "2049", "-1", "x", "", "99999999999999999999"):
        assert p.m.put(href.replace("part=5", f"part={bad}"), TAIL).status == 404, bad
    assert p.m.put(href.replace(oid, "0" * 64), TAIL).status == 404
    assert p.m.put(href.replace("/gpt/", "/other/"), TAIL).status == 404
    assert p.m.put(href.replace("upload=", "upload=0"), TAIL).status == 404
    for body in (b"", b"[]", b"{}", b'{"oid": 1}', json.dumps({"oid": "0" * 64, "parts": []}).encode(),
                 json.dumps({"oid": oid, "parts": [{"partNumber": 2}]}).encode(), json.dumps({"oid": oid, "parts": [1]}).encode()):
        assert p.m.put(p.href, body, method="POST").status == 400, body
        assert p.m.put(p.verify, body, method="POST").status == 400, body
    assert p.m.get(p.href).status == 401  # read by those who may publish alone


def test_a_part_that_breaks_off(hub, oid, m):
    p = Parts(hub, oid)
    assert p.put(1).status == 200
    with socket.create_connection(("127.0.0.1", m.port), 120) as s:
        s.sendall(f"PUT {below(p.header['2'])} HTTP/1.1\r\nHost: x\r\nContent-Length: {PART}\r\n\r\n".encode() + b"?" * 3000000)
    m.forsaken()
    missing = p.end()
    while missing.status == 503:
        missing = p.end()
    assert missing.status == 400 and b"part 2 of 5" in missing.body
    for n in (2, 3, 4, 5):
        assert p.put(n).status == 200
    assert p.end().status == 200 and committed(hub, oid) == 200 and is_whole(m, oid)


def test_a_stalled_part_is_taken_over(hub, oid, m):
    """A connection whose client is gone without a word holds nobody up."""
    p = Parts(hub, oid)
    with socket.create_connection(("127.0.0.1", m.port), 120) as s:
        s.sendall(f"PUT {below(p.header['1'])} HTTP/1.1\r\nHost: x\r\nContent-Length: {PART}\r\n\r\n".encode() + b"?" * 3000000)
        m.reaches("mirrord_http_received_bytes_total", 3000000)
        for n in range(1, 6):
            assert p.put(n).status == 200
        assert p.end().status == 200
    assert committed(hub, oid) == 200 and is_whole(m, oid)


def test_over_a_kill(hub, oid, m):
    p = Parts(hub, oid)
    assert p.put(1).status == p.put(2).status == 200
    m.kill()
    m.start()
    again = Parts(hub, oid)  # a client that begins anew gets the same addresses: no second file
    assert [below(again.header[str(n)]) for n in range(1, 6)] == [below(p.header[str(n)]) for n in range(1, 6)]
    assert again.put(2).status == again.put(3).status == 200
    m.kill()
    m.start()
    assert [again.put(n).status for n in (4, 5)] == [200, 200]
    m.kill()
    m.start()
    assert again.end().status == 200
    m.kill()
    m.start()
    assert committed(hub, oid) == 200 and is_whole(m, oid)
    m.ctl("verify")
    until(lambda: not list((m.state / "partial").iterdir()))


def test_small_objects_come_in_one_piece(hub):
    (one,) = hub.batch((sha(b"x"), (256 << 20) - 1))[1]["objects"]
    assert set(one["actions"]) == {"upload"} and "header" not in one["actions"]["upload"]


def test_addresses_have_a_bound(hub):
    """256 of the largest that anybody has: larger parts, and one answer."""
    objects = [(sha(str(i).encode()), 1 << 40) for i in range(256)]
    said = hub.batch(*objects)[1]["objects"]
    header = said[0]["actions"]["upload"]["header"]
    assert len(header) - 1 == (1 << 40) // int(header["chunk_size"]) == 64
    (one,) = hub.batch((sha(b"one"), (1 << 40) + 1))[1]["objects"]
    header = one["actions"]["upload"]["header"]
    assert len(header) - 1 == 1025 and int(header["chunk_size"]) == 1 << 30
    assert hub.batch((sha(b"y"), (1 << 63) - 1))[0].status == 200


def test_no_room_is_said(mirrord, oid):
    m = mirrord(CONFIG + 'storage { quota = "100m" }')
    h = Hub(m)
    h.create()
    p = Parts(h, oid)
    assert p.put(1).status == 507
    assert h.commit(lfs("w", b"", size=SIZE)).status in (400, 409)
