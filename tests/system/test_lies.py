"""An origin that lies, breaks off or misleads: nothing is served as complete that is not, and no secret leaves."""
import gzip
import hashlib
import re
import subprocess

import pytest

from harness import serving
from harness.curl import FLAGS
from harness.mirrord import SLOW, until
from harness.origin import Origin, span

MIB = 1 << 20


@pytest.fixture
def data(mirrord, origin):
    m = mirrord(f"""
    cache {{ tries = 3 }}
    repo "data" {{ protocol = "generic" origin = "{origin.url}/" stall = 30s
        rule 'sha256-[0-9a-f]+' {{ class = immutable digest_from = "path" }}
        rule '\\.txt$' {{ class = mutable ttl = 0s sie = 1h }}
        rule '.' {{ class = immutable }} }}""")
    m.origin = origin
    return m


def never_whole(m, path, wire, wanted):
    """Whatever comes: as a complete answer, only the true bytes or an error."""
    reply = m.get(path, wire)
    if reply.whole and reply.status in (200, 206):
        assert reply.body == wanted, f"{len(reply.body)} wrong bytes were served as complete"
    return reply


# Each breaks off for good: no client may get a complete answer.
BROKEN = {
    "short body": {"short": MIB},
    "short body, chunked": {"short": MIB, "chunked": True},
    "cut at the first byte": {"short": 0},
    "no head": {"no_head": True},
    "not HTTP": {"early_garbage": True},
    "trickle, then silence": {"stall_at": 1},
    "500": {"status": 500},
    "503": {"status": 503},
}


@pytest.mark.parametrize("lie", BROKEN.values(), ids=BROKEN.keys())
def test_broken_off_is_never_complete(data, wire, lie):
    data.origin.put("/a", size=4 * MIB, ranges=False, **lie)
    patient = data.config
    if "stall_at" in lie:
        data.config = patient.replace("stall = 30s", "stall = 1s")
        data.reload()
    reply = data.get("/data/a", wire)
    assert reply.status >= 500 or not reply.whole, f"{reply.status}, {len(reply.body)} bytes, taken as complete"
    assert reply.status >= 500 or reply.body, "nothing was sent yet: that can still be said by a status"
    assert data.origin.bytes_of("/a").startswith(reply.body) or reply.status >= 500
    # When the origin has come to its senses, so has the mirror.
    data.config = patient
    data.reload()
    data.origin.put("/a", size=4 * MIB)
    assert data.ctl("cache", "rm", "data/a", check=False).returncode in (0, 66, 69, 1)
    assert data.get("/data/a", wire).body == data.origin.bytes_of("/a")


CODED = {
    "compressed, and cut": (["gzip, chunked"], lambda b: chunk(gzip.compress(b)[:len(b) // 2])),
    "in two lines": (["gzip", "chunked"], lambda b: chunk(gzip.compress(b)[:len(b) // 2])),
    "not what it says": (["br, chunked"], lambda b: chunk(b"no brotli")),
    "chunked twice": (["chunked, chunked"], lambda b: chunk(chunk(b))),
}


def chunk(data):
    return b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data)


@pytest.mark.parametrize("codings, encode", CODED.values(), ids=CODED.keys())
def test_a_coding_that_nobody_asked_for(mirrord, codings, encode, wire):
    """Whether all of a compressed body has come cannot be seen: such bytes are no object."""
    class Coder(serving.Handler):
        def do_GET(self):
            self.send_response(200)
            for value in codings:
                self.send_header("Transfer-Encoding", value)
            self.end_headers()
            self.wfile.write(encode(span(1, 0, 30000)))

    server = serving.Server(("127.0.0.1", 0), Coder)
    serving.run(server)
    try:
        m = mirrord(f'repo "data" {{ protocol = "generic" origin = "http://127.0.0.1:{server.server_address[1]}/" }}')
        reply = m.get("/data/a", wire)
        assert reply.status == 502 and b"unsupported Transfer-Encoding" in reply.body
        m.settle()
        assert m.ctl_json("cache", "ls", "data") == []
    finally:
        serving.stop(server)


INTERIM = {"103": (1, b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\nX-Word: early\r\nContent-Length: 7\r\nETag: \"early\"\r\n\r\n"),
           "102": (3, b"HTTP/1.1 102 Processing\r\n\r\n"), "100": (1, b"HTTP/1.1 100 Continue\r\n\r\n"), "199": (2, b"HTTP/1.1 199 Whatever\r\nAge: 5\r\n\r\n")}


@pytest.fixture
def interim():
    """An origin that sends a number of interim responses before each of its own."""
    class Talker(serving.Handler):
        def do_GET(self):
            self.server.asked += 1
            self.wfile.write(self.server.before)
            self.send_response(200)
            self.send_header("Content-Length", "5")
            self.send_header("X-Word", "late")
            self.send_header("ETag", '"late"')
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(b"words")

        do_HEAD = do_GET

    server = serving.Server(("127.0.0.1", 0), Talker)
    server.asked, server.before = 0, b""
    serving.run(server)
    yield server
    serving.stop(server)


@pytest.mark.parametrize("times, said", INTERIM.values(), ids=INTERIM.keys())
def test_interim_responses_end_at_the_mirror(mirrord, interim, wire, times, said):
    """None reaches a client, no field of one is taken for the answer's, and what follows is cached (docs/protocols/generic.md)."""
    interim.before = said * times
    m = mirrord(f'repo "data" {{ protocol = "generic" origin = "http://127.0.0.1:{interim.server_address[1]}/" pass_headers = {{"X-Word"}} rule \'.\' {{ class = immutable }} }}')
    for _ in range(2):
        reply = m.get("/data/a", wire)
        assert (reply.status, reply.body, reply["x-word"], reply["etag"], reply["link"]) == (200, b"words", "late", '"late"', None), reply
        m.settle()
    out = subprocess.run(["curl", "-qsSi", "--noproxy", "*", *FLAGS[wire], "-k", m.url("/data/b", wire)], capture_output=True, check=True, timeout=120 * SLOW).stdout
    assert re.findall(rb"(?m)^HTTP/\S+ (\d+)", out) == [b"200"], out
    assert interim.asked == 2


def test_interim_responses_without_end(mirrord, interim):
    interim.before = INTERIM["103"][1] * 5000
    m = mirrord(f'repo "data" {{ protocol = "generic" origin = "http://127.0.0.1:{interim.server_address[1]}/" }}')
    reply = m.get("/data/a")
    assert (reply.status, interim.asked) == (502, 1) and b"too many 1xx responses before the final one" in reply.body, reply


# Each is a fault of the answer that asking again does not mend.
FAULTS = {
    "an unknown Transfer-Encoding": ({"fields": "Transfer-Encoding: bogus"}, "unsupported Transfer-Encoding"),
    "an unknown one, then chunked": ({"fields": "Transfer-Encoding: bogus, chunked"}, "unsupported Transfer-Encoding"),
    "a field of 400 KB": ({"fields": "X-Long: " + 400_000 * "a"}, "header of the response is larger than 65536 bytes"),
    "400 fields of 1 KB": ({"fields": "|".join(f"X-{i}: " + 1000 * "a" for i in range(400))}, "the response header is larger than 65536 bytes"),
    "many short fields": ({"fields": "|".join(f"X-{i}: a" for i in range(400))}, "more than 200 header fields"),
}


@pytest.mark.parametrize("fault, words", FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_of_the_answer_is_told_at_once(mirrord, origin, wire, fault, words):
    """One request of a client is one of the origin's, and ends with 502 and the reason. `tries` is the default."""
    m = mirrord(f'repo "data" {{ protocol = "generic" origin = "{origin.url}/" }}')
    thing = origin.put("/a", size=1000, **fault)
    reply = m.get("/data/a", wire)
    assert (reply.status, thing.requests) == (502, 1) and words in reply.body.decode(), (reply, thing.requests)
    reply = m.get("/data/a", wire, headers={"Range": "bytes=10-19"})
    assert reply.status == 502 and words in reply.body.decode(), reply
    origin.put("/a", size=1000)
    m.ctl("cache", "rm", "data/a", check=False)
    until(lambda: m.get("/data/a", wire).body == origin.bytes_of("/a"))


MENDED = {"cut at 30 %": {"die_at": 30, "times": 1}, "cut twice": {"die_at": 60, "times": 2},
          "one 503": {"status": 503, "times": 1, "fields": "Retry-After: 1"}, "one lost head": {"no_head": True, "times": 1}}


@pytest.mark.parametrize("lie", MENDED.values(), ids=MENDED.keys())
def test_resumes_where_it_broke(data, wire, lie):
    thing = data.origin.put("/a", size=8 * MIB, **lie)
    reply = data.get("/data/a", wire)
    assert (reply.status, reply.whole) == (200, True) and reply.body == data.origin.bytes_of("/a")
    assert thing.bytes <= 8 * MIB * 1.01


@pytest.mark.parametrize("lie", [{"wrong_range": 1000}, {"wrong_range": -1}, {"wrong_total": 5}], ids=str)
def test_wrong_content_range(data, wire, lie):
    """The first answer breaks off; the range that goes on from there is not what was asked for."""
    data.origin.put("/a", size=8 * MIB, die_at=50, times=1, **lie)
    never_whole(data, "/data/a", wire, data.origin.bytes_of("/a"))


def test_ranges_promised_but_not_kept(data, wire):
    data.origin.put("/a", size=8 * MIB, ignore_range=True, die_at=50, times=1)
    never_whole(data, "/data/a", wire, data.origin.bytes_of("/a"))


@pytest.mark.parametrize("etag", ["strong", "weak", "none"])
def test_changed_in_mid_fill_is_never_spliced(data, wire, etag):
    data.origin.put("/a", size=8 * MIB, die_at=50, times=1, change_after=1, etag=etag)
    old = data.origin.bytes_of("/a")
    reply = data.get("/data/a", wire)
    new = data.origin.bytes_of("/a")
    assert old != new
    if reply.whole and reply.status == 200:
        assert reply.body in (old, new), "two generations in one answer"
    assert data.get("/data/a", wire).body in (b"", old, new)


def test_who_has_no_byte_yet_begins_anew(data, wire, tmp_path):
    """One reads, slowly; another waits for a place far ahead, and there the origin has become another."""
    data.origin.put("/a", size=64 * MIB, rate=MIB)
    got = tmp_path / "got"
    reader = subprocess.Popen(["curl", "-qsSN", "-o", got, data.url("/data/a")])
    try:
        until(lambda: got.exists() and got.stat().st_size)  # what the origin has sent may not have come to the reader
        data.origin.put("/a", size=64 * MIB, seed=2)
        far = data.get("/data/a", wire, headers={"Range": "bytes=50000000-50000999"})
        assert (far.status, far.rc) == (206, 0)
        assert far.body == data.origin.bytes_of("/a", 50000000, 50001000)
        assert reader.wait(120) != 0, "two generations in one answer"
    finally:
        reader.kill()
        reader.wait()


@pytest.mark.parametrize("size", [100, 40000, 8 * MIB])
def test_wrong_digest_is_never_complete(data, wire, size):
    thing = data.origin.put("/tmp", size=size)
    path = f"/sha256-{data.origin.sha256('/tmp')}"
    data.origin.put(path, size=size, flip_at=size // 2)
    reply = data.get("/data" + path, wire)
    assert reply.status >= 500 or not reply.whole, "wrong bytes were served as complete"
    data.origin.put(path, size=size)
    again = data.get("/data" + path, wire)
    assert again.status >= 500 or hashlib.sha256(again.body).hexdigest() == path[8:]
    assert thing.bytes == 0


def test_right_digest_is_announced(data, wire):
    data.origin.put("/tmp", size=MIB)
    path = f"/sha256-{data.origin.sha256('/tmp')}"
    data.origin.put(path, size=MIB)
    for _ in range(2):
        reply = data.get("/data" + path, wire)
        assert hashlib.sha256(reply.body).hexdigest() == path[8:]
        assert reply["repr-digest"].startswith("sha-256=:")


def test_endless_answer_is_bounded(mirrord, origin):
    """An origin that never stops fills no disk: the quota is the end of it."""
    m = mirrord(f"""storage {{ quota = "16m" reserve = "16m" }}
        repo "data" {{ protocol = "generic" origin = "{origin.url}/" rule '.' {{ class = immutable }} }}""")
    origin.put("/a", endless=True)
    reply = m.get("/data/a", limit_s=60)
    assert not reply.whole or reply.status >= 500
    assert origin.stats("/a").bytes < 256 * MIB
    origin.put("/b", size=MIB)
    assert m.get("/data/b").body == origin.bytes_of("/b")


@pytest.mark.parametrize("how", [{}, {"ranges": False}, {"chunked": True, "ranges": False}], ids=["ranges", "length", "chunked"])
def test_an_object_over_the_bound_is_refused(mirrord, origin, wire, how):
    m = mirrord(f"""repo "data" {{ protocol = "generic" origin = "{origin.url}/" max_object = "1m" rule '.' {{ class = immutable }} }}""")
    thing = origin.put("/big", size=64 * MIB, **how)
    origin.put("/small", size=MIB, **how)
    for _ in range(2):
        reply = m.get("/data/big", wire)
        assert not reply.whole or reply.status == 403
        if "chunked" not in how:
            assert reply.status == 403 and b"max_object" in reply.body
    assert thing.bytes < 32 * MIB and not m.ctl_json("cache", "ls", "data")
    assert m.get("/data/small", wire).body == origin.bytes_of("/small")


# --- where a redirect or a link may lead, and what it may carry ---------------------------------------------------------

SECRET = "Bearer origins-own-secret"


@pytest.fixture
def elsewhere():
    """Another host: what reaches it has been led astray."""
    with Origin(host="127.0.0.2") as o:
        yield o


@pytest.fixture
def secretive(mirrord, origin, tmp_path):
    (tmp_path / "secret").write_text(SECRET)

    def start(more=""):
        m = mirrord(f"""plaintext_token = true
        repo "data" {{ protocol = "generic" origin = "{origin.url}/" authorization = "file:{tmp_path}/secret" {more}
                       rule '.' {{ class = immutable }} }}""")
        m.origin = origin
        return m
    return start


def test_redirect_to_another_host_is_not_followed(secretive, elsewhere, wire):
    m = secretive()
    elsewhere.put("/a", size=10)
    m.origin.put("/a", redirect=elsewhere.url + "/a")
    assert m.get("/data/a", wire).status >= 500
    assert elsewhere.requests == 0 and m.origin.stats("/a").authorized == 1


@pytest.mark.parametrize("target", ["http://127.0.0.1:22/", "http://169.254.169.254/latest/", "http://[::1]:1/", "file:///etc/passwd",
                                    "http://localhost:1/", "http://2130706433:1/", "http://127.0.0.1%2f@x/"])
def test_redirect_inside_is_not_followed(secretive, wire, target):
    m = secretive()
    m.origin.put("/a", redirect=target)
    reply = m.get("/data/a", wire)
    assert reply.status >= 500 and b"root:" not in reply.body


def test_named_host_is_followed_without_the_secret(secretive, elsewhere, wire):
    m = secretive(f'hosts = {{"127.0.0.2:{elsewhere.port}"}}')
    thing = elsewhere.put("/b", size=MIB)
    m.origin.put("/a", redirect=elsewhere.url + "/b")
    assert m.get("/data/a", wire).body == elsewhere.bytes_of("/b")
    assert thing.requests >= 1 and thing.authorized == 0


def test_redirect_ring_ends(secretive, wire):
    m = secretive()
    m.origin.put("/a", redirect="/b")
    m.origin.put("/b", redirect="/a")
    assert m.get("/data/a", wire).status >= 500
    assert m.origin.requests < 50


def test_clients_credentials_stay_here(secretive, wire):
    """What a client sends us (a token of ours, a cookie) is not passed on to the origin."""
    m = secretive()
    token = m.token("me", "read:data/*")
    seen = []
    m.origin.put("/a", size=10)
    handler = m.origin.server.RequestHandlerClass
    original = handler.answer

    def spy(self):
        seen.append(dict(self.headers))
        original(self)
    handler.answer = spy
    try:
        assert m.get("/data/a", wire, headers={"Authorization": f"Bearer {token}", "Cookie": "a=b"}).status == 200
    finally:
        handler.answer = original
    assert seen and all(h.get("Authorization") == SECRET and "Cookie" not in h for h in seen)


def test_logs_hold_no_secret(secretive):
    m = secretive()
    token = m.token("me", "read:data/*")
    m.origin.put("/a", size=10)
    m.get("/data/a", headers={"Authorization": f"Bearer {token}"})
    m.get("/data/none", headers={"Authorization": "Bearer mrd_ffff_wrongwrongwrong"})
    assert {e["status"] for e in m.answered("/data/", 2)} == {200, 401}
    text = m.log() + m.access_log.read_text()
    assert token not in text and SECRET not in text and "wrongwrongwrong" not in text
