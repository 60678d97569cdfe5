"""The generic protocol: cold, warm, ranges, conditionals, freshness, and an origin in trouble, over every wire."""
import socket
import subprocess

import pytest

from harness.corner import Corner
from harness.curl import FLAGS
from harness.mirrord import until
from harness.origin import Origin
from harness.tls import Authority, server_context

MIB = 1 << 20


def before(origin):
    """One generic repo: *.bin is immutable, *.txt fresh for no time at all."""
    return f"""repo "data" {{
        protocol = "generic" origin = "{origin.url}/"
        rule '\\.bin(\\?|$)' {{ class = immutable }}
        rule '\\.txt$' {{ class = mutable ttl = 0s neg_ttl = 30s sie = 1h }}
        rule '\\.forbidden$' {{ class = deny }} }}"""


@pytest.fixture
def data(mirrord, origin):
    m = mirrord(before(origin))
    m.origin = origin
    return m


@pytest.fixture(scope="module")
def common(shared_mirrord, shared_origin):
    m = shared_mirrord(before(shared_origin))
    m.origin = shared_origin
    return m


@pytest.fixture
def corner(common):
    return Corner(common, common.origin)


def test_cold_then_warm(corner, wire):
    thing = corner.put("/a.bin", size=3 * MIB)
    cold = corner.get("/a.bin", wire)
    corner.settle()
    warm = corner.get("/a.bin", wire)
    assert cold.status == warm.status == 200
    assert cold.body == warm.body == corner.bytes_of("/a.bin")
    assert thing.bytes == 3 * MIB and "hit" in warm["cache-status"] and "fwd" in cold["cache-status"]
    assert warm["accept-ranges"] == "bytes" and warm["etag"] == cold["etag"] and warm["x-request-id"]


@pytest.mark.parametrize("size", [0, 1, 1024, 32 << 10, (32 << 10) + 1, 64 << 10, 5 * MIB + 3])
def test_sizes(corner, wire, size):
    """Empty, inline, and file blobs, with a boundary on either side."""
    corner.put("/a.bin", size=size)
    for _ in range(2):
        reply = corner.get("/a.bin", wire)
        assert (reply.status, reply.body) == (200, corner.bytes_of("/a.bin"))
        assert reply["content-length"] == str(size)


def test_length_unknown_until_the_end(corner, wire):
    thing = corner.put("/a.bin", size=2 * MIB, chunked=True)
    for _ in range(2):
        assert corner.get("/a.bin", wire).body == corner.bytes_of("/a.bin")
    assert thing.bytes == 2 * MIB


def test_no_framing_at_all(data, wire):
    """The end of such an answer is the end of its connection: whole or not, nobody can know, so it may not be kept."""
    data.origin.put("/a.bin", size=2 * MIB, unframed=True)
    for _ in range(2):
        assert data.get("/data/a.bin", wire).body == data.origin.bytes_of("/a.bin")


@pytest.mark.parametrize("size,status", [(8000, 200), (12000, 200), (12300, 414), (20000, 414), (60000, 414)])
def test_long_names(mirrord, origin, size, status):
    """A query is part of the name; the parser may be set to take longer ones than rows do."""
    m = mirrord(f"""http {{ uri = "64k" header = "128k" }}
                    repo "data" {{ protocol = "generic" origin = "{origin.url}/" }}""")
    name = "/a?" + "q" * (size - 2)
    origin.put(name, size=1000)
    reply = m.get("/data" + name)
    assert reply.status == status
    assert m.get("/data/" + "p" * size).status == (404 if status == 200 else 414 if size < 16000 else 400)


def test_a_query_of_any_bytes(data):
    """Clients send UTF-8 as it is; that is no trouble of the origin's."""
    data.origin.put("/a.txt?q=%C3%A9%5C&r=%2F", size=100)
    with socket.create_connection(("127.0.0.1", data.port), timeout=30) as s:
        s.sendall("GET /data/a.txt?q=\u00e9\\&r=%2F HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        assert s.recv(65536).startswith(b"HTTP/1.1 200")


# Positions whose sums with a block or a segment pass 2^64, and where 2^63 ends.
FAR = {"bytes=18446744073709500000-": 416, "bytes=18446744073709551614-18446744073709551614": 416,
       "bytes=9223372036854775807-": 416, "bytes=9223372036854775808-9223372036854775809": 416,
       "bytes=0-18446744073709551600": 206, "bytes=0-9223372036854775807": 206, "bytes=-18446744073709551615": 206,
       "bytes=5-99999999999999999999": 200}


@pytest.mark.parametrize("name", ["a.bin", "a.dat"])
@pytest.mark.parametrize("asked", FAR)
def test_ranges_at_the_end_of_numbers(corner, asked, name):
    """Cold, where the range decides what the origin is asked first."""
    corner.put(f"/{name}", size=MIB)
    reply = corner.get(f"/{name}", headers={"Range": asked})
    assert reply.status == FAR[asked]
    assert reply.status == 416 or reply.body == corner.bytes_of(f"/{name}")


RANGES = [("bytes=0-0", 0, 1), ("bytes=100-199", 100, 200), ("bytes=2097000-", 2097000, 2 * MIB), ("bytes=-7", 2 * MIB - 7, 2 * MIB),
          ("bytes=0-9999999", 0, 2 * MIB), ("bytes=10-19,20-29", 10, 30)]


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("spec,first,end", RANGES, ids=[r[0] for r in RANGES])
def test_range(corner, wire, warm, spec, first, end):
    corner.put("/a.bin", size=2 * MIB)
    if warm:
        corner.get("/a.bin", wire)
    reply = corner.get("/a.bin", wire, headers={"Range": spec})
    assert reply.body == corner.bytes_of("/a.bin", first, end)
    if reply.status == 206:
        assert reply["content-range"] == f"bytes {first}-{end - 1}/{2 * MIB}"
    else:
        assert (first, end) == (0, 2 * MIB) or "," in spec


def test_range_that_cannot_be(corner, wire):
    corner.put("/a.bin", size=100)
    corner.get("/a.bin", wire)
    reply = corner.get("/a.bin", wire, headers={"Range": "bytes=100-200"})
    assert (reply.status, reply["content-range"]) == (416, "bytes */100")
    assert corner.get("/a.bin", wire, headers={"Range": "lines=1-2"}).status == 200


def test_head(corner, wire):
    corner.put("/a.bin", size=MIB)
    for _ in range(2):
        reply = corner.get("/a.bin", wire, head=True)
        assert (reply.status, reply["content-length"], reply.body) == (200, str(MIB), b"")
        corner.get("/a.bin", wire)


def test_conditionals(corner, wire):
    corner.put("/a.bin", size=1000)
    have = corner.get("/a.bin", wire)
    assert corner.get("/a.bin", wire, headers={"If-None-Match": have["etag"]}).status == 304
    assert corner.get("/a.bin", wire, headers={"If-None-Match": '"other"'}).status == 200
    assert corner.get("/a.bin", wire, headers={"If-Modified-Since": have["last-modified"]}).status == 304
    assert corner.get("/a.bin", wire, headers={"If-Match": '"other"'}).status == 412
    part = {"Range": "bytes=0-9"}
    assert corner.get("/a.bin", wire, headers={**part, "If-Range": have["etag"]}).status == 206
    assert corner.get("/a.bin", wire, headers={**part, "If-Range": '"other"'}).status == 200


def test_etag_survives_sealing_and_restart(data):
    data.origin.put("/a.bin", size=4 * MIB)
    tags = {data.get("/data/a.bin")["etag"], data.get("/data/a.bin")["etag"]}
    data.settle()
    data.stop()
    data.start()
    tags.add(data.get("/data/a.bin")["etag"])
    assert len(tags) == 1 and data.upstream_requests() == 0


def test_two_queries_are_two_objects(corner, wire):
    corner.put("/a.bin?v=1", size=10, seed=1)
    corner.put("/a.bin?v=2", size=10, seed=2)
    assert corner.get("/a.bin?v=1", wire).body == corner.bytes_of("/a.bin?v=1")
    assert corner.get("/a.bin?v=2", wire).body == corner.bytes_of("/a.bin?v=2")


def test_mutable_is_revalidated_then_replaced(corner, wire):
    thing = corner.put("/n.txt", size=500)
    for _ in range(3):
        assert corner.get("/n.txt", wire).status == 200
        corner.settle()  # else the next may still share that very answer
    assert (thing.bytes, thing.not_modified) == (500, 2)
    corner.put("/n.txt", size=600, seed=9)
    assert corner.get("/n.txt", wire).body == corner.bytes_of("/n.txt")


def test_not_found_is_remembered(data, wire):
    for _ in range(3):
        assert data.get("/data/none.txt", wire).status == 404
    assert data.origin.misses == ["/none.txt"]


def test_stale_when_the_origin_is_in_trouble(data, wire):
    data.origin.put("/n.txt", size=500)
    body = data.get("/data/n.txt", wire).body
    data.settle()  # else the next may still share that very answer
    data.origin.put("/n.txt", size=500, status=500)
    reply = data.get("/data/n.txt", wire)
    assert (reply.status, reply.body) == (200, body) and "stale" in reply["cache-status"]


def test_immutable_is_served_with_the_origin_gone(data, origin):
    origin.put("/a.bin", size=MIB)
    body = data.get("/data/a.bin").body
    origin.put("/a.bin", no_head=True)
    origin.put("/b.bin", no_head=True)
    reply = data.get("/data/a.bin", headers={"Cache-Control": "no-cache"})
    assert (reply.status, reply.body) == (200, body)
    assert data.get("/data/b.bin").status in (502, 503, 504)


def test_rules_can_refuse(data, wire):
    data.origin.put("/a.forbidden", size=10)
    assert data.get("/data/a.forbidden", wire).status in (403, 404)
    assert data.origin.stats("/a.forbidden").requests == 0


@pytest.mark.parametrize("spelling", ["deny/x", "/deny/x", "deny//x", "deny%2fx", "%2Fdeny/x", "///deny/x", "%64eny/x", "ok//../deny/x"])
def test_a_denied_path_has_no_other_spelling(mirrord, origin, spelling):
    """Origins take '//' and '%2F' for '/'."""
    m = mirrord(f"""repo "data" {{ protocol = "generic" origin = "{origin.url}/" rule '^deny/' {{ class = deny }} }}""")
    for path in (f"/{spelling}", "/deny/x", "/ok//x"):
        origin.put(path, size=10)
    assert m.get(f"/data/{spelling}").status == (400 if ".." in spelling else 403)
    assert origin.stats(f"/{spelling}").requests == 0
    assert m.get("/data/ok//x").status == 200


@pytest.mark.parametrize("path", ["/data/../etc/passwd", "/data/a/%2e%2e/%2e%2e/x", "/data/a%00b", "/nosuch/a.bin", "/-/nosuch"])
def test_paths_that_lead_nowhere(data, wire, path):
    assert data.get(path, wire).status in (400, 404)
    assert data.origin.requests == 0


@pytest.fixture
def reader(data, tmp_path):
    """A client that is under way, and the file that it writes."""
    running = []

    def start(path, wire):
        got = tmp_path / "got"
        running.append(subprocess.Popen(["curl", "-qsSNk", "--noproxy", "*", *FLAGS[wire], "-o", got, data.url(path, wire)]))
        return running[-1], got
    yield start
    for child in running:
        child.kill()
        child.wait()


def test_no_time_passes_before_the_first_byte(data, reader, wire):
    """A reader follows the fill: all that the origin has sent comes while it holds the rest back."""
    thing = data.origin.put("/a.bin", size=4 * MIB, hold_at=MIB)
    child, got = reader("/data/a.bin", wire)
    until(lambda: got.exists() and got.stat().st_size == MIB)
    thing.go.set()
    assert child.wait(120) == 0 and got.read_bytes() == data.origin.bytes_of("/a.bin")


def test_fill_goes_on_when_its_client_leaves(data, reader, wire):
    thing = data.origin.put("/a.bin", size=4 * MIB, hold_at=MIB)
    child, got = reader("/data/a.bin", wire)
    until(lambda: got.exists() and got.stat().st_size)
    child.kill()
    child.wait()
    thing.go.set()
    assert data.get("/data/a.bin", wire).body == data.origin.bytes_of("/a.bin")
    assert thing.bytes == 4 * MIB


def test_cold_range_does_not_wait_for_what_is_before(data, wire):
    first = 60 * MIB
    thing = data.origin.put("/a.bin", size=64 * MIB, hold_at=16 * MIB, hold_end=first)
    reply = data.get("/data/a.bin", wire, headers={"Range": f"bytes={first}-{first + MIB - 1}"})
    assert reply.body == data.origin.bytes_of("/a.bin", first, first + MIB)
    thing.go.set()


def test_who_asks_in_vain_reads_whose_origin_failed_and_why(mirrord, tmp_path):
    """The reason of the network, the address, the repo, and what follows from it."""
    nowhere = "a" * 64 + ".example"  # too long a label: no server is asked for the name
    with Origin(tls=server_context(Authority(tmp_path).self_signed("stranger"))) as secure:
        m = mirrord(f"""
            repo "gone" {{ protocol = "generic" origin = "http://127.0.0.1:1/" }}
            repo "nameless" {{ protocol = "generic" origin = "http://{nowhere}/" }}
            repo "strange" {{ protocol = "generic" origin = "https://127.0.0.1:{secure.port}/" }}
            repo "behind" {{ protocol = "generic" origin = "http://origin.example/" proxy = "http://me:secret@127.0.0.1:1" }}
            repo "lost" {{ protocol = "generic" origin = "http://origin.example/" proxy = "http://{nowhere}:3128" }}""")
        for repo, why in {"gone": "127.0.0.1:1: cannot connect: Connection refused",
                          "nameless": f"{nowhere}:80: the name does not resolve",
                          "strange": f"127.0.0.1:{secure.port}: TLS: ",
                          "behind": "origin.example:80: cannot connect to the proxy 127.0.0.1:1: Connection refused",
                          "lost": f"origin.example:80: the name of the proxy {nowhere}:3128 does not resolve"}.items():
            got = m.get(f"/{repo}/file")
            said = got.body.decode()
            assert got.status == 502 and f"the origin of repo {repo} failed: {why}" in said, (repo, got)
            assert said.rstrip().endswith("; this file is not on this mirror yet") and "secret" not in said, said


def test_a_proxy_that_does_not_answer_is_named(mirrord):
    """Where the time ran out, as without a proxy, and which proxy it is; not its password."""
    with socket.socket() as full, socket.socket() as mute:
        for s in (full, mute):
            s.bind(("127.0.0.1", 0))
        full.listen(0)
        mute.listen(64)  # the kernel accepts, nobody reads
        waiting = []
        for _ in range(4):  # until its queue is full: the kernel drops what comes then
            waiting.append(socket.socket())
            waiting[-1].setblocking(False)
            waiting[-1].connect_ex(full.getsockname())
        closed, silent = (f"127.0.0.1:{s.getsockname()[1]}" for s in (full, mute))
        m = mirrord("\n".join(
            f'repo "{name}" {{ protocol = "generic" origin = "{scheme}://origin.example/" proxy = "http://me:secret@{proxy}" '
            'connect_timeout = 1s stall = 1s }' for name, scheme, proxy in
            (("closed", "http", closed), ("secure", "https", closed), ("mute", "https", silent), ("plain", "http", silent))))
        for repo, why in {"closed": f"origin.example:80: cannot connect to the proxy {closed}: timed out",
                          "secure": f"origin.example:443: cannot connect to the proxy {closed}: timed out",
                          "mute": f"origin.example:443: the proxy {silent} did not answer in time",
                          "plain": f"origin.example:80: no response in time, through the proxy {silent}"}.items():
            said = m.get(f"/{repo}/file").body.decode()
            assert f"the origin of repo {repo} failed: {why}" in said and "secret" not in said, said
        for s in waiting:
            s.close()
