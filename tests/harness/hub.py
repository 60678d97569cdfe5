"""hub.py - a Hub on loopback that behaves as the real one does towards its clients, and counts what it is asked.

Two hosts: the Hub (127.0.0.1) and its CDN (127.0.0.2). LFS files lead there by a signed, absolute redirect; the CDN knows
nothing of tokens and refuses whoever shows it one. Other files lead by a relative redirect to /api/resolve-cache/. Listings
come in pages (Link, rel="next"), answers carry X-Repo-Commit, X-Error-Code, RateLimit, and the Xet fields and keys that lead
clients away. Ids are found whatever their case, renamed repositories redirect. Everybody may read the card of a gated repository,
README.md and .gitattributes; /auth-check says who may read the rest, unless `hub.auth_check` is False: then there is no such route.
Buckets hold files without commits, likers and discussions are told of, a safetensors index comes with its files' headers. After
hub.expire() the CDN refuses every address that was signed before. It gives no file beyond 50 GB in one piece.

    hub = Hub(); r = hub.repo("org/name", files={"config.json": b"{}", "model.safetensors": Big(5 << 20)})
    hub.bucket("org/data", {"a.txt": b"a"})
    r.commit({...})   r.refs["refs/pr/1"] = sha   hub.rename("old", "org/name")   hub.calls   hub.api_calls()   hub.close()
"""
import base64
import dataclasses
import datetime
import email.utils
import hashlib
import hmac
import itertools
import json
import math
import re
import threading
import time
import urllib.parse

from harness.mirrord import free_port
from harness import serving
from harness.origin import span

TYPES = {"models": "", "datasets": "datasets/", "spaces": "spaces/", "kernels": "kernels/"}
SMALL = 1000  # larger ones are LFS
CARD = ("README.md", ".gitattributes")  # of a gated repository: shown to everybody
WHOLE_MAX = 50_000_000_000  # the CDN's bridge answers 400 to a request for all of a larger file


@dataclasses.dataclass(frozen=True)
class Big:
    """Bytes of any size that nobody has to keep."""
    size: int
    seed: int = 1
    digest: str = ""  # told instead of the true one: for sizes that nobody wants to hash

    def read(self, first, end):
        return span(self.seed, first, end)


class Zeros(Big):
    """Zeros, but for a few bytes in a run here and there."""

    def marks(self):
        return [0, 12345678, self.size // 2, self.size - 10]

    def read(self, first, end):
        out = bytearray(end - first)
        for at in self.marks():
            for i in range(max(first, at), min(end, at + 10)):
                out[i - first] = 7
        return bytes(out)


_digests = {}


def size_of(data):
    return data.size if isinstance(data, Big) else len(data)


def read(data, first=0, end=None):
    end = size_of(data) if end is None else end
    return data.read(first, end) if isinstance(data, Big) else data[first:end]


def sha256_of(data):
    if isinstance(data, Big) and data.digest:
        return data.digest
    if data not in _digests:
        h = hashlib.sha256()
        for at in range(0, size_of(data), 1 << 20):
            h.update(read(data, at, min(size_of(data), at + (1 << 20))))
        _digests[data] = h.hexdigest()
    return _digests[data]


def xet_of(data):
    """The name of these bytes in the Hub's chunk store: no digest of theirs."""
    return hashlib.sha256(b"xet" + sha256_of(data).encode()).hexdigest()


def git_oid(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def pointer(data):
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256_of(data)}\nsize {size_of(data)}\n".encode()


numbers = itertools.count(1)


class Repo:
    def __init__(self, kind, name, private=False, gated=False, readers=()):
        self.kind, self.name, self.private, self.gated, self.readers = kind, name, private, gated, set(readers)
        self.commits, self.refs, self.lfs = {}, {}, set()
        self.default = "main"  # what a request without a revision is about
        self.likers, self.discussions = [], []
        self.number = "%024x" % next(numbers)  # its own whatever it is called

    def commit(self, files, ref="main", keep=True):
        """A new state of the branch: the files given, over those it had. None removes one."""
        have = dict(self.commits.get(self.refs.get(ref), {})) if keep else {}
        have.update(files)
        have = {p: d for p, d in have.items() if d is not None}
        about = json.dumps([self.name, ref, len(self.commits), sorted((p, sha256_of(d)) for p, d in have.items())])
        sha = hashlib.sha1(about.encode()).hexdigest()
        self.commits[sha] = have
        self.refs[ref] = sha
        return sha

    @property
    def sha(self):
        return self.refs["main"]

    def is_lfs(self, path, data):
        return isinstance(data, Big) or path in self.lfs or len(data) > SMALL

    def etag(self, path, sha=None):
        data = self.commits[sha or self.sha][path]
        return sha256_of(data) if self.is_lfs(path, data) else git_oid(data)

    def resolve(self, rev):
        short = [c for c in list(self.commits) if 7 <= len(rev) and c.startswith(rev)]
        return self.refs.get(rev) or self.refs.get("refs/heads/" + rev) or (short[0] if len(short) == 1 else None)


class BucketFiles(dict):
    """Notes when each file was put there. What was there from the beginning was uploaded long ago."""

    def __init__(self, files):
        super().__init__(files)
        self.uploaded = {}

    def __setitem__(self, path, data):
        super().__setitem__(path, data)
        self.uploaded[path] = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def update(self, *args, **files):
        for path, data in dict(*args, **files).items():
            self[path] = data


class Bucket:
    def __init__(self, name, files, private=False, readers=()):
        self.name, self.files, self.private, self.readers = name, BucketFiles(files), private, set(readers)

    def entries(self, prefix, recursive):
        """As the Hub lists: the prefix is matched letter by letter."""
        out, folders = [], set()
        for path, data in sorted(self.files.items()):
            below = path[len(prefix) + 1:] if path.startswith(prefix + "/") else path
            if not path.startswith(prefix):
                continue
            if "/" in below and not recursive:
                folders.add(path[:len(path) - len(below)] + below.split("/")[0])
                continue
            out.append({"type": "file", "path": path, "size": size_of(data), "xetHash": xet_of(data), "mtime": "2026-01-02T03:04:05.000Z",
                        "uploadedAt": self.files.uploaded.get(path, "2026-01-02T03:04:05.000Z")})
        return out + [{"type": "directory", "path": f, "uploadedAt": "2026-01-02T03:04:05.000Z"} for f in sorted(folders)]


def listening(host, port, handler):
    """On a port that nobody takes while the Hub is down."""
    for _ in range(20):
        try:
            return serving.Server((host, port or free_port()), handler)
        except OSError:
            if port:
                raise
    raise OSError("no port is free")


class Hub:
    def __init__(self, page=1000):
        self.page = page
        self.repos, self.renamed, self.buckets = {}, {}, {}
        self.calls = []        # (method, target, token) at the Hub
        self.cdn_calls = []    # (method, path, range) at the CDN
        self.cdn_bytes = {}    # sha256 -> bytes that left
        self.hold_at = None    # once so many have left no more do, until `go` is set
        self.go = threading.Event()
        self.voice = threading.Event()  # while it is clear, the Hub takes requests and answers none
        self.voice.set()
        self.leaks = []        # what must never happen
        self.users = {}        # token -> name
        self.script = []       # (pattern of targets, times, what): lies and trouble to order
        self.cdn_script = []
        self.auth_check = True
        self.fields_before = {}  # of every answer, in front of its own
        self.fields = {}       # further ones of every answer but the CDN's
        self.remaining = 500
        self.budget = None     # (requests, seconds): so many in each such window, the others are told 429
        self.spent, self.window_end, self.refused = 0, 0.0, 0
        self.lock = threading.Lock()
        self.secret = b"signing key"
        self.signed = 0        # addresses of before the last expire() are refused
        self.port = self.cdn_port = 0
        self.servers = []
        self.closing = False
        self.up()

    def up(self):
        self.servers = [listening(*at) for at in (("127.0.0.1", self.port, HubHandler), ("127.0.0.2", self.cdn_port, CdnHandler))]
        for s in self.servers:
            s.origin = self
            serving.run(s)
        self.port, self.cdn_port = (s.server_address[1] for s in self.servers)

    def down(self):
        """Connections are refused from now on, until up()."""
        self.closing = True
        for s in self.servers:
            s.shutdown()
            s.server_close()
        self.closing = False

    def close(self):
        self.go.set()
        self.voice.set()
        self.down()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def cdn(self):
        return f"http://127.0.0.2:{self.cdn_port}"

    def config(self, name="hf", more=""):
        return f'repo "{name}" {{ protocol = "hf" origin = "{self.url}" hosts = {{"127.0.0.2:{self.cdn_port}"}} {more} }}'

    def repo(self, name, kind="models", files=None, **more):
        r = self.repos[kind, name] = Repo(kind, name, **more)
        if files is not None:
            r.commit(files)
        return r

    def bucket(self, name, files, **more):
        b = self.buckets[name] = Bucket(name, files, **more)
        return b

    def rename(self, old, new, kind="models"):
        self.renamed[kind, old] = new

    def find(self, kind, name):
        """The repository, and its name when that is another than was asked for."""
        name = self.renamed.get((kind, name), name)
        for (k, n), r in list(self.repos.items()):
            if k == kind and n.lower() == name.lower():
                return r, n
        return None, name

    def order(self, pattern, what, times=1, cdn=False):
        (self.cdn_script if cdn else self.script).append([re.compile(pattern), times, what])

    def ordered(self, target, cdn=False):
        with self.lock:
            for item in self.cdn_script if cdn else self.script:
                if item[1] > 0 and item[0].search(target):
                    item[1] -= 1
                    return item[2]
        return None

    def spend(self):
        """The RateLimit fields of this answer, and whether it is a 429."""
        policy = {"RateLimit-Policy": '"fixed window";"api";q=500;w=300'}
        if self.budget is None:
            return {"RateLimit": f'"api";r={self.remaining};t=200', **policy}, False
        with self.lock:
            now = time.monotonic()
            if now >= self.window_end:
                self.spent, self.window_end = 0, now + self.budget[1]
            self.spent += 1
            left = self.budget[0] - self.spent
            self.refused += left < 0
            return {"RateLimit": f'"api";r={max(0, left)};t={math.ceil(self.window_end - now)}', **policy}, left < 0

    def api_calls(self):
        return [c for c in self.calls if c[1].startswith("/api/") and not c[1].startswith("/api/resolve-cache/")]

    def sign(self, path, since=None):
        return hmac.new(self.secret, f"{path} {self.signed if since is None else since}".encode(), "sha256").hexdigest()

    def signed_url(self, digest):
        at = f"/repos/aa/{digest}"
        return f"{self.cdn}{at}?X-Amz-Expires=3600&X-Amz-Date={self.signed}&Signature={self.sign(at)}"

    def expire(self):
        with self.lock:
            self.signed += 1


class Handler(serving.Handler):
    def do_GET(self):
        self.hub = self.server.origin
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length) if length else b""
        self.answer()

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET

    def reply(self, status, fields, data=b""):
        self.send_response_only(status)
        self.send_header("Date", email.utils.formatdate(usegmt=True))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(size_of(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(read(data))

    def trouble(self, what):
        """True: that was the answer."""
        if callable(what):
            what()
            return False
        if isinstance(what, (int, float)) and not isinstance(what, bool) and what < 100:
            time.sleep(what)
            return False
        if isinstance(what, bytes):
            self.reply(200, {"Content-Type": "text/html", "ETag": '"portal"'}, what)
            return True
        if isinstance(what, tuple) and isinstance(what[0], int):
            self.reply(*what)
            return True
        if isinstance(what, dict):
            self.reply(200, dict(what, **{"Content-Type": "application/json"}), b"[]")
            return True
        if isinstance(what, int):
            more = {"RateLimit": '"api";r=0;t=2', "RateLimit-Policy": '"fixed window";"api";q=500;w=300'} if what == 429 else {}
            self.reply(what, dict(more, **{"Content-Type": "text/plain"}), b"trouble")
            return True
        return False

    def bytes_of(self, data, fields, lie=None, leaves=lambda n: None):
        """200 or 206 of it. leaves(n) before n bytes of it do: who has them may look at the counts at once."""
        size, asked = size_of(data), self.headers.get("Range")
        first, end, status = 0, size, 200
        if asked:
            a, _, b = asked[6:].partition("-")
            first, end = (int(a), min(size, int(b) + 1 if b else size)) if a else (max(0, size - int(b)), size)
            if first >= size:
                self.reply(416, {"Content-Range": f"bytes */{size}"})
                return
            status = 206
            fields = dict(fields, **{"Content-Range": f"bytes {first}-{end - 1}/{size}"})
        self.send_response_only(status)
        for name, value in dict(fields, **{"Accept-Ranges": "bytes", "Content-Length": str(end - first)}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        for at in range(first, end, 256 << 10):
            part = read(data, at, min(end, at + (256 << 10)))
            if lie == "flip" and at == first:
                part = bytes([part[0] ^ 1]) + part[1:]
            if lie == "cut" and at + len(part) > first + (end - first) // 2:
                part = part[:len(part) // 2]
                leaves(len(part))
                self.wfile.write(part)
                self.connection.shutdown(2)
                self.close_connection = True
                return
            if isinstance(lie, tuple) and lie[0] == "wall" and at + len(part) > lie[1]:  # no byte from there on, ever
                part = part[:max(0, lie[1] - at)]
                leaves(len(part))
                self.wfile.write(part)
                self.cut()
                return
            leaves(len(part))
            self.wfile.write(part)
            if isinstance(lie, tuple) and lie[0] == "slow":  # bytes a second
                time.sleep(len(part) / lie[1])


class CdnHandler(Handler):
    def answer(self):
        hub, parts = self.hub, urllib.parse.urlsplit(self.path)
        with hub.lock:
            hub.cdn_calls.append((self.command, parts.path, self.headers.get("Range")))
            if self.headers.get("Authorization"):
                hub.leaks.append(("a token at the CDN", self.path))
        query = dict(urllib.parse.parse_qsl(parts.query))
        what = hub.ordered(f"{parts.path} {self.headers.get('Range')}", cdn=True)
        if self.trouble(what):
            return
        if self.headers.get("Authorization") or query.get("Signature") != hub.sign(parts.path, query.get("X-Amz-Date")):
            self.reply(403, {"Content-Type": "application/xml"}, b"<Error><Code>AccessDenied</Code></Error>")
            return
        if query["X-Amz-Date"] != str(hub.signed):
            self.reply(403, {"Content-Type": "application/xml"},
                       b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>")
            return
        digest = parts.path.rsplit("/", 1)[-1]
        trees = [*(c for r in list(hub.repos.values()) for c in list(r.commits.values())), *(b.files for b in list(hub.buckets.values()))]
        data = next((d for tree in trees for d in list(tree.values()) if sha256_of(d) == digest), None)
        if data is None:
            self.reply(404, {})
            return
        if size_of(data) > WHOLE_MAX and self.command == "GET" and not self.headers.get("Range"):
            self.reply(400, {"Content-Type": "text/plain"}, b"the file is too large to be sent in one piece: ask for ranges")
            return

        def leaves(n):
            with hub.lock:
                held = hub.hold_at is not None and sum(hub.cdn_bytes.values()) >= hub.hold_at
            if held:
                hub.go.wait()
            with hub.lock:
                hub.cdn_bytes[digest] = hub.cdn_bytes.get(digest, 0) + n
        self.bytes_of(data, {"ETag": f'"s3-{digest[:16]}"', "Content-Type": "binary/octet-stream",
                             "x-amz-request-id": "1", "Last-Modified": "Wed, 01 Jan 2025 00:00:00 GMT"}, what, leaves)


class HubHandler(Handler):
    def reply(self, status, fields, data=b""):
        super().reply(status, {**self.hub.fields_before, **fields, **self.hub.fields}, data)

    def answer(self):
        hub = self.hub
        token = (self.headers.get("Authorization") or "")[7:]
        with hub.lock:
            hub.calls.append((self.command, self.path, token))
            if token.startswith("mrd_"):
                hub.leaks.append(("the mirror's token at the Hub", self.path))
        self.token = token
        hub.voice.wait()
        if self.trouble(hub.ordered(self.path)):
            return
        self.rate, spent = hub.spend()
        if spent:
            self.reply(429, dict(self.rate, **{"Content-Type": "text/plain"}), b"you have reached your limit")
            return
        parts = urllib.parse.urlsplit(self.path)
        self.path_, self.query = parts.path, dict(urllib.parse.parse_qsl(parts.query))
        if re.search(r"/xet-(read|write)-token(/|$)", urllib.parse.unquote(self.path_).lower()):  # however it is spelled
            self.xet_token()
            return
        for pattern, method in self.routes:
            m = re.fullmatch(pattern, self.path_)
            if m:
                method(self, **m.groupdict())
                return
        self.reply(404, {}, b"no such route")

    # --- words ---

    def json(self, value, more=None, status=200):
        data = json.dumps(value).encode()
        tag = 'W/"%s"' % hashlib.sha1(data).hexdigest()[:20]
        fields = {"Content-Type": "application/json; charset=utf-8", "ETag": tag, **self.rate, **(more or {})}
        if status == 200 and self.headers.get("If-None-Match") == tag:
            self.send_response_only(304)
            self.send_header("ETag", tag)
            self.end_headers()
            return
        self.reply(status, fields, data)

    def no(self, status, code, message, more=None):
        fields = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {}), **(more or {})}
        self.json({"error": message}, fields, status)

    # --- who may ---

    def find(self, kind, name):
        """The repository, or None: that was answered."""
        r, real = self.hub.find(kind, name)
        if self.token and self.token not in self.hub.users and not self.token.startswith("mrd_"):
            self.no(401, None, "Invalid credentials in Authorization header")
        elif r is None or (r.private and self.token not in r.readers):
            self.no(404 if self.token else 401, "RepoNotFound",
                    "Repository not found" if self.token else "Invalid username or password.")
        elif real != name:
            to = self.path.replace(f"/{name}", f"/{real}", 1)
            self.reply(307, {"Location": to, "Content-Type": "text/plain"}, b"Temporary Redirect. Redirecting to " + to.encode())
        else:
            return r
        return None

    def may_read(self, r, path=None):
        return not (r.gated or r.private) or self.token in r.readers or (not r.private and path in CARD)

    def no_right(self, r, more=None):
        self.no(403 if self.token else 401, "GatedRepo", f"Access to model {r.name} is restricted.", more)

    def revision(self, r, rev):
        sha = r.resolve(urllib.parse.unquote(rev))
        if sha is None:
            self.no(404, "RevisionNotFound", f"Invalid rev id: {urllib.parse.unquote(rev)}")
        return sha

    # --- routes ---

    def info(self, kind, name, rev=None):
        r = self.find(kind, name)
        sha = r and self.revision(r, rev or r.default)
        if sha:
            files = r.commits[sha]
            self.json({"_id": r.number, "id": r.name, kind[:-1] + "Id": r.name, "private": r.private,
                       "gated": "auto" if r.gated else False, "disabled": False, "sha": sha, "tags": ["x"], "downloads": 7,
                       "lastModified": "2025-01-01T00:00:00.000Z", "createdAt": "2025-01-01T00:00:00.000Z",
                       "xetEnabled": True, "siblings": [dict({"rfilename": p}, **(
                           {"size": size_of(d), "blobId": git_oid(pointer(d) if r.is_lfs(p, d) else d), "xetHash": "5" * 64}
                           if self.query.get("blobs") else {})) for p, d in sorted(files.items())]})

    def entries(self, r, files, below, recursive, expand=False):
        out, folders = [], set()
        for path, data in sorted(files.items()):
            if below and not path.startswith(below + "/"):
                continue
            rest = path[len(below) + 1 if below else 0:]
            parts = rest.split("/")
            for i in range(1, len(parts) if recursive else min(2, len(parts))):
                folders.add((below + "/" if below else "") + "/".join(parts[:i]))
            if not recursive and len(parts) > 1:
                continue
            item = {"type": "file", "oid": git_oid(pointer(data) if r.is_lfs(path, data) else data), "size": size_of(data),
                    "path": path}
            if r.is_lfs(path, data):
                item["lfs"] = {"oid": sha256_of(data), "size": size_of(data), "pointerSize": len(pointer(data))}
                item["xetHash"] = xet_of(data) if self.may_read(r) else "*" * 64
            if expand:
                item["securityFileStatus"] = {"status": "safe", "avScan": {"status": "safe"}, "pickleImportScan": None}
            out.append(item)
        out += [{"type": "directory", "oid": hashlib.sha1(f.encode()).hexdigest(), "size": 0, "path": f} for f in folders]
        if expand:
            for e in out:
                e["lastCommit"] = {"id": r.sha, "title": "touched " + e["path"], "date": "2026-01-02T03:04:05.000Z"}
        return sorted(out, key=lambda e: e["path"])

    def tree(self, kind, name, rev, path=""):
        r = self.find(kind, name)
        sha = r and self.revision(r, rev)
        if not sha:
            return
        all_ = self.entries(r, r.commits[sha], urllib.parse.unquote(path), self.query.get("recursive") in ("true", "True", "1"),
                            self.query.get("expand") in ("true", "True", "1"))
        at = int(base64.b64decode(self.query["cursor"])) if "cursor" in self.query else 0
        more = {}
        if at + self.hub.page < len(all_):
            q = dict(self.query, cursor=base64.b64encode(str(at + self.hub.page).encode()).decode())
            more["Link"] = f'<{self.hub.url}{self.path_}?{urllib.parse.urlencode(q)}>; rel="next"'
        self.json(all_[at:at + self.hub.page], more)

    def paths_info(self, kind, name, rev):
        r = self.find(kind, name)
        sha = r and self.revision(r, rev)
        if sha:
            is_json = (self.headers.get("Content-Type") or "").startswith("application/json")
            asked = json.loads(self.body)["paths"] if is_json else urllib.parse.parse_qs(self.body.decode())["paths"]
            about = {p: d for p, d in r.commits[sha].items() if p in asked or p.startswith(tuple(a + "/" for a in asked))}
            self.json([e for e in self.entries(r, about, "", True) if e["path"] in asked])

    def refs(self, kind, name):
        r = self.find(kind, name)
        if r:
            self.json({"branches": [{"name": n, "ref": "refs/heads/" + n, "targetCommit": s} for n, s in r.refs.items()
                                    if not n.startswith("refs/")], "converts": [], "tags": []})

    def commits(self, kind, name, rev):
        r = self.find(kind, name)
        if r and self.revision(r, rev):
            self.json([{"id": s, "authors": [{"user": "u"}], "date": "2025-01-01T00:00:00.000Z", "title": "t", "message": ""}
                       for s in reversed(r.commits)])

    def whoami(self):
        if self.token in self.hub.users:
            self.json({"type": "user", "name": self.hub.users[self.token], "orgs": [],
                       "auth": {"type": "access_token", "accessToken": {"displayName": "t", "role": "read"}}})
        else:
            self.no(401, None, "Invalid username or password.")

    def auth_check(self, kind, name):
        if not self.hub.auth_check:
            self.reply(404, {}, b"no such route")
            return
        r = self.find(kind, name)
        if r and self.may_read(r):
            self.json({})
        elif r:
            self.no_right(r)

    def xet_token(self):
        self.hub.leaks.append(("a Xet token was asked for", self.path))
        self.json({"casUrl": f"{self.hub.cdn}/cas", "accessToken": "x", "exp": 1 << 40})

    def listing(self, kind):
        at = int(self.query.get("cursor", 0))
        names = [n for k, n in self.hub.repos if k == kind]
        link = {"Link": f'<{self.hub.url}{self.path_}?limit=2&cursor={at + 2}>; rel="next"'} if at + 2 < len(names) else {}
        self.json([{"id": n, "private": False, "xetEnabled": True} for n in names[at:at + 2]], link)

    # --- what else is about a repository ---

    def likers(self, kind, name):
        r = self.find(kind, name)
        if r:
            self.json([{"user": u, "fullname": u.title(), "avatarUrl": f"/avatars/{u}.svg", "type": "user"} for u in r.likers])

    def discussions(self, kind, name):
        r = self.find(kind, name)
        if r:
            at = 2 * int(self.query.get("p", 0))
            self.json({"discussions": [self.discussion_of(r, d) for d in r.discussions[at:at + 2]], "count": len(r.discussions), "start": at})

    @staticmethod
    def discussion_of(r, d):
        return {"num": d["num"], "title": d["title"], "author": {"name": "u"}, "createdAt": "2026-01-02T03:04:05.000Z", "status": "open",
                "isPullRequest": False, "repo": {"name": r.name, "type": r.kind[:-1]}}

    def discussion(self, kind, name, num):
        r = self.find(kind, name)
        one = r and next((d for d in r.discussions if d["num"] == int(num)), None)
        if r and one is None:
            self.no(404, None, "no such discussion")
        elif r:
            self.json(dict(self.discussion_of(r, one), events=[{
                "id": "1", "type": "comment", "createdAt": "2026-01-02T03:04:05.000Z", "author": {"name": "u"}, "data": {
                    "edited": False, "hidden": False, "latest": {"raw": one["text"], "updatedAt": "2026-01-02T03:04:05.000Z",
                                                                 "author": {"name": "u"}}, "history": []}}]))

    def tensors(self, kind, name, path):
        r = self.find(kind, name)
        if r and not self.may_read(r):
            self.no_right(r)
        elif r:
            files = r.commits[r.sha]
            if urllib.parse.unquote(path) not in files:
                self.no(404, "EntryNotFound", "Entry not found")
                return
            index = json.loads(read(files[urllib.parse.unquote(path)]))
            self.json({"index": {"metadata": index.get("metadata")}, "headers": {
                s: json.loads(read(files[s], 8, 8 + int.from_bytes(read(files[s], 0, 8), "little"))) for s in set(index["weight_map"].values())}})

    # --- buckets ---

    def find_bucket(self, name):
        b = self.hub.buckets.get(name)
        if self.token and self.token not in self.hub.users:
            self.no(401, None, "Invalid credentials in Authorization header")
        elif b is None or (b.private and self.token not in b.readers):
            self.no(404 if self.token else 401, "RepoNotFound", "Bucket not found" if self.token else "Invalid username or password.")
        else:
            return b
        return None

    @staticmethod
    def bucket_info(b):
        return {"id": b.name, "private": b.private, "createdAt": "2026-01-02T03:04:05.000Z", "size": sum(map(size_of, b.files.values())),
                "totalFiles": len(b.files)}

    def bucket(self, name):
        b = self.find_bucket(name)
        if b:
            self.json(self.bucket_info(b))

    def bucket_list(self, owner):
        self.json([self.bucket_info(b) for n, b in self.hub.buckets.items()
                   if n.startswith(owner + "/") and (not b.private or self.token in b.readers)])

    def bucket_tree(self, name, path=None):
        b = self.find_bucket(name)
        if b:
            all_ = b.entries(urllib.parse.unquote(path or ""), self.query.get("recursive") in ("true", "True", "1"))
            at = int(self.query.get("cursor", 0))
            more = {}
            if at + self.hub.page < len(all_):
                more["Link"] = f'<{self.hub.url}{self.path_}?{urllib.parse.urlencode(dict(self.query, cursor=at + self.hub.page))}>; rel="next"'
            self.json(all_[at:at + self.hub.page], more)

    def bucket_paths(self, name):
        b = self.find_bucket(name)
        if b:
            asked = json.loads(self.body)["paths"]
            self.json([e for e in b.entries("", True) if e["path"] in asked])

    def bucket_file(self, name, path):
        b = self.find_bucket(name)
        if not b:
            return
        data = b.files.get(urllib.parse.unquote(path))
        if data is None:
            self.no(404, "EntryNotFound", "Entry not found")
            return
        digest = sha256_of(data)
        self.reply(302, {"Location": self.hub.signed_url(digest), "X-Linked-Size": str(size_of(data)), "X-Linked-Etag": f'"{digest}"',
                         "X-Xet-Hash": xet_of(data), "Link": f'<{self.hub.url}/api/buckets/{b.name}/xet-read-token>; rel="xet-auth"'}, b"Found")

    def file(self, name, rev, path, prefix="", kind=None, cached=False):
        kind = kind or (prefix.rstrip("/") or "models")
        r = self.find(kind, name)
        sha = r and self.revision(r, rev)
        if not sha:
            return
        commit = {"X-Repo-Commit": sha}
        path = urllib.parse.unquote(path)
        if not self.may_read(r, path):
            self.no_right(r, commit)
            return
        data = r.commits[sha].get(path)
        if data is None:
            self.no(404, "EntryNotFound", "Entry not found", commit)
            return
        tag = r.etag(path, sha)
        more = dict(commit, **self.rate, **{"Access-Control-Expose-Headers": "X-Repo-Commit", "X-Powered-By": "huggingface-moon",
                               "Content-Disposition": 'inline; filename="x";'})
        if r.is_lfs(path, data):
            more.update({"Location": self.hub.signed_url(sha256_of(data)),
                         "X-Linked-Size": str(size_of(data)), "X-Linked-Etag": f'"{tag}"', "ETag": f'"{tag}"',
                         "X-Xet-Hash": "5" * 64, "Link": f'<{self.hub.url}/api/{kind}/{r.name}/xet-read-token/{sha}>; '
                         f'rel="xet-auth", <{self.hub.cdn}/v1/reconstructions/5>; rel="xet-reconstruction-info"'})
            self.reply(302, more, b"Found. Redirecting")
        elif not cached:
            self.reply(307, dict(more, Location=f"/api/resolve-cache/{kind}/{r.name}/{sha}/{urllib.parse.quote(path)}"))
        else:
            if self.headers.get("If-None-Match") == f'"{tag}"':
                self.reply(304, {"ETag": f'"{tag}"'})
                return
            what = self.hub.ordered("body:" + path)
            self.bytes_of(data, dict(more, **{"ETag": f'"{tag}"', "Content-Type": "text/plain; charset=utf-8"}), what)

    def cached_file(self, kind, name, rev, path):
        self.file(name, rev, path, kind=kind, cached=True)

    BUCKET = r"(?P<name>[\w.-]+/[\w.-]+)"
    KIND, NAME, REV = r"/api/(?P<kind>models|datasets|spaces|kernels)", r"(?P<name>[\w.-]+(?:/[\w.-]+)?)", r"(?P<rev>[^/]+)"
    routes = [
        (rf"{KIND}/{NAME}/revision/{REV}", info), (rf"{KIND}/{NAME}/tree/{REV}(?:/(?P<path>.*))?", lambda s, **k: s.tree(
            **{n: v for n, v in k.items() if v is not None})),
        (rf"{KIND}/{NAME}/paths-info/{REV}", paths_info), (rf"{KIND}/{NAME}/refs", refs), (rf"{KIND}/{NAME}/commits/{REV}", commits),
        (rf"{KIND}/{NAME}/auth-check", auth_check), (r"/api/whoami-v2", whoami), (KIND, listing),
        (rf"/api/resolve-cache/(?P<kind>\w+)/{NAME}/(?P<rev>[0-9a-f]{{40}})/(?P<path>.+)", cached_file),
        (rf"{KIND}/{NAME}/likers", likers), (rf"{KIND}/{NAME}/discussions", discussions),
        (rf"{KIND}/{NAME}/discussions/(?P<num>\d+)", discussion), (rf"{KIND}/{NAME}/safetensors-metadata/(?P<path>.+)", tensors),
        (rf"{KIND}/{NAME}", info),
        (rf"/api/buckets/{BUCKET}", bucket), (r"/api/buckets/(?P<owner>[\w.-]+)", bucket_list),
        (rf"/api/buckets/{BUCKET}/tree(?:/(?P<path>.*))?", bucket_tree), (rf"/api/buckets/{BUCKET}/paths-info", bucket_paths),
        (rf"/buckets/{BUCKET}/resolve/(?P<path>.+)", bucket_file),
        (rf"/(?P<prefix>datasets/|spaces/|kernels/|){NAME}/resolve/{REV}/(?P<path>.+)", file),
    ]
