"""A peer that speaks rsync's daemon protocol 31 as badly as a test wants: one script a connection, on a thread."""
import hashlib
import socket
import struct
import threading
import time

DATA, ERROR, NOOP, ERROR_EXIT, NO_SEND = 0, 3, 42, 86, 102


def varint(v, least=1, most=4):
    v &= (1 << 8 * most) - 1
    n = most
    while n > least and not v >> 8 * (n - 1):
        n -= 1
    more, top = n - least, v >> 8 * (n - 1)
    if top >= 1 << (7 - more):
        return bytes([0xff00 >> (more + 1) & 0xff]) + v.to_bytes(n, "little")
    return bytes([top | 0xff00 >> more & 0xff]) + (v & ((1 << 8 * (n - 1)) - 1)).to_bytes(n - 1, "little")


def entry(name, size=0, mode=0o100644, mtime=1600000000, flags=0x40, target=b""):
    out = varint(flags | 0x40) + varint(len(name)) + name
    out += varint(size, 3, 8) + varint(mtime, 4, 8) + struct.pack("<I", mode)
    return out + (varint(len(target)) + target if mode & 0o170000 == 0o120000 else b"")


LIST_END = b"\0\0"
TOP = entry(b".", mode=0o40755)


class Gone(Exception):
    pass


class Session:
    """What a script speaks through."""

    def __init__(self, sock):
        self.sock = sock
        self.data = b""
        self.last = -1

    def raw(self, b):
        try:
            self.sock.sendall(b)
        except OSError:
            raise Gone from None

    def frame(self, payload, code=DATA):
        for at in range(0, max(len(payload), 1), 1 << 20):
            piece = payload[at:at + (1 << 20)]
            self.raw(struct.pack("<I", (7 + code) << 24 | len(piece)) + piece)

    def exactly(self, n):
        out = b""
        while len(out) < n:
            try:
                got = self.sock.recv(n - len(out))
            except OSError:
                raise Gone from None
            if not got:
                raise Gone
            out += got
        return out

    def line(self):
        out = b""
        while not out.endswith(b"\n"):
            out += self.exactly(1)
        return out

    def read(self, n):
        """Data that the client framed."""
        while len(self.data) < n:
            head, = struct.unpack("<I", self.exactly(4))
            payload = self.exactly(head & 0xffffff)
            if head >> 24 == 7:
                self.data += payload
        out, self.data = self.data[:n], self.data[n:]
        return out

    def greet(self, sums=b"md5"):
        self.raw(b"@RSYNCD: 31.0 sha512 sha256 sha1 md5 md4\n")
        self.line()
        self.module = self.line()
        self.raw(b"@RSYNCD: OK\n")
        arguments = b""
        while not arguments.endswith(b"\0\0"):
            arguments += self.exactly(1)
        self.raw(varint(0x1fe) + bytes([len(sums)]) + sums)
        self.exactly(self.exactly(1)[0])
        self.raw(b"\x01\x02\x03\x04")
        while True:
            n, = struct.unpack("<I", self.read(4))
            if n == 0:
                break
            self.read(n)

    def request(self):
        """(index, head) of the next one, or None at a phase's end."""
        first = self.read(1)[0]
        if first == 0:
            return None
        if first == 0xfe:
            b = self.read(2)
            if b[0] & 0x80:
                low = self.read(2)
                index = (b[0] & 0x7f) << 24 | low[1] << 16 | low[0] << 8 | b[1]
            else:
                index = self.last + (b[0] << 8 | b[1])
        else:
            index = self.last + first
        self.last = index
        self.read(2)
        head = struct.unpack("<4I", self.read(16))
        self.read(head[0] * (4 + head[2]))
        return index, head

    def begin(self, index, head=(0, 0, 0, 0)):
        self.frame(b"\xfe" + bytes([0x80 | index >> 24, index & 255, index >> 8 & 255, index >> 16 & 255])
                   + b"\x00\x80" + struct.pack("<4I", *head))

    def literal(self, bytes_):
        self.frame(struct.pack("<i", len(bytes_)) + bytes_)

    def answer(self, index, bytes_, digest=None):
        self.begin(index)
        if bytes_:
            self.literal(bytes_)
        self.frame(struct.pack("<i", 0) + (digest or hashlib.md5(bytes_).digest()))

    def goodbye(self):
        """From the end of phase 0 on."""
        self.frame(b"\0")
        for _ in range(2):
            while self.request() is not None:
                pass
            self.frame(b"\0")
        self.frame(varint(1, 3, 8) * 5)
        self.request()
        self.frame(b"\0")
        self.request()

    def serve(self, files):
        """All that is asked for, as an honest peer."""
        while (asked := self.request()) is not None:
            self.answer(asked[0], files[asked[0]])
        self.goodbye()


class Peer:
    def __init__(self, script):
        self.script = script
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"rsync://127.0.0.1:{self.listener.getsockname()[1]}/m/"
        self.errors = []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            with sock:
                try:
                    self.script(Session(sock))
                except Gone:
                    pass
                except Exception as why:  # shown by the test
                    self.errors.append(repr(why))
            self.ended.set()

    def close(self):
        self.listener.close()


def trickle(session, bytes_, seconds):
    for b in bytes_:
        session.raw(bytes([b]))
        time.sleep(seconds)
