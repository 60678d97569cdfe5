"""Uploads of many requests through a balancer without affinity: any mirror of the cluster takes each of them."""
import concurrent.futures
import hashlib
import json
import os
import posixpath
import re
import signal
import socket
import threading
import time

import pytest

from harness.bucket import Bucket
from harness.image import Image, digest, errors, manifest
from harness.mirrord import SLOW, until
from harness.origin import Origin
from harness.round_robin import HOSTED, Cluster
from system import test_hosted_xet as xet
from system.test_agent import Agent
from system.test_hosted_hub import Hub, below, lfs, sha

BIG = os.urandom(3 << 20)
JSON = "application/vnd.pypi.simple.v1+json"


@pytest.fixture(scope="module")
def world(shared_mirrord, tmp_path_factory):
    with Bucket() as b:
        w = Cluster(shared_mirrord, b, tmp_path_factory.mktemp("cluster"))
        w.ci = w.token("ci", "publish:models/*")
        with w.front:
            yield w


@pytest.fixture
def own(mirrord, tmp_path):
    """A cluster whose mirrors a test may kill."""
    with Bucket() as b:
        w = Cluster(mirrord, b, tmp_path)
        w.ci = w.token("ci", "publish:models/*")
        with w.front:
            yield w


def image(w, name, at=None):
    """Through the balancer, or at one mirror."""
    return Image(w.front if at is None else w.nodes[at], f"models/me/{name}", w.ci)


def everywhere(w, path, data):
    for m in w.nodes:
        until(lambda m=m: m.get(path).body == data)


# --- images ---

def test_an_image(world):
    layers = [BIG, b"small", os.urandom(100_000)]
    for i in range(3):
        data = image(world, f"img{i}").push("v1", layers)
        for at in range(3):
            reader = image(world, f"img{i}", at)
            until(lambda r=reader: r.get("manifests/v1").body == data)
            for layer in layers:
                assert reader.get(f"blobs/{digest(layer)}").body == layer
    assert {line.rsplit(" ", 1)[1] for line in world.front.targets if " /v2/" in line} == {"0", "1", "2"}

    def relayed(what):
        return sum(m.metric("mirrord_cluster_relayed_requests_total", direction=what) for m in world.nodes)
    assert relayed("sent") == relayed("received") > 10 and relayed("failed") == 0


def test_an_image_in_chunks(world):
    push = image(world, "chunks")
    where = push.begin()
    for at in range(0, len(BIG), 1 << 20):
        got = push.ask("PATCH", where, BIG[at:at + (1 << 20)], content_type="application/octet-stream",
                       content_range=f"{at}-{at + (1 << 20) - 1}")
        assert got.status == 202, got.body
        where = got["location"]
        assert push.ask("GET", where).status == 204
    wrong = push.ask("PATCH", where, b"x", content_range="5-5")
    assert wrong.status == 416 and errors(wrong) == ["BLOB_UPLOAD_INVALID"]
    assert push.ask("PUT", f"{where}?digest={digest(BIG)}", b"").status == 201
    for at in range(3):  # before a manifest names it, for those who may push
        assert image(world, "chunks", at).get(f"blobs/{digest(BIG)}").body == BIG
        assert image(world, "chunks", at).get(f"blobs/{digest(BIG)}", Range="bytes=5-9").body == BIG[5:10]
        assert Image(world.nodes[at], "models/me/chunks", "anonymous").get(f"blobs/{digest(BIG)}").status in (401, 404)
    data = push.push("v1", [BIG])
    until(lambda: image(world, "chunks").get("manifests/v1").body == data)


def test_a_body_of_unknown_length(world, tmp_path):
    push, file = image(world, "stream"), tmp_path / "big"
    file.write_bytes(BIG)
    for _ in range(3):
        where = push.begin()
        got = world.front.get(where, args=["-X", "PATCH", "-T", file, "-H", f"Authorization: Bearer {world.ci}", "-H", "Transfer-Encoding: chunked"])
        assert got.status == 202, got.body
        assert push.ask("PUT", f"{where}?digest={digest(BIG)}", b"").status == 201


def test_over_every_wire(world, wire):
    """The client's side of what is passed on; between mirrors it is HTTP/1.1."""
    for at in range(3):
        push = Image(world.nodes[at], f"models/me/{wire}", world.ci, wire)
        where = push.begin()
        assert push.ask("PATCH", where, BIG, content_type="application/octet-stream").status == 202
        assert push.ask("GET", where).status == 204
        assert push.ask("PUT", f"{where}?digest={digest(BIG)}", b"").status == 201
        got = push.get(f"blobs/{digest(BIG)}")
        assert (got.status, got.body) == (200, BIG)
        assert push.head(f"blobs/{digest(BIG)}")["content-length"] == str(len(BIG))
        for name in ("connection", "transfer-encoding"):
            assert wire == "h1" or got[name] is None
        assert push.ask("DELETE", push.begin()).status == 204
        data = push.push(f"v{at}", [BIG])
        until(lambda p=push, at=at, d=data: p.get(f"manifests/v{at}").body == d)


def test_a_large_response(world):
    """Slowly and fast, whole and in part; a client that reads slowly costs no memory here."""
    h, data = hub(world, "large"), os.urandom(1 << 20) * 48
    href = below(h.batch((sha(data), len(data)), name="large")[1]["objects"][0]["actions"]["upload"]["href"])
    owner = world.node_of(href.rsplit("=", 1)[1])
    assert world.front.put(href, data).status == 200
    head = {"Authorization": f"Bearer {world.ci}"}
    for m in world.nodes:
        before = m.peak_bytes()
        assert not m.get(href, headers=head, args=["--limit-rate", "1M", "--max-time", "2"]).whole
        assert m is owner or m.peak_bytes() - before < (16 << 20) * SLOW  # a sanitizer keeps what was freed
        assert m.get(href, headers=head).body == data
        assert m.get(href, headers={**head, "Range": "bytes=1000000-2999999"}).body == data[1000000:3000000]
        assert m.get(href).status in (401, 404)


def test_a_large_response_in_small_steps(mirrord, tmp_path):
    """A client that takes it by and by, and never all that has come."""
    with Bucket() as b:
        w = Cluster(mirrord, b, tmp_path, HOSTED + 'limit "ci" { rate = "2m/s" }')
        w.ci = w.token("ci", "publish:models/*")
        with w.front:
            h, data = hub(w, "steps"), os.urandom(4 << 20)
            href = below(h.batch((sha(data), len(data)), name="steps")[1]["objects"][0]["actions"]["upload"]["href"])
            assert w.front.put(href, data).status == 200
            for m in w.nodes:
                assert m.get(href, headers={"Authorization": f"Bearer {w.ci}"}).body == data
                assert m.get("/readyz").status == 200


# --- a Hub's clients ---

def hub(world, name):
    h = Hub.__new__(Hub)
    h.m, h.wire, h.repo, h.token = world.front, "h1", "models", world.ci
    assert h.create(name).status == 200
    for m in world.nodes:  # a busy one hears of it with its next poll
        until(lambda m=m: m.get(f"/models/api/models/me/{name}").status == 200)
    return h


def test_lfs(world):
    h = hub(world, "lfs")
    files = {f"d/{i}.bin": os.urandom(50_000 * i + 1) for i in range(6)}
    said = h.batch(*((sha(d), len(d)) for d in files.values()), name="lfs")[1]["objects"]
    for one, data in zip(said, files.values()):
        href = below(one["actions"]["upload"]["href"])
        assert world.front.put(href, data).status == 200
        assert world.front.put(f"{href}&verify=1", json.dumps({"oid": sha(data), "size": len(data)}).encode(), method="POST").status == 200
    again = h.batch(*((sha(d), len(d)) for d in files.values()), name="lfs")[1]["objects"]
    assert not any("actions" in one for one in again), "each mirror knows what has come"
    got = h.commit(*(lfs(name, data) for name, data in files.items()), name="lfs")
    assert got.status == 200, got.body
    for name, data in files.items():
        everywhere(world, f"/models/me/lfs/{name}", data)


def test_an_object_in_parts(world):
    part, count = 64 << 20, 5
    h, whole = hub(world, "parts"), hashlib.sha256()
    pieces = [bytes([n]) * 64 + bytes(part - 64) for n in range(count - 1)] + [b"the last one"]
    for p in pieces:
        whole.update(p)
    oid, size = whole.hexdigest(), sum(map(len, pieces))
    (one,) = h.batch((oid, size), name="parts")[1]["objects"]
    up = one["actions"]["upload"]
    for n in (3, 1, 5, 2, 4):
        assert world.front.put(below(up["header"][str(n)]), pieces[n - 1]).status == 200
    end = {"oid": oid, "parts": [{"partNumber": n + 1, "etag": "x"} for n in range(count)]}
    assert world.front.put(below(up["href"]), json.dumps(end).encode(), method="POST").status == 200
    assert world.front.put(below(one["actions"]["verify"]["href"]), json.dumps({"oid": oid, "size": size}).encode(), method="POST").status == 200
    assert h.commit(("lfsFile", {"path": "w.bin", "algo": "sha256", "oid": oid, "size": size}), name="parts").status == 200
    for m in world.nodes:
        until(lambda m=m: m.get("/models/me/parts/w.bin", head=True).status == 200)


def test_xet(world):
    hub(world, "chunky")
    world.front.ci = world.ci
    for _ in range(2):
        at = xet.store(world.front, "me/chunky", world.ci)
        a, b = os.urandom(100_000), os.urandom(70_000)
        assert xet.post(world.front, f"{at}/v1/xorbs/default/{xet.X1}", xet.chunk(a)).status == 200
        assert xet.post(world.front, f"{at}/v1/xorbs/default/{xet.X2}", xet.chunk(b)).status == 200
        whole = xet.shard((sha(b + a), [(xet.X2, 0, 1, len(b)), (xet.X1, 0, 1, len(a))]))
        assert xet.post(world.front, f"{at}/v1/shards", whole).status == 200
        assert xet.commit(world.front, "w.bin", sha(b + a), len(b + a), "me/chunky").status == 200
        everywhere(world, "/models/me/chunky/w.bin", b + a)


# --- sessions ---

def test_trainagent(world, tmp_path):
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    files = {"a.bin": BIG, "sub/b": b"b", "empty": b"", **{f"n/{i}": b"%d" % i for i in range(30)}}
    for name, data in files.items():
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_bytes(data)
    agent = Agent.__new__(Agent)
    folder = tmp_path / "node"
    folder.mkdir()
    (folder / "token").write_text(world.ci + "\n")
    (folder / "token").chmod(0o600)
    agent.folder, agent.m, agent.err = folder, world.front, ""
    agent.env = dict(os.environ, TRAINAGENT_MIRROR=world.front.url(""), TRAINAGENT_TOKEN_FILE=str(folder / "token"),
                     TRAINAGENT_SHELF=str(folder / "shelf"), TRAINAGENT_STATE=str(folder / "state"))
    assert json.loads(agent("publish", source, "models/me/run", "--json"))["version"] == "v1"
    for name, data in files.items():
        everywhere(world, f"/models/me/run/{name}", data)


def open_session(w, tree="me/gpt"):
    got = w.front.put(f"/models/{tree}/-/uploads", b"", token=w.ci, method="POST")
    assert got.status == 201, got.body
    return json.loads(got.body)["upload"], got["location"]


def test_a_file_that_goes_on_elsewhere(world):
    """What came of a file is asked of one mirror, and sent on to another."""
    _, where = open_session(world, "me/on")
    first = world.front.put(f"{where}/f", BIG[:1 << 20], token=world.ci,
                            headers={"Content-Range": f"bytes 0-{(1 << 20) - 1}/{len(BIG)}"})
    assert first.status in (200, 202, 308), (first.status, first.body)
    for m in world.nodes:
        got = m.get(f"{where}/f", headers={"Authorization": f"Bearer {world.ci}"}, head=True)
        assert got["upload-offset"] == str(1 << 20)
    rest = world.front.put(f"{where}/f", BIG[1 << 20:], token=world.ci,
                           headers={"Content-Range": f"bytes {1 << 20}-{len(BIG) - 1}/{len(BIG)}"})
    assert rest.status == 201, rest.body
    assert world.front.put(f"{where}/commit", b"", token=world.ci, method="POST").status in (200, 201)
    everywhere(world, "/models/me/on/f", BIG)


def test_a_lost_session_has_its_own_404(world):
    """An id of no mirror that is alive: as a mirror that stands alone says of one that it never gave."""
    lost = "0123456789ab" + "0" * 20
    for m in world.nodes:
        assert m.put(f"/models/me/gpt/-/uploads/{lost}/f", b"x", token=world.ci).status == 404
        got = Image(m, "models/me/img", world.ci).ask("PATCH", f"blobs/uploads/{lost}", BIG)
        assert got.status == 404 and errors(got) == ["BLOB_UPLOAD_UNKNOWN"]


# --- who the client is, and who may say so ---

def test_the_client_is_the_one_that_connected(world):
    """Both access logs have its address; rights are those of its token."""
    upload, where = open_session(world, "me/who")
    owner = world.node_of(upload)
    other = next(m for m in world.nodes if m is not owner)
    path = f"{where}/from-afar"
    got = other.get(path, method="PUT", data=b"x", headers={"Authorization": f"Bearer {world.ci}"}, args=["--interface", "127.0.0.9"])
    assert got.status == 201, got.body
    for m in (other, owner):
        (entry,) = m.answered("from-afar")
        assert entry["client"] == "127.0.0.9", entry
    reader = world.token("reader", "read:models/*")
    assert other.put(path, b"x", token=reader).status == 403
    assert other.put(path, b"x").status == 401


@pytest.mark.parametrize("hop", ["", "1", "1 127.0.0.1 http", "1 10.0.0.1 https " + "0" * 64, "2 10.0.0.1 https " + "0" * 64, "x" * 200])
def test_a_stranger_passes_nothing_on(world, hop):
    _, where = open_session(world, "me/stranger")
    for m in world.nodes:
        got = m.put(f"{where}/f", b"x", token=world.ci, headers={"Mirrord-Hop": hop or "0"})
        assert got.status == 403 and b"signed" in got.body


def test_what_is_passed_on_is_not_passed_on_again(own):
    """A request that reaches a mirror which has not got the upload ends there, whoever sent it; and says nothing but what its client said."""
    upload, where = open_session(own)
    owner = own.node_of(upload)
    others = [m for m in own.nodes if m is not owner]
    owner.kill()
    with socket.create_server(("127.0.0.1", own.port_of(owner))) as listener:  # stands where the owner stood
        threading.Thread(target=lambda: others[0].put(f"{where}/f?x=1", b"", token=own.ci), daemon=True).start()
        client, _ = listener.accept()
        head = b""
        while b"\r\n\r\n" not in head and (more := client.recv(65536)):
            head += more
        head = head.decode()
        client.close()
    hop, host = (re.search(rf"(?i)\r\n{name}: (.*)\r\n", head)[1] for name in ("mirrord-hop", "host"))
    again = {"path": f"{where}/f?x=1", "data": b"", "token": own.ci, "headers": {"Mirrord-Hop": hop, "Host": host}}
    assert others[1].put(**again).status == 404, "it answers for itself"
    for changed in ({"token": None}, {"method": "POST"}, {"path": f"{where}/f?x=2"}, {"headers": {"Mirrord-Hop": hop, "Host": "other"}},
                    {"headers": {"Mirrord-Hop": hop.replace("127.0.0.1", "127.0.0.2"), "Host": host}}):
        assert others[1].put(**{**again, **changed}).status == 403, changed


# --- what only one mirror has ---

def test_uploads_that_were_begun_before_a_mirror_joined(own):
    """The new mirror is responsible for some of the trees, and brings what lies at the one before."""
    layers = [BIG, b"small", b""]
    pushes = [image(own, f"img{i}") for i in range(12)]
    for push in pushes:
        for data in [b"{}", *layers]:
            push.push_blob(data)

    def is_responsible(new):
        return any(own.node_of(push.begin().rsplit("/", 1)[1]) is new for push in pushes)
    new = None
    while new is None or not is_responsible(new):  # by the hash of its id, which is random
        new = own.start()
        own.nodes.append(new)
        own.know()
    count = len(own.nodes)
    for i, push in enumerate(pushes):
        data = manifest(b"{}", layers)
        push.m = own.nodes[(i - 1) % count]
        got = push.put_manifest("v1", data)
        assert got.status == 201, got.body
        for at in range(count):
            until(lambda i=i, at=at: image(own, f"img{i}", at).get("manifests/v1").body == data)
            assert image(own, f"img{i}", at).get(f"blobs/{digest(BIG)}").body == BIG
    new.answered("/manifests/v1", method="PUT", status=201)
    until(lambda: any(m.answered("/-/cluster/uploaded", least=0) for m in own.nodes[:-1]))
    nobody = manifest(b"{}", [b"that was never sent"])
    for m in own.nodes:
        push.m = m
        assert push.put_manifest("v2", nobody).status in (400, 404)
    for path in ("uploaded?repo=models&tree=image/me/img0&sha256=" + sha(BIG), "row?key=models%00x"):
        assert new.get(f"/-/cluster/{path}").status == 404, "for mirrors alone"


WHEEL = "demo_pkg-1.0-py3-none-any.whl"


def test_the_pages_of_a_python_index_and_their_files(mirrord, tmp_path, origin):
    """The page comes from one mirror, the file that it links to from another one."""
    with Origin(host="127.0.0.2") as files, Bucket() as b:
        files.put("/f/" + WHEEL, body=BIG)
        files.put("/f/wrong-1.0.tar.gz", size=3000, seed=2)
        page = {"meta": {"api-version": "1.1"}, "name": "demo-pkg", "files": [
            {"filename": WHEEL, "url": f"{files.url}/f/{WHEEL}", "hashes": {"sha256": files.sha256("/f/" + WHEEL)}, "size": len(BIG)},
            {"filename": "wrong-1.0.tar.gz", "url": f"{files.url}/f/wrong-1.0.tar.gz", "hashes": {"sha256": "0" * 64}}]}
        origin.put("/simple/demo-pkg/", body=json.dumps(page).encode(), type=JSON)
        w = Cluster(mirrord, b, tmp_path, f'repo "pypi" {{ protocol = "pypi" origin = "{origin.url}/" hosts = {{"127.0.0.2:{files.port}"}} }}')
        got = w.nodes[0].get("/pypi/simple/demo-pkg/", headers={"Accept": JSON})
        right, wrong = (posixpath.normpath("/pypi/simple/demo-pkg/" + f["url"]) for f in json.loads(got.body)["files"])
        for m in w.nodes[1:]:
            until(lambda m=m: m.get(right).body == BIG)  # a mirror that is silent for two seconds may come back: 503 until then
            assert not m.get(wrong).whole or m.get(wrong).status >= 500, "the digest of the page counts here, too"

        def asked():
            w.nodes[2].answered(w.nodes[2].get("/metrics")["x-request-id"])  # so the line of what was before it is there
            return len(w.nodes[2].answered("/-/cluster/row", least=0))
        before = asked()
        unknown = re.sub(r"\+f/\w{16}/", "+f/0123456789abcdef/", right)
        until(lambda: w.nodes[1].get(unknown).status == 404)
        until(lambda: asked() > before)
        before = asked()
        for _ in range(20):
            assert w.nodes[1].get(unknown).status == 404
        assert asked() == before, "nobody is asked again so soon"
        w.nodes[2].kill()
        got = w.nodes[1].get(unknown.replace("0123", "4567"))
        assert (got.status, got["retry-after"]) == (503, "1"), "the mirror that is away may have made the page"


def test_questions_share_a_connection(mirrord, tmp_path, origin):
    """Which the other mirror may have closed meanwhile, or which may have died with it."""
    with Origin(host="127.0.0.2") as files, Bucket() as b:
        page = {"meta": {"api-version": "1.1"}, "name": "demo-pkg", "files": [
            {"filename": WHEEL, "url": f"{files.url}/f/{WHEEL}", "hashes": {"sha256": "0" * 64}}]}
        origin.put("/simple/demo-pkg/", body=json.dumps(page).encode(), type=JSON)
        w = Cluster(mirrord, b, tmp_path, f'http {{ idle = "5s" }} repo "pypi" {{ protocol = "pypi" origin = "{origin.url}/" hosts = {{"127.0.0.2:{files.port}"}} }}')
        a, other = w.nodes[:2]
        got = a.get("/pypi/simple/demo-pkg/", headers={"Accept": JSON})
        known = posixpath.normpath("/pypi/simple/demo-pkg/" + json.loads(got.body)["files"][0]["url"])
        numbers = iter(range(1000))

        def ask():  # 503 and another question if one of them was silent for two seconds
            until(lambda: a.get(re.sub(r"\+f/\w{16}/", f"+f/{next(numbers):016x}/", known)).status == 404)

        def questions():
            return len(other.answered("/-/cluster/row", least=0))
        ask()
        until(lambda: other.metric("mirrord_http_connections") == 1)  # ours: it has closed that of the question
        accepted, asked = other.metric("mirrord_http_connections_accepted_total"), questions()
        for _ in range(20):
            ask()
        until(lambda: questions() >= asked + 20)
        assert other.metric("mirrord_http_connections_accepted_total") < accepted + 15, "one now and then, or ours"
        other.kill()
        other.start()
        ask()
        until(lambda: questions() >= asked + 21)


def test_a_mirror_that_has_adopted_asks_the_others(mirrord, tmp_path, origin):
    """From then on, not only after its next start."""
    with Origin(host="127.0.0.2") as files, Bucket() as b:
        files.put("/f/" + WHEEL, body=BIG)
        page = {"meta": {"api-version": "1.1"}, "name": "demo-pkg", "files": [
            {"filename": WHEEL, "url": f"{files.url}/f/{WHEEL}", "hashes": {"sha256": files.sha256("/f/" + WHEEL)}, "size": len(BIG)}]}
        origin.put("/simple/demo-pkg/", body=json.dumps(page).encode(), type=JSON)
        conf = HOSTED + f' repo "pypi" {{ protocol = "pypi" origin = "{origin.url}/" hosts = {{"127.0.0.2:{files.port}"}} }}'
        alone = mirrord(conf)
        alone.stop()
        w = Cluster.__new__(Cluster)
        w.mirrord, w.bucket, w.conf, w.more, w.keys, w.secret = mirrord, b, conf, "", b.keys_file(tmp_path), tmp_path / "cluster.secret"
        w.secret.write_text("a secret of this cluster\n")
        w.secret.chmod(0o600)
        alone.start()
        token = alone.token("ci", "publish:models/*")
        assert alone.put("/models/me/x/f", b"x", token=token).status == 201
        first = w.start()  # only for a section
        section = first.config
        first.kill()
        until(lambda: not b.connections)  # what it was about to write is written
        b.objects.clear()
        alone.stop()
        alone.config = section
        alone.start()
        alone.ctl("cluster", "adopt")
        other = w.start()
        w.nodes = [alone, other]
        w.know()
        got = other.get("/pypi/simple/demo-pkg/", headers={"Accept": JSON})
        right = posixpath.normpath("/pypi/simple/demo-pkg/" + json.loads(got.body)["files"][0]["url"])
        until(lambda: alone.get(right).body == BIG)


def test_what_is_here_is_read_while_rows_are_asked_for(mirrord, tmp_path, origin):
    """A mirror that is stopped may know a link. Those who wait for its answer do not keep the threads that read files: mirrors that ask
    each other would keep each other from answering."""
    page = {"meta": {"api-version": "1.1"}, "name": "demo-pkg", "files": [{"filename": WHEEL, "url": f"{origin.url}/f/{WHEEL}", "hashes": {}}]}
    origin.put("/simple/demo-pkg/", body=json.dumps(page).encode(), type=JSON)
    with Bucket() as b:
        w = Cluster(mirrord, b, tmp_path, f'{HOSTED} repo "pypi" {{ protocol = "pypi" origin = "{origin.url}/" }}')
        m, token = w.nodes[0], w.token("ci", "publish:models/*")
        assert m.put("/models/me/gpt/x", b"here", token=token).status == 201
        got = m.get("/pypi/simple/demo-pkg/", headers={"Accept": JSON})
        link = posixpath.normpath("/pypi/simple/demo-pkg/" + json.loads(got.body)["files"][0]["url"])

        def is_read_meanwhile(number):
            unknown = [re.sub(r"\+f/\w{16}/", f"+f/{number:08x}{i:08x}/", link) for i in range(16)]
            w.nodes[2].child.send_signal(signal.SIGSTOP)
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                try:
                    waiting = [pool.submit(m.get, path) for path in unknown]
                    time.sleep(0.3)
                    assert m.get("/models/me/gpt/x").body == b"here"
                    time.sleep(0.3)
                    return not any(f.done() for f in waiting)
                finally:
                    w.nodes[2].child.send_signal(signal.SIGCONT)
        assert any(is_read_meanwhile(i) for i in range(5))  # a slow machine may need longer for the file than the silence lasts
