"""bucket.py - an S3 bucket on loopback that mirrors write to: it checks each request's signature and the SHA-256 of each body, keeps
"If-None-Match: *" atomically, and makes the faults that a cluster has to survive, to order.

A fault is Fault(kind, keys=regex, methods=..., p=probability); b.faults is the list in force. Kinds:

  500, 503, 409, 429     that status instead of doing the request
  404                    a 404 that a proxy could send
  500-after, 503-after   that status after doing it
  412-after              the same: a client's library has sent the request twice, and the second one found what the first one did
  cut, cut-after         the connection is closed instead of the response
  cut-there              the connection is closed if the key exists
  late, 500-late         the connection is closed now, or 500 is sent; the write lands 10 to 200 ms later
  slow, slow-after       the request is done after `delay` seconds; or it is done, and the response comes then
  truncate, flip         of a GET's body: half of it is sent, or one bit of it is wrong
  hold, hold-flip        of a GET's body: half of it is sent, and the rest once b.go is set; its last byte is wrong
  damage                 of a PUT's body: one bit of it is wrong when it is stored
  ignore                 If-None-Match is ignored
  read-only, full        writes get 403 or 507
  stale                  of a list: without the keys of the last two seconds

An object in parts (CreateMultipartUpload, UploadPart, CompleteMultipartUpload, AbortMultipartUpload) has its parts in b.uploads until it is
complete.
"""
import asyncio
import dataclasses
import datetime
import email.utils
import hashlib
import hmac
import json
import random
import re
import threading
import time
import urllib.parse
from xml.sax.saxutils import escape

from harness.mirrord import free_port
from harness.s3 import ACCESS, AUTHORIZATION, REGION, SECRET, canonical_query, quoted, signature

NAME = "mirror"
STEP, HELD = 1 << 18, "held"
WORDS = {200: "OK", 204: "No Content", 206: "Partial Content", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 409: "Conflict",
         412: "Precondition Failed", 416: "Requested Range Not Satisfiable", 429: "Too Many Requests", 500: "Internal Server Error", 501: "Not Implemented",
         503: "Service Unavailable", 507: "Insufficient Storage"}
CODES = {"500": (500, "InternalError"), "503": (503, "SlowDown"), "409": (409, "ConditionalRequestConflict"), "429": (429, "TooManyRequests"),
         "412": (412, "PreconditionFailed"), "404": (404, "NoSuchRoute"), "read-only": (403, "AccessDenied"), "full": (507, "InsufficientStorage")}


@dataclasses.dataclass
class Fault:
    kind: str
    keys: str = ""
    methods: tuple = ("GET", "PUT", "DELETE", "POST")
    p: float = 1.0
    delay: float = 0.0
    query: str = ""  # that the request has
    first: int = 0  # if not 0: the first so many requests for each key
    skip: int = 0  # requests that it lets pass
    struck: threading.Event = None  # set when it strikes
    seen: dict = dataclasses.field(default_factory=dict)

    def strikes(self, r, dice):
        if self.query and self.query not in r.query:
            return False
        if r.method not in self.methods or not re.match(self.keys, r.key.removeprefix("prod/")) or dice.random() >= self.p:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.seen[r.key] = self.seen.get(r.key, 0) + 1
        strikes = not self.first or self.seen[r.key] <= self.first
        if strikes and self.struck:
            self.struck.set()
        return strikes


class Refused(Exception):
    def __init__(self, status, code, message=""):
        super().__init__(code)
        self.status, self.code, self.message = status, code, message


@dataclasses.dataclass
class Request:
    method: str
    key: str
    query: dict
    fields: dict
    body: bytes


class Shared(dict):
    """That a test goes through while the bucket's thread changes it."""

    def __iter__(self):
        return iter(self.keys())

    def keys(self):
        return list(super().keys())

    def values(self):
        return list(super().values())

    def items(self):
        return list(super().items())


class Bucket:
    """objects: key -> (bytes, when it was written), below no prefix. counts: (method, first part of the key) -> requests. sent: first part of
    the key -> bytes of responses. deleted: key -> the
    bytes that it had when it was deleted first. most_at_once: requests that were under way at the same time. connections: that are open, or
    whose last request is still under way. dated: responses have a Date. rate: of the body of each response to a GET, bytes per second; 0: no
    limit. go: what is held goes on."""

    def __init__(self, port=None, seed=1, host="127.0.0.1"):
        self.host, self.port, self.objects, self.counts, self.sent, self.faults = host, port or free_port(), Shared(), Shared(), Shared(), []
        self.uploads = Shared()  # id -> (key, {number: bytes})
        self.versioned, self.atomic, self.checks_bodies, self.clock_ahead, self.down = False, True, True, 0, False
        self.dated, self.rate, self.go = True, 0, threading.Event()
        self.deleted, self.at_once, self.most_at_once, self.connections = Shared(), 0, 0, 0
        self.dice, self.loop = random.Random(seed), asyncio.new_event_loop()
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    url = f"s3://{NAME}/prod/"

    def __enter__(self):
        self.thread.start()
        assert self.ready.wait(30)
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()

    @property
    def endpoint(self):
        return f"http://{self.host}:{self.port}"

    def keys_file(self, folder):
        path = folder / "bucket.keys"
        path.write_text(f"{ACCESS}:{SECRET}\n")
        path.chmod(0o600)
        return path

    def access(self, keys):
        """The settings of a cluster section by which this bucket is reached."""
        return f'endpoint = "{self.endpoint}" region = "eu-test-1" authorization = "file:{keys}"'

    @staticmethod
    def secret_file(folder):
        """What the mirrors of a cluster know each other by."""
        path = folder / "cluster.secret"
        path.write_text("a secret of this cluster\n")
        path.chmod(0o600)
        return path

    def under(self, prefix):
        """Keys below the cluster's prefix, sorted, with their bytes."""
        return [(k, raw) for k, (raw, _) in sorted(self.objects.items()) if k.startswith("prod/" + prefix)]

    def ever_under(self, prefix):
        """As under(), with what was deleted. A key that was written again after its deletion has its first bytes."""
        found = dict(self.under(prefix)) | {k: raw for k, raw in self.deleted.items() if k.startswith("prod/" + prefix)}
        return sorted(found.items())

    # --- the server ---

    def run(self):
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(asyncio.start_server(self.serve, self.host, self.port))
        self.ready.set()
        self.loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))

    async def serve(self, reader, writer):
        self.connections += 1
        try:
            while not self.down and await self.one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.connections -= 1
            writer.close()

    async def one(self, reader, writer):
        """False: the connection is to be closed. A body that is cut short raises: nothing is kept of it."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ")
        fields = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(fields.get("content-length", 0)))
        if self.down:
            return False
        path, _, query = target.partition("?")
        full = urllib.parse.unquote(path)[1:]
        r = Request(method, full.partition("/")[2], dict(urllib.parse.parse_qsl(query, keep_blank_values=True)), fields, body)
        part = r.key.removeprefix("prod/").partition("/")[0] or "list"
        self.counts[method, part] = self.counts.get((method, part), 0) + 1
        try:
            if full.partition("/")[0] != NAME:
                raise Refused(404, "NoSuchBucket")
            self.judge(r, path, query)
            self.at_once += 1
            self.most_at_once = max(self.at_once, self.most_at_once)
            try:
                answer = await self.disturbed(r)
            finally:
                self.at_once -= 1
        except Refused as no:
            answer = self.refusal(no)
        if answer is None:
            return False
        status, out, more, sent = answer
        date = [f"Date: {email.utils.formatdate(time.time() + self.clock_ahead, usegmt=True)}"] if self.dated else []
        lines = [f"HTTP/1.1 {status} {WORDS[status]}", *date, f"Content-Length: {len(out)}", *(f"{n}: {v}" for n, v in more.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        if method == "HEAD":
            out = b""
        if sent == HELD:
            writer.write(out[:len(out) // 2])
            await writer.drain()
            while not self.go.is_set():
                await asyncio.sleep(0.01)
            out, sent = out[len(out) // 2:], None
        while self.rate and method == "GET" and out and sent is None:
            writer.write(out[:STEP])
            await writer.drain()
            out = out[STEP:]
            await asyncio.sleep(STEP / self.rate)
        writer.write(out[:sent])
        await writer.drain()
        return sent is None

    @staticmethod
    def refusal(no):
        text = f"<?xml version=\"1.0\"?><Error><Code>{no.code}</Code><Message>{escape(no.message)}</Message></Error>".encode()
        return no.status, b"" if no.status == 204 else text, {"Content-Type": "application/xml"}, None

    def judge(self, r, path, query):
        found = AUTHORIZATION.fullmatch(r.fields.get("authorization", ""))
        if not found:
            raise Refused(403, "AccessDenied", "Access Denied")
        access, day, region, names, theirs = found.groups()
        if access != ACCESS:
            raise Refused(403, "InvalidAccessKeyId")
        if region != REGION:
            raise Refused(400, "AuthorizationHeaderMalformed", f"the region is {REGION}")
        must = {"host", *(n for n in r.fields if n.startswith(("x-amz-", "if-")))}
        names, date, payload = names.split(";"), r.fields.get("x-amz-date", ""), r.fields.get("x-amz-content-sha256", "")
        if names != sorted(names) or not must <= set(names):
            raise Refused(403, "AccessDenied", "There were headers present in the request which were not signed")
        canonical = "\n".join([r.method, quoted(urllib.parse.unquote_to_bytes(path), "-._~/"), canonical_query(query),
                               *(f"{n}:{r.fields[n]}" for n in names), "", ";".join(names), payload])
        text = "\n".join(["AWS4-HMAC-SHA256", date, f"{day}/{region}/s3/aws4_request", hashlib.sha256(canonical.encode()).hexdigest()])
        if not date.startswith(day) or not hmac.compare_digest(signature(SECRET, day, region, text), theirs):
            raise Refused(403, "SignatureDoesNotMatch", "The request signature we calculated does not match")
        when = datetime.datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc).timestamp()
        if abs(when - (time.time() + self.clock_ahead)) > 900:
            raise Refused(403, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large.")
        if self.checks_bodies and payload != hashlib.sha256(r.body).hexdigest():
            raise Refused(400, "XAmzContentSHA256Mismatch")

    # --- faults ---

    async def disturbed(self, r):
        kind, delay = self.fault_of(r)
        if kind == "slow":
            await asyncio.sleep(delay)
        elif kind == "cut" or (kind == "cut-there" and r.key in self.objects):
            return None
        elif kind in ("late", "500-late"):
            self.loop.call_later(self.dice.uniform(0.01, 0.2), self.quietly, r)
            if kind == "late":
                return None
            raise Refused(*CODES["500"])
        elif kind in CODES:
            raise Refused(*CODES[kind])
        if kind == "ignore":
            r.fields.pop("if-none-match", None)
        if kind == "damage" and r.body:
            r.body = self.flipped(r.body)
        if not self.atomic and r.method == "PUT" and "if-none-match" in r.fields and r.key not in self.objects:
            await asyncio.sleep(0.005)  # it has looked, and now it writes
            r.fields.pop("if-none-match")
        answer = self.done(r, stale=kind == "stale")
        if kind == "slow-after":
            await asyncio.sleep(delay)
        if kind == "cut-after":
            return None
        if kind in ("500-after", "503-after", "412-after"):
            raise Refused(*CODES[kind[:3]])
        if kind == "truncate":
            return *answer[:3], len(answer[1]) // 2
        if kind == "hold":
            return *answer[:3], HELD
        if kind == "hold-flip":
            return answer[0], answer[1][:-1] + bytes([answer[1][-1] ^ 1]), answer[2], HELD
        if kind == "flip" and answer[1]:
            return answer[0], self.flipped(answer[1]), answer[2], None
        return answer

    def flipped(self, data):
        at = self.dice.randrange(len(data))
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]

    def fault_of(self, r):
        for f in self.faults:
            if f.strikes(r, self.dice):
                return f.kind, f.delay
        return None, 0

    def quietly(self, r):
        try:
            self.done(r)
        except Refused:
            pass

    # --- what a request does; it runs whole, on one thread ---

    def done(self, r, stale=False):
        if "uploads" in r.query or "uploadId" in r.query:
            return self.in_parts(r)
        if r.method == "PUT":
            if "if-none-match" in r.fields and r.key in self.objects:
                raise Refused(412, "PreconditionFailed")
            self.objects[r.key] = (r.body, time.time())
            return 200, b"", {"ETag": f'"{hashlib.md5(r.body).hexdigest()}"'}, None
        if r.method == "DELETE":
            if r.key in self.objects:
                self.deleted.setdefault(r.key, self.objects.pop(r.key)[0])
            return 204, b"", {}, None
        if r.key == "":
            return self.listing(r.query, stale)
        if r.key not in self.objects:
            raise Refused(404, "NoSuchKey")
        return self.object(r, self.objects[r.key][0])

    def in_parts(self, r):
        xml = {"Content-Type": "application/xml"}
        if "uploads" in r.query:
            name = f"up+load/{len(self.uploads)}.{self.dice.randrange(10**9)}"
            self.uploads[name] = (r.key, {})
            return 200, f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>".encode(), xml, None
        key, parts = self.uploads.get(r.query["uploadId"], (None, None))
        if key != r.key:
            raise Refused(404, "NoSuchUpload")
        if r.method == "DELETE":
            del self.uploads[r.query["uploadId"]]
            return 204, b"", {}, None
        if r.method == "PUT":
            parts[int(r.query["partNumber"])] = r.body
            return 200, b"", {"ETag": f'"{hashlib.md5(r.body).hexdigest()}"'}, None
        named = re.findall(r"<PartNumber>(\d+)</PartNumber><ETag>\"(\w+)\"</ETag>", r.body.decode())
        if not named or any(hashlib.md5(parts.get(int(n), b"")).hexdigest() != tag for n, tag in named):
            raise Refused(400, "InvalidPart")
        if any(len(parts[int(n)]) < 5 << 20 for n, _ in named[:-1]):
            raise Refused(400, "EntityTooSmall")
        self.objects[r.key] = (b"".join(parts[int(n)] for n, _ in named), time.time())
        del self.uploads[r.query["uploadId"]]
        return 200, b"<CompleteMultipartUploadResult></CompleteMultipartUploadResult>", xml, None

    def object(self, r, body):
        status, part, fields, extra = self.part_of(r, body)
        first = r.key.removeprefix("prod/").partition("/")[0]
        self.sent[first] = self.sent.get(first, 0) + (len(part) if r.method == "GET" else 0)
        return status, part, fields, extra

    @staticmethod
    def part_of(r, body):
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", r.fields.get("range", ""))
        known = {"Accept-Ranges": "bytes"}
        if not found:
            return 200, body, known, None
        first, last = int(found[1]), min(int(found[2] or len(body)), len(body) - 1)
        if first >= len(body):
            raise Refused(416, "InvalidRange")
        return 206, body[first:last + 1], {"Content-Range": f"bytes {first}-{last}/{len(body)}", **known}, None

    def listing(self, query, stale):
        if "versioning" in query:
            status = "<Status>Enabled</Status>" if self.versioned else ""
            return 200, f"<VersioningConfiguration>{status}</VersioningConfiguration>".encode(), {}, None
        assert query["list-type"] == "2" and query["encoding-type"] == "url", query
        after = query.get("continuation-token") or query.get("start-after", "")
        known = {k: o for k, o in self.objects.items() if not stale or o[1] < time.time() - 2}
        keys = sorted(k for k in known if k.startswith(query.get("prefix", "")) and k > after)
        page = keys[:int(query.get("max-keys", 1000))]
        more = len(keys) > len(page)
        inner = "".join(f"<Contents><Key>{quoted(k.encode())}</Key><Size>{len(known[k][0])}</Size><LastModified>"
                        f"{datetime.datetime.utcfromtimestamp(known[k][1]).strftime('%Y-%m-%dT%H:%M:%S.000Z')}</LastModified></Contents>" for k in page)
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        return 200, (f"<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>{json.dumps(more)}</IsTruncated>"
                     f"{token}{inner}</ListBucketResult>").encode(), {"Content-Type": "application/xml"}, None
