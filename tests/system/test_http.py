"""The HTTP core alone (http_fixture): framing, floods, slow peers, back-pressure, drain. Bytes on raw sockets."""
import contextlib
import os
import signal
import select
import socket
import ssl
import struct
import subprocess
import time

import pytest

from harness.http import (ACK, CALM, CONTINUATION, DATA, END_HEADERS, END_STREAM, FRAME_SIZE_ERROR, GOAWAY, H2, HEADERS,
                          INTERNAL_ERROR, NO_ERROR, PATIENCE_S, PING, PREFACE, PRIORITY, PROTOCOL_ERROR, RST, SETTINGS,
                          STREAM_CLOSED, WINDOW, Fixture, frame, literal, read_all, read_answer, request)

PATTERN = bytes(i % 251 for i in range(1 << 20))


@pytest.fixture
def fixture(cert, tmp_path):
    running = []

    def start(**kw):
        kw.setdefault("folder", tmp_path)
        running.append(Fixture(cert, **kw))
        return running[-1]

    yield start
    for f in running:
        f.stop()


def status_of(answer):
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else None


# --- HTTP/1.1 framing ---------------------------------------------------------------------------------------------------

H = b"Host: t\r\n"
BAD = {
    "no host": (400, b"GET / HTTP/1.1\r\n\r\n"),
    "two hosts": (400, b"GET / HTTP/1.1\r\nHost: t\r\nHost: t\r\n\r\n"),
    "host with a user": (400, b"GET / HTTP/1.1\r\nHost: u@t\r\n\r\n"),
    "host with a path": (400, b"GET / HTTP/1.1\r\nHost: t/x\r\n\r\n"),
    "absolute form, other host": (400, b"GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n"),
    "length and coding": (400, b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "coding and length": (400, b"POST / HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"),
    "two lengths": (400, b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"),
    "a list of lengths": (400, b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 5, 5\r\n\r\nhello"),
    "signed length": (400, b"POST / HTTP/1.1\r\n" + H + b"Content-Length: +5\r\n\r\nhello"),
    "hex length": (400, b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 0x5\r\n\r\nhello"),
    "huge length": (400, b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 18446744073709551616\r\n\r\n"),
    "empty length": (400, b"POST / HTTP/1.1\r\n" + H + b"Content-Length:\r\n\r\n"),
    "coding other than chunked": (400, b"POST / HTTP/1.1\r\n" + H + b"Transfer-Encoding: gzip, chunked\r\n\r\n"),
    "coding chunked twice": (400, b"POST / HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n"
                             b"Transfer-Encoding: chunked\r\n\r\n"),
    "coding with an x": (400, b"POST / HTTP/1.1\r\n" + H + b"Transfer-Encoding: xchunked\r\n\r\n"),
    "coding with a tab inside": (400, b"POST / HTTP/1.1\r\n" + H + b"Transfer-Encoding: chun\tked\r\n\r\n"),
    "coding in 1.0": (400, b"POST / HTTP/1.0\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n"),
    "blank before the colon": (400, b"GET / HTTP/1.1\r\nHost : t\r\n\r\n"),
    "folded line": (400, b"GET / HTTP/1.1\r\nHost: t\r\nX: a\r\n b\r\n\r\n"),
    "blank before the first field": (400, b"GET / HTTP/1.1\r\n Host: t\r\n\r\n"),
    "bare LF": (400, b"GET / HTTP/1.1\nHost: t\n\n"),
    "bare LF in a field": (400, b"GET / HTTP/1.1\r\nX: a\nHost: t\r\n\r\n"),
    "bare CR": (400, b"GET / HTTP/1.1\r\nX: a\rb\r\nHost: t\r\n\r\n"),
    "NUL in a value": (400, b"GET / HTTP/1.1\r\nX: a\0b\r\nHost: t\r\n\r\n"),
    "NUL in the target": (400, b"GET /a\0b HTTP/1.1\r\nHost: t\r\n\r\n"),
    "field without a name": (400, b"GET / HTTP/1.1\r\n: x\r\nHost: t\r\n\r\n"),
    "line that is no field": (400, b"GET / HTTP/1.1\r\nnonsense\r\nHost: t\r\n\r\n"),
    "two blanks": (400, b"GET  / HTTP/1.1\r\n" + H + b"\r\n"),
    "blank in the target": (400, b"GET /a b HTTP/1.1\r\n" + H + b"\r\n"),
    "fragment": (400, b"GET /a#b HTTP/1.1\r\n" + H + b"\r\n"),
    "no slash": (400, b"GET a HTTP/1.1\r\n" + H + b"\r\n"),
    "HTTP/0.9": (400, b"GET /\r\n\r\n"),
    "HTTP/2.0": (505, b"GET / HTTP/2.0\r\n" + H + b"\r\n"),
    "HTTP/1.2": (505, b"GET / HTTP/1.2\r\n" + H + b"\r\n"),
    "lower case version": (400, b"GET / http/1.1\r\n" + H + b"\r\n"),
    "CONNECT": (400, b"CONNECT t:443 HTTP/1.1\r\n" + H + b"\r\n"),
    "asterisk": (501, b"OPTIONS * HTTP/1.1\r\n" + H + b"\r\n"),
    "other expectation": (417, b"POST /discard HTTP/1.1\r\n" + H + b"Expect: more\r\nContent-Length: 1\r\n\r\n"),
    "long target": (414, b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n" + H + b"\r\n"),
    "endless target": (414, b"GET /" + b"a" * 40000),
    "long field": (431, b"GET / HTTP/1.1\r\n" + H + b"X: " + b"a" * 40000 + b"\r\n\r\n"),
    "many fields": (431, b"GET / HTTP/1.1\r\n" + H + b"X: a\r\n" * 101 + b"\r\n"),
    "garbage": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
}


@pytest.fixture(scope="module")
def shared(cert, tmp_path_factory):
    f = Fixture(cert, folder=tmp_path_factory.mktemp("www"))
    yield f
    f.stop()


@pytest.mark.parametrize("name", BAD)
def test_refuses(shared, name):
    """The right status, Connection: close, and not one byte of what follows taken for a request."""
    status, bytes_ = BAD[name]
    answer = shared.h1(bytes_ + b"GET /smuggled HTTP/1.1\r\nHost: t\r\n\r\n")
    assert status_of(answer) == status, answer
    assert b"connection: close" in answer and answer.count(b"HTTP/1.1 ") == 1


BAD_CHUNKS = {
    "no size": b"\r\nhello\r\n0\r\n\r\n",
    "bad digit": b"5g\r\nhello\r\n0\r\n\r\n",
    "0x": b"0x5\r\nhello\r\n0\r\n\r\n",
    "negative": b"-5\r\nhello\r\n0\r\n\r\n",
    "bare LF after the size": b"5\nhello\r\n0\r\n\r\n",
    "no CRLF after the data": b"5\r\nhelloXX0\r\n\r\n",
    "LF after the data": b"5\r\nhello\n0\r\n\r\n",
    "size that overflows": b"10000000000000005\r\nhello\r\n0\r\n\r\n",
    "a word after the size": b"5 junk\r\nhello\r\n0\r\n\r\n",
    "a word after the last size": b"5\r\nhello\r\n0 x\r\n\r\n",
    "a second size": b"5 5\r\nhello\r\n0\r\n\r\n",
    "a trailer without a colon": b"5\r\nhello\r\n0\r\nno colon\r\n\r\n",
    "a trailer of a name alone": b"5\r\nhello\r\n0\r\nX\r\n\r\n",
    "a blank before a trailer's colon": b"5\r\nhello\r\n0\r\nX : y\r\n\r\n",
    "bare LF in an extension": b"5;a\nb\r\nhello\r\n0\r\n\r\n",
    "endless extension": b"5;" + b"a" * 20000 + b"\r\nhello\r\n0\r\n\r\n",
    "endless trailer": b"0\r\n" + b"a: b\r\n" * 5000 + b"\r\n",
}


@pytest.mark.parametrize("name", BAD_CHUNKS)
def test_refuses_chunks(shared, name):
    head = b"POST /discard HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = shared.h1(head + BAD_CHUNKS[name] + b"GET /smuggled HTTP/1.1\r\nHost: t\r\n\r\n")
    assert status_of(answer) == 400 and b"connection: close" in answer and answer.count(b"HTTP/1.1 ") == 1


def test_chunked_upload_byte_by_byte(shared):
    body = b"5;ext=1\r\nhello\r\n1\r\n \r\n00005\r\nworld\r\n0\r\nTrailer: x\r\n\r\n"
    with shared.connect() as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for b in b"POST /echo HTTP/1.1\r\nHost: t\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + body:
            s.sendall(bytes([b]))
        head, answer = read_all(s).split(b"\r\n\r\n", 1)
    assert b"transfer-encoding: chunked" in head
    text, rest = b"", answer
    while True:
        size, rest = rest.split(b"\r\n", 1)
        n = int(size, 16)
        text, rest = text + rest[:n], rest[n + 2:]
        if n == 0:
            break
    assert text == b"hello world" and rest == b""


def test_what_the_corridor_sees(shared):
    answer = shared.h1(b"\r\nGET http://T:80/request/x?a=b&c HTTP/1.1\r\nhOsT: t:80\r\nX-Thing:\t v w \r\nTE: trailers\r\n"
                       b"Connection: close, x-thing\r\nUpgrade: h2c\r\n\r\n")
    assert answer.split(b"\r\n\r\n", 1)[1] == (b"method GET\npath /request/x\nquery a=b&c\nhost T:80\nx-thing: v w\n")


def test_http_1_0(shared):
    answer = shared.h1(b"GET /hello HTTP/1.0\r\n\r\n")
    assert status_of(answer) == 200 and answer.endswith(b"\r\n\r\nhello\n")
    answer = shared.h1(b"GET /growx/100000 HTTP/1.0\r\n\r\n")
    head, body = answer.split(b"\r\n\r\n", 1)
    assert b"transfer-encoding" not in head and b"connection: close" in head and body == PATTERN[:100000]
    with shared.connect() as s:
        s.sendall(b"GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert read_answer(s)[1]["connection"] == "keep-alive"
        s.sendall(b"GET /hello HTTP/1.0\r\n\r\n")
        assert read_all(s).endswith(b"hello\n")


def until_the_end(s):
    """What came, and whether a FIN (over TLS a close_notify) said that this was all."""
    got = b""
    try:
        while part := s.recv(65536):
            got += part
        return got, True
    except (ConnectionResetError, ssl.SSLError):
        return got, False


@pytest.mark.parametrize("tls", [False, True], ids=["clear", "tls"])
def test_http_1_0_cut_short(shared, tls):
    """Without a length and without chunks a FIN is the end of the body: an answer that breaks must not get one."""
    for path, whole in ("growx/100000", True), ("failx/100000", False):
        with shared.connect(tls=tls, alpn="http/1.1") as s:
            if tls:
                s.suppress_ragged_eofs = False  # an end without close_notify is none
            s.sendall(f"GET /{path} HTTP/1.0\r\n\r\n".encode())
            got, complete = until_the_end(s)
            assert complete == whole and b"transfer-encoding" not in got and b"content-length" not in got


def test_http_1_0_cut_short_behind_what_was_not_read(fixture):
    """The same where the peer is slow, is given up, or the server stops: with bytes of ours still on the way."""
    server = fixture(stall_ms=300)
    with server.connect() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.sendall(b"GET /growx/8000000 HTTP/1.0\r\n\r\n")
        server.wait_for(lambda stats: stats["limited"] > 0)
        assert not until_the_end(s)[1]


def test_pipelining_keeps_the_order(shared):
    n = 500
    with shared.connect() as s:
        s.sendall(b"".join(b"GET /mem/%d HTTP/1.1\r\nHost: t\r\n\r\n" % i for i in range(n)))
        rest = b""
        for i in range(n):
            status, fields, body, rest = read_answer(s, rest)
            assert status == 200 and body == PATTERN[:i]


def test_pipelined_behind_an_upload_and_a_late_answer(shared):
    with shared.connect() as s:
        s.sendall(b"POST /discard HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nabc"
                  b"GET /late/200 HTTP/1.1\r\nHost: t\r\n\r\nGET /hello HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
        answers = read_all(s)
    assert [answers.index(t) for t in (b"3 0000", b"late\n", b"hello\n")] == sorted(
        answers.index(t) for t in (b"3 0000", b"late\n", b"hello\n"))


def test_head_has_length_and_no_body(shared):
    with shared.connect() as s:
        s.sendall(b"HEAD /mem/1000 HTTP/1.1\r\nHost: t\r\n\r\nGET /hello HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
        answers = read_all(s)
    assert b"content-length: 1000\r\n" in answers and answers.endswith(b"\r\n\r\nhello\n")


def test_expect_continue(shared):
    with shared.connect() as s:
        s.sendall(b"POST /discard HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        assert s.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        s.sendall(b"abc")
        assert read_answer(s)[2].startswith(b"3 ")
    # Refused without being asked for the body: the connection cannot be told from one that carries it.
    answer = shared.h1(b"POST /nowhere HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n", True)
    assert status_of(answer) == 404 and b"100 Continue" not in answer and b"connection: close" in answer


def test_unread_upload(shared):
    """A short one is swallowed and the connection lives; a long one ends it, after the answer."""
    with shared.connect() as s:
        s.sendall(b"POST /nowhere HTTP/1.1\r\nHost: t\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000)
        assert read_answer(s)[0] == 404
        s.sendall(b"GET /hello HTTP/1.1\r\nHost: t\r\n\r\n")
        assert read_answer(s)[2] == b"hello\n"
    with shared.connect() as s:
        s.sendall(b"POST /nowhere HTTP/1.1\r\nHost: t\r\nContent-Length: 100000000\r\n\r\n" + b"x" * 100000)
        status, fields, body, rest = read_answer(s)
        assert status == 404 and fields["connection"] == "close"


def test_half_closed_client_gets_its_answer(shared):
    assert shared.h1(b"GET /mem/900000 HTTP/1.1\r\nHost: t\r\n\r\n", finish=True).endswith(PATTERN[:900000])


def begun(server, n):
    """So many exchanges wait for their answer, beside the one that asks."""
    server.wait_for(lambda s: s["begun"] - s["ended"] == n + 1)


def test_gone_while_waiting(fixture):
    server = fixture()
    with server.connect() as s:
        s.sendall(b"GET /late/600000 HTTP/1.1\r\nHost: t\r\n\r\n")
        begun(server, 1)
    server.wait_for(lambda s: s["gone"] == 1)
    with H2sock(server) as c:
        c.get(1, b"/late/600000")
        begun(server, 1)
    server.wait_for(lambda s: s["gone"] == 2)


def test_reset_together_with_the_request(fixture):
    """Both come before the server reads: the request is whole, the answer late, and no event tells of the end."""
    server = fixture(loops=1)
    before = server.stats()
    for speak in (lambda s: s.sendall(b"GET /late/60000 HTTP/1.1\r\nHost: t\r\n\r\n"),
                  lambda s: H2(s).get(1, b"/late/60000")):
        known = server.connect()
        server.stats()  # so the one before it is accepted
        server.process.send_signal(signal.SIGSTOP)
        os.waitpid(server.process.pid, os.WUNTRACED)  # it may run on for a while
        for s in (known, server.connect()):
            speak(s)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.close()
        server.process.send_signal(signal.SIGCONT)
    server.wait_for(lambda s: s["gone"] == before["gone"] + 4)


class H2sock(H2):
    def __init__(self, fixture, tls=False, settings=b"", **kw):
        super().__init__(fixture.connect(tls=tls, **kw), settings)

    def __enter__(self):
        return self

    def __exit__(self, *why):
        self.sock.close()


# --- bodies over every wire ------------------------------------------------------------------------------------------------

WAYS = {"h1": ([], "port", "http"), "h1 tls": (["-k", "--http1.1"], "tls_port", "https"),
        "h2": (["-k", "--http2"], "tls_port", "https"), "h2c": (["--http2-prior-knowledge"], "port", "http")}


@pytest.fixture(params=WAYS)
def get(request, shared, tmp_path):
    """get(path, *curl_args) -> (curl's exit status, HTTP status, body)."""
    options, port, scheme = WAYS[request.param]

    def run(path, *args):
        out = tmp_path / "out"
        out.unlink(missing_ok=True)
        done = subprocess.run(["curl", "-s", "-o", out, "-w", "%{http_code}", "--max-time", str(PATIENCE_S), *options, *args,
                               f"{scheme}://127.0.0.1:{getattr(shared, port)}{path}"], capture_output=True, text=True)
        return done.returncode, int(done.stdout or 0), out.read_bytes() if out.exists() else b""
    run.shared = shared
    return run


def test_sizes(get):
    for n in (0, 1, 16383, 16384, 16385, 32768, 65536, 65537, 1000003):
        assert get(f"/mem/{n}") == (0, 200, PATTERN[:n]), n


def test_files_and_ranges(get):
    data = bytes(PATTERN[:250] * 12000)
    (get.shared.folder / "blob").write_bytes(data)
    assert get("/file/blob") == (0, 200, data)
    assert get("/file/blob", "-r", "1000000-1999999") == (0, 206, data[1000000:2000000])
    assert get("/file/blob", "-r", "-5") == (0, 206, data[-5:])
    assert get("/file/blob", "-r", "2999999-") == (0, 206, data[-1:])
    assert get("/file/blob", "-r", "3000000-")[:2] == (0, 416)
    assert get("/file/blob", "-r", "0-1,5-6") == (0, 200, data)
    assert get("/file/blob", "-H", 'If-None-Match: "fixture"')[1:] == (304, b"")
    assert get("/file/blob", "-I")[1] == 200


def test_cold_files(get, request):
    """Pages that are not in memory: read by the pool, while the loop serves others; the same bytes in the end."""
    name = "cold-" + request.node.name.split("[")[1].strip("]").replace(" ", "-")
    data = os.urandom(6_000_000)
    with open(get.shared.folder / name, "wb") as f:
        f.write(data)
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert get(f"/file/{name}") == (0, 200, data)
    (get.shared.folder / name).write_bytes(data[:5_000_000])  # shorter than it was promised: cut, never padded
    code, _, body = get(f"/file/{name}")
    assert code != 0 and body == data[:len(body)]


def test_growing(get):
    assert get("/grow/200000") == (0, 200, PATTERN[:200000])
    assert get("/growx/200000") == (0, 200, PATTERN[:200000])


def test_a_body_that_fails_is_seen_to_fail(get):
    for path in ("/fail/100000", "/failx/100000"):
        code, status, body = get(path)
        assert code != 0 and body == PATTERN[:len(body)]


def test_uploads(get, tmp_path):
    data = os.urandom(5_000_000)
    (tmp_path / "up").write_bytes(data)
    assert get("/echo", "--data-binary", f"@{tmp_path}/up") == (0, 200, data)
    code, status, text = get("/slow", "-T", str(tmp_path / "up"))
    assert (code, status) == (0, 200) and text.startswith(b"5000000 ")


def test_rate(get):
    begun = time.monotonic()
    assert get("/rate/100000")[2] == PATTERN[:100000]
    assert time.monotonic() - begun > 0.6


# --- back-pressure: no memory grows with what a peer sends or does not read ------------------------------------------------

def test_reader_that_does_not_read(fixture):
    f = fixture(loops=1)
    f.stats()
    before = f.memory()
    conns = []
    for i in range(20):
        s = f.connect()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.sendall(b"GET /mem/16000000 HTTP/1.1\r\nHost: t\r\n\r\n" * 50)
        conns.append(s)
        c = H2(f.connect(), struct.pack(">HI", 4, 0x7fffffff))
        c.send(WINDOW, 0, 0, struct.pack(">I", 0x7fff0000))
        for k in range(40):
            c.get(2 * k + 1, b"/mem/16000000")
        conns.append(c.sock)
    begun(f, 20 + 20 * 40)
    time.sleep(0.3)
    assert f.memory() - before < 40 * 400_000
    for s in conns:
        s.close()
    f.wait_for(lambda s: s["open"] == 1)


def test_paused_upload_holds_the_sender(fixture):
    f = fixture(loops=1)
    f.stats()
    before = f.memory()
    s = f.connect()
    s.sendall(b"POST /late/60000 HTTP/1.1\r\nHost: t\r\nContent-Length: 1000000000\r\n\r\n")
    s.settimeout(1)
    with pytest.raises(TimeoutError):
        for _ in range(1000):
            s.sendall(b"x" * 1_000_000)
    assert f.memory() - before < 1_000_000
    s.close()
    with H2sock(f) as c:
        c.send(HEADERS, END_HEADERS, 1, request(b"/late/60000", method=b"POST"))
        c.until(SETTINGS)
        for _ in range(3):
            c.send(DATA, 0, 1, b"x" * 16384)
        c.send(PING, payload=b"12345678")
        c.until(PING)
        assert not any(k == WINDOW and sid == 1 for k, _, sid, _ in c.frames)
        c.send(DATA, 0, 1, b"x" * 16384)  # 65536: one too many
        c.send(DATA, 0, 1, b"x" * 16384)
        assert c.until(RST, GOAWAY) is not None


def test_upload_window_follows_the_reader(shared):
    with H2sock(shared) as c:
        c.send(HEADERS, END_HEADERS, 1, request(b"/discard", method=b"POST"))
        sent, window, connection = 0, 65535, 65535
        while sent < 3_000_000:
            while min(window, connection) < 16384:
                kind, _, sid, payload = c.until(WINDOW)
                more = int.from_bytes(payload, "big")
                window, connection = (window + more, connection) if sid else (window, connection + more)
            c.send(DATA, 0, 1, b"x" * 16384)
            sent, window, connection = sent + 16384, window - 16384, connection - 16384
        c.send(DATA, END_STREAM, 1)
        assert c.answer(1)[1].startswith(b"%d " % sent)


def test_a_reset_upload_gives_its_window_back(fixture):
    """What was held for a handler that never took it must not stay owed by the connection."""
    with H2sock(fixture(loops=1)) as c:
        connection = 65535
        for stream in range(1, 401, 2):
            c.send(HEADERS, END_HEADERS, stream, request(b"/late/60000", method=b"POST"))
            for _ in range(3):
                while connection < 16384:
                    _, _, sid, payload = c.until(WINDOW)
                    connection += 0 if sid else int.from_bytes(payload, "big")
                c.send(DATA, 0, stream, b"x" * 16384)
                connection -= 16384
            c.send(RST, 0, stream, (8).to_bytes(4, "big"))


def test_an_answer_gives_back_the_window_of_what_came_before_it(fixture):
    """The answer comes while the body waits for a handler: who sends the whole body first must be able to."""
    f = fixture(loops=1)
    f.connect().close()
    with H2sock(f) as c:
        c.send(HEADERS, END_HEADERS, 1, request(b"/late/200", method=b"POST", extra=[(b"content-length", b"131070")]))
        for _ in range(3):
            c.send(DATA, 0, 1, b"x" * 16384)
        c.send(DATA, 0, 1, b"x" * 16383)
        window = 0
        while window < 65535:  # of the stream: all that it began with
            kind, _, sid, payload = c.until(WINDOW, RST)
            assert kind == WINDOW
            window += int.from_bytes(payload, "big") if sid else 0
        for _ in range(4):
            c.send(DATA, 0, 1, b"x" * 16383)
        c.send(DATA, END_STREAM, 1, b"x" * 3)
        c.get(3)
        assert c.answer(3)[1] == b"hello\n"


# --- time ---------------------------------------------------------------------------------------------------------------------

# One server for each of them: where its deadline is the only short one, who is slow to speak runs into no other.
LONG_MS = 3_600_000  # no deadline


def patient(fixture, **limits):
    return fixture(**{"header_ms": LONG_MS, "idle_ms": LONG_MS, "handshake_ms": LONG_MS, "stall_ms": LONG_MS, "loops": 1, **limits})


def test_slow_heads(fixture):
    f = patient(fixture, header_ms=500)
    with f.connect() as s, H2sock(f) as c:
        s.sendall(b"GET /hello HTTP/1.1\r\nHost: ")
        c.send(HEADERS, 0, 1, request())
        assert status_of(read_all(s)) == 408
        assert c.end() == CALM


def test_silent_handshakes(fixture):
    f = patient(fixture, handshake_ms=500)
    with socket.create_connection(("127.0.0.1", f.tls_port), PATIENCE_S) as s:
        assert read_all(s) == b""


def test_idle_connections(fixture):
    f = patient(fixture, idle_ms=700)
    with f.connect() as s:
        assert read_all(s) == b""
    ends = set()
    for _ in range(50):  # it may be idle for too long before it has said that it speaks HTTP/2
        try:
            with H2sock(f) as c:
                ends.add(c.end() if c.until(SETTINGS) else None)
        except OSError:
            continue
        if ends & {NO_ERROR}:
            break
    assert ends <= {NO_ERROR, None} and NO_ERROR in ends


def test_stalled_bodies(fixture):
    """Uploads that trickle, answers that nobody reads."""
    f = patient(fixture, stall_ms=700)
    with f.connect() as upload, f.connect() as unread, H2sock(f, settings=struct.pack(">HI", 4, 0)) as starved:
        upload.sendall(b"POST /discard HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\nx")
        unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        unread.sendall(b"GET /mem/16000000 HTTP/1.1\r\nHost: t\r\n\r\n")
        starved.get(1)
        read_all(upload)
        assert starved.until(RST, stream=1) is not None
        f.wait_for(lambda s: s["open"] == 1 + 1)  # starved's connection is idle now


def test_readers_below_the_minimum_rate(fixture):
    """Who takes a byte now and then holds a place for ever; on HTTP/2 the stream, or all of the connection."""
    f = patient(fixture, **{"reader.bytes_per_s": 10**9, "reader.over_ms": 1000})
    with f.connect() as slow, H2sock(f, settings=struct.pack(">HI", 4, 0)) as stream:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(b"GET /mem/16000000 HTTP/1.1\r\nHost: t\r\n\r\n")
        stream.get(1, path=b"/mem/16000000")
        until, ended = time.monotonic() + PATIENCE_S, None
        stream.sock.settimeout(0.2)
        while ended is None and time.monotonic() < until:
            with contextlib.suppress(TimeoutError, OSError):
                stream.send(WINDOW, 0, 1, struct.pack(">I", 1))
                ended = stream.until(RST, stream=1)
        assert ended is not None
        assert f.wait_for(lambda s: s["incomplete"] >= 2)["limited"] >= 2


def test_a_slow_origin_is_no_slow_reader(fixture):
    f = patient(fixture, **{"reader.bytes_per_s": 10**9, "reader.over_ms": 1000})
    with H2sock(f) as c:
        got = f.h1(b"GET /grow/60000 HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
        assert len(got.split(b"\r\n\r\n", 1)[1]) == 60000
        c.get(1, path=b"/grow/60000")
        assert len(c.answer(1)[1]) == 60000


def test_a_body_that_stops_behind_its_answer(fixture):
    """Answered, and the request's body never ends: such a stream does not keep its connection for good."""
    f = patient(fixture, stall_ms=700, idle_ms=6000)
    with H2sock(f) as c:
        c.send(HEADERS, END_HEADERS, 1, request(method=b"POST", extra=[(b"content-length", b"10")]))
        assert c.answer(1)[1] == b"hello\n"
        c.send(DATA, 0, 1, b"x")
        assert c.until(RST, stream=1) is not None
        assert c.end() == NO_ERROR


def test_upload_below_the_minimum_rate(fixture):
    f = fixture(stall_ms=60000, min_rate_bytes_per_s=100000, loops=1)
    s = f.connect()
    s.sendall(b"POST /discard HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n\r\n")
    s.settimeout(0.5)
    begun = time.monotonic()
    while time.monotonic() - begun < PATIENCE_S:
        try:
            s.sendall(b"x" * 100)
            if s.recv(1000) == b"":
                break
        except TimeoutError:
            continue
        except OSError:
            break
    else:
        pytest.fail("still open")
    assert f.stats()["gone"] == 1


# --- HTTP/2 ----------------------------------------------------------------------------------------------------------------

BAD_H2 = {
    "connection field": dict(extra=[(b"connection", b"close")]),
    "transfer-encoding": dict(extra=[(b"transfer-encoding", b"chunked")]),
    "upper case": dict(extra=[(b"X-Thing", b"1")]),
    "CR in a value": dict(extra=[(b"x", b"a\rb")]),
    "NUL in a value": dict(extra=[(b"x", b"a\0b")]),
    "two paths": dict(extra=[(b":path", b"/")]),
    "late pseudo field": dict(extra=[(b"x", b"1"), (b":path", b"/")]),
    "path without a slash": dict(path=b"hello"),
    "blank in the path": dict(path=b"/a b"),
    "length without a body": dict(extra=[(b"content-length", b"5")]),
    "two lengths": dict(extra=[(b"content-length", b"0"), (b"content-length", b"0")]),
    "other host": dict(extra=[(b"host", b"elsewhere")]),
    "authority with a user": dict(authority=b"u@t"),
}


@pytest.mark.parametrize("name", BAD_H2)
def test_h2_refuses(shared, name):
    with H2sock(shared) as c:
        c.get(1, **BAD_H2[name])
        kind, flags, _, payload = c.until(HEADERS, RST, stream=1)
        assert kind == RST or payload[:1] == b"\x8c"  # 400 in the static table
        c.get(3)
        assert c.answer(3)[1] == b"hello\n"


def test_h2_header_list_is_bounded(shared):
    for extra in ([(b"x", b"a" * 1000)] * 40, [(b"x", b"a")] * 120):
        with H2sock(shared) as c:
            block = request(extra=extra)
            c.send(HEADERS, END_STREAM, 1, block[:16000])
            for i in range(16000, len(block), 16000):
                c.send(CONTINUATION, 0, 1, block[i:i + 16000])
            c.send(CONTINUATION, END_HEADERS, 1)
            head, body, code = c.answer(1)
            assert b"Request Header Fields" in body and code is None


FLOODS = {
    "PING": frame(PING, payload=b"12345678"),
    "SETTINGS": frame(SETTINGS),
    "PRIORITY": frame(2, 0, 1, b"\0\0\0\0\x10"),
    "empty DATA": frame(DATA, 0, 1),
    "unknown": frame(0x77, 0, 0, b"x" * 100),
    "WINDOW_UPDATE": frame(WINDOW, 0, 0, struct.pack(">I", 1)),
}


@pytest.mark.parametrize("name", FLOODS)
def test_h2_flood_ends_the_connection(shared, name):
    with H2sock(shared) as c:
        c.send(HEADERS, END_HEADERS, 1, request(b"/discard", method=b"POST"))
        c.sock.settimeout(20)
        burst = FLOODS[name] * 1000
        try:
            for _ in range(2000):
                c.sock.sendall(burst)
        except OSError:
            return
        pytest.fail("a flood was taken")


def test_h2_continuation_flood(shared):
    with H2sock(shared) as c:
        c.send(HEADERS, END_STREAM, 1, request())
        with pytest.raises(OSError):
            for _ in range(100000):
                c.send(CONTINUATION, 0, 1, b"")
            c.sock.settimeout(5)
            while True:
                c.sock.sendall(frame(CONTINUATION, 0, 1))


def test_h2_a_head_that_unpacks_to_megabytes(shared):
    """A byte a field, each of them long: refusing the request alone would leave us unpacking."""
    with H2sock(shared) as c:
        long = b"\x40\x01x\x7f\xa1\x1e" + b"a" * 4000  # into the table; behind it an index is enough
        c.send(HEADERS, END_HEADERS | END_STREAM, 1, request() + long + b"\xbe" * 10000)
        assert c.end() == CALM


def test_h2_answers_take_turns(shared):
    """Each has its own window; a large one leaves its place to the others after a few frames, whatever came first."""
    with H2sock(shared, settings=struct.pack(">HI", 4, 0x7fffffff)) as c:
        c.get(1, b"/mem/16000000")
        c.until(DATA, stream=1)
        c.get(3, b"/mem/100000")
        got = {1: 0, 3: 0}
        c.send(WINDOW, 0, 0, struct.pack(">I", 0x7fff0000))
        while got[3] < 100000:
            _, _, stream, payload = c.until(DATA)
            got[stream] += len(payload)
        assert got[1] < 16000000


def test_h2_rapid_reset(fixture):
    """Each reset frees its work at once; too many end the connection."""
    server = fixture(resets_per_s=1)  # whoever is slow earns no more of them
    with H2sock(server) as c:
        c.until(SETTINGS)
        try:
            for i in range(1000):
                c.sock.sendall(frame(HEADERS, END_HEADERS | END_STREAM, 2 * i + 1, request(b"/late/60000")) +
                               frame(RST, 0, 2 * i + 1, struct.pack(">I", 8)))
        except OSError:
            pass
        assert c.end() == CALM
    after = server.wait_for(lambda s: s["begun"] - s["ended"] == 1)
    assert after["gone"] < 300


def test_h2_made_you_reset(fixture):
    """Resets that we must send because the peer breaks the rules count the same."""
    server = fixture(resets_per_s=1)
    with H2sock(server) as c:
        c.until(SETTINGS)
        try:
            for i in range(1000):
                c.sock.sendall(frame(HEADERS, END_HEADERS | END_STREAM, 2 * i + 1, request(b"/late/60000")) +
                               frame(WINDOW, 0, 2 * i + 1, struct.pack(">I", 0)))
        except OSError:
            pass
        assert c.end() in (CALM, 1)
    server.wait_for(lambda s: s["begun"] - s["ended"] == 1)


def test_h2_streams_are_bounded(fixture):
    f = fixture(streams=10)
    with H2sock(f) as c:
        for i in range(30):
            c.get(2 * i + 1, b"/late/600000")
        while sum(k == RST for k, *_ in c.frames) < 20:
            assert c.hear()
        assert f.stats()["begun"] == 10 + 1


def test_h2_reset_while_sending(shared):
    """The connection goes on cleanly behind an answer that was given up in the middle."""
    with H2sock(shared, settings=struct.pack(">HI", 4, 0x7fffffff)) as c:
        c.send(WINDOW, 0, 0, struct.pack(">I", 0x7fff0000))
        for i in range(20):
            c.get(4 * i + 1, b"/mem/16000000")
            c.until(DATA, stream=4 * i + 1)
            c.send(RST, 0, 4 * i + 1, struct.pack(">I", 8))
            c.get(4 * i + 3, b"/mem/70000")
            assert c.answer(4 * i + 3)[1] == PATTERN[:70000]


def test_h2_failing_body_is_an_internal_error(shared):
    with H2sock(shared) as c:
        c.get(1, b"/fail/20000")
        head, body, code = c.answer(1)
        assert code == INTERNAL_ERROR and body == PATTERN[:20000]
        c.get(3)
        assert c.answer(3)[1] == b"hello\n"


def test_h2_large_frames_from_files(shared):
    """A peer that takes frames of 256 KiB gets them by sendfile, byte for byte, among other streams."""
    data = os.urandom(9_000_001)
    (shared.folder / "frames").write_bytes(data)
    with H2sock(shared, settings=struct.pack(">HIHI", 4, 0x7fffffff, 5, 1 << 20)) as c:
        c.send(WINDOW, 0, 0, struct.pack(">I", 0x7fff0000))
        bodies = {1: b"", 3: b"", 5: b""}
        c.get(1, b"/file/frames")
        c.get(3, b"/mem/1000000")
        c.get(5, b"/file/frames")
        open_streams, largest = set(bodies), 0
        while open_streams:
            kind, flags, sid, payload = c.hear()
            if kind == DATA:
                bodies[sid] += payload
                largest = max(largest, len(payload))
                if flags & END_STREAM:
                    open_streams.discard(sid)
        assert bodies[1] == data and bodies[5] == data and bodies[3] == PATTERN[:1000000] and largest > 200_000


def goaway(c):
    """The last GOAWAY's code, and how many RST_STREAM came before it."""
    code = c.end()
    return code, sum(kind == RST for kind, *_ in c.frames)


@pytest.mark.parametrize("length", [0, 4, 6, 200])
def test_h2_priority_of_a_wrong_length(shared, length):
    """RFC 9113 6.3: an error of the stream. Others go on; of a stream that was never opened, it is one of the connection."""
    with H2sock(shared) as c:
        c.send(HEADERS, END_HEADERS, 1, request(b"/discard", method=b"POST"))
        c.send(PRIORITY, 0, 1, b"\0" * length)
        assert c.answer(1)[2] == FRAME_SIZE_ERROR
        c.get(3)
        assert c.answer(3)[1:] == (b"hello\n", None)
        c.send(PRIORITY, 0, 3, b"\0" * length)  # closed
        assert c.until(RST, stream=3)[3] == struct.pack(">I", FRAME_SIZE_ERROR)
        c.send(PRIORITY, 0, 3, b"\0\0\0\0\x10")
        c.send(PRIORITY, 0, 99, b"\0\0\0\0\x10")
        c.get(5)
        assert c.answer(5)[1:] == (b"hello\n", None)
        c.send(PRIORITY, 0, 7, b"\0" * length)
        assert c.end() == FRAME_SIZE_ERROR


@pytest.mark.parametrize("opened, again, code", [
    ([5], 3, PROTOCOL_ERROR), ([1, 5], 3, PROTOCOL_ERROR), ([1, 3, 9, 11], 7, PROTOCOL_ERROR), ([3], 1, PROTOCOL_ERROR),
    ([1, 1001], 999, PROTOCOL_ERROR), ([1, 1001], 3, PROTOCOL_ERROR), ([1, 3, 5], 3, STREAM_CLOSED), ([1], 1, STREAM_CLOSED),
    ([3, 9], 3, STREAM_CLOSED), ([1, 3], 4, PROTOCOL_ERROR)])
def test_h2_heads_on_a_stream_that_is_behind(shared, opened, again, code):
    """RFC 9113 5.1.1: what was passed over cannot be opened any more; 5.1: what was ended cannot be opened again."""
    with H2sock(shared) as c:
        for stream in opened:
            c.get(stream)
            assert c.answer(stream)[1:] == (b"hello\n", None)
        c.get(again)
        assert goaway(c) == (code, 0)


def test_h2_heads_that_cross_our_reset(shared):
    """The peer's trailers were under way when we closed the stream: they are read, as later heads refer to them."""
    with H2sock(shared) as c:
        indexed = b"\x40\x01x\x03abc"  # into the table
        c.send(HEADERS, END_HEADERS, 1, request(b"/late/600000", method=b"POST"))
        c.send(WINDOW, 0, 1, struct.pack(">I", 0))
        assert c.until(RST, stream=1)
        c.get(3)
        assert c.answer(3)[1] == b"hello\n"
        c.send(HEADERS, END_HEADERS | END_STREAM, 1, indexed)
        c.send(HEADERS, END_HEADERS | END_STREAM, 5, request() + b"\xbe")  # what the trailer put there
        assert c.answer(5)[1:] == (b"hello\n", None)


def test_h2_heads_behind_a_refused_stream(fixture):
    f = fixture(streams=1)
    with H2sock(f) as c:
        c.get(1, b"/late/600000")
        c.send(HEADERS, END_HEADERS, 3, request(b"/discard", method=b"POST"))
        assert c.until(RST, stream=3)[3] == struct.pack(">I", 7)
        c.send(HEADERS, END_HEADERS | END_STREAM, 3, literal(b"x", b"y"))
        c.send(PING, 0, 0, b"12345678")
        assert c.until(PING, GOAWAY)[0] == PING


WRONG_PREFACES = {"its end": PREFACE[:-6] + b"XX\r\n\r\n", "its middle": b"PRI * HTTP/2.0\r\nHost: t\r\n\r\n" + frame(SETTINGS)}


@pytest.mark.parametrize("tls", [False, True], ids=["h2c", "tls"])
@pytest.mark.parametrize("preface", WRONG_PREFACES.values(), ids=WRONG_PREFACES)
def test_h2_wrong_preface(shared, preface, tls):
    """RFC 9113 3.4."""
    with shared.connect(tls=tls) as s:
        c = H2.__new__(H2)
        c.sock, c.rest, c.frames = s, b"", []
        s.sendall(preface)
        assert goaway(c) == (PROTOCOL_ERROR, 0)
        assert c.frames[0][0] == SETTINGS


def test_other_words_than_a_preface(shared):
    """Over TLS that has chosen h2, anything; in clear text it is HTTP/1, and answered there."""
    with shared.connect(tls=True) as s:
        c = H2.__new__(H2)
        c.sock, c.rest, c.frames = s, b"", []
        s.sendall(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
        assert goaway(c) == (PROTOCOL_ERROR, 0)
    assert shared.h1(b"PRI * HTTP/2.1\r\n\r\n").startswith(b"HTTP/1.1 ")


def test_h2_preface_in_pieces(shared):
    with shared.connect() as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for b in PREFACE + frame(SETTINGS) + frame(HEADERS, END_HEADERS | END_STREAM, 1, request()):
            s.sendall(bytes([b]))
        c = H2.__new__(H2)
        c.sock, c.rest, c.frames = s, b"", []
        assert c.answer(1)[1] == b"hello\n"


# --- TLS -------------------------------------------------------------------------------------------------------------------

def test_alpn_and_versions(shared):
    with shared.connect(tls=True) as s:
        assert s.selected_alpn_protocol() == "h2" and s.cipher()[0] == "TLS_AES_128_GCM_SHA256"
    with shared.connect(tls=True, alpn="http/1.1") as s:
        s.sendall(b"GET /hello HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
        assert read_all(s).endswith(b"hello\n")
    assert shared.h1(b"GET /hello HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").endswith(b"hello\n")


def test_certificate_is_reloaded(fixture, tmp_path):
    from harness.mirrord import certificate
    import ssl
    pair = certificate(tmp_path)
    f = Fixture(pair)
    try:
        old = ssl.get_server_certificate(("127.0.0.1", f.tls_port))
        certificate(tmp_path)
        f.process.send_signal(1)
        until = time.monotonic() + PATIENCE_S
        while (new := ssl.get_server_certificate(("127.0.0.1", f.tls_port))) == old and time.monotonic() < until:
            time.sleep(0.05)
        assert new != old
        pair[1].write_text("nonsense")
        f.process.send_signal(1)
        time.sleep(0.1)
        assert ssl.get_server_certificate(("127.0.0.1", f.tls_port)) == new
    finally:
        f.stop()


def test_garbage_instead_of_a_handshake(shared):
    with socket.create_connection(("127.0.0.1", shared.tls_port), timeout=PATIENCE_S) as s:
        s.sendall(b"GET / HTTP/1.1\r\n\r\n")
        read_all(s)


# --- many, and the end ---------------------------------------------------------------------------------------------------------

def test_ceiling_of_connections(fixture):
    """At it, idle ones end for new ones; those in use stay."""
    f = fixture(connections=10)
    busy = f.connect()
    busy.sendall(b"POST /discard HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nab")
    held = [f.connect() for _ in range(9)]
    for s in held:
        s.sendall(b"GET /hello HTTP/1.1\r\nHost: t\r\n\r\n")
        assert read_answer(s)[0] == 200
    time.sleep(0.3)  # a connection is idle when it was for 200 ms
    late = f.connect()
    late.sendall(b"GET /hello HTTP/1.1\r\nHost: t\r\n\r\n")
    assert read_answer(late)[0] == 200
    assert select.select(held, [], [], PATIENCE_S)[0]
    busy.sendall(b"c")
    assert read_answer(busy)[0] == 200
    for s in [*held, late, busy]:
        s.close()


def test_past_the_ceiling_they_wait(fixture):
    """Sixteen more are taken for the handler to judge; what comes then waits in the kernel, and nobody is thrown out."""
    f = fixture(connections=10)
    held = [f.connect() for _ in range(26)]
    for s in held:
        s.sendall(b"POST /discard HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nab")
    late = f.connect()
    late.sendall(b"GET /hello HTTP/1.1\r\nHost: t\r\n\r\n")
    late.settimeout(0.3)
    with pytest.raises(TimeoutError):
        late.recv(10)
    for s in held:
        s.sendall(b"c")
        assert read_answer(s)[0] == 200
    late.settimeout(PATIENCE_S)
    assert read_answer(late)[0] == 200
    for s in [*held, late]:
        s.close()


def test_drain(cert):
    f = Fixture(cert, drain_ms=PATIENCE_S * 1000)
    idle, busy, fresh = f.connect(), f.connect(), f.connect()
    idle.sendall(b"GET /hello HTTP/1.1\r\nHost: t\r\n\r\n")
    assert read_answer(idle)[0] == 200
    busy.sendall(b"POST /discard HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nab")
    c = H2(f.connect())
    c.send(HEADERS, END_HEADERS, 1, request(b"/discard", method=b"POST"))
    begun(f, 2)
    f.drain()
    assert read_all(idle) == b"" and read_all(fresh) == b""
    assert c.until(GOAWAY)
    busy.sendall(b"c")
    answer = read_all(busy)
    assert answer.split(b"\r\n\r\n", 1)[1].startswith(b"3 ") and b"connection: close" in answer
    c.send(DATA, END_STREAM, 1, b"abcd")
    assert c.answer(1)[1].startswith(b"4 ")
    c.end()
    assert [p[4:8] for k, _, _, p in c.frames if k == GOAWAY] == [bytes(4)] * 2  # a warning, then the last stream
    f.stop()


def test_drain_is_not_held_up(cert):
    """Whoever does not end by then is ended."""
    f = Fixture(cert, drain_ms=500)
    s = f.connect()
    s.sendall(b"GET /late/3600000 HTTP/1.1\r\nHost: t\r\n\r\n")
    begun(f, 1)
    f.stop()
    assert read_all(s) == b""
