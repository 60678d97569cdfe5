"""Raw HTTP against http_fixture: bytes on a socket, and just enough of HTTP/2 to misbehave on purpose."""
import contextlib
import json
import os
import pathlib
import signal
import socket
import ssl
import struct
import subprocess
import time

from harness.mirrord import BUILD, SLOW

DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
CALM, NO_ERROR, INTERNAL_ERROR = 11, 0, 2
PROTOCOL_ERROR, STREAM_CLOSED, FRAME_SIZE_ERROR = 1, 5, 6
PATIENCE_S = 120 * SLOW  # with a slow machine; what it waits for never takes so long where all is well


class Fixture:
    """A running http_fixture; `limits` are the server's, in its own names."""

    def __init__(self, cert, folder=".", loops=2, drain_ms=5000, **limits):
        self.folder = pathlib.Path(folder)
        args = [str(BUILD / "harness/http_fixture"), "-l", "127.0.0.1:0", "-s", "127.0.0.1:0", "-c", str(cert[0]),
                "-k", str(cert[1]), "-r", str(folder), "-n", str(loops), "-d", str(drain_ms)]
        for name, value in limits.items():
            args += ["-o", f"{name}={value}"]
        self.process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.port, self.tls_port = (int(self.process.stdout.readline().rsplit(":", 1)[1]) for _ in range(2))

    def connect(self, tls=False, alpn="h2", **kw):
        s = socket.create_connection(("127.0.0.1", self.tls_port if tls else self.port), timeout=PATIENCE_S, **kw)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.set_alpn_protocols([alpn])
            s = context.wrap_socket(s)
        return s

    def h1(self, request, finish=False):
        """Sends bytes, returns all that comes until the server closes."""
        with self.connect() as s:
            s.sendall(request)
            if finish:
                s.shutdown(socket.SHUT_WR)
            return read_all(s)

    def stats(self):
        answer = self.h1(b"GET /stats HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
        return json.loads(answer.split(b"\r\n\r\n", 1)[1])

    def wait_for(self, condition, seconds=PATIENCE_S):
        """Asks for the stats until the condition holds; returns them."""
        until = time.monotonic() + seconds
        while True:
            stats = self.stats()
            if condition(stats) or time.monotonic() > until:
                assert condition(stats), stats
                return stats
            time.sleep(0.02)

    def memory(self):
        """Private bytes in memory; a sanitizer's shadow says nothing, so there it is 0."""
        if "address" in BUILD.name or "thread" in BUILD.name:
            return 0
        for line in pathlib.Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Private_Dirty:"):
                return int(line.split()[1]) * 1024
        return 0

    def drain(self):
        self.process.send_signal(signal.SIGTERM)

    def stop(self):
        if self.process.poll() is None:
            self.drain()
        try:
            _, log = self.process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            _, log = self.process.communicate()
        assert self.process.returncode == 0, log


def read_all(s):
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := s.recv(65536):
            parts.append(part)
    return b"".join(parts)


def read_answer(s, rest=b""):
    """One answer with Content-Length: (status, fields, body, rest)."""
    while b"\r\n\r\n" not in rest:
        part = s.recv(65536)
        if not part:
            raise EOFError(rest)
        rest += part
    head, rest = rest.split(b"\r\n\r\n", 1)
    lines = head.decode("latin-1").split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines[1:])
    need = int(fields.get("content-length", 0))
    while len(rest) < need:
        part = s.recv(65536)
        if not part:
            raise EOFError(rest)
        rest += part
    return int(lines[0].split()[1]), fields, rest[:need], rest[need:]


# --- HTTP/2 ------------------------------------------------------------------------------------------------------------

def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name, value):
    """HPACK: literal without indexing, no Huffman."""
    def text(b):
        if len(b) < 127:
            return bytes([len(b)]) + b
        n, out = len(b) - 127, [127]
        while n >= 128:
            out.append(n % 128 | 128)
            n //= 128
        return bytes(out + [n]) + b
    return b"\0" + text(name) + text(value)


def request(path=b"/hello", method=b"GET", extra=(), authority=b"t", scheme=b"http"):
    fields = [(b":method", method), (b":scheme", scheme), (b":path", path), (b":authority", authority), *extra]
    return b"".join(literal(n, v) for n, v in fields)


class H2:
    """A client that says what it is told to, and keeps what it hears."""

    def __init__(self, sock, settings=b"", bare=False):
        self.sock, self.rest, self.frames = sock, b"", []
        sock.sendall(PREFACE + (b"" if bare else frame(SETTINGS, payload=settings)))

    def send(self, *args, **kw):
        self.sock.sendall(frame(*args, **kw))

    def get(self, stream, path=b"/hello", **kw):
        self.send(HEADERS, END_HEADERS | END_STREAM, stream, request(path, **kw))

    def hear(self):
        """The next frame as (kind, flags, stream, payload), or None at the end."""
        while True:
            if len(self.rest) >= 9:
                n = int.from_bytes(self.rest[:3], "big")
                if len(self.rest) >= 9 + n:
                    f = (self.rest[3], self.rest[4], int.from_bytes(self.rest[5:9], "big"), self.rest[9:9 + n])
                    self.rest = self.rest[9 + n:]
                    self.frames.append(f)
                    return f
            try:
                part = self.sock.recv(65536)
            except (ConnectionResetError, ssl.SSLError, BrokenPipeError):
                part = b""
            if not part:
                return None
            self.rest += part

    def until(self, *kinds, stream=None):
        while f := self.hear():
            if f[0] in kinds and (stream is None or f[2] == stream):
                return f
        return None

    def answer(self, stream):
        """(first byte of the head's block, body, how it ended: None for END_STREAM, else the reset's code)."""
        head, body = None, b""
        while f := self.hear():
            kind, flags, sid, payload = f
            if sid != stream:
                continue
            if kind == HEADERS:
                head = payload
            elif kind == DATA:
                body += payload
            elif kind == RST:
                return head, body, int.from_bytes(payload, "big")
            if kind in (HEADERS, DATA) and flags & END_STREAM:
                return head, body, None
        raise EOFError(body)

    def end(self):
        """Hears everything until the server closes; returns the last GOAWAY's code, or None."""
        code = None
        while f := self.hear():
            if f[0] == GOAWAY:
                code = int.from_bytes(f[3][4:8], "big")
        return code
