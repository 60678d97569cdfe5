"""RFC 9113 frame by frame: what a peer may send, and what the answer is to what it may not. The bytes are our own."""
import socket
import struct
import time

import pytest

from harness.http import CALM, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, H2, HEADERS, PING, RST, SETTINGS, WINDOW
from harness.http import PATIENCE_S, Fixture, frame, literal, request
from harness.mirrord import certificate

PRIORITY, PUSH_PROMISE, PADDED, PRIORITIZED, ACK = 2, 5, 8, 0x20, 1
NO_ERROR, PROTOCOL, INTERNAL, FLOW, SETTINGS_TIMEOUT, CLOSED, SIZE, REFUSED, CANCEL, COMPRESSION = range(10)
POST = request(b"/discard", method=b"POST")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return certificate(tmp_path_factory.mktemp("cert"))


@pytest.fixture(scope="module")
def shared(certificates, tmp_path_factory):
    f = Fixture(certificates, folder=tmp_path_factory.mktemp("www"))
    yield f
    f.stop()


@pytest.fixture
def client(shared):
    with shared.connect() as s:
        yield H2(s)


def head(stream, block, flags=END_HEADERS | END_STREAM):
    return frame(HEADERS, flags, stream, block)


def setting(*pairs):
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *p) for p in pairs))


def window(stream, n):
    return frame(WINDOW, 0, stream, struct.pack(">I", n))


OPEN = head(1, POST, END_HEADERS)  # a request whose body is to come
GET = head(1, request())
WHOLE = OPEN + frame(DATA, END_STREAM, 1, b"x")

BREAKS = {  # section of the RFC, and what: the bytes; the connection ends with this code, or one of these
    "3.4 no SETTINGS behind the preface": (frame(PING, 0, 0, b"8" * 8), PROTOCOL),
    "4.2 HEADERS beyond the largest frame": (head(1, request(extra=[(b"x", b"a" * 17000)])), SIZE),
    "4.2 SETTINGS beyond the largest frame": (frame(SETTINGS, 0, 0, b"\0" * 16386), SIZE),
    "4.3 a block that is not HPACK": (head(1, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), COMPRESSION),
    "4.3 another stream inside a block": (head(1, request(), END_STREAM) + head(3, request()), PROTOCOL),
    "5.1 DATA on an idle stream": (frame(DATA, END_STREAM, 1, b"x"), PROTOCOL),
    "5.1 RST_STREAM on an idle stream": (frame(RST, 0, 1, struct.pack(">I", CANCEL)), PROTOCOL),
    "5.1 WINDOW_UPDATE on an idle stream": (window(1, 100), PROTOCOL),
    "5.1 CONTINUATION on an idle stream": (frame(CONTINUATION, END_HEADERS, 1, request()), PROTOCOL),
    "5.1.1 an even stream": (head(2, request()), PROTOCOL),
    "5.5 an unknown frame inside a block": (head(1, request(), END_STREAM) + frame(0x77, 0, 0, b"x"), PROTOCOL),
    "6.1 DATA on stream 0": (OPEN + frame(DATA, 0, 0, b"x"), PROTOCOL),
    "6.1 padding longer than the frame": (OPEN + frame(DATA, PADDED | END_STREAM, 1, b"\x06hello"), PROTOCOL),
    "6.1 padded and empty": (OPEN + frame(DATA, PADDED | END_STREAM, 1, b""), (PROTOCOL, SIZE)),
    "6.2 HEADERS on stream 0": (head(0, request()), PROTOCOL),
    "6.2 PRIORITY inside a block": (head(1, request(), END_STREAM) + frame(PRIORITY, 0, 1, b"\0\0\0\0\0"), PROTOCOL),
    "6.2 padding longer than the block": (frame(HEADERS, PADDED | END_HEADERS | END_STREAM, 1, b"\xff" + request()), PROTOCOL),
    "6.3 PRIORITY on stream 0": (frame(PRIORITY, 0, 0, b"\0\0\0\0\0"), PROTOCOL),
    "6.4 RST_STREAM on stream 0": (frame(RST, 0, 0, b"\0\0\0\x08"), PROTOCOL),
    "6.4 a short RST_STREAM": (OPEN + frame(RST, 0, 1, b"\0\0\x08"), SIZE),
    "6.5 SETTINGS on a stream": (frame(SETTINGS, 0, 1), PROTOCOL),
    "6.5 an acknowledgement that says something": (frame(SETTINGS, ACK, 0, b"\0\3\0\0\0\1"), SIZE),
    "6.5 a setting cut short": (frame(SETTINGS, 0, 0, b"\0\3\0\0\0"), SIZE),
    "6.5 more settings than there are": (setting(*[(4, i) for i in range(33)]), CALM),
    "6.5.2 push neither on nor off": (setting((2, 2)), PROTOCOL),
    "6.5.2 a window too large": (setting((4, 1 << 31)), FLOW),
    "6.5.2 frames too small": (setting((5, 16383)), PROTOCOL),
    "6.5.2 frames too large": (setting((5, 1 << 24)), PROTOCOL),
    "6.6 PUSH_PROMISE from a client": (OPEN + frame(PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\2" + request()), PROTOCOL),
    "6.7 PING on a stream": (frame(PING, 0, 1, b"8" * 8), PROTOCOL),
    "6.7 a short PING": (frame(PING, 0, 0, b"8" * 6), SIZE),
    "6.8 GOAWAY on a stream": (frame(GOAWAY, 0, 1, b"\0" * 8), PROTOCOL),
    "6.9 no increment for the connection": (window(0, 0), PROTOCOL),
    "6.9 a short WINDOW_UPDATE": (frame(WINDOW, 0, 0, b"\0\0\1"), SIZE),
    "6.9.1 the connection's window overflows": (window(0, 0x7fffffff) * 2, FLOW),
    "6.10 CONTINUATION on stream 0": (head(1, request(), END_STREAM) + frame(CONTINUATION, END_HEADERS, 0, b""), PROTOCOL),
    "6.10 CONTINUATION behind a whole block": (GET + frame(CONTINUATION, END_HEADERS, 1, b""), PROTOCOL),
    "6.10 CONTINUATION behind DATA": (OPEN + frame(DATA, 0, 1, b"x") + frame(CONTINUATION, END_HEADERS, 1, b""), PROTOCOL),
    "7541 2.3.3 an index that is not there": (head(1, b"\xff\x80\x01"), COMPRESSION),
    "7541 4.2 a table update behind a field": (head(1, request() + b"\x20"), COMPRESSION),
    "7541 6.3 a table larger than allowed": (head(1, b"\x3f\xe1\x3f" + request()), COMPRESSION),
    "7541 5.2 EOS inside a string": (head(1, request() + b"\0\x85\xf2\xb2\x4a\x84\xff\x84\xff\xff\xff\xff"), COMPRESSION),
    "7541 5.2 a long padding": (head(1, request() + b"\0\x85\xf2\xb2\x4a\x84\xff\x83\x49\x50\xff\xff"), COMPRESSION),
}


@pytest.mark.parametrize("name", BREAKS)
def test_connection_errors(shared, name):
    """GOAWAY with the code, then the end."""
    bytes_, codes = BREAKS[name]
    with shared.connect() as s:
        c = H2(s, bare=name.startswith("3.4"))
        s.sendall(bytes_)
        code = c.end()
    assert code in (codes if isinstance(codes, tuple) else (codes,))


RESETS = {  # the stream ends with this code, others go on
    "5.1 DATA behind the end": (WHOLE + frame(DATA, END_STREAM, 1, b"x"), CLOSED),
    "5.1 HEADERS behind the end": (WHOLE + head(1, request()), CLOSED),
    "6.9 no increment for a stream": (OPEN + window(1, 0), PROTOCOL),
    "6.9.1 a stream's window overflows": (OPEN + window(1, 0x7fffffff) * 2, FLOW),
    "8.1 a second head that ends nothing": (OPEN + frame(DATA, 0, 1, b"x") + head(1, literal(b"x", b"1"), END_HEADERS), PROTOCOL),
    "8.1 a pseudo field in the trailer": (OPEN + head(1, literal(b":path", b"/")), PROTOCOL),
    "8.1.1 less body than announced": (head(1, POST + literal(b"content-length", b"5"), END_HEADERS) + frame(DATA, END_STREAM, 1, b"x"), PROTOCOL),
    "8.1.1 more body than announced": (head(1, POST + literal(b"content-length", b"1"), END_HEADERS) + frame(DATA, 0, 1, b"xx"), PROTOCOL),
    "8.3 an unknown pseudo field": (head(1, request(extra=[(b":test", b"1")])), PROTOCOL),
    "8.3 an answer's pseudo field": (head(1, request(extra=[(b":status", b"200")])), PROTOCOL),
    "8.3.1 no method": (head(1, request()[len(literal(b":method", b"GET")):]), PROTOCOL),
    "8.3.1 no path": (head(1, literal(b":method", b"GET") + literal(b":scheme", b"http") + literal(b":authority", b"t")), PROTOCOL),
    "8.3.1 no scheme": (head(1, literal(b":method", b"GET") + literal(b":path", b"/hello") + literal(b":authority", b"t")), PROTOCOL),
    "8.3.1 two methods": (head(1, request(extra=[(b":method", b"GET")])), PROTOCOL),
    "8.3.1 two schemes": (head(1, request(extra=[(b":scheme", b"http")])), PROTOCOL),
    "8.3.1 an empty path": (head(1, request(path=b"")), PROTOCOL),
    "8.2.2 keep-alive": (head(1, request(extra=[(b"keep-alive", b"5")])), PROTOCOL),
    "8.2.2 proxy-connection": (head(1, request(extra=[(b"proxy-connection", b"x")])), PROTOCOL),
    "8.2.2 upgrade": (head(1, request(extra=[(b"upgrade", b"h2c")])), PROTOCOL),
    "8.2.2 te": (head(1, request(extra=[(b"te", b"trailers, deflate")])), PROTOCOL),
}


@pytest.mark.parametrize("name", RESETS)
def test_stream_errors(client, name):
    """The stream is reset, or refused with 400; or the connection ends, as 5.4 allows for all of them."""
    bytes_, code = RESETS[name]
    client.sock.sendall(bytes_ + head(3, request()))
    told, hello = None, False
    while told is None or not hello:
        f = client.hear()
        assert f is not None, client.frames
        kind, flags, stream, payload = f
        if kind == GOAWAY:
            assert int.from_bytes(payload[4:8], "big") == code
            return
        if stream == 1 and kind == RST:
            told = int.from_bytes(payload, "big")
        elif stream == 1 and kind == HEADERS and payload[:1] == b"\x8c":
            told = code
        hello = hello or (stream == 3 and kind == DATA and payload == b"hello\n")
    assert told == code, client.frames


LATE = frame(DATA, END_STREAM, 1, b"x")


@pytest.mark.parametrize("before", [GET, WHOLE], ids=["without a body", "with one"])
def test_data_after_both_ends(client, before):
    """6.1: the answer has ended, too. The frame is answered by a reset of its stream, once, and the connection goes on."""
    client.sock.sendall(before)
    client.answer(1)
    client.sock.sendall(LATE + LATE + head(3, request()))
    assert client.answer(3)[1] == b"hello\n"
    assert [f[3] for f in client.frames if f[0] == RST] == [struct.pack(">I", CLOSED)]


def test_data_after_the_peers_own_reset(client):
    client.sock.sendall(OPEN + frame(RST, 0, 1, struct.pack(">I", CANCEL)) + LATE + head(3, request()))
    assert client.answer(3)[1] == b"hello\n"
    assert [(f[2], f[3]) for f in client.frames if f[0] == RST] == [(1, struct.pack(">I", CLOSED))]


def test_a_head_after_the_peers_own_reset(shared):
    with shared.connect() as s:
        c = H2(s)
        s.sendall(OPEN + frame(RST, 0, 1, struct.pack(">I", CANCEL)) + head(1, request()))
        assert c.end() == CLOSED


def test_data_that_was_under_way_when_we_reset_its_stream(client):
    """5.1: the peer could not know yet. A window's overflow resets the stream; what follows on it is nothing."""
    client.sock.sendall(OPEN + window(1, 0x7fffffff) + LATE + head(3, request()))
    assert client.answer(3)[1] == b"hello\n"
    assert [f[3] for f in client.frames if f[0] == RST] == [struct.pack(">I", FLOW)]


FINE = {  # all of it is taken; the PING behind it is answered and so is a request
    "4.1 an unknown frame": frame(0x77, 0xff, 0, b"x" * 100) + frame(0x77, 0, 9, b""),
    "4.1 flags that mean nothing": frame(PING, 0x16, 0, b"12345678"),
    "4.1 the reserved bit": b"\0\0\x08\x06\0\x80\0\0\0" + b"12345678",
    "5.3 what was a dependency on itself": frame(PRIORITY, 0, 7, b"\0\0\0\7\xff"),
    "6.5.2 an unknown setting": setting((0xff, 1), (0x7777, 0xffffffff)),
    "6.5.2 an identifier twice": setting((4, 1), (4, 65535)),
    "6.7 an acknowledged PING": frame(PING, ACK, 0, b"nobodyis"),
    "6.8 GOAWAY with debug data": b"",
    "6.9 the largest window": window(0, 0x7fffffff - 65535),
    "6.10 a block in pieces": frame(HEADERS, END_STREAM, 1, request()[:5]) + frame(CONTINUATION, 0, 1, b"") + frame(CONTINUATION, END_HEADERS, 1, request()[5:]),
    "6.1 padded DATA": OPEN + frame(DATA, PADDED, 1, b"\x05hello" + b"\0" * 5) + frame(DATA, PADDED | END_STREAM, 1, b"\0"),
    "6.2 padded and prioritized HEADERS": frame(HEADERS, PADDED | PRIORITIZED | END_HEADERS | END_STREAM, 1, b"\x04" + b"\0\0\0\0\x10" + request() + b"\0" * 4),
    "8.1 trailers": OPEN + frame(DATA, 0, 1, b"x") + head(1, literal(b"x", b"1")),
    "8.2.2 te: trailers": head(1, request(extra=[(b"te", b"trailers")])),
    "8.2.3 cookies in crumbs": head(1, request(extra=[(b"cookie", b"a=b"), (b"cookie", b"c=d")])),
    "7541 4.2 a table update in front": head(1, b"\x20" + request()),
    "5.1 frames for a stream that we closed": GET + window(1, 10) + frame(PRIORITY, 0, 1, b"\0\0\0\0\x10") + frame(RST, 0, 1, b"\0\0\0\x08"),
}


@pytest.mark.parametrize("name", FINE)
def test_what_is_allowed(client, name):
    client.sock.sendall(FINE[name] + frame(PING, 0, 0, b"theirend"))
    while (f := client.until(PING, GOAWAY)) is not None and f[3] != b"theirend":
        assert f[0] == PING and f[1] == ACK and f[3] == b"12345678", f
    assert f is not None and f[:3] == (PING, ACK, 0)
    client.get(101)
    assert client.answer(101)[1] == b"hello\n"


def test_settings_are_acknowledged(client):
    client.sock.sendall(setting((4, 100)) + setting((4, 200)))
    for _ in range(3):
        while (f := client.until(SETTINGS)) is not None and not f[1] & ACK:
            pass
        assert f is not None and f[3] == b""


def test_windows_are_kept(client):
    """6.9.1, 6.9.2: not a byte more than both windows allow, through a window that becomes negative."""
    client.sock.sendall(setting((4, 4)) + head(1, request()) + frame(PING, 0, 0, b"theirend"))
    client.until(PING)
    while sum(len(f[3]) for f in client.frames if f[0] == DATA) < 4:
        assert client.hear() is not None
    client.sock.sendall(setting((4, 2)) + window(1, 2) + frame(PING, 0, 0, b"secondly"))
    client.until(PING)
    assert b"".join(f[3] for f in client.frames if f[0] == DATA) == b"hell"
    client.sock.sendall(window(1, 100))
    client.until(DATA, stream=1)
    while not any(f[0] == DATA and f[1] & END_STREAM for f in client.frames):
        assert client.hear() is not None
    assert b"".join(f[3] for f in client.frames if f[0] == DATA) == b"hello\n"


def test_head_is_refused_without_a_body(client):
    client.sock.sendall(head(1, request(path=b"hello", method=b"HEAD")) + head(3, request()))
    block, body, _ = client.answer(1)
    assert (block[:1], body) == (b"\x8c", b"")
    assert client.answer(3)[1] == b"hello\n"


# --- peers that read slowly, and ends ----------------------------------------------------------------------------------------

def slow_reader(fixture):
    """Windows as large as they can be, and a kernel that takes little."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * 1024)
    s.settimeout(PATIENCE_S)
    s.connect(("127.0.0.1", fixture.port))
    c = H2(s, settings=struct.pack(">HI", 4, 0x7fffffff))
    s.sendall(window(0, 0x7fffffff - 65535))
    return c


def test_an_answer_is_decided_while_nothing_can_be_said(shared):
    """Its handler hears the body's end, and answers, at a moment when another answer fills the wire."""
    c = slow_reader(shared)
    with c.sock as s:
        c.get(1, b"/mem/16000000")
        time.sleep(0.3)
        s.sendall(head(3, request(b"/slow", method=b"POST"), END_HEADERS) + frame(DATA, 0, 3, b"x") + frame(DATA, END_STREAM, 3, b"y"))
        shared.wait_for(lambda stats: stats["uploaded"] >= 2)
        assert c.answer(3)[1].startswith(b"2 ")


def test_streams_that_wait_for_their_turn(shared, certificates):
    """A round of all of them takes longer than a stream may stand still; the peer reads all the time, or is away for less than that."""
    f = Fixture(certificates, stall_ms=6000)
    c = slow_reader(f)
    with c.sock:
        for i in range(60):
            c.get(1 + 2 * i, b"/mem/1000000")
        began, heard = time.monotonic(), 0
        while time.monotonic() < began + 20:
            kind, _, _, payload = c.hear()
            assert kind != RST
            heard += len(payload)
            time.sleep(max(0, began + heard / 0.3e6 - time.monotonic()))
    f.stop()


@pytest.mark.parametrize("more", [window(3, 100), frame(DATA, END_STREAM, 3, b"x"), frame(RST, 0, 3, b"\0\0\0\x08")])
def test_frames_behind_the_last_stream(certificates, more):
    """6.8: a request that came too late is nothing, and so is what follows on its stream; those before it are served."""
    f = Fixture(certificates, drain_ms=PATIENCE_S * 1000)
    with f.connect() as s:
        c = H2(s)
        s.sendall(OPEN)  # it ends when we say so, behind what came too late
        f.wait_for(lambda stats: stats["begun"] >= 2)
        f.drain()
        while int.from_bytes(c.until(GOAWAY)[3][:4], "big") != 1:
            pass
        s.sendall(head(3, POST, END_HEADERS) + more + LATE)
        assert c.answer(1)[1].startswith(b"1 ")
    f.stop()


def test_the_last_answer_arrives(shared):
    """The peer gives window back for what it reads: that must not reset a connection whose answer is still on its way."""
    n = 4000000
    for _ in range(3):
        c = slow_reader(shared)
        with c.sock as s:
            c.get(1, b"/mem/%d" % n)
            s.sendall(frame(GOAWAY, 0, 0, b"\0" * 8))
            got = 0
            while got < n and (f := c.hear()) is not None:
                if f[0] == DATA:
                    got += len(f[3])
                    s.sendall(window(0, max(1, len(f[3]))))
                    time.sleep(0.01 if got > n - 600000 else 0)
            assert got == n
