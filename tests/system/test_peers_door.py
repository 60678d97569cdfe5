"""Nodes that share a file, the mirror's side: who may announce, what it is told, what is kept and for how long."""
import base64
import hashlib
import json
import os
import secrets
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.mirrord import until

CHUNK = 8 << 20
CONFIG = """
repo "models" {{ protocol = "hosted" }}
repo "secret" {{ protocol = "hosted" access {{ anonymous = none }} }}
peers {{ {settings} }}
"""
DATA = os.urandom(1 << 20) * 20 + b"tail"  # 20 MiB and a bit: 3 chunks
OTHER = os.urandom(4 << 20)


def sha(data):
    return hashlib.sha256(data).hexdigest()


def bitmap(chunks, *have):
    bits = bytearray((chunks + 7) // 8)
    for c in have:
        bits[c // 8] |= 0x80 >> c % 8
    return base64.b64encode(bits).decode()


class Node:
    """One member: a process that pulls DATA, or another file of so many chunks."""

    def __init__(self, m, digest, chunks=3, port=4000, token=None, wire="h1"):
        self.m, self.digest, self.chunks, self.port, self.token, self.wire = m, digest, chunks, port, token, wire
        self.id = secrets.token_hex(16)

    def post(self, body, **kw):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.m.put(f"/-/peers/{self.digest}", data, wire=self.wire, token=self.token, method="POST", **kw)

    def say(self, *have, take=0):
        return self.post({"id": self.id, "port": self.port, "have": bitmap(self.chunks, *have), "take": take})

    def tell(self, *have, take=0):
        got = self.say(*have, take=take)
        assert got.status == 200, got.body
        return json.loads(got.body)

    def leave(self):
        return self.post({"id": self.id, "leave": True})


@pytest.fixture
def served(mirrord):
    """A mirror with DATA in an open repo, OTHER in one that wants a token; its token for both."""
    def start(settings="again = 5m lease = 1h", config=CONFIG):
        m = mirrord(config.format(settings=settings))
        m.publisher = m.token("ci", "publish:*", "read:*")
        for path, data in (("/models/me/gpt/w", DATA), ("/secret/me/gpt/w", OTHER)):
            assert m.put(path, data, token=m.publisher).status in (200, 201)
        return m
    return start


def test_announce(served, wire):
    m = served()
    a, b = Node(m, sha(DATA), port=4001, wire=wire), Node(m, sha(DATA), port=4002, wire=wire)
    got = a.say(take=2)
    assert (got.status, got["content-type"], got["cache-control"]) == (200, "application/json", "no-store")
    alone = json.loads(got.body)
    assert len(bytes.fromhex(alone["key"])) == 32
    assert (alone["take"], alone["peers"], alone["swarm"], alone["again_s"]) == ([0, 1], [], 1, 300)
    told = b.tell(2, take=4)
    assert (told["take"], told["key"], told["swarm"]) == ([], alone["key"], 2)
    assert told["peers"] == [{"address": "127.0.0.1", "port": 4001}]
    assert a.tell(0, take=4)["take"] == [1] and a.tell(0)["peers"] == [{"address": "127.0.0.1", "port": 4002}]
    assert json.loads(a.leave().body) == {}
    assert b.tell(2, take=4)["take"] == [0, 1] and b.tell(2)["swarm"] == 1


# --- who may -----------------------------------------------------------------------------------------------------------

def test_rights_are_those_of_the_blob(served):
    m = served()
    stranger = Node(m, sha(OTHER), chunks=1)
    other_scope = m.token("other", "read:models/*")
    unknown = Node(m, sha(b"nowhere"), chunks=1)
    for node in (stranger, Node(m, sha(OTHER), chunks=1, token=other_scope)):
        got = node.say()
        assert (got.status, got.body) == (404, unknown.say().body)
    assert Node(m, sha(OTHER), chunks=1, token=m.publisher).tell()["swarm"] == 1
    assert stranger.say().status == 404  # also while others share it
    assert Node(m, sha(OTHER), chunks=1, token="mrd_0123456789").say().status == 401
    m.ctl("token", "revoke", "ci")
    assert Node(m, sha(OTHER), chunks=1, token=m.publisher).say().status == 401


def test_without_the_section_there_is_nothing(served):
    m = served(config=CONFIG.replace("peers", "#"))
    assert Node(m, sha(DATA)).say().status == 404
    assert m.get(f"/-/peers/{sha(DATA)}").status == 404
    assert m.ctl("peers", "ls", check=False).returncode == 66
    assert "swarms" not in json.loads(m.get("/-/status.json").body)
    assert b"Shared between nodes" not in m.get("/").body


def test_what_is_no_announcement(served):
    m = served()
    n = Node(m, sha(DATA))
    good = {"id": n.id, "port": 1, "have": bitmap(3), "take": 64, "later": [{"more": None}]}
    assert n.post(good).status == 200
    for wrong in ({"id": "x"}, {"id": n.id[:-1]}, {"id": None}, {"id": 7}, {"port": -1}, {"port": 65536}, {"port": "1"}, {"port": 1.0},
                  {"take": 65}, {"take": -1}, {"take": "4"}, {"have": None}, {"have": "AA="}, {"have": "AAAA"}, {"have": ""}, {"have": "EA=="},
                  {"have": "\u0000"}, {"leave": 1}):
        got = n.post({**good, **wrong})
        assert got.status == 400 and b"docs/protocols/peers.md" in got.body, (wrong, got.body)
    for body in (b"", b"{", b"[]", b"null", b"\xff", json.dumps(good).encode()[:-1] + b', "port": 2}'):
        assert n.post(body).status == 400, body
    assert n.tell()["swarm"] == 1
    for path in (f"/-/peers/{sha(DATA)}x", "/-/peers/", f"/-/peers/{sha(DATA)}/"):
        assert m.put(path, b"{}", method="POST").status == 404
    for method in ("PUT", "DELETE"):
        got = m.put(f"/-/peers/{sha(DATA)}", b"{}", method=method)
        assert (got.status, got["allow"]) == (405, "POST")
    assert m.get(f"/-/peers/{sha(DATA)}").status == 405


def test_long_bodies_are_refused(served, wire):
    m = served()
    n = Node(m, sha(DATA), wire=wire)
    long = b'{"id": "' + b"a" * (256 << 10) + b'"}'
    assert n.post(long).status == 413
    assert n.post(long, headers={"Content-Length": ""}, args=["-H", "Transfer-Encoding: chunked"] if wire == "h1" else []).status == 413
    assert n.tell()["swarm"] == 1


def test_limits_count(served):
    m = served(config=CONFIG + 'limit "anonymous" {{ requests = "0.01/s" burst = 3 }}')
    got = [Node(m, sha(DATA)).say() for _ in range(6)]
    assert {g.status for g in got} == {200, 429} and got[-1]["retry-after"]


# --- what is told ------------------------------------------------------------------------------------------------------

def test_two_files_are_two_swarms(served):
    m = served()
    a, b = Node(m, sha(DATA)), Node(m, sha(OTHER), chunks=1, token=m.publisher)
    b.id = a.id
    one, two = a.tell(take=1), b.tell(take=1)
    assert one["key"] != two["key"] and (one["take"], two["take"]) == ([0], [0])
    assert (a.tell()["swarm"], b.tell()["peers"]) == (1, [])
    a.leave()
    assert b.tell()["key"] == two["key"]
    assert a.tell()["key"] != one["key"]  # the last had gone


def test_addresses_are_those_of_connections(served):
    m = served(config=CONFIG + 'trusted_proxies = {{ "127.0.0.0/8" }}')
    got = {}
    for port, forwarded in ((1, "10.1.2.3"), (2, "10.9.9.9, 10.1.2.4"), (3, "2001:db8::7"), (4, None)):
        n = Node(m, sha(DATA), port=port)
        headers = {"X-Forwarded-For": forwarded} if forwarded else {}
        answer = n.post({"id": n.id, "port": port, "have": bitmap(3), "address": "10.6.6.6"}, headers=headers)
        got[port] = {(p["address"], p["port"]) for p in json.loads(answer.body)["peers"]}
    assert got[4] == {("10.1.2.3", 1), ("10.1.2.4", 2), ("2001:db8::7", 3)}
    taker = Node(m, sha(DATA), port=0)
    answer = taker.post({"id": taker.id, "port": 0, "have": bitmap(3)}, headers={"X-Forwarded-For": "10.1.2.5"})
    assert {(p["address"], p["port"]) for p in json.loads(answer.body)["peers"]} == got[4]  # whose address is another machine there
    assert len(Node(m, sha(DATA), port=0).tell()["peers"]) == 4


def test_an_address_is_believed_of_nobody_else(served):
    m = served()
    a, b = Node(m, sha(DATA), port=1), Node(m, sha(DATA), port=2)
    a.post({"id": a.id, "port": 1, "have": bitmap(3)}, headers={"X-Forwarded-For": "10.1.2.3", "Forwarded": "for=10.1.2.3"})
    assert b.tell()["peers"] == [{"address": "127.0.0.1", "port": 1}]


def test_many_at_once_are_asked_for_different_chunks(served):
    m = served()
    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(lambda _: Node(m, sha(DATA)).tell(take=1), range(24)))
    assert sorted(c for t in told for c in t["take"]) == [0, 1, 2]
    assert len({t["key"] for t in told}) == 1 and Node(m, sha(DATA)).tell()["swarm"] == 25


def test_no_more_than_members(served):
    m = served("again = 5m members = 2")
    a, b, c = (Node(m, sha(DATA)) for _ in range(3))
    assert (a.tell()["swarm"], b.tell()["swarm"]) == (1, 2)
    got = c.say()
    assert (got.status, got["retry-after"]) == (503, "300") and b"only" in got.body
    assert a.tell()["swarm"] == 2 and m.metric("mirrord_peers_refused_total") == 1
    b.leave()
    assert c.tell()["swarm"] == 2


# --- for how long ------------------------------------------------------------------------------------------------------

def test_who_falls_silent_is_gone(served):
    m = served("again = 1s lease = 1h")
    a, b = Node(m, sha(DATA)), Node(m, sha(DATA))
    assert a.tell(1, take=2)["take"] == [0, 2]
    until(lambda: b.tell(take=3)["take"] == [0, 1, 2])
    until(lambda: m.metric("mirrord_peers_members") == 0)  # whether anybody comes or not
    assert m.metric("mirrord_peers_swarms") == 0 and m.ctl_json("peers", "ls") == []


def test_a_lease_ends(served):
    m = served("again = 5m lease = 1s")
    a, b = Node(m, sha(DATA)), Node(m, sha(DATA))
    assert a.tell(take=1)["take"] == [0]
    until(lambda: 0 in b.tell(take=3)["take"])
    assert a.tell()["swarm"] == 2


def test_reload(served):
    m = served()
    a, b = Node(m, sha(DATA)), Node(m, sha(DATA))
    was = a.tell(take=1)
    m.config = m.config.replace("again = 5m", "again = 2m")
    m.reload()
    told = b.tell(take=1)
    assert (told["again_s"], told["key"], told["take"]) == (120, was["key"], [1])  # nothing is forgotten
    m.config, config = m.config.replace("peers {", "#peers {"), m.config
    m.reload()
    assert a.say().status == 404 and m.metric("mirrord_peers_members") == 0
    m.config = config
    m.reload()
    told = b.tell(take=1)
    assert told["key"] != was["key"] and (told["swarm"], told["take"]) == (1, [0])


def test_restart(served):
    m = served()
    a = Node(m, sha(DATA))
    was = a.tell(0, take=1)
    m.kill()
    m.start()
    told = a.tell(0, take=1)
    assert told["key"] != was["key"] and (told["swarm"], told["take"]) == (1, [1])


# --- who looks on ------------------------------------------------------------------------------------------------------

def test_what_is_shown(served):
    m = served()
    Node(m, sha(DATA)).tell(0, take=1)
    Node(m, sha(DATA), port=0).tell(0)
    key = Node(m, sha(OTHER), chunks=1, token=m.publisher).tell()["key"]
    rows = m.ctl_json("peers", "ls")
    assert [(r["digest"], r["repo"], r["key"], r["members"], r["givers"], r["had"], r["asked"], r["chunks"], r["size"]) for r in rows] == [
        (sha(DATA), "models", "me/gpt", 2, 1, 1, 1, 3, len(DATA)), (sha(OTHER), "secret", "me/gpt", 1, 1, 0, 0, 1, len(OTHER))]
    assert "models/me/gpt" in m.ctl("peers", "ls").stdout
    status, page = m.get("/-/status.json").body.decode(), m.get("/").body.decode()
    assert [s["digest"] for s in json.loads(status)["swarms"]] == [sha(DATA), None]
    assert "models/me/gpt<span> 20.0 MiB, 2 nodes, 1 of 3 chunks with them" in page
    for text in (status, page):
        assert sha(OTHER) not in text
    for text in (status, page, json.dumps(rows), m.get("/metrics").body.decode(), m.log(), m.access_log.read_text()):
        assert key not in text
    names = ("announcements_total", "chunks_asked_total", "swarms", "members", "refused_total")
    assert [m.metric(f"mirrord_peers_{n}") for n in names] == [3, 1, 2, 3, 0]
