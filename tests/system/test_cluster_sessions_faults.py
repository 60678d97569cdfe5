"""Uploads over several mirrors when one of them dies, stops, comes back or lies: an answer that the client understands, and never a hang."""
import concurrent.futures
import contextlib
import os
import signal
import socket
import threading
import time

import pytest

from harness.bucket import Bucket, Fault
from harness.image import Image, errors, manifest
from harness.mirrord import SLOW, until
from harness.round_robin import Cluster
from system.test_cluster_sessions import BIG, everywhere, image, open_session


@pytest.fixture
def world(mirrord, tmp_path):
    with Bucket() as b:
        w = Cluster(mirrord, b, tmp_path)
        w.ci = w.token("ci", "publish:models/*")
        with w.front:
            yield w


def split(w, upload):
    """The mirror that has the upload, and the others."""
    owner = w.node_of(upload)
    return owner, [m for m in w.nodes if m is not owner]


def kill_after_a_beat(w, m):
    """So the others take it for alive for 20 s, and for one that may come back for 30 s, and not for a beat less."""
    key = "prod/node/" + m.ctl_json("cluster", "status")["node"]
    until(lambda: time.time() - w.bucket.objects[key][1] < 0.5)
    m.kill()


def send(m, where, name="f", data=BIG, **kw):
    return m.put(f"{where}/{name}", data, **kw)


def test_a_mirror_that_died_takes_its_uploads_with_it(world):
    """503 while it may come back, then the 404 on which clients begin anew."""
    upload, where = open_session(world)
    owner, others = split(world, upload)
    assert send(others[0], where, token=world.ci).status == 201
    pushed = image(world, "img").begin()
    owner.kill()
    world.nodes.remove(owner)
    world.front.ports = [m.port for m in others]
    seen = set()

    def is_lost():
        statuses = {send(m, where, token=world.ci).status for m in others}
        seen.update(statuses)
        return statuses == {404}
    until(is_lost)
    assert seen <= {503, 404}, seen
    until(lambda: not world.front.put(f"{where}/commit", b"", token=world.ci, method="POST").status == 503)
    if world.nodes[0].ctl_json("cluster", "status")["node"][:12] != pushed.rsplit("/", 1)[1][:12]:
        got = Image(others[0], "models/me/img", world.ci).ask("PATCH", pushed, BIG)
        assert got.status in (202, 404) and (got.status == 202 or errors(got) == ["BLOB_UPLOAD_UNKNOWN"])
    data = image(world, "img").push("v1", [BIG, b"small"])  # anew
    for at in range(2):
        until(lambda at=at: image(world, "img", at).get("manifests/v1").body == data)
    upload, where = open_session(world, "me/anew")
    assert send(world.front, where, token=world.ci).status == 201
    assert world.front.put(f"{where}/commit", b"", token=world.ci, method="POST").status in (200, 201)
    everywhere(world, "/models/me/anew/f", BIG)


def test_a_mirror_that_was_restarted_still_has_its_uploads(world):
    upload, where = open_session(world)
    owner, others = split(world, upload)
    assert send(others[0], where, "a", token=world.ci).status == 201
    kill_after_a_beat(world, owner)
    assert send(others[1], where, "b", token=world.ci).status == 503
    with concurrent.futures.ThreadPoolExecutor(2) as pool:  # a restart is waited for
        sent = [m.metric("mirrord_cluster_relayed_requests_total", direction="sent") for m in others]
        got = [pool.submit(send, m, where, name, token=world.ci) for m, name in zip(others, "bc")]
        until(lambda: all(m.metric("mirrord_cluster_relayed_requests_total", direction="sent") > n for m, n in zip(others, sent)))
        owner.start()
        assert {g.result().status for g in got} <= {200, 201}
    assert others[0].put(f"{where}/commit", b"", token=world.ci, method="POST").status in (200, 201)
    for name in "abc":
        everywhere(world, f"/models/me/gpt/{name}", BIG)


@pytest.mark.parametrize("delay, statuses", [(0.5, {200, 201}), (600, {503})])
def test_a_mirror_that_has_just_started_calls_no_upload_lost(world, delay, statuses):
    """It reads which others there are before it serves. If it cannot, it does not know."""
    upload, where = open_session(world)
    owner, others = split(world, upload)
    world.bucket.faults = [Fault("slow", "node/", ("GET",), delay=delay)]
    others[0].kill()
    others[0].start()
    assert send(others[0], where, token=world.ci).status in statuses
    world.bucket.faults = []
    until(lambda: send(others[0], where, token=world.ci).status in (200, 201))
    assert owner.put(f"{where}/commit", b"", token=world.ci, method="POST").status in (200, 201)


def test_a_commit_waits_for_a_mirror_that_may_come_back(world):
    """What was uploaded is not said to be missing while its mirror is away; then the same commit succeeds."""
    push = image(world, "img")
    owner, others = split(world, push.begin().rsplit("/", 1)[1])
    for data in (b"{}", BIG):
        push.push_blob(data)
    kill_after_a_beat(world, owner)
    data = manifest(b"{}", [BIG])
    push.m = others[0]
    got = push.put_manifest("v1", data)
    assert got.status == 503 and int(got["retry-after"]) > 0, got.body
    owner.start()
    until(lambda: push.put_manifest("v1", data).status == 201)
    for at in range(3):
        until(lambda at=at: image(world, "img", at).get("manifests/v1").body == data)


def test_killed_in_the_middle_of_a_body(world):
    upload, where = open_session(world)
    owner, others = split(world, upload)
    got = []

    def upload_slowly():
        got.append(send(others[0], where, token=world.ci, args=["--limit-rate", "150k"]))  # long enough to see it, and to kill
    t = threading.Thread(target=upload_slowly)
    t.start()
    until(lambda: owner.metric("mirrord_http_received_bytes_total") > 300_000)
    owner.kill()
    t.join(120)
    assert not t.is_alive() and got[0].status == 503 and int(got[0]["retry-after"]) > 0, got
    owner.start()
    until(lambda: send(others[0], where, token=world.ci).status == 201)
    assert others[1].put(f"{where}/commit", b"", token=world.ci, method="POST").status in (200, 201)
    everywhere(world, "/models/me/gpt/f", BIG)


def test_a_mirror_that_stops(world):
    """It accepts connections, and says nothing. It is not alive any more as soon as the bucket does not hear from it."""
    upload, where = open_session(world)
    owner, others = split(world, upload)
    owner.child.send_signal(signal.SIGSTOP)
    try:
        assert send(others[0], where, token=world.ci).status == 503
        data = image(world, "img", world.nodes.index(others[0])).push("v1", [b"layer"])  # whoever was responsible for it
    finally:
        owner.child.send_signal(signal.SIGCONT)
    until(lambda: send(others[0], where, token=world.ci).status == 201)
    for at in range(3):
        until(lambda at=at: image(world, "img", at).get("manifests/v1").body == data)


def test_a_client_that_leaves(world):
    """What it has sent stays, as on one mirror: it goes on from there, by way of another one."""
    upload, where = open_session(world)
    owner, others = split(world, upload)
    half = {"Content-Range": f"bytes 0-{len(BIG) - 1}/{len(BIG)}"}
    with socket.create_connection(("127.0.0.1", others[0].port)) as s:
        s.sendall(f"PUT {where}/f HTTP/1.1\r\nHost: m\r\nAuthorization: Bearer {world.ci}\r\nContent-Length: {len(BIG)}\r\n\r\n".encode() + BIG[:2 << 20])
        until(lambda: owner.metric("mirrord_http_received_bytes_total") >= 2 << 20)
    head = {"Authorization": f"Bearer {world.ci}"}

    def offset():
        return int(others[1].get(f"{where}/f", headers=head, head=True)["upload-offset"] or 0)
    owner.answered(f"{where}/f", method="PUT")  # it has ended there: no more of it is written
    until(lambda: offset() >= 1 << 20)
    at = offset()
    got = send(others[1], where, data=BIG[at:], token=world.ci, headers={"Content-Range": f"bytes {at}-{len(BIG) - 1}/{len(BIG)}"})
    assert got.status == 201, (half, got.body)
    assert others[1].put(f"{where}/commit", b"", token=world.ci, method="POST").status in (200, 201)
    everywhere(world, "/models/me/gpt/f", BIG)


def test_a_client_that_leaves_while_its_mirror_is_away(world):
    upload, where = open_session(world)
    owner, others = split(world, upload)
    kill_after_a_beat(world, owner)
    sent = others[0].metric("mirrord_cluster_relayed_requests_total", direction="sent")
    for method in ("PUT", "HEAD"):
        with socket.create_connection(("127.0.0.1", others[0].port)) as s:
            s.sendall(f"{method} {where}/f HTTP/1.1\r\nHost: m\r\nAuthorization: Bearer {world.ci}\r\nContent-Length: 5\r\n\r\nto".encode())
            sent += 1
            until(lambda n=sent: others[0].metric("mirrord_cluster_relayed_requests_total", direction="sent") == n)
    owner.start()
    until(lambda: send(others[0], where, token=world.ci).status == 201)


# --- who stands where a mirror stood ---

@contextlib.contextmanager
def impostor(world, owner, serve):
    """serve(connection) for each that comes to the address of this mirror, which is dead."""
    owner.kill()
    listener = socket.create_server(("127.0.0.1", world.port_of(owner)))
    over = threading.Event()

    def run(c):
        with contextlib.suppress(OSError), c:
            serve(c, over)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=run, args=(listener.accept()[0],), daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()
    try:
        yield
    finally:
        over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def says(text, then=None):
    def serve(c, over):
        c.recv(65536)
        c.sendall(text)
        if then is not None:
            then(c, over)
    return serve


def trickles(c, over):
    while not over.wait(0.2):
        c.sendall(b"x")


@pytest.mark.parametrize("lie", [
    says(b""), says(b"hello, this is no HTTP\r\n\r\n"), says(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300_000), says(b"HTTP/1.1 200 OK\r\n\r\nno length"),
    says(b"HTTP/1.1 200 OK\r\n", trickles), says(b"", lambda c, over: over.wait())], ids=["closes", "no http", "large head", "no end", "trickles", "silent"])
def test_a_head_that_never_comes(world, lie):
    upload, where = open_session(world)
    owner, others = split(world, upload)
    with impostor(world, owner, lie):
        got = send(others[0], where, data=b"x", token=world.ci)
        assert got.status in (502, 503, 404), (got.status, got.body)


@pytest.mark.parametrize("body", [
    says(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"), says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
    says(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", trickles)], ids=["short", "cut", "trickles"])
def test_a_body_that_ends_early(world, body):
    """The client sees that it is not whole."""
    upload, where = open_session(world)
    owner, others = split(world, upload)
    with impostor(world, owner, body):
        got = others[0].get(f"{where}/f", headers={"Authorization": f"Bearer {world.ci}"})
        assert not got.whole or got.status == 404


def test_memory_while_a_mirror_does_not_read(world):
    """The client is held back: what it sends does not pile up in between."""
    upload, where = open_session(world)
    owner, others = split(world, upload)
    with impostor(world, owner, lambda c, over: (c.recv(4096), over.wait())):
        send(others[0], where, data=b"x", token=world.ci, args=["--max-time", "1"])
        before = others[0].peak_bytes()
        for _ in range(3):
            send(others[0], where, data=os.urandom(64 << 20), token=world.ci, args=["--max-time", "2"])
        assert others[0].peak_bytes() - before < (48 << 20) * SLOW
