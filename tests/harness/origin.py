#!/usr/bin/env python3
"""The fake origin: deterministic bytes of any size, counted, and lies to order.

In a Python test:   o = Origin(); o.put("/a.bin", size=1 << 20); o.url + "/a.bin"; o.stats("/a.bin").bytes; o.close()
From anything else: run it ("--port 0" prints the port), then GET
    /_origin/put?path=/a.bin&size=1048576&...   /_origin/stats?path=/a.bin   /_origin/sha256?path=/a.bin
    /_origin/bytes?path=/a.bin&first=0&end=10   /_origin/go?path=/a.bin   /_origin/forget   (none of these is counted)

What a path does is one Thing; its fields are the script. A path that was never put is a 404. Bytes depend on seed and
position alone: every 64 KiB begin with the seed and the block's number, so that a misplaced block shows.
"""

import pathlib
import sys

if __name__ == "__main__":
    sys.path[0] = str(pathlib.Path(__file__).resolve().parent.parent)  # our neighbour http.py is not the library's

import argparse
import dataclasses
import email.utils
import hashlib
import random
import socket
import struct
import threading
import time
import urllib.parse
from typing import Optional

from harness import serving

BLOCK = 64 << 10
STEP = 256 << 10


@dataclasses.dataclass
class Thing:
    size: int = 0
    seed: int = 1
    body: Optional[bytes] = None  # instead of size and seed
    status: int = 200             # other: an answer of that status, empty or of
    words: str = ""               # this
    times: int = 1 << 30          # `status`, `die_at`, `short`, `stall_at`, `no_head` happen so many times
    etag: str = "strong"          # strong, weak, none, or literally what is to be sent
    last_modified: int = 1600000000
    type: str = "application/octet-stream"
    fields: str = ""              # "name: value|name: value"
    by: str = ""                  # a request's field: where it says x, the thing "<path>#x" answers when there is one
    date: str = ""                # instead of now
    ranges: bool = True
    ignore_range: bool = False    # Accept-Ranges is said, then a 200 is sent
    rate: int = 0                 # bytes a second, per connection
    delay: float = 0.0            # before the head
    hold_at: int = -1             # no answer gives a byte from this one on, up to hold_end, until `go` is set
    hold_end: int = 1 << 60
    chunked: bool = False
    trailers: str = ""            # with `chunked`, behind its end: as `fields`
    unframed: bool = False        # no length at all: ends with the connection
    redirect: str = ""            # Location; with `status` 302 unless set
    # lies
    short: int = -1               # so many bytes, then the connection is cut
    wall_at: int = -1             # no answer gives a byte from this one on; then cut
    die_at: int = -1              # percent of this answer's bytes, then cut
    stall_at: int = -1            # then silence
    wrong_range: int = 0          # Content-Range is off by so much
    wrong_total: int = 0
    change_after: int = -1        # so many requests, then another generation: seed + 1
    flip_at: int = -1             # this byte is wrong
    endless: bool = False
    stale_304: bool = False       # every conditional request gets a 304 that names another generation
    no_head: bool = False         # the connection is cut before a head
    early_garbage: bool = False   # not HTTP
    # counters
    requests: int = 0
    heads: int = 0
    conditional: int = 0
    not_modified: int = 0
    ranged: int = 0
    bytes: int = 0
    authorized: int = 0           # requests that carried Authorization
    lied: int = 0
    spans: list = dataclasses.field(default_factory=list)
    asked: list = dataclasses.field(default_factory=list)  # with `by`: the fields of each request
    go: threading.Event = dataclasses.field(default_factory=threading.Event)

    def length(self):
        return len(self.body) if self.body is not None else self.size

    def generation(self):
        changed = 0 <= self.change_after < self.requests
        return self.seed + (1 if changed else 0)

    def tag(self, generation):
        if self.etag in ("strong", "weak"):
            return ("W/" if self.etag == "weak" else "") + '"o-%d-%d"' % (generation, self.length())
        return None if self.etag == "none" else self.etag


_bases = {}


def _base(seed):
    if seed not in _bases:
        _bases[seed] = random.Random(seed).randbytes(BLOCK - 16)
    return _bases[seed]


def span(seed, first, end):
    out = []
    at = first
    while at < end:
        index = at // BLOCK
        stop = min(end, (index + 1) * BLOCK)
        block = struct.pack(">QQ", seed, index) + _base(seed)
        out.append(block[at - index * BLOCK:stop - index * BLOCK])
        at = stop
    return b"".join(out)


class Handler(serving.Handler):
    def do_GET(self):
        self.answer()

    do_HEAD = do_GET

    def plain(self, status, text):
        data = text if isinstance(text, bytes) else text.encode()
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def admin(self, what, q):
        origin = self.server.origin
        path = q.pop("path", "")
        if what == "put":
            origin.put(path, **q)
            self.plain(200, "")
        elif what == "forget":
            origin.things.clear()
            self.plain(200, "")
        elif path not in origin.things:
            self.plain(404, "")
        elif what == "stats":
            t = origin.things[path]
            names = ("requests", "bytes", "heads", "conditional", "not_modified", "ranged", "authorized", "lied")
            self.plain(200, " ".join("%s=%d" % (n, getattr(t, n)) for n in names))
        elif what == "go":
            origin.things[path].go.set()
            self.plain(200, "")
        elif what == "spans":
            self.plain(200, " ".join("%d-%d" % s for s in origin.things[path].spans))
        elif what == "sha256":
            self.plain(200, origin.sha256(path))
        elif what == "bytes":
            self.plain(200, origin.bytes_of(path, int(q["first"]), int(q["end"])))

    def answer(self):
        parts = urllib.parse.urlsplit(self.path)
        if parts.path.startswith("/_origin/"):
            self.admin(parts.path[9:], dict(urllib.parse.parse_qsl(parts.query)))
            return
        origin = self.server.origin
        t = origin.things.get(self.path)
        with origin.lock:
            origin.requests += 1
            if t is None:
                origin.misses.append(self.path)
                self.plain(404, "")
                return
            if t.by:
                t.asked.append(self.headers)
                t = origin.things.get(f"{self.path}#{self.headers.get(t.by)}", t)
            t.requests += 1
            t.heads += self.command == "HEAD"
            t.authorized += "Authorization" in self.headers
            t.conditional += "If-None-Match" in self.headers or "If-Modified-Since" in self.headers
            lie = t.lied < t.times
            generation = t.generation()
        if t.delay:
            time.sleep(t.delay)
        self.tell(t, generation, lie)

    def extra(self, t, tag):
        if tag is not None:
            self.send_header("ETag", tag)
        if t.last_modified:
            self.send_header("Last-Modified", email.utils.formatdate(t.last_modified, usegmt=True))
        for line in filter(None, t.fields.split("|")):
            name, value = line.split(":", 1)
            self.send_header(name, value.strip())

    def pick(self, t, tag):
        """The range to send, or None for all."""
        value = self.headers.get("Range")
        if value is None or not t.ranges or t.ignore_range:
            return None
        condition = self.headers.get("If-Range")
        if condition is not None and (condition != tag or condition.startswith("W/")):
            return None
        first, _, last = value[6:].partition("-")
        if not first:
            return max(0, t.length() - int(last)), t.length()
        return int(first), min(t.length(), int(last) + 1 if last else t.length())

    def tell(self, t, generation, lie):
        def lied():
            with self.server.origin.lock:
                t.lied += 1

        tag = t.tag(generation)
        if lie and t.no_head:
            lied()
            self.cut()
            return
        if lie and t.early_garbage:
            lied()
            self.wfile.write(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
            self.cut()
            return
        if t.redirect:
            self.send_response_only(t.status if t.status != 200 else 302)
            self.send_header("Location", t.redirect)
            if t.short >= 0:  # the head is whole, its body is not
                self.send_header("Content-Length", str(t.short + 100))
                self.end_headers()
                self.wfile.write(b"x" * t.short)
                self.cut()
                return
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if t.status != 200 and lie:
            lied()
            if t.hold_at >= 0 and not self.let_go(t):
                return
            self.send_response_only(t.status)
            self.extra(t, None)
            if t.words:
                self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(t.words)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(t.words[:t.short if t.short >= 0 else None].encode())
            if t.short >= 0:
                self.cut()
            return
        known = self.headers.get("If-None-Match")
        since = self.headers.get("If-Modified-Since")
        if t.stale_304 and (known is not None or since is not None):
            t.not_modified += 1
            self.send_response_only(304)
            self.extra(t, '"another"')
            self.end_headers()
            return
        if (known is not None and tag in [x.strip() for x in known.split(",")]) or (
                known is None and since is not None and t.last_modified and
                since == email.utils.formatdate(t.last_modified, usegmt=True)):
            t.not_modified += 1
            self.send_response_only(304)
            self.extra(t, tag)
            self.end_headers()
            return
        part = self.pick(t, tag)
        if part is not None and part[0] >= t.length():
            self.send_response_only(416)
            self.send_header("Content-Range", "bytes */%d" % t.length())
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        first, end = part if part is not None else (0, t.length())
        self.send_response_only(206 if part is not None else 200)
        self.send_header("Date", t.date or email.utils.formatdate(usegmt=True))
        self.send_header("Content-Type", t.type)
        self.extra(t, tag)
        if t.ranges:
            self.send_header("Accept-Ranges", "bytes")
        if part is not None:
            t.ranged += 1
            self.send_header("Content-Range", "bytes %d-%d/%d" % (
                first + t.wrong_range, end - 1 + t.wrong_range, t.length() + t.wrong_total))
        chunked = t.chunked or t.endless
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif t.unframed:
            self.send_header("Connection", "close")
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(end - first))
        self.end_headers()
        if self.command == "HEAD":
            return
        t.spans.append((first, end))
        stop = end
        if lie and t.short >= 0:
            stop = min(stop, first + t.short)
        if lie and t.wall_at >= 0:
            stop = min(stop, max(first, t.wall_at))
        if lie and t.die_at >= 0:
            stop = min(stop, first + (end - first) * t.die_at // 100)
        silence = stop
        if lie and t.stall_at >= 0:
            silence = min(stop, first + t.stall_at)
        self.send_body(t, generation, first, silence, chunked)
        if silence < stop:
            lied()
            while not self.server.origin.closing and self.alive():
                time.sleep(0.02)
            self.cut()
        elif stop < end:
            lied()
            self.cut()
        elif chunked:
            trailers = "".join(f"{line.strip()}\r\n" for line in t.trailers.split("|") if line)
            self.wfile.write(f"0\r\n{trailers}\r\n".encode())

    def alive(self):
        self.connection.setblocking(False)
        try:
            return socket.socket.recv(self.connection, 1, socket.MSG_PEEK) != b""  # beneath TLS
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            self.connection.setblocking(True)

    def count(self, t, n):
        with self.server.origin.lock:
            t.bytes += n

    def let_go(self, t):
        """False: the client has gone, or the origin."""
        while not t.go.wait(0.02):
            if self.server.origin.closing or not self.alive():
                return False
        return True

    def send_body(self, t, generation, first, end, chunked):
        started = time.monotonic()
        step = min(STEP, max(1, t.rate // 50)) if t.rate else STEP
        at = first
        while at < end or t.endless:
            stop = at + step if t.endless else min(end, at + step)
            if 0 <= t.hold_at < stop and at < t.hold_end:
                if at < t.hold_at and not t.go.is_set():
                    stop = t.hold_at
                elif not self.let_go(t):
                    break
            data = t.body[at:stop] if t.body is not None else span(generation, at, stop)
            if at <= t.flip_at < stop:
                i = t.flip_at - at
                data = data[:i] + bytes([data[i] ^ 1]) + data[i + 1:]
            self.count(t, len(data))  # before the other side can have them: what a test has seen arrive is counted
            try:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data) if chunked else data)
            except OSError:
                self.count(t, -len(data))
                raise
            at = stop
            if t.rate:
                time.sleep(max(0, started + (at - first) / t.rate - time.monotonic()))


class Origin:
    def __init__(self, port=0, host="127.0.0.1", tls=None):
        self.things = {}
        self.misses = []
        self.requests = 0
        self.lock = threading.Lock()
        self.closing = False
        self.server = serving.Server((host, port), Handler)
        self.server.origin = self
        self.server.tls = tls
        self.host = host
        self.port = self.server.server_address[1]
        self.url = "%s://%s:%d" % ("https" if tls else "http", host, self.port)
        serving.run(self.server)

    def put(self, path, **script):
        """Scripts a path anew; its counters begin at 0. Values may be strings, as from a query."""
        kinds = {f.name: f.type for f in dataclasses.fields(Thing)}
        made = {}
        for name, value in script.items():
            kind = kinds[name]
            if isinstance(value, str) and kind is int:
                value = int(value)
            elif isinstance(value, str) and kind is float:
                value = float(value)
            elif isinstance(value, str) and kind is bool:
                value = value in ("1", "true", "yes")
            elif isinstance(value, str) and name == "body":
                value = value.encode()
            made[name] = value
        self.things[path] = Thing(**made)
        return self.things[path]

    def stats(self, path):
        return self.things[path]

    def bytes_of(self, path, first=0, end=None):
        t = self.things[path]
        end = t.length() if end is None else end
        return t.body[first:end] if t.body is not None else span(t.generation(), first, end)

    def sha256(self, path):
        t = self.things[path]
        h = hashlib.sha256()
        for at in range(0, t.length(), 1 << 20):
            h.update(self.bytes_of(path, at, min(t.length(), at + (1 << 20))))
        return h.hexdigest()

    def close(self):
        self.closing = True
        serving.stop(self.server)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--port", type=int, default=0)
    p.add_argument("--host", default="127.0.0.1")
    a = p.parse_args()
    o = Origin(a.port, a.host)
    print(o.port, flush=True)
    sys.stdin.read()  # until whoever started us goes
    o.close()


if __name__ == "__main__":
    main()
