"""Which mirrors a cluster has: mirrorctl cluster nodes, and the list for agents."""
import json
import os
import signal
import time

import pytest

from harness.bucket import Bucket, Fault
from harness.mirrord import free_port, until

REPO = 'repo "models" { protocol = "hosted" }'


@pytest.fixture
def bucket():
    with Bucket() as b:
        yield b


@pytest.fixture
def node(mirrord, bucket, tmp_path):
    """node() starts a mirror of the cluster; .address is what the others hear."""
    keys = bucket.keys_file(tmp_path)

    def start(more="", conf="", **kw):
        address = f"http://127.0.0.1:{free_port()}"
        m = mirrord(f'''{REPO} {conf} listen "{address[7:]}" {{ }}
            cluster "{bucket.url}" {{ endpoint = "{bucket.endpoint}" region = "eu-test-1" authorization = "file:{keys}" poll = "50ms"
                address = "{address}" {more} }}''', **kw)
        m.address = address
        return m
    return start


def nodes(m):
    return m.ctl_json("cluster", "nodes")


def for_agents(m):
    got = m.get("/-/cluster/nodes")
    assert got.status == 200 and got["content-type"] == "application/json"
    return sorted((n["address"], n["state"]) for n in json.loads(got.body)["nodes"])


def heard(m, states):
    """Waits until m has heard so of all, itself included."""
    until(lambda: sorted(n["state"] for n in nodes(m)) == sorted(states))


def test_the_mirrors_of_a_cluster(node, bucket):
    a, b = node(), node("weight = 3")
    heard(a, ["ready", "ready"])
    token = a.token("ci", "publish:models/*")
    assert a.put("/models/me/gpt/x", b"1", token=token).status == 201
    until(lambda: [n["behind"] for n in nodes(b)] == [0, 0] and nodes(b)[0]["applied"] == 2)
    heard(b, ["ready", "ready"])
    me, other = nodes(b)
    assert me["this"] and not other["this"] and me["id"] != other["id"]
    assert me["address"] == b.address and other["address"] == a.address and me["version"] == other["version"] != ""
    assert me["weight"] == 3 and other["weight"] == 1
    assert for_agents(a) == for_agents(b) == sorted([(a.address, "ready"), (b.address, "ready")])
    said = a.ctl("cluster", "nodes", "--plain").stdout.splitlines()
    assert said[0].split("\t")[:4] == ["NODE", "ADDRESS", "VERSION", "STATE"] and len(said) == 3 and said[1].split("\t")[1] == a.address
    [doc] = [json.loads(raw) for key, raw in bucket.under("node/") if me["id"] in key]
    assert doc["state"] == "ready" and doc["weight"] == 3


def test_a_mirror_that_falls_silent(node, bucket):
    """It is not offered to agents any more. An operator sees it for a day."""
    a, b = node(), node()
    heard(a, ["ready", "ready"])
    b.kill()
    key, = (k for k in bucket.objects if k.endswith(nodes(a)[1]["id"]))
    raw, when = bucket.objects[key]
    bucket.objects[key] = raw, when - 60
    heard(a, ["ready", "silent"])
    assert nodes(a)[1]["silent_s"] >= 60 and for_agents(a) == [(a.address, "ready")]
    bucket.objects[key] = raw, when - 100_000
    until(lambda: key not in bucket.objects)
    heard(a, ["ready"])


def test_a_mirror_of_the_version_before(node, bucket):
    """It announces neither a state nor a weight, and is no worse for it."""
    a = node()
    bucket.objects["prod/node/" + "1" * 32] = b'{"address": "http://10.0.0.1:8080", "version": "0.0.9", "applied": 0}', time.time()
    heard(a, ["ready", "ready"])
    assert nodes(a)[1]["weight"] == 1 and ("http://10.0.0.1:8080", "ready") in for_agents(a)
    bucket.objects["prod/node/" + "1" * 32] = b'{"state": "asleep", "weight": -5', time.time()
    heard(a, ["ready"])


def test_no_cluster_has_no_nodes(mirrord):
    m = mirrord(REPO)
    assert m.get("/-/cluster/nodes").status == 404
    assert m.ctl("cluster", "nodes").stdout.endswith("this mirror stands alone: its configuration has no cluster section\n")
    assert nodes(m) == []
