"""A fake registry of container images: token server, blobs behind a CDN, pages of tags, and lies to order.

    r = Registry(); r.image("library/alpine", "3.20"); r.url; r.count("GET", "/manifests/"); r.close()

What was asked is in `asked`, in order: (door, method, path with query, Authorization or None); door is "registry", "token" or
"cdn". How it behaves is its fields, to be changed at any time. Images are whole: a config, layers that are real tars, a
manifest for each platform and an index over them.
"""
import base64
import dataclasses
import gzip
import hashlib
import io
import json
import random
import re
import tarfile
import threading
import urllib.parse

from harness import serving

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
LIST2 = "application/vnd.docker.distribution.manifest.list.v2+json"
MANIFEST2 = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG2 = "application/vnd.docker.container.image.v1+json"
LAYER2 = "application/vnd.docker.image.rootfs.diff.tar.gzip"


def digest_of(data, algorithm="sha256"):
    return f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"


def layer(files):
    """A tar of {name: bytes}, packed the same each time."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o755
            tar.addfile(info, io.BytesIO(data))
    return plain.getvalue(), gzip.compress(plain.getvalue(), 1, mtime=0)


def noise(size, seed):
    return random.Random(seed).randbytes(size)


@dataclasses.dataclass
class Image:
    index: str      # digests
    manifests: list
    configs: list
    layers: list


class Handler(serving.Handler):
    def do_GET(self):
        r, door = self.server.registry, self.server.door
        with r.lock:
            r.asked.append((door, self.command, self.path, self.headers.get("Authorization")))
            r.heads.append(dict(self.headers))
        if r.down:
            self.cut()
            return
        for part, (status, fields) in list(r.noes.items()):
            if part in self.path:
                self.send(status, b"", **fields)
                return
        parts = urllib.parse.urlsplit(self.path)
        {"registry": self.registry, "token": self.token, "cdn": self.cdn}[door](
            parts.path, dict(urllib.parse.parse_qsl(parts.query)))

    do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_GET

    def send(self, status, data, **fields):
        self.send_response_only(status)
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        if status != 304:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def refuse(self, status, code):
        self.send(status, json.dumps({"errors": [{"code": code, "message": code.lower()}]}).encode(),
                  Content_Type="application/json")

    # --- the token server ---

    def token(self, path, query):
        r = self.server.registry
        given = self.headers.get("Authorization")
        user = "Basic " + base64.b64encode(":".join(r.user).encode()).decode() if r.user else None
        scope = query.get("scope", "")
        if given is not None and given != user:
            self.refuse(401, "UNAUTHORIZED")
            return
        if r.user and given is None and not r.anonymous:
            self.refuse(r.token_status, "DENIED")
            return
        if r.token_gate is not None and r.gated_scope in scope:
            r.token_gate.wait(120)
        with r.lock:
            r.tokens += 1
            text = f"token-{r.tokens}-{hashlib.sha256(scope.encode()).hexdigest()[:12]}"
            r.good[text] = scope
        body = {"token" if r.token_key == "token" else "access_token": text}
        if r.expires_in is not None:
            body["expires_in"] = r.expires_in
        self.send(200, json.dumps(body).encode(), Content_Type="application/json")

    # --- the registry ---

    def admitted(self, name):
        r = self.server.registry
        given = self.headers.get("Authorization", "")
        scope = f"repository:{name}:pull"
        if r.auth is None:
            return True
        if r.auth == "basic":
            if given == "Basic " + base64.b64encode(":".join(r.user).encode()).decode():
                return True
            self.send(401, b"", WWW_Authenticate='Basic realm="registry"')
            return False
        if given.startswith("Bearer ") and r.good.get(given[7:]) == scope:
            return True
        if r.challenge == "":
            self.send(401, b"{}")
            return False
        self.send(401, b"{}", WWW_Authenticate=r.challenge or
                  f'Bearer realm="{r.token_url}/token",service="fake",scope="{scope}"')
        return False

    def registry(self, path, query):
        r = self.server.registry
        if path == "/v2/":
            self.send(200, b"{}", Docker_Distribution_API_Version="registry/2.0")
            return
        found = re.fullmatch(r"/v2/(.+)/(manifests|blobs|tags|referrers)/(.+)", path)
        if not found:
            self.refuse(404, "NAME_UNKNOWN")
            return
        name, kind, what = found.groups()
        if not self.admitted(name):
            return
        if self.command not in ("GET", "HEAD"):
            self.refuse(405, "UNSUPPORTED")
        elif name not in r.repos:
            self.refuse(404, "NAME_UNKNOWN")
        elif kind == "manifests":
            self.manifest(r, r.repos[name], what)
        elif kind == "blobs":
            self.blob(r, r.repos[name], what)
        elif kind == "tags":
            self.tags(r, name, query)
        else:
            self.referrers(r, r.repos[name], what)

    def manifest(self, r, repo, what):
        digest = repo["tags"].get(what, what)
        if digest not in repo["manifests"]:
            self.refuse(404, "MANIFEST_UNKNOWN")
            return
        kind, data = repo["manifests"][digest]
        if r.manifest_gate is not None and self.command == "GET":
            r.manifest_gate.wait(120)
        fields = {"Content-Type": kind + r.type_suffix, "X-Registry-Says": "secret", "RateLimit-Remaining": "7;w=21600"}
        if r.tells_digest:
            fields["Docker-Content-Digest"] = r.lies.get(digest, digest)
            fields["ETag"] = f'"{digest}"'
        if digest in r.corrupt:
            data = data[:-2] + b" }"
        self.send(200, data, **fields)

    def blob(self, r, repo, digest):
        if digest not in repo["blobs"]:
            self.refuse(404, "BLOB_UNKNOWN")
        elif r.redirects:
            self.send(307, b"", Location=f"{r.cdn_url}/data/{digest}?signature=s3cret")
        else:
            self.bytes(r, repo["blobs"][digest], digest)

    def cdn(self, path, query):
        r = self.server.registry
        digest = path.rpartition("/")[2]
        data = next((repo["blobs"][digest] for repo in r.repos.values() if digest in repo["blobs"]), None)
        if data is None or query.get("signature") != "s3cret":
            self.refuse(403, "DENIED")
        else:
            self.bytes(r, data, digest)

    def bytes(self, r, data, digest):
        first, end, status = 0, len(data), 200
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted:
            first, status = int(wanted[1]), 206
            end = min(end, int(wanted[2]) + 1 if wanted[2] else end)
        if r.blob_gate is not None and self.command == "GET":
            r.blob_gate.wait(120)
        self.send_response_only(status)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{digest[-16:]}"')
        if status == 206:
            self.send_header("Content-Range", f"bytes {first}-{end - 1}/{len(data)}")
        self.send_header("Content-Length", str(end - first))
        self.end_headers()
        if self.command == "HEAD":
            return
        if digest in r.corrupt:
            data = data[:-1] + bytes([data[-1] ^ 1])
        cut = r.cuts.pop(digest, None)
        body = data[first:end] if cut is None else data[first:first + cut]
        with r.lock:
            r.blob_bytes += len(body)
        try:
            self.wfile.write(body)
        except OSError:
            pass
        if cut is not None:
            self.cut()

    def tags(self, r, name, query):
        names = sorted(r.repos[name]["tags"])
        names = [t for t in names if t > query.get("last", "")]
        n = min(int(query.get("n", r.page)), r.page)
        fields = {"Content-Type": "application/json"}
        if len(names) > n:
            fields["Link"] = f'</v2/{name}/tags/list?last={names[n - 1]}&n={n}>; rel="next"'
        self.send(200, json.dumps({"name": name, "tags": names[:n]}).encode(), **fields)

    def referrers(self, r, repo, digest):
        if not r.has_referrers:
            self.refuse(404, "NOT_FOUND")
            return
        found = [{"mediaType": kind, "digest": d, "size": len(data)} for d, (kind, data) in repo["manifests"].items()
                 if json.loads(data).get("subject", {}).get("digest") == digest]
        self.send(200, json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": found}).encode(), Content_Type=INDEX)


class Registry:
    def __init__(self, auth=None, user=None, anonymous=True, redirects=False, tls=None):
        self.lock = threading.Lock()
        self.asked, self.heads = [], []  # of each request: the tuple of the module's header, and its fields
        self.repos = {}
        self.auth, self.user, self.anonymous = auth, user, anonymous  # auth: None, "bearer" or "basic"
        self.redirects = redirects
        self.good, self.tokens, self.expires_in, self.token_key = {}, 0, 300, "token"
        self.token_status = 401          # to who shows no credential and needs one
        self.challenge = None            # another than ours; "": none at all
        self.token_gate = self.manifest_gate = self.blob_gate = None  # Events that answers wait for
        self.gated_scope = ""            # ... of tokens those whose scope has this
        self.down = False                # every connection is cut
        self.noes = {}                   # part of a path: (status, {field: value})
        self.corrupt = set()             # digests whose bytes are others
        self.lies = {}                   # digest: what Docker-Content-Digest says instead
        self.cuts = {}                   # digest: after so many bytes, once
        self.tells_digest = True
        self.has_referrers = True
        self.type_suffix = ""
        self.page = 100
        self.blob_bytes = 0
        self.servers = {}
        for door in ("registry", "token", "cdn"):
            s = self.servers[door] = serving.Server(("127.0.0.1", 0), Handler)
            s.registry, s.door, s.tls = self, door, tls
            serving.run(s)
        scheme = "https" if tls else "http"
        self.host, self.token_host, self.cdn_host = (
            f"127.0.0.1:{self.servers[d].server_address[1]}" for d in ("registry", "token", "cdn"))
        self.url, self.token_url, self.cdn_url = (
            f"{scheme}://{h}" for h in (self.host, self.token_host, self.cdn_host))

    # --- what it has ---

    def repo(self, name):
        return self.repos.setdefault(name, {"manifests": {}, "tags": {}, "blobs": {}})

    def blob(self, name, data, algorithm="sha256"):
        digest = digest_of(data, algorithm)
        self.repo(name)["blobs"][digest] = data
        return digest

    def manifest(self, name, document, kind=MANIFEST, tag=None, algorithm="sha256"):
        data = document if isinstance(document, bytes) else json.dumps(document, indent=1).encode()
        digest = digest_of(data, algorithm)
        self.repo(name)["manifests"][digest] = (kind, data)
        if tag:
            self.repo(name)["tags"][tag] = digest
        return digest

    def image(self, name, tag, layers=2, size=200_000, seed=1, platforms=(("linux", "amd64"), ("linux", "arm64")), docker=False):
        """Layers of the same size and seed are the same in each image."""
        made = Image("", [], [], [])
        top, kind, config_kind, layer_kind = (LIST2, MANIFEST2, CONFIG2, LAYER2) if docker else (INDEX, MANIFEST, CONFIG, LAYER)
        entries = []
        for os, arch in platforms:
            plains, packed = zip(*[layer({f"file{i}": noise(size, seed * 100 + i)}) for i in range(layers)])
            config = json.dumps({"os": os, "architecture": arch, "config": {}, "rootfs": {
                "type": "layers", "diff_ids": [digest_of(p) for p in plains]}, "made": tag}).encode()
            digests = [self.blob(name, p) for p in packed]
            about = self.blob(name, config)
            digest = self.manifest(name, {
                "schemaVersion": 2, "mediaType": kind,
                "config": {"mediaType": config_kind, "digest": about, "size": len(config)},
                "layers": [{"mediaType": layer_kind, "digest": d, "size": len(p)} for d, p in zip(digests, packed)]}, kind)
            entries.append({"mediaType": kind, "digest": digest, "size": len(self.repo(name)["manifests"][digest][1]),
                            "platform": {"os": os, "architecture": arch}})
            made.manifests.append(digest)
            made.configs.append(about)
            made.layers += [d for d in digests if d not in made.layers]
        made.index = self.manifest(name, {"schemaVersion": 2, "mediaType": top, "manifests": entries}, top, tag)
        return made

    # --- what was asked ---

    def count(self, method=None, part="", door=None):
        with self.lock:
            return sum(1 for d, m, path, _ in self.asked
                       if part in path and method in (None, m) and door in (None, d))

    def forget(self):
        with self.lock:
            self.asked.clear()
            self.heads.clear()
            self.blob_bytes = 0

    def close(self):
        for gate in (self.token_gate, self.manifest_gate, self.blob_gate):
            if gate is not None:
                gate.set()
        for s in self.servers.values():
            s.shutdown()
            s.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *why):
        self.close()
