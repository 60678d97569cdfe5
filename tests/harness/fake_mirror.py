"""A small mirror that does what a test tells it: serves files with or without chunk lists, and lies.

Speaks what mirrord promises to agents (HEAD with Repr-Digest and describedby, ranges, If-Range, chunk lists, blobs by
digest, folder listings, uploads with a commit). Every way to misbehave is an attribute of `Mirror`.
"""

import base64
import hashlib
import json
import re
import struct
import threading
import time
from urllib.parse import unquote, urlsplit

from harness import serving

CHUNK = 8 << 20


def chunk_list(data):
    parts = [hashlib.sha256(data[i:i + CHUNK]).digest() for i in range(0, len(data), CHUNK)]
    head = b"mrdchnk1" + struct.pack(">IIQ", 23, len(parts), len(data)) + sha256(data)
    return head + b"".join(parts)


def trickle(kind, over):
    """Answers to batches whose bytes come ten a second until it is over."""
    def answer(h, _digests):
        h.send_response(200)
        h.send_header("Content-Type", kind)
        h.send_header("Content-Length", "100000")
        h.end_headers()
        try:
            while not over.wait(0.1):
                h.wfile.write(b"\x00")
                h.wfile.flush()
        except OSError:
            h.close_connection = True
    return answer


_known = {}  # id of bytes -> (bytes, sha256): test files are large and asked for often


def sha256(data):
    if id(data) not in _known:
        _known[id(data)] = (data, hashlib.sha256(data).digest())
    return _known[id(data)][1]


class Mirror:
    """Runs on a free loopback port until close(). Set the attributes at any time."""

    def __init__(self):
        self.files = {}  # "/repo/path" -> bytes
        self.uploads = {}  # id -> {name: bytes}
        self.commits = []  # (folder, {name: bytes}, headers)
        self.log = []  # (method, path, range or None, status)
        self.sent = 0  # body bytes of GET
        self.chunks = True  # offer chunk lists
        self.digests = True  # send Repr-Digest
        self.etags = True
        self.lengths = True  # False: close-delimited
        self.endless = 0  # GET of a file: so many MiB more than there are, and no Content-Length
        self.ranges = True  # False: a range is answered by 200
        self.head = True  # False: 405
        self.bad_chunk = {}  # chunk index -> how often it is served damaged (-1: always)
        self.trickle = {}  # chunk index -> how often it is served at some 500 bytes a second
        self.damage = False  # every body has a wrong byte
        self.short = 0  # close after that many bytes of a body, `short_times` times
        self.short_times = 0
        self.refuse = 0  # so many GETs of files see their connection closed without an answer
        self.change_after = None  # ETag and content change after that many GETs
        self.changed_data = None
        self.rate = 0  # bytes a second and connection; 0: all there is
        self.hold_at = None  # once so many bytes of bodies have been sent no more come, until `go` is set
        self.go = threading.Event()
        self.busy = 0  # requests that are being answered
        self.token = None  # "Bearer ..." that must come
        self.fail = {}  # path -> [status, ...] served first
        self.fail_get = {}  # the same, and GET alone
        self.reason = b""  # the body of those, and of a 404
        self.lie_chunk_list = False  # well-formed, of the right digest, wrong chunks
        self.redirect = {}  # path -> Location
        self.meanwhile = None  # called once, before the next commit is judged: what others do to the tree
        self.many = None  # many small files in an answer: called with (handler, [sha256, ...]), self.batch is right; None: 404, as of old
        self.asked = []  # the digests of each such request
        self.kept = {}  # upload path -> bytes that an earlier connection brought
        self.ranges_put = []  # Content-Range of what went on there
        self.lock = threading.Lock()
        self.gets = 0
        mirror = self

        class Handler(serving.Handler):
            def do_GET(self):
                with mirror.lock:
                    mirror.busy += 1
                try:
                    mirror.answer(self)
                finally:
                    with mirror.lock:
                        mirror.busy -= 1

            do_HEAD = do_PUT = do_POST = do_GET

        self.server = serving.Server(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d" % self.server.server_address[1]
        serving.run(self.server)

    def close(self):
        self.go.set()
        serving.stop(self.server)

    # --- what is asked -----------------------------------------------------------------------------------------------

    def answer(self, h):
        length = int(h.headers.get("Content-Length") or 0)
        body = h.rfile.read(length) if length else b""
        path = unquote(urlsplit(h.path).path)
        if self.token and h.headers.get("Authorization") != self.token:
            return self.reply(h, 401)
        with self.lock:
            queue = self.fail.get(path) or (self.fail_get.get(path) if h.command == "GET" else None)
            status = queue.pop(0) if queue else None
        if status:
            return self.reply(h, status, {"Retry-After": "0"}, self.reason)
        if path in self.redirect:
            return self.reply(h, 302, {"Location": self.redirect[path]})
        if path == "/-/sync/blobs" and self.many:
            digests = [body[i:i + 32] for i in range(0, len(body), 32)]
            with self.lock:
                self.asked.append(digests)
            return self.many(h, digests)
        if h.command in ("PUT", "POST"):
            return self.upload(h, path, body)
        if path in self.kept:
            return self.reply(h, 200, {"Upload-Offset": str(len(self.kept[path])), "Upload-Complete": "?0"})
        if path.startswith("/-/chunks/"):
            return self.serve_chunks(h, path.rsplit("/", 1)[1])
        if path.startswith("/-/blob/"):
            want = path.rsplit("/", 1)[1]
            for data in list(self.files.values()):
                if sha256(data).hex() == want:
                    return self.serve_file(h, path, data)
            return self.reply(h, 404)
        if path.endswith("/"):
            return self.listing(h, path)
        if path not in self.files:
            return self.reply(h, 404, {}, self.reason)
        with self.lock:
            refused = h.command == "GET" and self.refuse > 0
            self.refuse -= refused
        if refused:
            h.close_connection = True
            return None
        if h.command == "HEAD" and not self.head:
            return self.reply(h, 405)
        return self.serve_file(h, path, self.files[path])

    def tree(self, folder):
        """Its root and what is in it; the root is None when nothing is. folder: with its slash"""
        entries = [{"path": p[len(folder):], "size": len(self.files[p]), "sha256": sha256(self.files[p]).hex()}
                   for p in sorted(self.files) if p.startswith(folder)]
        return hashlib.sha256(repr(entries).encode()).hexdigest() if entries else None, entries

    def listing(self, h, path):
        root, entries = self.tree(path)
        if not entries:
            return self.reply(h, 404, {}, self.reason)
        self.reply(h, 200, {"Content-Type": "application/json"},
                   json.dumps({"root": root, "version": f"v{len(self.commits)}", "entries": entries}).encode())

    def records(self, digests, of=None):
        """docs/protocols/sync.md, batches. of(digest, bytes): a record instead of the right one."""
        known = {sha256(data): data for data in list(self.files.values())}
        out = []
        for d in digests:
            data = known.get(d)
            right = struct.pack(">I", 0xffffffff) if data is None else struct.pack(">I", len(data)) + data
            out.append((of(d, data) if of else None) or right)
        return out

    def batch(self, h, digests, of=None):
        self.reply(h, 200, {"Content-Type": "application/vnd.mirrord.blobs"}, b"".join(self.records(digests, of)))

    def serve_chunks(self, h, want):
        for data in list(self.files.values()):
            if sha256(data).hex() == want and self.chunks:
                text = chunk_list(data)
                if self.lie_chunk_list:
                    text = text[:-32] + bytes(32)
                return self.reply(h, 200, {}, text)
        return self.reply(h, 404)

    # --- files --------------------------------------------------------------------------------------------------------

    def serve_file(self, h, path, data):
        if h.command == "GET":
            with self.lock:
                self.gets += 1
                changed = self.change_after is not None and self.gets > self.change_after
            if changed:
                data = self.files[path] = self.changed_data
        digest = sha256(data)
        etag = '"%s"' % digest.hex()[:16]
        head = {"Accept-Ranges": "bytes"}
        if self.etags:
            head["ETag"] = etag
        if self.digests:
            head["Repr-Digest"] = "sha-256=:%s:" % base64.b64encode(digest).decode()
        if self.chunks:
            head["Link"] = '</-/chunks/%s>; rel="describedby"' % digest.hex()
        first, last = 0, len(data) - 1
        status = 200
        m = re.fullmatch(r"bytes=(\d+)-(\d+)", h.headers.get("Range") or "")
        if m and self.ranges and h.headers.get("If-Range") in (None, etag):
            first, last = int(m[1]), int(m[2])
            if first >= len(data):
                return self.reply(h, 416, head)
            last = min(last, len(data) - 1)
            status = 206
            head["Content-Range"] = "bytes %d-%d/%d" % (first, last, len(data))
        left = 0
        if h.command == "GET":
            with self.lock:
                left = self.trickle.get(first // CHUNK, 0)
                self.trickle[first // CHUNK] = left - 1
        if self.endless and h.command == "GET":
            return self.serve_endless(h, status, head, data[first:last + 1])
        self.reply(h, status, head, self.damaged(data[first:last + 1], first), trickle=left > 0)

    def serve_endless(self, h, status, head, data):
        h.send_response(status)
        for name, value in {**head, "Transfer-Encoding": "chunked"}.items():
            h.send_header(name, value)
        h.end_headers()
        for part in [data] + [b"more" * (1 << 18)] * self.endless + [b""]:
            h.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))

    def damaged(self, body, first):
        index = first // CHUNK
        with self.lock:
            left = self.bad_chunk.get(index, 0)
            if left > 0:
                self.bad_chunk[index] = left - 1
        if (left or self.damage) and body:
            return body[:-1] + bytes([body[-1] ^ 1])
        return body

    # --- uploads ------------------------------------------------------------------------------------------------------

    def upload(self, h, path, body):
        if h.command == "POST" and path.endswith("/-/uploads"):
            self.uploads["u1"] = {}
            return self.reply(h, 201, {"Location": path + "/u1"})
        m = re.fullmatch(r"(/.*)/-/uploads/(\w+)/(.+)", path)
        if not m or m[2] not in self.uploads:
            return self.reply(h, 404)
        if h.command == "POST" and m[3] == "commit":
            return self.commit(h, m[1], m[2])
        if h.headers.get("Content-Range"):
            self.ranges_put.append(h.headers["Content-Range"])
            body = self.kept[path][:int(re.search(r"(\d+)-", h.headers["Content-Range"])[1])] + body
        say = base64.b64encode(hashlib.sha256(body).digest()).decode()
        if "sha-256=:%s:" % say != h.headers.get("Repr-Digest"):
            return self.reply(h, 422)
        self.uploads[m[2]][m[3]] = body
        self.reply(h, 201)

    def commit(self, h, folder, upload):
        """Over the tree as it is, or in its place; of the root that If-Match names, or of none."""
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile:
            meanwhile()
        match = h.headers.get("If-Match")
        if match and match != f'"{self.tree(folder + "/")[0]}"':
            return self.reply(h, 412)
        files = self.uploads.pop(upload)
        self.commits.append((folder, files, dict(h.headers)))
        if urlsplit(h.path).query == "replace=1":
            self.files = {p: data for p, data in list(self.files.items()) if not p.startswith(folder + "/")}
        self.files.update({f"{folder}/{name}": data for name, data in files.items()})
        return self.reply(h, 201, {"Content-Type": "application/json"},
                          json.dumps({"root": self.tree(folder + "/")[0], "version": f"v{len(self.commits)}"}).encode())

    # --- the wire -----------------------------------------------------------------------------------------------------

    def reply(self, h, status, head=None, body=b"", trickle=False):
        with self.lock:
            self.log.append((h.command, h.path, h.headers.get("Range"), status))
            cut = None
            if self.short_times > 0 and h.command == "GET" and status in (200, 206) and len(body) > self.short:
                self.short_times -= 1
                cut = self.short
        h.send_response(status)
        for name, value in (head or {}).items():
            h.send_header(name, value)
        if self.lengths or h.command == "HEAD" or status not in (200, 206):
            h.send_header("Content-Length", str(len(body)))
        else:
            h.send_header("Connection", "close")
            h.close_connection = True
        h.end_headers()
        if h.command == "HEAD":
            return
        if cut is not None:
            body = body[:cut]
            h.close_connection = True
        step = 10 if trickle else 65536 if not self.rate else max(1, self.rate // 50)
        for i in range(0, len(body), step):
            if self.hold_at is not None and self.sent >= self.hold_at:
                self.go.wait()
            with self.lock:  # first: what a client has is counted
                self.sent += min(step, len(body) - i)
            h.wfile.write(body[i:i + step])
            if self.rate or trickle:
                time.sleep(0.02)
        if cut is not None:
            h.wfile.flush()
