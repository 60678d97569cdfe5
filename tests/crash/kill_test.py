"""SIGKILL at random instants under load: fills, ranges, eviction, uploads of all kinds. KILLS=200 for the full run (10 otherwise).

After each restart `mirrorctl verify` is clean (orphans it removes), what was committed is there, and every byte that was
ever served, also by an answer that was cut short, is the right one.
"""
import base64
import collections
import gzip
import hashlib
import http.client
import json
import os
import random
import re
import threading
import time

import pytest

from harness.mirrord import SLOW

KILLS = int(os.environ.get("KILLS", "10"))
SEED = int(os.environ.get("SEED", str(random.randrange(1 << 30))))
OBJECTS = 60
SIZES = [700, 30 << 10, 200 << 10, 2 << 20, 9 << 20]
# Uploads are never evicted, so most of them repeat these few; the fresh ones are small.
POOL = [random.Random(i).randbytes(n) for i, n in enumerate([500, 40000, 300000, 1 << 20] * 6)]


def named(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def below(url):
    return "/" + url.split("/", 3)[3] if "://" in url else url


class Load:
    """Clients that never stop asking; each keeps what it must find again."""

    def __init__(self, m, origin, token):
        self.m, self.origin, self.token = m, origin, token
        self.stop = threading.Event()
        self.wrong = []
        self.served = 0       # answers that came whole
        self.committed = {}   # path -> bytes that must be there from now on
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(kind, SEED + i))
                        for i, kind in enumerate((self.get, self.get, self.ranged, self.put, self.upload,
                                                   self.image, self.python, self.hub))]

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *exc):
        self.stop.set()
        for t in self.threads:
            t.join()

    def run(self, kind, seed):
        rng = random.Random(seed)
        while not self.stop.is_set():
            try:
                kind(rng)
            except (OSError, http.client.HTTPException):
                time.sleep(0.02)  # it is being killed, or comes up
            except Exception as why:  # a mistake of the test must not look like silence
                self.wrong.append(repr(why))
                return

    def request(self, method, path, body=None, headers=None):
        """(status, headers, bytes, whole); bytes are what came, also of an answer that broke off."""
        c = http.client.HTTPConnection("127.0.0.1", self.m.port, timeout=30 * SLOW)
        try:
            c.request(method, path, body, headers or {})
            r = c.getresponse()
            try:
                return r.status, r.headers, r.read(), True
            except http.client.IncompleteRead as cut:
                return r.status, r.headers, cut.partial, False
        finally:
            c.close()

    def note(self, fine, what):
        if not fine:
            self.wrong.append(what)

    def get(self, rng):
        path = f"/{rng.randrange(OBJECTS)}"
        status, _, body, whole = self.request("GET", "/data" + path)
        if status == 200:
            want = self.origin.bytes_of(path)
            self.note(want.startswith(body) and (not whole or body == want), f"GET {path}: wrong bytes")
            self.served += whole

    def ranged(self, rng):
        path = f"/{rng.randrange(OBJECTS)}"
        size = self.origin.stats(path).size
        first = rng.randrange(size)
        end = min(size, first + rng.randrange(1, 1 << 20))
        status, _, body, whole = self.request("GET", "/data" + path, headers={"Range": f"bytes={first}-{end - 1}"})
        if status == 206:
            want = self.origin.bytes_of(path, first, end)
            self.note(want.startswith(body) and (not whole or body == want), f"GET {path} {first}-{end}: wrong bytes")
            self.served += whole

    def publish(self, method, path, body, headers=None):
        status, fields, _, _ = self.request(method, path, body, dict(headers or {}, Authorization=f"Bearer {self.token}"))
        return status, fields

    @staticmethod
    def bytes_to_publish(rng):
        time.sleep(rng.uniform(0, 0.2))
        return rng.randbytes(rng.choice((500, 40000))) if rng.random() < 0.25 else rng.choice(POOL)

    def put(self, rng):
        data = self.bytes_to_publish(rng)
        path = f"/models/me/single/{rng.randrange(1 << 30)}"
        status, _ = self.publish("PUT", path, data)
        if status in (200, 201, 204):
            self.keep({path: data})

    def upload(self, rng):
        """A folder of files: all or none."""
        tree = f"/models/me/set{rng.randrange(1 << 30)}"
        status, fields = self.publish("POST", tree + "/-/uploads", b"")
        if status != 201:
            return
        where = fields["Location"]
        where = where[where.index("/models/"):]
        files = {f"{tree}/{i}": self.bytes_to_publish(rng) for i in range(3)}
        for path, data in files.items():
            status, _ = self.publish("PUT", where + path[len(tree):], data)
            if status not in (200, 201, 204):
                return
        status, _ = self.publish("POST", where + "/commit", b"")
        if status == 201:
            self.keep(files)

    def image(self, rng):
        """A layer in two pieces, a configuration at once, the manifest that names them."""
        base = f"/v2/models/me/image{rng.randrange(1 << 30)}"
        layer, config = self.bytes_to_publish(rng), b'{"n": %d}' % rng.randrange(1 << 30)
        status, _ = self.publish("POST", f"{base}/blobs/uploads/?digest={named(config)}", config)
        if status != 201:
            return
        status, fields = self.publish("POST", base + "/blobs/uploads/", b"")
        if status != 202:
            return
        where = below(fields["Location"])
        half = len(layer) // 2
        status, _ = self.publish("PATCH", where, layer[:half], {"Content-Range": f"0-{half - 1}"})
        if status != 202:
            return
        status, _ = self.publish("PUT", f"{where}?digest={named(layer)}", layer[half:])
        if status != 201:
            return
        kind = "application/vnd.oci.image.manifest.v1+json"
        manifest = json.dumps({
            "schemaVersion": 2, "mediaType": kind,
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": named(config), "size": len(config)},
            "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": named(layer), "size": len(layer)}],
        }).encode()
        status, _ = self.publish("PUT", base + "/manifests/latest", manifest, {"Content-Type": kind})
        if status == 201:
            self.keep({f"{base}/blobs/{named(layer)}": layer, f"{base}/blobs/{named(config)}": config,
                       base + "/manifests/latest": manifest})

    def python(self, rng):
        """What twine sends; the project is one of a few, so that several write to one tree."""
        name, version, data = f"demo{rng.randrange(3)}", f"1.{rng.randrange(1 << 30)}", gzip.compress(self.bytes_to_publish(rng), 1, mtime=0)
        file = f"{name}-{version}.tar.gz"
        fields = {":action": "file_upload", "protocol_version": "1", "name": name, "version": version, "filetype": "sdist",
                  "pyversion": "source", "metadata_version": "2.1", "sha256_digest": hashlib.sha256(data).hexdigest()}
        body = b"".join(b'--b0undary\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (k.encode(), v.encode())
                        for k, v in fields.items())
        body += (b'--b0undary\r\nContent-Disposition: form-data; name="content"; filename="%s"\r\n\r\n' % file.encode()
                 + data + b"\r\n--b0undary--\r\n")
        status, _ = self.publish("POST", "/models/legacy/", body, {"Content-Type": "multipart/form-data; boundary=b0undary"})
        if status == 200:
            self.keep({f"/models/simple/{name}/{file}": data})

    def hub(self, rng):
        """A commit of a file that came before it, as LFS, and one that comes inside."""
        name, large, small = f"hub{rng.randrange(1 << 30)}", self.bytes_to_publish(rng), rng.randbytes(100)
        oid = hashlib.sha256(large).hexdigest()
        status, _ = self.publish("POST", "/models/api/repos/create", json.dumps({"name": name, "organization": "me"}).encode())
        if status != 200:
            return
        status, _, body, whole = self.request(
            "POST", f"/models/me/{name}.git/info/lfs/objects/batch",
            json.dumps({"operation": "upload", "transfers": ["basic"], "objects": [{"oid": oid, "size": len(large)}]}).encode(),
            {"Authorization": f"Bearer {self.token}"})
        if status != 200 or not whole:
            return
        status, _ = self.publish("PUT", below(json.loads(body)["objects"][0]["actions"]["upload"]["href"]), large)
        if status not in (200, 201):
            return
        lines = [{"key": "header", "value": {"summary": "s"}},
                 {"key": "lfsFile", "value": {"path": "large", "algo": "sha256", "oid": oid, "size": len(large)}},
                 {"key": "file", "value": {"path": "small", "content": base64.b64encode(small).decode(), "encoding": "base64"}}]
        status, _ = self.publish("POST", f"/models/api/models/me/{name}/commit/main", b"\n".join(json.dumps(x).encode() for x in lines))
        if status == 200:
            self.keep({f"/models/me/{name}/large": large, f"/models/me/{name}/small": small})

    def keep(self, files):
        with self.lock:
            self.committed.update((path, hashlib.sha256(data).digest()) for path, data in files.items())

    def check_committed(self, rng, at_most):
        with self.lock:
            kept = list(self.committed.items())
        for path, digest in rng.sample(kept, min(len(kept), at_most)):
            status, _, body, whole = self.request("GET", path)
            self.note(status == 200 and whole and hashlib.sha256(body).digest() == digest,
                      f"{path}: committed, then {status} with {len(body)} bytes")


@pytest.mark.timeout(0)
def test_sigkill_at_random_instants(mirrord, origin):
    rng = random.Random(SEED)
    print(f"SEED={SEED} KILLS={KILLS}")
    for i in range(OBJECTS):
        origin.put(f"/{i}", size=SIZES[i % len(SIZES)] + i, seed=i + 1, rate=rng.choice((0, 0, 8 << 20)))
    # Small enough that eviction never rests: the objects are 135 MiB, uploads come on top.
    m = mirrord(f"""log_level = "warn"
        storage {{ quota = "96m" reserve = "16m" }}
        repo "data" {{ protocol = "generic" origin = "{origin.url}/" rule '.' {{ class = immutable }} }}
        repo "models" {{ protocol = "hosted" }}""")
    with Load(m, origin, m.token("load", "publish:models/*")) as load:
        evicted = 0
        for turn in range(KILLS):
            time.sleep(rng.uniform(0.05, 1.2) * SLOW)
            evicted += m.metric("mirrord_cache_evictions_total")
            m.kill()
            m.start()
            done = m.ctl("verify", check=False)
            assert done.returncode == 0, f"after kill {turn + 1}, SEED={SEED}: {done.stdout}{done.stderr}"
            load.check_committed(rng, 10)
            assert not load.wrong, f"after kill {turn + 1}, SEED={SEED}: {load.wrong[:5]}"
    load.check_committed(rng, 1 << 30)
    done = m.ctl("verify", "--deep", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not load.wrong, f"SEED={SEED}: {load.wrong[:5]}"
    print(f"{load.served} answers, {len(load.committed)} files committed, {evicted:.0f} evictions")
    kinds = collections.Counter(re.search(r"single|set|image|simple|hub", path)[0] for path in load.committed)
    print(dict(kinds))
    assert load.served > KILLS and load.committed and evicted, "the load did nothing: this run shows nothing"
