"""Nodes that share a file, the mirror's side: who may announce, what it is told, what is kept and for how long."""
import base64
import hashlib
import json
import os
import secrets

import pytest

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
