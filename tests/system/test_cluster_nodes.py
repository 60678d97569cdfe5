"""Which mirrors a cluster has: mirrorctl cluster nodes, and the list for agents."""
import json
import random
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest

from harness.bucket import Bucket
from harness.mirrord import BUILD, SLOW, free_port, until

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
            cluster "{bucket.url}" {{ {bucket.access(keys)} poll = "50ms"
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


@pytest.mark.parametrize("says", [{"applied": 1}, {"applied": 40, "stopped": True}])
def test_a_mirror_that_has_stopped_writes_no_checkpoints(node, bucket, says):
    """The mirror with the smallest id is to write them. If it does not follow the log any more, the next one does."""
    doc = {"address": "", "version": "0", "state": "ready", "boot": "0" * 16, "beat": 1, **says}
    bucket.objects[f"prod/node/{0:032x}"] = json.dumps(doc).encode(), time.time() + 3600
    a = node("checkpoint = 10")
    heard(a, ["ready", "ready"])
    token = a.token("ci", "publish:models/*")
    for i in range(30):
        assert a.put(f"/models/me/gpt/{i}", b"x", token=token).status == 201
    until(lambda: bucket.under("ckpt/"))


def test_a_mirror_of_the_version_before(node, bucket):
    """It announces neither a state nor a weight, and is no worse for it."""
    a = node()
    seen = time.time() + 3600  # it writes no more, and counts as alive however long this takes
    bucket.objects["prod/node/" + "1" * 32] = b'{"address": "http://10.0.0.1:8080", "version": "0.0.9", "applied": 0}', seen
    heard(a, ["ready", "ready"])
    assert nodes(a)[1]["weight"] == 1 and ("http://10.0.0.1:8080", "ready") in for_agents(a)
    bucket.objects["prod/node/" + "1" * 32] = b'{"state": "asleep", "weight": -5', time.time()
    heard(a, ["ready"])


def test_no_cluster_has_no_nodes(mirrord):
    m = mirrord(REPO)
    assert m.get("/-/cluster/nodes").status == 404
    assert m.ctl("cluster", "nodes").stdout.endswith("this mirror stands alone: its configuration has no cluster section\n")
    assert nodes(m) == []


# --- leaving ---

def begin(m, token):
    begun = m.put("/models/me/gpt/-/uploads", b"", method="POST", token=token)
    assert begun.status == 201
    return begun["location"]


def end(m, token, upload):
    assert m.put(f"{upload}/y", b"y", token=token).status == 201
    assert m.put(f"{upload}/commit", b"", method="POST", token=token).status == 201

def test_a_drain(node, bucket):
    """Balancers and agents hear of it, uploads end, and the mirror answers until it is stopped."""
    a, b = node(), node()
    heard(b, ["ready", "ready"])
    token = a.token("ci", "publish:models/*")
    open_upload = begin(a, token)
    drain = subprocess.Popen([BUILD / "mirrorctl", "--socket", a.socket, "cluster", "drain", "--notice", "0s", "--timeout", "1h"], stdout=subprocess.PIPE, text=True)
    until(lambda: a.get("/readyz").status == 503)
    assert a.get("/readyz").body.startswith(b"leaving") and a.metric("mirrord_ready") == 0
    heard(b, ["leaving", "ready"])
    assert (a.address, "leaving") in for_agents(a) and (a.address, "leaving") in for_agents(b)
    assert a.put("/models/me/gpt/x", b"still", token=token).status == 201 and drain.poll() is None
    end(a, token, open_upload)
    assert drain.wait(timeout=120 * SLOW) == 0 and "may be stopped" in drain.stdout.read()
    heard(b, ["ready"])
    until(lambda: for_agents(a) == [(b.address, "ready")])  # it may have read last when the other one was joining
    assert [n["state"] for n in nodes(a)][0] == "left"
    assert a.get("/models/me/gpt/x").body == b"still" and a.get("/readyz").status == 503
    a.stop()
    a.start()
    heard(b, ["ready", "ready"])
    assert a.get("/readyz").status == 200


def test_a_drain_that_is_not_waited_for(node, bucket):
    """An upload that nobody ends does not hold it up for ever, and a drain can be taken back."""
    a, b = node(), node()
    token = a.token("ci", "publish:models/*")
    open_upload = begin(a, token)
    done = a.ctl("cluster", "drain", "--notice", "0s", "--timeout", "1s", "--json", check=False)
    assert done.returncode == 75 and "1 upload has not ended" in done.stderr + done.stdout, done
    assert a.get("/readyz").status == 503
    heard(b, ["leaving", "ready"])
    a.ctl("cluster", "drain", "--off")
    assert a.get("/readyz").status == 200
    heard(b, ["ready", "ready"])
    end(a, token, open_upload)
    a.ctl("cluster", "drain", "--notice", "0s")
    heard(b, ["ready"])
    a.ctl("cluster", "drain", "--off")
    heard(b, ["ready", "ready"])


def test_a_stop_is_announced(node, bucket):
    """SIGTERM: the others hear that it leaves while it still answers, and nothing of it stays in the bucket."""
    a, b = node(conf='drain = "1h"'), node()
    token = a.token("ci", "publish:models/*")
    with socket.create_connection(a.address[7:].split(":")) as s:
        s.sendall(f"PUT /models/me/gpt/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 5\r\n\r\nby".encode())
        until(lambda: a.metric("mirrord_http_connections") >= 2)  # this one, and the one that asks
        heard(b, ["ready", "ready"])
        a.child.send_signal(signal.SIGTERM)
        heard(b, ["leaving", "ready"])
        s.sendall(b"tes")
        assert s.recv(1000).startswith(b"HTTP/1.1 201")
    assert a.child.wait(timeout=120 * SLOW) == 0
    heard(b, ["ready"])
    assert len(bucket.under("node/")) == 1

def test_a_rolling_restart_under_load(node, bucket):
    """A balancer that asks /readyz, as one does: each mirror is drained, stopped and started, and no request fails."""
    nodes = [node(), node(), node()]
    heard(nodes[0], ["ready"] * 3)
    token = nodes[0].token("ci", "publish:models/*")
    for m in nodes:
        until(lambda m=m: m.put("/models/me/gpt/ready", b"", token=token).status in (200, 201))
    stop, failed, done = threading.Event(), [], [0, 0, 0]

    def client(number):
        dice, i = random.Random(number), 0
        while not stop.is_set():
            ready = [m for m in nodes if m.child is not None and m.get("/readyz").status == 200]
            m, path = dice.choice(ready), f"/models/me/set{number}/{i}"
            got = m.put(path, path.encode(), token=token)
            back = m.get(path)
            if got.status != 201 or back.body != path.encode():
                failed.append((path, got, back))
            i += 1
            done[number] += 1

    def pass_by():
        """Each client has ended what it was about, and more: the others may go on while one waits for the mirror that it chose."""
        before = list(done)
        until(lambda: all(now > was + 3 for now, was in zip(done, before)))
    threads = [threading.Thread(target=client, args=(n,)) for n in range(3)]
    for t in threads:
        t.start()
    for m in nodes:
        pass_by()
        m.ctl("cluster", "drain", "--notice", "0s")
        pass_by()  # whoever chose it before has ended
        m.stop()
        m.start()
    stop.set()
    for t in threads:
        t.join()
    assert not failed and sum(done) > 60


# --- the same address ---

def test_a_mirror_in_the_place_of_a_lost_one(node, bucket):
    """The lost one counts as alive for a while, but nobody is sent to its address in its name."""
    a, b = node(), node()
    heard(b, ["ready", "ready"])
    a.kill()
    shutil.rmtree(a.state)
    a.start()
    for m in (a, b):
        until(lambda m=m: sorted(n["address"] or "" for n in nodes(m)) == sorted(["", a.address, b.address]))
        assert {x for x, _ in for_agents(m) if x} == {a.address, b.address}


def test_an_address_that_was_copied(node):
    a = node('heartbeat = "200ms"')
    b = node('heartbeat = "1s"')  # it looks once, with its sixth beat, whether the other one was heard of in the last six
    b.stop()
    b.config = b.config.replace(f'address = "{b.address}"', f'address = "{a.address}"')
    b.start()
    b.says(f"cluster.address_twice address={a.address}")


# --- a copy ---

def boots(bucket):
    return [json.loads(raw)["boot"] for _, raw in bucket.under("node/")]


def test_a_copy_of_a_state_dir(node, bucket, tmp_path, mirrord):
    """The mirror that runs goes on. The copy ends with a sentence, and is not restarted by systemd."""
    a = node()
    token = a.token("ci", "publish:models/*")
    assert a.put("/models/me/gpt/x", b"1", token=token).status == 201
    boot = boots(bucket)
    a.kill()
    a.start()
    until(lambda: boots(bucket) != boot)  # its own past is no copy
    a.kill()
    copy = node()
    copy.stop()
    shutil.rmtree(copy.state)
    shutil.copytree(a.state, copy.state)
    a.start()
    copy.start()
    until(lambda: copy.child.poll() is not None or a.child.poll() is not None)
    alive, ended = (a, copy) if copy.child.poll() is not None else (copy, a)
    assert ended.child.returncode == 78
    ended.child = None
    assert "cluster.cloned" in ended.log() and "one state_dir is a copy of the other" in ended.log()
    assert alive.put("/models/me/gpt/y", b"2", token=token).status == 201


def test_a_copy_with_its_address(node, bucket, tmp_path):
    """A machine that was cloned with its configuration: the copy ends. It would take words that stay the same for more than a beat for those
    of its own past: a beat is longer than a busy machine stands still."""
    a, copy = node('heartbeat = "3s"'), node('heartbeat = "3s"')
    copy.stop()
    a.kill()
    shutil.rmtree(copy.state)
    shutil.copytree(a.state, copy.state)
    copy.config = copy.config.replace(f'address = "{copy.address}"', f'address = "{a.address}"')
    boot = boots(bucket)
    a.start()
    until(lambda: boots(bucket) != boot)
    copy.start()
    until(lambda: copy.child.poll() is not None or a.child.poll() is not None)
    assert copy.child.poll() == 78
    copy.child = None
